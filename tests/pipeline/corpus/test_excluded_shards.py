"""A job without the rows of a bad shard: how it is told, what it means, what it gives."""

import json
import shlex
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from latentscale_pipeline.corpus import open_corpus
from tests.conftest import Ended
from tests.support.jobs import damage
from tests.support.results_documents import check_results

Command = Callable[..., Ended]

ROWS, SHARD_ROWS = 2600, 1024


@pytest.fixture
def job(tmp_path: Path, latentscale: Command) -> Path:
    """A job on a corpus of three shards, the second of which is cut short."""
    rows = np.random.default_rng(6).normal(size=(ROWS, 6)).astype("f4")
    rows[5] = rows[2500]
    np.save(tmp_path / "rows.npy", rows)
    np.save(tmp_path / "kept.npy", np.delete(rows, np.s_[SHARD_ROWS : 2 * SHARD_ROWS], 0))
    corpus = tmp_path / "corpus.zarr"
    for source, target in (("rows.npy", corpus), ("kept.npy", tmp_path / "kept.zarr")):
        ended = latentscale("ingest", tmp_path / source, target, "--shard-size", "1KiB")
        assert ended.code == 0, ended.err
    damage(corpus / "vectors/c/1/0", "truncated")
    config = tmp_path / "job.yaml"
    fields = {
        "name": "holes",
        "corpus": str(corpus),
        "output": str(tmp_path / "jobs"),
        "measures": {"heat": {"times": {"count": 4}}, "vendi": {"kernels": ["cosine"]}},
        "cluster": {"kind": "serial"},
    }
    config.write_text(json.dumps(fields))
    return config


def results(ended: Ended) -> dict[str, Any]:
    assert ended.code == 0, ended.err
    found: dict[str, Any] = json.loads(ended.out)
    check_results(found)
    return found


def test_the_message_says_how_and_it_works(job: Path, latentscale: Command, tmp_path: Path) -> None:
    ended = latentscale("run", job)
    assert ended.code == 2
    line = ended.err.splitlines()[-1]
    shard = tmp_path / "corpus.zarr/vectors/c/1/0"
    size = open_corpus(str(tmp_path / "corpus.zarr")).manifest.vectors.shards[1].size
    assert line == (
        f"latentscale: {shard}: it is truncated: {size - 100} of {size} bytes; restore this file, "
        "or ingest the corpus again with --overwrite; or leave its 1024 rows out of the job: "
        "-o 'exclude_shards.corpus=[vectors/c/1/0]'"
    )
    found = results(latentscale("run", job, *shlex.split(line.rpartition("job: ")[2]), "--json"))
    assert found["corpora"]["corpus"]["n"] == ROWS - SHARD_ROWS
    assert found["corpora"]["corpus"]["excluded_shards"] == ["vectors/c/1/0"]
    assert found["corpora"]["corpus"]["excluded_rows"] == SHARD_ROWS
    assert found["corpora"]["corpus"]["duplicates"] == 1
    # The same numbers as from a corpus that never had these rows.
    never = results(latentscale("run", job, "-o", f"corpus={tmp_path / 'kept.zarr'}", "--json"))
    assert never["job"]["config_hash"] != found["job"]["config_hash"]
    assert never["corpora"]["corpus"]["fingerprint"] != found["corpora"]["corpus"]["fingerprint"]
    for key in ("scores", "measures"):
        assert never[key] == found[key]


def test_it_is_another_job_and_its_summary_says_so(job: Path, latentscale: Command) -> None:
    leave_out = ("-o", "exclude_shards.corpus=[vectors/c/1/0]")
    first = latentscale("run", job, *leave_out)
    assert first.code == 0, first.err
    assert "1,024 rows left out" in first.out
    again = latentscale("run", job, *leave_out)
    assert "nothing had to be computed" in again.out
    (folder,) = (job.parent / "jobs").glob("holes-*")
    (folder / "results.json").unlink()
    resumed = latentscale("resume", folder, "--json")
    assert resumed.code == 0, resumed.err
    assert results(resumed)["corpora"]["corpus"]["excluded_rows"] == SHARD_ROWS
    two = ("-o", "exclude_shards.corpus=[vectors/c/1/0, vectors/c/2/0]")
    found = results(latentscale("run", job, *two, "--json"))
    assert found["corpora"]["corpus"]["n"] == SHARD_ROWS
    reasons = {timing["reason"] for timing in found["timings"]}
    assert any(reason.startswith("computed: input (corpus) changed since") for reason in reasons)


def test_a_second_bad_shard_is_added_to_the_first(
    job: Path, latentscale: Command, tmp_path: Path
) -> None:
    damage(tmp_path / "corpus.zarr/vectors/c/0/0", "flipped")
    ended = latentscale("run", job, "-o", "exclude_shards.corpus=[vectors/c/1/0]")
    assert ended.code == 2
    assert ended.err.rstrip().endswith("-o 'exclude_shards.corpus=[vectors/c/1/0, vectors/c/0/0]'")


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("exclude_shards.corpus=[c/1/0]", "there is no shard c/1/0 to exclude"),
        ("exclude_shards.reference=[vectors/c/1/0]", "names shards, but there is no reference"),
        ("exclude_shards.corups=[vectors/c/1/0]", "corups is unknown; did you mean corpus?"),
        (
            "exclude_shards.corpus=[vectors/c/0/0, vectors/c/1/0, vectors/c/2/0]",
            "all 3 shards are excluded; keep at least one",
        ),
    ],
)
def test_what_can_not_be_left_out_is_refused(
    job: Path, latentscale: Command, override: str, message: str
) -> None:
    ended = latentscale("run", job, "-o", override)
    assert ended.code == 2
    assert message in ended.err.splitlines()[-1]
