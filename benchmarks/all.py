"""Every comparison in one run: time, memory and scaling of latentscale and of alternatives.

    python benchmarks/all.py --repeats 3 --output benchmarks/results/comparisons-2026-01-01.json \
        --python magnipy=MAGNIPY/bin/python --python vendi-score=OTHERS/bin/python \
        --python gudhi=OTHERS/bin/python --python imate=OTHERS/bin/python \
        --python scikit-primate=OTHERS/bin/python --python msid=OTHERS/bin/python

Every contestant runs alone in a fresh process, on the same rows, in turn with the others, several
times (see contest.py), at increasing numbers of rows. Contestants that can't handle more rows stop
earlier, as the table of comparisons below says. Packages that aren't installed, here or in the
interpreter named for them, are skipped with a note on how to install them. The output is one JSON
with the result of each contestant, which shows whether all computed the same number. ``--short``
takes a few hundred rows. ``python benchmarks/shown.py`` puts the newest record into the README and
the documentation.

    python3 -m venv OTHERS
    OTHERS/bin/pip install numpy scipy vendi-score gudhi networkx imate scikit-primate
    OTHERS/bin/pip install git+https://github.com/xgfs/imd
    python3 -m venv MAGNIPY
    MAGNIPY/bin/pip install torch magnipy==1.0.0
"""

from __future__ import annotations

import argparse
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType
from typing import Any

import geomca
import heat
import imd
import magnitude
import numpy as np
import vendi
from contest import Inputs, Values, clustered_rows, header, in_turns, summary, write
from shown import comparisons_of, whole_table

SHORT_ROWS = (200, 400)
DIMENSION = 128
CHECKED_ROWS = 200
NAMED_MEMORY = "largest_process_bytes"
"""The field in which a contestant reports the memory of the largest process that it started."""


@dataclass(frozen=True)
class Peer:
    """A package that a contestant needs."""

    name: str
    needs: str
    install: str


@dataclass(frozen=True)
class Comparison:
    """Contestants on the same inputs, at increasing numbers of rows.

    Attributes
    ----------
    script : module
        The script that has the contestants, and is started for each of them.
    contestants : mapping of str to int
        Their names in the script, and the largest number of rows for each; ours is the first.
    inputs : callable
        Inputs by number of rows.
    sizes : sequence of int
        Numbers of rows.
    peers : mapping of str to Peer
        Packages that contestants need and latentscale doesn't.
    finding : str
        The name of the number that all should agree on.
    find : callable
        Extracts this number from a contestant's findings and inputs.
    handed_on : tuple of str
        Arrays that ours computes and the others get as inputs, without counting the time.
    """

    name: str
    script: ModuleType
    contestants: Mapping[str, int]
    inputs: Callable[[int], Inputs]
    sizes: Sequence[int]
    finding: str
    find: Callable[[Values, Inputs], float]
    peers: Mapping[str, Peer] = field(default_factory=dict)
    handed_on: tuple[str, ...] = ()


# --- what is compared ------------------------------------------------------------------------


def rows_alone(n: int) -> Inputs:
    return {"rows": clustered_rows(n, DIMENSION, 0)}


def rows_and_bandwidth(n: int) -> Inputs:
    rows = clustered_rows(n, DIMENSION, 0)
    return {"rows": rows, "bandwidth": vendi.median_distance(rows, 0)}


def rows_and_sample(n: int) -> Inputs:
    sample = np.random.default_rng(2).choice(n, min(n, heat.SAMPLED), replace=False)
    return {"rows": clustered_rows(n, DIMENSION, 0), "sample": np.sort(sample)}


def broad_clusters(n: int) -> Inputs:
    reference = geomca.broad_cluster(n, 1024, 1)
    epsilon = np.array(geomca.percentile_of(reference, 10.0))
    corpus = geomca.broad_cluster(n, 1024, 2)
    return {"reference": reference, "corpus": corpus, "epsilon": epsilon, "delta": epsilon}


def two_sets_of_rows(n: int) -> Inputs:
    return imd.two_sets(n, 64, 0)


def vendi_of_order_one(found: Values, inputs: Inputs) -> float:
    return float(found["scores"][vendi.ORDERS.index(1.0)])


def magnitude_at_half_way(found: Values, inputs: Inputs) -> float:
    return float(found["magnitudes"][len(found["magnitudes"]) // 2])


def recall_of_neighbours(found: Values, inputs: Inputs) -> float:
    few = slice(0, CHECKED_ROWS)
    sample, lists = inputs["sample"][few], np.array(found["lists"])[few]
    return heat.recall(inputs["rows"], sample, lists, heat.true_distances(inputs["rows"], sample))


VENDI = Peer("vendi-score", "vendi_score", "vendi-score")
MAGNIPY = Peer("magnipy", "magnipy", "torch magnipy==1.0.0")
GUDHI = Peer("gudhi", "gudhi, networkx", "gudhi networkx")
IMATE = Peer("imate", "imate", "imate")
PRIMATE = Peer("scikit-primate", "primate", "scikit-primate")
MSID = Peer("msid", "msid.msid", "git+https://github.com/xgfs/imd")

COMPARISONS = (
    Comparison(
        "Vendi, cosine",
        vendi,
        {"cosine latentscale": 200_000, "cosine numpy": 200_000, "cosine vendi-score": 200_000},
        rows_alone,
        (2000, 20_000, 200_000),
        "score of order 1",
        vendi_of_order_one,
        {"cosine vendi-score": VENDI},
    ),
    Comparison(
        "Vendi, RBF",
        vendi,
        {
            "rbf latentscale exact": 8000,
            "rbf latentscale lanczos": 20_000,
            "rbf numpy": 8000,
            "rbf vendi-score": 4000,
        },
        rows_and_bandwidth,
        (2000, 4000, 8000, 20_000),
        "score of order 1",
        vendi_of_order_one,
        {"rbf vendi-score": VENDI},
    ),
    Comparison(
        "magnitude function",
        magnitude,
        {"latentscale": 20_000, "cholesky": 10_000, "magnipy": 4000},
        rows_alone,
        (1000, 4000, 10_000, 20_000),
        "magnitude half-way",
        magnitude_at_half_way,
        {"magnipy": MAGNIPY},
        handed_on=("scales",),
    ),
    Comparison(
        "GeomCA",
        geomca,
        {"latentscale": 20_000, "gudhi": 5000},
        broad_clusters,
        (1000, 5000, 20_000),
        "components",
        lambda found, _: float(found["components"]),
        {"gudhi": GUDHI},
    ),
    Comparison(
        "IMD",
        imd,
        {"latentscale": 20_000, "msid": 10_000, "dense": 4000},
        two_sets_of_rows,
        (1000, 4000, 10_000, 20_000),
        "IMD",
        lambda found, _: float(found["imd"]),
        {"msid": MSID},
    ),
    Comparison(
        "heat trace of a graph",
        heat,
        {
            "latentscale": 1_000_000,
            "plain route": 100_000,
            "imate": 1_000_000,
            "scikit-primate": 100_000,
        },
        heat.near_graph,
        (10_000, 100_000, 1_000_000),
        "trace per vertex at t = 1",
        lambda found, _: float(found["trace"]),
        {"imate": IMATE, "scikit-primate": PRIMATE},
    ),
    Comparison(
        "neighbour graph",
        heat,
        {"latentscale job": 200_000, "NNDescent 15": 200_000, "NNDescent 30": 200_000},
        rows_and_sample,
        (20_000, 200_000),
        "recall@5",
        recall_of_neighbours,
    ),
)

# --- one run ---------------------------------------------------------------------------------


@dataclass(frozen=True)
class Field:
    """The contestants of a comparison with their interpreters, and those that are skipped."""

    pythons: Mapping[str, str]
    skipped: Mapping[str, str]


def find_field(comparison: Comparison, pythons: Mapping[str, str]) -> Field:
    """Find the contestants that can run."""
    present, skipped = {}, {}
    for name in comparison.contestants:
        peer = comparison.peers.get(name)
        python = pythons.get(peer.name, sys.executable) if peer else sys.executable
        if peer and not can_import(python, peer.needs):
            skipped[name] = f"pip install {peer.install}"
        else:
            present[name] = python
    return Field(present, skipped)


def can_import(python: str, modules: str) -> bool:
    """Return whether an interpreter has these modules."""
    tried = subprocess.run([python, "-c", f"import {modules}"], capture_output=True, check=False)
    return tried.returncode == 0


def run(
    comparison: Comparison, sizes: Sequence[int], found: Field, repeats: int, threads: int
) -> Iterator[Values]:
    """Let the contestants take turns at every size."""
    script = str(comparison.script.__file__)
    for n in sizes:
        pythons = {
            name: python
            for name, python in found.pythons.items()
            if n <= comparison.contestants[name]
        }
        inputs = comparison.inputs(n)
        runs = in_turns(script, pythons, inputs, repeats, threads, comparison.handed_on)
        medians = {name: summary(list(map(briefly, all_of))) for name, all_of in runs.items()}
        add_ratios(medians, next(iter(comparison.contestants)))
        for name, [one, *_] in runs.items():
            medians[name]["found"] = comparison.find(one, inputs)
        yield {"rows": n, "contestants": medians}


def briefly(one: Values) -> Values:
    """Return findings without long lists, with the memory that a contestant measured itself."""
    kept = {key: value for key, value in one.items() if not isinstance(value, list)}
    if NAMED_MEMORY in kept:
        kept["peak_bytes"] = kept[NAMED_MEMORY]
    return kept


def add_ratios(medians: Mapping[str, Values], ours: str) -> None:
    """Add the ratio of each contestant's time and memory to ours, if ours took part."""
    if ours in medians:
        for one in medians.values():
            one["times_ours"] = one["seconds"] / medians[ours]["seconds"]
            one["memory_over_ours"] = one["peak_bytes"] / medians[ours]["peak_bytes"]


# --- the command ----------------------------------------------------------------------------


def pythons_of(assignments: Sequence[str]) -> dict[str, str]:
    """Read ``NAME=PYTHON``."""
    for assignment in assignments:
        if "=" not in assignment:
            raise SystemExit(f"--python {assignment}: expected NAME=PYTHON")
    return dict(assignment.split("=", 1) for assignment in assignments)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    names = [comparison.name for comparison in COMPARISONS]
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--short", action="store_true", help="a few hundred rows")
    parser.add_argument("--only", action="append", choices=names, metavar="COMPARISON")
    parser.add_argument("--python", action="append", default=[], metavar="PEER=PYTHON")
    parser.add_argument("--output", type=Path, default=Path("all.json"))
    parser.set_defaults(data=None)
    asked = parser.parse_args()
    pythons = pythons_of(asked.python)
    record: dict[str, Any] = {
        "schema": "latentscale.comparisons/1",
        **header(asked),
        "repeats": asked.repeats,
        "short": asked.short,
        "comparisons": [],
    }
    for comparison in COMPARISONS:
        if asked.only and comparison.name not in asked.only:
            continue
        found = find_field(comparison, pythons)
        for name, install in found.skipped.items():
            print(f"{comparison.name}: {name} is skipped ({install})", file=sys.stderr)
        sizes = SHORT_ROWS if asked.short else comparison.sizes
        done: Values = {
            "name": comparison.name,
            "finding": comparison.finding,
            "skipped": found.skipped,
            "sizes": [],
        }
        record["comparisons"].append(done)
        for size in run(comparison, sizes, found, asked.repeats, asked.threads):
            done["sizes"].append(size)
            # Written after each size: the largest takes longest.
            write(asked.output, record)
    print(whole_table(comparisons_of(record)))


if __name__ == "__main__":
    main()
