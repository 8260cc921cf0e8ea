"""The feed-forward baseline: a network from (q, q̇, q̈) to τ that knows no mechanics and promises none."""

from dataclasses import dataclass

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray

from ..errors import SettingsError
from ..joints import Joints
from .dynamics import Normalisation, one_sample
from .perceptron import ACTIVATIONS, Activation, Affine, Perceptron

Vector = Float[Array, " dof"]


@dataclass(frozen=True)
class FeedForwardSettings:
    """The shape of the network: units of each hidden layer, how many layers, and their activation."""

    width: int = 64
    depth: int = 2
    activation: Activation = "silu"

    def __post_init__(self) -> None:
        if self.width < 1 or self.depth < 1:
            raise SettingsError(f"width and depth must be at least 1, got width={self.width} and depth={self.depth}")
        if self.activation not in ACTIVATIONS:
            raise SettingsError(f"unknown activation {self.activation!r}; known: {', '.join(ACTIVATIONS)}")


class FeedForwardNetwork(eqx.Module):
    """τ = network(q, q̇, q̈), inputs and outputs normalised; a continuous joint enters as (cos q, sin q)."""

    trunk: Perceptron
    torque: Affine
    normalisation: Normalisation
    joints: Joints = eqx.field(static=True)
    settings: FeedForwardSettings = eqx.field(static=True)

    def __init__(
        self,
        joints: Joints,
        settings: FeedForwardSettings | None = None,
        normalisation: Normalisation | None = None,
        *,
        key: PRNGKeyArray,
    ):
        self.joints = joints
        self.settings = settings = settings or FeedForwardSettings()
        self.normalisation = normalisation or Normalisation.identity(joints.dof)
        trunk_key, torque_key = jax.random.split(key)
        continuous = sum(kind == "continuous" for kind in joints.kinds)
        inputs = 3 * joints.dof + continuous
        self.trunk = Perceptron(inputs, settings.width, settings.depth, settings.activation, key=trunk_key)
        self.torque = Affine(settings.width, joints.dof, key=torque_key)

    def inverse_dynamics(self, q: Vector, qd: Vector, qdd: Vector) -> Vector:
        """The learned torque [N m or N]."""
        q, qd, qdd = one_sample(self.joints, q, qd, qdd)
        scale = self.normalisation
        continuous = np.array([kind == "continuous" for kind in self.joints.kinds])
        position = ((q - scale.q_mean) / scale.q_std)[~continuous]
        angle = q[continuous]
        features = [position, jnp.cos(angle), jnp.sin(angle), qd / scale.qd_std, qdd / scale.qdd_std]
        return scale.tau_mean + scale.tau_std * self.torque(self.trunk(jnp.concatenate(features)))
