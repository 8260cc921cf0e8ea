"""Commands that move robots: references, and online learning."""

from pathlib import Path
from typing import Annotated, Literal

import typer

from ..errors import SettingsError
from .app import JsonOption, SeedOption, app, command, require_writable


@app.command()
@command
def references(
    kind: Annotated[
        Literal["letters", "cosines", "excitation"],
        typer.Argument(help="Which motions.", show_default=False),
    ],
    robot: Annotated[
        str, typer.Option(help="two-link, wam4 or wam7; letters are for the two-link arm.")
    ] = "two-link",
    plot: Annotated[Path | None, typer.Option(help="Picture to write: png, svg or pdf.")] = None,
    out: Annotated[
        Path | None,
        typer.Option(
            "-o",
            "--out",
            help="npz file for the motions, t, q, qd, qdd, and the torque tau they take: a log to try.",
        ),
    ] = None,
    speed: Annotated[
        float, typer.Option(help="Factor on the usual speed.", min=0.01, max=100)
    ] = 1.0,
    dt: Annotated[
        float, typer.Option(help="Sampling period in seconds.", min=1e-5, max=1.0)
    ] = 0.005,
    seed: SeedOption = 0,
) -> None:
    """Motions for a robot to follow: letters, smooth cosines, or motions to identify it by; inside
    its limits.
    """
    if plot is None and out is None:
        raise SettingsError("nothing to write: give --plot PICTURE, --out FILE.npz, or both")
    for path in (plot, out):
        if path is not None:
            require_writable(path)
    from .references_command import make_motions, write_motions, write_picture

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
    model: Annotated[
        Literal[
            "none", "gravity", "analytic", "true", "identified", "feedforward", "delan", "chain"
        ],
        typer.Option(
            help="Feed-forward torque added to PD control: none, from a known model, or learned "
            "online."
        ),
    ] = "delan",
    reference: Annotated[
        Literal["letters", "cosines"] | None,
        typer.Option(
            help="Motions to follow; default: letters for the two-link arm, else cosines."
        ),
    ] = None,
    letters: Annotated[
        str, typer.Option(help="Letters to learn on, repeatedly.")
    ] = "a,d,e,g,m,n,r,u",
    test: Annotated[str, typer.Option(help="Letters to test the frozen model on.")] = "",
    speed: Annotated[float, typer.Option(help="Factor on the usual speed.", min=0.1, max=10)] = 1.0,
    test_speeds: Annotated[
        str, typer.Option(help="Cosines: speeds to test the frozen model at, such as 1,1.5,2.")
    ] = "",
    seconds: Annotated[float, typer.Option(help="How long to learn [s].", min=1)] = 30.0,
    clock: Annotated[
        Literal["wall", "stepped"],
        typer.Option(help="Real time, or as fast as possible and reproducible."),
    ] = "wall",
    engine: Annotated[
        Literal["mujoco", "pybullet"], typer.Option(help="Simulator of the robot.")
    ] = "mujoco",
    drive: Annotated[
        Literal["rigid", "cable"],
        typer.Option(help="WAM: rigid drives, or elastic cables with friction."),
    ] = "rigid",
    friction: Annotated[
        str,
        typer.Option(
            help="none, or friction terms such as viscous,coulomb, learned with delan or chain."
        ),
    ] = "none",
    optimizer: Annotated[
        Literal["auto", "adam"],
        typer.Option(help="auto: Levenberg–Marquardt for small models; adam: as in the paper."),
    ] = "auto",
    payload: Annotated[
        str, typer.Option(help="TIME:SHARE; 60:0.3 makes the last link 30 % heavier after 60 s.")
    ] = "",
    seed: SeedOption = 0,
    out: Annotated[
        Path | None,
        typer.Option(
            "-o",
            "--out",
            help="Folder for recording, pictures and model; those of an earlier run are replaced. "
            "Default: online, or online-2, … if it exists.",
            show_default=False,
        ),
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Control a simulated robot while it learns its own dynamics from random weights."""
    from ..online.online_run import OnlineRun
    from .fit_request import read_friction
    from .online_command import run_command

    terms = read_friction(friction)
    if terms == "auto":
        raise SettingsError(
            "friction terms are not chosen online; give them, such as --friction viscous,coulomb"
        )
    settings = OnlineRun(
        robot=robot,
        engine=engine,
        drive=drive,
        friction=terms,
        optimizer=optimizer,
        model=model,
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
    run_command(settings, out, as_json=as_json)


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
