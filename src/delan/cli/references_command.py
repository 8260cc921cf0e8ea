"""The command `delan references`: motions for a robot to follow, as a picture and as a log."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from ..errors import SettingsError
from .app import SeedOption, app, command, require_picture, require_writable, write_picture

if TYPE_CHECKING:
    from ..joints import Trajectory
    from ..robots.description import Arm

# Mean speed of the pen at speed 1 [m/s].
PEN_SPEED = 0.45


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
            help="npz file for the motions (t, q, qd, qdd) and the torques tau they need: a log to "
            "experiment with.",
        ),
    ] = None,
    speed: Annotated[
        float, typer.Option(help="Factor on the usual speed.", min=0.01, max=100)
    ] = 1.0,
    dt: Annotated[
        float, typer.Option(help="Sampling period in seconds.", min=1e-5, max=1.0)
    ] = 0.005,
    count: Annotated[
        int,
        typer.Option("--motions", help="Cosines: how many different motions.", min=1, metavar="N"),
    ] = 1,
    letters: Annotated[
        str,
        typer.Option(
            help="Letters: own, or uci=FILE with recorded pen strokes (mixoutALL_shifted.mat, or "
            "an npz of arrays a_0, a_1, …); the seed chooses the stroke of each letter.",
        ),
    ] = "own",
    seed: SeedOption = 0,
) -> None:
    """Motions for a robot to follow: letters, smooth cosines, or motions to identify it by; inside
    its limits.
    """
    if plot is None and out is None:
        raise SettingsError("nothing to write: give --plot PICTURE, --out FILE.npz, or both")
    require_picture(plot)
    require_writable(out)
    if out is not None and out.suffix != ".npz":
        raise SettingsError(f"{out}: motions are written as .npz files; give {out.stem}.npz")
    from ..robots import arm_named

    arm = arm_named(robot)
    _require_kind(kind, robot, letters, count)
    if kind == "letters":
        motions = _letters(letters, speed, dt, seed)
    elif kind == "cosines":
        motions = _cosines(arm, speed, dt, seed, count)
    else:
        motions = [_excitation(arm, dt, seed)]
    if plot is not None:
        write_picture(_draw(arm, motions, kind), plot)
        typer.echo(f"Picture: {plot}")
    if out is not None:
        _write_log(arm, motions, out)
        typer.echo(f"Motions: {out}")


def _require_kind(kind: str, robot: str, letters: str, count: int) -> None:
    """Refuse options that do not belong to this kind of motion."""
    if letters != "own" and kind != "letters":
        raise SettingsError(f"--letters {letters} is for letters; leave it out for {kind}")
    if count > 1 and kind != "cosines":
        raise SettingsError(f"--motions counts cosines; leave it out for {kind}")
    if kind == "letters" and robot != "two-link":
        raise SettingsError(
            f"letters are written by the two-link arm, not by {robot}; use cosines for it"
        )


def _letters(name: str, speed: float, dt: float, seed: int) -> list["Trajectory"]:
    from ..motions.alphabet import alphabet_named
    from ..motions.letters import LETTERS
    from ..robots.arms import letter_motion

    alphabet = alphabet_named(name)
    motions = []
    for letter in LETTERS:
        pen_speed = PEN_SPEED * speed
        motions.append(
            letter_motion(letter, speed=pen_speed, dt=dt, alphabet=alphabet, sample=seed)
        )
    return motions


def _cosines(arm: "Arm", speed: float, dt: float, seed: int, count: int) -> list["Trajectory"]:
    import jax

    from ..motions.cosines import cosines

    key = jax.random.key(seed)
    # The first motion of a seed is the same however many follow.
    keys = [key, *(jax.random.fold_in(key, number) for number in range(1, count))]
    return [cosines(arm.limits, key=key).at_speed(speed).sample(dt) for key in keys]


def _excitation(arm: "Arm", dt: float, seed: int) -> "Trajectory":
    import jax
    import numpy as np

    from ..models.rigid_body import RigidBody
    from ..motions.excitation import excite

    model = RigidBody.from_urdf(arm.urdf())

    def regressor(q: np.ndarray, qd: np.ndarray, qdd: np.ndarray) -> np.ndarray:
        return np.concatenate(model.regressor_rows(q, qd, qdd))

    return excite(
        arm.limits,
        dt=dt,
        key=jax.random.key(seed),
        torque=_torque_rows(model),
        regressor=regressor,
    ).trajectory


def _torque_rows(model: Any) -> Any:
    """Return a function of the torque at each row of a motion [N m or N]."""
    import numpy as np

    return np.vectorize(model.inverse_dynamics, signature="(n),(n),(n)->(n)")


def _draw(arm: "Arm", motions: list["Trajectory"], kind: str) -> Any:
    """Draw letters as the pen writes them, other motions joint by joint."""
    import numpy as np

    from ..joints import Trajectory
    from ..report.robot_figures import draw_motion, draw_strokes
    from ..robots.arms import pen_position

    if kind != "letters":
        return draw_motion(motions[0], arm.joints, arm.limits)
    strokes = []
    for motion in motions:
        rest = np.zeros_like(motion.qd)  # a drawing shows the path alone
        pen = pen_position(motion.q)
        strokes.append(Trajectory(t=motion.t, q=pen, qd=rest, qdd=rest, label=motion.label))
    return draw_strokes(strokes)


def _write_log(arm: "Arm", motions: list["Trajectory"], path: Path) -> None:
    """Write all motions and their torques as a log, with `trajectory` numbers and `labels`."""
    import numpy as np

    from ..models.rigid_body import RigidBody
    from ..storage import write_whole

    arrays: dict[str, Any] = {}
    for name in ("t", "q", "qd", "qdd"):
        arrays[name] = np.concatenate([getattr(motion, name) for motion in motions])
    torque = _torque_rows(RigidBody.from_urdf(arm.urdf()))
    arrays["tau"] = torque(arrays["q"], arrays["qd"], arrays["qdd"])
    lengths = [len(motion.t) for motion in motions]
    arrays["trajectory"] = np.repeat(np.arange(len(motions)), lengths)
    arrays["labels"] = np.array([motion.label for motion in motions])
    arrays["joint_names"] = np.array(arm.joints.names)
    write_whole(path, lambda file: np.savez(file, **arrays))
