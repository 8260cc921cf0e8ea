"""Contenders from a URDF: the identified arm, a chain near it, and a network beside it."""

import time
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, get_args

from ..identification.identify import FrictionTerm, IdentifySettings, identify
from ..models.friction import FrictionSettings
from ..models.geometry import model_of
from ..models.model import Model
from ..models.rigid_body import RigidBody
from .model_fit import TrainingStart, fit_model, score
from .scores import residual_torques
from .study import Contender, Entry, Study, TrainingResult

# How firmly a chain is held to a URDF; validation chooses one of them.
ANCHORS = (1e-3, 1e-5)
# Share of the rivals' seconds that these chains get; the networks, trained after them, have the
# rest.
NEAR_SHARE = 0.4


@dataclass(frozen=True)
class Identified:
    """The arm of a URDF with parameters and friction by least squares."""

    urdf: str | Path
    name: str = "identified"

    def fit(self, study: Study) -> Entry:
        friction = study.fixed_friction or FrictionSettings(terms=())
        # Load friction is not linear in the parameters; rotors are identified with the links.
        linear = get_args(FrictionTerm)
        terms: Any = tuple(term for term in friction.terms if term in linear)
        settings = IdentifySettings(
            friction=terms,
            pairs=friction.pairs,
            radii=friction.radii,
            width=friction.width,
            stribeck_speed=friction.stribeck_speed,
            physical=True,
            windows=study.settings.accelerations == "none",
        )
        result = identify(study.training, self.urdf, settings)
        model = model_of(result.model)
        scores = score(model, study.judged, study.settings, study.torque_size)
        training = TrainingResult(
            model=model,
            validation=scores,
            optimizer="least squares",
            reason="the links of the URDF and friction are linear in the torque",
            settings=study.settings,
            seed=study.seed,
            seconds=result.seconds,
            samples=result.samples,
            interrupted=False,
            events=result.events,
            trajectories=study.validation.samples.trajectories,
        )
        chosen = {"friction": terms, "rank": result.rank}
        return Entry(self.name, model, scores, result.seconds, chosen, training)


@dataclass(frozen=True)
class ChainNearUrdf:
    """A chain that starts as the arm of a URDF and is held to it, as firmly as validation asks."""

    urdf: str | Path
    name: str = "chain near URDF"

    def fit(self, study: Study) -> Entry:
        began = time.perf_counter()
        arm = model_of(RigidBody.from_urdf(self.urdf))
        assert arm.chain is not None
        # The URDF may know of a joint that it turns without end.
        study = study.on(
            replace(study.dataset, joints=arm.joints), replace(study.scored, joints=arm.joints)
        )
        results = {}
        for anchor in ANCHORS:
            start = TrainingStart(model=arm, anchor=anchor)
            results[anchor] = fit_model(study, arm.chain.settings, start)
        anchor = min(results, key=lambda anchor: results[anchor].error)
        result = results[anchor]
        friction = study.fixed_friction or FrictionSettings(terms=())
        chosen = {"anchor": anchor, "friction": list(friction.terms)}
        took = time.perf_counter() - began
        return Entry(self.name, result.model, result.validation, took, chosen, result)


@dataclass(frozen=True, eq=False)
class ResidualNetwork:
    """An arm of the URDF and a feed-forward network trained on the arm's residual torque.

    The arm is the identified one or that of the URDF as it is, whichever has the lower validation
    error.
    """

    urdf: str | Path
    identified: Entry
    network: Contender
    name: str = "residual"

    def fit(self, study: Study) -> Entry:
        began = time.perf_counter()
        arm = model_of(RigidBody.from_urdf(self.urdf))
        arm_name = "as it is"
        if self.identified.error <= score(arm, study.judged, study.settings).torque.nmse_mean:
            arm = self.identified.model
            arm_name = "identified"
        rest = self.network.fit(_residual_study(arm, study))
        assert rest.training is not None
        model = Model(arm.mechanics, arm.friction, rest.model.residual)
        scores = score(model, study.judged, study.settings, study.torque_size)
        reason = f"on the residual torque of the URDF's arm ({arm_name}): {rest.training.reason}"
        training = replace(rest.training, model=model, validation=scores, reason=reason)
        took = time.perf_counter() - began
        chosen = {"arm": arm_name, **rest.chosen}
        return Entry(self.name, model, scores, took, chosen, training)


def _residual_study(known: Model, study: Study) -> Study:
    """The same study with the torques that a known model leaves unexplained."""
    return study.on(residual_torques(known, study.dataset), residual_torques(known, study.scored))
