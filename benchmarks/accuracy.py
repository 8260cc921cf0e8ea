"""Time to a given accuracy, from nothing compiled, on all cores.

    python -m benchmarks.accuracy [letters | wam]

Each fit runs in a process of its own and ends as soon as its validation trajectories are explained to the accuracy
asked for; the error on other motions is told as well. Seconds are those of the clock and those that all cores worked,
which other programs on the machine change least.
"""

import argparse
import json
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import jax

from delan.experiments.demo import DemoSettings
from delan.experiments.motion_logs import written
from delan.joints import Dataset
from delan.learning.evaluate import evaluate
from delan.learning.fit import fit
from delan.learning.planning import FitSettings, ModelChoice
from delan.learning.training import Progress
from delan.models.rigid_body import RigidBody
from delan.robots.barrett_wam import WAM7
from tests.random_arms import swung

from .results import write_results
from .timing import apart

LONGEST = 600.0
"""A fit gives up after so many seconds."""


def letters() -> tuple[Dataset, Dataset]:
    """The letters of `delan demo`: those to learn from, and those never seen."""
    settings = DemoSettings()
    dataset = written(settings.letters, speed=settings.speed, dt=settings.dt)
    unseen = [settings.letters.index(letter) for letter in settings.test]
    return dataset.select([label for label in dataset.trajectories if label not in unseen]), dataset.select(unseen)


def swings() -> tuple[Dataset, Dataset]:
    """2,000 samples of the WAM's smooth motion, and other motions."""
    body = RigidBody.from_urdf(WAM7.urdf())
    return swung(body, WAM7.limits, range(10), samples=2_000), swung(body, WAM7.limits, range(100, 103))


@dataclass(frozen=True)
class Row:
    """What is learned, by which model, and to which nMSE on validation trajectories."""

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

    began, worked = time.perf_counter(), time.process_time()
    settings = FitSettings(seconds=LONGEST)
    result = fit(training, row.model, settings, key=jax.random.key(0), progress=watch, stop=reached)
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
    """Every row in a process of its own."""
    told = []
    for name in ROWS:
        one = json.loads(apart("benchmarks.accuracy", name, "--json"))
        told.append(one)
        tell(one)
    return told


def tell(one: dict[str, Any]) -> None:
    verb = "in" if one["reached"] else "NOT REACHED in"
    error = f"nMSE on other motion {one['nmse_on_other_motion']:.1e}"
    seconds = f"{one['seconds']:.1f} s, {one['cpu_seconds']:.1f} s of work"
    print(f"  {one['title']}: {one['asked']:.0e} {verb} {seconds} ({one['optimizer']}; {error})", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("row", nargs="?", choices=[*ROWS], help="one row, in this process; default: all, and written")
    parser.add_argument("--json", action="store_true", help="print a row as JSON")
    chosen = parser.parse_args()
    if chosen.row is None:
        write_results("accuracy", {"rows": measure()})
        return
    one = reach(ROWS[chosen.row])
    if chosen.json:
        print(json.dumps(one))
    else:
        tell(one)


if __name__ == "__main__":
    main()
