"""Identification of the simulated Barrett WAM: accuracy, sensitivity to noise, and time.

    python -m benchmarks.identification

The arm carries Barrett's specification; the URDF that the identification starts from carries
another published set. Scores are nMSE of the torque on a noise-free test motion, mean over joints,
and the worst of several seeds. Linear algebra runs on one core: on matrices this small its threads
mostly wait for each other.
"""

import os

os.environ["OPENBLAS_NUM_THREADS"] = "1"

import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np

from delan.identification.identify import IdentifyResult, IdentifySettings, identify
from delan.identification.physical_links import pseudo_inertias
from delan.joints import Dataset
from delan.models.rigid_body import RigidBody
from delan.robots.arms import DRIVE_INERTIA, WAM7, WAM7_ANALYTIC
from tests.identification.test_identify import BARE, FRICTION, moved, nmse, real, rigid
from tests.support.members import noisy

from .results import write_results

SEEDS = 5
SAMPLES, MANY, FEW = 2_000, 20_000, 100

ROWS: dict[str, tuple[Callable[[], RigidBody], IdentifySettings, int, float]] = {
    "no noise": (rigid, BARE, SAMPLES, 0.0),
    "5 % noise": (rigid, BARE, SAMPLES, 0.05),
    "20 % noise, 100 samples": (rigid, BARE, FEW, 0.2),
    "friction and rotors, no noise": (real, IdentifySettings(), SAMPLES, 0.0),
    "friction and rotors, 5 % noise": (real, IdentifySettings(), SAMPLES, 0.05),
    "friction and rotors, 20 % noise, 100 samples": (real, IdentifySettings(), FEW, 0.2),
}


def score(
    body: RigidBody, swings: list[Dataset], held_out: Dataset, settings: IdentifySettings
) -> dict[str, Any]:
    """Return the worst score over the seeds for one way to identify."""
    results = [identify(swing, WAM7_ANALYTIC.urdf(), settings) for swing in swings]
    scores: dict[str, Any] = {
        "rank": results[0].rank,
        "condition": max(result.condition for result in results),
        "nmse": max(nmse(result.model, held_out) for result in results),
        "impossible_links": max(len(result.impossible) for result in results),
        "smallest_eigenvalue": min(smallest(result) for result in results),
        "not_told": [len(results[0].named("combined")), len(results[0].named("no"))],
    }
    if body.friction is not None:
        scores["friction_error"] = max(friction_error(result) for result in results)
    return scores


def smallest(result: IdentifyResult) -> float:
    """Return the smallest eigenvalue of a pseudo-inertia; positive if every link is physical."""
    return float(np.linalg.eigvalsh(pseudo_inertias(result.model.parameters)).min())


def friction_error(result: IdentifyResult) -> float:
    """Return the largest error of the friction and of the identifiable rotors (from the third on),
    relative to the largest value of each kind.
    """
    friction = result.model.friction
    assert friction is not None
    pairs = [
        (friction.named[term], FRICTION.named[term]) for term in ("coulomb", "viscous", "offset")
    ]
    pairs.append((result.model.armature[2:], np.array(DRIVE_INERTIA[2:])))
    return max(float(np.abs(value - true).max() / np.abs(true).max()) for value, true in pairs)


def seconds(settings: IdentifySettings, swing: Dataset) -> float:
    """Return the median of three runs."""
    times = []
    for _ in range(3):
        began = time.perf_counter()
        identify(swing, WAM7_ANALYTIC.urdf(), settings)
        times.append(time.perf_counter() - began)
    return float(np.median(times))


def main() -> None:
    results: dict[str, Any] = {}
    for name, (make, settings, samples, noise) in ROWS.items():
        body = make()
        held_out = moved(WAM7, body, 1_000, seed=100)
        swings = [
            noisy(moved(WAM7, body, samples, seed=seed), noise, seed) for seed in range(SEEDS)
        ]
        results[name] = {}
        for mode, physical in (("plain", False), ("physical", True)):
            row = score(body, swings, held_out, replace(settings, physical=physical))
            results[name][mode] = row
            extra = (
                f", friction off by {row['friction_error']:.1e}" if "friction_error" in row else ""
            )
            print(
                f"{name}, {mode}: nMSE {row['nmse']:.1e}, rank {row['rank']}, "
                f"condition {row['condition']:.1f}, impossible links {row['impossible_links']}, "
                f"eigenvalue {row['smallest_eigenvalue']:.1e}{extra}"
            )
    swing = noisy(moved(WAM7, real(), MANY, seconds=100.0), 0.05)
    speed = {
        "plain": seconds(IdentifySettings(), swing),
        "physical": seconds(IdentifySettings(physical=True), swing),
    }
    print(f"{MANY} samples × 7 joints: plain {speed['plain']:.2f} s")
    print(f"physical {speed['physical']:.2f} s")
    write_results(
        "identification", {"seeds": SEEDS, "rows": results, "samples": MANY, "seconds": speed}
    )


if __name__ == "__main__":
    main()
