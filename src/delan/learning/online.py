"""Learn while the robot moves: a memory of what it did, and the same steps as offline on what the memory holds."""

from collections import deque
from contextlib import nullcontext
from dataclasses import dataclass, field
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float

from ..data.causal import CausalSampler
from ..errors import SettingsError
from ..joints import Dataset
from ..models.blueprint import Blueprint
from ..models.chain import LagrangianChainSettings
from ..models.dynamics import Normalisation, trainable
from . import descent, levenberg_marquardt
from .objective import Objective, Samples, Scale, data_loss
from .planning import SMALL_WEIGHTS, head

Rows = Float[np.ndarray, "rows columns"]

HELD_OUT = 10
"""Every so many samples one is never trained on and judges the models."""
WARM_UP_EPOCHS, WARM_UP_STEPS = 5, 8
"""Passes of Adam in a step, and steps of that kind before the second-order method takes over a small network."""
STALLED, STALLED_STEPS = 0.97, 40
"""A start whose loss does not fall below this share in so many steps is given up if another is far better."""
FAR_BETTER = 0.3
"""Of two starts, one with less than this share of the other's error is far better."""
USUAL = 200
"""Errors on the newest samples, the last so many, of which the median is the usual one."""
DRIFT = 8.0
"""The robot has changed when the error on the newest samples is so many times the usual one ..."""
DRIFT_FLOOR = 3e-3
"""... and above this share of the torque's variance."""


@dataclass(frozen=True)
class OnlineSettings:
    """How to learn beside a running robot.

    Attributes:
        rate: samples kept a second; cutoff: of the causal low-pass over all signals [Hz], None for none.
        recent, reservoir: how many of the newest samples, and of all the run, are remembered.
        rows: samples of one step of the second-order method; half of them from the newest.
        starts: models of a chain that are trained in turns, so that one in a wrong valley does no harm.
        first: samples before the first step.
        window: of the newest samples on which drift is watched.
    """

    rate: float = 100.0
    cutoff: float | None = 30.0
    recent: int = 500
    reservoir: int = 4000
    rows: int = 512
    starts: int = 2
    first: int = 60
    window: int = 50
    objective: Objective = field(default_factory=Objective)
    adam: descent.DescentSettings = field(default_factory=descent.DescentSettings)
    marquardt: levenberg_marquardt.MarquardtSettings = field(default_factory=levenberg_marquardt.MarquardtSettings)

    def __post_init__(self) -> None:
        for name in ("recent", "reservoir", "rows", "starts", "first", "window"):
            if getattr(self, name) < 1:
                raise SettingsError(f"{name} must be at least 1, got {getattr(self, name)}")


class Memory:
    """The newest samples, and a fair draw from all of the run: every sample has the same chance to be in it."""

    def __init__(self, columns: int, recent: int, reservoir: int, *, seed: int):
        self._recent, self._reservoir = np.zeros((recent, columns)), np.zeros((reservoir, columns))
        self._rng = np.random.default_rng(seed)
        self.seen = 0

    def add(self, rows: Rows) -> None:
        for row in rows:
            self._recent[self.seen % len(self._recent)] = row
            place = self.seen if self.seen < len(self._reservoir) else int(self._rng.integers(self.seen + 1))
            if place < len(self._reservoir):
                self._reservoir[place] = row
            self.seen += 1

    def newest(self, count: int) -> Rows:
        """The last samples, oldest first; fewer if there are not so many."""
        count = min(count, self.seen, len(self._recent))
        return self._recent[(self.seen - count + np.arange(count)) % len(self._recent)]

    def draw(self, count: int) -> Rows:
        """So many samples, half of them from the newest, with repetition."""
        half = count // 2
        newest = self._rng.integers(min(self.seen, len(self._recent)), size=half)
        whole = self._rng.integers(min(self.seen, len(self._reservoir)), size=count - half)
        return np.vstack([self._recent[newest], self._reservoir[whole]])

    def all(self) -> Rows:
        return self._reservoir[: min(self.seen, len(self._reservoir))]

    def forget(self, keep: int) -> None:
        """Remember the last `keep` samples alone."""
        kept = self.newest(keep).copy()
        self.seen = 0
        self.add(kept)


@dataclass
class _Start:
    """One model in training: its state in the method, its losses so far, and its error on samples never trained on."""

    state: Any
    losses: deque[float] = field(default_factory=lambda: deque(maxlen=STALLED_STEPS))
    error: float = float("inf")


def sampler_for(blueprint: Blueprint, dt: float, settings: OnlineSettings) -> CausalSampler:
    """What makes samples for a model from periods of dt [s]; a model that no samples can teach online is refused."""
    if blueprint.actuator is not None and blueprint.actuator.stops:
        raise SettingsError("friction with memory (stops) cannot be learned online; leave that term out")
    return CausalSampler(blueprint.joints.dof, dt, rate=min(settings.rate, 1 / dt), cutoff=settings.cutoff)


class OnlineLearner:
    """Takes what was measured, and improves its models step by step; `best` is the one to use.

    Attributes:
        best: the model with the least error on samples never trained on, None before the first; error: that, as nMSE.
        events: what happened, in sentences, each with the time of the newest sample [s].
        loss: of the last step, NaN before the first; steps: made; trained: samples that went through them.
    """

    def __init__(self, blueprint: Blueprint, dt: float, settings: OnlineSettings | None = None, *, seed: int = 0):
        self.blueprint, self.settings = blueprint, settings or OnlineSettings()
        n, keep = blueprint.joints.dof, self.settings
        self._sampler = sampler_for(blueprint, dt, keep)
        self._memory = Memory(4 * n, keep.recent, keep.reservoir, seed=seed)
        self._judge = Memory(4 * n, keep.recent, keep.reservoir // HELD_OUT + 1, seed=seed + 1)
        self._key = jax.random.key(seed)
        self._starts: list[_Start] = []
        self.steps = self.trained = 0
        self.loss = float("nan")
        self._usual: deque[float] = deque(maxlen=USUAL)
        self._second_order = _weights(blueprint) <= SMALL_WEIGHTS
        self.best: Any = None
        self.error = float("inf")
        self.events: list[tuple[float, str]] = []
        self._t = 0.0

    @property
    def samples(self) -> int:
        """Samples in memory and held out, since the beginning or since the robot changed."""
        return self._memory.seen + self._judge.seen

    def prepare(self) -> None:
        """Compile all steps on numbers that mean nothing, so that the first real one takes no longer than the next."""
        rows = np.random.default_rng(0).standard_normal((2 * self.settings.first, 4 * self.blueprint.joints.dof))
        other = OnlineLearner(self.blueprint, 1e-2, self.settings)
        other._memory.add(rows)
        other._judge.add(rows)
        for _ in range(2):
            other.improve()

    def resume(self, model: Any) -> None:
        """Go on from a model instead of from random weights."""
        with self._precision():
            self._starts, self.best = [self._begin(model)], model

    def absorb(self, rows: Rows) -> None:
        """Remember rows (t, q, q̇, τ) as they were measured, one control period after the other."""
        if len(rows) == 0:
            return
        self._t = float(rows[-1, 0])
        samples = self._sampler.push(rows)
        apart = (np.arange(len(samples)) + self.samples) % HELD_OUT == 0
        self._memory.add(samples[~apart])
        self._judge.add(samples[apart])

    def improve(self) -> bool:
        """One step; True if `best` is a better model than before. Without enough samples nothing happens."""
        if self._memory.seen < self.settings.first or self._judge.seen == 0:
            return False
        with self._precision():
            wanted = self.settings.starts if isinstance(self.blueprint.network, LagrangianChainSettings) else 2
            if len(self._starts) < wanted and self._memory.seen >= self.settings.first * 4 ** len(self._starts):
                self._starts.append(self._fresh())
            self._watch_for_change()
            turn = self._starts[self.steps % len(self._starts)]
            self.steps += 1
            self._step(turn)
            better = self._judged(turn)
            self._replace_if_lost(turn)
            return better

    def _precision(self) -> Any:
        return jax.enable_x64(True) if self._second_order else nullcontext()

    def _fresh(self) -> _Start:
        """Random weights in the units of what was seen so far."""
        self._key, key = jax.random.split(self._key)
        seen = self._dataset(self._memory.all())
        model = self.blueprint.build(Normalisation.of(seen), key=key)
        if self.blueprint.actuator is not None:
            model = eqx.tree_at(lambda one: one.actuator, model, head(self.blueprint.actuator, seen))
        return self._begin(model)

    def _begin(self, model: Any) -> _Start:
        model = jax.tree.map(lambda leaf: jnp.asarray(np.asarray(leaf)) if eqx.is_array(leaf) else leaf, model)
        if self._second_order and isinstance(self.blueprint.network, LagrangianChainSettings):
            return _Start(levenberg_marquardt.init(model, self.settings.marquardt))
        return _Start(descent.init(model, self._scale(), self.settings.objective, self.settings.adam))

    def _step(self, start: _Start) -> None:
        samples, scale = self._samples(self._memory.draw(self.settings.rows)), self._scale()
        if isinstance(start.state, descent.LearnerState):
            rates = jnp.full(WARM_UP_EPOCHS, start.state.learning_rate)
            state = eqx.tree_at(lambda one: one.scale, start.state, scale)
            self._key, key = jax.random.split(self._key)
            state, report = descent.run_epochs(state, samples, samples, rates, key)
            loss = float(report.training)
            self.trained += (WARM_UP_EPOCHS - 1) * self.settings.rows
            if self._second_order and len(start.losses) >= WARM_UP_STEPS:
                state = levenberg_marquardt.init(state.model, self.settings.marquardt)
        else:
            state, value = levenberg_marquardt.update(
                start.state, samples, scale, self.settings.objective, self.settings.marquardt
            )
            loss = float(value)
        if np.isfinite(loss):
            start.state = state
        start.losses.append(loss)
        self.loss, self.trained = loss, self.trained + self.settings.rows

    def _judged(self, start: _Start) -> bool:
        """Compare the stepped model with the best one on held-out samples, the same for both."""
        rows = self._judge.draw(self.settings.rows // 2)
        start.error = self._error(start.state.model, rows)
        self.error = float("inf") if self.best is None else self._error(self.best, rows)
        if not start.error < 0.98 * self.error:
            return False
        self.best, self.error = start.state.model, start.error
        return True

    def _replace_if_lost(self, start: _Start) -> None:
        """Give up a start that no longer gets better while another is far better."""
        recent = list(start.losses)
        stalled = len(recent) == STALLED_STEPS and min(recent[-5:]) > STALLED * min(recent[:5])
        if stalled and self.error < FAR_BETTER * start.error and len(self._starts) > 1:
            self._starts[self._starts.index(start)] = self._fresh()

    def _watch_for_change(self) -> None:
        """Forget the past when the newest samples no longer fit a model that used to fit."""
        newest = self._memory.newest(self.settings.window)
        if self.best is None or len(newest) < self.settings.window:
            return
        error = self._error(self.best, newest)
        usual = float(np.median(self._usual)) if len(self._usual) >= 20 else float("inf")
        if error < DRIFT * max(usual, DRIFT_FLOOR):
            self._usual.append(error)
            return
        if usual > DRIFT_FLOOR:
            return  # it does not fit yet: nothing can be said of the robot
        self.events.append(
            (self._t, f"the robot has changed: error {error:.2g} where {usual:.2g} was usual; forgetting")
        )
        self._memory.forget(self.settings.window // 4)
        self._judge.forget(2)
        self._usual.clear()
        self._starts = self._starts and [self._begin(self.best)]

    def _error(self, model: Any, rows: Rows) -> float:
        """nMSE on rows, in units of the variance of all torques in memory."""
        value = float(_loss(model, self._samples(rows), self._scale(), self.settings.objective))
        return value if np.isfinite(value) else float("inf")

    def _samples(self, rows: Rows) -> Samples:
        return Samples(*(jnp.asarray(part) for part in np.split(rows, 4, axis=1)))

    def _scale(self) -> Scale:
        """The chain stays untied: what is learned online drives a robot, nobody reads its geometry."""
        return Scale.of(self._dataset(self._memory.all()), self.settings.objective).untied()

    def _dataset(self, rows: Rows) -> Dataset:
        q, qd, qdd, tau = np.split(rows, 4, axis=1)
        none = np.zeros(len(rows))
        label = np.zeros(len(rows), dtype=int)
        return Dataset(t=none, q=q, qd=qd, qdd=qdd, tau=tau, trajectory=label, joints=self.blueprint.joints)


_loss = eqx.filter_jit(data_loss)


def _weights(blueprint: Blueprint) -> int:
    """Numbers that a fit changes."""
    weights, _ = trainable(blueprint.build(key=jax.random.key(0)))
    return sum(leaf.size for leaf in jax.tree.leaves(weights))
