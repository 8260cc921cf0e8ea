"""Logs in every form, written by libraries that are not ours: `read_log` must read them back."""

import bz2
import collections
import csv
import gzip
import io
import json
import pickle
import sys
import types
import zipfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any
from unittest import mock

import h5py
import numpy as np
import pyarrow
import pyarrow.parquet
import scipy.io
import zstandard
from rosbags.rosbag2 import StoragePlugin, Writer
from rosbags.typesys import Stores, get_types_from_msg, get_typestore

NAMES = ("shoulder_pan_joint", "elbow_joint", "wrist_1_joint")
QUANTITIES = ("q", "qd", "tau")


def motion(samples: int = 60, dof: int = 3, seed: int = 0) -> dict[str, np.ndarray]:
    """Smooth joint motion at 100 Hz with velocities that fit it."""
    rng = np.random.default_rng(seed)
    t = np.arange(samples) * 0.01
    phase = 2 * np.pi * t[:, None] * rng.uniform(0.5, 2.0, dof) + rng.uniform(0, 6, dof)
    rate = np.gradient(phase, t, axis=0)
    return {
        "t": t,
        "q": np.sin(phase),
        "qd": rate * np.cos(phase),
        "tau": rng.normal(size=(samples, dof)),
    }


def columns(
    data: dict[str, np.ndarray], pattern: str = "{quantity}{joint}"
) -> dict[str, np.ndarray]:
    """One column a joint and quantity, named by a pattern."""
    made = {"t": data["t"]}
    for quantity in QUANTITIES:
        for joint in range(data[quantity].shape[1]):
            made[pattern.format(quantity=quantity, joint=joint)] = data[quantity][:, joint]
    return made


def write_csv(
    path: Path,
    data: dict[str, np.ndarray],
    *,
    delimiter: str = ",",
    comma: bool = False,
    before: str = "",
) -> Path:
    made = columns(data)
    with path.open("w", newline="") as file:
        file.write(before)
        writer = csv.writer(file, delimiter=delimiter)
        writer.writerow(made)
        for row in zip(*made.values(), strict=True):
            cells = [repr(float(value)) for value in row]
            writer.writerow([cell.replace(".", ",") for cell in cells] if comma else cells)
    return path


def write_parquet(path: Path, data: dict[str, np.ndarray]) -> Path:
    pyarrow.parquet.write_table(
        pyarrow.table(columns(data)), path, row_group_size=17 if len(data["t"]) < 1000 else 5000
    )
    return path


def write_parquet_lists(path: Path, data: dict[str, np.ndarray]) -> Path:
    lists = {name: list(values) if values.ndim == 2 else values for name, values in data.items()}
    pyarrow.parquet.write_table(pyarrow.table(lists), path)
    return path


def write_npz(path: Path, data: dict[str, np.ndarray]) -> Path:
    arrays: dict[str, Any] = data
    with path.open("wb") as file:
        np.savez_compressed(file, **arrays)
    return path


def write_mat(path: Path, data: dict[str, np.ndarray]) -> Path:
    scipy.io.savemat(path, data, appendmat=False)
    return path


def write_mat_struct(path: Path, data: dict[str, np.ndarray]) -> Path:
    lying = {name: values.T for name, values in data.items()}
    scipy.io.savemat(path, {"log": lying, "note": "made by hand"}, appendmat=False)
    return path


def write_hdf5(path: Path, data: dict[str, np.ndarray]) -> Path:
    with h5py.File(path, "w") as file:
        for name, values in data.items():
            file.create_dataset(name, data=values, chunks=True, compression="gzip")
        file["note"] = "text"
    return path


def write_mat73(path: Path, data: dict[str, np.ndarray]) -> Path:
    """As MATLAB does: a text before the file, and every matrix with its axes turned."""
    with h5py.File(path, "w", userblock_size=512) as file:
        for name, values in data.items():
            file[name] = np.atleast_2d(values) if values.ndim == 1 else values.T
    with path.open("r+b") as file:
        file.write(b"MATLAB 7.3 MAT-file, Platform: GLNXA64".ljust(124) + b"\x00\x02IM")
    return path


def write_bag(
    path: Path,
    data: dict[str, np.ndarray],
    *,
    storage: StoragePlugin = StoragePlugin.MCAP,
    topic: str = "/joint_states",
    beside: str | tuple[str, ...] = (),
    shuffled: bool = False,
) -> Path:
    """Joint states; with `beside` their efforts go to topics of these names, at other times."""
    store = get_typestore(Stores.ROS2_HUMBLE)
    state, header = store.types["sensor_msgs/msg/JointState"], store.types["std_msgs/msg/Header"]
    time, array = (
        store.types["builtin_interfaces/msg/Time"],
        store.types["std_msgs/msg/Float64MultiArray"],
    )
    layout = store.types["std_msgs/msg/MultiArrayLayout"](dim=[], data_offset=0)
    rng = np.random.default_rng(0)
    with Writer(path, version=9, storage_plugin=storage) as writer:
        states = writer.add_connection(topic, state.__msgtype__, typestore=store)
        names = [beside] if isinstance(beside, str) else beside
        others = [writer.add_connection(name, array.__msgtype__, typestore=store) for name in names]
        for row, t in enumerate(data["t"]):
            stamp = 1_700_000_000_000_000_000 + round(t * 1e9)
            order = rng.permutation(len(NAMES)) if shuffled and row else np.arange(len(NAMES))
            message = state(
                header=header(
                    stamp=time(sec=stamp // 10**9, nanosec=stamp % 10**9), frame_id="base"
                ),
                name=[NAMES[i] for i in order],
                position=data["q"][row, order],
                velocity=data["qd"][row, order],
                effort=np.zeros(0) if others else data["tau"][row, order],
            )
            writer.write(states, stamp, store.serialize_cdr(message, state.__msgtype__))
            for other in others:
                message = array(layout=layout, data=data["tau"][row])
                writer.write(
                    other, stamp + 2_000_000, store.serialize_cdr(message, array.__msgtype__)
                )
    return path


def write_topics(
    path: Path, topics: Mapping[str, Sequence[Mapping[str, Any] | np.ndarray]]
) -> Path:
    """A bag of many topics: joint states by their parts, or arrays of numbers; a message each 10
    ms, without stamps.
    """
    store = get_typestore(Stores.ROS2_HUMBLE)
    state, header = store.types["sensor_msgs/msg/JointState"], store.types["std_msgs/msg/Header"]
    time, array = (
        store.types["builtin_interfaces/msg/Time"],
        store.types["std_msgs/msg/Float64MultiArray"],
    )
    layout = store.types["std_msgs/msg/MultiArrayLayout"](dim=[], data_offset=0)
    unstamped = header(stamp=time(sec=0, nanosec=0), frame_id="")
    nothing = {"name": [], "position": np.zeros(0), "velocity": np.zeros(0), "effort": np.zeros(0)}
    with Writer(path, version=9, storage_plugin=StoragePlugin.MCAP) as writer:
        for topic, shown in topics.items():
            kind = array if shown and isinstance(shown[0], np.ndarray) else state
            connection = writer.add_connection(topic, kind.__msgtype__, typestore=store)
            for row, parts in enumerate(shown):
                if isinstance(parts, np.ndarray):
                    message = array(layout=layout, data=parts)
                else:
                    message = state(header=unstamped, **{**nothing, **parts})
                raw = store.serialize_cdr(message, kind.__msgtype__)
                writer.write(connection, 1_700_000_000_000_000_000 + row * 10_000_000, raw)
    return path


_CONTROLLER_FIELDS = {
    "controller": ("reference", "feedback", "error", "output"),
    "old_controller": ("desired", "actual", "error"),
}


def write_joint_messages(path: Path, data: dict[str, np.ndarray], kind: str) -> Path:
    """A bag of one topic: states of a controller, interfaces of joints, or one trajectory.

    A controller wants to be a tenth of a radian ahead of where it is.
    """
    store = get_typestore(Stores.ROS2_HUMBLE)
    point = "trajectory_msgs/JointTrajectoryPoint"
    fields = "".join(f"{point} {name}\n" for name in _CONTROLLER_FIELDS.get(kind, ()))
    head = "std_msgs/Header header\nstring[] joint_names\n"
    names = {
        "dynamic": "control_msgs/msg/DynamicJointState",
        "trajectory": "trajectory_msgs/msg/JointTrajectory",
    }
    name = names.get(kind, "control_msgs/msg/JointTrajectoryControllerState")
    if fields:
        store.register(get_types_from_msg(head + fields, name))
    if kind == "dynamic":
        values = "control_msgs/msg/InterfaceValue"
        store.register(get_types_from_msg("string[] interface_names\nfloat64[] values\n", values))
        interfaces = f"{head}{values.replace('/msg', '')}[] interface_values\n"
        store.register(get_types_from_msg(interfaces, name))
    stamps = [1_700_000_000_000_000_000 + round(t * 1e9) for t in data["t"]]
    types = store.types

    def header(stamp: int) -> Any:
        time = types["builtin_interfaces/msg/Time"](sec=stamp // 10**9, nanosec=stamp % 10**9)
        return types["std_msgs/msg/Header"](stamp=time, frame_id="")

    def state(row: int, ahead: float = 0.0) -> Any:
        since = stamps[row] - stamps[0]
        return types["trajectory_msgs/msg/JointTrajectoryPoint"](
            positions=data["q"][row] + ahead,
            velocities=data["qd"][row],
            accelerations=np.zeros(0),
            effort=data["tau"][row],
            time_from_start=types["builtin_interfaces/msg/Duration"](
                sec=since // 10**9, nanosec=since % 10**9
            ),
        )

    def content(row: int) -> dict[str, Any]:
        if kind == "trajectory":
            return {"points": [state(number) for number in range(len(stamps))]}
        if kind == "dynamic":
            columns = zip(data["q"][row], data["qd"][row], data["tau"][row], strict=True)
            interface = types["control_msgs/msg/InterfaceValue"]
            order = ["position", "velocity", "effort"]
            return {
                "interface_values": [
                    interface(interface_names=order, values=np.array(numbers))
                    for numbers in columns
                ]
            }
        wanted, measured, *others = _CONTROLLER_FIELDS[kind]
        points = {wanted: state(row, ahead=0.1), measured: state(row)}
        return points | {name: state(row) for name in others}

    with Writer(path, version=9, storage_plugin=StoragePlugin.MCAP) as writer:
        topic = writer.add_connection("/joints", name, typestore=store)
        for row, stamp in enumerate(stamps[:1] if kind == "trajectory" else stamps):
            joints = list(NAMES[: data["q"].shape[1]])
            message = types[name](header=header(stamp), joint_names=joints, **content(row))
            writer.write(topic, stamp, store.serialize_cdr(message, name))
    return path


def write_mcap(path: Path, data: dict[str, np.ndarray]) -> Path:
    """The storage of a bag alone, without its folder."""
    folder = write_bag(path.with_name(path.name + "_bag"), data)
    return next(folder.glob("*.mcap")).rename(path)


def write_db3(path: Path, data: dict[str, np.ndarray]) -> Path:
    folder = write_bag(path.with_name(path.name + "_bag"), data, storage=StoragePlugin.SQLITE3)
    return next(folder.glob("*.db3")).rename(path)


def write_json(path: Path, data: dict[str, np.ndarray]) -> Path:
    """Records inside an object with other values, as many tools write them."""
    path.write_text(json.dumps({"robot": "arm", "mass": 0.5, "entries": _records(data)}))
    return path


def write_json_lines(path: Path, data: dict[str, np.ndarray]) -> Path:
    path.write_text("\n".join(map(json.dumps, _records(data))) + "\n")
    return path


def _records(data: dict[str, np.ndarray]) -> list[dict[str, Any]]:
    rows = zip(*(values.tolist() for values in data.values()), strict=True)
    return [dict(zip(data, row, strict=True)) for row in rows]


def write_torch(path: Path, data: dict[str, np.ndarray]) -> Path:
    """As `torch.save` does: a zip archive of storages, and an index by pickle with their views."""

    class Pickler(pickle.Pickler):
        def persistent_id(self, obj: Any) -> Any:
            if isinstance(obj, np.ndarray):
                key = next(key for key, kept in enumerate(storages) if kept is obj)
                return ("storage", torch_name("torch", "DoubleStorage"), str(key), "cpu", obj.size)
            return None

    storages = [np.ascontiguousarray(values, dtype="<f8") for values in data.values()]
    index = io.BytesIO()
    tensors = {name: _Tensor(kept) for name, kept in zip(data, storages, strict=True)}
    with torch_names():
        Pickler(index, protocol=2).dump(tensors)
    with zipfile.ZipFile(path, "w", zipfile.ZIP_STORED) as archive:
        archive.writestr("log/data.pkl", index.getvalue())
        archive.writestr("log/byteorder", "little")
        for key, kept in enumerate(storages):
            archive.writestr(f"log/data/{key}", kept.tobytes())
        archive.writestr("log/version", "3\n")
    return path


class _Tensor:
    """Stands for a tensor: its pickle is the call that `torch` writes."""

    def __init__(self, values: np.ndarray):
        self.values = values

    def __reduce__(self) -> Any:
        strides = tuple(stride // 8 for stride in self.values.strides)
        hooks = collections.OrderedDict()
        arguments = (self.values, 0, self.values.shape, strides, False, hooks)
        return torch_name("torch._utils", "_rebuild_tensor_v2"), arguments


def torch_name(module: str, name: str) -> Any:
    return getattr(sys.modules[module], name)


@contextmanager
def torch_names() -> Iterator[None]:
    """Modules with the names that a torch file has; pickle writes only names that it can import."""
    made = {}
    for module, name in (("torch", "DoubleStorage"), ("torch._utils", "_rebuild_tensor_v2")):
        made[module] = types.ModuleType(module)
        stand_in = type(name, (), {"__module__": module})
        setattr(made[module], name, stand_in)
    with mock.patch.dict(sys.modules, made):
        yield


def write_packed(path: Path, data: dict[str, np.ndarray], pack: Callable[[bytes], bytes]) -> Path:
    path.write_bytes(pack(write_csv(path, data).read_bytes()))
    return path


def write_zip(path: Path, data: dict[str, np.ndarray]) -> Path:
    text = write_csv(path, data).read_bytes()
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("readme", "no log")
        archive.writestr("runs/arm.csv", text)
    return path


def write_parquet_gzip(path: Path, data: dict[str, np.ndarray]) -> Path:
    path.write_bytes(gzip.compress(write_parquet(path, data).read_bytes()))
    return path


WRITERS: dict[str, Callable[[Path, dict[str, np.ndarray]], Path]] = {
    "csv": write_csv,
    "parquet": write_parquet,
    "parquet lists": write_parquet_lists,
    "npz": write_npz,
    "mat": write_mat,
    "mat struct": write_mat_struct,
    "mat 7.3": write_mat73,
    "hdf5": write_hdf5,
    "mcap": write_mcap,
    "sqlite": write_db3,
    "json": write_json,
    "json lines": write_json_lines,
    "torch": write_torch,
}

# Logs inside other files.
PACKED_WRITERS: dict[str, Callable[[Path, dict[str, np.ndarray]], Path]] = {
    "gzip": partial(write_packed, pack=gzip.compress),
    "bzip2": partial(write_packed, pack=bz2.compress),
    "zstd": partial(write_packed, pack=zstandard.compress),
    "zip": write_zip,
    "parquet in gzip": write_parquet_gzip,
}
