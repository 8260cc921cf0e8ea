"""The log check: what is wrong with a recording, where, why it matters and what to do about it.

Time stamps, values and channels are checked first and repaired where possible, so that no fault is
reported twice. Then every function in `CHECKS` looks at the repaired log.
"""

import importlib
import itertools
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from functools import partial

import numpy as np
from threadpoolctl import threadpool_limits

from ...joints import JointLimits, Recording
from ..excerpts import LogPart
from ..segments import TimeFaults, cut_out, measurable
from . import cases
from .agreement import examine_agreement, find_exchange, in_order
from .checked_log import CheckedLog, DescribedRobot, TorqueRows, filtered
from .contradictions import compare_trajectories
from .coverage import examine_coverage, examine_levels, examine_quantisation, quanta
from .finding import Finding, RowMap, with_files, worst_first
from .finding import Severity as Severity
from .time_and_values import examine_repeats, examine_time, repair
from .torque import examine_description, examine_lags, examine_torque, match_description

Check = Callable[[CheckedLog], list[Finding]]

# The checks of a repaired log, in the order of their findings. A new check is a function, a line
# here, its `Case` in cases.py, and a seeded fault in tests/support/faulty_logs.py.
CHECKS: tuple[Check, ...] = (
    examine_agreement,
    examine_quantisation,
    examine_torque,
    examine_description,
    examine_lags,
    examine_coverage,
)
# Checks that say nothing about a part of a log: only the check of the whole log runs them.
WHOLE_LOG: tuple[Check, ...] = (examine_quantisation, examine_lags, examine_coverage)


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
    # Small systems are solved: threads of BLAS only wait for each other, twenty times as long.
    with np.errstate(all="ignore"), threadpool_limits(1, user_api="blas"):
        recording = measurable(recording)
        findings, log = _repaired(recording)
        exchange = find_exchange(log)
        if exchange is not None:
            # All other findings are about the log with its columns in order.
            findings, log = _repaired(in_order(recording, exchange))
            findings.insert(0, exchange)
        findings += examine_repeats(log)
        levels = examine_levels(log)
        findings += levels
        log = _with_motion(replace(log, model=model, limits=limits, part=part), levels)
        if not part:
            contradictions, log = compare_trajectories(log)
            findings += contradictions
        log = replace(log, match=match_description(log))
        if recording.torque_source == "commands" and not part:
            findings.append(Finding(cases.COMMANDED, "note", column="tau"))
        for check in CHECKS:
            if not (part and check in WHOLE_LOG):
                findings += check(log)
    findings = _with_others(findings, recording.joints.dof)
    return with_files(worst_first(_located(findings, recording)), recording)


def _with_others(findings: Sequence[Finding], dof: int) -> list[Finding]:
    """Return findings about useless joints with the option that keeps all joints but these."""
    useless = {finding.joint for finding in findings if finding.case in cases.USELESS}
    others = [str(joint) for joint in range(dof) if joint not in useless]
    if not others:
        return list(findings)
    option = f" (--joints {','.join(others)})"
    named = []
    for finding in findings:
        if finding.case in cases.USELESS:
            finding = replace(finding, measured={**finding.measured, "others": option})
        named.append(finding)
    return named


def check_up(
    recording: Recording, robot: DescribedRobot | None = None
) -> tuple[Recording, tuple[Finding, ...]]:
    """Return a recording and its findings, the worst first.

    The recording gets the joints of the described robot, if there is one, and is compared with it.
    """
    if robot is None:
        return recording, examine(recording)
    recording = robot.named(recording)
    return recording, examine(recording, model=robot.torque, limits=robot.limits)


def check_up_parts(
    parts: Iterable[LogPart], most: float, robot: DescribedRobot | None = None
) -> tuple[Recording, tuple[Finding, ...]]:
    """Return a log that comes in parts and its findings, as `check_up` does.

    If the log takes more than `most` bytes, every row is checked but an excerpt is returned.
    """
    remaining = iter(parts)
    first = next(remaining)
    if first.last:
        return check_up(first.recording, robot)
    whole = itertools.chain([first], remaining)
    del first  # its memory is needed for the next part
    check = examine
    if robot is not None:
        whole = map(robot.named_part, whole)
        check = partial(examine, model=robot.torque, limits=robot.limits)
    # Imported here, because most logs fit into memory.
    large_logs = importlib.import_module(".large_logs", __name__)
    return large_logs.examine_parts(whole, most, check)


def _repaired(recording: Recording) -> tuple[list[Finding], CheckedLog]:
    """Check time stamps and values; return the findings, and the log without these faults."""
    faults = TimeFaults(recording.t, recording.trajectory)
    segments = []
    for segment in faults.segments:
        segments.append(replace(segment, step=segment.step / faults.scale))
    findings, columns = repair(recording, tuple(segments))
    log = CheckedLog(
        recording=recording,
        t=recording.t / faults.scale,
        segments=tuple(segments),
        columns=columns,
        quanta=quanta(columns),
    )
    return [*examine_time(recording, faults), *findings], log


def _with_motion(log: CheckedLog, levels: Sequence[Finding]) -> CheckedLog:
    """Return the log with its motion, without rows in which a channel is stuck, and dead joints."""
    stuck = np.zeros(len(log.t), dtype=bool)
    dead = set()
    for finding in levels:
        if finding.kind == "dead":
            dead.add(finding.joint)
        if finding.kind == "stuck":
            for first, end in finding.rows:
                stuck[first:end] = True
    motion = filtered(log.t, log.columns, cut_out(log.segments, stuck))
    return replace(log, dead=frozenset(dead), motion=motion)


def _located(findings: Sequence[Finding], recording: Recording) -> list[Finding]:
    """Return findings with their trajectories; those about an excerpt with the rows of its log."""
    excerpt = recording.excerpt
    located = []
    for finding in findings:
        if finding.rows:
            label = int(recording.trajectory[finding.rows[0][0]])
            if excerpt is not None:
                label = excerpt.segments[label].trajectory
            finding = replace(finding, trajectory=label)
        located.append(finding)
    if excerpt is None:
        return located
    used = Finding(cases.EXCERPT, "note", measured={"used": excerpt.summary})
    return [*map(RowMap(excerpt.segments).to_log, located), used]
