"""The search for a mechanism: joints that depend on several coordinates, found from the torques.

It begins at the plain chain that was fitted, with the friction chosen for it: what a structure must
explain is what these leave. Two kinds of structure are tried. A joint may move with a further
coordinate, as in a wrist with coupled drives. The slopes of the torque in all such ratios at once
say what each of them could gain to first order, while all other weights follow; the most promising
ones are tried, and the best is kept while every part of the log is explained better without having
been seen. Or an arm may be moved through a parallelogram: its angle is measured against the base of
the arm that carries it, a crank turns beside it, and the joint after it may stay level. No way
leads there from the plain arm, so that random arms of all of them race, and the winner is searched
for as a plain arm is, until it falls behind. A structure is claimed if it halves the error on every
part of the log.
"""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import cached_property
from typing import NamedTuple

import equinox as eqx
import jax
import numpy as np
from jaxtyping import Float, Int, PRNGKeyArray

from ..joints import evenly_spaced, nonzero_scale
from ..models.chain_draft import ChainDraft
from ..models.friction import Friction, FrictionSettings
from ..models.model import Model
from ..solvers import marquardt
from ..solvers.linearised import (
    FlatModel,
    drive_torques,
    numpy_friction,
    one_blas_thread,
    without_friction,
)
from ..solvers.loss import Scale
from ..solvers.plan import build, head, samples
from ..solvers.stages import SAMPLES, StartsStage
from .study import StructureStep, Study

# Samples that structures are tried on.
ROWS = 192
# Couplings that are tried at the same time, the most promising ones; fixed, so that a seed gives
# the same result everywhere. Iterations of each.
TOGETHER = 3
TRIAL_ITERATIONS = 6
# Iterations of the best one at most; it ends when that many of them in a row gain less.
ITERATIONS = 60
GAIN = 0.99
GAIN_ITERATIONS = 5
# Random arms of each parallelogram, and the rounds in which they race: iterations of each, and how
# many of the best of all go on.
ARMS = 6
ROUNDS = ((6, 6), (10, 3))
# Iterations of a refit without a part of the log.
REFIT_ITERATIONS = 8
# Parts that motion without folds is cut into.
PARTS = 5
# A coupling is kept on the way if it brings the error of every part below this share, ...
WORTHWHILE = 0.9
# ... and the structure is claimed if it does so for this share: the arm that a search ended at may
# be a wrong one, which any freedom improves a little.
CLAIMED = 0.5
# Ratios this close to a whole number are that number, if the fit is as good with it.
WHOLE = 0.03
AS_GOOD = 1.05
# An error at which nothing is left to explain.
EXACT = 1e-9
# Damping of the equations that the first-order gain of a ratio is computed from: the frames of a
# chain are not determined, so that these equations are singular.
LEAST_DAMPING = 1e-8


class Structure(NamedTuple):
    """The end of a search: a chain with the structure, or None if the plain chain stays."""

    model: Model | None
    steps: tuple[StructureStep, ...]


@one_blas_thread()
def search_structure(
    model: Model,
    study: Study,
    *,
    parallelograms: bool = True,
    enough: Callable[[], bool] = lambda: False,
) -> Structure:
    """Search for joints that depend on several coordinates, from a plain chain that was fitted.

    Couplings cost one set of slopes where there are none; `parallelograms` take a search.
    """
    with jax.enable_x64(True):
        return _Search(model, study, parallelograms, enough).run()


class _Racing(NamedTuple):
    """An arm whose angle is measured against the base of the joint before it, and its loss."""

    loss: float
    arm: int
    model: Model


@dataclass(frozen=True, eq=False)
class _Tried:
    """A model with its loss in training.

    `errors` computes its error on every part left out, which only those need that come so far.
    """

    model: Model
    loss: float
    judge: Callable[[Model], Float[np.ndarray, " parts"]]

    @cached_property
    def errors(self) -> Float[np.ndarray, " parts"]:
        return self.judge(self.model)

    def improves(self, other: "_Tried", share: float) -> bool:
        """Whether every part is explained better by a share; a loss that is not settles it."""
        if not self.loss < share * other.loss:
            return False
        return bool((self.errors < share * other.errors).all())

    def step(self, *, kept: bool) -> StructureStep:
        """What the fit keeps of it."""
        validation = None
        if "errors" in self.__dict__:
            validation = float(self.errors.mean())
        return StructureStep(_described(self.model), validation, kept)


@dataclass(eq=False)
class _Search:
    """One search, from the plain chain to the best structure."""

    model: Model
    study: Study
    parallelograms: bool
    enough: Callable[[], bool]

    def __post_init__(self) -> None:
        study = self.study
        self.friction = _friction(self.model, study)
        self.samples = samples(study.dataset, self.friction.settings)
        self.scale = Scale.of(study.dataset, study.settings.objective)
        self.parts = _parts(study)
        chosen = evenly_spaced(len(self.samples), SAMPLES)
        self.many = self._problem(chosen)
        self.few = self._problem(chosen[evenly_spaced(len(chosen), ROWS)])
        self.steps: list[StructureStep] = []

    def _problem(self, rows: Int[np.ndarray, " rows"]) -> marquardt.Problem:
        """The loss on some samples; frames may stretch on the way."""
        untied = self.scale.untied()
        return marquardt.Problem(self.samples.rows(rows), untied, self.study.settings.objective)

    def run(self) -> Structure:
        plain = self._tried(Model(_draft(self.model).relaxed(), self.friction))
        best = self._with_couplings(plain)
        if self.parallelograms and best.loss > EXACT:
            best = self._with_parallelograms(best)
        claimed = best.improves(plain, CLAIMED)
        steps = (plain.step(kept=True), *self.steps)
        if not claimed:
            return Structure(None, steps)
        settled = _draft(best.model).settled()
        return Structure(Model(settled, best.model.friction), steps)

    def _tried(self, model: Model) -> _Tried:
        """The model at the end of its descent."""
        loss, model = self._descended(model, self.many, ITERATIONS)
        return _Tried(model, loss, self._errors)

    def _is_kept(self, tried: _Tried, best: _Tried) -> bool:
        """Whether a structure explains every part better; it is noted in any case."""
        kept = tried.improves(best, WORTHWHILE)
        self.steps.append(tried.step(kept=kept))
        return kept

    # Couplings, one after the other.

    def _with_couplings(self, best: _Tried) -> _Tried:
        """Add couplings while every part of the log is explained better."""
        while best.loss > EXACT and not self.enough():
            found = self._best_coupling(best)
            if found is None:
                break
            tried = self._rounded(self._tried(found))
            if not self._is_kept(tried, best):
                break
            best = tried
        return best

    def _best_coupling(self, best: _Tried) -> Model | None:
        """The model with the one coupling more that fits best; None if none promises a gain."""
        model = best.model
        draft = _draft(model)
        gains = coupling_gains(model, self.many)
        order = np.argsort(-gains, axis=None, kind="stable")[:TOGETHER]
        promising = order[gains.ravel()[order] > (1 - WORTHWHILE) * best.loss]
        places = [divmod(int(place), gains.shape[1]) for place in promising]

        def tried(place: tuple[int, int]) -> tuple[float, Model]:
            with jax.enable_x64(True):
                candidate = Model(draft.coupled(*place).relaxed(), model.friction)
                return self._descended(candidate, self.few, TRIAL_ITERATIONS)

        with ThreadPoolExecutor(TOGETHER) as pool:
            ends = list(pool.map(tried, places))
        return min(ends, key=lambda end: end[0])[1] if ends else None

    def _rounded(self, tried: _Tried) -> _Tried:
        """The model with whole numbers for ratios that are near them, if it fits as well."""
        draft = _draft(tried.model)
        whole = draft.rounded(WHOLE)
        if (whole.rows == draft.rows).all():
            return tried
        other = self._tried(Model(whole.relaxed(), tried.model.friction))
        as_good = other.loss <= AS_GOOD * tried.loss + np.finfo(float).eps
        return other if as_good else tried

    # Parallelograms.

    def _with_parallelograms(self, best: _Tried) -> _Tried:
        """Replace the structure by the most promising parallelogram, if that explains more.

        Random arms of all of them race against each other, without a crank and without a plate, so
        that one compiled program serves all. The winner is searched for if it beats the arm that
        is known: from random places, a wrong structure hardly comes as near.
        """
        racing = self._racing(best.model)
        for iterations, most in ROUNDS:
            if not racing or self.enough():
                return best
            racing = self._best_of(racing, iterations)[:most]
        if not racing:
            return best
        first = racing[0]
        known, _ = self._descended(best.model, self.few, GAIN_ITERATIONS)
        if first.loss > known:
            self.steps.append(_Tried(first.model, first.loss, self._errors).step(kept=False))
            return best
        draft = _draft(first.model)
        variants = [draft]
        if first.arm < len(draft.rows) - 1:
            variants.append(draft.with_plate(first.arm))
        for variant in variants:
            if best.loss > EXACT and not self.enough():
                tried = self._with_crank(variant, first.arm, best)
                if self._is_kept(tried, best):
                    best = tried
        return best

    def _with_crank(self, draft: ChainDraft, arm: int, best: _Tried) -> _Tried:
        """A parallelogram that is searched for, with its crank if it comes so far."""
        model = self._searched(draft, CLAIMED * best.loss)
        if model is None:
            return _Tried(Model(draft.relaxed()), np.inf, self._errors)
        whole = _draft(model).with_crank(arm - 1, arm)
        return self._rounded(self._tried(Model(whole.relaxed(), model.friction)))

    def _racing(self, model: Model) -> list[_Racing]:
        """Random arms of the parallelograms at all neighbours that turn; none in a tree."""
        plain = _draft(model)
        sliding = self.study.dataset.joints.sliding
        if plain.tree.parents != tuple(range(-1, len(sliding) - 1)):
            return []
        arms = [arm for arm in range(1, len(sliding)) if not sliding[arm - 1 : arm + 1].any()]
        keys = iter(jax.random.split(jax.random.fold_in(self.study.key, 3), len(arms) * ARMS))
        racing = []
        for arm in arms:
            draft = plain.against_base(arm - 1, arm)
            racing += [_Racing(np.inf, arm, self._random(draft, next(keys))) for _ in range(ARMS)]
        return racing

    def _best_of(self, racing: list[_Racing], iterations: int) -> list[_Racing]:
        """The arms after some iterations, the best first."""

        def tried(each: _Racing) -> _Racing:
            with jax.enable_x64(True):
                usual = self.study.settings.marquardt
                loss, model = self._descended(each.model, self.few, iterations, usual)
                return each._replace(loss=loss, model=model)

        # The first one compiles the program for all threads.
        ends = [tried(racing[0])]
        with ThreadPoolExecutor(TOGETHER) as pool:
            ends += pool.map(tried, racing[1:])
        return sorted(ends, key=lambda each: each.loss)

    def _random(self, draft: ChainDraft, key: PRNGKeyArray) -> Model:
        """A random arm with the joints of a draft."""
        other = _draft(build(draft.relaxed().settings, self.study.dataset, key))
        other = replace(other, rows=draft.rows, free=draft.free)
        return Model(other.relaxed(), self.friction)

    def _searched(self, draft: ChainDraft, bar: float) -> Model | None:
        """The arm of a draft, searched for as a plain one is; None if it falls behind."""
        study = self.study
        stage = StartsStage(
            self.many.samples,
            self.many.samples,
            self.scale,
            study.settings.objective,
            study.settings.marquardt,
            build=lambda key: self._random(draft, key),
            epochs=1,
            stop=study.stop,
            bar=bar,
        )
        state = stage.start(None)
        state, _ = stage.advance(state, (0.0,), jax.random.fold_in(study.key, 2))
        return stage.model(state)

    # What both share.

    def _descended(
        self,
        model: Model,
        problem: marquardt.Problem,
        most: int,
        settings: marquardt.MarquardtSettings = marquardt.NEARBY,
    ) -> tuple[float, Model]:
        """The loss and the model after some iterations, fewer if they gain nothing any more."""
        descent = marquardt.Descent.of(model, problem, settings)
        losses = [np.inf]
        for _ in range(most):
            loss = descent.advance()
            losses.append(float(loss) if np.isfinite(loss) else np.inf)
            slow = len(losses) > GAIN_ITERATIONS and loss > GAIN * losses[-1 - GAIN_ITERATIONS]
            if slow or descent.stalled or self.study.stop.is_set() or not loss > EXACT**2:
                break
        return losses[-1], descent.model

    def _errors(self, model: Model) -> Float[np.ndarray, " parts"]:
        """The error of a model on every part of the log after a refit without it."""
        std = nonzero_scale(np.asarray(self.samples.tau).std(axis=0))

        def error(unseen: Int[np.ndarray, " rows"]) -> float:
            seen = np.setdiff1d(np.arange(len(self.samples)), unseen)
            problem = self._problem(seen[evenly_spaced(len(seen), SAMPLES)])
            with jax.enable_x64(True):
                other = self._descended(model, problem, REFIT_ITERATIONS)[1]
                judged = self.samples.rows(unseen[evenly_spaced(len(unseen), SAMPLES)])
                wrong = (drive_torques(other, judged) - np.asarray(judged.tau)) / std
            return float(np.mean(wrong**2))

        with ThreadPoolExecutor(TOGETHER) as pool:
            return np.array(list(pool.map(error, self.parts)))


def coupling_gains(model: Model, problem: marquardt.Problem) -> Float[np.ndarray, "joints dof"]:
    """By how much each further coordinate of a joint would lower the loss, to first order.

    The gain of a ratio s is (g_s − B_s C⁻¹ g)² / (B_ss − B_s C⁻¹ B_sᵀ), with the gradient g and the
    Gauss–Newton matrix C of all weights that the chain has, which follow the ratio.
    """
    draft = _draft(model)
    open_places = draft.rows == 0
    relaxed = Model(replace(draft, free=draft.free | open_places).relaxed(), model.friction)
    flat = FlatModel.of(without_friction(relaxed))
    assert model.friction is not None
    torque, slopes = problem.linearised(flat)
    point = problem.solved(flat, numpy_friction(model.friction), torque)
    near = problem.quadratic(point, slopes, np.zeros(1))
    gradient = near.gradient / near.unit
    curvature = near.curvature / (near.unit[:, None] * near.unit)
    # The ratios are the last weights of the part without friction.
    last = flat.weights.size
    places = np.arange(last - draft.rows.size, last)[open_places.ravel()]
    others = np.setdiff1d(np.arange(len(gradient)), places)
    across = curvature[np.ix_(others, places)]
    among = curvature[np.ix_(others, others)] + LEAST_DAMPING * np.eye(len(others))
    follow = np.linalg.solve(among, np.column_stack([across, gradient[others]]))
    slope = gradient[places] - across.T @ follow[:, -1]
    bend = np.diag(curvature)[places] - np.sum(across * follow[:, :-1], axis=0)
    gains = np.zeros(draft.rows.shape)
    gains[open_places] = slope**2 / np.maximum(bend, LEAST_DAMPING)
    return gains


def _draft(model: Model) -> ChainDraft:
    assert model.chain is not None  # only chains have a structure to search for
    return ChainDraft.of(model.chain)


def _friction(model: Model, study: Study) -> Friction:
    """The friction of the fitted chain, with springs: they are no structure of joints."""
    if model.friction is None:
        return head(FrictionSettings(terms=("spring",)), study.dataset)
    settings = model.friction.settings
    if "spring" in settings.terms:
        return model.friction
    friction = head(replace(settings, terms=(*settings.terms, "spring")), study.dataset)
    return eqx.tree_at(
        lambda friction: (friction.log_width, friction.log_stribeck_speed),
        friction,
        (model.friction.log_width, model.friction.log_stribeck_speed),
    )


def _parts(study: Study) -> list[Int[np.ndarray, " rows"]]:
    """The rows of each fold, or of parts of motion that has none."""
    if study.dataset.counted is None:
        return np.array_split(np.arange(len(study.dataset.samples)), PARTS)
    folds = range(len(study.split.folds))
    return [study.without(number).judged_rows for number in folds]


def _described(model: Model) -> str:
    """The joints of the tree that are not coordinates themselves, such as `wrist - 0.5 elbow`."""
    chain = _draft(model).settled()
    names = chain.tree_joints.names
    return ", ".join(name for name in names if name not in chain.joints.names) or "plain chain"
