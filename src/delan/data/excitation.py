"""Motions to identify a robot by: finite Fourier series whose coefficients make the data as telling as limits allow."""

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


@dataclass(frozen=True)
class ExcitationSettings:
    """How long and how rich the motion is, and how hard to look for it.

    Attributes:
        period: of the motion [s]; harmonics: frequencies k / period, k = 1 … harmonics.
        margin: share of every limit that may be used.
        starts, iterations: random starts of the optimiser, and its iterations from each.
        samples: at which the motion is judged while it is optimised.
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
    """The motion, its condition number, and the share of each joint's limits that it uses."""

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
) -> Excitation:
    """A periodic motion, starting and ending at rest, whose samples condition the regressor well.

    Args:
        limits: never violated at any sample; torque limits count when `torque` can tell the torque of a motion.
        regressor: rows of the robot's linear model; without it, a stand-in that asks for varied positions, speeds and
            accelerations of every joint, for robots of which nothing is known.
    """
    settings = settings or ExcitationSettings()
    series = _Series(limits, settings)
    judge = regressor or _stand_in
    still = _used(limits, series.motion(np.zeros(series.size), np.zeros(1)), torque)
    if max(float(np.max(share)) for share in still.values()) > settings.margin:
        problem = "even standing still takes more torque than the limits allow; check the limits and the model"
        raise DataError("excitation", problem)
    coarse = np.linspace(0, settings.period, settings.samples, endpoint=False)

    def cost(x: np.ndarray) -> float:
        motion = series.motion(x, coarse)
        over = max(float(np.max(share)) for share in _used(limits, motion, torque).values())
        # Outside of the limits the motion would be scaled down, so judge what is left of it then.
        if over > settings.margin:
            motion = series.motion(x * settings.margin / over, coarse)
        return float(np.log(_condition(judge(*motion))))

    best, best_cost = None, np.inf
    for one in jax.random.split(key, settings.starts):
        start = series.fill * np.asarray(jax.random.normal(one, (series.size,)), dtype=float)
        found = minimize(cost, start, method="Powell", options={"maxfev": settings.iterations * series.size // 4})
        if found.fun < best_cost:
            best, best_cost = found.x, found.fun
    assert best is not None
    return _kept_inside(series, best, limits, settings, dt, judge, torque)


def random_motions(
    limits: JointLimits, count: int, *, dt: float, key: PRNGKeyArray, settings: ExcitationSettings | None = None
) -> list[Trajectory]:
    """Periodic motions at random, starting and ending at rest, that use the limits as far as the margin allows."""
    settings = settings or ExcitationSettings()
    series = _Series(limits, settings)
    made = []
    for one in jax.random.split(key, count):
        x = 2 * series.fill * np.asarray(jax.random.normal(one, (series.size,)), dtype=float)
        made.append(_kept_inside(series, x, limits, settings, dt, _stand_in, None).trajectory)
    return made


def _kept_inside(
    series: "_Series",
    x: np.ndarray,
    limits: JointLimits,
    settings: ExcitationSettings,
    dt: float,
    judge: Regressor,
    torque: Torque | None,
) -> Excitation:
    """Shrink the motion about its centre until every sample respects every limit."""
    t = np.arange(round(settings.period / dt) + 1) * dt
    while True:
        motion = series.motion(x, t)
        used = _used(limits, motion, torque)
        over = max(float(np.max(share)) for share in used.values())
        if over <= settings.margin:
            trajectory = Trajectory(t=t, q=motion[0], qd=motion[1], qdd=motion[2], label="excitation")
            return Excitation(trajectory, _condition(judge(*motion)), used)
        x = x * max(0.5, 0.99 * settings.margin / over)  # standing still is allowed, so this ends


class _Series:
    """Fourier coefficients that leave every joint at rest at the start and the end, in a basis of what is free.

    q(t) = centre + Σ_k (a_k / ω_k sin ω_k t + b_k (cos ω_k t − 1)); rest needs Σ a_k = 0 and Σ b_k ω_k² = 0.
    """

    def __init__(self, limits: JointLimits, settings: ExcitationSettings):
        bounded = np.isfinite(limits.lower) & np.isfinite(limits.upper)
        self.centre = np.where(bounded, (limits.lower + limits.upper) / 2, 0.0)
        room = np.where(bounded, (limits.upper - limits.lower) / 2, np.pi)
        self.omega = 2 * np.pi * np.arange(1, settings.harmonics + 1) / settings.period
        # Columns span the coefficients that sum to zero under the weights of each condition.
        self.sine = _null_space(np.ones(settings.harmonics)) / self.omega[:, None]
        self.cosine = _null_space(self.omega**2)
        self.free = settings.harmonics - 1
        self.dof = len(room)
        self.size = 2 * self.free * self.dof
        self.fill = np.repeat(0.3 * room / np.sqrt(settings.harmonics), 2 * self.free)

    def motion(self, x: np.ndarray, t: np.ndarray) -> tuple[Columns, Columns, Columns]:
        """Positions, velocities and accelerations at the times t [s]."""
        a, b = np.moveaxis(x.reshape(self.dof, 2, self.free), 1, 0)
        sine, cosine = self.omega[0] * a @ self.sine.T, b @ self.cosine.T
        angle = np.outer(t, self.omega)
        s, c, w = np.sin(angle), np.cos(angle), self.omega
        q = self.centre + s @ sine.T + (c - 1) @ cosine.T
        return q, (c * w) @ sine.T - (s * w) @ cosine.T, -(s * w**2) @ sine.T - (c * w**2) @ cosine.T


def _null_space(weights: np.ndarray) -> np.ndarray:
    return np.linalg.svd(weights[None])[2][1:].T


def _used(
    limits: JointLimits, motion: tuple[Columns, Columns, Columns], torque: Torque | None
) -> dict[str, np.ndarray]:
    """The largest share of each limit that the motion uses, per joint."""
    q, qd, _ = motion
    bounded = np.isfinite(limits.lower) & np.isfinite(limits.upper)
    middle = np.where(bounded, (limits.lower + limits.upper) / 2, 0.0)
    half = np.where(bounded, (limits.upper - limits.lower) / 2, np.inf)
    used = {"position": np.abs(q - middle).max(axis=0) / half, "velocity": np.abs(qd).max(axis=0) / limits.velocity}
    if torque is not None:
        used["torque"] = np.abs(torque(*motion)).max(axis=0) / limits.torque
    return used


def _condition(matrix: np.ndarray) -> float:
    """Condition number of the directions that the motion can tell at all, columns scaled to equal length."""
    length = np.linalg.norm(matrix, axis=0)
    scaled = matrix[:, length > 1e-9 * length.max()] / length[length > 1e-9 * length.max()]
    values = np.linalg.svd(scaled, compute_uv=False)
    return float(values[0] / values[values > 1e-7 * values[0]][-1])


def _stand_in(q: Columns, qd: Columns, qdd: Columns) -> Float[np.ndarray, "rows parameters"]:
    """Features of every joint that a motion should vary independently, for a robot of unknown dynamics."""
    constant = np.ones((len(q), 1))
    return np.concatenate([constant, np.cos(q), np.sin(q), qd, qdd, np.tanh(10 * qd)], axis=1)
