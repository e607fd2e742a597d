"""The directive ``promises``: the newest record of each promise, from ``benchmarks/results``."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from docutils import nodes
from sphinx.application import Sphinx
from sphinx.util.docutils import SphinxDirective

RECORDS = Path(__file__).parents[2] / "benchmarks" / "results"

SHORT = 120
"""Largest number of characters of a list that is shown in full."""

VERDICTS = {True: "kept", False: "**not kept**", None: "skipped"}


def setup(app: Sphinx) -> dict[str, bool]:
    """Register the directive."""
    app.add_directive("promises", Promises)
    return {"parallel_read_safe": True, "parallel_write_safe": True}


@dataclass(frozen=True)
class Promise:
    """A promise with its newest record."""

    entry: dict[str, Any]
    started: str
    machine: str
    command: str

    def __str__(self) -> str:
        entry = self.entry
        verdict = VERDICTS[entry["held"]]
        lines = [f"**{entry['promise']}**", f": *{entry['limit']}*: {verdict}.", ""]
        lines += [f"  - {name}: {_written(value)}" for name, value in entry["figures"].items()]
        lines += ["", f"  `{self.command}`, {self.started[:10]}, {self.machine}"]
        return "\n".join(lines)


class Promises(SphinxDirective):
    """A list of all promises, each with its newest record."""

    def run(self) -> list[nodes.Node]:
        """Make the list."""
        for path in _records():
            self.env.note_dependency(str(path))
        return self.parse_text_to_nodes("\n\n".join(map(str, newest_promises())))


def newest_promises() -> list[Promise]:
    """Return every promise by its newest record, in the order of their names."""
    newest: dict[str, Promise] = {}
    for path in _records():
        record = json.loads(path.read_text("utf-8"))
        for promise in _promises(path, record):
            before = newest.get(promise.entry["promise"])
            if before is None or before.started <= promise.started:
                newest[promise.entry["promise"]] = promise
    return [newest[name] for name in sorted(newest, key=str.lower)]


def _records() -> list[Path]:
    return sorted(RECORDS.glob("full-*.json"))


def _promises(path: Path, record: dict[str, Any]) -> Iterator[Promise]:
    names = path.stem.removeprefix("full-")[len("2026-01-01-") :]
    command = f"python tests/acceptance/run.py --only {names}" if names else "make test-full"
    machine = f"{record['machine']['cores']} cores, {record['machine']['cpu']}"
    for entry in record["promises"]:
        yield Promise(entry, record["started"], machine, command)


def _written(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:.6g}"
    if not isinstance(value, dict | list):
        return str(value)
    text = json.dumps(value)
    return f"`{text}`" if len(text) <= SHORT else f"{len(value)} entries, in the record"
