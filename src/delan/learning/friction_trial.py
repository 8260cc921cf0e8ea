"""A trial of friction: its error on motion that was left out, without a fit of its own.

Near the fitted model the torque is linear, J δθ + Φ w, in small changes of the rigid part and in
the weights of friction. The rows are cut into parts. Each part is left out in turn: δθ is
eliminated and w is found on the other parts, bounds included, and the error on the part left out
counts. All of it follows from products of columns over each part, which are computed once, so that
a candidate costs a few small least-squares problems.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import pairwise, permutations
from typing import NamedTuple

import numpy as np
from jax.flatten_util import ravel_pytree
from jaxtyping import Float

from ..joints import Dataset, evenly_spaced
from ..logs.actuation import torque_scale
from ..models.dynamics import trainable
from ..models.friction import Friction, FrictionSettings, MotorPair, Term
from ..models.friction_memory import remembered
from ..models.model import Model
from ..solvers.bounded import solve_bounded
from ..solvers.linearised import (
    FrictionMotion,
    changed,
    motor_curves,
    rigid_slopes,
    rigid_torques,
)
from ..solvers.loss import Data, Samples, Windows

# Ratios at which joints are tried as pairs on one motor.
RATIOS = (1.0, 0.6, 0.3, -0.3, -0.6, -1.0)
# The most samples, or windows, that a search uses, so that it takes seconds on a long log.
ROWS = 3000
WINDOWS = 600
# Parts that the rows are cut into, each left out in turn.
PARTS = 10
# Up to this many weights the rigid part may adapt to a candidate; a larger one is held.
MOST_WEIGHTS = 600
# Dampings of the changes of the rigid part, relative to their curvature, that are tried: without
# damping a short log lets that part stray on the motion left out.
DAMPINGS = (1e-6, 1e-4, 1e-3, 1e-2)
# Pairs whose memory is computed together: one scan costs as much for many as for one.
PAIRS_AT_ONCE = 30

# Names a block of columns: the terms of the joints' own motors, or of a motor pair. None is the
# torque that the rigid part leaves.
_Key = tuple[tuple[Term, ...], MotorPair | None] | None
# Terms and pairs of a choice of friction.
_Choice = tuple[tuple[Term, ...], tuple[MotorPair, ...]]
# Products of columns come twice for each part: over all other parts, and over the part left out.
SEEN = 0
UNSEEN = 1


def motor_pairs(dof: int) -> Iterator[tuple[str, MotorPair]]:
    """Every pair of joints at every ratio, by its name."""
    for first, second in permutations(range(dof), 2):
        for ratio in RATIOS:
            # At a ratio of ±1 both orders of the joints are the same motor.
            if abs(ratio) == 1 and first > second:
                continue
            sign = "−" if ratio < 0 else "+"
            name = f"joint {first} {sign} {abs(ratio):g} joint {second}"
            yield name, MotorPair(first, second, ratio)


class _Columns(NamedTuple):
    """Columns joint by joint, because a motor acts on one joint or two.

    `at` holds the columns that act at a joint; `places` says which of the `total` they are.
    """

    at: dict[int, Float[np.ndarray, "rows columns"]]
    places: dict[int, np.ndarray]
    total: int

    @classmethod
    def dense(cls, rows: Float[np.ndarray, "rows dof total"]) -> "_Columns":
        """Columns that act on every joint."""
        _, dof, total = rows.shape
        at = {}
        for joint in range(dof):
            at[joint] = np.ascontiguousarray(rows[:, joint])
        return cls(at, dict.fromkeys(at, np.arange(total)), total)


class _Block(NamedTuple):
    """Columns, their products with the slopes of the rigid part, and how that part adapts to them.

    `left` are the products with the slopes after the rigid part has adapted; `bounded` marks
    weights that must not be negative.
    """

    columns: _Columns
    slopes: Float[np.ndarray, "2 parts weights columns"]
    change: Float[np.ndarray, "parts weights columns"]
    left: Float[np.ndarray, "2 parts weights columns"]
    bounded: np.ndarray


class _Equations(NamedTuple):
    """The least-squares problems of one choice of friction, seen and unseen, for each part.

    `free` are the weights that are not at their bound in the solution of each part: where a search
    for the solution of a larger choice starts.
    """

    square: Float[np.ndarray, "2 parts weights weights"]
    mixed: Float[np.ndarray, "2 parts weights"]
    bounded: np.ndarray
    free: tuple[np.ndarray, ...]


@dataclass(frozen=True, eq=False)
class _View:
    """The rows of one dataset, samples or windows, in units of each joint's torque.

    Attributes:
        rows: which samples, or windows, of the dataset.
        motion: what friction depends on at each moment of them, but for memory.
        rigid: torque of the rigid part, the mean over a window.
        error, slope: the torque that the rigid part leaves, and how it depends on its weights.
    """

    dataset: Dataset
    rows: np.ndarray
    motion: FrictionMotion
    rigid: Float[np.ndarray, "rows dof"]
    error: Float[np.ndarray, "rows dof"]
    slope: Float[np.ndarray, "rows dof weights"]

    @classmethod
    def of(cls, model: Model, dataset: Dataset, data: Data, count: int, std: np.ndarray) -> "_View":
        rows = evenly_spaced(len(data), count)
        picked = data.rows(rows)
        weights, _ = ravel_pytree(trainable(model.mechanics)[0])
        if weights.size <= MOST_WEIGHTS:
            rigid, slope = rigid_slopes(model.mechanics, picked)
            slope = slope / std[:, None]
        else:
            rigid = rigid_torques(model.mechanics, picked)
            slope = np.zeros((*rigid.shape, 0))
        error = (np.asarray(picked.tau) - rigid) / std
        return cls(dataset, rows, FrictionMotion.of(picked), rigid, error, slope)

    def memory(
        self, friction: Friction, whole: dict[int, np.ndarray]
    ) -> Float[np.ndarray, "moments radii motors"]:
        """The state of the stop operators at each moment.

        The parts of a log share its rows, whose memory is computed once and kept in `whole`.
        """
        if self.motion.window is None:
            shared = id(self.dataset.q)
            if shared not in whole:
                memory = remembered(friction, replace(self.dataset, counted=None))
                assert memory is not None
                whole[shared] = memory
            rows = self.rows
            if self.dataset.counted is not None:
                rows = np.flatnonzero(self.dataset.counted)[rows]
            return whole[shared][rows]
        memory = Windows.of(self.dataset, friction.settings).memory
        assert memory is not None
        picked = np.asarray(memory)[self.rows]
        return picked.reshape(-1, *picked.shape[2:])


@dataclass(frozen=True, eq=False)
class FrictionTrial:
    """Where candidates are tried. Blocks, their products and memories are computed once."""

    friction: Friction
    views: tuple[_View, ...]
    std: np.ndarray
    parts: tuple[slice, ...]
    slope: _Columns
    damping: float = DAMPINGS[0]
    blocks: dict[_Key, _Block] = field(default_factory=dict)
    products: dict[tuple[_Key, _Key], np.ndarray] = field(default_factory=dict)
    memories: dict[tuple[int, MotorPair], np.ndarray] = field(default_factory=dict)
    own_memories: dict[int, np.ndarray] = field(default_factory=dict)
    chosen: dict[_Choice, _Equations] = field(default_factory=dict)

    @classmethod
    def of(cls, model: Model, *datasets: Dataset, windows: bool) -> "FrictionTrial":
        """All datasets together; the units are those of the first."""
        assert model.friction is not None
        std = torque_scale(datasets[0].samples.qd, datasets[0].samples.tau)
        kind = Windows if windows else Samples
        most = WINDOWS if windows else ROWS
        data = [kind.of(dataset) for dataset in datasets]
        sizes = np.array([len(rows) for rows in data])
        counts = np.ceil(sizes * min(1.0, most / sizes.sum())).astype(int).tolist()
        views = []
        for dataset, rows, count in zip(datasets, data, counts, strict=True):
            views.append(_View.of(model, dataset, rows, count, std))
        error = np.concatenate([view.error for view in views])
        edges = np.linspace(0, len(error), min(PARTS, len(error)) + 1).astype(int)
        if len(views) > 2:
            edges = np.cumsum([0, *(len(view.error) for view in views)])
        parts = tuple(slice(first, end) for first, end in pairwise(edges))
        slope = _Columns.dense(np.concatenate([view.slope for view in views]))
        return cls(model.friction, tuple(views), std, parts, slope)._begun()

    def damped(self, damping: float) -> "FrictionTrial":
        """The same rows under another damping."""
        return FrictionTrial(
            self.friction, self.views, self.std, self.parts, self.slope, damping
        )._begun()

    def _begun(self) -> "FrictionTrial":
        """The trial with the block of the torque that the rigid part leaves."""
        error = np.concatenate([view.error for view in self.views])
        self.blocks[None] = self._adapted(_Columns.dense(error[..., None]), np.zeros(1, bool))
        return self

    def errors(self, settings: FrictionSettings) -> Float[np.ndarray, " parts"]:
        """The error (nMSE) on each part with weights found on the others; no terms: no friction."""
        alone = self._product(None, None)[UNSEEN, :, 0, 0]
        sizes = np.array([len(self.std) * (part.stop - part.start) for part in self.parts])
        if not settings.terms:
            return np.maximum(alone, 0.0) / sizes
        weights, equations = self._solved(settings)
        left = (
            alone
            - 2 * (weights * equations.mixed[UNSEEN]).sum(axis=1)
            + np.einsum("pi,pij,pj->p", weights, equations.square[UNSEEN], weights)
        )
        return np.maximum(left, 0.0) / sizes

    def _solved(self, settings: FrictionSettings) -> tuple[np.ndarray, _Equations]:
        """The weights without each part, and the equations that they solve."""
        equations = self._equations(settings)
        problems = zip(equations.square[SEEN], equations.mixed[SEEN], equations.free, strict=True)
        weights = []
        for curvature, slope, free in problems:
            weights.append(solve_bounded(curvature, -slope, equations.bounded, free))
        return np.stack(weights), equations

    def _equations(self, settings: FrictionSettings) -> _Equations:
        """The equations of a choice: those of the choice before it, and the columns of a pair."""
        known = self.chosen.get((settings.terms, settings.pairs))
        if known is not None:
            return known
        first: _Key = (settings.terms, None)
        if not settings.pairs:
            bounded = self._block(first).bounded
            free = (np.ones(len(bounded), dtype=bool),) * len(self.parts)
            mixed = self._product(first, None)[..., 0]
            return _Equations(self._product(first, first), mixed, bounded, free)
        last: _Key = (settings.terms, settings.pairs[-1])
        before = self._equations(replace(settings, pairs=settings.pairs[:-1]))
        keys: list[_Key] = [first]
        keys += [(settings.terms, pair) for pair in settings.pairs[:-1]]
        across = np.concatenate([self._product(key, last) for key in keys], axis=2)
        added = self._block(last).bounded
        count = len(before.bounded)
        total = count + len(added)
        square = np.empty((2, len(self.parts), total, total))
        square[..., :count, :count] = before.square
        square[..., :count, count:] = across
        square[..., count:, :count] = np.swapaxes(across, 2, 3)
        square[..., count:, count:] = self._product(last, last)
        mixed = np.concatenate([before.mixed, self._product(last, None)[..., 0]], axis=2)
        free = tuple(np.append(mask, np.ones(len(added), dtype=bool)) for mask in before.free)
        return _Equations(square, mixed, np.append(before.bounded, added), free)

    def choose(self, settings: FrictionSettings) -> None:
        """Keep the equations of a choice, and free the columns of other terms.

        Further candidates add to this choice.
        """
        gone = {key for key in self.blocks if key is not None and key[0] != settings.terms}
        for key in gone:
            del self.blocks[key]
        for keys in list(self.products):
            if gone.intersection(keys):
                del self.products[keys]
        weights, equations = self._solved(settings)
        free = tuple(~equations.bounded | (row > 0) for row in weights)
        self.chosen.clear()
        self.chosen[settings.terms, settings.pairs] = equations._replace(free=free)

    @cached_property
    def slopes(self) -> Float[np.ndarray, "2 parts weights weights"]:
        """The products of the slopes of the rigid part: its curvature."""
        return self._by_part(self.slope, self.slope)

    @cached_property
    def inverse(self) -> Float[np.ndarray, "parts weights weights"]:
        """Of the damped curvature; an inverse, because there are many columns to solve for."""
        curvature = self.slopes[SEEN]
        size = np.diagonal(curvature, axis1=1, axis2=2)
        # The smallest curvatures are floored, or weights without effect could not be inverted.
        damping = self.damping * np.maximum(
            size, 1e-12 * size.max(axis=1, keepdims=True, initial=0.0)
        )
        return np.linalg.inv(curvature + damping[:, :, None] * np.eye(size.shape[1]))

    def _adapted(self, columns: _Columns, bounded: np.ndarray) -> _Block:
        slopes = self._by_part(self.slope, columns)
        change = self.inverse @ slopes[SEEN]
        return _Block(columns, slopes, change, slopes - self.slopes @ change, bounded)

    def _product(self, a: _Key, b: _Key) -> Float[np.ndarray, "2 parts a b"]:
        """(A − J δA)ᵀ (B − J δB), where the changes δ come from the parts that are seen."""
        if (b, a) in self.products and a != b:
            return np.swapaxes(self.products[b, a], 2, 3)
        if (a, b) not in self.products:
            left = self._block(a)
            right = self._block(b)
            self.products[a, b] = (
                self._by_part(left.columns, right.columns)
                - np.swapaxes(left.slopes, 2, 3) @ right.change
                - np.swapaxes(left.change, 1, 2) @ right.left
            )
        return self.products[a, b]

    def _by_part(self, a: _Columns, b: _Columns) -> Float[np.ndarray, "2 parts a b"]:
        """The products of columns, seen and unseen, from the joints where both act."""
        products = np.zeros((len(self.parts), a.total, b.total))
        for joint in sorted(a.at.keys() & b.at.keys()):
            place = np.ix_(a.places[joint], b.places[joint])
            for product, part in zip(products, self.parts, strict=True):
                product[place] += a.at[joint][part].T @ b.at[joint][part]
        return np.stack([products.sum(axis=0) - products, products])

    def _block(self, key: _Key) -> _Block:
        if key not in self.blocks:
            assert key is not None  # the block of the error is there from the start
            terms, pair = key
            pairs = () if pair is None else (pair,)
            friction = _reshaped(
                self.friction, replace(self.friction.settings, terms=terms, pairs=pairs)
            )
            views = [self._columns(friction, view, pair) for view in self.views]
            at = {}
            for joint in views[0].at:
                at[joint] = np.concatenate([columns.at[joint] for columns in views])
            bounded = np.array(friction.weights.bounded, dtype=bool)
            bounded = bounded.reshape(len(friction.columns), -1)
            if pair is not None:
                bounded = bounded[:, friction.joints.dof :]
            self.blocks[key] = self._adapted(views[0]._replace(at=at), bounded.ravel())
        return self.blocks[key]

    def _columns(self, friction: Friction, view: _View, pair: MotorPair | None) -> _Columns:
        """The torque of a unit of each weight: of the joints' own motors, or of a pair alone."""
        dof = friction.joints.dof
        terms = len(friction.columns)
        motion = view.motion._replace(memory=self._memory(friction, view, pair))
        curves = motor_curves(friction, motion, view.rigid)  # rows, terms, motors
        at = {}
        places = {}
        if pair is not None:
            for joint, turn in ((pair.first, 1.0), (pair.second, pair.ratio)):
                at[joint] = curves[..., dof] * (turn / self.std[joint])
                places[joint] = np.arange(terms)
            return _Columns(at, places, terms)
        for joint in range(dof):
            at[joint] = curves[..., joint] / self.std[joint]
            places[joint] = dof * np.arange(terms) + joint
        return _Columns(at, places, dof * terms)

    def _memory(self, friction: Friction, view: _View, pair: MotorPair | None) -> np.ndarray | None:
        """The state of the stop operators; with a pair, at the motor of the pair alone."""
        if not friction.settings.stops:
            return None
        if pair is None:
            return view.memory(friction, self.own_memories)
        if (id(view), pair) not in self.memories:
            self._remember_pairs(friction)
        own = self.memories[id(view), pair]
        joints = np.zeros((*own.shape, friction.joints.dof))
        return np.concatenate([joints, own[..., None]], axis=-1)

    def _remember_pairs(self, friction: Friction) -> None:
        """Compute the memory of every possible pair."""
        dof = friction.joints.dof
        pairs = [pair for _, pair in motor_pairs(dof)]
        for first in range(0, len(pairs), PAIRS_AT_ONCE):
            some = tuple(pairs[first : first + PAIRS_AT_ONCE])
            motors = Friction(friction.joints, replace(friction.settings, pairs=some))
            whole: dict[int, np.ndarray] = {}
            for view in self.views:
                memory = view.memory(motors, whole)
                for place, pair in enumerate(some):
                    self.memories[id(view), pair] = memory[..., dof + place]


def _reshaped(friction: Friction, settings: FrictionSettings) -> Friction:
    """Friction of other terms in numpy arrays, with the widths that the joints have learned."""
    dof = friction.joints.dof
    motors = dof + len(settings.pairs)
    widths = np.full(motors, np.log(settings.width))
    widths[:dof] = friction.log_width[:dof]
    speeds = np.full(motors, np.log(settings.stribeck_speed))
    speeds[:dof] = friction.log_stribeck_speed[:dof]
    weights = np.zeros((len(settings.laws), motors))
    return changed(
        friction, weights=weights, log_width=widths, log_stribeck_speed=speeds, settings=settings
    )
