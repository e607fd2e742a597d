"""Labels of two corpora that differ in their spelling alone, as 1.0 and 1, or True and true."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Collection

from latentscale_pipeline.views.formatting import counted, shorten


def note_spelling(ours: Collection[str], theirs: Collection[str]) -> str | None:
    """Name labels of the corpus that the reference has in another spelling only.

    Parameters
    ----------
    ours, theirs : collection of str
        The labels of the corpus and of the reference.

    Returns
    -------
    str or None
        A sentence, or None if there are no such labels.
    """
    spelt = {_plain(label): label for label in sorted(set(theirs) - set(ours))}
    pairs = [
        (label, spelt[plain])
        for label in sorted(set(ours) - set(theirs))
        if (plain := _plain(label)) in spelt
    ]
    if not pairs:
        return None
    own, other = map(shorten, pairs[0])
    more = f", and {counted(len(pairs) - 1, 'more such pair')}" if len(pairs) > 1 else ""
    return (
        f"Labels were compared as they are spelt, and '{own}' of the corpus may be '{other}' of "
        f"the reference{more}: if so, spell them alike."
    )


def _plain(label: str) -> str:
    """Return a label without what spellings differ in: case, spaces, forms of numbers."""
    text = " ".join(unicodedata.normalize("NFKC", label).casefold().split())
    return re.sub(r"^([+-]?\d+)\.0*$", r"\1", text)
