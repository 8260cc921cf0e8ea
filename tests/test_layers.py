"""The rooms and the directions of the arrows between them, read from the source."""

import ast
import re
from pathlib import Path

import pytest

import delan

ROOT = Path(__file__).parents[1] / "src" / "delan"
LAYERS = [
    {"errors", "text_file", "log_rows"},
    {"joints"},
    {"mechanics", "logs", "motions"},
    {"models"},
    {"robots"},
    {"model_header", "array_file"},
    {"storage"},
    {"simulation", "solvers"},
    {"identification"},
    {"learning"},
    {"deploy"},
    {"online", "figures"},
    {"paper"},
    {"report"},
    {"view"},
    {"cli"},
]
HOMES = {
    "pinocchio": {"models/rigid_body.py"},
    # The second is copied beside exported robots, where it runs without delan.
    "mujoco": {"robots/mujoco_robot.py", "deploy/simulator/load.py"},
    "gymnasium": {"simulation/environment.py"},
    "pybullet": {"robots/pybullet_robot.py"},
    "optax": {"solvers/adam.py"},
    "casadi": {"deploy/casadi_export.py"},
    "viser": {"view/server.py"},
}
"""Libraries that live in one place, so that another could take theirs."""


def room(path: Path) -> str:
    relative = path.relative_to(ROOT)
    return relative.parts[0].removesuffix(".py")


def imports(path: Path) -> set[str]:
    """Absolute names of what a file imports, at its top or inside functions; not what only the type
    checker sees.
    """
    tree = ast.parse(path.read_text())
    hidden = {
        id(node)
        for branch in ast.walk(tree)
        if isinstance(branch, ast.If) and "TYPE_CHECKING" in ast.unparse(branch.test)
        for node in ast.walk(branch)
    }
    names = set()
    package = ["delan", *path.relative_to(ROOT).parts[:-1]]
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and (
            id(node) not in hidden or path.parent.name != "cli"
        ):
            start = package[: len(package) - node.level + 1] if node.level else []
            module = ".".join([*start, *([node.module] if node.module else [])])
            names |= {f"{module}.{alias.name}" for alias in node.names}
    return names


def level(name: str) -> int:
    return next(i for i, layer in enumerate(LAYERS) if name in layer)


FILES = [path for path in sorted(ROOT.rglob("*.py")) if path != ROOT / "__init__.py"]


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(ROOT)))
def test_imports_point_down(path):
    for name in imports(path):
        parts = name.split(".")
        if parts[0] == "delan" and len(parts) > 1 and parts[1] != room(path):
            assert level(parts[1]) < level(room(path)), (
                f"{path.name} imports {name}, which is not below it"
            )


@pytest.mark.parametrize("library", HOMES)
def test_libraries_stay_in_their_homes(library):
    users = {
        str(path.relative_to(ROOT))
        for path in FILES
        if any(n.split(".")[0] == library for n in imports(path))
    }
    assert users == HOMES[library]


def test_nothing_imports_the_cli():
    users = [
        path
        for path in FILES
        if room(path) != "cli" and any("cli" in name for name in imports(path))
    ]
    assert users == []


def test_matplotlib_draws_only_where_figures_are_made():
    users = {
        room(path)
        for path in FILES
        if any(name.split(".")[0] == "matplotlib" for name in imports(path))
    }
    assert users <= {"figures", "report", "paper"}


def test_every_public_name_is_there():
    assert len(delan.__all__) <= 60
    for name in delan.__all__:
        assert getattr(delan, name).__doc__
    with pytest.raises(AttributeError, match="fti"):
        delan.fti  # noqa: B018  # pyright: ignore
    stub = ast.parse((ROOT / "__init__.pyi").read_text())
    imported = [node for node in stub.body if isinstance(node, ast.ImportFrom)]
    declared = {alias.name for node in imported for alias in node.names}
    assert declared == set(delan.__all__)


def test_no_file_and_no_public_class_has_a_namesake():
    stems: dict[str, list[Path]] = {}
    classes: dict[str, list[Path]] = {}
    for path in FILES:
        if path.stem != "__init__":
            stems.setdefault(path.stem, []).append(path)
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                classes.setdefault(node.name, []).append(path)
    assert {name: paths for name, paths in stems.items() if len(paths) > 1} == {}
    assert {name: paths for name, paths in classes.items() if len(paths) > 1} == {}


def test_imports_inside_the_fitting_rooms_are_at_most_eight_deep():
    names = {}
    for path in FILES:
        if room(path) in ("learning", "solvers"):
            names["delan." + ".".join(path.relative_to(ROOT).with_suffix("").parts)] = path
    used = {}
    for name, path in names.items():
        # A name imported from a module, or a module imported from a room.
        candidates = imports(path) | {other.rpartition(".")[0] for other in imports(path)}
        used[name] = candidates & set(names) - {name}

    def depth(name: str) -> int:
        return 1 + max((depth(other) for other in used[name]), default=0)

    deepest = max(names, key=depth)
    assert depth(deepest) <= 8, deepest


# The package and the rooms whose public names stand in their `__init__`.
DOORS = {"delan"} | {
    f"delan.{room}" for room in ("learning", "models", "online", "paper", "robots", "simulation")
}


def test_guides_and_examples_import_from_the_public_doors_only():
    top = ROOT.parents[1]
    texts = [*top.glob("examples/*.py"), *top.glob("docs/**/*.md"), top / "README.md"]
    deep = {}
    for path in texts:
        found = re.findall(r"^\s*(?:from|import) (delan[\w.]*)", path.read_text(), re.MULTILINE)
        found = set(found) - DOORS
        if found:
            deep[path.name] = found
    assert deep == {}
