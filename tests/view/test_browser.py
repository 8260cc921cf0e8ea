"""`delan view` in a real browser: a run is watched, steered and stopped, and survives the page."""

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

from delan.online.broadcast import MODES, Address, Audience, read_address
from delan.online.host_process import LiveSettings
from delan.view.run_process import send_settings, start_run, wait_for_address
from tests.support.stand_ins import recorded_letter

# Starting a browser and compiling take long on a busy machine [s].
TIMEOUT = 180.0
# As on a machine without a graphics card: SwiftShader draws the scene in software.
DRAWN_BY_SOFTWARE = ("--no-sandbox", "--enable-unsafe-swiftshader")


def chromium_path() -> str | None:
    """Return a Chromium of this machine; None if there is none but playwright's own."""
    for name in (os.environ.get("CHROMIUM", ""), "chromium", "chromium-browser", "google-chrome"):
        path = shutil.which(name)
        if path is not None:
            return path
    return None


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    api = pytest.importorskip(
        "playwright.sync_api", reason="playwright is not installed (pip install delan[dev])"
    )
    with api.sync_playwright() as playwright:
        path = chromium_path() or playwright.chromium.executable_path
        if not Path(path).exists():
            pytest.skip(
                "there is no Chromium here; install one, or run `playwright install chromium`"
            )
        chromium = playwright.chromium.launch(executable_path=path, args=list(DRAWN_BY_SOFTWARE))
        yield chromium
        chromium.close()


@pytest.fixture
def environment(tmp_path: Path) -> Iterator[dict[str, str]]:
    """Variables of the command: own folder of addresses; ends the runs that a failed test left."""
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "delan" / "xla-tests"
    variables = {"XDG_RUNTIME_DIR": str(tmp_path), "JAX_COMPILATION_CACHE_DIR": str(cache)}
    environment = {**os.environ, **variables}
    yield environment
    for address in runs_of(environment):
        with suppress(ProcessLookupError):
            os.kill(address.pid, signal.SIGTERM)


@contextmanager
def serving(environment: dict[str, str], *words: str) -> Iterator[tuple[subprocess.Popen, str]]:
    """Run `delan view`; yields its process and the address that it prints."""
    program = "from delan.cli.main import app; app()"
    command = [sys.executable, "-c", program, "view", *words, "--port", "0"]
    server = subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True)
    assert server.stdout is not None
    try:
        address = re.search(r"http://\S+", server.stdout.readline())
        assert address, "no address was printed"
        yield server, address.group(0)
    finally:
        if server.poll() is None:
            server.send_signal(signal.SIGINT)
        server.wait(60)
        server.stdout.close()


def until(condition: Callable[[], Any], message: str, timeout: float = TIMEOUT) -> Any:
    """Return the value of a condition when it is true; errors count as false."""
    end = time.monotonic() + timeout
    while time.monotonic() < end:
        with suppress(Exception):
            if value := condition():
                return value
        time.sleep(0.1)
    raise AssertionError(message)


def opened(browser: Any, url: str, width: int = 900, height: int = 620) -> Any:
    page = browser.new_page(viewport={"width": width, "height": height})
    page.set_default_timeout(1000 * TIMEOUT)
    page.requested = set()
    page.on("request", lambda request: page.requested.add(request.url))
    page.goto(url)
    return page


def fact(page: Any, name: str) -> str:
    """Return the text of the page after a name."""
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


def assert_only_local_requests(page: Any) -> None:
    hosts = {
        urlsplit(url.removeprefix("blob:")).hostname
        for url in page.requested
        if not url.startswith("data:")
    }
    assert hosts == {"127.0.0.1"}


def test_a_run_is_watched_steered_and_stopped(browser, environment):
    with serving(environment, "two-link", "--letters", "a,m") as (server, url):
        page = opened(browser, url)
        choose(page, "Model", "PD alone")
        page.get_by_role("button", name="Start").click()
        until(lambda: fact(page, "Status") == "running", "the robot did not start")
        first = until(
            lambda: (
                fact(page, "Model in use") == "PD alone"
                and tracking(page) > 0.02
                and tracking(page)
            ),
            "no tracking error with PD control alone",
        )
        choose(page, "Model", "DeLaN")
        until(lambda: fact(page, "Model in use") == "DeLaN", "the model was not switched")
        until(lambda: tracking(page) < 0.2 * first, "the tracking error did not fall")
        (address,) = runs_of(environment)
        learners = children(address.pid)
        try:
            signal_all(learners, signal.SIGSTOP)
            until(
                lambda: "idle" in fact(page, "Learner"),
                "an idle learner is not reported",
            )
        finally:
            signal_all(learners, signal.SIGCONT)
        until(
            lambda: not page.get_by_text("no new samples").count(),
            "the learner is reported as idle for ever",
        )
        choose(page, "Payload", "+ 30 %")
        until(lambda: "30 %" in fact(page, "Payload"), "no payload was added")
        assert_only_local_requests(page)
        stop_by_click(page, server, address.pid)
    assert runs_of(environment) == []


def test_the_loop_survives_tabs_nonsense_and_the_server(
    browser, environment, tmp_path, monkeypatch
):
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    run = start_run()
    send_settings(run, asdict(LiveSettings(model="none", models=("none",))))
    address = wait_for_address(run, threading.Event())
    assert address is not None
    with closing(Audience(address)) as audience:
        audience.order(mode=MODES.index("run"))
        assert_moving(audience, "at first", TIMEOUT)
        with serving(environment, "running") as (server, url):
            tabs = [opened(browser, url, width=240, height=160) for _ in range(10)]
            assert_moving(audience, "with ten tabs")
            for tab in tabs:
                tab.close()
            send_nonsense(url)
            assert_moving(audience, "without a tab, after nonsense")
            assert server.poll() is None
            server.kill()
            server.wait()
            assert_moving(audience, "without a server")
    with serving(environment, "running") as (server, url):
        stop_by_click(opened(browser, url), server, run.pid)
    assert run.wait(30) == 0
    assert runs_of(environment) == []


def assert_moving(audience: Audience, when: str, timeout: float = 10.0) -> None:
    """Assert that the loop runs."""
    audience.rows()
    until(lambda: len(audience.rows()), f"the loop stopped {when}", timeout)


def send_nonsense(url: str) -> None:
    """Send invalid texts and bytes, also as a client of another version."""
    address = url.replace("http://", "ws://")
    for protocol in (f"viser-v{viser.__version__}", "viser-v0.0.0"):
        for nonsense in ("hello", b"\x00\xff" * 100, b"\x81\xa4type\xa3xyz"):
            with (
                suppress(WebSocketException, OSError),
                connect(address, subprotocols=[protocol]) as socket,  # pyright: ignore
            ):
                socket.send(nonsense)
                socket.recv(timeout=1)


def stop_by_click(page: Any, server: subprocess.Popen, run: int) -> None:
    """Stop the run and all its processes on the page, then the page by Ctrl-C."""
    learners = children(run)
    page.get_by_role("button", name="Stop").click()
    until(lambda: fact(page, "Status") == "stopped", "the run did not stop")
    until(
        lambda: "start a new run with delan" in fact(page, "The run was stopped."),
        "the page does not say how to start a new run",
    )
    until(lambda: not any(alive(pid) for pid in (run, *learners)), "processes are left", 30)
    page.close()
    server.send_signal(signal.SIGINT)
    assert server.wait(30) == 0


def children(pid: int) -> list[int]:
    """Return the processes that any thread of a process has started."""
    found = []
    for task in Path(f"/proc/{pid}/task").glob("*/children"):
        found += [int(child) for child in task.read_text().split()]
    return found


def signal_all(pids: list[int], number: signal.Signals) -> None:
    for pid in pids:
        with suppress(ProcessLookupError):
            os.kill(pid, number)


def runs_of(environment: dict[str, str]) -> list[Address]:
    """Return the addresses of the runs that are not cleaned up."""
    folder = Path(environment["XDG_RUNTIME_DIR"]) / "delan"
    return [read_address(path) for path in folder.glob("*.json")]


def test_a_recording_is_replayed(browser, environment, tmp_path):
    with serving(environment, str(recorded_letter(tmp_path))) as (server, url):
        page = opened(browser, url)
        page.get_by_role("button", name="Play").click()
        until(lambda: page.locator("p", has_text="Tracking error").count(), "nothing is shown")
        before = tracking(page)
        until(lambda: tracking(page) != before, "the replay does not move")
        assert_only_local_requests(page)
        page.close()
        server.send_signal(signal.SIGINT)
        assert server.wait(30) == 0
