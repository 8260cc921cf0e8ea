"""Learn a closed loop in the two coordinates of its motors, with a DeLaN network as it is.

Two arms of two links are pinned together at their ends and driven at their bases. Motor angles
determine the whole mechanism as long as the tip stays above the elbows, so that it has a Lagrangian
in these two coordinates, and nothing needs to be known of the loop. MuJoCo is the robot.
Run it: python examples/five_bar.py
"""

from typing import Any

import mujoco
import numpy as np

import delan

engine: Any = mujoco  # its names are created on import
PERIOD = 0.01  # s between logged samples
STEPS = 20  # of the simulation in a period
MIDDLE = np.array([2.2, 0.9])  # rad: the left arm points up and left, the right one up and right
GAINS = (60.0, 6.0)  # N m/rad, N m s/rad


def link(name: str, at: float, length: float, mass: float, inner: str = "") -> str:
    """Return a slender link that turns in the vertical plane, its end marked by a site."""
    moment = mass * length**2 / 12
    return (
        f'<body pos="{at} 0 0"><joint name="{name}" axis="0 -1 0"/>'
        f'<inertial pos="{length / 2} 0 0" mass="{mass}" diaginertia="1e-4 {moment} {moment}"/>'
        f'<site name="end of {name}" pos="{length} 0 0"/>{inner}</body>'
    )


left = link("left motor", -0.1, 0.25, 2.0, link("left elbow", 0.25, 0.42, 1.5))
right = link("right motor", 0.1, 0.22, 1.6, link("right elbow", 0.22, 0.38, 1.2))
robot = engine.MjModel.from_xml_string(
    f'<mujoco><option timestep="{PERIOD / STEPS}"/><worldbody>{left}{right}</worldbody><equality>'
    '<connect site1="end of left elbow" site2="end of right elbow" solref="0.002 1" '
    'solimp="0.9999 0.9999 0.001 0.5 2"/></equality></mujoco>'
)
MOTORS = [robot.joint("left motor").id, robot.joint("right motor").id]


def logged(seeds: range, seconds: float = 6.0) -> delan.Dataset:
    """Return a log of the motors, which follow sums of sines."""
    columns: dict[str, list] = {"t": [], "q": [], "qd": [], "qdd": [], "tau": [], "trajectory": []}
    for seed in seeds:
        random = np.random.default_rng(seed)
        rates = random.uniform(1.0, 6.0, (3, 2))
        phases = random.uniform(0.0, 2 * np.pi, (3, 2))
        data = engine.MjData(robot)
        # The elbows start near the closed loop; the pin pulls them together in the first second.
        data.qpos[:] = MIDDLE[0], -1.25, MIDDLE[1], 1.2
        for row in range(round((1.0 + seconds) / PERIOD)):
            wanted = MIDDLE + 0.2 * np.sin(rates * data.time + phases).sum(axis=0)
            error = wanted - data.qpos[MOTORS]
            data.qfrc_applied[MOTORS] = GAINS[0] * error - GAINS[1] * data.qvel[MOTORS]
            engine.mj_forward(robot, data)
            if row * PERIOD >= 1.0:
                state = (data.qpos[MOTORS], data.qvel[MOTORS], data.qacc[MOTORS])
                values = (data.time, *state, data.qfrc_applied[MOTORS], seed)
                for column, value in zip(columns.values(), values, strict=True):
                    column.append(np.copy(value))
            engine.mj_step(robot, data, nstep=STEPS)
    arrays: dict[str, Any] = {name: np.array(column) for name, column in columns.items()}
    joints = delan.Joints(("left motor", "right motor"), ("revolute", "revolute"))
    return delan.Dataset(**arrays, joints=joints)


known = logged(range(3))
unseen = logged(range(10, 12))
training = delan.TrainingSettings(epochs=60)
result = delan.fit(known, "delan", settings=delan.FitSettings(training=training))
scores = delan.evaluate(result.model, unseen)
print(
    f"learned from {len(known)} samples: torque nMSE {scores.torque.nmse_mean:.1e} on other motions"
)
