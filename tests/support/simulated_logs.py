"""Logs as a real arm leaves them: friction, noisy torques, no accelerations; and fits to them
without training.
"""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import jax
import numpy as np

from delan.joints import Recording
from delan.learning.contenders import Constant
from delan.learning.cutoff import CutoffTrial, PreparationChoice
from delan.learning.fit import Fit
from delan.learning.fit_settings import FitOptions, FitSettings
from delan.learning.friction_search import SelectionStep
from delan.learning.more_data import LearningCurve, NextMotion
from delan.learning.refit import simulated_validation
from delan.learning.scores import Scores, evaluate
from delan.learning.study import Entry, Study, TrainingResult, WindowTrial
from delan.logs.preparation import PreparationSettings, prepare
from delan.models.dynamics import Normalisation
from delan.models.friction import Friction
from delan.models.geometry import model_of
from delan.models.model import Model
from delan.models.networks import FeedForwardNetwork
from delan.models.rigid_body import RigidBody
from delan.paper.motion_logs import cosine_motion
from delan.robots.description import Arm
from delan.solvers.training import TrainingSettings

CUTOFF = PreparationSettings(cutoff=10.0)


def rubbing(arm: Arm) -> RigidBody:
    """The arm with viscous and Coulomb friction and an offset."""
    size = np.linspace(0.4, 0.1, arm.joints.dof)
    friction = Friction.known(
        arm.joints, {"coulomb": size, "viscous": size / 2, "offset": size / 10}, width=0.05
    )
    return RigidBody.from_urdf(arm.urdf(), friction=friction)


def recorded(arm: Arm, seeds: Sequence[int] = (0, 1, 2), *, noise: float = 0.02) -> Recording:
    """Cosine motions at 100 Hz, one a seed, with noise on the torque [N m]."""
    motions = [cosine_motion(arm.limits, seed, 1.5, 0.01) for seed in seeds]
    t, q, qd, qdd = (
        np.concatenate([getattr(item, name) for item in motions])
        for name in ("t", "q", "qd", "qdd")
    )
    tau = rubbing(arm).rows(q, qd, qdd).total
    tau = tau + noise * np.random.default_rng(0).standard_normal(tau.shape)
    labels = np.repeat(np.arange(len(motions)), [len(item.t) for item in motions])
    return Recording(
        t=t, q=q, qd=qd, tau=tau, trajectory=labels, joints=arm.joints, source="arm.csv"
    )


def write(recording: Recording, path: Path) -> Path:
    """Time, positions and torques as an npz file."""
    np.savez(path, t=recording.t, q=recording.q, tau=recording.tau, trajectory=recording.trajectory)
    return path


def _motion(arm: Arm) -> NextMotion:
    reach, pace = (0.2, 1.2), (0.1, 2.0)
    return NextMotion(
        cosine_motion(arm.limits, 3, 1.0, 0.01), joint=1, speed=pace, pose=reach, gain=1.0
    )


def _trained(model: Model, scores: Scores) -> TrainingResult:
    """A result as a fit with friction to be chosen would give it."""
    steps = (
        SelectionStep("no friction", 3e-1, False),
        SelectionStep("viscous + coulomb + offset", 2e-3, True),
        SelectionStep("stribeck", 1.99e-3, False),
    )
    return TrainingResult(
        model=model,
        validation=scores,
        optimizer="lm",
        reason="made without training",
        settings=TrainingSettings(),
        seed=(0, 0),
        seconds=3.0,
        samples=100,
        interrupted=False,
        history=(),
        events=("the time was over before all terms of friction were tried; give it more seconds",),
        trajectories=(0,),
        selection=steps,
    )


def known_fit(arm: Arm) -> Fit:
    """A fit without training: the true arm as a chain and as itself, random weights, a constant."""
    dataset = prepare(recorded(arm), CUTOFF)
    study = Study.of(dataset, TrainingSettings(validation=0.3), friction="auto")
    validation = study.validation
    exact = model_of(rubbing(arm))
    scores = evaluate(exact, validation, rollouts=False)
    trained = _trained(exact, scores)
    identified = replace(trained, optimizer="least squares", selection=(), events=())
    normalisation = Normalisation.of(study.training)
    network = Model(
        residual=FeedForwardNetwork(arm.joints, normalisation=normalisation, key=jax.random.key(1))
    )
    random = evaluate(network, validation, rollouts=False)
    chosen = {"friction": ["viscous", "coulomb", "offset"], "accelerations": "filtered"}
    entries = (
        Entry("chain", exact, scores, 3.0, chosen, trained, WindowTrial(1e-3, 2e-3)),
        Entry("identified", exact, scores, 0.1, {}, identified),
        Entry("feedforward", network, random, 1.0, {"width": 64}, replace(trained, model=network)),
        Constant().fit(study),
    )
    trials = tuple(
        CutoffTrial(cutoff, 1e-3 * (1 + np.log(cutoff / 10) ** 2))
        for cutoff in (3.0, 5.0, 10.0, 20.0)
    )
    return Fit(
        replay=simulated_validation(entries[0], study).replay,
        entries=entries,
        preparation=PreparationChoice(CUTOFF, trials),
        study=study,
        trusted=None,
        curve=LearningCurve((0.25, 0.5, 1.0), (100, 200, 400), (4e-3, 3e-3, 2.4e-3)),
        motion=_motion(arm),
        options=OPTIONS,
        seconds=12.0,
        interrupted=False,
    )


OPTIONS = FitOptions(
    models=("chain", "delan", "feedforward"),
    architecture=None,
    friction="auto",
    urdf=None,
    settings=FitSettings(),
    seconds=None,
    seed=0,
)
