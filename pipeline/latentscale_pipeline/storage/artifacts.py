"""Artifacts: store the result of a task so that repeated attempts are harmless.

Each attempt writes its own objects below ``<part>.<attempt>/``. When they are all there, the
attempt tries to create the part's *marker* ``<part>.json``, which names the attempt, its objects
with size and checksum, and its small values. Creation succeeds only if there is no marker yet, so
one attempt wins; the others remove what they wrote. Readers follow markers only and check every
byte, so an attempt that was cut short, or that still runs somewhere, can't be seen.

Many small arrays of which readers want one each go into one object as its *sections*: ``.npy``
arrays one after another, each with its place and checksum in the marker.
"""

from __future__ import annotations

import io
import json
import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import xxhash
from numpy.typing import NDArray

from latentscale_pipeline.errors import LatentscaleError
from latentscale_pipeline.storage.canonical import digest
from latentscale_pipeline.storage.objects import Bytes, CutShort, ObjectStore

Array = NDArray[Any]

SPENT = "spent"
"""Name under which the state of an iterated stage says what all its iterations cost."""

_ATTEMPT = re.compile(r"[A-Za-z0-9-]+")
_NAME = re.compile(r"[A-Za-z0-9_]+")


class CorruptResult(Exception):
    """A stored result is missing, cut short or altered: it has to be computed again.

    ``problem`` begins with the key of the object that is at fault.
    """

    def __init__(self, part: str, problem: str) -> None:
        super().__init__(part, problem)
        self.part = part
        self.problem = problem

    def __str__(self) -> str:
        return f"{self.part}: {self.problem}"


@dataclass(frozen=True)
class Output:
    """What one piece of work produced.

    Attributes
    ----------
    values : mapping
        Small JSON values.
    arrays : mapping
        Arrays by name, an object each.
    finished : bool
        False only for a state that an iterated stage goes on from.
    sections : mapping
        For the name of an object, pairs of name and array of what is in it. They may be made while
        they're stored, so that they needn't all be there at once.
    """

    values: Mapping[str, Any] = field(default_factory=dict)
    arrays: Mapping[str, Array] = field(default_factory=dict)
    finished: bool = True
    sections: Mapping[str, Iterable[tuple[str, Array]]] = field(default_factory=dict)


@dataclass(frozen=True)
class Cost:
    """What one piece of work took.

    Attributes
    ----------
    seconds : float
        Wall time.
    peak_memory_bytes : int
        Most resident memory of the process meanwhile, whatever else ran in it included.
    tasks_at_once : int
        Most tasks that ran in that process at the same time, this one included.
    """

    seconds: float
    peak_memory_bytes: int
    tasks_at_once: int = 1


@dataclass(frozen=True)
class Artifact:
    """The winning result of a part, as its marker describes it.

    Arrays are read on demand; each read checks size and checksum.
    """

    store: ObjectStore
    part: str
    attempt: str
    values: Mapping[str, Any]
    objects: Mapping[str, Mapping[str, Any]]
    cost: Cost

    def array(self, name: str) -> Array:
        """Read one array.

        Raises
        ------
        CorruptResult
            If its object is missing or differs from the marker.
        """
        data = _read_checked(self.store, self.part, self.objects[name])
        return np.load(io.BytesIO(data), allow_pickle=False)  # type: ignore[no-any-return]

    def section(self, name: str, section: str) -> Array:
        """Read one array of an object of several.

        Raises
        ------
        CorruptResult
            If its object is missing or differs from the marker there.
        """
        described = self.objects[name]
        data = _read_section(
            self.store, self.part, described["key"], described["sections"][section]
        )
        return np.load(io.BytesIO(data), allow_pickle=False)  # type: ignore[no-any-return]

    def path(self, name: str) -> str:
        """Return where an array is, relative to the job folder."""
        return str(self.objects[name]["key"])

    def partition(self, index: int) -> Artifact:
        """Return the result of one partition of the stage that this is the result of."""
        return need_marker(self.store, f"{self.part.rpartition('/')[0]}/part-{index:05d}")


def write_artifact(
    store: ObjectStore, part: str, attempt: str, output: Output, cost: Cost
) -> Artifact:
    """Store an attempt's output and try to make it the part's result.

    Returns
    -------
    Artifact
        The part's result: this attempt's, or that of an earlier winner.
    """
    objects = write_arrays(store, part, attempt, output)
    return create_marker(store, part, attempt, output.values, objects, cost)


def write_arrays(
    store: ObjectStore, part: str, attempt: str, output: Output
) -> dict[str, dict[str, Any]]:
    """Store an attempt's arrays, which nobody sees yet, and describe them for its marker."""
    objects = {}
    for name, array in output.arrays.items():
        objects[name] = _write(store, part, attempt, name, _encode(array))
    for name, sections in output.sections.items():
        whole, places = _join_sections(sections)
        objects[name] = {**_write(store, part, attempt, name, whole), "sections": places}
    return objects


def create_marker(
    store: ObjectStore,
    part: str,
    attempt: str,
    values: Mapping[str, Any],
    objects: Mapping[str, Mapping[str, Any]],
    cost: Cost,
) -> Artifact:
    """Try to make an attempt whose arrays are stored the part's result.

    Returns
    -------
    Artifact
        The part's result: this attempt's, or that of an earlier winner.
    """
    body = {
        "attempt": attempt,
        "values": dict(values),
        "objects": dict(objects),
        "seconds": cost.seconds,
        "peak_memory_bytes": cost.peak_memory_bytes,
        "tasks_at_once": cost.tasks_at_once,
    }
    marker = json.dumps({**body, "digest": digest(body)}, indent=1, allow_nan=False).encode()
    if store.create(f"{part}.json", marker):
        return _published(store, part, body)
    winner = need_marker(store, part)
    if winner.attempt != attempt:
        store.remove_all(f"{part}.{attempt}")
    return winner


def read_marker(store: ObjectStore, part: str) -> Artifact | None:
    """Return a part's result, or None when it has none that can be trusted."""
    try:
        return _parse_marker(store, part, store.read(f"{part}.json"))
    except FileNotFoundError:
        return None


def _parse_marker(store: ObjectStore, part: str, data: bytes) -> Artifact | None:
    try:
        body = json.loads(data)
        recorded = body.pop("digest")
        if digest(body) != recorded:
            return None
        artifact = _published(store, part, body)
        inside = all(
            _ATTEMPT.fullmatch(artifact.attempt)
            and _NAME.fullmatch(name)
            and described["key"] == f"{part}.{artifact.attempt}/{name}.npy"
            for name, described in artifact.objects.items()
        )
    except (ValueError, KeyError, AttributeError, TypeError):
        return None
    # A marker from elsewhere must not lead out of its own part.
    return artifact if inside else None


def need_marker(store: ObjectStore, part: str) -> Artifact:
    """Return a part's result; CorruptResult when it has none that can be trusted."""
    found = read_marker(store, part)
    if found is None:
        raise CorruptResult(part, f"{part}.json is missing or damaged")
    return found


def check_sizes(artifact: Artifact, sizes: Mapping[str, int], gone: Collection[str] = ()) -> None:
    """Check that all objects of a result are there with the right sizes, reading none.

    Those whose names are in ``gone`` may be missing.

    Raises
    ------
    CorruptResult
        Naming the first that isn't.
    """
    for name, described in artifact.objects.items():
        key, size = described["key"], described["size"]
        if key not in sizes and name in gone:
            continue
        if key not in sizes:
            raise CorruptResult(artifact.part, f"{key} is missing")
        if sizes[key] != size:
            raise CorruptResult(artifact.part, f"{key} has {sizes[key]} bytes, not {size}")


def check_bytes(artifact: Artifact, gone: Collection[str] = ()) -> int:
    """Check every byte of a result, one object in memory at a time; return how many there are.

    Objects whose names are in ``gone`` may be missing.

    Raises
    ------
    CorruptResult
        Naming the first object that is missing, cut short or altered.
    """
    return sum(len(data) for _, data in _read_objects(artifact, gone))


def _read_objects(artifact: Artifact, gone: Collection[str]) -> Iterator[tuple[str, bytes]]:
    """Yield the key and the checked bytes of every object, those left out that are gone."""
    for name, described in artifact.objects.items():
        if name not in gone or artifact.store.exists(described["key"]):
            yield described["key"], _read_checked(artifact.store, artifact.part, described)


def reuse_stage(
    origin: ObjectStore, target: ObjectStore, folder: str, gone: Collection[str] = ()
) -> bool:
    """Copy a finished stage from another job's folder, checking every byte.

    Objects whose names are in ``gone`` may be missing there.

    Returns
    -------
    bool
        False when the other job hasn't got it whole; nothing that counts was written then.
    """
    try:
        parts = [key.removesuffix(".json") for key in origin.keys(folder) if key.endswith(".json")]
        markers = {part: origin.read(f"{part}.json") for part in parts}
        parsed = [_parse_marker(origin, part, data) for part, data in markers.items()]
        whole = [marker for marker in parsed if marker is not None]
        if f"{folder}/result" not in parts or len(whole) < len(parts):
            return False
        for marker in whole:
            for key, data in _read_objects(marker, gone):
                target.write(key, data)
    except (CorruptResult, OSError, LatentscaleError):
        # Another job's folder may be private, damaged, or changing under our eyes.
        return False
    # The stage's own marker goes last: without it the rest is only parts.
    for part in sorted(parts, key=lambda part: part.endswith("/result")):
        target.create(f"{part}.json", markers[part])
    return True


def reuse_part(origin: ObjectStore, source: str, target: ObjectStore, part: str) -> bool:
    """Make another job's part, checked to the last byte, the result of a part of this one.

    Returns
    -------
    bool
        False when the other job hasn't got it whole.
    """
    try:
        found = need_marker(origin, source)
        read = {name: _read_checked(origin, source, found.objects[name]) for name in found.objects}
    except (CorruptResult, OSError, LatentscaleError):
        return False  # another job's folder may be private, damaged, or changing under our eyes
    objects = {
        name: {**found.objects[name], **_write(target, part, found.attempt, name, data)}
        for name, data in read.items()
    }
    create_marker(target, part, found.attempt, found.values, objects, found.cost)
    return True


def withdraw(store: ObjectStore, part: str) -> None:
    """Remove a part's marker and everything any attempt at it wrote."""
    store.remove(f"{part}.json")
    folder, _, name = part.rpartition("/")
    for other in store.folders(folder):
        if other.startswith(f"{name}."):
            store.remove_all(f"{folder}/{other}")


def collect_garbage(store: ObjectStore, folder: str) -> list[str]:
    """Remove the objects in a stage's folder that no marker names.

    Returns
    -------
    list of str
        The keys removed.
    """
    keys = store.keys(folder)
    parts = [key.removesuffix(".json") for key in keys if key.endswith(".json")]
    markers = {part: read_marker(store, part) for part in parts}
    winners = {f"{part}.{marker.attempt}" for part, marker in markers.items() if marker}
    garbage = [
        key for key in keys if key.endswith(".npy") and key.rpartition("/")[0] not in winners
    ]
    for key in garbage:
        store.remove(key)
    return garbage


def _encode(array: Array) -> memoryview:
    buffer = io.BytesIO()
    np.save(buffer, np.ascontiguousarray(array), allow_pickle=False)
    return buffer.getbuffer()


def _join_sections(sections: Iterable[tuple[str, Array]]) -> tuple[bytearray, dict[str, list[Any]]]:
    """Write arrays one after another; note where each begins and ends, and its checksum."""
    whole, places = bytearray(), {}
    for name, array in sections:
        data, start = _encode(array), len(whole)
        whole += data
        places[name] = [start, len(whole), xxhash.xxh3_64_hexdigest(data)]
    return whole, places


def _write(store: ObjectStore, part: str, attempt: str, name: str, data: Bytes) -> dict[str, Any]:
    key = f"{part}.{attempt}/{name}.npy"
    # Readers check every byte against the marker: what a power cut takes is computed again.
    store.write(key, data, durable=False)
    return {"key": key, "size": len(data), "xxh3": xxhash.xxh3_64_hexdigest(data)}


def _read_section(store: ObjectStore, part: str, key: str, place: Sequence[Any]) -> bytes:
    start, stop, recorded = place
    try:
        data = store.read_range(key, start, stop)
    except FileNotFoundError:
        raise CorruptResult(part, f"{key} is missing") from None
    except CutShort:
        raise CorruptResult(part, f"{key} is cut short") from None
    if xxhash.xxh3_64_hexdigest(data) != recorded:
        raise CorruptResult(part, f"{key} differs from its checksum")
    return data


def _read_checked(store: ObjectStore, part: str, recorded: Mapping[str, Any]) -> bytes:
    key = recorded["key"]
    try:
        data = store.read(key)
    except FileNotFoundError:
        raise CorruptResult(part, f"{key} is missing") from None
    if len(data) != recorded["size"]:
        raise CorruptResult(part, f"{key} has {len(data)} bytes, not {recorded['size']}")
    if xxhash.xxh3_64_hexdigest(data) != recorded["xxh3"]:
        raise CorruptResult(part, f"{key} differs from its checksum")
    return data


def _published(store: ObjectStore, part: str, body: Mapping[str, Any]) -> Artifact:
    return Artifact(
        store=store,
        part=part,
        attempt=body["attempt"],
        values=body["values"],
        objects=body["objects"],
        cost=Cost(body["seconds"], body["peak_memory_bytes"], body.get("tasks_at_once", 1)),
    )
