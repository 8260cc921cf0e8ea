"""Trajectories of different sampling rates: resampled to one rate, as if recorded at that rate."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from delan.errors import DataError
from delan.joints import Joints, Recording
from delan.logs.doctor import cases, examine
from delan.logs.preparation import PreparationSettings, at_one_rate, prepare
from delan.logs.segments import common_step, require_sound
from delan.models.friction import Friction, FrictionSettings
from delan.models.friction_memory import remembered
from delan.solvers.loss import Windows

SECONDS = 6.0
# A cubic through at least 40 rows a period follows a sine to this.
CUBIC = 2e-5


def motion(t: np.ndarray, phase: float) -> dict[str, np.ndarray]:
    """Return positions, velocities and torques of two joints at any time."""
    one, two = 2 * np.pi * 0.7 * t + phase, 2 * np.pi * 1.1 * t - phase
    return {
        "q": np.stack([np.sin(one), 0.5 * np.cos(two)], axis=1),
        "qd": np.stack([2 * np.pi * 0.7 * np.cos(one), -1.1 * np.pi * np.sin(two)], axis=1),
        "tau": np.stack([3 * np.cos(one) + 1, np.sin(two) ** 2], axis=1),
    }


def recorded(
    rates: Sequence[float],
    *,
    start: float = 0.0,
    signals: Callable[[np.ndarray, float], dict[str, np.ndarray]] = motion,
    seconds: float = SECONDS,
) -> Recording:
    """Return one trajectory for each rate [Hz], each with another phase."""
    parts = []
    times = []
    for number, rate in enumerate(rates):
        t = start + np.arange(round(seconds * rate)) / rate
        times.append(t)
        parts.append(signals(t, 0.3 * number))
    columns: dict[str, Any] = {}
    for name in parts[0]:
        columns[name] = np.concatenate([part[name] for part in parts])
    return Recording(
        t=np.concatenate(times),
        trajectory=np.repeat(np.arange(len(rates)), list(map(len, times))),
        joints=Joints.revolute(2),
        **columns,
    )


@pytest.mark.parametrize("other", [616.0, 400.0, 170.0, 100.0, 900.0])
def test_a_trajectory_of_another_rate_becomes_as_if_recorded_at_the_usual_one(other):
    mixed = at_one_rate(recorded((500.0, 500.0, other), start=4.0))
    steps = np.diff(mixed.t[mixed.trajectory == 2])
    np.testing.assert_allclose(steps, 1 / 500, rtol=1e-9)
    rows = mixed.trajectory == 2
    true = motion(mixed.t[rows], 0.6)
    for name, values in true.items():
        # The filter before a slower rate extrapolates at the ends.
        inner = slice(20, -20) if other > 750 else slice(None)
        error = np.abs(getattr(mixed, name)[rows] - values)[inner].max()
        assert error < CUBIC * np.ptp(values), name
    whole = recorded((500.0, 500.0, 500.0), start=4.0)
    assert abs(len(mixed.t) - len(whole.t)) <= 500 / other + 1
    np.testing.assert_array_equal(mixed.q[~rows], whole.q[whole.trajectory < 2])


def test_one_rate_is_left_alone():
    recording = recorded((500.0, 500.0))
    assert at_one_rate(recording) is recording
    nearly = recorded((500.0, 480.0))
    assert at_one_rate(nearly) is nearly


def test_the_usual_rate_is_that_of_most_rows():
    # The first trajectory does not decide, nor the number of trajectories.
    assert common_step([0.01, 0.002, 0.01], [300, 2000, 400]) == 0.002
    assert common_step([0.01, 0.002, 0.004], [900, 800, 700]) == 0.01
    assert common_step([0.0100, 0.0101, 0.0099, 0.002], [10, 10, 10, 20]) == 0.01
    assert common_step([], []) == 0.0


def test_a_slower_rate_makes_no_slow_motion_of_fast_noise():
    """A tone of 90 Hz sampled at 100 Hz would look like one of 10 Hz."""

    def humming(t: np.ndarray, phase: float) -> dict[str, np.ndarray]:
        columns = motion(t, phase)
        hum = np.sin(2 * np.pi * 90 * t)[:, None]
        return {**columns, "tau": columns["tau"] + hum}

    recording = recorded((100.0, 100.0, 1000.0), signals=humming, seconds=30.0)
    slow = recorded((100.0,) * 3, seconds=30.0)
    # Short, so that most rows are those at 100 Hz.
    few = recording.rows((recording.trajectory < 2) | (recording.t < 5.0))
    resampled = at_one_rate(few)
    rows = resampled.trajectory == 2
    true = slow.tau[slow.trajectory == 2][: np.count_nonzero(rows)]
    error = (resampled.tau[rows] - true)[20:-20]
    assert np.abs(error).max() < 0.01


def test_gaps_stay_gaps_and_short_ones_are_bridged():
    recording = recorded((500.0, 500.0, 616.0))
    other = recording.trajectory == 2
    lost = other & (((recording.t > 2) & (recording.t < 2.5)) | (np.abs(recording.t - 4) < 0.004))
    resampled = at_one_rate(recording.rows(~lost))
    t = resampled.t[resampled.trajectory == 2]
    gaps = np.flatnonzero(np.diff(t) > 0.003)
    assert len(gaps) == 1
    assert 2.0 - 0.004 < t[gaps[0]] < 2.0 + 1e-9
    prepared = prepare(recording.rows(~lost), PreparationSettings(cutoff=6.0))
    assert prepared.preparation is not None
    assert prepared.preparation.cuts == {"gaps": 1}


def test_stale_readings_are_not_interpolated():
    recording = recorded((500.0, 500.0, 616.0))
    stale = np.flatnonzero(recording.trajectory == 2)[100::10]
    columns = {name: getattr(recording, name).copy() for name in ("q", "qd", "tau")}
    for values in columns.values():
        values[stale] = values[stale - 1]
    resampled = at_one_rate(replace(recording, **columns))
    rows = resampled.trajectory == 2
    true = motion(resampled.t[rows], 0.6)["q"]
    # A stale reading is wrong by a step of the motion, 0.007; a straight line over it by 3e-5.
    assert np.abs(resampled.q[rows] - true).max() < 1e-4


@pytest.mark.parametrize("settings", [PreparationSettings(cutoff=8.0), PreparationSettings()])
def test_a_prepared_log_of_mixed_rates_equals_one_of_a_single_rate(settings):
    mixed = prepare(recorded((500.0, 500.0, 616.0)), settings)
    single = prepare(recorded((500.0,) * 3), settings)
    assert mixed.trajectories == single.trajectories
    for label in mixed.trajectories:
        ours = mixed.rows(mixed.trajectory == label)
        theirs = single.rows(single.trajectory == label)
        shared = slice(60, min(len(ours), len(theirs)) - 60)
        for name in ("t", "q", "qd", "qdd", "tau"):
            expected = getattr(theirs, name)[shared]
            error = np.abs(getattr(ours, name)[shared] - expected).max()
            assert error < 1e-3 * np.ptp(expected), (label, name)


def test_every_column_is_resampled():
    recording = recorded((500.0, 500.0, 616.0))
    truth = {"gravity": 2 * recording.q}
    whole = replace(recording, qdd=-recording.q, truth=truth)
    dataset = prepare(whole)
    assert np.abs(dataset.truth["gravity"] - 2 * dataset.q).max() < 1e-9
    assert np.abs(dataset.qdd + dataset.q).max() < 1e-9


@pytest.mark.parametrize("rate", [200.0, 1000.0])
def test_a_test_log_may_have_another_rate_than_the_training_log(rate):
    """Windows, memory of friction and the share of samples are the same in seconds."""
    settings = PreparationSettings(cutoff=8.0)
    training = prepare(recorded((500.0, 500.0)), settings)
    test = prepare(recorded((rate, rate)), settings)
    assert len(test.samples) == pytest.approx(len(training.samples), rel=0.25)
    friction = FrictionSettings(("stops",), radii=(0.3,))
    head = Friction(test.joints, friction)
    memories = []
    for dataset in (training, test):
        memory = remembered(head, replace(dataset, counted=None))
        assert memory is not None
        inside = dataset.trajectory == 0
        times = np.linspace(1.0, 5.0, 50)
        memories.append(np.interp(times, dataset.t[inside], memory[inside, 0, 0]))
    np.testing.assert_allclose(memories[1], memories[0], atol=0.02)
    windows = [
        Windows.of(prepare(log, settings.unfiltered))
        for log in (recorded((500.0, 500.0)), recorded((rate, rate)))
    ]
    means = [float(np.mean(np.asarray(item.tau)[:, 0])) for item in windows]
    assert means[1] == pytest.approx(means[0], abs=0.05)


def test_mixed_rates_inside_a_trajectory_are_still_refused():
    recording = recorded((500.0, 500.0))
    rows = (
        (recording.trajectory == 0) | (recording.t < 3.0) | (np.arange(len(recording.t)) % 3 == 0)
    )
    uneven = recording.rows(rows)
    with pytest.raises(DataError, match=r"mixed sampling rates: .* split the log by rate"):
        require_sound(uneven)
    require_sound(recorded((500.0, 100.0)))


def test_the_check_notes_other_rates_between_trajectories():
    findings = examine(recorded((500.0, 500.0, 616.0)))
    (note,) = (item for item in findings if item.kind == "mixed_rates")
    assert (note.case, note.severity) == (cases.MIXED_RATES, "note")
    assert (note.measured["slowest"], note.measured["fastest"]) == (500, 616)
    assert note.measured["usual"] == pytest.approx(500)
    assert note.trajectory == 2
    assert "resamples these trajectories to 500 Hz" in note.remedy
