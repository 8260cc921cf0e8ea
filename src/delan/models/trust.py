"""Trust in a model: an ensemble, a calibrated band of torques, and the domain of the data."""

from collections.abc import Mapping
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float
from scipy.spatial.distance import cdist

from ..errors import ModelError
from ..joints import Joints
from .dynamics import Vector, one_sample
from .friction import Memory, Numbers

# States whose distances are computed together, a few MB of them.
AT_ONCE = 1000


class Domain(eqx.Module):
    """The region of the training data, as all states near some of theirs.

    Attributes:
        states: (q, q̇) of training samples, in the units of the joints.
        spread: of each coordinate in the training data, in the same units.
        radius: largest distance from the nearest of the states, in units of the spread.
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
                f"the spread of a domain has shape {self.spread.shape} and its radius "
                f"{self.radius.shape}; expected ({width},) and ()"
            )

    def distance(self, q: Vector, qd: Vector) -> Float[Array, ""]:
        """Return the distance of the nearest training state over the radius: at most 1 inside."""
        q, qd = one_sample(self.joints, q, qd)
        state = jnp.concatenate([q, qd])
        return jnp.min(apart(self.joints, state, self.states, self.spread)) / self.radius


def distances(
    domain: Domain, states: Float[np.ndarray, "rows coordinates"]
) -> Float[np.ndarray, " rows"]:
    """Return `Domain.distance` of many states (q, q̇), in NumPy."""
    known = np.asarray(domain.states)
    spread = np.asarray(domain.spread)
    endless = np.flatnonzero(domain.joints.continuous)
    others = np.setdiff1d(np.arange(len(spread)), endless)
    nearest = []
    for first in range(0, len(states), AT_ONCE):
        part = states[first : first + AT_ONCE]
        square = cdist(part[:, others] / spread[others], known[:, others] / spread[others]) ** 2
        for joint in endless:
            turn = np.subtract.outer(part[:, joint], known[:, joint])
            turn = np.remainder(turn + np.pi, 2 * np.pi) - np.pi
            square += (turn / spread[joint]) ** 2
        nearest.append(np.sqrt(square.min(axis=1)))
    return np.concatenate(nearest) / float(domain.radius)


def apart(
    joints: Joints,
    state: Float[Numbers, " coordinates"],
    others: Float[Numbers, "states coordinates"],
    spread: Float[Numbers, " coordinates"],
) -> Float[Numbers, " states"]:
    """Return distances of a state (q, q̇) to others in units of the spread, in NumPy or in JAX.

    Positions of a continuous joint are compared by the angle between them, whatever the turns.
    """
    away = state[None] - others
    array = away.__array_namespace__()
    endless = np.concatenate([joints.continuous, np.zeros(joints.dof, dtype=bool)])
    away = array.where(endless[None], array.remainder(away + np.pi, 2 * np.pi) - np.pi, away)
    return array.sqrt(array.sum((away / spread[None]) ** 2, axis=1))


class Sketch(eqx.Module):
    """Some rows of the log that a model learned from, by which the log is recognised.

    Attributes:
        kept: positions and torques of these rows.
        rows: number of rows of the log.
    """

    kept: Float[Array, "kept values"]
    rows: Float[Array, ""]

    @classmethod
    def of(cls, fields: Mapping[str, Any] | None) -> "Sketch | None":
        """Return the sketch from its values in JSON; None for None."""
        if fields is None:
            return None
        kept = jnp.asarray(fields["kept"], dtype=float)
        return cls(kept, jnp.asarray(fields["rows"], dtype=float))

    def as_dict(self) -> dict[str, Any]:
        """Return the values for JSON."""
        return {"rows": int(self.rows), "kept": np.asarray(self.kept).tolist()}


class Trust(eqx.Module):
    """How sure a model is of its torques, and where its training data were.

    Attributes:
        members: models of the same kind, trained on resampled data; their arrays are stacked along
            a first axis.
        floor: the error that remains where the members agree, such as noise, per joint [N m or N].
        band: half the width of the band in units of √(std² + floor²), per joint. Members that lack
            one of n parts of the data differ less than a model errs (jackknife), for which floor
            and band make up: band is larger by (n − 1)/√n, floor smaller.
        domain: of the training data.
        level: the share of held-out torques that the band was calibrated to hold.
        sketch: of the log that the model learned from, so that its file can tell the gate; None if
            nobody knows it.
    """

    members: Any
    floor: Float[Array, " dof"]
    band: Float[Array, " dof"]
    domain: Domain
    level: float = eqx.field(static=True, default=0.9)
    sketch: Sketch | None = None

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
        """Return the standard deviation of the torque over the members [N m or N]."""
        arrays, rest = eqx.partition(self.members, eqx.is_array)

        def torque(member: Any) -> Array:
            return eqx.combine(member, rest).inverse_dynamics(q, qd, qdd, memory=memory)

        return jnp.std(jax.vmap(torque)(arrays), axis=0, ddof=1)

    def widening(self, q: Vector, qd: Vector) -> Float[Array, ""]:
        """Return by how much the band is wider than inside the domain, where it is calibrated.

        It grows with the distance, as the errors of real robots on other motion do.
        """
        return jnp.maximum(1.0, self.domain.distance(q, qd))

    def require_fitting(self, model: Any) -> None:
        """Refuse a domain of other joints, and members that are not two or more such models."""
        if self.domain.joints.kinds != model.joints.kinds:
            raise ModelError(
                f"the domain is for joints {self.domain.joints.kinds} and the model for "
                f"{model.joints.kinds}; compute it from the model's training data"
            )
        members = self.members
        single = eqx.partition((model.mechanics, model.friction, model.residual), eqx.is_array)
        stacked = eqx.partition(
            (members.mechanics, members.friction, members.residual), eqx.is_array
        )
        if jax.tree.structure(single) != jax.tree.structure(stacked):
            raise ModelError(
                "the members of the ensemble have other settings than the model; "
                "train them from the model"
            )
        shapes = [leaf.shape for leaf in jax.tree.leaves(single[0])]
        stacks = [leaf.shape for leaf in jax.tree.leaves(stacked[0])]
        count = stacks[0][0] if stacks[0] else 0
        if count < 2 or stacks != [(count, *shape) for shape in shapes]:
            raise ModelError(
                f"the members have arrays such as {stacks[0]} where the model has {shapes[0]}; "
                "expected those of two or more members, stacked along a new first axis"
            )
