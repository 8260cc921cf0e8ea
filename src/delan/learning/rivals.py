"""Who stands against a chain, with the friction that was chosen for it: a URDF's arms, networks and a constant."""

import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Literal

from jaxtyping import PRNGKeyArray

from ..joints import Dataset
from ..models.actuator import ActuatedModel, ActuatorSettings
from .contest import Contender, Entry, constant, identified, near_urdf, networks
from .fit import Friction
from .planning import FitSettings
from .selection import START
from .training import Progress

Watch = Callable[[str], Callable[[Progress], None] | None]
"""Asked, for the name of each step, who watches it."""


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
    """Everybody but the chain, who has been trained before if it takes part; the networks get the seconds."""
    head = START if friction == "auto" else friction
    if chain is not None and friction == "auto":
        head = chain.model.actuator.settings if isinstance(chain.model, ActuatedModel) else None
    entries = [constant(dataset, settings, key=key)]
    if urdf is not None and not stop.is_set():
        entries.append(identified(dataset, urdf, head, settings, key=key))
        if chain is not None:
            entries.append(near_urdf(dataset, urdf, head, settings, key=key, stop=stop))
    return entries + _networks(dataset, models, head, settings, key, seconds, watch, stop)


def _networks(
    dataset: Dataset,
    models: Sequence[Contender],
    head: ActuatorSettings | None,
    settings: FitSettings,
    key: PRNGKeyArray,
    seconds: float | None,
    watch: Watch,
    stop: threading.Event,
) -> list[Entry]:
    """The networks side by side, for XLA lets go of the interpreter while it computes."""
    if stop.is_set():
        return []
    names: list[Literal["delan", "feedforward"]] = [name for name in ("delan", "feedforward") if name in models]
    with ThreadPoolExecutor(max(1, len(names))) as pool:
        futures = [
            pool.submit(
                networks, name, dataset, head, settings, key=key, seconds=seconds, progress=watch(name), stop=stop
            )
            for name in names
        ]
        try:
            return [future.result() for future in futures]
        except KeyboardInterrupt:
            stop.set()
            return [future.result() for future in futures]
