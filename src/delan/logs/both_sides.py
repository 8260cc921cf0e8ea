"""Elastic joints of which both sides were measured: coordinates of links, and of motors behind.

A spring joins a link with its motor, so that both have a position of their own. A log of n such
joints becomes a recording of 2 n coordinates: first the links, which no torque drives from outside,
then their motors with the torques of the log. All that knows joints without a motor knows it.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, TypeVar

import numpy as np
from jaxtyping import Float

from ..errors import DataError
from ..joints import Dataset, Joints, Recording

Columns = Mapping[str, Float[np.ndarray, "time dof"]]
Data = TypeVar("Data", bound=Recording | Dataset)


def both_sides(
    columns: Columns,
    joints: Joints,
    stiffness: Float[np.ndarray, " dof"] | None = None,
    source: str = "log",
) -> tuple[Mapping[str, np.ndarray], Joints]:
    """Return the columns of links and motors side by side, if the log has both.

    Torque sensors, `tau_link`, give the deflection of their joints from their stiffness: then the
    links are where `q_motor` and it say or, without that, the motors where `q` and it say.
    Velocities are used if those of both sides were logged, and differentiated otherwise, as
    accelerations are.
    """
    columns = dict(columns)
    if "tau_link" in columns:
        if stiffness is None:
            problem = (
                "tau_link needs the stiffness of the sensors in the joints: give --stiffness in "
                "N m/rad from their data sheet, or leave it out by --map tau_link="
            )
            raise DataError(source, problem, column="tau_link")
        deflection = columns["tau_link"] / stiffness
        columns.pop("qd", None)
        if "q_motor" in columns:
            columns["q"] = columns["q_motor"] - deflection
        else:
            columns["q_motor"] = columns["q"] + deflection
    if "q_motor" not in columns:
        columns.pop("qd_motor", None)
        return columns, joints
    beside = {
        "q": np.concatenate([columns["q"], columns["q_motor"]], axis=1),
        "tau": np.concatenate([np.zeros_like(columns["tau"]), columns["tau"]], axis=1),
    }
    if "qd" in columns and "qd_motor" in columns:
        beside["qd"] = np.concatenate([columns["qd"], columns["qd_motor"]], axis=1)
    return beside, joints.with_motors()


def link_side(data: Data, torque: Float[np.ndarray, "time links"]) -> Data:
    """Return the data of the links alone, driven by the given torque."""
    links = data.joints.links
    fields: dict[str, Any] = {}
    for name in ("q", "qd", "qdd"):
        values = getattr(data, name)
        if values is not None:
            fields[name] = values[:, : links.dof]
    return replace(data, **fields, tau=torque, joints=links, truth={})


def at_links(
    torque: Float[np.ndarray, "time dof"], joints: Joints
) -> Float[np.ndarray, "time links"]:
    """Return the sum of each link's row and its motor's, in which the spring between cancels."""
    links = joints.links.dof
    total = torque[:, :links].copy()
    total[:, list(joints.motor_of)] += torque[:, links:]
    return total
