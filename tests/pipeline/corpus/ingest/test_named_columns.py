"""Columns named id and label are taken without being asked for, and what happens is said."""

import csv
import datetime
import decimal
import json
from collections.abc import Callable
from pathlib import Path
from typing import Literal

import numpy as np
import pytest

from latentscale_pipeline.corpus import open_corpus
from latentscale_pipeline.corpus.ingest.append import append
from latentscale_pipeline.corpus.ingest.create import ensure_corpus, ingest
from latentscale_pipeline.corpus.ingest.sources import describe_sources, open_sources
from latentscale_pipeline.corpus.selection import Selection, choose_rows
from latentscale_pipeline.corpus.tables import Table
from latentscale_pipeline.errors import BadInput
from tests.conftest import Ended

pa = pytest.importorskip("pyarrow")
feather = pytest.importorskip("pyarrow.feather")
pq = pytest.importorskip("pyarrow.parquet")

N = 6
VECTORS = np.random.default_rng(0).normal(size=(N, 3)).astype("f4")
IDS = [f"doc {row}" for row in range(N)]
LABELS = ["law", "law", None, "poetry", "law", "poetry"]


def table(path: Path, **columns: object) -> str:
    vectors = [row.tolist() for row in VECTORS]
    typed = pa.array(vectors, pa.list_(pa.float32()))
    pq.write_table(pa.table({**columns, "embedding": typed}), path)
    return str(path)


def lines(path: Path, **columns: list[object]) -> str:
    rows = [
        {name: values[row] for name, values in columns.items()} | {"v": VECTORS[row].tolist()}
        for row in range(N)
    ]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return str(path)


def test_a_table_is_not_read_line_by_line(tmp_path: Path) -> None:
    np.save(tmp_path / "a.npy", np.eye(4, dtype="f4"))
    (tmp_path / "labels.csv").write_text("id,label\n1,a\n2,b\n3,a\n")  # as many lines as rows
    given = {"labels": str(tmp_path / "labels.csv")}
    with pytest.raises(BadInput, match="its lines have several columns; name one in its header wi"):
        ingest([str(tmp_path / "a.npy")], str(tmp_path / "c.zarr"), **given)
    (tmp_path / "labels.csv").write_text('"a, b"\nc\n"d, e"\nf\n')
    corpus = ingest([str(tmp_path / "a.npy")], str(tmp_path / "c.zarr"), **given)
    assert corpus.texts("labels") == ["a, b", "c", "d, e", "f"]
    (tmp_path / "labels.csv").write_text('"a","1"\n"b","2"\n"a","1"\n"b","2"\n')
    with pytest.raises(BadInput, match="its lines have several columns; name one in its header wi"):
        ingest([str(tmp_path / "a.npy")], str(tmp_path / "c.zarr"), overwrite=True, **given)


@pytest.mark.parametrize("quoting", [csv.QUOTE_ALL, csv.QUOTE_MINIMAL])
def test_values_of_a_table_of_one_column_may_stand_between_quotes(
    quoting: Literal[0, 1], tmp_path: Path
) -> None:
    """Quotes are no part of them, or the same labels of two files would differ."""
    np.save(tmp_path / "a.npy", np.eye(5, dtype="f4"))
    written = ["en", 'with "quotes"', "a, b", "two\nlines", ""]
    for suffix, dialect in (("csv", "excel"), ("tsv", "excel-tab")):
        path = tmp_path / f"labels.{suffix}"
        with path.open("w", newline="") as opened:
            lines = csv.writer(opened, dialect, quoting=quoting, lineterminator="\n")
            lines.writerows([value] for value in written)
        corpus = ingest(
            [str(tmp_path / "a.npy")], str(tmp_path / f"{suffix}.zarr"), labels=str(path)
        )
        assert corpus.texts("labels") == written
    # Quotes around a part of a value belong to it, as blanks do between quotes only.
    path.write_text('"Hi" he said  \n "a\tb "\n"c" \n5" disk\n e \n')
    corpus = ingest([str(tmp_path / "a.npy")], str(tmp_path / "q.zarr"), labels=str(path))
    assert corpus.texts("labels") == ['"Hi" he said', "a\tb ", "c", '5" disk', "e"]
    path.write_text('a\n"Hi he said\n"Ho she said\nb\nc\n')
    with pytest.raises(BadInput, match="the row at byte 2 has a field that goes on after its cl"):
        ingest([str(tmp_path / "a.npy")], str(tmp_path / "r.zarr"), labels=str(path))
    (tmp_path / "bom.csv").write_text('\ufeff"a, b"\nc\nc\nc\nc\n')
    corpus = ingest(
        [str(tmp_path / "a.npy")], str(tmp_path / "b.zarr"), labels=str(tmp_path / "bom.csv")
    )
    assert corpus.texts("labels") == ["a, b", "c", "c", "c", "c"]
    # In a text file they may be part of a value.
    (tmp_path / "labels.txt").write_text('"en"\n"de"\n"en"\n"de"\nfr\n')
    corpus = ingest(
        [str(tmp_path / "a.npy")], str(tmp_path / "t.zarr"), labels=str(tmp_path / "labels.txt")
    )
    assert corpus.texts("labels") == ['"en"', '"de"', '"en"', '"de"', "fr"]


def test_true_and_false_are_spelt_alike_in_every_format(tmp_path: Path) -> None:
    flags = [row % 3 == 0 for row in range(N)]
    np.savez(tmp_path / "a.npz", v=VECTORS, label=np.array(flags))
    with (tmp_path / "a.csv").open("w", newline="") as opened:
        writer = csv.writer(opened)
        writer.writerow(["label", "a", "b", "c"])
        writer.writerows([flag, *row.tolist()] for flag, row in zip(flags, VECTORS, strict=True))
    sources = [
        table(tmp_path / "a.parquet", label=flags),
        lines(tmp_path / "a.jsonl", label=[*flags]),
        str(tmp_path / "a.npz"),
        str(tmp_path / "a.csv"),
    ]
    for place, source in enumerate(sources):
        assert "labels from column label" in list(describe_sources(open_sources([source])))
        corpus = ingest([source], str(tmp_path / f"{place}.zarr"))
        assert corpus.texts("labels") == [str(flag) for flag in flags]
    # Beside other values, too.
    mixed = lines(tmp_path / "b.jsonl", label=[True, "true", False, 1, 1.5, None])
    corpus = ingest([mixed], str(tmp_path / "b.zarr"))
    assert corpus.texts("labels") == ["True", "true", "False", "1", "1.5", ""]


def test_labels_of_python_objects_in_an_archive_are_named(tmp_path: Path) -> None:
    path = tmp_path / "a.npz"
    np.savez(path, v=VECTORS, labels=np.array(LABELS, object))
    said = list(describe_sources(open_sources([str(path)])))
    advice = "make text of them with array.astype(str)"
    assert said == [f"left out: labels (Python objects: {advice})"]
    with pytest.raises(BadInput, match="labels: values of type Python objects can't be read; make"):
        ingest([str(path)], str(tmp_path / "c.zarr"), columns={"labels": "labels"})


@pytest.mark.parametrize("write", [table, lines], ids=["parquet", "jsonl"])
def test_id_and_label_are_taken_by_name(write: Callable[..., str], tmp_path: Path) -> None:
    source = write(tmp_path / "a", id=IDS, label=LABELS)
    corpus = ingest([source], str(tmp_path / "c.zarr"))
    assert corpus.texts("ids") == IDS
    assert corpus.texts("labels") == ["law", "law", "", "poetry", "law", "poetry"]
    named = ingest(
        [source], str(tmp_path / "d.zarr"), columns={"labels": "label", "texts": "label"}
    )
    assert named.texts("labels") == named.texts("texts") == corpus.texts("labels")
    # A job's source, and a corpus that is ingested once more.
    assert ensure_corpus(source, str(tmp_path / "jobs")).texts("ids") == IDS
    assert ingest([corpus.url], str(tmp_path / "copy.zarr")).texts("labels") == corpus.texts(
        "labels"
    )


@pytest.mark.parametrize("write", [table, lines], ids=["parquet", "jsonl"])
def test_a_row_without_a_number_has_no_label_but_must_have_an_id(
    write: Callable[..., str], tmp_path: Path
) -> None:
    kinds = [3, 1, None, 3, None, 1]
    source = write(tmp_path / "a", kind=pa.array(kinds) if write is table else kinds)
    corpus = ingest([source], str(tmp_path / "c.zarr"), columns={"labels": "kind"})
    assert corpus.texts("labels") == ["3", "1", "", "3", "", "1"]
    with pytest.raises(BadInput, match=r"row 2.* has no value|row 2.* null isn't a whole number"):
        ingest([source], str(tmp_path / "d.zarr"), columns={"ids": "kind"})
    # As pandas holds them.
    floats = [3.0, 1.0, None, 3.0, None, 1.0]
    source = write(tmp_path / "f", kind=pa.array(floats) if write is table else floats)
    as_floats = ingest([source], str(tmp_path / "f.zarr"), columns={"labels": "kind"})
    assert as_floats.texts("labels") == corpus.texts("labels")
    source = write(tmp_path / "g", kind=[3.0, 1.5, 2.0, 0.0, 1.0, 1.0])
    with pytest.raises(BadInput, match=r"kind: row 1: 1\.5 isn't a whole number, and labels are"):
        ingest([source], str(tmp_path / "g.zarr"), columns={"labels": "kind"})
    unnamed = write(tmp_path / "b", id=["a", "b", None, "d", "e", "f"])
    with pytest.raises(BadInput, match=r"row 2.* has no value; .* choose another column or none"):
        ingest([unnamed], str(tmp_path / "e.zarr"))
    assert ingest([unnamed], str(tmp_path / "e.zarr"), columns={"ids": ""}).texts("ids") is None


def test_numbers_are_taken_for_ids(tmp_path: Path) -> None:
    source = table(tmp_path / "a.parquet", ids=list(range(7, 7 + N)))
    assert ingest([source], str(tmp_path / "c.zarr")).texts("ids") == [str(i) for i in range(7, 13)]
    gap = table(tmp_path / "b.parquet", id=pa.array([1, 2, None, 4, 5, 6]))
    with pytest.raises(BadInput, match=r"b\.parquet:id: row 2 has no value"):
        ingest([gap], str(tmp_path / "d.zarr"))


def test_columns_that_not_all_sources_have_are_left_out(tmp_path: Path) -> None:
    sources = [table(tmp_path / "a.parquet", id=IDS), table(tmp_path / "b.parquet", key=IDS)]
    assert "ids" not in ingest(sources, str(tmp_path / "c.zarr")).manifest.arrays


def test_another_column_a_file_or_none_can_be_asked_for(tmp_path: Path) -> None:
    source = table(tmp_path / "a.parquet", id=IDS, key=IDS[::-1])
    (tmp_path / "ids.txt").write_text("".join(f"other {row}\n" for row in range(N)))
    named = ingest([source], str(tmp_path / "named.zarr"), columns={"ids": "key"})
    assert named.texts("ids") == IDS[::-1]
    given = ingest([source], str(tmp_path / "given.zarr"), ids=str(tmp_path / "ids.txt"))
    assert given.texts("ids") == [f"other {row}" for row in range(N)]
    assert ingest([source], str(tmp_path / "none.zarr"), columns={"ids": ""}).texts("ids") is None


@pytest.mark.parametrize("kind", ["parquet", "feather"])
def test_categories_dates_and_types_that_are_not_read(
    tmp_path: Path, latentscale: Callable[..., Ended], kind: str
) -> None:
    group = [i % 3 for i in range(N)]
    days = [datetime.datetime(2020, 1, 1) + datetime.timedelta(i) for i in range(N)]
    columns = {
        "id": pa.array(days, pa.date32()),
        "label": pa.array(group).dictionary_encode(),
        "text": pa.array([{"a": 1}] * N),
        "price": pa.array([decimal.Decimal("0.5") + i for i in range(N)]),
        "when": pa.array(days, pa.timestamp("s")),
        "vector": pa.array(VECTORS.tolist()),
    }
    source = tmp_path / f"a.{kind}"
    (pq.write_table if kind == "parquet" else feather.write_feather)(pa.table(columns), source)
    ended = latentscale("ingest", source, tmp_path / "c.zarr")
    assert ended.err.splitlines()[:3] == [
        "ingest: labels from column label",
        (
            "ingest: left out: id (date or time: --ids-column id takes it as text), text "
            "(struct<a: int64>: neither text nor whole numbers), price, when"
        ),
        "ingest: float64 is rounded to float32, to 7 digits",
    ]
    ended = latentscale("ingest", source, tmp_path / "c.zarr", "--ids-column", "id", "--overwrite")
    assert ended.code == 0
    corpus = open_corpus(str(tmp_path / "c.zarr"))
    assert corpus.texts("labels") == [str(i) for i in group]
    assert corpus.texts("ids") == [day.date().isoformat() for day in days]
    refused = latentscale("ingest", source, tmp_path / "d.zarr", "--labels-column", "text")
    assert refused.code == 2
    assert "a: int64> can't be read; make text or numbers of them" in refused.err
    rows = choose_rows(
        corpus, Selection(where="when >= '2020-01-03'", table=Table(corpus, str(source)))
    )
    assert rows.tolist() == [*range(2, N)]
    cheap = Selection(where="price < 2 and price is not null", table=Table(corpus, str(source)))
    assert choose_rows(corpus, cheap).tolist() == [0, 1]


def test_appended_rows_bring_what_the_corpus_has(tmp_path: Path) -> None:
    plain, rich = str(tmp_path / "plain.zarr"), str(tmp_path / "rich.zarr")
    source = table(tmp_path / "a.parquet", id=IDS, label=["law"] * N)
    ingest([source], plain, columns={"ids": "", "labels": ""})
    ingest([source], rich)
    assert append([source], plain).n == 2 * N
    append([source], rich)
    assert open_corpus(rich).texts("ids") == IDS * 2


def test_appended_rows_may_all_lack_texts_and_labels(
    tmp_path: Path, latentscale: Callable[..., Ended]
) -> None:
    source = table(tmp_path / "a.parquet", id=IDS, label=["law"] * N, text=["x"] * N)
    none = [None] * N
    without = table(tmp_path / "b.parquet", id=IDS, label=none, text=none)
    url = str(tmp_path / "c.zarr")
    ingest([source], url)
    assert append([without], url).n == 2 * N
    corpus = open_corpus(url)
    assert corpus.texts("labels") == ["law"] * N + [""] * N
    assert corpus.texts("texts") == ["x"] * N + [""] * N
    # Nobody named them, and nothing says what they would be.
    ingest([without], str(tmp_path / "d.zarr"))
    assert "texts" not in open_corpus(str(tmp_path / "d.zarr")).manifest.arrays
    ingest([without], str(tmp_path / "e.zarr"), columns={"texts": "text"})
    assert open_corpus(str(tmp_path / "e.zarr")).texts("texts") == [""] * N
    numbers = table(tmp_path / "n.parquet", id=none, label=["law"] * N, text=none)
    ended = latentscale("ingest", numbers, url, "--append")
    assert (ended.code, "it has ids, but the new rows have none" in ended.err) == (2, True)


def test_blanks_between_quotes_belong_to_an_id(tmp_path: Path) -> None:
    (tmp_path / "q.csv").write_text(
        'id,v0,label,v1\n" a",1,"x ",2\n a ,3, "y,4\n"a"" ,b",1,"say, ""so"" ",1\n'
    )
    corpus = ingest([str(tmp_path / "q.csv")], str(tmp_path / "q.zarr"), columns={"ids": "id"})
    assert corpus.texts("ids") == [" a", "a", 'a" ,b']
    assert corpus.texts("labels") == ["x ", '"y', 'say, "so" ']


def test_columns_of_the_vectors_and_without_a_name_are_no_labels(tmp_path: Path) -> None:
    held = tmp_path / "held.csv"
    held.write_text(",e0,e1,e2\n0,0.5,0.25,0.5\n1,0.5,,0.5\n2,0.5,1.5,0.25\n")
    said = list(describe_sources(open_sources([str(held)])))
    assert said == [
        "left out: a column without a name",
        "float64 is rounded to float32, to 7 digits",
    ]


def test_whole_numbers_are_rounded_only_where_they_are_large(tmp_path: Path) -> None:
    np.save(tmp_path / "a.npy", np.ones((3, 2), np.int64))
    [said] = describe_sources(open_sources([str(tmp_path / "a.npy")]))
    assert said == "int64 is stored as float32, which rounds whole numbers beyond 16,777,216"
    sources = open_sources([str(tmp_path / "a.npy")])
    [said] = describe_sources(sources, dtype=np.float16)
    assert said == "int64 is stored as float16, which rounds whole numbers beyond 2,048"
    np.save(tmp_path / "b.npy", np.ones((3, 2)))
    sources = open_sources([str(tmp_path / "b.npy")])
    [said] = describe_sources(sources, dtype=np.float16)
    assert said == "float64 is rounded to float16, to 3 digits"


def test_what_was_taken_left_out_and_rounded_is_said(
    tmp_path: Path, latentscale: Callable[..., Ended]
) -> None:
    source = lines(tmp_path / "a.jsonl", id=IDS, label=["law"] * N, text=["a"] * N, note=["b"] * N)
    ended = latentscale("ingest", source, tmp_path / "c.zarr")
    assert ended.code == 0
    assert ended.err.splitlines() == [
        "ingest: ids from column id",
        "ingest: labels from column label",
        "ingest: texts from column text",
        "ingest: left out: note",
        "ingest: float64 is rounded to float32, to 7 digits",
    ]
    weighed = lines(tmp_path / "w.jsonl", id=IDS, weights=[0.5] * N)
    assert (
        "ingest: no weights; ingest --weights-column takes a column as weights: weights"
        in latentscale("ingest", weighed, tmp_path / "w.zarr").err.splitlines()
    )
    none = ("--ids-column", "", "--labels-column", "", "--texts-column", "", "--overwrite")
    ended = latentscale("ingest", source, tmp_path / "c.zarr", *none)
    assert ended.err.splitlines()[:2] == [
        "ingest: left out: id, label, text, note",
        "ingest: no labels; --labels-column takes a column as labels: label, note",
    ]
    assert open_corpus(str(tmp_path / "c.zarr")).texts("ids") is None
    other = lines(tmp_path / "b.jsonl", label=[0.5] * N, note=["b"] * N)
    ended = latentscale("ingest", other, tmp_path / "other.zarr")
    assert ended.err.splitlines()[0] == (
        "ingest: left out: label (float64: --labels-column label takes it if all are whole "
        "numbers), note"
    )
    np.save(tmp_path / "half.npy", VECTORS.astype("f2"))
    assert latentscale("ingest", tmp_path / "half.npy", tmp_path / "h.zarr").err == ""


def test_names_that_only_some_files_have_are_told(
    tmp_path: Path, latentscale: Callable[..., Ended]
) -> None:
    np.save(tmp_path / "a.npy", np.eye(N, dtype="f4"))
    rows = {"id": [f"r{i}" for i in range(N)], "label": ["x"] * N, "emb": list(np.eye(N))}
    pq.write_table(pa.table(rows), tmp_path / "b.parquet")
    for first, second in (("a.npy", "b.parquet"), ("b.parquet", "a.npy")):
        sources = (tmp_path / first, tmp_path / second)
        ended = latentscale("ingest", *sources, tmp_path / f"{first}.zarr")
        none = f"({tmp_path / 'a.npy'} has none)"
        assert f"ingest: left out: id {none}, label {none}\n" in ended.err
        assert "--labels-column id" not in ended.err


def test_numbers_in_the_first_lines_may_be_followed_by_texts(tmp_path: Path) -> None:
    ids = [*range(10**16, 10**16 + 60), "a7", "007"]
    rows = [{"id": given, "label": given, "v": [0.5, i]} for i, given in enumerate(ids)]
    (tmp_path / "a.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    corpus = ingest([str(tmp_path / "a.jsonl")], str(tmp_path / "c.zarr"))
    assert corpus.texts("ids") == corpus.texts("labels") == [str(given) for given in ids]


def test_columns_without_a_value_are_not_suggested(tmp_path: Path) -> None:
    rows = [{"v": [0.5, i], "note": None, "weights": None, "id": None} for i in range(4)]
    (tmp_path / "a.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    said = "\n".join(describe_sources(open_sources([str(tmp_path / "a.jsonl")])))
    assert "no weights" not in said
    assert "note" not in said.partition("takes a column as labels")[2]
    assert "id (without a value in the first rows: --ids-column id takes it as text)" in said
