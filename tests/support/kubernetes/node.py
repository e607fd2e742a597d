"""A node for :mod:`tests.support.kubernetes.server`: it runs the containers of pods as processes.

It stands in for the kubelet and for the controllers of deployments and jobs. A process sees the
names of services in its own ``/etc/hosts``, and a service account's token where pods have it, so it
needs root and ``unshare``. Paths of volumes are replaced in commands, because nothing is mounted
there. All pods have the address 127.0.0.1.
"""

from __future__ import annotations

import contextlib
import os
import re
import signal
import subprocess
import sys
import threading
import time
import uuid
from base64 import b64decode
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.support.kubernetes.dask_operator import make_components
from tests.support.kubernetes.objects import Object, Objects, Refused, merge
from tests.support.kubernetes.server import ApiServer

TOKENS = "/var/run/secrets/kubernetes.io/serviceaccount"

ENTER = f"""
mount --bind "$1" /etc/hosts
mount -t tmpfs none /run
mkdir -p {TOKENS}
[ -z "$2" ] || cp "$2"/* {TOKENS}
shift 2
exec "$@"
"""
"""What a container's process does first, in mounts of its own."""

BLAS_KERNELS = ("OPENBLAS_CORETYPE", "MKL_CBWR")
"""Variables that choose kernels by the processor; the same for every process of a machine."""

LEAST_DELAY = 0.2


@dataclass
class Node:
    """A node that runs pods.

    Attributes
    ----------
    server : ApiServer
        Where it finds them.
    folder : Path
        Where it writes volumes, and what containers print.
    claims : mapping of str to Path
        The folder of each persistent volume claim.
    accounts : mapping of str to str
        The token of each service account.
    operated : bool
        Whether to do what Dask's operator does, too.
    """

    server: ApiServer
    folder: Path
    claims: Mapping[str, Path] = field(default_factory=dict)
    accounts: Mapping[str, str] = field(default_factory=dict)
    operated: bool = False
    processes: dict[str, subprocess.Popen[bytes]] = field(default_factory=dict)

    @property
    def objects(self) -> Objects:
        """Everything that the server holds."""
        return self.server.objects

    def log(self, pod: str) -> str:
        """Return what the pods with this beginning of a name printed."""
        return "".join(path.read_text() for path in sorted(self.folder.glob(f"{pod}*.log")))

    # --- controllers --------------------------------------------------------------------------

    def look(self) -> None:
        """Do once what the controllers and the kubelet do again and again."""
        if self.operated:
            make_components(self.objects)
        self._name_services()
        for owner in self.objects.list("deployments"):
            if not self._own_pods(owner) and "deletionTimestamp" not in owner["metadata"]:
                self._make_pod(owner)
        for owner in self.objects.list("jobs"):
            if "deletionTimestamp" not in owner["metadata"]:
                self._look_at_job(owner)
        for pod in self.objects.list("pods"):
            with contextlib.suppress(Refused):  # what it needs isn't there yet, or no longer
                self._look_at_pod(pod)

    def _own_pods(self, owner: Object) -> list[Object]:
        uid = owner["metadata"]["uid"]
        return [
            pod
            for pod in self.objects.list("pods", owner["metadata"]["namespace"])
            if pod["metadata"]["ownerReferences"][0]["uid"] == uid
            if "deletionTimestamp" not in pod["metadata"]
        ]

    def _make_pod(self, owner: Object) -> None:
        meta, template = owner["metadata"], owner["spec"]["template"]
        reference = {key: owner[key] for key in ("apiVersion", "kind")}
        reference |= {"name": meta["name"], "uid": meta["uid"], "controller": True}
        about = {
            "name": f"{meta['name']}-{uuid.uuid4().hex[:5]}",
            "labels": template["metadata"].get("labels", {}),
            "ownerReferences": [reference],
        }
        pod = {"apiVersion": "v1", "kind": "Pod", "metadata": about, "spec": template["spec"]}
        self.objects.create("pods", meta["namespace"], pod)

    def _look_at_job(self, job: Object) -> None:
        if job["status"].get("conditions"):
            return
        pods = self._own_pods(job)
        phases = [pod["status"].get("phase") for pod in pods]
        failed = [pod for pod in pods if pod["status"].get("phase") == "Failed"]

        ended = ""
        if "Succeeded" in phases:
            ended = "Complete"
        elif any(_is_final(job, pod) for pod in failed):
            ended = "Failed"
        elif len(failed) == len(pods):
            ended = "Failed" if len(failed) > job["spec"]["backoffLimit"] else ""
            if not ended:
                self._make_pod(job)
        status: Object = {"ready": phases.count("Running"), "failed": len(failed)}
        if ended:
            status["conditions"] = [{"type": ended, "status": "True"}]
        self._say("jobs", job, status)

    def _name_services(self) -> None:
        names = [
            f"{found['metadata']['name']}.{found['metadata']['namespace']}.svc"
            for found in self.objects.list("services")
        ]
        lines = [f"127.0.0.1 {name} {name}.cluster.local\n" for name in ["localhost", *names]]
        hosts = self.folder / "hosts"
        if not hosts.exists() or hosts.read_text() != "".join(lines):
            hosts.write_text("".join(lines))

    def _say(self, plural: str, found: Object, status: Object) -> None:
        meta = found["metadata"]
        with contextlib.suppress(Refused):  # it was deleted or changed meanwhile
            self.objects.patch(
                plural, meta["namespace"], meta["name"], merge({"status": status}), status=True
            )

    # --- the kubelet --------------------------------------------------------------------------

    def _look_at_pod(self, pod: Object) -> None:
        meta, uid = pod["metadata"], pod["metadata"]["uid"]
        process, phase = self.processes.get(uid), pod["status"].get("phase")
        if "deletionTimestamp" in meta:
            if process is None or _ended(process):
                self.objects.finish_pod(meta["namespace"], meta["name"])
            else:
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGTERM)
        elif phase in {"Succeeded", "Failed"}:
            return
        elif process is None:
            bind = merge({"spec": {"nodeName": "here"}})
            self.objects.patch("pods", meta["namespace"], meta["name"], bind)
            self.processes[uid] = self._started(pod)
            self._say("pods", pod, {"phase": "Running"})
        elif _ended(process):
            self._end(pod, process)

    def _end(self, pod: Object, process: subprocess.Popen[bytes]) -> None:
        if pod["spec"].get("restartPolicy", "Always") == "Always":
            self.processes[pod["metadata"]["uid"]] = self._started(pod)
            return
        code = process.returncode if process.returncode >= 0 else 128 - process.returncode
        ended = {"name": pod["spec"]["containers"][0]["name"]}
        ended["state"] = {"terminated": {"exitCode": code}}
        phase = "Failed" if code else "Succeeded"
        self._say("pods", pod, {"phase": phase, "containerStatuses": [ended]})

    def _started(self, pod: Object) -> subprocess.Popen[bytes]:
        meta, spec = pod["metadata"], pod["spec"]
        [container] = spec["containers"]
        places = self._volumes(pod)
        home = self.folder / meta["name"]
        environment = {
            "KUBERNETES_SERVICE_HOST": "127.0.0.1",
            "KUBERNETES_SERVICE_PORT": str(self.server.port),
            **self._variables(pod, container),
        }
        here = {
            "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
            "HOME": str(home),
            "TMPDIR": str(places.get("/tmp", home)),
            # Kernels that the machine's BLAS is told to use round in their own way.
            **{name: value for name, value in os.environ.items() if name in BLAS_KERNELS},
        }
        words = [_filled(word, environment) for word in container["command"]]
        words += [_filled(word, environment) for word in container.get("args", ())]
        enter = ["unshare", "--mount", "--propagation", "private", "sh", "-ec", ENTER, "sh"]
        enter += [str(self.folder / "hosts"), self._token(spec, home)]
        with (self.folder / f"{meta['name']}.log").open("ab") as log:
            return subprocess.Popen(
                [*enter, *(_moved(word, places) for word in words)],
                env=here | {name: _moved(value, places) for name, value in environment.items()},
                stdout=log,
                stderr=log,
                start_new_session=True,
            )

    def _token(self, spec: Object, home: Path) -> str:
        """Write what a pod knows of its service account; return the folder, if it has one."""
        home.mkdir(exist_ok=True)
        if not spec.get("automountServiceAccountToken", True):
            return ""
        place = home / "account"
        place.mkdir(exist_ok=True)
        (place / "token").write_text(self.accounts.get(spec.get("serviceAccountName", ""), "none"))
        (place / "ca.crt").write_bytes(self.server.certificate.read_bytes())
        (place / "namespace").write_text("default")
        return str(place)

    def _volumes(self, pod: Object) -> dict[str, Path]:
        """Make the volumes of a pod; return where each path in the container is."""
        folders = {}
        for volume in pod["spec"].get("volumes", ()):
            place = self.folder / pod["metadata"]["name"] / volume["name"]
            if "persistentVolumeClaim" in volume:
                place = self.claims[volume["persistentVolumeClaim"]["claimName"]]
            place.mkdir(parents=True, exist_ok=True)
            if "secret" in volume:
                for name, text in self._secret(pod, volume["secret"]["secretName"]).items():
                    (place / name).write_text(text)
            folders[volume["name"]] = place
        mounts = pod["spec"]["containers"][0].get("volumeMounts", ())
        return {mount["mountPath"]: folders[mount["name"]] for mount in mounts}

    def _secret(self, pod: Object, name: str) -> dict[str, str]:
        found = self.objects.get("secrets", pod["metadata"]["namespace"], name)
        return {key: b64decode(value).decode() for key, value in found["data"].items()}

    def _variables(self, pod: Object, container: Object) -> dict[str, str]:
        found: dict[str, str] = {}
        for source in container.get("envFrom", ()):
            found |= self._secret(pod, source["secretRef"]["name"])
        for each in container.get("env", ()):
            path = each.get("valueFrom", {}).get("fieldRef", {}).get("fieldPath")
            found[each["name"]] = (
                pod["metadata"][path.removeprefix("metadata.")] if path else each["value"]
            )
        return found


@contextmanager
def node(server: ApiServer, folder: Path, **settings: Any) -> Iterator[Node]:
    """Run a node during a ``with`` block; its pods end with it."""
    folder.mkdir(parents=True, exist_ok=True)
    made, stop = Node(server, folder, **settings), threading.Event()

    def work() -> None:
        while not stop.wait(LEAST_DELAY):
            made.look()

    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    try:
        yield made
    finally:
        stop.set()
        thread.join()
        for process in made.processes.values():
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()


def wait_for(condition: Any, seconds: float, what: str) -> Any:
    """Return what a condition returns once that is true."""
    until = time.monotonic() + seconds
    while not (found := condition()):
        assert time.monotonic() < until, f"waited {seconds:g} s in vain: {what}"
        time.sleep(LEAST_DELAY)
    return found


def _ended(process: subprocess.Popen[bytes]) -> bool:
    return process.poll() is not None


def _is_final(job: Object, pod: Object) -> bool:
    """Return whether the exit code of a pod ends its job at once."""
    code = pod["status"]["containerStatuses"][0]["state"]["terminated"]["exitCode"]
    rules = job["spec"].get("podFailurePolicy", {}).get("rules", ())
    return any(code in rule.get("onExitCodes", {}).get("values", ()) for rule in rules)


def _filled(word: str, environment: Mapping[str, str]) -> str:
    """Replace ``$(NAME)`` by the variable, if there is one."""
    return re.sub(r"\$\((\w+)\)", lambda m: environment.get(m[1], m[0]), word)


def _moved(word: str, places: Mapping[str, Path]) -> str:
    """Replace the path of a volume by where it is on this machine."""
    for path, place in sorted(places.items(), reverse=True):  # the longer of two beginnings first
        if word == path or word.startswith(f"{path}/"):
            return str(place) + word.removeprefix(path)
    return word
