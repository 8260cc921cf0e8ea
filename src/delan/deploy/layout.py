"""What decides the C code of a model: its parts, its settings, and its numbers block by block."""

import hashlib
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from ..errors import ModelError, SettingsError
from ..joints import Joints
from ..model_header import LARGEST_NUMBER
from ..models.chain import LagrangianChain
from ..models.friction import Friction, FrictionSettings
from ..models.layers import Affine, Perceptron
from ..models.model import Model, as_model
from ..models.networks import (
    FeedForwardNetwork,
    LagrangianNetwork,
    input_scale,
    output_scale,
)
from ..models.trust import Domain

Precision = Literal["float", "double"]
DTYPES: dict[str, Any] = {"float": np.float32, "double": np.float64}
# Names of files that stand beside the code, or that it includes.
TAKEN = ("test", "example", "math", "stdint", "stdio", "string", "time")
# The outputs of layers are padded to a multiple of it, so that they fill the registers of
# processors: 16 floats are the 512 bits of the widest ones.
PADDING = 16


@dataclass(frozen=True)
class ExportSettings:
    """How a model is written as C code.

    Attributes:
        name: what every name in the code begins with; a word of letters, digits and underscores.
        precision: of all numbers.
        fast_math: an exponential of our own in float, with a relative error below 3e-7, which
            compilers vectorise; in double, and without it, that of the C library.
        weights: `constant`, compiled in; or `data`, given at every call, so that new ones need no
            compiler.
    """

    name: str = "arm"
    precision: Precision = "float"
    fast_math: bool = True
    weights: Literal["constant", "data"] = "constant"

    def __post_init__(self) -> None:
        if not re.fullmatch(r"[A-Za-z][A-Za-z0-9_]*", self.name):
            raise SettingsError(
                f"{self.name!r} cannot begin a name in C; give a word of letters, digits and "
                "underscores"
            )
        if self.name.lower() in TAKEN:
            raise SettingsError(
                f"{self.name}.c or {self.name}.h is another file of the code; give another --name"
            )
        if self.precision not in DTYPES:
            raise SettingsError(f"unknown precision {self.precision!r}; known: float, double")

    @property
    def dtype(self) -> Any:
        """The type of the numbers in numpy."""
        return DTYPES[self.precision]

    @property
    def words(self) -> dict[str, Any]:
        """What the templates of all files need to know."""
        return {"name": self.name, "upper": self.name.upper(), "real": self.precision}

    @property
    def fast(self) -> bool:
        """Whether the code has an exponential of its own."""
        return self.fast_math and self.precision == "float"


@dataclass(frozen=True, eq=False)
class Shape:
    """What of a model is not numbers: it decides which code is written."""

    model: Model

    @classmethod
    def of(cls, model: Any) -> "Shape":
        """The shape of a model, or of one of its parts alone."""
        return cls(as_model(model))

    @property
    def joints(self) -> Joints:
        return self.model.joints

    @property
    def friction(self) -> FrictionSettings:
        """The terms of the friction, none of them where the model has no friction."""
        return self.model.friction_settings or FrictionSettings(())

    @property
    def stops(self) -> tuple[float, ...]:
        """The radii of the stop operators, by which friction remembers the motion [rad or m]."""
        return self.friction.stops

    @property
    def motors(self) -> int:
        return self.joints.dof + len(self.friction.pairs)

    @property
    def states(self) -> int:
        """How many states the domain keeps, 0 without trust."""
        if self.model.trust is None:
            return 0
        return len(self.model.trust.domain.states)

    @property
    def kernels(self) -> tuple[str, ...]:
        """The files in `kernels/` that the model is written with."""
        kernels = ("chain.c",)
        if self.model.mechanics is None:
            kernels = ("layers.c", "feed_forward.c")
        elif self.model.chain is None:
            kernels = ("layers.c", "network.c")
        if self.model.friction is not None:
            kernels += ("friction.c",)
        return kernels

    @property
    def functions(self) -> tuple[str, ...]:
        """The functions of the code, without the model's name before them."""
        names = ["inverse_dynamics"]
        promises = self.model.promises
        if self.stops:
            names = ["state_init", "state_update", "inverse_dynamics"]
        if promises.mechanics:
            names += ["forward_dynamics", "mass_matrix", "coriolis", "gravity", "friction"]
            if "load" in self.friction.terms:
                names.append("unloaded_friction")
            if promises.energy:
                names.append("energy")
        if self.states:
            names.append("in_domain")
        return tuple(names)


Block = tuple[str, Any]


class Layout(NamedTuple):
    """Where each block of numbers begins, and how many numbers there are."""

    offsets: dict[str, int]
    size: int


@dataclass(frozen=True, eq=False)
class Numbers:
    """All numbers of a model, by block."""

    blocks: tuple[Block, ...]

    @classmethod
    def of(cls, model: Any) -> "Numbers":
        """The numbers of a learned model, which must be finite."""
        blocks = []
        with jax.enable_x64(True):  # a chain computes its links from its weights
            for name, values in _blocks(model, np):
                blocks.append((name, np.asarray(values, dtype=float).ravel()))
        for name, values in blocks:
            if not (np.abs(values) <= LARGEST_NUMBER).all():
                raise ModelError(
                    "the model holds numbers that are not finite or, in float, would not be "
                    f"(block {name}); fit it again"
                )
        return cls(tuple(blocks))

    @staticmethod
    def traced(model: Any) -> Float[Array, " numbers"]:
        """The `vector` of a model inside `jax.jit`."""
        return jnp.concatenate(
            [jnp.ravel(jnp.asarray(values, dtype=float)) for _, values in _blocks(model, jnp)]
        )

    @property
    def layout(self) -> Layout:
        offsets = {}
        size = 0
        for name, values in self.blocks:
            offsets[name] = size
            size += len(values)
        return Layout(offsets, size)

    @property
    def vector(self) -> Float[np.ndarray, " numbers"]:
        return np.concatenate([values for _, values in self.blocks])

    def checksum(self, precision: str) -> str:
        """A digest that identifies the numbers in a precision, `float` or `double`."""
        return hashlib.sha256(self.vector.astype(DTYPES[precision]).tobytes()).hexdigest()[:16]


def padded(count: int) -> int:
    """The next multiple of PADDING."""
    return -(-count // PADDING) * PADDING


def _blocks(model: Any, xp: Any) -> Iterator[Block]:
    """By numpy, or by JAX's copy of it where the numbers are not known yet."""
    model = as_model(model)
    if model.mechanics is None:
        yield from _feed_forward(model.residual, xp)
    elif model.residual is not None:
        raise ModelError(
            "mechanics with a residual network beside them cannot be written as C code; export "
            "delan.Model(mechanics=model.mechanics, friction=model.friction), or fit without it"
        )
    elif model.chain is None:
        yield from _network(model.mechanics, xp)
    else:
        yield from _chain(model.chain)
    if model.friction is not None:
        yield from _friction(model.friction, xp)
    if model.trust is not None:
        yield from _domain(model.trust.domain, xp)


def _chain(chain: LagrangianChain) -> Iterator[Block]:
    links = chain.links
    yield "PLACE", links.place
    yield "INERTIA", links.inertia
    yield "ARMATURE", chain.armature
    yield "GRAVITY", links.gravity


def _network(network: LagrangianNetwork, xp: Any) -> Iterator[Block]:
    units = jax.tree.map(lambda values: xp.asarray(values, dtype=float), network.normalisation)
    seen = input_scale(network, units, xp)
    yield "SEEN", seen.gain
    yield "CENTRE", seen.centre
    yield from _layers(network.trunk, xp, back=True)
    heads = [network.diagonal, network.lower, network.gravity]
    weight = xp.concatenate([xp.asarray(head.weight, dtype=float) for head in heads])
    bias = xp.concatenate([xp.asarray(head.bias, dtype=float) for head in heads])
    yield from _head(weight, bias, xp, back=True)
    scale = output_scale(network, units, xp)
    yield "ROW", scale.factor
    yield "OFFSET", xp.asarray([network.settings.offset])
    yield "GRAVITY", scale.gravity


def _feed_forward(network: FeedForwardNetwork, xp: Any) -> Iterator[Block]:
    """With the scales of inputs and outputs in the first and in the last layer."""
    scale = network.normalisation
    endless = network.joints.continuous
    # Sine and cosine of an endless joint are neither scaled nor shifted; rates are not shifted.
    ones = np.ones(2 * endless.sum())
    zeros = np.zeros(2 * endless.sum() + 2 * len(endless))
    spread = xp.concatenate([xp.asarray(scale.q_std)[~endless], ones, scale.qd_std, scale.qdd_std])
    centre = xp.concatenate([xp.asarray(scale.q_mean)[~endless], zeros])
    weight, bias = _numbers_of(network.trunk.layers[0], xp)
    weight = weight / spread[None]
    yield from _layers(network.trunk, xp, back=False, first=(weight, bias - weight @ centre))
    torque = xp.asarray(scale.tau_std, dtype=float)
    weight, bias = _numbers_of(network.torque, xp)
    bias = torque * bias + xp.asarray(scale.tau_mean)
    yield from _head(torque[:, None] * weight, bias, xp, back=False)


def _layers(
    trunk: Perceptron, xp: Any, *, back: bool, first: tuple[Any, Any] | None = None
) -> Iterator[Block]:
    """The layers of a trunk, each by columns; with `back`, those of the transposed ones too."""
    weight, bias = first or _numbers_of(trunk.layers[0], xp)
    width = padded(weight.shape[0])
    inputs = padded(weight.shape[1])
    # A trunk of one layer has no others, and empty blocks of them.
    weights = [np.zeros(0)]
    biases = [np.zeros(0)]
    transposed = [np.zeros(0)]
    for layer in trunk.layers[1:]:
        hidden, shift = _numbers_of(layer, xp)
        weights.append(_columns(hidden, width, width, xp))
        biases.append(_filled(shift, width, xp))
        transposed.append(_columns(hidden.T, width, width, xp))
    yield "LAYER_0", _columns(weight, width, inputs, xp)
    yield "BIAS_0", _filled(bias, width, xp)
    yield "LAYERS", xp.concatenate(weights)
    yield "BIASES", xp.concatenate(biases)
    if back:
        yield "LAYER_0_BACK", _columns(weight.T, inputs, width, xp)
        yield "LAYERS_BACK", xp.concatenate(transposed)


def _head(weight: Any, bias: Any, xp: Any, *, back: bool) -> Iterator[Block]:
    outputs = padded(weight.shape[0])
    width = padded(weight.shape[1])
    yield "HEADS", _columns(weight, outputs, width, xp)
    yield "HEADS_BIAS", _filled(bias, outputs, xp)
    if back:
        yield "HEADS_BACK", _columns(weight.T, width, outputs, xp)


def _numbers_of(layer: Affine, xp: Any) -> tuple[Any, Any]:
    return xp.asarray(layer.weight, dtype=float), xp.asarray(layer.bias, dtype=float)


def _columns(weight: Any, outputs: int, inputs: int, xp: Any) -> Any:
    """A matrix by its columns, padded with zeros."""
    return xp.pad(weight.T, ((0, inputs - weight.shape[1]), (0, outputs - weight.shape[0]))).ravel()


def _filled(values: Any, size: int, xp: Any) -> Any:
    return xp.pad(values, (0, size - len(values)))


# The blocks of the weights of friction; those of stop operators follow in a block of their own.
FRICTION_BLOCKS = {
    "armature": "ROTOR",
    "viscous": "VISCOUS",
    "coulomb": "COULOMB",
    "coulomb+": "FORWARD",
    "coulomb-": "BACKWARD",
    "stribeck": "STRIBECK",
    "offset": "SHIFT",
    "load": "LOAD",
    "spring": "SPRING",
    "cos 1q": "COS_1",
    "sin 1q": "SIN_1",
    "cos 2q": "COS_2",
    "sin 2q": "SIN_2",
}


def _friction(friction: Friction, xp: Any) -> Iterator[Block]:
    yield "STEEPNESS", xp.exp(-xp.asarray(friction.log_width, dtype=float))
    yield "STRIBECK_SLOWNESS", xp.exp(-xp.asarray(friction.log_stribeck_speed, dtype=float))
    stops = [np.zeros(0)]
    stop_columns = FrictionSettings(("stops",), radii=friction.settings.radii).columns
    for name, row in friction.named.items():
        if name in FRICTION_BLOCKS:
            yield FRICTION_BLOCKS[name], xp.asarray(row)
        elif name in stop_columns:
            stops.append(xp.asarray(row))
        else:
            raise ModelError(
                f"there is no C code for the friction term {name}; fit with other terms, such as "
                "--friction auto"
            )
    yield "STOPS", xp.concatenate(stops)


def _domain(domain: Domain, xp: Any) -> Iterator[Block]:
    yield "STATES", domain.states
    yield "NEARNESS", 1 / (xp.asarray(domain.spread) * xp.asarray(domain.radius))
