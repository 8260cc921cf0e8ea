"""The figures of a log's page that show the laws a model found: friction, inertia and gravity."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from ..drawing import JOINT_COLOURS, LEARNED, RIVAL, drawing
from ..joints import Dataset
from ..learning.evaluate import predict
from ..models.actuated import ActuatedModel
from ..models.actuator import Actuator
from ..models.dynamics import DynamicsModel, InverseDynamics
from ..models.rigid_body import RigidBody
from .log_figures import WIDTH, Predicted, dots, force_unit, length_unit, plain_numbers, spread_rows

SPEEDS, PLACES = 241, 41
"""Points of a friction curve and of a sweep over a joint's range."""


def friction_of(model: InverseDynamics) -> Actuator | None:
    """The friction in a model, if it has any."""
    if isinstance(model, ActuatedModel):
        return model.actuator
    return model.friction if isinstance(model, RigidBody) else None


def draw_friction(model: InverseDynamics, told: Predicted) -> Figure | None:
    """Friction of each joint against its speed; dots: what the links leave of the measured torque. None without it."""
    friction = friction_of(model)
    if friction is None or told.parts is None:
        return None
    one = told.samples
    without = one.tau - (told.parts.inertial + told.parts.coriolis + told.parts.gravity)
    load = np.median(np.abs(told.parts.inertial + told.parts.coriolis + told.parts.gravity), axis=0)
    loaded, slid = "load" in friction.settings.terms, "stops" in friction.settings.terms
    columns = min(one.dof, 4)
    rows = -(-one.dof // columns)
    chosen = spread_rows(len(one))
    with drawing(WIDTH if columns > 2 else 3.2 * columns + 0.4, 2.1 * rows + 0.5) as figure:
        axes = list(figure.subplots(rows, columns, squeeze=False).flat)
        for spare in axes[one.dof :]:
            spare.axis("off")
        for joint, panel in zip(range(one.dof), axes, strict=False):
            speeds = np.linspace(one.qd[:, joint].min(), one.qd[:, joint].max(), SPEEDS)
            dots(panel, one.qd[chosen, joint], without[chosen, joint], "measured torque without that of the links")
            if loaded:
                heavy = friction_curve(friction, joint, speeds, load)
                panel.plot(speeds, heavy, "--", color=RIVAL, linewidth=1.3, label="model, median load")
            label = "model" + (", no load" if loaded else "") + (", after much sliding" if slid else "")
            panel.plot(speeds, friction_curve(friction, joint, speeds, 0 * load), color=LEARNED, label=label)
            panel.set_title(one.joints.names[joint], loc="left")
            panel.set_xlabel(f"velocity [{length_unit(one.joints, joint)}/s]")
            panel.set_ylabel(f"friction [{force_unit(one.joints, joint)}]")
            _tight(panel, without[:, joint])
        handles, labels = axes[0].get_legend_handles_labels()
        beside = len(labels) if columns > 2 else 1
        figure.legend(handles, labels, loc="outside lower center", ncols=beside, markerscale=3)
    return figure


def friction_curve(
    friction: Actuator, joint: int, speeds: Float[np.ndarray, " speeds"], load: Float[np.ndarray, " dof"]
) -> Float[np.ndarray, " speeds"]:
    """Friction of one joint that moves alone, stop operators slid [N m or N]."""
    with jax.enable_x64(True):
        qd = np.zeros((len(speeds), friction.joints.dof))
        qd[:, joint] = speeds
        head = jax.tree.map(jnp.asarray, friction)
        return np.asarray(jax.vmap(lambda one: head.friction(one, jnp.asarray(load)))(jnp.asarray(qd)))[:, joint]


def _tight(axes: Axes, values: np.ndarray) -> None:
    """Limits that a few wild dots do not widen."""
    low, high = np.quantile(values, [0.002, 0.998])
    margin = 0.15 * float(high - low) or 1.0
    axes.set_ylim(float(low) - margin, float(high) + margin)


def draw_workspace(model: DynamicsModel, samples: Dataset) -> Figure:
    """Diagonal of the inertia and torque of gravity, each joint swept over its range, the others at their median."""
    dof, joints = samples.dof, samples.joints
    looks = [_look(joint) for joint in range(dof)]
    swept = [_sweep(model, samples, joint) for joint in range(dof)]
    with drawing(WIDTH if dof > 2 else 3.2 * dof + 1.4, 4.6) as figure:
        axes = figure.subplots(2, dof, squeeze=False, sharex="col", sharey="row")
        for joint, (places, inertia, gravity) in enumerate(swept):
            for one in range(dof):
                axes[0, joint].plot(places, inertia[:, one], **looks[one])
                axes[1, joint].plot(places, gravity[:, one], label=joints.names[one], **looks[one])
            axes[0, joint].set_title(joints.names[joint], fontsize=9 if dof < 6 else 8)
            axes[1, joint].set_xlabel(f"[{length_unit(joints, joint)}]")
            axes[1, joint].locator_params(axis="x", nbins=3 if dof > 4 else 5)
            for panel in axes[:, joint]:
                panel.grid(axis="y")
        axes[0, 0].set_yscale("log")
        plain_numbers(axes[0, 0].yaxis)
        sliding = "prismatic" in joints.kinds
        axes[0, 0].set_ylabel("inertia Hᵢᵢ [kg m²" + (" or kg]" if sliding else "]"))
        axes[1, 0].set_ylabel("gravity torque [N m" + (" or N]" if sliding else "]"))
        figure.align_ylabels()
        handles, labels = axes[1, 0].get_legend_handles_labels()
        figure.legend(handles, labels, loc="outside lower center", ncols=min(dof, 8), title="inertia and gravity of")
    return figure


def _look(joint: int) -> dict[str, Any]:
    """A colour of its own for each of seven joints; the next seven are dashed."""
    again, colour = divmod(joint, len(JOINT_COLOURS))
    return {"color": JOINT_COLOURS[colour], "linestyle": ("-", "--", ":")[again % 3], "linewidth": 1.4}


def _sweep(model: DynamicsModel, samples: Dataset, joint: int) -> tuple[Any, Any, Any]:
    """Places of one joint, and the diagonal of H and the torque of gravity there."""
    places = np.linspace(samples.q[:, joint].min(), samples.q[:, joint].max(), PLACES)
    q = np.tile(np.median(samples.q, axis=0), (PLACES, 1))
    q[:, joint] = places
    with jax.enable_x64(True):
        still = jnp.zeros(q.shape)
        inertia = predict(model, "mass_matrix", jnp.asarray(q))
        parts = predict(model, "components", jnp.asarray(q), still, still)
    return places, np.diagonal(inertia, axis1=1, axis2=2), parts.gravity
