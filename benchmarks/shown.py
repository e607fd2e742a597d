"""Put the newest records into the README and the documentation, of each comparison its own.

    python benchmarks/shown.py

The whole table of comparisons goes to ``docs/peers.md``, with a plot of time and memory for each.
The largest sizes that all contestants handled go to the README, the simulated times of very large
jobs to ``docs/scale.md``, and which measures find which failures to ``docs/choosing.md``. Only the
text between two comments is replaced.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from latentscale_pipeline.views.figure import Curve, Panel
from latentscale_pipeline.views.svg import draw_panels

ROOT = Path(__file__).parents[1]
RECORDS = ROOT / "benchmarks" / "results"
BEGIN, END = "<!-- record -->", "<!-- end of record -->"
MIB = 2**20

Record = Mapping[str, Any]
"""A record that ``all.py`` or ``simulation.py`` wrote."""

# --- tables ----------------------------------------------------------------------------------


def comparisons_of(record: Record) -> list[Record]:
    """Return the comparisons of a record, each with when and how it was measured."""
    header = {name: value for name, value in record.items() if name != "comparisons"}
    return [{**header, **comparison} for comparison in record["comparisons"]]


def whole_table(comparisons: Sequence[Record]) -> str:
    """Write all medians as Markdown, a table for each comparison."""
    parts = []
    for comparison in comparisons:
        parts += [
            f"## {comparison['name'][0].upper()}{comparison['name'][1:]}",
            how_measured(comparison),
            _table(comparison),
            f"![Seconds and MiB over rows](figures/{slug(comparison)}.svg)",
            _versions(comparison),
        ]
        parts += [
            f"{name} was skipped (`{install}`)." for name, install in comparison["skipped"].items()
        ]
    return "\n\n".join(parts) + "\n"


def how_measured(comparison: Record) -> str:
    """Return when and on which machine a comparison was measured."""
    threads = comparison["threads"]
    return (
        f"{comparison['started'][:10]}, medians of {comparison['repeats']} runs in turn, "
        f"{threads} thread{'s' * (threads > 1)}, {comparison['machine']['cores']} "
        f"cores, load {comparison['load_before']:.1f} before."
    )


def how_all_measured(comparisons: Sequence[Record]) -> str:
    """Return when and on which machine comparisons were measured."""
    names: dict[str, list[str]] = {}
    for comparison in comparisons:
        names.setdefault(how_measured(comparison), []).append(comparison["name"])
    most = max(names, key=lambda how: len(names[how]))
    others = [f"{', '.join(own)}: {how}" for how, own in names.items() if how != most]
    return " ".join([most, *(other[0].upper() + other[1:] for other in others)])


def _table(comparison: Record) -> str:
    columns = "| rows | contestant | seconds | times ours | warm-up s | peak MiB"
    lines = [f"{columns} | {comparison['finding']} |", "|---:|---|---:|---:|---:|---:|---:|"]
    ours = next(iter(comparison["sizes"][0]["contestants"]))
    for size in comparison["sizes"]:
        for name, one in size["contestants"].items():
            times = _short(one["times_ours"]) if ours in size["contestants"] else ""
            lines.append(
                f"| {size['rows']:,} | {name} | {_short(one['seconds'])} "
                f"| {times} | {_short(one['warm_up_seconds'])} "
                f"| {one['peak_bytes'] / MIB:.0f} | {one['found']:.6g} |"
            )
    return "\n".join(lines)


def _versions(comparison: Record) -> str:
    used: dict[str, set[str]] = {}
    for size in comparison["sizes"]:
        for one in size["contestants"].values():
            for library, version in one.get("versions", {}).items():
                used.setdefault(library, set()).add(version)
    named = (f"{name} {' and '.join(sorted(found))}" for name, found in sorted(used.items()))
    return f"Versions: {', '.join(named)}."


def brief_table(comparisons: Sequence[Record]) -> str:
    """Write, for each comparison, the largest size that every contestant handled."""
    lines = ["| | rows | latentscale | instead |", "|---|---:|---:|---|"]
    for comparison in comparisons:
        most = max(len(size["contestants"]) for size in comparison["sizes"])
        size = [size for size in comparison["sizes"] if len(size["contestants"]) == most][-1]
        (_, ours), *others = size["contestants"].items()
        instead = ", ".join(
            f"{_without_kernel(name)} {_duration(one)} ({_short(one['times_ours'], 2)} ×)"
            for name, one in others
            if "latentscale" not in name
        )
        lines.append(f"| {comparison['name']} | {size['rows']:,} | {_duration(ours)} | {instead} |")
    return "\n".join(lines)


def _without_kernel(name: str) -> str:
    return name.removeprefix("cosine ").removeprefix("rbf ")


def _duration(one: Record) -> str:
    return f"{_short(one['seconds'])} s"


def _short(number: float, digits: int = 3) -> str:
    return f"{number:.{digits}g}" if number < 10**digits - 0.5 else f"{number:.0f}"


SIMULATED = ("rows", "workers", "hours", "worker-hours", "busy", "tasks", "scheduler busy")
MOVED = ("TB moved", "store GB/s")


def simulated_table(record: Record) -> str:
    """Write the simulated times of jobs as Markdown."""
    heads = (*SIMULATED, *MOVED)
    small, large = record["measured_rows"]
    how = (
        f"{record['started'][:10]}, from jobs of {small:,} and {large:,} rows of 128 dimensions; "
        f"{record['scheduler_milliseconds_a_task']:g} ms of the scheduler for a task."
    )
    lines = [
        how,
        "",
        f"| {' | '.join(heads)} |",
        "|" + "---:|" * len(heads),
    ]
    for size in record["sizes"]:
        for c in size["clusters"]:
            cells = (
                f"{size['rows']:,}",
                c["workers"],
                _short(c["hours"]),
                _short(c["worker_hours"]),
                f"{c['utilisation']:.0%}",
                f"{c['tasks']:,}",
                f"{c['scheduler_busy']:.1%}",
                c["terabytes_moved"],
                c["store_gigabytes_a_second"],
            )
            lines.append(f"| {' | '.join(map(str, cells))} |")
    return "\n".join(lines)


# --- figures ---------------------------------------------------------------------------------


MEASURES = {
    "duplicates": "rows",
    "vendi": "Vendi",
    "magnitude": "magnitude",
    "heat": "heat, IMD",
    "geomca": "GeomCA",
    "mmd": "MMD",
    "modes": "modes",
    "spread": "spread",
    "spectrum": "effective dimensions",
    "intrinsic_dimension": "intrinsic dimension",
    "hubness": "hubness",
    "baselines": "baselines",
}
"""Columns of the table of failures."""


def detection_table(record: Record) -> str:
    """Write how often the best score of each measure found each failure, as Markdown."""
    lines = [
        f"| what happened | {' | '.join(MEASURES.values())} |",
        f"|---|{'---:|' * len(MEASURES)}",
    ]
    for failure, counts in record["failures"].items():
        best = {
            measure: max(
                (count for name, count in counts.items() if name.startswith(f"{measure}:")),
                default=0,
            )
            for measure in MEASURES
        }
        lines.append(f"| {failure} | {' | '.join(str(best[each] or '·') for each in MEASURES)} |")
    return "\n".join(lines)


def draw(comparison: Record) -> str:
    """Plot time and memory over the number of rows."""
    curves: dict[str, list[tuple[int, float, float]]] = {}
    for size in comparison["sizes"]:
        for name, one in size["contestants"].items():
            point = (size["rows"], one["seconds"], one["peak_bytes"] / MIB)
            curves.setdefault(name, []).append(point)
    return draw_panels(
        [
            Panel(
                comparison["name"],
                "rows",
                label,
                [
                    Curve(name, [p[0] for p in points], [p[column] for p in points])
                    for name, points in curves.items()
                ],
                log_x=True,
                log_y=True,
            )
            for column, label in ((1, "seconds"), (2, "MiB"))
        ],
        paper="white",
    )


def slug(comparison: Record) -> str:
    """Return the name of a comparison's figure."""
    return "-".join(["peers", *comparison["name"].replace(",", "").lower().split()])


# --- pages -----------------------------------------------------------------------------------


def newest(kind: str) -> Record:
    """Return the newest record of a kind."""
    found: Record = json.loads(max(RECORDS.glob(f"{kind}-*.json")).read_text("utf-8"))
    return found


def newest_comparisons() -> list[Record]:
    """Return the newest record of every comparison, in the order of the first record."""
    found: dict[str, Record] = {}
    for path in sorted(RECORDS.glob("comparisons-*.json")):
        for comparison in comparisons_of(json.loads(path.read_text("utf-8"))):
            found[comparison["name"]] = comparison
    return list(found.values())


def with_part(page: str, part: str) -> str:
    """Put a part between a page's two comments."""
    before, rest = page.split(BEGIN)
    _, after = rest.split(END)
    return f"{before}{BEGIN}\n\n{part.strip()}\n\n{END}{after}"


def show(comparisons: Sequence[Record], simulation: Record, detection: Record, root: Path) -> None:
    """Write tables and figures into the pages below a folder."""
    parts = {
        "README.md": f"{brief_table(comparisons)}\n\n{how_all_measured(comparisons)}",
        "docs/peers.md": whole_table(comparisons),
        "docs/scale.md": simulated_table(simulation),
        "docs/choosing.md": detection_table(detection),
    }
    for page, part in parts.items():
        path = root / page
        path.write_text(with_part(path.read_text("utf-8"), part), "utf-8")
    for comparison in comparisons:
        figure = root / "docs" / "figures" / f"{slug(comparison)}.svg"
        figure.write_text(draw(comparison) + "\n", "utf-8")


def main() -> None:
    argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    ).parse_args()
    show(newest_comparisons(), newest("simulation"), newest("detection"), ROOT)


if __name__ == "__main__":
    main()
