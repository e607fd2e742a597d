"""An ingest that doesn't end, in whatever processes its parts are encoded."""

import time
from collections.abc import Callable
from dataclasses import dataclass

from latentscale_pipeline.corpus.ingest.encoding import Encoding
from latentscale_pipeline.progress import Progress


@dataclass(frozen=True)
class EndsNever:
    """Encode parts as usual; once some have been recorded, wait until the process is killed."""

    record: Callable[[Encoding, int, Progress], bytes]
    recorded: int

    def __call__(self, encoding: Encoding, part: int, progress: Progress) -> bytes:
        records = encoding.record_key(part).rpartition("/")[0]
        while len(encoding.store.keys(records)) >= self.recorded:
            time.sleep(0.1)
        return self.record(encoding, part, progress)
