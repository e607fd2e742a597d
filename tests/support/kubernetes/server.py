"""A Kubernetes API server on loopback, with TLS, tokens and rights.

It answers what the drivers of jobs, kr8s and Dask's operator ask: discovery, create, get, list,
watch, patch and delete. The objects are in :mod:`tests.support.kubernetes.objects`.
"""

from __future__ import annotations

import json
import ssl
import threading
from base64 import b64encode
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from ipaddress import ip_address
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, urlsplit

import yaml
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from tests.support.kubernetes.objects import (
    RESOURCES,
    Object,
    Objects,
    Refused,
    as_line,
    merge,
    operate,
)

ADMIN = "the-token-of-an-administrator"

Rules = Sequence[Object]
"""Rules of a ``Role``, with ``apiGroups``, ``resources`` and ``verbs``."""

EVERYTHING: Rules = [{"apiGroups": ["*"], "resources": ["*"], "verbs": ["*"]}]


@dataclass
class ApiServer:
    """A running server.

    Attributes
    ----------
    objects : Objects
        What it holds.
    folder : Path
        Where its certificate is, and kubeconfig files are written.
    port : int
        Its port on 127.0.0.1.
    rights : dict
        The rules of each token; a token that isn't there is refused.
    requests : list of tuple
        The verb, the plural and the name of every request, in order.
    """

    objects: Objects
    folder: Path
    port: int
    rights: dict[str, Rules] = field(default_factory=lambda: {ADMIN: EVERYTHING})
    requests: list[tuple[str, str, str]] = field(default_factory=list)

    @property
    def url(self) -> str:
        """Address of the server."""
        return f"https://127.0.0.1:{self.port}"

    @property
    def certificate(self) -> Path:
        """File with the certificate that clients trust."""
        return self.folder / "ca.crt"

    def kubeconfig(self, token: str = ADMIN) -> Path:
        """Write a file that ``KUBECONFIG`` may name."""
        cluster = {
            "server": self.url,
            "certificate-authority-data": b64encode(self.certificate.read_bytes()).decode(),
        }
        document = {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": "here", "cluster": cluster}],
            "users": [{"name": "me", "user": {"token": token}}],
            "contexts": [{"name": "it", "context": {"cluster": "here", "user": "me"}}],
            "current-context": "it",
        }
        path = self.folder / f"{token}.yaml"
        path.write_text(yaml.safe_dump(document))
        return path


@contextmanager
def api_server(folder: Path) -> Iterator[ApiServer]:
    """Run a server during a ``with`` block."""
    folder.mkdir(parents=True, exist_ok=True)
    _certify(folder / "ca.crt", folder / "key.pem")
    http = ThreadingHTTPServer(("127.0.0.1", 0), _Handler)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(folder / "ca.crt", folder / "key.pem")
    http.socket = context.wrap_socket(http.socket, server_side=True, do_handshake_on_connect=False)
    http.daemon_threads = True
    server = ApiServer(Objects(), folder, http.server_port)
    http.api = server  # type: ignore[attr-defined]
    stop = threading.Event()
    threads = [
        threading.Thread(target=http.serve_forever, daemon=True),
        threading.Thread(target=_collect, args=(server.objects, stop), daemon=True),
    ]
    for thread in threads:
        thread.start()
    try:
        yield server
    finally:
        stop.set()
        http.shutdown()
        http.server_close()


def _certify(certificate: Path, key: Path) -> None:
    """Write a certificate for this machine, which vouches for itself, and its key."""
    private = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "kubernetes")])
    now = datetime.now(UTC)
    address = x509.IPAddress(ip_address("127.0.0.1"))
    made = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(private.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(minutes=5))
        .not_valid_after(now + timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([address]), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(private, hashes.SHA256())
    )
    pem = serialization.Encoding.PEM
    certificate.write_bytes(made.public_bytes(pem))
    plain = serialization.NoEncryption()
    key.write_bytes(private.private_bytes(pem, serialization.PrivateFormat.PKCS8, plain))


def _collect(objects: Objects, stop: threading.Event) -> None:
    while not stop.wait(0.1):
        objects.collect()


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, format: str, *args: Any) -> None:
        """Say nothing."""

    def _answer(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers.get("Content-Length") or 0)) or b"{}")
        try:
            self._reply(200, _Request(self, body).answer())
        except Refused as refusal:
            self._reply(refusal.code, refusal.status())
        except (BrokenPipeError, ConnectionResetError):
            self.close_connection = True

    do_GET = do_POST = do_PATCH = do_PUT = do_DELETE = _answer  # noqa: N815 -- inherited names

    def _reply(self, code: int, found: Object | Iterator[bytes]) -> None:
        whole = json.dumps(found).encode() if isinstance(found, dict) else b""
        self.send_response(code)
        self.send_header("Content-Type", "application/json")
        if isinstance(found, dict):
            self.send_header("Content-Length", str(len(whole)))
            self.end_headers()
            self.wfile.write(whole)
            return
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        for line in found:
            self.wfile.write(b"%x\r\n%s\r\n" % (len(line), line))
            self.wfile.flush()
        self.wfile.write(b"0\r\n\r\n")


class _Request:
    """One request: who asks, for what."""

    def __init__(self, handler: _Handler, body: Any) -> None:
        self._server: ApiServer = handler.server.api  # type: ignore[attr-defined]
        self._token = (handler.headers.get("Authorization") or "").removeprefix("Bearer ")
        self._kind = handler.headers.get("Content-Type") or ""
        self._method, self._body = handler.command, body
        url = urlsplit(handler.path)
        self._options = dict(parse_qsl(url.query))
        self._parts = url.path.strip("/").split("/")

    def answer(self) -> Object | Iterator[bytes]:
        """Return the answer, as a document or as the lines of a watch."""
        if self._token not in self._server.rights:
            raise Refused(401, "Unauthorized", "Unauthorized")
        parts = self._parts
        if parts[0] == "version":
            return {"major": "1", "minor": "34", "gitVersion": "v1.34.0"}
        api, rest = (parts[1:2], parts[2:]) if parts[0] == "api" else (parts[1:3], parts[3:])
        if not rest:
            return _discovered("/".join(api))
        namespace = ""
        if rest[0] == "namespaces" and len(rest) > 2:
            namespace, rest = rest[1], rest[2:]
        plural, name, part = (*rest, "", "")[:3]
        known = RESOURCES.get(plural)
        if known is None or known.api != "/".join(api):
            raise Refused(404, "NotFound", "the server could not find the requested resource")
        verb = self._verb(name)
        self._server.requests.append((verb, plural, name))
        self._check_rights(verb, plural, known.api)
        return self._act(verb, plural, namespace, name, status=part == "status")

    def _verb(self, name: str) -> str:
        watching = self._options.get("watch") in {"true", "1"}
        get = "watch" if watching else "get" if name else "list"
        verbs = {"GET": get, "POST": "create", "PATCH": "patch", "DELETE": "delete"}
        if self._method not in verbs:
            raise Refused(405, "MethodNotAllowed", f"{self._method} isn't known here")
        return verbs[self._method]

    def _check_rights(self, verb: str, plural: str, api: str) -> None:
        group = api.rpartition("/")[0]
        for rule in self._server.rights[self._token]:
            wanted = {"verbs": verb, "resources": plural, "apiGroups": group}
            if all({value, "*"} & set(rule[name]) for name, value in wanted.items()):
                return
        raise Refused(403, "Forbidden", f'{plural} is forbidden: may not {verb} in group "{group}"')

    def _act(
        self, verb: str, plural: str, namespace: str, name: str, *, status: bool
    ) -> Object | Iterator[bytes]:
        objects = self._server.objects
        selectors = {
            key: value
            for key, value in self._options.items()
            if key in {"labelSelector", "fieldSelector"}
        }
        match verb:
            case "watch":
                return self._watch(plural, namespace, selectors)
            case "list":
                about = {"resourceVersion": str(objects.version)}
                kind, api = RESOURCES[plural].kind, RESOURCES[plural].api
                items = objects.list(plural, namespace, **selectors)
                return {"kind": f"{kind}List", "apiVersion": api, "metadata": about, "items": items}
            case "get":
                return objects.get(plural, namespace, name)
            case "create":
                return objects.create(plural, namespace, self._body)
            case "patch":
                change = (operate if "json-patch" in self._kind else merge)(self._body)
                return objects.patch(plural, namespace, name, change, status=status)
        policy = self._body.get("propagationPolicy") or self._options.get("propagationPolicy")
        uid = self._body.get("preconditions", {}).get("uid", "")
        return objects.delete(plural, namespace, name, policy or "Background", uid)

    def _watch(self, plural: str, namespace: str, selectors: dict[str, str]) -> Iterator[bytes]:
        objects = self._server.objects
        since = int(self._options.get("resourceVersion") or 0)
        seconds = float(self._options.get("timeoutSeconds") or 60)
        try:
            if not since:
                since = objects.version
                for found in objects.list(plural, namespace, **selectors):
                    yield as_line("ADDED", found)
            for event, found in objects.watch(plural, namespace, since, seconds, **selectors):
                yield as_line(event, found)
        except Refused as refusal:
            yield as_line("ERROR", refusal.status())


def _discovered(api: str) -> Object:
    """Return which groups there are, or which kinds of objects one has."""
    groups = sorted({each.api for each in RESOURCES.values() if "/" in each.api})
    if not api:
        named = [
            {
                "name": group.partition("/")[0],
                "versions": [{"groupVersion": group, "version": group.partition("/")[2]}],
                "preferredVersion": {"groupVersion": group, "version": group.partition("/")[2]},
            }
            for group in groups
        ]
        return {"kind": "APIGroupList", "versions": ["v1"], "groups": named}
    found = [
        {
            "name": name,
            "singularName": each.kind.lower(),
            "namespaced": each.namespaced,
            "kind": each.kind,
            "verbs": ["create", "delete", "get", "list", "patch", "watch"],
        }
        for each in RESOURCES.values()
        if each.api == api
        for name in (each.plural, *([f"{each.plural}/status"] if each.has_status else []))
    ]
    if not found:
        raise Refused(404, "NotFound", "the server could not find the requested resource")
    return {"kind": "APIResourceList", "groupVersion": api, "resources": found}
