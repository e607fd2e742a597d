"""The scores of GeomCA."""

from latentscale_pipeline.results.definitions import ScoreDefinition, define_scores

SCORES = define_scores(
    "geomca",
    {
        "precision": ScoreDefinition(
            "GeomCA precision",
            "Share of the thinned corpus that lies in components which it shares with the "
            "reference.",
            unit="fraction",
            better="high",
            least=0.0,
            most=1.0,
        ),
        "recall": ScoreDefinition(
            "GeomCA recall",
            "Share of the thinned reference that lies in components which it shares with the "
            "corpus: how much of the reference is covered.",
            unit="fraction",
            better="high",
            least=0.0,
            most=1.0,
        ),
        "consistency": ScoreDefinition(
            "GeomCA consistency",
            "How balanced the thinned points are over the whole graph: 1 for equally many of "
            "both corpora, 0 for points of only one.",
            unit="fraction",
            better="high",
            headline=True,
            least=0.0,
            most=1.0,
        ),
        "quality": ScoreDefinition(
            "GeomCA quality",
            "Share of all edges that join a point of the corpus with a point of the reference.",
            unit="fraction",
            better="high",
            least=0.0,
            most=1.0,
        ),
        "precision_rows": ScoreDefinition(
            "GeomCA precision in rows",
            "Precision counted in rows of the corpus, each row with the point that stands "
            "for it after thinning.",
            unit="fraction",
            better="high",
            headline=True,
            relation="similarity",
            exchanged="recall_rows",
            least=0.0,
            most=1.0,
        ),
        "recall_rows": ScoreDefinition(
            "GeomCA recall in rows",
            "Recall counted in rows of the reference, each row with the point that stands "
            "for it after thinning.",
            unit="fraction",
            better="high",
            headline=True,
            least=0.0,
            most=1.0,
        ),
    },
)
