"""Results of benchmarks: a small JSON file each, with the versions and the machine."""

import json
import os
import platform
from collections.abc import Mapping
from importlib.metadata import version
from pathlib import Path
from typing import Any

from delan.storage import write_whole

FOLDER = Path(__file__).parent / "results"


def write_results(name: str, results: Mapping[str, Any]) -> None:
    """Write `benchmarks/results/NAME.json`."""
    FOLDER.mkdir(exist_ok=True)
    versions = {package: version(package) for package in ("delan", "jax", "equinox", "numpy")}
    machine = {
        "cores": os.cpu_count(),
        "processor": platform.machine(),
        "python": platform.python_version(),
    }
    path = FOLDER / f"{name}.json"
    text = json.dumps({**results, "versions": versions, "machine": machine}, indent=1) + "\n"
    write_whole(path, lambda file: file.write(text.encode()))
    print(f"written to {path.relative_to(FOLDER.parent.parent)}")


def read_results(name: str) -> dict[str, Any]:
    """Return what `write_results` wrote; empty if there is no such file."""
    path = FOLDER / f"{name}.json"
    return json.loads(path.read_text("utf-8")) if path.exists() else {}
