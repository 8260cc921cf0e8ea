"""The gate before a robot: a sound model passes, and each way to be unsound is refused for its own
reason.
"""

import json
import re
from dataclasses import replace
from functools import cache
from pathlib import Path

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from typer.testing import CliRunner

from delan import storage
from delan.cli.main import app
from delan.deploy.certificate import CHECKS, Certificate, unseen_motion
from delan.deploy.compiler import find_compiler
from delan.deploy.gate import GateSettings, _Examiner, examine
from delan.deploy.workspace import Workspace, limits_of_urdf, read_limits
from delan.errors import SettingsError
from delan.joints import Dataset, Joints, Recording
from delan.learning.uncertainty import calibrated, domain_of
from delan.logs.excerpts import share_known, sketch
from delan.logs.reading import read_log
from delan.models.friction import Friction
from delan.models.geometry import from_rigid_body
from delan.models.model import Model
from delan.models.networks import (
    FeedForwardNetwork,
    FeedForwardSettings,
    LagrangianNetwork,
    LagrangianNetworkSettings,
)
from delan.models.rigid_body import RigidBody
from delan.models.trust import Sketch, Trust
from delan.motions.cosines import cosines
from delan.robots.arms import TWO_LINK
from tests.support.members import trust_in
from tests.support.simulated_logs import recorded

pytestmark = pytest.mark.skipif(find_compiler() is None, reason="there is no C compiler here")

FRICTION = Friction.known(
    TWO_LINK.joints,
    {"viscous": np.array([0.4, 0.1]), "stribeck": np.array([0.6, 0.2])},
    stribeck_speed=0.01,
)
FEW = GateSettings(states=500, ascents=3)


@cache
def motions(*seeds: int) -> Dataset:
    """What the arm did, with noise on its torques."""
    arm = RigidBody.from_urdf(TWO_LINK.urdf(), friction=FRICTION)
    paths = [cosines(TWO_LINK.limits, key=jax.random.key(seed)).sample(0.05) for seed in seeds]
    t, q, qd, qdd = (
        np.concatenate([getattr(path, name) for path in paths]) for name in ("t", "q", "qd", "qdd")
    )
    labels = np.repeat(np.array(seeds), [len(path.t) for path in paths])
    tau = arm.rows(q, qd, qdd).total + np.random.default_rng(0).normal(0, 0.02, q.shape)
    return Dataset(
        t=t, q=q, qd=qd, qdd=qdd, tau=tau, trajectory=labels, joints=arm.joints, source="cosines"
    )


@cache
def known() -> Model:
    """The arm itself as a model."""
    return Model(
        from_rigid_body(RigidBody.from_urdf(TWO_LINK.urdf())), jax.tree.map(jnp.asarray, FRICTION)
    )


def with_trust(model: Model) -> Model:
    members = jax.tree.map(lambda leaf: jnp.stack([leaf, leaf * 1.001, leaf * 0.999]), model)
    domain = domain_of(motions(*range(6)), motions(*range(6, 10)))
    unit = jnp.ones(model.joints.dof)
    draft = model.with_trust(Trust(members, unit, unit, domain))
    return calibrated(draft, motions(*range(6, 10)))


@cache
def sound() -> Model:
    return with_trust(known())


def answers(certificate: Certificate) -> set[str]:
    """The checks that were not passed."""
    return {check.name for check in certificate.checks if not check.passed}


def test_a_sound_model_passes():
    found = examine(sound(), TWO_LINK.limits, motions(20, 21), FEW)
    assert answers(found) == set()
    assert found.passed
    assert found.verdict == f"passed all {len(found.checks)} checks"
    assert len(found.checks) == 14


def changed(column: str, values) -> Model:
    """The sound model with other friction."""
    row = FRICTION.columns.index(column)
    model = eqx.tree_at(
        lambda item: item.friction.weights.value,
        known(),
        replace_fn=lambda w: w.at[row].set(jnp.asarray(values)),
    )
    return model.with_trust(sound().trust)


def test_friction_that_drives_is_refused():
    found = examine(changed("viscous", [-0.2, 0.1]), TWO_LINK.limits, motions(20, 21), FEW)
    assert "friction takes energy" in answers(found)
    assert re.search(
        r"gives [0-9.]+ W", next(c.found for c in found.checks if c.name == "friction takes energy")
    )


def test_a_simulator_that_drifts_is_refused():
    settings = replace(FEW, simulate=True)
    sound_one = _Examiner(sound(), TWO_LINK.limits, motions(20, 21), settings).drift()
    assert sound_one.passed
    assert sound_one.name == "replay"
    # A brake that the robot does not have.
    stuck = changed("viscous", [40.0, 20.0])
    assert not _Examiner(stuck, TWO_LINK.limits, motions(20, 21), settings).drift().passed


def test_a_spike_where_nothing_was_measured_is_refused():
    limits = TWO_LINK.limits
    found = examine(changed("stribeck", 20 * limits.torque), limits, motions(20, 21), FEW)
    assert "torque outside of the data" in answers(found)
    assert "friction takes energy" not in answers(found)
    assert "gravity torque" not in answers(found)


def test_an_arm_with_hardly_any_inertia_is_refused():
    light = from_rigid_body(RigidBody.from_urdf(_lighter(TWO_LINK.urdf(), 1e-8)))
    weightless = Model(light, known().friction, trust=sound().trust)
    assert "inertia" in answers(examine(weightless, TWO_LINK.limits, motions(20, 21), FEW))


def _lighter(urdf: str, share: float) -> str:
    """The URDF with the inertia of its last link taken down."""
    head, last = urdf.rsplit("<inertial>", 1)
    return (
        head
        + "<inertial>"
        + re.sub(
            r'(mass value|ixx|ixy|ixz|iyy|iyz|izz)="([^"]+)"',
            lambda m: f'{m[1]}="{share * float(m[2])!r}"',
            last,
        )
    )


def test_a_robot_that_cannot_hold_itself_is_refused():
    weak = replace(TWO_LINK.limits, torque=0.05 * TWO_LINK.limits.torque)
    assert {"gravity torque", "torque of the log's motion"} <= answers(
        examine(sound(), weak, motions(20, 21), FEW)
    )


def test_a_band_that_is_too_narrow_and_a_strange_log_are_refused():
    trust = trust_in(sound())
    narrow = sound().with_trust(replace(trust, band=trust.band / 10))
    assert answers(examine(narrow, TWO_LINK.limits, motions(20, 21), FEW)) == {"band"}
    item = motions(20, 21)
    elsewhere = replace(
        item,
        q=item.q + 2.5,
        tau=RigidBody.from_urdf(TWO_LINK.urdf(), friction=FRICTION)
        .rows(item.q + 2.5, item.qd, item.qdd)
        .total,
    )
    assert answers(examine(sound(), TWO_LINK.limits, elsewhere, FEW)) == {"domain"}


def test_what_promises_no_mechanics_is_refused():
    network = FeedForwardNetwork(
        TWO_LINK.joints, FeedForwardSettings(width=8), key=jax.random.key(0)
    )
    found = examine(network, TWO_LINK.limits, motions(20, 21), FEW)
    assert {"mechanics", "band", "domain", "workspace", "error on the log"} <= answers(found)


def test_ascent_finds_what_random_states_miss():
    """A bump as narrow as a thousandth of the box, with a slope that leads there."""
    space = Workspace.of(TWO_LINK.limits, motions(20, 21), states=50, ascents=3, seed=0)
    top = jnp.asarray(space.centre[:2] + 0.3 * space.reach[:2])
    found = space.worst(lambda _, q, qd, qdd, top: 1 / (1e-3 + jnp.sum((q - top) ** 2)), None, top)
    assert found.value == pytest.approx(1000, rel=1e-3)
    np.testing.assert_allclose(found.at[:2], top, atol=1e-3)
    assert np.isnan(space.worst(lambda _, q, qd, qdd: jnp.sqrt(q[0]), None).value)
    edge = space.centre[0] + 0.999 * space.reach[0]
    assert (space.states[:, 0] < edge).all()
    assert np.isnan(
        space.worst(lambda _, q, qd, qdd: -jnp.log(edge - q[0]), None).value
    )  # where ascent leads


def test_without_energies_or_code_a_model_is_refused(monkeypatch):
    settings = LagrangianNetworkSettings(width=8, depth=1, gravity="vector")
    network = LagrangianNetwork(TWO_LINK.joints, settings, key=jax.random.key(0))
    examiner = _Examiner(Model(network), TWO_LINK.limits, motions(20, 21), FEW)
    energy = examiner.workspace.energy()
    assert not energy.passed
    assert "potential" in energy.found
    monkeypatch.setattr("delan.deploy.compiler.find_compiler", lambda: None)
    code = examiner.code()
    assert not code.passed
    assert "install gcc or clang" in code.found


# Limits


def test_limits_come_from_a_file_or_from_a_urdf(tmp_path):
    path = tmp_path / "limits.toml"
    path.write_text("torque = [10, 5.5]\nlower = -2\n")
    limits = read_limits(path, Joints.revolute(2))
    np.testing.assert_array_equal(limits.torque, [10, 5.5])
    np.testing.assert_array_equal(limits.lower, [-2, -2])
    assert np.isposinf(limits.upper).all()
    assert np.isposinf(limits.velocity).all()
    urdf = tmp_path / "arm.urdf"
    urdf.write_text(TWO_LINK.urdf())
    names = TWO_LINK.joints.names
    turned = limits_of_urdf(urdf, Joints(names[::-1], ("revolute",) * 2))
    np.testing.assert_allclose(turned.torque, TWO_LINK.limits.torque[::-1])
    np.testing.assert_allclose(
        limits_of_urdf(urdf, Joints.revolute(2)).torque, TWO_LINK.limits.torque
    )
    with pytest.raises(
        SettingsError, match=r"has 2 joints and the model 3, under other names; give --limits"
    ):
        limits_of_urdf(urdf, Joints.revolute(3))
    with pytest.raises(
        SettingsError,
        match=r"none\.toml: cannot be read: No such file or directory; check the path; limits",
    ):
        read_limits(tmp_path / "none.toml", Joints.revolute(2))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("torque = [1, 2, 3]", "one number or a list of 2"),
        ("torque = 'much'", "one number or a list of 2"),
        ("lower = -1", "every joint needs a torque limit"),
        ("torque = 0", "every joint needs a torque limit"),
        ("torque = 1\nlower = 2\nupper = 1", "needs lower ≤ upper"),
        ("torqe = 1", "unknown limit 'torqe'"),
        ("torque = ", "is no TOML"),
        ("torque = 1" + "0" * 400, "an integer that no float can hold"),
        ("torque = 1" + "0" * 5000, "is no TOML"),
    ],
)
def test_wrong_limits_are_refused(text, message, tmp_path):
    (tmp_path / "limits.toml").write_text(text)
    with pytest.raises(SettingsError, match=re.escape(message)):
        read_limits(tmp_path / "limits.toml", Joints.revolute(2))


def test_wrong_settings_are_refused():
    with pytest.raises(SettingsError, match=r"error must be positive and finite, got -1\.0"):
        GateSettings(error=-1.0)


# The command


@pytest.fixture(scope="module")
def files(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("gate")
    provenance = {"log": "train.npz", "sketch": sketch(motions(*range(6)))}
    storage.save(sound(), folder / "arm.delan", provenance=provenance)
    item = motions(20, 21)
    columns = {name: getattr(item, name) for name in ("t", "q", "qd", "qdd", "tau", "trajectory")}
    np.savez(folder / "log.npz", **columns)
    torque = TWO_LINK.limits.torque.tolist()
    (folder / "limits.toml").write_text(f"torque = {torque}\nlower = -3.1\nupper = 3.1\n")
    return folder


def ran(*arguments):
    return CliRunner().invoke(app, [str(item) for item in arguments])


def test_every_check_says_what_to_do():
    network = FeedForwardNetwork(
        TWO_LINK.joints, FeedForwardSettings(width=8), key=jax.random.key(0)
    )
    settings = replace(FEW, simulate=True)
    found = (
        examine(item, TWO_LINK.limits, motions(20, 21), settings) for item in (sound(), network)
    )
    result = {check.name: check.cure for certificate in found for check in certificate.checks}
    result["unseen motion"] = unseen_motion(1.0).cure
    assert result.keys() == CHECKS.keys()
    assert all(result.values())


def test_the_code_of_a_refused_model_does_not_say_deploy(files, monkeypatch):
    """What the fit found best is no leave to drive."""
    monkeypatch.chdir(files)
    scores = {"test": {"torque": {"nmse": [0.0123, 0.5], "nmse_mean": 0.25, "rmse": [0.1, 0.1]}}}
    said = {"verdict": "Deploy the chain: on the test motion its nMSE is 0.25."}
    known = {"sketch": sketch(motions(*range(6)))}
    provenance = said | known | {"name": "chain", "decision": "doubtful", "scores": scores}
    storage.save(sound(), files / "doubted.delan", provenance=provenance)
    (files / "weak.toml").write_text("torque = 0.5\n")
    assert ran("gate", "doubted.delan", "--log", "log.npz", "--limits", "weak.toml").exit_code == 1
    ran("export", "doubted.delan", "-o", "doubted")
    header = (files / "doubted" / "doubted.h").read_text()
    assert "gate: refused: gravity torque" in header
    assert "Deploy" not in header
    assert "chosen by the fit: chain, with doubts" in header
    assert "torque nMSE per joint on test: 0.012, 0.5" in header


def test_the_command_keeps_a_certificate_that_the_code_carries(files, monkeypatch):
    monkeypatch.chdir(files)
    never = ran("export", "arm.delan", "-o", "before")
    assert "never examined" in never.output
    assert "never examined" in (files / "before" / "arm.h").read_text()
    result = ran("gate", "arm.delan", "--log", "log.npz", "--limits", "limits.toml", "--json")
    payload = json.loads(result.stdout)
    assert result.exit_code == 0
    assert payload["passed"]
    assert payload["trained_on"] == "train.npz"
    assert json.loads((files / "arm.gate.json").read_text())["checksum"] == payload["checksum"]
    ran("export", "arm.delan", "-o", "after")
    assert "gate: passed all 15 checks (log log.npz" in (files / "after" / "arm.h").read_text()


def test_a_model_that_does_not_exist_is_named_before_anything_is_asked_for(files, monkeypatch):
    monkeypatch.chdir(files)
    missing = ran("gate", "none.delan", "--log", "log.npz")
    assert missing.exit_code == 2
    assert "none.delan" in missing.output
    unlimited = ran("gate", "arm.delan", "--log", "log.npz")
    assert unlimited.exit_code == 2
    assert "--limits" in unlimited.output


def test_a_model_is_not_taken_for_a_log(files):
    shown = ran("check", files / "arm.delan")
    assert shown.exit_code == 2
    assert "is a model file, not a log" in shown.output


def test_the_log_it_was_trained_on_is_known_again_by_any_name(files, monkeypatch):
    monkeypatch.chdir(files)
    recording = read_log(files / "log.npz")
    storage.save(
        sound(),
        files / "known.delan",
        provenance={"log": "monday.csv", "sketch": sketch(recording)},
    )
    words = ("--limits", "limits.toml", "--json")
    result = ran("gate", "known.delan", "--log", "log.npz", *words)
    assert result.exit_code == 1
    assert json.loads(result.stdout)["verdict"] == "refused: unseen motion"
    other = replace(recording, q=recording.q + 0.1)
    storage.save(
        sound(), files / "known.delan", provenance={"log": "log.npz", "sketch": sketch(other)}
    )
    assert ran("gate", "known.delan", "--log", "log.npz", *words).exit_code == 0
    storage.save(sound(), files / "known.delan")
    unknown = ran("gate", "known.delan", "--log", "log.npz", *words)
    assert unknown.exit_code == 1
    assert json.loads(unknown.stdout)["verdict"] == "refused: unseen motion"
    assert "does not say what the model learned from" in unknown.stdout


def test_a_model_brings_the_sketch_of_its_log_into_any_file(files, monkeypatch):
    monkeypatch.chdir(files)
    # Of the prepared samples, as a fit to a dataset knows no other.
    known = Sketch.of(sketch(motions(20, 21)))
    trust = sound().trust
    assert trust is not None
    storage.save(sound().with_trust(replace(trust, sketch=known)), files / "first.delan")
    storage.save(storage.load(files / "first.delan"), files / "second.delan")
    words = ("--log", "log.npz", "--limits", "limits.toml", "--json")
    for name in ("first.delan", "second.delan"):
        result = ran("gate", name, *words)
        assert json.loads(result.stdout)["verdict"] == "refused: unseen motion"


def part_of(recording: Recording, rows: slice) -> Recording:
    columns = {name: getattr(recording, name)[rows] for name in ("t", "q", "tau", "trajectory")}
    return replace(recording, **columns, qd=None)


def test_rows_of_a_known_log_are_known_in_any_part_of_it_and_written_in_short():
    recording, other = recorded(TWO_LINK), recorded(TWO_LINK, (7,))
    known = json.loads(json.dumps(sketch(recording)))
    end = len(recording.t)
    for rows in (
        slice(None),
        slice(0, end // 2),
        slice(end // 2, end // 2 + end // 10),
        slice(0, None, 2),
    ):
        assert share_known(known, part_of(recording, rows)) > 0.4
    short = replace(recording, q=recording.q.round(4), tau=recording.tau.round(4))
    assert share_known(known, short) > 0.9
    assert share_known(known, other) == 0.0
    longer = replace(
        other,
        **{
            name: np.concatenate([getattr(item, name) for item in (other, recording)])
            for name in ("t", "q", "tau", "trajectory")
        },
        qd=None,
    )
    assert share_known(known, longer) == pytest.approx(end / len(longer.t), abs=0.05)
    with pytest.raises(ValueError, match="a sketch of 2 joints needs rows of 4 finite numbers"):
        share_known({"rows": 5, "kept": [[1.0]]}, recording)


def test_other_weights_are_not_covered_by_an_old_certificate(files, monkeypatch):
    monkeypatch.chdir(files)
    certificate = {
        "checksum": "of others",
        "verdict": "passed all 13 checks",
        "log": "x",
        "limits": "y",
    }
    storage.save(sound(), files / "other.delan", provenance={})
    (files / "other.gate.json").write_text(json.dumps(certificate))
    words = ("--log", "log.npz", "--limits", "limits.toml")
    for command in (("export", "other.delan", "-o", "other"), ("gate", "other.delan", *words)):
        refused = ran(*command)
        assert refused.exit_code > 0
        assert "other.gate.json beside it is the certificate of another file" in refused.output
    assert not (files / "other").exists()
    (files / "other.gate.json").write_text("{")
    assert "certificate is damaged" in ran("export", "other.delan", "-o", "other").output


def test_a_refused_model_ends_with_another_exit_code_and_the_reason(files, monkeypatch):
    monkeypatch.chdir(files)
    (files / "weak.toml").write_text("torque = 0.5\n")
    result = ran("gate", "arm.delan", "--log", "log.npz", "--limits", "weak.toml")
    assert result.exit_code == 1
    assert "refused: gravity torque" in result.output
    assert "What to do: see that the limits' `torque` is right" in " ".join(result.output.split())
    cures = {
        check["name"]: check.get("cure")
        for check in json.loads((files / "arm.gate.json").read_text())["checks"]
    }
    assert cures["gravity torque"].startswith("see that")
    assert cures["C code"] is None
    unknown = ran("gate", "arm.delan", "--log", "log.npz")
    assert unknown.exit_code == 2
    assert "give --limits" in unknown.output


def test_a_truncated_file_is_refused(files):
    whole = (files / "arm.delan").read_bytes()
    (files / "half.delan").write_bytes(whole[: len(whole) // 2])
    result = ran(
        "gate", files / "half.delan", "--log", files / "log.npz", "--limits", files / "limits.toml"
    )
    assert result.exit_code == 2
    assert "was cut off or damaged" in result.output
    assert not (files / "half.gate.json").exists()
