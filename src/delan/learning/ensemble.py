"""An ensemble around a model: the same model, trained on from its weights on resampled data.

Resampled are whole trajectories, or runs of rows, for neighbours in time say the same twice.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.flatten_util import ravel_pytree
from jaxtyping import Int, PRNGKeyArray

from ..errors import ModelError, SettingsError
from ..joints import Dataset
from ..models.actuated import friction_of, links_of
from ..models.blueprint import LearnedModel
from ..models.chain import LagrangianChain
from ..models.dynamics import InverseDynamics, in_precision, require_same_joints, trainable
from ..models.residual import ResidualModel
from ..models.trust import bare
from . import descent, levenberg_marquardt
from .descent import DescentSettings
from .objective import Objective, Scale
from .planning import SMALL_WEIGHTS, samples
from .residual import left_over

RESAMPLED = 20
"""Runs of rows that fewer trajectories are cut into, to resample them."""


@dataclass(frozen=True)
class TrustSettings:
    """How the trust in a model is found.

    Attributes:
        members: of the ensemble.
        level: the share of unseen torques that the band shall hold.
        iterations, rows: of Levenberg–Marquardt that each member of few weights gets, and samples it gets them on.
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
            raise SettingsError(f"level is a share of the torques between 0 and 1, got {self.level}")
        for name in ("iterations", "rows", "steps", "states"):
            if getattr(self, name) < 1:
                raise SettingsError(f"{name} must be at least 1, got {getattr(self, name)}")


def ensemble(
    model: InverseDynamics, training: Dataset, settings: TrustSettings | None = None, *, key: PRNGKeyArray
) -> Any:
    """Models of the same kind, each trained on from this one on resampled data; their arrays are stacked."""
    settings, model = settings or TrustSettings(), learned(model)
    require_same_joints(model.joints, training)
    if isinstance(model, ResidualModel):  # what is known is not doubted; the band holds its errors as well
        rests = ensemble(model.rest, left_over(model.known, training), settings, key=key)
        return ResidualModel(_repeated(model.known, settings.members), rests)
    links = links_of(model)
    few = ravel_pytree(trainable(model)[0])[0].size <= SMALL_WEIGHTS
    method = _by_marquardt if few or isinstance(links, LagrangianChain) else _by_descent
    members = [in_precision(member) for member in method(model, training, settings, key)]
    if not all(bool(jnp.all(jnp.isfinite(leaf))) for leaf in jax.tree.leaves(members) if eqx.is_array(leaf)):
        raise ModelError(
            f"a member of the ensemble became non-finite at a learning rate of {settings.descent.learning_rate:g}; "
            "lower it in TrustSettings.descent"
        )
    return jax.tree.map(lambda *leaves: jnp.stack(leaves) if eqx.is_array(leaves[0]) else leaves[0], *members)


def _repeated(model: Any, count: int) -> Any:
    return jax.tree.map(lambda leaf: jnp.stack([leaf] * count) if eqx.is_array(leaf) else leaf, model)


def learned(model: InverseDynamics) -> LearnedModel:
    """A learned model, without the trust it may have, all in JAX arrays."""
    model = bare(model)
    if not isinstance(model, LearnedModel):
        raise ModelError(
            f"a {type(model).__name__} has no weights to train on; give a chain, a network or a feed-forward network"
        )
    return in_precision(jax.tree.map(lambda leaf: jnp.asarray(leaf) if isinstance(leaf, np.ndarray) else leaf, model))


def _by_marquardt(model: LearnedModel, training: Dataset, settings: TrustSettings, key: PRNGKeyArray) -> Iterator[Any]:
    """Members of few weights: some iterations in float64 lead to the minimum of the resampled data."""
    steps = levenberg_marquardt.MarquardtSettings(damping=1e-3)
    blocks = block_labels(training.samples.trajectory, RESAMPLED)
    rows = np.unique(np.linspace(0, len(blocks) - 1, settings.rows).astype(int))
    with jax.enable_x64(True):
        data, scale = samples(training, friction_of(model)).rows(rows), Scale.of(training, settings.objective)
    for draw, _ in _keys(key, settings.members):
        with jax.enable_x64(True):
            own = data.rows(resampled(blocks[rows], draw))
            state = levenberg_marquardt.init(in_precision(model), steps)
            for _ in range(settings.iterations):
                state, _ = levenberg_marquardt.update(state, own, scale, settings.objective, steps)
        yield state.model


def _by_descent(model: LearnedModel, training: Dataset, settings: TrustSettings, key: PRNGKeyArray) -> Iterator[Any]:
    """Members of many weights: some steps of Adam on the resampled data."""
    data, scale = samples(training, friction_of(model)), Scale.of(training, settings.objective)
    blocks = block_labels(training.samples.trajectory, RESAMPLED)
    epochs = -(-settings.steps * min(settings.descent.batch, len(data)) // len(data))
    rates = jnp.asarray([settings.descent.schedule((epoch + 0.5) / epochs) for epoch in range(epochs)])
    for draw, shuffle in _keys(key, settings.members):
        own = data.rows(resampled(blocks, draw))
        state = descent.init(model, scale, settings.objective, settings.descent)
        state, _ = descent.run_epochs(state, own, own, rates, shuffle)
        yield state.model


def _keys(key: PRNGKeyArray, members: int) -> Iterator[tuple[PRNGKeyArray, PRNGKeyArray]]:
    for one in jax.random.split(key, members):
        draw, shuffle = jax.random.split(one)
        yield draw, shuffle


def block_labels(trajectory: Int[np.ndarray, " rows"], fewest: int) -> Int[np.ndarray, " rows"]:
    """Numbers that part rows into trajectories, or, if these are fewer, into about so many runs of equal length."""
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
