"""Check of the torques against the motion, and against a described robot."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float, Int

from ...joints import Joints, evenly_spaced
from . import cases
from .delays import CrossValidatedFit, Explanation, Regression
from .finding import Case, Finding
from .motion import Motion

# Independent samples per free weight; with fewer, the least important terms are left out.
SAMPLES_PER_WEIGHT = 4.0
# Width of the transition from backward to forward friction, in a joint's usual speed.
SLOW_SPEED = 0.05
# A term is distinguishable if no combination of the others explains this share of its variance.
DISTINGUISHABLE = 0.02
# A weight counts if that share explains this share of the torque's standard deviation, ...
VISIBLE = 0.01
# ... and if the weight is this many times its standard error.
CERTAINTY = 4.0
# With this many free weights, a lag is not believed if less than this share is explained.
ENOUGH = 0.97
# Friction is absent if its standard error is below this share of the torque's standard deviation.
ABSENT = 0.05


@dataclass(frozen=True)
class TermWeight:
    """Weight of one term of a joint's torque, in shares of that torque's standard deviation.

    Attributes:
        error: standard error of the value.
        unique: share of the term that no combination of the others explains.
        effect: share of the torque that this unique share explains.
    """

    value: float
    error: float
    unique: float
    effect: float

    @property
    def certain(self) -> bool:
        """Whether the log determines the weight."""
        distinguishable = self.unique > DISTINGUISHABLE and self.effect > VISIBLE
        return distinguishable and abs(self.value) > CERTAINTY * self.error


@dataclass(frozen=True)
class JointTerms:
    """Inertia, viscous friction and dry friction of one joint."""

    inertia: TermWeight
    viscous: TermWeight
    dry: TermWeight

    @property
    def violation(self) -> Case | None:
        """The law of mechanics that these weights violate."""
        if self.inertia.certain:
            return cases.NEGATIVE_INERTIA if self.inertia.value < 0 else None
        wrong = self.dry.certain and self.dry.value < 0
        return cases.NEGATIVE_FRICTION if wrong else None


def examine_torque(motion: Motion, joints: Joints, dead: frozenset[int]) -> list[Finding]:
    """Report signs and friction of the joints that are not dead."""
    alive = [joint for joint in range(joints.dof) if joint not in dead]
    features = torque_features(motion, alive)
    if not alive or len(motion) < 2 * features.shape[1]:
        return []
    regression = Regression(features)
    fit = regression.fit(motion.logged["tau"][:, alive])
    signs = []
    friction = []
    for index, joint in enumerate(alive):
        deviation = float(motion.logged["tau"][:, joint].std())
        if deviation == 0:
            continue
        # The first features: a constant, then accelerations, positions, velocities, directions.
        weights = []
        for group in (0, 2, 3):
            feature = 1 + group * len(alive) + index
            unique = regression.unique[feature] / len(motion)
            weights.append(_weight(fit, feature, index, unique, deviation))
        terms = JointTerms(*weights)
        if terms.violation is not None:
            signs.append(Finding(terms.violation, "error", joint, "tau"))
        else:
            friction.append(_friction(terms, joint))
    return signs + friction


def torque_features(motion: Motion, alive: list[int]) -> Float[np.ndarray, "samples features"]:
    """Return as many terms of any arm's torque as the log can weight, with mean square 1.

    The most important terms come first.
    """
    q = motion.q[:, alive]
    velocity = motion.velocity[:, alive]
    acceleration = motion.acceleration[:, alive]
    z = (q - q.mean(axis=0)) / np.maximum(q.std(axis=0), 1e-12)
    v = velocity / np.maximum(velocity.std(axis=0), 1e-12)
    direction = np.tanh(v / SLOW_SPEED)
    features = np.concatenate([np.ones((len(z), 1)), acceleration, z, v, direction], axis=1)
    crossed = (acceleration[:, :, None] * z[:, None, :]).reshape(len(z), z.shape[1] ** 2)
    for group in (_products(z), _products(v), crossed, z**3):
        if SAMPLES_PER_WEIGHT * (features.shape[1] + group.shape[1]) > motion.independent:
            break
        features = np.concatenate([features, group], axis=1)
    return features / np.maximum(np.sqrt(np.mean(features**2, axis=0)), 1e-300)


def _products(values: np.ndarray) -> np.ndarray:
    """Return the products of all pairs of columns."""
    rows, columns = np.triu_indices(values.shape[1])
    return values[:, rows] * values[:, columns]


def _weight(
    fit: CrossValidatedFit, feature: int, target: int, unique: float, deviation: float
) -> TermWeight:
    value = float(fit.weights[feature, target] / deviation)
    error = float(fit.errors[feature, target] / deviation)
    return TermWeight(value, error, float(unique), float(abs(value) * np.sqrt(unique)))


def _friction(terms: JointTerms, joint: int) -> Finding:
    """Report whether a joint's torque depends on the direction of motion."""
    weights = {"dry": terms.dry, "viscous": terms.viscous}
    visible = []
    for name, weight in weights.items():
        if weight.certain and weight.value > 0:
            visible.append(f"{name} friction ({weight.value:.0%})")
    # The free weights for any arm absorb part of the friction, so that it can remain uncertain.
    case = cases.UNCERTAIN_FRICTION
    if visible:
        case = cases.FRICTION
    elif max(weight.error for weight in weights.values()) < ABSENT:
        case = cases.NO_FRICTION
    measured = {"terms": tuple(visible)}
    return Finding(case, "note", joint, "tau", measured)


Rows = Float[np.ndarray, "samples dof"]
TorqueRows = Callable[[Rows, Rows, Rows], Rows]

# Samples that are compared, evenly over the log: enough for a few weights.
SAMPLES = 400
# Fewer samples say nothing.
FEWEST_SAMPLES = 20
# Lags are not searched in longer motions, because the description is slow.
MOST_SAMPLES = 20_000
# Masses of a description are wrong by less than this factor; beyond it, the unit differs.
SCALE = 3.0
# A torque shows signs and units if the description explains this share of it beside friction.
INFORMATIVE = 0.3
# Description and friction together should explain this share of a torque.
EXPLAINS = 0.5
# Share explained from which on a lag can be estimated.
ENOUGH_WITH_MODEL = 0.85
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
                explanations[joint] = Explanation(features, ENOUGH_WITH_MODEL)
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
