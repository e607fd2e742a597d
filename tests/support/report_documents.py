"""Results with everything that a report can show, for the tests that look at pages."""

from typing import Any

from tests.support.results_documents import check_results, example_results

HOSTILE = "<script>alert('x')</script><img src=x onerror=alert(1)>"

LABELS = ("biology", HOSTILE, "poetry and other arts")


def full_results() -> dict[str, Any]:
    """Return the example with labels, example rows and rarefaction, hostile names among them."""
    results = example_results()
    results["job"]["name"] = HOSTILE
    for corpus in results["corpora"].values():
        corpus["uri"] = f"s3://bucket/{HOSTILE}"
    by_label = [
        {**row, "label": label, **{end: row[end] * share for end in ("value", "lower", "upper")}}
        for label, share in zip(LABELS, (0.5, 0.6, 0.7), strict=True)
        for row in results["scores"]
        if (row["measure"], row["of"], row.get("kernel")) == ("vendi", "corpus", "cosine")
    ]
    results["scores"] += by_label
    results["measures"]["labels"] = {
        "measured": {label: 300 - 50 * place for place, label in enumerate(LABELS)},
        "left_out": {},
        "least_rows": 20,
    }
    geomca = results["measures"]["geomca"]
    for component in geomca["components"][:15]:
        component["examples"] = {
            "corpus": [{"row": component["rank"], "id": f"doc-{component['rank']}"}],
            "reference": [{"row": 7}],
        }
    geomca["outliers"] = {"corpus": 12, "reference": 0}
    geomca["outlier_examples"] = {"corpus": [{"row": 3, "id": HOSTILE}], "reference": []}
    sizes = [112, 224, 448]
    for role in ("corpus", "reference"):
        function = results["measures"]["magnitude"][role]
        growth = [[value * size / 900 for value in function["value"]] for size in sizes]
        function["rarefaction"] = {"sizes": sizes, "values": growth}
        for entry in results["measures"]["vendi"][role]:
            entry["rarefaction"] = {"sizes": sizes, "values": [entry["value"] / 2] * 3}
    check_results(results)
    return results


def later(results: dict[str, Any], night: int, share: float) -> dict[str, Any]:
    """Return what a later night might have found: every value times a share."""
    results["job"] |= {
        "id": f"nightly-0000000{night}",
        "finished": f"2026-01-{night:02d}T02:00:00Z",
    }
    for row in results["scores"]:
        for end in ("value", "lower", "upper"):
            row[end] *= share
    return results


def judged() -> dict[str, Any]:
    """Return results of which one score differs, by far, and one doesn't."""
    results = example_results()
    usual = {
        "rows": 300,
        "centre": 12.0,
        "lower": 10.0,
        "upper": 14.0,
        "z": 0.0,
        "p": 0.4,
        "smallest_found": 1.0,
    }
    for row in results["scores"]:
        if (row["measure"], row["of"], row["score"]) == ("magnitude", "corpus", "area"):
            row["expected"] = usual | {"found": 3.0, "p": 1e-6, "p_adjusted": 2e-6}
        if (row["measure"], row["of"], row.get("order")) == ("vendi", "corpus", "1"):
            row["expected"] = usual | {"found": 13.0, "p_adjusted": 0.4}
    verdict = {
        "value": "differs",
        "reason": "MagArea <b> is 3.",
        "also": "The rest.",
        "compared": 2,
    }
    return results | {"verdict": verdict}


def with_rows() -> dict[str, Any]:
    """Return results with numbers of rows, of which near-duplicates are too many, and rows."""
    results = judged()
    counts = {
        "rows": 896,
        "centre": 0.001,
        "lower": 0.0,
        "upper": 0.005,
        "z": 0.0,
        "p": 0.5,
        "smallest_found": 0.01,
    }
    for name, of, found, p in (
        ("near-duplicates", "corpus", 0.125, 1e-6),
        ("leaks", "pair", 0.00125, 0.9),
    ):
        row = {"measure": "duplicates", "of": of, "score": name, "unit": "share of rows"}
        row |= {"value": found, "lower": found, "upper": found, "bounds": "exact"}
        row |= {"better": "low", "sampling_error": None}
        results["scores"].append(row | {"expected": counts | {"found": found, "p_adjusted": p}})
    groups = {"rows": 896, "exact_duplicates": 0, "near_duplicates": 112}
    groups |= {"repeated": 0, "covered": 56}
    results["measures"]["duplicates"] = {
        "metric": "cosine",
        "within": 0.05,
        "corpus": groups,
        "reference": groups,
        "pair": {"leaks": 1, "outliers": 0, "outlier_distance": 0.5, "not_covered": 0},
    }
    leaks = [{"row": 3, "id": HOSTILE, "other": 7, "distance": 0.0001}]
    near = [
        {"row": 3 + place, "label": "law", "other_id": "a", "distance": 0.01} for place in range(60)
    ]
    results["rows"] = [
        {"reason": "leaks", "of": "corpus", "count": 1, "rows": leaks},
        {"reason": "near-duplicates", "of": "corpus", "count": 60, "rows": near[:50]},
        {"reason": "outliers", "of": "corpus", "count": 0, "rows": []},
        {"reason": "unknown to us", "of": "corpus", "count": 1, "rows": leaks},
    ]
    return results


def with_map(results: dict[str, Any]) -> dict[str, Any]:
    """Return results with a map of three rows of the corpus and two of the reference."""
    results["measures"]["projection"] = {
        "metric": "cosine",
        "perplexity": 30.0,
        "kept": 1.0,
        "corpus": {
            "row": [3, 8, 9],
            "x": [100, 500, 900],
            "y": [100, 500, 900],
            "id": ["doc-3", HOSTILE, "doc-9"],
            "label": ["red", HOSTILE, "blue"],
            "text": ["the first words", HOSTILE, ""],
        },
        "reference": {"row": [1, 2], "x": [120, 500], "y": [900, 520]},
        "marked": [
            {"of": "corpus", "row": 3, "reasons": ["outliers"], "x": 100, "y": 100},
            {"of": "corpus", "row": 77, "reasons": ["near-duplicates"], "x": 900, "y": 900},
        ],
    }
    return results
