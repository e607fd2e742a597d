"""Compute one measure of arrays in this process.

The measure is planned as in a job, and the engine's loop runs its stages, one task at a time. The
rows and the results of the stages stay in memory; there is no folder, no lock and no report.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from numpy.typing import ArrayLike, NDArray

from latentscale_pipeline.config.job import JobConfig, resolve_config
from latentscale_pipeline.corpus import Corpus
from latentscale_pipeline.corpus.in_memory import hold_rows
from latentscale_pipeline.engine.calibration import Rates, calibrate
from latentscale_pipeline.engine.in_memory import HeldResults, run_in_memory
from latentscale_pipeline.engine.memory import format_gibibytes
from latentscale_pipeline.engine.stage import Stage
from latentscale_pipeline.errors import BadInput, LatentscaleError
from latentscale_pipeline.jobs.machine import memory_bytes
from latentscale_pipeline.jobs.plan import job_facts, measure_sections
from latentscale_pipeline.measures.base import Findings, Role, Score, plan_measure
from latentscale_pipeline.measures.registry import MEASURES
from latentscale_pipeline.views.formatting import format_duration

LONG_SECONDS = 15.0
"""Expected time above which a computation is announced."""

SLOW_RATES = Rates(
    float64_multiply_adds=1e9,
    float32_multiply_adds=2e9,
    elementwise_operations=1e8,
    read_bytes=1e8,
)
"""Of a slow machine. What is short there isn't worth the second that measuring this one takes."""


@dataclass(frozen=True)
class Computed:
    """The findings of a measure, and the arrays of its stages.

    Attributes
    ----------
    section : Part
        The measure's part of a job's results.
    findings : Findings
        The measure's scores and section.
    results : HeldResults
        The results of its stages, which hold the arrays.
    """

    section: Any
    findings: Findings
    results: HeldResults

    def score(self, name: str) -> Score:
        """Return a score by its name."""
        [score] = [score for score in self.findings.scores if score.score == name]
        return score

    def expected(self, name: str) -> tuple[float, float]:
        """Return the range in which the measure itself expects a score."""
        place = [score.score for score in self.findings.scores].index(name)
        known = self.findings.expected[place]
        if isinstance(known, str):
            raise ValueError(f"{name} has no expected range: {known}")
        return known.expectation.lower, known.expectation.upper

    def array(self, name: str) -> NDArray[Any]:
        """Return an array by its name in a job's results."""
        return self.results.array(self.findings.arrays[name])


def compute(
    measure: str,
    section: Mapping[str, Any],
    corpus: ArrayLike,
    reference: ArrayLike | None = None,
    *,
    weights: ArrayLike | None = None,
    budget: float | None = None,
    seed: int = 0,
) -> Computed:
    """Compute one measure.

    Parameters
    ----------
    measure : str
        Its name in a job.
    section : mapping
        Its section of a job's configuration.
    corpus, reference : array_like
        Rows.
    weights : array_like, optional
        Weights of the corpus's rows.
    budget : float, optional
        Maximum number of pairs of rows to evaluate; by default as in a job.
    seed : int
        Seed of the random numbers.

    Raises
    ------
    ValueError
        If the rows or the options are invalid; the message is one line.
    RuntimeError
        If a task fails, with its traceback.
    """
    compares = reference is not None
    try:
        config = _configure(measure, section, compares, budget, seed)
        corpora: dict[Role, Corpus] = {
            "corpus": hold_rows(corpus, "corpus" if compares else "rows", weights=weights)
        }
        if reference is not None:
            corpora["reference"] = hold_rows(reference, "reference")
        computed = _compute(measure, config, corpora)
    except LatentscaleError as error:
        raise ValueError(_in_arguments(str(error), measure, compares)) from None
    return computed


def _configure(
    measure: str, section: Mapping[str, Any], compares: bool, budget: float | None, seed: int
) -> JobConfig:
    """Check the options as in a job."""
    document: dict[str, Any] = {
        "name": measure,
        "corpus": "corpus",
        "seed": seed,
        "sampling": {"method": "none"},
        "measures": {measure: section},
        "cluster": {"kind": "serial"},
    }
    if compares:
        document["reference"] = "reference"
    if budget is not None:
        document["budget"] = {"pairs": budget}
    config = resolve_config(document, "arguments", measures=measure_sections())
    if config.measures[measure].code:
        [code, *_] = config.measures[measure].code
        raise BadInput(f"{code} is a function, which only latentscale run --allow-code takes")
    return config


def _compute(measure: str, config: JobConfig, corpora: Mapping[Role, Corpus]) -> Computed:
    # What a job stores would be held in memory here.
    facts = replace(job_facts(config, corpora, {}), spare_bytes=0)
    section = config.measures[measure]
    planned = plan_measure(measure, MEASURES[measure], section, facts)
    stages = {stage.name: stage for stage in planned}
    if stages:
        _check_memory(stages)
    _announce(measure, stages.values())
    held = {str(role): corpus for role, corpus in corpora.items()}
    results = run_in_memory(list(stages.values()), held)
    findings = MEASURES[measure].collect(section, facts, results)
    if findings.section is None:
        raise BadInput(findings.reason or "nothing was found")
    findings = MEASURES[measure].name_representatives(section, findings, results, corpora)
    return Computed(findings.section, findings, results)


def _check_memory(stages: Mapping[str, Stage]) -> None:
    largest = max(stages.values(), key=lambda stage: stage.memory_bytes)
    if largest.memory_bytes > memory_bytes():
        raise BadInput(
            f"{largest.name} needs {format_gibibytes(largest.memory_bytes)} of memory, but this "
            f"machine has {memory_bytes() / 2**30:.1f}GiB; use fewer rows"
        )


def _announce(measure: str, stages: Iterable[Stage]) -> None:
    """Say on standard error how long it will take, if that is long."""
    costs = [stage.cost_estimate for stage in stages]
    if sum(map(SLOW_RATES.seconds, costs)) < LONG_SECONDS:
        return
    seconds = sum(map(calibrate(iter(())).seconds, costs))
    if seconds >= LONG_SECONDS:
        sys.stderr.write(f"{measure}: about {format_duration(seconds)}\n")
        sys.stderr.flush()


def _in_arguments(message: str, measure: str, compares: bool) -> str:
    """Replace the configuration keys in a message with the function's arguments."""
    for pattern, words in (
        (r"^arguments: ", ""),
        (rf"\b(?:measures\.)?{measure}\.(?=\w)", ""),
        (r"\bmeasures\.(\w+)", r"\1"),
        (r"\bkernels\.0\.bandwidth\b", "bandwidth"),
        (r"\bkernels\.0(\.name)?\b", "kernel"),
        (r"\btimes: start must be below stop\b", "the first of times must be below the last"),
        (r"\btimes\.start\b", "the first of times"),
        (r"\btimes\.stop\b", "the last of times"),
        (r"\btimes\.count\b", "the number of times"),
        (r"\b(orders|scales|times)\.\w+", r"\1"),
        (r"\bbudget\.pairs\b", "budget"),
        (r"set rows to (\d+) or fewer random rows a side", r"give \1 or fewer random rows a side"),
        (r"raise overlap, ", ""),
        (r"neighbours: exact", "neighbours='exact'"),
        (r"set weights to false", "give none"),
        (r", or a function as module:function", ""),
        (r"; leave it out of measures$", ""),
        (r"^stage [^:]+: ", ""),
    ):
        message = re.sub(pattern, words, message)
    return message if compares else re.sub(r"^corpus: ", "rows: ", message)
