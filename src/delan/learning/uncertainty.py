"""How sure a model is of its torques: a band calibrated on unseen motion, and where its data were.

The spread of an ensemble tells which torques the data leave open, but not noise, nor laws that the model misses; so the
band is scaled until it holds the wanted share of validation torques.
"""

from dataclasses import replace

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, PRNGKeyArray

from ..errors import ModelError
from ..joints import Dataset
from ..models.dynamics import InverseDynamics, require_same_joints
from ..models.trust import Domain, TrustedModel, apart, bare, trusted
from .ensemble import TrustSettings, block_labels, ensemble, learned
from .evaluate import predict
from .remembering import memory_of

CALIBRATED = 10
"""Runs of rows that fewer trajectories are cut into, to calibrate by them."""
KNOWN = 0.98
"""The share of validation states inside of the domain."""
DOMAIN_ROWS = 10_000
"""Training states, at most, of which those of the domain are chosen."""
LEAST_SPREAD = 0.02
"""A joint that hardly moved counts as if it had moved by this share of the one that moved most."""
LEAST_FLOOR = 1e-6
"""The least error that a joint is granted, as share of its torque's spread."""
GAUSSIAN = 1.4826
"""The standard deviation of Gaussian noise over the median of its size."""


def trust(
    model: InverseDynamics,
    training: Dataset,
    validation: Dataset,
    settings: TrustSettings | None = None,
    *,
    key: PRNGKeyArray,
) -> TrustedModel:
    """The model with an ensemble, a band that holds `level` of unseen torques, and the domain of its training data.

    The band is as right as the validation trajectories are many and like those to come: one alone cannot tell how much
    trajectories differ.
    """
    settings, model = settings or TrustSettings(), learned(model)
    require_same_joints(model.joints, validation)
    members = ensemble(model, training, settings, key=key)
    one = jnp.ones(model.joints.dof)
    domain = domain_of(replace(training, joints=model.joints), validation, settings.states)
    draft = trusted(model, members, floor=one, band=one, domain=domain, level=settings.level)
    return calibrated(draft, validation)


def calibrated(model: TrustedModel, validation: Dataset) -> TrustedModel:
    """The same with a band from these trajectories, which neither the model nor its members were trained on.

    Noise and doubt are independent, so their variances add: an error is measured by √(std² + floor²). The floor is the
    usual size of the errors.
    """
    require_same_joints(model.joints, validation)
    error, std = _errors(model, validation, "torque_std")
    if not np.isfinite(error).all() or not np.isfinite(std).all():
        raise ModelError(f"the model gives no finite torque for the motion of {validation.source}; fit it again")
    torques, error = validation.samples, np.abs(error)
    spread = torques.tau.std(axis=0)
    floor = np.maximum(GAUSSIAN * np.median(error, axis=0), LEAST_FLOOR * np.where(spread > 0, spread, 1.0))
    band = conformal_factor(error / np.hypot(std, floor), torques.trajectory, model.level)
    return eqx.tree_at(lambda one: (one.floor, one.band), model, (jnp.asarray(floor), jnp.asarray(band)))


def coverage(model: TrustedModel, dataset: Dataset) -> Float[np.ndarray, " dof"]:
    """The share of the measured torques that lie inside of the band, per joint."""
    require_same_joints(model.joints, dataset)
    error, band = _errors(model, dataset, "torque_band")
    return np.mean(np.abs(error) <= band, axis=0)


def _errors(model: TrustedModel, dataset: Dataset, method: str) -> tuple[np.ndarray, np.ndarray]:
    """τ_pred − τ at every sample, and what else the model says there."""
    one, memory = dataset.samples, memory_of(bare(model), dataset)
    with jax.enable_x64(True):
        motions = tuple(jnp.asarray(column) for column in (one.q, one.qd, one.qdd))
        predicted = predict(bare(model), "inverse_dynamics", *motions, memory=memory)
        return predicted - one.tau, predict(model, method, *motions, memory=memory)


# The band


def conformal_factor(
    scores: Float[np.ndarray, "rows dof"], trajectory: Int[np.ndarray, " rows"], level: float
) -> Float[np.ndarray, " dof"]:
    """What a share `level` of the scores of unseen trajectories will not exceed, per joint.

    The quantile of n independent scores at level (1 + 1/n) is exceeded by 1 − level of new ones. Scores of one motion
    are not independent, so n is the number of independent ones that would leave the share of scores below the quantile
    as uncertain as it is between runs, or between trajectories if that is more.
    """
    labels = [block_labels(trajectory, fewest) for fewest in (CALIBRATED, 1)]
    return np.array([_quantile(column, labels, level) for column in scores.T])


def _quantile(scores: Float[np.ndarray, " rows"], labels: list[np.ndarray], level: float) -> float:
    inside = (scores <= np.quantile(scores, level, method="inverted_cdf")).astype(float)
    variance = max(_variance(inside, own) for own in labels)
    most, least = len(scores), int(labels[0].max()) + 1
    count = np.clip(level * (1 - level) / variance, least, most) if variance > 0 else most
    return float(np.quantile(scores, min(1.0, level * (1 + 1 / count)), method="inverted_cdf"))


def _variance(inside: Float[np.ndarray, " rows"], labels: Int[np.ndarray, " rows"]) -> float:
    """Of the mean, from what it is within each group; 0 for a single group, which tells nothing."""
    sizes = np.bincount(labels)
    if len(sizes) < 2:
        return 0.0
    away = np.bincount(labels, inside) - sizes * inside.mean()
    return float(np.sum(away**2) / len(inside) ** 2 * len(sizes) / (len(sizes) - 1))


# The domain


def domain_of(training: Dataset, validation: Dataset, states: int = TrustSettings.states) -> Domain:
    """Training states far from each other, and a radius that reaches all the others and nearly all of validation."""
    joints = training.joints
    known, unseen = (np.concatenate([one.samples.q, one.samples.qd], axis=1) for one in (training, validation))
    known = known[np.unique(np.linspace(0, len(known) - 1, DOMAIN_ROWS).astype(int))]
    spread = _spread(training)
    chosen, nearest = [0], apart(joints, known[0], known, spread)
    while len(chosen) < min(states, len(known)) and nearest.max() > 0:
        chosen.append(int(np.argmax(nearest)))
        nearest = np.minimum(nearest, apart(joints, known[chosen[-1]], known, spread))
    unit = Domain(jnp.asarray(known[chosen]), jnp.asarray(spread), jnp.ones(()), joints)
    reach = np.quantile(np.asarray(_distances(unit, jnp.asarray(unseen))), KNOWN)
    radius = max(float(reach), float(nearest.max()), 1e-6)
    return eqx.tree_at(lambda one: one.radius, unit, jnp.full_like(unit.radius, radius))


@eqx.filter_jit
def _distances(domain: Domain, states: Float[Array, "rows coordinates"]) -> Float[Array, " rows"]:
    return jax.lax.map(lambda state: domain.distance(*jnp.split(state, 2)), states, batch_size=256)


def _spread(training: Dataset) -> Float[np.ndarray, " coordinates"]:
    """The standard deviation of every coordinate; no angle is more spread than one that is anywhere on the circle."""
    one, kinds = training.samples, np.array(training.joints.kinds)
    position = one.q.std(axis=0)
    position = np.where(kinds == "continuous", np.minimum(position, np.pi / np.sqrt(3)), position)
    spreads = []
    for sizes in (position, one.qd.std(axis=0)):
        most = [sizes[(kinds == "prismatic") == (kind == "prismatic")].max() for kind in kinds]
        spreads.append(np.maximum(sizes, LEAST_SPREAD * np.where(np.array(most) > 0, most, 1.0)))
    return np.concatenate(spreads)
