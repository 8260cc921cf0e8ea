"""The public `fit`: one model by its name, or several under the same split and friction, of which the best is kept."""

import threading
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Literal

import jax
from jaxtyping import PRNGKeyArray

from ..errors import SettingsError
from ..joints import Dataset
from ..models.blueprint import LearnedModel
from ..models.trust import TrustedModel
from .contest import Contender, Entry, identified
from .fit import checked
from .fit import fit as fit_one
from .fit_result import FitResult, Friction
from .planning import FitSettings, ModelChoice
from .rivals import rivals
from .selection import START
from .training import Progress

NAMES = ("delan", "chain", "feedforward", "identified", "auto")
CHAIN_SHARE = 0.65
"""of the seconds that a chain may take where models compete; the networks share the rest."""


def fit(
    dataset: Dataset,
    model: ModelChoice | Literal["identified", "auto"] = "delan",
    settings: FitSettings | None = None,
    *,
    friction: Friction | Literal["usual"] = "usual",
    urdf: str | Path | None = None,
    start: LearnedModel | TrustedModel | None = None,
    anchor: float = 0.0,
    key: PRNGKeyArray | None = None,
    seeds: int = 1,
    progress: Callable[[Progress], None] | None = None,
    checkpoint: str | Path | None = None,
    resume: bool = False,
    stop: threading.Event | None = None,
) -> FitResult:
    """Learn a model of the dataset's dynamics.

    Args:
        dataset: samples, cut into trajectories.
        model: `delan` (the DeLaN network), `chain` (a rigid arm of learned geometry) or `feedforward`, at a size
            chosen here, or the settings of one of them; `identified`, the arm of a URDF with parameters by least
            squares, as a chain; `auto`: all of them (`identified` if there is a URDF) under the same split and
            friction, the best on the validation trajectories is given and the result's `rivals` tell of all.
        settings: how long and by which method to train; with `auto`, epochs and method are the chain's.
        friction: the friction that joins the Lagrangian model, as settings of an actuator; `auto` adds terms one by one
            while the validation trajectories are explained better; None: no friction. `usual` is `auto` where models
            compete, viscous, Coulomb and an offset for `identified`, and none for a single model.
        urdf: file or text of the robot's description, for `identified` and `auto`.
        start: a model of this kind to go on from, in place of random weights; its friction stays if it is of that kind.
        anchor: how firmly a chain is held to its start, of whose numbers something is known then; 0: not at all.
        key: randomness of weights, minibatches and the validation split; the same key gives the same model.
        seeds: how many models to train at once, from keys split off `key`, over the cores.
        progress: called after every step of the fit.
        checkpoint: where to keep the state of an unfinished fit; removed when the fit is done.
        resume: continue from the checkpoint, if there is one, to the result of an unbroken run.
        stop: set it from another thread to end the fit early.

    A stop or an interrupt (Ctrl-C) ends the fit early with the best model so far and `interrupted` set.
    """
    if isinstance(model, str) and model not in NAMES:
        raise SettingsError(f"unknown model {model!r}; known: {', '.join(NAMES)}")
    if model not in ("identified", "auto"):
        if urdf is not None:
            raise SettingsError(
                "a URDF is for the models 'identified' and 'auto'; leave urdf= out, or name one of them"
            )
        return fit_one(
            dataset,
            model,
            settings,
            friction=None if friction == "usual" else friction,
            start=start,
            anchor=anchor,
            key=key,
            seeds=seeds,
            progress=progress,
            checkpoint=checkpoint,
            resume=resume,
            stop=stop,
        )
    if start is not None or anchor != 0 or seeds != 1 or checkpoint is not None or resume:
        raise SettingsError(
            "start, anchor, seeds, checkpoint and resume are for the training of one model; "
            f"leave them out, or name a single one instead of {model!r}"
        )
    settings, key = checked(dataset, settings), jax.random.key(0) if key is None else key
    if model == "identified":
        if urdf is None:
            raise SettingsError("identification needs the robot's URDF; give urdf=")
        head = START if isinstance(friction, str) else friction  # identification does not choose among terms
        return _made(identified(dataset, urdf, head, settings, key=key))
    chosen: Friction = "auto" if friction == "usual" else friction
    return _best(dataset, chosen, settings, urdf, key, progress, stop or threading.Event())


def _best(
    dataset: Dataset,
    friction: Friction,
    settings: FitSettings,
    urdf: str | Path | None,
    key: PRNGKeyArray,
    progress: Callable[[Progress], None] | None,
    stop: threading.Event,
) -> FitResult:
    """All that take part, and the best of them on the validation trajectories."""
    began, seconds = time.perf_counter(), settings.seconds
    limits = settings if seconds is None else replace(settings, seconds=CHAIN_SHARE * seconds)
    result = fit_one(dataset, "chain", limits, friction=friction, key=key, progress=progress, stop=stop)
    chain = Entry("chain", result.model, result.validation, result.seconds, fit=result)
    if result.interrupted:
        stop.set()
    # A feed-forward network needs accelerations.
    names: tuple[Contender, ...] = ("delan",) if settings.accelerations == "none" else ("delan", "feedforward")
    others = rivals(
        dataset,
        names,
        chain,
        friction,
        settings,
        urdf=urdf,
        key=key,
        seconds=None if seconds is None else (1 - CHAIN_SHARE) * seconds,
        watch=lambda name: progress if name == names[0] else None,
        stop=stop,
    )
    entries = sorted([chain, *others], key=lambda entry: entry.validation.torque.nmse_mean)
    best = next(entry for entry in entries if entry.fit is not None)  # a constant torque only sets the scale
    made = _made(best)
    return replace(
        made,
        settings=settings,
        reason=f"{best.name} is the best of {len(entries)} on validation; {made.reason}",
        seconds=time.perf_counter() - began,
        interrupted=stop.is_set() or any(entry.fit is not None and entry.fit.interrupted for entry in entries),
        rivals={entry.name: entry.validation for entry in entries},
    )


def _made(entry: Entry) -> FitResult:
    assert entry.fit is not None
    return entry.fit
