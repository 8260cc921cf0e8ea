"""Columns of arrays by name: `position[2]` is the third one of `position`, `run.q` is `run/q`."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial

from ..joints import MOST_JOINTS
from .formats import Field, Pieces, Sheet
from .options import LogOptions, element_of

# An array of the sheet, and a column of it; None for the whole array.
Place = tuple[str, int | None]


def with_elements(sheet: Sheet, options: LogOptions) -> Sheet:
    """Return the sheet with the names that are mapped and mean columns or arrays in it."""
    places: dict[str, Place] = {}
    for quantity in options.map:
        names = options.patterns(quantity) or ()
        for name in names:
            place = _place_of(sheet, name)
            if place is None:
                continue
            if name not in sheet.fields:
                places[name] = place
            shape = sheet.fields[place[0]].shape
            if len(names) > 1 and place[1] is None and len(shape) == 2:
                for column in range(min(shape[1], MOST_JOINTS)):
                    places[f"{name}[{column}]"] = (place[0], column)
    if not places:
        return sheet
    fields = dict(sheet.fields)
    for name, (array, column) in places.items():
        fields[name] = sheet.fields[array]
        if column is not None:
            fields[name] = Field(shape=sheet.fields[array].shape[:1])
    return replace(sheet, fields=fields, pieces=partial(_pieces, sheet, places))


def _place_of(sheet: Sheet, name: str) -> Place | None:
    """Return what a name means in a sheet, None if it means nothing or is a pattern."""
    fields = sheet.fields
    if "{}" in name:
        return None
    for whole in (name, name.replace(".", "/")):
        if whole in fields:
            return whole, None
    array, column = element_of(name)
    numbered = re.fullmatch(r"(.+)\.column(\d{1,4})", name)
    if numbered is not None:  # of a joined file without a header
        array = numbered[1]
        column = int(numbered[2]) - 1
    for whole in (array, array.replace(".", "/")):
        if whole in fields and column is not None:
            shape = fields[whole].shape
            if len(shape) == 2 and 0 <= column < shape[1]:
                return whole, column
    return None


def _pieces(sheet: Sheet, places: Mapping[str, Place], wanted: Sequence[str], rows: int) -> Pieces:
    stored = {name: places.get(name, (name, None)) for name in wanted}
    arrays = list(dict.fromkeys(array for array, _ in stored.values()))
    for piece in sheet.pieces(arrays, rows):
        columns = {}
        for name, (array, column) in stored.items():
            columns[name] = piece[array]
            if column is not None:
                columns[name] = piece[array][:, column]
        yield columns
