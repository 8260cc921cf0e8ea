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


def test_the_header_tells_what_the_model_is(tmp_path):
    storage.save(
        MODELS["network"](),
        tmp_path / "m.delan",
        provenance={"scores": {"test": 1.0}, "seed": [0, 7]},
    )
    header = storage.read_header(tmp_path / "m.delan")
    assert header["kind"] == "lagrangian_network"
    assert header["architecture"]["gravity"] == "vector"
    assert header["joints"] == {"names": list(MIXED.names), "kinds": list(MIXED.kinds)}
    assert header["units"]["tau"] == "N m or N"
    assert len(header["normalisation"]["tau_std"]) == 3
    assert header["scores"] == {"test": 1.0}
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
            lambda h: h.update(format_version=2),
            "its format version is 2, this delan reads 1; update delan",
        ),
        (
            lambda h: h.update(format="delan-checkpoint"),
            "expected a delan-model file, found 'delan-checkpoint'",
        ),
        (
            lambda h: h.update(kind="pickle"),
            r"its header is damaged \(KeyError: 'pickle'\); save it anew",
        ),
        (lambda h: h.pop("architecture"), r"its header is damaged \(KeyError: 'architecture'\)"),
        (
            lambda h: h["architecture"].update(color="red"),
            r"its header is damaged \(TypeError: .*color",
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
        match="its numbers do not match its checksum; the file is damaged, save it anew",
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
