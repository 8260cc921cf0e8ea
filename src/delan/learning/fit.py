"""The public `fit`: learn a model of a robot from a log, and say how far to trust it.

The road, in the order of `_Job`: **prepare** the log, split it into one **study**, let models
**compete** on it, and give the best one an **outlook**: a band, a domain, and what to record next.
"""

import threading
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Literal, NamedTuple

import jax
import numpy as np
from jaxtyping import PRNGKeyArray

from ..errors import DataError, ModelError
from ..joints import Dataset, Recording
from ..logs.excerpts import sketch
from ..logs.filters import HIGHEST_CUTOFF
from ..logs.preparation import PreparationSettings, prepare, scoring_bandwidth
from ..logs.segments import usual_step
from ..models.model import Architecture, Model
from ..models.trust import Sketch
from ..simulation.replay import LogReplay
from ..solvers.linearised import one_blas_thread
from ..solvers.loss import SECONDS, Objective
from ..solvers.stages import SAMPLES
from .contenders import Chain, Constant, Network, SingleTraining, side_by_side, unconfirmed
from .cutoff import CutoffSearch, PreparationChoice, choose_preparation
from .elastic_fit import ElasticOutcome, fit_both_sides
from .fit_settings import FitOptions, FitSettings, fit_options
from .more_data import LearningCurve, NextMotion, more_data
from .refit import left_open, simulated_validation
from .resonance import Resonance, resonances
from .scores import Scores
from .study import Budget, Contender, Entry, FrictionChoice, Listener, Study, nobody_listens
from .uncertainty import TrustSettings, trust, trust_by_folds
from .verdict import Verdict, judge, judge_motion, ranked


@dataclass(frozen=True, eq=False)
class Fit:
    """A fitted model with its rivals, and everything that is known about it.

    Attributes:
        entries: the models that took part, the one to deploy first, then by validation error.
        preparation: how cut-off and delay were chosen; `dataset.preparation` says what was done.
        study: the data, their split, and how models were trained. Where models were learned without
            accelerations, its parts are the filtered motion, for pictures and the band.
        trusted: the chosen model with its band, its domain and the inertia that its forward
            dynamics add, before it learned from the validation motion too; None if stopped.
        replay: the validation motion as a simulation of the chosen model; None for a model without
            mechanics.
        other_motion: the nMSE by which models of parts of the log, or other arms that explain it
            as well, differ on other motion; 0 where it was not computed.
        elastic: what was found about joints of which both sides were measured.
        resonances: of joints that the chosen model takes as rigid and that are not.
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
    other_motion: float = 0.0
    replay: LogReplay | None = None
    elastic: ElasticOutcome | None = None
    resonances: tuple[Resonance, ...] = ()

    @property
    def best(self) -> Entry:
        """The first entry."""
        return self.entries[0]

    @property
    def chosen(self) -> Entry:
        """The entry to deploy; a constant torque only if nothing else took part."""
        for entry in self.entries:
            if entry.name != "constant":
                return entry
        return self.best

    @property
    def model(self) -> Model:
        """The model to deploy, with what `trusted` knows beyond its weights."""
        if self.trusted is None:
            return self.chosen.deployed
        model = self.chosen.deployed.with_added_inertia(self.trusted.added_inertia)
        return model.with_trust(self.trusted.trust)

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
    def bandwidth(self) -> float | None:
        """The bandwidth of the torques that every model is scored at [Hz]; None: not filtered."""
        done = self.study.scored.preparation
        if done is None or done.cutoff is None:
            return None
        return scoring_bandwidth(1 / usual_step(self.study.scored.t))

    @property
    def verdict(self) -> Verdict:
        """Whether to deploy the model, judged on the validation motion."""
        return self.judged({}, self.replay)

    def judged(self, test: Mapping[str, Scores], replay: LogReplay | None) -> Verdict:
        """Whether to deploy the model, judged on a test motion.

        Args:
            test: the scores of every entry there.
            replay: that motion as a simulation of the model.
        """
        return judge(
            self.entries,
            test,
            motion=None if replay is None else judge_motion(replay),
            new_motion=self.study.split.is_new,
            other_motion=self.other_motion,
            interrupted=self.interrupted,
            seconds=self.options.seconds,
        )

    def provenance(self) -> dict[str, Any]:
        """The history of the model, to be stored in its file."""
        training = self.chosen.training
        if training is None:
            raise ModelError("a constant torque is not a model to keep; name another model")
        provenance = training.provenance()
        provenance["scores"]["validation"] = self.chosen.validation.as_dict()
        return provenance | {
            "name": self.chosen.name,
            "chosen": dict(self.chosen.chosen),
            "preparation": asdict(self.preparation.settings),
        }

    def __str__(self) -> str:
        """The verdict and the errors of all models, in a few lines."""
        lines = [str(self.verdict)]
        for entry in self.entries:
            lines.append(f"  {entry.name}: {entry.validation.torque.nmse_mean:.3g}")
        return "\n".join(lines)

    def entry(self, name: str) -> Entry | None:
        """The entry of a model by its name, if it took part."""
        return next((entry for entry in self.entries if entry.name == name), None)


@one_blas_thread()
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
        data: a recording, which is prepared (filtered, cut into trajectories), or a dataset, which
            is taken as it is.
        models: `auto`, all of them; or one or several of `chain` (a rigid arm of learned geometry),
            `delan` (a Lagrangian network), `feedforward` and `identified` (the arm of a URDF);
            or `paper` (the network of the paper and its training, to the letter); or the settings
            of one model. A constant torque always takes part.
        friction: of the Lagrangian models: its terms, `auto` to add terms while the validation
            motion is explained better, or None. `usual` is `auto`, and None for a single `delan`.
        urdf: description of the robot; with it, models that start from the file take part.
        seconds: limit of the wall clock, approximately, for every model gets one trial. Without it,
            the same seed gives the same numbers.
        listen: called with the name of each step, and with a first look at the error; may return
            a function that follows the progress of the step.
        stop: set it from another thread to end the fit early with the best model so far.
    """
    options = fit_options(models, friction, urdf, settings or FitSettings(), seconds, seed)
    options = options.with_limbs_of(data)
    stop = stop or threading.Event()
    job = _Job(data, options, Budget(seconds), listen or nobody_listens, stop)
    elastic = isinstance(data, Recording | Dataset) and data.joints.motor_of
    return fit_both_sides(job, Chain.starting_from) if elastic else job.run()


class _Prepared(NamedTuple):
    """The samples of a fit, the same motion without a filter, and how the filter was chosen."""

    choice: PreparationChoice
    dataset: Dataset
    scored: Dataset
    unfiltered: Dataset | None = None


class _Outlook(NamedTuple):
    """What a fit says of its best model beyond its errors, as in `Fit`."""

    trusted: Model | None = None
    other_motion: float = 0.0
    replay: LogReplay | None = None
    curve: LearningCurve | None = None
    motion: NextMotion | None = None
    resonances: tuple[Resonance, ...] = ()


@dataclass(frozen=True, eq=False)
class _Job:
    """One call of `fit`: prepare, study, compete, look beyond."""

    data: Recording | Dataset
    options: FitOptions
    budget: Budget
    listen: Listener
    stop: threading.Event

    def run(self) -> Fit:
        prepared = self._prepare()
        study = self._study(prepared)
        entries = self._ranked(self._learning_study(study, prepared), prepared)
        outlook = _Outlook()
        if not self.stop.is_set():
            self.listen("trust")
            # A constant torque is never deployed; every fit has a model beside it.
            best = entries[int(entries[0].name == "constant")]
            outlook = self._outlook(best, study, prepared.choice)
        return Fit(
            entries=tuple(entries),
            preparation=prepared.choice,
            study=study,
            trusted=outlook.trusted,
            curve=outlook.curve,
            motion=outlook.motion,
            options=self.options,
            seconds=self.budget.elapsed,
            interrupted=self.stop.is_set() or any(entry.interrupted for entry in entries),
            other_motion=outlook.other_motion,
            replay=outlook.replay,
            resonances=outlook.resonances,
        )

    def _outlook(self, best: Entry, study: Study, choice: PreparationChoice) -> "_Outlook":
        """What a fit says of its best model beyond its errors."""
        # Beside the band: nearly all of its time is that of the compiler, which uses one core.
        with ThreadPoolExecutor(1) as pool:
            simulated = pool.submit(simulated_validation, best, study)
            trusted = self._trust(best, study)
        assert trusted.trust is not None
        trusted = trusted.with_trust(replace(trusted.trust, sketch=Sketch.of(sketch(self.data))))
        trusted = trusted.with_added_inertia(simulated.result().inertia)
        key, *keys = self._last_keys(study)
        other_motion = left_open(best, choice.start, choice.others, study, key=key)
        curve = None
        motion = None
        if self.budget.left > 0:
            curve, motion = more_data(best.deployed, study.training, study.validation, keys)
        seen = resonances(self.data, best.deployed, choice.settings.delay)
        replay = simulated.result().replay
        return _Outlook(trusted, other_motion, replay, curve, motion, seen)

    def _prepare(self) -> _Prepared:
        if isinstance(self.data, Dataset):
            settings = PreparationSettings()
            done = self.data.preparation
            if done is not None and done.cutoff is not None:
                settings = PreparationSettings(cutoff=done.cutoff[0], delay=done.delay)
            return _Prepared(PreparationChoice(settings), self.data, self.data)
        if not isinstance(self.data, Recording):
            problem = f"expected a Recording or a Dataset, got a {type(self.data).__name__}"
            raise DataError("fit", f"{problem}; read a log with delan.read_log")
        choice = self._choose_preparation(self.data)
        dataset = prepare(self.data, choice.settings)
        unfiltered = None
        if self.options.settings.accelerations == "none" and choice.settings.cutoff is not None:
            unfiltered = prepare(self.data, choice.settings.unfiltered)
        rate = 1 / float(np.median(np.diff(self.data.t)))
        scored = prepare(self.data, choice.settings.scored(rate))
        return _Prepared(choice, dataset, scored, unfiltered)

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
            first_look=self._first_look,
            searches=settings.searches,
            chain=self.options.chain,
        )
        return choose_preparation(recording, search)

    def _first_look(self, error: float) -> None:
        self.listen(
            f"first look: a chain has an nMSE of {error:.2g} on parts of the log that it has not "
            "seen; choosing the filter, friction and rivals"
        )

    def _study(self, prepared: _Prepared) -> Study:
        """The study of the prepared samples, with the one split of this fit."""
        settings = self.options.settings
        upright = prepared.choice.objective.upright
        objective = replace(settings.training.objective, upright=upright)
        study = Study.of(
            prepared.dataset,
            replace(settings.training, searches=settings.searches, objective=objective),
            friction=self.options.friction,
            key=jax.random.key(self.options.seed),
            stop=self.stop,
        )
        found = prepared.choice.split
        # The search for a cut-off may have seen an excerpt of the log only.
        if found is not None and len(found.folds[0].training) == len(prepared.dataset):
            study = replace(study, split=found)
        study = study.on(prepared.dataset, prepared.scored)
        return replace(study, budget=self.budget, listen=self.listen)

    def _learning_study(self, study: Study, prepared: _Prepared) -> Study:
        """The study that models learn from: the unfiltered motion if accelerations are unused."""
        if not self.options.without_accelerations:
            return study
        settings = replace(study.settings, accelerations="none")
        return replace(study.on(prepared.unfiltered or prepared.dataset), settings=settings)

    def _ranked(self, study: Study, prepared: _Prepared) -> list[Entry]:
        """Fit every contender; one that takes the place of the chain must do so on every fold."""
        entries = self._compete(study, prepared)
        new_motion = study.split.is_new
        order = ranked(entries, new_motion=new_motion)
        chain = next((entry for entry in entries if entry.name == "chain"), None)
        # One by one: where the first does not hold on the other folds, the next one may.
        while chain is not None and not self.stop.is_set():
            network = unconfirmed(order[0], chain)
            if network is None:
                break
            friction = order[0].model.friction_settings
            confirmed = network.on_every_fold(order[0], replace(study, friction=friction))
            order = ranked([confirmed, *order[1:]], new_motion=new_motion)
        return order

    def _compete(self, study: Study, prepared: _Prepared) -> list[Entry]:
        """Fit every contender to the same study."""
        options = self.options
        constant = Constant().fit(study)
        if options.trains_once(self.data):
            name: Any = options.models[0]
            model = options.architecture or name
            single = SingleTraining(name, model, options.settings.start, options.settings.seeds)
            return [constant, single.fit(study)]
        chain = None
        if "chain" in options.models:
            chain = self._chain(prepared).fit(study)
            if study.friction == "auto":
                # The others get the friction that was found for the chain.
                study = replace(study, friction=chain.model.friction_settings)
        study = replace(study, friction=study.fixed_friction)
        if chain is not None and not options.settings.thorough:
            study = replace(study, bar=chain.error_on(1))
        rivals = self._rivals(study.part("rivals"), chain)
        return [constant, *rivals] if chain is None else [constant, *rivals, chain]

    def _chain(self, prepared: _Prepared) -> Chain:
        options = self.options
        start = options.settings.start
        searched = options.chain == "chain" or options.settings.parents is not None
        if start.model is None and options.friction is not None and searched:
            # The search for the cut-off has fitted a chain already.
            start = replace(start, model=prepared.choice.start)
        unfiltered = prepared.unfiltered if options.settings.accelerations == "auto" else None
        return Chain(
            start=start,
            unfiltered=unfiltered,
            seeds=options.settings.seeds,
            model=options.chain,
            structured=options.settings.structure == "auto" and options.chain == "chain",
            confirmed=prepared.choice.confirmed,
        )

    def _rivals(self, study: Study, chain: Entry | None) -> list[Entry]:
        """Fit the contenders beside the chain: those that start from a URDF, and the networks."""
        options = self.options
        networks: list[Contender] = []
        for name in ("delan", "feedforward"):
            if name in options.models:
                networks.append(Network(name))
        entries = []
        if options.urdf is not None and not self.stop.is_set():
            # Loads Pinocchio, which a fit without a URDF does not need.
            from . import urdf_contenders as near  # noqa: PLC0415

            identified = near.Identified(options.urdf).fit(study)
            entries.append(identified)
            if "feedforward" in options.models:
                network = Network("feedforward")
                networks.append(near.ResidualNetwork(options.urdf, identified, network))
            if chain is not None:
                seconds = study.settings.seconds
                each = None
                if seconds is not None:
                    each = near.NEAR_SHARE * seconds / len(near.ANCHORS)
                    seconds *= 1 - near.NEAR_SHARE
                entries.append(near.ChainNearUrdf(options.urdf).fit(study.within(each)))
                study = study.within(seconds)
        if self.stop.is_set():
            return entries
        return entries + side_by_side(networks, study)

    def _trust(self, best: Entry, study: Study) -> Model:
        """Give the best model its band and its domain."""
        objective = Objective()
        if best.training is not None:
            objective = best.training.settings.objective
        settings = TrustSettings(rows=SAMPLES, objective=objective)
        if best.cross is not None and best.folds > 1:
            return trust_by_folds(best.deployed, best.cross, study, settings)
        key = self._last_keys(study)[0]
        return trust(best.deployed, study.training, study.judged, settings, key=key)

    def _last_keys(self, study: Study) -> tuple[PRNGKeyArray, ...]:
        """The keys of trust, learning curve and next motion; no contender has used them."""
        return tuple(jax.random.split(jax.random.fold_in(study.key, 1), 3))
