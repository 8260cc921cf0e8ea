"""The model of an arm whose links are known: recursive Newton–Euler and its kin, by Pinocchio."""

import numpy as np
import pinocchio as pin  # pyright: ignore[reportMissingImports]  (its wheel puts it where only Python finds it)
from jaxtyping import Float

from ..errors import ModelError
from ..joints import Energy, JointKind, Joints, TorqueComponents
from .dynamics import VectorResult as Vector

Result = Float[np.ndarray, " dof"]


class RigidBody:
    """Keeps every promise of `DynamicsModel` from given masses, centres and inertias; gives numpy arrays.

    Pinocchio computes on one sample at a time, so this model is no subject of `jax.vmap`; use `rows` for many samples.
    """

    def __init__(self, model: pin.Model):
        self._model = model
        self._data = model.createData()
        self.joints = Joints(tuple(model.names[1:]), tuple(_kind(model, i) for i in range(1, model.njoints)))

    @classmethod
    def from_urdf(cls, text: str) -> "RigidBody":
        """A model from the text of a URDF file; its base is fixed."""
        try:
            return cls(pin.buildModelFromXML(text))
        except ValueError as error:
            raise ModelError(f"the URDF cannot be read: {error}; check it with `check_urdf`") from None

    def inverse_dynamics(self, q: Vector, qd: Vector, qdd: Vector) -> Result:
        """The torque by recursive Newton–Euler [N m or N]."""
        return pin.rnea(self._model, self._data, self._configuration(q), np.asarray(qd), np.asarray(qdd)).copy()

    def forward_dynamics(self, q: Vector, qd: Vector, tau: Vector) -> Result:
        """The acceleration by the articulated-body algorithm [rad/s² or m/s²]."""
        return pin.aba(self._model, self._data, self._configuration(q), np.asarray(qd), np.asarray(tau)).copy()

    def mass_matrix(self, q: Vector) -> Float[np.ndarray, "dof dof"]:
        """The inertia H(q) by the composite-rigid-body algorithm [kg m² or kg]."""
        upper = np.triu(pin.crba(self._model, self._data, self._configuration(q)))
        return upper + np.triu(upper, 1).T

    def components(self, q: Vector, qd: Vector, qdd: Vector) -> TorqueComponents:
        """The parts of the torque; friction is zero."""
        gravity = pin.computeGeneralizedGravity(self._model, self._data, self._configuration(q)).copy()
        coriolis = self.inverse_dynamics(q, qd, np.zeros_like(gravity)) - gravity
        return TorqueComponents(self.mass_matrix(q) @ np.asarray(qdd), coriolis, gravity, np.zeros_like(gravity))

    def energy(self, q: Vector, qd: Vector) -> Energy:
        """Kinetic and potential energy [J]."""
        configuration = self._configuration(q)
        kinetic = pin.computeKineticEnergy(self._model, self._data, configuration, np.asarray(qd))
        return Energy(kinetic, pin.computePotentialEnergy(self._model, self._data, configuration))

    def power(self, q: Vector, qd: Vector, qdd: Vector) -> float:
        """The rate of the total energy [W], by differentiating the energy: ∂V/∂q q̇ + d/dt ½ q̇ᵀ H q̇."""
        configuration, qd, qdd = self._configuration(q), np.asarray(qd), np.asarray(qdd)
        pin.computeAllTerms(self._model, self._data, configuration, qd)
        inertia_rate = self._inertia_rate(q, qd)
        return float(qd @ (self.mass_matrix(q) @ qdd + inertia_rate @ qd / 2 + self._data.g))

    def _inertia_rate(self, q: Vector, qd: Result) -> Float[np.ndarray, "dof dof"]:
        """Ḣ = C + Cᵀ for the Coriolis matrix of Christoffel symbols."""
        coriolis = pin.computeCoriolisMatrix(self._model, self._data, self._configuration(q), qd).copy()
        return coriolis + coriolis.T

    def rows(
        self, q: Float[np.ndarray, "time dof"], qd: Float[np.ndarray, "time dof"], qdd: Float[np.ndarray, "time dof"]
    ) -> TorqueComponents:
        """`components` of every row."""
        parts = [self.components(*row) for row in zip(q, qd, qdd, strict=True)]
        return TorqueComponents(*(np.stack(part) for part in zip(*parts, strict=True)))

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
