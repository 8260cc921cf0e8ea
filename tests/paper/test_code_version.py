"""The version of the code of an experiment: what changes it, and what does not."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from delan.paper import code_version as versions
from delan.paper.cells import Size, Store, Stored
from delan.paper.code_version import code_version, sources
from delan.paper.reproduction import EXPERIMENTS

FILES = {
    "__init__.py": "",
    "paper/__init__.py": "",
    "paper/toss.py": '''"""A toss."""

from ..mechanics import fall
from .tools import draw_line, halved
from .tools import words as words_of

REMARK = "none"


def run(cell):
    """Compute."""
    # By halves.
    return halved(fall.height(cell)) + STEP


def draw(results):
    return draw_line(results)


STEP = 2
''',
    "paper/tools.py": """HALF = 0.5
COLOUR = "red"


def halved(x):
    return HALF * x


def draw_line(x):
    return COLOUR


def words(x):
    return str(x)
""",
    "mechanics/__init__.py": "",
    "mechanics/fall.py": """def height(t):
    from .gravity import G
    return G * t**2 / 2


def unused():
    return 0
""",
    "mechanics/gravity.py": "G = 9.81\n",
    "mechanics/kernel.c": "int one;\n",
    "logs/__init__.py": "",
    "logs/reading.py": "x = 1\n",
}

# File, text in it, and what it becomes.
WITHOUT_INFLUENCE = {
    "docstring": ("paper/toss.py", '"""Compute."""', '"""Compute a toss\n\n    of a ball."""'),
    "comment": ("paper/toss.py", "# By halves.", "# By two equal parts."),
    "figure": ("paper/toss.py", "draw_line(results)", "draw_line(results[0])"),
    "remark": ("paper/toss.py", '"none"', '"measured"'),
    "what a figure uses": ("paper/tools.py", '"red"', '"blue"'),
    "what nothing uses": ("paper/tools.py", "str(x)", "repr(x)"),
    "another module": ("logs/reading.py", "x = 1", "x = 2"),
}
WITH_INFLUENCE = {
    "run itself": ("paper/toss.py", "+ STEP", "- STEP"),
    "a constant": ("paper/toss.py", "STEP = 2", "STEP = 3"),
    "a function that it calls": ("paper/tools.py", "HALF * x", "x / HALF"),
    "a constant of that function": ("paper/tools.py", "HALF = 0.5", "HALF = 0.51"),
    "a module outside": ("mechanics/fall.py", "t**2", "t**3"),
    "anything in it": ("mechanics/fall.py", "return 0", "return 1"),
    "what it imports inside a function": ("mechanics/gravity.py", "9.81", "9.82"),
    "C code beside it": ("mechanics/kernel.c", "one", "two"),
    "a package on the way": ("mechanics/__init__.py", "", "import os\n"),
}


def version(folder: Path, file: str = "", before: str = "", after: str = "") -> str:
    for name, text in FILES.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        if name == file:
            assert before in text
            text = text.replace(before, after, 1) if before else after
        path.write_text(text)
    return code_version("toss", folder)


@pytest.mark.parametrize("case", WITHOUT_INFLUENCE)
def test_what_no_number_depends_on_leaves_stored_cells_valid(tmp_path, case):
    assert version(tmp_path / "b", *WITHOUT_INFLUENCE[case]) == version(tmp_path / "a")


@pytest.mark.parametrize("case", WITH_INFLUENCE)
def test_what_numbers_depend_on_makes_another_version(tmp_path, case):
    assert version(tmp_path / "b", *WITH_INFLUENCE[case]) != version(tmp_path / "a")


def test_an_experiment_without_a_module_depends_on_every_module(tmp_path):
    version(tmp_path / "a")
    names = {name for name, _ in sources("unknown", tmp_path / "a")}
    assert names == set(FILES)


@pytest.mark.parametrize("name", EXPERIMENTS)
def test_every_experiment_has_the_code_that_its_module_runs(name):
    module = EXPERIMENTS[name].run.__module__
    assert module == f"delan.paper.{name.replace('-', '_')}"
    assert EXPERIMENTS[name].run.__name__ == versions.START
    names = {source for source, _ in sources(name)}
    assert "online/learner.py" in names or name == "causes" or "solvers/adam.py" in names
    assert not any(source.startswith(("cli/", "report/", "view/")) for source in names)
    assert not any(source.endswith((":draw", ":claims")) for source in names)


PROBE = """
import json, sys
from importlib import import_module
from delan.paper.cells import Size
experiment = import_module("delan.paper." + sys.argv[1].replace("-", "_"))
cells = experiment.cells(Size("usual", 1))
before = set(sys.modules)
experiment.run(next(cell for cell in cells if cell.model == sys.argv[2]))
loaded = [sys.modules[name] for name in set(sys.modules) - before]
files = [getattr(module, "__file__", None) for module in loaded]
print(json.dumps([file for file in files if file]))
"""


@pytest.mark.parametrize(("name", "model"), [("noise", "identified"), ("online-letters", "none")])
def test_a_cell_loads_no_module_late_that_its_version_does_not_know(name, model):
    ran = subprocess.run(
        [sys.executable, "-c", PROBE, name, model],
        capture_output=True,
        text=True,
        check=True,
        env={**os.environ, "JAX_PLATFORMS": "cpu"},
    )
    loaded = set()
    for file in map(Path, json.loads(ran.stdout.splitlines()[-1])):
        if versions.ROOT in file.parents:
            loaded.add(file.relative_to(versions.ROOT).as_posix())
    known = {source.split(":")[0] for source, _ in sources(name)}
    # What is imported before stands in import statements, which the version follows.
    assert loaded <= known


def test_a_stored_cell_of_another_version_is_not_used(tmp_path):
    cell = EXPERIMENTS["noise"].cells(Size("quick"))[0]
    store = Store(tmp_path)
    store.put(Stored(cell, {"test": 1.0}, code_version("noise"), 1.0, {}))
    assert store.get(cell) is not None
    store.put(Stored(cell, {"test": 1.0}, code_version("tuning"), 1.0, {}))
    assert store.get(cell) is None
