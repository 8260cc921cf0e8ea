"""Channels between real processes: what arrives is whole and in order, what is lost is counted,
nobody hangs.
"""

import errno
import fcntl
import multiprocessing
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from multiprocessing.shared_memory import SharedMemory
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from delan.errors import DelanError, SettingsError
from delan.online import channels
from delan.online.channels import (
    ChannelError,
    Latest,
    RowLayout,
    Stream,
    sweep,
)
from delan.online.process import is_alive, undo_all

SPAWN = multiprocessing.get_context("spawn")
SEGMENTS = Path("/dev/shm")


def until(condition: Callable[[], Any]) -> None:
    """Wait for another process, which may be slow, but not for ever."""
    end = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < end, "the other process did not answer"
        time.sleep(0.001)


@pytest.fixture
def start() -> Iterator[Callable[..., Any]]:
    """Starts processes, and ends them with the test."""
    processes = []

    def begin(target: Callable[..., None], *args: Any) -> Any:
        process = SPAWN.Process(target=target, args=args, daemon=True)
        process.start()
        processes.append(process)
        return process

    yield begin
    for process in processes:
        process.kill()
        process.join()


def write_rows(name: str, count: int) -> None:
    """Row k is k, k, k, …, so that a torn row shows."""
    stream = Stream.attach(name)
    for k in range(count):
        stream.write(np.full(stream.width, float(k)))


def publish_for_ever(name: str) -> None:
    latest = Latest.attach(name)
    while True:
        latest.write(np.full(latest.width, float(latest.written)))


def publish_once(name: str, value: float) -> None:
    with Latest.attach(name) as latest:
        latest.write(np.full(latest.width, value))


def die_half_way(kind: type[Stream] | type[Latest], name: str) -> None:
    """Begin to write, and be killed when the numbers are there and the rest is not."""
    channel = kind.attach(name)
    channels.checksum = lambda rows: os.kill(os.getpid(), signal.SIGKILL)
    channel.write(np.full(channel.width, -1.0))


def test_rows_come_in_order_and_once():
    with Stream(8, 2) as stream:
        assert stream.read().shape == (0, 2)
        for k in range(5):
            stream.write([k, -k])
        np.testing.assert_array_equal(stream.read(), [[k, -k] for k in range(5)])
        assert stream.read().shape == (0, 2)
        stream.write(np.array([[7.0, 8.0], [9.0, 10.0]])[:, 1])  # a strided row
        np.testing.assert_array_equal(stream.read(), [[8, 10]])
        assert (stream.written, stream.lost, stream.unread) == (6, 0, 0)


def test_a_full_ring_loses_the_oldest_and_counts_them():
    with Stream(8, 1) as stream:
        for k in range(20):
            stream.write([k])
        assert stream.unread == 20
        np.testing.assert_array_equal(stream.read()[:, 0], np.arange(12, 20))
        assert stream.lost == 12


def test_a_reader_that_takes_over_goes_on_or_reads_again():
    with Stream(8, 1) as stream:
        for k in range(6):
            stream.write([k])
        with Stream.attach(stream.name) as first:
            assert len(first.read()) == 6
        stream.write([6])
        with Stream.attach(stream.name) as second:
            np.testing.assert_array_equal(second.read()[:, 0], [6])
        for k in range(7, 10):
            stream.write([k])
        with Stream.attach(stream.name) as third:
            np.testing.assert_array_equal(third.read(again=True)[:, 0], np.arange(2, 10))
        assert stream.lost == 0


@pytest.mark.parametrize("capacity", [1 << 15, 16])
def test_between_processes_every_row_is_read_or_counted(capacity, start):
    count, parts = 20_000, []
    with Stream(capacity, 30) as stream:
        process = start(write_rows, stream.name, count)

        def read() -> bool:
            parts.append(stream.read())
            return stream.written == count and stream.unread == 0

        until(read)
        process.join()
        rows = np.concatenate(parts)
        assert (rows == rows[:, :1]).all(), "a torn row"
        assert (np.diff(rows[:, 0]) > 0).all()
        assert len(rows) + stream.lost == count
        assert (stream.lost == 0) == (capacity > count)


class Overrun:
    """The numbers of a ring whose writer runs over them in the middle of a copy."""

    def __init__(self, data: np.ndarray, overrun: Callable[[], Any]):
        self._data, self._overrun = data, overrun

    def __getitem__(self, slots: Any) -> np.ndarray:
        rows = self._data[slots].copy()
        self._overrun()
        rows[..., 1:] = self._data[slots][..., 1:]
        return rows


def test_a_row_overwritten_while_it_is_copied_is_lost_not_torn(monkeypatch):
    with Stream(4, 2) as writer, Stream.attach(writer.name) as reader:
        for k in range(4):
            writer.write([k, k])
        with monkeypatch.context() as patch:
            patch.setattr(
                reader,
                "_data",
                Overrun(reader._data, lambda: [writer.write([9, 9]) for _ in range(3)]),
            )
            np.testing.assert_array_equal(reader.read(), [[3, 3]])
        assert reader.lost == 3
        np.testing.assert_array_equal(reader.read(), [[9, 9]] * 3)


def test_a_place_overwritten_at_every_try_is_left(monkeypatch):
    with Latest(2) as writer, Latest.attach(writer.name) as reader:
        writer.write([1, 1])
        with monkeypatch.context() as patch:
            patch.setattr(
                reader,
                "_data",
                Overrun(reader._data, lambda: [writer.write([2, 2]) for _ in range(4)]),
            )
            assert reader.read() is None
            assert reader._seen == 0
        np.testing.assert_array_equal(reader.read(), [2, 2])


@pytest.mark.parametrize("damage", ["_data", "_sums"])
def test_numbers_that_do_not_match_their_checksum_are_refused(damage):
    with Stream(4, 2) as stream, Latest(2) as latest:
        for channel in (stream, latest):
            channel.write([1.0, 2.0])
            getattr(channel, damage)[0] += 1
        assert len(stream.read()) == 0
        assert stream.lost == 1
        assert latest.read() is None


def test_the_newest_wins_and_comes_once_to_every_reader():
    with Latest(3) as latest, Latest.attach(latest.name) as other:
        assert latest.read() is None
        latest.write([1, 2, 3])
        latest.write([4, 5, np.nan])
        for reader in (latest, other):
            np.testing.assert_array_equal(reader.read(), [4, 5, np.nan])
            assert reader.read() is None
            assert reader._seen == 2
        with Latest.attach(latest.name) as newcomer:
            np.testing.assert_array_equal(newcomer.read(), [4, 5, np.nan])


def test_what_is_read_stays_as_it_was():
    with Latest(2) as latest, Stream(2, 2) as stream:
        latest.write([1, 1])
        stream.write([1, 1])
        row, rows = latest.read(), stream.read()
        for _ in range(9):
            latest.write([2, 2])
            stream.write([2, 2])
        np.testing.assert_array_equal(row, [1, 1])
        np.testing.assert_array_equal(rows, [[1, 1]])


def test_ten_thousand_reads_beside_a_hammering_writer_are_whole(start):
    with Latest(3000) as latest:
        start(publish_for_ever, latest.name)
        versions = []

        def read() -> bool:
            for _ in range(10_000):
                row = latest.read()
                if row is not None:
                    assert (row == row[0]).all(), "a torn row"
                    assert row[0] == latest._seen - 1
                    versions.append(latest._seen)
            return len(versions) > 100

        until(read)
        assert (np.diff(versions) > 0).all()


@pytest.mark.parametrize("kind", [Stream, Latest])
def test_a_writer_killed_half_way_costs_its_row_alone(kind, start):
    with Stream(4, 50) if kind is Stream else Latest(50) as channel:
        for k in range(3):
            channel.write(np.full(50, float(k)))
        process = start(die_half_way, kind, channel.name)
        process.join()
        assert process.exitcode == -signal.SIGKILL
        assert (channel._stamps < 0).any(), "not killed half-way"
        if isinstance(channel, Stream):
            np.testing.assert_array_equal(channel.read()[:, 0], [0, 1, 2])
            start(write_rows, channel.name, 2).join()
            np.testing.assert_array_equal(channel.read()[:, 0], [0, 1])
            assert channel.lost == 0
        else:
            np.testing.assert_array_equal(channel.read(), np.full(50, 2.0))
            assert channel.read() is None
            start(publish_once, channel.name, 7.0).join()
            np.testing.assert_array_equal(channel.read(), np.full(50, 7.0))


def test_writers_killed_anywhere_leave_the_place_in_order(start):
    with Latest(20_000) as latest:
        for _ in range(3):
            before = latest.written
            process = start(publish_for_ever, latest.name)
            until(lambda before=before: latest.written > before + 20)
            process.kill()
            process.join()
            row = latest.read()
            assert row is not None
            assert (row == latest.written - 1).all()
            assert latest.read() is None


def test_names_that_are_no_channel_are_refused():
    with pytest.raises(
        DelanError,
        match=r"no channel 'delan_none' \(.*No such file.*give the `name` of an open one",
    ):
        Stream.attach("delan_none")
    with (
        Stream(2, 1) as stream,
        pytest.raises(ChannelError, match=r"the shared memory '.*' is not a Latest"),
    ):
        Latest.attach(stream.name)
    with pytest.raises(ChannelError, match="no channel"):
        Stream.attach(stream.name)
    foreign = SharedMemory(create=True, size=10)
    try:
        with pytest.raises(ChannelError, match="is not a Stream"):
            Stream.attach(foreign.name)
    finally:
        foreign.close()
        foreign.unlink()


def test_what_does_not_fit_is_refused():
    with Stream(4, 3) as stream:
        with pytest.raises(ChannelError, match=r"expected a row of 3 numbers, got shape \(4,\)"):
            stream.write(np.zeros(4))
        with pytest.raises(ChannelError, match=r"expected a row of 3 numbers, got shape \(1,\)"):
            stream.write(1.0)
        assert stream.written == 0
    with pytest.raises(SettingsError, match="capacity ≥ 2 and width ≥ 1, got 1 and 3"):
        Stream(1, 3)
    with pytest.raises(SettingsError, match="width ≥ 1, got 0"):
        Latest(0)
    with pytest.raises(ChannelError, match=r"does not fit into the \d+ bytes .*--shm-size"):
        Latest(1 << 50)


def test_shared_memory_that_cannot_be_made_is_said(monkeypatch):
    def full(*_: Any, **__: Any) -> None:
        raise OSError(errno.EMFILE, "Too many open files")

    monkeypatch.setattr(channels, "SharedMemory", full)
    with pytest.raises(ChannelError, match=r"channel of \d+ bytes: Too many open files"):
        Stream(4, 3)


def test_a_channel_taken_away_is_kept_by_those_who_have_it():
    with Latest(2) as latest, Latest.attach(latest.name) as reader:
        reader.remove()  # it is not the reader's
        assert (SEGMENTS / latest.name).exists()
        latest.remove()
        assert not (SEGMENTS / latest.name).exists()
        latest.write([1, 2])
        np.testing.assert_array_equal(reader.read(), [1, 2])


def test_segments_are_gone_after_the_end():
    with Stream(4, 3) as stream, Latest.attach((latest := Latest(5)).name) as reader:
        assert (SEGMENTS / stream.name).exists()
        reader.close()
        assert (SEGMENTS / latest.name).exists()
    latest.close()
    latest.close()
    assert not (SEGMENTS / stream.name).exists()
    assert not (SEGMENTS / latest.name).exists()
    forgotten = Stream(4, 3)
    name = forgotten.name
    del forgotten
    assert not (SEGMENTS / name).exists()


def test_an_interrupted_write_still_lets_go(monkeypatch):
    stream = Stream(4, 3)

    def interrupt(rows: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(channels, "checksum", interrupt)
    with pytest.raises(KeyboardInterrupt), stream:
        stream.write(np.zeros(3))
    assert not (SEGMENTS / stream.name).exists()


def test_a_visitor_of_its_own_takes_nothing_along():
    with Latest(3) as latest:
        latest.write([1, 2, 3])
        script = (
            "from delan.online.channels import Latest; "
            f"print(Latest.attach('{latest.name}').read())"
        )
        ended = subprocess.run(
            [sys.executable, "-c", script], capture_output=True, text=True, check=True
        )
        assert (ended.stdout, ended.stderr) == ("[1. 2. 3.]\n", "")
        assert (SEGMENTS / latest.name).exists()


def test_segments_go_with_an_owner_that_is_killed():
    script = (
        "import time; from delan.online.channels import Latest; "
        "c = Latest(3); print(c.name, flush=True); "
    )
    owner = subprocess.Popen(
        [sys.executable, "-c", f"{script}time.sleep(600)"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert owner.stdout is not None
    name = owner.stdout.readline().strip()
    assert (SEGMENTS / name).exists()
    owner.kill()
    owner.communicate()
    until(lambda: not (SEGMENTS / name).exists())


ORPHANED = """
import os, signal, time
from multiprocessing import resource_tracker
from delan.online.channels import Latest

channels = [Latest(3), Latest(4)]
print(*[channel.name for channel in channels], flush=True)
os.kill(resource_tracker._resource_tracker._pid, signal.SIGKILL)
time.sleep(600)
"""


def test_segments_of_a_tree_that_was_killed_go_with_the_next_start():
    """Only those: other names, living processes and held locks are left alone."""
    owner = subprocess.Popen(
        [sys.executable, "-c", ORPHANED],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    assert owner.stdout is not None
    names = owner.stdout.readline().split()
    foreign = SEGMENTS / f"delan_of_mine_{os.getpid()}"
    foreign.write_bytes(b"")
    # A process in another container: its id means nothing here, but its lock is held.
    hidden = SEGMENTS / f"delan_{owner.pid}_1_abcdef"
    try:
        with Latest(2) as living, hidden.open("wb") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            sweep()
            assert all((SEGMENTS / name).exists() for name in names)
            owner.kill()
            owner.communicate()
            assert all((SEGMENTS / name).exists() for name in names)
            again = [sys.executable, "-c", "from delan.online.channels import Latest; Latest(3)"]
            subprocess.run(again, check=True)
            assert not any((SEGMENTS / name).exists() for name in names)
            assert (SEGMENTS / living.name).exists()
            assert foreign.exists()
            assert hidden.exists()
        sweep()
        assert not hidden.exists()
    finally:
        foreign.unlink()
        hidden.unlink(missing_ok=True)


def test_a_tracker_that_is_frozen_ends_with_its_process():
    script = (
        "import os, signal; from multiprocessing import resource_tracker; "
        "from delan.online.channels import Latest; c = Latest(3); "
        "pid = resource_tracker._resource_tracker._pid; os.kill(pid, signal.SIGSTOP); print(pid)"
    )
    ended = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, timeout=60
    )
    assert (ended.returncode, ended.stderr) == (0, "")
    until(lambda: not is_alive(int(ended.stdout)))


def test_before_a_sudden_end_all_segments_of_a_process_go():
    with Stream(4, 3) as stream, Latest(2) as latest:
        undo_all()
        assert not (SEGMENTS / stream.name).exists()
        assert not (SEGMENTS / latest.name).exists()


def test_a_layout_unpacks_by_name():
    layout = RowLayout.of(t=1, q=2, tau=2)
    assert layout.width == 5
    assert layout == RowLayout.of(**layout.sizes)
    row = np.array([0.5, 1, 2, 5, 6])
    parts = layout.unpack(np.stack([row, row]))
    assert {name: part.shape for name, part in parts.items()} == {
        "t": (2, 1),
        "q": (2, 2),
        "tau": (2, 2),
    }
    np.testing.assert_array_equal(layout.unpack(row)["tau"], [5, 6])


def test_a_layout_needs_quantities_with_a_size():
    with pytest.raises(SettingsError, match="at least 1, got q=0"):
        RowLayout.of(t=1, q=0)
    with pytest.raises(SettingsError, match="got nothing"):
        RowLayout.of()
