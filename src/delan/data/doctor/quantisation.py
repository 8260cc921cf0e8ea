"""Channels in steps: how large the steps are, and what they cost behind a filter."""

import numpy as np

from ...joints import Joints
from .finding import Finding, spread
from .levels import Columns, quantum
from .motion import Motion

HARM = 0.1
"""Steps are warned of if they make an error of this share of the deviation of the torque, the speed, or of the
acceleration that is computed from the positions,"""
SEEN = 0.02
"""and told of from this share on."""


def examine_quantisation(columns: Columns, motion: Motion, joints: Joints) -> list[Finding]:
    """Steps that are coarse against what a channel has to tell."""
    found = []
    for name in ("q", "qd", "tau"):
        for joint in range(joints.dof) if name in columns else ():
            values = columns[name][:, joint]
            step = quantum(values)
            if step == 0.0 or spread(values) == 0.0:
                continue
            harm = _harm_of_position(step, motion, joint) if name == "q" else step / np.sqrt(12) / float(values.std())
            if harm > SEEN:
                found.append(_told(name, joint, joints, step, spread(values), harm))
    return found


def _harm_of_position(step: float, motion: Motion, joint: int) -> float:
    """Error of the acceleration behind the filter, over the acceleration's deviation.

    Rounding to steps is noise of variance step²/12, spread evenly up to half the rate at which steps are crossed, of
    which the filter lets its band pass; a second derivative weighs each frequency f by (2π f)², in the mean
    (2π cutoff)² / √5 over the band.
    """
    pace = float(motion.speed[:, joint].std())
    crossed = min(1 / motion.period, pace / step) if pace > 0 else 0.0
    band = min(1.0, 2 * motion.cutoff / crossed) if crossed > 0 else 1.0
    noise = step / np.sqrt(12) * np.sqrt(band) * (2 * np.pi * motion.cutoff) ** 2 / np.sqrt(5)
    size = float(motion.acceleration[:, joint].std())
    return noise / size if size > 0 else 0.0


def _told(name: str, joint: int, joints: Joints, step: float, distance: float, harm: float) -> Finding:
    length = "m" if joints.kinds[joint] == "prismatic" else "rad"
    unit = {"q": length, "qd": f"{length}/s", "tau": "N" if length == "m" else "N m"}[name]
    cost = "the acceleration computed from it" if name == "q" else "its deviation"
    remedy = {
        "q": "log the encoder with more digits, or smooth harder; log qd if the drive knows it",
        "qd": "leave qd out and have it computed from q, or log more digits",
        "tau": "log the torque with more digits or a finer range",
    }[name]
    return Finding(
        kind="quantised",
        severity="warning" if harm > HARM else "note",
        joint=joint,
        column=name,
        text=f"goes in steps of {step:.3g} {unit}, {distance / step:.0f} in all: an error of {harm:.0%} of {cost}",
        remedy=remedy,
    )
