"""Identification of known arms: recovered and identifiable parameters, and physical links."""

import json
from dataclasses import replace

import numpy as np
import pytest

from delan.errors import DataError, ModelError, SettingsError
from delan.identification.identify import IdentifyResult, IdentifySettings, identify
from delan.identification.physical_links import (
    Coordinates,
    is_physical,
    link_parameters,
    pseudo_inertias,
    repaired_links,
)
from delan.joints import Dataset
from delan.models.friction import Friction, MotorPair
from delan.models.rigid_body import LINK_PARAMETERS, RigidBody
from delan.robots.arms import DRIVE_INERTIA, TWO_LINK, WAM7, WAM7_ANALYTIC
from delan.robots.description import Arm
from tests.support.members import noisy

FRICTION = Friction.known(
    WAM7.joints,
    {
        "coulomb": np.linspace(2, 0.1, 7),
        "viscous": np.linspace(1, 0.02, 7),
        "offset": np.linspace(-0.5, 0.5, 7),
    },
)
BARE = IdentifySettings(friction=(), armature=False)


def moved(
    arm: Arm, body: RigidBody, samples: int, *, seconds: float = 10.0, seed: int = 0
) -> Dataset:
    """Return sums of five sines per joint through the arm's range, with the torques of the body."""
    rng = np.random.default_rng(seed)
    low, high = arm.limits.lower, arm.limits.upper
    size = rng.uniform(0.3, 1, (5, arm.joints.dof))
    size *= 0.45 * (high - low) / size.sum(axis=0)
    rate, phase = rng.uniform(0.5, 4, size.shape), rng.uniform(0, 2 * np.pi, size.shape)
    t = np.linspace(0, seconds, samples)
    angle = rate * t[:, None, None] + phase
    q = (low + high) / 2 + np.sum(size * np.sin(angle), axis=1)
    qd = np.sum(size * rate * np.cos(angle), axis=1)
    qdd = -np.sum(size * rate**2 * np.sin(angle), axis=1)
    tau = body.rows(q, qd, qdd).total
    label = np.zeros(samples, dtype=int)
    return Dataset(
        t=t, q=q, qd=qd, qdd=qdd, tau=tau, trajectory=label, joints=arm.joints, source="swing"
    )


def nmse(model: RigidBody, held_out: Dataset) -> float:
    """Return the mean over joints of the squared error over the variance of the torque."""
    tau_pred = model.rows(held_out.q, held_out.qd, held_out.qdd).total
    mse = np.mean((tau_pred - held_out.tau) ** 2, axis=0)
    return float(np.mean(mse / held_out.tau.var(axis=0)))


def massless(arm: Arm) -> Arm:
    """Return the arm with links of zero mass."""
    nothing = {"mass": 0.0, "centre": (0.0, 0.0, 0.0), "inertia": (0.0,) * 6}
    return replace(arm, links=tuple(replace(link, **nothing) for link in arm.links))


def rigid() -> RigidBody:
    return RigidBody.from_urdf(WAM7.urdf())


def real() -> RigidBody:
    return RigidBody.from_urdf(WAM7.urdf(), friction=FRICTION, armature=np.array(DRIVE_INERTIA))


@pytest.fixture(scope="module")
def swing() -> Dataset:
    return moved(WAM7, rigid(), 600, seed=1)


@pytest.fixture(scope="module")
def rough_swing() -> Dataset:
    return moved(WAM7, real(), 600, seed=1)


@pytest.fixture(scope="module")
def held_out() -> Dataset:
    return moved(WAM7, rigid(), 200, seed=2)


@pytest.fixture(scope="module")
def clean(swing) -> IdentifyResult:
    return identify(swing, WAM7_ANALYTIC.urdf(), BARE)


# The regressor, against recursive Newton–Euler


@pytest.mark.parametrize("kind", ["revolute", "continuous", "prismatic"])
def test_the_regressor_times_the_parameters_is_the_torque(kind):
    arm = replace(WAM7, links=(*WAM7.links[:3], replace(WAM7.links[3], kind=kind), *WAM7.links[4:]))
    body = RigidBody.from_urdf(arm.urdf())
    q, qd, qdd = np.random.default_rng(0).normal(0, 2, (3, 20, 7))
    regressor = body.regressor_rows(q, qd, qdd)
    np.testing.assert_allclose(
        regressor @ body.parameters.ravel(), body.rows(q, qd, qdd).total, atol=1e-11
    )


def test_parameters_go_in_and_come_out():
    body, other = real(), RigidBody.from_urdf(WAM7_ANALYTIC.urdf())
    same = other.with_parameters(body.parameters, friction=FRICTION, armature=body.armature)
    q, qd, qdd = np.random.default_rng(0).normal(0, 2, (3, 7))
    np.testing.assert_allclose(same.parameters, body.parameters, atol=1e-14)
    np.testing.assert_allclose(
        same.inverse_dynamics(q, qd, qdd), body.inverse_dynamics(q, qd, qdd), atol=1e-11
    )
    np.testing.assert_array_equal(same.with_parameters(body.parameters).armature, 0)
    assert same.with_parameters(body.parameters).friction is None


def test_a_link_without_mass_still_has_moments():
    body = RigidBody.from_urdf(TWO_LINK.urdf())
    parameters = body.parameters
    parameters[1, 0] = 0
    q, qd, qdd = np.random.default_rng(0).normal(0, 2, (3, 1, 2))
    wanted = body.regressor_rows(q, qd, qdd)[0] @ parameters.ravel()
    np.testing.assert_allclose(
        body.with_parameters(parameters).inverse_dynamics(q[0], qd[0], qdd[0]), wanted, atol=1e-6
    )


@pytest.mark.usefixtures("as_shipped")
def test_parameters_of_the_wrong_shape_are_refused():
    with pytest.raises(ModelError, match=r"shape \(7, 9\).* \(7, 10\)"):
        rigid().with_parameters(np.zeros((7, 9)))


# Identifiable parameters


def test_the_wam_has_43_base_parameters(clean):
    """7 n − 6: seven per link, one for the first with its vertical axis (Khalil, Dombre)."""
    q, qd, qdd = np.random.default_rng(0).normal(0, 2, (3, 100, 7))
    regressor = rigid().regressor_rows(q, qd, qdd).reshape(-1, 70)
    assert clean.rank == len(clean.base) == np.linalg.matrix_rank(regressor) == 7 * 7 - 6
    assert 1 < clean.condition < 100


def test_unidentifiable_parameters_are_flagged(clean):
    # The first link only turns about the vertical, the next two about points at rest: their
    # masses produce no torque.
    unseen = {f"base_yaw {name}" for name in LINK_PARAMETERS if name != "Izz"}
    assert set(clean.named("no")) == {
        *unseen,
        "shoulder_pitch mass",
        "shoulder_pitch mz",
        "shoulder_yaw mass",
    }
    assert {"palm_yaw mx", "palm_yaw my", "palm_yaw Izz", "elbow_pitch Ixz"} <= set(
        clean.named("alone")
    )
    assert {"palm_yaw mass", "palm_yaw Ixx", "palm_yaw Iyy", "base_yaw Izz"} <= set(
        clean.named("combined")
    )
    assert sum(len(clean.named(kind)) for kind in ("alone", "combined", "no")) == 70
    for parameter in clean.parameters:
        assert (parameter.standard_error is None) == (parameter.identifiable != "alone")
        if parameter.identifiable == "no":
            assert parameter.value == parameter.prior


def test_flags_agree_with_the_null_space_of_random_motion(clean):
    q, qd, qdd = np.random.default_rng(0).normal(0, 2, (3, 100, 7))
    regressor = rigid().regressor_rows(q, qd, qdd).reshape(-1, 70)
    for index, parameter in enumerate(clean.parameters):
        others = np.delete(regressor, index, axis=1)
        needed = np.linalg.matrix_rank(others, tol=1e-8) < 43
        assert needed == (parameter.identifiable == "alone"), parameter.name


def test_base_parameters_are_combinations_whose_true_values_are_found(clean):
    names = [parameter.name for parameter in clean.parameters]
    truth = dict(zip(names, rigid().parameters.ravel().tolist(), strict=True))
    for base in clean.base:
        expected = sum(factor * truth[name] for name, factor in base.terms)
        assert base.value == pytest.approx(expected, abs=1e-9)
    for parameter in clean.parameters:
        if parameter.identifiable == "alone":
            assert parameter.value == pytest.approx(truth[parameter.name], rel=1e-7, abs=1e-9)


def test_base_parameters_are_those_of_the_textbook(clean):
    """Distal links are lumped into proximal ones: the elbow is 0.55 m up and 0.045 m out."""
    names = [base.name for base in clean.base]
    assert "base_yaw Izz + shoulder_pitch Iyy" in names
    assert "wrist_yaw Izz + wrist_pitch Iyy" in names
    assert "palm_yaw Ixx − palm_yaw Iyy" in names
    terms = [base.terms for base in clean.base if base.terms[0][0] == "shoulder_pitch Izz"]
    shoulder = dict(terms[0])
    assert shoulder["elbow_pitch mass"] == pytest.approx(0.55**2 + 0.045**2)
    assert shoulder["shoulder_yaw Iyy"] == pytest.approx(1)


def test_torques_of_held_out_motion_are_reproduced(clean, held_out):
    assert nmse(clean.model, held_out) <= 1e-10
    assert max(clean.residual_std) < 1e-9


def test_five_percent_noise_hardly_matters(swing, held_out):
    result = identify(noisy(swing, 0.05), WAM7_ANALYTIC.urdf(), BARE)
    assert nmse(result.model, held_out) <= 1e-3
    np.testing.assert_allclose(result.residual_std, 0.05 * swing.tau.std(axis=0), rtol=0.1)


def test_kinematics_alone_suffice(swing, held_out):
    result = identify(swing, massless(WAM7).urdf(), BARE)
    assert nmse(result.model, held_out) <= 1e-10
    assert len(result.events) == 7
    assert "base_yaw" in result.events[0]


def test_chunks_do_not_matter(swing, clean, monkeypatch):
    monkeypatch.setattr("delan.identification.regression.CHUNK", 37)
    again = identify(swing, WAM7_ANALYTIC.urdf(), BARE)
    np.testing.assert_allclose(again.model.parameters, clean.model.parameters, atol=1e-9)


def test_friction_and_rotors_are_recovered(rough_swing):
    result = identify(rough_swing, WAM7_ANALYTIC.urdf())
    friction = result.model.friction
    parameters = {parameter.name: parameter for parameter in result.parameters}
    assert friction is not None
    for term in ("coulomb", "viscous", "offset"):
        np.testing.assert_allclose(friction.named[term], FRICTION.named[term], rtol=1e-6, atol=1e-9)
    # The first two axes cross at right angles, the first one vertical: their rotors act like Izz of
    # their links, and only the sums are identifiable (as for the PUMA 560 of Gautier and Khalil
    # 1990).
    assert result.rank == 43 + 3 * 7 + 7 - 2
    np.testing.assert_allclose(result.model.armature[2:], DRIVE_INERTIA[2:], rtol=1e-6)
    values = [*rigid().parameters.ravel(), *[0.0] * 21, *DRIVE_INERTIA]
    truth = dict(zip(parameters, values, strict=True))
    for joint in ("base_yaw", "shoulder_pitch"):
        assert parameters[f"{joint} armature"].identifiable == "combined"
        base = next(base for base in result.base if f"{joint} armature" in dict(base.terms))
        expected = sum(factor * truth[name] for name, factor in base.terms)
        assert base.value == pytest.approx(expected, rel=1e-6), joint
    assert nmse(result.model, moved(WAM7, real(), 200, seed=2)) <= 1e-10


def test_a_subset_of_friction_terms_can_be_identified(rough_swing):
    settings = IdentifySettings(friction=("viscous",), armature=False)
    friction = identify(rough_swing, WAM7.urdf(), settings).model.friction
    assert friction is not None
    assert friction.columns == ("viscous",)
    assert (friction.named["viscous"] > 0).all()


def with_memory(body: RigidBody, parts: list[Dataset]) -> Dataset:
    """Return the motions as one dataset with mixed rows and the torques of hysteresis."""
    assert body.friction is not None
    trajectories = []
    for label, part in enumerate(parts):
        memory = body.friction.remember(part.q)
        tau = body.rows(part.q, part.qd, part.qdd, memory=memory).total
        trajectories.append(replace(part, tau=tau, trajectory=np.full(len(part), label)))
    columns = {
        name: np.concatenate([getattr(part, name) for part in trajectories])
        for name in ("t", "q", "qd", "qdd", "tau", "trajectory")
    }
    dataset = replace(trajectories[0], **columns)
    return dataset.rows(np.argsort(dataset.t, kind="stable"))


@pytest.mark.parametrize("physical", [False, True])
def test_hysteresis_is_recovered(physical, monkeypatch):
    """Asymmetric friction, Stribeck and stops at the joints and at a motor that turns with both."""
    monkeypatch.setattr("delan.identification.regression.CHUNK", 170)
    settings = IdentifySettings(
        friction=("viscous", "offset", "asymmetric", "stribeck", "stops"),
        pairs=(MotorPair(0, 1, 0.6),),
        radii=(0.01, 0.1),
        stribeck_speed=0.3,
        physical=physical,
    )
    weights = np.random.default_rng(0).uniform(0.1, 1, (7, 3))
    weights[settings.actuator.columns.index("offset")] = 0.3, -0.2, 0.0
    true = Friction.of(TWO_LINK.joints, settings.actuator, weights)
    body = RigidBody.from_urdf(TWO_LINK.urdf(), friction=true, armature=np.array([0.1, 0.05]))
    swing = with_memory(body, [moved(TWO_LINK, body, 300, seed=seed) for seed in range(3)])
    result = identify(swing, TWO_LINK.urdf(), settings)
    friction = result.model.friction
    assert friction is not None
    assert friction.settings == settings.actuator
    assert "shoulder + 0.6 elbow stop 0.1" in result.named("alone")
    assert not any("0.6 elbow offset" in parameter.name for parameter in result.parameters)
    for name in friction.columns:
        np.testing.assert_allclose(
            friction.named[name], true.named[name], rtol=1e-4, atol=1e-5, err_msg=name
        )
    assert max(result.residual_std) < 1e-5
    unseen = moved(TWO_LINK, body, 200, seed=9)
    memory = true.remember(unseen.q)
    tau = body.rows(unseen.q, unseen.qd, unseen.qdd, memory=memory).total
    tau_pred = result.model.rows(unseen.q, unseen.qd, unseen.qdd, memory=memory).total
    np.testing.assert_allclose(tau_pred, tau, atol=1e-4)
    json.dumps(result.provenance())


@pytest.mark.parametrize("settings", [BARE, replace(BARE, armature=True, friction=("viscous",))])
@pytest.mark.slow
def test_standard_errors_hold_over_repeated_noise(settings):
    swing = moved(TWO_LINK, RigidBody.from_urdf(TWO_LINK.urdf()), 60, seed=3)
    runs = [identify(noisy(swing, 0.1, seed), TWO_LINK.urdf(), settings) for seed in range(300)]
    values = np.array([[base.value for base in run.base] for run in runs])
    errors = np.array([[base.standard_error for base in run.base] for run in runs])
    combinations = {tuple(dict(base.terms)) for run in runs for base in run.base}
    assert len(combinations) == runs[0].rank
    np.testing.assert_allclose(np.sqrt(np.mean(errors**2, axis=0)), values.std(axis=0), rtol=0.15)
    noise = np.array([run.residual_std for run in runs])
    np.testing.assert_allclose(
        np.sqrt(np.mean(noise**2, axis=0)), 0.1 * swing.tau.std(axis=0), rtol=0.03
    )


def test_weights_follow_the_noise_of_each_joint():
    """A joint with much noise does not spoil the estimates from a joint with little."""
    swing = moved(TWO_LINK, RigidBody.from_urdf(TWO_LINK.urdf()), 200, seed=3)
    noise = np.random.default_rng(0).normal(0, [10, 0.01], swing.tau.shape)
    result = identify(replace(swing, tau=swing.tau + noise), TWO_LINK.urdf(), BARE)
    np.testing.assert_allclose(result.residual_std, [10, 0.01], rtol=0.15)
    truth = RigidBody.from_urdf(TWO_LINK.urdf()).parameters[1]
    values = {parameter.name: parameter.value for parameter in result.parameters}
    assert values["elbow mx"] == pytest.approx(truth[1], rel=0.01)


def test_a_prior_holds_where_data_are_poor(swing, held_out):
    poor = noisy(swing.rows(np.arange(0, 600, 10)), 0.2)
    loose = identify(poor, WAM7.urdf(), BARE)
    held = identify(poor, WAM7.urdf(), replace(BARE, prior=0.01))
    assert nmse(held.model, held_out) < 0.3 * nmse(loose.model, held_out)
    assert held.rank == 43
    assert all(parameter.standard_error is not None for parameter in held.parameters)
    unsure = identify(poor, WAM7.urdf(), replace(BARE, prior=1e6))
    assert nmse(unsure.model, held_out) == pytest.approx(nmse(loose.model, held_out), rel=1e-3)


def test_one_joint_suffices():
    arm = Arm("pendulum", TWO_LINK.links[:1], tool=(0.5, 0.0, 0.0))
    body = RigidBody.from_urdf(arm.urdf())
    result = identify(moved(arm, body, 50), arm.urdf(), BARE)
    assert set(result.named("alone")) == {"shoulder mx", "shoulder mz", "shoulder Iyy"}
    np.testing.assert_allclose(result.model.parameters, body.parameters, atol=1e-9)
    assert identify(moved(arm, body, 50), arm.urdf(), replace(BARE, physical=True)).impossible == ()


def test_provenance_records_the_parameters(clean):
    record = clean.provenance()["identify"]
    assert record["rank"] == 43
    assert record["base"][0]["name"] == clean.base[0].name
    assert len(record["parameters"]) == 70


# Physically consistent links


def test_pseudo_inertia_of_point_masses():
    """Against the sum over points that defines it."""
    rng = np.random.default_rng(0)
    masses, points = rng.uniform(0.1, 1, 8), rng.normal(0, 1, (8, 3))
    ends = np.column_stack([points, np.ones(8)])
    wanted = np.einsum("p,pi,pj->ij", masses, ends, ends)
    inertia = sum(
        m * (p @ p * np.eye(3) - np.outer(p, p)) for m, p in zip(masses, points, strict=True)
    )
    at = (0, 0, 1, 0, 1, 2), (0, 1, 1, 2, 2, 2)
    link = np.concatenate([[masses.sum()], masses @ points, np.asarray(inertia)[at]])
    np.testing.assert_allclose(pseudo_inertias(link[None])[0], wanted, atol=1e-12)
    np.testing.assert_allclose(link_parameters(wanted), link, atol=1e-12)


def test_coordinates_and_their_derivative():
    links, rng = rigid().parameters, np.random.default_rng(0)
    chart = Coordinates.around(RigidBody.from_urdf(WAM7_ANALYTIC.urdf()).parameters)
    np.testing.assert_allclose(chart.links(chart.of(links)), links, rtol=1e-9, atol=1e-12)
    place, way, step = rng.normal(0, 1, (7, 10)), rng.normal(0, 1, (7, 10)), 1e-6
    slope = (chart.links(place + step * way) - chart.links(place - step * way)) / (2 * step)
    np.testing.assert_allclose(
        np.einsum("lpc,lc->lp", chart.derivative(place), way), slope, rtol=1e-6, atol=1e-8
    )


def test_impossible_links_are_known_and_repaired():
    links = rigid().parameters
    assert is_physical(links).all()
    links[0, 9] *= 10  # more inertia about one axis than about the other two together
    links[1, 0] = -1
    links[2] = 0
    np.testing.assert_array_equal(is_physical(links), [False, False, False, True, True, True, True])
    repaired = repaired_links(links)
    assert is_physical(repaired).all()
    np.testing.assert_array_equal(repaired[3:], links[3:])
    np.testing.assert_allclose(repaired[0, :4], links[0, :4])


@pytest.mark.parametrize("settings", [BARE, IdentifySettings()])
@pytest.mark.parametrize("samples", [100, 200])
def test_physical_links_stay_possible_where_plain_ones_do_not(settings, samples):
    body = rigid() if settings is BARE else real()
    few = noisy(moved(WAM7, body, samples, seed=1), 0.2)
    held_out = moved(WAM7, body, 200, seed=2)
    plain = identify(few, WAM7_ANALYTIC.urdf(), settings)
    possible = identify(few, WAM7_ANALYTIC.urdf(), replace(settings, physical=True))
    assert plain.impossible
    assert np.linalg.eigvalsh(pseudo_inertias(plain.model.parameters)).min() < 0
    assert possible.impossible == ()
    assert np.linalg.eigvalsh(pseudo_inertias(possible.model.parameters)).min() > 0
    assert nmse(possible.model, held_out) <= 2 * nmse(plain.model, held_out)
    assert (possible.model.armature >= 0).all()
    if possible.model.friction is not None:
        assert (possible.model.friction.named["coulomb"] >= 0).all()
        assert (possible.model.friction.named["viscous"] >= 0).all()


@pytest.mark.parametrize(
    "prior", [WAM7_ANALYTIC, massless(WAM7)], ids=["second set", "kinematics alone"]
)
def test_physical_links_without_noise_are_exact(prior, swing, held_out):
    result = identify(swing, prior.urdf(), replace(BARE, physical=True))
    assert nmse(result.model, held_out) <= 1e-6
    assert np.linalg.eigvalsh(pseudo_inertias(result.model.parameters)).min() > 0


def test_physical_friction_is_recovered(rough_swing):
    model = identify(rough_swing, WAM7_ANALYTIC.urdf(), IdentifySettings(physical=True)).model
    assert model.friction is not None
    for term in ("coulomb", "viscous", "offset"):
        np.testing.assert_allclose(
            model.friction.named[term], FRICTION.named[term], rtol=1e-6, atol=1e-9
        )
    np.testing.assert_allclose(model.armature[2:], DRIVE_INERTIA[2:], rtol=1e-6)


def test_a_physical_prior_holds_links(swing):
    few = noisy(swing.rows(np.arange(0, 600, 6)), 0.2)
    held = identify(few, WAM7.urdf(), replace(BARE, physical=True, prior=1e-3))
    np.testing.assert_allclose(held.model.parameters[:, 0], rigid().parameters[:, 0], rtol=0.01)


# Refused input


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"friction": ("stiction",)}, "coulomb, viscous, offset, .*'stiction'"),
        ({"friction": ("viscous", "viscous")}, "each at most once"),
        ({"friction": "viscous"}, "friction is a tuple"),
        ({"friction": ("load",)}, "learn it with a Friction, got"),
        ({"friction": ("coulomb", "asymmetric")}, "asymmetric"),
        ({"radii": (0.1, -0.1)}, "radii"),
        ({"stribeck_speed": 0.0}, "stribeck_speed .*0.0"),
        ({"width": 0.0}, "width .*0.0"),
        ({"prior": -1.0}, "prior .*-1.0"),
        ({"prior": float("nan")}, "prior .*nan"),
        ({"reweightings": 0}, "reweightings .*0"),
        ({"tolerance": 1.0}, "tolerance .*1.0"),
    ],
)
@pytest.mark.usefixtures("as_shipped")
def test_settings_without_sense_are_refused(wrong, message):
    with pytest.raises(SettingsError, match=message):
        IdentifySettings(**wrong)


def test_data_of_another_arm_are_refused(swing):
    with pytest.raises(ModelError, match=r"2 joints .*7"):
        identify(swing, TWO_LINK.urdf())


def test_a_broken_urdf_is_refused(swing):
    with pytest.raises(ModelError, match="the URDF cannot be read"):
        identify(swing, "<robot")


@pytest.mark.parametrize("samples", [1, 3, 43])
def test_too_few_samples_are_refused(swing, samples):
    with pytest.raises(DataError, match=rf"swing: has {samples} samples for \d+ base parameters"):
        identify(swing.rows(np.arange(samples)), WAM7.urdf(), BARE)


def test_values_that_are_not_finite_are_refused(swing):
    qdd = swing.qdd.copy()
    qdd[5, 2] = np.nan
    with pytest.raises(DataError, match="not finite") as caught:
        identify(replace(swing, qdd=qdd), WAM7.urdf())
    assert (caught.value.column, caught.value.row) == ("qdd", 5)


def test_an_arm_at_rest_determines_its_gravity_alone():
    body = RigidBody.from_urdf(TWO_LINK.urdf())
    swing = moved(TWO_LINK, body, 100)
    still = np.zeros_like(swing.q)
    held = replace(swing, qd=still, qdd=still, tau=body.rows(swing.q, still, still).total)
    result = identify(held, TWO_LINK.urdf())
    assert {"shoulder Iyy", "elbow armature", "elbow viscous", "elbow coulomb"} <= set(
        result.named("no")
    )
    assert {"elbow mx", "elbow mz", "elbow offset"} <= set(result.named("alone"))
    np.testing.assert_allclose(result.model.parameters, body.parameters, atol=1e-9)
