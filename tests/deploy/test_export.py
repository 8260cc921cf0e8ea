"""Models as C code against the same models in JAX, in both precisions, by strict compilers."""

import ctypes
import errno
import json
import re
import shutil
import subprocess
import sysconfig
import tempfile
from collections.abc import Sequence
from itertools import permutations
from pathlib import Path
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from typer.testing import CliRunner

import delan
from delan.cli.export_command import word_of
from delan.cli.main import app
from delan.deploy.c_code import PROMISES, c_source
from delan.deploy.compiled import CompiledModel
from delan.deploy.compiler import cache_folder, caller, find_compiler, library_of
from delan.deploy.layout import TAKEN, ExportSettings, Numbers, Precision
from delan.deploy.project import export
from delan.errors import CompilerError, ModelError, SettingsError
from delan.joints import Joints
from delan.mechanics import friction_terms
from delan.mechanics.friction_terms import FrictionLaw
from delan.models.chain import LagrangianChain, LagrangianChainSettings
from delan.models.friction import Friction, FrictionSettings, MotorPair
from delan.models.model import Model
from delan.models.networks import (
    FeedForwardNetwork,
    FeedForwardSettings,
    LagrangianNetwork,
    LagrangianNetworkSettings,
)
from delan.models.trust import Domain, Trust
from tests.support.members import DYNAMICS, friction_in

pytestmark = pytest.mark.skipif(find_compiler() is None, reason="there is no C compiler here")

MIXED = Joints(("a", "b", "c"), ("continuous", "prismatic", "revolute"))
HEAD = FrictionSettings(
    ("armature", "viscous", "asymmetric", "stribeck", "offset", "load", "stops"),
    pairs=(MotorPair(2, 0, 0.6),),
)


def with_motors(rigid) -> Model:
    head = Friction(rigid.joints, HEAD)
    weights = jnp.asarray(np.random.default_rng(3).uniform(0.1, 0.8, head.weights.value.shape))
    return Model(rigid, eqx.tree_at(lambda item: item.weights.value, head, weights))


def trained(joints: Joints) -> LagrangianChain:
    return LagrangianChain(joints, key=jax.random.key(5))


MODELS = {
    **{name: make for name, make in DYNAMICS.items() if not name.startswith("rigid body")},
    "chain with motors": lambda: with_motors(trained(MIXED)),
    "network with motors": lambda: with_motors(LagrangianNetwork(MIXED, key=jax.random.key(2))),
    "tanh network": lambda: LagrangianNetwork(
        MIXED,
        LagrangianNetworkSettings(width=20, depth=3, activation="tanh"),
        key=jax.random.key(2),
    ),
    "softplus network": lambda: LagrangianNetwork(
        MIXED,
        LagrangianNetworkSettings(width=8, depth=1, activation="softplus"),
        key=jax.random.key(2),
    ),
    "sine network": lambda: LagrangianNetwork(
        MIXED, LagrangianNetworkSettings(width=8, activation="sin"), key=jax.random.key(2)
    ),
    "feed-forward network": lambda: FeedForwardNetwork(
        MIXED, FeedForwardSettings(width=24), key=jax.random.key(1)
    ),
}
TOLERANCE: dict[Precision, float] = {"float": 1e-5, "double": 1e-12}


def states(model, count: int = 50) -> np.ndarray:
    return np.random.default_rng(0).uniform(-2, 2, (count, 3, model.joints.dof))


def far(got, wanted) -> float:
    """The largest error, relative to the largest number of the result over all states."""
    return float(
        np.abs(np.asarray(got) - np.asarray(wanted)).max() / np.abs(np.asarray(wanted)).max()
    )


@eqx.filter_jit
def said(model, q, qd, push) -> dict:
    """All that a model says of states."""
    result = {"inverse": jax.vmap(model.inverse_dynamics)(q, qd, push)}
    if model.promises.mechanics:
        result["forward"] = jax.vmap(model.forward_dynamics)(q, qd, push)
        result["inertia"] = jax.vmap(model.mass_matrix)(q)
        result["parts"] = jnp.stack(jax.vmap(model.components)(q, qd, push), axis=1)
        if model.promises.energy:
            result["energy"] = jnp.stack(jax.vmap(model.energy)(q, qd), axis=1)
    return result


@pytest.mark.parametrize("name", [name for name in MODELS if name != "network, 30 joints"])
def test_c_gives_the_numbers_of_jax(name):
    model = MODELS[name]()
    rows = states(model)
    wanted = said(model, *(jnp.asarray(rows[:, i]) for i in range(3)))
    for precision, tolerance in TOLERANCE.items():
        compiled = delan.compile(model, precision=precision)
        methods = {
            "inverse": compiled.inverse_dynamics,
            "forward": compiled.forward_dynamics,
            "inertia": lambda q, qd, push, c=compiled: c.mass_matrix(q),
            "parts": compiled.components,
            "energy": lambda q, qd, push, c=compiled: c.energy(q, qd),
        }
        for what, truth in wanted.items():
            got = np.stack([np.array(methods[what](*row)) for row in rows])
            assert far(got, truth) < tolerance, (what, precision)


@pytest.mark.parametrize("name", ["chain with motors", "tanh network", "feed-forward network"])
def test_numbers_are_the_same_inside_of_jit_and_without_double_precision(name):
    model = MODELS[name]()
    wanted = Numbers.of(model).vector
    np.testing.assert_allclose(eqx.filter_jit(Numbers.traced)(model), wanted, rtol=1e-14)
    with jax.enable_x64(False):
        np.testing.assert_array_equal(Numbers.of(model).vector, wanted)


def test_new_numbers_enter_without_a_compiler(monkeypatch):
    item, other = (
        LagrangianChain(Joints.revolute(3), key=jax.random.key(seed)) for seed in range(2)
    )
    compiled = delan.compile(item)
    monkeypatch.setattr("delan.deploy.compiler.find_compiler", lambda: None)
    compiled.swap(other)
    row = states(item, 1)[0]
    wanted = eqx.filter_jit(other.inverse_dynamics)(*(jnp.asarray(column) for column in row))
    np.testing.assert_allclose(compiled.inverse_dynamics(*row), wanted, rtol=1e-10)
    with pytest.raises(ModelError, match="another shape"):
        compiled.swap(LagrangianChain(Joints.revolute(2), key=jax.random.key(0)))


TWO = Joints.revolute(2)


def with_stops(*radii: float) -> Model:
    return Model(trained(TWO), Friction(TWO, FrictionSettings(("stops",), radii=radii)))


def activated(how: Any) -> FeedForwardNetwork:
    return FeedForwardNetwork(
        TWO, FeedForwardSettings(width=8, activation=how), key=jax.random.key(5)
    )


OTHER_CODE = {
    "kinds of joints": lambda: (
        trained(TWO),
        trained(Joints(("a", "b"), ("revolute", "prismatic"))),
    ),
    "tree": lambda: (
        trained(TWO),
        LagrangianChain(TWO, LagrangianChainSettings(parents=(-1, -1)), key=jax.random.key(5)),
    ),
    "radii of stops": lambda: (with_stops(0.01, 0.1), with_stops(0.01, 0.2)),
    "activation": lambda: (activated("tanh"), activated("softplus")),
}


@pytest.mark.parametrize("what", OTHER_CODE)
def test_numbers_of_another_code_do_not_enter(what):
    """As many numbers under the same names, which the code would take for something else."""
    item, other = OTHER_CODE[what]()
    assert Numbers.of(item).layout == Numbers.of(other).layout
    compiled = delan.compile(item)
    compiled.swap(item)
    with pytest.raises(ModelError, match=r"another shape than the compiled one: .*compile it anew"):
        compiled.swap(other)


@pytest.mark.parametrize("precision", ["float", "double"])
@pytest.mark.parametrize("quick", [True, False])
def test_every_form_of_a_vector_gives_the_same_torque(precision, quick, monkeypatch, as_shipped):
    """By the quick call, by what it hands on to, and where Python's headers are missing."""
    if not quick:
        monkeypatch.setattr("delan.deploy.compiled.caller", lambda: None)
    compiled: Any = delan.compile(trained(Joints.revolute(3)), precision=precision)
    row = states(compiled, 1)[0]
    wanted = compiled.inverse_dynamics(*row).copy()
    spread = np.stack([row, row], axis=-1)
    forms = (
        [tuple(item) for item in row],
        [spread[i, :, 0] for i in range(3)],
        [jnp.asarray(item) for item in row],
    )
    for form in (*forms, row.astype(np.float32)):
        compiled.inverse_dynamics(*np.zeros((3, 3)))
        np.testing.assert_allclose(compiled.inverse_dynamics(*form), wanted, rtol=2e-6)
    np.testing.assert_array_equal(
        compiled.inverse_dynamics(q=row[0], qd=row[1], qdd=row[2]), wanted
    )
    for wrong in (row[:, :1], row[:, :2], np.zeros((3, 4)), np.zeros((3, 1, 3))):
        with pytest.raises(ModelError, match=r"expected one sample, shape \(3,\)"):
            compiled.inverse_dynamics(*wrong)
    with pytest.raises(TypeError):
        compiled.inverse_dynamics(row[0], row[1])
    first = compiled.inverse_dynamics(*row)
    compiled.inverse_dynamics(*np.zeros((3, 3)))
    np.testing.assert_array_equal(first, wanted)  # a result of its own
    out = np.zeros(3, wanted.dtype)
    assert compiled.inverse_dynamics(*row, out=out) is out
    np.testing.assert_array_equal(out, wanted)
    other = np.zeros(3, np.float64 if precision == "float" else np.float32)
    for wrong in (np.zeros(2, wanted.dtype), other, [0.0, 0.0, 0.0]):
        with pytest.raises(ModelError, match="out must be an array of"):
            compiled.inverse_dynamics(*row, out=wrong)
    with pytest.raises(TypeError):
        compiled.inverse_dynamics(*row, into=out)
    kept = compiled.inverse_dynamics
    del compiled
    assert np.isfinite(kept(*row)).all()  # it keeps what it needs


def test_results_can_be_kept():
    """Every method, for the next call writes to the same place."""
    compiled = delan.compile(trained(Joints.revolute(3)))
    item, other = states(compiled, 2)
    for call in (
        lambda row: [compiled.forward_dynamics(*row)],
        lambda row: [compiled.mass_matrix(row[0])],
        lambda row: list(compiled.components(*row)),
    ):
        kept = call(item)
        before = [np.array(part) for part in kept]
        call(other)
        np.testing.assert_array_equal(kept, before)


def test_what_a_model_cannot_do_its_code_does_not_promise():
    compiled = delan.compile(MODELS["feed-forward network"]())
    with pytest.raises(ModelError, match="no forward dynamics"):
        compiled.forward_dynamics(*states(MODELS["feed-forward network"](), 1)[0])
    with pytest.raises(ModelError, match="no in domain"):
        compiled.in_domain(np.zeros(3), np.zeros(3))


def with_domain(chain: LagrangianChain) -> Model:
    model = Model(chain)
    rng = np.random.default_rng(1)
    domain = Domain(
        jnp.asarray(rng.uniform(-3, 3, (40, 6))),
        jnp.asarray(rng.uniform(0.5, 2, 6)),
        jnp.asarray(0.7),
        MIXED,
    )
    members = jax.tree.map(
        lambda leaf: jnp.stack([leaf, leaf]) if eqx.is_array(leaf) else leaf, model
    )
    return model.with_trust(Trust(members, jnp.ones(3), jnp.ones(3), domain))


def test_the_domain_is_that_of_the_model():
    model = with_domain(trained(MIXED))
    compiled, in_domain = delan.compile(model), eqx.filter_jit(model.in_domain)
    for q, qd, _ in 4 * states(
        model
    ):  # far out, where a continuous joint has turned more than once
        wanted = in_domain(jnp.asarray(q), jnp.asarray(qd))
        np.testing.assert_allclose(compiled.in_domain(q, qd), wanted, rtol=1e-12)


def test_nothing_but_a_learned_model_becomes_code():
    with pytest.raises(ModelError, match="RigidBody has no weights"):
        c_source(DYNAMICS["rigid body"]())
    broken = eqx.tree_at(lambda item: item.gravity, trained(MIXED), jnp.full(3, jnp.nan))
    with pytest.raises(ModelError, match="not finite"):
        c_source(broken)


@pytest.mark.usefixtures("as_shipped")
def test_a_friction_term_without_c_code_is_refused(monkeypatch):
    terms: Any = ("viscous", "drag")
    law = FrictionLaw(lambda motion: [motion.v * abs(motion.v)])
    monkeypatch.setitem(friction_terms.TERMS, terms[1], law)
    joints = Joints.revolute(2)
    mechanics = LagrangianChain(joints, LagrangianChainSettings(), key=jax.random.key(0))
    model = Model(mechanics, Friction(joints, FrictionSettings(terms)))
    with pytest.raises(ModelError, match="no C code for the friction term drag"):
        c_source(model)


@pytest.mark.parametrize("name", ["2arms", "arm-1", "", "arm;x"])
def test_names_that_c_would_refuse(name):
    with pytest.raises(SettingsError, match="cannot begin a name in C"):
        ExportSettings(name)


@pytest.mark.usefixtures("as_shipped")
def test_exports_that_cannot_be_are_refused(tmp_path):
    model, precision = trained(Joints.revolute(2)), "half"
    with pytest.raises(SettingsError, match="unknown precision 'half'; known: float, double"):
        delan.compile(model, precision=precision)  # pyright: ignore[reportArgumentType]
    with pytest.raises(
        SettingsError, match="a folder of code holds its weights; leave weights out"
    ):
        export(model, tmp_path, ExportSettings(weights="data"))
    (tmp_path / "file").write_text("")
    with pytest.raises(
        SettingsError, match=r"file/arm: cannot be made \(Not a directory\); give another folder"
    ):
        export(model, tmp_path / "file" / "arm")


@pytest.mark.parametrize("name", [*TAKEN, "Test"])
def test_names_of_other_files_are_not_taken(name):
    with pytest.raises(
        SettingsError,
        match=rf"{name}.c or {name}.h is another file of the code; give another --name",
    ):
        ExportSettings(name)
    assert word_of(name) == f"arm_{name}"


def test_an_example_that_was_edited_stays(tmp_path):
    model, settings = trained(MIXED), ExportSettings("my_arm")
    export(model, tmp_path, settings)
    export(model, tmp_path, settings)  # the same again is no edit
    assert not (tmp_path / "example.new.c").exists()
    example = tmp_path / "example.c"
    written = example.read_text()
    example.write_text(written + "/* my robot */\n")
    export(model, tmp_path, settings)
    assert example.read_text() == written + "/* my robot */\n"
    assert (tmp_path / "example.new.c").read_text() == written


def test_every_file_beside_the_code_keeps_its_name(tmp_path):
    export(trained(MIXED), tmp_path, ExportSettings("my_arm"))
    beside = {path.stem for path in tmp_path.glob("*.[ch]")} - {"my_arm"}
    text = "".join(path.read_text() for path in tmp_path.glob("*.[ch]"))
    included = set(re.findall(r"#include <(\w+).h>", text))
    assert beside | included == set(TAKEN)


def test_comments_cannot_be_broken_out_of():
    joints = Joints(("*/ int main", "b/*c"), ("revolute", "revolute"))
    header = c_source(trained(joints), story={"log": "*/ #error /* x"}).header
    assert header.count("*/") == header.count("/*")


def test_without_a_compiler_it_says_so(monkeypatch):
    monkeypatch.setattr("delan.deploy.compiler.find_compiler", lambda: None)
    with pytest.raises(CompilerError, match="install gcc or clang"):
        CompiledModel(trained(Joints.revolute(2)))


def test_code_that_the_compiler_refuses_is_told_with_its_words(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    with pytest.raises(CompilerError, match=r"refused the code of the model: (.|\n)*error"):
        library_of("", "int model = ;", "model")
    assert list(cache_folder().iterdir()) == []


def no_room(*_: Any, **__: Any) -> None:
    raise OSError(28, "No space left on device")


def test_a_cache_that_cannot_be_written_is_said(tmp_path, monkeypatch):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    with pytest.raises(
        SettingsError, match=r"models cannot be kept there \(Not a directory\); set XDG_CACHE_HOME"
    ):
        library_of("", "int model;", "model")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(tempfile, "TemporaryDirectory", no_room)
    with pytest.raises(
        SettingsError, match=r"models cannot be kept there \(No space left on device\); set"
    ):
        library_of("", "int model;", "model")


@pytest.mark.parametrize("lack", ["headers", "room", "compiler"])
def test_without_the_quick_call_models_take_the_slow_one(lack, tmp_path, monkeypatch):
    model = trained(Joints.revolute(3))
    quick, row = delan.compile(model), states(model, 1)[0]
    wanted = [quick.inverse_dynamics(*row), quick.forward_dynamics(*row)]
    if lack == "headers":
        monkeypatch.setattr(sysconfig, "get_path", lambda _: str(tmp_path))
    elif lack == "room":
        monkeypatch.setattr("delan.deploy.compiler.cache_folder", lambda: tmp_path)
        monkeypatch.setattr(tempfile, "TemporaryDirectory", no_room)
    else:
        monkeypatch.setattr("delan.deploy.compiler.find_compiler", lambda: None)
    assert caller.__wrapped__() is None
    monkeypatch.undo()
    monkeypatch.setattr("delan.deploy.compiled.caller", lambda: None)
    slow = delan.compile(model)
    assert type(slow.forward_dynamics) is not type(quick.forward_dynamics)
    np.testing.assert_array_equal(
        [slow.inverse_dynamics(*row), slow.forward_dynamics(*row)], wanted
    )


def without_room(*_: Any, **__: Any) -> None:
    raise OSError(errno.ENOSPC, "No space left on device")


@pytest.mark.parametrize(
    "step", ["tempfile.TemporaryDirectory", "pathlib.Path.write_text", "pathlib.Path.replace"]
)
def test_a_cache_that_cannot_be_written_is_named(step, tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(step, without_room)
    with pytest.raises(
        SettingsError, match=r"cannot be kept there \(No space left on device\); set XDG_CACHE_HOME"
    ):
        library_of("", "int one(void) { return 1; }", "one")


def test_a_damaged_library_is_built_once_more(tmp_path, monkeypatch):
    load, damaged = ctypes.CDLL, list[str]()

    def load_damaged(path: str) -> ctypes.CDLL:
        if not damaged:
            Path(path).write_bytes(b"")
            damaged.append(path)
        return load(path)

    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr("ctypes.CDLL", load_damaged)
    assert library_of("", "int one(void) { return 1; }", "one")["one"]() == 1


def test_a_library_that_cannot_be_loaded_says_so(tmp_path, monkeypatch):
    """As where the cache may hold no programs."""

    def refuse(path: str) -> None:
        raise OSError(f"{path}: failed to map segment from shared object")

    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr("ctypes.CDLL", refuse)
    with pytest.raises(
        CompilerError,
        match=r"failed to map segment.*; set XDG_CACHE_HOME to a folder that may hold",
    ):
        library_of("", "int one(void) { return 1; }", "one")


def test_a_compiler_that_cannot_be_run_is_named(tmp_path, monkeypatch):
    (tmp_path / "cc").write_bytes(b"neither a program nor a script")
    (tmp_path / "cc").chmod(0o755)
    monkeypatch.setenv("CC", str(tmp_path / "cc"))
    with pytest.raises(
        CompilerError, match=r"cc cannot be run \(Exec format error\); name another compiler in CC"
    ):
        library_of("", "int one(void) { return 1; }", "one")


def compilers() -> list[str]:
    return [name for name in ("gcc", "clang") if shutil.which(name)]


def links(compiler: str, flags: Sequence[str], folder: Path) -> bool:
    """Whether an empty program builds: Debian keeps clang's sanitizers in another package."""
    (folder / "empty.c").write_text("int main(void) { return 0; }\n")
    command = [compiler, *flags, "empty.c", "-o", "empty"]
    return subprocess.run(command, cwd=folder, capture_output=True, check=False).returncode == 0


STRICT = ("-std=c99", "-Wall", "-Wextra", "-Wpedantic", "-Werror")


@pytest.mark.parametrize("compiler", compilers())
@pytest.mark.parametrize(
    "flags",
    [
        ("-O2",),
        ("-O3",),
        ("-O1", "-g", "-fsanitize=address,undefined", "-fno-sanitize-recover=all"),
    ],
)
@pytest.mark.parametrize("name", ["network, 7 joints", "chain with motors", "feed-forward network"])
@pytest.mark.parametrize("precision", ["float", "double"])
def test_a_receiver_builds_and_tests_it_without_a_warning(
    tmp_path, compiler, flags, name, precision
):
    export(MODELS[name](), tmp_path, ExportSettings("my_arm", precision))
    if not links(compiler, flags, tmp_path):
        pytest.skip(f"{compiler} has no sanitizers here")
    command = [compiler, *STRICT, *flags, "my_arm.c", "test.c", "-o", "test", "-lm"]
    built = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert built.returncode == 0, built.stderr
    ran = subprocess.run(["./test"], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert (ran.returncode, ran.stdout) == (0, "all as it should be\n"), ran.stdout + ran.stderr


@pytest.mark.parametrize("compiler", compilers())
@pytest.mark.parametrize("name", MODELS)
def test_no_model_makes_a_compiler_warn(tmp_path, compiler, name):
    made = c_source(MODELS[name](), ExportSettings("my_arm"))
    (tmp_path / "my_arm.h").write_text(made.header)
    (tmp_path / "my_arm.c").write_text(made.source)
    command = [compiler, *STRICT, "-fsyntax-only", "my_arm.c"]
    assert (
        subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False).stderr
        == ""
    )


def test_the_receivers_test_can_fail(tmp_path):
    export(MODELS["chain, 7 joints"](), tmp_path, ExportSettings("my_arm", "double"))
    source = tmp_path / "my_arm.c"
    source.write_text(
        source.read_text().replace("return a[0] * b[0] + a[1]", "return a[0] * b[0] + 1.001 * a[1]")
    )
    subprocess.run(["gcc", "my_arm.c", "test.c", "-o", "test", "-lm"], cwd=tmp_path, check=True)
    ran = subprocess.run(["./test"], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert ran.returncode == 1
    assert "inverse_dynamics: off by" in ran.stdout


def test_memory_of_friction_in_c_is_that_of_python(tmp_path):
    model = with_motors(trained(MIXED))
    rng = np.random.default_rng(4)
    q = np.cumsum(rng.normal(0, 0.02, (200, 3)), axis=0)
    qd, qdd = rng.normal(0, 1, (2, 200, 3))
    memory = friction_in(model).remember(q)
    wanted = jax.jit(jax.vmap(lambda a, b, c, m: model.inverse_dynamics(a, b, c, memory=m)))(
        jnp.asarray(q), jnp.asarray(qd), jnp.asarray(qdd), memory
    )
    export(model, tmp_path, ExportSettings("my_arm", "double"))
    (tmp_path / "main.c").write_text(
        """
        #include "my_arm.h"
        #include <stdio.h>
        int main(void) {
            my_arm_state memory;
            double row[9], tau[3];
            for (int n = 0; fread(row, sizeof row, 1, stdin) == 1; n++) {
                if (n == 0) my_arm_state_init(&memory, row);
                my_arm_state_update(&memory, row);
                my_arm_inverse_dynamics(&memory, row, row + 3, row + 6, tau);
                fwrite(tau, sizeof tau, 1, stdout);
            }
            return 0;
        }"""
    )
    subprocess.run(
        ["gcc", "-std=c99", "-O2", "main.c", "my_arm.c", "-o", "main", "-lm"],
        cwd=tmp_path,
        check=True,
    )
    given = np.concatenate([q, qd, qdd], axis=1).tobytes()
    ran = subprocess.run(["./main"], cwd=tmp_path, input=given, capture_output=True, check=True)
    assert far(np.frombuffer(ran.stdout).reshape(-1, 3), wanted) < 1e-12


@pytest.mark.parametrize(
    "name", ["chain with motors", "network with motors", "sine network", "feed-forward network"]
)
def test_an_output_may_be_the_array_of_an_input(name):
    """Every function of the code, once for each input that its outputs can stand on."""
    model = MODELS[name]()
    made = c_source(model, ExportSettings("my_arm", "double"))
    library = library_of(made.header, made.source, "my_arm")
    row = states(model, 1)[0] * [
        [1],
        [1e-3],
        [1],
    ]  # slow enough for friction to change its sign smoothly
    for function in made.functions:
        promise = PROMISES[function]
        if promise.gives == "state":
            continue
        takes = [item for item in promise.takes.split() if item != "memory"]
        gives = promise.gives.split()

        def results(
            onto: tuple[str, ...], call=library[f"my_arm_{function}"], t=takes, g=gives, p=promise
        ):
            places = {item: np.zeros(9) for item in (*t, *g)}
            for item, values in zip(t, row, strict=False):
                places[item][:3] = values
            places |= {item: places[at] for item, at in zip(g, onto, strict=False)}
            memory = (None,) if "memory" in p.takes else ()
            call(*memory, *(ctypes.c_void_p(places[item].ctypes.data) for item in (*t, *g)))
            size = {"inertia": 9, "kinetic": 1, "potential": 1}
            return [places[item][: size.get(item, 3)].tolist() for item in g]

        for onto in permutations(takes, min(len(gives), len(takes))):
            assert results(onto) == results(()), (function, onto)


def test_the_command_writes_code_that_runs(tmp_path):
    model = with_motors(trained(MIXED))
    torque = {"nmse": [0.1, 0.02, 3e-5], "nmse_mean": 0.04, "rmse": [1.0, None, 0.1]}
    scores = {"test": {"torque": torque}}
    delan.save(model, tmp_path / "my-arm.delan", provenance={"log": "monday.csv", "scores": scores})
    result = CliRunner().invoke(
        app, ["export", str(tmp_path / "my-arm.delan"), "--json", "--double"]
    )
    assert result.exit_code == 0, result.output
    answer = json.loads(result.stdout)
    folder = Path(answer["folder"])
    assert folder == tmp_path / "my-arm_c"
    header = (folder / "my_arm.h").read_text()
    assert "monday.csv" in header
    assert "torque nMSE per joint on test: 0.1, 0.02, 3e-05" in header
    assert "prismatic; m, m/s, m/s^2, N" in header
    assert answer["checksum"] in header
    for main in ("test.c", "example.c"):
        command = ["gcc", *STRICT, "-O2", "my_arm.c", main, "-o", "run", "-lm"]
        built = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
        assert built.returncode == 0, built.stderr
        assert (
            subprocess.run(["./run"], cwd=folder, check=False, capture_output=True).returncode == 0
        )


@pytest.mark.parametrize(
    ("away", "torque", "commanded"),
    [("1", "5", "5.2"), ("3", "5", "0.2"), ("NAN", "5", "0.2"), ("1", "NAN", "0")],
)
def test_the_example_gives_no_torque_that_it_cannot_trust(tmp_path, away, torque, commanded):
    """Its first period, with a model that says what it should not in place of the exported one."""
    export(with_domain(trained(MIXED)), tmp_path, ExportSettings("arm", "double"))
    example = tmp_path / "example.c"
    example.write_text(example.read_text().replace("tick < 1000", "tick < 1"))
    (tmp_path / "arm.c").write_text(
        f"""
        #include "arm.h"
        #include <math.h>
        double arm_in_domain(const double *q, const double *qd) {{ return {away}; }}
        void arm_inverse_dynamics(const arm_state *m, const double *q, const double *qd,
                                  const double *qdd, double *tau)
        {{ for (int i = 0; i < 3; i++) tau[i] = {torque}; }}"""
    )
    subprocess.run(
        ["gcc", "-std=c99", "arm.c", "example.c", "-o", "run", "-lm"], cwd=tmp_path, check=True
    )
    ran = subprocess.run(["./run"], cwd=tmp_path, check=True, capture_output=True, text=True)
    assert ran.stdout == f"torque of joint 0 after 1 s: {commanded}\n"


@pytest.mark.parametrize(
    ("model", "remembers"), [(with_motors(trained(MIXED)), True), (trained(MIXED), False)]
)
def test_the_command_says_that_a_model_remembers(tmp_path, model, remembers):
    delan.save(model, tmp_path / "arm.delan")
    result = CliRunner().invoke(app, ["export", str(tmp_path / "arm.delan")])
    assert result.exit_code == 0, result.output
    assert ("arm_state_update in every period" in result.stdout) == remembers


@pytest.mark.skipif(shutil.which("cmake") is None, reason="there is no CMake here")
def test_cmake_builds_it(tmp_path):
    export(trained(MIXED), tmp_path, ExportSettings("my_arm"))
    for command in (
        ["cmake", "-B", "build"],
        ["cmake", "--build", "build"],
        ["ctest", "--test-dir", "build"],
    ):
        ran = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
        assert ran.returncode == 0, ran.stdout + ran.stderr


def test_only_libm_is_needed(tmp_path):
    export(MODELS["network, 7 joints"](), tmp_path, ExportSettings("my_arm"))
    subprocess.run(["gcc", "-std=c99", "-O2", "-c", "my_arm.c"], cwd=tmp_path, check=True)
    result = subprocess.run(
        ["nm", "-u", "my_arm.o"], cwd=tmp_path, capture_output=True, text=True, check=True
    ).stdout
    needed = {line.split()[-1] for line in result.splitlines() if line.strip()}
    assert needed <= {
        "cosf",
        "sinf",
        "sincosf",
        "expf",
        "log1pf",
        "sqrtf",
        "memcpy",
        "memset",
        "__stack_chk_fail",
    }
