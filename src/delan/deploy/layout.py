"""What of a model is not numbers, and how it is to be written: both decide which C code there is.

The numbers of a model as C code wants them: named blocks one after the other in a single array.
"""

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
from ..models.chain import LagrangianChain
from ..models.feed_forward import Affine, FeedForwardNetwork, Perceptron
from ..models.friction import Friction, FrictionSettings
from ..models.model import Model, as_model
from ..models.network import LagrangianNetwork
from ..models.trust import Domain

Precision = Literal["float", "double"]

# Files of C code in `kernels/` that each kind of model is written with.
KERNELS = {
    LagrangianChain: ("chain.c",),
    LagrangianNetwork: ("layers.c", "network.c"),
    FeedForwardNetwork: ("layers.c", "feed_forward.c"),
}

TAKEN = ("test", "example", "math", "stdint", "stdio", "string", "time")
"""Names of files that stand beside the code, or that it includes."""


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
                f"{self.name!r} cannot begin a name in C; give a word of letters, digits and underscores"
            )
        if self.name.lower() in TAKEN:
            raise SettingsError(
                f"{self.name}.c or {self.name}.h is another file of the code; give another --name"
            )
        if self.precision not in ("float", "double"):
            raise SettingsError(f"unknown precision {self.precision!r}; known: float, double")

    @property
    def fast(self) -> bool:
        return self.fast_math and self.precision == "float"


@dataclass(frozen=True, eq=False)
class Shape:
    """The parts of a model that are not numbers: they decide which code is written.

    Attributes:
        part: the mechanics, or the feed-forward network of a model without mechanics.
        friction: the terms of the friction, None without friction.
        states: how many states the domain keeps, 0 without trust.
    """

    model: Model
    part: Any
    friction: FrictionSettings | None
    states: int

    @classmethod
    def of(cls, model: Any) -> "Shape":
        """The shape of a model, or of one of its parts alone."""
        model = as_model(model)
        part = model.residual if model.mechanics is None else model.mechanics
        states = 0 if model.trust is None else len(model.trust.domain.states)
        return cls(model, part, model.friction_settings, states)

    @property
    def joints(self) -> Joints:
        return self.model.joints

    @property
    def kernels(self) -> tuple[str, ...]:
        friction = () if self.friction is None else ("friction.c",)
        return (*KERNELS[type(self.part)], *friction)

    @property
    def stops(self) -> tuple[float, ...]:
        return () if self.friction is None else self.friction.stops

    @property
    def motors(self) -> int:
        return self.joints.dof + (0 if self.friction is None else len(self.friction.pairs))

    @property
    def mechanics(self) -> bool:
        return self.model.promises.mechanics

    @property
    def potential(self) -> bool:
        return self.model.promises.energy

    @property
    def functions(self) -> tuple[str, ...]:
        """What the code of such a model promises, without the model's name before it."""
        return tuple(self._functions())

    def _functions(self) -> Iterator[str]:
        if self.stops:
            yield from ("state_init", "state_update")
        yield "inverse_dynamics"
        if self.mechanics:
            yield from ("forward_dynamics", "mass_matrix", "coriolis", "gravity", "friction")
            if self.friction is not None and "load" in self.friction.terms:
                yield "unloaded_friction"
            if self.potential:
                yield "energy"
        if self.states:
            yield "in_domain"


PADDING = 16
"""The outputs of layers are padded to a multiple of it, so that they fill the registers of
processors.
"""

Block = tuple[str, Any]


class Layout(NamedTuple):
    """Names of the blocks, where each begins, and how many numbers there are."""

    offsets: dict[str, int]
    size: int


@dataclass(frozen=True, eq=False)
class Numbers:
    """All numbers of a model, by block."""

    blocks: tuple[Block, ...]

    @classmethod
    def of(cls, model: Any) -> "Numbers":
        with jax.enable_x64(True):  # a chain computes its links from its weights
            blocks = tuple(
                (name, np.asarray(values, dtype=float).ravel())
                for name, values in _blocks(model, np)
            )
        for name, values in blocks:
            if not np.isfinite(values).all():
                raise ModelError(
                    f"the model holds numbers that are not finite (block {name}); fit it again"
                )
        return cls(blocks)

    @staticmethod
    def traced(model: Any) -> Float[Array, " numbers"]:
        """The `vector` of a model inside of `jax.jit`."""
        return jnp.concatenate(
            [jnp.ravel(jnp.asarray(values, dtype=float)) for _, values in _blocks(model, jnp)]
        )

    @property
    def layout(self) -> Layout:
        sizes = [len(values) for _, values in self.blocks]
        starts = np.concatenate([[0], np.cumsum(sizes)]).astype(int).tolist()
        return Layout(
            {name: start for (name, _), start in zip(self.blocks, starts, strict=False)}, starts[-1]
        )

    @property
    def vector(self) -> Float[np.ndarray, " numbers"]:
        return np.concatenate([values for _, values in self.blocks])

    def checksum(self, precision: str) -> str:
        """What identifies the numbers in a precision, `float` or `double`."""
        values = self.vector.astype(np.float32 if precision == "float" else np.float64)
        return hashlib.sha256(values.tobytes()).hexdigest()[:16]


def padded(count: int) -> int:
    """The next multiple of PADDING."""
    return -(-count // PADDING) * PADDING


def _blocks(model: Any, xp: Any) -> Iterator[Block]:
    """By numpy, or by JAX's copy of it where the numbers are not known yet."""
    model = as_model(model)
    if model.mechanics is not None and model.residual is not None:
        raise ModelError(
            "mechanics with a residual network beside them cannot be written as C code; export "
            "delan.Model(mechanics=model.mechanics, friction=model.friction), or fit without it"
        )
    part = model.residual if model.mechanics is None else model.mechanics
    yield from BLOCKS[type(part)](part, xp)
    if model.friction is not None:
        yield from _friction(model.friction, xp)
    if model.trust is not None:
        yield from _domain(model.trust.domain, xp)


def _chain(model: LagrangianChain, xp: Any) -> Iterator[Block]:
    links = model.links
    yield "PLACE", links.place
    yield "INERTIA", links.inertia
    yield "ARMATURE", model.armature
    yield "GRAVITY", links.gravity


def _network(model: LagrangianNetwork, xp: Any) -> Iterator[Block]:
    scale = model.normalisation
    torque = xp.asarray(scale.tau_std, dtype=float)
    seen = (torque / torque.max()) ** model.settings.focus
    sliding = np.array([kind == "prismatic" for kind in model.joints.kinds])
    yield "SEEN", xp.where(sliding, seen / xp.asarray(scale.q_std), seen)
    yield "CENTRE", scale.q_mean
    yield from _layers(model.trunk, xp, back=True)
    heads = [model.diagonal, model.lower, model.gravity]
    weight = xp.concatenate([xp.asarray(head.weight, dtype=float) for head in heads])
    bias = xp.concatenate([xp.asarray(head.bias, dtype=float) for head in heads])
    yield from _head(weight, bias, xp, back=True)
    yield "ROW", xp.sqrt(torque / xp.asarray(scale.qdd_std))
    yield "OFFSET", xp.asarray([model.settings.offset])
    yield "GRAVITY", torque.max()[None] if model.settings.gravity == "potential" else torque


def _feed_forward(model: FeedForwardNetwork, xp: Any) -> Iterator[Block]:
    """With the scales of inputs and outputs in the first and in the last layer."""
    scale = model.normalisation
    endless = np.array([kind == "continuous" for kind in model.joints.kinds])
    ones, zeros = np.ones(2 * endless.sum()), np.zeros(2 * endless.sum() + 2 * len(endless))
    spread = xp.concatenate([xp.asarray(scale.q_std)[~endless], ones, scale.qd_std, scale.qdd_std])
    centre = xp.concatenate([xp.asarray(scale.q_mean)[~endless], zeros])
    weight, bias = _numbers_of(model.trunk.layers[0], xp)
    weight = weight / spread[None]
    yield from _layers(model.trunk, xp, back=False, first=(weight, bias - weight @ centre))
    torque = xp.asarray(scale.tau_std, dtype=float)
    weight, bias = _numbers_of(model.torque, xp)
    yield from _head(
        torque[:, None] * weight, torque * bias + xp.asarray(scale.tau_mean), xp, back=False
    )


def _layers(
    trunk: Perceptron, xp: Any, *, back: bool, first: tuple[Any, Any] | None = None
) -> Iterator[Block]:
    """The layers of a trunk, each by columns; with `back`, those of the transposed ones too."""
    weight, bias = first or _numbers_of(trunk.layers[0], xp)
    width, inputs = padded(weight.shape[0]), padded(weight.shape[1])
    yield "LAYER_0", _columns(weight, width, inputs, xp)
    yield "BIAS_0", _filled(bias, width, xp)
    others = [_numbers_of(layer, xp) for layer in trunk.layers[1:]]
    yield "LAYERS", _joined((_columns(weight, width, width, xp) for weight, _ in others), xp)
    yield "BIASES", _joined((_filled(bias, width, xp) for _, bias in others), xp)
    if back:
        yield "LAYER_0_BACK", _columns(weight.T, inputs, width, xp)
        yield (
            "LAYERS_BACK",
            _joined((_columns(weight.T, width, width, xp) for weight, _ in others), xp),
        )


def _head(weight: Any, bias: Any, xp: Any, *, back: bool) -> Iterator[Block]:
    outputs, width = padded(weight.shape[0]), padded(weight.shape[1])
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


def _joined(parts: Iterator[Any], xp: Any) -> Any:
    return xp.concatenate([np.zeros(0), *parts])


BLOCKS = {
    LagrangianChain: _chain,
    LagrangianNetwork: _network,
    FeedForwardNetwork: _feed_forward,
}

COLUMNS = {
    "armature": "ROTOR",
    "viscous": "VISCOUS",
    "coulomb": "COULOMB",
    "coulomb+": "FORWARD",
    "coulomb-": "BACKWARD",
    "stribeck": "STRIBECK",
    "offset": "SHIFT",
    "load": "LOAD",
}


def _friction(head: Friction, xp: Any) -> Iterator[Block]:
    weights = {name: xp.asarray(row) for name, row in head.named.items()}
    yield "STEEPNESS", xp.exp(-xp.asarray(head.log_width, dtype=float))
    yield "STRIBECK_SLOWNESS", xp.exp(-xp.asarray(head.log_stribeck_speed, dtype=float))
    for name, row in weights.items():
        if name in COLUMNS:
            yield COLUMNS[name], row
    yield "STOPS", _joined((row for name, row in weights.items() if name not in COLUMNS), xp)


def _domain(domain: Domain, xp: Any) -> Iterator[Block]:
    yield "STATES", domain.states
    yield "NEARNESS", 1 / (xp.asarray(domain.spread) * xp.asarray(domain.radius))
