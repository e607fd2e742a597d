"""Scores reach Prometheus, OpenMetrics and MLflow, whatever they are called."""

from collections.abc import Callable
from pathlib import Path

import pytest
from prometheus_client.openmetrics.parser import text_string_to_metric_families as parse_openmetrics
from prometheus_client.parser import text_string_to_metric_families as parse_text

from latentscale_pipeline.metrics.exposition import format_metrics
from tests.conftest import Ended
from tests.support.comparisons import job, row, write_job
from tests.support.results_documents import finished_job

HOSTILE = 'a"b\\c\n# EOF {x="y"} 1'

TOY = row(3.5, 0.25, label="cats", sampling_error=0.125)
"""A measure that nobody knew when metrics were written."""


def test_a_score_its_bracket_and_its_error_are_samples() -> None:
    text = format_metrics([job(TOY, row(None, reason="too few rows", score="lost"))]).decode()
    same = (
        '{bounds="certified",job_name="nightly",kernel="",label="cats",measure="toy",of="corpus",'
        'order="",scale="",score="spread",unit="paws"}'
    )
    samples = {
        (sample.name, sample.labels["label"]): sample.value
        for family in parse_text(text)
        for sample in family.samples
        if sample.labels.get("measure") == "toy"
    }
    assert samples == {
        ("latentscale_score", "cats"): 3.5,
        ("latentscale_score_lower", "cats"): 3.25,
        ("latentscale_score_upper", "cats"): 3.75,
        ("latentscale_score_sampling_error", "cats"): 0.125,
    }
    (line,) = [line for line in text.splitlines() if line.startswith("latentscale_score{")]
    assert sorted(line[line.index("{") + 1 : line.index("}")].split(",")) == same[1:-1].split(",")
    assert line.endswith("} 3.5")
    assert "# TYPE latentscale_score gauge" in text


@pytest.mark.parametrize("openmetrics", [False, True])
def test_hostile_names_stay_values(openmetrics: bool) -> None:
    text = format_metrics(
        [job(row(1.0, label=HOSTILE, kernel=HOSTILE), name=HOSTILE)], openmetrics=openmetrics
    ).decode()
    assert text.endswith("# EOF\n") == openmetrics
    parse = parse_openmetrics if openmetrics else parse_text
    (sample,) = [
        sample
        for family in parse(text)
        for sample in family.samples
        if sample.name == "latentscale_score"
    ]
    names = [sample.labels[name] for name in ("label", "kernel", "job_name")]
    assert names == [HOSTILE] * 3
    assert sample.value == 1.0


def test_rows_without_a_label_are_not_all_rows() -> None:
    labels = ("", "cats", "(no label)", '"(no label)"')
    rows = [row(value, label=label) for value, label in enumerate(labels, 2)]
    text = format_metrics([job(row(1.0), *rows)]).decode()
    found = {
        sample.labels["label"]: sample.value
        for family in parse_text(text)
        for sample in family.samples
        if sample.name == "latentscale_score"
    }
    quoted = {'"(no label)"': 4.0, '""(no label)""': 5.0}
    assert found == {"": 1.0, "(no label)": 2.0, "cats": 3.0, **quoted}


def test_a_job_says_which_it_is_and_when() -> None:
    document = {
        "schema": "latentscale.results/1",
        "job": {
            "id": "nightly-1a2b3c4d",
            "name": "nightly",
            "version": "1.2",
            "finished": "1970-01-02T00:00:00+00:00",
        },
        "corpora": {},
        "scores": [],
        "measures": {},
        "arrays": {},
    }
    text = format_metrics([finished_job(document, None, "jobs/a")]).decode()
    info = 'latentscale_job_info{job_id="nightly-1a2b3c4d",job_name="nightly",version="1.2"} 1.0'
    assert info.replace("{", ",").replace("}", ",").split(",")[0] in text
    assert 'latentscale_job_finished_timestamp_seconds{job_name="nightly"} 86400.0' in text


def test_the_command_replaces_its_file_at_once(
    tmp_path: Path, latentscale: Callable[..., Ended]
) -> None:
    folder = write_job(tmp_path / "job", TOY)
    target = tmp_path / "latentscale.prom"
    target.write_text("old")
    assert latentscale("export-metrics", folder, "--output", target).code == 0
    assert target.read_text().count("latentscale_score{") == 1
    printed = latentscale("export-metrics", folder, "--format", "openmetrics").out
    assert printed.endswith("# EOF\n")
    assert [path.name for path in tmp_path.iterdir() if path.is_file()] == ["latentscale.prom"]
    twice = latentscale("export-metrics", folder, folder)
    assert twice.code == 2
    assert "two jobs are named 'nightly'" in twice.err


@pytest.fixture(params=["file", "sqlite"])
def mlflow_store(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> str:
    """The address of an empty store of MLflow on disk."""
    pytest.importorskip("mlflow", reason="the extra mlflow isn't installed")
    monkeypatch.setenv("MLFLOW_DISABLE_TELEMETRY", "true")
    if request.param == "file":
        monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")
        return (tmp_path / "runs").as_uri()
    pytest.importorskip("alembic", reason="a store of MLflow in SQLite needs alembic")
    return f"sqlite:///{tmp_path}/runs.db"


@pytest.mark.filterwarnings("ignore")  # MLflow's own
def test_mlflow_holds_every_score_once(
    tmp_path: Path, latentscale: Callable[..., Ended], mlflow_store: str
) -> None:
    from mlflow import MlflowClient

    slashes = [row(value, label=label) for value, label in ((7.0, "a/b"), (8.0, "a:b"))]
    folder = write_job(tmp_path / "job", TOY, row(None, reason="none", score="lost"), *slashes)
    command = ("export-metrics", folder, "--mlflow", mlflow_store)
    first = latentscale(*command)
    assert first.out == "nightly-1a2b3c4d: logged\n", first.err
    assert latentscale(*command).out.endswith("logged before\n")
    client = MlflowClient(tracking_uri=mlflow_store)
    place = client.get_experiment_by_name("latentscale").experiment_id
    (run,) = client.search_runs([place])
    cats = {key: value for key, value in run.data.metrics.items() if "label cats" in key}
    assert cats == {
        "toy/spread/label cats/corpus/value": 3.5,
        "toy/spread/label cats/corpus/lower": 3.25,
        "toy/spread/label cats/corpus/upper": 3.75,
        "toy/spread/label cats/corpus/sampling_error": 0.125,
    }
    others = {key: value for key, value in run.data.metrics.items() if key not in cats}
    values = {key: value for key, value in others.items() if key.endswith("/value")}
    assert sorted(values.values()) == [7.0, 8.0], "labels that look alike stay two"
    assert all(key.startswith("toy/spread/label a_b/corpus ") for key in values)
    assert len(others) == 6, "each with its ends, and none for the one that was lost"


@pytest.mark.filterwarnings("ignore")  # MLflow's own
def test_mlflow_goes_on_with_an_interrupted_run(
    tmp_path: Path,
    latentscale: Callable[..., Ended],
    mlflow_store: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from mlflow import MlflowClient

    folder = write_job(tmp_path / "job", TOY)
    command = ("export-metrics", folder, "--mlflow", mlflow_store)
    with monkeypatch.context() as patched:
        patched.setattr(MlflowClient, "set_terminated", interrupted)
        assert latentscale(*command).code == 3
    assert latentscale(*command).out == "nightly-1a2b3c4d: logged\n"
    client = MlflowClient(tracking_uri=mlflow_store)
    place = client.get_experiment_by_name("latentscale").experiment_id
    (run,) = client.search_runs([place])
    assert (run.info.status, len(run.data.metrics)) == ("FINISHED", 4)
    (once,) = client.get_metric_history(run.info.run_id, "toy/spread/label cats/corpus/value")
    assert once.value == 3.5


def interrupted(*arguments: object, **options: object) -> None:
    raise KeyboardInterrupt
