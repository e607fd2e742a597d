"""The promise on modes at its full count; run as ``modes-planted``."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from tests.support.jobs import results_of

if TYPE_CHECKING:
    from tests.acceptance.run import Bench

GIB = 2**30
MILLION, DIMENSION, KINDS = 1_000_000, 384, 200
PLANTED, AT_ONCE = 0.005, 100_000


def _write(path: Path, centres: np.ndarray, share: float, seed: int) -> np.ndarray:
    """Write rows around centres, of which some are around the last; return which."""
    generator = np.random.default_rng([11, seed])
    rows = np.lib.format.open_memmap(path, "w+", "f4", (MILLION, DIMENSION))
    planted = generator.random(MILLION) < share
    for start in range(0, MILLION, AT_ONCE):
        chosen = slice(start, start + AT_ONCE)
        kinds = generator.integers(KINDS, size=AT_ONCE)
        kinds[planted[chosen]] = KINDS
        noise = generator.standard_normal((AT_ONCE, DIMENSION), dtype=np.float32)
        rows[chosen] = centres[kinds] + 0.5 * noise
    rows.flush()
    return planted


def a_planted_kind_is_found(bench: Bench) -> list[dict[str, Any]]:
    """A kind of half a percent of a million rows is the first mode, and its rows are named."""
    from tests.acceptance.run import record, watch

    centres = np.random.default_rng(10).standard_normal((KINDS + 1, DIMENSION)).astype("f4")
    places = {role: bench.folder / f"modes-{role}.npy" for role in ("corpus", "reference")}
    planted = _write(places["corpus"], centres, PLANTED, 0)
    _write(places["reference"], centres, 0.0, 1)
    config = bench.job(
        "modes",
        places["corpus"],
        places["reference"],
        measures={"modes": {"examples": 100}},
        cluster={"kind": "local", "workers": 2, "memory_limit": 2 * GIB},
    )
    watched = watch("run", config)
    figures: dict[str, Any] = watched.figures()
    right, first = 0.0, False
    if watched.code == 0:
        results = results_of(bench.output("modes"))
        mode, second, *_ = results["measures"]["modes"]["novel"]
        named = np.array([row["row"] for row in mode["rows"]])
        right, first = float(planted[named].mean()), mode["value"] > 2 * second["value"]
        p = {row["score"]: row["expected"]["p"] for row in results["scores"]}
        figures |= {"rows_right": right, "value": mode["value"], "second": second["value"], "p": p}
    for place in places.values():
        place.unlink()
    promise = f"a kind of {PLANTED:.1%} of {MILLION} rows beside {MILLION} is the first mode"
    held = watched.code == 0 and first and right >= 0.95
    return [record(promise, figures, "rows_right >= 0.95, first by far", held)]
