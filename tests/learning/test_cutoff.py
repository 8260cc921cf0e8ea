"""Cut-off and delay chosen from a log alone, and models set against each other on it."""

import threading
from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.interpolate import make_interp_spline

from delan.errors import DataError, SettingsError
from delan.joints import Body, Dataset, Recording
from delan.learning.contenders import Constant, Network
from delan.learning.cutoff import ArmSearch, ArmTrial, CutoffSearch, choose_preparation
from delan.learning.fit import Fit, fit
from delan.learning.friction_search import START
from delan.learning.model_fit import TrainingStart, fit_model
from delan.learning.more_data import learning_curve, next_motion
from delan.learning.scores import TorqueSize, evaluate
from delan.learning.study import CrossFit, Study
from delan.learning.urdf_contenders import ChainNearUrdf, Identified
from delan.logs.preparation import PreparationSettings, prepare
from delan.logs.split import hold_out
from delan.models.chain import LagrangianChain
from delan.models.friction import Friction
from delan.models.model import Model
from delan.models.rigid_body import RigidBody
from delan.robots.arms import TWO_LINK
from delan.robots.robot_files import urdf_of
from delan.solvers.loss import Objective
from delan.solvers.training import TrainingSettings
from tests.support.members import chain
from tests.support.random_arms import swung

RATE, DELAY = 250.0, 0.012
BODY = RigidBody.from_urdf(TWO_LINK.urdf())
FRICTION = Friction.known(
    BODY.joints, {"coulomb": np.array([0.4, 0.2]), "viscous": np.array([0.3, 0.1])}, width=0.05
)


def logged(
    seeds: range, *, delay: float = 0.0, noise: float = 2e-5, seconds: float = 5.0
) -> Recording:
    """What the sensors of a two-link arm with friction see: positions and torques, with noise, and
    no derivatives.
    """
    fine = swung(BODY, TWO_LINK.limits, seeds)
    rng = np.random.default_rng(0)
    pieces = []
    for label in fine.trajectories:
        item = fine.select([label])
        t = np.arange(round(seconds * RATE)) / RATE
        q = np.stack([_spline(item.t, column, t) for column in item.q.T], axis=1)
        qd, qdd = (
            np.stack([_spline(item.t, column, t, n) for column in item.q.T], axis=1) for n in (1, 2)
        )
        tau = BODY.rows(q, qd, qdd).total + np.array([FRICTION.torque(v, np.zeros(2)) for v in qd])
        late = np.stack([np.interp(t - delay, t, column) for column in tau.T], axis=1)
        pieces.append((t, q, late, np.full(len(t), label)))
    t, q, tau, trajectory = (np.concatenate(column) for column in zip(*pieces, strict=True))
    return Recording(
        t=t,
        q=q + noise * rng.standard_normal(q.shape),
        tau=tau + 0.01 * tau.std(axis=0) * rng.standard_normal(q.shape),
        trajectory=trajectory,
        joints=BODY.joints,
        source="arm.csv",
    )


def _chosen(recording: Recording, seed: int = 0) -> PreparationSettings:
    return choose_preparation(recording, CutoffSearch(jax.random.key(seed))).settings


def _spline(t: np.ndarray, values: np.ndarray, at: np.ndarray, order: int = 0) -> np.ndarray:
    return make_interp_spline(t, values, k=5)(at, nu=order)


@pytest.fixture(scope="module")
def result() -> Fit:
    return fit(logged(range(4), delay=DELAY), ("chain", "feedforward"))


@pytest.mark.slow
def test_the_cut_off_lies_between_motion_and_noise_and_the_delay_is_found(result):
    choice = result.preparation
    assert 2.0 < choice.settings.cutoff < 30.0
    tried = {trial.cutoff: trial.validation for trial in choice.trials}
    assert tried[choice.settings.cutoff] <= 1.05 * min(tried.values())
    assert tried[min(tried)] > min(tried.values())
    assert choice.settings.delay == pytest.approx(DELAY, abs=0.002)
    assert result.dataset.preparation.delay == choice.settings.delay


@pytest.mark.slow
def test_the_chain_wins_and_is_good_on_motion_that_nobody_chose_by(result):
    assert result.best.name == "chain"
    assert [entry.name for entry in result.entries][-1] == "constant"
    unseen = prepare(logged(range(100, 103), delay=DELAY), result.preparation.settings)
    scores = {
        entry.name: evaluate(entry.model, unseen, rollouts=False).torque.nmse_mean
        for entry in result.entries
    }
    assert scores["chain"] < 5e-3
    assert scores["chain"] < 0.2 * scores["feedforward"]
    assert scores["constant"] > 0.9


@pytest.mark.slow
def test_no_delay_is_invented():
    assert _chosen(logged(range(3)), seed=1).delay == 0.0


def _of_two_joints(lean: float) -> RigidBody:
    """A turning base, whose axis leans by an angle, that carries a swinging link."""
    links = []
    for index, axis in enumerate(((0.0, 0.0, 1.0), (0.0, 1.0, 0.0))):
        links.append(
            Body(
                parent=index - 1,
                position=np.array([0.0, 0.0, 0.3 * index]),
                rotation=np.eye(3),
                mass=2.0,
                centre=np.array([0.05, 0.02, 0.15]),
                inertia=np.diag([0.03, 0.03, 0.01]),
                joint=f"joint{index}",
                kind="revolute",
                axis=np.array(axis),
                anchor=np.zeros(3),
            )
        )
    gravity = 9.81 * np.array([np.sin(lean), 0.0, -np.cos(lean)])
    return RigidBody.from_bodies(links, gravity=tuple(gravity))


def _waves(body: RigidBody, middle: float) -> Recording:
    """A log whose first joint moves by 0.1 rad about a middle, with noise in the torques."""
    rng = np.random.default_rng(0)
    t = np.arange(2000) / 100.0
    frequencies = np.array([[0.31, 0.73, 1.1], [0.23, 0.59, 0.97]])
    size = np.array([[0.05], [0.4]]) * rng.uniform(0.5, 1.0, (2, 3))
    omega = 2 * np.pi * frequencies
    angle = omega * t[:, None, None] + rng.uniform(0, 6, (2, 3))
    q = np.sum(size * np.sin(angle), axis=2) + np.array([middle, 0.0])
    qd = np.sum(size * omega * np.cos(angle), axis=2)
    qdd = -np.sum(size * omega**2 * np.sin(angle), axis=2)
    tau = body.rows(q, qd, qdd).total
    noise = 0.05 * tau.std(axis=0) * rng.standard_normal(tau.shape)
    return Recording(
        t=t, q=q, tau=tau + noise, trajectory=np.zeros(len(t), int), joints=body.joints
    )


@pytest.mark.slow
@pytest.mark.parametrize("lean", [0.0, 0.5])
def test_an_arm_stands_upright_unless_the_log_says_otherwise(lean):
    body = _of_two_joints(lean)
    choice = choose_preparation(_waves(body, 0.0), CutoffSearch(jax.random.key(0)))
    assert (choice.objective.upright > 0) == (lean == 0)
    assert choice.start is not None
    if lean == 0:
        # The first joint turned to where the log has not been: its torque stays the same.
        elsewhere = prepare(_waves(body, 2.0), choice.settings)
        scores = evaluate(choice.start, elsewhere, rollouts=False)
        assert scores.torque.nmse_mean < 0.05


def test_measured_accelerations_are_taken_as_they_are():
    clean = swung(BODY, TWO_LINK.limits, range(2))
    recording = Recording(
        t=clean.t,
        q=clean.q,
        qd=clean.qd,
        qdd=clean.qdd,
        tau=clean.tau,
        trajectory=clean.trajectory,
        joints=clean.joints,
    )
    assert _chosen(recording) == PreparationSettings()


def test_a_log_sampled_too_slowly_is_refused():
    slow = logged(range(1))
    rows = np.arange(0, len(slow.t), 100)
    slow = replace(
        slow, t=slow.t[rows], q=slow.q[rows], tau=slow.tau[rows], trajectory=slow.trajectory[rows]
    )
    with pytest.raises(DataError, match="too slowly to differentiate"):
        _chosen(slow)


@pytest.mark.slow
def test_a_wrong_urdf_does_no_harm(result):
    """Masses 30 % and lengths 10 % too large: held to it or not, the best is as good as without."""
    wrong = _stretched(TWO_LINK.urdf(), length=1.1, mass=1.3)
    settings = TrainingSettings(epochs=40)
    study = Study.of(result.dataset, settings, friction=START)
    near = ChainNearUrdf(wrong).fit(study)
    assert near.validation.torque.nmse_mean < 1.2 * result.best.validation.torque.nmse_mean
    known = Identified(TWO_LINK.urdf()).fit(study)
    assert known.validation.torque.nmse_mean < 5e-3


def _stretched(urdf: str, *, length: float, mass: float) -> str:
    body = RigidBody.from_urdf(urdf)
    bodies = [
        replace(
            item,
            position=length * item.position,
            mass=mass * item.mass,
            inertia=mass * item.inertia,
        )
        for item in body.bodies
    ]
    return urdf_of(RigidBody.from_bodies(bodies, gravity=(0.0, 0.0, -9.81)), name="wrong")


@pytest.mark.slow
def test_an_identified_arm_can_be_saved_as_a_chain(result):
    known = Identified(TWO_LINK.urdf()).fit(Study.of(result.dataset, friction=START))
    model = known.model
    assert isinstance(model, Model)
    assert isinstance(model.mechanics, LagrangianChain)
    size = TorqueSize.of(result.dataset)
    scores = evaluate(model, result.validation, rollouts=False, size=size)
    assert scores.torque.nmse_mean == pytest.approx(known.validation.torque.nmse_mean, rel=1e-3)


def test_networks_are_tried_with_several_decays_and_widths():
    dataset = swung(BODY, TWO_LINK.limits, range(3), samples=300)
    study = Study.of(dataset)
    entry = Network("feedforward").fit(study.within(4.0))
    assert set(entry.chosen) == {"width", "weight_decay"}
    mean = Constant().fit(study)
    q = jnp.asarray(dataset.q[0])
    torque = mean.model.inverse_dynamics(q, q, q)
    np.testing.assert_allclose(torque, study.training.tau.mean(axis=0))
    assert entry.validation.torque.nmse_mean < mean.validation.torque.nmse_mean


@pytest.mark.slow
def test_more_data_and_the_next_motion(result):
    model = result.entry("chain").model
    curve = learning_curve(model, result.training, result.validation, key=jax.random.key(0))
    assert curve.samples[0] < curve.samples[1] < curve.samples[2]
    assert 0 <= curve.gain < 1
    wanted = next_motion(model, result.training, key=jax.random.key(0))
    assert wanted is not None
    seen = result.training.samples
    assert (wanted.trajectory.q >= seen.q.min(axis=0)).all()
    assert (wanted.trajectory.q <= seen.q.max(axis=0)).all()
    assert (np.abs(wanted.trajectory.qd) <= np.abs(seen.qd).max(axis=0)).all()
    np.testing.assert_allclose(wanted.trajectory.qd[[0, -1]], 0, atol=1e-9)
    assert wanted.gain > 0


@pytest.mark.slow
def test_a_fit_may_begin_at_a_model_of_its_kind(result):
    dataset: Dataset = result.dataset
    start = result.entry("chain").model
    training, _ = hold_out(dataset, 0.15, key=jax.random.key(0))
    again = fit_model(
        Study.of(training, TrainingSettings(epochs=2), friction=start.friction.settings),
        "chain",
        TrainingStart(model=start),
    )
    assert again.validation.torque.nmse_mean < 2 * result.best.validation.torque.nmse_mean
    with pytest.raises(
        SettingsError, match="cannot start a FeedForwardNetwork from a LagrangianChain"
    ):
        fit_model(
            Study.of(training, TrainingSettings(epochs=1)),
            "feedforward",
            TrainingStart(model=start),
        )


def test_a_stop_ends_it_early_without_a_fault():
    stop = threading.Event()
    stop.set()
    result = fit(logged(range(2)), ("chain", "feedforward"), stop=stop)
    assert result.interrupted
    assert result.trusted is None
    assert {entry.name for entry in result.entries} == {"chain", "constant"}


def test_an_arm_that_two_searches_found_comes_before_a_lone_better_one(monkeypatch):
    dataset = swung(BODY, TWO_LINK.limits, range(3), samples=300)
    study = Study.of(dataset, key=jax.random.key(0))
    lone, found, other = (Model(chain(dataset.joints, seed)) for seed in range(3))
    ends = [(lone, 0.009), (found, 0.010), (found, 0.011), (other, 0.5)]

    def searched(search, number, partner):
        start, validation = ends[number]
        nothing = CrossFit((), (), (), study.torque_size)
        return ArmTrial(start, Objective(), nothing, validation)

    monkeypatch.setattr(ArmSearch, "_searched", searched)
    four = ArmSearch(study, "chain", 4, lambda: False).run()
    assert four.confirmed
    assert four.start is found
    assert four.others == (lone,)
    two = ArmSearch(study, "chain", 2, lambda: False).run()
    assert not two.confirmed
    assert two.start is lone
    assert two.others == (found,)
