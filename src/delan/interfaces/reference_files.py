"""What `delan references` makes: motions of a robot by name, as a picture and as a file."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import jax
import numpy as np

from ..data.cosines import cosines
from ..data.excitation import excite
from ..data.letters import LETTERS
from ..errors import SettingsError
from ..joints import Trajectory
from ..models.rigid_body import RigidBody
from ..report.references import draw_motion, draw_strokes
from ..robots.arms import arm_named
from ..robots.description import Arm
from ..robots.two_link import letter_motion, pen_position
from ..storage import write_whole


@dataclass(frozen=True, eq=False)
class Motions:
    """Motions of one arm, one or, for letters, twenty."""

    arm: Arm
    motions: tuple[Trajectory, ...]
    written: bool


def make_motions(
    kind: Literal["letters", "cosines", "excitation"], robot: str, *, speed: float, dt: float, seed: int
) -> Motions:
    """The motions of that kind for the robot of that name."""
    arm = arm_named(robot)
    if kind == "letters":
        if robot != "two-link":
            raise SettingsError(f"letters are written by the two-link arm, not by {robot}; use cosines for it")
        return Motions(arm, tuple(letter_motion(letter, speed=0.45 * speed, dt=dt) for letter in LETTERS), written=True)
    if kind == "cosines":
        return Motions(arm, (cosines(arm.limits, key=jax.random.key(seed)).at_speed(speed).sample(dt),), written=False)
    model = RigidBody.from_urdf(arm.urdf())

    def torque(*motion: np.ndarray) -> np.ndarray:
        return _torque(model, *motion)

    def regressor(*motion: np.ndarray) -> np.ndarray:
        return np.concatenate(model.regressor_rows(*motion))

    found = excite(arm.limits, dt=dt, key=jax.random.key(seed), torque=torque, regressor=regressor)
    return Motions(arm, (found.trajectory,), written=False)


def _torque(model: RigidBody, *motion: np.ndarray) -> np.ndarray:
    """What the arm needs at each row of a motion [N m or N]."""
    return np.stack([model.inverse_dynamics(*row) for row in zip(*motion, strict=True)])


def write_picture(made: Motions, path: Path) -> None:
    """Letters as the pen draws them, other motions joint by joint."""
    if path.suffix.lower() not in (".png", ".svg", ".pdf"):
        raise SettingsError(f"{path}: a picture is a .png, .svg or .pdf file")
    if made.written:
        pens = [Trajectory(t=m.t, q=pen_position(m.q), qd=0 * m.qd, qdd=0 * m.qdd, label=m.label) for m in made.motions]
        figure = draw_strokes(pens)
    else:
        figure = draw_motion(made.motions[0], made.arm.joints, made.arm.limits)
    write_whole(path, lambda file: figure.savefig(file, format=path.suffix[1:].lower(), dpi=130))


def write_motions(made: Motions, path: Path) -> None:
    """All motions in one npz file, told apart by `trajectory`, named by `labels`; with the torques they take: a log."""
    if path.suffix != ".npz":
        raise SettingsError(f"{path}: motions are written as .npz files; give {path.stem}.npz")
    arrays: dict[str, Any] = {
        name: np.concatenate([getattr(motion, name) for motion in made.motions]) for name in ("t", "q", "qd", "qdd")
    }
    arrays["tau"] = _torque(RigidBody.from_urdf(made.arm.urdf()), arrays["q"], arrays["qd"], arrays["qdd"])
    arrays["trajectory"] = np.repeat(np.arange(len(made.motions)), [len(motion.t) for motion in made.motions])
    arrays["labels"] = np.array([motion.label for motion in made.motions])
    arrays["joint_names"] = np.array(made.arm.joints.names)
    write_whole(path, lambda file: np.savez(file, **arrays))
