"""Rows that have no partner in the other corpus: in the results, and in words."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from latentscale_pipeline.results.part import Part, Share
from latentscale_pipeline.views.formatting import format_share, printable, shorten

FEW = 0.001
"""Share of unpaired rows up to which nobody needs to know."""


class UnpairedRows(Part):
    """Rows of a corpus that have no partner in the other."""

    share: Share
    """Share of the rows."""
    ids: list[str]
    """Ids of some of them."""


def unpaired_rows(paired: Mapping[str, Any], role: str) -> UnpairedRows:
    """Return the rows of a corpus without a partner, from what the pairing found."""
    return UnpairedRows(
        share=paired.get("unpaired", {}).get(role, 0.0),
        ids=paired.get("examples", {}).get(role, []),
    )


def describe_unpaired(corpus: UnpairedRows, reference: UnpairedRows) -> Iterator[str]:
    """Say of each corpus which rows have no partner, if they are more than a few."""
    for role, part in (("corpus", corpus), ("reference", reference)):
        if part.share > FEW:
            named = ", ".join(printable(shorten(each, 40)) for each in part.ids)
            yield (
                f"{format_share(part.share)} of the {role}'s rows have no partner ({named}, …), "
                "and aren't compared"
            )
