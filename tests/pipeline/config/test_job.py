"""A configuration says exactly what is wrong, where, and what it could be."""

import math

import pytest

from latentscale_pipeline.config.cluster import Auto, Serial
from latentscale_pipeline.config.job import JobConfig, read_config
from latentscale_pipeline.config.section import parse_yaml
from latentscale_pipeline.errors import BadInput
from latentscale_pipeline.jobs.identity import config_hash, job_id
from latentscale_pipeline.jobs.plan import measure_sections
from latentscale_pipeline.storage.canonical import canonical, digest, slug


def read(text: str, *overrides: str) -> JobConfig:
    return read_config(
        text,
        "job.yaml",
        overrides=overrides,
        measures=measure_sections(),
    )


def test_defaults() -> None:
    config = read("name: a\ncorpus: c.npy\n")
    assert list(config.measures) == ["duplicates", "projection", "heat", "magnitude", "vendi"]
    assert config.cluster == Auto(workers=2, threads=1, memory_limit=4 * 2**30)
    heat = config.measures["heat"]
    assert (heat.k, heat.steps, heat.times.count, heat.normalization) == (5, 10, 256, "empty")
    vendi = config.measures["vendi"]
    assert vendi.orders == [0.1, 0.5, 1.0, 2.0, math.inf]
    assert [(k.name, k.bandwidth) for k in vendi.kernels] == [("cosine", None), ("rbf", "median")]


def test_reference_turns_on_geomca() -> None:
    config = read("name: a\ncorpus: c.npy\nreference: r.npy\n")
    assert list(config.measures) == [
        "duplicates",
        "projection",
        "abundance",
        "heat",
        "geomca",
        "magnitude",
        "vendi",
    ]


def test_overrides_apply_in_order() -> None:
    config = read(
        "name: a\ncorpus: c.npy\n",
        "measures.heat.k=7",
        "measures.vendi.orders=[inf]",
        "cluster={kind: serial, memory_limit: 2GiB}",
        "measures.heat.k=9",
    )
    assert config.measures["heat"].k == 9
    assert config.measures["vendi"].orders == [math.inf]
    assert config.cluster == Serial(kind="serial", memory_limit=2 * 2**30)


def test_an_override_of_one_measure_keeps_the_others() -> None:
    overrides = ("measures.heat.k=10", "reference=r.npy")
    config = read("name: a\ncorpus: c.npy\n", *overrides)
    assert list(config.measures) == [
        "duplicates",
        "projection",
        "abundance",
        "heat",
        "geomca",
        "magnitude",
        "vendi",
    ]
    assert config.measures["heat"].k == 10


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("name: a\ncorpus: c\nmeassures: {}\n", "meassures is unknown; did you mean measures?"),
        (
            "name: a\ncorpus: c\non_invalid: drop\n",
            (
                "on_invalid is unknown; it belongs to latentscale ingest, as --on-invalid; name "
                "the corpus that this makes"
            ),
        ),
        (
            "name: a\ncorpus: c\nmeasures: {heat: {neighbors: exact}}\n",
            "measures.heat.neighbors is unknown; did you mean neighbours?",
        ),
        (
            "name: a\ncorpus: c\nmeasures: {magnitud: {}}\n",
            "measures.magnitud is unknown; did you mean magnitude?",
        ),
        (
            "name: a\ncorpus: c\nmeasures: {heat: {times: {begin: 1}}}\n",
            "measures.heat.times.begin is unknown; it can be start, stop, count",
        ),
        (
            "name: a\ncorpus: c\ncluster: {kind: local, worker: 3}\n",
            "cluster.worker is unknown; did you mean workers?",
        ),
        (
            "name: a\ncorpus: c\nmeasures: {duplicates:{metric:euclidean}}\n",
            "measures.duplicates.metric:euclidean is unknown; YAML wants a space after the colon",
        ),
        (
            "name: a\ncorpus: c\nmeasures: {duplicates: {me trik: cosine}}\n",
            "measures.duplicates.me trik is unknown; did you mean metric?",
        ),
        (
            "name: a\ncorpus: c\ncluster: {kind: moon}\n",
            "cluster.kind is 'moon'; it can be auto, serial, threads, local, address, gateway, ",
        ),
        (
            "name: a\ncorpus: c\ncluster: {kind: address}\n",
            "cluster.address is missing; add this key",
        ),
        (
            "name: a\ncorpus: c\ncluster: {kind: address, address: 'tls://u:p@h:1'}\n",
            "cluster.address: write it as tls://host:8786",
        ),
        (
            "name: a\ncorpus: c\ncluster: {kind: slurm, queue: 'a b'}\n",
            "cluster.queue: 'a b' must be one word",
        ),
        (
            "name: a\ncorpus: c\ncluster: {kind: pbs, walltime: soon}\n",
            "cluster.walltime: 'soon' is not a time; write it as 12:00:00",
        ),
        (
            "name: a\ncorpus: c\ncluster: {kind: slurm, minimum: 5}\n",
            "cluster: minimum must be at most the number of workers",
        ),
        ("name: a\n", "corpus is missing; add this key"),
        (
            "name: a\ncorpus: c\nmeasures: {}\n",
            "measures is empty; name at least one of duplicates",
        ),
        (
            "name: a\ncorpus: c\nmeasures: {geomca: {}}\n",
            "measures.geomca compares with a reference",
        ),
        (
            "name: a\ncorpus: c\nmeasures: {heat: {k: 0}}\n",
            "measures.heat.k must be greater than 0",
        ),
        (
            "name: a\ncorpus: c\ncluster: {memory_limit: 512MiB}\n",
            "memory_limit must be at least 1GiB",
        ),
        (
            "name: a\ncorpus: c\ncluster: {memory_limit: lots}\n",
            "cluster.memory_limit: 'lots' is not a size",
        ),
        (
            "name: a\ncorpus: c\ncluster: {memory_limit: 1e999GiB}\n",
            "cluster.memory_limit: '1e999GiB' is not a size",
        ),
        (
            "name: a\ncorpus: c\nmeasures: {vendi: {kernels: [{name: cosine, bandwidth: 1}]}}\n",
            "the cosine kernel has no bandwidth",
        ),
        (
            "name: a\ncorpus: c\nmeasures: {magnitude: {tolerance: 5}}\n",
            "measures.magnitude.tolerance must be less than 1",
        ),
        (
            "name: a\ncorpus: c\nmeasures: {magnitude: {scales: [1, .inf]}}\n",
            "must be a finite number",
        ),
        (
            "name: a\ncorpus: c\nmeasures: {heat: {times: {stop: .inf}}}\n",
            "measures.heat.times.stop must be a finite number",
        ),
        (
            "name: a\ncorpus: c\nmeasures: {vendi: {kernels: [{name: rbf, bandwidth: 1e-200}]}}\n",
            "measures.vendi.kernels.0.bandwidth must be greater than 0",
        ),
        (
            "name: a\ncorpus: c\nmeasures: {heat: {k: 2020-01-01}}\n",
            "measures.heat.k must be a whole number, not 2020-01-01",
        ),
        (
            "name: a\ncorpus: c\nreference: r\nmeasures: {modes: {bandwidth: 2}}\n",
            "measures.modes.bandwidth: it is that of the rbf kernel, which isn't chosen; leave it",
        ),
        (
            "name: a\ncorpus: c\nmeasures: {heat: {metric: .nan}}\n",
            "measures.heat.metric must be 'euclidean', 'cosine' or 'manhattan'",
        ),
        (
            "name: a\ncorpus: c\nmeasures: {vendi: {orders: [.nan]}}\n",
            "must be a number, not NaN",
        ),
        (
            "name: a\ncorpus: c\nmeasures: {heat: {probes: 1}}\n",
            "measures.heat.probes must be at least 2",
        ),
        (
            "name: a\ncorpus: c\nmeasures: {heat: false}\n",
            "measures.heat must be a mapping of keys, such as {k: …}",
        ),
        ("name: a\ncorpus: c\noutput: ''\n", "output is empty; give a value"),
        ("- a\n", "a job must be a mapping with keys"),
        ("name: [\n", "not valid YAML: line 2"),
        ("a: 1\nb: &b [*b]", "not valid YAML: line 2: an alias stands inside of what it names"),
        ("name: &b {c: [*b]}", "not valid YAML: line 1: an alias stands inside of what it"),
        pytest.param("a: " + "[" * 3000, "not valid YAML: it is nested too deeply", id="deep"),
    ],
)
def test_mistakes_are_named(text: str, message: str) -> None:
    with pytest.raises(BadInput) as caught:
        read(text)
    assert str(caught.value).startswith("job.yaml: ")
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("override", ["measures", "=3", "a..b=3", "name.x=3", "name=[", ".=1"])
def test_bad_overrides_are_named(override: str) -> None:
    with pytest.raises(BadInput) as caught:
        read("name: a\ncorpus: c.npy\n", override)
    assert str(caught.value).startswith(f"-o {override}: ")


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("Nightly Run #3", "nightly-run-3"),
        ("../../etc/passwd", "etc-passwd"),
        ("é à ü", "e-a-u"),
        ("日本", "job"),
        ("-" * 300, "job"),
        ("x" * 300, "x" * 80),
    ],
)
def test_slug_is_a_plain_folder_name(name: str, expected: str) -> None:
    assert slug(name) == expected


def test_identity_covers_what_determines_the_numbers() -> None:
    text = "name: a\ncorpus: c.npy\n"
    base = config_hash(read(text), "f1", None)
    assert len(base) == 64
    assert job_id(read(text), base) == f"a-{base[:8]}"
    same = [
        read("name: other\ncorpus: elsewhere.npy\noutput: b/\n"),
        read(text, "cluster.workers=7", "driver.memory_limit=1GiB"),
        read(
            text,
            "measures={duplicates: {}, projection: {}, heat: {}, magnitude: {}, vendi: {}}",
        ),
        read(text, "measures={vendi: {}, magnitude: {}, heat: , projection: , duplicates: }"),
    ]
    assert {config_hash(config, "f1", None) for config in same} == {base}
    other = [
        config_hash(read(text), "f2", None),
        config_hash(read(text), "f1", "f1"),
        config_hash(read(text, "seed=1"), "f1", None),
        config_hash(read(text, "group_by=labels"), "f1", None),
        config_hash(read(text, "budget.pairs=1e9"), "f1", None),
        config_hash(read(text, "scales_from=corpus"), "f1", None),
        config_hash(read(text, "scales_from=jobs/usual"), "f1", None, {"bandwidth": 2.0}),
        config_hash(read(text, "measures={heat: {k: 6}, magnitude: {}, vendi: {}}"), "f1", None),
    ]
    assert len({base, *other}) == 9
    # A job that takes no scale from another is the same whichever it names.
    named = [config_hash(read(text, f"scales_from={job}"), "f1", None, {}) for job in ("a", "./a")]
    assert named == [base, base]


def test_canonical_form() -> None:
    assert canonical({"b": (1, math.inf), "a": None}) == '{"a":null,"b":[1,"inf"]}'
    assert digest({"a": 1.0}) == digest({"a": 1.0})
    with pytest.raises(ValueError, match="Out of range"):
        canonical(math.nan)


def test_all_mistakes_are_told_at_once_unknown_keys_first() -> None:
    with pytest.raises(BadInput) as raised:
        read(
            "name: a\ncorpus: c.npy\nseed: -1\nouptut: jobs/\n"
            "measures: {heat: {k: many, kk: 3}, vendi: {kernels: [{name: rbf, width: 1}]}}\n"
        )
    first, *mistakes = str(raised.value).splitlines()
    assert first == "job.yaml: 5 mistakes:"
    assert mistakes[:3] == [
        "  measures.heat.kk is unknown; did you mean k?",
        "  measures.vendi.kernels.0.width is unknown; did you mean bandwidth?",
        "  ouptut is unknown; did you mean output?",
    ]
    assert mistakes[3].startswith("  seed must be at least 0")
    assert mistakes[4].startswith("  measures.heat.k must be a whole number")


def test_a_key_that_is_given_twice_is_refused() -> None:
    with pytest.raises(BadInput, match=r"^job.yaml: not valid YAML: line 3: seed is given twice$"):
        read("name: a\nseed: 1\nseed: 2\ncorpus: c.npy\n")
    merged = "name: a\ncorpus: c.npy\nmeasures: {heat: &one {k: 4}, vendi: {}}\n"
    assert read(merged).measures["heat"].k == 4


@pytest.mark.parametrize(
    ("text", "read_as"), [("010", 8), ("-017", -15), ("12:30", 750), ("0", 0), ("0x1f", 31)]
)
def test_a_number_that_yaml_reads_otherwise_than_people_is_refused(text: str, read_as: int) -> None:
    if text in {"0", "0x1f"}:
        assert parse_yaml(f"seed: {text}", "job.yaml") == {"seed": read_as}
        return
    said = f"job.yaml: not valid YAML: line 2: {text} would be {read_as}; write the number that is"
    with pytest.raises(BadInput, match=f"^{said}"):
        parse_yaml(f"name: a\nseed: {text}\n", "job.yaml")
    assert parse_yaml(f"label: '{text}'", "job.yaml") == {"label": text}


@pytest.mark.parametrize(
    ("text", "place"),
    [
        ("seed: yes", "seed is true"),
        ("measures: {heat: {k: on}}", "measures.heat: k is true"),
        ("measures: {heat: {tolerance: no}}", "measures.heat: tolerance is false"),
        ("measures: {vendi: {orders: [1, yes]}}", "measures.vendi: orders has true"),
        ("measures: {magnitude: {scales: [no, 2.0]}}", "measures.magnitude: scales has false"),
    ],
)
def test_a_word_is_not_taken_for_a_number(text: str, place: str) -> None:
    with pytest.raises(BadInput) as raised:
        read(f"name: a\ncorpus: c.npy\n{text}\n")
    assert f"job.yaml: {place}, not a number (YAML reads yes as true)" in str(raised.value)
