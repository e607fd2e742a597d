"""The scores of the shares of labels."""

from latentscale_pipeline.results.definitions import ScoreDefinition, define_scores
from latentscale_pipeline.results.model import SHARE_OF_ROWS

SCORES = define_scores(
    "label_shares",
    {
        "share": ScoreDefinition(
            "Rows",
            "Share of the corpus with a label: the least usual one beside the reference, and up to "
            "four more that aren't usual. Their ranges hold the shares of all labels together.",
            unit=SHARE_OF_ROWS,
            size_dependent=False,
            headline=True,
            unusual_only=True,
            least=0.0,
            most=1.0,
            error_method="counts",
        ),
    },
)
