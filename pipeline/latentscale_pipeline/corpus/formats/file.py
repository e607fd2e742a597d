"""Files that rows are read from, on a disk or in an object store.

Two kinds of errors are distinguished: failures to reach a file, many of which are temporary
(:func:`file_errors`), and content that can't be decoded (:func:`decoding`).
"""

from __future__ import annotations

import contextlib
import io
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, BinaryIO, cast

import numpy as np
import numpy.typing as npt
import xxhash
from fsspec.implementations.local import LocalFileSystem

from latentscale_pipeline.errors import BadInput, Incomplete, LatentscaleError, first_line
from latentscale_pipeline.storage.objects import (
    FULL,
    ObjectStore,
    is_refused,
    run_requests,
)
from latentscale_pipeline.storage.urls import has_query, strip_credentials

BLOCK_BYTES = 8 << 20
"""Approximate number of bytes that are decoded at a time."""

PLAIN_BYTES = 1 << 20
"""Approximate number of bytes that are read at a time from plain arrays; fits the CPU's caches."""

HEAD_BYTES = 16384  # numpy refuses headers of more than 10 000 characters

# Entries that differ once a file changed, of which a file system has some.
_CHANGES = (
    *("ETag", "etag", "xet_hash", "blob_id", "mtime"),
    *("LastModified", "last_modified", "Last-Modified", "created"),
)
_SAMPLES, _SAMPLE_BYTES = 16, 1 << 16
# Their errors aren't OSErrors.
_STORE_LIBRARIES = {"botocore", "aiohttp", "google", "azure", "httpx", "httpx2"}


@dataclass(frozen=True)
class File:
    """A file or folder with its file system and its entry in a listing.

    ``changed`` is its etag or modification time, and on a disk also that of its entry there; None
    for a folder, and for a file of a server that tells neither.
    """

    fs: Any
    path: str
    is_folder: bool
    size: int
    changed: str | None = None

    @staticmethod
    def of(fs: Any, about: dict[str, Any]) -> File:
        """Return the file for an entry of a listing."""
        path = str(about["name"]).rstrip("/")
        if isinstance(fs, LocalFileSystem):
            if about.get("islink"):  # a listing has the times of the link, not of its target
                with contextlib.suppress(OSError):  # told when it is opened
                    target = fs.info(path)
                    about = about | {key: target[key] for key in ("size", "mtime", "created")}
            # An archive may give all its files one time of modification.
            changed: str | None = f"{about.get('mtime')} {about.get('created')}"
        else:
            changed = next((str(about[key]) for key in _CHANGES if key in about), None)
        return File(fs, path, about["type"] == "directory", int(about["size"] or 0), changed)

    @property
    def is_local(self) -> bool:
        """Whether it is on a local file system."""
        return isinstance(self.fs, LocalFileSystem)

    @property
    def name(self) -> str:
        """Path, or URL without credentials, for records and messages."""
        return (
            self.path if self.is_local else strip_credentials(self.fs.unstrip_protocol(self.path))
        )

    @property
    def address(self) -> str:
        """Path or URL that opens it; may contain credentials."""
        return self.path if self.is_local else str(self.fs.unstrip_protocol(self.path))

    @property
    def suffix(self) -> str:
        """Suffix of its name in lower case, such as ``.fbin``."""
        path = self.path.partition("?")[0] if has_query(self.path) else self.path
        name = path.rsplit("/", 1)[-1].lower()
        return name[name.rfind(".") :] if "." in name else ""

    def sample_content(self) -> str:
        """Return a hash of the file's beginning, its end, and parts at equal distances between.

        Together these are 1 MiB; of a smaller file it is a hash of all bytes.
        """
        ranges = [(0, self.size)]
        if self.size > _SAMPLES * _SAMPLE_BYTES:
            starts = np.linspace(0, self.size - _SAMPLE_BYTES, _SAMPLES).astype(np.int64)
            ranges = [(start, start + _SAMPLE_BYTES) for start in starts.tolist()]
        store = ObjectStore(self.address)
        parts = run_requests(store, lambda each: store.read_range("", *each), ranges)
        return xxhash.xxh3_128_hexdigest(b"".join(parts))

    def open(self) -> BinaryIO:
        """Open the file for reading; unbuffered on a disk, with read-ahead in a store."""
        return ObjectStore(self.address).open()

    def head(self, size: int = HEAD_BYTES) -> bytes:
        """Return the first bytes, with a single request in a store."""
        if self.is_local:
            with self.open() as file:
                return file.read(size)
        return ObjectStore(self.address).read_range("", 0, min(size, self.size))


def fill(file: BinaryIO, block: npt.NDArray[Any]) -> int:
    """Read into a contiguous array until it is full or the file ends; return the bytes read."""
    view = block.reshape(-1).view(np.uint8).data
    filled = 0
    while filled < len(view):
        count = cast(io.RawIOBase, file).readinto(view[filled:])
        if not count:
            break
        filled += count
    return filled


def block_ranges(start: int, stop: int, row_bytes: int) -> Iterator[tuple[int, int]]:
    """Divide a range of rows into ranges of about :data:`BLOCK_BYTES`."""
    return _ranges(start, stop, BLOCK_BYTES // max(1, row_bytes))


def plain_ranges(start: int, stop: int, row_bytes: int) -> Iterator[tuple[int, int]]:
    """Divide a range of rows into ranges of about :data:`PLAIN_BYTES`."""
    return _ranges(start, stop, PLAIN_BYTES // max(1, row_bytes))


def _ranges(start: int, stop: int, step: int) -> Iterator[tuple[int, int]]:
    for first in range(start, stop, max(1, step)):
        yield first, min(first + max(1, step), stop)


@contextlib.contextmanager
def file_errors(where: str) -> Iterator[None]:
    """Convert errors of access to a file to :class:`BadInput` or, if temporary, ``Incomplete``."""
    try:
        yield
    except FileNotFoundError:
        raise BadInput(f"{where}: no such file or folder; check the path") from None
    except (IsADirectoryError, NotADirectoryError):
        raise BadInput(
            f"{where}: a folder where a file is expected, or a file where a folder is; check the "
            "path"
        ) from None
    except PermissionError as error:
        raise BadInput(f"{where}: permission denied; change its permissions") from error
    except OSError as error:
        if error.errno in FULL:
            raise Incomplete(
                f"{where}: the disk is full or over quota; free some space and run the same "
                "command again"
            ) from error
        reason = error.strerror or first_line(error)
        raise Incomplete(
            f"{where}: can't be read ({reason}); run the same command again once this is fixed"
        ) from error
    except Exception as error:
        if type(error).__module__.partition(".")[0] not in _STORE_LIBRARIES:
            raise
        if is_refused(error):
            raise BadInput(f"{where}: permission denied; change its permissions") from error
        raise Incomplete(
            f"{where}: can't be reached ({first_line(error)}); check the address and the "
            "credentials, then run the same command again"
        ) from error


@contextlib.contextmanager
def decoding(where: str, what: str, size: int) -> Iterator[None]:
    """Convert any error that a format's library raises on a damaged file to :class:`BadInput`.

    ``what`` is the format and ``size`` the file's size in bytes, for the message.
    """
    with file_errors(where):
        try:
            yield
        except (LatentscaleError, PermissionError, ConnectionError, TimeoutError):
            raise
        except Exception as error:
            module = type(error).__module__.partition(".")[0]
            if module in _STORE_LIBRARIES or getattr(error, "filename", None) is not None:
                raise
            raise BadInput(
                f"{where}: damaged, truncated or unknown {what} within its {size} bytes "
                f"({first_line(error)}); copy or write it again"
            ) from error
