"""The corpus commands: what they print, and the one line and exit code of every fault."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from latentscale_pipeline.cli import COMMANDS
from latentscale_pipeline.corpus import open_corpus
from tests.conftest import Ended

COMMAND = [sys.executable, "-W", "error", "-c", "from latentscale_pipeline.cli import main; main()"]
Command = Callable[..., Ended]


def vectors(n: int = 1500, d: int = 4) -> np.ndarray:
    return np.random.default_rng(n).standard_normal((n, d)).astype(np.float32)


@pytest.fixture
def source(tmp_path: Path) -> Path:
    np.save(tmp_path / "v.npy", vectors())
    return tmp_path / "v.npy"


def in_a_process(*arguments: object) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*COMMAND, *map(str, arguments)], capture_output=True, text=True, check=False
    )


def test_ingest_info_and_verify_as_a_user_runs_them(source: Path, tmp_path: Path) -> None:
    (tmp_path / "labels.txt").write_text("a\n" * 1500)
    target = tmp_path / "c.zarr"
    ended = in_a_process("ingest", source, target, "--labels", tmp_path / "labels.txt", "--json")
    assert ended.returncode == 0
    assert ended.stderr == ""
    described = json.loads(ended.stdout)
    corpus = open_corpus(str(target))
    assert described["fingerprint"] == corpus.fingerprint
    assert described["uri"] == str(target)
    assert (described["n"], described["d"], described["dtype"]) == (1500, 4, "float32")
    assert (described["shards"], described["shard_rows"]) == (1, 2048)
    assert described["arrays"] == ["labels"]
    assert described["dropped"] == {"count": 0, "rows": []}
    assert described["sources"] == [{"path": str(source), "rows": 1500, "dtype": "float32"}]
    files = [path for path in target.rglob("*") if path.is_file() and path.name != "manifest.json"]
    assert described["bytes"] == sum(path.stat().st_size for path in files)
    ended = in_a_process("info", target, "--json")
    assert (ended.returncode, ended.stderr) == (0, "")
    assert json.loads(ended.stdout) == described
    ended = in_a_process("verify", target)
    assert ended.returncode == 0
    assert ended.stdout.endswith("all intact\n")


def test_a_bad_file_and_a_bad_shard_as_a_user_sees_them(source: Path, tmp_path: Path) -> None:
    bad = tmp_path / "bad.npy"
    bad.write_bytes(source.read_bytes()[:-8])
    ended = in_a_process("ingest", bad, tmp_path / "c.zarr")
    assert ended.returncode == 2
    assert ended.stdout == ""
    assert ended.stderr == (
        f"latentscale: {bad}: truncated: it ends at byte 24120 of 24128, in row 1499 of 1500; copy "
        "or write it again\n"
    )
    assert not (tmp_path / "c.zarr").exists()
    assert in_a_process("ingest", source, tmp_path / "c.zarr").returncode == 0
    (tmp_path / "c.zarr/vectors/c/0/0").unlink()
    ended = in_a_process("verify", tmp_path / "c.zarr")
    assert ended.returncode == 2
    assert ended.stdout == (
        f"{tmp_path}/c.zarr/vectors/c/0/0: it is missing; restore this file, or ingest the corpus "
        "again with --overwrite\n"
    )


def test_help_is_quick_and_light() -> None:
    script = (
        "import sys\nsys.argv = ['latentscale', '--help']\n"
        "from latentscale_pipeline.cli import main\n"
        "try:\n    main()\nfinally:\n"
        "    heavy = {'zarr', 'numpy', 'numba', 'dask', 'pynndescent', 'fsspec', 'rich'}\n"
        "    print(sorted(heavy & set(sys.modules)))\n"
    )
    command = [sys.executable, "-c", script]
    ended = subprocess.run(command, capture_output=True, text=True, check=True)
    assert ended.stdout.splitlines()[-1] == "[]"


@pytest.mark.parametrize("name", ["ingest", "info", "verify"])
def test_help_has_an_example_on_lines_of_its_own(latentscale: Command, name: str) -> None:
    ended = latentscale(name, "--help")
    assert ended.code == 0
    assert f"\n  Example:\n    latentscale {name} " in ended.out
    assert name in COMMANDS


def test_info_as_a_table(latentscale: Command, source: Path, tmp_path: Path) -> None:
    rows = np.vstack([vectors(), np.full((2, 4), np.nan), np.zeros((3, 4))]).astype(np.float32)
    np.save(tmp_path / "x.npy", rows)
    ended = latentscale(
        "ingest", source, tmp_path / "x.npy", tmp_path / "c", "--on-invalid", "drop"
    )
    assert ended.code == 0
    for text in (
        "3,003 x 4 float32",
        "3, the first at 3000",
        "2, the first at 3000 of the sources",
    ):
        assert "".join(text.split()) in "".join(ended.out.split())  # long paths are folded
    assert open_corpus(str(tmp_path / "c")).fingerprint in ended.out
    described = json.loads(latentscale("info", tmp_path / "c", "--json").out)
    assert described["zero_rows"] == {"count": 3, "first": 3000}
    assert described["dropped"] == {"count": 2, "rows": [3000, 3001]}


def test_files_that_are_not_ingested_are_described_by_their_headers(
    latentscale: Command, source: Path, tmp_path: Path
) -> None:
    np.savez(tmp_path / "a.npz", emb=vectors(), label=np.full(1500, "x"), year=np.arange(1500))
    ended = latentscale("info", tmp_path / "a.npz")
    assert ended.code == 0
    text = " ".join(ended.out.split())
    for part in ("vectors 1,500 x 4 float32 from emb, not ingested", "labels from label"):
        assert part in text
    assert "left out year next latentscale run " in text
    described = json.loads(latentscale("info", tmp_path / "a.npz", "--json").out)
    assert (described["n"], described["d"], described["vectors"]) == (1500, 4, "emb")
    assert (described["taken"], described["left_out"]) == ({"labels": "label"}, ["year"])
    (tmp_path / "notes.txt").write_text("notes")
    refused = latentscale("info", tmp_path / "notes.txt")
    assert refused.code == 2
    assert "not a corpus (no manifest.json)" in refused.err


def test_rows_with_the_id_of_an_earlier_row_are_counted(
    latentscale: Command, source: Path, tmp_path: Path
) -> None:
    ids = np.arange(1500)
    ids[[7, 1200, 1499]] = [6, 6, 500]
    (tmp_path / "ids.txt").write_text("".join(f"{number}\n" for number in ids))
    target = tmp_path / "c"
    arguments = ("ingest", source, target, "--ids", tmp_path / "ids.txt")
    assert "3, the first at 7" in latentscale(*arguments).out
    described = json.loads(latentscale("info", target, "--json").out)
    assert described["repeated_ids"] == {"count": 3, "first": 7}
    appended = json.loads(latentscale(*arguments, "--append", "--json").out)
    assert appended["repeated_ids"] == {"count": 1503, "first": 7}


def test_what_a_corpus_has_not_is_left_out_of_rows_that_are_added(
    latentscale: Command, tmp_path: Path
) -> None:
    np.savez(tmp_path / "plain.npz", emb=vectors())
    columns = {"id": np.arange(1500), "label": np.full(1500, "x"), "kind": np.full(1500, "y")}
    np.savez(tmp_path / "a.npz", emb=vectors(), **columns)
    assert latentscale("ingest", tmp_path / "plain.npz", tmp_path / "c").code == 0
    ended = latentscale("ingest", tmp_path / "a.npz", tmp_path / "c", "--append")
    assert ended.err.splitlines()[-3:] == [
        "ingest: left out: id, because the corpus has no ids",
        "ingest: left out: label, because the corpus has no labels",
        "ingest: left out: kind",
    ]
    assert not open_corpus(str(tmp_path / "c")).manifest.arrays


def test_files_left_out_are_named(latentscale: Command, source: Path, tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("notes")
    ended = latentscale("ingest", tmp_path, tmp_path.parent / f"{tmp_path.name}.zarr")
    assert ended.code == 0
    assert f"ingest: {tmp_path}/notes.txt: left out, unknown format\n" in ended.err


def test_options_reach_the_corpus(latentscale: Command, source: Path, tmp_path: Path) -> None:
    target = tmp_path / "c"
    assert latentscale("ingest", source, target, "--shard-size", "16KiB").code == 0
    assert open_corpus(str(target)).shard_rows == 1024
    again = ("ingest", source, target, "--dtype", "float16", "--overwrite", "--shard-size", "1M")
    assert latentscale(*again).code == 0
    corpus = open_corpus(str(target))
    assert (corpus.dtype, corpus.shard_count) == (np.float16, 1)


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        (
            ["info", "{}/none"],
            "latentscale: {}/none: no such corpus; check the path, or ingest one",
        ),
        (["verify", "{}/v.npy"], "latentscale: {}/v.npy: not a corpus (no manifest.json); create"),
        (["ingest", "{}/no.npy", "{}/c"], "latentscale: {}/no.npy: no such file or folder; check"),
        (["ingest", "{}/*.x", "{}/c"], "latentscale: {}/*.x: no file matches; check the pattern"),
        (["ingest", "{}/v.npy", "{}"], "latentscale: {}: the corpus would overwrite its source"),
        (
            ["ingest", "{}/v.npy", "{}/c", "--labels", "{}/v.npy"],
            "latentscale: {}/v.npy: labels must be text or integers, one per row, but this is an",
        ),
    ],
)
def test_bad_input_is_one_line_and_exit_code_2(
    latentscale: Command, source: Path, tmp_path: Path, arguments: list[str], line: str
) -> None:
    ended = latentscale(*(argument.format(tmp_path) for argument in arguments))
    assert ended.code == 2
    assert ended.out == ""
    assert ended.err.startswith(line.format(tmp_path))
    assert ended.err.count("\n") == 1


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            ["ingest", "only.npy"],
            "missing argument 'CORPUS', where the corpus goes: latentscale ingest only.npy CORPUS",
        ),
        (["ingest", "a.npy", "c", "--shard-size", "big"], "'big' is not a size; write it like"),
        (["ingest", "a.npy", "c", "--on-invalid", "keep"], "invalid value for '--on-invalid'"),
        (["ingest", "a.npy", "c", "--dtype", "float64"], "invalid value for '--dtype'"),
        (["info"], "missing argument 'CORPUS'"),
    ],
)
def test_bad_usage_is_exit_code_2(latentscale: Command, arguments: list[str], message: str) -> None:
    ended = latentscale(*arguments)
    assert ended.code == 2
    assert message in ended.err


def test_progress_is_a_bar_on_a_terminal(
    source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, latentscale: Command
) -> None:
    monkeypatch.setattr("sys.stderr.isatty", lambda: True, raising=False)
    ended = latentscale("ingest", source, tmp_path / "c")
    assert ended.code == 0
    assert "ingest: " not in ended.err
