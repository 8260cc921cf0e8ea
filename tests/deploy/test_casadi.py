"""Models as CasADi functions: values against the models, and slopes against JAX's."""

import json
import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from typer.testing import CliRunner

import delan
from delan.cli.main import app
from delan.deploy.artifact import functions_of
from delan.deploy.casadi_export import casadi_functions, export_casadi, symbolic
from delan.deploy.layout import ExportSettings
from delan.errors import ModelError, SettingsError
from delan.joints import Joints
from delan.models.friction import MotorPair
from delan.models.model import Model
from delan.models.networks import FeedForwardNetwork
from tests.support.members import DYNAMICS, MIXED, actuator, chain, network

casadi = pytest.importorskip("casadi", reason="CasADi is not installed here")

SMALL = {
    "chain, tree": DYNAMICS["chain, tree"],
    "network": lambda: network(MIXED, width=6),
    "network with motors": lambda: Model(
        network(MIXED, width=6, depth=1),
        jax.tree.map(
            jnp.asarray,
            actuator(
                MIXED,
                "armature",
                "asymmetric",
                "stribeck",
                "load",
                "stops",
                pairs=(MotorPair(0, 2, 2.0),),
            ),
        ),
    ),
}
MODELS = {
    **{name: make for name, make in DYNAMICS.items() if not name.startswith("rigid body")},
    "feed-forward": lambda: FeedForwardNetwork(MIXED, key=jax.random.key(0)),
    **{
        f"network, {kind}": lambda kind=kind: network(MIXED, activation=kind, width=6, depth=1)
        for kind in ("tanh", "sin", "silu")
    },
}


def require_same(model, only: tuple[str, ...] = ()) -> None:
    """That the symbolic functions are those of the model."""
    rows = np.random.default_rng(0).uniform(-2, 2, (4, 3, model.joints.dof))
    made, functions = casadi_functions(model, only), functions_of(model)
    # The distance to the nearest training state is not smooth, and has no symbolic form.
    assert made.keys() == (set(only) or functions.keys() - {"in_domain"})
    for name, item in made.items():
        takes = len(functions[name].takes)
        truth = jax.jit(jax.vmap(functions[name].call))(
            *(jnp.asarray(rows[:, i]) for i in range(takes))
        )
        for row, *wanted in zip(rows, *truth, strict=True):
            got = item.call([casadi.DM(column) for column in row[:takes]])
            for values, parts, whole in zip(got, wanted, truth, strict=True):
                size = float(jnp.abs(whole).max())
                np.testing.assert_allclose(
                    np.asarray(values).reshape(parts.shape),
                    parts,
                    atol=1e-12 * max(size, 1),
                    rtol=1e-9,
                    err_msg=name,
                )


@pytest.mark.parametrize("name", SMALL)
def test_the_symbols_give_the_numbers_of_jax(name):
    require_same(SMALL[name](), ("inverse_dynamics",))


@pytest.mark.slow
@pytest.mark.parametrize("name", [name for name in MODELS if "30 joints" not in name])
def test_every_function_of_every_model(name):
    require_same(MODELS[name]())


@pytest.mark.parametrize("name", ["chain, mixed joints", "network, sin"])
def test_slopes_are_those_of_jax(name):
    model = MODELS[name]()
    forward = casadi_functions(model, ("forward_dynamics",))["forward_dynamics"]
    columns = [casadi.SX.sym(name, 3) for name in ("q", "qd", "tau")]
    slopes = casadi.Function(
        "slopes", columns, [casadi.jacobian(forward(*columns), item) for item in columns]
    )
    truth = jax.jit(jax.jacobian(model.forward_dynamics, argnums=(0, 1, 2)))
    for row in np.random.default_rng(1).uniform(-2, 2, (3, 3, 3)):
        for got, wanted in zip(
            slopes.call([casadi.DM(item) for item in row]),
            truth(*map(jnp.asarray, row)),
            strict=True,
        ):
            np.testing.assert_allclose(
                np.asarray(got), wanted, rtol=1e-8, atol=1e-9 * float(jnp.abs(wanted).max())
            )


def test_what_is_written_is_read_back(tmp_path):
    model = MODELS["feed-forward"]()
    result = export_casadi(model, tmp_path / "arm", story={"log": "monday.csv"})
    assert (
        json.loads((tmp_path / "arm" / "model.json").read_text())["casadi"]
        == result["casadi"]
        == casadi.__version__
    )
    read = casadi.Function.load(str(tmp_path / "arm" / "inverse_dynamics.casadi"))
    assert (read.name_in(), read.name_out()) == (["q", "qd", "qdd"], ["tau"])
    ones = jnp.ones(3)
    np.testing.assert_allclose(
        np.asarray(read(*[np.ones(3)] * 3))[:, 0], model.inverse_dynamics(ones, ones, ones)
    )


def test_the_page_tells_how_to_call_it(tmp_path):
    export_casadi(chain(Joints.revolute(2)), tmp_path)
    (snippet,) = re.findall(r"```python\n(.*?)```", (tmp_path / "README.md").read_text(), re.DOTALL)
    scope: dict = {}
    exec(snippet.replace('load("', f'load("{tmp_path}/'), scope)
    assert scope["slope"].shape == (2, 2)


def test_what_has_no_symbolic_form_is_refused(tmp_path):
    with pytest.raises(ModelError, match="'sort', which has no symbolic form"):
        symbolic(jnp.sort, casadi.SX.sym("q", 3))
    with pytest.raises(ModelError, match="RigidBody has no weights"):
        casadi_functions(DYNAMICS["rigid body"]())
    with pytest.raises(SettingsError, match="double precision"):
        export_casadi(chain(MIXED), tmp_path, ExportSettings())


def test_without_casadi_it_says_how_to_get_it(monkeypatch):
    monkeypatch.setattr("delan.deploy.casadi_export.casadi", None)
    with pytest.raises(SettingsError, match=r"delan\[casadi\]"):
        casadi_functions(chain(MIXED))


def test_the_command_writes_it(tmp_path):
    delan.save(MODELS["feed-forward"](), tmp_path / "arm.delan")
    result = CliRunner().invoke(app, ["export", str(tmp_path / "arm.delan"), "--format", "casadi"])
    assert result.exit_code == 0, result.output
    assert "Functions: inverse_dynamics in" in result.stdout
    assert (tmp_path / "arm_casadi" / "inverse_dynamics.casadi").stat().st_size > 1000
