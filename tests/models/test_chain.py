"""The Lagrangian chain against other derivations of the same mechanics, and fits of it."""

from dataclasses import replace
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from delan.errors import ModelError, SettingsError
from delan.joints import Joints
from delan.learning.model_fit import fit_model
from delan.learning.scores import evaluate
from delan.learning.study import Study
from delan.mechanics import euler_lagrange
from delan.mechanics.kinematic_tree import Tree
from delan.models.chain import LagrangianChain, LagrangianChainSettings, looseness, settled
from delan.models.dynamics import Normalisation
from delan.models.friction import Friction, FrictionSettings
from delan.models.geometry import from_rigid_body, learned_arm, to_rigid_body
from delan.models.model import Model
from delan.models.rigid_body import RigidBody
from delan.robots.arms import DRIVE_INERTIA, TWO_LINK, WAM7
from delan.solvers.loss import Objective, Samples, Scale, loss, tie
from delan.solvers.training import TrainingSettings
from tests.support.members import chain, network, noisy
from tests.support.oracles import torque_from_lagrangian
from tests.support.random_arms import random_arm, rigid, scattered, swung

ROTORS = FrictionSettings(("armature",))
TREE = (
    -1,
    0,
    1,
    1,
    3,
    3,
    0,
    -1,
)  # branches of a link, of a branch and of the first link, and a second root
KINDS = (
    "revolute",
    "prismatic",
    "continuous",
    "revolute",
    "prismatic",
    "revolute",
    "prismatic",
    "revolute",
)
ARMS = {
    "serial": ((("revolute",) * 5), None),
    "sliding": (("prismatic", "revolute", "prismatic", "revolute"), None),
    "tree": (KINDS, TREE),
}


@pytest.fixture(params=ARMS)
def random_chain(request) -> LagrangianChain:
    kinds, parents = ARMS[request.param]
    return chain(Joints.of(kinds), seed=3, parents=parents)


@eqx.filter_jit
def asked(model: Any, q: jax.Array, qd: jax.Array, qdd: jax.Array) -> tuple[Any, ...]:
    """Torque, inertia, energy and parts of the torque at once: one program for a model."""
    return (
        model.inverse_dynamics(q, qd, qdd),
        model.mass_matrix(q),
        model.energy(q, qd),
        model.components(q, qd, qdd),
    )


def motions(dof: int, count: int = 3) -> list[list[jax.Array]]:
    draws = np.random.default_rng(5).normal(0, 1, (count, 3, dof))
    return [list(map(jnp.asarray, draw)) for draw in draws]


def test_sweeps_give_the_torque_of_the_chains_own_lagrangian(random_chain):
    """Against d/dt ∂L/∂q̇ − ∂L/∂q by automatic differentiation of its energies."""

    def lagrangian(q, qd):
        energy = random_chain.energy(q, qd)
        return energy.kinetic - energy.potential

    oracle = jax.jit(lambda *motion: torque_from_lagrangian(lagrangian, *motion))
    for motion in motions(random_chain.joints.dof):
        torque, *_ = asked(random_chain, *motion)
        np.testing.assert_allclose(torque, oracle(*motion), rtol=1e-9, atol=1e-9)


def test_sweeps_agree_with_the_euler_lagrange_functions(random_chain):
    """Against the law as the network uses it, from a factor of the inertia and the potential."""

    def terms(q):
        chol = jnp.linalg.cholesky(random_chain.mass_matrix(q))[euler_lagrange.places(len(q))]
        return chol, random_chain.energy(q, jnp.zeros_like(q)).potential

    parts = jax.jit(lambda *motion: euler_lagrange.components(terms, *motion))
    for motion in motions(random_chain.joints.dof):
        *_, ours = asked(random_chain, *motion)
        law = parts(*motion)
        for name in ("inertial", "coriolis", "gravity"):
            np.testing.assert_allclose(
                getattr(ours, name), getattr(law, name), rtol=1e-8, atol=1e-8, err_msg=name
            )


def test_gravity_is_curl_free(random_chain):
    still = jnp.zeros(random_chain.joints.dof)
    slope = jax.jit(jax.jacfwd(lambda q: random_chain.components(q, still, still).gravity))
    for q, _, _ in motions(random_chain.joints.dof):
        np.testing.assert_allclose(slope(q), slope(q).T, atol=1e-12)


def test_coriolis_torque_is_that_of_the_christoffel_symbols(random_chain):
    slope = jax.jit(jax.jacfwd(random_chain.mass_matrix))
    for q, qd, qdd in motions(random_chain.joints.dof):
        d = np.asarray(slope(q))  # ∂H_ij / ∂q_k
        symbols = (d + d.transpose(0, 2, 1) - d.transpose(2, 1, 0)) / 2
        expected = np.einsum("ijk,j,k->i", symbols, qd, qd)
        *_, ours = asked(random_chain, q, qd, qdd)
        np.testing.assert_allclose(ours.coriolis, expected, rtol=1e-9, atol=1e-9)


def known_arms() -> dict[str, RigidBody]:
    return {
        "wam with rotors": RigidBody.from_urdf(WAM7.urdf(), armature=np.array(DRIVE_INERTIA)),
        "two-link": RigidBody.from_urdf(TWO_LINK.urdf()),
        "one joint": rigid(random_arm(("revolute",), seed=2)[0]),
        **{
            name: rigid(random_arm(kinds, seed=2, parents=parents)[0])
            for name, (kinds, parents) in ARMS.items()
        },
    }


@pytest.mark.parametrize("name", known_arms())
def test_a_real_arms_numbers_give_pinocchios_torques_inertia_and_energy(name):
    body = known_arms()[name]
    exact, above = from_rigid_body(body), []
    for q, qd, qdd in motions(body.joints.dof, 5):
        torque, inertia, energy, _ = asked(exact, q, qd, qdd)
        np.testing.assert_allclose(torque, body.inverse_dynamics(q, qd, qdd), rtol=1e-9, atol=1e-9)
        np.testing.assert_allclose(inertia, body.mass_matrix(q), rtol=1e-9, atol=1e-9)
        assert float(energy.kinetic) == pytest.approx(body.energy(q, qd).kinetic, rel=1e-9)
        above.append(float(energy.potential) - body.energy(q, qd).potential)
    np.testing.assert_allclose(above, above[0], atol=1e-9)  # where the potential is zero is free


def dependent_arm() -> tuple[RigidBody, np.ndarray, LagrangianChain]:
    """A tree of eight joints in Pinocchio, five coordinates that move it, and its exact chain."""
    body = rigid(random_arm(KINDS, seed=2, parents=TREE)[0])
    rows = np.random.default_rng(1).normal(size=(8, 5))
    tree = from_rigid_body(body)
    settings = LagrangianChainSettings(
        TREE, tuple(map(tuple, rows.tolist())), tuple(body.joints.sliding.tolist())
    )
    blank = LagrangianChain(Joints.revolute(5), settings, key=jax.random.key(0))
    exact = eqx.tree_at(
        lambda chain: (chain.turn, chain.shift, chain.factor, chain.gravity),
        blank,
        (tree.turn, tree.shift, tree.factor, tree.gravity),
    )
    return body, rows, exact


def test_joints_that_depend_on_coordinates_have_pinocchios_torques_seen_from_these():
    body, rows, exact = dependent_arm()
    rotors = np.exp(exact.log_armature)
    for q, qd, qdd in motions(5):
        torque, inertia, energy, _ = asked(exact, q, qd, qdd)
        wanted = rows.T @ body.inverse_dynamics(rows @ q, rows @ qd, rows @ qdd) + rotors * qdd
        np.testing.assert_allclose(torque, wanted, rtol=1e-9, atol=1e-9)
        whole = rows.T @ body.mass_matrix(rows @ q) @ rows + np.diag(rotors)
        np.testing.assert_allclose(inertia, whole, rtol=1e-9, atol=1e-9)
        kinetic = body.energy(rows @ q, rows @ qd).kinetic + rotors @ qd**2 / 2
        assert float(energy.kinetic) == pytest.approx(float(kinetic), rel=1e-9)


def test_settling_a_dependent_arm_changes_no_torque_and_it_is_no_rigid_body():
    _, _, exact = dependent_arm()
    after = settled(exact)
    for motion in motions(5):
        wanted, got = asked(exact, *motion)[0], asked(after, *motion)[0]
        np.testing.assert_allclose(got, wanted, rtol=1e-8, atol=1e-8)
    assert learned_arm(after).joints.dof == 8
    with pytest.raises(ModelError, match="depend on each other"):
        to_rigid_body(after)


def test_joints_of_a_tree_are_named_by_their_coordinates():
    rows = ((1.0, 0.0), (-1.0, 1.0), (0.0, -0.5), (0.0, 0.0), (1.0, 0.0))
    settings = LagrangianChainSettings(coupling=rows, sliding=(False,) * 5)
    made = LagrangianChain(Joints.revolute(2), settings, key=jax.random.key(0))
    names = ("joint0", "joint1 - joint0", "-0.5 joint1", "fixed", "joint0'")
    assert made.tree_joints.names == names


@pytest.mark.parametrize(
    ("rows", "sliding", "problem"),
    [
        (((1.0,), (0.0,)), None, "2 finite numbers"),
        (((1.0, 0.0), (float("nan"), 1.0)), None, "2 finite numbers"),
        (((1.0, 0.0), (1.0, 0.0)), None, "moves no joint"),
        (((1.0, 0.0), (0.0, 1.0), (1.0, 1.0)), None, "3 rows and .* 2 kinds"),
        (((1.0, 0.0), (0.0, 1.0)), (False,), "2 rows and .* 1 kinds"),
    ],
)
def test_a_wrong_coupling_is_refused(rows, sliding, problem):
    settings = LagrangianChainSettings(coupling=rows, sliding=sliding)
    with pytest.raises(SettingsError, match=problem):
        LagrangianChain(Joints.revolute(2), settings, key=jax.random.key(0))


@pytest.mark.parametrize("name", sorted(set(known_arms()) - {"one joint"}))
def test_settling_changes_no_torque(name):
    body = known_arms()[name]
    loose = from_rigid_body(body)
    # The last joint turns in every one of these arms and nothing hangs on it: stretch its frame,
    # which no joint sees.
    turn = loose.turn.at[-1].set(loose.turn[-1] @ jnp.diag(jnp.array([1.7, 1.7, -0.6])))
    factor = loose.factor.at[-1].set(
        jnp.diag(1 / jnp.array([1.7, 1.7, -0.6, 1.0])) @ loose.factor[-1]
    )
    loose = eqx.tree_at(lambda chain: (chain.turn, chain.factor), loose, (turn, factor))
    after = settled(loose)
    assert np.abs(looseness(loose)).max() > 0.1
    for motion in motions(body.joints.dof):
        np.testing.assert_allclose(
            asked(after, *motion)[0], body.inverse_dynamics(*motion), rtol=1e-8, atol=1e-8
        )
    assert np.abs(looseness(after)).max() < 1e-9


@pytest.mark.parametrize("name", known_arms())
def test_an_arm_survives_the_way_to_a_rigid_body_and_back(name):
    body = known_arms()[name]
    again = to_rigid_body(from_rigid_body(body))
    for motion in motions(body.joints.dof):
        np.testing.assert_allclose(
            again.inverse_dynamics(*motion), body.inverse_dynamics(*motion), rtol=1e-8, atol=1e-8
        )


def test_the_wams_geometry_is_read_as_it_was_drawn():
    arm = learned_arm(from_rigid_body(RigidBody.from_urdf(WAM7.urdf())))
    by_name = {axis.joint: axis for axis in arm.axes}
    assert all(axis.twist == pytest.approx(90) for axis in arm.axes[1:])
    assert by_name["elbow_pitch"].offset == pytest.approx(0.55)
    assert by_name["elbow_pitch"].distance == pytest.approx(0.045)
    assert by_name["wrist_pitch"].offset == pytest.approx(0.3)
    np.testing.assert_allclose(arm.gravity, [0, 0, -9.81], atol=1e-9)
    assert arm.axes[0].parent is None
    assert arm.axes[0].distance is None


def test_a_chain_that_is_no_rigid_arm_is_not_read_as_one():
    untrained = chain(Joints.revolute(3), seed=0)
    bent = eqx.tree_at(lambda chain: chain.turn, untrained, untrained.turn.at[1, 0, 1].add(2.0))
    problem = r"the frame of joint2 is .* away from a rotation.*torques of this chain"
    with pytest.raises(ModelError, match=problem):
        to_rigid_body(bent)


def test_only_chains_without_rotors_beside_theirs_are_read():
    with pytest.raises(ModelError, match=r"has a geometry; fit one \(model='chain'\)"):
        learned_arm(network(Joints.revolute(2)))
    with pytest.raises(ModelError, match="without the armature term"):
        to_rigid_body(
            Model(from_rigid_body(known_arms()["two-link"]), Friction(TWO_LINK.joints, ROTORS))
        )


def test_an_arm_whose_axes_are_one_line_is_read():
    origin, up = np.zeros(3), np.array([0.0, 0.0, 1.0])
    bodies = random_arm(("revolute",) * 3, seed=1)[0]
    line = [
        replace(body, position=origin, rotation=np.eye(3), axis=up, anchor=origin)
        for body in bodies
    ]
    arm = learned_arm(from_rigid_body(RigidBody.from_bodies(line, gravity=(0.0, -9.81, 0.0))))
    np.testing.assert_allclose(arm.directions, [[0, 0, 1]] * 3, atol=1e-9)
    np.testing.assert_allclose(arm.points, 0, atol=1e-9)
    np.testing.assert_allclose(np.linalg.norm(arm.gravity[:2]), 9.81)
    assert [axis.twist for axis in arm.axes[1:]] == pytest.approx([0, 0], abs=1e-6)


@pytest.mark.parametrize(
    ("parents", "problem"),
    [
        ((-1, 0), "2 parents for 3 joints"),
        ((-1, 1, 0), "joint 1 with the parent 1"),
        ((-1, -2, 0), "joint 1 with the parent -2"),
    ],
)
def test_a_wrong_tree_is_refused(parents, problem):
    with pytest.raises(SettingsError, match=f"{problem}.*−1 for the base"):
        LagrangianChain(Joints.revolute(3), LagrangianChainSettings(parents), key=jax.random.key(0))


def test_a_serial_arm_is_one_run_and_a_branch_begins_another():
    assert Tree((-1, 0, 1), (False,) * 3).runs == ((0, 3),)
    assert Tree(TREE, (False,) * 8).runs == ((0, 3), (3, 5), (5, 6), (6, 7), (7, 8))


def test_the_tie_to_rigid_arms_moves_the_weights():
    dataset = swung(RigidBody.from_urdf(TWO_LINK.urdf()), TWO_LINK.limits, [0], samples=20)
    untrained = LagrangianChain(
        dataset.joints, None, Normalisation.of(dataset), key=jax.random.key(0)
    )
    untrained = eqx.tree_at(lambda chain: chain.turn, untrained, 1.5 * untrained.turn)
    samples, slopes = Samples.of(dataset), []
    for rigidity in (0.0, 1.0):
        objective = Objective(rigidity=rigidity)
        scale = Scale.of(dataset, objective)
        slope = eqx.filter_jit(
            eqx.filter_grad(lambda chain, o=objective, s=scale: loss(chain, samples, s, o))
        )
        slopes.append(slope(untrained).turn)
    assert np.abs(slopes[0] - slopes[1]).max() > 0.1


def test_the_tie_to_upright_arms_pulls_gravity_to_the_first_axis():
    dataset = swung(RigidBody.from_urdf(TWO_LINK.urdf()), TWO_LINK.limits, [0], samples=20)
    chain = LagrangianChain(dataset.joints, None, Normalisation.of(dataset), key=jax.random.key(0))
    free = Scale.of(dataset, Objective())
    tied = Scale.of(dataset, Objective(upright=4.0))

    def pull(gravity):
        leaning = eqx.tree_at(lambda chain: chain.gravity, chain, jnp.asarray(gravity))
        return jnp.sum(tie(leaning, tied) ** 2) - jnp.sum(tie(leaning, free) ** 2)

    assert pull([0.0, 0.0, 9.81]) == 0
    assert pull([0.0, 0.0, -9.81]) == 0
    np.testing.assert_allclose(pull([9.81, 0.0, 0.0]), 4.0)
    slope = jax.grad(pull)(jnp.asarray([1.0, -2.0, 9.0]))
    assert slope[0] > 0 > slope[1]
    assert slope[2] == 0


def test_thirty_joints_work():
    joints = Joints.revolute(30)
    untrained = LagrangianChain(joints, key=jax.random.key(0))
    q, qd, qdd = motions(30, 1)[0]
    torque = eqx.filter_jit(untrained.inverse_dynamics)(q, qd, qdd)
    np.testing.assert_allclose(
        eqx.filter_jit(untrained.forward_dynamics)(q, qd, torque), qdd, rtol=1e-6, atol=1e-6
    )


@pytest.mark.slow
def test_the_wam_is_learned_from_smooth_motion_alone_geometry_and_all():
    body = RigidBody.from_urdf(WAM7.urdf())
    result = fit_model(
        Study.of(swung(body, WAM7.limits, range(10), samples=1000), key=jax.random.key(1)), "chain"
    )
    assert result.model.chain is not None
    assert result.optimizer == "lm"
    assert {row.stage for row in result.history} == {"Starts", "Levenberg–Marquardt"}
    unseen = swung(body, WAM7.limits, [50, 51])
    scores = evaluate(result.model, unseen, rollouts=False)
    assert scores.torque.nmse_mean < 1e-7
    assert all(part.nmse_mean < 1e-6 for part in scores.components.values())
    faster = swung(body, WAM7.limits, [50, 51], speed=2.0)
    assert evaluate(result.model, faster, rollouts=False).torque.nmse_mean < 1e-6
    for q in unseen.q[::200]:
        true = body.mass_matrix(q)
        error = np.asarray(result.model.mass_matrix(jnp.asarray(q))) - true
        assert np.linalg.norm(error) < 1e-3 * np.linalg.norm(true)
    # What was learned is the WAM: its axes, its lengths, and a rigid body that moves like it.
    learned, true = learned_arm(result.model), learned_arm(from_rigid_body(body))
    np.testing.assert_allclose(learned.points, true.points, atol=1e-3)
    assert [axis.twist for axis in learned.axes] == pytest.approx(
        [axis.twist for axis in true.axes], abs=0.05
    )
    assert evaluate(to_rigid_body(result.model), unseen, rollouts=False).torque.nmse_mean < 1e-7


@pytest.mark.slow
def test_fifty_scattered_samples_or_some_noisy_ones_are_enough():
    bodies, limits = random_arm(("revolute",) * 3, seed=4)
    body = rigid(bodies)
    unseen = swung(body, limits, [50])
    few = fit_model(Study.of(scattered(body, limits, 50, seed=0)), "chain")
    assert evaluate(few.model, unseen, rollouts=False).torque.nmse_mean < 1e-8
    dataset = noisy(swung(body, limits, range(4), samples=800), 0.05)
    rough = fit_model(Study.of(dataset), "chain")
    assert evaluate(rough.model, unseen, rollouts=False).torque.nmse_mean < 1e-3


def test_a_seed_gives_the_same_chain_again():
    bodies, limits = random_arm(("revolute", "prismatic"), seed=1)
    dataset = noisy(swung(rigid(bodies), limits, range(4), samples=200), 0.02)
    first, second = (fit_model(Study.of(dataset, key=jax.random.key(7)), "chain") for _ in range(2))
    assert eqx.tree_equal(first.model, second.model)


@pytest.mark.slow
def test_a_chain_can_be_trained_by_adam_and_within_a_time():
    body, limits = RigidBody.from_urdf(TWO_LINK.urdf()), TWO_LINK.limits
    dataset = swung(body, limits, range(4), samples=400)
    by_adam = fit_model(Study.of(dataset, TrainingSettings(optimizer="adam", epochs=300)), "chain")
    assert by_adam.optimizer == "adam"
    assert by_adam.validation.torque.nmse_mean < 0.5
    hurried = fit_model(Study.of(dataset, TrainingSettings(seconds=1.0)), "chain")
    assert hurried.seconds < 120
    assert hurried.history


@pytest.mark.slow
def test_a_tree_is_learned():
    parents = (-1, 0, 0)
    bodies, limits = random_arm(("revolute",) * 3, seed=6, parents=parents)
    body = rigid(bodies)
    result = fit_model(
        Study.of(swung(body, limits, range(6), samples=600)), LagrangianChainSettings(parents)
    )
    assert evaluate(result.model, swung(body, limits, [50]), rollouts=False).torque.nmse_mean < 1e-7


def test_runs_of_a_tree():
    """One for a serial arm; another begins where a joint hangs on an earlier one."""
    assert Tree((-1, 0, 1, 2), (False,) * 4).runs == ((0, 4),)
    assert Tree((-1, 0, 0, 2, -1), (False,) * 5).runs == ((0, 2), (2, 4), (4, 5))
