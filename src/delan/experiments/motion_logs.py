"""The logs that experiments learn from: arms that write letters or swing by cosines, rigid or driven by cables."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import jax
import numpy as np

from ..control import TrackingController
from ..data.cosines import cosines
from ..data.letters import LETTERS
from ..data.smoothing import low_passed
from ..joints import Dataset, JointLimits, Recording, Trajectory
from ..models.rigid_body import RigidBody
from ..realtime.clocks import SteppedClock
from ..realtime.feed_forward import Direct
from ..realtime.loop import run_loop
from ..robots.cable_drive import CableDrivenRobot
from ..robots.description import Arm
from ..robots.gains import low_gains
from ..robots.two_link import TWO_LINK, WRITING, letter_motion

LETTER_SPEED = 0.45
"""Mean speed of the pen [m/s]."""
SHARE = 0.4
"""Cosines use so much of a joint's range and speed: twice as fast they still stay inside the limits."""
CABLE_CUTOFF = 8.0
"""Of the low-pass over what a cable-driven arm's encoders told [Hz]."""
LETTER_SAMPLES, LOG_PERIOD = 128, 0.02
"""Samples of a letter; time between the samples of a cosine motion [s]."""


def shuffled_letters(seed: int) -> str:
    """All letters in random order: the first of them to learn on, the others unseen."""
    return "".join(np.random.default_rng(seed).permutation(list(LETTERS)))


def written(
    letters: Sequence[str],
    *,
    place: Mapping[str, Any] = WRITING,
    speed: float = LETTER_SPEED,
    dt: float | None = None,
) -> Dataset:
    """The two-link arm writing letters at a mean pen speed [m/s]; trajectory i is the i-th letter.

    Without a sampling period dt [s] each letter is sampled in `LETTER_SAMPLES` places, long ones more coarsely: logs of
    as many letters then have the same size, and what was compiled for one serves for all.
    """

    def motion(letter: str) -> Trajectory:
        seconds = float(letter_motion(letter, speed=speed, dt=1e-3, place=place).t[-1])
        return letter_motion(letter, speed=speed, dt=dt or seconds / (LETTER_SAMPLES - 1), place=place)

    return _rigid(TWO_LINK, [motion(letter) for letter in letters])


def swung(arm: Arm, seeds: Sequence[int], *, speed: float = 1.0) -> Dataset:
    """A rigid arm following a cosine motion for each seed."""
    return _rigid(arm, [cosine_motion(arm.limits, seed, speed, LOG_PERIOD) for seed in seeds])


def cosine_motion(limits: JointLimits, seed: int, speed: float, dt: float) -> Trajectory:
    """A random motion inside the limits, so many times faster than usual."""
    return cosines(limits, key=jax.random.key(seed), share=SHARE).at_speed(speed).sample(dt)


def cable_driven(arm: Arm, believed: Arm, seeds: Sequence[int], *, speed: float = 1.0) -> Dataset:
    """The encoders' log of a cable-driven arm that follows cosine motions under a believed model, smoothed."""
    robot, dt = CableDrivenRobot(arm), 2e-3
    run = run_loop(
        robot,
        [cosine_motion(arm.limits, seed, speed, dt) for seed in seeds],
        TrackingController(low_gains(arm)),
        Direct(RigidBody.from_urdf(believed.urdf())),
        SteppedClock(),
    )
    kept = np.array(run.scored)[run.piece]
    recording = Recording(
        t=run.t[kept],
        q=run.q[kept],
        qd=run.qd[kept],
        tau=run.tau[kept],
        trajectory=run.piece[kept],
        joints=arm.joints,
        source="cable-driven arm",
    )
    return low_passed(recording, CABLE_CUTOFF).rows(slice(None, None, round(LOG_PERIOD / dt)))


def corrupted(dataset: Dataset, sigma: float, seed: int) -> Dataset:
    """White noise of standard deviation σ, in SI units, on every number of every sample: q, q̇, q̈ and τ alike."""
    rng = np.random.default_rng(seed)
    columns = {
        name: getattr(dataset, name) + sigma * rng.standard_normal(dataset.q.shape)
        for name in ("q", "qd", "qdd", "tau")
    }
    return replace(dataset, **columns, truth={})


def _rigid(arm: Arm, motions: Sequence[Trajectory]) -> Dataset:
    """The torques that motions take by recursive Newton–Euler, with their parts."""
    t, q, qd, qdd = (np.concatenate([getattr(motion, name) for motion in motions]) for name in ("t", "q", "qd", "qdd"))
    parts = RigidBody.from_urdf(arm.urdf()).rows(q, qd, qdd)
    return Dataset(
        t=t,
        q=q,
        qd=qd,
        qdd=qdd,
        tau=parts.total,
        trajectory=np.repeat(np.arange(len(motions)), [len(motion.t) for motion in motions]),
        truth={"inertial": parts.inertial, "coriolis": parts.coriolis, "gravity": parts.gravity},
        joints=arm.joints,
        source=arm.name,
    )
