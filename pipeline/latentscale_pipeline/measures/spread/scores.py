"""The scores of spread."""

from latentscale_pipeline.results.definitions import ScoreDefinition, define_scores

SCORES = define_scores(
    "spread",
    {
        "spread": ScoreDefinition(
            "Spread",
            "Between 1, when all rows are equal, and the number of distinct rows, when all are far "
            "apart. A row counts by how little similarity it has with all rows; the larger the "
            "scale, the nearer are rows that count as similar. At scale 1 most pairs are similar, "
            "and it is hardly above e = 2.7.",
            unit="effective items",
            better="high",
            headline=True,
            least=1.0,
            error_method="jackknife",
        ),
        "DCScore": ScoreDefinition(
            "DCScore",
            "The spread under the cosine distance at the scale 1/τ: the trace of a softmax of the "
            "cosines. At τ = 1 it is at most e² ≈ 7.4, however many rows there are.",
            unit="effective items",
            better="high",
            headline=True,
            least=1.0,
            error_method="jackknife",
        ),
    },
)
