"""Objects in the memory of this process, for results that aren't kept."""

from __future__ import annotations

import xxhash

from latentscale_pipeline.storage.objects import Bytes, CutShort, ObjectStore


class InMemoryStore(ObjectStore):
    """A store that belongs to one call: objects by key, freed with its last reference.

    Nothing there can fail for a while, and no other writer competes, so a dictionary will do. It
    can't be sent to another process.
    """

    def __init__(self) -> None:
        self.url = "memory:"
        self._objects: dict[str, bytes] = {}

    is_local = False

    @property
    def address(self) -> str:
        """Refuse: other processes can't read it."""
        raise TypeError("a store in memory can't be sent to another process")

    def write_checked(self, key: str, data: Bytes) -> str:
        """Store an object, and return its checksum."""
        self.write(key, data)
        return xxhash.xxh3_64_hexdigest(data)

    def read(self, key: str) -> bytes:
        """Return an object's bytes."""
        try:
            return self._objects[key]
        except KeyError:
            raise FileNotFoundError(key) from None

    def read_range(self, key: str, start: int, stop: int) -> bytes:
        """Return the bytes of an object from ``start`` up to ``stop``."""
        data = self.read(key)
        if len(data) < stop:
            raise CutShort(f"{self.locate(key)} has {len(data)} bytes, not {stop} or more")
        return data[start:stop]

    def write(self, key: str, data: Bytes, *, durable: bool = True) -> None:
        """Store an object, replacing one with the same key."""
        self._objects[key] = bytes(data)

    def create(self, key: str, data: bytes, *, durable: bool = True) -> bool:
        """Store an object only if its key is free."""
        return self._objects.setdefault(key, data) == data

    def exists(self, key: str) -> bool:
        """Return whether there is an object or a folder with this key."""
        return key in self._objects or bool(self.sizes(key))

    def sizes(self, prefix: str = "") -> dict[str, int]:
        """Map the keys of all objects below a prefix (a folder) to their sizes in bytes."""
        below = f"{prefix}/" if prefix else ""
        return {key: len(data) for key, data in self._objects.items() if key.startswith(below)}

    def folders(self, prefix: str = "") -> list[str]:
        """List the names of the folders directly below a prefix, sorted."""
        start = len(prefix) + 1 if prefix else 0
        inside = {key[start:].partition("/") for key in self.sizes(prefix)}
        return sorted({name for name, slash, _ in inside if slash})

    def remove(self, key: str) -> None:
        """Delete an object, if it exists."""
        self._objects.pop(key, None)

    def remove_all(self, prefix: str = "") -> None:
        """Delete everything below a prefix."""
        for key in self.sizes(prefix):
            del self._objects[key]
