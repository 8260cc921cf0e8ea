"""The page of a log: the verdict first, then every model's errors, figures of the best, and how it
all came about.
"""

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
from jinja2 import Environment, PackageLoader, StrictUndefined

from ..figures import as_image
from ..joints import Dataset
from ..learning.scores import Scores, nmse_interval, time_blocks
from ..learning.study import Entry, FrictionChoice
from ..logs.doctor.finding import Finding, plural
from ..models.friction import FrictionSettings
from ..storage import write_whole
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
from .fit_report import NAMES, FitReport, more_data, verdict_text

REM_PER_INCH = 6.2
"""So that letters are of one size in all figures, and 9.6 inches fill the page."""
CAPTIONS = {
    "traces": "Measured torque (thin) and what the model says of it, from the middle of {where}. A band, where there "
    "is one, is to hold 90 % of the measured torques.",
    "parts": "The same seconds: what inertia, Coriolis forces, gravity and friction have of the torque.",
    "friction": "Line: the friction of the model when the joint moves alone, friction with memory taken as slid. Dots: "
    "what is left of the measured torque on {where} when the torque of the links is taken off.",
    "workspace": "Each column sweeps one joint over its range in the log, the others at their median. Above: the "
    "diagonal of the inertia matrix; below: the torque that gravity takes. A line for each joint that feels it.",
    "residuals": "Measured minus predicted torque on {where}, a row for each joint. The orange line is the running "
    "median: where it leaves zero, the model misses a law, and more of the same motion will not mend it.",
    "cutoffs": "What a short fit at each cut-off was worth on the validation motion, judged by the torques of the "
    "widest filter: to the left motion is lost, to the right noise comes in.",
}
Row = dict[str, Any]


def write_page(page: FitReport, path: Path) -> None:
    """Write the page of a log, whole or not at all."""
    text = page_of(page)
    write_whole(path, lambda file: file.write(text.encode()))


def page_of(report: FitReport) -> str:
    """The page as text; everything it shows stands inside of it."""
    environment = Environment(
        loader=PackageLoader("delan.report"), autoescape=True, undefined=StrictUndefined
    )
    told = predicted(
        report.shown(report.chosen, report.unseen),
        report.unseen,
        parts=True,
        trusted=report.trusted,
    )
    serious = [_finding(one) for one in report.findings if one.severity != "note"]
    return environment.get_template("log.html").render(
        log=report.log,
        model=NAMES.get(report.chosen.name, report.chosen.name),
        verdict=verdict_text(report),
        doubtful=report.verdict.decision != "deploy",
        summary=_summary(report),
        relearned=report.chosen.relearned is not None,
        forward=_forward(report),
        notices=list(_notices(report)),
        tables=_tables(report, jax.random.key(0)),
        figures=_figures(report, told),
        preparation=dict(_preparation(report)),
        selection=list(_selection(report)),
        no_selection=_no_selection(report),
        coverage=list(_coverage(report, told)),
        coverage_told=_coverage_told(report),
        more_data=list(more_data(report)),
        findings=serious,
        notes=[_finding(one) for one in report.findings if one.severity == "note"],
        command=report.command,
        versions=dict(_facts(report)),
        settings=_settings(report),
    )


def _finding(one: Finding) -> Row:
    names = ("severity", "where", "text", "why", "remedy")
    return {name: getattr(one, name) for name in names} | {"kind": one.kind.replace("_", " ")}


def _summary(report: FitReport) -> str:
    fit = report.fit
    seconds = float(
        np.sum(np.clip(np.diff(fit.dataset.t), 0, None)[np.diff(fit.dataset.trajectory) == 0])
    )
    told = (
        f"{fit.dataset.dof} joints, {len(fit.dataset.samples)} samples of {seconds:.0f} s of motion"
    )
    learned, chosen_by = len(fit.training.samples), len(fit.validation.samples)
    between = len(fit.dataset.samples) - learned - chosen_by
    apart = f", {between} between them left out" if between else ""
    parts = f"{learned} to learn from, {chosen_by} to choose by{apart}"
    again = (
        "" if report.chosen.relearned is None else " Once chosen, the model learned from those too."
    )
    return f"{told}: {parts}.{again} All of it took {fit.seconds:.0f} s."


def _notices(report: FitReport) -> Iterator[str]:
    if report.fit.interrupted:
        yield "The fit was stopped early: these are the best models so far."
    errors = sum(one.severity == "error" for one in report.findings)
    if errors:
        yield f"`delan check` finds {plural(errors, 'error')} in the log, told at the end of this page."
    if report.chosen.training is not None:
        for event in report.chosen.training.events:
            yield event[:1].upper() + event[1:] + "."


def _forward(report: FitReport) -> str:
    """How well the chosen model predicts accelerations, in a sentence; nothing of one that cannot."""
    scores = report.test_scores.get(report.chosen.name, report.chosen.validation).acceleration
    if (
        scores is None or not np.isfinite(scores.nmse).any()
    ):  # of a motion without accelerations there are none
        return ""
    worst = int(np.nanargmax(scores.nmse))
    return (
        f"Turned around, from torques to accelerations, its nMSE is {_number(scores.nmse_mean)}, at worst "
        f"{_number(scores.nmse[worst])} ({report.fit.dataset.joints.names[worst]}). Where inertia is small, a little "
        "torque is much acceleration; do not simulate with it where a joint is above 1."
    )


def _tables(report: FitReport, key: PRNGKeyArray) -> list[Row]:
    """Of the validation motion, by which the choice was made, and of the test if there is one; the
    test first.
    """
    fit = report.fit
    scores = {entry.name: entry.validation for entry in fit.entries}
    told = f"On the validation motion: {_motion(fit.validation)}. By these errors the model was chosen."
    cutoff = fit.preparation.settings.cutoff
    if cutoff is not None and fit.options.settings.accelerations != "none":
        told += (
            f" Measured torques, on all of this page, are those of the low-pass of {cutoff:.3g} Hz."
        )
    tables = [_table(report, told, fit.validation, scores, key)]
    if report.test_set is not None:
        told = f"On the test motion, {report.test}: {_motion(report.test_set)}. It was read when the choice had been made."
        tables.insert(0, _table(report, told, report.test_set, report.test_scores, key))
    return tables


def _motion(dataset: Dataset) -> str:
    one = dataset.samples
    count = len(one.trajectories)
    return f"{len(one)} samples of {count} {'trajectory' if count == 1 else 'trajectories'}"


def _table(
    report: FitReport,
    caption: str,
    dataset: Dataset,
    scores: Mapping[str, Scores],
    key: PRNGKeyArray,
) -> Row:
    """A column for each model, a row for the mean and for each joint."""
    blocks, columns = time_blocks(dataset), []
    entries = [entry for entry in report.fit.entries if entry.name in scores]
    for entry in entries:
        torque, told = scores[entry.name].torque, predicted(report.shown(entry, dataset), dataset)
        sure = nmse_interval(told.residual, told.samples.tau, blocks, key)
        ends = [(sure.mean_low, sure.mean_high), *zip(sure.low, sure.high, strict=True)]
        columns.append(
            [
                {
                    "value": _number(value),
                    "interval": "" if math.isnan(low) else f"{_number(low)} … {_number(high)}",
                }
                for value, (low, high) in zip((torque.nmse_mean, *torque.nmse), ends, strict=True)
            ]
        )
    heads = [
        {
            "name": NAMES.get(entry.name, entry.name),
            "note": _chosen(entry) if dataset is report.fit.validation else "",
            "chosen": entry is report.chosen,
        }
        for entry in entries
    ]
    names = ("mean", *dataset.joints.names)
    rows = [
        {"joint": name, "cells": cells}
        for name, cells in zip(names, zip(*columns, strict=True), strict=True)
    ]
    return {"caption": caption, "heads": heads, "rows": rows}


def _chosen(entry: Entry) -> str:
    """What was chosen for a model on the validation motion."""
    told = []
    for name, value in entry.chosen.items():
        shown = ", ".join(map(str, value)) if isinstance(value, list | tuple) else value
        told.append(f"{name.replace('_', ' ')}: {shown if shown != '' else 'none'}")
    return "; ".join(told)


def _number(value: float) -> str:
    """Two digits, without a power of ten where it can be."""
    if not math.isfinite(value):
        return "–"
    return f"{value:.1e}".replace("e-0", "e-") if 0 < abs(value) < 1e-3 else f"{value:.2g}"


def _figures(report: FitReport, told: Predicted) -> dict[str, Row | None]:
    """Each figure with its caption; None where there is nothing to draw."""
    drawn = _drawn(report, told)
    return {
        name: None
        if drawn[name] is None
        else {
            "image": as_image(drawn[name]),
            "width": f"{REM_PER_INCH * drawn[name].get_figwidth():.1f}rem",
            "caption": caption.format(where=report.unseen_words),
        }
        for name, caption in CAPTIONS.items()
    }


def _drawn(report: FitReport, told: Predicted) -> dict[str, Any]:
    model, fit, near = report.chosen.deployed, report.fit, told.rows(window(told.samples))
    trials, cutoff = fit.preparation.trials, fit.preparation.settings.cutoff
    return {
        "traces": draw_traces(near),
        "parts": draw_parts(near) if told.parts is not None else None,
        "friction": draw_friction(model, told),
        "workspace": draw_workspace(model, fit.dataset.samples)
        if model.promises.mechanics
        else None,
        "residuals": draw_residuals(told),
        "cutoffs": draw_cutoffs(trials, cutoff) if len(trials) > 1 and cutoff is not None else None,
    }


def _preparation(report: FitReport) -> Iterator[tuple[str, str]]:
    """What was done to the log, in words."""
    fit, done = report.fit, report.fit.dataset.preparation
    choice = fit.preparation
    if fit.options.settings.accelerations == "none":
        yield (
            "low-pass",
            f"none; for the band and the pictures of this page alone, {choice.settings.cutoff:.3g} Hz",
        )
    elif choice.settings.cutoff is None:
        yield "low-pass", "none: the log has accelerations, and is taken as it is"
    else:
        how = (
            "as asked for"
            if fit.options.settings.cutoff is not None
            else "chosen on the validation motion"
        )
        yield (
            "low-pass",
            f"{choice.settings.cutoff:.3g} Hz over positions, velocities and torques alike, {how}",
        )
    if choice.settings.delay:
        told = f"{1e3 * choice.settings.delay:.2f} ms, by which the torques came late, taken out"
        yield "delay", f"{told}; the validation error fell by {100 * choice.delay_gain:.0f} %"
    else:
        yield "delay", "none taken out"
    if done is not None:
        if done.excerpt is not None:
            yield (
                "read",
                f"{done.excerpt.summary}, evenly over it; the whole is larger than the memory it may take",
            )
        yield "velocities, accelerations", f"{done.velocity}, {done.acceleration}"
        dropped = ", ".join(f"{count} {why}" for why, count in done.dropped.items())
        even = ", put on even time," if choice.settings.cutoff is not None else ""
        yield (
            "rows",
            f"{done.rows} rows{even} give {done.samples} samples"
            + (f"; left out: {dropped}" if dropped else ""),
        )
        cuts = ", ".join(f"{count} at {why}" for why, count in done.cuts.items())
        yield "cuts", cuts or "none: no gap or pause long enough"
    if fit.options.settings.accelerations == "none":
        yield (
            "without accelerations",
            "all models were learned and compared by torques averaged over short windows",
        )
    else:
        yield "without accelerations", _windows_text(fit.entry("chain"))


def _windows_text(chain: Entry | None) -> str:
    """What came of the trial to learn without accelerations."""
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
    """What each term of friction was worth, of the chain, or else of the chosen model."""
    before = None
    for step in _selecting(report):
        change = "" if before is None else f"{100 * (step.validation / before - 1):+.1f} %"
        yield {
            "term": step.term,
            "validation": _number(step.validation),
            "change": change,
            "told": step.told,
        }
        before = step.validation if step.kept or before is None else before


def _selecting(report: FitReport) -> tuple[Any, ...]:
    for entry in (report.fit.entry("chain"), report.chosen):
        if entry is not None and entry.training is not None and entry.training.selection:
            return entry.training.selection
    return ()


def _no_selection(report: FitReport) -> str:
    friction = report.fit.options.friction
    if friction == "auto":
        return "No terms were tried beyond viscous and Coulomb friction and an offset."
    return (
        "Nothing was chosen: "
        + ("no friction" if friction is None else ", ".join(friction.terms))
        + " was asked for."
    )


def _coverage(report: FitReport, told: Predicted) -> Iterator[Row]:
    if report.coverage is None or told.band is None:
        return
    joints = told.samples.joints
    for joint, name in enumerate(joints.names):
        unit, half = joints.units[joint].tau, float(np.median(told.band[:, joint]))
        spread = float(told.samples.tau[:, joint].std())
        inside = f"{100 * report.coverage[joint]:.0f} %"
        yield {
            "joint": name,
            "inside": inside,
            "width": f"{half:.2g} {unit}",
            "spread": f"{spread:.3g} {unit}",
        }


def _coverage_told(report: FitReport) -> str:
    if report.test_set is not None:
        return "The band was made to hold 90 % of the torques of the validation motion; the shares are of the test motion."
    return "The shares are of the validation motion, by which the band was made; a test log would tell how it holds up."


def _facts(report: FitReport) -> Iterator[tuple[str, str]]:
    yield (
        "versions",
        ", ".join(f"{name} {version}" for name, version in report.versions.items()) or "not told",
    )
    yield (
        "drawn on",
        f"{platform.system()} {platform.machine()}, Python {platform.python_version()}",
    )


def _settings(report: FitReport) -> str:
    """What the fit was asked for, as JSON."""
    options = report.fit.options
    start = options.settings.start
    asked = {
        "models": options.models,
        "architecture": None if options.architecture is None else asdict(options.architecture),
        "friction": _friction_asked(options.friction),
        "urdf": options.urdf,
        "seconds": options.seconds,
        "seed": options.seed,
        "accelerations": options.settings.accelerations,
        "cutoff": options.settings.cutoff,
        "seeds": options.settings.seeds,
        "resumed": start.resume,
        "training": asdict(options.settings.training),
    }
    return json.dumps(asked, indent=2, default=str, ensure_ascii=False)


def _friction_asked(friction: FrictionChoice) -> Any:
    return asdict(friction) if isinstance(friction, FrictionSettings) else friction
