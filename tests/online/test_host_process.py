"""A view that is ended while it still prepares: it says so, ends, and leaves neither processes nor
shared memory.
"""

import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path

import pytest

from delan.online.broadcast import MODES, Audience, read_address
from delan.online.host_process import LiveSettings, ended_early
from delan.view.run_process import send_settings, start_run, wait_for_address

PATIENCE = 120.0
"""For what takes long on a busy machine [s]."""
pytestmark = pytest.mark.skipif(
    sys.platform != "linux", reason="processes and shared memory are looked up as on Linux"
)

DEAF = """
import hashlib, pathlib, sys
from delan.online.host_process import ended_early

with ended_early(lambda: False, lambda: pathlib.Path(sys.argv[1]).touch()):
    print("deaf", flush=True)
    hashlib.pbkdf2_hmac("sha256", b"", b"", 2**31 - 1)
"""
"""Long in C, where no handler of Python's is called."""


def processes(mark: Path) -> list[Path]:
    """Those whose environment names the folder, as children inherit it."""
    found = []
    for item in Path("/proc").glob("[0-9]*"):
        try:
            ours = str(mark).encode() in (item / "environ").read_bytes()
            if (
                ours
                and item.name != str(os.getpid())
                and (item / "stat").read_text().rpartition(")")[2].split()[0] != "Z"
            ):
                found.append(item)
        except OSError:
            continue
    return found


def segments(mark: Path) -> set[Path]:
    """Shared memory that these processes have mapped."""
    found: set[str] = set()
    for item in processes(mark):
        try:
            found.update(re.findall(r"/dev/shm/delan_\w+", (item / "maps").read_text()))
        except OSError:
            continue
    return {Path(name) for name in found}


def until(what: Callable[[], object]) -> None:
    end = time.monotonic() + PATIENCE
    while not what():
        assert time.monotonic() < end, "it did not come about"
        time.sleep(0.02)


def addresses(mark: Path) -> list[Path]:
    return list((mark / "delan").glob("*.json"))


def learning(mark: Path) -> bool:
    """Whether a learner's process exists; somebody looks, so that the run does not wait."""
    if addresses(mark):
        audience = Audience(read_address(addresses(mark)[0]))
        audience.order()
        audience.close()
    return any(b"spawn_main" in (item / "cmdline").read_bytes() for item in processes(mark))


def nothing_is_left(mark: Path, had: set[Path]) -> None:
    until(lambda: not processes(mark))
    assert not [item for item in had if item.exists()]
    assert addresses(mark) == []


@pytest.mark.parametrize(
    "moment", [lambda _: True, addresses, learning], ids=["woken", "found", "learning"]
)
def test_an_interrupt_ends_a_view_that_prepares(moment, tmp_path):
    command = [
        sys.executable,
        "-c",
        "from delan.cli.main import app; app()",
        "view",
        "--port",
        "0",
    ]
    environment = {**os.environ, "XDG_RUNTIME_DIR": str(tmp_path)}
    view = subprocess.Popen(
        command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    assert view.stdout is not None
    assert "Watch at" in view.stdout.readline()
    until(lambda: moment(tmp_path))
    had = segments(tmp_path)
    view.send_signal(signal.SIGINT)
    out, said = view.communicate(timeout=PATIENCE)
    assert (view.returncode, out, said.strip()) == (0, "", "Stopping")
    nothing_is_left(tmp_path, had)


def test_a_run_that_is_stopped_while_it_prepares_ends(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    run = start_run()
    send_settings(run, asdict(LiveSettings()))
    address = wait_for_address(run, threading.Event())
    assert address is not None
    until(lambda: learning(tmp_path))
    had = segments(tmp_path)
    assert len(had) > 4
    audience = Audience(address)
    audience.order(mode=MODES.index("stop"))
    assert run.wait(PATIENCE) == 0
    audience.close()
    nothing_is_left(tmp_path, had)


@pytest.mark.parametrize("sent", [signal.SIGINT, signal.SIGTERM])
def test_what_hears_no_signal_is_ended_and_tidied(sent, tmp_path):
    tidied = tmp_path / "tidied"
    process = subprocess.Popen(
        [sys.executable, "-c", DEAF, str(tidied)], stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "deaf\n"
    process.send_signal(sent)
    assert process.wait(PATIENCE) == 0
    assert tidied.exists()
    process.stdout.close()


def test_what_was_heard_before_is_heard_again_afterwards():
    before, tidied = [signal.getsignal(item) for item in (signal.SIGINT, signal.SIGTERM)], []
    with ended_early(lambda: False, lambda: tidied.append(True)) as whole:
        assert signal.getsignal(signal.SIGTERM) is not before[1]
        assert whole.acquire(blocking=False)
        whole.release()
    assert [signal.getsignal(item) for item in (signal.SIGINT, signal.SIGTERM)] == before
    assert signal.set_wakeup_fd(-1) == -1
    assert not tidied
