"""The published code of Deep Lagrangian Networks as a row of the benchmarks.

It is not part of this repository:

    git clone https://github.com/milutter/deep_lagrangian_networks PATH
    pip install torch dm-haiku

Then `--official PATH` takes its torch model (`DeLaN_model.py`) and its JAX model
(`jax_DeLaN_model.py`) as they are, with the activations, losses and optimisers of the published
examples, one step per batch as in these, on one core. Shuffling, copies to the device and the error
of the power, which the examples only print, are left out in its favour.
"""

import importlib
import sys
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax

from .timing import Call, Work

PACKAGE = "deep_lagrangian_networks"
TORCH, JAX = "published torch code", "published JAX code"
# File, imported package, and the name under which pip installs that.
MODULES = {TORCH: ("DeLaN_model", "torch", "torch"), JAX: ("jax_DeLaN_model", "haiku", "dm-haiku")}
BATCHES = 4  # steps, enough to time slow code


@dataclass(frozen=True)
class OfficialCode:
    """The published models that can be run here."""

    modules: dict[str, Any]

    @classmethod
    def at(cls, path: Path) -> "OfficialCode":
        """Load the published models from a clone; print which cannot be loaded, and why."""
        if not (path / PACKAGE).is_dir():
            raise SystemExit(
                f"{path} has no folder {PACKAGE}; give a clone of github.com/milutter/{PACKAGE}"
            )
        sys.path.insert(0, str(path.resolve()))
        _restore_old_names()
        modules = {}
        for name, (module, needed, installed_by) in MODULES.items():
            try:
                modules[name] = importlib.import_module(f"{PACKAGE}.{module}")
            except ModuleNotFoundError as error:
                remedy = (
                    f"pip install {installed_by}"
                    if error.name == needed
                    else f"make sure that {path} is complete"
                )
                print(f"{name}: left out, because module {error.name} is missing; {remedy}")
        if not modules:
            raise SystemExit(
                "none of the published code can be run; "
                "install what is missing or leave out --official"
            )
        return cls(modules)

    def training(self, batches: np.ndarray, width: int) -> dict[str, Work]:
        """Return a few training steps, comparable with `throughput.epoch_of` for our network."""
        makers = {TORCH: _torch_steps, JAX: _jax_steps}
        few = batches[:BATCHES]
        return {
            name: Work(makers[name](module, few, width), few.shape[0] * few.shape[1])
            for name, module in self.modules.items()
        }

    def calls(self, motion: np.ndarray, width: int) -> dict[str, Call]:
        """Return the inverse dynamics of one sample [3, joint], from arrays to an array."""
        makers = {TORCH: _torch_call, JAX: _jax_call}
        return {name: makers[name](module, motion, width) for name, module in self.modules.items()}


def _restore_old_names() -> None:
    """Restore functions of jax that older versions of the published JAX code call."""
    if not hasattr(jax.ops, "index_update"):
        setattr(jax.ops, "index", np.s_)  # noqa: B010  (the type checker knows no such name)
        setattr(jax.ops, "index_update", lambda array, at, values: array.at[at].set(values))  # noqa: B010


def _torch_model(module: Any, joints: int, width: int) -> Any:
    torch = importlib.import_module("torch")
    torch.set_num_threads(1)
    settings = {
        "activation": "SoftPlus",
        "diagonal_epsilon": 0.01,
        "b_init": 1e-4,
        "b_diag_init": 1e-3,
    }
    return module.DeepLagrangianNetwork(joints, n_width=width, n_depth=2, **settings).cpu()


def _torch_steps(module: Any, batches: np.ndarray, width: int) -> Any:
    torch = importlib.import_module("torch")
    model = _torch_model(module, batches.shape[-1], width)
    adam = torch.optim.Adam(model.parameters(), lr=5e-4, weight_decay=1e-5, amsgrad=True)
    rows = [
        [torch.from_numpy(np.ascontiguousarray(batch[:, i])) for i in range(4)] for batch in batches
    ]

    def steps() -> None:
        for q, qd, qdd, tau in rows:
            adam.zero_grad()
            predicted, _ = model(q, qd, qdd)
            loss = torch.mean(torch.sum((predicted - tau) ** 2, dim=1))
            loss.backward()
            adam.step()

    return steps


def _torch_call(module: Any, motion: np.ndarray, width: int) -> Call:
    torch = importlib.import_module("torch")
    model = _torch_model(module, motion.shape[-1], width)
    rows = motion.astype(np.float32)

    @torch.no_grad()
    def call(*vectors: np.ndarray) -> np.ndarray:
        return model.inv_dyn(*(torch.from_numpy(vector).view(1, -1) for vector in vectors)).numpy()

    return call, tuple(rows)


def _jax_lagrangian(joints: int, width: int, module: Any) -> tuple[Any, Any]:
    """Return the Lagrangian as a function, and its weights."""
    haiku = importlib.import_module("haiku")
    shape = {
        "n_dof": joints,
        "shape": (width, width),
        "activation": jnp.tanh,
        "epsilon": 0.1,
        "shift": 2.0,
    }
    transformed = haiku.transform(partial(module.structured_lagrangian_fn, **shape))
    return transformed.apply, transformed.init(
        jax.random.key(0), jnp.ones(joints), jnp.ones(joints)
    )


def _jax_steps(module: Any, batches: np.ndarray, width: int) -> Any:
    joints = batches.shape[-1]
    lagrangian, start = _jax_lagrangian(joints, width, module)
    adam = optax.adamw(1e-4, weight_decay=1e-5)
    scale = jnp.ones(joints)
    loss = partial(
        module.inverse_loss_fn, lagrangian=lagrangian, n_dof=joints, norm_tau=scale, norm_qdd=scale
    )
    rows = [[jnp.asarray(batch[:, i]) for i in range(4)] for batch in batches]

    @jax.jit
    def step(weights: Any, optimizer: Any, *row: Any) -> Any:
        (_, logs), gradient = jax.value_and_grad(loss, has_aux=True)(weights, *row)
        updates, optimizer = adam.update(gradient, optimizer, weights)
        return optax.apply_updates(weights, updates), optimizer, logs

    def steps() -> None:
        weights, optimizer, logs = start, adam.init(start), None
        for row in rows:
            weights, optimizer, logs = step(weights, optimizer, *row)
        jax.block_until_ready((weights, logs))

    return steps


def _jax_call(module: Any, motion: np.ndarray, width: int) -> Call:
    lagrangian, weights = _jax_lagrangian(motion.shape[-1], width, module)
    inverse = jax.jit(partial(module.inverse_model, lagrangian=lagrangian))

    def call(*vectors: np.ndarray) -> np.ndarray:
        return np.asarray(inverse(weights, None, *(vector[None] for vector in vectors)))

    return call, tuple(motion.astype(np.float32))
