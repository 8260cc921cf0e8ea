"""Exceptions of delan. Their messages say what was given, what was expected and what to do."""

import sys


def installing(extra: str) -> str:
    """Return the command that installs an extra of delan into the running environment."""
    return f"{sys.executable} -m pip install 'delan[{extra}]'"


class DelanError(Exception):
    """Base class of all exceptions of delan."""


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
        column: name of the invalid column, such as `q1`, or None.
        row: number of the first invalid row, counted from 0 without the header, or None.
    """

    def __init__(
        self, source: str, problem: str, *, column: str | None = None, row: int | None = None
    ):
        self.source = source
        self.column = column
        self.row = row
        where = [source]
        if column is not None:
            where.append(f"column {column}")
        if row is not None:
            where.append(f"row {row}")
        super().__init__(f"{', '.join(where)}: {problem}")


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
