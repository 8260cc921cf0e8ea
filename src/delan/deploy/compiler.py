"""The system's C compiler, and a cache of the libraries that it built."""

import ctypes
import hashlib
import os
import platform
import shutil
import subprocess
import sysconfig
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cache
from importlib import resources
from importlib.machinery import ExtensionFileLoader
from importlib.util import module_from_spec, spec_from_loader
from pathlib import Path
from typing import Any, NamedTuple

from ..errors import CompilerError, SettingsError

FLAGS = (
    "-O3",
    "-march=native",
    "-fno-math-errno",
    "-fno-trapping-math",
    "-fno-signed-zeros",
    "-fPIC",
    "-shared",
)

# How a program is built that ends at the first invalid operation.
SANITIZED = (
    "-O1",
    "-fsanitize=address,undefined,float-divide-by-zero,float-cast-overflow",
    "-fno-sanitize-recover=all",
)
# Seconds that such a program may take.
LONGEST_RUN = 60


def find_compiler() -> str | None:
    """The C compiler that CC names, or else cc, gcc or clang."""
    for name in (os.environ.get("CC") or "cc", "cc", "gcc", "clang"):
        path = shutil.which(name)
        if path is not None:
            return path
    return None


def cache_folder() -> Path:
    """Where compiled models are kept: in the user's cache."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "delan" / "compiled"


@cache
def version_of(compiler: str) -> str:
    """The first line of what a compiler says of itself."""
    return _run([compiler, "--version"]).stdout.partition("\n")[0]


def library_of(header: str, source: str, name: str) -> ctypes.CDLL:
    """The code of a model as a library of this machine."""
    files = {f"{name}.h": header, f"{name}.c": source}
    return _loaded(files, ("-std=c99",), lambda path: ctypes.CDLL(str(path)))


@cache
def caller() -> Any | None:
    """The class that makes quick Python functions of compiled ones; None if it cannot be built."""
    # `delan machine` asks for the compiler where numpy is broken.
    import numpy as np  # noqa: PLC0415

    headers = sysconfig.get_path("include")
    if find_compiler() is None or not (Path(headers) / "Python.h").exists():
        return None
    source = (resources.files("delan.deploy") / "kernels" / "python_call.c").read_text("utf-8")
    # The class serves one version of Python and of numpy: both are part of what is cached.
    abi = sysconfig.get_config_var("SOABI") or platform.python_version()
    whole = {"delan_call.c": f"/* {abi}, numpy {np.__version__} */\n{source}"}
    try:
        return _loaded(whole, (f"-I{headers}", f"-I{np.get_include()}"), _call_in)
    except (CompilerError, SettingsError):
        return None


class ProgramRun(NamedTuple):
    """What a program wrote, what it complained of, and whether sanitizers watched it."""

    output: bytes
    problem: str | None
    sanitized: bool


def run_program(files: Mapping[str, str], given: bytes) -> ProgramRun:
    """Build a program of C files, with sanitizers if there are any, and run it on some input."""
    compiler = find_compiler()
    if compiler is None:
        raise CompilerError("there is no C compiler; install gcc or clang, or name one in CC")
    with tempfile.TemporaryDirectory() as folder:
        sources = []
        for name, text in files.items():
            path = Path(folder) / name
            path.write_text(text, encoding="utf-8")
            if path.suffix == ".c":
                sources.append(str(path))
        program = Path(folder) / "program"
        command = [compiler, "-std=c99", *sources, "-o", str(program), "-lm"]
        sanitized = not _run([*command, *SANITIZED]).returncode
        if not sanitized:
            built = _run([*command, "-O1"])
            if built.returncode:
                raise CompilerError(
                    f"{compiler} refused the code of the model: {built.stderr.strip()[:500]}"
                )
        try:
            run = subprocess.run(
                [str(program)], input=given, capture_output=True, check=False, timeout=LONGEST_RUN
            )
        except subprocess.TimeoutExpired:
            return ProgramRun(b"", f"the code ran for more than {LONGEST_RUN} s", sanitized)
        except OSError as error:
            raise CompilerError(
                f"the compiled program cannot be run ({error.strerror}); set TMPDIR to a folder "
                "that may hold programs"
            ) from None
    problem = None
    if run.returncode:
        message = run.stderr.decode("utf-8", "replace")
        problem = _first_error(message) or f"the code ended with exit code {run.returncode}"
    return ProgramRun(run.stdout, problem, sanitized)


def _first_error(message: str) -> str | None:
    """The sentence of a sanitizer, without the path of the file."""
    for line in message.splitlines():
        _, found, sentence = line.partition("rror: ")
        if found:
            return sentence.strip()[:200]
    return None


def _call_in(path: Path) -> Any:
    """The class that an extension of Python holds."""
    loader = ExtensionFileLoader("delan_call", str(path))
    spec = spec_from_loader("delan_call", loader)
    assert spec is not None
    module = module_from_spec(spec)
    loader.exec_module(module)
    return module.Call


def _run(command: Sequence[str]) -> "subprocess.CompletedProcess[str]":
    try:
        return subprocess.run(command, capture_output=True, text=True, check=False)
    except OSError as error:
        raise CompilerError(
            f"{command[0]} cannot be run ({error.strerror}); name another compiler in CC"
        ) from None


@contextmanager
def _keeping(root: Path) -> Iterator[None]:
    """Report what goes wrong with files of the cache as a setting to change."""
    try:
        yield
    except OSError as error:
        raise SettingsError(
            f"{root}: compiled models cannot be kept there ({error.strerror}); set XDG_CACHE_HOME"
        ) from None


def _loaded(files: Mapping[str, str], flags: tuple[str, ...], load: Callable[[Path], Any]) -> Any:
    """Build and load a library; a damaged one, as a power failure may leave it, is built anew."""
    compiler = find_compiler()
    if compiler is None:
        raise CompilerError("there is no C compiler; install gcc or clang, or name one in CC")
    path = _built(files, flags, compiler)
    try:
        return load(path)
    except (OSError, ImportError):
        with _keeping(path.parent):
            path.unlink(missing_ok=True)
    path = _built(files, flags, compiler)
    try:
        return load(path)
    except (OSError, ImportError) as error:
        raise CompilerError(
            f"compiled code cannot be loaded ({error}); set XDG_CACHE_HOME to a folder that may "
            "hold programs"
        ) from None


def _built(files: Mapping[str, str], flags: tuple[str, ...], compiler: str) -> Path:
    """A shared library of the last file, which may include the others; from the cache if it can."""
    # Everything that decides the machine code, so that no other code is taken for it.
    parts = (*files.values(), compiler, version_of(compiler), " ".join(FLAGS + flags), _processor())
    key = hashlib.sha256("\0".join(parts).encode()).hexdigest()[:24]
    root = cache_folder()
    path = root / f"{key}.so"
    with _keeping(root):
        if path.exists():
            return path
        root.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=root) as folder:
            for name, text in files.items():
                (Path(folder) / name).write_text(text, encoding="utf-8")
            source = Path(folder) / list(files)[-1]
            library = Path(folder) / "library.so"
            run = _run([compiler, *flags, *FLAGS, str(source), "-o", str(library), "-lm"])
            if run.returncode:
                raise CompilerError(
                    f"{compiler} refused the code of the model: {run.stderr.strip()[:500]}"
                )
            # Half a library may end the process that loads it.
            with library.open("rb") as file:
                os.fsync(file.fileno())
            library.replace(path)
    return path


def _processor() -> str:
    """The instructions of this processor: code that was built for them may not run on another."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        lines = []
    for line in lines:
        if line.startswith(("flags", "Features")):  # on x86, and on ARM
            return line
    return platform.processor()
