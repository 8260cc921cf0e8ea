"""Logs of every format that were changed, through check, fit up to its training, and evaluate."""

import shutil
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np

from delan import storage
from delan.joints import Recording
from delan.learning.contenders import Chain
from delan.logs.preparation import PreparationSettings, prepare
from delan.logs.reading import read_log
from tests.hostile import models
from tests.hostile.trial import Outcome, command
from tests.logs.test_damaged_logs import damaged
from tests.support.log_writers import (
    NAMES,
    PACKED_WRITERS,
    WRITERS,
    write_joint_messages,
    write_topics,
)

Columns = dict[str, np.ndarray]


def _storage(write: Callable[[Path, Columns], Path], path: Path, data: Columns) -> Path:
    """Return the storage of a bag alone, without its folder."""
    folder = path.with_name(f"{path.name}_bag")
    try:
        write(folder, data)
        return next(folder.glob("*.mcap")).rename(path)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _several_topics(folder: Path, data: Columns) -> Path:
    """States without torques, torques beside them as plain numbers, and a gripper between."""
    names = list(NAMES[: data["q"].shape[1]])
    states: list[Any] = []
    for q, qd in zip(data["q"], data["qd"], strict=True):
        states.append({"name": names, "position": q, "velocity": qd})
    gripper = {"name": ["finger"], "position": np.ones(1)}
    topics = {"/joint_states": [*states, gripper], "/joint_torques": list(data["tau"])}
    return write_topics(folder, topics)


BAGS: dict[str, Callable[[Path, Columns], Path]] = {
    "bag of topics": partial(_storage, _several_topics)
}
for kind in ("controller", "old_controller", "dynamic", "trajectory"):
    BAGS[f"bag of {kind}"] = partial(_storage, partial(write_joint_messages, kind=kind))
# Every form of a log.
FORMS = WRITERS | PACKED_WRITERS | BAGS
# Share of the logs that are drawn, which takes a second.
SHOWN = 0.02
# Values that stand where others were, and what is done with times.
ROWS = (1, 2, 3, 40, 120, 600, 1500)
VALUES = (0.0, -0.0, 1e-320, 1e-30, 1e30, 1e200, 1.7e308, -1.7e308, np.inf, -np.inf, np.nan)


def motion(rows: int, seed: int) -> dict[str, np.ndarray]:
    """Motion of three joints, which the writers of bags expect."""
    two = models.motion(rows, seed)
    data = {name: getattr(two, name).copy() for name in ("t", "q", "qd", "tau")}
    if seed % 2:
        for name in ("q", "qd", "tau"):
            data[name] = np.concatenate([data[name], data[name][:, :1] * 0.5], axis=1)
    return data


def changed_values(data: dict[str, np.ndarray], rng: np.random.Generator) -> None:
    """Odd numbers, repeated, infinite, reversed or jumping times, constant or equal columns."""
    name = list(data)[rng.integers(len(data))]
    values = data[name]
    rows = len(values)
    if not rows:
        return
    first, last = sorted(rng.integers(rows + 1, size=2))
    kind = rng.integers(10)
    if kind < 3:
        count = int(rng.integers(1, 1 + rows))
        values[rng.integers(rows, size=count)] = rng.choice(VALUES)
    elif kind == 3:
        values[first:last] = values[first - 1]
    elif kind == 4:
        values[first:last] = values[first:last][::-1]
    elif kind == 5:
        values[first:] += rng.choice([1e-12, 1.0, 1e6, 1e16, 1e300])
    elif kind == 6:
        values *= rng.choice([0.0, 1e-300, 1e-9, 1e9, 1e150, 1e300])
    elif kind == 7:
        data[name] = np.full_like(values, rng.choice(VALUES))
    elif kind == 8:
        # Of a length that others have as well: every length has its own compiled programs.
        count = int(rng.choice([count for count in (0, *ROWS) if count <= rows]))
        first = int(rng.integers(rows - count + 1))
        for column in data:
            data[column] = data[column][first : first + count]
    elif "t" in data:
        data["t"] = np.repeat(data["t"][::2], 2)[: len(data["t"])]


class TrainingError(BaseException):
    """A fit has come to its first training. Not an `Exception`: nothing on its way catches it."""


def dry_fit(path: Path, words: Sequence[object] = ()) -> None:
    """Run `delan fit` up to its first training: read, check, prepare and split the log.

    `words` are the log and its options, if they are more than the path.
    """

    def train(*_: object) -> None:
        raise TrainingError

    with patch.object(Chain, "fit", train), suppress(TrainingError):
        out = path.with_suffix(".delan")
        command("fit", *(words or [path]), "--cutoff", 5, "--out", out)


class Trial:
    """Logs in a folder, changed one after the other."""

    def __init__(self, folder: Path):
        self._folder = folder
        self._model = folder / "m.delan"
        storage.save(models.originals()["chain"], self._model)
        self._log = folder / "log"

    def attack(self, number: int, seed: int, outcome: Outcome) -> None:
        """Change a log and use it; the next one where its format cannot hold the values."""
        rng = np.random.default_rng([seed, number])
        changed = None
        while changed is None:
            form = list(FORMS)[rng.integers(len(FORMS))]
            changed = self._changed(form, rng)
        content, how = changed
        self._log.write_bytes(content)
        case = f"seed {seed} case {number} ({how})"
        self._use(outcome, case, shown=rng.random() < SHOWN)
        outcome.end_case(self._folder, case)

    def _changed(self, form: str, rng: np.random.Generator) -> tuple[bytes, str] | None:
        """Return a changed log and what was changed in it; None if it cannot be written."""
        data: dict[str, Any] = motion(int(rng.choice(ROWS)), seed=int(rng.integers(9)))
        how = "bytes" if rng.random() < 0.2 else "values"
        with np.errstate(all="ignore"):
            if how == "values":
                for _ in range(int(rng.choice([1, 1, 2, 3]))):
                    changed_values(data, rng)
            path = self._folder / "original"
            try:
                content = FORMS[form](path, data).read_bytes()
            except Exception:  # whatever the libraries raise that write the formats
                return None
        path.unlink(missing_ok=True)
        if how == "bytes":
            content = damaged(content, rng)
        return content, f"{form}, {how}"

    def _use(self, outcome: Outcome, case: str, *, shown: bool) -> None:
        """Check, prepare and score a log."""
        path = self._log
        outcome.run("check", case, lambda: command("check", path, "--json"))
        if shown:
            picture = path.with_suffix(".png")
            outcome.run("check, shown", case, lambda: command("check", path, "--plot", picture))
        outcome.run("fit", case, lambda: dry_fit(path))
        found: list[Recording] = []
        if outcome.run("read", case, lambda: found.append(read_log(path))):
            settings = PreparationSettings()
            outcome.run("prepare", case, lambda: prepare(found[0], settings))
            outcome.run("evaluate", case, lambda: command("evaluate", self._model, path))
