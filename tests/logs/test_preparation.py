"""Preparation of recordings: filter, delay, gaps, pauses and repeats, and how it reports them."""

from dataclasses import replace

import numpy as np
import pytest

from delan.errors import DataError, SettingsError
from delan.joints import Joints, Recording
from delan.logs.filters import smoothed, stride
from delan.logs.preparation import PreparationSettings, prepare
from delan.models.friction import Friction, FrictionSettings
from delan.models.friction_memory import remembered

RATE = 500.0


def recorded(
    seconds: float = 12.0, *, rest: tuple[float, float] | None = None, seed: int = 0
) -> Recording:
    """Return two joints on slow sines with noise, which stand still during a rest."""
    t = np.arange(round(seconds * RATE)) / RATE
    moving = np.ones(len(t)) if rest is None else np.where((t > rest[0]) & (t < rest[1]), 0.0, 1.0)
    phase = np.cumsum(moving) / RATE
    q = np.stack([np.sin(2 * np.pi * 0.4 * phase), 0.5 * np.cos(2 * np.pi * 0.7 * phase)], axis=1)
    rng = np.random.default_rng(seed)
    tau = np.stack([np.cos(2 * np.pi * 0.4 * phase), np.sin(2 * np.pi * 1.4 * phase)], axis=1)
    return Recording(
        t=t,
        q=q + 1e-5 * rng.standard_normal(q.shape),
        tau=tau + 0.05 * rng.standard_normal(q.shape),
        trajectory=np.zeros(len(t), dtype=int),
        joints=Joints.revolute(2),
        source="arm.csv",
    )


def kept(recording: Recording, rows: np.ndarray) -> Recording:
    columns = {name: getattr(recording, name)[rows] for name in ("t", "q", "tau", "trajectory")}
    return replace(recording, **columns)


def test_the_filter_finds_the_accelerations_that_noise_hides():
    recording = recorded()
    dataset = prepare(recording, PreparationSettings(cutoff=6.0))
    samples = dataset.samples
    true = -((2 * np.pi * 0.4) ** 2) * np.sin(2 * np.pi * 0.4 * (samples.t + 1 / RATE))
    assert np.sqrt(np.mean((samples.qdd[:, 0] - true) ** 2)) < 0.02 * np.std(true)
    plain = prepare(recording)
    assert np.sqrt(
        np.mean((plain.qdd[:, 0] - np.interp(plain.t, samples.t, true)) ** 2)
    ) > 0.3 * np.std(true)


def test_it_says_what_it_did():
    dataset = prepare(recorded(), PreparationSettings(cutoff=5.0))
    done = dataset.preparation
    assert done is not None
    assert done.cutoff == (5.0, 5.0)
    assert (done.velocity, done.acceleration) == ("differentiated", "differentiated")
    assert done.rows == 6000
    assert done.samples == len(dataset.samples) == done.rows - sum(done.dropped.values())
    assert done.dropped["at the ends"] == 2 * 100
    assert dataset.counted is not None
    every = np.diff(np.flatnonzero(dataset.counted))
    assert set(every) == {10}  # ten a period of 5 Hz at 500 Hz


def test_rounding_takes_no_row_from_the_stride():
    """Rounding makes 1 / (10 f dt) slightly less than the whole number that it is."""
    for every in range(1, 50):
        for step in (0.001, 0.003, 0.007):
            assert stride(step, 1 / (10 * every * step)) == every


def test_a_rest_cuts_the_trajectory_but_not_the_memory_of_friction():
    dataset = prepare(recorded(rest=(4.0, 7.0)), PreparationSettings(cutoff=5.0))
    assert dataset.preparation is not None
    assert dataset.preparation.cuts == {"pauses": 1}
    assert dataset.trajectories == (0, 1)
    resting = (dataset.samples.t > 4.3) & (dataset.samples.t < 6.7)
    assert not resting.any()
    assert ((dataset.samples.t > 3.5) & (dataset.samples.t < 4.0)).any()
    second = dataset.samples.trajectory == 1
    head = Friction(dataset.joints, FrictionSettings(("stops",), radii=(0.3,)))
    memory = remembered(head, dataset)
    assert memory is not None
    # The spring of the friction is still stretched by the motion before the rest.
    assert abs(memory[np.argmax(second), 0, 0]) > 0.5


def test_a_gap_cuts_and_a_lost_packet_does_not():
    whole = recorded()
    gap = kept(whole, (whole.t < 5.0) | (whole.t > 5.5))
    dataset = prepare(gap, PreparationSettings(cutoff=5.0))
    assert dataset.preparation is not None
    assert dataset.preparation.cuts == {"gaps": 1}
    assert dataset.trajectories == (0, 1)
    lost = kept(whole, np.abs(whole.t - 5.0) > 0.004)
    dataset = prepare(lost, PreparationSettings(cutoff=5.0))
    assert dataset.preparation is not None
    assert not dataset.preparation.cuts
    assert np.abs(np.diff(dataset.t) - 1 / RATE).max() < 1e-9


def test_a_gap_beside_logged_rates_cuts_nothing():
    whole = recorded()
    gap = kept(whole, (whole.t < 5.0) | (whole.t > 5.5))
    rates = prepare(gap)
    assert rates.preparation is not None
    assert rates.preparation.cuts == {"gaps": 1}
    dataset = prepare(replace(gap, qd=rates.qd, qdd=rates.qdd))
    assert dataset.preparation is not None
    assert not dataset.preparation.cuts
    assert dataset.trajectories == (0,)


def test_repeated_rows_are_dropped():
    whole = recorded()
    again = replace(whole, q=whole.q.copy(), tau=whole.tau.copy())
    rows = np.arange(100, 5900, 50)
    again.q[rows] = again.q[rows - 1]
    again.tau[rows] = again.tau[rows - 1]
    dataset = prepare(again, PreparationSettings(cutoff=5.0))
    assert dataset.preparation is not None
    assert dataset.preparation.dropped["repeated"] == len(rows)


def test_a_delay_is_removed():
    late = recorded()
    shift = 25
    late = replace(
        late, tau=np.concatenate([np.repeat(late.tau[:1], shift, axis=0), late.tau[:-shift]])
    )
    on_time = prepare(late, PreparationSettings(cutoff=5.0, delay=shift / RATE)).samples
    true = prepare(recorded(), PreparationSettings(cutoff=5.0)).samples
    inner = slice(5, -5)
    assert np.abs(on_time.tau[inner] - true.tau[inner]).max() < 0.02


def test_a_cut_off_too_high_or_no_number_is_refused():
    with pytest.raises(DataError, match="500 Hz; a cut-off of 300 Hz needs more than 600 Hz"):
        prepare(recorded(), PreparationSettings(cutoff=300.0))
    with pytest.raises(SettingsError, match="Hz, got -1"):
        PreparationSettings(cutoff=-1.0)
    with pytest.raises(SettingsError, match=r"delay .*got nan"):
        PreparationSettings(delay=np.nan)
    with pytest.raises(SettingsError, match=r"every .*at least 1, got 0"):
        PreparationSettings(every=0)
    with pytest.raises(DataError, match="long enough"):
        prepare(kept(recorded(), np.arange(20)), PreparationSettings(cutoff=5.0))


def test_a_robot_that_never_moves_is_refused():
    still = recorded(rest=(-1.0, 13.0))
    with pytest.raises(DataError, match="rest"):
        prepare(replace(still, q=np.zeros_like(still.q)), PreparationSettings(cutoff=5.0))


@pytest.mark.parametrize("name", ["cutoff", "bandwidth"])
def test_a_frequency_that_no_motion_has_is_refused(name):
    for value in (1e-9, 1e9, float("nan")):
        with pytest.raises(
            SettingsError, match=r"positive and finite in Hz, got .*; expected 0\.001"
        ):
            replace(PreparationSettings(), **{name: value})
    with pytest.raises(SettingsError, match="less than a millionth of the sampling rate"):
        smoothed(np.zeros((50, 2)), 1e6, 0.01)
