"""Pack many arrays into few objects of bounded size.

A state may have a hundred arrays. Separate objects would cost a round trip each. A single object
would need twice the memory. So consecutive arrays share an object up to a certain size.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

PACK_BYTES = 32 * 2**20
"""Largest size of an object with several arrays."""

Array = NDArray[Any]

Index = list[dict[str, Any]]
"""The index of arrays, as JSON: name, dtype, shape, object, and first byte in it."""


def pack(
    arrays: Mapping[str, Array], prefix: str, pack_bytes: int = PACK_BYTES
) -> tuple[dict[str, Array], Index]:
    """Pack arrays into objects.

    Parameters
    ----------
    arrays : mapping of str to ndarray
        Of plain numbers.
    prefix : str
        Begins the name of every object.
    pack_bytes : int
        Size up to which arrays share an object.

    Returns
    -------
    tuple of dict and list
        Arrays of bytes by name, and the index to find the given ones in them.
    """
    shelves: list[list[Array]] = []
    index: Index = []
    filled = 0
    for name, array in arrays.items():
        flat = np.ascontiguousarray(array).reshape(-1).view(np.uint8)
        if not shelves or filled + flat.nbytes > pack_bytes:
            shelves.append([])
            filled = 0
        place = {"object": _shelf(prefix, len(shelves) - 1), "offset": filled}
        index.append({"name": name, "dtype": array.dtype.str, "shape": list(array.shape), **place})
        shelves[-1].append(flat)
        filled += flat.nbytes
    objects = {_shelf(prefix, i): np.concatenate(shelf) for i, shelf in enumerate(shelves)}
    return objects, index


def unpack(index: Index, read: Callable[[str], Array]) -> dict[str, Array]:
    """Unpack the arrays; every object is read once.

    Parameters
    ----------
    index : list
        From :func:`pack`.
    read : callable
        Reads an object's bytes by its name.
    """
    arrays: dict[str, Array] = {}
    held, bytes_of = "", np.empty(0, np.uint8)
    for entry in index:
        if entry["object"] != held:
            held, bytes_of = entry["object"], read(entry["object"])
        dtype, shape = np.dtype(entry["dtype"]), tuple(entry["shape"])
        size = dtype.itemsize * int(np.prod(shape, dtype=np.int64))
        part = bytes_of[entry["offset"] : entry["offset"] + size]
        arrays[entry["name"]] = part.copy().view(dtype).reshape(shape)
    return arrays


def _shelf(prefix: str, number: int) -> str:
    return f"{prefix}{number:05d}"
