"""`delan view`: show a run or a recording in the browser, or record a clip of it."""

import os
import sys
import threading
import webbrowser
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import typer

from ..errors import SettingsError, installing
from .app import SeedOption, app, argument, command, option, require_writable, takes

if TYPE_CHECKING:
    from subprocess import Popen

    from ..online.broadcast import Address
    from ..report.clip import Take

# The arms of the package, repeated here because their tables are loaded after the page is served.
ROBOTS = ("two-link", "wam4", "wam7")
RUNNING = "running"
# The core of the control loop, which the page leaves alone.
LOOP_CORE = 0
# How long a run and a clip take unless --seconds is given [s].
RUN_SECONDS = 1800.0
CLIP_SECONDS = 20.0

ModelName = Literal["none", "analytic", "identified", "feedforward", "delan", "chain"]
# Default feed-forward torque and reference, and those of the arms where they differ.
DEFAULT = ("delan", "letters")
DEFAULTS = {"wam4": ("chain", "cosines"), "wam7": ("chain", "cosines")}


@dataclass(frozen=True, kw_only=True)
class ViewRequest:
    """The options of `delan view`."""

    source: str = argument(
        "two-link",
        help="two-link, wam4 or wam7 starts a run; `running` shows the current run; "
        "a recording or its folder is replayed.",
    )
    model: ModelName | None = option(
        None,
        help="Feed-forward torque added to PD control at the start. "
        "Default: delan; chain for a WAM.",
    )
    compare: ModelName | None = option(
        None, help="Feed-forward torque of a second arm beside the first."
    )
    reference: Literal["letters", "cosines"] | None = option(
        None, help="Motion to track. Default: letters for two-link, cosines for a WAM."
    )
    letters: str = option("a,d,e,g,m,n,r,u", help="Letters to write, repeated until the run ends.")
    speed: float = option(1.0, help="Factor on the usual speed.", min=0.5, max=2)
    seconds: float | None = option(
        None, help="Longest time that the robot moves. Default: 1800.", min=1
    )
    seed: SeedOption = 0
    out: Path | None = option(None, "-o", "--out", help="Folder for a recording of the run.")
    host: str = option(
        "127.0.0.1", help="Address to serve at; all but this machine's own need a --token."
    )
    port: int | None = option(None, help="Default: 8080, or the next free one.", min=0, max=65535)
    token: str | None = option(
        None, help="Password of the page, at least 12 characters; required with another --host."
    )
    open_browser: bool = option(
        False, "--open", help="Open the page in the browser of this machine."
    )
    record: Path | None = option(
        None,
        help="Serve no page; write a clip (gif, mp4) of the recording, "
        "or of a new run of --seconds (default 20).",
    )

    @property
    def models(self) -> list[Any]:
        """The feed-forward torque of each of the one or two arms."""
        default, _ = DEFAULTS.get(self.source, DEFAULT)
        models: list[Any] = [self.model or default]
        if self.compare is not None:
            models.append(self.compare)
        return models

    @property
    def run(self) -> dict[str, Any]:
        """The settings of a run that a page and a clip share."""
        _, default = DEFAULTS.get(self.source, DEFAULT)
        return {
            "robot": self.source,
            "reference": self.reference or default,
            "letters": self.letters.replace(",", "").replace(" ", ""),
            "speed": self.speed,
            "seed": self.seed,
        }


@app.command()
@command
@takes("request", ViewRequest)
def view(*, request: ViewRequest) -> None:
    """Watch and steer a robot in the browser while it learns, or replay a recording."""
    if request.out is not None:
        require_writable(request.out / "recording.run", make_folder=True)
    if request.record is None:
        serve(request)
    else:
        require_writable(request.record)
        record_clip(request, request.record)
        typer.echo(f"Clip: {request.record}")


def serve(request: ViewRequest) -> None:
    """Serve the page until Ctrl-C."""
    try:
        from ..view.server import open_server, page_address, require_token
    except ImportError as error:  # a package that viser depends on
        raise SettingsError(f"the page needs viser ({error}); {installing('view')}") from None
    from ..online.process import leave_core
    from ..view.run_process import end_runs, start_run

    require_token(request.host, request.token)
    recording = _recording_path(request.source)
    addresses: list[Address] = []
    if request.source == RUNNING:
        addresses.append(_current_run())
    if request.run["reference"] == "letters" and request.source in DEFAULTS:
        raise SettingsError(f"letters are not for {request.source}; give --reference cosines")
    stop = threading.Event()
    runs: list[Popen] = []
    with _set_by_signals(stop), ExitStack() as stack:
        if request.source in ROBOTS:
            stack.callback(end_runs, runs)
            for _ in request.models:
                runs.append(start_run())
        leave_core(LOOP_CORE)  # the page and its threads; the runs choose their own cores
        server = open_server(request.host, request.port, request.token)
        stack.callback(server.stop)
        url = page_address(server, request.token)
        typer.echo(f"Watch at {url} (Ctrl-C ends)")
        sys.stdout.flush()
        if request.open_browser:
            webbrowser.open(url)
        if stop.is_set():
            return
        if recording is not None:
            from ..view.page import Replay

            Replay(server, recording).run(stop)
        else:
            if runs:
                addresses = _begin_runs(request, runs, stop)
            if not stop.is_set():
                _show_runs(server, addresses, request, stop)
    _exit_while_compiling()


def _recording_path(source: str) -> Path | None:
    """Return the recording that SOURCE names; None if it names a robot or the current run."""
    if source in ROBOTS or source == RUNNING:
        return None
    path = Path(source)
    if path.is_dir():
        path = path / "recording.run"
    if not path.exists():
        raise SettingsError(
            f"{source} is neither a robot ({', '.join(ROBOTS)}), nor the word {RUNNING}, "
            "nor a recording or its folder"
        )
    return path


def _current_run() -> "Address":
    from ..online.broadcast import running

    addresses = running()
    if not addresses:
        raise SettingsError(
            "none of your runs is active on this machine; start one with `delan online` "
            "or `delan view two-link`"
        )
    return addresses[-1]


def _begin_runs(
    request: ViewRequest, runs: list["Popen"], stop: threading.Event
) -> list["Address"]:
    """Send the processes their settings; return their addresses, fewer if `stop` is set."""
    from ..online.host_process import LiveSettings
    from ..view.run_process import send_settings, wait_for_address

    settings = LiveSettings(
        **request.run,
        model=request.models[0],
        seconds=request.seconds or RUN_SECONDS,
        core=LOOP_CORE,
    )
    if request.out is not None:
        settings = replace(settings, record=str((request.out / "recording.run").resolve()))
    send_settings(runs[0], asdict(settings))
    if request.compare is not None:
        settings = replace(
            settings,
            model=request.compare,
            models=(request.compare,),
            core=min(LOOP_CORE + 1, (os.cpu_count() or 1) - 1),
            record=None,
        )
        send_settings(runs[1], asdict(settings))
    addresses = []
    for run in runs:
        address = wait_for_address(run, stop)
        if address is not None:
            addresses.append(address)
    return addresses


def _show_runs(
    server: Any, addresses: list["Address"], request: ViewRequest, stop: threading.Event
) -> None:
    """Show the runs until `stop` is set; then stop the robots that this command started."""
    from ..online.host_process import NAMES
    from ..view.live_page import LivePage

    rival_name = None
    if len(addresses) > 1:
        rival_name = NAMES[request.models[1]]
    page = LivePage(server, addresses, rival_name)
    try:
        page.run(stop)
    finally:
        if request.source != RUNNING:
            page.stop_runs()
        page.close()


@contextmanager
def _set_by_signals(stop: threading.Event) -> Iterator[None]:
    """Let Ctrl-C, SIGTERM and SIGHUP set an event, and acknowledge them on stderr."""
    from ..online.process import ENDING, handled

    def handle(*_: Any) -> None:
        if not stop.is_set():
            # Not print: it is not reentrant, and the signal may interrupt one.
            with suppress(OSError):  # the terminal was closed
                os.write(2, b"\nStopping\n")
        stop.set()

    with handled(ENDING, handle):
        yield


def _exit_while_compiling() -> None:
    """Exit at once if the page still compiles; Python would wait for that thread to end."""
    from ..view.sources import is_building

    if is_building():
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(0)


def record_clip(request: ViewRequest, clip: Path) -> None:
    """Write a clip of a recording, or of runs with the stepped clock, which are reproducible."""
    from ..report.clip import ClipSettings, pictures, require_format, write_clip
    from ..robots import ARMS

    require_format(clip)
    if request.source == RUNNING:
        raise SettingsError(
            "a clip shows a recording or a new run; give a recording or a robot instead of running"
        )
    recording = _recording_path(request.source)
    settings = ClipSettings()
    if recording is None:
        arm = ARMS[request.source]
        takes = [_simulated_take(request, model) for model in request.models]
    else:
        from ..view.sources import ReplaySource

        source = ReplaySource(recording)
        arm = source.arm
        takes = [_take(recording.parent.name, source.columns)]
    write_clip(clip, pictures(arm, takes, settings), settings.period)


def _simulated_take(request: ViewRequest, model: Any) -> "Take":
    """Run the robot with one feed-forward torque for the seconds of the clip."""
    from ..online.host_process import NAMES
    from ..online.online_run import OnlineRun, run_online
    from ..online.rig import Observers

    seconds = request.seconds or CLIP_SECONDS
    settings = OnlineRun(
        **request.run,
        model=model,
        # More than needed, because only the loop knows how long transitions between motions take;
        # `check` stops it.
        seconds=2 * seconds + 5,
        clock="stepped",
    )
    stop = threading.Event()

    def check(now: Any) -> None:
        if now.t >= seconds:
            stop.set()

    result = run_online(settings, observers=Observers(progress=check, stop=stop)).train
    shown = result.t - result.t[0] <= seconds
    columns = {
        "t": result.t[shown, None],
        "q": result.q[shown],
        "q_des": result.q_des[shown],
        "model": result.model[shown, None],
    }
    return _take(NAMES[model], columns)


def _take(label: str, columns: Mapping[str, Any]) -> "Take":
    from ..report.clip import Take
    from ..view.plots import swaps

    start = columns["t"][0, 0]
    return Take(
        label,
        columns["t"][:, 0] - start,
        columns["q"],
        columns["q_des"],
        swaps(columns) - start,
    )
