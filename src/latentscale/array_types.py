"""Names of the types of arrays."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

FloatArray = NDArray[np.floating[Any]]
Float64Array = NDArray[np.float64]
Float32Array = NDArray[np.float32]
Int64Array = NDArray[np.int64]
Int32Array = NDArray[np.int32]
UInt64Array = NDArray[np.uint64]
BoolArray = NDArray[np.bool_]
