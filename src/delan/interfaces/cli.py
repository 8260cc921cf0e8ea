"""The `delan` command. Heavy imports stand inside the commands, so that `delan --help` answers at once."""

import functools
import json
import os
import shlex
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from ..errors import DelanError, SettingsError
from .log_options import LogsArgument, name_of, takes_log_options

app = typer.Typer(
    name="delan",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    help="Learn a robot's dynamics from joint data, in a form that cannot break the laws of mechanics.",
)

JsonOption = Annotated[bool, typer.Option("--json", help="Print the scores as JSON on stdout, and nothing else there.")]
SeedOption = Annotated[int, typer.Option(help="Seed of all randomness; it gives the same result again.", min=0)]


def main() -> None:
    """Run the command line."""
    app()


def _command(function: Callable[..., None]) -> Callable[..., None]:
    """Turn what went wrong into one line on stderr and an exit code: 1 for bad input, 130 for Ctrl-C."""

    @functools.wraps(function)
    def run(*args: Any, **kwargs: Any) -> None:
        try:
            _keep_compiled()
            function(*args, **kwargs)
        except DelanError as error:
            typer.echo(f"delan: {error}", err=True)
            raise typer.Exit(1) from None
        except KeyboardInterrupt:
            typer.echo("delan: stopped", err=True)
            raise typer.Exit(130) from None

    return run


def _keep_compiled() -> None:
    """Let jax keep compiled programs in the user's cache folder: the second run of a command starts faster."""
    root = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    os.environ.setdefault("JAX_COMPILATION_CACHE_DIR", str(Path(root) / "delan" / "xla"))
    os.environ.setdefault("JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS", "0.2")


@app.callback(invoke_without_command=True)
def _version(version: Annotated[bool, typer.Option("--version", help="Show the version and exit.")] = False) -> None:
    if version:
        from importlib.metadata import version as version_of

        typer.echo(f"delan {version_of('delan')}")
        raise typer.Exit


@app.command()
@_command
def demo(
    out: Annotated[Path, typer.Option("-o", "--out", help="Folder for the page.")] = Path("demo"),
    seed: SeedOption = 0,
) -> None:
    """A two-link arm writes 20 letters; two networks learn its dynamics from 17 and are tested on 3."""
    import jax

    from ..experiments.demo import DemoSettings, run
    from ..report.demo_page import write_page
    from .progress import watching
    from .tables import show_scores

    page = out / "report.html"
    _require_writable(page, make_folder=True)
    with watching() as begun:
        watchers = [begun("DeLaN"), begun("feed-forward")]
        result = run(DemoSettings(), key=jax.random.key(seed), progress=watchers)
    write_page(result, page)
    show_scores({name: fitted.scores for name, fitted in result.models.items()}, "3 letters never seen")
    typer.echo(f"The page with every torque and its parts: {page}")


@app.command()
@_command
@takes_log_options
def fit(
    log: LogsArgument,
    out: Annotated[
        Path | None, typer.Option("-o", "--out", help="Model file to write; default: LOG's name with .delan.")
    ] = None,
    test: Annotated[
        Path | None, typer.Option(help="Log or folder to score the model on; never used to choose it.")
    ] = None,
    urdf: Annotated[
        Path | None, typer.Option(help="URDF of the robot: models identified from it compete with the learned ones.")
    ] = None,
    report: Annotated[
        Path | None, typer.Option(help="Page to write; default: the model's name with .html.", metavar="PAGE")
    ] = None,
    model: Annotated[
        Literal["auto", "chain", "delan", "feedforward"],
        typer.Option(
            help="auto: all of them compete, the best on the validation motion is kept; chain: a rigid arm of learned "
            "geometry; delan: the paper's DeLaN network; feedforward: a plain network."
        ),
    ] = "auto",
    friction: Annotated[
        str | None,
        typer.Option(
            help="none; auto: terms are added while motion left out is explained better; or terms, such as "
            "viscous,coulomb,stribeck,offset,stops,load. Default: auto; none for a single delan.",
            show_default=False,
        ),
    ] = None,
    cutoff: Annotated[
        float | None,
        typer.Option(metavar="HZ", help="Of the low-pass over the log; default: chosen on the validation motion."),
    ] = None,
    accelerations: Annotated[
        Literal["auto", "filtered", "none"],
        typer.Option(
            help="filtered: from filtered motion; none: torques averaged over short windows need none, and no filter; "
            "auto: the better of the two."
        ),
    ] = "auto",
    seed: SeedOption = 0,
    seconds: Annotated[
        float | None,
        typer.Option(
            help="Wall-clock bound on the training, compilation included; where models compete, on all of it, about: "
            "each gets one try at least. Default: as long as it needs."
        ),
    ] = None,
    epochs: Annotated[
        int | None, typer.Option(help="Single model: passes over the data instead of seconds; default: enough.")
    ] = None,
    optimizer: Annotated[
        Literal["auto", "adam", "lm"], typer.Option(help="Single model: auto chooses by the size of the problem.")
    ] = "auto",
    width: Annotated[
        int | None, typer.Option(help="Single model: units of each hidden layer; default: chosen.")
    ] = None,
    depth: Annotated[int | None, typer.Option(help="Single model: hidden layers; default: 2.")] = None,
    weight_decay: Annotated[
        float, typer.Option(help="Single model: weight of the squared weights in the loss (λ of the paper's eq. 9).")
    ] = 0.0,
    seeds: Annotated[
        int, typer.Option(help="Single model: train so many at once and keep the best on validation.", min=1)
    ] = 1,
    resume: Annotated[
        bool, typer.Option("--resume", help="Single model: go on from the checkpoint of a stopped fit.")
    ] = False,
    as_json: JsonOption = False,
    *,
    log_options: Any,
) -> None:
    """Learn a model of the robot in LOG: say which one to deploy, and write it and a page with the reasons."""
    out = Path(log[0].stem + ".delan") if out is None else out
    for path in (out, report):
        if path is not None:
            _require_writable(path)
    from .fit import FitRequest, run_fit

    request = FitRequest(
        logs=tuple(log),
        log_options=log_options,
        out=out,
        test=test,
        urdf=urdf,
        page=report,
        model=model,
        friction=friction,
        cutoff=cutoff,
        accelerations=accelerations,
        seconds=seconds,
        epochs=epochs,
        optimizer=optimizer,
        width=width,
        depth=depth,
        weight_decay=weight_decay,
        seeds=seeds,
        resume=resume,
        seed=seed,
        as_json=as_json,
        command=shlex.join(["delan", *sys.argv[1:]]),
    )
    raise typer.Exit(run_fit(request))


@app.command()
@_command
@takes_log_options
def evaluate(
    model: Annotated[Path, typer.Argument(help="Model file that `delan fit` wrote.", show_default=False)],
    log: LogsArgument,
    as_json: JsonOption = False,
    *,
    log_options: Any,
) -> None:
    """Score a model on a log: torque, its parts where the truth is known, accelerations and predicted motion."""
    from .fit import run_evaluate

    run_evaluate(model, log, log_options, as_json=as_json)


@app.command()
@_command
@takes_log_options
def check(
    log: LogsArgument,
    urdf: Annotated[
        Path | None, typer.Option(help="URDF of the robot; it tells units and signs that a log alone cannot.")
    ] = None,
    plot: Annotated[Path | None, typer.Option(help="Picture of every joint to write: png, svg or pdf.")] = None,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print the findings as JSON on stdout, and nothing else there.")
    ] = False,
    *,
    log_options: Any,
) -> None:
    """Say what is wrong with a log, where, why it matters and what to do; exit code 1 with errors, 0 with warnings."""
    if plot is not None:
        _require_writable(plot)
    from .check import as_dict, check_log, show, write_picture

    recording, findings = check_log(log, log_options, urdf)
    if plot is not None:
        write_picture(recording, findings, plot)
    if as_json:
        typer.echo(json.dumps(as_dict(recording, findings, [str(path) for path in log])))
    else:
        show(recording, findings, name_of(log))
        if plot is not None:
            typer.echo(f"Picture: {plot}")
    if any(finding.severity == "error" for finding in findings):
        raise typer.Exit(1)


@app.command()
@_command
def describe(
    model: Annotated[Path, typer.Argument(help="Model file that `delan fit` wrote.", show_default=False)],
    plot: Annotated[Path | None, typer.Option(help="Picture of the learned arm to write: png, svg or pdf.")] = None,
    urdf: Annotated[Path | None, typer.Option(help="URDF of the true arm, to draw beneath the learned one.")] = None,
    out: Annotated[Path | None, typer.Option("-o", "--out", help="URDF file to write the learned arm to.")] = None,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print all of it as JSON on stdout, and nothing else there.")
    ] = False,
) -> None:
    """Tell what a model is and, of a chain, what it learned: axes, distances, links, rotors and friction."""
    if urdf is not None and plot is None:
        raise SettingsError(
            "--urdf is the true arm, drawn beneath the learned one; say where with --plot PICTURE, "
            "or write the learned arm with --out FILE"
        )
    for path in (plot, out):
        if path is not None:
            _require_writable(path)
    from .describe import read_description, write_picture, write_urdf
    from .describe_telling import show

    description = read_description(model)
    told = []
    if plot is not None:
        write_picture(description, plot, urdf)
        told.append(f"Picture: {plot}")
    if out is not None:
        told += [*write_urdf(description, out), f"URDF: {out}"]
    if as_json:
        typer.echo(json.dumps(description.as_dict()))
    else:
        show(description)
        for sentence in told:
            typer.echo(sentence)


@app.command()
@_command
def export(
    model: Annotated[Path, typer.Argument(help="Model file that `delan fit` wrote.", show_default=False)],
    out: Annotated[
        Path | None, typer.Option("-o", "--out", help="Folder to write into; default: named after the model.")
    ] = None,
    kind: Annotated[
        Literal["c", "stablehlo", "casadi"],
        typer.Option(
            "--format",
            help="c: C99 code; stablehlo: programs for JAX, of whole batches; casadi: symbolic functions for "
            "model-predictive control, always in double.",
        ),
    ] = "c",
    name: Annotated[
        str | None, typer.Option(help="What all names in the code begin with; default: that of the model file.")
    ] = None,
    double: Annotated[bool, typer.Option("--double", help="Numbers in double precision instead of float.")] = False,
    exact_math: Annotated[
        bool, typer.Option("--exact-math", help="The C library's exp and tanh instead of faster ones (error 3e-7).")
    ] = False,
    ros2: Annotated[
        bool, typer.Option("--ros2", help="Add a ROS 2 package in ros2/: a plugin for `inverse_dynamics_solver`.")
    ] = False,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print what was written as JSON on stdout, and nothing else there.")
    ] = False,
) -> None:
    """Write a model as C99 code for a controller: no Python there, no allocation, no dependency but libm.

    Other formats are functions in files, with a page that tells how to call them.
    """
    from ..deploy.shape import ExportSettings
    from .export import run_export, word_of

    settings = ExportSettings(
        word_of(model.stem) if name is None else name, "double" if double else "float", fast_math=not exact_math
    )
    run_export(model, out, settings, kind=kind, ros2=ros2, as_json=as_json)


@app.command()
@_command
@takes_log_options
def gate(
    model: Annotated[Path, typer.Argument(help="Model file that `delan fit` wrote.", show_default=False)],
    log: Annotated[
        list[Path],
        typer.Option("--log", help="Log of motion that the model was not trained on; may be repeated."),
    ],
    limits: Annotated[
        Path | None,
        typer.Option(help="TOML file with torque and, if known, lower, upper and velocity of the joints."),
    ] = None,
    urdf: Annotated[Path | None, typer.Option(help="URDF of the robot, for its limits.")] = None,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print the certificate as JSON on stdout, and nothing else there.")
    ] = False,
    *,
    log_options: Any,
) -> None:
    """Decide whether a model may drive a robot; a certificate is kept beside it.

    Exit code 0 only if every check passes, 1 if the model is refused, 2 if it could not be examined.
    """
    from .gate import run_gate

    try:
        passed = run_gate(model, log, log_options, limits=limits, urdf=urdf, as_json=as_json)
    except DelanError as error:
        typer.echo(f"delan: {error}", err=True)
        raise typer.Exit(2) from None
    if not passed:
        raise typer.Exit(1)


@app.command()
@_command
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
    speed: Annotated[float, typer.Option(help="So many times faster than usual.", min=0.01, max=100)] = 1.0,
    dt: Annotated[float, typer.Option(help="Sampling period in seconds.", min=1e-5, max=1.0)] = 0.005,
    seed: SeedOption = 0,
) -> None:
    """Motions for a robot to follow: letters, smooth cosines, or motions to identify it by; inside its limits."""
    if plot is None and out is None:
        raise SettingsError("nothing to write: give --plot PICTURE, --out FILE.npz, or both")
    for path in (plot, out):
        if path is not None:
            _require_writable(path)
    from .reference_files import make_motions, write_motions, write_picture

    made = make_motions(kind, robot, speed=speed, dt=dt, seed=seed)
    if plot is not None:
        write_picture(made, plot)
        typer.echo(f"Picture: {plot}")
    if out is not None:
        write_motions(made, out)
        typer.echo(f"Motions: {out}")


@app.command()
@_command
def online(
    robot: Annotated[str, typer.Argument(help="two-link, wam4 or wam7.", show_default=False)],
    feedforward: Annotated[
        Literal["pd", "gravity", "analytic", "true", "identified", "feedforward", "delan", "chain"],
        typer.Option(help="Whose torque joins the PD control: nobody's, a known model's, or one learned on the way."),
    ] = "delan",
    reference: Annotated[
        Literal["letters", "cosines"] | None, typer.Option(help="What to follow; letters for the two-link arm.")
    ] = None,
    letters: Annotated[str, typer.Option(help="Letters to learn on, over and over.")] = "a,d,e,g,m,n,r,u",
    test: Annotated[str, typer.Option(help="Letters to write afterwards with the model frozen.")] = "",
    speed: Annotated[float, typer.Option(help="So many times faster than usual.", min=0.1, max=10)] = 1.0,
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
    payload: Annotated[
        str, typer.Option(help="TIME:SHARE makes the last link heavier by a share at a time, such as 60:0.3.")
    ] = "",
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
    from .online import clear, leave_behind, live_table, tell, unused, watched

    out = out or unused(Path("online"))
    _require_writable(out / "recording.run", make_folder=True)
    from ..experiments.online import OnlineRun, run_online
    from .fit_request import read_friction

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
@_command
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
        Literal["letters", "cosines"] | None, typer.Option(help="What to follow; letters for the two-link arm.")
    ] = None,
    letters: Annotated[str, typer.Option(help="Letters to write, over and over.")] = "a,d,e,g,m,n,r,u",
    speed: Annotated[float, typer.Option(help="So many times faster than usual.", min=0.5, max=2)] = 1.0,
    seconds: Annotated[
        float | None, typer.Option(help="How long the robot moves at the most; default: half an hour.", min=1)
    ] = None,
    seed: SeedOption = 0,
    out: Annotated[Path | None, typer.Option("-o", "--out", help="Folder for a recording of the run.")] = None,
    host: Annotated[str, typer.Option(help="Address to serve at; others than this machine's own need a token.")] = (
        "127.0.0.1"
    ),
    port: Annotated[int | None, typer.Option(help="Default: 8080, or the next that is free.", min=0, max=65535)] = None,
    token: Annotated[str | None, typer.Option(help="Whoever opens the page must know it.")] = None,
    browse: Annotated[bool, typer.Option("--open", help="Open the page in the browser of this machine.")] = False,
    record: Annotated[
        Path | None,
        typer.Option(help="No page: a clip (gif, mp4) of the recording, or of a new run of --seconds (default 20)."),
    ] = None,
) -> None:
    """Watch the robot while it learns, in the browser, and tell it what to do; or replay a recording."""
    if out is not None:
        _require_writable(out / "recording.run", make_folder=True)
    if record is not None:
        _require_writable(record)
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
@_command
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
    seeds: Annotated[int | None, typer.Option(help="So many for each setting.", min=1)] = None,
    backend: Annotated[
        Literal["local", "dask", "ray"], typer.Option(help="Processes on this machine, or a cluster.")
    ] = "local",
    address: Annotated[
        str | None, typer.Option(help="Of the Dask scheduler or the Ray head; default: a cluster on this machine.")
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
    _require_writable(out / "index.html", make_folder=True)
    raise typer.Exit(run(settings, watch=watch, as_json=as_json))


@app.command()
@_command
def doctor(
    as_json: Annotated[
        bool, typer.Option("--json", help="Print what was found as JSON on stdout, and nothing else there.")
    ] = False,
) -> None:
    """Say what this machine has, what is missing and how to get it (`delan check` examines a log).

    Exit code 0 if all is there that fit, online and export need; what is only good to have does not count.
    """
    from .machine import examine_machine, show

    machine = examine_machine()
    if as_json:
        typer.echo(json.dumps(machine.as_dict()))
    else:
        show(machine)
    if not machine.ready:
        raise typer.Exit(1)


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


def _require_writable(path: Path, *, make_folder: bool = False) -> None:
    """Find out before the work, not after it, that the result has no place to go."""
    folder = path.parent
    try:
        if make_folder:
            folder.mkdir(exist_ok=True)
    except OSError as error:
        raise SettingsError(f"cannot make the folder {folder}: {error.strerror}; give another output path") from None
    if not folder.is_dir():
        raise SettingsError(f"there is no folder {folder} for {path.name}; make it or give another output path")
    if path.is_dir() or not os.access(folder, os.W_OK):
        what = "is a folder" if path.is_dir() else f"is in a folder that cannot be written, {folder}"
        raise SettingsError(f"{path} {what}; give another output path")


if __name__ == "__main__":
    sys.exit(main())
