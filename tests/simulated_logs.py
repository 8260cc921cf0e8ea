"""Logs as a real arm leaves them: friction, noisy torques, no accelerations; and fits to them without training."""

from collections.abc import Sequence
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np

from delan.data.preparation import PreparationSettings, prepare
from delan.data.splitting import counting, split_rows
from delan.experiments.motion_logs import cosine_motion
from delan.joints import Recording
from delan.learning.contest import ConstantTorque, Entry, as_learned
from delan.learning.evaluate import Scores, evaluate
from delan.learning.fit_result import FitResult
from delan.learning.log_fit import LogFit, LogFitSettings
from delan.learning.more_data import LearningCurve, NextMotion
from delan.learning.planning import FitSettings
from delan.learning.preparing import CutoffTrial, PreparationChoice
from delan.learning.selection import SelectionStep
from delan.models.actuated import ActuatedModel
from delan.models.actuator import Actuator
from delan.models.dynamics import Normalisation
from delan.models.feed_forward import FeedForwardNetwork
from delan.models.rigid_body import RigidBody
from delan.robots.description import Arm

CUTOFF = PreparationSettings(cutoff=10.0)


def rubbing(arm: Arm) -> RigidBody:
    """The arm with viscous and Coulomb friction and an offset."""
    size = np.linspace(0.4, 0.1, arm.joints.dof)
    friction = Actuator.known(arm.joints, coulomb=size, viscous=size / 2, offset=size / 10, width=0.05)
    return RigidBody.from_urdf(arm.urdf(), friction=friction)


def recorded(arm: Arm, seeds: Sequence[int] = (0, 1, 2), *, noise: float = 0.02) -> Recording:
    """Cosine motions at 100 Hz, one a seed, with noise on the torque [N m]."""
    motions = [cosine_motion(arm.limits, seed, 1.5, 0.01) for seed in seeds]
    t, q, qd, qdd = (np.concatenate([getattr(one, name) for one in motions]) for name in ("t", "q", "qd", "qdd"))
    tau = rubbing(arm).rows(q, qd, qdd).total
    tau = tau + noise * np.random.default_rng(0).standard_normal(tau.shape)
    labels = np.repeat(np.arange(len(motions)), [len(one.t) for one in motions])
    return Recording(t=t, q=q, qd=qd, tau=tau, trajectory=labels, joints=arm.joints, source="arm.csv")


def write(recording: Recording, path: Path) -> Path:
    """Time, positions and torques as an npz file."""
    np.savez(path, t=recording.t, q=recording.q, tau=recording.tau, trajectory=recording.trajectory)
    return path


def _motion(arm: Arm) -> NextMotion:
    reach, pace = (0.2, 1.2), (0.1, 2.0)
    return NextMotion(cosine_motion(arm.limits, 3, 1.0, 0.01), joint=1, speed=pace, pose=reach, gain=1.0)


def _trained(model: ActuatedModel, scores: Scores) -> FitResult:
    """A result as a fit with friction to be chosen would give it."""
    steps = (
        SelectionStep("no friction", 3e-1, False),
        SelectionStep("viscous + coulomb + offset", 2e-3, True),
        SelectionStep("stribeck", 1.99e-3, False),
    )
    return FitResult(
        model=model,
        validation=scores,
        optimizer="lm",
        reason="made without training",
        settings=FitSettings(),
        seed=(0, 0),
        seconds=3.0,
        samples=100,
        interrupted=False,
        history=(),
        events=("the time was over before all terms of friction were tried; give it more seconds",),
        trajectories=(0,),
        selection=steps,
    )


def known_fit(arm: Arm) -> LogFit:
    """What a fit could give, without training: the true arm as a chain and as itself, a network of random weights, and
    a constant."""
    dataset = prepare(recorded(arm), CUTOFF)
    training, validation = (counting(dataset, rows) for rows in split_rows(dataset, 0.3, key=jax.random.key(0)))
    truth = Entry("identified", rubbing(arm), evaluate(rubbing(arm), validation, rollouts=False), 0.1)
    exact = as_learned(truth)
    assert isinstance(exact, ActuatedModel)
    scores = evaluate(exact, validation, rollouts=False)
    network = FeedForwardNetwork(arm.joints, normalisation=Normalisation.of(training), key=jax.random.key(1))
    mean = ConstantTorque(jnp.asarray(training.samples.tau.mean(axis=0)), arm.joints)
    chosen = {"friction": ["viscous", "coulomb", "offset"], "accelerations": "filtered"}
    entries = [
        Entry("chain", exact, scores, 3.0, chosen, _trained(exact, scores)),
        truth,
        Entry("feedforward", network, evaluate(network, validation, rollouts=False), 1.0, {"width": 64}),
        Entry("constant", mean, evaluate(mean, validation, rollouts=False), 0.0),
    ]
    trials = tuple(CutoffTrial(cutoff, 1e-3 * (1 + np.log(cutoff / 10) ** 2)) for cutoff in (3.0, 5.0, 10.0, 20.0))
    return LogFit(
        entries=tuple(entries),
        preparation=PreparationChoice(CUTOFF, trials, 0.0, None),
        dataset=dataset,
        training=training,
        validation=validation,
        weak=(1e-3, 2e-3),
        trusted=None,
        curve=LearningCurve((0.25, 0.5, 1.0), (100, 200, 400), (4e-3, 3e-3, 2.4e-3)),
        motion=_motion(arm),
        settings=LogFitSettings(),
        seconds=12.0,
        interrupted=False,
    )
