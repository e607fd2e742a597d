"""Entries of a history, written by processes that import little."""

from typing import Any

from latentscale_pipeline.history.entries import make_entry
from latentscale_pipeline.history.registry import Registry
from tests.support.comparisons import results, row
from tests.support.results_documents import finished_job


def night(number: int, value: float = 3.0, **known: Any) -> Any:
    """An entry of a night's job with one score."""
    document = results([row(value, 0.5, sampling_error=0.25)])
    document["job"] |= {
        "id": f"nightly-{number:08d}",
        "finished": f"2026-01-{number:02d}T02:00:00Z",
    }
    document["timings"] = [
        {"seconds": 40.0, "peak_memory_bytes": 3 * 2**29},
        {"seconds": 50.0, "peak_memory_bytes": None},
    ]
    return make_entry(finished_job(document, None, f"jobs/nightly-{number:08d}"), **known)


def register_nights(place: str, first: int, count: int = 6) -> None:
    registry = Registry.at(place)
    for number in range(first, first + count):
        registry.add(night(number))
        registry.tag("newest", f"nightly-{number:08d}")
