"""The ROS 2 plugin, built against a stub of the interface and run: its numbers against those of
JAX.
"""

import shutil
import subprocess
import xml.etree.ElementTree as ElementTree
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from typer.testing import CliRunner

import delan
from delan.cli.main import app
from delan.deploy.layout import ExportSettings, Precision
from delan.deploy.project import export, package_name
from delan.errors import ModelError
from delan.joints import Joints
from delan.models.model import as_model
from delan.models.networks import FeedForwardNetwork
from tests.support.members import MIXED, actuated, chain

STUB = Path(__file__).parents[1] / "support" / "ros2_stub"
STRICT = ("-Wall", "-Wextra", "-Wpedantic", "-Werror")
MODELS = {
    "chain": lambda: chain(Joints.revolute(7)),
    "chain, mixed joints": lambda: chain(MIXED),
    "network, friction with memory and under load": lambda: actuated(
        MIXED, "armature", "viscous", "asymmetric", "load", "stops"
    ),
    "network and friction": lambda: actuated(MIXED, "viscous", "coulomb", "stribeck", "offset"),
}


def built(folder: Path, name: str) -> Path:
    """The plugin of `folder` and a program that asks it, with every warning an error."""
    package = folder / "ros2"
    headers = ("-Iinclude", "-Isrc", f"-I{STUB}")
    for command in (
        ["gcc", "-std=c99", *STRICT, "-O2", "-c", f"src/{name}.c", "-o", "model.o"],
        ["g++", "-std=c++17", *STRICT, "-O2", *headers, "-c", "src/solver.cpp", "-o", "solver.o"],
        [
            "g++",
            "-std=c++17",
            *STRICT,
            "-O2",
            *headers,
            str(STUB / "main.cpp"),
            "solver.o",
            "model.o",
            "-o",
            "ask",
            "-lm",
        ],
    ):
        ran = subprocess.run(command, cwd=package, capture_output=True, text=True, check=False)
        assert ran.returncode == 0, ran.stderr
    return package / "ask"


def wanted(model, q, qd, qdd) -> dict[str, np.ndarray]:
    """What the interface asks of a model, in JAX; friction where the load is none."""
    parts = jax.vmap(model.components)(q, qd, qdd)
    head = as_model(model).friction
    friction = jnp.zeros_like(q) if head is None else jax.vmap(lambda v: head.torque(v, 0 * v))(qd)
    result = {
        "inertia": jax.vmap(model.mass_matrix)(q),
        "coriolis": parts.coriolis,
        "gravity": parts.gravity,
        "friction": friction,
        "torques": jax.vmap(model.inverse_dynamics)(q, qd, qdd),
        "sum of parts": parts.inertial + parts.coriolis + parts.gravity,
    }
    return {name: np.asarray(values).reshape(len(q), -1) for name, values in result.items()}


needs_compiler = pytest.mark.skipif(
    not (shutil.which("g++") and shutil.which("gcc")), reason="there is no g++ and gcc here"
)


@needs_compiler
@pytest.mark.parametrize(
    ("precision", "tolerance"),
    [pytest.param("float", 1e-5, marks=pytest.mark.slow), ("double", 1e-12)],
)
@pytest.mark.parametrize("name", MODELS)
def test_the_plugin_gives_the_numbers_of_jax(tmp_path, name, precision: Precision, tolerance):
    model = MODELS[name]()
    dof = model.joints.dof
    rows = np.random.default_rng(0).uniform(-2, 2, (30, 3, dof))
    export(model, tmp_path, ExportSettings("My_arm", precision), ros2=True)
    ask = built(tmp_path, "My_arm")
    ran = subprocess.run(
        [str(ask), str(dof)], input=rows.tobytes(), capture_output=True, check=True
    )
    truth = wanted(model, *(jnp.asarray(rows[:, i]) for i in range(3)))
    ends = np.cumsum([values.shape[1] for values in truth.values()])
    got = np.split(np.frombuffer(ran.stdout).reshape(30, ends[-1]), ends[:-1], axis=1)
    for (what, values), given in zip(truth.items(), got, strict=True):
        assert np.abs(given - values).max() <= tolerance * np.abs(values).max(), what
    assert ran.stderr.decode() == (
        f"the position has {dof + 1} entries; expected one for each of the {dof} joints of My_arm"
    )


def test_the_files_of_the_package_agree(tmp_path):
    model = chain(Joints(('a \\ "b"??/', "ünd"), ("revolute", "revolute")))
    made = export(model, tmp_path, ExportSettings("My__arm"), ros2=True)
    package = package_name("My__arm")
    assert package == "my_arm_inverse_dynamics_solver"
    root = tmp_path / "ros2"
    described = ElementTree.parse(root / "plugin.xml").getroot()
    plugin = described.find("class")
    assert plugin is not None
    assert (
        described.get("path") == ElementTree.parse(root / "package.xml").findtext("name") == package
    )
    assert plugin.get("type") == f"{package}::Solver"
    assert made.checksum in str(plugin.findtext("description"))
    assert f"project({package} C CXX)" in (root / "CMakeLists.txt").read_text()
    assert (root / "src/My__arm.c").read_text() == (tmp_path / "My__arm.c").read_text()
    source = (root / "src/solver.cpp").read_text()
    assert r'"a \134 \042b\042\077\077/"' in source
    assert r'"\303\274nd"' in source
    assert not any(
        "@" in (root / path).read_text().replace("you@", "")
        for path in ("CMakeLists.txt", "package.xml")
    )


def test_a_model_of_torques_alone_is_no_solver(tmp_path):
    with pytest.raises(ModelError, match="knows the torque alone"):
        export(FeedForwardNetwork(MIXED, key=jax.random.key(0)), tmp_path / "arm_c", ros2=True)
    assert not (tmp_path / "arm_c").exists()


def test_the_command_adds_the_package_where_asked(tmp_path):
    delan.save(chain(MIXED), tmp_path / "arm.delan")
    result = CliRunner().invoke(app, ["export", str(tmp_path / "arm.delan"), "--ros2"])
    assert result.exit_code == 0, result.output
    assert "the plugin is arm_inverse_dynamics_solver/Solver" in result.stdout
    header = (tmp_path / "arm_c/ros2/include/arm_inverse_dynamics_solver/solver.hpp").read_text()
    assert "This model has no friction: it is zero." in header
    again = CliRunner().invoke(
        app, ["export", str(tmp_path / "arm.delan"), "-o", str(tmp_path / "plain")]
    )
    assert again.exit_code == 0, again.output
    assert not (tmp_path / "plain/ros2").exists()
