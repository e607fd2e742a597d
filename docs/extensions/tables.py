"""Tables of the properties of a JSON Schema, as Markdown."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

Schema = Mapping[str, Any]

UNITS = ("GiB", "MiB", "KiB")


@dataclass(frozen=True)
class Field:
    """One row of a table: the path of a key, its type, its default and its meaning."""

    path: str
    kind: str
    default: str | None
    meaning: str
    required: bool


def fields_of(
    schema: Schema, definitions: Mapping[str, Schema], *, below: bool, prefix: str = ""
) -> Iterator[Field]:
    """Go through the properties of an object.

    Parameters
    ----------
    schema : mapping
        The schema of the object.
    definitions : mapping
        The definitions to which its references lead.
    below : bool
        Whether a named object is shown by the keys below it; otherwise by a link.
    prefix : str
        Path of the object.
    """
    for name, field in schema["properties"].items():
        always = field if "properties" in field else {}
        if below:
            always = definitions.get(_name(field), always)
        if "properties" in always:
            yield from fields_of(always, definitions, below=below, prefix=f"{prefix}{name}.")
            continue
        yield Field(
            path=f"{prefix}{name}",
            kind=kind_of(field, definitions, below=below),
            default=_default(field),
            meaning=" ".join(_meaning(field, definitions).split()),
            required=name in schema.get("required", ()),
        )
        for mark, inner in _objects_in(field, definitions, below=below):
            yield from fields_of(inner, definitions, below=below, prefix=f"{prefix}{name}{mark}.")


def _objects_in(
    field: Schema, definitions: Mapping[str, Schema], *, below: bool
) -> Iterator[tuple[str, Schema]]:
    """Find the first object that a value may be, or hold as a list, and the mark of a list."""
    for mark, branches in (
        ("", field.get("anyOf", ())),
        ("[]", [field.get("items", {}), *field.get("items", {}).get("anyOf", ())]),
    ):
        for branch in branches:
            found = definitions.get(_name(branch), {}) if below else branch
            if "properties" in found:
                yield mark, found
                return


def _meaning(field: Schema, definitions: Mapping[str, Schema]) -> str:
    return str(field.get("description") or definitions.get(_name(field), {}).get("description", ""))


def _name(field: Schema) -> str:
    return str(field.get("$ref", "")).rpartition("/")[2]


def kind_of(field: Schema, definitions: Mapping[str, Schema], *, below: bool) -> str:
    """Describe the type of a value in a few words."""
    if "then" in field:  # a reference, or null
        return f"{kind_of(field['then'], definitions, below=below)} or `null`"
    if "$ref" in field:
        target = definitions[_name(field)]
        if "enum" in target or target.get("type") == "string":
            return kind_of(target, definitions, below=below)
        name = _name(field)
        return "mapping" if below else f"[{name}](#{name.replace('_', '-')})"
    if "const" in field:
        return _code(field["const"])
    if "enum" in field:
        return " \\| ".join(_code(value) for value in field["enum"])
    if _is_size(field):
        return "size, such as `4GiB`"
    for union in ("anyOf", "oneOf"):
        if union in field:
            branches = [kind_of(branch, definitions, below=below) for branch in field[union]]
            return " or ".join(dict.fromkeys(branches))
    types = field.get("type")
    if isinstance(types, list):
        branches = [kind_of({**field, "type": one}, definitions, below=below) for one in types]
        return " or ".join(branches)
    return _simple(types, field, definitions, below=below)


def _simple(
    kind: str | None, field: Schema, definitions: Mapping[str, Schema], *, below: bool
) -> str:
    if kind == "array":
        items = field.get("items", {})
        return f"list of {kind_of(items, definitions, below=below)}"
    values = field.get("additionalProperties")
    if kind == "object" and isinstance(values, dict):
        return f"mapping to {kind_of(values, definitions, below=below)}"
    names = {"object": "mapping", "string": "text", "boolean": "`true` \\| `false`"}
    names |= {"null": "`null`"}
    if kind is None:
        return "anything"
    return f"{names.get(kind, kind)}{_range(field) if kind in {'integer', 'number'} else ''}"


def _range(field: Schema) -> str:
    limits = (("minimum", "≥"), ("exclusiveMinimum", ">"), ("maximum", "≤"))
    limits = (*limits, ("exclusiveMaximum", "<"))
    written = [f"{sign} {_number(field[key])}" for key, sign in limits if key in field]
    return f" {', '.join(written)}" if written else ""


def _number(value: float) -> str:
    if value >= 2**32 and math.log2(value).is_integer():
        return f"2^{math.log2(value):.0f}"
    return f"{value:g}" if isinstance(value, float) else str(value)


def _is_size(field: Schema) -> bool:
    return any("[kKmMgGtT]" in branch.get("pattern", "") for branch in field.get("anyOf", ()))


def _default(field: Schema) -> str | None:
    if "default" not in field:
        return None
    default = field["default"]
    if _is_size(field):
        for power, unit in zip((30, 20, 10), UNITS, strict=True):
            if default % 2**power == 0:
                return f"`{default >> power}{unit}`"
    if isinstance(default, float):
        return f"`{_number(default)}`"
    return _code(default)


def _code(value: Any) -> str:
    text = json.dumps(value, ensure_ascii=False)
    # Written as in YAML, without unnecessary quotes.
    plain = re.sub(r'"([A-Za-z_][\w.]*)"', r"\1", text)
    return f"`{plain}`"


def table(fields: list[Field], *, defaults: bool) -> str:
    """Write fields as a table of Markdown."""
    last = "default" if defaults else "always there"
    lines = [f"| key | what it may be | {last} | meaning |", "|---|---|---|---|"]
    for field in fields:
        shown = field.default or ("required" if field.required else "")
        if not defaults:
            shown = "yes" if field.required else "no"
        lines.append(f"| `{field.path}` | {field.kind} | {shown} | {field.meaning} |")
    return "\n".join(lines)
