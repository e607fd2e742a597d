"""Artifacts: store the result of a task so that repeated attempts are harmless.

Each attempt writes its own objects below ``<part>.<attempt>/``. When all of them are stored, the
attempt tries to create the part's *marker* ``<part>.json``, which names the attempt, its objects
with size and checksum, and its small values. Creation succeeds only if there is no marker yet, so
one attempt wins, and the others delete their objects. Readers follow markers only and check every
byte, so they never see the objects of an attempt that was interrupted or is still running.

Many small arrays that are read one at a time are stored in one object as its *sections*: ``.npy``
arrays one after another, each with its position and checksum in the marker.
"""

from __future__ import annotations

import io
import json
import re
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, field
from functools import lru_cache, partial
from typing import Any

import numpy as np
import xxhash
from numpy.typing import NDArray

from latentscale_pipeline.errors import LatentscaleError
from latentscale_pipeline.storage.canonical import digest, digest_of_parsed
from latentscale_pipeline.storage.objects import Bytes, CutShort, ObjectStore, run_requests

Array = NDArray[Any]

SPENT = "spent"
"""Name of the value in an iterated stage's state that holds the cost of all its iterations."""

_ATTEMPT = re.compile(r"[A-Za-z0-9-]+")
_NAME = re.compile(r"[A-Za-z0-9_]+")
_HEADER_BEGINS = 10  # bytes of the magic string, the version 1.0 and the header's length


class CorruptResult(Exception):
    """Raised if a stored result is missing, truncated or altered and must be computed again.

    ``problem`` begins with the key of the damaged object.
    """

    def __init__(self, part: str, problem: str) -> None:
        super().__init__(part, problem)
        self.part = part
        self.problem = problem

    def __str__(self) -> str:
        return f"{self.part}: {self.problem}"


@dataclass(frozen=True)
class Output:
    """The output of one task.

    Attributes
    ----------
    values : mapping
        Small JSON values.
    arrays : mapping
        Arrays by name; each is stored as one object.
    finished : bool
        False only for a state from which an iterated stage continues.
    sections : mapping
        For the name of an object, an iterable of (name, array) pairs, its sections. A generator
        will do, so that the arrays needn't all be in memory at once.
    """

    values: Mapping[str, Any] = field(default_factory=dict)
    arrays: Mapping[str, Array] = field(default_factory=dict)
    finished: bool = True
    sections: Mapping[str, Iterable[tuple[str, Array]]] = field(default_factory=dict)


@dataclass(frozen=True)
class Cost:
    """Time and memory of one task.

    Attributes
    ----------
    seconds : float
        Wall time.
    peak_memory_bytes : int
        Peak resident memory of the process during the task, other tasks in it included.
    tasks_at_once : int
        Largest number of tasks that ran in the process at the same time, this one included.
    """

    seconds: float
    peak_memory_bytes: int
    tasks_at_once: int = 1


@dataclass(frozen=True)
class Artifact(ABC):
    """The result of a part, as tasks read it.

    Attributes
    ----------
    values : mapping
        Its JSON values.
    objects : mapping
        Its arrays, and objects with sections, by name.
    """

    values: Mapping[str, Any]
    objects: Mapping[str, Mapping[str, Any]]

    @abstractmethod
    def array(self, name: str) -> Array:
        """Read one array."""

    @abstractmethod
    def section(self, name: str, section: str) -> Array:
        """Read one section of an object, which is read only."""

    @abstractmethod
    def path(self, name: str) -> str:
        """Return where an array is, as results name it."""

    @abstractmethod
    def partition(self, index: int) -> Artifact:
        """Return the result of one partition of the stage that this artifact belongs to."""


@dataclass(frozen=True)
class StoredArtifact(Artifact):
    """The published result of a part, as its marker describes it.

    Arrays are read on demand, and each read checks size and checksum.
    """

    store: ObjectStore
    part: str
    attempt: str
    cost: Cost

    def array(self, name: str) -> Array:
        """Read one array.

        Raises
        ------
        CorruptResult
            If its object is missing or differs from the marker.
        """
        return _decode(read_checked(self.store, self.part, self.objects[name]))

    def section(self, name: str, section: str) -> Array:
        """Read one section of an object, which is read only.

        Raises
        ------
        CorruptResult
            If its object is missing, or the section differs from the marker.
        """
        key, sections = self.objects[name]["key"], self.objects[name]["sections"]
        start, stop, checksum = sections[section]
        store = self.store
        return _decode(
            _checked(self.part, key, checksum, lambda: store.read_range(key, start, stop)),
            copy=False,
        )

    def path(self, name: str) -> str:
        """Return the path of an array, relative to the job folder."""
        return str(self.objects[name]["key"])

    def partition(self, index: int) -> StoredArtifact:
        """Return the result of one partition of the stage that this artifact belongs to."""
        return need_marker(self.store, f"{self.part.rpartition('/')[0]}/part-{index:05d}")


def write_arrays(
    store: ObjectStore, part: str, attempt: str, output: Output
) -> dict[str, dict[str, Any]]:
    """Store an attempt's arrays and return their descriptions for the marker."""
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
) -> StoredArtifact:
    """Try to publish an attempt, whose arrays are stored already, as the part's result.

    The marker of a partition isn't waited for: if it is lost in a power failure, the partition is
    computed again. Of what follows from all partitions, their data may be gone by then.

    Returns
    -------
    StoredArtifact
        The part's result: this attempt's, or that of an earlier winner.
    """
    body = {
        "attempt": attempt,
        "values": dict(values),
        "objects": dict(objects),
        **asdict(cost),
    }
    marker = json.dumps({**body, "digest": digest(body)}, allow_nan=False).encode()
    durable = not part.rpartition("/")[2].startswith("part-")
    if store.create(f"{part}.json", marker, durable=durable):
        return _published(store, part, body)
    winner = need_marker(store, part)
    if winner.attempt != attempt:
        store.remove_all(f"{part}.{attempt}")
    return winner


def read_marker(store: ObjectStore, part: str) -> StoredArtifact | None:
    """Return a part's result, or None if its marker is missing or damaged."""
    try:
        return parse_marker(store, part, store.read(f"{part}.json"))
    except FileNotFoundError:
        return None


def read_markers(store: ObjectStore, parts: Iterable[str]) -> list[StoredArtifact | None]:
    """Return what :func:`read_marker` returns for each part; several are read at once."""
    return run_requests(store, partial(read_marker, store), parts)


def parse_marker(store: ObjectStore, part: str, data: bytes) -> StoredArtifact | None:
    """Return the result that a marker's bytes describe, or None if they are damaged."""
    try:
        body = json.loads(data)
        recorded = body.pop("digest")
        if digest_of_parsed(body) != recorded:
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
    # A manipulated marker must not refer to objects outside its own part.
    return artifact if inside else None


def need_marker(store: ObjectStore, part: str) -> StoredArtifact:
    """Return a part's result.

    Raises
    ------
    CorruptResult
        If its marker is missing or damaged.
    """
    return checked_marker(part, read_marker(store, part))


def checked_marker(part: str, found: StoredArtifact | None) -> StoredArtifact:
    """Return a part's result as it was read; None raises :class:`CorruptResult`."""
    if found is None:
        raise CorruptResult(part, f"{part}.json is missing or damaged")
    return found


def check_sizes(
    artifact: StoredArtifact, sizes: Mapping[str, int], gone: Collection[str] = ()
) -> None:
    """Check that all objects of a result exist and have the right sizes, without reading them.

    Objects whose names are in ``gone`` may be missing.

    Raises
    ------
    CorruptResult
        Names the first object that is missing or has another size.
    """
    for name, described in artifact.objects.items():
        key, size = described["key"], described["size"]
        if key not in sizes and name in gone:
            continue
        if key not in sizes:
            raise CorruptResult(artifact.part, f"{key} is missing")
        if sizes[key] != size:
            raise CorruptResult(artifact.part, f"{key} has {sizes[key]} bytes, not {size}")


def check_bytes(artifact: StoredArtifact, gone: Collection[str] = ()) -> int:
    """Check every byte of a result, one object at a time, and return the number of bytes.

    Objects whose names are in ``gone`` may be missing.

    Raises
    ------
    CorruptResult
        Names the first object that is missing, truncated or altered.
    """
    return sum(len(data) for _, data in _read_objects(artifact, gone))


def _read_objects(artifact: StoredArtifact, gone: Collection[str]) -> Iterator[tuple[str, bytes]]:
    """Yield key and checked bytes of every object; those in ``gone`` may be missing."""
    for name, described in artifact.objects.items():
        if name not in gone or artifact.store.exists(described["key"]):
            yield described["key"], read_checked(artifact.store, artifact.part, described)


def reuse_stage(
    origin: ObjectStore, target: ObjectStore, folder: str, gone: Collection[str] = ()
) -> bool:
    """Copy a finished stage from another job's folder, checking every byte.

    Objects whose names are in ``gone`` may be missing there.

    Returns
    -------
    bool
        False if the other job doesn't have the complete stage; then no marker was created.
    """
    try:
        parts = [key.removesuffix(".json") for key in origin.keys(folder) if key.endswith(".json")]
        markers = {part: origin.read(f"{part}.json") for part in parts}
        parsed = [parse_marker(origin, part, data) for part, data in markers.items()]
        whole = [marker for marker in parsed if marker is not None]
        if f"{folder}/result" not in parts or len(whole) < len(parts):
            return False
        for marker in whole:
            for key, data in _read_objects(marker, gone):
                target.write(key, data)
    except (CorruptResult, OSError, LatentscaleError):
        # Another job's folder may be private, damaged, or changing at this moment.
        return False
    # The stage's own marker is created last, because it declares the stage complete.
    for part in sorted(parts, key=lambda part: part.endswith("/result")):
        target.create(f"{part}.json", markers[part], durable=part.endswith("/result"))
    return True


def reuse_part(origin: ObjectStore, source: str, target: ObjectStore, part: str) -> bool:
    """Copy a part of another job, checking every byte, and publish it as a part of this job.

    Returns
    -------
    bool
        False if the other job doesn't have the complete part.
    """
    try:
        found = need_marker(origin, source)
        read = {name: read_checked(origin, source, found.objects[name]) for name in found.objects}
    except (CorruptResult, OSError, LatentscaleError):
        return False  # another job's folder may be private, damaged, or changing at this moment
    objects = {
        name: {**found.objects[name], **_write(target, part, found.attempt, name, data)}
        for name, data in read.items()
    }
    create_marker(target, part, found.attempt, found.values, objects, found.cost)
    return True


def withdraw(store: ObjectStore, part: str) -> None:
    """Delete a part's marker and the objects of all attempts at it."""
    store.remove(f"{part}.json")
    folder, _, name = part.rpartition("/")
    for other in store.folders(folder):
        if other.startswith(f"{name}."):
            store.remove_all(f"{folder}/{other}")


def collect_garbage(store: ObjectStore, folder: str) -> list[str]:
    """Delete the objects in a stage's folder that no marker names.

    Returns
    -------
    list of str
        The keys of the others.
    """
    keys = store.keys(folder)
    there = frozenset(keys)
    arrays = [key for key in keys if key.endswith(".npy")]
    attempts = dict.fromkeys(key.rpartition("/")[0] for key in arrays)
    tries = Counter(map(_part_of, attempts))
    # Of a part with a marker, the only attempt that left anything is the one that the marker names.
    # A listing may still lack a marker that was published after its arrays.
    sole = {a for a in attempts if tries[_part_of(a)] == 1 and f"{_part_of(a)}.json" in there}
    parts = dict.fromkeys(_part_of(attempt) for attempt in attempts if attempt not in sole)
    winners = {f"{m.part}.{m.attempt}" for m in read_markers(store, parts) if m is not None}
    named = winners | sole
    garbage = {key for key in arrays if key.rpartition("/")[0] not in named}
    run_requests(store, store.remove, garbage)
    return [key for key in keys if key not in garbage]


def _part_of(attempt: str) -> str:
    """Return the part that an attempt's folder belongs to."""
    return attempt.rpartition(".")[0]


def remove_parts(
    store: ObjectStore, folder: str, going: Collection[str], staying: Iterable[str]
) -> None:
    """Remove objects of parts.

    Parameters
    ----------
    store : ObjectStore
        The job folder.
    folder : str
        The folder of the parts.
    going, staying : collection and iterable of str
        Keys of all objects in the folder: those that are removed, and the others.
    """
    markers = {key for key in going if key.endswith(".json")}
    arrays = [key for key in going if key not in markers]
    # Markers first: a marker without its objects would look damaged.
    run_requests(store, store.remove, markers)
    if store.is_local:  # whole folders, with what killed writers left there

        def inside(key: str) -> str:
            return key[len(folder) + 1 :].partition("/")[0]

        kept = set(map(inside, staying))
        folders = {name for name in store.folders(folder) if name not in kept}
        run_requests(store, store.remove_all, [f"{folder}/{name}" for name in folders])
        arrays = [key for key in arrays if inside(key) not in folders]
    run_requests(store, store.remove, arrays)


def _encode(array: Array) -> bytes:
    buffer = io.BytesIO()
    np.save(buffer, np.ascontiguousarray(array), allow_pickle=False)
    return buffer.getvalue()


def _decode(data: bytes, *, copy: bool = True) -> Array:
    start = _HEADER_BEGINS + int.from_bytes(data[_HEADER_BEGINS - 2 : _HEADER_BEGINS], "little")
    shape, dtype = _read_header(data[:start])
    array = np.frombuffer(data, dtype, offset=start).reshape(shape)
    # Memory that is new to the process takes several times as long to fill as memory that isn't.
    return array.copy() if copy else array


@lru_cache(maxsize=1024)
def _read_header(header: bytes) -> tuple[tuple[int, ...], np.dtype[Any]]:
    """Return shape and type; NumPy parses a header as Python, which small arrays needn't repeat."""
    file = io.BytesIO(header)
    np.lib.format.read_magic(file)
    shape, _, dtype = np.lib.format.read_array_header_1_0(file)
    return shape, dtype


def _join_sections(sections: Iterable[tuple[str, Array]]) -> tuple[bytearray, dict[str, list[Any]]]:
    """Join arrays to one object; return it with start, stop and checksum of each array."""
    whole, places = bytearray(), {}
    for name, array in sections:
        data, start = _encode(array), len(whole)
        whole += data
        places[name] = [start, len(whole), xxhash.xxh3_64_hexdigest(data)]
    return whole, places


def _write(store: ObjectStore, part: str, attempt: str, name: str, data: Bytes) -> dict[str, Any]:
    key = f"{part}.{attempt}/{name}.npy"
    # Readers check every byte against the marker, so data lost in a power failure are computed
    # again.
    store.write(key, data, durable=False)
    return describe_object(key, data)


def describe_object(key: str, data: Bytes) -> dict[str, Any]:
    """Return key, size and checksum of an object, as markers list them."""
    return {"key": key, "size": len(data), "xxh3": xxhash.xxh3_64_hexdigest(data)}


def read_checked(store: ObjectStore, part: str, recorded: Mapping[str, Any]) -> bytes:
    """Read an object whose key, size and checksum are recorded.

    Raises
    ------
    CorruptResult
        If it is missing, truncated or altered.
    """
    key, size = recorded["key"], recorded["size"]
    return _checked(part, key, recorded["xxh3"], lambda: store.read(key, size), size)


def _checked(
    part: str, key: str, checksum: str, read: Callable[[], bytes], size: int | None = None
) -> bytes:
    """Read an object, or a section of it, and compare it with its marker."""
    try:
        data = read()
    except FileNotFoundError:
        raise CorruptResult(part, f"{key} is missing") from None
    except CutShort:
        raise CorruptResult(part, f"{key} is truncated") from None
    if size is not None and len(data) != size:
        raise CorruptResult(part, f"{key} has {len(data)} bytes, not {size}")
    if xxhash.xxh3_64_hexdigest(data) != checksum:
        raise CorruptResult(part, f"{key} differs from its checksum")
    return data


def _published(store: ObjectStore, part: str, body: Mapping[str, Any]) -> StoredArtifact:
    return StoredArtifact(
        store=store,
        part=part,
        attempt=body["attempt"],
        values=body["values"],
        objects=body["objects"],
        cost=Cost(body["seconds"], body["peak_memory_bytes"], body.get("tasks_at_once", 1)),
    )
