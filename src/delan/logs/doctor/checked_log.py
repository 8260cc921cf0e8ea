"""What all checks know about a log: its repaired columns, its motion and the described robot."""

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
from jaxtyping import Float

from ...errors import ModelError
from ...joints import JointLimits, Joints, Recording
from ..excerpts import LogPart
from ..segments import LogSegment
from .motion import Column, Columns, Motion

SampleRows = Float[np.ndarray, "samples dof"]
# Torques [N m or N] of rows of positions, velocities and accelerations.
TorqueRows = Callable[[SampleRows, SampleRows, SampleRows], SampleRows]


@dataclass(frozen=True, eq=False)
class DescribedRobot:
    """A robot according to a description, such as a URDF.

    Attributes:
        source: name of the description, for messages.
        joints: names and kinds of the joints, in the order of the log's columns.
        torque: torques of rows of positions, velocities and accelerations.
        limits: limits of the joints.
    """

    source: str
    joints: Joints
    torque: TorqueRows
    limits: JointLimits

    def named(self, recording: Recording) -> Recording:
        """Return the recording with the joints of this robot, whose number must be the same."""
        if self.joints.dof != recording.joints.dof:
            raise ModelError(
                f"{self.source} has {self.joints.dof} joints ({', '.join(self.joints.names)}), the "
                f"log has {recording.joints.dof}; choose the joints of the log with --joints"
            )
        return replace(recording, joints=self.joints)

    def named_part(self, part: LogPart) -> LogPart:
        """Return a part of a log with the joints of this robot."""
        return replace(part, recording=self.named(part.recording))


@dataclass(frozen=True, eq=False)
class Comparison:
    """Logged torques against those of a description, per joint.

    Attributes:
        factor: factor of each joint's positions and derivatives before the description sees them.
        slope: logged torque over described torque.
        explained: share of the variance that the description explains beside friction.
        residual: share of the variance that description and friction leave unexplained.
        unexplained: mean residual of the joints that are not dead.
    """

    factor: Float[np.ndarray, " dof"]
    slope: Float[np.ndarray, " dof"]
    explained: Float[np.ndarray, " dof"]
    residual: Float[np.ndarray, " dof"]
    unexplained: float


@dataclass(frozen=True, eq=False)
class DescriptionMatch:
    """Comparisons with the log as it is, in degrees, and as it agrees best."""

    as_radians: Comparison
    as_degrees: Comparison
    best: Comparison


@dataclass(frozen=True, eq=False, kw_only=True)
class CheckedLog:
    """A log as the checks see it, without the faults that have already been reported.

    Attributes:
        recording: the log as it was read, with exchanged columns in order.
        t: time [s].
        segments: rows without a break in time.
        columns: the logged quantities without missing values, wraps and spikes.
        quanta: quantisation step of each channel, 0 if there is none, by column.
        dead: joints that stand still, or whose velocity or torque never changes.
        motion: the filtered motion, None if no segment is long enough.
        model: torques according to a description of the robot.
        limits: limits of the joints.
        match: agreement of the torques with those of `model`, None if they were not compared.
    """

    recording: Recording
    t: Column
    segments: tuple[LogSegment, ...]
    columns: Columns
    quanta: dict[str, Float[np.ndarray, " dof"]]
    dead: frozenset[int] = frozenset()
    motion: Motion | None = None
    model: TorqueRows | None = None
    limits: JointLimits | None = None
    match: DescriptionMatch | None = None

    @property
    def joints(self) -> Joints:
        return self.recording.joints

    @property
    def alive(self) -> list[int]:
        """Joints that are not dead."""
        return [joint for joint in range(self.joints.dof) if joint not in self.dead]
