"""Split into training and validation: whole motions, or blocks of a single one."""

import jax
import numpy as np
import pytest

from delan.errors import DataError
from delan.joints import Dataset, Joints
from delan.logs.preparation import PreparationSettings, prepare
from delan.logs.split import hold_out, split
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
    # Blocks hold equally much motion that is not a repeat, so that those with repeats are longer.
    assert 0.1 < len(validation.samples) / len(dataset.samples) < 0.35


def test_every_sample_of_a_log_is_held_out_once():
    dataset = prepare(recorded(rest=(4.0, 7.0)), PreparationSettings(cutoff=5.0))
    folds = split(dataset, 0.2, key=jax.random.key(3)).folds
    assert dataset.counted is not None
    held_out = np.sum([fold.validation for fold in folds], axis=0)
    assert (held_out[dataset.counted] == 1).all()
    sizes = [np.count_nonzero(fold.validation & dataset.counted) for fold in folds]
    assert max(sizes) < 2 * min(sizes)
    for fold in folds:
        assert not (fold.training & fold.validation).any()


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


@pytest.mark.parametrize("count", [4, 8])
def test_a_motion_too_short_to_be_parted_is_refused(count):
    """The blocks would be shorter than a row, or the guards beside them leave no training rows."""
    dataset = repeated(0)
    assert dataset.counted is not None
    dataset.counted[count:] = False
    with pytest.raises(DataError, match=rf"{count} samples .*0\.25"):
        hold_out(dataset, 0.25, key=jax.random.key(0))


def test_what_repeats_a_block_is_held_out_with_it():
    """Of four runs of one motion, no training row is near a held-out row of any run."""
    dataset = repeated(0, 0, 0, 0)
    result = split(dataset, 0.2, key=jax.random.key(0))
    assert result.distinct < 0.35
    for fold in result.folds:
        held = np.unique(dataset.t[fold.validation].round(2))
        near = np.isin(dataset.t[fold.training].round(2), held)
        # Blocks of different runs may begin some rows apart.
        assert near.mean() < 0.05
        assert fold.novelty > 1


def test_periods_of_one_motion_are_found_in_a_single_run():
    t = np.arange(0, 30, 0.01)
    phase = 2 * np.pi * t / 10
    q = np.stack([np.sin(phase), np.cos(2 * phase + 1), np.sin(3 * phase)], axis=1)
    periodic = Dataset(
        t=t,
        q=q,
        qd=np.gradient(q, t, axis=0),
        qdd=q,
        tau=q,
        trajectory=np.zeros(len(t), dtype=int),
        counted=np.ones(len(t), dtype=bool),
        joints=Joints.revolute(3),
    )
    result = split(periodic, 0.2, key=jax.random.key(0))
    assert 0.3 < result.distinct < 0.4
    for fold in result.folds:
        phases = np.unique((t[fold.validation] % 10).round(1))
        inside = np.isin((t[fold.training] % 10).round(1), phases)
        assert inside.mean() < 0.05
