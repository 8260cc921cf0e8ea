"""What `delan describe` tells of a model file: what the model is, what it learned, and what joint
data cannot tell.
"""

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import equinox as eqx
import jax
import numpy as np

from .. import storage
from ..errors import ModelError, SettingsError
from ..identification.axes import IdentifiableAxes, identifiable_axes
from ..identification.links import IdentifiableLinks, identifiable_links, in_plain_frames
from ..models.chain import GRAVITY_ACCELERATION
from ..models.friction import Friction
from ..models.geometry import LearnedArm, from_rigid_body, learned_arm
from ..models.model import without_trust
from ..models.rigid_body import RigidBody
from ..report.arm_figure import draw_skeleton
from ..robots.robot_files import urdf_of

NEARLY_PARALLEL = (0.01, 2.0)
"""Axes that are between so many degrees from parallel may be parallel, and are then badly placed.
"""
FAR = 2.0
"""A centre of mass is absurdly far from its joint at so many lengths of the whole arm."""

ROTOR_SHOWN = 1e-6
"""Rotors of less than this [kg m² or kg] are none."""


@dataclass(frozen=True, eq=False)
class Description:
    """A model file, read; `arm` is None if its model has no geometry, `links` if what it has is no
    rigid arm.

    `axes` is None if the file does not say how wrong the torques are; else axes which these cannot
    tell from parallel ones are parallel in `model` and `arm`.
    """

    path: Path
    header: dict[str, Any]
    model: Any
    arm: LearnedArm | None = None
    axes: IdentifiableAxes | None = None
    links: IdentifiableLinks | None = None
    notes: tuple[str, ...] = ()

    @property
    def friction(self) -> Friction | None:
        return self.model.friction

    @property
    def flat(self) -> bool:
        return self.axes is not None and self.axes.flat

    @property
    def weights(self) -> int:
        return sum(leaf.size for leaf in jax.tree.leaves(eqx.filter(self.model, eqx.is_array)))

    def as_dict(self) -> dict[str, Any]:
        """All of it for a script: plain numbers, lists and names, in SI units and degrees."""
        header = {
            name: self.header.get(name)
            for name in ("kind", "scores", "seed", "log", "versions", "fit")
        }
        joints = [{"name": name, "kind": kind} for name, kind in _named_kinds(self.model)]
        return {
            "file": str(self.path),
            **header,
            "joints": joints,
            "weights": self.weights,
            "geometry": None if self.arm is None else _geometry(self.arm, self.axes),
            "links": None if self.links is None else _links(self.links),
            "friction": None if self.friction is None else friction_of(self.friction),
            "free": [] if self.arm is None else freedoms(self.arm, self.links, flat=self.flat),
            "notes": list(self.notes),
        }


def read_description(path: Path) -> Description:
    """Read a model file and, if its model is a chain, what it learned."""
    header = storage.read_header(path)
    with jax.enable_x64(True):
        whole: Any = storage.load(path)
        model: Any = without_trust(whole)
        if model.chain is None:
            return Description(path, header, model)
        axes, links, notes, errors = None, None, [], _torque_errors(header)
        try:
            if errors:
                trust = whole.trust
                states = None if trust is None else np.asarray(trust.domain.states)
                axes = identifiable_axes(model, states=states, **errors)
                model = model.with_mechanics(axes.chain)
            stretch = 0.0 if axes is None else axes.stretch
            links = identifiable_links(model, **errors, stretch=stretch)
        except ModelError as error:
            notes.append(str(error))
        arm = learned_arm(model)
    return Description(path, header, model, arm, axes, links, (*notes, *_doubted(arm, axes)))


def _doubted(arm: LearnedArm, axes: IdentifiableAxes | None) -> Iterator[str]:
    """What is doubtful about the axes, in sentences."""
    found = {} if axes is None else {one.joint: one.fitted_twist for one in axes.uncertainties}
    low, high = NEARLY_PARALLEL
    for axis in arm.axes:
        if found.get(axis.joint) is not None:
            yield (
                f"the fit left the axes of {axis.parent} and {axis.joint} {found[axis.joint]:.2g}° from parallel, but "
                "with parallel ones torques change by less than its error on validation: they are told as parallel"
            )
        tilt = min(axis.twist, 180 - axis.twist)
        if axis.parent is not None and low < tilt < high:
            told = f"the axes of {axis.parent} and {axis.joint} are {tilt:.2g}° from parallel"
            yield f"{told}; if they are parallel on the robot, the distance, offsets and frames here are not its own"


def _torque_errors(header: dict[str, Any]) -> dict[str, Any]:
    """The errors on validation and the number of samples, if the file knows both."""
    scores, fit = header.get("scores") or {}, header.get("fit") or {}
    if "validation" not in scores or "samples" not in fit:
        return {}
    return {
        "rmse": np.array(scores["validation"]["torque"]["rmse"]),
        "samples": int(fit["samples"]),
    }


def _named_kinds(model: Any) -> Sequence[tuple[str, str]]:
    return list(zip(model.joints.names, model.joints.kinds, strict=True))


def _geometry(arm: LearnedArm, axes: IdentifiableAxes | None) -> dict[str, Any]:
    errors = [{}] * len(arm.axes)
    if axes is not None:
        names = ("twist", "distance", "offset")
        errors = [
            {f"{name}_error": _finite(getattr(one, name)) for name in names}
            for one in axes.uncertainties
        ]
    return {
        "axes": [asdict(axis) | error for axis, error in zip(arm.axes, errors, strict=True)],
        "points": arm.points.tolist(),
        "directions": arm.directions.tolist(),
        "gravity": arm.gravity.tolist(),
        "stretch": list(arm.stretch),
    }


def _finite(value: float | None) -> float | None:
    return None if value is None or np.isinf(value) else value


def _links(links: IdentifiableLinks) -> dict[str, Any]:
    alone = [asdict(one) for one in links.named("alone")]
    for one in alone:
        del one["identifiable"]
    others = {
        kind: [f"{one.owner} {one.name}" for one in links.named(kind)]
        for kind in ("combined", "no")
    }
    return {"rank": links.rank, "of": len(links.parameters), "alone": alone, **others}


def friction_of(friction: Friction) -> dict[str, Any]:
    steps = bool(
        {"coulomb", "asymmetric", "stribeck", "load", "stops"} & set(friction.settings.terms)
    )
    widths = {"width": np.exp(friction.log_width).tolist()} if steps else {}
    if "stribeck" in friction.settings.terms:
        widths["stribeck_speed"] = np.exp(friction.log_stribeck_speed).tolist()
    weights = {name: np.asarray(row).tolist() for name, row in friction.named.items()}
    return {"motors": list(friction.motors), "weights": weights, **widths}


def freedoms(arm: LearnedArm, links: IdentifiableLinks | None, *, flat: bool) -> list[str]:
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
    elif flat:
        free.append(
            f"Lengths are in metres because gravity is taken as {GRAVITY_ACCELERATION} m/s² square to the axes: "
            "they are all parallel, and no joint feels how far it leans along them."
        )
    elif links is None or links.feels_gravity:
        free.append(
            f"Lengths are in metres because gravity is taken as {GRAVITY_ACCELERATION} m/s²."
        )
    else:
        free.append("Lengths and masses have no unit, for no joint feels gravity and none slides.")
    return free


def write_picture(description: Description, path: Path, truth: Path | None) -> None:
    """The learned skeleton, over the true one if its URDF is given."""
    arm = _arm(description, "--plot")
    if path.suffix.lower() not in (".png", ".svg", ".pdf"):
        raise SettingsError(f"{path}: a picture is a .png, .svg or .pdf file")
    figure = draw_skeleton(arm, None if truth is None else _true_arm(arm, truth))
    storage.write_whole(
        path, lambda file: figure.savefig(file, format=path.suffix[1:].lower(), dpi=130)
    )


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
    told += _far_centres(body)
    size = float(np.linalg.norm(arm.gravity))
    if abs(size - GRAVITY_ACCELERATION) > 1e-4 * GRAVITY_ACCELERATION:
        told.append(f"The learned gravity is {size:.4g} m/s²; readers of a URDF take their own.")
    return told


def _far_centres(body: RigidBody) -> list[str]:
    """Links whose mass would have to hang far outside of the arm."""
    length = sum(float(np.linalg.norm(one.position)) for one in body.bodies if one.parent >= 0)
    away = {one.joint: float(np.linalg.norm(one.centre)) for one in body.bodies}
    return [
        f"The centre of mass of {joint} is written {far:.2g} m from its joint, in an arm of {length:.2g} m: it is not "
        "the robot's own, but one of many that give the same torques."
        for joint, far in away.items()
        if length > 0 and far > FAR * length
    ]


def _arm(description: Description, option: str) -> LearnedArm:
    if description.arm is None:
        model = description.model
        part = model.residual if model.mechanics is None else model.mechanics
        kind = type(part).__name__
        raise SettingsError(
            f"{option} shows the geometry of a chain, and {description.path.name} is a {kind}, which has none; "
            "fit a chain (`delan fit --model chain`)"
        )
    return description.arm
