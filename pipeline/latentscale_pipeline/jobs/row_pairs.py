"""Refuse to pair rows by number where they aren't the same items."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import islice
from typing import Any

import numpy as np
import numpy.typing as npt

from latentscale_pipeline.corpus import Corpus
from latentscale_pipeline.errors import BadInput
from latentscale_pipeline.measures.base import Role
from latentscale_pipeline.views.formatting import shorten


def refuse_shifted_pairs(corpora: Mapping[Role, Corpus]) -> None:
    """Refuse corpora of which not the same rows were left out, or whose ids have another order.

    Ids that the other corpus doesn't have say nothing, as models may have names of their own. The
    first shard of ids of each corpus is compared.

    Raises
    ------
    BadInput
        If a row has another number in the reference.
    """
    dropped = {role: corpus.manifest.dropped for role, corpus in corpora.items()}
    rows = {
        (each.count, each.rows, each.all_rows and each.all_rows.xxh3) for each in dropped.values()
    }
    if len(rows) > 1:
        said = " and ".join(f"{each.count:,} of the {role}" for role, each in dropped.items())
        raise BadInput(
            f"pair: rows needs the same rows of both sources, and {said} were left out as invalid; "
            "fix the sources, or pair by ids, with pair: ids"
        )
    first = [block for corpus in corpora.values() for block in _first_ids(corpus)]
    if len(first) < 2:
        return
    length = min(map(len, first))
    ours, theirs = (block[:length] for block in first)
    elsewhere = np.flatnonzero((ours != theirs) & np.isin(ours, theirs))
    if elsewhere.size:
        row = int(elsewhere[0])
        place = int(np.flatnonzero(theirs == ours[row])[0])
        raise BadInput(
            f"pair: rows pairs rows of equal number, but row {row} of the corpus has the id "
            f"'{shorten(str(ours[row]))}', which row {place} of the reference has; "
            "pair by ids, with pair: ids, or leave out ids that aren't those of the items"
        )


def _first_ids(corpus: Corpus) -> Iterator[npt.NDArray[Any]]:
    return islice(corpus.companion_blocks("ids"), 1)
