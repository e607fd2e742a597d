"""Every port of a cluster that we start asks for a certificate, on loopback as well."""

import contextlib
import socket

import psutil

from latentscale_pipeline.config.cluster import Local
from latentscale_pipeline.executors.dask.local import local_cluster
from tests.support.waiting import wait_for

TLS_ALERT = 0x15


def listening() -> set[tuple[str, int]]:
    """Return where this process and its children listen."""
    here = psutil.Process()
    found = set()
    for process in (here, *here.children(recursive=True)):
        with contextlib.suppress(psutil.NoSuchProcess):
            for connection in process.net_connections("tcp"):
                if connection.status == psutil.CONN_LISTEN:
                    found.add((connection.laddr.ip, connection.laddr.port))
    return found


def answer(host: str, port: int) -> bytes:
    """Return what a port says to someone who shows no certificate and speaks without TLS."""
    with socket.create_connection((host, port), timeout=20) as connection:
        connection.sendall(b"GET / HTTP/1.0\r\n\r\n")
        try:
            return connection.recv(100)
        except ConnectionError:
            return b""


def test_no_port_answers_without_a_certificate() -> None:
    before = listening()
    with local_cluster(Local(workers=1, memory_limit=2**30)) as executor:
        wait_for(lambda: len(executor.client.nthreads()) == 1)
        ports = listening() - before
        assert len(ports) >= 2, "a scheduler and a worker"
        for host, port in ports:
            said = answer(host, port)
            assert said == b"" or said[0] == TLS_ALERT, (host, port, said)
    wait_for(lambda: not listening() - before)
