"""The dynamics of an arm with known links, by the recursive algorithms of Pinocchio."""

import itertools
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pinocchio as pin  # pyright: ignore[reportMissingImports]  (its wheel hides it from pyright)
from jaxtyping import Float

from ..errors import ModelError
from ..joints import Body, Energy, JointKind, Joints, TorqueComponents
from ..text_file import TextFileError, read_text
from .dynamics import Promises
from .dynamics import VectorResult as Vector
from .friction import Friction, Memory, Numbers

Result = Float[np.ndarray, " dof"]

# Inertial parameters of a link: mass m [kg], first moments m c [kg m] and second moments [kg m²],
# the latter two about the origin of its joint. The torque is linear in them.
LINK_PARAMETERS = ("mass", "mx", "my", "mz", "Ixx", "Ixy", "Iyy", "Ixz", "Iyz", "Izz")
# Least mass of a link [kg]: Pinocchio stores the centre m c / m, undefined for a mass of zero.
LIGHTEST = 1e-9


class RigidBody:
    """A `DynamicsModel` with known masses, centres and inertias; it returns NumPy arrays.

    `armature` [kg m² or kg] is the rotor inertia that each joint adds to the diagonal of H. Where a
    method takes `memory`, it is the state of the stop operators of `friction` (see
    `Friction.torque`). Pinocchio computes one sample at a time and cannot be used in `jax.vmap`;
    use `rows` for many samples.
    """

    def __init__(
        self,
        model: pin.Model,
        *,
        friction: Friction | None = None,
        armature: Float[np.ndarray, " dof"] | None = None,
    ):
        model = model.copy()
        if armature is not None:
            model.armature = np.asarray(armature, dtype=float)
        self._model = model
        kinds: list[JointKind] = [_kind(model, index) for index in range(1, model.njoints)]
        # Refuses thousands of joints, whose matrices would be gigabytes, before these are made.
        self.joints = Joints(tuple(model.names[1:]), tuple(kinds))
        self._data = model.createData()
        self.friction = self._fitting(friction)

    @classmethod
    def from_urdf(
        cls,
        urdf: str | Path,
        *,
        friction: Friction | None = None,
        armature: Float[np.ndarray, " dof"] | None = None,
    ) -> "RigidBody":
        """Build a model with a fixed base from the path or the text of a URDF file."""
        if isinstance(urdf, Path) or "<" not in urdf:
            try:
                urdf = read_text(urdf)
            except TextFileError as error:
                problem = f"{urdf}: the URDF cannot be read ({error}); give its path or its text"
                raise ModelError(problem) from None
        try:
            return cls(pin.buildModelFromXML(urdf), friction=friction, armature=armature)
        except ValueError as error:
            raise ModelError(
                f"the URDF cannot be read: {error}; check it with `check_urdf`"
            ) from None

    @classmethod
    def from_bodies(
        cls,
        bodies: Sequence[Body],
        *,
        gravity: tuple[float, float, float],
        friction: Friction | None = None,
        armature: Float[np.ndarray, " dof"] | None = None,
    ) -> "RigidBody":
        """Build a model from a tree of bodies and the acceleration of gravity [m/s²]."""
        model = pin.Model()
        model.gravity.linear = np.array(gravity)
        # For each body: the joint that carries it, and the body's frame in that joint's frame.
        carriers: list[tuple[int, pin.SE3]] = []
        for body in bodies:
            parent = 0
            place = pin.SE3(body.rotation, body.position)
            if body.parent >= 0:
                parent, offset = carriers[body.parent]
                place = offset * place
            if body.joint is not None:
                place = place * pin.SE3(np.eye(3), body.anchor)
                parent = model.addJoint(parent, _joint_model(body), place, body.joint)
                place = pin.SE3(np.eye(3), -body.anchor)
            try:
                inertia = pin.Inertia(body.mass, body.centre, body.inertia)
            except RuntimeError as error:
                # Rounding may leave a negative moment where the numbers of a link are far apart.
                raise ModelError(
                    f"the inertia of the link of joint {body.joint} is not that of a body "
                    f"({error}); fit the model anew"
                ) from None
            model.appendBodyToJoint(parent, inertia, place)
            carriers.append((parent, place))
        return cls(model, friction=friction, armature=armature)

    @property
    def promises(self) -> Promises:
        """Which questions beyond the torque it answers."""
        memory = self.friction is not None and bool(self.friction.settings.stops)
        return Promises(mechanics=True, energy=True, memory=memory)

    def inverse_dynamics(
        self, q: Vector, qd: Vector, qdd: Vector, *, memory: Memory | None = None
    ) -> Result:
        """Return the torque by recursive Newton–Euler [N m or N]."""
        qd = np.asarray(qd, dtype=float)
        qdd = np.asarray(qdd, dtype=float)
        conservative = pin.rnea(self._model, self._data, self._configuration(q), qd, qdd)
        return conservative + self._friction(qd, conservative, memory)

    def forward_dynamics(
        self, q: Vector, qd: Vector, tau: Vector, *, memory: Memory | None = None
    ) -> Result:
        """Return the acceleration by the articulated-body algorithm [rad/s² or m/s²]."""
        qd = np.asarray(qd, dtype=float)
        tau = np.asarray(tau, dtype=float)
        if self.friction is not None:
            tau = np.asarray(Friction.conservative(self.friction, qd, tau, memory))
        return pin.aba(self._model, self._data, self._configuration(q), qd, tau).copy()

    def mass_matrix(self, q: Vector) -> Float[np.ndarray, "dof dof"]:
        """Return the inertia H(q) by the composite-rigid-body algorithm [kg m² or kg]."""
        upper = np.triu(pin.crba(self._model, self._data, self._configuration(q)))
        return upper + np.triu(upper, 1).T

    def components(
        self, q: Vector, qd: Vector, qdd: Vector, *, memory: Memory | None = None
    ) -> TorqueComponents:
        """Return the components of the torque [N m or N]."""
        configuration = self._configuration(q)
        qd = np.asarray(qd, dtype=float)
        gravity = pin.computeGeneralizedGravity(self._model, self._data, configuration).copy()
        coriolis = pin.rnea(self._model, self._data, configuration, qd, np.zeros_like(qd)) - gravity
        inertial = self.mass_matrix(q) @ np.asarray(qdd)
        friction = self._friction(qd, inertial + coriolis + gravity, memory)
        return TorqueComponents(inertial, coriolis, gravity, friction)

    def energy(self, q: Vector, qd: Vector) -> Energy:
        """Return kinetic and potential energy [J]."""
        configuration = self._configuration(q)
        qd = np.asarray(qd, dtype=float)
        # Pinocchio's kinetic energy includes rotors for some kinds of joints only; H has them all.
        kinetic = float(qd @ self.mass_matrix(q) @ qd) / 2
        return Energy(kinetic, pin.computePotentialEnergy(self._model, self._data, configuration))

    def power(self, q: Vector, qd: Vector, qdd: Vector) -> float:
        """Return the rate of the total energy [W]: ∂V/∂q q̇ + d/dt ½ q̇ᵀ H q̇."""
        configuration = self._configuration(q)
        qd = np.asarray(qd, dtype=float)
        # Ḣ = C + Cᵀ for the Coriolis matrix of Christoffel symbols: q̇ᵀ Ḣ q̇ / 2 = q̇ᵀ C q̇.
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
        """Return the components of the torque for every row."""
        memories: Iterable[Any] = itertools.repeat(None, len(q))
        if memory is not None:
            memories = np.asarray(memory)
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
        """A body for each joint, in the frame of the joint; fixed parts are merged into it."""
        pin.computeJointJacobians(
            self._model, self._data, self._configuration(np.zeros(self.joints.dof))
        )
        local = pin.ReferenceFrame.LOCAL
        bodies = []
        for index, name in enumerate(self.joints.names, start=1):
            kind = self.joints.kinds[index - 1]
            place = self._model.jointPlacements[index]
            inertia = self._model.inertias[index]
            jacobian = pin.getJointJacobian(self._model, self._data, index, local)
            # For an arm with a single joint Pinocchio returns a vector.
            column = np.reshape(jacobian, (6, -1))[:, index - 1]
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
            bodies.append(body)
        return tuple(bodies)

    @property
    def parameters(self) -> Float[np.ndarray, "dof 10"]:
        """The inertia of each link, in the order of `LINK_PARAMETERS`."""
        inertias = list(self._model.inertias)[1:]
        return np.stack([inertia.toDynamicParameters() for inertia in inertias])

    def with_parameters(
        self,
        parameters: Float[np.ndarray, "dof 10"],
        *,
        friction: Friction | None = None,
        armature: Float[np.ndarray, " dof"] | None = None,
    ) -> "RigidBody":
        """Return the arm with other links, friction and rotors; None removes friction or rotors."""
        if np.shape(parameters) != (self.joints.dof, 10) or not np.isfinite(parameters).all():
            raise ModelError(
                f"the link parameters have shape {np.shape(parameters)}; expected finite numbers "
                f"in shape (dof, 10) = ({self.joints.dof}, 10), as in `RigidBody.parameters`"
            )
        model = self._model.copy()
        for index, link in enumerate(parameters, start=1):
            mass = np.copysign(max(abs(link[0]), LIGHTEST), link[0])
            model.inertias[index] = pin.Inertia.FromDynamicParameters(np.array([mass, *link[1:]]))
        if armature is None:
            # Not None, which would keep the rotors of this arm.
            armature = np.zeros(self.joints.dof)
        return RigidBody(model, friction=friction, armature=armature)

    def regressor_rows(
        self,
        q: Float[np.ndarray, "time dof"],
        qd: Float[np.ndarray, "time dof"],
        qdd: Float[np.ndarray, "time dof"],
    ) -> Float[np.ndarray, "time dof parameters"]:
        """Return Y of every row: Y times the flat `parameters` is the torque of the links."""
        rows = np.empty((len(q), self.joints.dof, 10 * self.joints.dof))
        for row, position, velocity, acceleration in zip(rows, q, qd, qdd, strict=True):
            row[:] = pin.computeJointTorqueRegressor(
                self._model, self._data, self._configuration(position), velocity, acceleration
            )
        return rows

    def _friction(self, qd: Result, load: Result, memory: Memory | None) -> Result:
        if self.friction is None:
            return np.zeros_like(qd)
        # Called on the class: equinox binds a method more slowly than NumPy computes the torque.
        return np.asarray(Friction.torque(self.friction, qd, load, memory))

    def _fitting(self, friction: Friction | None) -> Friction | None:
        """Check that the friction fits the joints and return it with NumPy arrays."""
        if friction is None:
            return None
        if friction.joints.dof != self.joints.dof:
            raise ModelError(
                f"the friction has {friction.joints.dof} joints and the arm {self.joints.dof}; "
                "make it for the joints of the arm"
            )
        if friction.settings.stores_energy:
            raise ModelError(
                "the friction of a rigid body cannot have a spring or periodic term, which store "
                "energy; leave them out"
            )
        if "armature" in friction.settings.terms:
            raise ModelError(
                "the friction of a rigid body cannot have an armature term; "
                "give the rotor inertias of the joints as `armature`"
            )
        return jax.tree.map(np.asarray, friction)

    def _configuration(self, q: Vector) -> np.ndarray:
        """Return Pinocchio's coordinates, (cos q, sin q) for a continuous joint."""
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
    if body.kind == "prismatic":
        return pin.JointModelPrismaticUnaligned(axis)
    return pin.JointModelRevoluteUnaligned(axis)


def _kind(model: pin.Model, index: int) -> JointKind:
    joint = model.joints[index]
    name = joint.shortname()
    if joint.nv != 1 or not name.startswith(("JointModelR", "JointModelP")):
        raise ModelError(
            f"joint {model.names[index]} is a {name}; "
            "only revolute, continuous and prismatic joints are supported"
        )
    if joint.nq == 2:
        return "continuous"
    return "prismatic" if name.startswith("JointModelP") else "revolute"
