"""Seeded runs whose numbers a change of structure must keep: eight fits and two runs that learn
online.

    python -m benchmarks.goldens take FILE       run all of them and keep their numbers in FILE
    python -m benchmarks.goldens compare FILE    run all of them and compare with FILE

`--only NAME …` picks some. The logs are made here, by formulas of a two-link arm that share no code
with the package, but for the Panda's, which lies in `../shared/data`; without that file its fit is
left out. Everything goes through the command line, as a user would do it: the `--json` output is
kept, and the torques of the written model in 100 states. Numbers that depend on the clock are left
out. Seeds give the same bits on the same machine with the same libraries only, so a file is worth
keeping for the length of a change, not longer.
"""

import argparse
import json
import subprocess
import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

PANDA = Path(__file__).parents[2] / "shared" / "data" / "panda_first75.npz"
STATES = 100
# Calls the console script of whatever version of the package the interpreter has.
ENTRY = (
    "import sys; from importlib.metadata import entry_points; sys.argv[0] = 'delan'; "
    "scripts = entry_points(group='console_scripts'); "
    "next(script for script in scripts if script.name == 'delan').load()()"
)
TOLERANCE = 1e-10
"""Largest difference that counts as the same, relative to the largest number of its kind."""
CLOCKED = (
    "seconds",
    "samples_per_second",
    "lateness_us",
    "parts_us",
    "files",
    "model",
    "report",
    "file",
    "command",
)
"""Keys of `--json` whose values depend on the clock or on where files lie."""
URDF = """<robot name="arm"><link name="base"/>
<link name="upper"><inertial><origin xyz="0.3 0 0"/><mass value="1.1"/>
<inertia ixx="0.001" iyy="0.02" izz="0.02" ixy="0" ixz="0" iyz="0"/></inertial></link>
<link name="fore"><inertial><origin xyz="0.2 0 0"/><mass value="0.7"/>
<inertia ixx="0.001" iyy="0.01" izz="0.01" ixy="0" ixz="0" iyz="0"/></inertial></link>
<joint name="shoulder" type="revolute"><parent link="base"/><child link="upper"/>
<axis xyz="0 -1 0"/>
<limit lower="-3" upper="3" effort="50" velocity="10"/></joint>
<joint name="elbow" type="revolute"><parent link="upper"/><child link="fore"/>
<origin xyz="0.5 0 0"/>
<axis xyz="0 -1 0"/><limit lower="-3" upper="3" effort="50" velocity="10"/></joint></robot>
"""


def two_link(seconds: float, *, friction: bool, accelerations: bool) -> dict[str, np.ndarray]:
    """A log of a two-link arm in a vertical plane, 250 Hz, six motions of three sines a joint,
    little noise.
    """
    noise = np.random.default_rng(7)
    length, m1, m2, c1, c2, i1, i2 = 0.5, 1.2, 0.8, 0.25, 0.22, 0.03, 0.015
    columns: dict[str, list[np.ndarray]] = {"t": [], "q": [], "qd": [], "qdd": [], "tau": []}
    trajectory = []
    for motion in range(6):
        t = np.arange(0.0, seconds / 6, 0.004)
        q, qd, qdd = (np.zeros((len(t), 2)) for _ in range(3))
        for joint in range(2):
            for _ in range(3):
                size, rate, phase = (
                    noise.uniform(0.2, 0.6),
                    noise.uniform(1.0, 6.0),
                    noise.uniform(0, 6.28),
                )
                q[:, joint] += size * np.sin(rate * t + phase)
                qd[:, joint] += size * rate * np.cos(rate * t + phase)
                qdd[:, joint] -= size * rate**2 * np.sin(rate * t + phase)
        coupling = m2 * length * c2
        cos, sin = np.cos(q[:, 1]), np.sin(q[:, 1])
        h11 = i1 + i2 + m1 * c1**2 + m2 * (length**2 + c2**2) + 2 * coupling * cos
        h12 = i2 + m2 * c2**2 + coupling * cos
        g2 = 9.81 * m2 * c2 * np.cos(q[:, 0] + q[:, 1])
        g1 = 9.81 * (m1 * c1 + m2 * length) * np.cos(q[:, 0]) + g2
        tau = np.stack(
            [
                h11 * qdd[:, 0]
                + h12 * qdd[:, 1]
                - coupling * sin * (2 * qd[:, 0] + qd[:, 1]) * qd[:, 1]
                + g1,
                h12 * qdd[:, 0]
                + (i2 + m2 * c2**2) * qdd[:, 1]
                + coupling * sin * qd[:, 0] ** 2
                + g2,
            ],
            axis=1,
        )
        if friction:
            tau += np.array([0.4, 0.2]) * qd + np.array([0.9, 0.5]) * np.tanh(qd / 0.02)
        for name, column in (("t", t), ("q", q), ("qd", qd), ("qdd", qdd)):
            columns[name].append(column)
        columns["tau"].append(tau + 0.01 * noise.standard_normal(tau.shape))
        trajectory.append(np.full(len(t), motion))
    log = {name: np.concatenate(parts) for name, parts in columns.items()}
    log["trajectory"] = np.concatenate(trajectory)
    if not accelerations:
        del log["qdd"]
    return log


@dataclass(frozen=True)
class Golden:
    """A run of the command line: its words, with LOG, URDF and OUT to be filled in, and the log it
    learns from.
    """

    words: str
    log: Callable[[], dict[str, np.ndarray]] | None = None


def _smooth(
    friction: bool = False, accelerations: bool = False
) -> Callable[[], dict[str, np.ndarray]]:
    return lambda: two_link(24.0, friction=friction, accelerations=accelerations)


def _panda() -> dict[str, np.ndarray]:
    log = np.load(PANDA)
    return {name: log[name][:11000] for name in ("t", "q", "qd", "tau")}


GOLDENS = {
    "chain2": Golden("fit LOG -o OUT --model chain --friction none --cutoff 20", _smooth()),
    "chain7": Golden(
        "fit LOG -o OUT --model chain --friction viscous,coulomb,offset --cutoff 8", _panda
    ),
    "network": Golden("fit LOG -o OUT --model delan --cutoff 20", _smooth()),
    "feedforward": Golden("fit LOG -o OUT --model feedforward --cutoff 20", _smooth()),
    "friction": Golden("fit LOG -o OUT --friction auto", _smooth(friction=True)),
    "urdf": Golden("fit LOG -o OUT --urdf URDF --cutoff 20", _smooth(friction=True)),
    "windows": Golden("fit LOG -o OUT --model chain --accelerations none", _smooth(friction=True)),
    "single": Golden(
        "fit LOG -o OUT --model delan --epochs 60 --seeds 2", _smooth(accelerations=True)
    ),
    "online": Golden("online two-link --clock stepped --seconds 8 --test b,c -o OUT"),
    "online7": Golden(
        "online wam4 --clock stepped --seconds 8 --model chain --test-speeds 1.5 -o OUT"
    ),
}


def run(golden: Golden, folder: Path) -> dict[str, Any]:
    """The `--json` output of a run and the torques of its model."""
    places = {"LOG": folder / "log.npz", "URDF": folder / "arm.urdf", "OUT": folder / "model.delan"}
    places["URDF"].write_text(URDF)
    if golden.log is None:
        places["OUT"] = folder / "run"
    else:
        np.savez(places["LOG"], allow_pickle=False, **golden.log())
    words = [str(places.get(word, word)) for word in golden.words.split()]
    done = subprocess.run(
        [sys.executable, "-c", ENTRY, *words, "--json"], capture_output=True, text=True
    )
    if done.returncode:
        raise SystemExit(f"delan {' '.join(words)} ended with {done.returncode}:\n{done.stderr}")
    model = places["OUT"] if golden.log else places["OUT"] / "model.delan"
    return {"json": _unclocked(json.loads(done.stdout.splitlines()[-1])), "torques": torques(model)}


def torques(path: Path) -> list[list[float]]:
    """Of a model file, in random states; computed in double precision."""
    code = (
        "import sys, json, jax, numpy as np, delan\n"
        "jax.config.update('jax_enable_x64', True)\n"
        "model = delan.load(sys.argv[1])\n"
        f"q, qd, qdd = np.random.default_rng(0).normal(size=(3, {STATES}, model.joints.dof))\n"
        "tau = jax.vmap(model.inverse_dynamics)(q, qd, qdd)\n"
        "print(json.dumps(np.asarray(tau).tolist()))\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, str(path)], capture_output=True, text=True, check=True
    )
    return json.loads(done.stdout)


def _unclocked(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _unclocked(part) for name, part in value.items() if name not in CLOCKED}
    if isinstance(value, list):
        return [_unclocked(part) for part in value]
    return value


def differences(before: Any, after: Any, place: str = "") -> list[str]:
    """Where two results differ: missing keys, other names, numbers beyond the tolerance.

    New keys are no difference, and neither are sentences: wording may change, facts may not.
    """
    if isinstance(before, dict) and isinstance(after, dict):
        lines = []
        for name, value in before.items():
            if name in after:
                lines += differences(value, after[name], f"{place}.{name}")
            else:
                lines.append(f"{place}.{name} is gone")
        return lines
    if _numeric(before) and _numeric(after):
        return _numbers_apart(np.array(before, dtype=float), np.array(after, dtype=float), place)
    if isinstance(before, list) and isinstance(after, list) and len(before) == len(after):
        lines = []
        for i, (left, right) in enumerate(zip(before, after, strict=True)):
            lines += differences(left, right, f"{place}[{i}]")
        return lines
    if before == after or (_is_sentence(before) and _is_sentence(after)):
        return []
    return [f"{place} was {str(before)[:90]!r} and is {str(after)[:90]!r}"]


def _numbers_apart(before: np.ndarray, after: np.ndarray, place: str) -> list[str]:
    if before.shape != after.shape:
        return [f"{place} had shape {before.shape} and has {after.shape}"]
    size = max(np.nanmax(np.abs(before), initial=0.0), 1e-300)
    apart = np.nanmax(np.abs(before - after), initial=0.0) / size
    if apart <= TOLERANCE:
        return []
    return [f"{place} differs by {apart:.1e} of its size"]


def _is_sentence(value: Any) -> bool:
    """Names of models, joints and terms have no space."""
    return isinstance(value, str) and " " in value


def _numeric(value: Any) -> bool:
    if isinstance(value, list):
        return bool(value) and all(_numeric(part) for part in value)
    return isinstance(value, int | float) and not isinstance(value, bool)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("what", choices=("take", "compare"))
    parser.add_argument("file", type=Path)
    parser.add_argument("--only", nargs="+", choices=tuple(GOLDENS), default=tuple(GOLDENS))
    given = parser.parse_args()
    kept = json.loads(given.file.read_text()) if given.file.exists() else {}
    differing = 0
    for name in given.only:
        if GOLDENS[name].log is _panda and not PANDA.exists():
            print(f"{name}: left out, {PANDA.name} is not there")
            continue
        with tempfile.TemporaryDirectory() as folder:
            result = run(GOLDENS[name], Path(folder))
        if given.what == "take":
            kept[name] = result
            given.file.write_text(json.dumps(kept, separators=(",", ":")))
            print(f"{name}: kept", flush=True)
            continue
        lines = differences(_unclocked(kept[name]), result)
        differing += bool(lines)
        print(f"{name}: {'the same' if not lines else f'{len(lines)} differences'}", flush=True)
        for line in lines[:12]:
            print(f"  {line}", flush=True)
    raise SystemExit(1 if differing else 0)


if __name__ == "__main__":
    main()
