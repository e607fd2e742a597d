"""Many corpora: the scores of every two of them as matrices, and which are near each other.

A score becomes a matrix if its measure calls it a distance or a similarity. If it depends on which
corpus comes first, the two directions have different values. Corpora are joined by average linkage
(Sokal & Michener 1958): the two groups whose mean distance is the smallest become one, until one is
left.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from latentscale.array_types import Float64Array
from latentscale_pipeline.compare.comparability import use_weights
from latentscale_pipeline.corpus.formats.text import format_csv_line
from latentscale_pipeline.measures.finished_job import FinishedJob
from latentscale_pipeline.report.scores import full_title, report_of
from latentscale_pipeline.results.definitions import ScoreDefinition
from latentscale_pipeline.results.model import Score

MATRIX_SCHEMA = "latentscale.matrix/1"

Places = tuple[int, int]
"""The places of two corpora: the corpus and the reference of a job."""


@dataclass(frozen=True)
class Merge:
    """Two groups of corpora that become one.

    Attributes
    ----------
    first, second : int
        Groups: a corpus by its place or, from n on, the group of an earlier merge.
    height : float
        Their mean distance.
    """

    first: int
    second: int
    height: float


@dataclass(frozen=True)
class ScoreMatrix:
    """A score of every two corpora.

    Attributes
    ----------
    title, measure, score : str
        Its name, its measure, and the name of the score there.
    relation : str
        ``distance``, or ``similarity`` of at most 1.
    scores : mapping
        The scores, by places; they may have no value. If the order of two corpora matters, those
        of both orders are there.
    n : int
        Number of corpora.
    """

    title: str
    measure: str
    score: str
    relation: Literal["distance", "similarity"]
    scores: Mapping[Places, Score]
    n: int

    @property
    def directed(self) -> bool:
        """Whether it matters which of two corpora comes first."""
        return any(one > other for one, other in self.scores)

    @property
    def values(self) -> Float64Array:
        """The values, shape (n, n): of the row's corpus, with the column's as its reference.

        They are NaN on the diagonal and where there is none.
        """
        values = np.full((self.n, self.n), np.nan)
        for (one, other), score in self.scores.items():
            if score.value is not None:
                values[one, other] = score.value
        return values if self.directed else np.where(np.isnan(values), values.T, values)

    @property
    def distances(self) -> Float64Array:
        """Distances, shape (n, n), 0 on the diagonal.

        Of a similarity it is one minus that. Values below 0 are 0, and those of both directions
        become their mean.
        """
        values = self.values if self.relation == "distance" else 1.0 - self.values
        values = np.maximum((values + values.T) / 2.0, 0.0)
        np.fill_diagonal(values, 0.0)
        return values

    def merges(self) -> list[Merge]:
        """Join the corpora by average linkage; empty if a value is missing."""
        distances = self.distances
        if not np.isfinite(distances).all():
            return []
        from scipy.cluster.hierarchy import linkage
        from scipy.spatial.distance import squareform

        joined = linkage(squareform(distances, checks=False), "average", optimal_ordering=True)
        return [Merge(int(one), int(other), float(at)) for one, other, at, _ in joined]

    def order(self) -> list[int]:
        """Return the places of the corpora, near ones beside each other."""
        groups = [[place] for place in range(self.n)]
        for merge in self.merges():
            groups.append(groups[merge.first] + groups[merge.second])
        return groups[-1] if len(groups[-1]) == self.n else list(range(self.n))


@dataclass(frozen=True)
class Matrix:
    """The scores of many corpora.

    Attributes
    ----------
    names : sequence of str
        The corpora.
    jobs : mapping
        The finished job of every two, by their places.
    """

    names: Sequence[str]
    jobs: Mapping[Places, FinishedJob]

    def sizes(self) -> list[int]:
        """Return the numbers of rows of the corpora that are known."""
        rows = dict[int, int]()
        for (one, other), job in self.jobs.items():
            found = job.corpora
            rows[one] = found["corpus"].n
            if "reference" in found:
                rows[other] = found["reference"].n
        return [rows[place] for place in sorted(rows)]

    def weighted(self) -> dict[str, bool]:
        """Return whether scores of each corpus use weights of its rows, by its name."""
        found = dict[int, bool]()
        for (one, other), job in self.jobs.items():
            for role, corpus in job.corpora.items():
                place = one if role == "corpus" else other
                found[place] = use_weights(job) and bool(corpus.weighted)
        return {self.names[place]: found[place] for place in sorted(found)}

    def matrices(self) -> list[ScoreMatrix]:
        """Return the matrix of every distance and similarity, in the order of the jobs' scores."""
        found: dict[str, dict[Places, Score]] = {}
        for places, job in self.jobs.items():
            for score in job.scores:
                definition = _definition(score)
                if score.of == "pair" and score.label is None and definition.relation:
                    of_title = found.setdefault(full_title(score), {})
                    of_title[places] = score
                    exchanged = _exchanged(job, score)
                    if exchanged is not None:
                        of_title[places[1], places[0]] = exchanged
        made = []
        for title, scores in found.items():
            first = next(iter(scores.values()))
            relation = _definition(first).relation
            if relation:
                made.append(
                    ScoreMatrix(
                        title, first.measure, first.score, relation, scores, len(self.names)
                    )
                )
        return made

    def alone(self) -> dict[str, list[Score | None]]:
        """Return the headline scores of each corpus by itself, by title, in the order of names."""
        found: dict[str, list[Score | None]] = {}
        for place in range(len(self.names)):
            for score in self._of(place):
                row = found.setdefault(full_title(score), [None] * len(self.names))
                row[place] = score
        return found

    def _of(self, place: int) -> Iterator[Score]:
        last = len(self.names) - 1
        places = (place, last) if place < last else (0, last)
        of = "corpus" if place < last else "reference"
        for score in self.jobs[places].scores:
            if (
                score.of == of
                and score.label is None
                and report_of(score.measure).is_headline(score)
            ):
                yield score

    def document(self) -> dict[str, Any]:
        """Return the matrices as JSON values."""
        alone = self.alone()
        return {
            "schema": MATRIX_SCHEMA,
            "names": list(self.names),
            "corpora": [
                {
                    "name": name,
                    "scores": {
                        title: None if scores[place] is None else _described(scores[place])
                        for title, scores in alone.items()
                    },
                }
                for place, name in enumerate(self.names)
            ],
            "jobs": [
                {"corpus": self.names[one], "reference": self.names[other], "job": job.url}
                for (one, other), job in self.jobs.items()
            ],
            "matrices": [
                {
                    "title": matrix.title,
                    "measure": matrix.measure,
                    "score": matrix.score,
                    "relation": matrix.relation,
                    "directed": matrix.directed,
                    "values": _listed(matrix.values),
                    "order": matrix.order(),
                    "merges": [
                        [merge.first, merge.second, merge.height] for merge in matrix.merges()
                    ],
                }
                for matrix in self.matrices()
            ],
        }


def format_json(matrix: Matrix) -> str:
    """Return the matrices as a JSON document."""
    return json.dumps(matrix.document(), indent=1, allow_nan=False) + "\n"


def format_csv(matrix: Matrix) -> str:
    """Return all scores of every two corpora as CSV, a row each."""
    names = ("corpus", "reference", "measure", "score", "title")
    numbers = ("value", "lower", "upper", "bounds", "sampling_error")
    lines = [format_csv_line((*names, *numbers, "reason"))]
    for (one, other), job in matrix.jobs.items():
        for score in job.scores:
            if score.of == "pair" and score.label is None:
                said = (score.measure, score.score, full_title(score))
                found = (getattr(score, name) for name in numbers)
                where = (matrix.names[one], matrix.names[other])
                lines.append(format_csv_line((*where, *said, *found, score.reason)))
    return "".join(lines)


def _definition(score: Score) -> ScoreDefinition:
    return report_of(score.measure).scores.get(score.score, ScoreDefinition(score.score, ""))


def _exchanged(job: FinishedJob, score: Score) -> Score | None:
    """Return what a score would be with the corpora exchanged, if that is another score."""
    wanted = (score.measure, _definition(score).exchanged, "pair", None)
    return next((s for s in job.scores if (s.measure, s.score, s.of, s.label) == wanted), None)


def _described(score: Score | None) -> dict[str, Any] | None:
    if score is None:
        return None
    return {name: getattr(score, name) for name in ("value", "lower", "upper", "sampling_error")}


def _listed(values: Float64Array) -> list[list[float | None]]:
    return [[value if np.isfinite(value) else None for value in row] for row in values.tolist()]
