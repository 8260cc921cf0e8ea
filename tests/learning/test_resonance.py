"""Resonances seen from one side of a joint, against the modes of MuJoCo's arm."""

from dataclasses import replace

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from delan.joints import Joints
from delan.learning.resonance import resonances
from delan.models.friction import Friction, Term
from delan.models.geometry import from_rigid_body
from delan.models.model import Model
from tests.support.elastic_arm import ElasticArm

# Springs soft enough to be excited by friction and motion; noise of encoders and torques.
SOFT = ElasticArm(
    stiffness=(300.0, 60.0),
    damping=(0.3, 0.05),
    coulomb=(1.0, 0.3),
    kp=(200.0, 60.0),
    kd=(20.0, 5.0),
    noise=2e-5,
    torque_noise=0.01,
)
RIGID = replace(SOFT, stiffness=(np.inf, np.inf))


def rigid_model(arm: ElasticArm, *, friction: float = 1.0, inertia: float = 1.0) -> Model:
    """The rigid model of an arm, as far as a fit finds it: friction and inertia may be wrong."""
    chain = from_rigid_body(arm.links())
    rotors = jnp.log(inertia * np.array(arm.rotor))
    chain = eqx.tree_at(lambda chain: chain.log_armature, chain, rotors)
    sizes: dict[Term, np.ndarray] = {
        "viscous": friction * np.array(arm.viscous),
        "coulomb": friction * np.array(arm.coulomb),
    }
    return Model(chain, jax.tree.map(jnp.asarray, Friction.known(Joints.revolute(2), sizes)))


def modes(arm: ElasticArm) -> np.ndarray:
    """The frequencies of the arm hanging down, by its links, rotors and springs [Hz]."""
    inertia = np.linalg.inv(np.asarray(from_rigid_body(arm.links()).mass_matrix(jnp.zeros(2))))
    stiffness = np.diag(arm.stiffness)
    rotors = np.diag(1 / np.array(arm.rotor))
    both = np.block(
        [[inertia @ stiffness, -inertia @ stiffness], [-rotors @ stiffness, rotors @ stiffness]]
    )
    return np.sort(np.sqrt(np.maximum(np.linalg.eigvals(both).real, 0)) / (2 * np.pi))[2:]


@pytest.mark.parametrize("side", ["q", "theta"])
def test_the_resonance_of_one_elastic_joint_is_seen_from_either_side(side):
    arm = replace(SOFT, stiffness=(300.0, 20000.0), damping=(0.3, 2.0))
    motion = arm.motion(1, seconds=60.0)
    (found,) = resonances(motion.one_side(side), rigid_model(arm))
    assert found.joint == 0
    # The inertia changes with the pose, and the mode with it.
    assert found.frequency == pytest.approx(modes(arm)[0], rel=0.1)


@pytest.mark.slow
@pytest.mark.parametrize("side", ["q", "theta"])
def test_resonances_of_two_elastic_joints_lie_near_the_modes(side):
    motion = SOFT.motion(1, seconds=60.0)
    found = resonances(motion.one_side(side), rigid_model(SOFT))
    assert found
    low, high = modes(SOFT)
    for resonance in found:
        assert 0.8 * low < resonance.frequency < 1.2 * high
        assert 0 < resonance.error < 0.1 * resonance.frequency
        # Only a motor that stands still makes the link swing alone.
        assert (resonance.fixed is not None) == (side == "theta")


@pytest.mark.parametrize("seed", range(12))
def test_a_rigid_arm_has_none_with_noise_and_friction_that_a_model_lacks(seed):
    rng = np.random.default_rng(seed)
    arm = replace(
        RIGID,
        rotor=tuple(rng.uniform(0.5, 2, 2) * RIGID.rotor),
        viscous=tuple(rng.uniform(0, 3, 2) * RIGID.viscous),
        coulomb=tuple(rng.uniform(0, 4, 2) * RIGID.coulomb),
        kp=tuple(rng.uniform(0.3, 5, 2) * RIGID.kp),
        kd=tuple(rng.uniform(0.3, 3, 2) * RIGID.kd),
        noise=10 ** rng.uniform(-6, -3.5),
        torque_noise=rng.uniform(0, 0.05),
    )
    motion = arm.motion(seed, seconds=40.0)
    model = rigid_model(arm, friction=rng.uniform(0, 1.2), inertia=rng.uniform(0.8, 1.2))
    assert resonances(motion.one_side("q"), model) == ()


def test_a_short_log_says_nothing():
    motion = SOFT.motion(0, seconds=5.0)
    assert resonances(motion.one_side("q"), rigid_model(SOFT)) == ()
