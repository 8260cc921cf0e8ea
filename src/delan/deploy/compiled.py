"""A model as machine code, called from Python: built by the system's compiler into a cache."""

import ctypes
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
from jaxtyping import Float

from ..errors import ModelError
from ..joints import Energy, Joints, TorqueComponents
from .c_code import PROMISES, CSource, c_source, macros_of
from .compiler import caller, library_of
from .layout import ExportSettings, Numbers, Precision, Shape

Vector = Float[np.ndarray, " dof"]


class CompiledModel:
    """A model in machine code, with the methods of the model it was made of, on numpy arrays.

    Each result is an array of its own. A loop that must not allocate gives `out`, an array of the
    code's precision, to be written to and given back. Not for several threads at once: give each
    its own.
    """

    def __init__(self, model: Any, *, precision: Precision = "double", fast_math: bool = True):
        """Compile a model, or find it in the cache; models of one shape share compiled code."""
        settings = ExportSettings(
            name="model", precision=precision, fast_math=fast_math, weights="data"
        )
        numbers = Numbers.of(model)
        code = c_source(model, settings)
        self.joints: Joints = model.joints
        self._settings = settings
        self._layout = numbers.layout
        self._macros = macros_of(Shape.of(model), numbers, settings)
        self._functions = code.functions
        self._library = library_of(code.header, _with_calls(code), settings.name)
        self._tables: dict[str, Any] = {}
        # The arrays that the compiled functions read and write; their addresses stay.
        dof = self.joints.dof
        self._weights = self._zeros(self._layout.size)
        q = self._q = self._zeros(dof)
        qd = self._qd = self._zeros(dof)
        push = self._push = self._zeros(dof)
        self._torque = self._zeros(dof)
        self._acceleration = self._zeros(dof)
        self._parts = self._zeros(4, dof)
        self._inertia = self._zeros(dof, dof)
        self._energies = self._zeros(2)
        self._distance = self._zeros(1)
        self._inverse = self._bound("inverse_dynamics", None, q, qd, push, self._torque)
        self._forward = self._bound("forward_dynamics", None, q, qd, push, self._acceleration)
        self._mass = self._bound("mass_matrix", q, self._inertia)
        self._coriolis = self._bound("coriolis", q, qd, self._parts[1])
        self._gravity = self._bound("gravity", q, self._parts[2])
        self._friction = self._bound("friction", None, q, qd, push, self._parts[3])
        self._energy = self._bound("energy", q, qd, self._energies[:1], self._energies[1:])
        self._in_domain = self._bound("in_domain", q, qd, self._distance)
        # On the object instead of its class, so that they are called without being bound.
        self.inverse_dynamics = self._quick("inverse_dynamics", self._torque, self.inverse_dynamics)
        self.forward_dynamics = self._quick(
            "forward_dynamics", self._acceleration, self.forward_dynamics
        )
        self.take(numbers.vector)

    def _zeros(self, *shape: int) -> np.ndarray:
        return np.zeros(shape, self._settings.dtype)

    @property
    def remembers(self) -> bool:
        """Whether friction has a memory (`stops`), which counts as slid when called from here."""
        return "state_update" in self._functions

    def swap(self, model: Any) -> None:
        """Take the numbers of another model of the same shape; nothing is compiled."""
        numbers = Numbers.of(model)
        macros = macros_of(Shape.of(model), numbers, self._settings)
        if numbers.layout != self._layout or macros != self._macros:
            raise ModelError(
                "the model has another shape than the compiled one: sizes, joints, links, "
                "activation or friction are not the same; compile it anew"
            )
        self.take(numbers.vector)

    def take(self, numbers: Float[np.ndarray, " numbers"]) -> None:
        """Take the numbers of another model of the same shape, as `Numbers` orders them."""
        self._weights[:] = numbers

    def inverse_dynamics(
        self, q: Vector, qd: Vector, qdd: Vector, *, out: Vector | None = None
    ) -> Vector:
        """The torque of a motion [N m or N]."""
        self._put(q, qd, qdd)
        self._inverse()
        return _kept(self._torque, out)

    def forward_dynamics(
        self, q: Vector, qd: Vector, tau: Vector, *, out: Vector | None = None
    ) -> Vector:
        """The acceleration that a torque makes [rad/s² or m/s²]."""
        self._put(q, qd, tau)
        self._forward()
        return _kept(self._acceleration, out)

    def mass_matrix(self, q: Vector) -> Float[np.ndarray, "dof dof"]:
        """The inertia H(q) [kg m² or kg]."""
        self._put(q)
        self._mass()
        return self._inertia.copy()

    def components(self, q: Vector, qd: Vector, qdd: Vector) -> TorqueComponents:
        """The parts of the torque."""
        torque = self.inverse_dynamics(q, qd, qdd)
        self._coriolis()
        self._gravity()
        self._friction()
        _, coriolis, gravity, friction = self._parts.copy()
        return TorqueComponents(torque - coriolis - gravity - friction, coriolis, gravity, friction)

    def energy(self, q: Vector, qd: Vector) -> Energy:
        """Kinetic and potential energy [J]."""
        self._put(q, qd)
        self._energy()
        kinetic, potential = self._energies.tolist()
        return Energy(kinetic, potential)

    def in_domain(self, q: Vector, qd: Vector) -> float:
        """How far a state is from the training data: at most 1 inside."""
        self._put(q, qd)
        self._in_domain()
        return float(self._distance[0])

    def _put(self, *given: Vector) -> None:
        """Copy one sample to where the compiled functions read it."""
        for place, vector in zip((self._q, self._qd, self._push), given, strict=False):
            if np.shape(vector) != place.shape:
                raise ModelError(
                    f"expected one sample, shape {place.shape}, got shape {np.shape(vector)}"
                )
            place[...] = vector

    def _bound(self, function: str, *arrays: np.ndarray | None) -> Callable[[], None]:
        """A function of the library with all its arguments in place, arrays of this object."""
        if function not in self._functions:

            def missing() -> None:
                raise ModelError(f"this kind of model has no {function.replace('_', ' ')}")

            return missing
        table = (ctypes.c_void_p * (1 + len(arrays)))(self._weights.ctypes.data)
        for place, array in enumerate(arrays, start=1):
            if array is not None:
                table[place] = array.ctypes.data
        self._tables[function] = table
        compiled = self._library[f"model_call_{function}"]
        compiled.restype = None
        return partial(compiled, table)

    def _quick(
        self, function: str, result: np.ndarray, slow: Callable[..., Vector]
    ) -> Callable[..., Vector]:
        """The same function of three vectors without Python between; `slow` if that cannot be."""
        call = caller()
        if call is None or function not in self._functions:
            return slow
        address = ctypes.cast(self._library[f"model_call_{function}"], ctypes.c_void_p).value
        inputs = [array.ctypes.data for array in (self._q, self._qd, self._push)]
        return call(
            address,
            ctypes.addressof(self._tables[function]),
            len(inputs),
            self.joints.dof,
            self._settings.precision == "float",
            result,
            slow,
            *inputs,
        )


def _kept(result: Vector, out: Vector | None) -> Vector:
    """The result where the next call does not write over it."""
    if out is None:
        return result.copy()
    if not isinstance(out, np.ndarray) or out.shape != result.shape or out.dtype != result.dtype:
        given = type(out).__name__
        if isinstance(out, np.ndarray):
            given = f"{out.dtype} {out.shape}"
        raise ModelError(
            f"out must be an array of {result.dtype} {result.shape}, got {given}; or leave it out"
        )
    out[...] = result
    return out


def compile(
    model: Any, *, precision: Precision = "double", fast_math: bool = True
) -> CompiledModel:
    """Compile a model to machine code; this needs a C compiler."""
    return CompiledModel(model, precision=precision, fast_math=fast_math)


def _with_calls(code: CSource) -> str:
    """The source, and for each function a call that takes its arguments as a table of pointers."""
    parts = [code.source]
    for function in code.functions:
        promise = PROMISES[function]
        if promise.gives == "state":
            continue
        # The weights come first.
        count = 1 + len(promise.takes.split()) + len(promise.gives.split())
        body = f"model_{function}({', '.join(f'a[{i}]' for i in range(count))})"
        if promise.result:
            body = f"*(real *)a[{count}] = {body}"
        signature = f"void model_call_{function}(void *const *a)"
        parts.append(f"{signature};\n{signature}\n{{\n    {body};\n}}")
    return "\n\n".join([*parts, ""])
