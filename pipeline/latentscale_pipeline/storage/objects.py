"""Objects by key, on a local disk or in an object store.

Everything that is stored goes through :class:`ObjectStore`. Objects are written and read as a
whole. The only operation in which writers may compete is *create if absent*
(:meth:`ObjectStore.create`). Nothing relies on renaming, appending or shared mutable objects, so
the same protocol works on a disk and on S3.

Requests are repeated while an error may be temporary: the store is unreachable, the server of a
network file system is down, or, for a shorter time, the disk is full. A permanent error becomes a
one-line message that names the object.

A successful response isn't trusted: libraries and proxies between a writer and an object store
retry, give up, or lose data that they acknowledged. So every write is checked afterwards, and a
created object is read back and compared.
"""

from __future__ import annotations

import contextlib
import errno
import glob
import io
import math
import os
import re
import time
import uuid
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import cached_property, wraps
from pathlib import Path
from typing import Any, BinaryIO, ParamSpec, TypeVar, cast

import xxhash
from fsspec.implementations.local import LocalFileSystem

from latentscale_pipeline.errors import (
    BadInput,
    Incomplete,
    LatentscaleError,
    StoreFailed,
    StoreFull,
    first_line,
)
from latentscale_pipeline.storage.urls import (
    has_query,
    open_url,
    strip_credentials,
    without_credentials,
)

Parameters = ParamSpec("Parameters")
Result = TypeVar("Result")
Item = TypeVar("Item")
Bytes = bytes | bytearray | memoryview
Move = Callable[[Path, Path], None]

PATIENCE_SECONDS = 120.0
"""How long requests to an unreachable store are repeated."""

SHORT_PATIENCE_SECONDS = 8.0
"""How long requests are repeated if the disk is full, or a remote error may be permanent."""

FIRST_DELAY, LONGEST_DELAY = 0.2, 15.0
"""Pause between the first two attempts, and the longest pause, in seconds; pauses double."""

FULL = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}
"""Errors of a file system without free space."""

IMPOSSIBLE = {errno.ELOOP, errno.ENAMETOOLONG}
"""Errors of paths at which nothing can be."""

TRANSIENT_ERRNOS = {
    getattr(errno, name)
    for name in (
        *("EAGAIN", "EBUSY", "ECONNABORTED", "ECONNREFUSED", "ECONNRESET", "EHOSTDOWN"),
        *("EHOSTUNREACH", "EIO", "ENETDOWN", "ENETRESET", "ENETUNREACH", "ENOLCK", "ENOTCONN"),
        *("EPIPE", "EREMOTEIO", "ESTALE", "ETIMEDOUT"),
    )
    if hasattr(errno, name)
}
"""Errors of network file systems and servers that are temporarily down or overloaded."""

UNREACHABLE = {
    *("ConnectionError", "HTTPClientError", "TimeoutError", "ClientConnectionError"),
    *("ClientPayloadError", "IncompleteRead", "ResponseParserError"),
    *("ServiceRequestError", "ServiceResponseError"),
}
"""Names of the same errors in the libraries of object stores, which may not be installed."""

OVERLOADED = {408, 429, 500, 502, 503, 504}
"""HTTP status codes after which a request is repeated."""

REFUSED = {401, 403}
"""HTTP status codes of requests that nobody, or not this user, may make."""

MAX_SENDS = 4
"""How often an object is sent if a store acknowledges it but doesn't have it."""

WITHOUT_CREDENTIALS = {"NoCredentialsError", "PartialCredentialsError"}
"""Names of the errors of these libraries for missing credentials."""

NO_HARD_LINKS = {errno.EPERM, errno.ENOTSUP, errno.EOPNOTSUPP, errno.EMLINK, errno.ENOSYS}
"""Errors of file systems without hard links."""

NO_FOLDER_SYNC = {errno.EINVAL, errno.EBADF, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS}
"""Errors of file systems that can't sync a folder."""

LARGE = 32 << 20
"""Bytes of an object that is read by several requests at once, where a library can."""

READ_AHEAD = 8 << 20
"""Bytes per request when an object is read as a file."""

REQUESTS = 16
"""Number of requests at once, to hide the latency of a remote store."""

SLOW_ANSWER = 5e-4
"""Seconds that a local file system takes for a request from which several at once are quicker."""

_READ_BACK_BYTES = 1 << 20
_PARTIAL = re.compile(r"\.[0-9a-f]{32}\.partial$")


class CutShort(LatentscaleError):
    """Raised if an object ends before the requested range."""


NOT_RETRIED = (
    *(FileNotFoundError, FileExistsError, IsADirectoryError, NotADirectoryError),
    LatentscaleError,
)
"""Errors that a working store may raise: neither repeated nor converted."""


class ObjectStore:
    """Objects under a root: a local folder or any fsspec URL.

    Parameters
    ----------
    url : str
        A path, or a URL such as ``s3://bucket/prefix``.

    Raises
    ------
    BadInput
        If the URL's protocol is unknown or its library isn't installed.
    """

    def __init__(self, url: str) -> None:
        self._fs, root = open_url(url)
        self._root = root.rstrip("/")
        self.url = str(Path(self._root)) if self.is_local else strip_credentials(url).rstrip("/")
        self._given = url
        self._gave_up = -math.inf

    def __reduce__(self) -> tuple[type[ObjectStore], tuple[str]]:
        return ObjectStore, (self.address,)

    def __repr__(self) -> str:
        return f"ObjectStore({self.url!r})"

    @property
    def address(self) -> str:
        """Path or URL for other processes; may contain credentials, so never use it in messages."""
        return self.url if self.is_local else self._given

    @cached_property
    def is_local(self) -> bool:
        """Whether the objects are files in a local file system."""
        return isinstance(self._fs, LocalFileSystem)

    def child(self, prefix: str) -> ObjectStore:
        """Return a store whose root is a prefix of this one."""
        return ObjectStore(f"{self._given.rstrip('/')}/{prefix}")

    def locate(self, key: str) -> str:
        """Return an object's path, or its URL without credentials, for messages."""
        return f"{self.url}/{key}" if key else self.url

    def read(self, key: str, size: int = 0) -> bytes:
        """Return an object's bytes.

        Parameters
        ----------
        key : str
            Key of the object.
        size : int
            Its bytes, as far as they are known: a large object may take several requests at once.

        Raises
        ------
        FileNotFoundError
            If there is no such object.
        """
        try:
            data: bytes = self._attempt(lambda: self._fetch(key, size), key)
        except NotADirectoryError as error:  # below a file there is nothing
            raise FileNotFoundError(*error.args, error.filename) from None
        return data

    def load(self, key: str, size: int = LARGE) -> bytearray:
        """Return an object in a buffer that the caller may change; as :meth:`read` otherwise."""

        def load() -> bytearray:
            with Path(self._path(key)).open("rb", buffering=0) as file:
                data = bytearray(os.fstat(file.fileno()).st_size)
                filled = 0
                while count := file.readinto(memoryview(data)[filled:]):
                    filled += count
            del data[filled:]
            return data

        return self._attempt(load, key) if self.is_local else bytearray(self.read(key, size))

    def _fetch(self, key: str, size: int) -> bytes:
        path = self._path(key)
        if size < LARGE and "s3" in self._fs.protocol:
            try:  # without a range, s3fs sends a request for the size first
                return bytes(self._fs.cat_file(path, start=0))
            except OSError as error:
                if error.errno != errno.EINVAL:  # of an empty object, which has no range
                    raise
        return bytes(self._fs.cat_file(path))

    def open(self, key: str = "", read_ahead: int = READ_AHEAD) -> BinaryIO:
        """Open an object as a seekable file that fetches ``read_ahead`` bytes per request.

        On a disk the file isn't buffered. In an object store every request is repeated as in
        :meth:`read`, so that reading continues when an unreachable store is back.
        """
        path = self._path(key)
        if self.is_local:
            return cast(BinaryIO, Path(path).open("rb", buffering=0))
        size = self._attempt(lambda: self._fs.info(path), key)["size"]
        if size is None:  # such servers don't support range requests either
            return cast(BinaryIO, self._fs.open(path, "rb"))
        return cast(BinaryIO, io.BufferedReader(_Ranges(self, key, int(size)), read_ahead))

    def read_range(self, key: str, start: int, stop: int) -> bytes:
        """Return the bytes of an object from ``start`` up to ``stop``.

        Raises
        ------
        CutShort
            If the object ends before ``stop``.
        """

        def read() -> bytes:
            data, problem = b"", None
            try:
                data = bytes(self._fs.cat_file(self._path(key), start=start, end=stop))
            except (FileNotFoundError, LatentscaleError):
                raise
            except Exception as error:  # noqa: BLE001 -- stores refuse ranges beyond the end
                problem = error
            if len(data) >= stop - start:
                return data
            size = int(self._fs.info(self._path(key))["size"] or 0)
            if size < stop:
                raise CutShort(f"{self.locate(key)} has {size} bytes, not {stop} or more")
            came = f"received {len(data)} bytes instead of {stop - start}"
            raise problem or OSError(errno.EIO, came)

        if start >= stop:
            return b""  # HTTP has no empty ranges
        found = cast(bytes, self._attempt(read, key))
        if len(found) > stop - start:
            raise BadInput(
                f"{self.locate(key)}: the server sends the whole file where a part is asked for; "
                "download the file and name it there"
            )
        return found

    def write(self, key: str, data: Bytes, *, durable: bool = True) -> None:
        """Store an object, replacing one with the same key.

        A reader never sees part of it: a local file is written under a temporary name and moved
        into place. In an object store its size is checked afterwards, and it is sent again if it
        is missing.

        Parameters
        ----------
        key : str
            Key of the object.
        data : bytes
            Its content.
        durable : bool
            Wait until a local disk has stored it (fsync), which takes longer than writing. Not
            needed if the loss of the object in a power failure is detected and repaired.
        """
        if self.is_local:
            self._locally(key, data, os.replace, durable=durable)
            return
        for _ in range(MAX_SENDS):
            self._send(key, lambda path: self._fs.pipe_file(path, bytes(data)))
            if self._size(key) == len(data):
                return
        raise self._lost(key)

    def write_checked(self, key: str, data: Bytes) -> str:
        """Store an object, read it back and compare; repeat if it differs.

        Returns
        -------
        str
            XXH3-64 of the object, 16 hexadecimal characters.

        Raises
        ------
        StoreFailed
            If it still differs after the last attempt.
        """
        checksum = xxhash.xxh3_64_hexdigest(data)
        for _ in range(MAX_SENDS):
            self.write(key, data)
            with contextlib.suppress(FileNotFoundError):
                if self._attempt(lambda: self._checksum(key, len(data)), key) == checksum:
                    return checksum
        raise self._lost(key)

    def _checksum(self, key: str, size: int) -> str:
        whole = xxhash.xxh3_64()
        if not self.is_local:
            whole.update(self._fetch(key, size))
            return whole.hexdigest()
        # One small buffer: allocating memory for a large object takes longer than reading it.
        block = bytearray(_READ_BACK_BYTES)
        with Path(self._path(key)).open("rb", buffering=0) as file:
            while count := file.readinto(block):
                whole.update(memoryview(block)[:count])
        return whole.hexdigest()

    def create(self, key: str, data: bytes, *, durable: bool = True) -> bool:
        """Store an object only if its key is free; ``durable`` as in :meth:`write`.

        Of several writers of the same key exactly one gets True, if their data differ. If a
        response was lost, the existing object may be the one that this call wrote. That counts as
        created, so the result depends on whether the stored data are equal.

        Raises
        ------
        StoreFailed
            If an object store acknowledges the object several times but doesn't have it.
        """
        for _ in range(MAX_SENDS):
            with contextlib.suppress(FileExistsError):
                if self.is_local:
                    self._locally(key, data, _link, durable=durable)
                    return True
                self._send(key, lambda path: self._put_if_absent(path, data))
            with contextlib.suppress(FileNotFoundError):  # or it was removed since
                return self.read(key) == data
        raise self._lost(key)

    def exists(self, key: str) -> bool:
        """Return whether there is an object or a folder with this key."""
        if self.is_local:
            return bool(self._attempt(lambda: _exists_locally(Path(self._path(key))), key))
        # Some libraries return False for any error of the request.
        return self._size(key) is not None

    def written_at(self, key: str) -> float | None:
        """Return when an object was written, by the store's clock; None if that isn't known."""
        with contextlib.suppress(NotImplementedError, LatentscaleError, FileNotFoundError):
            if self.is_local:
                return Path(self._path(key)).stat().st_mtime
            found = self._attempt(lambda: self._fs.modified(self._path(key)), key)
            return float(found.timestamp())
        return None

    def keys(self, prefix: str = "") -> list[str]:
        """List the keys of all objects below a prefix (a folder), sorted."""
        return sorted(self.sizes(prefix))

    def sizes(self, prefix: str = "") -> dict[str, int]:
        """Map the keys of all objects below a prefix (a folder) to their sizes in bytes."""
        base = self._path(prefix)
        walking = {"on_error": _refuse_closed} if self.is_local else {}
        found = self._attempt(lambda: self._fs.find(base, detail=True, **walking), prefix)
        cut = len(self._root) + 1
        return {
            path[cut:]: int(entry["size"])
            for path, entry in found.items()
            if not _PARTIAL.search(path)
        }

    def folders(self, prefix: str = "") -> list[str]:
        """List the names of the folders directly below a prefix, sorted."""
        try:
            entries = self._attempt(lambda: self._fs.ls(self._path(prefix), detail=True), prefix)
        except (FileNotFoundError, NotADirectoryError):
            return []
        return sorted(
            str(entry["name"]).rstrip("/").rsplit("/", 1)[-1]
            for entry in entries
            if entry["type"] == "directory"
        )

    def remove(self, key: str) -> None:
        """Delete an object, if it exists."""
        with contextlib.suppress(FileNotFoundError):
            self._attempt(lambda: self._fs.rm_file(self._path(key)), key)

    def remove_empty_folder(self) -> None:
        """Delete the store's own folder of a disk if nothing is in it; stores have no folders."""
        if self.is_local:
            with contextlib.suppress(OSError):
                Path(self._path("")).rmdir()

    def remove_all(self, prefix: str = "") -> None:
        """Delete everything below a prefix, including temporary files of killed writers."""
        for _ in range(MAX_SENDS):
            with contextlib.suppress(FileNotFoundError):
                self._attempt(lambda: self._remove_tree(prefix), prefix)
            # A request that deletes many objects may skip some without an error.
            if self.is_local or not self.sizes(prefix):
                return

    def _remove_tree(self, prefix: str) -> None:
        """Delete everything below a prefix once; another process may write there meanwhile."""
        if not self.is_local and glob.has_magic(self._path(prefix)):
            # fsspec would take the name for a pattern, and delete what else it matches.
            for key in self.sizes(prefix):
                self._fs.rm_file(self._path(key))
            return
        for _ in range(MAX_SENDS - 1):
            try:
                self._fs.rm(self._path(prefix), recursive=True)
            except OSError as error:
                if error.errno != errno.ENOTEMPTY:
                    raise
            else:
                return
        self._fs.rm(self._path(prefix), recursive=True)

    def collect_partial(self, older_than: float = 3600.0) -> None:
        """Delete the temporary files that killed writers left on a local disk."""
        if not self.is_local:
            return
        for path in Path(self._root).rglob("*.partial"):
            with contextlib.suppress(FileNotFoundError):
                if _PARTIAL.search(path.name) and time.time() - path.stat().st_mtime > older_than:
                    path.unlink()

    def _path(self, key: str) -> str:
        if key and has_query(self._root):
            raise FileNotFoundError(errno.ENOENT, "an address with a query is one file", self.url)
        return f"{self._root}/{key}".rstrip("/") if key else self._root

    def _size(self, key: str) -> int | None:
        """Return the size of an object, 0 for a folder, or None if there is neither."""
        try:
            about = self._attempt(lambda: self._fs.info(self._path(key)), key)
        except (FileNotFoundError, NotADirectoryError):
            return None
        return int(about["size"] or 0)

    def _send(self, key: str, operation: Callable[[str], Any]) -> None:
        try:
            self._attempt(lambda: operation(self._path(key)), key)
        except FileNotFoundError:
            raise BadInput(
                f"{self.locate(key)}: there is no such bucket or container; create it, "
                "or choose another one"
            ) from None

    def _put_if_absent(self, path: str, data: bytes) -> None:
        try:
            self._fs.pipe_file(path, data, mode="create")
        except (FileExistsError, FileNotFoundError):
            raise
        except Exception as error:
            # Servers report an existing key in different ways, and libraries don't know them all.
            if self._is_there(path):
                raise FileExistsError(path) from error
            raise

    def _is_there(self, path: str) -> bool:
        try:
            self._fs.info(path)
        except Exception:  # noqa: BLE001 -- the caller reports its own error
            return False
        return True

    def _lost(self, key: str) -> StoreFailed:
        return StoreFailed(
            f"{self.locate(key)}: what was read back differs from what was written; check the "
            "storage, then run the same command again"
        )

    def _locally(self, key: str, data: Bytes, move: Move, *, durable: bool = True) -> None:
        path = Path(self._path(key))
        in_the_way = BadInput(
            f"{self.locate(key)}: a file is where a folder is needed; choose another place"
        )

        def place() -> None:
            with atomic_write(path, move, durable=durable) as file:
                file.write(data)

        for _ in range(MAX_SENDS):
            try:
                self._attempt(lambda: _make_folder(path.parent, durable=durable), key)
            except (FileExistsError, NotADirectoryError):
                raise in_the_way from None
            except FileNotFoundError:
                continue
            try:
                self._attempt(place, key)
                return
            except (IsADirectoryError, NotADirectoryError):
                raise in_the_way from None
            except FileNotFoundError:
                continue  # another process removed the folder meanwhile
        raise BadInput(f"{self.locate(key)}: nothing can be created there; choose another place")

    def _attempt(self, operation: Callable[[], Any], key: str) -> Any:
        """Run an operation, and repeat it while its error may be temporary.

        After a store was unreachable for too long, later operations fail at once for a while, so
        that the run ends soon.
        """

        def patience(error: Exception) -> float:
            if isinstance(error, NOT_RETRIED) or (self.is_local and not isinstance(error, OSError)):
                return 0.0
            gave_up = time.monotonic() - self._gave_up < PATIENCE_SECONDS
            return 0.0 if gave_up else _patience(error, self.is_local)

        try:
            return _retry(operation, patience)
        except NOT_RETRIED:
            raise
        except Exception as error:
            if self.is_local and not isinstance(error, OSError):
                raise
            if _patience(error, self.is_local):
                self._gave_up = time.monotonic()
            raise _explained(error, self.locate(key)) from error


def _exists_locally(path: Path) -> bool:
    """Return whether something has a local path; raise where a closed folder hides it."""
    try:
        path.lstat()
    except (FileNotFoundError, NotADirectoryError, ValueError):
        return False
    except PermissionError:
        raise _closed(path.parent) from None
    except OSError as error:
        if error.errno in {errno.ELOOP, errno.ENAMETOOLONG}:
            return False
        raise
    return True


def _refuse_closed(error: OSError) -> None:
    """Raise where a folder can't be listed; one that is gone has nothing in it."""
    if isinstance(error, PermissionError):
        raise _closed(error.filename)


def _closed(folder: str | Path) -> BadInput:
    return BadInput(f"{folder}: permission denied; change its permissions")


def run_requests(
    store: ObjectStore, operation: Callable[[Item], Result], items: Iterable[Item]
) -> list[Result]:
    """Run an operation that waits for a store on each item, several at once.

    A local disk answers sooner than a thread starts; where its answers take longer, as those of a
    network's file system do, they are waited for together too. The results have the order of the
    items. If operations fail, the error of the first one of them is raised.
    """
    items, results = list(items), []
    for item in items:
        if len(items) > 1 and not store.is_local:
            break
        begun = time.monotonic()
        results.append(operation(item))
        if time.monotonic() - begun > SLOW_ANSWER:
            break
    left = items[len(results) :]
    if not left:
        return results
    with ThreadPoolExecutor(REQUESTS) as pool:
        return results + list(pool.map(operation, left))


def retry_while_unreachable(
    operation: Callable[Parameters, Result],
) -> Callable[Parameters, Result]:
    """Decorate a function that only reads, so that it is repeated while a store is unreachable.

    It is for functions that use stores without :class:`ObjectStore`, and raise :class:`Incomplete`
    from the error of a library.
    """

    def patience(error: Exception) -> float:
        # StoreFailed means that the request was repeated already.
        if not isinstance(error, Incomplete) or isinstance(error, StoreFailed):
            return 0.0
        cause = error.__cause__
        return _patience(cause, is_local=True) if isinstance(cause, Exception) else 0.0

    @wraps(operation)
    def patient(*arguments: Parameters.args, **options: Parameters.kwargs) -> Result:
        return _retry(lambda: operation(*arguments, **options), patience)

    return patient


def _retry(operation: Callable[[], Result], patience: Callable[[Exception], float]) -> Result:
    """Call an operation until it succeeds, with doubling pauses.

    Parameters
    ----------
    operation : callable
        The operation, without arguments.
    patience : callable
        Returns for how many seconds after the first call an error may be retried. After that the
        error is raised.
    """
    begun = time.monotonic()
    delay = FIRST_DELAY
    while True:
        try:
            return operation()
        except Exception as error:
            if time.monotonic() - begun + delay > patience(error):
                raise
        time.sleep(delay)
        delay = min(2 * delay, LONGEST_DELAY)


@contextlib.contextmanager
def atomic_write(
    path: Path, move: Move = os.replace, *, durable: bool = True
) -> Iterator[BinaryIO]:
    """Open a local file for writing that appears under its name only when it is complete.

    It is written under a temporary name in the same folder and then moved; ``durable`` as in
    :meth:`ObjectStore.write`.
    """
    temporary = path.with_name(f".{path.name}.{uuid.uuid4().hex}.partial")
    try:
        with temporary.open("wb") as file:
            yield file
            if durable:
                file.flush()
                os.fsync(file.fileno())
        move(temporary, path)
        if durable:
            sync_folder(path.parent)
    finally:
        temporary.unlink(missing_ok=True)


def sync_folder(folder: Path) -> None:
    """Wait until a local disk has stored a folder's entries, not only the content of its files.

    Otherwise a file that was moved into place, or linked, can be missing after a power failure
    although its bytes are on the disk. Does nothing on systems that can't open or sync a folder.
    """
    try:
        opened = os.open(folder, os.O_RDONLY)
    except PermissionError:  # on Windows, or if the folder is writable but not readable
        return
    try:
        os.fsync(opened)
    except OSError as error:
        if error.errno not in NO_FOLDER_SYNC:
            raise
    finally:
        os.close(opened)


def _make_folder(folder: Path, *, durable: bool) -> None:
    """Create a folder and its parents; ``durable`` as in :meth:`ObjectStore.write`."""
    if folder.is_dir():
        return
    made: list[Path] = []
    if durable:
        made = [path for path in (folder, *folder.parents) if not path.exists()]
    folder.mkdir(parents=True, exist_ok=True)
    for path in reversed(made):
        sync_folder(path.parent)


class _Ranges(io.RawIOBase):
    """A file for an object of known size; every read is a separate request."""

    def __init__(self, store: ObjectStore, key: str, size: int) -> None:
        self._store, self._key, self._size, self._at = store, key, size, 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._at

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        origin = {io.SEEK_SET: 0, io.SEEK_CUR: self._at, io.SEEK_END: self._size}[whence]
        self._at = max(0, origin + offset)
        return self._at

    def readinto(self, buffer: Any) -> int:
        view = memoryview(buffer).cast("B")
        stop = min(self._at + len(view), self._size)
        if stop <= self._at:
            return 0
        data = self._store.read_range(self._key, self._at, stop)
        view[: len(data)] = data
        self._at = stop
        return len(data)


def _link(temporary: Path, path: Path) -> None:
    """Link a finished file to its name, unless the name is taken (atomic on POSIX)."""
    try:
        os.link(temporary, path)
    except FileExistsError:
        raise
    except OSError as error:
        if error.errno not in NO_HARD_LINKS:
            raise
        # Without hard links: exclusive creation still has one winner. Readers refuse a truncated
        # marker, because it can't be parsed.
        with path.open("xb") as file:
            try:
                file.write(temporary.read_bytes())
                file.flush()
                os.fsync(file.fileno())
            except BaseException:
                path.unlink()
                raise


def _patience(error: Exception, is_local: bool) -> float:
    """Return for how many seconds an error is worth retrying; 0 if it is permanent."""
    if isinstance(error, PermissionError):
        return 0.0
    number = error.errno if isinstance(error, OSError) else None
    names = {kind.__name__ for kind in type(error).__mro__}
    if number in TRANSIENT_ERRNOS or names & UNREACHABLE or _http_status(error) in OVERLOADED:
        return PATIENCE_SECONDS
    passes_perhaps = number in FULL - {errno.EFBIG} or (isinstance(error, OSError) and not is_local)
    return SHORT_PATIENCE_SECONDS if passes_perhaps else 0.0


def is_refused(error: BaseException | None) -> bool:
    """Return whether an error says that access to an object isn't permitted."""
    return isinstance(error, PermissionError) or _http_status(error) in REFUSED


def _http_status(error: BaseException | None) -> Any:
    """Return the status that a server answered with, as the libraries of stores keep it."""
    names = "status", "status_code", "code"
    return next((found for name in names if (found := getattr(error, name, None))), None)


def _explained(error: Exception, where: str) -> LatentscaleError:
    number = error.errno if isinstance(error, OSError) else None
    if number in FULL:
        return StoreFull(
            f"{where}: the disk is full or over quota; free some space and run the "
            "same command again"
        )
    if number in {errno.EACCES, errno.EPERM, errno.EROFS} or is_refused(error):
        return BadInput(f"{where}: permission denied; choose another place or change permissions")
    if type(error).__name__ in WITHOUT_CREDENTIALS:
        return BadInput(f"{where}: no credentials; set them in the environment")
    if number in IMPOSSIBLE and isinstance(error, OSError):
        return BadInput(f"{where}: {error.strerror}; choose another place")
    reason = first_line(error, without_credentials)
    return StoreFailed(f"{where}: {reason}; run the same command again once this is fixed")
