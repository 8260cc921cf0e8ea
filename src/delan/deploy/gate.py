"""Whether a model may drive a robot: in the whole workspace, on motion it never saw, and in C."""

import secrets
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from ..errors import CompilerError, ModelError
from ..joints import Dataset, JointLimits, evenly_spaced
from ..learning.refit import REPLAYED, replay_motion
from ..learning.scores import evaluate, predict
from ..learning.uncertainty import coverage
from ..learning.verdict import STILL, judge_motion
from ..models.dynamics import in_precision, require_same_joints
from ..models.model import as_model, without_trust
from ..models.networks import LagrangianNetwork
from ..simulation.replay import Part
from .certificate import Certificate, Check, GateSettings
from .network_bounds import largest_number
from .probe import CodeStates, code_problems
from .workspace import Workspace
from .workspace_checks import TINY, WorkspaceChecks

# Share of the log's and of the domain's states in which the band may be wider than the limits.
WIDE = 0.1
# Numbers inside a network, beyond which products overflow in single precision.
LARGEST = 1e15
NO_DOMAIN = "the model does not know where its data were"
NO_BAND = "the model has none; fit it with `delan fit LOG`"
# How many times its own extent a domain must not reach.
FAR = 10


def examine(
    model: Any, limits: JointLimits, dataset: Dataset, settings: GateSettings | None = None
) -> Certificate:
    """Examine a model on a robot with these limits, by motion that it was not trained on.

    With `settings.simulate`, also whether the motion of its simulation stays near the recorded one.
    """
    model = as_model(model)
    if model.joints.motor_of:
        raise ModelError(
            "the gate examines every combination of positions, most of which would break the "
            "springs of elastic joints; judge this model on other logs by `delan evaluate` and "
            "`delan simulate`, or fit a rigid one for the gate (--map q_motor=)"
        )
    require_same_joints(model.joints, dataset)
    settings = settings or GateSettings()
    if settings.seed is None:
        settings = replace(settings, seed=secrets.randbits(32))
    with jax.enable_x64(True):
        examiner = _Examiner(in_precision(model), limits, dataset, settings)
        return Certificate(tuple(examiner.checks()), settings.seed)


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
    def workspace(self) -> WorkspaceChecks:
        return WorkspaceChecks(self.model, self.limits, self.space, self.settings)

    def checks(self) -> Iterator[Check]:
        yield from self.workspace.checks()
        yield self.motion()
        yield self.error()
        yield self.coverage()
        yield self.width()
        yield self.known()
        yield self.span()
        yield self.code()
        if self.settings.simulate:
            yield self.drift()

    def motion(self) -> Check:
        """The torque of the log's motion."""
        samples = self.dataset.samples
        torque = self._torque(samples.q, samples.qd, samples.qdd)
        share = float(np.max(np.abs(torque) / self.limits.torque))
        asked = f"at most {self.settings.torque:.0%} of the limits on the log's motion"
        passed = share <= self.settings.torque
        return Check("torque of the log's motion", passed, asked, f"{share:.0%}")

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
            f"nMSE of every joint whose torque varies ≤ {self.settings.error:g}",
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
            # By rows, because a band may be infinite, of which there is no mean.
            found.append(float(np.sort(share, axis=0)[int((1 - WIDE) * (len(share) - 1))].max()))
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

    def drift(self) -> Check:
        """How far a simulation of the log strays from it, driven by the recorded torques."""
        horizon = max(REPLAYED.horizons)
        asked = (
            f"after {horizon:g} s every joint ≤ {self.settings.drift:g} of the error of a robot "
            f"that holds its speed, or of {STILL:g} rad (m) where that is less"
        )
        part = Part(self.model, np.ones(len(self.dataset), dtype=bool))
        replayed = replay_motion([part], self.dataset)
        if replayed is None:
            found = "no mechanics to simulate with, or no motion that goes on so long"
            return Check("replay", False, asked, found)
        motion = judge_motion(replayed)
        windows = len(np.unique(replayed.starts))
        return Check(
            "replay",
            motion.worst_error <= self.settings.drift,
            asked,
            f"{motion.worst_error:.2g} at {motion.worst}, {motion.error:.2g} in the median joint",
            region=f"root mean square of {windows} windows of the log",
        )

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
                return Check("C code", False, asked, found, "proved", self.workspace.everywhere)
        try:
            result = code_problems(self.trusted, states, self.settings.compiled)
        except (CompilerError, ModelError) as error:
            return Check("C code", False, asked, str(error), region=region)
        return Check("C code", result.problem is None, asked, result.found, region=region)

    def _torque(self, *motion: np.ndarray) -> np.ndarray:
        return predict(self.model, "inverse_dynamics", *map(jnp.asarray, motion))
