"""``latentscale config``: what a configuration resolves to, and the schema of one."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml

from latentscale_pipeline.config.job import JobConfig, config_schema, read_config
from latentscale_pipeline.errors import BadInput
from latentscale_pipeline.jobs.plan import measure_sections
from tests import ROOT
from tests.conftest import Ended

Command = Callable[..., Ended]

CONFIGS = ROOT / "configs"
PRESETS = sorted(CONFIGS.glob("*.yaml"))


def read(text: str) -> JobConfig:
    return read_config(text, "c", measures=measure_sections())


@pytest.mark.parametrize("path", PRESETS, ids=lambda path: path.stem)
@pytest.mark.parametrize("form", [[], ["--json"]])
def test_what_is_printed_is_the_same_configuration(
    latentscale: Command, path: Path, form: list[str]
) -> None:
    ended = latentscale("config", path, *form)
    assert (ended.code, ended.err) == (0, "")
    assert read(ended.out) == read(path.read_text())


def test_defaults_and_overrides_are_resolved(latentscale: Command) -> None:
    overrides = ("-o", "measures.heat.k=10", "-o", "cluster.memory_limit=2GiB")
    ended = latentscale("config", CONFIGS / "quickstart.yaml", *overrides, "--json")

    def refuse(constant: str) -> None:
        raise AssertionError(f"{constant} is no JSON")

    document = json.loads(ended.out, parse_constant=refuse)
    assert document["measures"]["heat"]["k"] == 10
    assert document["measures"]["heat"]["probes"] == "auto"
    assert document["measures"]["vendi"]["orders"] == [0.1, 0.5, 1.0, 2.0, "inf"]
    assert document["cluster"]["memory_limit"] == 2 * 2**30
    assert yaml.safe_load(latentscale("config", CONFIGS / "quickstart.yaml", *overrides).out) == (
        document
    )


def test_credentials_are_not_printed(latentscale: Command, tmp_path: Path) -> None:
    config = tmp_path / "job.yaml"
    config.write_text("name: a\ncorpus: s3://KEY:SECRET@bucket/c.zarr?token=TOKEN\n")
    ended = latentscale("config", config)
    assert "corpus: s3://bucket/c.zarr\n" in ended.out
    assert not any(secret in ended.out for secret in ("KEY", "SECRET", "TOKEN"))


def test_presets_are_listed(
    latentscale: Command, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(CONFIGS.parent)
    lines = latentscale("config", "--presets").out.splitlines()
    assert [line.split("  ")[0] for line in lines] == [f"configs/{path.name}" for path in PRESETS]
    assert lines[-1] == (
        "configs/quickstart.yaml  The shape and the diversity of one corpus, without a reference."
    )
    listed = json.loads(latentscale("config", "--presets", "--json").out)
    assert [preset["path"] for preset in listed] == [f"configs/{path.name}" for path in PRESETS]
    monkeypatch.chdir(tmp_path)
    ended = latentscale("config", "--presets")
    assert ended.code == 2
    assert ended.err == (
        "latentscale: configs/: no presets here; change to a folder that has configs/*.yaml\n"
    )


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--schema", "--presets"], "name one of CONFIG, --schema and --presets"),
        (["job.yaml", "--schema"], "name one of CONFIG, --schema and --presets"),
        (["--schema", "-o", "seed=1"], "-o overrides a key of CONFIG; name that file"),
        (["nowhere.yaml"], "latentscale: nowhere.yaml: No such file or directory; name a YAML fil"),
    ],
)
def test_bad_usage(latentscale: Command, arguments: list[str], message: str) -> None:
    ended = latentscale("config", *arguments)
    assert ended.code == 2
    assert message in ended.err


# --- the schema -------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def schema() -> jsonschema.Draft202012Validator:
    found = config_schema(measure_sections())
    jsonschema.Draft202012Validator.check_schema(found)
    return jsonschema.Draft202012Validator(found)


def test_the_schema_is_printed(latentscale: Command) -> None:
    assert json.loads(latentscale("config", "--schema").out) == config_schema(measure_sections())


BASE = {"name": "a", "corpus": "c.npy"}
ACCEPTED: list[dict[str, Any]] = [
    BASE,
    {**BASE, "reference": "r.npy", "measures": {"geomca": {}, "heat": None}},
    {**BASE, "cluster": {"workers": 3}},
    {**BASE, "cluster": {"kind": "serial", "memory_limit": "2 GiB"}},
    {**BASE, "cluster": {"memory_limit": 2**31}, "driver": {"memory_limit": "2147483648"}},
    {**BASE, "measures": {"vendi": {"orders": [0, "inf", 1.5], "kernels": ["rbf"]}}},
    {**BASE, "measures": {"vendi": {"kernels": ["cosine", {"name": "rbf", "bandwidth": 2}]}}},
    {**BASE, "measures": {"magnitude": {"scales": [0, 1, 2.5]}, "heat": {"probes": 100}}},
]
REFUSED: list[dict[str, Any]] = [
    {"name": "a"},
    {**BASE, "sead": 1},
    {**BASE, "seed": -1},
    {**BASE, "measures": {}},
    {**BASE, "measures": {"heatt": {}}},
    {**BASE, "measures": {"heat": {"neighbors": "exact"}}},
    {**BASE, "measures": {"heat": {"k": 0}}},
    {**BASE, "measures": {"heat": {"times": {"count": 1}}}},
    {**BASE, "measures": {"vendi": {"kernels": ["gauss"]}}},
    {**BASE, "measures": {"vendi": {"orders": [-1]}}},
    {**BASE, "cluster": {"kind": "moon"}},
    {**BASE, "cluster": {"memory_limit": "lots"}},
    {**BASE, "cluster": {"memory_limit": 0}},
]


@pytest.mark.parametrize("document", ACCEPTED)
def test_schema_and_program_accept_the_same(
    schema: jsonschema.Draft202012Validator, document: dict[str, Any]
) -> None:
    read(yaml.safe_dump(document))
    schema.validate(document)


@pytest.mark.parametrize("document", REFUSED)
def test_schema_and_program_refuse_the_same(
    schema: jsonschema.Draft202012Validator, document: dict[str, Any]
) -> None:
    with pytest.raises(BadInput):
        read(yaml.safe_dump(document))
    assert not schema.is_valid(document)


@pytest.mark.parametrize("path", PRESETS, ids=lambda path: path.stem)
def test_presets_and_what_is_resolved_follow_the_schema(
    schema: jsonschema.Draft202012Validator, latentscale: Command, path: Path
) -> None:
    schema.validate(yaml.safe_load(path.read_text()))
    schema.validate(json.loads(latentscale("config", path, "--json").out))
