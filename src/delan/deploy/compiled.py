"""A model as machine code, called from Python: the code of `c_source`, built by the system's
compiler into a cache.
"""

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
        """Compile a model, or find it in the cache; compiled code is shared by all models of one
        shape.
        """
        settings = ExportSettings(
            name="model", precision=precision, fast_math=fast_math, weights="data"
        )
        self.joints: Joints = model.joints
        self._dtype = np.dtype(np.float32 if precision == "float" else np.float64)
        numbers = Numbers.of(model)
        self._settings, self._layout = settings, numbers.layout
        self._macros = macros_of(Shape.of(model), numbers, settings)
        self._weights = np.zeros(self._layout.size, self._dtype)
        made = c_source(model, settings)
        self._library = library_of(made.header, _with_calls(made), settings.name)
        self._functions, self._tables = made.functions, {}
        n = self.joints.dof
        self._state = np.zeros(0, self._dtype)
        self._q, self._qd, self._push = (np.zeros(n, self._dtype) for _ in range(3))
        self._torque, self._acceleration = np.zeros(n, self._dtype), np.zeros(n, self._dtype)
        self._part, self._inertia = np.zeros((4, n), self._dtype), np.zeros((n, n), self._dtype)
        self._energies, self._away = np.zeros(2, self._dtype), np.zeros(1, self._dtype)
        q, qd, push = self._q, self._qd, self._push
        self._inverse = self._bound("inverse_dynamics", None, q, qd, push, self._torque)
        self._forward = self._bound("forward_dynamics", None, q, qd, push, self._acceleration)
        self._mass = self._bound("mass_matrix", q, self._inertia)
        self._coriolis = self._bound("coriolis", q, qd, self._part[1])
        self._gravity = self._bound("gravity", q, self._part[2])
        self._friction = self._bound("friction", None, q, qd, push, self._part[3])
        self._energy = self._bound("energy", q, qd, self._energies[:1], self._energies[1:])
        self._in_domain = self._bound("in_domain", q, qd, self._away)
        # On the object instead of its class, so that they are called without being bound.
        self.inverse_dynamics = self._quick("inverse_dynamics", self._torque, self.inverse_dynamics)
        self.forward_dynamics = self._quick(
            "forward_dynamics", self._acceleration, self.forward_dynamics
        )
        self.take(numbers.vector)

    @property
    def remembers(self) -> bool:
        """Whether friction knows the way behind it (`stops`): called from here it counts as slid."""
        return "state_update" in self._functions

    def swap(self, model: Any) -> None:
        """Take the numbers of another model of the same shape; nothing is compiled."""
        numbers = Numbers.of(model)
        if (
            numbers.layout != self._layout
            or macros_of(Shape.of(model), numbers, self._settings) != self._macros
        ):
            raise ModelError(
                "the model has another shape than the compiled one: sizes, joints, links, activation or friction are "
                "not the same; compile it anew"
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
        _, coriolis, gravity, friction = self._part.copy()
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
        return float(self._away[0])

    def _put(self, *given: Vector) -> None:
        """Copy one sample to where the compiled functions read it."""
        for place, vector in zip((self._q, self._qd, self._push), given, strict=False):
            if np.shape(vector) != place.shape:
                raise ModelError(
                    f"expected one sample, shape {place.shape}, got shape {np.shape(vector)}"
                )
            place[...] = vector

    def _bound(self, function: str, *arrays: np.ndarray | None) -> Callable[[], None]:
        """A function of the library with all its arguments in place; the arrays are those of this
        object.
        """
        if function not in self._functions:

            def missing() -> None:
                raise ModelError(f"this kind of model has no {function.replace('_', ' ')}")

            return missing
        places = [None if one is None else one.ctypes.data for one in (self._weights, *arrays)]
        table = (ctypes.c_void_p * len(places))(*places)
        self._tables[function] = table
        compiled = self._library[f"model_call_{function}"]
        compiled.restype = None
        return partial(compiled, table)

    def _quick(
        self, function: str, result: np.ndarray, slow: Callable[..., Vector]
    ) -> Callable[..., Vector]:
        """The same function taking its three vectors at once, without Python between; `slow` where
        that cannot be.
        """
        call = caller()
        if call is None or function not in self._functions:
            return slow
        address = ctypes.cast(self._library[f"model_call_{function}"], ctypes.c_void_p).value
        inputs = [one.ctypes.data for one in (self._q, self._qd, self._push)]
        single = self._dtype == np.float32
        return call(
            address,
            ctypes.addressof(self._tables[function]),
            3,
            len(self._q),
            single,
            result,
            slow,
            *inputs,
        )


def _kept(result: Vector, out: Vector | None) -> Vector:
    """The result where the next call does not write over it."""
    if out is None:
        return result.copy()
    if not isinstance(out, np.ndarray) or out.shape != result.shape or out.dtype != result.dtype:
        given = f"{out.dtype} {out.shape}" if isinstance(out, np.ndarray) else type(out).__name__
        raise ModelError(
            f"out must be an array of {result.dtype} {result.shape}, got {given}; or leave it out"
        )
    out[...] = result
    return out


def compile(
    model: Any, *, precision: Precision = "double", fast_math: bool = True
) -> CompiledModel:
    """The model as machine code; needs a C compiler."""
    return CompiledModel(model, precision=precision, fast_math=fast_math)


def _with_calls(made: CSource) -> str:
    """The source, and for each function one that takes all its arguments as a table of pointers."""
    calls = []
    for function in made.functions:
        promise = PROMISES[function]
        if promise.gives == "state":
            continue
        count = 1 + len(promise.takes.split()) + len(promise.gives.split())
        called = f"model_{function}({', '.join(f'a[{i}]' for i in range(count))})"
        body = f"*(real *)a[{count}] = {called}" if promise.result else called
        signature = f"void model_call_{function}(void *const *a)"
        calls.append(f"{signature};\n{signature}\n{{\n    {body};\n}}")
    return "\n\n".join([made.source, *calls, ""])
