"""Export rows of a corpus to ``.npy``, or to Parquet with ids, labels and weights.

The file appears only when it is complete: it is written under a temporary name first or, in an
object store, becomes visible when it is closed.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, BinaryIO, TypeVar, cast

import numpy as np
from fsspec.spec import AbstractBufferedFile
from numpy.typing import NDArray

from latentscale.array_types import Int64Array
from latentscale_pipeline.corpus.formats.file import file_errors
from latentscale_pipeline.corpus.ingest.sources import Sources
from latentscale_pipeline.errors import BadInput, how_to_install
from latentscale_pipeline.progress import Progress, silent
from latentscale_pipeline.storage.objects import atomic_write
from latentscale_pipeline.storage.urls import open_url, strip_credentials

Writer = TypeVar("Writer")
Columns = Mapping[str, Int64Array]


def export(
    chosen: Sources,
    columns: Columns,
    target: str,
    *,
    overwrite: bool = False,
    progress: Progress = silent,
) -> None:
    """Write the chosen rows of a corpus to a file, a block at a time.

    Parameters
    ----------
    chosen : Sources
        The result of :func:`.selection.chosen_source`.
    columns : mapping of str to ndarray of int64, shape (n,)
        Columns before the vector: ``row``, the numbers of these rows in the corpus, and where its
        sources had other rows, which were left out, ``source_row``, the numbers there.
    target : str
        Path or fsspec URL that ends in ``.npy`` (vectors alone) or ``.parquet`` (these
        columns and ``vector``, and ``ids``, ``labels`` and ``weights`` if the corpus has them).
    overwrite : bool
        Replace an existing file.
    progress : callable
        ``progress(rows written, rows in all)``.

    Raises
    ------
    BadInput
        If the file exists already, or its suffix is unknown.
    """
    with new_file(target, WRITERS, overwrite=overwrite) as (file, write):
        write(chosen, columns, file, strip_credentials(target), progress)


@contextlib.contextmanager
def new_file(
    target: str, writers: Mapping[str, Writer], *, overwrite: bool
) -> Iterator[tuple[BinaryIO, Writer]]:
    """Open a file that appears only when it is complete, and choose its writer by its suffix.

    Raises
    ------
    BadInput
        If the file exists already, its suffix is unknown, or it can't be written.
    """
    where = strip_credentials(target)
    suffix = next((suffix for suffix in writers if target.lower().endswith(suffix)), None)
    if suffix is None:
        *others, last = writers
        named = f"{', '.join(others)} or {last}" if others else last
        raise BadInput(f"{where}: unknown suffix; use a path that ends in {named}")
    check_free(target, overwrite=overwrite)
    with file_errors(where):
        fs, path = open_url(target)
        with _published(fs, str(path)) as file:
            yield file, writers[suffix]


def check_free(target: str, *, overwrite: bool) -> None:
    """Refuse a path or URL where a file is, unless it may be replaced.

    Raises
    ------
    BadInput
        If there is one.
    """
    where = strip_credentials(target)
    with file_errors(where):
        fs, path = open_url(target)
        if fs.exists(path) and not overwrite:
            raise BadInput(f"{where}: the file exists; use another path, or --overwrite")


def remove_file(target: str) -> None:
    """Remove a file, if there is one."""
    with file_errors(strip_credentials(target)):
        fs, path = open_url(target)
        if fs.exists(path):
            fs.rm_file(path)


def _write_npy(
    chosen: Sources, known: Columns, file: BinaryIO, where: str, progress: Progress
) -> None:
    [source] = chosen.items
    about = {
        "descr": np.lib.format.dtype_to_descr(source.dtype),
        "fortran_order": False,
        "shape": (source.rows, source.d),
    }
    np.lib.format.write_array_header_1_0(file, about)
    done = 0
    for block in source.blocks():
        file.write(np.ascontiguousarray(block).data.cast("B"))
        done += len(block)
        progress(done, source.rows)


def _write_parquet(
    chosen: Sources, known: Columns, file: BinaryIO, where: str, progress: Progress
) -> None:
    try:
        import pyarrow as pa
        import pyarrow.parquet as pq
    except ImportError:
        raise BadInput(
            f"{where}: writing it needs pyarrow; install it with: {how_to_install('parquet')}"
        ) from None
    [source] = chosen.items
    companions = {
        name: source.container.blocks(field, 0, source.rows)
        for name, field in source.columns.items()
    }
    held: dict[str, NDArray[Any]] = {name: next(blocks) for name, blocks in companions.items()}
    with contextlib.ExitStack() as closed:
        done, writer = 0, None
        for block in source.blocks():
            count = len(block)
            columns = {name: pa.array(rows[done : done + count]) for name, rows in known.items()}
            for name, blocks in companions.items():
                while len(held[name]) < count:
                    held[name] = np.concatenate([held[name], next(blocks)])
                columns[name] = pa.array(held[name][:count].tolist())
                held[name] = held[name][count:]
            flat = pa.array(block.reshape(-1))
            columns["vector"] = pa.FixedSizeListArray.from_arrays(flat, source.d)
            table = pa.table(columns)
            if writer is None:
                writer = closed.enter_context(pq.ParquetWriter(file, table.schema))
            writer.write_table(table)
            done += count
            progress(done, source.rows)


WRITERS: dict[str, Callable[[Sources, Columns, BinaryIO, str, Progress], None]] = {
    ".npy": _write_npy,
    ".parquet": _write_parquet,
}
"""The writer for every suffix."""


@contextlib.contextmanager
def _published(fs: Any, path: str) -> Iterator[BinaryIO]:
    """Open a file for writing that becomes visible only when it is complete."""
    if "file" not in fs.protocol:
        with _uploaded(fs, path) as file:
            yield file
        return
    final = Path(path)
    try:
        final.parent.mkdir(parents=True, exist_ok=True)
    except FileExistsError as error:
        raise NotADirectoryError(*error.args) from None
    with atomic_write(final) as local:
        yield local


@contextlib.contextmanager
def _uploaded(fs: Any, path: str) -> Iterator[BinaryIO]:
    """Open a remote file for writing; if that fails, what was sent doesn't become a file.

    A store that shows a file while it is written, such as memory, then has none.
    """
    file = fs.open(path, "wb")
    try:
        yield cast(BinaryIO, file)
        file.close()
    except BaseException:
        with contextlib.suppress(Exception):  # the first error says what went wrong
            _abandon(fs, path, file)
        raise


def _abandon(fs: Any, path: str, file: Any) -> None:
    if isinstance(file, AbstractBufferedFile):
        # Closing it, also by its destructor, would publish what was written so far.
        file.closed = True
        file.discard()
    else:
        file.close()
        fs.rm_file(path)
