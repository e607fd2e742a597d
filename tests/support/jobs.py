"""Running commands as a user does, and comparing what jobs give."""

import fcntl
import json
import os
import pty
import re
import struct
import subprocess
import sys
import tempfile
import termios
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import numpy as np

    from latentscale_pipeline.jobs.run import Finished

HEAVY = frozenset(
    {"numpy", "numba", "scipy", "zarr", "dask", "distributed"}
    | {"pynndescent", "sklearn", "pydantic"}
)
"""Libraries that take long to import; ``--help`` must do without."""

CONTROL = re.compile(r"\x1b\[[?\d;]*[a-zA-Z]")
"""What a terminal obeys instead of showing it: colours, and moves of the cursor."""

DAMAGES = ("missing", "empty", "truncated", "flipped")
"""What can happen to a file."""

_PROBE = """
import atexit, json, sys
path = sys.argv.pop(1)
def tell():
    with open(path, "w") as file:
        json.dump(sorted(sys.modules), file)
atexit.register(tell)
from latentscale_pipeline.cli import main
main()
"""


def command_line(*arguments: object) -> list[str]:
    """Return the arguments that start a command in a process of its own."""
    return [sys.executable, "-m", "latentscale_pipeline.cli", *map(str, arguments)]


def run_command(*arguments: object) -> subprocess.CompletedProcess[str]:
    """Run a command in a process of its own, its output captured."""
    return subprocess.run(
        command_line(*arguments), capture_output=True, text=True, check=False, timeout=3600
    )


def run_here(config: Path, *, keep: bool = False) -> "Finished":
    """Run a job in this process, without its progress."""
    from latentscale_pipeline.config.job import read_config
    from latentscale_pipeline.jobs.plan import make_plan, measure_sections
    from latentscale_pipeline.jobs.run import run_job

    read = read_config(
        config.read_text(),
        str(config),
        measures=measure_sections(),
    )
    return run_job(make_plan(read), lambda event, **fields: None, keep=keep)


def imported_libraries(*arguments: object) -> set[str]:
    """Run a command in a process of its own and return the names of packages it had imported.

    These are top-level names, and the parts of scipy.
    """
    with tempfile.TemporaryDirectory() as folder:
        found = Path(folder) / "modules.json"
        probe = [sys.executable, "-c", _PROBE, str(found), *map(str, arguments)]
        subprocess.run(probe, capture_output=True, check=True, timeout=600)
        names = json.loads(found.read_text())
        parts = {name for name in names if name.startswith("scipy.") and name.count(".") == 1}
        return parts | {name.partition(".")[0] for name in names}


def run_on_terminal(*arguments: object) -> tuple[int, str]:
    """Run a command whose standard error is a terminal; return its exit code and what that saw."""
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 50, 120, 0, 0))
    decisive = {"NO_COLOR", "FORCE_COLOR", "TTY_COMPATIBLE", "TTY_INTERACTIVE", "COLUMNS", "LINES"}
    environment = {name: value for name, value in os.environ.items() if name not in decisive}
    environment |= {"TERM": "xterm-256color", "PYTHONIOENCODING": "utf-8"}
    process = subprocess.Popen(
        command_line(*arguments), stdout=subprocess.DEVNULL, stderr=theirs, env=environment
    )
    os.close(theirs)
    seen = b""
    while True:
        try:
            chunk = os.read(ours, 1 << 16)
        except OSError:  # how Linux says that nobody holds the other end any more
            break
        if not chunk:
            break
        seen += chunk
    os.close(ours)
    return process.wait(), seen.decode("utf-8", "replace")


def damage(path: Path, kind: str, at: int = 5000) -> None:
    """Damage a file; ``flipped`` changes one bit of the byte ``at``."""
    content = path.read_bytes()
    if kind == "missing":
        path.unlink()
    elif kind == "flipped":
        path.write_bytes(content[:at] + bytes([content[at] ^ 1]) + content[at + 1 :])
    else:
        path.write_bytes({"empty": b"", "truncated": content[:-100]}[kind])


def measure_rows(
    folder: Path,
    measures: str,
    *,
    shard_bytes: int = 10**7,
    labels: str | None = None,
    ids: "Mapping[str, Sequence[str]] | None" = None,
    job: str = "",
    **corpora: "np.ndarray",
) -> dict[str, Any]:
    """Ingest rows, run measures on them in this process, and return the results.

    ``measures`` and ``job`` are YAML; the labels are of all corpora, ``ids`` of each by its role.
    The job is called ``j``.
    """
    import numpy as np

    from latentscale_pipeline.corpus.ingest.create import ingest

    folder.mkdir()
    text = f"name: j\noutput: {folder}\ncluster: {{kind: serial}}\nmeasures: {{{measures}}}\n{job}"
    for role, rows in corpora.items():
        source, stored = folder / f"{role}.npy", folder / f"{role}.zarr"
        np.save(source, rows.astype("f4"))
        named = None
        if ids is not None and role in ids:
            named = str(folder / f"{role}.txt")
            Path(named).write_text("".join(f"{one}\n" for one in ids[role]))
        ingest([str(source)], str(stored), shard_bytes=shard_bytes, labels=labels, ids=named)
        text += f"{role}: {stored}\n"
    (folder / "job.yaml").write_text(text)
    run_here(folder / "job.yaml")
    return results_of(folder)


def results_of(output: Path) -> dict[str, Any]:
    """Read the results of the only job below an output folder."""
    [path] = output.glob("*/results.json")
    results: dict[str, Any] = json.loads(path.read_text())
    return results


def timeless(results: dict[str, Any]) -> dict[str, Any]:
    """Leave out what may differ between two runs of one job: times, cluster, places."""
    kept = json.loads(json.dumps(results))
    for key in ("started", "finished", "cluster"):
        del kept["job"][key]
    del kept["timings"]
    for corpus in kept["corpora"].values():
        if corpus is not None:
            del corpus["uri"]
            corpus.pop("source", None)
    kept["arrays"] = sorted(kept["arrays"])
    return dict(kept)


def tasks_of(output: Path) -> Counter[tuple[str, int, int]]:
    """Count how often each task of a job was done, over all of its runs."""
    done: Counter[tuple[str, int, int]] = Counter()
    for log in output.glob("*/events/*.jsonl"):
        for line in log.read_text().splitlines():
            event = json.loads(line)
            if event["event"] == "part_done":
                done[event["stage"], event.get("round", 0), event["part"]] += 1
    return done
