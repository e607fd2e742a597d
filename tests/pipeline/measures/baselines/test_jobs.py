"""The baselines through a job: as defined, and a clean sample above a corrupted one."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.linalg import sqrtm
from sklearn.datasets import load_digits

from latentscale_pipeline.errors import BadInput
from tests import oracles
from tests.support.jobs import results_of, run_here


def run(folder: Path, corpus: np.ndarray, reference: np.ndarray | None, keys: str = "") -> Any:
    folder.mkdir()
    np.save(folder / "corpus.npy", corpus.astype("f4"))
    text = f"name: b\ncorpus: {folder}/corpus.npy\noutput: {folder}\ncluster: {{kind: serial}}\n"
    if reference is not None:
        np.save(folder / "reference.npy", reference.astype("f4"))
        text += f"reference: {folder}/reference.npy\n"
    (folder / "job.yaml").write_text(f"{text}measures: {{baselines: {{{keys}}}}}\n")
    run_here(folder / "job.yaml")
    return results_of(folder)


def values(results: Any, of: str) -> dict[str, float]:
    return {row["score"]: row["value"] for row in results["scores"] if row["of"] == of}


def _root_by_eigenvalues(matrix: np.ndarray) -> np.ndarray:
    return np.diag(np.sqrt(np.maximum(np.linalg.eigvals(matrix).real, 0.0)))


def test_they_equal_their_definitions_and_rank_samples(tmp_path: Path) -> None:
    digits = load_digits().data
    rng = np.random.default_rng(0)
    order = rng.permutation(len(digits))
    reference, clean = digits[order[:600]], digits[order[600:1100]]
    noisy = clean + rng.normal(scale=5.0, size=clean.shape)
    results = run(tmp_path / "clean", clean, reference)
    one, pair = values(results, "corpus"), values(results, "pair")
    unit = clean / np.linalg.norm(clean, axis=1, keepdims=True)
    similarities = unit @ unit.T
    different = similarities[~np.eye(len(unit), dtype=bool)]
    assert one["mean similarity"] == pytest.approx(different.mean(), rel=1e-6)
    assert one["IntDiv"] == pytest.approx(1 - similarities.mean(), rel=1e-6)
    assert one["GMStds"] == 0.0  # some pixels are never used
    # Some covariances are singular, so the trace of the root is the sum of the eigenvalues' roots.
    expected_fid = oracles.frechet(clean, reference, _root_by_eigenvalues)
    assert pair["FID"] == pytest.approx(expected_fid, rel=1e-3)
    assert pair["KID"] == pytest.approx(oracles.kernel_distance(clean, reference), rel=1e-6)
    names = ("precision", "recall", "density", "coverage", "clipped density", "clipped coverage")
    expected = oracles.manifold_overlap(clean, reference, 5)
    assert [pair[name] for name in names] == pytest.approx(expected, rel=1e-9)
    section = results["measures"]["baselines"]["pair"]
    assert min(section[name.replace(" ", "_")]["agreement"] for name in names) > 0.95
    assert {row["bounds"] for row in results["scores"]} == {"exact"}
    worse = values(run(tmp_path / "noisy", noisy, reference), "pair")
    assert pair["FID"] < worse["FID"]
    assert pair["KID"] < worse["KID"]
    for name in ("precision", "density", "coverage", "clipped density", "clipped coverage"):
        assert pair[name] > worse[name]


def test_lists_agree_where_one_corpus_is_much_larger(tmp_path: Path) -> None:
    rng = np.random.default_rng(1)
    large, small = (rng.normal(size=(n, 4)).astype("f4") for n in (1000, 25))
    for name, pair in (("a", (large, small)), ("b", (small, large))):
        section = run(tmp_path / name, *pair)["measures"]["baselines"]["pair"]
        found = [section[key] for key in ("precision", "recall", "density", "clipped_density")]
        # 0.3 where the lists were of all rows.
        assert min(each["agreement"] for each in found) > 0.95
        precision, recall, density, _, clipped_density, _ = oracles.manifold_overlap(*pair, 5)
        assert [each["value"] for each in found] == pytest.approx(
            [precision, recall, density, clipped_density]
        )


def test_many_rows_are_compared_by_a_sample(tmp_path: Path) -> None:
    rng = np.random.default_rng(1)
    x, y = rng.normal(size=(900, 5)) + 0.3, rng.normal(size=(700, 5))
    results = run(tmp_path / "sampled", x, y, "rows: 400, k: 3")
    assert results["measures"]["baselines"]["pair"]["rows"] == [400, 400]
    rows = {row["score"]: row for row in results["scores"] if row["of"] == "pair"}
    assert rows["KID"]["bounds"] == "estimate"
    x, y = x.astype("f4").astype(float), y.astype("f4").astype(float)
    truth = oracles.kernel_distance(x, y)
    assert rows["KID"]["lower"] < truth < rows["KID"]["upper"]
    assert rows["FID"]["value"] == pytest.approx(oracles.frechet(x, y, sqrtm), rel=1e-6)


def _of_kinds(generator: np.random.Generator, n: int, share: float) -> np.ndarray:
    """Rows of two kinds, stored one kind after the other."""
    second = np.sort(generator.random(n) < share)[:, None]
    return 0.3 * generator.normal(size=(n, 4)) + np.where(second, 2.0, -2.0)


def test_the_error_of_the_kernel_distance_of_rows_stored_by_kind(tmp_path: Path) -> None:
    generator = np.random.default_rng(2)
    pairs = [(_of_kinds(generator, 300, 0.5), _of_kinds(generator, 300, 0.7)) for _ in range(60)]
    spread = np.std([oracles.kernel_distance(x, y) for x, y in pairs], ddof=1)
    errors = []
    for place, (x, y) in enumerate(pairs[:3]):
        rows = run(tmp_path / str(place), x, y)["scores"]
        errors += [row["sampling_error"] for row in rows if row["score"] == "KID"]
    assert np.mean(errors) == pytest.approx(spread, rel=0.3)  # a quarter of it by stored groups


def test_the_error_of_random_rows_is_that_of_the_corpus(tmp_path: Path) -> None:
    generator = np.random.default_rng(3)
    pairs = [(_of_kinds(generator, 300, 0.5), _of_kinds(generator, 300, 0.7)) for _ in range(60)]
    spread = np.std([oracles.kernel_distance(x, y) for x, y in pairs], ddof=1)
    x, y = (generator.permutation(_of_kinds(generator, 3000, share)) for share in (0.5, 0.7))
    results = run(tmp_path / "some", x, y, "rows: 300")
    [found] = [row for row in results["scores"] if row["score"] == "KID"]
    assert found["sampling_error"] == pytest.approx(spread * 0.1**0.5, rel=0.4)
    part = results["measures"]["baselines"]["pair"]["KID"]
    assert part["sampling_error"] == found["sampling_error"]
    # The bracket has what the chance of the rows is.
    reach = 1.96 * (0.9 / 0.1) ** 0.5 * found["sampling_error"]
    assert (found["upper"] - found["lower"]) / 2 == pytest.approx(reach, rel=1e-6)


def test_one_corpus_alone_and_what_is_refused(tmp_path: Path) -> None:
    rows = np.array([[0.0, 0.0], [1.0, 2.0], [2.0, 1.0]])
    alone = {row["score"]: row for row in run(tmp_path / "alone", rows, None)["scores"]}
    assert alone["GMStds"]["value"] == pytest.approx((2 / 3) ** 0.5)
    assert alone["IntDiv"]["reason"] == "1 row is zero, without a direction"
    with pytest.raises(BadInput, match="k is 5, which needs more rows than 3"):
        run(tmp_path / "few", rows, rows + 1)
    with pytest.raises(BadInput, match="needs equal dimensions; the corpus has 2"):
        run(tmp_path / "unlike", rows, np.ones((3, 3)))
