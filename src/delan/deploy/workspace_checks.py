"""What a model does in the whole workspace: bounds where they can be proved, else a search."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple, cast

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from ..errors import ModelError
from ..joints import JointLimits, evenly_spaced
from ..learning.scores import predict
from ..mechanics.integration import rollout
from ..models.networks import LagrangianNetwork
from .bounds import PARTITIONED, Parts, Proof, chain_bound, prove
from .certificate import Check, Evidence, GateSettings
from .friction_bounds import driving_friction, friction_bound, spring_bound
from .network_bounds import network_bound, steepest_unit
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
# How far above the worst that was found a bound should be, as share of it.
TIGHT = 0.25
# How fast the input of a unit may change [1/rad or 1/m] in a network that is searched because it
# has too many joints for a proof. The bound of trained networks is near 20, and a spike that random
# states miss takes thousands.
STEEPEST = 300.0
# A number that rounding may leave of a zero, as share of what it is compared with.
TINY = 1e-12


class _Answer(NamedTuple):
    """A bound that was proved, or None, and the worst that was found.

    `open` counts the boxes that a proof looked at in vain; 0 if it ended, or cannot be made.
    """

    bound: float | None
    worst: Worst
    open: int = 0

    @property
    def evidence(self) -> Evidence:
        return "searched" if self.bound is None else "proved"


@dataclass(frozen=True, eq=False)
class WorkspaceChecks:
    """The questions that ask for all positions, speeds and accelerations of a workspace.

    Comparisons are written so that a value that is not a number fails.
    """

    model: Any
    limits: JointLimits
    space: Workspace
    settings: GateSettings

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

    @cached_property
    def springs(self) -> np.ndarray:
        """A bound on the torque against springs and cables in the whole workspace."""
        return spring_bound(self.model.friction, *self.space.box)

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
        tried = 0
        if proof.bound is None and len(proof.open):
            tried = proof.boxes
        return _Answer(proof.bound, worst, tried)

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
            found = "the model promises a torque alone"
            yield Check("mechanics", False, asked, found, region="the kind of the model")
        yield self.outside()

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
        return -parts.least_eigenvalue(self.rotors, np.ones(len(self.rotors)))

    def condition(self) -> Check:
        """How far apart the eigenvalues of H are, in units of each joint's usual inertia."""
        inertia = predict(self.model, "mass_matrix", jnp.asarray(self.space.columns[0]))
        usual = np.median(np.diagonal(inertia, axis1=1, axis2=2), axis=0)
        scale = 1 / np.sqrt(np.maximum(usual, np.finfo(float).tiny))

        def ratios(parts: Parts) -> np.ndarray:
            # The largest eigenvalue is at most the largest sum of a row.
            whole = (parts.inertia + np.abs(self.rotors)) * scale[:, None] * scale[None]
            least = parts.least_eigenvalue(self.rotors, scale)
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
        torque = predict(self.model, "inverse_dynamics", *map(jnp.asarray, (q, qd, qdd)))
        # Added inertia is meant to make a difference.
        exact = self.model.with_added_inertia(None)
        again = predict(exact, "forward_dynamics", *map(jnp.asarray, (q, qd, torque)))
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
            lambda parts: ((parts.gravity + self.springs) / limit).max(axis=1),
            most,
            gravity_share,
            limit,
        )
        found = f"{answer.worst.value:.0%} {_place(answer.worst)}"
        if answer.bound is not None:
            found = f"≤ {answer.bound:.0%} everywhere; {found}"
        elif answer.open:
            found += f"; not bounded in {answer.open} boxes"
        elif self.steep:
            found += f"; {self.steep}"
        return Check(
            "gravity torque",
            answer.worst.value <= most and not answer.open and not self.steep,
            f"at most {most:.0%} of the torque limit in the whole workspace",
            found,
            answer.evidence,
            self._region(answer, self.everywhere),
        )

    def outside(self) -> Check:
        """The worst torque anywhere at the log's speeds and accelerations.

        Friction is always bounded by its weights, so that nothing hides at a speed of its own. A
        network of few joints whose bound is left open is refused, and one of many joints that is
        steep: a spike may be what it hides.
        """
        limit = self.limits.torque
        most = self.settings.outside
        if self.model.promises.mechanics:
            speed, push = self.space.most
            friction = friction_bound(self.model.friction, speed)
            turning = np.abs(self.rotors) @ push

            def share(parts: Parts) -> np.ndarray:
                load = parts.torque(speed, push) + turning + self.springs
                return (((1 + friction.share) * load + friction.torque) / limit).max(axis=1)

            answer = self.answer(share, most, load_share, limit, friction.share, friction.torque)
        else:
            answer = _Answer(None, self.space.worst(torque_share, self.model, jnp.asarray(limit)))
        found = f"{answer.worst.value:.3g} × {_place(answer.worst)}"
        if answer.bound is not None:
            found = f"≤ {answer.bound:.3g} × everywhere; {found}"
        elif answer.open:
            found += f"; not bounded in {answer.open} boxes"
        elif self.steep:
            found += f"; {self.steep}"
        return Check(
            "torque outside of the data",
            answer.worst.value <= most and not answer.open and not self.steep,
            f"at most {most:g} × the limits anywhere at the log's speeds and accelerations",
            found,
            answer.evidence,
            self._region(answer, self.moving),
        )

    @cached_property
    def steep(self) -> str | None:
        """Why a search of a network says nothing; None if it is smooth enough for a search."""
        network = self.model.mechanics
        if not isinstance(network, LagrangianNetwork) or self.model.joints.dof <= PARTITIONED:
            return None
        with np.errstate(over="ignore", invalid="ignore"):
            steepest = steepest_unit(network, *self.space.box)
        if steepest <= STEEPEST:
            return None
        return f"units change by up to {steepest:.2g} per rad, so that spikes may hide"

    def _region(self, answer: _Answer, region: str) -> str:
        if answer.bound is not None:
            return region
        return f"{self.drawn}; ascent from {self.settings.ascents} of them"


def _place(worst: Worst) -> str:
    position = np.split(worst.at, 3)[0]
    return f"at q = ({', '.join(f'{value:.2f}' for value in position)})"


def _listed(values: np.ndarray) -> str:
    return f"({', '.join(f'{value:.3g}' for value in values)})"


@eqx.filter_jit
def _free_energy(links: Any, q: Array, qd: Array) -> Any:
    t = jnp.arange(FREE_STEPS + 1) * FREE_STEP

    def watched(q: Array, qd: Array) -> Any:
        path = rollout(links.forward_dynamics, q, qd, jnp.zeros((len(t), len(q))), t)
        return jax.vmap(links.energy)(*path)

    return jax.vmap(watched)(q, qd)
