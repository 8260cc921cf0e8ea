"""Files of named arrays, some in groups: which of them make one sheet."""

from collections.abc import Callable, Collection, Mapping, Sequence

from ...joints import Joints
from ..column_names import measures
from .sheet import Field, Pieces, Sheet


def sheets_of(
    source: str,
    form: str,
    fields: Mapping[str, Field],
    pieces: Callable[[Sequence[str], int], Pieces],
    *,
    mapped: Collection[str] = (),
    joints: Joints | None = None,
    loose: bool = False,
) -> list[Sheet]:
    """One sheet for each group that holds positions, by the names inside the group; else one of all arrays.

    Names in `mapped` that are paths into groups make it one sheet, too: their owner knows what belongs together.
    """
    fields = {name: known for name, known in fields.items() if known.shape}
    groups: dict[str, dict[str, str]] = {}
    for name in fields:
        group, _, leaf = name.rpartition("/")
        groups.setdefault(group, {})[leaf] = name
    chosen = [group for group, leaves in groups.items() if any(_may_be(leaf, mapped) for leaf in leaves)]
    if "" in chosen or not chosen or any("/" in name and name in fields for name in mapped):
        groups, chosen = {"": {name: name for name in fields}}, [""]
    return [
        Sheet(
            source=f"{source} [{group}]" if group else source,
            kind="arrays",
            form=form,
            fields={leaf: fields[name] for leaf, name in groups[group].items()},
            pieces=_renamed(pieces, groups[group]),
            joints=joints,
            loose=loose,
        )
        for group in chosen
    ]


def _may_be(leaf: str, mapped: Collection[str]) -> bool:
    return leaf in mapped or measures(leaf) == "q"


def _renamed(
    pieces: Callable[[Sequence[str], int], Pieces], names: Mapping[str, str]
) -> Callable[[Sequence[str], int], Pieces]:
    def read(wanted: Sequence[str], rows: int) -> Pieces:
        for piece in pieces([names[leaf] for leaf in wanted], rows):
            yield {leaf: piece[names[leaf]] for leaf in wanted}

    return read
