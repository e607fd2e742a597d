"""A comparison in Markdown, for a pull request."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from latentscale_pipeline.comparison.cells import write_identity, write_notes, write_scores
from latentscale_pipeline.comparison.compare import Comparison
from latentscale_pipeline.comparison.gate_checks import GateResult
from latentscale_pipeline.notation import Written

_SPECIAL = {mark: f"\\{mark}" for mark in "\\`*_[]<>|~#!&$"}
# A word joiner, which nothing shows, keeps a name from calling a person or linking an issue.
_ESCAPES = str.maketrans({**_SPECIAL, "@": "@\N{WORD JOINER}", "#": "\\#\N{WORD JOINER}"})


def comparison_markdown(comparison: Comparison, gates: Sequence[GateResult] | None = None) -> str:
    """Return a comparison and its gates as GitHub-flavoured Markdown.

    Whatever a user may have named is escaped: it can neither end a cell nor become markup.
    """
    job, baseline = (escape(write_identity(j)) for j in (comparison.job, comparison.baseline))
    blocks = ["## latentscale compare", f"- job: {job}\n- baseline: {baseline}"]
    if gates is not None:
        blocks += [_verdict(gates), _table(("gate", "result"), _gate_rows(gates))]
    header = ("measure", "score", "of", "job", "baseline", "difference", "relative", "verdict")
    blocks += [_table(header, _score_rows(comparison)), *map(escape, write_notes(comparison))]
    return "\n\n".join(blocks) + "\n"


def escape(text: str) -> str:
    """Escape text for a cell of a Markdown table."""
    return text.translate(_ESCAPES)


def _verdict(gates: Sequence[GateResult]) -> str:
    failed = sum(not result.passed for result in gates)
    passed = f"✅ {len(gates)} of {len(gates)} gates passed."
    return f"❌ {failed} of {len(gates)} gates failed." if failed else passed


def _gate_rows(gates: Sequence[GateResult]) -> Iterator[list[str]]:
    for result in gates:
        messages = [escape(failure.message) for failure in result.failures]
        yield [
            escape(str(result.gate)),
            "<br>".join(["failed:", *messages]) if messages else "passed",
        ]


def _score_rows(comparison: Comparison) -> Iterator[list[str]]:
    for cells in write_scores(comparison):
        texts = (
            *(cells.measure, cells.score, cells.of),
            *(_written(cells.job), _written(cells.baseline)),
            *(cells.difference, cells.relative),
            f"{cells.verdict} (unlike)" if cells.unlike else cells.verdict,
        )
        yield [escape(text) for text in texts]


def _written(written: Written) -> str:
    return f"{written.value} {written.bracket}".strip()


def _table(header: Sequence[str], rows: Iterator[list[str]]) -> str:
    lines = [list(header), ["---"] * len(header), *rows]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in lines)
