"""ROS 2 bags, MCAP or sqlite: joint states, with torques or currents from a topic beside them if need be."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np

from ...errors import DataError, DelanError
from ...joints import Joints
from ..column_names import measures
from .sheet import Field, Pieces, Sheet, foreign, package

BAG_FORM = "a ROS 2 bag with a topic of sensor_msgs/msg/JointState that has position and effort"
_WHAT = "readable ROS 2 bag"
_PLUGINS = {b"\x89MCAP0\r\n": ".mcap", b"SQLite format 3\0": ".db3"}
_STATE = "sensor_msgs/msg/JointState"
_ARRAYS = ("std_msgs/msg/Float64MultiArray", "std_msgs/msg/Float32MultiArray")
_PARTS = {"q": "position", "qd": "velocity", "tau": "effort"}
"""Where a joint state keeps our quantities."""
_FIRST = 50
"""States of a topic that are looked at to know its joints."""


def is_bag(head: bytes) -> bool:
    """Whether a file that begins so is the storage of a bag."""
    return head.startswith(tuple(_PLUGINS))


def is_bag_folder(path: Path) -> bool:
    """Whether a folder is a bag itself, not a folder of logs."""
    return (path / "metadata.yaml").is_file()


@dataclass(frozen=True)
class _Beside:
    """A topic beside the joint states that holds the torques or currents of the same joints."""

    topic: str
    field: str
    is_state: bool


@dataclass(frozen=True)
class _Plan:
    """What to take from a bag.

    Attributes:
        topic: of the joint states.
        names: the joints, as the states name them; empty if they do not.
        dof: how many there are.
        parts: the field of the sheet for each part of a state that is there.
        stamped: whether the states carry times of their own.
        beside: further topics.
    """

    topic: str
    names: tuple[str, ...]
    dof: int
    parts: Mapping[str, str]
    stamped: bool
    beside: tuple[_Beside, ...]


class _Bag:
    """An open bag: its topics, and their messages as Python objects."""

    def __init__(self, reader: Any, typestore: Any):
        self._reader, self._typestore = reader, typestore
        self.kinds = {each.topic: each.msgtype for each in reader.connections}

    def messages(self, topics: Sequence[str]) -> Iterator[tuple[str, int, Any]]:
        """Topic, time of arrival [ns] and message, in the order of arrival."""
        chosen = [each for each in self._reader.connections if each.topic in topics]
        if chosen:
            for connection, arrived, raw in self._reader.messages(chosen):
                yield connection.topic, arrived, self._typestore.deserialize_cdr(raw, connection.msgtype)

    def widest(self, topic: str) -> Any:
        """Of the first states of a topic, the one with the most joints: a gripper may publish where the arm does."""
        states = (message for _, _, message in self.messages([topic]))
        return max(islice(states, _FIRST), key=lambda one: len(one.position), default=None)


@contextmanager
def _opened(path: Path) -> Iterator[_Bag]:
    source = str(path)
    bags = package("rosbags.rosbag2", source, "a ROS 2 bag")
    types = package("rosbags.typesys", source, "a ROS 2 bag")
    with foreign(source, _WHAT):
        reader = bags.Reader.STORAGE_PLUGINS[_plugin(path)](path)
        reader.open()
        try:
            yield _Bag(reader, types.get_typestore(types.Stores.LATEST))
        finally:
            reader.close()


def _plugin(path: Path) -> str:
    if path.is_dir():
        return "dir"
    with path.open("rb") as file:
        head = file.read(16)
    return next(name for magic, name in _PLUGINS.items() if head.startswith(magic))


def read_bag(path: Path, mapped: Mapping[str, tuple[str, ...]], *, currents: bool = False) -> list[Sheet]:
    """The sheet in a bag; `mapped` may name the topics of q, tau and current, `currents` wants these beside torques."""
    source = str(path)
    with _opened(path) as bag:
        topics = {name: patterns[0] for name, patterns in mapped.items() if len(patterns) == 1}
        plan = _plan(source, bag, topics, currents)
    fields = {"t": Field(unit=1e-9)}
    for name in (*plan.parts.values(), *(each.field for each in plan.beside)):
        fields[name] = Field(shape=(-1, plan.dof))
    try:
        joints = Joints(plan.names, ("revolute",) * plan.dof) if plan.names else None
    except DelanError as error:
        raise DataError(source, str(error)) from None

    def pieces(wanted: Sequence[str], rows: int) -> Pieces:
        with _opened(path) as bag:
            for block in _blocks(source, bag, plan, rows):
                yield {name: block[name] for name in wanted}

    return [Sheet(source=source, kind="arrays", form=BAG_FORM, fields=fields, pieces=pieces, joints=joints)]


def _plan(source: str, bag: _Bag, mapped: Mapping[str, str], currents: bool) -> _Plan:
    topic = _state_topic(source, bag, mapped)
    first = bag.widest(topic)
    if first is None or not len(first.position):
        raise DataError(source, f"topic {topic} holds no joint positions; expected {BAG_FORM}")
    dof = len(first.position)
    if first.name and len(first.name) != dof:
        raise DataError(source, f"topic {topic} names {len(first.name)} joints and tells the positions of {dof}")
    parts = {}
    for quantity, part in _PARTS.items():
        values = getattr(first, part)
        if len(values) == dof and not np.isnan(values).all():
            parts[part] = topic if mapped.get(quantity) == topic else quantity
    beside: list[_Beside] = []
    needed = "effort" not in parts
    for quantity in ("tau", "current"):
        needed = needed and (currents or not beside)  # where torques are and no gain, nobody asks for currents
        other = mapped.get(quantity) or (_topic_of(source, bag, quantity, topic) if needed else None)
        if other is not None and other != topic and other in bag.kinds:
            field = other if quantity in mapped else quantity
            if quantity == "tau":
                parts.pop("effort", None)
            beside.append(_Beside(other, field, bag.kinds[other] == _STATE))
    stamped = first.header.stamp.sec != 0 or first.header.stamp.nanosec != 0
    return _Plan(topic, tuple(first.name), dof, parts, stamped, tuple(beside))


def _state_topic(source: str, bag: _Bag, mapped: Mapping[str, str]) -> str:
    states = [topic for topic, kind in bag.kinds.items() if kind == _STATE]
    if "q" in mapped:
        if mapped["q"] in states:
            return mapped["q"]
        raise DataError(source, f"--map q={mapped['q']} is no topic of {_STATE}; it has {_told(bag)}")
    if not states:
        raise DataError(source, f"has no topic of {_STATE}, only {_told(bag)}; expected {BAG_FORM}")
    likely = [topic for topic in states if topic.rpartition("/")[2] == "joint_states"]
    if len(states) > 1:
        states = likely if len(likely) == 1 else [topic for topic in states if _has_positions(bag, topic)]
    if len(states) != 1:
        told = ", ".join(topic for topic, kind in bag.kinds.items() if kind == _STATE)
        raise DataError(source, f"several topics may hold the joints: {told}; say which by --map q=TOPIC")
    return states[0]


def _has_positions(bag: _Bag, topic: str) -> bool:
    first = bag.widest(topic)
    return first is not None and len(first.position) > 0


def _topic_of(source: str, bag: _Bag, quantity: str, states: str) -> str | None:
    """The topic beside the states whose name says the quantity."""
    found = [
        topic
        for topic, kind in bag.kinds.items()
        if kind in (_STATE, *_ARRAYS) and topic != states and measures(topic.strip("/")) == quantity
    ]
    if len(found) > 1:
        problem = f"several topics may hold {quantity}: {', '.join(found)}; say which by --map {quantity}=TOPIC"
        raise DataError(source, problem)
    return found[0] if found else None


def _first_part(state: Any) -> Any:
    """What a state beside the states tells: drivers put currents into either."""
    return state.effort if len(state.effort) else state.position


def _told(bag: _Bag) -> str:
    return ", ".join(f"{topic} ({kind})" for topic, kind in bag.kinds.items()) or "nothing"


def _blocks(source: str, bag: _Bag, plan: _Plan, rows: int) -> Iterator[dict[str, np.ndarray]]:
    """The states, so many at a time; what lies beside them is interpolated at their times of arrival."""
    block = _Block(source, plan, rows)
    beside = {each.topic: each for each in plan.beside}
    for topic, arrived, message in bag.messages([plan.topic, *beside]):
        if topic in beside:
            block.add_beside(beside[topic], arrived, message)
        else:
            if block.is_full:
                yield from block.take()
            block.add(arrived, message)
    yield from block.take()


class _Block:
    """States on their way to a piece."""

    def __init__(self, source: str, plan: _Plan, rows: int):
        self._source, self._plan, self._rows = source, plan, rows
        self._beside: dict[str, tuple[list[int], list[np.ndarray]]] = {each.topic: ([], []) for each in plan.beside}
        self._clear()

    def _clear(self) -> None:
        self._stamps: list[int] = []
        self._arrivals: list[int] = []
        self._columns: dict[str, list[np.ndarray]] = {part: [] for part in self._plan.parts}

    @property
    def is_full(self) -> bool:
        """So many states, and what lies beside them has arrived too, or is long overdue."""
        if len(self._stamps) < self._rows:
            return False
        waits = [times for times, _ in self._beside.values() if not times or times[-1] < self._arrivals[-1]]
        return not waits or len(self._stamps) >= 2 * self._rows

    def add(self, arrived: int, message: Any) -> None:
        order = self._order(message)
        if order is None:
            return
        stamp = message.header.stamp
        self._stamps.append(stamp.sec * 1_000_000_000 + stamp.nanosec if self._plan.stamped else arrived)
        self._arrivals.append(arrived)
        for part, values in self._columns.items():
            values.append(self._values(getattr(message, part), order, part))

    def add_beside(self, beside: _Beside, arrived: int, message: Any) -> None:
        order = self._order(message) if beside.is_state else list(range(self._plan.dof))
        if order is None:
            return
        told = _first_part(message) if beside.is_state else message.data
        times, values = self._beside[beside.topic]
        times.append(arrived)
        values.append(self._values(told, order, beside.topic))

    def _order(self, message: Any) -> list[int] | None:
        """Where the joints of the plan stand in a message; None if it is of other joints."""
        if not self._plan.names or not message.name:
            return list(range(self._plan.dof))
        if tuple(message.name) == self._plan.names:
            return list(range(self._plan.dof))
        at = {name: i for i, name in enumerate(message.name)}
        there = [at[name] for name in self._plan.names if name in at]
        if there and len(there) < self._plan.dof:
            lost = next(name for name in self._plan.names if name not in at)
            raise DataError(self._source, f"some messages lack joint {lost}; record all joints in one topic")
        return there or None

    def _values(self, told: Any, order: list[int], what: str) -> np.ndarray:
        values = np.asarray(told, dtype=np.float64)
        if len(values) <= max(order):
            problem = f"expected {self._plan.dof} numbers in every message, got {len(values)}"
            raise DataError(self._source, problem, column=what)
        return values[order]

    def take(self) -> Iterator[dict[str, np.ndarray]]:
        """What is here, in pieces."""
        if not self._stamps:
            return
        block = {"t": np.array(self._stamps, dtype=np.int64)}
        for part, name in self._plan.parts.items():
            block[name] = np.array(self._columns[part])
        arrivals = np.array(self._arrivals, dtype=np.int64)
        for each in self._plan.beside:
            block[each.field] = self._at(each.topic, arrivals)
        self._clear()
        for start in range(0, len(arrivals), self._rows):
            yield {name: values[start : start + self._rows] for name, values in block.items()}

    def _at(self, topic: str, arrivals: np.ndarray) -> np.ndarray:
        times, values = self._beside[topic]
        if not times:
            raise DataError(self._source, f"topic {topic} is silent while the joints move; leave it out")
        zero = arrivals[0]
        known, wanted = np.array(times, dtype=np.int64) - zero, arrivals - zero
        table = np.array(values)
        keep = max(0, int(np.searchsorted(known, wanted[-1], side="right")) - 1)
        del times[:keep], values[:keep]
        return np.stack([np.interp(wanted, known, table[:, joint]) for joint in range(table.shape[1])], axis=1)
