"""What came of a log, as one record for its page, and the verdict in a sentence: what to deploy, and why."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from jaxtyping import Float

from ..data.doctor import Finding
from ..joints import Dataset
from ..learning.contest import Entry, as_learned
from ..learning.evaluate import Scores
from ..learning.log_fit import LogFit
from ..models.dynamics import InverseDynamics
from ..models.trust import TrustedModel, with_model

NAMES = {
    "chain": "chain",
    "chain near URDF": "chain near the URDF",
    "delan": "DeLaN network",
    "feedforward": "feed-forward network",
    "identified": "identified URDF",
    "residual": "URDF with a residual network",
    "constant": "constant torque",
}
"""What the models that take part are called."""
POOR, BETTER = 0.1, 0.8
"""From this share of the torque's variance left over, a model is doubtful; so it is where another has less than this
share of its error on the test motion."""


@dataclass(frozen=True, eq=False, kw_only=True)
class LogReport:
    """All that the page of a log shows.

    Attributes:
        log: its name; command: that makes the page again.
        findings: of the doctor.
        test: name of a log that took no part in the choice; test_set: its samples, prepared as the log was;
            test_scores: of every model there, by name.
        coverage: the share of torques inside of the model's band, per joint, of the test motion, or of the validation
            trajectories without one.
        motion_file: where the motion to record next was written.
        versions: of the packages at work.
        sketch: of the log's rows, by which a model file knows them again.
    """

    log: str
    fit: LogFit
    findings: tuple[Finding, ...] = ()
    test: str | None = None
    test_set: Dataset | None = None
    test_scores: Mapping[str, Scores] = field(default_factory=dict)
    coverage: Float[np.ndarray, " dof"] | None = None
    motion_file: str | None = None
    versions: Mapping[str, str] = field(default_factory=dict)
    command: str = ""
    sketch: Mapping[str, Any] = field(default_factory=dict)

    @property
    def chosen(self) -> Entry:
        """The best model on the validation trajectories, a constant only if there is nothing else."""
        return chosen(self.fit)

    @property
    def trusted(self) -> TrustedModel | None:
        """The chosen model with its band and domain, if they were found, as it may be shown on the unseen motion."""
        if self.fit.trusted is None or self.chosen is not self.fit.best:
            return None
        return self.fit.trusted if self.test_set is None else with_model(self.fit.trusted, as_learned(self.chosen))

    def shown(self, entry: Entry, dataset: Dataset) -> InverseDynamics:
        """The model of an entry as it may be shown on a motion: of validation, one that has not learned from it."""
        return entry.model if dataset is self.fit.validation else entry.deployed

    @property
    def unseen(self) -> Dataset:
        """The motion that figures are drawn of: that of the test if there is one, else of validation."""
        return self.fit.validation if self.test_set is None else self.test_set

    @property
    def unseen_words(self) -> str:
        if self.test is not None:
            return f"the test motion ({self.test})"
        one = self.fit.validation.samples
        several = len(one.trajectories) != 1
        return f"{len(one.trajectories)} validation trajectories" if several else "the validation motion"

    def nmse(self, name: str) -> float:
        """The mean nMSE of a model on the unseen motion."""
        if self.test_scores:
            return self.test_scores[name].torque.nmse_mean
        return next(entry for entry in self.fit.entries if entry.name == name).validation.torque.nmse_mean


def chosen(fit: LogFit) -> Entry:
    """The model to save: the best on the validation trajectories, a constant only if there is nothing else."""
    return next((entry for entry in fit.entries if entry.name != "constant"), fit.entries[0])


def verdict(report: LogReport) -> str:
    """Which model to deploy and why, with what speaks against it."""
    best, error = report.chosen, report.nmse(report.chosen.name)
    others = [entry.name for entry in report.fit.entries if entry.name not in (best.name, "constant")]
    where = f"on {report.unseen_words}"
    if best.name == "constant" or not error < min(1.0, report.nmse("constant")):
        beats_constant = error < report.nmse("constant")
        than = "worse than the mean torque of that motion"
        if not beats_constant:
            than = f"no better than {_the('constant')} ({report.nmse('constant'):.2g})"
        which = "the best of them" if report.test is None else "the one that validation chose"
        return (
            f"Do not deploy any of these models: {where} {which}, {_the(best.name)}, has an nMSE of {error:.2g}, "
            f"{than}. {_remedy(report)}"
        )
    rivals = [f"{report.nmse(others[0]):.2g} of {_the(others[0])}"] if others else []
    against = " and ".join([*rivals, f"{report.nmse('constant'):.2g} of {_the('constant')}"])
    sentence = f"{where} its nMSE is {error:.2g}, against {against}"
    doubts = list(_doubts(report, best, error, others))
    if doubts:
        return f"Doubtful: {_the(best.name)} is the best of these models; {sentence}. But {'; '.join(doubts)}."
    return f"Deploy {_the(best.name)}: {sentence}."


def _doubts(report: LogReport, best: Entry, error: float, others: list[str]) -> Iterator[str]:
    """What speaks against the best model, in parts of a sentence."""
    if error > POOR:
        hurried = f" ({_hurried(report)})" if _hurried(report) else ""
        yield f"{100 * error:.0f} % of the torque's variance is not explained{hurried}"
    if best.name == "feedforward":
        yield "the feed-forward network knows no mechanics and goes wrong outside of the recorded motion"
    if best.name == "residual":
        yield "its network knows no mechanics: it may give energy, and goes wrong outside of the recorded motion"
    if report.test_scores and others:
        first = min(others, key=report.nmse)
        if report.nmse(first) < BETTER * error:
            told = f"on the test motion {_the(first)} is better ({report.nmse(first):.2g})"
            yield f"{told}: the log holds too little motion to choose by"
    if report.fit.interrupted:
        yield "the fit was stopped early"


def _remedy(report: LogReport) -> str:
    """What to do where no model is good: not to blame a log that was not looked at for long."""
    if report.fit.interrupted:
        return "The fit was stopped early: let it run to its end."
    hurried = f"{_hurried(report).capitalize()}. " if _hurried(report) else ""
    if not any(finding.severity == "error" for finding in report.findings) and _too_little(report):
        known = report.chosen.validation.torque.nmse_mean
        return (
            f"{hurried}On the validation motion it has {known:.2g}: the log has too little motion to go beyond it. "
            "Learn from a larger part of it, or record more; if that does not help, check units, signs and order of "
            "the joints."
        )
    if hurried:
        return hurried.strip()
    return "Check units, signs and the order of the joints with `delan check`."


def _too_little(report: LogReport) -> bool:
    """Whether the best model explains motion like that of the log, and only that."""
    return report.test is not None and report.chosen.validation.torque.nmse_mean < 1


def _hurried(report: LogReport) -> str:
    """What to do about it, if the time may have been too short."""
    seconds = report.fit.settings.seconds
    return "" if seconds is None else f"it had {seconds:g} s: give it more, or no bound"


def _the(name: str) -> str:
    return ("a " if name == "constant" else "the ") + NAMES.get(name, name)


def more_data(report: LogReport) -> Iterator[str]:
    """What more data would bring, and which motion to record next, in sentences."""
    curve, motion, joints = report.fit.curve, report.fit.motion, report.fit.dataset.joints
    if curve is not None:
        errors = ", ".join(f"{error:.2g}" for error in curve.errors)
        shares = ", ".join(f"{100 * share:.0f}" for share in curve.shares)
        yield (
            f"After a short refit to {shares} % of the training samples, the model has a validation nMSE of {errors} "
            "(to compare with each other, for the model above was trained for longer). Should that go on, as much data "
            f"again would take away about {100 * curve.gain:.0f} % of the error."
        )
    if motion is not None:
        unit = "m" if joints.kinds[motion.joint] == "prismatic" else "rad"
        yield (
            "Of some motions at random inside the range and the speeds of this log, the one that would tell the most "
            f"moves all joints at once; it tells most through {joints.names[motion.joint]}, which goes between "
            f"{motion.pose[0]:.2f} and {motion.pose[1]:.2f} {unit} at up to {motion.speed[1]:.2f} {unit}/s."
        )
        if report.motion_file is not None:
            yield (
                f"It is in {report.motion_file} (t, q, qd, qdd): see that it keeps clear of limits, obstacles and "
                "the arm itself before the robot follows it."
            )
