"""The output of a reproduction: a dated JSON, a figure, and the table on its page.

A script computes its numbers once, with a fixed seed, and passes them to :func:`publish` as a
:class:`Reproduction`: findings (each a claim of the paper with the result here), panels for the
figure, and all numbers. ``--short`` runs a smaller version within seconds, which isn't published.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import platform
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np

from latentscale.estimate import Estimate
from latentscale_pipeline.views.figure import Panel
from latentscale_pipeline.views.svg import draw_panels

ROOT = Path(__file__).parents[1]
RESULTS = ROOT / "reproductions" / "results"
PAGES = ROOT / "docs" / "papers"
BEGIN, END = "<!-- table -->", "<!-- end of table -->"
LIBRARIES = ("latentscale", "numpy", "scipy", "numba")


@dataclass(frozen=True)
class Finding:
    """A claim of a paper, and the result here.

    Attributes
    ----------
    claim, paper, here : str
        The claim, the paper's number, and the number here with its bracket.
    agrees : bool
        Whether the result supports the claim.
    """

    claim: str
    paper: str
    here: str
    agrees: bool


@dataclass(frozen=True)
class Reproduction:
    """The content of a page; ``numbers`` is JSON."""

    findings: Sequence[Finding]
    panels: Sequence[Panel]
    numbers: Mapping[str, Any]
    data: str
    columns: int = 3


def publish(name: str, reproduce: Callable[[bool], Reproduction]) -> None:
    """Run a script: compute, then write the record, the figure and the page's table."""
    parser = argparse.ArgumentParser(description=sys.modules["__main__"].__doc__)
    parser.add_argument("--short", action="store_true", help="few rows, within seconds")
    parser.add_argument("--output", type=Path, help="folder to write to, not the project's own")
    asked = parser.parse_args()
    started, begun = time.strftime("%Y-%m-%dT%H:%M:%S%z"), time.perf_counter()
    done = reproduce(asked.short)
    record = {
        "schema": "latentscale.reproduction/1",
        "name": name,
        "started": started,
        "seconds": round(time.perf_counter() - begun, 1),
        "short": asked.short,
        "machine": {"system": platform.platform(), "cores": os.cpu_count()},
        "versions": {"python": platform.python_version()} | {n: version(n) for n in LIBRARIES},
        "data": done.data,
        "findings": [asdict(finding) for finding in done.findings],
        "numbers": done.numbers,
    }
    print(table(record["findings"]))
    if asked.output or not asked.short:
        results, pages = (asked.output,) * 2 if asked.output else (RESULTS, PAGES)
        results.mkdir(parents=True, exist_ok=True)
        text = json.dumps(rounded(record), indent=1, allow_nan=False)
        (results / f"{name}.json").write_text(text + "\n", "utf-8")
        figure = draw_panels(done.panels, columns=done.columns, paper="white")
        (pages / f"{name}.svg").write_text(figure + "\n", "utf-8")
        page = pages / f"{name}.md"
        if page.exists():
            page.write_text(with_table(page.read_text("utf-8"), record["findings"]), "utf-8")
    if not all(finding.agrees for finding in done.findings):
        print("not all claims are borne out", file=sys.stderr)


def table(findings: Sequence[Mapping[str, Any]]) -> str:
    """Write findings as a Markdown table."""
    lines = ["| claim | paper | here | agrees |", "|---|---|---|---|"]
    for finding in findings:
        agrees = "yes" if finding["agrees"] else "no"
        lines.append(f"| {finding['claim']} | {finding['paper']} | {finding['here']} | {agrees} |")
    return "\n".join(lines)


def with_table(page: str, findings: Sequence[Mapping[str, Any]]) -> str:
    """Put the table of these findings between a page's two comments."""
    before, rest = page.split(BEGIN)
    _, after = rest.split(END)
    return f"{before}{BEGIN}\n\n{table(findings)}\n\n{END}{after}"


def bracketed(found: Estimate) -> str:
    """Return a number with its bracket as text, with as few digits as needed."""
    half = (found.upper - found.lower) / 2
    if half <= 1e-6 * abs(found.value):
        return f"{found.value:.4g} ({found.bounds})"
    return f"{found.value:.4g} [{found.lower:.4g}, {found.upper:.4g}]"


def rounded(value: Any) -> Any:
    """Round every number to seven digits; NaN and infinity become None."""
    if isinstance(value, Mapping):
        return {str(key): rounded(part) for key, part in value.items()}
    if isinstance(value, list | tuple):
        return [rounded(part) for part in value]
    if isinstance(value, np.generic):
        return rounded(value.item())
    if isinstance(value, float):
        return float(f"{value:.7g}") if math.isfinite(value) else None
    return value
