"""Split into training and validation: whole motions, or blocks of a single one."""

import jax
import numpy as np
import pytest

from delan.errors import DataError
from delan.joints import Dataset, Joints
from delan.logs.preparation import PreparationSettings, prepare
from delan.logs.split import hold_out, split_rows
from tests.logs.test_preparation import recorded
from tests.support.members import pendulum


def test_splits_keep_trajectories_whole():
    data = pendulum(trajectories=10)
    training, validation = hold_out(data, 0.3, key=jax.random.key(0))
    assert len(validation.trajectories) == 3
    assert set(training.trajectories) | set(validation.trajectories) == set(data.trajectories)
    assert not set(training.trajectories) & set(validation.trajectories)
    other, _ = hold_out(data, 0.3, key=jax.random.key(1))
    assert other.trajectories != training.trajectories


def test_a_single_trajectory_gives_its_end_to_validation():
    training, validation = hold_out(pendulum(trajectories=1), 0.2, key=jax.random.key(0))
    assert (len(training), len(validation)) == (40, 10)
    assert training.t.max() < validation.t.min()
    with pytest.raises(DataError, match=r"1 samples .*0\.2"):
        hold_out(pendulum(trajectories=1, samples=1), 0.2, key=jax.random.key(0))


def test_parts_of_a_prepared_trajectory_share_no_rows_and_keep_a_distance():
    dataset = prepare(recorded(), PreparationSettings(cutoff=5.0))
    training, validation = hold_out(dataset, 0.2, key=jax.random.key(0))
    assert len(training) == len(validation) == len(dataset)
    assert training.counted is not None
    assert validation.counted is not None
    assert not (training.counted & validation.counted).any()
    apart = np.abs(training.samples.t[:, None] - validation.samples.t[None]).min()
    assert apart > 0.15
    assert 0.15 < len(validation.samples) / len(dataset.samples) < 0.22
    assert validation.samples.t.max() > dataset.samples.t.max() - 0.05  # the end is held out


def test_the_rows_of_a_split_are_those_of_hold_out():
    dataset = prepare(recorded(rest=(4.0, 7.0)), PreparationSettings(cutoff=5.0))
    key = jax.random.key(3)
    training, validation = hold_out(dataset, 0.3, key=key)
    rows = split_rows(dataset, 0.3, key=key)
    assert dataset.counted is not None
    for part, mask in zip((training, validation), rows, strict=True):
        assert part.counted is not None
        assert np.array_equal(part.counted, dataset.counted & mask)


def repeated(*motions: int, noise: float = 1e-3) -> Dataset:
    """Return trajectories that follow the numbered motions, each with its own small noise."""
    t = np.arange(0, 10, 0.01)
    rng = np.random.default_rng(0)
    paths = []
    for motion in motions:
        path = np.stack([np.sin((1 + motion) * t), np.cos((2 + motion) * t)], axis=1)
        paths.append(path + noise * rng.standard_normal(path.shape))
    q = np.concatenate(paths)
    return Dataset(
        t=np.tile(t, len(motions)),
        q=q,
        qd=q,
        qdd=q,
        tau=q,
        trajectory=np.repeat(np.arange(len(motions)), len(t)),
        counted=np.ones(len(q), dtype=bool),
        joints=Joints.revolute(2),
    )


@pytest.mark.parametrize("count", [8, 60])
def test_a_motion_too_short_to_be_parted_is_refused(count):
    """The blocks would be shorter than a row, or the guards beside them leave no training rows."""
    dataset = repeated(0)
    assert dataset.counted is not None
    dataset.counted[count:] = False
    with pytest.raises(DataError, match=rf"{count} samples .*0\.25"):
        hold_out(dataset, 0.25, key=jax.random.key(0))


@pytest.mark.parametrize("seed", range(5))
def test_repeats_of_a_motion_stay_on_one_side(seed):
    motions = (0, 1, 0, 2, 1, 0, 3)
    training, validation = hold_out(repeated(*motions), 0.3, key=jax.random.key(seed))
    seen, unseen = (
        {motions[label] for label in part.samples.trajectories} for part in (training, validation)
    )
    assert seen
    assert unseen
    assert not seen & unseen


def test_the_same_blocks_of_every_repeat_of_a_single_motion_are_held_out():
    dataset = repeated(0, 0, 0, 0)
    training, validation = split_rows(dataset, 0.15, key=jax.random.key(0))
    per_run = validation.reshape(4, -1)
    assert (per_run == per_run[0]).all()
    assert 0.1 < validation.mean() < 0.2
    assert not (training & validation).any()
    # No training row lies within the guard of a held-out row, in any of the repeats.
    held = dataset.t[validation]
    assert np.abs(dataset.t[training][:, None] - np.unique(held)[None]).min() >= 0.2
