"""Write scores in Prometheus' text format, or in OpenMetrics.

Scores are samples of the gauge ``latentscale_score``, distinguished by labels. Brackets and
sampling errors are gauges with the same labels. The job's id isn't a label, because it changes with
every corpus, so that every job would start a new series. It is in ``latentscale_job_info``. A score
that is null has no sample.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import datetime
from typing import Any

from latentscale_pipeline.errors import BadInput, how_to_install
from latentscale_pipeline.measures.finished_job import FinishedJob
from latentscale_pipeline.results.model import Score
from latentscale_pipeline.views.formatting import format_number

CLIENT_MISSING = (
    f"metrics are written by prometheus-client, which isn't installed; {how_to_install('metrics')}"
)

JOB_LABEL = "job_name"
NO_LABEL = "(no label)"
"""The label of rows that have none."""

NAMING = ("measure", "of", "score", "kernel", "order", "label", "scale", "unit", "bounds")

GAUGES: Mapping[str, tuple[str, str]] = {
    "value": ("latentscale_score", "A score of a finished job."),
    "lower": ("latentscale_score_lower", "Lower end of a score's bracket."),
    "upper": ("latentscale_score_upper", "Upper end of a score's bracket."),
    "sampling_error": (
        "latentscale_score_sampling_error",
        "Standard error over fresh samples from the same source.",
    ),
}


def format_metrics(jobs: Sequence[FinishedJob], *, openmetrics: bool = False) -> bytes:
    """Return the scores of some finished jobs.

    Parameters
    ----------
    jobs : sequence of FinishedJob
        Jobs with different names; the jobs of one name form one set of series.
    openmetrics : bool
        Write OpenMetrics, which ends with ``# EOF``, instead of Prometheus' text format.

    Raises
    ------
    BadInput
        If two jobs have the same name, or prometheus-client isn't installed.
    """
    names = [job.name for job in jobs]
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        raise BadInput(f"two jobs are named {twice!r} and would share a series; export one of them")
    try:
        from prometheus_client import CollectorRegistry
        from prometheus_client import exposition as text
        from prometheus_client.openmetrics import exposition as open_text
    except ImportError:
        raise BadInput(CLIENT_MISSING) from None
    registry = CollectorRegistry(auto_describe=False)
    registry.register(_Collector(jobs))
    write: Callable[[Any], bytes] = (
        open_text.generate_latest if openmetrics else text.generate_latest
    )
    return write(registry)


class _Collector:
    """A collector for prometheus-client."""

    def __init__(self, jobs: Sequence[FinishedJob]) -> None:
        self._jobs = jobs

    def collect(self) -> Iterator[Any]:
        from prometheus_client.core import GaugeMetricFamily

        for field, (name, meaning) in GAUGES.items():
            family = GaugeMetricFamily(name, meaning, labels=(JOB_LABEL, *NAMING))
            for job in self._jobs:
                for score in job.scores:
                    number = getattr(score, field)
                    if score.value is not None and number is not None:
                        family.add_metric([job.name, *_labels(score)], number)
            yield family
        info = GaugeMetricFamily(
            "latentscale_job_info",
            "Which job the scores of a name are from.",
            labels=(JOB_LABEL, "job_id", "version"),
        )
        finished = GaugeMetricFamily(
            "latentscale_job_finished_timestamp_seconds",
            "When that job was finished, in seconds since 1970.",
            labels=(JOB_LABEL,),
        )
        for job in self._jobs:
            info.add_metric([job.name, job.id, job.version], 1.0)
            if job.finished:
                finished.add_metric([job.name], datetime.fromisoformat(job.finished).timestamp())
        yield info
        yield finished


def _labels(score: Score) -> list[str]:
    return [_text(getattr(score, name)) for name in NAMING]


def _text(field: Any) -> str:
    if field is None:
        return ""
    if isinstance(field, float):
        return format_number(field, 6)
    # An empty label is that of rows without one, and no label that of all rows.
    return f'"{field}"' if str(field).strip('"') == NO_LABEL else str(field) or NO_LABEL
