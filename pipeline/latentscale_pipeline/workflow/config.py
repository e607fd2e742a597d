"""The workflow file: corpora, job, baseline, gates and notifications."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field, field_validator, model_validator

from latentscale_pipeline.compare.gates import Gate, gates_of, read_gates
from latentscale_pipeline.config.job import JobConfig, resolve_config
from latentscale_pipeline.config.overrides import apply_override
from latentscale_pipeline.config.section import Section, parse_yaml, validate
from latentscale_pipeline.errors import BadInput
from latentscale_pipeline.jobs.plan import measure_sections
from latentscale_pipeline.jobs.sources import SOURCE_NAMES, SourceChoice
from latentscale_pipeline.storage.canonical import digest

Text = Annotated[str, Field(min_length=1)]


BASELINE_RULE = "write latest, none, {tag: WORD} or {job: FOLDER}"


class WorkflowCorpora(Section):
    """The corpora of an evaluation; they override those of the job.

    The other keys say what is read of sources that aren't corpora yet, as the options of
    ``latentscale run`` do.
    """

    corpus: Text | None = None
    """Corpus under evaluation."""
    reference: Text | None = None
    """Its reference."""
    vectors: Text | None = None
    """Column or array with the vectors; of the reference, too, as are the columns."""
    ids_column: Text | None = None
    """Column with the ids."""
    labels_column: Text | None = None
    """Column with the labels."""
    texts_column: Text | None = None
    """Column with the texts."""
    ids: Text | None = None
    """File with one id per row of the corpus."""
    labels: Text | None = None
    """File with one label per row of the corpus."""
    texts: Text | None = None
    """File with one text per row of the corpus."""
    reference_vectors: Text | None = None
    """Column or array with the vectors of the reference, if it differs."""
    reference_ids_column: Text | None = None
    """Column with the ids of the reference, if it differs."""
    reference_labels_column: Text | None = None
    """Column with the labels of the reference, if it differs."""
    reference_texts_column: Text | None = None
    """Column with the texts of the reference, if it differs."""
    reference_ids: Text | None = None
    """File with one id per row of the reference."""
    reference_labels: Text | None = None
    """File with one label per row of the reference."""
    reference_texts: Text | None = None
    """File with one text per row of the reference."""
    on_invalid: Literal["error", "drop", "drop-zero"] = "error"
    """What to do with rows that hold NaN or infinity; `drop-zero` also leaves out rows of zeros."""

    @field_validator("corpus", "reference", mode="before")
    @classmethod
    def _one_source(cls, given: Any) -> Any:
        if isinstance(given, dict | list):
            raise ValueError(
                "give one path, pattern or URL; columns are named beside it, such as "
                "vectors: embedding or labels_column: topic"
            )
        return given

    @property
    def named(self) -> dict[str, str]:
        """Return the corpora that are named here, by role."""
        named = {"corpus": self.corpus, "reference": self.reference}
        return {role: url for role, url in named.items() if url is not None}

    @property
    def choice(self) -> SourceChoice:
        """Return what is read of sources."""
        return SourceChoice.of(self.model_dump(include=set(SOURCE_NAMES)))


class BaselineRule(Section):
    """A fixed baseline: the job with a tag, or a named job."""

    tag: Text | None = None
    """The job that has this tag in the history."""
    job: Text | None = None
    """The folder of a finished job."""

    @model_validator(mode="after")
    def _one(self) -> BaselineRule:
        if (self.tag is None) == (self.job is None):
            raise ValueError(BASELINE_RULE)
        return self


class Notification(Section):
    """A notification of the outcome of an evaluation.

    A JSON document is posted to ``webhook``, or to the address in the environment variable
    ``webhook_from``, or passed to ``command`` on standard input.
    """

    webhook: Text | None = None
    """Address to which the document is posted."""
    webhook_from: Text | None = None
    """Environment variable that holds the address."""
    command: Annotated[list[Text], Field(min_length=1)] | None = None
    """Program and its arguments; runs only with --allow-code."""
    when: Literal["failure", "always"] = "failure"
    """When to notify: only on `failure`, or `always`."""

    @model_validator(mode="after")
    def _one(self) -> Notification:
        ways = (self.webhook, self.webhook_from, self.command)
        if sum(way is not None for way in ways) != 1:
            raise ValueError("name one of webhook, webhook_from and command")
        if self.webhook is not None and not self.webhook.startswith(("https://", "http://")):
            raise ValueError("a webhook is an http:// or https:// address")
        return self

    @property
    def key(self) -> str:
        """Return its identity, whatever its position; hashed because an address may be secret."""
        return digest(self.model_dump())[:16]


class Workflow(Section):
    """A whole workflow."""

    name: Annotated[str, Field(min_length=1, max_length=200)]
    """Name of the evaluation; also the job's name if it has none."""
    history: Text
    """Registry of finished jobs: a folder or a URL."""
    job: Text | dict[str, Any]
    """The job, or a file beside this one that holds it."""
    corpora: WorkflowCorpora = WorkflowCorpora()
    """Corpora that override those of the job."""
    baseline: Literal["latest", "none"] | BaselineRule = "latest"
    """What to compare with: `latest` is the newest job whose gates did not fail; `none` disables
    the comparison.
    """
    scales_from: Literal["baseline", "job"] = "baseline"
    """Source of the scales: the baseline, so that all runs share them, or the job itself."""
    gates: Text | list[Any] = Field(default_factory=list)
    """The gates, or a file beside this one that holds them."""
    allow_incomparable: bool = False
    """Whether to compare scores also if settings, scales or sizes differ."""
    notify: list[Notification] = Field(default_factory=list)
    """Notifications to send."""

    @model_validator(mode="before")
    @classmethod
    def _read_old_names(cls, keys: Any) -> Any:
        if isinstance(keys, dict) and "allow_unlike" in keys:
            old = {"allow_incomparable": keys["allow_unlike"]}
            keys = old | {name: value for name, value in keys.items() if name != "allow_unlike"}
        return keys

    @field_validator("baseline", mode="before")
    @classmethod
    def _none_is_a_word(cls, baseline: Any) -> Any:
        if isinstance(baseline, str) and baseline not in {"latest", "none"}:
            raise ValueError(BASELINE_RULE)
        # YAML reads an empty value or null as None, and the word none as a string.
        return "none" if baseline is None else baseline


def read_workflow(text: str, where: str, overrides: Sequence[str] = ()) -> Workflow:
    """Parse and check a workflow file.

    Parameters
    ----------
    text : str
        YAML.
    where : str
        Name of the file, for messages.
    overrides : sequence of str
        ``section.key=value`` assignments, the value in YAML, applied in order.

    Raises
    ------
    BadInput
        If the file has a mistake; one line names the first one.
    """
    document = parse_yaml(text, where)
    if not isinstance(document, dict):
        raise BadInput(f"{where}: a workflow is a mapping of keys such as name, job and history")
    if "corpus" in document and "job" not in document:
        raise BadInput(
            f"{where}: a job, not a workflow; run it with latentscale run {shlex.quote(where)}"
        )
    for override in overrides:
        apply_override(document, override)
    return validate(Workflow, document, where, "", overrides)


def read_job_config(workflow: Workflow, where: str) -> JobConfig:
    """Return the job of a workflow; its file is relative to the workflow's file.

    Raises
    ------
    BadInput
        If there is no such file, or it has a mistake.
    """
    if isinstance(workflow.job, str):
        place, text = _read_beside(where, "job", workflow.job)
        document = parse_yaml(text, place)
    else:
        place, document = f"{where}: job", dict(workflow.job)
    if not isinstance(document, dict):
        raise BadInput(f"{place}: a job is a mapping of keys such as name and corpus")
    config = resolve_config(
        {"name": workflow.name, **document, **workflow.corpora.named},
        place,
        measures=measure_sections(),
    )
    if config.reference is None and (name := workflow.corpora.choice.of_reference):
        raise BadInput(f"{where}: corpora.{name} needs corpora.reference")
    return config


def read_workflow_gates(workflow: Workflow, where: str) -> tuple[Gate, ...]:
    """Return the gates of a workflow; their file is relative to the workflow's file.

    Raises
    ------
    BadInput
        If there is no such file, or it has a mistake.
    """
    if isinstance(workflow.gates, str):
        place, text = _read_beside(where, "gates", workflow.gates)
        return read_gates(text, place)
    return gates_of(workflow.gates, where) if workflow.gates else ()


def _read_beside(where: str, key: str, name: str) -> tuple[str, str]:
    """Return the path and the text of the file that a key of the workflow names."""
    path = Path(where).parent / name
    try:
        return str(path), path.read_text(encoding="utf-8")
    except OSError as error:
        raise BadInput(f"{where}: {key}: {path}: {error.strerror}") from None
    except UnicodeDecodeError:
        raise BadInput(f"{where}: {key}: {path}: not a text file") from None
