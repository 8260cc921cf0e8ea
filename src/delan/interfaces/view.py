"""What `delan view` does: find what is to be watched, open the page, and see to it that the robot is stopped."""

import os
import signal
import sys
import threading
import time
import webbrowser
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import typer

from ..errors import SettingsError, installing
from ..realtime.addresses import Address, running
from ..realtime.priority import leave_core

ROBOTS = ("two-link", "wam4", "wam7")
"""The arms of the package; their tables are read when the page is already there."""
RUNNING = "running"
LOOP_CORE = 0


@dataclass(frozen=True)
class ViewRequest:
    """What was asked for on the command line."""

    source: str
    model: Any
    compare: Any
    reference: Any
    letters: str
    speed: float
    seed: int
    seconds: float
    out: Path | None
    host: str
    port: int | None
    token: str | None
    browse: bool


def run_view(request: ViewRequest) -> None:
    """Serve the page until Ctrl-C."""
    try:
        from ..view.door import address_of, open_server, require_token
    except ImportError as error:  # what viser brings along
        raise SettingsError(f"the page needs viser ({error}); {installing('view')}") from None
    require_token(request.host, request.token)
    recording = _recording(request.source)
    stop = threading.Event()
    going_on = _found_running() if request.source == RUNNING else []
    if request.reference == "letters" and request.source in ROBOTS[1:]:
        raise SettingsError(f"letters are not for {request.source}; use cosines for it")
    with _until_told(stop), ExitStack() as ending:
        runs = [] if recording is not None or going_on else _woken(request, ending)
        leave_core(LOOP_CORE)  # the page and all its threads; the runs know their own cores
        server = open_server(request.host, request.port, request.token)
        ending.callback(server.stop)
        url = address_of(server, request.token)
        typer.echo(f"Watch at {url} (Ctrl-C ends)")
        sys.stdout.flush()
        if request.browse:
            webbrowser.open(url)
        if stop.is_set():
            return
        if runs:
            _tell(request, runs)
        if recording is not None:
            from ..view.replay import Replay

            Replay(server, recording).run(stop)
        else:
            _watch(server, request, runs, going_on, stop)
    _leave_compiling()


def record_clip(request: ViewRequest, clip: Path, seconds: float) -> None:
    """Write a clip of a recording, or of runs by the stepped clock: the same every time, and no screen is needed."""
    from ..report.clip import ClipSettings, pictures, require_format, write_clip
    from ..robots.arms import ARMS

    require_format(clip)
    recording = _recording(request.source)
    if request.source == RUNNING:
        raise SettingsError("a clip is made of a recording or of a new run; give the recording, or a robot")
    settings = ClipSettings()
    if recording is not None:
        from ..view.sources import ReplaySource

        source = ReplaySource(recording)
        takes, arm = [_take(recording.parent.name, source.columns)], source.arm
    else:
        takes, arm = _simulated(request, seconds), ARMS[request.source]
    write_clip(clip, pictures(arm, takes, settings), settings.period)


def _simulated(request: ViewRequest, seconds: float) -> list[Any]:
    """The run that was asked for, and the one to compare it with."""
    from ..experiments.live_run import NAMES
    from ..experiments.online import OnlineRun

    takes = []
    for model in [request.model] if request.compare is None else [request.model, request.compare]:
        run = OnlineRun(
            robot=request.source,
            feed_forward=model,
            reference=request.reference or ("letters" if request.source == "two-link" else "cosines"),
            letters=request.letters,
            speed=request.speed,
            seed=request.seed,
            seconds=2 * seconds + 5,  # more than enough: only the loop knows how long the ways between motions take
            clock="stepped",
        )
        result = _run_of(run, seconds)
        shown = result.t - result.t[0] <= seconds
        columns = {"t": result.t[:, None], "q": result.q, "q_des": result.q_des, "model": result.model[:, None]}
        takes.append(_take(NAMES[model], {name: column[shown] for name, column in columns.items()}))
    return takes


def _run_of(run: Any, seconds: float) -> Any:
    """A run that is stopped after so many seconds."""
    from ..experiments.online import run_online

    stop = threading.Event()

    def look(now: Any) -> None:
        if now.t >= seconds:
            stop.set()

    return run_online(run, stop=stop, progress=look).train


def _take(label: str, columns: Any) -> Any:
    from ..report.clip import Take

    t, model = columns["t"][:, 0], columns["model"][:, 0]
    return Take(label, t - t[0], columns["q"], columns["q_des"], (t - t[0])[1:][np.diff(model) > 0])


def _recording(source: str) -> Path | None:
    """The recording that is meant, if one is."""
    if source in ROBOTS or source == RUNNING:
        return None
    path = Path(source)
    path = path / "recording.run" if path.is_dir() else path
    if not path.exists():
        raise SettingsError(
            f"{source} is neither a robot ({', '.join(ROBOTS)}), nor the word {RUNNING}, nor a recording or its folder"
        )
    return path


def _woken(request: ViewRequest, ending: ExitStack) -> list[Any]:
    """Processes for one run, or two, which wake up while the page does."""
    from ..view.runs import wake

    runs: list[Any] = []
    ending.callback(_end, runs)
    for _ in range(1 if request.compare is None else 2):
        runs.append(wake())
    return runs


def _tell(request: ViewRequest, runs: list[Any]) -> None:
    """Tell the runs what to do."""
    from ..experiments.live_run import LiveSettings
    from ..view.runs import tell

    settings = LiveSettings(
        robot=request.source,
        model=request.model,
        reference=request.reference or ("letters" if request.source == "two-link" else "cosines"),
        letters=request.letters,
        speed=request.speed,
        seed=request.seed,
        seconds=request.seconds,
        core=LOOP_CORE,
        record=None if request.out is None else str((request.out / "recording.run").resolve()),
    )
    tell(runs[0], asdict(settings))
    if request.compare is not None:
        core = 1 if (os.cpu_count() or 1) > 1 else 0
        beside = replace(settings, model=request.compare, models=(request.compare,), core=core, record=None)
        tell(runs[1], asdict(beside))


def _watch(server: Any, request: ViewRequest, runs: list[Any], going_on: list[Address], stop: threading.Event) -> None:
    from ..experiments.live_run import NAMES
    from ..view.runs import find

    if stop.is_set():
        return
    from ..view.live import LivePage

    found = (find(run, stop) for run in runs)
    addresses = going_on or [one for one in found if one is not None]
    if stop.is_set():
        return
    names = (NAMES[request.model], NAMES[request.compare] if request.compare else "")
    page = LivePage(server, addresses, names if len(addresses) > 1 else ("", ""))
    try:
        page.run(stop)
    finally:
        if runs:
            page.stop_runs()
        page.close()


def _found_running() -> list[Address]:
    found = running()
    if not found:
        raise SettingsError("no run of yours goes on here; start one with `delan online` or `delan view two-link`")
    return found[-1:]


def _end(runs: list[Any]) -> None:
    """Wait for runs that were told to stop; what does not, is ended."""
    for run in runs:
        if run.poll() is None:
            run.send_signal(signal.SIGTERM)
    for run in runs:
        began = time.monotonic()
        while run.poll() is None and time.monotonic() - began < 10:
            time.sleep(0.05)
        if run.poll() is None:
            run.kill()
            run.wait()


def _leave_compiling() -> None:
    """End at once if the page still compiles: Python would wait for it, as JAX does not bear to be cut off."""
    if any(thread.name == "dissection" for thread in threading.enumerate()):
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(0)


@contextmanager
def _until_told(stop: threading.Event) -> Iterator[None]:
    """Let Ctrl-C and SIGTERM ask for an end, and say that they were heard."""

    def hear(*_: Any) -> None:
        if not stop.is_set():
            os.write(2, b"\nStopping\n")  # a signal may come amid a print, which bears no second one
        stop.set()

    before = {one: signal.signal(one, hear) for one in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for one, handler in before.items():
            signal.signal(one, signal.SIG_DFL if handler is None else handler)
