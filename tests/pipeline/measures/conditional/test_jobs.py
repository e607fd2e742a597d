"""Conditional diversity through a job: dense algebra, pairs by id, any storage, and reasons."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.linalg import logm
from scipy.spatial.distance import cdist, pdist

from latentscale_pipeline.errors import BadInput
from tests.conftest import Ended
from tests.support.jobs import measure_rows

Command = Callable[..., Ended]
Rows = np.ndarray


def run(folder: Path, how: str = "rows", keys: str = "", **given: Any) -> Any:
    return measure_rows(folder, f"conditional: {{{keys}}}", job=f"pair: {how}\n", **given)


def scores(results: Any) -> dict[str, Any]:
    return {row["score"]: row for row in results["scores"]}


def answers(seed: int, n: int) -> tuple[Rows, Rows]:
    """Outputs of 12 dimensions and the prompts of 7 that they were made from, in float32."""
    rng = np.random.default_rng(seed)
    prompt = rng.integers(4, size=n)
    y = rng.normal(size=(4, 7))[prompt] + 0.2 * rng.normal(size=(n, 7))
    x = rng.normal(size=(8, 12))[2 * prompt + rng.integers(2, size=n)]
    return (x + 0.3 * rng.normal(size=(n, 12))).astype("f4"), y.astype("f4")


def entropy(kernel: Rows) -> float:
    matrix = kernel / len(kernel) + 1e-15 * np.eye(len(kernel))
    return -float(np.trace(matrix @ logm(matrix)).real)


@pytest.mark.parametrize("shard_bytes", [10**7, 4096])
def test_the_scores_are_those_of_dense_algebra(tmp_path: Path, shard_bytes: int) -> None:
    x, y = answers(1, 220)
    results = run(tmp_path / "job", shard_bytes=shard_bytes, corpus=x, reference=y)
    found, part = scores(results), results["measures"]["conditional"]
    assert part["bandwidth"] == pytest.approx(np.median(pdist(x)), rel=1e-5)
    assert part["reference_bandwidth"] == pytest.approx(np.median(pdist(y)), rel=1e-5)
    k, l = (  # noqa: E741
        np.exp(-cdist(rows, rows, "sqeuclidean") / (2 * width**2))
        for rows, width in ((x, part["bandwidth"]), (y, part["reference_bandwidth"]))
    )
    given, joint = entropy(l), entropy(k * l)
    assert found["conditional Vendi"]["value"] == pytest.approx(np.exp(joint - given), rel=1e-6)
    information = np.exp(entropy(k) + given - joint)
    assert found["information Vendi"]["value"] == pytest.approx(information, rel=1e-6)
    unit = [rows / np.linalg.norm(rows, axis=1, keepdims=True) for rows in (x, y)]
    residuals = unit[0] - unit[1] @ np.linalg.lstsq(unit[1], unit[0], rcond=None)[0]
    values = np.linalg.svd(residuals, compute_uv=False) ** 2 / 220
    scendi = np.exp(-(values * np.log(values / values.sum())).sum())
    assert found["Scendi"]["value"] == pytest.approx(scendi, rel=1e-5)
    prompts = np.column_stack([unit[1], np.ones(220)])
    beyond = unit[0] - prompts @ np.linalg.lstsq(prompts, unit[0], rcond=None)[0]
    variance = np.square(unit[0] - unit[0].mean(axis=0)).sum()
    explained = 1 - np.square(beyond).sum() / variance * 219 / (219 - 7)
    assert found["explained share"]["value"] == pytest.approx(explained, abs=1e-5)
    assert all(row["bounds"] == "exact" and row["sampling_error"] > 0 for row in found.values())
    assert [row["kernel"] for row in found.values()] == ["rbf median"] * 2 + ["cosine"] * 2
    assert results["verdict"]["value"] is None


def test_pairs_by_id_in_any_order_are_the_same_and_loners_are_named(tmp_path: Path) -> None:
    x, y = answers(2, 180)
    alike = run(tmp_path / "rows", corpus=x, reference=y)
    order = np.random.default_rng(0).permutation(180)
    names = [f"item {row}" for row in range(180)]
    ids = {"corpus": [*names, "alone"], "reference": [names[row] for row in order]}
    longer = np.concatenate([x, x[:1]])
    paired = run(tmp_path / "ids", "ids", corpus=longer, reference=y[order], ids=ids)
    for name, row in scores(alike).items():
        assert scores(paired)[name]["value"] == pytest.approx(row["value"], rel=1e-9)
    assert paired["measures"]["conditional"]["corpus"]["ids"] == ["alone"]


def test_samples_of_the_pairs_have_wider_brackets(tmp_path: Path) -> None:
    x, y = answers(3, 600)
    few = run(tmp_path / "few", keys="kernel_rows: 150, rows: 300", corpus=x, reference=y)
    part = few["measures"]["conditional"]
    assert (part["kernel_pairs"], part["pairs"], part["common"]) == (150, 300, 600)
    assert {row["bounds"] for row in few["scores"]} == {"interval95"}
    whole = scores(run(tmp_path / "whole", corpus=x, reference=y))["explained share"]
    row = scores(few)["explained share"]
    assert row["lower"] <= whole["value"] <= row["upper"]


def test_what_has_no_score_says_why(tmp_path: Path) -> None:
    x, _ = answers(4, 150)
    wide = np.random.default_rng(5).normal(size=(150, 100)).astype("f4")
    found = scores(run(tmp_path / "wide", corpus=x, reference=wide))
    few = "fewer than 2 pairs of rows for each dimension of the reference"
    assert found["Scendi"]["reason"] == found["explained share"]["reason"] == few
    assert found["conditional Vendi"]["value"] > 1
    equal = np.ones((150, 3), "f4")
    found = scores(run(tmp_path / "outputs", corpus=equal, reference=x))
    assert (
        found["explained share"]["reason"]
        == "the rows of the corpus are all equal, but for rounding"
    )
    assert found["conditional Vendi"]["value"] == pytest.approx(1.0, abs=1e-9)
    tiny = run(tmp_path / "tiny", corpus=x[:90], reference=wide[:90])
    assert tiny["measures"]["conditional"]["reason"] == "the corpus has fewer than 100 rows"


@pytest.mark.parametrize("kernel", ["rbf", "cosine"])
def test_one_prompt_explains_nothing(tmp_path: Path, kernel: str) -> None:
    """The conditional score is then the Vendi score of the outputs."""
    x, _ = answers(7, 150)
    one = np.ones((150, 3), "f4")
    results = run(tmp_path / "one", keys=f"kernel: {kernel}", corpus=x, reference=one)
    found, part = scores(results), results["measures"]["conditional"]
    assert found["information Vendi"]["value"] == pytest.approx(1.0, abs=1e-7)
    assert found["explained share"]["value"] == pytest.approx(0.0, abs=1e-4)
    assert "reference_bandwidth" not in part
    if kernel == "rbf":
        apart = cdist(x, x, "sqeuclidean")
        vendi = np.exp(entropy(np.exp(-apart / (2 * part["bandwidth"] ** 2))))
        assert found["conditional Vendi"]["value"] == pytest.approx(vendi, rel=1e-6)


def test_jobs_are_compared_at_the_same_pairs_and_bandwidths(
    tmp_path: Path, latentscale: Command
) -> None:
    x, y = answers(8, 400)
    ids = {
        "corpus": [str(row) for row in range(400)],
        "reference": [str(row) for row in range(400)],
    }
    few = {**ids, "corpus": [*map(str, range(150)), *(f"other {row}" for row in range(250))]}
    run(tmp_path / "all", "ids", corpus=x, reference=y, ids=ids)
    run(tmp_path / "few", "ids", corpus=x, reference=y, ids=few)
    jobs = {name: next((tmp_path / name).glob("j-*")) for name in ("all", "few")}
    document = json.loads(latentscale("compare", jobs["few"], jobs["all"], "--json").out)
    rows = {row["score"]: row for row in document["scores"]}
    assert rows["Scendi"]["unlike"] == ["number of pairs of conditional"]
    assert "number of pairs of conditional" in rows["conditional Vendi"]["unlike"]
    assert rows["explained share"]["unlike"] == []
    near = x.mean(axis=0) + 0.1 * (x - x.mean(axis=0))
    own = run(tmp_path / "own", corpus=near, reference=y)
    job = f"scales_from: {jobs['all']}\npair: rows\n"
    same = measure_rows(tmp_path / "same", "conditional: {}", job=job, corpus=near, reference=y)
    widths = [each["measures"]["conditional"]["bandwidth"] for each in (own, same)]
    assert widths[0] == pytest.approx(0.1 * widths[1], rel=1e-4)
    assert scores(same)["conditional Vendi"]["value"] < scores(own)["conditional Vendi"]["value"]


def test_it_needs_pairs_and_goes_with_the_alignment(tmp_path: Path, latentscale: Command) -> None:
    x, y = answers(6, 130)
    for name, rows in (("x", x), ("y", y)):
        np.save(tmp_path / f"{name}.npy", rows)
    call = (
        "run",
        tmp_path / "x.npy",
        "--reference",
        tmp_path / "y.npy",
        "-o",
        f"output={tmp_path}/o",
    )
    ended = latentscale(*call, "--measures", "conditional")
    assert ended.code == 2
    assert "pair" in ended.err
    ended = latentscale(*call, "--pair", "rows", "--measures", "conditional,alignment", "--json")
    assert ended.code == 0
    document = json.loads(ended.out)
    assert {"conditional", "alignment"} <= set(document["measures"])
    for name, count in (("x", 130), ("y", 120)):
        (tmp_path / f"{name}.txt").write_text("".join(f"{row}\n" for row in range(count)))
    np.save(tmp_path / "y.npy", y[:120])
    ids = ("--ids", tmp_path / "x.txt", "--reference-ids", tmp_path / "y.txt")
    ended = latentscale(*call, *ids, "--pair", "ids", "--measures", "conditional,alignment")
    assert ended.out.count("of the corpus's rows have no partner") == 1
    ids = {"corpus": [f"a{row}" for row in range(130)], "reference": list(map(str, range(130)))}
    with pytest.raises(BadInput, match="found 0 ids that are in both"):
        run(tmp_path / "none", "ids", corpus=x, reference=y, ids=ids)
    ids["reference"] = [f"a{row}" for row in range(50, 180)]
    some = run(tmp_path / "some", "ids", corpus=x, reference=y, ids=ids)
    assert some["measures"]["conditional"]["reason"] == "ids found 80 pairs, and 100 are needed"
    assert {row["reason"] for row in some["scores"] if row["measure"] == "conditional"} == {
        "ids found 80 pairs, and 100 are needed"
    }
