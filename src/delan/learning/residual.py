"""A network for what a known arm leaves of the torque: it learns effects that no rigid body has."""

import threading
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import jax
import jax.numpy as jnp
from jaxtyping import PRNGKeyArray

from ..joints import Dataset
from ..models.feed_forward import FeedForwardNetwork
from ..models.geometry import from_rigid_body
from ..models.residual import ResidualModel
from ..models.rigid_body import RigidBody
from .contest import Entry, in_jax, networks, split
from .evaluate import predict
from .fit import score
from .planning import FitSettings
from .remembering import memory_of
from .training import Progress


def with_residual(
    identified: Entry,
    dataset: Dataset,
    urdf: str | Path,
    settings: FitSettings,
    *,
    key: PRNGKeyArray,
    seconds: float | None = None,
    progress: Callable[[Progress], None] | None = None,
    stop: threading.Event | None = None,
) -> Entry:
    """An arm of the URDF and a feed-forward network that is trained on what the arm leaves of the torque.

    The arm is the identified one or that of the URDF as it is, whichever unseen trajectories like better; they choose
    the network's weight decay, its width and where it stops as well.
    """
    began, (_, validation) = time.perf_counter(), split(dataset, settings, key)
    given: Any = from_rigid_body(RigidBody.from_urdf(urdf))
    as_it_is = score(given, validation, settings).torque.nmse_mean
    better = identified.validation.torque.nmse_mean <= as_it_is
    name, known = "identified" if better else "as it is", cast(Any, in_jax(identified.model)) if better else given
    learned = networks(
        "feedforward",
        left_over(known, dataset),
        None,
        settings,
        key=key,
        seconds=seconds,
        progress=progress,
        stop=stop,
    )
    assert learned.fit is not None
    assert isinstance(learned.model, FeedForwardNetwork)
    model = ResidualModel(known, learned.model)
    scores = score(model, validation, settings)
    reason = f"on what the URDF's arm ({name}) leaves of the torque: {learned.fit.reason}"
    told = replace(learned.fit, model=model, validation=scores, reason=reason)
    return Entry("residual", model, scores, time.perf_counter() - began, {"arm": name, **learned.chosen}, told)


def left_over(known: Any, dataset: Dataset) -> Dataset:
    """The dataset with the torques that a model leaves to be explained, at the samples that count; its joints are the
    model's, for a URDF may know that one turns without end."""
    one, memory = dataset.samples, memory_of(known, dataset)
    with jax.enable_x64(True):
        motions = tuple(jnp.asarray(column) for column in (one.q, one.qd, one.qdd))
        torque = predict(known, "inverse_dynamics", *motions, memory=memory)
    tau = dataset.tau.copy()
    tau[slice(None) if dataset.counted is None else dataset.counted] -= torque
    return replace(dataset, tau=tau, joints=known.joints)
