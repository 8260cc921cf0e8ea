"""The page of `delan reproduce`: claims, measurements, figures, and how to repeat it."""

import base64
import io
import json
import math
import platform
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import matplotlib
import numpy as np
from matplotlib.figure import Figure

from ..errors import SettingsError
from ..figures import STYLE, as_image, page_width, rendered
from ..logs.doctor.finding import plural
from ..motions.alphabet import alphabet_named
from ..paper.cells import Results, Setting
from ..paper.comparison import pooled
from ..paper.reproduction import ExperimentResult, Reproduction
from ..paper.tidy import tidy_csv
from ..storage import write_whole

# Verdicts differ by sign and word; the colours of the page only help.
MARKS = {
    "yes": {"sign": "✓", "word": "holds"},
    "partly": {"sign": "◐", "word": "partly"},
    "no": {"sign": "✕", "word": "does not hold"},
    "undecided": {"sign": "?", "word": "not decided"},
}
BACKENDS = {"local": "processes on one machine", "dask": "a Dask cluster", "ray": "a Ray cluster"}
# Largest PNG file, and the resolution that is tried first.
PNG_BYTES = 300_000
PNG_DPI = 130.0
# A larger figure stands on the page as PNG instead of SVG, which browsers would draw slowly.
SVG_BYTES = 3_000_000


class Written(NamedTuple):
    """Paths of page, claims, their provenance, and figures with their results as CSV."""

    page: Path
    claims: Path
    provenance: Path
    figures: tuple[Path, ...]


def write_reproduction(reproduction: Reproduction, *, command: str) -> Written:
    """Write figures, claims, provenance and the page; `command` is what repeats the run.

    Everything is computed before the first file is written, and each file is replaced as a whole:
    an exception leaves the previous page intact.
    """
    out = reproduction.settings.out
    images: dict[tuple[str, str], str] = {}
    files: dict[Path, bytes] = {}
    for result in reproduction.experiments:
        for name, drawn in result.figures.items():
            image = as_image(drawn.figure)
            vector = base64.b64decode(image.partition(",")[2])
            pixels = _png(drawn.figure)
            if len(vector) > SVG_BYTES:
                image = "data:image/png;base64," + base64.b64encode(pixels).decode()
            images[result.experiment.name, name] = image
            files[out / "figures" / f"{name}.svg"] = vector
            files[out / "figures" / f"{name}.png"] = pixels
        files[out / "figures" / f"{result.experiment.name}.csv"] = tidy_csv(result.results).encode()
    written = Written(out / "index.html", out / "claims.json", out / "run.json", tuple(files))
    claims = []
    for result in reproduction.experiments:
        for claim in result.claims:
            claims.append({"experiment": result.experiment.name, **claim.as_dict()})
    files[written.claims] = _as_json(claims)
    files[written.provenance] = _as_json(provenance(reproduction))
    files[written.page] = page_text(reproduction, images, command=command).encode()
    try:
        (out / "figures").mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise SettingsError(
            f"cannot make a folder in {out}: {error.strerror}; give another output path"
        ) from None
    for path, content in files.items():
        write_whole(path, lambda file, content=content: file.write(content))
    return written


def _as_json(content: Any) -> bytes:
    return (json.dumps(content, indent=2, ensure_ascii=False) + "\n").encode()


def provenance(reproduction: Reproduction) -> dict[str, dict[str, Any]]:
    """Return what each experiment was computed with: size, seeds, code and library versions.

    It names no path of this machine, so that it can be published beside the claims.
    """
    size = reproduction.settings.size
    found = {}
    for result in reproduction.experiments:
        if not len(result.results):
            continue
        found[result.experiment.name] = {
            "title": result.experiment.title,
            "size": size.name,
            "letters": alphabet_named(size.letters).description,
            "engine": size.engine,
            "cells": len(result.results),
            "failed": len(result.failed),
            "missing": result.missing,
            "seeds": result.results.seeds,
            "core_seconds": round(math.fsum(outcome.seconds for outcome in result.outcomes), 1),
            "codes": list(result.codes),
            "versions": {name: list(result.versions[name]) for name in result.versions},
            "figures": {name: drawn.caption for name, drawn in result.figures.items()},
        }
    return found


def _png(figure: Figure, dpi: float = PNG_DPI) -> bytes:
    """Return the figure as PNG, at a lower resolution if it would be too large."""
    buffer = io.BytesIO()
    with matplotlib.rc_context(STYLE):
        figure.savefig(buffer, format="png", dpi=dpi, pil_kwargs={"optimize": True})
    if buffer.getbuffer().nbytes > PNG_BYTES:
        return _png(figure, 0.8 * dpi)
    return buffer.getvalue()


def page_text(
    reproduction: Reproduction, images: Mapping[tuple[str, str], str], *, command: str
) -> str:
    """Return the page as HTML; `images` has the URL of each figure by experiment and name."""
    claims = []
    sections = []
    for result in reproduction.experiments:
        sections.append(_section(result, images))
        for claim in result.claims:
            claims.append({"claim": claim, "section": result.experiment.name})
    lists = {
        "Claims of the paper": [row for row in claims if not row["claim"].ours],
        "Claims of this package": [row for row in claims if row["claim"].ours],
    }
    return rendered(
        "reproduction.html",
        marks=MARKS,
        summary=list(_summary(reproduction)),
        notices=list(_notices(reproduction)),
        lists={title: rows for title, rows in lists.items() if rows},
        sections=sections,
        command=command,
        cells_folder=str(reproduction.settings.cells_folder),
        facts=_facts(reproduction),
    )


def _summary(reproduction: Reproduction) -> Iterator[str]:
    """Yield the sentences at the top of the page."""
    lists = {"paper": reproduction.of_the_paper, "package": reproduction.of_ours}
    for name, claims in lists.items():
        if claims:
            verdicts = dict.fromkeys(MARKS, 0)
            for claim in claims:
                verdicts[claim.holds] += 1
            yes, partly, no, undecided = verdicts.values()
            yield (
                f"Of {plural(len(claims), 'claim')} of the {name}, {_verb(yes, 'holds', 'hold')}, "
                f"{_verb(partly, 'holds', 'hold')} partly, {_verb(no, 'does', 'do')} not and "
                f"{_verb(undecided, 'is', 'are')} not decided."
            )
    results = reproduction.experiments
    seeds = sorted({result.results.seeds for result in results if len(result.results)})
    size = reproduction.settings.size.name
    if seeds:
        seed_range = plural(seeds[0], "seed")
        if seeds[0] < seeds[-1]:
            seed_range = f"{seeds[0]} to {seeds[-1]} seeds"
        yield f"Measured at the size “{size}” with {seed_range} for each setting."
    if size == "quick":
        yield "That is a look, not a verdict: fewer seeds and settings than the paper has."
    yield f"The letters are {alphabet_named(reproduction.settings.size.letters).description}."
    outcomes = reproduction.outcomes
    yield f"{plural(len(outcomes), 'cell')} took {_computing_time(outcomes)} of computing."
    if len(results) < reproduction.known:
        yield (
            f"This page shows {len(results)} of {plural(reproduction.known, 'experiment')}; with "
            "--redraw and no names it shows all that were computed."
        )


def _notices(reproduction: Reproduction) -> Iterator[dict[str, str | None]]:
    """Yield what is incomplete, and the section that has the details."""
    for result in reproduction.experiments:
        name = result.experiment.name
        title = result.experiment.title
        done = len(result.outcomes)
        if result.failed:
            cells = f"{len(result.failed)} of {plural(done, 'cell')}"
            text = f"{title}: {cells} failed; figures and claims use the others."
            yield {"text": text, "section": name}
        if result.problems:
            text = f"{title}: some figures or claims are missing."
            yield {"text": text, "section": name}
        if result.missing:
            cells = f"{result.missing} of {plural(result.missing + done, 'cell')}"
            text = f"{title}: {cells} missing; they failed or were not computed yet."
            yield {"text": text, "section": name}
        if set(result.codes) - {result.code}:
            text = (
                f"{title}: the cells were computed by code {', '.join(result.codes)}; the present "
                f"code is {result.code}."
            )
            yield {"text": text, "section": name}


def _section(result: ExperimentResult, images: Mapping[tuple[str, str], str]) -> dict[str, Any]:
    """Return what the page shows of an experiment."""
    experiment = result.experiment
    computed = "not computed"
    if result.outcomes:
        done = plural(len(result.outcomes) - len(result.failed), "cell")
        computed = f"{done}, {_computing_time(result.outcomes)} of computing"
    figures = []
    for name, drawn in result.figures.items():
        figures.append(
            {
                "name": name,
                "caption": drawn.caption,
                "image": images[experiment.name, name],
                "width": page_width(drawn.figure),
            }
        )
    return {
        "name": experiment.name,
        "title": experiment.title,
        "where": experiment.where,
        "computed": computed,
        "problems": result.problems,
        "figures": figures,
        "table": _table(result.results),
        "failed": [{"cell": str(cell.cell), "error": cell.error} for cell in result.failed],
    }


def _table(results: Results) -> dict[str, Any]:
    """Return a row for each model, setting and number, and for all settings of a model together."""
    groups: dict[str, dict[tuple[tuple[str, Setting], ...], dict[str, list[float]]]] = {}
    columns: dict[str, None] = {}
    for cell, result in results.rows:
        columns |= dict.fromkeys(dict(cell.setting))
        numbers = groups.setdefault(cell.model, {}).setdefault(cell.setting, {})
        for name, value in numbers_of(result):
            numbers.setdefault(name, []).append(value)
    rows = []
    for model, by_setting in groups.items():
        strata: dict[str, list[list[float]]] = {}
        for setting, numbers in by_setting.items():
            values = dict(setting)
            shown = [_short(values.get(column)) for column in columns]
            for name, seeds in numbers.items():
                rows.append(_row(model, shown, name, [seeds]))
                strata.setdefault(name, []).append(seeds)
        if len(by_setting) > 1:
            shown = ["all"] * len(columns)
            for name, seeds in strata.items():
                rows.append(_row(model, shown, name, seeds))
    return {"settings": list(columns), "rows": list(filter(None, rows))}


def _row(
    model: str, setting: list[str], name: str, strata: list[list[float]]
) -> dict[str, Any] | None:
    """Return a row of the table; None if no seed has a finite number."""
    statistics = pooled(list(map(np.array, strata)))
    if statistics is None:
        return None
    seeds = str(statistics.of)
    if statistics.seeds < statistics.of:
        seeds = f"{statistics.seeds} of {statistics.of}"
    interval = "–"
    if statistics.interval is not None:
        interval = " … ".join(f"{bound:.3g}" for bound in statistics.interval)
    numbers = (statistics.median, statistics.low, statistics.high, statistics.iqm)
    return {
        "model": model,
        "settings": setting,
        "field": name,
        "seeds": seeds,
        "numbers": [*(f"{number:.3g}" for number in numbers), interval],
    }


def numbers_of(result: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, float]]:
    """Yield the scalars of a result by name, also those in nested dicts; lists are curves."""
    for name, value in result.items():
        if isinstance(value, Mapping):
            yield from numbers_of(value, f"{prefix}{name} ")
        elif isinstance(value, int | float) and not isinstance(value, bool):
            yield prefix + name, float(value)


def _short(value: Setting | None) -> str:
    """Return a setting as the table shows it; a file by its name."""
    if value is None:
        return "–"
    if isinstance(value, str):
        return Path(value).name
    if isinstance(value, float):
        return f"{value:.6g}"
    return str(value)


def _verb(number: int, singular: str, other: str) -> str:
    return f"{number} {singular}" if number == 1 else f"{number} {other}"


def _computing_time(outcomes: Sequence[Any]) -> str:
    return time_in_words(math.fsum(outcome.seconds for outcome in outcomes))


def time_in_words(seconds: float) -> str:
    """Return a time in seconds, minutes or hours, whichever reads best."""
    if seconds < 100:
        return f"{seconds:.0f} s"
    if seconds < 6000:
        return f"{seconds / 60:.0f} min"
    return f"{seconds / 3600:.1f} h"


def _facts(reproduction: Reproduction) -> dict[str, str]:
    """Return settings and versions as rows of a table."""
    settings = reproduction.settings
    seeds = "the default of each experiment at this size"
    if settings.size.seeds is not None:
        seeds = str(settings.size.seeds)
    facts = {"size": settings.size.name, "seeds": seeds}
    if settings.size.data is not None:
        facts["data file"] = Path(settings.size.data).name
    facts["letters"] = alphabet_named(settings.size.letters).description
    facts["simulator of rigid arms"] = settings.size.engine
    facts["computed by"] = BACKENDS[settings.backend.name]
    if settings.redraw:
        facts["computed by"] = "earlier runs"
    elif settings.workers is not None:
        facts["computed by"] += f", {plural(settings.workers, 'worker')}"
    facts["this run"] = time_in_words(reproduction.seconds)
    facts["code"] = ", ".join(reproduction.codes) or "none: there are no cells"
    versions = []
    for library, numbers in reproduction.versions.items():
        versions.append(f"{library} {' and '.join(numbers)}")
    if versions:
        facts["versions"] = ", ".join(versions)
    system = f"{platform.system()} {platform.machine()}"
    facts["drawn on"] = f"{system}, Python {platform.python_version()}"
    return facts
