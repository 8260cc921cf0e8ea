"""The logs that experiments learn from: arms that write letters or follow cosine motions."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import jax
import numpy as np

from ..joints import Dataset, JointLimits, Recording, Trajectory
from ..logs.filters import low_passed
from ..models.rigid_body import RigidBody
from ..motions.alphabet import OWN, alphabet_named
from ..motions.cosines import cosines
from ..motions.letters import LETTERS
from ..online.clocks import SteppedClock
from ..online.controller import Direct
from ..online.loop import run_loop
from ..online.rig import Rig
from ..robots.arms import TWO_LINK, WRITING, letter_motion
from ..robots.cable_drive import CableDrivenRobot, CableSettings
from ..robots.description import Arm
from ..robots.robot import low_gains
from ..robots.tolerances import produced

# Mean speed of the pen [m/s].
LETTER_SPEED = 0.45
# Samples of a letter.
LETTER_SAMPLES = 128
# Time between the samples of a cosine motion [s].
LOG_PERIOD = 0.02
# Time between the samples of the cable-driven arm's encoders [s].
ENCODER_PERIOD = 2e-3
# Share of a joint's range and speed that cosines use: at twice the speed they stay in the limits.
SHARE = 0.4
# Cut-off of the low-pass filter on the encoder log of a cable-driven arm [Hz].
CABLE_CUTOFF = 8.0


def shuffled_letters(seed: int) -> str:
    """Return all letters in random order: the first ones for training, the others unseen."""
    return "".join(np.random.default_rng(seed).permutation(list(LETTERS)))


def letter_log(
    letters: Sequence[str],
    *,
    place: Mapping[str, Any] = WRITING,
    speed: float = LETTER_SPEED,
    dt: float | None = None,
    alphabet: str = OWN,
    sample: int = 0,
) -> Dataset:
    """Return the log of the two-link arm writing letters; trajectory i is the i-th letter.

    Args:
        alphabet, sample: `own` or `uci=FILE`, and which of the recorded strokes of a letter.
        speed: mean speed of the pen [m/s].
        dt: sampling period [s]. If None, each letter has `LETTER_SAMPLES` samples: logs of as many
            letters then have the same size, and a program compiled for one serves for all.
    """
    written = {"place": place, "alphabet": alphabet_named(alphabet), "sample": sample}
    motions = []
    for letter in letters:
        period = dt
        if period is None:
            seconds = float(letter_motion(letter, speed=speed, dt=1e-3, **written).t[-1])
            period = seconds / (LETTER_SAMPLES - 1)
        motions.append(letter_motion(letter, speed=speed, dt=period, **written))
    return _rigid(TWO_LINK, motions)


def cosine_log(arm: Arm, seeds: Sequence[int], *, speed: float = 1.0) -> Dataset:
    """Return the log of a rigid arm that follows a cosine motion for each seed."""
    return _rigid(arm, [cosine_motion(arm.limits, seed, speed, LOG_PERIOD) for seed in seeds])


def cosine_motion(limits: JointLimits, seed: int, speed: float, dt: float) -> Trajectory:
    """Return a random motion inside the limits at a multiple of the usual speed."""
    return cosines(limits, key=jax.random.key(seed), share=SHARE).at_speed(speed).sample(dt)


def cable_log(
    arm: Arm,
    believed: Arm,
    seeds: Sequence[int],
    *,
    speed: float = 1.0,
    drive: CableSettings | None = None,
    tolerances: bool = True,
) -> Dataset:
    """Return the filtered encoder log of a cable-driven arm on cosine motions.

    Its controller uses the inverse dynamics of the arm `believed`. With `tolerances` every seed of
    an experiment has an arm of its own; without, its joints are where the drawing has them.
    """
    model = Direct(RigidBody.from_urdf(believed.urdf()))
    robot = CableDrivenRobot(produced(arm, seed=seeds[0]) if tolerances else arm, drive)
    rig = Rig(robot, low_gains(arm), model)
    motions = [cosine_motion(arm.limits, seed, speed, ENCODER_PERIOD) for seed in seeds]
    run = run_loop(rig, motions, SteppedClock())
    scored = np.array(run.scored)[run.piece]
    recording = Recording(
        t=run.t[scored],
        q=run.q[scored],
        qd=run.qd[scored],
        tau=run.tau[scored],
        trajectory=run.piece[scored],
        joints=arm.joints,
        source="cable-driven arm",
    )
    every = round(LOG_PERIOD / ENCODER_PERIOD)
    return low_passed(recording, CABLE_CUTOFF).rows(slice(None, None, every))


def with_noise(dataset: Dataset, sigma: float, seed: int) -> Dataset:
    """Add white noise of standard deviation σ, in SI units, to q, q̇, q̈ and τ of every sample."""
    rng = np.random.default_rng(seed)
    columns = {}
    for name in ("q", "qd", "qdd", "tau"):
        noise = sigma * rng.standard_normal(dataset.q.shape)
        columns[name] = getattr(dataset, name) + noise
    return replace(dataset, **columns, truth={})


def _rigid(arm: Arm, motions: Sequence[Trajectory]) -> Dataset:
    """Return the motions with their torques by recursive Newton–Euler, and the components."""
    t, q, qd, qdd = (
        np.concatenate([getattr(motion, name) for motion in motions])
        for name in ("t", "q", "qd", "qdd")
    )
    components = RigidBody.from_urdf(arm.urdf()).rows(q, qd, qdd)
    truth = {name: getattr(components, name) for name in ("inertial", "coriolis", "gravity")}
    return Dataset(
        t=t,
        q=q,
        qd=qd,
        qdd=qdd,
        tau=components.total,
        trajectory=np.repeat(np.arange(len(motions)), [len(motion.t) for motion in motions]),
        truth=truth,
        joints=arm.joints,
        source=arm.name,
    )
