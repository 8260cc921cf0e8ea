"""What the benchmarks rest on: percentiles without the clock's time, counts that do not change,
rows that can miss.
"""

import json
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest
import typer

from benchmarks import (
    big_logs,
    choices,
    goldens,
    instructions,
    official,
    online,
    results,
    side_by_side,
    throughput,
    timing,
)
from benchmarks.choice_cases import CASES, facts, first, last, novelty
from benchmarks.choices import Failure, Outcome
from benchmarks.exported import Program, build_programs
from benchmarks.timing import Work, apart, latencies, percentiles, seconds_per_sample
from delan.cli.main import app
from delan.logs.reading import read_log
from delan.models.networks import FeedForwardNetwork
from delan.robots.arms import TWO_LINK


def test_percentiles_are_those_of_sorted_times() -> None:
    shown = percentiles(np.random.default_rng(0).permutation(np.arange(101.0)))
    assert (shown.p50, shown.p99) == (50.0, 99.0)


def test_latencies_hold_the_call_and_not_the_clock(monkeypatch: pytest.MonkeyPatch) -> None:
    passed = [0]

    def work(nanoseconds: int) -> int:
        passed[0] += nanoseconds
        return passed[0]

    monkeypatch.setattr(time, "perf_counter_ns", lambda: work(50))
    shown = latencies({"slow": (work, (2_000,)), "quick": (work, (100,))}, turns=5, calls_a_turn=4)
    assert (shown["slow"].p50, shown["slow"].p99, shown["quick"].p50) == (2.0, 2.0, 0.1)


def test_turns_share_the_machine_and_the_first_one_is_not_counted() -> None:
    ran: list[str] = []
    works = {name: Work(lambda name=name: ran.append(name), 2) for name in ("a", "b")}
    assert {name: len(item) for name, item in seconds_per_sample(works, 3).items()} == {
        "a": 3,
        "b": 3,
    }
    assert ran == ["a", "b"] * 4


@pytest.mark.skipif(
    not hasattr(os, "sched_setaffinity"), reason="this system keeps no process to one core"
)
def test_a_process_apart_gets_the_cores_back(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "cores.py").write_text(
        "import os; print(len(os.sched_getaffinity(0)), os.environ['XLA_FLAGS'])"
    )
    all_cores = os.sched_getaffinity(0)
    monkeypatch.setenv("XLA_FLAGS", "--xla_cpu_enable_fast_math=false")
    try:
        timing.take_one_core()
        assert len(os.sched_getaffinity(0)) == 1
        shown = apart("cores", environment={"PYTHONPATH": str(tmp_path)})
        assert len(os.sched_getaffinity(0)) == 1
    finally:
        os.sched_setaffinity(0, all_cores)
    assert shown.split() == [str(len(all_cores)), "--xla_cpu_enable_fast_math=false"]


def test_published_code_that_is_not_there_is_told(tmp_path: Path) -> None:
    with pytest.raises(
        SystemExit, match=r"give a clone of github.com/milutter/deep_lagrangian_networks"
    ):
        official.OfficialCode.at(tmp_path)


def test_what_published_code_needs_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    package = tmp_path / official.PACKAGE
    package.mkdir()
    (package / "DeLaN_model.py").write_text("import torch\n")
    (package / "jax_DeLaN_model.py").write_text("import haiku\n")
    monkeypatch.setattr(sys, "path", [*sys.path])
    for name in ("torch", "haiku"):
        monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(SystemExit, match="none of the published code can be run"):
        official.OfficialCode.at(tmp_path)
    shown = capsys.readouterr().out
    assert "pip install torch" in shown
    assert "pip install dm-haiku" in shown


def test_goldens_find_changed_facts_and_ignore_changed_sentences() -> None:
    before = {"error": 1.0, "model": "chain", "text": "no friction shows", "rows": [[1.0, 2.0]]}
    same = before | {"text": "no friction visible", "new": 3}
    assert goldens.differences(before, same) == []
    for name, value in (("error", 1.0 + 1e-9), ("model", "delan"), ("rows", [[1.0]])):
        (line,) = goldens.differences(before, before | {name: value})
        assert line.startswith(f".{name} ")
    assert goldens.differences(before, {"error": 1.0}) != []


def test_two_installations_take_turns(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    calls = []

    def seconds(python: str, words: list[str], cache: Path) -> float:
        calls.append((python, words[1]))
        return 3.0 if python == "other" else 2.0 + len(calls)

    monkeypatch.setattr(side_by_side, "seconds", seconds)
    logs = {"SMALL": tmp_path / "small.npz", "PANDA": tmp_path / "panda.npz"}
    row = side_by_side.measure("chain", "other", 2, logs)
    assert [python for python, _ in calls] == [sys.executable, "other", "other", sys.executable]
    assert {log for _, log in calls} == {str(logs["SMALL"])}
    assert row == {"seconds": 3.0, "other_seconds": 3.0, "ratio": 1.5}


def test_growth_of_a_count_is_found() -> None:
    before = {"a": 1000, "b": 1000}
    assert instructions.grown({"a": 1021, "b": 1019, "new": 5}, before) == ["a"]


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Program:
    model = FeedForwardNetwork(TWO_LINK.joints, key=jax.random.key(0))
    return next(
        iter(
            build_programs(
                {"plain": model}, tmp_path_factory.mktemp("c"), instructions.portable_flags()
            )
        )
    )


@pytest.mark.skipif(shutil.which("cc") is None, reason="no C compiler")
def test_the_harness_orders_its_times(program: Program) -> None:
    least, p50, p99 = (float(item) for item in program.run(20, 100, 1000).stdout.split())
    assert 0 < least < 1e3
    assert p50 <= p99


@pytest.mark.skipif(
    shutil.which("cc") is None or shutil.which("valgrind") is None, reason="no compiler or valgrind"
)
def test_counts_do_not_change_and_hold_every_weight(program: Program) -> None:
    products = 64 * 6 + 64 * 64 + 2 * 64
    counted = instructions.count(program)
    assert instructions.count(program) == counted
    assert counted > products / 8  # eight products in one instruction is all that AVX2 can


def test_an_epoch_learns_on_the_same_data_for_all(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(throughput, "BATCHES", 2)
    losses = [
        np.asarray(throughput.epoch_of(torque, 2, 8).run()[1])
        for torque in throughput.ENGINES.values()
    ]
    assert losses[0].shape == (2,)
    np.testing.assert_allclose(losses[0], losses[1], rtol=1e-6)


# The runs of `drift` are in this process.
@pytest.mark.parametrize("row", [row for row in sorted(online.ROWS) if "drift" not in row])
def test_every_run_of_an_hour_is_one_that_the_command_takes(
    row: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Only the command's own parser sees the arguments: a name that it refuses shows here, not
    after an hour.
    """
    command = typer.main.get_command(app).commands["online"]  # pyright: ignore[reportAttributeAccessIssue]
    shown = {"mse_sum": 1.0, "segments": []}
    loop = dict.fromkeys(
        ("periods", "missed", "late_feedforward", "lost_samples", "swaps", "lateness_us"), 1
    )
    tests = ("train", "test", *(f"{speed:g}x" for speed in online.SPEEDS))
    answer = {
        "loop": loop,
        "tracking": dict.fromkeys(tests, shown),
        "first_model_seconds": 1.0,
        "events": [],
    }
    taken = []

    def parse(arguments: list[str], **_: bool) -> subprocess.CompletedProcess[str]:
        with command.make_context("online", arguments[arguments.index("online") + 1 :]) as context:
            taken.append(context.params["model"])
        return subprocess.CompletedProcess(arguments, 0, json.dumps(answer), "")

    monkeypatch.setattr(online.subprocess, "run", parse)
    monkeypatch.setattr(online, "bare_loop", lambda: 0.0)
    online.ROWS[row]()
    assert len(taken) >= 1


@pytest.mark.parametrize("kind", big_logs.LOGS)
def test_a_big_log_is_where_it_is_said_to_be_and_has_its_gap(
    kind: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(big_logs, "SECONDS", 4.0)
    log = read_log(big_logs.LOGS[kind](tmp_path / kind, 1e6), sound=False)
    run = log.t[log.trajectory == log.trajectory[-1]]
    assert np.max(np.diff(run)) == pytest.approx((big_logs.GAP_ROWS + 1) / big_logs.RATE)


def fit_answer(decision: str, chain: float | None, network: float) -> dict[str, Any]:
    """Return what `delan fit --json` prints, as far as a choice is judged by it."""
    errors = {"chain": chain, "delan": network, "constant": 1e-3}
    scores = {
        name: {"test": {"nmse_mean": error}, "validation": {"nmse_mean": error}}
        for name, error in errors.items()
    }
    return {
        "chosen": "chain",
        "models": scores,
        "coverage": [0.9, None, 0.8],
        "decision": decision,
        "seconds": 60.0,
        "preparation": {"cutoff": [10.0, 20.0], "delay": 0.002},
    }


def test_a_choice_is_judged_by_the_unseen_motion() -> None:
    outcome = Outcome.of(fit_answer("deploy", 0.03, 0.02))
    assert outcome.best == ("delan", 0.02)
    assert (outcome.regret, outcome.band_share) == pytest.approx((1.5, 0.85))
    assert Outcome.of(fit_answer("deploy", None, 0.02)).regret == np.inf


@pytest.mark.parametrize(
    ("decision", "error", "wrong"),
    [
        ("deploy", 0.09, False),
        ("deploy", 0.11, True),
        ("deploy", None, True),
        ("doubtful", 0.5, False),
        ("refuse", 0.03, False),
        ("refuse", 0.01, True),
    ],
)
def test_a_verdict_is_wrong_if_the_test_error_contradicts_it(
    decision: str, error: float | None, wrong: bool
) -> None:
    assert Outcome.of(fit_answer(decision, error, 1.0)).verdict_wrong is wrong
    answer = fit_answer("doubtful", error, 1.0) | {"decision_before_test": decision}
    assert Outcome.of(answer).verdict_wrong is wrong


def test_a_case_that_runs_again_replaces_its_row(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    for module in (choices, results):
        monkeypatch.setattr(module, "FOLDER", tmp_path)
    one, two = list(CASES)[:2]
    outcome = Outcome.of(fit_answer("deploy", 0.03, 0.02))
    choices.store(two, outcome)
    choices.store(one, Failure("not ready"))
    assert choices.stored() == {one: Failure("not ready"), two: outcome}
    choices.store(one, outcome)
    assert choices.stored() == {one: outcome, two: outcome}


def test_cuts_by_time_share_no_row_and_lose_none() -> None:
    runs = [{"t": np.arange(10.0)}, {"t": np.arange(20.0)}]
    for cut in (first(0.7), last(0.7)):
        known, unseen = cut(runs)
        assert len(known["t"]) == 21
        for label in (0, 1):
            parts = [rows["t"][rows["trajectory"] == label] for rows in (known, unseen)]
            np.testing.assert_array_equal(np.sort(np.concatenate(parts)), runs[label]["t"])


def test_a_simulated_case_is_the_same_every_time_and_its_unseen_motion_is_new() -> None:
    case = CASES["sim_arm3_short"]
    known, unseen = case.build(Path("no folder"))
    again, _ = case.build(Path("no folder"))
    np.testing.assert_array_equal(known["tau"], again["tau"])
    assert facts(known).joints == facts(unseen).joints == 3
    assert novelty(known, unseen) > 10 * novelty(known, known)
