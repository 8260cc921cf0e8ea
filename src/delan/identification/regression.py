"""Linear regression of torques: rows of motion, their compression, the solution and its span.

τ = Y θ, with ten parameters θ per link and then those of friction and rotors. Motion becomes rows
of Y, and many rows become one triangular factor per joint. Least squares solves for θ; the span
says which of θ the rows determine.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal, NamedTuple

import jax
import numpy as np
from jaxtyping import Float, Int

from ..joints import Dataset, Joints
from ..models.friction import Friction, FrictionSettings
from ..models.friction_memory import remembered
from ..models.rigid_body import RigidBody
from ..solvers.loss import POINTS, Windows

Identifiable = Literal["alone", "combined", "no"]

# The least noise of a joint relative to its torque: data without noise get finite weights.
NOISE_FLOOR = 1e-6
# A column of the regressor this much smaller than the largest is rounding: nothing is known of
# its parameter.
UNSEEN = 1e-12
# Coefficients and shares of parameters below this are rounding.
SLIGHT = 1e-6
# Samples whose regressor is in memory at once: some MB for 7 joints.
CHUNK = 1024
# Step of the central difference along the motion [rad or m], so short that only rounding errors
# remain.
STEP = 1e-4


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

    def friction(self, values: Float[np.ndarray, " extras"]) -> Friction | None:
        """Return the friction with these values; None without any term."""
        if not self.head.columns:
            return None
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
    rows_of = _of_windows if windows else _of_samples
    for part in rows_of(body, dataset, extras):
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
    if dataset.counted is None:
        # Rows of several trajectories may be mixed, and stop operators follow one at a time.
        dataset = dataset.rows(np.argsort(dataset.trajectory, kind="stable"))
    samples = dataset.samples
    memory = remembered(extras.head, dataset)
    for first in range(0, len(samples), CHUNK):
        rows = slice(first, first + CHUNK)
        part = samples.rows(rows)
        part_memory = None if memory is None else memory[rows]
        links = body.regressor_rows(part.q, part.qd, part.qdd)
        yield _Rows(links, extras.rows(part.qd, part.qdd, part_memory), part.tau)


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
    a central difference.
    """
    rest = np.zeros_like(q)

    def momentum(q: np.ndarray) -> np.ndarray:
        return body.regressor_rows(q, rest, qd) - body.regressor_rows(q, rest, rest)

    step = STEP / np.maximum(1.0, np.abs(qd).max(axis=1, keepdims=True))
    change = (momentum(q + step * qd) - momentum(q - step * qd)) / (2 * step[..., None])
    return body.regressor_rows(q, qd, rest) - change, momentum(q)


def triangle(matrix: np.ndarray) -> np.ndarray:
    """Return R of the QR decomposition, which is all that least squares needs of the rows."""
    return np.asarray(np.linalg.qr(matrix, mode="r"))


def weighted(factors: np.ndarray, noise: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Combine all joints in one triangular factor of unit noise; return its matrix and target."""
    factor = triangle(np.concatenate(factors / noise[:, None, None]))
    return factor[:, :-1], factor[:, -1]


@dataclass(frozen=True, eq=False)
class ParameterEstimate:
    """A least-squares solution with a root of its covariance and the joints' noise [N m or N]."""

    values: Float[np.ndarray, " parameters"]
    root: Float[np.ndarray, "parameters rank"]
    noise: Float[np.ndarray, " dof"]


def reweighted(
    factors: np.ndarray,
    prior: np.ndarray,
    pull: np.ndarray,
    samples: int,
    tolerance: float,
    reweightings: int,
) -> ParameterEstimate:
    """Solve with joints weighted by their torques, then repeatedly by their residual noise."""
    size = _torque_size(factors, samples)
    solution = _solve(*weighted(factors, size), prior, pull, tolerance)
    estimate = ParameterEstimate(*solution, noise=size)
    for _ in range(reweightings):
        noise = np.maximum(residual_std(factors, estimate, samples), NOISE_FLOOR * size)
        solution = _solve(*weighted(factors, noise), prior, pull, tolerance)
        estimate = ParameterEstimate(*solution, noise=noise)
    return estimate


def _solve(
    matrix: np.ndarray, target: np.ndarray, prior: np.ndarray, pull: np.ndarray, tolerance: float
) -> tuple[np.ndarray, np.ndarray]:
    """Minimise |matrix · x − target|² + |pull · (x − prior)|²; return x and a covariance root.

    Among all solutions this is the nearest to the prior, with the distance of each parameter
    measured by the torque it produces.
    """
    rows = np.vstack([matrix, pull])
    residual = np.concatenate([target - matrix @ prior, np.zeros(len(pull))])
    scale = _column_scale(rows)
    left, singular, directions = np.linalg.svd(rows / scale, full_matrices=False)
    rank = int(np.sum(singular > tolerance * singular[0]))
    root = directions[:rank].T / singular[:rank] / scale[:, None]
    return prior + root @ (left[:, :rank].T @ residual), root


def residual_std(factors: np.ndarray, estimate: ParameterEstimate, samples: int) -> np.ndarray:
    """Return each joint's residual standard deviation, corrected for the parameters it fixed."""
    residual = factors[:, :, :-1] @ estimate.values - factors[:, :, -1]
    fixed = np.sum((factors[:, :, :-1] @ estimate.root) ** 2, axis=(1, 2)) / estimate.noise**2
    return np.sqrt(np.sum(residual**2, axis=1) / np.maximum(samples - fixed, 1))


def _torque_size(factors: np.ndarray, samples: int) -> np.ndarray:
    """Return the RMS torque of each joint; a joint without torque gets the largest of all."""
    size = np.linalg.norm(factors[:, :, -1], axis=1) / np.sqrt(samples)
    return np.where(size > 0, size, size.max() or 1.0)


def _column_scale(matrix: np.ndarray) -> np.ndarray:
    """Return the norms of the columns, infinite for rounding, which division then removes."""
    length = np.linalg.norm(matrix, axis=0)
    return np.where(length > UNSEEN * length.max(), length, np.inf)


@dataclass(frozen=True)
class BaseParameter:
    """An identifiable combination: the sum of coefficient × parameter over `terms`."""

    terms: tuple[tuple[str, float], ...]
    value: float
    standard_error: float

    @property
    def name(self) -> str:
        """The combination as a formula, such as `Izz + 0.25 mass`."""
        formula = ""
        for name, factor in self.terms:
            formula += " − " if factor < 0 else " + "
            if abs(abs(factor) - 1) >= SLIGHT:
                formula += f"{abs(factor):.4g} "
            formula += name
        return formula.strip().removeprefix("+ ")


@dataclass(frozen=True, eq=False)
class Span:
    """The identifiable part of a regressor.

    Attributes:
        combinations: the base parameters, one per row.
        condition: of their regressor, with columns scaled to unit length.
        hidden: share of each parameter that lies in the null space.
    """

    combinations: Float[np.ndarray, "rank parameters"]
    condition: float
    hidden: Float[np.ndarray, " parameters"]

    @classmethod
    def of(cls, matrix: Float[np.ndarray, "rows parameters"], tolerance: float) -> "Span":
        """Find rank and null space by singular values.

        Each column that the previous ones do not span gives a base parameter. This choice does not
        depend on motion or noise, and it lumps distal links into proximal ones, as is customary.
        """
        scale = _column_scale(matrix)
        _, singular, directions = np.linalg.svd(matrix / scale)
        rank = int(np.sum(singular > tolerance * singular[0]))
        hidden = np.linalg.norm(directions[rank:], axis=0)
        if rank == 0:
            return cls(np.zeros((0, len(scale))), float("nan"), hidden)
        columns = singular[:rank, None] * directions[:rank]
        chosen = _independent(columns, singular[rank - 1])
        shares = np.linalg.solve(columns[:, chosen], columns)
        ratio = np.where(np.isfinite(scale), scale, 0.0) / scale[chosen, None]
        combinations = np.where(np.abs(shares) > SLIGHT, shares, 0.0) * ratio
        return cls(combinations, float(np.linalg.cond(columns[:, chosen])), hidden)

    @property
    def rank(self) -> int:
        return len(self.combinations)

    def identifiable(self, tolerance: float = SLIGHT) -> tuple[Identifiable, ...]:
        """Return whether the rows determine each parameter alone, only combined, or not at all."""
        kinds: list[Identifiable] = []
        for share in self.hidden:
            if share < tolerance:
                kinds.append("alone")
            elif share > 1 - tolerance**2:
                kinds.append("no")
            else:
                kinds.append("combined")
        return tuple(kinds)

    def base(
        self, names: tuple[str, ...], values: np.ndarray, root: np.ndarray
    ) -> tuple[BaseParameter, ...]:
        """Return the base parameters with their values and standard errors."""
        errors = np.linalg.norm(self.combinations @ root, axis=1)
        parameters = []
        for row, error in zip(self.combinations, errors.tolist(), strict=True):
            terms = tuple((names[i], float(row[i])) for i in np.flatnonzero(row))
            parameters.append(BaseParameter(terms, float(row @ values), error))
        return tuple(parameters)


def _independent(columns: Float[np.ndarray, "rank parameters"], smallest: float) -> list[int]:
    """Return the first columns that span the space, by Gram–Schmidt.

    `smallest` is the smallest singular value. If all columns were closer to a proper subspace than
    that over √parameters, so would be the whole matrix: none is missed.
    """
    basis = np.zeros((len(columns), 0))
    chosen = []
    for index, column in enumerate(columns.T):
        for _ in range(2):  # twice is enough (Kahan)
            column = column - basis @ (basis.T @ column)
        length = np.linalg.norm(column)
        if len(chosen) < len(columns) and length > SLIGHT * smallest:
            basis = np.column_stack([basis, column / length])
            chosen.append(index)
    return chosen
