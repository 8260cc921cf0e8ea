"""Commands that move robots: references to follow, learning online, the view, and the experiments of the paper."""

import json
import threading
from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from ..errors import SettingsError
from .command import JsonOption, SeedOption, app, command, require_writable


@app.command()
@command
def references(
    kind: Annotated[
        Literal["letters", "cosines", "excitation"], typer.Argument(help="Which motions.", show_default=False)
    ],
    robot: Annotated[str, typer.Option(help="two-link, wam4 or wam7; letters are for the two-link arm.")] = "two-link",
    plot: Annotated[Path | None, typer.Option(help="Picture to write: png, svg or pdf.")] = None,
    out: Annotated[
        Path | None,
        typer.Option(
            "-o", "--out", help="npz file for the motions, t, q, qd, qdd, and the torque tau they take: a log to try."
        ),
    ] = None,
    speed: Annotated[float, typer.Option(help="Factor on the usual speed.", min=0.01, max=100)] = 1.0,
    dt: Annotated[float, typer.Option(help="Sampling period in seconds.", min=1e-5, max=1.0)] = 0.005,
    seed: SeedOption = 0,
) -> None:
    """Motions for a robot to follow: letters, smooth cosines, or motions to identify it by; inside its limits."""
    if plot is None and out is None:
        raise SettingsError("nothing to write: give --plot PICTURE, --out FILE.npz, or both")
    for path in (plot, out):
        if path is not None:
            require_writable(path)
    from .reference_files import make_motions, write_motions, write_picture

    made = make_motions(kind, robot, speed=speed, dt=dt, seed=seed)
    if plot is not None:
        write_picture(made, plot)
        typer.echo(f"Picture: {plot}")
    if out is not None:
        write_motions(made, out)
        typer.echo(f"Motions: {out}")


@app.command()
@command
def online(
    robot: Annotated[str, typer.Argument(help="two-link, wam4 or wam7.", show_default=False)],
    feedforward: Annotated[
        Literal["pd", "gravity", "analytic", "true", "identified", "feedforward", "delan", "chain"],
        typer.Option(help="Whose torque joins the PD control: nobody's, a known model's, or one learned on the way."),
    ] = "delan",
    reference: Annotated[
        Literal["letters", "cosines"] | None,
        typer.Option(help="What to follow; default: letters for the two-link arm, else cosines."),
    ] = None,
    letters: Annotated[str, typer.Option(help="Letters to learn on, over and over.")] = "a,d,e,g,m,n,r,u",
    test: Annotated[str, typer.Option(help="Letters to write afterwards with the model frozen.")] = "",
    speed: Annotated[float, typer.Option(help="Factor on the usual speed.", min=0.1, max=10)] = 1.0,
    test_speeds: Annotated[
        str, typer.Option(help="Cosines: speeds to test the frozen model at, such as 1,1.5,2.")
    ] = "",
    seconds: Annotated[float, typer.Option(help="How long to learn.", min=1)] = 30.0,
    clock: Annotated[
        Literal["wall", "stepped"], typer.Option(help="Real time, or as fast as it can and the same every time.")
    ] = "wall",
    engine: Annotated[Literal["mujoco", "pybullet"], typer.Option(help="What simulates the robot.")] = "mujoco",
    drive: Annotated[
        Literal["rigid", "cable"], typer.Option(help="WAM: stiff drives, or elastic cables with friction.")
    ] = "rigid",
    friction: Annotated[
        str, typer.Option(help="none, or terms such as viscous,coulomb that delan or chain learn beside the links.")
    ] = "none",
    optimizer: Annotated[
        Literal["auto", "adam"],
        typer.Option(help="auto: Levenberg–Marquardt where the model is small; adam as in the paper."),
    ] = "auto",
    payload: Annotated[str, typer.Option(help="TIME:SHARE; 60:0.3 makes the last link 30 % heavier after 60 s.")] = "",
    seed: SeedOption = 0,
    out: Annotated[
        Path | None,
        typer.Option(
            "-o",
            "--out",
            help="Folder for recording, pictures and model, those of an earlier run replaced. Default: online, or "
            "online-2, … where there is one.",
            show_default=False,
        ),
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Control a simulated robot while it learns its own dynamics, from random weights."""
    from ..experiments.online import OnlineRun, run_online
    from .fit_request import read_friction
    from .online import clear, leave_behind, live_table, tell, unused, watched

    terms = read_friction(friction)
    if terms == "auto":
        raise SettingsError(
            "online nothing chooses the terms of friction; name them, such as --friction viscous,coulomb"
        )
    settings = OnlineRun(
        robot=robot,
        engine=engine,
        drive=drive,
        friction=terms,
        optimizer=optimizer,
        feed_forward=_leader(feedforward),
        reference=reference or ("letters" if robot == "two-link" else "cosines"),
        letters=letters.replace(",", "").replace(" ", ""),
        test=test.replace(",", "").replace(" ", ""),
        speed=speed,
        test_speeds=_numbers("--test-speeds", test_speeds, ","),
        seconds=seconds,
        clock=clock,
        seed=seed,
        payload=_payload(payload),
    )
    out = out or unused(Path("online"))
    require_writable(out / "recording.run", make_folder=True)
    clear(out)
    stop = threading.Event()
    with live_table(settings) as watch, watched(settings, stop) as onlooker:
        outcome = run_online(settings, record=out / "recording.run", progress=watch, stop=stop, onlooker=onlooker)
    written = [out / "recording.run", *leave_behind(outcome, out)]
    if as_json:
        typer.echo(json.dumps({**outcome.as_dict(), "seed": seed, "files": [str(path) for path in written]}))
    else:
        tell(outcome)
        typer.echo("Written: " + ", ".join(map(str, written)))
    if outcome.interrupted:
        reason = next(one.reason for one in (outcome.train, *outcome.test.values()) if one.ended != "finished")
        typer.echo(f"delan: ended early: {reason}", err=True)
        raise typer.Exit(130)


@app.command()
@command
def view(
    source: Annotated[
        str,
        typer.Argument(
            help="two-link, wam4 or wam7: begin a run; running: the one that goes on; or a recording or its folder."
        ),
    ] = "two-link",
    feedforward: Annotated[
        Literal["pd", "analytic", "identified", "feedforward", "delan", "chain"] | None,
        typer.Option(help="Whose torque joins the PD control at first; default: delan, for a WAM chain."),
    ] = None,
    compare: Annotated[
        Literal["pd", "analytic", "identified", "feedforward", "delan", "chain"] | None,
        typer.Option(help="A second arm beside the first, led by this."),
    ] = None,
    reference: Annotated[
        Literal["letters", "cosines"] | None,
        typer.Option(help="What to follow; default: letters for the two-link arm, else cosines."),
    ] = None,
    letters: Annotated[str, typer.Option(help="Letters to write, over and over.")] = "a,d,e,g,m,n,r,u",
    speed: Annotated[float, typer.Option(help="Factor on the usual speed.", min=0.5, max=2)] = 1.0,
    seconds: Annotated[
        float | None, typer.Option(help="How long the robot moves at the most; default: half an hour.", min=1)
    ] = None,
    seed: SeedOption = 0,
    out: Annotated[Path | None, typer.Option("-o", "--out", help="Folder for a recording of the run.")] = None,
    host: Annotated[str, typer.Option(help="Address to serve at; others than this machine's own need a token.")] = (
        "127.0.0.1"
    ),
    port: Annotated[int | None, typer.Option(help="Default: 8080, or the next that is free.", min=0, max=65535)] = None,
    token: Annotated[
        str | None,
        typer.Option(help="Password that the page asks for, at least 12 characters; needed with another --host."),
    ] = None,
    browse: Annotated[bool, typer.Option("--open", help="Open the page in the browser of this machine.")] = False,
    record: Annotated[
        Path | None,
        typer.Option(help="No page: a clip (gif, mp4) of the recording, or of a new run of --seconds (default 20)."),
    ] = None,
) -> None:
    """Watch the robot while it learns, in the browser, and tell it what to do; or replay a recording."""
    if out is not None:
        require_writable(out / "recording.run", make_folder=True)
    if record is not None:
        require_writable(record)
    from .view import ViewRequest, record_clip, run_view

    request = ViewRequest(
        source=source,
        model=_leader(feedforward or ("chain" if source.startswith("wam") else "delan")),
        compare=None if compare is None else _leader(compare),
        reference=reference,
        letters=letters.replace(",", "").replace(" ", ""),
        speed=speed,
        seed=seed,
        seconds=seconds or 1800.0,
        out=out,
        host=host,
        port=port,
        token=token,
        browse=browse,
    )
    if record is not None:
        record_clip(request, record, seconds or 20.0)
        typer.echo(f"Clip: {record}")
    else:
        run_view(request)


def _leader(name: str) -> Any:
    """Whose torque joins the PD control, as the code calls it: with PD alone, nobody's."""
    return "none" if name == "pd" else name


@app.command()
@command
def reproduce(
    figures: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="EXPERIMENT",
            help="torque-components, offline-letters, online-letters, online-cosines, offline-cosines, noise, "
            "published-data or tuning; default: all.",
            show_default=False,
        ),
    ] = None,
    quick: Annotated[bool, typer.Option("--quick", help="A small grid with few seeds: minutes.")] = False,
    paper: Annotated[bool, typer.Option("--paper", help="The whole grid with 20 seeds: many hours.")] = False,
    only: Annotated[list[str] | None, typer.Option(help="The same as EXPERIMENT; may be given again.")] = None,
    seeds: Annotated[
        int | None, typer.Option(help="Number of seeds for each setting; default: that of the size.", min=1)
    ] = None,
    backend: Annotated[
        Literal["local", "dask", "ray"], typer.Option(help="Processes on this machine, or a cluster.")
    ] = "local",
    address: Annotated[
        str | None,
        typer.Option(help="Address of the Dask scheduler or the Ray head; default: a cluster on this machine."),
    ] = None,
    workers: Annotated[int | None, typer.Option(help="Cells at a time; default: one a core.", min=1)] = None,
    data: Annotated[
        Path | None,
        typer.Option(help="Folder with published_letters.npz or wam7_real_neg_500Hz.npz, or one of these files."),
    ] = None,
    out: Annotated[Path, typer.Option("-o", "--out", help="Folder for page, claims, figures and cells.")] = Path(
        "results"
    ),
    watch: Annotated[bool, typer.Option("--watch", help="Show how far each experiment is, and the time left.")] = False,
    redraw: Annotated[
        bool, typer.Option("--redraw", help="Compute nothing; draw what is stored, by whatever code.")
    ] = False,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print a summary as JSON on stdout, and nothing else there.")
    ] = False,
) -> None:
    """Compute and draw the experiments of the paper, and say of each claim whether it holds."""
    if quick and paper:
        raise SettingsError("--quick and --paper are two sizes; give one of them, or none for the usual size")
    from .reproduce import run, settings_of

    settings = settings_of(
        only=[*(figures or ()), *(only or ())],
        size="quick" if quick else "paper" if paper else "usual",
        seeds=seeds,
        data=data,
        out=out,
        backend=backend,
        address=address,
        workers=workers,
        redraw=redraw,
    )
    require_writable(out / "index.html", make_folder=True)
    raise typer.Exit(run(settings, watch=watch, as_json=as_json))


def _numbers(option: str, text: str, separator: str) -> tuple[float, ...]:
    try:
        return tuple(float(part) for part in text.split(separator) if part.strip())
    except ValueError:
        raise SettingsError(f"{option} is a list of numbers with {separator!r} between them, got {text!r}") from None


def _payload(text: str) -> tuple[float, float] | None:
    parts = _numbers("--payload", text, ":")
    if not parts:
        return None
    if len(parts) != 2:
        raise SettingsError(f"--payload is a time and a share, such as 60:0.3, got {text!r}")
    return parts[0], parts[1]
