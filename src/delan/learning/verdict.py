"""The verdict on a fit: whether its model should be deployed, and what speaks against it."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np

from ..models.model import Model
from ..simulation.replay import LogReplay
from .scores import Scores
from .study import Entry

# A rival of the chain takes its place if its error on the same folds is below this share of the
# chain's. A network without mechanics, which goes wrong outside the recorded motion, must be better
# by more, and the log must have motion that is unlike the rest to show it.
BETTER = 0.7
BETTER_WITHOUT_MECHANICS = 0.4
# A model with mechanics that leaves more than this is no model to prefer, and no rival that leaves
# more takes a place.
USELESS = 0.5

Decision = Literal["deploy", "doubtful", "refuse"]
DoubtKind = Literal[
    "poor",
    "unactuated",
    "no_mechanics",
    "rival",
    "other_motion",
    "repeated",
    "unsettled",
    "interrupted",
]

# A model that leaves more than this share of the torque's variance unexplained is doubtful.
POOR = 0.1
# A model is fit to simulate with if it strays at most this far from the motion, as a share of the
# error of a robot that holds its speed: in the median joint, and in every joint.
STRAYS = 0.2
STRAYS_MOST = 0.5
# A joint that strays less than this from constant speed has no motion to be compared with [rad or
# m]: a smaller error does not count against the model.
STILL = 1e-3
# A model is doubtful if another one has less than this share of its error on the test motion.
CLEARLY_BETTER = 0.8


def ranked(entries: Sequence[Entry], *, new_motion: bool) -> list[Entry]:
    """Return the entries with the one to deploy first, then by their validation error.

    A model is preferred for its structure unless another one is clearly better: held-out motion of
    a log is more like the training motion than the motion to come, which favours memory. Mechanics
    with a network beside them are for comparison only: they cannot be written as C code.
    """
    best: Entry | None = None
    for entry in sorted(entries, key=_freedom):
        if entry.name == "constant" or not _deployable(entry.model):
            continue
        if best is None or _takes_its_place(entry, best, new_motion):
            best = entry
    others = [entry for entry in entries if entry is not best]
    others.sort(key=lambda entry: entry.error)
    return others if best is None else [best, *others]


def _deployable(model: Model) -> bool:
    """Return whether a controller can run the model: mechanics, or a network, but not both."""
    return model.mechanics is None or model.residual is None


def _freedom(entry: Entry) -> int:
    """The rank of a model by its structure: those that can represent less come first."""
    if not entry.model.promises.mechanics:
        return 2
    return 1 if entry.model.chain is None else 0


def _takes_its_place(entry: Entry, best: Entry, new_motion: bool) -> bool:
    folds = min(entry.folds, best.folds)
    error = entry.error_on(folds)
    other = best.error_on(folds)
    if _freedom(entry) == _freedom(best):
        return error < other
    if error > USELESS:
        return False
    if _freedom(entry) == 1:
        return error < BETTER * other
    if other > USELESS:
        return error < BETTER * other
    return new_motion and error < BETTER_WITHOUT_MECHANICS * other


@dataclass(frozen=True)
class Doubt:
    """One reason against a model.

    Attributes:
        kind: `poor`: too much of the torque is unexplained. `unactuated`: a joint without a motor
            would need a torque to move as it did. `no_mechanics`: a network without mechanics
            gives the torque. `rival`: another model is better on
            the test motion. `other_motion`: models learned from parts of the log differ where the
            joints move in other combinations. `repeated`: the log repeats one motion, and nothing
            speaks for others. `unsettled`: time was over before the model had settled.
            `interrupted`: the fit was stopped early.
        model: the rival. error: its nMSE, or the one to expect on other motion.
    """

    kind: DoubtKind
    model: str | None = None
    error: float | None = None


@dataclass(frozen=True)
class MotionVerdict:
    """Whether a model moves like the robot, and is fit to simulate with.

    Attributes:
        decision: `simulate`; `doubtful`: it predicts motion, but strays; `refuse`: a joint of a
            robot that holds its speed would stray less.
        horizon: the time after which positions are compared [s].
        error: of the median joint, relative to a robot that holds the speed of the start.
        worst, worst_error: the joint with the largest such error.
    """

    decision: Literal["simulate", "doubtful", "refuse"]
    horizon: float
    error: float
    worst: str
    worst_error: float


def judge_motion(replay: LogReplay) -> MotionVerdict:
    """Judge a model by how far it strays from a recorded motion, open loop."""
    horizon = max(replay.open_loop)
    error = replay.open_loop[horizon].relative(STILL)
    worst = int(np.argmax(error))
    verdict = MotionVerdict(
        decision="doubtful",
        horizon=horizon,
        error=float(np.median(error)),
        worst=replay.joints.names[worst],
        worst_error=float(error[worst]),
    )
    # Written so that an error that is not a number refuses as well.
    if not verdict.worst_error < 1:
        return replace(verdict, decision="refuse")
    if verdict.error <= STRAYS and verdict.worst_error <= STRAYS_MOST:
        return replace(verdict, decision="simulate")
    return verdict


@dataclass(frozen=True)
class Verdict:
    """Whether to deploy the model that the validation motion chose.

    Attributes:
        decision: `deploy`; `doubtful`: the best model, but with doubts; `refuse`: no model is good.
        model: the name of the chosen model.
        error, constant: the nMSE of that model and of a constant torque on the judging motion.
        rival: the next model and its nMSE there, if there is one.
        judged_on: `test` if motion was given that took no part in the choice.
        validation: the nMSE of the chosen model on the validation motion.
        seconds: the limit of time that the fit had.
        free_error: the largest nMSE of joints without a motor; 0 if all have one.
        motion: whether it moves like the robot; None where it was not simulated.
    """

    decision: Decision
    model: str
    error: float
    constant: float
    rival: tuple[str, float] | None
    judged_on: Literal["validation", "test"]
    validation: float
    doubts: tuple[Doubt, ...] = ()
    interrupted: bool = False
    seconds: float | None = None
    free_error: float = 0.0
    motion: MotionVerdict | None = None

    def __str__(self) -> str:
        """The decision with its doubts, in a few lines."""
        lines = [
            f"{self.decision}: {self.model}, nMSE {self.error:.3g} on {self.judged_on} motion "
            f"(a constant torque: {self.constant:.3g})"
        ]
        lines += [f"  doubt: {doubt.kind}" for doubt in self.doubts]
        if self.motion is not None:
            motion = self.motion
            lines.append(
                f"  as a simulator: {motion.decision}, {motion.error:.2g} of the error of a robot "
                f"that holds its speed after {motion.horizon:g} s"
            )
        return "\n".join(lines)

    @property
    def beats_constant(self) -> bool:
        """Whether the model is better than a constant torque."""
        return self.error < self.constant

    @property
    def simulable(self) -> bool:
        """Whether it was seen to move like the robot."""
        return self.motion is not None and self.motion.decision == "simulate"


def judge(
    entries: Sequence[Entry],
    test: Mapping[str, Scores] | None = None,
    *,
    motion: MotionVerdict | None = None,
    new_motion: bool = True,
    other_motion: float = 0.0,
    interrupted: bool = False,
    seconds: float | None = None,
) -> Verdict:
    """Judge the model with the lowest validation error, on the test motion where there is one.

    Args:
        entries: ordered by their validation error.
        test: the scores of every entry on motion that took no part in the choice.
        motion: whether the first of them moves like the robot.
        new_motion: whether the validation motion is unlike the training motion.
        other_motion: the nMSE by which models of parts of the log differ on other motion.
    """
    scored = {entry.name: entry.validation for entry in entries} | dict(test or {})
    errors = {name: scores.torque.nmse_mean for name, scores in scored.items()}
    # A constant torque is chosen only if nothing else took part.
    chosen, *others = sorted(entries, key=lambda entry: entry.name == "constant")
    rivals = []
    for entry in others:
        if entry.name != "constant":
            rivals.append((entry.name, errors[entry.name]))
    verdict = Verdict(
        decision="deploy",
        model=chosen.name,
        error=errors[chosen.name],
        constant=errors["constant"],
        rival=next(iter(rivals), None),
        judged_on="test" if test else "validation",
        validation=chosen.error,
        interrupted=interrupted,
        seconds=seconds,
        free_error=scored[chosen.name].torque.free_nmse,
        motion=motion,
    )
    # Written so that an error that is not a number refuses as well.
    if not verdict.error < min(1.0, verdict.constant) or chosen.name == "constant":
        return replace(verdict, decision="refuse")
    doubts = tuple(_doubts(verdict, chosen, rivals))
    if verdict.judged_on == "validation":
        doubts += tuple(_doubts_beyond(verdict, new_motion, other_motion))
    if doubts:
        return replace(verdict, decision="doubtful", doubts=doubts)
    return verdict


def _doubts_beyond(verdict: Verdict, new_motion: bool, other_motion: float) -> Iterator[Doubt]:
    """Yield what speaks against the model on motion unlike that of the log."""
    expected = verdict.error + other_motion
    if verdict.error <= POOR < expected:
        yield Doubt("other_motion", error=expected)
    if not new_motion:
        yield Doubt("repeated")


def _doubts(
    verdict: Verdict, chosen: Entry, rivals: Sequence[tuple[str, float]]
) -> Iterator[Doubt]:
    if verdict.error > POOR:
        yield Doubt("poor")
    if verdict.free_error > POOR:
        yield Doubt("unactuated", error=verdict.free_error)
    if verdict.model == "feedforward":
        yield Doubt("no_mechanics")
    # On the validation motion, which chose the model, no rival can be better.
    if verdict.judged_on == "test" and rivals:
        name, error = min(rivals, key=lambda rival: rival[1])
        if error < CLEARLY_BETTER * verdict.error:
            yield Doubt("rival", name, error)
    if verdict.interrupted:
        yield Doubt("interrupted")
    elif chosen.training is not None and not chosen.training.settled:
        yield Doubt("unsettled")
