"""From a URDF to a better model: identify an arm that is heavier than its file says.

Replace `arm.urdf` with your own file, and the simulated motion with a log of your robot
(`delan.read_log`). Run it: python examples/your_own_urdf.py
"""

import tempfile
from pathlib import Path

import numpy as np

import delan
from delan.robots import from_urdf

JOINT = """
<joint name="{name}" type="revolute">
  <parent link="{parent}"/> <child link="{name}_link"/>
  <origin xyz="0 0 {height}"/> <axis xyz="0 1 0"/>
  <limit lower="-3" upper="3" velocity="8" effort="60"/> <dynamics damping="{damping}"/>
</joint>
<link name="{name}_link"> <inertial>
  <origin xyz="0 0 0.2"/> <mass value="{mass}"/>
  <inertia ixx="0.02" iyy="0.02" izz="0.002" ixy="0" ixz="0" iyz="0"/>
</inertial> </link>"""


def arm_urdf(path: Path, forearm: float, damping: float) -> Path:
    """Write the URDF of an arm with two links of 0.4 m."""
    shoulder = JOINT.format(name="shoulder", parent="base", height=0, mass=2.0, damping=damping)
    elbow = JOINT.format(
        name="elbow", parent="shoulder_link", height=0.4, mass=forearm, damping=damping
    )
    path.write_text(f'<robot name="arm"> <link name="base"/> {shoulder} {elbow} </robot>')
    return path


folder = Path(tempfile.mkdtemp())
urdf = arm_urdf(folder / "arm.urdf", forearm=1.0, damping=0.0)
nominal = from_urdf(urdf).model  # inverse and forward dynamics, inertia and energy of the file
# The real arm has a tool and friction that the file does not know of.
robot = from_urdf(arm_urdf(folder / "real.urdf", forearm=1.5, damping=0.4)).robot


def follow(rates: np.ndarray) -> delan.Recording:
    """Record 4 s of sines of these rates [rad/s] under PD control with nominal feed-forward."""
    rows = []
    state = robot.reset()
    for t in np.arange(0, 4, robot.dt):
        q_des = np.sin(rates * t)
        qd_des = rates * np.cos(rates * t)
        qdd_des = -(rates**2) * np.sin(rates * t)
        tau = nominal.inverse_dynamics(q_des, qd_des, qdd_des)
        tau = tau + 40 * (q_des - state.q) + 4 * (qd_des - state.qd)
        tau = np.clip(tau, -robot.limits.torque, robot.limits.torque)
        rows.append((t, state.q, state.qd, tau))
        state = robot.step(tau)
    t, q, qd, tau = (np.array(column) for column in zip(*rows, strict=True))
    return delan.Recording(
        t=t, q=q, qd=qd, tau=tau, trajectory=np.zeros(len(t), dtype=int), joints=robot.joints
    )


low_pass = delan.PreparationSettings(cutoff=30.0)  # Hz
training = delan.prepare(follow(np.array([2.0, 5.0])), low_pass)
test = delan.prepare(follow(np.array([4.0, 3.0])), low_pass)
# Takes the geometry from the file; identifies masses, inertias and friction.
result = delan.identify(training, urdf)
for name, model in (("of the file", nominal), ("identified", result.model)):
    scores = delan.evaluate(model, test, rollouts=False)
    print(f"torque nMSE on test motion, {name}: {scores.torque.nmse_mean:.1e}")
print(f"{result.rank} parameters were identified")
print(f"the data do not determine {', '.join(result.named('no')[:3])}, …")
delan.save(delan.from_rigid_body(result.model), folder / "arm.delan")  # ready for `delan export`
