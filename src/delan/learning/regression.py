"""Linear least squares for many rows and few, partly hidden parameters: what rows tell, and how well."""

from dataclasses import dataclass
from typing import Literal

import numpy as np
from jaxtyping import Float

Identifiable = Literal["alone", "combined", "no"]

NOISE_FLOOR = 1e-6
"""The least noise of a joint, as a share of its torque, so that data without noise get finite weights."""
UNSEEN = 1e-12
"""A column of the regressor so much smaller than the largest is rounding, and nothing is known of its parameter."""
SLIGHT = 1e-6
"""A coefficient or a share of a parameter so small is rounding."""


@dataclass(frozen=True)
class BaseParameter:
    """A combination of parameters that the data tell: the sum of coefficient × parameter over `terms`."""

    terms: tuple[tuple[str, float], ...]
    value: float
    standard_error: float

    @property
    def name(self) -> str:
        parts = [f"{'−' if factor < 0 else '+'} {_coefficient(factor)}{name}" for name, factor in self.terms]
        return " ".join(parts).removeprefix("+ ")


@dataclass(frozen=True, eq=False)
class Estimate:
    """A least-squares solution, a root of its covariance, and the noise by which joints were weighted [N m or N]."""

    values: Float[np.ndarray, " parameters"]
    root: Float[np.ndarray, "parameters rank"]
    noise: Float[np.ndarray, " dof"]


@dataclass(frozen=True, eq=False)
class Span:
    """What a regressor tells: base parameters as rows of `combinations`; `hidden` is the share it hides of each one."""

    combinations: Float[np.ndarray, "rank parameters"]
    condition: float
    hidden: Float[np.ndarray, " parameters"]

    @classmethod
    def of(cls, matrix: Float[np.ndarray, "rows parameters"], tolerance: float) -> "Span":
        """Rank and null space by singular values; a base parameter for each column that the ones before do not span.

        Motion and noise leave that choice alone, and far links are counted to near ones, as is the custom.
        """
        scale = _column_scale(matrix)
        _, singular, directions = np.linalg.svd(matrix / scale)
        rank = int(np.sum(singular > tolerance * singular[0]))
        columns = singular[:rank, None] * directions[:rank]
        chosen = _independent(columns, singular[rank - 1])
        combinations = np.zeros((rank, len(scale)))
        if rank:
            shares = np.linalg.solve(columns[:, chosen], columns)
            ratio = np.where(np.isfinite(scale), scale, 0.0) / scale[chosen, None]
            combinations = np.where(np.abs(shares) > SLIGHT, shares, 0.0) * ratio
        condition = float(np.linalg.cond(columns[:, chosen])) if rank else float("nan")
        return cls(combinations, condition, np.linalg.norm(directions[rank:], axis=0))

    @property
    def rank(self) -> int:
        return len(self.combinations)

    @property
    def identifiable(self) -> tuple[Identifiable, ...]:
        """A parameter lies wholly in what can be told, partly, or not at all."""
        return tuple("alone" if one < SLIGHT else "no" if one > 1 - SLIGHT**2 else "combined" for one in self.hidden)

    def base(self, names: tuple[str, ...], values: np.ndarray, root: np.ndarray) -> tuple[BaseParameter, ...]:
        """The base parameters with their values and standard errors."""
        errors = np.linalg.norm(self.combinations @ root, axis=1)
        return tuple(
            BaseParameter(
                terms=tuple((names[i], float(row[i])) for i in np.flatnonzero(row)),
                value=float(row @ values),
                standard_error=float(error),
            )
            for row, error in zip(self.combinations, errors, strict=True)
        )


def weighted(factors: np.ndarray, noise: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """All joints in one triangular factor of unit noise, as matrix and target."""
    factor = triangle(np.concatenate(factors / noise[:, None, None]))
    return factor[:, :-1], factor[:, -1]


def triangle(matrix: np.ndarray) -> np.ndarray:
    """R of the QR decomposition: all that least squares need of the rows."""
    return np.asarray(np.linalg.qr(matrix, mode="r"))


def reweighted(
    factors: np.ndarray, prior: np.ndarray, pull: np.ndarray, samples: int, tolerance: float, reweightings: int
) -> Estimate:
    """Least squares with joints weighted by their torques, and then again by the noise that they turn out to have."""
    size = _torque_size(factors, samples)
    estimate = Estimate(*_solve(*weighted(factors, size), prior, pull, tolerance), size)
    for _ in range(reweightings):
        noise = np.maximum(residual_std(factors, estimate, samples), NOISE_FLOOR * size)
        estimate = Estimate(*_solve(*weighted(factors, noise), prior, pull, tolerance), noise)
    return estimate


def _solve(
    matrix: np.ndarray, target: np.ndarray, prior: np.ndarray, pull: np.ndarray, tolerance: float
) -> tuple[np.ndarray, np.ndarray]:
    """Least squares over the rows and pull · (parameters − prior), and a root of the covariance.

    Of all solutions it is the one nearest to the prior, where a parameter's way is measured by the torque it makes.
    """
    rows = np.vstack([matrix, pull])
    missing = np.concatenate([target - matrix @ prior, np.zeros(len(pull))])
    scale = _column_scale(rows)
    left, singular, directions = np.linalg.svd(rows / scale, full_matrices=False)
    rank = int(np.sum(singular > tolerance * singular[0]))
    root = directions[:rank].T / singular[:rank] / scale[:, None]
    return prior + root @ (left[:, :rank].T @ missing), root


def residual_std(factors: np.ndarray, estimate: Estimate, samples: int) -> np.ndarray:
    """Of each joint, over the samples less the parameters that its own rows settled."""
    residual = factors[:, :, :-1] @ estimate.values - factors[:, :, -1]
    settled = np.sum((factors[:, :, :-1] @ estimate.root) ** 2, axis=(1, 2)) / estimate.noise**2
    return np.sqrt(np.sum(residual**2, axis=1) / np.maximum(samples - settled, 1))


def _torque_size(factors: np.ndarray, samples: int) -> np.ndarray:
    """Root mean square of each joint's torque; a joint without torque takes that of the strongest."""
    size = np.linalg.norm(factors[:, :, -1], axis=1) / np.sqrt(samples)
    return np.where(size > 0, size, size.max() if size.max() > 0 else 1.0)


def _column_scale(matrix: np.ndarray) -> np.ndarray:
    """Lengths of the columns; infinite for one that is nothing but rounding, which dividing then takes away."""
    length = np.linalg.norm(matrix, axis=0)
    return np.where(length > UNSEEN * length.max(), length, np.inf)


def _independent(columns: Float[np.ndarray, "rank parameters"], smallest: float) -> list[int]:
    """The first columns that span the whole space, by Gram and Schmidt; `smallest` is their smallest singular value.

    If all columns were closer to a lesser space than that over √parameters, so would be the whole: none is missed.
    """
    spanned, chosen = np.zeros((len(columns), 0)), []
    for index, column in enumerate(columns.T):
        for _ in range(2):  # twice is enough (Kahan)
            column = column - spanned @ (spanned.T @ column)
        length = np.linalg.norm(column)
        if len(chosen) < len(columns) and length > SLIGHT * smallest:
            spanned = np.column_stack([spanned, column / length])
            chosen.append(index)
    return chosen


def _coefficient(factor: float) -> str:
    return "" if abs(abs(factor) - 1) < SLIGHT else f"{abs(factor):.4g} "
