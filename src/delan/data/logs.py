"""Read a log file into a `Recording`: npz with named arrays, or CSV with one column a joint and quantity."""

import csv
import re
import warnings
import zipfile
from pathlib import Path
from typing import cast

import numpy as np

from ..errors import DataError, DelanError
from ..joints import COMPONENTS, JointKind, Joints, Recording
from .checks import require_sound
from .recording_file import MAGIC, read_recording_file

QUANTITIES = ("q", "qd", "qdd", "tau", *COMPONENTS)
NPZ_FORM = "npz arrays: t (time,), q and tau (time, dof); optional qd, qdd, inertial, coriolis, gravity, trajectory"
CSV_FORM = (
    "CSV columns: t, q0, q1, …, tau0, tau1, …; optional qd0…, qdd0…, inertial0…, coriolis0…, gravity0…, trajectory"
)


def read_log(path: str | Path) -> Recording:
    """The recording in a log file: npz, CSV or a recording of our own, told by its content, not by its name."""
    path = Path(path)
    source = str(path)
    try:
        with path.open("rb") as file:
            magic = file.read(max(4, len(MAGIC)))
    except FileNotFoundError:
        raise DataError(source, "no such file; check the path") from None
    except OSError as error:
        raise DataError(source, f"cannot be read: {error.strerror}; give a readable npz or CSV file") from None
    if not magic:
        raise DataError(source, f"the file is empty; expected {NPZ_FORM}, or {CSV_FORM}")
    if magic.startswith(MAGIC):
        return require_sound(read_recording_file(path))
    return require_sound(_read_npz(path) if magic.startswith(b"PK") else _read_csv(path))


def _read_npz(path: Path) -> Recording:
    source = str(path)
    try:
        with np.load(path, allow_pickle=False) as archive:
            wanted = ("t", *QUANTITIES, "trajectory", "joint_names", "joint_kinds")
            arrays = {name: archive[name] for name in wanted if name in archive.files}
            found = archive.files
    except (OSError, ValueError, EOFError, zipfile.BadZipFile, NotImplementedError) as error:
        raise DataError(source, f"is no readable npz file ({error}); expected {NPZ_FORM}") from None
    missing = [name for name in ("t", "q", "tau") if name not in arrays]
    if missing:
        raise DataError(source, f"has no array {missing[0]!r}, only {', '.join(found)}; expected {NPZ_FORM}")
    columns = {name: _numbers(source, name, arrays[name]) for name in ("t", *QUANTITIES) if name in arrays}
    q = columns["q"]
    if q.ndim != 2 or q.shape[1] == 0:
        raise DataError(source, f"expected shape (time, dof) with at least one joint, got {q.shape}", column="q")
    names, kinds = arrays.get("joint_names"), arrays.get("joint_kinds")
    default = Joints.revolute(q.shape[1])
    joints = _joints(
        source,
        default.names if names is None else tuple(str(name) for name in names.ravel()),
        default.kinds if kinds is None else cast(tuple[JointKind, ...], tuple(str(kind) for kind in kinds.ravel())),
        q.shape[1],
    )
    return _recording(source, columns, arrays.get("trajectory"), joints)


def _read_csv(path: Path) -> Recording:
    source = str(path)
    try:
        with path.open(newline="", encoding="utf-8-sig") as file:
            header = [name.strip() for name in next(csv.reader(file), [])]
    except (UnicodeDecodeError, csv.Error) as error:
        raise DataError(source, f"is neither npz nor readable text ({error}); expected {CSV_FORM}") from None
    repeated = sorted({name for name in header if header.count(name) > 1})
    if repeated:
        raise DataError(source, "stands more than once in the header; name each column once", column=repeated[0])
    dof = _count_joints(source, header)
    wanted = {"t": ["t"]}
    for quantity in QUANTITIES:
        names = [f"{quantity}{joint}" for joint in range(dof)]
        present = [name for name in names if name in header]
        if quantity in ("q", "tau") or present:
            wanted[quantity] = names
    if "trajectory" in header:
        wanted["trajectory"] = ["trajectory"]
    for name in (name for names in wanted.values() for name in names):
        if name not in header:
            found = ", ".join(header[:40])
            raise DataError(source, f"is missing; the header has {found}; expected {CSV_FORM}", column=name)
    table = _table(path, header)
    columns = {key: table[:, [header.index(name) for name in names]] for key, names in wanted.items()}
    columns["t"] = columns["t"][:, 0]
    trajectory = columns.pop("trajectory", None)
    return _recording(source, columns, None if trajectory is None else trajectory[:, 0], Joints.revolute(dof))


def _count_joints(source: str, header: list[str]) -> int:
    """One more than the largest number behind any known quantity, so that a hole in the columns is seen as one."""
    pattern = re.compile(rf"({'|'.join(QUANTITIES)})(\d{{1,3}})")
    numbers = [int(match[2]) for name in header if (match := pattern.fullmatch(name))]
    if not numbers:
        raise DataError(source, f"no joint columns in the header ({', '.join(header[:40])}); expected {CSV_FORM}")
    return max(numbers) + 1


def _table(path: Path, header: list[str]) -> np.ndarray:
    """All cells as numbers; the slow way only to say which cell is none."""
    try:
        with warnings.catch_warnings(action="ignore"):  # an empty table is told below
            table = np.loadtxt(path, delimiter=",", skiprows=1, ndmin=2, encoding="utf-8-sig", comments=None)
        if table.shape[1] == len(header):
            return table
    except ValueError:
        pass
    with path.open(newline="", encoding="utf-8-sig") as file:
        reader = csv.reader(file)
        next(reader)
        rows = []
        for number, cells in enumerate(row for row in reader if row):
            if len(cells) != len(header):
                problem = f"expected {len(header)} cells as in the header, got {len(cells)}"
                raise DataError(str(path), problem, row=number)
            rows.append([_number(path, name, number, cell) for name, cell in zip(header, cells, strict=True)])
    if not rows:
        raise DataError(str(path), "has a header and no rows; record some motion")
    return np.array(rows)


def _number(path: Path, column: str, row: int, cell: str) -> float:
    try:
        return float(cell)
    except ValueError:
        problem = f"expected a number, got {cell!r}; mend the cell or remove the row"
        raise DataError(str(path), problem, column=column, row=row) from None


def _numbers(source: str, name: str, values: np.ndarray) -> np.ndarray:
    if values.dtype.kind not in "fiu":
        raise DataError(source, f"expected real numbers, got an array of type {values.dtype}", column=name)
    return values.astype(np.float64)


def _joints(source: str, names: tuple[str, ...], kinds: tuple[JointKind, ...], dof: int) -> Joints:
    if len(names) != dof or len(kinds) != dof:
        problem = f"expected one joint name and one kind for each of {dof} joints, got {len(names)} and {len(kinds)}"
        raise DataError(source, problem, column="joint_names" if len(names) != dof else "joint_kinds")
    try:
        return Joints(names, kinds)
    except DelanError as error:
        raise DataError(source, str(error)) from None


def _recording(source: str, columns: dict[str, np.ndarray], trajectory: np.ndarray | None, joints: Joints) -> Recording:
    if trajectory is None:
        labels = np.zeros(columns["t"].shape[0], dtype=int)
    else:
        with np.errstate(invalid="ignore"):
            numeric = trajectory.dtype.kind in "fiu"
            labels = trajectory.astype(int) if numeric else trajectory
        wrong = np.flatnonzero(labels != trajectory) if numeric else np.array([0])
        if len(wrong):
            row = int(wrong[0])
            problem = f"expected whole-number labels, got {trajectory.ravel()[row]!s}"
            raise DataError(source, problem, column="trajectory", row=row)
    return Recording(
        t=columns["t"],
        q=columns["q"],
        tau=columns["tau"],
        qd=columns.get("qd"),
        qdd=columns.get("qdd"),
        trajectory=labels,
        truth={name: columns[name] for name in COMPONENTS if name in columns},
        joints=joints,
        source=source,
    )
