"""Several processes that ingest the same corpus, and one that is run again."""

import subprocess
import sys
import threading
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from latentscale_pipeline.corpus import Corpus, open_corpus, verify
from latentscale_pipeline.corpus.ingest.append import append
from latentscale_pipeline.corpus.ingest.create import ensure_corpus, ingest
from latentscale_pipeline.corpus.ingest.encoding import run_serially
from latentscale_pipeline.errors import BadInput, Incomplete
from tests.support.waiting import wait_for


def vectors(n: int, d: int = 6) -> np.ndarray:
    return np.random.default_rng(n).standard_normal((n, d)).astype("f4")


def saved(path: Path, rows: np.ndarray) -> str:
    np.save(path, rows)
    return str(path)


def test_one_of_two_ingests_at_once_is_refused(tmp_path: Path) -> None:
    """Whenever the second one begins, and also where a corpus is replaced."""
    first, second = (saved(tmp_path / f"{n}.npy", vectors(n)) for n in (300, 200))
    target = str(tmp_path / "c")

    def refuse(done: int, total: int) -> None:
        for other in (partial(ingest, overwrite=True), ingest, append):
            if other is not append or open_corpora(target):
                with pytest.raises((Incomplete, BadInput), match=r"is writing it|is a corpus alr"):
                    other([second], target)

    for overwrite in (False, True):
        corpus = ingest([first], target, overwrite=overwrite, progress=refuse)
        assert verify(corpus).problems == ()
        np.testing.assert_array_equal(corpus.read_all(), vectors(300))
        assert sorted(path.name for path in Path(target).iterdir()) == [
            *("manifest.json", "vectors", "zarr.json")
        ]


def open_corpora(target: str) -> bool:
    return Path(target, "manifest.json").exists()


KILLED_AFTERWARDS = """
import os, signal, sys
from latentscale_pipeline.corpus.ingest import create
def killed(*given):
    os.kill(os.getpid(), signal.SIGKILL)
create._collect_garbage = killed
create.ingest([sys.argv[1]], sys.argv[2], labels=sys.argv[3])
"""


def test_killed_once_the_corpus_is_whole_the_same_command_ends_well(tmp_path: Path) -> None:
    source, target = saved(tmp_path / "a.npy", vectors(300)), str(tmp_path / "c")
    for name in ("labels", "others"):
        (tmp_path / name).write_text("".join(f"{name}\n" for _ in range(300)))
    labels = str(tmp_path / "labels")
    script = [sys.executable, "-c", KILLED_AFTERWARDS, source, target, labels]
    assert subprocess.run(script, check=False).returncode == -9
    before = open_corpus(target)
    for refused in ({"labels": str(tmp_path / "others")}, {}):
        with pytest.raises(BadInput, match="there is a corpus already"):
            ingest([source], target, **refused)
    assert ingest([source], target, labels=labels) == before
    assert not Path(target, "ingest").exists()
    with pytest.raises(BadInput, match="there is a corpus already"):
        ingest([source], target, labels=labels)


def test_a_corpus_that_was_being_replaced_is_not_taken_for_the_new_one(tmp_path: Path) -> None:
    """Its shards have the keys that those of the killed process would have had in a new folder."""
    sources = [saved(tmp_path / f"{n}.npy", vectors(n)) for n in (200, 300, 400)]
    target = str(tmp_path / "c")
    ingest(sources[:1], target)
    before = ingest(sources[1:2], target, overwrite=True)
    (tmp_path / "labels").write_text("x\n" * 400)
    script = KILLED_AFTERWARDS.replace("_collect_garbage", "_finalise").replace(
        "labels=sys.argv[3]", "overwrite=True"
    )
    command = [sys.executable, "-c", script, sources[2], target]
    assert subprocess.run(command, check=False).returncode == -9
    with pytest.raises(BadInput, match="there is a corpus already"):
        ingest(sources[2:], target)
    assert open_corpus(target) == before
    assert ingest(sources[2:], target, overwrite=True).n == 400


def test_one_that_waits_for_a_failing_ingest_fails_for_the_same_reason(tmp_path: Path) -> None:
    rows, output = vectors(300), str(tmp_path / "jobs")
    rows[270] = np.nan
    source, said, found = saved(tmp_path / "a.npy", rows), list[str](), list[str]()

    def second() -> None:
        try:
            ensure_corpus(source, output, echo=said.append)
        except BadInput as error:
            found.append(str(error))

    thread = threading.Thread(target=second)

    def run(work: Any, partitions: Any, memory: int) -> None:
        thread.start()
        wait_for(lambda: bool(said))
        run_serially(work, partitions, memory)

    with pytest.raises(BadInput, match="row 270 has no vector") as first:
        ensure_corpus(source, output, run_for=lambda sources: run)
    thread.join()
    assert found == [str(first.value)]


def test_a_second_run_waits_for_the_ingest_of_the_first(tmp_path: Path) -> None:
    source, output = saved(tmp_path / "a.npy", vectors(300)), str(tmp_path / "jobs")
    said: list[str] = []
    found: list[Corpus] = []
    second = threading.Thread(
        target=lambda: found.append(ensure_corpus(source, output, echo=said.append))
    )

    def wait(done: int, total: int) -> None:
        if not said:
            second.start()
            wait_for(lambda: bool(said))

    first = ensure_corpus(source, output, wait)
    second.join()
    assert found == [first]
    assert said == [f"{first.url}: waiting for another process, which writes it"]


def test_two_processes_may_ensure_the_same_corpus_at_once(tmp_path: Path) -> None:
    source = saved(tmp_path / "v.npy", vectors(40_000, 8))
    script = (
        "import sys; from latentscale_pipeline.corpus import verify; "
        "from latentscale_pipeline.corpus.ingest.create import ensure_corpus; "
        "print(verify(ensure_corpus(sys.argv[1], sys.argv[2])).problems)"
    )
    command = [sys.executable, "-c", script, source, str(tmp_path / "jobs")]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    racers = [subprocess.Popen(command, **pipes, text=True) for _ in range(2)]
    # What went wrong stands in the second text.
    assert [racer.communicate() for racer in racers] == [("()\n", "")] * 2
