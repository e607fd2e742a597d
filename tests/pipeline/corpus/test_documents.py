"""The zarr.json files of a corpus are written anew from its manifest, byte by byte."""

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import zarr

from latentscale_pipeline.corpus import Corpus, open_corpus
from latentscale_pipeline.corpus.documents import restore_documents
from latentscale_pipeline.corpus.ingest.append import append
from latentscale_pipeline.corpus.ingest.create import ingest
from latentscale_pipeline.errors import BadInput
from tests.conftest import Ended
from tests.support.jobs import damage

Command = Callable[..., Ended]


def make_corpus(folder: Path) -> Corpus:
    """A corpus with labels that has grown twice."""
    generator = np.random.default_rng(0)
    for number, n in enumerate((1500, 20, 30)):
        np.save(folder / f"{number}.npy", generator.normal(size=(n, 4)).astype("f4"))
        (folder / f"{number}.txt").write_text("a\n" * n)
    place = str(folder / "corpus.zarr")
    first, *others = ([str(folder / f"{n}.npy")] for n in range(3))
    ingest(first, place, shard_bytes=1, labels=str(folder / "0.txt"))
    for number, files in enumerate(others, start=1):
        append(files, place, labels=str(folder / f"{number}.txt"))
    return open_corpus(place)


def documents(corpus: Corpus) -> dict[str, bytes]:
    keys = [stored.key for stored in corpus.manifest.documents]
    return {key: Path(corpus.url, key).read_bytes() for key in keys}


def test_all_documents_follow_from_the_manifest(tmp_path: Path) -> None:
    corpus = make_corpus(tmp_path)
    whole = documents(corpus)
    assert len(whole) == 10
    assert restore_documents(corpus) == ()
    for number, key in enumerate(whole):
        kinds = ("missing", "empty", "truncated", "flipped")
        damage(Path(corpus.url, key), kinds[number % 4], at=10)
    assert restore_documents(corpus) == tuple(whole)
    assert documents(corpus) == whole


def test_those_of_a_replaced_corpus_too(tmp_path: Path) -> None:
    corpus = make_corpus(tmp_path)
    replaced = ingest([str(tmp_path / "0.npy")], corpus.url, overwrite=True)
    assert replaced.manifest.vectors.shards[0].key.startswith("vectors/c.")
    whole = documents(replaced)
    for key in whole:
        Path(corpus.url, key).unlink()
    assert restore_documents(replaced) == tuple(whole)
    assert documents(replaced) == whole


def test_a_document_of_another_zarr_is_not_replaced(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    corpus = make_corpus(tmp_path)
    group = Path(corpus.url, "zarr.json")
    group.unlink()
    monkeypatch.setattr(
        "latentscale_pipeline.corpus.documents.group_document", lambda attributes: b"{}"
    )
    with pytest.raises(BadInput, match=r"can't write the same; restore this file"):
        restore_documents(corpus)
    assert not group.exists()


@pytest.mark.parametrize("kind", ["missing", "flipped"])
def test_run_says_that_other_tools_can_not_open_a_corpus(
    tmp_path: Path, latentscale: Command, kind: str
) -> None:
    np.save(tmp_path / "rows.npy", np.random.default_rng(1).normal(size=(40, 4)).astype("f4"))
    corpus = ingest([str(tmp_path / "rows.npy")], str(tmp_path / "rows.zarr"))
    config = tmp_path / "job.yaml"
    places = {"corpus": corpus.url, "output": str(tmp_path / "jobs")}
    fields = {"name": "small", "measures": {"vendi": {}}, "cluster": {"kind": "serial"}}
    config.write_text(json.dumps({**places, **fields}))
    group = tmp_path / "rows.zarr/zarr.json"
    damage(group, kind, at=1)
    what = "it is missing" if kind == "missing" else "its checksum differs (bytes changed)"
    line = (
        f"{group}: {what}, so other tools can't open the corpus; the job doesn't need it; write it "
        f"anew with latentscale verify {corpus.url} --restore\n"
    )
    for computed in (True, False):
        ended = latentscale("run", config, "--quiet")
        assert ended.code == 0
        assert ended.err.endswith(line)
        assert ended.err.count("\n") == 1
        assert ("nothing had to be computed" in ended.out) is not computed
    assert latentscale("verify", corpus.url).code == 2
    ended = latentscale("verify", corpus.url, "--restore")
    assert ended.code == 0
    assert ended.err.startswith(f"restored: {group}\n")
    assert zarr.open_group(corpus.url, mode="r")["vectors"].shape == (40, 4)
    assert latentscale("run", config, "--quiet").err == ""
