"""A known arm and a network for what it leaves over: more exact than the arm alone, and no longer mechanics."""

from typing import Any

import equinox as eqx

from ..errors import ModelError
from ..joints import Joints
from .actuated import ActuatedModel
from .actuator import Actuator, Memory
from .dynamics import DynamicsModel, Vector, VectorResult
from .feed_forward import FeedForwardNetwork


class ResidualModel(eqx.Module):
    """τ = τ_known(q, q̇, q̈) + τ_rest(q, q̇, q̈), the second by a feed-forward network.

    It promises a torque and nothing more: the network may give energy, and where no data were it may say anything. The
    mechanics of the arm alone are those of `known`. Where friction remembers, `memory` is that of the arm's stop
    operators.
    """

    known: DynamicsModel
    rest: FeedForwardNetwork

    def __check_init__(self) -> None:
        if not isinstance(self.known, eqx.Module):
            raise ModelError(f"a {type(self.known).__name__} is no JAX model; give it as a chain (`from_rigid_body`)")
        if self.known.joints.kinds != self.rest.joints.kinds:
            raise ModelError(
                f"the arm has joints {self.known.joints.kinds} and the network {self.rest.joints.kinds}; "
                "make the network of the arm's joints"
            )

    @property
    def joints(self) -> Joints:
        return self.known.joints

    @property
    def actuator(self) -> Actuator | None:
        """The motors of the arm, if it has any."""
        return self.known.actuator if isinstance(self.known, ActuatedModel) else None

    def inverse_dynamics(self, q: Vector, qd: Vector, qdd: Vector, *, memory: Memory | None = None) -> VectorResult:
        """The torque of the arm and of the network [N m or N]."""
        named: dict[str, Any] = {} if memory is None else {"memory": memory}
        return self.known.inverse_dynamics(q, qd, qdd, **named) + self.rest.inverse_dynamics(q, qd, qdd)
