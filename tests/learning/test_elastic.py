"""Fits of elastic joints, against MuJoCo's arm with springs."""

from dataclasses import replace

import numpy as np
import pytest

import delan
from delan.errors import SettingsError
from delan.joints import Joints, Recording
from delan.learning.elastic_fit import identified_drives
from delan.learning.fit_settings import FitSettings
from delan.learning.scores import predict_samples
from delan.logs.both_sides import at_links, both_sides
from delan.logs.preparation import PreparationSettings, prepare
from delan.report.elastic_text import as_fields, elastic_notes
from tests.support.elastic_arm import ArmMotion, ElasticArm

ARM = ElasticArm()


@pytest.fixture(scope="module")
def motion() -> ArmMotion:
    return ARM.motion(0)


def test_motors_and_springs_follow_by_least_squares(motion):
    drives, unexplained = identified_drives(prepare(motion.log(), PreparationSettings(cutoff=10.0)))
    np.testing.assert_allclose(drives.stiffness, ARM.stiffness, rtol=1e-3)
    np.testing.assert_allclose(drives.rotor, ARM.rotor, rtol=1e-2)
    np.testing.assert_allclose(drives.damping, ARM.damping, rtol=0.1)
    np.testing.assert_allclose(drives.viscous, ARM.viscous, rtol=1e-2)
    assert unexplained < 1e-6


def test_a_fit_finds_links_motors_and_springs(motion):
    every = 10
    dataset = motion.dataset().rows(slice(None, None, every))
    result = delan.fit(dataset, "chain", friction=None)
    outcome = result.elastic
    assert outcome is not None
    assert outcome.chosen == "elastic"
    assert outcome.elastic < outcome.rigid / 10
    np.testing.assert_allclose(outcome.drives.stiffness, ARM.stiffness, rtol=1e-3)
    np.testing.assert_allclose(outcome.drives.rotor, ARM.rotor, rtol=1e-2)
    unseen = ARM.motion(7, speed=2.0).dataset()
    torque = at_links(predict_samples(result.model, unseen), unseen.joints)
    measured = at_links(unseen.tau, unseen.joints)
    assert (np.mean((torque - measured) ** 2, axis=0) < 1e-5 * measured.var(axis=0)).all()
    assert "elastic" in next(elastic_notes(result))
    assert as_fields(result)["elastic"]["chosen"] == "elastic"


def test_a_deflection_that_is_noise_makes_no_spring(motion):
    rng = np.random.default_rng(0)
    both, joints = both_sides(
        {"q": motion.q, "q_motor": motion.q + 1e-4 * rng.normal(size=motion.q.shape)}
        | {"tau": motion.tau},
        Joints.revolute(2),
    )
    log = Recording(
        t=motion.t,
        q=both["q"],
        tau=both["tau"],
        trajectory=np.zeros(len(motion.t), dtype=int),
        joints=joints,
    )
    _, unexplained = identified_drives(prepare(log, PreparationSettings(cutoff=10.0)))
    assert unexplained > 0.5


@pytest.mark.parametrize(
    ("options", "remedy"),
    [
        ({"models": "delan"}, "let the chain take part"),
        ({"urdf": "arm.urdf"}, "leave it out"),
        ({"settings": FitSettings(accelerations="none")}, "accelerations"),
    ],
)
def test_what_elastic_joints_do_not_know_is_refused(motion, options, remedy):
    with pytest.raises(SettingsError, match=remedy):
        delan.fit(motion.log(), **options)


def test_motors_of_some_joints_alone_are_refused(motion):
    log = motion.log()
    joints = Joints(log.joints.names[:3], log.joints.kinds[:3], (0,))
    some = replace(log, q=log.q[:, :3], tau=log.tau[:, :3], joints=joints)
    with pytest.raises(SettingsError, match="1 of 2 joints"):
        delan.fit(some)
