"""The public `fit`: prepare a log, let models compete, choose on held-out motion, say how sure."""

import threading
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Literal

import jax
import numpy as np

from ..errors import DataError, ModelError
from ..joints import Dataset, Recording
from ..logs.filters import HIGHEST_CUTOFF
from ..logs.preparation import PreparationSettings, prepare
from ..models.model import Architecture, Model
from ..solvers.loss import Objective
from ..solvers.plan import ModelChoice
from ..solvers.stages import SAMPLES
from ..solvers.windows import SECONDS
from .contenders import (
    Chain,
    Constant,
    Network,
    SingleTraining,
)
from .cutoff import CutoffSearch, PreparationChoice, choose_preparation
from .fit_settings import FitOptions, FitSettings, fit_options
from .more_data import LearningCurve, NextMotion, learning_curve, next_motion
from .refinement import relearned
from .study import (
    Budget,
    Contender,
    Entry,
    FrictionChoice,
    Listener,
    Study,
    nobody_listens,
)
from .uncertainty import TrustSettings, trust
from .verdict import Verdict, judge

# Share of the rivals' seconds that chains near a URDF get; the networks, which are trained at the
# same time, have the rest.
NEAR_SHARE = 0.4


@dataclass(frozen=True, eq=False)
class Fit:
    """A fitted model with its rivals, and everything that is known about it.

    Attributes:
        entries: the models that took part, the lowest validation error first.
        preparation: how cut-off and delay were chosen; `dataset.preparation` says what was done.
        study: the data, their split, and how models were trained. Where models were learned without
            accelerations, its parts are filtered ones of the same motion, for pictures and the band.
        trusted: the chosen model with its band and domain, before it learned from the validation
            motion too; None if the fit was stopped.
        curve, motion: what more data would bring and what to record next, for a chain with friction
            if there was time.
    """

    entries: tuple[Entry, ...]
    preparation: PreparationChoice
    study: Study
    trusted: Model | None
    curve: LearningCurve | None
    motion: NextMotion | None
    options: FitOptions
    seconds: float
    interrupted: bool

    @property
    def best(self) -> Entry:
        """The entry with the lowest validation error."""
        return self.entries[0]

    @property
    def chosen(self) -> Entry:
        """The entry to deploy; a constant torque only if nothing else took part."""
        models = [entry for entry in self.entries if entry.name != "constant"]
        return models[0] if models else self.best

    @property
    def model(self) -> Model:
        """The model to deploy, with its band and its domain where they were computed."""
        if self.trusted is None:
            return self.chosen.deployed
        return self.chosen.deployed.with_trust(self.trusted.trust)

    @property
    def dataset(self) -> Dataset:
        """All samples of the log."""
        return self.study.dataset

    @property
    def training(self) -> Dataset:
        """The samples that models learned from."""
        return self.study.training

    @property
    def validation(self) -> Dataset:
        """The samples that models were chosen by."""
        return self.study.validation

    @property
    def verdict(self) -> Verdict:
        """Whether to deploy the model, judged on the validation motion."""
        return judge(self.entries, interrupted=self.interrupted, seconds=self.options.seconds)

    def provenance(self) -> dict[str, Any]:
        """The history of the model, to be stored in its file."""
        training = self.chosen.training
        if training is None:
            raise ModelError("a constant torque is no model to keep; name another model")
        provenance = training.provenance()
        provenance["scores"]["validation"] = self.chosen.validation.as_dict()
        return provenance | {
            "name": self.chosen.name,
            "chosen": dict(self.chosen.chosen),
            "preparation": asdict(self.preparation.settings),
        }

    def entry(self, name: str) -> Entry | None:
        """The entry of a model by its name, if it took part."""
        return next((entry for entry in self.entries if entry.name == name), None)


def fit(
    data: Recording | Dataset,
    models: str | Architecture | Sequence[str] = "auto",
    *,
    friction: FrictionChoice | Literal["usual"] = "usual",
    urdf: str | Path | None = None,
    settings: FitSettings | None = None,
    seconds: float | None = None,
    seed: int = 0,
    listen: Listener | None = None,
    stop: threading.Event | None = None,
) -> Fit:
    """Learn a model of a robot from its motion, as `delan fit` does.

    Args:
        data: a recording, which is prepared (filtered, cut into trajectories), or a dataset, which is
            taken as it is.
        models: `auto`, all of them; or one or several of `chain` (a rigid arm of learned geometry),
            `delan` (the network of the paper), `feedforward` and `identified` (the arm of a URDF); or
            the settings of one model. A constant torque always takes part.
        friction: of the Lagrangian models: its terms, `auto` to add terms while the validation motion
            is explained better, or None. `usual` is `auto`, and None for a single `delan`.
        urdf: description of the robot; with it, models that start from the file take part.
        seconds: limit of the wall clock, approximately, for every model gets one trial. Without it,
            the same seed gives the same numbers.
        listen: called with the name of each step; may return a function that follows its progress.
        stop: set it from another thread to end the fit early with the best model so far.
    """
    options = fit_options(models, friction, urdf, settings or FitSettings(), seconds, seed)
    budget = Budget(seconds)
    job = _Job(data, options, budget, listen or nobody_listens, stop or threading.Event())
    return job.run()


@dataclass(frozen=True, eq=False)
class _Job:
    """One call of `fit`."""

    data: Recording | Dataset
    options: FitOptions
    budget: Budget
    listen: Listener
    stop: threading.Event

    def run(self) -> Fit:
        options = self.options
        choice, dataset, unfiltered = self._prepare()
        study = self._study(dataset)
        learning = study
        if options.accelerations_of(self.data) == "none":
            training = replace(options.settings.training, accelerations="none")
            learning = replace(study.on(unfiltered or dataset), settings=training)
        entries = self._compete(learning, choice, unfiltered)
        order = sorted(entries, key=lambda entry: entry.error)
        trusted = curve = motion = None
        if not self.stop.is_set():
            self.listen("trust")
            # Every fit has a constant torque and a model beside it.
            place = next(i for i, entry in enumerate(order) if entry.name != "constant")
            trusted, curve, motion = self._trust(order[place], study)
            order[place] = self._relearn(order[place], study)
        return Fit(
            entries=tuple(order),
            preparation=choice,
            study=study,
            trusted=trusted,
            curve=curve,
            motion=motion,
            options=options,
            seconds=self.budget.elapsed,
            interrupted=self.stop.is_set() or any(entry.interrupted for entry in entries),
        )

    def _study(self, dataset: Dataset) -> Study:
        options = self.options
        study = Study.of(
            dataset,
            options.settings.training,
            friction=options.friction,
            key=jax.random.key(options.seed),
            stop=self.stop,
        )
        return replace(study, budget=self.budget, listen=self.listen)

    def _prepare(self) -> tuple[PreparationChoice, Dataset, Dataset | None]:
        """The choice of a filter, the samples, and the same motion without a filter."""
        if isinstance(self.data, Dataset):
            done = self.data.preparation
            how = PreparationSettings()
            if done is not None and done.cutoff is not None:
                how = PreparationSettings(cutoff=done.cutoff[0], delay=done.delay)
            return PreparationChoice(how), self.data, None
        if not isinstance(self.data, Recording):
            problem = f"expected a Recording or a Dataset, got a {type(self.data).__name__}"
            raise DataError("fit", f"{problem}; read a log with delan.read_log")
        choice = self._choose_preparation(self.data)
        dataset = prepare(self.data, choice.settings)
        unfiltered = None
        filtered = choice.settings.cutoff is not None
        if self.options.settings.accelerations != "filtered" and filtered:
            unfiltered = prepare(self.data, choice.settings.unfiltered)
        return choice, dataset, unfiltered

    def _choose_preparation(self, recording: Recording) -> PreparationChoice:
        settings = self.options.settings
        if settings.accelerations == "none":
            # Nothing learns from what this filters: it decides which rows at the ends of a motion
            # are left out, and it is drawn.
            rate = 1 / float(np.median(np.diff(recording.t)))
            cutoff = min(1 / SECONDS, HIGHEST_CUTOFF * rate)
            return PreparationChoice(PreparationSettings(cutoff=cutoff))
        if settings.cutoff is not None:
            return PreparationChoice(PreparationSettings(cutoff=settings.cutoff))
        search = CutoffSearch(
            key=jax.random.key(self.options.seed),
            validation=settings.training.validation,
            seconds=self.budget.part("preparation"),
            stop=self.stop,
            watch=self.listen("preparation"),
        )
        return choose_preparation(recording, search)

    def _compete(
        self, study: Study, choice: PreparationChoice, unfiltered: Dataset | None
    ) -> list[Entry]:
        options = self.options
        if options.single and self._trained_as_asked:
            single = SingleTraining(
                options.models[0],
                self._model_choice,
                options.settings.start,
                seeds=options.settings.seeds,
            )
            return [Constant().fit(study), single.fit(study)]
        chain = None
        if "chain" in options.models:
            chain = self._chain(choice, unfiltered).fit(study)
            if study.friction == "auto":
                study = replace(study, friction=chain.model.friction_settings)
        study = replace(study, friction=study.fixed_friction)
        entries = self._rivals(study, chain)
        return entries if chain is None else [*entries, chain]

    @property
    def _trained_as_asked(self) -> bool:
        """Whether the one model is trained once, without a search over its regularisation.

        So it is where the caller set the training, and for signals that need no filter: they are
        clean enough for the second-order method, which the search does not try.
        """
        options = self.options
        if options.models[0] in ("identified", "chain"):
            return False
        clean = isinstance(self.data, Dataset) or (
            self.data.qdd is not None
            and options.settings.cutoff is None
            and options.settings.accelerations != "none"
        )
        return options.settings.for_one_model or options.architecture is not None or clean

    @property
    def _chain_choice(self) -> ModelChoice:
        return "chain" if self.options.architecture is None else self.options.architecture

    @property
    def _model_choice(self) -> ModelChoice:
        name: Any = self.options.models[0]
        return name if self.options.architecture is None else self.options.architecture

    def _chain(self, choice: PreparationChoice, unfiltered: Dataset | None) -> Chain:
        options = self.options
        settings = options.settings
        start = settings.start
        if start.model is None and options.friction is not None and options.architecture is None:
            start = replace(start, model=choice.start)
        if settings.accelerations != "auto":
            unfiltered = None
        return Chain(start, unfiltered, settings.seeds, self._chain_choice)

    def _rivals(self, study: Study, chain: Entry | None) -> list[Entry]:
        """Everybody but the chain, with the friction that was chosen for it."""
        options = self.options
        study = study.part("rivals")
        seconds = study.settings.seconds
        entries = [Constant().fit(study)]
        networks: list[Contender] = []
        for name in ("delan", "feedforward"):
            if name in options.models:
                networks.append(Network(name))
        if options.urdf is not None and not self.stop.is_set():
            # Loads Pinocchio, which a fit without a URDF does not need.
            from .urdf_contenders import (  # noqa: PLC0415
                ANCHORS,
                ChainNearUrdf,
                Identified,
                ResidualNetwork,
            )

            identified = Identified(options.urdf).fit(study)
            entries.append(identified)
            if chain is not None:
                near = None
                if seconds is not None:
                    near = NEAR_SHARE * seconds / len(ANCHORS)
                    seconds *= 1 - NEAR_SHARE
                entries.append(ChainNearUrdf(options.urdf).fit(study.within(near)))
            if "feedforward" in options.models:
                network = Network("feedforward")
                networks.append(ResidualNetwork(options.urdf, identified, network))
        if self.stop.is_set():
            return entries
        return entries + self._side_by_side(networks, study.within(seconds))

    def _side_by_side(self, contenders: list[Contender], study: Study) -> list[Entry]:
        """Networks at the same time, because XLA releases the interpreter while it computes."""
        with ThreadPoolExecutor(max(1, len(contenders))) as pool:
            futures = []
            for contender in contenders:
                futures.append(pool.submit(contender.fit, study.followed(contender.name)))
            try:
                return [future.result() for future in futures]
            except KeyboardInterrupt:
                self.stop.set()
                return [future.result() for future in futures]

    def _trust(
        self, best: Entry, study: Study
    ) -> tuple[Model, LearningCurve | None, NextMotion | None]:
        """Band and domain of the best model, and what more data would bring."""
        model = best.deployed
        objective = Objective()
        if best.training is not None:
            objective = best.training.settings.objective
        keys = jax.random.split(jax.random.fold_in(study.key, 1), 3)
        settings = TrustSettings(rows=SAMPLES, objective=objective)
        trusted = trust(model, study.training, study.validation, settings, key=keys[0])
        if model.chain is None or model.friction is None or self.budget.left == 0:
            return trusted, None, None
        curve = learning_curve(model, study.training, study.validation, key=keys[1])
        return trusted, curve, next_motion(model, study.training, key=keys[2])

    def _relearn(self, best: Entry, study: Study) -> Entry:
        """A chain that was chosen learns from the validation motion too: nothing is left to choose."""
        filtered = best.chosen.get("accelerations") == "filtered"
        if best.training is None or not filtered or self.budget.left == 0:
            return best
        return replace(best, relearned=relearned(best.training, study))
