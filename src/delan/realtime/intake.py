"""From the learner to the robot: what was learned goes through the gate, and the learner is looked after."""

from .gate import Gate
from .learner import Learner
from .plan import Plan
from .stats import Event

WATCH_SECONDS = 1.0
"""How often a learner is looked after [s]."""


class Intake:
    """Brings what a learner learned through the gate into use, and looks after the learner.

    Attributes:
        swaps: models taken into use; swapped: when the last was [s], None before the first.
        events: what happened, in order.
    """

    def __init__(self, learner: Learner, gate: Gate, dt: float):
        self.learner, self.gate, self._dt = learner, gate, dt
        self.swaps = 0
        self.swapped: float | None = None
        self.events: list[Event] = []
        self._lost, self._restarts = learner.lost, learner.restarts
        self._next_watch = 0

    def take(self, k: int, t: float, plan: Plan, *, wait: bool = False) -> None:
        """In period k, at the time t [s]: see what became of the weights that are being judged, or ask for new ones."""
        verdict = self.gate.verdict(wait=wait)
        if verdict is not None and verdict.cause is None:
            self.swaps, self.swapped = self.swaps + 1, t
            self.events.append(Event(t, "swap", f"error {verdict.error:.3g}, before {verdict.before:.3g}"))
        elif verdict is not None:
            self.events.append(Event(t, "refusal", str(verdict.cause)))
        candidate = None if self.gate.busy else self.learner.poll(t)
        if candidate is not None:
            self.gate.offer(candidate.weights, plan.recent(k, *self.gate.wanted))

    def watch(self, k: int, t: float) -> None:
        """About once a second see to it that the learner lives."""
        if k < self._next_watch:
            return
        self._next_watch = k + round(WATCH_SECONDS / self._dt)
        restarts = self.learner.restarts
        self.learner.watch()
        if self.learner.restarts > restarts:
            self.events.append(Event(t, "restart", "the learner had ended and was started again"))

    def all_events(self) -> tuple[Event, ...]:
        """What happened, and what the learner noticed, in the order of time."""
        noticed = (Event(t, "learner", text) for t, text in self.learner.events)
        return tuple(sorted((*self.events, *noticed), key=lambda event: event.t))

    @property
    def lost(self) -> int:
        """Samples that the learner never saw, in this run."""
        return self.learner.lost - self._lost

    @property
    def restarts(self) -> int:
        """How often the learner was started again, in this run."""
        return self.learner.restarts - self._restarts
