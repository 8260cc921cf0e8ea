"""The stages that train a model: Adam, Levenberg–Marquardt, and many starts of the latter."""

import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from dataclasses import dataclass, field
from typing import Any, Protocol, runtime_checkable

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray

from ..models.chain import settled
from ..models.model import Model
from . import adam, marquardt
from .loss import Data, Objective, Scale, data_loss
from .windows import Windows

EXACT = 1e-13
"""A loss, as share of the torque's variance, at which nothing is left to learn."""


@dataclass(frozen=True)
class Advance:
    """What one step of a stage came to."""

    training: float
    validation: float
    finished: bool = False


class DescentState(eqx.Module):
    learner: adam.LearnerState
    shrink: Float[Array, ""]


@dataclass(frozen=True)
class DescentStage:
    """Adam over minibatches; `patience` is a number of epochs without progress, inf for none."""

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
        return DescentState(learner, state.shrink), Advance(
            float(report.training), float(report.validation)
        )

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

    def start(self, model: Any) -> marquardt.MarquardtState:
        return marquardt.init(model, self.settings)

    def advance(
        self, state: marquardt.MarquardtState, shares: Sequence[float], key: PRNGKeyArray
    ) -> tuple[marquardt.MarquardtState, Advance]:
        state, loss = marquardt.update(
            state, self.training, self.scale, self.objective, self.settings
        )
        validation = _validate(state.model, self.validation, self.scale, self.objective)
        return state, Advance(
            float(loss), float(validation), finished=bool(state.stalled) or float(loss) < EXACT
        )

    def retreat(self, state: marquardt.MarquardtState, model: Any) -> marquardt.MarquardtState:
        return eqx.tree_at(lambda s: s.damping, self.start(model), state.damping * 100)

    def model(self, state: marquardt.MarquardtState) -> Any:
        return state.model


@runtime_checkable
class Stage(Protocol):
    """A method that improves a model in steps of `chunk` epochs, `epochs` in all (None: until time
    runs out).
    """

    @property
    def name(self) -> str: ...
    @property
    def training(self) -> Data: ...
    @property
    def chunk(self) -> int: ...
    @property
    def epochs(self) -> int | None: ...
    @property
    def patience(self) -> float: ...
    def start(self, model: Any) -> Any: ...
    def advance(
        self, state: Any, shares: Sequence[float], key: PRNGKeyArray
    ) -> tuple[Any, Advance]: ...
    def retreat(self, state: Any, model: Any) -> Any: ...
    def model(self, state: Any) -> Any: ...


TOGETHER = 2
"""Starts in a round, at once where there are cores; a fixed number, so that a seed means the same
on every machine.
"""
SAMPLES, WINDOWS = 500, 150
"""Samples, or windows, that a start sees at most: enough to tell valleys apart."""
ITERATIONS = 150
"""Iterations of a start at most."""
GAIN, GAIN_ITERATIONS = 0.95, 15
"""A start that does not bring its loss below this share in so many iterations is at its end."""
SOLVED = 1e-7
"""A loss, as share of the torque's variance, that no wrong valley reaches: no second start needs to
confirm it.
"""
AGREED = 1.05
"""Two starts whose losses on validation differ by less than this factor found the same valley,"""
AGREED_IN_TRAINING, HOLDS = 1.1, 3.0
"""and so did two whose training losses differ by less than the first factor, if what they learned
holds on validation: their loss there is below this many times that in training. Where valleys lead
nowhere it is more.
"""


_COMPILING = threading.Lock()
"""One thread compiles while the others wait; without it each would compile the same program."""


class StartsState(eqx.Module):
    """The best start so far, and the losses of all of them, on validation and on what they saw of
    the training data; infinite for those that are still to come.
    """

    model: Any
    losses: Float[Array, " starts"]
    trained: Float[Array, " starts"]


@dataclass(frozen=True)
class StartsStage:
    """Rounds of random starts until two agree; an epoch is a round. `until` bounds its time
    [perf_counter s].
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

    def start(self, model: Any) -> StartsState:
        unknown = jnp.full(self.epochs * TOGETHER, jnp.inf)
        return StartsState(model, unknown, unknown)

    def advance(
        self, state: StartsState, shares: Sequence[float], key: PRNGKeyArray
    ) -> tuple[StartsState, Advance]:
        rows_key, *keys = jax.random.split(key, TOGETHER + 1)
        part = _part(self.training, rows_key)
        # XLA lets go of the interpreter while it computes, so threads are enough.
        with jax.enable_x64(True):
            models = [self.build(one) for one in keys]
        race = _Race()
        with ThreadPoolExecutor(TOGETHER) as pool:
            found = list(
                pool.map(
                    lambda start: self._descend(start[0], start[1], part, race), enumerate(models)
                )
            )
        best = next(
            (one for one in found if one.validation < SOLVED),
            min(found, key=lambda one: one.validation),
        )
        done = int(np.isfinite(state.losses).sum())
        own = slice(done, done + TOGETHER)
        losses = state.losses.at[own].set(jnp.asarray([one.validation for one in found]))
        trained = state.trained.at[own].set(jnp.asarray([one.training for one in found]))
        model = best.model if best.validation <= float(jnp.min(state.losses)) else state.model
        late = time.perf_counter() > self.until
        finished = (
            best.validation < SOLVED or agreed(np.asarray(losses), np.asarray(trained)) or late
        )
        return StartsState(model, losses, trained), Advance(
            best.training, float(jnp.min(losses)), finished=finished
        )

    def _descend(self, index: int, model: Any, part: Data, race: "_Race") -> "_Found":
        with jax.enable_x64(True):
            # Free at first, for the ways around obstacles that a tied chain has not; then settled
            # and tied.
            model, _ = self._iterate(
                model, part, self.scale.untied(), lambda: race.is_over_for(index)
            )
            model, loss = self._iterate(
                _settled(model), part, self.scale, lambda: race.is_over_for(index)
            )
            validation = float(_validate(model, self.validation, self.scale, self.objective))
        if validation < SOLVED:
            race.solved.add(index)
        lost = race.is_over_for(index) or not np.isfinite(validation)
        return _Found(model, np.finfo(float).max if lost else validation, loss)

    def _iterate(
        self, model: Any, part: Data, scale: Scale, is_over: Callable[[], bool]
    ) -> tuple[Any, float]:
        """Levenberg–Marquardt until it is solved, no longer worthwhile or out of time; the model
        and its loss.
        """
        state, history = marquardt.init(model, self.settings), []
        for iteration in range(ITERATIONS):
            with _COMPILING if iteration == 0 else nullcontext():
                state, loss = marquardt.update(state, part, scale, self.objective, self.settings)
            history.append(float(loss))
            given_up = (
                len(history) > GAIN_ITERATIONS
                and history[-1] > GAIN * history[-1 - GAIN_ITERATIONS]
            )
            stopped = is_over() or (self.stop is not None and self.stop.is_set())
            if (
                not history[-1] > SOLVED / 10
                or given_up
                or stopped
                or time.perf_counter() > self.until
            ):
                break
        return state.model, history[-1]

    def retreat(self, state: StartsState, model: Any) -> StartsState:
        return state

    def model(self, state: StartsState) -> Any:
        return state.model


def agreed(losses: Float[np.ndarray, " starts"], trained: Float[np.ndarray, " starts"]) -> bool:
    """Whether the two best starts found the same valley, by their losses on validation and in
    training.
    """
    best = np.argsort(losses)[:2]
    (low, second), (one, other) = losses[best], trained[best]
    holds = bool((losses[best] < HOLDS * trained[best]).all())
    alike = max(one, other) < AGREED_IN_TRAINING * min(one, other)
    return bool(second < AGREED * low or (holds and alike))


@dataclass(frozen=True, eq=False)
class _Found:
    """Where a start ended, and its losses on validation and on the part of the data it saw."""

    model: Any
    validation: float
    training: float


@dataclass(frozen=True)
class _Race:
    """The starts of a round that have solved the task. Only an earlier one ends a later one,
    whichever was faster, so that the outcome does not depend on the machine's mood.
    """

    solved: set[int] = field(default_factory=set)

    def is_over_for(self, index: int) -> bool:
        return any(winner < index for winner in self.solved)


def _settled(model: Model) -> Model:
    """The model with the frames of its chain settled, if that leaves finite numbers."""
    chain = model.chain
    assert chain is not None  # only chains are started many times
    try:
        with np.errstate(all="ignore"):  # a start that went astray is judged by its loss
            after = settled(chain)
    except np.linalg.LinAlgError:
        return model
    if not all(
        np.isfinite(leaf).all() for leaf in jax.tree.leaves(eqx.filter(after, eqx.is_array))
    ):
        return model
    return model.with_mechanics(after)


def _part(samples: Data, key: PRNGKeyArray) -> Data:
    """A random part of the samples, or of the windows, which tell valleys apart with fewer points
    as well.
    """
    most = WINDOWS if isinstance(samples, Windows) else SAMPLES
    part = samples.rows(np.sort(np.asarray(jax.random.permutation(key, len(samples)))[:most]))
    return part.coarser() if isinstance(part, Windows) else part


_validate = eqx.filter_jit(data_loss)
