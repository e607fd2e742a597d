"""The manifest: the list of all objects of a corpus.

It is ``manifest.json`` at the corpus' root, and is written last: a folder without it isn't a corpus
yet. It lists every object with its size and XXH3-64 checksum, so that a missing, truncated or
changed shard is refused on reading. It contains a checksum of itself.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, replace
from typing import Any

import xxhash
from pydantic import TypeAdapter, ValidationError

from latentscale_pipeline.corpus.shards import BLOCK_ROWS, Layout
from latentscale_pipeline.errors import BadInput

SCHEMA = "latentscale.corpus/1"
MANIFEST_KEY = "manifest.json"
COMPANION_ROWS = 1 << 18
"""Most rows of a shard of ids, labels or weights."""

APPENDED = "appended"
"""Folder of appended rows, with one Zarr group for each append."""


@dataclass(frozen=True)
class StoredObject:
    """An object of the corpus: key below the root, size in bytes, XXH3-64 as 16 hex digits."""

    key: str
    size: int
    xxh3: str

    def difference(self, data: bytes | bytearray) -> str | None:
        """Return how the data differ from this entry, or None if they match."""
        if len(data) == self.size:
            return None if checksum(data) == self.xxh3 else "its checksum differs (bytes changed)"
        if not data:
            return f"it is empty instead of {self.size} bytes long"
        if len(data) < self.size:
            return f"it is truncated: {len(data)} of {self.size} bytes"
        return f"it has {len(data)} bytes instead of {self.size}"


@dataclass(frozen=True)
class Shard(StoredObject):
    """A shard: a stored object with its number of rows."""

    rows: int


@dataclass(frozen=True)
class Cut:
    """Shard and chunk sizes from one shard on; every append adds a cut.

    Attributes
    ----------
    first : int
        Index of the first shard with these sizes.
    shard_rows, chunk_rows : int
        Rows of each shard except the last, and of a chunk inside it.
    """

    first: int
    shard_rows: int
    chunk_rows: int


@dataclass(frozen=True)
class StoredArray:
    """One array of the corpus: its dtype, its shard and chunk sizes, and its shards in order.

    ``appended`` has the sizes of the shards that were added later, one cut for each append. Each
    append is a separate Zarr array.
    """

    dtype: str
    shard_rows: int
    chunk_rows: int
    shards: tuple[Shard, ...]
    appended: tuple[Cut, ...] = ()

    @property
    def rows(self) -> int:
        """Number of rows in all shards."""
        return sum(shard.rows for shard in self.shards)

    @property
    def cuts(self) -> tuple[Cut, ...]:
        """All cuts, in the order of the shards."""
        return Cut(0, self.shard_rows, self.chunk_rows), *self.appended

    def cut(self, shard: int) -> Cut:
        """Return the cut that one shard belongs to."""
        return next(cut for cut in reversed(self.cuts) if cut.first <= shard)

    def grown(self, added: StoredArray) -> StoredArray:
        """Return the array followed by the shards of another one."""
        cut = Cut(len(self.shards), added.shard_rows, added.chunk_rows)
        return replace(self, shards=self.shards + added.shards, appended=(*self.appended, cut))


@dataclass(frozen=True)
class CountedRows:
    """How many rows something is true of, and the first of them (None if there is none)."""

    count: int
    first: int | None


@dataclass(frozen=True)
class DroppedRows:
    """Rows left out of the corpus because they held NaN or infinity.

    Attributes
    ----------
    count : int
        Number of dropped rows.
    rows : tuple of int
        Row numbers of the first 1000 of them, among all source rows.
    all_rows : StoredObject or None
        An int64 ``.npy`` with all row numbers, if there are more than 1000.
    """

    count: int
    rows: tuple[int, ...]
    all_rows: StoredObject | None


@dataclass(frozen=True)
class SourceRecord:
    """A source as it was read: path without credentials, number of rows, original dtype."""

    path: str
    rows: int
    dtype: str


@dataclass(frozen=True)
class Manifest:
    """The description of a corpus: sizes, shards, fingerprint and sources.

    Attributes
    ----------
    n, d : int
        Number of rows and dimensions of the vectors.
    vectors : StoredArray
        The stored vectors (``float16`` or ``float32``).
    arrays : dict
        The row-aligned arrays: ``ids`` and ``labels`` (strings), ``weights`` (float64), as far as
        the corpus has them.
    documents : tuple of StoredObject
        Zarr's metadata documents.
    fingerprint : str
        See :mod:`latentscale_pipeline.corpus.fingerprint`.
    zero_rows : CountedRows
        Rows that are all zero.
    repeated_ids : CountedRows or None
        Rows with the id of an earlier row; None without ids, or if they weren't compared.
    dropped : DroppedRows
        Source rows that were left out.
    sources : tuple of SourceRecord
        The sources, in order.
    created : str
        Time at which the ingest finished, ISO 8601 in UTC.
    version : str
        Version of latentscale that wrote the manifest.
    digests : StoredObject or None
        The block digests that the fingerprint is computed from; only after an append.
    left_out : tuple of str
        Why rows of a larger corpus were left out, as rows near others. Then the corpus isn't a
        sample of its source in this respect.
    """

    n: int
    d: int
    vectors: StoredArray
    arrays: dict[str, StoredArray]
    documents: tuple[StoredObject, ...]
    fingerprint: str
    zero_rows: CountedRows
    dropped: DroppedRows
    sources: tuple[SourceRecord, ...]
    created: str
    version: str
    digests: StoredObject | None = None
    repeated_ids: CountedRows | None = None
    left_out: tuple[str, ...] = ()

    def array(self, name: str) -> StoredArray:
        """Return the stored array ``vectors``, ``ids``, ``labels`` or ``weights``."""
        return self.vectors if name == "vectors" else self.arrays[name]

    def layout(self, name: str, shard: int = 0) -> Layout:
        """Return the layout of the Zarr array that contains a shard of the named array."""
        array = self.array(name)
        cut = array.cut(shard)
        row_shape = (self.d,) if name == "vectors" else ()
        return Layout(array.rows, row_shape, array.dtype, cut.shard_rows, cut.chunk_rows)

    def objects(self) -> list[StoredObject]:
        """List every object of the corpus except the manifest itself."""
        all_rows = self.dropped.all_rows
        return [
            *self.documents,
            *self.vectors.shards,
            *(shard for array in self.arrays.values() for shard in array.shards),
            *([all_rows] if all_rows else []),
            *([self.digests] if self.digests else []),
        ]

    def to_bytes(self) -> bytes:
        """Return the JSON document, with its own checksum as the last entry."""
        fields = asdict(self)
        vectors = fields.pop("vectors")
        if not self.left_out:
            del fields["left_out"]
        document = {
            "schema": SCHEMA,
            "fingerprint": fields.pop("fingerprint"),
            "n": fields.pop("n"),
            "d": fields.pop("d"),
            **vectors,
            **fields,
        }
        document["checksum"] = checksum(_canonical(document))
        return (json.dumps(document, indent=1, ensure_ascii=False) + "\n").encode()


_MANIFEST = TypeAdapter(Manifest)


def read_manifest(data: bytes, where: str) -> Manifest:
    """Parse a manifest, and check its checksum and its consistency.

    Parameters
    ----------
    data : bytes
        The stored document.
    where : str
        Its path or URL, for messages.

    Raises
    ------
    BadInput
        If it has another schema, is damaged, or is inconsistent.
    """
    try:
        document = json.loads(data)
        schema = document.pop("schema")
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise _damaged(where, "it isn't a corpus manifest") from error
    if schema != SCHEMA:
        raise BadInput(
            f"{where}: the manifest has schema {schema!r}, but this version reads {SCHEMA!r}; use "
            "the version of latentscale that wrote it, or ingest again"
        )
    stated = document.pop("checksum", None)
    if stated != checksum(_canonical({"schema": SCHEMA, **document})):
        raise _damaged(where, "its own checksum differs")
    try:
        manifest = _MANIFEST.validate_python({**document, "vectors": document})
    except ValidationError as error:
        first = error.errors()[0]
        entry = ".".join(map(str, first["loc"]))
        problem = f"an entry is missing or malformed ({entry}: {first['msg']})"
        raise _damaged(where, problem) from error
    fault = _inconsistency(manifest)
    if fault:
        raise _damaged(where, fault)
    return manifest


def checksum(data: bytes | bytearray | memoryview) -> str:
    """Return the XXH3-64 of bytes as 16 hexadecimal characters."""
    return xxhash.xxh3_64_hexdigest(data)


def _canonical(document: dict[str, Any]) -> bytes:
    return json.dumps(document, sort_keys=True, separators=(",", ":")).encode()


def _damaged(where: str, what: str) -> BadInput:
    return BadInput(
        f"{where}: damaged manifest: {what}; restore it, or ingest again with --overwrite"
    )


def _inconsistency(manifest: Manifest) -> str | None:
    if manifest.n < 1 or manifest.d < 1:
        return "it states no rows or no dimensions"
    if manifest.vectors.dtype not in {"float16", "float32"}:
        return f"it states the dtype {manifest.vectors.dtype!r}"
    for name, array in {"vectors": manifest.vectors, **manifest.arrays}.items():
        fault = _wrong_cut(name, array, manifest.n)
        if fault:
            return fault
    return None


def _wrong_cut(name: str, array: StoredArray, rows: int) -> str | None:
    """Return what is wrong with the row counts of an array's shards, or None."""
    wrong_sum = f"the shards of {name} don't add up to {rows} rows"
    ends = [*(cut.first for cut in array.appended), len(array.shards)]
    for cut, end in zip(array.cuts, ends, strict=True):
        if min(cut.shard_rows, cut.chunk_rows) < 1:
            return f"the shards of {name} have no rows"
        if cut.shard_rows % BLOCK_ROWS or cut.shard_rows % cut.chunk_rows:
            return f"the shards of {name} can't have {cut.shard_rows} rows"
        held = [shard.rows for shard in array.shards[cut.first : end]]
        whole = all(count == cut.shard_rows for count in held[:-1])
        if not held or not whole or not 0 < held[-1] <= cut.shard_rows:
            return wrong_sum
    return None if array.rows == rows else wrong_sum
