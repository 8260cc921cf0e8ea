"""Training throughput of the three-pass torque against the paper's Lagrangian layer, side by side in one run.

    python -m benchmarks.throughput [--joints 2 4 7] [--width 64] [--repeats 7]

Both rows share network, data, loss and Adam; only the computation of the torque differs. One core, float32, batch 512,
whole epochs inside `lax.scan`, timed after warm-up with `block_until_ready`; the rows take turns so that a noisy
machine hurts both alike.
"""

import os

os.environ["XLA_FLAGS"] = "--xla_cpu_multi_thread_eigen=false " + os.environ.get("XLA_FLAGS", "")
if hasattr(os, "sched_setaffinity"):
    os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})

import argparse
import time
from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax

from delan.joints import Joints
from delan.models.dynamics import trainable
from delan.models.network import LagrangianNetwork, LagrangianNetworkSettings
from tests.oracles import paper_layer_torque

from .results import write_results

SAMPLES, BATCH = 20_480, 512
ROWS: dict[str, Callable[..., Any]] = {
    "three passes": lambda model, *motion: model.inverse_dynamics(*motion),
    "paper's layer": paper_layer_torque,
}


def epoch_of(torque: Callable[..., Any], joints: int, width: int) -> Callable[[], None]:
    """One epoch of Adam over random data, ready to be timed."""
    settings = LagrangianNetworkSettings(width=width)
    weights, fixed = trainable(LagrangianNetwork(Joints.revolute(joints), settings, key=jax.random.key(0)))
    batches = jax.random.normal(jax.random.key(1), (SAMPLES // BATCH, BATCH, 4, joints))
    adam = optax.adam(1e-4)

    def loss(weights: Any, batch: Any) -> Any:
        model = eqx.combine(weights, fixed)
        predicted = jax.vmap(lambda row: torque(model, row[0], row[1], row[2]))(batch)
        return jnp.mean((predicted - batch[:, 3]) ** 2)

    @jax.jit
    def epoch(weights: Any, optimizer: Any) -> Any:
        def step(carry: Any, batch: Any) -> Any:
            weights, optimizer = carry
            value, gradient = jax.value_and_grad(loss)(weights, batch)
            updates, optimizer = adam.update(gradient, optimizer)
            return (optax.apply_updates(weights, updates), optimizer), value

        return jax.lax.scan(step, (weights, optimizer), batches)

    optimizer = adam.init(weights)
    return lambda: jax.block_until_ready(epoch(weights, optimizer))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--joints", type=int, nargs="+", default=[2, 4, 7])
    parser.add_argument("--width", type=int, default=64)
    parser.add_argument("--repeats", type=int, default=7)
    chosen = parser.parse_args()
    told = {}
    print(f"training samples/s, one core, 2 × {chosen.width} units, batch {BATCH}")
    for joints in chosen.joints:
        epochs = {name: epoch_of(torque, joints, chosen.width) for name, torque in ROWS.items()}
        times: dict[str, list[float]] = {name: [] for name in ROWS}
        for repeat in range(chosen.repeats + 1):
            for name, epoch in epochs.items():
                began = time.perf_counter()
                epoch()
                if repeat:  # the first one compiles
                    times[name].append(time.perf_counter() - began)
        rates = {name: SAMPLES / float(np.median(seconds)) for name, seconds in times.items()}
        ratios = np.array(times["paper's layer"]) / np.array(times["three passes"])
        told[joints] = {"samples_per_second": rates, "ratio": float(np.median(ratios))}
        shown = ", ".join(f"{name} {rate / 1e3:.0f} k" for name, rate in rates.items())
        print(f"{joints} joints: {shown}; ratio {np.median(ratios):.2f} ({ratios.min():.2f} … {ratios.max():.2f})")
    write_results("throughput", {"width": chosen.width, "batch": BATCH, "joints": told})


if __name__ == "__main__":
    main()
