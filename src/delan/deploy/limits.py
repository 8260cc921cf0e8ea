"""The limits of a robot's joints, from a file of a few lines or from its URDF."""

import tomllib
from dataclasses import fields
from pathlib import Path
from typing import Any

import numpy as np

from ..errors import SettingsError
from ..joints import JointLimits, Joints
from ..robots.files import from_urdf

NAMES = tuple(field.name for field in fields(JointLimits))
EXAMPLE = "torque = [87, 87, 87, 87, 12, 12, 12]"


def read_limits(path: Path, joints: Joints) -> JointLimits:
    """Limits from a TOML file: lower, upper, velocity and torque, a number for all joints or one each.

    What is left out is unlimited, but for the torque, which has to be there.
    """
    try:
        told = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise SettingsError(
            f"{path}: cannot be read ({error.strerror}); give a file with lines such as {EXAMPLE}"
        ) from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise SettingsError(f"{path}: is no TOML ({error}); write lines such as {EXAMPLE}") from None
    unknown = sorted(set(told) - set(NAMES))
    if unknown:
        raise SettingsError(f"{path}: unknown limit {unknown[0]!r}; known: {', '.join(NAMES)}")
    unlimited = {"lower": -np.inf, "upper": np.inf, "velocity": np.inf, "torque": np.inf}
    rows = {name: _row(path, name, told.get(name, usual), joints) for name, usual in unlimited.items()}
    try:
        return _sound(JointLimits(**rows))
    except SettingsError as error:
        raise SettingsError(f"{path}: {error}") from None


def limits_of_urdf(path: Path, joints: Joints) -> JointLimits:
    """Limits from a URDF, whose joints have the model's names, or else its number and order."""
    robot = from_urdf(path, meshes=False).robot
    order = range(joints.dof)
    if set(joints.names) <= set(robot.joints.names):
        order = [robot.joints.names.index(name) for name in joints.names]
    elif robot.joints.dof != joints.dof:
        raise SettingsError(
            f"{path}: has {robot.joints.dof} joints and the model {joints.dof}, under other names; give --limits"
        )
    try:
        return _sound(JointLimits(**{name: getattr(robot.limits, name)[list(order)] for name in NAMES}))
    except SettingsError as error:
        raise SettingsError(f"{path}: {error}") from None


def _row(path: Path, name: str, given: Any, joints: Joints) -> np.ndarray:
    row = given if isinstance(given, list) else [given] * joints.dof
    if len(row) != joints.dof or not all(type(one) in (int, float) for one in row):
        raise SettingsError(f"{path}: {name} is one number or a list of {joints.dof}, got {given!r}")
    return np.array(row, dtype=float)


def _sound(limits: JointLimits) -> JointLimits:
    if not np.isfinite(limits.torque).all():
        raise SettingsError(f"every joint needs a torque limit; write a line such as {EXAMPLE}")
    return limits
