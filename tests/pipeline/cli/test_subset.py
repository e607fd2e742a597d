"""``latentscale subset`` as its help shows it, and conditions on columns of booleans."""

import json
import re
import shlex
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.conftest import Ended

Command = Callable[..., Ended]
ROWS = 12_000


@pytest.fixture
def folder(tmp_path: Path, latentscale: Command, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    np.save("rows.npy", np.random.default_rng(1).normal(size=(ROWS, 2)).astype("f4"))
    labels = ["en", "en-GB", "de", "fr"] * (ROWS // 4)
    Path("labels.txt").write_text("".join(f"{label}\n" for label in labels))
    number = np.arange(ROWS)
    pq.write_table(pa.table({"year": 2015 + number % 10}), "meta.parquet")
    np.savez("meta.npz", checked=number % 2 == 0, draft=number % 3 == 0, x=number)
    ended = latentscale("ingest", "rows.npy", "corpus.zarr", "--labels", "labels.txt")
    assert ended.code == 0
    return tmp_path


def test_the_examples_of_the_help_work(latentscale: Command, folder: Path) -> None:
    shown = latentscale("subset", "--help").out.splitlines()
    examples = [line.strip() for line in shown if line.startswith("    latentscale ")]
    rows = {}
    for example in examples:
        _, *arguments = shlex.split(example)
        ended = latentscale(*arguments, "--json")
        assert ended.code == 0, ended.err
        rows[arguments[2]] = json.loads(ended.out)["n"]
    [example] = re.findall(r'such as\s+"([^"]*)"', " ".join(" ".join(shown).split()))
    ended = latentscale("subset", "corpus.zarr", "some.zarr", "--where", example, "--json")
    assert json.loads(ended.out)["n"] == 3000
    assert rows == {
        "english.zarr": 6000,
        "recent.zarr": 6000,
        "good.zarr": 4000,
        "small.zarr": 10_000,
    }


@pytest.mark.parametrize(
    ("condition", "rows"),
    [
        ("checked", 6000),
        ("not checked", 6000),
        ("checked and x > 3", 5998),
        ("draft == true", 4000),
        ("draft == True", 4000),
    ],
)
def test_booleans_of_a_table_are_conditions(
    latentscale: Command, folder: Path, condition: str, rows: int
) -> None:
    options = ("--table", "meta.npz", "--where", condition)
    ended = latentscale("subset", "corpus.zarr", "some.zarr", *options, "--json")
    assert ended.code == 0, ended.err
    assert json.loads(ended.out)["n"] == rows


def test_labels_of_true_and_false_are_conditions(latentscale: Command, folder: Path) -> None:
    Path("flags.txt").write_text("true\nfalse\nfalse\n" * (ROWS // 3))
    assert latentscale("ingest", "rows.npy", "flags.zarr", "--labels", "flags.txt").code == 0
    ended = latentscale("subset", "flags.zarr", "some.zarr", "--where", "not labels", "--json")
    assert json.loads(ended.out)["n"] == 8000


def test_a_label_is_no_condition(latentscale: Command, folder: Path) -> None:
    assert latentscale("subset", "corpus.zarr", "some.zarr", "--where", "labels") == Ended(
        2, "", "latentscale: 'labels': not a condition; write one such as labels == 'en'\n"
    )
