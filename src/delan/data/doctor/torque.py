"""Torque against motion, of a robot of which nothing is known: signs, and whether friction shows.

Each torque is regressed on what any arm's torque is made of, with free weights: accelerations, whose weights change
with the positions; products of speeds; a smooth function of the positions for gravity; and for friction each joint's
own speed and its direction. Only what holds of every arm is asked of the weights: the inertia a joint feels from its
own acceleration is positive, and friction takes energy away.
"""

from dataclasses import dataclass

import numpy as np
from jaxtyping import Float

from ...joints import Joints
from .finding import Finding
from .motion import Motion
from .regression import Fit, Regression

SAMPLES_A_WEIGHT = 4.0
"""Independent samples that each free weight takes; with fewer, the terms are left out that matter least."""
SLOW_SPEED = 0.05
"""Width of the step from backward to forward friction, in units of a joint's usual speed."""
ALONE = 0.02
"""An acceleration or speed is told apart from all else if this share of its variance is its own."""
VISIBLE = 0.01
"""A weight counts if what only its term explains is this share of the torque's deviation,"""
SURE = 4.0
"""and if it is so many times its standard error, by leaving out parts of the log in turn."""
ENOUGH = 0.97
"""With so many free weights, less than this share explained says nothing of a delay."""
UNSEEN = 0.05
"""Friction is not there if it would show with a standard error below this share of the torque's deviation."""


@dataclass(frozen=True)
class Weight:
    """Of one term of one joint's torque, in shares of that torque's deviation.

    Attributes:
        value, error: of the weight, and its standard error.
        alone: share of the term that no combination of the others explains; part: of the torque due to that share.
    """

    value: float
    error: float
    alone: float
    part: float

    @property
    def sure(self) -> bool:
        """Whether it can be told at all from this log."""
        return self.alone > ALONE and self.part > VISIBLE and abs(self.value) > SURE * self.error


@dataclass(frozen=True)
class JointTorque:
    """Inertia, viscous and dry friction of one joint."""

    inertia: Weight
    viscous: Weight
    dry: Weight


def examine_torque(motion: Motion, joints: Joints, silent: frozenset[int]) -> list[Finding]:
    """Signs and friction; joints that are dead are left out."""
    alive = [joint for joint in range(joints.dof) if joint not in silent]
    features = anything(motion, alive)
    if not alive or len(motion) < 2 * features.shape[1]:
        return []
    found, friction = [], {}
    regression = Regression(features)
    fit = regression.fit(motion.logged["tau"][:, alive])
    for at, joint in enumerate(alive):
        deviation = float(motion.logged["tau"][:, joint].std())
        if deviation == 0:
            continue
        places = (1 + at, 1 + 2 * len(alive) + at, 1 + 3 * len(alive) + at)
        told = JointTorque(*(_weight(regression, fit, place, at, len(motion), deviation) for place in places))
        if _reversed(told):
            found.append(_sign(told, joint))
        else:
            friction[joint] = told
    return found + _friction(friction)


def anything(motion: Motion, alive: list[int]) -> Float[np.ndarray, "samples features"]:
    """As many terms of any arm's torque as the log can weigh, the most important first; columns of mean square 1."""
    q, speed, push = (values[:, alive] for values in (motion.q, motion.speed, motion.acceleration))
    z = (q - q.mean(axis=0)) / np.maximum(q.std(axis=0), 1e-12)
    v = speed / np.maximum(speed.std(axis=0), 1e-12)
    one = np.ones((len(z), 1))
    first = [one, push, z, v, _direction(v)]
    groups = [_products(z, z), _products(v, v), _crossed(push, z), z**3]
    chosen = np.concatenate(first, axis=1)
    for group in groups:
        if SAMPLES_A_WEIGHT * (chosen.shape[1] + group.shape[1]) > motion.independent:
            break
        chosen = np.concatenate([chosen, group], axis=1)
    return chosen / np.maximum(np.sqrt(np.mean(chosen**2, axis=0)), 1e-300)


def _direction(v: np.ndarray) -> np.ndarray:
    return np.tanh(v / SLOW_SPEED)


def _products(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    rows, columns = np.triu_indices(a.shape[1])
    return a[:, rows] * b[:, columns]


def _crossed(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    return (a[:, :, None] * b[:, None, :]).reshape(len(a), a.shape[1] * b.shape[1])


def _weight(regression: Regression, fit: Fit, place: int, target: int, count: int, deviation: float) -> Weight:
    """One weight, in shares of the torque's deviation, with what only its own feature explains."""
    value, error = fit.weights[place, target] / deviation, fit.errors[place, target] / deviation
    alone = regression.alone[place] / count
    return Weight(float(value), float(error), float(alone), float(abs(value) * np.sqrt(alone)))


def _reversed(told: JointTorque) -> bool:
    """Whether mechanics forbids these weights: negative inertia, or friction that pushes with inertia untold."""
    if told.inertia.sure:
        return told.inertia.value < 0
    return told.dry.sure and told.dry.value < 0


def _sign(told: JointTorque, joint: int) -> Finding:
    because = (
        "it falls where the joint's acceleration rises: a negative inertia"
        if told.inertia.sure
        else "it pushes along with the motion where friction holds it back"
    )
    return Finding(
        kind="sign",
        severity="error",
        joint=joint,
        column="tau",
        text=f"the torque runs against the motion: {because}",
        remedy=f"turn the sign of tau{joint}, or of q{joint} and its derivatives (--flip)",
    )


def _friction(told: dict[int, JointTorque]) -> list[Finding]:
    """For each joint, whether its torque depends on the direction of motion."""
    found = []
    for joint, one in told.items():
        pair = {"dry": one.dry, "viscous": one.viscous}
        visible = {word: weight for word, weight in pair.items() if weight.sure and weight.value > 0}
        if visible:
            parts = " and ".join(f"{word} friction ({weight.value:.0%})" for word, weight in visible.items())
            text = f"{parts} shows, in shares of the torque's deviation"
            remedy = "fit with friction (--friction auto, as `delan fit` does by default)"
        elif max(weight.error for weight in pair.values()) < UNSEEN:
            text, remedy = "no friction shows", "nothing"
        else:
            # Free weights for any arm take up what friction does; a model of one arm leaves less to them.
            text = "a quick look cannot tell friction from gravity and inertia; `delan fit` looks closer"
            remedy = "fit with friction; if `delan fit` is unsure too, record more reversals, some of them slow"
        found.append(Finding(kind="friction", severity="note", joint=joint, column="tau", text=text, remedy=remedy))
    return found
