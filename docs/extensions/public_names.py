"""The directive `public-names`: everything that `import delan` gives, in groups, from the docstrings."""

from typing import Any

from docutils import nodes
from docutils.parsers.rst import Directive
from docutils.statemachine import StringList

import delan

GROUPS = {
    "From a log to samples": ("data", "joints"),
    "Learning and scores": ("learning",),
    "Models": ("models", "mechanics", "storage"),
    "While the robot moves": ("experiments",),
    "Into a controller": ("deploy",),
    "Errors": ("errors",),
}


class PublicNames(Directive):
    """One section for each group of rooms; a room without a group is an error, so that no name is forgotten."""

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
        return sections

    @staticmethod
    def _entry(name: str) -> list[str]:
        one = getattr(delan, name)
        if not (one.__doc__ or "").strip():
            raise ValueError(f"delan.{name} has no docstring")
        kind = "autoclass" if isinstance(one, type) else "autofunction"
        members = ["   :members:"] if kind == "autoclass" and not issubclass(one, Exception) else []
        return ["```{eval-rst}", f".. {kind}:: delan.{name}", *members, "```", ""]


def setup(app: Any) -> dict[str, Any]:
    app.add_directive("public-names", PublicNames)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
