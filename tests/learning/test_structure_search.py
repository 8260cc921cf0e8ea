"""The search for a mechanism, on torques that MuJoCo computed."""

from dataclasses import replace
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from benchmarks.mechanisms import Mechanism, Part, coupled_wrist, palletiser
from delan.joints import Dataset, Joints
from delan.learning.contenders import with_structure
from delan.learning.model_fit import fit_model
from delan.learning.scores import evaluate
from delan.learning.structure_search import coupling_gains
from delan.learning.study import Study
from delan.models.chain_draft import ChainDraft
from delan.models.friction import Friction, FrictionSettings
from delan.models.model import Model
from delan.solvers import marquardt
from delan.solvers.loss import Objective, Samples, Scale
from tests.support.members import chain, coupled_chain
from tests.support.random_arms import random_arm, rigid, swung


def small_wrist() -> Mechanism:
    """Three joints; the drive of the second also turns the third."""
    parts = (
        Part(-1, (0, 0, 0.3), (0, 1, 0), {0: 1}, 6.0, (0.1, 0.02, 0.1), (0.1, 0.05, 0.15)),
        Part(0, (0.3, 0, 0.1), (1, 0, 0), {1: 1}, 3.0, (0.1, 0.03, 0.02), (0.1, 0.05, 0.05)),
        Part(
            1, (0.2, 0, 0), (0, 1, 0), {2: 1, 1: 0.5}, 2.0, (0.06, 0.05, 0.03), (0.08, 0.03, 0.05)
        ),
    )
    return Mechanism(parts, ("revolute",) * 3, (1.5, 2.0, 2.0))


@pytest.mark.slow
def test_a_coupled_drive_is_found_with_its_ratio():
    mechanism = small_wrist()
    study = Study.of(mechanism.log(range(5), samples=800), friction="auto", key=jax.random.key(0))
    plain = fit_model(study, "chain")
    assert plain.doubtful
    found = with_structure(plain, study, parallelograms=True)
    assert found.model.chain is not None
    rows = np.array(found.model.chain.settings.coupling)
    wanted = np.eye(3)
    wanted[2, 1] = 0.5
    np.testing.assert_allclose(rows, wanted, atol=1e-3)
    assert [step.kept for step in found.structure][:2] == [True, True]
    unseen = mechanism.log(range(50, 52), speed=2.0)
    assert evaluate(found.model, unseen, rollouts=False).torque.nmse_mean < 1e-8


def test_no_structure_is_searched_for_where_a_plain_chain_explains_the_torque():
    bodies, limits = random_arm(("revolute",) * 2, seed=1)
    dataset = swung(rigid(bodies), limits, range(3), samples=300)
    study = Study.of(dataset, key=jax.random.key(0))
    result = fit_model(study, "chain")
    assert with_structure(result, study, parallelograms=True) is result


def test_a_coupling_begins_without_changing_the_torque_and_its_ratio_is_learned():
    plain = chain(Joints.revolute(3))
    draft = ChainDraft.of(plain).coupled(2, 0)
    motion = list(jnp.asarray(np.random.default_rng(0).normal(size=(3, 3))))
    relaxed = draft.relaxed()
    np.testing.assert_allclose(
        relaxed.inverse_dynamics(*motion), plain.inverse_dynamics(*motion), rtol=1e-9, atol=1e-9
    )

    def torque(model: Any) -> jax.Array:
        return model.inverse_dynamics(*motion).sum()

    assert relaxed.slack is not None
    slope = jax.grad(lambda value: torque(_with_slack(relaxed, value)))(relaxed.slack.value)
    assert np.array_equal(np.argwhere(np.asarray(slope) != 0), [[2, 0]])


def _with_slack(model: Any, value: jax.Array) -> Any:
    return eqx.tree_at(lambda model: model.slack.value, model, value)


def test_a_draft_keeps_a_coupled_chain_and_rounds_what_is_near_a_whole_number():
    made = coupled_chain()
    motion = list(jnp.asarray(np.random.default_rng(0).normal(size=(3, 3))))
    draft = ChainDraft.of(made)
    for other in (draft.settled(), draft.relaxed()):
        np.testing.assert_allclose(
            other.inverse_dynamics(*motion), made.inverse_dynamics(*motion), rtol=1e-9, atol=1e-9
        )
    rough = draft.coupled(2, 0, ratio=-0.99).coupled(1, 0, ratio=0.5).rounded(0.03)
    assert rough.rows[2, 0] == -1.0
    assert rough.rows[1, 0] == 0.5
    assert rough.free.tolist() == [[False] * 3, [True, False, False], [False] * 3]


def test_the_parallelogram_of_a_palletiser_has_the_rows_of_its_parts():
    draft = ChainDraft.of(chain(Joints.revolute(4)))
    draft = draft.against_base(1, 2).with_plate(2).with_crank(1, 2)
    assert draft.tree.parents == (-1, 0, 1, 2, 3, 0)
    # The main arm and the crank; the rod is rigid with them in all that torques show.
    np.testing.assert_array_equal(draft.rows, palletiser().coupling[:6])


def test_a_plate_and_a_crank_without_mass_change_no_torque():
    plain = chain(Joints.revolute(4))
    draft = ChainDraft.of(plain)
    whole = draft.with_plate(1).with_crank(1, 2)
    # A plate that does not turn is a part of its arm.
    rows = whole.rows.copy()
    rows[2] = 0.0
    factor = whole.factor.copy()
    factor[[2, -1]] = 0.0
    still = replace(whole, rows=rows, factor=factor).settled()
    motion = list(jnp.asarray(np.random.default_rng(0).normal(size=(3, 4))))
    np.testing.assert_allclose(
        still.inverse_dynamics(*motion), plain.inverse_dynamics(*motion), rtol=1e-9, atol=1e-9
    )


def test_the_ratio_that_would_gain_most_is_that_of_the_coupled_joint():
    plain = chain(Joints.revolute(3))
    truth = ChainDraft.of(plain).coupled(2, 1, ratio=0.1).settled()
    motion = np.random.default_rng(0).normal(size=(3, 100, 3))
    tau = np.asarray(jax.vmap(truth.inverse_dynamics)(*jnp.asarray(motion)))
    dataset = Dataset(
        t=np.arange(100) / 100,
        q=motion[0],
        qd=motion[1],
        qdd=motion[2],
        tau=tau,
        trajectory=np.zeros(100, dtype=int),
        joints=plain.joints,
        source="coupled",
    )
    scale = Scale.of(dataset, Objective()).untied()
    problem = marquardt.Problem(Samples.of(dataset), scale, Objective())
    friction = Friction(plain.joints, FrictionSettings(("viscous",)))
    gains = coupling_gains(Model(plain, friction), problem)
    assert np.unravel_index(np.argmax(gains), gains.shape) == (2, 1)
    assert (np.diag(gains) == 0).all()


def test_the_truth_of_a_mechanism_is_its_tree_seen_from_the_coordinates():
    mechanism = coupled_wrist()
    dataset = mechanism.log([0], samples=20)
    power = np.sum(dataset.qd * dataset.tau, axis=1)
    assert np.isfinite(power).all()
    # A rotor behind a gear weighs with the square of its ratio.
    push = np.zeros((2, 6))
    push[1, 0] = 1.0
    still = np.zeros((2, 6))
    inertia = np.diff(mechanism.torques(still, still, push)[:, 0])
    assert inertia > 3e-4 * 120**2
