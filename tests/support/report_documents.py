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
