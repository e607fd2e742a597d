"""Vendi scores: second moments for the cosine kernel, spectra for the others."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, replace
from typing import Any, cast

import numpy as np

from latentscale.backend import Precision
from latentscale.distances import as_points
from latentscale.kernels import MEDIAN_PAIRS, Kernel, median_bandwidth
from latentscale.second_moments import (
    BLOCK_ROWS,
    MomentSum,
    Rounding,
    SecondMoment,
    merge_moments,
)
from latentscale.vendi import (
    TILE_ROWS,
    kernel_spectrum,
    moment_spectrum,
    nystrom_spectrum,
    order_name,
    sufficient_precision,
    vendi_bracket,
    vendi_score,
)
from latentscale_pipeline.engine.stage import Effort, Inputs, Stage
from latentscale_pipeline.errors import BadInput
from latentscale_pipeline.job.config import Vendi, VendiKernel
from latentscale_pipeline.job.publishing import Output
from latentscale_pipeline.stages.labelled_vendi import label_scores, plan_labels
from latentscale_pipeline.stages.labelled_vendi import stage_name as labels_stage
from latentscale_pipeline.stages.measure import (
    CONVERSION_FOLDS,
    FEW_TILES_BYTES,
    RESULT_BYTES,
    CorpusFacts,
    Findings,
    JobFacts,
    Measure,
    Results,
    Role,
    Score,
    load_estimate,
    store_estimate,
    write_pairs,
)

SHARDS_PER_TASK = 8
"""Shards whose second moment one task sums."""

DENSE_ROWS = 12_000
"""Corpora of up to this many rows get all eigenvalues of a kernel under ``method: auto``."""

LANDMARKS = 2_000
"""Landmarks of the Nystrom bracket beyond that."""

SINGLE_ROWS = 200_000
"""Corpora of at least so many rows are tried in single precision."""

SAMPLED_ROWS = 16_384
"""Rows by which the precision of a task is chosen."""

KERNEL_FOLDS = 2
"""Folds to turn a matrix product's entry into a similarity."""

VALUES_ONLY = 1.5
"""Multiply-adds to find all eigenvalues of a matrix, over its rows cubed."""

WITH_VECTORS = 4.0
"""The same with eigenvectors."""


def plan_vendi(section: Vendi, facts: JobFacts) -> list[Stage]:
    """Plan the scores of every corpus under every kernel."""
    stages: list[Stage] = []
    bandwidth = facts.fixed_scales.get("bandwidth")
    if bandwidth is None and any(kernel.bandwidth == "median" for kernel in section.kernels):
        stages.append(_bandwidth_stage(facts))
    for kernel in section.kernels:
        if kernel.name == "cosine":
            facts.refuse_zero_rows("the cosine kernel of vendi")
            stages += [_moments_stage(section, facts, role) for role in facts.corpora]
        else:
            stages += [_kernel_stage(section, kernel, facts, role) for role in facts.corpora]
    if section.labels:
        stages += [plan_labels(section, facts, role) for role in facts.corpora]
    return stages


def stage_name(kernel: VendiKernel, role: Role) -> str:
    """Name the stage that scores a corpus under a kernel."""
    parts = ["vendi", kernel.name, *([] if kernel.bandwidth is None else [str(kernel.bandwidth)])]
    return "-".join([*parts, role])


def _orders(section: Vendi) -> list[str]:
    return [order_name(order) for order in section.orders]


def _bandwidth_stage(facts: JobFacts) -> Stage:
    role = facts.scale_role
    corpus = facts.corpora[role]
    return Stage(
        name="bandwidth",
        work=find_bandwidth,
        corpora=(role,),
        parameters={"role": role},
        seed=facts.seed,
        memory_bytes=corpus.points_bytes + FEW_TILES_BYTES,
        effort=Effort(
            bytes_read=corpus.stored_bytes,
            bytes_written=RESULT_BYTES,
            folds=CONVERSION_FOLDS * corpus.n * corpus.d
            + 10 * min(corpus.n**2 // 2, MEDIAN_PAIRS) * corpus.d,
            method="median distance of random pairs",
            why="a bandwidth is median",
        ),
    )


def _moments_stage(section: Vendi, facts: JobFacts, role: Role) -> Stage:
    corpus = facts.corpora[role]
    return Stage(
        name=stage_name(VendiKernel(name="cosine"), role),
        work=sum_moments,
        finalise=score_moments,
        partitions=-(-corpus.shards // SHARDS_PER_TASK),
        corpora=(role,),
        parameters={
            "role": role,
            "orders": _orders(section),
            "weights": corpus.weights if section.weights else None,
        },
        memory_bytes=_moments_memory(corpus),
        effort=_moments_effort(corpus),
    )


def _moments_memory(corpus: CorpusFacts) -> int:
    """Bytes of a task that sums the moments of shards, or of the one that adds them up."""
    matrix = 8 * corpus.d**2
    # A shard's bytes and what is decoded from them, a block of unit rows, and sums: they are added
    # pairwise, of p sums about log2(p) wait for their like at a time.
    rows = min(SHARDS_PER_TASK, corpus.shards) * corpus.rows_of_shard
    waiting = math.ceil(math.log2(rows / BLOCK_ROWS + 1)) + 4
    weights = 8 * corpus.n if corpus.weights else 0
    block = 16 * BLOCK_ROWS * corpus.d
    summing = 2 * corpus.shard_stored_bytes + block + waiting * matrix + weights
    parts = -(-corpus.shards // SHARDS_PER_TASK)
    return max(summing, math.ceil(math.log2(parts) + 4) * matrix)


def _moments_effort(corpus: CorpusFacts) -> Effort:
    matrix = 8 * corpus.d**2
    parts = -(-corpus.shards // SHARDS_PER_TASK)
    return Effort(
        bytes_read=corpus.stored_bytes + parts * matrix,
        bytes_written=(parts + 1) * (matrix + RESULT_BYTES),
        products=corpus.n * float(corpus.d) ** 2 / 2 + VALUES_ONLY * float(corpus.d) ** 3,
        folds=float(corpus.n) * corpus.d,
        method="exact",
        why="the cosine kernel needs the second moment only, whatever the number of rows",
    )


def _kernel_stage(section: Vendi, kernel: VendiKernel, facts: JobFacts, role: Role) -> Stage:
    corpus = facts.corpora[role]
    fixed = facts.fixed_scales.get("bandwidth") if kernel.bandwidth == "median" else None
    bandwidth = fixed if fixed is not None else kernel.bandwidth
    dense = section.method == "exact" or (section.method == "auto" and corpus.n <= DENSE_ROWS)
    if corpus.n**2 > facts.pairs:
        raise BadInput(
            f"{role}: the {kernel.name} kernel of {corpus.n} rows has {corpus.n**2:.1e} pairs and "
            f"budget.pairs is {facts.pairs:.1e}; set budget.pairs to {write_pairs(corpus.n**2)}, "
            "or keep to the cosine kernel"
        )
    return Stage(
        name=stage_name(kernel, role),
        work=score_kernel if dense else bracket_kernel,
        needs=("bandwidth",) if bandwidth == "median" else (),
        corpora=(role,),
        parameters={
            "role": role,
            "kernel": kernel.name,
            "bandwidth": bandwidth,
            "orders": _orders(section),
            "weights": corpus.weights if section.weights else None,
        },
        seed=None if dense else facts.seed,
        memory_bytes=_kernel_memory(corpus, dense),
        effort=_kernel_effort(section, corpus, dense),
    )


def _kernel_memory(corpus: CorpusFacts, dense: bool) -> int:
    # The rows, and the rows moved to their mean.
    points = 2 * corpus.float_bytes
    if dense:
        work = 8 * corpus.n**2 + 64 * 8 * corpus.n
    else:
        landmarks = min(LANDMARKS, corpus.n)
        work = 8 * (5 * landmarks + 2 * TILE_ROWS) * landmarks
    return max(corpus.points_bytes, points + work) + FEW_TILES_BYTES


def _kernel_effort(section: Vendi, corpus: CorpusFacts, dense: bool) -> Effort:
    n, pairs = float(corpus.n), corpus.n**2 / 2
    asked = f"vendi.method is {section.method}"
    tiles = Effort(
        bytes_read=corpus.stored_bytes,
        bytes_written=RESULT_BYTES,
        products=pairs * corpus.d,
        folds=CONVERSION_FOLDS * n * corpus.d + KERNEL_FOLDS * pairs,
    )
    if dense:
        return replace(
            tiles,
            bytes_written=8 * corpus.n + RESULT_BYTES,
            # Half of the diagonalisation's operations wait for memory, entry by entry.
            products=tiles.products + n**3 / 3,
            folds=tiles.folds + 0.06 * n**3,
            method="exact",
            why=asked if section.method == "exact" else f"at most {DENSE_ROWS:,} rows",
        )
    m = min(LANDMARKS, corpus.n)
    spectra = (VALUES_ONLY + WITH_VECTORS) * m**3
    return replace(
        tiles,
        products=tiles.products + n * m * (corpus.d + 2 * m) + spectra,
        folds=tiles.folds + KERNEL_FOLDS * n * m,
        method="nystrom",
        why=asked if section.method == "nystrom" else f"more than {DENSE_ROWS:,} rows",
    )


def find_bandwidth(inputs: Inputs) -> Output:
    """Take the median distance of random pairs of rows as the bandwidth."""
    points = as_points(inputs.corpora[inputs.parameters["role"]].read_all(), "euclidean")
    try:
        bandwidth = median_bandwidth(points, generator=inputs.generator())
    except ValueError as error:
        return Output(values={"reason": str(error)})
    return Output(values={"bandwidth": bandwidth})


def sum_moments(inputs: Inputs) -> Output:
    """Sum the second moment of a run of shards, in single precision where that suffices."""
    corpus = inputs.corpora[inputs.parameters["role"]]
    weights = corpus.weights() if inputs.parameters["weights"] else None
    first = inputs.index * SHARDS_PER_TASK
    moments: MomentSum | None = None
    for shard in range(first, min(first + SHARDS_PER_TASK, corpus.shard_count)):
        rows = corpus.read_shard(shard)
        if moments is None:
            moments = MomentSum(_precision(inputs, rows[:SAMPLED_ROWS], corpus.n))
        moments.add(rows, None if weights is None else weights[corpus.shard_range(shard)])
        del rows
    assert moments is not None  # noqa: S101  (no task is without shards)
    moment = moments.moment()
    values = {"total": moment.total, "rounding": asdict(moment.rounding)}
    return Output(values=values, arrays={"matrix": moment.matrix})


def _precision(inputs: Inputs, sample: np.ndarray[Any, Any], n: int) -> Precision:
    if n < SINGLE_ROWS:
        return "double"
    orders = [float(order) for order in inputs.parameters["orders"]]
    return sufficient_precision(sample, orders, n)


def score_moments(inputs: Inputs) -> Output:
    """Merge the moments in order and score their spectrum."""
    moment = merge_moments(
        SecondMoment(
            part.values["total"], part.array("matrix"), Rounding(**part.values["rounding"])
        )
        for part in inputs.parts
    )
    if moment.total == 0:
        return Output(values={"reason": "all weights are 0", "bandwidth": None})
    n = inputs.corpora[inputs.parameters["role"]].n
    spectrum = moment_spectrum(moment, n)
    scores = {
        order: store_estimate(vendi_score(spectrum, float(order)))
        for order in inputs.parameters["orders"]
    }
    return Output(
        values={"scores": scores, "bandwidth": None},
        arrays={"eigenvalues": spectrum.eigenvalues, "matrix": moment.matrix},
    )


def score_kernel(inputs: Inputs) -> Output:
    """Score all eigenvalues of a kernel matrix."""
    p = inputs.parameters
    points = as_points(inputs.corpora[p["role"]].read_all(), "euclidean")
    bandwidth = _bandwidth(inputs)
    if bandwidth is None:
        return _without_bandwidth(inputs)
    weights = inputs.corpora[p["role"]].weights() if p["weights"] else None
    spectrum = kernel_spectrum(points, cast(Kernel, p["kernel"]), bandwidth, weights)
    scores = {order: store_estimate(vendi_score(spectrum, float(order))) for order in p["orders"]}
    return Output(
        values={"scores": scores, "bandwidth": bandwidth},
        arrays={"eigenvalues": spectrum.eigenvalues},
    )


def bracket_kernel(inputs: Inputs) -> Output:
    """Bracket the scores of a kernel matrix from its Nystrom approximation."""
    p = inputs.parameters
    points = as_points(inputs.corpora[p["role"]].read_all(), "euclidean")
    bandwidth = _bandwidth(inputs)
    if bandwidth is None:
        return _without_bandwidth(inputs)
    landmarks = min(LANDMARKS, len(points))
    nystrom = nystrom_spectrum(
        points, cast(Kernel, p["kernel"]), bandwidth, landmarks, inputs.generator()
    )
    scores = {order: store_estimate(vendi_bracket(nystrom, float(order))) for order in p["orders"]}
    return Output(values={"scores": scores, "bandwidth": bandwidth})


def _bandwidth(inputs: Inputs) -> float | None:
    given = inputs.parameters["bandwidth"]
    found = inputs.results["bandwidth"].values.get("bandwidth") if given == "median" else given
    return None if found is None else float(found)


def _without_bandwidth(inputs: Inputs) -> Output:
    return Output(values={"reason": inputs.results["bandwidth"].values["reason"]})


def collect_vendi(section: Vendi, facts: JobFacts, results: Results) -> Findings:
    """Collect the scores by corpus, kernel and order."""
    found: dict[str, Any] = {}
    scores: list[Score] = []
    arrays: dict[str, str] = {}
    for role, corpus in facts.corpora.items():
        entries: list[dict[str, Any]] = []
        for kernel in section.kernels:
            published = results(stage_name(kernel, role))
            label = _kernel_label(kernel, section)
            for order in _orders(section):
                fields: dict[str, Any] = {
                    "measure": "vendi",
                    "of": role,
                    "score": "vendi",
                    "kernel": label,
                    "order": order,
                    "unit": "effective items",
                    "better": "high",
                }
                entries.append(_entry(kernel, order, published.values, corpus.n))
                if "reason" in published.values:
                    scores.append(Score.unknown(published.values["reason"], **fields))
                else:
                    estimate = load_estimate(published.values["scores"][order])
                    scores.append(Score.known(estimate, **fields))
            for name, stored in (("eigenvalues", "eigenvalues"), ("second_moment", "matrix")):
                if stored in published.objects:
                    arrays[f"vendi/{role}/{label}/{name}"] = published.path(stored)
        if section.labels:
            labelled = results(labels_stage(role))
            scores += label_scores(labelled, _orders(section), role)
            arrays[f"vendi/{role}/labels/scores"] = labelled.path("scores")
        found[role] = entries
    return Findings(found, scores, arrays)


def _kernel_label(kernel: VendiKernel, section: Vendi) -> str:
    """Name a kernel; the bandwidth is added only where two share a name."""
    same = sum(other.name == kernel.name for other in section.kernels)
    return kernel.name if same == 1 else f"{kernel.name} {kernel.bandwidth}"


def _entry(kernel: VendiKernel, order: str, published: Mapping[str, Any], n: int) -> dict[str, Any]:
    entry = {"kernel": kernel.name, "bandwidth": published.get("bandwidth"), "order": order, "n": n}
    if "reason" in published:
        return entry | dict.fromkeys(_ESTIMATED) | {"value_reason": published["reason"]}
    return entry | {name: published["scores"][order][name] for name in _ESTIMATED}


_ESTIMATED = ("value", "lower", "upper", "standard_error", "bounds", "method")


VENDI = Measure(section=Vendi, plan=plan_vendi, collect=collect_vendi)
