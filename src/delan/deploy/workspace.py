"""Where a robot can be, by its limits, and the worst that a model does there."""

from collections.abc import Callable
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float
from scipy.optimize import minimize

from ..errors import SettingsError
from ..joints import Dataset, JointLimits, Joints
from ..models.dynamics import DynamicsModel, InverseDynamics
from ..models.layers import ACTIVATIONS
from ..models.networks import LagrangianNetwork
from ..models.rigid_body import RigidBody
from ..robots.robot_files import described_limits
from ..text_file import TextFileError, read_toml

Score = Callable[..., Array]
NAMES = tuple(field.name for field in fields(JointLimits))
# What a limit is where the file does not give it.
UNLIMITED = {"lower": -np.inf, "upper": np.inf, "velocity": np.inf, "torque": np.inf}
EXAMPLE = "torque = [87, 87, 87, 87, 12, 12, 12]"
# Steps of each ascent, at most, and of those to positions that a network may hide at.
ASCENT = 60
CLIMB = 300
# Values of steep units at which ascents look for a spike, and ascents for each of them: around the
# middle of their curves, and where they are on.
LEVELS = (0.0, 3.0, 10.0, 100.0)
CLIMBERS = 4
# Positions around each that an ascent reached.
NEIGHBOURS = 8


def read_limits(path: Path, joints: Joints) -> JointLimits:
    """Limits from a TOML file: a number for all joints or a list, for each name in `NAMES`.

    What is left out is unlimited, but for the torque, which has to be there.
    """
    try:
        given = read_toml(path)
    except TextFileError as error:
        raise SettingsError(f"{path}: {error}; limits are lines such as {EXAMPLE}") from None
    unknown = sorted(set(given) - set(NAMES))
    if unknown:
        raise SettingsError(f"{path}: unknown limit {unknown[0]!r}; known: {', '.join(NAMES)}")
    rows = {}
    for name, unlimited in UNLIMITED.items():
        rows[name] = _row(path, name, given.get(name, unlimited), joints)
    return _limits(path, rows)


def limits_of_urdf(path: Path, joints: Joints) -> JointLimits:
    """Limits from a URDF, whose joints have the model's names, or else its number and order.

    The file is read as by the check of a log, which needs no meshes and no simulator.
    """
    known = RigidBody.from_urdf(path).joints
    limits = described_limits(path, known.names)
    order = list(range(joints.dof))
    if set(joints.names) <= set(known.names):
        order = list(map(known.names.index, joints.names))
    elif known.dof != joints.dof:
        raise SettingsError(
            f"{path}: has {known.dof} joints and the model {joints.dof}, under other names; "
            "give --limits"
        )
    return _limits(path, {name: getattr(limits, name)[order] for name in NAMES})


def _row(path: Path, name: str, given: Any, joints: Joints) -> np.ndarray:
    row = given
    if not isinstance(given, list):
        row = [given] * joints.dof
    if len(row) != joints.dof or not all(type(value) in (int, float) for value in row):
        raise SettingsError(
            f"{path}: {name} is one number or a list of {joints.dof}, got {given!r}"
        )
    try:
        return np.array(row, dtype=float)
    except OverflowError:
        raise SettingsError(f"{path}: {name} holds an integer that no float can hold") from None


def _limits(path: Path, rows: dict[str, np.ndarray]) -> JointLimits:
    try:
        limits = JointLimits(**rows)
    except SettingsError as error:
        raise SettingsError(f"{path}: {error}") from None
    if not np.isfinite(limits.torque).all():
        raise SettingsError(
            f"{path}: every joint needs a torque limit; write a line such as {EXAMPLE}"
        )
    return limits


class Worst(NamedTuple):
    """The largest value of a score, and where it is; NaN if a value is not finite."""

    value: float
    at: Float[np.ndarray, " coordinates"]


@dataclass(frozen=True, eq=False)
class Workspace:
    """A box of positions, speeds and accelerations, and states drawn from it.

    Attributes:
        reach: half-lengths of the box around its centre, for q, q̇ and q̈ in turn.
        ascents: how many of the worst states an ascent begins at.
    """

    centre: Float[np.ndarray, " coordinates"]
    reach: Float[np.ndarray, " coordinates"]
    states: Float[np.ndarray, "states coordinates"]
    ascents: int

    @classmethod
    def of(
        cls, limits: JointLimits, dataset: Dataset, *, states: int, ascents: int, seed: int
    ) -> "Workspace":
        """All positions inside the limits, at the speeds and accelerations of the data.

        Speeds stay inside their limits, too. A joint without an end turns by π to either side, and
        further if the data did: a spring knows its turns. A sliding one goes as far as the data.
        """
        samples = dataset.samples
        # Of a continuous joint every turn is alike.
        turn = np.where(samples.joints.turning, np.pi, -np.inf)
        far = ~samples.joints.continuous
        lower = np.minimum(-turn, np.where(far, samples.q.min(axis=0), np.inf))
        upper = np.maximum(turn, np.where(far, samples.q.max(axis=0), -np.inf))
        lower = np.where(np.isfinite(limits.lower), limits.lower, lower)
        upper = np.where(np.isfinite(limits.upper), limits.upper, upper)
        speed = np.minimum(np.abs(samples.qd).max(axis=0), limits.velocity)
        push = np.abs(samples.qdd).max(axis=0)
        centre = np.concatenate([(lower + upper) / 2, 0 * speed, 0 * push])
        reach = np.concatenate([(upper - lower) / 2, speed, push])
        rng = np.random.default_rng(seed)
        drawn = rng.uniform(-1, 1, (states, len(reach)))
        # Torques are largest at the largest speeds and accelerations: every other state has them.
        drawn[1::2, len(speed) :] = np.sign(drawn[1::2, len(speed) :])
        return cls(centre, reach, centre + reach * drawn, ascents)

    @property
    def columns(self) -> tuple[Float[np.ndarray, "states dof"], ...]:
        """q, q̇ and q̈ of the states."""
        return tuple(np.split(self.states, 3, axis=1))

    @property
    def box(self) -> tuple[Float[np.ndarray, " dof"], Float[np.ndarray, " dof"]]:
        """The least and the largest position of each joint."""
        middle = np.split(self.centre, 3)[0]
        reach = np.split(self.reach, 3)[0]
        return middle - reach, middle + reach

    @property
    def most(self) -> tuple[Float[np.ndarray, " dof"], Float[np.ndarray, " dof"]]:
        """The largest speed and acceleration of each joint."""
        _, speed, push = np.split(self.reach, 3)
        return speed, push

    def further_draws(self) -> np.random.Generator:
        """Return a generator that is as unknown as the states, and the same for the same seed."""
        return np.random.default_rng(np.frombuffer(self.states[-1].tobytes(), dtype=np.uint32))

    def with_positions(self, q: Float[np.ndarray, "rows dof"]) -> "Workspace":
        """Return the workspace with states at these positions first, at speeds of its corners."""
        if not len(q):
            return self
        rng = self.further_draws()
        lower, upper = self.box
        signs = rng.choice([-1.0, 1.0], (len(q), 2 * q.shape[1]))
        rates = signs * np.concatenate(self.most)
        states = np.concatenate([np.clip(q, lower, upper), rates], axis=1)
        return replace(self, states=np.concatenate([states, self.states]))

    def worst(self, score: Score, model: Any, *known: Array) -> Worst:
        """The largest score(model, q, q̇, q̈, *known) that random states and ascent find.

        The score is a function of a module, so that it is compiled once.
        """
        values = np.asarray(_scored(score, model, jnp.asarray(self.states), known))
        if not np.isfinite(values).all():
            return Worst(float("nan"), self.states[int(np.argmin(np.isfinite(values)))])
        best = Worst(float(values.max()), self.states[int(np.argmax(values))])
        # The ascent sees values of about one, in a box from −1 to 1.
        scale = max(float(np.abs(values).max()), 1e-300)

        def downhill(place: np.ndarray) -> tuple[float, np.ndarray]:
            state = jnp.asarray(self.centre + self.reach * place)
            value, slope = _slope(score, model, state, known)
            return -float(value) / scale, np.nan_to_num(-self.reach * np.asarray(slope)) / scale

        for row in np.argsort(-values)[: self.ascents]:
            offset = self.states[row] - self.centre
            begin = np.divide(offset, self.reach, where=self.reach > 0, out=0 * self.reach)
            result = minimize(
                downhill,
                begin,
                jac=True,
                method="L-BFGS-B",
                bounds=[(-1.0, 1.0)] * len(begin),
                options={"maxiter": ASCENT},
            )
            reached = Worst(-float(result.fun) * scale, self.centre + self.reach * result.x)
            if not np.isfinite(reached.value):
                return Worst(float("nan"), reached.at)
            best = max(best, reached, key=lambda worst: worst.value)
        return best


@eqx.filter_jit
def _scored(score: Score, model: Any, states: Array, known: tuple[Array, ...]) -> Array:
    return jax.vmap(lambda state: score(model, *jnp.split(state, 3), *known))(states)


@eqx.filter_jit
def _slope(score: Score, model: Any, state: Array, known: tuple[Array, ...]) -> tuple[Array, Array]:
    return jax.value_and_grad(lambda state: score(model, *jnp.split(state, 3), *known))(state)


# What is looked for in the workspace: the larger, the worse.


def lightness(model: DynamicsModel, q: Array, qd: Array, qdd: Array) -> Array:
    return -jnp.linalg.eigvalsh(model.mass_matrix(q))[0]


def condition(model: DynamicsModel, q: Array, qd: Array, qdd: Array, scale: Array) -> Array:
    values = jnp.linalg.eigvalsh(model.mass_matrix(q) * scale[:, None] * scale[None])
    # A singular H has a condition number that is large, and still a number.
    return values[-1] / jnp.maximum(values[0], values[-1] * 1e-15)


def given_power(model: DynamicsModel, q: Array, qd: Array, qdd: Array) -> Array:
    # Friction at rest is a constant offset, which is no friction.
    moving = jnp.asarray(model.components(q, qd, qdd).friction)
    still = jnp.asarray(model.components(q, 0 * qd, qdd).friction)
    return -qd @ (moving - still)


def gravity_share(model: DynamicsModel, q: Array, qd: Array, qdd: Array, most: Array) -> Array:
    return jnp.max(jnp.abs(model.components(q, 0 * qd, 0 * qd).gravity) / most)


def torque_share(model: InverseDynamics, q: Array, qd: Array, qdd: Array, most: Array) -> Array:
    return jnp.max(jnp.abs(model.inverse_dynamics(q, qd, qdd)) / most)


def load_share(
    model: Any,
    q: Array,
    qd: Array,
    qdd: Array,
    most: Array,
    share: Array,
    friction: Array,
) -> Array:
    """Return the torque over its limit, with the most that friction can be under this load."""
    load = model.mechanics.inverse_dynamics(q, qd, qdd)
    if model.friction is not None:
        load = load + model.friction.armature @ qdd + model.friction.potential_torque(q)
    return jnp.max(((1 + share) * jnp.abs(load) + friction) / most)


# Where a network may hide what random states miss.


def tempting_positions(
    network: LagrangianNetwork,
    lower: Float[np.ndarray, " dof"],
    upper: Float[np.ndarray, " dof"],
    *,
    seed: int,
) -> Float[np.ndarray, "rows dof"]:
    """Return positions where many steep units change at once, or a unit is at its largest.

    A narrow spike takes steep units of the first layer that change around it, and units of the last
    layer that are silent elsewhere. Both are looked for by ascent from random positions.
    """
    rng = np.random.default_rng(seed)
    first = np.asarray(network.trunk.layers[0].weight)
    width, dof = len(first), len(lower)
    steepest = np.argsort(-np.linalg.norm(first, axis=1))
    masks = []
    for count in range(dof, min(width, 4 * dof) + 1, max(1, dof // 2)):
        whole = np.zeros(width)
        whole[steepest[:count]] = 1
        part = np.zeros(width)
        part[rng.choice(steepest[: 2 * count], min(dof, width), replace=False)] = 1
        masks += [whole, part]
    # Each of them with units at several places of their curves.
    changing = np.repeat(np.array(masks), len(LEVELS) * CLIMBERS, axis=0)
    levels = np.tile(np.array(LEVELS), len(masks) * CLIMBERS)
    silent = np.zeros((2 * width, width))
    masks = np.concatenate([changing, silent])
    levels = np.concatenate([levels, np.zeros(2 * width)])
    wanted = np.zeros((len(masks), width))
    rows = np.arange(2 * width)
    wanted[len(changing) + rows, rows % width] = np.where(rows < width, 1.0, -1.0)
    begin = rng.uniform(lower, upper, (len(masks), dof))
    numbers = map(jnp.asarray, (begin, lower, upper, masks, levels, wanted))
    tops = np.repeat(np.asarray(_climbed(network, *numbers)), NEIGHBOURS, axis=0)
    # The slope is zero on the top of a spike, and not beside it.
    away = 10 ** rng.uniform(-5, -0.5, (len(tops), 1)) * rng.normal(size=tops.shape)
    return tops + (upper - lower) * away


@eqx.filter_jit
def _climbed(
    network: LagrangianNetwork,
    begin: Array,
    lower: Array,
    upper: Array,
    masks: Array,
    levels: Array,
    wanted: Array,
) -> Array:
    lengths = (upper - lower)[None]
    sizes = jnp.linalg.norm(network.trunk.layers[0].weight, axis=1) + 1e-300

    def height(q: Array, mask: Array, level: Array, want: Array) -> Array:
        values = network.trunk.layers[0](network._features(q))
        apart = jnp.sum(mask * ((values - level) / sizes) ** 2)
        for layer in network.trunk.layers[1:]:
            values = layer(ACTIVATIONS[network.trunk.activation](values))
        return want @ values - apart

    def step(q: Array, size: Array) -> tuple[Array, None]:
        slope = lengths * jax.vmap(jax.grad(height))(q, masks, levels, wanted)
        length = jnp.linalg.norm(slope, axis=1, keepdims=True)
        direction = jnp.nan_to_num(slope / jnp.maximum(length, 1e-300))
        moved = q + size * lengths * direction
        return jnp.clip(moved, lower[None], upper[None]), None

    sizes_of_steps = jnp.geomspace(0.2, 1e-6, CLIMB)
    return jax.lax.scan(step, begin, sizes_of_steps)[0]
