"""The neighbour graph of a finished job, as other tools take it."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import scipy

from latentscale_pipeline.api.job import JobResults
from latentscale_pipeline.corpus.ingest.create import ingest
from latentscale_pipeline.measures.finished_job import read_job
from tests import oracles
from tests.conftest import Ended
from tests.support.jobs import run_here

Command = Callable[..., Ended]

N, D, K = 120, 8, 4


def run(folder: Path, name: str, **heat: object) -> Path:
    """Run a job on rows of which some are equal, and return its folder."""
    rows = np.random.default_rng(0).normal(size=(N, D)).astype("f4")
    rows[100:104] = rows[:4]
    np.save(folder / "rows.npy", rows)
    np.save(folder / "fewer.npy", rows[:50] * 2)
    (folder / "ids.txt").write_text("\n".join(f"id-{row}" for row in range(N)) + "\n")
    corpus = folder / "rows.zarr"
    if not corpus.exists():
        ingest([str(folder / "rows.npy")], str(corpus), ids=str(folder / "ids.txt"))
    described = {
        "name": name,
        "corpus": str(corpus),
        "reference": str(folder / "fewer.npy"),
        "output": str(folder / f"{name}-jobs"),
        "sampling": {"method": "none"},
        "measures": {"heat": {"k": K, **heat}},
        "cluster": {"kind": "serial"},
    }
    (folder / f"{name}.yaml").write_text(json.dumps(described))
    return Path(run_here(folder / f"{name}.yaml").store.url)


@pytest.fixture(scope="module")
def job(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a finished job."""
    return run(tmp_path_factory.mktemp("graph"), "exact")


def test_a_matrix_has_the_distances_of_the_nearest_rows(
    job: Path, latentscale: Command, tmp_path: Path
) -> None:
    target = tmp_path / "graph.npz"
    ended = latentscale("export-graph", job, "--output", target)
    assert ended.code == 0, ended.err
    assert ended.out == f"{target}: {K} neighbours of each of {N} rows\n"
    graph = scipy.sparse.load_npz(target)
    rows = np.load(job.parent.parent / "rows.npy").astype(float)
    expected = [row[:K] for row in oracles.sorted_distances(rows, "euclidean")]
    assert graph.shape == (N, N)
    # Equal rows are neighbours at a distance of 0, which a sparse matrix could lose.
    assert graph.nnz == N * K
    np.testing.assert_allclose(
        graph.data.reshape(N, K), [[far for far, _ in row] for row in expected], rtol=1e-6
    )
    # Of equally far rows either may come first.
    apart = np.sqrt(np.square(rows[:, None] - rows[graph.indices.reshape(N, K)]).sum(axis=2))
    np.testing.assert_allclose(graph.data.reshape(N, K), apart, rtol=1e-6)
    assert (graph.indices.reshape(N, K) != np.arange(N)[:, None]).all()
    with np.load(target) as held:
        assert held["ids"].tolist() == [f"id-{row}" for row in range(N)]


def test_a_folder_has_a_line_for_every_row_and_itself_if_asked_for(
    job: Path, latentscale: Command, tmp_path: Path
) -> None:
    graph = tmp_path / "graph.npz"
    assert latentscale("export-graph", job, "--output", graph).code == 0
    matrix = scipy.sparse.load_npz(graph)
    ended = latentscale("export-graph", job, "--with-self", "--output", tmp_path / "lists")
    assert ended.code == 0, ended.err
    assert ended.out.endswith(f"ids.npy: {K} neighbours of each of {N} rows and itself\n")
    indices = np.load(tmp_path / "lists" / "indices.npy")
    distances = np.load(tmp_path / "lists" / "distances.npy")
    assert (indices.dtype, distances.dtype) == (np.int32, np.float32)
    np.testing.assert_array_equal(indices[:, 0], np.arange(N))
    np.testing.assert_array_equal(distances[:, 0], 0)
    np.testing.assert_array_equal(indices[:, 1:], matrix.indices.reshape(N, K))
    np.testing.assert_array_equal(distances[:, 1:], matrix.data.reshape(N, K))
    assert len(np.load(tmp_path / "lists" / "ids.npy")) == N
    # The reference has no ids.
    other = tmp_path / "others"
    assert latentscale("export-graph", job, "--of", "reference", "--output", other).code == 0
    assert sorted(path.name for path in other.iterdir()) == ["distances.npy", "indices.npy"]
    assert np.load(other / "indices.npy").shape == (50, K)


def test_the_graph_in_the_notebook_is_that_of_the_file(job: Path, tmp_path: Path) -> None:
    found = read_job(str(job))
    indices, distances = JobResults(found.url, found.results).neighbours(of="corpus")
    assert indices.shape == distances.shape == (N, K)
    assert (np.diff(distances, axis=1) >= 0).all()


def test_rows_in_blocks_are_put_in_order(
    latentscale: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shared = "latentscale_pipeline.measures.shared.neighbours"
    monkeypatch.setattr(f"{shared}.sizes.HOME_ROWS", 10)
    monkeypatch.setattr(f"{shared}.sizes.VERTEX_BLOCK", 50)
    whole = run(tmp_path, "whole", neighbours="cells")
    monkeypatch.setattr(f"{shared}.plan.JOINED_ENTRIES", 0)
    blocks = run(tmp_path, "blocks", neighbours="cells")
    names = read_job(str(blocks)).results.arrays
    assert f"heat/corpus/distances/{-(-N // 50) - 1:05d}" in names
    for name, folder in (("whole", whole), ("blocks", blocks)):
        ended = latentscale("export-graph", folder, "--output", tmp_path / name)
        assert ended.code == 0, ended.err
    for array in ("indices", "distances", "ids"):
        np.testing.assert_array_equal(
            *(np.load(tmp_path / name / f"{array}.npy") for name in ("whole", "blocks"))
        )
    rows = np.load(tmp_path / "rows.npy").astype(float)
    indices = np.load(tmp_path / "blocks" / "indices.npy")
    apart = np.sqrt(np.square(rows[:, None] - rows[indices]).sum(axis=2))
    np.testing.assert_allclose(np.load(tmp_path / "blocks" / "distances.npy"), apart, rtol=1e-6)


def test_what_has_no_graph_is_said(job: Path, latentscale: Command, tmp_path: Path) -> None:
    def refused(*arguments: object) -> str:
        ended = latentscale("export-graph", *arguments)
        assert ended.code == 2
        return ended.err.strip()

    target = tmp_path / "graph.npz"
    target.write_text("there")
    assert "the file exists" in refused(job, "--output", target)
    assert "a graph is one .npz file, or a folder" in refused(job, "--output", tmp_path / "g.csv")
    assert latentscale("export-graph", job, "--output", tmp_path / "lists.v1").code == 0
    assert "indices.npy: the file exists" in refused(job, "--output", tmp_path / "lists.v1")
    before = Path(__file__).parents[2] / "data" / "written_before" / "compare"
    assert "computed by an earlier version" in refused(before, "--output", tmp_path / "g.npz")
    other = tmp_path / "other"
    shutil.copytree(job, other)
    document = json.loads((other / "results.json").read_text())
    path = other / document["arrays"]["heat/corpus/distances"]
    path.unlink()
    assert f"{path}: the array is missing" in refused(other, "--output", tmp_path / "g.npz")
    # Without its corpus a job still has the graph, but not the ids.
    document["corpora"]["corpus"]["uri"] = str(tmp_path / "gone.zarr")
    path.write_bytes((job / document["arrays"]["heat/corpus/distances"]).read_bytes())
    (other / "results.json").write_text(json.dumps(document))
    assert "by --without-ids" in refused(other, "--output", tmp_path / "g.npz")
    given = ("--without-ids", "--overwrite", "--output", tmp_path / "lists.v1")
    assert latentscale("export-graph", other, *given).code == 0
    assert not (tmp_path / "lists.v1" / "ids.npy").exists()
    document["arrays"] = {}
    (other / "results.json").write_text(json.dumps(document))
    assert "run it again with one of: heat" in refused(other, "--output", tmp_path / "g.npz")
    assert not (tmp_path / "g.npz").exists()
