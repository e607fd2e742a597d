"""Which scores find which failures: python benchmarks/detection.py --output FILE.

A corpus and a reference of equally many rows are drawn from one source of ten kinds of unequal
size, each on twelve dimensions of its own. The corpus is then damaged in one way, and a job with
all measures says which headline scores differ by more than chance: p below 0.05, adjusted for all
scores of the job. Each failure is tried several times with fresh rows; "nothing" is the control.

``python benchmarks/shown.py`` writes the table into docs/choosing.md.
"""

from __future__ import annotations

import argparse
import os
import tempfile
from collections import Counter
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np
from contest import header, write
from numpy.typing import NDArray

Rows = NDArray[np.float64]

DIMENSIONS, KINDS, LOCAL = 64, 10, 12
"""Coordinates, kinds of rows, and dimensions of a kind."""

WIDTH, NOISE = 0.25, 0.02
"""Standard deviations of a kind in each of its dimensions, and of noise in each coordinate; the
centres of kinds are about 1 from the origin."""

MEASURES = (
    *("duplicates", "heat", "geomca", "magnitude", "vendi"),
    *("mmd", "modes", "spread", "spectrum", "intrinsic_dimension", "hubness", "baselines"),
)

SIGNIFICANT = 0.05


@dataclass(frozen=True)
class Source:
    """Ten kinds of rows: their shares, centres and directions."""

    shares: Rows
    centres: Rows
    directions: Rows

    @classmethod
    def draw(cls) -> Source:
        """Draw the source, always the same one."""
        generator = np.random.default_rng(2024)
        shares = 1.0 / np.arange(2, KINDS + 2)
        directions = [
            np.linalg.qr(generator.normal(size=(DIMENSIONS, LOCAL)))[0].T for _ in range(KINDS)
        ]
        centres = generator.normal(size=(KINDS, DIMENSIONS)) / np.sqrt(DIMENSIONS)
        return cls(shares / shares.sum(), centres, np.stack(directions))

    def rows(
        self,
        generator: np.random.Generator,
        n: int,
        shares: Rows | None = None,
        local: Rows | None = None,
    ) -> Rows:
        """Draw rows, perhaps with other shares of kinds, or other widths in their dimensions."""
        kinds = generator.choice(KINDS, size=n, p=self.shares if shares is None else shares)
        inside = WIDTH * generator.normal(size=(n, LOCAL)) * (1.0 if local is None else local)
        rows = self.centres[kinds] + np.einsum("il,ilj->ij", inside, self.directions[kinds])
        return rows + NOISE * generator.normal(size=rows.shape)


@dataclass(frozen=True)
class Sample:
    """What a damaged corpus is made of."""

    source: Source
    generator: np.random.Generator
    rows: Rows
    reference: Rows

    def noise(self, rows: Rows) -> Rows:
        """Return normal numbers in the shape of some rows."""
        return self.generator.normal(size=rows.shape)

    def fewer_of_a_kind(self, kept: float) -> Rows:
        """Draw a share of the rows of a kind that has a tenth of all, and more of the others."""
        shares = self.source.shares.copy()
        shares[3] *= kept
        return self.source.rows(self.generator, len(self.rows), shares / shares.sum())

    def flattened(self) -> Rows:
        """Draw kinds with half of their dimensions, and the same variance."""
        local = np.where(np.arange(LOCAL) < LOCAL // 2, np.sqrt(2.0), 0.0)
        return self.source.rows(self.generator, len(self.rows), local=local)

    def replaced(self, share: float, others: Rows) -> Rows:
        """Replace a share of the rows by the first of others."""
        count = round(share * len(self.rows))
        return np.concatenate([others[:count], self.rows[count:]])

    def turned(self) -> Rows:
        """Rotate all rows in the same way."""
        square = self.generator.normal(size=(DIMENSIONS, DIMENSIONS))
        return np.asarray(self.rows @ np.linalg.qr(square)[0])


def damage(sample: Sample, failure: str) -> Rows:
    """Return the rows of a corpus that is damaged in one way."""
    rows, half = sample.rows, len(sample.rows) // 2
    match failure:
        case "a kind is missing":
            return sample.fewer_of_a_kind(0.0)
        case "half of a kind is missing":
            return sample.fewer_of_a_kind(0.5)
        case "5 % copies":
            return sample.replaced(0.05, rows[half:])
        case "5 % near-copies":
            return sample.replaced(0.05, rows[half:] + 1e-3 * sample.noise(rows[half:]))
        case "5 % from the reference":
            return sample.replaced(0.05, sample.reference)
        case "3 % outliers":
            return sample.replaced(0.03, 1.2 / np.sqrt(DIMENSIONS) * sample.noise(rows))
        case "noise":
            return rows + 3.0 * NOISE * sample.noise(rows)
        case "fewer dimensions":
            return sample.flattened()
        case "5 % longer":
            return 1.05 * rows
        case "shifted":
            return rows + 0.1 / np.sqrt(DIMENSIONS)
        case "rotated":
            return sample.turned()
    return rows


FAILURES = (
    *("nothing", "a kind is missing", "half of a kind is missing"),
    *("5 % copies", "5 % near-copies", "5 % from the reference", "3 % outliers"),
    *("noise", "fewer dimensions", "5 % longer", "shifted", "rotated"),
)
"""Ways to damage a corpus; the first is the control."""


def try_once(failure: str, number: int, n: int) -> dict[str, float | None]:
    """Return the adjusted p-values of all headline scores of a damaged corpus."""
    import latentscale
    from latentscale_pipeline.report.scores import title_apart

    generator = np.random.default_rng([FAILURES.index(failure), number])
    source = Source.draw()
    reference, sound = source.rows(generator, n), source.rows(generator, n)
    corpus = damage(Sample(source, generator, sound, reference), failure)
    with tempfile.TemporaryDirectory() as folder:
        found = latentscale.run(
            corpus.astype("f4"),
            reference.astype("f4"),
            measures=MEASURES,
            output=folder,
            seed=number,
        )
        return {
            f"{score.measure}: {title_apart(score)}": score.expected.p_adjusted
            for score in found.scores
            if score.expected is not None and score.expected.p_adjusted is not None
        }


def main() -> None:
    """Try every failure, and write how often each score found it."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--rows", type=int, default=2000)
    parser.add_argument("--tries", type=int, default=10)
    parser.add_argument("--processes", type=int, default=os.cpu_count())
    parser.add_argument("--output", type=Path, required=True)
    arguments = parser.parse_args()
    arguments.threads, arguments.data = 1, None
    for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "NUMBA_NUM_THREADS"):
        os.environ[name] = "1"
    record: dict[str, Any] = {
        **header(arguments),
        "rows": arguments.rows,
        "tries": arguments.tries,
        "failures": {},
    }
    tasks = [(failure, number) for failure in FAILURES for number in range(arguments.tries)]
    counts = {failure: Counter[str]() for failure in FAILURES}
    with ProcessPoolExecutor(arguments.processes, get_context("spawn")) as pool:
        waiting = [pool.submit(try_once, *task, arguments.rows) for task in tasks]
        for (failure, _), one in zip(tasks, waiting, strict=True):
            for name, p in one.result().items():
                counts[failure][name] += p is not None and p < SIGNIFICANT
    record["failures"] = {failure: dict(found) for failure, found in counts.items()}
    write(arguments.output, record)


if __name__ == "__main__":
    main()
