"""A real S3 server on loopback: Ceph's object gateway, with one monitor and one disk of its own.

All daemons are children of this process and hold everything below one folder. The gateway keeps
nothing itself, so it may be killed at any moment and started again: what it had acknowledged is
there. Installing it takes root on a Debian or Ubuntu machine and is done by ``make test-full``
only.
"""

from __future__ import annotations

import http.client
import os
import shutil
import socket
import subprocess
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

PACKAGES = ("ceph-mon", "ceph-osd", "radosgw")
PROGRAMS = (*PACKAGES, "ceph", "ceph-authtool", "monmaptool", "radosgw-admin")
KEY, SECRET = "gatewaykey", "gatewaysecret"
BUCKET = "latentscale"

INSTALL_SECONDS = 600.0
START_SECONDS = 300.0
DISK_BYTES = 6 << 30
"""Room for objects; the file behind it is sparse."""


class NotToBeHad(Exception):
    """The server can't be had on this machine; the message says why."""


def install() -> None:
    """Install what is missing of the server.

    Raises
    ------
    NotToBeHad
        Without root or apt-get, or when that fails.
    """
    if all(map(shutil.which, PROGRAMS)):
        return
    if os.geteuid() != 0 or shutil.which("apt-get") is None:
        raise NotToBeHad(f"{', '.join(PACKAGES)}: not installed, and only root's apt-get could")
    quiet = {"DEBIAN_FRONTEND": "noninteractive", **os.environ}
    for arguments in (["update"], ["install", "-y", "--no-install-recommends", *PACKAGES]):
        try:
            ended = subprocess.run(
                ["apt-get", "-q", *arguments],
                capture_output=True, text=True, check=False, timeout=INSTALL_SECONDS, env=quiet,
            )  # fmt: skip
        except subprocess.TimeoutExpired:
            raise NotToBeHad(f"apt-get {arguments[0]} took over {INSTALL_SECONDS:.0f} s") from None
        if ended.returncode != 0:
            said = (ended.stderr.strip().splitlines() or ["no reason given"])[-1]
            raise NotToBeHad(f"apt-get {arguments[0]} failed: {said}")


class ObjectGateway:
    """The daemons of one server.

    Parameters
    ----------
    folder : Path
        Where everything is kept; it must not exist yet.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._port, self._monitor_port = _free_port(), _free_port()
        self._daemons: dict[str, subprocess.Popen[bytes]] = {}
        self.url = f"http://127.0.0.1:{self._port}"

    def start(self) -> None:
        """Make a new, empty server and start it."""
        for name in ("monitor", "disk", "gateway", "log"):
            (self._folder / name).mkdir(parents=True)
        cluster = str(uuid.uuid4())
        self._configuration.write_text(self._settings(cluster))
        self._make_keys()
        monmap = str(self._folder / "monmap")
        monitor = f"[v2:127.0.0.1:{self._monitor_port}]"
        self._run("monmaptool", "--create", "--addv", "a", monitor, "--fsid", cluster, monmap)
        self._run("ceph-mon", "-i", "a", "--mkfs", "--monmap", monmap, "--keyring", self._keyring)
        self._start_daemon("ceph-mon", "-i", "a")
        disk = str(uuid.uuid4())
        self._run("ceph", "osd", "new", disk, "0")
        self._run("ceph", "osd", "crush", "add", "osd.0", "1.0", "root=default", "host=here")
        self._run("ceph-osd", "-i", "0", "--mkfs", "--osd-uuid", disk)
        self._start_daemon("ceph-osd", "-i", "0")
        self._wait("a disk", lambda: " 1 up" in self._run("ceph", "osd", "stat"))
        self._run(
            "radosgw-admin", "-n", "client.gateway", "user", "create", "--uid=tests",
            "--display-name=tests", f"--access-key={KEY}", f"--secret-key={SECRET}",
        )  # fmt: skip
        self.start_gateway()

    def start_gateway(self) -> None:
        """Start the gateway and wait until it answers."""
        self._start_daemon("radosgw", "-n", "client.gateway")
        self._wait("the gateway", self._answers)

    def kill_gateway(self) -> None:
        """Kill the gateway in the middle of whatever it does."""
        self._end("radosgw")

    def stop(self) -> None:
        """End all daemons at once."""
        for name in reversed(list(self._daemons)):
            self._end(name)

    def _end(self, name: str) -> None:
        daemon = self._daemons.pop(name)
        daemon.kill()
        daemon.wait()

    def _make_keys(self) -> None:
        """Let every part of the cluster do everything: it exists for the time of a test."""
        for number, (name, rights) in enumerate(
            {
                "mon.": ("mon",),
                "client.admin": ("mon", "osd"),
                "client.gateway": ("mon", "osd"),
                "osd.0": ("mon", "osd"),
            }.items()
        ):
            allowed = [word for right in rights for word in ("--cap", right, "allow *")]
            create = [] if number else ["--create-keyring"]
            self._run("ceph-authtool", *create, self._keyring, "--gen-key", "-n", name, *allowed)

    @property
    def _keyring(self) -> str:
        return str(self._folder / "keyring")

    @property
    def _configuration(self) -> Path:
        return self._folder / "ceph.conf"

    def _settings(self, cluster: str) -> str:
        folder = self._folder
        # The one disk holds the one copy of every object; nothing waits for a second.
        return f"""
[global]
fsid = {cluster}
mon host = [v2:127.0.0.1:{self._monitor_port}]
mon initial members = a
public addr = 127.0.0.1
cluster addr = 127.0.0.1
keyring = {folder}/keyring
auth allow insecure global id reclaim = false
ms bind ipv6 = false
osd pool default size = 1
osd pool default min size = 1
osd pool default pg num = 1
osd pool default pgp num = 1
osd pool default pg autoscale mode = off
osd crush chooseleaf type = 0
mon allow pool size one = true
mon max pg per osd = 1000
mon data avail crit = 1
run dir = {folder}
admin socket =
crash dir = {folder}/log
log file = {folder}/log/$name.log
[mon]
mon data = {folder}/monitor
[osd]
osd data = {folder}/disk
osd objectstore = bluestore
bluestore block create = true
bluestore block size = {DISK_BYTES}
osd memory target = 939524096
osd class update on start = false
osd crush update on start = false
[client.gateway]
rgw data = {folder}/gateway
rgw frontends = beast endpoint=127.0.0.1:{self._port}
rgw thread pool size = 32
rgw enable usage log = false
rgw enable gc threads = false
rgw enable lc threads = false
"""

    def _start_daemon(self, program: str, *arguments: str) -> None:
        with (self._folder / "log" / f"{program}.out").open("ab") as log:
            self._daemons[program] = subprocess.Popen(
                [program, "--conf", str(self._configuration), "-f", *arguments],
                stdout=log,
                stderr=log,
            )

    def _run(self, program: str, *arguments: str) -> str:
        alone = program in {"monmaptool", "ceph-authtool"}
        known = [] if alone else ["--conf", str(self._configuration)]
        ended = subprocess.run(
            [program, *known, *arguments],
            capture_output=True, text=True, check=False, timeout=START_SECONDS,
        )  # fmt: skip
        if ended.returncode != 0:
            said = (ended.stderr.strip().splitlines() or [f"exit code {ended.returncode}"])[-1]
            raise NotToBeHad(f"{program} {' '.join(arguments[:2])}: {said}")
        return ended.stdout

    def _answers(self) -> bool:
        connection = http.client.HTTPConnection("127.0.0.1", self._port, timeout=5.0)
        try:
            connection.request("GET", "/")
            return connection.getresponse().status < 500
        except (OSError, http.client.HTTPException):
            return False
        finally:
            connection.close()

    def _wait(self, what: str, condition: object) -> None:
        begun = time.monotonic()
        while not condition():  # type: ignore[operator]
            dead = [name for name, daemon in self._daemons.items() if daemon.poll() is not None]
            if dead or time.monotonic() - begun > START_SECONDS:
                why = f"{dead[0]} ended" if dead else f"not up after {START_SECONDS:.0f} s"
                raise NotToBeHad(f"{what}: {why}")
            time.sleep(0.1)


@contextmanager
def object_gateway(folder: Path) -> Iterator[ObjectGateway]:
    """Run a server for the time of a ``with`` block."""
    gateway = ObjectGateway(folder)
    try:
        gateway.start()
        yield gateway
    finally:
        gateway.stop()


def _free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as server:
        return int(server.getsockname()[1])
