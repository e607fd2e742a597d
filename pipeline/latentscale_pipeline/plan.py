"""From a configuration to everything that will be done: corpora, stages, keys, identity.

A plan is made from the configuration and from the size and fingerprint of the corpora alone;
nothing of the cluster enters it, so the same job has the same plan everywhere.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from latentscale_pipeline.corpus import Corpus, ensure_corpus
from latentscale_pipeline.engine.memory import IDLE_WORKER_BYTES, check_memory
from latentscale_pipeline.engine.stage import Stage, stage_keys
from latentscale_pipeline.errors import BadInput
from latentscale_pipeline.job.config import JobConfig, Section
from latentscale_pipeline.job.identity import config_hash, job_id
from latentscale_pipeline.lent_scales import read_scales
from latentscale_pipeline.progress import Progress, silent
from latentscale_pipeline.stages import MEASURES
from latentscale_pipeline.stages.duplicates import plan_duplicates
from latentscale_pipeline.stages.measure import CorpusFacts, JobFacts, Measure, Role


@dataclass(frozen=True)
class Plan:
    """A job, ready to run.

    Attributes
    ----------
    config : JobConfig
        With its measures resolved.
    corpora : mapping of role to Corpus
        ``corpus``, and ``reference`` when there is one.
    facts : JobFacts
        What the stages were planned from.
    stages : tuple of Stage
        Each after those it needs.
    config_hash : str
        Identity of everything that determines the numbers.
    """

    config: JobConfig
    corpora: Mapping[Role, Corpus]
    facts: JobFacts
    stages: tuple[Stage, ...]
    config_hash: str

    @property
    def id(self) -> str:
        """Name of the job's folder."""
        return job_id(self.config, self.config_hash)

    @cached_property
    def fingerprints(self) -> dict[str, str]:
        """Fingerprint of each corpus by role."""
        return {role: corpus.fingerprint for role, corpus in self.corpora.items()}

    @cached_property
    def keys(self) -> dict[str, str]:
        """Key of each stage by name."""
        return stage_keys(self.stages, self.fingerprints)

    def describe(self) -> dict[str, Any]:
        """Return the plan as JSON: what each stage needs, and what it will hold in memory."""
        return {
            "job": self.id,
            "config_hash": self.config_hash,
            "stages": [
                {
                    "stage": stage.name,
                    "key": self.keys[stage.name],
                    "needs": list(stage.needs),
                    "corpora": list(stage.corpora),
                    "partitions": stage.partitions,
                    "peak_memory_bytes": stage.memory_bytes + IDLE_WORKER_BYTES,
                }
                for stage in self.stages
            ],
        }


def make_plan(
    config: JobConfig,
    *,
    measures: Mapping[str, Measure] = MEASURES,
    progress: Progress = silent,
) -> Plan:
    """Open the corpora (ingesting sources that aren't one yet) and plan every stage.

    Raises
    ------
    BadInput
        If a corpus can't be had, a measure doesn't fit the corpora, or a task doesn't fit the
        memory limit: before any work is done.
    """
    sources: dict[Role, str] = {"corpus": config.corpus}
    if config.reference is not None:
        sources["reference"] = config.reference
    fixed_scales = read_scales(config)
    corpora: dict[Role, Corpus] = {
        role: ensure_corpus(url, config.output, progress) for role, url in sources.items()
    }
    facts = JobFacts(
        corpora={role: _facts(corpus) for role, corpus in corpora.items()},
        seed=config.seed,
        pairs=config.budget.pairs,
        scale_role=_scale_role(config),
        fixed_scales=fixed_scales,
    )
    stages = plan_duplicates(facts)
    for name, section in config.measures.items():
        stages += measures[name].plan(section, facts)
    check_memory(stages, config.cluster.memory_limit)
    prints = {role: corpus.fingerprint for role, corpus in corpora.items()}
    return Plan(
        config=config,
        corpora=corpora,
        facts=facts,
        stages=tuple(stages),
        config_hash=config_hash(config, prints["corpus"], prints.get("reference"), fixed_scales),
    )


def measure_sections(measures: Mapping[str, Measure] = MEASURES) -> dict[str, type[Section]]:
    """Return the configuration section of every known measure."""
    return {name: measure.section for name, measure in measures.items()}


def comparing_measures(measures: Mapping[str, Measure] = MEASURES) -> list[str]:
    """Return the names of the measures that need a reference."""
    return [name for name, measure in measures.items() if measure.compares]


def _facts(corpus: Corpus) -> CorpusFacts:
    return CorpusFacts(
        n=corpus.n,
        d=corpus.d,
        dtype=str(corpus.dtype),
        shards=corpus.shard_count,
        shard_rows=corpus.shard_rows,
        zero_rows=corpus.manifest.zero_rows.count,
    )


def _scale_role(config: JobConfig) -> Role:
    if config.scales_from == "reference" and config.reference is None:
        raise BadInput("scales_from is reference and there is no reference")
    if config.scales_from in {"auto", "reference"} and config.reference is not None:
        return "reference"
    return "corpus"
