"""The doctor for logs: what is wrong with a recording, where, why it matters and what to do."""

from dataclasses import replace
from typing import Any

import numpy as np

from ...joints import Excerpt, JointLimits, Recording
from ..stretches import without
from .agreement import examine_agreement, implausible_units
from .coverage import examine_coverage
from .delays import Explanation, examine_delays
from .exchange import examine_exchange
from .finding import Finding, worst_first
from .finding import Severity as Severity
from .known_model import TorqueRows, examine_model
from .levels import examine_levels
from .motion import filtered
from .places import Places
from .quantisation import examine_quantisation
from .timing import examine_time
from .torque import ENOUGH, anything, examine_torque
from .values import examine_values, repeated_rows


def examine(
    recording: Recording, *, model: TorqueRows | None = None, limits: JointLimits | None = None, part: bool = False
) -> tuple[Finding, ...]:
    """Everything the doctor finds in a recording, sound or not, the worst first.

    Of an excerpt of a log it is told in rows of the log, and that it is one is told, too.

    Args:
        model: torques [N m or N] of positions, velocities and accelerations, row by row, of the robot as its maker
            describes it; it tells units and signs that a log alone cannot.
        limits: of the joints; they tell how much of the allowed range the log visits.
        part: of a log, in which delays, steps and coverage are not looked for: the whole tells them better.
    """
    with np.errstate(all="ignore"):
        found = _examined(recording, model, limits, part)
    return worst_first(found if recording.excerpt is None else _in_log(found, recording.excerpt))


def _in_log(found: list[Finding], excerpt: Excerpt) -> list[Finding]:
    runs, places = excerpt.runs, Places(excerpt.runs)
    told = [places.in_log(finding) for finding in found]
    told = [one if one.trajectory is None else replace(one, trajectory=runs[one.trajectory].trajectory) for one in told]
    text = f"the log is larger than the memory it may take, used was {excerpt.told}"
    remedy = "nothing, if they tell enough; else let it take more (--memory)"
    return [*told, Finding(kind="excerpt", severity="note", text=text, remedy=remedy)]


def _examined(
    recording: Recording, model: TorqueRows | None, limits: JointLimits | None, part: bool, ordered: bool = False
) -> list[Finding]:
    """Each step hands on a recording without the faults it found, so that no fault is told twice."""
    timing, logged = examine_time(recording), recording
    recording = replace(recording, t=recording.t / timing.scale)
    stretches = tuple(replace(piece, step=piece.step / timing.scale) for piece in timing.stretches)
    found = [*timing.findings]
    spoiled, columns = examine_values(recording, stretches)
    exchange = None if ordered else examine_exchange(recording.t, columns, stretches)
    if exchange is not None:
        right: dict[str, Any] = {name: getattr(recording, other) for name, other in exchange.names.items()}
        return [exchange.finding, *_examined(replace(logged, **right), model, limits, part, ordered=True)]
    found += spoiled + repeated_rows(columns, recording.trajectory, stretches)
    joints = recording.joints
    levels = examine_levels(recording, columns, stretches)
    motion = filtered(recording.t, columns, without(stretches, _untrue(levels, len(recording.t))))
    agreement = [] if motion is None else examine_agreement(motion, joints)
    found += levels + implausible_units(columns, motion, joints, agreement) + agreement
    silent = frozenset(finding.joint for finding in levels if finding.kind == "dead" and finding.joint is not None)
    if motion is not None:
        found += [] if part else examine_quantisation(columns, motion, joints)
        found += examine_torque(motion, joints, silent)
        alive = [joint for joint in range(joints.dof) if joint not in silent]
        free = Explanation(anything(motion, alive), ENOUGH) if alive and not part else None
        explanations = {} if free is None else dict.fromkeys(alive, free)
        if model is not None:
            compared = examine_model(motion, joints, model, silent)
            found += compared.findings
            explanations |= compared.explanations
        found += [] if part else examine_delays(motion, explanations)
    return found if part else found + examine_coverage(columns, motion, joints, limits, silent)


def _untrue(levels: list[Finding], count: int) -> np.ndarray:
    """The rows in which a channel is stuck: they tell of no motion."""
    rows = np.zeros(count, dtype=bool)
    for first, end in (span for finding in levels if finding.kind == "stuck" for span in finding.rows):
        rows[first:end] = True
    return rows
