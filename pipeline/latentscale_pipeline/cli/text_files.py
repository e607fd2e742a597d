"""Read and write text files named on the command line."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import click

from latentscale_pipeline.errors import BadInput, Incomplete
from latentscale_pipeline.storage.objects import FULL, ObjectStore, atomic_write
from latentscale_pipeline.storage.urls import strip_credentials

_NOT_REPLACED = {errno.EACCES, errno.EPERM, errno.EROFS, errno.EBUSY, errno.ENAMETOOLONG}
"""Errors where a file can't be moved into place, but perhaps be written, as one that is mounted."""


def read_text(path: str | Path, what: str) -> str:
    """Return a file's text; an error is one line with the reason, and asks for ``what``.

    The file may be named by a path or a URL.
    """
    shown = strip_credentials(str(path))
    try:
        if "://" in str(path):
            return ObjectStore(str(path)).read("").decode("utf-8-sig")
        return Path(path).read_text(encoding="utf-8-sig")
    except FileNotFoundError:
        raise BadInput(f"{shown}: {os.strerror(errno.ENOENT)}; name {what}") from None
    except OSError as error:
        raise BadInput(f"{shown}: {error.strerror}; name {what}") from None
    except UnicodeDecodeError:
        raise BadInput(f"{shown}: not a text file; name {what}") from None


def write_text(path: str | None, text: str) -> None:
    """Write text to a file or URL, or print it if none or ``-`` is named; an error is one line.

    What a file held before stays until all of the text is written. Missing folders are made.
    """
    if path is None or path == "-":
        click.echo(text, nl=False)
        return
    if "://" in path:
        folder, _, name = path.rpartition("/")
        if not name or folder.endswith(":/"):
            raise BadInput(f"{strip_credentials(path)}: a folder; name a file in it")
        ObjectStore(folder).write(name, text.encode())
        return
    try:
        _write(Path(path), text.encode())
    except OSError as error:
        if error.errno in FULL:
            raise Incomplete(f"{path}: the disk is full or over quota; free some space") from None
        raise BadInput(f"{path}: {error.strerror}; name a file that can be written") from None


def _write(path: Path, text: bytes) -> None:
    """Write a file whole, or leave it as it is; a device, a pipe or a descriptor is written to."""
    is_special = path.exists() and not path.is_file() and not path.is_dir()
    if is_special or path.is_relative_to("/dev") or path.is_relative_to("/proc"):
        with path.open("ab") as file:  # what others wrote there stays
            file.write(text)
        return
    path = path.resolve()
    if path.exists() and not os.access(path, os.W_OK):
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))
    path.parent.mkdir(parents=True, exist_ok=True)
    try:
        with atomic_write(path, durable=False) as file:
            if path.exists():
                os.fchmod(file.fileno(), path.stat().st_mode & 0o7777)
            file.write(text)
    except OSError as error:
        if error.errno not in _NOT_REPLACED:
            raise
        path.write_bytes(text)
