"""The promise on a network that breaks; run by ``make test-full`` as ``namespaces``.

Two workers, the scheduler and the driver are in network namespaces of their own, joined by a
bridge; everything speaks TLS. In the middle of the job the link of one worker is cut.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tests.acceptance.slurm import LIMIT, MEASURES, ROWS, numbers_of
from tests.support.dask_processes import Place, scheduler
from tests.support.jobs import command_line, run_command

if TYPE_CHECKING:
    from tests.acceptance.run import Bench

SUBNET = "10.77.31"
BRIDGE = "lsbridge"
PATIENCE = 1800.0
TCP_SECONDS = "12s"

_STRANGER = """
import sys
from distributed import Client
from distributed.security import Security
address, *rest = sys.argv[1:]
security = Security.temporary() if address.startswith("tls") else None
try:
    Client(address, security=security, timeout="5s")
except OSError as error:
    print("refused", type(error).__name__)
"""


class NotToBeHad(Exception):
    """Network namespaces can't be made here; says why."""


def a_link_is_cut(bench: Bench) -> list[dict[str, Any]]:
    """Cut one of two workers off in the middle of a job; ask for the numbers of a local one."""
    local = bench.job("local", *_rows(bench), measures=MEASURES, cluster={"kind": "serial"})
    ended = run_command("run", local)
    if ended.returncode != 0:
        raise RuntimeError(ended.stderr[-300:])
    folder = Path(tempfile.mkdtemp(prefix="networks-"))
    try:
        with _namespaces(3) as places:
            os.environ["DASK_DISTRIBUTED__COMM__TIMEOUTS__TCP"] = TCP_SECONDS
            with scheduler(folder / "tls", tls=True, workers=places[1:], at=places[0]) as found:
                return [_cut(bench, places, found), _strangers(places[1], found.address)]
    except NotToBeHad as reason:
        return [_record("a link is cut", {"skipped": str(reason)}, held=None)]
    finally:
        os.environ.pop("DASK_DISTRIBUTED__COMM__TIMEOUTS__TCP", None)
        shutil.rmtree(folder, ignore_errors=True)


def _rows(bench: Bench) -> tuple[Any, Any]:
    rows = bench.rows[: 2 * ROWS]
    return rows[::2], rows[1::2]


def _cut(bench: Bench, places: list[Place], found: Any) -> dict[str, Any]:
    cluster = found.settings(workers=2, memory_limit=LIMIT).model_dump()
    config = bench.job("cut", *_rows(bench), measures=MEASURES, cluster=cluster)
    begun = time.monotonic()
    driver = subprocess.Popen(
        [*places[0].prefix, *command_line("run", config, "--quiet")],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        while _parts_done(bench.output("cut")) < 4:
            if driver.poll() is not None or time.monotonic() - begun > PATIENCE:
                raise RuntimeError("the job ended before a link could be cut")
            time.sleep(0.2)
        cut = time.monotonic()
        _ip("-n", f"{BRIDGE}2", "link", "set", "eth0", "down")
        _, said = driver.communicate(timeout=PATIENCE)
    finally:
        if driver.poll() is None:
            driver.kill()
    same = driver.returncode == 0 and (
        numbers_of(bench.output("cut")) == numbers_of(bench.output("local"))
    )
    figures = {
        "seconds": round(time.monotonic() - begun, 1),
        "cut_after_seconds": round(cut - begun, 1),
        "exit_code": driver.returncode,
        "said": "" if driver.returncode == 0 else said[-300:],
    }
    return _record("one of two workers is cut off, and the job ends by itself", figures, same)


def _parts_done(output: Path) -> int:
    return sum(path.read_text().count('"part_done"') for path in output.glob("*/events/*.jsonl"))


def _strangers(place: Place, address: str) -> dict[str, Any]:
    """Try to get in without a certificate, and with one that nobody knows."""
    said = {}
    for name, tried in (("tls", address), ("tcp", address.replace("tls:", "tcp:"))):
        ended = subprocess.run(
            [*place.prefix, sys.executable, "-c", _STRANGER, tried],
            capture_output=True,
            text=True,
            check=False,
            timeout=300,
        )
        said[name] = ended.stdout.strip() or ended.stderr.strip()[-200:]
    refused = all(answer.startswith("refused") for answer in said.values())
    return _record("a client without the certificate is refused", said, refused)


@contextmanager
def _namespaces(count: int) -> Iterator[list[Place]]:
    """Make namespaces that see each other over a bridge in one of its own."""
    if shutil.which("ip") is None or shutil.which("nsenter") is None or os.geteuid() != 0:
        raise NotToBeHad("it needs root, ip (iproute2) and nsenter")
    names = [BRIDGE, *(f"{BRIDGE}{index}" for index in range(count))]
    try:
        for name in names:
            _ip("netns", "add", name)
            _ip("-n", name, "link", "set", "lo", "up")
        _ip("-n", BRIDGE, "link", "add", "br0", "type", "bridge")
        _ip("-n", BRIDGE, "link", "set", "br0", "up")
        for index, name in enumerate(names[1:]):
            veth = f"v{index}"
            peer = ("type", "veth", "peer", "name", "eth0", "netns", name)
            _ip("link", "add", veth, "netns", BRIDGE, *peer)
            _ip("-n", BRIDGE, "link", "set", veth, "master", "br0", "up")
            _ip("-n", name, "addr", "add", f"{SUBNET}.{10 + index}/24", "dev", "eth0")
            _ip("-n", name, "link", "set", "eth0", "up")
        yield [
            Place(("nsenter", f"--net=/run/netns/{name}"), f"{SUBNET}.{10 + index}")
            for index, name in enumerate(names[1:])
        ]
    finally:
        for name in names:
            subprocess.run(["ip", "netns", "del", name], capture_output=True, check=False)


def _ip(*words: str) -> None:
    try:
        subprocess.run(["ip", *words], capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError) as error:
        raise NotToBeHad(f"ip {' '.join(words)}: {getattr(error, 'stderr', error)}") from None


def _record(promise: str, figures: dict[str, Any], held: bool | None) -> dict[str, Any]:
    return {
        "promise": promise,
        "figures": figures,
        "limit": "equal to the serial job, but for times and places",
        "held": held,
    }
