"""Vendi scores: second moments for the cosine kernel, spectra for the others."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, replace
from typing import Any, Literal, cast

import numpy as np

from latentscale.backend import Precision
from latentscale.distances import as_points, row_blocks
from latentscale.fourier_features import (
    FREQUENCIES,
    draw_frequencies,
    fourier_features,
    fourier_score,
)
from latentscale.kernels import MEDIAN_PAIRS, KernelName, median_bandwidth
from latentscale.rarefaction import (
    HALVINGS,
    SubsampleMagnitudes,
    draw_replicates,
    rarefaction_curve,
)
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
from latentscale.vendi_rarefaction import extrapolated_scores, subsample_scores
from latentscale_pipeline.engine.stage import Effort, Inputs, Stage
from latentscale_pipeline.engine.task import FINALISE
from latentscale_pipeline.errors import BadInput
from latentscale_pipeline.job.config import Vendi, VendiKernel
from latentscale_pipeline.job.publishing import Output, Published
from latentscale_pipeline.named_code import source_checksum
from latentscale_pipeline.stages.labelled_vendi import label_scores, plan_labels
from latentscale_pipeline.stages.labelled_vendi import stage_name as labels_stage
from latentscale_pipeline.stages.lanczos_vendi import (
    advance_traces,
    lanczos_effort,
    lanczos_memory,
    lanczos_pairs,
    lanczos_partitions,
    multiply_pair,
)
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
from latentscale_pipeline.stages.similarity import (
    find_similarity,
    refusing_bad_functions,
    without_bandwidth,
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

Method = Literal["exact", "lanczos", "nystrom", "fourier", "subsample"]

LEAST_LANCZOS = 200
"""Rows from which probes are worth their while."""

SUBSETS, SUBSET_ROWS, LEAST_SUBSET = 2, 4096, 512
"""Random subsets, their rows, and the fewest that can be divided into pieces."""

FEATURE_ROWS = 8192
"""Rows that are turned into features at once."""

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
    name = kernel.name.replace(":", ".")
    parts = ["vendi", name, *([] if kernel.bandwidth is None else [str(kernel.bandwidth)])]
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
        part_inputs=corpus.runs_of_shards(SHARDS_PER_TASK, *_precision_inputs(section, corpus)),
    )


def _precision_inputs(section: Vendi, corpus: CorpusFacts) -> tuple[object, ...]:
    """List what decides how the rows of a shard are summed, beside the rows."""
    weights = corpus.weights if section.weights else None
    rows = _precision_rows(corpus.n)
    return weights, rows, *(_orders(section) if rows else ())


def _precision_rows(n: int) -> int:
    """Rows for which a precision is chosen; few steps, so that a corpus that grows keeps it."""
    return 2 ** int(math.log2(n)) if n >= SINGLE_ROWS else 0


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
    weights = corpus.weights if section.weights else None
    method, why = _choose_method(section, kernel, facts, role, weighted=weights is not None)
    parameters = {
        "role": role,
        "kernel": kernel.name,
        "bandwidth": bandwidth,
        "orders": _orders(section),
        "weights": weights,
        **({"source": source_checksum(kernel.name)} if kernel.is_code else {}),
    }
    stage = Stage(
        name=stage_name(kernel, role),
        work=score_kernel,
        needs=("bandwidth",) if bandwidth == "median" else (),
        corpora=(role,),
        parameters=parameters,
        seed=None if method == "exact" else facts.seed,
        memory_bytes=0,
    )
    stage = _STAGES[method](stage, corpus)
    return replace(stage, effort=replace(stage.effort, method=method, why=why))


def _choose_method(
    section: Vendi, kernel: VendiKernel, facts: JobFacts, role: Role, *, weighted: bool
) -> tuple[Method, str]:
    """Choose how to score a kernel, by the size of the corpus, the budget and what was asked."""
    n, asked = facts.corpora[role].n, section.method
    pairs: dict[Method, float] = {
        "exact": n**2,
        "lanczos": lanczos_pairs(n),
        "nystrom": n**2,
        "fourier": 0.0,
        "subsample": 0.0,
    }
    if asked == "auto":
        if n <= DENSE_ROWS and pairs["exact"] <= facts.pairs:
            return "exact", f"at most {DENSE_ROWS:,} rows"
        if n > DENSE_ROWS and pairs["lanczos"] <= facts.pairs:
            return "lanczos", f"more than {DENSE_ROWS:,} rows, within budget.pairs"
        if n < 2 * LEAST_SUBSET or weighted:
            raise _over_budget(role, kernel, n, min(pairs["exact"], pairs["lanczos"]), facts.pairs)
        return "subsample", f"all pairs would take more than budget.pairs {facts.pairs:.1e}"
    if kernel.is_code and asked == "fourier":
        raise BadInput(
            f"measures.vendi.method fourier draws frequencies of the rbf and laplacian kernels, "
            f"which {kernel.name} has none of; use another method"
        )
    if weighted and asked not in {"exact", "lanczos"}:
        raise BadInput(
            f"{role}: measures.vendi.method {asked} doesn't know the corpus' weights; use exact or "
            "lanczos, or set measures.vendi.weights to false"
        )
    least = {"lanczos": LEAST_LANCZOS, "subsample": 2 * LEAST_SUBSET}.get(asked, 1)
    if n < least:
        raise BadInput(
            f"{role}: measures.vendi.method {asked} needs at least {least} rows and there are {n}; "
            "use method auto"
        )
    if pairs[asked] > facts.pairs:
        raise _over_budget(role, kernel, n, pairs[asked], facts.pairs)
    return asked, f"vendi.method is {asked}"


def _over_budget(role: Role, kernel: VendiKernel, n: int, pairs: float, budget: float) -> BadInput:
    return BadInput(
        f"{role}: the {kernel.name} kernel of {n} rows takes {pairs:.1e} pairs and budget.pairs is "
        f"{budget:.1e}; set budget.pairs to {write_pairs(pairs)}, set measures.vendi.method to "
        "fourier, or keep to the cosine kernel"
    )


def _exact_stage(stage: Stage, corpus: CorpusFacts) -> Stage:
    memory = _kernel_memory(corpus, 8 * corpus.n**2 + 64 * 8 * corpus.n)
    return replace(stage, memory_bytes=memory, effort=_exact_effort(corpus))


def _nystrom_stage(stage: Stage, corpus: CorpusFacts) -> Stage:
    landmarks = min(LANDMARKS, corpus.n)
    memory = _kernel_memory(corpus, 8 * (5 * landmarks + 2 * TILE_ROWS) * landmarks)
    return replace(stage, work=bracket_kernel, memory_bytes=memory, effort=_nystrom_effort(corpus))


def _lanczos_stage(stage: Stage, corpus: CorpusFacts) -> Stage:
    return replace(
        stage,
        work=multiply_pair,
        advance=advance_kernel,
        partitions=lanczos_partitions(corpus),
        memory_bytes=lanczos_memory(corpus),
        effort=lanczos_effort(corpus),
    )


def _fourier_stage(stage: Stage, corpus: CorpusFacts) -> Stage:
    matrix = 8 * (2 * FREQUENCIES) ** 2
    rows = 8 * (corpus.d + 6 * FREQUENCIES) * FEATURE_ROWS
    return replace(
        stage,
        work=sum_features,
        finalise=score_features,
        partitions=-(-corpus.shards // SHARDS_PER_TASK),
        memory_bytes=2 * corpus.shard_stored_bytes + rows + 8 * matrix,
        effort=Effort(
            bytes_read=2 * corpus.stored_bytes,
            bytes_written=matrix + RESULT_BYTES,
            single_products=corpus.n * (2.0 * FREQUENCIES) ** 2 / 2,
            products=float(corpus.n) * FREQUENCIES * corpus.d,
            folds=8.0 * corpus.n * FREQUENCIES,
        ),
    )


def _subsample_stage(stage: Stage, corpus: CorpusFacts) -> Stage:
    rows = min(SUBSET_ROWS, corpus.n // SUBSETS)
    rows -= rows % 2**HALVINGS
    return replace(
        stage,
        work=score_subset,
        finalise=extrapolate_subsets,
        partitions=SUBSETS * (HALVINGS + 1),
        parameters={**stage.parameters, "rows": rows},
        memory_bytes=8 * rows**2
        + 24 * rows * corpus.d
        + 2 * corpus.shard_stored_bytes
        + 8 * corpus.n
        + FEW_TILES_BYTES,
        effort=Effort(
            bytes_read=SUBSETS * (HALVINGS + 1) * corpus.stored_bytes,
            bytes_written=SUBSETS * (HALVINGS + 1) * RESULT_BYTES,
            products=SUBSETS * (float(rows) ** 2 * corpus.d + 4 / 9 * float(rows) ** 3),
            folds=SUBSETS * 0.08 * float(rows) ** 3,
        ),
    )


_STAGES: dict[Method, Callable[[Stage, CorpusFacts], Stage]] = {
    "exact": _exact_stage,
    "lanczos": _lanczos_stage,
    "nystrom": _nystrom_stage,
    "fourier": _fourier_stage,
    "subsample": _subsample_stage,
}


def _kernel_memory(corpus: CorpusFacts, work: int) -> int:
    # The rows, and the rows moved to their mean.
    points = 2 * corpus.float_bytes
    return max(corpus.points_bytes, points + work) + FEW_TILES_BYTES


def _tiles_effort(corpus: CorpusFacts) -> Effort:
    pairs = float(corpus.n) ** 2 / 2
    return Effort(
        bytes_read=corpus.stored_bytes,
        bytes_written=RESULT_BYTES,
        products=pairs * corpus.d,
        folds=CONVERSION_FOLDS * float(corpus.n) * corpus.d + KERNEL_FOLDS * pairs,
    )


def _exact_effort(corpus: CorpusFacts) -> Effort:
    n, tiles = float(corpus.n), _tiles_effort(corpus)
    return replace(
        tiles,
        bytes_written=8 * corpus.n + RESULT_BYTES,
        # Half of the diagonalisation's operations wait for memory, entry by entry.
        products=tiles.products + n**3 / 3,
        folds=tiles.folds + 0.06 * n**3,
    )


def _nystrom_effort(corpus: CorpusFacts) -> Effort:
    n, tiles, m = float(corpus.n), _tiles_effort(corpus), min(LANDMARKS, corpus.n)
    spectra = (VALUES_ONLY + WITH_VECTORS) * m**3
    return replace(
        tiles,
        products=tiles.products + n * m * (corpus.d + 2 * m) + spectra,
        folds=tiles.folds + KERNEL_FOLDS * n * m,
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
    rows = _precision_rows(n)
    if not rows:
        return "double"
    orders = [float(order) for order in inputs.parameters["orders"]]
    return sufficient_precision(sample, orders, rows)


def score_moments(inputs: Inputs) -> Output:
    """Merge the moments in order and score their spectrum."""
    moment = _merged(inputs)
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


def _merged(inputs: Inputs) -> SecondMoment:
    return merge_moments(
        SecondMoment(
            part.values["total"], part.array("matrix"), Rounding(**part.values["rounding"])
        )
        for part in inputs.parts
    )


@refusing_bad_functions
def score_kernel(inputs: Inputs) -> Output:
    """Score all eigenvalues of a kernel matrix."""
    p = inputs.parameters
    points = as_points(inputs.corpora[p["role"]].read_all(), "euclidean")
    similarity = find_similarity(inputs)
    if similarity is None:
        return without_bandwidth(inputs)
    weights = inputs.corpora[p["role"]].weights() if p["weights"] else None
    spectrum = kernel_spectrum(points, similarity.kernel, similarity.bandwidth, weights)
    scores = {order: store_estimate(vendi_score(spectrum, float(order))) for order in p["orders"]}
    return Output(
        values={"scores": scores, "bandwidth": similarity.bandwidth},
        arrays={"eigenvalues": spectrum.eigenvalues},
    )


@refusing_bad_functions
def bracket_kernel(inputs: Inputs) -> Output:
    """Bracket the scores of a kernel matrix from its Nystrom approximation."""
    p = inputs.parameters
    points = as_points(inputs.corpora[p["role"]].read_all(), "euclidean")
    similarity = find_similarity(inputs)
    if similarity is None:
        return without_bandwidth(inputs)
    landmarks = min(LANDMARKS, len(points))
    nystrom = nystrom_spectrum(
        points, similarity.kernel, similarity.bandwidth, landmarks, inputs.generator()
    )
    scores = {order: store_estimate(vendi_bracket(nystrom, float(order))) for order in p["orders"]}
    return Output(values={"scores": scores, "bandwidth": similarity.bandwidth})


@refusing_bad_functions
def advance_kernel(inputs: Inputs) -> Output:
    """Go on with stochastic Lanczos."""
    similarity = find_similarity(inputs)
    return without_bandwidth(inputs) if similarity is None else advance_traces(inputs, similarity)


def sum_features(inputs: Inputs) -> Output:
    """Sum the second moment of the random Fourier features of a run of shards."""
    corpus = inputs.corpora[inputs.parameters["role"]]
    similarity = find_similarity(inputs)
    if similarity is None or similarity.bandwidth is None:
        return Output()
    kernel = cast(KernelName, inputs.parameters["kernel"])
    # The same frequencies in every task, about the first row: any origin near the rows does.
    generator = replace(inputs, index=FINALISE).generator()
    frequencies = draw_frequencies(kernel, similarity.bandwidth, corpus.d, FREQUENCIES, generator)
    origin = corpus.read_rows(0, 1)[0].astype(np.float64)
    first = inputs.index * SHARDS_PER_TASK
    moments = MomentSum("single")
    for shard in range(first, min(first + SHARDS_PER_TASK, corpus.shard_count)):
        rows = corpus.read_shard(shard)
        for block in row_blocks(len(rows), FEATURE_ROWS):
            moments.add(fourier_features(rows[block], origin, frequencies))
    moment = moments.moment()
    values = {"total": moment.total, "rounding": asdict(moment.rounding)}
    return Output(values=values, arrays={"matrix": moment.matrix})


def score_features(inputs: Inputs) -> Output:
    """Score the spectrum of the features."""
    similarity = find_similarity(inputs)
    if similarity is None:
        return without_bandwidth(inputs)
    moment, n = _merged(inputs), inputs.corpora[inputs.parameters["role"]].n
    scores = {
        order: store_estimate(fourier_score(moment, n, float(order)))
        for order in inputs.parameters["orders"]
    }
    return Output(values={"scores": scores, "bandwidth": similarity.bandwidth})


@refusing_bad_functions
def score_subset(inputs: Inputs) -> Output:
    """Score the pieces of one size of one random subset."""
    p, corpus = inputs.parameters, inputs.corpora[inputs.parameters["role"]]
    similarity = find_similarity(inputs)
    if similarity is None:
        return Output()
    generator = replace(inputs, index=FINALISE).generator()
    subset, halving = divmod(inputs.index, HALVINGS + 1)
    rows = draw_replicates(corpus.n, p["rows"], SUBSETS, generator)[subset]
    order = np.argsort(rows)
    back = np.empty_like(order)
    back[order] = np.arange(len(order))
    points = as_points(corpus.read_index(rows[order]), "euclidean").take(back)
    found = subsample_scores(
        points, similarity.kernel, similarity.bandwidth, _descending(inputs), 2**halving
    )
    return Output(values={"size": found.size}, arrays={"values": found.values})


def extrapolate_subsets(inputs: Inputs) -> Output:
    """Follow the subsets' scores to all rows."""
    similarity = find_similarity(inputs)
    if similarity is None:
        return without_bandwidth(inputs)
    orders, n = _descending(inputs), inputs.corpora[inputs.parameters["role"]].n
    subsets = [
        SubsampleMagnitudes(part.values["size"], part.array("values"), np.ones(len(orders)))
        for part in inputs.parts
    ]
    found = extrapolated_scores(subsets, orders, n)
    curve = rarefaction_curve(np.arange(1.0, len(orders) + 1.0), subsets)
    scores = {
        order_name(order): store_estimate(estimate)
        for order, estimate in zip(orders, found, strict=True)
    }
    # Columns in the order in which the orders were given.
    columns = [orders.index(float(order)) for order in inputs.parameters["orders"]]
    arrays = {"rarefaction_sizes": curve.sizes, "rarefaction": curve.means[:, columns]}
    return Output(values={"scores": scores, "bandwidth": similarity.bandwidth}, arrays=arrays)


def _descending(inputs: Inputs) -> list[float]:
    return sorted((float(order) for order in inputs.parameters["orders"]), reverse=True)


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
            grown = _rarefaction(published, _orders(section))
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
                entry = _entry(kernel, order, published.values, corpus.n)
                entries.append({**entry, **grown.get(order, {})})
                if "reason" in published.values:
                    scores.append(Score.unknown(published.values["reason"], **fields))
                else:
                    estimate = load_estimate(published.values["scores"][order])
                    scores.append(Score.known(estimate, **fields))
            for name, stored in (
                ("eigenvalues", "eigenvalues"),
                ("second_moment", "matrix"),
                ("rarefaction_sizes", "rarefaction_sizes"),
                ("rarefaction", "rarefaction"),
            ):
                if stored in published.objects:
                    arrays[f"vendi/{role}/{label}/{name}"] = published.path(stored)
        if section.labels:
            labelled = results(labels_stage(role))
            scores += label_scores(labelled, _orders(section), role)
            arrays[f"vendi/{role}/labels/scores"] = labelled.path("scores")
        found[role] = entries
    return Findings(found, scores, arrays)


def _rarefaction(published: Published, orders: Sequence[str]) -> dict[str, dict[str, Any]]:
    """Return how the score of each order grew with the rows, where they were sampled."""
    if "rarefaction" not in published.objects:
        return {}
    sizes, means = (published.array(name) for name in ("rarefaction_sizes", "rarefaction"))
    return {
        order: {"rarefaction": {"sizes": sizes.tolist(), "values": column.tolist()}}
        for order, column in zip(orders, means.T, strict=True)
    }


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
