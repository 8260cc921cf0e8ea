"""Clean logs of several robots, with and without sensor noise, and faults to put into them."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

import jax
import numpy as np

from delan.joints import JointLimits, Recording, Trajectory
from delan.logs.doctor import Finding
from delan.logs.doctor.checked_log import measured_columns
from delan.models.rigid_body import RigidBody
from delan.motions.cosines import cosines
from delan.robots.arms import DRIVE_INERTIA, TWO_LINK, WAM4, WAM7, letter_motion
from tests.support.random_arms import random_arm, rigid

SLIDING = ("revolute", "prismatic", "revolute")
# Dry friction of the robots that have it, in standard deviations of each joint's torque; the
# viscous friction is half as large.
FRICTION = 0.08


@cache
def robot(name: str) -> tuple[RigidBody, JointLimits]:
    if name == "sliding":
        bodies, limits = random_arm(SLIDING, seed=4)
        return rigid(bodies), limits
    arms = {"letters": TWO_LINK, "two-link": TWO_LINK, "wam4": WAM4, "wam7": WAM7}
    arm = arms[name.removesuffix("-friction")]
    rotors = np.array(DRIVE_INERTIA)[: len(arm.links)] if name.startswith("wam") else None
    return RigidBody.from_urdf(arm.urdf(), armature=rotors), arm.limits


def motions(name: str, seed: int, dt: float) -> list[Trajectory]:
    if name.startswith("letters"):
        chosen = np.random.default_rng(seed).permutation(list("abcdeghlmnopqrsuvwyz"))[:8]
        return [letter_motion(letter, dt=dt) for letter in chosen]
    limits = robot(name)[1]
    return [
        cosines(limits, key=jax.random.key(10 * seed + i), share=0.5, duration=12.0).sample(dt)
        for i in range(3)
    ]


ROBOTS = ("letters", "two-link", "letters-friction", "sliding", "wam4", "wam7", "wam7-friction")


@cache
def clean(name: str, seed: int = 0, *, noisy: bool = False, dt: float = 0.01) -> Recording:
    """Return a motion with exact torques; `noisy` adds quantisation, noise and jitter."""
    parts = motions(name, seed, dt)
    t, q, qd, qdd = (
        np.concatenate([getattr(part, quantity) for part in parts])
        for quantity in ("t", "q", "qd", "qdd")
    )
    body = robot(name)[0]
    tau = body.rows(q, qd, qdd).total
    if name.endswith("friction"):
        size = FRICTION * tau.std(axis=0)
        tau = tau + size * np.tanh(qd / (0.02 * qd.std(axis=0))) + 0.5 * size * qd / qd.std(axis=0)
    if noisy:
        rng = np.random.default_rng(seed)
        noise = rng.standard_normal((4, *q.shape))
        step = 2 * np.pi / 2**17
        q = np.round((q + 2e-5 * noise[0]) / step) * step
        qd = qd + 0.01 * qd.std(axis=0) * noise[1]
        tau = tau + 0.02 * tau.std(axis=0) * noise[2]
        t = t + 0.005 * dt * noise[3][:, 0]
    labels = np.repeat(np.arange(len(parts)), [len(part.t) for part in parts])
    return Recording(t=t, q=q, qd=qd, tau=tau, trajectory=labels, joints=body.joints, source=name)


@dataclass(frozen=True, eq=False)
class Faulty:
    """A log with a fault, and the finding it must cause; `rows` is None for the whole log."""

    recording: Recording
    kind: str
    joint: int | None
    column: str | None
    rows: tuple[int, int] | None = None

    def described_by(self, finding: Finding) -> bool:
        """Whether a finding has this kind and channel, and nearly these rows."""
        if (finding.kind, finding.joint, finding.column) != (self.kind, self.joint, self.column):
            return False
        if self.rows is None:
            return True
        return any(
            abs(first - self.rows[0]) <= 3 and abs(end - self.rows[1]) <= 3
            for first, end in finding.rows
        )


def changed(
    recording: Recording, **channels: tuple[int, Callable[[np.ndarray], np.ndarray]]
) -> Recording:
    """Return the recording with functions applied to channels of one joint."""
    new: dict[str, Any] = {}
    for name, (joint, change) in channels.items():
        table = getattr(recording, name).copy()
        table[:, joint] = change(table[:, joint])
        new[name] = table
    return replace(recording, **new)


def rows_of(recording: Recording, chosen: np.ndarray) -> Recording:
    return recording.rows(chosen)


def in_motion(recording: Recording, joint: int, length: int) -> int:
    """Return the first of `length` rows of the longest trajectory in which a joint moves fast."""
    rows = np.flatnonzero(recording.trajectory == longest(recording))
    q = recording.q[rows, joint]
    distance = np.abs(q[length:] - q[:-length])[20:-20]
    return int(rows[20 + np.argmax(distance)])


def longest(recording: Recording) -> int:
    return int(np.argmax(np.bincount(recording.trajectory)))


def filled(values: np.ndarray, rows: np.ndarray, value: Any) -> np.ndarray:
    values[rows] = value
    return values


def late(recording: Recording, values: np.ndarray, delay: float) -> np.ndarray:
    """Return a channel with a lag: each trajectory is shifted by a delay [s]."""
    result = values.copy()
    for label in np.unique(recording.trajectory):
        rows = recording.trajectory == label
        result[rows] = np.interp(recording.t[rows] - delay, recording.t[rows], values[rows])
    return result


# Faults of one channel: kind, column and the change of its values.
CHANNEL_FAULTS: dict[str, tuple[str, str, Callable[[np.ndarray], np.ndarray]]] = {
    "saturated": ("saturated", "tau", lambda tau: np.clip(tau, *np.quantile(tau, [0.1, 0.9]))),
    "coarse encoder": ("quantised", "q", lambda q: stepped(q, np.ptp(q) / 50)),
    "coarse torque": ("quantised", "tau", lambda tau: stepped(tau, tau.std() / 2)),
    "positions in degrees": ("units", "q", np.degrees),
    "degrees a second": ("units", "qd", np.degrees),
    "velocity sign": ("sign", "qd", np.negative),
    "torque sign": ("sign", "tau", np.negative),
    "dead torque": ("dead", "tau", np.zeros_like),
}
# Faults in some rows of a channel: the value there, and the column.
WRONG_VALUES = {"nan": (np.nan, "tau"), "infinite": (np.inf, "q"), "fill value": (1e30, "qd")}
EXCHANGED = (("q", "qd"), ("q", "tau"), ("qd", "tau"))
EXCHANGES = {f"{item} and {other} exchanged": (item, other) for item, other in EXCHANGED}
# fmt: off
FAULTS = (
    "nan", "infinite", "fill value", "gap", "jitter", "same time", "same rows", "clock reset",
    "mixed rates", "stuck q", "stuck qd", "stuck tau", "saturated", "coarse encoder",
    "coarse torque", "outlier q", "outlier qd", "outlier tau", "wrapped", "degrees", "milliseconds",
    "positions in degrees", "degrees a second", "velocity sign", "torque sign", "motion sign",
    "torque late", "velocity late", "dead joint", "dead torque", "hardly moves",
    "one file reversed", "one file scaled", "one file offset", *EXCHANGES,
)
# fmt: on
# Faults of the torque in one trajectory alone: the change of its values, given those of all.
ONE_FILE: dict[str, Callable[[np.ndarray, np.ndarray], np.ndarray]] = {
    "one file reversed": lambda tau, whole: -tau,
    "one file scaled": lambda tau, whole: 2 * tau,
    "one file offset": lambda tau, whole: tau + whole.std(),
}


def fault(name: str, log: Recording, joint: int) -> Faulty:
    """Return the log with the fault of that name at a joint."""
    row = in_motion(log, joint, 60)
    if name in CHANNEL_FAULTS:
        kind, column, change = CHANNEL_FAULTS[name]
        return Faulty(changed(log, **{column: (joint, change)}), kind, joint, column)
    if name in ONE_FILE:
        rows = np.flatnonzero(log.trajectory == longest(log))
        change = ONE_FILE[name]
        differing = changed(log, tau=(joint, lambda tau: filled(tau, rows, change(tau[rows], tau))))
        place = (int(rows[0]), int(rows[-1]) + 1)
        return Faulty(differing, "contradiction", joint, "tau", place)
    if name in EXCHANGES:
        return Faulty(exchanged(log, *EXCHANGES[name]), "exchanged", None, None)
    if name in WRONG_VALUES:
        value, column = WRONG_VALUES[name]
        rows = np.arange(row, row + 4)
        wrong = changed(log, **{column: (joint, lambda x: filled(x, rows, value))})
        return Faulty(wrong, "non_finite", joint, column, (row, row + 4))
    if name.startswith("stuck "):
        column = name.removeprefix("stuck ")
        rows = np.arange(row, row + 60)
        stuck = changed(log, **{column: (joint, lambda x: filled(x, rows, x[row]))})
        return Faulty(stuck, "stuck", joint, column, (row, row + 60))
    if name.startswith("outlier "):
        column = name.removeprefix("outlier ")
        rows = np.array([row, row + 25, row + 40, row + 41])
        spiked = changed(
            log, **{column: (joint, lambda x: filled(x, rows, x[rows] + 0.4 * np.ptp(x)))}
        )
        return Faulty(spiked, "outlier", joint, column, (row, row + 1))
    return time_fault(name, log, row) or motion_fault(name, log, joint, row)


def time_fault(name: str, log: Recording, row: int) -> Faulty | None:
    """Return the log with a fault of the time stamps or of whole rows."""
    count = len(log.t)
    rows = np.arange(count)
    in_longest = log.trajectory == longest(log)
    if name == "gap":
        lost = rows_of(log, np.delete(rows, np.arange(row, row + 12)))
        return Faulty(lost, "gap", None, "t", (row, row + 1))
    if name == "jitter":
        return Faulty(replace(log, t=jittered(log, 0.15)), "jitter", None, "t")
    if name == "same time":
        t = np.where(rows == row, log.t[row - 1], log.t)
        return Faulty(replace(log, t=t), "duplicate", None, "t", (row, row + 1))
    if name == "same rows":
        again = rows_of(log, repeated(log, row))
        again = replace(again, t=log.t, trajectory=log.trajectory)
        return Faulty(again, "duplicate", None, None, (row + 1, row + 2))
    if name == "clock reset":
        t = log.t - 0.7 * ((rows >= row) & in_longest)
        return Faulty(replace(log, t=t), "clock_reset", None, "t", (row, row + 1))
    if name == "mixed rates":
        chosen = ~in_longest | (rows < row) | (rows % 2 == 0)
        return Faulty(rows_of(log, chosen), "mixed_rates", None, "t")
    if name == "milliseconds":
        return Faulty(replace(log, t=1e3 * log.t), "units", None, "t")
    return None


def motion_fault(name: str, log: Recording, joint: int, row: int) -> Faulty:
    """Return the log with a fault of several channels, or one that needs the whole log."""
    qd = measured_columns(log)["qd"]
    if name == "wrapped":
        wrapped = changed(log, q=(joint, lambda q: (q - q[row] + 1e-3) % (2 * np.pi) - np.pi))
        return Faulty(wrapped, "wrapped", joint, "q")
    if name == "degrees":
        return Faulty(replace(log, q=np.degrees(log.q), qd=np.degrees(qd)), "units", None, "q")
    if name == "motion sign":
        turned = changed(log, q=(joint, np.negative), qd=(joint, np.negative))
        return Faulty(turned, "sign", joint, "tau")
    if name == "torque late":
        lagging = changed(log, tau=(joint, lambda tau: late(log, tau, 0.033)))
        return Faulty(lagging, "delay", joint, "tau")
    if name == "velocity late":
        lagging = changed(log, qd=(joint, lambda qd: late(log, qd, 0.033)))
        return Faulty(lagging, "delay", joint, "qd")
    if name == "dead joint":
        dead = changed(log, q=(joint, lambda q: 0 * q + 0.3), qd=(joint, np.zeros_like))
        return Faulty(dead, "dead", joint, "q")
    assert name == "hardly moves"
    shrink = 0.009 / np.ptp(log.q[:, joint])
    small = changed(log, q=(joint, lambda q: shrink * q), qd=(joint, lambda qd: shrink * qd))
    return Faulty(small, "excitation", joint, "q")


def exchanged(log: Recording, item: str, other: str) -> Recording:
    """Return the log with two quantities under each other's names."""
    return replace(log, **{item: getattr(log, other), other: getattr(log, item)})


def jittered(log: Recording, share: float) -> np.ndarray:
    """Return time stamps with noise of a share of a step."""
    noise = np.random.default_rng(3).standard_normal(len(log.t))
    return log.t + share * (log.t[1] - log.t[0]) * np.clip(noise, -2.5, 2.5)


def repeated(log: Recording, row: int) -> np.ndarray:
    """Return row numbers in which every third of 30 rows replaces the row after it."""
    rows = np.arange(len(log.t))
    again = np.arange(row + 1, row + 31, 3)
    rows[again] = rows[again - 1]
    return rows


def stepped(values: np.ndarray, step: float) -> np.ndarray:
    return np.round(values / step) * step
