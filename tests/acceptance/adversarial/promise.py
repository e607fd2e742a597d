"""Ten thousand brackets on nasty corpora; run by ``make test-full`` as ``adversarial``."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

from tests.acceptance.adversarial.cases import cases_of, intervals_of
from tests.acceptance.adversarial.corpora import NASTY

if TYPE_CHECKING:
    from tests.acceptance.run import Bench

BRACKETS = 10_000
SEEDS = 40
COVERAGE = 0.92


def ten_thousand_brackets(bench: Bench) -> list[dict[str, Any]]:
    """Count violated brackets that are exact or certified, and how many intervals hold."""
    from tests.acceptance.run import record

    del bench
    counts: Counter[str] = Counter()
    skipped: Counter[str] = Counter()
    violated: list[str] = []
    seed = 0
    while counts["exact"] + counts["certified"] < BRACKETS:
        for kind in NASTY:
            for case in cases_of(kind, seed, skipped):
                counts[case.estimate.bounds] += 1
                if case.violated:
                    violated.append(str(case))
        seed += 1
    covered = {}
    for kind in NASTY:
        intervals = [
            case.inside
            for seed in range(SEEDS)
            for case in intervals_of(kind, seed)
            if case.estimate.bounds == "interval95"
        ]
        covered[kind] = round(sum(intervals) / len(intervals), 3)
    return [
        record(
            "no exact or certified bracket of a nasty corpus is violated",
            {
                "brackets": dict(counts),
                "corpora": seed * len(NASTY),
                "skipped": dict(skipped),
                "violated": violated[:20],
            },
            f"none of {BRACKETS}",
            not violated,
        ),
        record(
            "intervals of nasty corpora hold the dense answer",
            {"covered": covered},
            f"at least {COVERAGE} of every kind",
            min(covered.values()) >= COVERAGE,
        ),
    ]
