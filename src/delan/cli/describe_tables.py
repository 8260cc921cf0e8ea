"""The output of `delan describe`: sentences and tables for people, and values for JSON."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from typing import Any

import numpy as np
from rich.console import Console
from rich.table import Table

from ..identification.identifiable_axes import IdentifiableAxes
from ..identification.identifiable_links import IdentifiableLinks
from ..joints import Joints
from ..models.chain import GRAVITY_ACCELERATION
from ..models.elastic import ElasticDrives, drives_of
from ..models.friction import Friction
from ..models.geometry import LearnedArm
from ..models.rigid_body import LINK_PARAMETERS
from .describe_command import Description

KINDS = {
    "lagrangian_chain": "a Lagrangian chain, a rigid arm of learned geometry",
    "lagrangian_network": "a DeLaN network",
    "feed_forward_network": "a feed-forward network",
    "residual": "a URDF's arm with a feed-forward network for its residual",
}
# Units of a link's numbers, and of those of the motor of a turning and of a sliding joint.
UNITS = {
    **dict.fromkeys(LINK_PARAMETERS, "kg m²"),
    "mass": "kg",
    "mx": "kg m",
    "my": "kg m",
    "mz": "kg m",
}
TURNING_MOTOR = {"armature": "kg m²", "offset": "N m"}
SLIDING_MOTOR = {"armature": "kg", "offset": "N"}
# Terms of friction that change over a width of speeds around zero.
STEP_TERMS = {"coulomb", "asymmetric", "stribeck", "load", "stops"}
# Decimals of the numbers of an axis: thousandths of a degree, hundredths of a millimetre.
AXIS_DIGITS = {"twist": 3, "distance": 5, "offset": 5}
STOP = (
    "A stop is friction that remembers the way: after a reversal it follows like a spring, over "
    "twice the length in its name [rad or m], and then slides; the number behind is its torque in "
    "sliding. Stops of zero are left out."
)


def show(description: Description) -> None:
    """Print the description on the terminal."""
    console = Console(markup=False, highlight=False)  # [m] is a unit, not markup
    for sentence in _origin(description):
        console.print(sentence)
    arm = description.arm
    if arm is None:
        console.print("It has no geometry to show; a chain has (`delan fit --model chain`).")
    else:
        console.print(_axes_table(arm, description.axes))
        console.print(_gravity(arm))
        if description.links is not None:
            console.print(_links_table(arm, description.links))
            console.print(_links_legend(description.links))
        console.print(" ".join(_freedoms(arm, description)))
    friction = description.model.friction
    drives = drives_of(description.model)
    if drives is not None:
        console.print(_springs_table(drives, description.model.joints.links))
    if friction is not None:
        console.print(_friction_table(friction))
        if friction.settings.stops:
            console.print(STOP)
    for note in description.notes:
        console.print(f"Note: {note.removesuffix('.')}.")


def _origin(description: Description) -> Iterator[str]:
    """What the model is and where it comes from, as far as its file knows."""
    header = description.header
    model = description.model
    friction = ", with friction at the motors" if model.friction is not None else ""
    yield (
        f"{description.path.name}: {KINDS[header['kind']]}{friction}; {model.joints.dof} joints, "
        f"{description.weights} weights"
    )
    fit = header.get("fit") or {}
    learned = []
    if "log" in header:
        learned.append(f"from {header['log']}")
    if {"samples", "seconds"} <= fit.keys():
        learned.append(f"{fit['samples']} samples in {fit['seconds']:.0f} s")
    if "seed" in header:
        learned.append(f"seed {header['seed']}")
    if learned:
        yield f"Learned {', '.join(learned)}."
    errors = []
    for name, scores in (header.get("scores") or {}).items():
        error = scores["torque"]["nmse_mean"]
        # No nMSE where the torques were constant.
        shown = "none" if error is None else f"{error:.2e}"
        errors.append(f"{shown} on {name}")
    if errors:
        yield f"Torque nMSE: {', '.join(errors)}."
    versions = ", ".join(f"{name} {number}" for name, number in header["versions"].items())
    yield f"Written by {versions}."


def _gravity(arm: LearnedArm) -> str:
    size = float(np.linalg.norm(arm.gravity))
    cosine = arm.gravity @ arm.directions[0] / max(size, 1e-12)  # an arm may feel no gravity
    angle = float(np.degrees(np.arccos(np.clip(cosine, -1, 1))))
    return f"Gravity: {size:.4g} m/s², {angle:.2f}° from the first axis."


def _axes_table(arm: LearnedArm, axes: IdentifiableAxes | None) -> Table:
    table = Table(title="Axes at joint positions zero", title_justify="left")
    for column in ("joint", "parent"):
        table.add_column(column)
    for column in ("twist\nto that [°]", "distance\nto that [m]", "offset along\nthat axis [m]"):
        table.add_column(column, justify="right", no_wrap=True)
    uncertainties: Sequence[Any] = [None] * len(arm.axes)
    if axes is not None:
        uncertainties = axes.uncertainties
    for axis, uncertainty in zip(arm.axes, uncertainties, strict=True):
        cells = []
        for name, digits in AXIS_DIGITS.items():
            # Without uncertainty there is no attribute to read, and no error to show.
            error = getattr(uncertainty, name, None)
            cells.append(_with_error(getattr(axis, name), digits, error))
        if axis.parent is None:
            cells = ["–"] * len(AXIS_DIGITS)
        table.add_row(axis.joint, axis.parent or "base", *cells)
    return table


def _with_error(value: float | None, digits: int, error: float | None) -> str:
    """Return a number and its standard error, with digits no finer than that."""
    if value is None:
        return "–"
    if error is not None and math.isinf(error):
        return "unknown"
    if error is not None and error > 0:
        digits = int(np.clip(1 - np.floor(np.log10(error)), 0, digits))
    text = f"{round(value, digits) + 0.0:.{digits}f}"  # + 0: no minus zero
    if error is None:
        return text
    return f"{text} ±{error:.1g}"


def _links_table(arm: LearnedArm, links: IdentifiableLinks) -> Table:
    """The numbers that data determine alone, joint by joint, and for each joint its rotor."""
    table = Table(title="Links and rotors, in the joints' frames", title_justify="left")
    for column in ("joint", "number"):
        table.add_column(column, no_wrap=True)
    for column in ("value", "± about"):
        table.add_column(column, justify="right", no_wrap=True)
    table.add_column("unit", no_wrap=True)
    slides = dict(zip(arm.joints.names, arm.joints.sliding.tolist(), strict=True))
    for owner in dict.fromkeys(parameter.owner for parameter in links.parameters):
        units = UNITS | TURNING_MOTOR
        if slides.get(owner, False):  # the owner may be a pair of motors
            units |= SLIDING_MOTOR
        for parameter in links.parameters:
            if parameter.owner != owner:
                continue
            unit = units[parameter.name]
            if parameter.identifiable == "alone":
                error = "" if parameter.error is None else f"{parameter.error:.1g}"
                table.add_row(owner, parameter.name, f"{parameter.value:.4g}", error, unit)
            elif parameter.name == "armature":
                table.add_row(owner, parameter.name, "–", "", unit)
        table.add_section()
    return table


def _links_legend(links: IdentifiableLinks) -> str:
    """How to read the table of links."""
    return (
        "A joint's frame: z along its axis, x along the normal from the axis before, the origin "
        "where that meets its axis. mx, my, mz: mass × centre; Ixx …: moments about the origin; "
        "armature: the rotor; –: identified only in sums with others. Motion can identify "
        f"{links.rank} combinations of {len(links.parameters)} such numbers, "
        f"{len(links.named('alone'))} of them alone: those above."
    )


def _friction_table(friction: Friction) -> Table:
    table = Table(
        title="Friction in N m, N m s/rad (viscous), rad/s (widths); m for rad where it slides",
        title_justify="left",
    )
    table.add_column("motor", no_wrap=True)
    table.add_column("weights")
    fields = _friction_fields(friction)
    rows = dict(fields["weights"])
    for name in ("width", "stribeck_speed"):
        if name in fields:
            rows[name] = fields[name]
    for index, motor in enumerate(fields["motors"]):
        weights = []
        for name, row in rows.items():
            if row[index] != 0:
                weights.append(f"{name} {row[index]:.4g}")
        table.add_row(motor, ", ".join(weights))
    return table


def _springs_table(drives: ElasticDrives, joints: Joints) -> Table:
    """Stiffness and damping of the springs in the joints, and the rotors behind them."""
    table = Table(title="Springs in the joints, and motors behind them", title_justify="left")
    table.add_column("joint", no_wrap=True)
    for column in (
        "stiffness\n[N m/rad, N/m]",
        "damping\n[N m s/rad, N s/m]",
        "rotor\n[kg m², kg]",
    ):
        table.add_column(column, justify="right", no_wrap=True)
    rows = zip(joints.names, drives.stiffness, drives.damping, drives.rotor, strict=True)
    for name, *numbers in rows:
        table.add_row(name, *(f"{number:.4g}" for number in numbers))
    return table


def _freedoms(arm: LearnedArm, description: Description) -> Iterator[str]:
    """What joint data leave open of an arm, in sentences."""
    links = description.links
    freedoms = [
        f"where along and about the axis of {arm.joints.names[0]} the arm stands",
        "whether it is this arm or its mirror image",
        "where along its axis a joint's frame sits",
    ]
    if sum(axis.parent is None for axis in arm.axes) > 1:
        freedoms.append("how the arms that stand on the base lie to each other")
    if arm.joints.sliding.any():
        freedoms.append("where the axis of a sliding joint lies")
    *first, last = freedoms
    yield f"Joint data leave open {', '.join(first)}, and {last}."
    if arm.joints.sliding.any():
        yield "Lengths are in the unit of the sliding joints' positions."
    elif description.flat:
        yield (
            f"Lengths are in metres because gravity is taken as {GRAVITY_ACCELERATION} m/s² "
            "square to the axes: they are all parallel, and no joint feels how far it leans along "
            "them."
        )
    elif links is None or links.feels_gravity:
        yield f"Lengths are in metres because gravity is taken as {GRAVITY_ACCELERATION} m/s²."
    else:
        yield "Lengths and masses have no unit, for no joint feels gravity and none slides."


def as_dict(description: Description) -> dict[str, Any]:
    """Return all of it for a script: plain numbers, lists and names, in SI units and degrees."""
    model = description.model
    fields: dict[str, Any] = {"file": str(description.path)}
    for name in ("kind", "scores", "seed", "log", "versions", "fit"):
        fields[name] = description.header.get(name)
    joints = []
    for name, kind in zip(model.joints.names, model.joints.kinds, strict=True):
        joints.append({"name": name, "kind": kind})
    fields |= {
        "joints": joints,
        "weights": description.weights,
        "geometry": None,
        "links": None,
        "springs": None,
        "friction": None,
        "free": [],
        "notes": list(description.notes),
    }
    if description.arm is not None:
        fields["geometry"] = _geometry_fields(description.arm, description.axes)
        fields["free"] = list(_freedoms(description.arm, description))
    if description.links is not None:
        fields["links"] = _links_fields(description.links)
    drives = drives_of(model)
    if drives is not None:
        springs = asdict(drives)
        fields["springs"] = {name: values.tolist() for name, values in springs.items()}
    if model.friction is not None:
        fields["friction"] = _friction_fields(model.friction)
    return fields


def _geometry_fields(arm: LearnedArm, axes: IdentifiableAxes | None) -> dict[str, Any]:
    all_fields = [asdict(axis) for axis in arm.axes]
    if axes is not None:
        for fields, uncertainty in zip(all_fields, axes.uncertainties, strict=True):
            for name in AXIS_DIGITS:
                error = getattr(uncertainty, name)
                if error is not None and math.isinf(error):
                    error = None  # JSON has no infinity
                fields[f"{name}_error"] = error
    return {
        "axes": all_fields,
        "points": arm.points.tolist(),
        "directions": arm.directions.tolist(),
        "gravity": arm.gravity.tolist(),
        "stretch": list(arm.stretch),
    }


def _links_fields(links: IdentifiableLinks) -> dict[str, Any]:
    fields: dict[str, Any] = {
        "rank": links.rank,
        "of": len(links.parameters),
        "alone": [],
        "combined": [],
        "no": [],
    }
    for parameter in links.parameters:
        if parameter.identifiable == "alone":
            numbers = asdict(parameter)
            del numbers["identifiable"]
            fields["alone"].append(numbers)
        else:
            fields[parameter.identifiable].append(f"{parameter.owner} {parameter.name}")
    return fields


def _friction_fields(friction: Friction) -> dict[str, Any]:
    weights = {name: np.asarray(row).tolist() for name, row in friction.named.items()}
    fields: dict[str, Any] = {"motors": list(friction.motors), "weights": weights}
    if STEP_TERMS & set(friction.settings.terms):
        fields["width"] = np.exp(friction.log_width).tolist()
    if "stribeck" in friction.settings.terms:
        fields["stribeck_speed"] = np.exp(friction.log_stribeck_speed).tolist()
    return fields
