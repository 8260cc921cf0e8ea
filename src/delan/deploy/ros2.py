"""The C code of a model as a ROS 2 package: a plugin for the `inverse_dynamics_solver` interface."""

import re
from importlib import resources
from importlib.metadata import version

from ..errors import ModelError
from .c_code import CSource
from .layout import ExportSettings, Shape

PLACES = {
    "solver.hpp": "include/{package}/solver.hpp",
    "solver.cpp": "src/solver.cpp",
    "plugin.xml": "plugin.xml",
    "package.xml": "package.xml",
    "CMakeLists.txt": "CMakeLists.txt",
}
"""Where the files of `ros2_package` go."""


def ros2_files(made: CSource, shape: Shape, settings: ExportSettings) -> dict[str, str]:
    """The files of the package by their paths in it; it holds the C code too, so that it can be
    moved on its own.
    """
    if not shape.mechanics:
        raise ModelError(
            "this model knows the torque alone, and a ROS 2 solver is asked for inertia, Coriolis and gravity too; "
            "fit a chain or a DeLaN network, or leave --ros2 out"
        )
    package = package_name(settings.name)
    words = {
        "package": package,
        "name": settings.name,
        "upper": settings.name.upper(),
        "real": settings.precision,
        "dof": str(shape.joints.dof),
        "names": ",\n".join(f"  {_literal(name)}" for name in shape.joints.names),
        "checksum": made.checksum,
        "version": version("delan"),
        **_friction(shape, settings),
    }
    files = {f"src/{settings.name}.h": made.header, f"src/{settings.name}.c": made.source}
    for template, place in PLACES.items():
        text = (
            resources.files(__package__ or "")
            .joinpath("ros2_package", template)
            .read_text(encoding="utf-8")
        )
        files[place.format(package=package)] = re.sub(
            r"@(\w+)@", lambda found: words[found[1]], text
        )
    return files


def package_name(name: str) -> str:
    """A name that ROS takes for a package: small letters, and no two underscores in a row."""
    return re.sub("_+", "_", f"{name.lower()}_inverse_dynamics_solver")


def _friction(shape: Shape, settings: ExportSettings) -> dict[str, str]:
    """How the plugin asks for friction, and what it says of it."""
    told = ["This model has no friction: it is zero."] if shape.friction is None else []
    if shape.stops:
        told.append("What friction remembers of the way is not known here: it counts as slid.")
    loaded = "unloaded_friction" in shape.functions
    if loaded:
        told.append(
            "The part that grows with the load needs more than that and is in getTorques alone."
        )
    call = (
        f"  {settings.name}_unloaded_friction(nullptr, speed.data(), torque.data());"
        if loaded
        else f"  const Row any{{}};  // neither position nor acceleration matters to it\n"
        f"  {settings.name}_friction(nullptr, any.data(), speed.data(), any.data(), torque.data());"
    )
    lines = " ".join(told).replace(". ", ".\n *   ")
    return {"friction": lines or "This model's friction needs no more.", "friction_call": call}


def _literal(text: str) -> str:
    """A string of C++, whatever is in it."""
    octal = "".join(
        chr(byte) if 32 <= byte < 127 and chr(byte) not in '"\\?' else f"\\{byte:03o}"
        for byte in text.encode()
    )
    return f'"{octal}"'
