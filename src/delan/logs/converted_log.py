"""Logs in the plain form of delan, with their provenance: Parquet, npz or CSV.

The columns are t, q0, q1, …, tau0, … in SI units (arrays q and tau in an npz file). The file says
how the original was read, so that this needs to be understood only once.
"""

import json
from collections.abc import Iterator, Mapping
from typing import IO, Any, Literal, cast, get_args

import numpy as np

from ..errors import DataError, DelanError, SettingsError
from ..joints import Joints, Recording, TorqueSource
from .excerpts import LogPart
from .formats import PROVENANCE, Sheet, library
from .options import LogOptions
from .options_file import plain_options

Form = Literal["parquet", "npz", "csv"]


def provenance_of(recording: Recording, options: LogOptions, logs: list[str]) -> dict[str, Any]:
    """Return what a converted log says of its original."""
    joints = recording.joints
    return {
        "logs": logs,
        "options": plain_options(options),
        "torque_source": recording.torque_source,
        "joints": {"names": list(joints.names), "kinds": list(joints.kinds)},
    }


def joints_of(sheet: Sheet, dof: int) -> Joints | None:
    """Return the joints that a converted log names, None if it names none."""
    named = (sheet.provenance or {}).get("joints")
    if not isinstance(named, dict):
        return None
    names = named.get("names")
    kinds = named.get("kinds")
    if not isinstance(names, list) or not isinstance(kinds, list) or len(names) != dof:
        raise DataError(sheet.source, f"its {PROVENANCE} has no names of {dof} joints; fix it")
    try:
        return Joints(tuple(map(str, names)), tuple(map(str, kinds)))  # pyright: ignore
    except DelanError as error:
        raise DataError(sheet.source, str(error)) from None


def torque_source_of(sheet: Sheet, source: TorqueSource) -> TorqueSource:
    """Return where the torques of a converted log came from, else `source`."""
    stored = (sheet.provenance or {}).get("torque_source")
    if stored in get_args(TorqueSource):
        return cast(TorqueSource, stored)
    return source


def write_converted(
    file: IO[bytes], form: Form, parts: Iterator[LogPart], provenance: Mapping[str, Any]
) -> int:
    """Write all parts of a log; return the number of rows."""
    text = json.dumps(provenance, ensure_ascii=False)
    writers = {"parquet": _write_parquet, "npz": _write_npz, "csv": _write_csv}
    return writers[form](file, parts, text)


def _columns(recording: Recording) -> dict[str, np.ndarray]:
    """Return each column by itself: t, q0, q1, …"""
    columns = {}
    for name, values in recording.columns.items():
        if values.ndim == 1:
            columns[name] = values
        else:
            columns |= {f"{name}{joint}": values[:, joint] for joint in range(values.shape[1])}
    return columns


def _write_parquet(file: IO[bytes], parts: Iterator[LogPart], text: str) -> int:
    library("pyarrow.parquet", "the output", "a Parquet file")
    arrow = library("pyarrow", "the output", "a Parquet file")
    writer = None
    rows = 0
    for part in parts:
        table = arrow.table(_columns(part.recording))
        if writer is None:
            schema = table.schema.with_metadata({PROVENANCE: text})
            writer = arrow.parquet.ParquetWriter(file, schema)
        writer.write_table(table.cast(writer.schema))
        rows += len(part.recording.t)
    if writer is not None:
        writer.close()
    return rows


def _write_csv(file: IO[bytes], parts: Iterator[LogPart], text: str) -> int:
    rows = 0
    for part in parts:
        columns = _columns(part.recording)
        if not rows:
            file.write(f"# {PROVENANCE} {text}\n{','.join(columns)}\n".encode())
        lines = []
        for row in zip(*(values.tolist() for values in columns.values()), strict=True):
            lines.append(",".join(map(repr, row)))
        file.write("\n".join([*lines, ""]).encode())
        rows += len(lines)
    return rows


def _write_npz(file: IO[bytes], parts: Iterator[LogPart], text: str) -> int:
    recording = next(parts).recording
    if next(parts, None) is not None:
        raise SettingsError(
            "an npz file is written at once, and the log is larger than --memory; write a .parquet "
            "file, or raise --memory"
        )
    joints = recording.joints
    arrays: dict[str, Any] = dict(recording.columns)
    arrays |= {
        "joint_names": np.array(joints.names),
        "joint_kinds": np.array(joints.kinds),
        PROVENANCE: np.array(text),
    }
    np.savez_compressed(file, **arrays)
    return len(recording.t)
