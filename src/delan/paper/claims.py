"""Claims, and how they are judged: by an interval over seeds against what the sentence asks.

A claim holds if the whole interval is on the right side of the criterion, and does not hold if the
whole interval is on the wrong side. Otherwise other seeds would give another verdict, and it is
not decided.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any, Literal, NamedTuple

import numpy as np
from jaxtyping import Float
from scipy.stats import trim_mean

Holds = Literal["yes", "no", "partly", "undecided"]
Values = Float[np.ndarray, " seeds"]

RESAMPLES = 2000
# What “comparable”, “the same” and “constant” mean in a claim: within this factor.
COMPARABLE = 2.0
# Errors below this are rounding: a ratio of two of them says nothing [N² m² or rad²].
ROUNDING = 1e-20


class Interval(NamedTuple):
    """A number over seeds: interquartile mean with its 95 % bootstrap interval.

    A single seed has an interval without width.
    """

    value: float
    low: float
    high: float

    def __str__(self) -> str:
        if self.low == self.high:
            return f"{self.value:.2g}"
        return f"{self.value:.2g} [{self.low:.2g}, {self.high:.2g}]"


@dataclass(frozen=True)
class Criterion:
    """What a claim asks of a number: to lie above `low` and below `high`; `words` say it."""

    words: str
    low: float = -np.inf
    high: float = np.inf

    def verdict(self, interval: Interval) -> Holds:
        """Return whether the interval is inside, outside or on both sides of a bound."""
        if interval.low > self.low and interval.high < self.high:
            return "yes"
        if interval.high <= self.low or interval.low >= self.high:
            return "no"
        # Without a width there is nothing to be undecided about.
        return "no" if interval.low == interval.high else "undecided"


BELOW = Criterion("a ratio below 1", high=1.0)
ABOVE = Criterion("a ratio above 1", low=1.0)
SAME = Criterion(
    f"a ratio between {1 / COMPARABLE:g} and {COMPARABLE:g}", low=1 / COMPARABLE, high=COMPARABLE
)


@dataclass(frozen=True)
class Claim:
    """A claim in our words, what was required and measured, and the verdict.

    Attributes:
        claim, where: the claim, and the figure or section of the paper that makes it.
        asked: the criterion, which is what the sentence of the paper says.
        measured: a sentence with the numbers.
        intervals: the numbers that were judged, by setting.
        ours: whether the claim is one of this package and not of the paper.
        remark: if it does not hold: what was tried or measured of the cause, or a conjecture, which
            says that it is one.
    """

    claim: str
    where: str
    measured: str
    asked: str
    holds: Holds
    seeds: int
    intervals: Mapping[str, Interval] = field(default_factory=dict)
    ours: bool = False
    remark: str = ""

    def as_dict(self) -> dict[str, Any]:
        content = asdict(self)
        content["intervals"] = {name: list(self.intervals[name]) for name in self.intervals}
        return content


def all_hold(verdicts: Iterable[Holds]) -> Holds:
    """Return the verdict on a claim that asks for several things at once."""
    found = set(verdicts)
    if found <= {"yes"}:
        return "yes"
    if "no" in found:
        return "partly" if "yes" in found else "no"
    return "undecided"


def compared(
    claim: str,
    where: str,
    values: Mapping[str, Values],
    criterion: Criterion,
    *,
    what: str,
    ours: bool = False,
    remark: str = "",
) -> Claim | None:
    """Judge a claim about positive numbers, such as ratios of errors, at every setting.

    Args:
        values: a number for each seed, by setting; settings without numbers are left out.
        what: what the numbers are.
        ours, remark: as in `Claim`.
    """
    intervals = {name: log_interval(seeds) for name, seeds in values.items() if len(seeds)}
    if not intervals:
        return None
    shown = ", ".join(f"{name}: {interval}" for name, interval in intervals.items())
    if list(intervals) == [""]:
        shown = str(intervals[""])
    holds = all_hold(criterion.verdict(interval) for interval in intervals.values())
    return Claim(
        claim=claim,
        where=where,
        measured=f"{what}, {shown}",
        asked=criterion.words,
        holds=holds,
        seeds=max(len(seeds) for seeds in values.values()),
        intervals=intervals,
        ours=ours,
        remark="" if holds == "yes" else remark,
    )


def noted(claim: Claim | None, note: str) -> Claim | None:
    """Return the claim with more said of its measurement."""
    return claim and replace(claim, measured=claim.measured + note)


def of_every_seed(passed: Sequence[bool]) -> Holds:
    """Return the verdict on what every seed must pass: not decided if only some do."""
    if all(passed):
        return "yes"
    return "undecided" if any(passed) else "no"


def log_interval(values: Values) -> Interval:
    """Return geometric interquartile mean and interval of positive numbers.

    What is not finite or zero counts as very large or very small, not as missing.
    """
    logs = np.log(np.clip(np.nan_to_num(values, nan=np.inf, posinf=np.inf), 1e-300, 1e300))
    mean, low, high = np.exp(linear_interval(logs)).tolist()
    return Interval(mean, low, high)


def linear_interval(values: Values) -> Interval:
    """Return interquartile mean and interval of numbers of any sign."""
    mean = interquartile_mean(values)
    low, high = bootstrap_interval([values]) or (mean, mean)
    return Interval(mean, low, high)


def interquartile_mean(values: Values) -> float:
    """Return the mean without the lowest and the highest quarter, rounded down to whole values."""
    return float(trim_mean(values, 0.25))


def bootstrap_interval(
    strata: Sequence[Float[np.ndarray, "..."]], *, seed: int = 0
) -> tuple[float, float] | None:
    """Return the 95 % interval of the interquartile mean of all strata (Agarwal et al. 2021).

    Seeds are resampled within each stratum (a setting, a task), never across: differences between
    strata are not random. None if no stratum has a second seed.
    """
    if all(len(values) < 2 for values in strata):
        return None
    random = np.random.default_rng(seed)
    resampled = []
    for values in strata:
        if len(values):
            resampled.append(values[random.integers(len(values), size=(RESAMPLES, len(values)))])
    means = trim_mean(np.concatenate(resampled, axis=1), 0.25, axis=1)
    low, high = np.percentile(means, (2.5, 97.5)).tolist()
    return low, high
