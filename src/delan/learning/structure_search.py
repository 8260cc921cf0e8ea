"""The search for a mechanism: joints that depend on several coordinates, found from the torques.

It begins where a plain chain leaves torque unexplained. Two kinds of structure are tried. A joint
may move with a further coordinate, as in a wrist with coupled drives: the ratio starts at zero and
is learned, and the best coupling is kept while every part of the log is explained better without
having been seen. Or an arm may be moved through a parallelogram: its angle is measured against the
base of the arm that carries it, a crank turns beside it, and the joint after it may stay level;
such arms are searched for anew. A structure is claimed if it halves the error on every part of the
log.
"""

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import NamedTuple

import jax
import numpy as np
from jaxtyping import Float, Int

from ..joints import evenly_spaced, nonzero_scale
from ..models.chain import LagrangianChainSettings
from ..models.chain_draft import ChainDraft
from ..models.friction import FrictionSettings
from ..models.model import Model
from ..solvers import marquardt
from ..solvers.linearised import drive_torques, one_blas_thread
from ..solvers.loss import Samples, Scale
from ..solvers.plan import build, head
from ..solvers.stages import SAMPLES, StartsStage
from .study import StructureStep, Study

# Friction and springs that every structure is tried with: what a robot usually has, so that it is
# not mistaken for structure.
FRICTION = FrictionSettings(terms=("viscous", "coulomb", "offset", "spring"))
# Samples that couplings are tried on, the iterations of each, and those of the best one.
ROWS = 192
TRIAL_ITERATIONS = 6
ITERATIONS = 60
# Couplings that are tried at the same time; fixed, so that a seed gives the same result everywhere.
TOGETHER = 3
# Iterations of a refit without a part of the log, and its most samples.
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
# Parallelograms that are searched for: at the most promising pairs of joints.
MOST_PAIRS = 2


class Structure(NamedTuple):
    """The end of a search: a chain with the structure, or None if the plain chain stays."""

    model: Model | None
    steps: tuple[StructureStep, ...]


@one_blas_thread()
def search_structure(
    model: Model, study: Study, *, enough: Callable[[], bool] = lambda: False
) -> Structure:
    """Search for joints that depend on several coordinates, from a plain chain that was fitted."""
    with jax.enable_x64(True):
        return _Search(model, study, enough).run()


class _Tried(NamedTuple):
    """A model with its error on every part left out."""

    model: Model
    errors: Float[np.ndarray, " parts"]

    @property
    def error(self) -> float:
        return float(self.errors.mean())

    def improves(self, other: "_Tried", share: float) -> bool:
        """Whether the error of every part is below a share of another one's."""
        return bool((self.errors < share * other.errors).all())


@dataclass(eq=False)
class _Search:
    """One search, from the plain chain to the best structure."""

    model: Model
    study: Study
    enough: Callable[[], bool]

    def __post_init__(self) -> None:
        study = self.study
        self.samples = Samples.of(study.dataset)
        self.scale = Scale.of(study.dataset, study.settings.objective)
        self.parts = _parts(study)
        chosen = evenly_spaced(len(self.samples), SAMPLES)
        self.many = self._problem(chosen)
        self.few = self._problem(chosen[evenly_spaced(len(chosen), ROWS)])
        self.steps: list[StructureStep] = []
        # Pairs of a joint and a coordinate, the most promising first.
        self.promising: list[tuple[int, int]] = []

    def _problem(self, rows: Int[np.ndarray, " rows"]) -> marquardt.Problem:
        """The loss on some samples; frames may stretch on the way."""
        untied = self.scale.untied()
        return marquardt.Problem(self.samples.rows(rows), untied, self.study.settings.objective)

    def run(self) -> Structure:
        chain = self.model.chain
        assert chain is not None  # only chains have a structure to search for
        friction = head(FRICTION, self.study.dataset)
        start = Model(ChainDraft.of(chain).relaxed(), friction)
        plain = self._judged(self._iterated(start, self.many, ITERATIONS))
        self._note("plain chain", plain, kept=True)
        best = self._with_couplings(plain)
        if best.error > EXACT:
            best = self._with_parallelograms(best)
        if not best.improves(plain, CLAIMED):
            return Structure(None, tuple(self.steps))
        assert best.model.chain is not None
        settled = ChainDraft.of(best.model.chain).settled()
        return Structure(Model(settled, best.model.friction), tuple(self.steps))

    def _note(self, name: str, tried: _Tried, *, kept: bool) -> None:
        self.steps.append(StructureStep(name, tried.error, kept))

    # Couplings, one after the other.

    def _with_couplings(self, best: _Tried) -> _Tried:
        """Add couplings while every part of the log is explained better."""
        while best.error > EXACT and not self.enough():
            found = self._best_coupling(best.model)
            if found is None:
                break
            tried = self._judged(self._rounded(self._iterated(found, self.many, ITERATIONS)))
            kept = tried.improves(best, WORTHWHILE)
            self._note(_described(tried.model), tried, kept=kept)
            if not kept:
                break
            best = tried
        return best

    def _best_coupling(self, model: Model) -> Model | None:
        """The model with the one coupling more that fits best after some iterations."""
        assert model.chain is not None
        draft = ChainDraft.of(model.chain)
        places = [(int(joint), int(other)) for joint, other in np.argwhere(draft.rows == 0)]
        if not places:
            return None

        def tried(place: tuple[int, int]) -> tuple[float, Model]:
            with jax.enable_x64(True):
                candidate = Model(draft.coupled(*place).relaxed(), model.friction)
                return self._descended(candidate, self.few, TRIAL_ITERATIONS)

        # The first one compiles the program, which is then there for all threads.
        ends = [tried(places[0])]
        with ThreadPoolExecutor(TOGETHER) as pool:
            ends += pool.map(tried, places[1:])
        order = np.argsort([loss for loss, _ in ends], kind="stable")
        if not self.promising:
            self.promising = [places[number] for number in order]
        return ends[order[0]][1]

    def _rounded(self, model: Model) -> Model:
        """The model with whole numbers for ratios that are near them, if it fits as well."""
        assert model.chain is not None
        draft = ChainDraft.of(model.chain)
        whole = draft.rounded(WHOLE)
        if (whole.rows == draft.rows).all():
            return model
        loss, other = self._descended(Model(whole.relaxed(), model.friction), self.many, ITERATIONS)
        as_good = loss <= AS_GOOD * self.many.loss(model) + np.finfo(float).eps
        return other if as_good else model

    # Parallelograms, each searched for from random arms.

    def _with_parallelograms(self, best: _Tried) -> _Tried:
        """Replace the structure by the best parallelogram, if there is one that explains more."""
        for settings in self._parallelograms():
            if self.enough() or best.error < EXACT:
                break
            tried = self._judged(self._searched(settings))
            kept = tried.improves(best, WORTHWHILE)
            self._note(_described(tried.model), tried, kept=kept)
            if kept:
                best = tried
        return best

    def _parallelograms(self) -> Iterator[LagrangianChainSettings]:
        """Arms moved through a parallelogram, at the pairs where a coupling promised most."""
        joints = self.study.dataset.joints
        pairs = []
        for joint, other in self.promising:
            neighbours = (min(joint, other), max(joint, other))
            turning = not joints.sliding[list(neighbours)].any()
            if neighbours[1] == neighbours[0] + 1 and turning and neighbours not in pairs:
                pairs.append(neighbours)
        for carrier, arm in pairs[:MOST_PAIRS]:
            for level in (True, False):
                if level and arm == joints.dof - 1:
                    continue
                yield parallelogram(joints.sliding.tolist(), carrier, arm, level=level)

    def _searched(self, settings: LagrangianChainSettings) -> Model:
        """The arm of a structure, searched for as that of a plain chain is."""
        study = self.study
        stage = StartsStage(
            self.many.samples,
            self.many.samples,
            self.scale,
            study.settings.objective,
            study.settings.marquardt,
            build=lambda key: build(settings, study.dataset, key, FRICTION),
            epochs=1,
            stop=study.stop,
        )
        state = stage.start(None)
        state, _ = stage.advance(state, (0.0,), jax.random.fold_in(study.key, 2))
        return stage.model(state)

    # What both share.

    def _iterated(self, model: Model, problem: marquardt.Problem, most: int) -> Model:
        return self._descended(model, problem, most)[1]

    def _descended(
        self, model: Model, problem: marquardt.Problem, most: int
    ) -> tuple[float, Model]:
        """The loss and the model after some iterations."""
        state = marquardt.init(model, marquardt.NEARBY)
        loss = np.inf
        for _ in range(most):
            state, loss = marquardt.update(state, problem, marquardt.NEARBY)
            if bool(state.stalled) or self.study.stop.is_set() or not loss > EXACT**2:
                break
        return float(loss) if np.isfinite(loss) else np.inf, state.model

    def _judged(self, model: Model) -> _Tried:
        """The model, and its errors on every part of the log after a refit without it."""
        errors = []
        std = nonzero_scale(np.asarray(self.samples.tau).std(axis=0))
        for unseen in self.parts:
            seen = np.setdiff1d(np.arange(len(self.samples)), unseen)
            problem = self._problem(seen[evenly_spaced(len(seen), SAMPLES)])
            other = self._iterated(model, problem, REFIT_ITERATIONS)
            judged = self.samples.rows(unseen[evenly_spaced(len(unseen), SAMPLES)])
            error = (drive_torques(other, judged) - np.asarray(judged.tau)) / std
            errors.append(np.mean(error**2))
        return _Tried(model, np.array(errors))


def _parts(study: Study) -> list[Int[np.ndarray, " rows"]]:
    """The rows of each fold, or of parts of motion that has none."""
    if study.dataset.counted is None:
        return np.array_split(np.arange(len(study.dataset.samples)), PARTS)
    folds = range(len(study.split.folds))
    return [study.without(number).judged_rows for number in folds]


def _described(model: Model) -> str:
    """The joints of the tree that are not coordinates themselves, such as `wrist - 0.5 elbow`."""
    assert model.chain is not None
    chain = ChainDraft.of(model.chain).settled()
    names = chain.tree_joints.names
    return ", ".join(name for name in names if name not in chain.joints.names)


def parallelogram(
    sliding: Sequence[bool], carrier: int, arm: int, *, level: bool
) -> LagrangianChainSettings:
    """The chain of an arm whose angle is measured against what carries the arm before it.

    A crank turns with it beside the carrier. With `level`, the joint after the arm sits on a plate
    that does not turn with it.
    """
    unit = np.eye(len(sliding))
    rows = list(unit)
    rows[arm] = unit[arm] - unit[carrier]
    slides = list(sliding)
    parents = list(range(-1, len(sliding) - 1))
    if level:
        rows.insert(arm + 1, -unit[arm])
        slides.insert(arm + 1, False)
        parents.append(len(sliding) - 1)
    rows.append(unit[arm])
    slides.append(False)
    parents.append(carrier - 1)
    coupling = tuple(tuple(row.tolist()) for row in rows)
    return LagrangianChainSettings(tuple(parents), coupling, tuple(slides))
