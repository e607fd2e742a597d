"""Write a report in Markdown: all text and tables; figures are reduced to their captions."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from latentscale_pipeline.views.content import Answer, Opening, Report, Section, Strip, Table
from latentscale_pipeline.views.markdown import escape_markdown, markdown_table


def format_markdown(report: Report) -> str:
    """Return a report as GitHub-flavoured Markdown.

    Names are escaped, so that they can't end a cell or become markup.
    """
    return "\n\n".join(_blocks(report)) + "\n"


def _blocks(report: Report) -> Iterator[str]:
    yield f"# {escape_markdown(report.title)}"
    yield escape_markdown(report.subtitle)
    if report.corpora:
        yield "\n".join(f"- {role}: {escape_markdown(text)}" for role, text in report.corpora)
    if report.opening:
        yield from _opening(report.opening)
    if report.conclusions:
        yield " ".join(map(escape_markdown, report.conclusions))
    for answer in report.answers:
        yield from _answer(answer)
    for warning in report.warnings:
        yield f"> {escape_markdown(warning)}"
    for section in report.sections:
        yield from _section(section)


def _opening(opening: Opening) -> Iterator[str]:
    yield f"## {escape_markdown(opening.heading)}"
    yield " ".join(map(escape_markdown, opening.sentences))
    if not opening.question:
        return
    yield "### Is the corpus fine?"
    yield escape_markdown(opening.rows_said)
    yield from _strips(opening.rows)
    if opening.strips:
        yield f"### {opening.question}"
        yield escape_markdown(opening.strips_said)
        yield from _strips(opening.strips)
    yield "### What should I look at?"
    yield escape_markdown(opening.look_said)
    if opening.look:
        yield "\n".join(
            f"- {escape_markdown(row.name)} {escape_markdown(row.label)}: "
            f"{escape_markdown(row.why)} {row.distance}".rstrip()
            + "".join(f"\n  > {escape_markdown(text)}" for text in row.texts)
            for row in opening.look
        )
    if opening.commands:
        yield "To be run in the folder that holds the job's folder:"
        yield "\n".join(f"    {command}" for command in opening.commands)


def _strips(strips: Sequence[Strip]) -> Iterator[str]:
    if not strips:
        return
    if any(strip.expected for strip in strips):
        rows = [(strip.title, strip.found, strip.expected, strip.p) for strip in strips]
        yield markdown_table(("score", "corpus", "expected", "p"), rows)
    else:
        yield markdown_table(("score", "found"), [(s.title, s.found) for s in strips])


def _answer(answer: Answer) -> Iterator[str]:
    yield f"## {escape_markdown(answer.question)}"
    if answer.facts:
        yield "\n".join(
            f"- {escape_markdown(fact.label)}: **{escape_markdown(fact.value)}** "
            f"{escape_markdown('; '.join(text for text in (fact.bracket, fact.note) if text))}"
            for fact in answer.facts
        )
    if answer.note:
        yield escape_markdown(answer.note)


def _section(section: Section) -> Iterator[str]:
    yield f"## {escape_markdown(section.title)}"
    if section.question:
        source = f" ({section.source}.)" if section.source else ""
        yield escape_markdown(f"{section.question}{source}")
    for figure in section.figures:
        yield f"**{escape_markdown(figure.title)}**: {escape_markdown(figure.caption)}"
    if section.notes:
        yield "\n".join(f"- {escape_markdown(note)}" for note in section.notes)
    if section.scores is not None and section.scores.rows:
        yield from _table(section.scores)
    if section.glossary:
        yield "\n".join(
            f"- **{escape_markdown(definition.title)}**: {escape_markdown(definition.sentence)}"
            for definition in section.glossary
        )
    for table in [*section.tables, *section.folds]:
        yield from _table(table)


def _table(table: Table) -> Iterator[str]:
    yield f"**{escape_markdown(table.caption)}**"
    yield markdown_table(table.header, table.rows)
