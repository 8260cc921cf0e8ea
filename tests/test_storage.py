"""Model files: they come back as they were, and what is not one is refused without running
anything.
"""

import dataclasses
import json
import os
import struct
from pathlib import Path

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors.numpy import save_file

from delan import storage
from delan.errors import ModelError, ModelFileError
from delan.joints import Joints
from delan.models.friction import MotorPair
from delan.models.model import Model, as_model
from delan.models.networks import FeedForwardNetwork
from delan.models.rigid_body import RigidBody
from delan.robots.arms import TWO_LINK
from tests.support.members import MIXED, actuated, chain, feed_forward, network

MODELS = {
    "network": lambda: network(
        MIXED, width=5, depth=3, gravity="vector", diagonal="relu", offset=0.25
    ),
    "chain": lambda: chain(MIXED, seed=2),
    "chain, tree": lambda: chain(Joints.revolute(3), parents=(-1, 0, 0)),
    "network, friction with memory and pairs": lambda: actuated(
        MIXED, "viscous", "coulomb", "stops", pairs=(MotorPair(0, 2, -0.5),)
    ),
    "one joint": lambda: network(Joints.revolute(1), width=4),
    "feed-forward": lambda: feed_forward(MIXED),
    "friction and a residual": lambda: dataclasses.replace(
        actuated(MIXED, "viscous", "stops"), residual=feed_forward(MIXED)
    ),
    "chain and a residual": lambda: Model(
        chain(MIXED), residual=FeedForwardNetwork(MIXED, key=jax.random.key(1))
    ),
}


@pytest.mark.parametrize("name", MODELS)
def test_a_model_comes_back_bit_for_bit(name, tmp_path):
    part = MODELS[name]()
    storage.save(part, tmp_path / "m.delan")
    loaded = storage.load(tmp_path / "m.delan")
    model = as_model(part)
    assert loaded.joints == model.joints
    assert jax.tree.structure(loaded) == jax.tree.structure(model)  # settings and joints too
    for a, b in zip(jax.tree.leaves(model), jax.tree.leaves(loaded), strict=True):
        np.testing.assert_array_equal(a, b)
    motion = jnp.ones((3, model.joints.dof))
    torque = eqx.filter_jit(lambda item: item.inverse_dynamics(*motion))
    np.testing.assert_array_equal(torque(model), torque(loaded))


TORQUE = {"nmse": [0.1, None, 0.3], "rmse": [1.0, 2.0, 3.0], "nmse_mean": 0.2}


def test_the_header_tells_what_the_model_is(tmp_path):
    storage.save(
        MODELS["network"](),
        tmp_path / "m.delan",
        provenance={"scores": {"test": {"torque": TORQUE}}, "seed": [0, 7]},
    )
    header = storage.read_header(tmp_path / "m.delan")
    assert header["kind"] == "lagrangian_network"
    assert header["architecture"]["gravity"] == "vector"
    assert header["joints"] == {"names": list(MIXED.names), "kinds": list(MIXED.kinds)}
    assert header["units"]["tau"] == "N m or N"
    assert len(header["normalisation"]["tau_std"]) == 3
    assert header["scores"] == {"test": {"torque": TORQUE}}
    assert header["seed"] == [0, 7]
    assert set(header["versions"]) == {"delan", "jax", "equinox"}


def test_models_without_a_file_form_are_refused(tmp_path):
    with pytest.raises(ModelError, match="a RigidBody has no weights that can be learned"):
        storage.save(RigidBody.from_urdf(TWO_LINK.urdf()), tmp_path / "m.delan")
    assert not list(tmp_path.iterdir())


def saved(folder: Path) -> Path:
    storage.save(MODELS["network"](), folder / "m.delan")
    return folder / "m.delan"


def with_header(path: Path, edit) -> None:
    """Rewrite the JSON header of a model file."""
    content = path.read_bytes()
    size = struct.unpack("<Q", content[:8])[0]
    outer = json.loads(content[8 : 8 + size])
    inner = json.loads(outer["__metadata__"]["delan"])
    edit(inner)
    outer["__metadata__"]["delan"] = json.dumps(inner)
    head = json.dumps(outer).encode()
    path.write_bytes(struct.pack("<Q", len(head)) + head + content[8 + size :])


@pytest.mark.parametrize(
    ("edit", "message"),
    [
        (
            lambda h: h.update(format_version=1),
            "its format version is 1, this delan reads 2; write it anew",
        ),
        (
            lambda h: h.update(format="delan-checkpoint"),
            "expected a delan-model file, found 'delan-checkpoint'",
        ),
        (
            lambda h: h.update(kind="pickle"),
            r"its header is damaged \(kind is 'pickle'; expected one of lagrangian_chain",
        ),
        (lambda h: h.pop("architecture"), r"damaged \(architecture is missing; expected"),
        (
            lambda h: h["architecture"].update(color="red"),
            r"its header is damaged \(architecture has an unknown field color",
        ),
        (
            lambda h: h["architecture"].update(width=-3),
            r"its header is damaged \(width and depth must be at least 1",
        ),
        (lambda h: h["architecture"].update(width=10**9), "asks for an impossibly large network"),
        (
            lambda h: h["architecture"].update(width=6),
            r"mechanics.trunk.layers.0.weight of shape \(6, 5\), found one of shape \(5, 5\)",
        ),
        (lambda h: h["joints"].update(kinds=["revolute"]), "got 3 joint names and 1 joint kinds"),
    ],
)
@pytest.mark.usefixtures("as_shipped")
def test_a_wrong_header_is_refused(edit, message, tmp_path):
    path = saved(tmp_path)
    with_header(path, edit)
    with pytest.raises(ModelFileError, match=message):
        storage.load(path)


def crafted(path: Path, edit) -> Path:
    """Rewrite header and arrays of a model file with a checksum that matches them."""
    arrays, header = storage.read_arrays(path, storage.FORMAT)
    edit(header, arrays)
    storage.write_arrays(path, arrays, storage.FORMAT, header)
    return path


@pytest.mark.parametrize(
    ("edit", "message"),
    [
        (
            lambda h: h["architecture"].update(width=True),
            "architecture.width is True; expected int",
        ),
        (
            lambda h: h["architecture"].update(width=5.0),
            r"architecture.width is 5\.0; expected int",
        ),
        (lambda h: h["architecture"].update(offset=1e31), "architecture.offset is 1e.31; expected"),
        (lambda h: h["architecture"].update(offset=True), "architecture.offset is True; expected"),
        (lambda h: h["architecture"].update(offset=1e-46), "offset of the diagonal must be posit"),
        (lambda h: h.update(friction={"radii": [1e-46]}), "radii is a tuple of different numbers"),
        (lambda h: h.update(scores={"test": 1.0}), "scores.test is 1.0; expected an object"),
        (lambda h: h.update(scores={"test": {"torque": {"nmse": [1]}}}), "nmse has 1 entries; exp"),
        (lambda h: h.update(versions=[1]), "versions is a list of 1; expected an object"),
        (lambda h: h.update(fit="fast"), "fit is 'fast'; expected an object"),
        (
            lambda h: h.update(fit={"samples": 1e3}),
            "fit.samples is 1000.0; expected a whole number",
        ),
        (lambda h: h.update(log="a\x1b[2Jb"), r"log is .*x1b\[2Jb'; expected printable text"),
        (lambda h: h.update(note="\ud800"), "note is .*; expected printable text"),
        (lambda h: h.update(sketch=[3]), "sketch is a list of 1; expected an object"),
        (lambda h: h.update(sketch={"rows": 9, "kept": [[1.0]]}), "sketch.kept has 1 entries; exp"),
        (lambda h: h.update(trust={"level": 0.9, "members": 2.5, "states": 1}), "trust.members is"),
        (lambda h: h.update(note=[[[[[[[[[[[[[[1]]]]]]]]]]]]]]), "more than 12 levels deep"),
        (lambda h: h.update(seed="one"), "seed is 'one'; expected whole numbers"),
        (lambda h: h["joints"].update(names=["a", "b\n", "c"]), "expected printable text"),
    ],
)
@pytest.mark.usefixtures("as_shipped")
def test_a_crafted_header_is_refused_by_its_field(edit, message, tmp_path):
    path = crafted(saved(tmp_path), lambda header, arrays: edit(header))
    for read in (storage.load, storage.read_header):
        with pytest.raises(ModelFileError, match=message):
            read(path)


def test_json_without_an_end_to_its_depth_is_refused(tmp_path):
    path = saved(tmp_path)
    with_header(path, lambda header: header.update(note=0))
    content = path.read_bytes()
    size = struct.unpack("<Q", content[:8])[0]
    head = content[8 : 8 + size].replace(b'\\"note\\": 0', b'\\"note\\": ' + b"[" * 5000)
    path.write_bytes(struct.pack("<Q", len(head)) + head + content[8 + size :])
    with pytest.raises(ModelFileError, match="was cut off or damaged"):
        storage.load(path)


def test_a_type_of_numbers_that_numpy_does_not_have_is_refused(tmp_path):
    path = saved(tmp_path)
    content = path.read_bytes()
    path.write_bytes(content.replace(b'"F64","shape":[3,5]', b'"F8_E5M2","shape":[3,40]', 1))
    size = struct.unpack("<Q", content[:8])[0]
    content = path.read_bytes()
    path.write_bytes(struct.pack("<Q", size + 5 + 1) + content[8:])
    with pytest.raises(ModelFileError):
        storage.load(path)


def test_the_checksum_covers_the_header(tmp_path):
    path = saved(tmp_path)
    with_header(path, lambda header: header["architecture"].update(activation="tanh"))
    with pytest.raises(ModelFileError, match="its header or its numbers do not match"):
        storage.load(path)


def test_numbers_that_make_no_model_are_refused(tmp_path):
    storage.save(MODELS["chain"](), tmp_path / "chain")
    path = crafted(tmp_path / "chain", lambda _, a: a["mechanics.turn"].fill(1.0))
    with pytest.raises(ModelFileError, match="the frame of joint joint1 is singular"):
        storage.load(path)
    storage.save(MODELS["chain"](), tmp_path / "chain")
    path = crafted(tmp_path / "chain", lambda _, a: a["mechanics.log_armature"].fill(1e3))
    with pytest.raises(ModelFileError, match="the rotor of joint joint0 has an inertia beyond"):
        storage.load(path)
    storage.save(MODELS["network"](), tmp_path / "network")
    path = crafted(tmp_path / "network", lambda _, a: a["mechanics.normalisation.qd_std"].fill(0))
    with pytest.raises(ModelFileError, match="the spread qd_std of its normalisation is not pos"):
        storage.load(path)
    storage.save(MODELS["network"](), tmp_path / "network")
    path = crafted(tmp_path / "network", lambda _, a: a.update(other=np.zeros(3)))
    with pytest.raises(ModelFileError, match="holds an array other that its model does not have"):
        storage.load(path)


def test_odd_characters_and_numbers_of_a_history_do_not_cost_the_model(tmp_path):
    provenance = {"log": "a\x1b[2J.csv", "models": {"chain": {"nmse": (float("nan"), 1.0)}}}
    storage.save(MODELS["network"](), tmp_path / "m.delan", provenance=provenance)
    header = storage.read_header(tmp_path / "m.delan")
    assert header["log"] == "a\\x1b[2J.csv"
    assert header["models"] == {"chain": {"nmse": [None, 1.0]}}


def test_a_certificate_of_another_file_refuses_the_model(tmp_path):
    path = saved(tmp_path)
    own = storage.read_header(path)["checksum"]
    certificate = storage.certificate_path(path)
    certificate.write_text(json.dumps({"checksum": own, "verdict": "passed"}))
    storage.load(path)
    changed = crafted(path, lambda header, _: header["architecture"].update(activation="tanh"))
    for read in (storage.load, storage.read_header):
        with pytest.raises(ModelFileError, match=r"m\.gate\.json beside it is the certificate of"):
            read(changed)
    # A model that is saved anew takes the place of the one that was examined.
    storage.save(MODELS["one joint"](), path)
    assert not certificate.exists()
    storage.load(path)
    certificate.write_text("[" * 5000)
    assert storage.read_certificate(path) == {}
    storage.load(path)


def test_a_non_finite_weight_is_refused(tmp_path):
    arrays = storage.arrays_of(as_model(MODELS["network"]()))
    header = storage.read_header(saved(tmp_path))
    name = "mechanics.diagonal.bias"
    arrays[name] = arrays[name] * np.nan
    storage.write_arrays(tmp_path / "m.delan", arrays, storage.FORMAT, header)
    with pytest.raises(
        ModelFileError,
        match=r"the array mechanics.diagonal.bias holds a non-finite number; fit the model anew",
    ):
        storage.load(tmp_path / "m.delan")


def test_a_flipped_bit_in_the_weights_is_found(tmp_path):
    path = saved(tmp_path)
    content = bytearray(path.read_bytes())
    content[-5] ^= 1
    path.write_bytes(content)
    with pytest.raises(
        ModelFileError,
        match="its header or its numbers do not match its checksum; the file is damaged, save it",
    ):
        storage.load(path)


def test_files_that_are_no_models(tmp_path):
    with pytest.raises(ModelFileError, match="no such file; check the path"):
        storage.load(tmp_path / "none.delan")
    with pytest.raises(ModelFileError, match="no such file; check the path"):
        storage.load(tmp_path / ("a" * 300))
    (tmp_path / "text").write_text("hello, world, this is no model at all")
    with pytest.raises(
        ModelFileError, match="is no model file of delan; give a file that `delan` wrote"
    ):
        storage.load(tmp_path / "text")
    save_file({"a": np.zeros(3)}, tmp_path / "foreign")
    with pytest.raises(
        ModelFileError, match="is no model file of delan; give a file that `delan` wrote"
    ):
        storage.load(tmp_path / "foreign")
    whole = saved(tmp_path).read_bytes()
    (tmp_path / "half").write_bytes(whole[: len(whole) // 2])
    with pytest.raises(
        ModelFileError, match="half: was cut off or damaged; copy it again, or write it anew"
    ):
        storage.load(tmp_path / "half")


@given(data=st.data())
@settings(max_examples=100)
@pytest.mark.usefixtures("as_shipped")
def test_damaged_files_are_refused_or_harmless(data, tmp_path_factory):
    path = saved(tmp_path_factory.mktemp("damaged"))
    content = bytearray(path.read_bytes())
    if data.draw(st.booleans()):
        content = content[: data.draw(st.integers(0, len(content) - 1))]
    else:
        content[data.draw(st.integers(0, len(content) - 1))] ^= 1 << data.draw(st.integers(0, 7))
    path.write_bytes(content)
    try:
        model = storage.load(path)
    except ModelFileError:
        return
    assert all(np.isfinite(leaf).all() for leaf in jax.tree.leaves(model))


def test_a_failed_write_leaves_the_old_file(tmp_path, monkeypatch):
    path = saved(tmp_path)
    before = path.read_bytes()

    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(
        ModelFileError,
        match="cannot be written: No space left on device; give a path in a folder that exists",
    ):
        storage.save(MODELS["one joint"](), path)
    assert path.read_bytes() == before
    assert list(tmp_path.iterdir()) == [path]


def test_a_missing_folder_is_said(tmp_path):
    with pytest.raises(ModelFileError, match="cannot be written: No such file or directory"):
        storage.save(MODELS["one joint"](), tmp_path / "none" / "m.delan")
