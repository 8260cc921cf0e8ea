"""The page of `delan demo`: what the arm wrote, what the networks learned, and what to do next."""

from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from matplotlib.figure import Figure

from ..figures import INK, LEARNED, RIVAL, as_image, drawing, rendered, truth_line
from ..joints import COMPONENTS, TorqueComponents
from ..learning.scores import predict
from ..paper.demo import DemoFit, DemoResult
from ..robots.arms import WRITING, pen_position
from ..storage import write_whole

COLOURS = {"DeLaN": LEARNED, "feed-forward": RIVAL}
OPTIMIZERS = {"lm": "Levenberg–Marquardt", "adam": "Adam"}
PART_NAMES = {
    "inertial": "inertial H q̈",
    "coriolis": "Coriolis c(q, q̇)",
    "gravity": "gravity g(q)",
}


def write_demo_page(result: DemoResult, path: Path) -> None:
    """Write the page as a whole; an exception leaves the previous file intact."""
    settings = result.settings
    learned = learned_torques(result)
    letters = []
    for label, letter in enumerate(settings.letters):
        image = as_image(draw_torques(result, learned, label))
        letters.append({"letter": letter, "test": letter in settings.test, "image": image})
    page = rendered(
        "demo.html",
        letters=sorted(letters, key=lambda row: not row["test"]),  # test letters first
        models={name: _model_row(fitted) for name, fitted in result.models.items()},
        parts=PART_NAMES,
        test=settings.test,
        training_count=len(settings.letters) - len(settings.test),
        validation_count=len(result.models["DeLaN"].result.trajectories),
        true_share=result.true_valid_share,
        samples=len(result.dataset),
        seconds=result.seconds,
        alphabet=as_image(draw_alphabet(result)),
        curves=as_image(draw_losses(result)),
        inertia=as_image(draw_inertia(result)),
    )
    write_whole(path, lambda file: file.write(page.encode()))


def _model_row(fitted: DemoFit) -> dict[str, Any]:
    """Return what the page shows of a model."""
    scores = fitted.scores
    result = fitted.result
    model: Any = result.model
    network = model.mechanics or model.residual
    return {
        "torque": scores.torque,
        "components": scores.components,
        "rollouts": scores.rollouts,
        "optimizer": OPTIMIZERS[result.optimizer],
        "width": network.settings.width,
        "depth": network.settings.depth,
        "seconds": result.seconds,
        "events": result.events,
    }


def draw_alphabet(result: DemoResult) -> Figure:
    """Draw the letters as the pen wrote them, the test letters in colour."""
    letters = result.settings.letters
    left, bottom = WRITING["origin"]
    columns = 10
    with drawing(9.6, 2.9) as figure:
        grid = figure.subplots(-(-len(letters) // columns), columns, squeeze=False)
        for axes in grid.flat:
            axes.axis("off")
        for label, (axes, letter) in enumerate(zip(grid.flat, letters, strict=False)):
            pen = pen_position(result.dataset.select([label]).q)
            if letter in result.settings.test:
                axes.plot(*pen.T, color=LEARNED, linewidth=2.6)
            else:
                axes.plot(*pen.T, color=INK, linewidth=1.6)
            axes.set_aspect("equal")
            axes.set_xlim(left - 0.03, left + 0.35)
            axes.set_ylim(bottom - 0.23, bottom + 0.43)
    return figure


class LearnedTorques(NamedTuple):
    """Torques that the models predict for every sample: DeLaN's components, and the rival's sum."""

    components: TorqueComponents
    rival: np.ndarray


def learned_torques(result: DemoResult) -> LearnedTorques:
    """Return the predicted torques of all letters."""
    data = result.dataset
    with jax.enable_x64(True):
        motion = (jnp.asarray(data.q), jnp.asarray(data.qd), jnp.asarray(data.qdd))
        components = predict(result.models["DeLaN"].result.model, "components", *motion)
        rival = predict(result.models["feed-forward"].result.model, "inverse_dynamics", *motion)
    return LearnedTorques(components, rival)


def draw_torques(result: DemoResult, torques: LearnedTorques, label: int) -> Figure:
    """Draw the torque of a letter and its components, a row per joint: truth, DeLaN and rival."""
    data = result.dataset.select([label])
    rows = result.dataset.trajectory == label
    rival = torques.rival[rows]
    learned = TorqueComponents(*(component[rows] for component in torques.components))
    with drawing(9.6, 3.7) as figure:
        grid = figure.subplots(2, 4, sharex=True)
        for joint, (total, *others) in enumerate(grid):
            truth_line(total, data.t, data.tau[:, joint], "truth")
            total.plot(data.t, rival[:, joint], color=RIVAL, linewidth=1.1, label="feed-forward")
            total.plot(data.t, learned.total[:, joint], color=LEARNED, linewidth=1.3, label="DeLaN")
            total.set_ylabel(f"{data.joints.names[joint]} [N m]")
            for axes, name in zip(others, COMPONENTS, strict=True):
                truth_line(axes, data.t, data.truth[name][:, joint])
                axes.plot(data.t, getattr(learned, name)[:, joint], color=LEARNED, linewidth=1.3)
        for axes, title in zip(grid[0], ("torque τ", *PART_NAMES.values()), strict=True):
            axes.set_title(title)
        for axes in grid[1]:
            axes.set_xlabel("time [s]")
        for axes in grid.flat:
            axes.grid(axis="y")
        figure.legend(*grid[0, 0].get_legend_handles_labels(), loc="outside lower center", ncols=3)
    return figure


def draw_losses(result: DemoResult) -> Figure:
    """Draw the validation and the training loss of both networks against training time."""
    with drawing(9.6, 3.0) as figure:
        axes = figure.subplots()
        for name, fitted in result.models.items():
            colour = COLOURS[name]
            history = fitted.result.history
            rows = [(row.seconds, row.validation, row.training) for row in history]
            seconds, validation, training = np.array(rows).reshape(-1, 3).T
            label = f"{name}, validation letters"
            axes.plot(seconds, validation, color=colour, linewidth=1.6, label=label)
            label = f"{name}, training letters"
            axes.plot(seconds, training, ":", color=colour, linewidth=1, label=label)
        axes.set_yscale("log")
        axes.set_xlabel("training time, compilation included [s]")
        axes.set_ylabel("loss (normalised torque error)")
        axes.grid()
        axes.legend(loc="center left", bbox_to_anchor=(1.01, 0.5))
    return figure


def draw_inertia(result: DemoResult) -> Figure:
    """Draw the entries of H over the elbow angle; on the true arm the shoulder has no influence."""
    model = result.models["DeLaN"].result.model
    seen = result.dataset.q
    low = seen[:, 1].min()
    high = seen[:, 1].max()
    shoulder = np.linspace(seen[:, 0].min(), seen[:, 0].max(), 15)
    # Beyond the recorded angles too, where the network has to extrapolate.
    elbow = np.linspace(low - 0.5, high + 0.5, 101)
    grid = np.stack(np.meshgrid(shoulder, elbow, indexing="ij"), axis=-1)
    with jax.enable_x64(True):
        rows = predict(model, "mass_matrix", jnp.asarray(grid.reshape(-1, 2)))
    learned = rows.reshape(len(shoulder), len(elbow), 2, 2)
    truth = np.stack([result.truth.mass_matrix(q) for q in grid[0]])
    with drawing(9.6, 2.9) as figure:
        row = figure.subplots(1, 3, sharex=True)
        for axes, (i, j) in zip(row, ((0, 0), (0, 1), (1, 1)), strict=True):
            entry = learned[:, :, i, j]
            true_entry = truth[:, i, j]
            least = entry.min(axis=0)
            most = entry.max(axis=0)
            axes.axvspan(low, high, color="#f1f4f7", linewidth=0)
            truth_line(axes, elbow, true_entry, "truth")
            axes.fill_between(elbow, least, most, color=LEARNED, alpha=0.25, linewidth=0)
            axes.plot(elbow, np.median(entry, axis=0), color=LEARNED, linewidth=1.3, label="DeLaN")
            axes.set_title(f"H{'₁₂'[i]}{'₁₂'[j]} [kg m²]")
            axes.set_xlabel("elbow angle [rad]")
            # A constant entry keeps a range of its own size, so that small errors look small.
            margin = max(float(np.ptp(true_entry)), 0.2 * float(true_entry.max()))
            axes.set_ylim(true_entry.min() - margin / 2, true_entry.max() + margin / 2)
            axes.grid(axis="y")
        row[0].legend(loc="lower left")
    return figure
