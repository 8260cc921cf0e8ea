"""What it costs to be watched, and how fast the page is: a real run, the command that people type, a real Chromium.

    python -m benchmarks.view [jitter] [page] [orders]

`jitter`: how late periods of the loop began with the page open in a browser and without, in turns of one run. `page`:
seconds from the command to a page with its Start button, and how often its curves move. `orders`: seconds from an order
to what it does. Keep the machine quiet. About five minutes.
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
from typing import Any

import numpy as np
from playwright.sync_api import sync_playwright

from delan.experiments.live_run import LiveSettings
from delan.realtime.live import MODES, PHASES, Audience
from delan.view.runs import find, tell, wake
from tests.test_browser import DRAWN_BY_SOFTWARE, chromium_path

from .results import write_results

TURNS, TURN_SECONDS, SETTLE_SECONDS = 6, 15.0, 5.0
PAGES = 5


@contextmanager
def serving(*words: str) -> Iterator[tuple[str, float]]:
    """`delan view`, its address, and when it was typed."""
    began = time.monotonic()
    command = [sys.executable, "-m", "delan.interfaces.cli", "view", *words, "--port", "0"]
    server = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert server.stdout is not None
    told = re.search(r"http://\S+", server.stdout.readline())
    try:
        assert told is not None
        yield told.group(0), began
    finally:
        server.send_signal(signal.SIGINT)
        server.wait(60)


@contextmanager
def chromium() -> Iterator[Any]:
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium_path(), args=list(DRAWN_BY_SOFTWARE))
        yield browser
        browser.close()


@contextmanager
def run(**settings: Any) -> Iterator[Audience]:
    """A run that has been started."""
    process = wake()
    tell(process, asdict(LiveSettings(**settings)))
    address = find(process, threading.Event())
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
    return "" if standing is None else PHASES[standing.phase]


def until(what: Callable[[], Any], patience: float = 300.0) -> float:
    """Seconds until something is so."""
    began = time.monotonic()
    while not what():
        if time.monotonic() - began > patience:
            raise SystemExit(f"it was not so after {patience:.0f} s")
        time.sleep(0.002)
    return time.monotonic() - began


def lateness(audience: Audience, seconds: float) -> np.ndarray:
    """How late each period of the next seconds began [µs]."""
    audience.rows()
    time.sleep(seconds)
    return 1e6 * audience.layout.unpack(audience.rows())["lateness"][:, 0]


def jitter() -> dict[str, Any]:
    watched, alone = [], []
    with chromium() as browser, run() as audience:
        time.sleep(SETTLE_SECONDS)
        for _ in range(TURNS):
            alone.append(lateness(audience, TURN_SECONDS))
            with serving("running") as (url, _):
                page = browser.new_page(viewport={"width": 1400, "height": 860})
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
        numbers[name] = {"periods": len(whole), "p50_us": p50, "p99_us": p99, "p99_us_of_each_turn": each}
        print(f"{name}: p50 {p50:.1f} µs, p99 {p99:.1f} µs, of each turn {', '.join(f'{one:.1f}' for one in each)}")
    ratio = numbers["watched"]["p99_us"] / numbers["alone"]["p99_us"]
    middle = [float(np.median(numbers[name]["p99_us_of_each_turn"])) for name in ("watched", "alone")]
    print(f"p99 watched over p99 alone: {ratio:.2f}; of the medians over turns {middle[0] / middle[1]:.2f}")
    load = os.getloadavg()[1]
    print(f"load of the machine: {load:.1f}")
    return {**numbers, "p99_watched_over_alone": ratio, "of_medians": middle[0] / middle[1], "load": load}


COUNT_MOVES = """seconds => new Promise(done => {
  const seen = new Set(), end = performance.now() + 1000 * seconds
  const look = () => {
    for (const one of Object.values(window.__viserTestpoints?.uplots ?? {}))
      seen.add(one.chart.data[0].at(-1))
    performance.now() < end ? setTimeout(look, 2) : done(seen.size / seconds)
  }
  look()
})"""
"""How many different last moments the curves of a page showed in a second."""


def page() -> dict[str, Any]:
    seconds, rates = [], []
    with chromium() as browser:
        for number in range(PAGES):
            with serving("two-link") as (url, began):
                tab = browser.new_page(viewport={"width": 1400, "height": 860})
                received: list[float] = []
                tab.on(
                    "websocket", lambda ws, to=received: ws.on("framereceived", lambda _: to.append(time.monotonic()))
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
    print(
        f"Start could be clicked after {', '.join(f'{one:.2f}' for one in seconds)} s; load of the machine {load:.1f}"
    )
    print(f"curves moved {rates[0]:.1f} times a second, the page was sent news {rates[1]:.1f} times")
    told = {"curves_hz": rates[0], "news_hz": rates[1], "load": load}
    return {"interactive_seconds": seconds, "median": float(np.median(seconds)), **told}


def orders() -> dict[str, Any]:
    """From an order to the first period under it."""
    taken: dict[str, float] = {}
    with run() as audience:
        time.sleep(SETTLE_SECONDS)
        models = audience.address.models

        def follows(**wanted: Any) -> Callable[[], bool]:
            def so() -> bool:
                standing, fresh = audience.look(), audience.rows()
                return (
                    standing is not None
                    and len(fresh) > 0
                    and all(getattr(standing.orders, name) == value for name, value in wanted.items())
                )

            return so

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
            taken[name] = until(follows(**change), 30)
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
            raise SystemExit(f"there is no row {name!r}; there are {', '.join(ROWS)}")
        write_results(f"view_{name}", ROWS[name]())


if __name__ == "__main__":
    main()
