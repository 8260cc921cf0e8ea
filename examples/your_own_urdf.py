"""From a URDF to a better model: the arm of the file moves, is recorded, and turns out heavier than the file says.

Your own file takes the place of `arm.urdf`, and a log of your robot (`delan.read_log`) that of the simulated motion.
Run it: python examples/your_own_urdf.py
"""

import tempfile
from pathlib import Path

import numpy as np

import delan
from delan.robots import from_urdf

JOINT = """
<joint name="{name}" type="revolute"> <parent link="{parent}"/> <child link="{name}_link"/> <origin xyz="0 0 {height}"/>
  <axis xyz="0 1 0"/> <limit lower="-3" upper="3" velocity="8" effort="60"/> <dynamics damping="{damping}"/> </joint>
<link name="{name}_link"> <inertial> <origin xyz="0 0 0.2"/> <mass value="{mass}"/>
  <inertia ixx="0.02" iyy="0.02" izz="0.002" ixy="0" ixz="0" iyz="0"/> </inertial> </link>"""


def arm_urdf(path: Path, forearm: float, damping: float) -> Path:
    """Two links of 0.4 m: a file such as the maker of a robot gives."""
    shoulder = JOINT.format(name="shoulder", parent="base", height=0, mass=2.0, damping=damping)
    elbow = JOINT.format(name="elbow", parent="shoulder_link", height=0.4, mass=forearm, damping=damping)
    path.write_text(f'<robot name="arm"> <link name="base"/> {shoulder} {elbow} </robot>')
    return path


folder = Path(tempfile.mkdtemp())
urdf = arm_urdf(folder / "arm.urdf", forearm=1.0, damping=0.0)
believed = from_urdf(urdf).model  # inverse and forward dynamics, inertia, energy: as the file says
robot = from_urdf(arm_urdf(folder / "real.urdf", forearm=1.5, damping=0.4)).robot  # the real arm: a tool, and friction


def follow(rates: np.ndarray) -> delan.Recording:
    """Sines of these rates [rad/s], by PD control and the believed torques: what the sensors told in 4 s."""
    rows, state = [], robot.reset()
    for t in np.arange(0, 4, robot.dt):
        q_des, qd_des, qdd_des = np.sin(rates * t), rates * np.cos(rates * t), -(rates**2) * np.sin(rates * t)
        tau = believed.inverse_dynamics(q_des, qd_des, qdd_des) + 40 * (q_des - state.q) + 4 * (qd_des - state.qd)
        tau = np.clip(tau, -robot.limits.torque, robot.limits.torque)
        rows.append((t, state.q, state.qd, tau))
        state = robot.step(tau)
    t, q, qd, tau = (np.array(column) for column in zip(*rows, strict=True))
    return delan.Recording(t=t, q=q, qd=qd, tau=tau, trajectory=np.zeros(len(t), dtype=int), joints=robot.joints)


smooth = delan.PreparationSettings(cutoff=30.0)  # Hz
learn, test = (delan.prepare(follow(np.array(rates)), smooth) for rates in ([2.0, 5.0], [4.0, 3.0]))
found = delan.identify(learn, urdf)  # believes the file's geometry, finds masses, inertias and friction
for name, model in (("as the file says", believed), ("identified", found.model)):
    scores = delan.evaluate(model, test, rollouts=False)
    print(f"torque nMSE on motion never seen, {name}: {scores.torque.nmse_mean:.1e}")
print(f"{found.rank} numbers were found; the data cannot tell {', '.join(found.named('no')[:3])}, …")
delan.save(delan.from_rigid_body(found.model), folder / "arm.delan")  # and on to `delan export`
