"""A corpus as it was before rows were appended to it."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace

import numpy as np

from latentscale_pipeline.corpus.corpus import Corpus
from latentscale_pipeline.corpus.fingerprint import (
    BLOCK_ROWS,
    DIGEST_BYTES,
    Fingerprint,
    subset_fingerprint,
)


def find_earlier(
    corpus: Corpus, n: int, fingerprint: str, excluded: Collection[str] = ()
) -> Corpus | None:
    """Return the corpus as it was when its rows had a fingerprint.

    Parameters
    ----------
    corpus : Corpus
        All rows that are there now.
    n : int
        Number of rows that there were.
    fingerprint : str
        Theirs.
    excluded : collection of str
        Keys of shards whose rows weren't among them.

    Returns
    -------
    Corpus or None
        Without the rows that were appended since; None if its first rows are other ones.

    Notes
    -----
    Reads the digests of all blocks, and up to 1023 rows.
    """
    kept = corpus.without(excluded) if excluded else corpus
    if kept.n == n and kept.fingerprint == fingerprint:
        return kept
    shards = corpus.manifest.vectors.shards
    for cut in reversed(corpus.manifest.vectors.appended):
        later = corpus.without([shard.key for shard in shards[cut.first :]])
        before = replace(later, appended_rows=later.excluded_rows)
        kept = before.without(excluded) if excluded else before
        if kept.n == n:
            whole = _fingerprint_of_first(corpus, before.n)
            known = subset_fingerprint(whole, kept.kept_ranges()) if excluded else whole
            return kept if known == fingerprint else None
    return None


def _fingerprint_of_first(corpus: Corpus, n: int) -> str:
    """Return the fingerprint of the first rows of a corpus that was appended to."""
    stored = corpus.manifest.digests
    blocks = n // BLOCK_ROWS if stored is not None else 0
    known = bytes(corpus.read_object(stored))[: blocks * DIGEST_BYTES] if stored else b""
    none = np.empty((0, corpus.d), corpus.dtype)
    fingerprint = Fingerprint.after(known, none, corpus.dtype, corpus.d)
    for block in corpus.read_blocks("vectors", blocks * BLOCK_ROWS, n):
        fingerprint.update(block)
    return fingerprint.finish()
