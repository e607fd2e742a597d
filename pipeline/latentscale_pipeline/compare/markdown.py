"""Write a comparison in Markdown, for a pull request."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

from latentscale_pipeline.compare.cells import (
    BRACKETS,
    COLUMNS,
    SUMMARY,
    format_identity,
    format_notes,
    format_scores,
    job_names,
    summarise_score,
)
from latentscale_pipeline.compare.columns import headline_scores
from latentscale_pipeline.compare.gate_checks import GateResult
from latentscale_pipeline.compare.jobs import Comparison
from latentscale_pipeline.report.verdict import format_verdict
from latentscale_pipeline.views.formatting import counted
from latentscale_pipeline.views.markdown import escape_markdown, markdown_table
from latentscale_pipeline.views.scores import explain_summary


def comparison_markdown(comparison: Comparison, gates: Sequence[GateResult] | None = None) -> str:
    """Return a comparison and its gates as GitHub-flavoured Markdown.

    Names are escaped, so that they can't end a cell or become markup.
    """
    job, baseline = (
        escape_markdown(format_identity(j)) for j in (comparison.job, comparison.baseline)
    )
    blocks = ["## latentscale compare", f"- job: {job}\n- baseline: {baseline}"]
    if gates is not None:
        blocks += [
            _verdict(gates),
            markdown_table(("gate", "result"), _gate_rows(gates), escaped=True),
        ]
    if comparison.rows is not None:
        blocks += [f"{escape_markdown(line)}." for line in comparison.rows.lines.values()]
    names = job_names([comparison.job, comparison.baseline])
    heading, sentences = format_verdict(comparison.verdict, names[1])
    blocks += [f"### {escape_markdown(heading)}", escape_markdown(" ".join(sentences))]
    summary = [summarise_score(score) for score in headline_scores(comparison)]
    if summary:
        signs = explain_summary(row[side] for row in summary for side in ("job", "baseline"))
        blocks += [
            markdown_table(("score", *SUMMARY[1:]), [list(row.values()) for row in summary]),
            *map(escape_markdown, signs),
        ]
    if commands := comparison.look_commands:
        blocks.append("\n".join(["```sh", *commands, "```"]))
    rows = [list(cells.row().values()) for cells in format_scores(comparison)]
    blocks += [
        f"<details><summary>{counted(len(rows), 'score')}; {BRACKETS}</summary>",
        markdown_table(COLUMNS, rows),
        "</details>",
        *map(escape_markdown, format_notes(comparison)),
    ]
    return "\n\n".join(blocks) + "\n"


def _verdict(gates: Sequence[GateResult]) -> str:
    outcomes = Counter(result.outcome for result in gates)
    warned, bad = outcomes["warned"], []
    also = f" {counted(warned, 'warning')}." if warned else ""
    if outcomes["failed"]:
        bad.append(f"❌ {outcomes['failed']} of {len(gates)} gates failed.")
    if outcomes["unchecked"]:
        bad.append(f"❌ {outcomes['unchecked']} of {len(gates)} gates can't be checked.")
    return (" ".join(bad) or f"✅ {len(gates)} of {len(gates)} gates passed.") + also


def _gate_rows(gates: Sequence[GateResult]) -> Iterator[list[str]]:
    for result in gates:
        reasons = [result.refusal] if result.refusal else [f.message for f in result.failures]
        messages = [escape_markdown(reason) for reason in reasons]
        passed = f"passed; {escape_markdown(result.remark)}" if result.remark else "passed"
        yield [
            escape_markdown(str(result.gate)),
            "<br>".join([f"{result.outcome}:", *messages]) if messages else passed,
        ]
