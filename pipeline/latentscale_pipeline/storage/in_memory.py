"""Objects in the memory of this process, for results that nobody reads afterwards."""

from __future__ import annotations

from fsspec.implementations.memory import MemoryFileSystem

from latentscale_pipeline.storage.objects import ObjectStore


class InMemoryStore(ObjectStore):
    """A store that shares nothing with other stores and ends with its last reference.

    ``memory://`` URLs all name one store of the process, which would outlive a call and be written
    to by several threads.
    """

    def __init__(self) -> None:
        super().__init__("memory://")
        # fsspec gives all instances the dictionary of the class.
        self._fs = MemoryFileSystem(skip_instance_cache=True)
        self._fs.store, self._fs.pseudo_dirs = {}, [""]
