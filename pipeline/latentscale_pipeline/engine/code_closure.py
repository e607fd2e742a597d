"""Find the code that a stage's numbers depend on, from its source, without importing it.

A function depends on the module that defines it and on everything that this module imports, to any
depth, within the packages of this project. The digest of a module is made from its syntax tree,
without docstrings and blocks that only type checkers see. Syntax trees don't contain comments and
layout, so changing those doesn't change a digest.

The ``__init__`` of a package is included if the package itself is imported, as in ``from package
import name``. Importing a module of the package doesn't include it.
"""

from __future__ import annotations

import ast
import hashlib
import json
import os
import re
import sys
from collections.abc import Iterator, Sequence
from contextlib import suppress
from functools import cache
from importlib import import_module
from pathlib import Path

PACKAGES = ("latentscale", "latentscale_pipeline")

_IMPLIED = re.compile(r"(, )?\b\w+=(\[\]|(Load|Store|Del)\(\))")
"""Parts of a dumped syntax tree that depend on the version of Python: empty lists, and the context
of a name, which follows from its position.
"""


def code_closure(modules: Sequence[str]) -> dict[str, str]:
    """Digest the code of modules and of everything they import.

    Parameters
    ----------
    modules : sequence of str
        Names of the modules to start from. They may belong to other packages.

    Returns
    -------
    dict
        The digest of every module's code by the module's name, sorted by name.
    """
    return dict(_closure(tuple(sorted(set(modules)))))


@cache
def _closure(modules: tuple[str, ...]) -> tuple[tuple[str, str], ...]:
    found: dict[str, str] = {}
    waiting = list(modules)
    while waiting:
        name = waiting.pop()
        if name in found:
            continue
        found[name], imports = _module_code(name)
        waiting.extend(imports)
    return tuple(sorted(found.items()))


@cache
def _module_code(name: str) -> tuple[str, list[str]]:
    """Return the digest of a module's code, and the modules that it imports."""
    file = find_module(name)
    if file is None:
        return "unknown", []
    data = file.read_bytes()
    if file.suffix != ".py":
        return _short_hash(data), []
    package = name if file.name == "__init__.py" else name.rpartition(".")[0]
    digest, imports = _read_source(data, package)
    return digest, list(_resolved(imports))


def _read_source(data: bytes, package: str) -> tuple[str, list[tuple[str, list[str]]]]:
    """Return the digest and the imports of a source, from the user's cache if possible.

    Parsing all modules of a closure takes a second; reading and hashing them takes a hundredth of
    that. A cache entry can't be stale, because its name contains the hash of the source. There is
    one cache per version of Python, because syntax trees differ between versions.
    """
    cache_home = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    version = f"{sys.version_info.major}.{sys.version_info.minor}"
    name = f"{_short_hash(data)}-{package}.json"
    entry = Path(cache_home, "latentscale", f"syntax-{version}", name)
    try:
        digest, imports = json.loads(entry.read_text("utf-8"))
    except (OSError, ValueError, TypeError):
        tree = _Essentials().visit(ast.parse(data))
        words = _IMPLIED.sub("", ast.dump(tree)).replace("(, ", "(")
        digest = _short_hash(words.encode())
        imports = [found for node in ast.walk(tree) for found in _imported(node, package)]
        with suppress(OSError):  # without a cache it is parsed again
            entry.parent.mkdir(parents=True, exist_ok=True)
            entry.write_text(json.dumps([digest, imports]), "utf-8")
    return digest, imports


def _resolved(imports: Sequence[tuple[str, Sequence[str]]]) -> Iterator[str]:
    """Yield the imported modules: each name is either a module or is defined in its base."""
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
    """Find the file of a module: its source, or its compiled file if there is no source."""
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
    """Clear the caches, so that changed sources are read again."""
    _module_code.cache_clear()
    _closure.cache_clear()


class _Essentials(ast.NodeTransformer):
    """Removes everything from a syntax tree that can't change a number."""

    def visit_If(self, node: ast.If) -> ast.AST | None:
        """Remove blocks that only type checkers see."""
        for_type_checkers = ast.unparse(node.test) in {"TYPE_CHECKING", "typing.TYPE_CHECKING"}
        return None if for_type_checkers else self.generic_visit(node)

    def visit_Expr(self, node: ast.Expr) -> ast.AST | None:
        """Remove docstrings, of attributes as well."""
        is_text = isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)
        return None if is_text else self.generic_visit(node)


def _imported(node: ast.AST, package: str) -> Iterator[tuple[str, list[str]]]:
    """Yield the modules of this project that a statement imports, with the names from each."""
    if isinstance(node, ast.Import):
        yield from ((alias.name, []) for alias in node.names if _is_ours(alias.name))
    elif isinstance(node, ast.ImportFrom):
        base = node.module or ""
        if node.level:
            outer = package.split(".")
            outer = outer[: len(outer) - node.level + 1]
            base = ".".join([*outer, base]) if base else ".".join(outer)
        if _is_ours(base):
            yield base, [alias.name for alias in node.names]


def _is_ours(module: str) -> bool:
    return module.partition(".")[0] in PACKAGES
