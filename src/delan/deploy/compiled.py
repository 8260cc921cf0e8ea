"""A model as machine code, called from Python: the code of `c_source`, built by the system's compiler into a cache."""

import ctypes
import hashlib
import os
import platform
import shutil
import subprocess
import tempfile
from functools import cache, partial
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Float

from ..errors import CompilerError, ModelError, SettingsError
from ..joints import Energy, Joints, TorqueComponents
from ..models.trust import bare
from .c_source import CSource, c_source
from .layout import Numbers
from .shape import ExportSettings, Precision

Vector = Float[np.ndarray, " dof"]
FLAGS = (
    "-std=c99",
    "-O3",
    "-march=native",
    "-fno-math-errno",
    "-fno-trapping-math",
    "-fno-signed-zeros",
    "-fPIC",
    "-shared",
)


def find_compiler() -> str | None:
    """The C compiler that CC names, or else cc, gcc or clang."""
    return next(
        (path for name in (os.environ.get("CC"), "cc", "gcc", "clang") if name and (path := shutil.which(name))), None
    )


class CompiledModel:
    """A model in machine code, with the methods of the model it was made of, on numpy arrays.

    Each result is an array that the next call of the same method writes over; copy it to keep it. Not for several
    threads at once: give each its own.
    """

    def __init__(self, model: Any, *, precision: Precision = "double", fast_math: bool = True):
        """Compile a model, or find it in the cache; compiled code is shared by all models of one shape."""
        settings = ExportSettings(name="model", precision=precision, fast_math=fast_math, weights="data")
        self.joints: Joints = bare(model).joints
        self._dtype = np.dtype(np.float32 if precision == "float" else np.float64)
        self._layout = Numbers.of(model).layout
        self._weights = np.zeros(self._layout.size, self._dtype)
        source = c_source(model, settings)
        self._library = _loaded(source, settings)
        self._functions = source.functions
        n = self.joints.dof
        self._state = np.zeros(0, self._dtype)
        self._q, self._qd, self._push = (np.zeros(n, self._dtype) for _ in range(3))
        self._torque, self._acceleration = np.zeros(n, self._dtype), np.zeros(n, self._dtype)
        self._part, self._inertia = np.zeros((4, n), self._dtype), np.zeros((n, n), self._dtype)
        self._energies = np.zeros(2, self._dtype)
        q, qd, push = self._q, self._qd, self._push
        self._inverse = self._bound("inverse_dynamics", None, q, qd, push, self._torque)
        self._forward = self._bound("forward_dynamics", None, q, qd, push, self._acceleration)
        self._mass = self._bound("mass_matrix", q, self._inertia)
        self._coriolis = self._bound("coriolis", q, qd, self._part[1])
        self._gravity = self._bound("gravity", q, self._part[2])
        self._friction = self._bound("friction", None, q, qd, push, self._part[3])
        self._energy = self._bound("energy", q, qd, self._energies[:1], self._energies[1:])
        self._in_domain = self._bound("in_domain", q, qd)
        self.swap(model)

    def swap(self, model: Any) -> None:
        """Take the numbers of another model of the same shape; nothing is compiled."""
        numbers = Numbers.of(model)
        if numbers.layout != self._layout:
            raise ModelError("the model has another shape than the compiled one; compile it anew")
        self._weights[:] = numbers.vector

    def inverse_dynamics(self, q: Vector, qd: Vector, qdd: Vector) -> Vector:
        """The torque of a motion [N m or N]."""
        # By an ellipsis: numpy takes three times as long to copy by a slice.
        self._q[...], self._qd[...], self._push[...] = q, qd, qdd
        self._inverse()
        return self._torque

    def forward_dynamics(self, q: Vector, qd: Vector, tau: Vector) -> Vector:
        """The acceleration that a torque makes [rad/s² or m/s²]."""
        self._q[...], self._qd[...], self._push[...] = q, qd, tau
        self._forward()
        return self._acceleration

    def mass_matrix(self, q: Vector) -> Float[np.ndarray, "dof dof"]:
        """The inertia H(q) [kg m² or kg]."""
        self._q[...] = q
        self._mass()
        return self._inertia

    def components(self, q: Vector, qd: Vector, qdd: Vector) -> TorqueComponents:
        """The parts of the torque."""
        torque = self.inverse_dynamics(q, qd, qdd).copy()
        self._coriolis()
        self._gravity()
        self._friction()
        _, coriolis, gravity, friction = self._part
        return TorqueComponents(torque - coriolis - gravity - friction, coriolis, gravity, friction)

    def energy(self, q: Vector, qd: Vector) -> Energy:
        """Kinetic and potential energy [J]."""
        self._q[...], self._qd[...] = q, qd
        self._energy()
        kinetic, potential = self._energies.tolist()
        return Energy(kinetic, potential)

    def in_domain(self, q: Vector, qd: Vector) -> float:
        """How far a state is from the training data: at most 1 inside."""
        self._q[...], self._qd[...] = q, qd
        return float(self._in_domain())

    def _bound(self, function: str, *arrays: np.ndarray | None) -> Any:
        """A function of the library with all its arguments in place; the arrays are those of this object."""
        if function not in self._functions:

            def missing() -> None:
                raise ModelError(f"this kind of model has no {function.replace('_', ' ')}")

            return missing
        compiled = self._library[f"model_{function}"]
        real = ctypes.c_float if self._dtype == np.float32 else ctypes.c_double
        compiled.restype = real if function == "in_domain" else None
        pointers = [None if one is None else ctypes.c_void_p(one.ctypes.data) for one in (self._weights, *arrays)]
        return partial(compiled, *pointers)


def compile(model: Any, *, precision: Precision = "double", fast_math: bool = True) -> CompiledModel:
    """The model as machine code; needs a C compiler."""
    return CompiledModel(model, precision=precision, fast_math=fast_math)


def _loaded(source: CSource, settings: ExportSettings) -> ctypes.CDLL:
    compiler = find_compiler()
    if compiler is None:
        raise CompilerError("there is no C compiler; install gcc or clang, or name one in CC")
    return _library(source.header, source.source, settings.name, compiler)


@cache
def _library(header: str, source: str, name: str, compiler: str) -> ctypes.CDLL:
    told = "\0".join((header, source, compiler, _version_of(compiler), " ".join(FLAGS), _processor()))
    key = hashlib.sha256(told.encode()).hexdigest()[:24]
    root = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "delan" / "compiled"
    path = root / f"{key}.so"
    if not path.exists():
        try:
            root.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise SettingsError(
                f"{root}: compiled models cannot be kept there ({error.strerror}); set XDG_CACHE_HOME"
            ) from None
        with tempfile.TemporaryDirectory(dir=root) as folder:
            (Path(folder) / f"{name}.h").write_text(header, encoding="utf-8")
            (Path(folder) / f"{name}.c").write_text(source, encoding="utf-8")
            made = Path(folder) / "made.so"
            command = [compiler, *FLAGS, str(Path(folder) / f"{name}.c"), "-o", str(made), "-lm"]
            ran = subprocess.run(command, capture_output=True, text=True, check=False)
            if ran.returncode:
                raise CompilerError(f"{compiler} refused the code of the model: {ran.stderr.strip()[:500]}")
            made.replace(path)
    return ctypes.CDLL(str(path))


@cache
def _version_of(compiler: str) -> str:
    return subprocess.run([compiler, "--version"], capture_output=True, text=True, check=False).stdout.partition("\n")[
        0
    ]


def _processor() -> str:
    """What code for this machine may not run on another."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor()
    return next((line for line in lines if line.startswith(("flags", "Features"))), platform.processor())
