"""Assemble results.json: every number of a job, its bracket, and how it was computed."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from typing import Any

from latentscale import __version__
from latentscale_pipeline.corpus import Corpus
from latentscale_pipeline.corpus.manifest import SourceRecord
from latentscale_pipeline.engine.collection import stage_spending
from latentscale_pipeline.engine.state import StageState
from latentscale_pipeline.engine.work import Work
from latentscale_pipeline.jobs.expectations import expect_curves, expect_scores, read_samples
from latentscale_pipeline.jobs.plan import Plan, measures_of
from latentscale_pipeline.jobs.provenance import PROVENANCE_KEY
from latentscale_pipeline.measures.base import Findings, Role
from latentscale_pipeline.measures.by_label import collect_by_label
from latentscale_pipeline.measures.finished_job import FinishedJob
from latentscale_pipeline.measures.registry import MEASURES
from latentscale_pipeline.report.verdict import LEVEL, SAME_CORPORA, Compared, judge
from latentscale_pipeline.results import model
from latentscale_pipeline.rows.examples import rows_to_look_at
from latentscale_pipeline.storage.artifacts import Artifact, checked_marker, read_markers
from latentscale_pipeline.storage.objects import run_requests
from latentscale_pipeline.storage.urls import strip_credentials


def assemble_results(
    plan: Plan,
    work: Work,
    stage_states: Sequence[StageState],
    *,
    started: str,
    finished: str,
) -> model.Results:
    """Collect the results of all stages into the results of the job.

    Parameters
    ----------
    plan : Plan
        The job.
    work : Work
        Access to the results of its stages.
    stage_states : sequence of StageState
        What this run did for each stage: reused or computed it, and why.
    started, finished : str
        UTC times in ISO 8601.

    Returns
    -------
    results.model.Results
        The content of ``results.json``; every number is finite.
    """
    parts = {stage.name: f"{work.folder(stage)}/result" for stage in plan.stages}
    markers = dict(zip(parts, read_markers(work.store, parts.values()), strict=True))

    def result(name: str) -> Artifact:
        return checked_marker(parts[name], markers[name])

    findings = {}
    for name, section in measures_of(plan.config).items():
        found = MEASURES[name].collect(section, plan.facts, result)
        findings[name] = MEASURES[name].name_representatives(section, found, result, plan.corpora)
    if plan.config.group_by is not None:
        findings["labels"] = collect_by_label(MEASURES, plan.config.measures, plan.facts, result)
    samples = read_samples(plan.config.measures, plan.facts, result)
    scores = expect_scores(list(findings.values()), samples, plan.facts)
    findings = expect_curves(findings, samples)
    results = model.Results(
        job=model.Job(
            id=plan.id,
            name=plan.config.name,
            config_hash=plan.config_hash,
            seed=plan.config.seed,
            version=__version__,
            started=started,
            finished=finished,
            cluster=plan.cluster.model_dump(),
            provenance=PROVENANCE_KEY,
        ),
        corpora=model.Corpora(
            **{
                role: _corpus(corpus, findings.values(), role)
                for role, corpus in plan.corpora.items()
            }
        ),
        verdict=SAME_CORPORA
        if len({corpus.fingerprint for corpus in plan.corpora.values()}) < len(plan.corpora)
        and not plan.config.pair
        else judge(
            scores,
            compares="reference" in plan.corpora,
            paired=bool(plan.config.pair),
            remarks=list(_remarks(findings.values(), scores)),
        ),
        scores=scores,
        measures={
            key: value
            for name, finding in findings.items()
            for key, value in _section(name, finding).items()
        },
        arrays={key: path for finding in findings.values() for key, path in finding.arrays.items()},
        timings=run_requests(work.store, partial(_timing, plan, work), stage_states),
    )
    described = FinishedJob(work.store.address, results, None)
    rows = rows_to_look_at(described, plan.corpora)
    marked = {
        name: MEASURES[name].mark_rows(part, plan.corpora, rows or ())
        for name, part in results.measures.items()
        if name in MEASURES and part is not None
    }
    return results.model_copy(update={"rows": rows, "measures": {**results.measures, **marked}})


def _remarks(findings: Iterable[Findings], scores: Sequence[model.Score]) -> Iterator[str]:
    """Yield what measures say of the verdict, and of their scores that differ."""
    first = 0
    for found in findings:
        if found.remark:
            yield found.remark
        for place, sentence in found.explained.items():
            score = scores[first + place]
            if score.expected is not None and Compared(score, score.expected).p <= LEVEL:
                yield sentence
        first += len(found.scores)


def _corpus(corpus: Corpus, findings: Iterable[Findings], role: Role) -> model.Corpus:
    found = {k: v for finding in findings for k, v in finding.corpora.get(role, {}).items()}
    return model.Corpus(
        uri=strip_credentials(corpus.url),
        source=_source(corpus.manifest.sources),
        n=corpus.n,
        d=corpus.d,
        dtype=str(corpus.dtype),
        fingerprint=corpus.fingerprint,
        weighted="weights" in corpus.manifest.arrays,
        weights_fingerprint=corpus.weights_fingerprint,
        labels_fingerprint=corpus.labels_fingerprint,
        excluded_shards=list(corpus.excluded) or None,
        excluded_rows=corpus.excluded_rows or None,
        dropped_rows=corpus.manifest.dropped.count or None,
        **found,
    )


def _source(sources: Sequence[SourceRecord]) -> str | None:
    if not sources:
        return None
    more = f" and {len(sources) - 1:,} more" if len(sources) > 1 else ""
    return sources[0].path + more


def _section(name: str, finding: Findings) -> dict[str, Any]:
    if finding.section is not None:
        return {name: finding.section}
    return {} if finding.reason is None else {name: None, f"{name}_reason": finding.reason}


def _timing(plan: Plan, work: Work, stage_state: StageState) -> model.Timing:
    stage = stage_state.stage
    spent = stage_spending(work.store, stage, stage_state.folder)
    return model.Timing(
        stage=stage.name,
        seconds=round(spent["seconds"], 3),
        tasks=int(spent["tasks"]),
        peak_memory_bytes=int(spent["peak_memory_bytes"]),
        tasks_at_once=int(spent["tasks_at_once"]),
        projected_memory_bytes=plan.projected_bytes(stage),
        resumed=stage_state.found > 0 or stage_state.reason.startswith("reused"),
        reason=stage_state.reason,
    )
