"""Models that the laws are tested on, and data for them. A new member joins by one line."""

from collections.abc import Callable, Container
from dataclasses import asdict, replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from delan.joints import Dataset, Joints
from delan.learning.presets import PAPER
from delan.models.chain import LagrangianChain, LagrangianChainSettings
from delan.models.dynamics import DynamicsModel, InverseDynamics, Normalisation
from delan.models.elastic import ElasticDrives, with_springs
from delan.models.friction import Friction, FrictionSettings, MotorPair, Term
from delan.models.model import Model, as_model
from delan.models.networks import (
    FeedForwardNetwork,
    FeedForwardSettings,
    LagrangianNetwork,
    LagrangianNetworkSettings,
)
from delan.models.rigid_body import RigidBody
from delan.models.trust import Domain, Trust
from delan.robots.arms import TWO_LINK


def network(joints: Joints, seed: int = 0, scale: float = 1.0, **settings) -> LagrangianNetwork:
    """An untrained network in odd units whose weights are blown up by `scale`."""
    n = joints.dof
    odd = Normalisation(
        q_mean=jnp.linspace(-1, 1, n),
        q_std=jnp.linspace(0.5, 2, n),
        qd_std=jnp.linspace(1, 3, n),
        qdd_std=jnp.linspace(2, 5, n),
        tau_mean=jnp.linspace(-3, 3, n),
        tau_std=jnp.linspace(20, 0.5, n),
    )
    made = LagrangianNetwork(
        joints, LagrangianNetworkSettings(**settings), odd, key=jax.random.key(seed)
    )
    return (
        jax.tree.map(lambda leaf: leaf * scale if leaf is not None else None, made)
        if scale != 1
        else made
    )


def actuator(joints: Joints, *terms: Term, seed: int = 0, **settings) -> Friction:
    """Motors with random weights between 0 and 1 of the given terms."""
    made = Friction(joints, FrictionSettings(terms, **settings))
    return Friction.of(
        joints, made.settings, np.random.default_rng(seed).uniform(0, 1, made.weights.value.shape)
    )


def actuated(joints: Joints, *terms: Term, **settings) -> Model:
    """An untrained network with such friction, all in JAX arrays."""
    return Model(network(joints), jax.tree.map(jnp.asarray, actuator(joints, *terms, **settings)))


def feed_forward(joints: Joints, seed: int = 1) -> FeedForwardNetwork:
    """A small untrained feed-forward network."""
    return FeedForwardNetwork(joints, FeedForwardSettings(width=5), key=jax.random.key(seed))


def friction_in(model: Model) -> Friction:
    """The friction of a model that has friction."""
    assert model.friction is not None
    return model.friction


def trust_in(model: Model) -> Trust:
    """The trust of a model that has trust."""
    assert model.trust is not None
    return model.trust


def with_doubt(part: Any, members: int = 3) -> Model:
    """A learned model, or one part, with trust at once: members of slightly different numbers."""
    model = as_model(part)
    stacked = jax.tree.map(
        lambda leaf: jnp.stack([leaf * (1 + 0.01 * k) for k in range(members)]), model
    )
    dof = model.joints.dof
    states = jnp.linspace(-1, 1, 8 * dof).reshape(4, 2 * dof)
    domain = Domain(states, jnp.linspace(1, 2, 2 * dof), jnp.array(0.7), model.joints)
    floor = jnp.linspace(0.1, 1, dof)
    band = jnp.linspace(1, 2, dof)
    return model.with_trust(Trust(stacked, floor, band, domain))


def chain(joints: Joints, seed: int = 0, parents: tuple[int, ...] | None = None) -> LagrangianChain:
    """An untrained chain in odd units."""
    odd = replace(Normalisation.identity(joints.dof), tau_std=jnp.linspace(20, 0.5, joints.dof))
    return LagrangianChain(joints, LagrangianChainSettings(parents), odd, key=jax.random.key(seed))


def coupled_chain() -> LagrangianChain:
    """Three coordinates, the last two joints of which are driven together."""
    rows = ((1.0, 0.0, 0.0), (0.0, 1.0, 0.0), (0.0, -0.6, 1.0))
    settings = LagrangianChainSettings(coupling=rows)
    return LagrangianChain(Joints.revolute(3), settings, key=jax.random.key(3))


def parallelogram() -> LagrangianChain:
    """A turning base, two arms moved from it, a level plate with a tool, and a rod that slides."""
    rows = (
        (1.0, 0.0, 0.0),
        (0.0, 1.0, 0.0),
        (0.0, -1.0, 1.0),
        (0.0, 0.0, -1.0),
        (0.0, 0.1, 0.0),
    )
    settings = LagrangianChainSettings(
        parents=(-1, 0, 1, 2, 0), coupling=rows, sliding=(False, False, False, False, True)
    )
    return LagrangianChain(Joints.revolute(3), settings, key=jax.random.key(4))


def elastic() -> Model:
    """A chain whose links are driven through springs."""
    links = Model(
        chain(Joints.of(("revolute", "prismatic"))),
        jax.tree.map(
            jnp.asarray, actuator(Joints.of(("revolute", "prismatic")), "viscous", "asymmetric")
        ),
    )
    sizes = ("stiffness", "damping", "rotor", "viscous", "coulomb", "offset")
    numbers = {name: np.array([2.0, 0.5]) + row for row, name in enumerate(sizes)}
    return with_springs(links, ElasticDrives(**numbers))


MIXED = Joints.of(("revolute", "prismatic", "continuous"))

DYNAMICS: dict[str, Callable[[], DynamicsModel]] = {
    "network, 1 joint": lambda: network(Joints.revolute(1)),
    "network, 2 joints": lambda: network(Joints.revolute(2), depth=3, width=16),
    "network, mixed joints": lambda: network(MIXED, activation="softplus"),
    "network, 7 joints": lambda: network(Joints.revolute(7)),
    "network, 30 joints": lambda: network(Joints.revolute(30), width=32),
    "network, relu as in the paper": lambda: network(
        Joints.revolute(3), activation="relu", diagonal="relu"
    ),
    "network, vector gravity": lambda: network(Joints.revolute(3), gravity="vector"),
    "network, the paper to the letter": lambda: network(
        Joints.of(("revolute", "prismatic", "revolute")), **asdict(PAPER.network)
    ),
    "network, normalised inputs": lambda: network(
        Joints.of(("revolute", "prismatic")), inputs="normalised", outputs="raw"
    ),
    "network, Lagrangian layers": lambda: network(MIXED, engine="layers", depth=3, width=16),
    "chain, 1 joint": lambda: chain(Joints.revolute(1)),
    "chain, mixed joints": lambda: chain(MIXED),
    "chain, 7 joints": lambda: chain(Joints.revolute(7)),
    "chain, tree": lambda: chain(Joints.revolute(5), parents=(-1, 0, 1, 0, -1)),
    "chain, coupled wrist": lambda: coupled_chain(),
    "chain, parallelogram": lambda: parallelogram(),
    "rigid body": lambda: RigidBody.from_urdf(TWO_LINK.urdf()),
    "rigid body, rotors and friction": lambda: RigidBody.from_urdf(
        TWO_LINK.urdf(),
        armature=np.array([0.1, 0.05]),
        friction=Friction.known(
            TWO_LINK.joints,
            {
                "coulomb": np.array([0.5, 0.2]),
                "viscous": np.array([0.3, 0.1]),
                "offset": np.array([0.1, -0.1]),
            },
        ),
    ),
    "rigid body, friction under load": lambda: RigidBody.from_urdf(
        TWO_LINK.urdf(),
        friction=actuator(TWO_LINK.joints, "stribeck", "load", pairs=(MotorPair(0, 1, 0.6),)),
    ),
    "network and rotors": lambda: actuated(
        Joints.revolute(3), "armature", pairs=(MotorPair(0, 2, -0.5),)
    ),
    "network and friction": lambda: actuated(MIXED, "viscous", "asymmetric", "stribeck", "offset"),
    "network, rotors, friction under load and with memory": lambda: actuated(
        Joints.revolute(4),
        "armature",
        "coulomb",
        "load",
        "offset",
        "stops",
        pairs=(MotorPair(1, 2, 0.6),),
    ),
    "network, springs and cables": lambda: actuated(
        MIXED, "armature", "spring", "periodic", pairs=(MotorPair(0, 2, -0.5),)
    ),
    "chain, springs, cables and friction under load": lambda: Model(
        parallelogram(),
        jax.tree.map(
            jnp.asarray,
            actuator(
                Joints.revolute(3), "spring", "load", "periodic", pairs=(MotorPair(0, 1, 2.0),)
            ),
        ),
    ),
    "model of a chain alone": lambda: Model(chain(MIXED)),
    "chain, elastic joints": lambda: elastic(),
    "chain and friction with trust": lambda: with_doubt(
        Model(chain(MIXED), jax.tree.map(jnp.asarray, actuator(MIXED, "viscous", "offset")))
    ),
}
"""Models that know their mechanics."""


WITH_FRICTION = {
    "rigid body, rotors and friction",
    "rigid body, friction under load",
    "network and friction",
    "network, rotors, friction under load and with memory",
    "chain, springs, cables and friction under load",
    "chain, elastic joints",
    "chain and friction with trust",
}
"""Those whose friction takes part of the torque: power and forces at rest are compared without it.
"""


METHODS = {
    "inverse_dynamics": 3,
    "forward_dynamics": 3,
    "components": 3,
    "power": 3,
    "energy": 2,
    "mass_matrix": 1,
}
"""What a model that knows its mechanics is asked for, and how many vectors it is given."""


class Compiled:
    """A learned model with all its methods compiled as one program, which takes less time than one
    for each.
    """

    def __init__(self, model: DynamicsModel, without: Container[str] = ()):
        self.joints = model.joints
        asked = {name: count for name, count in METHODS.items() if name not in without}

        @jax.jit
        def everything(*given: jax.Array) -> dict[str, Any]:
            return {name: getattr(model, name)(*given[:count]) for name, count in asked.items()}

        def method(name: str) -> Callable[..., Any]:
            def ask(*given: jax.Array) -> Any:
                spare = [jnp.zeros(model.joints.dof)] * (3 - asked[name])
                return everything(*given, *spare)[name]

            return ask

        for name in asked:
            setattr(self, name, method(name))


WITHOUT_ENERGY = {"network, vector gravity", "network, the paper to the letter"}
"""Those that have no potential energy and say so."""

INVERSE: dict[str, Callable[[], InverseDynamics]] = {
    **DYNAMICS,
    "feed-forward": lambda: FeedForwardNetwork(MIXED, key=jax.random.key(0)),
    "model of a feed-forward network alone": lambda: Model(residual=feed_forward(MIXED)),
    "chain and a residual": lambda: Model(chain(MIXED), residual=feed_forward(MIXED)),
    "network, friction and a residual": lambda: replace(
        actuated(MIXED, "viscous", "stops"), residual=feed_forward(MIXED)
    ),
    "feed-forward network with trust": lambda: with_doubt(feed_forward(MIXED)),
    "chain, a residual and trust": lambda: with_doubt(
        Model(chain(MIXED), residual=feed_forward(MIXED))
    ),
}
"""Models that know at least the torque."""

TORQUE_ONLY = tuple(name for name in INVERSE if name not in DYNAMICS)
"""Those that know nothing else."""


def pendulum(trajectories: int = 6, samples: int = 50, seed: int = 0) -> Dataset:
    """A pendulum of 2 kg at 0.5 m in full truth: H = 0.5 kg m², g = 9.81 cos q N m, no Coriolis
    torque.
    """
    rng = np.random.default_rng(seed)
    t = np.tile(np.arange(samples) * 0.02, (trajectories, 1))
    size, rate, phase = rng.uniform([0.5, 2, 0], [1.5, 5, 6], (trajectories, 3)).T[:, :, None]
    q = size * np.sin(rate * t + phase)
    qd = size * rate * np.cos(rate * t + phase)
    qdd = -size * rate**2 * np.sin(rate * t + phase)
    q, qd, qdd = (column.reshape(-1, 1) for column in (q, qd, qdd))
    truth = {"inertial": 0.5 * qdd, "coriolis": 0 * qd, "gravity": 9.81 * np.cos(q)}
    return Dataset(
        t=t.ravel(),
        q=q,
        qd=qd,
        qdd=qdd,
        tau=truth["inertial"] + truth["gravity"],
        trajectory=np.repeat(np.arange(trajectories), samples),
        truth=truth,
        joints=Joints.revolute(1),
        source="pendulum",
    )


def noisy(dataset: Dataset, share: float, seed: int = 0) -> Dataset:
    """The dataset with Gaussian noise of a share of each joint's torque."""
    noise = np.random.default_rng(seed).standard_normal(dataset.tau.shape)
    return replace(dataset, tau=dataset.tau + share * dataset.tau.std(axis=0) * noise)
