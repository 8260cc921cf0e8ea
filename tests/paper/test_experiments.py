"""The experiments of the paper: cells, figures and claims on incomplete results, and verdicts."""

import json
from pathlib import Path

import numpy as np
import pytest

from delan.errors import DataError, SettingsError
from delan.joints import Recording
from delan.logs.filters import low_passed
from delan.motions.letters import LETTERS
from delan.online.online_run import OnlineRun
from delan.paper import (
    comparison,
    noise,
    offline_cosines,
    offline_letters,
    online_cosines,
    online_letters,
    published_data,
    torque_components,
    tuning,
)
from delan.paper.cells import Cell, Results, Size
from delan.paper.motion_logs import (
    LETTER_SAMPLES,
    cable_log,
    cosine_log,
    letter_log,
    shuffled_letters,
    with_noise,
)
from delan.paper.reproduction import EXPERIMENTS, run_cell
from delan.robots.arms import TWO_LINK, WAM4, WAM4_ANALYTIC

DATA = Path(__file__).parents[3] / "shared" / "data"


@pytest.mark.parametrize("name", EXPERIMENTS)
def test_figures_and_claims_need_no_results(name):
    nothing = Results([])
    assert EXPERIMENTS[name].claims(nothing) == []
    EXPERIMENTS[name].draw(nothing)


@pytest.mark.parametrize("name", EXPERIMENTS)
@pytest.mark.parametrize("size", ["quick", "usual", "paper"])
def test_cells_are_distinct_and_can_be_written_as_json(name, size):
    cells = EXPERIMENTS[name].cells(Size(size))
    assert len({cell.key for cell in cells}) == len(cells)
    for cell in cells:
        assert cell.experiment == name
        assert EXPERIMENTS[name].seconds(cell) > 0
        json.dumps(cell.as_dict())
        assert cell.model in comparison.STYLES


def test_larger_sizes_have_more_cells():
    for experiment in EXPERIMENTS.values():
        counts = [
            len(experiment.cells(Size(size, data=str(DATA))))
            for size in ("quick", "usual", "paper")
        ]
        assert counts == sorted(counts)
        assert counts[0] < counts[-1] or counts[-1] == 0
    assert len(offline_letters.cells(Size("quick", seeds=3))) == 3 * len(
        offline_letters.cells(Size("quick", seeds=1))
    )


def test_letters_are_sampled_alike_and_every_seed_has_its_own_order():
    log = letter_log(shuffled_letters(3)[:4])
    assert np.bincount(log.trajectory).tolist() == [LETTER_SAMPLES] * 4
    assert sorted(shuffled_letters(1)) == sorted(LETTERS)
    assert shuffled_letters(1) != shuffled_letters(2)
    assert shuffled_letters(1) == shuffled_letters(1)


def test_noise_is_on_every_number():
    clean = cosine_log(WAM4, [0])
    noisy = with_noise(clean, 0.1, seed=1)
    for name in ("q", "qd", "qdd", "tau"):
        assert np.std(getattr(noisy, name) - getattr(clean, name)) == pytest.approx(0.1, rel=0.1)


@pytest.mark.slow
def test_a_rigid_log_is_identified_exactly_and_a_cable_log_is_not(monkeypatch):
    """The oracle is another engine: MuJoCo with cables against the regressor of Pinocchio."""
    monkeypatch.setattr(offline_cosines, "MOTIONS", 1)
    rigid = run_cell(Cell.of("offline-cosines", "identified", seed=0, robot="wam4", speeds="1,2"))
    assert max(rigid["nmse"].values()) < 1e-12
    cable = run_cell(
        Cell.of("offline-cosines", "identified", seed=0, robot="wam4-cable", speeds="1")
    )
    eased = run_cell(
        Cell.of("offline-cosines", "identified-friction", seed=0, robot="wam4-cable", speeds="1")
    )
    assert 1e-4 < eased["nmse"]["1"] < cable["nmse"]["1"]


@pytest.mark.slow
def test_a_cable_driven_log_is_smooth_and_near_its_motion():
    log = cable_log(WAM4, WAM4_ANALYTIC, [5])
    wanted = cosine_log(WAM4, [5])
    assert len(log) == pytest.approx(len(wanted), abs=2)
    assert np.abs(log.q[: len(wanted)] - wanted.q[: len(log)]).max() < 0.3
    assert np.abs(log.qdd).max() < 3 * np.abs(wanted.qdd).max()


def test_a_low_pass_keeps_what_is_slow_and_shifts_nothing():
    t = np.arange(0, 4, 2e-3)
    slow, fast = np.sin(2 * np.pi * 0.5 * t), 0.3 * np.sin(2 * np.pi * 60 * t)
    q = np.stack([slow, -slow], 1)
    noise_free = Recording(
        t=t,
        q=q + fast[:, None],
        tau=3 * q + fast[:, None],
        trajectory=np.zeros(len(t), dtype=int),
        joints=TWO_LINK.joints,
    )
    smooth = low_passed(noise_free, 8.0)
    inside = slice(250, -250)
    np.testing.assert_allclose(smooth.q[inside], q[inside], atol=2e-3)
    np.testing.assert_allclose(smooth.tau[inside], 3 * q[inside], atol=3e-3)
    np.testing.assert_allclose(
        smooth.qdd[inside, 0], -((2 * np.pi * 0.5) ** 2) * slow[inside], atol=0.05
    )


def test_a_cut_off_that_cannot_be_is_refused():
    t = np.arange(100) * 0.01
    q = np.zeros((100, 2))
    log = Recording(t=t, q=q, tau=q, trajectory=np.zeros(100, dtype=int), joints=TWO_LINK.joints)
    with pytest.raises(
        DataError, match="a cut-off of 50 Hz needs at least 28 samples at more than 100 Hz"
    ):
        low_passed(log, 50.0)
    with pytest.raises(DataError, match="has 100 samples"):
        low_passed(log, -1.0)


@pytest.mark.slow
def test_models_learn_from_a_log(monkeypatch):
    monkeypatch.setattr(comparison, "ITERATIONS", 8)
    monkeypatch.setattr(comparison, "STEPS", 40)
    errors = {
        model: run_cell(Cell.of("offline-letters", model, seed=1, letters=3))["test"]
        for model in ("delan", "feedforward", "identified", "newton-euler")
    }
    assert errors["newton-euler"] < 1e-20
    assert errors["identified"] < 1e-2
    spread = float(letter_log(shuffled_letters(1)[3:]).tau.var(axis=0).sum())
    assert errors["delan"] < spread
    assert errors["feedforward"] < spread
    with pytest.raises(SettingsError, match="unknown model 'magic'"):
        comparison.fitted("magic", letter_log("a"), task="letters", believed=TWO_LINK, seed=0)


@pytest.mark.slow
def test_a_run_online_scores_unseen_letters_alone(monkeypatch):
    monkeypatch.setattr(online_letters, "LETTERS", tuple("abcd"))
    monkeypatch.setattr(online_letters, "shuffled_letters", lambda seed: "abcd")
    pd, analytic = (
        run_cell(Cell.of("online-letters", model, seed=0, letters=2))
        for model in ("none", "analytic")
    )
    assert pd["known"] == "ab"
    assert set(pd["errors"]) == set("abcd")
    assert pd["test"] == pytest.approx(np.mean([pd["errors"]["c"], pd["errors"]["d"]]))
    assert analytic["test"] < 1e-3 * pd["test"]
    assert max(analytic["strays"].values()) < 2e-3 < max(pd["strays"].values())
    figures = online_letters.draw(
        Results([(Cell.of("online-letters", "none", seed=0, letters=2), pd)])
    )
    assert {"online-letters-error", "online-letters-boxes"} <= set(figures)


@pytest.mark.slow
def test_the_cable_driven_arm_runs_online():
    done = run_cell(
        Cell.of("online-cosines", "none", seed=0, robot="wam4-cable", speeds="2", seconds=1.0)
    )
    assert set(done["errors"]) == {"2"}
    assert 0 < done["errors"]["2"] < 1


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"robot": "two-link", "drive": "cable"}, "a cable drive needs a WAM in MuJoCo"),
        (
            {"friction": comparison.FRICTION, "model": "feedforward"},
            "friction is learned with the model delan or chain",
        ),
        ({"test_on": "seen"}, "testing on seen motions needs motions ≥ 1"),
        (
            {"robot": "wam4", "reference": "cosines", "drive": "cable", "payload": (1.0, 0.3)},
            "a payload needs a rigid drive",
        ),
    ],
)
def test_impossible_runs_are_refused(wrong, message):
    with pytest.raises(SettingsError, match=message):
        OnlineRun(**wrong)


def rows(experiment: str, table: dict[str, dict], **setting) -> list:
    """Return rows of each model with the same result for three seeds."""
    return [
        (Cell.of(experiment, model, seed=seed, **setting), dict(item))
        for model, item in table.items()
        for seed in range(3)
    ]


def verdicts(module, made: list) -> list[str]:
    return [claim.holds for claim in module.claims(Results(made))]


def test_offline_letters_verdicts_can_fail():
    good = rows(
        "offline-letters", {"delan": {"test": 1.0}, "feedforward": {"test": 100.0}}, letters=1
    )
    even = rows(
        "offline-letters", {"delan": {"test": 1.0}, "feedforward": {"test": 2.0}}, letters=8
    )
    bad = rows("offline-letters", {"delan": {"test": 3.0}, "feedforward": {"test": 2.0}}, letters=8)
    assert verdicts(offline_letters, good + even) == ["yes", "yes"]
    assert verdicts(offline_letters, good + bad) == ["partly", "yes"]
    assert verdicts(offline_letters, bad) == ["no", "no"]
    worst = rows(
        "offline-letters", {"delan": {"test": 1.9}, "feedforward": {"test": 2.0}}, letters=4
    )
    assert verdicts(offline_letters, good + worst + even) == ["yes", "partly"]


def test_online_letters_verdicts_can_fail():
    def made(error: float, stray: float) -> list:
        item = {"strays": {"a": stray, "b": 0.0}}
        table = {"delan": error, "feedforward": 10.0, "analytic": 1.0}
        return rows(
            "online-letters",
            {model: {"test": value, **item} for model, value in table.items()},
            letters=8,
        )

    slower = [
        (Cell.of("online-letters", f"{cell.model}-adam", seed=cell.seed, letters=8), row)
        for cell, row in made(11.0, 0.01)
    ]
    assert verdicts(online_letters, made(1.05, 0.01) + slower) == ["no", "yes", "yes", "yes"]
    assert verdicts(online_letters, made(1.05, 0.01)) == ["yes", "yes", "yes"]
    assert verdicts(online_letters, made(1.5, 0.03)) == ["yes", "no", "no"]
    assert verdicts(online_letters, made(11.0, 0.03)) == ["no", "no", "no"]


def test_online_cosines_verdicts_can_fail():
    def made(delan: float) -> list:
        table = {"delan": delan, "feedforward": 1.0, "analytic": 0.5}
        return [
            row
            for robot in online_cosines.ROBOTS
            for row in rows(
                "online-cosines",
                {model: {"errors": {"1": value, "2": value}} for model, value in table.items()},
                robot=robot,
                speeds="1,2",
            )
        ]

    assert verdicts(online_cosines, made(0.2)) == ["yes", "yes", "yes", "yes", "no"]
    assert verdicts(online_cosines, made(0.6)) == ["partly", "partly", "partly", "no", "no"]
    assert verdicts(online_cosines, made(2.0)) == ["no", "no", "no", "no", "yes"]


def test_offline_cosines_verdicts_can_fail():
    def made(identified: float) -> list:
        table = {"delan": {"errors": {"1": 1.0}}, "identified": {"errors": {"1": identified}}}
        return [
            row
            for robot in offline_cosines.ROBOTS
            for row in rows("offline-cosines", table, robot=robot, speeds="1")
        ]

    assert verdicts(offline_cosines, made(0.1)) == ["yes", "no"]
    assert verdicts(offline_cosines, made(10.0)) == ["no", "yes"]


def test_noise_verdicts_can_fail():
    def made(identified: float) -> list:
        return [
            *rows("noise", {"delan": {"test": 1.0}, "identified": {"test": 0.1}}, variance=1e-5),
            *rows(
                "noise", {"delan": {"test": 2.0}, "identified": {"test": identified}}, variance=1e-1
            ),
        ]

    assert verdicts(noise, made(3.0)) == ["yes"]
    assert verdicts(noise, made(1.0)) == ["partly"]
    assert verdicts(noise, made(0.15)) == ["no"]


def test_component_verdicts_can_fail():
    def made(gravity: float) -> list:
        nmse = dict.fromkeys(torque_components.PARTS, 1e-6) | {"gravity": gravity}
        return rows("torque-components", {"delan": {"nmse": nmse}})

    assert verdicts(torque_components, made(1e-5)) == ["yes"]
    assert verdicts(torque_components, made(0.1)) == ["partly"]


def test_published_verdicts_can_fail():
    def made(error: float, valid: float) -> list:
        return rows("published-data", {"delan": {"test": error, "valid_seconds": valid}}, file="x")

    assert verdicts(published_data, made(1e-6, 3.0)) == ["yes", "yes"]
    assert verdicts(published_data, made(1e-5, 1.0)) == ["no", "no"]


def test_tuning_names_the_best_candidate():
    made = [
        row
        for task in ("letters", "cosines")
        for number in range(len(comparison.CANDIDATES))
        for row in rows(
            "tuning",
            {model: {"validation": abs(number - 2) + 0.1} for model in tuning.MODELS},
            task=task,
            candidate=number,
        )
    ]
    assert set(tuning.best(Results(made)).values()) == {2}
    assert tuning.draw(Results(made))["tuning"].caption


def test_published_letters_are_split_as_usual():
    if not DATA.exists():
        pytest.skip("the published data are not on this machine")
    training, test = published_data.read_published(DATA / published_data.FILE)
    assert len(training) + len(test) == 2913
    assert len(test) == 454
    assert published_data.cells(Size("quick", data=str(DATA)))
    assert published_data.cells(Size("quick")) == []


def test_the_physical_wam_log_is_read():
    if not DATA.exists():
        pytest.skip("the published data are not on this machine")
    log = offline_cosines.read_real(DATA / offline_cosines.REAL_FILE)
    assert log.dof == 7
    assert len(log.trajectories) == 5
    assert np.abs(log.tau).max() < 80
