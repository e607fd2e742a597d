"""What the report says of the maximum mean discrepancy."""

from __future__ import annotations

from latentscale_pipeline.measures.base import MeasureReport
from latentscale_pipeline.measures.mmd.results import DiscrepancyOfPair, MmdResults
from latentscale_pipeline.measures.mmd.scores import SCORES
from latentscale_pipeline.views.formatting import format_number

METHODS = {
    "pairs": "all pairs of the rows in groups",
    "features": "the means of the rows in groups",
    "fourier": "random Fourier features of the rows in groups",
}
"""What each method looks at."""


class MmdReport(MeasureReport):
    """Whether both corpora have the same distribution."""

    group = "Shape"
    title = "Same distribution: maximum mean discrepancy"
    question = "Whether the rows of both corpora can come from one distribution."
    source = "Gretton et al., A kernel two-sample test, JMLR 2012, equation 3 and section 2.3"
    scores = SCORES

    def methods(self, found: MmdResults) -> list[tuple[str, str]]:
        """Return how each discrepancy was computed and tested."""
        return [(f"MMD², {entry.kernel}", _method(entry)) for entry in found.pair]


def _method(entry: DiscrepancyOfPair) -> str:
    width = "" if entry.bandwidth is None else f", bandwidth {format_number(entry.bandwidth)}"
    (ours, theirs), (rows, usual) = entry.groups, entry.rows
    alone = rows == ours and usual == theirs
    size = "of one row" if alone else f"with {rows:,} and {usual:,} rows in all"
    return (
        f"{METHODS[entry.method]}{width}; p is the share of {entry.divisions:,} random divisions "
        f"of {ours:,} and {theirs:,} groups {size} that differ as much"
    )
