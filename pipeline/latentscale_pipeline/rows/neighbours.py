"""The neighbours of a finished job's rows, as other tools take them.

A job stores them in the order of the corpus or, of many rows, by blocks in the order in which it
searched. Here they are put in the order of the corpus.
"""

from __future__ import annotations

import contextlib
import errno
import os
import tempfile
import zipfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

from latentscale_pipeline.corpus.export import check_free, new_file, remove_file
from latentscale_pipeline.errors import BadInput
from latentscale_pipeline.measures.base import Role
from latentscale_pipeline.measures.finished_job import FinishedJob
from latentscale_pipeline.measures.registry import MEASURES
from latentscale_pipeline.rows.columns import open_array, open_measured
from latentscale_pipeline.storage.urls import strip_credentials

Array = NDArray[Any]

OTHER_FILES = (
    ".npy",
    ".csv",
    ".tsv",
    ".txt",
    ".json",
    ".jsonl",
    ".parquet",
    ".mtx",
    ".h5",
    ".zarr",
)
"""Suffixes of files, which a folder is unlikely to have."""


@dataclass(frozen=True)
class NeighbourLists:
    """The nearest rows of every row, as a job stored them.

    Attributes
    ----------
    job : FinishedJob
        The job.
    role : str
        The corpus whose rows these are.
    prefix : str
        What the names of their arrays begin with.
    blocks : sequence of str
        What they end with, one for each block; one empty string for those in the corpus's order.
    """

    job: FinishedJob
    role: Role
    prefix: str
    blocks: tuple[str, ...]

    @property
    def n(self) -> int:
        """Number of rows."""
        return self.job.corpora[self.role].n

    def read(
        self, *, with_self: bool = False, create: Callable[..., Array] = np.empty
    ) -> tuple[Array, Array]:
        """Return neighbours and distances in the order of the corpus.

        Parameters
        ----------
        with_self : bool
            Name every row as its own first neighbour, at distance 0.
        create : callable
            Makes an array of a shape and a ``dtype``.

        Returns
        -------
        tuple of ndarray, shape (n, k), or (n, k + 1) with the rows themselves
            Row numbers, int32 where they fit; distances in float32 by the metric of the measure,
            nearest first.
        """
        first = int(with_self)
        shape = (self.n, self._open("neighbours", self.blocks[0]).shape[1] + first)
        fitting = np.int32 if self.n <= np.iinfo(np.int32).max else np.int64
        indices, distances = create(shape, dtype=fitting), create(shape, dtype=np.float32)
        row_of = self._order(create)
        for block in self.blocks:
            rows = slice(None) if row_of is None else self._open("rows", block)
            found = self._open("neighbours", block)
            indices[rows, first:] = found if row_of is None else row_of[found]
            distances[rows, first:] = self._open("distances", block)
        if with_self:
            indices[:, 0] = np.arange(self.n, dtype=fitting)
            distances[:, 0] = 0
        return indices, distances

    def _order(self, create: Callable[..., Array]) -> Array | None:
        """Return the row at every position of the blocks; None if these are in order."""
        if self.blocks == ("",):
            return None
        row_of, done = create((self.n,), dtype=np.int64), 0
        for block in self.blocks:
            rows = self._open("rows", block)
            row_of[done : done + len(rows)] = rows
            done += len(rows)
        return row_of

    def _open(self, kind: str, block: str) -> Array:
        return open_array(self.job, f"{self.prefix}{kind}{block}")


@dataclass(frozen=True)
class Written:
    """What was written.

    Attributes
    ----------
    files : sequence of str
        The files.
    rows, neighbours : int
        Number of rows, and of neighbours of each.
    """

    files: Sequence[str]
    rows: int
    neighbours: int


def find_neighbours(job: FinishedJob, role: Role) -> NeighbourLists:
    """Find the neighbours of the rows of a corpus of a finished job.

    Raises
    ------
    BadInput
        If the job hasn't that corpus, or hasn't stored the neighbours and how far they are.
    """
    if role not in job.corpora:
        raise BadInput(f"{job.url}: the job has no {role}")
    finding = [name for name, measure in MEASURES.items() if measure.finds_neighbours]
    for name in finding:
        prefix = f"{name}/{role}/"
        named = [array for array in job.results.arrays if array.startswith(prefix)]
        if any(array.startswith(f"{prefix}distances") for array in named):
            start = f"{prefix}neighbours"
            blocks = sorted(array[len(start) :] for array in named if array.startswith(start))
            return NeighbourLists(job, role, prefix, tuple(blocks))
        if named:
            raise BadInput(
                f"{job.url}: the job was computed by an earlier version, which didn't keep how far "
                "neighbours are; run it again"
            )
    raise BadInput(
        f"{job.url}: no measure of this job found the neighbours of every row; run it again with "
        f"one of: {', '.join(finding)}"
    )


def write_neighbours(
    lists: NeighbourLists,
    target: str,
    *,
    with_self: bool = False,
    with_ids: bool = True,
    overwrite: bool = False,
) -> Written:
    """Write neighbours and distances in the order of the corpus, with its ids.

    Parameters
    ----------
    lists : NeighbourLists
        The neighbours.
    target : str
        Path or fsspec URL. One that ends in ``.npz`` is a sparse matrix as
        :func:`scipy.sparse.load_npz` reads it, whose rows have the distances of their neighbours,
        with ids as ``ids``. Any other one is a folder, for ``indices.npy`` and ``distances.npy``,
        each of shape (n, k), and ``ids.npy``.
    with_self : bool
        Name every row as its own first neighbour, at distance 0.
    with_ids : bool
        Write the ids, if the corpus has some. Otherwise it isn't needed.
    overwrite : bool
        Replace existing files.

    Raises
    ------
    BadInput
        If a file exists already, the corpus isn't there, or nothing can be written.

    Notes
    -----
    Memory is 8 bytes a row for a matrix. Temporary files take ``8 (k + 2)`` bytes a row, and those
    of ids 4 bytes for each character of the longest.
    """
    matrix = target.lower().endswith(".npz")
    if target.lower().endswith(OTHER_FILES):
        raise BadInput(
            f"{strip_credentials(target)}: a graph is one .npz file, or a folder of arrays; "
            "use a path that ends in .npz, or a folder"
        )
    place = target.rstrip("/")
    files = [target] if matrix else [f"{place}/{name}.npy" for name in ("indices", "distances")]
    ids_file = f"{place}/ids.npy"
    for path in files if matrix else [*files, ids_file]:
        check_free(path, overwrite=overwrite)
    with tempfile.TemporaryDirectory() as folder, _room_in(folder):
        create = _MappedArrays(Path(folder))
        ids = _read_ids(lists, create) if with_ids else None
        indices, distances = lists.read(with_self=with_self, create=create)
        count = indices.shape[1] - int(with_self)
        if matrix:
            with new_file(target, {".npz": _write_matrix}, overwrite=overwrite) as (file, write):
                write(file, indices, distances, ids)
            return Written(files, lists.n, count)
        arrays = [indices, distances]
        if ids is not None:
            files.append(ids_file)
            arrays.append(ids)
        with contextlib.ExitStack() as complete:
            for path, array in zip(files, arrays, strict=True):
                new = new_file(path, {".npy": np.save}, overwrite=overwrite)
                file, save = complete.enter_context(new)
                save(file, array)
            # Files of another graph must not stand beside those of this one, even after a kill.
            for path in {*files, ids_file} if overwrite else ():
                remove_file(path)
        return Written(files, lists.n, count)


def _write_matrix(file: BinaryIO, indices: Array, distances: Array, ids: Array | None) -> None:
    n, k = indices.shape
    starts = np.arange(0, n * k + 1, k, dtype=np.int64)
    kind = np.int32 if n * k <= np.iinfo(np.int32).max else np.int64
    arrays = {
        "format": np.array(b"csr"),
        "shape": np.array([n, n]),
        "indptr": starts.astype(kind),
        "indices": indices.reshape(-1),
        "data": distances.reshape(-1),
    }
    with zipfile.ZipFile(file, "w", allowZip64=True) as archive:
        for name, array in (arrays if ids is None else {**arrays, "ids": ids}).items():
            with archive.open(f"{name}.npy", "w", force_zip64=True) as member:
                np.lib.format.write_array(member, array, allow_pickle=False)


def _read_ids(lists: NeighbourLists, create: _MappedArrays) -> Array | None:
    """Return the ids of all rows, as text of one width; None if the corpus has none."""
    try:
        corpus = open_measured(lists.job, lists.role)
    except BadInput as error:
        raise BadInput(f"{error}; or leave the ids out, by --without-ids") from None
    if "ids" not in corpus.manifest.arrays:
        return None
    longest = max(len(text) for block in corpus.companion_blocks("ids") for text in block)
    ids, done = create((corpus.n,), dtype=f"<U{max(longest, 1)}"), 0
    for block in corpus.companion_blocks("ids"):
        ids[done : done + len(block)] = block
        done += len(block)
    return ids


@dataclass
class _MappedArrays:
    """Makes arrays in files of a folder, whose room is taken at once."""

    folder: Path
    made: int = 0

    def __call__(self, shape: tuple[int, ...], dtype: Any) -> Array:
        self.made += 1
        path = self.folder / f"{self.made}.npy"
        array = np.lib.format.open_memmap(path, "w+", np.dtype(dtype), shape)
        if hasattr(os, "posix_fallocate"):
            # Writing to a mapped file for which the disk has no room would end the process.
            with path.open("r+b") as file:
                try:
                    os.posix_fallocate(file.fileno(), 0, path.stat().st_size)
                except OSError as error:
                    if error.errno not in {errno.EOPNOTSUPP, errno.EINVAL}:
                        raise
        return array


@contextlib.contextmanager
def _room_in(folder: str) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        if error.errno not in {errno.ENOSPC, errno.EDQUOT}:
            raise
        raise BadInput(
            f"{folder}: no room for the temporary files; set TMPDIR to a folder on a larger disk"
        ) from None
