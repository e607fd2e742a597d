"""Files on a web server: addresses with queries, servers that send no parts or no sizes."""

import io
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import ClassVar
from urllib.parse import parse_qs, urlsplit

import numpy as np
import pytest

from latentscale_pipeline.corpus import open_corpus
from latentscale_pipeline.corpus.ingest.create import ensure_corpus
from latentscale_pipeline.corpus.ingest.sources import source_key
from latentscale_pipeline.storage.objects import ObjectStore
from tests.conftest import Ended

Command = Callable[..., Ended]
ROWS = {number: np.random.default_rng(number).normal(size=(30, 4)) for number in (1, 2)}


class Server(BaseHTTPRequestHandler):
    """Sends ``/a.npy?id=N`` in parts, ``/whole/…`` only as a whole, ``/endless/…`` without size.

    Nobody may read ``/private/…``. What doesn't exist below ``/hidden/…`` is refused, too.
    """

    protocol_version = "HTTP/1.1"
    files: ClassVar[dict[int, bytes]] = {}

    def do_GET(self) -> None:
        asked = urlsplit(self.path)
        if asked.path.startswith("/private") or not asked.path.endswith("a.npy"):
            self.send_error(403 if asked.path.startswith(("/private", "/hidden")) else 404)
            return
        data = self.files[int(parse_qs(asked.query).get("id", ["1"])[0])]
        wanted = self.headers.get("Range")
        if wanted and asked.path in {"/a.npy", "/hidden/a.npy"}:
            first, last = wanted.removeprefix("bytes=").split("-")
            part = data[int(first) : int(last) + 1]
            self.send_response(206)
            place = f"bytes {first}-{int(first) + len(part) - 1}/{len(data)}"
            self.send_header("Content-Range", place)
            data = part
        else:
            self.send_response(200)
        if asked.path.startswith("/endless"):
            self.send_header("Connection", "close")
        else:
            self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        if self.command == "GET":
            self.wfile.write(data)

    def do_HEAD(self) -> None:
        self.do_GET()

    def log_message(self, format: str, *args: object) -> None:
        del format, args


def stored(rows: np.ndarray) -> bytes:
    file = io.BytesIO()
    np.save(file, rows.astype(np.float32))
    return file.getvalue()


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    for number, rows in ROWS.items():
        Server.files[number] = stored(rows)
    server = ThreadingHTTPServer(("127.0.0.1", 0), Server)
    Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_address[1]}"
    server.shutdown()
    server.server_close()


def test_addresses_that_differ_in_their_queries_are_different_sources(
    address: str, tmp_path: Path
) -> None:
    for number, rows in ROWS.items():
        corpus = ensure_corpus(f"{address}/a.npy?id={number}", str(tmp_path))
        np.testing.assert_allclose(corpus.read_all(), rows, rtol=1e-6)


def test_a_signature_isnt_part_of_what_a_source_is(address: str) -> None:
    """Signed addresses differ every time they are made; the corpus is ingested once."""
    key = source_key([f"{address}/a.npy?id=2"])
    signed = "X-Amz-Date=20260101&id=2&X-Amz-Signature=ab"
    assert source_key([f"{address}/a.npy?{signed}"]) == key
    assert source_key([f"{address}/a.npy?sv=2025&id=2&sig=ab"]) == key
    assert source_key([f"{address}/a.npy?sv=2025&id=2"]) != key
    assert source_key([f"{address}/a.npy"]) != key


def test_nothing_lies_below_an_address_with_a_query(
    address: str, tmp_path: Path, latentscale: Command
) -> None:
    """The server answers every request that ends with a query in the same way."""
    store = ObjectStore(f"{address}/a.npy?download=true")
    assert store.exists("")
    assert not store.exists("manifest.json")
    target = tmp_path / "jobs"
    ended = latentscale("plan", f"{address}/a.npy?download=true", "-o", f"output={target}")
    assert (ended.code, ended.err) == (0, "")
    assert "30 × 4" in ended.out


@pytest.mark.parametrize(
    ("folder", "reason"),
    [
        ("whole", "the server sends the whole file where a part is asked for"),
        ("endless", "the server doesn't tell the file's size, so its parts can't be read"),
    ],
)
def test_a_server_that_sends_no_parts_is_refused_at_once(
    folder: str, reason: str, address: str, tmp_path: Path, latentscale: Command
) -> None:
    ended = latentscale("ingest", f"{address}/{folder}/a.npy", tmp_path / "a.zarr")
    assert ended.code == 2
    assert ended.err == (
        f"latentscale: {address}/{folder}/a.npy: {reason}; download the file and name it there\n"
    )


@pytest.mark.parametrize("n", [30, 200_000])
def test_a_file_of_a_server_that_tells_no_change_is_known_by_its_content(
    address: str, n: int
) -> None:
    rows = np.random.default_rng(n).normal(size=(n, 4))
    Server.files[3] = stored(rows)
    key = source_key([f"{address}/a.npy?id=3"])
    assert source_key([f"{address}/a.npy?id=3"]) == key
    for row in (0, n // 2, n - 1):
        Server.files[3] = stored(np.vstack([rows[:row], rows[row:][::-1]]))
        assert (source_key([f"{address}/a.npy?id=3"]) == key) == (row == n - 1)


def test_a_file_may_be_read_where_what_is_missing_is_refused(address: str, tmp_path: Path) -> None:
    """Many stores say so of anything below a file, unless all may list their content."""
    corpus = ensure_corpus(f"{address}/hidden/a.npy?id=2", str(tmp_path))
    np.testing.assert_allclose(corpus.read_all(), ROWS[2], rtol=1e-6)
    corpus = ensure_corpus(f"{address}/hidden/a.npy", str(tmp_path))
    np.testing.assert_allclose(corpus.read_all(), ROWS[1], rtol=1e-6)


@pytest.mark.parametrize("command", ["plan", "ingest"])
def test_a_file_that_nobody_may_read_is_bad_input(
    address: str, tmp_path: Path, latentscale: Command, command: str
) -> None:
    target = [str(tmp_path / "c.zarr")] if command == "ingest" else []
    ended = latentscale(command, f"{address}/private/a.npy", *target)
    assert ended.code == 2
    assert ended.err == (
        f"latentscale: {address}/private/a.npy: permission denied; change its permissions\n"
    )


def test_files_in_an_archive_are_refused(tmp_path: Path, latentscale: Command) -> None:
    np.savez(tmp_path / "a.zip", rows=ROWS[1])
    (tmp_path / "a.zip.npz").rename(tmp_path / "a.zip")
    source = f"zip://rows.npy::{tmp_path / 'a.zip'}"
    ended = latentscale("ingest", source, tmp_path / "a.zarr")
    assert ended.code == 2
    assert "files within an archive can't be read; unpack it first" in ended.err
    assert not (tmp_path / "a.zarr").exists()


def test_the_corpus_of_a_whole_address_is_that_of_its_file(address: str, tmp_path: Path) -> None:
    corpus = ensure_corpus(f"{address}/a.npy", str(tmp_path))
    np.testing.assert_allclose(open_corpus(corpus.url).read_all(), ROWS[1], rtol=1e-6)
