"""Each term of the loss does what it says, and changes the gradient."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.flatten_util import ravel_pytree

from delan.errors import SettingsError
from delan.joints import Dataset, Joints
from delan.models.chain import LagrangianChain
from delan.models.dynamics import Normalisation, Promises, in_precision, trainable
from delan.models.friction import Friction, FrictionSettings, MotorPair
from delan.models.model import Model
from delan.models.networks import LagrangianNetwork, LagrangianNetworkSettings
from delan.solvers.linearised import FlatModel, numpy_friction
from delan.solvers.loss import Objective, Samples, Scale, data_loss, decay, loss, residual
from delan.solvers.marquardt import MarquardtSettings, Problem, init, joined, update
from tests.support.members import pendulum


@pytest.fixture(scope="module")
def dataset() -> Dataset:
    return pendulum(3, 20)


@pytest.fixture(scope="module")
def model(dataset) -> LagrangianNetwork:
    settings = LagrangianNetworkSettings(width=6)
    return LagrangianNetwork(
        dataset.joints, settings, Normalisation.of(dataset), key=jax.random.key(0)
    )


def value_and_gradient(model, dataset: Dataset, objective: Objective):
    weights, fixed = trainable(model)
    flat, unravel = ravel_pytree(weights)
    scale, samples = Scale.of(dataset, objective), Samples.of(dataset)
    return jax.jit(
        jax.value_and_grad(
            lambda w: loss(eqx.combine(unravel(w), fixed), samples, scale, objective)
        )
    )(flat)


@pytest.mark.parametrize("term", [{"torque": "squared"}, {"power": 0.3}, {"weight_decay": 1e-2}])
def test_each_term_changes_the_gradient(term, model, dataset):
    plain, plain_gradient = value_and_gradient(model, dataset, Objective())
    value, gradient = value_and_gradient(model, dataset, Objective(**term))
    assert abs(value - plain) > 1e-3 * plain
    turned = gradient / jnp.linalg.norm(gradient) - plain_gradient / jnp.linalg.norm(plain_gradient)
    # With one joint the plain squared error is the normalised one in another unit: it scales the
    # gradient only.
    assert float(jnp.linalg.norm(turned)) > 1e-3 or "torque" in term
    assert not np.allclose(gradient, plain_gradient, rtol=1e-3)


def absolute(model, sample, torque):
    """A loss of a user: the absolute error, and a little of the power that the model believes."""
    power = model.power(sample.q, sample.qd, sample.qdd)
    return jnp.sum(jnp.abs(torque - sample.tau)) + 0.01 * power**2


def test_a_loss_of_ones_own_is_minimised_in_place_of_ours(model, dataset):
    _, plain = value_and_gradient(model, dataset, Objective())
    value, gradient = value_and_gradient(model, dataset, Objective(loss=absolute))
    motion = [jnp.asarray(column) for column in (dataset.q, dataset.qd, dataset.qdd)]
    error = jax.vmap(model.inverse_dynamics)(*motion) - dataset.tau
    power = jax.vmap(model.power)(*motion)
    expected = np.abs(error).sum(axis=1).mean() + 0.01 * np.mean(np.square(power))
    assert float(value) == pytest.approx(float(expected))
    unit = gradient / jnp.linalg.norm(gradient), plain / jnp.linalg.norm(plain)
    assert float(jnp.linalg.norm(unit[0] - unit[1])) > 1e-3


def test_decay_of_all_weights_takes_the_biases_too(model, dataset):
    weights, _ = trainable(model)
    biases = [leaf for leaf in jax.tree.leaves(weights) if leaf.ndim == 1]
    values = {}
    for decayed in ("matrices", "all"):
        objective = Objective(weight_decay=0.1, decayed=decayed)
        values[decayed] = float(value_and_gradient(model, dataset, objective)[0])
    more = 0.1 * sum(float(jnp.sum(bias**2)) for bias in biases)
    assert more > 0
    assert values["all"] - values["matrices"] == pytest.approx(more)


def test_the_losses_are_what_the_paper_writes(model, dataset):
    predicted = jax.jit(jax.vmap(model.inverse_dynamics))(
        *map(jnp.asarray, (dataset.q, dataset.qd, dataset.qdd))
    )
    error = np.asarray(predicted) - dataset.tau
    samples = Samples.of(dataset)

    def of(objective: Objective) -> float:
        scale = Scale.of(dataset, objective)
        return float(eqx.filter_jit(loss)(model, samples, scale, objective))

    assert of(Objective(torque="squared")) == pytest.approx(np.mean(error**2))
    assert of(Objective()) == pytest.approx(np.mean(error**2) / dataset.tau.var())
    power_error = np.sum(dataset.qd * error, axis=1)
    balance = np.mean(power_error**2) / np.sum(dataset.qd * dataset.tau, axis=1).var()
    assert of(Objective(power=0.5)) == pytest.approx(of(Objective()) + 0.5 * balance)
    layers = (*model.trunk.layers, model.diagonal, model.lower, model.gravity)
    squares = sum(float(np.sum(np.asarray(layer.weight) ** 2)) for layer in layers)
    assert of(Objective(weight_decay=0.01)) == pytest.approx(of(Objective()) + 0.01 * squares)


def test_weight_decay_leaves_friction_alone(model, dataset):
    """Its sizes have units: a penalty would make it smaller than it is."""
    head = eqx.tree_at(
        lambda head: head.weights.value, Friction(dataset.joints), 5.0 * jnp.ones((3, 1))
    )
    actuated = Model(model, head)
    decay = Objective(weight_decay=0.01)
    _, plain = value_and_gradient(actuated, dataset, Objective())
    _, decayed = value_and_gradient(actuated, dataset, decay)
    _, unravel = ravel_pytree(trainable(actuated)[0])
    shift = unravel(decayed - plain)
    np.testing.assert_allclose(shift.friction.weights.value, 0, atol=1e-12)
    np.testing.assert_allclose(
        shift.mechanics.diagonal.weight, 0.02 * model.diagonal.weight, rtol=1e-6
    )
    # Levenberg–Marquardt solves for it: one step with decay and one without end at a friction that
    # fits as well.
    with jax.enable_x64(True):
        marquardt = MarquardtSettings()
        samples, scale = Samples.of(dataset), Scale.of(dataset, decay)
        problem = Problem(samples, scale, decay)
        state, _ = update(init(in_precision(actuated), marquardt), problem, marquardt)
        at = state.model.friction.weights.value
        slope = jax.grad(
            lambda w: data_loss(_with_friction(state.model, w), samples, scale, decay)
        )(at)
    np.testing.assert_allclose(jnp.where(at > 0, slope, 0), 0, atol=1e-8)


def _with_friction(model: Model, weights: jax.Array) -> Model:
    return eqx.tree_at(lambda model: model.friction.weights.value, model, weights)


def test_a_truthful_model_has_no_loss(dataset):
    class Truth(eqx.Module):
        joints: Joints = eqx.field(static=True, default=dataset.joints)
        promises: Promises = eqx.field(static=True, default=Promises())

        def inverse_dynamics(self, q, qd, qdd):
            return 0.5 * qdd + 9.81 * jnp.cos(q)

    objective = Objective(power=1.0)
    assert (
        float(data_loss(Truth(), Samples.of(dataset), Scale.of(dataset, objective), objective))
        < 1e-28
    )


@pytest.mark.parametrize("terms", [(), ("viscous", "coulomb", "stribeck", "offset"), ("load",)])
@pytest.mark.parametrize("count", [60, 300])
def test_normal_equations_are_the_gradient_and_its_jacobian(model, dataset, terms, count):
    """2 Jᵀr is the gradient of the loss and JᵀJ its Gauss–Newton matrix, by JAX's derivatives."""
    objective = Objective(power=0.2, weight_decay=1e-3)
    chosen = np.resize(np.arange(len(dataset)), count)
    scale, samples = Scale.of(dataset, objective), Samples.of(dataset.rows(chosen))
    friction = None
    if terms:
        friction = numpy_friction(Friction(dataset.joints, FrictionSettings(terms, width=0.5)))
    problem = Problem(samples, scale, objective)
    rigid = FlatModel.of(Model(model))
    torque, slopes = problem.linearised(rigid)
    point = problem.solved(rigid, friction, torque)
    tree, fixed = trainable(joined(Model(model, friction), point.rigid, point.friction))
    flat, unravel = ravel_pytree(tree)
    near = problem.quadratic(point, slopes, np.zeros(len(flat)))

    def model_of(w):
        return eqx.combine(unravel(w), fixed)

    expected = jax.jit(jax.grad(lambda w: loss(model_of(w), samples, scale, objective)))(flat)
    moving = ~near.resting
    size = np.abs(expected).max()
    np.testing.assert_allclose(2 * near.gradient[moving], expected[moving], atol=1e-8 * size)

    def errors(w):
        rows = jax.vmap(lambda sample: residual(model_of(w), sample, scale, objective))(samples)
        rates, _ = ravel_pytree(jax.tree.map(jnp.full_like, tree, decay(tree, scale)))
        return jnp.concatenate([rows.ravel() / np.sqrt(count), jnp.sqrt(rates) * w])

    jacobian = np.asarray(jax.jit(jax.jacfwd(errors))(flat))[:, moving]
    curvature = near.curvature[np.ix_(moving, moving)]
    np.testing.assert_allclose(curvature, jacobian.T @ jacobian, rtol=1e-6, atol=1e-9)


def test_products_of_motor_pairs_are_those_of_their_jacobian():
    """Columns of friction are kept at the motors; JAX differentiates the torques of the joints."""
    rng = np.random.default_rng(0)
    joints = Joints(("a", "b", "c"), ("revolute", "revolute", "prismatic"))
    q, qd, qdd, tau = rng.standard_normal((4, 40, 3))
    dataset = Dataset(
        t=np.arange(40.0),
        q=q,
        qd=qd,
        qdd=qdd,
        tau=tau,
        trajectory=np.zeros(40, dtype=int),
        joints=joints,
    )
    settings = FrictionSettings(
        ("armature", "viscous", "asymmetric", "stribeck", "offset"),
        pairs=(MotorPair(0, 1, 0.6), MotorPair(2, 1, -1.0)),
        width=0.5,
        passive=False,
    )
    head = numpy_friction(Friction(joints, settings))
    chain = LagrangianChain(joints, key=jax.random.key(1))
    objective = Objective(power=0.3)
    scale = Scale.of(dataset, objective)
    samples = Samples.of(dataset)
    problem = Problem(samples, scale.untied(), objective)
    torque, slopes = problem.linearised(FlatModel.of(Model(chain)))
    point = problem.solved(FlatModel.of(Model(chain)), head, torque)
    model = joined(Model(chain, head), point.rigid, point.friction)
    tree, fixed = trainable(model)
    flat, unravel = ravel_pytree(tree)

    def errors(weights):
        changed = eqx.combine(unravel(weights), fixed)
        rows = jax.vmap(lambda sample: residual(changed, sample, scale, objective))(samples)
        return rows.ravel() / np.sqrt(len(dataset))

    jacobian = np.asarray(jax.jit(jax.jacfwd(errors))(flat))
    near = problem.quadratic(point, slopes, np.zeros(len(flat)))
    moving = ~near.resting
    np.testing.assert_allclose(
        near.curvature[np.ix_(moving, moving)],
        jacobian[:, moving].T @ jacobian[:, moving],
        rtol=1e-6,
        atol=1e-8,
    )
    np.testing.assert_allclose(
        near.gradient[moving], (jacobian.T @ np.asarray(errors(flat)))[moving], atol=1e-8
    )


@pytest.mark.usefixtures("as_shipped")
@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"torque": "absolute"}, "unknown torque loss 'absolute'; known: normalised, squared"),
        ({"power": -1.0}, "power must be a finite number of at least 0, got -1.0"),
        (
            {"weight_decay": float("nan")},
            "weight_decay must be a finite number of at least 0, got nan",
        ),
    ],
)
def test_bad_settings_are_refused(settings, message):
    with pytest.raises(SettingsError, match=message):
        Objective(**settings)


def test_a_misspelt_setting_fails():
    with pytest.raises(TypeError, match="weight_deacy"):
        Objective(weight_deacy=0.1)  # type: ignore[call-arg]
