"""A folder of C code that its receiver can build, test and call: `delan export`."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from ..errors import SettingsError
from ..models.model import as_model, without_trust
from ..storage import write_whole
from .c_code import CSource, c_source
from .functions import with_numbers
from .layout import ExportSettings, Shape
from .ros2 import ros2_files

CASES = 20
"""States that the receiver's test compares."""
TOLERANCE = {"float": 2e-4, "double": 1e-10}
"""How far, relative to the largest number of a result, another compiler's numbers may be from ours.
"""


def export(
    model: Any,
    folder: Path,
    settings: ExportSettings | None = None,
    story: Mapping[str, str] | None = None,
    *,
    ros2: bool = False,
) -> CSource:
    """Write header, source, test, example and build file of a model into a folder; with `ros2`, a
    package of it too.
    """
    settings = settings or ExportSettings()
    if settings.weights != "constant":
        raise SettingsError("a folder of code holds its weights; leave weights out")
    made, name = c_source(model, settings, story), settings.name
    files = {
        f"{name}.h": made.header,
        f"{name}.c": made.source,
        "test.c": _test(model, made, settings),
        "example.c": _example(model, made, settings),
        "CMakeLists.txt": _CMAKE.replace("@NAME@", name),
    }
    if ros2:
        files |= {
            f"ros2/{path}": text
            for path, text in ros2_files(made, Shape.of(model), settings).items()
        }
    for file, text in files.items():
        if file == "example.c" and _is_edited(folder, text):
            file = "example.new.c"
        make_folder((folder / file).parent)
        write_whole(folder / file, lambda out, text=text: out.write(text.encode()))
    return made


def _is_edited(folder: Path, text: str) -> bool:
    """Whether the folder has an example that somebody has made his own."""
    try:
        return "".join((folder / "example.c").read_text(encoding="utf-8").split()) != "".join(
            text.split()
        )
    except (OSError, UnicodeDecodeError):
        return False


def make_folder(folder: Path) -> None:
    """Make a folder for what is exported, if it is not there yet."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise SettingsError(
            f"{folder}: cannot be made ({error.strerror}); give another folder"
        ) from None


def told_of(header: Mapping[str, Any]) -> dict[str, str]:
    """What the header of a model file says of its making, in a few lines."""
    told = {}
    for name in ("log", "seed", "created"):
        if header.get(name) is not None:
            told[name] = str(header[name])
    if (
        header.get("verdict") is not None
    ):  # of the fit alone: whether to deploy is for the gate to say
        told["the fit said"] = str(header["verdict"]).removeprefix("Deploy ")
    for part, score in (header.get("scores") or {}).items():
        if "torque" in score:
            told[f"torque nMSE per joint on {part}"] = ", ".join(
                f"{one:.2g}" for one in score["torque"]["nmse"]
            )
    return told


def _reference(model: Any) -> dict[str, np.ndarray]:
    """States, and what the model says of them, in double precision."""
    model = as_model(model)
    plain = without_trust(model)
    joints = model.joints
    rng = np.random.default_rng(0)
    q, qd, push = rng.uniform(-1, 1, (3, CASES, joints.dof))
    if model.trust is not None:  # where the robot has been
        states = np.asarray(model.trust.domain.states, dtype=float)
        rows = rng.integers(len(states), size=CASES)
        q, qd = np.split(states[rows], 2, axis=1)
    told = {"q": q, "qd": qd, "push": push}
    with jax.enable_x64(True):
        said = _said(with_numbers(plain, float), *(jnp.asarray(column) for column in (q, qd, push)))
    return told | {name: np.asarray(values).reshape(CASES, -1) for name, values in said.items()}


@eqx.filter_jit
def _said(model: Any, q: Array, qd: Array, push: Array) -> dict[str, Array]:
    said = {"inverse_dynamics": jax.vmap(model.inverse_dynamics)(q, qd, push)}
    if model.promises.mechanics:
        said["forward_dynamics"] = jax.vmap(model.forward_dynamics)(q, qd, push)
        said["mass_matrix"] = jax.vmap(model.mass_matrix)(q)
    return said


def _test(model: Any, made: CSource, settings: ExportSettings) -> str:
    told = _reference(model)
    tables = "\n".join(
        f"static const real {name.upper()}[] = {_row(values)};" for name, values in told.items()
    )
    calls = []
    for name, into in (
        ("inverse_dynamics", "DOF"),
        ("forward_dynamics", "DOF"),
        ("mass_matrix", "DOF * DOF"),
    ):
        if name not in told:
            continue
        arguments = "q, result" if name == "mass_matrix" else "0, q, qd, push, result"
        cast = (
            f"{settings.name}_{name}({arguments.replace('result', '(real(*)[DOF])result')})"
            if "mass" in name
            else (f"{settings.name}_{name}({arguments})")
        )
        calls.append(
            f'        {cast};\n        check("{name}", result, {name.upper()} + i * {into}, {into});'
        )
    return _TEST.format(
        name=settings.name,
        upper=settings.name.upper(),
        real=settings.precision,
        tolerance=TOLERANCE[settings.precision],
        cases=CASES,
        checksum=made.checksum,
        tables=tables,
        calls="\n".join(calls),
    )


def _row(values: np.ndarray) -> str:
    numbers = [f"{float(value):.17g}" for value in values.ravel()]
    lines = [", ".join(numbers[first : first + 5]) for first in range(0, len(numbers), 5)]
    return "{\n    " + ",\n    ".join(lines) + "\n}"


def _example(model: Any, made: CSource, settings: ExportSettings) -> str:
    remembers = model.promises.memory
    known = "in_domain" in made.functions
    return _EXAMPLE.format(
        name=settings.name,
        upper=settings.name.upper(),
        real=settings.precision,
        begin=f"    {settings.name}_state memory;\n    {settings.name}_state_init(&memory, q);\n"
        if remembers
        else "",
        update=f"        {settings.name}_state_update(&memory, q);\n" if remembers else "",
        memory="&memory" if remembers else "0",
        doubt=(
            f"        if (!({settings.name}_in_domain(q, qd) <= 2)) /* far from training data, or NaN: no model */\n"
            "            memset(tau, 0, sizeof tau);\n        else\n    "
            if known
            else ""
        ),
    )


_CMAKE = """\
cmake_minimum_required(VERSION 3.10)
project(@NAME@ C)

set(CMAKE_C_STANDARD 99)
if(NOT CMAKE_BUILD_TYPE)
  set(CMAKE_BUILD_TYPE Release)
endif()
option(@NAME@_NATIVE "Use all instructions of this machine's processor" ON)

add_library(@NAME@ @NAME@.c)
target_include_directories(@NAME@ PUBLIC ${CMAKE_CURRENT_SOURCE_DIR})
if(CMAKE_C_COMPILER_ID MATCHES "GNU|Clang")
  target_compile_options(@NAME@ PRIVATE -O3 -fno-math-errno -fno-trapping-math)
  if(@NAME@_NATIVE)
    target_compile_options(@NAME@ PRIVATE -march=native)
  endif()
endif()
find_library(MATH m)
if(MATH)
  target_link_libraries(@NAME@ PUBLIC ${MATH})
endif()

enable_testing()
add_executable(@NAME@_test test.c)
target_link_libraries(@NAME@_test @NAME@)
add_test(NAME @NAME@_test COMMAND @NAME@_test)
add_executable(@NAME@_example example.c)
target_link_libraries(@NAME@_example @NAME@)
"""

_TEST = """\
/* Does this compiler give the numbers that the model gave where it was learned? Exit code 0 if so. */
#include "{name}.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

typedef {real} real;
#define DOF {upper}_DOF
#define CASES {cases}
#define TOLERANCE {tolerance}

{tables}

static int failures = 0;

static void check(const char *what, const real *got, const real *wanted, int count)
{{
    double size = 0, worst = 0;
    for (int i = 0; i < count; i++) {{
        const double away = fabs((double)got[i] - (double)wanted[i]);
        if (fabs((double)wanted[i]) > size)
            size = fabs((double)wanted[i]);
        if (!(away <= worst))
            worst = away;
    }}
    if (!(worst <= TOLERANCE * size)) {{
        printf("%s: off by %g of %g\\n", what, worst, size);
        failures++;
    }}
}}

int main(void)
{{
    if (strcmp({upper}_CHECKSUM, "{checksum}") != 0) {{
        printf("this test belongs to other weights: {checksum}, not %s\\n", {upper}_CHECKSUM);
        return 1;
    }}
    for (int i = 0; i < CASES; i++) {{
        const real *q = Q + i * DOF, *qd = QD + i * DOF, *push = PUSH + i * DOF;
        real result[DOF * DOF];
        (void)qd, (void)push;
{calls}
    }}
    printf("%s\\n", failures ? "failed" : "all as it should be");
    return failures != 0;
}}
"""

_EXAMPLE = """\
/* A controller that follows a slow sine at a fixed rate with the model's torque fed forward, on a robot that is not
 * there: put your own in place of the two functions. */
#define _POSIX_C_SOURCE 200112L
#include "{name}.h"

#include <math.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

typedef {real} real;
#define DOF {upper}_DOF
#define PERIOD_NS 1000000L /* 1 kHz */
#define STIFFNESS 20
#define DAMPING 2

static real held_q[DOF], held_qd[DOF], held_tau[DOF];
static void read_robot(real q[DOF], real qd[DOF])
{{
    for (int i = 0; i < DOF; i++) {{
        q[i] = held_q[i];
        qd[i] = held_qd[i];
    }}
}}
static void command_robot(const real tau[DOF])
{{
    int sound = 1;
    for (int i = 0; i < DOF; i++)
        sound = sound && isfinite(tau[i]); /* check your robot's limits here too */
    for (int i = 0; i < DOF; i++)
        held_tau[i] = sound ? tau[i] : 0; /* not the torque before, which would stay on */
}}

int main(void)
{{
    real q[DOF], qd[DOF], q_des[DOF], qd_des[DOF], qdd_des[DOF], tau[DOF];
    struct timespec next;
    read_robot(q, qd);
{begin}    clock_gettime(CLOCK_MONOTONIC, &next);
    for (int tick = 0; tick < 1000; tick++) {{
        const real t = (real)(tick * 1e-3);
        read_robot(q, qd);
{update}        for (int i = 0; i < DOF; i++) {{
            q_des[i] = (real)0.1 * (real)sin(t);
            qd_des[i] = (real)0.1 * (real)cos(t);
            qdd_des[i] = (real)-0.1 * (real)sin(t);
        }}
{doubt}        {name}_inverse_dynamics({memory}, q_des, qd_des, qdd_des, tau);
        for (int i = 0; i < DOF; i++)
            tau[i] += STIFFNESS * (q_des[i] - q[i]) + DAMPING * (qd_des[i] - qd[i]);
        command_robot(tau);
        next.tv_nsec += PERIOD_NS;
        if (next.tv_nsec >= 1000000000L) {{
            next.tv_nsec -= 1000000000L;
            next.tv_sec++;
        }}
        clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &next, 0);
    }}
    printf("torque of joint 0 after 1 s: %g\\n", (double)held_tau[0]);
    return 0;
}}
"""
