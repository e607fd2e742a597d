"""A finished job, read from its folder: results and configuration; and the folder's name."""

from __future__ import annotations

import contextlib
import difflib
import json
import re
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from latentscale_pipeline.config.section import InvalidDocument, validate
from latentscale_pipeline.corpus.manifest import MANIFEST_KEY
from latentscale_pipeline.errors import BadInput
from latentscale_pipeline.measures.results_models import results_models
from latentscale_pipeline.results.model import RESULTS_SCHEMA, Corpus, Results, Score
from latentscale_pipeline.results.part import Part, Role
from latentscale_pipeline.storage.canonical import plain, slug
from latentscale_pipeline.storage.objects import ObjectStore
from latentscale_pipeline.views.formatting import shorten

LATEST = "@latest"
"""What follows a name to mean the job of this name that finished last."""

WRITTEN_ALWAYS = ("schema", "job", "corpora", "scores", "measures", "arrays")
"""Keys that every version has written in the results of a job."""

DAMAGED = "the file is damaged, run the job again"


@dataclass(frozen=True)
class FinishedJob:
    """A finished job.

    Attributes
    ----------
    url : str
        Its folder, without credentials.
    results : Results
        Its results.
    settings : mapping or None
        Its stored configuration; None if the folder has none.
    """

    url: str
    results: Results
    settings: Mapping[str, Any] | None = None

    @property
    def id(self) -> str:
        """Its id."""
        return self.results.job.id

    @property
    def name(self) -> str:
        """Its name, as configured."""
        return self.results.job.name

    @property
    def finished(self) -> str:
        """Time at which it finished; empty if unknown."""
        return self.results.job.finished or ""

    @property
    def version(self) -> str:
        """Version of the program that computed it; empty if unknown."""
        return self.results.job.version

    @property
    def scores(self) -> Sequence[Score]:
        """Its scores, in the order of its results."""
        return self.results.scores

    @property
    def corpora(self) -> Mapping[Role, Corpus]:
        """Its corpora by role."""
        return self.results.corpora.by_role()

    def rows_of(self, score: Score) -> int | None:
        """Return how many rows one of its scores is of: those of its label, if it has one.

        None if that isn't known, and for scores of the pair.
        """
        if score.of == "pair":
            return None
        if score.label is None:
            corpus = self.corpora.get(score.of)
            return None if corpus is None else corpus.n
        labels = self.results.part("labels")
        return score.rows or (labels and labels.measured.get(score.label))

    @property
    def source(self) -> str:
        """What its corpus was made of: what a job ingested, or as configured; empty if unknown."""
        corpus = self.corpora.get("corpus")
        if corpus is not None and corpus.known_as != (corpus.uri or ""):
            return corpus.known_as
        given = (self.settings or {}).get("corpus") or ()
        return ", ".join(map(str, [given] if isinstance(given, str) else given))

    def locate(self, role: Role) -> str | None:
        """Return where a corpus is: beside the job if it was moved with it; None if unknown."""
        described = self.corpora.get(role)
        if described is None or described.uri is None:
            return None
        copied = re.search(r"/corpora/[0-9a-f]{32}\.zarr$", described.uri)
        if copied and not ObjectStore(described.uri).exists(MANIFEST_KEY):
            output, _ = _parent(ObjectStore(self.url))
            return output.locate(copied[0].removeprefix("/"))
        return described.uri

    @property
    def measure_settings(self) -> Mapping[str, Any]:
        """The settings of its measures, as JSON; empty if unknown."""
        sections = plain((self.settings or {}).get("measures"))
        return sections if isinstance(sections, dict) else {}

    @property
    def seconds(self) -> float | None:
        """Total seconds of all stages."""
        timings = self.results.timings
        return sum(timing.seconds for timing in timings) if timings else None

    @property
    def peak_memory_bytes(self) -> int | None:
        """Largest peak memory of a process, if it was measured."""
        timings = self.results.timings
        return max((timing.peak_memory_bytes or 0 for timing in timings), default=0) or None


def find_job(url: str) -> ObjectStore:
    """Return the folder of a job, which may be named without the hash at its end.

    Parameters
    ----------
    url : str
        A job's folder, local or any fsspec URL. If nothing is there, ``jobs/nightly`` finds
        ``jobs/nightly-1a2b3c4d``, ``jobs/nightly@latest`` the job of this name that finished last,
        and ``nightly`` what is below ``jobs/``, the default output.

    Returns
    -------
    ObjectStore
        The folder; that of ``url`` itself if no job of this name is found.

    Raises
    ------
    BadInput
        If several jobs have this name, which the message lists, or none is the latest.
    """
    store = ObjectStore(url)
    if store.exists(""):
        return store
    parent, folder = _parent(store)
    found = _find_named(parent, folder) or _find_named(parent.child("jobs"), folder)
    if found is None and folder.endswith(LATEST):
        name = store.url.rstrip("/").removesuffix(LATEST)
        raise BadInput(f"{name}: no job of this name is finished; run it first")
    return found or store


def _find_named(parent: ObjectStore, folder: str) -> ObjectStore | None:
    """Return the job of a name, or of a folder's name, in a folder of jobs; None if none has it."""
    name = folder.removesuffix(LATEST)
    folders = parent.folders()
    if folder in folders:
        return parent.child(folder)
    # The folder of solo_a is called solo-a-1a2b3c4d.
    named = re.compile(f"({re.escape(name)}|{re.escape(slug(name))})-[0-9a-f]{{8}}")
    fitting = [each for each in folders if named.fullmatch(each)]
    if fitting and name != folder:
        return parent.child(_latest(parent, name, fitting))
    if len(fitting) > 1:
        place = parent.locate(folder)
        raise BadInput(
            f"{place}: several jobs have this name; take the one that finished last with "
            f"{place}{LATEST}, or name one: {', '.join(fitting)}"
        )
    return parent.child(fitting[0]) if fitting else None


def _latest(parent: ObjectStore, name: str, folders: Sequence[str]) -> str:
    """Return the folder whose job finished last; those that aren't finished don't count."""
    times = {}
    for folder in folders:
        finished = _when_finished(_read_object(parent.child(folder), "results.json"))
        if finished is not None:
            times[folder] = finished
    if not times:
        raise BadInput(f"{parent.locate(name)}: no job of this name is finished; run it first")
    return max(times, key=lambda folder: times[folder])


def _when_finished(document: dict[str, Any] | None) -> datetime | None:
    """Return when a job finished; None if its results don't say it."""
    try:
        time = datetime.fromisoformat((document or {})["job"]["finished"])
    except (KeyError, TypeError, ValueError):
        return None
    return time if time.tzinfo is not None else time.replace(tzinfo=UTC)


def suggest_job(store: ObjectStore) -> str:
    """Return ``; did you mean …?`` with the nearest folder of one that isn't there, if any."""
    parent, name = _parent(store)
    near = difflib.get_close_matches(name, parent.folders(), 1)
    return f"; did you mean {parent.locate(near[0])}?" if near and not store.exists("") else ""


def _parent(store: ObjectStore) -> tuple[ObjectStore, str]:
    parent, slash, name = store.address.rstrip("/").rpartition("/")
    return ObjectStore(parent or slash or "."), name


def is_job(store: ObjectStore) -> bool:
    """Return whether a folder is a job's."""
    return store.exists("plan.json") or bool(store.keys("lock"))


def refuse_folder_of_jobs(store: ObjectStore) -> None:
    """Raise :class:`BadInput` if jobs are in a folder, and name one."""

    def is_open(name: str) -> bool:
        with contextlib.suppress(BadInput):  # a folder closed to this user
            return is_job(store.child(name))
        return False

    job = next(filter(is_open, store.folders()), None)
    if job is not None:
        raise BadInput(
            f"{store.url}: the folder holds jobs but isn't a job; name one of them, such as "
            f"{store.locate(job)}, or use latentscale list {shlex.quote(store.url)}"
        )


def read_job(url: str) -> FinishedJob:
    """Read a finished job from its folder.

    Parameters
    ----------
    url : str
        A job's folder, local or any fsspec URL.

    Raises
    ------
    BadInput
        If there is no finished job, or its files can't be read.
    """
    store = find_job(url)
    document = _read_object(store, "results.json")
    settings = _read_object(store, "config.json")
    if document is None and settings is not None:
        raise BadInput(f"{store.url}: this job isn't finished; run it again to finish it")
    if document is None and store.exists(MANIFEST_KEY):
        raise BadInput(
            f"{store.url}: a corpus, not a job; look at it with latentscale info "
            f"{shlex.quote(store.url)}, or name the folder of a finished job"
        )
    if document is None:
        refuse_folder_of_jobs(store)
        raise BadInput(
            f"{store.url}: no results.json here; name the folder of a finished job, "
            f"such as jobs/nightly-1a2b3c4d{suggest_job(store)}"
        )
    return FinishedJob(store.url, read_results(document, f"{store.url}/results.json"), settings)


def read_provenance(url: str) -> dict[str, Any] | None:
    """Read the provenance of a job from its folder; None if there is none.

    Raises
    ------
    BadInput
        If the document can't be read.
    """
    return _read_object(find_job(url), "provenance.json")


def read_results(document: Mapping[str, Any], where: str) -> Results:
    """Convert the content of ``results.json`` to the model of results.

    Raises
    ------
    BadInput
        If it doesn't fit the schema ``latentscale.results/1``.
    """
    if not isinstance(document, Mapping):
        raise BadInput(f"{where}: not a JSON object; {DAMAGED}")
    schema = document.get("schema")
    if schema is not None and schema != RESULTS_SCHEMA:
        raise BadInput(
            f"{where}: its schema is {shorten(str(schema))}, and this version reads "
            f"{RESULTS_SCHEMA}; use the version of latentscale that wrote it"
        )
    if missing := [key for key in WRITTEN_ALWAYS if key not in document]:
        raise BadInput(f"{where}: {missing[0]} is missing; {DAMAGED}")
    try:
        results = validate(Results, document, where, "")
    except InvalidDocument as error:
        mistake = error.mistakes[0].partition(";")[0]  # the rest is advice for who wrote a file
        raise BadInput(f"{where}: {mistake}; {DAMAGED}") from None
    models = results_models()
    measures = {name: _known(models.get(name), part) for name, part in results.measures.items()}
    return results.model_copy(update={"measures": measures})


def _known(model: type[Part] | None, part: Any) -> Any:
    """Return a part of ``measures`` as its model, or unchanged if this version doesn't know it."""
    try:
        return part if model is None else model.model_validate(part)
    except ValueError:
        return part


def _read_object(store: ObjectStore, key: str) -> dict[str, Any] | None:
    try:
        document = json.loads(store.read(key))
    except (FileNotFoundError, NotADirectoryError):
        return None
    except ValueError:
        document = None
    if not isinstance(document, dict):
        raise BadInput(f"{store.locate(key)}: not a JSON object; {DAMAGED}")
    return document
