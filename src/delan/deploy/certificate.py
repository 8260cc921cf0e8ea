"""What the gate asked of a model, what it found, and what to do about it."""

from dataclasses import asdict, dataclass
from typing import Any

UNSEEN = 0.2
"""The share of the rows known from training from which on a log counts as one that the model has
seen.
"""
NEARER = "record motion near that q and fit with it too, or let `lower` and `upper` of the limits leave it out"
CURES = {
    "unseen motion": "give a log of motion that took no part in the fit",
    "mechanics": "fit a chain or a DeLaN network (`delan fit LOG --model chain`)",
    "inertia": NEARER,
    "condition number": "record motion that moves every joint by itself and fit with it too",
    "forward undoes inverse": "fit again; if it stays, fit a chain (`--model chain`)",
    "energy": "fit a chain (`--model chain`), or let the limits' `velocity` be what the robot reaches",
    "friction takes energy": "fit again with `--friction auto`, from motion at more speeds",
    "gravity torque": f"see that the limits' `torque` is right and in N m; if it is, {NEARER}",
    "torque of the log's motion": "see that the limits' `torque` is right, and that the log has the model's units, "
    "signs and order of joints (`delan check LOG`)",
    "torque outside of the data": NEARER,
    "error on the log": "look for faults of the log (`delan check LOG`); if it has none, fit with motion like it too",
    "band": "fit with more trajectories (`delan fit LOG LOG2 …`): the band is made by those that the fit holds out",
    "domain": "fit with motion that goes where this log goes (`delan fit LOG LOG2 …`), and examine on a third log",
    "workspace": "record a motion that moves every joint through more of its range and fit with it too",
    "C code": "install gcc or clang; if code was made and is off, export it with --double --exact-math",
}
"""What to do about each check that is not passed."""


@dataclass(frozen=True)
class Check:
    """One question put to a model: what was asked, what was found, whether that is enough, and why
    it matters.

    `cure`: what to do if it is not enough.
    """

    name: str
    passed: bool
    asked: str
    found: str
    why: str

    @property
    def cure(self) -> str:
        return CURES[self.name]


@dataclass(frozen=True)
class Certificate:
    """What became of all questions; the model may drive if every one passed."""

    checks: tuple[Check, ...]

    @property
    def passed(self) -> bool:
        return all(check.passed for check in self.checks)

    @property
    def verdict(self) -> str:
        """One sentence."""
        failed = [check.name for check in self.checks if not check.passed]
        return (
            f"refused: {', '.join(failed)}" if failed else f"passed all {len(self.checks)} checks"
        )

    def as_dict(self) -> dict[str, Any]:
        return {
            "passed": self.passed,
            "verdict": self.verdict,
            "checks": [_told(check) for check in self.checks],
        }


def unseen_motion(share: float) -> Check:
    """Whether a log holds other rows than those that the model was trained on."""
    return Check(
        "unseen motion",
        share < UNSEEN,
        f"less than {100 * UNSEEN:.0f} % of this log's rows in the one that the model learned from",
        f"{100 * share:.0f} %",
        "of motion that a model was trained on, error, band and domain say nothing",
    )


def _told(check: Check) -> dict[str, Any]:
    return asdict(check) | ({} if check.passed else {"cure": check.cure})
