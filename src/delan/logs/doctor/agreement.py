"""Check of positions, velocities and accelerations against each other: units, signs and order."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import permutations
from typing import Any

import numpy as np

from ...joints import Joints, Recording
from ..options import EXCHANGEABLE
from ..segments import RATIO_HARM
from . import cases
from .checked_log import CheckedLog, Motion, filtered
from .finding import Finding
from .lags import Lag, find_lag, lag_error

# Share of a column's variance that the positions must explain for the ratio to have a meaning.
FOLLOWS = 0.8
# Columns of which less than this share is explained do not belong together.
UNRELATED = 0.5
# Ratios that differ by less than this share are equal.
SAME_RATIO = 0.03
# A ratio beyond this is a warning; beyond `RATIO_HARM` a fit refuses the log.
RATIO_SEEN = 1.1
# Joints of arms have end stops: positions farther from zero, or apart, are in degrees [rad].
FARTHEST_TURN = 4 * np.pi
# No arm turns a joint faster [rad/s].
FASTEST_TURN = 30.0
# No joint of an arm slides farther [m]: such positions are in millimetres.
FARTHEST_SLIDE = 20.0
# A lag is reported if it makes the column wrong by this share of its standard deviation, ...
LAG_HARM = 0.05
# ... if shifting removes this share of the residual, ...
LAG_GAIN = 0.5
# ... and if it is this many times its standard error.
LAG_CERTAINTY = 4.0
# Another order of columns must leave at most this share of the residual of the logged order.
MUCH_BETTER = 0.5

# Ratio of rates in radians to rates computed from positions in degrees.
DEGREE = np.pi / 180
# Usual causes of a ratio between logged and computed values; the first that is close counts.
RATIO_CAUSES = {
    1 / DEGREE: "degrees",
    DEGREE: "degrees",
    1e3: "milliseconds or millimetres",
    1e-3: "milliseconds or millimetres",
    30 / np.pi: "revolutions per minute",
    np.pi / 30: "revolutions per minute",
    2 * np.pi: "turns",
    1 / (2 * np.pi): "turns",
    60.0: "minutes",
    1 / 60: "minutes",
}


@dataclass(frozen=True)
class Agreement:
    """Comparison of a logged column with the derivative of the positions.

    Attributes:
        ratio: logged values over computed values.
        explained: share of the logged variance that the computed values explain.
        lag: lag of the logged values, None if it is unknown.
    """

    joint: int
    ratio: float
    explained: float
    lag: Lag | None

    @property
    def matches(self) -> bool:
        """Whether the column is the derivative in the same unit."""
        return self.explained > FOLLOWS and 1 / RATIO_SEEN < self.ratio < RATIO_SEEN

    @property
    def scaled(self) -> bool:
        """Whether the column is the derivative in another unit."""
        return self.explained > FOLLOWS and self.ratio > 0 and not self.matches

    @property
    def of_degrees(self) -> bool:
        """Whether the units differ because the positions are in degrees."""
        return self.scaled and abs(self.ratio / DEGREE - 1) < SAME_RATIO


def examine_agreement(log: CheckedLog) -> list[Finding]:
    """Report units, signs and lags of columns that contradict each other, or any arm."""
    findings = []
    if log.motion is not None:
        findings = _examine_rates(log.motion, log.joints)
    return _implausible_units(log, findings) + findings


def _examine_rates(motion: Motion, joints: Joints) -> list[Finding]:
    """Report velocities and accelerations that contradict the positions."""
    findings: list[Finding] = []
    radians: dict[int, list[str]] = {}  # rates in radians beside positions in degrees, by joint
    for name, computed in (("qd", motion.velocity), ("qdd", motion.acceleration)):
        if name not in motion.logged:
            continue
        compared = []
        for joint in range(joints.dof):
            agreement = _compare(motion, computed, name, joint)
            if agreement is None:
                continue
            if agreement.of_degrees and joints.turning[joint]:
                radians.setdefault(joint, []).append(name)
            else:
                compared.append(agreement)
        ratios = [agreement.ratio for agreement in compared if agreement.scaled]
        if len(ratios) == joints.dof > 1 and np.ptp(ratios) < SAME_RATIO * np.mean(ratios):
            findings.append(_other_unit(name, None, float(np.mean(ratios))))
            continue
        for agreement in compared:
            finding = _examine_column(motion, computed, name, agreement)
            if finding is not None:
                findings.append(finding)
    return findings + _degrees(radians, joints)


def _compare(motion: Motion, computed: np.ndarray, name: str, joint: int) -> Agreement | None:
    """Compare a logged column with computed values; None if one of them never changes."""
    logged = _centred(motion.logged[name][:, joint])
    expected = _centred(computed[:, joint])
    if not (logged @ logged > 0 and expected @ expected > 0):
        return None
    lag = find_lag(motion, logged, np.stack([np.ones(len(expected)), expected], axis=1))
    explained = _explained(logged, expected) if lag is None else 1 - lag.residual
    # The ratio of standard deviations without noise: a lag would make a regression too small.
    ratio = np.sqrt(max(explained, 0.0) * (logged @ logged) / (expected @ expected))
    return Agreement(joint, float(np.copysign(ratio, logged @ expected)), explained, lag)


def _centred(values: np.ndarray) -> np.ndarray:
    return values - values.mean()


def _explained(logged: np.ndarray, expected: np.ndarray) -> float:
    """Return the squared correlation of two centred signals, 0 if the second never changes."""
    if not expected @ expected > 0:
        return 0.0
    return float((logged @ expected) ** 2 / ((logged @ logged) * (expected @ expected)))


def _examine_column(
    motion: Motion, computed: np.ndarray, name: str, agreement: Agreement
) -> Finding | None:
    """Return the most severe finding about one column."""
    joint = agreement.joint
    if agreement.explained < UNRELATED:
        return _unrelated(motion, computed, name, agreement)
    if agreement.explained > FOLLOWS and agreement.ratio < 0:
        measured = {"ratio": agreement.ratio}
        return Finding(cases.RATE_SIGN, "error", joint, name, measured)
    if agreement.scaled:
        return _other_unit(name, joint, agreement.ratio)
    lag = agreement.lag
    if lag is None or not lag.certain(gain=LAG_GAIN, errors=LAG_CERTAINTY):
        return None
    error = lag_error(motion, computed[:, joint], lag.seconds)
    if error < LAG_HARM:
        return None
    case = cases.RATE_LAG if lag.seconds > 0 else cases.RATE_LEAD
    measured = {"milliseconds": 1e3 * abs(lag.seconds), "error": error}
    return Finding(case, "warning", joint, name, measured)


def _unrelated(motion: Motion, computed: np.ndarray, name: str, agreement: Agreement) -> Finding:
    """Report a column that follows the motion of another joint, or none."""
    logged = _centred(motion.logged[name][:, agreement.joint])
    shares = [_explained(logged, _centred(expected)) for expected in computed.T]
    other = int(np.argmax(shares))
    case = cases.FOLLOWS_OTHER_JOINT if shares[other] > FOLLOWS else cases.UNRELATED
    measured = {"explained": max(agreement.explained, 0.0), "other": other}
    return Finding(case, "warning", agreement.joint, name, measured)


def _other_unit(name: str, joint: int | None, ratio: float) -> Finding:
    """Report another unit, of one joint or of all; in all joints it may be that of time."""
    factor = ratio
    cause = "another unit"
    for usual, usual_cause in RATIO_CAUSES.items():
        if abs(ratio / usual - 1) < SAME_RATIO:
            factor = usual
            cause = usual_cause
            break
    clock = joint is None and cause != "degrees"
    case = cases.RATE_UNIT_OR_CLOCK if clock else cases.RATE_UNIT
    severity = "warning" if 1 / RATIO_HARM < ratio < RATIO_HARM else "error"
    measured = {"ratio": ratio, "factor": factor, "cause": cause}
    return Finding(case, severity, joint, name, measured)


def _degrees(radians: dict[int, list[str]], joints: Joints) -> list[Finding]:
    """Report positions in degrees beside rates in radians: `--degrees` would scale both."""
    turning = np.flatnonzero(joints.turning).tolist()
    concerned: dict[int | None, list[str]] = {**radians}
    case = cases.DEGREES_BESIDE_RADIANS_IN_ONE_JOINT
    if joints.dof == 1:
        case = cases.DEGREES_BESIDE_RADIANS
    if len(radians) == len(turning) > 1 and len(set(map(tuple, radians.values()))) == 1:
        case = cases.DEGREES_BESIDE_RADIANS
        concerned = {None: radians[turning[0]]}
    findings = []
    for joint, names in concerned.items():
        measured = {
            "rates": tuple(names),
            "ratio": DEGREE,
            "left_out": " ".join(f"--map {name}=" for name in names),
        }
        findings.append(Finding(case, "error", joint, "q", measured))
    return findings


def _implausible_units(log: CheckedLog, agreement: Sequence[Finding]) -> list[Finding]:
    """Report positions farther out, or faster, than those of arms: degrees or millimetres.

    Turning joints whose positions are already known to be in another unit are left out.
    """
    known = set()
    for finding in agreement:
        if finding.kind == "units" and finding.column == "q":
            known.add(finding.joint)
    joints = log.joints
    findings = []
    angles = (cases.IMPLAUSIBLE_ANGLES, cases.IMPLAUSIBLE_ANGLE)
    lengths = (cases.IMPLAUSIBLE_LENGTHS, cases.IMPLAUSIBLE_LENGTH)
    for members, farthest, unit, (of_all, of_one) in (
        (joints.turning, FARTHEST_TURN, "deg", angles),
        (joints.sliding, FARTHEST_SLIDE, "0.001", lengths),
    ):
        strange: dict[int, dict[str, Any]] = {}
        for joint in np.flatnonzero(members).tolist():
            q = log.columns["q"][:, joint]
            fastest = 0.0
            if log.motion is not None:
                fastest = float(np.abs(log.motion.velocity[:, joint]).max())
            far = max(float(np.ptp(q)), float(np.abs(q).max())) > farthest
            if joints.turning[joint]:
                # A joint without end stops may count its turns, and so may a free pendulum.
                endless = joints.continuous[joint] or joint not in log.driven
                far = (far and not endless) or fastest > FASTEST_TURN
                far = far and not known & {joint, None}
            if far:
                strange[joint] = {
                    "lowest": float(q.min()),
                    "highest": float(q.max()),
                    "fastest": fastest,
                    "unit": joints.units[joint].q,
                    "example": joint,
                }
        factors = [unit if joint in strange else "1" for joint in range(joints.dof)]
        for measured in strange.values():
            measured["scale"] = ",".join(factors)
        if len(strange) >= max(2, np.count_nonzero(members)):
            findings.append(Finding(of_all, "warning", None, "q", next(iter(strange.values()))))
            continue
        for joint, measured in strange.items():
            findings.append(Finding(of_one, "warning", joint, "q", measured))
    return findings


def find_exchange(log: CheckedLog) -> Finding | None:
    """Identify exchanged columns: of positions, velocities and torques, q̇ alone is a derivative.

    Units and signs are checked elsewhere. Another order is believed only where it explains both: in
    more than half of the joints one column is the derivative of another without any factor, and in
    no joint is the velocity that of the positions.
    """
    if not set(EXCHANGEABLE) <= set(log.columns):
        return None
    logged = []
    for agreement in _agreements(log, "q", "qd"):
        if agreement is not None and agreement.matches:
            return None
        logged.append(agreement)
    for order in permutations(EXCHANGEABLE):
        if order[:2] == ("q", "qd"):
            continue
        better = sum(map(_better, _agreements(log, *order[:2]), logged))
        if 2 * better > len(logged):
            return _exchanged(dict(zip(EXCHANGEABLE, order, strict=True)), better, len(logged))
    return None


def _agreements(log: CheckedLog, position: str, velocity: str) -> Iterator[Agreement | None]:
    """Compare a column with the derivative of another, joint by joint.

    This is an iterator because the first joint of a log in order already ends the search.
    """
    columns = {"q": log.columns[position], "qd": log.columns[velocity]}
    motion = filtered(log.t, columns, log.segments)
    for joint in range(log.joints.dof):
        if motion is None:
            yield None
        else:
            yield _compare(motion, motion.velocity, "qd", joint)


def _better(then: Agreement | None, now: Agreement | None) -> bool:
    if then is None or not then.matches:
        return False
    return now is None or 1 - then.explained < MUCH_BETTER * (1 - now.explained)


def _exchanged(sources: dict[str, str], agreeing: int, dof: int) -> Finding:
    """Return the finding about columns that have the names `sources` in the log."""
    moved = []
    arrays = []
    columns = []
    for name, source in sources.items():
        if name != source:
            moved.append(name)
            arrays.append(f"--map {name}={source}")
            columns.append(f"--map '{name}={source}{{0-{dof - 1}}}'")
    measured = {
        "names": tuple(moved),
        "sources": sources,
        "position": sources["q"],
        "velocity": sources["qd"],
        "agreeing": agreeing,
        "dof": dof,
        "arrays": " ".join(arrays),
        "columns": " ".join(columns),
    }
    return Finding(cases.EXCHANGED, "error", measured=measured)


def in_order(recording: Recording, exchange: Finding) -> Recording:
    """Return a recording whose columns were found exchanged with each under its own name."""
    columns = recording.columns
    for name, source in exchange.measured["sources"].items():
        columns[name] = getattr(recording, source)
    return recording.with_columns(columns)
