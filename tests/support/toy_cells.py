"""Cells for the grid to compute, in a file of their own: workers import it without pytest."""

import os
import time
from pathlib import Path
from uuid import uuid4

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array
from threadpoolctl import threadpool_info

from delan.models.model import Blueprint
from delan.models.networks import LagrangianNetworkSettings
from delan.models.rigid_body import RigidBody
from delan.paper.cells import Cell, Result
from delan.robots.arms import TWO_LINK, letter_motion

TIMEOUT = 120.0


def run(cell: Cell) -> Result:
    """Leave a mark that the cell was started, and compute it."""
    (marks(cell) / uuid4().hex).write_text(str(os.getpid()))
    return {
        "plain": plain,
        "predicts": predicts,
        "fails": fails,
        "dies": dies,
        "waits": waits,
        "threads": threads,
    }[cell.model](cell)


def marks(cell: Cell) -> Path:
    """Return a folder with a file per start of the cell, which has the process id of the worker."""
    folder = Path(cell["folder"]) / cell.key
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def begun(cell: Cell) -> int:
    return len(list(marks(cell).iterdir()))


def process_id(_: int) -> int:
    return os.getpid()


def plain(cell: Cell) -> Result:
    return {
        "square": cell.seed**2,
        "third": np.float64(1 / 3),
        "array": np.arange(2),
        "single": jnp.float32(0.1),
    }


def predicts(cell: Cell) -> Result:
    """Return the torque errors of an untrained network, to the last bit."""
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
    raise ValueError(f"no result for seed {cell.seed}")


def dies(cell: Cell) -> Result:
    os._exit(7)


def waits(cell: Cell) -> Result:
    """Wait until the test makes the file `go`."""
    deadline = time.monotonic() + TIMEOUT
    while not (Path(cell["folder"]) / "go").exists():
        assert time.monotonic() < deadline, "the test did not make the file go"
        time.sleep(0.02)
    return {}


def threads(cell: Cell) -> Result:
    """Return the threads of this process and the thread limits of its libraries, after use."""
    jax.jit(jnp.matmul)(jnp.ones((300, 300)), jnp.ones((300, 300))).block_until_ready()
    names = [(task / "comm").read_text().strip() for task in Path("/proc/self/task").iterdir()]
    return {"names": names, "blas": [library["num_threads"] for library in threadpool_info()]}
