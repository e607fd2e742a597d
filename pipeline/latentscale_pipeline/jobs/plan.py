"""Plan a job: corpora, stages, keys and identity from its configuration.

A plan depends on the configuration and on the sizes and fingerprints of the corpora alone. It
doesn't depend on the cluster, so the same job has the same plan everywhere.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

from latentscale_pipeline.config.cluster import Cluster
from latentscale_pipeline.config.job import JobConfig
from latentscale_pipeline.config.section import Section
from latentscale_pipeline.config.user_functions import refuse_code, source_checksum
from latentscale_pipeline.corpus import Corpus, rows_by_label
from latentscale_pipeline.corpus.ingest.create import UningestedCorpus, ensure_corpus, find_corpus
from latentscale_pipeline.engine.keys import part_keys, stage_dependencies, stage_key
from latentscale_pipeline.engine.memory import check_memory, idle_memory
from latentscale_pipeline.engine.stage import Stage
from latentscale_pipeline.errors import BadInput
from latentscale_pipeline.jobs.automatic_cluster import choose_cluster
from latentscale_pipeline.jobs.identity import config_hash, job_id
from latentscale_pipeline.jobs.ingestion import runner_for
from latentscale_pipeline.jobs.row_pairs import refuse_shifted_pairs
from latentscale_pipeline.jobs.shared_scales import read_scales
from latentscale_pipeline.measures.base import CorpusFacts, JobFacts, Role, plan_measure
from latentscale_pipeline.measures.by_label import plan_by_label
from latentscale_pipeline.measures.fresh_samples import plan_samples
from latentscale_pipeline.measures.registry import MEASURES
from latentscale_pipeline.progress import Echo, Progress, silent
from latentscale_pipeline.storage.disk import free_bytes
from latentscale_pipeline.storage.objects import ObjectStore
from latentscale_pipeline.storage.urls import storage_options, strip_credentials
from latentscale_pipeline.views.formatting import counted, listed

SPARE_BYTES = 10 * 2**30
"""Bytes that a measure may store on a disk, or in a folder that machines share, to save computing;
at most half of what is free there."""


@dataclass(frozen=True)
class Plan:
    """A job, ready to run.

    Attributes
    ----------
    config : JobConfig
        The configuration, with its measures resolved.
    corpora : mapping of role to Corpus
        ``corpus``, and ``reference`` if there is one.
    facts : JobFacts
        The facts that the stages were planned from.
    stages : tuple of Stage
        All stages, each after those that it needs.
    config_hash : str
        Hash of everything that determines the numbers.
    missing : tuple of Stage, optional
        The stages whose results aren't there yet, once that is known.
    """

    config: JobConfig
    corpora: Mapping[Role, Corpus]
    facts: JobFacts
    stages: tuple[Stage, ...]
    config_hash: str
    missing: tuple[Stage, ...] | None = None

    @property
    def id(self) -> str:
        """Return the name of the job's folder."""
        return job_id(self.config, self.config_hash)

    @property
    def store(self) -> ObjectStore:
        """Return the job's folder."""
        return ObjectStore(self.config.output).child(self.id)

    @cached_property
    def fingerprints(self) -> dict[str, str]:
        """Return the fingerprint of each corpus by role."""
        return {role: corpus.fingerprint for role, corpus in self.corpora.items()}

    @cached_property
    def dependencies(self) -> dict[str, dict[str, Any]]:
        """Return what the result of each stage depends on, by the stage's name."""
        layouts: dict[str, str] = {role: corpus.layout for role, corpus in self.corpora.items()}
        return stage_dependencies(self.stages, self.fingerprints, layouts)

    @cached_property
    def keys(self) -> dict[str, str]:
        """Return the key of each stage by name."""
        return {name: stage_key(found) for name, found in self.dependencies.items()}

    @cached_property
    def cluster(self) -> Cluster:
        """Return where the job runs; never automatic."""
        stages = self.stages if self.missing is None else self.missing
        return choose_cluster(self.config.cluster, stages)

    @cached_property
    def idle_bytes(self) -> int:
        """Return the resident memory of a worker that runs no task."""
        return idle_memory(self.stages)

    def projected_bytes(self, stage: Stage) -> int:
        """Return the peak resident memory of a worker that runs one task of a stage."""
        return self.idle_bytes + stage.memory_bytes

    def describe(self) -> dict[str, Any]:
        """Return the plan as JSON: the inputs, the needs and the cost of each stage."""
        return {
            "job": self.id,
            "config_hash": self.config_hash,
            "corpora": {
                role: {"uri": strip_credentials(corpus.url), "fingerprint": corpus.fingerprint}
                for role, corpus in self.corpora.items()
            },
            "scales": dict(self.facts.fixed_scales),
            "stages": [
                {
                    "key": self.keys[stage.name],
                    **describe_stage(stage, self.idle_bytes),
                    "peak_memory_bytes": self.projected_bytes(stage),
                    "depends_on": self.dependencies[stage.name],
                    **({"part_keys": part_keys(stage)} if stage.part_inputs else {}),
                }
                for stage in self.stages
            ],
        }


def describe_stage(stage: Stage, idle_bytes: int) -> dict[str, Any]:
    """Return as JSON what a stage needs and the total cost of its tasks."""
    cost_estimate = stage.cost_estimate
    return {
        "stage": stage.name,
        "needs": list(stage.needs),
        "corpora": list(stage.corpora),
        "partitions": stage.partitions,
        "rounds": cost_estimate.iterations,
        "tasks": stage.tasks,
        "projected_memory_bytes": idle_bytes + stage.memory_bytes,
        "bytes_read": cost_estimate.bytes_read,
        "bytes_written": cost_estimate.bytes_written,
        "bytes_exchanged": stage.exchanged_bytes,
        "bytes_kept": stage.kept_bytes,
        "multiply_adds": cost_estimate.total_multiply_adds,
        "folds": cost_estimate.elementwise_operations,
        "method": cost_estimate.method or None,
        "why": cost_estimate.why or None,
    }


def make_plan(
    config: JobConfig,
    *,
    progress: Progress = silent,
    echo: Echo | None = None,
    corpora: Mapping[Role, Corpus] | None = None,
    scales: Mapping[str, float] | None = None,
    allow_code: bool = False,
) -> Plan:
    """Open the corpora, ingesting sources where necessary, and plan every stage.

    Parameters
    ----------
    config : JobConfig
        The job.
    progress : callable
        ``progress(rows read, rows in all)`` of an ingest.
    echo : callable, optional
        Receives what is to be said of sources before they are ingested.
    corpora, scales : mapping, optional
        Corpora and scales to use instead of those that the configuration names, as a stored plan
        has them. A scale that isn't there is derived.
    allow_code : bool
        Whether functions that the configuration names may be imported and run.

    Raises
    ------
    BadInput
        If code is named and not allowed, a corpus can't be opened, a measure doesn't fit the
        corpora, or a task doesn't fit the memory limit. No stage has been run by then.
    """
    refuse_code(config.measures, allowed=allow_code)
    with storage_options(config.storage_options):
        fixed_scales = read_scales(config) if scales is None else scales
        if corpora is None:
            run_for = runner_for(config.cluster, progress, echo)
            sources = corpus_sources(config)
            for url, _ in list(sources.values())[1:]:
                find_corpus(url, config.output)  # a mistake in it is told before a long ingest
            corpora = {
                role: ensure_corpus(url, config.output, progress, run_for, echo=echo).without(
                    excluded
                )
                for role, (url, excluded) in sources.items()
            }
            if echo is not None:
                _tell_repeated_ids(corpora, echo)
        if config.pair == "rows":
            refuse_shifted_pairs(corpora)
        config = drop_inapplicable_measures(config, corpora, echo)
        facts = job_facts(config, corpora, fixed_scales)
    return identify_plan(config, corpora, facts, plan_stages(config, facts))


def _tell_repeated_ids(corpora: Mapping[Role, Corpus], echo: Echo) -> None:
    """Say how many rows have the id of an earlier row: ids that are shown then name several."""
    for role, corpus in corpora.items():
        repeated = corpus.manifest.repeated_ids
        if repeated is not None and repeated.count:
            rows = f"{counted(repeated.count, 'row')} of the {role}"
            echo(f"{rows} with the id of an earlier row; the first is row {repeated.first}")


def drop_inapplicable_measures(
    config: JobConfig,
    corpora: Mapping[Role, Corpus | UningestedCorpus],
    echo: Echo | None = None,
) -> JobConfig:
    """Drop measures that these corpora don't suit if none were named, and say which.

    They need equal dimensions, or more rows.
    """
    if "measures" in config.model_fields_set:
        return config
    unlike = len({corpus.d for corpus in corpora.values()}) > 1
    rows = min(corpus.n for corpus in corpora.values())
    dropped = {
        name: f"for {section.fewest_rows} rows or more"
        if rows < section.fewest_rows
        else "for corpora of equal dimensions"
        for name, section in config.measures.items()
        if rows < section.fewest_rows or (unlike and section.equal_dimensions)
    }
    if echo is not None:
        for reason in dict.fromkeys(dropped.values()):
            names = [name for name, why in dropped.items() if why == reason]
            echo(f"measures left out: {listed(names)} ({reason})")
    fitting = {name: one for name, one in config.measures.items() if name not in dropped}
    return config.model_copy(update={"measures": fitting})


def corpus_sources(config: JobConfig) -> dict[Role, tuple[str, list[str]]]:
    """Return the URL and the excluded shards of each corpus of a job, by role.

    Raises
    ------
    BadInput
        If shards of a reference are excluded and there is no reference.
    """
    sources: dict[Role, tuple[str, list[str]]] = {
        "corpus": (config.corpus, config.exclude_shards.corpus)
    }
    if config.reference is not None:
        sources["reference"] = (config.reference, config.exclude_shards.reference)
    elif config.exclude_shards.reference:
        raise BadInput("exclude_shards.reference names shards, but there is no reference")
    return sources


def job_facts(
    config: JobConfig,
    corpora: Mapping[Role, Corpus] | Mapping[Role, Corpus | UningestedCorpus],
    fixed_scales: Mapping[str, float],
) -> JobFacts:
    """Gather the facts that the stages are planned from."""
    known = {role: corpus_facts(corpus) for role, corpus in corpora.items()}
    if not any(getattr(section, "weights", False) for section in config.measures.values()):
        known = {role: replace(facts, weights=None) for role, facts in known.items()}
    return JobFacts(
        corpora=known,
        seed=config.seed,
        pairs=config.budget.pairs,
        scale_role=_scale_role(config),
        fixed_scales=fixed_scales,
        label_rows=_label_rows(config, corpora["corpus"]),
        replicates=config.replicates.count,
        replicate_rows=config.replicates.rows,
        errors=config.sampling.method == "auto",
        samples=config.sampling.samples if config.sampling.method == "auto" else 0,
        sample_rows=config.sampling.rows,
        pair=config.pair,
        spare_bytes=_spare_bytes(config.output),
    )


def _spare_bytes(output: str) -> int:
    """Return the bytes that stages may store; none for a remote store, which is slow to read.

    An output that can't be written is refused by what writes there.
    """
    try:
        free = free_bytes(ObjectStore(output)) or 0
    except (BadInput, OSError):
        return 0
    return min(SPARE_BYTES, free // 2)


def _label_rows(config: JobConfig, corpus: Corpus | UningestedCorpus) -> dict[str, int]:
    if config.group_by is None:
        return {}
    if not isinstance(corpus, Corpus):
        if corpus.checksum_of("labels") is None:
            raise BadInput(
                f"{corpus.url}: it has no labels, which group_by needs; give them to run with "
                "--labels or --labels-column, or to ingest"
            )
        raise BadInput(
            f"{corpus.url}: the rows of each label are known once the source is ingested; run the "
            "job, which does that, or ingest the source and plan the corpus"
        )
    return {label: len(rows) for label, rows in rows_by_label(corpus).items()}


def plan_stages(config: JobConfig, facts: JobFacts) -> tuple[Stage, ...]:
    """Plan every stage, each after those it needs.

    Raises
    ------
    BadInput
        If a measure doesn't fit the corpora or the budget, or a task doesn't fit the memory limit.
    """
    stages = [
        stage
        for name, section in measures_of(config).items()
        for stage in plan_measure(name, MEASURES[name], section, facts)
    ]
    stages += plan_by_label(MEASURES, config.measures, facts)
    stages += plan_samples(MEASURES, config.measures, facts)
    # Measures may need the same stage.
    stages = list({stage.name: stage for stage in stages}.values())
    check_memory(stages, config.cluster.memory_limit)
    return tuple(stages)


def identify_plan(
    config: JobConfig,
    corpora: Mapping[Role, Corpus],
    facts: JobFacts,
    stages: tuple[Stage, ...],
) -> Plan:
    """Assemble the plan; this needs the fingerprints of the corpora."""
    prints = {role: corpus.fingerprint for role, corpus in corpora.items()}
    hashed = config_hash(
        config,
        prints["corpus"],
        prints.get("reference"),
        facts.fixed_scales,
        _beside(config, facts, corpora, stages),
    )
    return Plan(config, corpora, facts, stages, hashed)


def _beside(
    config: JobConfig, facts: JobFacts, corpora: Mapping[Role, Corpus], stages: Iterable[Stage]
) -> dict[str, Any]:
    """Return what else the results tell of or depend on.

    That is the number of rows that were left out of the sources, and why others were, the checksums
    of ids and texts, those of the weights and labels that the job reads, and those of the files
    with functions of the user.
    """
    dropped = {
        f"{role} dropped rows": corpus.manifest.dropped.count for role, corpus in corpora.items()
    } | {f"{role} left out": list(corpus.left_out) for role, corpus in corpora.items()}
    # Results show rows by these, though no number depends on them.
    shown = {
        f"{role} {name}": corpus.checksum_of(name)
        for name in ("ids", "texts")
        for role, corpus in corpora.items()
    }
    read = {config.group_by}.union(
        *(MEASURES[name].reads(section, facts) for name, section in measures_of(config).items()),
        {"weights"} if any(stage.parameters.get("weights") for stage in stages) else (),
    )
    called = {path for section in config.measures.values() for path in section.code}
    code = {f"code {path}": source_checksum(path) for path in sorted(called)}
    return {name: found for name, found in (dropped | shown | code).items() if found} | {
        f"{role} {name}": checksum
        for role, corpus in facts.corpora.items()
        for name, checksum in (("weights", corpus.weights), ("labels", corpus.labels))
        if checksum and name in read
    }


def measures_of(config: JobConfig) -> dict[str, Any]:
    """Return the settings of every measure of a job; None for those that it doesn't name."""
    always = {name: None for name, measure in MEASURES.items() if measure.always}
    return {**always, **config.measures}


def measure_sections() -> dict[str, type[Section]]:
    """Return the configuration section of every measure."""
    return {name: measure.section for name, measure in MEASURES.items()}


def corpus_facts(corpus: Corpus | UningestedCorpus) -> CorpusFacts:
    """Return the facts of a corpus, or of a source to ingest, that a plan may depend on."""
    return CorpusFacts(
        n=corpus.n,
        d=corpus.d,
        dtype=str(corpus.dtype),
        shards=corpus.shard_count,
        shard_rows=corpus.shard_rows,
        zero_rows=corpus.zero_rows,
        weights=corpus.checksum_of("weights"),
        labels=corpus.checksum_of("labels"),
        ids=corpus.checksum_of("ids"),
        shard_prints=corpus.shard_prints if isinstance(corpus, Corpus) else (),
        left_out=corpus.left_out if isinstance(corpus, Corpus) else (),
    )


def _scale_role(config: JobConfig) -> Role:
    if config.scales_from == "reference" and config.reference is None:
        raise BadInput("scales_from is reference, but there is no reference")
    # A job that lends its scales may lack one, which is then derived as usual.
    if config.scales_from != "corpus" and config.reference is not None:
        return "reference"
    return "corpus"
