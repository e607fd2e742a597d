"""The return values of the functions that measure arrays, with a display for notebooks."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from html import escape
from typing import Any

import numpy as np

from latentscale.array_types import Float64Array, Int64Array
from latentscale.estimate import Estimate
from latentscale.vendi.scores import order_name
from latentscale_pipeline.corpus.diversity import Retained
from latentscale_pipeline.views.figure import Curve, Panel
from latentscale_pipeline.views.formatting import format_number
from latentscale_pipeline.views.scores import format_p
from latentscale_pipeline.views.svg import draw_panels


class Tabular(ABC):
    """What can be a table."""

    @abstractmethod
    def records(self) -> list[dict[str, Any]]:
        """Return one flat mapping per row of the table."""

    def to_pandas(self) -> Any:
        """Return :meth:`records` as a pandas DataFrame.

        Raises
        ------
        ImportError
            If pandas isn't installed.
        """
        return data_frame(self.records())


class Findings(Tabular):
    """The display of a title, a few lines and, in a notebook, a picture."""

    @property
    @abstractmethod
    def title(self) -> str:
        """Return a heading that says what was measured."""

    @property
    @abstractmethod
    def lines(self) -> list[tuple[str, str]]:
        """Return names with their texts."""

    @abstractmethod
    def records(self) -> list[dict[str, Any]]:
        """Return one flat mapping per number: what it is, its value, its bracket, its method."""

    def picture(self) -> str:
        """Return an SVG picture to show below the lines; empty if there is none."""
        return ""

    def __eq__(self, other: object) -> bool:
        if not (isinstance(other, Findings) and type(self) is type(other)):
            return NotImplemented
        pairs = zip(vars(self).values(), vars(other).values(), strict=True)
        return all(np.array_equal(own, its) for own, its in pairs)

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        width = max(len(name) for name, _ in self.lines)
        return "\n".join([self.title, *(f"  {name:<{width}}  {text}" for name, text in self.lines)])

    def _repr_html_(self) -> str:
        return draw_table(self.title, self.lines) + self.picture()


@dataclass(frozen=True, repr=False, eq=False)
class VendiFindings(Findings):
    """Vendi scores of one kernel.

    Attributes
    ----------
    kernel : str
        Its name.
    bandwidth : float or None
        Bandwidth in units of the Euclidean distance.
    rows : int
        Number of rows, which no score can exceed.
    scores : mapping of str to Estimate
        Scores by order, such as ``"0.5"``, ``"1"``, ``"inf"``; in effective items.
    """

    kernel: str
    bandwidth: float | None
    rows: int
    scores: Mapping[str, Estimate]

    def __getitem__(self, order: float | str) -> Estimate:
        """Return the score of an order, given as a number or as a key of ``scores``."""
        name = order if isinstance(order, str) else order_name(order)
        if name not in self.scores:
            raise KeyError(f"order {name} wasn't computed; there are {', '.join(self.scores)}")
        return self.scores[name]

    def __iter__(self) -> Iterator[str]:
        """Iterate over the orders."""
        return iter(self.scores)

    def __len__(self) -> int:
        """Return the number of orders."""
        return len(self.scores)

    @property
    def title(self) -> str:
        """Return a heading that says what was measured."""
        width = "" if self.bandwidth is None else f" of bandwidth {self.bandwidth:.4g}"
        return f"Vendi scores of {self.rows:,} rows, {self.kernel} kernel{width}"

    @property
    def lines(self) -> list[tuple[str, str]]:
        """Return one line per order."""
        return [(f"order {order}", written(found)) for order, found in self.scores.items()]

    def records(self) -> list[dict[str, Any]]:
        """Return one mapping per order."""
        return [{"order": order, **asdict(found)} for order, found in self.scores.items()]

    def picture(self) -> str:
        """Draw the scores by order with their brackets."""
        names = sorted(self.scores, key=float)
        found = [self.scores[name] for name in names]
        curve = Curve(
            "",
            range(len(names)),
            [score.value for score in found],
            [score.lower for score in found],
            [score.upper for score in found],
            points=True,
        )
        places = ["∞" if name == "inf" else name for name in names]
        return draw_panels([Panel("", "order", "effective items", [curve], places=places)])


@dataclass(frozen=True, repr=False, eq=False)
class MmdFindings(Findings):
    """The maximum mean discrepancy of two sets of rows, and a test of it.

    Attributes
    ----------
    kernel : str
        Its name.
    bandwidth : float or None
        Bandwidth in units of the Euclidean distance.
    rows : tuple of int
        Number of rows of each set that were compared.
    discrepancy : Estimate
        MMD², unbiased: around 0 if both sets come from one distribution.
    sampling_error : float
        Standard error over fresh samples of both.
    p : float
        How often random divisions of the rows differ at least as much.
    expected : tuple of float
        The range in which it lies 95 times in 100 if both sets come from one distribution.
    """

    kernel: str
    bandwidth: float | None
    rows: tuple[int, int]
    discrepancy: Estimate
    sampling_error: float
    p: float
    expected: tuple[float, float]

    @property
    def title(self) -> str:
        """Return a heading that says what was measured."""
        width = "" if self.bandwidth is None else f" of bandwidth {self.bandwidth:.4g}"
        ours, theirs = self.rows
        return f"Two-sample test of {ours:,} and {theirs:,} rows, {self.kernel} kernel{width}"

    @property
    def lines(self) -> list[tuple[str, str]]:
        """Return the discrepancy and its p-value."""
        error, (lower, upper) = self.sampling_error, self.expected
        return [
            ("MMD²", f"{format_number(self.discrepancy.value, 3)} ± {format_number(error, 2)}"),
            (
                "expected",
                f"{format_number(lower, 3)} to {format_number(upper, 3)} if alike",
            ),
            ("p", format_p(self.p)),
        ]

    def records(self) -> list[dict[str, Any]]:
        """Return one mapping."""
        found = asdict(self.discrepancy)
        del found["standard_error"]
        return [{"score": "mmd", "sampling_error": self.sampling_error, "p": self.p, **found}]


@dataclass(frozen=True, repr=False, eq=False)
class DiverseRows(Findings):
    """Rows that were chosen because they are unlike each other, or because they cover all.

    Attributes
    ----------
    numbers : ndarray of int64, shape (k,)
        Their numbers, ascending: ``rows[found.numbers]`` are the rows.
    of : int
        Number of rows that they were chosen from.
    metric : str
        How the radius is measured.
    retained, by_random_rows : Retained
        The effective number of the chosen rows (cosine, order 2) and the radius within which every
        row has one of them; the same of equally many random rows.
    """

    numbers: Int64Array
    of: int
    metric: str
    retained: Retained
    by_random_rows: Retained

    @property
    def title(self) -> str:
        """Return a heading that says what was chosen."""
        return f"{len(self.numbers):,} of {self.of:,} rows, and as many random ones"

    @property
    def lines(self) -> list[tuple[str, str]]:
        """Return what both retain of all rows."""
        both = (self.retained, self.by_random_rows)
        numbers = [format_number(one.effective_number, 4) for one in both]
        radii = [format_number(one.radius, 3) for one in both]
        return [
            ("effective number", ", random ".join(numbers)),
            ("every row within", f"{', random '.join(radii)} ({self.metric})"),
        ]

    def records(self) -> list[dict[str, Any]]:
        """Return one mapping for the chosen rows, and one for the random ones."""
        both = {"chosen": self.retained, "random": self.by_random_rows}
        return [{"rows": name, **asdict(retained)} for name, retained in both.items()]


@dataclass(frozen=True, repr=False, eq=False)
class MagnitudeFindings(Findings):
    """The magnitude function of a set of rows.

    Attributes
    ----------
    scales : ndarray of float64, shape (s,)
        Scales in units of 1/distance.
    estimates : tuple of Estimate
        The magnitude at each scale, in effective points.
    rows, points : int
        Number of rows, and of distinct rows.
    convergence_scale : Estimate or None
        The scale at which the function has nearly reached its limit; None if no scale does, for
        example with a single distinct row.
    area : Estimate
        The area under the function over the scales, by the trapezium rule.
    trapezium_error : float or None
        How far the rule on every second scale is from the area. None with fewer than three scales.
    weights : ndarray of float64, shape (n,), or None
        The weight of every row at the largest scale; None if only subsets were computed.
    """

    scales: Float64Array
    estimates: tuple[Estimate, ...]
    rows: int
    points: int
    convergence_scale: Estimate | None
    area: Estimate
    trapezium_error: float | None
    weights: Float64Array | None

    @property
    def value(self) -> Float64Array:
        """Return the magnitude at each scale, shape (s,)."""
        return np.array([found.value for found in self.estimates])

    @property
    def title(self) -> str:
        """Return a heading that says what was measured."""
        return f"Magnitude of {self.rows:,} rows ({self.points:,} distinct)"

    @property
    def lines(self) -> list[tuple[str, str]]:
        """Return the convergence scale, the area and the last value."""
        scale = self.convergence_scale
        return [
            ("convergence scale", written(scale) if scale else "none"),
            ("area", written(self.area)),
            (f"at scale {self.scales[-1]:.4g}", written(self.estimates[-1])),
        ]

    def records(self) -> list[dict[str, Any]]:
        """Return one mapping per scale."""
        return [
            {"scale": scale, **asdict(found)}
            for scale, found in zip(self.scales.tolist(), self.estimates, strict=True)
        ]

    def picture(self) -> str:
        """Draw the function with its bracket."""
        lower = np.array([found.lower for found in self.estimates])
        upper = np.array([found.upper for found in self.estimates])
        curve = Curve("", self.scales, self.value, lower, upper)
        return draw_panels([Panel("", "scale", "effective points", [curve])])


@dataclass(frozen=True, repr=False, eq=False)
class HeatTraceFindings(Findings):
    """The heat trace of a graph of nearest neighbours.

    Attributes
    ----------
    times, trace, lower, upper : ndarray of float64, shape (T,)
        Diffusion times, the normalised trace, and its bracket.
    bounds : str
        The kind of the bracket.
    normalization : str
        The null model that the trace is divided by.
    probes, steps : int
        Number of random probes, and of Lanczos steps per probe; 0 if all eigenvalues were computed.
    graph : mapping
        Edges, components, isolated vertices, and the recall of its neighbours.
    """

    times: Float64Array
    trace: Float64Array
    lower: Float64Array
    upper: Float64Array
    bounds: str
    normalization: str
    probes: int
    steps: int
    graph: Mapping[str, Any]

    @property
    def title(self) -> str:
        """Return a heading that says what was measured."""
        return f"Heat trace, normalised by {self.normalization}, of {self.graph['edges']:,} edges"

    @property
    def lines(self) -> list[tuple[str, str]]:
        """Return the trace at three times, and properties of the graph."""
        count = len(self.times)
        chosen = dict.fromkeys([0, count // 2, count - 1])
        found = [
            (
                f"t = {self.times[i]:.3g}",
                format_bracket(self.trace[i], self.lower[i], self.upper[i], self.bounds),
            )
            for i in chosen
        ]
        recall = self.graph["recall"]
        return [
            *found,
            ("components", f"{self.graph['components']:,}, {self.graph['isolated']:,} isolated"),
            ("recall", f"{recall['value']:.4g} [{recall['lower']:.4g}, {recall['upper']:.4g}]"),
        ]

    def records(self) -> list[dict[str, Any]]:
        """Return one mapping per time."""
        columns = (self.times, self.trace, self.lower, self.upper)
        return [
            {"time": time, "value": value, "lower": lower, "upper": upper, "bounds": self.bounds}
            for time, value, lower, upper in zip(*(c.tolist() for c in columns), strict=True)
        ]

    def picture(self) -> str:
        """Draw the trace over time."""
        curve = Curve("", self.times, self.trace, self.lower, self.upper)
        return draw_panels([Panel("", "diffusion time t", "heat trace", [curve], log_x=True)])


@dataclass(frozen=True, repr=False, eq=False)
class ImdFindings(Findings):
    """The intrinsic multi-scale distance of two sets of rows.

    Attributes
    ----------
    distance : Estimate
        The distance in units of the normalisation. Its bracket excludes the sampling error.
    time : float
        Diffusion time at which the two traces differ most.
    normalization : str
        The null model that the traces are divided by.
    unnormalized : Estimate
        The distance of the traces without normalisation, as in the paper.
    """

    distance: Estimate
    time: float
    normalization: str
    unnormalized: Estimate

    @property
    def title(self) -> str:
        """Return a heading that says what was measured."""
        return f"IMD, traces normalised by {self.normalization}"

    @property
    def lines(self) -> list[tuple[str, str]]:
        """Return the distance in both units, and the time at which it is attained."""
        return [
            ("distance", written(self.distance)),
            ("attained at", f"t = {self.time:.3g}"),
            ("unnormalised", written(self.unnormalized)),
        ]

    def records(self) -> list[dict[str, Any]]:
        """Return the distance in both units."""
        found = {"distance": self.distance, "unnormalized": self.unnormalized}
        return [{"score": name, **asdict(value)} for name, value in found.items()]


@dataclass(frozen=True, repr=False, eq=False)
class GeomcaFindings(Findings):
    """The components of the joint graph of a reference and a set of rows.

    Attributes
    ----------
    epsilon, delta : float
        Distance below which rows are joined, and distance of the thinning.
    scores : mapping of str to Estimate
        ``precision``, ``recall``, ``consistency``, ``quality`` of thinned rows, and
        ``precision_rows``, ``recall_rows`` of all rows, as fractions.
    sizes : mapping of str to int
        Number of rows of both sides before and after thinning.
    components : tuple of mapping
        Rank, size, rows of both sides, consistency, quality and edges of the 200 largest.
    component_count : int
        Number of components.
    reference_membership, membership : ndarray of int64, shape (n,) and (m,)
        Rank of each row's component, for the reference and for the set; -1 for rows that weren't
        drawn where the budget allows random rows only.
    """

    epsilon: float
    delta: float
    scores: Mapping[str, Estimate]
    sizes: Mapping[str, int]
    components: tuple[Mapping[str, Any], ...]
    component_count: int
    reference_membership: Int64Array
    membership: Int64Array

    @property
    def title(self) -> str:
        """Return a heading that says what was measured."""
        sides = {"corpus": self.membership, "reference": self.reference_membership}
        drawn = [f"{self.sizes[role]:,}" for role in sides]
        if any((ranks < 0).any() for ranks in sides.values()):
            drawn = [f"{self.sizes[role]:,} of {len(ranks):,}" for role, ranks in sides.items()]
        return f"GeomCA of {drawn[0]} rows against {drawn[1]}, epsilon {self.epsilon:.4g}"

    @property
    def lines(self) -> list[tuple[str, str]]:
        """Return the scores, and the number of components."""
        found = [(name.replace("_", " of "), written(value)) for name, value in self.scores.items()]
        return [*found, ("components", f"{self.component_count:,}")]

    def records(self) -> list[dict[str, Any]]:
        """Return one mapping per score."""
        return [{"score": name, **asdict(found)} for name, found in self.scores.items()]


def written(found: Estimate) -> str:
    """Format an estimate."""
    return format_bracket(found.value, found.lower, found.upper, found.bounds)


def format_bracket(value: float, lower: float, upper: float, bounds: str) -> str:
    """Format a number with its bracket, unless the digits shown are the same."""
    shown, low, high = (f"{end:.6g}" for end in (value, lower, upper))
    bracket = "" if low == shown == high else f"[{low}, {high}] "
    return f"{shown} {bracket}{bounds}"


def data_frame(records: list[dict[str, Any]], columns: list[str] | None = None) -> Any:
    """Return records as a pandas DataFrame.

    Raises
    ------
    ImportError
        If pandas isn't installed.
    """
    try:
        import pandas
    except ImportError:
        raise ImportError(
            "to_pandas needs pandas: pip install pandas; records() gives the same without it"
        ) from None
    return pandas.DataFrame.from_records(records, columns=columns)


def draw_table(title: str, lines: Sequence[tuple[str, ...]], columns: Sequence[str] = ()) -> str:
    """Return an HTML table of names and their texts, below the names of the columns, if any."""
    left = 'style="text-align:left"'
    head = "".join(f'<th scope="col" {left}>{escape(name)}</th>' for name in columns)
    rows = "".join(
        f'<tr><th scope="row" {left}>{escape(name)}</th>'
        + "".join(f"<td {left}>{escape(text)}</td>" for text in texts)
        + "</tr>"
        for name, *texts in lines
    )
    heading = f"<thead><tr>{head}</tr></thead>" if head else ""
    return f"<table><caption>{escape(title)}</caption>{heading}<tbody>{rows}</tbody></table>"
