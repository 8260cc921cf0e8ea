"""Agreement of three engines, their energy drift, and the error of rigid models on a cable drive.

python -m benchmarks.robots
"""

from dataclasses import replace

import jax
import numpy as np

from delan.identification.identify import IdentifySettings, identify
from delan.learning.scores import evaluate
from delan.models.rigid_body import RigidBody
from delan.motions.cosines import cosines
from delan.robots import ARMS
from delan.robots.arms import WAM4, WAM4_ANALYTIC
from delan.robots.cable_drive import CableDrivenRobot
from delan.robots.description import Arm
from delan.robots.mujoco_robot import MujocoRobot
from delan.robots.pybullet_robot import PybulletRobot
from tests.support.tracking import track

from .results import write_results

ENGINES = {"MuJoCo": MujocoRobot.of, "PyBullet": PybulletRobot}


def agreement(arm: Arm) -> dict[str, float]:
    """Return each engine's largest torque difference from Pinocchio over 1,000 states [N m]."""
    model = RigidBody.from_urdf(arm.urdf())
    worst = {}
    for name, make in ENGINES.items():
        robot = make(arm)
        rng = np.random.default_rng(0)
        worst[name] = 0.0
        for _ in range(1000):
            q = rng.uniform(arm.limits.lower, arm.limits.upper)
            qd, qdd = rng.normal(0, 2, (2, arm.joints.dof))
            gap = np.abs(robot.inverse_dynamics(q, qd, qdd) - model.inverse_dynamics(q, qd, qdd))
            worst[name] = max(worst[name], float(gap.max()))
    return worst


def energy_drift(arm: Arm) -> dict[str, dict[str, float]]:
    """Return the energy drift of a free arm in 10 s over its total and largest kinetic energy."""
    free = replace(arm, links=tuple(replace(link, position=(-1e3, 1e3)) for link in arm.links))
    model = RigidBody.from_urdf(arm.urdf())
    drift = {}
    start = (
        np.array([-1.2, 0.4])
        if arm.joints.dof == 2
        else np.array([0.2, 2.6, 0.1, 0.3, 0.1, 0.1, 0.1])
    )
    for name, make in ENGINES.items():
        robot = make(free)
        states = [robot.reset(start[: arm.joints.dof])]
        states += [robot.step(np.zeros(arm.joints.dof)) for _ in range(round(10 / robot.dt))]
        energies = [model.energy(state.q, state.qd) for state in states]
        total = np.array([energy.total for energy in energies])
        strayed = float(np.abs(total - total[0]).max())
        kinetic = max(energy.kinetic for energy in energies)
        drift[name] = {
            "of_total": strayed / abs(float(total[0])),
            "of_kinetic": strayed / float(kinetic),
        }
    return drift


def cable_errors() -> dict[str, dict[str, list[float]]]:
    """Return the test nMSE of rigid models on the 4-joint WAM with cables and without."""
    true = RigidBody.from_urdf(WAM4.urdf())
    errors: dict[str, dict[str, list[float]]] = {}
    for name, robot in (("cables", CableDrivenRobot(WAM4)), ("rigid", MujocoRobot.of(WAM4))):
        motions = [
            cosines(WAM4.limits, key=jax.random.key(seed), share=0.5).sample(robot.dt)
            for seed in range(2)
        ]
        training, test = (track(robot, true, motion) for motion in motions)
        models = {
            "true links": true,
            "second set of numbers": RigidBody.from_urdf(WAM4_ANALYTIC.urdf()),
            "identified, friction and rotors": identify(
                training, WAM4.urdf(), IdentifySettings(physical=True)
            ).model,
        }
        errors[name] = {
            model_name: list(evaluate(model, test, rollouts=False).torque.nmse)
            for model_name, model in models.items()
        }
    return errors


def main() -> None:
    engines = {name: agreement(arm) for name, arm in ARMS.items()}
    for name, worst in engines.items():
        print(
            f"{name}: largest difference from Pinocchio [N m]: "
            + ", ".join(f"{e} {x:.1e}" for e, x in worst.items())
        )
    drifts = {name: energy_drift(arm) for name, arm in ARMS.items()}
    for name, drift in drifts.items():
        shares = (
            f"{e} {x['of_total']:.1e} ({x['of_kinetic']:.1e} of the kinetic)"
            for e, x in drift.items()
        )
        print(f"{name}: relative energy drift of the free arm: " + ", ".join(shares))
    errors = cable_errors()
    for robot, models in errors.items():
        for model, nmse in models.items():
            print(f"WAM, 4 joints, {robot}; {model}: nMSE {', '.join(f'{x:.2g}' for x in nmse)}")
    write_results(
        "robots", {"torque_difference": engines, "energy_drift": drifts, "nmse_on_wam4": errors}
    )


if __name__ == "__main__":
    main()
