"""Corpora on which floating point goes wrong.

Each is a function of a generator, a number of rows and of dimensions. Its values are float32, given
as float64, so that no storage of a corpus rounds them.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

Rows = np.ndarray
Generator = np.random.Generator


def ordinary(generator: Generator, n: int, d: int) -> Rows:
    return generator.normal(size=(n, d))


def clusters(generator: Generator, n: int, d: int) -> Rows:
    centres = 10.0 * generator.normal(size=(3, d))
    return centres[generator.integers(3, size=n)] + 0.1 * generator.normal(size=(n, d))


def a_far_row(generator: Generator, n: int, d: int) -> Rows:
    rows = generator.normal(size=(n, d))
    rows[generator.integers(n)] *= 10.0 ** generator.uniform(3, 17)
    return rows


def far_clusters(generator: Generator, n: int, d: int) -> Rows:
    rows = generator.normal(size=(n, d))
    rows[: n // 2] += 10.0 ** generator.uniform(2, 6)
    return rows


def a_large_offset(generator: Generator, n: int, d: int) -> Rows:
    return generator.normal(size=(n, d)) + 10.0 ** generator.uniform(1, 6)


def tiny_angles(generator: Generator, n: int, d: int) -> Rows:
    direction = generator.normal(size=d)
    return direction + 10.0 ** generator.uniform(-6, -2) * generator.normal(size=(n, d))


def a_lattice(generator: Generator, n: int, d: int) -> Rows:
    return generator.integers(1, 4, size=(n, d)).astype(float)


def binary_codes(generator: Generator, n: int, d: int) -> Rows:
    return np.column_stack([np.ones(n), generator.integers(0, 2, size=(n, d))])


def duplicates(generator: Generator, n: int, d: int) -> Rows:
    few = generator.normal(size=(max(2, n // 3), d))
    return few[generator.integers(len(few), size=n)]


def near_duplicates(generator: Generator, n: int, d: int) -> Rows:
    few = generator.normal(size=(max(2, n // 3), d))
    apart = 10.0 ** generator.uniform(-8, 0, size=(n, 1)) * generator.normal(size=(n, d))
    return few[generator.integers(len(few), size=n)] + apart


def a_low_rank(generator: Generator, n: int, d: int) -> Rows:
    return generator.integers(1, 4, size=(n, 1)) * generator.integers(1, 3, size=(1, d)).astype(
        float
    ) + generator.integers(0, 2, size=(n, 1))


def half_precision_extremes(generator: Generator, n: int, d: int) -> Rows:
    scale = 2.0 ** generator.integers(-14, 15, size=(n, 1))
    return (scale * generator.normal(size=(n, d))).astype(np.float16).astype(float) + 2.0**-14


def very_small_numbers(generator: Generator, n: int, d: int) -> Rows:
    return 10.0 ** generator.uniform(-36, -30) * generator.normal(size=(n, d))


def very_large_numbers(generator: Generator, n: int, d: int) -> Rows:
    return 10.0 ** generator.uniform(12, 17) * generator.normal(size=(n, d))


def denormals(generator: Generator, n: int, d: int) -> Rows:
    return 2.0**-149 * generator.integers(1, 2 ** generator.integers(3, 22), size=(n, d))


def the_limit_of_float32(generator: Generator, n: int, d: int) -> Rows:
    limit = float(np.finfo(np.float32).max)
    return limit * generator.uniform(-1, 1, size=(n, d)).round(generator.integers(1, 5))


def a_hub(generator: Generator, n: int, d: int) -> Rows:
    rows = generator.normal(size=(n, d))
    rows /= np.linalg.norm(rows, axis=1, keepdims=True)
    rows[0] = 1e-3
    return rows


def constant_columns(generator: Generator, n: int, d: int) -> Rows:
    rows = generator.normal(size=(n, d))
    rows[:, generator.integers(d)] = 0.1
    return np.column_stack([rows, np.full(n, 3.0)])


def a_line(generator: Generator, n: int, d: int) -> Rows:
    return np.arange(1.0, n + 1)[:, None] * np.ones(d) * 10.0 ** generator.integers(-3, 4)


NASTY: dict[str, Callable[[Generator, int, int], Rows]] = {
    corpus.__name__.replace("_", " "): corpus
    for corpus in (
        ordinary,
        clusters,
        a_far_row,
        far_clusters,
        a_large_offset,
        tiny_angles,
        a_lattice,
        binary_codes,
        duplicates,
        near_duplicates,
        a_low_rank,
        half_precision_extremes,
        very_small_numbers,
        very_large_numbers,
        a_hub,
        constant_columns,
        a_line,
        denormals,
        the_limit_of_float32,
    )
}
"""Every kind of corpus by name."""


def draw_corpus(kind: str, generator: Generator, n: int, d: int) -> Rows:
    """Return rows of a kind, none of them zero, in some order."""
    rows = NASTY[kind](generator, n, d).astype(np.float32).astype(float)
    rows = rows[generator.permutation(n)]
    rows[~rows.any(axis=1)] = 2.0**-100
    return rows
