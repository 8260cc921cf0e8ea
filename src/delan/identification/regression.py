"""Linear least squares with many rows and parameters of which only some are identifiable."""

from dataclasses import dataclass
from typing import Literal

import numpy as np
from jaxtyping import Float

Identifiable = Literal["alone", "combined", "no"]

# The least noise of a joint relative to its torque: data without noise get finite weights.
NOISE_FLOOR = 1e-6
# A column of the regressor this much smaller than the largest is rounding: nothing is known of
# its parameter.
UNSEEN = 1e-12
# Coefficients and shares of parameters below this are rounding.
SLIGHT = 1e-6


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
            size = "" if abs(abs(factor) - 1) < SLIGHT else f"{abs(factor):.4g} "
            formula += f" {'−' if factor < 0 else '+'} {size}{name}"
        return formula.strip().removeprefix("+ ")


@dataclass(frozen=True, eq=False)
class ParameterEstimate:
    """A least-squares solution with a root of its covariance and the joints' noise [N m or N]."""

    values: Float[np.ndarray, " parameters"]
    root: Float[np.ndarray, "parameters rank"]
    noise: Float[np.ndarray, " dof"]


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

    @property
    def identifiable(self) -> tuple[Identifiable, ...]:
        """Whether the rows determine each parameter alone, only combined, or not at all."""
        return classify(self.hidden, SLIGHT)

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


def classify(
    hidden: Float[np.ndarray, " parameters"], tolerance: float
) -> tuple[Identifiable, ...]:
    """Classify parameters by the share of each that is hidden."""
    kinds: list[Identifiable] = []
    for share in hidden:
        if share < tolerance:
            kinds.append("alone")
        elif share > 1 - tolerance**2:
            kinds.append("no")
        else:
            kinds.append("combined")
    return tuple(kinds)


def weighted(factors: np.ndarray, noise: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Combine all joints in one triangular factor of unit noise; return its matrix and target."""
    factor = triangle(np.concatenate(factors / noise[:, None, None]))
    return factor[:, :-1], factor[:, -1]


def triangle(matrix: np.ndarray) -> np.ndarray:
    """Return R of the QR decomposition, which is all that least squares needs of the rows."""
    return np.asarray(np.linalg.qr(matrix, mode="r"))


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
    largest = size.max()
    return np.where(size > 0, size, largest if largest > 0 else 1.0)


def _column_scale(matrix: np.ndarray) -> np.ndarray:
    """Return the norms of the columns, infinite for rounding, which division then removes."""
    length = np.linalg.norm(matrix, axis=0)
    return np.where(length > UNSEEN * length.max(), length, np.inf)


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
