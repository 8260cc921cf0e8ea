"""Links and motors together, and either of them out of a model that may have both."""

from typing import Any

import equinox as eqx
import jax.numpy as jnp
from jax.scipy.linalg import cho_factor, cho_solve
from jaxtyping import Array, Float

from ..errors import ModelError
from ..joints import Energy, Joints, TorqueComponents
from .actuator import Actuator, ActuatorSettings, Memory, require_fitting
from .dynamics import DynamicsModel, MatrixResult, Vector, VectorResult, one_sample


class ActuatedModel(eqx.Module):
    """Links and motors together: τ = τ_c + friction(q̇, τ_c) with the conservative torque τ_c = τ_rigid + A q̈.

    A is the inertia of the rotors. Where a method takes `memory`, it is that of the stop operators at this sample
    (`Actuator.remember`); without it they count as slid, which is wrong for two radii of way after each reversal.
    """

    rigid: DynamicsModel
    actuator: Actuator

    def __check_init__(self) -> None:
        if not isinstance(self.rigid, eqx.Module):
            raise ModelError(f"a {type(self.rigid).__name__} is no JAX model; give it its motors itself, as friction")
        require_fitting(self.actuator, self.rigid.joints)

    @property
    def joints(self) -> Joints:
        return self.rigid.joints

    def inverse_dynamics(self, q: Vector, qd: Vector, qdd: Vector, *, memory: Memory | None = None) -> VectorResult:
        """The torque of the motors [N m or N]."""
        q, qd, qdd = one_sample(self.joints, q, qd, qdd)
        conservative = self.rigid.inverse_dynamics(q, qd, qdd) + self.actuator.armature @ qdd
        return conservative + self.actuator.friction(qd, conservative, memory)

    def forward_dynamics(self, q: Vector, qd: Vector, tau: Vector, *, memory: Memory | None = None) -> VectorResult:
        """The acceleration (H + A)⁻¹ (τ_c − c − g) [rad/s² or m/s²]."""
        q, qd, tau = one_sample(self.joints, q, qd, tau)
        conservative = jnp.asarray(self.actuator.conservative(qd, tau, memory))
        if "armature" not in self.actuator.settings.terms:
            return self.rigid.forward_dynamics(q, qd, conservative)
        bias = self.rigid.inverse_dynamics(q, qd, jnp.zeros_like(qd))
        return cho_solve(cho_factor(self.mass_matrix(q), lower=True), conservative - bias)

    def mass_matrix(self, q: Vector) -> MatrixResult:
        """The inertia H(q) + A of links and rotors [kg m² or kg]."""
        return self.rigid.mass_matrix(q) + self.actuator.armature

    def components(self, q: Vector, qd: Vector, qdd: Vector, *, memory: Memory | None = None) -> TorqueComponents:
        """The parts of the torque; the rotors' are inertial."""
        q, qd, qdd = one_sample(self.joints, q, qd, qdd)
        parts = self.rigid.components(q, qd, qdd)
        parts = parts._replace(inertial=parts.inertial + self.actuator.armature @ qdd)
        load = parts.inertial + parts.coriolis + parts.gravity
        return parts._replace(friction=self.actuator.friction(qd, load, memory))

    def energy(self, q: Vector, qd: Vector) -> Energy:
        """Kinetic and potential energy of links and rotors [J]; what stop operators store is not counted."""
        q, qd = one_sample(self.joints, q, qd)
        links = self.rigid.energy(q, qd)
        return links._replace(kinetic=links.kinetic + qd @ self.actuator.armature @ qd / 2)

    def power(self, q: Vector, qd: Vector, qdd: Vector) -> Float[Array, ""]:
        """The rate of that energy [W]; it equals q̇ᵀ (τ − friction)."""
        q, qd, qdd = one_sample(self.joints, q, qd, qdd)
        return self.rigid.power(q, qd, qdd) + qd @ self.actuator.armature @ qdd


def links_of(model: Any) -> Any:
    """The model without its motors."""
    return model.rigid if isinstance(model, ActuatedModel) else model


def friction_of(model: Any) -> ActuatorSettings | None:
    """The friction that a model has at its motors; None without motors."""
    return model.actuator.settings if isinstance(model, ActuatedModel) else None
