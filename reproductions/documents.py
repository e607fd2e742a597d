"""Texts that every Python has: the docstrings of its standard library and of NumPy and SciPy."""

from __future__ import annotations

import ast
import re
import sysconfig
from collections.abc import Iterator
from pathlib import Path

WORD = re.compile(r"[a-z]{2,}")
MIN_WORDS = 5


def docstrings(packages: tuple[str, ...] = ()) -> list[str]:
    """Return docstrings of the standard library and of installed packages, each once, in order."""
    paths = sysconfig.get_paths()
    roots = [Path(paths["stdlib"]), *(Path(paths["purelib"]) / package for package in packages)]
    found: dict[str, None] = {}
    for root in roots:
        for path in sorted(root.rglob("*.py")):
            inside = path.relative_to(root).parts
            if {"site-packages", "test", "tests", "idlelib", "lib2to3"} & set(inside):
                continue
            found.update(dict.fromkeys(_docstrings_of(path)))
    return list(found)


def words(text: str) -> list[str]:
    """Return the words of a text in small letters."""
    return WORD.findall(text.lower())


def _docstrings_of(path: Path) -> Iterator[str]:
    try:
        tree = ast.parse(path.read_text("utf-8"))
    except (SyntaxError, UnicodeDecodeError):
        return
    for node in ast.walk(tree):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            text = ast.get_docstring(node)
            if text and len(words(text)) >= MIN_WORDS:
                yield text
