"""Vectors that are spread over the columns of a table, one dimension each.

Columns whose names differ in a number at their end belong together, in the order of the numbers:
``emb_0 … emb_383`` is one field, ``emb_*``. Where no columns are numbered, all float columns
together are one field, ``*``.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Mapping

import numpy as np

from latentscale_pipeline.corpus.formats.container import Field


def joined_fields(columns: Mapping[str, np.dtype[np.floating]], rows: int) -> list[Field]:
    """Join the float columns of a table to fields of vectors.

    Parameters
    ----------
    columns : mapping of str to numpy dtype
        The float columns, in the table's order.
    rows : int
        How many rows the table has.
    """
    numbered: defaultdict[str, dict[int, str]] = defaultdict(dict)
    for name in columns:
        match = re.fullmatch(r"(.*?)(\d+)", name, re.DOTALL)
        if match:
            numbered[match[1]][int(match[2])] = name
    groups = {
        f"{stem}*": tuple(members[number] for number in sorted(members))
        for stem, members in numbered.items()
        if len(members) > 1
    }
    if not groups and len(columns) > 1:
        groups = {"*": tuple(columns)}
    return [
        Field(name, (rows, len(members)), np.result_type(*(columns[m] for m in members)), members)
        for name, members in groups.items()
    ]
