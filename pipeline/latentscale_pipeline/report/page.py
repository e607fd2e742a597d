"""The page: what a person wants to know first, then every measure, then how it was found.

The page reads a results document, the provenance that it names, and nothing else. Whatever a user
may have named (the job, a corpus, a label, a measure) reaches the page through the template's
escaping; figures travel as JSON whose ``<``, ``>`` and ``&`` are written as escapes, so that no
text can end the element that holds it. The page carries its own content security policy: only its
two scripts run, and nothing is fetched.
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from importlib import resources
from typing import Any

from jinja2 import Environment, StrictUndefined
from markupsafe import Markup
from plotly.offline import get_plotlyjs

from latentscale_pipeline.notation import (
    Written,
    printable,
    score_name,
    write_bytes,
    write_duration,
    write_estimate,
    write_number,
    write_share,
)
from latentscale_pipeline.report.figures import (
    Figure,
    geomca_figures,
    heat_figures,
    magnitude_figures,
    vendi_figures,
)
from latentscale_pipeline.report.meanings import BETTER, BOUNDS, MEASURES, Meaning

Json = dict[str, Any]

SHOWN_COMPONENT_ROWS = 15
"""Components in the table; the chart shows more and the store holds all."""


@dataclass(frozen=True, slots=True)
class Fact:
    """One number of the opening, with its bracket and what it means."""

    label: str
    value: str
    bracket: str = ""
    note: str = ""


@dataclass(frozen=True, slots=True)
class Answer:
    """What the opening says to one question."""

    question: str
    facts: list[Fact]
    note: str = ""


@dataclass(frozen=True, slots=True)
class Table:
    """A table of texts; the columns in ``numeric`` are aligned to the right."""

    caption: str
    header: Sequence[str]
    rows: list[Sequence[str]]
    numeric: frozenset[int] = frozenset()


@dataclass(frozen=True, slots=True)
class Section:
    """One measure: what it asks, its figures, its scores and what a reader must know."""

    key: str
    title: str
    question: str
    source: str
    scores: Table
    meanings: list[Meaning]
    figures: list[Figure] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    tables: list[Table] = field(default_factory=list)


def render_report(results: Json, provenance: Json | None = None) -> str:
    """Return the report of a finished job as one self-contained HTML document.

    Parameters
    ----------
    results : dict
        A document of the schema ``latentscale.results/1``.
    provenance : dict, optional
        The job's document of the schema ``latentscale.provenance/1``.

    Returns
    -------
    str
        HTML of about 5 MB, nearly all of it the plotting library; needs no network.
    """
    environment = Environment(
        autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    environment.policies["json.dumps_kwargs"] = {"allow_nan": False}
    environment.filters["printable"] = printable
    sections = _sections(results)
    scripts = [_newlines(get_plotlyjs()), _text("page.js")]
    return environment.from_string(_text("page.html.j2")).render(
        job=results["job"],
        answers=_answers(results),
        sections=sections,
        figures={figure.key: figure.document for part in sections for figure in part.figures},
        bounds=BOUNDS.values(),
        method=_method(results),
        provenance=[
            _corpora_table(results["corpora"]),
            *_provenance_tables(results),
            *_run_tables(provenance),
        ],
        timings=_timings_table(results["timings"]),
        warning=_sampling_warning(results["scores"]),
        style=Markup(_text("page.css")),  # noqa: S704  (the package's own file)
        scripts=[Markup(script) for script in scripts],  # noqa: S704  (plotly's and our own)
        script_hashes=[_content_hash(script) for script in scripts],
    )


def _text(name: str) -> str:
    return _newlines(resources.files(__package__).joinpath(name).read_text("utf-8"))


def _newlines(text: str) -> str:
    """Write line ends as a browser does before it hashes a script."""
    return text.replace("\r\n", "\n").replace("\r", "\n")


def _content_hash(script: str) -> str:
    digest = hashlib.sha256(script.encode()).digest()
    return f"sha256-{base64.b64encode(digest).decode()}"


# --- the opening ------------------------------------------------------------------------------


def _answers(results: Json) -> list[Answer]:
    return [
        _how_big(results["corpora"]),
        _how_diverse(results),
        _how_certain(results),
        _compared_with_what(results),
    ]


def _how_big(corpora: Json) -> Answer:
    facts = []
    for role in ("corpus", "reference"):
        corpus = corpora.get(role)
        if corpus is None:
            continue
        duplicates = corpus["duplicates"]
        if duplicates is None:
            note = "duplicates unknown"
        elif duplicates == 0:
            note = "no duplicate rows"
        else:
            note = f"{duplicates:,} duplicate rows ({write_share(duplicates / corpus['n'])})"
        if "excluded_rows" in corpus:
            note += f", {corpus['excluded_rows']:,} rows left out"
        facts.append(
            Fact(f"rows of the {role}", f"{corpus['n']:,}", f"× {corpus['d']:,} dimensions", note)
        )
    return Answer("How big?", facts)


def _how_diverse(results: Json) -> Answer:
    scores = [row for row in results["scores"] if row.get("label") is None]
    facts = []
    kernels = dict.fromkeys(row.get("kernel") for row in scores if row["measure"] == "vendi")
    for kernel in kernels:
        rows = [row for row in scores if row["measure"] == "vendi" and row.get("kernel") == kernel]
        order = "1" if any(row.get("order") == "1" for row in rows) else rows[0].get("order")
        name = f"Vendi score, {printable(kernel)} kernel, order {printable(order)}"
        facts += _beside_reference(
            name,
            [row for row in rows if row.get("order") == order],
            f"out of {results['corpora']['corpus']['n']:,}",
        )
    area = [row for row in scores if (row["measure"], row["score"]) == ("magnitude", "area")]
    facts += _beside_reference("MagArea, diversity over all scales", area, "")
    remark = "Counts say how many completely dissimilar items would be as diverse."
    return Answer(
        "How diverse?", facts, remark if facts else "This run asked for no measure of diversity."
    )


def _beside_reference(name: str, rows: list[Json], remark: str) -> list[Fact]:
    """Return the corpus's score as a fact, with the reference's in its note."""
    by_role = {row["of"]: row for row in rows}
    if "corpus" not in by_role:
        return []
    remarks = [remark] if remark else []
    reference = by_role.get("reference")
    if reference is not None and reference["value"] is not None:
        written = _written(reference)
        remarks.append(f"reference: {written.value} {written.bracket}")
    return [_fact(name, by_role["corpus"], "; ".join(remarks))]


def _fact(name: str, row: Json, note: str = "") -> Fact:
    if row["value"] is None:
        return Fact(name, "none", "", printable(row.get("reason") or "no reason was recorded"))
    written = _written(row)
    error = row["sampling_error"]
    if error is not None:
        known = f"sampling error ± {write_number(error, 2, typeset=True)}"
        note = f"{known}; {note}" if note else known
    unit = "" if row["unit"] == "fraction" else f" {printable(row['unit'])}"
    return Fact(name, written.value, f"{written.bracket}{unit}, {_how(row)}", note)


def _how(row: Json) -> str:
    return BOUNDS[row["bounds"]].name if row["bounds"] in BOUNDS else ""


def _how_certain(results: Json) -> Answer:
    scores = results["scores"]
    counts = {bounds: sum(row["bounds"] == bounds for row in scores) for bounds in BOUNDS}
    kinds = [f"{BOUNDS[bounds].name}: {count}" for bounds, count in counts.items() if count]
    missing = sum(row["value"] is None for row in scores)
    if missing:
        kinds.append(f"could not be computed: {missing}")
    facts = [
        Fact("scores, by how their brackets were obtained", f"{len(scores)}", "", ", ".join(kinds))
    ]
    widest = _widest_bracket(scores)
    if widest is not None:
        facts.append(widest)
    return Answer("How certain?", facts, _recall_remark(results["measures"].get("heat", {})))


def _widest_bracket(scores: list[Json]) -> Fact | None:
    """Return the score whose bracket is the widest in relation to its value."""
    shares = [
        (max(row["upper"] - row["value"], row["value"] - row["lower"]) / abs(row["value"]), row)
        for row in scores
        if row["value"]
    ]
    if not shares:
        return None
    share, row = max(shares, key=lambda pair: pair[0])
    where = f"{printable(row['measure'])}: {_title(row)}, {printable(row['of'])}"
    return Fact("widest bracket", f"± {write_number(100 * share, 2)} %", "of the value", where)


def _recall_remark(heat: Json) -> str:
    recalls = [heat[role]["graph"]["recall"] for role in ("corpus", "reference") if heat.get(role)]
    if not recalls:
        return ""
    lowest = min(recalls, key=lambda recall: float(recall["lower"]))
    if lowest["lower"] == 1:
        return "The neighbour graphs are exact."
    return (
        f"Recall of the neighbour graph: {write_number(lowest['value'], 5)}, at least "
        f"{write_number(lowest['lower'], 5)} ({lowest['sampled']:,} rows checked)."
    )


def _compared_with_what(results: Json) -> Answer:
    reference = results["corpora"].get("reference")
    if reference is None:
        return Answer(
            "Compared with what?",
            [],
            "Nothing: this run had no reference, so its numbers describe the corpus alone.",
        )
    wanted = (
        ("heat", "imd"),
        ("geomca", "precision"),
        ("geomca", "recall"),
        ("magnitude", "difference"),
    )
    facts = [
        _fact(meaning.title, row, meaning.sentence)
        for measure, score in wanted
        for meaning in (MEASURES[measure].scores[score],)
        for row in results["scores"]
        if (row["measure"], row["score"], row["of"]) == (measure, score, "pair")
        and row.get("label") is None
    ]
    return Answer("Compared with what?", facts, f"Reference: {printable(reference['uri'])}")


def _sampling_warning(scores: list[Json]) -> str:
    unknown = sum(row["sampling_error"] is None for row in scores)
    if not unknown:
        return ""
    many = "every score" if unknown == len(scores) else f"{unknown} of {len(scores)} scores"
    return (
        f"The sampling error of {many} is unknown. Brackets bound the numbers of this very "
        "corpus; another sample from the same source would score differently, so a difference in "
        "such a score can't be called significant."
    )


# --- the measures -----------------------------------------------------------------------------


def _sections(results: Json) -> list[Section]:
    """Return one section a measure that was asked for, the known ones first."""
    scored = dict.fromkeys(row["measure"] for row in results["scores"])
    known = [name for name in MEASURES if name in scored or name in results["measures"]]
    return [
        *(_known_section(name, results) for name in known),
        *(
            _further_section(f"further-{position}", name, results)
            for position, name in enumerate(scored)
            if name not in MEASURES
        ),
    ]


def _known_section(name: str, results: Json) -> Section:
    measure = MEASURES[name]
    rows = [row for row in results["scores"] if row["measure"] == name]
    found = results["measures"].get(name)
    return Section(
        key=name,
        title=measure.title,
        question=measure.question,
        source=measure.source,
        scores=_scores_table(rows),
        meanings=[
            measure.scores[score]
            for score in dict.fromkeys(row["score"] for row in rows)
            if score in measure.scores
        ],
        figures=_FIGURES[name](found) if found else [],
        notes=_NOTES[name](found) if found else [],
        tables=_geomca_tables(found) if found and name == "geomca" else [],
    )


def _further_section(key: str, name: str, results: Json) -> Section:
    rows = [row for row in results["scores"] if row["measure"] == name]
    return Section(
        key=key,
        title=printable(name),
        question="",
        source="",
        scores=_scores_table(rows),
        meanings=[],
    )


def _scores_table(rows: list[Json]) -> Table:
    return Table(
        caption="Scores",
        header=("score", "of", "value", "bracket", "how", "sampling error", "unit", "better"),
        rows=[_score_cells(row) for row in rows],
        numeric=frozenset({2, 5}),
    )


def _title(row: Json) -> str:
    """Return the name of a score in the papers, with its qualifiers."""
    name = score_name(row)
    measure = MEASURES.get(row["measure"])
    meaning = measure.scores.get(row["score"]) if measure else None
    if meaning is None or row["score"] == row["measure"]:
        return name
    return name.replace(row["score"], meaning.title, 1)


def _score_cells(row: Json) -> Sequence[str]:
    name = _title(row)
    ends = (printable(row["unit"]), BETTER.get(row["better"], ""))
    if row["value"] is None:
        reason = printable(row.get("reason") or "no reason was recorded")
        return (name, row["of"], "none", reason, "", "", *ends)
    written = _written(row)
    error = row["sampling_error"]
    return (
        name,
        row["of"],
        written.value,
        written.bracket,
        _how(row),
        "unknown" if error is None else f"± {write_number(error, 2, typeset=True)}",
        *ends,
    )


def _written(row: Json) -> Written:
    return write_estimate(row["value"], row["lower"], row["upper"], typeset=True)


def _geomca_tables(geomca: Json) -> list[Table]:
    return [_components_table(geomca), *([_sweep_table(geomca)] if geomca.get("sweep") else [])]


def _sweep_table(geomca: Json) -> Table:
    settings = ("epsilon", "delta", "eta_c", "eta_q")
    scores = ("precision", "recall", "consistency", "quality")
    return Table(
        caption="Scores at other distances and thresholds",
        header=("ε", "δ", "η_c", "η_q", *scores, "components"),
        rows=[
            (
                *(write_number(entry[name]) for name in settings),
                *(f"{entry[name]:.3f}" for name in scores),
                f"{entry['component_count']:,}",
            )
            for entry in geomca["sweep"]
        ],
        numeric=frozenset(range(9)),
    )


def _components_table(geomca: Json) -> Table:
    components = geomca["components"][:SHOWN_COMPONENT_ROWS]
    return Table(
        caption=f"The {len(components)} largest components (counts of thinned points)",
        header=("rank", "points", "reference", "corpus", "consistency", "quality", "edges"),
        rows=[
            (
                f"{component['rank']}",
                f"{component['size']:,}",
                f"{component['n_reference']:,}",
                f"{component['n_corpus']:,}",
                f"{component['consistency']:.3f}",
                f"{component['quality']:.3f}",
                f"{component['edges']:,}",
            )
            for component in components
        ],
        numeric=frozenset(range(7)),
    )


def _heat_notes(heat: Json) -> list[str]:
    notes = []
    for role in ("corpus", "reference"):
        trace = heat.get(role)
        if not trace:
            continue
        graph = trace["graph"]
        notes.append(
            f"The neighbour graph of the {role} has {graph['edges']:,} edges in "
            f"{_counted(graph['components'], 'component')}, with "
            f"{_counted(graph['isolated'], 'isolated vertex', 'isolated vertices')}."
        )
    if heat.get("imd") is None and heat.get("imd_reason"):
        notes.append(f"There is no IMD: {printable(heat['imd_reason'])}.")
    return notes


def _geomca_notes(geomca: Json) -> list[str]:
    sizes = geomca["sizes"]
    notes = [
        (
            f"Thinning kept {sizes['corpus_sparse']:,} of {sizes['corpus']:,} rows of the corpus "
            f"and {sizes['reference_sparse']:,} of {sizes['reference']:,} rows of the reference."
        ),
        _order_note(geomca.get("orders", [])),
    ]
    if "outliers" in geomca:
        outliers = geomca["outliers"]
        notes.append(
            f"{_counted(outliers['corpus'], 'row')} of the corpus and "
            f"{_counted(outliers['reference'], 'row')} of the reference are outliers: they lie in "
            "components of a single thinned point. Their numbers, and the component of every row, "
            "are among the arrays of the job."
        )
    if geomca["delta"] >= geomca["epsilon"]:
        notes.insert(
            0,
            "With δ = ε quality says nothing: two points of one corpus that are left after "
            "thinning are farther apart than ε, so every remaining edge joins the two corpora and "
            "quality is 1 by construction (0 in a component without edges). A δ below ε makes it "
            "informative.",
        )
    return notes


def _order_note(orders: list[Json]) -> str:
    note = (
        "The scores depend on the order of the rows: thinning keeps the first of several close "
        "rows, so another order keeps other rows."
    )
    if not orders:
        return f"{note} By how much is unknown here; replicates.count repeats it under random ones."
    ranges = [
        f"{score} from {write_number(min(values))} to {write_number(max(values))}"
        for score in ("precision", "recall")
        for values in ([order[score] for order in orders],)
    ]
    return (
        f"{note} Over {len(orders)} random orders {' and '.join(ranges)} came out; the brackets "
        "say where a score lies under another order."
    )


def _magnitude_notes(magnitude: Json) -> list[str]:
    reason = magnitude.get("difference_reason")
    notes = [
        "Magnitude is a property of the set of distinct rows: duplicates don't add to it.",
    ]
    if magnitude["difference"] is None and reason:
        notes.append(f"There is no MagDiff: {printable(reason)}.")
    return notes


def _vendi_notes(vendi: Json) -> list[str]:
    if not vendi.get("reference"):
        return []
    return [
        (
            "Scores of two corpora are comparable only under the same kernel and bandwidth, and "
            "can grow with the number of rows: compare corpora of like size."
        )
    ]


_FIGURES: Mapping[str, Callable[[Json], list[Figure]]] = {
    "heat": heat_figures,
    "geomca": geomca_figures,
    "magnitude": magnitude_figures,
    "vendi": vendi_figures,
}
_NOTES: Mapping[str, Callable[[Json], list[str]]] = {
    "heat": _heat_notes,
    "geomca": _geomca_notes,
    "magnitude": _magnitude_notes,
    "vendi": _vendi_notes,
}


def _counted(count: int, singular: str, plural: str | None = None) -> str:
    return f"{count:,} {singular if count == 1 else plural or singular + 's'}"


# --- how it was found -------------------------------------------------------------------------


def _method(results: Json) -> Table:
    """Return the parameters and algorithms behind each measure."""
    measures = results["measures"]
    rows: list[Sequence[str]] = []
    for role, trace in _sides(measures.get("heat")):
        tolerance = trace.get("tolerance")
        rows.append(
            (
                f"heat trace, {role}",
                f"k = {trace['k']} neighbours, {len(trace['times'])} times from "
                f"{write_number(min(trace['times']))} to {write_number(max(trace['times']))}, "
                f"{trace['probes']} probes × {trace['steps']} Lanczos steps"
                + ("" if tolerance is None else f", relative tolerance {write_number(tolerance)}")
                + f", normalization {printable(trace['normalization'])}",
            )
        )
    if measures.get("geomca"):
        geomca = measures["geomca"]
        percentile = geomca["percentile"]
        origin = (
            "given" if percentile is None else f"percentile {write_number(percentile)} of distances"
        )
        if "epsilon_lower" in geomca:
            low, high = write_number(geomca["epsilon_lower"]), write_number(geomca["epsilon_upper"])
            origin += f", {low} to {high} over samples of them"
        rows.append(
            (
                "GeomCA",
                (
                    f"ε = {write_number(geomca['epsilon'])} ({origin}), "
                    f"δ = {write_number(geomca['delta'])}, η_c = {write_number(geomca['eta_c'])}, "
                    f"η_q = {write_number(geomca['eta_q'])}"
                ),
            )
        )
    for role, function in _sides(measures.get("magnitude")):
        if not function["scales"]:
            continue
        rows.append(
            (
                f"magnitude, {role}",
                (
                    f"{_listed(function['method'])} at {len(function['scales'])} scales from "
                    f"{write_number(min(function['scales']))} to "
                    f"{write_number(max(function['scales']))}, {printable(function['metric'])} "
                    f"distance, {function['n']:,} distinct rows"
                ),
            )
        )
    for role, entries in _sides(measures.get("vendi")):
        for kernel, bandwidth in dict.fromkeys(
            (entry["kernel"], entry["bandwidth"]) for entry in entries
        ):
            methods = [
                entry["method"]
                for entry in entries
                if (entry["kernel"], entry["bandwidth"]) == (kernel, bandwidth)
            ]
            width = "" if bandwidth is None else f", σ = {write_number(bandwidth)}"
            rows.append(
                (f"Vendi, {role}", f"{printable(kernel)} kernel{width}: {_listed(methods)}")
            )
    return Table("Method", ("measure", "how it was computed"), rows)


def _sides(measure: Json | None) -> Iterable[tuple[str, Any]]:
    return [
        (role, measure[role]) for role in ("corpus", "reference") if measure and measure.get(role)
    ]


def _listed(names: Iterable[str | None]) -> str:
    return ", ".join(printable(name) for name in dict.fromkeys(names) if name)


def _corpora_table(corpora: Json) -> Table:
    return Table(
        "Corpora",
        ("role", "rows", "dimensions", "type", "duplicates", "fingerprint", "location"),
        [
            (
                role,
                f"{corpus['n']:,}",
                f"{corpus['d']:,}",
                printable(corpus["dtype"]),
                "unknown" if corpus["duplicates"] is None else f"{corpus['duplicates']:,}",
                printable(corpus["fingerprint"]),
                printable(corpus["uri"]),
            )
            for role, corpus in ((role, corpora.get(role)) for role in ("corpus", "reference"))
            if corpus is not None
        ],
        numeric=frozenset({1, 2, 4}),
    )


def _provenance_tables(results: Json) -> list[Table]:
    job = results["job"]
    rows: list[Sequence[str]] = [
        ("job", printable(job["id"])),
        ("configuration", printable(job["config_hash"])),
        ("seed", printable(job["seed"])),
        ("latentscale", printable(job["version"])),
        ("started", printable(job["started"] or "unknown")),
        ("finished", printable(job["finished"] or "unknown")),
    ]
    elapsed = _elapsed(job["started"], job["finished"])
    if elapsed is not None:
        rows.append(("elapsed", write_duration(elapsed)))
    rows += [
        (f"cluster {printable(key)}", printable(value)) for key, value in job["cluster"].items()
    ]
    tables = [Table("Job", ("what", "value"), rows)]
    if results["arrays"]:
        arrays = [(printable(name), printable(path)) for name, path in results["arrays"].items()]
        tables.append(Table("Arrays in the job's folder", ("array", "path"), [*arrays]))
    return tables


def _run_tables(provenance: Json | None) -> list[Table]:
    """Return with what, and on what, the run worked that finished the job."""
    if not provenance or not provenance["runs"]:
        return []
    run = provenance["runs"][-1]
    git, machine, threads = run["git"], run["machine"], run["threads"]
    memory = write_bytes(machine["memory_bytes"])
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


def _timings_table(timings: list[Json]) -> Table:
    rows: list[Sequence[str]] = [
        (
            printable(timing["stage"]),
            write_duration(timing["seconds"]),
            f"{timing['tasks']:,}",
            "unknown" if timing["peak_memory_bytes"] is None else _peak(timing),
            write_bytes(timing["projected_memory_bytes"])
            if "projected_memory_bytes" in timing
            else "unknown",
            "yes" if timing["resumed"] else "no",
            printable(timing["reason"] or ""),
        )
        for timing in timings
    ]
    total = sum(timing["seconds"] for timing in timings)
    peaks = [timing["peak_memory_bytes"] for timing in timings if timing["peak_memory_bytes"]]
    if rows:
        rows.append(
            (
                "all stages",
                write_duration(total),
                f"{sum(timing['tasks'] for timing in timings):,}",
                write_bytes(max(peaks)) if peaks else "unknown",
                "",
                "",
                "",
            )
        )
    return Table(
        "Time and memory",
        ("stage", "time", "tasks", "peak memory", "projected", "reused", "reason"),
        rows,
        numeric=frozenset({1, 2, 3, 4}),
    )


def _peak(timing: Json) -> str:
    """Write a peak, and of how many tasks together where it is that of several."""
    peak, tasks = write_bytes(timing["peak_memory_bytes"]), timing.get("tasks_at_once", 1)
    return peak if tasks == 1 else f"{peak} of {tasks} tasks"
