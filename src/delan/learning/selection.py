"""Which friction a robot has: terms are added one by one, as long as unseen motion is explained better.

A candidate is tried without a fit of its own. Near the fitted model the torque is linear, J δθ + Φ w, in small changes
of the rigid part and in the weights of friction; the changes are eliminated once, and each candidate is then a small
least-squares problem for w, bounds included, scored on the validation trajectories.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from itertools import permutations
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.flatten_util import ravel_pytree
from jaxtyping import Array, Float

from ..joints import Dataset
from ..models.actuator import ActuatedModel, Actuator, ActuatorSettings, MotorPair
from ..models.dynamics import DynamicsModel, trainable
from .bounded import solve_bounded
from .evaluate import predict, remembered

START = ActuatorSettings(terms=("viscous", "coulomb", "offset"))
"""The friction that every robot is given to begin with."""
WORTHWHILE = 0.98
"""A term stays if it brings the validation error below this share."""
ROWS = 1500
"""Samples of either kind that a choice is made on, at most."""
RATIOS = (1.0, 0.6, 0.3, -0.3, -0.6, -1.0)
"""Ratios at which joints are tried as pairs on one motor."""
MOST_WEIGHTS = 600
"""Up to so many weights the rigid part may give way while terms are tried; a larger one is held."""
GIVE = 1e-6
"""How much its changes are damped, relative to their curvature."""


@dataclass(frozen=True)
class SelectionStep:
    """A term that was added, or the best of those not worth it, and the validation error (nMSE) that it led to."""

    term: str
    validation: float
    kept: bool


@dataclass(frozen=True, eq=False)
class _View:
    """Rows of a dataset, the torque the rigid part leaves over, and how that answers to the rigid weights, in units of
    each joint's torque."""

    dataset: Dataset
    rows: np.ndarray
    rigid: np.ndarray
    error: np.ndarray
    slope: np.ndarray | None


def select_friction(
    model: ActuatedModel, training: Dataset, validation: Dataset, *, enough: Callable[[], bool] = lambda: False
) -> tuple[ActuatorSettings, tuple[SelectionStep, ...]]:
    """The friction to fit next, and how it was chosen, starting from the model's own.

    Once `enough` says so, no further candidate is tried, and a round that was not tried to its end chooses nothing.
    """
    with jax.enable_x64(True):
        trial = _Trial.of(model, training, validation)
        chosen = model.actuator.settings
        score = trial.score(chosen)
        steps = [SelectionStep(" + ".join(chosen.terms), score, kept=True)]
        while True:
            tried = []
            for name, candidate in _candidates(chosen, training.dof):
                if enough():
                    return chosen, tuple(steps)
                tried.append((trial.score(candidate), name, candidate))
            best, name, candidate = min(tried, key=lambda one: one[0])
            kept = best < WORTHWHILE * score
            steps.append(SelectionStep(name, best, kept))
            if not kept:
                break
            chosen, score = candidate, best
    return chosen, tuple(steps)


def _candidates(settings: ActuatorSettings, dof: int) -> Iterator[tuple[str, ActuatorSettings]]:
    """The settings with one thing more."""
    for term in ("stribeck", "stops", "load"):
        if term not in settings.terms:
            yield term, replace(settings, terms=(*settings.terms, term))
    if "coulomb" in settings.terms:
        terms = tuple("asymmetric" if term == "coulomb" else term for term in settings.terms)
        yield "asymmetric", replace(settings, terms=terms)
    if len(settings.pairs) < dof:
        for first, second in permutations(range(dof), 2):
            for ratio in RATIOS:
                pair = MotorPair(first, second, ratio)
                mirrored = abs(ratio) == 1 and first > second  # the same motor, counted the other way round
                if pair not in settings.pairs and not mirrored:
                    name = f"joint {first} {'+' if ratio > 0 else '−'} {abs(ratio):g} joint {second}"
                    yield name, replace(settings, pairs=(*settings.pairs, pair))


def _view(model: ActuatedModel, dataset: Dataset, std: np.ndarray) -> _View:
    rows = np.unique(np.linspace(0, len(dataset) - 1, ROWS).astype(int))
    part = dataset.rows(rows)
    motions = tuple(jnp.asarray(column) for column in (part.q, part.qd, part.qdd))
    rigid = predict(model.rigid, "inverse_dynamics", *motions)
    error = ((part.tau - rigid) / std).ravel()
    weights, _ = ravel_pytree(trainable(model.rigid)[0])
    slope = None
    if weights.size <= MOST_WEIGHTS:
        slope = np.asarray(_slope(model.rigid, motions)) / std[:, None]
        slope = slope.reshape(-1, weights.size)
    return _View(dataset, rows, rigid, error, slope)


@eqx.filter_jit
def _slope(rigid: DynamicsModel, motions: tuple[Array, ...]) -> Float[Array, "rows dof weights"]:
    tree, fixed = trainable(rigid)
    weights, unravel = ravel_pytree(tree)

    def torque(weights: Array, q: Array, qd: Array, qdd: Array) -> Array:
        model: DynamicsModel = eqx.combine(unravel(weights), fixed)
        return jnp.asarray(model.inverse_dynamics(q, qd, qdd))

    return jax.lax.map(lambda row: jax.jacrev(torque)(weights, *row), motions, batch_size=256)


@dataclass(frozen=True, eq=False)
class _Elimination:
    """What is left of columns, on seen and unseen rows, when the rigid part has given way to them on the seen ones."""

    here: np.ndarray
    there: np.ndarray
    answer: np.ndarray

    @classmethod
    def of(cls, seen: _View, unseen: _View) -> "_Elimination | None":
        if seen.slope is None or unseen.slope is None:
            return None
        square = seen.slope.T @ seen.slope
        damping = GIVE * np.maximum(np.diag(square), 1e-12 * np.diag(square).max())
        return cls(seen.slope, unseen.slope, np.linalg.solve(square + np.diag(damping), seen.slope.T))

    def of_columns(self, here: np.ndarray, there: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        change = self.answer @ here
        return here - self.here @ change, there - self.there @ change


@dataclass(frozen=True, eq=False)
class _Trial:
    """The place where heads are tried; columns of friction are computed once and kept."""

    actuator: Actuator
    seen: _View
    unseen: _View
    std: np.ndarray
    elimination: _Elimination | None
    kept: dict[Any, Any] = field(default_factory=dict)

    @classmethod
    def of(cls, model: ActuatedModel, training: Dataset, validation: Dataset) -> "_Trial":
        std = np.where(training.tau.std(axis=0) > 0, training.tau.std(axis=0), 1.0)
        seen, unseen = (_view(model, dataset, std) for dataset in (training, validation))
        return cls(model.actuator, seen, unseen, std, _Elimination.of(seen, unseen))

    def score(self, settings: ActuatorSettings) -> float:
        """The validation error (nMSE, in units of the training torque) that a head of this kind could bring."""
        blocks = [self._block(settings, pair) for pair in (None, *settings.pairs)]
        here, there, bounded = (np.concatenate(parts, axis=-1) for parts in zip(*blocks, strict=True))
        error_here, error_there = self._left(self.seen.error, self.unseen.error)
        weights = np.asarray(_solve(here.T @ here, -here.T @ error_here, bounded))
        return float(np.mean((error_there - there @ weights) ** 2))

    def _left(self, here: np.ndarray, there: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        return (here, there) if self.elimination is None else self.elimination.of_columns(here, there)

    def _block(self, settings: ActuatorSettings, pair: MotorPair | None) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """The columns of the joints' own motors, or of one pair, on seen and unseen rows, and which are bounded."""
        key = (settings.terms, pair)
        if key not in self.kept:
            head = _reshaped(self.actuator, replace(settings, pairs=() if pair is None else (pair,)))
            n = head.joints.dof
            motors = slice(0, n) if pair is None else slice(n, n + 1)
            columns = (_columns(head, view, self.std, motors) for view in (self.seen, self.unseen))
            bounded = np.array(head.weights.bounded, dtype=bool).reshape(len(head.columns), -1)[:, motors]
            self.kept[key] = (*self._left(*columns), bounded.ravel())
        return self.kept[key]


_solve = jax.jit(solve_bounded)


def _reshaped(actuator: Actuator, settings: ActuatorSettings) -> Actuator:
    """A head of numpy arrays with these terms and the widths that the joints have learned so far."""
    blank = Actuator(actuator.joints, settings)
    made = Actuator.of(actuator.joints, settings, np.zeros(blank.weights.value.shape))
    n = actuator.joints.dof
    widths, speeds = np.array(made.log_width), np.array(made.log_stribeck_speed)
    widths[:n], speeds[:n] = actuator.log_width[:n], actuator.log_stribeck_speed[:n]
    return eqx.tree_at(lambda one: (one.log_width, one.log_stribeck_speed), made, (widths, speeds))


def _columns(head: Actuator, view: _View, std: np.ndarray, motors: slice) -> Float[np.ndarray, "rows weights"]:
    """The torque that a unit of each weight of these motors makes."""
    memory = remembered(head, view.dataset)
    qd = view.dataset.qd[view.rows]
    curves = np.asarray(head.features(qd, None if memory is None else memory[view.rows]))  # rows, columns, motors
    torque = curves[..., None] * head.transmission[None, None]  # rows, columns, motors, dof
    if "load" in head.settings.terms:
        step = np.tanh(qd / np.exp(head.log_width[: head.joints.dof]))
        own = np.abs(view.rigid) * step
        torque[:, head.columns.index("load"), : head.joints.dof] += own[:, :, None] * np.eye(head.joints.dof)
    torque = np.moveaxis(torque[:, :, motors], 3, 1) / std[:, None, None]
    return torque.reshape(torque.shape[0] * torque.shape[1], -1)
