"""Read and write text files named on the command line."""

from __future__ import annotations

from pathlib import Path

import click

from latentscale_pipeline.errors import BadInput
from latentscale_pipeline.storage.objects import ObjectStore


def read_text(path: str | Path, what: str) -> str:
    """Return a file's text; an error is one line with the reason, and asks for ``what``."""
    try:
        return Path(path).read_text(encoding="utf-8-sig")
    except OSError as error:
        raise BadInput(f"{path}: {error.strerror}; name {what}") from None
    except UnicodeDecodeError:
        raise BadInput(f"{path}: not a text file; name {what}") from None


def write_text(path: str | None, text: str) -> None:
    """Write text to a file or URL, or print it if none is named; an error is one line."""
    if path is None:
        click.echo(text, nl=False)
        return
    if "://" in path:
        folder, _, name = path.rpartition("/")
        ObjectStore(folder).write(name, text.encode())
        return
    try:
        Path(path).write_text(text, encoding="utf-8")
    except OSError as error:
        raise BadInput(f"{path}: {error.strerror}; name a file that can be written") from None
