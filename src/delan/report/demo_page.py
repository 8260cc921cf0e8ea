"""The page of the demo: what the arm wrote, what the networks learned of it, and how to go on."""

from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jinja2 import Environment, PackageLoader, StrictUndefined
from matplotlib.figure import Figure

from ..drawing import INK, LEARNED, RIVAL, as_image, drawing, truth_line
from ..experiments.demo import DemoResult
from ..joints import COMPONENTS, TorqueComponents
from ..learning.evaluate import predict
from ..models.dynamics import DynamicsModel
from ..robots.two_link import WRITING, pen_position
from ..storage import write_whole

COLOURS = {"DeLaN": LEARNED, "feed-forward": RIVAL}
PART_NAMES = {"inertial": "inertial H q̈", "coriolis": "Coriolis c(q, q̇)", "gravity": "gravity g(q)"}


def write_page(result: DemoResult, path: Path) -> None:
    """Write the page, whole or not at all."""
    learned = learned_torques(result)
    environment = Environment(loader=PackageLoader("delan.report"), autoescape=True, undefined=StrictUndefined)
    letters = [
        {"letter": letter, "test": letter in result.settings.test, "image": as_image(draw_torques(result, learned, i))}
        for i, letter in enumerate(result.settings.letters)
    ]
    page = environment.get_template("demo.html").render(
        letters=sorted(letters, key=lambda one: not one["test"]),
        models={name: _told(fitted) for name, fitted in result.models.items()},
        parts=PART_NAMES,
        test=result.settings.test,
        training_count=len(result.settings.letters) - len(result.settings.test),
        validation_count=len(result.models["DeLaN"].result.trajectories),
        true_share=result.true_valid_share,
        samples=len(result.dataset),
        seconds=result.seconds,
        alphabet=as_image(draw_alphabet(result)),
        curves=as_image(draw_curves(result)),
        inertia=as_image(draw_inertia(result)),
    )
    write_whole(path, lambda file: file.write(page.encode()))


def _told(fitted: Any) -> dict[str, Any]:
    scores, result = fitted.scores, fitted.result
    return {
        "torque": scores.torque,
        "components": scores.components,
        "rollouts": scores.rollouts,
        "optimizer": "Levenberg–Marquardt" if result.optimizer == "lm" else "Adam",
        "width": result.model.settings.width,
        "depth": result.model.settings.depth,
        "seconds": result.seconds,
        "events": result.events,
    }


def draw_alphabet(result: DemoResult) -> Figure:
    """The letters as the arm's pen drew them, those of the test in colour."""
    letters, count = result.settings.letters, len(result.settings.letters)
    columns = 10
    with drawing(9.6, 2.9) as figure:
        axes = figure.subplots(-(-count // columns), columns, squeeze=False)
        for i, one in enumerate(axes.flat):
            one.axis("off")
            if i >= count:
                continue
            pen = pen_position(result.dataset.select([i]).q)
            test = letters[i] in result.settings.test
            one.plot(*pen.T, color=LEARNED if test else INK, linewidth=2.6 if test else 1.6)
            one.set_aspect("equal")
            low = np.array(WRITING["origin"])
            one.set_xlim(low[0] - 0.03, low[0] + 0.35)
            one.set_ylim(low[1] - 0.23, low[1] + 0.43)
    return figure


class LearnedTorques(NamedTuple):
    """What the models say of every sample of the log: DeLaN the parts, its rival the sum."""

    parts: TorqueComponents
    rival: np.ndarray


def learned_torques(result: DemoResult) -> LearnedTorques:
    """The torques of all letters at once."""
    data = result.dataset
    with jax.enable_x64(True):
        motion = tuple(jnp.asarray(column) for column in (data.q, data.qd, data.qdd))
        parts = predict(result.models["DeLaN"].result.model, "components", *motion)
        return LearnedTorques(parts, predict(result.models["feed-forward"].result.model, "inverse_dynamics", *motion))


def draw_torques(result: DemoResult, torques: LearnedTorques, label: int) -> Figure:
    """Torque and its three parts of one letter, a row a joint: truth, DeLaN, and for the torque its rival."""
    data = result.dataset.select([label])
    rows = result.dataset.trajectory == label
    rival = torques.rival[rows]
    learned = TorqueComponents(*(part[rows] for part in torques.parts))
    with drawing(9.6, 3.7) as figure:
        axes = figure.subplots(2, 4, sharex=True)
        for joint, row in enumerate(axes):
            truth_line(row[0], data.t, data.tau[:, joint], "truth")
            row[0].plot(data.t, rival[:, joint], color=RIVAL, linewidth=1.1, label="feed-forward")
            row[0].plot(data.t, learned.total[:, joint], color=LEARNED, linewidth=1.3, label="DeLaN")
            row[0].set_ylabel(f"{data.joints.names[joint]} [N m]")
            for one, name in zip(row[1:], COMPONENTS, strict=True):
                truth_line(one, data.t, data.truth[name][:, joint])
                one.plot(data.t, getattr(learned, name)[:, joint], color=LEARNED, linewidth=1.3)
        for one, title in zip(axes[0], ("torque τ", *PART_NAMES.values()), strict=True):
            one.set_title(title)
        for one in axes[1]:
            one.set_xlabel("time [s]")
        for one in axes.flat:
            one.grid(axis="y")
        figure.legend(*axes[0, 0].get_legend_handles_labels(), loc="outside lower center", ncols=3)
    return figure


def draw_curves(result: DemoResult) -> Figure:
    """Validation and training loss of both networks against training time."""
    with drawing(9.6, 3.0) as figure:
        axes = figure.subplots()
        for name, fitted in result.models.items():
            history = fitted.result.history
            seconds = [row.seconds for row in history]
            axes.plot(
                seconds,
                [row.validation for row in history],
                color=COLOURS[name],
                linewidth=1.6,
                label=f"{name}, validation letters",
            )
            axes.plot(
                seconds,
                [row.training for row in history],
                color=COLOURS[name],
                linewidth=1,
                linestyle=":",
                label=f"{name}, training letters",
            )
        axes.set_yscale("log")
        axes.set_xlabel("training time, compilation included [s]")
        axes.set_ylabel("loss (normalised torque error)")
        axes.grid()
        axes.legend(loc="center left", bbox_to_anchor=(1.01, 0.5))
    return figure


def draw_inertia(result: DemoResult) -> Figure:
    """The entries of H over the elbow angle. They do not depend on the shoulder; nobody told the network."""
    model = result.models["DeLaN"].result.model
    assert isinstance(model, DynamicsModel)
    seen = result.dataset.q
    shoulder = np.linspace(seen[:, 0].min(), seen[:, 0].max(), 15)
    elbow = np.linspace(seen[:, 1].min() - 0.5, seen[:, 1].max() + 0.5, 101)
    grid = np.stack(np.meshgrid(shoulder, elbow, indexing="ij"), axis=-1)
    with jax.enable_x64(True):
        learned = predict(model, "mass_matrix", jnp.asarray(grid.reshape(-1, 2))).reshape(
            len(shoulder), len(elbow), 2, 2
        )
    truth = np.stack([result.truth.mass_matrix(q) for q in grid[0]])
    with drawing(9.6, 2.9) as figure:
        axes = figure.subplots(1, 3, sharex=True)
        for one, (i, j) in zip(axes, ((0, 0), (0, 1), (1, 1)), strict=True):
            entry = learned[:, :, i, j]
            one.axvspan(seen[:, 1].min(), seen[:, 1].max(), color="#f1f4f7", linewidth=0)
            truth_line(one, elbow, truth[:, i, j], "truth")
            one.fill_between(elbow, entry.min(axis=0), entry.max(axis=0), color=LEARNED, alpha=0.25, linewidth=0)
            one.plot(elbow, np.median(entry, axis=0), color=LEARNED, linewidth=1.3, label="DeLaN")
            one.set_title(f"H{'₁₂'[i]}{'₁₂'[j]} [kg m²]")
            one.set_xlabel("elbow angle [rad]")
            margin = max(float(np.ptp(truth[:, i, j])), 0.2 * float(truth[:, i, j].max()))
            one.set_ylim(truth[:, i, j].min() - margin / 2, truth[:, i, j].max() + margin / 2)
            one.grid(axis="y")
        axes[0].legend(loc="lower left")
    return figure
