"""A model as StableHLO by `jax.export`, for programs in JAX that need not know delan."""

from collections.abc import Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
from jax import export as jax_export

from ..errors import SettingsError, installing
from .artifact import Format, write_artifact
from .functions import ModelFunction, functions_of, with_numbers
from .layout import ExportSettings

PLATFORMS = ("cpu", "cuda", "rocm", "tpu")


def stablehlo(model: Any, settings: ExportSettings, only: Sequence[str] = ()) -> dict[str, bytes]:
    """The functions of a model, serialised: of any number of states at once, and differentiable
    once in reverse.

    Args:
        only: names of functions; all if there are none.
    """
    if find_spec("flatbuffers") is None:
        raise SettingsError(f"StableHLO needs the package flatbuffers; {installing('stablehlo')}")
    dtype = jnp.float64 if settings.precision == "double" else jnp.float32
    with jax.enable_x64(settings.precision == "double"):
        (batch,) = jax_export.symbolic_shape("batch")
        states = jax.ShapeDtypeStruct((batch, model.joints.dof), dtype)
        functions = functions_of(with_numbers(model, dtype))
        return {name: _serialised(functions[name], states) for name in only or functions}


def _serialised(function: ModelFunction, states: jax.ShapeDtypeStruct) -> bytes:
    many = jax.jit(jax.vmap(function.call))
    exported = jax_export.export(many, platforms=PLATFORMS)(*(states for _ in function.takes))
    return bytes(exported.serialize(vjp_order=1))


def export_stablehlo(
    model: Any,
    folder: Path,
    settings: ExportSettings | None = None,
    story: Mapping[str, str] | None = None,
) -> dict[str, Any]:
    """Write a model as StableHLO into a folder; returns what its `model.json` says."""
    settings = settings or ExportSettings()
    functions, double = functions_of(model), settings.precision == "double"
    made = {name: (functions[name], data) for name, data in stablehlo(model, settings).items()}
    usage = _USAGE.format(
        double='jax.config.update("jax_enable_x64", True)\n' if double else "",
        dof=model.joints.dof,
        dtype="float64" if double else "float32",
    )
    facts = {
        "platforms": PLATFORMS,
        "jax": jax.__version__,
        "shapes": "every argument is (batch, dof)",
    }
    return write_artifact(
        folder, model, made, Format("stablehlo", "stablehlo", usage, facts), settings, story or {}
    )


_USAGE = """\
Every function takes arrays of shape (batch, {dof}) and gives a tuple of arrays with a batch in front. The files hold a
program and no Python; they are read by JAX alone:

```python
import jax
import numpy as np
from jax import export

{double}with open("inverse_dynamics.stablehlo", "rb") as file:
    inverse_dynamics = export.deserialize(bytearray(file.read())).call
q = qd = qdd = np.zeros((1, {dof}), {dtype!r})
(tau,) = jax.jit(inverse_dynamics)(q, qd, qdd)
```
"""
