"""A robot that follows a motion by PD control with rigid-body feed-forward."""

import numpy as np
from scipy.signal import butter, sosfiltfilt

from delan.joints import Dataset, Trajectory
from delan.models.rigid_body import RigidBody
from delan.robots.robot import Robot

# Gains of the WAM's joints, as its users set them.
STIFFNESS = np.array([200.0, 300, 100, 100, 10, 10, 2.5])
DAMPING = np.array([7.0, 15, 5, 2.5, 0.3, 0.3, 0.05])
CUTOFF = 8.0  # of the zero-phase filter over the measurements [Hz]


def track(robot: Robot, model: RigidBody, motion: Trajectory, *, label: int = 0) -> Dataset:
    """Return the filtered positions and torques along the motion, and derivatives of the former."""
    kp, kd = STIFFNESS[: robot.joints.dof], DAMPING[: robot.joints.dof]
    state = robot.reset(motion.q[0])
    places, torques = [], []
    for q, qd, qdd in zip(motion.q, motion.qd, motion.qdd, strict=True):
        places.append(state.q)
        feedback = kp * (q - state.q) + kd * (qd - state.qd)
        torques.append(feedback + model.inverse_dynamics(q, qd, qdd))
        state = robot.step(torques[-1])
    limit = robot.limits.torque
    low_pass = butter(4, CUTOFF, fs=1 / robot.dt, output="sos")
    q = sosfiltfilt(low_pass, np.array(places), axis=0)
    tau = sosfiltfilt(low_pass, np.clip(torques, -limit, limit), axis=0)
    qd = np.gradient(q, robot.dt, axis=0)
    inside = slice(100, -100)  # the filter's ends
    return Dataset(
        t=motion.t[inside],
        q=q[inside],
        qd=qd[inside],
        qdd=np.gradient(qd, robot.dt, axis=0)[inside],
        tau=tau[inside],
        trajectory=np.full(len(motion.t), label)[inside],
        joints=robot.joints,
        source=f"{type(robot).__name__} following {motion.label}",
    )
