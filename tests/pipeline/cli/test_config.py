"""``latentscale config``: what a configuration resolves to, and the schema of one."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml

from latentscale_pipeline.cli.job_arguments import presets
from latentscale_pipeline.config.job import JobConfig, config_schema, read_config
from latentscale_pipeline.errors import BadInput
from latentscale_pipeline.jobs.plan import measure_sections
from tests.conftest import Ended

Command = Callable[..., Ended]

JOB = """
name: nightly
corpus: embeddings.npy
reference: real.npy
storage_options: {s3: {key: KEY}}
measures:
  heat: {k: 7}
  vendi: {kernels: [cosine, {name: rbf, bandwidth: [0.5, median]}], orders: [1, inf]}
cluster: {kind: slurm, workers: 40, memory_limit: 1500MiB, walltime: "12:00:00"}
"""


def read(text: str) -> JobConfig:
    return read_config(text, "c", measures=measure_sections())


@pytest.fixture
def job(tmp_path: Path) -> Path:
    path = tmp_path / "job.yaml"
    path.write_text(JOB)
    return path


@pytest.mark.parametrize("form", [[], ["--json"]])
def test_what_is_printed_is_the_same_configuration(
    latentscale: Command, job: Path, form: list[str]
) -> None:
    ended = latentscale("config", job, *form)
    assert (ended.code, ended.err) == (0, "")
    assert read(ended.out) == read(JOB).model_copy(update={"storage_options": {}})


def test_another_kind_of_cluster_leaves_out_the_keys_of_the_first(
    latentscale: Command, job: Path
) -> None:
    ended = latentscale("config", job, "-o", "cluster.kind=serial")
    lost = "cluster.workers, cluster.walltime, which the kind of cluster doesn't have"
    assert (ended.code, ended.err) == (0, f"{job}: left out {lost}\n")
    assert read(ended.out).cluster.kind == "serial"
    same = latentscale("config", job, "-o", "cluster.kind=slurm")
    assert (same.code, same.err) == (0, "")
    misspelt = latentscale("config", job, "-o", "cluster.wokers=3")
    assert (misspelt.code, "cluster.wokers is unknown" in misspelt.err) == (2, True)


def test_every_key_has_its_meaning_above_it(latentscale: Command, job: Path) -> None:
    lines = latentscale("config", job).out.splitlines()
    assert lines[:2] == ["# Name of the job", "name: nightly"]
    at = lines.index("    k: 7")
    assert lines[at - 1] == "    # Neighbours per row"
    at = lines.index("  memory_limit: 1500MiB")
    assert lines[at - 1].startswith("  # Memory of a worker")
    assert max(map(len, lines)) <= 100


def test_a_source_stands_for_a_job_file(latentscale: Command) -> None:
    options = ["--reference", "real.npy", "--output", "out", "-o", "seed=4"]
    printed = read(latentscale("config", "some/vectors.v2.npy", *options).out)
    assert (printed.name, printed.corpus) == ("vectors-v2", "some/vectors.v2.npy")
    assert (printed.reference, printed.output, printed.seed) == ("real.npy", "out", 4)
    assert list(printed.measures) == [
        "duplicates",
        "projection",
        "abundance",
        "heat",
        "geomca",
        "magnitude",
        "vendi",
    ]
    chosen = latentscale("config", "a.npy", "--measures", "vendi, heat", "--name", "x")
    assert list(read(chosen.out).measures) == ["heat", "vendi"]
    assert read(chosen.out).name == "x"
    alone = read(latentscale("config", "s3://b/gen-*.parquet", "--preset", "thorough").out)
    assert list(alone.measures) == [
        "duplicates",
        "projection",
        "heat",
        "magnitude",
        "vendi",
        "spread",
        "spectrum",
        "intrinsic_dimension",
        "hubness",
        "baselines",
    ]
    assert (alone.name, alone.measures["magnitude"].scales) == ("gen", 40)
    assert alone.budget.pairs == 4 * read(chosen.out).budget.pairs
    one = read(latentscale("config", "a.npy", "--preset", "thorough", "--measures", "heat").out)
    assert one.measures["heat"].recall == 0.99


def test_defaults_and_overrides_are_resolved(latentscale: Command) -> None:
    overrides = ("-o", "measures.heat.k=10", "-o", "cluster.memory_limit=2GiB")
    ended = latentscale("config", "a.npy", *overrides, "--json")

    def refuse(constant: str) -> None:
        raise AssertionError(f"{constant} is no JSON")

    document = json.loads(ended.out, parse_constant=refuse)
    assert document["measures"]["heat"]["k"] == 10
    assert document["measures"]["heat"]["probes"] == "auto"
    assert document["measures"]["vendi"]["orders"] == [0.1, 0.5, 1.0, 2.0, "inf"]
    assert document["cluster"]["memory_limit"] == 2 * 2**30
    assert read(latentscale("config", "a.npy", *overrides).out) == read(ended.out)


def test_credentials_are_not_printed(latentscale: Command, tmp_path: Path) -> None:
    config = tmp_path / "job.yaml"
    config.write_text("name: a\ncorpus: s3://KEY:SECRET@bucket/c.zarr?token=TOKEN\n")
    ended = latentscale("config", config)
    assert "corpus: s3://bucket/c.zarr\n" in ended.out
    assert not any(secret in ended.out for secret in ("KEY", "SECRET", "TOKEN"))


def test_presets_are_listed(latentscale: Command) -> None:
    lines = latentscale("config", "--presets").out.splitlines()
    assert [line.split()[0] for line in lines] == ["quick", "thorough"]
    first = "A first look: rows, a map of them, heat trace, and Vendi scores of the cosine kernel."
    assert lines[0] == f"quick     {first}"
    listed = json.loads(latentscale("config", "--presets", "--json").out)
    assert [preset["name"] for preset in listed] == ["quick", "thorough"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--schema", "--presets"], "name one of SOURCE, JOB.yaml, --schema and --presets"),
        (["job.yaml", "--schema"], "name one of SOURCE, JOB.yaml, --schema and --presets"),
        (["--schema", "-o", "seed=1"], "name the source or the job file that these options are"),
        (["a.npy", "--preset", "tho"], "--preset: 'tho' is unknown; did you mean thorough?"),
        (["a.npy", "--measures", "het"], "--measures: 'het' is unknown; did you mean heat?"),
        (
            ["a.npy", "--measures", "dc-score"],
            "--measures: 'dc-score' is a score, not a measure; use --measures spread",
        ),
        (
            ["a.npy", "--measures", "heat,Precision"],
            "--measures: 'Precision' is a score, not a measure; use --measures geomca or baselines",
        ),
        (["a.npy", "--measures", "..."], "--measures: '...' is unknown; it can be "),
        (["a.npy", "--measures", "Vendi"], "--measures: 'Vendi' is unknown; did you mean vendi?"),
        (["a.npy", "--measures", "hub"], "--measures: 'hub' is unknown; did you mean hubness?"),
        (["a.npy", "--name", "x" * 300], "a.npy: name: "),
        (["a.npy", "-o", "budget.pair=3"], "-o: budget.pair is unknown; did you mean pairs?"),
        (
            ["a.npy", "-o", "measures.vendi.orders=[]"],
            "-o: measures.vendi.orders needs at least 1 entry",
        ),
        (["a.npy", "-o", "measures.vendi={orders: [-1]}"], "-o: measures.vendi.orders.0 must be"),
        (
            ["a.npy", "--measures", ","],
            "--measures: name at least one of duplicates, ",
        ),
        (["a.npy", "--measures", "geomca"], "a.npy: measures.geomca compares with a reference"),
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


def test_what_is_resolved_follows_the_schema(
    schema: jsonschema.Draft202012Validator, latentscale: Command, job: Path
) -> None:
    schema.validate(json.loads(latentscale("config", job, "--json").out))
    for preset in presets():
        options = ["--reference", "r.npy", "--preset", preset]
        schema.validate(json.loads(latentscale("config", "a.npy", *options, "--json").out))
