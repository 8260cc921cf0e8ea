"""Drive a robot of your own and learn its dynamics online.

The robot is any class with the attributes and methods of `delan.online.Robot`; here it is a
pendulum in a few lines of numpy. Run it: python examples/your_own_robot.py
"""

import numpy as np

import delan
from delan import online


class Pendulum:
    """A pendulum with viscous and Coulomb friction, driven at 500 Hz."""

    joints = delan.Joints.revolute(1)
    dt = 0.002
    limits = delan.JointLimits(
        lower=np.array([-3.0]),
        upper=np.array([3.0]),
        velocity=np.array([8.0]),
        torque=np.array([12.0]),
    )

    def reset(self, q=None, qd=None):
        self.q = np.zeros(1) if q is None else np.array(q)
        self.qd = np.zeros(1) if qd is None else np.array(qd)
        self.t = 0.0
        return delan.JointState(self.t, self.q, self.qd)

    def step(self, tau):
        """Apply the torque [N m] for one period, in ten steps of the physics."""
        for _ in range(10):
            friction = 0.1 * self.qd + 0.3 * np.tanh(self.qd / 0.05)
            gravity = 1.2 * 9.81 * 0.4 * np.sin(self.q)  # 1.2 kg at 0.4 m
            self.qd = self.qd + (tau - friction - gravity) / 0.25 * self.dt / 10
            self.q = self.q + self.qd * self.dt / 10
        self.t += self.dt
        return delan.JointState(self.t, self.q, self.qd)


t = np.arange(0, np.pi, Pendulum.dt)
swing = [1.2 * (1 - np.cos(2 * t)), 2.4 * np.sin(2 * t), 4.8 * np.cos(2 * t)]
q, qd, qdd = (values[:, None] for values in swing)
motion = delan.Trajectory(t=t, q=q, qd=qd, qdd=qdd, label="swing")

gains = online.Gains(stiffness=np.array([8.0]), damping=np.array([2.0]))  # low gains
settings = online.SessionSettings(
    clock="stepped", seconds=6, friction=delan.FrictionSettings(terms=("viscous", "coulomb"))
)
outcome = online.run(
    Pendulum(), motion, "chain", test={"test": [motion]}, gains=gains, settings=settings
)
before = outcome.train.segments[0].tracking.mse_sum
after = outcome.tracking["test"].mse_sum
print(f"mean square tracking error: {before:.1e} rad² at first, {after:.1e} rad² after learning")
print(f"learned inertia: {np.asarray(outcome.model.mass_matrix(np.zeros(1))).item():.3f} kg m²")
assert after < before / 5
