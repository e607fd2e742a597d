"""The texts below the fields of models, which say what they mean.

Pydantic can read them whenever a class is made, which takes a sixth of the time that the program
needs to start. They are read here when a schema or a commented file needs them.
"""

from __future__ import annotations

import ast
import inspect
import sys
from collections.abc import Iterator, Mapping
from functools import cache
from itertools import pairwise
from typing import Any

from pydantic import BaseModel

LOCAL = ".<locals>"


@cache
def attribute_docstrings(model: type[BaseModel]) -> Mapping[str, str]:
    """Return the text below every field of a model that has one, by the field's name."""
    found: dict[str, str] = {}
    for each in reversed(model.__mro__):
        if issubclass(each, BaseModel):
            found |= _of_module(each.__module__).get(each.__qualname__, {})
    return {name: text for name, text in found.items() if name in model.model_fields}


def describe_properties(model: type[BaseModel], schema: dict[str, Any]) -> None:
    """Add the texts to the properties of a model's JSON schema, which is changed in place."""
    for name, text in attribute_docstrings(model).items():
        described = schema.get("properties", {}).get(model.model_fields[name].alias or name)
        if described is not None:
            described["description"] = text


@cache
def _of_module(name: str) -> Mapping[str, Mapping[str, str]]:
    """Return the texts in all classes of a module, by the class; none if it has no source."""
    try:
        tree = ast.parse(inspect.getsource(sys.modules[name]))
    except (OSError, KeyError, TypeError):
        return {}
    return {where: dict(_below_names(node)) for where, node in _classes(tree, "")}


def _classes(parent: ast.AST, prefix: str) -> Iterator[tuple[str, ast.ClassDef]]:
    for node in ast.iter_child_nodes(parent):
        if isinstance(node, ast.ClassDef):
            yield f"{prefix}{node.name}", node
            yield from _classes(node, f"{prefix}{node.name}.")
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield from _classes(node, f"{prefix}{node.name}{LOCAL}.")
        else:
            yield from _classes(node, prefix)


def _below_names(node: ast.ClassDef) -> Iterator[tuple[str, str]]:
    for field, below in pairwise(node.body):
        if isinstance(field, ast.AnnAssign) and isinstance(field.target, ast.Name):
            text = below.value if isinstance(below, ast.Expr) else None
            if isinstance(text, ast.Constant) and isinstance(text.value, str):
                yield field.target.id, inspect.cleandoc(text.value)
