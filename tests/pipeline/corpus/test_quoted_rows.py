"""CSV as the csv module writes it: quoted fields with line breaks, separators and quotes."""

import csv
import io
import time
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from latentscale_pipeline.corpus import open_corpus
from latentscale_pipeline.corpus.formats import lines
from latentscale_pipeline.corpus.ingest.create import ingest
from latentscale_pipeline.errors import BadInput

TEXTS = ["plain", "two\nlines", "carriage\r\nreturn", 'a "quote"', "comma, and\n\nempty", "\n", '"']
VECTORS = np.random.default_rng(1).normal(size=(5000, 3)).round(4)


def written(texts: list[str], separator: str) -> str:
    file = io.StringIO(newline="")
    writer = csv.writer(file, delimiter=separator)
    writer.writerow(["id", "text", "a", "b", "c"])
    for number, (text, vector) in enumerate(zip(texts, VECTORS, strict=False)):
        writer.writerow([f"r{number}", text, *vector])
    return file.getvalue()


@pytest.mark.parametrize("separator", [",", ";", "\t"])
@pytest.mark.parametrize("first", ["plain", "two\nlines"])
def test_a_quoted_field_may_have_line_breaks(tmp_path: Path, separator: str, first: str) -> None:
    texts = [first, *(TEXTS[place % len(TEXTS)] for place in range(len(VECTORS) - 1))]
    path = tmp_path / ("rows.tsv" if separator == "\t" else "rows.csv")
    path.write_bytes(written(texts, separator).encode())
    columns = {"ids": "id", "texts": "text"}
    ingest([str(path)], str(tmp_path / "c"), columns=columns, shard_bytes=2048 * 3 * 4)
    corpus = open_corpus(str(tmp_path / "c"))
    assert corpus.n == len(VECTORS)
    np.testing.assert_array_equal(corpus.read_rows(0, corpus.n), VECTORS.astype("f4"))
    found = np.concatenate(list(corpus.read_blocks("texts", 0, corpus.n)))
    assert found.tolist() == [" ".join(text.split()) for text in texts]


@settings(max_examples=300, deadline=None)
@given(
    st.lists(st.lists(st.text('a",;\n\r ', max_size=6), min_size=2, max_size=4), max_size=5),
    st.sampled_from(",;\t"),
)
def test_rows_are_those_of_the_csv_module(rows: list[list[str]], separator: str) -> None:
    file = io.StringIO(newline="")
    csv.writer(file, delimiter=separator, quoting=csv.QUOTE_MINIMAL).writerows(rows)
    whole = lines._whole_rows(io.BytesIO(file.getvalue().encode()), separator, "rows.csv")
    split = [next(csv.reader([row.decode()], delimiter=separator), []) for row in whole]
    assert split == rows


def test_a_field_that_does_not_end_is_told(tmp_path: Path) -> None:
    text = written(["plain"] * 5, ",").replace("r3,plain", 'r3,"plain')
    (tmp_path / "rows.csv").write_text(text)
    with pytest.raises(BadInput, match="has a quoted field that doesn't end; close it"):
        ingest([str(tmp_path / "rows.csv")], str(tmp_path / "c"))


@pytest.mark.parametrize("separator", [",", "\t"])
@pytest.mark.parametrize("begin_so", [[5, 20], [5], range(5, 29)])
def test_fields_that_only_begin_with_a_quote_join_no_rows(
    tmp_path: Path, separator: str, begin_so: list[int]
) -> None:
    texts = ['"Hello said he' if row in begin_so else "plain" for row in range(30)]
    table = [[f"r{row}", text, *map(str, VECTORS[row])] for row, text in enumerate(texts)]
    path = tmp_path / "rows.txt"
    path.write_text("\n".join(map(separator.join, [["id", "text", "a", "b", "c"], *table])))
    with pytest.raises(BadInput, match=r"goes on after its closing quote|that doesn't end"):
        ingest([str(path)], str(tmp_path / "c"))


@pytest.mark.parametrize("row", [0, 3])
def test_a_word_between_quotes_at_the_beginning_of_a_field_joins_nothing(
    tmp_path: Path, row: int
) -> None:
    for place, separator in enumerate([",", "\t", ";"]):
        text = written(["plain"] * 5, separator)
        for start in ('"plain" words', '"plain" \t', '"plain"  '):
            if "\t" in start and separator == "\t":
                continue
            path = tmp_path / f"rows{place}.csv"
            path.write_text(text.replace(f"r{row}{separator}plain", f"r{row}{separator}{start}"))
            assert ingest([str(path)], str(tmp_path / "c"), overwrite=True).n == 5


def test_a_quoted_field_may_be_long(tmp_path: Path) -> None:
    texts = ["x" * 200_000, "plain, text"]
    (tmp_path / "rows.csv").write_text(written(texts, ","))
    columns = {"texts": "text", "ids": "id"}
    assert ingest([str(tmp_path / "rows.csv")], str(tmp_path / "c"), columns=columns).n == 2


def test_a_malformed_field_is_told_with_its_row(tmp_path: Path) -> None:
    (tmp_path / "rows.csv").write_bytes(b'text,a,b\nfine,1.5,2.5\na\rb "q",1.5,2.5\n')
    with pytest.raises(BadInput, match=r"row 1, at byte 22: new-line character .*; fix the line"):
        ingest([str(tmp_path / "rows.csv")], str(tmp_path / "c"), columns={"texts": "text"})


def test_a_quote_that_does_not_end_at_the_beginning_is_no_table(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text('"Hello, said he\nand went, 1, 2\n')
    np.save(tmp_path / "v.npy", VECTORS)
    assert ingest([str(tmp_path)], str(tmp_path / "c.zarr")).n == len(VECTORS)
    (tmp_path / "rows.csv").write_text('"hello\n1,2,3\n4,5,6\n')
    with pytest.raises(BadInput, match="its first lines aren't rows of several numbers"):
        ingest([str(tmp_path / "rows.csv")], str(tmp_path / "d.zarr"))


def test_many_lines_of_a_field_take_no_longer_each() -> None:
    """Every line is looked at once: of 40,000 lines of a field as quickly as of few."""
    row = 'r0,"' + '""key"": ""value"",\n' * 40_000 + '",1.0,2.0\n'
    begun = time.process_time()
    [found] = lines._whole_rows(io.BytesIO(row.encode()), ",", "rows.csv")
    assert found.decode() == row
    assert time.process_time() - begun < 2.0
