"""Mechanisms beyond serial arms with a motor at every joint, as MuJoCo knows them.

Joints without a motor: a cart-pole, an acrobot and a Furuta pendulum, moved by MuJoCo. Closed
loops: a five-bar and a delta robot. Of these only the motors are logged. Their passive angles are
closed by Newton's method, and the torques of the open tree, from MuJoCo's inverse dynamics, are
projected on the motors by the Jacobian of the loops: exact, and nothing of it is our formulation.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from math import pi
from typing import Any

import numpy as np
from jaxtyping import Float

from delan.joints import Dataset, JointKind, Joints
from delan.robots.description import Arm, Link
from delan.robots.mujoco_robot import mujoco

Rows = Float[np.ndarray, "rows dof"]

# A rod's moments about its own axis are those of this radius [m].
RADIUS = 0.01
# Time between samples, and between steps of the simulation [s].
STEP = 0.02
PHYSICS_STEP = 1e-3
# The passive angles of a loop close to this distance [m].
CLOSED = 1e-13
NEWTON_STEPS = 50


@dataclass(frozen=True)
class Underactuated:
    """A serial arm some of whose joints have no motor.

    Attributes:
        motors: the joints that are driven.
        force: size of the forces that drive them in a log [N m or N].
        stiffness, damping: of a controller that keeps the motors near zero, whose torque is logged.
    """

    arm: Arm
    motors: tuple[int, ...]
    force: float
    stiffness: float = 0.0
    damping: float = 0.0

    @property
    def joints(self) -> Joints:
        return self.arm.joints


def _rod(name: str, mass: float, length: float, axis: str, xyz=(0.0, 0.0, 0.0)) -> Link:
    """Return a rod that hangs along −z at rest and turns about x or y without end."""
    across = mass * length**2 / 12
    along = mass * RADIUS**2 / 2
    return Link(
        name=name,
        xyz=xyz,
        rpy=(0.0, 0.0, 0.0),
        axis=(1.0, 0.0, 0.0) if axis == "x" else (0.0, 1.0, 0.0),
        mass=mass,
        centre=(0.0, 0.0, -length / 2),
        inertia=(across, across, along, 0.0, 0.0, 0.0),
        position=(-pi, pi),
        velocity=30.0,
        torque=20.0,
        kind="continuous",
    )


def _body(name: str, kind: JointKind, axis, mass: float, centre, inertia: float) -> Link:
    return Link(
        name=name,
        xyz=(0.0, 0.0, 0.0),
        rpy=(0.0, 0.0, 0.0),
        axis=axis,
        mass=mass,
        centre=centre,
        inertia=(inertia, inertia, inertia, 0.0, 0.0, 0.0),
        position=(-10.0, 10.0),
        velocity=20.0,
        torque=40.0,
        kind=kind,
    )


CART_POLE = Underactuated(
    Arm(
        "cart_pole",
        (
            _body("cart", "prismatic", (1.0, 0.0, 0.0), 1.0, (0.0, 0.0, 0.0), 0.01),
            _rod("pole", 0.3, 0.6, "y"),
        ),
        tool=(0.0, 0.0, -0.6),
    ),
    motors=(0,),
    force=8.0,
    stiffness=6.0,
    damping=2.0,
)
ACROBOT = Underactuated(
    Arm(
        "acrobot",
        (
            _rod("shoulder", 1.0, 0.5, "y"),
            _rod("elbow", 0.8, 0.5, "y", xyz=(0.0, 0.0, -0.5)),
        ),
        tool=(0.0, 0.0, -0.5),
    ),
    motors=(1,),
    force=3.0,
    stiffness=1.0,
    damping=0.3,
)
FURUTA = Underactuated(
    Arm(
        "furuta",
        (
            _body("arm", "continuous", (0.0, 0.0, 1.0), 0.3, (0.1, 0.0, 0.0), 2e-3),
            _rod("pendulum", 0.15, 0.3, "x", xyz=(0.25, 0.0, 0.0)),
        ),
        tool=(0.0, 0.0, -0.3),
    ),
    motors=(0,),
    force=0.4,
    stiffness=0.15,
    damping=0.03,
)
UNDERACTUATED = {"cart_pole": CART_POLE, "acrobot": ACROBOT, "furuta": FURUTA}


def driven(
    mechanism: Underactuated, samples: int, *, seed: int, runs: int = 6, force: float = 1.0
) -> Dataset:
    """Return a log of a mechanism under smooth random forces, from random states.

    The accelerations are those of MuJoCo at each sample; a joint without a motor has torque 0.
    """
    model = mujoco.MjModel.from_xml_string(mechanism.arm.mjcf())
    model.opt.timestep = PHYSICS_STEP
    rng = np.random.default_rng(seed)
    motors = list(mechanism.motors)
    columns: dict[str, list[np.ndarray]] = {"t": [], "q": [], "qd": [], "qdd": [], "tau": []}
    trajectory = []
    counts = [len(part) for part in np.array_split(np.arange(samples), runs)]
    for run, count in enumerate(counts):
        data = mujoco.MjData(model)
        turning = mechanism.joints.turning
        data.qpos[:] = np.where(turning, rng.uniform(-pi, pi, model.nq), 0.0)
        data.qvel[:] = np.where(turning, rng.uniform(-2, 2, model.nq), 0.0)
        waves = rng.uniform(0.2, 1.0, (4, len(motors)))
        frequency = rng.uniform(0.3, 2.0, (4, len(motors)))
        phase = rng.uniform(0, 2 * pi, (4, len(motors)))
        for step in range(count * round(STEP / PHYSICS_STEP)):
            push = (waves * np.sin(2 * pi * frequency * data.time + phase)).sum(0) / 2
            tau = np.zeros(model.nv)
            tau[motors] = force * mechanism.force * push
            tau[motors] -= mechanism.stiffness * data.qpos[motors]
            tau[motors] -= mechanism.damping * data.qvel[motors]
            data.qfrc_applied[:] = tau
            if step % round(STEP / PHYSICS_STEP) == 0:
                mujoco.mj_forward(model, data)
                row = (np.array(data.time), data.qpos, data.qvel, data.qacc, tau)
                for name, values in zip(columns, row, strict=True):
                    columns[name].append(values.copy())
                trajectory.append(run)
            mujoco.mj_step(model, data)
    joined = {name: np.stack(values) for name, values in columns.items()}
    return Dataset(
        t=joined["t"],
        q=joined["q"],
        qd=joined["qd"],
        qdd=joined["qdd"],
        tau=joined["tau"],
        trajectory=np.array(trajectory),
        joints=mechanism.joints,
    )


@dataclass(frozen=True, eq=False)
class ClosedLoop:
    """A mechanism with loops: an open tree in MuJoCo, and pairs of sites that coincide.

    Attributes:
        mjcf: the open tree.
        motors: the joints that are driven and logged.
        pairs: names of the sites that a loop joins.
        plane: the coordinates in which they must coincide: 0, 2 in the plane y = 0.
        start: the joints where the loops nearly close, in the order of the tree.
        centre, reach: middle and half range of the motors' angles in a log [rad].
    """

    mjcf: str
    motors: tuple[int, ...]
    pairs: tuple[tuple[str, str], ...]
    plane: tuple[int, ...]
    start: tuple[float, ...]
    centre: float
    reach: float

    @cached_property
    def model(self) -> Any:
        return mujoco.MjModel.from_xml_string(self.mjcf)

    @property
    def joints(self) -> Joints:
        names = tuple(self.model.joint(motor).name for motor in self.motors)
        return Joints(names, ("revolute",) * len(names))

    @property
    def passive(self) -> list[int]:
        return [joint for joint in range(self.model.nv) if joint not in self.motors]

    def torque(self, q: Rows, qd: Rows, qdd: Rows) -> Rows:
        """Return the motors' torques of a motion [N m]; neighbouring rows are near each other."""
        data = mujoco.MjData(self.model)
        data.qpos[:] = self.start
        rows = []
        for sample in zip(q, qd, qdd, strict=True):
            rows.append(self._torque(data, *sample))
        return np.stack(rows)

    def _torque(self, data, q, qd, qdd) -> np.ndarray:
        motors = list(self.motors)
        passive = self.passive
        # In small steps of the motors, because Newton's method needs to start near the solution.
        steps = max(1, int(np.ceil(np.abs(q - data.qpos[motors]).max() / 0.1)))
        begin = data.qpos[motors].copy()
        for step in range(1, steps):
            data.qpos[motors] = begin + (q - begin) * step / steps
            self._close(data)
        data.qpos[motors] = q
        jacobian = self._close(data)
        follows = -np.linalg.solve(jacobian[:, passive], jacobian[:, motors])
        data.qvel[motors] = qd
        data.qvel[passive] = follows @ qd
        drift = self._drift(data)
        data.qacc[motors] = qdd
        data.qacc[passive] = follows @ qdd - np.linalg.solve(jacobian[:, passive], drift)
        mujoco.mj_inverse(self.model, data)
        torque = data.qfrc_inverse
        return torque[motors] + follows.T @ torque[passive]

    def _close(self, data) -> np.ndarray:
        """Move the passive joints until the loops close; return the Jacobian of the gaps."""
        for _ in range(NEWTON_STEPS):
            mujoco.mj_kinematics(self.model, data)
            mujoco.mj_comPos(self.model, data)
            gap = np.concatenate([self._gap(data, *pair) for pair in self.pairs])
            jacobian = np.concatenate([self._slope(data, *pair) for pair in self.pairs])
            if np.abs(gap).max() < CLOSED:
                return jacobian
            data.qpos[self.passive] -= np.linalg.solve(jacobian[:, self.passive], gap)
        raise ValueError(f"the loop does not close at {data.qpos[list(self.motors)]}")

    def _gap(self, data, first: str, second: str) -> np.ndarray:
        apart = data.site(first).xpos - data.site(second).xpos
        return apart[list(self.plane)]

    def _slope(self, data, first: str, second: str) -> np.ndarray:
        slopes = []
        for name in (first, second):
            slope = np.zeros((3, self.model.nv))
            mujoco.mj_jacSite(self.model, data, slope, None, data.site(name).id)
            slopes.append(slope[list(self.plane)])
        return slopes[0] - slopes[1]

    def _drift(self, data) -> np.ndarray:
        """Return the acceleration of the gaps at the present velocities and no acceleration."""
        mujoco.mj_fwdPosition(self.model, data)
        mujoco.mj_fwdVelocity(self.model, data)
        drifts = []
        for pair in self.pairs:
            ends = []
            for name in pair:
                site = data.site(name)
                body = int(self.model.site_bodyid[site.id])
                slope = np.zeros((3, self.model.nv))
                mujoco.mj_jacDot(self.model, data, slope, None, site.xpos, body)
                ends.append((slope @ data.qvel)[list(self.plane)])
            drifts.append(ends[0] - ends[1])
        return np.concatenate(drifts)


def logged(
    mechanism: ClosedLoop, samples: int, *, seed: int, runs: int = 16, speed: float = 1.0
) -> Dataset:
    """Return a log of the motors of a mechanism that follow sums of cosines."""
    rng = np.random.default_rng(seed)
    dof = len(mechanism.motors)
    counts = [len(part) for part in np.array_split(np.arange(samples), runs)]
    parts = []
    for run, count in enumerate(counts):
        t = np.arange(count) * STEP
        weight = rng.uniform(0.3, 1.0, (dof, 3))
        weight *= mechanism.reach / weight.sum(axis=1, keepdims=True)
        rate = 2 * pi * rng.uniform(0.1, 0.8, (dof, 3))
        phase = rng.uniform(0, 2 * pi, (dof, 3))
        angle = rate * (speed * t)[:, None, None] + phase
        q = mechanism.centre + (weight * np.cos(angle)).sum(-1)
        qd = -speed * (weight * rate * np.sin(angle)).sum(-1)
        qdd = -(speed**2) * (weight * rate**2 * np.cos(angle)).sum(-1)
        parts.append((t, q, qd, qdd, mechanism.torque(q, qd, qdd), np.full(count, run)))
    t, q, qd, qdd, tau, trajectory = map(np.concatenate, zip(*parts, strict=True))
    return Dataset(
        t=t, q=q, qd=qd, qdd=qdd, tau=tau, trajectory=trajectory, joints=mechanism.joints
    )


def _mjcf(bodies: str) -> str:
    return (
        '<mujoco><compiler angle="radian"/><option gravity="0 0 -9.81">'
        '<flag contact="disable" constraint="disable"/></option>'
        f"<worldbody>{bodies}</worldbody></mujoco>"
    )


def _bar(name: str, at: str, axes: Sequence[str], length: float, mass: float, inner: str) -> str:
    """Return a bar along its own x with a hinge about each axis, and what it carries at its end."""
    across = mass * length**2 / 12
    along = mass * RADIUS**2 / 2
    hinges = ""
    for number, axis in enumerate(axes):
        suffix = "" if number == 0 else f"_{number}"
        hinges += f'<joint name="{name}{suffix}" type="hinge" axis="{axis}"/>'
    return (
        f'<body name="{name}" {at}>{hinges}'
        f'<inertial pos="{length / 2} 0 0" mass="{mass}" diaginertia="{along} {across} {across}"/>'
        f'{inner}<site name="{name}_end" pos="{length} 0 0"/></body>'
    )


def five_bar() -> ClosedLoop:
    """Return a planar five-bar: two motors 0.3 m apart, arms of 0.2 m and forearms of 0.3 m.

    The elbows never meet, where the loop would be singular.
    """
    arms = ""
    for name, x, mass in (("left", -0.15, 0.5), ("right", 0.15, 0.4)):
        forearm = _bar(f"{name}_forearm", 'pos="0.2 0 0"', ["0 -1 0"], 0.3, 0.3, "")
        arms += _bar(name, f'pos="{x} 0 0"', ["0 -1 0"], 0.2, mass, forearm)
    # The right forearm carries the tool.
    tool = '<body pos="0.3 0 0"><inertial pos="0 0 0" mass="0.25" diaginertia="1e-4 1e-4 1e-4"/>'
    marker = '<site name="right_forearm_end"'
    arms = arms.replace(marker, tool + "</body>" + marker)
    return ClosedLoop(
        mjcf=_mjcf(arms),
        motors=(0, 2),
        pairs=(("left_forearm_end", "right_forearm_end"),),
        plane=(0, 2),
        start=(pi / 2, -pi / 6, pi / 2, pi / 6),
        centre=pi / 2,
        reach=0.5,
    )


def delta() -> ClosedLoop:
    """Return a delta robot: three motors, arms of 0.2 m, rods of 0.4 m, a platform that slides."""
    base = 0.12
    edge = 0.05
    bodies = ""
    sites = ""
    pairs = []
    for number in range(3):
        turn = 2 * pi * number / 3
        name = f"arm{number}"
        rod = _bar(f"rod{number}", 'pos="0.2 0 0"', ["0 1 0", "0 0 1"], 0.4, 0.12, "")
        place = f'pos="{base * np.cos(turn)} {base * np.sin(turn)} 0" euler="0 0 {turn}"'
        bodies += _bar(name, place, ["0 1 0"], 0.2, 0.35, rod)
        corner = f"{edge * np.cos(turn)} {edge * np.sin(turn)} 0"
        sites += f'<site name="corner{number}" pos="{corner}"/>'
        pairs.append((f"rod{number}_end", f"corner{number}"))
    slides = ""
    for axis in ("1 0 0", "0 1 0", "0 0 1"):
        slides += f'<joint type="slide" axis="{axis}"/>'
    inertial = '<inertial pos="0 0 0" mass="0.3" diaginertia="1e-3 1e-3 1e-3"/>'
    bodies += f'<body name="platform">{slides}{inertial}{sites}</body>'
    # At motors of 0.3 rad the elbows are at 0.311 m: the rods lean inwards by 0.261 m.
    lean = base + 0.2 * np.cos(0.3) - edge
    drop = np.sqrt(0.4**2 - lean**2)
    bent = pi - np.arctan2(drop, lean) - 0.3
    start = (*(0.3, bent, 0.0) * 3, 0.0, 0.0, -0.2 * np.sin(0.3) - drop)
    return ClosedLoop(
        mjcf=_mjcf(bodies),
        motors=(0, 3, 6),
        pairs=tuple(pairs),
        plane=(0, 1, 2),
        start=start,
        centre=0.3,
        reach=0.5,
    )
