"""Models with dependent joints, springs and cables, and networks of rounding errors, by a seed.

They are made to fool the gate with its source at hand.
"""

from dataclasses import replace
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from delan.joints import JointKind, JointLimits, Joints
from delan.models.chain import LagrangianChain, LagrangianChainSettings
from delan.models.dynamics import Normalisation
from delan.models.friction import Friction, FrictionSettings, MotorPair
from delan.models.model import Model
from delan.models.networks import LagrangianNetwork
from tests.support.crafted_models import Spiked, calm_network

RATIOS = (0.0, 0.0, 1.0, -1.0, 0.5, -0.6)
TERMS = ("viscous", "coulomb", "stribeck", "offset", "load", "stops", "armature", "spring")
TERMS += ("periodic",)
# Friction terms that the simulated robot does not have, and the chain's weights that are changed.
STRAYING = ("viscous", "coulomb", "load", "stops", "armature", "spring", "periodic", "offset")
LINKS = ("gravity", "factor", "shift", "turn")
# States that are drawn for the truth, rounds of a search around the best of them, and its draws.
DRAWN = 20_000
ROUNDS = 8
AROUND = 400


def random_coupling(
    dof: int, joints: int, rng: np.random.Generator
) -> tuple[tuple[float, ...], ...]:
    """Return A of q_tree = A q: own joints of the coordinates first, then dependent ones."""
    rows = np.tril(rng.choice(RATIOS, (dof, dof)), -1) + np.eye(dof)
    others = rng.choice(RATIOS, (joints - dof, dof))
    return tuple(map(tuple, np.concatenate([rows, others]).tolist()))


def random_structure(seed: int) -> Model:
    """Return a chain with dependent joints, with springs, cables and friction."""
    rng = np.random.default_rng(seed)
    dof = 1 + seed % 4
    count = dof + int(rng.integers(0, 3))
    sliding = tuple((rng.random(count) < 0.25).tolist())
    kinds: list[JointKind] = ["prismatic" if slides else "revolute" for slides in sliding[:dof]]
    joints = Joints(tuple(f"j{number}" for number in range(dof)), tuple(kinds))
    settings = LagrangianChainSettings(
        parents=tuple(int(rng.integers(-1, k)) if k else -1 for k in range(count)),
        coupling=random_coupling(dof, count, rng),
        sliding=sliding,
    )
    size = replace(
        Normalisation.identity(dof), tau_std=jnp.asarray(10 ** rng.uniform(-1, 1.5, dof))
    )
    chain = LagrangianChain(joints, settings, size, key=jax.random.key(seed))
    if seed % 2:
        bent = chain.turn + 0.3 * jnp.asarray(rng.normal(size=chain.turn.shape))
        chain = eqx.tree_at(lambda item: item.turn, chain, bent)
    return Model(chain, storing_friction(joints, rng))


def storing_friction(joints: Joints, rng: np.random.Generator) -> Friction:
    """Return friction with springs and cables, whose weights are not negative."""
    terms = tuple(rng.choice(TERMS, rng.integers(2, 6), replace=False).tolist())
    pairs = ()
    if joints.dof > 1:
        pairs = (MotorPair(0, 1, float(rng.choice([-2.0, 0.6, 1.0]))),)
    blank = Friction(joints, FrictionSettings(terms, pairs=pairs, radii=(0.01, 0.1)))
    shape = blank.weights.value.shape
    weights = rng.uniform(0, 1, shape) * 10 ** rng.uniform(-2, 0.5, shape)
    return eqx.tree_at(lambda item: item.weights.value, blank, jnp.asarray(weights))


def straying_model(model: Model, seed: int) -> tuple[str, Model]:
    """Return a known arm with friction, springs or links of another size, and what was changed."""
    rng = np.random.default_rng(seed)
    kinds = (*STRAYING, *LINKS)
    kind = kinds[seed % len(kinds)]
    size = float(10 ** rng.uniform(-1.5, 1.0))
    chain, friction = model.chain, model.friction
    assert chain is not None
    assert friction is not None
    if kind in LINKS:
        factor = 1 + size * (rng.random() - 0.3)
        changed = eqx.tree_at(
            lambda item: getattr(item, kind), chain, getattr(chain, kind) * factor
        )
        return kind, Model(changed, friction)
    settings = friction.settings
    own = (kind,) if kind not in settings.terms else ()
    settings = replace(settings, terms=settings.terms + own, radii=(0.03,))
    weights = {name: np.asarray(row) for name, row in friction.named.items()}
    for name in settings.columns:
        added = size * rng.uniform(0, 2, friction.joints.dof)
        if name not in weights:
            weights[name] = added
        elif name == kind:
            weights[name] = weights[name] + added
    rows = np.array([weights[name] for name in settings.columns])
    changed = Friction.of(friction.joints, settings, rows)
    return kind, Model(chain, jax.tree.map(jnp.asarray, changed))


class Region(NamedTuple):
    """A box of positions, with the largest speeds and accelerations in it."""

    lower: np.ndarray
    upper: np.ndarray
    speed: np.ndarray
    push: np.ndarray

    @classmethod
    def random(cls, dof: int, seed: int) -> "Region":
        rng = np.random.default_rng([seed, 1])
        upper = rng.uniform(0.3, 3, dof)
        return cls(-rng.uniform(0.3, 3, dof), upper, *rng.uniform(0, 3, (2, dof)))

    @property
    def middle(self) -> np.ndarray:
        nothing = np.zeros_like(self.speed)
        return np.concatenate([(self.lower + self.upper) / 2, nothing, nothing])

    @property
    def reach(self) -> np.ndarray:
        return np.concatenate([(self.upper - self.lower) / 2, self.speed, self.push])

    def limits(self, torque: np.ndarray) -> JointLimits:
        endless = np.full_like(torque, np.inf)
        return JointLimits(lower=self.lower, upper=self.upper, velocity=endless, torque=torque)


def largest_of(answer: Any, region: Region, seed: int) -> np.ndarray:
    """Return the largest absolute values that random states and a search around the best find.

    No derivative is asked for, other than in the search of the gate.
    """
    rng = np.random.default_rng([seed, 2])
    width = len(region.reach)
    places = rng.uniform(-1, 1, (DRAWN, width))
    places[1::2, width // 3 :] = np.sign(places[1::2, width // 3 :])
    values = answer(region.middle + region.reach * places)
    best = places[np.argmax(values, axis=0)]
    most = values.max(axis=0)
    for number in range(ROUNDS):
        size = 0.3 * 0.5**number
        near = best[:, None] + size * rng.normal(size=(len(best), AROUND, width))
        near = np.clip(near, -1, 1)
        values = answer(region.middle + region.reach * near.reshape(-1, width))
        for column in range(len(best)):
            own = values.reshape(len(best), AROUND, -1)[column, :, column]
            if own.max() > most[column]:
                most[column] = own.max()
                best[column] = near[column, np.argmax(own)]
    return most


def rounding_network(seed: int) -> Spiked:
    """Return a calm network of rectified units that rounding errors switch on at one position.

    Two units of the first layer are huge and cancel in a unit of the second, which is off by less
    than their rounding errors where both are at their largest. A huge weight is behind it.
    """
    rng = np.random.default_rng(seed)
    network = calm_network(2, seed, activation="relu")
    size = 10 ** rng.uniform(5, 12)
    weight = 10 ** rng.uniform(4, 12)
    # Relative to the errors of single precision, or of double precision.
    eps = float(np.finfo([np.float32, np.float64][seed % 2]).eps)
    off = eps * size * rng.uniform(0.05, 0.2)
    q = rng.uniform(-3, 3, 2)
    first = np.array(network.trunk.layers[0].weight)
    first_bias = np.array(network.trunk.layers[0].bias)
    second = np.array(network.trunk.layers[1].weight)
    second_bias = np.array(network.trunk.layers[1].bias)
    for joint in range(2):
        first[joint] = 0
        first[joint, joint] = size * np.cos(q[joint])
        first[joint, 2 + joint] = size * np.sin(q[joint])
        first_bias[joint] = 0
    second[:, :2] = 0
    second[0] = 0
    second[0, :2] = 1
    second_bias[0] = -2 * size - off
    heads = ["gravity", "diagonal", "lower"]
    head = heads[seed // 2 % 3]
    for name in heads:
        values = np.array(getattr(network, name).weight)
        values[:, 0] = 0
        if name == head:
            values[-1, 0] = weight
        network = eqx.tree_at(
            lambda item, name=name: getattr(item, name).weight, network, jnp.asarray(values)
        )
    numbers = map(jnp.asarray, (first, first_bias, second, second_bias))
    return Spiked(eqx.tree_at(_trunk_numbers, network, tuple(numbers)), q, weight)


def _trunk_numbers(network: LagrangianNetwork) -> Any:
    first, second = network.trunk.layers[:2]
    return first.weight, first.bias, second.weight, second.bias
