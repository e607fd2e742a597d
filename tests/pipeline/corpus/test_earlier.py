"""A corpus as it was before rows were appended."""

import pickle
from pathlib import Path

import numpy as np
import pytest

from latentscale_pipeline.corpus import Corpus, open_corpus
from latentscale_pipeline.corpus.earlier import find_earlier
from latentscale_pipeline.corpus.ingest.append import append
from latentscale_pipeline.corpus.ingest.create import ingest

ROWS = np.random.default_rng(0).normal(size=(3000, 4)).astype("f4")
ENDS = (1500, 1700, 3000)


@pytest.fixture
def states(tmp_path: Path) -> list[Corpus]:
    """A corpus after ingestion and after two appends, as it was opened then."""
    found = []
    for number, (start, stop) in enumerate(zip((0, *ENDS), ENDS, strict=False)):
        np.save(tmp_path / f"{number}.npy", ROWS[start:stop])
        ids = tmp_path / f"{number}.txt"
        ids.write_text("".join(f"r{row}\n" for row in range(start, stop)))
        source, url = [str(tmp_path / f"{number}.npy")], str(tmp_path / "c")
        if number:
            append(source, url, ids=str(ids), shard_bytes=1)
        else:
            ingest(source, url, ids=str(ids), shard_bytes=1)
        found.append(open_corpus(url))
    return found


def test_every_state_is_found(states: list[Corpus]) -> None:
    for before, n in zip(states, ENDS, strict=True):
        found = find_earlier(states[-1], before.n, before.fingerprint)
        assert found is not None
        assert (before.n, found.n) == (n, n)
        np.testing.assert_array_equal(found.read_rows(0, n), ROWS[:n])
        assert found.texts("ids") == [f"r{row}" for row in range(n)]
        assert (found.lacks_rows, found.source_count) == (False, n)
        again = pickle.loads(pickle.dumps(found))
        assert (again.n, again.lacks_rows) == (n, False)


def test_shards_that_were_left_out_stay_left_out(states: list[Corpus]) -> None:
    first = states[0].manifest.vectors.shards[0]
    for before in states:
        part = before.without([first.key])
        found = find_earlier(states[-1], part.n, part.fingerprint, [first.key])
        assert found is not None
        np.testing.assert_array_equal(found.read_all(), ROWS[first.rows : before.n])
        assert (found.lacks_rows, found.source_count) == (True, before.n)


def test_other_rows_are_not_taken_for_them(states: list[Corpus]) -> None:
    first, _, last = states
    assert find_earlier(last, first.n, last.fingerprint) is None
    assert find_earlier(last, 1600, first.fingerprint) is None
    assert find_earlier(first, last.n, last.fingerprint) is None


def test_rows_that_were_dropped_before_are_counted_and_later_ones_not(tmp_path: Path) -> None:
    for name, bad in (("a", [3, 4]), ("b", [2])):
        rows = ROWS[:40].copy()
        rows[bad] = np.nan
        np.save(tmp_path / f"{name}.npy", rows)
    url = str(tmp_path / "c")
    before = ingest([str(tmp_path / "a.npy")], url, on_invalid="drop")
    append([str(tmp_path / "b.npy")], url, on_invalid="drop")
    found = find_earlier(open_corpus(url), before.n, before.fingerprint)
    assert found is not None
    assert (found.n, found.source_count, found.lacks_rows) == (38, 40, True)
    assert found.source_rows(np.arange(2, 5)).tolist() == [2, 5, 6]
