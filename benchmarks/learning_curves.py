"""Error against the number of samples: the WAM, 1 % torque noise, 50 to 10,000 samples.

    python -m benchmarks.learning_curves [--seconds 45]

Scores are nMSE of the torque on noise-free test motions, mean over joints. The chain, the DeLaN
network and the feed-forward network get joint data only, and at most the given seconds each. The
networks use all of it, a third for each of three weight decays; validation chooses. The
identification knows the kinematics. Writes numbers and a figure to `benchmarks/results`.
"""

import argparse
from typing import Any

import jax
import numpy as np

from delan.figures import INK, LEARNED, RIVAL, drawing
from delan.identification.identify import IdentifySettings, identify
from delan.joints import Dataset
from delan.learning.model_fit import fit_model
from delan.learning.scores import evaluate
from delan.learning.study import Study
from delan.models.networks import LagrangianNetworkSettings
from delan.models.rigid_body import RigidBody
from delan.robots.arms import WAM7, WAM7_ANALYTIC
from delan.solvers.loss import Objective
from delan.solvers.training import TrainingSettings
from tests.support.members import noisy
from tests.support.random_arms import swung

from .results import FOLDER, write_results

SIZES = (50, 200, 1_000, 3_000, 10_000)
SEEDS = range(3)
NOISE = 0.01
DECAYS = (0.0, 1e-4, 1e-2)


def score(name: str, dataset: Dataset, unseen: Dataset, seconds: float, seed: int) -> float:
    if name == "identified, kinematics known":
        bare = IdentifySettings(friction=(), armature=False)
        model: Any = identify(dataset, WAM7_ANALYTIC.urdf(), bare).model
    else:
        paper = LagrangianNetworkSettings(focus=0.0)
        kind: Any = {
            "chain": "chain",
            "DeLaN network": paper,
            "feed-forward network": "feedforward",
        }[name]
        decays = (0.0,) if kind == "chain" else DECAYS
        tried = [
            fit_model(
                Study.of(
                    dataset,
                    TrainingSettings(
                        seconds=seconds / len(decays), objective=Objective(weight_decay=decay)
                    ),
                    key=jax.random.key(seed),
                ),
                kind,
            )
            for decay in decays
        ]
        model = min(tried, key=lambda result: result.validation.torque.nmse_mean).model
    return evaluate(model, unseen, rollouts=False).torque.nmse_mean


def draw(curves: dict[str, list[list[float]]]) -> None:
    with drawing(6.4, 3.8) as figure:
        axes = figure.subplots()
        for (name, rows), colour in zip(
            curves.items(), (LEARNED, INK, "#6b4c9a", RIVAL), strict=True
        ):
            values = np.array(rows)
            axes.loglog(SIZES, np.median(values, axis=1), "o-", color=colour, label=name)
            axes.fill_between(
                SIZES, values.min(axis=1), values.max(axis=1), color=colour, alpha=0.2, linewidth=0
            )
        axes.set_xlabel("training samples")
        axes.set_ylabel("torque nMSE on unseen motion")
        axes.set_title(f"Barrett WAM, 7 joints, {NOISE:.0%} torque noise", loc="left")
        axes.grid(visible=True)
        axes.legend()
        for kind in ("png", "svg"):
            figure.savefig(FOLDER / f"learning_curves.{kind}", dpi=130)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=45.0, help="time limit of each fit")
    seconds = parser.parse_args().seconds
    body = RigidBody.from_urdf(WAM7.urdf())
    unseen = swung(body, WAM7.limits, range(100, 105))
    whole = swung(body, WAM7.limits, range(20))
    names = ("chain", "identified, kinematics known", "DeLaN network", "feed-forward network")
    curves: dict[str, list[list[float]]] = {name: [] for name in names}
    for size in SIZES:
        for name in names:
            # One seed is enough for the networks: their spread is small compared with their
            # distance to the others.
            seeds = SEEDS if name in names[:2] else SEEDS[:1]
            rows = []
            for seed in seeds:
                part = whole.rows(np.linspace(0, len(whole) - 1, size).astype(int))
                rows.append(score(name, noisy(part, NOISE, seed=seed), unseen, seconds, seed))
            curves[name].append(rows)
            print(f"{size} samples, {name}: " + ", ".join(f"{row:.2e}" for row in rows), flush=True)
    write_results(
        "learning_curves",
        {"sizes": SIZES, "noise": NOISE, "seconds": seconds, "seeds": len(SEEDS), "nmse": curves},
    )
    draw(curves)


if __name__ == "__main__":
    main()
