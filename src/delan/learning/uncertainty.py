"""An ensemble around a model: the same model, trained on from its weights on resampled data.

Resampled are whole trajectories, or runs of rows, for neighbours in time say the same twice.


How sure a model is of its torques: a band calibrated on unseen motion, and where its data were.

The spread of an ensemble tells which torques the data leave open, but not noise, nor laws that the
model misses; so the band is scaled until it holds the wanted share of validation torques.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.flatten_util import ravel_pytree
from jaxtyping import Array, Float, Int, PRNGKeyArray

from ..errors import ModelError, SettingsError
from ..joints import Dataset
from ..models.dynamics import InverseDynamics, in_precision, require_same_joints, trainable
from ..models.friction_memory import memory_of
from ..models.model import Model, as_model, without_trust
from ..models.trust import Domain, Trust, apart
from ..solvers import adam, marquardt
from ..solvers.adam import DescentSettings
from ..solvers.loss import Objective, Scale
from ..solvers.plan import SMALL_WEIGHTS, samples
from .scores import predict, residual_torques

RESAMPLED = 20
"""Runs of rows that fewer trajectories are cut into, to resample them."""


@dataclass(frozen=True)
class TrustSettings:
    """How the trust in a model is found.

    Attributes:
        members: of the ensemble.
        level: the share of unseen torques that the band shall hold.
        iterations, rows: of Levenberg–Marquardt that each member of few weights gets, and samples
            it gets them on.
        steps: of Adam that each other member gets.
        states: of the training data that the domain keeps, at most.
        objective: what the model was trained to make small.
        descent: how Adam steps; gently, for the weights are good ones.
    """

    members: int = 5
    level: float = 0.9
    iterations: int = 3
    rows: int = 2000
    steps: int = 500
    states: int = 512
    objective: Objective = field(default_factory=Objective)
    descent: DescentSettings = field(default_factory=lambda: DescentSettings(learning_rate=1e-3))

    def __post_init__(self) -> None:
        if self.members < 2:
            raise SettingsError(f"an ensemble needs at least 2 members, got {self.members}")
        if not 0 < self.level < 1:
            raise SettingsError(
                f"level is a share of the torques between 0 and 1, got {self.level}"
            )
        for name in ("iterations", "rows", "steps", "states"):
            if getattr(self, name) < 1:
                raise SettingsError(f"{name} must be at least 1, got {getattr(self, name)}")


def ensemble(
    model: InverseDynamics,
    training: Dataset,
    settings: TrustSettings | None = None,
    *,
    key: PRNGKeyArray,
) -> Any:
    """Models of the same kind, each trained on from this one on resampled data; their arrays are
    stacked.
    """
    settings, model = settings or TrustSettings(), learned(model)
    require_same_joints(model.joints, training)
    if model.mechanics is not None and model.residual is not None:
        # The mechanics were fitted before: only the residual is resampled, and the band holds the
        # errors of both.
        known = Model(model.mechanics, model.friction)
        rest = ensemble(
            Model(residual=model.residual), residual_torques(known, training), settings, key=key
        )
        repeated = _repeated(known, settings.members)
        return Model(repeated.mechanics, repeated.friction, rest.residual)
    few = ravel_pytree(trainable(model)[0])[0].size <= SMALL_WEIGHTS
    method = _by_marquardt if few or model.chain is not None else _by_descent
    members = [in_precision(member) for member in method(model, training, settings, key)]
    if not all(
        bool(jnp.all(jnp.isfinite(leaf))) for leaf in jax.tree.leaves(members) if eqx.is_array(leaf)
    ):
        raise ModelError(
            f"a member of the ensemble became non-finite at a learning rate of {settings.descent.learning_rate:g}; "
            "lower it in TrustSettings.descent"
        )
    return jax.tree.map(
        lambda *leaves: jnp.stack(leaves) if eqx.is_array(leaves[0]) else leaves[0], *members
    )


def _repeated(model: Any, count: int) -> Any:
    return jax.tree.map(
        lambda leaf: jnp.stack([leaf] * count) if eqx.is_array(leaf) else leaf, model
    )


def learned(model: Any) -> Model:
    """A model without its trust, all in JAX arrays."""
    model = without_trust(as_model(model))
    return in_precision(
        jax.tree.map(
            lambda leaf: jnp.asarray(leaf) if isinstance(leaf, np.ndarray) else leaf, model
        )
    )


def _by_marquardt(
    model: Model, training: Dataset, settings: TrustSettings, key: PRNGKeyArray
) -> Iterator[Any]:
    """Members of few weights: some iterations in float64 lead to the minimum of the resampled data."""
    steps = marquardt.MarquardtSettings(damping=1e-3)
    blocks = block_labels(training.samples.trajectory, RESAMPLED)
    rows = np.unique(np.linspace(0, len(blocks) - 1, settings.rows).astype(int))
    with jax.enable_x64(True):
        data, scale = (
            samples(training, model.friction_settings).rows(rows),
            Scale.of(training, settings.objective),
        )
    for draw, _ in _keys(key, settings.members):
        with jax.enable_x64(True):
            own = data.rows(resampled(blocks[rows], draw))
            state = marquardt.init(in_precision(model), steps)
            for _ in range(settings.iterations):
                state, _ = marquardt.update(state, own, scale, settings.objective, steps)
        yield state.model


def _by_descent(
    model: Model, training: Dataset, settings: TrustSettings, key: PRNGKeyArray
) -> Iterator[Any]:
    """Members of many weights: some steps of Adam on the resampled data."""
    data, scale = samples(training, model.friction_settings), Scale.of(training, settings.objective)
    blocks = block_labels(training.samples.trajectory, RESAMPLED)
    epochs = -(-settings.steps * min(settings.descent.batch, len(data)) // len(data))
    rates = jnp.asarray(
        [settings.descent.schedule((epoch + 0.5) / epochs) for epoch in range(epochs)]
    )
    for draw, shuffle in _keys(key, settings.members):
        own = data.rows(resampled(blocks, draw))
        state = adam.init(model, scale, settings.objective, settings.descent)
        state, _ = adam.run_epochs(state, own, own, rates, shuffle)
        yield state.model


def _keys(key: PRNGKeyArray, members: int) -> Iterator[tuple[PRNGKeyArray, PRNGKeyArray]]:
    for one in jax.random.split(key, members):
        draw, shuffle = jax.random.split(one)
        yield draw, shuffle


def block_labels(trajectory: Int[np.ndarray, " rows"], fewest: int) -> Int[np.ndarray, " rows"]:
    """Numbers that part rows into trajectories, or, if these are fewer, into about so many runs of
    equal length.
    """
    _, own, counts = np.unique(trajectory, return_inverse=True, return_counts=True)
    if len(counts) >= fewest:
        return own
    order = np.argsort(own, kind="stable")
    place = np.empty_like(own)
    place[order] = np.arange(len(own)) - np.repeat(np.cumsum(counts) - counts, counts)
    pieces = np.maximum(1, np.round(counts * fewest / len(own))).astype(int)
    return (np.cumsum(pieces) - pieces)[own] + place * pieces[own] // counts[own]


def resampled(blocks: Int[np.ndarray, " rows"], key: PRNGKeyArray) -> Int[np.ndarray, " rows"]:
    """As many rows as there are, of blocks drawn with replacement."""
    parts = [np.flatnonzero(blocks == label) for label in np.unique(blocks)]
    with jax.enable_x64(True):  # the same draws in either precision
        drawn = np.asarray(jax.random.randint(key, (2 * len(parts),), 0, len(parts)))
    return np.resize(np.concatenate([parts[index] for index in drawn]), len(blocks))


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
) -> Model:
    """The model with an ensemble, a band that holds `level` of unseen torques, and the domain of
    its training data.

    The band is as right as the validation trajectories are many and like those to come: one alone
    cannot tell how much trajectories differ.
    """
    settings, model = settings or TrustSettings(), learned(model)
    require_same_joints(model.joints, validation)
    members = ensemble(model, training, settings, key=key)
    one = jnp.ones(model.joints.dof)
    domain = domain_of(replace(training, joints=model.joints), validation, settings.states)
    draft = model.with_trust(Trust(members, one, one, domain, settings.level))
    return calibrated(draft, validation)


def calibrated(model: Model, validation: Dataset) -> Model:
    """The same with a band from these trajectories, which neither the model nor its members were
    trained on.

    Noise and doubt are independent, so their variances add: an error is measured by √(std² +
    floor²). The floor is the usual size of the errors.
    """
    require_same_joints(model.joints, validation)
    error, std = _errors(model, validation, "torque_std")
    if not np.isfinite(error).all() or not np.isfinite(std).all():
        raise ModelError(
            f"the model gives no finite torque for the motion of {validation.source}; fit it again"
        )
    torques, error = validation.samples, np.abs(error)
    spread = torques.tau.std(axis=0)
    floor = np.maximum(
        GAUSSIAN * np.median(error, axis=0), LEAST_FLOOR * np.where(spread > 0, spread, 1.0)
    )
    assert model.trust is not None  # `_errors` asked it for the spread of its members
    level = model.trust.level
    band = conformal_factor(error / np.hypot(std, floor), torques.trajectory, level)
    return eqx.tree_at(
        lambda model: (model.trust.floor, model.trust.band),
        model,
        (jnp.asarray(floor), jnp.asarray(band)),
    )


def coverage(model: Model, dataset: Dataset) -> Float[np.ndarray, " dof"]:
    """The share of the measured torques that lie inside of the band, per joint."""
    require_same_joints(model.joints, dataset)
    error, band = _errors(model, dataset, "torque_band")
    return np.mean(np.abs(error) <= band, axis=0)


def _errors(model: Model, dataset: Dataset, method: str) -> tuple[np.ndarray, np.ndarray]:
    """τ_pred − τ at every sample, and what else the model says there."""
    one, memory = dataset.samples, memory_of(model, dataset)
    with jax.enable_x64(True):
        motions = tuple(jnp.asarray(column) for column in (one.q, one.qd, one.qdd))
        predicted = predict(without_trust(model), "inverse_dynamics", *motions, memory=memory)
        return predicted - one.tau, predict(model, method, *motions, memory=memory)


# The band


def conformal_factor(
    scores: Float[np.ndarray, "rows dof"], trajectory: Int[np.ndarray, " rows"], level: float
) -> Float[np.ndarray, " dof"]:
    """What a share `level` of the scores of unseen trajectories will not exceed, per joint.

    The quantile of n independent scores at level (1 + 1/n) is exceeded by 1 − level of new ones.
    Scores of one motion are not independent, so n is the number of independent ones that would
    leave the share of scores below the quantile as uncertain as it is between runs, or between
    trajectories if that is more.
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
    """Training states far from each other, and a radius that reaches all the others and nearly all
    of validation.
    """
    joints = training.joints
    known, unseen = (
        np.concatenate([one.samples.q, one.samples.qd], axis=1) for one in (training, validation)
    )
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
    """The standard deviation of every coordinate; no angle is more spread than one that is anywhere
    on the circle.
    """
    one, kinds = training.samples, np.array(training.joints.kinds)
    position = one.q.std(axis=0)
    position = np.where(kinds == "continuous", np.minimum(position, np.pi / np.sqrt(3)), position)
    spreads = []
    for sizes in (position, one.qd.std(axis=0)):
        most = [sizes[(kinds == "prismatic") == (kind == "prismatic")].max() for kind in kinds]
        spreads.append(np.maximum(sizes, LEAST_SPREAD * np.where(np.array(most) > 0, most, 1.0)))
    return np.concatenate(spreads)
