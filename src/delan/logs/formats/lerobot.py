"""LeRobot data sets of version 3: Parquet shards and `meta/info.json`, an episode a trajectory."""

import json
from collections.abc import Mapping, Sequence
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any

from ...errors import DataError, DelanError
from ...joints import Joints
from ..options import LogOptions
from . import Field, Pieces, Sheet, library_errors

LEROBOT_FORM = (
    "a LeRobot data set with observation.state and observation.effort, or with actions that are "
    "positions and the gains of the drives"
)
_WHAT = "readable LeRobot data set"
_INFO = "meta/info.json"
_LARGEST_INFO = 1 << 24
# What the features of a data set are called here. An action is a wanted position in most sets.
_FEATURES = {
    "timestamp": "t",
    "episode_index": "trajectory",
    "observation.state": "q",
    "observation.velocity": "qd",
    "observation.effort": "tau",
    "observation.torque": "tau",
    "observation.current": "current",
    "action": "q_des",
}


def read_sheets(path: Path, options: LogOptions, gaps: bool) -> list[Sheet]:
    """Return the sheet in a data set; its shards follow each other."""
    source = str(path)
    with library_errors(source, _WHAT):
        with (path / _INFO).open("rb") as file:
            info = json.loads(file.read(_LARGEST_INFO))
        if not isinstance(info, dict) or not isinstance(info.get("features"), dict):
            raise ValueError(f"{_INFO} has no features")
        shards = sorted(path.glob("data/**/*.parquet"))
    if not shards:
        raise DataError(source, f"has no Parquet files in data/; expected {LEROBOT_FORM}")
    parquet = import_module(".parquet", __package__)
    sheets = []
    for shard in shards:
        sheets += parquet.read_sheets(shard, options, gaps)
    first = sheets[0]
    names = {}
    for feature in first.fields:
        name = _FEATURES.get(feature, feature)
        names[feature if name in names else name] = feature
    fields = {}
    for name, feature in names.items():
        shape = (-1, *first.fields[feature].shape[1:])
        fields[name] = Field(shape=shape, unit=1.0 if name == "t" else first.fields[feature].unit)
    for sheet in sheets:
        _require_alike(first, sheet)
    sheet = Sheet(
        source=source,
        kind="arrays",
        form=LEROBOT_FORM,
        fields=fields,
        pieces=partial(_pieces, sheets, names),
        joints=_joints(source, info["features"], names, fields),
    )
    return [sheet]


def _require_alike(first: Sheet, other: Sheet) -> None:
    for feature, known in first.fields.items():
        found = other.fields.get(feature)
        if found is None or found.shape[1:] != known.shape[1:]:
            problem = f"has not the {feature} of {first.source}; write the data set again"
            raise DataError(other.source, problem, column=feature)


def _joints(
    source: str,
    features: Mapping[str, Any],
    names: Mapping[str, str],
    fields: Mapping[str, Field],
) -> Joints | None:
    """Return the joints that the description names, None if it names none."""
    described = features.get(names.get("q", ""))
    if "q" not in fields or not isinstance(described, dict) or len(fields["q"].shape) != 2:
        return None
    given = described.get("names")
    if isinstance(given, dict):  # {"motors": [...]}
        given = next(iter(given.values()), None)
    if not isinstance(given, list) or len(given) != fields["q"].shape[1]:
        return None
    try:
        return Joints(tuple(map(str, given)), ("revolute",) * len(given))
    except DelanError as error:
        raise DataError(source, str(error)) from None


def _pieces(
    sheets: Sequence[Sheet], names: Mapping[str, str], wanted: Sequence[str], rows: int
) -> Pieces:
    for sheet in sheets:
        for piece in sheet.pieces([names[name] for name in wanted], rows):
            yield {name: piece[names[name]] for name in wanted}
