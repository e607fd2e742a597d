"""Objects in the memory of this process, for results that aren't kept."""

from __future__ import annotations

from fsspec.implementations.memory import MemoryFileSystem

from latentscale_pipeline.storage.objects import ObjectStore


class InMemoryStore(ObjectStore):
    """A separate store in memory that is freed with its last reference.

    All ``memory://`` URLs refer to one store of the process, which would outlive a call and be
    shared between threads.
    """

    def __init__(self) -> None:
        super().__init__("memory://")
        # In fsspec all instances share the dictionary of the class.
        self._fs = MemoryFileSystem(skip_instance_cache=True)
        self._fs.store, self._fs.pseudo_dirs = {}, [""]
