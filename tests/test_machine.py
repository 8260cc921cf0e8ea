"""`delan doctor`: what the machine lacks is told with its use and its command, and counts only if it is needed."""

import json
import os
import subprocess
import sys
import tomllib
from importlib import metadata
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from delan.interfaces.cli import app
from delan.interfaces.machine import EXTRAS, NEEDED, examine_machine

PROJECT = tomllib.loads((Path(__file__).parents[1] / "pyproject.toml").read_text())["project"]


def doctor(*options: str) -> Result:
    return CliRunner().invoke(app, ["doctor", *options], env={"COLUMNS": "80", "TERM": "dumb"})


def bare(requirement: str) -> str:
    """The package that a requirement names."""
    return requirement.split(">")[0].split("[")[0]


@pytest.fixture
def versions(monkeypatch):
    """Versions to tell instead of the installed ones, by package; None: not installed."""
    told: dict[str, str | None] = {}
    true = metadata.version

    def version(package: str) -> str:
        found = told[package] if package in told else true(package)
        if found is None:
            raise metadata.PackageNotFoundError(package)
        return found

    monkeypatch.setattr(metadata, "version", version)
    return told


def test_it_asks_for_what_the_project_asks_for():
    assert {bare(one) for one in PROJECT["dependencies"]} == set(NEEDED) - {"jaxlib"}
    extras = PROJECT["optional-dependencies"]
    declared = {
        bare(one): extra for extra, packages in extras.items() if extra not in ("dev", "docs") for one in packages
    }
    assert declared == {package: extra for package, (extra, _) in EXTRAS.items()}


def test_a_missing_extra_is_told_with_its_command_and_is_no_failure(versions):
    versions |= {"viser": None, "h5py": None}
    shown = doctor()
    assert shown.exit_code == 0, shown.output
    assert "pip install 'delan[view]'" in shown.stdout
    assert "pip install 'delan[logs]'" in shown.stdout
    assert "delan view, the page in the browser" in shown.stdout
    assert "All that delan fit, online and export need is there." in shown.stdout


@pytest.mark.parametrize(
    ("version", "told"), [(None, "not installed"), ("0.9.2", "0.9.2, which delan does not go with: jax<0.11,>=0.10")]
)
def test_a_package_that_is_needed_is_a_failure_if_missing_or_of_another_version(versions, version, told):
    versions |= {"jax": version}
    shown = doctor()
    assert shown.exit_code == 1
    assert f"MISSING jax              {told}" in shown.stdout
    assert "pip install 'jax<0.11,>=0.10'" in shown.stdout
    assert "cannot work here: jax missing" in shown.stdout


def test_json_tells_the_same(versions):
    versions |= {"mujoco": None, "casadi": None}
    shown = doctor("--json")
    told = json.loads(shown.stdout)
    assert shown.exit_code == 1
    assert set(told) == {"ready", "missing", "delan", "python", "system", "parts"}
    assert told["ready"] is False
    assert {"mujoco", "casadi"} <= set(told["missing"])
    assert told["delan"] == metadata.version("delan")
    for part in told["parts"]:
        assert set(part) == {"name", "group", "there", "needed", "found", "use", "remedy"}
        assert part["there"] or (part["use"] and part["remedy"]), part["name"]
    parts = {part["name"]: part for part in told["parts"]}
    assert parts["numpy"]["found"] == metadata.version("numpy")
    assert parts["casadi"]["remedy"].endswith("pip install 'delan[casadi]'")
    for name in ("JAX backend", "C compiler", "cores", "SCHED_FIFO", "cores awake", "shared memory", "browser"):
        assert name in parts


def test_a_machine_without_compiler_and_cache_still_learns(monkeypatch, tmp_path):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("CC", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    machine = examine_machine()
    parts = {part.name: part for part in machine.parts}
    assert machine.ready
    assert parts["C compiler"].found == "no cc, gcc or clang"
    assert "cannot be written" in parts["code cache"].found
    assert not any(parts[name].there for name in ("C compiler", "code cache"))


def test_a_compiler_that_compiles_nothing_is_found_out(monkeypatch, tmp_path):
    broken = tmp_path / "broken"
    broken.write_text("#!/bin/sh\necho 'no licence' >&2\nexit 1\n")
    broken.chmod(0o755)
    monkeypatch.setenv("CC", str(broken))
    part = next(part for part in examine_machine().parts if part.name == "C compiler")
    assert not part.there
    assert part.found == f"{broken} compiles nothing: no licence"


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells how a thread is scheduled")
def test_the_question_for_priority_leaves_none_behind():
    before = os.sched_getscheduler(0), os.sched_getparam(0).sched_priority, os.sched_getaffinity(0)
    examine_machine()
    assert (os.sched_getscheduler(0), os.sched_getparam(0).sched_priority, os.sched_getaffinity(0)) == before


def test_it_answers_where_the_heavy_libraries_are_broken():
    code = (
        "import sys\nfor name in ('jax', 'numpy', 'matplotlib', 'mujoco'): sys.modules[name] = None\n"
        "sys.argv = ['delan', 'doctor', '--json']\nfrom delan.interfaces.cli import main\nmain()"
    )
    shown = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert shown.returncode == 1, shown.stderr
    assert {"JAX backend", "figures"} <= set(json.loads(shown.stdout)["missing"])


@pytest.mark.parametrize(
    ("words", "offered"),
    [
        ("delan do", {"doctor"}),
        ("delan fit --mod", {"--model"}),
        ("delan online two-link --clock ", {"wall", "stepped"}),
    ],
)
def test_the_shell_completes_commands_options_and_choices(words, offered):
    code = "import sys; sys.argv[0] = 'delan'; from delan.interfaces.cli import main; main()"
    typed = {"_DELAN_COMPLETE": "complete_bash", "COMP_WORDS": words, "COMP_CWORD": str(words.count(" "))}
    shown = subprocess.run(
        [sys.executable, "-c", code], env=os.environ | typed, capture_output=True, text=True, timeout=60
    )
    assert shown.returncode == 0, shown.stderr
    assert set(shown.stdout.split()) == offered
