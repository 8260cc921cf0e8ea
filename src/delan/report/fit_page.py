"""The page of a fit: verdict, errors of every model, figures of the best, and how it came about."""

import json
import math
import platform
from collections.abc import Iterator, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

import jax
import numpy as np
from jaxtyping import PRNGKeyArray
from matplotlib.figure import Figure

from ..figures import as_image, page_width, rendered
from ..joints import Dataset
from ..learning.scores import nmse_interval
from ..learning.study import Entry
from ..logs.doctor.finding import plural
from ..models.friction import FrictionSettings
from ..storage import write_whole
from .elastic_text import elastic_notes
from .fit_figures import (
    Predicted,
    draw_cutoffs,
    draw_friction,
    draw_parts,
    draw_residuals,
    draw_traces,
    draw_workspace,
    predicted,
    window,
)
from .fit_report import (
    NAMES,
    FitReport,
    ModelErrors,
    added_inertia_text,
    free_joints,
    more_data,
    motion_text,
    verdict_text,
)
from .replay_picture import draw_replay, replay_rows

Row = dict[str, Any]

# Below this share of distinct motion, a page says how much of a log repeats itself.
REPEATED = 0.9


def write_page(report: FitReport, path: Path) -> None:
    """Write the page of a fit as a whole; an exception leaves the previous file intact."""
    text = page_of(report)
    write_whole(path, lambda file: file.write(text.encode()))


def page_of(report: FitReport) -> str:
    """Return the page as HTML; everything it shows is inside it."""
    model = report.shown(report.chosen, report.unseen)
    prediction = predicted(model, report.unseen, parts=True, trusted=report.trusted)
    notes = []
    serious = []
    for finding in report.findings:
        if finding.severity == "note":
            notes.append(finding)
        else:
            serious.append(finding)
    return rendered(
        "fit.html",
        log=report.log,
        model=NAMES.get(report.chosen.name, report.chosen.name),
        verdict=verdict_text(report),
        doubtful=report.verdict.decision != "deploy",
        summary=_summary(report),
        elastic=bool(report.fit.model.joints.motor_of),
        relearned=report.chosen.relearned is not None,
        motion=motion_text(report.verdict),
        added_inertia=added_inertia_text(report.fit.model),
        simulable=report.verdict.simulable,
        replays=[] if report.replay is None else list(replay_rows(report.replay)),
        forward=_forward_text(report),
        notices=list(_notices(report)),
        # The intervals of two pages of one fit are the same.
        tables=_tables(report, jax.random.key(0)),
        where=report.unseen_words,
        tested=report.test_set is not None,
        figures=_figures(report, prediction),
        preparation=dict(_preparation(report)),
        selection=list(_selection(report)),
        no_selection=_no_selection_text(report),
        coverage=list(_coverage(report, prediction)),
        more_data=list(more_data(report)),
        findings=serious,
        notes=notes,
        command=report.command,
        versions=_versions(report),
        settings=_settings(report),
    )


def _summary(report: FitReport) -> str:
    fit = report.fit
    data = fit.dataset
    # Time inside trajectories; a clock that jumped back adds none.
    steps = np.clip(np.diff(data.t), 0, None)
    seconds = float(np.sum(steps[np.diff(data.trajectory) == 0]))
    samples = len(data.samples)
    text = f"{data.dof} joints, {samples} samples of {seconds:.0f} s of motion"
    parts = len(fit.study.split.folds)
    if report.chosen.relearned is not None:
        text += f" in {parts} parts, each left out in turn to choose by; the model learned from all"
    else:
        training, validation = len(fit.training.samples), len(fit.validation.samples)
        text += f": {training} to learn from, {validation} to choose by"
        between = samples - training - validation
        if between:
            text += f", {between} between them left out"
    return f"{text}. It took {fit.seconds:.0f} s."


def _notices(report: FitReport) -> Iterator[str]:
    if report.fit.interrupted:
        yield "The fit was stopped early: these are the best models so far."
    errors = sum(finding.severity == "error" for finding in report.findings)
    if errors:
        count = plural(errors, "error")
        yield f"`delan check` finds {count} in the log, listed at the end of this page."
    yield from elastic_notes(report.fit)
    yield from free_joints(report)
    if report.chosen.training is not None:
        for event in report.chosen.training.events:
            yield event[:1].upper() + event[1:] + "."


def _forward_text(report: FitReport) -> str:
    """Return how well the chosen model predicts accelerations, empty for one that cannot."""
    scores = report.test_scores.get(report.chosen.name, report.chosen.validation).acceleration
    # A motion without accelerations has no errors of them.
    if scores is None or not np.isfinite(scores.nmse).any():
        return ""
    # Joints without acceleration have no error.
    worst = int(np.nanargmax(scores.nmse))
    name = report.fit.dataset.joints.names[worst]
    return (
        "Used as forward dynamics, from torques to accelerations, its nMSE is "
        f"{_number(scores.nmse_mean)}, at worst {_number(scores.nmse[worst])} ({name}). "
        "Where inertia is small, a little torque is much acceleration; do not simulate with it "
        "where a joint is above 1."
    )


def _tables(report: FitReport, key: PRNGKeyArray) -> list[Row]:
    """Return the errors on the test motion, if there is one, and on the validation motion."""
    fit = report.fit
    tables = []
    if report.test_set is not None:
        caption = (
            f"On the test motion, {report.test}: {_motion_text(report.test_set)}. It took "
            "no part in the choice of the model."
        )
        tables.append(_table(report, caption, report.test_errors(), key))
    caption = (
        f"On the validation motion, {_folds_text(report)}. By these errors the model was chosen."
    )
    if fit.bandwidth is not None:
        caption += f" Torques, on all of this page, have a bandwidth of {fit.bandwidth:.3g} Hz."
    parts = 0
    if len(fit.study.split.folds) == report.chosen.folds:
        parts = report.chosen.folds
    tables.append(_table(report, caption, report.validation_errors(), key, parts=parts))
    return tables


def _folds_text(report: FitReport) -> str:
    """Return how the log was parted, and how new what was left out is."""
    split = report.fit.study.split
    count = len(split.folds)
    if count == 1:
        return f"{_motion_text(report.fit.validation)}"
    text = f"the whole log in {count} parts, each predicted by a model that has not learned from it"
    if not math.isnan(split.novelty):
        text += (
            f". States left out are {split.novelty:.0f} times as far from the nearest training "
            "state as neighbours in time are from each other"
        )
    if split.distinct < REPEATED:
        text += (
            f"; only {100 * split.distinct:.0f} % of the motion is distinct, the rest repeats it"
        )
    return text


def _motion_text(dataset: Dataset) -> str:
    samples = dataset.samples
    count = len(samples.trajectories)
    noun = "trajectory" if count == 1 else "trajectories"
    return f"{len(samples)} samples of {count} {noun}"


def _table(
    report: FitReport,
    caption: str,
    errors: Mapping[str, ModelErrors],
    key: PRNGKeyArray,
    *,
    parts: int = 0,
) -> Row:
    """Return a column for each model, a row for the mean and for each joint.

    A head says if a model was scored on fewer than `parts` of the log. The last column is the size
    of the chosen model's errors in units of the torque.
    """
    joints = report.fit.dataset.joints
    rows = [{"joint": name, "cells": [], "size": ""} for name in ("mean", *joints.names)]
    heads = []
    for entry in report.fit.entries:
        chosen = entry is report.chosen
        name = NAMES.get(entry.name, entry.name)
        notes = [_choices_text(entry)]
        if entry.folds < parts:
            notes.append(f"on {entry.folds} of {parts} parts")
        note = "; ".join(filter(None, notes))
        heads.append({"name": name, "note": note, "chosen": chosen})
        column = errors[entry.name]
        torque = column.scores.torque
        if chosen:
            for row, rmse, share, units in zip(
                rows[1:], torque.rmse, torque.share, joints.units, strict=True
            ):
                row["size"] = f"{rmse:.2g} {units.tau}"
                # A torque that is constant has no range to compare with.
                if np.isfinite(share):
                    row["size"] += f", {100 * share:.2g} %"
        for row, value, bounds in zip(
            rows, (torque.nmse_mean, *torque.nmse), _bounds(column, key, joints.dof), strict=True
        ):
            row["cells"].append({"value": _number(value), "interval": bounds})
    return {"caption": caption, "heads": heads, "rows": rows}


def _bounds(errors: ModelErrors, key: PRNGKeyArray, dof: int) -> list[str]:
    """Return the intervals of the mean and of each joint, empty where there is none."""
    if errors.residual is None or errors.blocks is None or errors.size is None:
        return [""] * (dof + 1)
    interval = nmse_interval(errors.residual, errors.size, errors.blocks, key)
    lows = (interval.mean_low, *interval.low)
    highs = (interval.mean_high, *interval.high)
    bounds = []
    for low, high in zip(lows, highs, strict=True):
        bounds.append("" if math.isnan(low) else f"{_number(low)} … {_number(high)}")
    return bounds


def _choices_text(entry: Entry) -> str:
    """Return what was chosen for a model on the validation motion."""
    choices = []
    for name, value in entry.chosen.items():
        if isinstance(value, list | tuple):
            value = ", ".join(map(str, value))
        if value == "":
            value = "none"
        choices.append(f"{name.replace('_', ' ')}: {value}")
    return "; ".join(choices)


def _number(value: float) -> str:
    """Return two digits, without a power of ten where it can be."""
    if not math.isfinite(value):
        return "–"
    if 0 < abs(value) < 1e-3:
        return f"{value:.1e}".replace("e-0", "e-")
    return f"{value:.2g}"


def _figures(report: FitReport, prediction: Predicted) -> dict[str, Row]:
    """Return each figure by name, as the page shows it; none where there is nothing to draw."""
    figures = {}
    for name, figure in _drawn(report, prediction):
        figures[name] = {"image": as_image(figure), "width": page_width(figure)}
    return figures


def _drawn(report: FitReport, prediction: Predicted) -> Iterator[tuple[str, Figure]]:
    model = report.chosen.deployed
    shown = prediction.rows(window(prediction.samples))
    yield "traces", draw_traces(shown)
    if prediction.parts is not None:
        yield "parts", draw_parts(shown)
    friction = draw_friction(model, prediction)
    if friction is not None:
        yield "friction", friction
    if model.promises.mechanics:
        yield "workspace", draw_workspace(model, report.fit.dataset.samples)
    if report.replay is not None:
        yield "replay", draw_replay(report.replay)
    yield "residuals", draw_residuals(prediction)
    choice = report.fit.preparation
    if len(choice.trials) > 1 and choice.settings.cutoff is not None:
        yield "cutoffs", draw_cutoffs(choice.trials, choice.settings.cutoff)


def _preparation(report: FitReport) -> Iterator[tuple[str, str]]:
    """Yield what was done to the log: each step and its description."""
    fit = report.fit
    settings = fit.preparation.settings
    yield "low-pass", _cutoff_text(report)
    if settings.delay:
        yield (
            "delay",
            f"{1e3 * settings.delay:.2f} ± {1e3 * fit.preparation.delay_error:.2f} ms, by which "
            "the torques came late, taken out; the "
            f"validation error fell by {100 * fit.preparation.delay_gain:.0f} %",
        )
    else:
        yield "delay", "none taken out"
    done = fit.dataset.preparation
    if done is not None:
        if done.excerpt is not None:
            yield (
                "read",
                f"{done.excerpt.summary}, evenly over it; the whole is larger than the memory it "
                "may take",
            )
        yield "velocities, accelerations", f"{done.velocity}, {done.acceleration}"
        rows = f"{done.rows} rows"
        if settings.cutoff is not None:
            rows += ", put on even time,"
        rows += f" give {done.samples} samples"
        if done.dropped:
            rows += "; left out: "
            rows += ", ".join(f"{count} {why}" for why, count in done.dropped.items())
        yield "rows", rows
        cuts = ", ".join(f"{count} at {why}" for why, count in done.cuts.items())
        yield "cuts", cuts or "none: no gap or pause long enough"
    yield "without accelerations", _windows_text(report)


def _cutoff_text(report: FitReport) -> str:
    """Return what the low-pass did."""
    asked = report.fit.options.settings
    cutoff = report.fit.preparation.settings.cutoff
    if asked.accelerations == "none":
        return f"none; for the band and the pictures of this page alone, {cutoff:.3g} Hz"
    if cutoff is None:
        return "none: the log has accelerations, and is taken as it is"
    how = "chosen on the validation motion"
    if report.fit.preparation.at_edge:
        how += ", the lowest that could be tried: the log may hold little but slow motion and noise"
    if asked.cutoff is not None:
        how = "as asked for"
    return f"{cutoff:.3g} Hz over positions, velocities and torques alike, {how}"


def _windows_text(report: FitReport) -> str:
    """Return what came of the trial to learn without accelerations."""
    if report.fit.options.settings.accelerations == "none":
        return "all models were learned and compared by torques averaged over short windows"
    chain = report.fit.entry("chain")
    if chain is None or chain.windows is None:
        return "not tried"
    trial = chain.windows
    kept = "without them" if trial.better else "with them"
    return (
        f"validation nMSE of the chain {_number(trial.with_accelerations)} with filtered "
        f"accelerations, {_number(trial.without_accelerations)} without any (torques averaged over "
        f"short windows): it was kept {kept}"
    )


def _selection(report: FitReport) -> Iterator[Row]:
    """Yield what each term of friction was worth, of the chain, or else of the chosen model."""
    steps = ()
    for entry in (report.chosen, report.fit.entry("chain")):
        if entry is not None and entry.training is not None and entry.training.selection:
            steps = entry.training.selection
    before = None
    for step in steps:
        change = ""
        if before is not None:
            change = f"{100 * (step.validation / before - 1):+.1f} %"
        yield {
            "term": step.term,
            "validation": _number(step.validation),
            "change": change,
            "outcome": step.outcome,
        }
        # A term is compared with the terms that were kept before it.
        if step.kept or before is None:
            before = step.validation


def _no_selection_text(report: FitReport) -> str:
    friction = report.fit.options.friction
    if friction == "auto":
        return "No terms were tried beyond viscous and Coulomb friction and an offset."
    terms = "no friction"
    if friction is not None:
        terms = ", ".join(friction.terms)
    return f"Nothing was chosen: {terms} was asked for."


def _coverage(report: FitReport, prediction: Predicted) -> Iterator[Row]:
    """Yield how often the band held the torque of each joint, and how wide it is."""
    if report.coverage is None or prediction.band is None:
        return
    joints = prediction.samples.joints
    for joint, name in enumerate(joints.names):
        unit = joints.units[joint].tau
        half = float(np.median(prediction.band[:, joint]))
        spread = float(prediction.samples.tau[:, joint].std())
        yield {
            "joint": name,
            "inside": f"{100 * report.coverage[joint]:.0f} %",
            "width": f"{half:.2g} {unit}",
            "spread": f"{spread:.3g} {unit}",
        }


def _versions(report: FitReport) -> dict[str, str]:
    versions = ", ".join(f"{name} {version}" for name, version in report.versions.items())
    system = f"{platform.system()} {platform.machine()}"
    return {
        "versions": versions or "unknown",
        "drawn on": f"{system}, Python {platform.python_version()}",
    }


def _settings(report: FitReport) -> str:
    """Return what the fit was asked for, as JSON."""
    options = report.fit.options
    architecture: Any = options.architecture
    if architecture is not None:
        architecture = asdict(architecture)
    friction: Any = options.friction
    if isinstance(friction, FrictionSettings):
        friction = asdict(friction)
    asked = {
        "models": options.models,
        "architecture": architecture,
        "friction": friction,
        "urdf": options.urdf,
        "seconds": options.seconds,
        "seed": options.seed,
        "accelerations": options.settings.accelerations,
        "cutoff": options.settings.cutoff,
        "seeds": options.settings.seeds,
        "resumed": options.settings.start.resume,
        "training": options.settings.training.described(),
    }
    return json.dumps(asked, indent=2, default=str, ensure_ascii=False)
