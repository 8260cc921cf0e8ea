"""The parts of the feed-forward torque and the smallest eigenvalue of the inertia, by the model in use.

The models need JAX, which takes its time to load: a thread of the page's process does it, after the page is there.
"""

import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Float

Rows = Float[np.ndarray, "time dof"]

BLOCK = 64
"""Samples that are computed at once: one shape, compiled once."""


Dissector = Callable[[Any, Rows, Rows, Rows], tuple[np.ndarray, np.ndarray]]
"""From numbers of a model and rows of q, q̇, q̈ to parts and smallest eigenvalues."""


def rigid_dissector(model: Any) -> Dissector:
    """For a rigid body, which computes in numpy."""

    def dissect(_: Any, q: Rows, qd: Rows, qdd: Rows) -> tuple[np.ndarray, np.ndarray]:
        parts = np.array([np.stack(model.components(*row)) for row in zip(q, qd, qdd, strict=True)])
        least = np.array([np.linalg.eigvalsh(model.mass_matrix(row))[0] for row in q])
        return parts.reshape(-1, 4, q.shape[1]), least

    return dissect


def learned_dissector(blueprint: Any) -> Dissector | None:
    """For learned models of a blueprint; None if they know no parts."""
    import jax
    import jax.numpy as jnp

    from ..models.feed_forward import FeedForwardSettings

    if isinstance(blueprint.network, FeedForwardSettings):
        return None

    @jax.jit
    def block(weights: Any, q: Any, qd: Any, qdd: Any) -> Any:
        model = blueprint.unpack(weights)
        parts = jax.vmap(lambda *row: jnp.stack(model.components(*row)))(q, qd, qdd)
        return parts, jnp.linalg.eigvalsh(jax.vmap(model.mass_matrix)(q))[:, 0]

    def dissect(weights: Any, q: Rows, qd: Rows, qdd: Rows) -> tuple[np.ndarray, np.ndarray]:
        found = []
        with jax.enable_x64(True):
            for start in range(0, len(q), BLOCK):
                rows = [column[start : start + BLOCK] for column in (q, qd, qdd)]
                count = len(rows[0])
                filled = [np.concatenate([row, np.repeat(row[-1:], BLOCK - count, axis=0)]) for row in rows]
                parts, least = block(np.asarray(weights), *filled)
                found.append((np.asarray(parts)[:count], np.asarray(least)[:count]))
        return np.concatenate([one[0] for one in found]), np.concatenate([one[1] for one in found])

    return dissect


class Dissection:
    """Dissectors by the name of a model, each made by a thread when it is first asked for.

    Attributes:
        problem: what went wrong on the way, as a sentence; the page goes on without those curves.
    """

    def __init__(self, make: Callable[[str], Dissector | None]):
        self._make, self._made = make, dict[str, Dissector | None]()
        self._asked: set[str] = set()
        self.problem: str | None = None

    def of(self, model: str) -> Dissector | None:
        """The dissector of a model; None while it is made, and if the model knows no parts."""
        if model not in self._asked:
            self._asked.add(model)
            # No daemon: the end of the process waits for it, as JAX does not bear to be cut off while it compiles.
            threading.Thread(target=self._run, args=(model,), name="dissection").start()
        return self._made.get(model)

    def _run(self, model: str) -> None:
        try:
            self._made[model] = self._make(model)
        except Exception as error:
            self.problem = f"no parts of the torque ({type(error).__name__}: {error})"


def of_run(settings: Mapping[str, Any], name: str) -> Dissector | None:
    """The dissector of a model of a run that goes on, from the settings in its address."""
    from ..experiments.live_host import online_run
    from ..experiments.live_run import LiveSettings
    from ..experiments.online import LEARNED, blueprint_of, build_feed_forward
    from ..realtime.feed_forward import Direct

    run = LiveSettings(**{**settings, "models": tuple(settings["models"])})
    online = online_run(run, name)  # pyright: ignore[reportArgumentType]
    if name in LEARNED:
        return learned_dissector(blueprint_of(online))
    feed_forward = build_feed_forward(online)
    return rigid_dissector(feed_forward.model) if isinstance(feed_forward, Direct) else None


def of_file(path: Path) -> tuple[Dissector | None, Any]:
    """The dissector of a saved model and its numbers."""
    import jax

    from ..models.rigid_body import RigidBody
    from ..realtime.feed_forward import Compiled
    from ..storage import load

    model = load(path)
    if isinstance(model, RigidBody):
        return rigid_dissector(model), None
    feed_forward = Compiled.of(model)
    with jax.enable_x64(True):
        return learned_dissector(feed_forward.blueprint), np.asarray(feed_forward.weights)
