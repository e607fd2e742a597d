"""Data sets of a hub as sources."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.conftest import Ended
from tests.support.hub import serve_dataset
from tests.support.jobs import results_of

Command = Callable[..., Ended]

NAME = "someone/vectors"
SOURCE = f"hf://datasets/{NAME}/data/*.parquet"


@pytest.fixture
def dataset(tmp_path: Path) -> Path:
    """Return the folder of a data set of two Parquet files, 300 rows in all."""
    rows = np.random.default_rng(5).normal(size=(300, 6)).astype("f4")
    (tmp_path / "hub/data").mkdir(parents=True)
    for number, some in enumerate(np.split(rows, [170])):
        flat = pa.FixedSizeListArray.from_arrays(pa.array(some.ravel()), 6)
        table = pa.table({"id": [f"{number}-{i}" for i in range(len(some))], "embedding": flat})
        pq.write_table(table, tmp_path / f"hub/data/train-{number:05d}-of-00002.parquet")
    np.save(tmp_path / "rows.npy", rows)
    return tmp_path / "hub"


def run(latentscale: Command, source: str, output: Path, **hub: str) -> Ended:
    settings = {"cluster.kind": "serial", "measures": "{vendi: {kernels: [cosine]}}"}
    settings |= {f"storage_options.hf.{key}": value for key, value in hub.items()}
    options = [word for key, value in settings.items() for word in ("-o", f"{key}={value}")]
    return latentscale("run", source, "--output", output, "--quiet", *options)


def test_a_data_set_has_the_numbers_of_its_rows(
    dataset: Path, latentscale: Command, tmp_path: Path
) -> None:
    with serve_dataset(dataset, NAME) as address:
        ended = run(latentscale, SOURCE, tmp_path / "hubs", endpoint=address)
    assert ended.code == 0, ended.err
    assert run(latentscale, str(tmp_path / "rows.npy"), tmp_path / "own").code == 0
    hubs, own = results_of(tmp_path / "hubs"), results_of(tmp_path / "own")
    assert hubs["scores"] == own["scores"]
    prints = [found["corpora"]["corpus"]["fingerprint"] for found in (hubs, own)]
    assert prints[0] == prints[1]


def test_what_a_hub_refuses_is_said_in_one_line(
    dataset: Path, latentscale: Command, tmp_path: Path
) -> None:
    def refused(source: str, **hub: str) -> tuple[int, str]:
        ended = run(latentscale, source, tmp_path / "jobs", **hub)
        assert ended.err.count("\n") == 1
        return ended.code, ended.err

    with serve_dataset(dataset, NAME, token="hf_secret") as address:
        code, said = refused(SOURCE, endpoint=address, token="hf_other")
        assert code == 2
        assert "no such file or folder" in said
        assert "hf_other" not in said
        given = {"endpoint": address, "token": "hf_secret"}
        assert run(latentscale, SOURCE, tmp_path / "jobs", **given).code == 0
        code, said = refused(SOURCE.replace("*", "none"), **given)
        assert (code, "none.parquet: no such file or folder" in said) == (2, True)
    code, said = refused(SOURCE, endpoint="http://127.0.0.1:1")
    assert (code, "[Errno 111] Connection refused; run the same command" in said) == (3, True)
