"""The expected cost of a stage."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class CostEstimate:
    """The expected total cost of a stage's tasks, from the size of the data.

    It doesn't affect the result, so it isn't part of the stage's key.

    Attributes
    ----------
    bytes_read, bytes_written : int
        Bytes read from corpora and earlier results; bytes written by the stage.
    exchanged_bytes : int or None
        Of the bytes read, those that other tasks of the job wrote. None if they are all, or, where
        the stage reads a corpus, if they are few.
    result_bytes : int or None
        Of the bytes written, those of the result that other stages read. None if they are all.
    kept_bytes : int or None
        Of these, those that a finished job keeps. None if they are all.
    state_bytes : int or None
        Of the bytes that an iteration writes, those of its state. None if they are all.
    float64_multiply_adds, float32_multiply_adds : float
        Multiply-adds in matrix products of float64, of float32.
    elementwise_operations : float
        Elementwise operations such as distances, exponentials, hashes and edges, in units of the
        time that it takes to convert an entry of a matrix product to a distance (about a
        nanosecond).
    iterations : int
        Expected iterations of an iterated stage; 0 if its first ``advance`` is expected to be its
        last, 1 if it isn't iterated.
    method : str
        The chosen method, if there is a choice.
    why : str
        The reason for this choice.
    """

    bytes_read: int = 0
    bytes_written: int = 0
    exchanged_bytes: int | None = None
    result_bytes: int | None = None
    kept_bytes: int | None = None
    state_bytes: int | None = None
    float64_multiply_adds: float = 0.0
    float32_multiply_adds: float = 0.0
    elementwise_operations: float = 0.0
    iterations: int = 1
    method: str = ""
    why: str = ""

    @property
    def total_multiply_adds(self) -> float:
        """Return all multiply-adds in matrix products; each is two floating-point operations."""
        return self.float64_multiply_adds + self.float32_multiply_adds
