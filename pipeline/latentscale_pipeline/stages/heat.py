"""Heat trace and IMD: neighbours, graph, trace, and the distance between two traces."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, replace
from typing import Any

import numpy as np
import scipy.sparse

from latentscale.cells import EXACT_WORK, REFINEMENTS, approximate_neighbours, cell_cap
from latentscale.distances import Points, as_points
from latentscale.graph import GraphSummary, normalised_laplacian, summarise, symmetrise
from latentscale.heat import (
    BOOTSTRAP_DRAWS,
    DENSE_VERTICES,
    LEAST_PROBES,
    MOST_PROBES,
    PILOT_PROBES,
    HeatTrace,
    Normalization,
    heat_trace,
    imd,
    normalise,
)
from latentscale.lanczos_quadrature import BLOCK_BYTES, WIDEST_BLOCK
from latentscale.neighbours import Neighbours, Recall, merge, nearest, recall_certificate
from latentscale_pipeline.corpus import Corpus
from latentscale_pipeline.engine.stage import Effort, Inputs, Stage
from latentscale_pipeline.errors import BadInput, TargetMissed
from latentscale_pipeline.job.config import Heat
from latentscale_pipeline.job.publishing import Output, Published
from latentscale_pipeline.stages.measure import (
    CONVERSION_FOLDS,
    FEW_TILES_BYTES,
    RESULT_BYTES,
    TILE_BYTES,
    CorpusFacts,
    Findings,
    JobFacts,
    Measure,
    Results,
    Role,
    Score,
    load_estimate,
    store_estimate,
)

EXACT_ROWS = 50_000
"""Corpora of up to this many rows get exact neighbours under ``neighbours: auto``."""

QUERY_ROWS = 8192
"""Rows whose exact neighbours one task finds."""

OVERLAPS = (2, 3, 4, 6)
"""Cells that a row is put in, tried in turn until the recall certificate meets its target."""

CERTIFIED_ROWS = 1000
"""Rows, at the least, whose exact neighbours a recall certificate is measured on."""

GRAPH_ERROR = 2.0e-4
"""IMD error of an approximate graph per unit of missed recall: 2e-6 at a recall of 0.99."""

TRACE_ERROR = GRAPH_ERROR * math.exp(4.0)
"""The same for the trace per vertex: IMD weighs a difference by at most exp(-4)."""

DESCENT_BYTES = 280 * 2**20
"""Memory that a process keeps once it has compiled the nearest neighbour descent."""

DESCENT_ROW_FOLDS, DESCENT_COORDINATE_FOLDS, DESCENT_START_FOLDS = 50_000, 150, 2.5e10
"""Folds that a descent takes on a row, on each of its coordinates, and to compile it once."""

PROBE_DEVIATION = 2.4
"""Relative standard deviation of one probe at the largest times, times the root of the rows."""

TIME_BYTES = 2 * 8 * 4096
"""Memory for one time: the deviation of every probe, and a bootstrap's draws."""

HEADLINE_TIME = 1.0
"""Diffusion time whose trace is a score: where the weight of IMD peaks."""

UNITS: dict[Normalization, str] = {
    "none": "trace",
    "empty": "trace per vertex",
    "complete": "trace / complete graph's",
    "er": "trace / random graph's",
}
"""What a normalised trace is measured in."""


def plan_heat(section: Heat, facts: JobFacts) -> list[Stage]:
    """Plan neighbours, graph and trace of every corpus, and IMD when there are two."""
    if section.metric == "cosine":
        facts.refuse_zero_rows("heat.metric cosine")
    if section.neighbours == "cells" and section.recall == 1.0:
        raise BadInput("heat.recall is 1, which only neighbours: exact can promise")
    stages = [stage for role in facts.corpora for stage in _corpus_stages(section, facts, role)]
    if len(facts.corpora) > 1:
        stages.append(
            Stage(
                name="imd",
                work=compare_traces,
                needs=tuple(
                    f"{stage}-{role}" for role in facts.corpora for stage in ("heat", "graph")
                ),
                parameters={"normalization": section.normalization},
                seed=facts.seed,
                memory_bytes=TILE_BYTES + TIME_BYTES * section.times.count,
                effort=_imd_effort(section, facts),
            )
        )
    return stages


def _corpus_stages(section: Heat, facts: JobFacts, role: Role) -> list[Stage]:
    corpus = facts.corpora[role]
    if section.k >= corpus.n:
        raise BadInput(
            f"{role}: heat.k is {section.k} and there are {corpus.n} rows; use a smaller k"
        )
    return [
        _neighbours_stage(section, facts, role, corpus),
        Stage(
            name=f"graph-{role}",
            work=build_graph,
            needs=(f"neighbours-{role}",),
            parameters={"neighbours": f"neighbours-{role}"},
            memory_bytes=_graph_memory(section, corpus),
            effort=_graph_effort(section, corpus),
        ),
        Stage(
            name=f"heat-{role}",
            work=trace_heat,
            needs=(f"graph-{role}",),
            parameters={
                "graph": f"graph-{role}",
                "times": section.times.model_dump(),
                "steps": section.steps,
                "probes": section.probes,
                "tolerance": section.tolerance,
            },
            seed=facts.seed,
            memory_bytes=_trace_memory(section, corpus),
            effort=_trace_effort(section, corpus),
        ),
    ]


def _graph_memory(section: Heat, corpus: CorpusFacts) -> int:
    entries = 2 * corpus.n * section.k
    # Beyond 2^31 entries rows are numbered in 64 bits.
    return entries * (40 if entries < 2**31 else 60)


def _graph_effort(section: Heat, corpus: CorpusFacts) -> Effort:
    listed = corpus.n * section.k
    return Effort(
        bytes_read=16 * listed,
        # Two of three pairs are neighbours in one direction only.
        bytes_written=8 * (listed * 5 // 3 + corpus.n) + RESULT_BYTES,
        folds=80.0 * listed,
    )


def _trace_memory(section: Heat, corpus: CorpusFacts) -> int:
    entries = 2 * corpus.n * section.k
    blocks = min(3 * 8 * WIDEST_BLOCK * corpus.n, max(BLOCK_BYTES, 3 * 8 * corpus.n))
    # The Laplacian is formed before any probe is drawn.
    work = max(entries * 61, entries * 34 + blocks)
    if corpus.n <= DENSE_VERTICES:
        work += 2 * 8 * corpus.n**2
    return work + TIME_BYTES * section.times.count + FEW_TILES_BYTES


def _trace_effort(section: Heat, corpus: CorpusFacts) -> Effort:
    n, entries = float(corpus.n), 5 / 3 * corpus.n * section.k
    graph = Effort(
        bytes_read=int(8 * (entries + n)),
        bytes_written=8 * 7 * section.times.count + RESULT_BYTES,
        # The Laplacian, and a product of it with itself for the exact moments.
        folds=14 * entries + 9 * entries**2 / n,
    )
    if section.probes == "auto" and corpus.n <= DENSE_VERTICES:
        return replace(
            graph,
            products=2 * n**3,
            method="all eigenvalues",
            why=f"heat.probes is auto and there are at most {DENSE_VERTICES} rows",
        )
    probes = _expected_probes(section, corpus)
    return replace(
        graph,
        bytes_written=graph.bytes_written + 8 * section.times.count * probes,
        folds=graph.folds + (probes + PILOT_PROBES) * section.steps * (entries + n),
        method=f"{probes} probes of {section.steps} Lanczos steps",
        why=f"expected for heat.tolerance {section.tolerance:g}; from {LEAST_PROBES}, doubled to "
        f"{MOST_PROBES} at most"
        if section.probes == "auto"
        else f"heat.probes is {section.probes}",
    )


def _expected_probes(section: Heat, corpus: CorpusFacts) -> int:
    if isinstance(section.probes, int):
        return section.probes
    needed = (PROBE_DEVIATION / section.tolerance) ** 2 / corpus.n
    doublings = math.ceil(math.log2(max(needed / LEAST_PROBES, 1.0)))
    return min(LEAST_PROBES << doublings, MOST_PROBES)


def _imd_effort(section: Heat, facts: JobFacts) -> Effort:
    probes = sum(_expected_probes(section, corpus) for corpus in facts.corpora.values())
    times = section.times.count
    return Effort(
        bytes_read=8 * times * (probes + 14),
        bytes_written=RESULT_BYTES,
        products=float(BOOTSTRAP_DRAWS * probes * times),
        folds=10.0 * BOOTSTRAP_DRAWS * (probes + 2 * times),
    )


def _neighbours_stage(section: Heat, facts: JobFacts, role: Role, corpus: CorpusFacts) -> Stage:
    parameters = {"role": role, "k": section.k, "metric": section.metric}
    asked = f"heat.neighbours is {section.neighbours}"
    if section.neighbours == "exact" or (section.neighbours == "auto" and corpus.n <= EXACT_ROWS):
        return Stage(
            name=f"neighbours-{role}",
            work=find_exact_neighbours,
            finalise=join_neighbours,
            partitions=-(-corpus.n // QUERY_ROWS),
            corpora=(role,),
            parameters=parameters,
            seed=facts.seed,
            memory_bytes=_exact_memory(section, corpus),
            effort=replace(
                _exact_effort(section, corpus),
                method="exact",
                why=asked if section.neighbours == "exact" else f"at most {EXACT_ROWS:,} rows",
            ),
        )
    return Stage(
        name=f"neighbours-{role}",
        work=find_cell_neighbours,
        corpora=(role,),
        parameters={**parameters, "recall": section.recall, "overlap": section.overlap},
        seed=facts.seed,
        memory_bytes=_cells_memory(section, corpus),
        effort=replace(
            _cells_effort(section, corpus),
            why=asked if section.neighbours == "cells" else f"more than {EXACT_ROWS:,} rows",
        ),
        lasting_bytes=DESCENT_BYTES if _descends(section, corpus, _overlaps(section)[-1]) else 0,
    )


def _exact_memory(section: Heat, corpus: CorpusFacts) -> int:
    """Bytes of a task that searches, or of the one that puts the lists together."""
    queries = min(QUERY_ROWS, corpus.n)
    query_bytes = queries * ((corpus.d + 1) * 8 + 3 * section.k * 24)
    searching = corpus.shard_bytes + query_bytes + FEW_TILES_BYTES
    return max(searching, 2 * 16 * corpus.n * section.k)


def _exact_effort(section: Heat, corpus: CorpusFacts) -> Effort:
    n, tasks = float(corpus.n), -(-corpus.n // QUERY_ROWS)
    lists = 16 * corpus.n * section.k
    return Effort(
        bytes_read=(tasks + 1) * corpus.stored_bytes + lists,
        bytes_written=2 * lists + (tasks + 1) * RESULT_BYTES,
        single_products=n * n * corpus.d,
        folds=n * n + 2 * CONVERSION_FOLDS * (tasks + 1) * n * corpus.d,
    )


def _overlaps(section: Heat) -> tuple[int, ...]:
    return OVERLAPS if section.overlap == "auto" else (int(section.overlap),)


def _cell_pairs(corpus: CorpusFacts, overlap: int) -> float:
    """Row pairs inside cells, which are filled to half of their cap on average."""
    cap = cell_cap(corpus.n, corpus.d)
    return float(corpus.n) * (corpus.n if corpus.n <= cap else overlap * cap / 2)


def _descends(section: Heat, corpus: CorpusFacts, overlap: int) -> bool:
    work = _cell_pairs(corpus, overlap) * corpus.d
    return section.metric != "manhattan" and work > EXACT_WORK


def _cells_memory(section: Heat, corpus: CorpusFacts) -> int:
    cell = 8 * corpus.d * min(corpus.n, cell_cap(corpus.n, corpus.d))
    lists = 16 * corpus.n * section.k
    # A cell's rows, without their duplicates, and sorted for finding these; later, all lists and
    # who points to whom.
    searching = max(corpus.stored_bytes, 5 * cell + lists, 5 * lists)
    return corpus.float_bytes + searching + FEW_TILES_BYTES


def _cells_effort(section: Heat, corpus: CorpusFacts) -> Effort:
    n, d = float(corpus.n), corpus.d
    cap, overlap = cell_cap(corpus.n, d), _overlaps(section)[0]
    lists = 16 * corpus.n * section.k
    cells = 1 if corpus.n <= cap else 2 * overlap * n / cap
    sample = min(n, 256 * cells)
    mending = 0.0 if cells == 1 else REFINEMENTS * 4 * n * section.k**2 * d
    common = Effort(
        bytes_read=corpus.stored_bytes,
        bytes_written=lists + RESULT_BYTES,
        products=16 * sample * d * cells,
        single_products=n * d * (cells + CERTIFIED_ROWS),
        folds=CONVERSION_FOLDS * n * d + mending + n * cells,
    )
    if _descends(section, corpus, overlap):
        return replace(
            common,
            folds=common.folds
            + DESCENT_START_FOLDS
            + overlap * n * (DESCENT_ROW_FOLDS + DESCENT_COORDINATE_FOLDS * d),
            method=f"cells, overlap {overlap}, searched by descent",
        )
    pairs = _cell_pairs(corpus, overlap)
    return replace(
        common,
        single_products=common.single_products + pairs * d,
        folds=common.folds + pairs,
        method=f"cells, overlap {overlap}, searched exactly",
    )


def find_exact_neighbours(inputs: Inputs) -> Output:
    """Find the neighbours of a block of rows among all rows, streamed shard by shard."""
    p = inputs.parameters
    corpus = inputs.corpora[p["role"]]
    start = inputs.index * QUERY_ROWS
    query_ids = np.arange(start, min(start + QUERY_ROWS, corpus.n))
    seed = _tie_seed(inputs)
    found = _nearest_in_corpus(corpus, query_ids, p["k"], p["metric"], seed)
    return Output(arrays={"indices": found.indices, "distances": found.distances})


def join_neighbours(inputs: Inputs) -> Output:
    """Put the blocks' neighbour lists together."""
    arrays = {
        name: np.concatenate([part.array(name) for part in inputs.parts])
        for name in ("indices", "distances")
    }
    exact = Recall(value=1.0, lower=1.0, upper=1.0, sampled=len(arrays["indices"]))
    return Output(values={"method": "exact", "recall": asdict(exact)}, arrays=arrays)


def find_cell_neighbours(inputs: Inputs) -> Output:
    """Find approximate neighbours in overlapping cells and certify their recall.

    Raises
    ------
    TargetMissed
        If the certificate misses its target even with the largest overlap.
    """
    p = inputs.parameters
    corpus = inputs.corpora[p["role"]]
    points = as_points(corpus.read_all(), p["metric"])
    seed = _tie_seed(inputs)
    overlaps = OVERLAPS if p["overlap"] == "auto" else (int(p["overlap"]),)
    for overlap, stream in zip(overlaps, inputs.generator().spawn(len(overlaps)), strict=True):
        found = approximate_neighbours(points, p["k"], overlap=overlap, generator=stream, seed=seed)
        recall = _certify(points, found, p["k"], p["recall"], stream, seed)
        if recall.lower >= p["recall"]:
            return Output(
                values={"method": f"cells, overlap {overlap}", "recall": asdict(recall)},
                arrays={"indices": found.indices, "distances": found.distances},
            )
    raise TargetMissed(
        f"recall is certified at {recall.lower:.4f} only and heat.recall asks for {p['recall']}; "
        "lower it, raise heat.overlap, or use neighbours: exact"
    )


def _certify(
    points: Points,
    found: Neighbours,
    k: int,
    target: float,
    generator: np.random.Generator,
    seed: int,
) -> Recall:
    """Compare the lists of fresh random rows with exact ones.

    Even without a miss the certificate of m rows can't exceed 0.025^(1/m), so m follows from the
    target; when all rows are looked at, recall is known.
    """
    n = len(points)
    needed = CERTIFIED_ROWS if target == 0 else 4 * math.log(0.025) / math.log(min(target, 0.9999))
    size = min(n, max(CERTIFIED_ROWS, math.ceil(needed)))
    sample = np.sort(generator.choice(n, size, replace=False))
    true = nearest(
        points.take(sample), points, k, query_ids=sample, candidate_ids=np.arange(n), seed=seed
    )
    recall = recall_certificate(found.distances[sample], true.distances)
    if len(sample) == n:
        return Recall(value=recall.value, lower=recall.value, upper=recall.value, sampled=n)
    return recall


def build_graph(inputs: Inputs) -> Output:
    """Join rows that are neighbours in either direction, and describe the graph."""
    neighbours = inputs.results[inputs.parameters["neighbours"]]
    adjacency = symmetrise(neighbours.array("indices"))
    return Output(
        values={
            "summary": asdict(summarise(adjacency)),
            "recall": neighbours.values["recall"],
            "method": neighbours.values["method"],
        },
        arrays={
            "indices": adjacency.indices.astype(np.int64),
            "indptr": adjacency.indptr.astype(np.int64),
        },
    )


def trace_heat(inputs: Inputs) -> Output:
    """Estimate the trace of exp(-tL) for every time."""
    p = inputs.parameters
    graph = inputs.results[p["graph"]]
    indices, indptr = graph.array("indices"), graph.array("indptr")
    n = len(indptr) - 1
    adjacency = scipy.sparse.csr_array((np.ones(len(indices)), indices, indptr), shape=(n, n))
    times = p["times"]
    heat = heat_trace(
        normalised_laplacian(adjacency),
        np.logspace(np.log10(times["start"]), np.log10(times["stop"]), times["count"]),
        generator=inputs.generator(),
        steps=p["steps"],
        probes=None if p["probes"] == "auto" else p["probes"],
        tolerance=p["tolerance"],
    )
    return Output(
        values={"vertices": heat.vertices, "probes": heat.probes, "steps": heat.steps},
        arrays={name: getattr(heat, name) for name in HEAT_ARRAYS},
    )


HEAT_ARRAYS = (
    "times",
    "trace",
    "lower",
    "upper",
    "standard_error",
    "deviations",
    "quadrature",
)


def compare_traces(inputs: Inputs) -> Output:
    """Compute IMD from the traces of both corpora."""
    kind = inputs.parameters["normalization"]
    traces, graph_error = [], 0.0
    for role in ("corpus", "reference"):
        graph = inputs.results[f"graph-{role}"].values
        published = inputs.results[f"heat-{role}"]
        traces.append(_normalised(published, graph, kind))
        graph_error += GRAPH_ERROR * _missed(graph) * _unit_of_error(published, traces[-1])
    result = imd(traces[0], traces[1], generator=inputs.generator(), graph_error=graph_error)
    # How much an approximate graph moves IMD was measured, not proven.
    bounds = "estimate" if graph_error > 0 else result.estimate.bounds
    estimate = replace(result.estimate, bounds=bounds)
    return Output(values={"estimate": store_estimate(estimate), "time": result.time})


def _missed(graph: Mapping[str, Any]) -> float:
    return 1.0 - float(graph["recall"]["lower"])


def _unit_of_error(per_vertex: Published, normalised: HeatTrace) -> float:
    """How much an IMD per vertex grows, at most, under a normalisation."""
    weight = np.exp(-2.0 * (normalised.times + 1.0 / normalised.times))
    ratio = normalised.trace / per_vertex.array("trace")
    return float((weight * ratio).max() * math.exp(4.0))


def collect_heat(section: Heat, facts: JobFacts, results: Results) -> Findings:
    """Collect traces, graphs and IMD."""
    found: dict[str, Any] = {}
    scores: list[Score] = []
    arrays: dict[str, str] = {}
    unit = UNITS[section.normalization]
    for role in facts.corpora:
        graph = results(f"graph-{role}").values
        published = results(f"heat-{role}")
        heat = _normalised(published, graph, section.normalization)
        found[role] = _trace_section(section, heat, graph)
        scores.append(_headline(heat, graph, role, unit))
        arrays[f"heat/{role}/neighbours"] = results(f"neighbours-{role}").path("indices")
        arrays[f"heat/{role}/deviations"] = published.path("deviations")
    found["imd"] = None
    if len(facts.corpora) > 1:
        compared = results("imd").values
        estimate = load_estimate(compared["estimate"])
        found["imd"] = {
            "value": estimate.value,
            "lower": estimate.lower,
            "upper": estimate.upper,
            "standard_error": estimate.standard_error,
            "bounds": estimate.bounds,
            "time": compared["time"],
        }
        fields: dict[str, Any] = {"measure": "heat", "of": "pair", "score": "imd"}
        scores.append(Score.known(estimate, **fields, unit=unit, better="low"))
    if section.normalization != "none":
        scores = [replace(score, size_dependent=False) for score in scores]
    return Findings(found, scores, arrays)


def _trace_section(section: Heat, heat: HeatTrace, graph: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "times": heat.times.tolist(),
        "trace": heat.trace.tolist(),
        "lower": heat.lower.tolist(),
        "upper": heat.upper.tolist(),
        "standard_error": heat.standard_error.tolist(),
        "bounds": _trace_bounds(heat, graph),
        "normalization": section.normalization,
        "k": section.k,
        "steps": heat.steps,
        "probes": heat.probes,
        "graph": {
            "edges": graph["summary"]["edges"],
            "components": graph["summary"]["components"],
            "isolated": graph["summary"]["isolated"],
            "neighbours": graph["method"],
            "recall": graph["recall"],
        },
    }


def _trace_bounds(heat: HeatTrace, graph: Mapping[str, Any]) -> str:
    if _missed(graph) > 0:
        return "estimate"
    return "exact" if heat.probes == 0 else "interval95"


def _headline(heat: HeatTrace, graph: Mapping[str, Any], role: Role, unit: str) -> Score:
    at = int(np.argmin(np.abs(np.log(heat.times / HEADLINE_TIME))))
    return Score(
        measure="heat",
        of=role,
        score="heat_trace",
        scale=float(heat.times[at]),
        value=float(heat.trace[at]),
        lower=float(heat.lower[at]),
        upper=float(heat.upper[at]),
        bounds=_trace_bounds(heat, graph),
        unit=unit,
        better="none",
    )


def _normalised(published: Published, graph: Mapping[str, Any], kind: Normalization) -> HeatTrace:
    values = published.values
    error = TRACE_ERROR * _missed(graph)
    heat = HeatTrace(
        times=published.array("times"),
        trace=published.array("trace"),
        lower=np.maximum(published.array("lower") - error, 0.0),
        upper=published.array("upper") + error,
        standard_error=published.array("standard_error"),
        deviations=published.array("deviations"),
        quadrature=published.array("quadrature"),
        vertices=values["vertices"],
        probes=values["probes"],
        steps=values["steps"],
    )
    summary = GraphSummary(**graph["summary"])
    return normalise(heat, kind, mean_degree=2.0 * summary.edges / summary.vertices)


def _tie_seed(inputs: Inputs) -> int:
    """Return the seed that breaks ties between equal distances, one for all partitions."""
    return int(inputs.stage.seed or 0)


def _nearest_in_corpus(
    corpus: Corpus, query_ids: np.ndarray[Any, np.dtype[np.int64]], k: int, metric: Any, seed: int
) -> Neighbours:
    queries = as_points(corpus.read_rows(int(query_ids[0]), int(query_ids[-1]) + 1), metric)
    best: Neighbours | None = None
    for shard in range(corpus.shard_count):
        rows = corpus.shard_range(shard)
        found = nearest(
            queries,
            as_points(corpus.read_shard(shard), metric),
            k,
            query_ids=query_ids,
            candidate_ids=np.arange(rows.start, rows.stop),
            seed=seed,
        )
        best = found if best is None else merge(best, found, k, query_ids=query_ids, seed=seed)
    if best is None:
        raise BadInput(f"{corpus.url}: has no shards")
    return best


HEAT = Measure(section=Heat, plan=plan_heat, collect=collect_heat)
