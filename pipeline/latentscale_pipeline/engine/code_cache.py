"""Digests of source files, kept in the user's cache folder.

Parsing all modules of a closure takes half a second, reading and hashing them a hundredth of that.
So what was parsed once is looked up by the hash of the file's bytes. An entry can't be stale: other
bytes have another hash. Where the cache folder can't be read or written, files are parsed again.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
from pathlib import Path
from typing import Any

MOST_ENTRIES = 2000
"""Entries that are kept, the newest ones."""


class CodeCache:
    """Entries by the hash of a file, read when the first is asked for."""

    def __init__(self, file: Path) -> None:
        self._file = file
        self._stored: dict[str, Any] | None = None
        self._added: dict[str, Any] = {}

    def get(self, key: str) -> Any:
        """Return an entry, or None."""
        if self._stored is None:
            self._stored = self._read()
        return self._added.get(key, self._stored.get(key))

    def add(self, key: str, entry: Any) -> None:
        """Add an entry, to be stored by :meth:`save`."""
        self._added[key] = entry

    def save(self) -> None:
        """Store what was added, if anything was and the folder can be written."""
        if not self._added:
            return
        # Other processes may have stored theirs meanwhile.
        entries = {**self._read(), **self._added}
        newest = dict(list(entries.items())[-MOST_ENTRIES:])
        self._stored, self._added = newest, {}
        try:
            self._file.parent.mkdir(parents=True, exist_ok=True)
            handle, temporary = tempfile.mkstemp(dir=self._file.parent, suffix=".new")
            with os.fdopen(handle, "w", encoding="utf-8") as file:
                json.dump(newest, file)
            os.replace(temporary, self._file)
        except OSError:
            return

    def _read(self) -> dict[str, Any]:
        try:
            entries = json.loads(self._file.read_text("utf-8"))
        except (OSError, ValueError):
            return {}
        return entries if isinstance(entries, dict) else {}


def cache_file() -> Path:
    """Return where entries are stored; syntax trees differ between versions of Python."""
    folder = Path(os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache"))
    version = f"{sys.version_info.major}.{sys.version_info.minor}"
    return folder / "latentscale" / f"source-{version}.json"
