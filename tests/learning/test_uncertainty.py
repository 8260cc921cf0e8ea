"""When to trust a model: bands that hold what they promise, doubt that grows away from the data,
and their files.
"""

from collections.abc import Callable
from dataclasses import replace
from functools import cache
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from delan import storage
from delan.cli.describe_command import read_description
from delan.errors import ModelError, ModelFileError, SettingsError
from delan.identification.identifiable_links import identifiable_links, in_plain_frames
from delan.joints import Dataset, Joints
from delan.learning.model_fit import TrainingStart, fit_model
from delan.learning.residual_check import diagnose
from delan.learning.scores import evaluate, predict
from delan.learning.study import Study
from delan.learning.uncertainty import (
    TrustSettings,
    block_labels,
    calibrated,
    conformal_factor,
    coverage,
    domain_of,
    resampled,
    trust,
)
from delan.models.dynamics import InverseDynamics
from delan.models.friction import Friction, FrictionSettings
from delan.models.friction_memory import remembered
from delan.models.geometry import from_rigid_body, learned_arm, to_rigid_body
from delan.models.model import Model, as_model, without_trust
from delan.models.networks import FeedForwardSettings
from delan.models.rigid_body import RigidBody
from delan.models.trust import Domain, Trust
from delan.motions.cosines import cosines
from delan.online.controller import Compiled
from delan.robots.arms import TWO_LINK
from delan.solvers import marquardt
from delan.solvers.loss import Objective, Samples, Scale
from delan.solvers.training import TrainingSettings
from tests.support.members import (
    MIXED,
    actuator,
    chain,
    feed_forward,
    network,
    noisy,
    trust_in,
    with_doubt,
)
from tests.test_storage import with_header

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


SEEDS = {"training": range(6), "validation": range(20, 32), "unseen": range(40, 60)}


@cache
def motions(part: str) -> Dataset:
    """Noisy torques of the two-link arm with friction, at 10 Hz, one trajectory a seed."""
    arm = RigidBody.from_urdf(TWO_LINK.urdf(), friction=FRICTION)
    paths = [cosines(TWO_LINK.limits, key=jax.random.key(seed)).sample(0.1) for seed in SEEDS[part]]
    t, q, qd, qdd = (
        np.concatenate([getattr(path, name) for path in paths]) for name in ("t", "q", "qd", "qdd")
    )
    labels = np.repeat(SEEDS[part], [len(path.t) for path in paths])
    tau = arm.rows(q, qd, qdd).total
    clean = Dataset(
        t=t, q=q, qd=qd, qdd=qdd, tau=tau, trajectory=labels, joints=arm.joints, source=part
    )
    return noisy(clean, 0.03, SEEDS[part][0])


def columns(dataset: Dataset) -> tuple[jax.Array, ...]:
    return tuple(jnp.asarray(column) for column in (dataset.q, dataset.qd, dataset.qdd))


@cache
def fitted(kind: str) -> Any:
    """A chain with friction that lacks the Stribeck term, or a feed-forward network that lacks
    everything.
    """
    if kind == "feed-forward":
        settings = TrainingSettings(optimizer="adam", epochs=400)
        return fit_model(
            Study.of(motions("training"), settings, key=jax.random.key(0)),
            FeedForwardSettings(width=32),
        ).model
    head = Friction(TWO_LINK.joints, FrictionSettings(("viscous", "coulomb", "offset"), width=0.05))
    links, objective = from_rigid_body(RigidBody.from_urdf(TWO_LINK.urdf())), Objective()
    settings = marquardt.MarquardtSettings(damping=1e-3)
    state = marquardt.init(Model(links, head), settings)
    scale = Scale.of(motions("training"), objective)
    problem = marquardt.Problem(Samples.of(motions("training")), scale, objective)
    for _ in range(3):
        state, _ = marquardt.update(state, problem, settings)
    return state.model


@cache
def with_trust(kind: str) -> Model:
    return trust(fitted(kind), motions("training"), motions("validation"), key=jax.random.key(1))


KINDS = ("chain", "feed-forward")


# What was measured


@pytest.mark.parametrize("kind", ["chain", pytest.param("feed-forward", marks=pytest.mark.slow)])
def test_the_band_holds_nine_tenths_of_unseen_torques(kind):
    """Within three standard deviations of what twelve validation trajectories can tell."""
    held = coverage(with_trust(kind), motions("unseen"))
    assert held.min() > 0.85
    assert held.max() < 0.95


@pytest.mark.parametrize("kind", KINDS)
def test_few_validation_trajectories_suffice_in_the_mean(kind):
    model, pool = with_trust(kind), motions("unseen")
    labels, rng = np.array(pool.trajectories), np.random.default_rng(0)
    held = []
    for _ in range(30):
        chosen = rng.permutation(labels).tolist()
        held.append(coverage(calibrated(model, pool.select(chosen[:4])), pool.select(chosen[4:])))
    assert np.abs(np.mean(held, axis=0) - 0.9).max() < 0.03


@pytest.mark.parametrize("kind", KINDS)
def test_doubt_grows_away_from_the_data(kind):
    model, (q, qd, qdd) = with_trust(kind), columns(motions("unseen"))
    near, fast = (
        predict(model, "torque_std", q, qd, qdd),
        predict(model, "torque_std", q, 4 * qd, 16 * qdd),
    )
    assert (fast.mean(axis=0) > 3 * near.mean(axis=0)).all()
    trust = trust_in(model)
    band = predict(model, "torque_band", q, 4 * qd, 16 * qdd)
    assert (band.mean(axis=0) > trust.band * trust.floor).all()


def test_the_domain_holds_what_was_seen_and_nothing_far_away():
    model, (q, qd, _) = with_trust("chain"), columns(motions("unseen"))
    distance = jax.jit(jax.vmap(model.in_domain))
    assert np.mean(distance(*columns(motions("validation"))[:2]) <= 1) >= 0.95
    assert np.mean(distance(*columns(motions("training"))[:2]) <= 1) == 1
    assert np.mean(distance(q, qd) <= 1) > 0.9
    assert np.median(distance(q, qd)) < 0.8
    assert np.all(distance(q + 10, qd) > 2)
    assert np.all(distance(q, qd + 20) > 2)


def test_the_same_key_gives_the_same_trust():
    again = trust(
        fitted("chain"), motions("training"), motions("validation"), key=jax.random.key(1)
    )
    for a, b in zip(jax.tree.leaves(again), jax.tree.leaves(with_trust("chain")), strict=True):
        np.testing.assert_array_equal(a, b)
    renewed = trust(
        again, motions("training"), motions("validation"), key=jax.random.key(2)
    )  # the old trust is left out
    old, new = trust_in(again).members, trust_in(renewed).members
    assert new.trust is None
    assert not np.array_equal(new.mechanics.factor, old.mechanics.factor)


def test_samples_that_do_not_count_are_left_out():
    """They only tell what friction remembers, and are neither learned from nor scored."""

    def lengthened(item: Dataset) -> Dataset:
        whole = item.rows(np.concatenate([np.arange(len(item)), np.arange(7)]))
        counted = np.arange(len(whole)) < len(item)
        return replace(whole, tau=np.where(counted[:, None], whole.tau, 1e6), counted=counted)

    again = trust(
        fitted("chain"),
        lengthened(motions("training")),
        lengthened(motions("validation")),
        key=jax.random.key(1),
    )
    for a, b in zip(jax.tree.leaves(again), jax.tree.leaves(with_trust("chain")), strict=True):
        np.testing.assert_array_equal(a, b)
    np.testing.assert_array_equal(
        coverage(again, lengthened(motions("unseen"))), coverage(again, motions("unseen"))
    )


def test_the_band_is_asked_with_what_friction_remembers():
    head = Friction(TWO_LINK.joints, FrictionSettings(("stops",), radii=(0.3,)))
    head = eqx.tree_at(lambda item: item.weights.value, head, jnp.ones((1, 2)))
    model: Any = with_doubt(Model(fitted("chain").mechanics, head))
    item, memory = (
        motions("unseen").rows(slice(0, 200)),
        remembered(head, motions("unseen").rows(slice(0, 200))),
    )
    band = predict(model, "torque_band", *columns(item), memory=memory)
    error = predict(model, "inverse_dynamics", *columns(item), memory=memory) - item.tau
    np.testing.assert_array_equal(coverage(model, item), np.mean(np.abs(error) <= band, axis=0))


# The pieces


def test_rows_are_parted_by_trajectory_or_into_runs():
    np.testing.assert_array_equal(block_labels(np.array([7, 7, 3, 3, 9]), 3), [1, 1, 0, 0, 2])
    np.testing.assert_array_equal(
        block_labels(np.repeat([5, 2], [6, 2]), 4), [1, 1, 2, 2, 3, 3, 0, 0]
    )
    np.testing.assert_array_equal(block_labels(np.zeros(10, dtype=int), 10), np.arange(10))


def test_whole_blocks_are_drawn_again():
    blocks = np.repeat(np.arange(8), 5)
    rows = resampled(blocks, jax.random.key(0)).reshape(8, 5)
    np.testing.assert_array_equal(rows - rows[:, :1], np.tile(np.arange(5), (8, 1)))
    assert 2 < len(np.unique(blocks[rows])) < 8


def noise(
    rng: np.random.Generator, trajectories: int, rows: int, memory: float, spread: float
) -> np.ndarray:
    """Scores that remember the row before, and are larger in some trajectories than in others."""
    fresh = rng.standard_normal((rows, trajectories))
    scores = np.empty_like(fresh)
    scores[0] = fresh[0]
    for row in range(1, rows):
        scores[row] = memory * scores[row - 1] + np.sqrt(1 - memory**2) * fresh[row]
    return np.abs(scores * np.exp(spread * rng.standard_normal(trajectories))).T.ravel()


@pytest.mark.parametrize(("memory", "spread"), [(0.0, 0.0), (0.95, 0.0), (0.0, 0.3), (0.95, 0.3)])
@pytest.mark.parametrize("trajectories", [2, 4, 12])
def test_few_dependent_scores_still_give_the_right_share(memory, spread, trajectories):
    rng = np.random.default_rng(0)
    labels = np.repeat(np.arange(trajectories), 200)
    new = noise(rng, 2000, 50, memory, spread)
    shares = []
    for _ in range(100):
        scores = noise(rng, trajectories, 200, memory, spread)[:, None]
        shares.append(np.mean(new <= conformal_factor(scores, labels, 0.9)))
    assert 0.87 < np.mean(shares) < 0.93


def test_a_continuous_joint_is_compared_by_angle():
    domain = Domain(jnp.array([[3.0, 3.0, 3.0, 0.0, 0.0, 0.0]]), jnp.ones(6), jnp.array(0.5), MIXED)
    still = jnp.zeros(3)
    np.testing.assert_allclose(
        domain.distance(jnp.array([3.0, 3.0, 3.0 - 6 * np.pi]), still), 0, atol=1e-12
    )
    np.testing.assert_allclose(
        domain.distance(jnp.array([3.0, 3.0, -3.0]), still), 2 * (2 * np.pi - 6)
    )
    np.testing.assert_allclose(
        domain.distance(jnp.array([-3.0, 3.0, 3.0]), still), 12
    )  # this one has end stops
    np.testing.assert_allclose(domain.distance(jnp.full(3, 3.0), jnp.array([0.0, 1.0, 0.0])), 2)


def test_a_joint_that_stood_still_is_missed_when_it_moves():
    fixed = np.array([1.0, 0.0])
    training, validation = (
        replace(item, q=item.q * fixed, qd=item.qd * fixed)
        for item in (motions("training"), motions("validation"))
    )
    domain = domain_of(training, validation)
    q, qd = (jnp.asarray(column[0]) for column in (validation.q, validation.qd))
    assert domain.distance(q, qd) <= 1
    assert domain.distance(q + jnp.array([0.0, 0.5]), qd) > 2


# What a model with trust promises


MODELS: dict[str, Callable[[], Any]] = {
    "network": lambda: network(MIXED, width=5),
    "one joint": lambda: network(Joints.revolute(1), width=4),
    "chain": lambda: chain(MIXED, seed=2),
    "friction with memory": lambda: Model(
        chain(MIXED), jax.tree.map(jnp.asarray, actuator(MIXED, "viscous", "coulomb", "stops"))
    ),
    "feed-forward": lambda: feed_forward(MIXED),
    "chain and a residual": lambda: Model(chain(MIXED), residual=feed_forward(MIXED)),
}


@pytest.mark.parametrize("name", MODELS)
def test_the_torque_is_that_of_the_model_and_its_doubt_that_of_the_members(name):
    model = as_model(MODELS[name]())
    trusted = with_doubt(model)
    assert without_trust(trusted).trust is None
    assert without_trust(trusted).mechanics is model.mechanics
    assert without_trust(model) is model
    assert trusted.joints == model.joints
    assert isinstance(trusted, InverseDynamics)
    assert trusted.promises == replace(model.promises, trust=True)
    motion = jnp.asarray(np.random.default_rng(0).normal(size=(3, model.joints.dof)))
    torque = eqx.filter_jit(lambda item: item.inverse_dynamics(*motion))
    methods = ("inverse_dynamics", "torque_std", "torque_band")
    asked = eqx.filter_jit(lambda item: [getattr(item, method)(*motion) for method in methods])
    own, shown, band = asked(trusted)
    np.testing.assert_allclose(own, torque(model), rtol=1e-9)
    trust = trust_in(trusted)
    members = [jax.tree.map(lambda leaf, k=k: leaf[k], trust.members) for k in range(3)]
    std = np.std([torque(item) for item in members], axis=0, ddof=1)
    np.testing.assert_allclose(shown, std, rtol=1e-9)
    np.testing.assert_allclose(band, trust.band * np.hypot(std, trust.floor), rtol=1e-9)


def test_mechanics_are_those_of_the_model():
    model = MODELS["chain"]()
    q, qd, x = jnp.asarray(np.random.default_rng(0).normal(size=(3, 3)))

    @eqx.filter_jit
    def everything(item):
        parts = item.forward_dynamics(q, qd, x), item.mass_matrix(q), item.components(q, qd, x)
        return *parts, item.energy(q, qd), item.power(q, qd, x)

    jax.tree.map(np.testing.assert_allclose, everything(with_doubt(model)), everything(model))


def test_a_model_without_trust_refuses_its_questions():
    model, vector = Model(MODELS["chain"]()), jnp.ones(3)
    for name, count in (("torque_std", 3), ("torque_band", 3), ("in_domain", 2)):
        with pytest.raises(ModelError, match="has no band and no domain"):
            getattr(model, name)(*[vector] * count)


def test_memory_reaches_model_and_members():
    trusted = with_doubt(MODELS["friction with memory"]())
    q, qd, qdd = jnp.asarray(np.random.default_rng(0).normal(size=(3, 3)))

    @eqx.filter_jit
    def asked(item, memory):
        torque = (
            item.inverse_dynamics(q, qd, qdd, memory=memory),
            item.components(q, qd, qdd, memory=memory).friction,
        )
        return *torque, item.forward_dynamics(q, qd, qdd, memory=memory)

    memory, slid = jnp.full((6, 3), -0.5), jnp.ones((6, 3))
    alone = without_trust(trusted)
    answers = asked(trusted, memory), asked(alone, memory), asked(trusted, slid)
    for shown, own, without in zip(*answers, strict=True):
        np.testing.assert_allclose(shown, own)
        assert not np.allclose(shown, without)
    std = eqx.filter_jit(lambda memory: trusted.torque_std(q, qd, qdd, memory=memory))
    assert not np.allclose(std(memory), std(slid))


def test_trust_changes_no_other_answer():
    model, trusted = fitted("chain"), with_trust("chain")
    assert evaluate(trusted, motions("unseen"), rollouts=False) == evaluate(
        model, motions("unseen"), rollouts=False
    )
    assert diagnose(trusted, motions("unseen")) == diagnose(model, motions("unseen"))
    np.testing.assert_array_equal(learned_arm(trusted).directions, learned_arm(model).directions)
    assert to_rigid_body(trusted).friction is not None
    assert identifiable_links(trusted) == identifiable_links(model)
    np.testing.assert_array_equal(
        in_plain_frames(trusted).parameters, in_plain_frames(model).parameters
    )
    torques = [Compiled.of(item) for item in (trusted, model)]
    np.testing.assert_array_equal(torques[0].weights, torques[1].weights)


def test_a_fit_continues_from_a_model_with_trust():
    model, trusted = fitted("chain"), with_trust("chain")
    data, brief = motions("training"), TrainingSettings(epochs=1)
    head = model.friction.settings
    results = [
        fit_model(
            Study.of(data, brief, friction=head, key=jax.random.key(0)),
            "chain",
            TrainingStart(model=item),
        )
        for item in (trusted, model)
    ]
    for a, b in zip(*(jax.tree.leaves(result.model) for result in results), strict=True):
        np.testing.assert_array_equal(a, b)


# Refusals


@pytest.mark.usefixtures("as_shipped")
def test_wrong_shapes_are_refused():
    trusted = with_doubt(MODELS["chain"]())
    model, trust = without_trust(trusted), trust_in(trusted)
    with pytest.raises(ModelError, match=r"band has shape \(2,\); expected .*shape \(3,\)"):
        Trust(trust.members, trust.floor, jnp.ones(2), trust.domain)
    with pytest.raises(
        ModelError, match="expected those of two or more members, stacked along a new first axis"
    ):
        model.with_trust(replace(trust, members=model))
    others = trust_in(with_doubt(MODELS["network"]()))
    with pytest.raises(ModelError, match=r"members .* have other settings than the model"):
        model.with_trust(replace(trust, members=others.members))
    with pytest.raises(ModelError, match="the domain is for joints"):
        model.with_trust(trust_in(with_doubt(MODELS["one joint"]())))
    with pytest.raises(
        ModelError, match=r"the states of a domain have shape \(4, 5\); expected \(states, 6\)"
    ):
        Domain(jnp.ones((4, 5)), jnp.ones(6), jnp.ones(()), MIXED)
    with pytest.raises(
        ModelError, match=r"the spread of a domain has shape \(3,\) and its radius \(\)"
    ):
        Domain(jnp.ones((4, 6)), jnp.ones(3), jnp.ones(()), MIXED)
    for ask in (lambda x: trusted.in_domain(x, x), lambda x: trusted.torque_std(x, x, x)):
        with pytest.raises(
            ModelError, match=r"expected one sample of 3 joints, shape \(3,\), got shape \(4, 3\)"
        ):
            ask(jnp.ones((4, 3)))


@pytest.mark.usefixtures("as_shipped")
def test_what_cannot_be_trusted_is_refused():
    with pytest.raises(ModelError, match="a RigidBody has no weights that can be learned"):
        trust(
            RigidBody.from_urdf(TWO_LINK.urdf()),
            motions("training"),
            motions("validation"),
            key=jax.random.key(0),
        )
    with pytest.raises(ModelError, match="the model has 3 joints and validation has 2"):
        trust(
            chain(Joints.revolute(3)),
            motions("training"),
            motions("validation"),
            key=jax.random.key(0),
        )
    with pytest.raises(SettingsError, match="an ensemble needs at least 2 members, got 1"):
        TrustSettings(members=1)
    with pytest.raises(
        SettingsError, match="level is a share of the torques between 0 and 1, got 90"
    ):
        TrustSettings(level=90.0)
    with pytest.raises(SettingsError, match="rows must be at least 1, got 0"):
        TrustSettings(rows=0)


# Files


@pytest.mark.parametrize("name", MODELS)
def test_a_trusted_model_comes_back_bit_for_bit(name, tmp_path):
    model = with_doubt(MODELS[name]())
    storage.save(model, tmp_path / "m.delan", provenance={"seed": [0, 7]})
    loaded = storage.load(tmp_path / "m.delan")
    assert jax.tree.structure(loaded) == jax.tree.structure(model)
    for a, b in zip(jax.tree.leaves(model), jax.tree.leaves(loaded), strict=True):
        np.testing.assert_array_equal(a, b)
    header = storage.read_header(tmp_path / "m.delan")
    assert header["trust"] == {"level": 0.9, "members": 3, "states": 4}
    assert header["seed"] == [0, 7]
    storage.save(without_trust(model), tmp_path / "alone.delan")
    assert "trust" not in storage.read_header(tmp_path / "alone.delan")
    assert storage.load(tmp_path / "alone.delan").trust is None


def test_a_trusted_file_is_described_as_its_model(tmp_path):
    storage.save(with_trust("chain"), tmp_path / "m.delan")
    found = read_description(tmp_path / "m.delan")
    assert found.arm is not None
    assert found.model.friction is not None


@pytest.mark.parametrize(
    ("edit", "message"),
    [
        (lambda h: h["trust"].pop("members"), r"damaged \(trust.members is missing; expected"),
        (
            lambda h: h["trust"].update(members="3"),
            r"its header is damaged \(trust.members is '3'; expected a whole number",
        ),
        (lambda h: h["trust"].update(level=90), r"its header is damaged \(trust.level is 90"),
        (lambda h: h.update(trust=[1]), r"its header is damaged \(trust is a list of 1"),
        (
            lambda h: h["trust"].update(members=4),
            r"expected an array trust.members.mechanics.turn of shape \(4, 2, 3, 3\), found",
        ),
        (
            lambda h: h["trust"].update(states=5),
            r"expected an array trust.domain.states of shape \(5, 6\)",
        ),
    ],
)
@pytest.mark.usefixtures("as_shipped")
def test_a_wrong_header_of_trust_is_refused(edit, message, tmp_path):
    storage.save(with_doubt(MODELS["chain"]()), tmp_path / "m.delan")
    with_header(tmp_path / "m.delan", edit)
    with pytest.raises(ModelFileError, match=message):
        storage.load(tmp_path / "m.delan")


@pytest.mark.parametrize(
    ("name", "change", "message"),
    [
        (
            "trust.members.mechanics.gravity",
            lambda a: a * np.nan,
            "the array trust.members.mechanics.gravity holds a non-finite number",
        ),
        (
            "trust.domain.states",
            lambda a: a * np.inf,
            "the array trust.domain.states holds a non-finite number",
        ),
        (
            "trust.band",
            lambda a: -a,
            "a spread, radius, floor or band of its trust has a wrong sign",
        ),
        (
            "trust.domain.radius",
            lambda a: 0 * a,
            "a spread, radius, floor or band of its trust has a wrong sign",
        ),
        (
            "trust.floor",
            lambda a: a[:2],
            r"expected an array trust.floor of shape \(3,\), found one of shape \(2,\)",
        ),
        (
            "trust.domain.spread",
            None,
            r"expected an array trust.domain.spread of shape \(6,\), found none",
        ),
    ],
)
@pytest.mark.usefixtures("as_shipped")
def test_wrong_numbers_of_trust_are_refused(name, change, message, tmp_path):
    path = tmp_path / "m.delan"
    storage.save(with_doubt(MODELS["chain"]()), path)
    arrays, header = storage.read_arrays(path, storage.FORMAT)
    found = arrays.pop(name)
    arrays |= {name: change(found)} if change else {}
    storage.write_arrays(path, arrays, storage.FORMAT, header)
    with pytest.raises(ModelFileError, match=message):
        storage.load(path)


@pytest.mark.usefixtures("as_shipped")
def test_one_member_in_a_file_is_refused(tmp_path):
    path, model = tmp_path / "m.delan", with_doubt(MODELS["chain"]())
    storage.save(model, path)
    arrays, header = storage.read_arrays(path, storage.FORMAT)
    arrays = {
        name: array[:1] if name.startswith("trust.members.") else array
        for name, array in arrays.items()
    }
    header["trust"]["members"] = 1
    storage.write_arrays(path, arrays, storage.FORMAT, header)
    with pytest.raises(ModelFileError, match="its trust is damaged"):
        storage.load(path)
