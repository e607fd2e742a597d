"""The input formats: one module for each, and the table of all of them.

The format is detected from a file's first bytes, in the order of :data:`FORMATS`. Formats without a
signature come last. They are recognised by the structure of the file, and by its suffix if the
structure is ambiguous. Libraries that only one format needs are optional, and are imported when a
file of that format is opened.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Collection
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import cast

from latentscale_pipeline.corpus.formats import json_lines, npy, npz, raw, safetensors, text, zarr
from latentscale_pipeline.corpus.formats.container import (
    Container,
    Field,
    NoRows,
    choose_column,
)
from latentscale_pipeline.corpus.formats.file import File, file_errors
from latentscale_pipeline.errors import BadInput, how_to_install


@dataclass(frozen=True)
class Format:
    """How files of one format are recognised and opened.

    Attributes
    ----------
    recognises : callable
        ``recognises(file, first bytes)`` returns whether the file has this format.
    opens : callable
        ``opens(file)`` returns a :class:`Container`.
    """

    recognises: Callable[[File, bytes], bool]
    opens: Callable[[File], Container]


def _begins(*signatures: bytes) -> Callable[[File, bytes], bool]:
    return lambda _file, head: head.startswith(signatures)


def _never(file: File, head: bytes) -> bool:
    """Never recognise the format; it is used only when it is named."""
    return False


def _optional(module: str, opener: str, extra: str) -> Callable[[File], Container]:
    """Return an opener whose library is imported when it is called."""

    def opens(file: File) -> Container:
        try:
            reader = importlib.import_module(f"{__name__}.{module}")
        except ImportError as error:
            raise BadInput(
                f"{file.name}: this format needs {error.name or module}; install it with: "
                f"{how_to_install(extra)}"
            ) from None
        return cast(Container, getattr(reader, opener)(file))

    return opens


TEXT_FORMATS = frozenset({"csv", "tsv", "jsonl"})
"""Formats in which a file of no bytes is a table of no rows."""


def _is_arrow(file: File, head: bytes) -> bool:
    # A stream begins with a marker and the length of its first message.
    length = int.from_bytes(head[4:8], "little")
    stream = head.startswith(b"\xff\xff\xff\xff") and 0 < length <= file.size - 8
    return head.startswith((b"ARROW1", b"FEA1")) or stream


def _is_hdf5(file: File, head: bytes) -> bool:
    # The signature comes after an optional user block, whose size is a power of two.
    return any(head[at : at + 8] == b"\x89HDF\r\n\x1a\n" for at in (0, 512, 1024, 2048, 4096, 8192))


def _is_text(file: File, head: bytes) -> bool:
    return not json_lines.begins_as_json(head) and text.is_text_vectors(file, head)


FORMATS: dict[str, Format] = {
    "npy": Format(_begins(npy.MAGIC), npy.open_npy),
    "npz": Format(_begins(*npz.MAGIC), npz.open_npz),
    "parquet": Format(_begins(b"PAR1"), _optional("arrow", "open_parquet", "parquet")),
    "arrow": Format(_is_arrow, _optional("arrow", "open_arrow", "parquet")),
    "hdf5": Format(_is_hdf5, _optional("hdf5", "open_hdf5", "hdf5")),
    "safetensors": Format(safetensors.is_safetensors, safetensors.open_safetensors),
    **{k: Format(partial(raw.is_bin, k), partial(raw.open_bin, k)) for k in raw.BIN_DTYPES},
    **{k: Format(partial(raw.is_vecs, k), partial(raw.open_vecs, k)) for k in raw.VECS_DTYPES},
    "jsonl": Format(json_lines.is_json_lines, json_lines.open_json_lines),
    "text": Format(_is_text, text.open_text),
    "csv": Format(_never, partial(text.open_text, delimiter=",")),
    "tsv": Format(_never, partial(text.open_text, delimiter="\t")),
    "word2vec": Format(_never, partial(text.open_text, delimiter=text.WHITESPACE)),
    "zarr": Format(_never, zarr.open_zarr),
}
"""Every format by its name.

``csv``, ``tsv`` and ``word2vec`` are used only when they are named; detection finds ``text``.
"""

SUFFIXES = {
    ".npy": "npy", ".npz": "npz", ".parquet": "parquet", ".arrow": "arrow", ".feather": "arrow",
    ".h5": "hdf5", ".hdf5": "hdf5", ".safetensors": "safetensors", ".csv": "csv", ".tsv": "tsv",
    ".vec": "word2vec", **dict.fromkeys(json_lines.SUFFIXES, "jsonl"),
    **{f".{kind}": kind for kind in (*raw.BIN_DTYPES, *raw.VECS_DTYPES)},
}  # fmt: skip
"""The format that a suffix stands for, used if the content isn't recognised.

In a folder, files with these suffixes must be readable; others are skipped.
"""


def open_container(file: File, must: bool, kind: str | None = None) -> Container | None:
    """Open a file, in the format that its content shows.

    Parameters
    ----------
    file : File
    must : bool
        Whether an unknown format is an error.
    kind : str, optional
        Name of the format; by default it is detected.

    Returns
    -------
    Container or None
        None if the format is unknown and ``must`` is false.

    Raises
    ------
    BadInput
        If the file can't be read.
    """
    with file_errors(file.name):
        if file.is_folder:
            return zarr.open_zarr(file)
        start = _first_bytes(file)
        if kind is not None and start:
            return FORMATS[kind].opens(file)
        found = _by_content(file, start, FORMATS)
        if found is not None:
            return found
        if not start and must:
            problem = NoRows if SUFFIXES.get(file.suffix) in TEXT_FORMATS else BadInput
            raise problem(f"{file.name}: the file is empty; write it again or leave it out")
        if start and file.suffix in SUFFIXES:
            return FORMATS[SUFFIXES[file.suffix]].opens(file)
    if not must:
        return None
    raise BadInput(f"{file.name}: {_known_problem(start)}")


_UNREADABLE = {
    b"\x1f\x8b": "compressed by gzip; decompress it with gunzip",
    b"\x28\xb5\x2f\xfd": "compressed by zstd; decompress it with unzstd",
    b"BZh": "compressed by bzip2; decompress it with bunzip2",
    b"\xfd7zXZ": "compressed by xz; decompress it with unxz",
    b"\x80": "it looks like a Python pickle, which is never read; save the vectors with numpy.save",
    b"SQLite format 3": "an SQLite database; export the vectors as Parquet or .npy",
}
"""Beginnings of files that people try, and the way out."""

_COMPRESSED = tuple(
    beginning
    for beginning, problem in _UNREADABLE.items()
    if problem.startswith("compressed") and not beginning.isascii()
)
"""Those of compressed files with which no text begins."""


def _known_problem(start: bytes) -> str:
    """Return why a file that begins like this can't be read, and what to do."""
    if json_lines.begins_as_json(start):
        return json_lines.NOT_LINES
    for beginning, problem in _UNREADABLE.items():
        if start.startswith(beginning):
            return problem
    return (
        f"unknown format (it begins with {start[:8]!r}); name the format with ingest "
        "--format, or convert the file with numpy.save"
    )


def open_values(file: File, kinds: str, column: str | None) -> tuple[Container, Field]:
    """Open a file with one value per row: a column in any format, or text with one value a line.

    Parameters
    ----------
    file : File
    kinds : str
        Accepted kinds of numpy dtypes.
    column : str, optional
        Name of the field. Without it, the file must have only one suitable field.
    """
    values = FORMATS.keys() - {"text", *raw.BIN_DTYPES, *raw.VECS_DTYPES}
    if column is None and file.suffix not in json_lines.SUFFIXES:
        values -= {"jsonl"}  # a label may look like JSON
    with file_errors(file.name):
        if file.is_folder:
            container: Container = zarr.open_zarr(file)
        else:
            start = _first_bytes(file)
            found = _by_content(file, start, values)
            if found is None and any(start.startswith(sign) for sign in _COMPRESSED):
                raise BadInput(f"{file.name}: {_known_problem(start)}")
            container = found or (
                text.open_lines(file) if column is None else text.open_text(file, column=column)
            )
        return container, choose_column(container, column, kinds)


def _by_content(file: File, start: bytes, kinds: Collection[str]) -> Container | None:
    """Open a file in the first of these formats that recognises it, or return None."""
    for kind, known in FORMATS.items():
        if start and kind in kinds and known.recognises(file, start):
            return known.opens(file)
    return None


def _first_bytes(file: File) -> bytes:
    if file.is_local and not Path(file.path).is_file():
        raise BadInput(f"{file.name}: not a regular file; write the vectors to a regular file")
    return file.head()
