"""What can be watched: a run that goes on, or a recording; both as rows of numbers up to a moment called now."""

from bisect import bisect_right
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

import numpy as np
from jaxtyping import Float

from ..data.recording_file import read_rows
from ..errors import DataError
from ..joints import Joints
from ..realtime.addresses import Address, WatchError
from ..realtime.live import Audience
from ..robots.arms import ARMS, arm_named
from ..robots.description import Arm

Columns = Mapping[str, Float[np.ndarray, "time _"]]

KEPT_SECONDS = 30.0
"""How much of the past is at hand of a run that goes on [s]."""
AHEAD = 2.4
"""How far ahead the wanted motion of a recording is shown [s]."""
COLUMNS = ("q_des", "qdd_des", "qd_des", "tau_ff", "qd", "model")
"""What a recording must hold beside t, q and tau to be replayed."""


@runtime_checkable
class Source(Protocol):
    """Somebody moves; this is what is known of it."""

    @property
    def arm(self) -> Arm: ...

    @property
    def dt(self) -> float: ...

    def recent(self, seconds: float) -> Columns:
        """The rows of the last seconds up to now."""
        ...

    def ahead(self) -> Float[np.ndarray, "points dof"]:
        """The wanted joint positions from now on."""
        ...


class LiveSource:
    """A run that goes on in another process."""

    def __init__(self, address: Address):
        self.audience = Audience(address)
        self.arm, self.dt = arm_named(address.robot), address.dt
        self._rows = np.zeros((0, self.audience.layout.width))
        self._ahead = np.zeros((0, address.dof))
        self._most = round(KEPT_SECONDS / address.dt)

    def poll(self) -> int:
        """Take in what happened; gives the number of new rows."""
        fresh = self.audience.rows()
        if len(fresh):
            self._rows = np.concatenate([self._rows, fresh])[-self._most :]
        ahead = self.audience.ahead()
        if ahead is not None:
            self._ahead = ahead
        return len(fresh)

    def recent(self, seconds: float) -> Columns:
        rows = self._rows
        if len(rows):
            rows = rows[np.searchsorted(rows[:, 0], rows[-1, 0] - seconds) :]
        return self.audience.layout.unpack(rows)

    def ahead(self) -> Float[np.ndarray, "points dof"]:
        return self._ahead

    def close(self) -> None:
        self.audience.close()


class ReplaySource:
    """A recording, of which now is any moment.

    Attributes:
        now: seconds since its beginning; length: of all of it [s].
        model: the file of the model beside it, if there is one.
    """

    def __init__(self, path: Path):
        rows = read_rows(path)
        missing = [name for name in COLUMNS if name not in rows.columns]
        if missing:
            raise DataError(str(path), "is missing: only a recording of `delan online` can be shown", column=missing[0])
        self.path, self.columns, self.dt = path, rows.columns, rows.dt
        self.arm = arm_of(rows.joints, rows.header.get("provenance", {}).get("robot"))
        self._times = (self.columns["t"][:, 0] - self.columns["t"][0, 0]).tolist()
        self.length, self.now = float(self._times[-1]), 0.0
        beside = path.with_name("model.delan")
        self.model = beside if beside.exists() else None

    def recent(self, seconds: float) -> Columns:
        first, end = bisect_right(self._times, self.now - seconds), self._place()
        return {name: column[first:end] for name, column in self.columns.items()}

    def ahead(self) -> Float[np.ndarray, "points dof"]:
        """Of the same motion alone, as nobody drew what comes after it."""
        end = self._place()
        piece = self.columns["trajectory"][:, 0]
        last = min(len(piece), end + round(AHEAD / self.dt))
        other = np.flatnonzero(piece[end - 1 : last] != piece[end - 1])
        return self.columns["q_des"][end - 1 : end - 1 + other[0] if len(other) else last : 10]

    def _place(self) -> int:
        return max(1, bisect_right(self._times, self.now))


def arm_of(joints: Joints, name: Any = None) -> Arm:
    """The arm of a recording, by the name it bears or by its joints."""
    if name in ARMS:
        return ARMS[name]
    for arm in ARMS.values():
        if arm.joints.names == joints.names:
            return arm
    raise WatchError(
        f"no arm of the package has the joints {', '.join(joints.names)}; recordings of {', '.join(ARMS)} can be shown"
    )
