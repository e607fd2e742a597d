"""The code that a stage's numbers depend on, found from its source without importing it.

A function depends on the module that defines it and on what that module imports, to any depth,
within the packages of this project. Of each module its syntax tree counts, without docstrings and
blocks that only type checkers see. Comments and layout are in no syntax tree, so they can be
changed freely.

The ``__init__`` of a package counts where the package itself is imported, as in ``from package
import name``. That a module lies in it is no reason.
"""

from __future__ import annotations

import ast
import hashlib
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from pathlib import Path

from latentscale_pipeline.engine.code_cache import CodeCache, cache_file

PACKAGES = ("latentscale", "latentscale_pipeline")

_DOCUMENTED = {ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef}


@dataclass(frozen=True)
class ModuleCode:
    """One module: the digest of its syntax tree, and the modules that it imports."""

    digest: str
    imports: frozenset[str]


def code_closure(modules: Sequence[str]) -> dict[str, str]:
    """Digest the code of modules and of everything they import.

    Parameters
    ----------
    modules : sequence of str
        Names of the modules to begin with. They may belong to other packages.

    Returns
    -------
    dict
        The digest of every module's code by the module's name, sorted by name.
    """
    found = dict(_closure(tuple(sorted(set(modules)))))
    _cache().save()
    return found


@cache
def _closure(modules: tuple[str, ...]) -> tuple[tuple[str, str], ...]:
    found: dict[str, str] = {}
    waiting = list(modules)
    while waiting:
        name = waiting.pop()
        if name in found:
            continue
        code = _module_code(name)
        found[name] = code.digest
        waiting.extend(code.imports - found.keys())
    return tuple(sorted(found.items()))


@cache
def _module_code(name: str) -> ModuleCode:
    file = find_module(name)
    if file is None:
        return ModuleCode("unknown", frozenset())
    data = file.read_bytes()
    if file.suffix != ".py":
        return ModuleCode(_short_hash(data), frozenset())
    package = name if file.name == "__init__.py" else name.rpartition(".")[0]
    key = f"{_short_hash(data)} in {package}"
    entry = _cache().get(key)
    if entry is None:
        reader = _TreeReader(package)
        reader.read(ast.parse(data))
        digest = _short_hash("\0".join(reader.words).encode())
        entry = [digest, [[base, names] for base, names in reader.imports]]
        _cache().add(key, entry)
    digest, imports = entry
    return ModuleCode(digest, frozenset(_resolved(imports)))


@cache
def _cache() -> CodeCache:
    return CodeCache(cache_file())


def _resolved(imports: Sequence[tuple[str, Sequence[str]]]) -> Iterator[str]:
    """Name the imported modules: a name is a module of its own, or defined in its base."""
    for base, names in imports:
        modules = [f"{base}.{name}" for name in names]
        found = [module for module in modules if find_module(module) is not None]
        yield from found
        if not names or len(found) < len(names):
            yield base


def _short_hash(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()[:16]


def package_folders(package: str) -> list[str]:
    """Return the folders of one of :data:`PACKAGES`."""
    return [str(folder) for folder in import_module(package).__path__]


def find_module(name: str) -> Path | None:
    """Find the file of a module: its source, or what stands for it where there is none."""
    top, *inner = name.split(".")
    if top not in PACKAGES:
        file = getattr(sys.modules.get(name), "__file__", None)
        return Path(file) if file else None
    for folder in package_folders(top):
        place = Path(folder, *inner)
        if (place / "__init__.py").is_file():
            return place / "__init__.py"
        if inner and place.with_suffix(".py").is_file():
            return place.with_suffix(".py")
        compiled = sorted(place.parent.glob(f"{place.name}.*")) if inner else []
        if compiled:
            return compiled[0]
    return None


def forget_modules() -> None:
    """Forget what was read, so that changed sources are read again."""
    _module_code.cache_clear()
    _closure.cache_clear()


class _TreeReader:
    """Writes a syntax tree down as words, and notes what it imports."""

    def __init__(self, package: str) -> None:
        self._package = package
        self.words: list[str] = []
        self.imports: list[tuple[str, list[str]]] = []

    def read(self, node: ast.AST) -> None:
        """Read a node and all below it."""
        kind = node.__class__
        if kind is ast.Import or kind is ast.ImportFrom:
            self.imports.extend(self._imported(node))
        elif kind is ast.If and _for_type_checkers(node):
            return
        add = self.words.append
        add(kind.__name__)
        for field in node._fields:
            value = getattr(node, field)
            # The context follows from where the node is; later versions of Python add empty lists.
            if value is None or value == [] or field == "ctx":
                continue
            add(field)
            if isinstance(value, ast.AST):
                self.read(value)
            elif isinstance(value, list):
                add("(")
                if field == "body" and kind in _DOCUMENTED and _is_docstring(value):
                    value = value[1:]
                for item in value:
                    if isinstance(item, ast.AST):
                        self.read(item)
                    else:
                        add(repr(item))
                add(")")
            else:
                add(repr(value))

    def _imported(self, node: ast.AST) -> Iterator[tuple[str, list[str]]]:
        """Return modules of this project that a statement imports, and the names taken of each."""
        if isinstance(node, ast.Import):
            yield from ((alias.name, []) for alias in node.names if _is_ours(alias.name))
        elif isinstance(node, ast.ImportFrom):
            base = node.module or ""
            if node.level:
                outer = self._package.split(".")
                outer = outer[: len(outer) - node.level + 1]
                base = ".".join([*outer, base]) if base else ".".join(outer)
            if _is_ours(base):
                yield base, [alias.name for alias in node.names]


def _is_ours(module: str) -> bool:
    return module.partition(".")[0] in PACKAGES


def _is_docstring(body: list[ast.AST]) -> bool:
    if not body or not isinstance(body[0], ast.Expr):
        return False
    value = body[0].value
    return isinstance(value, ast.Constant) and isinstance(value.value, str)


def _for_type_checkers(node: ast.AST) -> bool:
    test = getattr(node, "test", None)
    return (isinstance(test, ast.Name) and test.id == "TYPE_CHECKING") or (
        isinstance(test, ast.Attribute) and test.attr == "TYPE_CHECKING"
    )
