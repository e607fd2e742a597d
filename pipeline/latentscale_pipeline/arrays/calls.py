"""Turning a call with arrays into a job, and its results into values."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from latentscale import Estimate
from latentscale_pipeline.arrays.findings import (
    GeomcaFindings,
    HeatTraceFindings,
    ImdFindings,
    MagnitudeFindings,
    VendiFindings,
)
from latentscale_pipeline.corpus import ingest
from latentscale_pipeline.errors import BadInput
from latentscale_pipeline.job.config import read_config
from latentscale_pipeline.plan import comparing_measures, make_plan, measure_sections
from latentscale_pipeline.run import run_job

ORDERS = (0.1, 0.5, 1.0, 2.0, float("inf"))


def vendi_score(
    rows: ArrayLike,
    *,
    kernel: str = "cosine",
    bandwidth: float | str | None = None,
    orders: Sequence[float] = ORDERS,
    weights: ArrayLike | None = None,
    method: str = "auto",
    seed: int = 0,
) -> VendiFindings:
    """Vendi scores: how many effectively dissimilar rows there are.

    Friedman & Dieng (2023) for order 1, Pasarkar & Dieng (2024) for the others: small orders count
    rare rows as much as common ones, large orders only the common ones.

    Parameters
    ----------
    rows : array_like, shape (n, d)
        Finite; stored as float16 if they are, else as float32. The cosine kernel takes no zero row.
    kernel : {"cosine", "rbf", "laplacian"}
        How alike two rows are.
    bandwidth : float or "median", optional
        Of ``rbf``, exp(-d²/2σ²), and ``laplacian``, exp(-d/σ), in units of the Euclidean distance;
        by default the median distance of random pairs.
    orders : sequence of float
        From 0 to infinity.
    weights : array_like, shape (n,), optional
        Probabilities up to a factor.
    method : {"auto", "exact", "lanczos", "nystrom", "fourier", "subsample"}
        How a kernel other than cosine is computed.
    seed : int
        Of whatever is drawn at random.

    Returns
    -------
    VendiFindings
        ``found[1]`` is the score of order 1 with its bracket.

    Raises
    ------
    ValueError
        On rows or options that can't be used, in one line.

    Notes
    -----
    The cosine kernel costs n d² operations, any number of rows; others all pairs up to the job's
    budget of 2e11, beyond which a subsample is extrapolated.
    """
    own = {"name": kernel} if bandwidth is None else {"name": kernel, "bandwidth": bandwidth}
    section = {"kernels": [own], "orders": [_order(order) for order in orders], "method": method}
    job = _run({"vendi": section}, rows, weights=weights, seed=seed)
    entries = job.measures["vendi"]["corpus"]
    return VendiFindings(
        kernel=entries[0]["kernel"],
        bandwidth=entries[0]["bandwidth"],
        rows=entries[0]["n"],
        scores={entry["order"]: _estimate(entry) for entry in entries},
    )


def magnitude_function(
    rows: ArrayLike,
    *,
    metric: str = "euclidean",
    scales: int | Sequence[float] = 20,
    target: float = 0.95,
    method: str = "auto",
    tolerance: float = 1e-3,
    seed: int = 0,
) -> MagnitudeFindings:
    """Magnitude at every scale: how many effectively distinct points there are.

    Limbeck et al. (2024), definitions 3.1 to 3.6. Equal rows count once.

    Parameters
    ----------
    rows : array_like, shape (n, d)
        Finite; stored as float16 if they are, else as float32.
    metric : {"euclidean", "cosine", "manhattan"}
        How far apart two rows are; cosine is one minus the similarity.
    scales : int or sequence of float
        So many scales from 0 to the convergence scale, or ascending ones, in 1/distance.
    target : float
        Share of the distinct rows that the magnitude reaches at the convergence scale.
    method : {"auto", "cholesky", "cg", "subsample", "nystrom"}
        ``auto`` chooses by the number of rows.
    tolerance : float
        Relative width of a bracket at which iterations may stop.
    seed : int
        Of whatever is drawn at random.

    Returns
    -------
    MagnitudeFindings

    Raises
    ------
    ValueError
        On rows or options that can't be used, in one line.

    Notes
    -----
    Costs about ten passes over all pairs of rows beyond 5000 rows, n³/3 operations a scale below.
    """
    listed = scales if isinstance(scales, int) else [float(scale) for scale in scales]
    section = {
        "metric": metric,
        "scales": listed,
        "target": target,
        "method": method,
        "tolerance": tolerance,
    }
    job = _run({"magnitude": section}, rows, seed=seed)
    found = job.measures["magnitude"]["corpus"]
    return MagnitudeFindings(
        scales=np.array(found["scales"]),
        estimates=tuple(
            Estimate(*numbers)
            for numbers in zip(
                *(found[name] for name in ("value", "lower", "upper", "bounds", "method")),
                strict=True,
            )
        ),
        rows=found["n"],
        points=found["points"],
        convergence_scale=job.score("magnitude", "convergence_scale"),
        area=job.score("magnitude", "area"),
        weights=job.arrays.get("magnitude/corpus/weights"),
    )


def heat_trace(
    rows: ArrayLike,
    *,
    k: int = 5,
    metric: str = "euclidean",
    times: tuple[float, float, int] = (0.1, 10.0, 256),
    normalization: str = "empty",
    laplacian: str = "normalized",
    probes: int | str = "auto",
    steps: int | str = 10,
    tolerance: float = 1e-3,
    seed: int = 0,
) -> HeatTraceFindings:
    """Heat trace of the graph of nearest neighbours: shape at every scale of diffusion.

    Tsitsulin et al. (2020), section 3.

    Parameters
    ----------
    rows : array_like, shape (n, d)
        Finite; stored as float16 if they are, else as float32.
    k : int
        Neighbours of a row.
    metric : {"euclidean", "cosine", "manhattan"}
        How far apart two rows are.
    times : tuple of float, float and int
        First and last diffusion time, and how many, evenly spaced in their logarithm.
    normalization : {"empty", "none", "complete", "er"}
        Null model that the trace is divided by; ``empty`` is the number of rows.
    laplacian : {"normalized", "unnormalized"}
        Which Laplacian.
    probes, steps : int or "auto"
        Random probes and the Lanczos steps of each; the paper's are 100 and 10.
    tolerance : float
        Relative standard error at which ``probes="auto"`` stops.
    seed : int
        Of whatever is drawn at random.

    Returns
    -------
    HeatTraceFindings

    Raises
    ------
    ValueError
        On rows or options that can't be used, in one line.

    Notes
    -----
    Neighbours are exact up to 50 000 rows and cost n² d operations; beyond, they come from cells
    and their recall is certified.
    """
    section = _heat_section(k, metric, times, normalization, laplacian, probes, steps, tolerance)
    job = _run({"heat": section}, rows, seed=seed)
    found = job.measures["heat"]["corpus"]
    return HeatTraceFindings(
        times=np.array(found["times"]),
        trace=np.array(found["trace"]),
        lower=np.array(found["lower"]),
        upper=np.array(found["upper"]),
        bounds=found["bounds"],
        normalization=found["normalization"],
        probes=found["probes"],
        steps=found["steps"],
        graph=found["graph"],
    )


def imd(
    first: ArrayLike,
    second: ArrayLike,
    *,
    k: int = 5,
    metric: str = "euclidean",
    times: tuple[float, float, int] = (0.1, 10.0, 256),
    normalization: str = "empty",
    laplacian: str = "normalized",
    probes: int | str = "auto",
    steps: int | str = 10,
    tolerance: float = 1e-3,
    seed: int = 0,
) -> ImdFindings:
    """Intrinsic multi-scale distance of two sets of rows, of any sizes and dimensions.

    Tsitsulin et al. (2020), eq. 2, in units of the normalisation. Parameters, errors and costs are
    those of :func:`heat_trace`.

    Returns
    -------
    ImdFindings
    """
    section = _heat_section(k, metric, times, normalization, laplacian, probes, steps, tolerance)
    job = _run({"heat": section}, first, second, seed=seed)
    found = job.measures["heat"]["imd"]
    return ImdFindings(
        distance=job.score("heat", "imd"),
        time=found["time"],
        normalization=normalization,
        unnormalized=_estimate(found["unnormalized"]),
    )


def geomca(
    reference: ArrayLike,
    rows: ArrayLike,
    *,
    percentile: float = 10.0,
    epsilon: float | None = None,
    delta: float = 1.0,
    eta_c: float = 0.0,
    eta_q: float = 0.0,
    seed: int = 0,
) -> GeomcaFindings:
    """Geometric component analysis: which regions of each set the other one covers.

    Poklukar et al. (2021).

    Parameters
    ----------
    reference, rows : array_like, shape (n, d) and (m, d)
        The reference R and the set E under evaluation, of one dimension.
    percentile : float
        Percentile of distances within the reference that epsilon is.
    epsilon : float, optional
        Distance below which two rows are joined, in place of the percentile's.
    delta : float
        Distance to which rows are thinned, in units of epsilon.
    eta_c, eta_q : float
        Consistency and quality that a component must exceed to count for precision and recall.
    seed : int
        Of the sample that epsilon is estimated from.

    Returns
    -------
    GeomcaFindings

    Raises
    ------
    ValueError
        On rows or options that can't be used, in one line.

    Notes
    -----
    Rows are thinned in their order, and scores depend on it.
    """
    section = {
        "percentile": percentile,
        "epsilon": epsilon,
        "delta": delta,
        "eta_c": eta_c,
        "eta_q": eta_q,
    }
    job = _run({"geomca": section}, rows, reference, seed=seed)
    found = job.measures["geomca"]
    names = ("precision", "recall", "consistency", "quality", "precision_rows", "recall_rows")
    return GeomcaFindings(
        epsilon=found["epsilon"],
        delta=found["delta"],
        scores={name: job.score("geomca", name) for name in names},
        sizes=found["sizes"],
        components=tuple(found["components"]),
        component_count=found["component_count"],
        reference_membership=job.arrays["geomca/membership/reference"],
        membership=job.arrays["geomca/membership/corpus"],
    )


@dataclass(frozen=True)
class _Job:
    """What a job of one measure found; its arrays are in memory."""

    measures: Mapping[str, Any]
    scores: Sequence[Mapping[str, Any]]
    arrays: Mapping[str, NDArray[Any]]

    def score(self, measure: str, name: str) -> Estimate:
        [row] = [row for row in self.scores if (row["measure"], row["score"]) == (measure, name)]
        return _estimate(row)


WANTED_ARRAYS = ("magnitude/corpus/weights", "geomca/membership/")


def _run(
    measures: Mapping[str, Any],
    corpus: ArrayLike,
    reference: ArrayLike | None = None,
    *,
    weights: ArrayLike | None = None,
    seed: int,
) -> _Job:
    """Run a job on arrays, in this process and a folder that is gone afterwards."""
    with tempfile.TemporaryDirectory(prefix="latentscale-") as folder:
        try:
            document: dict[str, Any] = {
                "name": "arrays",
                "corpus": _store(corpus, weights, Path(folder), "corpus"),
                "output": f"{folder}/jobs",
                "seed": seed,
                "measures": measures,
                "cluster": {"kind": "serial"},
            }
            if reference is not None:
                document["reference"] = _store(reference, None, Path(folder), "reference")
            config = read_config(
                json.dumps(document),
                "arguments",
                measures=measure_sections(),
                comparing=comparing_measures(),
            )
            finished = run_job(make_plan(config), _tell_nobody)
        except BadInput as error:
            raise ValueError(str(error).replace(f"{folder}/", "")) from None
        results = finished.results
        arrays = {
            name: np.load(Path(finished.store.url) / path, allow_pickle=False)
            for name, path in results["arrays"].items()
            if name.startswith(WANTED_ARRAYS)
        }
    for measure, found in results["measures"].items():
        if found is None:
            raise ValueError(results["measures"].get(f"{measure}_reason", "nothing was found"))
    return _Job(results["measures"], results["scores"], arrays)


def _tell_nobody(event: str, **fields: Any) -> None:
    """Take no notice of how the job goes."""


def _store(rows: ArrayLike, weights: ArrayLike | None, folder: Path, name: str) -> str:
    array = np.asarray(rows)
    if array.ndim != 2 or array.dtype.kind not in "fiu":
        raise BadInput(
            f"{name}: rows must be numbers in two dimensions, got shape {array.shape} of "
            f"{array.dtype}"
        )
    if array.dtype.kind != "f":
        array = array.astype(np.float32)
    np.save(folder / f"{name}.npy", np.ascontiguousarray(array))
    given = None
    if weights is not None:
        given = str(folder / f"{name}-weights.npy")
        np.save(given, np.asarray(weights, dtype=np.float64))
    corpus = folder / f"{name}.zarr"
    ingest([str(folder / f"{name}.npy")], str(corpus), weights=given)
    return str(corpus)


def _heat_section(
    k: int,
    metric: str,
    times: tuple[float, float, int],
    normalization: str,
    laplacian: str,
    probes: int | str,
    steps: int | str,
    tolerance: float,
) -> dict[str, Any]:
    start, stop, count = times
    return {
        "k": k,
        "metric": metric,
        "times": {"start": start, "stop": stop, "count": count},
        "normalization": normalization,
        "laplacian": laplacian,
        "probes": probes,
        "steps": steps,
        "tolerance": tolerance,
    }


def _order(order: float) -> float | str:
    return "inf" if order == float("inf") else float(order)


def _estimate(row: Mapping[str, Any]) -> Estimate:
    """Read a number with its bracket.

    Raises
    ------
    ValueError
        With the reason, if it couldn't be computed.
    """
    if row["value"] is None:
        raise ValueError(row.get("reason") or row.get("value_reason") or "it can't be computed")
    return Estimate(
        row["value"],
        row["lower"],
        row["upper"],
        row["bounds"],
        row.get("method", ""),
        row.get("standard_error", 0.0),
    )
