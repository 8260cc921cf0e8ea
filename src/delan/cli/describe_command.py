"""The command `delan describe`: what a model file holds, and what data leave open."""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ..errors import ModelError, SettingsError
from .app import (
    ModelArgument,
    app,
    command,
    json_flag,
    require_picture,
    require_writable,
    write_picture,
)

if TYPE_CHECKING:
    from ..identification.identifiable_axes import IdentifiableAxes
    from ..identification.identifiable_links import IdentifiableLinks
    from ..models.geometry import LearnedArm
    from ..models.rigid_body import RigidBody

# Axes that are this far from parallel [degrees] may be parallel on the robot; their common normal
# is then badly placed. Below the first number, they count as parallel.
NEARLY_PARALLEL = (0.01, 2.0)
# A centre of mass this many lengths of the arm from its joint cannot be that of a real link.
FAR = 2.0
# Rotors below this inertia [kg m² or kg] are left out of the output.
ROTOR_SHOWN = 1e-6
# Gravity that differs by more than this fraction from what readers of a URDF take is reported.
GRAVITY_ERROR = 1e-4


@app.command()
@command
def describe(
    model: ModelArgument,
    plot: Annotated[
        Path | None, typer.Option(help="Picture of the learned arm to write: png, svg or pdf.")
    ] = None,
    urdf: Annotated[
        Path | None, typer.Option(help="URDF of the true arm, to draw beneath the learned one.")
    ] = None,
    out: Annotated[
        Path | None, typer.Option("-o", "--out", help="URDF file to write the learned arm to.")
    ] = None,
    as_json: Annotated[bool, json_flag("all of it")] = False,
) -> None:
    """Tell what a model is and, of a chain, what it learned: axes, distances, links, rotors and
    friction.
    """
    if urdf is not None and plot is None:
        raise SettingsError(
            "--urdf is the true arm, drawn beneath the learned one; say where with --plot PICTURE, "
            "or write the learned arm with --out FILE"
        )
    require_picture(plot)
    require_writable(out, inputs=[model])
    from .describe_tables import as_dict, show

    description = read_description(model)
    lines = []
    if not as_json:
        show(description)
    if plot is not None:
        _draw(description, plot, urdf)
        if not as_json:  # printed at once: what comes next may fail, and the picture is there
            typer.echo(f"Picture: {plot}")
    if out is not None:
        try:
            lines = [*write_urdf(description, out), f"URDF: {out}"]
        except ModelError as error:
            if as_json or str(error) not in description.notes:
                raise
            raise ModelError(f"{out} was not written; the note above says why") from None
    if as_json:
        lines = [json.dumps(as_dict(description))]
    for line in lines:
        typer.echo(line)


@dataclass(frozen=True, eq=False)
class Description:
    """What a model file holds.

    Attributes:
        arm: the learned geometry; None for a model without mechanics of a chain.
        axes: how certain the axes are; None if the file does not know the errors of the torques.
            Axes that these cannot distinguish from parallel ones are parallel in `model` and `arm`.
        links: which numbers of the links data can determine; None if the chain is no rigid arm.
        notes: doubts, as sentences.
    """

    path: Path
    header: dict[str, Any]
    model: Any
    arm: "LearnedArm | None" = None
    axes: "IdentifiableAxes | None" = None
    links: "IdentifiableLinks | None" = None
    notes: tuple[str, ...] = ()

    @property
    def flat(self) -> bool:
        """Whether all axes are parallel and gravity acts across them."""
        return self.axes is not None and self.axes.flat

    @property
    def weights(self) -> int:
        """The number of learned numbers."""
        import equinox as eqx
        import jax

        return sum(leaf.size for leaf in jax.tree.leaves(eqx.filter(self.model, eqx.is_array)))

    def require_arm(self, option: str) -> "LearnedArm":
        """Return the learned geometry, which an option needs."""
        if self.arm is None:
            part = self.model.residual if self.model.mechanics is None else self.model.mechanics
            raise SettingsError(
                f"{option} shows the geometry of a chain, and {self.path.name} is a "
                f"{type(part).__name__}, which has none; fit a chain (`delan fit --model chain`)"
            )
        return self.arm


def read_description(path: Path) -> Description:
    """Read a model file and, if its model is a chain, what it learned."""
    import jax
    import numpy as np

    from .. import storage
    from ..identification.identifiable_axes import identifiable_axes
    from ..identification.identifiable_links import identifiable_links
    from ..identification.rigid_refit import rigid_refit
    from ..models.geometry import RIGID, learned_arm
    from ..models.model import without_trust
    from .export_command import told_refit

    with jax.enable_x64(True):  # all digits that the file has
        stored, header = storage.read_model(path)
        model: Any = without_trust(stored)
        notes = []
        if stored.added_inertia is not None:
            from ..report.fit_report import added_inertia_text

            notes.append(added_inertia_text(stored))
        if model.chain is None:
            return Description(path, header, model, notes=tuple(notes))
        axes = None
        links = None
        errors = _torque_errors(header)
        stretch = 0.0
        if not model.joints.motor_of and max(learned_arm(model).stretch) > RIGID:
            refit = rigid_refit(stored)
            model = refit.model
            notes.append(told_refit(refit))
        try:
            if errors:
                states = None
                if stored.trust is not None:
                    states = np.asarray(stored.trust.domain.states)
                axes = identifiable_axes(model, states=states, **errors)
                model = model.with_mechanics(axes.chain)
                stretch = axes.stretch
            links = identifiable_links(model, **errors, stretch=stretch)
        except ModelError as error:
            notes.append(str(error))
        arm = learned_arm(model)
    notes += _axis_doubts(arm, axes)
    return Description(path, header, model, arm, axes, links, tuple(notes))


def _torque_errors(header: dict[str, Any]) -> dict[str, Any]:
    """Return the errors on validation and the number of samples, if the file knows both."""
    import numpy as np

    scores = header.get("scores") or {}
    fit = header.get("fit") or {}
    if "validation" not in scores or "samples" not in fit:
        return {}
    rmse = np.array(scores["validation"]["torque"]["rmse"], dtype=float)
    if not np.isfinite(rmse).all():  # null in the file, where a joint had none
        return {}
    return {"rmse": rmse, "samples": int(fit["samples"])}


def _axis_doubts(arm: "LearnedArm", axes: "IdentifiableAxes | None") -> Iterator[str]:
    """Sentences about axes that may be parallel."""
    fitted_twists = {}
    if axes is not None:
        for uncertainty in axes.uncertainties:
            fitted_twists[uncertainty.joint] = uncertainty.fitted_twist
    low, high = NEARLY_PARALLEL
    for axis in arm.axes:
        twist = fitted_twists.get(axis.joint)
        if twist is not None:
            yield (
                f"the fit left the axes of {axis.parent} and {axis.joint} {twist:.2g}° from "
                "parallel, but with parallel ones torques change by less than its error on "
                "validation: they are shown as parallel"
            )
        tilt = min(axis.twist, 180 - axis.twist)
        if axis.parent is not None and low < tilt < high:
            yield (
                f"the axes of {axis.parent} and {axis.joint} are {tilt:.2g}° from parallel; if "
                "they are parallel on the robot, the distance, offsets and frames here are not "
                "its own"
            )


def _draw(description: Description, path: Path, truth: Path | None) -> None:
    """Draw the learned skeleton, over the true one if its URDF is given."""
    from ..report.robot_figures import draw_skeleton

    arm = description.require_arm("--plot")
    true_arm = None
    if truth is not None:
        true_arm = _true_arm(arm, truth)
    write_picture(draw_skeleton(arm, true_arm), path)


def _true_arm(arm: "LearnedArm", truth: Path) -> "LearnedArm":
    import jax

    from ..models.geometry import from_rigid_body, learned_arm
    from ..models.rigid_body import RigidBody

    with jax.enable_x64(True):
        true_arm = learned_arm(from_rigid_body(RigidBody.from_urdf(truth)))
    true_slides = true_arm.joints.sliding.tolist()
    slides = arm.joints.sliding.tolist()
    if true_slides != slides:
        raise SettingsError(
            f"{truth} has {true_arm.joints.dof} joints, {sum(true_slides)} of them sliding, and "
            f"the model {arm.joints.dof}, {sum(slides)} of them sliding, or in another order; give "
            "the URDF of the arm that was learned"
        )
    return true_arm


def write_urdf(description: Description, path: Path) -> list[str]:
    """Write the learned arm as a URDF file; return sentences about what it lacks."""
    import jax
    import numpy as np

    from ..identification.identifiable_links import in_plain_frames
    from ..models.chain import GRAVITY_ACCELERATION
    from ..robots.robot_files import urdf_of
    from ..storage import write_whole

    arm = description.require_arm("--out")
    with jax.enable_x64(True):
        body = in_plain_frames(description.model)
    text = urdf_of(body, name=path.stem)
    write_whole(path, lambda file: file.write(text.encode()))
    sentences = [
        "The URDF's links give the learned torques but for rotors and friction, which a URDF does "
        "not hold; of their numbers, only those identified alone are the robot's own."
    ]
    rotors = []
    for name, inertia in zip(arm.joints.names, arm.armature.tolist(), strict=True):
        if inertia > ROTOR_SHOWN:
            rotors.append(f"{name} {inertia:.3g}")
    if rotors:
        sentences.append(
            f"Rotors left out [kg m² or kg]: {', '.join(rotors)}. Add them in the simulator "
            "(MuJoCo: armature), or take delan.to_rigid_body, which has them."
        )
    sentences += _far_centres(body)
    gravity = float(np.linalg.norm(arm.gravity))
    if abs(gravity - GRAVITY_ACCELERATION) > GRAVITY_ERROR * GRAVITY_ACCELERATION:
        sentences.append(
            f"The learned gravity is {gravity:.4g} m/s²; readers of a URDF take their own."
        )
    return sentences


def _far_centres(body: "RigidBody") -> Iterator[str]:
    """Sentences about links whose mass would have to hang far outside of the arm."""
    import numpy as np

    length = sum(float(np.linalg.norm(link.position)) for link in body.bodies if link.parent >= 0)
    for link in body.bodies:
        distance = float(np.linalg.norm(link.centre))
        if length > 0 and distance > FAR * length:
            yield (
                f"The centre of mass of {link.joint} is written {distance:.2g} m from its joint, "
                f"in an arm of {length:.2g} m: it is not the robot's own, but one of many that "
                "give the same torques."
            )
