"""Inertia that forward dynamics add where a log does not tell the inertia of a joint.

With the torque e that a model does not explain, its acceleration is q̈ + H⁻¹ e. At a light wrist
H⁻¹ e is many times q̈: such a model accelerates worse than one that keeps its speed. With the
inertia A added, the error is (H + A)⁻¹ (e − A q̈); for a single joint it is smallest, and below 1,
at A = ⟨e²⟩ / (⟨q̈²⟩ H). Over longer times friction decides more than inertia, and so much of it may
be too slow. So shares of this A are tried, and each joint takes the one with the lowest product of
the errors of its simulated positions after each horizon. The error of the acceleration counts with
an exponent of `EXPONENT`: it decides where positions hardly do. All of it happens on the folds of
the training motion, each with a model that has not learned from it.

Inverse dynamics stay as they are: added inertia is no estimate of a rotor. Joints whose
accelerations are told, with an nMSE of 1 or less, get none.

Tried and dropped: the inertias with the lowest sum of nMSE of accelerations, found by their
gradients (A at some joints 10⁴ times as large, for no gain on other motion); and an exponent of 1,
which on the folds of the UR3 made positions after half a second a third worse.
"""

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import NamedTuple

import jax
import numpy as np
from jaxtyping import Float

from ..joints import Dataset, evenly_spaced, nonzero_scale
from ..logs.split import side
from ..models.dynamics import in_precision
from ..models.friction_memory import memory_of
from ..models.model import Model, without_trust
from ..simulation.replay import LogReplay, Part, ReplaySettings, replay_parts
from ..solvers.linearised import drive_torques, mass_matrices
from ..solvers.loss import Samples

Rows = Float[np.ndarray, "rows dof"]
PerJoint = Float[np.ndarray, " dof"]

# Shares of the inertia with the lowest error of the acceleration.
SHARES = (0.01, 0.03, 0.1, 0.3, 0.6, 1.0)
EXPONENT = 0.125
# A log tells the inertia of a joint if the nMSE of its acceleration is at most this: that of a
# robot that keeps its speed.
UNTOLD = 1.0
# Shares that are simulated at the same time; XLA releases the interpreter while it computes.
TOGETHER = 2
# A joint that strays less than this from constant speed has no motion to simulate [rad or m].
STILL = 0.01
# An error below which a joint is exact.
NO_ERROR = 1e-9
# Rows of a part that accelerations are computed at.
ROWS = 2000


class _Accelerations(NamedTuple):
    """What a model says of the accelerations of a motion that it has not learned from.

    Attributes:
        inertia: H at every row [kg m² or kg].
        error: the torque that it does not explain, e [N m or N].
        qdd: recorded accelerations [rad/s² or m/s²].
    """

    inertia: Float[np.ndarray, "rows dof dof"]
    error: Rows
    qdd: Rows

    @classmethod
    def of(cls, model: Model, dataset: Dataset) -> "_Accelerations":
        data = Samples.of(dataset, memory_of(model, dataset))
        data = data.rows(evenly_spaced(len(data), ROWS))
        inertia = mass_matrices(model, np.asarray(data.q))
        error = np.asarray(data.tau) - drive_torques(model, data)
        return cls(inertia, error, np.asarray(data.qdd))

    @classmethod
    def joined(cls, parts: Sequence["_Accelerations"]) -> "_Accelerations":
        return cls(*(np.concatenate(columns) for columns in zip(*parts, strict=True)))

    def nmse(self, added: PerJoint) -> PerJoint:
        """Return the errors of the accelerations, as nMSE, with such inertia added."""
        left = self.error - added * self.qdd
        off = np.linalg.solve(self.inertia + np.diag(added), left[..., None])[..., 0]
        return np.mean(off**2, axis=0) / nonzero_scale(np.var(self.qdd, axis=0))

    def best(self) -> PerJoint:
        """Return the inertia with the lowest error, as if every joint were alone."""
        alone = 1 / np.mean(np.linalg.inv(self.inertia).diagonal(axis1=1, axis2=2), axis=0)
        moving = np.var(self.qdd, axis=0)
        sized = np.mean(self.error**2, axis=0) / nonzero_scale(moving) / alone
        return np.where(moving > 0, sized, 0.0)


@dataclass(frozen=True, eq=False)
class AddedInertia:
    """The inertia that was chosen, and the simulated motion with it.

    Attributes:
        inertia: per joint [kg m² or kg]; None where every joint's inertia is told.
        replay: the parts as simulated with it; None without a window long enough.
    """

    inertia: tuple[float, ...] | None
    replay: LogReplay | None


def choose_added_inertia(
    parts: Sequence[Part], dataset: Dataset, scored: Dataset, settings: ReplaySettings
) -> AddedInertia:
    """Choose the inertia to add, by parts of a motion and models that have not learned from them.

    Args:
        dataset: the motion with the accelerations that models learn from.
        scored: the same rows as simulations are compared with them.
    """
    plain = replay_parts(parts, scored, settings)
    if plain is None or parts[0].model.chain is None:
        return AddedInertia(None, plain)
    with jax.enable_x64(True):
        known = []
        for part in parts:
            model = in_precision(without_trust(part.model))
            known.append(_Accelerations.of(model, side(dataset, part.rows)))
        told = _Accelerations.joined(known)
    most = np.where(told.nmse(np.zeros(dataset.dof)) > UNTOLD, told.best(), 0.0)
    if not most.any():
        return AddedInertia(None, plain)

    def tried(added: PerJoint) -> PerJoint:
        replayed = replay_parts(_heavier(parts, added), scored, settings)
        assert replayed is not None
        return _errors(told, added, replayed)

    shares = [share * most for share in (0.0, *SHARES)]
    with ThreadPoolExecutor(TOGETHER) as pool:
        errors = [_errors(told, shares[0], plain), *pool.map(tried, shares[1:])]
    best = np.argmin(errors, axis=0)
    added = np.array(shares)[best, np.arange(dataset.dof)]
    chosen = replay_parts(_heavier(parts, added), scored, settings)
    assert chosen is not None
    # Joints were judged with the same share at all of them.
    if _errors(told, added, chosen).sum() >= errors[0].sum():
        return AddedInertia(None, plain)
    return AddedInertia(tuple(added.tolist()), chosen)


def _heavier(parts: Sequence[Part], added: PerJoint) -> list[Part]:
    heavier = []
    for part in parts:
        model = without_trust(part.model).with_added_inertia(tuple(added.tolist()))
        # As rotors, whose sizes are numbers of a compiled program and not parts of it.
        with jax.enable_x64(True):
            heavier.append(part._replace(model=in_precision(model).with_added_rotors()))
    return heavier


def _errors(told: _Accelerations, added: PerJoint, replayed: LogReplay) -> PerJoint:
    """Return the logarithm of the product of the errors of each joint."""
    errors = [np.sqrt(told.nmse(added)) ** EXPONENT]
    for error in replayed.open_loop.values():
        errors.append(error.relative(STILL))
    # A joint that does not move has no errors.
    return np.sum(np.log(np.maximum(errors, NO_ERROR)), axis=0)
