"""A chosen chain learns once more, from the motion that it was chosen by too."""

from dataclasses import replace
from typing import Any

import equinox as eqx
import jax
import numpy as np
import pytest

from delan.learning.fit import Fit
from delan.learning.model_fit import relearned
from delan.learning.scores import evaluate
from delan.learning.study import TrainingResult
from delan.learning.uncertainty import TrustSettings, trust
from delan.robots.arms import TWO_LINK
from delan.solvers.training import HistoryRow
from tests.support.members import trust_in
from tests.support.simulated_logs import known_fit


@pytest.fixture(scope="module")
def fit() -> Fit:
    return known_fit(TWO_LINK)


def ended(fit: Fit, *losses: float) -> TrainingResult:
    """A fit that missed some of the last link, with these losses on validation as it went on."""
    result = fit.best.training
    assert result is not None
    history = tuple(
        HistoryRow("Levenberg–Marquardt", n, 0.1 * n, loss, loss) for n, loss in enumerate(losses)
    )
    off = eqx.tree_at(
        lambda item: item.mechanics.factor,
        result.model,
        replace_fn=lambda factor: factor.at[1].multiply(0.9),
    )
    return replace(result, model=off, history=history)


def test_it_learns_what_the_held_back_motion_alone_can_tell(fit):
    result = ended(fit, 3e-2, 1e-2, 1.02e-2)
    # All that there is to learn from is the validation motion.
    held_out = replace(fit.dataset, counted=fit.validation.counted)
    again: Any = relearned(result, replace(fit.study, dataset=held_out))
    before, after = (
        evaluate(item, fit.validation, rollouts=False).torque.nmse_mean
        for item in (result.model, again)
    )
    assert before > 5e-3
    assert after < 0.5 * before


def test_a_fit_that_validation_had_to_stop_is_left_as_it_was(fit):
    assert relearned(ended(fit, 3e-2, 1e-2, 2e-2), fit.study) is None
    assert relearned(ended(fit), fit.study) is None


def test_what_is_deployed_is_the_last_model_with_the_trust_of_the_one_before(fit):
    entry = fit.best
    settings = TrustSettings(members=2, iterations=1, rows=50, states=20)
    trusted = trust(entry.model, fit.training, fit.validation, settings, key=jax.random.key(0))
    again: Any = ended(fit, 1e-2).model
    whole = replace(
        fit, trusted=trusted, entries=(replace(entry, relearned=again), *fit.entries[1:])
    )
    assert whole.best.model is entry.model
    deployed: Any = whole.model
    np.testing.assert_array_equal(deployed.mechanics.factor, again.mechanics.factor)
    np.testing.assert_array_equal(deployed.trust.band, trust_in(trusted).band)
    assert replace(whole, trusted=None).model is again
