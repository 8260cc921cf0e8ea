"""Cells for the grid to compute. They stand apart from the tests, for workers import this and need no pytest."""

import os
import time
from pathlib import Path
from uuid import uuid4

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array
from threadpoolctl import threadpool_info

from delan.experiments.cells import Cell, Result
from delan.models.blueprint import Blueprint
from delan.models.network import LagrangianNetworkSettings
from delan.models.rigid_body import RigidBody
from delan.robots.two_link import TWO_LINK, letter_motion

PATIENCE = 120.0


def run(cell: Cell) -> Result:
    """What the model of the cell says, after a mark that it was computed once more."""
    (marks(cell) / uuid4().hex).write_text(str(os.getpid()))
    return {"plain": plain, "predicts": predicts, "fails": fails, "dies": dies, "waits": waits, "threads": threads}[
        cell.model
    ](cell)


def marks(cell: Cell) -> Path:
    """A folder with a file for each time that a cell was begun, which holds the worker's process id."""
    folder = Path(cell["folder"]) / cell.key
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def begun(cell: Cell) -> int:
    return len(list(marks(cell).iterdir()))


def plain(cell: Cell) -> Result:
    return {"square": cell.seed**2, "third": np.float64(1 / 3), "array": np.arange(2), "single": jnp.float32(0.1)}


def predicts(cell: Cell) -> Result:
    """How far an untrained network is from the torques of an arm, to the last bit."""
    motion = letter_motion("a", speed=0.45, dt=0.05)
    torques = RigidBody.from_urdf(TWO_LINK.urdf()).rows(motion.q, motion.qd, motion.qdd).total
    blueprint = Blueprint(TWO_LINK.joints, LagrangianNetworkSettings(width=32))

    @jax.jit
    def misses() -> Array:
        network = blueprint.build(key=jax.random.key(cell.seed))
        columns = (jnp.asarray(column) for column in (motion.q, motion.qd, motion.qdd))
        return jax.vmap(network.inverse_dynamics)(*columns) - torques

    return {"misses": misses()}


def fails(cell: Cell) -> Result:
    raise ValueError(f"nothing comes of seed {cell.seed}")


def dies(cell: Cell) -> Result:
    os._exit(7)


def waits(cell: Cell) -> Result:
    """Ends when the test says so."""
    deadline = time.monotonic() + PATIENCE
    while not (Path(cell["folder"]) / "go").exists():
        assert time.monotonic() < deadline, "nobody said go"
        time.sleep(0.02)
    return {}


def threads(cell: Cell) -> Result:
    """How many threads the libraries may use, after each has worked."""
    jax.jit(jnp.matmul)(jnp.ones((300, 300)), jnp.ones((300, 300))).block_until_ready()
    names = [(task / "comm").read_text().strip() for task in Path("/proc/self/task").iterdir()]
    return {"names": names, "blas": [library["num_threads"] for library in threadpool_info()]}
