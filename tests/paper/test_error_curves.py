"""Statistics over seeds, against another library and against an exhaustive count."""

from itertools import product

import numpy as np
import pytest
from scipy.stats import bootstrap, trim_mean

from delan.paper.claims import bootstrap_interval, interquartile_mean
from delan.paper.comparison import pooled, seed_statistics


def test_the_spread_is_that_of_the_percentiles_of_the_paper():
    statistics = seed_statistics(np.arange(101.0))
    assert statistics is not None
    assert (statistics.low, statistics.median, statistics.high) == (5.0, 50.0, 95.0)
    assert (statistics.seeds, statistics.of) == (101, 101)


def test_the_interquartile_mean_ignores_what_lies_outside_the_middle_half():
    values = np.array([3.0, 1.0, 4.0, 2.0])
    assert interquartile_mean(values) == 2.5
    assert interquartile_mean(np.array([3.0, -1e9, 1e9, 2.0])) == 2.5


def test_the_interval_of_one_stratum_is_that_of_another_library():
    values = np.random.default_rng(0).lognormal(size=20)
    theirs = bootstrap(
        (values,),
        lambda x, axis: trim_mean(x, 0.25, axis=axis),
        n_resamples=20_000,
        method="percentile",
        rng=1,
    ).confidence_interval
    ours = bootstrap_interval([values])
    assert ours == pytest.approx((theirs.low, theirs.high), rel=0.05)


def test_strata_are_drawn_from_each_on_its_own():
    strata = [np.array([1.0, 2.0]), np.array([10.0, 14.0, 15.0])]
    drawn = [[*a, *b] for a in product(strata[0], repeat=2) for b in product(strata[1], repeat=3)]
    exact = np.percentile(trim_mean(np.array(drawn), 0.25, axis=1), (2.5, 97.5))
    assert bootstrap_interval(strata) == pytest.approx(tuple(exact), abs=0.5)
    statistics = pooled(strata)
    assert statistics is not None
    assert statistics.iqm == interquartile_mean(np.concatenate(strata))
    assert statistics.interval == bootstrap_interval(strata)


def test_the_same_seed_draws_the_same():
    values = [np.random.default_rng(2).normal(size=10)]
    assert (
        bootstrap_interval(values, seed=3)
        == bootstrap_interval(values, seed=3)
        != bootstrap_interval(values, seed=4)
    )
