"""Samples from a running robot: accelerations by the past alone, all signals delayed alike."""

import numpy as np
from jaxtyping import Float
from scipy.signal import butter, sosfilt, sosfilt_zi

from ..errors import SettingsError

Rows = Float[np.ndarray, "rows columns"]
Kept = Float[np.ndarray, "kept samples_columns"]

SETTLING = 1.5
"""After a gap the filter's output is left out for so many periods of its cut-off."""


class CausalSampler:
    """Turns what was measured at the start of each control period into samples (q, q̇, q̈, τ) to learn from.

    Between two measurements the torque is constant, so the sample stands in the middle: q and q̇ are means, q̈ is the
    difference of the velocities over dt, exact to second order. Then one low-pass filter of second order runs over all
    four alike: noise goes, and the delay is the same for all. After a gap in time it starts anew.
    """

    def __init__(self, dof: int, dt: float, *, rate: float = 100.0, cutoff: float | None = 30.0):
        """Periods of dt [s]; gives `rate` samples a second, low-passed at `cutoff` [Hz], None: as measured."""
        if cutoff is not None and not 0 < cutoff < 0.5 / dt:
            raise SettingsError(
                f"the cut-off must lie between 0 and half the control rate, {0.5 / dt:g} Hz, got {cutoff}"
            )
        if not 0 < rate <= 1 / dt * (1 + 1e-9):
            raise SettingsError(f"the rate must lie between 0 and the control rate, {1 / dt:g} Hz, got {rate}")
        self._dof, self._dt = dof, dt
        self._every = max(1, round(1 / (rate * dt)))
        self._filter = None if cutoff is None else butter(2, cutoff, fs=1 / dt, output="sos")
        self._settle = 0 if cutoff is None else int(np.ceil(SETTLING / (cutoff * dt)))
        self._last: np.ndarray | None = None
        self._memory: np.ndarray | None = None
        self._since_gap = 0

    def push(self, rows: Rows) -> Kept:
        """Samples (q, q̇, q̈, τ) side by side, from rows (t, q, q̇, τ) that follow those pushed before."""
        if self._last is not None:
            rows = np.vstack([self._last, rows])
        if len(rows) == 0:
            return np.zeros((0, 4 * self._dof))
        self._last = rows[-1:]
        t, n = rows[:, 0], self._dof
        q, qd, tau = rows[:, 1 : n + 1], rows[:, n + 1 : 2 * n + 1], rows[:, 2 * n + 1 :]
        with np.errstate(invalid="ignore"):
            mean_q, mean_qd, qdd = (q[1:] + q[:-1]) / 2, (qd[1:] + qd[:-1]) / 2, np.diff(qd, axis=0) / self._dt
            middle = np.hstack([mean_q, mean_qd, qdd, tau[:-1]])
        good = (np.abs(np.diff(t) - self._dt) < 0.2 * self._dt) & np.isfinite(middle).all(axis=1)
        breaks = np.flatnonzero(~good)
        kept = []
        for start, end in zip([-1, *breaks], [*breaks, len(middle)], strict=True):
            if start >= 0:
                self._memory, self._since_gap = None, 0
            kept.append(self._smooth(middle[start + 1 : end]))
        return np.vstack(kept)

    def _smooth(self, samples: Rows) -> Kept:
        """The samples of a stretch without gaps, low-passed and thinned, without those the filter still swings in."""
        numbers = self._since_gap + np.arange(len(samples))
        self._since_gap += len(samples)
        if self._filter is not None and len(samples):
            if self._memory is None:  # as if the first sample had stood there for ever
                self._memory = sosfilt_zi(self._filter)[:, :, None] * samples[0]
            samples, self._memory = sosfilt(self._filter, samples, axis=0, zi=self._memory)
        return samples[(numbers >= self._settle) & (numbers % self._every == 0)]
