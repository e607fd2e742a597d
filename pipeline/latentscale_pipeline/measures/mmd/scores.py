"""The scores of maximum mean discrepancy."""

from latentscale_pipeline.results.definitions import ScoreDefinition, define_scores

SCORES = define_scores(
    "mmd",
    {
        "mmd": ScoreDefinition(
            "MMD²",
            "Squared distance between the mean embeddings of both corpora; 0 on average, below 0 "
            "as often as above, if they have the same distribution.",
            unit="kernel",
            better="low",
            size_dependent=False,
            headline=True,
            relation="distance",
            error_method="jackknife",
            error_freedom=19,
        )
    },
)
