"""Trust in a model: an ensemble, a calibrated band around its torque, and the domain of its data."""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from ..errors import ModelError
from ..joints import Joints
from .dynamics import Vector, one_sample
from .friction import Memory, Numbers


class Domain(eqx.Module):
    """Where the training data were: some of their states, and how near to one of them a state
    counts as known.

    Attributes:
        states: (q, q̇) of training samples, in the units of the joints.
        spread: of each coordinate in the training data, in the same units.
        radius: how far from the nearest of the states the domain reaches, in units of the spread.
    """

    states: Float[Array, "states coordinates"]
    spread: Float[Array, " coordinates"]
    radius: Float[Array, ""]
    joints: Joints = eqx.field(static=True)

    def __check_init__(self) -> None:
        width = 2 * self.joints.dof
        if self.states.ndim != 2 or self.states.shape[1] != width or not len(self.states):
            raise ModelError(
                f"the states of a domain have shape {self.states.shape}; expected (states, {width})"
            )
        if self.spread.shape != (width,) or self.radius.shape != ():
            raise ModelError(
                f"the spread of a domain has shape {self.spread.shape} and its radius {self.radius.shape}; "
                f"expected ({width},) and ()"
            )

    def distance(self, q: Vector, qd: Vector) -> Float[Array, ""]:
        """How far the nearest training state is, over the radius: at most 1 inside.

        A continuous joint is compared by the angle between positions, however often it has turned.
        """
        q, qd = one_sample(self.joints, q, qd)
        return (
            jnp.min(apart(self.joints, jnp.concatenate([q, qd]), self.states, self.spread))
            / self.radius
        )


def apart(
    joints: Joints,
    state: Float[Numbers, " coordinates"],
    others: Float[Numbers, "states coordinates"],
    spread: Float[Numbers, " coordinates"],
) -> Float[Numbers, " states"]:
    """How far a state (q, q̇) is from others, each coordinate over its spread; in numpy or in JAX."""
    away = state[None] - others
    array = away.__array_namespace__()
    endless = np.array([kind == "continuous" for kind in joints.kinds] + [False] * joints.dof)
    away = array.where(endless[None], array.remainder(away + np.pi, 2 * np.pi) - np.pi, away)
    return array.sqrt(array.sum((away / spread[None]) ** 2, axis=1))


class Trust(eqx.Module):
    """How sure a model is of its torques, and where its training data were.

    Attributes:
        members: models of the same kind, trained on resampled data; their arrays are stacked along a
            first axis.
        floor: the error that remains even where the members agree, such as noise, per joint [N m or N].
        band: half the width of the band in units of √(std² + floor²), per joint.
        domain: of the training data.
        level: the share of held-out torques that the band was calibrated to hold.
    """

    members: Any
    floor: Float[Array, " dof"]
    band: Float[Array, " dof"]
    domain: Domain
    level: float = eqx.field(static=True, default=0.9)

    def __check_init__(self) -> None:
        dof = self.domain.joints.dof
        for name in ("floor", "band"):
            shape = getattr(self, name).shape
            if shape != (dof,):
                raise ModelError(
                    f"{name} has shape {shape}; expected one number per joint, shape ({dof},)"
                )

    @property
    def size(self) -> int:
        """The number of members in the ensemble."""
        return jax.tree.leaves(eqx.filter(self.members, eqx.is_array))[0].shape[0]

    def torque_std(
        self, q: Vector, qd: Vector, qdd: Vector, *, memory: Memory | None = None
    ) -> Float[Array, " dof"]:
        """The standard deviation of the torque over the members [N m or N]."""
        arrays, rest = eqx.partition(self.members, eqx.is_array)

        def torque(member: Any) -> Array:
            return eqx.combine(member, rest).inverse_dynamics(q, qd, qdd, memory=memory)

        return jnp.std(jax.vmap(torque)(arrays), axis=0, ddof=1)

    def require_fitting(self, model: Any) -> None:
        """Refuse a domain of other joints, and members that are not two or more such models."""
        if self.domain.joints.kinds != model.joints.kinds:
            raise ModelError(
                f"the domain is for joints {self.domain.joints.kinds} and the model for "
                f"{model.joints.kinds}; compute it from the model's training data"
            )
        plain = (model.mechanics, model.friction, model.residual)
        members = (self.members.mechanics, self.members.friction, self.members.residual)
        _require_stacked(plain, members)


def _require_stacked(model: Any, members: Any) -> None:
    """Refuse members that are not two or more of the same kind as the model."""
    single = eqx.partition(model, eqx.is_array)
    stacked = eqx.partition(members, eqx.is_array)
    if jax.tree.structure(single) != jax.tree.structure(stacked):
        raise ModelError(
            "the members of the ensemble have other settings than the model; train them from the model"
        )
    shapes = [leaf.shape for leaf in jax.tree.leaves(single[0])]
    stacks = [leaf.shape for leaf in jax.tree.leaves(stacked[0])]
    count = stacks[0][0] if stacks[0] else 0
    expected = [(count, *shape) for shape in shapes]
    if count < 2 or stacks != expected:
        raise ModelError(
            f"the members have arrays such as {stacks[0]} where the model has {shapes[0]}; "
            "expected those of two or more members, stacked along a new first axis"
        )
