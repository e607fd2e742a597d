"""What scores are: each is declared once, with its name, meaning, unit and limits."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal

from latentscale.estimate import Estimate, Scored
from latentscale_pipeline.results.model import ErrorMethod, Score


@dataclass(frozen=True, slots=True)
class Definition:
    """A term and what it means."""

    title: str
    sentence: str


@dataclass(frozen=True, slots=True)
class ScoreDefinition(Definition):
    """A score of a measure. Settings may decide its unit, and whether it depends on the size.

    Attributes
    ----------
    title, sentence : str
        Its name in reports, and what it means.
    unit, better : str
        Unit of the number, and whether high or low values are better, or neither.
    headline : bool
        Whether it stands in summaries.
    least, most : float or None
        Its limits, if it has some.
    size_dependent : bool
        Whether it depends on the number of rows.
    grows_with_rows : bool
        Whether it is expected to grow with the number of rows, and at most in proportion to it.
    averages_rows : bool
        Whether it is an average over rows, so that samples of fewer rows tell its sampling error.
    relation : {"", "distance", "similarity"}
        What a score of two corpora is, if it tells how near they are: a distance, or a similarity
        of at most 1. It doesn't depend on which of them comes first, unless ``exchanged`` names
        another score.
    exchanged : str
        The score that this one becomes if corpus and reference are exchanged.
    resolution : float
        Relative difference up to which two values count as equal, whatever their errors.
    error_method : {"", "jackknife", "counts", "samples"}
        Where its sampling errors come from, see ``ErrorMethod``.
    error_freedom : int
        Least degrees of freedom of its sampling errors; 0 if they differ.
    unusual_only : bool
        Whether a job has it only for its least usual labels, so that the jobs of a series have it
        for different ones.
    measure, name : str
        The measure, and the name among its scores; :func:`define_scores` sets them.
    """

    unit: str = ""
    better: Literal["high", "low", "none"] = "none"
    headline: bool = False
    least: float | None = None
    most: float | None = None
    size_dependent: bool = True
    grows_with_rows: bool = False
    averages_rows: bool = False
    relation: Literal["", "distance", "similarity"] = ""
    exchanged: str = ""
    resolution: float = 0.0
    error_method: ErrorMethod | Literal[""] = ""
    error_freedom: int = 0
    unusual_only: bool = False
    measure: str = ""
    name: str = ""

    def score(
        self,
        found: Estimate | Scored | None,
        of: Literal["corpus", "reference", "pair"],
        **fields: Any,
    ) -> Score:
        """Return a row of ``scores``. Without a number, give a ``reason``.

        Parameters
        ----------
        found : Estimate, Scored or None
            The number and its bracket, with its sampling error if that is known.
        of : {"corpus", "reference", "pair"}
            What the number describes.
        **fields
            Further fields of a score, such as ``kernel``, ``reason`` and ``sampling_error``; also
            a unit, a dependence on size or degrees of freedom that settings or rows decide.
        """
        declared: dict[str, Any] = {
            "measure": self.measure,
            "score": self.name,
            "unit": self.unit,
            "better": self.better,
            "size_dependent": self.size_dependent,
        }
        if isinstance(found, Scored):
            declared["sampling_error"], found = found.sampling_error, found.estimate
        declared |= fields
        freedom = declared.pop("sampling_freedom", None) or self.error_freedom or None
        if self.error_method and declared.get("sampling_error") is not None:
            declared |= {"sampling_method": self.error_method, "sampling_freedom": freedom}
        return Score.from_estimate(found, of=of, **declared)


def define_scores(
    measure: str, definitions: Mapping[str, ScoreDefinition]
) -> Mapping[str, ScoreDefinition]:
    """Return the definitions with their measure and name filled in."""
    return {
        name: replace(definition, measure=measure, name=name)
        for name, definition in definitions.items()
    }
