"""The equation of motion without accelerations: integrated against smooth windows, by parts.

With the Lagrangian 𝓛 and the friction f, τ = d/dt ∂𝓛/∂q̇ − ∂𝓛/∂q + f. Multiplied by a window φ that
is zero at both ends and integrated, ∫ φ τ dt = ∫ [φ (f − ∂𝓛/∂q) − φ′ ∂𝓛/∂q̇] dt: q̈ is gone, and
noise is averaged without a filter.
"""

import itertools
from dataclasses import replace
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from ..errors import DataError, SettingsError
from ..joints import Dataset
from ..logs.segments import time_breaks
from ..models.friction import Friction, FrictionSettings
from ..models.friction_memory import remembered
from ..models.model import as_model

# Length of a window [s]; windows of 0.4 s and more blur fast motion.
SECONDS = 0.2
# Time from one window to the next [s]: a quarter of their length, so that each moment counts in
# several of them, near the centre of at least one.
HOP = 0.05
# About how many points a window has; rows between them are averaged. At 16 points the mean torque
# is right to 2e-3, at 8 points to 8e-3, and the cost of a fit grows with the points.
POINTS = 16
# With fewer rows than this, sums over a window are no integrals.
LEAST_ROWS = 4


class Windows(eqx.Module):
    """Windows on a motion, one row per window; inside `vmap`, a single window.

    Attributes:
        q, qd: the motion at the points of a window.
        tau: mean torque, weighted by the window.
        window, slope: φ and φ′ at the points, times the time step.
        memory: states of the friction's stop operators at the points.
    """

    q: Float[Array, "*batch points dof"]
    qd: Float[Array, "*batch points dof"]
    tau: Float[Array, "*batch dof"]
    window: Float[Array, "*batch points"]
    slope: Float[Array, "*batch points"]
    memory: Float[Array, "*batch points radii motors"] | None = None

    @classmethod
    def of(cls, dataset: Dataset, friction: FrictionSettings | None = None) -> "Windows":
        """Return the windows without gaps all of whose rows count."""
        if friction is not None and "load" in friction.terms:
            raise SettingsError(
                "friction under load needs the torque at every moment; leave load out without q̈"
            )
        step = float(np.median(np.diff(dataset.t)))
        length = round(SECONDS / step)
        every = max(1, length // POINTS)
        length -= length % every
        starts = _starts(dataset, length, max(1, round(HOP / step)))
        if length < LEAST_ROWS or not starts:
            raise DataError(
                dataset.source,
                f"has no motion of {SECONDS:g} s without gaps and with {LEAST_ROWS} samples in it; "
                "record longer, or faster",
            )
        rows = np.add.outer(np.array(starts), np.arange(length))
        window, slope = _sine_window(length, step)

        def averaged(values: np.ndarray) -> Array:
            points = values[rows].reshape(len(rows), length // every, every, *values.shape[1:])
            return jnp.asarray(points.mean(axis=2))

        def repeated(values: np.ndarray) -> Array:
            return jnp.tile(jnp.asarray(values.reshape(-1, every).sum(axis=1)), (len(rows), 1))

        memory = None
        if friction is not None:
            # The rows of windows are numbered among all rows, not among those that count.
            whole = replace(dataset, counted=None)
            memory = remembered(Friction(dataset.joints, friction), whole)
        return cls(
            q=averaged(dataset.q),
            qd=averaged(dataset.qd),
            tau=jnp.asarray(np.einsum("wrj,r->wj", dataset.tau[rows], window)),
            window=repeated(window),
            slope=repeated(slope),
            memory=None if memory is None else averaged(memory),
        )

    def rows(self, chosen: np.ndarray | slice) -> "Windows":
        """Return the windows at these rows."""
        return jax.tree.map(lambda column: column[chosen], self)

    def coarser(self) -> "Windows":
        """Return the windows with half as many points, each the mean of two.

        Windows with an odd number of points are returned as they are.
        """
        points = self.q.shape[-2]
        if points % 2:
            return self

        def halved(values: Array) -> Array:
            return values.reshape(len(values), points // 2, 2, *values.shape[2:])

        return Windows(
            q=halved(self.q).mean(axis=2),
            qd=halved(self.qd).mean(axis=2),
            tau=self.tau,
            window=halved(self.window).sum(axis=2),
            slope=halved(self.slope).sum(axis=2),
            memory=None if self.memory is None else halved(self.memory).mean(axis=2),
        )

    def __len__(self) -> int:
        return len(self.q)


def _starts(dataset: Dataset, length: int, hop: int) -> list[int]:
    """Return the first rows of windows without gaps, in one trajectory, all of whose rows count."""
    counted = dataset.counted
    if counted is None:
        counted = np.ones(len(dataset), dtype=bool)
    breaks = time_breaks(dataset.t)
    breaks[1:] |= (np.diff(dataset.trajectory) != 0) | np.diff(counted)
    starts: list[int] = []
    for first, end in itertools.pairwise([*np.flatnonzero(breaks).tolist(), len(dataset)]):
        if counted[first]:
            starts += range(first, end - length + 1, hop)
    return starts


def _sine_window(length: int, step: float) -> tuple[np.ndarray, np.ndarray]:
    """Return φ ∝ sin⁴ and φ′ at the rows of a window, times the time step."""
    # With the fourth power, φ′ is smooth at the ends as well: the sum over rows is an integral to
    # the fourth power of the step.
    phase = (np.arange(length) + 0.5) / length
    window = np.sin(np.pi * phase) ** 4
    slope = 4 * np.pi / (length * step) * np.sin(np.pi * phase) ** 3 * np.cos(np.pi * phase)
    total = window.sum()
    return window / total, slope / total


def mean_torque(model: Any, window: Windows) -> Float[Array, " dof"]:
    """Return ∫ φ τ dt of a single window, with ∫ φ dt = 1."""
    model = as_model(model)
    held = jnp.zeros_like(window.q)
    carried = jnp.zeros_like(window.q[0])
    if model.mechanics is not None:

        def lagrangian(q: Array, qd: Array) -> Array:
            energy = model.energy(q, qd)
            return jnp.asarray(energy.kinetic - energy.potential)

        force, momentum = jax.vmap(jax.grad(lagrangian, argnums=(0, 1)))(window.q, window.qd)
        held = -force
        carried = window.slope @ momentum
    if model.friction is not None:
        friction = model.friction.torque
        # The load is not known without accelerations, and `Windows.of` refuses friction under it.
        load = jnp.zeros(model.joints.dof, held.dtype)
        if window.memory is None:
            held += jax.vmap(lambda qd: friction(qd, load))(window.qd)
        else:
            held += jax.vmap(lambda qd, memory: friction(qd, load, memory))(
                window.qd, window.memory
            )
    return window.window @ held - carried
