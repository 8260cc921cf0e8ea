"""Where benchmarks put their numbers: one small JSON file each, with the versions and the machine they came from."""

import json
import os
import platform
from collections.abc import Mapping
from importlib.metadata import version
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).parent / "results"


def write_results(name: str, results: Mapping[str, Any]) -> None:
    """Write `benchmarks/results/NAME.json`."""
    FOLDER.mkdir(exist_ok=True)
    versions = {package: version(package) for package in ("delan", "jax", "equinox", "numpy")}
    machine = {"cores": os.cpu_count(), "processor": platform.machine(), "python": platform.python_version()}
    path = FOLDER / f"{name}.json"
    path.write_text(json.dumps({**results, "versions": versions, "machine": machine}, indent=1) + "\n")
    print(f"written to {path.relative_to(FOLDER.parent.parent)}")
