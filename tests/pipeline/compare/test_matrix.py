"""Matrices of many corpora: values of single jobs, the tree of scipy, and what is refused."""

import csv
import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.cluster.hierarchy import cophenet, linkage
from scipy.spatial.distance import squareform

from latentscale_pipeline.compare.matrix import Matrix, ScoreMatrix
from latentscale_pipeline.compare.matrix_report import nearest_and_farthest
from latentscale_pipeline.results.model import Score
from tests.conftest import Ended
from tests.support.jobs import results_of

Command = Callable[..., Ended]

SHIFTS = {"a": 0.0, "b": 0.2, "c": 3.0, "d": 3.3}


def save(folder: Path, n: int = 200, d: int = 6) -> list[Path]:
    """Write four corpora, of which the first two and the last two are near each other."""
    paths = []
    for seed, (name, shift) in enumerate(SHIFTS.items()):
        rows = np.random.default_rng(seed).normal(size=(n, d)) + shift
        paths.append(folder / f"{name}.npy")
        np.save(paths[-1], rows.astype("f4"))
    return paths


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("matrix")


def matrix_of(values: np.ndarray, relation: Any = "distance") -> ScoreMatrix:
    n = len(values)
    scores = {
        (i, j): Score(
            measure="mmd", of="pair", score="mmd", value=value, lower=value, upper=value,
            bounds="exact" if value is not None else None, method="m", unit="u", better="none",
            reason=None if value is not None else "no rows",
        )
        for i in range(n)
        for j in range(i + 1, n)
        for value in [None if np.isnan(values[i, j]) else float(values[i, j])]
    }  # fmt: skip
    return ScoreMatrix("MMD²", "mmd", "mmd", relation, scores, n)


@pytest.mark.parametrize("seed", range(20))
def test_the_tree_is_that_of_scipy(seed: int) -> None:
    rng = np.random.default_rng(seed)
    n = int(rng.integers(2, 12))
    points = rng.normal(size=(n, 3))
    values = np.linalg.norm(points[:, None] - points[None], axis=2)
    found = matrix_of(values)
    merges = found.merges()
    expected = linkage(squareform(values, checks=False), "average")
    np.testing.assert_allclose([merge.height for merge in merges], expected[:, 2])
    assert sorted(found.order()) == list(range(n))
    # Corpora are joined at the same heights as in scipy's tree.
    sizes = [1] * n
    for merge in merges:
        sizes.append(sizes[merge.first] + sizes[merge.second])
    heights = zip(merges, sizes[n:], strict=True)
    ours = np.array([[m.first, m.second, m.height, size] for m, size in heights])
    np.testing.assert_allclose(cophenet(ours), cophenet(expected))


def test_similarities_are_near_and_values_below_zero_are_none() -> None:
    near = matrix_of(np.array([[0, 0.9, 0.1], [0, 0, 0.2], [0, 0, 0]]), "similarity")
    assert near.order()[1] in (0, 1)
    np.testing.assert_allclose(near.distances[0], [0.0, 0.1, 0.9])
    below = matrix_of(np.array([[0, -1e-5, 1.0], [0, 0, 1.0], [0, 0, 0]]))
    assert below.distances[0, 1] == 0.0
    values = np.array([[0, -1e-2, -1e-4], [0, 0, -2e-4], [0, 0, 0]])
    said = nearest_and_farthest(Matrix(("x", "y", "z"), {}), matrix_of(values))
    assert said == "MMD²: nearest are x and y (-0.01), farthest x and z (-1e-04)."
    assert below.values[1, 0] == -1e-5


def test_two_directions_have_two_values_and_a_mean_distance() -> None:
    values = np.array([[0, 1.0, 0.1], [0.6, 0, 0.2], [0.1, 0.4, 0]])
    upper, lower = matrix_of(values, "similarity"), matrix_of(values.T, "similarity")
    assert not upper.directed
    turned = {(other, one): score for (one, other), score in lower.scores.items()}
    found = replace(upper, scores={**upper.scores, **turned})
    assert found.directed
    off = ~np.eye(3, dtype=bool)
    np.testing.assert_array_equal(found.values[off], values[off])
    np.testing.assert_allclose(found.distances[0], [0.0, 0.2, 0.9])
    said = nearest_and_farthest(Matrix(("x", "y", "z"), {}), found)
    assert said == "MMD²: largest is that of x in y (1), smallest x in z and 1 other pair (0.1)."


def test_the_share_of_a_corpus_in_another_is_that_of_the_exchanged_job(
    folder: Path, latentscale: Command
) -> None:
    rows = np.random.default_rng(5).normal(size=(300, 4)).astype("f4")
    # The first lies in the second, which has another cluster far away.
    np.save(folder / "part.npy", rows[:140])
    np.save(folder / "whole.npy", np.concatenate([rows[140:280], rows[:100] + 50]))
    given = ("--measures", "geomca,baselines", "--output", folder / "both", "-o",
             "cluster.kind=serial")  # fmt: skip
    paths = (folder / "part.npy", folder / "whole.npy")
    ended = latentscale("matrix", *paths, *given)
    assert ended.code == 0, ended.err
    assert "of the corpus at the left in the one above" in ended.out
    [made] = (folder / "both").glob("corpora-matrix-*")
    document = json.loads((made / "matrix.json").read_text())
    matrices = {(m["measure"], m["score"]): m for m in document["matrices"]}
    for key in (("geomca", "precision_rows"), ("baselines", "precision")):
        assert matrices[key]["directed"]
        assert matrices[key]["values"][0][1] > 0.9
        assert matrices[key]["values"][1][0] < 0.7
    assert not matrices["baselines", "FID"]["directed"]
    first = document["jobs"][0]["job"]
    latentscale(
        "run", paths[1], "--reference", paths[0], "--measures", "geomca,baselines", "--output",
        folder / "turned", "-o", f"scales_from={first}", "-o", "sampling.method=none", *given[-2:],
    )  # fmt: skip
    turned = {(row["measure"], row["score"]): row for row in results_of(folder / "turned")["scores"]
              if row["of"] == "pair"}  # fmt: skip
    for key, found in matrices.items():
        if found["directed"]:
            assert found["values"][1][0] == pytest.approx(turned[key]["value"], abs=0.02)
    improved = matrices["baselines", "precision"]["values"][1][0]
    assert improved == turned["baselines", "precision"]["value"]


def test_a_missing_value_leaves_no_tree() -> None:
    found = matrix_of(np.array([[0, np.nan, 1.0], [0, 0, 2.0], [0, 0, 0]]))
    assert (found.merges(), found.order()) == ([], [0, 1, 2])
    said = nearest_and_farthest(Matrix(("x", "y", "z"), {}), found)
    assert said == "MMD²: nearest are x and z (1), farthest y and z (2)."


def test_a_command_compares_every_two(folder: Path, latentscale: Command) -> None:
    paths = save(folder)
    given = ("--output", folder / "jobs", "-o", "cluster.kind=serial")
    ended = latentscale("matrix", *paths, "--name", "Four sets", *given)
    assert ended.code == 0
    assert "nearest are a and b" in ended.out
    assert "[6/6] c against d" in ended.err
    [made] = (folder / "jobs").glob("four-sets-matrix-*")
    document = json.loads((made / "matrix.json").read_text())
    assert document["names"] == ["a", "b", "c", "d"]
    titles = {found["measure"]: found for found in document["matrices"]}
    values = np.array(titles["mmd"]["values"], dtype=float)
    np.testing.assert_array_equal(np.isnan(values), np.eye(4, dtype=bool))
    np.testing.assert_allclose(values, values.T)
    order = "".join(document["names"][place] for place in titles["mmd"]["order"])
    assert {order[:2], order[2:]} <= {"ab", "ba", "cd", "dc"}
    assert {tuple(sorted(merge[:2])) for merge in titles["mmd"]["merges"][:2]} == {(0, 1), (2, 3)}
    # Each value is that of a job alone, at the scales of the first.
    first = document["jobs"][0]["job"]
    latentscale(
        "run", paths[1], "--reference", paths[2], "--measures", "heat,mmd", "--name", "x",
        "--output", folder / "alone", "-o", f"scales_from={first}", "-o", "sampling.method=none",
    )  # fmt: skip
    alone = {row["measure"]: row for row in results_of(folder / "alone")["scores"]
             if row["of"] == "pair" and row["score"] in ("imd", "mmd")}  # fmt: skip
    for measure, row in alone.items():
        assert titles[measure]["values"][1][2] == row["value"]
    rows = list(csv.DictReader((made / "matrix.csv").read_text().splitlines()))
    [row] = [
        each for each in rows
        if (each["corpus"], each["reference"], each["score"]) == ("b", "c", "mmd")
    ]  # fmt: skip
    assert float(row["value"]) == values[1, 2]
    assert float(row["lower"]) <= values[1, 2] <= float(row["upper"])
    assert [row["name"] for row in document["corpora"]] == ["a", "b", "c", "d"]
    assert all(row["scores"]["Heat trace (scale 0.991)"] for row in document["corpora"])
    page = (made / "report.html").read_text()
    assert page.count("<rect") >= 32
    assert "Which are near each other" in page


def test_the_stages_of_a_corpus_are_computed_once_for_each_side(
    folder: Path, latentscale: Command
) -> None:
    if not (folder / "a.npy").exists():
        save(folder)
    given = ("--output", folder / "jobs", "-o", "cluster.kind=serial")
    latentscale("matrix", *sorted(folder.glob("?.npy")), "--name", "Four sets", *given)
    events = (folder / "jobs").glob("four-sets-?-?-*/events/**/*.jsonl")
    begun = [line for path in events for line in path.read_text().splitlines()]
    # Three corpora are the first of a pair, and three the second.
    for stage in ("neighbours", "graph", "heat"):
        computed = [line for line in begun if "stage_started" in line and f'"{stage}-' in line]
        assert len(computed) == 6
    assert not list((folder / "jobs").glob("four-sets-*/stages/heat-*/*/*/imd_deviations.npy"))


def test_paired_models_make_a_matrix_of_similarities(tmp_path: Path, latentscale: Command) -> None:
    rng = np.random.default_rng(0)
    x = rng.normal(size=(150, 8))
    models = {"one": x, "two": x @ rng.normal(size=(8, 5)), "other": rng.normal(size=(150, 7))}
    for name, rows in models.items():
        np.save(tmp_path / f"{name}.npy", rows.astype("f4"))
    sources = [f"{name.upper()}={tmp_path / name}.npy" for name in models]
    ended = latentscale(
        "matrix", *sources, "--pair", "rows", "--output", tmp_path / "jobs", "--json",
        "-o", "cluster.kind=serial",
    )  # fmt: skip
    document = json.loads(ended.out)
    found = {each["score"]: each for each in document["matrices"]}
    assert set(found) == {"CKA, debiased", "neighbour overlap", "imd"}
    cka = np.array(found["CKA, debiased"]["values"], dtype=float)
    assert cka[0, 1] > 0.5 > abs(cka[0, 2])
    assert sorted(found["CKA, debiased"]["merges"][0][:2]) == [0, 1]


def test_scores_with_weights_beside_scores_without_are_told(
    tmp_path: Path, latentscale: Command
) -> None:
    weights, places = tmp_path / "weights.txt", save(tmp_path, n=60)
    weights.write_text("".join(f"{1 + place % 3}\n" for place in range(60)))
    weighted = tmp_path / "weighted.zarr"
    latentscale("ingest", places[0], weighted, "--weights", weights)
    output = ("--output", tmp_path / "jobs", "-o", "cluster.kind=serial")
    measures = ("--measures", "vendi,mmd", "-o", "sampling.method=none")
    ended = latentscale("matrix", weighted, *places[1:3], *output, *measures)
    line = "Rows have weights in weighted, and none in b, c: scores of each corpus by itself that"
    assert line in " ".join(ended.out.split()), ended.out
    alike = latentscale("matrix", *places[:3], *output, *measures)
    assert "have weights" not in alike.out
    alone = latentscale("run", places[1], "--reference", weighted, *output, *measures)
    said = (
        "Vendi scores count the rows of the reference by their weights, and the corpus has none, "
        "so the scores of the two can't be compared; other measures count each row once"
    )
    assert said in " ".join(alone.out.split())
    [page] = (tmp_path / "jobs").glob("b-????????/report.html")
    assert said.replace("'", "&#39;") in page.read_text()


def test_what_cannot_be_compared_is_refused(tmp_path: Path, latentscale: Command) -> None:
    paths = save(tmp_path, n=60)
    (tmp_path / "sub").mkdir()
    twice = latentscale("matrix", paths[0], tmp_path / "sub" / "a.npy")
    assert (twice.code, "are both called a; write NAME=" in twice.err) == (2, True)
    alone = latentscale("matrix", paths[0])
    assert (alone.code, "name at least two" in alone.err) == (2, True)
    job = tmp_path / "job.yaml"
    job.write_text("corpus: a.npy\nname: x\n")
    refused = latentscale("matrix", job, paths[0])
    assert (refused.code, "a job file; name the sources" in refused.err) == (2, True)
    np.save(tmp_path / "wide.npy", np.ones((60, 9), "f4"))
    given = (paths[0], paths[1], tmp_path / "wide.npy", "--output", tmp_path)
    unlike = latentscale("matrix", *given, "--measures", "mmd")
    assert unlike.code == 2
    assert "a against wide: measures.mmd needs equal dimensions" in unlike.err
    assert "[1/3]" not in unlike.err


def test_corpora_of_other_dimensions_and_sizes_are_compared_where_that_is_possible(
    tmp_path: Path, latentscale: Command
) -> None:
    np.save(tmp_path / "narrow.npy", np.random.default_rng(0).normal(size=(80, 4)).astype("f4"))
    np.save(tmp_path / "wide.npy", np.random.default_rng(1).normal(size=(60, 9)).astype("f4"))
    sources = (tmp_path / "narrow.npy", tmp_path / "wide.npy")
    given = ("--output", tmp_path / "jobs", "-o", "cluster.kind=serial")
    ended = latentscale("matrix", *sources, *given)
    assert ended.code == 0
    assert "Intrinsic distance (IMD), a distance" in ended.out
    assert "MMD" not in ended.out
    assert "The corpora have 60 to 80 rows" in ended.out
    assert "The sampling error of Intrinsic distance (IMD) isn't known here" in ended.out


def test_columns_and_invalid_rows_are_those_of_all_sources(
    tmp_path: Path, latentscale: Command
) -> None:
    pa, parquet = (pytest.importorskip(name) for name in ("pyarrow", "pyarrow.parquet"))
    generator, sources = np.random.default_rng(0), []
    for number, name in enumerate(("a", "b")):
        rows = generator.normal(loc=number, size=(120, 6)).astype("f4")
        np.save(tmp_path / f"{name}.npy", rows[1:])
        rows[0] = np.nan
        table = pa.table({"vector": list(rows), "other": list(rows[:, :3])})
        parquet.write_table(table, tmp_path / f"{name}.parquet")
        sources.append(tmp_path / f"{name}.parquet")
    usual = ("--measures", "mmd", "--output", tmp_path / "jobs", "--json")
    plain = json.loads(latentscale("matrix", tmp_path / "a.npy", tmp_path / "b.npy", *usual).out)
    ambiguous = latentscale("matrix", *sources, *usual)
    assert ambiguous.code == 2
    assert "name one with --vectors" in ambiguous.err
    read = ("--vectors", "vector", "--on-invalid", "drop")
    found = latentscale("matrix", *sources, *read, *usual)
    assert found.code == 0, found.err
    assert json.loads(found.out)["matrices"] == plain["matrices"]
    assert found.err.count("1 row of the corpus left out") == 1


def test_a_measure_that_a_pair_lacks_is_named_with_its_reason(
    tmp_path: Path, latentscale: Command
) -> None:
    first, second, *_ = save(tmp_path, n=60)
    np.save(tmp_path / "few.npy", np.load(first)[:10])
    ended = latentscale(
        "matrix", first, second, tmp_path / "few.npy", "--measures", "mmd,vendi", "--output",
        tmp_path / "o", "-o", "cluster.kind=serial", "--quiet",
    )  # fmt: skip
    assert ended.code == 0, ended.err
    assert (
        "mmd: 2 of 3 pairs have no value, such as a and few: the reference has fewer than 20 rows."
    ) in ended.out
    [table] = (tmp_path / "o").glob("corpora-matrix-*/matrix.csv")
    of_mmd = [line for line in table.read_text().splitlines() if ",mmd," in line]
    assert [line.split(",mmd,")[0] for line in of_mmd] == ["a,b", "a,few", "b,few"]


def test_a_corpus_without_a_scale_has_that_of_the_others(
    tmp_path: Path, latentscale: Command
) -> None:
    first, second, *_ = save(tmp_path, n=60)
    flat = tmp_path / "lang=flat.npy"  # a file whose name isn't NAME=SOURCE
    np.save(flat, np.ones((60, 6), "f4"))
    ended = latentscale(
        "matrix", first, flat, second, "--measures", "mmd", "--output", tmp_path / "o",
        "-o", "cluster.kind=serial", "-o", f"output={tmp_path / 'jobs'}", "--json",
    )  # fmt: skip
    document = json.loads(ended.out)
    assert document["names"] == ["a", "lang=flat", "b"]
    [found] = document["matrices"]
    assert min(found["values"][0][1:]) > 0.0
    assert len(found["merges"]) == 2
    assert list((tmp_path / "jobs").glob("corpora-matrix-*/report.html"))
    assert not (tmp_path / "o").exists()
    otherwise = latentscale(
        "matrix", first, second, flat, "--measures", "mmd", "--output", tmp_path / "again",
        "-o", "cluster.kind=serial", "--json",
    )  # fmt: skip
    again = json.loads(otherwise.out)
    ((a_flat, a_b), flat_b) = found["values"][0][1:], found["values"][1][2]
    [swapped] = again["matrices"]
    assert swapped["values"][0][1] == pytest.approx(a_b)
    assert swapped["values"][0][2] == pytest.approx(a_flat, rel=0.05)  # other scales
    assert swapped["values"][1][2] == pytest.approx(flat_b, rel=0.05)


def test_a_pair_without_a_scale_says_so(tmp_path: Path, latentscale: Command) -> None:
    first, *_ = save(tmp_path, n=60)
    np.save(tmp_path / "flat.npy", np.ones((60, 6), "f4"))
    ended = latentscale(
        "matrix", first, tmp_path / "flat.npy", "--measures", "mmd", "--output", tmp_path / "o",
        "-o", "cluster.kind=serial", "--quiet",
    )  # fmt: skip
    assert ended.code == 0, ended.err
    assert ": 1 of 1 pairs have no value, such as a and flat: the median distance" in ended.out
    [table] = (tmp_path / "o").glob("corpora-matrix-*/matrix.csv")
    found = table.read_text().splitlines()
    assert found[0].endswith(",reason")
    assert any("the median distance" in line for line in found)
