"""Vendi scores: their names, meanings and limits."""

from latentscale_pipeline.results.definitions import ScoreDefinition, define_scores

SCORES = define_scores(
    "vendi",
    {
        "vendi": ScoreDefinition(
            "Vendi score",
            "Between 1, when all items are alike, and n, when all are completely dissimilar; "
            "low orders give rare kinds of items more weight, high orders common ones.",
            unit="effective items",
            better="high",
            least=1.0,
            grows_with_rows=True,
            error_method="jackknife",
            error_freedom=19,
        ),
        "truncated_vendi": ScoreDefinition(
            "Truncated Vendi score",
            "The score of the t largest eigenvalues, with the weight of the others spread over "
            "them; at most t. It settles once there are a few times t rows, where the whole score "
            "may still grow with n.",
            unit="effective items",
            better="high",
            least=1.0,
            error_method="jackknife",
            error_freedom=19,
        ),
    },
)
