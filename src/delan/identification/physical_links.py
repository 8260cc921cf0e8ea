"""Least squares over physically consistent links, whose mass density is nowhere negative.

A link is consistent if and only if its pseudo-inertia J = ∫ (r, 1)(r, 1)ᵀ dm is positive definite
(Wensing, Kim, Slotine 2018). J = U₀ L Lᵀ U₀ᵀ, with the prior's upper Cholesky factor U₀ and an
upper triangular L with exponentials on its diagonal, covers exactly those links (log-Cholesky
coordinates, Rucker and Wensing 2022); the coordinates have no units and are zero at the prior. The
squared error is convex over these links and the coordinates are smooth and one to one, so that
there are no local minima.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Bool, Float
from scipy.optimize import least_squares

from ..errors import ModelError
from ..joints import nonzero_scale

# Standard deviation, in the coordinates, of a prior that only regularises the search.
WEAK_SPREAD = 1e3
# Least second moment of a repaired link about its centre, relative to the largest.
INSIDE = 1e-3
# A ball of 1 kg and 10 cm about the joint, for a link without mass in the URDF.
PLAIN_LINK = np.array([1.0, 0.0, 0.0, 0.0, 4e-3, 0.0, 4e-3, 0.0, 0.0, 4e-3])
# The least logarithm on the diagonal of L: a link is never thinner than e⁻⁷ of the prior, so that
# rounding keeps it consistent where noise drives it to the boundary.
FLATTEST = -7.0
# Largest number of steps; one takes 2 ms for 7 joints, whatever the number of samples.
STEPS = 300
# Places of the coordinates in L.
DIAGONAL = np.arange(4)
ABOVE = np.triu_indices(4, 1)

Links = Float[np.ndarray, "links 10"]
Matrices = Float[np.ndarray, "links 4 4"]


def pseudo_inertias(links: Links) -> Matrices:
    """Return J = [[Σ, m c], [m cᵀ, m]] of each link, with Σ = ½ tr(I) 1 − I [kg m²]."""
    mass, x, y, z, xx, xy, yy, xz, yz, zz = links.T
    half = (xx + yy + zz) / 2
    rows = [
        [half - xx, -xy, -xz, x],
        [-xy, half - yy, -yz, y],
        [-xz, -yz, half - zz, z],
        [x, y, z, mass],
    ]
    return np.moveaxis(np.array(rows), -1, 0)


def link_parameters(matrices: Float[np.ndarray, "*batch 4 4"]) -> Float[np.ndarray, "*batch 10"]:
    """Invert `pseudo_inertias`: I = tr(Σ) 1 − Σ. Linear, hence its own derivative."""
    xx, yy, zz, mass = np.moveaxis(np.diagonal(matrices, axis1=-2, axis2=-1), -1, 0)
    xy, xz, x, yz, y, z = np.moveaxis(matrices[..., *ABOVE], -1, 0)
    return np.stack([mass, x, y, z, yy + zz, -xy, xx + zz, -xz, -yz, xx + yy], axis=-1)


def is_physical(links: Links) -> Bool[np.ndarray, " links"]:
    """Return which links have a positive definite pseudo-inertia."""
    matrices = pseudo_inertias(links)
    diagonal = np.diagonal(matrices, axis1=1, axis2=2)
    # Scaling every row keeps the test exact for small links.
    size = np.sqrt(nonzero_scale(diagonal))
    smallest = np.linalg.eigvalsh(matrices / (size[:, :, None] * size[:, None, :]))[:, 0]
    return (diagonal > 0).all(axis=1) & (smallest > 0)


def repaired_links(links: Links) -> Links:
    """Return the links with inconsistent ones repaired: larger moments, or a ball if massless."""
    links = np.array(links)
    for index in np.flatnonzero(~is_physical(links)):
        links[index] = _repaired(links[index])
    return links


def _repaired(link: Float[np.ndarray, " 10"]) -> Float[np.ndarray, " 10"]:
    if link[0] <= 0:
        return PLAIN_LINK
    matrix = pseudo_inertias(link[None])[0]
    steiner = np.outer(link[1:4], link[1:4]) / link[0]
    moments, axes = np.linalg.eigh(matrix[:3, :3] - steiner)
    largest = moments[-1]
    if largest <= 0:
        largest = link[0] * PLAIN_LINK[4] / 2
    matrix[:3, :3] = (axes * np.maximum(moments, INSIDE * largest)) @ axes.T + steiner
    return link_parameters(matrix)


@dataclass(frozen=True, eq=False)
class Coordinates:
    """Log-Cholesky coordinates, ten per link, relative to consistent links at zero."""

    origin: Matrices

    @classmethod
    def around(cls, links: Links) -> "Coordinates":
        return cls(_upper_cholesky(pseudo_inertias(links)))

    def of(self, links: Links) -> Links:
        """Return the coordinates of consistent links."""
        factor = np.linalg.solve(self.origin, _upper_cholesky(pseudo_inertias(links)))
        return np.concatenate([np.log(factor[:, DIAGONAL, DIAGONAL]), factor[:, *ABOVE]], axis=1)

    def links(self, coordinates: Links) -> Links:
        """Return the links at any coordinates; they are always consistent."""
        factor = self.factors(coordinates)
        return link_parameters(factor @ factor.swapaxes(1, 2))

    def factors(self, coordinates: Links) -> Matrices:
        """Return U₀ L, a root of the pseudo-inertia of each link."""
        return self.origin @ self._factor(coordinates)

    def factor_slopes(self, coordinates: Links) -> Float[np.ndarray, "links 10 4 4"]:
        """Return U₀ ∂L / ∂ coordinates."""
        step = np.zeros((len(coordinates), 10, 4, 4))
        step[:, DIAGONAL, DIAGONAL, DIAGONAL] = np.exp(coordinates[:, :4])
        step[:, np.arange(4, 10), *ABOVE] = 1
        return self.origin[:, None] @ step

    def derivative(self, coordinates: Links) -> Float[np.ndarray, "links 10 10"]:
        """Return ∂ parameters / ∂ coordinates per link: dJ = U₀ (dL Lᵀ + L dLᵀ) U₀ᵀ."""
        half = self.factor_slopes(coordinates) @ self.factors(coordinates).swapaxes(1, 2)[:, None]
        return link_parameters(half + half.swapaxes(2, 3)).swapaxes(1, 2)

    @staticmethod
    def _factor(coordinates: Links) -> Matrices:
        factor = np.zeros((len(coordinates), 4, 4))
        factor[:, DIAGONAL, DIAGONAL] = np.exp(coordinates[:, :4])
        factor[:, *ABOVE] = coordinates[:, 4:]
        return factor


def _upper_cholesky(matrices: Matrices) -> Matrices:
    """Return U, upper triangular with a positive diagonal, such that U Uᵀ is the matrix."""
    return np.linalg.cholesky(matrices[:, ::-1, ::-1])[:, ::-1, ::-1]


def solve_physical(
    matrix: Float[np.ndarray, "rows parameters"],
    target: Float[np.ndarray, " rows"],
    prior: Links,
    guess: Float[np.ndarray, " parameters"],
    *,
    lower: Float[np.ndarray, " extras"],
    spread: float | None,
) -> Float[np.ndarray, " parameters"]:
    """Minimise |matrix · parameters − target|² + |coordinates / spread|² over consistent links.

    Args:
        matrix, target: rows of unit noise, such as a triangular factor of many weighted samples.
        prior: consistent links, the origin of the coordinates.
        guess: ten parameters per link and then the extras (friction, rotors); the search starts at
            the last consistent point between the prior and the guess.
        lower: lower bounds of the extras, 0 or −∞; they are only weakly pulled to zero.
        spread: relative standard deviation of the links about the prior; None for a weak pull that
            matters only where the rows determine nothing.
    """
    count = prior.size
    coordinates = Coordinates.around(prior)
    size = np.linalg.norm(matrix[:, count:], axis=0)
    # Extras are searched in units that change the torque as much as there is torque.
    units = np.where(size > 0, np.linalg.norm(target) / nonzero_scale(size), 1.0)
    weak = np.full(len(units), 1 / WEAK_SPREAD)
    pull = np.concatenate([np.full(count, 1 / (spread or WEAK_SPREAD)), weak])

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
    inside = coordinates.of(_last_physical(prior, guess[:count].reshape(prior.shape)))
    start = np.maximum(np.concatenate([inside.ravel(), guess[count:] / units]), edge)
    return parameters(_search(residual, jacobian, start, edge))


def _search(
    residual: Callable[[np.ndarray], np.ndarray],
    jacobian: Callable[[np.ndarray], np.ndarray],
    start: np.ndarray,
    edge: np.ndarray,
) -> np.ndarray:
    search: Any = least_squares  # its stub does not accept a Jacobian by position
    # The squared error ends the search; the tolerances of point and gradient are practically zero.
    solution = search(
        residual,
        start,
        jacobian,
        bounds=(edge, np.inf),
        ftol=1e-6,
        xtol=1e-12,
        gtol=1e-12,
        max_nfev=STEPS,
    )
    if not np.isfinite(solution.x).all():
        raise ModelError(
            "the search for physical links gave non-finite values; check the units of the data"
        )
    return solution.x


def _last_physical(prior: Links, guess: Links) -> Links:
    """Return a point between the prior and the guess that is well inside the consistent links."""
    for share in (1.0, *0.9 ** np.arange(2, 40)):
        links = prior + share * (guess - prior)
        if is_physical(links).all():
            return links
    return prior
