"""A model refitted without each fold of a log, and the model that is deployed."""

from dataclasses import replace
from typing import Any

import equinox as eqx
import jax
import numpy as np
import pytest

from delan.learning.fit import Fit
from delan.learning.refit import Refit, cross_fit
from delan.learning.scores import evaluate
from delan.learning.uncertainty import TrustSettings, trust
from delan.robots.arms import TWO_LINK
from tests.support.members import trust_in
from tests.support.simulated_logs import known_fit


@pytest.fixture(scope="module")
def fit() -> Fit:
    return known_fit(TWO_LINK)


def wrong(fit: Fit) -> Any:
    """The true arm with a last link that is too light."""
    return eqx.tree_at(
        lambda item: item.mechanics.factor,
        fit.best.model,
        replace_fn=lambda factor: factor.at[1].multiply(0.9),
    )


def test_a_refit_learns_from_the_fold_that_it_is_given(fit):
    model = wrong(fit)
    again = Refit.of(model, fit.study)(fit.study)
    before, after = (
        evaluate(item, fit.validation, rollouts=False).torque.nmse_mean for item in (model, again)
    )
    assert before > 5e-3
    assert after < 0.5 * before


def test_every_sample_is_predicted_by_a_model_that_has_not_learned_from_it(fit):
    model = wrong(fit)
    learned: dict[int, np.ndarray] = {}

    def refit(study: Any) -> Any:
        learned[study.fold] = study.training_rows
        return model

    cross = cross_fit(fit.study, model, refit)
    seen = []
    for number in range(len(fit.study.split.folds)):
        unseen = fit.study.without(number).judged_rows
        assert not set(unseen) & set(learned[number])
        seen += unseen.tolist()
    assert sorted(seen) == list(range(len(fit.study.scored.samples)))
    assert len(cross.members) == len(cross.fold_errors) == len(learned)
    whole = evaluate(model, fit.study.scored, rollouts=False).torque.nmse_mean
    assert cross.error() == pytest.approx(whole, rel=1e-6)


def test_what_is_deployed_is_the_last_model_with_the_trust_of_the_one_before(fit):
    entry = fit.best
    settings = TrustSettings(members=2, iterations=1, rows=50, states=20)
    trusted = trust(entry.model, fit.training, fit.validation, settings, key=jax.random.key(0))
    again = wrong(fit)
    whole = replace(
        fit, trusted=trusted, entries=(replace(entry, relearned=again), *fit.entries[1:])
    )
    assert whole.best.model is entry.model
    deployed: Any = whole.model
    np.testing.assert_array_equal(deployed.mechanics.factor, again.mechanics.factor)
    np.testing.assert_array_equal(deployed.trust.band, trust_in(trusted).band)
    assert replace(whole, trusted=None).model is again
