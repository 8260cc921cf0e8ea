"""Check of the trajectories, mostly files, of one log against each other by their torques.

Torques of one robot obey one law, whatever the motion. Each trajectory is compared with all others
by a regression of the torque on the terms of any arm, to which a factor or an offset of this
trajectory is added. Motion that only this trajectory has is explained by the terms alone, so that
it says nothing about the factor: different motions of one robot do not contradict each other.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

import numpy as np
from jaxtyping import Bool, Float, Int

from ...joints import Joints
from . import cases
from .checked_log import CheckedLog, Motion
from .finding import Case, Finding
from .lags import PARTS, RidgeSolver
from .torque import (
    DISTINGUISHABLE,
    SAMPLES_PER_WEIGHT,
    JointTerms,
    joint_terms,
    torque_features,
)

# Penalties of the weights that are tried, in mean squares of the features; that with the smallest
# residual in parts of the log not fitted is used.
RIDGES = tuple(10.0**exponent for exponent in range(-8, 0))
# Samples that are compared at most, for the sake of time; a few are enough for a few weights.
MOST_SAMPLES = 4000
# Each trajectory costs a regression; a log of more trajectories is one of short motions.
MOST_TRAJECTORIES = 50
# A trajectory needs this many samples in each of the parts.
SAMPLES_PER_PART = 3
# A factor or offset is believed if it removes this share of the residual in parts not fitted, ...
REMOVES = 0.5
# ... if it is this many times its standard error, ...
CERTAINTY = 5.0
# ... and if then less than this share of the torque's variance is unexplained.
UNEXPLAINED = 0.2
# Factors nearer to 1, and offsets below this share of the torque's standard deviation, are those
# of temperature and wear.
FACTOR_SEEN = 0.2
OFFSET_SEEN = 0.05
# The factor of a trajectory times that of all others is 1, up to this factor.
RECIPROCAL = 1.6
# A reversed torque has the size of the others, up to this factor.
SIGN_SIZE = 1.6
# An offset is reported instead of a factor if it leaves this share of what the factor leaves: a
# joint that mostly holds a weight shows little of the difference.
OFFSET_BETTER = 0.5

Samples = Float[np.ndarray, " samples"]
Table = Float[np.ndarray, "samples columns"]
Labels = Int[np.ndarray, " samples"]


@dataclass(frozen=True)
class Contradiction:
    """A factor or an offset between the torques of one joint in one trajectory and in the others.

    Attributes:
        trajectory: label of the trajectory.
        case: what differs.
        value: factor of the torque, or its offset [N m or N].
        removed: share of the residual that goes away with it, in parts of the log not fitted.
    """

    trajectory: int
    joint: int
    case: Case
    value: float
    removed: float

    def corrected(self, tau: Samples) -> Samples:
        """Return torques of the trajectory as the other trajectories would have them."""
        if self.case is cases.CONTRADICTING_SIGN:
            return -tau
        if self.case is cases.CONTRADICTING_GAIN:
            return tau / self.value
        return tau - self.value


def compare_trajectories(log: CheckedLog) -> tuple[list[Finding], CheckedLog]:
    """Report trajectories whose torques contradict the others; return the log without that."""
    motion = log.motion
    if motion is None or not log.alive:
        return [], log
    labels = log.labels(motion)
    count = len(np.unique(labels))
    if not 1 < count <= MOST_TRAJECTORIES:
        return [], log
    every = -(-len(motion) // MOST_SAMPLES)
    thinned = motion.thinned(every)
    features = torque_features(thinned, log.alive)
    if thinned.independent < SAMPLES_PER_WEIGHT * features.shape[1]:
        return [], log
    comparison = _Comparison(features, labels[::every])
    tau = motion.logged["tau"].copy()
    contradictions = []
    for joint in log.driven:
        for item in comparison.contradictions(joint, thinned.logged["tau"][:, joint]):
            rows = labels == item.trajectory
            tau[rows, joint] = item.corrected(tau[rows, joint])
            contradictions.append(item)
    if not contradictions:
        return [], log
    motion = replace(motion, logged={**motion.logged, "tau": tau})
    contradictions, motion = _right_side(contradictions, motion, labels, log.alive)
    tau = motion.logged["tau"].copy()
    for joint, rows in _followers(contradictions, labels, log.driven):
        as_logged = tau[::every, joint]
        reversed_too = np.where(rows[::every], -as_logged, as_logged)
        if comparison.agrees_better(reversed_too, as_logged):
            tau[rows, joint] *= -1
    motion = replace(motion, logged={**motion.logged, "tau": tau})
    return _findings(log, contradictions), replace(log, motion=motion)


def _followers(
    contradictions: list[Contradiction], labels: Labels, alive: list[int]
) -> Iterator[tuple[int, Bool[np.ndarray, " samples"]]]:
    """Yield joints that show no sign of their own, with the samples in which others are reversed.

    A whole file is reversed more often than some joints of it. What is too uncertain to be reported
    would still spoil the checks of the corrected log.
    """
    reversed_at: dict[int, set[int]] = {}
    for item in contradictions:
        if item.case is cases.CONTRADICTING_SIGN:
            reversed_at.setdefault(item.joint, set()).add(item.trajectory)
    if not reversed_at:
        return
    sides = list(reversed_at.values())
    side = max(sides, key=sides.count)
    for joint in alive:
        if joint not in reversed_at:
            yield joint, np.isin(labels, list(side))


@dataclass(frozen=True)
class _Residual:
    """What weighted features leave of some columns.

    Attributes:
        products: sums of products of the columns over the rows that were fitted.
        rows: the columns in the rows that were left out.
    """

    products: Float[np.ndarray, "columns columns"]
    rows: Float[np.ndarray, "rows columns"]


@dataclass(frozen=True)
class _Weight:
    """Weight of a column that is added to the features.

    Attributes:
        error: its standard error, from the jackknife.
        unique: share of the column that the features do not explain.
        removed: share of the residual that goes away with it, in parts that were not fitted.
        residual: sum of squares that remains in these parts.
    """

    value: float
    error: float
    unique: float
    removed: float
    residual: float

    @property
    def certain(self) -> bool:
        clear = abs(self.value) > CERTAINTY * self.error
        return self.removed > REMOVES and clear and self.unique > DISTINGUISHABLE


class _Comparison:
    """Regressions of torques on features, with and without the parts of all trajectories.

    Every part has an equal share of every trajectory, so that none is missing from a fit.
    """

    def __init__(self, features: Table, labels: Labels):
        self._features = features
        self._labels = labels
        part = np.empty(len(labels), dtype=int)
        self._trajectories = []
        for label in np.unique(labels).tolist():
            rows = np.flatnonzero(labels == label)
            part[rows] = np.arange(len(rows)) * PARTS // len(rows)
            enough = len(rows) >= PARTS * SAMPLES_PER_PART
            if enough and len(labels) - len(rows) >= features.shape[1]:
                self._trajectories.append(label)
        self._parts = [np.flatnonzero(part == number) for number in range(PARTS)]
        whole = features.T @ features
        self._solvers = []
        for rows in ([], *self._parts):
            inside = features[rows]
            self._solvers.append(RidgeSolver(whole - inside.T @ inside, len(features)))
        self._others = {}
        self._alone = {}
        for label in self._trajectories:
            inside = features[labels == label]
            gram = inside.T @ inside
            self._others[label] = RidgeSolver(whole - gram, len(features))
            self._alone[label] = RidgeSolver(gram, len(features))

    def contradictions(self, joint: int, tau: Samples) -> Iterator[Contradiction]:
        """Yield what contradicts in a joint's torque: signs, then the clearest, until all agree.

        At most half of the trajectories can contradict the others.
        """
        for item in self._reversed(joint, tau):
            tau = np.where(self._labels == item.trajectory, -tau, tau)
            yield item
        for _ in range(len(self._trajectories) // 2):
            found = []
            ridge = self._best_ridge(tau)
            for label in self._trajectories:
                item = self._contradiction(label, joint, tau, ridge)
                if item is not None:
                    found.append(item)
            if not found:
                return
            clearest = max(found, key=lambda item: item.removed)
            rows = self._labels == clearest.trajectory
            tau = np.where(rows, clearest.corrected(tau), tau)
            yield clearest

    def agrees_better(self, tau: Samples, other: Samples) -> bool:
        """Return whether the trajectories explain a torque better than another one."""
        residuals = self._unfitted(np.stack([tau, other], axis=1))
        return bool(residuals[0] < residuals[1])

    def _reversed(self, joint: int, tau: Samples) -> list[Contradiction]:
        """Return the trajectories of the other sign.

        If they are many, each compared with all others finds a mixture of signs. So signs are
        changed one after the other as long as that makes the residual smaller; then each of them is
        compared with the others, which now agree.
        """
        reversed_labels: set[int] = set()
        smallest = float(self._unfitted(tau[:, None])[0])
        for _ in range(len(self._trajectories) // 2):
            trials = []
            for label in self._trajectories:
                trials.append(np.where(self._labels == label, -tau, tau))
            residuals = self._unfitted(np.stack(trials, axis=1))
            best = int(np.argmin(residuals))
            if not residuals[best] < smallest:
                break
            smallest = float(residuals[best])
            tau = trials[best]
            reversed_labels ^= {self._trajectories[best]}
        if not reversed_labels:
            return []
        ridge = self._best_ridge(tau)
        confirmed = []
        for label in sorted(reversed_labels):
            as_logged = np.where(self._labels == label, -tau, tau)
            item = self._contradiction(label, joint, as_logged, ridge)
            if item is not None and item.case is cases.CONTRADICTING_SIGN:
                confirmed.append(item)
        return confirmed

    def _contradiction(
        self, label: int, joint: int, tau: Samples, ridge: float
    ) -> Contradiction | None:
        """Return the factor or the offset of a trajectory, None if there is none."""
        inside = self._labels == label
        others = np.where(inside, 0.0, tau)
        alone = np.where(inside, tau, 0.0)
        features = self._features
        of_others = features @ self._others[label].solve(features.T @ others, ridge)
        of_itself = features @ self._alone[label].solve(features.T @ alone, ridge)
        indicator = inside.astype(float)
        columns = [tau, of_others * indicator, indicator, of_itself * (1 - indicator)]
        factor, offset, back = self._added(np.stack(columns, axis=1), ridge)
        deviation = float(tau.std())
        unexplained = UNEXPLAINED * len(tau) * deviation**2
        ratio = 1 + factor.value
        by_factor = factor.certain and abs(factor.value) > FACTOR_SEEN
        by_factor = by_factor and factor.residual < unexplained
        by_factor = by_factor and _reciprocal(ratio, 1 + back.value)
        by_offset = offset.certain and abs(offset.value) > OFFSET_SEEN * deviation
        by_offset = by_offset and offset.residual < unexplained
        if by_factor and by_offset:
            by_factor = offset.residual > OFFSET_BETTER * factor.residual
        if by_factor:
            case = cases.CONTRADICTING_SIGN if ratio < 0 else cases.CONTRADICTING_GAIN
            return Contradiction(label, joint, case, ratio, factor.removed)
        if by_offset:
            case = cases.CONTRADICTING_OFFSET
            return Contradiction(label, joint, case, offset.value, offset.removed)
        return None

    def _best_ridge(self, tau: Samples) -> float:
        """Return the penalty with the smallest residual in parts that were not fitted."""
        return RIDGES[int(np.argmin(self._sums(tau[:, None])[:, 0]))]

    def _unfitted(self, table: Table) -> Float[np.ndarray, " columns"]:
        """Return the sum of squares in parts that were not fitted, with the best penalty."""
        return self._sums(table).min(axis=0)

    def _sums(self, table: Table) -> Float[np.ndarray, "ridges columns"]:
        """Return the sum of squares in parts that were not fitted, for each penalty."""
        sums = np.zeros((len(RIDGES), table.shape[1]))
        for place, ridge in enumerate(RIDGES):
            for residual in self._residuals(table, ridge)[1:]:
                sums[place] += np.sum(residual.rows**2, axis=0)
        return sums

    def _added(self, table: Table, ridge: float) -> list[_Weight]:
        """Return the weight of each further column, added alone, for the first column."""
        whole, *parts = self._residuals(table, ridge)
        plain = sum(float(np.sum(part.rows[:, 0] ** 2)) for part in parts)
        weights = []
        for column in range(1, table.shape[1]):
            values = np.array([_slope(part.products, column) for part in parts])
            residual = 0.0
            for part, value in zip(parts, values, strict=True):
                residual += float(np.sum((part.rows[:, 0] - value * part.rows[:, column]) ** 2))
            spread = np.sum((values - values.mean()) ** 2)
            weights.append(
                _Weight(
                    value=_slope(whole.products, column),
                    error=float(np.sqrt((PARTS - 1) / PARTS * spread)),
                    unique=float(whole.products[column, column] / np.sum(table[:, column] ** 2)),
                    removed=1 - residual / plain,
                    residual=residual,
                )
            )
        return weights

    def _residuals(self, table: Table, ridge: float) -> list[_Residual]:
        """Return the residuals of all rows, and of all rows but those of each part."""
        crosses = self._features.T @ table
        squares = table.T @ table
        residuals = []
        for rows, solver in zip(([], *self._parts), self._solvers, strict=True):
            features = self._features[rows]
            left_out = table[rows]
            cross = crosses - features.T @ left_out
            weights = solver.solve(cross, ridge)
            products = squares - left_out.T @ left_out - cross.T @ weights
            residuals.append(_Residual(products, left_out - features @ weights))
        return residuals


def _reciprocal(ratio: float, back: float) -> bool:
    """Return whether the factor of a trajectory is the inverse of that of the others.

    It is not where the terms of any arm do not suffice: then the law of one trajectory fails in the
    other, whatever the factor. A negative factor must be a change of the sign alone.
    """
    if ratio < 0 and not 1 / SIGN_SIZE < -ratio < SIGN_SIZE:
        return False
    return 1 / RECIPROCAL < ratio * back < RECIPROCAL


def _slope(products: np.ndarray, column: int) -> float:
    """Return the slope of the first column over another, 0 if the other is zero."""
    square = float(products[column, column])
    if not square > 0:
        return 0.0
    return float(products[0, column]) / square


def _right_side(
    contradictions: list[Contradiction], motion: Motion, labels: Labels, alive: list[int]
) -> tuple[list[Contradiction], Motion]:
    """Return reversed signs as those of the trajectories that are reversed.

    A comparison shows only that the signs of two groups of trajectories differ. Inertia and
    friction show which group is reversed; where they do not, it is the smaller one. Joints with the
    same two groups are decided together, because mostly a whole file is reversed.
    """
    everything = frozenset(np.unique(labels).tolist())
    first = min(everything)
    tau = motion.logged["tau"].copy()
    result = []
    sides: dict[int, frozenset[int]] = {}
    removed: dict[int, float] = {}
    for item in contradictions:
        if item.case is cases.CONTRADICTING_SIGN:
            sides[item.joint] = sides.get(item.joint, frozenset()) | {item.trajectory}
            removed[item.joint] = max(item.removed, removed.get(item.joint, 0.0))
        else:
            result.append(item)
    # All sides are named by the group without the first trajectory, and the torques have its sign.
    for joint, side in sides.items():
        if first in side:
            sides[joint] = everything - side
            tau[:, joint] *= -1
    terms = joint_terms(replace(motion, logged={**motion.logged, "tau": tau}), alive)
    for side in dict.fromkeys(sides.values()):
        joints = [joint for joint, other in sides.items() if other == side]
        reversed_side = side
        if _first_is_reversed(joints, terms, len(side), len(everything)):
            reversed_side = everything - side
            tau[:, joints] *= -1
        for joint in joints:
            for label in sorted(reversed_side):
                case = cases.CONTRADICTING_SIGN
                result.append(Contradiction(label, joint, case, -1.0, removed[joint]))
    return result, replace(motion, logged={**motion.logged, "tau": tau})


def _first_is_reversed(
    joints: list[int], terms: Mapping[int, JointTerms], others: int, count: int
) -> bool:
    """Decide whether torques with the sign of the first trajectory are reversed.

    Args:
        joints: the joints concerned, with their terms for torques of that sign.
        others: number of trajectories with the other sign, of `count`.
    """
    votes = 0.0
    for joint in joints:
        if joint in terms and terms[joint].sign is not None:
            votes += np.sign(terms[joint].sign.value)
    if votes:
        return bool(votes < 0)
    return 2 * others > count


def _findings(log: CheckedLog, contradictions: list[Contradiction]) -> list[Finding]:
    """Return one finding for each trajectory and case, with the joints concerned."""
    grouped: dict[tuple[int, str], list[Contradiction]] = {}
    for item in contradictions:
        grouped.setdefault((item.trajectory, item.case.text), []).append(item)
    findings = []
    for (label, _), items in grouped.items():
        clearest = max(items, key=lambda item: item.removed)
        joints = tuple(item.joint for item in items)
        measured: dict[str, object] = {"joints": joints, "removed": clearest.removed}
        measured |= _sizes(clearest.case, items)
        measured["option"] = _option(clearest.case, items, log.recording.joints)
        severity = "error" if clearest.case is cases.CONTRADICTING_SIGN else "warning"
        joint = joints[0] if len(joints) == 1 else None
        rows = log.rows_of(label)
        findings.append(Finding(clearest.case, severity, joint, "tau", measured, rows=rows))
    return findings


def _sizes(case: Case, items: list[Contradiction]) -> Mapping[str, float]:
    """Return the measured values that the sentence of a case names: those of the worst joint."""
    if case is cases.CONTRADICTING_OFFSET:
        return {"offset": max((item.value for item in items), key=abs)}
    return {"ratio": max((item.value for item in items), key=lambda ratio: abs(np.log(abs(ratio))))}


def _option(case: Case, items: list[Contradiction], joints: Joints) -> str:
    """Return the option that reads the torques of a file as the other files have them."""
    values = {item.joint: item.value for item in items}
    if case is cases.CONTRADICTING_SIGN:
        if len(values) == joints.dof:
            return "--flip tau"
        numbered = joints.names == Joints.revolute(joints.dof).names
        keys = [str(joint) if numbered else joints.names[joint] for joint in values]
        return f"--flip tau:{','.join(keys)}"
    if case is cases.CONTRADICTING_GAIN:
        factors = [1 / values.get(joint, 1.0) for joint in range(joints.dof)]
        return f"--scale tau:{','.join(f'{factor:.3g}' for factor in factors)}"
    summands = [0.0 - values.get(joint, 0.0) for joint in range(joints.dof)]
    return f"--offset tau:{','.join(f'{summand:.3g}' for summand in summands)}"
