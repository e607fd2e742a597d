"""Sizes in bytes, written with units such as ``4GiB``."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import BeforeValidator, Field, WithJsonSchema

_SIZES = {"b": 1, "kib": 2**10, "mib": 2**20, "gib": 2**30, "tib": 2**40}
_SIZES |= {"kb": 10**3, "mb": 10**6, "gb": 10**9, "tb": 10**12}


def parse_bytes(size: Any) -> Any:
    """Convert text such as ``4GiB`` to a number of bytes; numbers are returned unchanged."""
    if not isinstance(size, str):
        return size
    text = size.strip().lower().replace(" ", "")
    digits = text.rstrip("abcdefghijklmnopqrstuvwxyz")
    unit = text[len(digits) :] or "b"
    try:
        return int(float(digits) * _SIZES[unit])
    except (KeyError, ValueError, OverflowError):
        raise ValueError(
            f"{size!r} is not a size; write a number and a unit such as 4GiB"
        ) from None


def format_size(size: int) -> str | int:
    """Return a size in the largest unit that divides it, such as ``4GiB``, or the number itself."""
    for unit, name in ((2**40, "TiB"), (2**30, "GiB"), (2**20, "MiB")):
        if size and size % unit == 0:
            return f"{size // unit}{name}"
    return size


Bytes = Annotated[
    int,
    BeforeValidator(parse_bytes),
    Field(gt=0),
    WithJsonSchema(
        {
            "description": "Bytes, or a size such as 4GiB.",
            "anyOf": [
                {"type": "integer", "exclusiveMinimum": 0},
                {"type": "string", "pattern": r"^\s*[0-9.]+\s*([kKmMgGtT]?i?[bB])?\s*$"},
            ],
        }
    ),
]
