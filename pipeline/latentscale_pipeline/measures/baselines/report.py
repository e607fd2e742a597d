"""What the report says of the baselines."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

from latentscale_pipeline.measures.base import MeasureReport
from latentscale_pipeline.views.glossary import Definition


class BaselinesReport(MeasureReport):
    """What other tools report of the same rows."""

    group = "Coverage"
    title = "Baselines: scores that other tools report"
    question = (
        "What other tools report of the same rows, so that results can be compared with theirs."
    )
    source = (
        "Heusel et al. 2017 (FID); Bińkowski et al. 2018 (KID); Kynkäänniemi et al. 2019 "
        "(precision and recall); Naeem et al. 2020 (density and coverage); "
        "Salvy et al. 2026 (clipped density and coverage)"
    )
    scores: ClassVar[Mapping[str, Definition]] = {
        "mean similarity": Definition(
            "Mean similarity",
            "Mean cosine similarity of two different rows; lower means more diverse.",
        ),
        "IntDiv": Definition(
            "IntDiv", "One minus the mean cosine similarity of all pairs of rows."
        ),
        "GMStds": Definition(
            "GMStds", "Geometric mean of the standard deviations of the coordinates."
        ),
        "FID": Definition(
            "FID",
            "Fréchet distance of two normal distributions with the corpora's means and "
            "covariances.",
            headline=True,
            relation="distance",
            least=0.0,
        ),
        "KID": Definition(
            "KID",
            "Squared distance of the corpora's mean embeddings under a cubic kernel.",
            headline=True,
            relation="distance",
        ),
        "precision": Definition(
            "Improved precision",
            "Share of the corpus within the balls that the reference's neighbours span.",
            headline=True,
            relation="similarity",
            exchanged="recall",
            least=0.0,
            most=1.0,
        ),
        "recall": Definition(
            "Improved recall",
            "Share of the reference within the balls that the corpus' nearest neighbours span.",
            headline=True,
            least=0.0,
            most=1.0,
        ),
        "density": Definition(
            "Density",
            "How many of the reference's balls a row of the corpus lies in, over k.",
            headline=True,
            least=0.0,
        ),
        "coverage": Definition(
            "Coverage",
            "Share of the reference's balls that hold a row of the corpus.",
            headline=True,
            least=0.0,
            most=1.0,
        ),
        "clipped density": Definition(
            "Clipped density",
            "Share of the corpus's rows that are as typical as the reference's own: density, which "
            "a few rows can't raise.",
            least=0.0,
            most=1.0,
        ),
        "clipped coverage": Definition(
            "Clipped coverage",
            "Share of good rows that would fill the reference's balls as the corpus does.",
            least=0.0,
            most=1.0,
        ),
    }
