"""Robots that are no serial arms of rigid links: a five-bar with its closed loop, an arm with springs for joints."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from scipy.integrate import solve_ivp
from scipy.interpolate import CubicHermiteSpline

from delan.data.cosines import cosines
from delan.joints import Body, Dataset, JointLimits, Joints, Trajectory
from delan.models.rigid_body import RigidBody

GRAVITY = (0.0, 0.0, -9.81)
"""[m/s²]"""


@dataclass(frozen=True)
class FiveBar:
    """Two arms of two links in the x-z plane whose ends are pinned to each other; motors turn the two at the base.

    Each distal link reaches further than any place of the elbows asks for, so that the loop closes everywhere.

    Attributes:
        base: distance of the two motors [m].
        proximal, distal: lengths of the links of the left and of the right arm [m].
        mass: of the proximal and the distal link on the left, then on the right [kg].
    """

    base: float = 0.2
    proximal: tuple[float, float] = (0.25, 0.22)
    distal: tuple[float, float] = (0.42, 0.38)
    mass: tuple[float, float, float, float] = (2.0, 1.5, 1.6, 1.2)

    @property
    def limits(self) -> JointLimits:
        """Of the motors: the left one points up and out to the left, the right one to the right."""
        middle, reach = np.array([2.2, 0.9]), 0.8
        return JointLimits(
            lower=middle - reach, upper=middle + reach, velocity=np.full(2, 4.0), torque=np.full(2, 100.0)
        )

    @property
    def bodies(self) -> list[Body]:
        """Both arms with the loop cut open: left motor, left elbow, right motor, right elbow."""
        bodies = []
        for side, at in enumerate((-self.base / 2, self.base / 2)):
            for part, length in enumerate((self.proximal[side], self.distal[side])):
                mass = self.mass[2 * side + part]
                slender = mass * length**2 / 12
                body = Body(
                    parent=-1 if part == 0 else 2 * side,
                    position=np.array([at if part == 0 else self.proximal[side], 0.0, 0.0]),
                    rotation=np.eye(3),
                    mass=mass,
                    centre=np.array([length / 2, 0.0, 0.0]),
                    inertia=np.diag([1e-4, slender, slender]),
                    joint=f"{('left', 'right')[side]} {('motor', 'elbow')[part]}",
                    kind="revolute",
                    axis=np.array([0.0, -1.0, 0.0]),
                    anchor=np.zeros(3),
                )
                bodies.append(body)
        return bodies

    def tree(self, motors: Array) -> Array:
        """The angles of the open arms that close the loop, the tip above the elbows: two circles meet there."""
        sides = jnp.array([-self.base / 2, self.base / 2])
        elbows = jnp.array(self.proximal)[:, None] * jnp.stack([jnp.cos(motors), jnp.sin(motors)], axis=1)
        elbows = elbows.at[:, 0].add(sides)
        across = elbows[1] - elbows[0]
        distance = jnp.linalg.norm(across)
        left, right = self.distal
        along = (distance**2 + left**2 - right**2) / (2 * distance)
        height = jnp.sqrt(left**2 - along**2)
        unit = across / distance
        tip = elbows[0] + along * unit + height * jnp.array([-unit[1], unit[0]])
        distal = jnp.arctan2(tip[1] - elbows[:, 1], tip[0] - elbows[:, 0])
        return jnp.array([motors[0], distal[0] - motors[0], motors[1], distal[1] - motors[1]])

    def torques(self, motion: Trajectory) -> np.ndarray:
        """Of the motors along their motion: τ = Gᵀ τ_open(x, G q̇, G q̈ + Ġ q̇), for the pin does no work [N m].

        x(q) are the angles of the open arms and G = ∂x/∂q.
        """
        body = RigidBody.from_bodies(self.bodies, gravity=GRAVITY)
        x, xd, xdd, slope = (
            np.asarray(part) for part in _lifted(self, *map(jnp.asarray, (motion.q, motion.qd, motion.qdd)))
        )
        open_torque = np.stack([body.inverse_dynamics(*row) for row in zip(x, xd, xdd, strict=True)])
        return np.einsum("tij,ti->tj", slope, open_torque)


@partial(jax.jit, static_argnums=0)
@partial(jax.vmap, in_axes=(None, 0, 0, 0))
def _lifted(robot: FiveBar, q: Array, qd: Array, qdd: Array) -> tuple[Array, Array, Array, Array]:
    """Positions, velocities and accelerations of the open arms, and G."""

    def rate(q: Array, qd: Array) -> Array:
        return jax.jvp(robot.tree, (q,), (qd,))[1]

    xd, xdd = jax.jvp(rate, (q, qd), (qd, qdd))
    return robot.tree(q), xd, xdd, jax.jacfwd(robot.tree)(q)


@dataclass(frozen=True, eq=False)
class ElasticArm:
    """An arm whose motors turn its links through springs; the log knows the motors alone.

    Links: H(q) q̈ + c + g = f, motors: B θ̈ + f = τ, springs: f = K (θ − q) + D (θ̇ − q̇).

    Attributes:
        inertia: B of the motors, at the joint [kg m²]; stiffness: K [N m/rad]; damping: D [N m s/rad].
    """

    links: RigidBody
    limits: JointLimits
    inertia: np.ndarray
    stiffness: np.ndarray
    damping: np.ndarray

    @classmethod
    def resonant(
        cls, links: RigidBody, limits: JointLimits, frequency: float, *, damping: float = 0.05
    ) -> "ElasticArm":
        """Springs such that the links first swing at a frequency [Hz] while the motors stand still in mid-range."""
        mass = links.mass_matrix((limits.lower + limits.upper) / 2)
        own = np.diag(mass)
        slowest = np.min(np.linalg.eigvals(np.linalg.solve(mass, np.diag(own))).real)
        stiffness = (2 * np.pi * frequency) ** 2 / slowest * own
        return cls(links, limits, 0.3 * own, stiffness, 2 * damping * np.sqrt(stiffness * own))

    def follow(self, motion: Trajectory) -> tuple[np.ndarray, np.ndarray]:
        """Positions and velocities of the links, which hang at rest before the motors begin to move as told."""
        drive = CubicHermiteSpline(motion.t, motion.q, motion.qd)
        speed = drive.derivative()

        def rate(t: float, state: np.ndarray) -> np.ndarray:
            q, qd = np.split(state, 2)
            return np.concatenate([qd, self.links.forward_dynamics(q, qd, self.spring(drive(t), speed(t), q, qd))])

        start = np.concatenate([self._hanging(motion.q[0]), 0 * motion.q[0]])
        solved = solve_ivp(rate, (motion.t[0], motion.t[-1]), start, "DOP853", motion.t, rtol=1e-7, atol=1e-8)
        q, qd = np.split(solved.y.T, 2, axis=1)
        return q, qd

    def spring(self, theta: np.ndarray, theta_d: np.ndarray, q: np.ndarray, qd: np.ndarray) -> np.ndarray:
        """The torque f that the springs pass on [N m]."""
        return self.stiffness * (theta - q) + self.damping * (theta_d - qd)

    def torques(self, motion: Trajectory) -> np.ndarray:
        """Of the motors along their motion [N m]."""
        return self.inertia * motion.qdd + self.spring(motion.q, motion.qd, *self.follow(motion))

    def _hanging(self, theta: np.ndarray) -> np.ndarray:
        """Where the links rest under their weight: K (θ − q) = g(q)."""
        q, still = theta, np.zeros_like(theta)
        for _ in range(100):
            q = theta - self.links.inverse_dynamics(q, still, still) / self.stiffness
        return q


def driven(
    robot: FiveBar | ElasticArm, seeds: Sequence[int], *, samples: int | None = None, speed: float = 1.0
) -> Dataset:
    """Smooth motions of the motors of 10 s at 50 Hz, one a seed, and their torques; thinned to so many rows."""
    motions = [cosines(robot.limits, key=jax.random.key(seed)).at_speed(speed).sample(0.02) for seed in seeds]
    t, q, qd, qdd = (np.concatenate([getattr(motion, name) for motion in motions]) for name in ("t", "q", "qd", "qdd"))
    dataset = Dataset(
        t=t,
        q=q,
        qd=qd,
        qdd=qdd,
        tau=np.concatenate([robot.torques(motion) for motion in motions]),
        trajectory=np.repeat(seeds, [len(motion.t) for motion in motions]),
        joints=Joints.revolute(q.shape[1]),
        source="odd robot",
    )
    return dataset if samples is None else dataset.rows(np.linspace(0, len(dataset) - 1, samples).astype(int))
