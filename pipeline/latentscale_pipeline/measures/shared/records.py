"""Store dataclasses as artifacts: arrays as arrays, other fields as values."""

from __future__ import annotations

from dataclasses import fields
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from latentscale_pipeline.storage.artifacts import Artifact, Output

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

    RecordT = TypeVar("RecordT", bound=DataclassInstance)


def record_arrays(record: DataclassInstance) -> dict[str, NDArray[Any]]:
    """Return the arrays of a record, by the names of its fields."""
    return {
        field.name: array
        for field in fields(record)
        if isinstance(array := getattr(record, field.name), np.ndarray)
    }


def record_output(record: DataclassInstance) -> Output:
    """Return a record as the output of a stage; fields that aren't arrays must be JSON."""
    arrays = record_arrays(record)
    names = [field.name for field in fields(record) if field.name not in arrays]
    return Output(values={name: getattr(record, name) for name in names}, arrays=arrays)


def load_record(kind: type[RecordT], artifact: Artifact, **given: NDArray[Any]) -> RecordT:
    """Restore a record from the arrays and the values of an artifact, but for given fields."""
    names = [field.name for field in fields(kind) if field.name not in given]
    arrays = {name: artifact.array(name) for name in names if name in artifact.objects}
    values = {name: artifact.values[name] for name in names if name in artifact.values}
    return kind(**arrays, **values, **given)
