"""Existing Zarr arrays and groups, version 2 or 3, and corpora.

Zarr returns zeros for chunks that were never written, so an array with such chunks is refused. A
local Zarr with symbolic links to files outside its folder is refused, too.
"""

from __future__ import annotations

import contextlib
import itertools
import math
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from latentscale.array_types import Int64Array
from latentscale_pipeline.corpus.corpus import Corpus, is_unfinished, open_corpus
from latentscale_pipeline.corpus.formats.container import STRINGS, Container, Field
from latentscale_pipeline.corpus.formats.file import BLOCK_BYTES, File, file_errors
from latentscale_pipeline.corpus.manifest import MANIFEST_KEY
from latentscale_pipeline.errors import BadInput, first_line
from latentscale_pipeline.storage.objects import ObjectStore

if TYPE_CHECKING:  # it takes a third of a second to import, and most sources are other files
    import zarr

DOCUMENTS = ("zarr.json", ".zarray", ".zgroup")
"""A folder with any of these is a Zarr."""

_NEVER_WRITTEN = 2**64 - 1


@dataclass(frozen=True)
class Zarr(Container):
    """An existing Zarr; its fields are named by the arrays' paths in the group."""

    path: str
    fields: tuple[Field, ...]
    file: File
    single: bool = False

    def locate(self, field: Field) -> str:
        """Return the path of an array."""
        return f"{self.path}/{field.name}".rstrip("/")

    def check(self, field: Field) -> None:
        """Refuse an array with chunks that were never written; Zarr would read them as zeros."""
        with _decoding(self.path):
            array, sizes = self._array(field), ObjectStore(self.file.address).sizes()
            prefix = f"{field.name}/" if field.name else ""
            grid = array.shards or array.chunks
            counts = [math.ceil(size / cut) for size, cut in zip(array.shape, grid, strict=True)]
            for place in itertools.product(*(range(count) for count in counts)):
                key = prefix + array.metadata.encode_chunk_key(place)
                what = ""
                if not sizes.get(key):
                    what = "is empty" if key in sizes else "was never written"
                    what += f" and would be read as {_filled(array)}"
                elif absent := self._absent_chunks(array, place, key):
                    what = f"lacks {absent} of its chunks, which would be read as {_filled(array)}"
                if what:
                    first = place[0] * grid[0]
                    rows = f"rows {first} to {min(first + grid[0], array.shape[0]) - 1}"
                    raise BadInput(
                        f"{key} ({rows}) {what}; write it again, or write the array with "
                        "write_empty_chunks"
                    )

    def blocks(self, field: Field, start: int, stop: int) -> Iterator[npt.NDArray[Any]]:
        """Yield rows of one array, in whole shards (or chunks), several together if small."""
        with _decoding(self.locate(field)):
            array = self._array(field)
            whole = max(1, (array.shards or array.chunks)[0])
            row_bytes = max(1, array.dtype.itemsize * math.prod(array.shape[1:]))
            at_once = whole * max(1, BLOCK_BYTES // (whole * row_bytes))
            while start < stop:
                end = min(stop, (start // at_once + 1) * at_once)
                block = np.asarray(array[start:end])
                yield block.astype(STRINGS) if field.dtype.kind == "T" else block
                start = end

    def _array(self, field: Field) -> zarr.Array[Any]:
        return _arrays(self.file)[field.name]

    def _absent_chunks(self, array: zarr.Array[Any], place: tuple[int, ...], key: str) -> int:
        """Count the chunks of one shard that were never written, according to its index."""
        from zarr.codecs import BytesCodec, Crc32cCodec, ShardingCodec

        codecs = getattr(array.metadata, "codecs", ())
        codec = codecs[0] if codecs else None
        if not (
            isinstance(codec, ShardingCodec)
            and [type(step) for step in codec.index_codecs]
            in ([BytesCodec, Crc32cCodec], [BytesCodec])
        ):
            return 0
        encoding, *checksum = codec.index_codecs
        assert isinstance(encoding, BytesCodec)  # noqa: S101  (see above)
        order = ">" if _option(encoding.endian) == "big" else "<"
        shard, chunk = array.shards or array.chunks, array.chunks
        grid = [whole // part for whole, part in zip(shard, chunk, strict=True)]
        used = tuple(
            math.ceil(min(size - at * whole, whole) / part)
            for size, at, whole, part in zip(array.shape, place, shard, chunk, strict=True)
        )
        entries = 2 * math.prod(grid)
        shard_path = f"{self.file.path}/{key}"
        size = 8 * entries + 4 * len(checksum)
        at_end = _option(codec.index_location) == "end"
        read = self.file.fs.tail if at_end else self.file.fs.head
        index = np.frombuffer(bytes(read(shard_path, size))[: 8 * entries], f"{order}u8")
        if len(index) != entries:
            return math.prod(used)
        starts = index[::2].reshape(grid)[tuple(slice(count) for count in used)]
        return int(np.count_nonzero(starts == _NEVER_WRITTEN))


def _option(member: Any) -> str:
    """Return an option of a codec, which is an enum member in older versions of Zarr."""
    return str(getattr(member, "value", member))


def _filled(array: zarr.Array[Any]) -> str:
    """Return what Zarr reads where nothing was written."""
    return "zeros" if array.fill_value in {0, None} else str(array.fill_value)


@dataclass(frozen=True)
class CorpusRows(Container):
    """Rows of a corpus with their ids, labels and weights; shards are checked on reading.

    ``rows`` are the stored numbers of the chosen rows, ascending; None means all.
    """

    path: str
    fields: tuple[Field, ...]
    corpus: Corpus
    rows: Int64Array | None = None

    def locate(self, field: Field) -> str:
        """Return the corpus' path for the vectors, and an array's path for other fields."""
        return self.path if field.name == "vectors" else f"{self.path}/{field.name}"

    def blocks(self, field: Field, start: int, stop: int) -> Iterator[npt.NDArray[Any]]:
        """Yield rows; every shard that holds some of them is read once."""
        if self.rows is None:
            yield from self.corpus.read_blocks(field.name, start, stop)
            return
        first = 0
        for shard in self.corpus.manifest.array(field.name).shards:
            low, high = np.searchsorted(self.rows, [first, first + shard.rows])
            low, high = max(int(low), start), min(int(high), stop)
            if low < high:
                [held] = self.corpus.read_blocks(field.name, first, first + shard.rows)
                yield held[self.rows[low:high] - first]
            first += shard.rows


def corpus_rows(corpus: Corpus, rows: Int64Array | None = None) -> CorpusRows:
    """Return all or chosen rows of a corpus as a container."""
    count = corpus.n if rows is None else len(rows)
    if corpus.excluded:
        rows = corpus.stored_rows(np.arange(corpus.n) if rows is None else rows)
    fields = [Field("vectors", (count, corpus.d), corpus.dtype)]
    for name, array in corpus.manifest.arrays.items():
        dtype = STRINGS if array.dtype == "string" else np.dtype(array.dtype)
        fields.append(Field(name, (count,), dtype))
    return CorpusRows(corpus.url, tuple(fields), corpus, rows)


def is_zarr(file: File) -> bool:
    """Return whether a folder is a Zarr, by its suffix or its documents."""
    # A damaged corpus may lack its Zarr documents. It must be refused, not read as a plain folder.
    return file.path.endswith(".zarr") or any(
        file.fs.exists(f"{file.path}/{document}") for document in DOCUMENTS
    )


def open_zarr(file: File) -> Container:
    """Open a Zarr: read the metadata of its arrays, or the manifest of a corpus."""
    store = ObjectStore(file.address)
    if store.exists(MANIFEST_KEY):
        return corpus_rows(open_corpus(store.url))
    if is_unfinished(store):
        raise BadInput(
            f"{file.name}: an unfinished corpus (its ingest was interrupted); run it again"
        )
    if file.is_local:
        _check_links(Path(file.path))
    with _decoding(file.name):
        fields = tuple(
            Field(name, array.shape, STRINGS if array.dtype.kind in "TO" else array.dtype)
            for name, array in _arrays(file).items()
        )
    return Zarr(file.name, fields, file, single=[field.name for field in fields] == [""])


def _arrays(file: File) -> dict[str, zarr.Array[Any]]:
    """Return the arrays of an existing Zarr by their paths; the path of a single array is empty."""
    import zarr
    from zarr.storage import FsspecStore, LocalStore

    address = file.address
    store = LocalStore(address, read_only=True) if file.is_local else FsspecStore.from_url(address)
    # Consolidated metadata may be outdated, so it isn't used.
    node = zarr.open(store, mode="r", use_consolidated=False)
    if isinstance(node, zarr.Array):
        return {"": node}
    members = sorted(node.members(max_depth=None))
    return {name: member for name, member in members if isinstance(member, zarr.Array)}


def _check_links(root: Path) -> None:
    inside = os.path.realpath(root)
    for folder, folders, files in os.walk(root):
        for name in (*folders, *files):
            path = Path(folder, name)
            if path.is_symlink():
                real = os.path.realpath(path)
                if os.path.commonpath([inside, real]) != inside:
                    raise BadInput(
                        f"{path}: a link that leads out of {root}; replace it with the file"
                    )


@contextlib.contextmanager
def _decoding(where: str) -> Iterator[None]:
    """Convert errors of Zarr and its codecs, which raise many types, to :class:`BadInput`."""
    with file_errors(where):
        try:
            yield
        except FileNotFoundError as error:
            raise BadInput(
                f"{where}: not a readable Zarr (it has no metadata document); write it again"
            ) from error
        except BadInput as error:
            raise BadInput(f"{where}: {error}") from error
        except (PermissionError, ConnectionError, TimeoutError):
            raise
        except Exception as error:
            raise BadInput(
                f"{where}: not a readable Zarr ({type(error).__name__}: {first_line(error)}); "
                "write it again"
            ) from error
