"""Models made to fool the gate: none passes that violates what its certificate states."""

from dataclasses import replace
from functools import cache

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from delan.deploy.certificate import Certificate, Check, GateSettings
from delan.deploy.compiler import find_compiler
from delan.deploy.gate import _Examiner, examine
from delan.deploy.workspace import Workspace, gravity_share, load_share
from delan.deploy.workspace_checks import WorkspaceChecks
from delan.errors import SettingsError
from delan.joints import JointLimits, Joints
from delan.models.friction import Friction, FrictionSettings
from delan.models.geometry import from_rigid_body
from delan.models.model import Model
from delan.models.networks import FeedForwardNetwork, FeedForwardSettings
from delan.models.rigid_body import RigidBody
from delan.robots.arms import TWO_LINK
from tests.deploy.test_gate import FRICTION, known, motions, sound
from tests.support.crafted_models import (
    absurd_trust,
    broken_code,
    calm_network,
    given_power_of,
    largest_near,
    random_friction,
    spiked_network,
)
from tests.support.members import trust_in

pytestmark = pytest.mark.skipif(find_compiler() is None, reason="there is no C compiler here")

FEW = GateSettings(states=500, ascents=3)


def refused(certificate: Certificate) -> set[str]:
    return {check.name for check in certificate.checks if not check.passed}


def of(certificate: Certificate, name: str) -> Check:
    return next(check for check in certificate.checks if check.name == name)


def examiner(model: Model, settings: GateSettings = FEW) -> _Examiner:
    return _Examiner(model, TWO_LINK.limits, motions(20, 21), replace(settings, seed=1))


# The crafted models of the trial, by name.


@pytest.fixture(autouse=True)
def little_work(monkeypatch, request):
    """Proofs of calm networks take little work, and those of spikes all of it."""
    if "slow" not in request.keywords:
        monkeypatch.setattr("delan.deploy.bounds.WORK", 15_000)


def test_a_spike_between_random_states_is_refused():
    spiked = spiked_network(2, seed=0, narrow=0.003).network
    for network, passes in ((spiked, False), (calm_network(2, 0), True)):
        questions = examiner(Model(network)).workspace
        for check in (questions.outside(), questions.gravity()):
            assert check.passed == passes
            assert (check.evidence == "proved") == passes
            assert "all positions from" in check.region


def test_friction_that_drives_above_the_speeds_of_the_log_is_refused():
    """It takes energy at all speeds of the log, and claims to be passive."""
    fastest = np.abs(motions(20, 21).qd).max()
    settings = FrictionSettings(("viscous", "coulomb"), passive=True)
    weights = jnp.array([[-0.1, -0.1], [0.12 * fastest, 0.12 * fastest]])
    friction = Friction(TWO_LINK.joints, settings)
    friction = eqx.tree_at(lambda item: item.weights.value, friction, weights)
    model = Model(known().mechanics, friction)
    assert given_power_of(friction) > 0
    check = examiner(model).workspace.friction()
    assert not check.passed
    assert check.evidence == "proved"
    assert "viscous weight -0.1" in check.found


def test_a_stop_operator_that_single_precision_does_not_hold_is_refused():
    with pytest.raises(SettingsError, match="radii is a tuple of different numbers"):
        FrictionSettings(("viscous", "stops"), radii=(1e-46, 0.1))


def test_a_band_without_an_end_is_refused():
    trust = trust_in(sound())
    wide = sound().with_trust(replace(trust, band=0 * trust.band + 1e32))
    assert refused(examine(wide, TWO_LINK.limits, motions(20, 21), FEW)) == {"width of the band"}


def test_no_two_certificates_have_the_same_states_unless_the_seed_is_given():
    fixed = replace(FEW, seed=3)
    first, second = (
        examine(known(), TWO_LINK.limits, motions(20, 21), settings) for settings in (FEW, fixed)
    )
    assert first.seed != second.seed == 3
    assert "seed 3" in of(second, "forward undoes inverse").region
    again = examiner(known(), fixed).space.states
    np.testing.assert_array_equal(again, examiner(known(), fixed).space.states)


# Further ones, by generators.


@cache
def limits_of(dof: int) -> JointLimits:
    end = np.full(dof, np.pi)
    return JointLimits(lower=-end, upper=end, velocity=end, torque=np.full(dof, 10.0))


def workspace(dof: int, seed: int, states: int = 1000) -> Workspace:
    reach = np.concatenate([np.full(dof, np.pi), np.full(dof, 1.0), np.full(dof, 2.0)])
    drawn = reach * np.random.default_rng(seed).uniform(-1, 1, (states, 3 * dof))
    return Workspace(0 * reach, reach, drawn, 4)


def verdicts(network, dof: int, seed: int) -> dict[str, Check]:
    """The two checks of torques."""
    questions = WorkspaceChecks(
        Model(network), limits_of(dof), workspace(dof, seed), replace(FEW, seed=seed)
    )
    return {"torque": questions.outside(), "gravity": questions.gravity()}


@eqx.filter_jit
def _shares(network, states):
    model = Model(network)
    zero = jnp.zeros(model.joints.dof)
    most = zero + 10.0

    def both(state):
        q, qd, qdd = jnp.split(state, 3)
        torque = load_share(model, q, qd, qdd, most, zero, zero)
        return torque, gravity_share(model, q, qd, qdd, most)

    return jax.vmap(both)(states)


def truth(item, dof: int, seed: int) -> dict[str, float]:
    """What the spike does, by samples around its place, which the gate does not know."""
    rates = np.concatenate([np.full(dof, 1.0), np.full(dof, 2.0)])
    values = {}
    for row, name in enumerate(("torque", "gravity")):
        values[name] = largest_near(
            lambda states, row=row: np.asarray(_shares(item.network, jnp.asarray(states))[row]),
            item.q,
            rates,
            seed,
        )
    return values


ASKED = {"torque": GateSettings().outside, "gravity": GateSettings().torque}


def require_no_spike_passes(dof: int, seed: int, narrow: float | None = None) -> list[bool]:
    """Return for each violation whether it was refused; a proof must never be wrong."""
    item = spiked_network(dof, seed, narrow=narrow)
    checks = verdicts(item.network, dof, seed)
    found = []
    for name, value in truth(item, dof, seed).items():
        if value > ASKED[name]:
            found.append(not checks[name].passed)
            assert checks[name].evidence != "proved"
    return found


@pytest.mark.parametrize("seed", range(3))
def test_no_spike_of_a_network_passes(seed):
    assert all(require_no_spike_passes(2, seed))


@pytest.mark.slow
def test_none_of_many_spikes_passes():
    found = []
    for seed in range(100, 180):
        found += require_no_spike_passes(1 + seed % 3, seed)
    assert len(found) > 80
    assert all(found)


@pytest.mark.slow
def test_no_narrow_spike_of_seven_joints_passes():
    """Seven joints cannot be partitioned: a steep network is refused, others are searched."""
    found = []
    for seed in range(24):
        found += require_no_spike_passes(7, seed)
    assert len(found) >= 20
    assert all(found)


@pytest.mark.slow
def test_search_finds_wide_spikes_of_seven_joints():
    """As steep as the gate lets a network of seven joints be: the certificate says `searched`."""
    found = []
    for seed in range(24):
        found += require_no_spike_passes(7, seed, narrow=0.5 + 0.02 * seed)
    assert len(found) >= 20
    assert all(found)


@pytest.mark.parametrize("seed", range(40, 60))
def test_no_driving_friction_passes(seed):
    friction = random_friction(Joints.revolute(2), seed)
    questions = WorkspaceChecks(
        Model(known().mechanics, friction), TWO_LINK.limits, workspace(2, seed, 50), FEW
    )
    if given_power_of(friction) > 1e-9:
        assert not questions.friction().passed


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(60, 260))
def test_no_other_driving_friction_passes(seed):
    test_no_driving_friction_passes(seed)


def test_no_friction_spike_passes():
    """A bump as narrow as a thousandth of the usual speeds, which no random state meets."""
    for seed in range(3):
        rng = np.random.default_rng(seed)
        narrow = float(10 ** rng.uniform(-9, -4))
        high = 4 * TWO_LINK.limits.torque
        friction = Friction.known(
            TWO_LINK.joints,
            {"viscous": np.array([0.4, 0.1]), "stribeck": high},
            width=narrow / 10,
            stribeck_speed=narrow,
        )
        model = Model(known().mechanics, jax.tree.map(jnp.asarray, friction))
        assert not examiner(model).workspace.outside().passed


def test_no_heavy_or_stretched_chain_passes():
    """Weights, frames and rotors of a chain, changed at random; samples are the truth."""
    chain = from_rigid_body(RigidBody.from_urdf(TWO_LINK.urdf()))
    space = workspace(2, 0)
    violations = 0
    for seed in range(10):
        rng = np.random.default_rng(seed)
        size = 10 ** rng.uniform(0, 1.2)
        parts = {
            "factor": chain.factor * size,
            "gravity": chain.gravity * size,
            "turn": chain.turn * size,
            "shift": chain.shift * size,
            "log_armature": chain.log_armature + 8 * np.log(size),
        }
        name = list(parts)[seed % len(parts)]
        crafted = eqx.tree_at(lambda item, name=name: getattr(item, name), chain, parts[name])
        questions = WorkspaceChecks(Model(crafted), limits_of(2), space, replace(FEW, seed=seed))
        found = _shares(crafted, jnp.asarray(workspace(2, 99, 20_000).states))
        for check, values, asked in zip(
            (questions.outside(), questions.gravity()), found, ASKED.values(), strict=True
        ):
            if np.max(values) > asked:
                violations += 1
                assert not check.passed
    assert violations >= 4


@pytest.mark.parametrize("seed", range(4))
def test_no_broken_code_passes(seed):
    name, model = broken_code(known(), seed)
    check = examiner(model).code()
    assert not check.passed, name
    assert check.found


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(4, 24))
def test_no_other_broken_code_passes(seed):
    test_no_broken_code_passes(seed)


def test_a_network_whose_numbers_overflow_in_single_precision_is_refused():
    """In double precision two huge units cancel; in single precision they are infinite."""
    network = calm_network(2, 0)
    weight = np.array(network.trunk.layers[1].weight)
    weight[0] = weight[1] = 1e36
    network = eqx.tree_at(lambda item: item.trunk.layers[1].weight, network, jnp.asarray(weight))
    for name in ("diagonal", "lower", "gravity"):
        head = np.array(getattr(network, name).weight)
        head[:, 1] = -head[:, 0]
        network = eqx.tree_at(
            lambda item, name=name: getattr(item, name).weight, network, jnp.asarray(head)
        )
    check = examiner(Model(network)).code()
    assert not check.passed
    assert "may overflow" in check.found


@pytest.mark.parametrize("seed", range(6))
def test_no_absurd_band_or_domain_passes(seed):
    name, model = absurd_trust(sound(), seed)
    asked = examiner(model)
    check = asked.width() if name == "width of the band" else asked.known()
    assert check.name == name
    assert not check.passed


def test_a_residual_network_does_not_pass():
    """Torques of a network beside mechanics are bounded by nothing."""
    residual = FeedForwardNetwork(
        TWO_LINK.joints, FeedForwardSettings(width=8), key=jax.random.key(0)
    )
    residual = eqx.tree_at(lambda item: item.torque.weight, residual, 0 * residual.torque.weight)
    model = Model(known().mechanics, jax.tree.map(jnp.asarray, FRICTION), residual)
    checks = examiner(model).workspace.checks()
    assert "mechanics" in {check.name for check in checks if not check.passed}
