"""The command `delan machine`: what is installed, what is missing, and how to install it.

Versions come from package metadata, so that a package that cannot be imported is reported instead
of ending the check. Only JAX and matplotlib are tried.
"""

import json
import os
import platform
import shutil
import subprocess
import sys
import sysconfig
import tempfile
import threading
import webbrowser
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from importlib import metadata
from pathlib import Path
from typing import Annotated, Any

import typer

from ..errors import installing
from ..online.process import LATENCY, Granted, kept_awake, raise_priority
from .app import app, command, json_flag

# The dependencies of pyproject.toml (a test compares them), and jaxlib, which jax loads.
# fmt: off
NEEDED = (
    "jax", "jaxlib", "equinox", "optax", "jaxtyping", "numpy", "scipy", "mujoco", "pin",
    "matplotlib", "jinja2", "rich", "typer", "safetensors", "threadpoolctl", "joblib",
    "lazy_loader",
)
# fmt: on
# Optional packages: the extra of delan that installs each, and what it is used for.
EXTRAS = {
    "pybullet": ("pybullet", "delan online --engine pybullet"),
    "viser": ("view", "delan view, the page in the browser"),
    "imageio-ffmpeg": ("video", "delan view --record clip.mp4, where the system has no ffmpeg"),
    "pyarrow": ("logs", "logs in Parquet"),
    "h5py": ("logs", "logs in HDF5 and MAT 7.3"),
    "rosbags": ("logs", "logs in ROS 2 bags"),
    "zstandard": ("logs", "logs compressed by zstd"),
    "dask": ("cluster", "delan reproduce --backend dask"),
    "ray": ("cluster", "delan reproduce --backend ray"),
    "flatbuffers": ("stablehlo", "delan export --format stablehlo"),
    "casadi": ("casadi", "delan export --format casadi"),
    "gymnasium": ("gymnasium", "delan.simulation.ReachEnvironment, for reinforcement learning"),
}
# Shared memory of `delan online` [bytes]: its buffer of one minute takes 21 MB for 7 joints.
SHARED_MEMORY = 25e6
BROWSERS = ("chromium", "chromium-browser", "google-chrome", "firefox")
PIP_INSTALL = f"{sys.executable} -m pip install"
NEW_CACHE = "export XDG_CACHE_HOME=FOLDER, a folder that you may write to"
# Parts other than packages, by group: what each is used for, and how to make it available.
GROUPS = {
    "Computing": {
        "JAX backend": ("every command", f"{PIP_INSTALL} --force-reinstall 'delan'"),
        "cores": (
            "delan online in real time: one core for the loop, one for the learner",
            "delan online ROBOT --clock stepped",
        ),
        "JAX cache": ("faster start of a command that ran before", NEW_CACHE),
        "code cache": ("delan.compile, delan gate, and torques in C in delan online", NEW_CACHE),
    },
    "Compiling": {
        "C compiler": (
            "delan.compile and delan gate; without it, delan online computes torques by JAX, which "
            "is slower",
            "sudo apt install gcc (or name another compiler in CC)",
        ),
        "Python.h": (
            "faster calls of compiled models from Python (ctypes is used without it)",
            f"sudo apt install python{sys.version_info.major}.{sys.version_info.minor}-dev",
        ),
    },
    "Real time": {
        "SCHED_FIFO": (
            "delan online by the wall clock beside other processes, without late periods",
            'echo "$USER - rtprio 50" | sudo tee /etc/security/limits.d/delan.conf, and log in '
            "again; in Docker: --cap-add SYS_NICE",
        ),
        "cores awake": (
            "cores that stay awake between two periods of delan online",
            f"sudo chmod a+w {LATENCY}, until the next boot; in Docker: --device {LATENCY}",
        ),
        "shared memory": (
            "delan online and delan view: measurements of the loop, for the learner and the page",
            "sudo mount -o remount,size=256m /dev/shm; in Docker: --shm-size 256m",
        ),
    },
    "Pictures and pages": {
        "figures": (
            "pages of delan fit, pictures of delan online",
            f"{PIP_INSTALL} --force-reinstall matplotlib; and unset MPLBACKEND, if it is set",
        ),
        "ffmpeg": (
            "delan view --record clip.mp4",
            f"sudo apt install ffmpeg, or {installing('video')}",
        ),
        "browser": (
            "delan view --open; the page opens in any browser that reaches this machine",
            "sudo apt install chromium; or from elsewhere: ssh -L 8080:localhost:8080 THIS_MACHINE",
        ),
    },
}
# Without these, `delan fit`, `online` and `export` fail.
NEEDED_PARTS = ("JAX backend", "shared memory", "figures")
# Whether a part is available, and its version, its location or the problem; by name.
Availability = dict[str, tuple[bool, str]]


@app.command()
@command
def machine(as_json: Annotated[bool, json_flag("the result")] = False) -> None:
    """Check this machine: what is installed, what is missing, and how to install it.

    Exit code 0 if everything that fit, online and export need is available; optional parts do not
    count. (`delan check` checks a log.)
    """
    checked = examine_machine()
    if as_json:
        typer.echo(json.dumps(checked.as_dict()))
    else:
        _show(checked)
    if not checked.ready:
        raise typer.Exit(1)


@dataclass(frozen=True)
class MachinePart:
    """A package, program or permission that a machine has or lacks.

    Attributes:
        group: heading under which the part is listed.
        there: whether it is available.
        needed: whether `delan fit`, `online` and `export` require it.
        found: its version, its location, or why it is not available.
        use: what it is used for; remedy: the command that makes it available.
    """

    name: str
    group: str
    there: bool
    needed: bool
    found: str
    use: str
    remedy: str


@dataclass(frozen=True)
class Machine:
    """The result of the check; `delan` and `python` are versions."""

    delan: str
    python: str
    system: str
    parts: tuple[MachinePart, ...]

    @property
    def ready(self) -> bool:
        """Whether `delan fit`, `online` and `export` have what they need."""
        return all(part.there for part in self.parts if part.needed)

    def as_dict(self) -> dict[str, Any]:
        """Return plain values for JSON."""
        missing = [part.name for part in self.parts if not part.there]
        return {"ready": self.ready, "missing": missing, **asdict(self)}


def examine_machine() -> Machine:
    """Check everything; whatever is changed for a trial is restored."""
    available = _computing() | _compiling() | _real_time() | _graphics()
    parts = [*_packages(), *_extras()]
    for group, members in GROUPS.items():
        for name, (use, remedy) in members.items():
            there, found = available[name]
            needed = name in NEEDED_PARTS
            parts.append(MachinePart(name, group, there, needed, found, use, remedy))
    return Machine(
        delan=_version("delan") or "not installed",
        python=platform.python_version(),
        system=f"{platform.system()} {platform.machine()}",
        parts=tuple(parts),
    )


def _show(machine: Machine) -> None:
    """Print all parts by group, with use and remedy of those that are missing."""
    typer.echo(f"delan {machine.delan}, Python {machine.python}, {machine.system}")
    group = ""
    for part in machine.parts:
        if part.group != group:
            group = part.group
            typer.echo(f"\n{group}")
        status = "ok"
        if not part.there:
            status = "MISSING" if part.needed else "no"
        typer.echo(f"  {status:<8}{part.name:<17}{part.found}")
        if not part.there:
            typer.echo(f"{'':<10}for: {part.use}\n{'':<10}do:  {part.remedy}")
    if machine.ready:
        typer.echo("\nEverything that delan fit, online and export need is available.")
    else:
        missing = [part.name for part in machine.parts if part.needed and not part.there]
        typer.echo(f"\ndelan fit, online and export do not work: {', '.join(missing)} missing")


def _version(package: str) -> str | None:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None


def _packages() -> Iterator[MachinePart]:
    required = _required_versions()
    for name in NEEDED:
        version = _version(name)
        versions = required.get(name)
        there = version is not None
        found = version or "not installed"
        package = name
        if versions is not None:
            package = f"{name}{versions}"
            if version is not None and not versions.contains(version, prereleases=True):
                there = False
                found = f"{version}, but delan needs {package}"
        remedy = f"{PIP_INSTALL} '{package}'"
        yield MachinePart(name, "Packages", there, True, found, "every command", remedy)


def _required_versions() -> dict[str, Any]:
    """Return the version specifiers of delan's requirements, none if delan is not installed."""
    specifiers = {}
    try:
        from packaging.requirements import Requirement

        for text in metadata.requires("delan") or ():
            requirement = Requirement(text)
            if requirement.marker is None:  # else it belongs to an extra
                specifiers[requirement.name] = requirement.specifier
    except (ImportError, metadata.PackageNotFoundError):
        return {}
    return specifiers


def _extras() -> Iterator[MachinePart]:
    for name, (extra, use) in EXTRAS.items():
        version = _version(name)
        found = version or "not installed"
        yield MachinePart(name, "Extras", version is not None, False, found, use, installing(extra))


def _computing() -> Availability:
    from ..deploy.compiler import cache_folder

    there = True
    try:
        import jax

        devices = jax.devices()
        found = f"{len(devices)} × {devices[0].platform} ({devices[0].device_kind})"
    except Exception as error:  # a broken installation may raise anything
        there = False
        found = _first_line(error)
    cores = os.cpu_count() or 1
    if hasattr(os, "sched_getaffinity"):  # containers grant fewer cores than the machine has
        cores = len(os.sched_getaffinity(0))
    return {
        "JAX backend": (there, found),
        "cores": (cores > 1, str(cores)),
        "JAX cache": _cache(os.environ.get("JAX_COMPILATION_CACHE_DIR", "")),
        "code cache": _cache(str(cache_folder())),
    }


def _first_line(error: Exception) -> str:
    return f"{type(error).__name__}: {str(error).partition(chr(10))[0]}"


def _cache(name: str) -> tuple[bool, str]:
    """Whether a folder can be written or created; nothing is created here."""
    folder = Path(name)
    while not folder.exists() and folder != folder.parent:
        folder = folder.parent
    if name and folder.is_dir() and os.access(folder, os.W_OK | os.X_OK):
        return True, name
    return False, f"{name or 'none'}: cannot be written"


def _compiling() -> Availability:
    header = Path(sysconfig.get_path("include")) / "Python.h"
    found = str(header) if header.exists() else f"no {header}"
    return {"C compiler": _try_compiler(), "Python.h": (header.exists(), found)}


def _try_compiler() -> tuple[bool, str]:
    """Compile one line with the flags used for models."""
    from ..deploy.compiler import FLAGS, find_compiler, version_of

    compiler = find_compiler()
    if compiler is None:
        return False, "no cc, gcc or clang"
    code = "#include <math.h>\ndouble trial(double x) { return exp(x); }\n"
    with tempfile.TemporaryDirectory() as folder:
        library = str(Path(folder) / "trial.so")
        command = [compiler, "-x", "c", "-std=c99", *FLAGS, "-", "-o", library, "-lm"]
        result = subprocess.run(command, input=code, capture_output=True, text=True, check=False)
    if result.returncode == 0:
        return True, f"{compiler}: {version_of(compiler)}"
    return False, f"{compiler} compiles nothing: {result.stderr.strip().partition(chr(10))[0]}"


def _real_time() -> Availability:
    # The priority is requested in a thread that ends at once, so that this process keeps its own.
    answers: list[Granted] = []
    thread = threading.Thread(target=lambda: answers.append(raise_priority()))
    thread.start()
    thread.join()
    granted = answers[0]
    priority = "granted"
    if not granted.realtime:
        # A problem says first what was refused, then after a colon what follows from that.
        priority = "; ".join(granted.problems).partition(":")[0]
    with kept_awake() as refused:
        pass
    awake = f"{LATENCY} {'cannot' if refused else 'can'} be written"
    return {
        "SCHED_FIFO": (granted.realtime, priority),
        "cores awake": (not refused, awake),
        "shared memory": _shared_memory(),
    }


def _shared_memory() -> tuple[bool, str]:
    try:
        state = os.statvfs("/dev/shm")
    except (OSError, AttributeError):
        return True, "unknown on this system"
    free = state.f_bavail * state.f_frsize
    return free >= SHARED_MEMORY, f"{free / 1e6:,.0f} MB free in /dev/shm"


def _graphics() -> Availability:
    figures = (True, "matplotlib draws into files; no display is needed")
    try:
        from ..figures import as_image, drawing

        with drawing(2.0, 2.0) as figure:
            figure.subplots()
            as_image(figure)
    except Exception as error:  # a broken installation, or a backend that is not available
        figures = (False, _first_line(error))
    ffmpeg = shutil.which("ffmpeg")
    if ffmpeg is None and _version("imageio-ffmpeg") is not None:
        ffmpeg = "the one of imageio-ffmpeg"
    browser = _find_browser()
    return {
        "figures": figures,
        "ffmpeg": (ffmpeg is not None, ffmpeg or "not found; clips as .gif do not need it"),
        "browser": (browser is not None, browser or "none found"),
    }


def _find_browser() -> str | None:
    for name in BROWSERS:
        path = shutil.which(name)
        if path is not None:
            return path
    try:
        return f"{webbrowser.get().name}"
    except (webbrowser.Error, AttributeError):
        return None
