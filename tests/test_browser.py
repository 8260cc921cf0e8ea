"""`delan view` in a real browser: a run is watched, steered and stopped, and outlives those who watch it."""

import os
import re
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from dataclasses import asdict
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
import viser
from websockets.exceptions import WebSocketException
from websockets.sync.client import connect

from delan.experiments.live_run import LiveSettings
from delan.realtime.addresses import read_address
from delan.realtime.live import MODES, Audience
from delan.view.runs import find, tell, wake

from .stand_ins import recorded_letter

PATIENCE = 180.0
"""For what takes long on a busy machine [s]: starting browsers, compiling."""
DRAWN_BY_SOFTWARE = ("--no-sandbox", "--enable-unsafe-swiftshader")
"""As on a machine without a graphics card: the scene is drawn by SwiftShader, and the rest of the page without it."""


def chromium_path() -> str | None:
    """A Chromium of this machine; None where only playwright's own may be."""
    names = (os.environ.get("CHROMIUM", ""), "chromium", "chromium-browser", "google-chrome")
    return next((found for name in names if name and (found := shutil.which(name))), None)


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    api = pytest.importorskip("playwright.sync_api", reason="playwright is not installed (pip install delan[dev])")
    with api.sync_playwright() as playwright:
        path = chromium_path() or playwright.chromium.executable_path
        if not Path(path).exists():
            pytest.skip("there is no Chromium here; install one, or run `playwright install chromium`")
        chromium = playwright.chromium.launch(executable_path=path, args=list(DRAWN_BY_SOFTWARE))
        yield chromium
        chromium.close()


@pytest.fixture
def environment(tmp_path: Path) -> Iterator[dict[str, str]]:
    """Of the command: addresses in a folder of its own, programs kept; what a failed test left running is ended."""
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "delan" / "xla-tests"
    told = {**os.environ, "XDG_RUNTIME_DIR": str(tmp_path), "JAX_COMPILATION_CACHE_DIR": str(cache)}
    yield told
    for address in read_left_behind(told):
        with suppress(ProcessLookupError):
            os.kill(address.pid, signal.SIGTERM)


@contextmanager
def serving(environment: dict[str, str], *words: str) -> Iterator[tuple[subprocess.Popen, str]]:
    """`delan view` as people type it, and the address that it tells."""
    command = [sys.executable, "-c", "from delan.interfaces.cli import main; main()", "view", *words, "--port", "0"]
    server = subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True)
    assert server.stdout is not None
    try:
        told = re.search(r"http://\S+", server.stdout.readline())
        assert told, "no address was told"
        yield server, told.group(0)
    finally:
        if server.poll() is None:
            server.send_signal(signal.SIGINT)
        server.wait(60)
        server.stdout.close()


def until(what: Callable[[], Any], message: str, patience: float = PATIENCE) -> Any:
    end = time.monotonic() + patience
    while time.monotonic() < end:
        with suppress(Exception):
            if found := what():
                return found
        time.sleep(0.1)
    raise AssertionError(message)


def opened(browser: Any, url: str, width: int = 900, height: int = 620) -> Any:
    page = browser.new_page(viewport={"width": width, "height": height})
    page.set_default_timeout(1000 * PATIENCE)
    page.requested = set()
    page.on("request", lambda request: page.requested.add(request.url))
    page.goto(url)
    return page


def fact(page: Any, name: str) -> str:
    """What the page says under a name."""
    text = page.locator("p", has_text=name).first.inner_text(timeout=2000)
    return text.split(name)[1].strip()


def tracking(page: Any) -> float:
    return float(fact(page, "Tracking error").split()[0])


def choose(page: Any, name: str, wanted: str) -> None:
    page.get_by_role("combobox", name=name).click()
    page.get_by_role("option", name=wanted, exact=True).click()


def alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def shown_to_nobody_else(page: Any) -> None:
    hosts = {urlsplit(url.removeprefix("blob:")).hostname for url in page.requested if not url.startswith("data:")}
    assert hosts == {"127.0.0.1"}


def test_a_run_is_watched_steered_and_stopped(browser, environment):
    with serving(environment, "two-link", "--letters", "a,m") as (server, url):
        page = opened(browser, url)
        choose(page, "Model", "PD alone")
        page.get_by_role("button", name="Start").click()
        until(lambda: fact(page, "Status") == "running", "it did not start")
        first = until(
            lambda: fact(page, "Leads") == "PD alone" and tracking(page) > 0.02 and tracking(page), "no error"
        )
        choose(page, "Model", "DeLaN")
        until(lambda: fact(page, "Leads") == "DeLaN", "the model was not switched")
        until(lambda: tracking(page) < 0.2 * first, "the tracking error did not fall")
        (address,) = read_left_behind(environment)
        learners = children(address.pid)
        try:
            signal_all(learners, signal.SIGSTOP)
            until(lambda: "stands still" in fact(page, "Learner"), "a learner that stands still is not told of")
        finally:
            signal_all(learners, signal.SIGCONT)
        until(lambda: not page.get_by_text("stands still").count(), "the learner is said to stand still for ever")
        choose(page, "Payload", "+ 30 %")
        until(lambda: "30 %" in fact(page, "Payload"), "no payload was added")
        shown_to_nobody_else(page)
        stopped_by_a_click(page, server, address.pid)
    assert read_left_behind(environment) == []


def test_whoever_watches_cannot_stop_the_loop(browser, environment, tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    run = wake()
    tell(run, asdict(LiveSettings(model="none", models=("none",))))
    address = find(run, threading.Event())
    assert address is not None
    with closing(Audience(address)) as audience:
        audience.order(mode=MODES.index("run"))
        moving(audience, "at first", PATIENCE)
        with serving(environment, "running") as (server, url):
            tabs = [opened(browser, url, width=240, height=160) for _ in range(10)]
            moving(audience, "with ten tabs")
            for tab in tabs:
                tab.close()
            speak_nonsense(url)
            moving(audience, "without a tab, after nonsense")
            assert server.poll() is None
            server.kill()
            server.wait()
            moving(audience, "without a server")
    with serving(environment, "running") as (server, url):
        stopped_by_a_click(opened(browser, url), server, run.pid)
    assert run.wait(30) == 0
    assert read_left_behind(environment) == []


def moving(audience: Audience, when: str, patience: float = 10.0) -> None:
    """The loop goes on."""
    audience.rows()
    until(lambda: len(audience.rows()), f"the loop stood still {when}", patience)


def speak_nonsense(url: str) -> None:
    """Messages that make no sense, in words and in bytes, and a visitor of another version."""
    address = url.replace("http://", "ws://")
    for protocol in (f"viser-v{viser.__version__}", "viser-v0.0.0"):
        for nonsense in ("hello", b"\x00\xff" * 100, b"\x81\xa4type\xa3xyz"):
            with suppress(WebSocketException, OSError), connect(address, subprotocols=[protocol]) as socket:  # pyright: ignore
                socket.send(nonsense)
                socket.recv(timeout=1)


def stopped_by_a_click(page: Any, server: subprocess.Popen, run: int) -> None:
    """Stop on the page ends the run and all its processes; Ctrl-C then ends the page."""
    learners = children(run)
    page.get_by_role("button", name="Stop").click()
    until(lambda: fact(page, "Status") == "stopped", "it did not stop")
    until(lambda: "begin a new run with delan" in fact(page, "The run was stopped."), "it does not say how to go on")
    until(lambda: not any(alive(pid) for pid in (run, *learners)), "processes were left behind", 30)
    page.close()
    server.send_signal(signal.SIGINT)
    assert server.wait(30) == 0


def children(pid: int) -> list[int]:
    return [int(one) for one in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def signal_all(pids: list[int], told: signal.Signals) -> None:
    for pid in pids:
        with suppress(ProcessLookupError):
            os.kill(pid, told)


def read_left_behind(environment: dict[str, str]) -> list[Any]:
    return [read_address(path) for path in (Path(environment["XDG_RUNTIME_DIR"]) / "delan").glob("*.json")]


def test_a_recording_is_replayed(browser, environment, tmp_path):
    with serving(environment, str(recorded_letter(tmp_path))) as (server, url):
        page = opened(browser, url)
        page.get_by_role("button", name="Play").click()
        until(lambda: page.locator("p", has_text="Tracking error").count(), "nothing was shown")
        before = tracking(page)
        until(lambda: tracking(page) != before, "the replay stood still")
        shown_to_nobody_else(page)
        page.close()
        server.send_signal(signal.SIGINT)
        assert server.wait(30) == 0
