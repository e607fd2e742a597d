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
from tests.support.report_documents import HOSTILE, full_results, later, with_map, with_rows
from tests.support.results_documents import finished_job, read

CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser"))), None)

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(CHROMIUM is None, reason="no Chromium on this machine"),
]

PATIENCE_MS = 120_000.0
"""For a machine that may be busy."""

PHONE = {"width": 390, "height": 844}


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
    page.evaluate("document.querySelectorAll('details').forEach(fold => { fold.open = true; })")
    figures = [figure for section in report.sections for figure in section.figures]
    assert len(figures) >= 4
    for figure in figures:
        drawn = page.evaluate(
            """key => [...document.querySelectorAll(`[id="figure-${key}"] .panel`)].map(panel => {
              const area = panel.querySelector("svg").getBoundingClientRect();
              const shapes = "path[stroke], path[fill], circle";
              return {
                marks: panel.querySelectorAll(shapes).length,
                height: area.height,
                width: panel.getBoundingClientRect().width,
                room: panel.closest("figure").clientWidth,
                hidden: [...panel.querySelectorAll("text")].filter(text => {
                  const box = text.getBoundingClientRect();
                  return box.left < 0 || box.right > innerWidth;
                }).length,
              };
            })""",
            figure.key,
        )
        assert [panel["height"] for panel in drawn] == [panel.height for panel in figure.panels]
        for panel in drawn:
            assert panel["marks"] > 2, figure.key
            assert panel["width"] == pytest.approx(panel["room"], abs=2), figure.key
            assert panel["hidden"] == 0
    keep(page, f"{kind}-light")
    # All rules once; what another scheme changes is its colours.
    for scheme, rules in (("light", None), ("dark", {"runOnly": ["color-contrast"]})):
        page.emulate_media(color_scheme=scheme)
        found = Axe().run(page, options=rules)
        assert found.violations_count == 0, f"{scheme}: {found.generate_report()}"
    keep(page, f"{kind}-dark")
    page.emulate_media(color_scheme="light")
    page.set_viewport_size({"width": 390, "height": 800})
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


def on_first_screen(page: Any, *elements: str) -> bool:
    """Return whether elements lie in the first screen, whole."""
    boxes = [page.locator(element).bounding_box() for element in elements]
    height = page.viewport_size["height"]
    return all(box["y"] >= 0 and box["y"] + box["height"] <= height for box in boxes)


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_the_first_screen_answers(browser: Any, tmp_path: Path, scheme: str) -> None:
    path = tmp_path / "report.html"
    path.write_text(FORMATS["html"](job_report(read(with_rows()))))
    page = browser.new_page(viewport={"width": 1400, "height": 900}, color_scheme=scheme)
    page.goto(path.as_uri(), timeout=PATIENCE_MS)
    keep(page, f"verdict-{scheme}")
    assert on_first_screen(page, "#verdict", ".verdict p >> nth=0")
    assert on_first_screen(page, "#fine", "#compare", "#look", ".command >> nth=0")
    page.set_viewport_size(PHONE)
    keep(page, f"verdict-{scheme}-phone")
    assert on_first_screen(page, "#verdict", ".verdict p >> nth=0")
    for width in (320, 390, 768, 1400):
        page.set_viewport_size({"width": width, "height": 900})
        assert page.evaluate("document.documentElement.scrollWidth") <= width
    small = page.evaluate(
        """[...document.querySelectorAll("body *")].filter(found =>
            [...found.childNodes].some(node => node.nodeType === 3 && node.data.trim())
            && parseFloat(getComputedStyle(found).fontSize) < 11.5
            && getComputedStyle(found).visibility === "visible"
            && !["STYLE", "SCRIPT"].includes(found.tagName)).map(found => found.outerHTML)"""
    )
    assert small == []
    page.close()


def test_a_command_is_copied_and_a_link_opens_what_is_folded(browser: Any, tmp_path: Path) -> None:
    path = tmp_path / "report.html"
    path.write_text(FORMATS["html"](job_report(read(with_rows()))))
    page = browser.new_page()
    page.goto(path.as_uri(), timeout=PATIENCE_MS)
    button = page.locator(".command button").first
    button.click()
    # The browser may take its time to say whether it lets the page write there.
    page.get_by_role("button", name=re.compile("copied|selected")).first.wait_for()
    assert button.inner_text() in {"copied", "selected"}
    folded = page.locator("#numbers > details")
    assert folded.get_attribute("open") is None
    page.locator("nav a[href='#numbers']").click()
    page.wait_for_selector("#numbers > details[open]", timeout=PATIENCE_MS)
    page.close()


def test_pointer_and_arrow_keys_read_the_same_values(browser: Any, tmp_path: Path) -> None:
    path = tmp_path / "report.html"
    path.write_text(FORMATS["html"](job_page()))
    page = browser.new_page(viewport={"width": 1000, "height": 900})
    page.set_default_timeout(PATIENCE_MS)
    page.goto(path.as_uri(), timeout=PATIENCE_MS)
    figure = page.locator("#figure-vendi-0")
    panel, output = figure.locator(".panel"), figure.locator("output")
    panel.focus()
    by_keys = []
    for _ in range(5):
        page.keyboard.press("ArrowRight")
        by_keys.append(output.inner_text())
    assert [text.split(":")[0] for text in by_keys] == [
        f"order {order}" for order in ("0.1", "0.5", "1", "2", "∞")
    ]
    page.keyboard.press("Escape")
    assert output.inner_text() == ""
    panel.scroll_into_view_if_needed()
    box = panel.locator("svg").first.bounding_box()
    for place, text in enumerate(by_keys):
        page.mouse.move(box["x"] + box["width"] * (0.1 + 0.2 * place), box["y"] + 20)
        assert output.inner_text() == text
    assert panel.locator(".cursor line").get_attribute("x1") == "90%"
    page.mouse.move(0, 0)
    assert output.inner_text() == ""
    page.close()


def test_a_page_needs_no_script(browser: Any, tmp_path: Path) -> None:
    path = tmp_path / "report.html"
    path.write_text(FORMATS["html"](job_page()))
    texts, drawn = [], []
    for script in (True, False):
        context = browser.new_context(java_script_enabled=script, viewport=PHONE)
        page = context.new_page()
        page.goto(path.as_uri(), timeout=PATIENCE_MS)
        texts.append(page.locator("main").inner_text())
        drawn.append([page.locator(f"main {shape}").count() for shape in ("svg", "path", "text")])
        context.close()
    assert texts[0] == texts[1]
    assert drawn[0] == drawn[1]
    assert min(drawn[1]) > 20


def test_a_map_names_its_rows_hides_layers_and_is_zoomed(browser: Any, tmp_path: Path) -> None:
    path = tmp_path / "report.html"
    path.write_text(FORMATS["html"](job_report(read(with_map(full_results())))))
    page = browser.new_page(viewport={"width": 1000, "height": 900})
    page.set_default_timeout(PATIENCE_MS)
    complaints: list[str] = []
    page.on("console", lambda message: complaints.append(message.text))
    page.on("dialog", lambda dialog: complaints.append(dialog.message))
    page.goto(path.as_uri(), timeout=PATIENCE_MS)
    figure = page.locator("#figure-map")
    panel, output = figure.locator(".panel"), figure.locator("output")
    panel.scroll_into_view_if_needed()
    box = panel.locator("svg").first.bounding_box()
    assert box["width"] == pytest.approx(box["height"], abs=2)

    def point(x: float, y: float, beside: float = 0.0) -> str:
        across, up = box["width"] * x / 1000, box["height"] * (1 - y / 1000)
        page.mouse.move(box["x"] + across + beside, box["y"] + up)
        return str(output.inner_text())

    first = "rows to look at: doc-3 · red · the first words: outliers"
    assert point(100, 100) == first
    assert point(100, 100, 16.0) == first
    assert point(100, 100, 20.0) == ""
    assert point(900, 900) == "rows to look at: near row 77 of the corpus: near-duplicates"
    assert point(120, 900) == "reference: row 1"

    # A layer that is hidden isn't named, and comes back.
    layer = figure.get_by_role("button", name="reference")
    layer.click()
    assert layer.get_attribute("aria-pressed") == "false"
    assert point(120, 900) == ""
    layer.click()
    assert point(120, 900) == "reference: row 1"
    marks = figure.get_by_role("button", name="rows to look at")
    marks.click()
    assert point(100, 100) == "corpus: doc-3 · red · the first words"
    marks.click()

    # Zoomed in, the middle is four times as large; what lies there is named where it is drawn.
    drawing = panel.locator("svg svg").first
    zoom = figure.get_by_role("button", name="zoom in")
    zoom.click()
    zoom.click()
    assert drawing.get_attribute("viewBox") == "375 375 250 250"
    assert point(500, 580) == "reference: row 2"
    assert float(panel.locator(".cursor circle").get_attribute("cy")[:-1]) == pytest.approx(42)
    page.mouse.move(box["x"] + box["width"] / 2, box["y"] + box["height"] / 2)
    page.mouse.down()
    page.mouse.move(box["x"] + box["width"] / 4, box["y"] + box["height"] / 2, steps=5)
    page.mouse.up()
    x, y, *_ = (float(part) for part in drawing.get_attribute("viewBox").split())
    assert x == pytest.approx(437.5, abs=1)
    assert y == 375
    # What lies outside isn't read by keys.
    panel.focus()
    page.keyboard.press("ArrowRight")
    assert output.inner_text().startswith("corpus: ")
    assert HOSTILE.split()[0] in output.inner_text()
    page.keyboard.press("Escape")
    figure.get_by_role("button", name="all").click()
    assert drawing.get_attribute("viewBox") == "0 0 1000 1000"
    panel.focus()
    page.keyboard.press("ArrowRight")
    assert output.inner_text() == first
    keep(page, "map")
    assert complaints == []
    page.close()


def test_no_text_of_a_figure_overlaps_another_and_paper_is_short(
    browser: Any, tmp_path: Path
) -> None:
    path = tmp_path / "report.html"
    path.write_text(FORMATS["html"](job_report(read(with_map(full_results())))))
    page = browser.new_page()
    page.goto(path.as_uri(), timeout=PATIENCE_MS)
    for width in (320, 390, 768, 1400):
        page.set_viewport_size({"width": width, "height": 900})
        overlapping = page.evaluate(
            """[...document.querySelectorAll("figure")].flatMap(figure => {
              const texts = [...figure.querySelectorAll("svg text")]
                .filter(text => text.textContent && text.getBoundingClientRect().width)
                .map(text => [text.textContent, text.getBoundingClientRect()]);
              return texts.flatMap(([one, a], place) => texts.slice(place + 1)
                .filter(([, b]) => Math.min(a.right, b.right) - Math.max(a.left, b.left) > 1
                  && Math.min(a.bottom, b.bottom) - Math.max(a.top, b.top) > 2)
                .map(([other]) => [figure.id, one, other]));
            })"""
        )
        assert overlapping == [], width
    assert page.evaluate("document.querySelectorAll('*').length") <= 5000
    printed = page.pdf(format="A4")
    assert len(re.findall(rb"/Type\s*/Page\b", printed)) <= 11
    page.close()


def test_a_page_is_the_same_for_the_same_results() -> None:
    pages = [FORMATS["html"](job_report(read(with_map(full_results())))) for _ in range(2)]
    assert pages[0] == pages[1]
