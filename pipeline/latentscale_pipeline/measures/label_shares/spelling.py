"""Labels of two corpora that differ in their spelling alone, as 1.0 and 1, or True and true."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Collection, Iterator

from latentscale_pipeline.views.formatting import counted, shorten


def note_spelling(ours: Collection[str], theirs: Collection[str]) -> str | None:
    """Name labels of one corpus that are labels of the other in another spelling.

    Parameters
    ----------
    ours, theirs : collection of str
        The labels of the corpus and of the reference.

    Returns
    -------
    str or None
        A sentence, or None if there are no such labels.
    """
    pairs = sorted(
        {
            *_spelt_otherwise(ours, theirs),
            *((label, other) for other, label in _spelt_otherwise(theirs, ours)),
        }
    )
    if not pairs:
        return None
    own, other = map(shorten, pairs[0])
    more = f", and {counted(len(pairs) - 1, 'more such pair')}" if len(pairs) > 1 else ""
    return (
        f"Labels were compared as they are spelt, and '{own}' of the corpus may be '{other}' of "
        f"the reference{more}: if so, spell them alike."
    )


def _spelt_otherwise(labels: Collection[str], others: Collection[str]) -> Iterator[tuple[str, str]]:
    """Yield labels that the others lack, each with one of them that differs in spelling alone."""
    spelt = {_plain(label): label for label in sorted(others)}
    for label in set(labels) - set(others):
        if (plain := _plain(label)) in spelt:
            yield label, spelt[plain]


def _plain(label: str) -> str:
    """Return a label without what spellings differ in: case, spaces, forms of numbers."""
    text = " ".join(unicodedata.normalize("NFKC", label).casefold().split())
    return re.sub(r"^([+-]?\d+)\.0*$", r"\1", text)
