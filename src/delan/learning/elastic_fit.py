"""The fit of elastic joints of which both sides were measured.

The motors' side, B θ̈ + friction + K (θ − q) + D (θ̇ − q̇) = τ, is linear in what is unknown and
solved joint by joint. What pulls at the links is then known: their arm is found as any other, from
a log whose torques are those of the springs. Both together start a fit of all numbers at once. It
is compared with a rigid chain, on the same folds, by the torque of the motors that each predicts
from the motion: for the elastic model B θ̈ and friction, and what the links need.
"""

import threading
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Literal, Protocol, runtime_checkable

import equinox as eqx
import numpy as np
import scipy
from jaxtyping import Float

from ..errors import SettingsError
from ..joints import Dataset, Recording, nonzero_scale
from ..logs.both_sides import at_links, link_side
from ..logs.preparation import PreparationSettings, prepare, scoring_bandwidth
from ..logs.segments import usual_step
from ..mechanics.friction_terms import smooth_sign
from ..models.dynamics import on_device
from ..models.elastic import ElasticDrives, drives_of, with_springs
from ..models.model import Model
from ..solvers.plan import head
from .friction_search import START
from .model_fit import TrainingStart
from .study import Budget, Contender, CrossFit, Study

# The share of the mean squared torque that the side of the motors leaves unexplained on motion left
# out, above which the deflection says nothing of the torque: the joints are rigid.
UNEXPLAINED = 0.5
# Parts of the log that are left out in turn to find that share.
PARTS = 5
# The width of the Coulomb step of a motor, relative to its mean speed.
WIDE = 0.1
# Share of the seconds for the links; the rest is for all numbers at once.
LINKS = 0.5


@dataclass(frozen=True, eq=False)
class ElasticOutcome:
    """What was found about joints of which both sides were measured.

    Attributes:
        drives: motors and springs, by link; from the motors' side alone if `chosen` is rigid.
        inertia: usual inertia of the links at each joint [kg m² or kg]; NaN if they were not found.
        elastic, rigid: error (nMSE) of the motors' torque on motion left out, mean over joints; NaN
            where such a model was not fitted for the comparison.
    """

    chosen: Literal["elastic", "rigid"]
    drives: ElasticDrives
    inertia: Float[np.ndarray, " links"]
    elastic: float = float("nan")
    rigid: float = float("nan")


@runtime_checkable
class Job(Protocol):
    """A call of `fit`: its data and options, the time it has, and how it is run."""

    @property
    def data(self) -> Recording | Dataset: ...
    @property
    def options(self) -> Any: ...
    @property
    def budget(self) -> Budget: ...
    @property
    def stop(self) -> threading.Event: ...
    def listen(self, step: str, /) -> Any: ...
    def run(self) -> Any: ...


# The contender of a chain that starts from a model.
ChainFrom = Callable[[Model], Contender]


def fit_both_sides(job: Job, chain_from: ChainFrom) -> Any:
    """Return the fit of a log of links and motors: elastic, or rigid if that explains it better."""
    _require_possible(job)
    data = job.data
    job.listen("motors and springs")
    drives, unexplained = identified_drives(_prepared(data))
    if not (drives.stiffness > 0).all() or unexplained > UNEXPLAINED:
        unknown = np.full(len(drives.stiffness), np.nan)
        return _rigid(job, ElasticOutcome("rigid", drives, unknown))
    pull = link_side(data, torque_of_springs(data, drives))
    links = _with(job, pull, options=replace(job.options, models=("chain",)), share=LINKS).run()
    start = with_springs(links.chosen.deployed, drives)
    options = _options_from(job, start, links.preparation.settings.cutoff)
    result = _with(job, data, options=options).run()
    entry = result.entry("chain")
    found = drives_of(entry.deployed)
    assert found is not None
    elastic = _motor_error(entry.cross)
    inertia = _usual_inertia(entry.deployed, data)
    if job.stop.is_set():
        outcome = ElasticOutcome("elastic", found, inertia, elastic)
        return replace(result, elastic=outcome, seconds=job.budget.elapsed)
    job.listen("rigid joints")
    rigid = _rigid_error(links.chosen.deployed, drives, result.study, chain_from)
    if rigid <= elastic:
        return _rigid(job, ElasticOutcome("rigid", drives, inertia, elastic, rigid))
    outcome = ElasticOutcome("elastic", found, inertia, elastic, rigid)
    return replace(result, elastic=outcome, seconds=job.budget.elapsed)


def identified_drives(dataset: Dataset) -> tuple[ElasticDrives, float]:
    """Return motors and springs by least squares, and the share of torque left unexplained.

    That share is of parts of the log left out, over the variance of the torque; mean over joints.
    """
    samples = dataset.samples
    links = samples.joints.links.dof
    order = links + np.argsort(samples.joints.motor_of)
    torque = samples.tau[:, order]
    parts = np.arange(len(samples)) * PARTS // len(samples)
    weights = np.zeros((links, 6))
    unexplained = np.zeros(links)
    for joint, motor in enumerate(order.tolist()):
        speed = samples.qd[:, motor]
        width = WIDE * float(np.mean(np.abs(speed))) or 1.0
        columns = np.stack(
            [
                samples.q[:, motor] - samples.q[:, joint],
                speed - samples.qd[:, joint],
                samples.qdd[:, motor],
                speed,
                smooth_sign(speed, width),
                np.ones_like(speed),
            ],
            axis=1,
        )
        left = np.zeros(PARTS)
        for part in range(PARTS):
            known = _non_negative(columns[parts != part], torque[parts != part, joint])
            error = columns[parts == part] @ known - torque[parts == part, joint]
            left[part] = np.mean(error**2)
        weights[joint] = _non_negative(columns, torque[:, joint])
        unexplained[joint] = left.mean() / nonzero_scale(np.asarray(torque[:, joint].var()))
    named = ("stiffness", "damping", "rotor", "viscous", "coulomb", "offset")
    return ElasticDrives(**dict(zip(named, weights.T, strict=True))), float(unexplained.mean())


def _non_negative(
    columns: Float[np.ndarray, "rows weights"], torque: Float[np.ndarray, " rows"]
) -> Float[np.ndarray, " weights"]:
    """Return the least-squares weights, none negative but the last one, the offset."""
    scale = nonzero_scale(np.sqrt(np.mean(columns**2, axis=0)))
    lowest = np.zeros(columns.shape[1])
    lowest[-1] = -np.inf
    found = scipy.optimize.lsq_linear(columns / scale, torque, (lowest, np.inf), method="bvls")
    return found.x / scale


def torque_of_springs(
    data: Recording | Dataset, drives: ElasticDrives
) -> Float[np.ndarray, "time links"]:
    """Return the pull of the springs at the links, K (θ − q) + D (θ̇ − q̇)."""
    links = data.joints.links.dof
    order = links + np.argsort(data.joints.motor_of)
    stretch = data.q[:, order] - data.q[:, :links]
    if data.qd is not None:
        rate = data.qd[:, order] - data.qd[:, :links]
    else:
        rate = np.zeros_like(stretch)
        for label in np.unique(data.trajectory):
            rows = data.trajectory == label
            if np.count_nonzero(rows) > 1:
                rate[rows] = np.gradient(stretch[rows], data.t[rows], axis=0)
    return drives.stiffness * stretch + drives.damping * rate


def _require_possible(job: Job) -> None:
    """Refuse options that elastic joints do not know."""
    joints = job.data.joints
    links = joints.links.dof
    if len(joints.motor_of) != links:
        raise SettingsError(
            f"{len(joints.motor_of)} of {links} joints have motors behind springs; both sides of "
            "all joints are needed: leave q_motor out (--map q_motor=), or log all motors"
        )
    options = job.options
    if options.urdf is not None:
        raise SettingsError(
            "a URDF says nothing of springs in joints: leave it out, or leave the motors out "
            "(--map q_motor=) for a rigid arm"
        )
    if "chain" not in options.models:
        raise SettingsError(
            f"elastic joints are fitted with a chain, and {', '.join(options.models)} was asked "
            "for: let the chain take part, or leave the motors out (--map q_motor=)"
        )
    if options.without_accelerations:
        raise SettingsError(
            "elastic joints are fitted from filtered accelerations; leave --accelerations none out"
        )


def _prepared(data: Recording | Dataset) -> Dataset:
    """Return samples of both sides for the motors' equation, at the bandwidth of the scores."""
    if isinstance(data, Dataset):
        return data
    settings = PreparationSettings()
    if data.qdd is None:
        settings = PreparationSettings(scoring_bandwidth(1 / usual_step(data.t)))
    return prepare(data, settings)


def _with(job: Job, data: Recording | Dataset, *, options: Any = None, share: float = 1.0) -> Job:
    """Return the job on other data, with a share of the time that is left."""
    budget = job.budget
    if budget.seconds is not None:
        budget = Budget(max(1.0, share * budget.left))
    changed: Any = job
    return replace(changed, data=data, options=options or job.options, budget=budget)


def _options_from(job: Job, start: Model, cutoff: float | None) -> Any:
    """Return the options of a fit of all numbers at once, from a model that is near."""
    assert start.chain is not None
    options = job.options
    settings = replace(
        options.settings,
        start=TrainingStart(model=start),
        cutoff=cutoff,
        parents=None,
        structure="plain",
        accelerations="filtered",
    )
    return replace(
        options,
        models=("chain",),
        architecture=start.chain.settings,
        friction=start.friction_settings,
        settings=settings,
    )


def _rigid(job: Job, outcome: ElasticOutcome) -> Any:
    """Return the fit of a rigid arm whose links move with their motors."""
    rigid = link_side(job.data, at_links(job.data.tau, job.data.joints))
    result = _with(job, rigid).run()
    return replace(result, elastic=outcome, seconds=job.budget.elapsed)


def _rigid_error(links: Model, drives: ElasticDrives, study: Study, chain_from: ChainFrom) -> float:
    """Return the error of a rigid chain on the same folds, from the links that were found."""
    chain = links.chain
    assert chain is not None
    rotors = np.log(np.asarray(chain.armature, dtype=float) + drives.rotor)
    chain = eqx.tree_at(lambda chain: chain.log_armature, chain, on_device(rotors))

    def rigid(dataset: Dataset) -> Dataset:
        return link_side(dataset, at_links(dataset.tau, dataset.joints))

    study = study.on(rigid(study.dataset), rigid(study.scored))
    study = replace(study, friction=START)
    return chain_from(Model(chain, head(START, study.dataset))).fit(study).error


def _motor_error(cross: CrossFit | None) -> float:
    """Return the nMSE of the motors' torque, from the motion alone, on motion left out."""
    assert cross is not None
    joints = cross.judged[0].joints
    measured = at_links(np.concatenate([part.samples.tau for part in cross.judged]), joints)
    predicted = at_links(np.concatenate(cross.predicted), joints)
    variance = nonzero_scale(measured.var(axis=0))
    return float(np.mean(np.mean((predicted - measured) ** 2, axis=0) / variance))


def _usual_inertia(model: Model, data: Recording | Dataset) -> Float[np.ndarray, " links"]:
    """Return the diagonal of the links' inertia where the joints are on average."""
    links = data.joints.links.dof
    mean = data.q.mean(axis=0)
    return np.diag(np.asarray(model.mass_matrix(on_device(mean))))[:links].astype(float)
