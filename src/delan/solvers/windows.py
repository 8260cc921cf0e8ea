"""The equation of motion without accelerations: integrated against smooth windows, by parts.

With the Lagrangian 𝓛 and the friction f, τ = d/dt ∂𝓛/∂q̇ − ∂𝓛/∂q + f. Multiplied by a window φ that
is zero at both ends and integrated, ∫ φ τ dt = ∫ [φ (f − ∂𝓛/∂q) − φ′ ∂𝓛/∂q̇] dt: q̈ is gone, and
noise is averaged away without a filter.
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
from ..models.friction import Friction, FrictionSettings
from ..models.friction_memory import remembered
from ..models.model import as_model

SECONDS, HOP = 0.2, 0.05
"""Length of a window, and from one to the next [s]; windows of 0.4 s and more blur fast motion."""
POINTS = 16
"""Points of a window, about; rows between them are averaged."""


class Windows(eqx.Module):
    """Windows on a motion and the mean torque in each: one row a window, or, inside `vmap`, a
    single one.
    """

    q: Float[Array, "*batch points dof"]
    qd: Float[Array, "*batch points dof"]
    tau: Float[Array, "*batch dof"]
    window: Float[Array, "*batch points"]
    slope: Float[Array, "*batch points"]
    memory: Float[Array, "*batch points radii motors"] | None = None

    @classmethod
    def of(cls, dataset: Dataset, actuator: FrictionSettings | None = None) -> "Windows":
        """The windows all of whose rows count, over rows as they were recorded."""
        if actuator is not None and "load" in actuator.terms:
            raise SettingsError(
                "friction under load needs the torque at every moment; leave load out without q̈"
            )
        counted = np.ones(len(dataset), dtype=bool) if dataset.counted is None else dataset.counted
        step = float(np.median(np.diff(dataset.t)))
        length, hop = round(SECONDS / step), max(1, round(HOP / step))
        every = max(1, length // POINTS)
        length -= length % every
        starts = [
            row
            for first, end in _uncut(dataset, counted, step)
            for row in range(first, end - length + 1, hop)
        ]
        if length < 4 or not starts:
            problem = f"has no motion of {SECONDS:g} s without gaps and with 4 samples in it; record longer, or faster"
            raise DataError(dataset.source, problem)
        rows = np.add.outer(np.array(starts), np.arange(length))
        phase = (np.arange(length) + 0.5) / length
        window = np.sin(np.pi * phase) ** 4
        slope = 4 * np.pi / (length * step) * np.sin(np.pi * phase) ** 3 * np.cos(np.pi * phase)
        window, slope = window / window.sum(), slope / window.sum()
        memory = None
        if actuator is not None and actuator.stops:
            memory = remembered(Friction(dataset.joints, actuator), replace(dataset, counted=None))

        def averaged(values: np.ndarray) -> Array:
            picked = values[rows].reshape(len(rows), length // every, every, *values.shape[1:])
            return jnp.asarray(picked.mean(axis=2))

        def repeated(values: np.ndarray) -> Array:
            return jnp.tile(jnp.asarray(values.reshape(-1, every).sum(axis=1)), (len(rows), 1))

        return cls(
            averaged(dataset.q),
            averaged(dataset.qd),
            jnp.asarray(np.einsum("wrj,r->wj", dataset.tau[rows], window)),
            repeated(window),
            repeated(slope),
            None if memory is None else averaged(memory),
        )

    def rows(self, chosen: np.ndarray | slice) -> "Windows":
        return jax.tree.map(lambda column: column[chosen], self)

    def coarser(self) -> "Windows":
        """The same with half as many points, each the mean of two; as they are where their number
        is odd.
        """
        points = self.q.shape[-2]
        if points % 2:
            return self

        def halved(values: Array) -> Array:
            return values.reshape(len(values), points // 2, 2, *values.shape[2:])

        def mean(values: Array) -> Array:
            return halved(values).mean(axis=2)

        def total(values: Array) -> Array:
            return halved(values).sum(axis=2)

        memory = None if self.memory is None else mean(self.memory)
        return Windows(
            mean(self.q), mean(self.qd), self.tau, total(self.window), total(self.slope), memory
        )

    def __len__(self) -> int:
        return len(self.q)


def _uncut(dataset: Dataset, counted: np.ndarray, step: float) -> list[tuple[int, int]]:
    """Rows [first, end) that count, of one trajectory and without gaps."""
    broken = (np.diff(dataset.trajectory) != 0) | (np.abs(np.diff(dataset.t) - step) > 0.75 * step)
    broken |= np.diff(counted)
    edges = [0, *(np.flatnonzero(broken) + 1).tolist(), len(dataset)]
    return [(first, end) for first, end in itertools.pairwise(edges) if counted[first]]


def mean_torque(model: Any, window: Windows) -> Float[Array, " dof"]:
    """∫ φ τ dt of a single window, with ∫ φ dt = 1."""
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
        zero = jnp.zeros(model.joints.dof, held.dtype)
        friction = model.friction.torque
        if window.memory is None:
            held += jax.vmap(lambda qd: friction(qd, zero))(window.qd)
        else:
            held += jax.vmap(lambda qd, memory: friction(qd, zero, memory))(
                window.qd, window.memory
            )
    return window.window @ held - carried
