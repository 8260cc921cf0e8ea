"""Whether `delan fit` chooses right, how sure it says it is, and how long it takes, on many logs.

    python -m benchmarks.choices [--data FOLDER] [--only CASE …] [--jobs 1]
    python -m benchmarks.choices --list       # the cases, and what their logs hold
    python -m benchmarks.choices --show       # the table of the results that are stored
    python -m benchmarks.choices --delays     # the delays of three halves of the same logs
    python -m benchmarks.choices --times      # wall clock of the command, with cold and warm caches

Each case (`choice_cases.py`) is a known log and unseen motion of the same robot. The command gets
both as files and no options (but `--fix` for a log with reversed torques), and the unseen motion
judges it:

- regret: the test error of the chosen model over that of the best one;
- band: the share of the test torques inside the band that the model states, mean over the joints;
- verdict: wrong if a model with a test error above 0.1 is to be deployed, or one below 0.02 is
  refused. The verdict is the one before the test, where the command states it.

A case takes some minutes. Its row is stored in `benchmarks/results/choices.json` as soon as it is
measured and replaces the row before; a figure is drawn at the end.
"""

import argparse
import json
import math
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import asdict, dataclass
from importlib.metadata import version
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
from matplotlib.axes import Axes

from delan.figures import INK, LEARNED, RIVAL, TRUTH, drawing
from delan.storage import write_whole

from .choice_cases import CASES, DELAY_LOGS, HALVES, Rows, facts, novelty, part_of
from .results import FOLDER, read_results

NAME = "choices"
TIMEOUT = 900.0  # of one fit [s]
TIMED = ("panda_first75", "wam_4runs")

# What is asked.
MEDIAN_REGRET = 1.02
WORST_REGRET = 1.5
BAND = (0.80, 0.98)
BAND_CASES = 0.9  # share of the cases whose band must be within these
# A verdict is wrong beyond these test errors.
DEPLOYED_ERROR = 0.1
REFUSED_ERROR = 0.02

DIGITS = 4  # significant ones of a stored number
CUT_OFF_REGRET = 10.0  # end of the axis in the figure

Errors = Mapping[str, float | None]


@dataclass(frozen=True)
class Outcome:
    """What `delan fit` reported on one case.

    Attributes:
        chosen: name of the model that it chose.
        test, validation: torque nMSE of every model, mean over joints; None if not finite.
        band: share of the test torques inside the band, of each joint; None without a band.
        decision: the verdict with the test motion known.
        decision_before_test: the verdict without it, if it was reported.
        ruler: how the models were compared, if it was reported.
        seconds: duration of the fit.
        cutoff, delay: those of the preparation [Hz, s].
    """

    chosen: str
    test: Errors
    validation: Errors
    band: Sequence[float] | None
    decision: str
    decision_before_test: str | None
    ruler: Any
    seconds: float
    cutoff: Any
    delay: float | None

    @classmethod
    def of(cls, fit: Mapping[str, Any]) -> "Outcome":
        """Return the figures in the JSON of the command."""
        models = fit["models"]
        preparation = fit["preparation"]
        return cls(
            chosen=fit["chosen"],
            test={name: scores["test"]["nmse_mean"] for name, scores in models.items()},
            validation={name: scores["validation"]["nmse_mean"] for name, scores in models.items()},
            band=fit["coverage"],
            decision=fit["decision"],
            decision_before_test=fit.get("decision_before_test"),
            ruler=fit.get("ruler"),
            seconds=fit["seconds"],
            cutoff=preparation["cutoff"],
            delay=preparation["delay"],
        )

    @property
    def error(self) -> float:
        """Test error of the chosen model."""
        return _number(self.test[self.chosen])

    @property
    def best(self) -> tuple[str, float]:
        """The model with the least test error, and this error; a constant takes no part."""
        errors = [(_number(error), name) for name, error in self.test.items() if name != "constant"]
        error, name = min(errors)
        return name, error

    @property
    def regret(self) -> float:
        _, best = self.best
        return self.error / best if math.isfinite(self.error) else math.inf

    @property
    def band_share(self) -> float | None:
        """Mean share over the joints that have one."""
        shares = [share for share in self.band or () if share is not None]
        return sum(shares) / len(shares) if shares else None

    @property
    def verdict(self) -> str:
        """The verdict that is judged."""
        return self.decision_before_test or self.decision

    @property
    def verdict_wrong(self) -> bool:
        if self.verdict == "deploy":
            return not self.error <= DEPLOYED_ERROR
        return self.verdict == "refuse" and self.error < REFUSED_ERROR


@dataclass(frozen=True)
class Failure:
    """Why a case has no outcome."""

    failed: str


def _number(value: float | None) -> float:
    return math.inf if value is None else value


# One fit


def measure(name: str, data: Path) -> Outcome | Failure:
    """Write both parts of a case, run the command on them, and return its figures."""
    case = CASES[name]
    known, unseen = case.build(data)
    for rows in (known, unseen):
        facts(rows)  # refuses a part that no robot gives
    with tempfile.TemporaryDirectory() as folder:
        test = write_rows(Path(folder) / "unseen.npz", unseen)
        log = write_rows(Path(folder) / "known.npz", known)
        fit = run_fit(log, ["--test", str(test), *case.options])
    return fit if isinstance(fit, Failure) else Outcome.of(fit)


def run_fit(
    log: Path, options: Sequence[str] = (), *, cache: Path | None = None
) -> dict[str, Any] | Failure:
    """Return the JSON of `delan fit`; the model is written beside the log.

    Compiled programs are kept in `cache`, in place of the user's own.
    """
    environment = dict(os.environ)
    if cache is not None:
        environment["XDG_CACHE_HOME"] = str(cache)
    command = [sys.executable, "-m", "delan.cli.main", "fit", str(log), *options, "--json"]
    output = ["-o", str(log.with_suffix(".delan"))]
    try:
        ran = subprocess.run(
            [*command, *output],
            capture_output=True,
            text=True,
            check=False,
            timeout=TIMEOUT,
            env=environment,
        )
    except subprocess.TimeoutExpired:
        return Failure(f"not ready after {TIMEOUT:.0f} s")
    if ran.returncode:
        return Failure(" ".join(ran.stderr.split()[-60:]))
    return json.loads(ran.stdout)


def write_rows(path: Path, rows: Rows) -> Path:
    columns: dict[str, Any] = rows
    np.savez(path, **columns)
    return path


# Results


def store(name: str, outcome: Outcome | Failure) -> None:
    """Put the row of a case into the file of results, one line for each."""
    rows = read_results(NAME).get("cases", {}) | {name: _row(outcome)}
    lines = [f"  {json.dumps(case)}: {json.dumps(rows[case])}" for case in CASES if case in rows]
    head = {"delan": version("delan"), "cores": os.cpu_count()}
    text = f'{{\n "machine": {json.dumps(head)},\n "cases": {{\n' + ",\n".join(lines) + "\n }\n}\n"
    FOLDER.mkdir(exist_ok=True)
    write_whole(FOLDER / f"{NAME}.json", lambda file: file.write(text.encode()))


def stored() -> dict[str, Outcome | Failure]:
    """Return the outcomes in the file of results."""
    outcomes: dict[str, Outcome | Failure] = {}
    for name, row in read_results(NAME).get("cases", {}).items():
        if name not in CASES:
            continue
        if "failed" in row:
            outcomes[name] = Failure(row["failed"])
        else:
            fields = {field: row[field] for field in Outcome.__dataclass_fields__}
            outcomes[name] = Outcome(**fields)
    return outcomes


def _row(outcome: Outcome | Failure) -> dict[str, Any]:
    row = asdict(outcome)
    if isinstance(outcome, Outcome):
        row["regret"] = outcome.regret
        row["band_share"] = outcome.band_share
        row["verdict_wrong"] = outcome.verdict_wrong
    return _rounded(row)


def _rounded(value: Any) -> Any:
    """Return a value for JSON with few digits; what is not finite becomes null."""
    if isinstance(value, Mapping):
        return {name: _rounded(item) for name, item in value.items()}
    if isinstance(value, list | tuple):
        return [_rounded(item) for item in value]
    if isinstance(value, float):
        return float(f"{value:.{DIGITS}g}") if math.isfinite(value) else None
    return value


# Tables


def print_cases(data: Path) -> None:
    """Print what the logs of all cases hold."""
    print("| case | joints | known | rate Hz | unseen | rate Hz | least range | speed | novelty |")
    print("|---|---|---|---|---|---|---|---|---|")
    for name, case in CASES.items():
        try:
            known, unseen = case.build(data)
        except FileNotFoundError:
            print(f"| {name} | skipped: its log is missing |")
            continue
        first, second = facts(known), facts(unseen)
        cells = [
            name,
            f"{first.joints}",
            f"{first.samples} in {first.runs}",
            f"{first.rate:.0f}",
            f"{second.samples} in {second.runs}",
            f"{second.rate:.0f}",
            f"{first.least_range:.2f} {second.least_range:.2f}",
            f"{first.speed:.1f} {second.speed:.1f}",
            f"{novelty(known, unseen):.2f}",
        ]
        print(f"| {' | '.join(cells)} |", flush=True)


def print_table(outcomes: Mapping[str, Outcome | Failure]) -> None:
    """Print a row for each case."""
    print(
        "\n| case | chosen | best | test | regret | band % | verdict | s | cut-off Hz | delay ms |"
    )
    print("|---|---|---|---|---|---|---|---|---|---|")
    for name, outcome in outcomes.items():
        print(f"| {name} | {_cells(outcome)} |")


def _cells(outcome: Outcome | Failure) -> str:
    if isinstance(outcome, Failure):
        return f"failed: {outcome.failed}"
    band = outcome.band_share
    verdict = outcome.verdict + (" WRONG" if outcome.verdict_wrong else "")
    cells = [
        outcome.chosen,
        outcome.best[0],
        f"{outcome.error:.2e}",
        f"{outcome.regret:.3f}",
        "–" if band is None else f"{100 * band:.0f}",
        verdict,
        f"{outcome.seconds:.0f}",
        _cutoff_text(outcome.cutoff),
        "–" if outcome.delay is None else f"{1e3 * outcome.delay:.1f}",
    ]
    return " | ".join(cells)


def _cutoff_text(cutoff: Any) -> str:
    """Return one cut-off, or the range of those of the joints."""
    if cutoff is None:
        return "–"
    low, high = np.min(cutoff), np.max(cutoff)
    return f"{low:.3g}" if low == high else f"{low:.3g} to {high:.3g}"


def print_summary(outcomes: Mapping[str, Outcome | Failure], skipped: Sequence[str]) -> None:
    """Print what was asked and what was measured."""
    measured = {name: item for name, item in outcomes.items() if isinstance(item, Outcome)}
    failed = [name for name, item in outcomes.items() if isinstance(item, Failure)]
    print(f"\n{len(measured)} of {len(CASES)} cases measured", end="")
    print(f"; failed: {_listed(failed)}; skipped, no log: {_listed(skipped)}")
    if not measured:
        return
    regrets = {name: item.regret for name, item in measured.items()}
    usual = median(regrets.values())
    worst = max(regrets, key=regrets.__getitem__)
    print(f"regret, median: {usual:.3f} (asked: ≤ {MEDIAN_REGRET}) {_said(usual <= MEDIAN_REGRET)}")
    print(
        f"regret, worst: {regrets[worst]:.3f}, {worst} (asked: ≤ {WORST_REGRET}) "
        f"{_said(regrets[worst] <= WORST_REGRET)}"
    )
    outside = [name for name, item in measured.items() if not _band_kept(item)]
    kept = 1 - len(outside) / len(measured)
    print(
        f"band of {100 * BAND[0]:.0f} to {100 * BAND[1]:.0f} %: in {100 * kept:.0f} % of the cases "
        f"(asked: ≥ {100 * BAND_CASES:.0f} %) {_said(kept >= BAND_CASES)}; "
        f"outside: {_listed(outside)}"
    )
    wrong = [name for name, item in measured.items() if item.verdict_wrong]
    print(f"verdict wrong: {_listed(wrong)} (asked: never) {_said(not wrong)}")
    seconds = {name: item.seconds for name, item in measured.items()}
    longest = max(seconds, key=seconds.__getitem__)
    print(
        f"seconds: median {median(seconds.values()):.0f}, worst {seconds[longest]:.0f}, {longest}"
    )


def _band_kept(outcome: Outcome) -> bool:
    share = outcome.band_share
    return share is not None and BAND[0] <= share <= BAND[1]


def _said(held: bool) -> str:
    return "yes" if held else "NO"


def _listed(names: Iterable[str]) -> str:
    return ", ".join(names) or "none"


# Figure


def draw(outcomes: Mapping[str, Outcome | Failure]) -> Path:
    """Draw the regret, the band and the seconds of every case; return the path of the image."""
    measured = {name: item for name, item in outcomes.items() if isinstance(item, Outcome)}
    path = FOLDER / f"{NAME}.png"
    with drawing(9.0, 1.2 + 0.19 * len(measured)) as figure:
        panels = figure.subplots(1, 3, sharey=True)
        regrets = [min(item.regret, CUT_OFF_REGRET) for item in measured.values()]
        _dots(panels[0], regrets, [value <= WORST_REGRET for value in regrets])
        panels[0].axvline(WORST_REGRET, color=INK, linewidth=0.8, linestyle=":")
        panels[0].set(xscale="log", xlim=(0.95, 1.1 * CUT_OFF_REGRET))
        panels[0].set_xticks([1, 1.5, 2, 5, 10], ["1", "1.5", "2", "5", "≥ 10"])
        panels[0].set_xticks([], minor=True)
        panels[0].set_title("test error over the best model's")
        bands = [_percent(item.band_share) for item in measured.values()]
        _dots(panels[1], bands, [_band_kept(item) for item in measured.values()])
        panels[1].axvspan(100 * BAND[0], 100 * BAND[1], color=TRUTH, alpha=0.4, linewidth=0)
        panels[1].set(xlim=(-3, 103))
        panels[1].set_title("test torques inside the band [%]")
        seconds = [item.seconds for item in measured.values()]
        panels[2].barh(range(len(seconds)), seconds, height=0.6, color=LEARNED)
        panels[2].set_title("duration of the fit [s]")
        _name_cases(panels[0], measured)
        for panel in panels:
            panel.grid(axis="both")
        figure.savefig(path, dpi=150)
    return path


def _percent(share: float | None) -> float:
    return math.nan if share is None else 100 * share


def _dots(axes: Axes, values: Sequence[float], held: Sequence[bool]) -> None:
    colours = [LEARNED if item else RIVAL for item in held]
    axes.scatter(values, range(len(values)), s=18, c=colours, zorder=3)


def _name_cases(axes: Axes, outcomes: Mapping[str, Outcome]) -> None:
    """Name the cases from the top; those with a wrong verdict stand out."""
    names = []
    for name, outcome in outcomes.items():
        names.append(f"{name}, verdict wrong" if outcome.verdict_wrong else name)
    axes.set_yticks(range(len(names)), names)
    axes.set_ylim(len(names) - 0.5, -0.5)
    for label, outcome in zip(axes.get_yticklabels(), outcomes.values(), strict=True):
        if outcome.verdict_wrong:
            label.set_color(RIVAL)


# Delays


def print_delays(data: Path) -> None:
    """Fit halves of some logs and print the delays that were found, which should agree."""
    print("| log | half | delay ms | cut-off Hz |")
    print("|---|---|---|---|")
    for name, read in DELAY_LOGS.items():
        _print_halves(name, read, data)


def _print_halves(name: str, read: Callable[[Path], list[Rows]], data: Path) -> None:
    try:
        runs = read(data)
    except FileNotFoundError:
        print(f"| {name} | skipped: its log is missing |")
        return
    for half, (start, end) in HALVES.items():
        with tempfile.TemporaryDirectory() as folder:
            fit = run_fit(write_rows(Path(folder) / "known.npz", part_of(runs, start, end)))
        if isinstance(fit, Failure):
            print(f"| {name} | {half} | failed: {fit.failed} |", flush=True)
            continue
        found = fit["preparation"]
        delay = f"{1e3 * found['delay']:.2f}"
        print(f"| {name} | {half} | {delay} | {_cutoff_text(found['cutoff'])} |", flush=True)


# Times


def print_times(data: Path) -> None:
    """Time the whole command on two logs, with an empty cache of compiled programs and again."""
    print("| log | cold s | warm s |")
    print("|---|---|---|")
    for name in TIMED:
        known, unseen = CASES[name].build(data)
        with tempfile.TemporaryDirectory() as folder:
            log = write_rows(Path(folder) / "known.npz", known)
            test = write_rows(Path(folder) / "unseen.npz", unseen)
            seconds = []
            for _ in range(2):
                began = time.perf_counter()
                fit = run_fit(log, ["--test", str(test)], cache=Path(folder) / "cache")
                if isinstance(fit, Failure):
                    raise SystemExit(f"{name}: {fit.failed}")
                seconds.append(time.perf_counter() - began)
        print(f"| {name} | {seconds[0]:.1f} | {seconds[1]:.1f} |", flush=True)


# Command


def run(names: Sequence[str], data: Path, jobs: int) -> list[str]:
    """Measure and store cases; return those whose logs are missing."""
    skipped = []
    workers = ThreadPoolExecutor(jobs)
    try:
        started = {workers.submit(measure, name, data): name for name in names}
        for done in as_completed(started):
            name = started[done]
            try:
                outcome = done.result()
            except FileNotFoundError:
                skipped.append(name)
                continue
            store(name, outcome)
            print(f"{name} | {_cells(outcome)}", flush=True)
    finally:
        workers.shutdown(cancel_futures=True)  # an interrupted run starts no further fit
    return skipped


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--data", type=Path, default=Path("../shared/data"))
    parser.add_argument(
        "--only", nargs="+", choices=CASES, default=list(CASES), metavar="CASE", help="see --list"
    )
    parser.add_argument("--jobs", type=int, default=1, help="fits at a time; their seconds grow")
    parser.add_argument("--list", action="store_true", help="print the cases only")
    parser.add_argument("--show", action="store_true", help="print and draw stored results only")
    parser.add_argument("--delays", action="store_true", help="measure the delays of halves only")
    parser.add_argument("--times", action="store_true", help="time the command on two logs only")
    options = parser.parse_args()
    if options.list:
        print_cases(options.data)
        return
    if options.delays:
        print_delays(options.data)
        return
    if options.times:
        print_times(options.data)
        return
    skipped = [] if options.show else run(options.only, options.data, options.jobs)
    outcomes = stored()
    print_table(outcomes)
    print_summary(outcomes, skipped)
    if any(isinstance(item, Outcome) for item in outcomes.values()):
        print(f"drawn to {draw(outcomes).relative_to(FOLDER.parent.parent)}")


if __name__ == "__main__":
    main()
