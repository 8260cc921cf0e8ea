"""Motors: the curves of their friction, its memory, that it gives no energy, and models that have
links and motors.
"""

from itertools import pairwise
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from delan.errors import ModelError, SettingsError
from delan.joints import Joints
from delan.mechanics import friction_terms
from delan.mechanics.friction_terms import (
    FrictionLaw,
    Term,
    load_friction,
    stop,
    stribeck,
    without_load_friction,
)
from delan.models.dynamics import projected
from delan.models.friction import Friction, FrictionSettings, MotorPair
from delan.models.model import Model
from delan.models.rigid_body import RigidBody
from delan.robots.arms import TWO_LINK
from tests.support.members import MIXED, actuated, actuator, friction_in, network

THREE = Joints.revolute(3)
PAIRS = (MotorPair(0, 1, 0.6), MotorPair(1, 2, -1.0))
DISSIPATIVE: dict[str, tuple[Term, ...]] = {
    "viscous": ("viscous",),
    "coulomb": ("coulomb",),
    "asymmetric": ("asymmetric",),
    "stribeck": ("stribeck",),
    "load": ("load",),
    "stops": ("stops",),
    "all": ("viscous", "asymmetric", "stribeck", "load", "stops"),
}
TERMS: dict[str, tuple[Term, ...]] = {
    **DISSIPATIVE,
    "offset": ("offset",),
    "armature": ("armature",),
    "all": ("armature", "viscous", "asymmetric", "stribeck", "offset", "load", "stops"),
    "none": (),
}


def ways(kind: str, seed: int, samples: int = 300) -> np.ndarray:
    """A motion of three joints: sums of sines, or jumps of many sizes with rests between them."""
    rng = np.random.default_rng(seed)
    if kind == "jagged":
        size = 10 ** rng.uniform(-4, 0, (samples, 3))
        return np.cumsum(
            size * rng.normal(size=(samples, 3)) * rng.integers(0, 2, (samples, 3)), axis=0
        )
    t = np.linspace(0, 3, samples)[:, None, None]
    return np.sum(rng.normal(0, 0.3, (4, 3)) * np.sin(rng.uniform(1, 20, (4, 3)) * t), axis=1)


@eqx.filter_jit
def rubbing(head: Friction, qd: jax.Array, load: jax.Array, memory: jax.Array) -> Any:
    """The friction of every row."""
    return jax.vmap(head.torque)(qd, load, memory)


def taken(head: Friction, q: np.ndarray, load: np.ndarray, dt: float = 0.01) -> np.ndarray:
    """The energy that friction has taken after each step from a relaxed start [J], torques at the
    end of the steps.
    """
    step = np.diff(q, axis=0)
    torque = rubbing(head, jnp.asarray(step / dt), jnp.asarray(load[1:]), head.remember(q)[1:])
    return np.cumsum(np.sum(np.asarray(torque) * step, axis=1))


# The curves


CURVES: dict[str, tuple[tuple[Term, ...], Any]] = {
    "viscous": (("viscous",), lambda v: 3 * v),
    "coulomb": (("coulomb",), lambda v: 3 * (1 - 2 / (np.exp(2 * v / 0.02) + 1))),
    "stribeck": (
        ("stribeck",),
        lambda v: 3 * (1 - 2 / (np.exp(2 * v / 0.02) + 1)) * np.exp(-v * v / 0.04),
    ),
    "offset": (("offset",), lambda v: 3 + 0 * v),
    "load": (("load",), lambda v: 0.9 * 5 * (1 - 2 / (np.exp(2 * v / 0.02) + 1))),
}


@pytest.mark.parametrize("name", CURVES)
def test_a_curve_is_its_formula(name):
    terms, formula = CURVES[name]
    head = Friction.of(
        THREE, FrictionSettings(terms, width=0.02, stribeck_speed=0.2), np.full((1, 3), 3.0)
    )
    for v in (-1.0, -0.03, 0.0, 0.001, 0.2, 2.0):
        qd = np.full(3, v)
        np.testing.assert_allclose(
            head.torque(qd, np.array([5.0, -5.0, 5.0])), formula(qd), atol=1e-14
        )


def test_the_stribeck_curve_of_the_textbook():
    """F_c + (F_s − F_c) exp(−(v/v_s)²) + F_v v with F_c = 2, F_s = 3 and F_v = 0.5, far from the
    step at standstill.
    """
    head = Friction.known(
        Joints.revolute(1),
        {"coulomb": np.array([2.0]), "stribeck": np.array([1.0]), "viscous": np.array([0.5])},
        width=1e-4,
        stribeck_speed=0.1,
    )
    for v, wanted in {0.01: 2.9950498, 0.1: 2.4178794, 0.2: 2.1183156, 1.0: 2.5}.items():
        np.testing.assert_allclose(head.torque(np.array([v]), np.zeros(1)), wanted, rtol=1e-7)
        np.testing.assert_allclose(head.torque(np.array([-v]), np.zeros(1)), -wanted, rtol=1e-7)


def test_dry_friction_falls_from_static_to_coulomb():
    """3 N m at rest, 2 N m in fast motion; at the Stribeck speed, either way, 1/e of the difference
    is left.
    """
    for v, wanted in {0.0: 3.0, 0.1: 2 + 1 / np.e, -0.1: 2 + 1 / np.e, 5.0: 2.0}.items():
        assert stribeck(np.array(v), 2.0, 3.0, 0.1) == pytest.approx(wanted, rel=1e-12)


@pytest.mark.parametrize("carried", [-5.0, 0.0, 2.0])
def test_the_load_behind_a_torque_is_found_again(carried):
    for step in (-1.0, 0.0, 0.3):
        tau = np.array(carried) + load_friction(np.array(carried), 0.4, step)
        assert tau == pytest.approx(carried + 0.4 * abs(carried) * step)
        assert without_load_friction(tau, 0.4, step) == pytest.approx(carried, rel=1e-12)


def test_asymmetric_friction_has_a_size_for_each_way():
    head = Friction.of(
        THREE, FrictionSettings(("asymmetric",)), np.array([[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]])
    )
    assert head.columns == ("coulomb+", "coulomb-")
    np.testing.assert_allclose(
        head.torque(np.array([1.0, -1.0, 0.0]), np.zeros(3)), [1.0, -5.0, 0.0]
    )


def test_a_pair_turns_with_both_joints():
    """q_m = q_0 + 0.6 q_1: the motor acts on joint 0 in full and on joint 1 with 0.6."""
    settings = FrictionSettings(("viscous", "offset", "load"), pairs=PAIRS[:1])
    weights = np.zeros((3, 4))
    weights[:, 3] = 2.0, 50.0, 50.0  # what has no effect on a pair must have none
    head, qd = Friction.of(THREE, settings, weights), np.array([1.0, 2.0, 3.0])
    np.testing.assert_allclose(head.torque(qd, np.ones(3)), 2.0 * 2.2 * np.array([1, 0.6, 0]))
    assert head.motors == ("joint0", "joint1", "joint2", "joint0 + 0.6 joint1")
    np.testing.assert_array_equal(head.acting[:, 3], [True, False, False])
    assert head.acting[:, :3].all()


def test_rotors_of_a_pair_couple_its_joints():
    head = Friction.of(
        THREE, FrictionSettings(("armature",), pairs=PAIRS[:1]), np.array([[1.0, 2.0, 3.0, 10.0]])
    )
    np.testing.assert_allclose(head.armature, [[1 + 10, 6, 0], [6, 2 + 3.6, 0], [0, 0, 3]])
    np.testing.assert_array_equal(actuator(THREE, "coulomb").armature, np.zeros((3, 3)))


@pytest.mark.parametrize("name", TERMS)
@pytest.mark.parametrize("pairs", [(), PAIRS], ids=["no pairs", "pairs"])
def test_numpy_and_jax_give_the_same(name, pairs):
    head = actuator(THREE, *TERMS[name], pairs=pairs)
    q, qd, load = np.random.default_rng(0).normal(0, 0.05, (3, 3))
    memory = np.asarray(head.remember(np.stack([0 * q, q])))[1]
    learned = jax.tree.map(jnp.asarray, head)
    for past in (None, memory):
        known = head.torque(qd, load, past)
        assert isinstance(known, np.ndarray)
        compiled = eqx.filter_jit(learned.torque)(jnp.asarray(qd), jnp.asarray(load), past)
        np.testing.assert_allclose(known, compiled, rtol=1e-13, atol=1e-15)
    np.testing.assert_allclose(
        head.features(np.stack([qd, qd]), np.stack([memory, memory]))[1],
        learned.features(jnp.asarray(qd), memory),
    )


def test_friction_is_linear_in_its_weights():
    terms: tuple[Term, ...] = ("viscous", "asymmetric", "stribeck", "offset", "stops")
    a, b = (actuator(THREE, *terms, seed=seed, pairs=PAIRS) for seed in (0, 1))
    both = Friction.of(THREE, a.settings, np.asarray(a.weights.value + b.weights.value))
    qd, load = np.random.default_rng(0).normal(0, 0.05, (2, 3))
    np.testing.assert_allclose(
        both.torque(qd, load), a.torque(qd, load) + b.torque(qd, load), rtol=1e-13
    )


def test_every_number_can_be_learned():
    """The torque has a finite slope in each, at standstill too, where steps and halves have their
    kinks.
    """
    head = jax.tree.map(jnp.asarray, actuator(THREE, *TERMS["all"]))
    slopes = eqx.filter_jit(eqx.filter_grad(lambda head, qd, load: head.torque(qd, load).sum()))
    for qd in (0.0, 0.05):
        slope = slopes(head, jnp.full(3, qd), jnp.zeros(3))
        assert all(np.isfinite(leaf).all() for leaf in jax.tree.leaves(slope))
    slope = slopes(head, jnp.full(3, 0.01), jnp.ones(3))
    assert all((np.abs(leaf) > 0).all() for leaf in (slope.log_width, slope.log_stribeck_speed))
    assert (np.abs(slope.weights.value[1:4]) > 0).any(axis=1).tolist() == [True, True, False]


# Passivity


@pytest.mark.parametrize("name", DISSIPATIVE)
@pytest.mark.parametrize("kind", ["smooth", "jagged"])
@pytest.mark.parametrize("pairs", [(), PAIRS], ids=["no pairs", "pairs"])
def test_no_motion_gains_energy(name, kind, pairs):
    for seed in range(5):
        head = jax.tree.map(
            jnp.asarray, actuator(THREE, *DISSIPATIVE[name], seed=seed, pairs=pairs)
        )
        q, load = ways(kind, seed), np.random.default_rng(seed).normal(0, 10, (300, 3))
        energy = taken(head, q, load)
        assert energy.min() >= -1e-12
        assert energy[-1] > 0


@pytest.mark.parametrize("kind", ["smooth", "jagged"])
def test_stops_give_back_no_more_than_they_stored(kind):
    """Work less the stored energy Σ w s² / 2r never falls, from the first step on."""
    for seed in range(5):
        head = jax.tree.map(jnp.asarray, actuator(THREE, "stops", seed=seed, pairs=PAIRS))
        q = ways(kind, seed)
        stretch = np.asarray(head.remember(q)) * np.array(head.settings.radii)[:, None]
        stiffness = np.asarray(head.weights.value) / np.array(head.settings.radii)[:, None]
        lost = taken(head, q, 0 * q) - np.sum(stiffness * stretch[1:] ** 2, axis=(1, 2)) / 2
        assert np.diff(lost, prepend=0).min() >= -1e-12


@given(s=st.floats(-1, 1), motion=st.floats(-3, 3), radius=st.floats(0.01, 1))
def test_a_stop_obeys_its_energy_inequality(s, motion, radius):
    before = np.clip(np.array(s), -radius, radius)
    after = stop(before, np.array(motion), radius)
    assert abs(after) <= radius
    assert after * motion >= (after**2 - before**2) / 2 - 1e-15


def test_the_hysteresis_loop_has_its_area():
    """A stop under a triangle wave of amplitude A > r runs round a parallelogram: height 2 w, width
    2 A − 2 r.
    """
    amplitude, radius, weight = 0.5, 0.1, 3.0
    head = Friction.of(
        Joints.revolute(1), FrictionSettings(("stops",), radii=(radius,)), np.array([[weight]])
    )
    up = np.linspace(-amplitude, amplitude, 101)
    q = np.concatenate([up, up[-2::-1], up[1:], up[-2::-1]])
    force = weight * np.asarray(head.remember(q[:, None]))[:, 0, 0]
    loop = slice(
        200, 401
    )  # the second round, which no longer knows that the first one began relaxed
    area = np.sum((force[loop][1:] + force[loop][:-1]) / 2 * np.diff(q[loop]))
    assert area == pytest.approx(4 * weight * (amplitude - radius), rel=1e-12)
    assert force[200] == pytest.approx(-weight)


# Memory


def test_stepping_is_remembering():
    head, q = actuator(THREE, *TERMS["all"], pairs=PAIRS), ways("jagged", 0, 50)
    qd, load = np.random.default_rng(0).normal(0, 0.05, (2, 3))
    memory = np.asarray(head.remember(q))
    state = head.init(q[0])
    for row, wanted in zip(q, memory, strict=True):
        state, torque = head.update(state, row, qd, load=load)
        np.testing.assert_allclose(torque, head.torque(qd, load, wanted), rtol=1e-12, atol=1e-14)
    assert np.abs(memory).max() == 1
    np.testing.assert_array_equal(memory[0], 0)
    unloaded = head.update(state, q[-1], qd)[1]
    np.testing.assert_allclose(unloaded, head.torque(qd, 0 * load, memory[-1]), rtol=1e-12)


def test_a_motion_may_be_followed_in_parts():
    head, q = actuator(THREE, "stops", pairs=PAIRS), ways("jagged", 1, 60)
    whole, state, parts = head.remember(q), head.init(q[0]), []
    for first, last in pairwise((0, 1, 25, 60)):
        state, memory = head.follow(state, q[first:last])
        parts.append(memory)
    np.testing.assert_array_equal(np.concatenate(parts), whole)


def test_another_motion_starts_relaxed():
    head, q = actuator(THREE, "stops", pairs=PAIRS), ways("jagged", 1, 60)
    together = head.remember(q, np.arange(60) == 20)
    np.testing.assert_array_equal(together[:20], head.remember(q[:20]))
    np.testing.assert_array_equal(together[20:], head.remember(q[20:]))


def test_memory_does_not_know_how_fast_it_was():
    """Half the samples of a way tell the same, as long as none of its turns is left out."""
    head = actuator(Joints.revolute(1), "stops")
    q = np.concatenate([np.linspace(0, 0.2, 41), np.linspace(0.2, -0.13, 41)[1:]])[:, None]
    np.testing.assert_allclose(head.remember(q)[::2], head.remember(q[::2]), atol=1e-12)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_memory_is_as_exact_as_the_positions(dtype):
    head = actuator(THREE, "stops", pairs=PAIRS)
    assert head.remember(ways("smooth", 0).astype(dtype)).dtype == dtype


def test_without_memory_a_stop_has_slid():
    head, q = actuator(THREE, "stops", "viscous", pairs=PAIRS), np.zeros((2, 3))
    q[1], qd = [1.0, -3.0, -1.0], np.array([2.0, -6.0, -2.0])
    slid = np.asarray(head.remember(q))[1]
    np.testing.assert_array_equal(slid, np.tile(np.sign(head.transmission @ qd), (6, 1)))
    np.testing.assert_allclose(head.torque(qd, 0 * qd), head.torque(qd, 0 * qd, slid), rtol=1e-12)
    slow = 0.01 * qd
    tanh = np.tile(np.tanh(head.transmission @ slow / 0.01), (6, 1))
    np.testing.assert_allclose(
        head.torque(slow, 0 * qd), head.torque(slow, 0 * qd, tanh), rtol=1e-12
    )


def test_a_head_without_stops_remembers_nothing():
    head = actuator(THREE, "coulomb")
    memory = head.remember(ways("smooth", 0, 10))
    assert memory.shape == (10, 0, 3)
    qd = np.ones(3)
    np.testing.assert_array_equal(head.torque(qd, qd, np.asarray(memory[0])), head.torque(qd, qd))


# Links and motors


@eqx.filter_jit
def there_and_back(
    model: Model, q: jax.Array, qd: jax.Array, qdd: jax.Array, memory: jax.Array | None
) -> Any:
    """The accelerations of every row again, by way of the torques that they take."""

    def again(q: jax.Array, qd: jax.Array, qdd: jax.Array) -> Any:
        tau = jnp.asarray(model.inverse_dynamics(q, qd, qdd, memory=memory))
        return model.forward_dynamics(q, qd, tau, memory=memory)

    return jax.vmap(again)(q, qd, qdd)


@pytest.mark.parametrize("name", TERMS)
@pytest.mark.parametrize("weight", [0.5, 5.0])
def test_forward_dynamics_undoes_inverse_dynamics(name, weight):
    """With memory and without; also for weights of the load that would leave no solution were they
    not cut.
    """
    head = actuator(THREE, *TERMS[name], pairs=PAIRS)
    head = jax.tree.map(
        jnp.asarray, Friction.of(THREE, head.settings, weight * np.asarray(head.weights.value))
    )
    model = Model(network(THREE, width=8), head)
    memory = head.remember(ways("jagged", 0, 10))[-1]
    q, qd, qdd = jnp.asarray(np.random.default_rng(0).normal(0, 1, (3, 5, 3)))
    for past in (None, memory):
        np.testing.assert_allclose(
            there_and_back(model, q, qd, qdd, past), qdd, rtol=1e-8, atol=1e-8
        )


@pytest.mark.parametrize("name", [name for name in TERMS if "armature" not in TERMS[name]])
def test_a_rigid_body_undoes_its_friction(name):
    head = actuator(TWO_LINK.joints, *TERMS[name], pairs=PAIRS[:1])
    body = RigidBody.from_urdf(
        TWO_LINK.urdf(), friction=jax.tree.map(jnp.asarray, head), armature=np.array([0.1, 0.2])
    )
    memory = np.asarray(head.remember(ways("jagged", 0, 10)[:, :2]))[-1]
    for q, qd, qdd in np.random.default_rng(0).normal(0, 1, (5, 3, 2)):
        for past in (None, memory):
            tau = body.inverse_dynamics(q, qd, qdd, memory=past)
            np.testing.assert_allclose(
                body.forward_dynamics(q, qd, tau, memory=past), qdd, rtol=1e-9, atol=1e-9
            )
            np.testing.assert_allclose(
                body.components(q, qd, qdd, memory=past).total, tau, rtol=1e-9, atol=1e-9
            )


def test_motors_add_their_torque_to_that_of_the_links():
    """Against sums written out: τ_c = τ_rigid + A q̈, and a share of |τ_c|, 0.9 at most, on top."""
    model = actuated(THREE, "armature", "load", "viscous", pairs=PAIRS)
    q, qd, qdd = jnp.asarray(np.random.default_rng(0).normal(0, 1, (3, 3)))
    weights = np.asarray(friction_in(model).weights.value)
    assert model.mechanics is not None
    turn = np.array([[1, 0, 0], [0, 1, 0], [0, 0, 1], [1, 0.6, 0], [0, 1, -1]])
    rigid = np.asarray(eqx.filter_jit(model.mechanics.inverse_dynamics)(q, qd, qdd))
    conservative = rigid + turn.T @ (weights[0] * (turn @ qdd))
    share = np.minimum(weights[1, :3], 0.9)
    friction = share * np.abs(conservative) * np.tanh(qd / 0.01) + turn.T @ (
        weights[2] * (turn @ qd)
    )
    np.testing.assert_allclose(
        eqx.filter_jit(model.inverse_dynamics)(q, qd, qdd), conservative + friction, rtol=1e-12
    )
    np.testing.assert_allclose(
        eqx.filter_jit(model.components)(q, qd, qdd).friction, friction, rtol=1e-12
    )
    whole, links = (eqx.filter_jit(part.energy)(q, qd) for part in (model, model.mechanics))
    rotors = whole.kinetic - links.kinetic
    assert rotors == pytest.approx(np.sum(weights[0] * np.asarray(turn @ qd) ** 2) / 2)


def test_many_samples_with_their_memory():
    model, q = actuated(THREE, "armature", "stops", pairs=PAIRS), ways("smooth", 0, 5)
    qd, qdd = np.random.default_rng(0).normal(0, 1, (2, 5, 3))
    memory = friction_in(model).remember(q)
    rows = [jnp.asarray(column) for column in (q, qd, qdd)]
    many = jax.jit(jax.vmap(lambda *row: model.inverse_dynamics(*row[:3], memory=row[3])))(
        *rows, memory
    )
    single = eqx.filter_jit(model.inverse_dynamics)
    fourth = single(*(row[3] for row in rows), memory=memory[3])
    np.testing.assert_allclose(many[3], fourth, rtol=1e-10)
    assert np.abs(many[3] - single(*(row[3] for row in rows))).max() > 0.01


@pytest.mark.usefixtures("as_shipped")
def test_single_precision_stays_single():
    with jax.enable_x64(False):
        model = Model(
            network(THREE, width=8), Friction(THREE, FrictionSettings(TERMS["all"], pairs=PAIRS))
        )
        q = jnp.ones(3)
        for method in (model.inverse_dynamics, model.forward_dynamics):
            assert eqx.filter_eval_shape(method, q, q, q).dtype == jnp.float32
        assert friction_in(model).remember(np.ones((4, 3))).dtype == jnp.float32
    mixed = actuator(THREE, *TERMS["all"], pairs=PAIRS)
    low = jax.tree.map(lambda leaf: jnp.asarray(leaf, jnp.float32), mixed)
    assert low.torque(jnp.ones(3, jnp.float32), jnp.ones(3, jnp.float32)).dtype == jnp.float32
    assert low.armature.dtype == jnp.float32


def test_weights_know_their_bounds():
    def bounded(**settings) -> dict[str, tuple[bool, ...]]:
        head = Friction(
            THREE, FrictionSettings(TERMS["all"], radii=(0.1,), pairs=PAIRS[:1], **settings)
        )
        rows = np.array(head.weights.bounded).reshape(head.weights.value.shape)
        return {name: tuple(row.tolist()) for name, row in zip(head.columns, rows, strict=True)}

    no, yes = (False,) * 4, (True,) * 4
    columns = (
        "armature",
        "viscous",
        "coulomb+",
        "coulomb-",
        "stribeck",
        "offset",
        "load",
        "stop 0.1",
    )
    assert bounded() == {name: no if name == "offset" else yes for name in columns}
    assert bounded(passive=False) == {name: yes if name == "armature" else no for name in columns}
    model = actuated(MIXED, "viscous", "offset")
    flipped = projected(jax.tree.map(jnp.negative, model)).friction.named
    np.testing.assert_array_equal(flipped["viscous"], 0)
    np.testing.assert_array_equal(flipped["offset"], -friction_in(model).named["offset"])


@pytest.mark.usefixtures("as_shipped")
def test_a_new_term_needs_only_its_entry_in_the_table(monkeypatch):
    """A quadratic drag: its curve, column, bound and derivative all come from the table."""
    terms: Any = ("viscous", "drag")
    law = FrictionLaw(lambda motion: [motion.v * abs(motion.v)])
    monkeypatch.setitem(friction_terms.TERMS, terms[1], law)
    head = Friction.of(THREE, FrictionSettings(terms, pairs=PAIRS[:1]), np.full((2, 4), 2.0))
    qd = np.array([1.0, -2.0, 0.0])
    assert head.columns == ("viscous", "drag")
    assert all(head.weights.bounded)
    assert head.acting.all()
    np.testing.assert_allclose(head.features(qd)[1], [1.0, -4.0, 0.0, -0.04], atol=1e-15)
    slope = jax.jacobian(jax.tree.map(jnp.asarray, head).torque)(jnp.asarray(qd), jnp.zeros(3))
    assert slope[2, 2] == pytest.approx(2.0)


def test_an_untrained_head_takes_no_torque():
    head = Friction(THREE, FrictionSettings(TERMS["all"]))
    np.testing.assert_array_equal(head.torque(jnp.ones(3), jnp.ones(3)), 0)
    assert Friction(THREE).columns == ("viscous", "coulomb", "offset")


# Doors


@pytest.mark.usefixtures("as_shipped")
@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        (
            {"terms": ("stiction",)},
            "terms is a tuple of armature, viscous, .*, each at most once, got",
        ),
        ({"terms": ("viscous", "viscous")}, "each at most once"),
        ({"terms": "viscous"}, "terms is a tuple"),
        (
            {"terms": ("coulomb", "asymmetric")},
            "asymmetric is coulomb with a size for each direction; give only one of them, got",
        ),
        (
            {"pairs": [MotorPair(0, 1, 1.0)]},
            "pairs is a tuple of MotorPair, each at most once, got",
        ),
        ({"pairs": (MotorPair(0, 1, 1.0),) * 2}, "each at most once, got"),
        ({"pairs": ((0, 1, 1.0),)}, "pairs is a tuple of MotorPair"),
        ({"radii": ()}, r"radii is a tuple of different numbers, positive and finite, got \(\)"),
        ({"radii": (0.1, 0.1)}, "different numbers"),
        ({"radii": (0.1, -0.1)}, "positive and finite"),
        ({"radii": 0.1}, "radii is a tuple"),
        ({"width": 0.0}, "width of the Coulomb step must be positive and finite, got 0.0"),
        ({"stribeck_speed": float("nan")}, "stribeck_speed must be positive and finite, got nan"),
    ],
)
def test_settings_without_sense_are_refused(wrong, message):
    with pytest.raises(SettingsError, match=message):
        FrictionSettings(**wrong)


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        (
            (1, 1, 1.0),
            r"needs two different joints, counted from 0, got MotorPair\(first=1, second=1",
        ),
        ((0, -1, 1.0), "needs two different joints, counted from 0"),
        ((0, 1, 0.0), "the ratio of a motor pair must be finite and not zero, got"),
        ((0, 1, float("inf")), "must be finite and not zero"),
    ],
)
def test_pairs_without_sense_are_refused(wrong, message):
    with pytest.raises(SettingsError, match=message):
        MotorPair(*wrong)


def test_a_pair_of_joints_that_are_not_there_is_refused():
    with pytest.raises(
        SettingsError, match="names a joint that does not exist; the 3 joints count from 0"
    ):
        Friction(THREE, FrictionSettings(pairs=(MotorPair(1, 3, 1.0),)))


@pytest.mark.usefixtures("as_shipped")
def test_weights_without_sense_are_refused():
    settings = FrictionSettings(("coulomb", "offset"))
    with pytest.raises(
        ModelError, match=r"shape \(2, 2\); expected finite numbers in shape \(2, 3\)"
    ):
        Friction.of(THREE, settings, np.zeros((2, 2)))
    with pytest.raises(ModelError, match="expected finite numbers"):
        Friction.of(THREE, settings, np.full((2, 3), np.nan))
    with pytest.raises(ModelError, match="is negative; give it ≥ 0, or friction passive=False"):
        Friction.of(THREE, settings, np.full((2, 3), -1.0))
    with pytest.raises(
        ModelError, match=r"coulomb has shape \(2,\); expected one number per joint, shape \(3,\)"
    ):
        Friction.known(THREE, {"coulomb": np.ones(2)})


@pytest.mark.usefixtures("as_shipped")
def test_memory_of_another_head_is_refused():
    head = actuator(THREE, "stops")
    with pytest.raises(
        ModelError,
        match=r"shape \(2, 3\); expected \(stops, motors\) = \(6, 3\) of `remember` or Non",
    ):
        head.torque(np.ones(3), np.ones(3), np.zeros((2, 3)))


def test_motors_of_another_arm_are_refused():
    with pytest.raises(ModelError, match="the friction has 3 joints and the arm 2"):
        RigidBody.from_urdf(TWO_LINK.urdf(), friction=actuator(THREE, "coulomb"))
    with pytest.raises(ModelError, match="build both for the same joints"):
        Model(network(Joints.revolute(2)), Friction(THREE))


@pytest.mark.usefixtures("as_shipped")
def test_a_rigid_body_has_its_own_motors():
    with pytest.raises(ModelError, match="give the rotor inertias of the joints as `armature`"):
        RigidBody.from_urdf(TWO_LINK.urdf(), friction=actuator(TWO_LINK.joints, "armature"))
    body: Any = RigidBody.from_urdf(TWO_LINK.urdf())
    with pytest.raises(ModelError, match="a RigidBody cannot be the mechanics of a model"):
        Model(body, Friction(TWO_LINK.joints))
