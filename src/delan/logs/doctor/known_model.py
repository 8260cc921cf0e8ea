"""Check of torque against a described robot: signs, units and joints that a log cannot show."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float, Int

from ...joints import Joints
from ...sampling import evenly_spaced
from . import cases
from .delays import Explanation
from .finding import Finding
from .motion import Motion

Rows = Float[np.ndarray, "samples dof"]
TorqueRows = Callable[[Rows, Rows, Rows], Rows]

# Samples that are compared, evenly over the log: enough for a few weights.
SAMPLES = 400
# Fewer samples say nothing.
FEWEST_SAMPLES = 20
# Lags are not searched in longer motions, because the description is slow.
MOST_SAMPLES = 20_000
# Width of the step of dry friction, in a joint's usual speed.
SLOW_SPEED = 0.05
# Masses of a description are wrong by less than this factor; beyond it, the unit differs.
SCALE = 3.0
# A torque shows signs and units if the description explains this share of it beside friction.
INFORMATIVE = 0.3
# Description and friction together should explain this share of a torque.
EXPLAINS = 0.5
# Share explained from which on a lag can be estimated.
ENOUGH = 0.85
# Another unit or sign is believed if the residual of all joints falls below this share of it.
BETTER = 0.6
# Torques beyond any robot's [N m]: positions or times are in wrong units.
LARGEST = 1e6


@dataclass(frozen=True, eq=False)
class Comparison:
    """Logged torques compared with those of the description, per joint.

    Attributes:
        slope: logged torque over described torque.
        explained: share of the variance that the description explains beside friction.
        residual: share of the variance that description and friction leave unexplained.
    """

    slope: Float[np.ndarray, " dof"]
    explained: Float[np.ndarray, " dof"]
    residual: Float[np.ndarray, " dof"]


@dataclass(frozen=True, eq=False)
class ModelCheck:
    """Findings, and an explanation of the torque of each joint that has one."""

    findings: tuple[Finding, ...]
    explanations: dict[int, Explanation]


def examine_model(
    motion: Motion, joints: Joints, model: TorqueRows, dead: frozenset[int]
) -> ModelCheck:
    """Compare the log with the description: as it is, in degrees, and with joints reversed."""
    chosen = evenly_spaced(len(motion), SAMPLES)
    alive = [joint for joint in range(joints.dof) if joint not in dead]
    if not alive or len(chosen) < FEWEST_SAMPLES:
        return ModelCheck((), {})

    def residual(comparison: Comparison) -> float:
        return float(comparison.residual[alive].mean())

    findings = []
    factor = np.ones(joints.dof)
    best = _compare(motion, chosen, model, factor)
    degrees = np.where(joints.turning, np.pi / 180, 1.0)
    in_degrees = _compare(motion, chosen, model, degrees)
    if residual(in_degrees) < BETTER * residual(best):
        measured = {"as_degrees": residual(in_degrees), "as_radians": residual(best)}
        findings.append(Finding(cases.URDF_DEGREES, "error", None, "q", measured))
        factor = degrees
        best = in_degrees
    reversed_joints: list[int] = []
    while True:
        trials = {}
        for joint in alive:
            trials[joint] = _compare(motion, chosen, model, _reversed(factor, joint))
        joint = min(trials, key=lambda number: residual(trials[number]))
        if joint in reversed_joints or residual(trials[joint]) >= BETTER * residual(best):
            break
        factor = _reversed(factor, joint)
        best = trials[joint]
        reversed_joints.append(joint)
    for joint in alive:
        if joint in reversed_joints:
            findings.append(Finding(cases.URDF_JOINT_SIGN, "error", joint, "q"))
        findings += _torque_findings(best, joint)
    explanations: dict[int, Explanation] = {}
    if len(motion) <= MOST_SAMPLES:
        described = _described(motion, slice(None), model, factor)
        for joint in alive:
            if best.residual[joint] < EXPLAINS:
                features = np.column_stack([_friction_terms(motion, joint), described[:, joint]])
                explanations[joint] = Explanation(features, ENOUGH)
    return ModelCheck(tuple(findings), explanations)


def _reversed(factor: np.ndarray, joint: int) -> np.ndarray:
    return np.where(np.arange(len(factor)) == joint, -factor, factor)


def _described(
    motion: Motion, chosen: np.ndarray | slice, model: TorqueRows, factor: np.ndarray
) -> Rows:
    """Return the described torques of a motion whose joints are scaled by a factor."""
    torques = model(
        motion.q[chosen] * factor,
        motion.velocity[chosen] * factor,
        motion.acceleration[chosen] * factor,
    )
    torques = np.asarray(torques, dtype=float)
    return np.where(np.abs(torques) < LARGEST, torques, 0.0)


def _friction_terms(motion: Motion, joint: int) -> Float[np.ndarray, "samples 3"]:
    """Return what is not in the description: an offset, viscous and dry friction."""
    v = motion.velocity[:, joint] / max(float(motion.velocity[:, joint].std()), 1e-12)
    return np.stack([np.ones(len(v)), v, np.tanh(v / SLOW_SPEED)], axis=1)


def _compare(
    motion: Motion, chosen: Int[np.ndarray, " chosen"], model: TorqueRows, factor: np.ndarray
) -> Comparison:
    """Regress each joint's torque on the description, friction and an offset."""
    tau = motion.logged["tau"][chosen]
    described = _described(motion, chosen, model, factor)
    dof = tau.shape[1]
    slope = np.zeros(dof)
    explained = np.zeros(dof)
    residual = np.ones(dof)
    for joint in range(dof):
        friction = np.linalg.qr(_friction_terms(motion, joint)[chosen])[0]
        logged = tau[:, joint] - friction @ (friction.T @ tau[:, joint])
        expected = described[:, joint] - friction @ (friction.T @ described[:, joint])
        variance = float(np.sum((tau[:, joint] - tau[:, joint].mean()) ** 2))
        if not (logged @ logged > 0 and expected @ expected > 0):
            continue
        slope[joint] = float(logged @ expected / (expected @ expected))
        explained[joint] = float((logged @ expected) ** 2 / (expected @ expected)) / variance
        residual[joint] = float(logged @ logged) / variance - explained[joint]
    return Comparison(slope, explained, residual)


def _torque_findings(best: Comparison, joint: int) -> list[Finding]:
    """Return what the best comparison shows about one joint's torque."""
    slope = float(best.slope[joint])
    residual = float(best.residual[joint])
    findings = []
    if best.explained[joint] > INFORMATIVE:
        if slope < 0:
            measured = {"ratio": slope}
            findings.append(Finding(cases.URDF_TORQUE_SIGN, "error", joint, "tau", measured))
        if not 1 / SCALE < abs(slope) < SCALE:
            measured = {"ratio": abs(slope), "gain": 1 / abs(slope)}
            findings.append(Finding(cases.URDF_TORQUE_UNIT, "error", joint, "tau", measured))
    if residual > EXPLAINS:
        measured = {"explained": 1 - residual}
        findings.append(Finding(cases.URDF_MISMATCH, "warning", joint, "tau", measured))
    return findings
