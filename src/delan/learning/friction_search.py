"""How well a friction head would do on motion that it has not seen, told without a fit of its own.

Near the fitted model the torque is linear, J δθ + Φ w, in small changes of the rigid part and in
the weights of friction. The data are cut into parts; each is left out in turn, δθ is eliminated and
w found, bounds included, on the others, and the error on the part is what counts. All of it is told
from products of columns over each part, which are computed once: a candidate costs as much as a few
small least-squares problems.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import pairwise, permutations
from typing import NamedTuple

import equinox as eqx
import jax
import numpy as np
from jax.flatten_util import ravel_pytree
from jaxtyping import Float
from threadpoolctl import threadpool_limits

from ..joints import Dataset
from ..models.dynamics import trainable
from ..models.friction import Friction, FrictionSettings, MotorPair
from ..models.friction_memory import remembered
from ..models.model import Model
from ..solvers.loss import Data, Samples, rigid_slope, torque
from ..solvers.marquardt import solve_bounded
from ..solvers.windows import Windows

ROWS, WINDOWS = 3000, 600
"""Samples, or windows, that a choice is made on, at most."""
PARTS = 10
"""that they are cut into, each left out in turn."""
RATIOS = (1.0, 0.6, 0.3, -0.3, -0.6, -1.0)
"""Ratios at which joints are tried as pairs on one motor."""
MOST_WEIGHTS = 600
"""Up to so many weights the rigid part may give way while terms are tried; a larger one is held."""
PAIRS_AT_ONCE = 30
"""Pairs whose memory is computed together."""
GIVE = 1e-6
"""How much its changes are damped, relative to their curvature."""

Key = tuple[tuple[str, ...], MotorPair | None] | None
"""Of a block of columns: the terms, of the joints' own motors or of a pair; None: what the rigid
part leaves over.
"""
LEFT_OVER: Key = None


def motor_pairs(dof: int) -> Iterator[tuple[str, MotorPair]]:
    """Every pair of joints at every ratio."""
    for first, second in permutations(range(dof), 2):
        for ratio in RATIOS:
            mirrored = (
                abs(ratio) == 1 and first > second
            )  # the same motor, counted the other way round
            if not mirrored:
                name = f"joint {first} {'+' if ratio > 0 else '−'} {abs(ratio):g} joint {second}"
                yield name, MotorPair(first, second, ratio)


@dataclass(frozen=True, eq=False)
class _View:
    """What is seen of a dataset, samples or windows: the torque that the rigid part leaves over
    there and how that answers to the rigid weights, in units of each joint's torque.

    Attributes:
        rows: of the samples, or of the windows, of the dataset.
        window: how much each moment of a window counts; of samples, one moment that counts whole.
        qd, rigid: speeds at each moment, and the rigid part's torque (the mean one of a window).
    """

    dataset: Dataset
    rows: np.ndarray
    window: Float[np.ndarray, "rows points"] | None
    qd: Float[np.ndarray, "moments dof"]
    rigid: Float[np.ndarray, "rows dof"]
    error: Float[np.ndarray, "rows dof"]
    slope: Float[np.ndarray, "rows dof weights"]

    @classmethod
    def of(cls, model: Model, dataset: Dataset, data: Data, count: int, std: np.ndarray) -> "_View":
        rows = np.unique(np.linspace(0, len(data) - 1, count).astype(int))
        part = data.rows(rows)
        rigid = np.asarray(_torques(model.mechanics, part))
        error = (np.asarray(part.tau) - rigid) / std
        weights, _ = ravel_pytree(trainable(model.mechanics)[0])
        slope = np.zeros((*error.shape, 0))
        if weights.size <= MOST_WEIGHTS:
            slope = rigid_slope(model.mechanics, part, std).reshape(*error.shape, -1)
        window = np.asarray(part.window) if isinstance(part, Windows) else None
        return cls(
            dataset, rows, window, np.asarray(part.qd).reshape(-1, len(std)), rigid, error, slope
        )

    def remembered(self, head: Friction) -> Float[np.ndarray, "moments radii motors"]:
        """What the stop operators of a head remember at each moment."""
        if self.window is None:
            memory = remembered(head, self.dataset)
        else:
            memory = Windows.of(self.dataset, head.settings).memory
        assert memory is not None
        chosen = np.asarray(memory)[self.rows]
        return chosen if self.window is None else chosen.reshape(-1, *chosen.shape[2:])

    def mean(self, values: Float[np.ndarray, "moments ..."]) -> Float[np.ndarray, "rows ..."]:
        """The mean over each window."""
        if self.window is None:
            return values
        return np.einsum(
            "rm,rm...->r...", self.window, values.reshape(*self.window.shape, *values.shape[1:])
        )


class _Columns(NamedTuple):
    """Columns joint by joint, for a motor acts on one joint or two: at each joint those that act
    there, and which of the `total` columns they are.
    """

    at: dict[int, Float[np.ndarray, "rows some"]]
    places: dict[int, np.ndarray]
    total: int

    @classmethod
    def dense(cls, rows: Float[np.ndarray, "rows dof total"]) -> "_Columns":
        """Columns that act on every joint."""
        joints, total = range(rows.shape[1]), rows.shape[2]
        at = {joint: np.ascontiguousarray(rows[:, joint]) for joint in joints}
        return cls(at, {joint: np.arange(total) for joint in joints}, total)


class _Block(NamedTuple):
    """Columns of friction, their products with the slopes over each part and over all others, how
    the rigid part gives way to them when a part is left out, and which weights are bounded.
    """

    columns: _Columns
    slopes: np.ndarray
    others: np.ndarray
    change: np.ndarray
    bounded: np.ndarray


class _Products(NamedTuple):
    """Of what is left of the columns of two blocks: over all parts but one, and over that one, for
    each.
    """

    seen: np.ndarray
    unseen: np.ndarray


@dataclass(frozen=True, eq=False)
class FrictionTrial:
    """The place where heads are tried; columns of friction and their products are computed once and
    kept.
    """

    actuator: Friction
    views: tuple[_View, ...]
    std: np.ndarray
    parts: tuple[slice, ...]
    slope: _Columns
    slopes: np.ndarray
    blocks: dict[Key, _Block] = field(default_factory=dict)
    products: dict[tuple[Key, Key], _Products] = field(default_factory=dict)
    memories: dict[tuple[int, MotorPair], np.ndarray] = field(default_factory=dict)

    @classmethod
    def of(cls, model: Model, *datasets: Dataset, windows: bool = False) -> "FrictionTrial":
        """Of the samples of all datasets together, or of windows; torques are told in units of the
        first one's.
        """
        deviation = datasets[0].samples.tau.std(axis=0)
        std = np.where(deviation > 0, deviation, 1.0)
        data = [Windows.of(dataset) if windows else Samples.of(dataset) for dataset in datasets]
        sizes = np.array([len(one) for one in data])
        counts = (
            np.ceil(sizes * min(1.0, (WINDOWS if windows else ROWS) / sizes.sum()))
            .astype(int)
            .tolist()
        )
        views = tuple(
            _View.of(model, *one, std) for one in zip(datasets, data, counts, strict=True)
        )
        rows = sum(len(view.rows) for view in views)
        parts = tuple(
            slice(*pair)
            for pair in pairwise(np.linspace(0, rows, min(PARTS, rows) + 1).astype(int))
        )
        slope = _Columns.dense(np.concatenate([view.slope for view in views]))
        assert model.friction is not None
        trial = cls(model.friction, views, std, parts, slope, _by_part(slope, slope, parts))
        left_over = _Columns.dense(np.concatenate([view.error for view in views])[..., None])
        trial.blocks[LEFT_OVER] = trial._given_way(left_over, np.zeros(1, dtype=bool))
        return trial

    def settle(self, settings: FrictionSettings) -> None:
        """Forget the columns of other terms than these, which no further candidate will have."""

        def lasts(key: Key) -> bool:
            return key is None or key[0] == settings.terms

        for key in [key for key in self.blocks if not lasts(key)]:
            del self.blocks[key]
        for keys in [keys for keys in self.products if not all(map(lasts, keys))]:
            del self.products[keys]

    def errors(self, settings: FrictionSettings) -> Float[np.ndarray, " parts"]:
        """The error (nMSE, in units of the training torque) on each part that a head of this kind
        would leave, its weights found on the others; without terms, no head at all.
        """
        alone = self._product(LEFT_OVER, LEFT_OVER).unseen[:, 0, 0]
        sizes = np.array([len(self.std) * (part.stop - part.start) for part in self.parts])
        if not settings.terms:
            return np.maximum(alone, 0.0) / sizes
        keys: list[Key] = [(settings.terms, pair) for pair in (None, *settings.pairs)]
        products = [[self._product(a, b) for b in keys] for a in keys]
        against = [self._product(key, LEFT_OVER) for key in keys]
        bounded = np.concatenate([self._block(key).bounded for key in keys])
        curvature = np.concatenate(
            [np.concatenate([p.seen for p in row], axis=2) for row in products], axis=1
        )
        weights = np.asarray(
            _solve(curvature, -np.concatenate([p.seen for p in against], axis=1)[..., 0], bounded)
        )
        square = np.concatenate(
            [np.concatenate([p.unseen for p in row], axis=2) for row in products], axis=1
        )
        mixed = np.concatenate([p.unseen for p in against], axis=1)[..., 0]
        left = (
            alone
            - 2 * (weights * mixed).sum(axis=1)
            + np.einsum("pi,pij,pj->p", weights, square, weights)
        )
        return np.maximum(left, 0.0) / sizes

    def _given_way(self, columns: _Columns, bounded: np.ndarray) -> _Block:
        slopes = _by_part(self.slope, columns, self.parts)
        others = _others(slopes)
        return _Block(columns, slopes, others, self.inverse @ others, bounded)

    @cached_property
    def curvature(self) -> Float[np.ndarray, "parts weights weights"]:
        """Of the rigid part over all parts but one."""
        return _others(self.slopes)

    @cached_property
    def inverse(self) -> Float[np.ndarray, "parts weights weights"]:
        """Of the damped curvature of the rigid part over all parts but one, for there are many
        columns.
        """
        curvature = self.curvature
        size = np.diagonal(curvature, axis1=1, axis2=2)
        damping = GIVE * np.maximum(size, 1e-12 * size.max(axis=1, keepdims=True, initial=0.0))
        return np.linalg.inv(curvature + damping[:, :, None] * np.eye(size.shape[1]))

    def _product(self, a: Key, b: Key) -> _Products:
        """The products of what is left of the columns of two blocks."""
        if (b, a) in self.products and a != b:
            return _Products(*(np.swapaxes(part, 1, 2) for part in self.products[b, a]))
        if (a, b) not in self.products:
            one, other = self._block(a), self._block(b)
            raw = _by_part(one.columns, other.columns, self.parts)
            self.products[a, b] = _Products(
                _left(_others(raw), self.curvature, one, other, one.others, other.others),
                _left(raw, self.slopes, one, other, one.slopes, other.slopes),
            )
        return self.products[a, b]

    def _block(self, key: Key) -> _Block:
        """The columns of the joints' own motors, or of one pair."""
        if key not in self.blocks:
            assert key is not None  # what is left over is there from the start
            terms, pair = key
            settings = replace(
                self.actuator.settings, terms=terms, pairs=() if pair is None else (pair,)
            )
            head = _reshaped(self.actuator, settings)
            n = head.joints.dof
            motors = slice(0, n) if pair is None else slice(n, n + 1)
            parts = [
                _columns(head, view, self.std, pair, self._memory(head, view, pair))
                for view in self.views
            ]
            at = {
                joint: np.concatenate([part.at[joint] for part in parts]) for joint in parts[0].at
            }
            bounded = np.array(head.weights.bounded, dtype=bool).reshape(len(head.columns), -1)[
                :, motors
            ]
            self.blocks[key] = self._given_way(parts[0]._replace(at=at), bounded.ravel())
        return self.blocks[key]

    def _memory(self, head: Friction, view: _View, pair: MotorPair | None) -> np.ndarray | None:
        """What stop operators remember at the rows of a view; of a pair's head, at the motor of the
        pair alone.
        """
        if not head.settings.stops:
            return None
        if pair is None:
            return view.remembered(head)
        if (id(view), pair) not in self.memories:
            self._remember(view, head)
        own = self.memories[id(view), pair]
        return np.concatenate([np.zeros((*own.shape, head.joints.dof)), own[..., None]], axis=-1)

    def _remember(self, view: _View, head: Friction) -> None:
        """The memory of every pair there could be, some at a time: one scan costs as much for many
        as for one.
        """
        dof = head.joints.dof
        every = [pair for _, pair in motor_pairs(dof)]
        for first in range(0, len(every), PAIRS_AT_ONCE):
            some = tuple(every[first : first + PAIRS_AT_ONCE])
            wide = Friction(head.joints, replace(head.settings, pairs=some))
            memory = view.remembered(wide)
            for place, pair in enumerate(some):
                self.memories[id(view), pair] = memory[..., dof + place]


_torques = eqx.filter_jit(jax.vmap(torque, in_axes=(None, 0)))
_solve = jax.jit(jax.vmap(solve_bounded, in_axes=(0, 0, None)))


def _by_part(a: _Columns, b: _Columns, parts: tuple[slice, ...]) -> Float[np.ndarray, "parts a b"]:
    """The products of columns over each part, from the joints where both act."""
    products = np.zeros((len(parts), a.total, b.total))
    for joint in sorted(a.at.keys() & b.at.keys()):
        one, other = a.at[joint], b.at[joint]
        place = np.ix_(a.places[joint], b.places[joint])
        for product, part in zip(products, parts, strict=True):
            product[place] += one[part].T @ other[part]
    return products


def _others(parts: Float[np.ndarray, "parts ..."]) -> Float[np.ndarray, "parts ..."]:
    """For each part, the sum over all others."""
    return parts.sum(axis=0) - parts


def _left(
    raw: np.ndarray,
    curvature: np.ndarray,
    one: _Block,
    other: _Block,
    slopes: np.ndarray,
    other_slopes: np.ndarray,
) -> Float[np.ndarray, "parts a b"]:
    """The products of what is left of columns when the rigid part has given way to them."""
    change = np.swapaxes(one.change, 1, 2)
    return (
        raw
        - np.swapaxes(slopes, 1, 2) @ other.change
        - change @ other_slopes
        + change @ curvature @ other.change
    )


def _reshaped(actuator: Friction, settings: FrictionSettings) -> Friction:
    """A head of numpy arrays with these terms and the widths that the joints have learned so far."""
    blank = Friction(actuator.joints, settings)
    made = Friction.of(actuator.joints, settings, np.zeros(blank.weights.value.shape))
    n = actuator.joints.dof
    widths, speeds = np.array(made.log_width), np.array(made.log_stribeck_speed)
    widths[:n], speeds[:n] = actuator.log_width[:n], actuator.log_stribeck_speed[:n]
    return eqx.tree_at(lambda one: (one.log_width, one.log_stribeck_speed), made, (widths, speeds))


def _columns(
    head: Friction, view: _View, std: np.ndarray, pair: MotorPair | None, memory: np.ndarray | None
) -> _Columns:
    """The torque that a unit of each weight makes: of the joints' own motors, which act there
    alone, or of a pair.
    """
    dof, terms = head.joints.dof, len(head.columns)
    curves = view.mean(np.asarray(head.features(view.qd, memory)))  # rows, terms, motors
    if pair is not None:
        at = {
            joint: curves[..., dof] * (turn / std[joint])
            for joint, turn in ((pair.first, 1.0), (pair.second, pair.ratio))
        }
        return _Columns(at, {joint: np.arange(terms) for joint in at}, terms)
    if "load" in head.settings.terms:
        assert view.window is None  # a window's mean torque is no load of a moment
        step = np.tanh(view.qd / np.exp(head.log_width[:dof]))
        curves = np.array(curves)
        curves[:, head.columns.index("load")] += np.abs(view.rigid) * step
    at = {joint: curves[..., joint] / std[joint] for joint in range(dof)}
    return _Columns(at, {joint: dof * np.arange(terms) + joint for joint in at}, dof * terms)


START = FrictionSettings(terms=("viscous", "coulomb", "offset"))
"""The friction that every robot is given to begin with."""
NO_FRICTION = "no friction"
"""The name of a model without any, in the steps of a choice."""
WORTHWHILE = 0.98
"""A term stays if it brings the error on motion left out below this share."""
SURE, SURE_OF_PAIR = 1.0, 2.0
"""and if the gain is so many standard errors large, told from the parts left out. Of the many pairs
one is the best by chance, so it must be the surer.
"""


@dataclass(frozen=True)
class SelectionStep:
    """A term that was added, or the best of those not worth it, and the error (nMSE) on motion left
    out it led to; the first step is no friction, which the others are compared with.
    """

    term: str
    validation: float
    kept: bool

    @property
    def told(self) -> str:
        if self.term == NO_FRICTION:
            return "to compare with"
        return "kept" if self.kept else "not worth it, the best of those left"


def select_friction(
    model: Model,
    training: Dataset,
    validation: Dataset,
    *,
    windows: bool = False,
    enough: Callable[[], bool] = lambda: False,
) -> tuple[FrictionSettings, tuple[SelectionStep, ...]]:
    """The friction to fit next, and how it was chosen, starting from the model's own; by samples or
    by windows.

    Once `enough` says so, no further candidate is tried, and a round that was not tried to its end
    chooses nothing.
    """
    # On small matrices the threads of a BLAS wait for each other, on a busy machine longer than the
    # work itself takes.
    with jax.enable_x64(True), threadpool_limits(1, user_api="blas"):
        trial = FrictionTrial.of(model, training, validation, windows=windows)
        assert model.friction is not None
        chosen = model.friction.settings
        without = trial.errors(replace(chosen, terms=(), pairs=()))
        errors = trial.errors(chosen)
        steps = [
            SelectionStep(NO_FRICTION, float(without.mean()), kept=False),
            SelectionStep(" + ".join(chosen.terms), float(errors.mean()), kept=True),
        ]
        while True:
            tried = []
            for name, candidate in _candidates(chosen, training.dof, windows):
                if enough():
                    return chosen, tuple(steps)
                tried.append((trial.errors(candidate), name, candidate))
            if not tried:  # a single joint with every term
                break
            best, name, candidate = min(tried, key=lambda one: one[0].mean())
            sure = SURE_OF_PAIR if candidate.pairs != chosen.pairs else SURE
            kept = best.mean() < WORTHWHILE * errors.mean() and _certainty(errors - best) > sure
            steps.append(SelectionStep(name, float(best.mean()), bool(kept)))
            if not kept:
                break
            chosen, errors = candidate, best
            trial.settle(chosen)
    return chosen, tuple(steps)


def _certainty(gains: np.ndarray) -> float:
    """How many standard errors a mean gain is large."""
    return float(gains.mean() / (gains.std(ddof=1) / np.sqrt(len(gains)) + np.finfo(float).tiny))


def _candidates(
    settings: FrictionSettings, dof: int, windows: bool
) -> Iterator[tuple[str, FrictionSettings]]:
    """The settings with one thing more; the load of a moment is not known of windows."""
    for term in ("stribeck", "stops") if windows else ("stribeck", "stops", "load"):
        if term not in settings.terms:
            yield term, replace(settings, terms=(*settings.terms, term))
    if "coulomb" in settings.terms:
        terms = tuple("asymmetric" if term == "coulomb" else term for term in settings.terms)
        yield "asymmetric", replace(settings, terms=terms)
    if len(settings.pairs) < dof:
        for name, pair in motor_pairs(dof):
            if pair not in settings.pairs:
                yield name, replace(settings, pairs=(*settings.pairs, pair))
