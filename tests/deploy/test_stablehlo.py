"""Models as StableHLO, read back without delan: their numbers against those of the model."""

import json
import re

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import export as jax_export
from typer.testing import CliRunner

import delan
from delan.cli.main import app
from delan.deploy.artifact import functions_of
from delan.deploy.layout import ExportSettings
from delan.deploy.stablehlo import export_stablehlo, stablehlo
from delan.errors import SettingsError
from delan.models.model import Model
from delan.models.networks import FeedForwardNetwork
from delan.models.trust import Domain, Trust
from tests.support.members import MIXED, actuated, chain

MODELS = {
    "chain": lambda: chain(MIXED),
    "network, rotors and friction": lambda: actuated(
        MIXED, "armature", "viscous", "stribeck", "load"
    ),
    "feed-forward": lambda: FeedForwardNetwork(MIXED, key=jax.random.key(0)),
}


def require_same(model, only: tuple[str, ...] = ()) -> None:
    """That what is read back is the model."""
    rows = np.random.default_rng(0).uniform(-2, 2, (3, 5, 3))
    made = stablehlo(model, ExportSettings(precision="double"), only)
    functions = functions_of(model)
    assert made.keys() == (set(only) or functions.keys())
    for what, data in made.items():
        function = functions[what]
        given = [jnp.asarray(rows[i]) for i in range(len(function.takes))]
        got = jax_export.deserialize(bytearray(data)).call(*given)
        for item, truth in zip(got, jax.jit(jax.vmap(function.call))(*given), strict=True):
            np.testing.assert_allclose(
                item, truth, rtol=1e-12, atol=1e-12 * float(jnp.abs(truth).max()), err_msg=what
            )


def test_a_chain_that_is_read_back():
    require_same(MODELS["chain"](), ("forward_dynamics",))


def test_a_feed_forward_network_that_is_read_back():
    require_same(MODELS["feed-forward"]())


@pytest.mark.slow
@pytest.mark.parametrize("name", MODELS)
def test_every_function_that_is_read_back(name):
    require_same(MODELS[name]())


def test_it_is_for_all_platforms_any_batch_and_gradients():
    model = MODELS["feed-forward"]()
    data = stablehlo(model, ExportSettings(precision="float"), ("inverse_dynamics",))[
        "inverse_dynamics"
    ]
    exported = jax_export.deserialize(bytearray(data))
    assert set(exported.platforms) >= {"cpu", "cuda", "tpu"}
    truth = jax.jit(jax.vmap(model.inverse_dynamics))
    for batch in (1, 3):  # as many as there are joints, too
        q = jnp.linspace(0, 1, 3 * batch, dtype=jnp.float32).reshape(batch, 3)
        (tau,) = exported.call(q, q, q)
        np.testing.assert_allclose(tau, truth(q, q, q), rtol=2e-4, atol=1e-4)
    slope = jax.jit(jax.grad(lambda q: exported.call(q, q, q)[0].sum()))(q)
    wanted = jax.jit(jax.grad(lambda q: truth(q, q, q).sum()))(q)
    np.testing.assert_allclose(slope, wanted, rtol=2e-3, atol=1e-3)


def test_the_folder_tells_how_to_call_it(tmp_path):
    model = Model(residual=MODELS["feed-forward"]())
    rng = np.random.default_rng(1)
    states, spread = jnp.asarray(rng.uniform(-3, 3, (9, 6))), jnp.asarray(rng.uniform(0.5, 2, 6))
    members = jax.tree.map(
        lambda leaf: jnp.stack([leaf, leaf]) if eqx.is_array(leaf) else leaf, model
    )
    domain = Domain(states, spread, jnp.asarray(0.7), MIXED)
    known = model.with_trust(Trust(members, jnp.ones(3), jnp.ones(3), domain))
    result = export_stablehlo(known, tmp_path, ExportSettings("my_arm"), {"log": "mon|day\n.csv"})
    assert (
        json.loads((tmp_path / "model.json").read_text())["functions"].keys()
        == result["functions"].keys()
    )
    assert {item["file"] for item in result["functions"].values()} <= {
        path.name for path in tmp_path.iterdir()
    }
    assert [joint["units"]["tau"] for joint in result["joints"]] == ["N m", "N", "N m"]
    page = (tmp_path / "README.md").read_text()
    assert "log: mon\\|day .csv" in page
    assert "in_domain(q, qd)" in page
    (snippet,) = re.findall(r"```python\n(.*?)```", page, re.DOTALL)
    scope: dict = {}
    exec(snippet.replace('open("', f'open("{tmp_path}/'), scope)
    still = jnp.zeros(3)
    np.testing.assert_allclose(
        scope["tau"][0], model.inverse_dynamics(still, still, still), rtol=1e-4, atol=1e-5
    )


def test_without_its_package_it_says_which(monkeypatch):
    monkeypatch.setattr("delan.deploy.stablehlo.find_spec", lambda name: None)
    with pytest.raises(SettingsError, match=r"delan\[stablehlo\]"):
        stablehlo(chain(MIXED), ExportSettings())


def test_the_command_writes_it(tmp_path):
    delan.save(MODELS["feed-forward"](), tmp_path / "arm.delan")
    command = ["export", str(tmp_path / "arm.delan"), "--format", "stablehlo"]
    result = CliRunner().invoke(app, [*command, "--json"])
    assert result.exit_code == 0, result.output
    answer = json.loads(result.stdout)
    assert answer["folder"] == str(tmp_path / "arm_stablehlo")
    assert list(answer["functions"]) == ["inverse_dynamics"]
    refused = CliRunner().invoke(app, [*command, "--ros2"])
    assert refused.exit_code == 1
    assert "leave them out for --format stablehlo" in refused.stderr
