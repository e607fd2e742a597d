"""A row of ``scores`` in words: its value, its bracket, and what stands beside it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from latentscale_pipeline.views.content import Fact
from latentscale_pipeline.views.formatting import Written, printable, write_estimate, write_number
from latentscale_pipeline.views.glossary import BOUNDS, Definition

Json = dict[str, Any]


def written_score(row: Json) -> Written:
    """Write a score's value and bracket."""
    return write_estimate(row["value"], row["lower"], row["upper"], typeset=True)


def bracket_kind(row: Json) -> str:
    """Say how a score's bracket was obtained."""
    return BOUNDS[row["bounds"]].name if row["bounds"] in BOUNDS else ""


def find_score(scores: list[Json], of: str, **wanted: object) -> Json | None:
    """Return the first score of a whole corpus with these fields that has a value."""
    for row in scores:
        if row["of"] != of or row["value"] is None or row.get("label") is not None:
            continue
        if all(row.get(name) == value for name, value in wanted.items()):
            return row
    return None


def score_fact(name: str, row: Json, note: str = "") -> Fact:
    """Return a score as a fact of a report's opening."""
    if row["value"] is None:
        return Fact(name, "none", "", printable(row.get("reason") or "no reason was recorded"))
    written = written_score(row)
    error = row["sampling_error"]
    if error is not None:
        known = f"sampling error ± {write_number(error, 2, typeset=True)}"
        note = f"{known}; {note}" if note else known
    unit = "" if row["unit"] == "fraction" else f" {printable(row['unit'])}"
    return Fact(name, written.value, f"{written.bracket}{unit}, {bracket_kind(row)}", note)


def fact_beside_reference(name: str, rows: list[Json], remark: str) -> list[Fact]:
    """Return the corpus's score as a fact, with the reference's in its note."""
    by_role = {row["of"]: row for row in rows}
    if "corpus" not in by_role:
        return []
    remarks = [remark] if remark else []
    reference = by_role.get("reference")
    if reference is not None and reference["value"] is not None:
        written = written_score(reference)
        remarks.append(f"reference: {written.value} {written.bracket}")
    return [score_fact(name, by_role["corpus"], "; ".join(remarks))]


def pair_facts(
    scores: list[Json], measure: str, definitions: Mapping[str, Definition], *names: str
) -> list[Fact]:
    """Return a measure's scores of the pair as facts, by their names."""
    return [
        score_fact(definitions[name].title, row, definitions[name].sentence)
        for name in names
        for row in scores
        if (row["measure"], row["score"], row["of"]) == (measure, name, "pair")
        and row.get("label") is None
    ]
