"""The input formats: one module each, and the table of all of them.

What a file is, is found from its first bytes, in the order of :data:`FORMATS`; formats without a
signature of their own come last and go by the structure of the file, and by its name only where
the structure leaves a choice. Libraries that only one format needs are optional: they are imported
when a file of that format is met.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Collection
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import cast

from latentscale_pipeline.corpus.formats import npy, npz, raw, safetensors, text, zarr
from latentscale_pipeline.corpus.formats.container import Container, Field, choose_column
from latentscale_pipeline.corpus.formats.file import File, reaching
from latentscale_pipeline.errors import BadInput


@dataclass(frozen=True)
class Format:
    """How files of one format are known and opened.

    Attributes
    ----------
    recognises : callable
        ``recognises(file, first bytes)``.
    opens : callable
        Returns what a file of this format holds.
    """

    recognises: Callable[[File, bytes], bool]
    opens: Callable[[File], Container]


def _begins(*signatures: bytes) -> Callable[[File, bytes], bool]:
    return lambda _file, head: head.startswith(signatures)


def _never(file: File, head: bytes) -> bool:
    """Leave a format to those who name it."""
    return False


def _optional(module: str, opener: str, extra: str) -> Callable[[File], Container]:
    """Return an opener whose library is imported when it is called."""

    def opens(file: File) -> Container:
        try:
            reader = importlib.import_module(f"{__name__}.{module}")
        except ImportError as error:
            raise BadInput(
                f"{file.name}: reading it needs {error.name or module}; install it with: pip "
                f"install 'latentscale[{extra}]'"
            ) from None
        return cast(Container, getattr(reader, opener)(file))

    return opens


def _is_arrow(file: File, head: bytes) -> bool:
    # A stream begins with a mark and the length of its first message.
    length = int.from_bytes(head[4:8], "little")
    stream = head.startswith(b"\xff\xff\xff\xff") and 0 < length <= file.size - 8
    return head.startswith((b"ARROW1", b"FEA1")) or stream


def _is_hdf5(file: File, head: bytes) -> bool:
    # Behind a user's block of any power of two, if there is one.
    return any(head[at : at + 8] == b"\x89HDF\r\n\x1a\n" for at in (0, 512, 1024, 2048, 4096, 8192))


FORMATS: dict[str, Format] = {
    "npy": Format(_begins(npy.MAGIC), npy.open_npy),
    "npz": Format(_begins(*npz.MAGIC), npz.open_npz),
    "parquet": Format(_begins(b"PAR1"), _optional("arrow", "open_parquet", "parquet")),
    "arrow": Format(_is_arrow, _optional("arrow", "open_arrow", "parquet")),
    "hdf5": Format(_is_hdf5, _optional("hdf5", "open_hdf5", "hdf5")),
    "safetensors": Format(safetensors.is_safetensors, safetensors.open_safetensors),
    **{k: Format(partial(raw.is_bin, k), partial(raw.open_bin, k)) for k in raw.BIN_DTYPES},
    **{k: Format(partial(raw.is_vecs, k), partial(raw.open_vecs, k)) for k in raw.VECS_DTYPES},
    "text": Format(text.is_text_vectors, text.open_text),
    "csv": Format(_never, partial(text.open_text, delimiter=",")),
    "tsv": Format(_never, partial(text.open_text, delimiter="\t")),
    "word2vec": Format(_never, partial(text.open_text, delimiter=text.WHITESPACE)),
    "zarr": Format(_never, zarr.open_zarr),
}
"""Every format by its name; ``csv``, ``tsv`` and ``word2vec`` are taken when they are named."""

SUFFIXES = {
    ".npy": "npy", ".npz": "npz", ".parquet": "parquet", ".arrow": "arrow", ".feather": "arrow",
    ".h5": "hdf5", ".hdf5": "hdf5", ".safetensors": "safetensors", ".csv": "csv", ".tsv": "tsv",
    ".vec": "word2vec", **{f".{kind}": kind for kind in (*raw.BIN_DTYPES, *raw.VECS_DTYPES)},
}  # fmt: skip
"""What a file was meant to be whose content looks like nothing; in a folder it must be readable."""


def open_container(file: File, must: bool, kind: str | None = None) -> Container | None:
    """Open a file by its content.

    Parameters
    ----------
    file : File
    must : bool
        Whether it has to be of a known format.
    kind : str, optional
        Its format, instead of what its content looks like.

    Returns
    -------
    Container or None
        None if it is of no known format and needn't be.

    Raises
    ------
    BadInput
        When it can't be read: one line that names it.
    """
    with reaching(file.name):
        if file.is_folder:
            return zarr.open_zarr(file)
        start = _first_bytes(file)
        if kind is not None and start:
            return FORMATS[kind].opens(file)
        found = _by_content(file, start, FORMATS)
        if found is not None:
            return found
        if not start and must:
            raise BadInput(f"{file.name}: an empty file (0 bytes); write it again or leave it out")
        if start and file.suffix in SUFFIXES:
            return FORMATS[SUFFIXES[file.suffix]].opens(file)
    if not must:
        return None
    raise BadInput(
        f"{file.name}: of no known format (it begins with {start[:8]!r}); name it with --format, "
        "or convert it with numpy.save"
    )


def open_values(file: File, kinds: str, column: str | None) -> tuple[Container, Field]:
    """Open a file that has one value a row: a column of any format, or text of one a line.

    Parameters
    ----------
    file : File
    kinds : str
        Kinds of numpy dtypes that will do.
    column : str, optional
        Which field of the file it is.
    """
    values = FORMATS.keys() - {"text", *raw.BIN_DTYPES, *raw.VECS_DTYPES}
    with reaching(file.name):
        container = (
            zarr.open_zarr(file)
            if file.is_folder
            else _by_content(file, _first_bytes(file), values)
            or (text.open_lines(file) if column is None else text.open_text(file))
        )
        return container, choose_column(container, column, kinds)


def _by_content(file: File, start: bytes, kinds: Collection[str]) -> Container | None:
    """Open a file whose first bytes are those of one of these formats."""
    for kind, known in FORMATS.items():
        if start and kind in kinds and known.recognises(file, start):
            return known.opens(file)
    return None


def _first_bytes(file: File) -> bytes:
    if file.is_local and not Path(file.path).is_file():
        raise BadInput(f"{file.name}: not a regular file; write the vectors to one first")
    return file.head()
