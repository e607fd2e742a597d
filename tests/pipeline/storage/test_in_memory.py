"""The store in memory behaves like one in a folder."""

from pathlib import Path
from typing import Any

import pytest

from latentscale_pipeline.storage.in_memory import InMemoryStore
from latentscale_pipeline.storage.objects import CutShort, ObjectStore


def observe(store: ObjectStore) -> list[Any]:
    """Use every operation, and return what each says."""
    seen: list[Any] = []
    store.write("stages/a/1/part-00000.json", b"one")
    store.write("stages/a/1/part-00000.x/v.npy", bytearray(b"0123456789"), durable=False)
    store.write("stages/ab/2/result.json", memoryview(b"two"))
    seen.append(store.create("stages/a/1/result.json", b"won"))
    seen.append(store.create("stages/a/1/result.json", b"won"))
    seen.append(store.create("stages/a/1/result.json", b"lost"))
    seen.append(store.read("stages/a/1/result.json"))
    store.write("stages/a/1/result.json", b"replaced")
    seen += [store.read("stages/a/1/result.json"), store.keys(), store.keys("stages/a")]
    seen += [store.sizes("stages/ab"), store.sizes("nowhere"), store.folders(), store.folders("no")]
    seen += [store.folders("stages"), store.folders("stages/a/1")]
    seen += [store.exists("stages/a"), store.exists("stages/a/1/result.json"), store.exists("s")]
    seen.append(store.read_range("stages/a/1/part-00000.x/v.npy", 2, 5))
    with pytest.raises(CutShort, match="has 10 bytes, not 11"):
        store.read_range("stages/a/1/part-00000.x/v.npy", 5, 11)
    store.remove("stages/a/1/result.json")
    store.remove("stages/a/1/result.json")
    store.remove_all("stages/ab")
    store.remove_all("stages/ab")
    seen.append(store.keys())
    with pytest.raises(FileNotFoundError):
        store.read("stages/a/1/result.json")
    return seen


def test_it_behaves_like_a_folder(tmp_path: Path) -> None:
    assert observe(InMemoryStore()) == observe(ObjectStore(str(tmp_path)))


def test_two_stores_share_nothing() -> None:
    first, second = InMemoryStore(), InMemoryStore()
    first.write("key", b"data")
    assert second.keys() == []
