"""The columns of identification: what a unit of each parameter adds to the torques of a motion."""

from collections.abc import Iterator
from typing import NamedTuple

import jax
import numpy as np
from jaxtyping import Float, Int

from ..joints import Dataset, Joints
from ..models.actuator import Actuator, ActuatorSettings
from ..models.rigid_body import RigidBody
from .regression import triangle
from .remembering import remembered
from .weak import POINTS, Windows

CHUNK = 1024
"""Samples whose regressor is in memory at once."""
STEP = 1e-4
"""How far a joint is moved to see what changes [rad or m]."""


class Extras(NamedTuple):
    """The columns beside those of the links: friction, named by its place among the weights, then the rotors."""

    head: Actuator
    column: Int[np.ndarray, " friction"]
    motor: Int[np.ndarray, " friction"]
    rotors: bool

    @classmethod
    def of(cls, joints: Joints, terms: ActuatorSettings, rotors: bool) -> "Extras":
        motors = joints.dof + len(terms.pairs)
        head = Actuator.of(joints, terms, np.zeros((len(terms.columns), motors)))
        column, motor = np.nonzero(head.acting)
        return cls(head, column, motor, rotors)

    @property
    def names(self) -> tuple[str, ...]:
        head, places = self.head, zip(self.column, self.motor, strict=True)
        friction = (f"{head.motors[motor]} {head.columns[column]}" for column, motor in places)
        return (*friction, *(f"{name} armature" for name in head.joints.names if self.rotors))

    @property
    def lower(self) -> Float[np.ndarray, " extras"]:
        """Friction and rotors are not negative; an offset may be."""
        free = [self.head.columns[column] == "offset" for column in self.column]
        return np.concatenate([np.where(free, -np.inf, 0.0), np.zeros(self.head.joints.dof * self.rotors)])

    @property
    def shares(self) -> Float[np.ndarray, "dof extras"]:
        """What each joint feels of a column."""
        rotors = np.eye(self.head.joints.dof)[:, : self.head.joints.dof * self.rotors]
        return np.hstack([self.head.transmission[self.motor].T, rotors])

    def rows(
        self, qd: Float[np.ndarray, "time dof"], qdd: Float[np.ndarray, "time dof"], memory: np.ndarray | None
    ) -> Float[np.ndarray, "time extras"]:
        curves = np.asarray(self.head.features(qd, memory))[:, self.column, self.motor]
        return np.hstack([curves, qdd]) if self.rotors else curves

    def friction(self, values: Float[np.ndarray, " extras"]) -> Actuator:
        weights = np.zeros(self.head.weights.value.shape)
        weights[self.column, self.motor] = values[: len(self.column)]
        return Actuator.of(self.head.joints, self.head.settings, weights)


class _Rows(NamedTuple):
    """Rows of the regressor: of the links, of what is beside them, and the torques."""

    links: Float[np.ndarray, "time dof parameters"]
    beside: Float[np.ndarray, "time extras"]
    tau: Float[np.ndarray, "time dof"]


def compress(
    body: RigidBody, dataset: Dataset, extras: Extras, *, windows: bool = False
) -> tuple[Float[np.ndarray, "dof size size"], int]:
    """For each joint the triangular factor of its rows of (Y, friction and rotor columns, τ); and how many rows there
    were, of samples or of windows."""
    dof, shares, count = dataset.dof, extras.shares, 0
    size = 10 * dof + shares.shape[1] + 1
    factors = np.zeros((dof, size, size))
    for part in _of_windows(body, dataset, extras) if windows else _of_samples(body, dataset, extras):
        count += len(part.tau)
        for joint in range(dof):
            stacked = np.empty((size + len(part.tau), size))
            stacked[:size] = factors[joint]
            stacked[size:, : 10 * dof] = part.links[:, joint]
            stacked[size:, 10 * dof : -1] = part.beside * shares[joint]
            stacked[size:, -1] = part.tau[:, joint]
            factors[joint] = triangle(stacked)
    return factors, count


def _of_samples(body: RigidBody, dataset: Dataset, extras: Extras) -> Iterator[_Rows]:
    for part, memory in _parts(dataset, extras.head):
        links = body.regressor_rows(part.q, part.qd, part.qdd)
        yield _Rows(links, extras.rows(part.qd, part.qdd, memory), part.tau)


def _of_windows(body: RigidBody, dataset: Dataset, extras: Extras) -> Iterator[_Rows]:
    """Y integrated by parts: ∫ [φ (−∂𝓛/∂q) − φ′ ∂𝓛/∂q̇] dt is linear in the parameters as τ is."""
    with jax.enable_x64(True):
        every = jax.tree.map(np.asarray, Windows.of(dataset, extras.head.settings))
    dof = dataset.dof
    for first in range(0, len(every), CHUNK // POINTS):
        part = every.rows(slice(first, first + CHUNK // POINTS))
        q, qd = (values.reshape(-1, dof) for values in (part.q, part.qd))
        memory = None if part.memory is None else part.memory.reshape(-1, *part.memory.shape[2:])
        force, momentum = _force_and_momentum(body, q, qd)
        friction = extras.rows(qd, np.zeros_like(qd), memory)
        rotors = np.zeros_like(friction)
        if extras.rotors:
            rotors[:, -dof:] = qd  # their momentum, but for the inertia
        yield _Rows(_integral(part, force, momentum), _integral(part, friction, rotors), part.tau)


def _integral(part: Windows, held: np.ndarray, moving: np.ndarray) -> np.ndarray:
    """∫ [φ · held − φ′ · moving] dt of each window, from the rows of all its moments."""
    held, moving = (values.reshape(*part.window.shape, *values.shape[1:]) for values in (held, moving))
    window, slope = part.window, part.slope
    return np.einsum("wp,wp...->w...", window, held) - np.einsum("wp,wp...->w...", slope, moving)


def _force_and_momentum(
    body: RigidBody, q: Float[np.ndarray, "time dof"], qd: Float[np.ndarray, "time dof"]
) -> tuple[np.ndarray, np.ndarray]:
    """The regressors of −∂𝓛/∂q = c + g − Ḣ q̇ and of ∂𝓛/∂q̇ = H q̇.

    H q̇ is the torque at rest under an acceleration of the size of q̇, without gravity; its change along the motion is
    a central difference over a step so short that the error is that of rounding.
    """
    rest = np.zeros_like(q)

    def momentum(q: np.ndarray) -> np.ndarray:
        return body.regressor_rows(q, rest, qd) - body.regressor_rows(q, rest, rest)

    step = STEP / np.maximum(1.0, np.abs(qd).max(axis=1, keepdims=True))
    change = (momentum(q + step * qd) - momentum(q - step * qd)) / (2 * step[..., None])
    return body.regressor_rows(q, qd, rest) - change, momentum(q)


def _parts(dataset: Dataset, head: Actuator) -> Iterator[tuple[Dataset, np.ndarray | None]]:
    """The samples in chunks, one trajectory after the other, with what stop operators remember at each of them."""
    if dataset.counted is None:  # rows of several trajectories may be mixed
        dataset = dataset.rows(np.argsort(dataset.trajectory, kind="stable"))
    samples, memory = dataset.samples, remembered(head, dataset)
    for first in range(0, len(samples), CHUNK):
        chosen = slice(first, first + CHUNK)
        yield samples.rows(chosen), None if memory is None else memory[chosen]
