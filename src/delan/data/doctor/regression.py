"""Least squares that know how sure they are: every weight and every error is judged by parts of the log left out."""

from dataclasses import dataclass

import numpy as np
from jaxtyping import Float

PARTS = 8
"""The log is cut into so many parts, each left out in turn."""
RIDGE = 1e-8
"""Added to the diagonal of the normal equations, in units of its mean: columns that are sums of others share."""


@dataclass(frozen=True, eq=False)
class Fit:
    """Weights of features, for several targets at once.

    Attributes:
        weights: of all rows; without: of all rows but those of each part.
        left: squares of what each part's targets differ from the weights found without it, summed over the part.
    """

    weights: Float[np.ndarray, "features targets"]
    without: Float[np.ndarray, "parts features targets"]
    left: Float[np.ndarray, "parts targets"]

    @property
    def errors(self) -> Float[np.ndarray, "features targets"]:
        """Standard errors of the weights, by the jackknife."""
        spread = self.without - self.without.mean(axis=0)
        return np.sqrt((PARTS - 1) / PARTS * np.sum(spread**2, axis=0))


class Regression:
    """The normal equations of some features, ready for any targets."""

    def __init__(self, features: Float[np.ndarray, "samples features"]):
        self.count = features.shape[1]
        self._parts = np.array_split(features, PARTS)
        self._grams = np.stack([part.T @ part for part in self._parts])
        whole = self._grams.sum(axis=0)
        self._ridge = RIDGE * float(np.trace(whole)) / self.count * np.eye(self.count)
        self._inverse = np.linalg.pinv(whole + self._ridge, hermitian=True)
        self._inverses = [np.linalg.pinv(whole - gram + self._ridge, hermitian=True) for gram in self._grams]

    @property
    def alone(self) -> Float[np.ndarray, " features"]:
        """The sum of squares of each feature that no combination of the others explains."""
        return 1 / np.maximum(np.diag(self._inverse), 1e-300)

    def fit(self, targets: Float[np.ndarray, "samples targets"]) -> Fit:
        rows = np.array_split(targets, PARTS)
        crosses = np.stack([part.T @ own for part, own in zip(self._parts, rows, strict=True)])
        whole = crosses.sum(axis=0)
        without = np.stack([inverse @ (whole - own) for inverse, own in zip(self._inverses, crosses, strict=True)])
        errors = (own - part @ found for own, part, found in zip(rows, self._parts, without, strict=True))
        return Fit(self._inverse @ whole, without, np.stack([np.sum(error**2, axis=0) for error in errors]))
