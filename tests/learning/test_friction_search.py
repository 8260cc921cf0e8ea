"""Fits with friction: linear weights are solved for, bounds are kept, and terms are chosen on
validation.
"""

from dataclasses import replace

import equinox as eqx
import jax
import numpy as np
import pytest
from scipy.optimize import nnls

from delan.errors import DataError, SettingsError
from delan.joints import Dataset
from delan.learning.friction_search import START, select_friction
from delan.learning.model_fit import fit_model
from delan.learning.scores import evaluate
from delan.learning.study import Study
from delan.models.dynamics import Normalisation
from delan.models.friction import Friction, FrictionSettings
from delan.models.friction_memory import remembered
from delan.models.geometry import from_rigid_body
from delan.models.model import Model
from delan.models.networks import LagrangianNetwork, LagrangianNetworkSettings
from delan.models.rigid_body import RigidBody
from delan.robots.arms import TWO_LINK
from delan.solvers import marquardt
from delan.solvers.bounded import solve_bounded
from delan.solvers.loss import Objective, Samples, Scale
from delan.solvers.marquardt import MarquardtSettings
from delan.solvers.training import TrainingSettings
from tests.support.members import friction_in, noisy, pendulum
from tests.support.random_arms import swung

FRICTION = Friction.known(
    TWO_LINK.joints,
    {
        "coulomb": np.array([0.6, 0.2]),
        "viscous": np.array([0.4, 0.1]),
        "stribeck": np.array([0.5, 0.3]),
    },
    width=0.05,
    stribeck_speed=0.3,
)


def arm(friction: Friction | None = FRICTION) -> RigidBody:
    return RigidBody.from_urdf(TWO_LINK.urdf(), friction=friction)


def dataset(friction: Friction | None = FRICTION, samples: int | None = 600) -> Dataset:
    return swung(arm(friction), TWO_LINK.limits, range(4), samples=samples)


@pytest.mark.parametrize("seed", range(5))
def test_bounded_least_squares_agree_with_scipys(seed):
    rng = np.random.default_rng(seed)
    matrix, target = rng.standard_normal((40, 8)), rng.standard_normal(40)
    ours = solve_bounded(matrix.T @ matrix, -matrix.T @ target, np.ones(8, dtype=bool))
    theirs, _ = nnls(matrix, target)
    np.testing.assert_allclose(ours, theirs, atol=1e-6)
    free = solve_bounded(matrix.T @ matrix, -matrix.T @ target, np.zeros(8, dtype=bool))
    np.testing.assert_allclose(free, np.linalg.lstsq(matrix, target, rcond=None)[0], atol=1e-6)


def test_a_column_of_nothing_gets_no_weight():
    curvature = np.diag([2.0, 0.0])
    solved = solve_bounded(curvature, np.array([-2.0, 0.0]), np.array([True, False]))
    np.testing.assert_allclose(solved, [1.0, 0.0], atol=1e-8)


def test_one_iteration_solves_for_friction_when_the_arm_is_known():
    """Variable projection: with the rigid part right, the linear weights need no descent."""
    data = dataset(
        Friction.known(
            TWO_LINK.joints,
            {"coulomb": np.array([0.6, 0.2]), "viscous": np.array([0.4, 0.1])},
            width=0.01,
        )
    )
    model = Model(
        from_rigid_body(arm(None)), Friction(data.joints, FrictionSettings(("viscous", "coulomb")))
    )
    objective = Objective()
    state = marquardt.init(model)
    problem = marquardt.Problem(Samples.of(data), Scale.of(data, objective), objective)
    state, loss = marquardt.update(state, problem, MarquardtSettings())
    assert loss < 1e-12
    named = state.model.friction.named
    np.testing.assert_allclose(named["viscous"], [0.4, 0.1], rtol=1e-4)
    np.testing.assert_allclose(named["coulomb"], [0.6, 0.2], rtol=1e-4)


@pytest.mark.slow
def test_friction_that_would_give_energy_is_not_learned():
    """Torques of an arm that pushes itself along: passive weights stay at zero, others may go
    below.
    """
    still = dataset(None)
    pushing, objective = replace(still, tau=still.tau - 0.5 * still.qd), Objective()
    for passive, expected in ((True, 0.0), (False, -0.5)):
        head = Friction(still.joints, FrictionSettings(("viscous",), passive=passive))
        state = marquardt.init(Model(from_rigid_body(arm(None)), head))
        for _ in range(5):
            scale = Scale.of(pushing, objective)
            problem = marquardt.Problem(Samples.of(pushing), scale, objective)
            state, _ = marquardt.update(state, problem, MarquardtSettings())
        np.testing.assert_allclose(
            state.model.friction.named["viscous"], [expected, expected], atol=1e-6
        )


@pytest.mark.slow
def test_chain_and_friction_are_learned_together_with_terms_chosen_on_validation():
    result = fit_model(Study.of(dataset(samples=None), friction="auto"), "chain")
    assert isinstance(result.model, Model)
    first = ["no friction", "viscous + coulomb + offset", "stribeck"]
    assert [step.term for step in result.selection[:3]] == first
    assert [step.kept for step in result.selection] == [False] + [True] * (
        len(result.selection) - 2
    ) + [False]
    learned_friction = friction_in(result.model)
    assert "stribeck" in learned_friction.settings.terms
    assert (
        evaluate(result.model, swung(arm(), TWO_LINK.limits, [50]), rollouts=False).torque.nmse_mean
        < 1e-5
    )
    assert result.provenance()["fit"]["friction"][2]["term"] == "stribeck"
    speeds = np.linspace(-1.5, 1.5, 61)
    learned, true = (
        np.stack([np.asarray(item.torque(np.full(2, v), np.zeros(2))) for v in speeds])
        for item in (learned_friction, FRICTION)
    )
    error = np.sqrt(np.mean((learned - true) ** 2, axis=0) / np.mean(true**2, axis=0))
    assert error.max() < 0.02


@pytest.mark.slow
def test_no_term_is_added_to_explain_noise():
    plain = Friction.known(
        TWO_LINK.joints,
        {"coulomb": np.array([0.6, 0.2]), "viscous": np.array([0.4, 0.1])},
        width=0.05,
    )
    result = fit_model(Study.of(noisy(dataset(plain), 0.05), friction="auto"), "chain")
    assert [step.kept for step in result.selection] == [False, True, False]


@pytest.mark.slow
def test_friction_with_memory_is_learned_and_scored_along_the_trajectories():
    joints = TWO_LINK.joints
    settings = FrictionSettings(("viscous", "stops"), radii=(0.02, 0.1))
    truth = Friction.of(joints, settings, np.array([[0.3, 0.1], [0.5, 0.1], [0.3, 0.2]]))
    clean = dataset(None, samples=None)
    memory = remembered(truth, clean)
    assert memory is not None
    friction = np.stack(
        [truth.torque(qd, 0 * qd, item) for qd, item in zip(clean.qd, memory, strict=True)]
    )
    data = replace(clean, tau=clean.tau + friction, truth={})
    result = fit_model(Study.of(data, friction=settings), "chain")
    assert isinstance(result.model, Model)
    assert evaluate(result.model, data, rollouts=False).torque.nmse_mean < 1e-9
    learned = friction_in(result.model).weights.value
    np.testing.assert_allclose(learned, truth.weights.value, rtol=1e-3)


@pytest.mark.slow
def test_the_network_learns_friction_too():
    terms = FrictionSettings(("viscous", "coulomb"))
    settings = TrainingSettings(optimizer="adam", epochs=200)
    with_friction, without = (
        fit_model(Study.of(dataset(), settings, friction=item), "delan") for item in (terms, None)
    )
    assert isinstance(with_friction.model, Model)
    assert np.all(np.asarray(friction_in(with_friction.model).weights.value) >= 0)
    assert with_friction.validation.torque.nmse_mean < 0.5 * without.validation.torque.nmse_mean


def test_a_feed_forward_network_takes_no_friction():
    with pytest.raises(
        SettingsError, match="learns friction with all the rest; leave friction out"
    ):
        fit_model(Study.of(dataset(), friction="auto"), "feedforward")


@pytest.mark.slow
def test_a_seed_gives_the_same_friction_again():
    item, two = (
        fit_model(
            Study.of(dataset(), TrainingSettings(epochs=5), friction="auto", key=jax.random.key(3)),
            "chain",
        )
        for _ in range(2)
    )
    assert eqx.tree_equal(item.model, two.model)
    assert item.selection == two.selection


def started(data: Dataset) -> Model:
    """A model near the truth, whose friction is still to be found."""
    return Model(from_rigid_body(arm(None)), Friction(data.joints, START))


def test_a_choice_that_has_to_end_keeps_what_it_has():
    data = dataset()
    for tried in (0, 3):
        left = iter([False] * tried + [True])
        chosen, steps = select_friction(
            started(data), (data, data), enough=lambda left=left: next(left)
        )
        assert chosen == START
        assert [step.kept for step in steps] == [False, True]


def test_a_choice_with_nothing_left_to_try_ends():
    """A single joint that has every term: there is no other motor to share."""
    terms = ("viscous", "asymmetric", "offset", "stribeck", "stops", "load", "spring", "periodic")
    every = FrictionSettings(terms=terms)
    data = pendulum(4, 40)
    model = LagrangianNetwork(
        data.joints,
        LagrangianNetworkSettings(width=4),
        Normalisation.of(data),
        key=jax.random.key(0),
    )
    chosen, steps = select_friction(Model(model, Friction(data.joints, every)), (data, data))
    assert chosen == every
    assert [step.kept for step in steps] == [False, True]


def test_an_interrupt_while_friction_is_chosen_keeps_the_model(monkeypatch):
    def interrupted(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.setattr("delan.learning.model_fit.select_friction", interrupted)
    result = fit_model(
        Study.of(
            dataset(samples=100), TrainingSettings(epochs=2), friction="auto", key=jax.random.key(0)
        ),
        "chain",
    )
    assert result.interrupted
    assert isinstance(result.model, Model)
    assert np.isfinite(result.validation.torque.mse_sum)


def test_too_few_samples_for_a_chain_are_refused():
    data = dataset(samples=None)
    with pytest.raises(
        DataError,
        match=r"samples of 2 joints cannot tell the \d+ numbers of a chain; give at least",
    ):
        fit_model(Study.of(data.rows(np.arange(6))), "chain")
