"""A registry of finished jobs: a folder or URL with any number of writers.

Objects in a registry are never changed. Each entry is a separate file that is created only if it is
absent, so of two writers of one evaluation the first wins. A tag is a series of files,
``tags/<tag>/000001.json`` and so on, of which the highest number is current. Moving a tag creates
the next file; only one of several contenders can do so. Accepting or rejecting a job, and taking
that back, works in the same way, with ``accepted/<job>/000001.json`` or ``rejected/…`` and so on;
so does the folder of a job that was moved, with ``places/<job>/000001.json``.
"""

from __future__ import annotations

import contextlib
import json
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from latentscale_pipeline.config.section import nearest
from latentscale_pipeline.errors import BadInput, Incomplete
from latentscale_pipeline.history.entries import (
    Entry,
    dump_entry,
    in_use,
    job_of_series,
    last_evaluations,
    limiting,
    load_entry,
)
from latentscale_pipeline.measures.finished_job import FinishedJob
from latentscale_pipeline.report.control_chart import JobOfSeries
from latentscale_pipeline.storage.objects import ObjectStore, run_requests
from latentscale_pipeline.views.formatting import printable

LATEST = "latest"
"""The name of the newest job whose gates didn't fail."""

MOVES = 20
"""How many times moving a tag is tried while others move it too."""

_TAG = re.compile(r"[a-z0-9][a-z0-9._-]{0,62}")
_MOVE = re.compile(r"[^/]+/(?P<name>[^/]+)/(?P<number>\d{6})\.json")


@dataclass(frozen=True)
class Registry:
    """The jobs registered below one folder or URL."""

    store: ObjectStore

    @staticmethod
    def at(url: str) -> Registry:
        """Return the registry at a folder or URL, which need not exist yet."""
        return Registry(ObjectStore(url))

    @staticmethod
    def existing(url: str) -> Registry:
        """Return the registry at a folder or URL.

        Raises
        ------
        BadInput
            If nothing is there.
        """
        store = ObjectStore(url)
        is_file = store.is_local and Path(store.address).is_file()
        if is_file or not store.exists(""):
            what = "a file, not a folder" if is_file else "nothing is there"
            raise BadInput(
                f"{store.url}: {what}; name the folder of a history, or begin one with "
                "latentscale history add"
            )
        return Registry(store)

    def add(self, entry: Entry) -> bool:
        """Register a job; if it is registered already, change nothing and return False.

        A job that a workflow evaluated is registered with that, and needn't be added by hand.
        """
        evaluated = f"entries/{entry.job}."
        known = any(key.startswith(evaluated) for key in self.store.keys("entries"))
        if self.store.exists(entry.key) or (entry.evaluation is None and known):
            return False
        added = self.store.create(entry.key, dump_entry(entry))
        if added and self._texts("places").get(entry.job, entry.url) != entry.url:
            self._move("places", entry.job, entry.url)
        return added

    def entries(self, name: str | None = None) -> list[Entry]:
        """Return the registered jobs, the one that was in use the longest time ago first.

        Parameters
        ----------
        name : str, optional
            Only jobs of this name or workflow.

        Raises
        ------
        BadInput
            If an entry is damaged.
        """
        keys = [key for key in self.store.keys("entries") if key.endswith(".parquet")]
        read = run_requests(self.store, self._read, keys)
        accepted, rejected = self._texts("accepted"), self._texts("rejected")
        places = self._texts("places")
        evaluated = {entry.job for entry in read if entry.evaluation is not None}
        found = [
            replace(
                entry,
                accepted=accepted.get(entry.job),
                rejected=rejected.get(entry.job),
                url=places.get(entry.job, entry.url),
            )
            for entry in read
            if entry.evaluation is not None or entry.job not in evaluated
        ]
        chosen = [entry for entry in found if name is None or name in (entry.name, entry.workflow)]
        return sorted(chosen, key=lambda entry: (in_use(entry), entry.registered, entry.job))

    def earlier(self, name: str, job: FinishedJob, *, today: bool = False) -> list[JobOfSeries]:
        """Return the jobs of a name or workflow that finished before, and set limits for a job.

        With ``today`` they are all others: a job whose rows come back finished long ago.

        Those are the ones that neither failed nor were rejected, from the last accepted one on. Of
        one that was evaluated several times the last evaluation counts.
        """
        entries = self.entries(name)
        # Of jobs that finished in one second, the order of the registry decides.
        own = next((place for place, entry in enumerate(entries) if entry.job == job.id), None)
        before = [
            entry
            for place, entry in enumerate(entries)
            if entry.job != job.id
            if today
            or not job.finished
            or entry.finished < job.finished
            or (entry.finished == job.finished and (own is None or place < own))
        ]
        return [job_of_series(entry) for entry in limiting(before, name)]

    def move(self, job: str, url: str) -> bool:
        """Tell where a job's folder is; False if that is known already.

        Raises
        ------
        BadInput
            If there is no such job.
        """
        if self._registered(job).url == url:
            return False
        self._move("places", job, url)
        return True

    def tag(self, tag: str, job: str) -> None:
        """Move a tag to a job.

        Raises
        ------
        BadInput
            If there is no such job, or the tag isn't a word of lower-case letters, digits, dots and
            dashes.
        """
        if not _TAG.fullmatch(tag) or tag == LATEST:
            raise BadInput(
                f"{printable(tag)!r} can't be a tag; use lower-case letters, digits, dots and "
                f"dashes, but not {LATEST}"
            )
        self._registered(job)
        self._move("tags", tag, job)

    def accept(self, job: str, reason: str | None = "") -> Entry:
        """Accept that a job changed, because it is wanted; or no longer, with None.

        It may then be a baseline, and only it and the jobs after it set control limits.

        Returns
        -------
        Entry
            The job's.

        Raises
        ------
        BadInput
            If there is no such job.
        """
        return self._judge(job, "accepted", reason, "rejected")

    def reject(self, job: str, reason: str | None = "") -> Entry:
        """Reject a job, whatever its gates said; or no longer, with None.

        It is no baseline and sets no control limits. Returns and raises as :meth:`accept`.
        """
        return self._judge(job, "rejected", reason, "accepted")

    def _judge(self, job: str, word: str, reason: str | None, opposite: str) -> Entry:
        entry = self._registered(job)
        self._move(word, job, reason)
        if reason is not None and job in self._texts(opposite):
            self._move(opposite, job, None)
        return entry

    def _registered(self, job: str) -> Entry:
        entries = {entry.job: entry for entry in self.entries()}
        if job not in entries:
            close = nearest(job, map(printable, entries))
            remedy = close if "did you mean" in close else "; add it with latentscale history add"
            raise BadInput(f"{self.store.url}: no job {printable(job)} here{remedy}")
        return entries[job]

    def _texts(self, word: str) -> dict[str, str]:
        """Return texts about jobs by their ids: why they were accepted, or where they are now."""
        return {job: str(why) for job, why in self._current(word) if why is not None}

    def tags(self) -> dict[str, str]:
        """Return the job of every tag."""
        return {tag: str(job) for tag, job in self._current("tags")}

    def _move(self, folder: str, name: str, to: str | None) -> None:
        """Give a name another value: the next file of its series."""
        for _ in range(MOVES):
            last = max(self._moves(folder).get(name, {0: ""}))
            if self.store.create(f"{folder}/{name}/{last + 1:06d}.json", json.dumps(to).encode()):
                return
        raise Incomplete(
            f"{self.store.url}: other processes are changing {folder}/{name}; try again"
        )

    def _current(self, folder: str) -> Iterator[tuple[str, Any]]:
        """Yield the names of a folder with their values."""
        for name, moves in self._moves(folder).items():
            # A damaged file counts as missing.
            with contextlib.suppress(ValueError, FileNotFoundError):
                yield name, json.loads(self.store.read(moves[max(moves)]))

    def _moves(self, folder: str) -> dict[str, dict[int, str]]:
        moves: dict[str, dict[int, str]] = {}
        for key in self.store.keys(folder):
            match = _MOVE.fullmatch(key)
            if match:
                moves.setdefault(match["name"], {})[int(match["number"])] = key
        return moves

    def _read(self, key: str) -> Entry:
        return load_entry(self.store.read(key), self.store.locate(key))


def pick_baseline(
    registry: Registry,
    rule: str,
    name: str | None = None,
    suits: Callable[[Entry], bool] | None = None,
) -> Entry | None:
    """Return the job that a rule names.

    ``latest`` is the newest job whose gates didn't fail when it was last evaluated, or that was
    accepted, and that wasn't rejected: any other must not become the baseline of the next one. Any
    other rule is a tag.

    Parameters
    ----------
    registry : Registry
        The registry.
    rule : str
        ``latest`` or a tag.
    name : str, optional
        For ``latest``, only jobs of this name or workflow.
    suits : callable, optional
        For ``latest``, says of a job whether it may be one; asked from the newest on.

    Returns
    -------
    Entry or None
        None if ``latest`` finds no job.

    Raises
    ------
    BadInput
        If there is no such tag.
    """
    if rule == LATEST:
        last = reversed(last_evaluations(registry.entries(name), name))
        good = (entry for entry in last if entry.is_usual)
        return next((entry for entry in good if suits is None or suits(entry)), None)
    tags = registry.tags()
    tagged = [entry for entry in registry.entries() if entry.job == tags.get(rule)]
    if not tagged:
        raise BadInput(
            f"{registry.store.url}: no job is tagged {printable(rule)}{_known(list(tags))}"
        )
    return tagged[-1]


def _known(tags: Sequence[str]) -> str:
    return f"; there is {', '.join(tags)}" if tags else "; tag one with latentscale history tag"
