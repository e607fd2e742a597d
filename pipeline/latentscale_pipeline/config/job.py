"""The job configuration: every key of the YAML file and its default.

Every key is checked. An unknown key is refused; the message names its path and the nearest known
key.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from functools import cache
from typing import Annotated, Any, ClassVar, Literal

from pydantic import (
    ConfigDict,
    Field,
    PositiveFloat,
    PositiveInt,
    create_model,
    field_validator,
    model_validator,
)

from latentscale_pipeline.config.cluster import IN_THE_DRIVER, MIN_MEMORY, Auto, Cluster, Driver
from latentscale_pipeline.config.overrides import apply_override, drop_settings_of_other_kinds
from latentscale_pipeline.config.section import Section, parse_yaml, validate
from latentscale_pipeline.errors import BadInput

OWN_SCALES = ("auto", "corpus", "reference")
"""Values of ``scales_from`` that don't name a job."""


class Replicates(Section):
    """Repetitions with random row orders or, with ``rows``, on random subsamples."""

    count: Annotated[int, Field(ge=1, le=1000)] = 1
    """Number of random row orders, or of subsamples; 1 is only the stored order."""
    rows: PositiveInt | None = None
    """Rows of a subsample, at most half of each corpus; null for no subsamples."""

    @model_validator(mode="after")
    def _enough(self) -> Replicates:
        if self.rows is not None and self.count < 2:
            raise ValueError("rows needs a count of at least 2, because it measures variation")
        return self


class Sampling(Section):
    """How far chance alone moves the scores."""

    method: Literal["auto", "none"] = "auto"
    """`auto` finds how far chance moves scores, and with a reference also the range in which each
    score of the corpus is expected; `none` finds neither.
    """
    samples: Annotated[int, Field(ge=5, le=1000)] = 10
    """Random samples of the corpus that are measured, and compared with samples of the reference.
    """
    rows: Annotated[int, Field(ge=50)] = 1000
    """Rows of a sample; in small corpora a round number, at most a fifth of the rows of the corpus,
    or 50, and a third of those of the reference.
    """


class ExcludedShards(Section):
    """Shards whose rows are left out of the job."""

    corpus: list[str] = Field(default=[])
    """Keys in the corpus' folder, such as `vectors/c/3/0`."""
    reference: list[str] = Field(default=[])
    """Keys in the reference's folder."""


class Budget(Section):
    """Limits for the work of a measure on one corpus."""

    pairs: PositiveFloat = 5.0e10
    """Largest number of pairs of rows. Methods that need more aren't chosen, except samples of a
    fixed size. A job whose settings ask for one is refused.
    """


OF_INGEST = (
    *("vectors", "ids", "labels", "texts", "weights", "ids_column", "labels_column"),
    *("texts_column", "on_invalid"),
)
"""Options of an ingest, which a job file hasn't."""


class JobConfig(Section):
    """A complete job."""

    elsewhere: ClassVar[Mapping[str, str]] = {
        name: f"it belongs to latentscale ingest, as --{name.replace('_', '-')}; name the corpus "
        "that this makes"
        for name in OF_INGEST
    }

    name: Annotated[str, Field(min_length=1, max_length=200)]
    """Name of the job; its folder's name begins with it."""
    corpus: Annotated[str, Field(min_length=1)]
    """Path or URL of a corpus, or of files in any known format."""
    reference: Annotated[str, Field(min_length=1)] | None = None
    """Path or URL of a second corpus to compare with. Enables measures that need a reference."""
    pair: Literal["rows", "ids"] | None = None
    """How a row of the corpus finds the row of the reference that represents the same item: `rows`
    by its number, `ids` by its id. Enables measures that compare row by row.
    """
    group_by: Literal["labels"] | None = None
    """`labels` also measures the rows of every label separately."""
    exclude_shards: ExcludedShards = ExcludedShards()
    """Shards whose rows are left out, usually because they are damaged."""
    output: Annotated[str, Field(min_length=1)] = "jobs/"
    """Folder or URL below which the job's folder is created."""
    storage_options: Annotated[dict[str, dict[str, Any]], Field(repr=False)] = Field(default={})
    """Options of object stores, by protocol. They are sent to the workers, and never stored."""
    seed: Annotated[int, Field(ge=0, lt=2**63)] = 0
    """Seed of all random numbers."""
    replicates: Replicates = Replicates()
    """Repetitions with other row orders, or on subsamples."""
    sampling: Sampling = Sampling()
    """How far chance alone moves the scores."""
    budget: Budget = Budget()
    """Limits for the work of a measure."""
    scales_from: str = "auto"
    """Source of the scales that measures derive from data: `corpus`, `reference`, the folder of a
    finished job, or `auto`, which is the reference if there is one and the corpus otherwise.
    """
    measures: dict[str, Any] = Field(default={})
    """Measures to run, by name; without this key, all default measures that apply."""
    cluster: Cluster = Auto()
    """Where tasks run. Doesn't change any result."""
    driver: Driver = Driver()
    """The process that hands out the tasks. Doesn't change any result."""

    @field_validator("cluster", mode="before")
    @classmethod
    def _kind_is_auto(cls, cluster: Any) -> Any:
        if isinstance(cluster, dict) and "kind" not in cluster:
            return {"kind": "auto", **cluster}
        return cluster

    @model_validator(mode="after")
    def _groups_have_no_reference(self) -> JobConfig:
        if self.group_by is not None and self.reference is not None:
            raise ValueError(
                "group_by measures the labels of one corpus; leave out reference or group_by"
            )
        return self

    @model_validator(mode="after")
    def _pairs_have_a_reference(self) -> JobConfig:
        if self.pair is not None and self.reference is None:
            raise ValueError(
                "pair needs a reference, whose rows are the partners; add --reference (reference: "
                "in a job file)"
            )
        excluded = self.exclude_shards
        if self.pair == "rows" and (excluded.corpus or excluded.reference):
            raise ValueError("pair: rows needs all rows, and exclude_shards leaves some out")
        return self

    @property
    def in_memory(self) -> list[str]:
        """The keys of this job that name a place in this process's memory."""
        places = ("corpus", "reference", "output")
        return [key for key in places if str(getattr(self, key)).startswith("memory://")]

    @model_validator(mode="after")
    def _workers_reach_it(self) -> JobConfig:
        if self.in_memory and not isinstance(self.cluster, IN_THE_DRIVER):
            raise ValueError(
                f"{self.in_memory[0]} is in the memory of one process, where workers can't read "
                "it; choose another place, or in Python set cluster.kind to serial"
            )
        return self

    @field_validator("cluster")
    @classmethod
    def _enough_memory(cls, cluster: Cluster) -> Cluster:
        if cluster.memory_limit < MIN_MEMORY:
            raise ValueError("memory_limit must be at least 1GiB")
        return cluster


def read_config(
    text: str,
    where: str,
    *,
    overrides: Sequence[str] = (),
    measures: Mapping[str, type[Section]],
) -> JobConfig:
    """Parse and check a job configuration.

    Parameters
    ----------
    text : str
        The YAML document.
    where : str
        Name of the file, for messages.
    overrides : sequence of str
        ``section.key=value`` assignments, the value in YAML, applied in order.
    measures : mapping
        The section of every known measure, by name.

    Returns
    -------
    JobConfig
        The configuration; ``measures`` has a checked section for every measure to run.

    Raises
    ------
    BadInput
        On the first mistake; the message has its place, the problem, and the nearest known name.
    """
    document = parse_yaml(text, where)
    return resolve_config(document, where, overrides=overrides, measures=measures)


def read_frozen_config(
    text: str,
    where: str,
    *,
    overrides: Sequence[str] = (),
    measures: Mapping[str, type[Section]],
) -> JobConfig:
    """Parse and check the configuration that is stored with a job.

    Parameters
    ----------
    text : str
        The JSON document.
    where, measures
        As in :func:`read_config`.
    overrides : sequence of str
        Assignments to keys in ``cluster``, ``driver`` and ``storage_options``. All other keys
        define the job and can't be changed.

    Raises
    ------
    BadInput
        As :func:`read_config`, and for an override of any other key.
    """
    for override in overrides:
        section = override.partition("=")[0].partition(".")[0].strip()
        if section not in {"cluster", "driver", "storage_options"}:
            raise BadInput(
                f"-o {override}: only keys of cluster, driver and storage_options can change when "
                "a job is resumed; use latentscale run to start another job"
            )
    try:
        document = json.loads(text)
    except ValueError as error:
        raise BadInput(
            f"{where}: not valid JSON ({error}); restore it, or use latentscale run with the job's "
            "configuration"
        ) from None
    if isinstance(document, dict):
        drop_settings_of_other_kinds(document, overrides)
    return resolve_config(document, where, overrides=overrides, measures=measures)


def resolve_config(
    document: Any,
    where: str,
    *,
    overrides: Sequence[str] = (),
    measures: Mapping[str, type[Section]],
    preset: Mapping[str, Any] | None = None,
) -> JobConfig:
    """Check a parsed job configuration; see :func:`read_config`.

    A ``preset`` fills in keys that the document hasn't. Of its measures those are taken that apply
    to the corpora.
    """
    if not isinstance(document, dict):
        raise BadInput(f"{where}: a job must be a mapping with keys such as name and corpus")
    offered: Mapping[str, Any] = {
        name: {} for name, section in measures.items() if section.by_default
    }
    if preset is not None:
        offered = preset.get("measures", offered)
        document = {key: preset[key] for key in preset if key != "measures"} | document
    # Setting a key of one measure must keep the default measures, so these are filled in first.
    inner = [override for override in overrides if override.startswith("measures.")]
    for override in overrides:
        if override not in inner:
            apply_override(document, override)
    named = bool(inner) or "measures" in document
    if "measures" not in document:
        alone, unpaired = (document.get(key) is None for key in ("reference", "pair"))
        document["measures"] = {
            name: section
            for name, section in offered.items()
            if not (alone and measures[name].compares)
            and not (unpaired and measures[name].row_by_row)
        }
    for override in inner:
        apply_override(document, override)
    found = validate(_job_model(tuple(measures.items())), document, where, "", overrides)
    chosen = [name for name in measures if name in found.measures.model_fields_set]
    if not chosen:
        raise BadInput(f"{where}: measures is empty; name at least one of {', '.join(measures)}")
    for name in chosen:
        if measures[name].compares and found.reference is None:
            raise BadInput(
                f"{where}: measures.{name} compares with a reference; "
                "add reference: or leave it out"
            )
        if measures[name].row_by_row and found.pair is None:
            raise BadInput(
                f"{where}: measures.{name} compares row by row; say how rows are paired, with "
                "--pair rows or --pair ids (pair: in a job file), or leave it out"
            )
    sections = {name: getattr(found.measures, name) or measures[name]() for name in chosen}
    # If none are named, those that apply to the corpora are chosen later.
    fields_set = found.model_fields_set - (set() if named else {"measures"})
    return JobConfig.model_construct(fields_set, **{**dict(found), "measures": sections})


def config_schema(measures: Mapping[str, type[Section]]) -> dict[str, Any]:
    """Return the JSON Schema (2020-12) of a configuration file, for editors and early checks.

    Parameters
    ----------
    measures : mapping
        The section of every known measure, by name.

    Notes
    -----
    It checks names, types and ranges. Rules that involve several keys (a measure that needs a
    reference, kernels listed twice) are checked when the configuration is read.
    """
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        **_job_model(tuple(measures.items())).model_json_schema(),
        "title": "latentscale job",
        "description": "A latentscale job.",
    }


class _Measures(Section):
    """Measures to run, by name; without this key, all default measures that apply."""

    model_config = ConfigDict(json_schema_extra={"minProperties": 1})


@cache
def _job_model(measures: tuple[tuple[str, type[Section]], ...]) -> type[Any]:
    """Return the model of a job document, with a section for every known measure."""
    sections: Any = {name: (section | None, None) for name, section in measures}
    known = create_model("Measures", __base__=_Measures, __doc__=_Measures.__doc__, **sections)
    chosen: Any = (known, Field(default_factory=known))
    return create_model("Job", __base__=JobConfig, measures=chosen)
