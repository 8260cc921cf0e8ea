"""A trained model as one C99 header and one source: kernels of its kind, shaped by macros, and its numbers."""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from importlib import resources
from typing import Any

import numpy as np
from numpy.polynomial import Chebyshev, Polynomial

from ..models.chain import LagrangianChain
from ..models.feed_forward import FeedForwardNetwork
from ..models.network import LagrangianNetwork
from .c_header import c_header
from .layout import PADDING, Numbers, padded
from .shape import ExportSettings, Shape


@dataclass(frozen=True)
class CSource:
    """The files of a model, and what identifies its numbers."""

    header: str
    source: str
    checksum: str
    functions: tuple[str, ...]


def c_source(model: Any, settings: ExportSettings | None = None, story: Mapping[str, str] | None = None) -> CSource:
    """A learned model as C99 code; `story` is what the header tells of the model's making, line by line."""
    settings = settings or ExportSettings()
    numbers = Numbers.of(model)
    values = numbers.vector.astype(np.float32 if settings.precision == "float" else np.float64)
    checksum = numbers.checksum(settings.precision)
    shape = Shape.of(model)
    parts = ["numbers.c", *shape.kernels, "interface.c"]
    kernels = "\n".join(_kernel(part) for part in parts)
    constants = "" if settings.weights == "data" else f"static const real WEIGHTS[{len(values)}] = {_listed(values)};\n"
    macros = macros_of(shape, numbers, settings)
    source = _SOURCE.format(
        name=settings.name, real=settings.precision, macros=macros, constants=constants, kernels=kernels
    )
    header = c_header(shape, settings, checksum, len(values), story or {})
    return CSource(header, source, checksum, shape.functions)


def macros_of(shape: Shape, numbers: Numbers, settings: ExportSettings) -> str:
    """What makes a model's code of the kernels: models of which it is the same differ in their numbers alone."""
    return "\n".join(_macros(shape, numbers, settings))


def _kernel(name: str) -> str:
    return resources.files(__name__.rpartition(".")[0]).joinpath("kernels", name).read_text(encoding="utf-8")


def _macros(shape: Shape, numbers: Numbers, settings: ExportSettings) -> Iterator[str]:
    """What shapes the kernels: sizes, switches, tables and the places of the numbers."""
    data = settings.weights == "data"
    terms = () if shape.actuator is None else shape.actuator.terms
    switches = {
        "DOF": shape.joints.dof,
        "MOTORS": shape.motors,
        "STOPS": len(shape.stops),
        "PAIRS": 0 if shape.actuator is None else len(shape.actuator.pairs),
        "ACTUATOR": int(shape.actuator is not None),
        "ROTORS": int("armature" in terms),
        "STEPS": int(bool({"coulomb", "asymmetric", "stribeck", "stops"} & set(terms))),
        "MECHANICS": int(shape.mechanics),
        "POTENTIAL": int(shape.potential),
        "FACTORED": int(isinstance(shape.rigid, LagrangianNetwork) and "armature" not in terms),
        "DOMAIN_STATES": shape.states,
        "FAST_MATH": int(settings.fast),
        "PADDING": PADDING,
        **{f"TERM_{term.upper()}": 1 for term in terms if term != "stops"},
    }
    suffix = "f" if settings.precision == "float" else ""
    for name, value in (switches | _sizes(shape.rigid)).items():
        yield f"#define {name} {value}"
    for name in ("sin", "cos", "exp", "tanh", "log1p", "sqrt", "floor"):
        yield f"#define {name.upper()} {name}{suffix}"
    if settings.fast:
        for power, value in enumerate(_exp_polynomial()):
            yield f"#define EXP_{power} {value:.9g}f"
    for name, offset in numbers.layout.offsets.items():
        yield f"#define W_{name} {offset}"
    yield f"#define NAME(function) {settings.name}_##function"
    yield f"#define STATE {settings.name}_state"
    yield f"#define WEIGHTS_ARGUMENT {'const real *weights,' if data else ''}"
    yield f"#define WEIGHTS_PASSED {'weights,' if data else ''}"
    yield f"#define WEIGHTS_UNUSED {'(void)weights;' if data else ''}"
    yield f"#define W {'weights' if data else 'WEIGHTS'}"
    yield _HINTS
    yield from _tables(shape)


def _sizes(rigid: Any) -> dict[str, Any]:
    if isinstance(rigid, LagrangianChain):
        return {}
    settings, n = rigid.settings, rigid.joints.dof
    width = padded(settings.width)
    sizes = {
        "WIDTH": width,
        "DEPTH": settings.depth,
        "FEATURES": padded(rigid.trunk.layers[0].weight.shape[1]),
        "LAYER_SIZE": width * width,
        f"ACTIVATION_{settings.activation.upper()}": 1,
    }
    if isinstance(rigid, FeedForwardNetwork):
        endless = sum(kind == "continuous" for kind in rigid.joints.kinds)
        return sizes | {"OUTPUTS": padded(n), "ENDLESS": endless, "BOUNDED": n - endless}
    sliding = sum(kind == "prismatic" for kind in rigid.joints.kinds)
    gravity = n * (n + 1) // 2
    return sizes | {
        "OUTPUTS": padded(gravity + (1 if settings.gravity == "potential" else n)),
        "GRAVITY_OUTPUT": gravity,
        "TURNING": n - sliding,
        "SLIDING": sliding,
        "DIAGONAL_SOFTPLUS": int(settings.diagonal == "softplus"),
    }


def _tables(shape: Shape) -> Iterator[str]:
    kinds, rigid = shape.joints.kinds, shape.rigid
    if isinstance(rigid, LagrangianChain):
        yield _table("SLIDES", [int(kind == "prismatic") for kind in kinds])
        yield _table("PARENT", rigid.tree.parents)
    else:
        apart = "continuous" if isinstance(rigid, FeedForwardNetwork) else "prismatic"
        special = [joint for joint, kind in enumerate(kinds) if kind == apart]
        usual = [joint for joint, kind in enumerate(kinds) if kind != apart]
        turns, others = (special, usual) if apart == "continuous" else (usual, special)
        yield _table("TURNS", turns or [0])
        yield _table("BOUNDS" if apart == "continuous" else "SLIDES", others or [0])
    if shape.states:
        yield _table("ENDLESS_JOINT", [int(kind == "continuous") for kind in kinds])
    if shape.actuator is not None and shape.actuator.pairs:
        yield _table("PAIR_FIRST", [pair.first for pair in shape.actuator.pairs])
        yield _table("PAIR_SECOND", [pair.second for pair in shape.actuator.pairs])
        yield _table("PAIR_RATIO", [repr(float(pair.ratio)) for pair in shape.actuator.pairs], "real")
    if shape.stops:
        yield _table("RADIUS", [f"(real){radius!r}" for radius in shape.stops], "real")


def _table(name: str, values: Any, kind: str = "int") -> str:
    return f"static const {kind} {name}[] = {{{', '.join(str(value) for value in values)}}};"


def _listed(values: np.ndarray) -> str:
    digits = 9 if values.dtype == np.float32 else 17
    numbers = (_literal(float(value), digits, values.dtype == np.float32) for value in values)
    rows, row = [], ""
    for number in numbers:
        if len(row) + len(number) > 116:
            rows.append(row)
            row = ""
        row += number + ", "
    return "{\n    " + "\n    ".join([*rows, row]).rstrip(", ") + "\n}"


def _literal(value: float, digits: int, single: bool) -> str:
    text = f"{value:.{digits}g}"
    return (text if re.search(r"[.e]", text) else text + ".0") + ("f" if single else "")


@cache
def _exp_polynomial() -> list[float]:
    """(eʳ − 1 − r) / r² for |r| ≤ ½ ln 2, by interpolation in Chebyshev's places."""

    def rest(r: np.ndarray) -> np.ndarray:
        return np.where(np.abs(r) < 1e-3, 0.5 + r / 6 + r**2 / 24, (np.expm1(r) - r) / np.where(r == 0, 1, r) ** 2)

    half = np.log(2) / 2
    return Chebyshev.interpolate(rest, 5, domain=[-half, half]).convert(kind=Polynomial).coef.tolist()


# What compilers do at -O3 of their own, and not at -O2.
_HINTS = """\
#if defined(__clang__)
#pragma clang diagnostic ignored "-Wunused-function" /* kernels serve many models, of which each needs a part */
#define UNROLL _Pragma("unroll")
#elif defined(__GNUC__)
#define UNROLL _Pragma("GCC unroll 32")
#else
#define UNROLL
#endif
#if defined(__GNUC__)
#define INLINE static inline __attribute__((always_inline))
#else
#define INLINE static inline
#endif"""

_SOURCE = """\
/* See {name}.h. */
#include "{name}.h"

#include <math.h>
#include <stdint.h>
#include <string.h>

typedef {real} real;

{macros}

{constants}
{kernels}"""
