"""The page of `delan reproduce`: each claim beside what was measured, figures, numbers, and how to run it again."""

import base64
import io
import json
import math
import platform
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import matplotlib
import numpy as np
from jinja2 import Environment, PackageLoader, StrictUndefined
from matplotlib.figure import Figure

from ..drawing import STYLE, as_image
from ..errors import SettingsError
from ..experiments.cells import Setting
from ..experiments.reproduce import Part, Reproduction
from ..experiments.statistics import pooled
from ..storage import write_whole

MARKS = {
    "yes": {"sign": "✓", "word": "holds"},
    "partly": {"sign": "◐", "word": "partly"},
    "no": {"sign": "✕", "word": "does not hold"},
}
"""Told apart by sign and word; the colours only help."""
REM_PER_INCH = 6.2
"""So that letters are of one size in all figures, and 9.6 inches fill the page."""
PNG_BYTES, PNG_DPI = 300_000, 130.0
"""A picture is as fine as it can be in so many bytes."""
SVG_BYTES = 3_000_000
"""A figure of more lines than this stands on the page as a picture."""


class Written(NamedTuple):
    """Where page, claims and figures are."""

    page: Path
    claims: Path
    figures: tuple[Path, ...]


def write_reproduction(reproduction: Reproduction, *, command: str) -> Written:
    """Write figures, claims and at last the page, each whole or not at all; `command` is how to run it again.

    All is made before anything is written, so that what cannot be made leaves everything as it was.
    """
    out = reproduction.settings.out
    images: dict[tuple[str, str], str] = {}
    files: dict[Path, bytes] = {}
    for part in reproduction.parts:
        for name, drawn in part.figures.items():
            image, picture = as_image(drawn.figure), _png(drawn.figure)
            vector = base64.b64decode(image.partition(",")[2])
            if len(vector) > SVG_BYTES:
                image = "data:image/png;base64," + base64.b64encode(picture).decode()
            images[part.experiment.name, name] = image
            files |= {out / "figures" / f"{name}.svg": vector, out / "figures" / f"{name}.png": picture}
    written = Written(out / "index.html", out / "claims.json", tuple(files))
    claims = [claim.as_dict() for claim in reproduction.claims]
    files[written.claims] = (json.dumps(claims, indent=2, ensure_ascii=False) + "\n").encode()
    files[written.page] = page_of(reproduction, images, command=command).encode()
    try:
        (out / "figures").mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise SettingsError(f"cannot make a folder in {out}: {error.strerror}; give another output path") from None
    for path, data in files.items():
        write_whole(path, lambda file, data=data: file.write(data))
    return written


def _png(figure: Figure, dpi: float = PNG_DPI) -> bytes:
    """The figure as a picture, coarser if it would be too large."""
    buffer = io.BytesIO()
    with matplotlib.rc_context(STYLE):
        figure.savefig(buffer, format="png", dpi=dpi, pil_kwargs={"optimize": True})
    return buffer.getvalue() if buffer.getbuffer().nbytes <= PNG_BYTES else _png(figure, 0.8 * dpi)


def page_of(reproduction: Reproduction, images: Mapping[tuple[str, str], str], *, command: str) -> str:
    """The page as text; `images` holds the address of each figure by experiment and name."""
    environment = Environment(loader=PackageLoader("delan.report"), autoescape=True, undefined=StrictUndefined)
    return environment.get_template("reproduction.html").render(
        marks=MARKS,
        summary=_summary(reproduction),
        notices=list(_notices(reproduction)),
        claims=[{"claim": claim, "part": part.experiment.name} for part in reproduction.parts for claim in part.claims],
        parts=[_told(part, images) for part in reproduction.parts],
        command=command,
        cells_folder=str(reproduction.settings.cells_folder),
        facts=_facts(reproduction),
    )


def _summary(reproduction: Reproduction) -> list[str]:
    """What came out, in a few sentences."""
    claims = reproduction.claims
    held = {name: sum(claim.holds == name for claim in claims) for name in MARKS}
    sentences = []
    if claims:
        does = {name: ("holds", "does") if number == 1 else ("hold", "do") for name, number in held.items()}
        sentences.append(
            f"Of {_count(len(claims), 'claim')}, {held['yes']} {does['yes'][0]}, {held['partly']} {does['partly'][0]} "
            f"partly and {held['no']} {does['no'][1]} not."
        )
    seeds = sorted({part.results.seeds for part in reproduction.parts if len(part.results)})
    size, outcomes = reproduction.settings.size.name, reproduction.outcomes
    if seeds:
        several = f"{seeds[0]} to {seeds[-1]} seeds" if seeds[0] < seeds[-1] else _count(seeds[0], "seed")
        sentences.append(f"Measured at the size “{size}” with {several} for each setting.")
    if size == "quick":
        sentences.append("That is a look, not a verdict: fewer seeds and settings than the paper has.")
    computing = math.fsum(one.seconds for one in outcomes)
    sentences.append(f"{_count(len(outcomes), 'cell')} took {time_in_words(computing)} of computing.")
    if len(reproduction.parts) < reproduction.known:
        sentences.append(
            f"This page shows {len(reproduction.parts)} of {_count(reproduction.known, 'experiment')}; "
            "with --redraw and no names it shows all that were computed."
        )
    return sentences


def _notices(reproduction: Reproduction) -> Iterator[dict[str, str | None]]:
    """What is not whole, and where to read on."""
    for part in reproduction.parts:
        name, title = part.experiment.name, part.experiment.title
        if part.failed:
            cells = f"{len(part.failed)} of {_count(len(part.outcomes), 'cell')}"
            yield {"text": f"{title}: {cells} failed; figures and claims are of the others.", "part": name}
        if part.problems:
            yield {"text": f"{title}: not all of it could be drawn or judged.", "part": name}
        if part.missing:
            cells = f"{part.missing} of {_count(part.missing + len(part.outcomes), 'cell')}"
            yield {"text": f"{title}: {cells} not there; they failed or were not computed yet.", "part": name}
    if any(code != reproduction.code for code in reproduction.codes):
        told = f"The cells were computed by code {', '.join(reproduction.codes)}; the figures were drawn by code"
        yield {"text": f"{told} {reproduction.code}.", "part": None}


def _told(part: Part, images: Mapping[tuple[str, str], str]) -> dict[str, Any]:
    experiment = part.experiment
    done = [one for one in part.outcomes if one.error is None]
    computing = time_in_words(math.fsum(one.seconds for one in part.outcomes))
    computed = f"{_count(len(done), 'cell')}, {computing} of computing" if part.outcomes else "not computed"
    return {
        "name": experiment.name,
        "title": experiment.title,
        "where": experiment.where,
        "computed": computed,
        "problems": part.problems,
        "figures": [
            {
                "name": name,
                "caption": drawn.caption,
                "image": images[experiment.name, name],
                "width": f"{REM_PER_INCH * drawn.figure.get_figwidth():.1f}rem",
            }
            for name, drawn in part.figures.items()
        ],
        "table": _table(part),
        "failed": [{"cell": str(one.cell), "error": one.error} for one in part.failed],
    }


def _table(part: Part) -> dict[str, Any]:
    """A row for each model, setting and number, its spread over seeds; and for all settings of a model together."""
    groups: dict[str, dict[tuple[tuple[str, Setting], ...], dict[str, list[float]]]] = {}
    for cell, result in part.results.rows:
        fields = groups.setdefault(cell.model, {}).setdefault(cell.setting, {})
        for name, value in numbers_of(result):
            fields.setdefault(name, []).append(value)
    columns = list(dict.fromkeys(name for some in groups.values() for setting in some for name, _ in setting))
    rows = []
    for model, some in groups.items():
        for setting, fields in some.items():
            shown = [_short(dict(setting).get(column)) for column in columns]
            rows += [_row(model, shown, name, [values]) for name, values in fields.items()]
        if len(some) > 1:
            names = dict.fromkeys(name for fields in some.values() for name in fields)
            everywhere = {name: [fields[name] for fields in some.values() if name in fields] for name in names}
            rows += [_row(model, ["all" for _ in columns], name, strata) for name, strata in everywhere.items()]
    return {"settings": columns, "rows": [row for row in rows if row is not None]}


def _row(model: str, setting: list[str], name: str, strata: list[list[float]]) -> dict[str, Any] | None:
    """None where no seed gave a finite number."""
    found = pooled([np.array(values) for values in strata])
    if found is None:
        return None
    numbers = [f"{one:.3g}" for one in (found.median, found.low, found.high, found.iqm)]
    return {
        "model": model,
        "settings": setting,
        "field": name,
        "seeds": f"{found.seeds} of {found.of}" if found.seeds < found.of else str(found.of),
        "numbers": [*numbers, "–" if found.interval is None else " … ".join(f"{one:.3g}" for one in found.interval)],
    }


def numbers_of(result: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, float]]:
    """The single numbers of a result by name, those inside dicts too; no lists, which are curves."""
    for name, value in result.items():
        if isinstance(value, Mapping):
            yield from numbers_of(value, f"{prefix}{name} ")
        elif isinstance(value, int | float) and not isinstance(value, bool):
            yield prefix + name, float(value)


def _short(value: Setting | None) -> str:
    """A setting in a cell of the table; of a file its name."""
    if value is None:
        return "–"
    if isinstance(value, str):
        return Path(value).name
    return f"{value:.6g}" if isinstance(value, float) else str(value)


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}{'' if number == 1 else 's'}"


def time_in_words(seconds: float) -> str:
    """A time to be read by people: seconds, minutes or hours."""
    if seconds < 100:
        return f"{seconds:.0f} s"
    if seconds < 6000:
        return f"{seconds / 60:.0f} min"
    return f"{seconds / 3600:.1f} h"


def _facts(reproduction: Reproduction) -> dict[str, str]:
    """Settings and versions, as rows of a table."""
    settings, versions = reproduction.settings, dict(reproduction.versions)
    backend = settings.backend
    seeds = "as many as each experiment takes at this size" if settings.size.seeds is None else str(settings.size.seeds)
    where = {"local": "processes of one machine", "dask": "a Dask cluster", "ray": "a Ray cluster"}[backend.name]
    told = {"size": settings.size.name, "seeds": seeds}
    if settings.size.data is not None:
        told["data file"] = Path(settings.size.data).name
    told["computed by"] = where if settings.workers is None else f"{where}, {_count(settings.workers, 'worker')}"
    if settings.redraw:
        told["computed by"] = "earlier runs"
    told["this run"] = time_in_words(reproduction.seconds)
    told["code"] = ", ".join(reproduction.codes) or reproduction.code
    told["versions"] = ", ".join(f"{name} {' and '.join(some)}" for name, some in versions.items())
    told["drawn on"] = f"{platform.system()} {platform.machine()}, Python {platform.python_version()}"
    return {name: value for name, value in told.items() if value}
