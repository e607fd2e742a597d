"""Build the report of a comparison of two or more finished jobs, one of which is the baseline.

Conclusions and tables come from ``scores`` alone. Figures overlay the functions of the known
measures, if the results of all jobs have them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from latentscale_pipeline.compare.cells import COLUMNS, ComparedCells, format_scores, job_names
from latentscale_pipeline.compare.columns import explain_signs, notes_of, side_by_side
from latentscale_pipeline.compare.gate_checks import GateResult
from latentscale_pipeline.compare.jobs import Comparison, list_of_baseline
from latentscale_pipeline.measures.finished_job import FinishedJob
from latentscale_pipeline.report.job import job_report
from latentscale_pipeline.report.method import COSTS, PROMISES, SAMPLING_ERROR, written_cost
from latentscale_pipeline.report.opening import fail, open_report
from latentscale_pipeline.report.scores import definitions_of, report_of, section_of
from latentscale_pipeline.report.verdict import format_verdict
from latentscale_pipeline.results.model import Corpus
from latentscale_pipeline.views.content import (
    Answer,
    Fact,
    Opening,
    Report,
    Section,
    Table,
    table_of,
)
from latentscale_pipeline.views.figure import numbered_styles
from latentscale_pipeline.views.formatting import counted, printable

NEW_ROWS = "Rows that the baseline doesn't name."
NO_NEW_ROW = "The baseline names all rows that stand out."
NO_ROW = "No row stands out."
WITHOUT_IDS = "The rows that stand out most. Without ids, new ones can't be told from old."
NOT_TOLD = "Results name only some of the rows that stand out, so none is known to be new."


def comparison_report(
    comparisons: Sequence[Comparison], gates: Sequence[GateResult] | None = None
) -> Report:
    """Return the report of some jobs against one baseline.

    Parameters
    ----------
    comparisons : sequence of Comparison
        At least one, all against the same baseline.
    gates : sequence of GateResult, optional
        Results of the gates on the first job.
    """
    baseline = comparisons[0].baseline
    jobs = [*(found.job for found in comparisons), baseline]
    names = job_names(jobs)
    against = names[0] if len(comparisons) == 1 else f"{len(comparisons)} jobs"
    measures = dict.fromkeys(
        compared.score.measure for found in comparisons for compared in found.scores
    )
    alone = len(comparisons) == 1
    summary = [] if gates is None else [_gates_summary(gates)]
    failed = any(not result.passed for result in gates or ())
    return Report(
        kind="comparison",
        title=f"{against} against {names[-1]}",
        subtitle=" · ".join(printable(job.id) for job in jobs),
        corpora=_corpora(jobs, names) if alone else (),
        opening=_opening(comparisons[0], names[-1], summary, failed=failed) if alone else None,
        conclusions=[]
        if alone
        else [
            *summary,
            *(
                _verdict_of(found, name, names[-1])
                for found, name in zip(comparisons, names, strict=False)
            ),
        ],
        answers=[
            *([] if alone else [_which_jobs(jobs, names)]),
            *([] if gates is None else [_gates(gates)]),
        ],
        warnings=notes_of(comparisons, names),
        sections=[
            *([] if alone else [_beside(comparisons, names)]),
            *(
                _section(place, measure, comparisons, jobs, names)
                for place, measure in enumerate(measures)
            ),
            _reading(jobs, names),
        ],
    )


def _opening(
    comparison: Comparison, baseline: str, gates: Sequence[str], *, failed: bool
) -> Opening:
    """Return the verdict on the baseline, with the gates beside it."""
    opening = open_report(comparison.results, baseline)
    own = comparison.job.results.verdict
    if own is not None and own.value == "differs":
        gates = [f"The job differs from its reference: {own.reason}", *gates]
    job, before = comparison.job, comparison.baseline
    beside = _parent(job) == _parent(before)
    names = job.id, before.id if beside else before.url
    commands = list_of_baseline(opening.commands, *names, comparison.new_reasons)
    changed = [] if comparison.rows is None else comparison.rows.lines.values()
    found = replace(
        opening,
        sentences=[*opening.sentences, *(f"{line}." for line in changed)],
        look_said=_look_said(comparison, opening.look_said, found=bool(opening.look)),
        commands=[command for command in commands if "--of reference" not in command],
    )
    return _with_gates(found, gates, failed=failed)


def _parent(job: FinishedJob) -> str:
    return job.url.rstrip("/").rpartition("/")[0]


def _look_said(comparison: Comparison, unknown: str, *, found: bool) -> str:
    """Say what is known of the rows that stand out in the job and not in the baseline."""
    fresh, named = comparison.results.rows, comparison.job.results.rows
    if fresh is None or named is None:
        return unknown
    if found:
        known = all(row.id is not None for each in named for row in each.rows)
        return NEW_ROWS if known else WITHOUT_IDS
    if not any(each.count for each in named):
        return NO_ROW
    return NO_NEW_ROW if len(fresh) == len(named) else NOT_TOLD


def _with_gates(opening: Opening, gates: Sequence[str], *, failed: bool) -> Opening:
    """Say what the gates said: first of all if one failed, else after the verdict."""
    if not failed:
        return replace(opening, sentences=[*opening.sentences, *gates])
    verdict = [f"{opening.heading}.", *opening.sentences]
    return fail(replace(opening, heading="", sentences=[*gates, *verdict]))


def first_report(job: FinishedJob, gates: Sequence[GateResult] | None = None) -> Report:
    """Return the report of a job that has no baseline, with its gates.

    Parameters
    ----------
    job : FinishedJob
        The job.
    gates : sequence of GateResult, optional
        Results of its gates.
    """
    report = job_report(job.results)
    if gates is None or report.opening is None:
        return report
    failed = any(not result.passed for result in gates)
    opening = _with_gates(report.opening, [_gates_summary(gates)], failed=failed)
    return replace(report, opening=opening, answers=[_gates(gates)])


def _corpora(jobs: Sequence[FinishedJob], names: Sequence[str]) -> list[tuple[str, str]]:
    return [
        (role, f"{name}: {_rows(job.corpora['corpus'])}{_source(job)}, {printable(job.url)}")
        for role, job, name in zip(("job", "baseline"), jobs, names, strict=True)
        if "corpus" in job.corpora
    ]


def _rows(corpus: Corpus) -> str:
    return counted(corpus.n, "row")


def _source(job: FinishedJob) -> str:
    return f" of {printable(job.source)}" if job.source else ""


def _verdict_of(comparison: Comparison, name: str, baseline: str) -> str:
    heading, sentences = format_verdict(comparison.verdict, baseline)
    return f"{name}: {heading}. {sentences[0]}"


def _beside(comparisons: Sequence[Comparison], names: Sequence[str]) -> Section:
    """Return the headline scores of all jobs, in columns."""
    columns = side_by_side(comparisons, names, typeset=True)
    header = ("score", *columns.names)
    rows = [tuple(row.get(name, "") for name in ("", *columns.names)) for row in columns.rows]
    return Section(
        key="scores",
        title="Scores side by side",
        question=" ".join(f"{said}." for said in explain_signs(columns)),
        tables=[Table("Headline scores", header, rows, numeric=frozenset(range(1, len(header))))],
    )


def _which_jobs(jobs: Sequence[FinishedJob], names: Sequence[str]) -> Answer:
    facts = [
        Fact(
            "baseline" if place == len(jobs) - 1 else "job",
            name,
            " · ".join(f"{_rows(corpus)} ({role})" for role, corpus in job.corpora.items()),
            printable(job.url),
        )
        for place, (job, name) in enumerate(zip(jobs, names, strict=True))
    ]
    return Answer("Which jobs?", facts)


def _gates_summary(gates: Sequence[GateResult]) -> str:
    failed = [result for result in gates if not result.passed]
    alone = len(gates) == 1
    if failed:
        which = "The gate" if alone else f"{len(failed)} of {len(gates)} gates"
        return f"{which} failed: {failed[0].message}."
    warned = [result for result in gates if result.outcome == "warned"]
    which = "It" if alone else f"{len(warned)} of them"
    also = f" {which} warned: {warned[0].message}." if warned else ""
    return f"{'The gate' if alone else f'All {len(gates)} gates'} passed.{also}"


def _gates(gates: Sequence[GateResult]) -> Answer:
    facts = [
        Fact(str(result.gate), result.outcome, "", result.message or result.remark)
        for result in gates
    ]
    return Answer("Did the gates pass?", facts)


def _section(
    place: int,
    measure: str,
    comparisons: Sequence[Comparison],
    jobs: Sequence[FinishedJob],
    names: Sequence[str],
) -> Section:
    heading = section_of(measure, place)
    rows = [
        [cells for cells in written if cells.measure == printable(measure)]
        for written in (format_scores(found, typeset=True) for found in comparisons)
    ]
    table = _table_of_two(rows[0], names) if len(rows) == 1 else _table_of_many(rows, names)
    scored = [
        compared.score for compared in comparisons[0].scores if compared.score.measure == measure
    ]
    drawn = [
        (style, found)
        for style, job in zip(numbered_styles(names), jobs, strict=True)
        if (found := getattr(job.results.part(measure), "corpus", None))
    ]
    return replace(
        heading,
        figures=report_of(measure).overlays(drawn) if drawn else [],
        scores=table,
        glossary=definitions_of(scored),
    )


def _table_of_two(rows: Sequence[ComparedCells], names: Sequence[str]) -> Table:
    return Table(
        "Scores",
        ("score", "of", names[0], names[1], "difference", "relative", "verdict"),
        [tuple(cells.row()[name] for name in COLUMNS[1:]) for cells in rows],
        numeric=frozenset({2, 3, 4, 5}),
    )


def _table_of_many(rows: Sequence[Sequence[ComparedCells]], names: Sequence[str]) -> Table:
    """Return one row per score: the baseline's value, then each job's value with its change."""
    scores = dict.fromkeys((cells.score, cells.of) for found in rows for cells in found)
    by_job = [{(cells.score, cells.of): cells for cells in found} for found in rows]
    # A job of another size is compared on samples, and so with others of the baseline.
    of_baseline = {
        key: "; ".join(dict.fromkeys(str(found[key].baseline) for found in by_job if key in found))
        for key in scores
    }
    header = ["score", "of", names[-1]]
    for name in names[:-1]:
        header += [name, "change"]
    return Table(
        "Scores",
        header,
        [
            (
                *key,
                of_baseline[key],
                *(cell for found in by_job for cell in _cells_of_many(found.get(key))),
            )
            for key in scores
        ],
        numeric=frozenset(range(2, len(header))),
    )


def _cells_of_many(cells: ComparedCells | None) -> tuple[str, str]:
    if cells is None:
        return "", ""
    return str(cells.job), f"{cells.change}{' *' if cells.significant else ''}"


def _reading(jobs: Sequence[FinishedJob], names: Sequence[str]) -> Section:
    return Section(
        key="method",
        title="How to read this",
        question="A bracket bounds the measure of one particular corpus. A difference is "
        "significant (*) if the score is outside of where chance puts it: by the p-value of its "
        "samples, adjusted for the number of headline scores, or if the gap between the brackets "
        "exceeds 1.96 sampling errors of the difference. If neither is known, no difference is "
        "called significant.",
        glossary=[*PROMISES, SAMPLING_ERROR],
        tables=[_jobs_table(jobs, names)],
    )


def _jobs_table(jobs: Sequence[FinishedJob], names: Sequence[str]) -> Table:
    """Return a table of the sources and the costs of the jobs; the baseline comes last."""
    rows = [
        {
            "job": name,
            "finished": printable(job.finished or "unknown"),
            "version": printable(job.version or "unknown"),
            **written_cost(job.seconds, job.peak_memory_bytes),
            "corpus": printable(job.corpora["corpus"].fingerprint),
            "folder": printable(job.url),
        }
        for job, name in zip(jobs, names, strict=True)
    ]
    return table_of("Jobs", rows, numeric=COSTS)
