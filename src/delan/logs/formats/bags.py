"""ROS 2 bags (MCAP or SQLite): joint states, with torques or currents from other topics."""

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
# Fields of a joint state.
_PARTS = {"q": "position", "qd": "velocity", "tau": "effort"}
# States of a topic that are examined to find its joints.
_FIRST_STATES = 50


def is_bag(head: bytes) -> bool:
    """Return whether a file with these first bytes is the storage of a bag."""
    return head.startswith(tuple(_PLUGINS))


def is_bag_folder(path: Path) -> bool:
    """Return whether a folder is a bag, not a folder of logs."""
    return (path / "metadata.yaml").is_file()


@dataclass(frozen=True)
class _ExtraTopic:
    """A topic besides the joint states that holds torques or currents of the same joints."""

    topic: str
    field: str
    is_state: bool


@dataclass(frozen=True)
class _Plan:
    """Which topics and fields of a bag are read.

    Attributes:
        topic: topic of the joint states.
        names: names of the joints, empty if the states have none.
        dof: number of joints.
        parts: column of the sheet for each field of a state that is present.
        stamped: whether the states have time stamps of their own.
        extra: other topics.
    """

    topic: str
    names: tuple[str, ...]
    dof: int
    parts: Mapping[str, str]
    stamped: bool
    extra: tuple[_ExtraTopic, ...]


class _Bag:
    """An open bag: its topics, and their messages as Python objects."""

    def __init__(self, reader: Any, typestore: Any):
        self._reader = reader
        self._typestore = typestore
        self.kinds = {connection.topic: connection.msgtype for connection in reader.connections}

    def messages(self, topics: Sequence[str]) -> Iterator[tuple[str, int, Any]]:
        """Yield topic, time of arrival [ns] and message, in the order of arrival."""
        chosen = [link for link in self._reader.connections if link.topic in topics]
        if not chosen:
            return  # the reader takes an empty choice for all topics
        for connection, arrived, raw in self._reader.messages(chosen):
            message = self._typestore.deserialize_cdr(raw, connection.msgtype)
            yield connection.topic, arrived, message

    def widest(self, topic: str) -> Any:
        """Return the state with the most joints among the first ones of a topic.

        A gripper may publish in the topic of the arm.
        """
        states = (message for _, _, message in self.messages([topic]))
        return max(
            islice(states, _FIRST_STATES), key=lambda state: len(state.position), default=None
        )


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


def read_bag(
    path: Path, mapped: Mapping[str, tuple[str, ...]], *, currents: bool = False
) -> list[Sheet]:
    """Return the sheet in a bag.

    `mapped` may name the topics of q, tau and current; `currents` asks for currents beside torques.
    """
    source = str(path)
    with _opened(path) as bag:
        topics = {name: patterns[0] for name, patterns in mapped.items() if len(patterns) == 1}
        plan = _plan(source, bag, topics, currents)
    fields = {"t": Field(unit=1e-9)}
    for name in (*plan.parts.values(), *(extra.field for extra in plan.extra)):
        fields[name] = Field(shape=(-1, plan.dof))
    try:
        joints = Joints(plan.names, ("revolute",) * plan.dof) if plan.names else None
    except DelanError as error:
        raise DataError(source, str(error)) from None

    def pieces(wanted: Sequence[str], rows: int) -> Pieces:
        with _opened(path) as bag:
            for block in _blocks(source, bag, plan, rows):
                yield {name: block[name] for name in wanted}

    return [
        Sheet(
            source=source, kind="arrays", form=BAG_FORM, fields=fields, pieces=pieces, joints=joints
        )
    ]


def _plan(source: str, bag: _Bag, mapped: Mapping[str, str], currents: bool) -> _Plan:
    topic = _state_topic(source, bag, mapped)
    first = bag.widest(topic)
    if first is None or not len(first.position):
        raise DataError(source, f"topic {topic} holds no joint positions; expected {BAG_FORM}")
    dof = len(first.position)
    if first.name and len(first.name) != dof:
        problem = f"topic {topic} has {len(first.name)} joint names and {dof} positions"
        raise DataError(source, problem)
    parts = {}
    for quantity, part in _PARTS.items():
        values = getattr(first, part)
        if len(values) == dof and not np.isnan(values).all():
            parts[part] = topic if mapped.get(quantity) == topic else quantity
    extra: list[_ExtraTopic] = []
    needed = "effort" not in parts
    for quantity in ("tau", "current"):
        # Beside torques, currents are read only if a gain makes torques of them.
        needed = needed and (currents or not extra)
        other = mapped.get(quantity)
        if not other and needed:
            other = _topic_of(source, bag, quantity, topic)
        if other and other != topic and other in bag.kinds:
            field = other if quantity in mapped else quantity
            if quantity == "tau":
                parts.pop("effort", None)
            extra.append(_ExtraTopic(other, field, bag.kinds[other] == _STATE))
    stamped = first.header.stamp.sec != 0 or first.header.stamp.nanosec != 0
    return _Plan(topic, tuple(first.name), dof, parts, stamped, tuple(extra))


def _state_topic(source: str, bag: _Bag, mapped: Mapping[str, str]) -> str:
    states = [topic for topic, kind in bag.kinds.items() if kind == _STATE]
    if "q" in mapped:
        if mapped["q"] in states:
            return mapped["q"]
        problem = f"--map q={mapped['q']} is no topic of {_STATE}; it has {_topics(bag)}"
        raise DataError(source, problem)
    if not states:
        problem = f"has no topic of {_STATE}, only {_topics(bag)}; expected {BAG_FORM}"
        raise DataError(source, problem)
    if len(states) == 1:
        return states[0]
    likely = [topic for topic in states if topic.rpartition("/")[2] == "joint_states"]
    if len(likely) != 1:
        likely = [topic for topic in states if _has_positions(bag, topic)]
    if len(likely) != 1:
        problem = f"several topics may hold the joints: {', '.join(states)}"
        raise DataError(source, f"{problem}; choose by --map q=TOPIC")
    return likely[0]


def _has_positions(bag: _Bag, topic: str) -> bool:
    first = bag.widest(topic)
    return first is not None and len(first.position) > 0


def _topic_of(source: str, bag: _Bag, quantity: str, states: str) -> str | None:
    """Return the topic besides the states whose name means the quantity."""
    topics = []
    for topic, kind in bag.kinds.items():
        readable = topic != states and kind in (_STATE, *_ARRAYS)
        if readable and measures(topic.strip("/")) == quantity:
            topics.append(topic)
    if len(topics) > 1:
        problem = f"several topics may hold {quantity}: {', '.join(topics)}"
        raise DataError(source, f"{problem}; choose by --map {quantity}=TOPIC")
    return topics[0] if topics else None


def _topics(bag: _Bag) -> str:
    return ", ".join(f"{topic} ({kind})" for topic, kind in bag.kinds.items()) or "nothing"


def _blocks(source: str, bag: _Bag, plan: _Plan, rows: int) -> Iterator[dict[str, np.ndarray]]:
    """Yield the states, with extra topics interpolated at their times of arrival."""
    block = _StateBlock(source, plan, rows)
    extra_topics = {extra.topic: extra for extra in plan.extra}
    for topic, arrived, message in bag.messages([plan.topic, *extra_topics]):
        if topic in extra_topics:
            block.add_extra(extra_topics[topic], arrived, message)
        else:
            if block.is_full:
                yield from block.take()
            block.add(arrived, message)
    yield from block.take()


class _StateBlock:
    """Collects states until they make a piece."""

    def __init__(self, source: str, plan: _Plan, rows: int):
        self._source = source
        self._plan = plan
        self._rows = rows
        # Times of arrival and values of each extra topic.
        self._extra: dict[str, tuple[list[int], list[np.ndarray]]] = {}
        for extra in plan.extra:
            self._extra[extra.topic] = ([], [])
        self._clear()

    def _clear(self) -> None:
        self._stamps: list[int] = []
        self._arrivals: list[int] = []
        self._columns: dict[str, list[np.ndarray]] = {part: [] for part in self._plan.parts}

    @property
    def is_full(self) -> bool:
        """Whether a piece is complete, and its extra topics have arrived or are overdue."""
        if len(self._stamps) < self._rows:
            return False
        if len(self._stamps) >= 2 * self._rows:
            return True
        return all(times and times[-1] >= self._arrivals[-1] for times, _ in self._extra.values())

    def add(self, arrived: int, message: Any) -> None:
        order = self._order(message)
        if order is None:
            return
        time = arrived
        if self._plan.stamped:
            time = message.header.stamp.sec * 1_000_000_000 + message.header.stamp.nanosec
        self._stamps.append(time)
        self._arrivals.append(arrived)
        for part, values in self._columns.items():
            values.append(self._values(getattr(message, part), order, part))

    def add_extra(self, extra: _ExtraTopic, arrived: int, message: Any) -> None:
        order: list[int] | None = list(range(self._plan.dof))
        numbers = None
        if extra.is_state:
            order = self._order(message)
            # Drivers put currents into either field.
            numbers = message.effort if len(message.effort) else message.position
        else:
            numbers = message.data
        if order is None:
            return
        times, values = self._extra[extra.topic]
        times.append(arrived)
        values.append(self._values(numbers, order, extra.topic))

    def _order(self, message: Any) -> list[int] | None:
        """Return the positions of the joints in a message, None if it is of other joints."""
        names = self._plan.names
        if not names or not message.name or tuple(message.name) == names:
            return list(range(self._plan.dof))
        position = {name: i for i, name in enumerate(message.name)}
        missing = [name for name in names if name not in position]
        if len(missing) == len(names):
            return None
        if missing:
            problem = f"some messages lack joint {missing[0]}; record all joints in one topic"
            raise DataError(self._source, problem)
        return [position[name] for name in names]

    def _values(self, numbers: Any, order: list[int], column: str) -> np.ndarray:
        values = np.asarray(numbers, dtype=np.float64)
        if len(values) <= max(order):
            problem = f"expected {self._plan.dof} numbers in every message, got {len(values)}"
            raise DataError(self._source, problem, column=column)
        return values[order]

    def take(self) -> Iterator[dict[str, np.ndarray]]:
        """Yield the collected states in pieces and forget them."""
        if not self._stamps:
            return
        block = {"t": np.array(self._stamps, dtype=np.int64)}
        for part, name in self._plan.parts.items():
            block[name] = np.array(self._columns[part])
        arrivals = np.array(self._arrivals, dtype=np.int64)
        for extra in self._plan.extra:
            block[extra.field] = self._interpolated(extra.topic, arrivals)
        self._clear()
        for start in range(0, len(arrivals), self._rows):
            yield {name: values[start : start + self._rows] for name, values in block.items()}

    def _interpolated(self, topic: str, arrivals: np.ndarray) -> np.ndarray:
        times, values = self._extra[topic]
        if not times:
            problem = f"topic {topic} has no messages while the joints move; leave it out"
            raise DataError(self._source, problem)
        # Nanoseconds since 1970 would be rounded in float64.
        known = np.array(times, dtype=np.int64) - arrivals[0]
        wanted = arrivals - arrivals[0]
        table = np.array(values)
        # The next piece still needs the last message before it.
        done = max(0, int(np.searchsorted(known, wanted[-1], side="right")) - 1)
        del times[:done]
        del values[:done]
        return np.stack([np.interp(wanted, known, column) for column in table.T], axis=1)
