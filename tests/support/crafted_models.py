"""Models made to fool the gate, with its source at hand; every one by a seed."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from delan.joints import Joints
from delan.models.dynamics import Normalisation
from delan.models.friction import Friction, FrictionSettings, MotorPair
from delan.models.model import Model
from delan.models.networks import (
    Activation,
    LagrangianNetwork,
    LagrangianNetworkSettings,
)
from tests.support.members import trust_in

ACTIVATIONS: tuple[Activation, ...] = ("silu", "tanh", "softplus", "relu")
TERMS = ("viscous", "coulomb", "asymmetric", "stribeck", "offset", "load", "stops", "armature")


class Spiked(NamedTuple):
    """A network with a spike, where it is, and which of its functions has it."""

    network: LagrangianNetwork
    q: np.ndarray
    height: float


def calm_network(dof: int, seed: int, *, activation: Activation = "silu", width: int = 32) -> Any:
    """Return a network of small torques."""
    unit = jnp.ones(dof)
    settings = LagrangianNetworkSettings(
        width=width,
        activation=activation,
        focus=0.0,
    )
    scale = replace(Normalisation.identity(dof), tau_std=unit, qdd_std=5 * unit)
    return LagrangianNetwork(Joints.revolute(dof), settings, scale, key=jax.random.key(seed))


def spiked_network(dof: int, seed: int, *, narrow: float | None = None) -> Spiked:
    """Return a calm network with a spike that is silent but around one position.

    A unit of the first layer for each joint is steep at both sides of the position; a unit of the
    second layer answers only if all of them do. A head makes a potential or an inertia of it.
    """
    rng = np.random.default_rng(seed)
    activation = ACTIVATIONS[seed % len(ACTIVATIONS)]
    network = calm_network(dof, seed, activation=activation)
    q = rng.uniform(-3, 3, dof)
    if narrow is None:
        narrow = 10 ** rng.uniform(-3, -0.7)
    inside = 1 - np.cos(narrow)
    steep = 10 / inside
    first = np.array(network.trunk.layers[0].weight)
    bias = np.array(network.trunk.layers[0].bias)
    second = np.array(network.trunk.layers[1].weight)
    shift = np.array(network.trunk.layers[1].bias)
    units = rng.choice(len(first), dof, replace=False)
    last = int(rng.integers(len(second)))
    for joint, unit in enumerate(units):
        first[unit] = 0
        first[unit, joint] = steep * np.cos(q[joint])
        first[unit, dof + joint] = steep * np.sin(q[joint])
        bias[unit] = -steep * (1 - inside)
    # Other units of the second layer do not see the steep ones, nor it the calm ones.
    second[:, units] = 0
    second[last] = 0
    second[last, units] = 1.0
    most = 1.0 if activation == "tanh" else 10.0
    shift[last] = -most * (dof - 0.7)
    heads = ["gravity", "diagonal", "lower"]
    if dof == 1:
        heads.remove("lower")
    head = heads[seed // len(ACTIVATIONS) % len(heads)]
    chosen = getattr(network, head)
    weight = np.array(chosen.weight)
    height = float(10 ** rng.uniform(1, 4))
    for name in heads:
        other = np.array(getattr(network, name).weight)
        other[:, last] = 0
        network = eqx.tree_at(
            lambda item, name=name: getattr(item, name).weight, network, jnp.asarray(other)
        )
    weight[:, last] = 0
    weight[int(rng.integers(len(weight))), last] = height
    network = eqx.tree_at(
        lambda item: (
            getattr(item, head).weight,
            item.trunk.layers[0].weight,
            item.trunk.layers[0].bias,
            item.trunk.layers[1].weight,
            item.trunk.layers[1].bias,
        ),
        network,
        tuple(map(jnp.asarray, (weight, first, bias, second, shift))),
    )
    return Spiked(network, q, height)


def largest_near(score: Callable[..., Any], q: np.ndarray, rates: np.ndarray, seed: int) -> float:
    """Return the largest score near a position, by many samples at many distances."""
    rng = np.random.default_rng(seed)
    away = rng.normal(size=(4000, len(q))) * 10 ** rng.uniform(-4, 0, (4000, 1))
    signs = rng.choice([-1.0, 1.0], (4000, len(rates)))
    states = np.concatenate([np.clip(q + away, -np.pi, np.pi), signs * rates], axis=1)
    return float(np.nanmax(score(states)))


def random_friction(joints: Joints, seed: int) -> Friction:
    """Return friction that claims to be passive; some of its weights may be negative."""
    rng = np.random.default_rng(seed)
    terms = tuple(rng.choice(TERMS, rng.integers(1, 6), replace=False).tolist())
    if {"coulomb", "asymmetric"} <= set(terms):
        terms = tuple(term for term in terms if term != "coulomb")
    pairs = (MotorPair(0, 1, float(rng.choice([-2.0, 0.6, 1.0]))),) if seed % 3 == 0 else ()
    settings = FrictionSettings(
        terms=terms,
        pairs=pairs,
        radii=(0.01, 0.1),
        width=float(10 ** rng.uniform(-4, -1)),
        stribeck_speed=float(10 ** rng.uniform(-3, 1)),
        passive=True,
    )
    blank = Friction(joints, settings)
    shape = blank.weights.value.shape
    weights = rng.uniform(0, 1, shape) * 10 ** rng.uniform(-4, 0, shape)
    # A few small negative weights, or none, hidden among others.
    negative = rng.uniform(size=shape) < rng.choice([0.0, 0.15])
    weights = np.where(negative, -weights * 10 ** rng.uniform(-3, 0, shape), weights)
    return eqx.tree_at(lambda item: item.weights.value, blank, jnp.asarray(weights))


def given_power_of(friction: Friction) -> float:
    """Return the most power that friction gives at speeds of all sizes, offsets aside."""
    rng = np.random.default_rng(0)
    dof = friction.joints.dof
    speeds = rng.normal(size=(6000, dof)) * 10 ** rng.uniform(-7, 5, (6000, 1))
    # One joint alone, too: others may hide what it gives.
    speeds[::2, rng.integers(dof)] = 0
    load = rng.normal(size=(6000, dof)) * 10 ** rng.uniform(-2, 4, (6000, 1))
    load[::3] = 0
    torque = jax.vmap(friction.torque)(jnp.asarray(speeds), jnp.asarray(load))
    still = jax.vmap(friction.torque)(jnp.asarray(0 * speeds), jnp.asarray(load))
    power = -np.sum(speeds * (np.asarray(torque) - np.asarray(still)), axis=1)
    size = np.sum(np.abs(speeds * np.asarray(torque)), axis=1)
    return float(np.max(power / np.maximum(size, 1e-300)))


def _with(part: Any, where: Callable[[Any], Any], value: Any) -> Any:
    return eqx.tree_at(where, part, value)


def broken_code(model: Model, seed: int) -> tuple[str, Model]:
    """Return a name and a model whose torque is sound in Python and not in C."""
    friction = model.friction
    assert friction is not None
    rng = np.random.default_rng(seed)
    chain = model.chain
    assert chain is not None
    # Stop operators of a vanishing radius are refused by the settings themselves.
    kind = 1 + seed % 3
    if kind == 1:
        # A step so steep that its inverse width overflows.
        width = jnp.full_like(friction.log_width, -float(rng.uniform(89, 300)))
        return "width", Model(chain, _with(friction, lambda item: item.log_width, width))
    if kind == 2:
        # Lengths in a unit so small that masses vanish in single precision.
        unit = 10 ** rng.uniform(16, 40)
        factor = chain.factor.at[:, 3].divide(unit)
        moved = eqx.tree_at(
            lambda item: (item.factor, item.shift, item.gravity),
            chain,
            (factor, chain.shift * unit, chain.gravity * unit),
        )
        return f"unit {unit:g}", Model(moved, friction)
    # A bump so narrow that its inverse width overflows.
    speed = jnp.full_like(friction.log_stribeck_speed, -float(rng.uniform(89, 300)))
    return "bump", Model(chain, _with(friction, lambda item: item.log_stribeck_speed, speed))


def absurd_trust(model: Model, seed: int) -> tuple[str, Model]:
    """Return the check that must refuse, and a model whose band or domain holds everything."""
    rng = np.random.default_rng(seed)
    trust = trust_in(model)
    size = 10 ** rng.uniform(6, 37)
    domain = trust.domain
    crafted = {
        0: ("width of the band", replace(trust, band=trust.band * size)),
        1: ("width of the band", replace(trust, band=trust.band.at[seed % 2].multiply(size))),
        2: ("width of the band", replace(trust, floor=trust.floor * size)),
        3: ("domain", replace(trust, domain=replace(domain, radius=domain.radius * size))),
        4: ("domain", replace(trust, domain=replace(domain, spread=domain.spread * size))),
        5: ("width of the band", replace(trust, band=trust.band * np.inf)),
    }
    name, changed = crafted[seed % 6]
    return name, model.with_trust(changed)
