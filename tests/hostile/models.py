"""Model files that were changed, through load, describe, evaluate, export and the gate.

Bytes are changed as damage changes them. Fields, numbers and shapes are changed as an attacker
would, with a checksum that matches, so that what stands behind the checksum is reached.
"""

import copy
import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from delan import array_file, storage
from delan.joints import Dataset, Joints
from delan.learning.uncertainty import domain_of
from delan.logs.excerpts import sketch
from delan.models.chain import LagrangianChain
from delan.models.friction import Friction, FrictionSettings, MotorPair
from delan.models.model import Model
from delan.models.networks import (
    FeedForwardNetwork,
    FeedForwardSettings,
    LagrangianNetwork,
    LagrangianNetworkSettings,
)
from delan.models.trust import Sketch, Trust
from tests.hostile.trial import Outcome, command

JOINTS = Joints(("shoulder", "elbow"), ("revolute", "revolute"))
# Values that stand where others were expected.
ODD: list[Any] = [
    None, True, False, 0, 1, -1, 2**40, 10**400, 0.5, -0.0, 1e-46, 1e-300, 1e30, 1e39, 1e308,
    float("inf"), float("nan"), "", "x", "1", "inf", "\x1b[2J\x07", "\ud800", "a\nb", "*/ #error",
    "long" * 20_000, "‮", [], [1], [[]], [None], ["a"], [1e308, 1], {}, {"a": 1}, {"torque": 1},
    {"torque": {"nmse": None}}, [[1.0, 2.0], [3.0]],
]  # fmt: skip
# Numbers that stand in arrays where weights were.
NUMBERS = (0.0, -1.0, 1e-300, 1e-40, 1e8, 1e14, 1e20, 1e38, 1e300, -1e300, np.inf, np.nan)
WORDS = ("tanh", "relu", "vector", "softplus", "viscous", "load", "stribeck", "armature", "offset")
WORDS += ("prismatic", "continuous", "lagrangian_network", "lagrangian_chain", "[red]*/", "%s{{x}}")
SCORES = {"nmse": [0.1, 0.2], "rmse": [0.01, 0.02], "nmse_mean": 0.15}
PROVENANCE = {
    "scores": {"validation": {"torque": SCORES}},
    "fit": {"samples": 60, "seconds": 1.0},
    "seed": [0, 7],
    "log": "train.csv",
    "name": "chain",
    "decision": "deploy",
    "preparation": {"cutoff": 5.0, "delay": 0.0},
}
# Share of the files that load which the gate sees: it compiles programs and C code for seconds.
GATED = 0.25


def motion(rows: int = 60, seed: int = 0) -> Dataset:
    """Smooth motion of two joints."""
    rng = np.random.default_rng(seed)
    t = np.arange(rows) * 0.02
    rate = rng.uniform(1, 4, 2)
    phase = t[:, None] * rate[None] + rng.uniform(0, 6, 2)[None]
    return Dataset(
        t=t,
        q=np.sin(phase),
        qd=rate * np.cos(phase),
        qdd=-(rate**2) * np.sin(phase),
        tau=np.cos(phase) + 0.1 * rng.normal(size=phase.shape),
        trajectory=np.zeros(rows, dtype=int),
        joints=JOINTS,
    )


def with_trust(model: Model) -> Model:
    members = jax.tree.map(lambda leaf: jnp.stack([leaf, leaf * 1.01]), model)
    domain = domain_of(motion(seed=1), motion(seed=2))
    unit = jnp.ones(2)
    known = Sketch.of(sketch(motion(seed=1)))
    return model.with_trust(Trust(members, unit, unit, domain, sketch=known))


def originals() -> dict[str, Model]:
    """One model of each kind."""
    key = jax.random.key(0)
    pairs = (MotorPair(0, 1, -0.5),)
    friction = Friction(JOINTS, FrictionSettings(("viscous", "coulomb", "stops"), pairs=pairs))
    small = LagrangianNetworkSettings(width=4)
    feed_forward = FeedForwardNetwork(JOINTS, FeedForwardSettings(width=4), key=key)
    return {
        "chain": with_trust(Model(LagrangianChain(JOINTS, key=key), friction)),
        "network": with_trust(Model(LagrangianNetwork(JOINTS, small, key=key))),
        "feed-forward": Model(residual=feed_forward),
        "chain and residual": Model(LagrangianChain(JOINTS, key=key), residual=feed_forward),
    }


def places(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """Every place in a header, by its keys."""
    found = [path] if path else []
    if isinstance(value, dict):
        for name, item in value.items():
            found += places(item, (*path, name))
    elif isinstance(value, list):
        for number, item in enumerate(value[:3]):
            found += places(item, (*path, number))
    return found


def changed_field(header: dict[str, Any], rng: np.random.Generator) -> None:
    """Another value, another field's value, no value, or JSON as deep as Python writes it."""
    every = places(header)
    path = every[rng.integers(len(every))]
    owner: Any = header
    for name in path[:-1]:
        owner = owner[name]
    kind = rng.integers(10)
    if kind == 0:
        del owner[path[-1]]
    elif kind == 1:
        value: Any = 1
        for _ in range(int(rng.choice([5, 20, 300]))):
            value = [value]
        owner[path[-1]] = value
    elif kind == 2:
        other: Any = header
        for name in every[rng.integers(len(every))]:
            other = other[name]
        owner[path[-1]] = copy.deepcopy(other)
    elif kind == 3 and isinstance(owner[path[-1]], list):
        owner[path[-1]] = owner[path[-1]] * 2 + [1]
    elif kind == 4 and isinstance(owner[path[-1]], int | float):
        owner[path[-1]] = owner[path[-1]] * float(rng.choice([-1, 1e-30, 0.5, 1.5, 1e6, 1e30]))
    elif kind in (5, 6):
        owner[path[-1]] = alike(owner[path[-1]], rng)
    else:
        # A copy, because a second change may go into it.
        owner[path[-1]] = copy.deepcopy(ODD[rng.integers(len(ODD))])


def alike(value: Any, rng: np.random.Generator) -> Any:
    """Another value of the same type, which a check of types alone lets pass."""
    if isinstance(value, bool):
        return not value
    if isinstance(value, int):
        return int(rng.choice([0, 1, 2, 3, value + 1, 10**6]))
    if isinstance(value, float):
        return float(value * 10 ** rng.uniform(-12, 12))
    if isinstance(value, list):
        return [alike(item, rng) for item in value]
    if isinstance(value, dict):
        return {name: alike(item, rng) for name, item in value.items()}
    if isinstance(value, str):
        return str(rng.choice(WORDS))
    return value


def changed_array(arrays: dict[str, np.ndarray], rng: np.random.Generator) -> None:
    """Other numbers, another shape or type, a missing or an additional array."""
    name = list(arrays)[rng.integers(len(arrays))]
    array = np.array(arrays[name])
    kind = rng.integers(10)
    if kind < 2 and array.size:
        count = int(rng.integers(1, array.size + 1))
        with np.errstate(over="ignore"):
            array.flat[rng.integers(array.size, size=count)] = rng.choice(NUMBERS)
    elif kind < 6 and array.size:
        # Of a size that a model may have, so that what computes with it is reached.
        chosen = rng.random(array.shape) < rng.random()
        array = np.where(chosen, array * 10 ** rng.uniform(-9, 9, array.shape), array)
    elif kind == 6:
        array = array[..., None] if rng.random() < 0.5 else array.ravel()[: array.size // 2]
    elif kind == 7:
        dtypes: list[Any] = ["f2", "f4", "i4", "i8", "u1", "?", "c8"]
        with np.errstate(all="ignore"):
            array = array.astype(dtypes[rng.integers(len(dtypes))])
    elif kind == 8:
        del arrays[name]
        return
    else:
        arrays["other"] = array
        return
    arrays[name] = array


def rewritten(path: Path, arrays: dict[str, np.ndarray], header: dict[str, Any]) -> None:
    """Write what `array_file.write_arrays` would refuse to write, with a checksum that matches."""
    described = {**header}
    described.pop("checksum", None)
    try:
        described["checksum"] = array_file.checksum(described, arrays)
    except (ValueError, TypeError):
        described["checksum"] = "0" * 64
    data = array_file.to_bytes(
        # Not `ascontiguousarray`, which makes rows of single numbers.
        {name: np.asarray(array, order="C") for name, array in arrays.items()},
        metadata={"delan": json.dumps(described)},
    )
    path.write_bytes(data)


def changed_bytes(content: bytes, rng: np.random.Generator) -> bytes:
    damaged = bytearray(content)
    kind = rng.integers(4)
    if kind == 0:
        return bytes(damaged[: rng.integers(len(damaged))])
    if kind == 1:
        # The header decides more than the numbers do.
        for _ in range(int(rng.integers(1, 5))):
            damaged[rng.integers(min(len(damaged), 2000))] = rng.integers(256)
    elif kind == 2:
        damaged[rng.integers(len(damaged))] ^= 1 << rng.integers(8)
    else:
        first, last = sorted(rng.integers(len(damaged), size=2))
        damaged[first:last] = b"[" * (last - first)
    return bytes(damaged)


def changed_file(original: Path, target: Path, rng: np.random.Generator) -> str:
    """Write a changed model file; return how it was changed."""
    kind = rng.integers(10)
    if kind == 0:
        target.write_bytes(changed_bytes(original.read_bytes(), rng))
        return "bytes"
    arrays, header = storage.read_arrays(original, storage.FORMAT)
    if kind < 7:
        for _ in range(int(rng.integers(1, 3))):
            changed_field(header, rng)
        how = "field"
    else:
        changed_array(arrays, rng)
        how = "array"
    rewritten(target, arrays, header)
    return how


def export(path: Path, folder: Path, *, double: bool) -> None:
    """Export a model; its C code must not hold words that Python writes for odd values."""
    command("export", path, "-o", folder, *(["--double"] if double else []))
    for file in folder.glob("*.[ch]"):
        code = re.sub(r"/\*.*?\*/", "", file.read_text(encoding="utf-8"), flags=re.DOTALL)
        odd = re.search(r"\b(inf|nan|True|False|None)f?\b", code)
        assert odd is None, f"{file.name} holds {odd}"


class Trial:
    """Model files in a folder, changed one after the other."""

    def __init__(self, folder: Path):
        self._folder = folder
        self._kinds = {}
        for name, model in originals().items():
            self._kinds[name] = folder / f"{name.replace(' ', '_')}.original"
            storage.save(model, self._kinds[name], provenance=PROVENANCE)
        self._log = folder / "log.npz"
        log = motion(seed=3)
        np.savez(self._log, t=log.t, q=log.q, qd=log.qd, tau=log.tau)
        self._limits = folder / "limits.toml"
        self._limits.write_text("torque = [50, 50]\n")
        self._model = folder / "m.delan"

    def attack(self, number: int, seed: int, outcome: Outcome) -> None:
        """Change a model file and use it."""
        rng = np.random.default_rng([seed, number])
        kind = list(self._kinds)[number % len(self._kinds)]
        (self._folder / "m.gate.json").unlink(missing_ok=True)
        how = changed_file(self._kinds[kind], self._model, rng)
        case = f"seed {seed} case {number} ({kind}, {how})"
        if outcome.run("load", case, lambda: storage.load(self._model)):
            for name, step in self._steps(rng).items():
                outcome.run(name, case, step)
        outcome.end_case(self._folder, case)

    def _steps(self, rng: np.random.Generator) -> dict[str, Callable[[], object]]:
        """Return what is done with a file that loads; the slow gate sees a share of them."""
        path = self._model
        double = rng.random() < 0.5
        chosen: dict[str, Callable[[], object]] = {
            "describe": lambda: command("describe", path),
            "describe --json": lambda: command("describe", path, "--json"),
            "evaluate": lambda: command("evaluate", path, self._log),
            "export": lambda: export(path, self._folder / "code", double=double),
        }
        if rng.random() < GATED:
            chosen["gate"] = lambda: command(
                "gate", path, "--log", self._log, "--limits", self._limits
            )
        return chosen
