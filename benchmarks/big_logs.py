"""Memory and time that `delan check` and the first half of `delan fit` need for a log of 2 GB.

    python -m benchmarks.big_logs [--gigabytes 2] [--seconds 60] [folder] [file] [joined]

A simulated WAM with friction and noise on all channels is logged at 500 Hz: `folder` is many files
of some minutes each, half of the bytes CSV, half npz; `file` is one npz file; `joined` is two, read
side by side (`--join`). Child processes read the whole log (`read_log`), check it (`delan check`),
and read and prepare it as `delan fit` does: check, choice of the cut-off within the given seconds,
samples. Peak memory is the child's (`ru_maxrss`). Samples are missing near the end of the log, and
the check must find that. Writes to `benchmarks/results`.
"""

import argparse
import json
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import jax
import numpy as np

from delan.logs.option_text import options_path
from delan.models.rigid_body import RigidBody
from delan.motions.cosines import cosines
from delan.robots.arms import WAM7

from .results import write_results

# Sampling rate [Hz] and duration [s] of a motion.
RATE = 500.0
SECONDS = 120.0
MOTIONS = 4  # different ones, which are repeated in turn
GAP_ROWS = 100  # rows missing in the last motion

Rows = dict[str, Any]

READ = """
from delan.logs.reading import read_log
print(len(read_log(sys.argv[1], sound=False).t), "rows")
"""
CHECK = """
from delan.cli.main import app
app(["check", sys.argv[1], "--json"], standalone_mode=False)
"""
PREPARE = """
import jax
from pathlib import Path
from delan.logs.reading import read_log
from delan.logs.preparation import prepare
from delan.cli.log_options import MEMORY, read_options
from delan.logs.doctor import check_up
from delan.learning.cutoff import CutoffSearch, choose_preparation
recording, findings = check_up(read_log(sys.argv[1], read_options(memory=MEMORY)))
search = CutoffSearch(jax.random.key(0), seconds=float(sys.argv[2]))
choice = choose_preparation(recording, search)
done = prepare(recording, choice.settings).preparation
rows = "all" if done.excerpt is None else done.excerpt.summary
print(f"used {rows}; cut-off {choice.settings.cutoff:.3g} Hz, {done.samples} samples")
"""
USED = """
import resource
used = resource.getrusage(resource.RUSAGE_SELF)
print(used.ru_utime + used.ru_stime, used.ru_maxrss, file=sys.stderr)
"""
STEPS = {"read_log": READ, "check": CHECK, "prepare": PREPARE}


def logged_motion(number: int) -> Rows:
    """Return cosines with their torques, friction, and noise on every channel."""
    reference = cosines(WAM7.limits, key=jax.random.key(number), share=0.5, duration=SECONDS)
    motion = reference.sample(1 / RATE)
    tau = RigidBody.from_urdf(WAM7.urdf()).rows(motion.q, motion.qd, motion.qdd).total
    tau = tau + 0.1 * tau.std(axis=0) * np.tanh(motion.qd / 0.02)
    noise = np.random.default_rng(number).standard_normal((3, *tau.shape))
    return {
        "t": motion.t,
        "q": motion.q + 2e-5 * noise[0],
        "qd": motion.qd + 0.01 * motion.qd.std(axis=0) * noise[1],
        "tau": tau + 0.01 * tau.std(axis=0) * noise[2],
    }


def with_gap(rows: Rows) -> Rows:
    """Return the motion with rows missing in its last quarter."""
    at = 3 * len(rows["t"]) // 4
    return {
        name: np.delete(values, np.s_[at : at + GAP_ROWS], axis=0) for name, values in rows.items()
    }


def write_csv(path: Path, rows: Rows) -> None:
    names = [
        "t",
        *(f"{name}{joint}" for name in ("q", "qd", "tau") for joint in range(rows["q"].shape[1])),
    ]
    table = np.column_stack([rows[name] for name in ("t", "q", "qd", "tau")])
    np.savetxt(path, table, "%.9g", delimiter=",", header=",".join(names), comments="")


def write_npz(path: Path, rows: Rows) -> None:
    np.savez(path, **rows)


def write_folder(folder: Path, size: float) -> Path:
    """Write half of the bytes as CSV, half as npz; repeated files are copied, which is faster."""
    motions = [logged_motion(number) for number in range(MOTIONS)]
    folder.mkdir()
    for suffix, write in (("csv", write_csv), ("npz", write_npz)):
        written = 0
        number = 0
        while written < size / 2:
            path = folder / f"{suffix}_{number:04}.{suffix}"
            if number < MOTIONS:
                write(path, motions[number])
            else:
                shutil.copyfile(folder / f"{suffix}_{number % MOTIONS:04}.{suffix}", path)
            written += path.stat().st_size
            number += 1
    write_npz(folder / "the_last.npz", with_gap(motions[0]))
    return folder


def write_file(path: Path, size: float) -> Path:
    """Write one npz file in which each motion is a trajectory."""
    motions = [logged_motion(number) for number in range(MOTIONS)]
    count = int(size / sum(values.nbytes for values in motions[0].values()))
    runs = [*(motions[number % MOTIONS] for number in range(count)), with_gap(motions[0])]
    labels = np.repeat(np.arange(len(runs)), [len(run["t"]) for run in runs])
    columns: Rows = {name: np.concatenate([run[name] for run in runs]) for name in runs[0]}
    file = path.with_suffix(".npz")
    np.savez(file, **columns, trajectory=labels)
    return file


def write_joined(folder: Path, size: float) -> Path:
    """Write torques and motion as two files, with the option that joins them beside the first."""
    whole = write_file(folder, size)
    folder.mkdir()
    with np.load(whole) as columns:
        np.savez(folder / "torques.npz", tau=columns["tau"])
        motion: Rows = {name: columns[name] for name in ("t", "q", "qd", "trajectory")}
        np.savez(folder / "motion.npz", **motion)
    whole.unlink()
    log = folder / "motion.npz"
    options_path(log).write_text('join = ["torques.npz"]\n')
    return log


LOGS: dict[str, Callable[[Path, float], Path]] = {
    "folder": write_folder,
    "file": write_file,
    "joined": write_joined,
}


def _written(name: str, path: Path, size: float) -> Path:
    """Write the log in its own process: on Linux a child inherits the peak memory of its parent."""
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as writer:
        return writer.submit(LOGS[name], path, size).result()


def measure(step: str, log: Path, seconds: float) -> dict[str, Any]:
    """Run a step in its own process; return wall and processor time, peak memory and output."""
    script = (
        "import sys\ntry:"
        + STEPS[step].replace("\n", "\n    ")
        + "\nexcept SystemExit: pass"
        + USED
    )
    began = time.perf_counter()
    ran = subprocess.run(
        [sys.executable, "-c", script, str(log), str(seconds)],
        capture_output=True,
        text=True,
        check=False,
    )
    if ran.returncode:
        raise SystemExit(f"{step} {log}: {ran.stderr}")
    processor, kilobytes = ran.stderr.split()[-2:]
    result: dict[str, Any] = {
        "seconds": time.perf_counter() - began,
        "processor_seconds": float(processor),
        "peak_megabytes": int(kilobytes) * 1024 / 1e6,
    }
    if step != "check":
        return {**result, "told": ran.stdout.strip()}
    check = json.loads(ran.stdout)
    findings = check["findings"]
    return {
        **result,
        "rows": check["rows"],
        "gaps": [finding["text"] for finding in findings if finding["kind"] == "gap"],
        "told": [finding["text"] for finding in findings if finding["kind"] == "excerpt"],
        "verdict": check["verdict"],
    }


def _measured(name: str, log: Path, seconds: float) -> dict[str, Any]:
    """Measure every step for one log."""
    files = list(log.iterdir()) if log.is_dir() else [log]
    if name == "joined":
        files = list(log.parent.iterdir())
    results: dict[str, Any] = {
        "bytes": sum(file.stat().st_size for file in files),
        "files": len(files),
    }
    for step in STEPS:
        result = measure(step, log, seconds)
        results[step] = result
        messages = result["gaps"] + result["told"] if step == "check" else [result["told"]]
        times = f"{result['seconds']:.0f} s, {result['processor_seconds']:.0f} s of a core"
        print(f"{name}, {step}: peak {result['peak_megabytes']:.0f} MB, {times}")
        print(f"  {'; '.join(messages)}")
        sys.stdout.flush()
    return results


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("logs", nargs="*", default=list(LOGS), metavar="LOG", help=", ".join(LOGS))
    parser.add_argument("--gigabytes", type=float, default=2.0)
    parser.add_argument(
        "--seconds", type=float, default=60.0, help="time for the choice of the cut-off"
    )
    parser.add_argument(
        "--folder",
        type=Path,
        default=Path(tempfile.gettempdir()),
        help="where the logs are written; needs a disk with enough room",
    )
    options = parser.parse_args()
    if shutil.disk_usage(options.folder).free < 1.5e9 * options.gigabytes:
        raise SystemExit(
            f"{options.folder} has no room for {options.gigabytes} GB of logs; give a --folder"
        )
    for name in options.logs:
        with tempfile.TemporaryDirectory(dir=options.folder) as folder:
            log = _written(name, Path(folder) / name, 1e9 * options.gigabytes)
            results = _measured(name, log, options.seconds)
        write_results(f"big_logs_{name}", {"gigabytes": options.gigabytes, **results})


if __name__ == "__main__":
    main()
