"""Rows chosen for their diversity: how well they cover, and what is refused."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import latentscale
from latentscale_pipeline.corpus import Corpus, open_corpus
from latentscale_pipeline.corpus.diversity import choose_unlike
from latentscale_pipeline.corpus.ingest.create import ingest
from latentscale_pipeline.errors import BadInput

GIB = 2**30


@pytest.fixture
def corpus(tmp_path: Path) -> Corpus:
    """Forty tight clusters, one of them with most of the rows."""
    generator = np.random.default_rng(1)
    sizes = [400] + [5] * 39
    centres = np.repeat(generator.normal(size=(40, 16)), sizes, axis=0)
    rows = centres + 0.02 * generator.normal(size=centres.shape)
    np.save(tmp_path / "rows.npy", generator.permutation(rows).astype("f4"))
    return ingest([str(tmp_path / "rows.npy")], str(tmp_path / "rows.zarr"))


def chosen(corpus: Corpus, count: int, **settings: Any) -> Any:
    settings = {"memory_bytes": GIB, "progress": lambda done, total: None, **settings}
    rows = settings.pop("rows", np.arange(corpus.n))
    return choose_unlike(corpus, rows, count, **settings)


@pytest.mark.parametrize("metric", ["cosine", "euclidean"])
def test_every_cluster_is_covered_and_the_distance_is_that_of_all_rows(
    corpus: Corpus, metric: Any
) -> None:
    rows = corpus.read_all().astype(float)
    found = chosen(corpus, 40, metric=metric, cover=True)
    assert len(found.rows) == len(set(found.rows)) == 40
    assert np.all(np.diff(found.rows) > 0)

    def reach(centres: np.ndarray) -> float:
        if metric == "euclidean":
            away = np.linalg.norm(rows[:, None] - centres, axis=2)
        else:
            a, b = (x / np.linalg.norm(x, axis=1, keepdims=True) for x in (rows, centres))
            away = 1 - a @ b.T
        return float(away.min(axis=1).max())

    assert found.retained.radius == pytest.approx(reach(rows[found.rows]), abs=1e-3)
    drawn = np.random.default_rng(0).choice(len(rows), 40, replace=False)
    assert found.by_random_rows.radius == pytest.approx(reach(rows[np.sort(drawn)]), abs=1e-3)
    assert found.retained.radius < 0.2 * found.by_random_rows.radius


def test_every_row_is_within_the_distance_that_is_said_far_from_the_origin(
    tmp_path: Path,
) -> None:
    rows = np.random.default_rng(2).normal(size=(900, 16)).astype("f4") + np.float32(1000)
    np.save(tmp_path / "far.npy", rows)
    far = ingest([str(tmp_path / "far.npy")], str(tmp_path / "far.zarr"))
    found = chosen(far, 100, metric="euclidean", cover=True)
    rows = rows.astype(float)
    away = np.linalg.norm(rows[:, None] - rows[found.rows], axis=2).min(axis=1).max()
    assert away <= found.retained.radius * (1 + 1e-12) < away * 1.001
    assert chosen(far, 900, metric="euclidean", cover=True).retained.radius == 0.0


@pytest.mark.parametrize("count", [10, 40, 80])
def test_the_diversity_is_above_that_of_random_rows(corpus: Corpus, count: int) -> None:
    rows = corpus.read_all()
    found = chosen(corpus, count)
    diverse = float(latentscale.vendi_score(rows[found.rows]).scores["1"])
    for seed in range(5):
        drawn = np.random.default_rng(seed).choice(len(rows), count, replace=False)
        assert diverse > float(latentscale.vendi_score(rows[drawn]).scores["1"])


def test_the_effective_number_is_the_score_of_order_2(corpus: Corpus) -> None:
    found = chosen(corpus, 30)
    scores = latentscale.vendi_score(corpus.read_all()[found.rows], orders=[2]).scores
    assert found.retained.effective_number == pytest.approx(float(scores["2"]), rel=1e-5)
    assert found.retained.effective_number > found.by_random_rows.effective_number


def test_only_the_rows_given_are_chosen(corpus: Corpus) -> None:
    found = chosen(corpus, 7, rows=np.arange(10, 20))
    assert set(found.rows) <= set(range(10, 20))


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"count": 600}, "can't choose 600 rows of 595; ask for fewer"),
        ({"count": 2, "memory_bytes": 10}, "and 0.0GiB may be used; draw fewer to choose from"),
    ],
)
def test_what_cannot_be_is_refused(corpus: Corpus, settings: dict[str, Any], message: str) -> None:
    with pytest.raises(BadInput, match=message):
        chosen(corpus, **settings)


def test_zero_rows_have_no_direction(tmp_path: Path) -> None:
    np.save(tmp_path / "rows.npy", np.eye(5, 4, dtype="f4"))
    made = ingest([str(tmp_path / "rows.npy")], str(tmp_path / "rows.zarr"))
    with pytest.raises(BadInput, match="1 row is zero and has no direction; choose --cover --metr"):
        chosen(open_corpus(made.url), 2)
    assert len(chosen(open_corpus(made.url), 5, metric="euclidean", cover=True).rows) == 5
