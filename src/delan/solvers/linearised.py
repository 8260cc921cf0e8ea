"""The torque of a model near its weights, in NumPy: what second-order methods are made of.

JAX differentiates only the part without friction, in chunks of one size. So one compiled program
serves data of every length, every choice of friction and every part of a log that is left out.
Friction is linear in most of its weights: its columns follow from the motion alone.

The BLAS computes in one thread (`one_blas_thread`).
"""

import math
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache, partial
from typing import Any, NamedTuple

import equinox as eqx
import jax
import numpy as np
from jaxtyping import Array, Float
from threadpoolctl import ThreadpoolController

from ..joints import Dataset, TorqueComponents
from ..mechanics.friction_terms import smooth_sign
from ..models.dynamics import LinearWeights, in_precision, trainable
from ..models.friction import MOST_LOAD, Friction, FrictionSettings
from ..models.model import Model, as_model
from .loss import Data, Numbers, Samples, Windows, torque

Rows = Float[np.ndarray, "rows dof"]
Columns = Float[np.ndarray, "rows dof columns"]
Curves = Float[np.ndarray, "rows columns motors"]

# Rows whose slopes are computed together, the number that an arm is searched for with: those of a
# 7-joint chain take a few MB.
CHUNK = 192
# The change of a logarithm by which slopes of friction in its speeds are computed.
SMALL = 1e-5


_blas_lock = threading.Lock()
_blas_users = 0
_blas_limit: Any = None


@cache
def _blas() -> ThreadpoolController:
    return ThreadpoolController()


@contextmanager
def one_blas_thread() -> Iterator[None]:
    """Let NumPy and SciPy compute in one thread until the last user has left; also a decorator.

    On small matrices the threads of a BLAS wait for each other, on a busy machine longer than the
    work itself takes, and the last bits of a result depend on their number. Enter it before
    threads are started: a limit that a thread sets for itself alone does not hold in it.
    """
    global _blas_users, _blas_limit
    with _blas_lock:
        if _blas_users == 0:
            _blas_limit = _blas().limit(limits=1, user_api="blas")
        _blas_users += 1
    try:
        yield
    finally:
        with _blas_lock:
            _blas_users -= 1
            if _blas_users == 0:
                _blas_limit.restore_original_limits()


def drive_torques(model: Any, data: Data) -> Rows:
    """Return the torque of a model at every row, friction included [N m or N].

    It equals that of `inverse_dynamics`, with the one compiled program of `rigid_torques`.
    """
    model = as_model(model)
    rigid = without_friction(model)
    torque = np.zeros_like(np.asarray(data.tau))
    if rigid is not None:
        torque = rigid_torques(rigid, data)
    if model.friction is None:
        return torque
    friction = numpy_friction(model.friction)
    motion = FrictionMotion.of(data)
    return with_friction(friction, motion, torque, motor_curves(friction, motion, torque))


def drive_parts(model: Model, data: Samples) -> TorqueComponents:
    """Return the parts of the torque at every row, as `Model.components` gives them [N m or N].

    They are differences of torques with speeds, accelerations or both at zero, so that nothing is
    compiled for them.
    """
    mechanics = Model(model.mechanics)
    still = np.zeros_like(np.asarray(data.qd))

    def rigid(qd: np.ndarray, qdd: np.ndarray) -> np.ndarray:
        return rigid_torques(mechanics, Samples(data.q, qd, qdd, data.tau))

    gravity = rigid(still, still)
    inertial = rigid(still, np.asarray(data.qdd)) - gravity
    coriolis = rigid(np.asarray(data.qd), still) - gravity
    friction = still
    if model.friction is not None:
        gravity = gravity + FrictionMotion.of(data).held(numpy_friction(model.friction))
        inertial = inertial + np.asarray(data.qdd) @ np.asarray(model.friction.armature)
        friction = drive_torques(Model(model.mechanics, model.friction), data)
        friction = friction - gravity - inertial - coriolis
    return TorqueComponents(inertial, coriolis, gravity, friction)


def mass_matrices(model: Model, q: Rows) -> Float[np.ndarray, "rows dof dof"]:
    """Return the inertia of links and rotors at every position, column by column [kg m² or kg]."""
    mechanics = Model(model.mechanics)
    still = np.zeros_like(q)
    held = rigid_torques(mechanics, Samples(q, still, still, still))
    columns = []
    for joint in range(q.shape[1]):
        push = still.copy()
        push[:, joint] = 1.0
        columns.append(rigid_torques(mechanics, Samples(q, still, push, still)) - held)
    inertia = np.stack(columns, axis=2)
    if model.friction is None:
        return inertia
    return inertia + np.asarray(model.friction.armature)


def with_friction(
    friction: Friction, motion: "FrictionMotion", rigid: Rows, curves: Curves
) -> Rows:
    """Return the torque of the drives: that without friction, and the curves times their weights.

    Load friction is that of links and rotors together, and so not linear in all weights.
    """
    weights = np.array(friction.weights.value)
    gain = load_gain(friction, motion, rigid)
    if gain is not None:
        weights[friction.columns.index("load")] = 0.0
        rigid = rigid + (gain - 1) * _load(friction, motion, rigid)
    return rigid + np.einsum("rtm,tm->rm", curves, weights) @ friction.transmission


def without_friction(model: Model) -> Model | None:
    """Return the part of a model that JAX differentiates; None if it is friction alone."""
    if model.mechanics is None and model.residual is None:
        return None
    return Model(model.mechanics, None, model.residual)


@dataclass(frozen=True)
class _Structure:
    """All of a model but its numbers: what a program is compiled for."""

    weights: Any
    shapes: tuple[tuple[int, ...], ...]
    arrays: Any
    rest: Any
    rest_leaves: tuple[Any, ...]

    def model(self, weights: Any, arrays: Sequence[Any]) -> Any:
        """The model of these numbers."""
        leaves = []
        first = 0
        for shape in self.shapes:
            count = math.prod(shape)
            leaves.append(weights[first : first + count].reshape(shape))
            first += count
        return eqx.combine(
            jax.tree.unflatten(self.weights, leaves),
            jax.tree.unflatten(self.arrays, arrays),
            jax.tree.unflatten(self.rest, self.rest_leaves),
        )


class FlatModel(NamedTuple):
    """A model without friction as one vector of weights, so that a step of a search is a sum.

    Equinox takes a millisecond to step through a model, as long as the torques of a chain take.
    """

    weights: Float[np.ndarray, " weights"]
    arrays: tuple[Any, ...]
    structure: _Structure

    @classmethod
    def of(cls, model: Any) -> "FlatModel":
        tree, fixed = trainable(as_model(model))
        leaves, weights_def = jax.tree.flatten(tree)
        arrays, arrays_def = jax.tree.flatten(eqx.filter(fixed, eqx.is_array))
        rest, rest_def = jax.tree.flatten(eqx.filter(fixed, eqx.is_array, inverse=True))
        structure = _Structure(
            weights_def, tuple(leaf.shape for leaf in leaves), arrays_def, rest_def, tuple(rest)
        )
        parts = [np.asarray(leaf).ravel() for leaf in leaves]
        weights = np.concatenate(parts) if parts else np.zeros(0)
        return cls(weights, tuple(arrays), structure)

    def moved(self, step: Float[np.ndarray, " weights"]) -> "FlatModel":
        """The model with its weights changed by a step."""
        return self._replace(weights=self.weights + step)

    @property
    def model(self) -> Any:
        """The model in JAX arrays."""
        return in_precision(self.structure.model(self.weights, self.arrays))


class Chunks:
    """Data in chunks of one size, the last one padded with its last row.

    Torque and memory are left out: the part without friction does not depend on them.
    """

    def __init__(self, data: Data) -> None:
        columns = data
        if data.memory is not None:
            columns = eqx.tree_at(lambda data: data.memory, data, None)
        columns = jax.tree.map(np.asarray, columns)
        columns = eqx.tree_at(lambda data: data.tau, columns, columns.qd)
        self.count = len(data)
        self.parts = []
        for first in range(0, self.count, CHUNK):
            rows = np.minimum(np.arange(first, first + CHUNK), self.count - 1)
            self.parts.append(jax.tree.map(jax.device_put, columns.rows(rows)))

    def torques(self, flat: FlatModel) -> Rows:
        """Return the torque of a model without friction at every row [N m or N]."""
        parts = []
        for part in self.parts:
            parts.append(np.asarray(_torques(flat.structure, flat.weights, flat.arrays, part)))
        return np.concatenate(parts)[: self.count]

    def slopes(self, flat: FlatModel) -> tuple[Rows, Columns]:
        """Return the torque at every row, and its slopes in the weights."""
        torques = []
        slopes = []
        for part in self.parts:
            slope, value = _slopes(flat.structure, flat.weights, flat.arrays, part)
            torques.append(np.asarray(value))
            slopes.append(np.asarray(slope))
        return _joined(torques)[: self.count], _joined(slopes)[: self.count]


def _joined(parts: list[np.ndarray]) -> np.ndarray:
    """Return all parts as one array; a single part is not copied."""
    return parts[0] if len(parts) == 1 else np.concatenate(parts)


def rigid_torques(model: Any, data: Data) -> Rows:
    """Return the torque of a model without friction at every row [N m or N]."""
    return Chunks(data).torques(FlatModel.of(model))


def rigid_slopes(model: Any, data: Data) -> tuple[Rows, Columns]:
    """Return the torque of a model without friction at every row, and its slopes in the weights."""
    return Chunks(data).slopes(FlatModel.of(model))


def rigid_slope(
    mechanics: Any, data: Dataset | Data, std: np.ndarray
) -> Float[np.ndarray, "entries weights"]:
    """Return the slopes of the torque, each divided by its joint's standard deviation."""
    with jax.enable_x64(True):
        if isinstance(data, Dataset):
            data = Samples.of(data)
        slopes = rigid_slopes(in_precision(mechanics), data)[1]
    slopes = slopes / std[:, None]
    return slopes.reshape(-1, slopes.shape[-1])


@partial(jax.jit, static_argnums=0)
def _torques(structure: _Structure, weights: Any, arrays: Any, data: Data) -> Array:
    return jax.vmap(torque, in_axes=(None, 0))(structure.model(weights, arrays), data)


@partial(jax.jit, static_argnums=0)
def _slopes(structure: _Structure, weights: Any, arrays: Any, data: Data) -> tuple[Array, Array]:
    def predicted(weights: Array, sample: Data) -> tuple[Array, Array]:
        value = torque(structure.model(weights, arrays), sample)
        return value, value

    slope = jax.vmap(jax.jacrev(predicted, has_aux=True), in_axes=(None, 0))
    return slope(weights, data)


class FrictionMotion(NamedTuple):
    """What friction depends on at every moment of samples or windows, in NumPy.

    Attributes:
        q, qd, qdd: positions, speeds and accelerations; windows have no accelerations.
        memory: states of the stop operators.
        window, slope: weights of the moments of each window, and their rates; None for samples.
    """

    q: Float[np.ndarray, "moments dof"]
    qd: Float[np.ndarray, "moments dof"]
    qdd: Float[np.ndarray, "moments dof"] | None
    memory: Float[np.ndarray, "moments stops motors"] | None
    window: Float[np.ndarray, "rows points"] | None
    slope: Float[np.ndarray, "rows points"] | None

    @classmethod
    def of(cls, data: Data) -> "FrictionMotion":
        memory = None if data.memory is None else np.asarray(data.memory)
        if isinstance(data, Windows):
            if memory is not None:
                memory = memory.reshape(-1, *memory.shape[2:])
            dof = data.qd.shape[-1]
            return cls(
                q=np.asarray(data.q).reshape(-1, dof),
                qd=np.asarray(data.qd).reshape(-1, dof),
                qdd=None,
                memory=memory,
                window=np.asarray(data.window),
                slope=np.asarray(data.slope),
            )
        q, qd, qdd = map(np.asarray, (data.q, data.qd, data.qdd))
        return cls(q, qd, qdd, memory, None, None)

    def mean(self, values: Float[np.ndarray, "moments *rest"]) -> Float[np.ndarray, "rows *rest"]:
        """Return the mean over each window; samples stay as they are."""
        if self.window is None:
            return values
        return _weighted(self.window, values)

    def held(self, friction: Friction) -> Float[np.ndarray, "moments dof"]:
        """Return the torque against springs and cables at each moment."""
        if not friction.settings.stores_energy:
            return np.zeros_like(self.q)
        curves = np.asarray(friction.potential_curves(self.q))
        torque = np.einsum("rtm,tm->rm", curves, np.asarray(friction.weights.value))
        return torque @ friction.transmission

    def pushes(self, turn: Float[np.ndarray, "motors dof"]) -> Float[np.ndarray, "rows motors"]:
        """Return the accelerations of the motors, or their means over windows."""
        if self.slope is None:
            assert self.qdd is not None
            return self.qdd @ turn.T
        # Integrated by parts, the acceleration is the speed times the rate of the window.
        return -_weighted(self.slope, self.qd @ turn.T)


def _weighted(weights: np.ndarray, values: np.ndarray) -> np.ndarray:
    values = values.reshape(*weights.shape, *values.shape[1:])
    return np.einsum("rm,rm...->r...", weights, values)


def numpy_friction(friction: Friction) -> Friction:
    """Return friction of NumPy arrays, whose curves take whole columns."""
    return jax.tree.map(np.asarray, friction)


def changed(
    friction: Friction,
    *,
    weights: Numbers | None = None,
    log_width: Numbers | None = None,
    log_stribeck_speed: Numbers | None = None,
    settings: FrictionSettings | None = None,
) -> Friction:
    """Return friction with other arrays, or of other settings.

    A search does this several times in every iteration, and `eqx.tree_at` takes longer than all
    curves of friction.
    """
    bounded = friction.weights.bounded
    if settings is not None:
        bounded = settings.bounded(friction.joints.dof)
    fields = {
        "joints": friction.joints,
        "settings": settings or friction.settings,
        "weights": LinearWeights(friction.weights.value if weights is None else weights, bounded),
        "log_width": friction.log_width if log_width is None else log_width,
        "log_stribeck_speed": friction.log_stribeck_speed,
    }
    if log_stribeck_speed is not None:
        fields["log_stribeck_speed"] = log_stribeck_speed
    copy = object.__new__(Friction)
    for name, value in fields.items():
        object.__setattr__(copy, name, value)
    return copy


def motor_curves(friction: Friction, motion: FrictionMotion, rigid: Rows) -> Curves:
    """Return the torque at the motors of a unit of each linear weight.

    The load friction of a unit weight is that of the torque without friction, `rigid`.
    """
    curves = np.asarray(friction.features(motion.qd, motion.memory))
    if friction.settings.stores_energy:
        curves = curves + np.asarray(friction.potential_curves(motion.q))
    curves = np.array(motion.mean(curves))
    if "armature" in friction.settings.terms:
        curves[:, friction.columns.index("armature")] = motion.pushes(friction.transmission)
    if "load" in friction.settings.terms:
        dof = rigid.shape[1]
        curves[:, friction.columns.index("load"), :dof] = np.abs(rigid) * _step(friction, motion)
    return curves


def _step(friction: Friction, motion: FrictionMotion) -> Rows:
    """Return the Coulomb step of each joint's own motor."""
    dof = motion.qd.shape[1]
    return smooth_sign(motion.qd, np.exp(friction.log_width[:dof]))


def _load(friction: Friction, motion: FrictionMotion, rigid: Rows) -> Rows:
    """Return the conservative torque of samples: of links, rotors, springs and cables."""
    pushed = motion.pushes(np.eye(rigid.shape[1])) @ friction.armature
    return rigid + pushed + motion.held(friction)


def load_gain(friction: Friction, motion: FrictionMotion, rigid: Rows) -> Rows | None:
    """Return by how much a torque without friction counts in the drives' torque; None: by itself.

    Load friction adds a share of that torque in its own direction.
    """
    if "load" not in friction.settings.terms:
        return None
    dof = rigid.shape[1]
    share = friction.weights.value[friction.columns.index("load"), :dof]
    share = np.clip(share, -MOST_LOAD, MOST_LOAD)
    load = _load(friction, motion, rigid)
    return 1 + share * _step(friction, motion) * np.sign(load)


def speed_curves(
    friction: Friction, motion: FrictionMotion, rigid: Rows
) -> Float[np.ndarray, "rows 2 motors"]:
    """Return the slopes of friction at the motors in the logarithms of its widths and speeds."""
    weights = np.asarray(friction.weights.value)
    log_width = friction.log_width
    log_speed = friction.log_stribeck_speed

    def moved(width: float, speed: float) -> np.ndarray:
        other = changed(friction, log_width=log_width + width, log_stribeck_speed=log_speed + speed)
        return np.einsum("rtm,tm->rm", motor_curves(other, motion, rigid), weights)

    columns = []
    for width, speed in ((SMALL, 0.0), (0.0, SMALL)):
        # Each motor depends on its own width and speed alone, so that all may change at once.
        columns.append((moved(width, speed) - moved(-width, -speed)) / (2 * SMALL))
    return np.stack(columns, axis=1)
