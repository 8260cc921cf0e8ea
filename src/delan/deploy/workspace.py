"""The limits of a robot's joints, from a file of a few lines or from its URDF.

Where a robot can be, and the worst that a model says there: random states, then ascent from the
worst of them.
"""

import tomllib
from collections.abc import Callable
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float
from scipy.optimize import minimize

from ..errors import SettingsError
from ..joints import Dataset, JointLimits, Joints
from ..robots.robot_files import from_urdf

NAMES = tuple(field.name for field in fields(JointLimits))
EXAMPLE = "torque = [87, 87, 87, 87, 12, 12, 12]"


def read_limits(path: Path, joints: Joints) -> JointLimits:
    """Limits from a TOML file: lower, upper, velocity and torque, a number for all joints or one
    each.

    What is left out is unlimited, but for the torque, which has to be there.
    """
    try:
        told = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise SettingsError(
            f"{path}: cannot be read ({error.strerror}); give a file with lines such as {EXAMPLE}"
        ) from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise SettingsError(
            f"{path}: is no TOML ({error}); write lines such as {EXAMPLE}"
        ) from None
    unknown = sorted(set(told) - set(NAMES))
    if unknown:
        raise SettingsError(f"{path}: unknown limit {unknown[0]!r}; known: {', '.join(NAMES)}")
    unlimited = {"lower": -np.inf, "upper": np.inf, "velocity": np.inf, "torque": np.inf}
    rows = {
        name: _row(path, name, told.get(name, usual), joints) for name, usual in unlimited.items()
    }
    try:
        return _sound(JointLimits(**rows))
    except SettingsError as error:
        raise SettingsError(f"{path}: {error}") from None


def limits_of_urdf(path: Path, joints: Joints) -> JointLimits:
    """Limits from a URDF, whose joints have the model's names, or else its number and order."""
    robot = from_urdf(path, meshes=False).robot
    order = range(joints.dof)
    if set(joints.names) <= set(robot.joints.names):
        order = [robot.joints.names.index(name) for name in joints.names]
    elif robot.joints.dof != joints.dof:
        raise SettingsError(
            f"{path}: has {robot.joints.dof} joints and the model {joints.dof}, under other names; give --limits"
        )
    try:
        return _sound(
            JointLimits(**{name: getattr(robot.limits, name)[list(order)] for name in NAMES})
        )
    except SettingsError as error:
        raise SettingsError(f"{path}: {error}") from None


def _row(path: Path, name: str, given: Any, joints: Joints) -> np.ndarray:
    row = given if isinstance(given, list) else [given] * joints.dof
    if len(row) != joints.dof or not all(type(one) in (int, float) for one in row):
        raise SettingsError(
            f"{path}: {name} is one number or a list of {joints.dof}, got {given!r}"
        )
    return np.array(row, dtype=float)


def _sound(limits: JointLimits) -> JointLimits:
    if not np.isfinite(limits.torque).all():
        raise SettingsError(f"every joint needs a torque limit; write a line such as {EXAMPLE}")
    return limits


Score = Callable[..., Array]
"""A number of a model, a state and what else it takes; a function of a module, so that it is
compiled once.
"""
ASCENT = 60
"""Steps of each ascent, at most."""


class Worst(NamedTuple):
    """The largest value of a score, and where it is; NaN if a value is no number."""

    value: float
    at: Float[np.ndarray, " coordinates"]


@dataclass(frozen=True, eq=False)
class Workspace:
    """A box of positions, speeds and accelerations, and states drawn from it.

    Attributes:
        reach: half-lengths of the box around its centre, for q, q̇ and q̈ in turn.
        ascents: how many of the worst states an ascent begins at.
    """

    centre: Float[np.ndarray, " coordinates"]
    reach: Float[np.ndarray, " coordinates"]
    states: Float[np.ndarray, "states coordinates"]
    ascents: int

    @classmethod
    def of(
        cls, limits: JointLimits, dataset: Dataset, *, states: int, ascents: int, seed: int
    ) -> "Workspace":
        """All positions inside the limits, at the speeds and accelerations of the data or, of
        speeds, the limits.

        A joint without an end turns by π to either side, a sliding one as far as the data went.
        """
        one = dataset.samples
        turning = np.array([kind != "prismatic" for kind in one.joints.kinds])
        lower = np.where(
            np.isfinite(limits.lower), limits.lower, np.where(turning, -np.pi, one.q.min(axis=0))
        )
        upper = np.where(
            np.isfinite(limits.upper), limits.upper, np.where(turning, np.pi, one.q.max(axis=0))
        )
        speed = np.minimum(np.abs(one.qd).max(axis=0), limits.velocity)
        push = np.abs(one.qdd).max(axis=0)
        centre = np.concatenate([(lower + upper) / 2, 0 * speed, 0 * push])
        reach = np.concatenate([(upper - lower) / 2, speed, push])
        drawn = np.random.default_rng(seed).uniform(-1, 1, (states, len(reach)))
        return cls(centre, reach, centre + reach * drawn, ascents)

    @property
    def columns(self) -> tuple[Float[np.ndarray, "states dof"], ...]:
        """q, q̇ and q̈ of the states."""
        q, qd, qdd = np.split(self.states, 3, axis=1)
        return q, qd, qdd

    def worst(self, score: Score, model: Any, *known: Array) -> Worst:
        """The largest value of score(model, q, q̇, q̈, *known) that random states and ascent find."""
        values = np.asarray(_scored(score, model, jnp.asarray(self.states), known))
        if not np.isfinite(values).all():
            return Worst(float("nan"), self.states[int(np.argmin(np.isfinite(values)))])
        best = Worst(float(values.max()), self.states[int(np.argmax(values))])
        scale = max(float(np.abs(values).max()), 1e-300)

        def downhill(place: np.ndarray) -> tuple[float, np.ndarray]:
            value, slope = _slope(
                score, model, jnp.asarray(self.centre + self.reach * place), known
            )
            return -float(value) / scale, np.nan_to_num(-self.reach * np.asarray(slope)) / scale

        for row in np.argsort(-values)[: self.ascents]:
            begin = np.divide(
                self.states[row] - self.centre, self.reach, where=self.reach > 0, out=0 * self.reach
            )
            bounds = [(-1.0, 1.0)] * len(begin)
            found = minimize(
                downhill,
                begin,
                jac=True,
                method="L-BFGS-B",
                bounds=bounds,
                options={"maxiter": ASCENT},
            )
            value, place = -float(found.fun) * scale, self.centre + self.reach * found.x
            if not np.isfinite(value):
                return Worst(float("nan"), place)
            best = max(best, Worst(value, place), key=lambda one: one.value)
        return best


@eqx.filter_jit
def _scored(score: Score, model: Any, states: Array, known: tuple[Array, ...]) -> Array:
    return jax.vmap(lambda state: score(model, *jnp.split(state, 3), *known))(states)


@eqx.filter_jit
def _slope(score: Score, model: Any, state: Array, known: tuple[Array, ...]) -> tuple[Array, Array]:
    return jax.value_and_grad(lambda state: score(model, *jnp.split(state, 3), *known))(state)
