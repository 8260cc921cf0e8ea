"""Time to a given accuracy, from nothing compiled, on all cores.

    python -m benchmarks.accuracy [letters | wam]

Each fit runs in its own process and ends as soon as the validation error reaches the given
accuracy; the error on test motions is reported as well. Both wall time and processor time are
reported; other programs on the machine change the latter least.
"""

import argparse
import json
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import jax

from delan.joints import Dataset
from delan.learning.model_fit import fit_model
from delan.learning.scores import evaluate
from delan.learning.study import Study
from delan.models.rigid_body import RigidBody
from delan.paper.demo import DemoSettings
from delan.paper.motion_logs import letter_log
from delan.robots.arms import WAM7
from delan.solvers.plan import ModelChoice
from delan.solvers.training import Progress, TrainingSettings
from tests.support.random_arms import swung

from .results import write_results
from .timing import apart

LONGEST = 600.0  # a fit gives up after this time [s]


def letters() -> tuple[Dataset, Dataset]:
    """Return the training letters and the test letters of `delan demo`."""
    settings = DemoSettings()
    dataset = letter_log(settings.letters, speed=settings.speed, dt=settings.dt)
    unseen = [settings.letters.index(letter) for letter in settings.test]
    training = [label for label in dataset.trajectories if label not in unseen]
    return dataset.select(training), dataset.select(unseen)


def swings() -> tuple[Dataset, Dataset]:
    """Return 2,000 samples of smooth motion of the WAM, and test motions."""
    body = RigidBody.from_urdf(WAM7.urdf())
    training = swung(body, WAM7.limits, range(10), samples=2_000)
    return training, swung(body, WAM7.limits, range(100, 103))


@dataclass(frozen=True)
class Row:
    """A dataset, a model and the nMSE to reach on validation trajectories."""

    title: str
    data: Callable[[], tuple[Dataset, Dataset]]
    model: ModelChoice
    nmse: float


ROWS = {
    "letters": Row("network, two-link arm, 17 letters", letters, "delan", 1e-4),
    "wam": Row("chain, WAM with 7 joints, 2,000 samples", swings, "chain", 1e-6),
}


def reach(row: Row) -> dict[str, Any]:
    """Fit until the accuracy is reached."""
    training, unseen = row.data()
    reached = threading.Event()

    def watch(progress: Progress) -> None:
        if progress.best <= row.nmse:
            reached.set()

    began = time.perf_counter()
    worked = time.process_time()
    settings = TrainingSettings(seconds=LONGEST)
    result = fit_model(
        Study.of(training, settings, key=jax.random.key(0), stop=reached, watch=watch), row.model
    )
    return {
        "title": row.title,
        "asked": row.nmse,
        "reached": reached.is_set(),
        "seconds": time.perf_counter() - began,
        "cpu_seconds": time.process_time() - worked,
        "optimizer": result.optimizer,
        "nmse_on_other_motion": evaluate(result.model, unseen, rollouts=False).torque.nmse_mean,
    }


def measure() -> list[dict[str, Any]]:
    """Measure every row in its own process."""
    results = []
    for name in ROWS:
        result = json.loads(apart("benchmarks.accuracy", name, "--json"))
        results.append(result)
        print_result(result)
    return results


def print_result(result: dict[str, Any]) -> None:
    verb = "in" if result["reached"] else "NOT REACHED in"
    error = f"nMSE on other motion {result['nmse_on_other_motion']:.1e}"
    seconds = f"{result['seconds']:.1f} s, {result['cpu_seconds']:.1f} s of work"
    print(
        f"  {result['title']}: {result['asked']:.0e} {verb} {seconds}"
        f" ({result['optimizer']}; {error})",
        flush=True,
    )


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "row",
        nargs="?",
        choices=[*ROWS],
        help="run one row in this process; without it, all rows are measured and written",
    )
    parser.add_argument("--json", action="store_true", help="print a row as JSON")
    chosen = parser.parse_args()
    if chosen.row is None:
        write_results("accuracy", {"rows": measure()})
        return
    result = reach(ROWS[chosen.row])
    if chosen.json:
        print(json.dumps(result))
    else:
        print_result(result)


if __name__ == "__main__":
    main()
