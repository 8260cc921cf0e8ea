"""Torque against what a described robot would need: signs, units and joints that a log alone cannot tell."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float

from ...joints import Joints
from .delays import Explanation
from .finding import Finding
from .motion import Motion

Rows = Float[np.ndarray, "samples dof"]
TorqueRows = Callable[[Rows, Rows, Rows], Rows]

SAMPLES = 400
"""Samples that are compared, evenly over the log: enough for a handful of weights."""
MOST_SAMPLES = 20_000
"""A log of more samples is not searched for delays by the description: it would take too long."""
SLOW_SPEED = 0.05
"""Width of the step of dry friction, in units of a joint's usual speed."""
SCALE = 3.0
"""A description may err in its masses, by less than this factor; beyond it, the torque is in another unit."""
TELLS = 0.3
"""A joint's torque tells of signs and units if the description explains this share of it beside friction."""
EXPLAINS = 0.5
"""Description and friction together should explain this share of a torque."""
ENOUGH = 0.85
"""Share explained from which on a delay can be told."""
BETTER = 0.6
"""Turning a joint around is believed if what is unexplained, over all joints, falls below this share of it."""
LARGEST = 1e6
"""Torques beyond any robot's [N m]: positions or times in wrong units."""


@dataclass(frozen=True, eq=False)
class Comparison:
    """Per joint: how many times the described torque was logged, what it explains, and what is left unexplained."""

    slope: Float[np.ndarray, " dof"]
    tells: Float[np.ndarray, " dof"]
    left: Float[np.ndarray, " dof"]


@dataclass(frozen=True, eq=False)
class Compared:
    """What was found, and an explanation of each joint's torque that has one."""

    findings: tuple[Finding, ...]
    explanations: dict[int, Explanation]


def examine_model(motion: Motion, joints: Joints, model: TorqueRows, silent: frozenset[int]) -> Compared:
    """Compare the log with the description: as it is, in degrees, and with joints turned around."""
    chosen = np.unique(np.linspace(0, len(motion) - 1, SAMPLES).astype(int))
    alive = np.array([joint not in silent for joint in range(joints.dof)])
    if not alive.any() or len(chosen) < 20:
        return Compared((), {})
    turns = np.array([kind != "prismatic" for kind in joints.kinds])
    as_logged, degrees = np.ones(joints.dof), np.where(turns, np.pi / 180, 1.0)

    def compared(factor: np.ndarray) -> Comparison:
        return _compared(motion, chosen, model, factor)

    def unexplained(comparison: Comparison) -> float:
        return float(comparison.left[alive].mean())

    factor, best = as_logged, compared(as_logged)
    found = []
    inclined = compared(degrees)
    if unexplained(inclined) < BETTER * unexplained(best):
        factor, best = degrees, inclined
        found.append(_degrees(unexplained(compared(as_logged)), unexplained(inclined)))
    turned = []
    while True:
        trials = {joint: compared(_flipped(factor, joint)) for joint in np.flatnonzero(alive).tolist()}
        joint = min(trials, key=lambda one: unexplained(trials[one]))
        if joint in turned or unexplained(trials[joint]) >= BETTER * unexplained(best):
            break
        factor, best = _flipped(factor, joint), trials[joint]
        turned.append(joint)
    for joint in np.flatnonzero(alive).tolist():
        found += _judged(best, joint, joint in turned)
    if len(motion) > MOST_SAMPLES:
        return Compared(tuple(found), {})
    described = _described(motion, slice(None), model, factor)
    explained = np.flatnonzero(alive & (best.left < EXPLAINS)).tolist()
    features = {joint: np.column_stack([_beside(motion, joint), described[:, joint]]) for joint in explained}
    return Compared(tuple(found), {joint: Explanation(columns, ENOUGH) for joint, columns in features.items()})


def _flipped(factor: np.ndarray, joint: int) -> np.ndarray:
    return np.where(np.arange(len(factor)) == joint, -factor, factor)


def _described(motion: Motion, chosen: np.ndarray | slice, model: TorqueRows, factor: np.ndarray) -> np.ndarray:
    motions = (values[chosen] * factor for values in (motion.q, motion.speed, motion.acceleration))
    torques = np.asarray(model(*motions), dtype=float)
    return np.where(np.abs(torques) < LARGEST, torques, 0.0)


def _beside(motion: Motion, joint: int) -> np.ndarray:
    """What stands beside the description: an offset, viscous and dry friction."""
    v = motion.speed[:, joint] / max(float(motion.speed[:, joint].std()), 1e-12)
    return np.stack([np.ones(len(v)), v, np.tanh(v / SLOW_SPEED)], axis=1)


def _compared(motion: Motion, chosen: np.ndarray, model: TorqueRows, factor: np.ndarray) -> Comparison:
    """Each joint's torque regressed on what the description says, with friction and an offset beside it."""
    tau, described = motion.logged["tau"][chosen], _described(motion, chosen, model, factor)
    dof = tau.shape[1]
    slope, tells, left = np.zeros(dof), np.zeros(dof), np.ones(dof)
    for joint in range(dof):
        beside = np.linalg.qr(_beside(motion, joint)[chosen])[0]
        mine, theirs = (x - beside @ (beside.T @ x) for x in (tau[:, joint], described[:, joint]))
        whole = float(np.sum((tau[:, joint] - tau[:, joint].mean()) ** 2))
        if not (mine @ mine > 0 and theirs @ theirs > 0):
            continue
        slope[joint] = float(mine @ theirs / (theirs @ theirs))
        tells[joint] = float((mine @ theirs) ** 2 / (theirs @ theirs)) / whole
        left[joint] = float(mine @ mine) / whole - tells[joint]
    return Comparison(slope, tells, left)


def _degrees(before: float, after: float) -> Finding:
    return Finding(
        kind="units",
        severity="error",
        column="q",
        text=f"read as degrees, the URDF leaves {after:.1%} of the torque unexplained, read as radians {before:.1%}",
        remedy="read the log with --degrees",
    )


def _judged(best: Comparison, joint: int, turned: bool) -> list[Finding]:
    """What the best comparison says of one joint."""
    slope, tells, left = float(best.slope[joint]), float(best.tells[joint]), float(best.left[joint])
    found = []
    if turned:
        found.append(
            Finding(
                kind="sign",
                severity="error",
                joint=joint,
                column="q",
                text="the URDF explains the torques if this joint's positions have the other sign",
                remedy=f"turn the sign of q{joint} and its derivatives (--flip), or of the joint's axis in the URDF",
            )
        )
    if tells > TELLS and slope < 0:
        found.append(
            Finding(
                kind="sign",
                severity="error",
                joint=joint,
                column="tau",
                text=f"the torque is {slope:.3g} times what the URDF asks for",
                remedy=f"turn the sign of tau{joint} (--flip)",
            )
        )
    if tells > TELLS and not 1 / SCALE < abs(slope) < SCALE:
        found.append(
            Finding(
                kind="units",
                severity="error",
                joint=joint,
                column="tau",
                text=f"the torque is {abs(slope):.3g} times what the URDF asks for: a current, a motor's torque before "
                "the gears, or another unit?",
                remedy=f"give the torque of a unit of the column (--gain), {1 / abs(slope):.3g} by the URDF",
            )
        )
    if left > EXPLAINS:
        found.append(
            Finding(
                kind="mismatch",
                severity="warning",
                joint=joint,
                column="tau",
                text=f"the URDF and friction explain only {1 - left:.0%} of the torque",
                remedy="check the order of the joints, the way the base stands, and what the arm carries",
            )
        )
    return found
