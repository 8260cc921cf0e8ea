"""Smooth random motions in joint space: sums of cosines that start and end at rest."""

from dataclasses import dataclass, replace

import jax
import numpy as np
from jaxtyping import Float, PRNGKeyArray

from ..errors import DataError, SettingsError
from ..joints import JointLimits, Trajectory

# Time that a motion takes to reach its full amplitude, and to come to rest again [s].
EASE_SECONDS = 1.0


def minimum_jerk(u: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return the minimum-jerk rise from 0 to 1 over u in [0, 1] and its two derivatives.

    Both derivatives are zero at both ends.
    """
    rise = u**3 * (10 - 15 * u + 6 * u**2)
    return rise, 30 * u**2 * (1 - u) ** 2, 60 * u * (1 - u) * (1 - 2 * u)


@dataclass(frozen=True, eq=False)
class CosineMotion:
    """q(t) = centre + e(t) Σ_k a_k cos(2π f_k t + φ_k), with an envelope e(t) from 0 to 1 and back.

    Attributes:
        centre: position at the start and at the end [rad or m].
        amplitude: a_k [rad or m]; frequency: f_k [Hz]; phase: φ_k [rad].
        duration: duration at speed 1 [s].
        speed: factor on the speed of the motion.
    """

    centre: Float[np.ndarray, " dof"]
    amplitude: Float[np.ndarray, "dof cosines"]
    frequency: Float[np.ndarray, "dof cosines"]
    phase: Float[np.ndarray, "dof cosines"]
    duration: float
    speed: float = 1.0
    label: str = "cosines"

    def __post_init__(self) -> None:
        if not (self.duration > 2 * EASE_SECONDS and 0 < self.speed < float("inf")):
            raise SettingsError(
                f"a cosine motion needs a duration over {2 * EASE_SECONDS} s and a positive speed, "
                f"got {self.duration} s and {self.speed}"
            )

    def at_speed(self, factor: float) -> "CosineMotion":
        """Return the same path, faster by this factor."""
        return replace(self, speed=self.speed * factor)

    def sample(self, dt: float) -> Trajectory:
        """Return the motion at a sampling period dt [s], with exact derivatives."""
        # The tolerance keeps the last sample where duration / dt is an integer but for rounding.
        count = int(np.floor(self.duration / self.speed / dt + 1e-9))
        t = np.arange(count + 1) * dt
        angle = 2 * np.pi * self.frequency * (t * self.speed)[:, None, None] + self.phase
        rate = 2 * np.pi * self.frequency
        wave = (self.amplitude * np.cos(angle)).sum(2)
        wave_d = -(self.amplitude * rate * np.sin(angle)).sum(2)
        wave_dd = -(self.amplitude * rate**2 * np.cos(angle)).sum(2)
        envelope, envelope_d, envelope_dd = _envelope(t * self.speed, self.duration)
        velocity = envelope_d * wave + envelope * wave_d
        acceleration = envelope_dd * wave + 2 * envelope_d * wave_d + envelope * wave_dd
        return Trajectory(
            t=t,
            q=self.centre + envelope * wave,
            qd=self.speed * velocity,
            qdd=self.speed**2 * acceleration,
            label=self.label,
        )


def _envelope(t: np.ndarray, duration: float) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return a minimum-jerk rise and fall with two derivatives, each of shape (time, 1)."""
    to_end = duration - t
    u = np.clip(np.minimum(t, to_end) / EASE_SECONDS, 0, 1)[:, None]
    sign = np.where(t < to_end, 1.0, -1.0)[:, None]
    rise, rate, acceleration = minimum_jerk(u)
    return rise, rate * sign / EASE_SECONDS, acceleration / EASE_SECONDS**2


def cosines(
    limits: JointLimits,
    *,
    key: PRNGKeyArray,
    count: int = 3,
    duration: float = 10.0,
    fastest: float = 0.8,
    share: float = 0.7,
    centre: Float[np.ndarray, " dof"] | None = None,
) -> CosineMotion:
    """Return a random motion within a share of each joint's range and speed limit.

    Args:
        count: number of cosines per joint; fastest: their highest frequency [Hz].
        centre: position at the start and at the end; by default the middle of each range, or 0 for
            a joint without stops.
    """
    if not (0 < share <= 1 and count >= 1 and fastest > 0):
        raise SettingsError(
            f"need 0 < share ≤ 1, count ≥ 1 and fastest > 0, got {share}, {count} and {fastest}"
        )
    bounded = np.isfinite(limits.lower) & np.isfinite(limits.upper)
    low = np.where(bounded, limits.lower, -np.pi)
    high = np.where(bounded, limits.upper, np.pi)
    middle = (low + high) / 2 if centre is None else np.asarray(centre)
    room = np.minimum(high - middle, middle - low)
    if np.any(room <= 0):
        joint = int(np.argmin(room))
        raise DataError(
            "cosines",
            f"the centre {middle[joint]:.3g} of joint {joint} is outside its range, "
            f"{low[joint]:.3g} to {high[joint]:.3g}; move it inside",
        )
    shape = (len(low), count)
    size_key, rate_key, phase_key = jax.random.split(key, 3)
    size = np.asarray(jax.random.uniform(size_key, shape, minval=0.3, maxval=1.0), dtype=float)
    spread = np.asarray(jax.random.uniform(rate_key, shape, minval=0.75, maxval=1.0), dtype=float)
    phase = np.asarray(jax.random.uniform(phase_key, shape, maxval=2 * np.pi), dtype=float)
    steps = np.arange(1, count + 1) / count
    frequency = fastest * steps * spread
    # Faster cosines get smaller amplitudes, so that all contribute to the speed alike.
    motion = CosineMotion(middle, size / steps / count, frequency, phase, duration)
    fine = motion.sample(1e-3)
    reach = np.abs(fine.q - middle).max(axis=0) / (share * room)
    speed = np.abs(fine.qd).max(axis=0) / (share * limits.velocity)
    return replace(motion, amplitude=motion.amplitude / np.maximum(reach, speed)[:, None])
