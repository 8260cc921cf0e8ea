"""Cost of the page to the control loop, and speed of the page, in a real run and a real Chromium.

    python -m benchmarks.view [jitter] [page] [orders]

`jitter`: delay of the control periods with the page open and without, alternating in one run.
`page`: time from the command to a page with its Start button, and how often its curves move.
`orders`: time from an order to its effect. Run it on an idle machine; it takes about five minutes.
"""

import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict
from functools import partial
from typing import Any

import numpy as np
from playwright.sync_api import sync_playwright

from delan.online.broadcast import MODES, PHASES, Audience
from delan.online.host_process import LiveSettings
from delan.view.run_process import send_settings, start_run, wait_for_address
from tests.view.test_browser import DRAWN_BY_SOFTWARE, chromium_path

from .results import write_results

TURNS = 6  # with and without the page
TURN_SECONDS = 15.0
SETTLE_SECONDS = 5.0  # waited before each measurement
PAGES = 5
WINDOW: Any = {"width": 1400, "height": 860}


@contextmanager
def serving(*words: str) -> Iterator[tuple[str, float]]:
    """Run `delan view`; yields its address and the time at which it was started."""
    began = time.monotonic()
    command = [sys.executable, "-m", "delan.cli.main", "view", *words, "--port", "0"]
    server = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert server.stdout is not None
    address = re.search(r"http://\S+", server.stdout.readline())
    try:
        assert address is not None
        yield address.group(0), began
    finally:
        server.send_signal(signal.SIGINT)
        server.wait(60)


@contextmanager
def chromium() -> Iterator[Any]:
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=chromium_path(), args=list(DRAWN_BY_SOFTWARE)
        )
        yield browser
        browser.close()


@contextmanager
def run(**settings: Any) -> Iterator[Audience]:
    """Start a run and yield when the robot moves."""
    process = start_run()
    send_settings(process, asdict(LiveSettings(**settings)))
    address = wait_for_address(process, threading.Event())
    assert address is not None
    audience = Audience(address)
    audience.order(mode=MODES.index("run"))
    until(lambda: phase(audience) == "running")
    try:
        yield audience
    finally:
        audience.order(mode=MODES.index("stop"))
        process.wait(60)


def phase(audience: Audience) -> str:
    standing = audience.look()
    if standing is None:
        return ""
    return PHASES[standing.phase]


def until(condition: Callable[[], Any], timeout: float = 300.0) -> float:
    """Return the time until a condition is true [s]."""
    began = time.monotonic()
    while not condition():
        if time.monotonic() - began > timeout:
            raise SystemExit(f"the condition was not true after {timeout:.0f} s")
        time.sleep(0.002)
    return time.monotonic() - began


def lateness(audience: Audience, seconds: float) -> np.ndarray:
    """Return the delay of each control period of the next seconds [µs]."""
    audience.rows()
    time.sleep(seconds)
    return 1e6 * audience.layout.unpack(audience.rows())["lateness"][:, 0]


def jitter() -> dict[str, Any]:
    """Measure the delay of control periods with the page open and without."""
    watched = []
    alone = []
    with chromium() as browser, run() as audience:
        time.sleep(SETTLE_SECONDS)
        for _ in range(TURNS):
            alone.append(lateness(audience, TURN_SECONDS))
            with serving("running") as (url, _):
                page = browser.new_page(viewport=WINDOW)
                page.goto(url)
                page.get_by_role("button", name="Stop").wait_for(timeout=60_000)
                time.sleep(SETTLE_SECONDS)
                watched.append(lateness(audience, TURN_SECONDS))
                page.close()
    numbers = {}
    for name, turns in (("alone", alone), ("watched", watched)):
        whole = np.concatenate(turns)
        p50, p99 = np.percentile(whole, [50, 99]).tolist()
        each = [float(np.percentile(turn, 99)) for turn in turns]
        numbers[name] = {
            "periods": len(whole),
            "p50_us": p50,
            "p99_us": p99,
            "p99_us_of_each_turn": each,
        }
        print(f"{name}: p50 {p50:.1f} µs, p99 {p99:.1f} µs, of each turn {np.round(each, 1)}")
    ratio = numbers["watched"]["p99_us"] / numbers["alone"]["p99_us"]
    watched_median = float(np.median(numbers["watched"]["p99_us_of_each_turn"]))
    of_medians = watched_median / float(np.median(numbers["alone"]["p99_us_of_each_turn"]))
    load = os.getloadavg()[1]
    print(f"p99 watched over p99 alone: {ratio:.2f}; of the medians over turns {of_medians:.2f}")
    print(f"load of the machine: {load:.1f}")
    return {
        **numbers,
        "p99_watched_over_alone": ratio,
        "of_medians": of_medians,
        "load": load,
    }


# Counts the different last times that the curves of a page showed per second.
COUNT_MOVES = """seconds => new Promise(done => {
  const seen = new Set(), end = performance.now() + 1000 * seconds
  const look = () => {
    for (const plot of Object.values(window.__viserTestpoints?.uplots ?? {}))
      seen.add(plot.chart.data[0].at(-1))
    performance.now() < end ? setTimeout(look, 2) : done(seen.size / seconds)
  }
  look()
})"""


def page() -> dict[str, Any]:
    """Measure the time until the page can be used, and the rate of its curves."""
    seconds = []
    rates = []
    with chromium() as browser:
        for number in range(PAGES):
            with serving("two-link") as (url, began):
                tab = browser.new_page(viewport=WINDOW)
                received: list[float] = []
                tab.on(
                    "websocket",
                    lambda ws, to=received: ws.on(
                        "framereceived", lambda _: to.append(time.monotonic())
                    ),
                )
                tab.goto(url)
                tab.get_by_role("button", name="Start").click(timeout=60_000)
                seconds.append(time.monotonic() - began)
                if number == PAGES - 1:
                    tab.locator("p", has_text="running").wait_for(timeout=120_000)
                    time.sleep(SETTLE_SECONDS)
                    before = len(received)
                    rates.append(tab.evaluate(COUNT_MOVES, 5))
                    rates.append((len(received) - before) / 5)
                tab.close()
    load = os.getloadavg()[1]
    print(f"Start was clickable after {np.round(seconds, 2)} s; load of the machine {load:.1f}")
    print(f"curves moved {rates[0]:.1f} times per second, with {rates[1]:.1f} messages per second")
    return {
        "interactive_seconds": seconds,
        "median": float(np.median(seconds)),
        "curves_hz": rates[0],
        "news_hz": rates[1],
        "load": load,
    }


def orders() -> dict[str, Any]:
    """Measure the time from an order to the first control period that follows it."""
    taken: dict[str, float] = {}
    with run() as audience:
        time.sleep(SETTLE_SECONDS)
        models = audience.address.models

        def followed(wanted: dict[str, Any]) -> bool:
            standing = audience.look()
            if len(audience.rows()) == 0 or standing is None:
                return False
            return wanted.items() <= standing.orders._asdict().items()

        changes: list[tuple[str, dict[str, Any]]] = [
            ("payload", {"payload": 0.3}),
            ("kick", {"kicks": 1}),
            *((f"model {name}", {"model": number}) for number, name in enumerate(models)),
            ("cosines", {"reference": 1}),
            ("speed", {"speed": 1.5}),
            ("letters", {"reference": 0, "speed": 1.0}),
            ("reset", {"resets": 1}),
            ("pause", {"mode": MODES.index("pause")}),
            ("start", {"mode": MODES.index("run")}),
        ]
        for name, change in changes:
            audience.order(**change)
            taken[name] = until(partial(followed, change), 30)
            time.sleep(2.0)
        began = time.monotonic()
        audience.order(mode=MODES.index("stop"))
        until(lambda: phase(audience) == "stopped" or not audience.alive, 30)
        taken["stop"] = time.monotonic() - began
    for name, seconds in taken.items():
        print(f"{name}: {seconds:.2f} s")
    return {"seconds": taken, "longest": max(taken.values())}


ROWS: dict[str, Callable[[], dict[str, Any]]] = {"jitter": jitter, "page": page, "orders": orders}


def main() -> None:
    os.environ.setdefault("JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS", "0.2")
    for name in sys.argv[1:] or ROWS:
        if name not in ROWS:
            raise SystemExit(f"unknown benchmark {name!r}; available: {', '.join(ROWS)}")
        write_results(f"view_{name}", ROWS[name]())


if __name__ == "__main__":
    main()
