"""Smooth motions in joint space: a few cosines a joint, eased in and out, inside the joints' limits."""

from dataclasses import dataclass, replace

import jax
import numpy as np
from jaxtyping import Float, PRNGKeyArray

from ..errors import DataError, SettingsError
from ..joints import JointLimits, Trajectory
from .easing import minimum_jerk

EASE_SECONDS = 1.0
"""How long a motion takes to reach its full size, and to come to rest again [s]."""


@dataclass(frozen=True, eq=False)
class CosineMotion:
    """q(t) = centre + e(t) Σ_k a_k cos(2π f_k t + φ_k), with an easing e(t) from 0 to 1 and back to 0.

    Attributes:
        centre: where each joint starts and ends [rad or m].
        amplitude: a_k [rad or m]; frequency: f_k [Hz]; phase: φ_k [rad]; each (joints, cosines).
        duration: of the motion at its own speed [s].
        speed: how many times faster than that it runs.
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
        """The same path, so many times faster."""
        return replace(self, speed=self.speed * factor)

    def sample(self, dt: float) -> Trajectory:
        """The motion at a sampling period dt [s]; velocities and accelerations are exact."""
        count = int(np.floor(self.duration / self.speed / dt + 1e-9))
        t = np.arange(count + 1) * dt
        own = (t * self.speed)[:, None, None]
        angle = 2 * np.pi * self.frequency * own + self.phase
        rate = 2 * np.pi * self.frequency
        wave = (self.amplitude * np.cos(angle)).sum(2)
        wave_rate = -(self.amplitude * rate * np.sin(angle)).sum(2)
        wave_rate_rate = -(self.amplitude * rate**2 * np.cos(angle)).sum(2)
        ease, ease_rate, ease_rate_rate = (part[:, None] for part in _ease(t * self.speed, self.duration))
        s = self.speed
        return Trajectory(
            t=t,
            q=self.centre + ease * wave,
            qd=s * (ease_rate * wave + ease * wave_rate),
            qdd=s**2 * (ease_rate_rate * wave + 2 * ease_rate * wave_rate + ease * wave_rate_rate),
            label=self.label,
        )


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
    """A random motion that uses a share of each joint's range and stays below that share of its speed limit.

    Args:
        count: cosines a joint; fastest: the highest frequency among them [Hz].
        centre: where the motion starts and ends; the middle of each range, or 0 for a joint without stops.
    """
    if not (0 < share <= 1 and count >= 1 and fastest > 0):
        raise SettingsError(f"need 0 < share ≤ 1, count ≥ 1 and fastest > 0, got {share}, {count} and {fastest}")
    dof = len(limits.lower)
    bounded = np.isfinite(limits.lower) & np.isfinite(limits.upper)
    low, high = np.where(bounded, limits.lower, -np.pi), np.where(bounded, limits.upper, np.pi)
    middle = (low + high) / 2 if centre is None else np.asarray(centre)
    room = np.minimum(high - middle, middle - low)
    if np.any(room <= 0):
        at = int(np.argmin(room))
        raise DataError("cosines", f"the centre {middle[at]:.3g} of joint {at} is outside of its range; move it inside")
    size_key, rate_key, phase_key = jax.random.split(key, 3)
    size = np.asarray(jax.random.uniform(size_key, (dof, count), minval=0.3, maxval=1.0), dtype=float)
    steps = np.arange(1, count + 1) / count
    spread = np.asarray(jax.random.uniform(rate_key, (dof, count), minval=0.75, maxval=1.0), dtype=float)
    frequency = fastest * steps * spread
    phase = np.asarray(jax.random.uniform(phase_key, (dof, count), maxval=2 * np.pi), dtype=float)
    motion = CosineMotion(middle, size / steps / count, frequency, phase, duration)
    fine = motion.sample(1e-3)
    reach = np.abs(fine.q - middle).max(axis=0) / (share * room)
    speed = np.abs(fine.qd).max(axis=0) / (share * limits.velocity)
    return replace(motion, amplitude=motion.amplitude / np.maximum(reach, speed)[:, None])


def _ease(t: np.ndarray, duration: float) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """A minimum-jerk rise at the start and fall at the end, with its first two derivatives."""
    to_end = duration - t
    u = np.clip(np.minimum(t, to_end) / EASE_SECONDS, 0, 1)
    sign = np.where(t < to_end, 1.0, -1.0)
    ease, rate, rate_rate = minimum_jerk(u)
    return ease, rate * sign / EASE_SECONDS, rate_rate / EASE_SECONDS**2
