"""The promises on rows at their full counts; run by ``make test-full`` as ``rows-…``."""

from __future__ import annotations

import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from tests.acceptance.run import Bench

Rows = np.ndarray[Any, np.dtype[Any]]

SEEDS = 3
NOISE = 1e-3
WITHIN = 0.005
"""Distance of near-duplicates: injected ones are at about 0.0002 of unit rows."""


def injected_rows_are_found(bench: Bench) -> list[dict[str, Any]]:
    """Inject near-duplicates, copies of reference rows and outliers into half of all rows."""
    from tests.acceptance.run import record

    worst: dict[str, float] = {}
    begun = time.perf_counter()
    for seed in range(SEEDS):
        for name, value in _find_injected(bench.rows.astype("f4"), seed).items():
            worst[name] = min(worst.get(name, 1.0), value)
    worst["seconds"] = (time.perf_counter() - begun) / SEEDS
    limits = {"near-duplicates": 0.99, "leaks": 0.99, "outliers": 0.95}
    held = all(
        worst[f"{name}, {which}"] >= least
        for name, least in limits.items()
        for which in ("precision", "recall")
    )
    half = len(bench.rows) // 2
    promise = (
        f"of {half} rows against {half} others, 5 % made near-duplicates, 2 % copies of reference "
        f"rows, 1 % outliers: rows named, worst of {SEEDS} tries"
    )
    limit = "precision and recall at least 0.99 (near-duplicates, leaks), 0.95 (outliers)"
    return [record(promise, worst, limit, held)]


def _find_injected(rows: Rows, seed: int) -> dict[str, float]:
    import latentscale

    generator = np.random.default_rng(seed)
    order = generator.permutation(len(rows))
    corpus, reference = np.split(rows[order[: len(rows) // 2 * 2]], 2)
    clean = corpus.copy()
    n, d = corpus.shape
    near, sources, leaks, far, _ = np.split(
        generator.permutation(n), np.cumsum([n // 20, n // 20, n // 50, n // 100])
    )
    corpus[near] = corpus[sources] + generator.normal(scale=NOISE, size=(len(near), d))
    corpus[leaks] = reference[generator.choice(n, len(leaks), replace=False)]
    corpus[far] = generator.normal(size=(len(far), d))
    section = {"duplicates": {"within": WITHIN}}
    with tempfile.TemporaryDirectory() as folder:
        options: dict[str, Any] = {"measures": section, "output": Path(folder)}
        before = latentscale.run(clean, reference, name="before", **options)
        after = latentscale.run(corpus, reference, name="after", **options)
        found: dict[str, float] = {}
        pairs = dict(zip(near.tolist(), sources.tolist(), strict=True))
        injected = {max(pair) for pair in pairs.items()}
        for name, wanted in (
            ("near-duplicates", injected),
            ("leaks", set(leaks.tolist())),
            ("outliers", set(far.tolist())),
        ):
            # Rows that real data name by themselves aren't mistakes.
            known = set(before.rows(name).numbers.tolist())
            named = set(after.rows(name).numbers.tolist())
            found[f"{name}, recall"] = len(named & wanted) / len(wanted)
            if name == "outliers":
                known = set()
            found[f"{name}, precision"] = len(named & wanted) / len(named - (known - wanted))
    return found
