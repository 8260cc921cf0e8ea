"""What README and documentation say exists: names, commands, options, files."""

import ast
import json
import re
import shlex
from importlib.util import find_spec, module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest
import typer.main

import delan
from delan.cli.main import app
from delan.paper.cells import Cell, Store, Stored
from delan.paper.claims import linear_interval, log_interval

ROOT = Path(__file__).parents[1]
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]
COMMANDS = typer.main.get_command(app).commands  # pyright: ignore[reportAttributeAccessIssue]
page = pytest.mark.parametrize("path", PAGES, ids=lambda path: str(path.relative_to(ROOT)))


def blocks(path: Path, language: str) -> list[str]:
    """The fenced blocks of a language; of none: those of commands."""
    fenced = re.findall(r"^```(\S*)[^\n]*\n(.*?)^```$", path.read_text(), re.DOTALL | re.MULTILINE)
    return [text for name, text in fenced if name == language]


def commands(path: Path) -> list[list[str]]:
    """The words of each `delan …` in blocks of commands."""
    lines = [line for block in blocks(path, "") for line in block.splitlines()]
    typed = [
        shlex.split(line.removeprefix(".venv/bin/"), comments=True)
        for line in lines
        if "delan " in line[:16]
    ]
    return [words for words in typed if words[:1] == ["delan"]]


@page
def test_commands_and_options_exist(path):
    for words in commands(path):
        command = COMMANDS[words[1]]
        known = {
            option
            for parameter in command.params
            for option in (*parameter.opts, *parameter.secondary_opts)
        }
        for word in words[2:]:
            if word.startswith("-") and not word[1:2].isdigit():
                assert word.split("=")[0] in known, f"`{' '.join(words)}`: {words[1]} has no {word}"


@page
def test_python_uses_names_that_exist(path):
    for block in blocks(path, "python"):
        for node in ast.walk(ast.parse(block)):
            if (
                isinstance(node, ast.Attribute)
                and isinstance(node.value, ast.Name)
                and node.value.id == "delan"
            ):
                assert hasattr(delan, node.attr) or find_spec(f"delan.{node.attr}"), (
                    f"delan.{node.attr}"
                )
            if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("delan"):
                assert node.module is not None
                # A subpackage is no attribute before it is imported.
                module = __import__(node.module, fromlist=[alias.name for alias in node.names])
                assert all(hasattr(module, alias.name) for alias in node.names), ast.unparse(node)


@page
def test_files_that_are_pointed_to_exist(path):
    text = path.read_text()
    for target in re.findall(r"\]\(([^)#]+)\)", text):
        if "://" not in target and not target.startswith("_"):
            assert (path.parent / target).exists(), target
    for target in re.findall(r"\{doc\}`([^`<]+)`", text):
        assert (path.parent / f"{target}.md").exists(), target


@pytest.mark.parametrize("name", delan.__all__)
def test_every_public_name_says_what_it_is(name):
    assert len((getattr(delan, name).__doc__ or "").strip()) > 20


def script(path: Path) -> ModuleType:
    """Import a script of the documentation."""
    spec = spec_from_file_location(path.stem, path)
    assert spec is not None
    assert spec.loader is not None
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


TABLE = script(ROOT / "docs" / "reproduction" / "table.py")


def test_the_page_shows_the_runs_as_they_are_stored():
    text = (ROOT / "docs" / "reproduction.md").read_text()
    assert text == TABLE.page(), "`python docs/reproduction/table.py` writes the page again"
    for run in TABLE.RUNS:
        stored = json.loads((ROOT / "docs" / "reproduction" / run / "claims.json").read_text())
        assert all(claim["measured"] in text for claim in stored)


STORED = script(ROOT / "docs" / "reproduction" / "stored_cells.py")


def test_cells_of_a_run_can_be_taken_up_again_with_files_elsewhere(tmp_path, monkeypatch):
    monkeypatch.setattr(STORED, "HERE", tmp_path / "docs")
    (tmp_path / "docs" / "usual").mkdir(parents=True)
    here = {"letters": "uci=/here/letters.npz", "data": "/here/data"}
    there = {"letters": "uci=there.npz", "data": "there"}

    def cells(letters: str, data: str) -> list[Cell]:
        return [
            Cell.of("offline-letters", "delan", seed=1, letters=4, alphabet=letters),
            Cell.of("offline-cosines", "delan", seed=0, robot="real", file=f"{data}/wam.npz"),
            Cell.of("noise", "delan", seed=2, variance=1e-4),
        ]

    before = Store(tmp_path / "before" / "cells", code="a1")
    for number, cell in enumerate(cells(**here)):
        before.put(Stored(cell, {"test": number / 3}, "a1", 2.0, {"jax": "0"}))
    STORED.pack("usual", tmp_path / "before")
    assert "here" not in (tmp_path / "docs" / "usual" / "cells.json").read_text()
    STORED.unpack("usual", tmp_path / "after", **there)
    after = Store(tmp_path / "after" / "cells", code="a1")
    for number, cell in enumerate(cells(**there)):
        stored = after.get(cell)
        assert stored is not None
        assert stored.result == {"test": number / 3}


def test_a_number_of_one_seed_is_looked_for_in_the_interval_of_three():
    seeds = [1.0, 3.0, 1.3]
    interval = list(linear_interval(np.array(seeds)))
    assert all(STORED._among(seed, interval) for seed in seeds)
    geometric = list(log_interval(np.array(seeds)))
    assert all(STORED._among(seed, geometric) for seed in seeds)
    assert not STORED._among(1.300001, geometric)


def test_a_run_is_stored_with_the_code_of_each_experiment(tmp_path, monkeypatch):
    monkeypatch.setattr(TABLE, "HERE", tmp_path / "docs")
    (tmp_path / "docs").mkdir()
    for name, code in (("noise", "a1"), ("tuning", "b2"), ("noise", "c3")):
        results = tmp_path / code
        (results / "figures").mkdir(parents=True)
        (results / "figures" / f"{name}-{code}.png").touch()
        facts = {
            "letters": "own",
            "cells": 4,
            "seeds": 2,
            "core_seconds": 8.0,
            "failed": 0,
            "missing": 3,
            "codes": [code],
            "figures": {f"{name}-{code}": "Errors."},
        }
        late = {**facts, "failed": 1}
        (results / "run.json").write_text(json.dumps({name: facts, "late": late}))
        claim = {"experiment": name, "claim": f"A claim of {code}.", "asked": "1", "ours": False}
        claim |= {"measured": "2", "seeds": 2, "holds": "yes", "remark": ""}
        (results / "claims.json").write_text(json.dumps([claim, {**claim, "experiment": "late"}]))
        TABLE.store("usual", results)
    text = TABLE.section("usual")
    assert "`c3`" in text
    assert "| 4 of 7 | 2 |" in text
    assert "`b2`" in text
    assert "`a1`" not in text
    assert "late" not in text
    assert "✓ holds: 2" in text
    figures = sorted(path.name for path in (tmp_path / "docs" / "usual").glob("*.png"))
    assert figures == ["noise-c3.png", "tuning-b2.png"]


def test_the_picture_of_the_rooms_is_of_the_imports_as_they_are():
    drawing = script(ROOT / "docs" / "extensions" / "arrows.py")
    picture = (ROOT / "docs" / "_arrows.svg").read_text()
    assert drawing.described(drawing.arrows()) in picture, (
        "imports have changed: `make docs` draws the picture anew"
    )
