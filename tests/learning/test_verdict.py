"""Which model is deployed, and what speaks against it."""

from dataclasses import replace

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from delan.joints import Joints
from delan.learning.fit import Fit
from delan.learning.refit import ambiguity, disagreement
from delan.learning.study import CrossFit, Entry
from delan.learning.uncertainty import torque_bands, trust_by_folds
from delan.learning.verdict import judge, judge_motion, ranked
from delan.robots.arms import TWO_LINK
from delan.simulation.replay import HorizonError, LogReplay
from tests.support.members import trust_in
from tests.support.simulated_logs import known_fit


@pytest.fixture(scope="module")
def fit() -> Fit:
    return known_fit(TWO_LINK)


def crossed(entry: Entry, fit: Fit, errors: tuple[float, ...]) -> Entry:
    """An entry whose nMSE on each of the folds is as given."""
    study = fit.study
    judged = tuple(study.without(number).judged for number in range(len(errors)))
    predicted = []
    for part, error in zip(judged, errors, strict=True):
        predicted.append(part.samples.tau + np.sqrt(error * study.torque_size.variance))
    cross = CrossFit((entry.model,) * len(errors), judged, tuple(predicted), study.torque_size)
    return replace(entry, cross=cross, validation=cross.scores())


def contest(fit: Fit, chain: tuple[float, ...], network: tuple[float, ...]) -> list[Entry]:
    first, _, feedforward, constant = fit.entries
    return [crossed(feedforward, fit, network), constant, crossed(first, fit, chain)]


def test_errors_of_folds_are_those_asked_for(fit):
    entry = crossed(fit.best, fit, (0.1, 0.2))
    assert entry.error_on(1) == pytest.approx(0.1)
    assert 0.1 < entry.error < 0.2
    assert entry.cross is not None
    assert entry.cross.fold_errors == pytest.approx((0.1, 0.2))


def test_a_network_must_be_clearly_better_than_a_chain(fit):
    for share, winner in ((0.5, "chain"), (0.2, "feedforward")):
        entries = contest(fit, (0.02, 0.02), (share * 0.02,))
        assert ranked(entries, new_motion=True)[0].name == winner


def test_what_cannot_be_exported_does_not_win(fit):
    chain, _, feedforward, constant = fit.entries
    both = replace(chain.model, residual=feedforward.model.residual)
    beside = replace(feedforward, name="residual", model=both)
    entries = [crossed(beside, fit, (0.0001,)), constant, crossed(chain, fit, (0.02,))]
    order = [entry.name for entry in ranked(entries, new_motion=True)]
    assert order == ["chain", "residual", "constant"]


def test_where_the_log_has_no_new_motion_structure_decides(fit):
    entries = contest(fit, (0.02, 0.02), (0.001,))
    assert ranked(entries, new_motion=False)[0].name == "chain"
    # A chain that explains nothing is no model to prefer.
    entries = contest(fit, (0.9, 0.9), (0.001,))
    assert ranked(entries, new_motion=False)[0].name == "feedforward"
    # Neither is a network that explains little.
    entries = contest(fit, (0.9, 0.9), (0.6,))
    assert ranked(entries, new_motion=True)[0].name == "chain"


def test_models_are_compared_on_the_folds_that_both_have(fit):
    entries = contest(fit, (0.001, 0.5), (0.01,))
    assert ranked(entries, new_motion=True)[0].name == "chain"


def kinds(fit: Fit, **facts: object) -> set[str]:
    order = ranked(contest(fit, (0.02, 0.02), (0.5,)), new_motion=True)
    verdict = judge(order, **facts)  # pyright: ignore[reportArgumentType]
    assert (verdict.decision == "deploy") == (not verdict.doubts)
    return {doubt.kind for doubt in verdict.doubts}


def test_what_the_log_does_not_show_is_a_doubt_until_a_test_shows_it(fit):
    assert kinds(fit) == set()
    assert kinds(fit, new_motion=False) == {"repeated"}
    assert kinds(fit, other_motion=0.05) == set()
    assert kinds(fit, other_motion=0.09) == {"other_motion"}
    scores = {entry.name: entry.validation for entry in contest(fit, (0.02, 0.02), (0.5,))}
    assert kinds(fit, test=scores, new_motion=False, other_motion=0.09) == set()


def test_a_training_that_had_not_settled_is_never_deployed_without_a_doubt(fit):
    first, *others = ranked(contest(fit, (0.02, 0.02), (0.5,)), new_motion=True)
    assert first.training is not None
    late = replace(first, training=replace(first.training, settled=False))
    verdict = judge([late, *others])
    assert [doubt.kind for doubt in verdict.doubts] == ["unsettled"]


def members(fit: Fit, spread: float) -> CrossFit:
    """Members whose links are heavier or lighter by some share than those of the true arm."""
    model = fit.best.model
    assert model.chain is not None
    parts = tuple(fit.study.without(number) for number in range(len(fit.study.split.folds)))
    scales = 1 + spread * np.linspace(-1, 1, len(parts))
    changed = []
    for scale in scales:
        heavier = model.chain.factor * scale
        changed.append(eqx.tree_at(lambda model: model.mechanics.factor, model, heavier))
    judged = tuple(part.judged for part in parts)
    rng = np.random.default_rng(0)
    predicted = tuple(
        part.samples.tau + 0.1 * rng.standard_normal(part.samples.tau.shape) for part in judged
    )
    return CrossFit(tuple(changed), judged, predicted, fit.study.torque_size)


def test_another_arm_that_explains_the_log_as_well_is_a_doubt(fit):
    key = jax.random.key(0)
    model = fit.best.model
    others = members(fit, 0.02).members
    assert ambiguity(model, (), fit.study, key=key) == 0
    assert ambiguity(model, (model, model), fit.study, key=key) == 0
    most = ambiguity(model, others, fit.study, key=key)
    assert most == max(ambiguity(model, (other,), fit.study, key=key) for other in others) > 0


def test_members_that_differ_disagree_on_other_motion(fit):
    key = jax.random.key(0)
    little, more = (
        disagreement(members(fit, spread), fit.dataset, key=key) for spread in (0.01, 0.02)
    )
    assert disagreement(members(fit, 0.0), fit.dataset, key=key) < 1e-20
    # Torques are nearly linear in such a change, and an nMSE is a square.
    assert more / little == pytest.approx(4.0, rel=0.1)


def test_the_band_of_folds_holds_its_share_and_grows_outside_the_domain(fit):
    cross = members(fit, 0.01)
    trusted = trust_by_folds(fit.best.model, cross, fit.study)
    band = torque_bands(trusted, fit.dataset)
    inside = np.abs(0.1 * np.random.default_rng(1).standard_normal(band.shape)) <= band
    assert (inside.mean(axis=0) > 0.85).all()
    samples = fit.dataset.samples
    q, qd, qdd = (jnp.asarray(column[0]) for column in (samples.q, samples.qd, samples.qdd))
    np.testing.assert_allclose(trusted.torque_band(q, qd, qdd), band[0], rtol=1e-4)
    assert trust_in(trusted).widening(q, qd) == 1
    far = qd + 10 * jnp.asarray(np.ptp(samples.qd, axis=0))
    distance = float(trusted.in_domain(q, far))
    assert distance > 2
    assert float(trust_in(trusted).widening(q, far)) == pytest.approx(distance)


def strayed(over_hold: tuple[float, ...], hold: float = 0.1) -> LogReplay:
    """A replay of a robot whose joints move by `hold` from constant speed."""
    rmse = tuple(hold * share for share in over_hold)
    joints = Joints.revolute(len(over_hold))
    nothing = np.zeros((0, 0, len(over_hold)))
    errors = {0.5: HorizonError(rmse, over_hold, 30)}
    return LogReplay(joints, errors, None, np.zeros(0), nothing, nothing, 0.01)


def test_a_model_that_strays_is_no_simulator():
    good = judge_motion(strayed((0.1, 0.2, 0.4)))
    assert good.decision == "simulate"
    assert (good.error, good.worst_error) == pytest.approx((0.2, 0.4))
    assert judge_motion(strayed((0.1, 0.2, 0.6))).decision == "doubtful"
    refused = judge_motion(strayed((0.1, 1.5, 0.2)))
    assert (refused.decision, refused.worst_error) == ("refuse", 1.5)
    assert judge_motion(strayed((0.1, float("nan"), 0.2))).decision == "refuse"


def test_a_joint_that_hardly_moves_does_not_count_against_a_simulator():
    # 3e-5 rad of error beside 1e-5 rad of motion: less than the resolution of most robots.
    assert judge_motion(strayed((3.0, 3.0), hold=1e-5)).decision == "simulate"
