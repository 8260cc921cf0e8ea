"""The directive `public-names`: the public names of `delan` and of its open rooms, in groups."""

from typing import Any

from docutils import nodes
from docutils.parsers.rst import Directive
from docutils.statemachine import StringList

import delan
import delan.learning
import delan.models
import delan.online
import delan.paper

GROUPS = {
    "From a log to samples": ("logs", "joints"),
    "Learning and scores": ("learning", "solvers", "identification"),
    "Models": ("models", "mechanics", "storage"),
    "Into a controller": ("deploy",),
    "Errors": ("errors",),
}
# Rooms that have public names of their own.
OPEN_ROOMS = {
    "While the robot moves (delan.online)": delan.online,
    "Pieces of models (delan.models)": delan.models,
    "Pieces of a fit (delan.learning)": delan.learning,
    "Data sets and statistics (delan.paper)": delan.paper,
}


class PublicNames(Directive):
    """One section for each group of rooms; a room without a group is an error, so that no name is
    forgotten.
    """

    def run(self) -> list[nodes.Node]:
        rooms = {name: getattr(delan, name).__module__.split(".")[1] for name in delan.__all__}
        grouped = {room for group in GROUPS.values() for room in group}
        if lost := {name for name, room in rooms.items() if room not in grouped}:
            raise self.error(f"no group of the reference has {', '.join(sorted(lost))}")
        sections = []
        for title, members in GROUPS.items():
            section = nodes.section(ids=[nodes.make_id(title)], names=[title])
            section += nodes.title(title, title)
            names = [name for name in delan.__all__ if rooms[name] in members]
            text = [line for name in sorted(names, key=str.lower) for line in self._entry(name)]
            self.state.nested_parse(StringList(text, "public_names"), 0, section)
            sections.append(section)
        for title, room in OPEN_ROOMS.items():
            sections.append(self._room(title, room))
        return sections

    def _room(self, title: str, room: Any) -> nodes.section:
        section = nodes.section(ids=[nodes.make_id(title)], names=[title])
        section += nodes.title(title, title)
        text = []
        for name in sorted(room.__all__, key=str.lower):
            text += self._entry(name, room)
        self.state.nested_parse(StringList(text, "public_names"), 0, section)
        return section

    @staticmethod
    def _entry(name: str, module: Any = delan) -> list[str]:
        value = getattr(module, name)
        title = f"{module.__name__}.{name}"
        if not (value.__doc__ or "").strip():
            raise ValueError(f"{title} has no docstring")
        kind = "autofunction"
        if isinstance(value, type):
            kind = "autoclass"
        elif not callable(value):
            kind = "autodata"
        members = []
        if kind == "autoclass" and not issubclass(value, Exception):
            members = ["   :members:"]
        return ["```{eval-rst}", f".. {kind}:: {title}", *members, "```", ""]


def setup(app: Any) -> dict[str, Any]:
    app.add_directive("public-names", PublicNames)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
