"""A folder of functions, one file each, with a table for machines and a page for people."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

from ..storage import write_whole
from .functions import ModelFunction
from .layout import ExportSettings, Numbers, Shape
from .project import make_folder

UNITS = {"prismatic": {"q": "m", "qd": "m/s", "qdd": "m/s^2", "tau": "N"}}
TURNING = {"q": "rad", "qd": "rad/s", "qdd": "rad/s^2", "tau": "N m"}


@dataclass(frozen=True)
class Format:
    """How functions are kept: the format's name, how their files end, how they are read, what else
    is to be known.
    """

    name: str
    suffix: str
    usage: str
    facts: Mapping[str, Any]


def write_artifact(
    folder: Path,
    model: Any,
    made: Mapping[str, tuple[ModelFunction, bytes]],
    kind: Format,
    settings: ExportSettings,
    story: Mapping[str, str],
) -> dict[str, Any]:
    """Write the functions, `model.json` and `README.md`; returns what `model.json` says."""
    joints = model.joints
    told = {
        "name": settings.name,
        "format": kind.name,
        "precision": settings.precision,
        "checksum": Numbers.of(model).checksum(settings.precision),
        "delan": version("delan"),
        **kind.facts,
        "joints": [
            {"name": name, "kind": kind, "units": UNITS.get(kind, TURNING)}
            for name, kind in zip(joints.names, joints.kinds, strict=True)
        ],
        "functions": {
            name: {
                "file": f"{name}.{kind.suffix}",
                "takes": one.takes,
                "gives": one.gives,
                "does": one.told,
            }
            for name, (one, _) in made.items()
        },
        "story": dict(story),
    }
    files = {f"{name}.{kind.suffix}": data for name, (_, data) in made.items()}
    files["model.json"] = (json.dumps(told, indent=1, ensure_ascii=False) + "\n").encode()
    files["README.md"] = _page(told, kind, Shape.of(model)).encode()
    make_folder(folder)
    for file, data in files.items():
        write_whole(folder / file, lambda out, data=data: out.write(data))
    return told


def _page(told: Mapping[str, Any], kind: Format, shape: Shape) -> str:
    joints = [
        f"| {index} | {_cell(joint['name'])} | {joint['kind']} | {', '.join(joint['units'].values())} |"
        for index, joint in enumerate(told["joints"])
    ]
    functions = [
        f"| `{name}({', '.join(one['takes'])})` | {', '.join(one['gives'])} | {one['does']} |"
        for name, one in told["functions"].items()
    ]
    story = [f"- {_cell(key)}: {_cell(value)}" for key, value in told["story"].items()]
    memory = (
        "Friction that remembers the way counts as slid here, for its memory is not known.\n\n"
        if shape.stops
        else ""
    )
    return _PAGE.format(
        name=told["name"],
        dof=len(joints),
        version=told["delan"],
        precision=told["precision"],
        checksum=told["checksum"],
        joints="\n".join(joints),
        functions="\n".join(functions),
        memory=memory,
        usage=kind.usage,
        story="\n".join(story) or "- nothing is told of it",
    )


def _cell(text: Any) -> str:
    """Words that stay in their cell of a table."""
    return " ".join(str(text).split()).replace("|", "\\|").replace("<", "&lt;")


_PAGE = """\
# {name}: the learned dynamics of a robot with {dof} joints

Written by delan {version} in {precision}; checksum of the numbers {checksum}.

| joint | name | kind | units of q, qd, qdd, tau |
|---|---|---|---|
{joints}

| function | gives | which is |
|---|---|---|
{functions}

{memory}No torque is checked against the limits of a robot: that is for the caller to do.

{usage}
How it was made:

{story}
"""
