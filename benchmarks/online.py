"""Learning while the robot moves, in real time: results of `delan online`, run as a command.

    python -m benchmarks.online [letters] [wam] [endurance] [payload] [clocks] [drift]
        [drift_wall_two-link] [drift_wall_wam4] [drift_wall_wam7]

Errors are Σ over joints of the mean square of q_des − q on test motions, with the model frozen. Run
it on an idle machine: with the wall clock, the loop and the learner need a core each. All rows by
default, which takes about an hour.
"""

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from delan.motions.letters import LETTERS
from delan.online.learner import LearnerSettings
from delan.online.online_run import OnlineRun, run_online
from delan.online.session import OnlineOutcome

from .results import FOLDER, write_results

SEEDS = range(5)
SPEEDS = (1.0, 1.25, 1.5, 1.75, 2.0)
LEARNING = 40  # how long a letter run learns [s]
# Unchanged robots for `drift`: steps of the learner per second, by robot and model.
UNCHANGED: dict[str, dict[str, tuple[int, ...]]] = {
    "wam4": {"feedforward": (10, 40, 80), "delan": (10, 40, 80), "chain": (20,)},
    "two-link": {"feedforward": (10, 40, 80), "delan": (10, 40, 80), "chain": (20, 80)},
    "wam7": {"feedforward": (20, 80), "delan": (10, 40), "chain": (20,)},
}
DRIFT_SECONDS = 40.0  # how long such a robot moves [s]
WALL_SECONDS = 25.0  # the same by the wall clock [s]


def online(
    robot: str, feed_forward: str, *, clock: str = "wall", seed: int = 0, **options: Any
) -> dict[str, Any]:
    """Run the command in its own process and return its JSON."""
    with tempfile.TemporaryDirectory() as folder:
        command = [
            sys.executable,
            "-m",
            "delan.cli.main",
            "online",
            robot,
            "--json",
            "--out",
            folder,
        ]
        settings = {"model": feed_forward, "clock": clock, "seed": seed, **options}
        for name, value in settings.items():
            command += [f"--{name.replace('_', '-')}", str(value)]
        ended = subprocess.run(command, capture_output=True, text=True, check=False)
    if ended.returncode != 0:
        raise SystemExit(f"{' '.join(command)}\n{ended.stderr}")
    return json.loads(ended.stdout)


def written(seed: int) -> dict[str, str]:
    """Return eight random letters to learn on, and the twelve others to test on."""
    order = np.random.default_rng(seed).permutation(list(LETTERS))
    return {"letters": ",".join(order[:8]), "test": ",".join(order[8:])}


def stored_numbers(run: Mapping[str, Any]) -> dict[str, Any]:
    """Return the numbers of a run that are stored."""
    loop = run["loop"]
    counts = {
        name: loop[name]
        for name in ("periods", "missed", "late_feedforward", "lost_samples", "swaps")
    }
    return {
        "train": run["tracking"]["train"]["mse_sum"],
        **{name: error["mse_sum"] for name, error in run["tracking"].items() if name != "train"},
        "first_model_seconds": run["first_model_seconds"],
        **counts,
        "lateness_us": loop["lateness_us"],
    }


def letter_run(feed_forward: str, clock: str, seed: int) -> dict[str, Any]:
    row = stored_numbers(
        online("two-link", feed_forward, clock=clock, seed=seed, seconds=LEARNING, **written(seed))
    )
    print(f"{feed_forward}, {clock}, seed {seed}: {row}", flush=True)
    return row


def letters() -> dict[str, Any]:
    """Learn on eight letters and test on twelve; the models that learn run with the wall clock."""
    clocks = {"none": "stepped", "true": "stepped", "delan": "wall", "feedforward": "wall"}
    runs = {
        name: [letter_run(name, clock, seed) for seed in SEEDS] for name, clock in clocks.items()
    }
    errors = {name: np.array([row["test"] for row in rows]) for name, rows in runs.items()}
    return {
        "learning_seconds": LEARNING,
        "runs": runs,
        "median": {name: float(np.median(values)) for name, values in errors.items()},
        "delan_over_true": (errors["delan"] / errors["true"]).tolist(),
        "delan_over_feedforward": (errors["delan"] / errors["feedforward"]).tolist(),
        "first_model_seconds": [row["first_model_seconds"] for row in runs["delan"]],
    }


def wam() -> dict[str, Any]:
    """Learn cosines at 1× and test at rising speed, beside the true and the analytic model.

    Three seeds run with the stepped clock, and the chain once more with the wall clock.
    """
    tests = ",".join(f"{speed:g}" for speed in SPEEDS)

    def runs(robot: str, name: str, clock: str, seeds: range) -> list[dict[str, Any]]:
        options = {"reference": "cosines", "seconds": 40, "test_speeds": tests}
        rows = [
            stored_numbers(online(robot, name, clock=clock, seed=seed, **options)) for seed in seeds
        ]
        print(
            robot,
            name,
            clock,
            [[f"{row[f'{speed:g}x']:.2e}" for speed in SPEEDS] for row in rows],
            flush=True,
        )
        return rows

    results: dict[str, Any] = {}
    for robot, learned in {"wam4": ("chain", "delan"), "wam7": ("chain",)}.items():
        rows = {
            name: runs(robot, name, "stepped", SEEDS[:3])
            for name in ("none", "analytic", "true", *learned)
        }
        rows["chain, wall"] = runs(robot, "chain", "wall", SEEDS[:1])
        results[robot] = {"runs": rows}
        for learned_name in ("chain", "chain, wall"):
            for rival in ("true", "analytic"):
                pairs = zip(rows[learned_name], rows[rival], strict=False)
                ratios = [
                    [row[f"{speed:g}x"] / other[f"{speed:g}x"] for speed in SPEEDS]
                    for row, other in pairs
                ]
                results[robot][f"{learned_name} / {rival}"] = ratios
                print(
                    robot,
                    f"{learned_name} / {rival}, worst over seeds at each speed:",
                    np.max(ratios, axis=0),
                    flush=True,
                )
    return results


def endurance() -> dict[str, Any]:
    """Control for ten minutes at 500 Hz beside a learner that never pauses.

    A feed-forward torque is due 200 times per second. An empty loop runs for a minute before
    and after the run, to measure what the machine itself misses.
    """
    bare = [bare_loop()]
    steal = stolen()
    row = stored_numbers(online("two-link", "delan", seconds=740))
    steal = stolen() - steal
    bare.append(bare_loop())
    minutes = row["periods"] / 500 / 60
    shares = {
        "missed": row["missed"] / row["periods"],
        "late_feedforward": row["late_feedforward"] / (minutes * 60 * 200),
        "lost_samples": row["lost_samples"] / row["periods"],
    }
    extra = {
        "minutes": minutes,
        "shares": shares,
        "bare_loop_missed": bare,
        "seconds_stolen_from_core_0": steal,
    }
    print(row, extra, flush=True)
    return {**row, **extra}


def bare_loop() -> float:
    """Return the share of periods that an empty loop misses, with the same priority and core."""
    code = (
        "from delan.online.clocks import Deadlines, WallClock\n"
        "from delan.online.process import kept_awake, raise_priority\n"
        "raise_priority(core=0)\n"
        "with kept_awake():\n"
        "    ticks = Deadlines(WallClock(), 2e-3)\n"
        "    last = 0\n"
        "    while last < 30_000:\n"
        "        last = ticks.wait().number\n"
        "print(ticks.missed / last)"
    )
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return float(ran.stdout)


def stolen() -> float:
    """Return the seconds since boot in which the host ran something else on the loop's core."""
    line = next(
        line for line in Path("/proc/stat").read_text().splitlines() if line.startswith("cpu0 ")
    )
    return int(line.split()[8]) / os.sysconf("SC_CLK_TCK")


def payload() -> dict[str, Any]:
    """Measure the recovery after the last link becomes 30 % heavier at 60 s.

    Errors are root mean squares of a letter, relative to the same letter before. With the true
    model of the heavier arm this ratio is 1.3, because the error of a torque that is held for 5 ms
    is proportional to the inertia.
    """
    rows = {}
    for name in ("delan", "chain"):
        run = online("two-link", name, seconds=120, payload="60:0.3")
        rows[name] = recovery(run, 60)
        print(name, rows[name], flush=True)
    return rows


def recovery(run: Mapping[str, Any], changed: float) -> dict[str, Any]:
    """Return when the last letter after the change [s] had more than 1.5 times its usual error."""
    segments = run["tracking"]["train"]["segments"]
    usual: dict[str, list[float]] = {}
    for segment in segments:
        if changed / 3 < segment["start"] < changed - segment["seconds"]:
            usual.setdefault(segment["label"], []).append(segment["tracking"]["mse_sum"])
    after = [
        {
            "ended": segment["start"] + segment["seconds"] - changed,
            "times_the_usual": float(
                np.sqrt(segment["tracking"]["mse_sum"] / np.mean(usual[segment["label"]]))
            ),
        }
        for segment in segments
        if segment["start"] + segment["seconds"] > changed and segment["label"] in usual
    ]
    bad = [letter["ended"] for letter in after if letter["times_the_usual"] > 1.5]
    return {
        "recovered_after_seconds": max(bad, default=0.0),
        "after": after,
        "events": alarms(run),
    }


def alarms(run: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return what the learner reported."""
    return [event for event in run["events"] if event["kind"] == "learner"]


def run_here(robot: str, model: Any, seconds: float, **options: Any) -> OnlineOutcome:
    """Run inside this process, where more can be set than by options of the command."""
    reference = "letters" if robot == "two-link" else "cosines"
    settings = OnlineRun(robot=robot, model=model, reference=reference, seconds=seconds, **options)
    return run_online(settings)


def stepped_run(
    robot: str, model: Any, steps: float, seconds: float, **options: Any
) -> dict[str, Any]:
    """Run with the stepped clock, whose results do not depend on the load of the machine."""
    outcome = run_here(
        robot, model, seconds, clock="stepped", steps_per_second=float(steps), **options
    )
    return outcome.as_dict()


def drift() -> dict[str, Any]:
    """Count alarms on unchanged robots, and measure when a payload is found.

    The error of each run is divided by that of the same run without the test for changes. A run
    without an alarm is the same to the last bit, so that it is not repeated.
    """
    runs = []
    for robot, speeds in UNCHANGED.items():
        for model, steps in ((name, step) for name, rates in speeds.items() for step in rates):
            run = stepped_run(robot, model, steps, DRIFT_SECONDS, seed=1)
            error = run["tracking"]["train"]["mse_sum"]
            row = {"robot": robot, "model": model, "steps_per_second": steps, "error": error}
            row |= {"alarms": len(alarms(run)), "over_without_test": 1.0}
            if row["alarms"]:
                settings = LearnerSettings(alarm_hours=None)
                other = stepped_run(robot, model, steps, DRIFT_SECONDS, seed=1, learner=settings)
                row["over_without_test"] = error / other["tracking"]["train"]["mse_sum"]
            print(row, flush=True)
            runs.append(row)
    changed = {}
    for robot, model in (("two-link", "delan"), ("two-link", "chain"), ("wam4", "chain")):
        run = stepped_run(robot, model, 40, 60.0, payload=(40.0, 0.3))
        row = recovery(run, 40.0)
        row["found_after_seconds"] = [event["t"] - 40.0 for event in row["events"]]
        print(robot, model, row["found_after_seconds"], row["recovered_after_seconds"], flush=True)
        changed[f"{robot} {model}"] = row
    return {
        "seconds": DRIFT_SECONDS,
        "alarms": sum(row["alarms"] for row in runs),
        "worst_over_without_test": max(row["over_without_test"] for row in runs),
        "unchanged": runs,
        "payload": changed,
    }


def drift_wall(robot: str) -> dict[str, Any]:
    """Count alarms on an unchanged robot by the wall clock, where learners are as fast as they can.

    Each run is repeated without the test for changes. Two runs by the wall clock differ anyway, so
    that the ratio of their errors in the last half tells less than that of `drift`.
    """
    runs = []
    for model in UNCHANGED[robot]:
        errors = []
        found = []
        missed = []
        ended = []
        for hours in (LearnerSettings.alarm_hours, None):
            settings = LearnerSettings(alarm_hours=hours)
            outcome = run_here(robot, model, WALL_SECONDS, seed=1, learner=settings)
            error = outcome.train.error
            errors.append(float((error[len(error) // 2 :] ** 2).mean(axis=0).sum()))
            found.append(len(alarms(outcome.as_dict())))
            missed.append(outcome.stats.missed)
            ended.append(outcome.train.ended)
        row = {"robot": robot, "model": model, "alarms": found[0], "missed": missed[0]}
        row["ended"] = ended
        # A run that the guard stopped, as on a busy machine, has no second half.
        if ended == ["finished", "finished"]:
            row |= {"error": errors[0], "over_without_test": errors[0] / errors[1]}
        print(row, flush=True)
        runs.append(row)
    return {
        "seconds": WALL_SECONDS,
        "alarms": sum(row["alarms"] for row in runs),
        "worst_over_without_test": max(row.get("over_without_test", 0.0) for row in runs),
        "unchanged": runs,
    }


def clocks() -> dict[str, Any]:
    """Repeat the runs of `letters` with the stepped clock: the tracking error must be the same
    within their spread.
    """
    stored = FOLDER / "online_letters.json"
    if not stored.exists():
        raise SystemExit(
            "run the row `letters` first: the comparison needs its runs with the wall clock"
        )
    wall = [row["test"] for row in json.loads(stored.read_text())["runs"]["delan"]]
    stepped = [letter_run("delan", "stepped", seed)["test"] for seed in SEEDS]
    ratio = float(np.median(wall) / np.median(stepped))
    print(f"median with the wall clock over median with the stepped clock: {ratio:.3f}")
    return {"wall": wall, "stepped": stepped, "median_wall_over_stepped": ratio}


ROWS: dict[str, Callable[[], dict[str, Any]]] = {
    "letters": letters,
    "wam": wam,
    "endurance": endurance,
    "payload": payload,
    "clocks": clocks,
    "drift": drift,
    **{f"drift_wall_{robot}": partial(drift_wall, robot) for robot in UNCHANGED},
}


def main() -> None:
    for name in sys.argv[1:] or ROWS:
        if name not in ROWS:
            raise SystemExit(f"unknown benchmark {name!r}; available: {', '.join(ROWS)}")
        write_results(f"online_{name}", ROWS[name]())


if __name__ == "__main__":
    main()
