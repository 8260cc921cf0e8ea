"""Whether a model may drive a robot: in the whole workspace, on motion it never saw, and in C."""

import secrets
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from typing import Any, NamedTuple, cast

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
from ..models.dynamics import in_precision, require_same_joints
from ..models.model import as_model, without_trust
from ..models.networks import LagrangianNetwork
from .bounds import PARTITIONED, Parts, Proof, chain_bound, driving_friction, friction_bound, prove
from .certificate import Certificate, Check, Evidence
from .network_bounds import largest_number, network_bound
from .probe import CodeStates, code_problems
from .workspace import (
    Workspace,
    Worst,
    condition,
    given_power,
    gravity_share,
    lightness,
    load_share,
    tempting_positions,
    torque_share,
)

# Step [s], steps and number of the free motions whose energy is watched: half a second, in steps so
# short that what a sound model's energy strays by is far below what is asked.
FREE_STEP = 5e-4
FREE_STEPS = 1000
FREE_MOTIONS = 8
# Positions at which a search begins besides the random ones, at most.
TEMPTING = 500
# Share of the log's and of the domain's states in which the band may be wider than the limits.
WIDE = 0.1
# Numbers inside a network, beyond which products overflow in single precision.
LARGEST = 1e15
# How far above the worst that was found a bound should be, as share of it.
TIGHT = 0.25
# A number that rounding may leave of a zero, as share of what it is compared with.
TINY = 1e-12
NO_DOMAIN = "the model does not know where its data were"
NO_BAND = "the model has none; fit it with `delan fit LOG`"
# How many times its own extent a domain must not reach.
FAR = 10


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
        seed: of the random states; None draws another one each time, so that no model can be made
            to pass between them.
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
    seed: int | None = None

    def __post_init__(self) -> None:
        for name, value in asdict(self).items():
            if name == "seed":
                if value is not None and value < 0:
                    raise SettingsError(f"seed must be at least 0, got {value}")
            elif not 0 < value < float("inf"):
                raise SettingsError(f"{name} must be positive and finite, got {value}")


def examine(
    model: Any, limits: JointLimits, dataset: Dataset, settings: GateSettings | None = None
) -> Certificate:
    """Examine a model on a robot with these limits, by motion that it was not trained on."""
    model = as_model(model)
    require_same_joints(model.joints, dataset)
    settings = settings or GateSettings()
    if settings.seed is None:
        settings = replace(settings, seed=secrets.randbits(32))
    with jax.enable_x64(True):
        examiner = _Examiner(in_precision(model), limits, dataset, settings)
        return Certificate(tuple(examiner.checks()), settings.seed)


class _Answer(NamedTuple):
    """A bound that was proved, or None, and the worst that was found."""

    bound: float | None
    worst: Worst

    @property
    def evidence(self) -> Evidence:
        return "searched" if self.bound is None else "proved"


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
            seed=self.settings.seed or 0,
        )

    @cached_property
    def tempting(self) -> Workspace:
        """The workspace with positions at which a network may hide what random states miss."""
        if not isinstance(self.model.mechanics, LagrangianNetwork):
            return self.space
        seed = self.settings.seed or 0
        return self.space.with_positions(
            tempting_positions(self.model.mechanics, *self.space.box, seed=seed)
        )

    @cached_property
    def everywhere(self) -> str:
        lower, upper = self.space.box
        return f"all positions from {_listed(lower)} to {_listed(upper)}"

    @cached_property
    def moving(self) -> str:
        speed, push = self.space.most
        return f"{self.everywhere}, |q̇| ≤ {_listed(speed)}, |q̈| ≤ {_listed(push)}"

    @cached_property
    def drawn(self) -> str:
        return f"{len(self.space.states)} random states, seed {self.settings.seed}: {self.moving}"

    @cached_property
    def rotors(self) -> np.ndarray:
        """The inertia that the friction's rotors add to H, the same everywhere."""
        if self.model.friction is None:
            return np.zeros((self.model.joints.dof,) * 2)
        return np.asarray(self.model.friction.armature, dtype=float)

    def prove(self, score: Callable[[Parts], np.ndarray], most: float) -> Proof:
        """Whether a score of bounds stays at or below `most` in the whole workspace."""
        lower, upper = self.space.box
        none = np.zeros((0, len(lower)))
        if self.model.chain is not None:
            value = float(score(chain_bound(self.model.chain, lower, upper))[0])
            return Proof(value if value <= most else None, 1, none)
        if len(lower) > PARTITIONED:
            return Proof(None, 0, none)
        network = cast(LagrangianNetwork, self.model.mechanics)
        with np.errstate(over="ignore", invalid="ignore"):
            return prove(
                lambda middle, reach: score(network_bound(network, middle, reach)),
                most,
                lower,
                upper,
            )

    def answer(
        self, bound: Callable[[Parts], np.ndarray], most: float, score: Any, *known: Any
    ) -> _Answer:
        """Prove that a score is at most `most`, and search for its worst case as well.

        The search begins also where the proof was left open. A proof of little work is repeated
        with what the search found, so that the bound is near to it.
        """
        proof = self.prove(bound, most)
        space = self.space
        if proof.bound is None:
            rows = evenly_spaced(len(proof.open), TEMPTING)
            space = self.tempting.with_positions(proof.open[rows])
        worst = space.worst(score, self.model, *map(jnp.asarray, known))
        near = worst.value + TIGHT * abs(worst.value)
        if proof.bound is not None and near < proof.bound:
            tighter = self.prove(bound, near)
            if tighter.bound is not None:
                proof = tighter
        return _Answer(proof.bound, worst)

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
        yield self.width()
        yield self.known()
        yield self.span()
        yield self.code()

    def inertia(self) -> Check:
        """The least eigenvalue of H."""
        least = self.settings.inertia
        answer = self.answer(self._lightest, -least, lightness)
        found = f"{-answer.worst.value:.3g} {_place(answer.worst)}"
        if answer.bound is not None:
            found = f"≥ {-answer.bound:.2g} everywhere; {found}"
        return Check(
            "inertia",
            -answer.worst.value >= least,
            f"eigenvalues ≥ {least:g} kg m² (or kg) in the whole workspace",
            found,
            answer.evidence,
            self._region(answer, self.everywhere),
        )

    def _lightest(self, parts: Parts) -> np.ndarray:
        """Minus a lower bound on the least eigenvalue of H in each box."""
        return -_least_eigenvalue(self.model, parts, self.rotors, np.ones(len(self.rotors)))

    def condition(self) -> Check:
        """How far apart the eigenvalues of H are, in units of each joint's usual inertia."""
        inertia = predict(self.model, "mass_matrix", jnp.asarray(self.space.columns[0]))
        usual = np.median(np.diagonal(inertia, axis1=1, axis2=2), axis=0)
        scale = 1 / np.sqrt(np.maximum(usual, np.finfo(float).tiny))

        def ratios(parts: Parts) -> np.ndarray:
            # The largest eigenvalue is at most the largest sum of a row.
            whole = (parts.inertia + np.abs(self.rotors)) * scale[:, None] * scale[None]
            least = _least_eigenvalue(self.model, parts, self.rotors, scale)
            return np.where(least > 0, whole.sum(axis=2).max(axis=1) / least, np.inf)

        answer = self.answer(ratios, self.settings.condition, condition, scale)
        found = f"{answer.worst.value:.3g}"
        if answer.bound is not None:
            found = f"≤ {answer.bound:.2g} everywhere; {found}"
        return Check(
            "condition number",
            answer.worst.value <= self.settings.condition,
            f"at most {self.settings.condition:g}, each joint in its own unit",
            found,
            answer.evidence,
            self._region(answer, self.everywhere),
        )

    def inverse(self) -> Check:
        """Whether forward dynamics undo inverse dynamics."""
        q, qd, qdd = self.space.columns
        torque = self._torque(q, qd, qdd)
        again = predict(self.model, "forward_dynamics", *map(jnp.asarray, (q, qd, torque)))
        size = np.maximum(np.abs(qdd).max(axis=0), TINY)
        off = float(np.max(np.abs(again - qdd) / size))
        asked = f"the same acceleration to {self.settings.inverse:g} of its size"
        passed = off <= self.settings.inverse
        region = self.drawn
        return Check("forward undoes inverse", passed, asked, f"{off:.2g}", region=region)

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
        region = f"the first {FREE_MOTIONS} of {self.drawn}"
        return Check("energy", drift <= self.settings.energy, asked, found, region=region)

    def friction(self) -> Check:
        """Whether friction takes power at every speed and load, a constant offset aside."""
        reason = driving_friction(self.model.friction)
        found = "it takes power everywhere, offsets aside"
        if reason is not None:
            power = self.space.worst(given_power, self.model).value
            found = f"gives {power:.3g} W or more by {reason}"
        return Check(
            "friction takes energy",
            reason is None,
            "never gives power, a constant offset aside",
            found,
            "proved",
            "all speeds and loads, by the weights of every term",
        )

    def gravity(self) -> Check:
        """The torque that the arm needs to rest."""
        limit = self.limits.torque
        most = self.settings.torque
        answer = self.answer(
            lambda parts: (parts.gravity / limit).max(axis=1), most, gravity_share, limit
        )
        found = f"{answer.worst.value:.0%} {_place(answer.worst)}"
        if answer.bound is not None:
            found = f"≤ {answer.bound:.0%} everywhere; {found}"
        return Check(
            "gravity torque",
            answer.worst.value <= most,
            f"at most {most:.0%} of the torque limit in the whole workspace",
            found,
            answer.evidence,
            self._region(answer, self.everywhere),
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
        """The worst torque anywhere at the log's speeds and accelerations.

        Friction is always bounded by its weights, so that nothing hides at a speed of its own.
        """
        limit = self.limits.torque
        most = self.settings.outside
        if self.model.promises.mechanics:
            speed, push = self.space.most
            friction = friction_bound(self.model.friction, speed)
            turning = np.abs(self.rotors) @ push

            def share(parts: Parts) -> np.ndarray:
                load = parts.torque(speed, push) + turning
                return (((1 + friction.share) * load + friction.torque) / limit).max(axis=1)

            answer = self.answer(share, most, load_share, limit, friction.share, friction.torque)
        else:
            answer = _Answer(None, self.space.worst(torque_share, self.model, jnp.asarray(limit)))
        found = f"{answer.worst.value:.3g} × {_place(answer.worst)}"
        if answer.bound is not None:
            found = f"≤ {answer.bound:.3g} × everywhere; {found}"
        return Check(
            "torque outside of the data",
            answer.worst.value <= most,
            f"at most {most:g} × the limits anywhere at the log's speeds and accelerations",
            found,
            answer.evidence,
            self._region(answer, self.moving),
        )

    def _region(self, answer: _Answer, region: str) -> str:
        if answer.bound is not None:
            return region
        return f"{self.drawn}; ascent from {self.settings.ascents} of them"

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
            return Check("band", False, "a band of the torque", NO_BAND)
        least = self.trusted.trust.level - self.settings.coverage
        shares = coverage(self.trusted, self.dataset)
        share = float(shares.min())
        name = self.model.joints.names[int(np.argmin(shares))]
        asked = f"holds ≥ {least:.0%} of each joint's torques"
        return Check("band", share >= least, asked, f"{share:.0%} at {name}")

    def width(self) -> Check:
        """Whether the band says more than the torque limits do."""
        asked = f"narrower than the torque limits in ≥ {1 - WIDE:.0%} of the log and of the domain"
        if self.trusted.trust is None:
            return Check("width of the band", False, asked, NO_BAND)
        samples = self.dataset.samples
        rows = evenly_spaced(len(samples), self.settings.states)
        logged = (samples.q[rows], samples.qd[rows], samples.qdd[rows])
        q, qd = np.split(np.asarray(self.trusted.trust.domain.states, dtype=float), 2, axis=1)
        found = []
        narrow = []
        for motion in (logged, (q, qd, 0 * q)):
            band = predict(self.trusted, "torque_band", *map(jnp.asarray, motion))
            share = band / self.limits.torque
            narrow.append(float(np.mean(share <= 1, axis=0).min()))
            found.append(float(np.quantile(share, 1 - WIDE, axis=0).max()))
        return Check(
            "width of the band",
            min(narrow) >= 1 - WIDE,
            asked,
            f"{found[0]:.2g} × the limits in the log, {found[1]:.2g} × in the domain",
            region="the log, and the states of the domain at constant speed",
        )

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
        found = f"{share:.0%}"
        bounded = self._domain_ends()
        if not bounded:
            found += f"; but a state {FAR} × as far as any of its data counts as known"
        return Check("domain", share >= self.settings.known and bounded, asked, found)

    def _domain_ends(self) -> bool:
        """Whether states that are far from all of the domain's are outside of it."""
        domain = self.trusted.trust.domain
        states = np.asarray(domain.states, dtype=float)
        middle = states.mean(axis=0)
        far = middle + FAR * np.maximum(np.ptp(states, axis=0), TINY)
        dof = self.model.joints.dof
        # An endless joint has no far positions.
        far[:dof] = np.where(self.model.joints.continuous, middle[:dof], far[:dof])
        return bool(domain.distance(jnp.asarray(far[:dof]), jnp.asarray(far[dof:])) > 1)

    def span(self) -> Check:
        """How much of its range each joint moved through in training."""
        asked = f"every joint moved through ≥ {self.settings.span:.0%} of its range"
        if self.trusted.trust is None:
            return Check("workspace", False, asked, NO_DOMAIN)
        q = np.asarray(self.trusted.trust.domain.states)[:, : self.model.joints.dof]
        span = np.ptp(q, axis=0) / (2 * np.split(self.space.reach, 3)[0])
        name = self.model.joints.names[int(np.argmin(span))]
        found = f"{span.min():.0%} ({name}) to {min(span.max(), 1):.0%}"
        passed = bool(span.min() >= self.settings.span)
        return Check("workspace", passed, asked, found, region="the states of the domain")

    def code(self) -> Check:
        """The code in single precision against the model, and free of invalid operations."""
        asked = f"the torque of the model to {self.settings.compiled:g} of the largest, all finite"
        states = CodeStates.of(self.space, self.dataset.samples)
        region = f"{states.described}, seed {self.settings.seed}"
        if isinstance(self.model.mechanics, LagrangianNetwork):
            with np.errstate(over="ignore", invalid="ignore"):
                largest = largest_number(self.model.mechanics, *self.space.box)
            if not largest <= LARGEST:
                found = f"numbers up to {largest:.2g} inside the network may overflow"
                return Check("C code", False, asked, found, "proved", self.everywhere)
        try:
            result = code_problems(self.trusted, states, self.settings.compiled)
        except (CompilerError, ModelError) as error:
            return Check("C code", False, asked, str(error), region=region)
        return Check("C code", result.problem is None, asked, result.found, region=region)

    def _torque(self, *motion: np.ndarray) -> np.ndarray:
        return predict(self.model, "inverse_dynamics", *map(jnp.asarray, motion))


def _place(worst: Worst) -> str:
    position = np.split(worst.at, 3)[0]
    return f"at q = ({', '.join(f'{value:.2f}' for value in position)})"


def _listed(values: np.ndarray) -> str:
    return f"({', '.join(f'{value:.3g}' for value in values)})"


def _least_eigenvalue(
    model: Any, parts: Parts, rotors: np.ndarray, scale: np.ndarray
) -> np.ndarray:
    """A lower bound on the least eigenvalue of H with rotors, each joint in its own unit."""
    scaled = scale[:, None] * scale[None]
    if parts.middle is None or parts.spread is None:
        # H of a chain is a sum of squares and of its own rotors.
        fixed = np.diag(np.asarray(model.chain.armature, dtype=float)) + rotors
        return np.linalg.eigvalsh(fixed * scaled)[:1]
    middle = np.linalg.eigvalsh((parts.middle + rotors) * scaled)[:, 0]
    return middle - np.linalg.norm(parts.spread * scaled, axis=(1, 2))


@eqx.filter_jit
def _free_energy(links: Any, q: Array, qd: Array) -> Any:
    t = jnp.arange(FREE_STEPS + 1) * FREE_STEP

    def watched(q: Array, qd: Array) -> Any:
        path = rollout(links.forward_dynamics, q, qd, jnp.zeros((len(t), len(q))), t)
        return jax.vmap(links.energy)(*path)

    return jax.vmap(watched)(q, qd)
