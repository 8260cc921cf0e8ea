"""A chosen chain learns once more, from the motion that it was chosen by too."""

from dataclasses import replace
from typing import Any

import equinox as eqx
import jax
import numpy as np
import pytest

from delan.learning.contest import as_learned
from delan.learning.ensemble import TrustSettings
from delan.learning.evaluate import evaluate
from delan.learning.fit_result import FitResult
from delan.learning.log_fit import LogFit
from delan.learning.refining import relearned
from delan.learning.training import HistoryRow
from delan.learning.uncertainty import trust
from delan.models.trust import bare
from delan.robots.two_link import TWO_LINK

from .simulated_logs import known_fit


@pytest.fixture(scope="module")
def fit() -> LogFit:
    return known_fit(TWO_LINK)


def ended(fit: LogFit, *losses: float) -> FitResult:
    """A fit that missed some of the last link, with these losses on validation as it went on."""
    result = fit.best.fit
    assert result is not None
    history = tuple(HistoryRow("Levenberg–Marquardt", n, 0.1 * n, loss, loss) for n, loss in enumerate(losses))
    off = eqx.tree_at(lambda one: one.rigid.factor, result.model, replace_fn=lambda factor: factor.at[1].multiply(0.9))
    return replace(result, model=off, history=history)


def test_it_learns_what_the_held_back_motion_alone_can_tell(fit):
    result = ended(fit, 3e-2, 1e-2, 1.02e-2)
    counted = fit.validation.counted
    only_there = replace(fit.dataset, counted=counted)  # all that there is to learn from is validation
    again: Any = relearned(result, fit.training, only_there)
    before, after = (evaluate(one, fit.validation, rollouts=False).torque.nmse_mean for one in (result.model, again))
    assert before > 5e-3
    assert after < 0.5 * before


def test_a_fit_that_validation_had_to_stop_is_left_as_it_was(fit):
    assert relearned(ended(fit, 3e-2, 1e-2, 2e-2), fit.training, fit.dataset) is None
    assert relearned(ended(fit), fit.training, fit.dataset) is None


def test_what_is_deployed_is_the_last_model_with_the_trust_of_the_one_before(fit):
    entry = fit.best
    settings = TrustSettings(members=2, iterations=1, rows=50, states=20)
    trusted = trust(as_learned(entry), fit.training, fit.validation, settings, key=jax.random.key(0))
    again: Any = ended(fit, 1e-2).model
    whole = replace(fit, trusted=trusted, entries=(replace(entry, relearned=again), *fit.entries[1:]))
    assert whole.best.model is entry.model
    deployed: Any = whole.model
    np.testing.assert_array_equal(bare(deployed).rigid.factor, again.rigid.factor)
    np.testing.assert_array_equal(deployed.band, trusted.band)
    assert replace(whole, trusted=None).model is again
