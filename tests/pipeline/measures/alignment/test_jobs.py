"""Alignment through a job: pairs by number and by id, any storage, and what is refused."""

import html
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.spatial.distance import cdist

from latentscale_pipeline.errors import BadInput
from latentscale_pipeline.measures.alignment import plan
from latentscale_pipeline.measures.shared import pairs
from tests.conftest import Ended
from tests.support.jobs import measure_rows

Command = Callable[..., Ended]
Rows = np.ndarray


def run(folder: Path, how: str, keys: str = "", **given: Any) -> Any:
    return measure_rows(folder, f"alignment: {{{keys}}}", job=f"pair: {how}\n", **given)


def scores(results: Any) -> dict[str, Any]:
    return {row["score"]: row for row in results["scores"]}


def models(seed: int, n: int) -> tuple[Rows, Rows]:
    """Vectors of the same items by two models of 24 and 15 dimensions, in float32."""
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(8, 24))[rng.integers(0, 8, n)] + 0.7 * rng.normal(size=(n, 24))
    y = np.tanh(x @ rng.normal(size=(24, 15)) / 4) + 0.2 * rng.normal(size=(n, 15))
    return x.astype("f4").astype(float), y.astype("f4").astype(float)


def expected(x: Rows, y: Rows, k: int = 10) -> tuple[float, np.ndarray]:
    """Return plain CKA by Gram matrices, and the common neighbours of every item by sets."""
    centre = np.eye(len(x)) - 1.0 / len(x)
    one, other = (centre @ each @ each.T @ centre for each in (x, y))
    lists = []
    for rows in (x, y):
        distances = cdist(rows, rows, "cosine")
        np.fill_diagonal(distances, np.inf)
        lists.append(np.argsort(distances, axis=1)[:, :k].tolist())
    common = [len(set(a) & set(b)) for a, b in zip(*lists, strict=True)]
    cka = np.trace(one @ other) / np.sqrt(np.trace(one @ one) * np.trace(other @ other))
    return float(cka), np.array(common)


@pytest.mark.parametrize("shard_bytes", [10**7, 8 * 1024])
def test_rows_of_the_same_number_are_paired(
    tmp_path: Path, shard_bytes: int, latentscale: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(plan, "QUERIES", 150)  # several tasks
    x, y = models(1, 500)
    results = run(tmp_path / "job", "rows", shard_bytes=shard_bytes, corpus=x, reference=y)
    cka, common = expected(x, y)
    found, part = scores(results), results["measures"]["alignment"]
    assert found["CKA"]["value"] == pytest.approx(cka, rel=1e-9)
    assert found["CKA, debiased"]["value"] < cka
    assert found["neighbour overlap"]["value"] == pytest.approx(common.mean() / 10, rel=1e-12)
    assert found["no common neighbour"]["value"] == np.mean(common == 0)
    assert {row["bounds"] for row in found.values()} == {"exact"}
    assert all(0.0 < row["sampling_error"] < 0.05 for row in found.values())
    assert (part["by"], part["common"], part["pairs"]) == ("rows", 500, 500)
    assert part["overlaps"] == np.bincount(common, minlength=11).tolist()
    assert results["verdict"]["value"] is None
    assert results["verdict"]["reason"].startswith("Rows are paired")
    [folder] = (tmp_path / "job").glob("j-*")
    listed = latentscale("rows", folder, "--sort", "common_neighbours", "--limit", "1", "--json")
    assert f'"common_neighbours": {common.min()}' in listed.out
    moved = latentscale("rows", folder, "--sort", "average_overlap", "--limit", "500", "--json")
    overlaps = [json.loads(line)["average_overlap"] for line in moved.out.splitlines()]
    assert overlaps == sorted(overlaps)
    assert len(set(overlaps)) > 300 > 30 > len(set(common.tolist()))


def test_ids_find_their_partners_in_any_order(tmp_path: Path) -> None:
    x, y = models(2, 400)
    order = np.random.default_rng(0).permutation(400)[:380]
    ids = {"corpus": [f"é {i}" for i in range(400)], "reference": [f"é {i}" for i in order]}
    results = run(tmp_path / "job", "ids", ids=ids, corpus=x, reference=y[order])
    kept = np.sort(order)
    cka, common = expected(x[kept], y[kept])
    assert scores(results)["CKA"]["value"] == pytest.approx(cka, rel=1e-9)
    assert scores(results)["neighbour overlap"]["value"] == pytest.approx(common.mean() / 10)
    part = results["measures"]["alignment"]
    assert (part["by"], part["common"], part["pairs"]) == ("ids", 380, 380)
    assert part["corpus"]["share"] == pytest.approx(0.05)
    missing = {f"é {i}" for i in range(400)} - set(ids["reference"])
    assert len(part["corpus"]["ids"]) == 3
    assert missing.issuperset(part["corpus"]["ids"])
    assert part["reference"] == {"share": 0.0, "ids": []}
    [folder] = (tmp_path / "job").glob("j-*")
    said = f"5 % of the corpus's rows have no partner ({part['corpus']['ids'][0]}, "
    assert said in html.unescape((folder / "report.html").read_text())


def test_columns_of_the_reference_have_its_rows(tmp_path: Path, latentscale: Command) -> None:
    x, y = models(3, 300)
    order = np.random.default_rng(1).permutation(300)
    ids = {"corpus": [str(i) for i in range(300)], "reference": [str(i) for i in order]}
    run(tmp_path / "job", "ids", ids=ids, corpus=x, reference=y[order])
    _, common = expected(x, y)
    [folder] = (tmp_path / "job").glob("j-*")
    of = ("--of", "reference", "--columns", "id,common_neighbours", "--limit", "300", "--json")
    lines = latentscale("rows", folder, *of).out.splitlines()
    found = {row["id"]: row["common_neighbours"] for row in map(json.loads, lines)}
    assert found == {str(i): common[i] for i in range(300)}


def test_rows_whose_ids_have_another_order_are_not_paired_by_number(tmp_path: Path) -> None:
    x, y = models(5, 60)
    ids = [f"doc {row}" for row in range(60)]
    shifted = [*ids[1:], ids[0]]
    given: dict[str, Any] = {"corpus": x, "reference": y}
    given["ids"] = {"corpus": ids, "reference": shifted}
    said = "row 0 of the corpus has the id 'doc 0', which row 59 of the reference has; pair by ids"
    with pytest.raises(BadInput, match=said):
        run(tmp_path / "shifted", "rows", **given)
    # Names of its own, or names of which some are missing, don't contradict.
    for place, other in enumerate((ids, [f"b{row}" for row in range(60)], [*ids[:30], *"a" * 30])):
        given["ids"]["reference"] = other
        results = run(tmp_path / str(place), "rows", **given)
        assert results["measures"]["alignment"]["pairs"] == 60


def test_a_sample_of_many_ids_is_paired(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pairs, "KEPT_IDS", 400)
    x, y = models(4, 3000)
    order = np.random.default_rng(2).permutation(3000)[:2400]
    ids = {"corpus": [f"{i}" for i in range(3000)], "reference": [f"{i}" for i in order]}
    found = run(tmp_path / "job", "ids", "rows: 200", ids=ids, corpus=x, reference=y[order])
    part = found["measures"]["alignment"]
    assert part["pairs"] == 200
    assert part["common"] == 2400
    assert part["corpus"]["share"] == pytest.approx(0.2, abs=0.08)
    assert part["reference"]["share"] == 0.0
    debiased = scores(found)["CKA, debiased"]
    whole = run(tmp_path / "whole", "rows", corpus=x[order], reference=y[order])
    assert debiased["bounds"] == "interval95"
    truth = scores(whole)["CKA, debiased"]["value"]
    assert abs(debiased["value"] - truth) < 2.0 * (debiased["upper"] - debiased["value"])


def test_all_items_of_a_small_corpus_find_their_partners(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pairs, "KEPT_IDS", 400)
    x, y = models(8, 4000)
    few = np.random.default_rng(3).permutation(4000)[:200]
    ids = {"corpus": [f"{i}" for i in few], "reference": [f"{i}" for i in range(4000)]}
    found = run(tmp_path / "job", "ids", ids=ids, corpus=x[few], reference=y)
    part = found["measures"]["alignment"]
    assert (part["pairs"], part["common"]) == (200, 200)
    assert (part["corpus"]["share"], part["reference"]["share"]) == (0.0, pytest.approx(0.95))
    cka, _ = expected(x[few], y[few])
    assert scores(found)["CKA"]["value"] == pytest.approx(cka, rel=1e-9)


def test_equal_distances_are_ordered_alike(tmp_path: Path) -> None:
    rows = np.random.default_rng(4).integers(0, 2, size=(300, 16)) + 0.0
    found = run(tmp_path / "job", "rows", "metric: euclidean", corpus=rows, reference=2.0 * rows)
    assert scores(found)["neighbour overlap"]["value"] == 1.0


def test_a_paired_job_tests_no_labels_and_names_the_command_for_rows(
    tmp_path: Path, latentscale: Command
) -> None:
    x, y = models(9, 120)
    np.save(tmp_path / "x.npy", x)
    np.save(tmp_path / "y.npy", y)
    (tmp_path / "labels.txt").write_text("a\n" + "b\n" * 119)
    labels = tmp_path / "labels.txt"
    given = ("--labels", labels, "--reference-labels", labels, "--output", tmp_path / "jobs")
    run = ("run", tmp_path / "x.npy", "--reference", tmp_path / "y.npy", "--pair", "rows")
    ended = latentscale(*run, *given, "--measures", "alignment", "-o", "cluster.kind=serial")
    assert "NO DIFFERENCE" not in ended.out
    assert "Label" not in ended.out
    assert "--sort average_overlap" in ended.out
    asked = latentscale(*run, *given, "--fail-on-difference", "-o", "cluster.kind=serial")
    assert (asked.code, "its rows are paired" in asked.err) == (2, True)


def test_nothing_is_unusual_of_paired_rows(tmp_path: Path, latentscale: Command) -> None:
    """Rows of another model are all outliers there, and none of them can be left out for that."""
    x, y = models(9, 400)
    np.save(tmp_path / "x.npy", x)
    np.save(tmp_path / "y.npy", y)
    run = ("run", tmp_path / "x.npy", "--reference", tmp_path / "y.npy", "--pair", "rows")
    more = ("--measures", "alignment,duplicates,vendi", "--output", tmp_path / "jobs")
    ended = latentscale(*run, *more, "-o", "cluster.kind=serial")
    assert ended.code == 0, ended.err
    assert "clean" not in ended.out
    assert "--only" not in ended.out
    [document] = [json.loads(path.read_text()) for path in tmp_path.glob("jobs/*/results.json")]
    assert not [score for score in document["scores"] if "expected" in score]
    reasons = {score.get("expected_reason") for score in document["scores"]} - {None}
    assert reasons == {"rows are paired, and p-values are for corpora that share no items"}
    [folder] = [path.parent for path in tmp_path.glob("jobs/*/results.json")]
    assert "not usual" not in latentscale("report", folder, "--format", "md").out
    asked = latentscale("power", folder)
    assert (asked.code, "its rows are paired, so no samples say" in asked.err) == (2, True)


def test_two_seeds_draw_other_pairs_of_the_same_truth(tmp_path: Path) -> None:
    x, y = models(5, 2500)
    truth = scores(run(tmp_path / "all", "rows", corpus=x, reference=y))["CKA, debiased"]["value"]
    values = []
    for seed in range(3):
        folder, how = tmp_path / str(seed), f"rows\nseed: {seed}"
        drawn = scores(run(folder, how, "rows: 500", corpus=x, reference=y))["CKA, debiased"]
        values.append(drawn["value"])
        reach = drawn["upper"] - drawn["value"]
        assert abs(drawn["value"] - truth) < 2.0 * reach
    assert len(set(values)) == 3


def test_what_cannot_be_paired_is_refused(tmp_path: Path, latentscale: Command) -> None:
    x, y = models(6, 60)
    with pytest.raises(BadInput, match=r"50; give as many rows, or both ids and pair: ids$"):
        run(tmp_path / "size", "rows", corpus=x, reference=y[:50])
    numbers = [f"a{i}" for i in range(60)]
    both = {"corpus": numbers, "reference": numbers[:50]}
    with pytest.raises(BadInput, match=r"the reference 50; pair by ids instead, with pair: ids$"):
        run(tmp_path / "named", "rows", ids=both, corpus=x, reference=y[:50])
    with pytest.raises(BadInput, match=r"the corpus has none; .* with pair: rows$"):
        run(tmp_path / "none", "ids", corpus=x, reference=y)
    with pytest.raises(BadInput, match=r"the corpus has none; .*, or to ingest$"):
        run(tmp_path / "few", "ids", corpus=x, reference=y[:50])
    twice = [*numbers[:58], "a7", "a58"]
    with pytest.raises(BadInput, match="corpus: rows 7 and 58 have the same id, 'a7'"):
        run(
            tmp_path / "c",
            "ids",
            ids={"corpus": twice, "reference": numbers},
            corpus=x,
            reference=y,
        )
    with pytest.raises(BadInput, match="reference: rows 7 and 58 have the same id, 'a7'"):
        run(
            tmp_path / "r",
            "ids",
            ids={"corpus": numbers, "reference": twice},
            corpus=x,
            reference=y,
        )
    blank = [*numbers[:5], "", *numbers[6:]]
    with pytest.raises(BadInput, match="reference: row 5 has no id"):
        run(
            tmp_path / "b",
            "ids",
            ids={"corpus": numbers, "reference": blank},
            corpus=x,
            reference=y,
        )
    other = {"corpus": [f"a{i}" for i in range(60)], "reference": [f"b{i}" for i in range(60)]}
    with pytest.raises(
        BadInput, match=r"found 0 ids that are in both corpora \('a\d+' is only in the co"
    ):
        run(tmp_path / "other", "ids", ids=other, corpus=x, reference=y)
    np.save(tmp_path / "x.npy", x)
    alone = latentscale("run", tmp_path / "x.npy", "--pair", "rows")
    assert (alone.code, "pair needs a reference" in alone.err) == (2, True)
    unpaired = latentscale(
        "run", tmp_path / "x.npy", "--reference", tmp_path / "x.npy", "--measures", "alignment"
    )
    assert (unpaired.code, "--pair rows or --pair ids" in unpaired.err) == (2, True)


def test_degenerate_models_say_why(tmp_path: Path) -> None:
    x, _ = models(7, 300)
    few = scores(run(tmp_path / "few", "rows", corpus=x[:8], reference=x[:8]))
    assert few["CKA"]["reason"] == "fewer than 10 pairs of rows"
    ten = scores(run(tmp_path / "ten", "rows", corpus=x[:10], reference=x[:10]))
    assert ten["CKA"]["reason"] == "10 neighbours of an item need 11 pairs of rows"
    equal = scores(run(tmp_path / "equal", "rows", corpus=x, reference=np.ones((300, 4))))
    assert equal["CKA, debiased"]["reason"].startswith("the vectors of one model are all eq")
    assert equal["neighbour overlap"]["value"] < 0.2
    same = scores(run(tmp_path / "same", "rows", corpus=x, reference=2.0 * x))
    assert same["CKA, debiased"]["value"] == pytest.approx(1.0)
    assert same["neighbour overlap"]["value"] == 1.0


def test_equal_rows_have_no_verdict_either(tmp_path: Path) -> None:
    x, _ = models(1, 60)
    results = run(tmp_path / "job", "rows", corpus=x, reference=x)
    assert results["verdict"]["value"] is None
    assert scores(results)["CKA"]["value"] == pytest.approx(1.0, abs=1e-12)
