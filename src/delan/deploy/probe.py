"""The C code of a model, run with sanitizers on motions at which it may fail."""

import itertools
from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float

from ..joints import Dataset, evenly_spaced
from ..learning.scores import predict
from ..models.model import as_model, without_trust
from .artifact import rendered
from .bounds import GRID
from .c_code import c_source
from .compiler import ProgramRun, run_program
from .layout import ExportSettings, Numbers, Shape
from .workspace import Workspace

Rows = Float[np.ndarray, "rows coordinates"]

SINGLE = np.finfo(np.float32)
# Rows of the log's path, random states, corners and places of the partition that are compared.
PATH = 300
RANDOM = 500
CORNERS = 256
# How far friction with memory may be off, as share of the largest torque: single precision knows
# positions of a radian to 1e-7, which is 1e-4 of the smallest usual radius of a stop operator.
REMEMBERED = 1e-2
# The same for the distance to the domain, of itself.
DISTANCE = 1e-2
# Sizes of motion beyond what a robot does, at which the code must still give numbers; factors of
# the largest speed and acceleration.
EXTREMES = (0.0, 1e-38, 1e-20, 1e-6, 10.0, 1e3, 1e6)
# Results up to this size must not overflow.
FINITE = 1e30


@dataclass(frozen=True, eq=False)
class CodeStates:
    """Rows of (q, q̇, q̈): those that are compared with the model, and extremes."""

    compared: Float[np.ndarray, "compared coordinates"]
    extreme: Float[np.ndarray, "extreme coordinates"]

    @classmethod
    def of(cls, space: Workspace, samples: Dataset) -> "CodeStates":
        """A path of the log, random states, corners and places of the partition, and extremes."""
        rng = space.further_draws()
        path = slice(min(PATH, len(samples)))
        logged = np.concatenate([samples.q[path], samples.qd[path], samples.qdd[path]], axis=1)
        lower, upper = space.box
        dof = len(lower)
        cells = rng.integers(0, GRID + 1, (CORNERS, dof)) / GRID
        if 2**dof <= CORNERS:
            ends = np.array(list(itertools.product((0.0, 1.0), repeat=dof)))
        else:
            ends = rng.integers(0, 2, (CORNERS, dof)) * 1.0
        q = lower + np.concatenate([ends, cells]) * (upper - lower)
        rates = rng.choice([-1.0, 1.0], (len(q), 2 * dof)) * np.concatenate(space.most)
        corners = np.concatenate([q, rates], axis=1)
        drawn = space.states[evenly_spaced(len(space.states), RANDOM)]
        rows = []
        for factor in EXTREMES:
            some = corners[rng.integers(len(corners), size=8)].copy()
            some[:, dof:] *= factor
            still = some.copy()
            still[:, :dof] = 0.0
            rows += [some, still]
        return cls(np.concatenate([logged, drawn, corners]), np.concatenate(rows))

    @property
    def described(self) -> str:
        return (
            f"{len(self.compared)} states (log, random, corners of the partition), and "
            f"{len(self.extreme)} with rates of 0 to {max(EXTREMES):g} × the largest"
        )


class CodeResult(NamedTuple):
    """What the code does: a sentence, and the problem if there is any."""

    found: str
    problem: str | None


def code_problems(model: Any, states: CodeStates, most: float) -> CodeResult:
    """Compare the code in single precision with the model, and look for invalid operations."""
    problem = _unfit_numbers(model)
    if problem is not None:
        return CodeResult(problem, problem)
    # The code sees rounded motions, and so does the model.
    rows = np.concatenate([states.compared, states.extreme]).astype(np.float32).astype(float)
    run, results = _probed(model, rows)
    if run.problem is not None:
        return CodeResult(run.problem, run.problem)
    if any(len(values) != len(rows) for values in results.values()):
        problem = "the code ended before the last state"
        return CodeResult(problem, problem)
    expected = _expected(model, rows)
    for name, values in results.items():
        small = np.abs(expected[name]).max(axis=1) < FINITE
        bad = small & ~np.isfinite(values).all(axis=1)
        if bad.any():
            problem = f"{name} is not finite in {bad.sum()} of {len(rows)} states"
            return CodeResult(problem, problem)
    worst = 0.0
    limits = {"inverse_dynamics": most, "mass_matrix": most, "remembered": REMEMBERED}
    for name in limits.keys() & results.keys():
        off = _deviation(results[name], expected[name], len(states.compared))
        # Comparisons are written so that a value that is not a number fails.
        if not off <= limits[name]:
            problem = f"{name} is off by {off:.2g} of the largest"
            return CodeResult(problem, problem)
        if name == "inverse_dynamics":
            worst = off
    if "in_domain" in results:
        wanted = expected["in_domain"]
        off = float(np.max(np.abs(results["in_domain"] - wanted) / (1 + wanted)))
        if not off <= DISTANCE:
            problem = f"in_domain is off by {off:.2g}"
            return CodeResult(problem, problem)
    watched = "with sanitizers" if run.sanitized else "without sanitizers: none installed"
    return CodeResult(f"{worst:.2g}, all finite ({watched})", None)


def _deviation(given: np.ndarray, wanted: np.ndarray, compared: int) -> float:
    """The largest difference in the compared rows, as share of the largest number of a column."""
    size = np.abs(wanted[:compared]).max(axis=0)
    # Entries of an inertia that are zero but for rounding have the size of the others.
    size = np.maximum(size, 1e-3 * size.max() if len(size) > 1 else size)
    size = np.maximum(size, SINGLE.tiny)
    return float(np.max(np.abs(given[:compared] - wanted[:compared]) / size))


def _unfit_numbers(model: Any) -> str | None:
    """Numbers of the code that single precision does not hold."""
    shape = Shape.of(model)
    for name, values in Numbers.of(model).blocks:
        with np.errstate(over="ignore"):
            if not np.isfinite(np.asarray(values).astype(np.float32)).all():
                return f"a number of the block {name} is too large for single precision"
    for radius in shape.stops:
        if not SINGLE.tiny <= radius <= SINGLE.max:
            return f"the radius {radius:g} of a stop operator does not fit into single precision"
    for pair in shape.friction.pairs:
        if not SINGLE.tiny <= abs(pair.ratio) <= SINGLE.max:
            return f"the ratio {pair.ratio:g} of a pair does not fit into single precision"
    return None


def _probed(model: Any, rows: Rows) -> tuple[ProgramRun, dict[str, np.ndarray]]:
    """Run the code on rows of (q, q̇, q̈); for forward dynamics q̈ is the torque.

    The result `remembered` is inverse dynamics with memory, along the path of all rows.
    """
    settings = ExportSettings(name="probed")
    code = c_source(model, settings)
    shape = Shape.of(model)
    dof = shape.joints.dof
    promises = shape.model.promises
    sizes = {"inverse_dynamics": dof}
    if promises.memory:
        sizes["remembered"] = dof
    if promises.mechanics:
        sizes |= {"mass_matrix": dof * dof, "forward_dynamics": dof}
    if "in_domain" in code.functions:
        sizes["in_domain"] = 1
    words = settings.words | {
        "mechanics": promises.mechanics,
        "remembers": promises.memory,
        "knows_domain": "in_domain" in code.functions,
    }
    main = rendered("probe.c", **words)
    files = {"probed.h": code.header, "probed.c": code.source, "main.c": main}
    run = run_program(files, rows.astype(settings.dtype).tobytes())
    width = sum(sizes.values())
    whole = len(run.output) // (width * settings.dtype().itemsize) * width
    numbers = np.frombuffer(run.output, dtype=settings.dtype, count=whole).astype(float)
    columns = np.split(numbers.reshape(-1, width), np.cumsum(list(sizes.values()))[:-1], axis=1)
    return run, dict(zip(sizes, columns, strict=True))


def _expected(model: Any, rows: Rows) -> dict[str, np.ndarray]:
    """What the model gives for these rows, in double precision."""
    model = as_model(model)
    plain = without_trust(model)
    q, qd, push = (jnp.asarray(part) for part in np.split(rows, 3, axis=1))
    expected = {"inverse_dynamics": predict(plain, "inverse_dynamics", q, qd, push)}
    if model.promises.memory:
        memory = model.friction.remember(q)
        remembered = jax.jit(
            jax.vmap(lambda *motion: plain.inverse_dynamics(*motion[:3], memory=motion[3]))
        )
        expected["remembered"] = np.asarray(remembered(q, qd, push, memory))
    if model.promises.mechanics:
        inertia = predict(plain, "mass_matrix", q)
        expected["mass_matrix"] = inertia.reshape(len(rows), -1)
        expected["forward_dynamics"] = predict(plain, "forward_dynamics", q, qd, push)
    if model.promises.trust:
        expected["in_domain"] = predict(model, "in_domain", q, qd)[:, None]
    return expected
