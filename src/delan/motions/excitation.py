"""Motions for identification: finite Fourier series whose samples condition the regressor well."""

from collections.abc import Callable
from dataclasses import dataclass

import jax
import numpy as np
from jaxtyping import Float, PRNGKeyArray
from scipy.optimize import minimize

from ..errors import DataError, SettingsError
from ..joints import JointLimits, Trajectory

Columns = Float[np.ndarray, "time dof"]
Regressor = Callable[[Columns, Columns, Columns], Float[np.ndarray, "rows parameters"]]
Torque = Callable[[Columns, Columns, Columns], Columns]
# Takes the share of the search that is done, and the best condition number so far.
Watcher = Callable[[float, float], None]


@dataclass(frozen=True)
class ExcitationSettings:
    """Duration and richness of the motion, and effort of the search.

    Attributes:
        period: period of the motion [s]; harmonics: frequencies k / period, k = 1 … harmonics.
        margin: share of every limit that may be used.
        starts: random starts of the optimiser; iterations: its iterations from each.
        samples: samples at which the motion is judged during optimisation.
    """

    period: float = 10.0
    harmonics: int = 5
    margin: float = 0.9
    starts: int = 2
    iterations: int = 60
    samples: int = 60

    def __post_init__(self) -> None:
        if not (self.period > 0 and self.harmonics >= 3 and 0 < self.margin <= 1):
            raise SettingsError(
                "need a positive period, at least 3 harmonics and a margin in (0, 1], "
                f"got {self.period}, {self.harmonics} and {self.margin}"
            )
        if self.starts < 1 or self.iterations < 1 or self.samples < 10:
            raise SettingsError(
                "need starts ≥ 1, iterations ≥ 1 and samples ≥ 10, "
                f"got {self.starts}, {self.iterations} and {self.samples}"
            )


@dataclass(frozen=True, eq=False)
class Excitation:
    """A motion, its condition number, and the share of each joint's limits that it uses."""

    trajectory: Trajectory
    condition: float
    used: dict[str, Float[np.ndarray, " dof"]]


def excite(
    limits: JointLimits,
    *,
    dt: float,
    key: PRNGKeyArray,
    regressor: Regressor | None = None,
    torque: Torque | None = None,
    settings: ExcitationSettings | None = None,
    watch: Watcher | None = None,
) -> Excitation:
    """Return a periodic motion from rest to rest whose samples condition the regressor well.

    Args:
        limits: limits that no sample violates; torque limits count if `torque` is given.
        regressor: rows of the robot's linear model. The default, for unknown robots, asks for
            varied positions, velocities and accelerations of every joint.
        torque: torques of the rows of a motion.
        watch: is told of the progress of the search.
    """
    settings = settings or ExcitationSettings()
    series = _Series(limits, settings, torque)
    regressor = regressor or _generic_regressor
    if series.most_used(series.motion(np.zeros(series.size), np.zeros(1))) > settings.margin:
        raise DataError(
            "excitation",
            "even standing still takes more torque than the limits allow; "
            "check the limits and the model",
        )
    coarse = np.linspace(0, settings.period, settings.samples, endpoint=False)

    def cost(x: np.ndarray) -> float:
        motion = series.motion(x, coarse)
        used = series.most_used(motion)
        # Outside the limits the motion will be scaled down, so the scaled motion is judged.
        if used > settings.margin:
            motion = series.motion(x * settings.margin / used, coarse)
        return float(np.log(_condition(regressor(*motion))))

    most = settings.iterations * series.size // 4
    search = _Watched(cost, settings.starts * most, watch)
    best = None
    best_cost = np.inf
    options = {"maxfev": most}
    for start_key in jax.random.split(key, settings.starts):
        start = series.fill * np.asarray(jax.random.normal(start_key, (series.size,)), dtype=float)
        result = minimize(search, start, method="Powell", options=options)
        if result.fun < best_cost:
            best = result.x
            best_cost = result.fun
    assert best is not None
    trajectory = series.within_limits(best, dt)
    motion = (trajectory.q, trajectory.qd, trajectory.qdd)
    return Excitation(trajectory, _condition(regressor(*motion)), series.used(motion))


class _Watched:
    """A cost that tells how far a search of so many evaluations has come."""

    def __init__(self, cost: Callable[[np.ndarray], float], most: int, watch: Watcher | None):
        self._cost = cost
        self._most = most
        self._watch = watch
        self._done = 0
        self._best = np.inf

    def __call__(self, x: np.ndarray) -> float:
        value = self._cost(x)
        self._done += 1
        self._best = min(self._best, value)
        if self._watch is not None:
            self._watch(min(1.0, self._done / self._most), float(np.exp(self._best)))
        return value


def random_motions(
    limits: JointLimits,
    count: int,
    *,
    dt: float,
    key: PRNGKeyArray,
    settings: ExcitationSettings | None = None,
) -> list[Trajectory]:
    """Return random periodic motions from rest to rest, within the margin of all limits."""
    series = _Series(limits, settings or ExcitationSettings(), None)
    trajectories = []
    for motion_key in jax.random.split(key, count):
        normal = np.asarray(jax.random.normal(motion_key, (series.size,)), dtype=float)
        trajectories.append(series.within_limits(2 * series.fill * normal, dt))
    return trajectories


class _Series:
    """Fourier series that leave every joint at rest at the start and the end, within limits.

    q(t) = centre + Σ_k (a_k / ω_k sin ω_k t + b_k (cos ω_k t − 1)). Rest requires Σ a_k = 0 and
    Σ b_k ω_k² = 0; a vector x holds the free coefficients in a basis of these null spaces.
    """

    def __init__(self, limits: JointLimits, settings: ExcitationSettings, torque: Torque | None):
        self._limits = limits
        self._settings = settings
        self._torque = torque
        bounded = np.isfinite(limits.lower) & np.isfinite(limits.upper)
        self._centre = np.where(bounded, (limits.lower + limits.upper) / 2, 0.0)
        self._half_range = np.where(bounded, (limits.upper - limits.lower) / 2, np.inf)
        self._omega = 2 * np.pi * np.arange(1, settings.harmonics + 1) / settings.period
        self._sine_basis = _null_space(np.ones(settings.harmonics)) / self._omega[:, None]
        self._cosine_basis = _null_space(self._omega**2)
        self._free = settings.harmonics - 1
        self._dof = len(self._centre)
        self.size = 2 * self._free * self._dof
        # Usual size of the coefficients: a joint without stops may turn by half a turn.
        room = np.where(bounded, self._half_range, np.pi)
        self.fill = np.repeat(0.3 * room / np.sqrt(settings.harmonics), 2 * self._free)

    def motion(self, x: np.ndarray, t: np.ndarray) -> tuple[Columns, Columns, Columns]:
        """Return positions, velocities and accelerations at the times t [s]."""
        a, b = np.moveaxis(x.reshape(self._dof, 2, self._free), 1, 0)
        sine = (self._omega[0] * a @ self._sine_basis.T).T
        cosine = (b @ self._cosine_basis.T).T
        w = self._omega
        angle = np.outer(t, w)
        s = np.sin(angle)
        c = np.cos(angle)
        q = self._centre + s @ sine + (c - 1) @ cosine
        qd = (c * w) @ sine - (s * w) @ cosine
        qdd = -(s * w**2) @ sine - (c * w**2) @ cosine
        return q, qd, qdd

    def used(self, motion: tuple[Columns, Columns, Columns]) -> dict[str, np.ndarray]:
        """Return the largest share of each limit that a motion uses, per joint."""
        q, qd, _ = motion
        used = {
            "position": np.abs(q - self._centre).max(axis=0) / self._half_range,
            "velocity": np.abs(qd).max(axis=0) / self._limits.velocity,
        }
        if self._torque is not None:
            used["torque"] = np.abs(self._torque(*motion)).max(axis=0) / self._limits.torque
        return used

    def most_used(self, motion: tuple[Columns, Columns, Columns]) -> float:
        """Return the largest share of any limit that a motion uses."""
        return max(float(np.max(share)) for share in self.used(motion).values())

    def within_limits(self, x: np.ndarray, dt: float) -> Trajectory:
        """Shrink a motion about its centre until every sample respects every limit."""
        margin = self._settings.margin
        t = np.arange(round(self._settings.period / dt) + 1) * dt
        while True:
            q, qd, qdd = self.motion(x, t)
            used = self.most_used((q, qd, qdd))
            if used <= margin:
                return Trajectory(t=t, q=q, qd=qd, qdd=qdd, label="excitation")
            x = x * max(0.5, 0.99 * margin / used)  # ends, because standing still is allowed


def _null_space(weights: np.ndarray) -> np.ndarray:
    """Return a basis, in columns, of the vectors orthogonal to the weights."""
    return np.linalg.svd(weights[None])[2][1:].T


def _condition(matrix: np.ndarray) -> float:
    """Return the condition number over the observable directions, with columns of equal length."""
    length = np.linalg.norm(matrix, axis=0)
    observable = length > 1e-9 * length.max()
    values = np.linalg.svd(matrix[:, observable] / length[observable], compute_uv=False)
    return float(values[0] / values[values > 1e-7 * values[0]][-1])


def _generic_regressor(
    q: Columns, qd: Columns, qdd: Columns
) -> Float[np.ndarray, "rows parameters"]:
    """Return features that a motion should vary independently if the dynamics are unknown."""
    constant = np.ones((len(q), 1))
    return np.concatenate([constant, np.cos(q), np.sin(q), qd, qdd, np.tanh(10 * qd)], axis=1)
