"""Ratios by which joints of a chain move with further coordinates: their gains and their costs."""

from dataclasses import replace
from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Float

from ..models.chain_draft import ChainDraft
from ..models.geometry import chain_of
from ..models.model import Model
from ..solvers import marquardt
from ..solvers.linearised import FlatModel, numpy_friction, without_friction

# Damping of the equations that the loss near a ratio is computed from: the frames of a chain are
# not determined, so that these equations are singular.
LEAST_DAMPING = 1e-8


class _Bend(NamedTuple):
    """Half the slope and half the curvature of a loss in some ratios, each in a unit of its own."""

    slope: Float[np.ndarray, " ratios"]
    curvature: Float[np.ndarray, "ratios ratios"]
    unit: Float[np.ndarray, " ratios"]


def coupling_gains(model: Model, problem: marquardt.Problem) -> Float[np.ndarray, "joints dof"]:
    """By how much each further coordinate of a joint would lower the loss, to first order.

    The gain of a ratio s is (g_s − B_s C⁻¹ g)² / (B_ss − B_s C⁻¹ B_sᵀ), with the gradient g and the
    Gauss–Newton matrix C of all weights that the chain has, which follow the ratio.
    """
    draft = ChainDraft.of(chain_of(model))
    open_places = draft.rows == 0
    relaxed = Model(replace(draft, free=draft.free | open_places).relaxed(), model.friction)
    slope, bends, _ = _ratios(relaxed, problem, open_places)
    gains = np.zeros(draft.rows.shape)
    gains[open_places] = slope**2 / np.maximum(np.diag(bends), LEAST_DAMPING)
    return gains


def needed_ratios(
    model: Model, problem: marquardt.Problem, most: float
) -> Float[np.ndarray, "joints dof"]:
    """A, without the free ratios that cost less than `most` together, to second order.

    The loss near its minimum is rᵀ S r in the free ratios, which all other weights follow. Ratios
    are fixed at zero one by one, the cheapest first, and the rest moves to where it costs least.
    """
    draft = ChainDraft.of(chain_of(model))
    _, bends, unit = _ratios(model, problem, draft.free)
    bends = bends + LEAST_DAMPING * np.eye(len(bends))
    left = np.arange(len(bends))
    values = draft.rows[draft.free] * unit
    spent = 0.0
    while len(left):
        spread = np.linalg.inv(bends[np.ix_(left, left)])
        costs = values**2 / np.diag(spread)
        least = int(np.argmin(costs))
        spent += costs[least]
        if spent > most:
            break
        values = values - spread[least] / spread[least, least] * values[least]
        values = np.delete(values, least)
        left = np.delete(left, least)
    kept = np.zeros(len(bends))
    kept[left] = values
    rows = draft.rows.copy()
    rows[draft.free] = kept / unit
    return rows


def _ratios(
    model: Model, problem: marquardt.Problem, asked: Bool[np.ndarray, "joints dof"]
) -> _Bend:
    """The loss near a model in some ratios of its chain, all other weights following."""
    flat = FlatModel.of(without_friction(model))
    assert model.friction is not None
    torque, slopes = problem.linearised(flat)
    point = problem.solved(flat, numpy_friction(model.friction), torque)
    near = problem.quadratic(point, slopes, np.zeros(1))
    unit = near.unit
    gradient = near.gradient / unit
    curvature = near.curvature / (unit[:, None] * unit)
    # The ratios are the last weights of the part without friction.
    last = flat.weights.size
    places = np.arange(last - asked.size, last)[asked.ravel()]
    others = np.setdiff1d(np.arange(len(gradient)), places)
    across = curvature[np.ix_(others, places)]
    among = curvature[np.ix_(others, others)] + LEAST_DAMPING * np.eye(len(others))
    follow = np.linalg.solve(among, np.column_stack([across, gradient[others]]))
    slope = gradient[places] - across.T @ follow[:, -1]
    bends = curvature[np.ix_(places, places)] - across.T @ follow[:, :-1]
    return _Bend(slope, bends, unit[places])
