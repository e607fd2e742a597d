"""Columns of a user's own files for the rows of a corpus.

A table belongs to a corpus by its ids or by its order. If it has a column ``id``, and the corpus
has ids, each row of the corpus has the row with its id, or none. Otherwise the table has a row for
each row of the corpus, or for each of its sources, in their order.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from latentscale.array_types import BoolArray, Int64Array
from latentscale_pipeline.corpus.corpus import Corpus
from latentscale_pipeline.corpus.formats import open_values
from latentscale_pipeline.corpus.formats.container import KINDS, STRINGS, UnknownField
from latentscale_pipeline.corpus.formats.file import File
from latentscale_pipeline.corpus.formats.text import unescape_formula
from latentscale_pipeline.corpus.ingest.sources import COLUMNS, find_files
from latentscale_pipeline.corpus.text_arrays import number_texts
from latentscale_pipeline.errors import BadInput
from latentscale_pipeline.storage.urls import strip_credentials

NUMBERS, FLAGS = "numbers", "flags"
"""What the texts of a format without types may be."""

EXACT = 2.0**53
"""Where floating-point numbers begin to lose the digits of whole ones."""


@dataclass(frozen=True)
class Table:
    """Files with columns for the rows of a corpus; several are read in natural order."""

    corpus: Corpus
    url: str

    @cached_property
    def files(self) -> Sequence[File]:
        """The files."""
        return find_files(self.url)

    @property
    def where(self) -> str:
        """The files, for messages."""
        return strip_credentials(self.url)

    def column(self, name: str) -> tuple[npt.NDArray[Any], BoolArray]:
        """Return a column for the rows of the corpus, and which of its values are missing.

        Cells of text files, and numbers of JSON lines, are read as they are written, and are
        numbers if all of them are.

        Raises
        ------
        BadInput
            If there is no such column, or its rows don't belong to those of the corpus.
        """
        column, null, untyped = self._read(name)
        by_id = self._places_by_id
        if by_id is None:
            places = self._places_by_order(len(column))
            column, null = column[places], null[places]
        else:
            lacking = by_id < 0
            column, null = column[by_id], null[by_id] | lacking
            if column.dtype.kind in "ST":
                column[lacking] = b"" if column.dtype.kind == "S" else ""
        if untyped:
            column, missing = _typed(column, f"{self.where}: its {name}", untyped)
            return column, missing | null
        if column.dtype.kind != "S":
            return column, null
        try:
            return np.char.decode(column, "utf-8").astype(STRINGS), null
        except UnicodeDecodeError:
            raise BadInput(f"{self.where}: its {name} isn't UTF-8; convert the file") from None

    def describe(self) -> str:
        """Say by what its rows were joined with those of the corpus, and with how many."""
        by_id = self._places_by_id
        if by_id is None:
            lacking = "it has no column id" if self._corpus_has_ids else "the corpus has no ids"
            return f"{self.where}: joined by the order of the rows, as {lacking}"
        joined, rows = int((by_id >= 0).sum()), f"{len(by_id):,} rows of the corpus"
        return f"{self.where}: joined by its {self._name_of_ids}, with {joined:,} of {rows}"

    def _read(self, name: str) -> tuple[npt.NDArray[Any], BoolArray, str]:
        """Return a column of all files, what is missing, and what its texts may be."""
        blocks: list[npt.NDArray[Any]] = []
        nulls: list[BoolArray] = []
        untyped: list[str] = []
        for file in self.files:
            container, field = open_values(file, "", name)
            if len(field.shape) != 1:
                raise BadInput(
                    f"{container.locate(field)}: the column doesn't have one value per row; use "
                    "another column"
                )
            own = (FLAGS if field.dtype.kind == "b" else NUMBERS) * container.untyped(field)
            dtype = STRINGS if own else field.dtype
            field = replace(field, dtype=dtype, empty_for_null=dtype.kind in "biufT")
            for block in container.blocks(field, 0, field.shape[0]):
                values, missing = _without_texts(block, dtype, container.locate(field))
                blocks.append(values)
                nulls.append(missing)
                untyped.append(own)
        if not blocks:
            raise BadInput(f"{self.where}: the table has no rows; name another file")
        texts = [
            block.dtype.kind == "T" and not own for block, own in zip(blocks, untyped, strict=True)
        ]
        if any(not nulls[place].all() for place in np.flatnonzero(texts)):
            flags = False
        else:  # a column without any value has no type
            untyped = [own or NUMBERS * text for own, text in zip(untyped, texts, strict=True)]
            flags = FLAGS in untyped or any(block.dtype.kind == "b" for block in blocks)
        maybe = FLAGS if flags else NUMBERS
        if not all(untyped):
            where = f"{self.where}: its {name}"
            for place in np.flatnonzero(untyped).tolist():
                blocks[place], nulls[place] = _beside_typed(blocks[place], where, maybe)
        if len({block.dtype.kind == "T" for block in blocks}) > 1:
            raise BadInput(
                f"{self.where}: its {name} is text in one file and numbers in another; fix it"
            )
        return self._joined(blocks, name), np.concatenate(nulls), maybe * all(untyped)

    def _joined(self, blocks: Sequence[npt.NDArray[Any]], name: str) -> npt.NDArray[Any]:
        """Return the values of all files, and refuse whole numbers that would lose digits."""
        whole = [block for block in blocks if block.dtype.kind in "iu" and block.size]
        if not any(block.max() >= EXACT or block.min() <= -EXACT for block in whole):
            return np.concatenate(blocks)
        # Of a file in which all are missing, the type is often that of floats.
        blocks = [np.zeros(len(each), np.int64) if _is_missing(each) else each for each in blocks]
        joined = np.concatenate(blocks)
        if joined.dtype.kind != "f":
            return joined
        if all(block.dtype.kind in "iu" for block in blocks):
            for dtype in (np.int64, np.uint64):
                limits = np.iinfo(dtype)
                if all(limits.min <= each.min() and each.max() <= limits.max for each in whole):
                    return np.concatenate(blocks, dtype=dtype, casting="unsafe")
        raise BadInput(
            f"{self.where}: its {name} has whole numbers beyond 2**53 in one file, and in another "
            "negative ones or fractions, so digits are lost; make text of them"
        )

    def _as_given(self, texts: npt.NDArray[Any], known: npt.NDArray[Any]) -> npt.NDArray[Any]:
        """Return ids as they were before they were written as CSV, if the corpus has more such."""
        escaped = np.flatnonzero(np.strings.startswith(texts, "'"))
        if not len(escaped) or not any(file.suffix == ".csv" for file in self.files):
            return texts
        written = texts[escaped].tolist()
        given = [unescape_formula(text) for text in written]
        there = set(known.tolist())
        if sum(one in there for one in given) <= sum(one in there for one in written):
            return texts
        texts = texts.copy()
        texts[escaped] = given
        return texts

    def _places_by_order(self, rows: int) -> Int64Array | slice:
        """Return the row of the table for every row of the corpus, by their order."""
        corpus = self.corpus
        if rows == corpus.n:
            return slice(None)
        if rows == corpus.source_count:
            return corpus.source_rows(np.arange(corpus.n))
        of_sources = corpus.source_count
        also = f", and its sources {of_sources}" if of_sources != corpus.n else ""
        by_id = (
            "a column id with the ids of the corpus"
            if self._corpus_has_ids
            else "ingest the corpus again with ids"
        )
        has = f"{corpus.url} has {corpus.n}"
        if corpus.excluded:
            has = f"{corpus.n} rows of {corpus.url} were measured"
        raise BadInput(
            f"{self.where}: the table has {rows} rows, but {has}{also}; give one row for each, in "
            f"the same order, or {by_id}"
        )

    @cached_property
    def _places_by_id(self) -> Int64Array | None:
        """The row of the table for every row of the corpus by its id, or -1; None without ids."""
        name = self._name_of_ids
        if name is None:
            return None
        column, null, _ = self._read(name)
        if column.dtype.kind == "f" and (np.abs(column[~null]) >= EXACT).any():
            raise BadInput(
                f"{self.where}: its {name} has numbers beyond 2**53 that aren't whole numbers by "
                "their type, so digits are lost; make text of them"
            )
        texts = column.astype(STRINGS) if column.dtype.kind != "S" else _decoded(column)
        texts[null] = ""
        known = np.concatenate(list(self.corpus.companion_blocks("ids"))).astype(STRINGS)
        texts = self._as_given(texts, known)
        for written in (np.asarray, _as_whole_numbers):
            given = written(texts)
            if len(given) in {self.corpus.n, self.corpus.source_count}:
                places = np.arange(len(given))[self._places_by_order(len(given))]
                if (given[places] == known).all():
                    return places
            there = np.flatnonzero(given != "")
            places = self._find(known, given[there], name)
            if (places >= 0).any():
                return np.where(places < 0, -1, there[places])
        such = f" (the first is {texts[0]!r})" if len(texts) else ""
        raise BadInput(
            f"{self.where}: no value of its {name}{such} is an id of {self.corpus.url} (the first "
            f"is {known[0]!r}); give the ids of the corpus, or name the column otherwise if the "
            "rows are in the order of the corpus"
        )

    def _find(self, known: npt.NDArray[Any], given: npt.NDArray[Any], name: str) -> Int64Array:
        """Return where every id of the corpus is among those of the table; -1 where it isn't."""
        if not len(given):
            return np.full(len(known), -1)
        given_numbers, known_numbers = number_texts(given, known)
        order = np.argsort(given_numbers, kind="stable")
        ordered = given_numbers[order]
        repeated = np.flatnonzero(ordered[1:] == ordered[:-1])
        taken = repeated[np.isin(ordered[repeated], known_numbers)]
        if len(taken):
            such = given[order[taken[0]]]
            raise BadInput(
                f"{self.where}: its {name} has {such!r} in several rows; give one row for each id"
            )
        found = np.minimum(np.searchsorted(ordered, known_numbers), len(given) - 1)
        return np.where(ordered[found] == known_numbers, order[found], -1).astype(np.int64)

    @property
    def _corpus_has_ids(self) -> bool:
        return "ids" in self.corpus.manifest.arrays

    @cached_property
    def _name_of_ids(self) -> str | None:
        """The name of the table's column of ids, in any case, if both have ids."""
        names = COLUMNS["ids"] if self._corpus_has_ids else ()
        for name in (write(name) for write in (str, str.upper, str.title) for name in names):
            with contextlib.suppress(UnknownField):
                _, field = open_values(self.files[0], "", name)
                if len(field.shape) == 1 and field.dtype.kind in f"{KINDS}f" and not field.dated:
                    return name
        return None


def _decoded(column: npt.NDArray[Any]) -> npt.NDArray[Any]:
    return np.char.decode(column, "utf-8", "replace").astype(STRINGS)


def _beside_typed(
    texts: npt.NDArray[Any], where: str, maybe: str
) -> tuple[npt.NDArray[Any], BoolArray]:
    """Return untyped texts beside values that have a type: as such, also if all are missing."""
    if maybe == NUMBERS and (texts == "").all():
        return np.full(len(texts), np.nan), np.ones(len(texts), dtype=bool)
    return _typed(texts, where, maybe)


def _typed(texts: npt.NDArray[Any], where: str, maybe: str) -> tuple[npt.NDArray[Any], BoolArray]:
    """Return texts as what they may be, if all of them are, and which are missing."""
    if maybe == NUMBERS:
        return _numbers(texts, where)
    missing, true = np.asarray(texts == "", bool), np.asarray(texts == "True", bool)
    return (true if (missing | true | (texts == "False")).all() else texts), missing


def _is_missing(values: npt.NDArray[Any]) -> bool:
    return values.dtype.kind == "f" and bool(np.isnan(values).all())


def _as_whole_numbers(texts: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Return 7 for 7.0: a column of whole numbers of which one was missing is written so."""
    whole = np.strings.endswith(texts, ".0")
    return np.where(whole, np.strings.rpartition(texts, np.array(".", STRINGS))[0], texts)


def _numbers(texts: npt.NDArray[Any], where: str) -> tuple[npt.NDArray[Any], BoolArray]:
    """Return the cells of a text file as numbers if all are, and which of them are missing.

    Digits behind a zero are a code, such as 01234.
    """
    empty = np.asarray(texts == "", bool)
    codes = np.strings.startswith(texts, "0") & (np.strings.str_len(texts) > 1)
    plain = empty.all() or (np.strings.find(texts, "_") >= 0).any()  # 1_000 is Python's
    plain |= (codes & np.strings.isdigit(texts)).any()
    if plain:
        return texts, empty
    missing = empty | np.logical_or.reduce([texts == word for word in ("nan", "NaN", "NAN")])
    for dtype in () if missing.all() else (np.int64, np.uint64):
        with contextlib.suppress(ValueError, OverflowError):
            return np.where(missing, "0", texts).astype(dtype), missing
    with contextlib.suppress(ValueError, OverflowError):
        values = np.where(missing, "nan", texts).astype(np.float64)
        digits = np.strings.isdigit(np.strings.lstrip(texts, np.array("+-", STRINGS)))
        if (digits & (np.abs(values) >= EXACT) & (np.abs(values) < 2.0**64)).any():
            raise BadInput(
                f"{where} has whole numbers beyond 2**53 beside negative ones or fractions, so "
                "digits are lost; make text of them"
            )
        return values, missing | np.isnan(values)
    return texts, empty


def _without_texts(
    block: npt.NDArray[Any], dtype: np.dtype[Any], where: str
) -> tuple[npt.NDArray[Any], BoolArray]:
    """Return a block of values in their own dtype, and which of them are missing.

    Whole numbers and booleans are read as texts where one is missing. A missing text is empty.
    """
    if block.dtype.kind == "f":
        return block, np.isnan(block)
    if block.dtype.kind not in "ST":
        return block, np.zeros(len(block), bool)
    missing = np.asarray(block == (b"" if block.dtype.kind == "S" else ""), bool)
    if dtype.kind not in "biu":
        return block, missing
    if dtype.kind == "b":
        return block == "True", missing
    try:
        return np.where(missing, "0", block).astype(dtype), missing
    except (ValueError, OverflowError):
        wrong = next(text for text in block.tolist() if text and not _fits(text, dtype))
        raise BadInput(
            f"{where}: {wrong[:40]!r} isn't a whole number, as the first are; fix it"
        ) from None


def _fits(text: str, dtype: np.dtype[Any]) -> bool:
    limits = np.iinfo(dtype)
    whole = re.fullmatch(r"[+-]?\d+", text) is not None
    return whole and limits.min <= int(text) <= limits.max
