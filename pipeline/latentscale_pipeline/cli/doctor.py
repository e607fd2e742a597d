"""``latentscale doctor``: what is installed here, and how to get what is missing."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict

import click
from rich.console import Console

from latentscale_pipeline.cli.options import JSON
from latentscale_pipeline.errors import BadInput
from latentscale_pipeline.jobs.installation import Finding, examine_installation
from latentscale_pipeline.views.terminal import Row, print_table

HERE, DETAILS = "here", "version, or how to get it"


@click.command()
@JSON
def doctor(as_json: bool) -> None:
    """Show what is installed here, and how to get what is missing.

    Extras (s3, parquet, …) and schedulers are needed only by jobs that use them. The exit code is 2
    if something that every job needs is missing or broken, and otherwise 0.

    \b
    Example:
      latentscale doctor
      latentscale doctor --json
    """
    findings = examine_installation()
    broken = [finding for finding in findings if finding.state == "broken"]
    if as_json:
        document = {"ok": not broken, "findings": [asdict(finding) for finding in findings]}
        click.echo(json.dumps(document, indent=2))
    else:
        _show(findings)
    if broken:
        first = broken[0]
        raise BadInput(f"{first.part}: {first.found}; {first.remedy}")


def _show(findings: Sequence[Finding]) -> None:
    rows: list[Row] = [
        {"part": finding.part, HERE: finding.state, DETAILS: _details(finding)}
        for finding in findings
    ]
    print_table(Console(), ("part", HERE, DETAILS), rows, folded=(DETAILS,))


def _details(finding: Finding) -> str:
    """Return one cell; of a missing extra, the command that installs it says enough."""
    if finding.remedy.startswith("pip ") and finding.state == "no":
        return finding.remedy
    return "; ".join(said for said in (finding.found, finding.remedy) if said)
