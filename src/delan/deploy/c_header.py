"""The header of a model in C: what its receiver reads."""

from collections.abc import Mapping
from importlib.metadata import version
from typing import NamedTuple

from ..models.chain import LagrangianChain
from ..models.network import LagrangianNetwork
from .shape import ExportSettings, Shape


class Promise(NamedTuple):
    """What a function does, takes and gives; one with a `result` gives it back."""

    told: str
    takes: str
    gives: str
    result: bool = False


PROMISES = {
    "state_init": Promise("Begin at rest at q, with nothing remembered. One state for each robot.", "q", "state"),
    "state_update": Promise(
        "Remember the way to q: call it once in every period, before the torque is asked for.", "q", "state"
    ),
    "inverse_dynamics": Promise("The torque that a motion takes.", "memory q qd qdd", "tau"),
    "forward_dynamics": Promise("The acceleration that a torque makes.", "memory q qd tau", "qdd"),
    "mass_matrix": Promise("The inertia H(q), symmetric and positive definite.", "q", "inertia"),
    "coriolis": Promise("The Coriolis and centrifugal torque.", "q qd", "torque"),
    "gravity": Promise("The torque that holds the arm at rest.", "q", "torque"),
    "friction": Promise("The torque that friction takes.", "memory q qd qdd", "torque"),
    "unloaded_friction": Promise("The part of friction that knows the speed alone.", "memory qd", "torque"),
    "energy": Promise("Kinetic and potential energy [J].", "q qd", "kinetic potential"),
    "in_domain": Promise(
        "How far a state is from the training data: at most 1 inside, 2 at twice the usual distance.", "q qd", "", True
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
        for index, (name, kind) in enumerate(zip(shape.joints.names, shape.joints.kinds, strict=True))
    ]
    lines = [f" *   {_plain(key)}: {_plain(value)}" for key, value in story.items()]
    kind = {LagrangianChain: "a Lagrangian chain", LagrangianNetwork: "a DeLaN network"}.get(
        type(shape.rigid), "a feed-forward network"
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
