"""Reports in a real browser: nothing fetched, nothing complained of, every plot drawn, accessible.

Screenshots are kept in the folder that ``LATENTSCALE_ARTEFACTS`` names, for people to look at.
"""

import os
import re
import shutil
from collections.abc import Callable, Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from latentscale_pipeline.compare.jobs import compare
from latentscale_pipeline.compare.report import comparison_report
from latentscale_pipeline.history.entries import make_entry
from latentscale_pipeline.history.report import series_report
from latentscale_pipeline.report import FORMATS, Report, job_report
from tests.support.report_documents import HOSTILE, full_results, later
from tests.support.results_documents import finished_job, read

CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser"))), None)

pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="no Chromium on this machine")

PATIENCE_MS = 120_000.0
"""A page of 5 MB, on a machine that may be busy."""


def job_page() -> Report:
    return job_report(read(full_results()))


def comparison_page() -> Report:
    jobs = [
        finished_job(later(full_results(), night, share), None, f"jobs/{night}")
        for night, share in ((3, 0.7), (2, 0.98), (1, 1.0))
    ]
    return comparison_report([compare(job, jobs[-1]) for job in jobs[:-1]])


def series_page() -> Report:
    entries = [
        make_entry(
            finished_job(later(full_results(), night, share), None, f"jobs/{night}"),
            workflow="nightly",
            passed=night < 3,
            failures="" if night < 3 else f"vendi fell {HOSTILE}",
        )
        for night, share in ((1, 1.0), (2, 0.98), (3, 0.7))
    ]
    return series_report(entries, f"nightly {HOSTILE}", {HOSTILE: entries[0].job})


PAGES: dict[str, Callable[[], Report]] = {
    "job": job_page,
    "comparison": comparison_page,
    "series": series_page,
}


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    playwright = pytest.importorskip("playwright.sync_api", reason="playwright isn't installed")
    with playwright.sync_playwright() as started:
        options = ["--no-sandbox", "--disable-dev-shm-usage", "--disable-gpu"]
        running = started.chromium.launch(executable_path=CHROMIUM, args=options)
        yield running
        running.close()


@pytest.fixture(params=list(PAGES))
def kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def keep(page: Any, name: str) -> None:
    folder = os.environ.get("LATENTSCALE_ARTEFACTS")
    if folder:
        Path(folder).mkdir(parents=True, exist_ok=True)
        page.screenshot(path=f"{folder}/report-{name}.png", full_page=True, timeout=PATIENCE_MS)


def keep_bytes(content: bytes, name: str) -> None:
    folder = os.environ.get("LATENTSCALE_ARTEFACTS")
    if folder:
        (Path(folder) / name).write_bytes(content)


def test_a_page_in_a_browser(browser: Any, kind: str, tmp_path: Path) -> None:
    from axe_playwright_python.sync_playwright import Axe

    report = PAGES[kind]()
    path = tmp_path / "report.html"
    path.write_text(FORMATS["html"](report))
    page = browser.new_page(viewport={"width": 1280, "height": 900}, color_scheme="light")
    page.set_default_timeout(PATIENCE_MS)
    complaints: list[str] = []
    requests: list[str] = []
    page.on("console", lambda message: complaints.append(f"{message.type}: {message.text}"))
    page.on("pageerror", lambda error: complaints.append(str(error)))
    page.on("dialog", lambda dialog: complaints.append(f"dialog: {dialog.message}"))
    page.on("request", lambda request: requests.append(request.url))
    page.goto(path.as_uri(), timeout=PATIENCE_MS)
    figures = [figure for section in report.sections for figure in section.figures]
    assert len(figures) >= 4
    for figure in figures:
        drawn = page.evaluate(
            """key => {
              const plot = document.getElementById("plot-" + key);
              const svg = plot.querySelector(".main-svg");
              const marks = plot.querySelectorAll(".trace path, .trace .point, .points path");
              const box = svg.getBoundingClientRect();
              return {marks: marks.length, width: box.width, height: box.height,
                      room: plot.clientWidth, below: plot.clientHeight - box.height};
            }""",
            figure.key,
        )
        assert drawn["marks"] > 0, figure.key
        assert drawn["height"] > 100, figure.key
        assert drawn["width"] == pytest.approx(drawn["room"], abs=2), figure.key
        assert drawn["room"] > 1000, "all of the column"
        assert drawn["below"] < 10, "no hole below a plot"
    widths = page.evaluate(
        "[...document.querySelectorAll('.answer')].map(card => card.clientWidth + 2)"
    )
    assert set(widths) == {page.evaluate("document.querySelector('main').clientWidth")}
    keep(page, f"{kind}-light")
    # All rules once; what another scheme changes is its colours.
    for scheme, rules in (("light", None), ("dark", {"runOnly": ["color-contrast"]})):
        page.emulate_media(color_scheme=scheme)
        found = Axe().run(page, options=rules)
        assert found.violations_count == 0, f"{scheme}: {found.generate_report()}"
    keep(page, f"{kind}-dark")
    page.emulate_media(color_scheme="light")
    page.set_viewport_size({"width": 390, "height": 800})
    for _ in range(100):  # the page's own policy forbids to wait by evaluating a text
        box = page.locator(".plot .main-svg").first.bounding_box()  # none while it is redrawn
        if box is not None and box["width"] < 390:
            break
        page.wait_for_timeout(200)
    wide = page.evaluate("document.documentElement.scrollWidth")
    assert wide <= 390, "a phone needn't scroll sideways"
    keep(page, f"{kind}-phone")
    printed = page.pdf(format="A4")
    assert 3 <= len(re.findall(rb"/Type\s*/Page\b", printed)) <= 20
    keep_bytes(printed, f"report-{kind}.pdf")
    headings = page.evaluate(
        "[...document.querySelectorAll('h1,h2,h3,h4')].map(found => Number(found.tagName[1]))"
    )
    assert headings.count(1) == 1
    assert all(after - before <= 1 for before, after in pairwise(headings))
    assert page.evaluate("document.querySelectorAll('img, script[src], link').length") == 0
    assert complaints == []
    assert requests == [path.as_uri()]
    page.close()


def test_figures_are_saved_as_svg_and_png(browser: Any, tmp_path: Path) -> None:
    path = tmp_path / "report.html"
    path.write_text(FORMATS["html"](job_page()))
    page = browser.new_page(color_scheme="dark", accept_downloads=True)
    page.set_default_timeout(PATIENCE_MS)
    page.goto(path.as_uri(), timeout=PATIENCE_MS)
    starts = {"svg": b"<svg", "png": b"\x89PNG"}
    for form, start in starts.items():
        with page.expect_download(timeout=PATIENCE_MS) as waiting:
            page.click(f"button[data-save=heat-trace][data-format={form}]")
        saved = Path(tmp_path / f"figure.{form}")
        waiting.value.save_as(saved)
        assert waiting.value.suggested_filename == f"heat-trace.{form}"
        assert saved.read_bytes().startswith(start)
        assert saved.stat().st_size > 5000
    text = (tmp_path / "figure.svg").read_text()
    assert "rgb(255, 255, 255)" in text, "on white, whatever the page is shown in"
    assert "corpus" in text
    page.close()
