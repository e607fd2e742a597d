"""Existing Zarr arrays and groups, of version 2 or 3, and whole corpora.

Zarr gives zeros for chunks that were never written, so an array with such chunks is refused. Links
on a disk that lead out of the Zarr's folder aren't followed.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from latentscale_pipeline.corpus import zarr_format
from latentscale_pipeline.corpus.corpus import Corpus, is_unfinished, open_corpus
from latentscale_pipeline.corpus.formats.container import STRINGS, Container, Field
from latentscale_pipeline.corpus.formats.file import File, first_line, reaching
from latentscale_pipeline.corpus.manifest import MANIFEST_KEY
from latentscale_pipeline.errors import BadInput
from latentscale_pipeline.storage.objects import ObjectStore

DOCUMENTS = ("zarr.json", ".zarray", ".zgroup")
"""Any of them makes a folder a Zarr."""


@dataclass(frozen=True)
class Zarr(Container):
    """An existing Zarr; the names of its fields are the arrays' paths in the group."""

    path: str
    fields: tuple[Field, ...]
    file: File
    single: bool = False

    def locate(self, field: Field) -> str:
        """Name an array by its path."""
        return f"{self.path}/{field.name}".rstrip("/")

    def check(self, field: Field) -> None:
        """Refuse an array of which chunks were never written."""
        with _decoding(self.path):
            self._array(field).check_written(ObjectStore(self.file.address).sizes(), self._tail)

    def blocks(self, field: Field, start: int, stop: int) -> Iterator[npt.NDArray[Any]]:
        """Yield rows of one array."""
        with _decoding(self.locate(field)):
            for block in self._array(field).blocks(start, stop):
                yield block.astype(STRINGS) if field.dtype.kind == "T" else block

    def _array(self, field: Field) -> zarr_format.ExistingArray:
        arrays = zarr_format.existing_arrays(self.file.address, self.file.is_local)
        return next(array for array in arrays if array.name == field.name)

    def _tail(self, key: str, count: int) -> bytes:
        return bytes(self.file.fs.tail(f"{self.file.path}/{key}", count))


@dataclass(frozen=True)
class OtherCorpus(Container):
    """A whole corpus: its vectors, checked on reading, and what accompanies them."""

    path: str
    fields: tuple[Field, ...]
    corpus: Corpus

    def locate(self, field: Field) -> str:
        """Name the corpus, or a companion of its vectors."""
        return self.path if field.name == "vectors" else f"{self.path}/{field.name}"

    def blocks(self, field: Field, start: int, stop: int) -> Iterator[npt.NDArray[Any]]:
        """Yield rows shard by shard."""
        yield from self.corpus.read_blocks(field.name, start, stop)


def is_zarr(file: File) -> bool:
    """Tell whether a folder is a Zarr, or was meant to be."""
    # A corpus that has lost its Zarr documents is still a corpus, and is refused as one.
    return file.path.endswith(".zarr") or any(
        file.fs.exists(f"{file.path}/{document}") for document in DOCUMENTS
    )


def open_zarr(file: File) -> Container:
    """Open a Zarr: the documents of its arrays, or the manifest of a corpus."""
    store = ObjectStore(file.address)
    if store.exists(MANIFEST_KEY):
        return _open_other_corpus(store)
    if is_unfinished(store):
        raise BadInput(
            f"{file.name}: an unfinished corpus (its ingest was interrupted); run it again"
        )
    if file.is_local:
        _check_links(Path(file.path))
    with _decoding(file.name):
        arrays = zarr_format.existing_arrays(file.address, file.is_local)
    fields = tuple(
        Field(a.name, a.shape, STRINGS if a.dtype.kind in "TO" else a.dtype) for a in arrays
    )
    return Zarr(file.name, fields, file, single=[field.name for field in fields] == [""])


def _open_other_corpus(store: ObjectStore) -> OtherCorpus:
    corpus = open_corpus(store.url)
    fields = [Field("vectors", (corpus.n, corpus.d), corpus.dtype)]
    for name, array in corpus.manifest.arrays.items():
        dtype = STRINGS if array.dtype == "string" else np.dtype(array.dtype)
        fields.append(Field(name, (corpus.n,), dtype))
    return OtherCorpus(corpus.url, tuple(fields), corpus)


def _check_links(root: Path) -> None:
    inside = os.path.realpath(root)
    for folder, folders, files in os.walk(root):
        for name in (*folders, *files):
            path = Path(folder, name)
            if path.is_symlink():
                real = os.path.realpath(path)
                if os.path.commonpath([inside, real]) != inside:
                    raise BadInput(
                        f"{path}: a link that leads out of {root}; put the file itself there"
                    )


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
            raise BadInput(
                f"{where}: not a readable Zarr ({type(error).__name__}: {first_line(error)}); "
                "write it again"
            ) from error
