"""Arrays come back as they were, and no object is larger than it must be."""

import numpy as np

from latentscale_pipeline.measures.shared import packing


def test_arrays_come_back() -> None:
    arrays = {
        "weights-3": np.arange(6.0).reshape(2, 3),
        "few": np.array([1, 2], dtype=np.int32),
        "none": np.empty((0, 4)),
        "scalar": np.array(7.0, dtype=np.float32),
        "large": np.arange(40.0),
        "turned": np.arange(12.0, dtype="f4").reshape(3, 4).T,
        "flags": np.array([True, False]),
    }
    objects, index = packing.pack(arrays, "state_", pack_bytes=100)
    assert [array.nbytes for array in objects.values()] == [48 + 8 + 0 + 4, 320, 48 + 2]
    assert list(objects) == ["state_00000", "state_00001", "state_00002"]
    reads: list[str] = []

    def read(name: str) -> np.ndarray:
        reads.append(name)
        return objects[name]

    found = packing.unpack(index, read)
    assert reads == list(objects)
    assert list(found) == list(arrays)
    for name, array in arrays.items():
        assert found[name].dtype == array.dtype
        np.testing.assert_array_equal(found[name], array)
        assert found[name].flags.writeable
