"""What `delan describe` tells of a model file: what the model is, what it learned, and what joint data cannot tell."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import equinox as eqx
import jax
import numpy as np
from rich.console import Console
from rich.table import Table

from .. import storage
from ..errors import ModelError, SettingsError
from ..learning.links import ToldLinks, in_plain_frames, told_links
from ..models.actuator import ActuatedModel, Actuator
from ..models.chain import GRAVITY_ACCELERATION, LagrangianChain
from ..models.geometry import LearnedArm, from_rigid_body, learned_arm
from ..models.rigid_body import LINK_PARAMETERS, RigidBody
from ..models.trust import bare
from ..report.skeleton import draw_skeleton
from ..robots.urdf import urdf_of

KINDS = {
    "lagrangian_chain": "a Lagrangian chain, a rigid arm of learned geometry",
    "lagrangian_network": "a Lagrangian network",
    "feed_forward_network": "a feed-forward network",
}
UNITS = {**dict.fromkeys(LINK_PARAMETERS, "kg m²"), "mass": "kg", "mx": "kg m", "my": "kg m", "mz": "kg m"}
"""Of a link's numbers; those of a motor go by the kind of its joint."""
NEARLY_PARALLEL = (0.01, 2.0)
"""Axes that are between so many degrees from parallel may be parallel, and are then badly placed."""

ROTOR_SHOWN = 1e-6
"""Rotors of less than this [kg m² or kg] are none."""


@dataclass(frozen=True, eq=False)
class Description:
    """A model file, read; `arm` is None if its model has no geometry, `links` if what it has is no rigid arm."""

    path: Path
    header: dict[str, Any]
    model: Any
    arm: LearnedArm | None
    links: ToldLinks | None
    notes: tuple[str, ...]

    @property
    def actuator(self) -> Actuator | None:
        return self.model.actuator if isinstance(self.model, ActuatedModel) else None

    @property
    def weights(self) -> int:
        return sum(leaf.size for leaf in jax.tree.leaves(eqx.filter(self.model, eqx.is_array)))

    def as_dict(self) -> dict[str, Any]:
        """All of it for a script: plain numbers, lists and names, in SI units and degrees."""
        header = {name: self.header.get(name) for name in ("kind", "scores", "seed", "log", "versions", "fit")}
        joints = [{"name": name, "kind": kind} for name, kind in _named_kinds(self.model)]
        return {
            "file": str(self.path),
            **header,
            "joints": joints,
            "weights": self.weights,
            "geometry": None if self.arm is None else _geometry(self.arm),
            "links": None if self.links is None else _links(self.links),
            "friction": None if self.actuator is None else _friction(self.actuator),
            "free": [] if self.arm is None else freedoms(self.arm, self.links),
            "notes": list(self.notes),
        }


def read_description(path: Path) -> Description:
    """Read a model file and, if its model is a chain, what it learned."""
    header = storage.read_header(path)
    with jax.enable_x64(True):
        model: Any = bare(storage.load(path))
        if not isinstance(model.rigid if isinstance(model, ActuatedModel) else model, LagrangianChain):
            return Description(path, header, model, None, None, ())
        arm, links, notes = learned_arm(model), None, []
        try:
            links = told_links(model, **_torque_errors(header))
        except ModelError as error:
            notes.append(str(error))
    low, high = NEARLY_PARALLEL
    for axis in arm.axes:
        tilt = min(axis.twist, 180 - axis.twist)
        if axis.parent is not None and low < tilt < high:
            told = f"the axes of {axis.parent} and {axis.joint} are {tilt:.2g}° from parallel"
            notes.append(
                f"{told}; if they are parallel on the robot, the distance, offsets and frames here are not its own"
            )
    return Description(path, header, model, arm, links, tuple(notes))


def _torque_errors(header: dict[str, Any]) -> dict[str, Any]:
    """The errors on validation and the number of samples, if the file knows both."""
    scores, fit = header.get("scores") or {}, header.get("fit") or {}
    if "validation" not in scores or "samples" not in fit:
        return {}
    return {"rmse": np.array(scores["validation"]["torque"]["rmse"]), "samples": int(fit["samples"])}


def _named_kinds(model: Any) -> Sequence[tuple[str, str]]:
    return list(zip(model.joints.names, model.joints.kinds, strict=True))


def _geometry(arm: LearnedArm) -> dict[str, Any]:
    return {
        "axes": [asdict(axis) for axis in arm.axes],
        "points": arm.points.tolist(),
        "directions": arm.directions.tolist(),
        "gravity": arm.gravity.tolist(),
        "stretch": list(arm.stretch),
    }


def _links(links: ToldLinks) -> dict[str, Any]:
    alone = [asdict(one) for one in links.named("alone")]
    for one in alone:
        del one["identifiable"]
    others = {kind: [f"{one.owner} {one.name}" for one in links.named(kind)] for kind in ("combined", "no")}
    return {"rank": links.rank, "of": len(links.parameters), "alone": alone, **others}


def _friction(actuator: Actuator) -> dict[str, Any]:
    steps = bool({"coulomb", "asymmetric", "stribeck", "load", "stops"} & set(actuator.settings.terms))
    widths = {"width": np.exp(actuator.log_width).tolist()} if steps else {}
    if "stribeck" in actuator.settings.terms:
        widths["stribeck_speed"] = np.exp(actuator.log_stribeck_speed).tolist()
    weights = {name: np.asarray(row).tolist() for name, row in actuator.named.items()}
    return {"motors": list(actuator.motors), "weights": weights, **widths}


def freedoms(arm: LearnedArm, links: ToldLinks | None) -> list[str]:
    """What joint data leave open of an arm, in sentences."""
    first, several = arm.joints.names[0], sum(axis.parent is None for axis in arm.axes) > 1
    told = [
        f"where along and about the axis of {first} the arm stands",
        "whether it is this arm or its mirror image",
        "where along its axis a joint's frame sits",
    ]
    told += ["how the arms that stand on the base lie to each other"] if several else []
    told += ["where the axis of a sliding joint lies"] if "prismatic" in arm.joints.kinds else []
    free = [f"Joint data leave open {', '.join(told[:-1])}, and {told[-1]}."]
    if "prismatic" in arm.joints.kinds:
        free.append("Lengths are in the unit of the sliding joints' positions.")
    elif links is None or links.weighed:
        free.append(f"Lengths are in metres because gravity is taken as {GRAVITY_ACCELERATION} m/s².")
    else:
        free.append("Lengths and masses have no unit, for no joint feels gravity and none slides.")
    return free


def show(description: Description) -> None:
    """The description on the terminal."""
    console = Console(markup=False, highlight=False)  # [m] is a unit, not markup
    for sentence in _origin(description):
        console.print(sentence)
    arm, links = description.arm, description.links
    if arm is None:
        console.print("It has no geometry to show; a chain has (`delan fit --model chain`).")
    else:
        console.print(_axes_table(arm))
        size = float(np.linalg.norm(arm.gravity))
        angle = float(np.degrees(np.arccos(np.clip(arm.gravity @ arm.directions[0] / max(size, 1e-12), -1, 1))))
        console.print(f"Gravity: {size:.4g} m/s², {angle:.2f}° from the first axis.")
        if links is not None:
            console.print(_links_table(arm, links))
            console.print(_told(links))
        console.print(" ".join(freedoms(arm, links)))
    if description.actuator is not None:
        console.print(_friction_table(description.actuator))
    for note in description.notes:
        console.print(f"Note: {note}.")


def _origin(description: Description) -> list[str]:
    """What the model is and where it comes from, as far as its file knows."""
    header = description.header
    friction = ", with friction at the motors" if description.actuator is not None else ""
    sentences = [
        f"{description.path.name}: {KINDS[header['kind']]}{friction}; "
        f"{description.model.joints.dof} joints, {description.weights} weights"
    ]
    fit = header.get("fit") or {}
    learned = [f"from {header['log']}"] if "log" in header else []
    learned += [f"{fit['samples']} samples in {fit['seconds']:.0f} s"] if {"samples", "seconds"} <= fit.keys() else []
    learned += [f"seed {header['seed']}"] if "seed" in header else []
    if learned:
        sentences.append(f"Learned {', '.join(learned)}.")
    scores = {name: one["torque"]["nmse_mean"] for name, one in (header.get("scores") or {}).items()}
    if scores:
        sentences.append(f"Torque nMSE: {', '.join(f'{value:.2e} on {name}' for name, value in scores.items())}.")
    versions = ", ".join(f"{name} {number}" for name, number in header["versions"].items())
    return [*sentences, f"Written by {versions}."]


def _told(links: ToldLinks) -> str:
    """How to read the table of links."""
    alone, count = len(links.named("alone")), len(links.parameters)
    frame = "z along its axis, x along the normal from the axis before, the origin where that meets its axis"
    return (
        f"A joint's frame: {frame}. mx, my, mz: mass × centre; Ixx …: moments about the origin; armature: the rotor; "
        "–: told only in sums with others. "
        f"Motion can tell {links.rank} combinations of {count} such numbers, {alone} of them alone: those above."
    )


def _axes_table(arm: LearnedArm) -> Table:
    table = Table(title="Axes at joint positions zero", title_justify="left")
    for column in ("joint", "hangs on"):
        table.add_column(column)
    for column in ("twist\nto that [°]", "distance\nto that [m]", "offset along\nthat axis [m]"):
        table.add_column(column, justify="right", no_wrap=True)
    for axis in arm.axes:
        if axis.parent is None:
            table.add_row(axis.joint, "base", "–", "–", "–")
        else:
            table.add_row(
                axis.joint, axis.parent, _fixed(axis.twist, 3), _fixed(axis.distance, 5), _fixed(axis.offset, 5)
            )
    return table


def _fixed(value: float | None, digits: int) -> str:
    return "–" if value is None else f"{round(value, digits) + 0.0:.{digits}f}"  # + 0: no minus zero


def _links_table(arm: LearnedArm, links: ToldLinks) -> Table:
    """The numbers told alone, joint by joint, and for each joint its rotor."""
    table = Table(title="Links and rotors, in the joints' frames", title_justify="left")
    for column in ("joint", "number"):
        table.add_column(column, no_wrap=True)
    for column in ("value", "± about"):
        table.add_column(column, justify="right", no_wrap=True)
    table.add_column("unit", no_wrap=True)
    sliding = {joint for joint, kind in zip(arm.joints.names, arm.joints.kinds, strict=True) if kind == "prismatic"}
    for owner in dict.fromkeys(one.owner for one in links.parameters):
        for one in (one for one in links.parameters if one.owner == owner):
            motor = {"armature": "kg", "offset": "N"} if owner in sliding else {"armature": "kg m²", "offset": "N m"}
            unit = {**UNITS, **motor}[one.name]
            if one.identifiable == "alone":
                error = "" if one.error is None else f"{one.error:.1g}"
                table.add_row(owner, one.name, f"{one.value:.4g}", error, unit)
            elif one.name == "armature":
                table.add_row(owner, one.name, "–", "", unit)
        table.add_section()
    return table


def _friction_table(actuator: Actuator) -> Table:
    table = Table(title="Friction in N m, N m s/rad (viscous), rad/s (widths); m for rad where it slides")
    table.title_justify = "left"
    table.add_column("motor", no_wrap=True)
    table.add_column("weights")
    told = _friction(actuator)
    rows = {**told["weights"], **{name: told[name] for name in ("width", "stribeck_speed") if name in told}}
    for index, motor in enumerate(told["motors"]):
        table.add_row(motor, ", ".join(f"{name} {row[index]:.4g}" for name, row in rows.items()))
    return table


def write_picture(description: Description, path: Path, truth: Path | None) -> None:
    """The learned skeleton, over the true one if its URDF is given."""
    arm = _arm(description, "--plot")
    if path.suffix.lower() not in (".png", ".svg", ".pdf"):
        raise SettingsError(f"{path}: a picture is a .png, .svg or .pdf file")
    figure = draw_skeleton(arm, None if truth is None else _true_arm(arm, truth))
    storage.write_whole(path, lambda file: figure.savefig(file, format=path.suffix[1:].lower(), dpi=130))


def _true_arm(arm: LearnedArm, truth: Path) -> LearnedArm:
    with jax.enable_x64(True):
        true = learned_arm(from_rigid_body(RigidBody.from_urdf(truth)))
    slides = [[kind == "prismatic" for kind in one.joints.kinds] for one in (arm, true)]
    if slides[0] != slides[1]:
        raise SettingsError(
            f"{truth} has {true.joints.dof} joints, {sum(slides[1])} of them sliding, and the model {arm.joints.dof}, "
            f"{sum(slides[0])} of them sliding, or in another order; give the URDF of the arm that was learned"
        )
    return true


def write_urdf(description: Description, path: Path) -> list[str]:
    """The learned arm as a URDF file, and what a reader should know of it, in sentences."""
    arm = _arm(description, "--out")
    with jax.enable_x64(True):
        body = in_plain_frames(description.model)
    text = urdf_of(body, name=path.stem)
    storage.write_whole(path, lambda file: file.write(text.encode()))
    told = [
        "The URDF's links give the learned torques but for rotors and friction, which a URDF does not hold; of their "
        "numbers, only those told alone are the robot's own."
    ]
    rotors = zip(arm.joints.names, arm.armature.tolist(), strict=True)
    left_out = ", ".join(f"{name} {size:.3g}" for name, size in rotors if size > ROTOR_SHOWN)
    if left_out:
        told.append(
            f"Rotors left out [kg m² or kg]: {left_out}. Add them in the simulator (MuJoCo: armature), or take "
            "delan.to_rigid_body, which has them."
        )
    size = float(np.linalg.norm(arm.gravity))
    if abs(size - GRAVITY_ACCELERATION) > 1e-4 * GRAVITY_ACCELERATION:
        told.append(f"The learned gravity is {size:.4g} m/s²; readers of a URDF take their own.")
    return told


def _arm(description: Description, option: str) -> LearnedArm:
    if description.arm is None:
        kind = type(description.model.rigid if description.actuator is not None else description.model).__name__
        raise SettingsError(
            f"{option} shows the geometry of a chain, and {description.path.name} is a {kind}, which has none; "
            "fit a chain (`delan fit --model chain`)"
        )
    return description.arm
