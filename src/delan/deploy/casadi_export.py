"""A model as CasADi functions: symbolic and differentiable, for model-predictive control.

JAX writes a function down as equations, and here each of them is done again on symbols. So the
laws of mechanics stand once, in JAX, and whatever a model can do becomes symbolic. An array of
symbols is a numpy array of objects, each a scalar `casadi.SX` or a number; equations without
symbols are left to JAX.
"""

import operator
import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.extend.core import ClosedJaxpr, Jaxpr, Literal
from jax.extend.core import Var as Variable

from ..errors import ModelError, SettingsError, installing
from .artifact import Format, ModelFunction, functions_of, with_numbers, write_artifact
from .layout import ExportSettings

try:
    import casadi as _casadi
except ImportError:
    _casadi = None
casadi: Any = _casadi


def casadi_functions(model: Any, only: Sequence[str] = ()) -> dict[str, Any]:
    """The functions of a model as `casadi.Function` of columns, in double precision.

    `in_domain` is left out: the distance to the nearest training state is not smooth.

    Args:
        only: names of functions; all if there are none.
    """
    if casadi is None:
        raise SettingsError(f"CasADi is not installed; {installing('casadi')}")
    with jax.enable_x64(True):
        functions = functions_of(with_numbers(model, jnp.float64))
        functions.pop("in_domain", None)
        dof = model.joints.dof
        return {name: _function(name, functions[name], dof) for name in only or functions}


def _function(name: str, function: ModelFunction, dof: int) -> Any:
    columns = [casadi.SX.sym(argument, dof) for argument in function.takes]
    results = list(map(_matrix, symbolic(function.call, *columns)))
    return casadi.Function(
        name, columns, casadi.cse(results), list(function.takes), list(function.gives)
    )


def _matrix(values: np.ndarray) -> Any:
    """An array of symbols as CasADi has it: a scalar, a column or a matrix."""
    values = np.atleast_1d(values)
    rows = values.reshape(len(values), -1)
    return casadi.vertcat(*(casadi.horzcat(*row) for row in rows))


def export_casadi(
    model: Any,
    folder: Path,
    settings: ExportSettings | None = None,
    story: Mapping[str, str] | None = None,
) -> dict[str, Any]:
    """Write a model as CasADi functions into a folder; return the contents of its `model.json`."""
    settings = settings or ExportSettings(precision="double")
    if settings.precision != "double":
        raise SettingsError("CasADi computes in double precision; export with precision='double'")
    files = {}
    with tempfile.TemporaryDirectory() as temporary:
        path = Path(temporary) / "function"
        for name, function in casadi_functions(model).items():
            function.save(str(path))
            files[name] = path.read_bytes()
    facts = {"casadi": casadi.__version__, "shapes": "every argument is a column of dof numbers"}
    return write_artifact(folder, model, files, Format("casadi", facts), settings, story)


def symbolic(function: Callable[..., Any], *columns: Any) -> list[np.ndarray]:
    """The results of a function of vectors, given columns of symbols; arrays of symbols."""
    arguments = []
    for column in columns:
        rows = np.empty(column.numel(), dtype=object)
        for row in range(len(rows)):
            rows[row] = column[row]
        arguments.append(rows)
    written = jax.make_jaxpr(function)(*(jnp.zeros(len(rows)) for rows in arguments))
    return list(map(_as_symbols, _evaluated(written.jaxpr, written.consts, arguments)))


def _evaluated(jaxpr: Jaxpr, constants: Sequence[Any], arguments: Sequence[Any]) -> list[Any]:
    """The results of the equations."""
    known: dict[Variable, Any] = {}
    known.update(zip(jaxpr.constvars, constants, strict=True))
    known.update(zip(jaxpr.invars, arguments, strict=True))

    def value(atom: Any) -> Any:
        return atom.val if isinstance(atom, Literal) else known[atom]

    for equation in jaxpr.eqns:
        given = list(map(value, equation.invars))
        name = equation.primitive.name
        # What holds equations of its own is opened, for constants may meet symbols in there.
        if not any(map(_is_symbolic, given)) and name not in INNER:
            results = equation.primitive.bind(*given, **equation.params)
        elif name in RULES:
            results = RULES[name](given, equation)
        else:
            raise ModelError(
                f"the model computes {name!r}, which has no symbolic form here; tell us of it"
            )
        if not equation.primitive.multiple_results:
            results = [results]
        known.update(zip(equation.outvars, results, strict=True))
    return list(map(value, jaxpr.outvars))


def _is_symbolic(values: Any) -> bool:
    return isinstance(values, np.ndarray) and values.dtype == object


def _as_symbols(values: Any) -> np.ndarray:
    return values if _is_symbolic(values) else np.asarray(values).astype(object)


def _array(values: Any) -> np.ndarray:
    """Numpy takes an array without axes for what is in it; this puts it back."""
    if isinstance(values, np.ndarray):
        return values
    boxed = np.empty((), dtype=object)
    boxed[()] = values
    return boxed


# The rules: each takes the inputs of an equation and the equation, and returns its results.


def _each(function: Callable[..., Any]) -> Callable[[list[Any], Any], np.ndarray]:
    """A rule that does the same to every entry."""

    def rule(given: list[Any], equation: Any) -> np.ndarray:
        return _array(np.frompyfunc(function, len(given), 1)(*map(_as_symbols, given)))

    return rule


def _moved(*data: int) -> Callable[[list[Any], Any], Any]:
    """A rule that puts entries in other places; `data` are the inputs that move, or all.

    JAX moves the numbers of the entries, which say where each of them comes from.
    """

    def rule(given: list[Any], equation: Any) -> Any:
        numbered = list(given)
        entries = []
        start = 0
        for place in data or range(len(given)):
            values = _as_symbols(given[place])
            numbered[place] = np.arange(start, start + values.size).reshape(values.shape)
            entries.append(values.ravel())
            start += values.size
        flat = np.concatenate(entries)
        moved = equation.primitive.bind(*numbered, **equation.params)
        if equation.primitive.multiple_results:
            return [_array(flat[np.asarray(numbers)]) for numbers in moved]
        return _array(flat[np.asarray(moved)])

    return rule


def _broadcast(given: list[Any], equation: Any) -> np.ndarray:
    shape = equation.params["shape"]
    sizes = [1] * len(shape)
    for size, axis in zip(given[0].shape, equation.params["broadcast_dimensions"], strict=True):
        sizes[axis] = size
    return np.broadcast_to(given[0].reshape(sizes), shape)


def _slice(given: list[Any], equation: Any) -> np.ndarray:
    starts = equation.params["start_indices"]
    limits = equation.params["limit_indices"]
    steps = equation.params["strides"] or (1,) * given[0].ndim
    return given[0][tuple(map(slice, starts, limits, steps))]


def _concatenate(given: list[Any], equation: Any) -> np.ndarray:
    return np.concatenate(list(map(_as_symbols, given)), axis=equation.params["dimension"])


def _scatter_add(given: list[Any], equation: Any) -> np.ndarray:
    """Unit vectors, which JAX scatters, tell which entry goes where."""
    onto = _as_symbols(given[0])
    where = given[1]
    updates = _as_symbols(given[2])
    units = jnp.eye(updates.size).reshape(updates.size, *updates.shape)
    spread = jax.vmap(
        lambda unit: equation.primitive.bind(jnp.zeros(onto.shape), where, unit, **equation.params)
    )
    result = onto.copy().ravel()
    for entry, place in np.argwhere(np.asarray(spread(units)).reshape(updates.size, -1)):
        result[place] = result[place] + updates.ravel()[entry]
    return result.reshape(onto.shape)


def _dot_general(given: list[Any], equation: Any) -> np.ndarray:
    """A product summed over axes, as `einsum` takes it: each axis has a number."""
    a, b = map(_as_symbols, given)
    (a_sum, b_sum), (a_batch, b_batch) = equation.params["dimension_numbers"]
    a_axes = list(range(a.ndim))
    b_axes = list(range(a.ndim, a.ndim + b.ndim))
    # Axes that are summed or shared have the same number in both.
    for i, j in zip((*a_sum, *a_batch), (*b_sum, *b_batch), strict=True):
        b_axes[j] = a_axes[i]
    batch = [a_axes[i] for i in a_batch]
    kept = [axis for i, axis in enumerate(a_axes) if i not in (*a_sum, *a_batch)]
    kept += [axis for j, axis in enumerate(b_axes) if j not in (*b_sum, *b_batch)]
    return _array(np.einsum(a, a_axes, b, b_axes, [*batch, *kept]))


def _select(given: list[Any], equation: Any) -> np.ndarray:
    which, *cases = given
    if _is_symbolic(which):
        # JAX puts the case of false first.
        return _each(lambda yes, no, case: casadi.if_else(yes, case, no))(given, equation)
    return _array(np.choose(np.asarray(which, dtype=int), list(map(_as_symbols, cases))))


def _scan(given: list[Any], equation: Any) -> list[Any]:
    """The loop, turn by turn."""
    body = equation.params["jaxpr"]
    constants = equation.params["num_consts"]
    carried = equation.params["num_carry"]
    fixed = given[:constants]
    carry = given[constants : constants + carried]
    rows = given[constants + carried :]
    order = list(range(equation.params["length"]))
    if equation.params["reverse"]:
        order.reverse()
    outputs: dict[int, list[Any]] = {}
    for turn in order:
        current = [_row(values, turn) for values in rows]
        results = _evaluated(body.jaxpr, body.consts, [*fixed, *carry, *current])
        carry = results[:carried]
        outputs[turn] = list(map(_as_symbols, results[carried:]))
    columns = zip(*(outputs[turn] for turn in sorted(outputs)), strict=True)
    return [*carry, *map(np.stack, columns)]


def _row(values: Any, turn: int) -> Any:
    return _array(values[turn]) if _is_symbolic(values) else np.asarray(values)[turn]


# Equations that call a function, and where they keep it.
INNER = ("jit", "pjit", "closed_call", "custom_jvp_call", "custom_vjp_call", "remat")
INNER_PLACES = ("jaxpr", "call_jaxpr", "fun_jaxpr")


def _inner(given: list[Any], equation: Any) -> list[Any]:
    """A function inside the function."""
    inner = next(equation.params[name] for name in INNER_PLACES if name in equation.params)
    if isinstance(inner, ClosedJaxpr):
        return _evaluated(inner.jaxpr, inner.consts, given)
    return _evaluated(inner, (), given)


def _cholesky(given: list[Any], equation: Any) -> np.ndarray:
    matrix = given[0]
    factor = np.zeros_like(matrix) * 0.0
    for j in range(len(matrix)):
        for i in range(j, len(matrix)):
            rest = matrix[i, j]
            if j > 0:  # the product of empty rows would be no symbol
                rest = rest - factor[i, :j] @ factor[j, :j]
            factor[i, j] = casadi.sqrt(rest) if i == j else rest / factor[j, j]
    return factor


def _triangular_solve(given: list[Any], equation: Any) -> np.ndarray:
    matrix, right = map(_as_symbols, given)
    settings = equation.params
    if settings["unit_diagonal"] or matrix.ndim != 2:
        raise ModelError(
            "triangular systems are symbolic one at a time and with their diagonal; tell us of "
            "this model"
        )
    left_side = settings["left_side"]
    turned = settings["transpose_a"] == left_side
    if turned:
        matrix = matrix.T
    if not left_side:
        right = right.T
    order = list(range(len(matrix)))
    if settings["lower"] == turned:  # an upper matrix: its last row is solved first
        order.reverse()
    solved = np.zeros_like(right) * 0.0
    for count, i in enumerate(order):
        for column in range(right.shape[1]):
            rest = right[i, column]
            for j in sorted(order[:count]):
                rest = rest - matrix[i, j] * solved[j, column]
            solved[i, column] = rest / matrix[i, i]
    return solved if left_side else solved.T


def _unchanged(given: list[Any], equation: Any) -> Any:
    return given[0]


def _of_casadi(name: str) -> Callable[[list[Any], Any], np.ndarray]:
    """The rule of a function that CasADi has; it is looked up late, for CasADi may be missing."""
    return _each(lambda *given: getattr(casadi, name)(*given))


RULES: dict[str, Callable[[list[Any], Any], Any]] = {
    "add": _each(operator.add),
    "add_any": _each(operator.add),
    "sub": _each(operator.sub),
    "mul": _each(operator.mul),
    "div": _each(operator.truediv),
    "neg": _each(operator.neg),
    "square": _each(lambda x: x * x),
    "pow": _each(operator.pow),
    "integer_pow": lambda given, equation: given[0] ** equation.params["y"],
    "rsqrt": _each(lambda x: 1 / casadi.sqrt(x)),
    "logistic": _each(lambda x: 1 / (1 + casadi.exp(-x))),
    "eq": _each(operator.eq),
    "ne": _each(operator.ne),
    "lt": _each(operator.lt),
    "le": _each(operator.le),
    "gt": _each(operator.gt),
    "ge": _each(operator.ge),
    "max": _of_casadi("fmax"),
    "min": _of_casadi("fmin"),
    "abs": _of_casadi("fabs"),
    "and": _of_casadi("logic_and"),
    "or": _of_casadi("logic_or"),
    "not": _of_casadi("logic_not"),
    "gather": _moved(0),
    "dynamic_slice": _moved(0),
    "rev": _moved(0),
    "split": _moved(0),
    "stack": _moved(),
    "pad": _moved(),
    "scatter": _moved(0, 2),
    # The usual ways to move entries in numpy, which is faster at it.
    "reshape": lambda given, equation: given[0].reshape(equation.params["new_sizes"]),
    "transpose": lambda given, equation: given[0].transpose(equation.params["permutation"]),
    "squeeze": lambda given, equation: given[0].squeeze(tuple(equation.params["dimensions"])),
    "broadcast_in_dim": _broadcast,
    "slice": _slice,
    "concatenate": _concatenate,
    "scatter-add": _scatter_add,
    "dot_general": _dot_general,
    "reduce_sum": lambda given, equation: _array(given[0].sum(axis=tuple(equation.params["axes"]))),
    "select_n": _select,
    "scan": _scan,
    "convert_element_type": _unchanged,
    "copy": _unchanged,
    "stop_gradient": _unchanged,
    "cholesky": _cholesky,
    "triangular_solve": _triangular_solve,
    **dict.fromkeys(INNER, _inner),
}
for _name in ("sin", "cos", "tan", "tanh", "exp", "expm1", "log", "log1p", "sqrt", "sign"):
    RULES[_name] = _of_casadi(_name)
