"""Whether a model may drive a robot: in the whole workspace, on motion it never saw, and in C."""

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
from ..joints import Dataset, JointLimits, evenly_spaced
from ..learning.scores import evaluate, predict
from ..learning.uncertainty import coverage
from ..mechanics.integration import rollout
from ..models.dynamics import DynamicsModel, InverseDynamics, in_precision, require_same_joints
from ..models.model import as_model, without_trust
from .certificate import Certificate, Check
from .compiled import compile
from .workspace import Workspace, Worst

# Step [s], steps and number of the free motions whose energy is watched: half a second, in steps so
# short that what a sound model's energy strays by is far below what is asked.
FREE_STEP = 5e-4
FREE_STEPS = 1000
FREE_MOTIONS = 8
# States in which the compiled code is compared with the model.
CODE_STATES = 200
# A number that rounding may leave of a zero, as share of what it is compared with.
TINY = 1e-12
# Power that rounding may let friction give, as share of the usual power of the log's motion.
TINY_POWER = 1e-9
NO_DOMAIN = "the model does not know where its data were"


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
            allowed = value > 0 or (name == "seed" and value == 0)
            if not allowed or value == float("inf"):
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
    """The questions put to a model; `trusted` is the model with its band and domain.

    Comparisons are written so that a value that is not a number fails.
    """

    trusted: Any
    limits: JointLimits
    dataset: Dataset
    settings: GateSettings

    @property
    def model(self) -> Any:
        return without_trust(self.trusted)

    @cached_property
    def space(self) -> Workspace:
        return Workspace.of(
            self.limits,
            self.dataset,
            states=self.settings.states,
            ascents=self.settings.ascents,
            seed=self.settings.seed,
        )

    def checks(self) -> Iterator[Check]:
        if self.model.promises.mechanics:
            yield self.inertia()
            yield self.condition()
            yield self.inverse()
            yield self.energy()
            yield self.friction()
            yield self.gravity()
        else:
            asked = "inertia, energies and forward dynamics"
            yield Check("mechanics", False, asked, "the model promises a torque alone")
        yield self.motion()
        yield self.outside()
        yield self.error()
        yield self.coverage()
        yield self.known()
        yield self.span()
        yield self.code()

    def inertia(self) -> Check:
        """The least eigenvalue of H."""
        worst = self.space.worst(_lightness, self.model)
        return Check(
            "inertia",
            -worst.value >= self.settings.inertia,
            f"eigenvalues ≥ {self.settings.inertia:g} kg m² (or kg) in the whole workspace",
            f"{-worst.value:.3g} {_place(worst)}",
        )

    def condition(self) -> Check:
        """How far apart the eigenvalues of H are, in units of each joint's usual inertia."""
        inertia = predict(self.model, "mass_matrix", jnp.asarray(self.space.columns[0]))
        usual = np.median(np.diagonal(inertia, axis1=1, axis2=2), axis=0)
        scale = jnp.asarray(1 / np.sqrt(np.maximum(usual, np.finfo(float).tiny)))
        ratio = 10 ** self.space.worst(_condition, self.model, scale).value
        asked = f"at most {self.settings.condition:g}, each joint in its own unit"
        return Check("condition number", ratio <= self.settings.condition, asked, f"{ratio:.3g}")

    def inverse(self) -> Check:
        """Whether forward dynamics undo inverse dynamics."""
        q, qd, qdd = self.space.columns
        torque = self._torque(q, qd, qdd)
        again = predict(self.model, "forward_dynamics", *map(jnp.asarray, (q, qd, torque)))
        size = np.maximum(np.abs(qdd).max(axis=0), TINY)
        off = float(np.max(np.abs(again - qdd) / size))
        asked = f"the same acceleration to {self.settings.inverse:g} of its size"
        return Check("forward undoes inverse", off <= self.settings.inverse, asked, f"{off:.2g}")

    def energy(self) -> Check:
        """How far the energy of free motions without friction strays."""
        asked = (
            f"free motions keep their energy to {self.settings.energy:.0%} of the kinetic energy"
        )
        q, qd, _ = self.space.columns
        try:
            energy = _free_energy(
                self.model.mechanics, jnp.asarray(q[:FREE_MOTIONS]), jnp.asarray(qd[:FREE_MOTIONS])
            )
        except ModelError as error:
            return Check("energy", False, asked, str(error))
        total = np.asarray(energy.total)
        kinetic = np.asarray(energy.kinetic)
        drift = float(np.max(np.abs(total - total[:, :1]).max(axis=1) / kinetic.max(axis=1)))
        found = f"{drift:.2g} in {FREE_MOTIONS} motions of {FREE_STEP * FREE_STEPS:g} s"
        return Check("energy", drift <= self.settings.energy, asked, found)

    def friction(self) -> Check:
        """Whether friction takes power at every speed and load, a constant offset aside."""
        power = self.space.worst(_given_power, self.model).value
        samples = self.dataset.samples
        usual = float(np.median(np.abs(samples.qd * samples.tau).sum(axis=1)))
        found = f"gives {power:.3g} W"
        if power <= 0:
            found = "it takes power everywhere, offsets aside"
        passed = power <= TINY_POWER * max(usual, TINY)
        asked = "never gives power, a constant offset aside"
        return Check("friction takes energy", passed, asked, found)

    def gravity(self) -> Check:
        """The torque that the arm needs to rest."""
        worst = self.space.worst(_gravity_share, self.model, jnp.asarray(self.limits.torque))
        return Check(
            "gravity torque",
            worst.value <= self.settings.torque,
            f"at most {self.settings.torque:.0%} of the torque limit in the whole workspace",
            f"{worst.value:.0%} {_place(worst)}",
        )

    def motion(self) -> Check:
        """The torque of the log's motion."""
        samples = self.dataset.samples
        torque = self._torque(samples.q, samples.qd, samples.qdd)
        share = float(np.max(np.abs(torque) / self.limits.torque))
        asked = f"at most {self.settings.torque:.0%} of the limits on the log's motion"
        passed = share <= self.settings.torque
        return Check("torque of the log's motion", passed, asked, f"{share:.0%}")

    def outside(self) -> Check:
        """The worst torque anywhere at the log's speeds and accelerations."""
        worst = self.space.worst(_torque_share, self.model, jnp.asarray(self.limits.torque))
        return Check(
            "torque outside of the data",
            worst.value <= self.settings.outside,
            f"at most {self.settings.outside:g} × the limits anywhere at the log's speeds and "
            "accelerations",
            f"{worst.value:.3g} × {_place(worst)}",
        )

    def error(self) -> Check:
        """The error on the log."""
        errors = evaluate(self.trusted, self.dataset, rollouts=False).torque
        # A joint without torque has no nMSE.
        joint = int(np.argmax(np.nan_to_num(errors.nmse, nan=-1.0)))
        largest = float(errors.nmse[joint])
        name = self.model.joints.names[joint]
        return Check(
            "error on the log",
            largest <= self.settings.error,
            f"nMSE of every joint ≤ {self.settings.error:g}",
            f"{largest:.3g} at {name}, {errors.nmse_mean:.3g} in the mean",
        )

    def coverage(self) -> Check:
        """Whether the band holds what it promises."""
        if self.trusted.trust is None:
            found = "the model has none; fit it with `delan fit LOG`"
            return Check("band", False, "a band of the torque", found)
        least = self.trusted.trust.level - self.settings.coverage
        shares = coverage(self.trusted, self.dataset)
        share = float(shares.min())
        name = self.model.joints.names[int(np.argmin(shares))]
        asked = f"holds ≥ {least:.0%} of each joint's torques"
        return Check("band", share >= least, asked, f"{share:.0%} at {name}")

    def known(self) -> Check:
        """How many of the log's states are like the training data."""
        asked = f"≥ {self.settings.known:.0%} of the log's states like the training data"
        if self.trusted.trust is None:
            return Check("domain", False, asked, NO_DOMAIN)
        samples = self.dataset.samples
        rows = evenly_spaced(len(samples), self.settings.states)
        distance = predict(
            self.trusted, "in_domain", jnp.asarray(samples.q[rows]), jnp.asarray(samples.qd[rows])
        )
        share = float(np.mean(distance <= 1))
        return Check("domain", share >= self.settings.known, asked, f"{share:.0%}")

    def span(self) -> Check:
        """How much of its range each joint moved through in training."""
        asked = f"every joint moved through ≥ {self.settings.span:.0%} of its range"
        if self.trusted.trust is None:
            return Check("workspace", False, asked, NO_DOMAIN)
        q = np.asarray(self.trusted.trust.domain.states)[:, : self.model.joints.dof]
        span = np.ptp(q, axis=0) / (2 * np.split(self.space.reach, 3)[0])
        name = self.model.joints.names[int(np.argmin(span))]
        found = f"{span.min():.0%} ({name}) to {min(span.max(), 1):.0%}"
        return Check("workspace", bool(span.min() >= self.settings.span), asked, found)

    def code(self) -> Check:
        """The compiled code against the model."""
        asked = f"the torque of the model to {self.settings.compiled:g} of the largest"
        q, qd, qdd = self.space.columns
        rows = slice(CODE_STATES)
        try:
            compiled = compile(self.trusted, precision="float")
        except (CompilerError, ModelError) as error:
            return Check("C code", False, asked, str(error))
        motions = zip(q[rows], qd[rows], qdd[rows], strict=True)
        torque = np.array([compiled.inverse_dynamics(*motion) for motion in motions])
        wanted = self._torque(q[rows], qd[rows], qdd[rows])
        size = np.maximum(np.abs(wanted).max(axis=0), TINY)
        off = float(np.max(np.abs(torque - wanted) / size))
        return Check("C code", off <= self.settings.compiled, asked, f"{off:.2g}")

    def _torque(self, *motion: np.ndarray) -> np.ndarray:
        return predict(self.model, "inverse_dynamics", *map(jnp.asarray, motion))


def _place(worst: Worst) -> str:
    position = np.split(worst.at, 3)[0]
    return f"at q = ({', '.join(f'{value:.2f}' for value in position)})"


# What is looked for in the workspace: the larger, the worse.


def _lightness(model: DynamicsModel, q: Array, qd: Array, qdd: Array) -> Array:
    return -jnp.linalg.eigvalsh(model.mass_matrix(q))[0]


def _condition(model: DynamicsModel, q: Array, qd: Array, qdd: Array, scale: Array) -> Array:
    values = jnp.linalg.eigvalsh(model.mass_matrix(q) * scale[:, None] * scale[None])
    # A singular H has a condition number that is large, and still a number.
    return jnp.log10(values[-1] / jnp.maximum(values[0], values[-1] * 1e-15))


def _given_power(model: DynamicsModel, q: Array, qd: Array, qdd: Array) -> Array:
    # Friction at rest is a constant offset, which is no friction.
    moving = jnp.asarray(model.components(q, qd, qdd).friction)
    still = jnp.asarray(model.components(q, 0 * qd, qdd).friction)
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
