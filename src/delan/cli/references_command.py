"""The command `delan references`: motions for a robot to follow, as a picture and as a log."""

import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from ..errors import SettingsError
from .app import (
    SeedOption,
    app,
    command,
    option,
    require_picture,
    require_writable,
    say,
    takes,
    write_picture,
)

if TYPE_CHECKING:
    from ..joints import JointLimits, Trajectory
    from ..models.rigid_body import RigidBody

# Seconds between two lines about a search.
SAID_EVERY = 5.0
# Mean speed of the pen at speed 1 [m/s].
PEN_SPEED = 0.45


@dataclass(frozen=True, kw_only=True)
class ReferencesRequest:
    """The options of `delan references`."""

    kind: Annotated[
        Literal["letters", "cosines", "excitation"],
        typer.Argument(help="Which motions.", show_default=False),
    ]
    robot: str = option(
        "two-link", help="two-link, wam4 or wam7; letters are for the two-link arm."
    )
    urdf: Path | None = option(
        None, help="URDF of the robot, in place of --robot; its limits are kept."
    )
    plot: Path | None = option(None, help="Picture to write: png, svg or pdf.")
    out: Path | None = option(
        None,
        "-o",
        "--out",
        help="npz file for the motions (t, q, qd, qdd) and the torques tau they need: a log to "
        "experiment with.",
    )
    speed: float = option(1.0, help="Factor on the usual speed.", min=0.01, max=100)
    dt: float = option(0.005, help="Sampling period in seconds.", min=1e-5, max=1.0)
    count: int = option(
        1, "--motions", help="Cosines: how many different motions.", min=1, metavar="N"
    )
    letters: str = option(
        "own",
        help="Letters: own, or uci=FILE with recorded pen strokes (mixoutALL_shifted.mat, or "
        "an npz of arrays a_0, a_1, …); the seed chooses the stroke of each letter.",
    )
    seed: SeedOption = 0

    def __post_init__(self) -> None:
        if self.plot is None and self.out is None:
            raise SettingsError("nothing to write: give --plot PICTURE, --out FILE.npz, or both")
        require_picture(self.plot)
        require_writable(self.out)
        if self.out is not None and self.out.suffix != ".npz":
            raise SettingsError(
                f"{self.out}: motions are written as .npz files; give {self.out.stem}.npz"
            )
        if self.letters != "own" and self.kind != "letters":
            raise SettingsError(
                f"--letters {self.letters} is for letters; leave it out for {self.kind}"
            )
        if self.count > 1 and self.kind != "cosines":
            raise SettingsError(f"--motions counts cosines; leave it out for {self.kind}")
        robot = self.robot if self.urdf is None else self.urdf.name
        if self.kind == "letters" and robot != "two-link":
            raise SettingsError(
                f"letters are written by the two-link arm, not by {robot}; use cosines for it"
            )


@app.command()
@command
@takes("request", ReferencesRequest)
def references(*, request: ReferencesRequest) -> None:
    """Motions for a robot to follow: letters, smooth cosines, or motions to identify it by; inside
    its limits.
    """
    robot = _named(request.robot) if request.urdf is None else _described(request.urdf)
    if request.kind == "letters":
        motions = _letters(request.letters, request.speed, request.dt, request.seed)
    elif request.kind == "cosines":
        motions = _cosines(robot.limits, request)
    else:
        motions = [_excitation(robot, request.dt, request.seed)]
    if request.plot is not None:
        write_picture(_draw(robot, motions, request.kind), request.plot)
        typer.echo(f"Picture: {request.plot}")
    if request.out is not None:
        _write_log(robot.body, motions, request.out)
        typer.echo(f"Motions: {request.out}")


@dataclass(frozen=True)
class _Followed:
    """The robot that is to follow the motions."""

    body: "RigidBody"
    limits: "JointLimits"


def _named(robot: str) -> _Followed:
    from ..models.rigid_body import RigidBody
    from ..robots import arm_named

    arm = arm_named(robot)
    return _Followed(RigidBody.from_urdf(arm.urdf()), arm.limits)


def _described(urdf: Path) -> _Followed:
    """Return the robot of a URDF; refuse one without limits of its speed, which motions need."""
    from ..models.rigid_body import RigidBody
    from ..robots.robot_files import described_limits

    body = RigidBody.from_urdf(urdf)
    limits = described_limits(urdf, body.joints.names)
    for name, speed in zip(body.joints.names, limits.velocity, strict=True):
        if speed == float("inf"):
            raise SettingsError(
                f"{urdf}: joint {name} has no limit of its speed; add <limit velocity=…> in rad/s "
                "or m/s, and effort if its torque is limited"
            )
    return _Followed(body, limits)


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


def _cosines(limits: "JointLimits", request: ReferencesRequest) -> list["Trajectory"]:
    import jax

    from ..motions.cosines import cosines

    key = jax.random.key(request.seed)
    # The first motion of a seed is the same however many follow.
    keys = [key, *(jax.random.fold_in(key, number) for number in range(1, request.count))]
    motions = []
    for each in keys:
        motions.append(cosines(limits, key=each).at_speed(request.speed).sample(request.dt))
    return motions


def _excitation(robot: _Followed, dt: float, seed: int) -> "Trajectory":
    import jax
    import numpy as np

    from ..motions.excitation import excite

    def regressor(q: np.ndarray, qd: np.ndarray, qdd: np.ndarray) -> np.ndarray:
        return np.concatenate(robot.body.regressor_rows(q, qd, qdd))

    said = time.monotonic()

    def watch(share: float, condition: float) -> None:
        nonlocal said
        if time.monotonic() - said > SAID_EVERY:
            said = time.monotonic()
            say(f"searching for a motion: {share:.0%}, condition number {condition:.3g}")

    return excite(
        robot.limits,
        dt=dt,
        key=jax.random.key(seed),
        torque=_torque_rows(robot.body),
        regressor=regressor,
        watch=watch,
    ).trajectory


def _torque_rows(model: "RigidBody") -> Any:
    """Return a function of the torque at each row of a motion [N m or N]."""
    import numpy as np

    return np.vectorize(model.inverse_dynamics, signature="(n),(n),(n)->(n)")


def _draw(robot: _Followed, motions: list["Trajectory"], kind: str) -> Any:
    """Draw letters as the pen writes them, other motions joint by joint."""
    import numpy as np

    from ..joints import Trajectory
    from ..report.robot_figures import draw_motion, draw_strokes
    from ..robots.arms import pen_position

    if kind != "letters":
        return draw_motion(motions[0], robot.body.joints, robot.limits)
    strokes = []
    for motion in motions:
        rest = np.zeros_like(motion.qd)  # a drawing shows the path alone
        pen = pen_position(motion.q)
        strokes.append(Trajectory(t=motion.t, q=pen, qd=rest, qdd=rest, label=motion.label))
    return draw_strokes(strokes)


def _write_log(body: "RigidBody", motions: list["Trajectory"], path: Path) -> None:
    """Write all motions and their torques as a log, with `trajectory` numbers and `labels`."""
    import numpy as np

    from ..storage import write_whole

    arrays: dict[str, Any] = {}
    for name in ("t", "q", "qd", "qdd"):
        arrays[name] = np.concatenate([getattr(motion, name) for motion in motions])
    torque = _torque_rows(body)
    arrays["tau"] = torque(arrays["q"], arrays["qd"], arrays["qdd"])
    lengths = [len(motion.t) for motion in motions]
    arrays["trajectory"] = np.repeat(np.arange(len(motions)), lengths)
    arrays["labels"] = np.array([motion.label for motion in motions])
    arrays["joint_names"] = np.array(body.joints.names)
    write_whole(path, lambda file: np.savez(file, **arrays))
