"""Damaged logs of every format are read or refused with an error of delan, never with another."""

from pathlib import Path

import numpy as np
import pytest

from delan.errors import DelanError
from delan.logs.reading import read_log
from tests.support.log_writers import WRITERS, motion

# Words and numbers that break a parser where others stood.
WORDS = (b"nan", b"inf", b"-1e400", b"text", b'"', b",,", b"\n", b"\0")
WORDS += (b"\xff" * 8, b"9" * 40, b"\x7f" * 8)


def damaged(content: bytes, rng: np.random.Generator) -> bytes:
    """Cut, overwritten, shuffled, doubled, or with words and numbers where others stood."""
    made = bytearray(content)
    kind = rng.integers(7)
    if kind == 0:
        return bytes(made[: rng.integers(len(made) + 1)])
    if kind in (1, 2):
        for _ in range(int(rng.integers(1, 20))):
            made[rng.integers(len(made))] = rng.integers(256)
    elif kind == 3:
        at, size = sorted(rng.integers(0, len(made), 2))
        noise = bytes(rng.integers(0, 256, size - at, dtype=np.uint8))
        made[at:size] = noise if rng.random() < 0.5 else b""
    elif kind == 4:
        for _ in range(int(rng.integers(1, 5))):
            at = rng.integers(len(made))
            word = WORDS[rng.integers(len(WORDS))]
            made[at : at + (len(word) if rng.random() < 0.7 else 0)] = word
    elif kind == 5:
        at = sorted(rng.integers(0, len(made), 4))
        made = (
            made[: at[0]]
            + made[at[2] : at[3]]
            + made[at[1] : at[2]]
            + made[at[0] : at[1]]
            + made[at[3] :]
        )
    else:
        lines = bytes(made).split(b"\n")
        rng.shuffle(lines)
        made = bytearray(b"\n".join(lines))
    return bytes(made)


def fuzz(folder: Path, cases: int, seed: int) -> int:
    """Read damaged logs of every format and return the number of those that are still readable."""
    rng = np.random.default_rng(seed)
    contents = {}
    for form, write in WRITERS.items():
        data: dict = motion(12)
        if form in ("csv", "npz", "hdf5"):
            data["trajectory"] = np.repeat([1, 2], 6)
        contents[form] = write(folder / form.replace(" ", "_"), data).read_bytes()
    path = folder / "log"
    read = 0
    for case in range(cases):
        form = list(contents)[case % len(contents)]
        content = damaged(contents[form], rng)
        path.write_bytes(content)
        try:
            recording = read_log(path) if rng.random() < 0.7 else read_log(path, sound=False)
            read += 1
            assert recording.q.shape == recording.tau.shape
        except DelanError:
            pass
        except BaseException as error:
            raise AssertionError(f"case {case} of {form}, seed {seed}") from error
    return read


@pytest.mark.usefixtures("as_shipped")
def test_damaged_logs_of_every_form_get_our_errors(tmp_path):
    assert fuzz(tmp_path, 400, seed=0) > 10


@pytest.mark.slow
@pytest.mark.usefixtures("as_shipped")
def test_ten_thousand_damaged_logs_get_our_errors(tmp_path):
    assert fuzz(tmp_path, 10_000, seed=1) > 100
