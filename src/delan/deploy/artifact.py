"""A model as functions of arrays, and a folder of such functions with a table and a page."""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from importlib.metadata import version
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array
from jinja2 import Environment, PackageLoader, StrictUndefined

from ..errors import SettingsError
from ..models.model import as_model, without_trust
from ..storage import write_whole
from .layout import ExportSettings, Numbers, Shape


class ModelFunction(NamedTuple):
    """A function of one sample: what it does, the names of its arguments and of its results."""

    call: Callable[..., tuple[Array, ...]]
    text: str
    takes: tuple[str, ...]
    gives: tuple[str, ...]


def functions_of(model: Any) -> dict[str, ModelFunction]:
    """The functions of a model; friction with memory counts as slid, for its memory is unknown."""
    Numbers.of(model)  # refuses models that are not learned, and numbers that are not finite
    model = as_model(model)
    plain = without_trust(model)
    functions = {
        "inverse_dynamics": ModelFunction(
            lambda *motion: (plain.inverse_dynamics(*motion),),
            "the torque of a motion",
            ("q", "qd", "qdd"),
            ("tau",),
        )
    }
    if model.promises.mechanics:
        functions["forward_dynamics"] = ModelFunction(
            lambda *state: (plain.forward_dynamics(*state),),
            "the acceleration of a torque",
            ("q", "qd", "tau"),
            ("qdd",),
        )
        functions["mass_matrix"] = ModelFunction(
            lambda q: (plain.mass_matrix(q),), "the inertia H(q)", ("q",), ("inertia",)
        )
        functions["components"] = ModelFunction(
            lambda *motion: tuple(plain.components(*motion)),
            "the parts of the torque",
            ("q", "qd", "qdd"),
            ("inertial", "coriolis", "gravity", "friction"),
        )
    if model.promises.energy:
        functions["energy"] = ModelFunction(
            lambda q, qd: tuple(plain.energy(q, qd)),
            "the energies [J]",
            ("q", "qd"),
            ("kinetic", "potential"),
        )
    if model.promises.trust:
        functions["in_domain"] = ModelFunction(
            lambda q, qd: (model.in_domain(q, qd),),
            "how far a state is from the training data: at most 1 inside",
            ("q", "qd"),
            ("distance",),
        )
    return functions


def with_numbers(model: Any, dtype: Any) -> Any:
    """The model with all its numbers in one precision."""

    def cast(leaf: Any) -> Any:
        if isinstance(leaf, jax.Array | np.ndarray) and jnp.issubdtype(leaf.dtype, jnp.inexact):
            return jnp.asarray(leaf, dtype)
        return leaf

    return jax.tree.map(cast, model)


@dataclass(frozen=True)
class Format:
    """A format of functions in files.

    Attributes:
        name: of the format, of its template `usage_{name}.md`, and how its files end.
        facts: what else `model.json` says of it.
    """

    name: str
    facts: Mapping[str, Any]


def write_artifact(
    folder: Path,
    model: Any,
    files: Mapping[str, bytes],
    kind: Format,
    settings: ExportSettings,
    story: Mapping[str, str] | None,
) -> dict[str, Any]:
    """Write functions by name, `model.json` and `README.md`; return what `model.json` says."""
    joints = []
    for name, joint, units in zip(
        model.joints.names, model.joints.kinds, model.joints.units, strict=True
    ):
        joints.append({"name": name, "kind": joint, "units": units._asdict()})
    functions = {}
    contents = {}
    for name, function in functions_of(model).items():
        if name in files:
            contents[f"{name}.{kind.name}"] = files[name]
            functions[name] = {
                "file": f"{name}.{kind.name}",
                "takes": function.takes,
                "gives": function.gives,
                "does": function.text,
            }
    payload = {
        "name": settings.name,
        "format": kind.name,
        "precision": settings.precision,
        "checksum": Numbers.of(model).checksum(settings.precision),
        "delan": version("delan"),
        **kind.facts,
        "joints": joints,
        "functions": functions,
        "story": dict(story or {}),
    }
    usage = rendered(f"usage_{kind.name}.md", dof=len(joints), dtype=np.dtype(settings.dtype).name)
    page = rendered("README.md", **payload, usage=usage, remembers=bool(Shape.of(model).stops))
    contents["model.json"] = (json.dumps(payload, indent=1, ensure_ascii=False) + "\n").encode()
    contents["README.md"] = page.encode()
    write_files(folder, contents)
    return payload


def write_files(folder: Path, contents: Mapping[str, bytes]) -> None:
    """Write files by their paths in a folder, each of them whole, and make folders for them."""
    for name, data in contents.items():
        path = folder / name
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise SettingsError(
                f"{path.parent}: cannot be made ({error.strerror}); give another folder"
            ) from None
        write_whole(path, lambda file, data=data: file.write(data))


def rendered(template: str, **words: Any) -> str:
    """The text of a file in `templates/`, with its words filled in."""
    return _templates().get_template(template).render(words)


@cache
def _templates() -> Environment:
    environment = Environment(
        loader=PackageLoader("delan.deploy"),
        undefined=StrictUndefined,
        keep_trailing_newline=True,
        # A line that holds a tag alone leaves no line in the text.
        trim_blocks=True,
    )
    environment.filters |= {"cell": _cell, "one_line": _one_line}
    return environment


def _cell(text: Any) -> str:
    """Words that stay in their cell of a table in Markdown."""
    return " ".join(str(text).split()).replace("|", "\\|").replace("<", "&lt;")


def _one_line(text: Any) -> str:
    """Words that can stand in a comment of C: on one line, and not ending it."""
    return " ".join(str(text).split()).replace("*/", "* /").replace("/*", "/ *")
