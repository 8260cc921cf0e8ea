"""The checks of the gate, and the certificate that says which of them a model passed."""

from dataclasses import asdict, dataclass
from typing import Any, Literal, NamedTuple

from ..errors import SettingsError
from ..storage import SEEN_SHARE

# How a check was answered: by a bound that holds everywhere in the region, by a search for the
# worst case from random states, or by measurement at the states that the region names.
Evidence = Literal["proved", "searched", "measured"]


class Reason(NamedTuple):
    """Why a check matters, and what to do if it fails."""

    why: str
    cure: str


_NEARER = (
    "record motion near that q and fit with it too, or let `lower` and `upper` of the limits leave "
    "it out"
)
CHECKS = {
    "unseen motion": Reason(
        why="error, band and domain mean nothing on motion that the model was trained on",
        cure="give a log of motion that took no part in the fit; a file that does not say what "
        "its model learned from is written anew by `delan fit`, or by `delan.save` of the model of "
        "a `delan.fit`",
    ),
    "mechanics": Reason(
        why="without mechanics nobody can say that it gives no energy or stays small where it was "
        "never trained",
        cure="fit a chain or a DeLaN network (`delan fit LOG --model chain`)",
    ),
    "inertia": Reason(
        why="an arm without inertia answers any torque with any acceleration", cure=_NEARER
    ),
    "condition number": Reason(
        why="forward dynamics divide by the smallest: errors grow by this factor",
        cure="record motion that moves every joint by itself and fit with it too",
    ),
    "forward undoes inverse": Reason(
        why="torque and simulation would come from two different robots",
        cure="fit again; if it stays, fit a chain (`--model chain`)",
    ),
    "energy": Reason(
        why="a model that makes energy out of nothing makes an unstable loop out of a stable one",
        cure="fit a chain (`--model chain`), or let the limits' `velocity` be what the robot "
        "reaches",
    ),
    "friction takes energy": Reason(
        why="friction that drives makes the robot run away",
        cure="fit again with `--friction auto`, from motion at more speeds",
    ),
    "gravity torque": Reason(
        why="a robot that cannot hold itself there was never there: the model is wrong, or the "
        "workspace too large",
        cure=f"see that the limits' `torque` is right and in N m; if it is, {_NEARER}",
    ),
    "torque of the log's motion": Reason(
        why="the robot did this motion, so that its limits suffice",
        cure="see that the limits' `torque` is right, and that the log has the model's units, "
        "signs and order of joints (`delan check LOG`)",
    ),
    "torque outside of the data": Reason(
        why="a spike where nothing was measured would be commanded the first time the robot gets "
        "there",
        cure=f"{_NEARER}; if no bound was shown, fit a chain (`--model chain`) or again: the "
        "network is steeper than motion is",
    ),
    "error on the log": Reason(
        why="a torque that is mostly error is worse than feedback alone",
        cure="look for faults of the log (`delan check LOG`); if it has none, fit with motion like "
        "it too",
    ),
    "band": Reason(
        why="a band that is too narrow is trusted where it should not be",
        cure="fit with more trajectories (`delan fit LOG LOG2 …`): the band is made by those that "
        "the fit holds out",
    ),
    "width of the band": Reason(
        why="a band as wide as the torque limits holds every torque and says nothing",
        cure="fit again with motion like this log (`delan fit LOG LOG2 …`)",
    ),
    "domain": Reason(
        why="results on this log say little about a robot that moves elsewhere",
        cure="fit with motion that goes where this log goes (`delan fit LOG LOG2 …`), and examine "
        "on a third log",
    ),
    "workspace": Reason(
        why="of a joint that never moved nothing was learned",
        cure="record a motion that moves every joint through more of its range and fit with it too",
    ),
    "replay": Reason(
        why="a simulator that drifts teaches a controller a robot that does not exist",
        cure="see joint by joint where it strays (`delan simulate MODEL --log LOG --plot`); record "
        "faster motion of that joint by itself and fit with it too",
    ),
    "C code": Reason(
        why="what drives the robot is the code, and not what was examined here",
        cure="install gcc or clang; if code was made and is off, fit again: its numbers are too "
        "large, too small or too far apart for single precision",
    ),
}


@dataclass(frozen=True)
class GateSettings:
    """What is asked of a model.

    Attributes:
        inertia: the least eigenvalue of H anywhere [kg m² or kg].
        condition: the most that eigenvalues of H may differ by anywhere, each joint measured by its
            own usual inertia.
        torque: the most of its limit that a joint needs to rest anywhere, or to move as in the log.
        outside: the most of its limit that a joint needs anywhere at the speeds and accelerations
            of the log.
        energy: the most that a free motion without friction may gain or lose, as share of its
            kinetic energy.
        inverse: the most that an acceleration may change through inverse and forward dynamics, as
            share of it.
        error: the largest nMSE of a joint's torque on the log.
        coverage: by how much less than promised the band may hold of the log's torques, joint by
            joint.
        known: the least share of the log's states that is like the training data.
        span: the least share of its range that each joint moved through in training.
        compiled: how far the C code in float may be from the model, as share of the largest torque.
        states, ascents: how many states are drawn, and from how many of the worst of them an ascent
            begins.
        simulate: whether the log is simulated as well.
        drift: the most that a joint of the simulation may stray from the log, as share of the error
            of a robot that holds its speed.
        seed: of the random states; None draws another one each time, so that no model can be made
            to pass between them.
    """

    inertia: float = 1e-6
    condition: float = 1e6
    torque: float = 1.0
    outside: float = 3.0
    energy: float = 0.01
    inverse: float = 1e-6
    error: float = 0.2
    coverage: float = 0.1
    known: float = 0.8
    span: float = 0.02
    compiled: float = 1e-4
    states: int = 2000
    ascents: int = 8
    simulate: bool = False
    drift: float = 0.5
    seed: int | None = None

    def __post_init__(self) -> None:
        for name, value in asdict(self).items():
            if name == "simulate":
                continue
            if name == "seed":
                if value is not None and value < 0:
                    raise SettingsError(f"seed must be at least 0, got {value}")
            elif not 0 < value < float("inf"):
                raise SettingsError(f"{name} must be positive and finite, got {value}")


@dataclass(frozen=True)
class Check:
    """One question put to a model, named in `CHECKS`: what was asked and what was found.

    `evidence` says how it was answered, and `region` where the answer holds.
    """

    name: str
    passed: bool
    asked: str
    found: str
    evidence: Evidence = "measured"
    region: str = "the log"

    @property
    def why(self) -> str:
        """Why it matters."""
        return CHECKS[self.name].why

    @property
    def cure(self) -> str:
        """What to do if the check is not passed."""
        return CHECKS[self.name].cure

    def as_dict(self) -> dict[str, Any]:
        payload = asdict(self) | {"why": self.why}
        if not self.passed:
            payload["cure"] = self.cure
        return payload


@dataclass(frozen=True)
class Certificate:
    """All checks of a model, which may drive if every one passed."""

    checks: tuple[Check, ...]
    # Of the random states; the same seed gives the same certificate.
    seed: int | None = None

    @property
    def passed(self) -> bool:
        return all(check.passed for check in self.checks)

    @property
    def verdict(self) -> str:
        """One sentence."""
        if self.passed:
            return f"passed all {len(self.checks)} checks"
        return f"refused: {', '.join(check.name for check in self.checks if not check.passed)}"

    def as_dict(self) -> dict[str, Any]:
        return {
            "passed": self.passed,
            "verdict": self.verdict,
            "seed": self.seed,
            "checks": [check.as_dict() for check in self.checks],
        }


def unseen_motion(share: float | None) -> Check:
    """Whether a log holds other rows than those that the model was trained on; None: unknown."""
    asked = (
        f"less than {100 * SEEN_SHARE:.0f} % of this log's rows in the one that the model learned "
        "from"
    )
    if share is None:
        found = "the model file does not say what the model learned from"
        return Check("unseen motion", False, asked, found)
    found = f"{100 * share:.0f} %"
    region = "the log, against what the model file says that it learned from"
    return Check("unseen motion", share < SEEN_SHARE, asked, found, region=region)
