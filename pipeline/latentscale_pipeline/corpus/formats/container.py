"""The content of an input file in any format: named fields of rows.

Every format module turns a file into a :class:`Container`. Which field holds the vectors, and which
a row's id, label or weight, is chosen here, in one way for all formats: the only two-dimensional
float field is taken; several are listed and one has to be named.
"""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from latentscale_pipeline.errors import BadInput

STRINGS = np.dtypes.StringDType()
"""Type of columns that hold text."""


@dataclass(frozen=True)
class Field:
    """One array of a container, or one column of a table.

    Attributes
    ----------
    name : str
        Empty when a file holds nothing else.
    shape : tuple of int
        Rows first.
    dtype : numpy dtype
        Of the values as they are read.
    columns : tuple of str
        Of a field that joins several columns of a table: their names, in order.
    """

    name: str
    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    columns: tuple[str, ...] = ()

    def __str__(self) -> str:
        kind = "text" if self.dtype.kind == "T" else str(self.dtype)
        return f"{self.name} {kind} {self.shape}".strip()


class Container(ABC):
    """An opened file with known contents, whose rows can be read any number of times.

    It can be pickled, so that other processes read from it without opening it anew.

    Attributes
    ----------
    path : str
        Path or URL without credentials.
    fields : tuple of Field
        What it holds.
    sequential : bool
        Whether reading rows means reading all rows before them.
    single : bool
        Whether the format holds one array and nothing else, so that there is nothing to choose.
    """

    path: str
    fields: tuple[Field, ...]
    sequential: bool = False
    single: bool = False

    @abstractmethod
    def blocks(self, field: Field, start: int, stop: int) -> Iterator[npt.NDArray[Any]]:
        """Yield rows of a field from ``start`` up to ``stop``, in order, in blocks of some MiB."""

    def locate(self, field: Field) -> str:
        """Name a field for records and messages."""
        return f"{self.path}:{field.name}" if field.name else self.path

    def check(self, field: Field) -> None:  # noqa: B027 -- most formats have nothing to check
        """Refuse a field that can't be whole, before any of its rows is read."""


def joined_fields(columns: Mapping[str, np.dtype[np.floating]], rows: int) -> list[Field]:
    """Join the float columns of a table, of which each has one dimension, to fields of vectors.

    Columns whose names differ in a number at their end belong together, in the order of the
    numbers: ``emb_0 … emb_383`` is one field, ``emb_*``. Where no columns are numbered, all float
    columns together are one field, ``*``.

    Parameters
    ----------
    columns : mapping of str to numpy dtype
        The float columns, in the table's order.
    rows : int
        How many rows the table has.
    """
    numbered: defaultdict[str, dict[int, str]] = defaultdict(dict)
    for name in columns:
        match = re.fullmatch(r"(.*?)(\d+)", name, re.DOTALL)
        if match:
            numbered[match[1]][int(match[2])] = name
    groups = {
        f"{stem}*": tuple(members[number] for number in sorted(members))
        for stem, members in numbered.items()
        if len(members) > 1
    }
    if not groups and len(columns) > 1:
        groups = {"*": tuple(columns)}
    return [
        Field(name, (rows, len(members)), np.result_type(*(columns[m] for m in members)), members)
        for name, members in groups.items()
    ]


def choose_vectors(
    container: Container, name: str | None = None, used: Collection[str] = ()
) -> Field:
    """Choose the field that holds the vectors.

    Parameters
    ----------
    container : Container
    name : str, optional
        Its name; without one it is the only two-dimensional float field.
    used : collection of str
        Columns that hold ids, labels or weights.

    Raises
    ------
    BadInput
        When there is none, or several to choose from (they are listed).
    """
    fields = [_without(field, used) for field in container.fields]
    if name is not None:
        field = _named(container, fields, name)
    elif container.single:
        field = fields[0]
    else:
        field = _only_candidate(container, fields)
    where = container.locate(field)
    if len(field.shape) != 2:
        raise BadInput(
            f"{where}: an array of shape {field.shape}; vectors must be two-dimensional (rows, "
            "dimensions), so reshape it"
        )
    if field.dtype.kind not in "fiu":
        raise BadInput(
            f"{where}: values of dtype {field.dtype}; vectors must be real numbers (float or "
            "integer), so convert them"
        )
    if not field.shape[1]:
        raise BadInput(f"{where}: rows of no dimensions (shape {field.shape})")
    if not field.shape[0]:
        raise BadInput(f"{where}: no rows (shape {field.shape}); leave it out")
    container.check(field)
    return field


def choose_column(container: Container, name: str | None, kinds: str) -> Field:
    """Choose the field that holds one value a row.

    Parameters
    ----------
    container : Container
    name : str, optional
        Its name; without one it is the only one-dimensional field of these kinds.
    kinds : str
        Kinds of numpy dtypes that will do.

    Raises
    ------
    BadInput
        When there is none, or several to choose from (they are listed).
    """
    if name is not None:
        return _named(container, container.fields, name)
    if container.single:
        return container.fields[0]
    suitable = [f for f in container.fields if len(f.shape) == 1 and f.dtype.kind in kinds]
    if len(suitable) == 1:
        return suitable[0]
    what = "several columns would do" if suitable else "no column would do"
    raise BadInput(
        f"{container.path}: {what} (it holds {_listed(container.fields)}); name one of them"
    )


def _without(field: Field, used: Collection[str]) -> Field:
    kept = tuple(column for column in field.columns if column not in used)
    shape = (field.shape[0], len(kept)) if field.columns else field.shape
    return replace(field, shape=shape, columns=kept)


def _only_candidate(container: Container, fields: list[Field]) -> Field:
    candidates = [f for f in fields if len(f.shape) == 2 and f.dtype.kind == "f" and f.shape[1]]
    if len(candidates) == 1:
        return candidates[0]
    if candidates:
        raise BadInput(
            f"{container.path}: several two-dimensional float arrays (it holds "
            f"{_listed(fields)}); name one of them with --vectors"
        )
    raise BadInput(
        f"{container.path}: no two-dimensional float array (it holds {_listed(fields)}); name "
        "what to take with --vectors, or save the vectors in a .npy of their own"
    )


def _named(container: Container, fields: Collection[Field], name: str) -> Field:
    for field in fields:
        if field.name == name.strip("/"):
            return field
    raise BadInput(
        f"{container.path}: there is no {name!r} in it (it holds {_listed(fields)}); name one of "
        "these"
    )


def _listed(fields: Collection[Field]) -> str:
    shown = [str(field) for field in fields][:20]
    if len(fields) > len(shown):
        shown.append(f"and {len(fields) - len(shown)} more")
    return ", ".join(shown) or "no array"
