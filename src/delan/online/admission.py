"""Admission of learned models: which of them may drive the robot.

A model is admitted if it is finite, its inertia is positive definite, its torques are inside the
limits and it is better on the newest samples than the model in use.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from ..errors import SettingsError
from ..joints import JointLimits, JointState
from ..models.friction import Friction
from .controller import Compiled, StopMemory, on_device
from .learner_process import Learner
from .schedule import Schedule
from .stats import Event

Vector = Float[np.ndarray, " dof"]
Rows = Float[np.ndarray, "rows columns"]

# Why a model is refused: non-finite weights; too few samples to judge by; an inertia that is not
# positive definite; a torque beyond the limits on reference motions; an error on the newest
# samples that is not below that of the model in use (or of no torque at all).
CAUSES = ("not finite", "too early", "inertia", "torque", "no better")
# Samples judged in one period: few enough that the τ_ff computed beside them is not late.
CHUNK = 50
INERTIA_STRIDE = 8  # the inertia is checked in every 8th sample
# Torques below this fraction of the limit count as noise: a joint that needs hardly any torque
# must not decide on a model.
QUIET = 1e-3
WATCH_SECONDS = 1.0  # how often the learner is checked [s]


@dataclass(frozen=True)
class AdmissionSettings:
    """How models are judged.

    Attributes:
        window: duration of the newest motion by which models are compared [s].
        least: shortest such motion by which a model can be judged [s].
        span: control periods that are averaged into one sample.
        wanted: number of reference targets at which the torque is checked.
        torque: largest torque that a model may ask for there, in torque limits.
    """

    window: float = 1.5
    least: float = 0.3
    span: int = 3
    wanted: int = 64
    torque: float = 1.0

    def __post_init__(self) -> None:
        seconds = 0 < self.least <= self.window < float("inf")
        if not (seconds and self.span >= 1 and self.wanted >= 1):
            raise SettingsError(
                "need 0 < least ≤ window, span ≥ 1 and wanted ≥ 1, "
                f"got {self.least}, {self.window}, {self.span} and {self.wanted}"
            )
        if not self.torque > 0:
            raise SettingsError(f"torque must be positive, got {self.torque}")


class Window:
    """A ring of the newest samples (q, q̇, q̈, τ), averaged over `span` periods.

    The acceleration is Δq̇ / (span dt). Over one period, in which the torque is constant, this is
    the midpoint rule, with an error of order dt².

    Attributes:
        rows: (q, q̇, q̈, τ) of each sample; the first `seen` are filled.
        stops: the state of the stop operators of friction in each sample, if it has any.
        seen: number of samples so far, also of those overwritten since.
    """

    def __init__(
        self, dof: int, dt: float, settings: AdmissionSettings, actuator: Friction | None = None
    ):
        self._dof = dof
        self._dt = dt
        self._span = settings.span
        size = max(1, round(settings.window / dt / settings.span))
        self.rows = np.zeros((size, 4 * dof))
        self.stops = np.zeros((size, 0, 0))
        self._actuator: Friction | None = None
        if actuator is not None and actuator.settings.stops:
            self._actuator = actuator
            shape = (size, len(actuator.settings.stops), len(actuator.motors))
            self.stops = np.zeros(shape)
        self._memory: StopMemory | None = None
        self._sum = np.zeros((3, dof))
        self._periods = 0
        self._begin: Vector | None = None
        self.seen = 0

    @property
    def size(self) -> int:
        return len(self.rows)

    def add(self, before: JointState, tau: Vector, after: JointState) -> None:
        """Add one period: the states at its ends and the torque in it."""
        if self._begin is None:
            self._begin = before.qd
        self._sum[0] += before.q + after.q
        self._sum[1] += before.qd + after.qd
        self._sum[2] += tau
        self._periods += 1
        if self._periods == self._span:
            self._finish(self._begin, after.qd)

    def cut(self) -> None:
        """Begin a new sample: the next period does not continue the last one."""
        self._begin = None
        self._periods = 0
        self._sum[:] = 0

    def _finish(self, begin: Vector, end: Vector) -> None:
        n = self._dof
        at = self.seen % self.size
        row = self.rows[at]
        row[:n] = self._sum[0] / (2 * self._span)
        row[n : 2 * n] = self._sum[1] / (2 * self._span)
        row[2 * n : 3 * n] = (end - begin) / (self._span * self._dt)
        row[3 * n :] = self._sum[2] / self._span
        if self._actuator is not None:
            if self._memory is None:
                self._memory = StopMemory(self._actuator, row[:n].copy())
            self.stops[at] = self._memory.move(row[:n].copy())
        self.seen += 1
        self.cut()


class Judgement(NamedTuple):
    """The outcome for one model.

    Attributes:
        cause: why it was refused, one of `CAUSES`; None if it was admitted.
        error: mean over joints of Σ (τ − τ_pred)² / Σ τ² on the window.
        before: the same for the model in use.
    """

    cause: str | None
    error: float = float("nan")
    before: float = float("nan")


class Admission:
    """Judges one model at a time, chunk by chunk in JAX's threads; polled once per period.

    Attributes:
        window: the samples to judge by; filled by the loop.
        wanted: over how many periods the reference targets of an offer are spread, and how many
            there are.
        refused: number of refused models by cause.
    """

    def __init__(
        self,
        feed_forward: Compiled,
        limits: JointLimits,
        dt: float,
        settings: AdmissionSettings | None = None,
    ):
        settings = settings or AdmissionSettings()
        self._feed_forward = feed_forward
        self._limits = limits.torque
        self._most = settings.torque * limits.torque
        blueprint = feed_forward.blueprint
        actuator = None
        if blueprint.friction is not None:
            actuator = Friction(blueprint.joints, blueprint.friction)
        self.window = Window(blueprint.joints.dof, dt, settings, actuator)
        self._least = min(self.window.size, max(1, round(settings.least / dt / settings.span)))
        self._chunks = -(-self.window.size // CHUNK)
        per_chunk = -(-settings.wanted // self._chunks)
        self.wanted = (self.window.size * settings.span, self._chunks * per_chunk)
        self.refused: dict[str, int] = dict.fromkeys(CAUSES, 0)
        self._examine: Any = None
        self._candidate: Array | None = None
        self._refusal: str | None = None
        self._waiting: list[tuple[np.ndarray, ...]] = []
        self._running: Any = None
        self._results: list[np.ndarray] = []

    def prepare(self) -> None:
        """Compile, or reuse what was compiled for the same models, and make a first call."""
        key = (self._chunks, self.wanted, tuple(self._most.tolist()), self._limits.tobytes())
        self._examine = self._feed_forward.judges.get(key)
        if self._examine is not None:
            return
        numbers = np.zeros(self._feed_forward.blueprint.size)
        wanted = np.zeros((self.wanted[1], 3 * self._feed_forward.joints.dof))
        with jax.enable_x64(True):
            example = (numbers, numbers, *self._cut(wanted)[0])
            self._examine = jax.jit(self._chunk).lower(*example).compile()
            jax.block_until_ready(self._examine(*example))
        self._feed_forward.judges[key] = self._examine

    @property
    def busy(self) -> bool:
        """Whether a model is being judged."""
        return self._candidate is not None or self._refusal is not None

    def offer(self, weights: Float[np.ndarray, " numbers"], wanted: Rows) -> None:
        """Begin to judge a model by the window and by reference targets (q, q̇, q̈)."""
        if weights.shape != (self._feed_forward.blueprint.size,) or not np.isfinite(weights).all():
            self._refusal = "not finite"
        elif self.window.seen < self._least:
            self._refusal = "too early"
        else:
            self._candidate = on_device(weights)
            self._results = []
            self._waiting = self._cut(wanted)

    def verdict(self, *, wait: bool = False) -> Judgement | None:
        """Return the outcome for the offered model, once; None while it is being judged.

        An admitted model is in use on return. Without `wait`, a call only collects one chunk and
        begins the next.
        """
        while self._candidate is not None:
            if self._running is not None:
                if not (wait or self._running.is_ready()):
                    return None
                self._results.append(np.asarray(self._running))
                self._running = None
            if not self._waiting:
                return self._close(self._judged(), self._candidate)
            in_use = self._feed_forward.weights
            if in_use is None:
                in_use = self._candidate
            with jax.enable_x64(True):
                self._running = self._examine(self._candidate, in_use, *self._waiting.pop(0))
            if not wait:
                return None
        if self._refusal is not None:
            return self._close(Judgement(self._refusal), None)
        return None

    def _close(self, judgement: Judgement, candidate: Array | None) -> Judgement:
        if judgement.cause is not None:
            self.refused[judgement.cause] += 1
        elif candidate is not None:
            self._feed_forward.take(candidate)
        self._candidate = None
        self._refusal = None
        return judgement

    def _cut(self, wanted: Rows) -> list[tuple[np.ndarray, ...]]:
        """Return copies of the samples in chunks of equal size, and which of them are filled."""
        window = self.window
        places = np.arange(self._chunks * CHUNK).reshape(self._chunks, CHUNK)
        filled = places < min(window.seen, window.size)
        places = np.minimum(places, window.size - 1)
        targets = np.split(wanted, self._chunks)
        columns = (window.rows[places], window.stops[places], filled, targets)
        return list(zip(*columns, strict=True))

    def _judged(self) -> Judgement:
        results = np.array(self._results)
        sound = results[:, 0].min()
        torque = results[:, 1].max()
        new, old, zero = results[:, 2:].sum(axis=0).reshape(3, self._feed_forward.joints.dof)
        filled = min(self.window.seen, self.window.size)
        quiet = QUIET * np.where(np.isfinite(self._limits), self._limits, 1)
        scale = np.maximum(zero, filled * quiet**2)
        error = float(np.mean(new / scale))
        before = float(np.mean(old / scale))
        if self._feed_forward.weights is None:
            before = 1.0  # the error of no torque at all
        # Comparisons with NaN are False, so a torque or an error that is NaN is refused.
        cause = None
        if not sound > 0:
            cause = "inertia"
        elif not torque <= 1:
            cause = "torque"
        elif not error < np.nan_to_num(before, nan=np.inf, posinf=np.inf):
            cause = "no better"
        return Judgement(cause, error, before)

    def _chunk(
        self, weights: Array, in_use: Array, rows: Array, stops: Array, filled: Array, wanted: Array
    ) -> Float[Array, " results"]:
        """Return whether the inertia is positive definite, the largest torque over its bound,
        Σ (τ − τ_pred)² of the candidate and of the model in use, and Σ τ².
        """
        *columns, tau = jnp.split(rows, 4, axis=1)

        def error(numbers: Array) -> Array:
            model = self._feed_forward.blueprint.unpack(numbers)
            if stops.size == 0:
                return tau - jax.vmap(model.inverse_dynamics)(*columns)
            torque = jax.vmap(lambda row, memory: model.inverse_dynamics(*row, memory=memory))
            return tau - torque(tuple(columns), stops)

        model = self._feed_forward.blueprint.unpack(weights)
        asked = jax.vmap(model.inverse_dynamics)(*jnp.split(wanted, 3, axis=1))
        torque = (jnp.abs(asked) / self._most[None]).max()
        sound = jnp.ones((), rows.dtype)
        if model.promises.mechanics:
            q = columns[0][::INERTIA_STRIDE]
            factors = jnp.linalg.cholesky(jax.vmap(model.mass_matrix)(q))
            good = jnp.isfinite(factors).all(axis=(1, 2)) | ~filled[::INERTIA_STRIDE]
            sound = good.all().astype(rows.dtype)
        squares = [
            jnp.where(filled[:, None], values**2, 0).sum(0)
            for values in (error(weights), error(in_use), tau)
        ]
        return jnp.concatenate([jnp.stack([sound, torque]), *squares])


class Intake:
    """Takes models from a learner through admission into use, and watches over the learner.

    Attributes:
        swaps: number of models taken into use.
        swapped: time of the last swap [s]; None before the first.
        events: what happened, in order.
    """

    def __init__(self, learner: Learner, admission: Admission, dt: float):
        self.learner = learner
        self.admission = admission
        self._dt = dt
        self.swaps = 0
        self.swapped: float | None = None
        self.events: list[Event] = []
        self._lost_before = learner.lost
        self._restarts_before = learner.restarts
        self._next_watch = 0

    def start(self, t: float, warn: Callable[[str], None] | None = None) -> None:
        """Start the learner, at the time t [s] of the loop; `warn` gets what went wrong."""
        restarts = self.learner.restarts
        self.learner.start()
        killed = self.learner.restarts - restarts
        if killed:
            text = f"the learner was killed {killed} × before it was ready, and was started again"
            self.events.append(Event(t, "restart", text))
            if warn is not None:
                warn(text)

    def take(self, k: int, t: float, schedule: Schedule, *, wait: bool = False) -> None:
        """Collect the verdict on the offered weights in period k, or ask for new ones.

        About once a second, also check that the learner is alive.
        """
        verdict = self.admission.verdict(wait=wait)
        if verdict is not None and verdict.cause is None:
            self.swaps += 1
            self.swapped = t
            text = f"error {verdict.error:.3g}, before {verdict.before:.3g}"
            self.events.append(Event(t, "swap", text))
        elif verdict is not None:
            self.events.append(Event(t, "refusal", str(verdict.cause)))
        if not self.admission.busy:
            weights = self.learner.poll(t)
            if weights is not None:
                self.admission.offer(weights, schedule.recent(k, *self.admission.wanted))
        if k >= self._next_watch:
            self._next_watch = k + round(WATCH_SECONDS / self._dt)
            self._watch(t)

    def _watch(self, t: float) -> None:
        """Restart the learner if it has died."""
        restarts = self.learner.restarts
        self.learner.watch()
        if self.learner.restarts > restarts:
            self.events.append(Event(t, "restart", "the learner had ended and was started again"))

    def all_events(self) -> tuple[Event, ...]:
        """Return the events of the intake and of the learner in order of time."""
        noticed = (Event(t, "learner", text) for t, text in self.learner.events)
        return tuple(sorted((*self.events, *noticed), key=lambda event: event.t))

    @property
    def lost(self) -> int:
        """Number of samples that the learner never read in this run."""
        return self.learner.lost - self._lost_before

    @property
    def restarts(self) -> int:
        """Number of restarts of the learner in this run."""
        return self.learner.restarts - self._restarts_before
