"""The stages of a training: Adam, Levenberg–Marquardt, and random starts of the latter."""

import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import cached_property, partial
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray
from scipy.spatial.transform import Rotation

from ..logs.split import generator
from ..models.chain import settled
from ..models.model import Model
from . import adam, marquardt
from .loss import Advance, Data, Objective, Scale, Windows
from .pair import Found, Seat

# A loss, relative to the variance of the torque, at which rounding is all that remains to learn.
EXACT = 1e-13
# A loss, relative to the variance of the torque, that no wrong valley reaches: no second start
# needs to confirm it.
SOLVED = 1e-7
# Models that are iterated at the same time: as many as go on after a round of hops, on two cores or
# more. The number is fixed, so that a seed gives the same result on every machine.
TOGETHER = 3
# Most samples, or windows, that a finalist uses: enough to tell valleys apart. Windows hold more of
# the motion each. The search before takes one in three.
SAMPLES = 576
WINDOWS = 150
SEARCHED = 3
# Random arms at the start of a search, and the best of them that go on; their iterations. Ten
# iterations tell most wrong valleys.
STARTS = 10
BEST_STARTS = 2
START_ITERATIONS = 10
BEST_ITERATIONS = 25
# Then every joint of the best arm is placed anew, one at a time: most wrong arms have a few wrong
# joints. After a round in vain, each is placed anew together with another one, which leads out of
# valleys that no single joint leaves. Iterations of each such arm, of the best ones after that, and
# their number.
HOP_ITERATIONS = 10
HOP_MORE = 15
BEST_HOPS = 2
# A search ends when as many rounds of such hops in a row have not brought its loss below this
# share, or after this many rounds.
HOP_GAIN = 0.95
HOPS_IN_VAIN = 3
MOST_HOPS = 15
# A search above its bar ends when a round does not bring its loss below this share.
HOPELESS_GAIN = 0.5
# Most iterations of a finalist.
ITERATIONS = 150
# A start ends if its loss has not fallen below this share in this many iterations.
GAIN = 0.95
GAIN_ITERATIONS = 15
# Two starts ended in the same valley if their training losses differ by less than the first factor,
# and if their validation losses differ by less than the second one or are below the third multiple
# of the training losses. In wrong valleys they are above.
AGREED_IN_TRAINING = 1.1
AGREED = 1.05
HOLDS = 3.0
# Arms of a search whose loss is below this multiple of the least explain the data as well.
AS_GOOD = 1.1


class DescentState(eqx.Module):
    """A learner, and the factor by which retreats have shrunk its learning rate."""

    learner: adam.LearnerState
    shrink: Float[Array, ""]


@dataclass(frozen=True)
class DescentStage:
    """Adam over minibatches."""

    training: Data
    validation: Data
    scale: Scale
    objective: Objective
    settings: adam.DescentSettings
    chunk: int
    epochs: int | None
    patience: float
    name: str = "Adam"

    def start(self, model: Any) -> DescentState:
        learner = adam.init(model, self.scale, self.objective, self.settings)
        return DescentState(learner, jnp.ones_like(learner.learning_rate))

    def advance(
        self, state: DescentState, shares: Sequence[float], key: PRNGKeyArray
    ) -> tuple[DescentState, Advance]:
        rates = state.shrink * jnp.asarray([self.settings.schedule(share) for share in shares])
        learner, report = adam.run_epochs(state.learner, self.training, self.validation, rates, key)
        step = Advance(float(report.training), float(report.validation))
        return DescentState(learner, state.shrink), step

    def retreat(self, state: DescentState, model: Any) -> DescentState:
        return DescentState(self.start(model).learner, state.shrink / 2)

    def model(self, state: DescentState) -> Any:
        return state.learner.model


@dataclass(frozen=True)
class MarquardtStage:
    """Levenberg–Marquardt on all samples; an epoch is an iteration."""

    training: Data
    validation: Data
    scale: Scale
    objective: Objective
    settings: marquardt.MarquardtSettings
    epochs: int | None
    patience: float
    chunk: int = 1
    name: str = "Levenberg–Marquardt"

    @cached_property
    def _problem(self) -> marquardt.Problem:
        return marquardt.Problem(self.training, self.scale, self.objective)

    @cached_property
    def _unseen(self) -> marquardt.Problem:
        return marquardt.Problem(self.validation, self.scale, self.objective)

    def start(self, model: Any) -> marquardt.MarquardtState:
        return marquardt.init(model, self.settings)

    def advance(
        self, state: marquardt.MarquardtState, shares: Sequence[float], key: PRNGKeyArray
    ) -> tuple[marquardt.MarquardtState, Advance]:
        state, loss = marquardt.update(state, self._problem, self.settings)
        validation = self._unseen.loss(state.model)
        return state, Advance(loss, validation, finished=bool(state.stalled) or loss < EXACT)

    def retreat(self, state: marquardt.MarquardtState, model: Any) -> marquardt.MarquardtState:
        # Two orders of magnitude: damping shrinks by at most 5 per iteration, so that the next few
        # steps are short.
        damping = state.damping * 100
        return eqx.tree_at(lambda state: state.damping, self.start(model), damping)

    def model(self, state: marquardt.MarquardtState) -> Any:
        return state.model


class StartsState(eqx.Module):
    """The best model so far, and the losses of all starts on validation and in training.

    The losses of starts that are still to come are infinite.
    """

    model: Any
    losses: Float[Array, " starts"]
    trained: Float[Array, " starts"]


@dataclass(frozen=True, eq=False)
class _StartEnd:
    """The model at the end of a search, and its losses."""

    model: Any
    validation: float
    training: float


@dataclass(frozen=True)
class StartsStage:
    """Searches for the arm until two of them agree; an epoch is a search.

    A search begins with random arms and goes on with the best one, each of whose joints is placed
    anew in turn. `until` limits the time, as a value of `time.perf_counter()` [s].

    `others` receives the arms of the last search that explain the data as well as the best one:
    where they differ from it, the data do not tell which one is right.

    A search ends early when its `partner` has found the same arm.

    A search whose loss stays above `bar` is given up when a round of new places does not halve it;
    its arm is None.
    """

    training: Data
    validation: Data
    scale: Scale
    objective: Objective
    settings: marquardt.MarquardtSettings
    build: Callable[[PRNGKeyArray], Any]
    epochs: int
    until: float = float("inf")
    stop: threading.Event | None = None
    patience: float = float("inf")
    chunk: int = 1
    name: str = "Starts"
    others: list[Any] = field(default_factory=list)
    bar: float = float("inf")
    partner: Seat | None = None

    def start(self, model: Any) -> StartsState:
        unknown = jnp.full(self.epochs, jnp.inf)
        return StartsState(model, unknown, unknown)

    def advance(
        self, state: StartsState, shares: Sequence[float], key: PRNGKeyArray
    ) -> tuple[StartsState, Advance]:
        end = self._search(key)
        done = int(np.isfinite(state.losses).sum())
        losses = state.losses.at[done].set(end.validation)
        trained = state.trained.at[done].set(end.training)
        model = state.model
        if end.validation <= float(jnp.min(state.losses)):
            model = end.model
        confirmed = done > 0 and agreed(np.asarray(losses), np.asarray(trained))
        finished = end.validation < SOLVED or confirmed or time.perf_counter() > self.until
        step = Advance(end.training, float(jnp.min(losses)), finished=finished)
        return StartsState(model, losses, trained), step

    def retreat(self, state: StartsState, model: Any) -> StartsState:
        return state

    def model(self, state: StartsState) -> Any:
        return state.model

    def _search(self, key: PRNGKeyArray) -> _StartEnd:
        """Return the end of a search on a random part of the training data."""
        rows_key, hop_key, *keys = jax.random.split(key, STARTS + 2)
        part = _part(self.training, rows_key)
        few = part.rows(np.arange(0, len(part), SEARCHED))
        with jax.enable_x64(True):
            models = [self.build(model_key) for model_key in keys]
        # Compiled once here, the programs of an iteration are not compiled by every thread.
        self._ranked(models[:1], few, 1)
        ranked = self._ranked(models, few, START_ITERATIONS)
        ranked = self._ranked(_models(ranked[:BEST_STARTS]), few, BEST_ITERATIONS)
        ranked = self._hop(ranked, few, generator(hop_key))
        if self.partner is not None:
            self.partner.leave()
        if ranked[0].loss > self.bar:
            return _StartEnd(None, np.finfo(float).max, ranked[0].loss)
        with jax.enable_x64(True):
            return self._finish(ranked[0].model, part)

    def _hop(
        self, ranked: list["_Candidate"], data: Data, rng: np.random.Generator
    ) -> list["_Candidate"]:
        """Place every joint of the best arm anew, alone or with another, while arms get better."""
        in_vain = 0
        seen = list(ranked)
        for _ in range(MOST_HOPS):
            best = ranked[0]
            if best.loss < SOLVED / 10 or in_vain == HOPS_IN_VAIN or self._over:
                break
            joints = _movable(best.model)
            if not joints:
                break
            others = [_replaced(best.model, joint, rng) for joint in joints]
            if in_vain > 0:
                others = [_replaced(arm, int(rng.choice(joints)), rng) for arm in others]
            hops = self._ranked(others, data, HOP_ITERATIONS)
            ranked = self._ranked([best.model, *_models(hops[:BEST_HOPS])], data, HOP_MORE)
            seen += [*hops, *ranked]
            if ranked[0].loss > max(self.bar, HOPELESS_GAIN * best.loss):
                break
            in_vain = 0 if ranked[0].loss < HOP_GAIN * best.loss else in_vain + 1
            if self._is_confirmed(ranked[0] if in_vain else None):
                break
        least = ranked[0].loss
        self.others[:] = [arm.model for arm in seen if arm.loss < AS_GOOD * least]
        return ranked

    def _is_confirmed(self, best: "_Candidate | None") -> bool:
        """Whether the partner, if there is one, has found the same arm."""
        if self.partner is None:
            return False
        found = None if best is None else Found(best.model, best.loss)
        return self.partner.agrees(found, lambda: self._over)

    @property
    def _over(self) -> bool:
        """Whether time is over or the search was stopped."""
        stopped = self.stop is not None and self.stop.is_set()
        return stopped or time.perf_counter() > self.until

    def _ranked(self, models: list[Any], data: Data, iterations: int) -> list["_Candidate"]:
        """Return the models after some iterations, the best first.

        At first frames may stretch: that opens ways around obstacles which rotations do not have.
        """
        problem = marquardt.Problem(data, self.scale.untied(), self.objective)
        step = partial(self._iterate, problem=problem, most=iterations)
        # Sorting keeps the order of equals, so that the result does not depend on threads.
        return sorted(self._side_by_side(step, models), key=lambda candidate: candidate.loss)

    def _side_by_side(self, step: Callable[[Any], Any], models: list[Any]) -> list[Any]:
        """Apply a step to each model in threads, because XLA releases the interpreter."""

        def inside(model: Any) -> Any:
            with jax.enable_x64(True):
                return step(model)

        with ThreadPoolExecutor(TOGETHER) as pool:
            return list(pool.map(inside, models))

    def _finish(self, model: Any, part: Data) -> _StartEnd:
        """Settle and tie the frames of a finalist, and let it converge."""
        free = marquardt.Problem(part, self.scale.untied(), self.objective)
        tied = marquardt.Problem(part, self.scale, self.objective)
        model = self._iterate(model, free, ITERATIONS).model
        model, loss = self._iterate(_settled(model), tied, ITERATIONS)
        validation = marquardt.Problem(self.validation, self.scale, self.objective).loss(model)
        if not np.isfinite(validation):
            # Worse than any other, but finite: the start counts as done.
            validation = np.finfo(float).max
        return _StartEnd(model, validation, loss)

    def _iterate(self, model: Any, problem: marquardt.Problem, most: int) -> "_Candidate":
        """Run Levenberg–Marquardt while it is worthwhile."""
        descent = marquardt.Descent.of(model, problem, self.settings)
        losses: list[float] = []
        for _ in range(most):
            losses.append(descent.advance())
            if self._over or _is_done(losses):
                break
        loss = losses[-1]
        return _Candidate(descent.model, loss if np.isfinite(loss) else np.inf)


class _Candidate(NamedTuple):
    """An arm in a search, and its loss in training."""

    model: Any
    loss: float


def _models(candidates: Sequence[_Candidate]) -> list[Any]:
    return [candidate.model for candidate in candidates]


def _movable(model: Model) -> range:
    """Return the joints whose place is learned: all but the first, which is the origin."""
    chain = model.chain
    assert chain is not None  # only chains are searched for
    return range(len(chain.turn))


def _replaced(model: Model, joint: int, rng: np.random.Generator) -> Model:
    """Return the arm with one joint turned by a right angle, or placed at random.

    Axes of most arms are parallel or at right angles to each other.
    """
    chain = model.chain
    assert chain is not None
    turn = np.array(chain.turn)
    shift = np.array(chain.shift)
    if rng.random() < 0.5:
        quarter = rng.choice([-1, 1]) * np.pi / 2 * np.eye(3)[rng.integers(3)]
        turn[joint] = turn[joint] @ Rotation.from_rotvec(quarter).as_matrix()
    else:
        turn[joint] = Rotation.random(rng=rng).as_matrix()
        shift[joint] = np.abs(shift).mean() * rng.standard_normal(3)
    moved = eqx.tree_at(
        lambda chain: (chain.turn, chain.shift), chain, (jnp.asarray(turn), jnp.asarray(shift))
    )
    return model.with_mechanics(moved)


def _is_done(losses: Sequence[float]) -> bool:
    """Return whether a start has solved its task, hardly improves or gave a non-finite loss."""
    # Well below `SOLVED`, since this is the loss in training.
    if not losses[-1] > SOLVED / 10:
        return True
    return len(losses) > GAIN_ITERATIONS and losses[-1] > GAIN * losses[-1 - GAIN_ITERATIONS]


def agreed(losses: Float[np.ndarray, " starts"], trained: Float[np.ndarray, " starts"]) -> bool:
    """Return whether the two best starts ended in the same valley.

    Args:
        losses, trained: their losses on validation and in training.
    """
    best = np.argsort(losses)[:2]
    low, second = losses[best]
    holds = (losses[best] < HOLDS * trained[best]).all()
    alike = trained[best].max() < AGREED_IN_TRAINING * trained[best].min()
    # Starts in wrong valleys fail on validation alike, though not in training.
    return bool(alike and (holds or second < AGREED * low))


def _settled(model: Model) -> Model:
    """Return the model with the frames of its chain settled, if that leaves finite numbers."""
    chain = model.chain
    assert chain is not None  # only chains are started many times
    try:
        with np.errstate(all="ignore"):  # a start that diverged is judged by its loss
            after = settled(chain)
    except np.linalg.LinAlgError:
        return model
    leaves = jax.tree.leaves(eqx.filter(after, eqx.is_array))
    if not all(np.isfinite(leaf).all() for leaf in leaves):
        return model
    return model.with_mechanics(after)


def _part(data: Data, key: PRNGKeyArray) -> Data:
    """Return a random part of the samples, or of the windows with half of their points."""
    order = generator(key).permutation(len(data))
    if isinstance(data, Windows):
        return data.rows(np.sort(order[:WINDOWS])).coarser()
    return data.rows(np.sort(order[:SAMPLES]))
