"""Row-aligned companions of the vectors: ids, labels and weights from files of their own.

A ``.npy`` holds one value a row; any other file is UTF-8 text with one value a line. They are read
twice as streams, once to count and once to store, so they may be longer than memory.
"""

from __future__ import annotations

import io
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, BinaryIO, cast

import numpy as np
import numpy.typing as npt

from latentscale_pipeline.corpus import npy
from latentscale_pipeline.corpus.sources import reaching
from latentscale_pipeline.errors import BadInput
from latentscale_pipeline.objects import ObjectStore, strip_credentials

DTYPES = {"ids": "string", "labels": "string", "weights": "float64"}
"""The arrays a corpus may have beside its vectors, and how they are stored."""

_STRINGS = np.dtypes.StringDType()
_LINES = 65536


@dataclass(frozen=True)
class Sidecar:
    """One value for every row of the sources.

    Attributes
    ----------
    name : str
        ``ids``, ``labels`` or ``weights``.
    path : str
        Where it comes from, without credentials.
    rows : int
        How many values there are.
    blocks : callable
        ``blocks()`` yields the values in order: arrays of str, or of float64 for weights.
    """

    name: str
    path: str
    rows: int
    blocks: Callable[[], Iterator[npt.NDArray[Any]]]


def open_sidecar(name: str, url: str, rows: int) -> Sidecar:
    """Open a file of ids, labels or weights and check that it has one value a row.

    Parameters
    ----------
    name : str
        ``ids``, ``labels`` or ``weights``.
    url : str
        Path or fsspec URL of a ``.npy`` or of text, one value a line.
    rows : int
        Rows of the sources, before any is dropped.

    Raises
    ------
    BadInput
        When it can't be read, or the number of values differs.
    """
    where = strip_credentials(url)
    with reaching(where), _opened(url) as file:
        is_npy = file.read(len(npy.MAGIC)) == npy.MAGIC
    sidecar = _from_npy(name, url, where) if is_npy else _from_text(name, url, where)
    if sidecar.rows != rows:
        raise BadInput(
            f"{where}: {sidecar.rows} {name} for {rows} rows of vectors; give exactly one a row, "
            "in the order of the sources"
        )
    return sidecar


def take(sidecar: Sidecar) -> Callable[[int], npt.NDArray[Any]]:
    """Return a function that returns the next so many values at each call."""
    blocks = sidecar.blocks()
    block, used = next(blocks), 0

    def take_next(count: int) -> npt.NDArray[Any]:
        nonlocal block, used
        pieces = []
        while count > len(block) - used:
            pieces.append(block[used:])
            count -= len(pieces[-1])
            block, used = next(blocks), 0
        pieces.append(block[used : used + count])
        used += count
        return np.concatenate(pieces)

    return take_next


def _opened(url: str) -> BinaryIO:
    # Buffered on a disk, too: text is read line by line.
    return cast(BinaryIO, io.BufferedReader(cast(io.RawIOBase, ObjectStore(url).open())))


def _from_npy(name: str, url: str, where: str) -> Sidecar:
    with reaching(where), _opened(url) as file:
        header = npy.read_header(file, where)
        npy.check_size(header, file.seek(0, io.SEEK_END), where)
    kinds = "fiu" if name == "weights" else "USiu"
    if len(header.shape) != 1 or header.dtype.kind not in kinds:
        wanted = "numbers" if name == "weights" else "text or integers"
        raise BadInput(
            f"{where}: {name} must be {wanted}, one a row, but this is an array of shape "
            f"{header.shape} and dtype {header.dtype}"
        )

    def blocks() -> Iterator[npt.NDArray[Any]]:
        row = 0
        with reaching(where), _opened(url) as file:
            file.seek(header.offset)
            for block in npy.read_blocks(file, header, where):
                if name == "weights":
                    yield _checked_weights(block.astype(np.float64), row, where)
                elif block.dtype.kind == "S":
                    yield np.array(
                        [_decoded(text, row, where) for text in block.tolist()], _STRINGS
                    )
                else:
                    yield np.array([str(value) for value in block.tolist()], _STRINGS)
                row += len(block)

    return Sidecar(name, where, header.shape[0], blocks)


def _from_text(name: str, url: str, where: str) -> Sidecar:
    with reaching(where), _opened(url) as file:
        rows = sum(1 for _ in file)

    def blocks() -> Iterator[npt.NDArray[Any]]:
        row = 0
        for lines in _batches(url, where):
            if name == "weights":
                yield _checked_weights(_numbers(lines, row, where), row, where)
            else:
                yield np.array(lines, _STRINGS)
            row += len(lines)

    return Sidecar(name, where, rows, blocks)


def _batches(url: str, where: str) -> Iterator[list[str]]:
    with reaching(where), _opened(url) as file:
        lines: list[str] = []
        for row, line in enumerate(file):
            if row == 0:
                line = line.removeprefix(b"\xef\xbb\xbf")
            lines.append(_decoded(line.rstrip(b"\r\n"), row, where))
            if len(lines) == _LINES:
                yield lines
                lines = []
        if lines:
            yield lines


def _decoded(text: bytes, row: int, where: str) -> str:
    try:
        return text.decode()
    except UnicodeDecodeError as error:
        raise BadInput(
            f"{where}: row {row} isn't UTF-8 ({error.reason}); convert the file"
        ) from None


def _numbers(lines: list[str], row: int, where: str) -> npt.NDArray[np.float64]:
    values = np.empty(len(lines))
    for i, line in enumerate(lines):
        try:
            values[i] = float(line)
        except ValueError:
            raise BadInput(f"{where}: row {row + i}: {line!r} isn't a number; mend it") from None
    return values


def _checked_weights(
    values: npt.NDArray[np.float64], row: int, where: str
) -> npt.NDArray[np.float64]:
    bad = np.flatnonzero(~(np.isfinite(values) & (values >= 0)))
    if bad.size:
        raise BadInput(
            f"{where}: row {row + bad[0]}: weight {values[bad[0]]}; weights must be finite and not "
            "negative"
        )
    return values
