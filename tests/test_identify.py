"""Identification of known arms: what is recovered, what is told and what cannot be, and links that can exist."""

import json
from dataclasses import replace

import numpy as np
import pytest

from delan.errors import DataError, ModelError, SettingsError
from delan.joints import Dataset
from delan.learning.identify import IdentifyResult, IdentifySettings, identify
from delan.learning.physical import Coordinates, is_possible, link_parameters, made_possible, pseudo_inertias
from delan.models.actuator import Actuator, MotorPair
from delan.models.rigid_body import LINK_PARAMETERS, RigidBody
from delan.robots.barrett_wam import DRIVE_INERTIA, WAM7, WAM7_ANALYTIC
from delan.robots.description import Arm
from delan.robots.two_link import TWO_LINK

from .members import noisy

FRICTION = Actuator.known(
    WAM7.joints, coulomb=np.linspace(2, 0.1, 7), viscous=np.linspace(1, 0.02, 7), offset=np.linspace(-0.5, 0.5, 7)
)
BARE = IdentifySettings(friction=(), armature=False)


def moved(arm: Arm, body: RigidBody, samples: int, *, seconds: float = 10.0, seed: int = 0) -> Dataset:
    """The arm swinging through its range: sums of five sines a joint, derivatives exact, torques of the body."""
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
    return Dataset(t=t, q=q, qd=qd, qdd=qdd, tau=tau, trajectory=label, joints=arm.joints, source="swing")


def nmse(model: RigidBody, held_out: Dataset) -> float:
    """Mean over joints of the squared error over the variance of the torque."""
    tau_pred = model.rows(held_out.q, held_out.qd, held_out.qdd).total
    return float(np.mean(np.mean((tau_pred - held_out.tau) ** 2, axis=0) / held_out.tau.var(axis=0)))


def massless(arm: Arm) -> Arm:
    """The arm's kinematics alone."""
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
    np.testing.assert_allclose(regressor @ body.parameters.ravel(), body.rows(q, qd, qdd).total, atol=1e-11)


def test_parameters_go_in_and_come_out():
    body, other = real(), RigidBody.from_urdf(WAM7_ANALYTIC.urdf())
    same = other.with_parameters(body.parameters, friction=FRICTION, armature=body.armature)
    q, qd, qdd = np.random.default_rng(0).normal(0, 2, (3, 7))
    np.testing.assert_allclose(same.parameters, body.parameters, atol=1e-14)
    np.testing.assert_allclose(same.inverse_dynamics(q, qd, qdd), body.inverse_dynamics(q, qd, qdd), atol=1e-11)
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
    with pytest.raises(ModelError, match=r"shape \(7, 9\); expected finite numbers in shape \(dof, 10\) = \(7, 10\)"):
        rigid().with_parameters(np.zeros((7, 9)))


# What the data tell


def test_the_wam_has_43_base_parameters(clean):
    """7 n − 6: seven of each link's ten but for the first, whose axis is vertical and leaves one (Khalil, Dombre)."""
    q, qd, qdd = np.random.default_rng(0).normal(0, 2, (3, 100, 7))
    regressor = rigid().regressor_rows(q, qd, qdd).reshape(-1, 70)
    assert clean.rank == len(clean.base) == np.linalg.matrix_rank(regressor) == 7 * 7 - 6
    assert 1 < clean.condition < 100


def test_what_the_data_cannot_tell_is_flagged(clean):
    # The first link only turns about the vertical, and the next two turn about points that rest: no mass is felt.
    unseen = {f"base_yaw {name}" for name in LINK_PARAMETERS if name != "Izz"}
    assert set(clean.named("no")) == {*unseen, "shoulder_pitch mass", "shoulder_pitch mz", "shoulder_yaw mass"}
    assert {"palm_yaw mx", "palm_yaw my", "palm_yaw Izz", "elbow_pitch Ixz"} <= set(clean.named("alone"))
    assert {"palm_yaw mass", "palm_yaw Ixx", "palm_yaw Iyy", "base_yaw Izz"} <= set(clean.named("combined"))
    assert sum(len(clean.named(told)) for told in ("alone", "combined", "no")) == 70
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
    truth = dict(zip((one.name for one in clean.parameters), rigid().parameters.ravel().tolist(), strict=True))
    for one in clean.base:
        assert one.value == pytest.approx(sum(factor * truth[name] for name, factor in one.terms), abs=1e-9)
    alone = [one for one in clean.parameters if one.identifiable == "alone"]
    np.testing.assert_allclose([one.value for one in alone], [truth[one.name] for one in alone], atol=1e-9)


def test_base_parameters_are_those_of_the_textbook(clean):
    """Far links are counted to near ones by the parallel axes: 0.55 m up and 0.045 m out from shoulder to elbow."""
    names = [one.name for one in clean.base]
    assert "base_yaw Izz + shoulder_pitch Iyy" in names
    assert "wrist_yaw Izz + wrist_pitch Iyy" in names
    assert "palm_yaw Ixx − palm_yaw Iyy" in names
    shoulder = dict(next(one.terms for one in clean.base if one.terms[0][0] == "shoulder_pitch Izz"))
    assert shoulder["elbow_pitch mass"] == pytest.approx(0.55**2 + 0.045**2)
    assert shoulder["shoulder_yaw Iyy"] == pytest.approx(1)


def test_torques_never_seen_are_reproduced(clean, held_out):
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
    assert "base_yaw cannot exist" in result.events[0]


def test_chunks_do_not_matter(swing, clean, monkeypatch):
    monkeypatch.setattr("delan.learning.regressors.CHUNK", 37)
    again = identify(swing, WAM7_ANALYTIC.urdf(), BARE)
    np.testing.assert_allclose(again.model.parameters, clean.model.parameters, atol=1e-9)


def test_friction_and_rotors_are_recovered(rough_swing):
    result = identify(rough_swing, WAM7_ANALYTIC.urdf())
    friction, told = result.model.friction, {one.name: one for one in result.parameters}
    assert friction is not None
    for term in ("coulomb", "viscous", "offset"):
        np.testing.assert_allclose(friction.named[term], FRICTION.named[term], rtol=1e-6, atol=1e-9)
    # The first two axes cross at right angles, the first one vertical: their rotors act as Izz of their links does,
    # and only the sums can be told (as for the PUMA 560 of Gautier and Khalil 1990).
    assert result.rank == 43 + 3 * 7 + 7 - 2
    np.testing.assert_allclose(result.model.armature[2:], DRIVE_INERTIA[2:], rtol=1e-6)
    for index, joint in enumerate(("base_yaw", "shoulder_pitch")):
        assert told[f"{joint} armature"].identifiable == "combined"
        base = next(one for one in result.base if any(name == f"{joint} armature" for name, _ in one.terms))
        truth = dict(zip(told, [*rigid().parameters.ravel(), *[0.0] * 21, *DRIVE_INERTIA], strict=True))
        assert base.value == pytest.approx(sum(factor * truth[name] for name, factor in base.terms), rel=1e-6), index
    assert nmse(result.model, moved(WAM7, real(), 200, seed=2)) <= 1e-10


def test_friction_may_be_asked_for_in_part(rough_swing):
    settings = IdentifySettings(friction=("viscous",), armature=False)
    friction = identify(rough_swing, WAM7.urdf(), settings).model.friction
    assert friction is not None
    assert friction.columns == ("viscous",)
    assert (friction.named["viscous"] > 0).all()


def with_memory(body: RigidBody, parts: list[Dataset]) -> Dataset:
    """The motions as trajectories of one dataset whose rows are mixed, with the torques that remember the way."""
    assert body.friction is not None
    made = []
    for label, part in enumerate(parts):
        memory = body.friction.remember(part.q)
        tau = body.rows(part.q, part.qd, part.qdd, memory=memory).total
        made.append(replace(part, tau=tau, trajectory=np.full(len(part), label)))
    columns = {name: [getattr(part, name) for part in made] for name in ("t", "q", "qd", "qdd", "tau", "trajectory")}
    every = replace(made[0], **{name: np.concatenate(column) for name, column in columns.items()})
    return every.rows(np.argsort(every.t, kind="stable"))


@pytest.mark.parametrize("physical", [False, True])
def test_friction_that_remembers_is_recovered(physical, monkeypatch):
    """Asymmetric, Stribeck and hysteresis at joints and at a motor that turns with both, over several motions."""
    monkeypatch.setattr("delan.learning.regressors.CHUNK", 170)
    settings = IdentifySettings(
        friction=("viscous", "offset", "asymmetric", "stribeck", "stops"),
        pairs=(MotorPair(0, 1, 0.6),),
        radii=(0.01, 0.1),
        stribeck_speed=0.3,
        physical=physical,
    )
    weights = np.random.default_rng(0).uniform(0.1, 1, (7, 3))
    weights[settings.actuator.columns.index("offset")] = 0.3, -0.2, 0.0
    true = Actuator.of(TWO_LINK.joints, settings.actuator, weights)
    body = RigidBody.from_urdf(TWO_LINK.urdf(), friction=true, armature=np.array([0.1, 0.05]))
    swing = with_memory(body, [moved(TWO_LINK, body, 300, seed=seed) for seed in range(3)])
    result = identify(swing, TWO_LINK.urdf(), settings)
    found = result.model.friction
    assert found is not None
    assert found.settings == settings.actuator
    assert "shoulder + 0.6 elbow stop 0.1" in result.named("alone")
    assert not any("0.6 elbow offset" in one.name for one in result.parameters)
    for name in found.columns:
        np.testing.assert_allclose(found.named[name], true.named[name], rtol=1e-4, atol=1e-5, err_msg=name)
    assert max(result.residual_std) < 1e-5
    unseen = moved(TWO_LINK, body, 200, seed=9)
    memory = true.remember(unseen.q)
    tau, tau_pred = (one.rows(unseen.q, unseen.qd, unseen.qdd, memory=memory).total for one in (body, result.model))
    np.testing.assert_allclose(tau_pred, tau, atol=1e-4)
    json.dumps(result.provenance())


@pytest.mark.parametrize("settings", [BARE, replace(BARE, armature=True, friction=("viscous",))])
@pytest.mark.slow
def test_standard_errors_hold_over_repeated_noise(settings):
    swing = moved(TWO_LINK, RigidBody.from_urdf(TWO_LINK.urdf()), 60, seed=3)
    runs = [identify(noisy(swing, 0.1, seed), TWO_LINK.urdf(), settings) for seed in range(300)]
    found = np.array([[one.value for one in run.base] for run in runs])
    told = np.array([[one.standard_error for one in run.base] for run in runs])
    assert len({tuple(name for name, _ in one.terms) for run in runs for one in run.base}) == runs[0].rank
    np.testing.assert_allclose(np.sqrt(np.mean(told**2, axis=0)), found.std(axis=0), rtol=0.15)
    noise = np.array([run.residual_std for run in runs])
    np.testing.assert_allclose(np.sqrt(np.mean(noise**2, axis=0)), 0.1 * swing.tau.std(axis=0), rtol=0.03)


def test_weights_follow_the_noise_of_each_joint():
    """A joint ten times as noisy as its neighbour must not spoil what the neighbour tells."""
    swing = moved(TWO_LINK, RigidBody.from_urdf(TWO_LINK.urdf()), 200, seed=3)
    loud = np.random.default_rng(0).normal(0, [10, 0.01], swing.tau.shape)
    result = identify(replace(swing, tau=swing.tau + loud), TWO_LINK.urdf(), BARE)
    np.testing.assert_allclose(result.residual_std, [10, 0.01], rtol=0.15)
    truth = RigidBody.from_urdf(TWO_LINK.urdf()).parameters[1]
    assert next(one for one in result.parameters if one.name == "elbow mx").value == pytest.approx(truth[1], rel=0.01)


def test_a_prior_holds_where_data_are_poor(swing, held_out):
    poor = noisy(swing.rows(np.arange(0, 600, 10)), 0.2)
    loose = identify(poor, WAM7.urdf(), BARE)
    held = identify(poor, WAM7.urdf(), replace(BARE, prior=0.01))
    assert nmse(held.model, held_out) < 0.3 * nmse(loose.model, held_out)
    assert held.rank == 43
    assert all(one.standard_error is not None for one in held.parameters)
    unsure = identify(poor, WAM7.urdf(), replace(BARE, prior=1e6))
    assert nmse(unsure.model, held_out) == pytest.approx(nmse(loose.model, held_out), rel=1e-3)


def test_one_joint_suffices():
    arm = Arm("pendulum", TWO_LINK.links[:1], tool=(0.5, 0.0, 0.0))
    body = RigidBody.from_urdf(arm.urdf())
    result = identify(moved(arm, body, 50), arm.urdf(), BARE)
    assert set(result.named("alone")) == {"shoulder mx", "shoulder mz", "shoulder Iyy"}
    np.testing.assert_allclose(result.model.parameters, body.parameters, atol=1e-9)
    assert identify(moved(arm, body, 50), arm.urdf(), replace(BARE, physical=True)).impossible == ()


def test_a_result_can_be_written_down(clean):
    told = clean.provenance()["identify"]
    assert told["rank"] == 43
    assert told["base"][0]["name"] == clean.base[0].name
    assert len(told["parameters"]) == 70


# Links that can exist


def test_pseudo_inertia_of_point_masses():
    """Against the sum over points that defines it."""
    rng = np.random.default_rng(0)
    masses, points = rng.uniform(0.1, 1, 8), rng.normal(0, 1, (8, 3))
    ends = np.column_stack([points, np.ones(8)])
    wanted = np.einsum("p,pi,pj->ij", masses, ends, ends)
    inertia = sum(m * (p @ p * np.eye(3) - np.outer(p, p)) for m, p in zip(masses, points, strict=True))
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
    np.testing.assert_allclose(np.einsum("lpc,lc->lp", chart.derivative(place), way), slope, rtol=1e-6, atol=1e-8)


def test_impossible_links_are_known_and_repaired():
    links = rigid().parameters
    assert is_possible(links).all()
    links[0, 9] *= 10  # more inertia about one axis than about the other two together
    links[1, 0] = -1
    links[2] = 0
    np.testing.assert_array_equal(is_possible(links), [False, False, False, True, True, True, True])
    repaired = made_possible(links)
    assert is_possible(repaired).all()
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


@pytest.mark.parametrize("prior", [WAM7_ANALYTIC, massless(WAM7)], ids=["second set", "kinematics alone"])
def test_physical_links_without_noise_are_exact(prior, swing, held_out):
    result = identify(swing, prior.urdf(), replace(BARE, physical=True))
    assert nmse(result.model, held_out) <= 1e-6
    assert np.linalg.eigvalsh(pseudo_inertias(result.model.parameters)).min() > 0


def test_physical_friction_is_recovered(rough_swing):
    model = identify(rough_swing, WAM7_ANALYTIC.urdf(), IdentifySettings(physical=True)).model
    assert model.friction is not None
    for term in ("coulomb", "viscous", "offset"):
        np.testing.assert_allclose(model.friction.named[term], FRICTION.named[term], rtol=1e-6, atol=1e-9)
    np.testing.assert_allclose(model.armature[2:], DRIVE_INERTIA[2:], rtol=1e-6)


def test_a_physical_prior_holds_links(swing):
    few = noisy(swing.rows(np.arange(0, 600, 6)), 0.2)
    held = identify(few, WAM7.urdf(), replace(BARE, physical=True, prior=1e-3))
    np.testing.assert_allclose(held.model.parameters[:, 0], rigid().parameters[:, 0], rtol=0.01)


# Doors


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        (
            {"friction": ("stiction",)},
            r"friction is a tuple of coulomb, viscous, offset, asymmetric, stribeck, stops, each at most once, got",
        ),
        ({"friction": ("viscous", "viscous")}, "each at most once"),
        ({"friction": "viscous"}, "friction is a tuple"),
        ({"friction": ("load",)}, "friction under load is no column of a regressor, .* learn it with an Actuator, got"),
        ({"friction": ("coulomb", "asymmetric")}, "asymmetric is coulomb with a size for each way; name one of them"),
        ({"radii": (0.1, -0.1)}, "radii is a tuple of different numbers, positive and finite, got"),
        ({"stribeck_speed": 0.0}, "stribeck_speed must be positive and finite, got 0.0"),
        ({"width": 0.0}, "width of the Coulomb step must be positive and finite, got 0.0"),
        ({"prior": -1.0}, "prior is a share, positive and finite, or None for no pull, got -1.0"),
        ({"prior": float("nan")}, "prior is a share"),
        ({"reweightings": 0}, "reweightings must be at least 1, got 0"),
        ({"tolerance": 1.0}, "tolerance is a share between 0 and 1, got 1.0"),
    ],
)
@pytest.mark.usefixtures("as_shipped")
def test_settings_without_sense_are_refused(wrong, message):
    with pytest.raises(SettingsError, match=message):
        IdentifySettings(**wrong)


def test_data_of_another_arm_are_refused(swing):
    with pytest.raises(ModelError, match="the model has 2 joints and swing has 7"):
        identify(swing, TWO_LINK.urdf())


def test_a_broken_urdf_is_refused(swing):
    with pytest.raises(ModelError, match="the URDF cannot be read"):
        identify(swing, "<robot")


@pytest.mark.parametrize("samples", [1, 3, 43])
def test_too_few_samples_are_refused(swing, samples):
    with pytest.raises(DataError, match=rf"swing: has {samples} samples to tell \d+ base parameters; record more than"):
        identify(swing.rows(np.arange(samples)), WAM7.urdf(), BARE)


def test_values_that_are_not_finite_are_refused(swing):
    qdd = swing.qdd.copy()
    qdd[5, 2] = np.nan
    with pytest.raises(DataError, match="swing, column qdd, row 5: has values that are not finite") as caught:
        identify(replace(swing, qdd=qdd), WAM7.urdf())
    assert caught.value.row == 5


def test_an_arm_that_never_moved_tells_of_its_gravity_alone():
    body = RigidBody.from_urdf(TWO_LINK.urdf())
    swing = moved(TWO_LINK, body, 100)
    still = np.zeros_like(swing.q)
    held = replace(swing, qd=still, qdd=still, tau=body.rows(swing.q, still, still).total)
    result = identify(held, TWO_LINK.urdf())
    assert {"shoulder Iyy", "elbow armature", "elbow viscous", "elbow coulomb"} <= set(result.named("no"))
    assert {"elbow mx", "elbow mz", "elbow offset"} <= set(result.named("alone"))
    np.testing.assert_allclose(result.model.parameters, body.parameters, atol=1e-9)
