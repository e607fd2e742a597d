"""Tables whose dimensions aren't plain: none is left out, and none is taken by mistake."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet
import pytest
import zarr
from zarr.codecs import BytesCodec, ShardingCodec

from latentscale_pipeline.corpus.ingest.create import ingest
from latentscale_pipeline.corpus.ingest.sources import describe_sources, open_sources
from latentscale_pipeline.errors import BadInput

VECTORS = np.random.default_rng(3).normal(size=(120, 4)).round(4)
NAMES = [f"e{place}" for place in range(4)]
Columns = dict[str, list[Any]]


def columns(**others: list[Any]) -> Columns:
    """Return the columns of the vectors, with others in their places or behind them."""
    return dict(zip(NAMES, VECTORS.T.tolist(), strict=True)) | others


def write_csv(path: Path, table: Columns, sign: str = ",", point: str = ".") -> None:
    def cell(value: Any) -> str:
        text = "" if value is None else str(value).replace(".", point)
        return f'"{text}"' if sign in text else text

    rows = [[*table], *zip(*table.values(), strict=True)]
    path.write_text("".join(sign.join(map(cell, row)) + "\n" for row in rows))


def write_json_lines(path: Path, table: Columns) -> None:
    rows = zip(*table.values(), strict=True)
    path.write_text("".join(json.dumps(dict(zip(table, row, strict=True))) + "\n" for row in rows))


def write_parquet(path: Path, table: Columns) -> None:
    pyarrow.parquet.write_table(pa.table(table), path)


WRITERS: dict[str, Callable[[Path, Columns], None]] = {
    "csv": write_csv,
    "jsonl": write_json_lines,
    "parquet": write_parquet,
}


def read(path: Path, **options: Any) -> Any:
    return ingest([str(path)], str(path.with_suffix(".zarr")), **options)


@pytest.mark.parametrize("kind", WRITERS)
@pytest.mark.parametrize(
    "gap", [[None] * 120, ["a"] * 120, [None] * 110 + ["a"] * 10], ids=["none", "text", "both"]
)
def test_a_column_within_a_series_is_not_left_out(
    kind: str, gap: list[Any], tmp_path: Path
) -> None:
    WRITERS[kind](tmp_path / f"t.{kind}", columns(e2=gap))
    with pytest.raises(BadInput, match="column e2 belongs to the vectors by its name, but has no"):
        read(tmp_path / f"t.{kind}")
    if gap[0]:
        assert read(tmp_path / f"t.{kind}", columns={"labels": "e2"}).d == 3


@pytest.mark.parametrize("end", ["", "NA"])
def test_a_last_column_without_values_is_not_left_out(end: str, tmp_path: Path) -> None:
    write_csv(tmp_path / "t.csv", columns(e3=[end] * 60 + VECTORS[60:, 3].tolist()))
    with pytest.raises(BadInput, match="column e3 belongs to the vectors"):
        read(tmp_path / "t.csv")


def test_texts_behind_a_series_are_none_of_its_dimensions(tmp_path: Path) -> None:
    write_csv(tmp_path / "t.csv", columns(e3=["a"] * 120))
    np.testing.assert_allclose(read(tmp_path / "t.csv").read_all(), VECTORS[:, :3], rtol=1e-6)


def test_a_column_that_is_mostly_empty_is_a_dimension_with_gaps(tmp_path: Path) -> None:
    known = [value if place % 5 == 0 else None for place, value in enumerate(VECTORS[:, 2])]
    write_csv(tmp_path / "t.csv", columns(e2=known))
    with pytest.raises(BadInput, match="row 1 holds NaN"):
        read(tmp_path / "t.csv")
    found = read(tmp_path / "t.csv", on_invalid="drop").read_all()
    np.testing.assert_allclose(found, VECTORS[::5], rtol=1e-6)


def test_columns_of_equal_numbers_are_all_dimensions(tmp_path: Path) -> None:
    write_csv(tmp_path / "t.csv", columns(e01=VECTORS[:, 0].tolist()))
    assert read(tmp_path / "t.csv").d == 5


@pytest.mark.parametrize("sign", [";", "\t", ","])
def test_decimal_commas_beside_whole_numbers_are_refused(sign: str, tmp_path: Path) -> None:
    table = {"nr": [*range(120)], "kind": [place % 3 for place in range(120)], "t": ["x"] * 120}
    write_csv(tmp_path / "t.csv", table | columns(), sign, ",")
    with pytest.raises(BadInput, match="its numbers have decimal commas"):
        read(tmp_path / "t.csv")
    write_csv(tmp_path / "u.csv", {"t": ["1,2"] * 120, "u": ["3,4"] * 120} | columns(), sign)
    assert read(tmp_path / "u.csv").d == 4


@pytest.mark.parametrize(
    ("name", "content", "d"),
    [
        ("t.csv", "id,text,e0,e1\n" + 'a,"sold 1,500 of 2,300 units",0.1,-0.2\n' * 9, 2),
        ("t.tsv", "id\ttext\tv\n" + "a\tsold 1,500 of 2,300 units\t[0.1,0.2,0.3]\n" * 9, 3),
        ("t.csv", "id,pop,gdp,e0,e1\n" + '0,"1,500","2,300",1,2\n' * 9, 2),
        ("t.csv", "id;v;where;x\n" + "0;[0.1, 0.2];1,2;3,4\n" * 9, 2),
    ],
)
def test_commas_in_other_cells_are_no_decimal_commas(
    name: str, content: str, d: int, tmp_path: Path
) -> None:
    (tmp_path / name).write_text(content)
    sources = open_sources([str(tmp_path / name)], vectors="e*" if ",e0,e1" in content else None)
    assert sources.d == d


@pytest.mark.parametrize(
    "content",
    [
        "note\nkept 1,500 of 2,300\n",
        "note\n1,500 rows, 2,300 kept\n",
        "loss, loss\n0.5, 0.3\n0.4, 0.2\n",
        "x y x\n1 2 3\n",
    ],
)
def test_notes_beside_vectors_are_left_out(content: str, tmp_path: Path) -> None:
    np.save(tmp_path / "rows.npy", VECTORS)
    (tmp_path / "notes.txt").write_text(content)
    assert open_sources([str(tmp_path)]).skipped == (str(tmp_path / "notes.txt"),)


@pytest.mark.parametrize("name", [None, "time"])
def test_the_index_of_a_data_frame_is_no_dimension(name: str | None, tmp_path: Path) -> None:
    pandas = pytest.importorskip("pandas")
    index = pandas.Index(np.arange(120) * 1.5, name=name)
    frame = pandas.DataFrame(VECTORS, columns=[*"abcd"], index=index)
    frame.to_parquet(tmp_path / "t.parquet")
    np.testing.assert_allclose(read(tmp_path / "t.parquet").read_all(), VECTORS, rtol=1e-6)
    frame.index = pandas.Index([f"row {place}" for place in range(120)], name="id")
    frame.to_parquet(tmp_path / "u.parquet")
    assert read(tmp_path / "u.parquet").texts("ids")[:2] == ["row 0", "row 1"]


@pytest.mark.parametrize("cell", ["1_5", "[0.5, 1_0.5]"])
def test_underscores_are_no_parts_of_numbers(cell: str, tmp_path: Path) -> None:
    usual = "[0.5, 0.25]" if "[" in cell else "0.5"
    rows = [f'a_{place},0.25,"{usual}"' for place in range(60)] + [f'a_60,0.25,"{cell}"']
    (tmp_path / "t.csv").write_text("\n".join(["id,e0,e1", *rows]))
    vectors = "e1" if "[" in cell else None
    with pytest.raises(BadInput, match=r"row 60, at byte \d+: '1_"):
        ingest(open_sources([str(tmp_path / "t.csv")], vectors=vectors), str(tmp_path / "c"))


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"id,e0,e1,e1\na,0.1,0.2,0.3\n", "two columns are called 'e1'; rename one"),
        (b"\n \n", "there are no rows; leave the file out"),
        (b"id,e0,e1\n", "there are no rows, only the line 'id,e0,e1'; leave the file out"),
        ("id,e0\na,0.5\n".encode("utf-16"), "isn't UTF-8; convert the file"),
        (b"id,e0,e1\na\0,0.5,0.2\n", "byte 10 is 0, which no text has; check the file"),
    ],
)
def test_what_is_no_table_is_told(content: bytes, message: str, tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_bytes(content)
    with pytest.raises(BadInput, match=rf"t\.csv: {message}"):
        read(tmp_path / "t.csv")


@pytest.mark.parametrize("kind", [*WRITERS, "lists", "no bytes"])
def test_parts_without_rows_are_left_out(kind: str, tmp_path: Path) -> None:
    suffix = {"lists": "parquet", "no bytes": "csv"}.get(kind, kind)
    table: Columns = {"v": VECTORS.tolist()} if kind == "lists" else columns()
    WRITERS[suffix](tmp_path / f"part-0.{suffix}", table)
    empty = tmp_path / f"part-1.{suffix}"
    if kind in {"jsonl", "no bytes"}:
        empty.touch()
    elif suffix == "parquet":
        whole = pyarrow.parquet.read_table(tmp_path / "part-0.parquet")
        pyarrow.parquet.write_table(whole.slice(0, 0), empty)
    else:
        write_csv(empty, {key: [] for key in NAMES})
    sources = open_sources([str(tmp_path)])
    assert next(iter(describe_sources(sources))) == f"{empty}: left out, no rows"
    found = ingest(sources, str(tmp_path / "c")).read_all()
    np.testing.assert_allclose(found, VECTORS, rtol=1e-6)
    with pytest.raises(BadInput, match=r"there are no rows|the file is empty"):
        open_sources([str(empty)])
    with pytest.raises(BadInput, match=r"there are no rows|the file is empty"):
        open_sources([str(empty), str(empty)])


@pytest.mark.parametrize(
    "broken", ["404: Not Found", "<b>403 Forbidden</b>", "a61", "a60,0.5,NA,NA,NA", "id,e0,e1,e2"]
)
def test_a_part_that_is_cut_is_not_without_rows(broken: str, tmp_path: Path) -> None:
    write_csv(tmp_path / "a.csv", {"id": [f"a{place}" for place in range(120)]} | columns())
    (tmp_path / "b.csv").write_text(f"{broken}\n")
    with pytest.raises(BadInput, match=r"b\.csv: there are no rows, only the line"):
        open_sources([str(tmp_path)])


@pytest.mark.parametrize("first", [True, False])
@pytest.mark.parametrize("header", [",0,1,2,3", "0,1,2,3", "id,0,1,2,3"])
def test_a_header_of_numbers_alone_is_no_row(header: str, first: bool, tmp_path: Path) -> None:
    names = header.split(",")
    cells: list[list[Any]] = [[*range(120)]][: len(names) - 4] + VECTORS.T.tolist()
    write_csv(tmp_path / "b.csv", dict(zip(names, cells, strict=True)))
    empty = tmp_path / ("a.csv" if first else "c.csv")
    empty.write_text(f"{header}\n")
    sources = open_sources([str(tmp_path)])
    assert sources.empty == (str(empty),)
    assert sources.rows == 120


@pytest.mark.parametrize("name", ["2", "3"])
def test_sparse_columns_of_numbered_frames_are_dimensions(name: str, tmp_path: Path) -> None:
    for missing in ("", "NA"):
        cells = [VECTORS[i, int(name)] if i % 5 == 0 else missing for i in range(120)]
        table: Columns = {"": [*range(120)]} | dict(zip("0123", VECTORS.T.tolist(), strict=True))
        write_csv(tmp_path / "t.csv", table | {name: cells})
        with pytest.raises(BadInput, match=r"row 1 holds NaN|'NA' isn't a number"):
            read(tmp_path / "t.csv")


@pytest.mark.parametrize("place", ["start", "end"])
@pytest.mark.parametrize("codecs", [None, [BytesCodec()], [BytesCodec(endian="big")]])
@pytest.mark.parametrize("fill", [0.0, 1.5])
def test_chunks_within_shards_that_were_never_written_are_refused(
    place: Any, codecs: Any, fill: float, tmp_path: Path
) -> None:
    rows = VECTORS[:100].astype("f4")
    index = {"index_location": place} | ({} if codecs is None else {"index_codecs": codecs})
    for name in ("whole", "holes"):
        array = zarr.create_array(
            store=str(tmp_path / name), shape=rows.shape, dtype="f4", chunks=(40, 4),
            serializer=ShardingCodec(chunk_shape=(10, 4), **index), compressors=None,
            fill_value=fill,
        )  # fmt: skip
        array[:20], array[30:] = rows[:20], rows[30:]
        if name == "whole":
            array[20:30] = rows[20:30]
    np.testing.assert_array_equal(read(tmp_path / "whole").read_all(), rows)
    read_as = "zeros" if fill == 0 else "1.5"
    with pytest.raises(BadInput, match=f"lacks 1 of its chunks, which would be read as {read_as};"):
        read(tmp_path / "holes")
