"""The model of an arm whose links are known: recursive Newton–Euler and its kin, by Pinocchio."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pinocchio as pin  # pyright: ignore[reportMissingImports]  (its wheel puts it where only Python finds it)
from jaxtyping import Float

from ..errors import ModelError
from ..joints import Body, Energy, JointKind, Joints, TorqueComponents
from ..mechanics.friction import coulomb_viscous
from .dynamics import VectorResult as Vector

Result = Float[np.ndarray, " dof"]

LINK_PARAMETERS = ("mass", "mx", "my", "mz", "Ixx", "Ixy", "Iyy", "Ixz", "Iyz", "Izz")
"""What makes a link's inertia: its mass m [kg], first moments m c [kg m] and second moments [kg m²], the latter two
about the origin of its joint. The torque is linear in them."""
LIGHTEST = 1e-9
"""The least mass [kg] that a link is given: Pinocchio keeps the centre m c / m, which a mass of zero has not."""


@dataclass(frozen=True, eq=False)
class JointFriction:
    """Friction of each joint: Coulomb [N m or N], viscous [N m s/rad or N s/m], and a constant offset [N m or N].

    `width` [rad/s or m/s] is the speed over which Coulomb friction changes its sign.
    """

    coulomb: Float[np.ndarray, " dof"]
    viscous: Float[np.ndarray, " dof"]
    offset: Float[np.ndarray, " dof"]
    width: float = 0.01

    def torque(self, qd: Result) -> Result:
        """The torque that friction takes at the speed q̇ [N m or N]."""
        return coulomb_viscous(qd, self.coulomb, self.viscous, self.offset, self.width)


class RigidBody:
    """Keeps every promise of `DynamicsModel` from given masses, centres and inertias; gives numpy arrays.

    `armature` [kg m² or kg] is the rotor inertia that each joint adds to the diagonal of H; `friction` is optional.
    Pinocchio computes on one sample at a time, so this model is no subject of `jax.vmap`; use `rows` for many samples.
    """

    def __init__(
        self,
        model: pin.Model,
        *,
        friction: JointFriction | None = None,
        armature: Float[np.ndarray, " dof"] | None = None,
    ):
        model = model.copy()
        if armature is not None:
            model.armature = np.asarray(armature, dtype=float)
        self._model = model
        self._data = model.createData()
        self.friction = friction
        self.joints = Joints(tuple(model.names[1:]), tuple(_kind(model, i) for i in range(1, model.njoints)))

    @classmethod
    def from_urdf(
        cls,
        urdf: str | Path,
        *,
        friction: JointFriction | None = None,
        armature: Float[np.ndarray, " dof"] | None = None,
    ) -> "RigidBody":
        """A model from a URDF file, given by its path or by its text; its base is fixed."""
        if isinstance(urdf, Path) or "<" not in urdf:
            try:
                urdf = Path(urdf).read_text()
            except (OSError, UnicodeDecodeError) as error:
                raise ModelError(f"{urdf}: the URDF cannot be read ({error}); give its path or its text") from None
        try:
            return cls(pin.buildModelFromXML(urdf), friction=friction, armature=armature)
        except ValueError as error:
            raise ModelError(f"the URDF cannot be read: {error}; check it with `check_urdf`") from None

    @classmethod
    def from_bodies(
        cls,
        bodies: Sequence[Body],
        *,
        gravity: tuple[float, float, float],
        friction: JointFriction | None = None,
        armature: Float[np.ndarray, " dof"] | None = None,
    ) -> "RigidBody":
        """A model of a tree of bodies, joints in the order of the bodies; gravity is an acceleration [m/s²]."""
        model = pin.Model()
        model.gravity.linear = np.array(gravity)
        # For each body: the joint that carries it, and the body's frame in that joint's frame.
        carriers: list[tuple[int, pin.SE3]] = []
        for body in bodies:
            parent, offset = carriers[body.parent] if body.parent >= 0 else (0, pin.SE3.Identity())
            place = offset * pin.SE3(body.rotation, body.position)
            frame = pin.SE3.Identity()
            if body.joint is not None:
                place = place * pin.SE3(np.eye(3), body.anchor)
                parent = model.addJoint(parent, _joint_model(body), place, body.joint)
                place = frame = pin.SE3(np.eye(3), -body.anchor)
            model.appendBodyToJoint(parent, pin.Inertia(body.mass, body.centre, body.inertia), place)
            carriers.append((parent, frame if body.joint is not None else place))
        return cls(model, friction=friction, armature=armature)

    def inverse_dynamics(self, q: Vector, qd: Vector, qdd: Vector) -> Result:
        """The torque by recursive Newton–Euler [N m or N]."""
        qd, qdd = np.asarray(qd, dtype=float), np.asarray(qdd, dtype=float)
        return pin.rnea(self._model, self._data, self._configuration(q), qd, qdd) + self._friction(qd)

    def forward_dynamics(self, q: Vector, qd: Vector, tau: Vector) -> Result:
        """The acceleration by the articulated-body algorithm [rad/s² or m/s²]."""
        qd, tau = np.asarray(qd, dtype=float), np.asarray(tau, dtype=float)
        return pin.aba(self._model, self._data, self._configuration(q), qd, tau - self._friction(qd)).copy()

    def mass_matrix(self, q: Vector) -> Float[np.ndarray, "dof dof"]:
        """The inertia H(q) by the composite-rigid-body algorithm [kg m² or kg]."""
        upper = np.triu(pin.crba(self._model, self._data, self._configuration(q)))
        return upper + np.triu(upper, 1).T

    def components(self, q: Vector, qd: Vector, qdd: Vector) -> TorqueComponents:
        """The parts of the torque."""
        configuration, qd = self._configuration(q), np.asarray(qd, dtype=float)
        gravity = pin.computeGeneralizedGravity(self._model, self._data, configuration).copy()
        coriolis = pin.rnea(self._model, self._data, configuration, qd, np.zeros_like(qd)) - gravity
        return TorqueComponents(self.mass_matrix(q) @ np.asarray(qdd), coriolis, gravity, self._friction(qd))

    def energy(self, q: Vector, qd: Vector) -> Energy:
        """Kinetic and potential energy [J]."""
        configuration, qd = self._configuration(q), np.asarray(qd, dtype=float)
        links = pin.computeKineticEnergy(self._model, self._data, configuration, qd)
        rotors = float(self._model.armature @ qd**2) / 2
        return Energy(links + rotors, pin.computePotentialEnergy(self._model, self._data, configuration))

    def power(self, q: Vector, qd: Vector, qdd: Vector) -> float:
        """The rate of the total energy [W]: ∂V/∂q q̇ + d/dt ½ q̇ᵀ H q̇."""
        configuration, qd = self._configuration(q), np.asarray(qd, dtype=float)
        # Ḣ = C + Cᵀ for the Coriolis matrix of Christoffel symbols, so that q̇ᵀ Ḣ q̇ / 2 = q̇ᵀ C q̇.
        coriolis = pin.computeCoriolisMatrix(self._model, self._data, configuration, qd).copy()
        gravity = pin.computeGeneralizedGravity(self._model, self._data, configuration)
        return float(qd @ (self.mass_matrix(q) @ np.asarray(qdd) + coriolis @ qd + gravity))

    def rows(
        self, q: Float[np.ndarray, "time dof"], qd: Float[np.ndarray, "time dof"], qdd: Float[np.ndarray, "time dof"]
    ) -> TorqueComponents:
        """`components` of every row."""
        parts = [self.components(*row) for row in zip(q, qd, qdd, strict=True)]
        return TorqueComponents(*(np.stack(part) for part in zip(*parts, strict=True)))

    @property
    def armature(self) -> Result:
        """The rotor inertia that each joint adds to the diagonal of H [kg m² or kg]."""
        return self._model.armature.copy()

    @property
    def parameters(self) -> Float[np.ndarray, "dof 10"]:
        """The inertia of each link, in the order of `LINK_PARAMETERS`."""
        return np.stack([inertia.toDynamicParameters() for inertia in list(self._model.inertias)[1:]])

    def with_parameters(
        self,
        parameters: Float[np.ndarray, "dof 10"],
        *,
        friction: JointFriction | None = None,
        armature: Float[np.ndarray, " dof"] | None = None,
    ) -> "RigidBody":
        """The same joints with other links, friction and rotors; None takes friction or rotors away."""
        if np.shape(parameters) != (self.joints.dof, 10) or not np.isfinite(parameters).all():
            raise ModelError(
                f"the links' parameters have shape {np.shape(parameters)}; "
                f"expected finite numbers in shape (dof, 10) = ({self.joints.dof}, 10), as `parameters` gives them"
            )
        model = self._model.copy()
        for index, link in enumerate(parameters, start=1):
            mass = link[0] if abs(link[0]) >= LIGHTEST else np.copysign(LIGHTEST, link[0])
            model.inertias[index] = pin.Inertia.FromDynamicParameters(np.array([mass, *link[1:]]))
        rotors = np.zeros(self.joints.dof) if armature is None else armature
        return RigidBody(model, friction=friction, armature=rotors)

    def regressor_rows(
        self, q: Float[np.ndarray, "time dof"], qd: Float[np.ndarray, "time dof"], qdd: Float[np.ndarray, "time dof"]
    ) -> Float[np.ndarray, "time dof parameters"]:
        """Y of every row: Y(q, q̇, q̈) times the flat `parameters` is the torque without friction and rotors."""
        rows = np.empty((len(q), self.joints.dof, 10 * self.joints.dof))
        for row, place, speed, push in zip(rows, q, qd, qdd, strict=True):
            row[:] = pin.computeJointTorqueRegressor(self._model, self._data, self._configuration(place), speed, push)
        return rows

    def _friction(self, qd: Result) -> Result:
        return np.zeros_like(qd) if self.friction is None else self.friction.torque(qd)

    def _configuration(self, q: Vector) -> np.ndarray:
        """Pinocchio's coordinates: a joint without end stops enters as (cos q, sin q)."""
        q = np.asarray(q, dtype=float)
        if self._model.nq == self._model.nv:
            return q
        place = np.empty(self._model.nq)
        for joint in self._model.joints:
            if joint.nq == 2:
                angle = q[joint.idx_v]
                place[joint.idx_q : joint.idx_q + 2] = np.cos(angle), np.sin(angle)
            elif joint.nq == 1:
                place[joint.idx_q] = q[joint.idx_v]
        return place


def _joint_model(body: Body) -> Any:
    axis = np.asarray(body.axis)
    return pin.JointModelPrismaticUnaligned(axis) if body.kind == "prismatic" else pin.JointModelRevoluteUnaligned(axis)


def _kind(model: pin.Model, index: int) -> JointKind:
    joint = model.joints[index]
    name = joint.shortname()
    if joint.nv != 1 or not name.startswith(("JointModelR", "JointModelP")):
        raise ModelError(
            f"joint {model.names[index]} is a {name}; only revolute, continuous and prismatic joints are known"
        )
    if joint.nq == 2:
        return "continuous"
    return "prismatic" if name.startswith("JointModelP") else "revolute"
