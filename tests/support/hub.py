"""A hub of data sets on loopback, as far as reading files from it goes."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any
from urllib.parse import unquote, urlsplit

COMMIT = "a" * 40


@contextmanager
def serve_dataset(folder: Path, name: str, token: str = "") -> Iterator[str]:
    """Serve the files of a folder as a data set ``owner/name``; yield the hub's address.

    With a token only requests that bear it see the data set.
    """

    class Request(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            path = unquote(urlsplit(self.path).path)
            if token and self.headers.get("Authorization") != f"Bearer {token}":
                self._answer(401, error="RepoNotFound")
            elif path == f"/api/datasets/{name}":
                self._tell({"id": name, "_id": "1", "sha": COMMIT, "siblings": [], "tags": []})
            elif path.startswith(tree := f"/api/datasets/{name}/tree/main"):
                self._list(folder / path.removeprefix(tree).strip("/"))
            elif path.startswith(files := f"/datasets/{name}/resolve/main/"):
                self._send(folder / path.removeprefix(files))
            else:
                self._answer(404, error="RepoNotFound")

        def do_HEAD(self) -> None:
            self.do_GET()

        def _list(self, found: Path) -> None:
            if not found.is_dir():
                self._answer(404, error="EntryNotFound")
                return
            self._tell(
                [
                    {
                        "type": "directory" if path.is_dir() else "file",
                        "oid": "0" * 40,
                        "size": path.stat().st_size,
                        "path": str(path.relative_to(folder)),
                    }
                    for path in sorted(found.iterdir())
                ]
            )

        def _send(self, file: Path) -> None:
            if not file.is_file():
                self._answer(404, error="EntryNotFound")
                return
            content = file.read_bytes()
            headers = {"ETag": f'"{hashlib.sha1(content).hexdigest()}"', "X-Repo-Commit": COMMIT}
            asked = self.headers.get("Range")
            if asked is None:
                self._answer(200, content, headers)
                return
            first, _, last = asked.removeprefix("bytes=").partition("-")
            end = min(int(last or len(content) - 1) + 1, len(content))
            headers["Content-Range"] = f"bytes {first}-{end - 1}/{len(content)}"
            self._answer(206, content[int(first) : end], headers)

        def _tell(self, document: Any) -> None:
            self._answer(200, json.dumps(document).encode(), {"Content-Type": "application/json"})

        def _answer(
            self, code: int, content: bytes = b"", headers: Any = None, error: str = ""
        ) -> None:
            self.send_response(code)
            shown = {**(headers or {}), **({"X-Error-Code": error} if error else {})}
            for key, value in {**shown, "Content-Length": str(len(content))}.items():
                self.send_header(key, value)
            self.end_headers()
            if self.command != "HEAD":
                self.wfile.write(content)

        def log_message(self, *words: object) -> None:
            """Say nothing."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Request) as server:
        Thread(target=server.serve_forever, daemon=True).start()
        try:
            yield f"http://127.0.0.1:{server.server_port}"
        finally:
            server.shutdown()
