"""Robots that are not serial arms of rigid links: a five-bar linkage and an arm with springs."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from scipy.integrate import solve_ivp
from scipy.interpolate import CubicHermiteSpline

from delan.joints import Body, Dataset, JointLimits, Joints, Trajectory
from delan.models.rigid_body import RigidBody
from delan.motions.cosines import cosines

GRAVITY = (0.0, 0.0, -9.81)  # [m/s²]


@dataclass(frozen=True)
class FiveBar:
    """Two arms of two links in the x-z plane with pinned ends and a motor at each base joint.

    The distal links are so long that the loop closes for all motor positions.

    Attributes:
        base: distance between the motors [m].
        proximal, distal: lengths of the links of the left and the right arm [m].
        mass: of the proximal and the distal link on the left, then on the right [kg].
    """

    base: float = 0.2
    proximal: tuple[float, float] = (0.25, 0.22)
    distal: tuple[float, float] = (0.42, 0.38)
    mass: tuple[float, float, float, float] = (2.0, 1.5, 1.6, 1.2)

    @property
    def limits(self) -> JointLimits:
        """Limits of the motors: the left arm points up and left, the right arm up and right."""
        middle, reach = np.array([2.2, 0.9]), 0.8
        return JointLimits(
            lower=middle - reach,
            upper=middle + reach,
            velocity=np.full(2, 4.0),
            torque=np.full(2, 100.0),
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
        """Return the angles of the open arms that close the loop, with the tip above the elbows.

        The tip is an intersection of the circles about the two elbows.
        """
        sides = jnp.array([-self.base / 2, self.base / 2])
        elbows = jnp.array(self.proximal)[:, None] * jnp.stack(
            [jnp.cos(motors), jnp.sin(motors)], axis=1
        )
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
        """Return the torques of the motors along a motion [N m].

        τ = Gᵀ τ_open(x, G q̇, G q̈ + Ġ q̇), as the pin does no work; x(q) are the angles of the open
        arms and G = ∂x/∂q.
        """
        body = RigidBody.from_bodies(self.bodies, gravity=GRAVITY)
        motors = map(jnp.asarray, (motion.q, motion.qd, motion.qdd))
        x, xd, xdd, slope = map(np.asarray, _lifted(self, *motors))
        rows = zip(x, xd, xdd, strict=True)
        open_torque = np.stack([body.inverse_dynamics(*row) for row in rows])
        return np.einsum("tij,ti->tj", slope, open_torque)


@partial(jax.jit, static_argnums=0)
@partial(jax.vmap, in_axes=(None, 0, 0, 0))
def _lifted(robot: FiveBar, q: Array, qd: Array, qdd: Array) -> tuple[Array, Array, Array, Array]:
    """Return positions, velocities and accelerations of the open arms, and G."""

    def rate(q: Array, qd: Array) -> Array:
        return jax.jvp(robot.tree, (q,), (qd,))[1]

    xd, xdd = jax.jvp(rate, (q, qd), (qd, qdd))
    return robot.tree(q), xd, xdd, jax.jacfwd(robot.tree)(q)


@dataclass(frozen=True, eq=False)
class ElasticArm:
    """An arm whose motors turn its links through springs; only the motors are logged.

    Links: H(q) q̈ + c + g = f, motors: B θ̈ + f = τ, springs: f = K (θ − q) + D (θ̇ − q̇).

    Attributes:
        inertia: B of the motors, at the joint [kg m²].
        stiffness: K [N m/rad].
        damping: D [N m s/rad].
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
        """Choose springs for a first natural frequency [Hz] with motors fixed in mid-range."""
        mass = links.mass_matrix((limits.lower + limits.upper) / 2)
        diagonal = np.diag(mass)
        slowest = np.min(np.linalg.eigvals(np.linalg.solve(mass, np.diag(diagonal))).real)
        stiffness = (2 * np.pi * frequency) ** 2 / slowest * diagonal
        damper = 2 * damping * np.sqrt(stiffness * diagonal)
        return cls(links, limits, 0.3 * diagonal, stiffness, damper)

    def follow(self, motion: Trajectory) -> tuple[np.ndarray, np.ndarray]:
        """Return positions and velocities of the links, at rest when the motion begins."""
        drive = CubicHermiteSpline(motion.t, motion.q, motion.qd)
        speed = drive.derivative()

        def rate(t: float, state: np.ndarray) -> np.ndarray:
            q, qd = np.split(state, 2)
            force = self.spring(drive(t), speed(t), q, qd)
            return np.concatenate([qd, self.links.forward_dynamics(q, qd, force)])

        start = np.concatenate([self._hanging(motion.q[0]), 0 * motion.q[0]])
        solved = solve_ivp(
            rate, (motion.t[0], motion.t[-1]), start, "DOP853", motion.t, rtol=1e-7, atol=1e-8
        )
        q, qd = np.split(solved.y.T, 2, axis=1)
        return q, qd

    def spring(
        self, theta: np.ndarray, theta_d: np.ndarray, q: np.ndarray, qd: np.ndarray
    ) -> np.ndarray:
        """Return the torque f of the springs [N m]."""
        return self.stiffness * (theta - q) + self.damping * (theta_d - qd)

    def torques(self, motion: Trajectory) -> np.ndarray:
        """Return the torques of the motors along their motion [N m]."""
        return self.inertia * motion.qdd + self.spring(motion.q, motion.qd, *self.follow(motion))

    def _hanging(self, theta: np.ndarray) -> np.ndarray:
        """Return the equilibrium of the links under gravity: K (θ − q) = g(q)."""
        q, still = theta, np.zeros_like(theta)
        for _ in range(100):
            q = theta - self.links.inverse_dynamics(q, still, still) / self.stiffness
        return q


def driven(
    robot: FiveBar | ElasticArm,
    seeds: Sequence[int],
    *,
    samples: int | None = None,
    speed: float = 1.0,
) -> Dataset:
    """Return motions of 10 s at 50 Hz, one per seed, thinned to a number of samples if given."""
    motions = [
        cosines(robot.limits, key=jax.random.key(seed)).at_speed(speed).sample(0.02)
        for seed in seeds
    ]
    t, q, qd, qdd = (
        np.concatenate([getattr(motion, name) for motion in motions])
        for name in ("t", "q", "qd", "qdd")
    )
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
    if samples is None:
        return dataset
    return dataset.rows(np.linspace(0, len(dataset) - 1, samples).astype(int))
