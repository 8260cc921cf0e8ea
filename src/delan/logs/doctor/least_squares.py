"""Linear least squares with cross-validation: each part of the log is left out in turn."""

from dataclasses import dataclass

import numpy as np
from jaxtyping import Float

# Number of parts into which the log is cut.
PARTS = 8
# Added to the diagonal of the normal equations, in units of its mean, so that linearly dependent
# columns share their weight.
RIDGE = 1e-8


@dataclass(frozen=True, eq=False)
class CrossValidatedFit:
    """Weights of features, for several targets at once.

    Attributes:
        weights: weights fitted to all rows.
        without: weights fitted to all rows except those of each part.
        residual: sum of squared residuals of each part, with the weights fitted without it.
    """

    weights: Float[np.ndarray, "features targets"]
    without: Float[np.ndarray, "parts features targets"]
    residual: Float[np.ndarray, "parts targets"]

    @property
    def errors(self) -> Float[np.ndarray, "features targets"]:
        """Standard errors of the weights, from the jackknife."""
        deviation = self.without - self.without.mean(axis=0)
        return np.sqrt((PARTS - 1) / PARTS * np.sum(deviation**2, axis=0))


class Regression:
    """Normal equations of a set of features, to be solved for any targets."""

    def __init__(self, features: Float[np.ndarray, "samples features"]):
        count = features.shape[1]
        self._parts = np.array_split(features, PARTS)
        grams = np.stack([part.T @ part for part in self._parts])
        whole = grams.sum(axis=0)
        ridge = RIDGE * float(np.trace(whole)) / count * np.eye(count)
        self._inverse = np.linalg.pinv(whole + ridge, hermitian=True)
        self._inverses = [np.linalg.pinv(whole - gram + ridge, hermitian=True) for gram in grams]

    @property
    def unique(self) -> Float[np.ndarray, " features"]:
        """Sum of squares of each feature that no combination of the others explains."""
        return 1 / np.maximum(np.diag(self._inverse), 1e-300)

    def fit(self, targets: Float[np.ndarray, "samples targets"]) -> CrossValidatedFit:
        """Fit the weights to all rows, and to all rows but those of each part."""
        target_parts = np.array_split(targets, PARTS)
        pairs = list(zip(self._parts, target_parts, strict=True))
        crosses = np.stack([part.T @ target for part, target in pairs])
        whole = crosses.sum(axis=0)
        without = []
        residual = []
        for inverse, cross, (part, target) in zip(self._inverses, crosses, pairs, strict=True):
            weights = inverse @ (whole - cross)
            without.append(weights)
            residual.append(np.sum((target - part @ weights) ** 2, axis=0))
        return CrossValidatedFit(self._inverse @ whole, np.stack(without), np.stack(residual))
