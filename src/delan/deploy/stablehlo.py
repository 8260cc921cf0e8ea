"""A model as StableHLO by `jax.export`, for programs in JAX that need not know delan."""

from collections.abc import Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import jax
from jax import export as jax_export

from ..errors import SettingsError, installing
from .artifact import Format, ModelFunction, functions_of, with_numbers, write_artifact
from .layout import ExportSettings

PLATFORMS = ("cpu", "cuda", "rocm", "tpu")


def stablehlo(model: Any, settings: ExportSettings, only: Sequence[str] = ()) -> dict[str, bytes]:
    """The functions of a model, serialised: for batches of states, differentiable once in reverse.

    Args:
        only: names of functions; all if there are none.
    """
    if find_spec("flatbuffers") is None:
        raise SettingsError(f"StableHLO needs the package flatbuffers; {installing('stablehlo')}")
    with jax.enable_x64(settings.precision == "double"):
        (batch,) = jax_export.symbolic_shape("batch")
        states = jax.ShapeDtypeStruct((batch, model.joints.dof), settings.dtype)
        functions = functions_of(with_numbers(model, settings.dtype))
        return {name: _serialised(functions[name], states) for name in only or functions}


def _serialised(function: ModelFunction, states: jax.ShapeDtypeStruct) -> bytes:
    batched = jax.jit(jax.vmap(function.call))
    exported = jax_export.export(batched, platforms=PLATFORMS)(*[states] * len(function.takes))
    return bytes(exported.serialize(vjp_order=1))


def export_stablehlo(
    model: Any,
    folder: Path,
    settings: ExportSettings | None = None,
    story: Mapping[str, str] | None = None,
) -> dict[str, Any]:
    """Write a model as StableHLO into a folder; return the contents of its `model.json`."""
    settings = settings or ExportSettings()
    files = stablehlo(model, settings)
    facts = {
        "platforms": PLATFORMS,
        "jax": jax.__version__,
        "shapes": "every argument is (batch, dof)",
    }
    return write_artifact(folder, model, files, Format("stablehlo", facts), settings, story)
