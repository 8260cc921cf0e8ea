"""Models against each other on one dataset: the same samples, the same friction and the same unseen trajectories."""

import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray

from ..data.splitting import hold_out, split_key
from ..joints import Dataset, Joints
from ..models.actuated import ActuatedModel
from ..models.actuator import ActuatorSettings
from ..models.blueprint import LearnedModel
from ..models.dynamics import Energy, InverseDynamics
from ..models.feed_forward import FeedForwardSettings
from ..models.geometry import from_rigid_body
from ..models.network import LagrangianNetworkSettings
from ..models.rigid_body import RigidBody
from .descent import DescentSettings
from .evaluate import Scores
from .fit import fit, score
from .fit_result import FitResult
from .identify import FrictionTerm, IdentifySettings, identify
from .planning import FitSettings
from .training import Progress

Contender = Literal["chain", "delan", "feedforward"]
"""Who may be asked for; a constant torque is always there, and the arms of a URDF wherever there is one."""
DECAYS = (1e-3, 1e-1, 1e-5)
"""Weight decays that the networks are tried with, in this order,"""
WIDTHS = (64, 16)
"""and widths; real logs are small and repeat themselves, so that networks want to be held tightly."""

ANCHORS = (1e-3, 1e-5)
"""How firmly a chain is held to a URDF, of which validation chooses."""
STEPS = 3000
"""Steps of Adam that each try gets."""


class ConstantTorque(eqx.Module):
    """The mean torque of the training data, whatever the motion: what every model must beat."""

    torque: Float[Array, " dof"]
    joints: Joints = eqx.field(static=True)

    def inverse_dynamics(self, q: Array, qd: Array, qdd: Array) -> Array:
        return self.torque

    def energy(self, q: Array, qd: Array) -> Energy:
        """Of the potential whose slope it is."""
        return Energy(kinetic=jnp.zeros_like(self.torque[0]), potential=self.torque @ q)


@dataclass(frozen=True, eq=False)
class Entry:
    """A model that took part, how it did on the validation trajectories, and what was chosen for it there.

    Attributes:
        model: learned from the training trajectories, the one that was scored.
        relearned: the same after it learned from the validation trajectories too; None where it did not.
    """

    name: str
    model: InverseDynamics
    validation: Scores
    seconds: float
    chosen: Mapping[str, Any] = field(default_factory=dict)
    fit: FitResult | None = None
    relearned: InverseDynamics | None = None

    @property
    def deployed(self) -> InverseDynamics:
        """The model to use, and to score on motion that is in neither part."""
        return self.model if self.relearned is None else self.relearned


def networks(
    name: Literal["delan", "feedforward"],
    dataset: Dataset,
    friction: ActuatorSettings | None,
    settings: FitSettings,
    *,
    key: PRNGKeyArray,
    seconds: float | None = None,
    progress: Callable[[Progress], None] | None = None,
    stop: threading.Event | None = None,
) -> Entry:
    """A network of the weight decay and width that unseen trajectories like best, stopped where they like it best."""
    began = time.perf_counter()
    kind = LagrangianNetworkSettings if name == "delan" else FeedForwardSettings
    tries = [(WIDTHS[0], decay) for decay in DECAYS]
    best: tuple[FitResult, dict[str, Any]] | None = None
    left = len(tries) + len(WIDTHS) - 1
    while tries and not (stop is not None and stop.is_set()):
        if best is not None and seconds is not None and time.perf_counter() - began > seconds:
            break
        width, decay = tries.pop(0)
        limits = replace(
            settings,
            **_budget(dataset, seconds, began, left),
            optimizer="adam",
            objective=replace(settings.objective, weight_decay=decay),
        )
        result = fit(
            dataset,
            kind(width=width),
            limits,
            friction=friction if name == "delan" else None,
            key=key,
            progress=progress,
            stop=stop,
        )
        left -= 1
        if best is None or _error(result.validation) < _error(best[0].validation):
            best = result, {"width": width, "weight_decay": decay}
        if not tries and width == WIDTHS[0]:
            tries = [(other, best[1]["weight_decay"]) for other in WIDTHS[1:]]
    assert best is not None
    result, chosen = best
    return Entry(name, result.model, result.validation, time.perf_counter() - began, chosen, result)


def _budget(dataset: Dataset, seconds: float | None, began: float, left: int) -> dict[str, Any]:
    """What one of the tries that are left may take: its part of the time, or a number of steps."""
    if seconds is not None:
        return {"seconds": max(1.0, (seconds - (time.perf_counter() - began)) / left), "epochs": None}
    count = len(dataset.samples)
    return {"seconds": None, "epochs": max(20, STEPS * min(DescentSettings.batch, count) // count)}


def constant(dataset: Dataset, settings: FitSettings, *, key: PRNGKeyArray) -> Entry:
    """The mean torque of the training trajectories."""
    training, validation = split(dataset, settings, key)
    model = ConstantTorque(jnp.asarray(training.samples.tau.mean(axis=0)), dataset.joints)
    return Entry("constant", model, score(model, validation, settings), 0.0)


def identified(
    dataset: Dataset, urdf: str | Path, friction: ActuatorSettings | None, settings: FitSettings, *, key: PRNGKeyArray
) -> Entry:
    """The arm of a URDF with parameters and friction by least squares on the training trajectories."""
    training, validation = split(dataset, settings, key)
    head = ActuatorSettings(terms=()) if friction is None else friction
    terms: tuple[FrictionTerm, ...] = tuple(term for term in head.terms if term not in ("load", "armature"))
    how = IdentifySettings(
        friction=terms,
        pairs=head.pairs,
        radii=head.radii,
        width=head.width,
        stribeck_speed=head.stribeck_speed,
        physical=True,
        windows=settings.accelerations == "none",
    )
    result = identify(training, urdf, how)
    scores = score(in_jax(result.model), validation, settings)
    told = FitResult(
        model=in_jax(result.model),
        validation=scores,
        optimizer="least squares",
        reason="the links of the URDF and friction are linear in the torque",
        settings=settings,
        seed=tuple(np.asarray(jax.random.key_data(key)).tolist()),
        seconds=result.seconds,
        samples=result.samples,
        interrupted=False,
        history=(),
        events=result.events,
        trajectories=validation.samples.trajectories,
    )
    return Entry("identified", result.model, scores, result.seconds, {"friction": terms, "rank": result.rank}, told)


def near_urdf(
    dataset: Dataset,
    urdf: str | Path,
    friction: ActuatorSettings | None,
    settings: FitSettings,
    *,
    key: PRNGKeyArray,
    stop: threading.Event | None = None,
) -> Entry:
    """A chain that begins as the arm of a URDF and is held to it, as firmly as unseen trajectories like best."""
    began = time.perf_counter()
    arm = from_rigid_body(RigidBody.from_urdf(urdf))
    tried = [
        (
            fit(dataset, arm.settings, settings, friction=friction, start=arm, anchor=anchor, key=key, stop=stop),
            {"anchor": anchor, "friction": [] if friction is None else list(friction.terms)},
        )
        for anchor in ANCHORS
    ]
    result, chosen = min(tried, key=lambda one: _error(one[0].validation))
    return Entry("chain near URDF", result.model, result.validation, time.perf_counter() - began, chosen, result)


def as_learned(entry: Entry) -> LearnedModel:
    """The model of an entry in a form that can be saved: an identified arm becomes a chain, exactly."""
    return in_jax(entry.deployed)  # type: ignore[return-value]


def in_jax(model: InverseDynamics) -> InverseDynamics:
    """The model in a form that can be differentiated: an identified arm as a chain, exactly."""
    return _as_chain(model) if isinstance(model, RigidBody) else model


def _as_chain(arm: RigidBody) -> LearnedModel:
    chain, friction = from_rigid_body(arm), arm.friction
    if friction is None:
        return chain
    weights = jax.tree.map(lambda leaf: jnp.asarray(leaf) if eqx.is_array(leaf) else leaf, friction)
    return ActuatedModel(chain, weights)


def split(dataset: Dataset, settings: FitSettings, key: PRNGKeyArray) -> tuple[Dataset, Dataset]:
    """The training and validation samples of everybody who takes part with this key."""
    return hold_out(dataset, settings.validation, key=split_key(key))


def _error(scores: Scores) -> float:
    return scores.torque.nmse_mean
