"""The files a corpus is made from: found, ordered, and checked before a row is read.

Arguments are taken in the order given. A folder stands for the files below it, and a glob for what
it matches, each in natural order (``img_2`` before ``img_10``). What a file is, is found from its
first bytes: ``.npy``, ``.npz``, an existing Zarr array or group, or another corpus. Opening reads
headers only; rows are read once, in order, in blocks of a few MiB (a Zarr in blocks of its own
shards).
"""

from __future__ import annotations

import contextlib
import io
import json
import re
import zipfile
import zlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO, cast

import numpy as np
import numpy.typing as npt
import xxhash
from fsspec.implementations.local import LocalFileSystem

from latentscale_pipeline.addresses import open_url
from latentscale_pipeline.corpus import npy, zarr_format
from latentscale_pipeline.corpus.corpus import is_unfinished, open_corpus
from latentscale_pipeline.corpus.manifest import MANIFEST_KEY
from latentscale_pipeline.errors import BadInput, Incomplete
from latentscale_pipeline.objects import ObjectStore, again_while_away, strip_credentials

ARRAY_SUFFIXES = (".npy", ".npz", ".zarr")
"""Entries of a folder that must be readable; others are taken only if their content is known."""

_HEAD_BYTES = 16384  # numpy refuses headers of more than 10 000 characters
_CHANGES = ("ETag", "etag", "mtime", "LastModified")  # what tells that a file was changed
_ZIP_MAGIC = (b"PK\x03\x04", b"PK\x05\x06")
_STORE_LIBRARIES = {"botocore", "aiohttp", "google", "azure"}  # they raise kinds of their own
_ZARR_DOCUMENTS = ("zarr.json", ".zarray", ".zgroup")


@dataclass(frozen=True)
class Source:
    """Rows from one file, archive member, Zarr array or corpus.

    Attributes
    ----------
    path : str
        Path or URL without credentials, for records and messages.
    rows, d : int
        Its shape.
    dtype : numpy dtype
        Of the values as they are stored there.
    blocks : callable
        ``blocks()`` yields the rows in order, once.
    """

    path: str
    rows: int
    d: int
    dtype: np.dtype[Any]
    blocks: Callable[[], Iterator[npt.NDArray[Any]]]


@dataclass(frozen=True)
class Sources:
    """All sources of a corpus in order; every one has rows of ``d`` dimensions.

    ``skipped`` names the files in folders that are none of the known formats.
    """

    items: tuple[Source, ...]
    skipped: tuple[str, ...]

    @property
    def rows(self) -> int:
        """Rows of all sources together."""
        return sum(source.rows for source in self.items)

    @property
    def d(self) -> int:
        """Dimensions."""
        return self.items[0].d


@dataclass(frozen=True)
class _Entry:
    """A file or folder that was found: its file system, and what a listing says of it."""

    fs: Any
    path: str
    is_folder: bool
    size: int

    @staticmethod
    def of(fs: Any, about: dict[str, Any]) -> _Entry:
        path = str(about["name"]).rstrip("/")
        return _Entry(fs, path, about["type"] == "directory", int(about["size"] or 0))

    @property
    def is_local(self) -> bool:
        return isinstance(self.fs, LocalFileSystem)

    @property
    def name(self) -> str:
        return (
            self.path if self.is_local else strip_credentials(self.fs.unstrip_protocol(self.path))
        )

    @property
    def address(self) -> str:
        return self.path if self.is_local else str(self.fs.unstrip_protocol(self.path))

    def open(self) -> BinaryIO:
        return ObjectStore(self.address).open()

    def head(self) -> bytes:
        """Return the first bytes, enough for any header: one small request in a store."""
        if self.is_local:
            with self.open() as file:
                return file.read(_HEAD_BYTES)
        return ObjectStore(self.address).read_range("", 0, min(_HEAD_BYTES, self.size))


@again_while_away
def open_sources(patterns: Sequence[str], target: str | None = None) -> Sources:
    """Find the sources and read their headers.

    Parameters
    ----------
    patterns : sequence of str
        Files, globs, folders, Zarr arrays or groups, corpora; paths or fsspec URLs.
    target : str, optional
        Where results go: what folders and globs find there is no source.

    Raises
    ------
    BadInput
        When something isn't there, can't be read, or can't be a source: one line that names it.
    """
    items: list[Source] = []
    skipped: list[str] = []
    for pattern in patterns:
        found = _find(pattern, target)
        for entry in found:
            source = _open(entry, must=len(found) == 1 or entry.path.endswith(ARRAY_SUFFIXES))
            if source is None:
                skipped.append(entry.name)
            else:
                items.append(source)
    if not items:
        raise BadInput(
            f"{' '.join(patterns) or 'no source given'}: no .npy, .npz or Zarr among the "
            f"{len(skipped)} files there; name the files that hold the vectors"
        )
    for source in items[1:]:
        if source.d != items[0].d:
            raise BadInput(
                f"{source.path}: rows of {source.d} dimensions, but {items[0].path} has "
                f"{items[0].d}; ingest them into separate corpora"
            )
    return Sources(tuple(items), tuple(skipped))


@again_while_away
def source_key(patterns: Sequence[str], target: str | None = None) -> str:
    """Name the content of sources without reading it: 32 hexadecimal characters.

    It hashes path, size and modification time (or etag) of every file, in order; the arguments are
    those of :func:`open_sources`.
    """
    whole = xxhash.xxh3_128()
    for pattern in patterns:
        for entry in _find(pattern, target):
            with reaching(entry.name):
                files = entry.fs.find(entry.path, detail=True)
            for path, about in sorted(files.items()):
                changed = next((str(about[key]) for key in _CHANGES if key in about), None)
                file = _Entry.of(entry.fs, about | {"name": path})
                whole.update(json.dumps([file.name, file.size, changed]).encode() + b"\n")
    return whole.hexdigest()


def natural_order(path: str) -> list[tuple[int, int, str]]:
    """Return a sort key in which runs of digits count as numbers, folder by folder."""
    parts = re.findall(r"\d+|/|[^\d/]+", path)
    return [
        (0, 0, "") if part == "/" else (1, int(part), part) if part.isdecimal() else (2, 0, part)
        for part in parts
    ]


def _find(pattern: str, target: str | None) -> list[_Entry]:
    """List the files and Zarr folders that one argument stands for, in order."""
    results = ObjectStore(target).url if target else None
    shown = strip_credentials(pattern)
    with reaching(shown):
        fs, path = open_url(pattern)
        fs.invalidate_cache()  # a remembered listing may be older than the files
        path = path.rstrip("/") or "/"
        if fs.exists(path):
            given = [_Entry.of(fs, fs.info(path))]
        elif any(sign in path for sign in "*?["):
            matches = fs.glob(path, detail=True)
            matching = {str(match).rstrip("/"): about for match, about in matches.items()}
            entries = [_Entry.of(fs, matching[m]) for m in sorted(matching, key=natural_order)]
            # A folder that matches stands for all that is below it.
            given = [
                entry
                for entry in entries
                if entry.name != results and not any(a in matching for a in _above(entry.path))
            ]
            if not matching:
                raise BadInput(f"{shown}: no file matches; check the pattern")
        else:
            raise BadInput(f"{shown}: no such file or folder; check the path")
        found = [entry for item in given for entry in _below(item, results)]
    if not found:
        raise BadInput(f"{shown}: an empty folder; name the files that hold the vectors")
    return found


def _above(path: str) -> list[str]:
    """Return the paths of all folders that a path lies in."""
    parts = path.split("/")
    return ["/".join(parts[:count]) for count in range(1, len(parts))]


def _below(entry: _Entry, results: str | None) -> list[_Entry]:
    """Return the entry itself, or what a plain folder holds at any depth."""
    if not entry.is_folder or _is_zarr(entry):
        return [entry]
    listed = [_Entry.of(entry.fs, about) for about in entry.fs.ls(entry.path, detail=True)]
    return [
        found
        for child in sorted(listed, key=lambda child: natural_order(child.path))
        if child.path != entry.path
        and child.name != results
        and not child.path.rsplit("/", 1)[-1].startswith(".")
        for found in _below(child, results)
    ]


def _is_zarr(entry: _Entry) -> bool:
    # A corpus that has lost its Zarr documents is still a corpus, and is refused as one.
    return entry.path.endswith(".zarr") or any(
        entry.fs.exists(f"{entry.path}/{document}") for document in _ZARR_DOCUMENTS
    )


def _open(entry: _Entry, must: bool) -> Source | None:
    """Open one file or Zarr by its content; None if it may be left out, being unknown."""
    with reaching(entry.name):
        if entry.is_folder:
            return _checked(_open_zarr(entry))
        if entry.is_local and not Path(entry.path).is_file():
            raise BadInput(f"{entry.name}: not a regular file; write the vectors to one first")
        start = entry.head()
        if start.startswith(npy.MAGIC):
            return _checked(_open_npy(entry, start))
        if start.startswith(_ZIP_MAGIC):
            return _checked(_open_npz(entry))
    if not must:
        return None
    if not start:
        raise BadInput(f"{entry.name}: an empty file (0 bytes); write it again or leave it out")
    raise BadInput(
        f"{entry.name}: neither .npy, .npz nor Zarr (it begins with {start[:8]!r}); convert it "
        "with numpy.save"
    )


def _checked(source: Source) -> Source:
    if source.dtype.kind not in "fiu":
        raise BadInput(
            f"{source.path}: values of dtype {source.dtype}; vectors must be real numbers (float "
            "or integer), so convert them"
        )
    if not source.d:
        raise BadInput(f"{source.path}: rows of no dimensions (shape {source.rows, 0})")
    if not source.rows:
        raise BadInput(f"{source.path}: no rows (shape {0, source.d}); leave it out")
    return source


def _plane(shape: tuple[int, ...], where: str) -> tuple[int, int]:
    if len(shape) != 2:
        raise BadInput(
            f"{where}: an array of shape {shape}; vectors must be two-dimensional (rows, "
            "dimensions), so reshape it"
        )
    return shape[0], shape[1]


def _open_npy(entry: _Entry, start: bytes) -> Source:
    where = entry.name
    header = npy.read_header(io.BytesIO(start), where)
    rows, d = _plane(header.shape, where)
    npy.check_size(header, entry.size, where)

    def blocks() -> Iterator[npt.NDArray[Any]]:
        with reaching(where), entry.open() as file:
            file.seek(header.offset)
            yield from npy.read_blocks(file, header, where)

    return Source(where, rows, d, header.dtype, blocks)


def _open_npz(entry: _Entry) -> Source:
    where = entry.name
    headers: dict[str, npy.Header] = {}
    with _unpacking(where), entry.open() as file, zipfile.ZipFile(file) as archive:
        for member in archive.namelist():
            with archive.open(member) as packed:
                if cast(io.BufferedReader, packed).peek(8).startswith(npy.MAGIC):
                    with contextlib.suppress(BadInput):
                        headers[member] = npy.read_header(cast(BinaryIO, packed), where)
    names = [
        member
        for member, header in headers.items()
        if len(header.shape) == 2 and header.dtype.kind == "f"
    ]
    if len(names) != 1:
        listed = ", ".join(
            f"{name.removesuffix('.npy')} {header.dtype} {header.shape}"
            for name, header in headers.items()
        )
        what = "several two-dimensional float arrays" if names else "no two-dimensional float array"
        raise BadInput(
            f"{where}: {what} (it holds {listed or 'no array'}); save the vectors in a .npy of "
            "their own"
        )
    member, header = names[0], headers[names[0]]
    where = f"{where}:{member.removesuffix('.npy')}"
    with entry.open() as file, zipfile.ZipFile(file) as archive:
        npy.check_size(header, archive.getinfo(member).file_size, where)

    def blocks() -> Iterator[npt.NDArray[Any]]:
        with (
            _unpacking(where),
            entry.open() as file,
            zipfile.ZipFile(file) as archive,
            archive.open(member) as packed,
        ):
            # Going back in a packed member would unpack it again, so columns are read from memory.
            values = io.BytesIO(packed.read()) if header.fortran_order else packed
            if not header.fortran_order:
                packed.read(header.offset)
            yield from npy.read_blocks(cast(BinaryIO, values), header, where)
            packed.read(1)  # the end of the member: its checksum is compared here

    return Source(where, header.shape[0], header.shape[1], header.dtype, blocks)


def _open_zarr(entry: _Entry) -> Source:
    store = ObjectStore(entry.address)
    if store.exists(MANIFEST_KEY):
        return _open_other_corpus(store)
    if is_unfinished(store):
        raise BadInput(
            f"{entry.name}: an unfinished corpus (its ingest was interrupted); run it again"
        )
    with _decoding(entry.name):
        found = zarr_format.open_existing(entry.address, entry.is_local)
    where = f"{entry.name}/{found.name}".rstrip("/")
    rows, d = _plane(found.shape, where)
    with _decoding(entry.name):
        found.check_written(
            store.sizes(),
            lambda key, count: cast(bytes, entry.fs.tail(f"{entry.path}/{key}", count)),
        )

    def blocks() -> Iterator[npt.NDArray[Any]]:
        with _decoding(where):
            yield from found.blocks()

    return Source(where, rows, d, found.dtype, blocks)


def _open_other_corpus(store: ObjectStore) -> Source:
    corpus = open_corpus(store.url)

    def blocks() -> Iterator[npt.NDArray[Any]]:
        for i in range(corpus.shard_count):
            yield corpus.read_shard(i)

    return Source(corpus.url, corpus.n, corpus.d, corpus.dtype, blocks)


@contextlib.contextmanager
def reaching(where: str) -> Iterator[None]:
    """Turn what may go wrong in reaching a file into one line."""
    try:
        yield
    except FileNotFoundError:
        raise BadInput(f"{where}: no such file or folder; check the path") from None
    except PermissionError as error:
        raise BadInput(f"{where}: permission denied; change its rights or yours") from error
    except OSError as error:
        reason = error.strerror or str(error).splitlines()[0]
        raise Incomplete(
            f"{where}: can't be read ({reason}); run the same command again once this is mended"
        ) from error
    except Exception as error:
        if type(error).__module__.partition(".")[0] not in _STORE_LIBRARIES:
            raise
        raise Incomplete(
            f"{where}: can't be reached ({str(error).splitlines()[0]}); check address and "
            "credentials, then run the same command again"
        ) from error


@contextlib.contextmanager
def _unpacking(where: str) -> Iterator[None]:
    try:
        with reaching(where):
            yield
    except (zipfile.BadZipFile, zlib.error, EOFError, NotImplementedError) as error:
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise BadInput(
            f"{where}: damaged or truncated .npz ({reason}); copy or write it again"
        ) from error
    except RuntimeError as error:  # what zipfile raises for a password
        raise BadInput(f"{where}: {error}; save it without a password") from error


@contextlib.contextmanager
def _decoding(where: str) -> Iterator[None]:
    """Turn what may go wrong in a Zarr into one line: its codecs raise many kinds."""
    with reaching(where):
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
            reason = str(error).splitlines()[0] if str(error) else type(error).__name__
            raise BadInput(
                f"{where}: not a readable Zarr ({type(error).__name__}: {reason}); write it again"
            ) from error
