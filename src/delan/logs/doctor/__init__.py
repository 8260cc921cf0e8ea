"""The log check: what is wrong with a recording, where, why it matters and what to do about it."""

from dataclasses import replace
from typing import Any

import numpy as np

from ...joints import Excerpt, JointLimits, Recording
from ..segments import LogSegment, cut_out
from . import cases
from .agreement import examine_agreement, examine_exchange, implausible_units
from .delays import Explanation, examine_delays
from .finding import Finding, worst_first
from .finding import Severity as Severity
from .large_logs import RowMap
from .levels import examine_levels, examine_quantisation
from .motion import Columns, Motion, examine_coverage, filtered
from .torque import ENOUGH, TorqueRows, examine_model, examine_torque, torque_features
from .values import examine_time, examine_values, repeated_rows


def examine(
    recording: Recording,
    *,
    model: TorqueRows | None = None,
    limits: JointLimits | None = None,
    part: bool = False,
) -> tuple[Finding, ...]:
    """Return all findings about a recording, sound or not, the worst first.

    Rows are those of the log, also where the recording is an excerpt of it.

    Args:
        model: torques [N m or N] of rows of positions, velocities and accelerations, according to a
            description of the robot; it shows units and signs that a log alone cannot.
        limits: limits of the joints, for the share of the allowed range that the log visits.
        part: whether the recording is a part of a log. Lags, quantisation and coverage are then
            left to the check of the whole log.
    """
    with np.errstate(all="ignore"):
        findings = _Examination(recording, model, limits, part).run()
    labelled = []
    for finding in findings:
        if finding.rows:
            label = int(recording.trajectory[finding.rows[0][0]])
            finding = replace(finding, trajectory=label)
        labelled.append(finding)
    if recording.excerpt is not None:
        labelled = _in_log(labelled, recording.excerpt)
    return worst_first(labelled)


def _in_log(findings: list[Finding], excerpt: Excerpt) -> list[Finding]:
    """Return findings about an excerpt with the rows and trajectories of the log."""
    row_map = RowMap(excerpt.segments)
    in_log = []
    for finding in findings:
        placed = row_map.to_log(finding)
        if placed.trajectory is not None:
            label = excerpt.segments[placed.trajectory].trajectory
            placed = replace(placed, trajectory=label)
        in_log.append(placed)
    measured = {"used": excerpt.summary}
    return [*in_log, Finding(cases.EXCERPT, "note", measured=measured)]


class _Examination:
    """The checks in their order; each works on columns without the faults found before.

    So no fault is reported twice.
    """

    def __init__(
        self,
        recording: Recording,
        model: TorqueRows | None,
        limits: JointLimits | None,
        part: bool,
    ):
        self.recording = recording
        self.model = model
        self.limits = limits
        self.part = part

    def run(self, *, ordered: bool = False) -> list[Finding]:
        """Return the findings; `ordered`: the columns are known to have the right names."""
        timing = examine_time(self.recording)
        # All other checks work in seconds.
        recording = replace(self.recording, t=self.recording.t / timing.scale)
        segments = tuple(
            replace(segment, step=segment.step / timing.scale) for segment in timing.segments
        )
        of_values, columns = examine_values(recording, segments)
        exchange = None if ordered else examine_exchange(recording.t, columns, segments)
        if exchange is not None:
            renamed: dict[str, Any] = {}
            for name, logged_name in exchange.names.items():
                renamed[name] = getattr(self.recording, logged_name)
            self.recording = replace(self.recording, **renamed)
            return [exchange.finding, *self.run(ordered=True)]
        joints = recording.joints
        findings = [*timing.findings, *of_values]
        findings += repeated_rows(columns, segments)
        levels = examine_levels(recording, columns, segments)
        motion = filtered(recording.t, columns, _without_stuck_rows(segments, levels, recording))
        agreement = [] if motion is None else examine_agreement(motion, joints)
        findings += levels
        findings += implausible_units(columns, motion, joints, agreement)
        findings += agreement
        dead = frozenset(
            finding.joint
            for finding in levels
            if finding.kind == "dead" and finding.joint is not None
        )
        if motion is not None:
            findings += self._examine_motion(columns, motion, dead)
        if not self.part:
            findings += examine_coverage(columns, motion, joints, self.limits, dead)
        return findings

    def _examine_motion(
        self, columns: Columns, motion: Motion, dead: frozenset[int]
    ) -> list[Finding]:
        """Check quantisation, torques and lags."""
        joints = self.recording.joints
        findings = []
        if not self.part:
            findings += examine_quantisation(columns, motion, joints)
        findings += examine_torque(motion, joints, dead)
        alive = [joint for joint in range(joints.dof) if joint not in dead]
        explanations: dict[int, Explanation] = {}
        if alive and not self.part:
            any_arm = Explanation(torque_features(motion, alive), ENOUGH)
            explanations = dict.fromkeys(alive, any_arm)
        if self.model is not None:
            compared = examine_model(motion, joints, self.model, dead)
            findings += compared.findings
            explanations |= compared.explanations
        if not self.part:
            findings += examine_delays(motion, explanations)
        return findings


def _without_stuck_rows(
    segments: tuple[LogSegment, ...], levels: list[Finding], recording: Recording
) -> tuple[LogSegment, ...]:
    """Cut out the rows in which a channel is stuck: they show no motion."""
    stuck = np.zeros(len(recording.t), dtype=bool)
    for finding in levels:
        if finding.kind == "stuck":
            for first, end in finding.rows:
                stuck[first:end] = True
    return cut_out(segments, stuck)
