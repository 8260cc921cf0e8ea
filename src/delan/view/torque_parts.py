"""Components of the feed-forward torque and smallest eigenvalue of the inertia of the model in use.

The models need JAX, which takes seconds to load, so a thread of the page's process loads it after
the page is served.
"""

import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Float

Rows = Float[np.ndarray, "time dof"]
# From the weights of a model and rows of q, q̇, q̈ to torque components, shape (time, 4, dof), and
# smallest eigenvalues of the inertia matrix, shape (time,).
Decompose = Callable[[Any, Rows, Rows, Rows], tuple[np.ndarray, np.ndarray]]

# Samples are computed in blocks of one shape, which is compiled once.
BLOCK = 64
THREAD_NAME = "decomposition"


def rigid_body_decomposition(model: Any) -> Decompose:
    """Return the decomposition of a rigid body, computed in NumPy."""

    def decompose(_: Any, q: Rows, qd: Rows, qdd: Rows) -> tuple[np.ndarray, np.ndarray]:
        parts = np.zeros((len(q), 4, q.shape[1]))
        least = np.zeros(len(q))
        for row in range(len(q)):
            parts[row] = np.stack(model.components(q[row], qd[row], qdd[row]))
            least[row] = np.linalg.eigvalsh(model.mass_matrix(q[row]))[0]
        return parts, least

    return decompose


def learned_decomposition(blueprint: Any) -> Decompose | None:
    """Return the decomposition of the models of a blueprint; None if they have no components."""
    import jax
    import jax.numpy as jnp

    if blueprint.mechanics is None:
        return None

    @jax.jit
    def block(weights: Any, q: Any, qd: Any, qdd: Any) -> Any:
        model = blueprint.unpack(weights)
        parts = jax.vmap(lambda *row: jnp.stack(model.components(*row)))(q, qd, qdd)
        return parts, jnp.linalg.eigvalsh(jax.vmap(model.mass_matrix)(q))[:, 0]

    def decompose(weights: Any, q: Rows, qd: Rows, qdd: Rows) -> tuple[np.ndarray, np.ndarray]:
        count = len(q)
        # The last row fills up the last block.
        rows = np.minimum(np.arange(-(-count // BLOCK) * BLOCK), count - 1)
        parts = []
        least = []
        with jax.enable_x64(True):
            for chosen in rows.reshape(-1, BLOCK):
                results = block(np.asarray(weights), q[chosen], qd[chosen], qdd[chosen])
                parts.append(np.asarray(results[0]))
                least.append(np.asarray(results[1]))
        return np.concatenate(parts)[:count], np.concatenate(least)[:count]

    return decompose


class Decompositions:
    """Decompositions by the name of a model, each built in a thread when it is first requested.

    Attributes:
        problem: why one could not be built, as a sentence; the page continues without its curves.
    """

    def __init__(self, build: Callable[[str], Decompose | None]):
        self._build = build
        self._built: dict[str, Decompose | None] = {}
        self._requested: set[str] = set()
        self.problem: str | None = None

    def of(self, model: str) -> Decompose | None:
        """Return the decomposition of a model; None until it is built, or if there is none."""
        if model not in self._requested:
            self._requested.add(model)
            # Not a daemon: JAX crashes if the process ends while it compiles.
            threading.Thread(target=self._run, args=(model,), name=THREAD_NAME).start()
        return self._built.get(model)

    def _run(self, model: str) -> None:
        try:
            self._built[model] = self._build(model)
        except Exception as error:
            self.problem = f"No components of the torque ({type(error).__name__}: {error})"


def is_building() -> bool:
    """Return whether a thread still builds a decomposition."""
    return any(thread.name == THREAD_NAME for thread in threading.enumerate())


def of_run(settings: Mapping[str, Any], name: str) -> Decompose | None:
    """Return the decomposition of a model of a run, built from the settings in its address."""
    from ..online.controller import Compiled, Direct
    from ..online.host import live_run
    from ..online.host_process import LiveSettings
    from ..online.online_run import feed_forward_for

    run = LiveSettings(**{**settings, "models": tuple(settings["models"])})
    feed_forward = feed_forward_for(live_run(run, name))  # pyright: ignore[reportArgumentType]
    if isinstance(feed_forward, Compiled):
        return learned_decomposition(feed_forward.blueprint)
    if isinstance(feed_forward, Direct):
        return rigid_body_decomposition(feed_forward.model)
    return None


def of_file(path: Path) -> tuple[Decompose | None, Any]:
    """Return the decomposition of a saved model and its weights."""
    import jax

    from ..online.controller import Compiled
    from ..storage import load

    model = load(path)
    feed_forward = Compiled.of(model)
    with jax.enable_x64(True):
        return learned_decomposition(feed_forward.blueprint), np.asarray(feed_forward.weights)
