"""ROS 2 bags (MCAP or SQLite): joint states, with torques or currents from other topics."""

import struct
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np

from ...errors import DataError, DelanError
from ...joints import Joints
from ..column_names import measures
from ..joint_messages import JOINT_MESSAGES, PARTS, STATE, JointMessage, joint_messages
from ..options import LogOptions
from . import Field, Pieces, PromisedSize, Sheet, library, library_errors, row_pieces

BAG_FORM = "a ROS 2 bag with a topic of sensor_msgs/msg/JointState that has position and effort"
_WHAT = "readable ROS 2 bag"
_OF_JOINTS = f"joints ({', '.join(JOINT_MESSAGES)})"
_READABLE = (STATE, "std_msgs/msg/Float64MultiArray", "std_msgs/msg/Float32MultiArray")
# How an MCAP file begins, and the kind of its records that hold messages.
_MCAP = b"\x89MCAP0\r\n"
_CHUNK = 6
# States of a topic that are examined to find its joints.
_FIRST_STATES = 50


@dataclass(frozen=True)
class _Plan:
    """Which topics and fields of a bag are read.

    Attributes:
        topic: topic of the joint states.
        names: names of the joints, empty if the states have none.
        dof: number of joints.
        parts: column of the sheet for each field of a state that is present.
        stamped: whether the states have time stamps of their own.
        extra: other topics, with torques or currents of the same joints, by column of the sheet.
    """

    topic: str
    names: tuple[str, ...]
    dof: int
    parts: Mapping[str, str]
    stamped: bool
    extra: Mapping[str, str]


def read_sheets(path: Path, options: LogOptions, gaps: bool) -> list[Sheet]:
    """Return the sheet in a bag; `options.map` may name the topics of q, tau and current."""
    source = str(path)
    with _opened(path) as bag:
        plan = _plan(source, bag, options)
    fields = {"t": Field(unit=1e-9)}
    for name in (*plan.parts.values(), *plan.extra):
        fields[name] = Field(shape=(-1, plan.dof))
    joints = None
    try:
        if plan.names:
            joints = Joints(plan.names, ("revolute",) * plan.dof)
    except DelanError as error:
        raise DataError(source, str(error)) from None
    sheet = Sheet(
        source=source,
        kind="arrays",
        form=BAG_FORM,
        fields=fields,
        pieces=partial(_pieces, path, plan),
        joints=joints,
    )
    return [sheet]


class _Bag:
    """An open bag: its topics, and their messages as Python objects."""

    def __init__(self, reader: Any, typestore: Any):
        self._reader = reader
        self._typestore = typestore
        self.kinds: dict[str, str] = {}
        for connection in reader.connections:
            self.kinds[connection.topic] = connection.msgtype
            self._define(connection)

    def _define(self, connection: Any) -> None:
        """Learn how a message is built that is no part of ROS itself; the bag says so."""
        kind = connection.msgtype
        if kind in JOINT_MESSAGES and kind not in self._typestore.types:
            types = library("rosbags.typesys", kind, "a ROS 2 bag")
            found = types.get_types_from_msg(connection.msgdef.data, kind)
            for name in self._typestore.types.keys() & found.keys():
                del found[name]
            self._typestore.register(found)

    def messages(self, topics: Sequence[str]) -> Iterator[tuple[str, int, Any]]:
        """Yield topic, time of arrival [ns] and message, in the order of arrival."""
        chosen = [link for link in self._reader.connections if link.topic in topics]
        if not chosen:
            return  # the reader takes an empty choice for all topics
        for connection, arrived, raw in self._reader.messages(chosen):
            message = self._typestore.deserialize_cdr(raw, connection.msgtype)
            yield connection.topic, arrived, message

    def widest(self, topic: str) -> JointMessage | None:
        """Return the state with the most joints among the first of a topic, None without states.

        A gripper may publish in the topic of the arm.
        """
        widest = None
        for _, _, message in islice(self.messages([topic]), _FIRST_STATES):
            for state in joint_messages(self.kinds[topic], message):
                if widest is None or len(state.part("position")) > len(widest.part("position")):
                    widest = state
        return widest

    def has_positions(self, topic: str) -> bool:
        widest = self.widest(topic)
        return widest is not None and len(widest.part("position")) > 0

    def has_torques(self, topic: str) -> bool:
        """Return whether the states of a topic have torques, or positions that were wanted."""
        widest = self.widest(topic)
        if widest is None:
            return False
        return bool(len(widest.part("effort")) or len(widest.part("wanted_position")))

    def described(self) -> str:
        """Return the topics and their types, for messages."""
        return ", ".join(f"{topic} ({kind})" for topic, kind in self.kinds.items()) or "nothing"


@contextmanager
def _opened(path: Path) -> Iterator[_Bag]:
    source = str(path)
    bags = library("rosbags.rosbag2", source, "a ROS 2 bag")
    types = library("rosbags.typesys", source, "a ROS 2 bag")
    with library_errors(source, _WHAT):
        for file in sorted(path.glob("*.mcap")) if path.is_dir() else [path]:
            _require_believable_chunks(file)
        reader = bags.Reader.STORAGE_PLUGINS[_plugin(path)](path)
        reader.open()
        try:
            yield _Bag(reader, types.get_typestore(types.Stores.LATEST))
        finally:
            reader.close()


def _require_believable_chunks(path: Path) -> None:
    """Refuse an MCAP file whose chunks claim more than it can hold; the reader unpacks them whole.

    A record is its kind, its length and its content; that of a chunk begins with two times and the
    size without compression (the MCAP format specification, "Records").
    """
    size = PromisedSize(path)
    with path.open("rb") as file:
        if file.read(len(_MCAP)) != _MCAP:
            return
        while len(head := file.read(9)) == 9:
            kind, length = struct.unpack("<BQ", head)
            begin = file.tell()
            if kind == _CHUNK:
                times_and_size = file.read(24)
                if len(times_and_size) < 24:
                    return
                size.add("chunk", struct.unpack("<QQQ", times_and_size)[2])
            if begin + length > 1 << 62:
                return
            file.seek(begin + length)


def _plugin(path: Path) -> str:
    """Return the name that rosbags gives to the storage of a bag."""
    if path.is_dir():
        return "dir"
    with path.open("rb") as file:
        if file.read(5) == b"\x89MCAP":
            return ".mcap"
    return ".db3"


def _plan(source: str, bag: _Bag, options: LogOptions) -> _Plan:
    mapped = {}
    for quantity in options.map:
        patterns = options.patterns(quantity)
        if patterns and len(patterns) == 1:
            mapped[quantity] = patterns[0]
    topic = _state_topic(source, bag, mapped.get("q"))
    first = bag.widest(topic)
    if first is None or not len(first.part("position")):
        raise DataError(source, f"topic {topic} holds no joint positions; expected {BAG_FORM}")
    dof = len(first.part("position"))
    if first.names and len(first.names) != dof:
        problem = f"topic {topic} has {len(first.names)} joint names and {dof} positions"
        raise DataError(source, problem)
    parts = {}
    for part, quantity in PARTS.items():
        values = first.part(part)
        if len(values) == dof and not np.isnan(values).all():
            parts[part] = quantity
            if mapped.get(quantity) == topic:
                parts[part] = topic
    extra = {}
    needed = "effort" not in parts
    for quantity in ("tau", "current"):
        # Beside torques, currents are read only if a gain makes torques of them.
        needed = needed and (options.gain is not None or not extra)
        other = mapped.get(quantity)
        if not other and needed:
            other = _topic_of(source, bag, quantity, topic)
        if other and other != topic and other in bag.kinds:
            if quantity == "tau":
                parts.pop("effort", None)
            extra[mapped.get(quantity, quantity)] = other
    return _Plan(topic, tuple(first.names), dof, parts, first.stamp is not None, extra)


def _state_topic(source: str, bag: _Bag, mapped: str | None) -> str:
    """Return the topic of the joint states: as mapped, the only one, or the likely one."""
    if mapped is not None:
        if bag.kinds.get(mapped) in JOINT_MESSAGES:
            return mapped
        problem = f"--map q={mapped} is not a topic of {_OF_JOINTS}; it has {bag.described()}"
        raise DataError(source, problem)
    of_kinds = []
    for kind in JOINT_MESSAGES:
        topics = [topic for topic, other in bag.kinds.items() if other == kind]
        if topics:
            of_kinds.append(topics)
    if not of_kinds:
        problem = f"has no topic of {_OF_JOINTS}, only {bag.described()}; expected {BAG_FORM}"
        raise DataError(source, problem)
    states = of_kinds[0]
    for topics in of_kinds if len(of_kinds) > 1 else ():
        if any(map(bag.has_torques, topics)):
            states = topics
            break
    if len(states) == 1:
        return states[0]
    likely = [topic for topic in states if topic.rpartition("/")[2] == "joint_states"]
    if len(likely) != 1:
        likely = list(filter(bag.has_positions, states))
    if len(likely) != 1:
        problem = f"several topics may hold the joints: {', '.join(states)}"
        raise DataError(source, f"{problem}; choose by --map q=TOPIC")
    return likely[0]


def _topic_of(source: str, bag: _Bag, quantity: str, states: str) -> str | None:
    """Return the topic besides the states whose name means the quantity."""
    topics = []
    for topic, kind in bag.kinds.items():
        readable = topic != states and kind in _READABLE
        if readable and measures(topic.strip("/")) == quantity:
            topics.append(topic)
    if len(topics) > 1:
        problem = f"several topics may hold {quantity}: {', '.join(topics)}"
        raise DataError(source, f"{problem}; choose by --map {quantity}=TOPIC")
    return next(iter(topics), None)


def _pieces(path: Path, plan: _Plan, wanted: Sequence[str], rows: int) -> Pieces:
    """Yield the states, with extra topics interpolated at their times of arrival."""
    block = _StateBlock(str(path), plan, rows)
    with _opened(path) as bag:
        for topic, arrived, message in bag.messages([plan.topic, *plan.extra.values()]):
            if topic != plan.topic:
                block.add_extra(topic, bag.kinds[topic], arrived, message)
                continue
            for state in joint_messages(bag.kinds[topic], message):
                if block.is_full:
                    yield from row_pieces(block.take(), wanted, rows)
                block.add(arrived, state)
        if not block.is_empty:
            yield from row_pieces(block.take(), wanted, rows)


class _StateBlock:
    """Collects states until they make a piece."""

    def __init__(self, source: str, plan: _Plan, rows: int):
        self._source = source
        self._plan = plan
        self._rows = rows
        # Times of arrival and values of each extra topic.
        self._extra: dict[str, tuple[list[int], list[np.ndarray]]] = {}
        for topic in plan.extra.values():
            self._extra[topic] = ([], [])
        self._clear()

    def _clear(self) -> None:
        self._stamps: list[int] = []
        self._arrivals: list[int] = []
        self._columns: dict[str, list[np.ndarray]] = {part: [] for part in self._plan.parts}

    @property
    def is_empty(self) -> bool:
        return not self._stamps

    @property
    def is_full(self) -> bool:
        """Whether a piece is complete, and its extra topics have arrived or are overdue."""
        if len(self._stamps) < self._rows:
            return False
        if len(self._stamps) >= 2 * self._rows:
            return True
        return all(times and times[-1] >= self._arrivals[-1] for times, _ in self._extra.values())

    def add(self, arrived: int, state: JointMessage) -> None:
        """Add a state."""
        order = self._order(state.names)
        if order is None:
            return
        self._stamps.append((state.stamp or 0) if self._plan.stamped else arrived)
        self._arrivals.append(arrived)
        for part, values in self._columns.items():
            values.append(self._values(state.part(part), order, part))

    def add_extra(self, topic: str, kind: str, arrived: int, message: Any) -> None:
        """Add a message of another topic."""
        if kind == STATE:
            order = self._order(message.name)
            # Drivers put currents into either field.
            numbers = message.effort if len(message.effort) else message.position
        else:
            order = list(range(self._plan.dof))
            numbers = message.data
        if order is None:
            return
        times, values = self._extra[topic]
        times.append(arrived)
        values.append(self._values(numbers, order, topic))

    def _order(self, given: Sequence[str]) -> list[int] | None:
        """Return the positions of the joints in a message, None if it is of other joints."""
        names = self._plan.names
        if not names or not given or tuple(given) == names:
            return list(range(self._plan.dof))
        if set(names).isdisjoint(given):
            return None
        order = []
        for name in names:
            if name not in given:
                problem = f"some messages lack joint {name}; record all joints in one topic"
                raise DataError(self._source, problem)
            order.append(list(given).index(name))
        return order

    def _values(self, numbers: Any, order: list[int], column: str) -> np.ndarray:
        values = np.asarray(numbers, dtype=np.float64)
        if len(values) <= max(order):
            problem = f"expected {self._plan.dof} numbers in every message, got {len(values)}"
            raise DataError(self._source, problem, column=column)
        return values[order]

    def take(self) -> dict[str, np.ndarray]:
        """Return the collected states as columns, and forget them."""
        columns = {"t": np.array(self._stamps, dtype=np.int64)}
        for part, name in self._plan.parts.items():
            columns[name] = np.array(self._columns[part])
        arrivals = np.array(self._arrivals, dtype=np.int64)
        for name, topic in self._plan.extra.items():
            columns[name] = self._interpolated(topic, arrivals)
        self._clear()
        return columns

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
