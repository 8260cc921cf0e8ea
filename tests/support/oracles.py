"""Independent, slow derivations of the package's results, short enough to be verified by eye."""

from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from delan.models.networks import ACTIVATIONS, POSITIVE, Affine, LagrangianNetwork


def torque_from_lagrangian(
    lagrangian: Callable[[Array, Array], Array], q: Array, qd: Array, qdd: Array
) -> Array:
    """Return d/dt ∂L/∂q̇ − ∂L/∂q by plain automatic differentiation of L(q, q̇)."""
    momentum = jax.grad(lagrangian, argnums=1)
    _, momentum_rate = jax.jvp(momentum, (q, qd), (qd, qdd))
    return momentum_rate - jax.grad(lagrangian, argnums=0)(q, qd)


def _lagrangian_layer(
    layer: Affine, activation: Callable[[Array], Array], h: Array, dh: Array
) -> tuple[Array, Array]:
    """Return the output of a layer of section 4.3 of the paper, and its Jacobian in q."""
    a = layer.weight @ h + layer.bias
    slope = jax.vmap(jax.grad(activation))(a)
    return activation(a), slope[:, None] * (layer.weight @ dh)


def paper_layer_torque(network: LagrangianNetwork, q: Array, qd: Array, qdd: Array) -> Array:
    """Return eq. 6 as the paper computes it: l and ∂l/∂q in one pass, then eqs. 10–14."""
    n = network.joints.dof
    h, dh = network._features(q), jax.jacfwd(network._features)(q)
    for layer in network.trunk.layers:
        h, dh = _lagrangian_layer(layer, ACTIVATIONS[network.trunk.activation], h, dh)
    diagonal, d_diagonal = _lagrangian_layer(
        network.diagonal, POSITIVE[network.settings.diagonal], h, dh
    )
    lower, d_lower = _lagrangian_layer(network.lower, lambda x: x, h, dh)
    gravity, d_gravity = _lagrangian_layer(network.gravity, lambda x: x, h, dh)

    units = network.normalisation
    scale = jnp.sqrt(units.tau_std / units.qdd_std)[:, None]
    chol = jnp.zeros((n, n)).at[np.diag_indices(n)].set(diagonal + network.settings.offset)
    chol = scale * chol.at[np.tril_indices(n, -1)].set(lower)
    d_chol = jnp.zeros((n, n, n)).at[np.diag_indices(n)].set(d_diagonal)  # [row, column, joint]
    d_chol = scale[:, :, None] * d_chol.at[np.tril_indices(n, -1)].set(d_lower)

    chol_dot = d_chol @ qd  # eq. 12
    inertia_dot = chol @ chol_dot.T + chol_dot @ chol.T  # eq. 10
    d_inertia = jnp.einsum("iaj,ka->ikj", d_chol, chol) + jnp.einsum("ia,kaj->ikj", chol, d_chol)
    d_energy = jnp.einsum("i,ikj,k->j", qd, d_inertia, qd) / 2  # eq. 14
    g = units.tau_std * gravity
    if network.settings.gravity == "potential":
        g = jnp.max(units.tau_std) * d_gravity[0]
    return chol @ chol.T @ qdd + inertia_dot @ qd - d_energy + g
