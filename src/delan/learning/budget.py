"""Seconds parted among the steps of a long task."""

import time
from collections.abc import Mapping
from dataclasses import dataclass, field

LEAST = 1.0
"""Seconds that every step gets, however late it is."""


@dataclass(frozen=True)
class Budget:
    """Seconds for steps that follow each other, parted by shares; None: no bound. What one step takes beyond its part,
    the later ones miss, and what it leaves, they have."""

    seconds: float | None
    shares: Mapping[str, float]
    began: float = field(default_factory=time.perf_counter)

    @property
    def left(self) -> float:
        """The seconds that are left, at least 0."""
        if self.seconds is None:
            return float("inf")
        return max(0.0, self.began + self.seconds - time.perf_counter())

    def part(self, step: str) -> float | None:
        """The seconds of a step that begins now."""
        if self.seconds is None:
            return None
        names = list(self.shares)
        later = sum(self.shares[name] for name in names[names.index(step) :])
        return max(LEAST, self.left * self.shares[step] / later)
