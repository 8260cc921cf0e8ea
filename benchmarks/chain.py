"""The Lagrangian chain on the simulated Barrett WAM and on twenty random arms.

    python -m benchmarks.chain [wam] [arms] [friction] [cost]

The chain gets joint data only. Scores are nMSE of the torque on noise-free test motions, mean over
joints. Every fit of the WAM runs in its own process with nothing compiled, so its time is that of a
first use. All rows by default.
"""

import multiprocessing
import sys
import time
from collections.abc import Callable
from typing import Any

import jax
import numpy as np

from delan.joints import Dataset, JointKind, JointLimits
from delan.learning.model_fit import fit_model
from delan.learning.scores import evaluate
from delan.learning.study import FrictionChoice, Study
from delan.models.chain import LagrangianChain, LagrangianChainSettings
from delan.models.friction import Friction, FrictionSettings
from delan.models.geometry import from_rigid_body, learned_arm
from delan.models.model import Model
from delan.models.networks import LagrangianNetwork
from delan.models.rigid_body import RigidBody
from delan.robots.arms import DRIVE_INERTIA, WAM7
from delan.solvers.plan import ModelChoice
from tests.support.members import noisy
from tests.support.random_arms import random_arm, rigid, scattered, swung

from .results import write_results

SEEDS = range(5)
SAMPLES, NOISY_SAMPLES, FEW = 2_000, 5_000, 50
TRAINING, UNSEEN = range(10), range(100, 105)
# Prismatic joints by the number of the arm, and the number of the arm that is a tree.
PRISMATIC = {3: (2,), 8: (0, 4)}
TREE = 12


def wam(*, friction: Friction | None = None, rotors: bool = False) -> RigidBody:
    armature = np.array(DRIVE_INERTIA) if rotors else None
    return RigidBody.from_urdf(WAM7.urdf(), friction=friction, armature=armature)


def known_friction() -> Friction:
    """Return viscous, Coulomb and Stribeck friction as large as that of the WAM's joints."""
    fall = np.geomspace(1, 0.05, 7)
    return Friction.known(
        WAM7.joints,
        {"coulomb": 2.0 * fall, "viscous": 1.0 * fall, "stribeck": 1.0 * fall},
        width=0.03,
        stribeck_speed=0.12,
    )


def score(
    body: RigidBody,
    limits: JointLimits,
    dataset: Dataset,
    seed: int,
    model: ModelChoice = "chain",
    friction: FrictionChoice = None,
) -> tuple[dict[str, Any], Any]:
    """Fit, and score on test motion at the same and at twice the speed."""
    began = time.perf_counter()
    result = fit_model(Study.of(dataset, friction=friction, key=jax.random.key(seed)), model)
    seconds = time.perf_counter() - began
    unseen, faster = (swung(body, limits, UNSEEN, speed=speed) for speed in (1.0, 2.0))
    scores = {
        "seed": seed,
        "nmse": evaluate(result.model, unseen, rollouts=False).torque.nmse_mean,
        "nmse_at_twice_the_speed": evaluate(result.model, faster, rollouts=False).torque.nmse_mean,
        "inertia_error": inertia_error(result.model, body, unseen),
        "seconds": seconds,
    }
    return scores, result


def inertia_error(model: Any, body: RigidBody, dataset: Dataset) -> float:
    """Return the largest ‖H_learned − H‖ / ‖H‖ on test positions."""
    assert model.promises.mechanics
    with jax.enable_x64(True):
        places = dataset.q[::50]
        learned = np.asarray(jax.jit(jax.vmap(lambda q: model.mass_matrix(q)))(places))
    true = np.stack([body.mass_matrix(q) for q in places])
    return float(
        np.max(np.linalg.norm(learned - true, axis=(1, 2)) / np.linalg.norm(true, axis=(1, 2)))
    )


def wam_row(kind: str, seed: int) -> dict[str, Any]:
    body, limits = wam(), WAM7.limits
    datasets: dict[str, Callable[[], Dataset]] = {
        "smooth": lambda: swung(body, limits, TRAINING, samples=SAMPLES),
        "scattered": lambda: scattered(body, limits, FEW, seed=seed),
        "noisy": lambda: noisy(
            swung(body, limits, TRAINING, samples=NOISY_SAMPLES), 0.05, seed=seed
        ),
    }
    scores, result = score(body, limits, datasets[kind](), seed)
    learned, true = learned_arm(result.model), learned_arm(from_rigid_body(body))
    scores["geometry_error_mm"] = float(1e3 * np.abs(learned.points - true.points).max())
    return scores


def friction_row(kind: str, seed: int) -> dict[str, Any]:
    truth = known_friction()
    body = wam(friction=truth, rotors=True)
    dataset = swung(body, WAM7.limits, TRAINING)
    terms = FrictionSettings(("viscous", "coulomb", "stribeck", "offset"))
    scores, result = score(
        body, WAM7.limits, dataset, seed, friction="auto" if kind == "chosen" else terms
    )
    assert isinstance(result.model, Model)
    assert result.model.friction is not None
    head, speeds = result.model.friction, np.linspace(-1.5, 1.5, 301)
    learned, true = (
        np.stack([np.asarray(friction.torque(np.full(7, v), np.zeros(7))) for v in speeds])
        for friction in (head, truth)
    )
    scores["friction_curve_error"] = float(
        np.max(np.sqrt(np.mean((learned - true) ** 2, axis=0) / np.mean(true**2, axis=0)))
    )
    scores["terms"] = list(head.settings.terms)
    return scores


def arm_row(_: str, seed: int) -> dict[str, Any]:
    kinds: list[JointKind] = ["revolute"] * (6 + seed % 2)
    for joint in PRISMATIC.get(seed, ()):
        kinds[joint] = "prismatic"
    parents = (-1, 0, 1, 1, 3, 0) if seed == TREE else None
    bodies, limits = random_arm(kinds, seed=seed, parents=parents)
    body = rigid(bodies)
    dataset = swung(body, limits, TRAINING, samples=SAMPLES)
    scores, _ = score(body, limits, dataset, 0, LagrangianChainSettings(parents))
    return {**scores, "seed": seed, "joints": kinds, "tree": parents is not None}


def cost() -> dict[str, float]:
    """Return the floating-point operations of one inverse dynamics, as counted by XLA.

    XLA counts the body of a loop once; the chain's loops run once per joint, so its count is
    multiplied by the number of joints.
    """
    motion = (jax.numpy.zeros(7),) * 3
    flops = {}
    for name, model, times in (
        ("chain", LagrangianChain(WAM7.joints, key=jax.random.key(0)), 7),
        ("network", LagrangianNetwork(WAM7.joints, key=jax.random.key(0)), 1),
    ):
        compiled = (
            jax.jit(lambda q, qd, qdd, m=model: m.inverse_dynamics(q, qd, qdd))
            .lower(*motion)
            .compile()
        )
        flops[name] = times * float((compiled.cost_analysis() or {})["flops"])
    return {**flops, "ratio": flops["chain"] / flops["network"]}


ROWS: dict[str, list[tuple[str, Callable[[str, int], dict[str, Any]], str, range]]] = {
    "wam": [
        (f"{SAMPLES} smooth samples", wam_row, "smooth", SEEDS),
        (f"{FEW} scattered samples", wam_row, "scattered", SEEDS),
        (f"{NOISY_SAMPLES} samples, 5 % noise", wam_row, "noisy", SEEDS),
    ],
    "friction": [
        ("friction of known kind, rotors", friction_row, "known", range(3)),
        ("friction chosen on validation, rotors", friction_row, "chosen", range(1)),
    ],
    "arms": [("random arms", arm_row, "", range(20))],
}


def run(row: Callable[[str, int], dict[str, Any]], kind: str, seeds: range) -> list[dict[str, Any]]:
    with multiprocessing.get_context("spawn").Pool(1, maxtasksperchild=1) as pool:
        return pool.starmap(row, [(kind, seed) for seed in seeds], chunksize=1)


def main() -> None:
    wanted = sys.argv[1:] or [*ROWS, "cost"]
    for name in wanted:
        if name == "cost":
            counted = cost()
            print("flops of one inverse dynamics:", counted)
            write_results("chain_cost", counted)
            continue
        results = {}
        for title, row, kind, seeds in ROWS[name]:
            rows = run(row, kind, seeds)
            results[title] = rows
            for key in (
                "nmse",
                "nmse_at_twice_the_speed",
                "inertia_error",
                "geometry_error_mm",
                "friction_curve_error",
                "seconds",
            ):
                values = [scores[key] for scores in rows if key in scores]
                if values:
                    print(
                        f"{title}: {key} median {np.median(values):.2e}, worst {max(values):.2e}",
                        flush=True,
                    )
        write_results(f"chain_{name}", {"rows": results})


if __name__ == "__main__":
    main()
