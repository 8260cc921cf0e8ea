"""Check of torque against motion, for a robot of unknown dynamics: its sign, and visible friction.

Each torque is regressed on the terms of any arm's torque, with free weights: accelerations, whose
weights change with the positions; products of velocities; a smooth function of the positions for
gravity; and each joint's velocity and its direction for friction. Only what holds for every arm is
required: the inertia that a joint feels from its own acceleration is positive, and friction
dissipates energy.
"""

from dataclasses import dataclass

import numpy as np
from jaxtyping import Float

from ...joints import Joints
from . import cases
from .finding import Case, Finding
from .least_squares import CrossValidatedFit, Regression
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
