"""A corpus whose rows are an array in memory; nothing is written.

It has the same shards that an ingest of the rows would write. Stage partitions and the order of
sums follow the shards, so the results equal those of a stored corpus.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from latentscale.array_types import Float64Array
from latentscale_pipeline.corpus.corpus import Corpus
from latentscale_pipeline.corpus.fingerprint import BLOCK_ROWS, block_digests, combine
from latentscale_pipeline.corpus.ingest.encoding import invalid_reason, storable_rows
from latentscale_pipeline.corpus.ingest.sidecars import checked_weights
from latentscale_pipeline.corpus.ingest.sources import COLUMNS
from latentscale_pipeline.corpus.ingest.writing import SHARD_BYTES, stored_dtype
from latentscale_pipeline.corpus.manifest import (
    CountedRows,
    DroppedRows,
    Manifest,
    Shard,
    StoredArray,
)
from latentscale_pipeline.corpus.shards import plan_rows
from latentscale_pipeline.errors import BadInput, first_line


@dataclass(frozen=True)
class InMemoryCorpus(Corpus):
    """Rows in memory. Get one from :func:`hold_rows`."""

    held: Mapping[str, npt.NDArray[Any]] = field(default_factory=dict, repr=False, compare=False)

    @property
    def shard_prints(self) -> tuple[str, ...]:
        """Empty, so that nothing is reused from other jobs."""
        return ()

    def _read_shard(self, name: str, i: int) -> npt.NDArray[Any]:
        array = self.manifest.array(name)
        start = i * array.shard_rows
        # Callers may write to the rows they get.
        return self.held[name][start : start + array.shards[i].rows].copy()


def hold_rows(
    rows: npt.ArrayLike,
    name: str,
    *,
    weights: npt.ArrayLike | None = None,
    shard_bytes: int = SHARD_BYTES,
) -> InMemoryCorpus:
    """Check rows and return a corpus of them.

    A contiguous array in the stored dtype isn't copied; any other array is copied once.

    Parameters
    ----------
    rows : array_like, shape (n, d)
        Finite numbers. float16 stays float16; everything else becomes float32.
    name : str
        Name of the rows, for messages.
    weights : array_like, shape (n,), optional
        Non-negative weights, not all zero.
    shard_bytes : int
        Approximate size of a shard.

    Raises
    ------
    BadInput
        If the rows or weights can't be used.
    """
    if _vector_column(rows) is None:
        _refuse_other_columns(rows, name)
    try:
        given = np.asarray(rows)
    except ValueError:
        raise BadInput(f"{name}: {_unequal_rows(rows)}; give a rectangular array") from None
    except (TypeError, RuntimeError) as error:  # a tensor on a GPU, or with a gradient
        advice = "give a NumPy array, as rows.detach().cpu().numpy() is"
        raise BadInput(f"{name}: {first_line(error)}; {advice}") from None
    if isinstance(rows, np.ma.MaskedArray) and np.ma.is_masked(rows):
        row = int(np.argwhere(np.ma.getmaskarray(rows))[0][0])
        raise BadInput(f"{name}: row {row} has masked values; fill them in, or leave such rows out")
    if given.ndim != 2 or given.dtype.kind not in "fiu" or not given.size:
        raise BadInput(
            f"{name} must be a two-dimensional numeric array with at least one row; got shape "
            f"{given.shape} and dtype {given.dtype}"
            f"{_how_to_convert(rows, given.shape) if given.dtype.kind == 'O' else ''}"
        )
    with np.errstate(over="ignore", under="ignore"):  # _check_rows refuses such rows
        stored = np.ascontiguousarray(given, stored_dtype([given.dtype]))
    zeros = _check_rows(stored, given, name)
    held = {"vectors": stored}
    if weights is not None:
        held["weights"] = _check_weights(weights, len(stored))
    n, d = stored.shape
    row_bytes = d * stored.itemsize
    shard_rows, chunk_rows = plan_rows(n, row_bytes, shard_bytes)
    vectors = _cut("vectors", stored, shard_rows, chunk_rows)
    manifest = Manifest(
        n=n,
        d=d,
        vectors=vectors,
        arrays={"weights": _cut("weights", held["weights"], n, n)} if weights is not None else {},
        documents=(),
        fingerprint=combine([block_digests(stored)], stored.dtype, n, d),
        zero_rows=zeros,
        dropped=DroppedRows(0, (), None),
        sources=(),
        created="",
        version="",
    )
    return InMemoryCorpus(name, manifest, "", "", held=held)


def _refuse_other_columns(rows: Any, name: str) -> None:
    """Refuse a data frame with columns that are no coordinates, by their names."""
    columns = list(_column_names(rows))
    found = {
        kind: column
        for kind, names in COLUMNS.items()
        for column in columns
        if str(column).lower() in names
    }
    beside_them = (*_beside_numbered(columns, found.values()), *_texts(rows))
    no_coordinates = list(dict.fromkeys([*found.values(), *beside_them]))
    if no_coordinates:
        left_out = " and ".join(repr(column) for column in no_coordinates)
        beside = " and ".join(f"{kind}=frame[{column!r}]" for kind, column in found.items())
        chosen = f"[c for c in {{}} if c not in {no_coordinates}]"
        others = (
            f"table.select({chosen.format('table.column_names')})"
            if hasattr(rows, "column_names")
            else f"frame[{chosen.format('frame.columns')}]"
        )
        raise BadInput(
            f"{name} has columns that are no coordinates: {left_out}; give the others, as "
            f"{others}{f', and to run {beside}' if beside else ''}"
        )


def _beside_numbered(columns: Sequence[Any], known: Collection[Any]) -> list[Any]:
    """Return columns beside those that are numbered, as ``emb_0`` and so on, with one name."""
    stems = {c: re.sub(r"\d+$", "", c) for c in columns if isinstance(c, str) and c not in known}
    numbered = Counter(stem for column, stem in stems.items() if stem != column)
    if len(numbered) != 1 or numbered.total() < 2:
        return []
    return [column for column, stem in stems.items() if stem == column]


def _texts(rows: Any) -> list[Any]:
    """Return the columns of a data frame that begin with a text, if others don't."""
    columns = list(_column_names(rows))
    texts = [name for name in columns if isinstance(_first_value(rows, name), str)]
    return texts if len(texts) < len(columns) else []


def _vector_column(rows: Any) -> Any:
    """Return the name of a data frame's first column of vectors; None if it has none."""
    for name in _column_names(rows):
        if isinstance(_first_value(rows, name), list | tuple | np.ndarray):
            return name
    return None


def _first_value(rows: Any, name: Any) -> Any:
    names = list(_column_names(rows))
    if names.count(name) > 1:
        return None
    column = rows[name]
    first: Any = next(iter(column), None)
    return first.as_py() if hasattr(first, "as_py") else first


def _column_names(rows: Any) -> Sequence[Any]:
    """Return the names of a data frame's columns, or of those of a table of Arrow."""
    names: Sequence[Any] = getattr(rows, "column_names", getattr(rows, "columns", ()))
    return names


def _unequal_rows(rows: Any) -> str:
    """Return which rows differ in length."""
    lengths = [len(row) if hasattr(row, "__len__") else 1 for row in rows]
    other = next((i for i, length in enumerate(lengths) if length != lengths[0]), None)
    if other is None:
        return "the lists in it differ in length"
    return f"rows 0 and {other} have {lengths[0]:,} and {lengths[other]:,} numbers"


def _how_to_convert(rows: Any, shape: tuple[int, ...]) -> str:
    """Return how objects become an array of numbers; a column of vectors is named."""
    name = _vector_column(rows)
    if name is not None and hasattr(rows, "column_names"):
        return f"; the vectors of a column become one by np.stack(table[{name!r}].to_numpy())"
    if name is None and len(shape) == 2:
        values = np.asarray(rows, dtype=object)
        missing = (row for row, cells in enumerate(values) if any(map(is_missing, cells)))
        if (row := next(missing, None)) is not None:
            return f"; row {row} has a missing value: fill it in, or leave such rows out"
        return "; make them numbers by rows.astype('float32')"
    if name is None and hasattr(rows, "toarray"):
        return "; give a dense array, by rows.toarray()"
    if name is None and not shape:
        return "; give an array, as np.array(list(rows)) is"
    if name is not None:
        return f"; the vectors of a column become one by np.stack(frame[{name!r}])"
    return "; a column of vectors becomes one by np.stack(column)"


def is_missing(value: object) -> bool:
    """Return whether a value is None, NaN, or the missing value of pandas."""
    is_nan = isinstance(value, float) and np.isnan(value)
    return value is None or bool(is_nan) or type(value).__name__ == "NAType"


def _cut(name: str, array: npt.NDArray[Any], shard_rows: int, chunk_rows: int) -> StoredArray:
    """Describe an array as shards with row counts, but without sizes and checksums."""
    shards = tuple(
        Shard(f"{name}/{start}", 0, "", min(shard_rows, len(array) - start))
        for start in range(0, len(array), shard_rows)
    )
    return StoredArray(array.dtype.name, shard_rows, chunk_rows, shards)


def _check_rows(stored: npt.NDArray[Any], given: npt.NDArray[Any], name: str) -> CountedRows:
    """Refuse rows that can't be stored, and count rows that are zero, in blocks to save memory."""
    count, first = 0, None
    for start in range(0, len(stored), BLOCK_ROWS):
        block = stored[start : start + BLOCK_ROWS]
        storable = storable_rows(block, given[start : start + BLOCK_ROWS])
        if not storable.all():
            row = start + int(np.argmin(storable))
            advice = "scale all rows, or leave such rows out"
            if not np.isfinite(given[row]).all():
                advice = "leave such rows out, as rows[np.isfinite(rows).all(axis=1)] does"
            reason = invalid_reason(given[row], stored.dtype.name)
            raise BadInput(f"{name}: row {row} {reason}; {advice}")
        zero = np.flatnonzero(~block.any(axis=1))
        if len(zero) and first is None:
            first = start + int(zero[0])
        count += len(zero)
    return CountedRows(count, first)


def _check_weights(given: npt.ArrayLike, n: int) -> Float64Array:
    if isinstance(given, np.ma.MaskedArray) and np.ma.is_masked(given):
        raise BadInput("weights: some are masked; fill them in, or leave such rows out")
    try:
        plain = np.asarray(given)
        if np.iscomplexobj(plain):
            raise BadInput("weights: they are complex; give real numbers")
        weights = plain.astype(np.float64)
    except (TypeError, ValueError):
        raise BadInput("weights: they aren't numbers; give one for each row, as a list") from None
    if weights.shape != (n,):
        raise BadInput(
            f"weights: shape {weights.shape} for {n} rows; give one weight per row, shape ({n},)"
        )
    if not checked_weights(weights, 0, "weights").any():
        raise BadInput("weights: all are zero; at least one must be positive")
    return weights
