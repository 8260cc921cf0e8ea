"""Hostile files and signals, a few in every run and thousands in the long one.

`python -m tests.hostile models|logs|folders|signals --count N` runs more and says what broke.
"""

import subprocess
import sys

import pytest

from delan import storage
from tests.hostile import crew, models


def attacked(attack: str, count: int, seed: int) -> str:
    """Run an attack in a process of its own, where memory is its own, too; return its report."""
    words = [sys.executable, "-m", "tests.hostile", attack, "--count", str(count)]
    run = subprocess.run([*words, "--seed", str(seed)], capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stdout + run.stderr[-2000:]
    return run.stdout


@pytest.mark.parametrize(("attack", "count"), [("models", 15), ("logs", 30), ("folders", 30)])
def test_hostile_files_are_answered_or_refused(attack, count):
    assert "0 faults" in attacked(attack, count, seed=0)


ON_LINUX = pytest.mark.skipif(
    sys.platform != "linux", reason="processes and shared memory are looked up as on Linux"
)


@ON_LINUX
def test_no_signal_leaves_anything_behind():
    assert "0 faults" in attacked("signals", 2, seed=3)


@pytest.mark.slow
@ON_LINUX
def test_no_signal_of_many_leaves_anything_behind():
    assert "0 faults" in attacked("signals", 200, seed=1)


@pytest.mark.slow
@pytest.mark.parametrize("attack", ["models", "logs", "folders"])
def test_twenty_thousand_hostile_files_are_answered_or_refused(attack):
    assert "20000 cases, 0 faults" in attacked(attack, 20_000, seed=1)


def test_a_model_file_that_is_rewritten_unchanged_is_no_attack(tmp_path):
    """Else no change of such a file would reach what stands behind the checks of its arrays."""
    for kind, model in models.originals().items():
        path = tmp_path / f"{kind}.delan"
        storage.save(model, path, provenance=models.PROVENANCE)
        models.rewritten(path, *storage.read_arrays(path, storage.FORMAT))
        storage.load(path)


def test_a_case_that_kills_its_process_is_a_fault_and_the_others_are_tried():
    outcome = crew.attack("trap", range(3), seed=7, workers=1)
    assert outcome.cases == 3
    assert outcome.faults == ["seed 7 case 1: the process died with exit code -9"]
