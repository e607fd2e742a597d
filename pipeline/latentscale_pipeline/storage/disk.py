"""The room on the disk of an output."""

from __future__ import annotations

import shutil
from pathlib import Path

from latentscale_pipeline.errors import BadInput
from latentscale_pipeline.storage.objects import ObjectStore


def free_bytes(output: ObjectStore) -> int | None:
    """Return the free bytes on the disk of a local output; None for a remote store.

    Raises
    ------
    BadInput
        If a file is where the folder would be.
    """
    if not output.is_local:
        return None
    place = Path(output.url).absolute()
    while not place.exists() and place != place.parent:
        place = place.parent
    if not place.is_dir():
        raise BadInput(f"output {output.url}: {place} is a file; name a folder")
    return shutil.disk_usage(place).free
