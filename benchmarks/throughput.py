"""Training throughput of the three-pass torque against the paper's Lagrangian layer.

    python -m benchmarks.throughput [--joints 2 4 7] [--widths 64] [--turns 7] [--official PATH]

Both rows share network, data, loss and Adam; only the computation of the torque differs. One core,
float32, batch 512, whole epochs inside `lax.scan`, timed after warm-up with `block_until_ready`;
the rows take turns so that other load affects both alike. `--official` adds the published code,
see `benchmarks/official.py`.
"""

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax

from delan.joints import Joints
from delan.models.dynamics import trainable
from delan.models.networks import Engine, LagrangianNetwork, LagrangianNetworkSettings

from .official import OfficialCode
from .results import write_results
from .timing import Work, seconds_per_sample, take_one_core

BATCHES, BATCH = 40, 512
OURS, PAPERS = "three passes", "paper's layer"
ENGINES: dict[str, Engine] = {OURS: "passes", PAPERS: "layers"}


def random_batches(joints: int) -> np.ndarray:
    """Return random q, q̇, q̈ and τ: [batch, sample, quantity, joint]."""
    return np.random.default_rng(1).standard_normal((BATCHES, BATCH, 4, joints), np.float32)


def epoch_of(engine: Engine, joints: int, width: int) -> Work:
    """Return one epoch of Adam over random data, ready to be timed."""
    settings = LagrangianNetworkSettings(width=width, engine=engine)
    weights, fixed = trainable(
        LagrangianNetwork(Joints.revolute(joints), settings, key=jax.random.key(0))
    )
    batches = jnp.asarray(random_batches(joints))
    adam = optax.adam(1e-4)

    def loss(weights: Any, batch: Any) -> Any:
        model = eqx.combine(weights, fixed)
        predicted = jax.vmap(lambda row: model.inverse_dynamics(*row[:3]))(batch)
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
    return Work(lambda: jax.block_until_ready(epoch(weights, optimizer)), BATCHES * BATCH)


def measure(
    joints: Sequence[int], widths: Sequence[int], turns: int, official: OfficialCode | None = None
) -> list[dict[str, Any]]:
    """Return samples per second of every row and size, and our speed-up: median, least, most."""
    rows = []
    for width in widths:
        for dof in joints:
            works = {name: epoch_of(engine, dof, width) for name, engine in ENGINES.items()}
            if official is not None:
                works |= official.training(random_batches(dof), width)
            seconds = seconds_per_sample(works, turns)
            ratios = {
                name: times / seconds[OURS] for name, times in seconds.items() if name != OURS
            }
            row = {
                "joints": dof,
                "width": width,
                "samples_per_second": {
                    name: float(1 / np.median(times)) for name, times in seconds.items()
                },
                "ours_over": {
                    name: [float(value) for value in (np.median(ratio), ratio.min(), ratio.max())]
                    for name, ratio in ratios.items()
                },
            }
            print_row(row)
            rows.append(row)
    return rows


def print_row(row: dict[str, Any]) -> None:
    rates = ", ".join(
        f"{name} {rate / 1e3:.1f} k" for name, rate in row["samples_per_second"].items()
    )
    ratios = "; ".join(
        f"{median:.1f} × {name} ({least:.1f} … {most:.1f})"
        for name, (median, least, most) in row["ours_over"].items()
    )
    print(
        f"  {row['joints']} joints, 2 × {row['width']}: {rates}\n    {OURS}: {ratios}", flush=True
    )


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--joints", type=int, nargs="+", default=[2, 4, 7])
    parser.add_argument("--widths", type=int, nargs="+", default=[64])
    parser.add_argument("--turns", type=int, default=7)
    parser.add_argument("--official", type=Path, help="a clone of the published code")
    chosen = parser.parse_args()
    take_one_core()
    official = None if chosen.official is None else OfficialCode.at(chosen.official)
    print(f"training samples/s, one core, batch {BATCH}")
    rows = measure(chosen.joints, chosen.widths, chosen.turns, official)
    write_results("throughput", {"batch": BATCH, "rows": rows})


if __name__ == "__main__":
    main()
