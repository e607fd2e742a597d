"""Read the gates file: limits on a job's scores, absolute or relative to a baseline.

A gate selects scores by any of their fields and sets limits on them:

* ``min``, ``max``: limits on the job's value;
* ``max_drop``, ``max_rise``: limits on the change from the baseline, as a share of the baseline's
  absolute value, or in the score's unit with ``absolute: true``; of samples of equally many rows
  where the corpora differ in size, or the jobs in a scale that each derived;
* ``p_below``: a limit on the p-value with which the score differs from the job's reference or, in
  a job without one, from the baseline. Alone it is a gate on all scores with an expected range.
* ``drift``: limits that the last jobs of a history set. Alone it is a gate on the headline scores.

With ``significant: true`` only violations beyond the uncertainty count: a drop or a rise that is
significant, or a value whose whole bracket is on the wrong side of a limit by more than its
sampling error explains. If a sampling error is unknown, such a gate is refused, because it could
never fail.

A selector given as ``null`` selects the scores without that field: ``label: null`` leaves out the
scores of single labels.

A gate on a score that is null, or that one of the jobs lacks, fails with the reason. With
``severity: warn`` a violation is shown and doesn't fail.
"""

from __future__ import annotations

import itertools
import operator
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, model_validator

from latentscale_pipeline.config.section import (
    InvalidDocument,
    Section,
    nearest,
    parse_yaml,
    validate,
)
from latentscale_pipeline.errors import BadInput
from latentscale_pipeline.measures.registry import MEASURES
from latentscale_pipeline.results.kernel_names import is_kernel
from latentscale_pipeline.views.formatting import format_number, printable

SELECTORS = ("measure", "of", "score", "kernel", "order", "label", "scale", "unit", "better")
"""Fields of a score that a gate may select by, from the most general to the most specific."""


def _text(value: Any) -> Any:
    """Convert a number to text, because YAML reads a label such as ``7`` as a number."""
    if isinstance(value, bool):
        raise ValueError(f"{str(value).lower()} isn't text in YAML; write it in quotes")
    if isinstance(value, float):  # 1.10 has become 1.1
        raise ValueError(f"{value} is a number, which keeps no last zeros; put it in quotes")
    return str(value) if isinstance(value, int) else value


def order_text(value: Any) -> Any:
    """Convert an order to its canonical text, whether it is ``1``, ``1.0`` or ``.inf``."""
    text = value if isinstance(value, float) else _text(value)
    try:
        return repr(float(text)).removesuffix(".0")
    except (TypeError, ValueError):
        return text


EXAMPLES = {"drift": "drift: {} for the usual limits", "p_below": "a number such as p_below: 0.05"}
"""How limits are written that an empty one may have been meant for."""

Text = Annotated[str, BeforeValidator(_text)]
Order = Annotated[str, BeforeValidator(order_text)]
Share = Annotated[float, Field(ge=0.0)]


class Drift(Section):
    """Limits that the earlier jobs of a history set."""

    window: Annotated[int, Field(ge=5, le=1000)] = 14
    """How many of the last jobs set the limits, without those whose gates failed."""
    sigmas: Annotated[float, Field(gt=0.0, le=10.0)] = 3.0
    """How wide the limits are: 3 makes a false alarm in 370 jobs, whatever the number of selected
    scores.
    """


class Gate(Section):
    """Limits on selected scores."""

    measure: Text | None = None
    """Select by measure, named as in the configuration."""
    of: Literal["corpus", "reference", "pair"] | None = None
    """Select by corpus, reference or the pair of both."""
    score: Text | None = None
    """Select by the score's name, such as `imd` or `area`."""
    kernel: Text | None = None
    """Select by kernel, with its bandwidth (`rbf median`) or with any bandwidth (`rbf`); `null`
    selects the scores that have none. So do the other selectors.
    """
    order: Order | None = None
    """Select by order."""
    label: Text | None = None
    """Select by label; `null` selects the scores of all rows, without those of single labels."""
    scale: float | None = None
    """Select by scale."""
    unit: Text | None = None
    """Select by unit."""
    better: Literal["high", "low", "none"] | None = None
    """Select by which direction is better."""
    max_drop: Share | None = None
    """How far a value may fall below the baseline's, as a share of it."""
    max_rise: Share | None = None
    """How far a value may rise above the baseline's, as a share of it."""
    min: float | None = None
    """Smallest value allowed."""
    max: float | None = None
    """Largest value allowed."""
    p_below: Annotated[float, Field(gt=0.0, lt=1.0)] | None = None
    """Fails if a score differs from what is expected of the source of the reference, or of the
    baseline in a job without a reference, with a p-value below this; adjusted for the number of
    selected scores (Holm).
    """
    drift: Drift | None = None
    """Fails if a score lies outside of the limits that the last jobs of the history set."""
    absolute: bool = False
    """Whether max_drop and max_rise are in the score's own unit."""
    significant: bool = False
    """Whether only violations beyond the uncertainty count."""
    severity: Literal["warn", "fail"] = "fail"
    """Whether a violation fails, or is only shown."""

    @model_validator(mode="after")
    def _meaningful(self) -> Gate:
        for name in ("drift", "p_below"):
            if name in self.model_fields_set and getattr(self, name) is None:
                raise ValueError(f"{name} is empty; write {EXAMPLES[name]}")
        changes = (self.max_drop, self.max_rise)
        if not self.selectors and self.p_below is None and self.drift is None:
            raise ValueError(f"it selects no score; name one of {', '.join(SELECTORS)}")
        others = (*changes, self.min, self.max)
        if all(limit is None for limit in (*others, self.p_below, self.drift)):
            raise ValueError(
                "it sets no limit; name one of max_drop, max_rise, min, max, p_below, drift"
            )
        if not self.selectors and any(limit is not None for limit in others):
            raise ValueError(
                "only p_below and drift can do without a selection; name one of "
                f"{', '.join(SELECTORS)}"
            )
        if self.significant and all(limit is None for limit in others):
            raise ValueError(
                "significant says how other limits count; p_below and drift say it themselves"
            )
        if self.absolute and all(limit is None for limit in changes):
            raise ValueError("absolute says how max_drop and max_rise count; it has neither")
        if self.max_drop is not None and self.max_drop > 1 and not self.absolute:
            raise ValueError(
                f"a drop is a share of the baseline and max_drop {self.max_drop:g} is more than "
                "all of it; write 0.1 for 10 %, or add absolute: true"
            )
        if self.min is not None and self.max is not None and self.min > self.max:
            raise ValueError("min is above max")
        return self

    @property
    def selectors(self) -> dict[str, Any]:
        """Return the fields that it selects by, with the required values, or None for absent."""
        chosen = ((name, getattr(self, name)) for name in SELECTORS)
        return {name: value for name, value in chosen if name in self.model_fields_set}

    @property
    def fields(self) -> dict[str, Any]:
        """Return what its file says, without what is the default."""
        stated = {**self.model_dump(exclude_defaults=True), **self.selectors}
        if self.drift is not None:
            stated["drift"] = self.drift.model_dump()
        return {name: stated[name] for name in type(self).model_fields if name in stated}

    def __str__(self) -> str:
        return " ".join(f"{name}={format_field(value)}" for name, value in self.fields.items())


def read_gates(text: str, where: str) -> tuple[Gate, ...]:
    """Parse and check a gates file.

    Raises
    ------
    BadInput
        If the file has mistakes. A line for each names the gate, what is wrong, and the nearest
        known name.
    """
    document = parse_yaml(text, where)
    document = document if isinstance(document, dict) else {}
    gates = document.pop("gates", None)
    if document:
        raise BadInput(f"{where}: {printable(next(iter(document)))} is unknown; it can be gates")
    if not isinstance(gates, list) or not gates:
        raise BadInput(
            f"{where}: no gates here; write a list such as "
            "gates: [{score: recall, max_drop: 0.1}]"
        )
    return gates_of(gates, where)


def gates_of(gates: Sequence[Any], where: str) -> tuple[Gate, ...]:
    """Check gates that have been parsed already, as :func:`read_gates` does."""
    known: list[Gate] = []
    mistakes: list[str] = []
    for position, gate in enumerate(gates):
        place = f"gates.{position}"
        if not isinstance(gate, dict):
            mistakes.append(f"{place}: a gate is a mapping such as score: recall")
            continue
        try:
            known.append(validate(Gate, gate, where, place))
        except InvalidDocument as error:
            mistakes += error.mistakes
    if mistakes:
        raise InvalidDocument(where, mistakes)
    return tuple(known)


def check_names(
    gates: Sequence[Gate],
    where: str,
    *,
    measured: Mapping[str, Any],
    reference: bool,
    baseline: bool,
) -> None:
    """Check what can be known of gates before a job is run.

    Parameters
    ----------
    gates : sequence of Gate
        The gates.
    where : str
        Their file, for messages.
    measured : mapping
        The sections of the job's measures, by their names.
    reference, baseline : bool
        Whether the job has one.

    Raises
    ------
    BadInput
        If a gate names a measure that the job doesn't have, or a score, kernel or order that its
        measure doesn't have, or has ``p_below``, ``max_drop`` or ``max_rise`` with nothing to
        compare with.
    """
    for position, gate in enumerate(gates):
        place = f"{where}: gates.{position}"
        if gate.p_below is not None and not (reference or baseline):
            raise BadInput(f"{place} has p_below, and there is neither a reference nor a baseline")
        if not baseline and not (gate.max_drop is gate.max_rise is None):
            name = "max_rise" if gate.max_drop is None else "max_drop"
            raise BadInput(f"{place} has {name}, and there is no baseline; use min and max")
        if gate.measure is not None and gate.measure not in measured:
            raise BadInput(
                f"{place}: the job doesn't measure {printable(gate.measure)}"
                f"{nearest(gate.measure, measured)}"
            )
        names = [gate.measure] if gate.measure is not None else list(measured)
        if all(name in MEASURES for name in names):
            having = _having(gate, names, place)
            _check_settings(gate, place, {name: measured[name] for name in having})


def _having(gate: Gate, measures: Sequence[str], place: str) -> list[str]:
    """Return which of some measures have the score that a gate names."""
    scores = {name: MEASURES[name].report.scores for name in measures}
    if gate.score is None or not any(scores.values()):
        return list(measures)
    having = [name for name, known in scores.items() if gate.score in known]
    if not having:
        raise BadInput(
            f"{place}: {gate.measure or 'the job'} has no score {printable(gate.score)}"
            f"{nearest(gate.score, dict.fromkeys(itertools.chain(*scores.values())))}"
        )
    return having


def _check_settings(gate: Gate, place: str, sections: Mapping[str, Any]) -> None:
    """Check the kernel and the order of a gate, where all measures know theirs."""
    selectable = [MEASURES[name].selectable(section) for name, section in sections.items()]
    for name in ("kernel", "order"):
        wanted = gate.selectors.get(name)
        if wanted is None or not all(name in known for known in selectable):
            continue
        choices = list(dict.fromkeys(itertools.chain(*(known[name] for known in selectable))))
        matches = is_kernel if name == "kernel" else operator.eq
        if not any(matches(choice, wanted) for choice in choices):
            raise BadInput(
                f"{place}: {gate.measure or gate.score or 'the job'} has no {name} "
                f"{printable(wanted)} in this job{nearest(wanted, choices)}"
            )


def format_field(value: Any) -> str:
    """Format a field of a gate as in the gates file."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, dict):
        return "{" + ", ".join(f"{name}: {format_field(own)}" for name, own in value.items()) + "}"
    return format_number(value, 6) if isinstance(value, float) else printable(value)
