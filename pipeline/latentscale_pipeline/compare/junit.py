"""Write gate results as JUnit XML for CI systems, one test case per gate."""

from __future__ import annotations

import xml.etree.ElementTree as ET
from collections.abc import Sequence

from latentscale_pipeline.compare.gate_checks import GateResult
from latentscale_pipeline.compare.jobs import Comparison
from latentscale_pipeline.views.formatting import printable


def junit_xml(comparison: Comparison, gates: Sequence[GateResult]) -> str:
    """Return the gates as one JUnit XML document.

    Names are escaped, and characters that XML doesn't allow are replaced.
    """
    failures = str(sum(result.outcome == "failed" for result in gates))
    errors = str(sum(bool(result.refusal) for result in gates))
    counts = {"tests": str(len(gates)), "failures": failures, "errors": errors, "time": "0"}
    root = ET.Element("testsuites", {"name": "latentscale compare", **counts})
    title = printable(f"{comparison.job.id} against {comparison.baseline.id}")
    suite = ET.SubElement(root, "testsuite", {"name": title, **counts, "skipped": "0"})
    for result in gates:
        names = {"classname": "latentscale.gates", "name": str(result.gate), "time": "0"}
        case = ET.SubElement(suite, "testcase", names)
        if result.refusal:
            ET.SubElement(case, "error", {"message": result.refusal, "type": "unchecked"})
        elif not result.passed:
            problem = {"message": result.message, "type": result.failures[0].limit}
            failure = ET.SubElement(case, "failure", problem)
            failure.text = "\n".join(found.message for found in result.failures)
        elif said := [f"warning: {found.message}" for found in result.failures] or result.remark:
            out = ET.SubElement(case, "system-out")
            out.text = said if isinstance(said, str) else "\n".join(said)
    ET.indent(root)
    return f'<?xml version="1.0" encoding="UTF-8"?>\n{ET.tostring(root, encoding="unicode")}\n'
