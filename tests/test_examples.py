"""The examples run as they stand."""

import subprocess
import sys
from pathlib import Path

import pytest

FOLDER = Path(__file__).parents[1] / "examples"
# A shorter fit of the same loop is in `learning/test_model_fit.py`.
LONG = {"five_bar"}


def examples():
    for path in sorted(FOLDER.glob("*.py")):
        marks = [pytest.mark.slow] if path.stem in LONG else []
        yield pytest.param(path, marks=marks, id=path.stem)


@pytest.mark.parametrize("path", examples())
def test_example(path, tmp_path):
    result = subprocess.run(
        [sys.executable, path], cwd=tmp_path, capture_output=True, text=True, timeout=300
    )
    assert result.returncode == 0, result.stderr
    assert result.stdout
    assert len(path.read_text().splitlines()) < 90
