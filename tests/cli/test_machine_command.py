"""`delan machine`: a missing part is listed with its use and remedy, and fails only if needed."""

import json
import os
import subprocess
import sys
import tomllib
from importlib import metadata
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from delan.cli.machine_command import EXTRAS, NEEDED, examine_machine
from delan.cli.main import app

PROJECT = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text())["project"]


def check_machine(*options: str) -> Result:
    return CliRunner().invoke(app, ["machine", *options], env={"COLUMNS": "80", "TERM": "dumb"})


def bare(requirement: str) -> str:
    """Return the package that a requirement names."""
    return requirement.split(">")[0].split("[")[0]


@pytest.fixture
def versions(monkeypatch):
    """Versions to report instead of the installed ones, by package; None: not installed."""
    replaced: dict[str, str | None] = {}
    installed = metadata.version

    def version(package: str) -> str:
        if package not in replaced:
            return installed(package)
        number = replaced[package]
        if number is None:
            raise metadata.PackageNotFoundError(package)
        return number

    monkeypatch.setattr(metadata, "version", version)
    return replaced


def test_the_check_knows_every_dependency():
    assert {bare(text) for text in PROJECT["dependencies"]} == set(NEEDED) - {"jaxlib"}
    extras = PROJECT["optional-dependencies"]
    declared = {
        bare(text): extra
        for extra, packages in extras.items()
        if extra not in ("dev", "docs")
        for text in packages
    }
    assert declared == {package: extra for package, (extra, _) in EXTRAS.items()}


def test_a_missing_extra_is_listed_with_its_command_and_is_no_failure(versions):
    versions |= {"viser": None, "h5py": None}
    shown = check_machine()
    assert shown.exit_code == 0, shown.output
    assert "pip install 'delan[view]'" in shown.stdout
    assert "pip install 'delan[logs]'" in shown.stdout
    assert "delan view, the page in the browser" in shown.stdout


@pytest.mark.parametrize(
    ("version", "found"),
    [(None, "not installed"), ("0.9.2", "0.9.2, but delan needs jax<0.11,>=0.10")],
)
def test_a_package_that_is_needed_is_a_failure_if_missing_or_of_another_version(
    versions, version, found
):
    versions |= {"jax": version}
    shown = check_machine()
    assert shown.exit_code == 1
    assert f"MISSING jax              {found}" in shown.stdout
    assert "pip install 'jax<0.11,>=0.10'" in shown.stdout


def test_json_holds_every_part(versions):
    versions |= {"mujoco": None, "casadi": None}
    shown = check_machine("--json")
    payload = json.loads(shown.stdout)
    assert shown.exit_code == 1
    assert set(payload) == {"ready", "missing", "delan", "python", "system", "parts"}
    assert payload["ready"] is False
    assert {"mujoco", "casadi"} <= set(payload["missing"])
    assert payload["delan"] == metadata.version("delan")
    for part in payload["parts"]:
        assert set(part) == {"name", "group", "there", "needed", "found", "use", "remedy"}
        assert part["there"] or (part["use"] and part["remedy"]), part["name"]
    parts = {part["name"]: part for part in payload["parts"]}
    assert parts["numpy"]["found"] == metadata.version("numpy")
    assert parts["casadi"]["remedy"].endswith("pip install 'delan[casadi]'")
    for name in (
        "JAX backend",
        "C compiler",
        "cores",
        "SCHED_FIFO",
        "cores awake",
        "shared memory",
        "browser",
    ):
        assert name in parts


def test_a_machine_without_compiler_and_cache_is_ready(monkeypatch, tmp_path):
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


def test_a_compiler_that_compiles_nothing_is_detected(monkeypatch, tmp_path):
    broken = tmp_path / "broken"
    broken.write_text("#!/bin/sh\necho 'no licence' >&2\nexit 1\n")
    broken.chmod(0o755)
    monkeypatch.setenv("CC", str(broken))
    part = next(part for part in examine_machine().parts if part.name == "C compiler")
    assert not part.there
    assert part.found == f"{broken} compiles nothing: no licence"


@pytest.mark.skipif(sys.platform != "linux", reason="needs the scheduler calls of Linux")
def test_the_check_of_priority_leaves_the_priority_as_it_was():
    before = os.sched_getscheduler(0), os.sched_getparam(0).sched_priority, os.sched_getaffinity(0)
    examine_machine()
    assert (
        os.sched_getscheduler(0),
        os.sched_getparam(0).sched_priority,
        os.sched_getaffinity(0),
    ) == before


def test_the_check_works_where_the_heavy_libraries_are_broken():
    code = (
        "import sys\n"
        "for name in ('jax', 'numpy', 'matplotlib', 'mujoco'): sys.modules[name] = None\n"
        "sys.argv = ['delan', 'machine', '--json']\nfrom delan.cli.main import app\napp()"
    )
    shown = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert shown.returncode == 1, shown.stderr
    assert {"JAX backend", "figures"} <= set(json.loads(shown.stdout)["missing"])


@pytest.mark.parametrize(
    ("words", "offered"),
    [
        ("delan mac", {"machine"}),
        ("delan fit --mod", {"--model"}),
        ("delan online two-link --clock ", {"wall", "stepped"}),
    ],
)
def test_the_shell_completes_commands_options_and_choices(words, offered):
    code = "import sys; sys.argv[0] = 'delan'; from delan.cli.main import app; app()"
    typed = {
        "_DELAN_COMPLETE": "complete_bash",
        "COMP_WORDS": words,
        "COMP_CWORD": str(words.count(" ")),
    }
    shown = subprocess.run(
        [sys.executable, "-c", code],
        env=os.environ | typed,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert shown.returncode == 0, shown.stderr
    assert set(shown.stdout.split()) == offered
