"""Identification of the links of an arm with known kinematics, by linear least squares.

τ = Y(q, q̇, q̈) θ is linear in the ten inertial parameters θ of each link (Atkeson, An, Hollerbach
1986); rotors and the friction of a `Friction` are further columns. Not all of θ is identifiable:
motion determines base parameters, combinations that span the row space of Y (Gautier and Khalil
1990). Samples are compressed in chunks to one triangular factor per joint, so that memory does not
grow with their number and later steps never see them.
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
from ..models.dynamics import require_same_joints
from ..models.friction import FrictionSettings, MotorPair
from ..models.rigid_body import LINK_PARAMETERS, RigidBody
from .physical_links import is_physical, repaired_links, solve_physical
from .regression import (
    BaseParameter,
    Extras,
    Identifiable,
    ParameterEstimate,
    Span,
    compress,
    residual_std,
    reweighted,
    weighted,
)

FrictionTerm = Literal["coulomb", "viscous", "offset", "asymmetric", "stribeck", "stops"]


@dataclass(frozen=True)
class IdentifySettings:
    """Settings of `identify`.

    Attributes:
        friction: terms of a `Friction` to identify; stop operators start relaxed in every segment.
        pairs, radii, width, stribeck_speed: known values, see `FrictionSettings`.
        armature: whether to identify a rotor inertia per joint.
        physical: require physically consistent links, and friction (except its offset) and rotors
            that are not negative.
        prior: relative standard deviation of the URDF's parameters, which are pulled towards the
            URDF. None: its values are used only for what the data do not determine.
        reweightings: how often the noise of the joints is estimated and used as their weight.
        windows: integrate motion and torques against smooth windows (`solvers/loss.py`) and
            ignore accelerations.
        tolerance: singular values of the scaled regressor below this fraction of the largest count
            as zero.
    """

    friction: tuple[FrictionTerm, ...] = ("coulomb", "viscous", "offset")
    pairs: tuple[MotorPair, ...] = ()
    radii: tuple[float, ...] = FrictionSettings.radii
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
                "friction under load is not linear in the parameters and cannot be identified; "
                f"leave it out here and learn it with a Friction, got {self.friction!r}"
            )
        valid = isinstance(self.friction, tuple) and set(self.friction) <= set(known)
        if not valid or len(set(self.friction)) != len(self.friction):
            raise SettingsError(
                f"friction is a tuple of {', '.join(known)}, each at most once, "
                f"got {self.friction!r}"
            )
        if self.prior is not None and not 0 < self.prior < float("inf"):
            raise SettingsError(
                f"prior must be positive and finite, or None for no pull, got {self.prior}"
            )
        if self.reweightings < 1:
            raise SettingsError(f"reweightings must be at least 1, got {self.reweightings}")
        if not 0 < self.tolerance < 1:
            raise SettingsError(f"tolerance must be between 0 and 1, got {self.tolerance}")
        _ = self.actuator  # checks the remaining fields

    @property
    def actuator(self) -> FrictionSettings:
        """The friction to identify, without rotors, which a `RigidBody` holds itself."""
        return FrictionSettings(
            terms=tuple(term for term in get_args(FrictionTerm) if term in self.friction),
            pairs=self.pairs,
            radii=self.radii,
            width=self.width,
            stribeck_speed=self.stribeck_speed,
            passive=self.physical,
        )


@dataclass(frozen=True)
class Parameter:
    """A parameter of a link, of friction or of a rotor, such as `elbow_pitch Ixx`, in SI units.

    Attributes:
        value, prior: as identified and in the URDF (friction and rotors: 0).
        identifiable: whether the data determine it `alone`, only `combined` with others, or not at
            all (`no`).
        standard_error: of the value, if identifiable alone or pulled to its prior; else None.
    """

    name: str
    value: float
    prior: float
    identifiable: Identifiable
    standard_error: float | None


@dataclass(frozen=True, eq=False)
class IdentifyResult:
    """An identified arm and its identifiable parameters.

    Standard errors assume white noise on the torques alone, and the solution without bounds.

    Attributes:
        model: the arm; what the data do not determine is as near to the URDF as possible.
        rank: number of base parameters.
        condition: of their regressor, with columns scaled to unit length.
        base, parameters: identifiable combinations, and every single parameter.
        residual_std: of each joint's torque [N m or N], corrected for the number of parameters.
        impossible: joints whose links are not physically consistent.
        events: notes for the user, in sentences.
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
        """Return the names of the parameters of this class."""
        return tuple(item.name for item in self.parameters if item.identifiable == identifiable)

    def provenance(self) -> dict[str, Any]:
        """Return what a model file records about the identification."""
        names = ("rank", "condition", "residual_std", "impossible", "samples", "seconds", "events")
        record: dict[str, Any] = {name: getattr(self, name) for name in names}
        record["settings"] = asdict(self.settings)
        record["base"] = [{"name": item.name, **asdict(item)} for item in self.base]
        record["parameters"] = [asdict(item) for item in self.parameters]
        return {"identify": record}


def identify(
    dataset: Dataset, urdf: str | Path, settings: IdentifySettings | None = None
) -> IdentifyResult:
    """Identify links, friction and rotors of the arm that a URDF, by path or text, describes.

    The kinematics of the URDF are taken as exact, its inertial parameters only as a prior.
    """
    began = time.perf_counter()
    settings = settings or IdentifySettings()
    # On small matrices the threads of a BLAS wait for each other: on a busy machine a hundred times
    # longer than they compute.
    with threadpool_limits(1, user_api="blas"):
        result = _identify(dataset, RigidBody.from_urdf(urdf), settings)
    return replace(result, seconds=time.perf_counter() - began)


def _identify(dataset: Dataset, body: RigidBody, settings: IdentifySettings) -> IdentifyResult:
    require_same_joints(body.joints, dataset)
    _require_finite(dataset, settings.windows)
    links = repaired_links(body.parameters)
    extras = Extras.of(body.joints, settings.actuator, settings.armature)
    link_names = (f"{joint} {name}" for joint in body.joints.names for name in LINK_PARAMETERS)
    names = (*link_names, *extras.names)
    prior = np.concatenate([links.ravel(), np.zeros(len(extras.names))])
    factors, count = compress(body, dataset, extras, windows=settings.windows)
    pull = _pull(links, len(prior), settings.prior)
    estimate = reweighted(factors, prior, pull, count, settings.tolerance, settings.reweightings)
    matrix, target = weighted(factors, estimate.noise)
    span = Span.of(matrix, settings.tolerance)
    if count <= span.rank:
        problem = f"has {count} samples for {span.rank} base parameters; record more samples"
        raise DataError(dataset.source, problem)
    if settings.physical:
        values = solve_physical(
            matrix, target, links, estimate.values, lower=extras.lower, spread=settings.prior
        )
        estimate = replace(estimate, values=values)
    events = []
    for name in _impossible(body, body.parameters):
        events.append(
            f"the URDF's link of {name} is not physically consistent; a repaired link is used"
        )
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
        seconds=0.0,
        events=tuple(events),
    )


def _require_finite(dataset: Dataset, windows: bool) -> None:
    needed = ["q", "qd", "qdd", "tau"]
    if windows:
        needed.remove("qdd")
    for name in needed:
        bad = ~np.isfinite(getattr(dataset, name)).all(axis=1)
        if bad.any():
            problem = "has values that are not finite; leave those rows out"
            raise DataError(dataset.source, problem, column=name, row=int(np.argmax(bad)))


def _pull(
    links: Float[np.ndarray, "links 10"], count: int, share: float | None
) -> Float[np.ndarray, "rows count"]:
    """Return rows that measure the distance of links from their prior in standard deviations.

    The unit of the parameters is the mass m, m ℓ and m ℓ², with the link's radius of gyration ℓ
    about its joint. There are no rows without a share.
    """
    if share is None:
        return np.zeros((0, count))
    mass = links[:, 0]
    length = np.sqrt(links[:, [4, 6, 9]].sum(axis=1) / (2 * mass))
    sizes = np.stack([mass, *[mass * length] * 3, *[mass * length**2] * 6], axis=1)
    return np.eye(links.size, count) / (share * sizes.ravel()[:, None])


def _model(body: RigidBody, values: np.ndarray, extras: Extras) -> RigidBody:
    dof = body.joints.dof
    links = values[: 10 * dof].reshape(dof, 10)
    drives = values[10 * dof :]
    armature = drives[-dof:] if extras.rotors else None
    return body.with_parameters(links, friction=extras.friction(drives), armature=armature)


def _parameters(
    names: tuple[str, ...],
    prior: np.ndarray,
    span: Span,
    estimate: ParameterEstimate,
    settings: IdentifySettings,
) -> tuple[Parameter, ...]:
    errors = np.linalg.norm(estimate.root, axis=1).tolist()
    columns = (names, estimate.values.tolist(), prior.tolist(), span.identifiable(), errors)
    parameters = []
    for name, value, prior_value, identifiable, error in zip(*columns, strict=True):
        pulled = settings.prior is not None and error > 0
        if not pulled and identifiable != "alone":
            error = None
        parameters.append(Parameter(name, value, prior_value, identifiable, error))
    return tuple(parameters)


def _impossible(body: RigidBody, links: Float[np.ndarray, "dof 10"]) -> tuple[str, ...]:
    return tuple(np.array(body.joints.names)[~is_physical(links)].tolist())
