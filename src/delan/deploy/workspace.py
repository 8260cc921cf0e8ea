"""Where a robot can be, by its limits, and the worst that a model does there."""

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

Score = Callable[..., Array]
NAMES = tuple(field.name for field in fields(JointLimits))
# What a limit is where the file does not give it.
UNLIMITED = {"lower": -np.inf, "upper": np.inf, "velocity": np.inf, "torque": np.inf}
EXAMPLE = "torque = [87, 87, 87, 87, 12, 12, 12]"
# Steps of each ascent, at most.
ASCENT = 60


def read_limits(path: Path, joints: Joints) -> JointLimits:
    """Limits from a TOML file: a number for all joints or a list, for each name in `NAMES`.

    What is left out is unlimited, but for the torque, which has to be there.
    """
    try:
        given = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise SettingsError(
            f"{path}: cannot be read ({error.strerror}); give a file with lines such as {EXAMPLE}"
        ) from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise SettingsError(
            f"{path}: is not TOML ({error}); write lines such as {EXAMPLE}"
        ) from None
    unknown = sorted(set(given) - set(NAMES))
    if unknown:
        raise SettingsError(f"{path}: unknown limit {unknown[0]!r}; known: {', '.join(NAMES)}")
    rows = {}
    for name, unlimited in UNLIMITED.items():
        rows[name] = _row(path, name, given.get(name, unlimited), joints)
    return _limits(path, rows)


def limits_of_urdf(path: Path, joints: Joints) -> JointLimits:
    """Limits from a URDF, whose joints have the model's names, or else its number and order."""
    robot = from_urdf(path, meshes=False).robot
    order = list(range(joints.dof))
    if set(joints.names) <= set(robot.joints.names):
        order = list(map(robot.joints.names.index, joints.names))
    elif robot.joints.dof != joints.dof:
        raise SettingsError(
            f"{path}: has {robot.joints.dof} joints and the model {joints.dof}, under other names; "
            "give --limits"
        )
    return _limits(path, {name: getattr(robot.limits, name)[order] for name in NAMES})


def _row(path: Path, name: str, given: Any, joints: Joints) -> np.ndarray:
    row = given
    if not isinstance(given, list):
        row = [given] * joints.dof
    if len(row) != joints.dof or not all(type(value) in (int, float) for value in row):
        raise SettingsError(
            f"{path}: {name} is one number or a list of {joints.dof}, got {given!r}"
        )
    return np.array(row, dtype=float)


def _limits(path: Path, rows: dict[str, np.ndarray]) -> JointLimits:
    try:
        limits = JointLimits(**rows)
    except SettingsError as error:
        raise SettingsError(f"{path}: {error}") from None
    if not np.isfinite(limits.torque).all():
        raise SettingsError(
            f"{path}: every joint needs a torque limit; write a line such as {EXAMPLE}"
        )
    return limits


class Worst(NamedTuple):
    """The largest value of a score, and where it is; NaN if a value is not finite."""

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
        """All positions inside the limits, at the speeds and accelerations of the data.

        Speeds stay inside their limits, too. A joint without an end turns by π to either side, a
        sliding one as far as the data went.
        """
        samples = dataset.samples
        turning = samples.joints.turning
        lower = np.where(turning, -np.pi, samples.q.min(axis=0))
        upper = np.where(turning, np.pi, samples.q.max(axis=0))
        lower = np.where(np.isfinite(limits.lower), limits.lower, lower)
        upper = np.where(np.isfinite(limits.upper), limits.upper, upper)
        speed = np.minimum(np.abs(samples.qd).max(axis=0), limits.velocity)
        push = np.abs(samples.qdd).max(axis=0)
        centre = np.concatenate([(lower + upper) / 2, 0 * speed, 0 * push])
        reach = np.concatenate([(upper - lower) / 2, speed, push])
        drawn = np.random.default_rng(seed).uniform(-1, 1, (states, len(reach)))
        return cls(centre, reach, centre + reach * drawn, ascents)

    @property
    def columns(self) -> tuple[Float[np.ndarray, "states dof"], ...]:
        """q, q̇ and q̈ of the states."""
        return tuple(np.split(self.states, 3, axis=1))

    def worst(self, score: Score, model: Any, *known: Array) -> Worst:
        """The largest score(model, q, q̇, q̈, *known) that random states and ascent find.

        The score is a function of a module, so that it is compiled once.
        """
        values = np.asarray(_scored(score, model, jnp.asarray(self.states), known))
        if not np.isfinite(values).all():
            return Worst(float("nan"), self.states[int(np.argmin(np.isfinite(values)))])
        best = Worst(float(values.max()), self.states[int(np.argmax(values))])
        # The ascent sees values of about one, in a box from −1 to 1.
        scale = max(float(np.abs(values).max()), 1e-300)

        def downhill(place: np.ndarray) -> tuple[float, np.ndarray]:
            state = jnp.asarray(self.centre + self.reach * place)
            value, slope = _slope(score, model, state, known)
            return -float(value) / scale, np.nan_to_num(-self.reach * np.asarray(slope)) / scale

        for row in np.argsort(-values)[: self.ascents]:
            offset = self.states[row] - self.centre
            begin = np.divide(offset, self.reach, where=self.reach > 0, out=0 * self.reach)
            result = minimize(
                downhill,
                begin,
                jac=True,
                method="L-BFGS-B",
                bounds=[(-1.0, 1.0)] * len(begin),
                options={"maxiter": ASCENT},
            )
            reached = Worst(-float(result.fun) * scale, self.centre + self.reach * result.x)
            if not np.isfinite(reached.value):
                return Worst(float("nan"), reached.at)
            best = max(best, reached, key=lambda worst: worst.value)
        return best


@eqx.filter_jit
def _scored(score: Score, model: Any, states: Array, known: tuple[Array, ...]) -> Array:
    return jax.vmap(lambda state: score(model, *jnp.split(state, 3), *known))(states)


@eqx.filter_jit
def _slope(score: Score, model: Any, state: Array, known: tuple[Array, ...]) -> tuple[Array, Array]:
    return jax.value_and_grad(lambda state: score(model, *jnp.split(state, 3), *known))(state)
