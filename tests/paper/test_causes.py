"""Why claims fail: each question changes one thing, and its answer can be no."""

import pytest

from delan.paper import cause_claims, causes, error_growth, noise, online_cosines
from delan.paper.cells import Cell, Results, Size
from delan.paper.motion_logs import cable_log
from delan.robots.arms import WAM4, WAM4_ANALYTIC
from delan.robots.cable_drive import CableSettings

SEEDS = range(3)


def rows(question: str, model: str, numbers: dict[str, float], **setting) -> list:
    return [
        (Cell.of(causes.NAME, model, seed=seed, question=question, **setting), dict(numbers))
        for seed in SEEDS
    ]


def verdict(module, made: list, words: str) -> str:
    """Return the verdict on the claim whose text has these words."""
    (claim,) = [claim for claim in module.EXPERIMENT.judged(Results(made)) if words in claim.claim]
    return claim.holds


def cables(**errors: dict[str, float]) -> list:
    made = []
    for arm, table in errors.items():
        for model, error in table.items():
            made += rows("cables", model, {"slow": error, "fast": error}, arm=arm)
    return made


def test_what_makes_the_misfit_on_cables_is_judged():
    friction = cables(
        whole={"identified": 10.0},
        frictionless={"identified": 0.1, "delan": 1.0, "feedforward": 2.0},
        stiff={"identified": 9.0},
        drawn={"identified": 9.9},
    )
    assert verdict(cause_claims, friction, "friction makes the misfit") == "yes"
    assert verdict(cause_claims, friction, "neither stretch nor wrong kinematics") == "yes"
    assert verdict(cause_claims, friction, "without friction in the arm") == "yes"
    stretch = cables(
        whole={"identified": 10.0},
        frictionless={"identified": 9.0, "delan": 2.0, "feedforward": 1.0},
        stiff={"identified": 0.1},
        drawn={"identified": 9.9},
    )
    assert verdict(cause_claims, stretch, "friction makes the misfit") == "no"
    assert verdict(cause_claims, stretch, "neither stretch nor wrong kinematics") == "partly"
    assert verdict(cause_claims, stretch, "without friction in the arm") == "no"


def strays(paper_few: float, paper_many: float, own: float, network: float) -> list:
    few, many = causes.STEPS
    made = rows("letters", "delan-adam", {"stray": network}, recipe="paper", steps=few)
    for recipe, steps, stray in (
        ("paper", few, paper_few),
        ("paper", many, paper_many),
        ("own", many, own),
    ):
        made += rows("letters", "feedforward-adam", {"stray": stray}, recipe=recipe, steps=steps)
    return made


def test_how_far_letters_stray_is_judged():
    words = "depends on its training"
    assert verdict(cause_claims, strays(0.02, 0.01, 0.005, 0.05), words) == "yes"
    assert verdict(cause_claims, strays(0.02, 0.01, 0.01, 0.05), words) == "partly"
    assert verdict(cause_claims, strays(0.02, 0.01, 0.005, 0.05), "deviates farther") == "yes"
    assert verdict(cause_claims, strays(0.02, 0.01, 0.005, 0.01), "deviates farther") == "no"


def test_longer_learning_and_missing_validation_are_judged():
    short, long = causes.SECONDS

    def learned(after_long: float) -> list:
        made = []
        for seconds, error in ((short, 0.3), (long, after_long)):
            made += rows("budget", "delan", {"test": error}, seconds=seconds)
            made += rows("budget", "feedforward", {"test": 1.0}, seconds=seconds)
        return made

    assert verdict(cause_claims, learned(0.9), "comparably") == "yes"
    assert verdict(cause_claims, learned(0.2), "comparably") == "no"

    def unstopped(feedforward: float) -> list:
        made = rows("validation", "feedforward-unstopped", {"train_noisy": feedforward}, letters=8)
        for model in ("delan-unstopped", "identified", "newton-euler"):
            made += rows("validation", model, {"train_noisy": 1.0}, letters=8)
        return made

    assert verdict(cause_claims, unstopped(0.8), "overfits") == "yes"
    assert verdict(cause_claims, unstopped(1.2), "overfits") == "no"


def test_the_growth_of_parts_is_judged():
    def made(coriolis: float, gravity: float) -> list:
        slow = dict.fromkeys(error_growth.COLOURS, 1.0)
        fast = {**slow, "inertial": 16.0, "coriolis": coriolis, "gravity": gravity}
        return [
            (Cell.of(error_growth.NAME, "delan", seed=seed), {"errors": {"1": slow, "2": fast}})
            for seed in SEEDS
        ]

    assert verdict(error_growth, made(16.0, 1.0), "square of the speed") == "yes"
    assert verdict(error_growth, made(2.0, 1.0), "square of the speed") == "partly"
    assert verdict(error_growth, made(16.0, 1.0), "gravity") == "yes"
    assert verdict(error_growth, made(16.0, 9.0), "gravity") == "no"


def test_the_order_under_noise_is_judged():
    def made(feedforward: float, identified: float) -> list:
        errors = {"delan": 1.0, "feedforward": feedforward, "identified": identified}
        found = []
        for variance in (1e-4, 1.0):
            for model, error in errors.items():
                for seed in SEEDS:
                    cell = Cell.of(noise.NAME, model, seed=seed, variance=variance)
                    found.append((cell, {"test": error}))
        return found

    assert verdict(noise, made(0.5, 1.2), "σ² = 1: on the training motions the feed") == "yes"
    assert verdict(noise, made(2.0, 1.2), "σ² = 1: on the training motions the feed") == "no"
    assert verdict(noise, made(0.5, 1.2), "network and identification are comparable") == "yes"
    assert verdict(noise, made(0.5, 9.0), "network and identification are comparable") == "no"


def test_friction_and_the_exact_model_are_judged_online():
    def made(friction: float, exact: float) -> list:
        found = []
        cable = {"delan": 2.0, "feedforward": 3.0, "analytic": 1.0, "delan-friction": friction}
        for robot, errors in (
            ("wam4-cable", cable),
            ("two-link", {"delan": 1.0, "analytic": exact, "feedforward": 2.0}),
        ):
            for model, error in errors.items():
                for seed in SEEDS:
                    cell = Cell.of(online_cosines.NAME, model, seed=seed, robot=robot)
                    by_speed = {"1": error, "1.25": error, "2": error}
                    found.append((cell, {"errors": by_speed}))
        return found

    assert (
        verdict(online_cosines, made(0.5, 1.0), "with friction terms the network tracks the")
        == "yes"
    )
    assert (
        verdict(online_cosines, made(1.5, 1.0), "with friction terms the network tracks the")
        == "partly"
    )
    assert verdict(online_cosines, made(0.5, 1.0), "exact analytic model does") == "yes"
    assert verdict(online_cosines, made(0.5, 0.1), "exact analytic model does") == "no"


def test_every_question_has_cells_a_way_to_compute_them_and_an_answer():
    asked = {cell["question"] for cell in causes.cells(Size())}
    assert asked == causes.CELLS.keys() == causes.RUNS.keys() == cause_claims.ANSWERS.keys()


@pytest.mark.parametrize("arm", ["frictionless", "stiff"])
def test_a_variant_of_the_arm_differs_in_one_fault(arm):
    usual = CableSettings()
    changed = causes.ARMS[arm].drive()
    names = {name for name in vars(usual) if getattr(usual, name) != getattr(changed, name)}
    expected = {"frictionless": set(causes.DRY), "stiff": {"stiffness", "damping"}}
    assert names == expected[arm]


@pytest.mark.slow
def test_an_arm_without_tolerances_moves_otherwise():
    as_drawn = cable_log(WAM4, WAM4_ANALYTIC, range(1), tolerances=False)
    produced = cable_log(WAM4, WAM4_ANALYTIC, range(1))
    first = slice(0, 200)
    assert abs(as_drawn.tau[first] - produced.tau[first]).max() > 0.01
