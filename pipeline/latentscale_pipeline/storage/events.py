"""The event log of a run: one JSON line per event."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from latentscale_pipeline.errors import LatentscaleError
from latentscale_pipeline.storage.objects import ObjectStore

FLUSH_SECONDS = 2.0
"""Shortest pause between writes of the log, after the first."""

MIN_PAUSE = 20.0
"""Shortest pause between writes of the log, in units of the time that the last write took."""


@dataclass(frozen=True)
class Event:
    """An event of a run: its name, its time (seconds since 1970), and its fields."""

    name: str
    time: float
    fields: Mapping[str, Any]


class EventLog:
    """The events of one run, written to ``events/<attempt>.jsonl``.

    Objects can't be appended to, so the complete log is written again: within two seconds of an
    event, or later if writing is slow. A thread writes it, so a slow store doesn't delay the run.
    If a write fails, the events are written with a later one, or by the last :meth:`flush`.
    """

    def __init__(self, store: ObjectStore, attempt: str) -> None:
        self._store = store
        self._key = f"events/{attempt}.jsonl"
        self._lines: list[str] = []
        self._written = 0
        self._pause = 0.0
        self._timer: threading.Timer | None = None
        self._lines_lock = threading.Lock()
        self._writing = threading.Lock()

    def record(self, event: str, **fields: Any) -> None:
        """Record an event with the current time and any JSON fields."""
        line = json.dumps({"time": time.time(), "event": event, **fields})
        with self._lines_lock:
            self._lines.append(line)
            if self._timer is None:
                self._timer = threading.Timer(self._pause, self._write_later)
                self._timer.daemon = True
                self._timer.start()

    def flush(self) -> None:
        """Write all events that aren't written yet."""
        with self._lines_lock:
            if self._timer is not None:
                self._timer.cancel()
                self._timer = None
        self._write()

    def _write_later(self) -> None:
        with self._lines_lock:
            self._timer = None
        try:
            self._write()
        except LatentscaleError:
            return

    def _write(self) -> None:
        with self._writing:
            with self._lines_lock:
                lines = list(self._lines)
            if len(lines) == self._written:
                return
            begun = time.monotonic()
            self._store.write(self._key, ("\n".join(lines) + "\n").encode())
            self._written = len(lines)
            self._pause = max(FLUSH_SECONDS, MIN_PAUSE * (time.monotonic() - begun))


def read_events(store: ObjectStore, attempt: str) -> list[Event]:
    """Return the events of a run so far; damaged lines are skipped."""
    try:
        lines = store.read(f"events/{attempt}.jsonl").decode("utf-8", "replace").splitlines()
    except FileNotFoundError:
        return []
    return [event for line in lines if (event := _parse(line)) is not None]


def _parse(line: str) -> Event | None:
    try:
        fields = json.loads(line)
        return Event(str(fields.pop("event")), float(fields.pop("time")), fields)
    except (ValueError, KeyError, TypeError, AttributeError):
        return None
