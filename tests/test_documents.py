"""The documents are executed: every command and every example does what it says."""

import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Callable
from importlib import resources
from pathlib import Path

import numpy as np
import pytest
import yaml

from latentscale_pipeline.cli import COMMANDS
from latentscale_pipeline.job.config import JobConfig, read_config
from latentscale_pipeline.plan import comparing_measures, measure_sections
from tests.conftest import Ended

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text("utf-8")
DESIGN = (ROOT / "DESIGN.md").read_text("utf-8")


def blocks(document: str, language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", document, flags=re.S | re.M)


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with what the README's commands name."""
    demo = resources.files("latentscale_pipeline") / "demo"
    corpus = np.load(str(demo / "corpus.npy"))
    (tmp_path / "embeddings").mkdir()
    np.save(tmp_path / "embeddings" / "part_1.npy", corpus[:200])
    np.save(tmp_path / "embeddings" / "part_2.npy", corpus[200:300])
    np.save(tmp_path / "reference.npy", np.load(str(demo / "reference.npy"))[:250])
    labels = (demo / "corpus_labels.txt").read_text("utf-8").splitlines()[:300]
    (tmp_path / "labels.txt").write_text("\n".join(labels) + "\n")
    for name in ("configs", "workflows"):
        shutil.copytree(ROOT / name, tmp_path / name)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_readme_commands(
    place: Path, latentscale: Callable[..., Ended], monkeypatch: pytest.MonkeyPatch
) -> None:
    commands = [
        line.removeprefix("$ ")
        for block in blocks(README, "console")
        for line in block.splitlines()
        if line.startswith("$ ")
    ]
    assert len(commands) == 24
    [kernels] = [block for block in blocks(README, "python") if block.startswith("# my_kernels.py")]
    (place / "my_kernels.py").write_text(kernels)
    monkeypatch.syspath_prepend(place)
    (place / "gates.yaml").write_text(yaml_block("gates:"))
    for command in commands:
        program, *arguments = shlex.split(with_job_folders(command, place))
        assert program == "latentscale"
        ended = latentscale(*arguments)
        assert ended.code == 0, f"{command}\n{ended.err}"
    assert len(list(place.glob("jobs/*/results.json"))) == 4
    assert (place / "gates.xml").exists()
    for written in ("comment.md", "report.md", "trends.html", "latentscale.prom"):
        assert (place / written).exists(), written
    documents = ("results.json", "report.html", "config.json", "plan.json", "provenance.json")
    for name in (*documents, "stages", "events"):
        assert all((job / name).exists() for job in place.glob("jobs/*-*")), name


def with_job_folders(command: str, place: Path) -> str:
    """Put the folders of this run's jobs where a command names one by an invented hash."""

    def folder(match: re.Match[str]) -> str:
        [found] = place.glob(f"jobs/{match[1]}-*")
        return str(found.relative_to(place))

    return re.sub(r"jobs/([a-z]+)-[0-9a-f]{8}\b", folder, command)


def yaml_block(start: str) -> str:
    [block] = [block for block in blocks(README, "yaml") if block.startswith(start)]
    return block


def test_readme_library_example() -> None:
    [example] = [block for block in blocks(README, "python") if "from latentscale" in block]
    ended = subprocess.run(
        [sys.executable, "-W", "error", "-c", example], capture_output=True, text=True, check=False
    )
    assert ended.returncode == 0, ended.stderr
    score, area = ended.stdout.splitlines()
    found = re.fullmatch(r"([\d.]+) effective items of 500, exact", score)
    assert found is not None
    assert 15.0 < float(found[1]) < 16.0, "isotropic noise fills its 16 dimensions"
    assert re.fullmatch(r"MagArea in \[[\d.]+, [\d.]+\]", area)


def test_readme_notebook_example() -> None:
    [example] = [block for block in blocks(README, "python") if "import latentscale\n" in block]
    ended = subprocess.run(
        [sys.executable, "-W", "error", "-c", example], capture_output=True, text=True, check=False
    )
    assert ended.returncode == 0, ended.stderr
    title, *scores, distance = ended.stdout.splitlines()
    assert title == "Vendi scores of 500 rows, cosine kernel"
    [first] = re.findall(r"order 1 +([\d.]+) exact", "\n".join(scores))
    assert 15.0 < float(first) < 16.0
    assert 0.0 < float(distance) < np.exp(-4), "IMD per vertex can't exceed exp(-4)"


def test_the_readme_job_parses() -> None:
    config = read_text(yaml_block("name:"))
    assert config.name == "nightly"
    assert list(config.measures) == ["heat", "geomca", "magnitude", "vendi"]


def test_the_documented_defaults_are_the_defaults() -> None:
    [documented] = blocks(DESIGN, "yaml")
    document = yaml.safe_load(documented)
    assert document.pop("reference") is None
    full = read_text(yaml.safe_dump({**document, "reference": "r.npy"}))
    short = read_text("name: nightly\ncorpus: embeddings.npy\nreference: r.npy\n")
    assert full == short


def read_text(text: str) -> JobConfig:
    return read_config(text, "doc", measures=measure_sections(), comparing=comparing_measures())


@pytest.mark.parametrize("document", ["README.md", "DESIGN.md", "CONTRIBUTING.md", "CHANGELOG.md"])
def test_links_lead_somewhere(document: str) -> None:
    text = (ROOT / document).read_text("utf-8")
    for target in re.findall(r"\]\(([^)#]+)(?:#[^)]*)?\)", text):
        if not target.startswith("http"):
            assert (ROOT / target).exists(), target


def test_design_names_every_dependency() -> None:
    import tomllib

    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    section = DESIGN.split("## Dependencies")[1]
    for requirement in project["dependencies"]:
        name = re.split(r"[<>=\[]", requirement)[0]
        assert re.search(rf"\b{name}\b", section), name


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_explains_itself(latentscale: Callable[..., Ended], name: str) -> None:
    ended = latentscale(name, "--help")
    assert ended.code == 0
    lines = ended.out.splitlines()
    start = lines.index("  Example:")
    assert lines[start + 1].startswith(f"    latentscale {name}")
