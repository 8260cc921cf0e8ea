"""A trained model as one C99 header and one source: kernels of its kind, shaped by macros, and its numbers."""

import hashlib
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from importlib import resources
from importlib.metadata import version
from typing import Any, Literal

import numpy as np
from numpy.polynomial import Chebyshev, Polynomial

from ..errors import SettingsError
from ..joints import Joints
from ..models.actuator import ActuatedModel, ActuatorSettings
from ..models.chain import LagrangianChain
from ..models.dynamics import DynamicsModel
from ..models.feed_forward import FeedForwardNetwork
from ..models.network import LagrangianNetwork
from ..models.trust import TrustedModel, bare
from .layout import LANES, Numbers, padded

Precision = Literal["float", "double"]


@dataclass(frozen=True)
class ExportSettings:
    """How a model is written as C code.

    Attributes:
        name: what every name in the code begins with; a word of letters, digits and underscores.
        precision: of all numbers.
        fast_math: an exponential of our own in float, with a relative error below 3e-7, which compilers vectorise;
            in double, and without it, that of the C library.
        weights: `constant`, compiled in; or `data`, given at every call, so that new ones need no compiler.
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
        if self.precision not in ("float", "double"):
            raise SettingsError(f"unknown precision {self.precision!r}; known: float, double")

    @property
    def fast(self) -> bool:
        return self.fast_math and self.precision == "float"


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
    checksum = hashlib.sha256(values.tobytes()).hexdigest()[:16]
    shape = _Shape.of(model)
    parts = ["numbers.c", *shape.kernels, "interface.c"]
    kernels = "\n".join(_kernel(part) for part in parts)
    macros = "\n".join(_macros(shape, numbers, settings))
    constants = "" if settings.weights == "data" else f"static const real WEIGHTS[{len(values)}] = {_listed(values)};\n"
    source = _SOURCE.format(
        name=settings.name, real=settings.precision, macros=macros, constants=constants, kernels=kernels
    )
    functions = tuple(_functions(shape))
    return CSource(_header(shape, settings, functions, checksum, len(values), story or {}), source, checksum, functions)


@dataclass(frozen=True, eq=False)
class _Shape:
    """What of a model is not numbers: it decides which code is there."""

    joints: Joints
    rigid: Any
    actuator: ActuatorSettings | None
    states: int

    @classmethod
    def of(cls, model: Any) -> "_Shape":
        plain = bare(model)
        states = len(model.domain.states) if isinstance(model, TrustedModel) else 0
        if isinstance(plain, ActuatedModel):
            return cls(plain.joints, plain.rigid, plain.actuator.settings, states)
        return cls(plain.joints, plain, None, states)

    @property
    def kernels(self) -> tuple[str, ...]:
        friction = () if self.actuator is None else ("friction.c",)
        if isinstance(self.rigid, LagrangianChain):
            return ("chain.c", *friction)
        return ("layers.c", "network.c" if isinstance(self.rigid, LagrangianNetwork) else "feed_forward.c", *friction)

    @property
    def stops(self) -> tuple[float, ...]:
        return () if self.actuator is None else self.actuator.stops

    @property
    def motors(self) -> int:
        return self.joints.dof + (0 if self.actuator is None else len(self.actuator.pairs))

    @property
    def mechanics(self) -> bool:
        return isinstance(self.rigid, DynamicsModel)

    @property
    def potential(self) -> bool:
        vector = isinstance(self.rigid, LagrangianNetwork) and self.rigid.settings.gravity == "vector"
        return self.mechanics and not vector


def _kernel(name: str) -> str:
    return resources.files(__name__.rpartition(".")[0]).joinpath("kernels", name).read_text(encoding="utf-8")


def _macros(shape: _Shape, numbers: Numbers, settings: ExportSettings) -> Iterator[str]:
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
        "LANES": LANES,
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
    yield _UNROLL
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


def _tables(shape: _Shape) -> Iterator[str]:
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


def _exp_polynomial() -> list[float]:
    """(eʳ − 1 − r) / r² for |r| ≤ ½ ln 2, by interpolation in Chebyshev's places."""

    def rest(r: np.ndarray) -> np.ndarray:
        return np.where(np.abs(r) < 1e-3, 0.5 + r / 6 + r**2 / 24, (np.expm1(r) - r) / np.where(r == 0, 1, r) ** 2)

    half = np.log(2) / 2
    return Chebyshev.interpolate(rest, 5, domain=[-half, half]).convert(kind=Polynomial).coef.tolist()


def _functions(shape: _Shape) -> Iterator[str]:
    if shape.stops:
        yield from ("state_init", "state_update")
    yield "inverse_dynamics"
    if shape.mechanics:
        yield from ("forward_dynamics", "mass_matrix", "coriolis", "gravity", "friction")
        if shape.potential:
            yield "energy"
    if shape.states:
        yield "in_domain"


PROMISES: dict[str, tuple[str, str, bool]] = {
    "state_init": ("void", "{name}_state *state, const {real} q[{upper}_DOF]", False),
    "state_update": ("void", "{name}_state *state, const {real} q[{upper}_DOF]", False),
    "inverse_dynamics": (
        "void",
        "const {name}_state *memory, const {real} q[{upper}_DOF], const {real} qd[{upper}_DOF], "
        "const {real} qdd[{upper}_DOF], {real} tau[{upper}_DOF]",
        True,
    ),
    "forward_dynamics": (
        "void",
        "const {name}_state *memory, const {real} q[{upper}_DOF], const {real} qd[{upper}_DOF], "
        "const {real} tau[{upper}_DOF], {real} qdd[{upper}_DOF]",
        True,
    ),
    "mass_matrix": ("void", "const {real} q[{upper}_DOF], {real} inertia[{upper}_DOF][{upper}_DOF]", True),
    "coriolis": ("void", "const {real} q[{upper}_DOF], const {real} qd[{upper}_DOF], {real} torque[{upper}_DOF]", True),
    "gravity": ("void", "const {real} q[{upper}_DOF], {real} torque[{upper}_DOF]", True),
    "friction": (
        "void",
        "const {name}_state *memory, const {real} q[{upper}_DOF], const {real} qd[{upper}_DOF], "
        "const {real} qdd[{upper}_DOF], {real} torque[{upper}_DOF]",
        True,
    ),
    "energy": (
        "void",
        "const {real} q[{upper}_DOF], const {real} qd[{upper}_DOF], {real} *kinetic, {real} *potential",
        True,
    ),
    "in_domain": ("{real}", "const {real} q[{upper}_DOF], const {real} qd[{upper}_DOF]", True),
}
"""What each function gives and takes, and whether it needs the weights."""

TOLD = {
    "state_init": "Begin at rest at q, with nothing remembered. One state for each robot.",
    "state_update": "Remember the way to q: call it once in every period, before the torque is asked for.",
    "inverse_dynamics": "The torque that a motion takes.",
    "forward_dynamics": "The acceleration that a torque makes.",
    "mass_matrix": "The inertia H(q), symmetric and positive definite.",
    "coriolis": "The Coriolis and centrifugal torque.",
    "gravity": "The torque that holds the arm at rest.",
    "friction": "The torque that friction takes.",
    "energy": "Kinetic and potential energy [J].",
    "in_domain": "How far a state is from the training data: at most 1 inside, 2 at twice the usual distance.",
}


def _header(
    shape: _Shape,
    settings: ExportSettings,
    functions: tuple[str, ...],
    checksum: str,
    count: int,
    story: Mapping[str, str],
) -> str:
    names = {"name": settings.name, "upper": settings.name.upper(), "real": settings.precision}
    units = {"prismatic": "m, m/s, m/s^2, N"}
    joints = [
        f" *   {index}: {_plain(name)} ({kind}; {units.get(kind, 'rad, rad/s, rad/s^2, N m')})"
        for index, (name, kind) in enumerate(zip(shape.joints.names, shape.joints.kinds, strict=True))
    ]
    lines = [f" *   {_plain(key)}: {_plain(value)}" for key, value in story.items()]
    kind = {LagrangianChain: "a Lagrangian chain", LagrangianNetwork: "a Deep Lagrangian Network"}.get(
        type(shape.rigid), "a feed-forward network"
    )
    real, rows = settings.precision, max(1, len(shape.stops))
    stops = f"    {real} position[{shape.motors}];\n    {real} stretch[{rows}][{shape.motors}];"
    told = []
    for function in functions:
        gives, takes, weighs = PROMISES[function]
        weights = f"const {settings.precision} *weights, " if weighs and settings.weights == "data" else ""
        declared = f"{gives} {names['name']}_{function}({weights}{takes});".format(**names)
        told.append(f"/* {TOLD[function]} */\n{declared}")
    memory = (
        "What friction remembers of the way. Pass NULL for `memory` where nothing is known of it."
        if shape.stops
        else "This model remembers nothing: pass NULL for `memory`."
    )
    return _HEADER.format(
        **names,
        kind=kind + (" with the friction of its motors" if shape.actuator is not None else ""),
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


_UNROLL = """\
#if defined(__clang__)
#define UNROLL _Pragma("unroll")
#elif defined(__GNUC__)
#define UNROLL _Pragma("GCC unroll 32")
#else
#define UNROLL
#endif"""

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
