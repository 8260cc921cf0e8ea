"""Identify a known arm's links from its motion: the torque is linear in their inertial parameters.

τ = Y(q, q̇, q̈) θ, with kinematics known and ten parameters θ a link (Atkeson, An, Hollerbach 1986); rotors and the
friction of an `Actuator` are further columns. Motion cannot tell all of θ; what it tells are base parameters,
combinations that span the row space of Y (Gautier and Khalil 1990). Samples are pressed, chunk by chunk, into one
triangular factor a joint, so that memory does not grow with their number and no further step sees them again.
"""

import time
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Literal, get_args

import numpy as np
from jaxtyping import Float
from threadpoolctl import threadpool_limits

from ..errors import DataError, SettingsError
from ..joints import Dataset
from ..models.actuator import ActuatorSettings, MotorPair
from ..models.dynamics import require_same_joints
from ..models.rigid_body import LINK_PARAMETERS, RigidBody
from .physical import is_possible, made_possible, solve_possible
from .regression import BaseParameter, Estimate, Identifiable, Span, residual_std, reweighted, weighted
from .regressors import Extras, compress

FrictionTerm = Literal["coulomb", "viscous", "offset", "asymmetric", "stribeck", "stops"]


@dataclass(frozen=True)
class IdentifySettings:
    """How to identify.

    Attributes:
        friction: which terms of an `Actuator` each motor has; stops begin relaxed where time does not run on.
        pairs, radii, width, stribeck_speed: see `ActuatorSettings`; they are taken as known, not searched for.
        armature: whether each joint has a rotor inertia of its own to find.
        physical: keep every link possible, and friction (but for its offset) and rotors from being negative.
        prior: how wrong the URDF's parameters may be, as a share (one standard deviation); pulls towards them. None:
            they serve only where the data tell nothing.
        reweightings: how often the noise of each joint is read from its residuals, and the joints weighted by it.
        windows: integrate motion and torques against smooth windows (`weak.py`); accelerations are not looked at.
        tolerance: singular values of the scaled regressor below this share of the largest count as zero.
    """

    friction: tuple[FrictionTerm, ...] = ("coulomb", "viscous", "offset")
    pairs: tuple[MotorPair, ...] = ()
    radii: tuple[float, ...] = ActuatorSettings.radii
    width: float = 0.01
    stribeck_speed: float = 0.1
    armature: bool = True
    physical: bool = False
    prior: float | None = None
    reweightings: int = 5
    windows: bool = False
    tolerance: float = 1e-8

    def __post_init__(self) -> None:
        known = get_args(FrictionTerm)
        if isinstance(self.friction, tuple) and "load" in self.friction:
            raise SettingsError(
                "friction under load is no column of a regressor, for the load is what is to be found; "
                f"leave it out here and learn it with an Actuator, got {self.friction!r}"
            )
        if not isinstance(self.friction, tuple) or len(set(self.friction) & set(known)) != len(self.friction):
            raise SettingsError(f"friction is a tuple of {', '.join(known)}, each at most once, got {self.friction!r}")
        if self.prior is not None and not 0 < self.prior < float("inf"):
            raise SettingsError(f"prior is a share, positive and finite, or None for no pull, got {self.prior}")
        if self.reweightings < 1:
            raise SettingsError(f"reweightings must be at least 1, got {self.reweightings}")
        if not 0 < self.tolerance < 1:
            raise SettingsError(f"tolerance is a share between 0 and 1, got {self.tolerance}")
        _ = self.actuator  # refuses what it cannot use

    @property
    def actuator(self) -> ActuatorSettings:
        """The friction to find; rotors are no part of it, for a `RigidBody` has its own."""
        return ActuatorSettings(
            terms=tuple(term for term in get_args(FrictionTerm) if term in self.friction),
            pairs=self.pairs,
            radii=self.radii,
            width=self.width,
            stribeck_speed=self.stribeck_speed,
            passive=self.physical,
        )


@dataclass(frozen=True)
class Parameter:
    """A parameter of a link, its friction or its rotor, such as `elbow_pitch Ixx`, in SI units.

    Attributes:
        value, prior: as identified and as the URDF has it (friction and rotors: 0).
        identifiable: whether the data tell it `alone`, only `combined` with others, or not at all (`no`).
        standard_error: of the value, if it is told alone or pulled to its prior; None else.
    """

    name: str
    value: float
    prior: float
    identifiable: Identifiable
    standard_error: float | None


@dataclass(frozen=True, eq=False)
class IdentifyResult:
    """An identified arm and what the data tell of it.

    Standard errors hold for noise that is white and sits on the torques alone, and for the solution without bounds.

    Attributes:
        model: the arm; what the data do not tell is as near to the URDF as the rest allows.
        rank: the number of base parameters; condition: of their regressor, columns scaled to one length.
        base, parameters: what the data tell, in combination and one by one.
        residual_std: of each joint's torque [N m or N], freed from the number of parameters.
        impossible: joints whose links no mass distribution could make.
        events: what should be known of the run, in sentences.
    """

    model: RigidBody
    rank: int
    condition: float
    base: tuple[BaseParameter, ...]
    parameters: tuple[Parameter, ...]
    residual_std: tuple[float, ...]
    impossible: tuple[str, ...]
    settings: IdentifySettings
    samples: int
    seconds: float
    events: tuple[str, ...]

    def named(self, identifiable: Identifiable) -> tuple[str, ...]:
        """The parameters that the data tell `alone`, `combined` or not at all (`no`)."""
        return tuple(one.name for one in self.parameters if one.identifiable == identifiable)

    def provenance(self) -> dict[str, Any]:
        """What a model file should remember of its making."""
        told = ("rank", "condition", "residual_std", "impossible", "samples", "seconds", "events")
        base = [{"name": one.name, **asdict(one)} for one in self.base]
        plain = {name: getattr(self, name) for name in told}
        parameters = [asdict(one) for one in self.parameters]
        return {"identify": {**plain, "settings": asdict(self.settings), "base": base, "parameters": parameters}}


def identify(dataset: Dataset, urdf: str | Path, settings: IdentifySettings | None = None) -> IdentifyResult:
    """Identify the links, the friction and the rotors of the arm that a URDF file, by path or text, describes.

    The URDF gives the kinematics, which are believed, and a prior of the inertial parameters, which are not.
    """
    began = time.perf_counter()
    settings = settings or IdentifySettings()
    # On small matrices the threads of a BLAS wait for each other, on a busy machine a hundred times the work itself.
    with threadpool_limits(1, user_api="blas"):
        return _identify(dataset, RigidBody.from_urdf(urdf), settings, began)


def _identify(dataset: Dataset, body: RigidBody, settings: IdentifySettings, began: float) -> IdentifyResult:
    require_same_joints(body.joints, dataset)
    _require_finite(dataset, settings.windows)
    links, extras = made_possible(body.parameters), Extras.of(body.joints, settings.actuator, settings.armature)
    names = (*(f"{joint} {one}" for joint in body.joints.names for one in LINK_PARAMETERS), *extras.names)
    prior = np.concatenate([links.ravel(), np.zeros(len(extras.names))])
    factors, count = compress(body, dataset, extras, windows=settings.windows)
    pull = _pull(links, len(prior), settings.prior)
    estimate = reweighted(factors, prior, pull, count, settings.tolerance, settings.reweightings)
    matrix, target = weighted(factors, estimate.noise)
    span = Span.of(matrix, settings.tolerance)
    if count <= span.rank:
        problem = f"has {count} samples to tell {span.rank} base parameters; record more than {span.rank}"
        raise DataError(dataset.source, problem)
    if settings.physical:
        values = solve_possible(matrix, target, links, estimate.values, lower=extras.lower, spread=settings.prior)
        estimate = replace(estimate, values=values)
    return IdentifyResult(
        model=_model(body, estimate.values, extras),
        rank=span.rank,
        condition=span.condition,
        base=span.base(names, estimate.values, estimate.root),
        parameters=_parameters(names, prior, span, estimate, settings),
        residual_std=tuple(residual_std(factors, estimate, count).tolist()),
        impossible=_impossible(body, estimate.values[: links.size].reshape(links.shape)),
        settings=settings,
        samples=count,
        seconds=time.perf_counter() - began,
        events=tuple(
            f"the URDF's link of {name} cannot exist; a repaired one stands in for it"
            for name in _impossible(body, body.parameters)
        ),
    )


def _require_finite(dataset: Dataset, windows: bool) -> None:
    for name in ("q", "qd", "tau") if windows else ("q", "qd", "qdd", "tau"):
        bad = ~np.isfinite(getattr(dataset, name)).all(axis=1)
        if bad.any():
            problem = "has values that are not finite; leave those rows out"
            raise DataError(dataset.source, problem, column=name, row=int(np.argmax(bad)))


def _pull(links: Float[np.ndarray, "links 10"], count: int, share: float | None) -> Float[np.ndarray, "rows count"]:
    """Rows that measure how far links are from their prior, in standard deviations; none without a share.

    One of each parameter is the mass m, m ℓ and m ℓ², with the link's radius of gyration ℓ about its joint.
    """
    if share is None:
        return np.zeros((0, count))
    mass = links[:, 0]
    length = np.sqrt(links[:, [4, 6, 9]].sum(axis=1) / (2 * mass))
    sizes = np.stack([mass, *[mass * length] * 3, *[mass * length**2] * 6], axis=1)
    return np.eye(links.size, count) / (share * sizes.ravel()[:, None])


def _model(body: RigidBody, values: np.ndarray, extras: Extras) -> RigidBody:
    dof = body.joints.dof
    links, beside = values[: 10 * dof].reshape(dof, 10), values[10 * dof :]
    return body.with_parameters(
        links,
        friction=extras.friction(beside) if extras.head.columns else None,
        armature=beside[-dof:] if extras.rotors else None,
    )


def _parameters(
    names: tuple[str, ...], prior: np.ndarray, span: Span, estimate: Estimate, settings: IdentifySettings
) -> tuple[Parameter, ...]:
    errors = np.linalg.norm(estimate.root, axis=1)
    rows = zip(names, estimate.values.tolist(), prior.tolist(), span.identifiable, errors.tolist(), strict=True)
    believed = settings.prior is not None
    return tuple(
        Parameter(name, value, before, told, error if told == "alone" or (believed and error > 0) else None)
        for name, value, before, told, error in rows
    )


def _impossible(body: RigidBody, links: Float[np.ndarray, "dof 10"]) -> tuple[str, ...]:
    return tuple(name for name, good in zip(body.joints.names, is_possible(links), strict=True) if not good)
