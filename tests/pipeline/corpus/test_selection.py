"""Rows of a corpus by ids, labels, conditions or at random: as a corpus, or as a file."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet
import pytest

from latentscale_pipeline.corpus import Corpus, open_corpus, verify
from latentscale_pipeline.corpus.ingest.append import append
from latentscale_pipeline.corpus.ingest.create import ingest
from latentscale_pipeline.corpus.ingest.sidecars import read_column
from latentscale_pipeline.corpus.selection import Selection, choose_rows, chosen_source
from latentscale_pipeline.corpus.tables import Table
from latentscale_pipeline.errors import BadInput
from tests.conftest import Ended

Command = Callable[..., Ended]
N = 2600


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Corpus:
    """A corpus that has grown, with ids, labels, weights, and a table beside it."""
    tmp_path = tmp_path_factory.mktemp("corpus")
    rows = np.random.default_rng(0).standard_normal((N, 4)).astype(np.float32)
    ids = [f"id{i}" for i in range(N)]
    labels = [("en", "de", "fr")[i % 3] for i in range(N)]
    for name, piece in (("a", slice(0, 1500)), ("b", slice(1500, N))):
        np.save(tmp_path / f"{name}.npy", rows[piece])
        (tmp_path / f"{name}-ids").write_text("\n".join(ids[piece]))
        (tmp_path / f"{name}-labels").write_text("\n".join(labels[piece]))
        np.save(tmp_path / f"{name}-weights", np.arange(N)[piece] + 1.0)
    given = [
        {
            "ids": str(tmp_path / f"{name}-ids"),
            "labels": str(tmp_path / f"{name}-labels"),
            "weights": str(tmp_path / f"{name}-weights.npy"),
        }
        for name in "ab"
    ]
    ingest([str(tmp_path / "a.npy")], str(tmp_path / "c"), shard_bytes=1, **given[0])
    append([str(tmp_path / "b.npy")], str(tmp_path / "c"), **given[1])
    table = pa.table(
        {"year": [2000 + i % 30 for i in range(N)], "draft": [i % 7 == 0 for i in range(N)]}
    )
    pyarrow.parquet.write_table(table, tmp_path / "meta.parquet")
    return open_corpus(str(tmp_path / "c"))


CHOICES: list[tuple[list[str], Callable[[int], bool]]] = [
    (["--label", "en"], lambda i: i % 3 == 0),
    (["--label", "en", "--label", "fr"], lambda i: i % 3 != 1),
    (["--where", "labels == 'de' and weights > 2000"], lambda i: i % 3 == 1 and i + 1 > 2000),
    (["--where", "label == 'de' and weight > 2000"], lambda i: i % 3 == 1 and i + 1 > 2000),
    (
        ["--where", "not (ids in ['id3', 'id2000'] or weights <= 1)"],
        lambda i: i not in {0, 3, 2000},
    ),
    (["--table", "meta.parquet", "--where", "2010 <= year < 2012"], lambda i: 10 <= i % 30 < 12),
    (["--where", "weights == -1 or labels not in ('en', 'de')"], lambda i: i % 3 == 2),
]


@pytest.mark.parametrize(("options", "wanted"), CHOICES)
def test_chosen_rows_become_a_corpus_or_a_file(
    latentscale: Command,
    corpus: Corpus,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    options: list[str],
    wanted: Callable[[int], bool],
) -> None:
    monkeypatch.chdir(tmp_path)
    shutil.copy(Path(corpus.url).parent / "meta.parquet", tmp_path)
    rows = [i for i in range(N) if wanted(i)]
    assert latentscale("subset", corpus.url, "new", *options).code == 0
    new = open_corpus("new")
    np.testing.assert_array_equal(new.read_all(), corpus.read_all()[rows])
    assert new.texts("ids") == [f"id{i}" for i in rows]
    assert new.texts("labels") == [("en", "de", "fr")[i % 3] for i in rows]
    np.testing.assert_array_equal(new.weights(), np.array(rows) + 1.0)
    assert verify(new).problems == ()
    for name, beside in (("out.npy", ""), ("out.parquet", ", with row, ids, labels, weights")):
        ended = latentscale("export", corpus.url, name, *options)
        joined = "meta.parquet: joined by the order of the rows, as it has no column id\n"
        said = joined if "--table" in options else ""
        assert ended == Ended(0, f"{name}: {len(rows):,} rows of 4 dimensions{beside}\n", said)
        assert ingest([name], f"from {name}").fingerprint == new.fingerprint
    np.testing.assert_array_equal(np.load("out.npy"), new.read_all())
    table = pyarrow.parquet.read_table("out.parquet")
    assert table.column_names == ["row", "ids", "labels", "weights", "vector"]
    assert table["row"].to_pylist() == rows
    assert table["ids"].to_pylist() == new.texts("ids")
    assert latentscale("export", corpus.url, "out.npy").code == 2
    assert latentscale("export", corpus.url, "out.npy", "--overwrite").code == 0
    np.testing.assert_array_equal(np.load("out.npy"), corpus.read_all())


def test_ids_from_a_file_and_a_random_sample(
    latentscale: Command, corpus: Corpus, tmp_path: Path
) -> None:
    (tmp_path / "wanted").write_text("id2500\nid7\nnobody\n")
    ended = latentscale("subset", corpus.url, tmp_path / "i", "--ids", tmp_path / "wanted")
    assert ended.code == 0
    assert "1 of 3 ids are of no row, such as nobody\n" in ended.err
    assert open_corpus(str(tmp_path / "i")).texts("ids") == ["id7", "id2500"]
    for seed, name in ((1, "x"), (1, "y"), (2, "z")):
        options = ["--sample", 500, "--seed", seed, "--label", "en"]
        assert latentscale("subset", corpus.url, tmp_path / name, *options).code == 0
    x, y, z = (open_corpus(str(tmp_path / name)) for name in "xyz")
    assert x.fingerprint == y.fingerprint != z.fingerprint
    assert x.n == len(set(x.texts("ids") or [])) == 500
    assert set(x.texts("labels") or []) == {"en"}


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--label", "zz"], "no row has the label 'zz'; check its labels"),
        (["--label", "e"], "no row has the label 'e'; did you mean en?"),
        (["--label", "zz", "--label", "e"], "no row has the label 'zz' or one of 1 more"),
        (["--label", "en", "--label", "dee"], "no row has the label 'dee'; did you mean de?"),
        (["--label", "en", "--where", "weights > 99999"], "no row matches; relax the conditions"),
        (["--where", "labels in [de, 'en']"], "it has no de (it has ids, labels, weights); text s"),
        (["--sample", "9999"], "can't draw 9999 rows from 2600; ask for fewer"),
        (["--where", "year > 3"], "it has no year (it has ids, labels, weights)"),
        (["--where", "labels > 3"], "text and numbers can't be compared"),
        (["--where", "labels =="], "not a condition"),
        (["--where", "weights"], "not a condition"),
        (["--where", "__import__('os').system('true')"], "can't be part of a condition"),
        (["--where", "labels.__class__ == 1"], "it has no labels.__class__ (it has ids, "),
        (["--where", "[x for x in ids] == 1"], "can't be part of a condition"),
        (["--ids", "nowhere"], "nowhere: No such file or directory; name a text file"),
        (["--table", "nowhere", "--where", "year > 3"], "nowhere: no such file or folder"),
    ],
)
def test_what_can_not_be_chosen_is_one_line(
    latentscale: Command, corpus: Corpus, tmp_path: Path, options: list[str], message: str
) -> None:
    for command, target in (("subset", "new"), ("export", "new.npy")):
        ended = latentscale(command, corpus.url, tmp_path / target, *options)
        assert ended.code == 2
        assert message in ended.err
        assert ended.err.count("\n") == 1
        assert not (tmp_path / target).exists()
    ended = latentscale("export", corpus.url, tmp_path / "new.csv")
    assert ended.code == 2
    assert "unknown suffix; use a path that ends in .npy or .parquet" in ended.err


@pytest.mark.parametrize("kind", ["parquet", "jsonl", "csv"])
@pytest.mark.parametrize(
    ("condition", "chosen"),
    [
        ("year >= 2020", lambda year, _: year is not None and year >= 2020),
        ("not year >= 2020", lambda year, _: year is not None and year < 2020),
        ("year != 2003", lambda year, _: year not in {None, 2003}),
        ("year in [2003, 2004]", lambda year, _: year in {2003, 2004}),
        ("year not in [2003, 2004]", lambda year, _: year not in {None, 2003, 2004}),
        ("year is null", lambda year, _: year is None),
        ("seen", lambda _, seen: seen is True),
        ("not seen", lambda _, seen: seen is False),
        ("seen == false", lambda _, seen: seen is False),
        ("seen is null", lambda _, seen: seen is None),
    ],
)
def test_numbers_and_booleans_that_are_missing(
    tmp_path: Path,
    corpus: Corpus,
    kind: str,
    condition: str,
    chosen: Callable[[int | None, bool | None], bool],
) -> None:
    years = [None if i % 7 == 0 else 2000 + i % 30 for i in range(N)]
    seen = [None if i % 5 == 0 else i % 2 == 0 for i in range(N)]
    file = tmp_path / f"meta.{kind}"
    if kind == "parquet":
        table = pa.table({"year": pa.array(years, pa.int64()), "seen": pa.array(seen)})
        pyarrow.parquet.write_table(table, file, row_group_size=3)
    elif kind == "jsonl":
        rows = zip(years, seen, strict=True)
        file.write_text("".join(json.dumps({"year": y, "seen": s}) + "\n" for y, s in rows))
    else:
        written = [
            "year,seen",
            *(f"{y or ''},{'' if s is None else s}" for y, s in zip(years, seen, strict=True)),
        ]
        file.write_text("\n".join(written))
    found = choose_rows(corpus, Selection(where=condition, table=Table(corpus, str(file))))
    expected = [i for i in range(N) if chosen(years[i], seen[i])]
    assert found.tolist() == expected


@pytest.mark.parametrize("kind", ["csv", "jsonl"])
def test_whole_numbers_of_a_table_stay_whole(tmp_path: Path, corpus: Corpus, kind: str) -> None:
    numbers = [None if i == 150 else 2**53 + i for i in range(N)]
    file = tmp_path / f"meta.{kind}"
    if kind == "csv":
        file.write_text("key,lang\n" + "".join(f"{n or ''},en\n" for n in numbers))
    else:
        file.write_text("".join(json.dumps({"key": n}) + "\n" for n in numbers))

    def chosen(condition: str) -> list[int]:
        return choose_rows(
            corpus, Selection(where=condition, table=Table(corpus, str(file)))
        ).tolist()

    assert chosen(f"key == {2**53 + 3}") == [3]
    assert chosen("key is null") == [150]
    assert chosen(f"key < {2**53 + 2}") == [0, 1]


def test_digits_behind_a_zero_are_text(tmp_path: Path, corpus: Corpus) -> None:
    codes = [f"{i:05d}" for i in range(N)]
    file = tmp_path / "codes.csv"
    file.write_text("zip,share\n" + "".join(f"{code},0.{code}\n" for code in codes))

    def chosen(condition: str) -> list[int]:
        return choose_rows(
            corpus, Selection(where=condition, table=Table(corpus, str(file)))
        ).tolist()

    assert chosen("zip == '00017'") == [17]
    assert chosen("share < 0.00003") == [0, 1, 2]
    with pytest.raises(BadInput, match="text and numbers can't be compared"):
        chosen("zip == 17")


def test_a_csv_table_in_several_files(tmp_path: Path, corpus: Corpus) -> None:
    (tmp_path / "parts").mkdir()
    for name, first in (("a", 0), ("b", 1300)):
        years = ["" if i == 1400 else str(i % 10) for i in range(first, first + 1300)]
        text = "lang,year\n" + "".join(f"en,{year}\n" for year in years)
        (tmp_path / "parts" / f"{name}.csv").write_text(text)
    found = choose_rows(
        corpus, Selection(where="year < 5", table=Table(corpus, str(tmp_path / "parts")))
    )
    assert found.tolist() == [i for i in range(N) if i % 10 < 5 and i != 1400]


@pytest.fixture(scope="module")
def numbered(tmp_path_factory: pytest.TempPathFactory) -> Corpus:
    """A corpus of five rows with the ids 10, 11, …, 14."""
    tmp_path = tmp_path_factory.mktemp("numbered")
    np.save(tmp_path / "rows.npy", np.eye(5, dtype="f4"))
    (tmp_path / "ids").write_text("".join(f"{i}\n" for i in range(10, 15)))
    ingest([str(tmp_path / "rows.npy")], str(tmp_path / "c"), ids=str(tmp_path / "ids"))
    return open_corpus(str(tmp_path / "c"))


@pytest.mark.parametrize("kind", ["csv", "jsonl", "parquet"])
def test_a_table_with_ids_may_have_another_order_and_more_rows(
    tmp_path: Path, numbered: Corpus, kind: str
) -> None:
    ids = [12, 99, 10, 14, 13, 11, 7]
    file = tmp_path / f"t.{kind}"
    frame = pd.DataFrame({"id": ids, "year": [2000 + i for i in ids]})
    if kind == "csv":
        frame.to_csv(file, index=False)
    elif kind == "jsonl":
        frame.to_json(file, orient="records", lines=True)
    else:
        frame.to_parquet(file)

    def found(condition: str) -> list[int]:
        return choose_rows(
            numbered, Selection(where=condition, table=Table(numbered, str(file)))
        ).tolist()

    assert found("year == 2012") == [2]
    assert found("year < 2012") == [0, 1]
    assert found("ids == '12' and year > 2000") == [2]


@pytest.mark.parametrize(
    ("ids", "expected"),
    [
        (
            [1, 2, 3, 4, 5],
            r"its id \(the first is '1'\) is an id of .* \(the first is '10'\); give the",
        ),
        ([11, 12, 9, 10], [1, 2]),
        ([10, 11, 12, 13, 9], [0, 1]),
        ([10, 11, 12, 13, 14, 11], r"its id has '11' in several rows; give one row for each id"),
        ([10, 11, 12, 13, 14, 9, 9], [0, 1]),
    ],
)
def test_ids_of_a_table_are_all_those_of_the_corpus_or_others(
    tmp_path: Path, numbered: Corpus, ids: list[int], expected: list[int] | str
) -> None:
    frame = pd.DataFrame({"id": ids, "year": range(len(ids))})
    frame.to_parquet(tmp_path / "t.parquet")
    selection = Selection(where="year < 2", table=Table(numbered, str(tmp_path / "t.parquet")))
    if isinstance(expected, list):
        assert choose_rows(numbered, selection).tolist() == expected
    else:
        with pytest.raises(BadInput, match=expected):
            choose_rows(numbered, selection)


@pytest.mark.parametrize(
    ("name", "rows", "said"),
    [
        ("id", 5, r"t.parquet: joined by its id, with 3 of 5 rows of the corpus$"),
        ("ID", 7, r"t.parquet: joined by its ID, with 5 of 5 rows of the corpus$"),
        ("key", 5, r"t.parquet: joined by the order of the rows, as it has no column id$"),
    ],
)
def test_a_table_says_how_it_was_joined(
    tmp_path: Path, numbered: Corpus, name: str, rows: int, said: str
) -> None:
    ids = ["12", "11", "13", "8", "9"] if rows == 5 else ["8", "14", "13", "12", "11", "10", "9"]
    pd.DataFrame({name: ids}).to_parquet(tmp_path / "t.parquet")
    assert re.search(said, Table(numbered, str(tmp_path / "t.parquet")).describe())


def test_a_table_without_ids_has_a_row_for_each(tmp_path: Path, numbered: Corpus) -> None:
    pd.DataFrame({"key": range(4)}).to_parquet(tmp_path / "t.parquet")
    with pytest.raises(
        BadInput, match=r"has 4 rows, but .* has 5; .*, or a column id with the ids"
    ):
        Table(numbered, str(tmp_path / "t.parquet")).column("key")


def test_a_missing_id_is_nobodys(tmp_path: Path) -> None:
    np.save(tmp_path / "rows.npy", np.eye(3, dtype="f4"))
    (tmp_path / "ids").write_text("0\n1\n2\n")
    corpus = ingest([str(tmp_path / "rows.npy")], str(tmp_path / "c"), ids=str(tmp_path / "ids"))
    for ids in ([None, 1, 2], [None, None, 2], [0, None, 2]):
        frame = pd.DataFrame({"id": pd.array(ids, "Int64"), "year": [1999, 2001, 2002]})
        frame.to_parquet(tmp_path / "t.parquet")
        frame.to_csv(tmp_path / "t.csv", index=False)
        for kind in ("csv", "parquet"):
            values, null = Table(corpus, str(tmp_path / f"t.{kind}")).column("year")
            known = {i: year for i, year in zip(ids, frame["year"], strict=True) if i is not None}
            found = {i: values[i] for i in range(3) if not null[i]}
            assert found == known


def test_ids_that_lost_digits_and_tables_without_rows_are_refused(
    tmp_path: Path, numbered: Corpus
) -> None:
    large = pa.array([Decimal(2**53 + 1)], pa.decimal128(38, 1))
    pyarrow.parquet.write_table(pa.table({"id": large, "v": [7]}), tmp_path / "t.parquet")
    with pytest.raises(BadInput, match=r"its id has numbers beyond 2\*\*53 .*; make text of them"):
        Table(numbered, str(tmp_path / "t.parquet")).column("v")
    (tmp_path / "t.csv").write_text("id,year\n")
    with pytest.raises(BadInput, match=r"t.csv: the table has no rows; name another file"):
        Table(numbered, str(tmp_path / "t.csv")).column("year")


def test_rows_that_a_table_lacks_have_no_values(tmp_path: Path, numbered: Corpus) -> None:
    frame = pd.DataFrame({"id": ["14", "10"], "s": ["b", "a"], "x": [2.5, 1.5], "k": [2**60, 7]})
    frame.to_csv(tmp_path / "t.csv", index=False)
    frame.to_parquet(tmp_path / "t.parquet")
    for kind in ("csv", "parquet"):
        table = Table(numbered, str(tmp_path / f"t.{kind}"))
        for name, expected in (("s", ["a", "b"]), ("x", [1.5, 2.5]), ("k", [7, 2**60])):
            values, null = table.column(name)
            assert np.flatnonzero(~null | (values == "")).tolist() in ([0, 4], [0, 1, 2, 3, 4])
            assert values[[0, 4]].tolist() == expected
        chosen = Selection(where="k is null", table=table)
        assert choose_rows(numbered, chosen).tolist() == [1, 2, 3]
        chosen = Selection(where="s is null or x > 2", table=table)
        assert choose_rows(numbered, chosen).tolist() == [1, 2, 3, 4]


@pytest.mark.parametrize("kind", ["csv", "parquet"])
def test_ids_of_a_table_may_be_whole_numbers_written_as_floats(
    tmp_path: Path, numbered: Corpus, kind: str
) -> None:
    """A data frame has floats as soon as a number was missing."""
    frame = pd.DataFrame({"id": [14.0, None, 12.0, 10.0, 11.0, 13.0], "year": range(6)})
    file = tmp_path / f"t.{kind}"
    frame.to_csv(file, index=False) if kind == "csv" else frame.to_parquet(file)
    found = choose_rows(numbered, Selection(where="year == 2", table=Table(numbered, str(file))))
    assert found.tolist() == [2]


def test_the_file_of_a_corpus_with_repeated_ids_is_a_table_for_it(
    tmp_path: Path, latentscale: Command
) -> None:
    rows = np.eye(6, dtype="f4")
    rows[5] = np.nan
    frame = pd.DataFrame({"id": list("aabcde"), "s": range(6), "emb": list(rows)})
    frame.to_parquet(tmp_path / "t.parquet")
    source, target = str(tmp_path / "t.parquet"), str(tmp_path / "c.zarr")
    assert latentscale("ingest", source, target, "--on-invalid", "drop").code == 0
    corpus = open_corpus(target)
    found = choose_rows(corpus, Selection(where="s < 3", table=Table(corpus, source)))
    assert found.tolist() == [0, 1, 2]


@pytest.mark.parametrize(("value", "chosen"), [(150.5, True), (2**70, True), (None, False)])
def test_numbers_may_begin_with_whole_ones(
    tmp_path: Path, corpus: Corpus, value: float | None, chosen: bool
) -> None:
    rows = [{"year": value if i == 150 else i} for i in range(N)]
    (tmp_path / "t.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    table = Table(corpus, str(tmp_path / "t.jsonl"))
    found = choose_rows(corpus, Selection(where="year > 149", table=table))
    assert found.tolist() == [*([150] if chosen else []), *range(151, N)]


@pytest.mark.parametrize("value", ["abc", True])
def test_a_column_with_a_text_is_text(tmp_path: Path, corpus: Corpus, value: object) -> None:
    rows = [{"year": value if i == 150 else i} for i in range(N)]
    (tmp_path / "t.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    with pytest.raises(BadInput, match="text and numbers can't be compared"):
        choose_rows(
            corpus, Selection(where="year > 3", table=Table(corpus, str(tmp_path / "t.jsonl")))
        )


@pytest.mark.parametrize("suffix", ["csv", "jsonl"])
def test_a_column_may_have_no_value_in_its_first_rows(
    tmp_path: Path, corpus: Corpus, suffix: str
) -> None:
    notes = [None if i < 200 else "x" if i % 2 else "y" for i in range(N)]
    frame = pd.DataFrame({"note": notes, "late": [None if i < 200 else i for i in range(N)]})
    file = tmp_path / f"t.{suffix}"
    frame.to_json(file, orient="records", lines=True) if suffix == "jsonl" else frame.to_csv(file)

    def chosen(condition: str) -> list[int]:
        selection = Selection(where=condition, table=Table(corpus, str(file)))
        return choose_rows(corpus, selection).tolist()

    assert chosen("note == 'x'") == list(range(201, N, 2))
    assert chosen("note is null") == list(range(200))
    assert chosen("late < 203") == [200, 201, 202]


@pytest.mark.parametrize("length", [10, 15, 16, 40])
@pytest.mark.parametrize("suffix", ["csv", "parquet"])
def test_long_ids_join_a_table_in_another_order(tmp_path: Path, length: int, suffix: str) -> None:
    generator = np.random.default_rng(0)
    ids = np.array([f"{i:0{length}d}x" for i in generator.permutation(300)])
    np.save(tmp_path / "rows.npy", generator.normal(size=(300, 3)))
    np.save(tmp_path / "ids.npy", ids)
    corpus = ingest(
        [str(tmp_path / "rows.npy")], str(tmp_path / "c"), ids=str(tmp_path / "ids.npy")
    )
    order = generator.permutation(300)
    frame = pd.DataFrame({"id": ids[order], "row": order})
    file = tmp_path / f"t.{suffix}"
    frame.to_csv(file, index=False) if suffix == "csv" else frame.to_parquet(file)
    table = Table(corpus, str(file))
    for condition, expected in (("row < 3", [0, 1, 2]), ("row == 299", [299])):
        assert choose_rows(corpus, Selection(where=condition, table=table)).tolist() == expected
    assert "joined by its id, with 300 of 300 rows" in table.describe()


@pytest.mark.parametrize("kind", ["csv", "jsonl", "parquet", "folder"])
def test_unsigned_numbers_of_a_table_keep_their_digits(tmp_path: Path, kind: str) -> None:
    hashes = [2**63 + 2 * i + 1 for i in range(40)]
    np.save(tmp_path / "rows.npy", np.eye(40, dtype="f4"))
    corpus = ingest([str(tmp_path / "rows.npy")], str(tmp_path / "c"))
    file = tmp_path / f"t.{kind}"
    if kind == "csv":
        file.write_text("hash,lang\n" + "".join(f"{one},en\n" for one in hashes))
    elif kind == "jsonl":
        file.write_text("".join(json.dumps({"hash": one}) + "\n" for one in hashes))
    elif kind == "parquet":
        pyarrow.parquet.write_table(pa.table({"hash": pa.array(hashes, pa.uint64())}), file)
    else:
        file.mkdir()
        hashes[0] = 5
        signed, unsigned = pa.array(hashes[:1], pa.int64()), pa.array(hashes[1:], pa.uint64())
        pyarrow.parquet.write_table(pa.table({"hash": signed}), file / "a.parquet")
        pyarrow.parquet.write_table(pa.table({"hash": unsigned}), file / "b.parquet")
    selection = Selection(where=f"hash == {hashes[7]}", table=Table(corpus, str(file)))
    assert choose_rows(corpus, selection).tolist() == [7]


def test_whole_numbers_that_would_lose_digits_beside_fractions_are_refused(
    tmp_path: Path,
) -> None:
    np.save(tmp_path / "rows.npy", np.eye(4, dtype="f4"))
    corpus = ingest([str(tmp_path / "rows.npy")], str(tmp_path / "c"))
    (tmp_path / "t").mkdir()
    for name, values in (("a", [2**53 + 1, 1]), ("b", [0.5, 1.0])):
        pyarrow.parquet.write_table(pa.table({"v": values}), tmp_path / "t" / f"{name}.parquet")
    with pytest.raises(BadInput, match=r"its v has whole numbers beyond 2\*\*53 in one file"):
        choose_rows(corpus, Selection(where="v > 1", table=Table(corpus, str(tmp_path / "t"))))


def test_ids_that_look_like_numbers_are_text(corpus: Corpus) -> None:
    with pytest.raises(BadInput, match="put text in quotes"):
        choose_rows(corpus, Selection(where="ids == 3"))


def test_a_csv_table_without_the_column(tmp_path: Path, corpus: Corpus) -> None:
    (tmp_path / "meta.csv").write_text("lang,topic\n" + "en,a\n" * N)
    with pytest.raises(BadInput, match=r"names no column 'year' .*name one that it has"):
        choose_rows(
            corpus, Selection(where="year > 3", table=Table(corpus, str(tmp_path / "meta.csv")))
        )


def test_a_name_that_a_table_has_twice_is_told(tmp_path: Path, corpus: Corpus) -> None:
    (tmp_path / "t.csv").write_text("x,y,x\n" + "1,a,2\n" * N)
    for name in "xy":
        with pytest.raises(
            BadInput, match=r"t\.csv: two of its columns are called 'x'; rename one"
        ):
            choose_rows(
                corpus,
                Selection(where=f"{name} is null", table=Table(corpus, str(tmp_path / "t.csv"))),
            )


@pytest.mark.parametrize(
    ("beside", "refused"), [("NaN", False), ("", False), ("-1", True), ("0.5", True)]
)
def test_whole_numbers_of_a_text_file_keep_their_digits(
    tmp_path: Path, corpus: Corpus, beside: str, refused: bool
) -> None:
    large = 2**63 + 1
    cells = [str(large + i) if i % 2 else beside for i in range(N)]
    file = tmp_path / "meta.csv"
    file.write_text("key,lang\n" + "".join(f"{cell},en\n" for cell in cells))
    selection = Selection(where=f"key == {large + 3}", table=Table(corpus, str(file)))
    if refused:
        with pytest.raises(BadInput, match=r"its key has whole numbers beyond 2\*\*53 beside"):
            choose_rows(corpus, selection)
    else:
        assert choose_rows(corpus, selection).tolist() == [3]


# --- booleans -----------------------------------------------------------------------------------


def test_many_ids_are_looked_up_at_once(tmp_path: Path) -> None:
    """Each pair of ids, as NumPy compares them, takes minutes here."""
    n = 60_000
    generator = np.random.default_rng(0)
    ids = np.array([f"document-{i:012d}" for i in range(n)])
    order = generator.permutation(n)
    np.save(tmp_path / "rows.npy", generator.normal(size=(n, 2)).astype("f4"))
    np.save(tmp_path / "ids.npy", ids)
    corpus = ingest(
        [str(tmp_path / "rows.npy")], str(tmp_path / "c"), ids=str(tmp_path / "ids.npy")
    )
    chosen = choose_rows(corpus, Selection(ids=set(ids[order[: n // 2]].tolist())))
    np.testing.assert_array_equal(chosen, np.sort(order[: n // 2]))
    pd.DataFrame({"id": ids[order], "row": order}).to_parquet(tmp_path / "t.parquet")
    column, null = Table(corpus, str(tmp_path / "t.parquet")).column("row")
    np.testing.assert_array_equal(column, np.arange(n))
    assert not null.any()


def test_ids_of_a_table_may_begin_with_apostrophes(tmp_path: Path) -> None:
    np.save(tmp_path / "rows.npy", np.eye(4, dtype="f4"))
    (tmp_path / "ids.txt").write_text("'@ann\nbob\n=cy\n'-dee\n")
    corpus = ingest(
        [str(tmp_path / "rows.npy")], str(tmp_path / "c"), ids=str(tmp_path / "ids.txt")
    )
    (tmp_path / "t.csv").write_text("id,v\n'-dee,3\n=cy,2\nbob,1\n'@ann,0\n")
    values, null = Table(corpus, str(tmp_path / "t.csv")).column("v")
    assert (values.tolist(), null.any()) == ([0, 1, 2, 3], False)


def test_numbers_in_files_of_unlike_types(tmp_path: Path) -> None:
    np.save(tmp_path / "rows.npy", np.eye(4, dtype="f4"))
    corpus = ingest([str(tmp_path / "rows.npy")], str(tmp_path / "c"))
    for name in ("mixed", "missing"):
        (tmp_path / name).mkdir()
    (tmp_path / "mixed/a.jsonl").write_text('{"s": 1.5}\n{"s": 2}\n')
    pyarrow.parquet.write_table(pa.table({"s": [3.0, 4.0]}), tmp_path / "mixed/b.parquet")
    values, _ = Table(corpus, str(tmp_path / "mixed")).column("s")
    assert values.tolist() == [1.5, 2.0, 3.0, 4.0]
    (tmp_path / "mixed/a.jsonl").write_text('{"s": null}\n{"s": null}\n')
    _, null = Table(corpus, str(tmp_path / "mixed")).column("s")
    assert null.tolist() == [True, True, False, False]
    pyarrow.parquet.write_table(pa.table({"s": [2**60 + 1, 5]}), tmp_path / "missing/a.parquet")
    none = pa.array([None, None], pa.float64())
    pyarrow.parquet.write_table(pa.table({"s": none}), tmp_path / "missing/b.parquet")
    values, null = Table(corpus, str(tmp_path / "missing")).column("s")
    assert (values[:2].tolist(), null.tolist()) == ([2**60 + 1, 5], [False, False, True, True])


def test_a_table_of_one_column_may_have_any_text(tmp_path: Path) -> None:
    file = tmp_path / "one.csv"
    file.write_text('text\nhello, world\n"quoted, too"\na\tb\n')
    found = [text for block in read_column("texts", str(file), "text") for text in block.tolist()]
    assert found == ["hello, world", "quoted, too", "a b"]


@pytest.mark.parametrize("suffix", ["csv", "parquet", "jsonl"])
@pytest.mark.parametrize(
    ("condition", "expected"),
    [
        ("lang != 'de'", [0, 2]),
        ("lang not in ['de', 'fr']", [0, 2]),
        ("not lang == 'en'", [1]),
        ("lang < 'zz'", [0, 1, 2]),
        ("lang is null", [3, 4]),
    ],
)
def test_rows_that_a_table_of_any_kind_lacks_are_null(
    tmp_path: Path, numbered: Corpus, suffix: str, condition: str, expected: list[int]
) -> None:
    ids = numbered.texts("ids")
    assert ids is not None
    known = [
        {"id": name, "lang": lang} for name, lang in zip(ids, ("en", "de", "en"), strict=False)
    ]
    file = tmp_path / f"languages.{suffix}"
    if suffix == "csv":
        file.write_text("id,lang\n" + "".join(f"{r['id']},{r['lang']}\n" for r in known))
    elif suffix == "jsonl":
        file.write_text("".join(json.dumps(row) + "\n" for row in known))
    else:
        pyarrow.parquet.write_table(pa.Table.from_pylist(known), file)
    found = choose_rows(numbered, Selection(where=condition, table=Table(numbered, str(file))))
    assert found.tolist() == expected


def test_chosen_rows_that_all_weigh_nothing_are_refused(tmp_path: Path) -> None:
    np.save(tmp_path / "a.npy", np.eye(4, dtype="f4"))
    np.save(tmp_path / "weights.npy", np.array([1.0, 0.0, 0.0, 2.0]))
    weights = str(tmp_path / "weights.npy")
    corpus = ingest([str(tmp_path / "a.npy")], str(tmp_path / "a.zarr"), weights=weights)
    with pytest.raises(BadInput, match="all chosen rows have weight 0; choose others as"):
        chosen_source(corpus, np.array([1, 2]))
    assert chosen_source(corpus, np.array([1, 3])).rows == 2
