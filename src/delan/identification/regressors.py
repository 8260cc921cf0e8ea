"""Regressor columns: the torque along a motion per unit of each parameter."""

from collections.abc import Iterator
from typing import NamedTuple

import jax
import numpy as np
from jaxtyping import Float, Int

from ..joints import Dataset, Joints
from ..models.friction import Friction, FrictionSettings
from ..models.rigid_body import RigidBody
from ..solvers.friction_memory import remembered
from ..solvers.windows import POINTS, Windows
from .regression import triangle

CHUNK = 1024  # samples whose regressor is in memory at once
STEP = 1e-4  # of the central difference along the motion [rad or m]


class Extras(NamedTuple):
    """The columns of friction and rotors, which follow those of the links.

    Attributes:
        head: a `Friction` with the terms to identify.
        column, motor: place of each friction parameter among the weights of the actuator.
        rotors: whether each joint has a column for its rotor.
    """

    head: Friction
    column: Int[np.ndarray, " friction"]
    motor: Int[np.ndarray, " friction"]
    rotors: bool

    @classmethod
    def of(cls, joints: Joints, terms: FrictionSettings, rotors: bool) -> "Extras":
        motors = joints.dof + len(terms.pairs)
        head = Friction.of(joints, terms, np.zeros((len(terms.columns), motors)))
        column, motor = np.nonzero(head.acting)
        return cls(head, column, motor, rotors)

    @property
    def names(self) -> tuple[str, ...]:
        names = []
        for column, motor in zip(self.column, self.motor, strict=True):
            names.append(f"{self.head.motors[motor]} {self.head.columns[column]}")
        if self.rotors:
            names += [f"{joint} armature" for joint in self.head.joints.names]
        return tuple(names)

    @property
    def lower(self) -> Float[np.ndarray, " extras"]:
        """Lower bounds: friction and rotors are not negative; an offset may be."""
        is_offset = np.array(self.head.columns, dtype=str)[self.column] == "offset"
        rotors = np.zeros(self.head.joints.dof * self.rotors)
        return np.concatenate([np.where(is_offset, -np.inf, 0.0), rotors])

    @property
    def shares(self) -> Float[np.ndarray, "dof extras"]:
        """The share of each column that acts on each joint."""
        rotors = np.eye(self.head.joints.dof)[:, : self.head.joints.dof * self.rotors]
        return np.hstack([self.head.transmission[self.motor].T, rotors])

    def rows(
        self,
        qd: Float[np.ndarray, "time dof"],
        qdd: Float[np.ndarray, "time dof"],
        memory: np.ndarray | None,
    ) -> Float[np.ndarray, "time extras"]:
        curves = np.asarray(self.head.features(qd, memory))[:, self.column, self.motor]
        return np.hstack([curves, qdd]) if self.rotors else curves

    def friction(self, values: Float[np.ndarray, " extras"]) -> Friction:
        weights = np.zeros(self.head.weights.value.shape)
        weights[self.column, self.motor] = values[: len(self.column)]
        return Friction.of(self.head.joints, self.head.settings, weights)


class _Rows(NamedTuple):
    """Rows of the regressor for links and extras, and the torques."""

    links: Float[np.ndarray, "time dof parameters"]
    extras: Float[np.ndarray, "time extras"]
    tau: Float[np.ndarray, "time dof"]


def compress(
    body: RigidBody, dataset: Dataset, extras: Extras, *, windows: bool = False
) -> tuple[Float[np.ndarray, "dof size size"], int]:
    """Return the triangular factor of (Y, extras, τ) of each joint, and the number of rows.

    Rows are samples, or windows if asked for.
    """
    dof = dataset.dof
    shares = extras.shares
    size = 10 * dof + shares.shape[1] + 1
    factors = np.zeros((dof, size, size))
    count = 0
    rows = _of_windows if windows else _of_samples
    for part in rows(body, dataset, extras):
        count += len(part.tau)
        for joint in range(dof):
            stacked = np.empty((size + len(part.tau), size))
            stacked[:size] = factors[joint]
            stacked[size:, : 10 * dof] = part.links[:, joint]
            stacked[size:, 10 * dof : -1] = part.extras * shares[joint]
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
        windows = jax.tree.map(np.asarray, Windows.of(dataset, extras.head.settings))
    dof = dataset.dof
    for first in range(0, len(windows), CHUNK // POINTS):
        part = windows.rows(slice(first, first + CHUNK // POINTS))
        q = part.q.reshape(-1, dof)
        qd = part.qd.reshape(-1, dof)
        memory = None if part.memory is None else part.memory.reshape(-1, *part.memory.shape[2:])
        force, momentum = _force_and_momentum(body, q, qd)
        friction = extras.rows(qd, np.zeros_like(qd), memory)
        rotors = np.zeros_like(friction)
        if extras.rotors:
            rotors[:, -dof:] = qd  # their momentum per unit of inertia
        yield _Rows(_integral(part, force, momentum), _integral(part, friction, rotors), part.tau)


def _integral(part: Windows, force: np.ndarray, momentum: np.ndarray) -> np.ndarray:
    """Return ∫ [φ · force − φ′ · momentum] dt of each window, from rows at all of its points."""
    shape = part.window.shape
    force = force.reshape(*shape, *force.shape[1:])
    momentum = momentum.reshape(*shape, *momentum.shape[1:])
    return np.einsum("wp,wp...->w...", part.window, force) - np.einsum(
        "wp,wp...->w...", part.slope, momentum
    )


def _force_and_momentum(
    body: RigidBody, q: Float[np.ndarray, "time dof"], qd: Float[np.ndarray, "time dof"]
) -> tuple[np.ndarray, np.ndarray]:
    """Return the regressors of −∂𝓛/∂q = c + g − Ḣ q̇ and of ∂𝓛/∂q̇ = H q̇.

    H q̇ is the torque at rest for the acceleration q̇ without gravity. Its rate along the motion is
    a central difference with a step so short that only rounding errors remain.
    """
    rest = np.zeros_like(q)

    def momentum(q: np.ndarray) -> np.ndarray:
        return body.regressor_rows(q, rest, qd) - body.regressor_rows(q, rest, rest)

    step = STEP / np.maximum(1.0, np.abs(qd).max(axis=1, keepdims=True))
    change = (momentum(q + step * qd) - momentum(q - step * qd)) / (2 * step[..., None])
    return body.regressor_rows(q, qd, rest) - change, momentum(q)


def _parts(dataset: Dataset, head: Friction) -> Iterator[tuple[Dataset, np.ndarray | None]]:
    """Yield the samples in chunks, trajectory by trajectory, with the states of stop operators."""
    if dataset.counted is None:  # rows of several trajectories may be mixed
        dataset = dataset.rows(np.argsort(dataset.trajectory, kind="stable"))
    samples = dataset.samples
    memory = remembered(head, dataset)
    for first in range(0, len(samples), CHUNK):
        rows = slice(first, first + CHUNK)
        yield samples.rows(rows), None if memory is None else memory[rows]
