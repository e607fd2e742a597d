"""The scores of an alignment."""

from latentscale_pipeline.results.definitions import ScoreDefinition, define_scores

SCORES = define_scores(
    "alignment",
    {
        "CKA, debiased": ScoreDefinition(
            "CKA, debiased",
            "Correlation of the similarities between items by both models: 1 if one is a rotation "
            "of the other, near 0 if they have nothing in common. The number of items and of "
            "dimensions doesn't matter.",
            unit="correlation",
            better="high",
            size_dependent=False,
            headline=True,
            relation="similarity",
            most=1.0,
            error_method="jackknife",
            error_freedom=19,
        ),
        "CKA": ScoreDefinition(
            "CKA",
            "The same as most papers print it. For few items in many dimensions it is large for "
            "any two models.",
            unit="correlation",
            better="high",
            least=0.0,
            most=1.0,
            error_method="jackknife",
            error_freedom=19,
        ),
        "neighbour overlap": ScoreDefinition(
            "Neighbour overlap",
            "Share of the nearest neighbours of an item that both models agree on, on average.",
            unit="share",
            better="high",
            headline=True,
            relation="similarity",
            least=0.0,
            most=1.0,
            error_method="jackknife",
            error_freedom=19,
        ),
        "no common neighbour": ScoreDefinition(
            "No common neighbour",
            "Share of the items whose nearest neighbours by one model are all others than by the "
            "other.",
            unit="share of items",
            better="low",
            least=0.0,
            most=1.0,
            error_method="counts",
            error_freedom=19,
        ),
    },
)
