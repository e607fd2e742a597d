"""Files that somebody could mean otherwise: read as meant, or refused with the way out."""

from __future__ import annotations

import gzip
import json
import pickle
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet
import pytest

from latentscale_pipeline.corpus.ingest.create import ingest
from latentscale_pipeline.corpus.ingest.sources import open_sources
from latentscale_pipeline.errors import BadInput
from tests.conftest import Ended

Command = Callable[..., Ended]

VECTORS = np.random.default_rng(5).normal(size=(6, 4)).round(4)
LISTS = [row.tolist() for row in VECTORS]


def lines(rows: Any) -> str:
    return "\n".join(rows) + "\n"


def json_lines(rows: Any) -> str:
    return lines(json.dumps(row) for row in rows)


def joined(row: Any, sign: str = ",") -> str:
    return sign.join(map(str, row))


def without(index: int) -> list[Any]:
    return [row if i != index else None for i, row in enumerate(LISTS)]


READ: dict[str, str] = {
    # JSON lines
    "ids and labels.jsonl": json_lines(
        {"id": i, "embedding": v, "label": "x"} for i, v in enumerate(LISTS)
    ),
    "no suffix": json_lines({"id": str(i), "v": v} for i, v in enumerate(LISTS)),
    "lines.json": json_lines({"v": v} for v in LISTS),
    "arrays.jsonl": json_lines(LISTS),
    "one key a dimension.jsonl": json_lines(
        {"id": i} | {f"e{k}": x for k, x in enumerate(v)} for i, v in enumerate(LISTS)
    ),
    "inner.ndjson": json_lines({"meta": {"lang": "en"}, "out": {"vec": v}} for v in LISTS),
    "byte order mark.jsonl": "\ufeff" + json_lines({"v": v} for v in LISTS),
    "line separator in a text.jsonl": lines(
        json.dumps({"text": "a\u2028b", "v": v}, ensure_ascii=False) for v in LISTS
    ),
    "tokens beside it.jsonl": json_lines({"tokens": ["a", "b"], "v": v} for v in LISTS),
    "windows.jsonl": json_lines({"v": v} for v in LISTS).replace("\n", "\r\n"),
    # tables of text
    "list column.csv": lines(
        ["id,embedding", *(f'{i},"{json.dumps(v)}"' for i, v in enumerate(LISTS))]
    ),
    "text and list.csv": lines(
        ["id,text,embedding", *(f'{i},"a, b","{json.dumps(v)}"' for i, v in enumerate(LISTS))]
    ),
    "list of numpy.csv": lines(
        ["id,embedding", *(f"{i},[{joined(v, ' ')}]" for i, v in enumerate(LISTS))]
    ),
    "list without names.tsv": lines(f"{i}\t{json.dumps(v)}" for i, v in enumerate(LISTS)),
    "ids with a name.csv": lines(
        ["id,a,b,c,d", *(f"{100 + i},{joined(v)}" for i, v in enumerate(LISTS))]
    ),
    "pandas' row numbers.csv": lines(
        [",0,1,2,3", *(f"{i},{joined(v)}" for i, v in enumerate(LISTS))]
    ),
    "trailing commas.csv": lines(f"{joined(v)}," for v in LISTS),
    "quoted numbers.csv": lines(",".join(f'"{x}"' for x in v) for v in LISTS),
    "semicolons.csv": lines(joined(v, ";") for v in LISTS),
    "glove.txt": lines(f"word{i} {joined(v, ' ')}" for i, v in enumerate(LISTS)),
    "bracketed words.txt": lines(f"[w{i}] {joined(v, ' ')}" for i, v in enumerate(LISTS)),
}


@pytest.mark.parametrize("name", READ)
def test_these_files_are_read_as_meant(tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_text(READ[name], newline="")
    [source] = open_sources([str(tmp_path / name)]).items
    np.testing.assert_array_equal(np.concatenate(list(source.blocks())), VECTORS)
    np.testing.assert_array_equal(np.concatenate(list(source.blocks(2, 5))), VECTORS[2:5])


REFUSED: dict[str, tuple[str | bytes, str]] = {
    "rows.json": (json.dumps(LISTS), r"not one row a line; .* jq -c '\.\[\]'"),
    "objects.json": (json.dumps([{"v": v} for v in LISTS]), "not one row a line"),
    "indented.json": (json.dumps([{"v": v} for v in LISTS], indent=1), "not one row a line"),
    "rows on one line.jsonl": (json.dumps(LISTS), "not one row a line"),
    "columns.json": (json.dumps({"ids": [1], "embeddings": LISTS}), "not one row a line"),
    "two lists.jsonl": (
        json_lines({"a": v, "b": v} for v in LISTS),
        r"several two-dimensional .*a float64 \(6, 4\), b .* --vectors",
    ),
    "ragged.jsonl": (
        json_lines({"v": v[: 4 - (i == 4)]} for i, v in enumerate(LISTS)),
        r"row 4, at byte \d+: v: 3 dimensions, but the first row has 4; give",
    ),
    "cut.jsonl": (
        json_lines({"v": v} for v in LISTS)[:-9],
        r"row 5, at byte \d+: not valid JSON \(.*\); fix the line",
    ),
    "a word.jsonl": (
        json_lines({"v": v if i != 3 else "none"} for i, v in enumerate(LISTS)),
        r'row 3, at byte \d+: v: "none" isn\'t a list of numbers; fix it',
    ),
    "huge.jsonl": (
        json_lines({"v": [*v[:3], 10**400 if i == 2 else 1]} for i, v in enumerate(LISTS)),
        "v has a number too large for float64",
    ),
    "ids first.csv": (
        lines(f"{100 + i},{joined(v)}" for i, v in enumerate(LISTS)),
        r"column 0 has whole numbers, .* --ids-column 0 or --labels-column 0, .* --vectors '\*'",
    ),
    "classes last.csv": (
        lines(f"{joined(v)},{i % 2}" for i, v in enumerate(LISTS)),
        "column 4 has whole numbers",
    ),
    "decimal commas.csv": (
        lines(joined(v, ";").replace(".", ",") for v in LISTS),
        r"decimal commas \(.*\); write them with points",
    ),
    "decimal commas.txt": (
        lines(joined(v, " ").replace(".", ",") for v in LISTS),
        "decimal commas",
    ),
    "ragged lists.csv": (
        lines(["id,v", *(f'{i},"{json.dumps(v[: 4 - (i == 4)])}"' for i, v in enumerate(LISTS))]),
        "row 4, at byte .* has a list of 3 numbers instead of 4; give all",
    ),
    "shortened lists.csv": (
        lines(["id,v", *(f"{i},[{v[0]} {v[1]} ... {v[3]}]" for i, v in enumerate(LISTS))]),
        r"row 0, at byte 5: '\.\.\.' isn't a number; fix it",
    ),
    "lines.jsonl.gz": (gzip.compress(b'{"v": [1, 2]}\n'), "compressed by gzip; decompress it with"),
    "vectors.pkl": (pickle.dumps(VECTORS), "looks like a Python pickle, which is never read; save"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_these_files_are_refused_with_the_way_out(tmp_path: Path, name: str) -> None:
    content, message = REFUSED[name]
    path = tmp_path / name
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    with pytest.raises(BadInput, match=message) as raised:
        ingest([str(path)], str(tmp_path / "c"))
    assert str(raised.value).startswith(str(path))
    assert "\n" not in str(raised.value)


def test_a_column_of_whole_numbers_is_taken_once_it_is_explained(tmp_path: Path) -> None:
    path = tmp_path / "v.csv"
    path.write_text(lines(f"{100 + i},{joined(v)}" for i, v in enumerate(LISTS)))
    named = ingest([str(path)], str(tmp_path / "a"), columns={"ids": "0"})
    np.testing.assert_array_equal(named.read_all(), VECTORS.astype(np.float32))
    assert named.texts("ids") == [str(100 + i) for i in range(6)]
    assert open_sources([str(path)], vectors="*").d == 5
    path.write_text(lines(f"0,{joined(v)}" for v in LISTS))  # a dimension that never varies
    assert open_sources([str(path)]).d == 5


def nulls_in(name: str, tmp_path: Path) -> Path:
    """Write vectors of which row 2 is missing, or has a gap."""
    path = tmp_path / name
    gap = [[*v[:1], None, *v[2:]] if i == 2 else v for i, v in enumerate(LISTS)]
    if name == "null.jsonl":
        path.write_text(json_lines({"id": i, "v": v} for i, v in enumerate(without(2))))
    elif name == "absent.jsonl":
        rows = [{"id": i, "v": v} for i, v in enumerate(without(2))]
        path.write_text(json_lines({k: x for k, x in row.items() if x is not None} for row in rows))
    elif name == "gap.jsonl":
        path.write_text(json_lines({"id": i, "v": v} for i, v in enumerate(gap)))
    elif name == "gap.csv":
        cells = [["" if x is None else str(x) for x in v] for v in gap]
        path.write_text(lines(["a,b,c,d", *(",".join(row) for row in cells)]))
    else:
        kinds = {"null": pa.list_(pa.float32()), "fixed": pa.list_(pa.float32(), 4)}
        kinds["gap"] = kinds["null"]
        values = gap if name == "gap.parquet" else without(2)
        column = {"v": pa.array(values, kinds[name.removesuffix(".parquet")])}
        if name == "columns.parquet":
            column = {f"e{k}": pa.array([v[k] for v in gap], pa.float32()) for k in range(4)}
        try:
            pa.parquet.write_table(pa.table(column), path)
        except pa.ArrowNotImplementedError as unable:  # before pyarrow 22
            pytest.skip(str(unable))
    return path


NULLS = ["null.jsonl", "absent.jsonl", "gap.jsonl", "gap.csv"]
NULLS += ["null.parquet", "fixed.parquet", "gap.parquet"]


@pytest.mark.parametrize("name", NULLS)
def test_a_missing_vector_is_named_and_can_be_dropped(tmp_path: Path, name: str) -> None:
    path = nulls_in(name, tmp_path)
    with pytest.raises(BadInput, match=r"row 2 (has no vector, or only NaN|holds NaN); .* drop"):
        ingest([str(path)], str(tmp_path / "a"))
    corpus = ingest([str(path)], str(tmp_path / "b"), on_invalid="drop")
    kept = np.delete(VECTORS, 2, axis=0).astype(np.float32)
    np.testing.assert_array_equal(corpus.read_all(), kept)
    assert corpus.manifest.dropped.rows == (2,)


def test_a_missing_first_vector_hides_no_dimension(tmp_path: Path) -> None:
    pa.parquet.write_table(
        pa.table({"v": pa.array(without(0), pa.list_(pa.float32()))}), tmp_path / "v.parquet"
    )
    corpus = ingest([str(tmp_path / "v.parquet")], str(tmp_path / "c"), on_invalid="drop")
    np.testing.assert_array_equal(corpus.read_all(), VECTORS[1:].astype(np.float32))


def test_empty_tables_and_foreign_archives_say_what_they_are(tmp_path: Path) -> None:
    pa.parquet.write_table(
        pa.table({"id": pa.array([], pa.string()), "v": pa.array([], pa.list_(pa.float32()))}),
        tmp_path / "v.parquet",
    )
    with pytest.raises(BadInput, match=r"v\.parquet: there are no rows; leave the file out"):
        open_sources([str(tmp_path / "v.parquet")])
    with zipfile.ZipFile(tmp_path / "model.pt", "w") as archive:
        archive.writestr("archive/data/0", VECTORS.tobytes())
    with pytest.raises(BadInput, match=r"without \.npy arrays \(PyTorch's .*; save the vectors"):
        open_sources([str(tmp_path / "model.pt")])


def test_json_beside_vectors_in_a_folder_is_left_out(tmp_path: Path) -> None:
    np.save(tmp_path / "v.npy", VECTORS)
    (tmp_path / "config.json").write_text('{"model": "a", "d": 4}')
    (tmp_path / "rows.json").write_text(json.dumps(LISTS))
    sources = open_sources([str(tmp_path)])
    assert sources.rows == 6
    assert [Path(path).name for path in sources.skipped] == ["config.json", "rows.json"]


def test_labels_may_be_json_lines_or_look_like_json(latentscale: Command, tmp_path: Path) -> None:
    from latentscale_pipeline.corpus import open_corpus

    np.save(tmp_path / "v.npy", VECTORS)
    (tmp_path / "l.jsonl").write_text(json_lines({"n": i, "lang": f"l{i}"} for i in range(6)))
    options = ["--labels", tmp_path / "l.jsonl", "--labels-column", "lang"]
    assert latentscale("ingest", tmp_path / "v.npy", tmp_path / "a", *options).code == 0
    assert open_corpus(str(tmp_path / "a")).texts("labels") == [f"l{i}" for i in range(6)]
    (tmp_path / "l.txt").write_text(lines(f'{{"x": {i}}}' for i in range(6)))
    ended = latentscale(
        "ingest", tmp_path / "v.npy", tmp_path / "b", "--labels", tmp_path / "l.txt"
    )
    assert ended.code == 0, ended.err
    assert open_corpus(str(tmp_path / "b")).texts("labels")[3] == '{"x": 3}'
