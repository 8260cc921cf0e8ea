"""Clean logs of several robots, noise-free and as sensors tell them, and faults to put into them."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

import jax
import numpy as np

from delan.data.cosines import cosines
from delan.data.doctor import Finding
from delan.data.doctor.values import measured_columns
from delan.joints import JointLimits, Recording, Trajectory
from delan.models.rigid_body import RigidBody
from delan.robots.barrett_wam import DRIVE_INERTIA, WAM4, WAM7
from delan.robots.two_link import TWO_LINK, letter_motion

from .random_arms import random_arm, rigid

SLIDING = ("revolute", "prismatic", "revolute")
FRICTION = 0.08
"""Dry friction of the robots that have it, in deviations of each joint's torque; half as much is viscous."""


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
    return [cosines(limits, key=jax.random.key(10 * seed + i), share=0.5, duration=12.0).sample(dt) for i in range(3)]


ROBOTS = ("letters", "two-link", "letters-friction", "sliding", "wam4", "wam7", "wam7-friction")


@cache
def clean(name: str, seed: int = 0, *, noisy: bool = False, dt: float = 0.01) -> Recording:
    """A robot's motion and exact torques; `noisy`: encoders in steps, noise on every channel, a clock that jitters."""
    parts = motions(name, seed, dt)
    t, q, qd, qdd = (
        np.concatenate([getattr(part, quantity) for part in parts]) for quantity in ("t", "q", "qd", "qdd")
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
    """A log with a fault, and what the doctor must say of it; `rows` is None where the whole log is at fault."""

    recording: Recording
    kind: str
    joint: int | None
    column: str | None
    rows: tuple[int, int] | None = None

    def told_by(self, finding: Finding) -> bool:
        """Whether a finding names this fault, its channel, and about its rows."""
        if (finding.kind, finding.joint, finding.column) != (self.kind, self.joint, self.column):
            return False
        if self.rows is None:
            return True
        return any(abs(first - self.rows[0]) <= 3 and abs(end - self.rows[1]) <= 3 for first, end in finding.rows)


def changed(recording: Recording, **channels: tuple[int, Callable[[np.ndarray], np.ndarray]]) -> Recording:
    """The recording with one joint's channels put through functions."""
    new: dict[str, Any] = {}
    for name, (joint, change) in channels.items():
        table = getattr(recording, name).copy()
        table[:, joint] = change(table[:, joint])
        new[name] = table
    return replace(recording, **new)


def rows_of(recording: Recording, kept: np.ndarray) -> Recording:
    names = ("t", "q", "qd", "tau", "trajectory")
    return replace(recording, **{name: getattr(recording, name)[kept] for name in names})


def in_motion(recording: Recording, joint: int, length: int) -> int:
    """The first of `length` rows in the longest trajectory through which a joint moves fast."""
    rows = np.flatnonzero(recording.trajectory == longest(recording))
    q = recording.q[rows, joint]
    distance = np.abs(q[length:] - q[:-length])[20:-20]
    return int(rows[20 + np.argmax(distance)])


def longest(recording: Recording) -> int:
    return int(np.argmax(np.bincount(recording.trajectory)))


def held(values: np.ndarray, start: int, length: int) -> np.ndarray:
    values[start : start + length] = values[start]
    return values


def spiked(values: np.ndarray, rows: np.ndarray) -> np.ndarray:
    values[rows] += 0.4 * np.ptp(values)
    return values


def late(recording: Recording, values: np.ndarray, delay: float) -> np.ndarray:
    """The channel as a clock that is late tells it: each trajectory shifted by a delay [s]."""
    result = values.copy()
    for label in np.unique(recording.trajectory):
        rows = recording.trajectory == label
        result[rows] = np.interp(recording.t[rows] - delay, recording.t[rows], values[rows])
    return result


def fault(name: str, log: Recording, joint: int) -> Faulty:
    """The log with the fault of that name at a joint."""
    row = in_motion(log, joint, 60)
    count = len(log.t)
    if name in ("nan", "infinite", "fill value"):
        value = {"nan": np.nan, "infinite": np.inf, "fill value": 1e30}[name]
        column = {"nan": "tau", "infinite": "q", "fill value": "qd"}[name]

        def spoiled(values: np.ndarray) -> np.ndarray:
            values[row : row + 4] = value
            return values

        return Faulty(changed(log, **{column: (joint, spoiled)}), "non_finite", joint, column, (row, row + 4))
    if name.startswith("stuck "):
        column = name.split()[1]
        stuck = changed(log, **{column: (joint, lambda values: held(values, row, 60))})
        return Faulty(stuck, "stuck", joint, column, (row, row + 60))
    if name.startswith("outlier "):
        column = name.split()[1]
        rows = np.array([row, row + 25, row + 40, row + 41])
        return Faulty(
            changed(log, **{column: (joint, lambda values: spiked(values, rows))}),
            "outlier",
            joint,
            column,
            (row, row + 1),
        )
    simple: dict[str, Callable[[], Faulty]] = {
        "gap": lambda: Faulty(
            rows_of(log, np.delete(np.arange(count), np.arange(row, row + 12))), "gap", None, "t", (row, row + 1)
        ),
        "jitter": lambda: Faulty(replace(log, t=jittered(log, 0.15)), "jitter", None, "t"),
        "same time": lambda: Faulty(
            replace(log, t=np.where(np.arange(count) == row, log.t[row - 1], log.t)),
            "duplicate",
            None,
            "t",
            (row, row + 1),
        ),
        "same rows": lambda: Faulty(
            replace(rows_of(log, repeated(log, row)), t=log.t, trajectory=log.trajectory),
            "duplicate",
            None,
            None,
            (row + 1, row + 2),
        ),
        "clock reset": lambda: Faulty(
            replace(log, t=log.t - 0.7 * ((np.arange(count) >= row) & (log.trajectory == longest(log)))),
            "clock_reset",
            None,
            "t",
            (row, row + 1),
        ),
        "mixed rates": lambda: Faulty(
            rows_of(log, (log.trajectory != longest(log)) | (np.arange(count) < row) | (np.arange(count) % 2 == 0)),
            "mixed_rates",
            None,
            "t",
        ),
        "saturated": lambda: Faulty(
            changed(log, tau=(joint, lambda tau: np.clip(tau, *np.quantile(tau, [0.1, 0.9])))),
            "saturated",
            joint,
            "tau",
        ),
        "coarse encoder": lambda: Faulty(
            changed(log, q=(joint, lambda q: stepped(q, np.ptp(q) / 50))), "quantised", joint, "q"
        ),
        "coarse torque": lambda: Faulty(
            changed(log, tau=(joint, lambda tau: stepped(tau, tau.std() / 2))), "quantised", joint, "tau"
        ),
        "wrapped": lambda: Faulty(
            changed(log, q=(joint, lambda q: (q - q[row] + 1e-3) % (2 * np.pi) - np.pi)), "wrapped", joint, "q"
        ),
        "degrees": lambda: Faulty(
            replace(log, q=np.degrees(log.q), qd=np.degrees(measured_columns(log)["qd"])), "units", None, "q"
        ),
        "positions in degrees": lambda: Faulty(changed(log, q=(joint, np.degrees)), "units", joint, "q"),
        "degrees a second": lambda: Faulty(changed(log, qd=(joint, np.degrees)), "units", joint, "qd"),
        "milliseconds": lambda: Faulty(replace(log, t=1e3 * log.t), "units", None, "t"),
        **{
            f"{one} and {other} exchanged": lambda one=one, other=other: Faulty(
                exchanged(log, one, other), "exchanged", None, None
            )
            for one, other in EXCHANGED
        },
        "velocity sign": lambda: Faulty(changed(log, qd=(joint, np.negative)), "sign", joint, "qd"),
        "torque sign": lambda: Faulty(changed(log, tau=(joint, np.negative)), "sign", joint, "tau"),
        "motion sign": lambda: Faulty(
            changed(log, q=(joint, np.negative), qd=(joint, np.negative)), "sign", joint, "tau"
        ),
        "torque late": lambda: Faulty(
            changed(log, tau=(joint, lambda tau: late(log, tau, 0.033))), "delay", joint, "tau"
        ),
        "velocity late": lambda: Faulty(
            changed(log, qd=(joint, lambda qd: late(log, qd, 0.033))), "delay", joint, "qd"
        ),
        "dead joint": lambda: Faulty(
            changed(log, q=(joint, lambda q: 0 * q + 0.3), qd=(joint, lambda qd: 0 * qd)), "dead", joint, "q"
        ),
        "dead torque": lambda: Faulty(changed(log, tau=(joint, lambda tau: 0 * tau)), "dead", joint, "tau"),
        "hardly moves": lambda: Faulty(
            changed(
                log,
                q=(joint, lambda q: 0.009 * q / np.ptp(q)),
                qd=(joint, lambda qd: 0.009 * qd / np.ptp(log.q[:, joint])),
            ),
            "excitation",
            joint,
            "q",
        ),
    }
    return simple[name]()


EXCHANGED = (("q", "qd"), ("q", "tau"), ("qd", "tau"))

FAULTS = (
    *("nan", "infinite", "fill value", "gap", "jitter", "same time", "same rows", "clock reset", "mixed rates"),
    *("stuck q", "stuck qd", "stuck tau", "saturated", "coarse encoder", "coarse torque"),
    *("outlier q", "outlier qd", "outlier tau", "wrapped", "degrees", "milliseconds"),
    *("positions in degrees", "degrees a second"),
    *("velocity sign", "torque sign", "motion sign", "torque late", "velocity late"),
    *("dead joint", "dead torque", "hardly moves"),
    *(f"{one} and {other} exchanged" for one, other in EXCHANGED),
)


def exchanged(log: Recording, one: str, other: str) -> Recording:
    """The log with two quantities under each other's names."""
    return replace(log, **{one: getattr(log, other), other: getattr(log, one)})


def jittered(log: Recording, share: float) -> np.ndarray:
    """Time stamps that scatter by a share of a step."""
    noise = np.random.default_rng(3).standard_normal(len(log.t))
    return log.t + share * (log.t[1] - log.t[0]) * np.clip(noise, -2.5, 2.5)


def repeated(log: Recording, row: int) -> np.ndarray:
    """Row numbers in which every third of 30 rows stands again in place of the one after it."""
    rows = np.arange(len(log.t))
    again = np.arange(row + 1, row + 31, 3)
    rows[again] = rows[again - 1]
    return rows


def stepped(values: np.ndarray, step: float) -> np.ndarray:
    return np.round(values / step) * step
