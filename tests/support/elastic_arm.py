"""A two-link arm with springs in its joints, simulated in MuJoCo, and rigid arms beside it.

Every joint of the elastic arm is two of MuJoCo's: that of the link, and that of the motor beside
it, on the same parent. A tendon with stiffness and damping holds them together. The reflected
inertia of a rotor is MuJoCo's `armature`. Motors follow cosines by PD control; what the encoders of
both sides and the drives would record is the log.
"""

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import jax
import mujoco as _mujoco
import numpy as np

from delan.joints import Body, Dataset, JointLimits, Joints, Recording
from delan.logs.both_sides import both_sides
from delan.models.rigid_body import RigidBody
from delan.motions.cosines import cosines

mujoco: Any = _mujoco

# Steps of the simulation [s]; the control acts in each of their stages, so that no torque is held.
STEP = 0.0005


@dataclass(frozen=True)
class ElasticArm:
    """Two links in a vertical plane, driven through springs.

    Attributes:
        stiffness, damping: of the springs [N m/rad, N m s/rad]; infinite stiffness: a rigid arm.
        rotor: reflected inertia of each motor [kg m²].
        viscous, coulomb: friction of each motor [N m s/rad, N m].
        kp, kd: gains of the control of the motors.
        noise: of every encoder [rad]; torque_noise: of the torques, as a share of their spread.
    """

    stiffness: tuple[float, ...] = (300.0, 60.0)
    damping: tuple[float, ...] = (0.6, 0.12)
    rotor: tuple[float, ...] = (0.35, 0.08)
    viscous: tuple[float, ...] = (0.8, 0.3)
    coulomb: tuple[float, ...] = (0.0, 0.0)
    kp: tuple[float, ...] = (400.0, 100.0)
    kd: tuple[float, ...] = (40.0, 10.0)
    noise: float = 0.0
    torque_noise: float = 0.0

    @property
    def rigid(self) -> bool:
        return bool(np.isinf(self.stiffness).all())

    @property
    def mjcf(self) -> str:
        """The arm as MuJoCo reads it; a rigid one has its rotors in the joints of its links."""
        tendons = ""
        armature = list(self.rotor)
        rotors = ["", ""]
        if not self.rigid:
            armature = [0.0, 0.0]
            for joint in range(2):
                # A body needs some inertia of its own; that of the rotor is far larger.
                rotors[joint] = (
                    f'<body><joint name="m{joint}" type="hinge" axis="0 1 0" '
                    f'armature="{self.rotor[joint]}"/>'
                    '<inertial pos="0 0 0" mass="1e-9" diaginertia="1e-9 1e-9 1e-9"/></body>'
                )
                tendons += (
                    f'<fixed stiffness="{self.stiffness[joint]}" damping="{self.damping[joint]}" '
                    f'springlength="0"><joint joint="m{joint}" coef="1"/>'
                    f'<joint joint="q{joint}" coef="-1"/></fixed>'
                )
        rotors[1] = rotors[1].replace("<body>", '<body pos="0 0 -0.5">')
        return (
            f'<mujoco><option gravity="0 0 -9.81" timestep="{STEP}" integrator="RK4">'
            '<flag contact="disable"/></option><worldbody>'
            f"{rotors[0]}"
            f'<body><joint name="q0" type="hinge" axis="0 1 0" armature="{armature[0]}"/>'
            '<inertial pos="0.02 0 -0.25" mass="3" diaginertia="0.08 0.08 0.01"/>'
            f"{rotors[1]}"
            f'<body pos="0 0 -0.5"><joint name="q1" type="hinge" axis="0 1 0" '
            f'armature="{armature[1]}"/>'
            '<inertial pos="0 0 -0.2" mass="1.5" diaginertia="0.03 0.03 0.005"/></body>'
            f"</body></worldbody><tendon>{tendons}</tendon></mujoco>"
        )

    def links(self) -> RigidBody:
        """The links without motors, by Pinocchio."""

        def body(parent: int, z: float, mass: float, centre: tuple, inertia: tuple) -> Body:
            return Body(
                parent=parent,
                position=np.array([0.0, 0.0, z]),
                rotation=np.eye(3),
                mass=mass,
                centre=np.array(centre),
                inertia=np.diag(inertia),
                joint=f"joint{parent + 1}",
                kind="revolute",
                axis=np.array([0.0, 1.0, 0.0]),
                anchor=np.zeros(3),
            )

        bodies = (
            body(-1, 0.0, 3.0, (0.02, 0.0, -0.25), (0.08, 0.08, 0.01)),
            body(0, -0.5, 1.5, (0.0, 0.0, -0.2), (0.03, 0.03, 0.005)),
        )
        return RigidBody.from_bodies(bodies, gravity=(0.0, 0.0, -9.81))

    @cached_property
    def model(self) -> Any:
        return mujoco.MjModel.from_xml_string(self.mjcf)

    def places(self, letter: str) -> np.ndarray:
        """The places of the joints `q` or `m` among MuJoCo's; a rigid arm has `q` alone."""
        names = [f"{'q' if self.rigid else letter}{joint}" for joint in range(2)]
        return np.array([self.model.joint(name).dofadr[0] for name in names])

    def motion(
        self, seed: int, *, seconds: float = 20.0, rate: float = 250.0, speed: float = 1.0
    ) -> "ArmMotion":
        """Simulate cosines of a seed, and record both sides at a rate [Hz]."""
        limits = JointLimits(
            lower=np.array([-1.2, -1.2]),
            upper=np.array([1.2, 1.2]),
            velocity=np.array([4.0, 5.0]),
            torque=np.full(2, 1e3),
        )
        wanted = cosines(limits, key=jax.random.key(seed), duration=seconds).at_speed(speed)
        # Twice as fine as the steps: the stages of Runge and Kutta lie between them.
        reference = wanted.sample(STEP / 2)
        link = self.places("q")
        motor = self.places("m")
        kp, kd, viscous, coulomb = map(np.array, (self.kp, self.kd, self.viscous, self.coulomb))
        torque = np.zeros(2)

        def control(model: Any, data: Any) -> None:
            row = min(round(data.time / (STEP / 2)), len(reference.t) - 1)
            theta_d = data.qvel[motor]
            torque[:] = kp * (reference.q[row] - data.qpos[motor])
            torque[:] += kd * (reference.qd[row] - theta_d)
            data.qfrc_applied[motor] = (
                torque - viscous * theta_d - coulomb * np.tanh(theta_d / 0.01)
            )

        data = mujoco.MjData(self.model)
        for places in (link, motor):
            data.qpos[places] = reference.q[0]
            data.qvel[places] = reference.qd[0]
        every = round(1 / (rate * STEP))
        rows = []
        mujoco.set_mjcb_control(control)
        try:
            for step in range(len(reference.t) // 2 + 1):
                if step % every == 0:
                    mujoco.mj_forward(self.model, data)
                    both = (data.qpos, data.qvel, data.qacc)
                    values = [array[link].copy() for array in both]
                    values += [array[motor].copy() for array in both]
                    rows.append((data.time, *values, torque.copy()))
                mujoco.mj_step(self.model, data)
        finally:
            mujoco.set_mjcb_control(None)
        t, q, qd, qdd, theta, theta_d, theta_dd, tau = map(np.array, zip(*rows, strict=True))
        return ArmMotion(self, seed, t, q, qd, qdd, theta, theta_d, theta_dd, tau)


@dataclass(frozen=True, eq=False)
class ArmMotion:
    """What a simulated arm did, without noise."""

    arm: ElasticArm
    seed: int
    t: np.ndarray
    q: np.ndarray
    qd: np.ndarray
    qdd: np.ndarray
    theta: np.ndarray
    theta_d: np.ndarray
    theta_dd: np.ndarray
    tau: np.ndarray

    def columns(self) -> dict[str, np.ndarray]:
        """The log of both encoders and the torques of the motors, with the noise of the arm."""
        rng = np.random.default_rng(self.seed)
        arm = self.arm
        noisy = {}
        for name in ("q", "theta"):
            values = getattr(self, name)
            noisy[name] = values + arm.noise * rng.normal(size=values.shape)
        spread = arm.torque_noise * self.tau.std(axis=0)
        noisy["tau"] = self.tau + spread * rng.normal(size=self.tau.shape)
        return {"t": self.t, **noisy}

    def log(self) -> Recording:
        """The log of both encoders as the reader returns it."""
        columns = self.columns()
        both, joints = both_sides(
            {"q": columns["q"], "q_motor": columns["theta"], "tau": columns["tau"]},
            Joints.revolute(2),
        )
        return Recording(
            t=columns["t"],
            q=both["q"],
            tau=both["tau"],
            trajectory=np.zeros(len(self.t), dtype=int),
            joints=joints,
            source="elastic arm",
        )

    def dataset(self) -> Dataset:
        """Links and motors side by side, with MuJoCo's accelerations and without noise."""
        both, joints = both_sides(
            {"q": self.q, "q_motor": self.theta, "tau": self.tau}, Joints.revolute(2)
        )
        return Dataset(
            t=self.t,
            q=both["q"],
            tau=both["tau"],
            qd=np.hstack([self.qd, self.theta_d]),
            qdd=np.hstack([self.qdd, self.theta_dd]),
            trajectory=np.zeros(len(self.t), dtype=int),
            joints=joints,
            source="elastic arm",
        )

    def one_side(self, side: str) -> Recording:
        """The log of one encoder, `q` or `theta`, and the torques of the motors."""
        columns = self.columns()
        return Recording(
            t=columns["t"],
            q=columns[side],
            tau=columns["tau"],
            trajectory=np.zeros(len(self.t), dtype=int),
            joints=Joints.revolute(2),
            source=f"{side} alone",
        )
