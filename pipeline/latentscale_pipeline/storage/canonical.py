"""Canonical JSON and its digest, and folder names."""

from __future__ import annotations

import hashlib
import json
import math
import re
import unicodedata
from collections.abc import Mapping
from typing import Any


def slug(name: str) -> str:
    """Return a folder name made of ``a-z``, ``0-9`` and single hyphens for any text."""
    plain = unicodedata.normalize("NFKD", name).encode("ascii", "ignore").decode().lower()
    return re.sub(r"[^a-z0-9]+", "-", plain).strip("-")[:80].strip("-") or "job"


def canonical(value: Any) -> str:
    """Return a JSON value in canonical form: sorted keys, no spaces, infinity as text."""
    return _canonical(plain(value))


def _canonical(value: Any) -> str:
    return json.dumps(value, sort_keys=True, separators=(",", ":"), allow_nan=False)


def plain(value: Any) -> Any:
    """Convert a value to valid JSON: infinity becomes text, and a tuple a list."""
    kind = type(value)
    if kind is str or kind is int:  # most are, and to ask for a mapping takes longer
        return value
    if kind is dict or isinstance(value, Mapping):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    if isinstance(value, float) and math.isinf(value):
        return "inf" if value > 0 else "-inf"
    return value


def digest(value: Any) -> str:
    """Return the SHA-256 of a JSON value's canonical form, in hex."""
    return hashlib.sha256(canonical(value).encode()).hexdigest()


def digest_of_parsed(value: Any) -> str:
    """Return the :func:`digest` of what a JSON parser returned, in half the time."""
    return hashlib.sha256(_canonical(value).encode()).hexdigest()
