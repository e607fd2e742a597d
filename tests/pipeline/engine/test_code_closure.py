"""What changes a stage's key: its own code, wherever that is, and nothing else."""

import re
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import latentscale
import latentscale_pipeline
from latentscale_pipeline.engine import code_closure
from latentscale_pipeline.engine.keys import part_keys, stage_keys
from latentscale_pipeline.engine.stage import Stage
from latentscale_pipeline.measures.baselines.plan import join_moments, sum_moments
from latentscale_pipeline.measures.by_label import OfLabel
from latentscale_pipeline.measures.magnitude.plan import compare_functions
from latentscale_pipeline.measures.shared.neighbours.shuffle import shuffle_block

STAGES = [
    Stage("moments", sum_moments, 1, finalise=join_moments, part_inputs=("shard",)),
    Stage("magnitude", compare_functions, 1),
    Stage("regroup", shuffle_block, 1),  # wrapped by a function of another module
]

PIPELINE = Path("latentscale_pipeline")

Keys = dict[str, str]


@pytest.fixture(scope="module")
def copied(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the sources."""
    folder = tmp_path_factory.mktemp("sources")
    for package in (latentscale, latentscale_pipeline):
        origin = Path(str(package.__file__)).parent
        ignored = shutil.ignore_patterns("__pycache__", "*.npy", "*.so")
        shutil.copytree(origin, folder / origin.name, ignore=ignored)
    return folder


@pytest.fixture
def changed(copied: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., set[str]]]:
    """Change a line of the sources; return the names of the stages whose keys change."""
    monkeypatch.setattr(code_closure, "package_folders", lambda package: [str(copied / package)])

    def keys() -> Keys:
        code_closure.forget_modules()
        [part] = part_keys(STAGES[0])
        return {**stage_keys(STAGES, {}), "part": part}

    def change(file: Path, pattern: str, replacement: str) -> set[str]:
        path = copied / file
        text = path.read_text()
        before = keys()
        edited, count = re.subn(pattern, replacement, text, count=1, flags=re.DOTALL)
        assert count == 1
        path.write_text(edited)
        try:
            after = keys()
        finally:
            path.write_text(text)
        return {name for name in before if before[name] != after[name]}

    yield change
    code_closure.forget_modules()


ALL = {"moments", "magnitude", "regroup", "part"}


@pytest.mark.parametrize(
    ("file", "pattern", "replacement", "stages"),
    [
        ("engine/stage.py", r"self\.index \+ 1", "self.index + 2", ALL),
        ("corpus/shards.py", r"(def decode_shard.*?\n    )return ", r"\1return +", ALL),
        ("measures/baselines/tasks.py", "SHARDS_PER_TASK = 8", "SHARDS_PER_TASK = 9", {"moments"}),
        ("measures/magnitude/tasks.py", r"\Z", "\nADDED = 1\n", {"magnitude"}),
        ("measures/shared/neighbours/assign.py", r"\Z", "\nADDED = 1\n", {"regroup"}),
        ("engine/stage.py", r"\Z", "\n# A comment.\n", set()),
        ("engine/stage.py", r"One step of a job", "A step of a job", set()),
        ("engine/stage.py", r"\A", "\n\n", set()),
        ("measures/baselines/tasks.py", "Shards whose moments", "Shards of which moments", set()),
        ("cli/run.py", r"\Z", "\nADDED = 1\n", set()),
        ("report/html.py", r"\Z", "\nADDED = 1\n", set()),
        ("jobs/run.py", r"\Z", "\nADDED = 1\n", set()),
        ("corpus/formats/npy.py", r"\Z", "\nADDED = 1\n", set()),
        ("executors/threads.py", r"\Z", "\nADDED = 1\n", set()),
    ],
)
def test_keys_change_with_the_code_they_depend_on(
    changed: Callable[..., set[str]], file: str, pattern: str, replacement: str, stages: set[str]
) -> None:
    expected = stages | ({"part"} if "moments" in stages else set())
    assert changed(PIPELINE / file, pattern, replacement) == expected


def test_a_library_changes_all_keys(monkeypatch: pytest.MonkeyPatch) -> None:
    before = {**stage_keys(STAGES, {}), "part": part_keys(STAGES[0])[0]}
    monkeypatch.setattr(
        "latentscale_pipeline.engine.keys.library_versions", lambda: {"numpy": "9.9"}
    )
    after = {**stage_keys(STAGES, {}), "part": part_keys(STAGES[0])[0]}
    assert all(before[name] != after[name] for name in before)


def test_the_wrapper_of_a_label_is_part_of_its_code() -> None:
    [module] = {sum_moments.__module__}
    labelled = Stage("label-a-moments", OfLabel(sum_moments, "a"), 1)
    from latentscale_pipeline.engine.keys import stage_code

    assert stage_code(labelled).keys() >= {module, "latentscale_pipeline.measures.by_label"}


def test_imports_are_found_wherever_they_stand(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    modules = {
        "__init__": '"""Only a docstring."""\n',
        "a": (
            "from typing import TYPE_CHECKING\n"
            "import latentscale.b\n"
            "if TYPE_CHECKING:\n    from latentscale.unseen import T\n"
            "def f():\n    from latentscale import c\n    from .d import x\n    return c, x\n"
        ),
        "b": "import numpy\n",
        "c": "import latentscale.a\n",
        "d": "x = 1\n",
        "unseen": "T = int\n",
        "inner/__init__": "from latentscale.inner.e import y\n",
        "inner/e": "from ..d import x as y\n",
    }
    for name, text in modules.items():
        path = tmp_path / "latentscale" / f"{name}.py"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    (tmp_path / "latentscale" / "compiled.so").write_bytes(b"\x7fELF")
    monkeypatch.setattr(code_closure, "package_folders", lambda package: [str(tmp_path / package)])
    code_closure.forget_modules()
    try:
        found = code_closure.code_closure(["latentscale.a"])
        assert list(found) == [f"latentscale.{name}" for name in "abcd"]
        assert list(code_closure.code_closure(["latentscale.inner.e"])) == [
            "latentscale.d",
            "latentscale.inner.e",
        ]
        assert len(code_closure.code_closure(["latentscale.inner"])) == 3
        before = code_closure.code_closure(["latentscale.compiled"])
        (tmp_path / "latentscale" / "compiled.so").write_bytes(b"other")
        code_closure.forget_modules()
        assert code_closure.code_closure(["latentscale.compiled"]) != before
    finally:
        code_closure.forget_modules()
