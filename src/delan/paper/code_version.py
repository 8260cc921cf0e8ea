"""A version of the code that the numbers of an experiment depend on: a hash of its sources.

It starts at the function `run` of the experiment and follows names and imports. In this folder it
follows definition by definition, so that a claim or a figure can change and stored cells remain
valid; elsewhere a module counts as a whole, with all that it imports. Comments and docstrings do
not count. What is imported by a name that is computed while the program runs is not seen: a test
compares the list with the modules that a cell loads while it runs.
"""

import ast
import hashlib
import io
import tokenize
from collections.abc import Iterable, Iterator
from functools import cache
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[1]
FOLDER = "paper"
# Where the computation of every cell begins, beside `run` of its experiment.
ALWAYS = (("paper/grid.py", "limit_threads"), ("paper/grid.py", "_plain"))
START = "run"
# What an `ast.Import` of a whole module asks for.
EVERYTHING = "*"


class Item(NamedTuple):
    """A definition of a module of this folder, or a whole module (`EVERYTHING`)."""

    file: Path
    name: str


class Definition(NamedTuple):
    """The text of a top-level statement, and the names that it uses."""

    text: str
    uses: frozenset[str]


class Module(NamedTuple):
    """A source file.

    Attributes:
        text: without comments and docstrings.
        definitions: top-level statements by the name that they define; several may share a name.
        effects: top-level statements that define nothing, and run on import.
        imported: what a name stands for that is imported from this package.
        imports: everything that the file imports from this package, at any depth.
    """

    text: str
    definitions: dict[str, list[Definition]]
    effects: list[Definition]
    imported: dict[str, frozenset[Item]]
    imports: frozenset[Item]


@cache
def code_version(experiment: str, root: Path = ROOT) -> str:
    """Return a hash of the sources that the numbers of an experiment can depend on.

    An experiment without a module of its name in this folder depends on the whole package.
    """
    digest = hashlib.sha256()
    for name, text in sources(experiment, root):
        digest.update(f"{name}\0{text}\0".encode())
    return digest.hexdigest()[:16]


def sources(experiment: str, root: Path = ROOT) -> list[tuple[str, str]]:
    """Return name and text of every source that an experiment depends on, sorted."""
    file = root / FOLDER / f"{experiment.replace('-', '_')}.py"
    if file.exists():
        starts = [Item(file, START)]
        starts += [Item(root / place, name) for place, name in ALWAYS if (root / place).exists()]
        items = _reached(starts, root)
    else:
        items = {Item(path, EVERYTHING) for path in root.rglob("*.py")}
    found = []
    for item in items:
        name = item.file.relative_to(root).as_posix()
        module = _module(item.file, root)
        if item.name == EVERYTHING:
            found.append((name, module.text))
        else:
            for definition in module.definitions[item.name]:
                found.append((f"{name}:{item.name}", definition.text))
    # C code belongs to the subpackage that compiles it.
    for folder in {item.file.relative_to(root).parts[0] for item in items}:
        for path in (root / folder).rglob("*.c"):
            found.append((path.relative_to(root).as_posix(), path.read_text(encoding="utf-8")))
    return sorted(found)


def _reached(starts: Iterable[Item], root: Path) -> set[Item]:
    """Return the items and all that they use."""
    waiting = list(starts)
    seen = set()
    while waiting:
        item = waiting.pop()
        if item in seen:
            continue
        if item.name == EVERYTHING or item.name in _module(item.file, root).definitions:
            seen.add(item)
        waiting += _used(item, root)
    return seen


def _used(item: Item, root: Path) -> Iterator[Item]:
    """Yield what an item uses directly; whole modules for definitions outside of this folder."""
    module = _module(item.file, root)
    for package in _packages(item.file, root):
        yield Item(package, EVERYTHING)
    if item.name == EVERYTHING:
        yield from (_as_followed(used, root) for used in module.imports)
        return
    definitions = [*module.definitions.get(item.name, ()), *module.effects]
    # A name that is imported and passed on.
    names = {item.name}.union(*(definition.uses for definition in definitions))
    for name in names:
        if name in module.definitions:
            yield Item(item.file, name)
        for used in module.imported.get(name, ()):
            yield _as_followed(used, root)


def _as_followed(item: Item, root: Path) -> Item:
    """Return the item, or its whole module if definitions of that are not followed one by one."""
    inside = item.file.parent == root / FOLDER and item.file.name != "__init__.py"
    return item if inside else Item(item.file, EVERYTHING)


def _packages(file: Path, root: Path) -> Iterator[Path]:
    """Yield the `__init__.py` of each package that is imported before the module."""
    for folder in file.relative_to(root).parents:
        init = root / folder / "__init__.py"
        if init.exists() and init != file:
            yield init


@cache
def _module(file: Path, root: Path) -> Module:
    source = file.read_text(encoding="utf-8")
    tree = ast.parse(source)
    lines = _code_lines(source, tree)
    definitions: dict[str, list[Definition]] = {}
    effects = []
    for statement in tree.body:
        if isinstance(statement, ast.Import | ast.ImportFrom):
            continue
        definition = _definition(statement, lines)
        names = list(_defined(statement))
        for name in names:
            definitions.setdefault(name, []).append(definition)
        if not names and not _is_main(statement) and definition.text:
            effects.append(definition)
    imported: dict[str, set[Item]] = {}
    imports = set()
    for statement in ast.walk(tree):
        if isinstance(statement, ast.ImportFrom) and statement.level:
            for name, item in _imported(statement, file, root):
                imports.add(item)
                imported.setdefault(name, set()).add(item)
    targets = {name: frozenset(items) for name, items in imported.items()}
    return Module(_joined(lines), definitions, effects, targets, frozenset(imports))


def _definition(statement: ast.stmt, lines: list[str]) -> Definition:
    first = min([statement.lineno, *(mark.lineno for mark in _decorators(statement))])
    uses = {node.id for node in ast.walk(statement) if isinstance(node, ast.Name)}
    return Definition(_joined(lines[first - 1 : statement.end_lineno]), frozenset(uses))


def _decorators(statement: ast.stmt) -> list[ast.expr]:
    return getattr(statement, "decorator_list", [])


def _defined(statement: ast.stmt) -> Iterator[str]:
    """Yield the names that a top-level statement defines."""
    if isinstance(statement, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
        yield statement.name
    elif isinstance(statement, ast.Assign | ast.AnnAssign):
        targets = statement.targets if isinstance(statement, ast.Assign) else [statement.target]
        for target in targets:
            for node in ast.walk(target):
                if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
                    yield node.id


def _is_main(statement: ast.stmt) -> bool:
    """Whether it is `if __name__ == "__main__"`, which an import does not run."""
    if not isinstance(statement, ast.If):
        return False
    return any(
        isinstance(node, ast.Name) and node.id == "__name__" for node in ast.walk(statement.test)
    )


def _imported(statement: ast.ImportFrom, file: Path, root: Path) -> Iterator[tuple[str, Item]]:
    """Yield each name that a relative import defines, and what it stands for."""
    folder = file.parents[statement.level - 1]
    target = folder.joinpath(*(statement.module or "").split("."))
    for alias in statement.names:
        name = alias.asname or alias.name
        submodule = _source(target / alias.name)
        if submodule is not None:
            yield name, Item(submodule, EVERYTHING)
        source = _source(target)
        if source is not None and root in source.parents:
            wanted = EVERYTHING if submodule is not None else alias.name
            yield name, Item(source, wanted)


def _source(place: Path) -> Path | None:
    """Return the file of a module or package."""
    if place.with_suffix(".py").is_file():
        return place.with_suffix(".py")
    init = place / "__init__.py"
    return init if init.is_file() else None


def _code_lines(source: str, tree: ast.Module) -> list[str]:
    """Return the lines of a source, without comments and docstrings."""
    lines = source.splitlines()
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type == tokenize.COMMENT:
            row, column = token.start
            lines[row - 1] = lines[row - 1][:column]
    for node in ast.walk(tree):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            first = node.body[0] if node.body else None
            if first is not None and ast.get_docstring(node, clean=False) is not None:
                for row in range(first.lineno - 1, first.end_lineno or first.lineno):
                    lines[row] = ""
    return lines


def _joined(lines: list[str]) -> str:
    """Return the lines that are not empty as a text."""
    return "\n".join(line.rstrip() for line in lines if line.strip())
