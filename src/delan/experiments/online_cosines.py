"""Beyond the speed it learned at: learned online on slow cosine motions, tested on the same paths, faster."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from .cells import Cell, Claim, Drawn, Experiment, Result, Results, Size
from .curves import by_speed, draw_speeds, ratio
from .online import OnlineRun, run_online
from .rivals import FRICTION

NAME, WHERE = "online-cosines", "Fig. 6"
ROBOTS = {"two-link": "two-link arm", "wam4": "WAM, rigid", "wam4-cable": "WAM, cable drives"}
LEARNED = ("delan", "feedforward", "chain")
GIVEN = ("analytic", "none")
EXTRA = {"wam4-cable": ("delan-friction", "chain-friction")}
"""Models with friction, on the arm that has some."""
MODELS = (*LEARNED, *GIVEN, "delan-friction", "chain-friction")
MOTIONS, STEPS_PER_SECOND = 2, 10.0
"""Different motions, and steps of learning for each second of the robot's time."""
FAST = 2.0


def cells(size: Size) -> list[Cell]:
    speeds = size.pick(quick="1,2", usual="1,1.25,1.5,1.75,2", paper="1,1.25,1.5,1.75,2")
    seconds = size.pick(quick=10.0, usual=20.0, paper=60.0)
    seeds = size.seed_range(quick=1, usual=5)
    return [
        Cell.of(NAME, model, seed=seed, robot=robot, speeds=speeds, seconds=seconds)
        for robot in ROBOTS
        for model in (*LEARNED, *GIVEN, *EXTRA.get(robot, ()))
        for seed in (size.extra_seeds(seeds, quick=0) if model in EXTRA.get(robot, ()) else seeds)
    ]


def run(cell: Cell) -> Result:
    cable = cell["robot"].endswith("-cable")
    name: Any = cell.model.removesuffix("-friction")
    outcome = run_online(
        OnlineRun(
            robot=cell["robot"].removesuffix("-cable"),
            drive="cable" if cable else "rigid",
            feed_forward=name,
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
        "errors": {speed.removesuffix("x"): run.tracking.mse_sum for speed, run in outcome.test.items()},
        "first_model_seconds": outcome.train.first_model_seconds,
    }


def draw(results: Results) -> Mapping[str, Drawn]:
    figure = draw_speeds(results, ROBOTS, MODELS, error="Σ tracking MSE [rad²]", width=10.0, height=4.0)
    caption = (
        f"Tracking error on {MOTIONS} cosine motions at rising speed; the models learned online at 1× alone (white) "
        "and are frozen then. The analytic model of the WAM carries published parameters that are not quite the "
        "simulated arm's; that of the two-link arm is the truth. Median and 5th to 95th percentile over seeds."
    )
    return {NAME: Drawn(figure, caption)}


def claims(results: Results) -> list[Claim]:
    rows, made = by_speed(results), []
    for robot, title in ROBOTS.items():
        fast = rows.of(robot=robot, speed=FAST)
        over = ratio(fast, "test", "delan", "feedforward")
        if len(over):
            made.append(
                Claim(
                    claim=f"{title}: at {FAST:g}× the speed of training the network tracks far better than the "
                    "feed-forward network.",
                    where=WHERE,
                    measured=f"{np.median(over):.2g} × the feed-forward network's error (median)",
                    asked="at most 0.3 ×",
                    holds="yes" if np.median(over) <= 0.3 else "partly" if np.median(over) < 1 else "no",
                    seeds=fast.of("delan").seeds,
                )
            )
    rigid = {
        speed: ratio(rows.of(robot="wam4", speed=speed), "test", "delan", "analytic")
        for speed in rows.of(robot="wam4").settings("speed")
    }
    medians = {speed: float(np.median(values)) for speed, values in rigid.items() if len(values)}
    if medians:
        won = [speed for speed, value in medians.items() if value < 1]
        made.append(
            Claim(
                claim="On the simulated rigid WAM the network tracks better than an analytic model with inexact "
                "parameters, at every speed.",
                where=WHERE,
                measured="median of the ratio, " + ", ".join(f"{s:g}×: {value:.2g}" for s, value in medians.items()),
                asked="below 1 at every speed",
                holds="yes" if len(won) == len(medians) else "partly" if won else "no",
                seeds=rows.of("delan", robot="wam4").seeds,
            )
        )
    slow = ratio(rows.of(robot="wam4-cable", speed=1.0), "test", "feedforward", "delan")
    if len(slow):
        made.append(
            Claim(
                claim="With cable drives the feed-forward network tracks the training motions better than the network "
                "without friction, whose physics has no place for them.",
                where=WHERE,
                measured=f"feed-forward network at {np.median(slow):.2g} × the network's error at 1× (median)",
                asked="below 1",
                holds="yes" if np.median(slow) < 1 else "no",
                seeds=rows.of("delan", robot="wam4-cable").seeds,
            )
        )
    return made


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
