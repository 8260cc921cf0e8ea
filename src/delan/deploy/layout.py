"""The numbers of a model as C code wants them: named blocks one after the other in a single array."""

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np
from jaxtyping import Float

from ..errors import ModelError
from ..models.actuator import ActuatedModel, Actuator
from ..models.chain import LagrangianChain
from ..models.feed_forward import FeedForwardNetwork
from ..models.network import LagrangianNetwork
from ..models.perceptron import Affine, Perceptron
from ..models.trust import Domain, TrustedModel

PADDING = 16
"""The outputs of layers are padded to a multiple of it, so that they fill the registers of processors."""

Block = tuple[str, np.ndarray]


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
        blocks = tuple((name, np.asarray(values, dtype=float).ravel()) for name, values in _blocks(model))
        for name, values in blocks:
            if not np.isfinite(values).all():
                raise ModelError(f"the model holds numbers that are not finite (block {name}); fit it again")
        return cls(blocks)

    @property
    def layout(self) -> Layout:
        sizes = [len(values) for _, values in self.blocks]
        starts = np.concatenate([[0], np.cumsum(sizes)]).astype(int).tolist()
        return Layout({name: start for (name, _), start in zip(self.blocks, starts, strict=False)}, starts[-1])

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


def _blocks(model: Any) -> Iterator[Block]:
    if isinstance(model, TrustedModel):
        yield from _blocks(model.model)
        yield from _domain(model.domain)
    elif isinstance(model, ActuatedModel):
        yield from _blocks(model.rigid)
        yield from _actuator(model.actuator)
    elif isinstance(model, LagrangianChain):
        yield from _chain(model)
    elif isinstance(model, LagrangianNetwork):
        yield from _network(model)
    elif isinstance(model, FeedForwardNetwork):
        yield from _feed_forward(model)
    else:
        raise ModelError(
            f"a {type(model).__name__} cannot be written as C code; give a chain, a network or a feed-forward network, "
            "with or without its actuator and its trust"
        )


def _chain(model: LagrangianChain) -> Iterator[Block]:
    links = model.links
    yield "PLACE", np.asarray(links.place)
    yield "INERTIA", np.asarray(links.inertia)
    yield "ARMATURE", np.asarray(model.armature)
    yield "GRAVITY", np.asarray(links.gravity)


def _network(model: LagrangianNetwork) -> Iterator[Block]:
    scale = model.normalisation
    torque = np.asarray(scale.tau_std, dtype=float)
    seen = (torque / torque.max()) ** model.settings.focus
    sliding = np.array([kind == "prismatic" for kind in model.joints.kinds])
    yield "SEEN", np.where(sliding, seen / np.asarray(scale.q_std), seen)
    yield "CENTRE", np.asarray(scale.q_mean)
    yield from _layers(model.trunk, back=True)
    heads = [model.diagonal, model.lower, model.gravity]
    weight = np.concatenate([np.asarray(head.weight, dtype=float) for head in heads])
    bias = np.concatenate([np.asarray(head.bias, dtype=float) for head in heads])
    yield from _head(weight, bias, back=True)
    yield "ROW", np.sqrt(torque / np.asarray(scale.qdd_std))
    yield "OFFSET", np.array([model.settings.offset])
    yield "GRAVITY", np.array([torque.max()]) if model.settings.gravity == "potential" else torque


def _feed_forward(model: FeedForwardNetwork) -> Iterator[Block]:
    """With the scales of inputs and outputs in the first and in the last layer."""
    scale = model.normalisation
    endless = np.array([kind == "continuous" for kind in model.joints.kinds])
    ones, zeros = np.ones(2 * endless.sum()), np.zeros(2 * endless.sum() + 2 * len(endless))
    spread = np.concatenate([np.asarray(scale.q_std)[~endless], ones, scale.qd_std, scale.qdd_std])
    centre = np.concatenate([np.asarray(scale.q_mean)[~endless], zeros])
    first = model.trunk.layers[0]
    weight = np.asarray(first.weight, dtype=float) / spread
    bias = np.asarray(first.bias, dtype=float) - weight @ centre
    yield from _layers(model.trunk, back=False, first=(weight, bias))
    torque = np.asarray(scale.tau_std, dtype=float)
    yield from _head(
        torque[:, None] * np.asarray(model.torque.weight), torque * model.torque.bias + scale.tau_mean, back=False
    )


def _layers(trunk: Perceptron, *, back: bool, first: tuple[np.ndarray, np.ndarray] | None = None) -> Iterator[Block]:
    """The layers of a trunk, each by columns; with `back`, those of the transposed ones too."""
    weight, bias = first or _numbers_of(trunk.layers[0])
    width, inputs = padded(weight.shape[0]), padded(weight.shape[1])
    yield "LAYER_0", _columns(weight, width, inputs)
    yield "BIAS_0", _filled(bias, width)
    others = [_numbers_of(layer) for layer in trunk.layers[1:]]
    yield "LAYERS", _joined(_columns(weight, width, width) for weight, _ in others)
    yield "BIASES", _joined(_filled(bias, width) for _, bias in others)
    if back:
        yield "LAYER_0_BACK", _columns(weight.T, inputs, width)
        yield "LAYERS_BACK", _joined(_columns(weight.T, width, width) for weight, _ in others)


def _head(weight: np.ndarray, bias: Any, *, back: bool) -> Iterator[Block]:
    outputs, width = padded(weight.shape[0]), padded(weight.shape[1])
    yield "HEADS", _columns(weight, outputs, width)
    yield "HEADS_BIAS", _filled(np.asarray(bias, dtype=float), outputs)
    if back:
        yield "HEADS_BACK", _columns(weight.T, width, outputs)


def _numbers_of(layer: Affine) -> tuple[np.ndarray, np.ndarray]:
    return np.asarray(layer.weight, dtype=float), np.asarray(layer.bias, dtype=float)


def _columns(weight: np.ndarray, outputs: int, inputs: int) -> np.ndarray:
    """A matrix by its columns, padded with zeros."""
    full = np.zeros((inputs, outputs))
    full[: weight.shape[1], : weight.shape[0]] = weight.T
    return full.ravel()


def _filled(values: np.ndarray, size: int) -> np.ndarray:
    return np.concatenate([values, np.zeros(size - len(values))])


def _joined(parts: Iterator[np.ndarray]) -> np.ndarray:
    return np.concatenate([np.zeros(0), *parts])


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


def _actuator(head: Actuator) -> Iterator[Block]:
    weights = {name: np.asarray(row) for name, row in head.named.items()}
    yield "STEEPNESS", np.exp(-np.asarray(head.log_width, dtype=float))
    yield "STRIBECK_SLOWNESS", np.exp(-np.asarray(head.log_stribeck_speed, dtype=float))
    for name, row in weights.items():
        if name in COLUMNS:
            yield COLUMNS[name], row
    yield "STOPS", _joined(row for name, row in weights.items() if name not in COLUMNS)


def _domain(domain: Domain) -> Iterator[Block]:
    yield "STATES", np.asarray(domain.states)
    yield "NEARNESS", np.asarray(1 / (jnp.asarray(domain.spread) * domain.radius))
