"""The public names of `delan.online`."""

import ast
from pathlib import Path

import pytest

from delan import online

STUB = Path(online.__file__).with_name("__init__.pyi")
ROOT = Path(__file__).parents[2]
ALLOWED = {"delan", "delan.online", "delan.robots"}


def test_every_name_of_the_stub_is_public():
    imports = [
        node for node in ast.parse(STUB.read_text()).body if isinstance(node, ast.ImportFrom)
    ]
    declared = {alias.name for node in imports for alias in node.names}
    assert declared == set(online.__all__)


@pytest.mark.parametrize("name", online.__all__)
def test_every_public_name_is_documented(name):
    assert len((getattr(online, name).__doc__ or "").strip()) > 20


@pytest.mark.parametrize("example", ["online_two_link", "your_own_robot"])
def test_examples_import_public_modules_only(example):
    tree = ast.parse((ROOT / "examples" / f"{example}.py").read_text())
    for node in ast.walk(tree):
        names = []
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            names = [str(node.module)]
        for name in names:
            assert name in ALLOWED or not name.startswith("delan"), name
