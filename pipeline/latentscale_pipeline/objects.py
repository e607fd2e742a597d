"""Whole objects by key, on a local disk or in an object store.

Everything that is stored goes through :class:`ObjectStore`: whole objects are written once and read
whole, and the one primitive that several writers may race for is *create if absent*
(:meth:`ObjectStore.create`). No rename, append or shared mutable object is relied on, so the same
protocol holds on a disk and on S3.

Writing is retried with backoff when a remote store is unreachable for a while; local errors are
reported at once, as one line that names the object.
"""

from __future__ import annotations

import contextlib
import errno
import os
import re
import time
import uuid
from collections.abc import Callable
from functools import cached_property
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit, urlunsplit

import fsspec
from fsspec.implementations.local import LocalFileSystem

from latentscale_pipeline.errors import BadInput, Incomplete

RETRY_DELAYS = (0.2, 0.5, 1.0, 2.0, 4.0)
"""Seconds between attempts to reach a remote store."""

NO_HARD_LINKS = {errno.EPERM, errno.ENOTSUP, errno.EOPNOTSUPP, errno.EMLINK, errno.ENOSYS}
"""What file systems without hard links answer."""

_PARTIAL = re.compile(r"\.[0-9a-f]{32}\.partial$")


class ObjectStore:
    """Objects under a root: a local folder or any fsspec URL.

    Parameters
    ----------
    url : str
        A path, or a URL such as ``s3://bucket/prefix``. Credentials come from the environment.

    Raises
    ------
    BadInput
        If the URL's protocol is unknown or its library isn't installed.
    """

    def __init__(self, url: str) -> None:
        try:
            self._fs, root = fsspec.core.url_to_fs(url, **_options(url))
        except (ImportError, ValueError) as error:
            raise BadInput(
                f"{strip_credentials(url)}: can't open this kind of URL ({error})"
            ) from None
        self._root = str(root).rstrip("/")
        self.url = str(Path(self._root)) if self.is_local else strip_credentials(url).rstrip("/")
        self._given = url

    def __reduce__(self) -> tuple[type[ObjectStore], tuple[str]]:
        return ObjectStore, (self._given,)

    def __repr__(self) -> str:
        return f"ObjectStore({self.url!r})"

    @cached_property
    def is_local(self) -> bool:
        """Whether the objects are files of this machine's file systems."""
        return isinstance(self._fs, LocalFileSystem)

    def child(self, prefix: str) -> ObjectStore:
        """Return the store rooted at a prefix of this one."""
        return ObjectStore(f"{self._given.rstrip('/')}/{prefix}")

    def locate(self, key: str) -> str:
        """Name an object for a message: its path or URL without credentials."""
        return f"{self.url}/{key}" if key else self.url

    def read(self, key: str) -> bytes:
        """Return a whole object.

        Raises
        ------
        FileNotFoundError
            If there is none.
        """
        data: bytes = self._attempt(lambda: self._fs.cat_file(self._path(key)), key)
        return data

    def write(self, key: str, data: bytes) -> None:
        """Store a whole object, replacing one of the same key.

        A reader never sees half of it: local files are written beside and moved into place.
        """
        if self.is_local:
            self._locally(key, lambda path: self._place(path, data, os.replace))
        else:
            self._send(key, data, "overwrite")

    def create(self, key: str, data: bytes) -> bool:
        """Store a whole object only if its key is free.

        Of any number of racing writers exactly one gets True. After a lost connection the object
        may turn out to be our own: that counts as created.
        """
        try:
            if self.is_local:
                self._locally(key, lambda path: self._place(path, data, _link))
            else:
                self._send(key, data, "create")
        except FileExistsError:
            return not self.is_local and self.read(key) == data
        return True

    def exists(self, key: str) -> bool:
        """Tell whether there is an object or a folder of this key."""
        return bool(self._attempt(lambda: self._fs.exists(self._path(key)), key))

    def keys(self, prefix: str = "") -> list[str]:
        """List the keys of all objects below a prefix (a folder), sorted."""
        return sorted(self.sizes(prefix))

    def sizes(self, prefix: str = "") -> dict[str, int]:
        """Map the keys of all objects below a prefix (a folder) to their sizes in bytes."""
        base = self._path(prefix)
        found = self._attempt(lambda: self._fs.find(base, detail=True), prefix)
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
        """Delete an object; one that is already gone is no error."""
        with contextlib.suppress(FileNotFoundError):
            self._attempt(lambda: self._fs.rm_file(self._path(key)), key)

    def remove_all(self, prefix: str = "") -> None:
        """Delete everything below a prefix, partial files of killed writers included."""
        with contextlib.suppress(FileNotFoundError):
            self._attempt(lambda: self._fs.rm(self._path(prefix), recursive=True), prefix)

    def sweep_partial(self, prefix: str = "", older_than: float = 3600.0) -> None:
        """Delete the temporary files that killed writers left on a local disk."""
        if not self.is_local:
            return
        for path in Path(self._path(prefix)).rglob("*.partial"):
            with contextlib.suppress(FileNotFoundError):
                if _PARTIAL.search(path.name) and time.time() - path.stat().st_mtime > older_than:
                    path.unlink()

    def _path(self, key: str) -> str:
        return f"{self._root}/{key}".rstrip("/") if key else self._root

    def _send(self, key: str, data: bytes, mode: str) -> None:
        try:
            self._attempt(lambda: self._fs.pipe_file(self._path(key), data, mode=mode), key)
        except FileNotFoundError:
            raise BadInput(
                f"{self.locate(key)}: there is no such bucket or container; create it, "
                "or choose another place"
            ) from None

    def _locally(self, key: str, operation: Callable[[Path], None]) -> None:
        path = Path(self._path(key))
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise _explained(error, self.locate(key)) from error
        try:
            operation(path)
        except FileExistsError:
            raise
        except OSError as error:
            raise _explained(error, self.locate(key)) from error

    @staticmethod
    def _place(path: Path, data: bytes, publish: Callable[[Path, Path], None]) -> None:
        temporary = path.with_name(f".{path.name}.{uuid.uuid4().hex}.partial")
        try:
            with temporary.open("wb") as file:
                file.write(data)
                file.flush()
                os.fsync(file.fileno())
            publish(temporary, path)
        finally:
            temporary.unlink(missing_ok=True)

    def _attempt(self, operation: Callable[[], Any], key: str) -> Any:
        """Run an operation, again after a pause when a remote store can't be reached."""
        delays = () if self.is_local else RETRY_DELAYS
        for delay in (*delays, None):
            try:
                return operation()
            except (FileNotFoundError, FileExistsError, IsADirectoryError, NotADirectoryError):
                raise
            except PermissionError as error:
                raise _explained(error, self.locate(key)) from error
            except Exception as error:
                if self.is_local or delay is None:
                    if isinstance(error, OSError) or not self.is_local:
                        raise _explained(error, self.locate(key)) from error
                    raise
                time.sleep(delay)
        raise AssertionError("unreachable")


def strip_credentials(url: str) -> str:
    """Remove user info, query string and fragment from a URL; paths are left as they are."""
    parts = urlsplit(url)
    if not parts.scheme or "://" not in url:
        return url
    host = parts.netloc.rpartition("@")[2]
    return urlunsplit((parts.scheme, host, parts.path, "", ""))


def _options(url: str) -> dict[str, Any]:
    # A listing remembered from before another process wrote is a wrong listing.
    remote = "://" in url and not url.startswith(("file://", "memory://"))
    return {"use_listings_cache": False} if remote else {}


def _link(temporary: Path, path: Path) -> None:
    """Give the finished file its name unless the name is taken (atomic on POSIX)."""
    try:
        os.link(temporary, path)
    except FileExistsError:
        raise
    except OSError as error:
        if error.errno not in NO_HARD_LINKS:
            raise
        # No hard links here: exclusive creation still has one winner, and a reader refuses a
        # marker that was cut short because its content doesn't parse.
        with path.open("xb") as file:
            file.write(temporary.read_bytes())


def _explained(error: Exception, where: str) -> Exception:
    number = error.errno if isinstance(error, OSError) else None
    if number in {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}:
        return BadInput(f"{where}: the disk is full or over quota; free some space and run again")
    if number in {errno.EACCES, errno.EPERM, errno.EROFS} or isinstance(error, PermissionError):
        return BadInput(f"{where}: permission denied; choose another place or change its rights")
    if number in {errno.ENOTDIR, errno.EEXIST, errno.EISDIR}:
        return BadInput(f"{where}: a file is in the way of a folder; choose another place")
    reason = str(error).splitlines()[0] if str(error) else type(error).__name__
    return Incomplete(f"{where}: {reason}; run the same command again once this is mended")
