"""The system's C compiler, and a cache of what it made: libraries of models, and what calls them from Python."""

import ctypes
import hashlib
import os
import platform
import shutil
import subprocess
import sysconfig
import tempfile
from collections.abc import Mapping
from functools import cache
from importlib import resources
from importlib.machinery import ExtensionFileLoader
from importlib.util import module_from_spec, spec_from_loader
from pathlib import Path
from typing import Any

from ..errors import CompilerError, SettingsError

FLAGS = ("-O3", "-march=native", "-fno-math-errno", "-fno-trapping-math", "-fno-signed-zeros", "-fPIC", "-shared")


def find_compiler() -> str | None:
    """The C compiler that CC names, or else cc, gcc or clang."""
    return next(
        (path for name in (os.environ.get("CC"), "cc", "gcc", "clang") if name and (path := shutil.which(name))), None
    )


def cache_folder() -> Path:
    """Where compiled models are kept: in the user's cache."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "delan" / "compiled"


@cache
def version_of(compiler: str) -> str:
    """The first line of what a compiler says of itself."""
    said = subprocess.run([compiler, "--version"], capture_output=True, text=True, check=False).stdout
    return said.partition("\n")[0]


def library_of(header: str, source: str, name: str) -> ctypes.CDLL:
    """The code of a model as a library of this machine."""
    return ctypes.CDLL(str(_built({f"{name}.h": header, f"{name}.c": source}, ("-std=c99",), _compiler())))


@cache
def caller() -> Any | None:
    """What turns a compiled function into a quick Python function; None where it cannot be made, as without headers."""
    import numpy as np  # noqa: PLC0415 (`delan doctor` asks for the compiler where numpy is broken)

    headers = sysconfig.get_path("include")
    if find_compiler() is None or not (Path(headers) / "Python.h").exists():
        return None
    source = resources.files(__name__.rpartition(".")[0]).joinpath("kernels", "python_call.c").read_text("utf-8")
    abi = sysconfig.get_config_var("SOABI") or platform.python_version()
    try:
        whole = {"delan_call.c": f"/* {abi}, numpy {np.__version__} */\n{source}"}
        path = _built(whole, (f"-I{headers}", f"-I{np.get_include()}"), _compiler())
        loader = ExtensionFileLoader("delan_call", str(path))
        spec = spec_from_loader("delan_call", loader)
        assert spec is not None
        module = module_from_spec(spec)
        loader.exec_module(module)
        return module.Call
    except (CompilerError, ImportError, SettingsError):
        return None


def _compiler() -> str:
    compiler = find_compiler()
    if compiler is None:
        raise CompilerError("there is no C compiler; install gcc or clang, or name one in CC")
    return compiler


def _built(files: Mapping[str, str], flags: tuple[str, ...], compiler: str) -> Path:
    """A shared library of some files, the last of which is compiled; from the cache if it was made before."""
    told = "\0".join((*files.values(), compiler, version_of(compiler), " ".join(FLAGS + flags), _processor()))
    key = hashlib.sha256(told.encode()).hexdigest()[:24]
    root = cache_folder()
    path = root / f"{key}.so"
    if path.exists():
        return path
    try:
        root.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=root) as folder:
            for name, text in files.items():
                (Path(folder) / name).write_text(text, encoding="utf-8")
            made = Path(folder) / "made.so"
            command = [compiler, *flags, *FLAGS, str(Path(folder) / list(files)[-1]), "-o", str(made), "-lm"]
            ran = subprocess.run(command, capture_output=True, text=True, check=False)
            if ran.returncode:
                raise CompilerError(f"{compiler} refused the code of the model: {ran.stderr.strip()[:500]}")
            made.replace(path)
    except OSError as error:
        raise SettingsError(
            f"{root}: compiled models cannot be kept there ({error.strerror}); set XDG_CACHE_HOME"
        ) from None
    return path


def _processor() -> str:
    """What code for this machine may not run on another."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor()
    return next((line for line in lines if line.startswith(("flags", "Features"))), platform.processor())
