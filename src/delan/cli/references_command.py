"""Motions of `delan references`, written as a picture and as a log."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import jax
import numpy as np

from ..errors import SettingsError
from ..joints import Trajectory
from ..models.rigid_body import RigidBody
from ..motions.cosines import cosines
from ..motions.excitation import excite
from ..motions.letters import LETTERS
from ..report.motion_figures import draw_motion, draw_strokes
from ..robots import arm_named
from ..robots.description import Arm
from ..robots.two_link import letter_motion, pen_position
from ..storage import write_whole

# Mean speed of the pen at speed 1 [m/s].
PEN_SPEED = 0.45


@dataclass(frozen=True, eq=False)
class ReferenceMotions:
    """Motions of one arm, and whether they are letters."""

    arm: Arm
    motions: tuple[Trajectory, ...]
    letters: bool = False


def make_motions(
    kind: Literal["letters", "cosines", "excitation"],
    robot: str,
    *,
    speed: float,
    dt: float,
    seed: int,
) -> ReferenceMotions:
    """Return motions of a kind for the robot with this name."""
    arm = arm_named(robot)
    key = jax.random.key(seed)
    if kind == "letters":
        if robot != "two-link":
            raise SettingsError(
                f"letters are written by the two-link arm, not by {robot}; use cosines for it"
            )
        written = [letter_motion(letter, speed=PEN_SPEED * speed, dt=dt) for letter in LETTERS]
        return ReferenceMotions(arm, tuple(written), letters=True)
    if kind == "cosines":
        return ReferenceMotions(arm, (cosines(arm.limits, key=key).at_speed(speed).sample(dt),))
    model = RigidBody.from_urdf(arm.urdf())

    def torque(q: np.ndarray, qd: np.ndarray, qdd: np.ndarray) -> np.ndarray:
        return _torque(model, q, qd, qdd)

    def regressor(q: np.ndarray, qd: np.ndarray, qdd: np.ndarray) -> np.ndarray:
        return np.concatenate(model.regressor_rows(q, qd, qdd))

    excitation = excite(arm.limits, dt=dt, key=key, torque=torque, regressor=regressor)
    return ReferenceMotions(arm, (excitation.trajectory,))


def _torque(model: RigidBody, q: np.ndarray, qd: np.ndarray, qdd: np.ndarray) -> np.ndarray:
    """Return the torque at each row of a motion [N m or N]."""
    return np.stack([model.inverse_dynamics(*row) for row in zip(q, qd, qdd, strict=True)])


def write_picture(reference: ReferenceMotions, path: Path) -> None:
    """Draw letters as the pen writes them, other motions joint by joint."""
    suffix = path.suffix.lower()
    if suffix not in (".png", ".svg", ".pdf"):
        raise SettingsError(f"{path}: a picture is a .png, .svg or .pdf file")
    if reference.letters:
        strokes = []
        for motion in reference.motions:
            rest = np.zeros_like(motion.qd)
            pen = pen_position(motion.q)
            strokes.append(Trajectory(t=motion.t, q=pen, qd=rest, qdd=rest, label=motion.label))
        figure = draw_strokes(strokes)
    else:
        figure = draw_motion(reference.motions[0], reference.arm.joints, reference.arm.limits)
    write_whole(path, lambda file: figure.savefig(file, format=suffix[1:], dpi=130))


def write_motions(reference: ReferenceMotions, path: Path) -> None:
    """Write all motions and their torques as a log, with `trajectory` numbers and `labels`."""
    if path.suffix != ".npz":
        raise SettingsError(f"{path}: motions are written as .npz files; give {path.stem}.npz")
    motions = reference.motions
    arrays: dict[str, Any] = {}
    for name in ("t", "q", "qd", "qdd"):
        arrays[name] = np.concatenate([getattr(motion, name) for motion in motions])
    model = RigidBody.from_urdf(reference.arm.urdf())
    arrays["tau"] = _torque(model, arrays["q"], arrays["qd"], arrays["qdd"])
    lengths = [len(motion.t) for motion in motions]
    arrays["trajectory"] = np.repeat(np.arange(len(motions)), lengths)
    arrays["labels"] = np.array([motion.label for motion in motions])
    arrays["joint_names"] = np.array(reference.arm.joints.names)
    write_whole(path, lambda file: np.savez(file, **arrays))
