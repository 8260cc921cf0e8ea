"""Links that can exist: least squares over inertial parameters whose mass distribution is positive everywhere.

A link can exist if and only if its pseudo-inertia J = ∫ (r, 1)(r, 1)ᵀ dm is positive definite (Wensing, Kim, Slotine
2018). J = U₀ L Lᵀ U₀ᵀ with the prior's upper Cholesky factor U₀ and an upper triangular L with exponentials on its
diagonal covers exactly those links (log-Cholesky coordinates, Rucker and Wensing 2022), without units and with the
prior at zero. The squared error is convex over these links and the coordinates are smooth and one to one, so that the
search meets no false minimum.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Bool, Float
from scipy.optimize import least_squares

from ..errors import ModelError

WEAK_SPREAD = 1e3
"""How far, in coordinates without units, a prior that only keeps the search regular lets the parameters go."""
INSIDE = 1e-3
"""Least second moment of a repaired link about its centre, as a share of the largest."""
PLAIN_LINK = np.array([1.0, 0.0, 0.0, 0.0, 4e-3, 0.0, 4e-3, 0.0, 0.0, 4e-3])
"""A ball of 1 kg and 10 cm about the joint, for a link of which the URDF tells no mass."""
DIAGONAL = np.arange(4)
ABOVE = np.triu_indices(4, 1)
FLATTEST = -7.0
"""The least logarithm on the diagonal of L: a link is never thinner than e⁻⁷ of the prior, so that rounding keeps it
possible where noise drives it to the edge."""
STEPS = 300
"""Steps of the search at most; one costs 2 ms for 7 joints, whatever the number of samples."""

Links = Float[np.ndarray, "links 10"]
Matrices = Float[np.ndarray, "links 4 4"]


def pseudo_inertias(links: Links) -> Matrices:
    """J = [[Σ, m c], [m cᵀ, m]] of each link, with Σ = ½ tr(I) 1 − I [kg m²], from `LINK_PARAMETERS`."""
    mass, x, y, z, xx, xy, yy, xz, yz, zz = links.T
    half = (xx + yy + zz) / 2
    rows = [[half - xx, -xy, -xz, x], [-xy, half - yy, -yz, y], [-xz, -yz, half - zz, z], [x, y, z, mass]]
    return np.moveaxis(np.array(rows), -1, 0)


def link_parameters(matrices: Float[np.ndarray, "*batch 4 4"]) -> Float[np.ndarray, "*batch 10"]:
    """Undoes `pseudo_inertias`: I = tr(Σ) 1 − Σ. Linear, and so its own derivative."""
    xx, yy, zz = (matrices[..., i, i] for i in range(3))
    x, y, z, mass = (matrices[..., i, 3] for i in range(4))
    xy, xz, yz = matrices[..., 0, 1], matrices[..., 0, 2], matrices[..., 1, 2]
    return np.stack([mass, x, y, z, yy + zz, -xy, xx + zz, -xz, -yz, xx + yy], axis=-1)


def is_possible(links: Links) -> Bool[np.ndarray, " links"]:
    """Which links have a positive definite pseudo-inertia. A scale of its own for each row keeps small links exact."""
    matrices = pseudo_inertias(links)
    diagonal = np.diagonal(matrices, axis1=1, axis2=2)
    size = np.sqrt(np.where(diagonal > 0, diagonal, 1.0))
    smallest = np.linalg.eigvalsh(matrices / (size[:, :, None] * size[:, None, :]))[:, 0]
    return (diagonal > 0).all(axis=1) & (smallest > 0)


def made_possible(links: Links) -> Links:
    """The links with impossible ones put right: moments about the centre raised, or a plain ball without mass."""
    return np.array([link if good else _repaired(link) for link, good in zip(links, is_possible(links), strict=True)])


def _repaired(link: Float[np.ndarray, " 10"]) -> Float[np.ndarray, " 10"]:
    if link[0] <= 0:
        return PLAIN_LINK
    matrix = pseudo_inertias(link[None])[0]
    away = np.outer(link[1:4], link[1:4]) / link[0]
    moments, axes = np.linalg.eigh(matrix[:3, :3] - away)
    largest = moments[-1] if moments[-1] > 0 else link[0] * PLAIN_LINK[4] / 2
    matrix[:3, :3] = (axes * np.maximum(moments, INSIDE * largest)) @ axes.T + away
    return link_parameters(matrix)


@dataclass(frozen=True, eq=False)
class Coordinates:
    """Log-Cholesky coordinates of links relative to possible ones: ten numbers a link, zero at those."""

    origin: Matrices

    @classmethod
    def around(cls, links: Links) -> "Coordinates":
        return cls(_upper_cholesky(pseudo_inertias(links)))

    def of(self, links: Links) -> Links:
        """The coordinates of possible links."""
        factor = np.linalg.solve(self.origin, _upper_cholesky(pseudo_inertias(links)))
        return np.concatenate([np.log(factor[:, DIAGONAL, DIAGONAL]), factor[:, *ABOVE]], axis=1)

    def links(self, coordinates: Links) -> Links:
        """The links at coordinates, possible wherever those are."""
        factor = self.origin @ self._factor(coordinates)
        return link_parameters(factor @ factor.swapaxes(1, 2))

    def derivative(self, coordinates: Links) -> Float[np.ndarray, "links 10 10"]:
        """∂ parameters / ∂ coordinates of each link: dJ = U₀ (dL Lᵀ + L dLᵀ) U₀ᵀ."""
        factor = self._factor(coordinates)
        step = np.zeros((len(coordinates), 10, 4, 4))
        step[:, DIAGONAL, DIAGONAL, DIAGONAL] = np.exp(coordinates[:, :4])
        step[:, np.arange(4, 10), *ABOVE] = 1
        origin = self.origin[:, None]
        half = origin @ step @ factor.swapaxes(1, 2)[:, None] @ origin.swapaxes(2, 3)
        return link_parameters(half + half.swapaxes(2, 3)).swapaxes(1, 2)

    @staticmethod
    def _factor(coordinates: Links) -> Matrices:
        factor = np.zeros((len(coordinates), 4, 4))
        factor[:, DIAGONAL, DIAGONAL] = np.exp(coordinates[:, :4])
        factor[:, *ABOVE] = coordinates[:, 4:]
        return factor


def _upper_cholesky(matrices: Matrices) -> Matrices:
    """U, upper triangular with a positive diagonal, such that U Uᵀ is the matrix."""
    return np.linalg.cholesky(matrices[:, ::-1, ::-1])[:, ::-1, ::-1]


def solve_possible(
    matrix: Float[np.ndarray, "rows parameters"],
    target: Float[np.ndarray, " rows"],
    prior: Links,
    guess: Float[np.ndarray, " parameters"],
    *,
    lower: Float[np.ndarray, " extras"],
    spread: float | None,
) -> Float[np.ndarray, " parameters"]:
    """The parameters that make |matrix · parameters − target|² + |coordinates / spread|² smallest among possible ones.

    Args:
        matrix, target: rows of unit noise, such as a triangular factor of many weighted samples.
        prior: possible links, which the coordinates start from.
        guess: parameters, ten a link and then the extras (friction, rotors); the search starts at the last possible
            point on the way there from the prior.
        lower: bounds of the extras from below, 0 or −∞; only a weak pull to zero acts on them.
        spread: how far from the prior the links may be, about as a share of it; None for a pull that is only felt where
            the rows tell nothing.
    """
    count = prior.size
    coordinates = Coordinates.around(prior)
    size = np.linalg.norm(matrix[:, count:], axis=0)
    units = np.where(size > 0, np.linalg.norm(target) / np.where(size > 0, size, 1.0), 1.0)
    pull = np.concatenate([np.full(count, 1 / (spread or WEAK_SPREAD)), np.full(len(units), 1 / WEAK_SPREAD)])

    def parameters(point: np.ndarray) -> np.ndarray:
        links = coordinates.links(point[:count].reshape(prior.shape))
        return np.concatenate([links.ravel(), point[count:] * units])

    def residual(point: np.ndarray) -> np.ndarray:
        return np.concatenate([matrix @ parameters(point) - target, pull * point])

    def jacobian(point: np.ndarray) -> np.ndarray:
        slopes = coordinates.derivative(point[:count].reshape(prior.shape))
        blocks = matrix[:, :count].reshape(len(matrix), *prior.shape)
        links = np.einsum("rlp,lpc->rlc", blocks, slopes).reshape(len(matrix), count)
        return np.vstack([np.hstack([links, matrix[:, count:] * units]), np.diag(pull)])

    edge = np.concatenate([np.tile([FLATTEST] * 4 + [-np.inf] * 6, len(prior)), lower])
    inside = coordinates.of(_last_possible(prior, guess[:count].reshape(prior.shape)))
    start = np.maximum(np.concatenate([inside.ravel(), guess[count:] / units]), edge)
    search: Any = least_squares  # its stub knows no Jacobian but by name
    found = search(residual, start, jacobian, bounds=(edge, np.inf), ftol=1e-6, xtol=1e-12, gtol=1e-12, max_nfev=STEPS)
    if not np.isfinite(found.x).all():
        raise ModelError("the search for possible links found no finite ones; check the units of the data")
    return parameters(found.x)


def _last_possible(prior: Links, guess: Links) -> Links:
    """A point on the line from the prior to the guess that is well inside of what is possible."""
    for share in (1.0, *0.9 ** np.arange(2, 40)):
        links = prior + share * (guess - prior)
        if is_possible(links).all():
            return links
    return prior
