"""What the report says of the shares of labels."""

from __future__ import annotations

from latentscale_pipeline.measures.base import MeasureReport, Score
from latentscale_pipeline.measures.label_shares.results import LabelShare, LabelSharesResults
from latentscale_pipeline.measures.label_shares.scores import SCORES
from latentscale_pipeline.results.model import Results
from latentscale_pipeline.views.content import Table, table_of
from latentscale_pipeline.views.figure import (
    CHANCE,
    PLACE_HEIGHT,
    ROLE_STYLES,
    Curve,
    Figure,
    Panel,
)
from latentscale_pipeline.views.formatting import (
    counted,
    format_number,
    label_name,
    shorten,
)
from latentscale_pipeline.views.scores import format_p

DRAWN_LABELS = 10
"""Labels of the figure."""

REACH = 1.96
"""Standard errors that chance makes 95 times in 100."""


class LabelSharesReport(MeasureReport):
    """Which labels are more or less frequent than in the reference."""

    group = "Rows"
    of_labels = True
    title = "Labels: how frequent each is"
    question = "How frequent each label is; beside a reference, whether more or less than there."
    source = "Fisher's exact test of two shares, J. R. Stat. Soc. 1935"
    scores = SCORES

    def is_headline(self, score: Score) -> bool:
        """Return True: all scores are of labels that stand out."""
        return True

    def figures(self, found: LabelSharesResults, results: Results) -> list[Figure]:
        """Draw the labels whose shares differ most, in standard errors."""
        known = [each for each in found.labels if each.z is not None]
        if not known:
            return []
        shown = known[:DRAWN_LABELS][::-1]
        places = range(len(shown))
        # The grey reaches from the lower edge to the upper one.
        edges = [-0.5, len(shown) - 0.5]
        panel = Panel(
            "",
            "",
            "difference of the shares, in standard errors",
            [
                Curve(
                    CHANCE.name,
                    edges,
                    [0.0, 0.0],
                    [-REACH, -REACH],
                    [REACH, REACH],
                    line=False,
                    style=CHANCE,
                ),
                Curve(
                    "corpus",
                    places,
                    [each.z or 0.0 for each in shown],
                    points=True,
                    style=ROLE_STYLES["corpus"],
                    texts=[
                        f"{each.rows:,} rows beside {each.reference_rows or 0:,} of the reference"
                        for each in shown
                    ],
                ),
            ],
            places=[shorten(label_name(each.label)) for each in shown],
            turned=True,
            height=PLACE_HEIGHT * len(shown),
        )
        outside = sum(abs(each.z or 0.0) > REACH for each in known)
        caption = (
            f"Of {counted(len(known), 'label')}, the {len(shown)} that differ most. "
            f"{counted(outside, 'label lies', 'labels lie')} outside of the grey, where chance "
            f"alone puts {format_number(0.05 * len(known), 2)} of them."
        )
        return [Figure("label-shares", "Labels that differ most", caption, [panel])]

    def tables(self, found: LabelSharesResults) -> list[Table]:
        """Return the numbers of rows of every label."""
        rows = [_cells(each) for each in found.labels]
        first = "most frequent" if found.labels[0].z is None else "least usual"
        more = f" of {len(rows) + found.few:,}" if found.few else ""
        caption = f"Rows of every label: {len(rows):,}{more}, the {first} first"
        return [table_of(caption, rows, numeric=list(rows[0])[1:])]

    def notes(self, found: LabelSharesResults) -> list[str]:
        """Say what was left out."""
        if not found.few:
            return []
        few = counted(found.few, "label has", "labels have")
        if found.labels[0].z is None:
            return [f"{few} too few rows to be listed."]
        return [f"{few} too few rows in both corpora together to be compared."]


def _cells(found: LabelShare) -> dict[str, str]:
    own = {"label": label_name(found.label), "corpus": f"{found.rows:,}"}
    if found.reference_rows is None or found.z is None or found.p is None:
        return own
    return {
        **own,
        "reference": f"{found.reference_rows:,}",
        "standard errors": format_number(found.z, 2, typeset=True),
        "p, alone": format_p(found.p),
    }
