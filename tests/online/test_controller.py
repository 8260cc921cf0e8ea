"""Torques from states and targets: gains, the controller, and feed-forward models."""

import errno
import multiprocessing
import os
import sys
import threading
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import delan
from delan.deploy.compiler import find_compiler
from delan.errors import ModelError, SettingsError
from delan.joints import JointLimits, Joints, JointState, JointTarget
from delan.models.friction import FrictionSettings
from delan.models.model import Blueprint
from delan.models.networks import FeedForwardSettings, LagrangianNetworkSettings
from delan.models.rigid_body import RigidBody
from delan.online.controller import (
    Compiled,
    Direct,
    FeedForward,
    Gains,
    NoFeedForward,
    TrackingController,
    feed_forward_of,
    on_device,
)
from delan.online.process import raise_priority, workers_follow
from delan.robots import ARMS
from delan.robots.arms import TWO_LINK, letter_motion
from delan.robots.robot import LOW_GAINS, gains_within, low_gains
from tests.support.members import actuator, friction_in
from tests.support.stand_ins import (
    CHAIN,
    TWO_LINK_BODY,
    SlowFeedForward,
    chain_weights,
    true_chain,
    with_motors,
)

DT = 0.002


def targets(count: int = 200) -> list[JointTarget]:
    motion = letter_motion("a", dt=DT)
    return [JointTarget(*row) for row in zip(motion.q, motion.qd, motion.qdd, strict=True)][
        200 : 200 + count
    ]


def test_the_torque_is_pd_control_and_what_the_model_says():
    gains = Gains(np.array([10.0, 20.0]), np.array([1.0, 2.0]))
    controller = TrackingController(gains, Direct(TWO_LINK_BODY), 1.0)
    state = JointState(0.0, np.array([0.1, 0.2]), np.array([0.3, 0.4]))
    target = JointTarget(np.array([0.2, 0.1]), np.array([0.0, 1.0]), np.array([5.0, 5.0]))
    expected = [10 * 0.1 - 0.3, -20 * 0.1 + 2 * 0.6]
    np.testing.assert_allclose(controller.feedback(state, target), expected)
    np.testing.assert_array_equal(controller.feed_forward, 0.0)
    controller.begin(0, lambda _: target)
    controller.collect(0)
    model = TWO_LINK_BODY.inverse_dynamics(*target)
    np.testing.assert_allclose(controller.feed_forward, model)


@pytest.mark.usefixtures("as_shipped")
@pytest.mark.parametrize(
    ("stiffness", "damping", "problem"),
    [
        ([1.0, 2.0], [1.0], r"expected one damping per joint, .* got \(1,\)"),
        ([[1.0]], [[1.0]], r"expected one stiffness per joint, .* got \(1, 1\)"),
        ([1.0, np.nan], [1.0, 1.0], r"stiffness must be finite and not negative, got \[1.0, nan\]"),
        ([1.0, 1.0], [1.0, -1.0], r"damping must be finite and not negative, got \[1.0, -1.0\]"),
    ],
)
def test_gains_that_make_no_sense_are_refused(stiffness, damping, problem):
    with pytest.raises(SettingsError, match=problem):
        Gains(np.array(stiffness), np.array(damping))


@pytest.mark.parametrize("name", ARMS)
def test_every_arm_has_gains_of_its_own_that_damp_it_well(name):
    arm, body = ARMS[name], RigidBody.from_urdf(ARMS[name].urdf())
    gains = low_gains(arm)
    assert gains is LOW_GAINS[arm.name]
    draws = np.random.default_rng(0).uniform(
        arm.limits.lower, arm.limits.upper, (100, arm.joints.dof)
    )
    inertia = np.mean([np.diag(body.mass_matrix(q)) for q in draws], axis=0)
    damping_ratio = gains.damping / (2 * np.sqrt(gains.stiffness * inertia))
    assert (damping_ratio > 0.7).all()
    assert (damping_ratio < 1.5).all()


def test_limits_alone_give_gains_too():
    joints = Joints.of(("revolute", "prismatic"))
    limits = JointLimits(
        lower=np.array([-2.0, 0.0]),
        upper=np.array([2.0, 0.5]),
        velocity=np.array([5.0, 1.0]),
        torque=np.full(2, 50.0),
    )
    gains = gains_within(limits, joints)
    np.testing.assert_allclose(gains.stiffness, [50, 200])
    np.testing.assert_allclose(gains.damping, [10, 50])
    endless = JointLimits(
        lower=-limits.upper,
        upper=limits.upper,
        velocity=limits.velocity,
        torque=np.array([np.inf, 1]),
    )
    with pytest.raises(SettingsError, match="joint joint0 has the torque limit inf"):
        gains_within(endless, joints)


def asked(feed_forward: FeedForward, wanted: list[JointTarget]) -> np.ndarray:
    feed_forward.prepare(wanted[0].q_des)
    torques = []
    for target in wanted:
        feed_forward.begin(target)
        torque = feed_forward.ready(wait=True)
        assert torque is not None
        torques.append(torque.copy())
    return np.array(torques)


def test_a_compiled_chain_says_what_the_rigid_body_says():
    wanted = targets()
    expected = np.array([TWO_LINK_BODY.inverse_dynamics(*target) for target in wanted])
    made = [feed_forward_of(TWO_LINK_BODY), feed_forward_of(true_chain())]
    assert isinstance(made[0], Direct)
    assert isinstance(made[1], Compiled)
    for feed_forward in made:
        assert isinstance(feed_forward, FeedForward)
        np.testing.assert_allclose(asked(feed_forward, wanted), expected, rtol=1e-9, atol=1e-9)


@pytest.mark.skipif(find_compiler() is None, reason="there is no C compiler here")
def test_without_room_for_code_jax_computes(tmp_path, monkeypatch):
    def full(**_: Any) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr("tempfile.TemporaryDirectory", full)
    feed_forward = Compiled.of(true_chain())
    expected = [TWO_LINK_BODY.inverse_dynamics(*target) for target in targets(3)]
    np.testing.assert_allclose(asked(feed_forward, targets(3)), expected, rtol=1e-9, atol=1e-9)
    assert feed_forward.engine.startswith("JAX (")
    assert "cannot be kept there (No space left on device)" in feed_forward.engine


@pytest.mark.parametrize("engine", ["C", "JAX"])
@pytest.mark.parametrize(
    "network", [LagrangianNetworkSettings(width=8), FeedForwardSettings(width=8)]
)
def test_any_learned_model_can_be_compiled(network, engine, monkeypatch):
    if engine == "JAX":
        monkeypatch.setattr("delan.deploy.compiler.find_compiler", lambda: None)
    elif find_compiler() is None:
        pytest.skip("there is no C compiler here")
    blueprint = Blueprint.named(TWO_LINK.joints, network)
    model, other = (blueprint.build(key=jax.random.key(seed)) for seed in range(2))
    feed_forward = feed_forward_of(model)
    assert isinstance(feed_forward, Compiled)
    torques = []
    for item in (model, other):
        feed_forward.take(on_device(blueprint.pack(item)))
        torques.append(asked(feed_forward, targets(5)))
    torque = eqx.filter_jit(lambda item, target: item.inverse_dynamics(*target))
    expected = [
        [torque(item, tuple(map(jnp.asarray, target))) for target in targets(5)]
        for item in (model, other)
    ]
    np.testing.assert_allclose(torques, expected, rtol=1e-9, atol=1e-9)
    assert feed_forward.engine == ("C" if engine == "C" else f"JAX ({NO_COMPILER})")


NO_COMPILER = "there is no C compiler; install gcc or clang, or name one in CC"


def test_gravity_is_the_torque_at_rest():
    wanted, still = targets(20), np.zeros(2)
    expected = [TWO_LINK_BODY.inverse_dynamics(target.q_des, still, still) for target in wanted]
    torques = asked(Direct(TWO_LINK_BODY, at_rest=True), wanted)
    np.testing.assert_allclose(torques, expected, rtol=1e-9, atol=1e-9)


def test_no_model_and_a_model_not_yet_learned_give_no_torque():
    unborn = Compiled(CHAIN)
    for feed_forward in (NoFeedForward(TWO_LINK.joints), unborn):
        np.testing.assert_array_equal(asked(feed_forward, targets(3)), 0.0)
    unborn.take(on_device(chain_weights()))
    np.testing.assert_allclose(
        asked(unborn, targets(3)),
        [TWO_LINK_BODY.inverse_dynamics(*target) for target in targets(3)],
        atol=1e-9,
    )


def test_weights_of_another_model_are_refused():
    with pytest.raises(ModelError, match=r"the model has \d+ numbers, got shape \(3,\)"):
        Compiled(CHAIN, np.zeros(3))


def test_friction_remembers_the_wanted_motion():
    wanted = targets()
    blueprint, weights = with_motors(
        ("viscous", "stops"), {"viscous": 0.1, "stop 0.01": 0.5, "stop 0.1": 0.3}
    )
    model = blueprint.unpack(jnp.asarray(weights))
    q = np.array([target.q_des for target in wanted])
    memory = friction_in(model).remember(q)
    torque = jax.jit(
        jax.vmap(lambda q, qd, qdd, memory: model.inverse_dynamics(q, qd, qdd, memory=memory))
    )
    expected = torque(*(jnp.asarray(column) for column in zip(*wanted, strict=True)), memory)
    compiled = Compiled(blueprint, weights)
    np.testing.assert_allclose(asked(compiled, wanted), expected, rtol=1e-8, atol=1e-8)
    np.testing.assert_allclose(
        asked(compiled, wanted), expected, rtol=1e-8, atol=1e-8
    )  # and forgets it


@pytest.mark.skipif(find_compiler() is None, reason="there is no C compiler here")
def test_compiled_code_that_would_forget_does_not_drive():
    blueprint, weights = with_motors(("viscous", "stops"), {"viscous": 0.1, "stop 0.1": 0.3})
    model = blueprint.unpack(jnp.asarray(weights))
    with pytest.raises(ModelError, match=r"\(stops\).* to feed_forward_of"):
        Direct(delan.compile(model))
    plain = delan.compile(true_chain())
    assert not plain.remembers
    expected = [TWO_LINK_BODY.inverse_dynamics(*target) for target in targets(3)]
    np.testing.assert_allclose(asked(Direct(plain), targets(3)), expected, rtol=1e-9, atol=1e-9)


def test_friction_of_a_rigid_body_remembers_too():
    friction = actuator(TWO_LINK.joints, "stops", radii=(0.01, 0.1))
    body = RigidBody.from_urdf(TWO_LINK.urdf(), friction=friction)
    wanted = targets()
    memory = friction.remember(np.array([target.q_des for target in wanted]))
    expected = [
        body.inverse_dynamics(*target, memory=np.asarray(item))
        for target, item in zip(wanted, memory, strict=True)
    ]
    np.testing.assert_allclose(asked(Direct(body), wanted), expected, rtol=1e-9, atol=1e-9)


def test_motors_without_memory_need_none():
    blueprint = Blueprint(
        TWO_LINK.joints, LagrangianNetworkSettings(width=4), FrictionSettings(("viscous",))
    )
    model = blueprint.build(key=jax.random.key(1))
    torque = eqx.filter_jit(model.inverse_dynamics)
    expected = [torque(*map(jnp.asarray, target)) for target in targets(3)]
    np.testing.assert_allclose(
        asked(feed_forward_of(model), targets(3)), expected, rtol=1e-9, atol=1e-9
    )


@pytest.mark.parametrize(
    ("share", "due"), [(0.4, [0, 3, 5, 8, 10, 13, 15, 18]), (1.0, list(range(20))), (0.1, [0, 10])]
)
def test_torques_are_begun_early_and_taken_up_when_they_are_due(share, due):
    feed_forward = SlowFeedForward(TWO_LINK.joints)
    controller = TrackingController(LOW_GAINS["two_link"], feed_forward, share)
    fresh = []
    for k in range(20):
        controller.begin(k, lambda period: targets(30)[period])
        before = controller.feed_forward[0]
        controller.collect(k)
        if controller.feed_forward[0] != before:
            fresh.append(k)
    assert fresh == due
    # The next one is under way already, for the target of its own period.
    asked = [target.q_des[0] for target in feed_forward.begun]
    np.testing.assert_allclose(asked[: len(due)], [targets(30)[k].q_des[0] for k in due])
    assert len(asked) - len(due) == (share < 1)
    assert controller.late == 0


def test_a_torque_may_take_all_the_time_between_two_refreshes():
    class TwoPeriods(SlowFeedForward):
        """Ready two periods after it was begun."""

        now = started = 0

        def begin(self, target):
            super().begin(target)
            self.started = self.now

        def ready(self, *, wait=False):
            return np.zeros(self.joints.dof) if self.now >= self.started + 2 else None

    feed_forward = TwoPeriods(TWO_LINK.joints)
    controller = TrackingController(LOW_GAINS["two_link"], feed_forward, 0.4)
    late = []
    for k in range(40):
        feed_forward.now = k
        controller.collect(k)
        controller.begin(k + 1, lambda period: targets(50)[period])
        late.append(controller.late)
    assert late[10] == late[-1] <= 3  # after the first ones, begun in a hurry, none


def test_a_torque_that_is_late_leaves_the_old_one_in_use():
    feed_forward = SlowFeedForward(TWO_LINK.joints, patience=3)
    controller = TrackingController(LOW_GAINS["two_link"], feed_forward, 1.0)
    used = []
    for k in range(10):
        controller.begin(k, lambda period: targets(20)[period])
        controller.collect(k)
        used.append(controller.feed_forward[0])
    np.testing.assert_allclose(used, 0.01 * np.array([0, 0, 0, 1, 1, 1, 1, 2, 2, 2]))
    assert controller.late == 10


def policies_of_a_worker(pipe: Any) -> None:
    """How a thread is scheduled before, while and after it follows one that was raised, and whether
    that one was.
    """
    done, number = threading.Event(), threading.Event()
    worker = threading.Thread(target=lambda: (number.set(), done.wait()), daemon=True)
    worker.start()
    number.wait()
    shown = worker.native_id

    def scheduled() -> tuple[int, int]:
        assert shown is not None
        return os.sched_getscheduler(shown) & ~os.SCHED_RESET_ON_FORK, os.sched_getparam(
            shown
        ).sched_priority

    with workers_follow():
        ordinary = scheduled()
    granted = raise_priority(level=20).realtime
    before = scheduled()
    with workers_follow():
        within = scheduled()
    pipe.send((granted, ordinary, before, within, scheduled()))
    done.set()


@pytest.mark.skipif(sys.platform != "linux", reason="scheduling as Linux knows it")
def test_workers_come_after_the_loop_and_before_all_others():
    context = multiprocessing.get_context("spawn")
    here, there = context.Pipe()
    process = context.Process(target=policies_of_a_worker, args=(there,))
    process.start()
    granted, ordinary, before, within, after = here.recv()
    process.join()
    assert ordinary == before == after == (os.SCHED_OTHER, 0)
    assert within == ((os.SCHED_FIFO, 10) if granted else (os.SCHED_OTHER, 0))
