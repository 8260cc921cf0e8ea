"""What a learned model is but for its numbers: enough to build it anew, and to send the numbers alone."""

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import equinox as eqx
import jax
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray

from ..errors import ModelError
from ..joints import Joints
from .actuated import ActuatedModel
from .actuator import Actuator, ActuatorSettings
from .chain import LagrangianChain, LagrangianChainSettings
from .dynamics import Normalisation
from .feed_forward import FeedForwardNetwork, FeedForwardSettings
from .network import LagrangianNetwork, LagrangianNetworkSettings
from .residual import ResidualModel

Architecture = LagrangianNetworkSettings | LagrangianChainSettings | FeedForwardSettings
LearnedModel = LagrangianNetwork | LagrangianChain | FeedForwardNetwork | ActuatedModel | ResidualModel


@dataclass(frozen=True)
class Blueprint:
    """The joints, the shape of the model, the terms of its friction and the network for what these leave over: plain
    values, fit to cross processes."""

    joints: Joints
    network: Architecture
    actuator: ActuatorSettings | None = None
    residual: FeedForwardSettings | None = None

    @classmethod
    def of(cls, model: Any) -> "Blueprint":
        """That of a learned model."""
        known: Any = model.known if isinstance(model, ResidualModel) else model
        residual = model.rest.settings if isinstance(model, ResidualModel) else None
        if isinstance(known, ActuatedModel):
            rigid: Any = known.rigid
            return cls(model.joints, rigid.settings, known.actuator.settings, residual)
        return cls(model.joints, known.settings, None, residual)

    def build(self, normalisation: Normalisation | None = None, *, key: PRNGKeyArray) -> LearnedModel:
        """A model with random weights, in the units of the data that the normalisation is of."""
        if self.residual is not None:
            known: Any = replace(self, residual=None).build(normalisation, key=key)
            return ResidualModel(known, FeedForwardNetwork(self.joints, self.residual, normalisation, key=key))
        if isinstance(self.network, FeedForwardSettings):
            if self.actuator is not None:
                raise ModelError("a feed-forward network learns friction with all the rest; it takes no actuator")
            return FeedForwardNetwork(self.joints, self.network, normalisation, key=key)
        if isinstance(self.network, LagrangianChainSettings):
            rigid = LagrangianChain(self.joints, self.network, normalisation, key=key)
        else:
            rigid = LagrangianNetwork(self.joints, self.network, normalisation, key=key)
        return rigid if self.actuator is None else ActuatedModel(rigid, Actuator(self.joints, self.actuator))

    @cached_property
    def shape(self) -> Any:
        """The model with shapes in place of numbers; it takes no memory."""
        return eqx.filter_eval_shape(lambda: self.build(key=jax.random.key(0)))

    @cached_property
    def size(self) -> int:
        """How many numbers the model has, those of its normalisation included."""
        return sum(leaf.size for leaf in jax.tree.leaves(eqx.filter(self.shape, _is_number)))

    def pack(self, model: Any) -> Float[np.ndarray, " numbers"]:
        """The numbers of such a model as one vector."""
        # In numpy: JAX would cut float64 numbers short where it is not in that mode.
        leaves = jax.tree.leaves(eqx.filter(model, eqx.is_inexact_array))
        return np.concatenate([np.asarray(leaf, dtype=float).ravel() for leaf in leaves])

    def unpack(self, vector: Float[Array, " numbers"]) -> Any:
        """The model of a vector of numbers; may be called inside `jax.jit`."""
        leaves, structure = jax.tree.flatten(eqx.filter(self.shape, _is_number))
        ends = np.cumsum([leaf.size for leaf in leaves])[:-1].tolist()
        parts = [part.reshape(leaf.shape) for part, leaf in zip(jax.numpy.split(vector, ends), leaves, strict=True)]
        return eqx.combine(jax.tree.unflatten(structure, parts), eqx.filter(self.shape, _is_number, inverse=True))


def _is_number(leaf: Any) -> bool:
    """Whether a leaf of a shape stands for floating-point numbers."""
    return isinstance(leaf, jax.ShapeDtypeStruct) and jax.numpy.issubdtype(leaf.dtype, jax.numpy.inexact)
