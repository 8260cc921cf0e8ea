"""Which learned models may drive the robot: those that can be trusted and are better than the one in use."""

from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float

from ..errors import SettingsError
from ..joints import JointLimits, JointState
from ..models.actuator import Actuator
from ..models.dynamics import DynamicsModel
from .feed_forward import Compiled, StopMemory, on_device

Vector = Float[np.ndarray, " dof"]
Rows = Float[np.ndarray, "rows columns"]

CAUSES = ("not finite", "too early", "inertia", "torque", "no better")
"""Why a model is refused: numbers that are none, too few samples to judge it, an inertia that is not positive definite,
a torque beyond the limits on wanted motions, an error on the newest samples that is not below that of the model in use
(or of no torque at all)."""
PIECE = 50
"""Samples that are judged in one period: few enough that τ_ff, which is computed beside them, is not late."""
INERTIA_SHARE = 8
"""The inertia is looked at in every so many samples of the window."""
QUIET = 1e-3
"""Torques below this share of the limit count as noise: a joint that needs none cannot decide on a model."""


@dataclass(frozen=True)
class GateSettings:
    """How models are judged.

    Attributes:
        window: how far back samples are compared [s]; least: how much of that must be there to judge at all [s].
        span: control periods that make one sample.
        wanted: how many of the wanted motions of that time are asked for their torque.
        torque: the most that a model may ask for there, in torque limits.
    """

    window: float = 1.5
    least: float = 0.3
    span: int = 3
    wanted: int = 64
    torque: float = 1.0

    def __post_init__(self) -> None:
        if not (0 < self.least <= self.window < float("inf") and self.span >= 1 and self.wanted >= 1):
            raise SettingsError(
                "need 0 < least ≤ window, span ≥ 1 and wanted ≥ 1, "
                f"got {self.least}, {self.window}, {self.span} and {self.wanted}"
            )
        if not self.torque > 0:
            raise SettingsError(f"the most torque must be positive, got {self.torque}")


class Samples(NamedTuple):
    """Rows (q, q̇, q̈, τ), what stop operators remembered at each, and whether each is there yet."""

    rows: Rows
    stops: Float[np.ndarray, "rows stops motors"]
    there: Bool[np.ndarray, " rows"]


class Window:
    """The newest samples (q, q̇, q̈, τ) as means over `span` periods, q̈ = Δq̇ / (span dt): a ring.

    Over one period, with a torque that is constant in it, this is the midpoint rule, exact to dt².
    """

    def __init__(self, dof: int, dt: float, settings: GateSettings, actuator: Actuator | None = None):
        self._dof, self._dt, self._span = dof, dt, settings.span
        size = max(1, round(settings.window / dt / settings.span))
        self._rows = np.zeros((size, 4 * dof))
        self._actuator = actuator if actuator is not None and actuator.settings.stops else None
        stops = (0, 0) if self._actuator is None else (len(self._actuator.settings.stops), len(self._actuator.motors))
        self._stops = np.zeros((size, *stops))
        self._memory: StopMemory | None = None
        self._sum = np.zeros((3, dof))
        self._periods = 0
        self._begin: Vector | None = None
        self.seen = 0

    @property
    def size(self) -> int:
        return len(self._rows)

    def add(self, before: JointState, tau: Vector, after: JointState) -> None:
        """One period: the states at its ends, and the torque in it."""
        if self._begin is None:
            self._begin = before.qd
        self._sum[0] += before.q + after.q
        self._sum[1] += before.qd + after.qd
        self._sum[2] += tau
        self._periods += 1
        if self._periods == self._span:
            self._finish(after.qd)

    def cut(self) -> None:
        """Begin a new sample: what comes next does not follow on what was last added."""
        self._begin, self._periods = None, 0
        self._sum[:] = 0

    def _finish(self, end: Vector) -> None:
        assert self._begin is not None
        at, n, count = self.seen % self.size, self._dof, self._span
        row = self._rows[at]
        row[:n], row[n : 2 * n] = self._sum[0] / (2 * count), self._sum[1] / (2 * count)
        row[2 * n : 3 * n], row[3 * n :] = (end - self._begin) / (count * self._dt), self._sum[2] / count
        if self._actuator is not None:
            if self._memory is None:
                self._memory = StopMemory(self._actuator, row[:n].copy())
            self._stops[at] = self._memory.move(row[:n].copy())
        self.seen += 1
        self.cut()

    def copy(self) -> "Samples":
        """The samples as they are now."""
        return Samples(self._rows.copy(), self._stops.copy(), np.arange(self.size) < self.seen)


class Verdict(NamedTuple):
    """What became of a model.

    Attributes:
        cause: why it was refused, one of `CAUSES`; None if it was taken.
        error: on the window, Σ (τ − τ_pred)² / Σ τ² in the mean over joints; before: that of the model in use.
    """

    cause: str | None
    error: float = float("nan")
    before: float = float("nan")


class Gate:
    """Judges one model at a time, piece by piece, in JAX's own threads; the loop looks in once a period.

    Attributes:
        window: the samples it judges by; the loop adds to it.
        refused: how many models were refused, by cause.
    """

    def __init__(self, feed_forward: Compiled, limits: JointLimits, dt: float, settings: GateSettings | None = None):
        settings = settings or GateSettings()
        self._feed_forward, self._limits, self._most = feed_forward, limits.torque, settings.torque * limits.torque
        blueprint = feed_forward.blueprint
        actuator = None if blueprint.actuator is None else Actuator(blueprint.joints, blueprint.actuator)
        self.window = Window(blueprint.joints.dof, dt, settings, actuator)
        self._least = min(self.window.size, max(1, round(settings.least / dt / settings.span)))
        self._pieces = -(-self.window.size // PIECE)
        self.wanted = (self.window.size * settings.span, self._pieces * -(-settings.wanted // self._pieces))
        """How many periods of wanted motions an offer looks back on, and how many rows it takes of them."""
        self.refused: dict[str, int] = dict.fromkeys(CAUSES, 0)
        self._examine: Any = None
        self._candidate: Array | None = None
        self._refusal: str | None = None
        self._waiting: list[tuple[np.ndarray, ...]] = []
        self._running: Any = None
        self._found: list[np.ndarray] = []

    def prepare(self) -> None:
        """Compile, and make a first call; what was compiled before for such models is used again."""
        key = (self._pieces, self.wanted, tuple(self._most.tolist()), self._limits.tobytes())
        self._examine = self._feed_forward.judges.get(key)
        if self._examine is not None:
            return
        numbers = np.zeros(self._feed_forward.blueprint.size)
        wanted = np.zeros((self.wanted[1], 3 * self._feed_forward.joints.dof))
        with jax.enable_x64(True):
            example = (numbers, numbers, *self._cut(self.window.copy(), wanted)[0])
            self._examine = jax.jit(self._piece).lower(*example).compile()
            jax.block_until_ready(self._examine(*example))
        self._feed_forward.judges[key] = self._examine

    @property
    def busy(self) -> bool:
        """Whether a model is being judged."""
        return self._candidate is not None or self._refusal is not None

    def offer(self, weights: Float[np.ndarray, " numbers"], wanted: Rows) -> None:
        """Begin to judge a model, by the window and by rows (q, q̇, q̈) of wanted motions, as many as `wanted` says."""
        if weights.shape != (self._feed_forward.blueprint.size,) or not np.isfinite(weights).all():
            self._refusal = "not finite"
        elif self.window.seen < self._least:
            self._refusal = "too early"
        else:
            self._candidate, self._found = on_device(weights), []
            self._waiting = self._cut(self.window.copy(), wanted)

    def verdict(self, *, wait: bool = False) -> Verdict | None:
        """What became of the model that was offered, once; None while it is judged. A model taken is in use.

        Without `wait` no more is done than to look at one piece and to begin the next.
        """
        while self._candidate is not None:
            if self._running is not None:
                if not (wait or self._running.is_ready()):
                    return None
                self._found.append(np.asarray(self._running))
                self._running = None
            if not self._waiting:
                return self._close(self._judged(), self._candidate)
            in_use = self._candidate if self._feed_forward.weights is None else self._feed_forward.weights
            with jax.enable_x64(True):
                self._running = self._examine(self._candidate, in_use, *self._waiting.pop(0))
            if not wait:
                return None
        return None if self._refusal is None else self._close(Verdict(self._refusal), None)

    def _close(self, verdict: Verdict, candidate: Array | None) -> Verdict:
        if verdict.cause is not None:
            self.refused[verdict.cause] += 1
        elif candidate is not None:
            self._feed_forward.take(candidate)
        self._candidate = self._refusal = None
        return verdict

    def _cut(self, samples: Samples, wanted: Rows) -> list[tuple[np.ndarray, ...]]:
        """Pieces of equal size, the last one filled up with samples that are not there."""
        places = np.arange(self._pieces * PIECE).reshape(self._pieces, PIECE)
        there = samples.there.take(places, mode="clip") & (places < self.window.size)
        places = np.minimum(places, self.window.size - 1)
        columns = (samples.rows[places], samples.stops[places], there, np.split(wanted, self._pieces))
        return list(zip(*columns, strict=True))

    def _judged(self) -> Verdict:
        found, n = np.array(self._found), self._feed_forward.joints.dof
        sound, torque = found[:, 0].min(), found[:, 1].max()
        new, old, zero = found[:, 2:].sum(axis=0).reshape(3, n)
        floor = (
            min(self.window.seen, self.window.size)
            * (QUIET * np.where(np.isfinite(self._limits), self._limits, 1)) ** 2
        )
        scale = np.maximum(zero, floor)
        error, before = float(np.mean(new / scale)), float(np.mean(old / scale))
        if self._feed_forward.weights is None:
            before = 1.0  # no torque at all
        better = error < (before if np.isfinite(before) else np.inf)
        for cause, good in (("inertia", sound > 0), ("torque", torque <= 1), ("no better", better)):
            if not good:
                return Verdict(cause, error, before)
        return Verdict(None, error, before)

    def _piece(
        self, weights: Array, in_use: Array, rows: Array, stops: Array, there: Array, wanted: Array
    ) -> Float[Array, " found"]:
        """Whether the inertia is sound, the largest torque by its bound, Σ (τ − τ_pred)² of both models, and Σ τ²."""
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
        if isinstance(model, DynamicsModel):
            factors = jnp.linalg.cholesky(jax.vmap(model.mass_matrix)(columns[0][::INERTIA_SHARE]))
            good = jnp.isfinite(factors).all(axis=(1, 2)) | ~there[::INERTIA_SHARE]
            sound = good.all().astype(rows.dtype)
        squares = [jnp.where(there[:, None], values**2, 0).sum(0) for values in (error(weights), error(in_use), tau)]
        return jnp.concatenate([jnp.stack([sound, torque]), *squares])
