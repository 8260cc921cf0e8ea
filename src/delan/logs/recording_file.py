"""Recordings in files of delan: those of a recorder, and logs that were converted.

A recorder writes a line of JSON, then chunks of rows while the robot moves. A chunk is a head
(mark, number of rows, CRC-32 of the rows, CRC-32 of the head so far; little-endian) and rows of
float64. Damage costs only the chunk in which it lies.
"""

import json
import struct
import warnings
import zlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import IO, Any, Literal, cast, get_args

import numpy as np
from jaxtyping import Float

from ..errors import DataError, DelanError, SettingsError
from ..joints import COMPONENTS, Joints, Recording, TorqueSource
from .excerpts import LogPart
from .formats import PROVENANCE, Field, Sheet, library, row_pieces
from .option_text import plain_options
from .options import QUANTITIES, REQUIRED, LogOptions

FORMAT = "delan-recording"
FORMAT_VERSION = 1

_MARK = b"\xd5ROW"
_HEAD = struct.Struct("<4sIII")
# Bytes within which the first line must end; longer ones are not the header of a recording.
_LONGEST_HEADER = 1 << 20

Form = Literal["parquet", "npz", "csv"]


@dataclass(frozen=True, eq=False, kw_only=True)
class RecordedRows:
    """The content of a recording file.

    Attributes:
        columns: quantities of the control loop by name, shape (time, size).
        joints: joints of the robot.
        dt: control period [s].
        header: first line of the file.
        damaged: number of bytes between whole chunks that were skipped.
        incomplete: number of bytes after the last whole chunk.
    """

    columns: Mapping[str, Float[np.ndarray, "time _"]]
    joints: Joints
    dt: float
    header: Mapping[str, Any] = field(repr=False)
    damaged: int
    incomplete: int

    @property
    def problem(self) -> str | None:
        """Description of the missing bytes, None if none are missing."""
        parts = []
        if self.damaged:
            parts.append(f"{self.damaged} bytes between whole chunks are damaged and were skipped")
        if self.incomplete:
            parts.append(f"the last {self.incomplete} bytes are an incomplete chunk")
        return "; ".join(parts) or None


def header_line(
    joints: Joints, columns: Mapping[str, int], dt: float, provenance: Mapping[str, Any]
) -> bytes:
    """Return the first line of a file whose rows hold the given columns of the given sizes."""
    header = {
        "format": FORMAT,
        "format_version": FORMAT_VERSION,
        "joints": {"names": joints.names, "kinds": joints.kinds},
        "columns": dict(columns),
        "dt": dt,
        "provenance": dict(provenance),
    }
    return json.dumps(header, allow_nan=False).encode() + b"\n"


def chunk_of(rows: bytes, count: int) -> bytes:
    """Return a chunk of `count` rows, given as the bytes of their little-endian float64 values."""
    head = struct.pack("<4sII", _MARK, count, zlib.crc32(rows))
    return head + struct.pack("<I", zlib.crc32(head)) + rows


def require_columns(source: str, columns: Mapping[str, int], dof: int) -> None:
    """Refuse rows that lack t, q or tau, or have a known quantity of the wrong size."""
    known = {"t": 1, "trajectory": 1, **dict.fromkeys(QUANTITIES, dof)}
    for name in REQUIRED:
        if name not in columns:
            raise DataError(source, f"is missing; the rows hold {', '.join(columns)}", column=name)
    for name, size in columns.items():
        if size != known.get(name, size):
            problem = f"expected {known[name]} numbers per row, got {size}"
            raise DataError(source, problem, column=name)


def read_sheets(path: Path, options: LogOptions, gaps: bool) -> list[Sheet]:
    """Return the sheet in a file of a `Recorder`."""
    recording = read_recording_file(path)
    columns = recording.columns
    sheet = Sheet(
        source=str(path),
        kind="arrays",
        form="a recording that delan wrote",
        fields={name: Field(shape=values.shape) for name, values in columns.items()},
        pieces=partial(row_pieces, columns),
        joints=recording.joints,
    )
    return [sheet]


def read_recording_file(path: str | Path) -> Recording:
    """Return the recording in a file of a `Recorder`; warn of missing or damaged chunks."""
    rows = read_rows(path)
    if rows.problem:
        warnings.warn(f"{path}: {rows.problem}", RuntimeWarning, stacklevel=2)
    columns = rows.columns
    return Recording(
        t=columns["t"][:, 0],
        q=columns["q"],
        tau=columns["tau"],
        qd=columns.get("qd"),
        qdd=columns.get("qdd"),
        trajectory=_labels(str(path), columns),
        truth={name: columns[name] for name in COMPONENTS if name in columns},
        joints=rows.joints,
        source=str(path),
    )


def read_rows(path: str | Path) -> RecordedRows:
    """Return all quantities in a file of a `Recorder`."""
    source = str(path)
    try:
        content = Path(path).read_bytes()
    except FileNotFoundError:
        raise DataError(source, "no such file; check the path") from None
    except OSError as error:
        problem = f"cannot be read: {error.strerror}; give a recording that delan wrote"
        raise DataError(source, problem) from None
    header, start = _header(source, content)
    try:
        joints = Joints(tuple(header["joints"]["names"]), tuple(header["joints"]["kinds"]))
        sizes = {str(name): int(size) for name, size in header["columns"].items()}
        dt = float(header["dt"])
        if min(sizes.values(), default=0) < 1:
            raise ValueError("a column without numbers")
    except (DelanError, KeyError, TypeError, ValueError, AttributeError, OverflowError) as error:
        problem = f"its header is damaged ({type(error).__name__}: {error}); record again"
        raise DataError(source, problem) from None
    require_columns(source, sizes, joints.dof)
    width = sum(sizes.values())
    chunks = list(_chunks(content, start, 8 * width))
    if not chunks:
        problem = (
            f"holds no whole chunk of rows in the {len(content) - start} bytes after its header; "
            "record again"
        )
        raise DataError(source, problem)
    table = np.concatenate([rows for _, rows in chunks]).reshape(-1, width)
    end = chunks[-1][0]
    columns = {}
    first = 0
    for name, size in sizes.items():
        columns[name] = table[:, first : first + size]
        first += size
    return RecordedRows(
        columns=columns,
        joints=joints,
        dt=dt,
        header=header,
        damaged=end - start - len(chunks) * _HEAD.size - table.nbytes,
        incomplete=len(content) - end,
    )


def _header(source: str, content: bytes) -> tuple[dict[str, Any], int]:
    """Return the first line and the position at which the chunks begin."""
    end = content.find(b"\n", 0, _LONGEST_HEADER)
    try:
        header = json.loads(content[: max(end, 0)])
    except (ValueError, RecursionError):
        header = None
    if not isinstance(header, dict) or header.get("format") != FORMAT:
        problem = (
            f"is not a {FORMAT} file: its first line is no header of that format; "
            "give a file that a Recorder wrote"
        )
        raise DataError(source, problem)
    version = header.get("format_version")
    if version != FORMAT_VERSION:
        problem = (
            f"its format version is {version}, this delan reads {FORMAT_VERSION}; update delan"
        )
        raise DataError(source, problem)
    return header, end + 1


def _chunks(content: bytes, start: int, row_bytes: int) -> Iterator[tuple[int, np.ndarray]]:
    """Yield the end position and the values of every whole chunk."""
    at = content.find(_MARK, start)
    while at >= 0:
        begin = at + _HEAD.size
        if begin <= len(content):
            _, count, rows_crc, head_crc = _HEAD.unpack_from(content, at)
            end = begin + count * row_bytes
            sound = (
                head_crc == zlib.crc32(content[at : begin - 4])
                and count > 0
                and end <= len(content)
            )
            if sound and rows_crc == zlib.crc32(memoryview(content)[begin:end]):
                yield end, np.frombuffer(content, "<f8", count=(end - begin) // 8, offset=begin)
                at = content.find(_MARK, end)
                continue
        at = content.find(_MARK, at + 1)


def _labels(source: str, columns: Mapping[str, np.ndarray]) -> np.ndarray:
    """Return the trajectory label of each row, 0 if there are none."""
    if "trajectory" not in columns:
        return np.zeros(len(columns["t"]), dtype=int)
    labels = columns["trajectory"][:, 0]
    wrong = np.flatnonzero(~(np.abs(labels) < 2**53) | (labels != np.round(labels)))
    if len(wrong):
        row = int(wrong[0])
        problem = f"expected whole-number labels, got {labels[row]}"
        raise DataError(source, problem, column="trajectory", row=row)
    return labels.astype(int)


def provenance_of(recording: Recording, options: LogOptions, logs: list[str]) -> dict[str, Any]:
    """Return what a converted log says of its original."""
    joints = recording.joints
    return {
        "logs": logs,
        "options": plain_options(options),
        "torque_source": recording.torque_source,
        "joints": {
            "names": list(joints.names),
            "kinds": list(joints.kinds),
            "motor_of": list(joints.motor_of),
        },
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
    motors = named.get("motor_of", [])
    if not isinstance(motors, list) or not all(isinstance(number, int) for number in motors):
        raise DataError(sheet.source, f"its {PROVENANCE} has motor_of {motors!r}; fix it")
    try:
        return Joints(tuple(map(str, names)), tuple(map(str, kinds)), tuple(motors))  # pyright: ignore
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
