"""The scores of the shares of labels."""

from latentscale_pipeline.results.definitions import ScoreDefinition, define_scores
from latentscale_pipeline.results.model import SHARE_OF_ROWS

SCORES = define_scores(
    "label_shares",
    {
        "share": ScoreDefinition(
            "Rows of the least usual label",
            "Share of the corpus with the label whose share is least usual beside the reference; "
            "its range holds the shares of all labels together.",
            unit=SHARE_OF_ROWS,
            size_dependent=False,
            headline=True,
            least=0.0,
            most=1.0,
        ),
    },
)
