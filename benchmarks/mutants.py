"""Mutation tests of mechanics and guards: change one place at a time; the tests must fail.

    pip install -c constraints.txt cosmic-ray
    python -m benchmarks.mutants [MODULE ...]

Cosmic Ray makes the changes (mutants); each is tested in its own process, forked after the
libraries are loaded, and no file is written. Reported are the mutants that no test noticed: some do
not change the behaviour, others need a test.
"""

import argparse
import ast
import difflib
import importlib
import os
import resource
import signal
import sys
import traceback
from collections.abc import Iterator
from importlib.machinery import SourceFileLoader
from importlib.util import find_spec
from pathlib import Path

import pytest

SOURCE = Path(__file__).resolve().parents[1] / "src" / "delan"
TESTS = {
    "mechanics/euler_lagrange.py": (
        "mechanics/test_euler_lagrange.py models/test_laws.py",
        "not (30 or 7 or mixed or chain or rigid)",
    ),
    "mechanics/integration.py": (
        "mechanics/test_euler_lagrange.py",
        "integration or energy or grows",
    ),
    "mechanics/friction_terms.py": ("models/test_friction.py", "not energy and not fit"),
    "mechanics/kinematic_tree.py": ("models/test_chain.py", "wrong_tree or pinocchios or sweeps"),
    "online/controller.py": ("online/test_controller.py", "the_torque_is"),
    "online/guard.py": ("online/test_guard.py", ""),
    "robots/robot.py": ("robots/test_robots.py", "number or saturate or drives or periods"),
}
# One or two of each kind of change that Cosmic Ray can make.
CHANGES = (
    *(
        "ReplaceBinaryOperator_" + name
        for name in ["Add_Sub", "Sub_Add", "Mul_Div", "Div_Mul", "Pow_Mul"]
    ),
    *(
        "ReplaceBinaryOperator_" + name
        for name in ["BitAnd_BitOr", "BitOr_BitAnd", "FloorDiv_Div", "Mod_Div"]
    ),
    *(
        "ReplaceComparisonOperator_" + name
        for name in ["Lt_LtE", "LtE_Lt", "Gt_GtE", "GtE_Gt", "Eq_NotEq", "NotEq_Eq"]
    ),
    *(
        "ReplaceComparisonOperator_" + name
        for name in ["Lt_GtE", "LtE_Gt", "Gt_LtE", "GtE_Lt", "Is_IsNot", "IsNot_Is"]
    ),
    *("ReplaceUnaryOperator_Delete_" + name for name in ["USub", "Invert", "Not"]),
    *[
        "AddNot",
        "ReplaceTrueWithFalse",
        "ReplaceFalseWithTrue",
        "ReplaceAndWithOr",
        "ReplaceOrWithAnd",
    ],
    *["NumberReplacer", "RemoveDecorator", "ZeroIterationForLoop"],
)
LIBRARIES = (
    "jax.numpy",
    "equinox",
    "optax",
    "scipy.optimize",
    "hypothesis.extra.numpy",
    "mujoco",
    "pinocchio",
)
# Processor time after which a mutant counts as noticed: it is in an endless loop.
SECONDS = 90


def annotated(source: str) -> set[int]:
    """Return the lines of signatures, whose shapes and types are not behaviour."""
    functions = [node for node in ast.walk(ast.parse(source)) if isinstance(node, ast.FunctionDef)]
    return {
        line for function in functions for line in range(function.lineno, function.body[0].lineno)
    }


def mutants(source: str) -> Iterator[str]:
    """Yield the source with a change in one place at a time."""
    from cosmic_ray.mutating import mutate_code  # noqa: PLC0415  # pyright: ignore[reportMissingImports]
    from cosmic_ray.plugins import get_operator  # noqa: PLC0415  # pyright: ignore[reportMissingImports]

    skipped, seen = annotated(source), {source}
    for change in CHANGES:
        occurrence = 0
        while (
            mutant := mutate_code(source, get_operator(f"core/{change}")(), occurrence)
        ) is not None:
            occurrence += 1
            if mutant not in seen and not changed_lines(source, mutant) & skipped:
                seen.add(mutant)
                yield mutant


def changed_lines(source: str, mutant: str) -> set[int]:
    blocks = difflib.SequenceMatcher(
        None, source.splitlines(), mutant.splitlines(), autojunk=False
    ).get_opcodes()
    return {
        line + 1
        for kind, start, end, _, _ in blocks
        if kind != "equal"
        for line in range(start, end)
    }


def survives(module: str, mutant: str | None) -> bool:
    """Return whether the tests of a module pass with another source; None for the original."""
    child = os.fork()
    if not child:
        try:
            os._exit(tested(SOURCE / module, mutant, *TESTS[module]))
        finally:
            traceback.print_exc()
            os._exit(1)
    return os.waitpid(child, 0)[1] == 0


def tested(path: Path, mutant: str | None, files: str, which: str) -> int:
    """Return the exit code of pytest when the file at a path reads as the mutant."""
    resource.setrlimit(resource.RLIMIT_CPU, (SECONDS, SECONDS))
    signal.alarm(10 * SECONDS)
    stats, data = SourceFileLoader.path_stats, SourceFileLoader.get_data

    def path_stats(self: SourceFileLoader, asked: str) -> object:
        if asked == str(path):
            raise OSError("no compiled file of this module may be used")
        return stats(self, asked)

    def get_data(self: SourceFileLoader, asked: str) -> bytes:
        return mutant.encode() if mutant is not None and asked == str(path) else data(self, asked)

    SourceFileLoader.path_stats, SourceFileLoader.get_data = path_stats, get_data  # pyright: ignore
    if mutant is not None:
        silent = os.open(os.devnull, os.O_WRONLY)
        os.dup2(silent, 1)
        os.dup2(silent, 2)
    tests = [str(SOURCE.parents[1] / "tests" / name) for name in files.split()]
    options = (
        "-x --quiet -p no:cacheprovider -p no:xdist -W ignore::pytest.PytestAssertRewriteWarning"
    )
    return int(pytest.main([*tests, "-k", which, *options.split(), "-m", "not slow"]))


def difference(source: str, mutant: str) -> str:
    lines = list(difflib.unified_diff(source.splitlines(), mutant.splitlines(), lineterm="", n=0))[
        2:
    ]
    return "\n".join(f"    {line}" for line in lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument(
        "modules", nargs="*", metavar="MODULE", help=f"some of {', '.join(TESTS)}; default: all"
    )
    modules = parser.parse_args().modules or list(TESTS)
    if find_spec("cosmic_ray") is None:
        sys.exit("Cosmic Ray is not installed; pip install -c constraints.txt cosmic-ray")
    for library in LIBRARIES:
        importlib.import_module(library)
    for module in modules:
        source = (SOURCE / module).read_text()
        outcomes = []
        if not survives(module, None):
            sys.exit(f"the tests of {module} fail without any change")
        for mutant in mutants(source):
            outcomes.append(survives(module, mutant))
            if outcomes[-1]:
                print(f"{module}\n{difference(source, mutant)}", flush=True)
        print(f"{module}: {len(outcomes)} mutants, {sum(outcomes)} not noticed", flush=True)


if __name__ == "__main__":
    main()
