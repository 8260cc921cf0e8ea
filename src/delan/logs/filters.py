"""Low-pass filters and derivatives of logged signals, offline and on a running robot."""

import numpy as np
from jaxtyping import Float
from scipy.signal import butter, sosfilt, sosfilt_zi, sosfiltfilt

from ..errors import DataError, SettingsError
from ..joints import Dataset, Recording

# Order of the Butterworth filter. Run forwards and backwards, it is twice as steep and has no lag.
ORDER = 4

# Rows that the filter needs, one more than the padding of `sosfiltfilt`.
FEWEST = 3 * (2 * ORDER + 1) + 1

# Highest cut-off as a share of the sampling rate: above it, central differences are no longer
# close to derivatives.
HIGHEST_CUTOFF = 0.2

# Lowest cut-off as a share of the sampling rate: below it, rounding makes the filter singular.
LOWEST_SHARE = 1e-6

# Cut-offs that the motion of a robot may need [Hz].
LOWEST_CUTOFF = 1e-3
LARGEST_CUTOFF = 1e6

# Samples kept per period of the cut-off; more of them are redundant.
SAMPLES_PER_PERIOD = 10

# Periods of the cut-off after a gap in which the causal filter has not settled.
SETTLING = 1.5

Rows = Float[np.ndarray, "rows columns"]
SampleRows = Float[np.ndarray, "samples sample_columns"]


def smoothed(
    values: Float[np.ndarray, "time *rest"], rate: float, cutoff: float
) -> Float[np.ndarray, "time *rest"]:
    """Return rows at an even rate [Hz] after a zero-phase low-pass with the cut-off [Hz]."""
    if cutoff < LOWEST_SHARE * rate:
        raise SettingsError(
            f"a cut-off of {cutoff:g} Hz is less than a millionth of the sampling rate, "
            f"{rate:g} Hz; give a higher one"
        )
    return sosfiltfilt(butter(ORDER, cutoff, fs=rate, output="sos"), values, axis=0)


def stride(step: float, cutoff: float) -> int:
    """Return how many steps [s] apart samples may be to represent signals below the cut-off [Hz].

    A small tolerance keeps a quotient such as 9.9999999 at 10.
    """
    return max(1, int(1 / (SAMPLES_PER_PERIOD * cutoff * step) + 1e-6))


def low_passed(recording: Recording, cutoff: float) -> Dataset:
    """Return each trajectory after a zero-phase low-pass over q, q̇ and τ with the cut-off [Hz].

    q̈ is the central difference of the filtered q̇; q̇, if it was not logged, that of the filtered
    q. The torque goes through the same filter, so that both sides of the equation of motion lose
    the same frequencies.
    """
    q = np.empty_like(recording.q)
    qd = np.empty_like(recording.q)
    qdd = np.empty_like(recording.q)
    tau = np.empty_like(recording.q)
    for label in np.unique(recording.trajectory):
        rows = recording.trajectory == label
        t = recording.t[rows]
        rate = (len(t) - 1) / (t[-1] - t[0]) if len(t) > 1 else 0.0
        if len(t) < FEWEST or not 0 < cutoff < rate / 2:
            problem = (
                f"trajectory {label} has {len(t)} samples at {rate:.4g} Hz; a cut-off of "
                f"{cutoff:g} Hz needs at least {FEWEST} samples at more than {2 * cutoff:g} Hz: "
                "lower the cut-off or record longer"
            )
            raise DataError(recording.source, problem, row=int(np.flatnonzero(rows)[0]))
        velocity = None
        if recording.qd is not None:
            velocity = smoothed(recording.qd[rows], rate, cutoff)
        q[rows] = smoothed(recording.q[rows], rate, cutoff)
        qd[rows], qdd[rows] = derivatives(t, q[rows], velocity)
        tau[rows] = smoothed(recording.tau[rows], rate, cutoff)
    return Dataset(
        t=recording.t,
        q=q,
        qd=qd,
        qdd=qdd,
        tau=tau,
        trajectory=recording.trajectory,
        joints=recording.joints,
        source=recording.source,
    )


def derivatives(
    t: np.ndarray, q: np.ndarray, qd: np.ndarray | None
) -> tuple[np.ndarray, np.ndarray]:
    """Return q̇, as given or by central differences of q, and q̈ by those of q̇."""
    if qd is None:
        qd = np.asarray(np.gradient(q, t, axis=0, edge_order=2))
    return qd, np.asarray(np.gradient(qd, t, axis=0, edge_order=2))


class CausalSampler:
    """Turns the measurements of a control loop into samples (q, q̇, q̈, τ) to learn from.

    The torque is constant between two measurements, so a sample lies in the middle of a period: q
    and q̇ are means, q̈ is the difference of the velocities over dt, exact to second order. A
    low-pass of second order then filters all four alike, so that they share one lag. After a gap in
    time the filter restarts.
    """

    def __init__(self, dof: int, dt: float, *, rate: float = 100.0, cutoff: float | None = 30.0):
        """Sample periods of dt [s] at `rate` [Hz], low-passed at `cutoff` [Hz] if it is given."""
        if cutoff is not None and not 0 < cutoff < 0.5 / dt:
            raise SettingsError(
                "the cut-off must lie between 0 and half the control rate, "
                f"{0.5 / dt:g} Hz, got {cutoff}"
            )
        if not 0 < rate <= 1 / dt * (1 + 1e-9):
            raise SettingsError(
                f"the rate must lie between 0 and the control rate, {1 / dt:g} Hz, got {rate}"
            )
        self._dof = dof
        self._dt = dt
        self._every = max(1, round(1 / (rate * dt)))
        self._filter = None
        self._settling_rows = 0
        if cutoff is not None:
            self._filter = butter(2, cutoff, fs=1 / dt, output="sos")
            self._settling_rows = int(np.ceil(SETTLING / (cutoff * dt)))
        self._last: np.ndarray | None = None
        self._state: np.ndarray | None = None
        self._since_gap = 0

    def push(self, rows: Rows) -> SampleRows:
        """Return samples (q, q̇, q̈, τ) side by side from the next rows (t, q, q̇, τ)."""
        if self._last is not None:
            rows = np.vstack([self._last, rows])
        if len(rows) == 0:
            return np.zeros((0, 4 * self._dof))
        self._last = rows[-1:]
        n = self._dof
        t = rows[:, 0]
        q = rows[:, 1 : n + 1]
        qd = rows[:, n + 1 : 2 * n + 1]
        tau = rows[:, 2 * n + 1 :]
        with np.errstate(invalid="ignore"):
            mean_q = (q[1:] + q[:-1]) / 2
            mean_qd = (qd[1:] + qd[:-1]) / 2
            qdd = np.diff(qd, axis=0) / self._dt
            middle = np.hstack([mean_q, mean_qd, qdd, tau[:-1]])
        # A control loop keeps its period, unlike a log: a fifth of it is already a disturbance.
        even = np.abs(np.diff(t) - self._dt) < 0.2 * self._dt
        breaks = np.flatnonzero(~(even & np.isfinite(middle).all(axis=1)))
        samples = []
        for start, end in zip([-1, *breaks], [*breaks, len(middle)], strict=True):
            if start >= 0:
                self._state = None
                self._since_gap = 0
            samples.append(self._filtered(middle[start + 1 : end]))
        return np.vstack(samples)

    def _filtered(self, rows: Rows) -> SampleRows:
        """Filter and thin rows without gaps, and drop those before the filter has settled."""
        numbers = self._since_gap + np.arange(len(rows))
        self._since_gap += len(rows)
        if self._filter is not None and len(rows):
            if self._state is None:  # as if the first row had been constant for ever
                self._state = sosfilt_zi(self._filter)[:, :, None] * rows[0]
            rows, self._state = sosfilt(self._filter, rows, axis=0, zi=self._state)
        return rows[(numbers >= self._settling_rows) & (numbers % self._every == 0)]
