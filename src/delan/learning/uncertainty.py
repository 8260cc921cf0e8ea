"""How certain a model is of its torques: an ensemble, a calibrated band, and a domain.

The members of the ensemble are the same model, trained further on resampled data. Whole
trajectories are resampled, or blocks of rows, because neighbours in time hold the same information.
The spread of the members shows which torques the data leave open, but neither noise nor laws that
the model misses; so the band is scaled until it holds the wanted share of validation torques.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.flatten_util import ravel_pytree
from jaxtyping import Float, Int, PRNGKeyArray

from ..errors import ModelError, SettingsError
from ..joints import Dataset, evenly_spaced, nonzero_scale
from ..logs.split import generator
from ..models.dynamics import InverseDynamics, in_precision, require_same_joints, trainable
from ..models.model import Model, as_model, without_trust
from ..models.trust import Domain, Trust, apart, distances
from ..solvers import adam, marquardt
from ..solvers.adam import DescentSettings
from ..solvers.loss import Objective, Scale
from ..solvers.plan import SMALL_WEIGHTS, samples
from .refit import jackknife, spread_of
from .scores import TorqueSize, predict_samples, residual_torques
from .study import NOTHING, CrossFit, Study

# Fewer trajectories than these are cut into blocks, to resample them and to calibrate by them.
RESAMPLED = 20
CALIBRATED = 10
# The share of validation states inside the domain.
KNOWN = 0.98
# The most training states of which those of the domain are chosen.
DOMAIN_ROWS = 3000
# The most states of a fold that tell how far it is from the others.
FOLD_STATES = 500
# A joint that hardly moved counts as if it had moved by this share of the one that moved most.
LEAST_SPREAD = 0.02
# The least error that a joint is granted, as share of the standard deviation of its torque: code in
# single precision errs by that much.
LEAST_FLOOR = 2e-6
# The standard deviation of Gaussian noise over the median of its absolute value.
GAUSSIAN = 1.4826


@dataclass(frozen=True)
class TrustSettings:
    """Settings of the trust in a model.

    Attributes:
        members: number of members of the ensemble.
        level: the share of unseen torques that the band shall hold.
        iterations, rows: Levenberg–Marquardt iterations of each member with few weights, and
            samples for them.
        steps: steps of Adam of each other member.
        states: the most states of the training data that the domain keeps.
        objective: the loss that the model was trained with.
        descent: settings of Adam; the steps are small, because the weights are good already.
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


def trust(
    model: InverseDynamics,
    training: Dataset,
    validation: Dataset,
    settings: TrustSettings | None = None,
    *,
    key: PRNGKeyArray,
) -> Model:
    """The model with an ensemble, a band that holds `level` of unseen torques, and a domain.

    The band is as good as the validation trajectories are many and like those to come: a single
    trajectory cannot show how much trajectories differ.
    """
    settings = settings or TrustSettings()
    plain = _learned(model)
    for dataset in (validation, training):
        require_same_joints(plain.joints, dataset)
    members = _ensemble(plain, training, settings, key)
    ones = jnp.ones(plain.joints.dof)
    domain = domain_of(replace(training, joints=plain.joints), validation, settings.states)
    draft = plain.with_trust(Trust(members, ones, ones, domain, settings.level))
    return calibrated(draft, validation)


def trust_by_folds(
    model: Model, cross: CrossFit, study: Study, settings: TrustSettings | None = None
) -> Model:
    """The model with a band and a domain from its refits without each fold.

    Every sample of the log is predicted by a member that has not seen it (cross-conformal), so that
    the band is calibrated on all motion of the log and on how much its folds differ.
    """
    settings = settings or TrustSettings()
    plain = _learned(model)
    members = _stacked([_learned(member) for member in cross.members])
    residual = np.abs(cross.residual)
    std = np.concatenate([spread_of(cross.members, judged) for judged in cross.judged])
    wider = jackknife(len(cross.members))
    floor, band = _band(residual, wider * std, cross.fold, cross.size.variance, settings.level)
    trusted = Trust(
        members=members,
        floor=jnp.asarray(floor / wider),
        band=jnp.asarray(band * wider),
        domain=_domain_by_folds(study, settings.states),
        level=settings.level,
    )
    return plain.with_trust(trusted)


def _band(
    error: Float[np.ndarray, "samples dof"],
    std: Float[np.ndarray, "samples dof"],
    labels: Int[np.ndarray, " samples"],
    variance: Float[np.ndarray, " dof"],
    level: float,
) -> tuple[Float[np.ndarray, " dof"], Float[np.ndarray, " dof"]]:
    """The usual size of the errors, and the factor by which the band is wider than their spread."""
    least = LEAST_FLOOR * np.sqrt(variance)
    floor = nonzero_scale(np.maximum(GAUSSIAN * np.median(error, axis=0), least))
    factor = conformal_factor(error / np.hypot(std, floor), labels, level)
    return floor, np.maximum(factor, least / floor)


def calibrated(model: Model, validation: Dataset) -> Model:
    """The same model with a band from trajectories that neither it nor its members learned from.

    Noise and doubt are independent, so that their variances add: an error is measured by
    √(std² + floor²). The floor is the usual size of the errors.
    """
    require_same_joints(model.joints, validation)
    judged = validation.samples
    plain = without_trust(model)
    error = np.abs(predict_samples(plain, validation) - judged.tau)
    if model.trust is None:
        raise ModelError("the model has no ensemble to calibrate; give it one with delan.trust")
    std = spread_of(_separate(model.trust.members, model.trust.size), validation)
    if not np.isfinite(error).all() or not np.isfinite(std).all():
        raise ModelError(
            f"the model gives no finite torque for the motion of {validation.source}; fit it again"
        )
    variance = TorqueSize.of(judged).for_model(plain, validation).variance
    floor, band = _band(error, std, judged.trajectory, variance, model.trust.level)
    return eqx.tree_at(
        lambda model: (model.trust.floor, model.trust.band),
        model,
        (jnp.asarray(floor), jnp.asarray(band)),
    )


def coverage(model: Model, dataset: Dataset) -> Float[np.ndarray, " dof"]:
    """The share of the measured torques that lie inside the band, per joint."""
    require_same_joints(model.joints, dataset)
    error = predict_samples(without_trust(model), dataset) - dataset.samples.tau
    return np.mean(np.abs(error) <= torque_bands(model, dataset), axis=0)


def torque_bands(model: Model, dataset: Dataset) -> Float[np.ndarray, "samples dof"]:
    """Half the width of the band at every sample, as `Model.torque_band` gives it for one."""
    if model.trust is None:
        raise ModelError("the model has no band; give it one with delan.trust")
    members = _separate(model.trust.members, model.trust.size)
    spread = np.hypot(spread_of(members, dataset), np.asarray(model.trust.floor))
    widening = np.maximum(1.0, distances(model.trust.domain, _states(dataset)))
    return np.asarray(model.trust.band) * spread * widening[:, None]


def _separate(members: Any, count: int) -> list[Model]:
    """The members of an ensemble one by one, in place of stacked arrays."""
    arrays, rest = eqx.partition(members, eqx.is_array)
    separate = []
    for place in range(count):
        own = jax.tree.map(lambda leaf, place=place: np.asarray(leaf)[place], arrays)
        separate.append(eqx.combine(jax.tree.map(jax.device_put, own), rest))
    return separate


def _ensemble(model: Model, training: Dataset, settings: TrustSettings, key: PRNGKeyArray) -> Any:
    """Members of the same kind, trained further on resampled data; their arrays are stacked."""
    if model.mechanics is not None and model.residual is not None:
        # The mechanics were fitted before: only the residual is resampled, and the band holds the
        # errors of both.
        known = Model(model.mechanics, model.friction)
        rest = Model(residual=model.residual)
        members = _ensemble(rest, residual_torques(known, training), settings, key)
        repeated = _stacked([known] * settings.members)
        return Model(repeated.mechanics, repeated.friction, members.residual)
    few = ravel_pytree(trainable(model)[0])[0].size <= SMALL_WEIGHTS
    squares = settings.objective.loss is None
    method = _by_marquardt if squares and (few or model.chain is not None) else _by_descent
    members = [in_precision(member) for member in method(model, training, settings, key)]
    for leaf in jax.tree.leaves(eqx.filter(members, eqx.is_array)):
        if not jnp.all(jnp.isfinite(leaf)):
            rate = settings.descent.learning_rate
            raise ModelError(
                f"a member of the ensemble became non-finite at a learning rate of {rate:g}; "
                "lower it in TrustSettings.descent"
            )
    return _stacked(members)


def _stacked(members: Sequence[Any]) -> Any:
    def stacked(*leaves: Any) -> Any:
        if not eqx.is_array(leaves[0]):
            return leaves[0]
        return jax.device_put(np.stack([np.asarray(leaf) for leaf in leaves]))

    return jax.tree.map(stacked, *members)


def _learned(model: Any) -> Model:
    """The model without its trust, all in JAX arrays."""
    plain = without_trust(as_model(model))
    return in_precision(
        jax.tree.map(
            lambda leaf: jnp.asarray(leaf) if isinstance(leaf, np.ndarray) else leaf, plain
        )
    )


def _by_marquardt(
    model: Model, training: Dataset, settings: TrustSettings, key: PRNGKeyArray
) -> Iterator[Any]:
    """Members of few weights: a few iterations in float64 reach the new minimum."""
    steps = marquardt.NEARBY
    blocks = block_labels(training.samples.trajectory, RESAMPLED)
    rows = evenly_spaced(len(blocks), settings.rows)
    with jax.enable_x64(True):
        data = samples(training, model.friction_settings).rows(rows)
        scale = Scale.of(training, settings.objective)
    for member_key in jax.random.split(key, settings.members):
        draw, _ = jax.random.split(member_key)
        with jax.enable_x64(True):
            own = data.rows(resampled(blocks[rows], draw))
            problem = marquardt.Problem(own, scale, settings.objective)
            descent = marquardt.Descent.of(in_precision(model), problem, steps)
            for _ in range(settings.iterations):
                descent.advance()
            member = descent.model
        yield member


def _by_descent(
    model: Model, training: Dataset, settings: TrustSettings, key: PRNGKeyArray
) -> Iterator[Any]:
    """Members of many weights: some steps of Adam on the resampled data."""
    descent = settings.descent
    data = samples(training, model.friction_settings)
    scale = Scale.of(training, settings.objective)
    blocks = block_labels(training.samples.trajectory, RESAMPLED)
    epochs = -(-settings.steps * min(descent.batch, len(data)) // len(data))
    rates = jnp.asarray([descent.schedule((epoch + 0.5) / epochs) for epoch in range(epochs)])
    for member_key in jax.random.split(key, settings.members):
        draw, shuffle = jax.random.split(member_key)
        own = data.rows(resampled(blocks, draw))
        state = adam.init(model, scale, settings.objective, descent)
        state, _ = adam.run_epochs(state, own, own, rates, shuffle)
        yield state.model


def block_labels(trajectory: Int[np.ndarray, " rows"], fewest: int) -> Int[np.ndarray, " rows"]:
    """Labels of trajectories or, if these are fewer, of about `fewest` blocks of equal length."""
    _, own, counts = np.unique(trajectory, return_inverse=True, return_counts=True)
    if len(counts) >= fewest:
        return own
    order = np.argsort(own, kind="stable")
    place = np.empty_like(own)
    place[order] = np.arange(len(own)) - np.repeat(np.cumsum(counts) - counts, counts)
    blocks = np.maximum(1, np.round(counts * fewest / len(own))).astype(int)
    return (np.cumsum(blocks) - blocks)[own] + place * blocks[own] // counts[own]


def resampled(blocks: Int[np.ndarray, " rows"], key: PRNGKeyArray) -> Int[np.ndarray, " rows"]:
    """As many rows as given, in blocks that are drawn with replacement."""
    parts = [np.flatnonzero(blocks == label) for label in np.unique(blocks)]
    drawn = generator(key).integers(len(parts), size=2 * len(parts))
    return np.resize(np.concatenate([parts[index] for index in drawn]), len(blocks))


def conformal_factor(
    scores: Float[np.ndarray, "rows dof"], trajectory: Int[np.ndarray, " rows"], level: float
) -> Float[np.ndarray, " dof"]:
    """The value that a share `level` of the scores of unseen trajectories will not exceed.

    The quantile of n independent scores at level (1 + 1/n) is exceeded by 1 − level of new ones.
    Scores of one motion are not independent. So n is the number of independent scores that would
    leave the share of scores below the quantile as uncertain as it is between blocks, or between
    trajectories if that is more.
    """
    labels = (block_labels(trajectory, CALIBRATED), block_labels(trajectory, 1))
    return np.array([_quantile(column, labels, level) for column in scores.T])


def _quantile(
    scores: Float[np.ndarray, " rows"], labels: tuple[np.ndarray, np.ndarray], level: float
) -> float:
    inside = (scores <= np.quantile(scores, level, method="inverted_cdf")).astype(float)
    variance = max(_variance(inside, labels[0]), _variance(inside, labels[1]))
    count = len(scores)
    if variance > 0:
        fewest = int(labels[0].max()) + 1
        count = np.clip(level * (1 - level) / variance, fewest, count)
    return float(np.quantile(scores, min(1.0, level * (1 + 1 / count)), method="inverted_cdf"))


def _variance(inside: Float[np.ndarray, " rows"], labels: Int[np.ndarray, " rows"]) -> float:
    """The variance of the mean, from the means of groups; 0 for a single group."""
    sizes = np.bincount(labels)
    if len(sizes) < 2:
        return 0.0
    away = np.bincount(labels, inside) - sizes * inside.mean()
    return float(np.sum(away**2) / len(inside) ** 2 * len(sizes) / (len(sizes) - 1))


def domain_of(training: Dataset, validation: Dataset, states: int = TrustSettings.states) -> Domain:
    """Training states far from each other, with a radius that reaches nearly all other states.

    All other training states are inside, and the share `KNOWN` of the validation states.
    """
    unit = _known_states(training, states)
    reach = float(np.quantile(distances(unit, _states(validation)), KNOWN))
    return _reaching(unit, training, reach)


def _domain_by_folds(study: Study, states: int) -> Domain:
    """The domain of the whole log, whose radius reaches the states of each fold from the others."""
    reached = []
    for number in range(len(study.split.folds)):
        part = study.without(number)
        unit = _known_states(part.training, states)
        reached.append(distances(unit, _thinned(_states(part.validation))))
    everything = study.without(NOTHING).training
    reach = float(np.quantile(np.concatenate(reached), KNOWN))
    return _reaching(_known_states(everything, states), everything, reach)


def _states(dataset: Dataset) -> Float[np.ndarray, "samples coordinates"]:
    """(q, q̇) of every sample."""
    return np.concatenate([dataset.samples.q, dataset.samples.qd], axis=1)


def _thinned(states: Float[np.ndarray, "rows coordinates"]) -> Float[np.ndarray, "_ coordinates"]:
    return states[evenly_spaced(len(states), FOLD_STATES)]


def _known_states(training: Dataset, count: int) -> Domain:
    """Training states far from each other, with a radius of one spread."""
    known = _states(training)
    known = known[evenly_spaced(len(known), DOMAIN_ROWS)]
    spread = _spread(training)
    chosen = [0]
    nearest = apart(training.joints, known[0], known, spread)
    while len(chosen) < min(count, len(known)) and nearest.max() > 0:
        chosen.append(int(np.argmax(nearest)))
        nearest = np.minimum(nearest, apart(training.joints, known[chosen[-1]], known, spread))
    return Domain(jnp.asarray(known[chosen]), jnp.asarray(spread), jnp.ones(()), training.joints)


def _reaching(unit: Domain, training: Dataset, reach: float) -> Domain:
    """The domain with a radius that reaches so far, and to every training state."""
    inside = distances(unit, _states(training)).max()
    # The last bound keeps the radius positive where the robot did not move.
    radius = max(reach, float(inside), 1e-6)
    return eqx.tree_at(lambda domain: domain.radius, unit, jnp.full_like(unit.radius, radius))


def _spread(training: Dataset) -> Float[np.ndarray, " coordinates"]:
    """The standard deviation of every coordinate, at least a share of the largest of its kind."""
    joints = training.joints
    position = training.samples.q.std(axis=0)
    # No angle varies more than one that is uniform on the circle.
    uniform = np.minimum(position, np.pi / np.sqrt(3))
    position = np.where(joints.continuous, uniform, position)
    spreads = []
    for sizes in (position, training.samples.qd.std(axis=0)):
        most = np.empty_like(sizes)
        for kind in (joints.turning, joints.sliding):
            most[kind] = sizes[kind].max(initial=0.0)
        spreads.append(np.maximum(sizes, LEAST_SPREAD * nonzero_scale(most)))
    return np.concatenate(spreads)
