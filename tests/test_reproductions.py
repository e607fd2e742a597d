"""The reproductions of the papers: short forms against oracles, and the records on their pages."""

from __future__ import annotations

import ast
import importlib
import json
import re
import runpy
import subprocess
import sys
import xml.etree.ElementTree as ElementTree
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest
from scipy.sparse import csr_array

import latentscale
from latentscale.heat.imd import imd_of_traces
from latentscale.magnitude.function import convergence_scale, magnitude_area, magnitude_function
from latentscale.tiles.distances import as_points
from tests import ROOT

FOLDER = ROOT / "reproductions"
PAGES = ROOT / "docs" / "papers"
RECORDS = sorted((FOLDER / "results").glob("*.json"))
SVG = "{http://www.w3.org/2000/svg}"

SLOW = ("embedding-models", "imd-word-dimensions")
"""Reproductions whose short form takes ten seconds: those that read all docstrings."""


@pytest.fixture(autouse=True)
def _found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(FOLDER)


def script(name: str) -> ModuleType:
    return importlib.import_module(name)


# --- records, pages and figures --------------------------------------------------------------


def published(path: Path) -> str | None:
    """The name that a script publishes under."""
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        if isinstance(node, ast.Call) and getattr(node.func, "id", "") == "publish":
            return ast.literal_eval(node.args[0])
    return None


def test_every_script_has_a_record_a_page_and_a_figure() -> None:
    names = {name for path in FOLDER.glob("*.py") if (name := published(path))}
    assert names == {path.stem for path in RECORDS}
    assert len(names) == 11
    for name in names:
        ElementTree.parse(PAGES / f"{name}.svg")
        assert f"({name}.svg)" in (PAGES / f"{name}.md").read_text("utf-8")


@pytest.mark.parametrize("record", RECORDS, ids=lambda path: path.stem)
def test_pages_show_their_record(record: Path) -> None:
    found = json.loads(record.read_text("utf-8"))
    page = (PAGES / f"{record.stem}.md").read_text("utf-8")
    assert not found["short"]
    assert re.match(r"\d{4}-\d\d-\d\dT", found["started"])
    assert script("records").table(found["findings"]) in page
    command = re.search(r"^python (reproductions/\w+\.py)$", page, re.M)
    assert command
    assert published(ROOT / command[1]) == record.stem


def test_links_of_pages_lead_somewhere() -> None:
    for page in PAGES.glob("*.md"):
        for target in re.findall(r"\]\(([^)#:]+)\)", page.read_text("utf-8")):
            assert (page.parent / target).exists(), f"{page.name}: {target}"


def test_a_table_is_put_between_the_comments() -> None:
    records = script("records")
    finding = {"claim": "c", "paper": "p", "here": "h", "agrees": False}
    page = f"before {records.BEGIN} old {records.END} after"
    assert records.with_table(page, [finding]) == (
        "before <!-- table -->\n\n| claim | paper | here | agrees |\n|---|---|---|---|\n"
        "| c | p | h | no |\n\n<!-- end of table --> after"
    )


# --- Vendi scores ----------------------------------------------------------------------------


def scores_by_matrix(similarity: np.ndarray, orders: tuple[float, ...]) -> list[float]:
    """Scores of a similarity matrix by its eigenvalues."""
    eigenvalues = np.linalg.eigvalsh(similarity / len(similarity))
    eigenvalues = eigenvalues[eigenvalues > 1e-12]
    found = []
    for order in orders:
        if order == 1:
            found.append(np.exp(-(eigenvalues * np.log(eigenvalues)).sum()))
        elif order == np.inf:
            found.append(1 / eigenvalues.max())
        else:
            found.append((eigenvalues**order).sum() ** (1 / (1 - order)))
    return found


def test_items_have_the_papers_similarity() -> None:
    """1 for the same shape and colour, 0.5 for one of them, 0 for none."""
    toys = script("vendi_toy_sets")
    shapes, colours = [0, 0, 1, 2, 2, 2, 0], [0, 1, 1, 2, 2, 0, 0]
    similarity = np.array(
        [
            [((a == c) + (b == d)) / 2 for c, d in zip(shapes, colours, strict=True)]
            for a, b in zip(shapes, colours, strict=True)
        ]
    )
    found = toys.scores(toys.items(shapes, colours))
    expected = scores_by_matrix(similarity, toys.ORDERS)
    np.testing.assert_allclose([e.value for e in found.values()], expected, rtol=1e-6)


def test_orders_see_rare_classes_and_spread_differently() -> None:
    """Figure 1 of the second paper, B and E."""
    toys = script("vendi_toy_sets")
    rare = toys.scores(toys.items(toys.copies(toys.IMBALANCED[-1], 100)))
    shares = np.array(toys.IMBALANCED[-1])
    assert rare["2"].value == pytest.approx(1 / (shares**2).sum(), rel=1e-6)
    assert rare["0.1"].value > 3.5 > 3 > rare["1"].value
    alike, spread = (toys.scores(toys.spread_classes(3, 20, s)) for s in (1.0, 0.8))
    growth = {order: spread[order].value / alike[order].value for order in alike}
    assert list(growth.values()) == sorted(growth.values(), reverse=True)
    # The largest eigenvalue of a class: one and nineteen others that are alike by 0.8.
    assert spread["inf"].value == pytest.approx(60 / (1 + 19 * 0.8), rel=1e-5)


# --- magnitude -------------------------------------------------------------------------------


@pytest.mark.parametrize("curvature", [-2.0, -0.01, 0.0, 0.01, 2.0])
def test_disks_are_even_in_their_own_measure(curvature: float) -> None:
    """Geodesic radii follow the area of a disk; near curvature 0 that of the plane."""
    rows = script("magnitude_curvature").unit_disk(curvature, 4000, np.random.default_rng(0))
    root = np.sqrt(abs(curvature))
    if curvature > 0:
        np.testing.assert_allclose(np.linalg.norm(rows, axis=1), 1 / root)
        radius = np.arccos(rows[:, 2] * root) / root
        within = (1 - np.cos(root / 2)) / (1 - np.cos(root))
    elif curvature < 0:
        radius = 2 * np.arctanh(root * np.linalg.norm(rows, axis=1)) / root
        within = (np.cosh(root / 2) - 1) / (np.cosh(root) - 1)
    else:
        radius, within = np.linalg.norm(rows, axis=1), 0.25
    assert radius.max() <= 1 + 1e-9
    assert (radius < 0.5).mean() == pytest.approx(within, abs=0.03)


def test_area_tells_curvatures_apart() -> None:
    module = script("magnitude_curvature")
    generator = np.random.default_rng(1)
    areas = {
        curvature: module.area_of(module.unit_disk(curvature, 150, generator))[0]
        for curvature in (-2.0, -0.05, 0.05, 2.0)
    }
    assert areas[0.05] > areas[2.0] > areas[-0.05] > areas[-2.0]
    rows = module.unit_disk(0.0, 60, generator)
    separations = np.sqrt(np.square(rows[:, None] - rows[None]).sum(axis=2))
    scales = np.linspace(0, module.CUT, module.SCALES)
    dense = [1.0, *(np.linalg.inv(np.exp(-t * separations)).sum() for t in scales[1:])]
    assert module.area_of(rows)[0] == pytest.approx(np.trapezoid(dense, scales), rel=1e-6)


def test_fits_find_what_is_there() -> None:
    module = script("magnitude_curvature")
    x = np.linspace(-1.5, 1.5, 90)
    bent = np.interp(x, [-1.5, -0.5, 0.4, 1.5], [2.0, 0.1, -0.3, -2.0])
    assert np.mean(module.cross_validated(x, bent, "pieces", 0)) < 1e-4
    curved = 1 - x + 0.5 * x**2
    assert np.mean(module.cross_validated(x, curved, "parabola", 0)) < 1e-6


def test_patterns_and_twins() -> None:
    patterns = script("magnitude_point_patterns")
    scales = np.linspace(0, patterns.CUT, patterns.SCALES).tolist()
    functions = [
        magnitude_function(as_points(rows, "euclidean"), scales) for rows in patterns.patterns(3)
    ]
    areas = [magnitude_area(scales, function.estimates).value for function in functions]
    assert areas == sorted(areas, reverse=True)
    twins = script("magnitude_twins")
    rows, repeated = twins.cases()["X6: outliers"]
    alone, _ = twins.measures(rows, scales)
    more, _ = twins.measures(np.concatenate([rows, repeated, repeated]), scales)
    assert more[0] == alone[0]
    assert all(abs(a / b - 1) > 0.01 for a, b in zip(more[1:], alone[1:], strict=True))


def test_both_ways_of_dropping_modes_move_as_many_points() -> None:
    dropping = script("mode_dropping")
    for share in (0.1, 0.37, 0.55, 1.0):
        found = {way: dropping.sizes(way, 3, share, 100) for way in dropping.WAYS}
        for sizes in found.values():
            assert sizes.sum() == 1000
            assert sizes[3] == round(1000 * share)
        others = np.delete(found["simultaneous"], 3)
        assert np.ptp(others) <= 1
        assert np.count_nonzero(np.delete(found["sequential"], 3) % 100) <= 1


def test_modes_dropped_either_way_lower_magnitude_alike() -> None:
    dropping = script("mode_dropping")
    generator = np.random.default_rng(0)
    modes = dropping.Modes()
    rows = [modes.draw(kind, 300, generator) for kind in range(10)]
    whole = np.concatenate([part[:30] for part in rows])
    cut = convergence_scale(as_points(whole, "euclidean")).value
    area, _ = dropping.measure(whole, cut)

    def fall(way: str, share: float) -> float:
        left = dropping.sizes(way, 0, share, 30)
        kept = [part[:size] for part, size in zip(rows, left, strict=True)]
        return 1 - dropping.measure(np.concatenate(kept), cut)[0] / area

    middle = [fall(way, 0.5) for way in dropping.WAYS]
    end = fall("sequential", 1.0)
    assert 0 < min(middle) < max(middle) < end
    assert max(middle) - min(middle) < 0.25 * end


def test_five_nearest_name_what_is_apart() -> None:
    models = script("embedding_models")
    labels = np.repeat([0, 1, 2], 20)
    values = labels + 0.1 * np.random.default_rng(0).random(60)
    apart = np.abs(np.subtract.outer(values, values))
    assert models.accuracy(apart, labels, 0) == (1.0, 0.0)
    mixed, _ = models.accuracy(np.ones((60, 60)), labels, 0)
    assert mixed < 0.6


# --- IMD -------------------------------------------------------------------------------------


def test_samplers_share_two_moments_but_not_the_hole() -> None:
    tori = script("imd_tori")
    found = tori.samplers(3000, 0.4, np.random.default_rng(0))
    moments = [np.vstack([rows.mean(axis=0), np.cov(rows.T)]) for rows in found.values()]
    np.testing.assert_allclose(moments[0], moments[1], atol=1e-10)
    inside = [(np.linalg.norm(rows[:, :2], axis=1) < 0.7).sum() for rows in found.values()]
    assert inside[0] == 0
    assert inside[1] > 300
    reference = tori.torus(3000, np.random.default_rng(1))
    good, bad = (
        latentscale.imd(reference, rows, times=(0.1, 10.0, 16), probes=32).distance
        for rows in found.values()
    )
    assert bad.lower > good.upper


def test_cells_give_what_exact_neighbours_give() -> None:
    size = script("imd_sample_size")
    drawn = [size.law(10, inside, 300, 0) for inside in size.INSIDE]
    pair = [rows for rows, _ in drawn]
    found = latentscale.imd(*pair, times=(0.1, 10.0, len(size.TIMES)), probes=size.PROBES, seed=4)
    between = found.distance
    assert size.by_cells(pair, 4) == pytest.approx(between.value, abs=between.upper - between.lower)
    own = [size.sampled(*one, seed).trace for seed, one in enumerate(drawn)]
    alone = imd_of_traces(*own, generator=np.random.default_rng(0)).estimate
    assert alone.lower <= between.upper
    assert between.lower <= alone.upper


@pytest.mark.full
def test_one_descent_gives_nearly_what_exact_neighbours_give() -> None:
    size = script("imd_sample_size")
    drawn = [size.law(10, inside, 300, 0) for inside in size.INSIDE]
    own = [size.sampled(*one, seed).trace for seed, one in enumerate(drawn)]
    exact = imd_of_traces(*own, generator=np.random.default_rng(0)).estimate.value
    assert size.by_descent([rows for rows, _ in drawn], 4) == pytest.approx(exact, rel=0.05)


def test_clusters_of_a_law_have_their_dimension_and_stay_where_they_are() -> None:
    size = script("imd_sample_size")
    rows, of = size.law(3, 6, 3000, 0)
    other, of_other = size.law(3, 6, 3000, 1)
    assert not np.array_equal(of, of_other)
    for cluster in range(3):
        own = rows[of == cluster].astype(np.float64)
        spread = np.linalg.svd(own - own.mean(axis=0), compute_uv=False)
        assert spread[5] > 1e3 * spread[6]
        # Six maps of length √(64/6), and half a deviation along each.
        assert np.square(own - own.mean(axis=0)).sum(axis=1).mean() == pytest.approx(16, rel=0.35)
        centre = other[of_other == cluster].mean(axis=0)
        np.testing.assert_allclose(own.mean(axis=0), centre, atol=0.15)


def test_a_sample_tells_triangles_edges_across_and_components() -> None:
    """Two groups far apart, clusters named across them; by brute force over pairs of neighbours."""
    size = script("imd_sample_size")
    generator = np.random.default_rng(2)
    rows = np.concatenate([generator.normal(size=(12, 2)), generator.normal(size=(12, 2)) + 1e3])
    of = np.arange(24) % 2
    found = size.sampled(rows, of, 0)
    distances = np.linalg.norm(rows[:, None] - rows[None], axis=2)
    np.fill_diagonal(distances, np.inf)
    lists = np.argsort(distances, axis=1)[:, : size.K]
    joined = np.zeros((24, 24), dtype=bool)
    for row, others in enumerate(lists):
        joined[row, others] = joined[others, row] = True
    closed, all_pairs = 0, 0
    for row in joined:
        ends = np.flatnonzero(row)
        for first in ends:
            for second in ends[ends > first]:
                closed, all_pairs = closed + joined[first, second], all_pairs + 1
    assert found.triangles == pytest.approx(closed / all_pairs)
    assert found.across == pytest.approx((of[lists] != of[:, None]).mean())
    assert found.components == 2
    degrees = joined.sum(axis=1)
    laplacian = np.eye(24) - joined / np.sqrt(np.outer(degrees, degrees))
    expected = np.exp(-np.linalg.eigvalsh(laplacian)).mean()
    assert found.head == pytest.approx(expected, rel=2e-3)


def test_without_points_in_the_hole_the_bad_sampler_is_a_good_one() -> None:
    tori = script("imd_tori")
    rows = tori.samplers(3000, 0.0, np.random.default_rng(0))["bad"]
    assert (np.linalg.norm(rows[:, :2], axis=1) < 0.7).sum() == 0
    assert tori.one_share(1000, 0.0, 0) < 0.5 * tori.one_share(1000, 0.4, 0)


@pytest.mark.parametrize(
    ("found", "said"),
    [([[1, 9], [8, 9]], "20.0%"), ([[6, 9], [8, 9]], "10.0%"), ([[9], [1]], "none of those tried")],
)
def test_the_least_share_is_the_one_from_which_on_all_stand_out(
    found: list[list[float]], said: str
) -> None:
    assert script("imd_tori").least_share((0.1, 0.2), found, 5.0) == said


def test_words_are_counted_with_their_neighbours() -> None:
    dimensions = script("imd_word_dimensions")
    texts = [["a", "b", "a", "zz", "c"], ["c", "b"]]
    vocabulary = {"a": 0, "b": 1, "c": 2}
    expected = np.zeros((3, 3))
    for text in texts:
        for i, left in enumerate(text):
            for j, right in enumerate(text):
                if i != j and left in vocabulary and right in vocabulary:
                    expected[vocabulary[left], vocabulary[right]] += 1 / abs(i - j)
    found = dimensions.cooccurrences(texts, vocabulary).toarray()
    np.testing.assert_allclose(found, expected)


def test_pip_loss_is_that_of_inner_products() -> None:
    generator = np.random.default_rng(0)
    first, second = generator.normal(size=(40, 3)), generator.normal(size=(40, 5))
    a, b = first @ first.T, second @ second.T
    expected = np.linalg.norm(a - b) / np.sqrt(np.linalg.norm(a) * np.linalg.norm(b))
    assert script("imd_word_dimensions").pip_loss(first, second) == pytest.approx(expected)


@pytest.mark.parametrize("count", [3, 40])
def test_singular_vectors_of_both_ways_are_those_of_dense_algebra(count: int) -> None:
    dimensions = script("imd_word_dimensions")
    generator = np.random.default_rng(0)
    dense = np.where(generator.random((90, 90)) < 0.3, generator.random((90, 90)), 0.0)
    left, singular = dimensions.singular_vectors(csr_array(dense), count)
    true_left, true_singular, _ = np.linalg.svd(dense)
    np.testing.assert_allclose(singular, true_singular[:count], rtol=1e-8)
    cosines = np.abs((left * true_left[:, :count]).sum(axis=0))
    np.testing.assert_allclose(cosines, 1.0, atol=1e-7)


def test_overlap_is_that_of_the_spaces() -> None:
    overlap = script("imd_word_dimensions").overlap
    axes = np.eye(6) * np.arange(1.0, 7.0)
    assert overlap(axes[:, :2], axes) == pytest.approx(1.0)
    assert overlap(axes[:, [1, 0]], axes) == pytest.approx(1.0)
    assert overlap(axes[:, [0, 4]], axes) == pytest.approx(0.5)
    assert overlap(axes[:, 4:], axes) == pytest.approx(0.0)
    turned = np.array([[np.cos(0.3)], [np.sin(0.3)], [0], [0], [0], [0]])
    assert overlap(turned, axes) == pytest.approx(np.cos(0.3) ** 2)


def test_one_trace_for_all_comparisons_gives_what_a_job_gives() -> None:
    dimensions = script("imd_word_dimensions")
    generator = np.random.default_rng(0)
    pair = [generator.normal(size=(700, d)) for d in (3, 9)]
    traces = [dimensions.trace_of(rows, seed) for seed, rows in enumerate(pair)]
    found = imd_of_traces(*traces, generator=generator).estimate
    job = latentscale.imd(*pair, times=(0.1, 10.0, 64)).distance
    assert found.lower <= job.upper
    assert job.lower <= found.upper
    assert found.value == pytest.approx(job.value, rel=0.02)


def test_docstrings_are_found_once() -> None:
    documents = script("documents")
    found = list(documents._docstrings_of(FOLDER / "documents.py"))
    assert any("standard library" in text for text in found)
    assert documents.words("Two words, x, AND 3.") == ["two", "words", "and"]


# --- GeomCA ----------------------------------------------------------------------------------


@pytest.mark.parametrize("t", [2, 9])
def test_scores_follow_the_modes(t: int) -> None:
    modes = script("geomca_mode_truncation")
    reference = np.concatenate(modes.classes(modes.TRAIN, "separated", 1))
    rows = np.concatenate(modes.classes(modes.HOLDOUT, "separated", 2)[: t + 1])
    assert len(reference) == 3514
    found = latentscale.geomca_scores(rows, reference, **modes.PAPER)
    precision, recall = modes.shares_of_modes(t)
    assert found.scores["precision"].value == pytest.approx(precision, abs=0.12)
    assert found.scores["recall"].value == pytest.approx(recall, abs=0.12)


def test_classes_of_one_component_are_those_with_most_rows_there() -> None:
    count = script("geomca_mode_truncation").classes_in_one_component
    # The first two have most rows in the component 0, the last has only half; -1 is none.
    membership = np.array([0, 0, 1, 0, 0, 0, -1, -1, 2, 0, 0, 2])
    assert count(membership, (3, 3, 2, 4)) == 2
    assert count(np.array([0, 0, 1, 1]), (2, 2)) == 1
    assert count(np.full(4, -1), (2, 2)) == 0


def test_smaller_delta_raises_recall_and_lowers_quality() -> None:
    distances = script("geomca_distances")
    assert np.abs(distances.latent(50, 0.5, 0)).max() <= 0.5
    reference = distances.network(distances.latent(400, None, 1))
    rows = distances.network(distances.latent(400, 1.0, 2))
    alike, smaller = (latentscale.geomca_scores(rows, reference, delta=d) for d in (1.0, 0.8))
    assert alike.scores["quality"].value == 1
    assert smaller.scores["quality"].value < 1
    assert smaller.scores["recall"].value > alike.scores["recall"].value


# --- the whole of it -------------------------------------------------------------------------


def of_record(record: Path) -> Path:
    """The script that makes a record."""
    [path] = [path for path in FOLDER.glob("*.py") if published(path) == record.stem]
    return path


@pytest.mark.parametrize(
    "record",
    [
        pytest.param(path, marks=[pytest.mark.full] if path.stem in SLOW else [], id=path.stem)
        for path in RECORDS
    ],
)
def test_every_script_runs_in_its_short_form(
    record: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Run as a command is, in this process, which has the compiled code already."""
    published_before = {
        place: place.read_bytes()
        for place in (record, PAGES / f"{record.stem}.md", PAGES / f"{record.stem}.svg")
    }
    path = of_record(record)
    page = tmp_path / f"{record.stem}.md"
    page.write_text(f"above\n{script('records').BEGIN}{script('records').END}\nbelow", "utf-8")
    monkeypatch.setattr(sys, "argv", [str(path), "--short", "--output", str(tmp_path)])
    runpy.run_path(str(path), run_name="__main__")
    found = json.loads((tmp_path / record.name).read_text("utf-8"))
    whole = json.loads(record.read_text("utf-8"))
    assert found["short"]
    assert found["name"] == record.stem
    assert found.keys() == whole.keys()
    assert found["numbers"].keys() <= whole["numbers"].keys()
    claims = [finding["claim"] for finding in found["findings"]]
    assert len(claims) == len(set(claims))
    assert all(isinstance(finding["agrees"], bool) for finding in found["findings"])
    table = script("records").table(found["findings"])
    assert table in capsys.readouterr().out
    assert table in page.read_text("utf-8")
    drawn = ElementTree.parse(tmp_path / f"{record.stem}.svg")
    assert {f"{SVG}path", f"{SVG}circle"} & {element.tag for element in drawn.iter()}
    assert {place: place.read_bytes() for place in published_before} == published_before


@pytest.mark.full
@pytest.mark.timeout(7200)
@pytest.mark.parametrize("record", RECORDS, ids=lambda path: path.stem)
def test_the_whole_reproduction_again(record: Path, tmp_path: Path) -> None:
    command = [sys.executable, str(of_record(record)), "--output", str(tmp_path)]
    subprocess.run(command, check=True, capture_output=True)
    [again, before] = [
        json.loads(place.read_text("utf-8"))["findings"]
        for place in (tmp_path / record.name, record)
    ]
    assert [(f["claim"], f["agrees"]) for f in again] == [(f["claim"], f["agrees"]) for f in before]
