"""The life of a process: it ends with its parent, and signals end it whatever it is busy with."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from delan.online.process import is_alive, start_time

PATIENCE = 60.0  # for what takes long on a busy machine [s]

# Ignore no signal, even if the tests run in the background of a shell.
HEAR_ALL = """
import signal
for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
    signal.signal(number, signal.SIG_DFL)
"""

FAMILY = f"""
{HEAR_ALL}
import multiprocessing, time
from delan.online.process import Tie, run_tied

if __name__ == "__main__":
    context = multiprocessing.get_context("spawn")
    child = context.Process(target=run_tied, args=(Tie(), time.sleep, 600), daemon=True)
    child.start()
    print(child.pid, flush=True)
    time.sleep(600)
"""

BUSY = f"""
{HEAR_ALL}
import sys, hashlib, pathlib, threading, time
from delan.online.process import Interrupts, undo_at_exit

stop = threading.Event()
undo_at_exit("file", pathlib.Path(sys.argv[2]).touch)
with Interrupts(stop) as interrupts:
    interrupts.at_once = sys.argv[1] == "at once"
    print("busy", flush=True)
    if sys.argv[1] == "obedient":
        stop.wait()
    else:
        hashlib.pbkdf2_hmac("sha256", b"", b"", 2**31 - 1)  # no handler is called meanwhile
sys.exit(interrupts.exit_code)
"""


def until(what: Callable[[], object]) -> None:
    end = time.monotonic() + PATIENCE
    while not what():
        assert time.monotonic() < end, "it did not come about"
        time.sleep(0.02)


@pytest.mark.parametrize("sent", [signal.SIGKILL, signal.SIGHUP])
def test_a_child_ends_with_its_parent_even_if_it_is_stopped(sent, tmp_path):
    script = tmp_path / "family.py"
    script.write_text(FAMILY)
    parent = subprocess.Popen([sys.executable, str(script)], stdout=subprocess.PIPE, text=True)
    assert parent.stdout is not None
    child = int(parent.stdout.readline())
    # Ctrl-C and a closed terminal are for the parent alone, once the child hears.
    until(lambda: _ignores(child, signal.SIGINT) and _ignores(child, signal.SIGHUP))
    for ignored in (signal.SIGINT, signal.SIGHUP):
        os.kill(child, ignored)
    if sys.platform == "linux":
        until(lambda: len(os.listdir(f"/proc/{child}/task")) > 1)  # the kernel has been asked
        os.kill(child, signal.SIGSTOP)
    assert is_alive(child)
    parent.send_signal(sent)
    parent.wait(PATIENCE)
    until(lambda: not is_alive(child))
    parent.stdout.close()


def _ignores(pid: int, number: int) -> bool:
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    ignored = next(line for line in lines if line.startswith("SigIgn"))
    return bool(int(ignored.split()[1], 16) >> (number - 1) & 1)


@pytest.mark.parametrize(
    ("sent", "manner"),
    [
        (signal.SIGINT, "at once"),
        (signal.SIGHUP, "at once"),
        (signal.SIGTERM, "twice"),
        (signal.SIGINT, "late"),
        (signal.SIGINT, "obedient"),
        (signal.SIGTERM, "obedient"),
        (signal.SIGHUP, "obedient"),
    ],
)
def test_a_signal_ends_a_process_whatever_it_is_busy_with(sent, manner, tmp_path):
    tidied = tmp_path / "tidied"
    process = subprocess.Popen(
        [sys.executable, "-c", BUSY, manner, str(tidied)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "busy\n"
    process.send_signal(sent)
    if manner == "twice":
        time.sleep(0.5)
        assert process.poll() is None
        process.send_signal(sent)
    _, said = process.communicate(timeout=PATIENCE)
    assert process.returncode == 128 + sent
    assert tidied.exists() == (manner != "obedient")
    assert "Traceback" not in said


def test_a_later_process_of_the_same_id_is_another():
    here = os.getpid()
    assert is_alive(here)
    assert is_alive(here, start_time(here))
    assert is_alive(here, start_time(here) + 1) == (sys.platform != "linux")
    assert not is_alive(4194305)
