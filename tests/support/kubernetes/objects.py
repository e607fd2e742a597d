"""The objects of a Kubernetes API server: versions, finalizers, owners and watches.

It does what https://kubernetes.io/docs/reference/using-api/api-concepts/ says of single objects, as
far as the drivers of jobs, kr8s and Dask's operator rely on it. Nothing is kept on disk.
"""

from __future__ import annotations

import copy
import json
import threading
import time
import uuid
from base64 import b64encode
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

Object = dict[str, Any]
Key = tuple[str, str, str]
"""Plural, namespace and name."""

FOREGROUND = "foregroundDeletion"


@dataclass(frozen=True)
class Resource:
    """A kind of object that the server knows."""

    api: str
    plural: str
    kind: str
    has_status: bool = False
    namespaced: bool = True


RESOURCES = {
    resource.plural: resource
    for resource in (
        Resource("v1", "pods", "Pod", has_status=True),
        Resource("v1", "services", "Service", has_status=True),
        Resource("v1", "secrets", "Secret"),
        Resource("v1", "events", "Event"),
        Resource("v1", "namespaces", "Namespace", namespaced=False),
        Resource("apps/v1", "deployments", "Deployment", has_status=True),
        Resource("batch/v1", "jobs", "Job", has_status=True),
        Resource(
            "apiextensions.k8s.io/v1",
            "customresourcedefinitions",
            "CustomResourceDefinition",
            namespaced=False,
        ),
        Resource("kubernetes.dask.org/v1", "daskclusters", "DaskCluster"),
        Resource("kubernetes.dask.org/v1", "daskworkergroups", "DaskWorkerGroup"),
        Resource("kubernetes.dask.org/v1", "daskjobs", "DaskJob"),
        Resource("kubernetes.dask.org/v1", "daskautoscalers", "DaskAutoscaler"),
    )
}


class Refused(Exception):
    """An answer other than success: the HTTP status, its reason, and a message."""

    def __init__(self, code: int, reason: str, message: str) -> None:
        super().__init__(message)
        self.code, self.reason = code, reason

    def status(self) -> Object:
        """Return the ``Status`` object that the server answers."""
        about = {"status": "Failure", "message": str(self), "reason": self.reason}
        return {"kind": "Status", "apiVersion": "v1", "metadata": {}, **about, "code": self.code}


class Objects:
    """All objects, and a log of what happened to them.

    ``given`` has all that were to be made. What belongs to an object that is gone is deleted after
    ``orphan_seconds``: the garbage collector of a busy cluster takes its time.
    """

    def __init__(self) -> None:
        self.given: list[Object] = []
        self.orphan_seconds = 0.0
        self._orphans: dict[str, float] = {}
        self._found: dict[Key, Object] = {}
        self._version = 1
        self._log: list[tuple[int, str, str, Object]] = []
        self._forgotten = 0
        self._changed = threading.Condition(threading.RLock())

    # --- reading ------------------------------------------------------------------------------

    def get(self, plural: str, namespace: str, name: str) -> Object:
        """Return an object."""
        with self._changed:
            if (plural, namespace, name) not in self._found:
                raise Refused(404, "NotFound", f'{plural} "{name}" not found')
            return copy.deepcopy(self._found[plural, namespace, name])

    def list(self, plural: str, namespace: str = "", **selectors: str) -> list[Object]:
        """Return the objects of a kind, in one namespace or in all, that selectors let through."""
        with self._changed:
            found = [o for (kind, where, _), o in self._found.items() if kind == plural]
            return copy.deepcopy([o for o in found if _selected(o, namespace, **selectors)])

    def everything(self) -> list[Object]:
        """Return all objects but events."""
        with self._changed:
            return [copy.deepcopy(o) for (kind, *_), o in self._found.items() if kind != "events"]

    @property
    def version(self) -> int:
        """Version of the last change."""
        return self._version

    def watch(
        self, plural: str, namespace: str, since: int, seconds: float, **selectors: str
    ) -> Iterator[tuple[str, Object]]:
        """Yield what happens to objects of a kind after a version, for some seconds."""
        until = datetime.now(UTC).timestamp() + seconds
        with self._changed:
            if since < self._forgotten:
                raise Refused(410, "Expired", f"too old resource version: {since}")
        while True:
            with self._changed:
                new = [entry for entry in self._log if entry[0] > since]
                left = until - datetime.now(UTC).timestamp()
                if not new and left > 0:
                    self._changed.wait(min(left, 0.5))
            for version, event, kind, found in new:
                since = version
                if kind == plural and _selected(found, namespace, **selectors):
                    yield event, found
            if left <= 0:
                return

    def forget(self) -> None:
        """Forget the log, so that a watch from an earlier version is refused."""
        with self._changed:
            self._forgotten, self._log = self._version, []

    # --- writing ------------------------------------------------------------------------------

    def create(self, plural: str, namespace: str, given: Mapping[str, Any]) -> Object:
        """Create an object; refuse a name that is taken."""
        made = copy.deepcopy(dict(given))
        meta = made.setdefault("metadata", {})
        if "generateName" in meta:
            meta["name"] = f"{meta['generateName']}{uuid.uuid4().hex[:5]}"
        where = namespace if RESOURCES[plural].namespaced else ""
        if where and meta.setdefault("namespace", where) != where:
            raise Refused(
                400, "BadRequest", "the namespace of the object isn't that of the request"
            )
        self.given.append(copy.deepcopy(made))
        if plural == "secrets":
            plain = made.pop("stringData", {})
            coded = {name: b64encode(text.encode()).decode() for name, text in plain.items()}
            made["data"] = made.get("data", {}) | coded
        with self._changed:
            taken = self._found.get((plural, where, meta["name"]))
            if taken is not None:
                going = "object is being deleted: " * ("deletionTimestamp" in taken["metadata"])
                message = f'{going}{plural} "{meta["name"]}" already exists'
                raise Refused(409, "AlreadyExists", message)
            meta |= {"uid": str(uuid.uuid4()), "creationTimestamp": _now(), "generation": 1}
            if RESOURCES[plural].has_status:
                made["status"] = {"loadBalancer": {}} if plural == "services" else {}
            self._found[plural, where, meta["name"]] = made
            return self._tell("ADDED", plural, made)

    def patch(
        self,
        plural: str,
        namespace: str,
        name: str,
        change: Callable[[Object], Object],
        *,
        status: bool = False,
    ) -> Object:
        """Change an object: its status, or everything else where it has a status of its own."""
        with self._changed:
            before = self.get(plural, namespace, name)
            after = change(copy.deepcopy(before))
            given = after["metadata"].get("resourceVersion")
            if given != before["metadata"]["resourceVersion"]:
                raise Refused(409, "Conflict", f'{plural} "{name}": the object has been modified')
            if RESOURCES[plural].has_status and status:
                after = {**before, "status": after.get("status", {})}
            elif RESOURCES[plural].has_status:
                after["status"] = before["status"]
            for field in ("uid", "creationTimestamp", "deletionTimestamp"):
                if after["metadata"].get(field) != before["metadata"].get(field):
                    raise Refused(422, "Invalid", f"metadata.{field} can't be changed")
            if after == before:
                return before
            self._found[plural, namespace, name] = after
            self._tell("MODIFIED", plural, after)
            self._finish(plural, after)
            return copy.deepcopy(after)

    def delete(
        self, plural: str, namespace: str, name: str, policy: str = "Background", uid: str = ""
    ) -> Object:
        """Delete an object, at once or when its finalizers are done and its pod has ended."""
        with self._changed:
            found = self._found.get((plural, namespace, name)) or self.get(plural, namespace, name)
            if uid and found["metadata"]["uid"] != uid:
                raise Refused(409, "Conflict", f'{plural} "{name}" has another uid')
            meta = found["metadata"]
            if "deletionTimestamp" not in meta:
                meta["deletionTimestamp"] = _now()
                if policy == "Foreground":
                    meta["finalizers"] = [*meta.get("finalizers", ()), FOREGROUND]
                self._tell("MODIFIED", plural, found)
            self._finish(plural, found)
            return copy.deepcopy(found)

    def finish_pod(self, namespace: str, name: str) -> None:
        """Remove a pod that is being deleted, now that its processes have ended."""
        with self._changed:
            found = self._found.get(("pods", namespace, name))
            if found is not None:
                found["spec"].pop("nodeName", None)
                self._finish("pods", found)

    def collect(self) -> None:
        """Delete what belongs to objects that are gone, as the garbage collector does."""
        with self._changed:
            alive = {found["metadata"]["uid"] for found in self._found.values()}
            for (plural, namespace, name), found in list(self._found.items()):
                owners = found["metadata"].get("ownerReferences", ())
                if not owners or any(owner["uid"] in alive for owner in owners):
                    continue
                since = self._orphans.setdefault(found["metadata"]["uid"], time.monotonic())
                if time.monotonic() - since >= self.orphan_seconds:
                    self.delete(plural, namespace, name)
            for (plural, _, _), found in list(self._found.items()):
                if FOREGROUND in found["metadata"].get("finalizers", ()):
                    self._delete_dependents_first(plural, found)

    def _delete_dependents_first(self, plural: str, owner: Object) -> None:
        uid = owner["metadata"]["uid"]
        owned = [
            key
            for key, found in self._found.items()
            if uid in [each["uid"] for each in found["metadata"].get("ownerReferences", ())]
        ]
        for key in owned:
            self.delete(*key, policy="Foreground")
        if not owned:
            owner["metadata"]["finalizers"].remove(FOREGROUND)
            self._tell("MODIFIED", plural, owner)
            self._finish(plural, owner)

    def _finish(self, plural: str, found: Object) -> None:
        """Remove an object that is being deleted and that nothing waits for."""
        meta = found["metadata"]
        waits = meta.get("finalizers") or (plural == "pods" and "nodeName" in found["spec"])
        key = (plural, meta.get("namespace", ""), meta["name"])
        if "deletionTimestamp" in meta and not waits and key in self._found:
            del self._found[key]
            self._tell("DELETED", plural, found)

    def _tell(self, event: str, plural: str, found: Object) -> Object:
        self._version += 1
        found["metadata"]["resourceVersion"] = str(self._version)
        self._log.append((self._version, event, plural, copy.deepcopy(found)))
        self._changed.notify_all()
        return copy.deepcopy(found)


def merge(patch: Any) -> Callable[[Any], Any]:
    """Return the change that a JSON merge patch makes (RFC 7386)."""

    def change(target: Any, patch: Any = patch) -> Any:
        if not isinstance(patch, dict):
            return patch
        merged = dict(target) if isinstance(target, dict) else {}
        for name, value in patch.items():
            if value is None:
                merged.pop(name, None)
            else:
                merged[name] = change(merged.get(name), value)
        return merged

    return change


def operate(operations: list[Object]) -> Callable[[Any], Any]:
    """Return the change that a JSON patch makes (RFC 6902): add, remove, replace and test."""

    def change(target: Any) -> Any:
        for each in operations:
            parts = each["path"].split("/")[1:]
            *path, last = (part.replace("~1", "/").replace("~0", "~") for part in parts)
            place = target
            for part in path:
                place = place[int(part)] if isinstance(place, list) else place.setdefault(part, {})
            where = (len(place) if last == "-" else int(last)) if isinstance(place, list) else last
            match each["op"]:
                case "test":
                    if place[where] != each["value"]:
                        raise Refused(422, "Invalid", f"the test of {each['path']} failed")
                case "add" if isinstance(place, list):
                    place.insert(where, each["value"])
                case "add" | "replace":
                    place[where] = each["value"]
                case "remove":
                    del place[where]
                case other:
                    raise Refused(400, "BadRequest", f"unknown operation {other}")
        return target

    return change


def _selected(
    found: Object, namespace: str, labelSelector: str = "", fieldSelector: str = ""
) -> bool:
    meta = found["metadata"]
    labels = meta.get("labels", {})
    fields = {f"metadata.{name}": meta.get(name) for name in ("name", "namespace")}
    return (
        (not namespace or meta.get("namespace") == namespace)
        and all(labels.get(name) == value for name, value in _pairs(labelSelector))
        and all(fields.get(name) == value for name, value in _pairs(fieldSelector))
    )


def _pairs(selector: str) -> list[tuple[str, str]]:
    terms = [term for term in selector.split(",") if term]
    return [
        (name, value) for name, _, value in (t.replace("==", "=").partition("=") for t in terms)
    ]


def _now() -> str:
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def as_line(event: str, found: Object) -> bytes:
    """Return one line of a watch."""
    return json.dumps({"type": event, "object": found}).encode() + b"\n"
