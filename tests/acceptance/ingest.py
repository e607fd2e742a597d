"""The promise on the speed of ingest at its full size; run by ``make test-full`` as ``ingest``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from benchmarks.ingest import measure

if TYPE_CHECKING:
    from tests.acceptance.run import Bench

GIB_OF_SOURCE = 4
ROUNDS = 3


def four_gibibytes_at_the_speed_of_the_disk(bench: Bench) -> list[dict[str, Any]]:
    """Ingest 4 GiB of ``.npy``, each time after a plain copy of the same bytes with fsync."""
    from tests.acceptance.run import record

    figures = measure(bench.folder, GIB_OF_SOURCE, workers=1, iterations=ROUNDS)
    held = figures["median_rate_against_copy"] >= 0.5 and figures["largest_process_gib"] < 1
    return [
        record(
            "4 GiB of .npy are ingested at half the rate of a plain copy with fsync",
            figures,
            "median_rate_against_copy >= 0.5, largest_process_gib < 1",
            held,
        )
    ]
