"""Kernels that a configuration names by import path, through jobs started as a user starts them."""

import importlib
import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.spatial.distance import cdist

from latentscale_pipeline.config.job import JobConfig, read_config
from latentscale_pipeline.config.user_functions import load_function, source_checksum
from latentscale_pipeline.errors import BadInput
from latentscale_pipeline.jobs.plan import measure_sections
from tests import oracles
from tests.conftest import Ended
from tests.support.jobs import command_line, results_of

pytestmark = pytest.mark.slow

KERNELS = """
import sys
import numpy as np
from scipy.spatial.distance import cdist

def jaccard(a, b):
    small = np.minimum(a[:, None], b).sum(axis=2)
    return small / np.maximum(a[:, None], b).sum(axis=2)

def indefinite(a, b):
    return np.where(cdist(a, b) == 0, 1.0, -0.5)

def raising(a, b):
    raise RuntimeError("no\\nreason")

def leaving(a, b):
    sys.exit(7)

number = 3
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    rows = np.random.default_rng(0).uniform(0.1, 1, size=(300, 5)).astype("f4")
    np.save(tmp_path / "rows.npy", rows)
    (tmp_path / "similarities.py").write_text(KERNELS)
    (tmp_path / "wrong.py").write_text("def f(:")
    (tmp_path / "leaving.py").write_text("import sys\nsys.exit(0)")
    return tmp_path


def job(folder: Path, kernel: str, **keys: Any) -> Path:
    path = folder / "job.yaml"
    vendi = {"kernels": [kernel], "orders": [0.5, 1, 2, "inf"], **keys}
    path.write_text(
        json.dumps(
            {
                "name": "functions",
                "corpus": str(folder / "rows.npy"),
                "output": str(folder / "jobs"),
                "sampling": {"method": "none"},
                "measures": {"vendi": vendi},
                "cluster": {"kind": "serial"},
            }
        )
    )
    return path


def run(folder: Path, *arguments: object) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        command_line(*arguments), capture_output=True, text=True, check=False, timeout=300,
        env={**os.environ, "PYTHONPATH": str(folder)},
    )  # fmt: skip


@pytest.fixture
def run_here(
    folder: Path, latentscale: Callable[..., Ended], monkeypatch: pytest.MonkeyPatch
) -> Callable[..., Ended]:
    """Run a command line in this process, which finds the functions."""
    monkeypatch.syspath_prepend(folder)
    monkeypatch.setitem(sys.modules, "similarities", None)  # to be removed at the end
    del sys.modules["similarities"]
    return latentscale


def test_code_is_run_only_where_that_is_allowed(
    folder: Path, run_here: Callable[..., Ended]
) -> None:
    (folder / "similarities.py").write_text(
        f"open({str(folder / 'ran')!r}, 'w').close()\n{KERNELS}"
    )
    config = job(folder, "similarities:jaccard")
    for command in ("run", "plan"):
        ended = run_here(command, config)
        assert ended.code == 2
        assert ended.err.strip().splitlines()[-1] == (
            "latentscale: measures.vendi: the job would run similarities:jaccard; check that "
            "code and add "
            "--allow-code, or remove similarities:jaccard from the configuration"
        )
    assert not (folder / "ran").exists()
    assert run_here("plan", config, "--allow-code").code == 0
    workers = ("-o", "cluster={kind: local, workers: 1}")
    ended = run(folder, "run", config, "--allow-code", *workers)
    assert ended.returncode == 0, ended.stderr
    values = [row["value"] for row in results_of(folder / "jobs")["scores"]]
    rows = np.load(folder / "rows.npy").astype(float)
    small = np.minimum(rows[:, None], rows).sum(axis=2)
    eigenvalues = np.linalg.eigvalsh(small / np.maximum(rows[:, None], rows).sum(axis=2) / 300)
    expected = [oracles.hill_number(eigenvalues, order) for order in (0.5, 1, 2, np.inf)]
    np.testing.assert_allclose(values, expected, rtol=1e-9)
    [made] = (folder / "jobs").glob("functions-*")
    assert "--allow-code" in run_here("resume", made).err.strip().splitlines()[-1]
    ended = run_here("resume", made, "--allow-code")
    assert "nothing had to be computed" in ended.out


def test_another_version_of_the_function_is_another_job(
    folder: Path, run_here: Callable[..., Ended]
) -> None:
    config = job(folder, "similarities:jaccard")
    before = [score["value"] for score in scored(run_here, config)]
    # In one process, of the same size and in the same second.
    (folder / "similarities.py").write_text(powered(2))
    changed = [score["value"] for score in scored(run_here, config)]
    assert all(np.array(before) < np.array(changed))
    (folder / "similarities.py").write_text(powered(3))
    again = [score["value"] for score in scored(run_here, config)]
    assert all(np.array(changed) < np.array(again))
    (folder / "similarities.py").write_text(KERNELS)
    assert [score["value"] for score in scored(run_here, config)] == before
    jobs = sorted((folder / "jobs").glob("functions-*"))
    assert len(jobs) == 3
    ended = [run_here("resume", job, "--allow-code") for job in jobs]
    assert sorted(one.code for one in ended) == [0, 2, 2]
    assert sum("or the file of a function were changed" in one.err for one in ended) == 2


def powered(exponent: int) -> str:
    whole = "small / np.maximum(a[:, None], b).sum(axis=2)"
    assert whole in KERNELS
    return KERNELS.replace(whole, f"({whole}) ** {exponent}")


def scored(run_here: Callable[..., Ended], config: Path) -> Any:
    ended = run_here("run", config, "--allow-code", "--json")
    assert ended.code == 0, ended.err
    return json.loads(ended.out)["scores"]


def test_a_module_that_did_not_change_is_run_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    module = tmp_path / "counted.py"
    module.write_text("import sys\nsys.runs = getattr(sys, 'runs', 0) + 1\ndef f(a, b): pass\n")
    os.utime(module, (1e9, 1e9))  # written before this process began
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(sys, "runs", 0, raising=False)
    monkeypatch.setitem(sys.modules, "counted", None)  # to be removed at the end
    del sys.modules["counted"]
    importlib.import_module("counted")
    functions = {load_function("counted:f") for _ in range(3)}
    assert (len(functions), sys.runs) == (1, 1)  # type: ignore[attr-defined]
    module.write_text(module.read_text() + "\n")
    load_function("counted:f")
    assert sys.runs == 2  # type: ignore[attr-defined]
    assert load_function("numpy:inner") is np.inner


def test_the_code_that_is_run_is_the_code_that_is_there(tmp_path: Path) -> None:
    """Also if Python has compiled a file of the same size in the same second."""
    package = tmp_path / "kernels"
    package.mkdir()
    (package / "__init__.py").write_text("")
    (package / "numbers.py").write_text("ONE = 1\n")
    module = package / "own.py"
    asked = (
        "from latentscale_pipeline.config.user_functions import load_function; "
        "print(load_function('kernels.own:f')(0, 0)); import kernels; kernels.own.f"
    )
    found = []
    for value in (1, 2):
        module.write_text(f"from .numbers import ONE\ndef f(a, b): return {value} * ONE\n")
        os.utime(module, (1.7e9, 1.7e9))
        # An import by someone else compiles it.
        for code in ("import kernels.own", asked) if value == 1 else (asked,):
            ended = subprocess.run(
                [sys.executable, "-c", code],
                env={**os.environ, "PYTHONPATH": str(tmp_path), "PYTHONDONTWRITEBYTECODE": ""},
                capture_output=True,
                text=True,
                check=True,
            )
        found.append(ended.stdout.strip())
    assert found == ["1", "2"]


def test_a_module_may_put_another_in_its_place(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "lazy.py").write_text(
        "import sys, types\n"
        "made = types.ModuleType(__name__)\n"
        "made.__spec__, made.f = __spec__, lambda a, b: 7\n"
        "sys.modules[__name__] = made\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setitem(sys.modules, "lazy", None)  # to be removed at the end
    del sys.modules["lazy"]
    assert load_function("lazy:f")(0, 0) == 7
    assert source_checksum("lazy:f") == source_checksum("lazy:f")


@pytest.mark.parametrize(
    ("kernel", "problem"),
    [
        ("nowhere.at.all:f", "nowhere.at.all:f: No module named 'nowhere'; install it, or name"),
        ("similarities:missing", "similarities:missing: the module similarities has no missing"),
        ("similarities:number", "similarities:number is a int; name a function"),
        ("similarities:indefinite", "isn't positive semidefinite: 64 rows have"),
        ("similarities:raising", "similarities:raising raised RuntimeError: no; correct the fun"),
        ("leaving:f", "leaving:f: its module can't be imported (SystemExit: 0); correct it"),
        ("similarities:leaving", "similarities:leaving raised SystemExit: 7; correct the func"),
        ("wrong:f", "wrong:f: its module can't be imported (SyntaxError: "),
    ],
)
def test_what_is_no_kernel_is_told_in_a_line(
    folder: Path, run_here: Callable[..., Ended], kernel: str, problem: str
) -> None:
    ended = run_here("run", job(folder, kernel), "--allow-code", "--quiet")
    assert ended.code == 2, ended.err
    assert problem in ended.err.splitlines()[-1]


@pytest.mark.parametrize("method", ["lanczos", "nystrom"])
def test_other_methods_bracket_a_functions_scores(
    folder: Path, run_here: Callable[..., Ended], method: str
) -> None:
    config = job(folder, "similarities:jaccard", method=method)
    ended = run_here("run", config, "--allow-code", "--quiet")
    assert ended.code == 0, ended.err
    rows = np.load(folder / "rows.npy").astype(float)
    small = np.minimum(rows[:, None], rows).sum(axis=2)
    eigenvalues = np.linalg.eigvalsh(small / np.maximum(rows[:, None], rows).sum(axis=2) / 300)
    for row in results_of(folder / "jobs")["scores"]:
        value = oracles.hill_number(eigenvalues, float(row["order"]))
        assert row["kernel"] == "similarities:jaccard"
        assert row["lower"] * (1 - 1e-9) <= value <= row["upper"] * (1 + 1e-9)


def test_a_function_has_no_frequencies(folder: Path, run_here: Callable[..., Ended]) -> None:
    config = job(folder, "similarities:jaccard", method="fourier")
    ended = run_here("run", config, "--allow-code")
    assert ended.code == 2
    assert "not similarities:jaccard; use another method" in ended.err


def read(text: str) -> JobConfig:
    start = "name: a\ncorpus: c\n"
    return read_config(start + text, "job.yaml", measures=measure_sections())


def test_a_list_of_bandwidths_is_a_kernel_each() -> None:
    config = read(
        "measures: {vendi: {kernels: [cosine, {name: rbf, bandwidth: [median, 0.5, 2]}]}}\n"
    )
    kernels = config.measures["vendi"].kernels  # type: ignore[attr-defined]
    expected = [("cosine", None), ("rbf", "median"), ("rbf", 0.5), ("rbf", 2.0)]
    assert [(kernel.name, kernel.bandwidth) for kernel in kernels] == expected


@pytest.mark.parametrize(
    ("kernels", "problem"),
    [
        ("[gauss]", "'gauss' is not a kernel; it can be cosine, rbf, laplacian, or a function"),
        ("['a b:c']", "'a b:c' is not a kernel"),
        ("[{name: 'a:b', bandwidth: 1}]", "the a:b kernel has no bandwidth"),
        ("[{name: rbf, bandwidth: [1, 1]}]", "kernels are listed twice"),
        ("[{name: rbf, bandwidth: []}]", "kernels.0.bandwidth"),
    ],
)
def test_kernels_that_cannot_be_are_refused(kernels: str, problem: str) -> None:
    with pytest.raises(BadInput, match=problem.replace("[", r"\[")):
        read(f"measures: {{vendi: {{kernels: {kernels}}}}}\n")


def test_bandwidths_of_a_list_are_scored_each(folder: Path, run_here: Callable[..., Ended]) -> None:
    config = job(folder, "cosine", kernels=[{"name": "rbf", "bandwidth": [0.3, 0.6]}])
    ended = run_here("run", config, "--quiet")
    assert ended.code == 0, ended.err
    rows = np.load(folder / "rows.npy").astype(float)
    found = {(r["kernel"], r["order"]): r["value"] for r in results_of(folder / "jobs")["scores"]}
    for bandwidth in (0.3, 0.6):
        kernel = np.exp(-cdist(rows, rows, "sqeuclidean") / (2 * bandwidth**2))
        value = oracles.hill_number(np.linalg.eigvalsh(kernel / 300), 1)
        assert found[f"rbf {bandwidth}", "1"] == pytest.approx(value, rel=1e-8)
