"""The heat trace of a graph that no process holds: one Lanczos step after the other, by row blocks.

``laplacian-*`` forms the Laplacian by blocks of vertices. The trace is an iterated stage with two
rounds a step: in the first every block multiplies its rows with the vectors, of which it reads its
own part and the rows of other blocks that are joined with its own; in the second it subtracts what
is parallel to the last two vectors, whose shares are then known. Between rounds only sums over
blocks are added up, and the tridiagonal matrices grow by an entry. Under ``steps: auto`` the first
batch of vectors goes on until its quadrature is narrow. Vectors are random signs by a
hash (:mod:`latentscale.laplacian_blocks`), so the numbers don't depend on the cut into blocks but
for rounding. A batch of vectors holds the pilots and the first probes; further batches more probes.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import scipy.sparse
from numpy.typing import NDArray

from latentscale.control_variates import fit_control_variate
from latentscale.heat import (
    LEAST_PROBES,
    LEAST_STEPS,
    MOST_PROBES,
    MOST_STEPS,
    PILOT_PROBES,
    ProbeIntegrals,
    average_probes,
    is_known,
    quadrature_suffices,
)
from latentscale.lanczos_quadrature import Rule, rules_of
from latentscale.laplacian_blocks import (
    block_moments,
    joined_rows,
    laplacian_block,
    random_normals,
    random_signs,
)
from latentscale_pipeline.engine.stage import Effort, Inputs, Stage
from latentscale_pipeline.job.config import Heat
from latentscale_pipeline.job.publishing import Output, Published
from latentscale_pipeline.stages.cell_sizes import Layout
from latentscale_pipeline.stages.heat_published import (
    expected_probes,
    expected_steps,
    publish_trace,
    read_times,
    trace_parameters,
)
from latentscale_pipeline.stages.measure import (
    FEW_TILES_BYTES,
    RESULT_BYTES,
    CorpusFacts,
    JobFacts,
    Role,
)

BATCH = 16
"""Vectors that advance together at most."""

NEEDED, SENT = "needed", "sent"
"""Objects of the rows of a block of the Laplacian, and of vectors, that other blocks need."""

LEAVING = 0.1
"""Share of a block's rows that other blocks need, where vertices are in the order of cells."""

Float64Array = NDArray[np.float64]


def plan_trace_by_rows(section: Heat, facts: JobFacts, role: Role) -> list[Stage]:
    """Plan the Laplacian and the heat trace of a corpus by blocks of vertices."""
    corpus = facts.corpora[role]
    layout = Layout(corpus.n, corpus.d)
    common = {"graph": f"graph-{role}", "n": corpus.n, "d": corpus.d}
    return [
        Stage(
            name=f"laplacian-{role}",
            work=form_block,
            finalise=bound_norm,
            partitions=layout.blocks,
            needs=(f"graph-{role}",),
            parameters={**common, "laplacian": section.laplacian},
            memory_bytes=_laplacian_memory(section, corpus, layout),
            effort=_laplacian_effort(section, corpus),
        ),
        Stage(
            name=f"heat-{role}",
            work=advance_block,
            advance=advance_vectors,
            partitions=layout.blocks,
            needs=(f"laplacian-{role}",),
            parameters={
                **common,
                "matrix": f"laplacian-{role}",
                **trace_parameters(section),
            },
            seed=facts.seed,
            reads_last_round=True,
            memory_bytes=_rows_memory(section, corpus, layout),
            effort=_rows_effort(section, corpus, layout),
        ),
    ]


def _laplacian_memory(section: Heat, corpus: CorpusFacts, layout: Layout) -> int:
    entries = min(corpus.n, layout.block) * (2 * section.k + 1)
    return 100 * entries + FEW_TILES_BYTES


def _laplacian_effort(section: Heat, corpus: CorpusFacts) -> Effort:
    entries = 5 / 3 * corpus.n * section.k
    return Effort(
        bytes_read=int(12 * entries),
        bytes_written=int((1 + LEAVING) * 16 * entries),
        folds=40 * entries,
    )


def _rows_memory(section: Heat, corpus: CorpusFacts, layout: Layout) -> int:
    rows = min(corpus.n, layout.block)
    entries = rows * (2 * section.k + 1)
    # The Laplacian; vectors, their product and what they need of others; or rows of L L.
    vectors = 8 * BATCH * int(rows * (5 + 2 * LEAVING * section.k))
    return 40 * entries + max(vectors, 60 * entries) + FEW_TILES_BYTES


def _rows_effort(section: Heat, corpus: CorpusFacts, layout: Layout) -> Effort:
    n, entries = float(corpus.n), 5 / 3 * corpus.n * section.k
    probes, steps = expected_probes(section, corpus), expected_steps(section)
    columns = PILOT_PROBES + probes
    batches = -(-columns // BATCH)
    rounds = 2 * steps * batches
    exchanged = int(8 * LEAVING * n * columns * steps)
    kept = int(8 * 4 * n * columns * steps)
    markers = rounds * layout.blocks * RESULT_BYTES
    return Effort(
        bytes_read=exchanged + kept + int(16 * entries * rounds / 2),
        bytes_written=exchanged + kept + markers,
        folds=columns * steps * (entries + 8 * n) + 9 * entries**2 / n,
        rounds=rounds,
        method=f"{probes} probes of {steps} Lanczos steps by row blocks",
        why=f"the graph takes more than a task may hold; about {exchanged / batches / steps:.1e} "
        "bytes are exchanged in a step",
    )


# --- the Laplacian ----------------------------------------------------------------------------


def form_block(inputs: Inputs) -> Output:
    """Form a block of the Laplacian, and the rows of it that other blocks need for L L."""
    p = inputs.parameters
    layout, graph = Layout(p["n"], p["d"]), inputs.results[p["graph"]]
    own = graph.partition(inputs.index)
    start = inputs.index * layout.block
    indptr, indices = own.array("indptr"), own.array("indices")
    m = len(indptr) - 1
    adjacency = scipy.sparse.csr_array((np.ones(len(indices)), indices, indptr), shape=(m, p["n"]))
    named = np.unique(indices).astype(np.int64)
    degrees = np.empty(len(named))
    touched = sorted({inputs.index, *np.unique(named // layout.block).tolist()})
    for other in touched:
        low, high = _bounds(layout, other)
        place = slice(*np.searchsorted(named, [low, high]))
        lengths = np.diff(graph.partition(other).array("indptr"))
        degrees[place] = lengths[named[place] - low]
    normalised = p["laplacian"] == "normalized"
    block = laplacian_block(adjacency, start, named, degrees, normalised=normalised)
    arrays = {"indptr": block.indptr, "indices": block.indices, "data": block.data}
    needed: list[tuple[str, NDArray[Any]]] = []
    for other in touched:
        if other != inputs.index:
            rows = block[joined_rows(block, *_bounds(layout, other))]
            needed += [(f"{other}/{name}", getattr(rows, name)) for name in arrays]
    norm = float(abs(block).sum(axis=1).max()) if block.nnz else 0.0
    return Output({"norm": norm, "touched": touched}, arrays, sections={NEEDED: needed})


def bound_norm(inputs: Inputs) -> Output:
    """Bound the largest eigenvalue by Gershgorin's theorem."""
    norms = [part.values["norm"] for part in inputs.parts]
    return Output(values={"width": max(norms) or 1.0})


def _bounds(layout: Layout, block: int) -> tuple[int, int]:
    return block * layout.block, min((block + 1) * layout.block, layout.n)


def _read_block(matrix: Published, index: int, n: int) -> scipy.sparse.csr_array[Any, Any]:
    part = matrix.partition(index)
    indptr = part.array("indptr")
    return scipy.sparse.csr_array(
        (part.array("data"), part.array("indices"), indptr), shape=(len(indptr) - 1, n)
    )


# --- a block's share of a round ---------------------------------------------------------------


def advance_block(inputs: Inputs) -> Output:
    """Do a block's share of a round."""
    state = _state(inputs)
    if state.values["phase"] == "multiply":
        return _multiply(inputs, state)
    return _orthogonalise(inputs, state)


def _multiply(inputs: Inputs, state: Published) -> Output:
    """Scale the new vectors to unit length and multiply them with the Laplacian."""
    p, v = inputs.parameters, state.values
    layout, matrix = Layout(p["n"], p["d"]), inputs.results[p["matrix"]]
    block = _read_block(matrix, inputs.index, p["n"])
    touched = matrix.partition(inputs.index).values["touched"]
    named = np.unique(block.indices).astype(np.int64)
    gathered = np.empty((len(named), v["width"]))
    scale = state.array("scale")
    vector = _own_part(inputs, v, scale)
    first, last = _bounds(layout, inputs.index)
    for other in touched:
        low, high = _bounds(layout, other)
        place = slice(*np.searchsorted(named, [low, high]))
        if other == inputs.index:
            gathered[place] = vector[named[place] - first]
        elif v["step"] == 0:
            gathered[place] = _start(inputs, v, low, high)[named[place] - low]
        else:
            sent = inputs.last_round[other].section(SENT, str(inputs.index))
            gathered[place] = sent * scale
    local = scipy.sparse.csr_array(
        (block.data, np.searchsorted(named, block.indices), block.indptr),
        shape=(last - first, len(named)),
    )
    product = local @ gathered
    if v["step"] > 0:
        product -= inputs.last_round[inputs.index].array("vector") * state.array("coupling")
    values: dict[str, Any] = {"share": np.einsum("ij,ij->j", product, vector).tolist()}
    if v["step"] == 0:
        values["square"] = np.einsum("ij,ij->j", vector, vector).tolist()
    if v["step"] == 0 and v["done"] == 0:
        values["moments"] = _moments(inputs, block, named, touched).tolist()
    return Output(values=values, arrays={"vector": vector, "product": product})


def _own_part(inputs: Inputs, v: Any, scale: Float64Array) -> Float64Array:
    layout = Layout(inputs.parameters["n"], inputs.parameters["d"])
    if v["step"] == 0:
        return _start(inputs, v, *_bounds(layout, inputs.index))
    rest: Float64Array = inputs.last_round[inputs.index].array("rest")
    return rest * scale


def _start(inputs: Inputs, v: Any, start: int, stop: int) -> Float64Array:
    """Part of the random vectors, of about unit length."""
    p, columns = inputs.parameters, range(v["done"], v["done"] + v["width"])
    return DRAWS[p["distribution"]](v["seed"], start, stop, columns) / math.sqrt(p["n"])


DRAWS = {"rademacher": random_signs, "gaussian": random_normals}


def _moments(
    inputs: Inputs,
    block: scipy.sparse.csr_array[Any, Any],
    named: NDArray[np.int64],
    touched: list[int],
) -> Float64Array:
    p = inputs.parameters
    layout, matrix = Layout(p["n"], p["d"]), inputs.results[p["matrix"]]
    rows = []
    first, _ = _bounds(layout, inputs.index)
    for other in touched:
        low, high = _bounds(layout, other)
        inside = named[(named >= low) & (named < high)]
        if other == inputs.index:
            rows.append(block[inside - first])
            continue
        part = matrix.partition(other)
        data, indices, indptr = (
            part.section(NEEDED, f"{inputs.index}/{name}") for name in ("data", "indices", "indptr")
        )
        rows.append(scipy.sparse.csr_array((data, indices, indptr), shape=(len(inside), p["n"])))
    stacked = scipy.sparse.csr_array(scipy.sparse.vstack(rows, format="csr"))
    return block_moments(block, first, named, stacked)


def _orthogonalise(inputs: Inputs, state: Published) -> Output:
    """Take off the vectors' shares, and lay out the rows that other blocks will need."""
    p = inputs.parameters
    layout, matrix = Layout(p["n"], p["d"]), inputs.results[p["matrix"]]
    last = inputs.last_round[inputs.index]
    # The length of a random vector is known once all blocks have drawn their part.
    scale = state.array("scale") if state.values["step"] == 0 else 1.0
    vector = last.array("vector") * scale
    rest = last.array("product") * scale - vector * state.array("share")
    block = _read_block(matrix, inputs.index, p["n"])
    sent = [
        (str(other), rest[joined_rows(block, *_bounds(layout, other))])
        for other in matrix.partition(inputs.index).values["touched"]
        if other != inputs.index
    ]
    return Output(
        values={"square": np.einsum("ij,ij->j", rest, rest).tolist()},
        arrays={"vector": vector, "rest": rest},
        sections={SENT: sent},
    )


# --- between rounds ---------------------------------------------------------------------------


def advance_vectors(inputs: Inputs) -> Output:
    """Add up the blocks' sums; when a batch is through, see whether the trace is known."""
    p, state = inputs.parameters, inputs.state
    if state is None:
        wanted = LEAST_PROBES if p["probes"] == "auto" else p["probes"]
        values = {"seed": int(inputs.generator().integers(2**62)), "done": 0}
        empty = np.empty((0, LEAST_STEPS if p["steps"] == "auto" else p["steps"]))
        earlier = {"diagonals": empty, "besides": empty, "lengths": np.empty(0)}
        return _begin_batch(values, PILOT_PROBES + wanted, {**earlier, "moments": np.zeros(5)})
    arrays = {name: state.array(name) for name in STATE_ARRAYS}
    v = dict(state.values)
    if v["phase"] == "multiply":
        arrays["share"] = _total(inputs, "share")
        if v["step"] == 0:
            square = _total(inputs, "square")
            arrays["length"], arrays["scale"] = square, 1.0 / np.sqrt(square)
            arrays["share"] = arrays["share"] / square
        arrays["diagonal"][v["step"]] = arrays["share"]
        if v["step"] == 0 and v["done"] == 0:
            arrays["moments"] = _total(inputs, "moments")
        return _go_on({**v, "phase": "orthogonalise"}, arrays)
    width = inputs.results[p["matrix"]].values["width"]
    length = np.sqrt(_total(inputs, "square"))
    going = length > math.sqrt(np.finfo(np.float64).eps) * width
    arrays["coupling"] = np.where(going, length, 0.0)
    arrays["scale"] = np.where(going, 1.0 / np.where(going, length, 1.0), 0.0)
    arrays["beside"][v["step"]] = arrays["coupling"]
    steps = len(arrays["diagonal"])
    if v["step"] + 1 == steps and _wants_more_steps(inputs, v, arrays):
        for name in ("diagonal", "beside"):
            arrays[name] = np.concatenate([arrays[name], np.zeros_like(arrays[name])])
        steps *= 2
        arrays["diagonals"] = arrays["besides"] = np.empty((0, steps))
    if v["step"] + 1 < steps:
        return _go_on({**v, "phase": "multiply", "step": v["step"] + 1}, arrays)
    return _end_batch(inputs, v, arrays, width)


def _wants_more_steps(inputs: Inputs, v: dict[str, Any], arrays: dict[str, Float64Array]) -> bool:
    """Tell whether the first batch has to go on; later ones take as many steps as it did."""
    p, steps = inputs.parameters, len(arrays["diagonal"])
    if p["steps"] != "auto" or v["done"] > 0 or steps >= min(MOST_STEPS, p["n"]):
        return False
    rules = rules_of(arrays["diagonal"].T, arrays["beside"].T)
    return not quadrature_suffices(*rules, read_times(p), p["tolerance"])


STATE_ARRAYS = (
    "share", "scale", "coupling", "diagonal", "beside", "length",
    "diagonals", "besides", "lengths", "moments",
)  # fmt: skip


def _total(inputs: Inputs, name: str) -> Float64Array:
    """Sum over blocks, in their order and without rounding."""
    shares = [part.values[name] for part in inputs.parts]
    return np.array([math.fsum(column) for column in zip(*shares, strict=True)])


def _begin_batch(
    values: dict[str, Any],
    wanted: int,
    earlier: dict[str, Float64Array],
) -> Output:
    """Start as many vectors as are wanted yet, at most a batch."""
    width, steps = min(BATCH, wanted - values["done"]), earlier["diagonals"].shape[1]
    arrays = {
        **{name: np.zeros(width) for name in ("share", "coupling")},
        **{name: np.ones(width) for name in ("scale", "length")},
        **{name: np.zeros((steps, width)) for name in ("diagonal", "beside")},
        **earlier,
    }
    kept = {name: values[name] for name in ("seed", "done")}
    begun = {**kept, "wanted": wanted, "width": width, "phase": "multiply", "step": 0}
    return _go_on(begun, arrays)


def _go_on(values: dict[str, Any], arrays: dict[str, Float64Array]) -> Output:
    names = ("seed", "done", "wanted", "width", "phase", "step")
    return Output({name: values[name] for name in names}, arrays, finished=False)


def _end_batch(
    inputs: Inputs, v: dict[str, Any], arrays: dict[str, Float64Array], width: float
) -> Output:
    p = inputs.parameters
    diagonals = np.concatenate([arrays["diagonals"], arrays["diagonal"].T])
    besides = np.concatenate([arrays["besides"], arrays["beside"].T])
    lengths = np.concatenate([arrays["lengths"], arrays["length"]])
    values = {**v, "done": len(diagonals)}
    earlier = {
        "diagonals": diagonals,
        "besides": besides,
        "lengths": lengths,
        "moments": arrays["moments"],
    }
    if len(diagonals) < v["wanted"]:
        return _begin_batch(values, v["wanted"], earlier)
    times, steps = read_times(p), diagonals.shape[1]
    gauss, radau = (
        Rule(rule.nodes, rule.weights * lengths[:, None]) for rule in rules_of(diagonals, besides)
    )
    pilots = Rule(gauss.nodes[:PILOT_PROBES], gauss.weights[:PILOT_PROBES])
    control = fit_control_variate(
        pilots,
        arrays["moments"],
        width,
        times,
        steps,
        0,
        p["variance_reduction"],
        p["distribution"],
    )
    seen = ProbeIntegrals(
        *(
            np.einsum(
                "pj,pjt->pt",
                rule.weights[PILOT_PROBES:],
                control.remainder(times, rule.nodes[PILOT_PROBES:]),
            )
            for rule in (gauss, radau)
        )
    )
    heat = average_probes(times, [seen], control, p["n"], steps)
    if p["probes"] != "auto" or is_known(heat, p["tolerance"]) or len(seen) >= MOST_PROBES:
        return publish_trace(heat)
    return _begin_batch(values, PILOT_PROBES + 2 * len(seen), earlier)


def _state(inputs: Inputs) -> Published:
    if inputs.state is None:
        raise ValueError("a round starts from a state")
    return inputs.state
