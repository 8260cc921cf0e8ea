"""The directive `claims`: the table of a run of `delan reproduce`, from the `claims.json` that it left."""

import json
from pathlib import Path
from typing import Any

from docutils import nodes
from docutils.parsers.rst import Directive
from docutils.statemachine import StringList

VERDICT = {"yes": "✓ holds", "no": "✕ does not hold", "partly": "◐ partly"}
HEADINGS = ("claim of the paper", "asked", "measured here", "seeds", "")
WIDTHS = (32, 18, 32, 6, 12)


class Claims(Directive):
    """Each claim beside what was measured; the argument is the run's folder beside this page."""

    required_arguments = 1

    def run(self) -> list[nodes.Node]:
        env = self.state.document.settings.env
        path = Path(env.doc2path(env.docname)).parent / self.arguments[0] / "claims.json"
        env.note_dependency(str(path))
        rows = [
            (one["claim"], one["asked"], one["measured"], one["seeds"], VERDICT[one["holds"]])
            for one in json.loads(path.read_text())
        ]
        group = nodes.tgroup("", *(nodes.colspec(colwidth=width) for width in WIDTHS), cols=len(WIDTHS))
        group += nodes.thead("", self._row(HEADINGS))
        group += nodes.tbody("", *(self._row(row) for row in rows))
        return [nodes.table("", group)]

    def _row(self, cells: Any) -> nodes.row:
        row = nodes.row()
        for cell in cells:
            entry = nodes.entry()
            self.state.nested_parse(StringList([str(cell)], self.src), 0, entry)
            row += entry
        return row

    @property
    def src(self) -> str:
        return self.state.document["source"]


def setup(app: Any) -> dict[str, Any]:
    app.add_directive("claims", Claims)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
