"""Two searches that end when they have found the same arm."""

import threading
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from delan.solvers.pair import SAME, Found, Pair


def apart(first: float, second: float) -> float:
    return abs(first - second)


def never() -> bool:
    return False


def told(pair: Pair, number: int, rounds: list[Found | None], pause: float) -> int | None:
    """The round after which a search ended because the other one agreed."""
    seat = pair.seat(number)
    try:
        for round_, found in enumerate(rounds, start=1):
            time.sleep(pause)
            if seat.agrees(found, never):
                return round_
        return None
    finally:
        seat.leave()


@pytest.mark.parametrize("pauses", [(0.0, 0.02), (0.02, 0.0)])
@pytest.mark.parametrize(
    ("first", "second", "ends"),
    [
        # Arms that differ by no more than they err, in the same round.
        (
            [None, Found(5.0, 0.1), Found(5.0, 0.1)],
            [Found(9.0, 0.1), Found(5.1, 0.1), None],
            (2, 2),
        ),
        # Never the same arm.
        ([Found(5.0, 0.1)] * 3, [Found(9.0, 0.1)] * 3, (None, None)),
        # One has ended: its last arm stands for later rounds.
        ([Found(5.0, 0.1)], [None, None, Found(5.0, 0.2)], (None, 3)),
        # One found nothing at all.
        ([], [Found(5.0, 0.2)] * 2, (None, None)),
    ],
)
def test_two_searches_end_in_the_same_round_whichever_is_faster(first, second, ends, pauses):
    pair = Pair(apart)
    with ThreadPoolExecutor(2) as pool:
        rounds = (first, second)
        ended = pool.map(lambda number: told(pair, number, rounds[number], pauses[number]), (0, 1))
        assert tuple(ended) == ends


def test_arms_are_the_same_within_their_errors():
    for distance, same in ((SAME * 0.99, True), (SAME * 1.01, False)):
        pair = Pair(apart)
        pair.seat(0).leave()
        pair._tell(0, Found(0.0, 0.5))
        assert pair.seat(1).agrees(Found(distance, 0.5), never) is same


def test_a_search_that_is_stopped_does_not_wait_for_the_other():
    stop = threading.Event()
    pair = Pair(apart)
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(pair.seat(0).agrees, Found(1.0, 1.0), stop.is_set)
        assert not waiting.done()
        stop.set()
        assert waiting.result(timeout=30) is False
