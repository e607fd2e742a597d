"""A proxy on loopback that stands before an S3 server and fails requests at random.

Every fault is one that a real network or server shows: answers that say that something went wrong
inside (500) or that there is too much to do (503), connections that are reset before a request got
through, in the middle of an upload, or after it was carried out and before it was answered, answers
cut short, and slow ones. One more kind no client notices by itself: a write is acknowledged and
lost.
"""

from __future__ import annotations

import hashlib
import http.client
import socket
import struct
import threading
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import urlsplit

import numpy as np

FAULTS = ("error", "busy", "reset", "cut_upload", "lost_answer", "truncated", "slow", "lost_write")
"""What may happen to a request; the last is silent."""

COMMON = dict.fromkeys(FAULTS, 0.02)
"""One request in six meets a fault."""

SLOW_SECONDS = 0.2

_ANSWERS = {
    "error": (500, "InternalError", "We encountered an internal error. Please try again."),
    "busy": (503, "SlowDown", "Please reduce your request rate."),
}
_PER_CONNECTION = {"connection", "transfer-encoding", "keep-alive", "expect", "content-length"}


class FaultyStore(ThreadingHTTPServer):
    """The proxy.

    Parameters
    ----------
    server : str
        URL of the S3 server behind it; it may be away for a while.
    faults : mapping
        How likely each fault is.
    generator : numpy.random.Generator
        Chooses which requests fail, and how.

    Attributes
    ----------
    seen : Counter
        How often each fault has happened, and how many requests there were.
    """

    daemon_threads = True
    request_queue_size = 128

    def __init__(
        self, server: str, faults: Mapping[str, float], generator: np.random.Generator
    ) -> None:
        super().__init__(("127.0.0.1", 0), _Request)
        self.upstream = urlsplit(server).netloc
        self.url = f"http://127.0.0.1:{self.server_address[1]}"
        self.seen: Counter[str] = Counter()
        self._faults = dict(faults)
        self._generator = generator
        self._choosing = threading.Lock()

    def choose(self, method: str) -> str | None:
        """Choose what goes wrong with the next request; None for nothing."""
        with self._choosing:
            self.seen["requests"] += 1
            drawn = float(self._generator.random())
            fault = None
            for name, chance in self._faults.items():
                drawn -= chance
                if drawn < 0:
                    fault = name
                    break
            # Only a write has something to upload, or to lose.
            if fault in {"lost_write", "cut_upload"} and method != "PUT":
                fault = None
            if fault is not None:
                self.seen[fault] += 1
        return fault

    def handle_error(self, request: object, client_address: object) -> None:
        """Say nothing of clients that went away: that is what this is for."""


class _Request(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: FaultyStore

    def log_message(self, format: str, *arguments: object) -> None:
        """Keep quiet."""

    def _forward(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        fault = self.server.choose(self.command)
        if fault in _ANSWERS:
            self._refuse(*_ANSWERS[fault])
        elif fault == "reset":
            self._reset()
        elif fault == "cut_upload":
            self._send_half(body)
            self._reset()
        elif fault == "lost_write":
            self._answer(200, {"ETag": f'"{hashlib.md5(body, usedforsecurity=False).hexdigest()}"'})
        else:
            if fault == "slow":
                time.sleep(SLOW_SECONDS)
            self._pass_on(body, fault)

    # Under these names the server looks for what answers a method.
    do_GET = do_PUT = do_POST = do_HEAD = do_DELETE = _forward  # noqa: N815

    def _pass_on(self, body: bytes, fault: str | None) -> None:
        connection = http.client.HTTPConnection(self.server.upstream, timeout=60.0)
        try:
            connection.putrequest(
                self.command, self.path, skip_host=True, skip_accept_encoding=True
            )
            for name, value in self._kept_headers(self.headers):
                connection.putheader(name, value)
            connection.putheader("Content-Length", str(len(body)))
            connection.endheaders(body)
            answer = connection.getresponse()
            content = answer.read()
        except (OSError, http.client.HTTPException):
            # What a client sees of a server that is gone.
            self._reset()
            return
        finally:
            connection.close()
        if fault == "lost_answer":
            self._reset()
            return
        headers = dict(self._kept_headers(answer.headers))
        length = answer.headers.get("Content-Length") if self.command == "HEAD" else None
        if fault == "truncated" and content:
            self._answer(answer.status, headers, content[: len(content) // 2], len(content))
            self._reset()
            return
        self._answer(answer.status, headers, content, int(length) if length else len(content))

    def _send_half(self, body: bytes) -> None:
        """Let the server have the beginning of a request, and hang up."""
        host, _, port = self.server.upstream.partition(":")
        lines = [f"{self.command} {self.path} HTTP/1.1"]
        lines += [f"{name}: {value}" for name, value in self._kept_headers(self.headers)]
        lines += [f"Content-Length: {len(body)}", "", ""]
        try:
            with socket.create_connection((host, int(port)), timeout=5.0) as connection:
                connection.sendall("\r\n".join(lines).encode() + body[: len(body) // 2])
        except OSError:
            return

    @staticmethod
    def _kept_headers(headers: object) -> Iterator[tuple[str, str]]:
        for name, value in headers.items():  # type: ignore[attr-defined]
            if name.lower() not in _PER_CONNECTION:
                yield name, value

    def _refuse(self, status: int, code: str, message: str) -> None:
        text = f"<Error><Code>{code}</Code><Message>{message}</Message></Error>"
        content = b"" if self.command == "HEAD" else text.encode()
        self._answer(status, {"Content-Type": "application/xml"}, content)

    def _answer(
        self,
        status: int,
        headers: Mapping[str, str],
        content: bytes = b"",
        length: int | None = None,
    ) -> None:
        self.send_response_only(status)
        for name, value in headers.items():
            self.send_header(name, value)
        if status != http.client.NO_CONTENT:
            self.send_header("Content-Length", str(len(content) if length is None else length))
        self.end_headers()
        self.wfile.write(content)
        self.wfile.flush()

    def _reset(self) -> None:
        """End the connection as a crash does, without a goodbye."""
        self.close_connection = True
        self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.connection.close()


@contextmanager
def faulty_store(
    server: str, seed: int, faults: Mapping[str, float] = COMMON
) -> Iterator[FaultyStore]:
    """Run a proxy for the time of a ``with`` block."""
    proxy = FaultyStore(server, faults, np.random.default_rng(seed))
    serving = threading.Thread(target=proxy.serve_forever, args=(0.05,), daemon=True)
    serving.start()
    try:
        yield proxy
    finally:
        proxy.shutdown()
        proxy.server_close()
        serving.join()
