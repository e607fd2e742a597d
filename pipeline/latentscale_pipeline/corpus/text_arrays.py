"""Look up texts in arrays of variable width.

NumPy's own functions don't do: its ``isin`` compares every text with every other, its
``searchsorted`` misses those of 16 bytes and more, and its ``intersect1d`` may end the process.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

import numpy as np
import numpy.typing as npt

from latentscale.array_types import BoolArray, Int64Array

_BLOCK = 1 << 16


def is_among(texts: npt.NDArray[Any], others: Collection[str]) -> BoolArray:
    """Return which texts are among others, in time and memory for each only once."""
    wanted = frozenset(others)
    found = np.empty(len(texts), dtype=bool)
    for start in range(0, len(texts), _BLOCK):
        block = texts[start : start + _BLOCK].tolist()
        found[start : start + _BLOCK] = [text in wanted for text in block]
    return found


def number_texts(
    first: npt.NDArray[Any], second: npt.NDArray[Any]
) -> tuple[Int64Array, Int64Array]:
    """Return a number for every text of two arrays: the same for the same text, in their order."""
    _, numbers = np.unique(np.concatenate([first, second]), return_inverse=True)
    return numbers[: len(first)], numbers[len(first) :]
