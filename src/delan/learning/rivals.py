"""Who stands against a chain, with the friction that was chosen for it: a URDF's arms, networks and a constant."""

import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, Literal

from jaxtyping import PRNGKeyArray

from ..joints import Dataset
from ..models.actuated import friction_of
from .contest import ANCHORS, Contender, Entry, constant, identified, near_urdf, networks
from .fit_result import Friction
from .planning import FitSettings
from .residual import with_residual
from .selection import START
from .training import Progress

Watch = Callable[[str], Callable[[Progress], None] | None]
"""Asked, for the name of each step, who watches it."""
NEAR_SHARE = 0.4
"""of the seconds that the chains near a URDF get; the networks, which are trained at once, have the rest."""


def rivals(
    dataset: Dataset,
    models: Sequence[Contender],
    chain: Entry | None,
    friction: Friction,
    settings: FitSettings,
    *,
    urdf: str | Path | None,
    key: PRNGKeyArray,
    seconds: float | None,
    watch: Watch,
    stop: threading.Event,
) -> list[Entry]:
    """Everybody but the chain, which has been trained before if it takes part; the seconds are for all of them."""
    head = START if friction == "auto" else friction
    if chain is not None and friction == "auto":
        head = friction_of(chain.model)
    entries, known, limits = [constant(dataset, settings, key=key)], None, settings
    if urdf is not None and not stop.is_set():
        known = identified(dataset, urdf, head, settings, key=key)
        entries.append(known)
        if chain is not None:
            if seconds is not None:
                limits = replace(settings, seconds=NEAR_SHARE * seconds / len(ANCHORS))
                seconds *= 1 - NEAR_SHARE
            entries.append(near_urdf(dataset, urdf, head, limits, key=key, stop=stop))
    if stop.is_set():
        return entries
    how: dict[str, Any] = {"key": key, "seconds": seconds, "stop": stop}
    names: list[Literal["delan", "feedforward"]] = [name for name in ("delan", "feedforward") if name in models]
    trainings = [partial(networks, name, dataset, head, settings, progress=watch(name), **how) for name in names]
    if known is not None and urdf is not None and "feedforward" in names:
        trainings.append(partial(with_residual, known, dataset, urdf, settings, progress=watch("residual"), **how))
    return entries + _side_by_side(trainings, stop)


def _side_by_side(trainings: Sequence[Callable[[], Entry]], stop: threading.Event) -> list[Entry]:
    """Networks at once, for XLA lets go of the interpreter while it computes."""
    with ThreadPoolExecutor(max(1, len(trainings))) as pool:
        futures = [pool.submit(training) for training in trainings]
        try:
            return [future.result() for future in futures]
        except KeyboardInterrupt:
            stop.set()
            return [future.result() for future in futures]
