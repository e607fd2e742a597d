"""What the report says of the baselines."""

from __future__ import annotations

from latentscale_pipeline.measures.base import MeasureReport
from latentscale_pipeline.measures.baselines.scores import SCORES


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
    scores = SCORES
