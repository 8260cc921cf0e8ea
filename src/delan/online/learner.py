"""Learning while the robot moves: a memory of samples, and the training steps used offline."""

from collections import deque
from contextlib import nullcontext
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from ..errors import SettingsError
from ..joints import Dataset
from ..logs.filters import CausalSampler
from ..models.dynamics import Normalisation, trainable
from ..models.model import Blueprint
from ..solvers import adam, marquardt
from ..solvers.adam import DescentSettings
from ..solvers.loss import Objective, Samples, Scale, data_loss, torque
from ..solvers.marquardt import MarquardtSettings
from ..solvers.plan import SMALL_WEIGHTS, head
from .memory import DriftWatch, Memory, Rows

HELD_OUT = 10  # every 10th sample is held out and judges the models
WARM_UP_EPOCHS = 5  # passes of Adam in one step
WARM_UP_STEPS = 8  # such steps before the second-order method takes over a small network
BETTER = 0.98  # a model replaces the best one if its error is below this fraction of it
# A start whose loss does not fall below STALLED of its value within STALLED_STEPS has stalled. It
# is given up if another start has less than FAR_BETTER of its error.
STALLED = 0.97
STALLED_STEPS = 40
FAR_BETTER = 0.3
# For this time after an alarm the earlier samples are set aside, to be used again if they turn out
# to be valid [s].
TRIAL_SECONDS = 20.0
# What a learner reports.
CHANGED = "the robot has changed; the learner set the earlier samples aside"
RETURNED = "the robot is as it was before; the learner uses the earlier samples again"


@dataclass(frozen=True)
class LearnerSettings:
    """How to learn beside a running robot.

    Attributes:
        rate: samples per second.
        cutoff: cutoff of the causal low-pass on all signals [Hz]; None for none.
        recent, reservoir: size of the memory of the newest samples, and of the whole run.
        rows: samples of one step of the second-order method, half of them from the newest.
        starts: models of a chain that are trained in turn, in case one is in a local minimum.
        first: samples before the first step.
        window: samples of one block of the test for a change of the robot; see `DriftWatch`.
        alarm_hours: least mean time between false alarms of that test [h]; None for no test.
    """

    rate: float = 100.0
    cutoff: float | None = 30.0
    recent: int = 500
    reservoir: int = 4000
    rows: int = 512
    starts: int = 2
    first: int = 60
    window: int = 25
    alarm_hours: float | None = 10.0
    objective: Objective = field(default_factory=Objective)
    adam: DescentSettings = field(default_factory=DescentSettings)
    marquardt: MarquardtSettings = field(default_factory=MarquardtSettings)

    def __post_init__(self) -> None:
        for name in ("recent", "reservoir", "rows", "starts", "first", "window"):
            if getattr(self, name) < 1:
                raise SettingsError(f"{name} must be at least 1, got {getattr(self, name)}")
        if self.alarm_hours is not None and not 0 < self.alarm_hours < float("inf"):
            raise SettingsError(
                f"alarm_hours must be positive and finite, or None, got {self.alarm_hours}"
            )


@dataclass
class _Start:
    """A model in training: the state of its method, recent losses, and its held-out error."""

    state: Any
    losses: deque[float] = field(default_factory=lambda: deque(maxlen=STALLED_STEPS))
    error: float = float("inf")


class _SetAside(NamedTuple):
    """What was known before an alarm, in case that the alarm was false."""

    memory: Memory
    judge: Memory
    watch: DriftWatch
    until: float


def sampler_for(blueprint: Blueprint, dt: float, settings: LearnerSettings) -> CausalSampler:
    """Return the sampler for periods of dt [s]; raise if the model cannot be learned online."""
    if blueprint.friction is not None and blueprint.friction.stops:
        raise SettingsError(
            "friction with memory (stops) cannot be learned online; leave that term out"
        )
    return CausalSampler(
        blueprint.joints.dof, dt, rate=min(settings.rate, 1 / dt), cutoff=settings.cutoff
    )


class OnlineLearner:
    """Takes samples and improves its models step by step.

    Attributes:
        best: the model with the lowest error on held-out samples; None before the first.
        error: that error, as nMSE.
        changes: when the robot changed, as the time of the newest sample then [s].
        returns: when such an alarm turned out to be false, or the change was undone [s].
        loss: of the last step; NaN before the first.
        steps, trained: steps made, and samples that went through them.
    """

    def __init__(
        self,
        blueprint: Blueprint,
        dt: float,
        settings: LearnerSettings | None = None,
        *,
        seed: int = 0,
    ):
        settings = settings or LearnerSettings()
        self.blueprint = blueprint
        self.settings = settings
        self._dt = dt
        self._seed = seed
        self._sampler = sampler_for(blueprint, dt, settings)
        self._remember()
        self._aside: _SetAside | None = None
        self._key = jax.random.key(seed)
        # The scale of the samples in memory, until there are others.
        self._known_scale: Scale | None = None
        self._starts: list[_Start] = []
        self._chain = blueprint.shape.chain is not None
        self._second_order = _weight_count(blueprint) <= SMALL_WEIGHTS
        self._t = 0.0
        self.steps = 0
        self.trained = 0
        self.loss = float("nan")
        self.best: Any = None
        self.error = float("inf")
        self.changes: list[float] = []
        self.returns: list[float] = []

    @property
    def samples(self) -> int:
        """Number of samples since the beginning, or since the robot changed."""
        return self._memory.seen + self._judge.seen

    @property
    def events(self) -> tuple[tuple[float, str], ...]:
        """What the learner reports, in order of time [s]."""
        changes = [(t, CHANGED) for t in self.changes]
        returns = [(t, RETURNED) for t in self.returns]
        return tuple(sorted(changes + returns))

    def prepare(self) -> None:
        """Compile all steps on random numbers, so that the first real step is not slower."""
        shape = (2 * self.settings.first, 4 * self.blueprint.joints.dof)
        rows = np.random.default_rng(0).standard_normal(shape)
        other = OnlineLearner(self.blueprint, 1e-2, self.settings)
        other._memory.add(rows)
        other._judge.add(rows)
        for _ in range(2):
            other.improve()
        if self.settings.alarm_hours is not None:
            self._predict(other.best, rows[: self.settings.window])

    def resume(self, model: Any) -> None:
        """Continue from a model instead of random weights."""
        self._continue_from(model)
        self.best = model

    def absorb(self, rows: Rows) -> None:
        """Add measured rows (t, q, q̇, τ) of consecutive control periods."""
        if len(rows) == 0:
            return
        self._t = float(rows[-1, 0])
        self._known_scale = None
        samples = self._sampler.push(rows)
        held_out = (np.arange(len(samples)) + self.samples) % HELD_OUT == 0
        self._memory.add(samples[~held_out])
        self._judge.add(samples[held_out])
        if self._watch is not None:
            self._watch.add(samples, self.best)
            self._forget_if_changed(self._watch)
            self._return_if_valid(samples)

    def improve(self) -> bool:
        """Make one step if there are enough samples; return whether `best` is a better model."""
        first = self.settings.first
        if self._memory.seen < first or self._judge.seen == 0:
            return False
        with self._precision():
            wanted = self.settings.starts if self._chain else 2
            count = len(self._starts)
            if count < wanted and self._memory.seen >= first * 4**count:
                self._starts.append(self._fresh())
            turn = self._starts[self.steps % len(self._starts)]
            self.steps += 1
            self._step(turn)
            better = self._judged(turn)
            self._replace_if_lost(turn)
            return better

    def _precision(self) -> Any:
        return jax.enable_x64(True) if self._second_order else nullcontext()

    def _fresh(self) -> _Start:
        """Return random weights, scaled to the samples so far."""
        self._key, key = jax.random.split(self._key)
        seen = self._dataset(self._memory.all())
        model = self.blueprint.build(Normalisation.of(seen), key=key)
        if self.blueprint.friction is not None:
            model = eqx.tree_at(
                lambda model: model.friction, model, head(self.blueprint.friction, seen)
            )
        return self._begin(model)

    def _begin(self, model: Any) -> _Start:
        model = jax.tree.map(
            lambda leaf: jnp.asarray(np.asarray(leaf)) if eqx.is_array(leaf) else leaf, model
        )
        settings = self.settings
        if self._second_order and self._chain:
            return _Start(marquardt.init(model, settings.marquardt))
        return _Start(adam.init(model, self._scale(), settings.objective, settings.adam))

    def _step(self, start: _Start) -> None:
        settings = self.settings
        samples = self._samples(self._memory.draw(settings.rows))
        scale = self._scale()
        if isinstance(start.state, adam.LearnerState):
            rates = jnp.full(WARM_UP_EPOCHS, start.state.learning_rate)
            state = eqx.tree_at(lambda state: state.scale, start.state, scale)
            self._key, key = jax.random.split(self._key)
            state, report = adam.run_epochs(state, samples, samples, rates, key)
            loss = float(report.training)
            self.trained += WARM_UP_EPOCHS * settings.rows
            if self._second_order and len(start.losses) >= WARM_UP_STEPS:
                state = marquardt.init(state.model, settings.marquardt)
        else:
            problem = marquardt.Problem(samples, scale, settings.objective)
            state, loss = marquardt.update(start.state, problem, settings.marquardt)
            self.trained += settings.rows
        if np.isfinite(loss):
            start.state = state
        start.losses.append(loss)
        self.loss = loss

    def _judged(self, start: _Start) -> bool:
        """Compare a model with the best one on the same held-out samples."""
        rows = self._judge.draw(self.settings.rows // 2)
        start.error = self._error(start.state.model, rows)
        self.error = float("inf") if self.best is None else self._error(self.best, rows)
        if not start.error < BETTER * self.error:
            return False
        self.best = start.state.model
        self.error = start.error
        return True

    def _replace_if_lost(self, start: _Start) -> None:
        """Give up a start that has stalled while another is far better."""
        losses = list(start.losses)
        stalled = len(losses) == STALLED_STEPS and min(losses[-5:]) > STALLED * min(losses[:5])
        if stalled and self.error < FAR_BETTER * start.error and len(self._starts) > 1:
            self._starts[self._starts.index(start)] = self._fresh()

    def _remember(self) -> None:
        """Begin with an empty memory and a new test."""
        settings = self.settings
        dof = self.blueprint.joints.dof
        held_out = settings.reservoir // HELD_OUT + 1
        self._memory = Memory(4 * dof, settings.recent, settings.reservoir, seed=self._seed)
        self._judge = Memory(4 * dof, settings.recent, held_out, seed=self._seed + 1)
        self._watch: DriftWatch | None = None
        if settings.alarm_hours is not None:
            self._watch = DriftWatch(
                dof,
                self._predict,
                window=settings.window,
                rate=min(settings.rate, 1 / self._dt),
                hours=settings.alarm_hours,
                seed=self._seed,
            )

    def _forget_if_changed(self, watch: DriftWatch) -> None:
        """Learn from the samples after a change only, and set aside those before."""
        if not watch.changed:
            return
        self.changes.append(self._t)
        held_out = watch.after_change // HELD_OUT
        memory = self._memory
        judge = self._judge
        watch.stop()
        self._remember()
        self._memory.add(memory.newest(watch.after_change - held_out))
        self._judge.add(judge.newest(max(1, held_out)))
        self._aside = _SetAside(memory, judge, watch, self._t + TRIAL_SECONDS)
        self._continue_from(self.best)

    def _return_if_valid(self, samples: Rows) -> None:
        """Use the samples that were set aside again if they explain the newest ones."""
        aside = self._aside
        if aside is None:
            return
        aside.watch.add(samples, None)
        if aside.watch.valid_again:
            self.returns.append(self._t)
            newest = aside.watch.quiet
            aside.memory.add(self._memory.newest(newest - newest // HELD_OUT))
            aside.judge.add(self._judge.newest(newest // HELD_OUT))
            aside.watch.resume()
            self._memory = aside.memory
            self._judge = aside.judge
            self._watch = aside.watch
            self.best = aside.watch.model
            self._continue_from(self.best)
            self._aside = None
        elif self._t > aside.until:
            self._aside = None

    def _continue_from(self, model: Any) -> None:
        with self._precision():
            self._starts = [self._begin(model)]

    def _predict(self, model: Any, rows: Rows) -> Float[np.ndarray, "rows dof"]:
        with self._precision():
            return np.asarray(_torques(model, self._samples(rows)))

    def _error(self, model: Any, rows: Rows) -> float:
        """Return the nMSE on rows, relative to the variance of all torques in memory."""
        value = float(_loss(model, self._samples(rows), self._scale(), self.settings.objective))
        return value if np.isfinite(value) else float("inf")

    def _samples(self, rows: Rows) -> Samples:
        return Samples(*(jnp.asarray(part) for part in np.split(rows, 4, axis=1)))

    def _scale(self) -> Scale:
        if self._known_scale is None:
            seen = self._dataset(self._memory.all())
            # Untied: a model that drives a robot does not need a geometry that can be read.
            self._known_scale = Scale.of(seen, self.settings.objective).untied()
        return self._known_scale

    def _dataset(self, rows: Rows) -> Dataset:
        q, qd, qdd, tau = np.split(rows, 4, axis=1)
        return Dataset(
            t=np.zeros(len(rows)),
            q=q,
            qd=qd,
            qdd=qdd,
            tau=tau,
            trajectory=np.zeros(len(rows), dtype=int),
            joints=self.blueprint.joints,
        )


_loss = eqx.filter_jit(data_loss)


@eqx.filter_jit
def _torques(model: Any, samples: Samples) -> Float[Array, "rows dof"]:
    return jax.vmap(lambda sample: torque(model, sample))(samples)


def _weight_count(blueprint: Blueprint) -> int:
    """Return the number of weights that training changes."""
    weights, _ = trainable(blueprint.build(key=jax.random.key(0)))
    return sum(leaf.size for leaf in jax.tree.leaves(weights))
