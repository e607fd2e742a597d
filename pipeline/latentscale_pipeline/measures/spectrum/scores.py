"""The scores of a spectrum."""

from latentscale_pipeline.results.definitions import ScoreDefinition, define_scores

HALF_PRECISION = 1e-3
"""Relative difference of mean lengths that storing rows in half precision may make."""

SCORES = define_scores(
    "spectrum",
    {
        "effective rank": ScoreDefinition(
            "Effective rank",
            "Number of directions in which the rows vary: the exponential of the entropy of the "
            "principal components' shares of the variance.",
            unit="dimensions",
            headline=True,
            least=1.0,
            error_method="jackknife",
            error_freedom=7,
        ),
        "effective rank corrected": ScoreDefinition(
            "Effective rank, corrected",
            "An estimate of the effective rank with very many rows of the same source.",
            unit="dimensions",
            size_dependent=False,
            least=1.0,
            error_method="jackknife",
            error_freedom=7,
        ),
        "participation ratio": ScoreDefinition(
            "Participation ratio",
            "The same count, in which small components matter less: one over the sum of the "
            "squared shares.",
            unit="dimensions",
            least=1.0,
            error_method="jackknife",
            error_freedom=7,
        ),
        "participation ratio corrected": ScoreDefinition(
            "Participation ratio, corrected",
            "An estimate of the participation ratio with very many rows of the same source.",
            unit="dimensions",
            size_dependent=False,
            least=1.0,
            error_method="jackknife",
            error_freedom=7,
        ),
        "RankMe": ScoreDefinition(
            "RankMe",
            "Effective rank of the rows themselves, from their singular values; the mean counts as "
            "a direction.",
            unit="dimensions",
            least=1.0,
            error_method="jackknife",
            error_freedom=7,
        ),
        "IsoScore": ScoreDefinition(
            "IsoScore",
            "Whether all directions are used alike: 1 if they are, 0 if there is only one.",
            unit="share",
            least=0.0,
            most=1.0,
            error_method="jackknife",
            error_freedom=7,
        ),
        "first component": ScoreDefinition(
            "First component",
            "Share of the variance that the first principal component holds.",
            unit="share of the variance",
            least=0.0,
            most=1.0,
            error_method="jackknife",
            error_freedom=7,
        ),
        "mean length": ScoreDefinition(
            "Mean length",
            "Mean Euclidean length of the rows, which cosine measures can't see.",
            unit="distance",
            size_dependent=False,
            headline=True,
            resolution=HALF_PRECISION,
            least=0.0,
            error_method="jackknife",
            error_freedom=7,
        ),
        "length variation": ScoreDefinition(
            "Variation of lengths",
            "Standard deviation of the rows' lengths over their mean.",
            unit="deviation over mean",
            size_dependent=False,
            least=0.0,
            error_method="jackknife",
            error_freedom=7,
        ),
    },
)
