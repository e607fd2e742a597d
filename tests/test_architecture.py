"""Every folder's imports have an order that is a contract, and breaking any of it is noticed."""

import ast
import re
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.sparse import csr_array
from scipy.sparse.csgraph import connected_components

from latentscale_pipeline.measures.registry import MEASURES
from tests import ROOT

PACKAGES = {"latentscale": "src", "latentscale_pipeline": "pipeline"}

LOOSE = {
    "latentscale": {"__init__", "array_types", "estimate"},
    "latentscale_pipeline": {"__init__", "errors", "progress"},
}
"""The modules at the root of each package that are in no room."""

CONTRACTS: list[dict[str, Any]] = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))[
    "tool"
]["importlinter"]["contracts"]


def modules_of(root: Path) -> dict[str, Path]:
    """Return every module of both packages by its dotted name."""
    found = {}
    for package, source in PACKAGES.items():
        for path in (root / source / package).rglob("*.py"):
            parts = path.relative_to(root / source).with_suffix("").parts
            found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return found


def imports_of(path: Path, modules: dict[str, Path]) -> Iterator[str]:
    """Return the modules of both packages that a file imports, anywhere in it."""
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        if isinstance(node, ast.Import):
            yield from (name.name for name in node.names if name.name in modules)
        elif isinstance(node, ast.ImportFrom) and node.module in modules:
            names = (f"{node.module}.{name.name}" for name in node.names)
            yield from (name if name in modules else node.module for name in names)


def cycles(edges: set[tuple[str, str]]) -> list[list[str]]:
    """Return the groups of modules that import each other, directly or not."""
    names = sorted({name for edge in edges for name in edge})
    rows, columns = (np.array([names.index(edge[end]) for edge in edges]) for end in (0, 1))
    graph = csr_array((np.ones(len(edges)), (rows, columns)), shape=(len(names),) * 2)
    count, labels = connected_components(graph, connection="strong")
    groups = [[names[i] for i in np.flatnonzero(labels == label)] for label in range(count)]
    return [group for group in groups if len(group) > 1]


# --- rooms -----------------------------------------------------------------------------------


@pytest.mark.parametrize("package", PACKAGES)
def test_few_modules_are_in_no_room(package: str) -> None:
    folder = ROOT / PACKAGES[package] / package
    assert {path.stem for path in folder.glob("*.py")} == LOOSE[package]


def test_every_folder_has_an_order() -> None:
    ordered = {
        container
        for contract in CONTRACTS
        if contract["type"] == "layers" and contract["exhaustive"]
        for container in contract["containers"]
    }
    modules = modules_of(ROOT)
    for folder in modules:
        inside = [name for name in modules if name.rpartition(".")[0] == folder]
        assert len(inside) < 2 or folder in ordered, f"no contract orders the modules of {folder}"


def test_no_modules_import_each_other() -> None:
    modules = modules_of(ROOT)
    edges = {(name, to) for name, path in modules.items() for to in imports_of(path, modules)}
    # The measures of arrays are imported by the mathematics only when somebody asks for one.
    facade = {(name, to) for name, to in edges if name == "latentscale" and "pipeline" in to}
    assert cycles(edges - facade) == []


def test_a_cycle_is_found() -> None:
    edges = {("a", "b"), ("b", "c"), ("c", "a"), ("c", "d")}
    assert cycles(edges) == [["a", "b", "c"]]
    assert cycles(edges - {("c", "a")}) == []


# --- contracts -------------------------------------------------------------------------------


def lint(root: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", "from importlinter.cli import lint_imports_command as c; c()"]
    environment = {
        "PYTHONPATH": f"{root / 'src'}:{root / 'pipeline'}",
        "PATH": "",
        "COLUMNS": "999",
    }
    arguments = ["--config", str(root / "pyproject.toml"), "--no-cache"]
    return subprocess.run(
        [*command, *arguments],
        cwd=root,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )


def violations(contract: dict[str, Any], modules: dict[str, Path]) -> Iterator[tuple[str, str]]:
    """Return imports that a contract forbids: a module, and what it must not import."""
    if contract["type"] == "forbidden":
        allowed = [line.split(" -> ") for line in contract.get("ignore_imports", [])]
        [source] = contract["source_modules"]
        for forbidden in contract["forbidden_modules"]:
            importers = {name.split("*")[0] for name, to in allowed if to == forbidden}
            yield next(
                (name, forbidden)
                for name in sorted(modules, reverse=True)
                if name.startswith(f"{source}.") and not name.startswith(tuple(importers))
            )
        return
    [container] = contract["containers"]
    rows = [
        [name.strip(" ()") for name in row.replace(":", "|").split("|")]
        for row in contract["layers"]
    ]
    pairs = [(below[0], above[-1]) for above, below in pairwise(rows)]
    pairs += [
        (row[0], row[-1]) for row, text in zip(rows, contract["layers"], strict=True) if "|" in text
    ]
    for name, to in pairs:
        yield f"{container}.{name}", f"{container}.{to}"


def test_the_tree_keeps_every_contract() -> None:
    ended = lint(ROOT)
    assert ended.returncode == 0, ended.stdout + ended.stderr


def test_every_line_of_every_contract_fails_when_broken(tmp_path: Path) -> None:
    for source in PACKAGES.values():
        ignored = shutil.ignore_patterns("__pycache__")
        shutil.copytree(ROOT / source, tmp_path / source, ignore=ignored)
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    modules = modules_of(tmp_path)
    wanted = [
        (contract["name"], name, to)
        for contract in CONTRACTS
        for name, to in violations(contract, modules)
    ]
    for _, name, to in wanted:
        with modules[name].open("a", encoding="utf-8") as file:
            file.write(f"\nimport {to}\n")
    (tmp_path / "src" / "latentscale" / "heat" / "loose.py").write_text("")
    ended = lint(tmp_path)
    assert ended.returncode == 1, ended.stdout + ended.stderr
    reports = broken(ended.stdout)
    for contract, name, to in wanted:
        assert f"{name} -> {to} (l." in reports[contract], f"{contract}: {name} -> {to}"
    assert "- latentscale.heat.loose" in reports["Traces come before what is made of them"]


def broken(report: str) -> dict[str, str]:
    """Return what is said of every broken contract, by the contract's name."""
    lines = report.split("Broken contracts\n")[-1].splitlines()
    said: dict[str, str] = {}
    name = ""
    for line, below in zip(lines, [*lines[1:], ""], strict=True):
        if line and below == "-" * len(line):
            name = line
        said[name] = said.get(name, "") + line + "\n"
    return said


# --- names of measures ------------------------------------------------------------------------

PIPELINE = ROOT / "pipeline" / "latentscale_pipeline"

MATHEMATICS = ROOT / "src" / "latentscale"

NAMES = frozenset(MEASURES) | {"imd", "magdiff", "magarea"}

OTHER_MEANINGS = {
    "api": "public functions are named after measures",
    "cli/options.py": "--drop-duplicates is what users call it",
    "cli/subset.py": "it runs the job that finds the rows of --drop-duplicates",
    "results/model.py": "`duplicates` is a field of a corpus in results.json",
    "views/repeats.py": "it writes that field in words",
    "measures/shared/distinct_rows.py": "it counts rows that equal others, for measures of sets",
    "measures/shared/duplicate_count.py": "it counts them in any number of rows",
}
"""Folders and modules in which the name of a measure may stand, and why."""


def words_of(source: str) -> Iterator[tuple[int, str]]:
    """Yield the words of names and texts of a module, but not those of docstrings and comments."""
    tree = ast.parse(source)
    said = {node.value for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    for node in ast.walk(tree):
        texts: list[str] = []
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and node not in said:
            texts = [node.value]
        elif isinstance(node, ast.Name):
            texts = [node.id]
        elif isinstance(node, ast.Attribute):
            texts = [node.attr]
        elif isinstance(node, ast.arg | ast.keyword):
            texts = [node.arg or ""]
        elif isinstance(node, ast.FunctionDef | ast.ClassDef):
            texts = [node.name]
        elif isinstance(node, ast.ImportFrom):
            own = (node.module or "").startswith("latentscale_pipeline")
            texts = [node.module or "" if own else "", *(name.name for name in node.names)]
        elif isinstance(node, ast.Import):
            texts = [name.name for name in node.names]
        for text in texts:
            line = getattr(node, "lineno", 0)
            yield from (
                (line, word.lower()) for word in re.findall(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+", text)
            )


def mathematics_named() -> list[str]:
    """Return where modules outside a measure's folder name it, but for the public functions."""
    ordinary = {"duplicates", "spread"}
    found = []
    for path in sorted(MATHEMATICS.rglob("*.py")):
        place = path.relative_to(MATHEMATICS)
        if place.parts[0] not in MEASURES and len(place.parts) > 1:
            words = words_of(path.read_text("utf-8"))
            found += [f"{place}:{at}: {word}" for at, word in words if word in NAMES - ordinary]
    return found


def measures_named(folder: Path) -> list[str]:
    found = []
    for path in sorted(folder.rglob("*.py")):
        place = path.relative_to(folder)
        own = place.parts[0] == "measures" and place.parts[1] in {"registry.py", *MEASURES}
        if own or place.parts[0] in OTHER_MEANINGS or str(place) in OTHER_MEANINGS:
            continue
        words = words_of(path.read_text("utf-8"))
        found += [f"{place}:{line}: {word}" for line, word in words if word in NAMES]
    return found


def test_only_its_own_folder_names_a_measure(tmp_path: Path) -> None:
    assert measures_named(PIPELINE) == []
    assert mathematics_named() == []
    (tmp_path / "jobs").mkdir()
    (tmp_path / "jobs" / "plan.py").write_text('"""Heat."""\nHEAT_UNITS = "of heat" + "heaters"\n')
    assert measures_named(tmp_path) == ["jobs/plan.py:2: heat", "jobs/plan.py:2: heat"]
