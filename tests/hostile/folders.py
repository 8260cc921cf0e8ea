"""Logs of several files that were changed: joined files, data sets, options beside a log, packs.

Damage to a packed log ends at its checksum. Here what is inside is changed first and packed anew,
so that what stands behind the checksum is reached.
"""

import bz2
import gzip
import io
import json
import shutil
import zipfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow
import pyarrow.parquet
import zstandard

from delan import storage
from delan.logs.option_text import FOLDER_FILE
from tests.hostile import logs, models
from tests.hostile.trial import Outcome, command
from tests.logs.test_damaged_logs import damaged
from tests.support.log_writers import WRITERS

Rng = np.random.Generator
Columns = dict[str, np.ndarray]

# Options of a log as they stand in a file beside it; the attack changes them.
OPTIONS: dict[str, Any] = {
    "map": {"q": "q{}", "tau": ["tau0", "tau1"], "t": "t"},
    "join": ["other.csv"],
    "join_by": "row",
    "columns": 7,
    "degrees": True,
    "scale": {"q": [2.0], "tau": [1.0, 0.5]},
    "offset": {"q": [0.1, 0.0]},
    "gain": [0.1],
    "kp": [10.0, 20.0],
    "kd": [1.0],
    "transmission": [[50.0, 0.0], [50.0, 80.0]],
    "flip": {"tau": "all", "q": [1]},
    "exchanged": {"q": "qd", "qd": "q"},
    "joints": [0, "q1"],
    "sliding": [0],
    "time_scale": 0.001,
    "rate": 500.0,
}
# Values of options that are of the right type.
WORDS = ("q{0-9999}", "q{0-9999}," * 300, "other.csv", "../log.csv", "{}", "t", "time", "auto")
CONVERTED = ("parquet", "npz", "csv")
NAMES = ("log.csv", "arm_1.csv", "tau.txt", "t.csv", "a b.csv", "log.toml.csv")


def toml_of(value: Any) -> str:
    """Return a value as TOML, or as what looks like it where TOML has no such value."""
    if isinstance(value, dict):
        items = [f"{json.dumps(str(key))} = {toml_of(item)}" for key, item in value.items()]
        return "{" + ", ".join(items) + "}"
    if isinstance(value, list | tuple):
        return f"[{', '.join(map(toml_of, value))}]"
    if isinstance(value, str):
        return json.dumps(value)
    if value is None:
        return '""'
    return str(value).lower() if abs(value) < 10**308 else "9" * 5000


def hostile_options(rng: Rng) -> bytes:
    """Options with other values, names and types, as text that may be damaged."""
    names = rng.permutation(list(OPTIONS))[: rng.integers(1, 6)]
    options = {str(name): json.loads(json.dumps(OPTIONS[name])) for name in names}
    for _ in range(int(rng.integers(0, 4))):
        if rng.random() < 0.3:
            options[str(rng.choice(list(OPTIONS)))] = str(rng.choice(WORDS))
        elif options:
            models.changed_field(options, rng)
    lines = [f"{json.dumps(str(name))} = {toml_of(value)}" for name, value in options.items()]
    text = ("\n".join(lines) + "\n").encode("utf-8", "surrogatepass")
    return damaged(text, rng) if rng.random() < 0.1 and text else text


def text_of(columns: Columns, rng: Rng) -> bytes:
    """Columns as text, with a header or without, a row a line or spread over several."""
    names = []
    wide = []
    for name, values in columns.items():
        parts = values[:, None] if values.ndim == 1 else values
        wide += list(parts.T)
        plain = values.ndim == 1
        names += [name] if plain else [f"{name}{joint}" for joint in range(parts.shape[1])]
    length = max(map(len, wide), default=0)
    rows = []
    for row in range(length):
        rows.append([repr(float(column[row])) for column in wide if row < len(column)])
    if rng.random() < 0.1:
        return "\n".join(cell for row in rows for cell in row).encode()
    lines = [",".join(row) for row in rows]
    if rng.random() < 0.85:
        lines.insert(0, ",".join(names))
    return "\n".join(lines).encode()


def parquet_of(columns: Columns) -> bytes:
    lists = {name: list(values) if values.ndim == 2 else values for name, values in columns.items()}
    target = io.BytesIO()
    pyarrow.parquet.write_table(pyarrow.table(lists), target, row_group_size=100)
    return target.getvalue()


def arrays_of(columns: Columns) -> bytes:
    target = io.BytesIO()
    np.savez(target, **columns)  # pyright: ignore
    return target.getvalue()


def json_of(columns: Columns, rng: Rng) -> bytes:
    """Columns inside objects, with places that were exchanged, removed or made odd."""
    plain = {name: values.tolist() for name, values in columns.items()}
    document: dict[str, Any] = {
        "robot": "arm",
        "rate": 50,
        "run": {"q": plain.pop("q"), "in": plain},
    }
    for _ in range(int(rng.integers(1, 4))):
        if document:
            models.changed_field(document, rng)
    return json.dumps(document).encode("utf-8", "surrogatepass")


def some_rows(rng: Rng) -> Columns:
    """A log of few lengths, as every length has its own compiled programs."""
    return logs.motion(int(rng.choice([1, 3, 40, 120, 600])), seed=int(rng.integers(9)))


def changed(columns: Columns, rng: Rng) -> Columns:
    with np.errstate(all="ignore"):
        for _ in range(int(rng.choice([0, 0, 1, 2]) if columns else 0)):
            logs.changed_values(columns, rng)
    return columns


def joined(folder: Path, rng: Rng) -> list[object]:
    """Files side by side: each with some columns, some with times; return the command's words."""
    whole = some_rows(rng)
    names = [str(name) for name in rng.permutation(NAMES)[: rng.integers(2, 4)]]
    parts: list[Columns] = [{} for _ in names]
    for name, values in whole.items():
        # Mostly a log that has its own positions.
        place = 0 if name == "q" and rng.random() < 0.8 else rng.integers(len(parts))
        parts[place][name] = values
    for part in parts:
        if rng.random() < 0.6:
            part["t"] = whole["t"] + rng.choice([0.0, 0.0, 0.005, 1e3, -1e12])
    for name, part in zip(names, parts, strict=True):
        content = text_of(changed(part, rng), rng)
        if part and rng.random() < 0.3:
            content = arrays_of(part) if rng.random() < 0.5 else parquet_of(part)
        if content and rng.random() < 0.08:
            content = damaged(content, rng)
        (folder / name).write_bytes(content)
    words: list[object] = [folder / names[0]]
    for name in names[1:]:
        words += ["--join", "{}.csv" if rng.random() < 0.05 else name]
    if rng.random() < 0.5:
        words += ["--join-by", rng.choice(["row", "time"])]
    if rng.random() < 0.1:
        words += ["--columns", int(rng.integers(1, 9))]
    if rng.random() < 0.2:
        words += ["--map", f"tau={Path(names[-1]).stem}.tau{{}}"]
    if rng.random() < 0.1:
        words += ["--rate", 50]
    return words


def data_set(folder: Path, rng: Rng) -> list[object]:
    """A LeRobot data set whose description, shards or values were changed."""
    features: dict[str, Any] = {
        name: {"dtype": "float32", "shape": [2], "names": ["a", "b"]}
        for name in ("observation.state", "observation.effort", "action")
    }
    info: dict[str, Any] = {"codebase_version": "v3.0", "fps": 50, "features": features}
    for _ in range(int(rng.integers(3))):
        models.changed_field(info, rng)
    path = folder / "set"
    (path / "meta").mkdir(parents=True)
    text = json.dumps(info).encode("utf-8", "surrogatepass")
    (path / "meta" / "info.json").write_bytes(damaged(text, rng) if rng.random() < 0.2 else text)
    renamed = {"t": "timestamp", "q": "observation.state", "tau": "observation.effort"}
    for number in range(int(rng.integers(1, 4))):
        columns = changed(some_rows(rng), rng)
        columns = {renamed.get(name, name): values for name, values in columns.items()}
        if rng.random() < 0.7:
            length = len(columns["timestamp"])
            columns["episode_index"] = np.full(length, rng.choice([number, -1, 10**15]))
        try:
            content = parquet_of(columns)
        except pyarrow.ArrowInvalid:  # columns of different lengths
            content = b"PAR1"
        place = path / "data" / "chunk-000" / f"file-{number:03}.parquet"
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_bytes(damaged(content, rng) if rng.random() < 0.2 else content)
    return [path]


def described(folder: Path, rng: Rng) -> list[object]:
    """A log with a file of options beside it."""
    path = folder / "log.csv"
    path.write_bytes(text_of(changed(some_rows(rng), rng), rng))
    (folder / "other.csv").write_bytes(text_of(changed(some_rows(rng), rng), rng))
    name = FOLDER_FILE if rng.random() < 0.5 else "log.csv.toml"
    (folder / name).write_bytes(hostile_options(rng))
    return [path]


def nested(folder: Path, rng: Rng) -> list[object]:
    """JSON of objects in objects that were changed."""
    path = folder / "log.json"
    path.write_bytes(json_of(some_rows(rng), rng))
    return [path]


def packed(folder: Path, rng: Rng) -> list[object]:
    """A packed file whose content was damaged before it was packed."""
    packs: Sequence[Callable[[bytes], bytes]] = (gzip.compress, bz2.compress, zstandard.compress)
    form = str(rng.choice(["csv", "parquet", "mat", "json", "json lines"]))
    inner = WRITERS[form](folder / "inner", logs.motion(40, seed=1)).read_bytes()
    (folder / "inner").unlink()
    path = folder / "log"
    path.write_bytes(packs[rng.integers(len(packs))](damaged(inner, rng)))
    return [path]


def archive(folder: Path, rng: Rng) -> list[object]:
    """A zip archive of arrays, tensors or logs, one of whose files was damaged before packing."""
    form = str(rng.choice(["npz", "torch", "torch", "zip"]))
    original = folder / "original"
    columns = logs.motion(40, seed=1)
    if form == "zip":
        text = text_of(columns, rng)
        with zipfile.ZipFile(original, "w") as made:
            made.writestr("a.csv", text)
            made.writestr("b/c.csv", text)
    else:
        WRITERS[form](original, columns)
    with zipfile.ZipFile(original) as source:
        members = {name: source.read(name) for name in source.namelist()}
    original.unlink()
    chosen = str(rng.choice(list(members)))
    if form == "torch" and rng.random() < 0.7:
        chosen = "log/data.pkl"
    if members[chosen]:
        members[chosen] = damaged(members[chosen], rng)
    path = folder / "log"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as target:
        for name, content in members.items():
            target.writestr(name, content)
    return [path]


PLACES: dict[str, Callable[[Path, Rng], list[object]]] = {
    "joined": joined,
    "data set": data_set,
    "options": described,
    "nested": nested,
    "packed": packed,
    "archive": archive,
}


class Trial:
    """Folders with logs, one after the other."""

    def __init__(self, folder: Path):
        self._folder = folder
        self._model = folder / "m.delan"
        storage.save(models.originals()["chain"], self._model)
        self._place = folder / "place"

    def attack(self, number: int, seed: int, outcome: Outcome) -> None:
        """Write a folder and use the log in it."""
        rng = np.random.default_rng([seed, number])
        name = list(PLACES)[number % len(PLACES)]
        self._place.mkdir()
        words = PLACES[name](self._place, rng)
        case = f"seed {seed} case {number} ({name})"
        self._use(outcome, case, words, str(rng.choice(CONVERTED)))
        shutil.rmtree(self._place)
        outcome.end_case(self._folder, case)

    def _use(self, outcome: Outcome, case: str, words: list[object], form: str) -> None:
        """Check, prepare, score and convert a log; what was converted must be readable."""
        out = self._place / f"out.{form}"
        save = ["--save"] if form == "csv" else []
        outcome.run("check", case, lambda: command("check", *words, "--json", *save))
        outcome.run("fit", case, lambda: logs.dry_fit(self._place / "x", words))
        outcome.run("evaluate", case, lambda: command("evaluate", self._model, *words))
        if outcome.run("convert", case, lambda: command("convert", *words, "-o", out)):
            again = self._place / "again.npz"
            outcome.run("convert again", case, lambda: command("convert", out, "-o", again))
