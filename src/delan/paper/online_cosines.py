"""Experiment `online-cosines`: learn online on slow cosine motions, test on the paths at speed."""

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from ..online.online_run import OnlineRun, run_online
from .cells import Cell, Claim, Drawn, Experiment, Result, Results, Size, verdict
from .comparison import FRICTION, all_below, by_speed, draw_speeds, listed, median_ratios, ratio

NAME = "online-cosines"
WHERE = "Fig. 6"
ROBOTS = {"two-link": "two-link arm", "wam4": "WAM, rigid", "wam4-cable": "WAM, cable drives"}
LEARNED = ("delan", "feedforward", "chain")
GIVEN = ("analytic", "none")
# Models with friction, on the arm that has friction.
EXTRA = {"wam4-cable": ("delan-friction", "chain-friction")}
MODELS = (*LEARNED, *GIVEN, "delan-friction", "chain-friction")
# Number of different motions.
MOTIONS = 2
# Training steps per second of the robot's time.
STEPS_PER_SECOND = 10.0
FAST = 2.0


def cells(size: Size) -> list[Cell]:
    speeds = size.pick(quick="1,2", usual="1,1.25,1.5,1.75,2", paper="1,1.25,1.5,1.75,2")
    seconds = size.pick(quick=10.0, usual=20.0, paper=60.0)
    seeds = size.seed_range(quick=1, usual=5)
    wanted = []
    for robot in ROBOTS:
        extra = EXTRA.get(robot, ())
        wanted += [
            Cell.of(NAME, model, seed=seed, robot=robot, speeds=speeds, seconds=seconds)
            for model in (*LEARNED, *GIVEN, *extra)
            for seed in (size.extra_seeds(seeds, quick=0) if model in extra else seeds)
        ]
    return wanted


def run(cell: Cell) -> Result:
    cable = cell["robot"].endswith("-cable")
    name: Any = cell.model.removesuffix("-friction")
    outcome = run_online(
        OnlineRun(
            robot=cell["robot"].removesuffix("-cable"),
            drive="cable" if cable else "rigid",
            model=name,
            friction=FRICTION if cell.model.endswith("-friction") else None,
            reference="cosines",
            motions=MOTIONS,
            test_on="seen",
            test_speeds=tuple(map(float, cell["speeds"].split(","))),
            seconds=cell["seconds"] if name in LEARNED else 1.0,
            clock="stepped",
            steps_per_second=STEPS_PER_SECOND,
            seed=cell.seed,
        )
    )
    return {
        "errors": {
            speed.removesuffix("x"): run.tracking.mse_sum for speed, run in outcome.test.items()
        },
        "first_model_seconds": outcome.train.first_model_seconds,
    }


def draw(results: Results) -> Mapping[str, Drawn]:
    figure = draw_speeds(
        results, ROBOTS, MODELS, error="Σ tracking MSE [rad²]", width=10.0, height=4.0
    )
    caption = (
        f"Tracking error on {MOTIONS} cosine motions at rising speed; the models learned online at "
        "1× alone (white) and are frozen then. The analytic model of the WAM has published "
        "parameters that differ from the simulated arm's; that of the two-link arm is exact. "
        "Median and 5th to 95th percentile over seeds."
    )
    return {NAME: Drawn(figure, caption)}


def claims(results: Results) -> list[Claim]:
    return list(_claims(by_speed(results)))


def _claims(rows: Results) -> Iterator[Claim]:
    for robot, title in ROBOTS.items():
        fast = rows.of(robot=robot, speed=FAST)
        ratios = ratio(fast, "delan", "feedforward")
        if len(ratios):
            median = float(np.median(ratios))
            yield Claim(
                claim=f"{title}: at {FAST:g}× the speed of training the network tracks far better "
                "than the feed-forward network.",
                where=WHERE,
                measured=f"{median:.2g} × the feed-forward network's error (median)",
                asked="at most 0.3 ×",
                holds=verdict(median < 1, median <= 0.3),
                seeds=fast.of("delan").seeds,
            )
    rigid = rows.of(robot="wam4")
    medians = median_ratios(rigid, "speed", "delan", "analytic")
    if medians:
        yield Claim(
            claim="On the simulated rigid WAM the network tracks better than an analytic model "
            "with inexact parameters, at every speed.",
            where=WHERE,
            measured=f"median of the ratio, {listed(medians, '{:g}×')}",
            asked="below 1 at every speed",
            holds=all_below(medians),
            seeds=rigid.of("delan").seeds,
        )
    slow = ratio(rows.of(robot="wam4-cable", speed=1.0), "feedforward", "delan")
    if len(slow):
        median = float(np.median(slow))
        yield Claim(
            claim="With cable drives the feed-forward network tracks the training motions better "
            "than the network without friction, whose physics has no place for them.",
            where=WHERE,
            measured=f"feed-forward network at {median:.2g} × the network's error at 1× (median)",
            asked="below 1",
            holds=verdict(median < 1),
            seeds=rows.of("delan", robot="wam4-cable").seeds,
        )


EXPERIMENT = Experiment(
    name=NAME,
    title="Cosine motions at rising speed, learned online",
    where=WHERE,
    cells=cells,
    run=run,
    seconds=lambda cell: 15.0 if cell.model in GIVEN else 20.0 + cell["seconds"],
    draw=draw,
    claims=claims,
)
