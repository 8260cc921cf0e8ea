"""Everything that the page of a fit shows, and the verdict in sentences."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float, Int

from ..joints import Dataset, TorqueSource
from ..learning.fit import Fit
from ..learning.scores import Scores, TorqueSize, predict_samples, time_blocks
from ..learning.study import Entry
from ..learning.verdict import Doubt, Verdict
from ..logs.doctor import Finding
from ..models.model import Model
from ..simulation.replay import LogReplay

# What the models that take part are called in sentences and tables.
NAMES = {
    "chain": "chain",
    "chain near URDF": "chain near the URDF",
    "delan": "DeLaN network",
    "feedforward": "feed-forward network",
    "identified": "identified URDF",
    "residual": "URDF with a residual network",
    "constant": "constant torque",
}


class ModelErrors(NamedTuple):
    """The errors of a model on some motion.

    Attributes:
        residual: measured minus predicted torque; None for errors of windows.
        blocks: labels of residuals that are drawn together to find how certain the errors are.
        size: of the torques; their squares are divided by its variance.
    """

    scores: Scores
    residual: Float[np.ndarray, "samples dof"] | None = None
    blocks: Int[np.ndarray, " samples"] | None = None
    size: TorqueSize | None = None


@dataclass(frozen=True, eq=False, kw_only=True)
class FitReport:
    """All that the page of a fit shows.

    Attributes:
        log: its name; command: that makes the page again.
        findings: of the log doctor.
        test: name of a log that took no part in the choice; test_set: its samples, prepared as the
            log was; test_scores: of every model there, by name; test_replay: that motion as
            simulated.
        coverage: the share of torques inside the model's band, per joint, on the test motion or,
            without one, on the validation motion.
        motion_file: where the motion to record next was written.
        versions: of the packages in use.
        sketch: of the log's rows, by which a model file recognises them.
        torque_source: where the torques of the log come from.
    """

    log: str
    fit: Fit
    findings: tuple[Finding, ...] = ()
    test: str | None = None
    test_set: Dataset | None = None
    test_scores: Mapping[str, Scores] = field(default_factory=dict)
    test_replay: LogReplay | None = None
    coverage: Float[np.ndarray, " dof"] | None = None
    motion_file: str | None = None
    versions: Mapping[str, str] = field(default_factory=dict)
    command: str = ""
    sketch: Mapping[str, Any] = field(default_factory=dict)
    torque_source: TorqueSource = "logged"

    @property
    def chosen(self) -> Entry:
        """The entry of the model to deploy."""
        return self.fit.chosen

    @property
    def trusted(self) -> Model | None:
        """The chosen model with its band and domain, as it may be shown on the held-out motion."""
        if self.fit.trusted is None or self.test_set is None:
            return self.fit.trusted
        return self.fit.model

    def shown(self, entry: Entry, dataset: Dataset) -> Model:
        """The model of an entry for a motion: on validation, one that has not learned from it."""
        if dataset is self.fit.validation:
            return entry.model
        return entry.deployed

    @property
    def unseen(self) -> Dataset:
        """The motion in the figures: the test motion, or else the validation motion."""
        if self.test_set is None:
            return self.fit.validation
        return self.test_set

    @property
    def unseen_words(self) -> str:
        """The name of that motion in a sentence."""
        if self.test is not None:
            return f"the test motion ({self.test})"
        count = len(self.fit.validation.samples.trajectories)
        if count == 1:
            return "the validation motion"
        return f"{count} validation trajectories"

    def test_errors(self) -> dict[str, ModelErrors]:
        """The errors of every model on the test motion."""
        dataset = self.test_set
        assert dataset is not None
        blocks = time_blocks(dataset)
        size = TorqueSize.of(dataset)
        errors = {}
        for entry in self.fit.entries:
            residual = dataset.samples.tau - predict_samples(entry.deployed, dataset)
            errors[entry.name] = ModelErrors(self.test_scores[entry.name], residual, blocks, size)
        return errors

    def validation_errors(self) -> dict[str, ModelErrors]:
        """The errors of every model on the validation motion, all folds together."""
        errors = {}
        for entry in self.fit.entries:
            errors[entry.name] = ModelErrors(entry.validation)
            if entry.cross is None:
                continue
            blocks = []
            last = 0
            for judged in entry.cross.judged:
                own = time_blocks(judged) + last
                blocks.append(own)
                last = int(own.max()) + 1
            errors[entry.name] = ModelErrors(
                entry.validation,
                entry.cross.residual,
                np.concatenate(blocks),
                entry.cross.size,
            )
        return errors

    @property
    def verdict(self) -> Verdict:
        """Whether to deploy the model, judged on the test motion where there is one."""
        return self.fit.judged(self.test_scores, self.replay)

    @property
    def replay(self) -> LogReplay | None:
        """The motion in the figures as the chosen model simulates it, if it can."""
        if self.test_set is None:
            return self.fit.replay
        return self.test_replay


def verdict_text(report: FitReport) -> str:
    """Which model to deploy and why, with what speaks against it."""
    verdict = report.verdict
    where = f"on {report.unseen_words}"
    if verdict.decision == "refuse":
        than = "worse than the mean torque of that motion"
        if not verdict.beats_constant:
            than = f"no better than {_the('constant')} ({verdict.constant:.2g})"
        which = "the model that validation chose"
        if verdict.judged_on == "validation":
            which = "the best of them"
        return (
            f"Do not deploy any of these models: {where} {which}, {_the(verdict.model)}, has an "
            f"nMSE of {verdict.error:.2g}, {than}. {_remedy(report, verdict)}"
        )
    against = [f"{verdict.constant:.2g} for {_the('constant')}"]
    if verdict.rival is not None:
        name, error = verdict.rival
        against.insert(0, f"{error:.2g} for {_the(name)}")
    reason = f"{where} its nMSE is {verdict.error:.2g}, against {' and '.join(against)}"
    if verdict.decision == "deploy":
        return f"Deploy {_the(verdict.model)}: {reason}."
    doubts = "; ".join(_doubt_text(doubt, verdict) for doubt in verdict.doubts)
    return f"Doubtful: {_the(verdict.model)} is the best of these models; {reason}. But {doubts}."


def motion_text(verdict: Verdict) -> str:
    """Whether the model moves like the robot; empty where it was not simulated."""
    motion = verdict.motion
    if motion is None:
        return ""
    strayed = (
        f"driven by the recorded torques, its positions are off after {motion.horizon:g} s by "
        f"{_share(motion.error)} the error of a robot that holds its speed (median joint), at "
        f"worst {_share(motion.worst_error)} it ({motion.worst})"
    )
    if motion.decision == "simulate":
        return f"Simulate with it: {strayed}."
    if motion.decision == "doubtful":
        return f"As a simulator it is doubtful: {strayed}."
    return (
        f"Do not simulate with it: {strayed}. Either the recorded torques do not determine the "
        f"motion of {motion.worst}, or the model lacks something there."
    )


def added_inertia_text(model: Model) -> str:
    """The inertia that forward dynamics add, in a sentence; empty where they add none."""
    added = []
    for name, inertia, slides in zip(
        model.joints.names, model.added_inertia or (), model.joints.sliding, strict=False
    ):
        if inertia > 0:
            added.append(f"{inertia:.2g} {'kg' if slides else 'kg m²'} ({name})")
    if not added:
        return ""
    return (
        f"Forward dynamics add inertia that the log does not tell: {', '.join(added)}. Without it "
        "small errors of the torque would be large accelerations there. It is no estimate of a "
        "rotor, and the torques of inverse dynamics contain none of it."
    )


def _share(error: float) -> str:
    """Return a ratio as a percentage, or as a factor where it is large."""
    if error < 1:
        return f"{100 * error:.0f} % of"
    return f"{error:.2g} times"


def _doubt_text(doubt: Doubt, verdict: Verdict) -> str:
    if doubt.kind == "poor":
        text = f"{100 * verdict.error:.0f} % of the torque's variance is not explained"
        if verdict.seconds is not None:
            text += f" ({_hurried(verdict)})"
        return text
    if doubt.kind == "rival":
        assert doubt.model is not None
        return (
            f"on the test motion {_the(doubt.model)} is better ({doubt.error:.2g}): the log holds "
            "too little motion to choose by"
        )
    if doubt.kind == "unactuated":
        return (
            "the motion of a joint without a motor is not explained: it would need torque of "
            f"{doubt.error:.2g} times the variance of its inertial torque; if a motor drives it, "
            "its torque is missing in the log"
        )
    if doubt.kind == "other_motion":
        return (
            "models learned from parts of the log differ where its joints move in other "
            f"combinations: expect an nMSE of about {doubt.error:.2g} there, or record more motion"
        )
    texts = {
        "no_mechanics": (
            "the feed-forward network knows no mechanics and goes wrong outside the recorded motion"
        ),
        "repeated": (
            "the log repeats one motion: nothing in it shows how the model does on other motion"
        ),
        "unsettled": "time was over before the model had settled: give it more",
        "interrupted": "the fit was stopped early",
    }
    return texts[doubt.kind]


def _remedy(report: FitReport, verdict: Verdict) -> str:
    """What to do where no model is good."""
    # Whatever else is wrong, a model that was not trained to its end shows nothing.
    if verdict.interrupted:
        return "The fit was stopped early: let it run to its end."
    hurried = ""
    if verdict.seconds is not None:
        hurried = f"{_hurried(verdict).capitalize()}. "
    faulty = any(finding.severity == "error" for finding in report.findings)
    # The model explains motion like that of the log, and only that.
    narrow = verdict.judged_on == "test" and verdict.validation < 1
    if narrow and not faulty:
        return (
            f"{hurried}On the validation motion it has {verdict.validation:.2g}: the log has too "
            "little motion to go beyond it. Learn from a larger part of it, or record more; if "
            "that does not help, check units, signs and order of the joints."
        )
    return hurried.strip() or "Check units, signs and the order of the joints with `delan check`."


def _hurried(verdict: Verdict) -> str:
    return f"it had {verdict.seconds:g} s: give it more, or no limit"


def _the(name: str) -> str:
    article = "a" if name == "constant" else "the"
    return f"{article} {NAMES.get(name, name)}"


def free_joints(report: FitReport) -> Iterator[str]:
    """Which joints have no motor and how their errors are measured, in sentences."""
    size = report.fit.study.torque_size
    if report.chosen.cross is not None:
        size = report.chosen.cross.size
    joints = report.fit.dataset.joints
    for joint in np.flatnonzero(size.free).tolist():
        if joint in joints.motor_of:
            continue  # a link behind a spring, not a joint that nothing drives
        sentence = f"{joints.names[joint]} has no motor: its torque is 0, and models learn from it"
        if size.variance[joint] > 0:
            inertial = np.sqrt(size.variance[joint])
            sentence += (
                f". Its nMSE is relative to {inertial:.2g} {joints.units[joint].tau}, the inertial "
                "torque that the model assigns to it, and not in the mean"
            )
        yield sentence + "."


def more_data(report: FitReport) -> Iterator[str]:
    """What more data would bring, and which motion to record next, in sentences."""
    fit = report.fit
    if fit.curve is not None:
        errors = ", ".join(f"{error:.2g}" for error in fit.curve.errors)
        shares = ", ".join(f"{100 * share:.0f}" for share in fit.curve.shares)
        yield (
            f"After a short refit to {shares} % of the training samples, the model has a "
            f"validation nMSE of {errors} (comparable with each other only, because the model "
            "above was trained for longer). If that trend continues, twice the data would remove "
            f"about {100 * fit.curve.gain:.0f} % of the error."
        )
    if fit.motion is not None:
        yield _motion_text(report)
    if fit.motion is not None and report.motion_file is not None:
        yield (
            f"It is in {report.motion_file} (t, q, qd, qdd): make sure that it keeps clear of "
            "limits, obstacles and the arm itself before the robot follows it."
        )


def _motion_text(report: FitReport) -> str:
    motion = report.fit.motion
    assert motion is not None
    joints = report.fit.dataset.joints
    units = joints.units[motion.joint]
    low, high = motion.pose
    return (
        "Of some random motions inside the range and the speeds of this log, the most informative "
        f"one moves all joints at once, most of all {joints.names[motion.joint]}, between "
        f"{low:.2f} and {high:.2f} {units.q} at up to {motion.speed[1]:.2f} {units.qd}."
    )
