"""The opening of a job's report: what a person wants to know first."""

from __future__ import annotations

from typing import Any

from latentscale_pipeline.notation import printable, write_number, write_share
from latentscale_pipeline.report.content import Answer, Fact
from latentscale_pipeline.report.meanings import BOUNDS, MEASURES
from latentscale_pipeline.report.scores import bracket_kind, score_title, written_score

Json = dict[str, Any]


def answers(results: Json) -> list[Answer]:
    """Answer how big, how diverse, how certain, and compared with what."""
    return [
        _how_big(results["corpora"]),
        _how_diverse(results),
        _how_certain(results),
        _compared_with_what(results),
    ]


def conclusions(results: Json) -> list[str]:
    """Say in whole sentences what a person in a hurry should take away."""
    said = [_size_said(results["corpora"]), _diversity_said(results["scores"])]
    if results["corpora"].get("reference") is not None:
        said += [_coverage_said(results["scores"]), _difference_said(results["scores"])]
    return [sentence for sentence in said if sentence]


def _size_said(corpora: Json) -> str:
    corpus, reference = corpora["corpus"], corpora.get("reference")
    beside = (
        ""
        if reference is None
        else f", compared with {reference['n']:,} of {reference['d']:,} in the reference"
    )
    return f"The corpus has {corpus['n']:,} rows of {corpus['d']:,} dimensions{beside}."


def _diversity_said(scores: list[Json]) -> str:
    row = _find(scores, "corpus", measure="vendi", order="1")
    if row is None:
        return ""
    kernel = printable(row.get("kernel"))
    other = _find(scores, "reference", measure="vendi", order="1", kernel=row.get("kernel"))
    more = ""
    if other is not None:
        apart = row["lower"] > other["upper"] or row["upper"] < other["lower"]
        which = "more diverse than" if row["value"] > other["value"] else "less diverse than"
        more = f", {which if apart else 'as far as can be told as diverse as'} the reference"
        more += f" ({_plainly(other)})"
    return (
        f"It is as diverse as {_plainly(row)} completely different items would be "
        f"(Vendi score, {kernel} kernel){more}."
    )


def _coverage_said(scores: list[Json]) -> str:
    recall = _find(scores, "pair", measure="geomca", score="recall")
    precision = _find(scores, "pair", measure="geomca", score="precision")
    if recall is None or precision is None:
        return ""
    return (
        f"It shares components with {write_share(recall['value'])} of the thinned reference "
        f"(recall); {write_share(precision['value'])} of the thinned corpus lies in those "
        "(precision)."
    )


def _difference_said(scores: list[Json]) -> str:
    row = _find(scores, "pair", measure="magnitude", score="difference")
    if row is None or row["lower"] <= 0.0 <= row["upper"]:
        return ""
    which = "more" if row["value"] > 0 else "less"
    return f"Over all scales together it is {which} diverse than the reference (MagDiff)."


def _plainly(row: Json) -> str:
    return write_number(row["value"], 3, typeset=True)


def _find(scores: list[Json], of: str, **wanted: object) -> Json | None:
    """Return the first score of a whole corpus with these fields that has a value."""
    for row in scores:
        if row["of"] != of or row["value"] is None or row.get("label") is not None:
            continue
        if all(row.get(name) == value for name, value in wanted.items()):
            return row
    return None


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
        written = written_score(reference)
        remarks.append(f"reference: {written.value} {written.bracket}")
    return [_fact(name, by_role["corpus"], "; ".join(remarks))]


def _fact(name: str, row: Json, note: str = "") -> Fact:
    if row["value"] is None:
        return Fact(name, "none", "", printable(row.get("reason") or "no reason was recorded"))
    written = written_score(row)
    error = row["sampling_error"]
    if error is not None:
        known = f"sampling error ± {write_number(error, 2, typeset=True)}"
        note = f"{known}; {note}" if note else known
    unit = "" if row["unit"] == "fraction" else f" {printable(row['unit'])}"
    return Fact(name, written.value, f"{written.bracket}{unit}, {bracket_kind(row)}", note)


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
    where = f"{printable(row['measure'])}: {score_title(row)}, {printable(row['of'])}"
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


def sampling_warning(scores: list[Json]) -> str:
    """Say of how many scores the sampling error is unknown, and what follows; empty if of none."""
    unknown = sum(row["sampling_error"] is None for row in scores)
    if not unknown:
        return ""
    many = "every score" if unknown == len(scores) else f"{unknown} of {len(scores)} scores"
    return (
        f"The sampling error of {many} is unknown. Brackets bound the numbers of this very "
        "corpus; another sample from the same source would score differently, so a difference in "
        "such a score can't be called significant. Of heat traces and IMD, replicates with a count "
        "and rows measures it."
    )
