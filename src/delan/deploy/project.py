"""A folder of C code that its receiver can build, test and call, also as a ROS 2 package."""

import re
from collections.abc import Mapping
from importlib.metadata import version
from pathlib import Path
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from ..errors import ModelError, SettingsError
from ..models.model import as_model, without_trust
from .artifact import rendered, with_numbers, write_files
from .c_code import CSource, c_source
from .layout import ExportSettings, Shape

# States that the receiver's test compares.
CASES = 20
# How far the numbers of another compiler may be from ours, relative to the largest of a result.
TOLERANCE = {"float": 2e-4, "double": 1e-10}
# Numbers of a reference table in a line.
NUMBERS_IN_LINE = 5
# Where the files of `templates/ros2` go.
PLACES = {
    "solver.hpp": "include/{package}/solver.hpp",
    "solver.cpp": "src/solver.cpp",
    "plugin.xml": "plugin.xml",
    "package.xml": "package.xml",
    "CMakeLists.txt": "CMakeLists.txt",
}


def export(
    model: Any,
    folder: Path,
    settings: ExportSettings | None = None,
    story: Mapping[str, str] | None = None,
    *,
    ros2: bool = False,
) -> CSource:
    """Write header, source, test, example and build file of a model into a folder.

    With `ros2`, a package of the code as well. An example that somebody edited is not replaced.
    """
    settings = settings or ExportSettings()
    if settings.weights != "constant":
        raise SettingsError("a folder of code holds its weights; leave weights out")
    code = c_source(model, settings, story)
    shape = Shape.of(model)
    words = settings.words | {
        "checksum": code.checksum,
        "mechanics": shape.model.promises.mechanics,
        "remembers": shape.model.promises.memory,
        "knows_domain": "in_domain" in code.functions,
    }
    tables = {name: _listed(values) for name, values in _reference(model).items()}
    example = rendered("example.c", **words)
    files = {
        f"{settings.name}.h": code.header,
        f"{settings.name}.c": code.source,
        "test.c": rendered(
            "test.c", **words, cases=CASES, tolerance=TOLERANCE[settings.precision], tables=tables
        ),
        _example_name(folder, example): example,
        "CMakeLists.txt": rendered("CMakeLists.txt", **words),
    }
    if ros2:
        for path, text in _ros2_files(code, shape, settings).items():
            files[f"ros2/{path}"] = text
    write_files(folder, {path: text.encode() for path, text in files.items()})
    return code


def _example_name(folder: Path, text: str) -> str:
    """The file of the example: a new one beside an example that somebody edited."""
    try:
        present = (folder / "example.c").read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError):
        return "example.c"
    # Formatters change white space, which is no edit.
    if "".join(present.split()) == "".join(text.split()):
        return "example.c"
    return "example.new.c"


def _ros2_files(code: CSource, shape: Shape, settings: ExportSettings) -> dict[str, str]:
    """The files of a plugin for the `inverse_dynamics_solver` interface, by their paths.

    They include the C code, so that the package can be moved without the folder around it.
    """
    if not shape.model.promises.mechanics:
        raise ModelError(
            "this model knows the torque alone, and a ROS 2 solver is asked for inertia, Coriolis "
            "and gravity too; fit a chain or a DeLaN network, or leave --ros2 out"
        )
    package = package_name(settings.name)
    words = settings.words | {
        "package": package,
        "dof": shape.joints.dof,
        "names": [f"  {_literal(name)}" for name in shape.joints.names],
        "checksum": code.checksum,
        "version": version("delan"),
        "friction": _friction_notes(shape),
        "loaded": "unloaded_friction" in shape.functions,
    }
    files = {f"src/{settings.name}.h": code.header, f"src/{settings.name}.c": code.source}
    for template, place in PLACES.items():
        files[place.format(package=package)] = rendered(f"ros2/{template}", **words)
    return files


def package_name(name: str) -> str:
    """A name that ROS takes for a package: small letters, and no two underscores in a row."""
    return re.sub("_+", "_", f"{name.lower()}_inverse_dynamics_solver")


def _friction_notes(shape: Shape) -> list[str]:
    """What the plugin says of its friction, which is asked for by the speed alone."""
    notes = []
    if shape.model.friction is None:
        notes.append("This model has no friction: it is zero.")
    if shape.stops:
        notes.append("What friction remembers of the way is not known here: it counts as slid.")
    if "unloaded_friction" in shape.functions:
        notes.append(
            "The part that grows with the load needs more than that and is in getTorques alone."
        )
    return notes or ["This model's friction needs no more."]


def _literal(text: str) -> str:
    """A string of C++, whatever is in it."""
    characters = ""
    for byte in text.encode():
        # Octal, for a hexadecimal escape would swallow digits that follow it.
        if 32 <= byte < 127 and chr(byte) not in '"\\?':
            characters += chr(byte)
        else:
            characters += f"\\{byte:03o}"
    return f'"{characters}"'


def history_of(header: Mapping[str, Any]) -> dict[str, str]:
    """What the header of a model file says of its making, in a few lines."""
    history = {}
    for name in ("log", "seed", "created"):
        if header.get(name) is not None:
            history[name] = str(header[name])
    if header.get("name") is not None:
        # Only what the fit had against the model: whether it may drive is for the gate to say.
        doubt = {"doubtful": ", with doubts", "refuse": ", but no model was good"}
        history["chosen by the fit"] = (
            f"{header['name']}{doubt.get(str(header.get('decision')), '')}"
        )
    for part, scores in (header.get("scores") or {}).items():
        errors = []
        for error in scores["torque"]["nmse"]:
            errors.append("–" if error is None else f"{error:.2g}")
        history[f"torque nMSE per joint on {part}"] = ", ".join(errors)
    return history


def _reference(model: Any) -> dict[str, np.ndarray]:
    """States and the model's results for them, in double precision."""
    model = as_model(model)
    rng = np.random.default_rng(0)
    q, qd, push = rng.uniform(-1, 1, (3, CASES, model.joints.dof))
    if model.trust is not None:
        # Where the robot has been, the results are of a size that it will meet.
        states = np.asarray(model.trust.domain.states, dtype=float)
        rows = rng.integers(len(states), size=CASES)
        q, qd = np.split(states[rows], 2, axis=1)
    tables = {"q": q, "qd": qd, "push": push}
    with jax.enable_x64(True):
        plain = with_numbers(without_trust(model), float)
        results = _results(plain, jnp.asarray(q), jnp.asarray(qd), jnp.asarray(push))
    for name, values in results.items():
        tables[name] = np.asarray(values).reshape(CASES, -1)
        if not np.isfinite(tables[name]).all():
            raise ModelError(f"the model's {name} is not finite in ordinary states; fit it again")
    return tables


@eqx.filter_jit
def _results(model: Any, q: Array, qd: Array, push: Array) -> dict[str, Array]:
    results = {"inverse_dynamics": jax.vmap(model.inverse_dynamics)(q, qd, push)}
    if model.promises.mechanics:
        results["forward_dynamics"] = jax.vmap(model.forward_dynamics)(q, qd, push)
        results["mass_matrix"] = jax.vmap(model.mass_matrix)(q)
    return results


def _listed(values: np.ndarray) -> str:
    """The entries of an array of C, a few in each line."""
    numbers = [f"{value:.17g}" for value in values.ravel().tolist()]
    lines = []
    for first in range(0, len(numbers), NUMBERS_IN_LINE):
        lines.append(", ".join(numbers[first : first + NUMBERS_IN_LINE]))
    return ",\n    ".join(lines)
