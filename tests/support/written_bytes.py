"""What the processes of a run wrote to a job's folder, and what the folder held at most.

Objects are recorded by ``writes_recorded/sitecustomize.py`` in every process that gets the
environment of :func:`recording`.
"""

import os
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path


@dataclass
class Written:
    """Bytes written to a job's folder, and its bytes at most and in the end."""

    peak: int = 0
    final: int = 0
    total: int = 0
    by_stage: dict[str, int] = field(default_factory=lambda: defaultdict(int))
    peak_by_stage: dict[str, int] = field(default_factory=lambda: defaultdict(int))
    final_by_stage: dict[str, int] = field(default_factory=lambda: defaultdict(int))


def recording(folder: Path) -> dict[str, str]:
    """Return the environment of a process that records below a folder what it writes."""
    hook = Path(__file__).parent / "writes_recorded"
    path = os.pathsep.join([str(hook), *filter(None, [os.environ.get("PYTHONPATH")])])
    return {**os.environ, "PYTHONPATH": path, "LATENTSCALE_RECORD_WRITES": str(folder)}


def replay(records: Path, job: Path) -> Written:
    """Replay the records of all processes in the order of time, for one job's folder."""
    written, held = Written(), dict[str, int]()
    stages: dict[str, int] = defaultdict(int)
    for _, size, inside in sorted(_read(records, job)):
        for key in [inside] if size >= 0 else _below(held, inside):
            stage = key.split("/")[1] if key.startswith("stages/") else ""
            stages[stage] -= held.pop(key, 0)
        if size >= 0:
            held[inside] = size
            stages[stage] += size
            written.total += size
            written.by_stage[stage] += size
        written.final = sum(stages.values())
        written.peak = max(written.peak, written.final)
        if size >= 0:
            written.peak_by_stage[stage] = max(written.peak_by_stage[stage], stages[stage])
    written.final_by_stage.update(stages)
    return written


def _below(held: dict[str, int], inside: str) -> list[str]:
    return [key for key in held if key == inside or key.startswith(f"{inside}/") or not inside]


def _read(records: Path, job: Path) -> Iterator[tuple[float, int, str]]:
    root = f"{job.resolve()}/"
    for file in records.glob("*.tsv"):
        for line in file.read_text().splitlines():
            moment, size, path = line.split("\t")
            if f"{path}/".startswith(root):
                yield float(moment), int(size), path[len(root) :]
