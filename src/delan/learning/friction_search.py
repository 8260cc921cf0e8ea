"""Which friction a robot has: terms are added one by one, as long as unseen motion is explained
better.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

import jax
import numpy as np
from threadpoolctl import threadpool_limits

from ..joints import Dataset
from ..models.friction import FrictionSettings
from ..models.model import Model
from .friction_trials import FrictionTrial, motor_pairs

START = FrictionSettings(terms=("viscous", "coulomb", "offset"))
"""The friction that every robot is given to begin with."""
NO_FRICTION = "no friction"
"""The name of a model without any, in the steps of a choice."""
WORTHWHILE = 0.98
"""A term stays if it brings the error on motion left out below this share."""
SURE, SURE_OF_PAIR = 1.0, 2.0
"""and if the gain is so many standard errors large, told from the parts left out. Of the many pairs
one is the best by chance, so it must be the surer.
"""


@dataclass(frozen=True)
class SelectionStep:
    """A term that was added, or the best of those not worth it, and the error (nMSE) on motion left
    out it led to; the first step is no friction, which the others are compared with.
    """

    term: str
    validation: float
    kept: bool

    @property
    def told(self) -> str:
        if self.term == NO_FRICTION:
            return "to compare with"
        return "kept" if self.kept else "not worth it, the best of those left"


def select_friction(
    model: Model,
    training: Dataset,
    validation: Dataset,
    *,
    windows: bool = False,
    enough: Callable[[], bool] = lambda: False,
) -> tuple[FrictionSettings, tuple[SelectionStep, ...]]:
    """The friction to fit next, and how it was chosen, starting from the model's own; by samples or
    by windows.

    Once `enough` says so, no further candidate is tried, and a round that was not tried to its end
    chooses nothing.
    """
    # On small matrices the threads of a BLAS wait for each other, on a busy machine longer than the
    # work itself takes.
    with jax.enable_x64(True), threadpool_limits(1, user_api="blas"):
        trial = FrictionTrial.of(model, training, validation, windows=windows)
        assert model.friction is not None
        chosen = model.friction.settings
        without = trial.errors(replace(chosen, terms=(), pairs=()))
        errors = trial.errors(chosen)
        steps = [
            SelectionStep(NO_FRICTION, float(without.mean()), kept=False),
            SelectionStep(" + ".join(chosen.terms), float(errors.mean()), kept=True),
        ]
        while True:
            tried = []
            for name, candidate in _candidates(chosen, training.dof, windows):
                if enough():
                    return chosen, tuple(steps)
                tried.append((trial.errors(candidate), name, candidate))
            if not tried:  # a single joint with every term
                break
            best, name, candidate = min(tried, key=lambda one: one[0].mean())
            sure = SURE_OF_PAIR if candidate.pairs != chosen.pairs else SURE
            kept = best.mean() < WORTHWHILE * errors.mean() and _certainty(errors - best) > sure
            steps.append(SelectionStep(name, float(best.mean()), bool(kept)))
            if not kept:
                break
            chosen, errors = candidate, best
            trial.settle(chosen)
    return chosen, tuple(steps)


def _certainty(gains: np.ndarray) -> float:
    """How many standard errors a mean gain is large."""
    return float(gains.mean() / (gains.std(ddof=1) / np.sqrt(len(gains)) + np.finfo(float).tiny))


def _candidates(
    settings: FrictionSettings, dof: int, windows: bool
) -> Iterator[tuple[str, FrictionSettings]]:
    """The settings with one thing more; the load of a moment is not known of windows."""
    for term in ("stribeck", "stops") if windows else ("stribeck", "stops", "load"):
        if term not in settings.terms:
            yield term, replace(settings, terms=(*settings.terms, term))
    if "coulomb" in settings.terms:
        terms = tuple("asymmetric" if term == "coulomb" else term for term in settings.terms)
        yield "asymmetric", replace(settings, terms=terms)
    if len(settings.pairs) < dof:
        for name, pair in motor_pairs(dof):
            if pair not in settings.pairs:
                yield name, replace(settings, pairs=(*settings.pairs, pair))
