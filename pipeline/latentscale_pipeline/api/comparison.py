"""A finished job beside a baseline, with a display for notebooks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from html import escape
from pathlib import Path
from typing import Any

from latentscale_pipeline.api.findings import Tabular, draw_table
from latentscale_pipeline.compare.cells import SUMMARY, job_names, summarise_score
from latentscale_pipeline.compare.columns import headline_scores
from latentscale_pipeline.compare.difference import ComparedScore
from latentscale_pipeline.compare.document import comparison_document
from latentscale_pipeline.compare.gate_checks import GateResult, check_gates
from latentscale_pipeline.compare.gates import SELECTORS, gates_of
from latentscale_pipeline.compare.jobs import Comparison
from latentscale_pipeline.compare.rows_changed import RowChanges
from latentscale_pipeline.compare.terminal import format_comparison
from latentscale_pipeline.errors import BadInput
from latentscale_pipeline.history.registry import Registry
from latentscale_pipeline.report.verdict import format_verdict
from latentscale_pipeline.results.model import Verdict


@dataclass(frozen=True, repr=False)
class CheckedGates(Tabular):
    """What gates say of a comparison.

    Attributes
    ----------
    results : tuple of GateResult
        Each gate with the scores that it selects and its violations.
    """

    results: tuple[GateResult, ...]

    @property
    def passed(self) -> bool:
        """Return whether no gate failed. A gate of ``severity: warn`` doesn't fail."""
        return all(result.passed for result in self.results)

    def records(self) -> list[dict[str, Any]]:
        """Return one mapping per gate: its text, ``passed``, ``warned`` or ``failed``, and why.

        The remark of one that passed says on what it rests, or that it checked nothing yet.
        """
        return [
            {
                "gate": str(result.gate),
                "outcome": result.outcome,
                "message": result.message,
                "remark": result.remark,
                "scores": len(result.selected),
            }
            for result in self.results
        ]

    def __repr__(self) -> str:
        return "\n".join(
            ": ".join(filter(None, (row["outcome"], row["gate"], row["message"] or row["remark"])))
            for row in self.records()
        )

    def _repr_html_(self) -> str:
        columns = ("outcome", "gate", "message")
        records = [row | {"message": row["message"] or row["remark"]} for row in self.records()]
        rows = [tuple(row[column] for column in columns) for row in records]
        return draw_table("Gates", rows, columns)


@dataclass(frozen=True, repr=False)
class JobComparison(Tabular):
    """A job compared with a baseline, as ``latentscale compare`` does.

    Attributes
    ----------
    comparison : Comparison
        All of it, score by score.
    """

    comparison: Comparison

    @property
    def verdict(self) -> Verdict:
        """Return whether the job differs from the baseline by more than chance."""
        return self.comparison.verdict

    @property
    def changes(self) -> RowChanges | None:
        """Return how many rows were added, removed and kept, and how labels changed.

        None if the corpora have neither ids nor labels, or aren't there any more.
        """
        return self.comparison.rows

    @property
    def document(self) -> dict[str, Any]:
        """Return what ``latentscale compare --json`` prints."""
        return comparison_document(self.comparison)

    def records(self) -> list[dict[str, Any]]:
        """Return one flat mapping per score that both jobs have.

        ``job`` and ``baseline`` are the values of the whole corpora; ``difference`` is None where
        these aren't comparable, for the reason in ``why_not``. ``p`` is adjusted for the number of
        scores. ``expected_found`` and ``expected_centre`` are what the job and the baseline have on
        equally many rows, ``expected_rows``; the former lies from ``expected_lower`` to
        ``expected_upper`` 95 times in 100 if both corpora come from one source.
        """
        return [_record(score) for score in self.comparison.shared]

    def check(
        self, gates: Sequence[Mapping[str, Any]], *, history: str | Path | None = None
    ) -> CheckedGates:
        """Check gates, as ``latentscale compare --gates`` does.

        Parameters
        ----------
        gates : sequence of mapping
            What a gates file has under ``gates``, such as
            ``[{"measure": "vendi", "order": 1, "max_drop": 0.1}]``.
        history : str or Path, optional
            Folder or URL of a history, for gates with ``drift``.

        Returns
        -------
        CheckedGates
            ``.passed``, ``.to_pandas()``.

        Raises
        ------
        ValueError
            If a gate has a mistake, selects no score, or limits one that can't be compared.
        """
        job = self.comparison.job
        if isinstance(gates, str | Mapping) or not isinstance(gates, Sequence):
            raise ValueError("gates must be a list of mappings, such as [{'score': 'imd', …}]")
        try:
            known = gates_of(gates, "gates")
            earlier = None
            if history is not None:
                earlier = Registry.existing(str(history)).earlier(job.name, job)
            return CheckedGates(check_gates(known, self.comparison, "gates", earlier))
        except BadInput as error:
            raise ValueError(str(error)) from None

    def __repr__(self) -> str:
        return format_comparison(self.comparison)

    def _repr_html_(self) -> str:
        found = self.comparison
        job, baseline = job_names([found.job, found.baseline])
        heading, sentences = format_verdict(found.verdict, baseline)
        changes = found.rows.lines.values() if found.rows is not None else ()
        said = "".join(f"<p>{escape(text)}</p>" for text in (f"{heading}.", *sentences, *changes))
        cells = [summarise_score(score) for score in headline_scores(found)]
        rows = [tuple(cell[column] for column in SUMMARY) for cell in cells]
        return said + draw_table(f"{job} beside {baseline}", rows, SUMMARY)


def _record(score: ComparedScore) -> dict[str, Any]:
    usual = score.expected
    sides = {"job": score.job, "baseline": score.baseline}
    return {
        **{name: getattr(score.score, name) for name in SELECTORS},
        **{name: None if side is None else side.value for name, side in sides.items()},
        "difference": score.difference,
        "relative": score.relative,
        "sampling_error": score.sampling_error,
        "p": score.p,
        "significant": score.significant,
        "verdict": score.verdict.value,
        "why_not": score.why_not or None,
        "expected_rows": None if usual is None else usual.rows,
        "expected_found": None if usual is None else usual.found,
        "expected_centre": None if usual is None else usual.centre,
        "expected_lower": None if usual is None else usual.lower,
        "expected_upper": None if usual is None else usual.upper,
    }
