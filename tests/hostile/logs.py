"""Logs of every format that were changed, through check, the preparation of a fit, and evaluate."""

from pathlib import Path
from typing import Any

import numpy as np

from delan import storage
from delan.joints import Recording
from delan.logs.preparation import PreparationSettings, prepare
from delan.logs.reading import read_log
from tests.hostile import models
from tests.hostile.trial import Outcome, command
from tests.logs.test_damaged_logs import damaged
from tests.support.log_writers import PACKED_WRITERS, WRITERS

# Every form of a log.
FORMS = WRITERS | PACKED_WRITERS
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
        for column in data:
            data[column] = data[column][first:last]
    else:
        data["t"] = np.repeat(data["t"][::2], 2)[:rows]


def use(outcome: Outcome, path: Path, model: Path, case: str, number: int) -> None:
    """Read, check, prepare and score a log, as the commands do."""
    outcome.run("check", case, lambda: command("check", path, "--json"))
    if number % 4 == 0:
        picture = path.with_suffix(".png")
        outcome.run("check, shown", case, lambda: command("check", path, "--plot", picture))
    found: list[Recording] = []
    if not outcome.run("read", case, lambda: found.append(read_log(path))):
        return
    recording = found[0]
    for cutoff in (None, 5.0):
        settings = PreparationSettings(cutoff=cutoff)
        outcome.run("prepare", case, lambda settings=settings: prepare(recording, settings))
    if number % 10 == 0:  # every length of a log costs the compiler's time
        outcome.run("evaluate", case, lambda: command("evaluate", model, path))


def attack(count: int, seed: int, folder: Path) -> Outcome:
    """Change `count` logs and use each of them."""
    rng = np.random.default_rng(seed)
    outcome = Outcome()
    model = folder / "m.delan"
    storage.save(models.originals()["chain"], model)
    place = folder / "log"
    for number in range(count):
        form = list(FORMS)[number % len(FORMS)]
        data: dict[str, Any] = motion(int(rng.choice(ROWS)), seed=int(rng.integers(9)))
        how = "bytes"
        with np.errstate(all="ignore"):
            if rng.random() < 0.8:
                how = "values"
                for _ in range(int(rng.integers(1, 4))):
                    changed_values(data, rng)
            content = written(form, data, folder, number)
        if content is None:
            continue
        if how == "bytes":
            content = damaged(content, rng)
        place.write_bytes(content)
        case = f"seed {seed} case {number} ({form}, {how})"
        use(outcome, place, model, case, number)
        outcome.end_case(folder, case)
    return outcome


def written(form: str, data: dict[str, Any], folder: Path, number: int) -> bytes | None:
    """Return the log in a format; None where the library that writes it refuses the values."""
    path = folder / f"{form.replace(' ', '_')}{number}"
    try:
        return FORMS[form](path, data).read_bytes()
    except Exception:
        return None
