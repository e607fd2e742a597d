"""Tables as users have them: named columns beside vectors, in several orders, with gaps."""

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from latentscale_pipeline.corpus import open_corpus
from latentscale_pipeline.corpus.ingest.create import ingest
from latentscale_pipeline.errors import BadInput
from tests.conftest import Ended

Command = Callable[..., Ended]
ROWS = np.random.default_rng(0).normal(size=(20, 4)).round(4)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def write_csv(name: str, header: list[str], *columns: object) -> None:
    lines = [",".join(map(str, row)) for row in zip(*map(list, columns), strict=True)]
    Path(name).write_text("\n".join([",".join(header), *lines]) + "\n")


def test_a_data_frames_column_numbers_beside_a_name_are_no_row(
    folder: Path, latentscale: Command
) -> None:
    ids = [f"r{i}" for i in range(20)]
    write_csv("rows.csv", ["id", "0", "1", "2", "3"], ids, *ROWS.T)
    assert latentscale("ingest", "rows.csv", "rows.zarr").code == 0
    corpus = open_corpus("rows.zarr")
    np.testing.assert_allclose(corpus.read_all(), ROWS, rtol=1e-6)
    assert corpus.texts("ids") == ids
    write_csv("two.csv", ["", "0", "1"], range(20), *ROWS.T[:2])
    assert latentscale("ingest", "two.csv", "two.zarr").code == 0
    np.testing.assert_allclose(open_corpus("two.zarr").read_all(), ROWS[:, :2], rtol=1e-6)
    # Without a word in it such a line may be a row.
    Path("bare.csv").write_text("7,1,2,3\n" + "\n".join(",".join(map(str, r)) for r in ROWS))
    assert latentscale("ingest", "bare.csv", "bare.zarr", "--vectors", "*").code == 0
    assert open_corpus("bare.zarr").n == 21


def test_ids_and_labels_are_no_dimensions(folder: Path, latentscale: Command) -> None:
    whole = (100 * ROWS).astype(int)
    write_csv("whole.csv", ["id", *"abcd"], range(1000, 1020), *whole.T)
    assert latentscale("ingest", "whole.csv", "whole.zarr").code == 0
    corpus = open_corpus("whole.zarr")
    np.testing.assert_array_equal(corpus.read_all(), whole)
    assert corpus.texts("ids") == [str(i) for i in range(1000, 1020)]
    labels = [float(i % 3) for i in range(20)]
    labels[4] = np.nan
    table = pa.table({"label": labels, **dict(zip("wxyz", ROWS.T, strict=True))})
    pq.write_table(table, "gaps.parquet")
    ended = latentscale("ingest", "gaps.parquet", "gaps.zarr")
    assert ended.code == 0, ended.err
    assert "label (double" in ended.err or "label (float64" in ended.err
    np.testing.assert_allclose(open_corpus("gaps.zarr").read_all(), ROWS, rtol=1e-6)
    kinds = [["0", "1", "unknown"][(i % 7) // 3] for i in range(20)]
    write_csv("mixed.csv", ["label", *"wxyz"], kinds, *ROWS.T)
    assert latentscale("ingest", "mixed.csv", "mixed.zarr").code == 0
    assert open_corpus("mixed.zarr").texts("labels") == kinds
    assert open_corpus("mixed.zarr").d == 4
    # Whoever asks for all columns gets them.
    assert latentscale("ingest", "whole.csv", "all.zarr", "--vectors", "*").code == 0
    assert open_corpus("all.zarr").d == 5


def test_columns_are_joined_by_their_names(folder: Path, latentscale: Command) -> None:
    write_csv("1.csv", [*"wxyz"], *ROWS.T)
    write_csv("2.csv", [*"zxwy"], *ROWS.T[[3, 1, 0, 2]])
    assert latentscale("ingest", "1.csv", "2.csv", "both.zarr").code == 0
    np.testing.assert_allclose(open_corpus("both.zarr").read_all(), [*ROWS, *ROWS], rtol=1e-6)
    write_csv("3.csv", [*"wxyv"], *ROWS.T)
    ended = latentscale("ingest", "1.csv", "3.csv", "other.zarr")
    assert ended.code == 2
    assert "3.csv:*: its vectors have a column v, which" in ended.err


def test_ids_are_kept_as_they_are_written(folder: Path, latentscale: Command) -> None:
    ids = ["007", "7", "0012", "12345678901234567890", *map(str, range(16))]
    write_csv("rows.csv", ["id", *"wxyz"], ids, *ROWS.T)
    assert latentscale("ingest", "rows.csv", "rows.zarr").code == 0
    assert open_corpus("rows.zarr").texts("ids") == ids
    Path("some.txt").write_bytes("\ufeff007\n12\u20281\n7\n".encode())
    ended = latentscale("subset", "rows.zarr", "some.zarr", "--ids", "some.txt")
    assert ended.code == 0, ended.err
    assert open_corpus("some.zarr").texts("ids") == ["007", "7", "7"]
    # Labels may turn out as text after many numbers.
    labels = ["1"] * 70 + ["other"]
    write_csv("long.csv", ["label", "x", "y"], labels, range(71), [0.5] * 71)
    assert latentscale("ingest", "long.csv", "long.zarr", "--vectors", "*").code != 0
    write_csv("long.csv", ["label", "x", "y"], labels, [0.25] * 71, [0.5] * 71)
    assert latentscale("ingest", "long.csv", "long.zarr").code == 0
    assert open_corpus("long.zarr").texts("labels") == labels


def test_lists_longer_than_what_is_looked_at_first(folder: Path, latentscale: Command) -> None:
    rows = np.random.default_rng(1).normal(size=(60, 1536))
    lists = ['"' + str(row.tolist()) + '"' for row in rows]
    write_csv("rows.csv", ["id", "embedding"], range(60), lists)
    assert latentscale("ingest", "rows.csv", "rows.zarr").code == 0
    np.testing.assert_allclose(open_corpus("rows.zarr").read_all(), rows, rtol=1e-6)


@pytest.mark.parametrize(
    ("first", "second", "expected"),
    [
        ([1, 2, 3], [1.0, None, 3.0], ["1", "2", "3", "1", "", "3"]),
        ([1.0, None, 3.0], [1, 2, 3], ["1", "", "3", "1", "2", "3"]),
        ([1, 2, 3], [None] * 3, ["1", "2", "3", "", "", ""]),
        (["x", "y", None], [None] * 3, ["x", "y", "", "", "", ""]),
        ([1.0, None, 3.0], [None] * 3, None),
        ([0.5, 1.5, 2.5], [1, 2, 3], "isn't a whole number, and labels are text or whole numbers"),
    ],
)
def test_a_part_may_lack_labels_that_others_have(
    tmp_path: Path, first: list[Any], second: list[Any], expected: list[str] | str | None
) -> None:
    """Other programs write whole numbers of which one is missing as floats."""
    for number, labels in enumerate((first, second)):
        kind = pa.null() if labels == [None] * 3 else None
        columns = {"label": pa.array(labels, kind), "vec": list(np.eye(3, 4, dtype="f4"))}
        pq.write_table(pa.table(columns), tmp_path / f"part-{number}.parquet")
    if isinstance(expected, str):
        with pytest.raises(BadInput, match=expected):
            ingest([str(tmp_path)], str(tmp_path / "c.zarr"))
        return
    corpus = ingest([str(tmp_path)], str(tmp_path / "c.zarr"))
    assert ("labels" in corpus.manifest.arrays) == (expected is not None)
    if expected is not None:
        found = np.concatenate(list(corpus.companion_blocks("labels")))
        assert found.tolist() == expected


def test_conditions_on_a_table_know_bytes_gaps_and_flags(
    folder: Path, latentscale: Command
) -> None:
    np.save("rows.npy", ROWS)
    assert latentscale("ingest", "rows.npy", "rows.zarr").code == 0
    score = np.arange(20.0)
    score[:3] = np.nan
    np.savez("table.npz", lang=np.array([b"en", "dé".encode()] * 10), score=score)
    flags = {"checked": [i % 2 == 0 for i in range(20)], "word": ["a", None] * 10}
    pq.write_table(pa.table(flags), "table.parquet")
    for table, condition, count in (
        ("table.npz", "lang != 'en'", 10),
        ("table.npz", "lang == 'dé'", 10),
        ("table.npz", "score is not null", 17),
        ("table.npz", "not (score > 5)", 3),
        ("table.parquet", "checked", 10),
        ("table.parquet", "word is null", 10),
    ):
        given = ("--table", table, "--where", condition, "--overwrite")
        ended = latentscale("subset", "rows.zarr", "some.zarr", *given)
        assert ended.code == 0, ended.err
        assert open_corpus("some.zarr").n == count, condition


def test_labels_that_were_never_written_are_refused(folder: Path, latentscale: Command) -> None:
    with h5py.File("rows.h5", "w") as file:
        file["emb"] = np.random.default_rng(2).normal(size=(2000, 3))
        file.create_dataset("label", (2000,), "i4", chunks=(100,))[:100] = 7
    ended = latentscale("ingest", "rows.h5", "rows.zarr")
    assert ended.code == 2
    assert "19 of its 20 chunks were never written" in ended.err


def test_a_name_that_is_not_utf_8_is_refused_in_a_line(folder: Path, latentscale: Command) -> None:
    np.save(os.fsdecode(b"caf\xe9.npy"), ROWS)
    ended = latentscale("ingest", ".", "rows.zarr")
    assert ended.code == 2
    assert "caf\ufffd.npy: the file's name isn't UTF-8; rename it\n" in ended.err


def test_half_a_character_stays_escaped(folder: Path, latentscale: Command) -> None:
    line = '{"id": "\\ud80%d", "text": "hello \\ud83d", "emb": [0.5, 1.5]}\n'
    Path("rows.jsonl").write_text("".join(line % row for row in range(3)))
    ended = latentscale("ingest", "rows.jsonl", "rows.zarr")
    assert ended.code == 0, ended.err
    corpus = open_corpus("rows.zarr")
    assert corpus.texts("texts") == [r"hello \ud83d"] * 3
    assert corpus.texts("ids") == [r"\ud800", r"\ud801", r"\ud802"]


@pytest.mark.parametrize("name", ["ids", "labels", "texts"])
def test_half_a_character_in_an_array_is_refused_with_its_row(
    name: str, folder: Path, latentscale: Command
) -> None:
    np.save("rows.npy", np.eye(4)[:, :3])
    np.save("texts.npy", np.array(["a", "b", "\ud800c", "d"]))
    ended = latentscale("ingest", "rows.npy", "rows.zarr", f"--{name}", "texts.npy")
    assert ended.code == 2
    assert "texts.npy: row 2 has half of a character, '\\ud800c'; leave it out" in ended.err
    assert not Path("rows.zarr").exists()


@pytest.mark.parametrize("form", ["csv", "jsonl"])
@pytest.mark.parametrize("place", [0, 3])
def test_ids_or_labels_that_are_numbered_like_dimensions_are_asked_about(
    form: str, place: int, folder: Path, latentscale: Command
) -> None:
    columns = [row.tolist() for row in ROWS.T]
    columns[place] = [int(i) for i in range(100, 120)]
    names = [f"c{i}" for i in range(4)]
    if form == "csv":
        write_csv("t.csv", names, *columns)
    else:
        lines = [dict(zip(names, row, strict=True)) for row in zip(*columns, strict=True)]
        Path("t.jsonl").write_text("".join(f"{json.dumps(line)}\n" for line in lines))
    ended = latentscale("ingest", f"t.{form}", "t.zarr")
    assert ended.code == 2
    assert f"column c{place} has whole numbers, the others have fractions, so it may" in ended.err
    assert latentscale("ingest", f"t.{form}", "a.zarr", "--ids-column", f"c{place}").code == 0
    assert open_corpus("a.zarr").d == 3
    assert latentscale("ingest", f"t.{form}", "b.zarr", "--vectors", "c*").code == 0
    assert open_corpus("b.zarr").d == 4


def test_whole_numbers_of_a_typed_table_are_no_dimensions(
    folder: Path, latentscale: Command
) -> None:
    columns = {f"f{i}": column for i, column in enumerate(ROWS.T[:3])}
    pq.write_table(pa.table({**columns, "f3": 2**53 + 1 + np.arange(20)}), "t.parquet")
    assert latentscale("ingest", "t.parquet", "t.zarr").code == 0
    np.testing.assert_allclose(open_corpus("t.zarr").read_all(), ROWS[:, :3], rtol=1e-6)


@pytest.mark.parametrize("form", ["csv", "jsonl"])
def test_a_dimension_may_begin_with_whole_numbers(
    form: str, folder: Path, latentscale: Command
) -> None:
    """Many programs write 0.0 as 0: a numbered column is a dimension like its neighbours."""
    rows = np.random.default_rng(2).normal(size=(80, 5)).round(3).astype(np.float32)
    rows[:60, 2] = 0
    names = [f"emb_{i}" for i in range(5)]
    cells = [[int(v) if v == 0 else float(v) for v in row] for row in rows.tolist()]
    if form == "csv":
        write_csv(
            "t.csv", ["score", *names, "year_1"], range(80), *zip(*cells, strict=True), range(80)
        )
    else:
        lines = [{"score": i, **dict(zip(names, r, strict=True))} for i, r in enumerate(cells)]
        Path("t.jsonl").write_text("".join(f"{json.dumps(line)}\n" for line in lines))
    ended = latentscale("ingest", f"t.{form}", "t.zarr")
    assert ended.code == 0, ended.err
    np.testing.assert_allclose(open_corpus("t.zarr").read_all(), rows, rtol=1e-6)


def test_whole_numbers_of_64_bits_and_more_stay_what_they_are(
    folder: Path, latentscale: Command
) -> None:
    for first, name in ((2**63 - 2, "mixed"), (2**63, "unsigned"), (2**64, "longer")):
        numbers = [first + i for i in range(20)]
        lines = [
            {"id": number, "label": numbers[i % 4], "vector": row}
            for i, (number, row) in enumerate(zip(numbers, ROWS.tolist(), strict=True))
        ]
        Path("u.jsonl").write_text("".join(f"{json.dumps(line)}\n" for line in lines))
        ended = latentscale("ingest", "u.jsonl", f"{name}.zarr", "--labels-column", "label")
        assert ended.code == 0, ended.err
        corpus = open_corpus(f"{name}.zarr")
        assert corpus.texts("ids") == list(map(str, numbers))
        assert corpus.texts("labels") == [str(numbers[i % 4]) for i in range(20)]


def test_floats_above_two_to_the_53_are_no_labels(folder: Path, latentscale: Command) -> None:
    labels = np.full(20, 2.0**60)
    pq.write_table(pa.table({"label": labels, "v": ROWS.tolist()}), "f.parquet")
    ended = latentscale("ingest", "f.parquet", "f.zarr", "--labels-column", "label")
    assert ended.code == 2
    assert "row 0: 1.152921504606847e+18 is too large for a float to tell it from the next" in (
        ended.err
    )


def test_a_row_of_tabs_between_others_is_refused(folder: Path, latentscale: Command) -> None:
    """It may be one of empty cells, and all later rows would move up; at an end it is nothing."""
    rows = ["a\tb\tc\n", "0.1\t0.2\t0.3\n", "0.4\t0.5\t0.6\n"]
    Path("t.tsv").write_text("".join([*rows[:2], "\t\t\n", "\n", rows[2]]))
    ended = latentscale("ingest", "t.tsv", "t.zarr")
    assert ended.code == 2
    assert "t.tsv: row 1, at byte 18, has only empty cells; delete the line, or write" in ended.err
    Path("e.tsv").write_text("".join(["\t\t\n", *rows, "\t\t\n", "\t\n"]))
    assert latentscale("ingest", "e.tsv", "e.zarr").code == 0
    np.testing.assert_allclose(
        open_corpus("e.zarr").read_all(), [[0.1, 0.2, 0.3], [0.4, 0.5, 0.6]], rtol=1e-6
    )


def test_a_comma_in_a_text_of_a_file_with_semicolons(folder: Path, latentscale: Command) -> None:
    Path("s.csv").write_text("text;a;b\nhello, world;0.1;0.2\nhi, you;0.3;0.4\n")
    Path("q.csv").write_text('text;a;b\n"0,5";0.1;0.2\nhi, you;0.3;0.4\n')
    for name in ("s", "q"):
        assert latentscale("ingest", f"{name}.csv", f"{name}.zarr").code == 0
        corpus = open_corpus(f"{name}.zarr")
        np.testing.assert_allclose(corpus.read_all(), [[0.1, 0.2], [0.3, 0.4]], rtol=1e-6)
        assert corpus.texts("texts")[1] == "hi, you"


def test_a_first_row_may_be_long(folder: Path, latentscale: Command) -> None:
    text = "word " * 300_000
    lines = [{"text": text if i == 0 else "short", "v": r} for i, r in enumerate(ROWS.tolist())]
    Path("l.jsonl").write_text("".join(f"{json.dumps(line)}\n" for line in lines))
    write_csv("l.csv", ["text", *"abcd"], [text, *["short"] * 19], *ROWS.T)
    for form in ("jsonl", "csv"):
        ended = latentscale("ingest", f"l.{form}", f"{form}.zarr")
        assert ended.code == 0, ended.err
        np.testing.assert_allclose(open_corpus(f"{form}.zarr").read_all(), ROWS, rtol=1e-6)


def test_a_list_may_begin_with_nan(folder: Path, latentscale: Command) -> None:
    lists = [f'"[{", ".join(map(str, row))}]"' for row in ROWS.tolist()]
    lists[3] = '"[nan, 0.1, 0.2, 0.3]"'
    write_csv("n.csv", ["id", "v"], range(20), lists)
    ended = latentscale("ingest", "n.csv", "n.zarr", "--on-invalid", "drop")
    assert ended.code == 0, ended.err
    np.testing.assert_allclose(
        open_corpus("n.zarr").read_all(), np.delete(ROWS, 3, axis=0), rtol=1e-6
    )
