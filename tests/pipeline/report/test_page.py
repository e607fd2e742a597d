"""The report shows every number, escapes every name and fetches nothing."""

import base64
import copy
import hashlib
import itertools
import math
import re
from html.parser import HTMLParser
from typing import Any

import numpy as np
import pytest

from latentscale_pipeline.report import job_report, render_report
from latentscale_pipeline.views.figure import Curve, Figure
from latentscale_pipeline.views.svg import COLOURS
from tests.support.results_documents import (
    check_results,
    example_results,
    read,
    without_reference,
)

Results = dict[str, Any]


class Page(HTMLParser):
    """A parsed page: its attributes, the text of each section, its tables and its scripts."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.attributes: list[tuple[str, str, str]] = []
        self.elements: list[str] = []
        self.scripts: list[tuple[dict[str, str | None], str]] = []
        self.tables: dict[str, list[list[str]]] = {}
        self.sections: dict[str, str] = {"": ""}
        self.text = ""
        self._inside: list[str] = []
        self._section = [""]
        self._rows: list[list[str]] = []
        self._caption = ""
        self.feed(html)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append(tag)
        self.attributes += [(tag, name, value or "") for name, value in attrs]
        if tag in {"meta"}:
            return
        self._inside.append(tag)
        if tag == "section":
            self._section.append(dict(attrs).get("id") or "")
            self.sections.setdefault(self._section[-1], "")
        elif tag == "script":
            self.scripts.append((dict(attrs), ""))
        elif tag == "table":
            self._rows, self._caption = [], ""
        elif tag == "tr":
            self._rows.append([])
        elif tag in {"td", "th"}:
            self._rows[-1].append("")

    def handle_endtag(self, tag: str) -> None:
        assert self._inside.pop() == tag
        if tag == "section":
            self._section.pop()
        elif tag == "table":
            self.tables.setdefault(f"{self._section[-1]}: {self._caption}", self._rows)

    def handle_data(self, data: str) -> None:
        inside = self._inside[-1] if self._inside else ""
        if inside == "script":
            attributes, text = self.scripts.pop()
            self.scripts.append((attributes, text + data))
        elif inside == "caption":
            self._caption += data
        elif inside in {"td", "th"}:
            self._rows[-1][-1] += data
        if inside not in {"script", "style"}:
            self.sections[self._section[-1]] += data
            self.text += data

    @property
    def figures(self) -> set[str]:
        return {
            value.removeprefix("figure-")
            for tag, name, value in self.attributes
            if (tag, name) == ("figure", "id")
        }

    def rows(self, caption: str) -> dict[str, list[str]]:
        return {" ".join(row[:2]): row for row in self.tables[caption]}


def figures(results: Results) -> dict[str, Figure]:
    report = job_report(read(results))
    return {figure.key: figure for section in report.sections for figure in section.figures}


def curves(figure: Figure) -> dict[str, Curve]:
    return {curve.name: curve for panel in figure.panels for curve in panel.curves}


@pytest.fixture(scope="module")
def drawn() -> dict[str, Figure]:
    return figures(example_results())


@pytest.fixture(scope="module")
def html() -> str:
    return render_report(read(example_results()))


@pytest.fixture(scope="module")
def page(html: str) -> Page:
    return Page(html)


@pytest.fixture(scope="module")
def lonely_page() -> Page:
    return Page(render_report(read(without_reference(example_results()))))


# --- the opening ------------------------------------------------------------------------------


def test_the_opening_answers_three_questions(page: Page) -> None:
    text = " ".join(page.text.split())
    order = [
        text.index(words)
        for words in (
            "Not compared The job was measured by an earlier version, which gave no verdict.",
            "Is the corpus fine? No measure of this job counts unusual rows.",
            "How diverse is it? Scores of the corpus, and of corpus and reference together, with",
            "What should I look at? No measure of this job says which rows stand out.",
        )
    ]
    assert order == sorted(order)
    assert "Vendi score, cosine, order 1 4.237 ± 0.022" in text
    assert "Vendi score, rbf, order 1 7.37 [7.02, 7.74]" in text
    assert "MagArea 134.798 [134.792, 134.825]" in text
    assert "Intrinsic distance (IMD) 1.26 × 10⁻⁵ [0.97, 1.55] × 10⁻⁵" in text
    assert "digits-5-to-9.zarr, 896 rows × 64 against digits-0-to-4.zarr, 901 rows × 64" in text
    assert "digits-high-against-low-5b1f09c2 · 15 Jan 2026" in text


def test_a_corpus_is_named_by_its_source_and_says_what_was_left_out() -> None:
    results = example_results()
    results["corpora"]["corpus"] |= {"excluded_shards": ["c/0"], "excluded_rows": 104}
    results["corpora"]["corpus"]["source"] = "s3://b/mine.npy"
    report = job_report(read(results))
    assert report.corpora == [
        ("corpus", "mine.npy, 896 of 1,000 rows × 64"),
        ("reference", "digits-0-to-4.zarr, 901 rows × 64"),
    ]


def test_a_corpus_of_an_earlier_version_is_named_by_the_provenance() -> None:
    one = {"sources": [{"path": "s3://b/train.npy"}], "source_count": 1}
    report = job_report(read(example_results()), {"corpora": {"corpus": one}, "runs": []})
    assert report.corpora[0] == ("corpus", "train.npy, 896 rows × 64")


def test_nothing_is_called_more_or_less_diverse_or_significant(page: Page) -> None:
    for words in ("more diverse than", "less diverse", "significant"):
        assert words not in page.text


def test_a_job_without_reference_says_so(lonely_page: Page) -> None:
    results = without_reference(example_results())
    results["verdict"] = {"value": None, "reason": "There is no reference.", "compared": 0}
    assert "There is no reference." in Page(render_report(read(results))).sections[""]
    assert "geomca" not in lonely_page.sections
    assert lonely_page.figures == {"heat-trace", "magnitude-function", "vendi-0", "vendi-1"}
    for figure in figures(results).values():
        assert "reference" not in curves(figure)


# --- the measures -----------------------------------------------------------------------------


def test_every_score_stands_in_the_table_of_its_measure(page: Page) -> None:
    tables = {key: rows for key, rows in page.tables.items() if key.startswith("numbers: ")}
    assert sum(len(rows) - 1 for rows in tables.values()) == len(example_results()["scores"])
    assert page.rows("numbers: Shape: heat trace and IMD")["Intrinsic distance (IMD) pair"][2:] == [
        *("1.26 × 10⁻⁵", "[0.97, 1.55] × 10⁻⁵", "95 % interval", "unknown", "trace per vertex"),
        "lower",
    ]
    vendi = page.rows("numbers: Effective number of items: Vendi scores")
    assert vendi["cosine, order inf reference"][2:] == [
        *("1.45069", "± 0", "exact", "± 0.0043", "effective items", "higher"),
    ]


def test_every_score_has_a_sentence_and_every_measure_its_paper(page: Page) -> None:
    for section, paper, sentence in (
        ("heat", "Tsitsulin", "The largest gap between the two heat traces"),
        ("geomca", "Poklukar", "how much of the reference is covered"),
        ("magnitude", "Limbeck", "Area under the magnitude function"),
        ("vendi", "Pasarkar", "when all are completely dissimilar"),
    ):
        assert paper in page.sections[section]
        assert sentence in page.sections["numbers"]


def test_the_heat_trace_is_drawn_with_its_band(drawn: dict[str, Figure]) -> None:
    (panel,) = drawn["heat-trace"].panels
    assert panel.log_x
    assert panel.y_label == "heat trace per vertex"
    for role in ("corpus", "reference"):
        heat = example_results()["measures"]["heat"][role]
        curve = curves(drawn["heat-trace"])[role]
        assert (curve.x, curve.y) == (heat["times"], heat["trace"])
        assert (curve.lower, curve.upper) == (heat["lower"], heat["upper"])


def test_a_heat_trace_without_a_band_gets_one_from_its_standard_error() -> None:
    results = example_results()
    heat = results["measures"]["heat"]["corpus"]
    del heat["lower"], heat["upper"]
    check_results(results)
    curve = curves(figures(results)["heat-trace"])["corpus"]
    error = 1.96 * np.array(heat["standard_error"])
    np.testing.assert_allclose(np.asarray(curve.lower), heat["trace"] - error)
    np.testing.assert_allclose(np.asarray(curve.upper), heat["trace"] + error)


def test_the_weighted_gap_peaks_at_the_imd(drawn: dict[str, Figure]) -> None:
    heat = example_results()["measures"]["heat"]
    found = curves(drawn["heat-gap"])
    times, gap = np.asarray(found["weighted gap"].x), np.asarray(found["weighted gap"].y)
    assert times[gap.argmax()] == pytest.approx(heat["imd"]["time"])
    assert gap.max() == pytest.approx(heat["imd"]["value"], rel=1e-4)
    peak = found["IMD"]
    assert (peak.x, peak.y) == ([heat["imd"]["time"]], [heat["imd"]["value"]])
    assert (peak.lower, peak.upper) == ([heat["imd"]["lower"]], [heat["imd"]["upper"]])
    time, ours, theirs = (
        heat["corpus"]["times"][20],
        heat["corpus"]["trace"][20],
        heat["reference"]["trace"][20],
    )
    assert gap[20] == pytest.approx(math.exp(-2 * (time + 1 / time)) * abs(ours - theirs))


def test_the_magnitude_function_is_drawn_with_bracket_and_convergence(
    page: Page, drawn: dict[str, Figure]
) -> None:
    figure = drawn["magnitude-function"]
    found = example_results()["measures"]["magnitude"]
    for role in ("corpus", "reference"):
        magnitude, curve = found[role], curves(figure)[role]
        assert (curve.x, curve.y) == (magnitude["scales"], magnitude["value"])
        assert (curve.lower, curve.upper) == (magnitude["lower"], magnitude["upper"])
        assert [text.split(", ")[1] for text in curve.texts] == magnitude["method"]
    rules = {rule.style.name: rule.at for rule in figure.panels[0].rules}
    assert rules == {role: found[role]["convergence_scale"] for role in rules}
    assert set(rules) == {"corpus", "reference"}
    assert "Dotted lines mark the convergence scales t_conv." in page.text


def test_a_missing_convergence_scale_shows_its_reason() -> None:
    results = example_results()
    magnitude = results["measures"]["magnitude"]["corpus"]
    magnitude |= {
        "convergence_scale": None,
        "convergence_scale_reason": "a <single> row",
        "convergence": None,
    }
    check_results(results)
    page = Page(render_report(read(results)))
    (panel,) = figures(results)["magnitude-function"].panels
    assert [rule.style.name for rule in panel.rules] == ["reference"]
    assert "The corpus has no convergence scale: a <single> row." in page.text


def test_vendi_scores_are_drawn_by_order_for_each_kernel(
    page: Page, drawn: dict[str, Figure]
) -> None:
    vendi = example_results()["measures"]["vendi"]
    for key, kernel in (("vendi-0", "cosine"), ("vendi-1", "rbf")):
        (panel,) = drawn[key].panels
        assert list(panel.places) == ["0.1", "0.5", "1", "2", "∞"]
        for role in ("corpus", "reference"):
            entries = [entry for entry in vendi[role] if entry["kernel"] == kernel]
            curve = curves(drawn[key])[role]
            assert curve.x == [0, 1, 2, 3, 4]
            for end, values in (("value", curve.y), ("lower", curve.lower), ("upper", curve.upper)):
                assert values == [entry[end] for entry in entries]
    assert "bandwidth σ = 49.79" in page.sections["vendi"]


def test_differences_of_vendi_scores_stand_above_what_chance_makes() -> None:
    results = example_results()
    for row in results["scores"]:
        if (row["measure"], row["of"], row.get("kernel")) == ("vendi", "corpus", "cosine"):
            found = 13.0 if row["order"] == "1" else 10.5
            row["expected"] = {
                "rows": 300,
                "found": found,
                "centre": 10.0,
                "lower": 8.0,
                "upper": 12.0,
                "z": 1.0,
                "p": 0.3,
                "p_adjusted": 0.9,
                "smallest_found": 3.0,
            }
    check_results(results)
    [numbers] = [each for each in job_report(read(results)).sections if each.key == "numbers"]
    [table] = [each for each in numbers.tables if "p alone" in each.header]
    places = [table.header.index(name) for name in ("p alone", "p adjusted")]
    assert {tuple(row[place] for place in places) for row in table.rows} == {
        ("0.30", "0.90"),
        ("", ""),
    }
    above, below = figures(results)["vendi-0"].panels
    assert below.places == above.places
    assert below.y_label == "difference from the reference in %, of samples of 300 rows"
    chance, corpus = below.curves
    assert (chance.lower, chance.upper) == ([pytest.approx(-20)] * 5, [pytest.approx(20)] * 5)
    assert corpus.y == pytest.approx([5, 5, 30, 5, 5])
    caption = figures(results)["vendi-0"].caption
    assert caption.startswith("Below, order 1 lies outside of what chance makes 95 times in 100.")
    assert len(figures(results)["vendi-1"].panels) == 1
    assert Page(render_report(read(results))).text.count("what chance makes (95 %)") == 1


def test_a_missing_vendi_score_shows_its_reason() -> None:
    results = example_results()
    entry = results["measures"]["vendi"]["corpus"][1]
    entry |= {"value": None, "lower": None, "upper": None, "bounds": None, "value_reason": "budget"}
    check_results(results)
    page = Page(render_report(read(results)))
    assert curves(figures(results)["vendi-0"])["corpus"].x == [0, 2, 3, 4]
    assert "Order 0.5 of the corpus is missing: budget." in page.text


def test_components_are_drawn_by_their_points_of_both_corpora_and_listed(
    page: Page, drawn: dict[str, Figure]
) -> None:
    components = example_results()["measures"]["geomca"]["components"]
    found = curves(drawn["geomca-components"])
    assert found[""].x == found[""].y == [1, 3]
    both, ours, theirs = (
        list(zip(curve.x, curve.y, curve.texts, strict=True))
        for curve in (found["of both"], found["of the corpus only"], found["of the reference only"])
    )
    assert {
        (c["n_reference"], c["n_corpus"]) for c in components if 0 < c["n_corpus"] < c["size"]
    } == {sizes[:2] for sizes in both}
    alone = [(c["n_reference"], c["n_corpus"]) for c in components if c["size"] == 1]
    assert ours == [
        (0, 1, f"{alone.count((0, 1))} components with 1 of the corpus and 0 of the reference")
    ]
    assert theirs[0][2].startswith(f"{alone.count((1, 0))} components with 0 of the corpus")
    table = page.tables["geomca: The 15 largest components (counts of thinned points)"]
    assert table[1] == ["0", "6", "4", "2", "0.667", "1.000", "5"]
    assert len(table) == 16


def test_a_caption_says_how_many_components_are_not_drawn() -> None:
    results = example_results()
    stored = len(results["measures"]["geomca"]["components"])
    results["measures"]["geomca"]["component_count"] = 1234
    caption = figures(results)["geomca-components"].caption
    assert caption.startswith(f"The {stored} largest of 1,234 components by the thinned points")


def test_quality_is_explained_where_it_is_one_by_construction(page: Page) -> None:
    assert "quality is 1 by construction (0 in a component without edges)" in page.text
    assert "The scores depend on the order of the rows" in page.text
    results = example_results()
    results["measures"]["geomca"]["delta"] *= 0.5
    other = Page(render_report(read(results))).text
    assert "by construction" not in other
    assert "The scores depend on the order of the rows" in other


def test_scores_over_row_orders_outliers_and_sweeps_are_shown() -> None:
    results = example_results()
    geomca = results["measures"]["geomca"]
    plain = Page(render_report(read(results))).text
    assert "To measure this effect, set replicates.count" in plain
    scores = ("precision", "recall", "consistency", "quality", "precision_rows", "recall_rows")
    geomca["orders"] = [dict.fromkeys(scores, value) for value in (0.25, 0.5, 0.375)]
    geomca["outliers"] = {"reference": 1, "corpus": 1234}
    geomca |= {"epsilon_lower": 0.4375, "epsilon_upper": 0.5625}
    geomca["sweep"] = [
        {
            "epsilon": 0.25,
            "delta": 0.125,
            "eta_c": 0.75,
            "eta_q": 0.5,
            **dict.fromkeys(scores, 0.625),
            "sizes": geomca["sizes"],
            "component_count": 4321,
        }
    ]
    page = Page(render_report(read(results)))
    assert (
        "Over 3 random orders: precision from 0.25 to 0.5 and recall from 0.25 to 0.5" in page.text
    )
    assert "1,234 rows of the corpus and 1 row of the reference are isolated" in page.text
    assert "0.4375 to 0.5625 over samples" in page.text
    table = page.tables["geomca: Scores at other distances and thresholds"]
    assert table[-1] == ["0.25", "0.125", "0.75", "0.5", *["0.625"] * 4, "4,321"]


def test_a_measure_that_was_not_asked_for_is_not_shown() -> None:
    results = example_results()
    del results["measures"]["vendi"]
    results["scores"] = [row for row in results["scores"] if row["measure"] != "vendi"]
    page = Page(render_report(read(results)))
    assert "vendi" not in page.sections
    assert "Pasarkar" not in page.text
    assert page.figures == {
        "heat-trace",
        "heat-gap",
        "magnitude-function",
        "geomca-components",
    }


def test_an_unknown_measure_gets_a_table_of_its_scores() -> None:
    results = example_results()
    results["measures"]["toy"] = {"anything": 1}
    toy = {"measure": "toy", "of": "corpus", "score": "spread", "kernel": "cats", "unit": "paws"}
    toy |= {"lower": 12.125, "value": 12.25, "upper": 12.375, "bounds": "certified"}
    results["scores"].append(toy | {"sampling_error": None, "better": "high"})
    check_results(results)
    page = Page(render_report(read(results)))
    assert page.rows("numbers: toy")["spread (cats) corpus"][2:] == [
        *("12.25", "[12.12, 12.38]", "certified", "unknown", "paws", "higher"),
    ]


def test_a_missing_score_shows_its_reason() -> None:
    results = example_results()
    nothing = {"value": None, "lower": None, "upper": None, "bounds": None}
    results["scores"][0] |= nothing | {"reason": "fewer rows than neighbours"}
    results["measures"]["heat"] |= {"imd": None, "imd_reason": "fewer rows than neighbours"}
    check_results(results)
    page = Page(render_report(read(results)))
    assert page.rows("numbers: Shape: heat trace and IMD")["Intrinsic distance (IMD) pair"][
        2:4
    ] == [
        *("none", "fewer rows than neighbours"),
    ]
    assert "heat-gap" not in page.figures
    assert "There is no IMD: fewer rows than neighbours." in page.text


def test_no_score_at_all_still_makes_a_page() -> None:
    results = without_reference(example_results())
    results |= {"scores": [], "measures": {}, "timings": [], "arrays": {}}
    check_results(results)
    page = Page(render_report(read(results)))
    assert {section for section in page.sections if section} == {"method"}
    assert page.figures == set()


# --- how it was found -------------------------------------------------------------------------


def test_method_time_memory_and_provenance_are_listed(page: Page) -> None:
    timings = {row[0]: row[1:] for row in page.tables["method: Time and memory"]}
    assert timings["heat-corpus"] == ["6.4 s", "2", "370 MiB", "384 MiB", "no", ""]
    assert timings["heat-reference"][2:4] == ["373 MiB of 2 tasks", "384 MiB"]
    assert timings["neighbours-reference"][3:] == [
        "unknown",
        "yes",
        "same stage key in digits-nightly-77aa01de",
    ]
    assert timings["all stages"][:3] == ["44.7 s", "15", "488 MiB"]
    job = {row[0]: row[1] for row in page.tables["method: Job"]}
    assert job["configuration"] == "5b1f09c2"
    assert job["seed"] == "0"
    assert job["elapsed"] == "45.0 s"
    assert job["cluster kind"] == "local"
    corpora = {row[0]: row[1:] for row in page.tables["method: Corpora"]}
    assert corpora["corpus"][4] == "9f3c1a77d04be2586a15c0e84f7b2d91"
    method = {row[0]: row[1] for row in page.tables["method: Method"]}
    assert "k = 5 neighbours, 64 times from 0.1 to 10, 48 probes" in method["heat trace, corpus"]
    assert "cholesky, cg at 20 scales" in method["magnitude, corpus"]


# --- the page itself --------------------------------------------------------------------------


def test_nothing_is_fetched(page: Page, html: str) -> None:
    fetching = {"src", "href", "srcset", "data", "action", "poster", "background"}
    for tag, name, value in page.attributes:
        if name in fetching:
            assert value.startswith("#"), (tag, name, value)
    assert not {"link", "iframe", "img", "object", "embed", "base"} & set(page.elements)
    style = re.search(r"<style>(.*?)</style>", html, re.DOTALL)
    assert style is not None
    assert "url(" not in style[1]
    assert "@import" not in style[1]


def test_the_policy_admits_exactly_the_script_and_the_style_sheet(page: Page, html: str) -> None:
    (policy,) = (value for _, _, value in page.attributes if value.startswith("default-src 'none'"))
    ((_, program),) = page.scripts
    style = re.search(r"<style>(.*?)</style>", html, re.DOTALL)
    assert style is not None
    hashes = [
        base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
        for text in (program, style[1])
    ]
    assert re.findall(r"'sha256-([^']+)'", policy) == hashes
    assert "unsafe" not in policy
    assert "http" not in policy
    assert not [name for _, name, _ in page.attributes if name == "style"]


def test_a_page_is_small_and_its_script_needs_no_numbers(html: str, page: Page) -> None:
    assert len(html) < 200_000
    ((_, program),) = page.scripts
    assert len(program) < 8000


def test_every_figure_is_drawn_once(page: Page, html: str) -> None:
    assert len(page.figures) == 6
    assert html.count("<figure ") == 6
    assert html.count('class="panel"') == 6


def test_every_colour_is_defined_for_light_and_dark_and_for_files(html: str) -> None:
    names = set(re.findall(r"var\(--([a-z0-9-]+)\)", html))
    style = re.search(r"<style>(.*?)</style>", html, re.DOTALL)
    assert style is not None
    light, dark = style[1].split("prefers-color-scheme: dark", 1)
    for name in names - {"tone"}:
        assert f"--{name}:" in light
        assert f"--{name}:" in dark
    drawn = set(re.findall(r'(?:fill|stroke)="var\(--([a-z0-9-]+)\)"', html))
    assert {"corpus", "reference", "grid"} <= drawn <= set(COLOURS)


def test_a_readout_names_the_values_of_all_curves(page: Page) -> None:
    readouts = [value for _, name, value in page.attributes if name == "data-readouts"]
    vendi = example_results()["measures"]["vendi"]
    (first,) = (text for text in readouts if "order 0.1: corpus 42.4887" in text)
    lines = first.splitlines()
    assert [line.split()[:4] for line in lines] == [
        [at, "-", "order", f"{order}:"]
        for at, order in (
            ("10.0", "0.1"),
            ("30.0", "0.5"),
            ("50.0", "1"),
            ("70.0", "2"),
            ("90.0", "∞"),
        )
    ]
    assert f"reference {vendi['reference'][0]['value']:.6g}" in lines[0]


def test_headings_descend_by_one_and_ids_are_unique(page: Page) -> None:
    levels = [int(tag[1]) for tag in page.elements if re.fullmatch(r"h[1-6]", tag)]
    assert levels[0] == 1
    assert levels.count(1) == 1
    assert all(below - above <= 1 for above, below in itertools.pairwise(levels))
    ids = [value for _, name, value in page.attributes if name == "id"]
    assert len(ids) == len(set(ids))
    described = [
        reference
        for _, name, value in page.attributes
        if name in {"aria-labelledby", "aria-describedby"}
        for reference in value.split()
    ]
    assert set(described) <= set(ids)
    links = [value[1:] for tag, name, value in page.attributes if (tag, name) == ("a", "href")]
    assert set(links) <= set(ids)


HOSTILE = "</script><script>alert(1)</script><img src=x onerror=alert(1)>\"'&{{ 7*7 }}"


def hostile(value: Any) -> Any:
    """Replace every text that a user may choose."""
    if isinstance(value, dict):
        return {key: hostile(item) for key, item in value.items()}
    return HOSTILE if isinstance(value, str) else value


def test_hostile_names_stay_text() -> None:
    results = example_results()
    plain = Page(render_report(read(results)))
    results["job"] |= {"name": HOSTILE, "id": HOSTILE, "version": HOSTILE}
    results["job"]["cluster"] = {HOSTILE: HOSTILE}
    for corpus in results["corpora"].values():
        corpus |= {"uri": HOSTILE, "fingerprint": HOSTILE, "dtype": HOSTILE}
    for row in results["scores"]:
        row |= {"unit": HOSTILE}
        if row["measure"] == "vendi":
            row |= {"kernel": HOSTILE, "label": HOSTILE}
    toy = copy.deepcopy(results["scores"][0])
    results["scores"].append(toy | {"measure": HOSTILE, "score": HOSTILE})
    for role in ("corpus", "reference"):
        for entry in results["measures"]["vendi"][role]:
            entry |= {"kernel": HOSTILE, "method": HOSTILE}
        magnitude = results["measures"]["magnitude"][role]
        magnitude |= {"metric": HOSTILE, "method": [HOSTILE] * len(magnitude["method"])}
        results["measures"]["heat"][role] |= {"normalization": HOSTILE}
    results["arrays"] = {HOSTILE: HOSTILE}
    for timing in results["timings"]:
        timing |= {"stage": HOSTILE, "reason": HOSTILE}
    page = Page(render_report(read(results)))
    assert page.scripts == plain.scripts
    assert "img" not in page.elements
    assert not [name for _, name, _ in page.attributes if name.startswith("on")]
    assert HOSTILE in page.text


def test_figures_never_carry_markup_from_names() -> None:
    results = example_results()
    for role in ("corpus", "reference"):
        magnitude = results["measures"]["magnitude"][role]
        magnitude["method"] = ["<a href='javascript:alert(1)'>x</a>"] * len(magnitude["method"])
        for entry in results["measures"]["vendi"][role]:
            entry["method"] = "<b>bold</b>"
        results["measures"]["heat"][role]["normalization"] = "<i>odd</i>"
    page = Page(render_report(read(results)))
    assert not {"b", "i"} & set(page.elements)
    assert {value for _, name, value in page.attributes if name == "href"} == {
        f"#{section}" for section in page.sections if section
    }
    assert "<i>odd</i>" in page.text
    readouts = [value for _, name, value in page.attributes if name == "data-readouts"]
    assert any("<b>bold</b>" in text for text in readouts)


def test_the_same_results_give_the_same_page(html: str) -> None:
    assert render_report(read(example_results())) == html
