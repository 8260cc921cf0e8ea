"""The command `delan online`: run a robot of the package, show its progress, and write files."""

import json
import os
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import typer
from rich.console import Console
from rich.live import Live
from rich.table import Table

from ..errors import DelanError, SettingsError
from .app import (
    JsonOption,
    SeedOption,
    app,
    argument,
    command,
    option,
    read_friction,
    require_writable,
    say,
    takes,
    write_picture,
)

if TYPE_CHECKING:
    from ..online.broadcast import Onlooker
    from ..online.online_run import OnlineRun
    from ..online.process import Interrupts
    from ..online.session import OnlineOutcome
    from ..online.stats import LoopProgress

# Exit code of a run that was stopped on its page; for one ended by a signal see `Interrupts`.
INTERRUPTED = 130
RECORDING = "recording.run"
TRACKING = "tracking.png"
LETTERS = "letters.png"
MODEL = "model.delan"
COLUMNS = (
    "time [s]",
    "motion",
    "error, last second",
    "model age [s]",
    "swaps",
    "refused",
    "late",
    "missed",
)


@dataclass(frozen=True, kw_only=True)
class OnlineRequest:
    """The options of `delan online`."""

    robot: str = argument(help="two-link, wam4 or wam7.", show_default=False)
    model: Literal[
        "none", "gravity", "analytic", "true", "identified", "feedforward", "delan", "chain"
    ] = option(
        "delan",
        help="Feed-forward torque added to PD control: none, from a known model, or learned "
        "online.",
    )
    reference: Literal["letters", "cosines"] | None = option(
        None, help="Motions to follow; default: letters for the two-link arm, else cosines."
    )
    letters: str = option("a,d,e,g,m,n,r,u", help="Letters to learn on, repeatedly.")
    test: str = option("", help="Letters to test the frozen model on.")
    speed: float = option(1.0, help="Factor on the usual speed.", min=0.1, max=10)
    test_speeds: str = option(
        "", help="Cosines: speeds to test the frozen model at, such as 1,1.5,2."
    )
    seconds: float = option(30.0, help="Seconds of learning.", min=1)
    clock: Literal["wall", "stepped"] = option(
        "wall", help="wall: real time; stepped: as fast as possible, and reproducible."
    )
    engine: Literal["mujoco", "pybullet"] = option("mujoco", help="Simulator of the robot.")
    drive: Literal["rigid", "cable"] = option(
        "rigid", help="WAM: rigid drives, or elastic cables with friction."
    )
    friction: str = option(
        "none", help="none, or friction terms such as viscous,coulomb, learned with delan or chain."
    )
    optimizer: Literal["auto", "adam"] = option(
        "auto", help="auto: Levenberg–Marquardt for small models; adam: as in the paper."
    )
    payload: str = option(
        "", help="TIME:SHARE; 60:0.3 makes the last link 30 % heavier after 60 s."
    )
    seed: SeedOption = 0
    out: Path | None = option(
        None,
        "-o",
        "--out",
        help="Folder for recording, pictures and model; those of an earlier run are replaced. "
        "Default: online, or online-2, … if it exists.",
        show_default=False,
    )
    require_recording: bool = option(
        False,
        "--require-recording",
        help="Stop the robot if the run cannot be recorded, as on a full disk.",
    )
    as_json: JsonOption = False

    @property
    def settings(self) -> "OnlineRun":
        """The settings of the run."""
        from ..online.loop import LoopSettings
        from ..online.online_run import OnlineRun

        friction = read_friction(self.friction)
        if friction == "auto":
            raise SettingsError(
                "friction terms are not chosen online; give them, such as --friction "
                "viscous,coulomb"
            )
        reference = self.reference
        if reference is None:
            reference = "letters" if self.robot == "two-link" else "cosines"
        return OnlineRun(
            robot=self.robot,
            engine=self.engine,
            drive=self.drive,
            friction=friction,
            optimizer=self.optimizer,
            model=self.model,
            reference=reference,
            letters=self.letters.replace(",", "").replace(" ", ""),
            test=self.test.replace(",", "").replace(" ", ""),
            speed=self.speed,
            test_speeds=_numbers("--test-speeds", self.test_speeds, ","),
            seconds=self.seconds,
            clock=self.clock,
            seed=self.seed,
            payload=_payload(self.payload),
            loop=LoopSettings(require_recording=self.require_recording),
        )


def _numbers(option: str, text: str, separator: str) -> tuple[float, ...]:
    try:
        return tuple(float(part) for part in text.split(separator) if part.strip())
    except ValueError:
        raise SettingsError(
            f"{option} is a list of numbers with {separator!r} between them, got {text!r}"
        ) from None


def _payload(text: str) -> tuple[float, float] | None:
    parts = _numbers("--payload", text, ":")
    if not parts:
        return None
    if len(parts) != 2:
        raise SettingsError(f"--payload is a time and a share, such as 60:0.3, got {text!r}")
    return parts[0], parts[1]


@app.command()
@command
@takes("request", OnlineRequest)
def online(*, request: OnlineRequest) -> None:
    """Control a simulated robot while it learns its own dynamics from random weights."""
    from ..online.process import Interrupts

    # From here on no signal raises anything: it sets the event, or ends the process.
    with Interrupts(threading.Event()) as interrupts:
        code = _run(request, interrupts)
    # The robot has rested since a signal that came last.
    code = interrupts.exit_code or code
    if code:
        raise typer.Exit(code)


def _run(request: OnlineRequest, interrupts: "Interrupts") -> int:
    """Run the robot, write the files and print the results; return the exit code."""
    from ..online.online_run import run_online
    from ..online.recorder import owned_folder
    from ..online.rig import Observers

    settings = request.settings
    folder = request.out or _unused(Path("online"))
    recording = folder / RECORDING
    with _undone_at_exit(folder):
        require_writable(recording, make_folder=True)
        with owned_folder(folder):
            # Files of an earlier run must not be mistaken for those of this one.
            for name in (TRACKING, LETTERS, MODEL):
                (folder / name).unlink(missing_ok=True)
            stop = interrupts.stop
            with _live_table(settings) as show, _announced(settings, stop) as onlooker:

                def progress(now: "LoopProgress") -> None:
                    # The robot moves: from now on a signal brakes it first.
                    interrupts.at_once = False
                    show(now)

                observers = Observers(progress=progress, onlooker=onlooker, stop=stop, warn=say)
                outcome = run_online(settings, record=recording, observers=observers)
            paths, problems = _write_files(settings, outcome, folder)
    _print_outcome(request, outcome, paths, problems)
    for result in outcome.results:
        if result.ended != "finished":
            say(f"ended early: {result.reason}")
            return INTERRUPTED if result.ended == "interrupted" else 1
    return 1 if problems or outcome.stats.unrecorded else 0


def _print_outcome(
    request: OnlineRequest, outcome: "OnlineOutcome", paths: list[Path], problems: list[str]
) -> None:
    files = list(map(str, paths))
    if request.as_json:
        numbers = outcome.as_dict()
        numbers["problems"] += problems
        typer.echo(json.dumps({**numbers, "seed": request.seed, "files": files}))
    else:
        print_summary(outcome)
        for problem in problems:
            say(problem)
        typer.echo("Written: " + ", ".join(files))


@contextmanager
def _undone_at_exit(folder: Path) -> Iterator[None]:
    """Leave no partial file, and no new folder without files, if the process exits abruptly."""
    from ..online.process import keep_at_exit, undo_at_exit

    new = not folder.exists()

    def undo() -> None:
        for path in folder.glob(".*.part"):
            path.unlink(missing_ok=True)
        if new:
            folder.rmdir()  # raises if there are files

    undo_at_exit(folder, undo)
    try:
        yield
    finally:
        keep_at_exit(folder)


def _unused(folder: Path) -> Path:
    """Return the folder, or the first of folder-2, folder-3, … that does not exist."""
    numbers = count(2)
    unused = folder
    while unused.exists():
        unused = folder.with_name(f"{folder.name}-{next(numbers)}")
    return unused


@contextmanager
def _live_table(settings: "OnlineRun") -> Iterator[Callable[["LoopProgress"], None]]:
    """Show a table of the progress on stderr, if that is a terminal."""
    if not sys.stderr.isatty():
        yield lambda now: None
        return
    title = f"{settings.robot}, {settings.model}, {settings.clock} clock"

    def table(now: "LoopProgress | None") -> Table:
        shown = Table(*COLUMNS, title=title, title_justify="left")
        if now is not None:
            age = "–" if now.model_age is None else f"{now.model_age:.1f}"
            error = " ".join(f"{value:.1e}" for value in now.error)
            counts = map(str, (now.swaps, now.refused, now.late, now.missed))
            shown.add_row(f"{now.t:.1f} / {now.seconds:.0f}", now.label, error, age, *counts)
        return shown

    # Drawn in the callback of the loop: a thread would hold the interpreter at any time.
    with Live(table(None), console=Console(stderr=True), auto_refresh=False) as live:

        def show(now: "LoopProgress") -> None:
            with suppress(OSError):  # the terminal was closed, which must not end the loop
                live.update(table(now), refresh=True)

        yield show


@contextmanager
def _announced(settings: "OnlineRun", stop: threading.Event) -> Iterator["Onlooker | None"]:
    """Let `delan view running` show and stop a run by the wall clock."""
    if settings.clock != "wall":
        yield None
        return
    from ..online.broadcast import (
        MODES,
        Address,
        Broadcast,
        Orders,
        address_folder,
        announce,
        running,
    )
    from ..online.process import keep_at_exit, undo_at_exit

    running()  # removes the addresses of runs that were killed
    dof = settings.arm.joints.dof
    dt = 1 / settings.loop.rate
    broadcast = Broadcast(dof, dt, Orders(mode=MODES.index("run")), stop=stop)
    broadcast.stand("running", broadcast.latest)
    address = Address(
        pid=os.getpid(),
        robot=settings.robot,
        dof=dof,
        dt=dt,
        **broadcast.names,
        models=(),
        references=(),
        weights={},
        settings={},
    )
    path = address_folder() / f"{os.getpid()}.json"
    undo_at_exit(path, path.unlink)
    announce(address, path)
    try:
        yield broadcast
    finally:
        path.unlink(missing_ok=True)
        keep_at_exit(path)
        broadcast.close()


def _write_files(
    settings: "OnlineRun", outcome: "OnlineOutcome", folder: Path
) -> tuple[list[Path], list[str]]:
    """Write the learned model and pictures; return the paths of all files, and what failed."""
    from ..report.robot_figures import draw_tracking, draw_written
    from ..storage import save

    writers: dict[Path, Callable[[Path], Any]] = {}
    if outcome.model is not None:
        provenance = {"seed": settings.seed, "log": RECORDING}
        writers[folder / MODEL] = lambda path: save(outcome.model, path, provenance=provenance)
    if len(outcome.train.t) > 1:
        figure = draw_tracking(outcome.train, settings.arm.joints)
        writers[folder / TRACKING] = partial(write_picture, figure)
        if settings.reference == "letters":
            figure = draw_written(list(outcome.results))
            writers[folder / LETTERS] = partial(write_picture, figure)
    recording = folder / RECORDING
    paths = [recording] if recording.exists() else []
    problems = []
    for path, write in writers.items():
        try:
            write(path)
            paths.append(path)
        except DelanError as error:
            problems.append(str(error))
    return paths, problems


def print_summary(outcome: "OnlineOutcome") -> None:
    """Print tracking errors, counts and events, and problems on stderr."""
    from ..online.recorder import recording_loss

    numbers = outcome.as_dict()
    for name, tracking in numbers["tracking"].items():
        if tracking["mse_sum"] is None:
            typer.echo(f"Tracking error, {name}: not reached")
            continue
        per_joint = " ".join(f"{mse:.2e}" for mse in tracking["mse"] if mse is not None)
        typer.echo(f"Tracking error, {name}: MSE {tracking['mse_sum']:.3e} (per joint {per_joint})")
    stats = outcome.stats
    typer.echo(
        f"Loop: {stats.periods} periods, {stats.missed} missed; "
        f"{stats.late_feedforward} late feed-forward torques; {stats.lost_samples} lost samples; "
        f"lateness p50 {stats.lateness_us.p50:.0f} µs, p99 {stats.lateness_us.p99:.0f} µs."
    )
    first = outcome.train.first_model_seconds
    if first is not None:
        refused = sum(stats.refused.values())
        typer.echo(
            f"Models: first after {first:.2f} s, {stats.swaps} used in turn, {refused} refused."
        )
    if outcome.engine is not None:
        typer.echo(f"Learned torques computed by {outcome.engine}.")
    for event in outcome.train.events:
        if event.kind in ("learner", "restart", "stall"):
            typer.echo(f"At {event.t:.1f} s: {event.text}.")
    problems = list(numbers["problems"])
    loss = recording_loss(stats.unrecorded, stats.recording_problem)
    if loss is not None:
        problems.append(loss)
    for problem in problems:
        say(problem)
