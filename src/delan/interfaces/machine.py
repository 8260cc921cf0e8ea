"""What `delan doctor` finds on this machine: what is there, what is missing, what for, and the command that brings it.

It knows nothing of logs: those are examined by `delan check`. Versions come from the metadata of installed packages, so
that a package which cannot be imported is told of and does not stop the examination; only JAX and matplotlib are tried.
"""

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
from typing import Any

import typer

from ..deploy.compiler import FLAGS, cache_folder, find_compiler, version_of
from ..errors import installing
from ..realtime.priority import LATENCY, Granted, kept_awake, raise_priority

NEEDED = (
    *("jax", "jaxlib", "equinox", "optax", "jaxtyping", "numpy", "scipy", "mujoco", "pin", "matplotlib", "jinja2"),
    *("rich", "typer", "safetensors", "threadpoolctl", "joblib"),
)
"""Packages that the commands do not go without."""
EXTRAS = {
    "pybullet": ("pybullet", "delan online --engine pybullet"),
    "viser": ("view", "delan view, the page in the browser"),
    "imageio-ffmpeg": ("video", "delan view --record clip.mp4, where the system has no ffmpeg"),
    "pyarrow": ("logs", "logs in Parquet"),
    "h5py": ("logs", "logs in HDF5 and MAT 7.3"),
    "rosbags": ("logs", "logs in ROS 2 bags"),
    "dask": ("cluster", "delan reproduce --backend dask"),
    "ray": ("cluster", "delan reproduce --backend ray"),
    "flatbuffers": ("stablehlo", "delan export --format stablehlo"),
    "casadi": ("casadi", "delan export --format casadi"),
}
"""Packages that bring one thing more: the extra of delan that installs each, and what it is for."""
SHARED_MEMORY = 25e6
"""Room that `delan online` does with at 7 joints: its minute of rows takes 21 MB [bytes]."""
BROWSERS = ("chromium", "chromium-browser", "google-chrome", "firefox")


@dataclass(frozen=True)
class Part:
    """One thing that a machine has or lacks.

    Attributes:
        name, group: what it is, and under which heading it stands.
        there, needed: whether it is there, and whether `delan fit`, `online` and `export` fail without.
        found: its version, its place, or why it is not there.
        use: what it is for; remedy: the command that brings it, or what to do.
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
    """All that was found; `delan` and `python` are versions."""

    delan: str
    python: str
    system: str
    parts: tuple[Part, ...]

    @property
    def ready(self) -> bool:
        """Whether `delan fit`, `online` and `export` have what they need."""
        return all(part.there for part in self.parts if part.needed)

    def as_dict(self) -> dict[str, Any]:
        """Plain values for JSON."""
        return {
            "ready": self.ready,
            "missing": [part.name for part in self.parts if not part.there],
            **asdict(self),
        }


def examine_machine() -> Machine:
    """Look at everything; what is tried is undone."""
    parts = (*_packages(), *_extras(), *_computing(), *_compiling(), *_in_time(), *_seeing())
    system = f"{platform.system()} {platform.machine()}"
    return Machine(_version("delan") or "not installed", platform.python_version(), system, parts)


def show(machine: Machine) -> None:
    """Headings and lines; of what is missing also the use and the remedy."""
    typer.echo(f"delan {machine.delan}, Python {machine.python}, {machine.system}")
    for group in dict.fromkeys(part.group for part in machine.parts):
        typer.echo(f"\n{group}")
        for part in (one for one in machine.parts if one.group == group):
            sign = "ok" if part.there else "MISSING" if part.needed else "no"
            typer.echo(f"  {sign:<8}{part.name:<17}{part.found}")
            if not part.there:
                typer.echo(f"{'':<10}for: {part.use}\n{'':<10}do:  {part.remedy}")
    missing = [part.name for part in machine.parts if part.needed and not part.there]
    typer.echo(
        f"\ndelan fit, online and export cannot work here: {', '.join(missing)} missing"
        if missing
        else "\nAll that delan fit, online and export need is there."
    )


def _version(package: str) -> str | None:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None


def _packages() -> Iterator[Part]:
    wanted = _wanted()
    for name in NEEDED:
        version, asked = _version(name), wanted.get(name)
        fits = version is not None and (asked is None or asked.specifier.contains(version, prereleases=True))
        found = version or "not installed"
        if version is not None and asked is not None and not fits:
            found += f", which delan does not go with: {name}{asked.specifier}"
        spec = name if asked is None else f"{name}{asked.specifier}"
        yield Part(name, "Packages", fits, True, found, "every command", f"{sys.executable} -m pip install '{spec}'")


def _wanted() -> dict[str, Any]:
    """Which versions delan says it needs, by package; nothing where it is not installed."""
    try:
        from packaging.requirements import Requirement

        told = [Requirement(text) for text in metadata.requires("delan") or ()]
    except (ImportError, metadata.PackageNotFoundError):
        return {}
    return {one.name: one for one in told if one.marker is None}


def _extras() -> Iterator[Part]:
    for name, (extra, use) in EXTRAS.items():
        version = _version(name)
        found = version or "not installed"
        yield Part(name, "Extras", version is not None, False, found, use, installing(extra))


def _computing() -> Iterator[Part]:
    group, use = "Computing", "every command"
    try:
        import jax

        devices = [f"{one.platform} ({one.device_kind})" for one in jax.devices()]
        yield Part("JAX backend", group, True, True, f"{len(devices)} × {devices[0]}", use, "")
    except Exception as error:  # whatever a broken installation may raise
        told = f"{type(error).__name__}: {str(error).partition(chr(10))[0]}"
        yield Part(
            "JAX backend", group, False, True, told, use, f"{sys.executable} -m pip install --force-reinstall 'delan'"
        )
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    use = "delan online in real time: one core for the loop, one for the learner"
    yield Part("cores", group, cores > 1, False, str(cores), use, "delan online ROBOT --clock stepped")
    xla = os.environ.get("JAX_COMPILATION_CACHE_DIR", "")
    for name, folder, use in (
        ("JAX cache", xla, "a second run of a command that starts faster"),
        ("code cache", str(cache_folder()), "delan.compile, delan gate, and torques in C in delan online"),
    ):
        there = bool(folder) and _writable(Path(folder))
        found = folder if there else f"{folder or 'none'}: cannot be written"
        yield Part(name, group, there, False, found, use, "export XDG_CACHE_HOME=FOLDER, one that you may write to")


def _writable(folder: Path) -> bool:
    """Whether a folder can be written, or made: nothing is made here."""
    here = next((one for one in (folder, *folder.parents) if one.exists()), None)
    return here is not None and here.is_dir() and os.access(here, os.W_OK | os.X_OK)


def _compiling() -> Iterator[Part]:
    use = "delan.compile and delan gate; without, delan online computes torques by JAX, which is slower"
    remedy = "sudo apt install gcc (or name another in CC)"
    compiler = find_compiler()
    found = "no cc, gcc or clang" if compiler is None else f"{compiler}: {version_of(compiler)}"
    problem = None if compiler is None else _refused(compiler)
    there = compiler is not None and problem is None
    yield Part("C compiler", "Compiling", there, False, found if problem is None else problem, use, remedy)
    header = Path(sysconfig.get_path("include")) / "Python.h"
    use = "calls of compiled models from Python without the detour of ctypes"
    found = str(header) if header.exists() else f"no {header}"
    remedy = f"sudo apt install python{sys.version_info.major}.{sys.version_info.minor}-dev"
    yield Part("Python.h", "Compiling", header.exists(), False, found, use, remedy)


def _refused(compiler: str) -> str | None:
    """Have a line compiled as models are; why it could not be, None if it could."""
    line = "#include <math.h>\ndouble tried(double x) { return exp(x); }\n"
    with tempfile.TemporaryDirectory() as folder:
        command = [compiler, "-x", "c", "-std=c99", *FLAGS, "-", "-o", str(Path(folder) / "tried.so"), "-lm"]
        ran = subprocess.run(command, input=line, capture_output=True, text=True, check=False)
    return None if ran.returncode == 0 else f"{compiler} compiles nothing: {ran.stderr.strip().partition(chr(10))[0]}"


def _in_time() -> Iterator[Part]:
    group = "Real time"
    granted = _asked_for_priority()
    remedy = (
        'echo "$USER - rtprio 50" | sudo tee /etc/security/limits.d/delan.conf, and log in again; '
        "in Docker: --cap-add SYS_NICE"
    )
    found = "granted" if granted.realtime else "; ".join(granted.problems).partition(":")[0]
    use = "delan online by the wall clock beside other processes, without late periods"
    yield Part("SCHED_FIFO", group, granted.realtime, False, found, use, remedy)
    with kept_awake() as refused:
        pass
    remedy = f"sudo chmod a+w {LATENCY}, until the next start; in Docker: --device {LATENCY}"
    use = "cores that do not fall asleep between two periods of delan online"
    found = f"{LATENCY} cannot be written" if refused else f"{LATENCY} can be written"
    yield Part("cores awake", group, not refused, False, found, use, remedy)
    free = _shared_memory()
    use = "delan online and delan view: what the loop measures, for learner and page"
    found = "not known on this system" if free is None else f"{free / 1e6:,.0f} MB free in /dev/shm"
    enough = free is None or free >= SHARED_MEMORY
    remedy = "sudo mount -o remount,size=256m /dev/shm; in Docker: --shm-size 256m"
    yield Part("shared memory", group, enough, True, found, use, remedy)


def _asked_for_priority() -> Granted:
    """Ask for the priority of the loop in a thread that ends with the question, and its priority with it."""
    answers: list[Granted] = []
    asking = threading.Thread(target=lambda: answers.append(raise_priority()))
    asking.start()
    asking.join()
    return answers[0]


def _shared_memory() -> int | None:
    """Bytes of shared memory that are left; None where the system does not tell."""
    try:
        state = os.statvfs("/dev/shm")
    except (OSError, AttributeError):
        return None
    return state.f_bavail * state.f_frsize


def _seeing() -> Iterator[Part]:
    group = "Pictures and pages"
    try:
        from ..drawing import as_image, drawing

        with drawing(2.0, 2.0) as figure:
            figure.subplots()
            as_image(figure)
        there, found = True, "matplotlib draws into files; no display is needed"
    except Exception as error:  # a broken installation, or a backend that is not there
        there, found = False, f"{type(error).__name__}: {str(error).partition(chr(10))[0]}"
    remedy = f"{sys.executable} -m pip install --force-reinstall matplotlib; and unset MPLBACKEND, if it is set"
    yield Part("figures", group, there, True, found, "pages of delan fit, pictures of delan online", remedy)
    ffmpeg = shutil.which("ffmpeg")
    there = ffmpeg is not None or _version("imageio-ffmpeg") is not None
    found = ffmpeg or ("that of imageio-ffmpeg" if there else "not found; clips as .gif need none")
    use, remedy = "delan view --record clip.mp4", f"sudo apt install ffmpeg, or {installing('video')}"
    yield Part("ffmpeg", group, there, False, found, use, remedy)
    browser = next((path for name in BROWSERS if (path := shutil.which(name))), None) or _default_browser()
    use = "delan view --open; the page opens in any browser that reaches this machine"
    remedy = "sudo apt install chromium; or from elsewhere: ssh -L 8080:localhost:8080 THIS_MACHINE"
    yield Part("browser", group, browser is not None, False, browser or "none found", use, remedy)


def _default_browser() -> str | None:
    try:
        return f"{webbrowser.get().name}"
    except (webbrowser.Error, AttributeError):
        return None
