"""Run a job's measures on the rows of every label.

Measures don't know about labels. Each plans a label like a corpus of that size. The stages are
renamed for the label: they see its rows as the corpus, and need the stages of the same label.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

import xxhash

from latentscale_pipeline.config.section import Section
from latentscale_pipeline.corpus import rows_of_label
from latentscale_pipeline.engine.stage import Inputs, Stage, Work
from latentscale_pipeline.errors import BadInput
from latentscale_pipeline.measures.base import (
    CorpusFacts,
    Findings,
    JobFacts,
    Measure,
    Results,
    Score,
    plan_measure,
)
from latentscale_pipeline.results.model import Labels
from latentscale_pipeline.storage.artifacts import Artifact, Output
from latentscale_pipeline.storage.canonical import slug

MIN_ROWS = 20
"""Fewest rows of a label that is measured."""

MAX_LABELS = 1000
"""Largest number of labels of a job, because each adds stages of its own."""


@dataclass(frozen=True)
class OfLabel:
    """The work of a stage, on the rows of one label."""

    work: Work
    label: str

    def __post_init__(self) -> None:
        # A stage's key names its work.
        for name in ("__module__", "__qualname__"):
            object.__setattr__(self, name, getattr(self.work, name))

    def __call__(self, inputs: Inputs) -> Output:
        """Run the work with the rows and results of the label."""
        prefix = stage_prefix(self.label)
        return self.work(
            replace(
                inputs,
                corpora={
                    role: rows_of_label(corpus, self.label)
                    for role, corpus in inputs.corpora.items()
                },
                results={
                    name.removeprefix(prefix): result for name, result in inputs.results.items()
                },
            )
        )


def plan_by_label(
    measures: Mapping[str, Measure], sections: Mapping[str, Section], facts: JobFacts
) -> list[Stage]:
    """Plan the measures of every label that has enough rows.

    Raises
    ------
    BadInput
        If there are too many labels, or a measure doesn't fit one of them.
    """
    if not facts.label_rows:
        return []
    for name, section in sections.items():
        if getattr(section, "labels", False):
            raise BadInput(
                f"group_by and measures.{name}.labels both measure the labels; leave out one"
            )
    if len(measured_labels(facts)) > MAX_LABELS:
        raise BadInput(
            f"corpus: group_by would measure {len(measured_labels(facts))} labels, and "
            f"{MAX_LABELS} is the most; leave it out, or ingest some as corpora of their own"
        )
    return [
        stage
        for label in measured_labels(facts)
        for name, section in _sections_of_label(measures, sections).items()
        for stage in _plan_label(name, measures[name], section, facts, label)
    ]


def measured_labels(facts: JobFacts) -> dict[str, int]:
    """Return the rows of every label that has enough of them."""
    return {label: n for label, n in facts.label_rows.items() if n >= MIN_ROWS}


def stage_prefix(label: str) -> str:
    """Return the prefix of a label's stages: the start of its text, and a hash."""
    return f"label-{slug(label)[:24]}-{xxhash.xxh3_64_hexdigest(label.encode())[:8]}-"


def collect_by_label(
    measures: Mapping[str, Measure],
    sections: Mapping[str, Section],
    facts: JobFacts,
    results: Results,
) -> Findings:
    """Collect the scores of every label, and list the labels that were left out."""
    measured = measured_labels(facts)
    left_out = {label: n for label, n in facts.label_rows.items() if label not in measured}
    scores: list[Score] = []
    scales: dict[str, dict[str, dict[str, float]]] = {}
    for label, rows in measured.items():
        own = _facts_of_label(facts, label)

        def result(stage: str, prefix: str = stage_prefix(label)) -> Artifact:
            return results(f"{prefix}{stage}")

        for name, section in _sections_of_label(measures, sections).items():
            found = measures[name].collect(section, own, result)
            of_label = {"label": label, "rows": rows}
            scores += [score.model_copy(update=of_label) for score in found.scores]
            scales.setdefault(label, {})[name] = dict(measures[name].scales(found.section))
    labels = Labels(measured=measured, left_out=left_out, least_rows=MIN_ROWS, scales=scales)
    return Findings(labels, tuple(scores))


def _sections_of_label(
    measures: Mapping[str, Measure], sections: Mapping[str, Section]
) -> dict[str, Section]:
    """Return the settings of the measures of each label."""
    own = {name: measures[name].section_of_label(each) for name, each in sections.items()}
    return {name: section for name, section in own.items() if section is not None}


def _plan_label(
    name: str, measure: Measure, section: Any, facts: JobFacts, label: str
) -> Iterator[Stage]:
    try:
        stages = plan_measure(name, measure, section, _facts_of_label(facts, label))
    except BadInput as error:
        raise BadInput(f"label {label!r}: {error}") from None
    prefix, whole = stage_prefix(label), facts.corpora["corpus"]
    for stage in stages:
        yield replace(
            stage,
            name=f"{prefix}{stage.name}",
            needs=tuple(f"{prefix}{name}" for name in stage.needs),
            work=OfLabel(stage.work, label),
            finalise=None if stage.finalise is None else OfLabel(stage.finalise, label),
            advance=None if stage.advance is None else OfLabel(stage.advance, label),
            parameters={**stage.parameters, "label": label, "label_of": whole.labels},
            memory_bytes=stage.memory_bytes + _view_bytes(whole),
            # The numbers of every label's rows stay for the next stage of one.
            lasting_bytes=stage.lasting_bytes + 8 * whole.n,
        )


def _view_bytes(corpus: CorpusFacts) -> int:
    """Memory to find the rows of a label and to copy them from whole shards."""
    return corpus.numbering_bytes + 2 * corpus.shard_stored_bytes


def _facts_of_label(facts: JobFacts, label: str) -> JobFacts:
    whole = facts.corpora["corpus"]
    n = facts.label_rows[label]
    own = replace(whole, n=n, shards=-(-n // whole.shard_rows), labels=None, shard_prints=())
    # The size of subsamples is chosen for the whole corpus.
    # What is spare would be spent again for every label.
    return replace(
        facts,
        corpora={"corpus": own},
        label_rows={},
        replicate_rows=None,
        samples=0,
        spare_bytes=0,
    )
