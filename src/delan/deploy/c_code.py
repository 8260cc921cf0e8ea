"""The header of a model in C: what its receiver reads.

A trained model as one C99 header and one source: kernels of its kind, shaped by macros, and its
numbers.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from importlib import resources
from importlib.metadata import version
from typing import Any, NamedTuple

import numpy as np
from numpy.polynomial import Chebyshev, Polynomial

from ..models.chain import LagrangianChain
from ..models.feed_forward import FeedForwardNetwork
from ..models.network import LagrangianNetwork
from .layout import PADDING, ExportSettings, Numbers, Shape, padded


class Promise(NamedTuple):
    """What a function does, takes and gives; one with a `result` gives it back."""

    told: str
    takes: str
    gives: str
    result: bool = False


PROMISES = {
    "state_init": Promise(
        "Begin at rest at q, with nothing remembered. One state for each robot.", "q", "state"
    ),
    "state_update": Promise(
        "Remember the way to q: call it once in every period, before the torque is asked for.",
        "q",
        "state",
    ),
    "inverse_dynamics": Promise("The torque that a motion takes.", "memory q qd qdd", "tau"),
    "forward_dynamics": Promise("The acceleration that a torque makes.", "memory q qd tau", "qdd"),
    "mass_matrix": Promise("The inertia H(q), symmetric and positive definite.", "q", "inertia"),
    "coriolis": Promise("The Coriolis and centrifugal torque.", "q qd", "torque"),
    "gravity": Promise("The torque that holds the arm at rest.", "q", "torque"),
    "friction": Promise("The torque that friction takes.", "memory q qd qdd", "torque"),
    "unloaded_friction": Promise(
        "The part of friction that knows the speed alone.", "memory qd", "torque"
    ),
    "energy": Promise("Kinetic and potential energy [J].", "q qd", "kinetic potential"),
    "in_domain": Promise(
        "How far a state is from the training data: at most 1 inside, 2 at twice the usual distance.",
        "q qd",
        "",
        True,
    ),
}


def _declared(function: str, settings: ExportSettings) -> str:
    """A function of the header, with the sentence above it."""
    name, real, promise = settings.name, settings.precision, PROMISES[function]
    dof = f"[{name.upper()}_DOF]"
    own = {
        "state": f"{name}_state *state",
        "inertia": f"{real} inertia{dof}{dof}",
        "kinetic": f"{real} *kinetic",
        "potential": f"{real} *potential",
    }
    known = {"memory": f"const {name}_state *memory"}
    takes = [known.get(one, f"const {real} {one}{dof}") for one in promise.takes.split()]
    gives = [own.get(one, f"{real} {one}{dof}") for one in promise.gives.split()]
    if promise.gives == "state":
        arguments = [*gives, *takes]
    else:
        weights = [f"const {real} *weights"] if settings.weights == "data" else []
        arguments = [*weights, *takes, *gives]
    return f"/* {promise.told} */\n{real if promise.result else 'void'} {name}_{function}({', '.join(arguments)});"


def c_header(
    shape: Shape,
    settings: ExportSettings,
    checksum: str,
    count: int,
    story: Mapping[str, str],
) -> str:
    """The header of a model: what it is, in which units, how it was made, and what it promises."""
    names = {"name": settings.name, "upper": settings.name.upper(), "real": settings.precision}
    units = {"prismatic": "m, m/s, m/s^2, N"}
    joints = [
        f" *   {index}: {_plain(name)} ({kind}; {units.get(kind, 'rad, rad/s, rad/s^2, N m')})"
        for index, (name, kind) in enumerate(
            zip(shape.joints.names, shape.joints.kinds, strict=True)
        )
    ]
    lines = [f" *   {_plain(key)}: {_plain(value)}" for key, value in story.items()]
    kind = {LagrangianChain: "a Lagrangian chain", LagrangianNetwork: "a DeLaN network"}.get(
        type(shape.part), "a feed-forward network"
    )
    real, rows = settings.precision, max(1, len(shape.stops))
    stops = f"    {real} position[{shape.motors}];\n    {real} stretch[{rows}][{shape.motors}];"
    told = [_declared(function, settings) for function in shape.functions]
    memory = (
        "What friction remembers of the way. Pass NULL for `memory` where nothing is known of it."
        if shape.stops
        else "This model remembers nothing: pass NULL for `memory`."
    )
    return _HEADER.format(
        **names,
        kind=kind + (" with the friction of its motors" if shape.friction is not None else ""),
        version=version("delan"),
        checksum=checksum,
        count=count,
        dof=shape.joints.dof,
        joints="\n".join(joints),
        story="\n".join(lines) or " *   nothing is told of it",
        members=stops,
        memory=memory,
        functions="\n\n".join(told),
    )


def _plain(text: str) -> str:
    """Words that can stand in a comment: on one line, and not ending it."""
    return " ".join(str(text).split()).replace("*/", "* /").replace("/*", "/ *")


_HEADER = """\
/* {name}: the learned dynamics of a robot with {dof} joints, {kind}.
 *
 * Written by delan {version}. Numbers: {count} in {real}, checksum {checksum}.
 *
 * Joints, in the order of all arrays, with the units of q, qd, qdd and tau:
{joints}
 *
 * How it was made:
{story}
 *
 * No function allocates memory, keeps a state of its own or fails; all may be called from several threads. Outputs may
 * be the same array as inputs. A torque is not checked against the limits of a robot: that is for the caller to do.
 */
#ifndef {upper}_H
#define {upper}_H

#ifdef __cplusplus
extern "C" {{
#endif

#define {upper}_DOF {dof}
#define {upper}_CHECKSUM "{checksum}"

/* {memory} */
typedef struct {name}_state {{
{members}
}} {name}_state;

{functions}

#ifdef __cplusplus
}}
#endif
#endif
"""


@dataclass(frozen=True)
class CSource:
    """The files of a model, and what identifies its numbers."""

    header: str
    source: str
    checksum: str
    functions: tuple[str, ...]


def c_source(
    model: Any, settings: ExportSettings | None = None, story: Mapping[str, str] | None = None
) -> CSource:
    """A learned model as C99 code; `story` is what the header tells of the model's making, line by
    line.
    """
    settings = settings or ExportSettings()
    numbers = Numbers.of(model)
    values = numbers.vector.astype(np.float32 if settings.precision == "float" else np.float64)
    checksum = numbers.checksum(settings.precision)
    shape = Shape.of(model)
    parts = ["numbers.c", *shape.kernels, "interface.c"]
    kernels = "\n".join(_kernel(part) for part in parts)
    constants = (
        ""
        if settings.weights == "data"
        else f"static const real WEIGHTS[{len(values)}] = {_listed(values)};\n"
    )
    macros = macros_of(shape, numbers, settings)
    source = _SOURCE.format(
        name=settings.name,
        real=settings.precision,
        macros=macros,
        constants=constants,
        kernels=kernels,
    )
    header = c_header(shape, settings, checksum, len(values), story or {})
    return CSource(header, source, checksum, shape.functions)


def macros_of(shape: Shape, numbers: Numbers, settings: ExportSettings) -> str:
    """What makes a model's code of the kernels: models of which it is the same differ in their
    numbers alone.
    """
    return "\n".join(_macros(shape, numbers, settings))


def _kernel(name: str) -> str:
    return (
        resources.files(__name__.rpartition(".")[0])
        .joinpath("kernels", name)
        .read_text(encoding="utf-8")
    )


def _macros(shape: Shape, numbers: Numbers, settings: ExportSettings) -> Iterator[str]:
    """What shapes the kernels: sizes, switches, tables and the places of the numbers."""
    data = settings.weights == "data"
    terms = () if shape.friction is None else shape.friction.terms
    switches = {
        "DOF": shape.joints.dof,
        "MOTORS": shape.motors,
        "STOPS": len(shape.stops),
        "PAIRS": 0 if shape.friction is None else len(shape.friction.pairs),
        "ACTUATOR": int(shape.friction is not None),
        "ROTORS": int("armature" in terms),
        "STEPS": int(bool({"coulomb", "asymmetric", "stribeck", "stops"} & set(terms))),
        "MECHANICS": int(shape.mechanics),
        "POTENTIAL": int(shape.potential),
        "FACTORED": int(type(shape.part) is LagrangianNetwork and "armature" not in terms),
        "DOMAIN_STATES": shape.states,
        "FAST_MATH": int(settings.fast),
        "PADDING": PADDING,
        **{f"TERM_{term.upper()}": 1 for term in terms if term != "stops"},
    }
    suffix = "f" if settings.precision == "float" else ""
    for name, value in (switches | _sizes(shape.part)).items():
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
    if type(rigid) is LagrangianChain:
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
    if type(rigid) is FeedForwardNetwork:
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
    kinds, rigid = shape.joints.kinds, shape.part
    if type(rigid) is LagrangianChain:
        yield _table("SLIDES", [int(kind == "prismatic") for kind in kinds])
        yield _table("PARENT", rigid.tree.parents)
    else:
        apart = "continuous" if type(rigid) is FeedForwardNetwork else "prismatic"
        special = [joint for joint, kind in enumerate(kinds) if kind == apart]
        usual = [joint for joint, kind in enumerate(kinds) if kind != apart]
        turns, others = (special, usual) if apart == "continuous" else (usual, special)
        yield _table("TURNS", turns or [0])
        yield _table("BOUNDS" if apart == "continuous" else "SLIDES", others or [0])
    if shape.states:
        yield _table("ENDLESS_JOINT", [int(kind == "continuous") for kind in kinds])
    if shape.friction is not None and shape.friction.pairs:
        yield _table("PAIR_FIRST", [pair.first for pair in shape.friction.pairs])
        yield _table("PAIR_SECOND", [pair.second for pair in shape.friction.pairs])
        yield _table(
            "PAIR_RATIO", [repr(float(pair.ratio)) for pair in shape.friction.pairs], "real"
        )
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
        return np.where(
            np.abs(r) < 1e-3,
            0.5 + r / 6 + r**2 / 24,
            (np.expm1(r) - r) / np.where(r == 0, 1, r) ** 2,
        )

    half = np.log(2) / 2
    return (
        Chebyshev.interpolate(rest, 5, domain=[-half, half]).convert(kind=Polynomial).coef.tolist()
    )


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
