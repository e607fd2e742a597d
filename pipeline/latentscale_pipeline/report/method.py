"""Build the method section of a report: parameters, algorithms, time, memory, provenance."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any

from latentscale_pipeline.measures.registry import MEASURES
from latentscale_pipeline.results.definitions import Definition
from latentscale_pipeline.results.model import Corpus, Results, Timing
from latentscale_pipeline.results.part import Role
from latentscale_pipeline.views.content import Section, Table, table_of
from latentscale_pipeline.views.formatting import format_bytes, format_duration, printable
from latentscale_pipeline.views.repeats import REPEATS, format_repeats
from latentscale_pipeline.views.terms import BOUNDS

Json = dict[str, Any]


def method_section(results: Results, provenance: Json | None) -> Section:
    """Return the section on methods, definitions, cost and provenance."""
    tables = [
        _method(results),
        _timings_table(results.timings),
        _corpora_table(results.corpora.by_role()),
        *_provenance_tables(results),
        *_run_tables(provenance),
    ]
    return Section(
        key="method",
        title="How this was computed",
        folded=True,
        question="Every number has a bracket [lower, upper] that bounds the measure of this "
        "particular corpus. The kind of the bracket says what its ends guarantee.",
        glossary=[*PROMISES, SAMPLING_ERROR],
        tables=[table for table in tables if table.rows],
    )


PROMISES = [
    Definition(bound_kind.name, f"{bound_kind.sentence}.") for bound_kind in BOUNDS.values()
]

SAMPLING_ERROR = Definition(
    "sampling error",
    "not part of the bracket: the standard error over fresh samples from the same source.",
)


def _method(results: Results) -> Table:
    """Return the parameters and algorithms behind each measure."""
    rows = [
        row
        for name, measure in MEASURES.items()
        if (found := results.part(name))
        for row in measure.report.methods(found)
    ]
    return Table("Method", ("measure", "how it was computed"), rows)


def _corpora_table(corpora: Mapping[Role, Corpus]) -> Table:
    rows = [
        {
            "role": role,
            "rows": f"{corpus.n:,}",
            "dimensions": "unknown" if corpus.d is None else f"{corpus.d:,}",
            "type": printable(corpus.dtype or "unknown"),
            REPEATS: format_repeats(corpus)[0],
            "fingerprint": printable(corpus.fingerprint),
            "location": printable(corpus.uri or "unknown"),
        }
        for role, corpus in corpora.items()
    ]
    return table_of("Corpora", rows, numeric=("rows", "dimensions", REPEATS))


def _provenance_tables(results: Results) -> list[Table]:
    job = results.job
    rows: list[Sequence[str]] = [
        ("job", printable(job.id)),
        ("configuration", printable(job.config_hash)),
        ("seed", printable(job.seed)),
        ("latentscale", printable(job.version)),
        ("started", printable(job.started or "unknown")),
        ("finished", printable(job.finished or "unknown")),
    ]
    elapsed = _elapsed(job.started, job.finished)
    if elapsed is not None:
        rows.append(("elapsed", format_duration(elapsed)))
    cluster = job.cluster or {}
    rows += [(f"cluster {printable(key)}", printable(cluster[key])) for key in cluster]
    tables = [Table("Job", ("what", "value"), rows)]
    if results.arrays:
        arrays = [(printable(name), printable(path)) for name, path in results.arrays.items()]
        tables.append(Table("Arrays in the job's folder", ("array", "path"), [*arrays]))
    return tables


def _run_tables(provenance: Json | None) -> list[Table]:
    """Return the software and the machine of the run that finished the job."""
    if not provenance or not provenance["runs"]:
        return []
    run = provenance["runs"][-1]
    git, machine, threads = run["git"], run["machine"], run["threads"]
    memory = format_bytes(machine["memory_bytes"])
    rows: list[Sequence[str]] = [
        ("command", printable(run["command"] or "none: called as a library")),
        ("runs", f"{len(provenance['runs'])}"),
        ("python", printable(run["python"])),
        ("code of the measures", printable(run["latentscale"]["code"])),
        ("working folder", _git_state(git)),
        ("processor", printable(f"{machine['processor']}, {machine['cores']} cores, {memory}")),
        ("system", printable(f"{machine['system']} {machine['architecture']}")),
        ("workers × tasks at once", f"{threads['workers']} × {threads['tasks_of_a_worker']}"),
        ("threads inside a task", f"{threads['inside_a_task']}"),
        ("linear algebra", ", ".join(_linear_algebra(run["linear_algebra"])) or "unknown"),
        *(
            (f"source of the {role}", printable(_sources(corpus)))
            for role, corpus in provenance["corpora"].items()
        ),
    ]
    libraries = [(printable(name), printable(v)) for name, v in run["libraries"].items()]
    return [
        Table("Provenance", ("what", "value"), rows),
        Table("Libraries", ("library", "version"), [*libraries]),
    ]


def _git_state(git: Json | None) -> str:
    if git is None:
        return "not in a git repository"
    state = {None: "state unknown", True: "with changes", False: "clean"}[git["dirty"]]
    return printable(f"git commit {git['commit'] or 'none yet'}, {state}")


def _linear_algebra(libraries: list[Json]) -> Iterable[str]:
    return dict.fromkeys(
        printable(" ".join(str(part) for part in library.values() if part)) for library in libraries
    )


def _sources(corpus: Json) -> str:
    first = corpus["sources"][0]["path"] if corpus["sources"] else "unknown"
    more = corpus["source_count"] - 1
    return f"{first} and {more:,} more" if more > 0 else str(first)


def _elapsed(started: str | None, finished: str | None) -> float | None:
    if started is None or finished is None:
        return None
    try:
        seconds = (
            datetime.fromisoformat(finished) - datetime.fromisoformat(started)
        ).total_seconds()
    except (ValueError, TypeError):
        return None
    return max(0.0, seconds)


def _timings_table(timings: Sequence[Timing]) -> Table:
    rows = [
        {
            "stage": printable(timing.stage),
            "time": format_duration(timing.seconds),
            "tasks": f"{timing.tasks:,}",
            "peak memory": _peak(timing),
            "projected": _size(timing.projected_memory_bytes),
            "reused": "yes" if timing.resumed else "no",
            "reason": printable(timing.reason or ""),
        }
        for timing in timings
    ]
    if rows:
        total = {
            "stage": "all stages",
            "time": format_duration(sum(timing.seconds for timing in timings)),
            "tasks": f"{sum(timing.tasks or 0 for timing in timings):,}",
            "peak memory": _size(max(timing.peak_memory_bytes or 0 for timing in timings) or None),
        }
        rows.append({**dict.fromkeys(rows[0], ""), **total})
    return table_of("Time and memory", rows, numeric=("time", "tasks", "peak memory", "projected"))


COSTS = ("time", "peak memory")
"""Columns of the cost of a whole job."""


def written_cost(seconds: float | None, peak_memory_bytes: int | None) -> dict[str, str]:
    """Format the cost of a whole job: its time and the peak memory of a process."""
    time = "unknown" if seconds is None else format_duration(seconds)
    return dict(zip(COSTS, (time, _size(peak_memory_bytes)), strict=True))


def _peak(timing: Timing) -> str:
    """Format a memory peak, with the number of concurrent tasks if there were several."""
    peak, tasks = _size(timing.peak_memory_bytes), timing.tasks_at_once or 1
    return peak if tasks == 1 else f"{peak} of {tasks} tasks"


def _size(count: int | None) -> str:
    return "unknown" if count is None else format_bytes(count)
