"""Exceptions of delan. Their messages say what was given, what was expected and what to do.

Messages quote names and values from files. Every exception makes its message safe for a terminal:
control characters are escaped, and long messages are shortened in the middle.
"""

import sys
from collections.abc import Sequence

# Characters of a message; of one with several lines, such as that of a compiler.
LONGEST_MESSAGE = 2_000
LONGEST_LINES = 8_000


def installing(extra: str) -> str:
    """Return the command that installs an extra of delan into the running environment."""
    return f"{sys.executable} -m pip install 'delan[{extra}]'"


def printable(text: str, longest: int = LONGEST_MESSAGE, *, lines: bool = False) -> str:
    """Return a text that a terminal shows as it is: no control characters, and not too long.

    With `lines`, line breaks stay. The end of a long text stays, too: it says what to do.
    """
    if len(text) > longest:
        tail = longest // 4
        text = f"{text[: longest - tail - 3]} … {text[-tail:]}"
    characters = []
    for character in text:
        if character.isprintable() or (lines and character == "\n"):
            characters.append(character)
        else:
            characters.append(character.encode("unicode_escape").decode("ascii"))
    return "".join(characters)


class DelanError(Exception):
    """Base class of all exceptions of delan."""

    # Whether the message may have several lines. Text of a file must not break any.
    has_lines = False

    def __init__(self, message: str = ""):
        longest = LONGEST_LINES if self.has_lines else LONGEST_MESSAGE
        super().__init__(printable(message, longest, lines=self.has_lines))


class SettingsError(DelanError, ValueError):
    """A setting is invalid or contradicts another.

    Attributes:
        problem: what is wrong.
        setting: name of the setting, which then begins the message; None if `problem` names it.
    """

    def __init__(self, problem: str, *, setting: str | None = None):
        self.problem = problem
        self.setting = setting
        super().__init__(problem if setting is None else f"{setting} {problem}")


class DataError(DelanError, ValueError):
    """Invalid data.

    Attributes:
        source: file or object that the data came from.
        problem: what is wrong, and what to do.
        column: name of the invalid column, such as `q1`, or None.
        row: number of the first invalid row, counted from 0 without the header, or None.
    """

    def __init__(
        self, source: str, problem: str, *, column: str | None = None, row: int | None = None
    ):
        self.source = source
        self.problem = problem
        self.column = column
        self.row = row
        where = [source]
        if column is not None:
            where.append(f"column {column}")
        if row is not None:
            where.append(f"row {row}")
        super().__init__(f"{', '.join(where)}: {problem}")


class UnreadableLogsError(DelanError, ValueError):
    """Several logs that cannot be read, one line for each problem."""

    has_lines = True

    def __init__(self, heading: str, problems: Sequence[DataError]):
        alike: dict[tuple[str | None, str], list[DataError]] = {}
        for problem in problems:
            alike.setdefault((problem.column, problem.problem), []).append(problem)
        lines = [heading]
        for first, *others in alike.values():
            more = f" (and {len(others)} more of the same kind)" if others else ""
            lines.append(f"{first}{more}")
        super().__init__("\n  ".join(lines))


class ModelFileError(DelanError, ValueError):
    """A model file that cannot be read: of another format or version, truncated or damaged."""

    def __init__(self, path: str, problem: str):
        self.path = path
        super().__init__(f"{path}: {problem}")


class ModelError(DelanError, ValueError):
    """A model that lacks a requested feature, or does not fit the data it is used with."""


class RobotError(DelanError, ValueError):
    """A robot that cannot be built or driven as requested."""


class CompilerError(DelanError):
    """A missing C compiler, or one that rejects the generated code."""

    has_lines = True
