"""Vendi scores through jobs: precision, weights, labels, and moments that are stored."""

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import latentscale.vendi.scores
from latentscale.vendi.kernel_products import tiles_bytes
from latentscale.vendi.scores import moment_spectrum, vendi_score
from latentscale.vendi.second_moments import SecondMoment, merge_moments
from latentscale_pipeline.corpus.ingest.create import ingest
from latentscale_pipeline.errors import BadInput
from latentscale_pipeline.jobs import plan as jobs_plan
from latentscale_pipeline.measures.shared import row_groups
from latentscale_pipeline.measures.vendi import labels as labelled_vendi
from latentscale_pipeline.measures.vendi import plan as vendi
from latentscale_pipeline.measures.vendi import tasks as vendi_tasks
from tests import oracles
from tests.support.jobs import results_of, run_here

ORDERS = [0, 0.1, 0.5, 1, 2, math.inf]
LABELS = 23


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("labelled")
    generator = np.random.default_rng(0)
    rows = generator.normal(size=(5000, 12)) + generator.normal(size=12)
    labels = (generator.random(5000) ** 3 * LABELS).astype(int)
    weights = generator.uniform(0, 2, size=5000)
    weights[labels == 7] = 0
    np.save(folder / "rows.npy", rows.astype("f4"))
    np.save(folder / "weights.npy", weights)
    (folder / "labels.txt").write_text("".join(f"label {label:02}\n" for label in labels))
    for name in ("weighted", "labelled"):
        ingest(
            [str(folder / "rows.npy")],
            str(folder / f"{name}.zarr"),
            labels=str(folder / "labels.txt"),
            weights=str(folder / "weights.npy") if name == "weighted" else None,
            shard_bytes=48 * 1024,
        )
    return folder


def run(folder: Path, corpus: Path, **keys: Any) -> dict[str, Any]:
    folder.mkdir(exist_ok=True)
    settings = {"kernels": ["cosine"], "orders": [*ORDERS[:-1], "inf"], **keys}
    text = "".join(f"    {name}: {_yaml(value)}\n" for name, value in settings.items())
    (folder / "job.yaml").write_text(
        f"name: v\ncorpus: {corpus}\noutput: {folder}\ncluster: {{kind: serial}}\n"
        f"measures:\n  vendi:\n{text}"
    )
    run_here(folder / "job.yaml")
    return results_of(folder)


def _yaml(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def oracle(rows: np.ndarray, weights: np.ndarray | None) -> list[float]:
    unit = rows.astype(float) / np.linalg.norm(rows.astype(float), axis=1, keepdims=True)
    masses = np.ones(len(rows)) if weights is None else weights
    shares = masses / masses.sum()
    eigenvalues = np.linalg.eigvalsh((unit * shares[:, None]).T @ unit)
    return [oracles.hill_number(eigenvalues[eigenvalues > 1e-12], order) for order in ORDERS]


@pytest.mark.parametrize("weighted", [False, True])
def test_scores_of_a_corpus_and_of_its_labels(
    tmp_path: Path, corpus: Path, weighted: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    # So little memory that the labels are dealt to several tasks.
    for module in (labelled_vendi, vendi):
        monkeypatch.setattr(module, "LABEL_BYTES", 5000)
    name = "weighted" if weighted else "labelled"
    results = run(tmp_path, corpus / f"{name}.zarr", labels=True)
    rows = np.load(corpus / "rows.npy")
    weights = np.load(corpus / "weights.npy") if weighted else None
    labels = (corpus / "labels.txt").read_text().splitlines()
    whole = [row["value"] for row in results["scores"] if "label" not in row]
    np.testing.assert_allclose(whole, oracle(rows, weights), rtol=1e-9)
    names = sorted(set(labels))
    assert len(names) == LABELS
    found: dict[str, list[Any]] = {}
    for row in results["scores"]:
        if "label" in row:
            found.setdefault(row["label"], []).append(row)
    assert list(found) == names
    for name in names:
        chosen = np.array(labels) == name
        if weighted and name == "label 07":
            assert {row["reason"] for row in found[name]} == {"all weights of the label are 0"}
            continue
        expected = oracle(rows[chosen], None if weights is None else weights[chosen])
        np.testing.assert_allclose([row["value"] for row in found[name]], expected, rtol=1e-8)


@pytest.mark.parametrize("drawn", [4096, 150])
def test_errors_of_labels_are_the_spread_over_fresh_samples(
    tmp_path: Path, drawn: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in (labelled_vendi, vendi):  # the labels of several tasks
        monkeypatch.setattr(module, "LABEL_BYTES", 60_000)
    monkeypatch.setattr(labelled_vendi, "ERROR_ROWS", drawn)
    generator = np.random.default_rng(3)
    scales, labels, each = np.linspace(1, 3, 8), 16, 400

    def draw() -> np.ndarray:
        return generator.normal(size=(each, 8)) * scales + 1

    rows = np.concatenate([*(draw() for _ in range(labels)), draw()[:99], draw()[:120]])
    names = np.repeat([f"l{i:02}" for i in range(labels + 2)], [each] * labels + [99, 120])
    shuffled = generator.permutation(len(rows))
    weights = np.where(names == "l17", 0.0, 1.0)
    weights[np.flatnonzero(names == "l17")[0]] = 2.0
    np.save(tmp_path / "rows.npy", rows[shuffled])
    np.save(tmp_path / "labels.npy", names[shuffled])
    np.save(tmp_path / "weights.npy", weights[shuffled])
    beside = {name: str(tmp_path / f"{name}.npy") for name in ("labels", "weights")}
    ingest([str(tmp_path / "rows.npy")], str(tmp_path / "c.zarr"), shard_bytes=40_000, **beside)
    found = run(tmp_path, tmp_path / "c.zarr", labels=True, orders="[0.5, 1, 2, inf]")
    errors = np.array(
        [
            [row["sampling_error"] for row in found["scores"] if row.get("label") == f"l{i:02}"]
            for i in range(labels)
        ]
    )
    spread = np.std([oracle(draw(), None)[2:] for _ in range(300)], axis=0)
    np.testing.assert_allclose(np.sqrt((errors**2).mean(axis=0)), spread * 1.07, rtol=0.2)
    reasons = {
        row["label"]: row["sampling_error_reason"]
        for row in found["scores"]
        if "sampling_error_reason" in row and row.get("label")
    }
    assert reasons == {
        "l16": "it needs 100 rows or more",
        "l17": "20 groups need at least 40 rows with a weight, got 1",
    }


def test_truncated_scores_stand_beside_the_others(tmp_path: Path, corpus: Path) -> None:
    plain = run(tmp_path / "plain", corpus / "labelled.zarr", kernels="[cosine]", orders="[1]")
    kernels = "[cosine, {name: rbf, bandwidth: 3.0}]"
    found = run(
        tmp_path / "few", corpus / "labelled.zarr", kernels=kernels, orders="[1, 2]", truncation=4
    )
    rows = np.load(corpus / "rows.npy").astype(float)
    unit = rows / np.linalg.norm(rows, axis=1, keepdims=True)
    largest = np.sort(np.linalg.eigvalsh(unit.T @ unit / len(rows)))[-4:]
    largest += (1 - largest.sum()) / 4
    scores = {(row["score"], row["kernel"], row["order"]): row for row in found["scores"]}
    for order in ("1", "2"):
        score = scores["truncated_vendi", "cosine", order]
        assert score["value"] == pytest.approx(oracles.hill_number(largest, float(order)), rel=1e-9)
        assert score["bounds"] == "exact"
        assert 0 < score["sampling_error"] < 0.1
        # 5000 rows under RBF are scored without all their eigenvalues.
        unknown = scores["truncated_vendi", "rbf 3.0", order]
        assert unknown["value"] is None
        assert "method: exact" in unknown["reason"]
    # Nothing else changes, and a job without the option says nothing of it.
    [alone] = plain["scores"]
    beside = scores["vendi", "cosine", "1"]
    assert alone == {**beside, "sampling_error": pytest.approx(beside["sampling_error"], rel=1e-12)}
    [entry] = plain["measures"]["vendi"]["corpus"]
    assert "truncated" not in entry
    entries = found["measures"]["vendi"]["corpus"]
    assert [e["truncated"] and e["truncated"]["kept"] for e in entries] == [4, 4, None, None]


def test_weights_can_be_left_aside_and_are_part_of_a_jobs_identity(
    tmp_path: Path, corpus: Path
) -> None:
    aside = run(tmp_path / "aside", corpus / "weighted.zarr", weights=False)
    plain = run(tmp_path / "plain", corpus / "labelled.zarr", weights=False)
    counted = run(tmp_path / "counted", corpus / "weighted.zarr")
    uncounted = run(tmp_path / "uncounted", corpus / "labelled.zarr")
    assert aside["scores"] == plain["scores"] == uncounted["scores"]
    assert aside["job"]["config_hash"] == plain["job"]["config_hash"]
    assert counted["scores"] != aside["scores"]
    assert counted["job"]["config_hash"] != uncounted["job"]["config_hash"]


def test_weight_in_one_row_alone_says_why_there_is_no_sampling_error(
    tmp_path: Path, corpus: Path
) -> None:
    weights = np.zeros(5000)
    weights[3] = 1.0
    np.save(tmp_path / "weights.npy", weights)
    alone = str(tmp_path / "alone.zarr")
    ingest([str(corpus / "rows.npy")], alone, weights=str(tmp_path / "weights.npy"))
    found = [s for s in run(tmp_path, Path(alone))["scores"] if s["measure"] == "vendi"]
    assert [s["value"] for s in found] == pytest.approx([1.0] * len(ORDERS))
    assert {s["sampling_error_reason"] for s in found} == {
        "20 groups need at least 40 rows with a weight, got 1"
    }


def test_labels_need_labels_and_the_cosine_kernel(tmp_path: Path, corpus: Path) -> None:
    with pytest.raises(BadInput, match="the corpus has no labels; ingest it with --labels"):
        run(tmp_path, corpus / "rows.npy", labels=True)
    with pytest.raises(BadInput, match="labels are scored under the cosine kernel"):
        run(tmp_path, corpus / "labelled.zarr", labels=True, kernels=["rbf"])


def test_a_score_of_a_union_follows_from_stored_moments(tmp_path: Path, corpus: Path) -> None:
    rows = np.load(corpus / "rows.npy")
    moments = []
    for name, part in (("a", rows[:1800]), ("b", rows[1800:])):
        np.save(tmp_path / f"{name}.npy", part)
        results = run(tmp_path / name, tmp_path / f"{name}.npy")
        stored = results["arrays"]["vendi/corpus/cosine/second_moment"]
        [folder] = (tmp_path / name).glob("v-*")
        moments.append(SecondMoment(len(part), np.load(folder / stored)))
    spectrum = moment_spectrum(merge_moments(moments), len(rows))
    scores = [vendi_score(spectrum, order).value for order in ORDERS]
    np.testing.assert_allclose(scores, oracle(rows, None), rtol=1e-9)


def test_single_precision_through_a_job(
    tmp_path: Path, corpus: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    double = run(tmp_path / "double", corpus / "labelled.zarr")
    monkeypatch.setattr(vendi_tasks, "SINGLE_ROWS", 1000)
    monkeypatch.setattr(latentscale.vendi.scores, "SINGLE_TOLERANCE", 1e-5)
    single = run(tmp_path / "single", corpus / "labelled.zarr")
    for one, other in zip(single["scores"], double["scores"], strict=True):
        assert other["upper"] - other["lower"] < 1e-9 * other["value"]
        assert one["lower"] <= other["value"] <= one["upper"]
        assert one["value"] == pytest.approx(other["value"], rel=1e-7)
    widths = [score["upper"] - score["lower"] for score in single["scores"]]
    assert widths[0] == 0  # the rank
    assert 0 < max(widths) < 1e-5 * 12


# --- other kernels -----------------------------------------------------------------------------


@pytest.fixture
def small_groups(monkeypatch: pytest.MonkeyPatch) -> None:
    """Cut even a small corpus into several groups, too large for all eigenvalues or to be kept."""
    monkeypatch.setattr(row_groups, "MIN_ROWS", 256)
    monkeypatch.setattr(row_groups, "ROUNDED_ROWS", 64)
    monkeypatch.setattr(vendi, "EXACT_ROWS", 300)
    monkeypatch.setattr(vendi, "is_kept", lambda n: False)


def dense_scores(rows: np.ndarray, kernel: str, width: float, weights: Any = None) -> list[float]:
    squared = ((rows[:, None].astype(float) - rows[None]) ** 2).sum(axis=2)
    exponent = squared / (2 * width**2) if kernel == "rbf" else np.sqrt(squared) / width
    shares = np.ones(len(rows)) if weights is None else weights
    return [oracles.vendi_score(np.exp(-exponent), shares / shares.sum(), q) for q in ORDERS]


@pytest.mark.usefixtures("small_groups")
@pytest.mark.parametrize("kept", [False, True])
@pytest.mark.parametrize(
    ("kernel", "width", "weighted"), [("rbf", 2.0, False), ("laplacian", 4.0, True)]
)
def test_lanczos_brackets_the_dense_scores(
    tmp_path: Path,
    corpus: Path,
    kernel: str,
    width: float,
    weighted: bool,
    kept: bool,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(vendi, "is_kept", lambda n: kept)
    rows = np.load(corpus / "rows.npy")[:600]
    rows[:50] = rows[550:]  # in another group of rows
    weights = np.load(corpus / "weights.npy")[:600]
    masses = (weights if weighted else np.ones(600))[50:].copy()
    masses[500:] += weights[:50] if weighted else 1.0
    np.save(tmp_path / "rows.npy", rows)
    np.save(tmp_path / "weights.npy", weights)
    source = tmp_path / "source.zarr"
    beside = str(tmp_path / "weights.npy") if weighted else None
    ingest([str(tmp_path / "rows.npy")], str(source), weights=beside)
    kernels = [{"name": kernel, "bandwidth": width}]
    results = run(tmp_path, source, kernels=json.dumps(kernels))
    truth = dense_scores(rows[50:], kernel, width, masses)
    rows = results["measures"]["vendi"]["corpus"]
    for row, value, order in zip(rows, truth, ORDERS, strict=True):
        if order == 0:
            assert row["upper"] == np.count_nonzero(masses)
            continue
        # One draw in twenty is outside its interval; none is far outside.
        width = row["upper"] - row["lower"]
        slack = 1e-9 * value + (width if row["bounds"] == "interval95" else 0.0)
        assert row["method"] == ("exact" if order == 2 else "lanczos")
        assert row["lower"] - slack <= value <= row["upper"] + slack, order
        assert width < (0.01 if order >= 0.5 else 0.05) * value, order
        assert row["bounds"] == {2: "exact", math.inf: "certified"}.get(order, "interval95")


@pytest.mark.usefixtures("small_groups")
def test_stored_similarities_change_no_number_and_are_removed(
    tmp_path: Path, corpus: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    np.save(tmp_path / "rows.npy", np.load(corpus / "rows.npy")[:600])
    found, written, keys = {}, {}, set()
    for spare_bytes in (0, 10**9):
        monkeypatch.setattr(jobs_plan, "SPARE_BYTES", spare_bytes)
        results = run(tmp_path / str(spare_bytes), tmp_path / "rows.npy", kernels='["rbf"]')
        found[spare_bytes] = results["measures"]["vendi"]["corpus"]
        (job,) = (tmp_path / str(spare_bytes)).glob("v-*")
        stages = {s["stage"]: s for s in json.loads((job / "plan.json").read_text())["stages"]}
        similarities = stages["vendi-rbf-median-corpus-similarities"]
        written[spare_bytes] = similarities["bytes_written"]
        keys.add(similarities["key"])
        folder = job / "stages" / similarities["stage"] / similarities["key"]
        assert [path.name for path in folder.iterdir()] == ["collected.json"]
    assert found[0] == found[10**9]
    # A job is resumed with what it has, also where there is now less room.
    assert len(keys) == 1
    # Every pair once, in single precision.
    assert written[10**9] - written[0] >= 2 * 600**2
    assert {row["method"] for row in found[0]} >= {"lanczos"}


@pytest.mark.usefixtures("small_groups")
def test_kernels_share_the_room_for_similarities(
    tmp_path: Path, corpus: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    np.save(tmp_path / "rows.npy", np.load(corpus / "rows.npy")[:600])
    monkeypatch.setattr(jobs_plan, "SPARE_BYTES", tiles_bytes(600, np.float32) * 3 // 2)
    run(tmp_path / "job", tmp_path / "rows.npy", kernels='["rbf", "laplacian"]', orders=[2])
    (job,) = (tmp_path / "job").glob("v-*")
    stages = json.loads((job / "plan.json").read_text())["stages"]
    written = {s["stage"]: s["bytes_written"] for s in stages if "similarities" in s["stage"]}
    stored = [name for name, size in written.items() if size >= 2 * 600**2]
    assert (len(written), stored) == (2, ["vendi-rbf-median-corpus-similarities"])


@pytest.mark.usefixtures("small_groups")
@pytest.mark.parametrize("method", ["subsample", "fourier", "nystrom"])
def test_every_other_method_brackets_the_dense_scores(
    tmp_path: Path, corpus: Path, method: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(vendi, "MIN_SUBSET", 256)
    rows = np.load(corpus / "rows.npy")[:1024]
    np.save(tmp_path / "rows.npy", rows)
    kernels = json.dumps([{"name": "rbf", "bandwidth": 6.0}])
    results = run(
        tmp_path, tmp_path / "rows.npy", kernels=kernels, method=method, orders=[0.5, 1, 2, "inf"]
    )
    truth = dense_scores(rows, "rbf", 6.0)[2:]
    for row, value in zip(results["measures"]["vendi"]["corpus"], truth, strict=True):
        assert row["method"] == ("exact" if (method, row["order"]) == ("nystrom", "2") else method)
        assert row["lower"] * (1 - 1e-9) <= value <= row["upper"] * (1 + 1e-9), row
        assert row["value"] == pytest.approx(value, rel=0.3)


def test_methods_that_do_not_fit_are_refused(tmp_path: Path, corpus: Path) -> None:
    kernels = "[rbf]"
    with pytest.raises(BadInput, match="method nystrom doesn't support weights"):
        run(tmp_path, corpus / "weighted.zarr", kernels=kernels, method="nystrom")
    np.save(tmp_path / "few.npy", np.eye(30, dtype="f4"))
    with pytest.raises(
        BadInput, match="method subsample needs at least 1024 rows and there are 30"
    ):
        run(tmp_path, tmp_path / "few.npy", kernels=kernels, method="subsample")
