"""Logs larger than the memory they may take: what is read of them, what is found in them, and what
is told of it.
"""

import json
import tracemalloc
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

from delan.cli.check_command import check_log
from delan.cli.main import app
from delan.errors import DataError, SettingsError
from delan.joints import JointLimits, Joints, Recording
from delan.log_rows import RowRange
from delan.logs import reading
from delan.logs.doctor import Finding, cases, check_up_parts, examine, large_logs
from delan.logs.doctor.checked_log import DescribedRobot
from delan.logs.doctor.large_logs import MOST_SPANS, RowMap, merge_spans
from delan.logs.excerpts import excerpt_of
from delan.logs.options import LogOptions
from delan.logs.preparation import PreparationSettings, prepare
from delan.logs.reading import log_parts, read_log, stream_log
from delan.report.check_picture import draw_check

RATE = 200.0
LIMITS = {"lower": -4.0, "upper": 4.0, "velocity": 20.0, "torque": 50.0}
SMALL = LogOptions(memory=1.0)
"""20,833 rows of two joints without velocities."""


def motion(rows: int, seed: int = 0, *, velocity: bool = False) -> dict[str, np.ndarray]:
    """Two joints on sums of sines with noise, torques of their inertia and a spring."""
    rng = np.random.default_rng(seed)
    t = np.arange(rows) / RATE
    rates, phases = rng.uniform(1, 4, (3, 2)), rng.uniform(0, 6, (3, 2))
    angle = t[:, None, None] * rates + phases
    q, qd, qdd = (
        np.sum(x, axis=1)
        for x in (np.sin(angle), rates * np.cos(angle), -(rates**2) * np.sin(angle))
    )
    noise = rng.standard_normal((3, rows, 2))
    made = {"t": t, "q": q + 1e-5 * noise[0], "tau": 0.5 * qdd + q + 0.01 * noise[1]}
    return made | ({"qd": qd + 0.01 * noise[2]} if velocity else {})


def write(path: Path, columns: Mapping[str, Any]) -> Path:
    path.parent.mkdir(exist_ok=True)
    np.savez(path, **columns)
    return path


def folder_of(path: Path, files: int, rows: int, **options: bool) -> Path:
    for number in range(files):
        write(path / f"{number:03}.npz", motion(rows, number, **options))
    return path


def result(findings: tuple[Finding, ...], kind: str, **where: Any) -> Finding:
    """The one finding of a kind."""
    found = [
        item
        for item in findings
        if item.kind == kind and all(getattr(item, k) == v for k, v in where.items())
    ]
    assert len(found) == 1, [f"{item.kind} {item.where}: {item.text}" for item in findings]
    return found[0]


def same(item: Recording, other: Recording) -> bool:
    names = ("t", "q", "tau", "trajectory")
    alike = all(np.array_equal(getattr(item, name), getattr(other, name)) for name in names)
    return alike and (item.joints, item.source, item.excerpt) == (
        other.joints,
        other.source,
        other.excerpt,
    )


def test_a_log_that_fits_is_read_and_checked_as_ever(tmp_path):
    log = folder_of(tmp_path / "logs", 4, 5000)
    whole = read_log(log)
    assert whole.excerpt is None
    assert same(read_log(log, SMALL), whole)
    recording, findings = check_log([log], SMALL, None)
    assert same(recording, whole)
    assert findings == examine(whole) == check_log([log], LogOptions(), None)[1]


def test_a_log_that_fits_does_not_pass_through_the_check_of_large_logs(tmp_path, monkeypatch):
    log = folder_of(tmp_path / "logs", 12, 5000)
    whole = read_log(log)

    def no_torque(q: np.ndarray, qd: np.ndarray, qdd: np.ndarray) -> np.ndarray:
        return 0 * q

    limits = JointLimits(**{name: np.full(2, value) for name, value in LIMITS.items()})
    arm = DescribedRobot("arm.urdf", Joints(("a", "b"), ("revolute",) * 2), no_torque, limits)
    for robot in (None, arm):
        recording, findings = check_up_parts(log_parts(log, SMALL, sound=False), 1e6, robot)
        assert recording.excerpt is not None
        assert recording.joints == (whole if robot is None else robot).joints
        assert ("mismatch" in {item.kind for item in findings}) == (robot is not None)
    monkeypatch.setattr(large_logs, "examine_parts", None)
    recording, findings = check_up_parts(log_parts(log, LogOptions(), sound=False), 1e9)
    assert same(recording, whole)
    assert findings == examine(whole)


@pytest.mark.parametrize("files", [1, 20])
def test_runs_of_a_large_log_have_no_break_and_lie_evenly_over_it(files, tmp_path):
    total = 80_000
    log = folder_of(tmp_path / "logs", files, total // files)
    whole, part = read_log(log), read_log(log, SMALL)
    excerpt = part.excerpt
    assert excerpt is not None
    assert (excerpt.rows, excerpt.trajectories) == (total, files)
    start = 0
    for number, run in enumerate(excerpt.segments):
        rows = slice(start, start + run.end - run.first)
        for name in ("t", "q", "tau"):
            assert np.array_equal(
                getattr(part, name)[rows], getattr(whole, name)[run.first : run.end]
            )
        assert set(whole.trajectory[run.first : run.end]) == {run.trajectory}
        assert set(part.trajectory[rows]) == {number}
        start = rows.stop
    assert start == len(part.t)
    assert 0.7e6 < 48 * start <= 1e6  # the room that was given is used
    edges = [0, *(row for run in excerpt.segments for row in run[:2]), total]
    holes = np.diff(edges)[::2]
    assert holes.max() < 0.06 * total
    assert f"{len(excerpt.segments)} segments of" in excerpt.summary


def test_an_excerpt_of_a_recording_holds_its_rows_in_the_room_given(tmp_path):
    whole = read_log(folder_of(tmp_path / "logs", 4, 20_000))
    assert excerpt_of(whole, 1e9) is whole
    part = excerpt_of(whole, SMALL.most_bytes)
    assert part.excerpt is not None
    rows = np.concatenate([np.arange(run.first, run.end) for run in part.excerpt.segments])
    for name in ("t", "q", "tau"):
        assert np.array_equal(getattr(part, name), getattr(whole, name)[rows])
    assert 0.7e6 < 48 * len(rows) <= 1e6
    assert set(whole.trajectory[rows]) == {0, 1, 2, 3}


def test_runs_are_not_in_step_with_files_of_one_length(tmp_path):
    log = folder_of(tmp_path / "logs", 80, 4 * 325)  # four blocks each
    excerpt = read_log(log, SMALL).excerpt
    assert excerpt is not None
    quarters = np.bincount(
        [(run.first % 1300) // 325 for run in excerpt.segments for _ in range(run.end - run.first)]
    )
    assert len(quarters) == 4
    assert quarters.min() > 0.5 * quarters.max()


def test_short_ends_that_were_cut_off_are_left_out_and_short_trajectories_are_not(tmp_path):
    rng = np.random.default_rng(0)
    lengths = rng.integers(5, 900, 160)
    for number, rows in enumerate(lengths):
        write(tmp_path / "logs" / f"{number:03}.npz", motion(int(rows), number))
    excerpt = read_log(tmp_path / "logs", SMALL).excerpt
    assert excerpt is not None
    ends = np.cumsum(lengths)
    whole = [run.first in (0, *ends) and run.end in ends for run in excerpt.segments]
    sizes = np.array([run.end - run.first for run in excerpt.segments])
    assert sizes[~np.array(whole)].min(initial=1000) >= 50
    assert sizes.min() < 50


def test_a_fault_in_the_last_file_is_found_where_it_is(tmp_path):
    log = folder_of(tmp_path / "logs", 12, 5000)
    last = motion(5000, 11)
    last["t"][4000:] += 0.3
    last["q"][4500, 1] = np.nan
    write(log / "011.npz", last)
    recording, findings = check_log([log], SMALL, None)
    assert recording.excerpt is not None
    gap = result(findings, "gap")
    assert gap.rows == ((59_000, 59_001),)
    assert gap.trajectory == 11
    assert gap.row == 59_000
    assert "row 4000 of 011.npz" in gap.text
    lost = result(findings, "non_finite")
    assert (lost.column, lost.joint, lost.rows) == ("q", 1, ((59_500, 59_501),))
    assert lost.row == 59_500
    assert result(findings, "excerpt").severity == "note"
    with pytest.raises(DataError, match=r"011\.npz, column q1, row 4500"):
        read_log(log, SMALL)


def test_a_channel_wrong_in_one_file_alone_is_found(tmp_path):
    log = folder_of(tmp_path / "logs", 12, 5000, velocity=True)
    turned = motion(5000, 9, velocity=True)
    turned["qd"][:, 0] *= -1
    write(log / "009.npz", turned)
    parts = [
        part
        for part in log_parts(log, SMALL, sound=False)
        if part.first <= 9 * 5000 < part.first + len(part.recording.t)
    ]
    _, findings = check_log([log], SMALL, None)
    odd = [item for item in findings if item.severity != "note"]
    assert odd
    assert {(item.column, item.joint) for item in odd} == {("qd", 0)}
    assert all(not item.rows or parts[0].first <= item.rows[0][0] for item in odd)


def test_faults_at_the_cut_between_parts_are_found(tmp_path):
    log = write(tmp_path / "a.npz", motion(60_000))
    parts = list(log_parts(log, SMALL, sound=False))
    cut = parts[1].first
    assert parts[1].continues
    assert 0 < cut < 25_000
    late, back = motion(60_000), motion(60_000)
    late["t"][cut:] += 0.2
    back["t"][cut:] -= 50.0
    held = motion(60_000)
    held["tau"][cut - 30 : cut + 30, 0] = held["tau"][cut - 30, 0]
    kinds = {"gap": late, "clock_reset": back, "stuck": held}
    for kind, columns in kinds.items():
        _, findings = check_log([write(tmp_path / "b.npz", columns)], SMALL, None)
        rows = result(findings, kind).rows
        assert rows == (((cut - 30, cut + 30),) if kind == "stuck" else ((cut, cut + 1),))
    with pytest.raises(DataError, match=r"time does not increase"):
        read_log(write(tmp_path / "c.npz", back), SMALL)


def test_trajectories_that_go_on_in_another_part_and_rates_that_differ_between_parts(tmp_path):
    labels = np.repeat([0, 1, 2, 0], 15_000)
    log = write(tmp_path / "a.npz", motion(60_000) | {"trajectory": labels})
    _, findings = check_log([log], SMALL, None)
    assert result(findings, "interleaved").rows[0][0] == 45_000
    slow = folder_of(tmp_path / "logs", 10, 6000)
    odd = motion(6000, 9)
    write(slow / "009.npz", odd | {"t": 2 * odd["t"]})
    _, findings = check_log([slow], SMALL, None)
    mixed = result(findings, "mixed_rates")
    assert all(54_000 <= first < end <= 60_000 for first, end in mixed.rows)


def test_a_sound_large_log_gets_no_warning_that_the_whole_does_not_get(tmp_path):
    log = folder_of(tmp_path / "logs", 12, 5000, velocity=True)
    still = motion(5000, 5, velocity=True)
    still["q"][:] = still["q"][0] + 1e-6 * np.random.default_rng(0).standard_normal(
        still["q"].shape
    )
    still["qd"] = 1e-3 * np.random.default_rng(1).standard_normal(still["q"].shape)
    write(log / "005.npz", still)  # a rest is no fault
    of_parts, of_whole = (check_log([log], options, None)[1] for options in (SMALL, LogOptions()))
    told_of = [
        {(item.kind, item.joint, item.column) for item in found} for found in (of_parts, of_whole)
    ]
    assert told_of[0] - told_of[1] <= {("excerpt", None, None)}


def test_memory_stays_within_the_bound(tmp_path, monkeypatch):
    monkeypatch.setattr(reading, "_ROWS", 2000)
    path = write(tmp_path / "a.npz", motion(300_000))  # 14 MB
    peaks = []
    for options in (SMALL, LogOptions()):
        tracemalloc.start()
        try:
            read_log(path, options, sound=False)
            peaks.append(tracemalloc.get_traced_memory()[1])
        finally:
            tracemalloc.stop()
    assert peaks[0] < 5e6
    assert peaks[1] > 14e6


def test_what_was_used_is_told(tmp_path):
    log = write(tmp_path / "a.npz", motion(60_000))
    part = read_log(log, SMALL)
    done = prepare(part, PreparationSettings(cutoff=10.0)).preparation
    assert done is not None
    assert part.excerpt is not None
    assert done.excerpt == part.excerpt
    assert prepare(part).preparation.excerpt == part.excerpt  # pyright: ignore[reportOptionalMemberAccess]
    shown = CliRunner().invoke(
        app, ["check", str(log), "--memory", "1", "--json", "--plot", str(tmp_path / "a.png")]
    )
    assert shown.exit_code == 0, shown.output
    found = json.loads(shown.stdout)
    assert found["rows"] == 60_000
    assert next(item["text"] for item in found["findings"] if item["kind"] == "excerpt").endswith(
        part.excerpt.summary
    )
    assert (tmp_path / "a.png").stat().st_size > 10_000
    shown = CliRunner().invoke(app, ["check", str(log), "--memory", "1"])
    assert "60000 rows, 2 joints, 1 trajectory" in shown.stdout


def test_marks_between_the_runs_are_drawn_at_the_nearest_row(tmp_path):
    recording = read_log(write(tmp_path / "a.npz", motion(60_000)), SMALL)
    measured = {"count": 1, "size": 1.0}
    finding = Finding(cases.OUTLIER, "error", 0, "q", measured, rows=((59_999, 60_000),))
    figure = draw_check(recording, [finding])
    low, high = figure.axes[0].collections[-1].get_paths()[0].get_extents().get_points()[:, 0]
    right = figure.axes[0].get_xlim()[1]
    assert 0.99 * right < low < high == pytest.approx(right)


def test_rows_of_runs_are_rows_of_the_log_and_back():
    row_map = RowMap((RowRange(100, 110, 0), RowRange(200, 205, 1), RowRange(300, 400, 2)))
    finding = Finding(cases.GAP, "note", rows=((8, 16), (20, 21)), row=12)
    in_log = row_map.to_log(finding)
    assert in_log.row == 202
    assert in_log.rows == ((108, 110), (200, 205), (300, 301), (305, 306))
    assert row_map.to_recording(in_log).rows == ((8, 10), (10, 15), (15, 16), (20, 21))
    between = row_map.to_recording(replace(in_log, rows=((50, 60), (150, 160), (500, 501))))
    assert between.rows == ((0, 1), (10, 11), (114, 115))


def test_spans_are_united_and_never_too_many():
    assert merge_spans([(5, 7), (0, 2), (2, 4), (6, 9)]) == ((0, 4), (5, 9))
    assert merge_spans([]) == ()
    many = merge_spans((row, row + 1) for row in range(0, 400_000, 2))
    assert len(many) <= MOST_SPANS
    assert (many[0][0], many[-1][1]) == (0, 399_999)


def test_less_than_a_megabyte_is_refused():
    for memory in (0.5, -1.0, float("nan")):
        with pytest.raises(SettingsError, match="memory must be at least 1 MB"):
            LogOptions(memory=memory)


def test_streams_give_all_of_a_log_whatever_its_size(tmp_path):
    log = write(tmp_path / "a.npz", motion(60_000))
    assert sum(len(piece.t) for piece in stream_log(log, SMALL)) == 60_000
