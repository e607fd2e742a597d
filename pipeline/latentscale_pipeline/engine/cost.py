"""What a stage is expected to cost."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class CostEstimate:
    """What all tasks of a stage are expected to take together, from the size of the data.

    It says nothing of the result, so it is no part of a stage's key.

    Attributes
    ----------
    bytes_read, bytes_written : int
        Of corpora and of earlier results; of the stage's own.
    float64_multiply_adds, float32_multiply_adds : float
        Multiply-adds in matrix products of float64, of float32.
    elementwise_operations : float
        Entries that are visited one at a time, in units of the time that it takes to turn an entry
        of a matrix product into a distance (about a nanosecond): distances, exponentials, hashes,
        edges.
    iterations : int
        Expected iterations of an iterated stage; 0 when its first ``advance`` is expected to be its
        last, 1 when it isn't iterated.
    method : str
        How it is computed, where there is a choice.
    why : str
        What decided for this method.
    """

    bytes_read: int = 0
    bytes_written: int = 0
    float64_multiply_adds: float = 0.0
    float32_multiply_adds: float = 0.0
    elementwise_operations: float = 0.0
    iterations: int = 1
    method: str = ""
    why: str = ""

    @property
    def total_multiply_adds(self) -> float:
        """Multiply-adds in matrix products; a multiply-add is two floating point operations."""
        return self.float64_multiply_adds + self.float32_multiply_adds
