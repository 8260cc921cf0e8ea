"""Which friction a robot has: terms are added one by one, as long as unseen motion is explained better.

A candidate is tried without a fit of its own. Near the fitted model the torque is linear, J δθ + Φ w, in small changes
of the rigid part and in the weights of friction; the changes are eliminated once, and each candidate is then a small
least-squares problem for w, bounds included, scored on the validation trajectories.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import permutations
from typing import Any, NamedTuple

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
SURE, SURE_OF_PAIR, RUNS = 1.0, 2.0, 8
"""and if the gain is so many standard errors large, told from so many runs of validation samples. Of the many pairs one
is the best by chance, so it must be the surer."""
ROWS = 1500
"""Samples of either kind that a choice is made on, at most."""
RATIOS = (1.0, 0.6, 0.3, -0.3, -0.6, -1.0)
"""Ratios at which joints are tried as pairs on one motor."""
MOST_WEIGHTS = 600
"""Up to so many weights the rigid part may give way while terms are tried; a larger one is held."""
PAIRS_AT_ONCE = 30
"""Pairs whose memory is computed together."""
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
    qd: np.ndarray
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
        score, errors = trial.score(chosen), trial.errors_of(chosen)
        steps = [SelectionStep(" + ".join(chosen.terms), score, kept=True)]
        while True:
            tried = []
            for name, candidate in _candidates(chosen, training.dof):
                if enough():
                    return chosen, tuple(steps)
                tried.append((trial.score(candidate), name, candidate))
            best, name, candidate = min(tried, key=lambda one: one[0])
            after = trial.errors_of(candidate)
            sure = SURE_OF_PAIR if candidate.pairs != chosen.pairs else SURE
            kept = best < WORTHWHILE * score and _certainty(errors, after) > sure
            steps.append(SelectionStep(name, best, kept))
            if not kept:
                break
            chosen, score, errors = candidate, best, after
    return chosen, tuple(steps)


def _certainty(before: np.ndarray, after: np.ndarray) -> float:
    """By how many standard errors squared errors fell, judged by runs of rows, for neighbours are alike."""
    runs = [part.mean() for part in np.array_split(before**2 - after**2, RUNS)]
    return float(np.mean(runs) / (np.std(runs, ddof=1) / np.sqrt(RUNS) + np.finfo(float).tiny))


def _candidates(settings: ActuatorSettings, dof: int) -> Iterator[tuple[str, ActuatorSettings]]:
    """The settings with one thing more."""
    for term in ("stribeck", "stops", "load"):
        if term not in settings.terms:
            yield term, replace(settings, terms=(*settings.terms, term))
    if "coulomb" in settings.terms:
        terms = tuple("asymmetric" if term == "coulomb" else term for term in settings.terms)
        yield "asymmetric", replace(settings, terms=terms)
    if len(settings.pairs) < dof:
        for name, pair in _pairs(dof):
            if pair not in settings.pairs:
                yield name, replace(settings, pairs=(*settings.pairs, pair))


def _pairs(dof: int) -> Iterator[tuple[str, MotorPair]]:
    """Every pair of joints at every ratio."""
    for first, second in permutations(range(dof), 2):
        for ratio in RATIOS:
            mirrored = abs(ratio) == 1 and first > second  # the same motor, counted the other way round
            if not mirrored:
                name = f"joint {first} {'+' if ratio > 0 else '−'} {abs(ratio):g} joint {second}"
                yield name, MotorPair(first, second, ratio)


def _view(model: ActuatedModel, dataset: Dataset, std: np.ndarray) -> _View:
    samples = dataset.samples
    rows = np.unique(np.linspace(0, len(samples) - 1, ROWS).astype(int))
    part = samples.rows(rows)
    motions = tuple(jnp.asarray(column) for column in (part.q, part.qd, part.qdd))
    rigid = predict(model.rigid, "inverse_dynamics", *motions)
    error = ((part.tau - rigid) / std).ravel()
    weights, _ = ravel_pytree(trainable(model.rigid)[0])
    slope = rigid_slope(model.rigid, part, std) if weights.size <= MOST_WEIGHTS else None
    return _View(dataset, rows, part.qd, rigid, error, slope)


def rigid_slope(rigid: DynamicsModel, dataset: Dataset, std: np.ndarray) -> Float[np.ndarray, "entries weights"]:
    """How the torques of samples, each over its joint's deviation, answer to the weights of the links."""
    with jax.enable_x64(True):
        motions = tuple(jnp.asarray(column) for column in (dataset.q, dataset.qd, dataset.qdd))
        slope = np.asarray(_slope(rigid, motions)) / std[:, None]
    return slope.reshape(-1, slope.shape[-1])


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


class _Block(NamedTuple):
    """Columns of friction on seen and unseen rows, when the rigid part has given way to them, and which are bounded."""

    here: np.ndarray
    there: np.ndarray
    bounded: np.ndarray


BlockKey = tuple[tuple[str, ...], MotorPair | None]


@dataclass(frozen=True, eq=False)
class _Trial:
    """The place where heads are tried; columns of friction and their products are computed once and kept."""

    actuator: Actuator
    seen: _View
    unseen: _View
    std: np.ndarray
    elimination: _Elimination | None
    blocks: dict[BlockKey, _Block] = field(default_factory=dict)
    products: dict[Any, Any] = field(default_factory=dict)
    memories: dict[tuple[int, MotorPair], np.ndarray] = field(default_factory=dict)

    @classmethod
    def of(cls, model: ActuatedModel, training: Dataset, validation: Dataset) -> "_Trial":
        deviation = training.samples.tau.std(axis=0)
        std = np.where(deviation > 0, deviation, 1.0)
        seen, unseen = (_view(model, dataset, std) for dataset in (training, validation))
        return cls(model.actuator, seen, unseen, std, _Elimination.of(seen, unseen))

    @cached_property
    def errors(self) -> tuple[np.ndarray, np.ndarray]:
        """What the rigid part leaves over, on seen and unseen rows."""
        return self._left(self.seen.error, self.unseen.error)

    def score(self, settings: ActuatorSettings) -> float:
        """The validation error (nMSE, in units of the training torque) that a head of this kind could bring."""
        keys: list[BlockKey] = [(settings.terms, pair) for pair in (None, *settings.pairs)]
        there = np.block([[self._product(a, b)[1] for b in keys] for a in keys])
        against = np.concatenate([self._against(key)[1] for key in keys])
        weights = self._weights(keys)
        error = self.errors[1]
        return float((error @ error - 2 * weights @ against + weights @ there @ weights) / len(error))

    def errors_of(self, settings: ActuatorSettings) -> np.ndarray:
        """The errors on unseen rows that such a head would leave, in units of the training torque."""
        keys: list[BlockKey] = [(settings.terms, pair) for pair in (None, *settings.pairs)]
        columns = np.concatenate([self._block(key).there for key in keys], axis=1)
        return self.errors[1] - columns @ self._weights(keys)

    def _weights(self, keys: list[BlockKey]) -> np.ndarray:
        """The weights of these columns that explain the seen rows best."""
        here = np.block([[self._product(a, b)[0] for b in keys] for a in keys])
        against = np.concatenate([self._against(key)[0] for key in keys])
        bounded = np.concatenate([self._block(key).bounded for key in keys])
        return np.asarray(_solve(here, -against, bounded))

    def _left(self, here: np.ndarray, there: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        return (here, there) if self.elimination is None else self.elimination.of_columns(here, there)

    def _product(self, a: BlockKey, b: BlockKey) -> tuple[np.ndarray, np.ndarray]:
        """The products of the columns of two blocks, on seen and on unseen rows."""
        if (b, a) in self.products:
            return tuple(part.T for part in self.products[b, a])  # type: ignore[return-value]
        if (a, b) not in self.products:
            one, other = self._block(a), self._block(b)
            self.products[a, b] = (one.here.T @ other.here, one.there.T @ other.there)
        return self.products[a, b]

    def _against(self, key: BlockKey) -> tuple[np.ndarray, np.ndarray]:
        """The products of a block's columns with what is left over."""
        if key not in self.products:
            block, (here, there) = self._block(key), self.errors
            self.products[key] = (block.here.T @ here, block.there.T @ there)
        return self.products[key]

    def _block(self, key: BlockKey) -> _Block:
        """The columns of the joints' own motors, or of one pair."""
        if key not in self.blocks:
            terms, pair = key
            settings = replace(self.actuator.settings, terms=terms, pairs=() if pair is None else (pair,))
            head = _reshaped(self.actuator, settings)
            n = head.joints.dof
            motors = slice(0, n) if pair is None else slice(n, n + 1)
            columns = (
                _columns(head, view, self.std, motors, self._memory(head, view, pair))
                for view in (self.seen, self.unseen)
            )
            bounded = np.array(head.weights.bounded, dtype=bool).reshape(len(head.columns), -1)[:, motors]
            self.blocks[key] = _Block(*self._left(*columns), bounded.ravel())
        return self.blocks[key]

    def _memory(self, head: Actuator, view: _View, pair: MotorPair | None) -> np.ndarray | None:
        """What stop operators remember at the rows of a view; of a pair's head, at the motor of the pair alone."""
        if not head.settings.stops:
            return None
        if pair is None:
            memory = remembered(head, view.dataset)
            return None if memory is None else memory[view.rows]
        if (id(view), pair) not in self.memories:
            self._remember(view, head)
        own = self.memories[id(view), pair]
        return np.concatenate([np.zeros((*own.shape, head.joints.dof)), own[..., None]], axis=-1)

    def _remember(self, view: _View, head: Actuator) -> None:
        """The memory of every pair there could be, some at a time: one scan costs as much for many as for one."""
        dof = head.joints.dof
        every = [pair for _, pair in _pairs(dof)]
        for first in range(0, len(every), PAIRS_AT_ONCE):
            some = tuple(every[first : first + PAIRS_AT_ONCE])
            wide = Actuator(head.joints, replace(head.settings, pairs=some))
            memory = remembered(wide, view.dataset)
            assert memory is not None
            for place, pair in enumerate(some):
                self.memories[id(view), pair] = memory[view.rows][..., dof + place]


_solve = jax.jit(solve_bounded)


def _reshaped(actuator: Actuator, settings: ActuatorSettings) -> Actuator:
    """A head of numpy arrays with these terms and the widths that the joints have learned so far."""
    blank = Actuator(actuator.joints, settings)
    made = Actuator.of(actuator.joints, settings, np.zeros(blank.weights.value.shape))
    n = actuator.joints.dof
    widths, speeds = np.array(made.log_width), np.array(made.log_stribeck_speed)
    widths[:n], speeds[:n] = actuator.log_width[:n], actuator.log_stribeck_speed[:n]
    return eqx.tree_at(lambda one: (one.log_width, one.log_stribeck_speed), made, (widths, speeds))


def _columns(
    head: Actuator, view: _View, std: np.ndarray, motors: slice, memory: np.ndarray | None
) -> Float[np.ndarray, "rows weights"]:
    """The torque that a unit of each weight of these motors makes."""
    qd = view.qd
    curves = np.asarray(head.features(qd, memory))  # rows, columns, motors
    torque = curves[..., None] * head.transmission[None, None]  # rows, columns, motors, dof
    if "load" in head.settings.terms:
        step = np.tanh(qd / np.exp(head.log_width[: head.joints.dof]))
        own = np.abs(view.rigid) * step
        torque[:, head.columns.index("load"), : head.joints.dof] += own[:, :, None] * np.eye(head.joints.dof)
    torque = np.moveaxis(torque[:, :, motors], 3, 1) / std[:, None, None]
    return torque.reshape(torque.shape[0] * torque.shape[1], -1)
