"""What can go wrong at the doors of the package: each error says what was given, what was expected and what to do."""

import sys


def installing(extra: str) -> str:
    """The command that brings an extra of delan into the environment that runs."""
    return f"{sys.executable} -m pip install 'delan[{extra}]'"


class DelanError(Exception):
    """Every error that delan raises on purpose."""


class SettingsError(DelanError, ValueError):
    """A setting that cannot be used."""


class DataError(DelanError, ValueError):
    """Data that cannot be used; keeps where the fault sits.

    Attributes:
        source: the file or object the data came from.
        column: the column at fault, such as `q1`, if one is.
        row: the first row at fault, counted from 0 without the header, if one is.
    """

    def __init__(self, source: str, problem: str, *, column: str | None = None, row: int | None = None):
        self.source, self.column, self.row = source, column, row
        where = [source]
        if column is not None:
            where.append(f"column {column}")
        if row is not None:
            where.append(f"row {row}")
        super().__init__(f"{', '.join(where)}: {problem}")


class ModelFileError(DelanError, ValueError):
    """A model file that cannot be read: foreign, truncated, damaged or from a newer version."""

    def __init__(self, path: str, problem: str):
        self.path = path
        super().__init__(f"{path}: {problem}")


class ModelError(DelanError, ValueError):
    """A model asked for something that it cannot give, or joined with data that does not fit it."""


class RobotError(DelanError, ValueError):
    """A robot that cannot be built or driven as asked."""


class CompilerError(DelanError):
    """There is no C compiler, or it refused the code of a model."""
