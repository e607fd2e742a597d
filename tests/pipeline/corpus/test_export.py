"""Files that are written: whole, or not at all."""

import uuid

import fsspec
import pytest

from latentscale_pipeline.corpus.export import new_file

PART = b"0123456789" * (600 << 10)
"""More than one part of an upload, which is 5 MiB."""


def write_whole(target: str, content: bytes) -> None:
    with new_file(target, {".bin": None}, overwrite=True) as (file, _):
        file.write(content)


def fail_after(target: str, content: bytes) -> None:
    def write() -> None:
        with new_file(target, {".bin": None}, overwrite=True) as (file, _):
            file.write(content)
            raise RuntimeError("no more")

    with pytest.raises(RuntimeError, match="no more"):
        write()


@pytest.mark.parametrize("content", [b"short", 10 * PART], ids=["in a buffer", "in parts"])
@pytest.mark.parametrize("kind", ["file", "memory", "s3"])
def test_a_file_that_fails_leaves_nothing(
    kind: str, content: bytes, request: pytest.FixtureRequest
) -> None:
    folder = {
        "file": lambda: str(request.getfixturevalue("tmp_path")),
        "memory": lambda: f"memory://{uuid.uuid4().hex}",
        "s3": lambda: request.getfixturevalue("s3_url"),
    }[kind]()
    target = f"{folder}/rows.bin"
    fail_after(target, content)
    fs, path = fsspec.core.url_to_fs(target)
    fs.invalidate_cache()
    assert not fs.exists(path)
    write_whole(target, content)
    fs.invalidate_cache()
    assert fs.cat_file(path) == content


def test_a_file_in_an_object_store_stays_if_its_successor_fails(s3_url: str) -> None:
    target = f"{s3_url}/rows.bin"
    write_whole(target, b"first")
    fail_after(target, 10 * PART)
    fs, path = fsspec.core.url_to_fs(target)
    assert fs.cat_file(path) == b"first"
