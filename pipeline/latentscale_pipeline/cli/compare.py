"""``latentscale compare``: a job against a baseline."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import click
from rich.console import Console

from latentscale_pipeline.cli.options import (
    ALL_SCORES,
    ALLOW_INCOMPARABLE,
    GATES,
    JSON,
    several_jobs,
    taking,
)
from latentscale_pipeline.cli.text_files import read_text, write_text
from latentscale_pipeline.compare.document import comparison_document, dump_document
from latentscale_pipeline.compare.gate_checks import GateResult, refuse_unchecked, try_gates
from latentscale_pipeline.compare.gates import read_gates
from latentscale_pipeline.compare.jobs import Comparison
from latentscale_pipeline.compare.jobs import compare as compare_jobs
from latentscale_pipeline.compare.junit import junit_xml
from latentscale_pipeline.compare.many import comparisons_document, print_comparisons
from latentscale_pipeline.compare.markdown import comparison_markdown
from latentscale_pipeline.compare.rows_changed import count_changes
from latentscale_pipeline.compare.terminal import print_comparison
from latentscale_pipeline.errors import BadInput, GateFailed
from latentscale_pipeline.history.registry import Registry
from latentscale_pipeline.measures.finished_job import FinishedJob, read_job

STANDARD_OUTPUT = "-"


@click.command(no_args_is_help=True)
@several_jobs("JOB... BASELINE", least=2)
@taking(GATES, ALLOW_INCOMPARABLE, ALL_SCORES, JSON)
@click.option(
    "--fail-on-difference", is_flag=True, help="Exit with 1 if JOB differs (the verdict)."
)
@click.option("--history", metavar="FOLDER", help="Earlier jobs of its name, for gates with drift.")
@click.option("--junit", metavar="FILE", help="Write the gates as JUnit XML.")
@click.option(
    "--markdown",
    metavar="[FILE or -]",
    is_flag=False,
    flag_value=STANDARD_OUTPUT,
    help="Write a comment for a pull request; given last, or with -, print it.",
)
def compare(
    jobs: tuple[str, ...],
    gates_file: str | None,
    allow_incomparable: bool,
    fail_on_difference: bool,
    every_score: bool,
    as_json: bool,
    history: str | None,
    junit: str | None,
    markdown: str | None,
) -> None:
    """Compare the scores of JOB, or of several, with those of BASELINE.

    All are folders of finished jobs, local or URLs such as s3://bucket/jobs/nightly-1a2b3c4d; the
    hash at the end may be left out if one job fits. The verdict says whether the scores of JOB are
    where chance alone puts a corpus from the source of BASELINE. Scores that were measured with
    other settings or scales, or depend on the number of rows where it differs, are left out.

    \b
    Example:
      latentscale compare jobs/nightly-1a2b3c4d jobs/release-5e6f7a8b --fail-on-difference
      latentscale compare jobs/small-9c0d1e2f jobs/large-3a4b5c6d jobs/release-5e6f7a8b
      latentscale compare jobs/nightly-1a2b3c4d s3://bucket/jobs/release-5e6f7a8b \\
        --gates gates.yaml --junit gates.xml --markdown comment.md

    \b
    A gates file:
      gates:
        - {measure: vendi, kernel: cosine, order: '1', max_drop: 0.1}
        - {measure: geomca, score: recall, min: 0.8}
        - {measure: heat, score: imd, max: 1.0e-4}
        - {drift: {window: 14, sigmas: 3}}   # with --history

    Exit codes: 0 compared and every gate passed, 1 a gate failed or a difference was found, 2 bad
    input, or a gate that can't be checked, such as one on scores that can't be compared.
    """
    if len(jobs) < 2:
        raise click.UsageError("name a job and, last, the baseline to compare it with")
    *compared, baseline = jobs
    if len(compared) > 1:
        for name, given in (
            ("--gates", gates_file),
            ("--junit", junit),
            ("--markdown", markdown),
            ("--history", history),
        ):
            if given is not None:
                raise click.UsageError(
                    f"{name} is for one job and its baseline; {len(compared)} jobs are named"
                )
        _compare_many(
            compared, baseline, allow_incomparable, every_score, as_json, fail_on_difference
        )
        return
    [job] = compared
    if as_json and markdown == STANDARD_OUTPUT:
        raise click.UsageError("--json and --markdown both print; name a file: --markdown FILE")
    if junit is not None and gates_file is None:
        raise click.UsageError("--junit writes the results of gates; name them with --gates FILE")
    if history is not None and gates_file is None:
        raise click.UsageError("--history is for gates with drift; name them with --gates FILE")
    comparison, results = compare_with(
        read_job(baseline), read_job(job), gates_file, allow_incomparable, history
    )
    if junit is not None and results is not None:
        write_text(junit, junit_xml(comparison, results))
    if markdown is not None:
        place = None if markdown == STANDARD_OUTPUT else markdown
        write_text(place, comparison_markdown(comparison, results))
    if as_json:
        click.echo(dump_document(comparison_document(comparison, results)))
    elif markdown != STANDARD_OUTPUT:
        print_comparison(comparison, results, Console(), every_score=every_score)
    failed = [result for result in results or () if result.outcome == "failed"]
    unchecked = [result for result in results or () if result.refusal]
    for result in results or ():
        if result.message and result not in unchecked[:1]:  # that one ends the command
            click.echo(f"gate {result.outcome}: {result.message}", err=True)
    refuse_unchecked(results or ())
    if failed:
        raise GateFailed(f"{len(failed)} of {len(results or ())} gates failed")
    if fail_on_difference:
        _fail_on_difference(comparison)


def _compare_many(
    jobs: Sequence[str],
    baseline: str,
    allow_incomparable: bool,
    every_score: bool,
    as_json: bool,
    fail_on_difference: bool,
) -> None:
    """Compare several jobs with one baseline."""
    usual = read_job(baseline)
    found = [
        compare_jobs(read_job(job), usual, allow_incomparable=allow_incomparable) for job in jobs
    ]
    if as_json:
        click.echo(comparisons_document(found))
    else:
        print_comparisons(found, Console(), every_score=every_score)
    if fail_on_difference:
        # A difference that was found counts more than one that nobody can tell.
        for comparison in sorted(found, key=lambda each: each.verdict.value != "differs"):
            _fail_on_difference(comparison)


def _fail_on_difference(comparison: Comparison) -> None:
    """End with exit code 1 if the job differs, with 2 if nobody can tell."""
    job, baseline = comparison.job.id, comparison.baseline.id
    verdict = comparison.verdict
    if verdict.value == "differs":
        raise GateFailed(f"{job} differs from {baseline}: {verdict.reason}")
    if verdict.value != "no_difference_found":
        raise BadInput(
            f"--fail-on-difference: nobody can tell {job} from {baseline}: {verdict.reason}"
        )


def compare_with(
    baseline: FinishedJob,
    job: FinishedJob,
    gates_file: str | None,
    allow_incomparable: bool,
    history: str | None = None,
) -> tuple[Comparison, Sequence[GateResult] | None]:
    """Compare a job with a baseline, and check the gates of a file, if one is named."""
    gates = (
        None
        if gates_file is None
        else read_gates(read_text(gates_file, "a YAML file with gates"), gates_file)
    )
    comparison = compare_jobs(job, baseline, allow_incomparable=allow_incomparable)
    comparison = replace(comparison, rows=count_changes(job, baseline))
    earlier = None if history is None else Registry.existing(history).earlier(job.name, job)
    results = None if gates is None else try_gates(gates, comparison, str(gates_file), earlier)
    return comparison, results
