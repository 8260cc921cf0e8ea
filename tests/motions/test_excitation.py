"""Excitation for identification: all limits respected, and informative samples."""

import jax
import numpy as np
import pytest

from delan.errors import DataError, SettingsError
from delan.joints import JointLimits
from delan.models.rigid_body import RigidBody
from delan.motions.excitation import ExcitationSettings, excite
from delan.robots.arms import TWO_LINK, WAM4
from tests.motions.test_cosines import require_exact, require_rest

QUICK = ExcitationSettings(starts=1, iterations=8, harmonics=4, samples=40)


def torque_of(arm):
    model = RigidBody.from_urdf(arm.urdf())
    return lambda *motion: np.stack(
        [model.inverse_dynamics(*row) for row in zip(*motion, strict=True)]
    )


@pytest.mark.parametrize("arm", [TWO_LINK, WAM4], ids=lambda arm: arm.name)
@pytest.mark.parametrize("known", [True, False], ids=["known torques", "limits only"])
def test_excitation_never_leaves_the_limits(arm, known):
    excitation = excite(
        arm.limits,
        dt=2e-3,
        key=jax.random.key(0),
        torque=torque_of(arm) if known else None,
        settings=QUICK,
    )
    motion = excitation.trajectory
    limits = arm.limits
    require_exact(motion, 2e-3)
    require_rest(motion)
    assert (motion.q >= limits.lower).all()
    assert (motion.q <= limits.upper).all()
    assert (np.abs(motion.qd) <= limits.velocity).all()
    if known:
        assert (np.abs(torque_of(arm)(motion.q, motion.qd, motion.qdd)) <= limits.torque).all()
        assert set(excitation.used) == {"position", "velocity", "torque"}
    assert max(share.max() for share in excitation.used.values()) <= QUICK.margin


def test_optimised_excitation_is_better_conditioned_than_random_motions():
    few = ExcitationSettings(starts=1, iterations=1, harmonics=4, samples=40)
    random = [
        excite(TWO_LINK.limits, dt=0.01, key=jax.random.key(seed), settings=few).condition
        for seed in range(5)
    ]
    excitation = excite(
        TWO_LINK.limits,
        dt=0.01,
        key=jax.random.key(0),
        settings=ExcitationSettings(starts=1, iterations=60, harmonics=4, samples=40),
    )
    assert excitation.condition < np.median(random)


def test_limits_that_nothing_can_meet_are_refused():
    weak = JointLimits(
        lower=TWO_LINK.limits.lower,
        upper=TWO_LINK.limits.upper,
        velocity=TWO_LINK.limits.velocity,
        torque=np.array([0.1, 0.1]),
    )
    with pytest.raises(DataError, match="standing still takes more torque"):
        excite(weak, dt=0.01, key=jax.random.key(0), torque=torque_of(TWO_LINK), settings=QUICK)


@pytest.mark.parametrize(
    ("settings", "message"),
    [({"harmonics": 1}, "at least 3 harmonics"), ({"samples": 1}, "samples ≥ 10, got 2, 60 and 1")],
)
def test_bad_settings_are_refused(settings, message):
    with pytest.raises(SettingsError, match=message):
        ExcitationSettings(**settings)
