"""Fits: what they learn, that they repeat, and what happens when they go wrong or are stopped."""

import json
import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from delan import storage
from delan.errors import DataError, ModelFileError, SettingsError
from delan.joints import Joints
from delan.learning.model_fit import TrainingStart, fit_model
from delan.learning.presets import PAPER
from delan.learning.scores import evaluate
from delan.learning.study import Study
from delan.models.dynamics import Normalisation
from delan.models.networks import FeedForwardSettings, LagrangianNetwork, LagrangianNetworkSettings
from delan.solvers import adam, training
from delan.solvers.loss import Objective, Samples, Scale
from delan.solvers.marquardt import MarquardtSettings
from delan.solvers.plan import plan
from delan.solvers.training import TrainingSettings
from tests.support.members import noisy, pendulum
from tests.support.odd_robots import FiveBar, driven

WRONG: Any = "wrong"
SMALL = LagrangianNetworkSettings(width=8)
ADAM = TrainingSettings(optimizer="adam", epochs=120)


def leaves(model) -> list[np.ndarray]:
    return [np.asarray(leaf) for leaf in jax.tree.leaves(eqx.filter(model, eqx.is_array))]


def same(a, b) -> bool:
    return all(np.array_equal(x, y) for x, y in zip(leaves(a), leaves(b), strict=True))


def test_the_second_order_fit_finds_the_pendulum():
    """Inertia 0.5 kg m² and gravity 9.81 cos q, from summed torques of other motions."""
    result = fit_model(Study.of(pendulum(), TrainingSettings(epochs=60)), SMALL)
    assert result.optimizer == "lm"
    scores = evaluate(result.model, pendulum(seed=9))
    assert scores.torque.nmse_mean < 1e-6
    assert scores.components["inertial"].nmse_mean < 1e-6
    assert scores.components["gravity"].nmse_mean < 1e-6
    assert float(result.model.mass_matrix(jnp.array([0.3]))[0, 0]) == pytest.approx(0.5, rel=1e-3)


def test_descent_learns_too():
    result = fit_model(Study.of(pendulum(), replace(ADAM, epochs=1500)), SMALL)
    assert result.optimizer == "adam"
    assert evaluate(result.model, pendulum(seed=9)).torque.nmse_mean < 1e-3
    assert result.history[0].validation > 100 * result.history[-1].validation


def test_the_feed_forward_network_learns():
    result = fit_model(
        Study.of(pendulum(), TrainingSettings(epochs=60)), FeedForwardSettings(width=8)
    )
    assert result.model.mechanics is None
    assert result.validation.torque.nmse_mean < 1e-3


def test_noise_is_not_learned():
    """Validation stops the second-order fit before it follows the noise of 10 % of the torque."""
    result = fit_model(Study.of(noisy(pendulum(), 0.1), TrainingSettings(epochs=200)), SMALL)
    assert evaluate(result.model, pendulum(seed=9)).torque.nmse_mean < 5e-3


@pytest.mark.parametrize("settings", [ADAM, TrainingSettings(epochs=15)], ids=["adam", "lm"])
def test_a_seed_gives_the_same_bits(settings):
    first, second, other = (
        fit_model(Study.of(pendulum(), settings, key=jax.random.key(seed)), SMALL).model
        for seed in (1, 1, 2)
    )
    assert same(first, second)
    assert not same(first, other)


def test_single_precision_callers_get_single_precision_models():
    with jax.enable_x64(False):
        result = fit_model(Study.of(pendulum(), TrainingSettings(epochs=10)), SMALL)
    assert {leaf.dtype for leaf in leaves(result.model)} == {np.dtype(np.float32)}


def test_several_seeds_train_at_once_and_report_their_spread():
    key = jax.random.key(3)
    result = fit_model(Study.of(pendulum(), TrainingSettings(epochs=10), key=key), SMALL, seeds=3)
    again = fit_model(Study.of(pendulum(), TrainingSettings(epochs=10), key=key), SMALL, seeds=3)
    assert len(result.members) == 3
    assert all(same(a.model, b.model) for a, b in zip(result.members, again.members, strict=True))
    assert not same(result.members[0].model, result.members[1].model)
    assert len({member.trajectories for member in result.members}) == 1, (
        "compared on the same trajectories"
    )
    scores = [member.validation.torque.nmse_mean for member in result.members]
    assert result.spread == {
        "min": min(scores),
        "median": float(np.median(scores)),
        "max": max(scores),
    }
    assert result.validation.torque.nmse_mean == min(scores)


@pytest.mark.parametrize(
    ("joints", "samples", "model", "optimizer", "expected"),
    [
        (2, 1000, "delan", "auto", (16, "lm", "few enough")),
        (3, 1000, "feedforward", "auto", (16, "lm", "few enough")),
        (4, 1000, "delan", "auto", (64, "adam", "too many")),
        (2, 1000, "delan", "adam", (64, "adam", "asked for")),
        (2, 1_000_000, "delan", "auto", (16, "adam", "too many")),
        (7, 1000, "delan", "auto", (64, "adam", "too many")),
        (7, 1000, LagrangianNetworkSettings(width=8), "auto", (8, "lm", "few enough")),
        (7, 1000, LagrangianNetworkSettings(width=8), "lm", (8, "lm", "asked for")),
    ],
)
def test_the_choice_of_method_is_reported(joints, samples, model, optimizer, expected):
    zeros = np.zeros((samples, joints))
    columns = dict.fromkeys(("q", "qd", "qdd", "tau"), zeros)
    data = replace(
        pendulum(),
        t=np.arange(samples) * 1.0,
        trajectory=np.zeros(samples, int),
        truth={},
        joints=Joints.revolute(joints),
        **columns,
    )
    chosen = plan(model, data, TrainingSettings(optimizer=optimizer))
    assert isinstance(chosen.network, LagrangianNetworkSettings | FeedForwardSettings)
    assert (chosen.network.width, chosen.optimizer) == expected[:2]
    assert expected[2] in chosen.reason


def test_little_time_is_spent_on_the_quick_method():
    chosen = plan("delan", pendulum(), TrainingSettings(seconds=5.0))
    assert isinstance(chosen.network, LagrangianNetworkSettings)
    assert (chosen.network.width, chosen.optimizer) == (64, "adam")
    assert "5 s are too few for the second-order method" in chosen.reason


def test_a_fit_that_diverges_steps_back_and_says_so(monkeypatch):
    """Weights turn to NaN at the third advance and the loss explodes at the fifth; the fit ends
    well all the same.
    """
    advance, calls, rates_seen = adam.run_epochs, [], []

    def troubled(state, training_set, validation, rates, key):
        calls.append(key)
        rates_seen.append(float(rates[0]))
        state, report = advance(state, training_set, validation, rates, key)
        if len(calls) == 3:
            state = eqx.tree_at(
                lambda s: s.model.mechanics.gravity.weight, state, replace_fn=lambda w: w * jnp.nan
            )
            report = eqx.tree_at(lambda r: r.training, report, replace_fn=lambda x: x * jnp.nan)
        if len(calls) == 5:
            report = eqx.tree_at(lambda r: r.validation, report, replace_fn=lambda x: x * 1e4)
        return state, report

    monkeypatch.setattr(adam, "run_epochs", troubled)
    settings = replace(
        ADAM, epochs=400, descent=adam.DescentSettings(learning_rate=2e-2, warm_up=0.0)
    )
    result = fit_model(Study.of(pendulum(), settings), SMALL)
    first, second = result.events
    assert (
        first == "Adam, epoch 30: the loss became non-finite; "
        "went back to the best weights with a smaller step"
    )
    assert "Adam, epoch 50: the loss rose to" in second
    assert rates_seen[3] < 0.55 * rates_seen[2]
    assert rates_seen[5] < 0.55 * rates_seen[4]
    assert all(np.isfinite(leaf).all() for leaf in leaves(result.model))
    assert result.validation.torque.nmse_mean < 0.5


def test_a_fit_gives_up_after_the_allowed_steps_back():
    wild = replace(ADAM, retreats=1, descent=adam.DescentSettings(learning_rate=1e80, warm_up=0.0))
    with pytest.raises(
        DataError, match=r"no fit reached a finite loss .*gave up.*look for huge or wrong values"
    ):
        fit_model(Study.of(pendulum(), wild), LagrangianNetworkSettings(width=8, activation="relu"))


def stop_after(advances: int) -> tuple[threading.Event, Callable[[training.Progress], None]]:
    """A stop that is set after so many reports of progress."""
    event, seen = threading.Event(), []

    def watch(progress: training.Progress) -> None:
        seen.append(progress)
        if len(seen) == advances:
            event.set()

    return event, watch


@pytest.mark.parametrize("settings", [ADAM, TrainingSettings(epochs=15)], ids=["adam", "lm"])
@pytest.mark.parametrize("advances", [3, 14])
def test_a_resumed_fit_ends_as_an_unbroken_one(settings, advances, tmp_path):
    """Also when it was stopped before the first regular checkpoint: a stop keeps one of its own."""
    path = tmp_path / "fit.checkpoint"
    unbroken = fit_model(Study.of(pendulum(), settings), SMALL)
    event, watch = stop_after(advances)
    stopped = fit_model(
        Study.of(pendulum(), settings, stop=event, watch=watch),
        SMALL,
        TrainingStart(checkpoint=path),
    )
    assert stopped.interrupted
    assert path.exists()
    resumed = fit_model(
        Study.of(pendulum(), settings), SMALL, TrainingStart(checkpoint=path, resume=True)
    )
    assert not resumed.interrupted
    assert not path.exists()
    assert same(resumed.model, unbroken.model)
    assert len(resumed.history) == len(unbroken.history)
    assert not same(stopped.model, unbroken.model)


def test_several_seeds_begin_where_they_are_told():
    learned = fit_model(Study.of(pendulum(), TrainingSettings(epochs=40)), SMALL)
    went_on = fit_model(
        Study.of(pendulum(), TrainingSettings(epochs=2)),
        SMALL,
        TrainingStart(model=learned.model),
        seeds=2,
    )
    assert went_on.spread["max"] < 10 * learned.validation.torque.nmse_mean
    assert (
        fit_model(
            Study.of(pendulum(), TrainingSettings(epochs=2)), SMALL
        ).validation.torque.nmse_mean
        > 10 * went_on.spread["max"]
    )


def test_a_checkpoint_of_another_fit_is_refused(tmp_path):
    path = tmp_path / "fit.checkpoint"
    event, watch = stop_after(3)
    stopped = fit_model(
        Study.of(pendulum(), ADAM, stop=event, watch=watch), SMALL, TrainingStart(checkpoint=path)
    )
    data = pendulum()
    again = TrainingStart(checkpoint=path, resume=True)
    for study, start in (
        (Study.of(data, ADAM, key=jax.random.key(5)), again),
        (Study.of(data, ADAM), replace(again, model=stopped.model)),
        (Study.of(replace(data, t=2 * data.t), ADAM), again),
    ):
        with pytest.raises(ModelFileError, match="made with other data, settings or seed"):
            fit_model(study, SMALL, start)


@pytest.mark.parametrize(
    ("header", "message"),
    [
        ({}, r"is damaged \('run'\); remove it to start anew"),
        (
            {"run": {"color": 1}, "history": []},
            r"is damaged \(.*'color'\); remove it to start anew",
        ),
        (
            {"run": {"stage": 7}, "history": []},
            r"is damaged \(tuple index out of range\); remove it to start anew",
        ),
        (
            {"run": {}, "history": [{"stage": "lm"}]},
            r"is damaged \(.*missing .*'epoch'.*\); remove it",
        ),
    ],
)
def test_a_damaged_checkpoint_is_said_and_a_missing_one_begins_anew(header, message, tmp_path):
    path, fresh = tmp_path / "fit.checkpoint", training.Run(best_model=None)
    checkpoint = training.Checkpoint(path, "mine", resume=True)
    training._keep(checkpoint, fresh)  # nothing is learned yet: nothing is kept
    assert training._restore(checkpoint, (), fresh) == (fresh, None)
    storage.write_arrays(path, {}, training.CHECKPOINT, {"fingerprint": "mine", **header})
    with pytest.raises(ModelFileError, match=message):
        training._restore(checkpoint, (), fresh)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"damping": 0.0}, "damping must be positive and finite, got 0.0"),
        ({"trials": 0}, "trials must be at least 1, got 0"),
    ],
)
def test_a_second_order_method_that_cannot_be_is_refused(settings, message):
    with pytest.raises(SettingsError, match=message):
        MarquardtSettings(**settings)


def test_ctrl_c_keeps_the_best_model():
    def interrupt(progress: training.Progress) -> None:
        if progress.row.epoch >= 9:
            raise KeyboardInterrupt

    result = fit_model(Study.of(pendulum(), ADAM, watch=interrupt), SMALL)
    assert result.interrupted
    assert result.history
    data = pendulum()
    others = [label for label in data.trajectories if label not in result.trajectories]
    best = min(row.validation for row in result.history)
    assert result.validation.torque.mse[0] / data.select(others).tau.var() == pytest.approx(best)


def test_seconds_bound_the_training():
    """The clock decides how many epochs there are; the learning rate is spent by the end."""
    result = fit_model(Study.of(pendulum(), TrainingSettings(optimizer="adam", seconds=3.0)), SMALL)
    assert result.history
    assert result.seconds < 30  # generous: compilation on a busy machine


def test_weight_decay_shrinks_the_weights():
    def norm(decay: float) -> float:
        settings = TrainingSettings(epochs=30, objective=Objective(weight_decay=decay))
        model = fit_model(Study.of(pendulum(), settings), SMALL).model.mechanics
        assert isinstance(model, LagrangianNetwork)
        return float(
            sum(
                np.sum(np.asarray(layer.weight) ** 2)
                for layer in (*model.trunk.layers, model.diagonal, model.gravity)
            )
        )

    assert norm(1e-2) < 0.5 * norm(0.0)


def test_a_public_pair_for_online_learners():
    """`init` and `update` alone lower the loss on a stream of minibatches."""
    data = pendulum()
    objective = Objective()
    model = LagrangianNetwork(data.joints, SMALL, Normalisation.of(data), key=jax.random.key(0))
    state = adam.init(model, Scale.of(data, objective), objective)
    rng = np.random.default_rng(0)
    losses = []
    for _ in range(200):
        state, loss = adam.update(state, Samples.of(data.rows(rng.choice(len(data), 32))))
        losses.append(float(loss))
    assert np.mean(losses[-10:]) < 0.1 * np.mean(losses[:10])


def test_provenance_is_plain_json():
    result = fit_model(Study.of(pendulum(), TrainingSettings(epochs=3)), SMALL)
    shown = json.loads(json.dumps(result.provenance(), allow_nan=False))
    assert shown["fit"]["optimizer"] == "lm"
    assert shown["scores"]["validation"]["torque"]["mse"][0] == pytest.approx(
        result.validation.torque.mse[0]
    )


@pytest.mark.usefixtures("as_shipped")
@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"optimizer": "sgd"}, "unknown optimizer 'sgd'; known: auto, adam, lm"),
        ({"accelerations": "some"}, "unknown accelerations 'some'; known: given, none"),
        ({"epochs": 0}, "epochs must be at least 1, got 0"),
        ({"seconds": 0.0}, "seconds must be positive and finite, got 0.0"),
        ({"validation": 1.0}, "validation is a share of the trajectories between 0 and 1, got 1.0"),
        ({"patience": 0.0}, r"patience is a share of the budget in \(0, 1\], got 0.0"),
        ({"retreats": -1}, "retreats must be at least 0, got -1"),
    ],
)
def test_bad_settings_are_refused(settings, message):
    with pytest.raises(SettingsError, match=message):
        TrainingSettings(**settings)


@pytest.mark.usefixtures("as_shipped")
@pytest.mark.parametrize(
    ("make", "error", "message"),
    [
        (
            lambda: fit_model(Study.of(pendulum()), TrainingSettings()),  # pyright: ignore
            SettingsError,
            "got TrainingSettings; what steers the training goes into settings=",
        ),
        (
            lambda: Study.of(pendulum(), {"epochs": 3}),  # pyright: ignore
            SettingsError,
            "settings must be delan.TrainingSettings, got dict",
        ),
        (
            lambda: Study.of("arm.npz"),  # pyright: ignore
            DataError,
            "expected a Dataset, got a str; use delan.prepare",
        ),
        (
            lambda: Study.of(pendulum(), friction="atuo"),  # pyright: ignore
            SettingsError,
            "friction is 'auto', None or delan.FrictionSettings, got 'atuo'",
        ),
        (
            lambda: fit_model(Study.of(pendulum()), SMALL, seeds=0),
            SettingsError,
            "seeds must be at least 1, got 0",
        ),
        (
            lambda: TrainingStart(resume=True),
            SettingsError,
            "resume needs the path of a checkpoint",
        ),
        (
            lambda: fit_model(
                Study.of(pendulum()), SMALL, TrainingStart(checkpoint=Path("x")), seeds=2
            ),
            SettingsError,
            "a checkpoint holds one training, and 2 were asked for",
        ),
        (lambda: TrainingStart(anchor=0.1), SettingsError, "anchor=0.1 and model=None"),
        (lambda: TrainingStart(anchor=-1.0), SettingsError, "anchor=-1.0 and model=None"),
    ],
)
def test_bad_arguments_are_refused(make, error, message):
    with pytest.raises(error, match=message):
        make()


@pytest.mark.usefixtures("as_shipped")
@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: adam.DescentSettings(batch=0), "a minibatch needs at least 1 sample, got batch=0"),
        (
            lambda: adam.DescentSettings(warm_up=1.0),
            r"warm_up is a share of the run in \[0, 1\), got 1.0",
        ),
        (lambda: adam.DescentSettings(clip=0.0), "clip must be positive and finite, got 0.0"),
        (
            lambda: LagrangianNetworkSettings(width=0),
            "width and depth must be at least 1, got width=0 and depth=2",
        ),
        (
            lambda: LagrangianNetworkSettings(offset=0.0),
            "offset of the diagonal must be positive and finite, got 0.0",
        ),
        (
            lambda: LagrangianNetworkSettings(activation=WRONG),
            "unknown activation 'wrong'; known: tanh, softplus",
        ),
        (
            lambda: LagrangianNetworkSettings(gravity=WRONG),
            "unknown gravity 'wrong'; known: potential, vector",
        ),
        (
            lambda: FeedForwardSettings(depth=0),
            "width and depth must be at least 1, got width=64 and depth=0",
        ),
        (lambda: FeedForwardSettings(activation=WRONG), "unknown activation 'wrong'"),
    ],
)
def test_bad_shapes_and_steps_are_refused(make, message):
    with pytest.raises(SettingsError, match=message):
        make()


def test_the_schedule_warms_up_and_ends_at_nothing():
    settings = adam.DescentSettings(learning_rate=1.0, warm_up=0.1)
    rates = [settings.schedule(share) for share in np.linspace(0, 1, 101)]
    assert 0 < rates[0] < 0.02
    assert max(rates) > 0.95
    assert np.argmax(rates) == 10
    assert rates[-1] == pytest.approx(0, abs=1e-12)
    assert settings.schedule(1.5) == pytest.approx(0, abs=1e-12)


def squares_of(model, sample, torque):
    return jnp.sum((torque - sample.tau) ** 2)


def test_a_fit_by_a_loss_of_ones_own_learns_and_is_stored_by_name(tmp_path):
    settings = replace(ADAM, epochs=300, objective=Objective(loss=squares_of))
    result = fit_model(Study.of(pendulum(), settings), "delan")
    assert result.optimizer == "adam"
    assert result.validation.torque.nmse_mean < 0.05
    path = tmp_path / "own.delan"
    storage.save(result.model, path, provenance=result.provenance())
    stored = storage.read_header(path)["fit"]["settings"]["objective"]["loss"]
    assert stored == "squares_of"


@pytest.mark.parametrize(
    ("model", "optimizer", "message"),
    [("chain", "auto", "for networks"), ("delan", "lm", "optimizer='adam'")],
)
def test_a_loss_of_ones_own_needs_a_method_that_takes_it(model, optimizer, message):
    settings = TrainingSettings(optimizer=optimizer, objective=Objective(loss=squares_of))
    with pytest.raises(SettingsError, match=message):
        plan(model, pendulum(), settings)


def test_the_preset_of_the_paper_is_the_paper_and_can_be_changed():
    given = TrainingSettings(epochs=7, objective=Objective(weight_decay=1e-2))
    settings = PAPER.trained(given)
    assert (settings.epochs, settings.optimizer) == (7, "adam")
    assert settings.objective == Objective("squared", weight_decay=1e-2, decayed="all")
    assert settings.descent == PAPER.training.descent
    assert PAPER.trained(TrainingSettings()) == PAPER.training
    network = PAPER.network
    assert (network.activation, network.inputs, network.gravity) == ("relu", "raw", "vector")


def test_the_network_of_the_paper_learns_a_pendulum():
    descent = adam.DescentSettings(learning_rate=5e-3)
    settings = PAPER.trained(TrainingSettings(epochs=1000, descent=descent))
    result = fit_model(Study.of(pendulum(), settings), PAPER.network)
    assert not result.model.promises.energy
    assert evaluate(result.model, pendulum(seed=9)).torque.nmse_mean < 0.02
    with pytest.raises(SettingsError, match="gravity='potential'"):
        plan(PAPER.network, pendulum(), replace(settings, accelerations="none"))


def test_a_network_learns_a_five_bar_in_the_coordinates_of_its_motors():
    robot = FiveBar()
    settings = TrainingSettings(epochs=40)
    study = Study.of(driven(robot, range(3), samples=600), settings, key=jax.random.key(0))
    model = fit_model(study, LagrangianNetworkSettings(width=16)).model
    assert evaluate(model, driven(robot, [7], samples=200)).torque.nmse_mean < 1e-3
