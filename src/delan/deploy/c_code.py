"""A trained model as one C99 header and one source: kernels, shaped by macros, and numbers."""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib import resources
from importlib.metadata import version
from typing import Any, NamedTuple, cast

import numpy as np
from numpy.polynomial import Chebyshev, Polynomial

from ..models.model import Model
from ..models.networks import LagrangianNetwork
from .artifact import rendered
from .layout import PADDING, ExportSettings, Numbers, Shape, padded

# Columns that a line of numbers may have.
LINE = 116


class Promise(NamedTuple):
    """What a function of the code does, takes and gives; one with a `result` returns it."""

    text: str
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
        "How far a state is from the training data: at most 1 inside, "
        "2 at twice the usual distance.",
        "q qd",
        "",
        True,
    ),
}


@dataclass(frozen=True)
class CSource:
    """The files of a model, the checksum of its numbers, and the names of its functions."""

    header: str
    source: str
    checksum: str
    functions: tuple[str, ...]


def c_source(
    model: Any, settings: ExportSettings | None = None, story: Mapping[str, str] | None = None
) -> CSource:
    """A learned model as C99 code; the header tells its `story`, line by line."""
    settings = settings or ExportSettings()
    shape = Shape.of(model)
    numbers = Numbers.of(model)
    checksum = numbers.checksum(settings.precision)
    header = rendered(
        "model.h",
        **settings.words,
        dof=shape.joints.dof,
        checksum=checksum,
        title=_title(shape.model),
        version=version("delan"),
        count=numbers.layout.size,
        joints=list(zip(shape.joints.names, shape.joints.kinds, shape.joints.units, strict=True)),
        story=story or {},
        stops=len(shape.stops),
        motors=shape.motors,
        functions=[_declaration(function, settings) for function in shape.functions],
    )
    constants = ""
    if settings.weights == "constant":
        values = numbers.vector.astype(settings.dtype)
        constants = f"static const real WEIGHTS[{len(values)}] = {_listed(values)};\n"
    parts = ("numbers.c", *shape.kernels, "interface.c")
    kernels = resources.files("delan.deploy") / "kernels"
    source = rendered(
        "model.c",
        **settings.words,
        macros="\n".join(_macros(shape, numbers, settings)),
        tables="\n".join(_tables(shape)),
        constants=constants,
        kernels="\n".join((kernels / part).read_text("utf-8") for part in parts),
    )
    return CSource(header, source, checksum, shape.functions)


def macros_of(shape: Shape, numbers: Numbers, settings: ExportSettings) -> str:
    """What shapes the kernels: models with the same text differ in their numbers alone."""
    return "\n".join([*_macros(shape, numbers, settings), *_tables(shape)])


def _title(model: Model) -> str:
    title = "a DeLaN network"
    if model.mechanics is None:
        title = "a feed-forward network"
    elif model.chain is not None:
        title = "a Lagrangian chain"
    if model.friction is not None:
        title += " with the friction of its motors"
    return title


def _declaration(function: str, settings: ExportSettings) -> str:
    """A function of the header, with the sentence above it."""
    promise = PROMISES[function]
    name = settings.name
    real = settings.precision
    dof = f"[{name.upper()}_DOF]"
    special = {
        "memory": f"const {name}_state *memory",
        "state": f"{name}_state *state",
        "inertia": f"{real} inertia{dof}{dof}",
        "kinetic": f"{real} *kinetic",
        "potential": f"{real} *potential",
    }
    takes = []
    for argument in promise.takes.split():
        takes.append(special.get(argument, f"const {real} {argument}{dof}"))
    gives = []
    for argument in promise.gives.split():
        gives.append(special.get(argument, f"{real} {argument}{dof}"))
    arguments = takes + gives
    if promise.gives == "state":
        arguments = gives + takes
    elif settings.weights == "data":
        arguments = [f"const {real} *weights", *arguments]
    returned = "void"
    if promise.result:
        returned = real
    return f"/* {promise.text} */\n{returned} {name}_{function}({', '.join(arguments)});"


def _macros(shape: Shape, numbers: Numbers, settings: ExportSettings) -> Iterator[str]:
    """Sizes, switches and the places of the numbers."""
    model = shape.model
    terms = shape.friction.terms
    network = model.mechanics is not None and model.chain is None
    added = model.added_inertia is not None
    switches = {
        "DOF": shape.joints.dof,
        "MOTORS": shape.motors,
        "STOPS": len(shape.stops),
        "PAIRS": len(shape.friction.pairs),
        "ACTUATOR": int(model.friction is not None),
        "ROTORS": int("armature" in terms),
        "SPRINGS": int(shape.friction.stores_energy),
        "STEPS": int(bool({"coulomb", "asymmetric", "stribeck", "stops"} & set(terms))),
        "MECHANICS": int(model.promises.mechanics),
        "POTENTIAL": int(model.promises.energy),
        "ADDED": int(added),
        # A network gives the Cholesky factor of its inertia; rotors would change it.
        "FACTORED": int(network and "armature" not in terms and not added),
        "DOMAIN_STATES": shape.states,
        "FAST_MATH": int(settings.fast),
        "PADDING": PADDING,
    }
    for term in terms:
        if term != "stops":
            switches[f"TERM_{term.upper()}"] = 1
    suffix = ""
    if settings.precision == "float":
        suffix = "f"
    for name, value in (switches | _sizes(model)).items():
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
    for name, words in WEIGHTS_MACROS[settings.weights].items():
        yield f"#define {name} {words}"


# How the weights come into the functions: as an argument of each, or from a constant.
WEIGHTS_MACROS = {
    "data": {
        "WEIGHTS_ARGUMENT": "const real *weights,",
        "WEIGHTS_PASSED": "weights,",
        "WEIGHTS_UNUSED": "(void)weights;",
        "W": "weights",
    },
    "constant": {
        "WEIGHTS_ARGUMENT": "",
        "WEIGHTS_PASSED": "",
        "WEIGHTS_UNUSED": "",
        "W": "WEIGHTS",
    },
}


def _sizes(model: Model) -> dict[str, Any]:
    """The sizes of a network; of a chain, those of its tree."""
    if model.chain is not None:
        coupled = int(model.chain.settings.coupling is not None)
        return {"TREE": len(model.chain.tree.parents), "COUPLED": coupled}
    network: Any = model.mechanics or model.residual
    settings = network.settings
    dof = network.joints.dof
    width = padded(settings.width)
    sizes = {
        "WIDTH": width,
        "DEPTH": settings.depth,
        "FEATURES": padded(network.trunk.layers[0].weight.shape[1]),
        "LAYER_SIZE": width * width,
        f"ACTIVATION_{settings.activation.upper()}": 1,
    }
    if model.mechanics is None:
        endless = int(network.joints.continuous.sum())
        return sizes | {"OUTPUTS": padded(dof), "ENDLESS": endless, "BOUNDED": dof - endless}
    circular = int(network.circular.sum())
    # The entries of a triangular factor, then a potential or the torque of each joint.
    gravity = dof * (dof + 1) // 2
    outputs = gravity + dof
    if settings.gravity == "potential":
        outputs = gravity + 1
    return sizes | {
        "OUTPUTS": padded(outputs),
        "GRAVITY_OUTPUT": gravity,
        "TURNING": circular,
        "SLIDING": dof - circular,
        "DIAGONAL_SOFTPLUS": int(settings.diagonal == "softplus"),
    }


def _tables(shape: Shape) -> Iterator[str]:
    """Properties of the joints, pairs of motors, and radii of stop operators."""
    joints = shape.joints
    if shape.model.chain is not None:
        chain = shape.model.chain
        yield _table("SLIDES", [int(slides) for slides in chain.tree.sliding])
        yield _table("PARENT", chain.tree.parents)
        if chain.settings.coupling is not None:
            rows = []
            for row in chain.settings.coupling:
                rows.append(f"{{{', '.join(f'(real){ratio!r}' for ratio in row)}}}")
            yield f"static const real COUPLING[TREE][DOF] = {{{', '.join(rows)}}};"
    elif shape.model.mechanics is None:
        yield _table("TURNS", _places(joints.continuous))
        yield _table("BOUNDS", _places(~joints.continuous))
    else:
        circular = cast(LagrangianNetwork, shape.model.mechanics).circular
        yield _table("TURNS", _places(circular))
        yield _table("SLIDES", _places(~circular))
    added = shape.model.added_inertia
    if added is not None:
        numbers = ", ".join(f"(real){number!r}" for number in added)
        yield f"static const real ADDED_INERTIA[DOF] = {{{numbers}}};"
    if "periodic" in shape.friction.terms:
        yield _table("CABLE", joints.turning.astype(int))
    if shape.states:
        yield _table("ENDLESS_JOINT", joints.continuous.astype(int))
    pairs = shape.friction.pairs
    if pairs:
        yield _table("PAIR_FIRST", [pair.first for pair in pairs])
        yield _table("PAIR_SECOND", [pair.second for pair in pairs])
        yield _table("PAIR_RATIO", [repr(float(pair.ratio)) for pair in pairs], "real")
    if shape.stops:
        yield _table("RADIUS", [f"(real){radius!r}" for radius in shape.stops], "real")


def _places(mask: np.ndarray) -> list[int]:
    """The joints of a mask."""
    # C has no empty arrays; the kernels do not read this entry.
    return np.flatnonzero(mask).tolist() or [0]


def _table(name: str, values: Sequence[Any] | np.ndarray, kind: str = "int") -> str:
    return f"static const {kind} {name}[] = {{{', '.join(map(str, values))}}};"


def _listed(values: np.ndarray) -> str:
    """Numbers as an array of C, with the digits that give the same bits back."""
    digits = 17
    suffix = ""
    if values.dtype == np.float32:
        digits = 9
        suffix = "f"
    rows = []
    row = ""
    for value in values.tolist():
        number = f"{value:.{digits}g}"
        # Without a point or an exponent, C would take it for an integer.
        if not re.search(r"[.e]", number):
            number += ".0"
        number += suffix
        if len(row) + len(number) > LINE:
            rows.append(row)
            row = ""
        row += number + ", "
    return "{\n    " + "\n    ".join([*rows, row]).rstrip(", ") + "\n}"


@cache
def _exp_polynomial() -> list[float]:
    """(eʳ − 1 − r) / r² for |r| ≤ ½ ln 2, by interpolation in Chebyshev's places."""

    def rest(r: np.ndarray) -> np.ndarray:
        # Near zero the quotient cancels, and its series to the second power is exact.
        near = np.abs(r) < 1e-3
        series = 0.5 + r / 6 + r**2 / 24
        return np.where(near, series, (np.expm1(r) - r) / np.where(r == 0, 1, r) ** 2)

    half = np.log(2) / 2
    # Degree 5 is the lowest that keeps the relative error of eʳ below 3e-7.
    fitted = Chebyshev.interpolate(rest, 5, domain=[-half, half])
    return fitted.convert(kind=Polynomial).coef.tolist()
