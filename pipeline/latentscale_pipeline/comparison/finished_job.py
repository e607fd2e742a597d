"""A finished job as a comparison sees it: its scores, and what they were measured with."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, NonNegativeFloat, model_validator

from latentscale_pipeline.errors import BadInput
from latentscale_pipeline.job.config import validate
from latentscale_pipeline.notation import printable, score_name
from latentscale_pipeline.objects import ObjectStore

Role = Literal["corpus", "reference"]

ROLES: Mapping[str, tuple[Role, ...]] = {
    "corpus": ("corpus",),
    "reference": ("reference",),
    "pair": ("corpus", "reference"),
}
"""The corpora that a score says something of."""


class Lenient(BaseModel):
    """A part of a stored document: checked where it is read, open to names that come later."""

    model_config = ConfigDict(extra="ignore", frozen=True, allow_inf_nan=False)


class Score(Lenient):
    """One row of ``scores``."""

    measure: str
    of: Literal["corpus", "reference", "pair"]
    score: str
    kernel: str | None = None
    order: str | None = None
    label: str | None = None
    scale: float | None = None
    value: float | None
    lower: float | None = None
    upper: float | None = None
    bounds: str | None = None
    sampling_error: NonNegativeFloat | None = None
    unit: str = ""
    better: str = "none"
    reason: str | None = None
    size_dependent: bool = True

    @model_validator(mode="after")
    def _bracketed(self) -> Score:
        if self.value is not None:
            if self.lower is None or self.upper is None:
                raise ValueError("a value needs its bracket, lower and upper")
            if self.lower > self.upper:
                raise ValueError("lower is above upper")
        return self

    @property
    def name(self) -> str:
        """What a person calls this score: ``vendi cosine, order 1 (corpus)``."""
        own = score_name(self.model_dump())
        measure = "" if own == self.measure else f"{printable(self.measure)} "
        return f"{measure}{own} ({self.of})"

    @property
    def why_null(self) -> str:
        """Why there is no value."""
        return printable(self.reason or "no reason was recorded")


class Corpus(Lenient):
    """What identifies a corpus."""

    n: int
    fingerprint: str


class Job(Lenient):
    """What identifies a job."""

    id: str
    name: str
    finished: str | None = None
    version: str = ""


class Timing(Lenient):
    """What one stage took."""

    seconds: float
    peak_memory_bytes: int | None = None


class Results(Lenient):
    """What a comparison reads of ``results.json``."""

    kind: Literal["latentscale.results/1"] = Field("latentscale.results/1", alias="schema")
    job: Job
    corpora: dict[str, Corpus | None]
    scores: list[Score]
    measures: dict[str, Any] = {}
    timings: list[Timing] = []


@dataclass(frozen=True)
class FinishedJob:
    """A finished job.

    Attributes
    ----------
    url : str
        Its folder, without credentials.
    id, name : str
        Its identity.
    corpora : mapping of role to Corpus
        Those it had.
    scores : tuple of Score
        In the order of its results.
    settings : mapping or None
        Its frozen configuration; None when the folder holds none.
    found : mapping
        The measures' own parts of the results: a comparison looks at the scales in them, its report
        draws the functions of those it knows.
    finished, version : str
        When, and by which version of the program; empty where that isn't told.
    timings : tuple of Timing
        What its stages took.
    """

    url: str
    id: str
    name: str
    corpora: Mapping[str, Corpus]
    scores: tuple[Score, ...]
    settings: Mapping[str, Any] | None = None
    found: Mapping[str, Any] | None = None
    finished: str = ""
    version: str = ""
    timings: tuple[Timing, ...] = ()

    @property
    def seconds(self) -> float | None:
        """Seconds of all stages together."""
        return sum(timing.seconds for timing in self.timings) if self.timings else None

    @property
    def peak_memory_bytes(self) -> int | None:
        """Most bytes that a process held, as far as that was measured."""
        return max((timing.peak_memory_bytes or 0 for timing in self.timings), default=0) or None


def read_job(url: str) -> FinishedJob:
    """Read a finished job from its folder.

    Parameters
    ----------
    url : str
        A job's folder, local or any fsspec URL.

    Raises
    ------
    BadInput
        If there is no finished job, or its documents can't be read.
    """
    documents = read_documents(url)
    return finished_job(documents.results, documents.settings, documents.url)


@dataclass(frozen=True)
class Documents:
    """The documents of a finished job, as they are stored; None for one that isn't there."""

    url: str
    results: dict[str, Any]
    settings: dict[str, Any] | None
    provenance: dict[str, Any] | None


def read_documents(url: str) -> Documents:
    """Read the documents of a finished job from its folder.

    Raises
    ------
    BadInput
        As :func:`read_job`; the results aren't looked into.
    """
    store = ObjectStore(url)
    results = _read_object(store, "results.json")
    settings = _read_object(store, "config.json")
    if results is None and settings is not None:
        raise BadInput(
            f"{store.url}: this job isn't finished; run it to its end before comparing it"
        )
    if results is None:
        raise BadInput(
            f"{store.url}: no results.json here; name the folder of a finished job, "
            "such as jobs/nightly-1a2b3c4d"
        )
    return Documents(store.url, results, settings, _read_object(store, "provenance.json"))


def finished_job(
    results: Mapping[str, Any], settings: Mapping[str, Any] | None, url: str
) -> FinishedJob:
    """Make a finished job of its two documents, ``results.json`` and ``config.json``.

    Raises
    ------
    BadInput
        If the results aren't what ``latentscale.results/1`` says.
    """
    checked = validate(Results, results, f"{url}/results.json", "")
    return FinishedJob(
        url=url,
        id=checked.job.id,
        name=checked.job.name,
        corpora={role: corpus for role, corpus in checked.corpora.items() if corpus is not None},
        scores=tuple(checked.scores),
        settings=settings,
        found=checked.measures,
        finished=checked.job.finished or "",
        version=checked.job.version,
        timings=tuple(checked.timings),
    )


def _read_object(store: ObjectStore, key: str) -> dict[str, Any] | None:
    try:
        document = json.loads(store.read(key))
    except (FileNotFoundError, NotADirectoryError):
        return None
    except ValueError:
        document = None
    if not isinstance(document, dict):
        raise BadInput(
            f"{store.locate(key)}: not a JSON object; the file is damaged, run the job again"
        )
    return document
