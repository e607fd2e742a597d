"""The documents are executed: every command and every example does what it says."""

import ast
import importlib.util
import re
import runpy
import shutil
import tomllib
from collections.abc import Callable, Iterator
from pathlib import Path
from unittest.mock import patch

import pytest
import yaml
from pydantic import BaseModel

from latentscale_pipeline.cli import COMMANDS
from latentscale_pipeline.compare.gates import Gate
from latentscale_pipeline.config.cluster import CLUSTERS, Driver
from latentscale_pipeline.config.job import JobConfig
from latentscale_pipeline.jobs.plan import measure_sections
from latentscale_pipeline.measures.registry import MEASURES
from latentscale_pipeline.results.schema import load_schema
from latentscale_pipeline.workflow.config import Workflow
from tests import ROOT
from tests.conftest import Ended
from tests.support.documents import Block, Reader, _line_matches, blocks_of, check_shell

README = ROOT / "README.md"
DESIGN = (ROOT / "DESIGN.md").read_text("utf-8")
SITE = ROOT / "docs"
START = SITE / "start.md"
PAGES = sorted(
    page
    for page in SITE.rglob("*.md")
    if "_build" not in page.parts and blocks_of(page.read_text("utf-8"))
)
PAPERS = SITE / "papers"
MODELS: dict[str, type[BaseModel]] = {
    "job": JobConfig,
    "driver": Driver,
    "gate": Gate,
    "workflow": Workflow,
    **{f"cluster.{kind}": model for kind, model in CLUSTERS.items()},
    **{f"measures.{name}": section for name, section in measure_sections().items()},
}


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder with the recipes, and the files that the first page makes."""
    shutil.copytree(ROOT / "workflows", tmp_path / "workflows")
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    with patch.dict(MEASURES):  # a page adds one
        yield tmp_path


def make_files(latentscale: Callable[..., Ended]) -> None:
    """Do what the first page says where there are no vectors at hand."""
    [block] = [block for block in blocks_of(START.read_text("utf-8")) if block.language == "python"]
    Reader(START, latentscale).do(block)


def test_the_readme_does_what_it_says(place: Path, latentscale: Callable[..., Ended]) -> None:
    make_files(latentscale)
    Reader(README, latentscale, workers=True).read()
    [job] = place.glob("jobs/*-*")
    for name in ("results.json", "report.html", "config.json", "plan.json", "provenance.json"):
        assert (job / name).exists(), name


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(SITE)))
def test_a_page_does_what_it_says(
    page: Path, place: Path, latentscale: Callable[..., Ended]
) -> None:
    if page != START:
        make_files(latentscale)
    Reader(page, latentscale, only_checks=page.is_relative_to(PAPERS)).read()


# --- the machinery that executes pages -------------------------------------------------------


@pytest.mark.parametrize(
    ("wanted", "found", "alike"),
    [
        ("a 1.00 b", "a  1.001   b", True),
        ("a 1.00 b", "a 1.1 b", False),
        ("order 1,000", "order 1003", True),
        ("in … s", "in 3.2 s", True),
        ("in … s", "in 3.2 min", False),
        ("± 0", "± 0", True),
        ("± 0", "± 1e-9", False),
        ("recall 1", "precision 1", False),
        ("8f3a 2", "8f3a 3", False),
    ],
)
def test_lines_are_compared_by_text_and_value(wanted: str, found: str, alike: bool) -> None:
    assert _line_matches(wanted, found) is alike


@pytest.mark.parametrize(
    "script",
    [
        "latentscale run job.yaml --verfy",
        "latentscale runs job.yaml",
        "dask worker tls://host:8786 --nthread 1",
        "make demos",
        "pip install '.[parket]'",
        "python benchmarks/absent.py",
        "python benchmarks/vendi.py rbf --row 3",
        "python tests/acceptance/run.py --only nothing",
        "workflows/slurm/absent.sh",
        "kubectl apply -f workflows/kubernetes/absent.yaml",
        "job=$(latentscale stage prepare)",
        "unknown-program --now",
    ],
)
def test_a_wrong_line_of_a_script_is_found(script: str) -> None:
    with pytest.raises((AssertionError, FileNotFoundError)):
        check_shell(script, "here")


def test_a_block_that_shows_something_else_is_found(latentscale: Callable[..., Ended]) -> None:
    reader = Reader(START, latentscale)
    with pytest.raises(AssertionError, match="shown"):
        reader.do(Block("python", "print(1)\n", 1, "2\n"))
    with pytest.raises(AssertionError, match="executed by no test"):
        reader.do(Block("ruby", "puts 1\n", 1))


# --- the site --------------------------------------------------------------------------------


def test_every_key_of_a_configuration_has_a_meaning() -> None:
    for name, model in MODELS.items():
        schema = model.model_json_schema()
        for part in (schema, *schema.get("$defs", {}).values()):
            for key, field in part.get("properties", {}).items():
                assert field.get("description") or "$ref" in field, f"{name}: {key}"


def test_every_field_of_the_results_has_a_meaning() -> None:
    def fields(part: dict) -> Iterator[tuple[str, dict]]:
        for key, field in part.get("properties", {}).items():
            yield key, field
            yield from fields(field)
            yield from fields(field.get("items", {}))

    schema = load_schema()
    for name, part in {"document": schema, **schema["$defs"]}.items():
        for key, field in fields(part):
            target = schema["$defs"].get(field.get("$ref", "").rpartition("/")[2], {})
            assert field.get("description") or target.get("description"), f"{name}: {key}"


def test_the_references_show_everything() -> None:
    configuration = (SITE / "reference" / "configuration.md").read_text("utf-8")
    shown = set(re.findall(r"```\{configuration\} (\S+)", configuration))
    clusters = {"serial", "threads", "local", "address", "gateway", "batch", "kubernetes"}
    measures = {f"measures.{name}" for name in measure_sections()}
    assert shown == {"job", "driver", "gate", "workflow", *clusters, *measures}
    results = (SITE / "reference" / "results.md").read_text("utf-8")
    parts = {name for name, part in load_schema()["$defs"].items() if "properties" in part}
    assert set(re.findall(r"```\{results\} (\S+)", results)) == {"document", *parts}


def test_every_module_of_the_mathematics_has_a_page() -> None:
    text = (SITE / "python" / "mathematics.md").read_text("utf-8")
    listed = re.findall(r"^   (latentscale\.[\w.]+)$", text, flags=re.M)
    paths = (ROOT / "src" / "latentscale").rglob("[!_]*.py")
    modules = {".".join(path.relative_to(ROOT / "src").with_suffix("").parts) for path in paths}
    assert sorted(listed) == sorted(modules)


def test_every_measure_has_a_page_with_what_a_reader_looks_for() -> None:
    for name in measure_sections():
        page = (SITE / "measures" / f"{name}.md").read_text("utf-8")
        sections = re.findall(r"^## (.+)$", page, flags=re.M)
        for section in ("Units", "Cost", "Errors"):
            assert section in sections, f"{name}: {section}"
        assert "$$" in page, f"{name}: no equation"
        source = r"equations? \d|definitions? \d|aren't from a paper"
        assert re.search(source, page), f"{name}: no source"


def test_messages_are_those_that_the_program_has() -> None:
    said = "\n".join(dict.fromkeys(_sentences()))
    page = SITE / "failures.md"
    quoted = [
        line
        for block in blocks_of(page.read_text("utf-8"))
        if block.language == "text"
        for line in block.text.splitlines()
    ]
    assert len(quoted) > 30
    for line in quoted:
        assert line in said, f"failures.md: nobody says: {line}"


def _sentences() -> Iterator[str]:
    """Return every text of the pipeline, what differs from case to case as ``…``."""
    for path in (ROOT / "pipeline").rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            if isinstance(node, ast.JoinedStr):
                parts = (
                    str(part.value) if isinstance(part, ast.Constant) else "…"
                    for part in node.values
                )
                yield "".join(parts)
            elif isinstance(node, ast.Constant) and isinstance(node.value, str):
                yield node.value


def test_figures_are_what_their_command_draws(tmp_path: Path) -> None:
    program = runpy.run_path(str(SITE / "figures.py"))
    drawn = {path.name for path in program["draw"](tmp_path)}
    shown = {name for page in SITE.rglob("*.md") for name in figures_of(page)}
    # Those of the comparisons are drawn from a record, see tests/test_benchmarks.py.
    here = {name for name in shown if (SITE / "figures" / name).exists()}
    assert drawn == {name for name in here if not name.startswith("peers-")}
    for name in drawn:
        now, before = ((at / name).read_text("utf-8") for at in (tmp_path, SITE / "figures"))
        assert _line_matches(before.strip(), now.strip()), name


def figures_of(page: Path) -> list[str]:
    """Return the names of a page's pictures, each of which has to be there."""
    found = re.findall(r"!\[[^\]]+\]\(([^)]+)\)", page.read_text("utf-8"))
    for target in found:
        assert (page.parent / target).exists(), f"{page}: {target}"
    return [Path(target).name for target in found]


@pytest.mark.skipif(importlib.util.find_spec("sphinx") is None, reason="Sphinx isn't installed")
def test_formulas_become_mathml() -> None:
    from docutils.utils.math.latex2mathml import tex2mathml

    for page in SITE.rglob("*.md"):
        text = re.sub(r"^```.*?^```$", "", page.read_text("utf-8"), flags=re.S | re.M)
        for formula in re.findall(r"\$\$(.+?)\$\$", text, flags=re.S):
            assert "<math" in tex2mathml(formula, as_block=True), page


# --- other documents -------------------------------------------------------------------------


def test_the_documented_defaults_are_the_defaults() -> None:
    from latentscale_pipeline.config.job import read_config

    def read(text: str) -> JobConfig:
        return read_config(text, "doc", measures=measure_sections())

    page = (SITE / "reference" / "configuration.md").read_text("utf-8")
    [documented] = [block.text for block in blocks_of(page) if block.language == "yaml"]
    least = {key: yaml.safe_load(documented)[key] for key in ("name", "corpus", "reference")}
    assert read(documented) == read(yaml.safe_dump(least))


def test_the_design_fits_ten_pages() -> None:
    lines = DESIGN.splitlines()
    assert len(lines) <= 480
    assert all(len(line) <= 110 for line in lines if not line.startswith("|"))


def test_the_picture_shows_every_room() -> None:
    picture = DESIGN.split("```")[1]
    shown: set[Path] = set()
    above: list[Path] = []
    for line in filter(None, picture.splitlines()):
        depth = (len(line) - len(line.lstrip())) // 2
        names = line.strip().split("  ")[0].split(" how ")[0].split()
        del above[depth:]
        found = [Path(*above[-1:], name) for name in names]
        above.append(found[0])
        shown.update(found)
    assert not [str(path) for path in shown if not (ROOT / path).exists()]
    for package in (Path("src/latentscale"), Path("pipeline/latentscale_pipeline")):
        rooms = (path.parent.relative_to(ROOT) for path in (ROOT / package).glob("*/__init__.py"))
        measures = (ROOT / package / "measures").glob("*/__init__.py")
        rooms = {*rooms, *(path.parent.relative_to(ROOT) for path in measures)}
        modules = {path.relative_to(ROOT) for path in (ROOT / package).glob("[!_]*.py")}
        missing = [str(path) for path in {*rooms, *modules} - shown]
        assert not missing, f"DESIGN.md lacks {missing}"


DOCUMENTS = [ROOT / name for name in ("README.md", "DESIGN.md", "CONTRIBUTING.md", "CHANGELOG.md")]


@pytest.mark.parametrize(
    "document",
    [*DOCUMENTS, *sorted(ROOT.glob("workflows/**/*.md")), *sorted(SITE.rglob("*.md"))],
    ids=lambda path: str(path.relative_to(ROOT)),
)
def test_links_lead_somewhere(document: Path) -> None:
    text = document.read_text("utf-8")
    for target in re.findall(r"\]\(([^)#]+)(?:#[^)]*)?\)", text):
        if not target.startswith("http"):
            assert (document.parent / target).exists(), target


def test_design_names_every_dependency() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    section = DESIGN.split("## Dependencies")[1]
    extras = project["optional-dependencies"]
    for requirement in (*project["dependencies"], *extras["docs"]):
        name = re.split(r"[<>=\[]", requirement)[0]
        assert re.search(rf"\b{name}\b", section), name


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_explains_itself(latentscale: Callable[..., Ended], name: str) -> None:
    ended = latentscale(name, "--help")
    assert ended.code == 0
    lines = ended.out.splitlines()
    start = lines.index("  Example:")
    assert lines[start + 1].startswith(f"    latentscale {name}")
