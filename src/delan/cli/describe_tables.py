"""What `delan describe` shows on the terminal: a few sentences and tables."""

import numpy as np
from rich.console import Console
from rich.table import Table

from ..identification.axes import IdentifiableAxes
from ..identification.links import IdentifiableLinks
from ..models.friction import Friction
from ..models.geometry import LearnedArm
from ..models.rigid_body import LINK_PARAMETERS
from .describe_command import Description, freedoms, friction_of

KINDS = {
    "lagrangian_chain": "a Lagrangian chain, a rigid arm of learned geometry",
    "lagrangian_network": "a DeLaN network",
    "feed_forward_network": "a feed-forward network",
    "residual": "a URDF's arm with a feed-forward network for what it leaves over",
}
UNITS = {
    **dict.fromkeys(LINK_PARAMETERS, "kg m²"),
    "mass": "kg",
    "mx": "kg m",
    "my": "kg m",
    "mz": "kg m",
}
"""Of a link's numbers; those of a motor go by the kind of its joint."""
STOP = (
    "A stop is friction that remembers the way: after a reversal it follows like a spring, over twice the length in "
    "its name [rad or m], and then slides; the number behind is its torque in sliding. What is zero is left out."
)


def show(description: Description) -> None:
    """The description on the terminal."""
    console = Console(markup=False, highlight=False)  # [m] is a unit, not markup
    for sentence in _origin(description):
        console.print(sentence)
    arm, links = description.arm, description.links
    if arm is None:
        console.print("It has no geometry to show; a chain has (`delan fit --model chain`).")
    else:
        console.print(_axes_table(arm, description.axes))
        size = float(np.linalg.norm(arm.gravity))
        angle = float(
            np.degrees(
                np.arccos(np.clip(arm.gravity @ arm.directions[0] / max(size, 1e-12), -1, 1))
            )
        )
        console.print(f"Gravity: {size:.4g} m/s², {angle:.2f}° from the first axis.")
        if links is not None:
            console.print(_links_table(arm, links))
            console.print(_told(links))
        console.print(" ".join(freedoms(arm, links, flat=description.flat)))
    if description.friction is not None:
        console.print(_friction_table(description.friction))
        if description.friction.settings.stops:
            console.print(STOP)
    for note in description.notes:
        console.print(f"Note: {note}.")


def _origin(description: Description) -> list[str]:
    """What the model is and where it comes from, as far as its file knows."""
    header = description.header
    friction = ", with friction at the motors" if description.friction is not None else ""
    sentences = [
        f"{description.path.name}: {KINDS[header['kind']]}{friction}; "
        f"{description.model.joints.dof} joints, {description.weights} weights"
    ]
    fit = header.get("fit") or {}
    learned = [f"from {header['log']}"] if "log" in header else []
    learned += (
        [f"{fit['samples']} samples in {fit['seconds']:.0f} s"]
        if {"samples", "seconds"} <= fit.keys()
        else []
    )
    learned += [f"seed {header['seed']}"] if "seed" in header else []
    if learned:
        sentences.append(f"Learned {', '.join(learned)}.")
    scores = {
        name: one["torque"]["nmse_mean"] for name, one in (header.get("scores") or {}).items()
    }
    if scores:
        sentences.append(
            f"Torque nMSE: {', '.join(f'{value:.2e} on {name}' for name, value in scores.items())}."
        )
    versions = ", ".join(f"{name} {number}" for name, number in header["versions"].items())
    return [*sentences, f"Written by {versions}."]


def _told(links: IdentifiableLinks) -> str:
    """How to read the table of links."""
    alone, count = len(links.named("alone")), len(links.parameters)
    frame = "z along its axis, x along the normal from the axis before, the origin where that meets its axis"
    return (
        f"A joint's frame: {frame}. mx, my, mz: mass × centre; Ixx …: moments about the origin; armature: the rotor; "
        "–: told only in sums with others. "
        f"Motion can tell {links.rank} combinations of {count} such numbers, {alone} of them alone: those above."
    )


def _axes_table(arm: LearnedArm, axes: IdentifiableAxes | None) -> Table:
    table = Table(title="Axes at joint positions zero", title_justify="left")
    for column in ("joint", "hangs on"):
        table.add_column(column)
    for column in ("twist\nto that [°]", "distance\nto that [m]", "offset along\nthat axis [m]"):
        table.add_column(column, justify="right", no_wrap=True)
    doubts = [None] * len(arm.axes) if axes is None else axes.uncertainties
    for axis, doubt in zip(arm.axes, doubts, strict=True):
        if axis.parent is None:
            table.add_row(axis.joint, "base", "–", "–", "–")
            continue
        cells = [
            _fixed(getattr(axis, name), digits, None if doubt is None else getattr(doubt, name))
            for name, digits in (("twist", 3), ("distance", 5), ("offset", 5))
        ]
        table.add_row(axis.joint, axis.parent, *cells)
    return table


def _fixed(value: float | None, digits: int, error: float | None) -> str:
    """A number, and how wrong it may be, with digits no finer than that."""
    if value is None:
        return "–"
    if error is not None and np.isinf(error):
        return "not told"
    if error is not None and error > 0:
        digits = int(np.clip(1 - np.floor(np.log10(error)), 0, digits))
    told = f"{round(value, digits) + 0.0:.{digits}f}"  # + 0: no minus zero
    return told if error is None else f"{told} ±{error:.1g}"


def _links_table(arm: LearnedArm, links: IdentifiableLinks) -> Table:
    """The numbers told alone, joint by joint, and for each joint its rotor."""
    table = Table(title="Links and rotors, in the joints' frames", title_justify="left")
    for column in ("joint", "number"):
        table.add_column(column, no_wrap=True)
    for column in ("value", "± about"):
        table.add_column(column, justify="right", no_wrap=True)
    table.add_column("unit", no_wrap=True)
    sliding = {
        joint
        for joint, kind in zip(arm.joints.names, arm.joints.kinds, strict=True)
        if kind == "prismatic"
    }
    for owner in dict.fromkeys(one.owner for one in links.parameters):
        for one in (one for one in links.parameters if one.owner == owner):
            motor = (
                {"armature": "kg", "offset": "N"}
                if owner in sliding
                else {"armature": "kg m²", "offset": "N m"}
            )
            unit = {**UNITS, **motor}[one.name]
            if one.identifiable == "alone":
                error = "" if one.error is None else f"{one.error:.1g}"
                table.add_row(owner, one.name, f"{one.value:.4g}", error, unit)
            elif one.name == "armature":
                table.add_row(owner, one.name, "–", "", unit)
        table.add_section()
    return table


def _friction_table(friction: Friction) -> Table:
    table = Table(
        title="Friction in N m, N m s/rad (viscous), rad/s (widths); m for rad where it slides"
    )
    table.title_justify = "left"
    table.add_column("motor", no_wrap=True)
    table.add_column("weights")
    told = friction_of(friction)
    rows = {
        **told["weights"],
        **{name: told[name] for name in ("width", "stribeck_speed") if name in told},
    }
    for index, motor in enumerate(told["motors"]):
        there = {name: row[index] for name, row in rows.items() if row[index] != 0}
        table.add_row(motor, ", ".join(f"{name} {value:.4g}" for name, value in there.items()))
    return table
