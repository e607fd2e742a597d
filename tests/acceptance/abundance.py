"""How often a kind that is gone is found, by three measures; run as ``abundance-kinds``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from tests.support.jobs import results_of

if TYPE_CHECKING:
    from tests.acceptance.run import Bench

ROWS, DIMENSION, KINDS, TRIES = 4000, 64, 50, 10
SHARES = (0.0, 0.01, 0.02, 0.04, 0.08)
LEVEL = 0.05
TOPICS = 12
MEASURES = ("abundance", "mmd", "modes")


def _draw(centres: np.ndarray, share: float, generator: np.random.Generator) -> np.ndarray:
    """Draw rows around centres, a share of them around the first."""
    kinds = generator.integers(1, KINDS, size=ROWS)
    kinds[generator.random(ROWS) < share] = 0
    return (0.5 * centres[kinds] + generator.normal(size=(ROWS, DIMENSION))).astype("f4")


def a_kind_that_is_gone_is_found(bench: Bench) -> list[dict[str, Any]]:
    """Kinds in directions of their own, and topics of real rows, by three measures."""
    return [_of_kinds(bench), *([_of_topics(bench)] if bench.labels else [])]


def _least_p(
    bench: Bench, name: str, corpus: np.ndarray, reference: np.ndarray
) -> tuple[dict[str, float], list[int]]:
    """Return the least p-value of each measure, and the reference rows that stand for a kind."""
    from tests.acceptance.run import watch

    places = []
    for role, rows in (("corpus", corpus), ("reference", reference)):
        places.append(bench.folder / f"kinds-{role}.npy")
        np.save(places[-1], rows)
    config = bench.job(
        name, *places, measures={key: {} for key in MEASURES}, cluster={"kind": "serial"}
    )
    if (watched := watch("run", config)).code != 0:
        raise RuntimeError(watched.last_line)
    results = results_of(bench.output(name))
    least = dict.fromkeys(MEASURES, 1.0)
    for row in results["scores"]:
        if row["measure"] in least and "expected" in row:
            least[row["measure"]] = min(least[row["measure"]], row["expected"]["p"])
    kinds = results["measures"]["abundance"]["depleted"]
    return least, [row["row"] for kind in kinds[:1] for row in kind["examples"]]


def _of_kinds(bench: Bench) -> dict[str, Any]:
    """Find kinds that are gone, of which each has a direction of its own."""
    from tests.acceptance.run import record

    found = {f"{share:.0%}": dict.fromkeys(MEASURES, 0) for share in SHARES}
    for share in SHARES:
        for attempt in range(TRIES):
            generator = np.random.default_rng([15, round(1000 * share), attempt])
            centres = generator.normal(size=(KINDS, DIMENSION))
            pair = [_draw(centres, own, generator) for own in (0.0, share)]
            least, _ = _least_p(bench, f"kinds-{share:.2f}-{attempt}", *pair)
            for measure, p in least.items():
                found[f"{share:.0%}"][measure] += p <= LEVEL
    figures = {"found": found, "tries": TRIES, "rows": ROWS, "level": LEVEL}
    promise = f"a kind of 4% that is gone from {ROWS} rows is found, and nothing where none is"
    held = found["4%"]["abundance"] >= 9 and found["0%"]["abundance"] <= 2
    return record(promise, figures, "9 of 10, and at most 2 of 10", held)


def _of_topics(bench: Bench) -> dict[str, Any]:
    """Find topics of real rows that are gone: their labels, which no measure sees."""
    from tests.acceptance.run import record

    labels = np.array(bench.labels)
    names, counts = np.unique(labels, return_counts=True)
    topics = names[np.argsort(-counts, kind="stable")[:TOPICS]]
    found: dict[str, Any] = {}
    for place, topic in enumerate(topics):
        drawn = np.random.default_rng([16, place]).permutation(len(labels))
        corpus, reference = drawn[:ROWS], drawn[ROWS : 2 * ROWS]
        kept = corpus[labels[corpus] != topic]
        pair = bench.rows[kept].astype("f4"), bench.rows[reference].astype("f4")
        least, rows = _least_p(bench, f"topic-{place}", *pair)
        right = float(np.mean(labels[reference[rows]] == topic)) if rows else 0.0
        share = float(np.mean(labels[reference] == topic))
        found[str(topic)] = {"share": round(share, 3), "p": least, "rows_right": right}
    times = {
        measure: sum(one["p"][measure] <= LEVEL for one in found.values()) for measure in MEASURES
    }
    promise = f"more topics that are gone from {ROWS} real rows are found than by other measures"
    held = times["abundance"] > max(times["mmd"], times["modes"])
    return record(promise, {"found": times, "of": TOPICS, "topics": found}, "more", held)
