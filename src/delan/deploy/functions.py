"""A model as functions of arrays, for formats other than C: names and precision."""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from ..models.model import as_model, without_trust
from .layout import Numbers, Shape


class ModelFunction(NamedTuple):
    """A function of one sample: what it does, the names of its arguments and of its results."""

    call: Callable[..., tuple[Array, ...]]
    told: str
    takes: tuple[str, ...]
    gives: tuple[str, ...]


def functions_of(model: Any) -> dict[str, ModelFunction]:
    """What a model can do; friction that remembers counts as slid, for its memory is not known."""
    Numbers.of(model)  # of learned models alone, and of finite numbers
    model = as_model(model)
    plain = without_trust(model)
    shape = Shape.of(model)
    q, qd, qdd, tau = "q", "qd", "qdd", "tau"
    made = {
        "inverse_dynamics": ModelFunction(
            lambda *motion: (plain.inverse_dynamics(*motion),),
            "the torque of a motion",
            (q, qd, qdd),
            (tau,),
        )
    }
    if shape.mechanics:
        made |= {
            "forward_dynamics": ModelFunction(
                lambda *state: (plain.forward_dynamics(*state),),
                "the acceleration of a torque",
                (q, qd, tau),
                (qdd,),
            ),
            "mass_matrix": ModelFunction(
                lambda q: (plain.mass_matrix(q),), "the inertia H(q)", (q,), ("inertia",)
            ),
            "components": ModelFunction(
                lambda *motion: tuple(plain.components(*motion)),
                "the parts of the torque",
                (q, qd, qdd),
                ("inertial", "coriolis", "gravity", "friction"),
            ),
        }
    if shape.potential:
        made["energy"] = ModelFunction(
            lambda q, qd: tuple(plain.energy(q, qd)),
            "the energies [J]",
            (q, qd),
            ("kinetic", "potential"),
        )
    if model.promises.trust:
        made["in_domain"] = ModelFunction(
            lambda q, qd: (model.in_domain(q, qd),),
            "how far a state is from the training data: at most 1 inside",
            (q, qd),
            ("distance",),
        )
    return made


def with_numbers(model: Any, dtype: Any) -> Any:
    """The model with all its numbers in one precision."""

    def cast(leaf: Any) -> Any:
        number = isinstance(leaf, jax.Array | np.ndarray) and jnp.issubdtype(
            leaf.dtype, jnp.inexact
        )
        return jnp.asarray(leaf, dtype) if number else leaf

    return jax.tree.map(cast, model)
