"""Functions of JAX on the symbols of CasADi: JAX writes a function down as equations, and here each
is done again.

So the laws of mechanics stand once, in JAX, and whatever a model can do becomes symbolic. An array
of symbols is a numpy array of objects, each a scalar `casadi.SX` or a number; equations without
symbols are left to JAX.
"""

import operator
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.extend.core import ClosedJaxpr, Jaxpr, Literal
from jax.extend.core import Var as Variable

from ..errors import ModelError

try:
    import casadi as _casadi
except ImportError:
    _casadi = None
casadi: Any = _casadi


def symbolic(function: Callable[..., Any], *columns: Any) -> list[np.ndarray]:
    """The results of a function of vectors, given columns of symbols; arrays of symbols."""
    arguments = []
    for column in columns:
        rows = np.empty(column.numel(), dtype=object)
        for row in range(len(rows)):
            rows[row] = column[row]
        arguments.append(rows)
    written = jax.make_jaxpr(function)(*(jnp.zeros(len(rows)) for rows in arguments))
    return [_as_symbols(result) for result in _done(written.jaxpr, written.consts, arguments)]


def _done(jaxpr: Jaxpr, constants: Sequence[Any], arguments: Sequence[Any]) -> list[Any]:
    """The results of the equations."""
    known: dict[Variable, Any] = {}
    known.update(zip(jaxpr.constvars, constants, strict=True))
    known.update(zip(jaxpr.invars, arguments, strict=True))

    def value(atom: Any) -> Any:
        return atom.val if isinstance(atom, Literal) else known[atom]

    for equation in jaxpr.eqns:
        given = [value(atom) for atom in equation.invars]
        primitive, name = equation.primitive, equation.primitive.name
        if not any(map(_is_symbolic, given)) and name not in INNER:
            results = primitive.bind(*given, **equation.params)
        elif name in RULES:
            results = RULES[name](given, equation)
        else:
            raise ModelError(
                f"the model computes {name!r}, which has no symbolic form here; tell us of it"
            )
        results = results if primitive.multiple_results else [results]
        known.update(zip(equation.outvars, results, strict=True))
    return [value(atom) for atom in jaxpr.outvars]


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


def _each(function: Callable[..., Any]) -> Callable[[list[Any], Any], np.ndarray]:
    """A rule that does the same to every entry."""

    def rule(given: list[Any], equation: Any) -> np.ndarray:
        return _array(np.frompyfunc(function, len(given), 1)(*map(_as_symbols, given)))

    return rule


def _moved(*data: int) -> Callable[[list[Any], Any], Any]:
    """A rule that puts entries in other places: JAX moves their numbers; `data` are the inputs that
    move, or all.
    """

    def rule(given: list[Any], equation: Any) -> Any:
        numbered, entries, start = list(given), [], 0
        for place in data or range(len(given)):
            values = _as_symbols(given[place])
            numbered[place] = np.arange(start, start + values.size).reshape(values.shape)
            entries.append(values.ravel())
            start += values.size
        flat = np.concatenate(entries)
        moved = equation.primitive.bind(*numbered, **equation.params)
        if equation.primitive.multiple_results:
            return [_array(flat[np.asarray(one)]) for one in moved]
        return _array(flat[np.asarray(moved)])

    return rule


def _broadcast(given: list[Any], equation: Any) -> np.ndarray:
    shape, axes = equation.params["shape"], equation.params["broadcast_dimensions"]
    sizes = [given[0].shape[axes.index(axis)] if axis in axes else 1 for axis in range(len(shape))]
    return np.broadcast_to(given[0].reshape(sizes), shape)


def _slice(given: list[Any], equation: Any) -> np.ndarray:
    told = equation.params
    steps = told["strides"] or (1,) * given[0].ndim
    return given[0][tuple(map(slice, told["start_indices"], told["limit_indices"], steps))]


def _scatter_add(given: list[Any], equation: Any) -> np.ndarray:
    """Which entry goes where is what JAX does to unit vectors."""
    onto, where, updates = _as_symbols(given[0]), given[1], _as_symbols(given[2])
    units = jnp.eye(updates.size).reshape(updates.size, *updates.shape)
    spread = jax.vmap(
        lambda unit: equation.primitive.bind(jnp.zeros(onto.shape), where, unit, **equation.params)
    )
    result = onto.copy().ravel()
    for entry, place in np.argwhere(np.asarray(spread(units)).reshape(updates.size, -1)):
        result[place] = result[place] + updates.ravel()[entry]
    return result.reshape(onto.shape)


def _dot_general(given: list[Any], equation: Any) -> np.ndarray:
    a, b = map(_as_symbols, given)
    (a_sum, b_sum), (a_batch, b_batch) = equation.params["dimension_numbers"]
    a_axes, b_axes = list(range(a.ndim)), list(range(a.ndim, a.ndim + b.ndim))
    for i, j in zip((*a_sum, *a_batch), (*b_sum, *b_batch), strict=True):
        b_axes[j] = a_axes[i]
    batch = [a_axes[i] for i in a_batch]
    kept = [axis for i, axis in enumerate(a_axes) if i not in (*a_sum, *a_batch)]
    kept += [axis for j, axis in enumerate(b_axes) if j not in (*b_sum, *b_batch)]
    return _array(np.einsum(a, a_axes, b, b_axes, [*batch, *kept]))


def _select(given: list[Any], equation: Any) -> np.ndarray:
    which, *cases = given
    if _is_symbolic(which):
        return _each(lambda one, no, yes: casadi.if_else(one, yes, no))(given, equation)
    return _array(np.choose(np.asarray(which, dtype=int), [_as_symbols(case) for case in cases]))


def _scan(given: list[Any], equation: Any) -> list[Any]:
    """The loop, turn by turn."""
    body, parameters = equation.params["jaxpr"], equation.params
    constants, carried = parameters["num_consts"], parameters["num_carry"]
    fixed, carry, rows = (
        given[:constants],
        given[constants : constants + carried],
        given[constants + carried :],
    )
    turns = range(parameters["length"])
    kept: list[list[Any]] = []
    for turn in reversed(turns) if parameters["reverse"] else turns:
        results = _done(
            body.jaxpr, body.consts, [*fixed, *carry, *(_row(one, turn) for one in rows)]
        )
        carry = results[:carried]
        kept.append(results[carried:])
    if parameters["reverse"]:
        kept.reverse()
    return [
        *carry,
        *(np.stack([_as_symbols(one) for one in column]) for column in zip(*kept, strict=True)),
    ]


def _row(values: Any, turn: int) -> Any:
    return _array(values[turn]) if _is_symbolic(values) else np.asarray(values)[turn]


INNER = ("jit", "pjit", "closed_call", "custom_jvp_call", "custom_vjp_call", "remat")


def _inner(given: list[Any], equation: Any) -> list[Any]:
    """A function inside of the function."""
    inner = next(
        equation.params[name]
        for name in ("jaxpr", "call_jaxpr", "fun_jaxpr")
        if name in equation.params
    )
    return (
        _done(inner.jaxpr, inner.consts, given)
        if isinstance(inner, ClosedJaxpr)
        else _done(inner, (), given)
    )


def _cholesky(given: list[Any], equation: Any) -> np.ndarray:
    matrix = given[0]
    factor = np.zeros_like(matrix) * 0.0
    for j in range(len(matrix)):
        factor[j, j] = casadi.sqrt(
            matrix[j, j] - factor[j, :j] @ factor[j, :j] if j else matrix[j, j]
        )
        for i in range(j + 1, len(matrix)):
            rest = matrix[i, j] - factor[i, :j] @ factor[j, :j] if j else matrix[i, j]
            factor[i, j] = rest / factor[j, j]
    return factor


def _triangular_solve(given: list[Any], equation: Any) -> np.ndarray:
    matrix, right = map(_as_symbols, given)
    told = equation.params
    if told["unit_diagonal"] or matrix.ndim != 2:
        raise ModelError(
            "triangular systems are symbolic one at a time and with their diagonal; tell us of this model"
        )
    turned = told["transpose_a"] == told["left_side"]
    matrix = matrix.T if turned else matrix
    right = right if told["left_side"] else right.T
    downwards = told["lower"] != turned
    solved = np.zeros_like(right) * 0.0
    for i in range(len(matrix)) if downwards else reversed(range(len(matrix))):
        done = slice(0, i) if downwards else slice(i + 1, None)
        for column in range(right.shape[1]):
            rest = right[i, column]
            for a, x in zip(matrix[i, done], solved[done, column], strict=True):
                rest = rest - a * x
            solved[i, column] = rest / matrix[i, i]
    return solved if told["left_side"] else solved.T


def _of_casadi(name: str) -> Callable[..., Any]:
    return lambda *given: getattr(casadi, name)(*given)


RULES: dict[str, Callable[[list[Any], Any], Any]] = {
    **{
        name: _each(function)
        for name, function in {
            "add": operator.add,
            "add_any": operator.add,
            "sub": operator.sub,
            "mul": operator.mul,
            "div": operator.truediv,
            "neg": operator.neg,
            "square": lambda x: x * x,
            "pow": operator.pow,
            "rsqrt": lambda x: 1 / casadi.sqrt(x),
            "logistic": lambda x: 1 / (1 + casadi.exp(-x)),
            "eq": operator.eq,
            "ne": operator.ne,
            "lt": operator.lt,
            "le": operator.le,
            "gt": operator.gt,
            "ge": operator.ge,
        }.items()
    },
    **{
        name: _each(_of_casadi(known))
        for name, known in {
            "max": "fmax",
            "min": "fmin",
            "abs": "fabs",
            "and": "logic_and",
            "or": "logic_or",
            "not": "logic_not",
        }.items()
    },
    **{
        name: _each(_of_casadi(name))
        for name in ("sin", "cos", "tan", "tanh", "exp", "expm1", "log", "log1p", "sqrt", "sign")
    },
    **{name: _moved(0) for name in ("gather", "dynamic_slice", "rev", "split")},
    **{name: _moved() for name in ("stack", "pad")},
    **dict.fromkeys(INNER, _inner),
    # The usual ones in numpy, which is faster at it.
    "reshape": lambda given, equation: given[0].reshape(equation.params["new_sizes"]),
    "transpose": lambda given, equation: given[0].transpose(equation.params["permutation"]),
    "squeeze": lambda given, equation: given[0].squeeze(tuple(equation.params["dimensions"])),
    "broadcast_in_dim": _broadcast,
    "slice": _slice,
    "concatenate": lambda given, equation: np.concatenate(
        [_as_symbols(one) for one in given], axis=equation.params["dimension"]
    ),
    "scatter": _moved(0, 2),
    "scatter-add": _scatter_add,
    "dot_general": _dot_general,
    "integer_pow": lambda given, equation: given[0] ** equation.params["y"],
    "reduce_sum": lambda given, equation: _array(given[0].sum(axis=tuple(equation.params["axes"]))),
    "select_n": _select,
    "scan": _scan,
    "convert_element_type": lambda given, equation: given[0],
    "copy": lambda given, equation: given[0],
    "stop_gradient": lambda given, equation: given[0],
    "cholesky": _cholesky,
    "triangular_solve": _triangular_solve,
}
