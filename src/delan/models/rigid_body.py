"""The model of an arm whose links are known: recursive Newton–Euler and its kin, by Pinocchio."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pinocchio as pin  # pyright: ignore[reportMissingImports]  (its wheel puts it where only Python finds it)
from jaxtyping import Float

from ..errors import ModelError
from ..joints import Body, Energy, JointKind, Joints, TorqueComponents
from .actuator import Actuator, Memory, Numbers, require_fitting
from .dynamics import VectorResult as Vector

Result = Float[np.ndarray, " dof"]

LINK_PARAMETERS = ("mass", "mx", "my", "mz", "Ixx", "Ixy", "Iyy", "Ixz", "Iyz", "Izz")
"""What makes a link's inertia: its mass m [kg], first moments m c [kg m] and second moments [kg m²], the latter two
about the origin of its joint. The torque is linear in them."""
LIGHTEST = 1e-9
"""The least mass [kg] that a link is given: Pinocchio keeps the centre m c / m, which a mass of zero has not."""


class RigidBody:
    """Keeps every promise of `DynamicsModel` from given masses, centres and inertias; gives numpy arrays.

    `armature` [kg m² or kg] is the rotor inertia that each joint adds to the diagonal of H; `friction` is optional, and
    where a method takes `memory`, it is that of its stop operators (see `Actuator.friction`).
    Pinocchio computes on one sample at a time, so this model is no subject of `jax.vmap`; use `rows` for many samples.
    """

    def __init__(
        self,
        model: pin.Model,
        *,
        friction: Actuator | None = None,
        armature: Float[np.ndarray, " dof"] | None = None,
    ):
        model = model.copy()
        if armature is not None:
            model.armature = np.asarray(armature, dtype=float)
        self._model = model
        self._data = model.createData()
        self.joints = Joints(tuple(model.names[1:]), tuple(_kind(model, i) for i in range(1, model.njoints)))
        self.friction = None if friction is None else self._fitting(friction)

    @classmethod
    def from_urdf(
        cls,
        urdf: str | Path,
        *,
        friction: Actuator | None = None,
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
        friction: Actuator | None = None,
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

    def inverse_dynamics(self, q: Vector, qd: Vector, qdd: Vector, *, memory: Memory | None = None) -> Result:
        """The torque by recursive Newton–Euler [N m or N]."""
        qd, qdd = np.asarray(qd, dtype=float), np.asarray(qdd, dtype=float)
        conservative = pin.rnea(self._model, self._data, self._configuration(q), qd, qdd)
        return conservative + self._friction(qd, conservative, memory)

    def forward_dynamics(self, q: Vector, qd: Vector, tau: Vector, *, memory: Memory | None = None) -> Result:
        """The acceleration by the articulated-body algorithm [rad/s² or m/s²]."""
        qd, tau = np.asarray(qd, dtype=float), np.asarray(tau, dtype=float)
        if self.friction is not None:
            tau = np.asarray(Actuator.conservative(self.friction, qd, tau, memory))
        return pin.aba(self._model, self._data, self._configuration(q), qd, tau).copy()

    def mass_matrix(self, q: Vector) -> Float[np.ndarray, "dof dof"]:
        """The inertia H(q) by the composite-rigid-body algorithm [kg m² or kg]."""
        upper = np.triu(pin.crba(self._model, self._data, self._configuration(q)))
        return upper + np.triu(upper, 1).T

    def components(self, q: Vector, qd: Vector, qdd: Vector, *, memory: Memory | None = None) -> TorqueComponents:
        """The parts of the torque."""
        configuration, qd = self._configuration(q), np.asarray(qd, dtype=float)
        gravity = pin.computeGeneralizedGravity(self._model, self._data, configuration).copy()
        coriolis = pin.rnea(self._model, self._data, configuration, qd, np.zeros_like(qd)) - gravity
        inertial = self.mass_matrix(q) @ np.asarray(qdd)
        friction = self._friction(qd, inertial + coriolis + gravity, memory)
        return TorqueComponents(inertial, coriolis, gravity, friction)

    def energy(self, q: Vector, qd: Vector) -> Energy:
        """Kinetic and potential energy [J]."""
        configuration, qd = self._configuration(q), np.asarray(qd, dtype=float)
        # Pinocchio counts rotors into its kinetic energy for some kinds of joints and not for others; H has them all.
        kinetic = float(qd @ self.mass_matrix(q) @ qd) / 2
        return Energy(kinetic, pin.computePotentialEnergy(self._model, self._data, configuration))

    def power(self, q: Vector, qd: Vector, qdd: Vector) -> float:
        """The rate of the total energy [W]: ∂V/∂q q̇ + d/dt ½ q̇ᵀ H q̇."""
        configuration, qd = self._configuration(q), np.asarray(qd, dtype=float)
        # Ḣ = C + Cᵀ for the Coriolis matrix of Christoffel symbols, so that q̇ᵀ Ḣ q̇ / 2 = q̇ᵀ C q̇.
        coriolis = pin.computeCoriolisMatrix(self._model, self._data, configuration, qd).copy()
        gravity = pin.computeGeneralizedGravity(self._model, self._data, configuration)
        return float(qd @ (self.mass_matrix(q) @ np.asarray(qdd) + coriolis @ qd + gravity))

    def rows(
        self,
        q: Float[np.ndarray, "time dof"],
        qd: Float[np.ndarray, "time dof"],
        qdd: Float[np.ndarray, "time dof"],
        *,
        memory: Float[Numbers, "time stops motors"] | None = None,
    ) -> TorqueComponents:
        """`components` of every row."""
        memories = [None] * len(q) if memory is None else np.asarray(memory)
        rows = zip(q, qd, qdd, memories, strict=True)
        parts = [self.components(*row, memory=memory) for *row, memory in rows]
        return TorqueComponents(*(np.stack(part) for part in zip(*parts, strict=True)))

    @property
    def armature(self) -> Result:
        """The rotor inertia that each joint adds to the diagonal of H [kg m² or kg]."""
        return self._model.armature.copy()

    @property
    def gravity(self) -> Float[np.ndarray, "3"]:
        """The acceleration of gravity in the frame of the base [m/s²]."""
        return self._model.gravity.linear.copy()

    @property
    def bodies(self) -> tuple[Body, ...]:
        """A body for each joint, in the frame of the joint; parts welded to it are counted in."""
        pin.computeJointJacobians(self._model, self._data, self._configuration(np.zeros(self.joints.dof)))
        found = []
        for index, (name, kind) in enumerate(zip(self.joints.names, self.joints.kinds, strict=True), start=1):
            place, inertia = self._model.jointPlacements[index], self._model.inertias[index]
            jacobian = pin.getJointJacobian(self._model, self._data, index, pin.ReferenceFrame.LOCAL)
            column = np.reshape(jacobian, (6, -1))[:, index - 1]  # of one joint, Pinocchio gives a vector
            body = Body(
                parent=self._model.parents[index] - 1,
                position=place.translation.copy(),
                rotation=place.rotation.copy(),
                mass=float(inertia.mass),
                centre=inertia.lever.copy(),
                inertia=inertia.inertia.copy(),
                joint=name,
                kind=kind,
                axis=column[:3] if kind == "prismatic" else column[3:],
                anchor=np.zeros(3),
            )
            found.append(body)
        return tuple(found)

    @property
    def parameters(self) -> Float[np.ndarray, "dof 10"]:
        """The inertia of each link, in the order of `LINK_PARAMETERS`."""
        return np.stack([inertia.toDynamicParameters() for inertia in list(self._model.inertias)[1:]])

    def with_parameters(
        self,
        parameters: Float[np.ndarray, "dof 10"],
        *,
        friction: Actuator | None = None,
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

    def _friction(self, qd: Result, load: Result, memory: Memory | None) -> Result:
        if self.friction is None:
            return np.zeros_like(qd)
        # By the class: equinox takes longer to bind a method than numpy to compute the torque.
        return np.asarray(Actuator.friction(self.friction, qd, load, memory))

    def _fitting(self, friction: Actuator) -> Actuator:
        """The friction in numpy arrays, if it is of these joints and nothing but friction."""
        require_fitting(friction, self.joints)
        if "armature" in friction.settings.terms:
            raise ModelError(
                "the friction of a rigid body has no armature term; give the rotors of its joints as `armature`"
            )
        return jax.tree.map(np.asarray, friction)

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
