"""The search for friction: terms are added while motion that was left out is explained better."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import combinations
from typing import NamedTuple

import jax
import numpy as np
from jaxtyping import Float

from ..joints import Dataset
from ..models.friction import FrictionSettings, MotorPair, Term
from ..models.model import Model
from ..solvers.linearised import one_blas_thread
from .friction_trial import DAMPINGS, FrictionTrial, motor_pairs

# The friction that every robot is given to begin with.
START = FrictionSettings(terms=("viscous", "coulomb", "offset"))
# Terms in the order in which they are tried; a new one of `mechanics/friction_terms.py` joins here.
# `periodic` is for those who ask for it: over a part of a turn its harmonics cancel each other at
# many times the torque of the joint (46 N m on a real WAM), and beyond that part they do not.
TRIED: tuple[Term, ...] = ("stribeck", "stops", "load", "spring")
# The name of a model without friction in the steps of a search.
NO_FRICTION = "no friction"
# A candidate is kept if it brings the error on the parts left out below this share, ...
WORTHWHILE = 0.98
# ... and if the mean gain is this many standard errors large. There are many pairs, and the best of
# them is the best by chance, so that a pair must be more certain.
SURE = 1.0
SURE_OF_PAIR = 1.4


@dataclass(frozen=True)
class SelectionStep:
    """A step of the search: a candidate and the error (nMSE) on the parts left out.

    The first step is a model without friction, to compare with. A candidate that was not kept is
    the best of those that were left, and ends the search.
    """

    term: str
    validation: float
    kept: bool

    @property
    def outcome(self) -> str:
        """What became of the candidate, for a table."""
        if self.term == NO_FRICTION:
            return "to compare with"
        if self.kept:
            return "kept"
        return "not worth it, the best of those left"


def select_friction(
    model: Model,
    parts: Sequence[Dataset],
    *,
    windows: bool = False,
    enough: Callable[[], bool] = lambda: False,
) -> tuple[FrictionSettings, tuple[SelectionStep, ...]]:
    """Choose the friction to fit next, starting from that of the model, by samples or by windows.

    Of more than two parts each is left out in turn; two are cut into more. The units are those of
    the first.

    Once `enough` returns true, no further candidate is tried, and a round that was not tried to its
    end chooses nothing.
    """
    with jax.enable_x64(True), one_blas_thread():
        trials = [FrictionTrial.of(model, *parts, windows=windows)]
        for damping in DAMPINGS[1:]:
            trials.append(trials[0].damped(damping))
        assert model.friction is not None
        chosen = model.friction.settings
        trial = min(trials, key=lambda trial: float(trial.errors(chosen).mean()))
        without = trial.errors(replace(chosen, terms=(), pairs=()))
        errors = trial.errors(chosen)
        trial.choose(chosen)
        steps = [
            SelectionStep(NO_FRICTION, float(without.mean()), kept=False),
            SelectionStep(" + ".join(chosen.terms), float(errors.mean()), kept=True),
        ]
        while True:
            tried = []
            for name, candidate in _candidates(chosen, parts[0].dof, windows):
                if enough():
                    return chosen, tuple(steps)
                paired = candidate.pairs != chosen.pairs
                tried.append(_Tried(name, candidate, trial.errors(candidate), paired))
            if not tried:  # a single joint with every term
                break
            # The best term and the best pair: where the better of them is not certain, the other
            # may be, and with it the first becomes so.
            best = min(tried, key=_Tried.error)
            others = [each for each in tried if each.paired != best.paired]
            rivals = [best, *sorted(others, key=_Tried.error)[:1]]
            kept = next((rival for rival in rivals if rival.is_better_than(errors)), None)
            shown = kept or best
            steps.append(SelectionStep(shown.name, shown.error(), kept is not None))
            if kept is None:
                break
            chosen = kept.settings
            errors = kept.errors
            trial.choose(chosen)
    return chosen, tuple(steps)


class _Tried(NamedTuple):
    """A candidate with its error on each part, and whether it adds a pair."""

    name: str
    settings: FrictionSettings
    errors: Float[np.ndarray, " parts"]
    paired: bool

    def error(self) -> float:
        """The mean over the parts."""
        return float(self.errors.mean())

    def is_better_than(self, errors: Float[np.ndarray, " parts"]) -> bool:
        """Whether the gain over other errors is worthwhile and certain."""
        sure = SURE_OF_PAIR if self.paired else SURE
        worthwhile = self.error() < WORTHWHILE * errors.mean()
        return bool(worthwhile and _certainty(np.log(errors / self.errors)) > sure)


def _candidates(
    settings: FrictionSettings, dof: int, windows: bool
) -> Iterator[tuple[str, FrictionSettings]]:
    """The settings with one thing more, by its name.

    A differential is two motors at once: one of them alone may explain a motion worse than none.
    """
    for term in TRIED:
        if windows and term == "load":
            continue  # a window has a mean torque, not the load of each moment
        if term not in settings.terms:
            yield term, replace(settings, terms=(*settings.terms, term))
    if settings.pairs and "armature" not in settings.terms:
        # The rotor of a motor that drives two joints couples their accelerations.
        yield "armature", replace(settings, terms=(*settings.terms, "armature"))
    if "coulomb" in settings.terms:
        place = settings.terms.index("coulomb")
        terms = (*settings.terms[:place], "asymmetric", *settings.terms[place + 1 :])
        yield "asymmetric", replace(settings, terms=terms)
    if len(settings.pairs) < dof:
        for name, pair in motor_pairs(dof):
            if pair not in settings.pairs:
                yield name, replace(settings, pairs=(*settings.pairs, pair))
    if len(settings.pairs) + 1 < dof:
        for first, second in combinations(range(dof), 2):
            motors = (MotorPair(first, second, 1.0), MotorPair(first, second, -1.0))
            if not set(motors).intersection(settings.pairs):
                name = f"differential of joints {first} and {second}"
                yield name, replace(settings, pairs=(*settings.pairs, *motors))


def _certainty(gains: np.ndarray) -> float:
    """The mean gain in units of its standard error; gains are shares, so that all parts count."""
    return float(gains.mean() / (gains.std(ddof=1) / np.sqrt(len(gains)) + np.finfo(float).tiny))
