"""A whole job from Python: the numbers of the command, on arrays and files."""

import inspect
import json
import pickle
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import numpy as np
import pandas
import pyarrow
import pyarrow.parquet
import pytest

from latentscale import read_job, run
from latentscale_pipeline.api import JobResults
from latentscale_pipeline.corpus import open_corpus
from latentscale_pipeline.storage.lock import hold_lock
from latentscale_pipeline.storage.objects import ObjectStore
from tests.conftest import Ended
from tests.support.jobs import timeless

MEASURES: dict[str, Any] = {"vendi": {"kernels": ["cosine"], "orders": [1, 2]}, "geomca": {}}


def sample(seed: int, kinds: int = 4) -> np.ndarray:
    generator = np.random.default_rng(seed)
    centres = np.random.default_rng(7).normal(size=(4, 6))
    rows = centres[generator.integers(kinds, size=240)] + 0.2 * generator.normal(size=(240, 6))
    return rows.astype("f4")


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> JobResults:
    output = tmp_path_factory.mktemp("api") / "jobs"
    return run(sample(1), sample(2), measures=MEASURES, output=output, name="arrays")


def test_an_array_gives_what_the_command_gives_of_its_file(
    results: JobResults,
    tmp_path: Path,
    latentscale: Callable[..., Ended],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    for name, seed in (("corpus", 1), ("reference", 2)):
        np.save(f"{name}.npy", sample(seed))
    document = {"name": "files", "corpus": "corpus.npy", "reference": "reference.npy"}
    document |= {"measures": MEASURES, "cluster": {"kind": "serial"}, "output": "files"}
    Path("job.yaml").write_text(json.dumps(document))
    ended = latentscale("run", "job.yaml", "--json")
    assert ended.code == 0, ended.err
    expected = timeless(json.loads(ended.out))
    found = timeless(json.loads(results.document.dump()))
    assert found["scores"] == expected["scores"]
    assert found["verdict"] == expected["verdict"]
    assert found["job"]["config_hash"] == expected["job"]["config_hash"]


def test_labels_of_an_array_from_a_file_of_several_columns(tmp_path: Path) -> None:
    table = tmp_path / "table.csv"
    table.write_text("kind,number\n" + "".join(f"{'ab'[row % 2]},{row}\n" for row in range(240)))
    named: Any = {"measures": "duplicates", "output": tmp_path / "jobs", "labels": table}
    for column, expected in (("kind", ["a", "b"] * 120), ("number", list(map(str, range(240))))):
        found = run(sample(1), labels_column=column, **named)
        assert [str(label) for label in found.rows().to_pandas()["label"]] == expected
    # A reference's file has the same columns, unless others are named.
    reference = {"reference": sample(2), "reference_labels": table}
    shares_too = {"measures": ["duplicates", "label_shares"]}
    both = run(sample(1), labels_column="kind", **reference, **named | shares_too)
    shares = [score for score in both.document.scores if score.measure == "label_shares"]
    assert shares
    assert all(score.value is not None for score in shares)
    with pytest.raises(ValueError, match="ids_column: an array has no columns; give the file "):
        run(sample(1), ids_column="number", **named)
    # A column may be the reference's alone, or of a file beside an array on either side.
    source = tmp_path / "r.csv"
    lines = [f"{','.join(map(str, row))},{'ab'[i % 2]}\n" for i, row in enumerate(sample(2))]
    source.write_text(
        ",".join(f"x{i}" for i in range(sample(2).shape[1])) + ",kind\n" + "".join(lines)
    )
    plain = {key: named[key] for key in ("measures", "output")}
    for ours in (["a", "b"] * 120, None):
        both = run(sample(1), source, labels=ours, labels_column="kind", **plain)
        assert both.corpora["reference"].n == 240
    np.save(tmp_path / "r.npy", sample(2))
    for each in (source, tmp_path / "r.npy"):
        run(sample(1), each, labels_column="kind", **named)
    run(source, sample(1), reference_labels=table, labels_column="kind", **plain)
    lines_of_one = tmp_path / "l.txt"
    lines_of_one.write_text("a\nb\n" * 120)
    for other in (sample(2), tmp_path / "r.npy"):
        for texts in (["a", "b"] * 120, lines_of_one):
            both = run(sample(1), other, labels_column="kind", reference_labels=texts, **named)
            assert both.corpora["reference"].n == 240
    with pytest.raises(ValueError, match="name one in its header with reference_labels_column"):
        run(sample(1), sample(2), reference_labels=table, **plain)


def test_an_array_has_no_path(results: JobResults) -> None:
    document = json.loads(results.document.dump())
    for role in ("corpus", "reference"):
        assert document["corpora"][role]["source"] == "an array"


def test_scores_are_a_table(results: JobResults) -> None:
    table = results.scores.to_pandas()
    assert isinstance(table, pandas.DataFrame)
    assert len(table) == len(results.scores) == len(results.document.scores)
    [own] = results.scores.where(measure="vendi", of="corpus", order="1")
    assert own.expected is not None
    chosen = (table["measure"] == "vendi") & (table["of"] == "corpus") & (table["order"] == "1")
    [row] = table[chosen].to_dict("records")
    assert row["value"] == own.value
    assert row["sampling_error"] == own.sampling_error
    assert row["expected_lower"] == own.expected.lower
    with pytest.raises(ValueError, match="scores have no field ordr; it can be measure, of, score"):
        results.scores.where(ordr="1")
    with pytest.raises(ValueError, match="there is no measure vendy; did you mean vendi"):
        results.scores.where(measure="vendy")
    with pytest.raises(ValueError, match=r"there is no measure \['vendi'\]"):
        results.scores.where(measure=["vendi"])
    with pytest.raises(ValueError, match=r"of must be .*, not \['pair'\]"):
        results.scores.where(of=["pair"])
    with pytest.raises(ValueError, match="limit must be a whole number of at least 0, not True"):
        results.rows(limit=True)


def test_a_row_may_lack_a_label(tmp_path: Path) -> None:
    def kept(labels: Any) -> list[str]:
        found = run(sample(1), labels=labels, measures="duplicates", output=tmp_path)
        return [str(label) for label in found.rows().to_pandas()["label"]]

    given = np.array(["a", None, float("nan"), pandas.NA] * 60, object)
    assert kept(given) == ["a", "", "", ""] * 60
    assert kept([4, None] * 120) == ["4", ""] * 120
    assert kept(np.array([True, False] * 120)) == ["True", "False"] * 120
    assert kept([True, np.False_, None] * 80) == ["True", "False", ""] * 80
    # A list with NaN, as of a pandas column.
    assert kept(["a", float("nan")] * 120) == ["a", ""] * 120
    assert kept([np.int64(4), None, 5.0] * 80) == ["4", "", "5"] * 80
    assert kept(np.array(["a", "b"] * 120, np.dtypes.StringDType())) == ["a", "b"] * 120
    assert kept(np.ma.array(["a", "b"] * 120, mask=[0, 1] * 120)) == ["a", ""] * 120
    assert kept(np.array([4, np.nan] * 120)) == ["4", ""] * 120
    beside = run(
        sample(1),
        sample(2),
        reference_labels=[4, None] * 120,
        measures="duplicates",
        output=tmp_path,
    )
    labels = beside.rows(of="reference", columns=["label"]).records()
    assert [row["label"] for row in labels] == ["4", ""] * 120


def test_rows_are_a_table(tmp_path: Path) -> None:
    corpus = sample(1)
    corpus[7], corpus[9] = corpus[3], 50.0
    found = run(corpus, sample(2), measures="duplicates", output=tmp_path)
    repeated = found.rows("exact-duplicates")
    assert repeated.records() == [{"row": 7, "duplicate_of": 3}]
    assert repeated.numbers.tolist() == [7]
    assert repr(repeated) == "1 rows: row, duplicate_of"
    table = found.rows(where="duplicate_of is null", sort="reference_distance:desc").to_pandas()
    assert isinstance(table, pandas.DataFrame)
    assert list(table.columns) == found.rows().columns
    again = pickle.loads(pickle.dumps(found.rows()))
    assert again.to_pandas().equals(found.rows().to_pandas())
    assert len(table) == 239
    assert table["row"][0] == 9
    uncovered = found.rows(of="reference", columns=["corpus_distance"], limit=2)
    assert len(uncovered) == 2
    years = tmp_path / "years.csv"
    years.write_text("year,words\n" + "".join(f"{1900 + row},{row}\n" for row in range(240)))
    old = found.rows("exact-duplicates", where="year < 1910", table=years)
    assert old.records() == [{"row": 7, "duplicate_of": 3, "year": 1907}]
    with pytest.raises(ValueError, match=r"there is no column yeer; .*no 'yeer' in it"):
        found.rows(sort="yeer", table=years)
    with pytest.raises(ValueError, match="leak is no reason to look at rows; it can be exact-dup"):
        found.rows("leak")
    with pytest.raises(ValueError, match="there is no column speed"):
        found.rows(columns=["speed"])


def test_what_selects_nothing_is_told(results: JobResults) -> None:
    by_order = results.scores.where(measure="vendi", order=1)
    assert len(by_order) == len(results.scores.where(measure="vendi", order="1")) > 0
    assert len(by_order) == len(results.scores.where(measure="vendi", order=np.int64(1)))
    assert len(by_order) == len(results.scores.where(measure="vendi", order=np.float32(1)))
    assert len(results.scores.where(order=np.inf)) == len(results.scores.where(order="inf"))
    with pytest.raises(ValueError, match="of must be 'corpus', 'reference' or 'pair'"):
        results.scores.where(of="pairs")
    for wrong in ({"limit": -1}, {"limit": 2.0}, {"where": 5}, {"sort": ["row"]}, {"only": []}):
        with pytest.raises(ValueError, match=f"^{next(iter(wrong))} must be "):
            results.rows(**wrong)
    for columns in ("row", 3, [3], ["row", None]):
        with pytest.raises(ValueError, match=r"^columns must be a list of names, such as "):
            results.rows(columns=columns)  # type: ignore[arg-type]


def test_rows_of_any_measure_can_be_sent_to_another_process(results: JobResults) -> None:
    rows = results.rows(columns=(name for name in ("row", "vendi_influence", "component")))
    assert rows.columns == ["row", "vendi_influence", "component"]
    assert pickle.loads(pickle.dumps(rows)).records() == rows.records()
    assert len(pickle.loads(pickle.dumps(results.rows()))) == 240


def test_it_shows_itself(results: JobResults) -> None:
    text = repr(results)
    assert text.startswith(Path(results.folder).name)
    assert "\nNo difference found.\n" in text
    assert f"report  {results.report()}" in text
    assert Path(results.report()).stat().st_size > 10_000
    shown = results._repr_html_()
    assert "<p>No difference found.</p>" in shown
    curves = ElementTree.fromstring(shown[shown.index("<svg") :])
    texts = {text.text for text in curves.iter("{http://www.w3.org/2000/svg}text")}
    assert {"Components", "corpus", "reference"} <= texts
    assert results.verdict is not None
    assert results.verdict.value == "no_difference_found"
    assert {role: corpus.n for role, corpus in results.corpora.items()} == {
        "corpus": 240,
        "reference": 240,
    }
    assert repr(results.scores[:1]).startswith("GeomCA precision")


def test_two_jobs_compare_as_the_command_compares_them(
    results: JobResults, latentscale: Callable[..., Ended], tmp_path: Path
) -> None:
    baseline = run(
        sample(5, kinds=2),
        sample(2),
        measures=MEASURES,
        output=tmp_path,
        name="usual",
        ids=[f"row {i}" for i in range(240)],
    )
    found = results.compare(baseline)
    ended = latentscale("compare", results.folder, baseline.folder, "--json")
    assert found.document == json.loads(ended.out)
    assert found.verdict.value == "differs"
    assert found.changes is None  # only one has ids
    by_folder = read_job(Path(results.folder)).compare(baseline.folder)
    assert by_folder.document == found.document

    table = found.to_pandas()
    chosen = (table["measure"] == "vendi") & (table["of"] == "corpus") & (table["order"] == "1")
    [row] = table[chosen].to_dict("records")
    [ours], [theirs] = (
        job.scores.where(measure="vendi", of="corpus", order="1") for job in (results, baseline)
    )
    assert (row["job"], row["baseline"]) == (ours.value, theirs.value)
    assert row["difference"] == pytest.approx(ours.value - theirs.value, rel=1e-12)
    assert row["significant"]
    assert row["p"] <= 0.05

    assert repr(found) == latentscale("compare", results.folder, baseline.folder).out.rstrip()
    shown = found._repr_html_()
    assert "<p>Differs from usual" in shown
    assert '<th scope="col" style="text-align:left">baseline</th>' in shown
    gates = [
        {"measure": "vendi", "order": 1, "max_drop": 0.0, "max_rise": 0.0, "of": "corpus"},
        {"measure": "vendi", "order": 1, "of": "corpus", "min": 0.0, "severity": "warn"},
    ]
    checked = found.check(gates)
    (tmp_path / "gates.yaml").write_text(json.dumps({"gates": gates}))
    ended = latentscale(
        *("compare", results.folder, baseline.folder, "--gates", tmp_path / "gates.yaml")
    )
    assert (checked.passed, ended.code) == (False, 1)
    assert [row["outcome"] for row in checked.records()] == ["failed", "passed"]
    assert checked.results[0].message in ended.err
    assert found.check(gates[1:]).passed
    assert repr(checked).splitlines()[1] == f"passed: {checked.results[1].gate}"
    assert "max_drop=0" in checked._repr_html_()
    with pytest.raises(ValueError, match=r"gates.0.max_dorp is unknown; did you mean max_drop"):
        found.check([{"measure": "vendi", "max_dorp": 0.1}])
    (tmp_path / "no jobs yet").mkdir()
    drift = [{"measure": "vendi", "order": 1, "of": "corpus", "drift": {}}]
    alone = found.check(drift, history=tmp_path / "no jobs yet")
    assert alone.passed
    assert "no earlier job of this name; limits begin at 5" in repr(alone)
    assert alone.records()[0]["remark"].startswith("no earlier job of this name")
    assert "no earlier job of this name" in alone._repr_html_()
    with pytest.raises(ValueError, match="drift, which needs a history"):
        found.check(drift)
    with pytest.raises(ValueError, match="nothing is there"):
        found.check(gates, history=tmp_path / "no history")
    with pytest.raises(ValueError, match="here; name the folder of a finished job"):
        results.compare(Path(results.folder).parent / "corpora")
    with pytest.raises(ValueError, match="did you mean"):
        read_job(f"{results.folder}0")


def test_the_same_rows_are_stored_and_measured_once(results: JobResults) -> None:
    output = Path(results.folder).parent
    stored = sorted((output / "corpora").iterdir())
    assert len(stored) == 2
    before = (Path(results.folder) / "results.json").stat().st_mtime_ns
    again = run(sample(1), sample(2), measures=MEASURES, output=output, name="arrays")
    assert (Path(again.folder) / "results.json").stat().st_mtime_ns == before
    assert sorted((output / "corpora").iterdir()) == stored


def test_files_and_arrays_mix_and_a_difference_is_found(tmp_path: Path) -> None:
    np.save(tmp_path / "real.npy", sample(2))
    found = run(
        sample(1, kinds=2),
        tmp_path / "real.npy",
        measures=["geomca", "vendi"],
        output=tmp_path / "jobs",
        seed=3,
    )
    assert found.verdict is not None
    assert found.verdict.value == "differs"
    assert found.document.job.seed == 3


def test_rows_have_the_ids_and_labels_that_are_given(tmp_path: Path) -> None:
    corpus = sample(1)
    corpus[7] = corpus[3]
    labels = np.repeat(["left", "right"], 120)
    given = {
        "ids": pandas.Series([f"row {i}" for i in range(240)]),
        "labels": labels.tolist(),
        "reference_labels": labels,
        "measures": "duplicates",
        "output": tmp_path,
    }
    found = run(corpus, sample(2), **given)
    assert found.rows("exact-duplicates").records() == [
        {"row": 7, "id": "row 7", "label": "left", "duplicate_of": "row 3"}
    ]
    labels_of_reference = found.rows(of="reference", columns=["label"]).records()
    assert [row["label"] for row in labels_of_reference] == labels.tolist()
    # Other texts for the same rows are another corpus; the same ones are found again.
    assert run(corpus, sample(2), **given).folder == found.folder
    assert run(corpus, sample(2), **{**given, "ids": list(range(240))}).folder != found.folder
    # Texts for a file, and in a file.
    np.save(tmp_path / "rows.npy", corpus)
    (tmp_path / "names.txt").write_text("".join(f"row {i}\n" for i in range(240)))
    other = run(
        tmp_path / "rows.npy",
        ids=tmp_path / "names.txt",
        labels=labels,
        measures="duplicates",
        output=tmp_path,
    )
    assert other.rows("exact-duplicates").records() == [
        {"row": 7, "id": "row 7", "label": "left", "duplicate_of": "row 3"}
    ]


def test_columns_of_files_are_named(tmp_path: Path) -> None:
    for name, vectors, seed in (("new", "emb", 1), ("old", "vector", 2)):
        rows = sample(seed)
        rows[5] = np.nan
        columns = {
            "product": [f"{name} {i}" for i in range(240)],
            vectors: pyarrow.array(rows.tolist(), pyarrow.list_(pyarrow.float32())),
            "other": pyarrow.array(rows.tolist(), pyarrow.list_(pyarrow.float32())),
        }
        pyarrow.parquet.write_table(pyarrow.table(columns), tmp_path / f"{name}.parquet")
    labels = tmp_path / "labels.txt"
    labels.write_text("a\nb\n" * 120)
    new = tmp_path / "new.parquet"
    named: dict[str, Any] = {
        "measures": "duplicates",
        "output": tmp_path / "jobs",
        "vectors": "emb",
    }
    named |= {"ids_column": "product"}
    with pytest.raises(ValueError, match="on_invalid='drop'"):
        run(new, **named)
    found = run(new, labels=labels, on_invalid="drop", **named)
    assert found.corpora["corpus"].n == 239
    row = found.rows(columns=["id", "label"], limit=6).records()[5]
    assert row == {"id": "new 6", "label": "a"}
    with pytest.raises(ValueError, match="for the reference alone, with reference_vectors, "):
        run(new, tmp_path / "old.parquet", on_invalid="drop", **named)
    both = run(
        new, tmp_path / "old.parquet", on_invalid="drop", reference_vectors="vector", **named
    )
    assert {role: corpus.n for role, corpus in both.corpora.items()} == {
        "corpus": 239,
        "reference": 239,
    }
    beside = run(new, sample(3), on_invalid="drop", **named)
    assert beside.corpora["reference"].n == 240
    with pytest.raises(ValueError, match="labels: give a file or a column, as vectors is given"):
        run(new, labels=["a"] * 240, **named)
    with pytest.raises(ValueError, match="reference_vectors: there is no reference"):
        run(new, reference_vectors="vector", **named)
    # None is for none.
    plain = run(sample(4), ids_column=None, measures="duplicates", output=tmp_path / "jobs")
    assert plain.corpora["corpus"].n == 240
    with pytest.raises(ValueError, match="name a column of the source with labels_column"):
        run(new, labels="topic", on_invalid="drop", **named)
    with pytest.raises(
        ValueError, match="name a column of the source with reference_labels_column"
    ):
        run(new, new, reference_labels="topic", on_invalid="drop", **named)
    shutil.rmtree(plain.folder)
    with pytest.raises(ValueError, match="here; name the folder of a finished job"):
        found.compare(plain)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"labels": ["a", "b"]}, "labels: 2 labels for 240 rows of vectors; give exactly one"),
        ({"ids": ["a"] * 239 + [None]}, "ids: row 239 has None; give every row a text"),
        (
            {"labels": np.zeros((240, 2))},
            "labels must be one text or integer per row; got shape (240, 2)",
        ),
        ({"labels": np.full(240, 0.5)}, "labels: row 0: 0.5 isn't a whole number"),
        ({"ids": np.zeros(240)}, "ids must be one text or integer per row; got shape (240,)"),
        ({"labels": "no-labels.txt"}, "no-labels.txt: no such file or folder"),
        ({"ids": ["a", float("nan")] * 120}, "ids: row 1 has nan; give every row a text or a whol"),
        ({"ids": [True] * 240}, "ids: row 0 has True; give every row a text or a whole number"),
        (
            {"corpus": np.ma.masked_where(sample(1) > 0.5, sample(1))},
            "has masked values; fill them in, or leave such rows out",
        ),
        (
            {"corpus": pandas.DataFrame({"Id": range(240), "x": 0.5, "y": 1.5})},
            "no coordinates: 'Id'; give the others, as frame[[c for c in frame.columns if c not in",
        ),
        ({"on_invalid": "drop"}, "on_invalid is for files and URLs; leave rows out of an array"),
        ({"reference_labels": ["a"] * 240}, "reference_labels: there is no reference"),
        (
            {"reference": sample(2), "reference_labels": ["a"]},
            "reference_labels: 1 labels for 240 rows",
        ),
        ({"corpus": np.zeros(3)}, "corpus must be a two-dimensional numeric array"),
        ({"measures": ["vendy"]}, "measures.vendy is unknown; did you mean vendi?"),
        ({"measures": ["geomca"]}, "measures.geomca compares with a reference"),
        ({"sampling": {"rows": 3}}, "sampling.rows must be at least 50"),
        ({"corpus": "nothing.npy"}, "nothing.npy: no such file or folder"),
        ({"measures": 3}, "measures must be names, or settings by name, not 3"),
        ({"measures": [["vendi"]]}, "measures must be names, or settings by name"),
        ({"measures": {"vendi": ["cosine"]}}, "measures.vendi must be a mapping of keys"),
        ({"output": None}, "output must be a folder or URL, not None"),
        ({"storage_options": {"s3": 3}}, "storage_options must be settings by protocol"),
        ({"labels": np.array(["a", "\ud800"] * 120)}, "labels: row 1 has half of a character"),
    ],
)
def test_mistakes_are_told_in_a_line(
    tmp_path: Path, arguments: dict[str, Any], message: str
) -> None:
    given = {"corpus": sample(1), "output": tmp_path / "jobs", **arguments}
    with pytest.raises(ValueError, match=r"^[^\n]+$") as raised:
        run(given.pop("corpus"), **given)
    assert message in str(raised.value)


def test_a_job_that_another_process_runs_is_told(tmp_path: Path) -> None:
    found = run(sample(1), measures="duplicates", output=tmp_path)
    (Path(found.folder) / "results.json").unlink()
    with (
        hold_lock(ObjectStore(found.folder)),
        pytest.raises(RuntimeError, match=r"^process \d+ on .* is running this job; wait until it"),
    ):
        run(sample(1), measures="duplicates", output=tmp_path)


def test_its_signature_shows_what_it_takes() -> None:
    shown = str(inspect.signature(run))
    for name in ("corpus", "reference", "measures", "output", "name"):
        assert f"{name}:" in shown


@pytest.mark.parametrize("as_array", [False, True])
def test_texts_may_be_long(as_array: bool, tmp_path: Path) -> None:
    texts = ["word " * 300_000, *("b" * 20)]
    given = np.array(texts) if as_array else texts
    ids = ["x" * 150_000, *map(str, range(20))]
    run(sample(1)[:21], texts=given, ids=ids, measures="duplicates", output=tmp_path)
    [corpus] = [open_corpus(str(place)) for place in tmp_path.glob("corpora/*.zarr")]
    assert corpus.texts("ids") == ids
    shown = corpus.texts("texts")
    assert shown is not None
    assert (shown[0][:10], len(shown[0]), shown[1:]) == ("word word ", 200, ["b"] * 20)


def test_labels_that_floats_do_not_tell_apart_are_refused(tmp_path: Path) -> None:
    rows = sample(0)
    large: list[Any] = [2.0**60, *[None] * (len(rows) - 1)]
    with pytest.raises(ValueError, match=r"labels: row 0: .* too large for a float"):
        run(rows, labels=large, output=tmp_path, measures=["spectrum"])
    halves = np.ones(len(rows), np.float16)
    job = run(rows, labels=halves, output=tmp_path, measures=["duplicates"])  # without a warning
    assert job.rows(limit=1).records()[0]["label"] == "1"


def test_messages_about_pairs_name_arguments(tmp_path: Path) -> None:
    rows = sample(0)
    with pytest.raises(ValueError, match=r"whose rows are the partners; add a reference$"):
        run(rows, pair="rows", measures=["alignment"], output=tmp_path)
    with pytest.raises(ValueError, match=r"with pair='rows' or pair='ids', or leave it out"):
        run(rows, reference=rows, measures=["alignment"], output=tmp_path)


@pytest.mark.parametrize("given", [None, 3, object()])
def test_a_job_is_named_by_its_folder(given: Any) -> None:
    with pytest.raises(ValueError, match=r"^a job is named by its folder, a str or Path, not "):
        read_job(given)
