"""Elastic joints against MuJoCo, which knows motors and springs as bodies and a tendon."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import delan
from delan.deploy.gate import examine
from delan.errors import ModelError, SettingsError
from delan.joints import JointLimits, Joints
from delan.models.elastic import ElasticDrives, drives_of, motion_of_motors, with_springs
from delan.models.geometry import model_of
from delan.models.model import Model
from tests.support.elastic_arm import ElasticArm
from tests.support.members import actuator, chain, coupled_chain

ARM = ElasticArm()


@pytest.fixture(scope="module")
def known() -> Model:
    """The elastic model with the numbers of the simulated arm."""
    return with_springs(model_of(ARM.links()), drives(ARM))


@pytest.fixture(scope="module")
def motion():
    return ARM.motion(3, seconds=4.0)


def drives(arm: ElasticArm) -> ElasticDrives:
    return ElasticDrives(
        stiffness=np.array(arm.stiffness),
        damping=np.array(arm.damping),
        rotor=np.array(arm.rotor),
        viscous=np.array(arm.viscous),
        coulomb=np.array(arm.coulomb),
        offset=np.zeros(2),
    )


def test_torques_of_motors_are_those_of_mujoco_and_links_need_none(known, motion):
    both = (
        np.hstack([motion.q, motion.theta]),
        np.hstack([motion.qd, motion.theta_d]),
        np.hstack([motion.qdd, motion.theta_dd]),
    )
    torque = np.asarray(jax.vmap(known.inverse_dynamics)(*map(jnp.asarray, both)))
    np.testing.assert_allclose(torque[:, 2:], motion.tau, atol=1e-6)
    np.testing.assert_allclose(torque[:, :2], 0, atol=1e-6)


def test_accelerations_of_links_and_motors_are_those_of_mujoco(known, motion):
    rows = slice(None, None, 50)
    q = jnp.asarray(np.hstack([motion.q, motion.theta])[rows])
    qd = jnp.asarray(np.hstack([motion.qd, motion.theta_d])[rows])
    tau = jnp.asarray(np.hstack([np.zeros_like(motion.tau), motion.tau])[rows])
    found = np.asarray(jax.vmap(known.forward_dynamics)(q, qd, tau))
    expected = np.hstack([motion.qdd, motion.theta_dd])[rows]
    np.testing.assert_allclose(found, expected, atol=1e-4)


def test_a_stretched_spring_stores_energy(known):
    q = jnp.array([0.3, -0.2, 0.3, -0.2])
    stretched = q.at[2].add(0.01)
    still = jnp.zeros(4)
    stored = known.energy(stretched, still).total - known.energy(q, still).total
    assert stored == pytest.approx(ARM.stiffness[0] * 0.01**2 / 2)


@pytest.mark.slow
def test_motion_of_the_links_alone_determines_that_of_the_motors():
    arm = ElasticArm(damping=(0.0, 0.0))
    known = with_springs(model_of(arm.links()), drives(arm))

    def links(t: jax.Array) -> jax.Array:
        return jnp.array([0.5 * jnp.sin(3 * t), 0.4 * jnp.cos(2 * t)])

    derivatives = [links]
    for _ in range(4):
        derivatives.append(jax.jacfwd(derivatives[-1]))
    t = jnp.array(0.7)
    theta, theta_d, theta_dd = motion_of_motors(known, *(each(t) for each in derivatives))
    q, qd, qdd = (each(t) for each in derivatives[:3])
    torque = known.inverse_dynamics(
        jnp.concatenate([q, theta]),
        jnp.concatenate([qd, theta_d]),
        jnp.concatenate([qdd, theta_dd]),
    )
    np.testing.assert_allclose(torque[:2], 0, atol=1e-9)

    def position(t: jax.Array) -> jax.Array:
        return motion_of_motors(known, *(each(t) for each in derivatives))[0]

    np.testing.assert_allclose(theta_d, jax.jacfwd(position)(t), rtol=1e-9)
    np.testing.assert_allclose(theta_dd, jax.jacfwd(jax.jacfwd(position))(t), rtol=1e-8)


def test_numbers_of_the_drives_come_back_from_the_model_and_from_its_file(known, tmp_path):
    delan.save(known, tmp_path / "elastic.delan")
    loaded = delan.load(tmp_path / "elastic.delan")
    assert loaded.joints == known.joints
    assert loaded.joints.motor_of == (0, 1)
    for model in (known, loaded):
        found = drives_of(model)
        assert found is not None
        np.testing.assert_allclose(found.stiffness, ARM.stiffness, rtol=1e-6)
        np.testing.assert_allclose(found.damping, ARM.damping, rtol=1e-6)
        np.testing.assert_allclose(found.rotor, ARM.rotor, rtol=1e-6)


@pytest.mark.parametrize("terms", [("viscous", "asymmetric", "offset"), ("stops", "load")])
def test_a_mechanism_keeps_its_structure_and_friction_behind_springs(terms):
    joints = Joints.revolute(3)
    friction = jax.tree.map(jnp.asarray, actuator(joints, *terms))
    link = Model(coupled_chain(), friction)
    numbers = {
        name: np.linspace(1, 2, 3)
        for name in ("stiffness", "damping", "rotor", "viscous", "coulomb", "offset")
    }
    model = with_springs(link, ElasticDrives(**numbers))
    q, qd, qdd = jax.random.normal(jax.random.key(0), (3, 3))
    together = model.inverse_dynamics(*(jnp.concatenate([part, part]) for part in (q, qd, qdd)))
    np.testing.assert_allclose(together[:3], link.inverse_dynamics(q, qd, qdd), rtol=1e-6)


def test_the_gate_refuses_springs_and_says_what_to_do(known, motion):
    limits = JointLimits(
        lower=np.full(4, -1.0), upper=np.ones(4), velocity=np.ones(4), torque=np.ones(4)
    )
    with pytest.raises(ModelError, match="delan simulate"):
        examine(known, limits, motion.dataset())


def test_a_rigid_model_has_no_springs():
    model = Model(chain(Joints.revolute(2)))
    assert drives_of(model) is None
    with pytest.raises(ModelError, match="elastic joints"):
        motion_of_motors(model, *jnp.zeros((5, 2)))


@pytest.mark.parametrize("motor_of", [(0, 0), (2, 1), (-1, 0)])
def test_motors_of_no_link_are_refused(motor_of):
    names = ("a", "b", "c", "d")
    with pytest.raises(SettingsError, match="motor_of"):
        Joints(names, ("revolute",) * 4, motor_of)


def test_resonance_of_a_drive_is_that_of_two_masses_on_a_spring():
    stiffness, rotor, inertia = 900.0, 0.35, 0.7
    one = np.ones(1)
    drive = ElasticDrives(
        stiffness=stiffness * one,
        damping=one,
        rotor=rotor * one,
        viscous=one,
        coulomb=one,
        offset=one,
    )
    matrix = stiffness * np.array([[1 / inertia, -1 / inertia], [-1 / rotor, 1 / rotor]])
    expected = np.sqrt(np.linalg.eigvals(matrix).max()) / (2 * np.pi)
    assert drive.resonance(inertia * one)[0] == pytest.approx(expected)
    swing = np.sqrt(stiffness / inertia) / (2 * np.pi)
    assert drive.antiresonance(inertia * one)[0] == pytest.approx(swing)
