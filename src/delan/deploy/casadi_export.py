"""A model as CasADi functions: symbolic, differentiable as often as needed, for model-predictive
control.
"""

import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from ..errors import SettingsError, installing
from .artifact import Format, write_artifact
from .casadi_symbols import casadi, symbolic
from .functions import ModelFunction, functions_of, with_numbers
from .layout import ExportSettings


def casadi_functions(model: Any, only: Sequence[str] = ()) -> dict[str, Any]:
    """The functions of a model as `casadi.Function` of columns, in double precision.

    Whether a state is like the training data is no smooth question and is left out.

    Args:
        only: names of functions; all if there are none.
    """
    if casadi is None:
        raise SettingsError(f"CasADi is not installed; {installing('casadi')}")
    with jax.enable_x64(True):
        functions = _wanted(with_numbers(model, jnp.float64))
        dof = model.joints.dof
        return {name: _function(name, functions[name], dof) for name in only or functions}


def _wanted(model: Any) -> dict[str, ModelFunction]:
    return {name: function for name, function in functions_of(model).items() if name != "in_domain"}


def _function(name: str, function: ModelFunction, dof: int) -> Any:
    columns = [casadi.SX.sym(argument, dof) for argument in function.takes]
    results = [_matrix(result) for result in symbolic(function.call, *columns)]
    return casadi.Function(
        name, columns, casadi.cse(results), list(function.takes), list(function.gives)
    )


def _matrix(values: np.ndarray) -> Any:
    """An array of symbols as CasADi has it: a scalar, a column or a matrix."""
    rows = values.reshape(len(values), -1) if values.ndim else values.reshape(1, 1)
    return casadi.vertcat(*(casadi.horzcat(*row) for row in rows))


def export_casadi(
    model: Any,
    folder: Path,
    settings: ExportSettings | None = None,
    story: Mapping[str, str] | None = None,
) -> dict[str, Any]:
    """Write a model as CasADi functions into a folder; returns what its `model.json` says."""
    settings = settings or ExportSettings(precision="double")
    if settings.precision != "double":
        raise SettingsError("CasADi computes in double precision; export with precision='double'")
    functions = _wanted(model)
    made = {name: (functions[name], _saved(one)) for name, one in casadi_functions(model).items()}
    usage = _USAGE.format(dof=model.joints.dof)
    facts = {"casadi": casadi.__version__, "shapes": "every argument is a column of dof numbers"}
    return write_artifact(
        folder, model, made, Format("casadi", "casadi", usage, facts), settings, story or {}
    )


def _saved(function: Any) -> bytes:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "function"
        function.save(str(path))
        return path.read_bytes()


_USAGE = """\
Every function takes columns of {dof} numbers, or of symbols, and CasADi can differentiate it. CasADi reads its files in
Python, C++ and MATLAB:

```python
import casadi

forward_dynamics = casadi.Function.load("forward_dynamics.casadi")
q, qd, tau = (casadi.SX.sym(name, {dof}) for name in ("q", "qd", "tau"))
slope = casadi.jacobian(forward_dynamics(q, qd, tau), q)
```
"""
