"""What happened in a run, one JSON line each, in an object that only this run writes."""

from __future__ import annotations

import json
import threading
import time
from typing import Any

from latentscale_pipeline.objects import ObjectStore

FLUSH_SECONDS = 2.0


class EventLog:
    """The events of one run, written to ``events/<attempt>.jsonl``.

    Objects can't be appended to, so the whole log is written again from time to time.
    """

    def __init__(self, store: ObjectStore, attempt: str) -> None:
        self._store = store
        self._key = f"events/{attempt}.jsonl"
        self._lines: list[str] = []
        self._flushed = 0.0
        self._lock = threading.Lock()

    def record(self, event: str, **fields: Any) -> None:
        """Note an event with the time and any JSON fields."""
        with self._lock:
            self._lines.append(json.dumps({"time": time.time(), "event": event, **fields}))
            if time.monotonic() - self._flushed >= FLUSH_SECONDS:
                self._write()

    def flush(self) -> None:
        """Write what isn't written yet."""
        with self._lock:
            self._write()

    def _write(self) -> None:
        self._store.write(self._key, ("\n".join(self._lines) + "\n").encode())
        self._flushed = time.monotonic()
