"""Whether a model may drive a robot: what it says in the whole workspace, of motion it never saw,
and in C.
"""

from collections.abc import Iterator
from dataclasses import asdict, dataclass
from functools import cached_property
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from ..errors import CompilerError, ModelError, SettingsError
from ..joints import Dataset, JointLimits
from ..learning.scores import evaluate, predict
from ..learning.uncertainty import coverage
from ..mechanics.integration import rollout
from ..models.dynamics import DynamicsModel, InverseDynamics, in_precision, require_same_joints
from ..models.model import as_model, without_trust
from .certificate import Certificate, Check
from .compiled import compile
from .workspace import Workspace

FREE_STEP, FREE_STEPS = 5e-4, 1000
"""Step [s] and number of steps of the free motions whose energy is watched."""
FREE_MOTIONS = 8
TINY = 1e-12
"""A number that rounding may leave of a zero, as share of what it is compared with."""


@dataclass(frozen=True)
class GateSettings:
    """What is asked of a model.

    Attributes:
        inertia: the least eigenvalue of H anywhere [kg m² or kg].
        condition: the most that eigenvalues of H may differ by anywhere, each joint measured by its
            own usual inertia.
        torque: the most of its limit that a joint needs to rest anywhere, or to move as in the log.
        outside: the most of its limit that a joint needs anywhere at the speeds and accelerations
            of the log.
        energy: the most that a free motion without friction may gain or lose, as share of its
            kinetic energy.
        inverse: the most that an acceleration may change through inverse and forward dynamics, as
            share of it.
        error: the largest nMSE of a joint's torque on the log.
        coverage: by how much less than promised the band may hold of the log's torques, joint by
            joint.
        known: the least share of the log's states that is like the training data.
        span: the least share of its range that each joint moved through in training.
        compiled: how far the C code in float may be from the model, as share of the largest torque.
        states, ascents: how many states are drawn, and from how many of the worst of them an ascent
            begins.
    """

    inertia: float = 1e-6
    condition: float = 1e6
    torque: float = 1.0
    outside: float = 3.0
    energy: float = 0.01
    inverse: float = 1e-6
    error: float = 0.2
    coverage: float = 0.1
    known: float = 0.8
    span: float = 0.02
    compiled: float = 1e-4
    states: int = 2000
    ascents: int = 8
    seed: int = 0

    def __post_init__(self) -> None:
        for name, value in asdict(self).items():
            if not (value >= 0 if name == "seed" else value > 0) or value == float("inf"):
                raise SettingsError(f"{name} must be positive and finite, got {value}")


def examine(
    model: Any, limits: JointLimits, dataset: Dataset, settings: GateSettings | None = None
) -> Certificate:
    """Examine a model on a robot with these limits, by motion that it was not trained on."""
    model = as_model(model)
    require_same_joints(model.joints, dataset)
    with jax.enable_x64(True):
        examiner = _Examiner(in_precision(model), limits, dataset, settings or GateSettings())
        return Certificate(tuple(examiner.checks()))


@dataclass(frozen=True, eq=False)
class _Examiner:
    trusted: Any
    limits: JointLimits
    dataset: Dataset
    settings: GateSettings

    @property
    def model(self) -> Any:
        return without_trust(self.trusted)

    @cached_property
    def space(self) -> Workspace:
        one = self.settings
        return Workspace.of(
            self.limits, self.dataset, states=one.states, ascents=one.ascents, seed=one.seed
        )

    def checks(self) -> Iterator[Check]:
        if self.model.promises.mechanics:
            yield from (
                self.inertia(),
                self.condition(),
                self.inverse(),
                self.energy(),
                self.friction(),
                self.gravity(),
            )
        else:
            why = "without mechanics nobody can say that it gives no energy or stays small where it was never trained"
            found = "the model promises a torque alone"
            yield Check("mechanics", False, "inertia, energies and forward dynamics", found, why)
        yield from (
            self.motion(),
            self.outside(),
            self.error(),
            self.coverage(),
            self.known(),
            self.span(),
            self.code(),
        )

    def inertia(self) -> Check:
        """The least eigenvalue of H."""
        found = self.space.worst(_lightness, self.model)
        return Check(
            "inertia",
            -found.value >= self.settings.inertia,  # false for NaN
            f"eigenvalues ≥ {self.settings.inertia:g} kg m² (or kg) in the whole workspace",
            f"{-found.value:.3g} at q = {_row(np.split(found.at, 3)[0])}",
            "an arm without inertia answers any torque with any acceleration",
        )

    def condition(self) -> Check:
        """How far apart the eigenvalues of H are, in units of each joint's usual inertia."""
        usual = np.median(
            np.diagonal(predict(self.model, "mass_matrix", self._q), axis1=1, axis2=2), axis=0
        )
        scale = jnp.asarray(1 / np.sqrt(np.maximum(usual, np.finfo(float).tiny)))
        found = 10 ** self.space.worst(_condition, self.model, scale).value
        asked = f"at most {self.settings.condition:g}, each joint in its own unit"
        why = "forward dynamics divide by the smallest: errors grow by this factor"
        return Check(
            "condition number", found <= self.settings.condition, asked, f"{found:.3g}", why
        )

    def inverse(self) -> Check:
        """Whether forward dynamics undo inverse dynamics."""
        q, qd, qdd = (jnp.asarray(column) for column in self.space.columns)
        torque = predict(self.model, "inverse_dynamics", q, qd, qdd)
        again = predict(self.model, "forward_dynamics", q, qd, jnp.asarray(torque))
        size = np.maximum(np.abs(self.space.columns[2]).max(axis=0), TINY)
        off = float(np.max(np.abs(again - self.space.columns[2]) / size))
        asked = f"the same acceleration to {self.settings.inverse:g} of its size"
        why = "torque and simulation would come from two different robots"
        return Check(
            "forward undoes inverse", off <= self.settings.inverse, asked, f"{off:.2g}", why
        )

    def energy(self) -> Check:
        """How far the energy of free motions without friction strays."""
        asked = (
            f"free motions keep their energy to {self.settings.energy:.0%} of the kinetic energy"
        )
        why = "a model that makes energy out of nothing makes an unstable loop out of a stable one"
        q, qd, _ = (jnp.asarray(column[:FREE_MOTIONS]) for column in self.space.columns)
        try:
            energy = _free_energy(self.model.mechanics, q, qd)
        except ModelError as error:
            return Check("energy", False, asked, str(error), why)
        total, kinetic = np.asarray(energy.total), np.asarray(energy.kinetic)
        drift = float(np.max(np.abs(total - total[:, :1]).max(axis=1) / kinetic.max(axis=1)))
        found = f"{drift:.2g} in {FREE_MOTIONS} motions of {FREE_STEP * FREE_STEPS:g} s"
        return Check("energy", drift <= self.settings.energy, asked, found, why)

    def friction(self) -> Check:
        """Whether friction takes power at every speed and load; an offset of the torque is no
        friction.
        """
        found = self.space.worst(_given_power, self.model)
        usual = float(
            np.median(np.abs(self.dataset.samples.qd * self.dataset.samples.tau).sum(axis=1))
        )
        return Check(
            "friction takes energy",
            found.value <= 1e-9 * max(usual, TINY),
            "never gives power, a constant offset aside",
            "it takes power everywhere, offsets aside"
            if found.value <= 0
            else f"gives {found.value:.3g} W",
            "friction that drives makes the robot run away",
        )

    def gravity(self) -> Check:
        """What it takes to rest."""
        found = self.space.worst(_gravity_share, self.model, jnp.asarray(self.limits.torque))
        return Check(
            "gravity torque",
            found.value <= self.settings.torque,
            f"at most {self.settings.torque:.0%} of the torque limit in the whole workspace",
            f"{found.value:.0%} at q = {_row(np.split(found.at, 3)[0])}",
            "a robot that cannot hold itself there was never there: the model is wrong, or the workspace too large",
        )

    def motion(self) -> Check:
        """The torque of the log's own motion."""
        one = self.dataset.samples
        share = np.abs(self._torque(one.q, one.qd, one.qdd)) / self.limits.torque
        found = float(np.max(share)) if np.isfinite(share).all() else float("nan")
        asked = f"at most {self.settings.torque:.0%} of the limits on the log's motion"
        why = "the robot did this motion, so that its limits suffice"
        return Check(
            "torque of the log's motion", found <= self.settings.torque, asked, f"{found:.0%}", why
        )

    def outside(self) -> Check:
        """The worst torque anywhere at the log's speeds and accelerations."""
        found = self.space.worst(_torque_share, self.model, jnp.asarray(self.limits.torque))
        q = _row(np.split(found.at, 3)[0])
        return Check(
            "torque outside of the data",
            found.value <= self.settings.outside,
            f"at most {self.settings.outside:g} × the limits anywhere at the log's speeds and accelerations",
            f"{found.value:.3g} × at q = {q}",
            "a spike where nothing was measured would be commanded the first time the robot gets there",
        )

    def error(self) -> Check:
        """The error on the log."""
        errors = evaluate(self.trusted, self.dataset, rollouts=False).torque
        found = float(np.nanmax(errors.nmse)) if np.isfinite(errors.nmse).any() else float("nan")
        asked = f"nMSE of every joint ≤ {self.settings.error:g}"
        worst = self.model.joints.names[int(np.argmax(np.nan_to_num(errors.nmse, nan=-1.0)))]
        told = f"{found:.3g} at {worst}, {errors.nmse_mean:.3g} in the mean"
        why = "a torque that is mostly error is worse than feedback alone"
        return Check("error on the log", found <= self.settings.error, asked, told, why)

    def coverage(self) -> Check:
        """Whether the band holds what it promises."""
        why = "a band that is too narrow is trusted where it should not be"
        if self.trusted.trust is None:
            return Check(
                "band",
                False,
                "a band of the torque",
                "the model has none; fit it with `delan fit LOG`",
                why,
            )
        least = self.trusted.trust.level - self.settings.coverage
        shares = coverage(self.trusted, self.dataset)
        found, worst = float(shares.min()), self.model.joints.names[int(np.argmin(shares))]
        asked = f"holds ≥ {least:.0%} of each joint's torques"
        return Check("band", found >= least, asked, f"{found:.0%} at {worst}", why)

    def known(self) -> Check:
        """How many of the log's states are like the training data."""
        why = "what is measured on this log says little of a robot that moves elsewhere"
        asked = f"≥ {self.settings.known:.0%} of the log's states like the training data"
        if self.trusted.trust is None:
            return Check("domain", False, asked, "the model does not know where its data were", why)
        one = self.dataset.samples
        rows = np.unique(np.linspace(0, len(one) - 1, self.settings.states).astype(int))
        away = predict(
            self.trusted, "in_domain", jnp.asarray(one.q[rows]), jnp.asarray(one.qd[rows])
        )
        found = float(np.mean(away <= 1))
        return Check("domain", found >= self.settings.known, asked, f"{found:.0%}", why)

    def span(self) -> Check:
        """How much of its range each joint moved through in training."""
        why = "of a joint that never moved nothing was learned"
        asked = f"every joint moved through ≥ {self.settings.span:.0%} of its range"
        if self.trusted.trust is None:
            return Check(
                "workspace", False, asked, "the model does not know where its data were", why
            )
        q = np.asarray(self.trusted.trust.domain.states)[:, : self.model.joints.dof]
        span = np.ptp(q, axis=0) / (2 * np.split(self.space.reach, 3)[0])
        least = self.model.joints.names[int(np.argmin(span))]
        found = f"{span.min():.0%} ({least}) to {min(span.max(), 1):.0%}"
        return Check("workspace", bool(span.min() >= self.settings.span), asked, found, why)

    def code(self) -> Check:
        """The compiled code against the model."""
        asked = f"the torque of the model to {self.settings.compiled:g} of the largest"
        why = "what drives the robot is the code, and not what was examined here"
        q, qd, qdd = (column[:200] for column in self.space.columns)
        try:
            made = compile(self.trusted, precision="float")
        except (CompilerError, ModelError) as error:
            return Check("C code", False, asked, str(error), why)
        got = np.array([made.inverse_dynamics(*row) for row in zip(q, qd, qdd, strict=True)])
        wanted = self._torque(q, qd, qdd)
        off = float(np.max(np.abs(got - wanted) / np.maximum(np.abs(wanted).max(axis=0), TINY)))
        return Check("C code", off <= self.settings.compiled, asked, f"{off:.2g}", why)

    @property
    def _q(self) -> Array:
        return jnp.asarray(self.space.columns[0])

    def _torque(self, *columns: np.ndarray) -> np.ndarray:
        return predict(self.model, "inverse_dynamics", *(jnp.asarray(column) for column in columns))


# What is looked for in the workspace: the larger, the worse.


def _lightness(model: DynamicsModel, q: Array, qd: Array, qdd: Array) -> Array:
    return -jnp.linalg.eigvalsh(model.mass_matrix(q))[0]


def _condition(model: DynamicsModel, q: Array, qd: Array, qdd: Array, scale: Array) -> Array:
    values = jnp.linalg.eigvalsh(model.mass_matrix(q) * scale[:, None] * scale[None])
    return jnp.log10(values[-1] / jnp.maximum(values[0], values[-1] * 1e-15))


def _given_power(model: DynamicsModel, q: Array, qd: Array, qdd: Array) -> Array:
    moving, still = (
        jnp.asarray(model.components(q, speed, qdd).friction) for speed in (qd, 0 * qd)
    )
    return -qd @ (moving - still)


def _gravity_share(model: DynamicsModel, q: Array, qd: Array, qdd: Array, most: Array) -> Array:
    return jnp.max(jnp.abs(model.components(q, 0 * qd, 0 * qd).gravity) / most)


def _torque_share(model: InverseDynamics, q: Array, qd: Array, qdd: Array, most: Array) -> Array:
    return jnp.max(jnp.abs(model.inverse_dynamics(q, qd, qdd)) / most)


@eqx.filter_jit
def _free_energy(links: Any, q: Array, qd: Array) -> Any:
    t = jnp.arange(FREE_STEPS + 1) * FREE_STEP

    def watched(q: Array, qd: Array) -> Any:
        path = rollout(links.forward_dynamics, q, qd, jnp.zeros((len(t), len(q))), t)
        return jax.vmap(links.energy)(*path)

    return jax.vmap(watched)(q, qd)


def _row(values: np.ndarray) -> str:
    return "(" + ", ".join(f"{value:.2f}" for value in values) + ")"
