"""The content of an input file in any format: named fields of rows.

Every format module turns a file into a :class:`Container`. The fields that hold vectors, ids,
labels and weights are chosen here, in the same way for all formats: if there is only one
two-dimensional float field, it holds the vectors; if there are several, the user must name one.
"""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Any

import numpy as np
import numpy.typing as npt

from latentscale_pipeline.errors import BadInput

STRINGS = np.dtypes.StringDType()
"""Dtype of text columns."""

KINDS = "USTiu"
"""Kinds of dtypes whose values can be ids, labels or texts: texts and whole numbers."""

NO_VALUE = "has no value; fill it in, or choose another column or none"
"""What is wrong with a row that lacks a value, and what to do."""


NO_OTHERS: Mapping[str, bool] = MappingProxyType({})
"""A table's columns besides numeric ones, if there are none."""

_NUMBERED = re.compile(r"(.*?)(\d+)", re.DOTALL)


class UnknownField(BadInput):
    """A field was named that a source hasn't."""


class NoRows(BadInput):
    """A source has no rows; ``line`` are the cells of the only line of a text file."""

    def __init__(self, message: str, line: Sequence[str] = ()) -> None:
        super().__init__(message)
        self.line = tuple(line)


@dataclass(frozen=True)
class Field:
    """One array of a container, or one column of a table.

    Attributes
    ----------
    name : str
        Empty if the file holds a single array.
    shape : tuple of int
        Shape; the first axis is the rows.
    dtype : numpy dtype
        Dtype of the values as they are read.
    columns : tuple of str
        Names of the table's columns that the field joins, in order; empty for other fields.
    lacks : tuple of str
        Columns that belong to these by their names, but aren't floats.
    unlike : str
        One of these columns that may be ids or labels, because its values are unlike the others;
        empty if there is none.
    empty_for_null : bool
        Whether a missing text or whole number is read as an empty text, and a missing float as
        NaN; otherwise it is refused.
    dated : bool
        Whether the texts are dates or times, which are ids or labels only where that is said.
    unread : str
        The type of values that can't be read, as its format calls it; empty if they can.
    unseen : bool
        Whether the first rows have no value, so that its type isn't known. Such a field is taken
        only where it is named, as texts.
    """

    name: str
    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    columns: tuple[str, ...] = ()
    lacks: tuple[str, ...] = ()
    unlike: str = ""
    empty_for_null: bool = False
    dated: bool = False
    unread: str = ""
    unseen: bool = False

    def __str__(self) -> str:
        return f"{self.name} {self.kind} {self.shape}".strip()

    @property
    def loose(self) -> bool:
        """Whether it joins columns whose names have nothing in common; each is a field, too."""
        return self.name == "*" and not all(column.isdigit() for column in self.columns)

    @property
    def kind(self) -> str:
        """The type of its values, for messages."""
        if self.dated:
            return "date or time"
        if self.unseen:
            return "without a value in the first rows"
        return self.unread or ("text" if self.dtype.kind == "T" else str(self.dtype))


class Container(ABC):
    """An open file with known fields, whose rows can be read any number of times.

    It can be pickled, so that other processes can read from it without parsing its header again.

    Attributes
    ----------
    path : str
        Path or URL without credentials.
    fields : tuple of Field
        The fields of the file.
    sequential : bool
        Whether a row can only be reached by reading all rows before it.
    single : bool
        Whether the file holds exactly one array, so that there is nothing to choose.
    header : tuple of str
        The names in the first line of a table of text.
    only_line : tuple of str
        The cells of a table of one line, which may be a header.
    """

    path: str
    fields: tuple[Field, ...]
    sequential: bool = False
    single: bool = False
    header: tuple[str, ...] = ()
    only_line: tuple[str, ...] = ()

    @abstractmethod
    def blocks(self, field: Field, start: int, stop: int) -> Iterator[npt.NDArray[Any]]:
        """Yield the rows of a field from ``start`` up to ``stop``, in blocks of a few MiB."""

    def locate(self, field: Field) -> str:
        """Return the path and name of a field, for records and messages."""
        return f"{self.path}:{field.name}" if field.name else self.path

    def as_written(self, field: Field) -> Field:
        """Return a field with its whole numbers as the texts they are written as, if they are."""
        return field

    def untyped(self, field: Field) -> bool:
        """Return whether only all the values of a field show if they are numbers or texts."""
        return False

    def check(self, field: Field) -> None:  # noqa: B027 -- most formats have nothing to check
        """Refuse a field that can't be complete, before any of its rows is read."""


def joined_fields(
    columns: Mapping[str, np.dtype[Any]], rows: int, others: Mapping[str, bool] = NO_OTHERS
) -> list[Field]:
    """Join numeric columns of a table, one for each dimension, to fields of vectors.

    Columns whose names differ only in a number at the end belong together, in the order of the
    numbers: ``emb_0 … emb_383`` become one field, ``emb_*``. If no columns are numbered, all float
    columns become one field, ``*``. Columns of whole numbers may be ids or labels, so they are
    dimensions only where at least two float columns have the same name but for the number: programs
    write 0.0 as ``0``.

    Parameters
    ----------
    columns : mapping of str to numpy dtype
        The columns of floats and of whole numbers, in the table's order.
    rows : int
        Number of rows of the table.
    others : mapping of str to bool
        Its other columns, and whether the first rows have no value there. A vector lacks those that
        are numbered as its own ones are and have no value, or lie between them.
    """
    floats = {name: dtype for name, dtype in columns.items() if dtype.kind == "f"}
    numbered, unfit = (_numbered(names) for names in (columns, others))
    groups = {
        f"{stem}*": members
        for stem, members in numbered.items()
        if sum(member in floats for _, member in members) > 1
    }
    if not groups and len(floats) > 1:
        groups = {"*": list(enumerate(floats))}
        unfit = {}
    return [
        Field(
            name,
            (rows, len(members)),
            np.result_type(*(floats[member] for _, member in members if member in floats)),
            columns=tuple(member for _, member in members),
            lacks=tuple(
                other
                for number, other in unfit.get(name[:-1], ())
                if others[other] or members[0][0] < number < members[-1][0]
            ),
        )
        for name, members in groups.items()
    ]


def columns_beside(fields: Iterable[Field], taken: Collection[str]) -> dict[str, bool]:
    """Return the columns of a table that aren't taken, and whether they have no value at first."""
    return {
        field.name: field.unseen
        for field in fields
        if field.name not in taken and len(field.shape) == 1
    }


def _numbered(names: Iterable[str]) -> dict[str, list[tuple[int, str]]]:
    """Return numbered names by what is before the number, in the order of the numbers."""
    found: defaultdict[str, list[tuple[int, str]]] = defaultdict(list)
    for name in names:
        if match := _NUMBERED.fullmatch(name):
            found[match[1]].append((int(match[2]), name))
    return {stem: sorted(members) for stem, members in found.items()}


def stem_of(name: str) -> str | None:
    """Return what is before the number at the end of a column's name; None without one."""
    match = _NUMBERED.fullmatch(name)
    return match[1] if match else None


def unlike_column(columns: Sequence[str], values: Mapping[str, Sequence[Any]]) -> str:
    """Return the first or last column of a vector if only it has whole numbers, which differ.

    Parameters
    ----------
    columns : sequence of str
        The columns of the vector; none if it has no names.
    values : mapping of str to sequence
        The first values of those columns that have whole numbers only.

    Returns
    -------
    str
        Empty if there is none.
    """
    for place, others in ((0, columns[1:]), (-1, columns[:-1])):
        fractional = sum(other not in values for other in others)
        if 2 * fractional > len(others) and len(set(values.get(columns[place], ()))) > 1:
            return columns[place]
    return ""


def choose_vectors(
    container: Container, name: str | None = None, used: Collection[str] = ()
) -> Field:
    """Choose the field that holds the vectors.

    Parameters
    ----------
    container : Container
    name : str, optional
        Name of the field; by default the only two-dimensional float field.
    used : collection of str
        Columns that hold ids, labels or weights, which aren't part of a vector.

    Raises
    ------
    BadInput
        If there is no such field, or several (the message lists them), or it doesn't hold vectors.
    """
    fields = [_without(field, used) for field in container.fields]
    if name is not None:
        field = _named(container, fields, name)
    elif container.single:
        field = fields[0]
    else:
        field = _only_candidate(container, fields)
    where = container.locate(field)
    for column in field.lacks:
        if column not in used:
            raise BadInput(
                f"{where}: column {column} belongs to the vectors by its name, but has no floats "
                "in its first rows; convert it, or rename it"
            )
    if field.unseen:
        raise BadInput(
            f"{where}: the first rows have no vector, so its length isn't known; begin the file "
            "with a row that has one"
        )
    if field.dtype.kind in "UST" and len(field.shape) == 1:
        raise BadInput(f"{where}: this is text, not vectors; name the field with the vectors")
    if len(field.shape) != 2:
        raise BadInput(
            f"{where}: the array has shape {field.shape}, but vectors must have two dimensions "
            "(rows, dimensions); reshape it"
        )
    if field.dtype.kind not in "fiu":
        raise BadInput(
            f"{where}: the values have dtype {field.dtype}, but vectors must be floats or "
            "integers; convert them"
        )
    if not field.shape[0]:
        raise NoRows(f"{where}: there are no rows (shape {field.shape}); leave the file out")
    if not field.shape[1]:
        raise BadInput(f"{where}: the rows are empty (shape {field.shape}); leave the file out")
    container.check(field)
    return field


def choose_column(container: Container, name: str | None, kinds: str) -> Field:
    """Choose the field that holds one value per row.

    Parameters
    ----------
    container : Container
    name : str, optional
        Name of the field; by default the only one-dimensional field of these kinds.
    kinds : str
        Accepted kinds of numpy dtypes.

    Raises
    ------
    BadInput
        If there is no such field, or several (the message lists them).
    """
    if name is not None:
        found = _named(container, container.fields, name)
        container.check(found)
        return found
    if container.single:
        return container.fields[0]
    suitable = [f for f in container.fields if len(f.shape) == 1 and f.dtype.kind in kinds]
    # True and false, dates and times are no first choice for labels.
    suitable = [
        f for f in suitable if f.dtype.kind != "b" and not (f.dated or f.unseen)
    ] or suitable
    if len(suitable) == 1:
        container.check(suitable[0])
        return suitable[0]
    what = "several columns are suitable" if suitable else "no column is suitable"
    raise BadInput(
        f"{container.path}: {what} (it holds {_listed(container.fields)}); name one of them"
    )


def find_column(
    container: Container, names: Collection[str], rows: int, kinds: str
) -> Field | None:
    """Return the first field with one of these names and kinds of dtypes that isn't dated."""
    for name in names:
        for field in container.fields:
            fits = field.shape == (rows,) and field.dtype.kind in kinds
            if field.name == name and fits and not (field.dated or field.unseen):
                return field
    return None


def _without(field: Field, used: Collection[str]) -> Field:
    kept = tuple(column for column in field.columns if column not in used)
    shape = (field.shape[0], len(kept)) if field.columns else field.shape
    return replace(field, shape=shape, columns=kept)


def _only_candidate(container: Container, fields: list[Field]) -> Field:
    candidates = [f for f in fields if len(f.shape) == 2 and f.dtype.kind == "f" and f.shape[1]]
    arrays = [f for f in fields if len(f.shape) == 2 and f.dtype.kind in "fiu" and not f.loose]
    if any(field.shape[1] > 1 for field in arrays):
        # Beside an array, numbers in columns whose names have nothing in common are other values.
        candidates = [field for field in candidates if not field.loose]
    if len(candidates) == 1:
        _refuse_unlike(container, candidates[0])
        return candidates[0]
    if fields and not any(field.shape and field.shape[0] for field in fields):
        raise NoRows(f"{container.path}: there are no rows; leave the file out")
    if candidates:
        raise BadInput(
            f"{container.path}: there are several two-dimensional float arrays (it holds "
            f"{_listed(candidates)}); name one with --vectors"
        )
    raise BadInput(
        f"{container.path}: there is no two-dimensional float array (it holds {_listed(fields)}); "
        "name the array to use with --vectors, or save the vectors as .npy"
    )


def _refuse_unlike(container: Container, field: Field) -> None:
    column = field.unlike
    if column in field.columns:
        raise BadInput(
            f"{container.path}: column {column} has whole numbers, the others have fractions, so "
            f"it may hold ids or labels; ingest the file with --ids-column {column} or "
            f"--labels-column {column}, or with --vectors {field.name!r} if it is a dimension"
        )


def _named(container: Container, fields: Collection[Field], name: str) -> Field:
    for field in fields:
        if field.name == name.strip("/"):
            if field.unread:
                raise BadInput(
                    f"{container.path}:{field.name}: values of type {field.unread} can't be read; "
                    "make text or numbers of them, or name another"
                )
            return field
    raise UnknownField(
        f"{container.path}: there is no {name!r} in it (it holds {_listed(fields)}); name one of "
        "those"
    )


def _listed(fields: Collection[Field]) -> str:
    shown = [str(field) for field in fields][:20]
    if len(fields) > len(shown):
        shown.append(f"and {len(fields) - len(shown)} more")
    return ", ".join(shown) or "no array"
