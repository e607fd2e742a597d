"""A Slurm of this process' own: real daemons, and two nodes that are this machine twice.

Nothing of a Slurm that the machine may have is touched: sockets, keys, state, logs and ports are
below a folder. It needs the packages, and root, because slurmd starts jobs as their users.
"""

from __future__ import annotations

import contextlib
import os
import pwd
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

PROGRAMS = ("slurmctld", "slurmd", "munged", "sbatch", "scontrol", "scancel", "squeue", "setpriv")
PACKAGES = ("slurm-wlm", "munge")
NODES = 2
READY_SECONDS = 60.0

CONFIGURATION = """\
ClusterName=latentscale
SlurmctldHost={host}(127.0.0.1)
SlurmctldPort={port}
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
AuthInfo=socket={folder}/munge/socket,cred_expire=5
CredType=cred/munge
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool.%n
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd.%n.pid
SlurmctldLogFile={folder}/slurmctld.log
SlurmdLogFile={folder}/slurmd.%n.log
SwitchType=switch/none
MpiDefault=none
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/linux
AccountingStorageType=accounting_storage/none
SchedulerType=sched/backfill
SchedulerParameters=sched_interval=2,bf_interval=2,sched_min_interval=100000
SelectType=select/cons_tres
SelectTypeParameters=CR_Core_Memory
ReturnToService=2
SlurmdTimeout=60
SlurmctldTimeout=60
InactiveLimit=0
KillWait=5
MinJobAge=600
Waittime=0
SlurmdParameters=config_overrides
PropagateResourceLimits=NONE
"""


class NotToBeHad(Exception):
    """Slurm can't be started here; says why."""


@dataclass(frozen=True)
class Slurm:
    """A running Slurm: where it is, and how its commands are called."""

    folder: Path

    @property
    def environment(self) -> dict[str, str]:
        """What has to be in the environment of its commands."""
        return {"SLURM_CONF": str(self.folder / "slurm.conf")}

    def call(self, *command: str) -> str:
        """Call one of its commands."""
        ended = subprocess.run(
            command,
            env={**os.environ, **self.environment},
            capture_output=True,
            text=True,
            check=True,
            timeout=60,
        )
        return ended.stdout.strip()

    def jobs(self, *names: str) -> dict[str, tuple[str, str]]:
        """Return the jobs that wait or run: name and state by id."""
        lines = self.call("squeue", "--noheader", "--format=%A|%j|%T").splitlines()
        found = {line.split("|")[0]: (line.split("|")[1], line.split("|")[2]) for line in lines}
        return {key: told for key, told in found.items() if not names or told[0] in names}


def why_not() -> str | None:
    """Return why Slurm can't be started here; None where it can."""
    missing = [name for name in PROGRAMS if _program(name) is None]
    if missing:
        return f"{', '.join(missing)}: not installed (apt-get install {' '.join(PACKAGES)})"
    if os.geteuid() != 0:
        return "slurmd has to be started by root"
    return None


def install() -> None:
    """Install Slurm where it is missing; only for tests that say so.

    Raises
    ------
    NotToBeHad
        If it can't be installed.
    """
    if all(_program(name) for name in PROGRAMS):
        return
    command = ["apt-get", "install", "-y", "--no-install-recommends", *PACKAGES]
    try:
        subprocess.run(command, check=True, capture_output=True, timeout=600)
    except (OSError, subprocess.SubprocessError) as error:
        raise NotToBeHad(f"Slurm can't be installed: {error}") from None


@contextmanager
def slurm(folder: Path) -> Iterator[Slurm]:
    """Run Slurm for the time of a ``with`` block; all users have to be able to enter the folder."""
    reason = why_not()
    if reason is not None:
        raise NotToBeHad(reason)
    folder.mkdir(mode=0o755, exist_ok=True)
    found = Slurm(folder)
    try:
        _start_munge(folder)
        _configure(folder)
        environment = {**os.environ, **found.environment}
        _daemon([_path("slurmctld"), "-f", str(folder / "slurm.conf")], environment)
        for node in range(1, NODES + 1):
            (folder / f"spool.n{node}").mkdir()
            slurmd = [_path("slurmd"), "-f", str(folder / "slurm.conf"), "-N", f"n{node}"]
            _daemon(slurmd, environment)
        _wait_until_idle(found)
        yield found
    finally:
        with contextlib.suppress(OSError, subprocess.SubprocessError):
            for job in found.jobs():
                found.call("scancel", "--signal=KILL", "--full", job)
                found.call("scancel", job)
            until = time.monotonic() + 20
            while found.jobs() and time.monotonic() < until:
                time.sleep(0.2)
        for pid_file in [*sorted(folder.glob("*.pid")), folder / "munge" / "pid"]:
            _end(pid_file)


@contextmanager
def cluster_for_tests() -> Iterator[Slurm]:
    """A cluster in a folder of its own, which goes with it."""
    folder = Path(tempfile.mkdtemp(prefix="slurm-"))
    folder.chmod(0o755)  # munge's own user has to enter it
    try:
        with slurm(folder / "slurm") as found:
            yield found
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _start_munge(folder: Path) -> None:
    home = folder / "munge"
    home.mkdir(mode=0o755)
    key = home / "key"
    key.write_bytes(os.urandom(128))
    key.chmod(0o400)
    user = pwd.getpwnam("munge")
    for path in (home, key):
        os.chown(path, user.pw_uid, user.pw_gid)
    _daemon(
        [
            *("setpriv", "--reuid=munge", "--regid=munge", "--clear-groups", _path("munged")),
            *(f"--key-file={key}", f"--socket={home}/socket", f"--pid-file={home}/pid"),
            *(f"--log-file={home}/log", f"--seed-file={home}/seed"),
        ],
        dict(os.environ),
    )


def _configure(folder: Path) -> None:
    (folder / "state").mkdir()
    host = socket.gethostname().partition(".")[0]
    lines = [CONFIGURATION.format(host=host, folder=folder, port=_free_port())]
    lines += [
        f"NodeName=n{node} NodeHostname={host} NodeAddr=127.0.0.1 Port={_free_port()} "
        "CPUs=8 RealMemory=16000 State=UNKNOWN\n"
        for node in range(1, NODES + 1)
    ]
    lines.append(f"PartitionName=main Nodes=n[1-{NODES}] Default=YES MaxTime=INFINITE State=UP\n")
    (folder / "slurm.conf").write_text("".join(lines))


def _wait_until_idle(found: Slurm) -> None:
    until = time.monotonic() + READY_SECONDS
    states: list[str] = []
    while time.monotonic() < until:
        with contextlib.suppress(subprocess.SubprocessError):
            states = found.call("sinfo", "--noheader", "--Node", "--format=%T").splitlines()
            if states == ["idle"] * NODES:
                return
        time.sleep(0.1)
    logs = "\n".join(path.read_text()[-500:] for path in found.folder.glob("*.log"))
    raise NotToBeHad(f"its nodes are {states} after {READY_SECONDS:.0f} s\n{logs}")


def _daemon(command: list[str], environment: dict[str, str]) -> None:
    ended = subprocess.run(
        command, env=environment, capture_output=True, text=True, check=False, timeout=60
    )
    if ended.returncode != 0:
        raise NotToBeHad(f"{command[0]} doesn't start: {ended.stderr.strip()[-300:]}")


def _end(pid_file: Path) -> None:
    with contextlib.suppress(OSError, ValueError):
        os.kill(int(pid_file.read_text()), signal.SIGTERM)


def _program(name: str) -> str | None:
    return shutil.which(name, path=f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin")


def _path(name: str) -> str:
    found = _program(name)
    if found is None:
        raise NotToBeHad(f"there is no {name}")
    return found


def _free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as server:
        return int(server.getsockname()[1])
