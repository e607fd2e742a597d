"""Find the current iteration of an iterated stage, from its folder alone.

In iteration ``i`` an iterated stage publishes its parts ``round-i/part-j``, and then the state
``round-i/state``, which is made from them and the previous state. The last state is the stage's
``result``. Iteration 0 has no parts. Once a state is published, the parts of its iteration and all
states but the newest two are removed, so repairing a damaged result repeats one iteration. If parts
read those of the previous iteration, the parts of the newest two finished iterations are kept as
well, so that a single damaged part can be recomputed.
"""

from __future__ import annotations

import re

from latentscale_pipeline.engine.inspection import Inspection
from latentscale_pipeline.engine.stage import Stage
from latentscale_pipeline.storage.artifacts import remove_parts
from latentscale_pipeline.storage.objects import ObjectStore

KEPT_STATES = 2
"""Number of states that are kept: the newest, and the one that it was made from."""

_ROUND = re.compile(r"round-(\d{4,})")
_STATE = re.compile(r"round-(\d{4,})/state\.json")


def iteration_folder(folder: str, number: int) -> str:
    """Return the folder of an iteration."""
    return f"{folder}/round-{number:04d}"


def find_iteration(inspection: Inspection, stage: Stage) -> tuple[int, list[int]]:
    """Find the iteration that follows the newest intact state.

    Damaged results are withdrawn, so that they are recomputed.

    Returns
    -------
    int
        The iteration, counted from 0.
    list of int
        Its missing parts; empty if only its state is missing.
    """
    keys = (key[len(inspection.folder) + 1 :] for key in inspection.sizes)
    states = {int(match[1]) for key in keys if (match := _STATE.fullmatch(key))}
    for number in sorted(states, reverse=True):
        if inspection.has(f"{iteration_folder(inspection.folder, number)}/state"):
            return _iteration_after(inspection, stage, number)
    return 0, []


def _iteration_after(inspection: Inspection, stage: Stage, number: int) -> tuple[int, list[int]]:
    """Find the iteration after a state, or this one if the next would need its missing parts."""
    if stage.reads_last_iteration and number > 0:
        lost = _missing(inspection, stage, number)
        if lost:
            needed = number < 2 or not _missing(inspection, stage, number - 1)
            return (number, lost) if needed else (0, [])
    return number + 1, _missing(inspection, stage, number + 1)


def _missing(inspection: Inspection, stage: Stage, number: int) -> list[int]:
    inside = iteration_folder(inspection.folder, number)
    there = inspection.have([f"{inside}/part-{i:05d}" for i in range(stage.partitions)])
    return [i for i, found in enumerate(there) if not found]


def remove_finished_iterations(
    store: ObjectStore, stage: Stage, folder: str, finished: int
) -> None:
    """Remove what isn't needed any more once an iteration's state, or the result, is published.

    Parameters
    ----------
    store : ObjectStore
        The job folder.
    stage : Stage
        The iterated stage.
    folder : str
        The stage's folder.
    finished : int
        The finished iteration.
    """
    inside = iteration_folder(folder, finished)
    going_on = store.exists(f"{inside}/state.json")
    if not going_on:
        store.remove_all(inside)
    kept = KEPT_STATES if stage.reads_last_iteration and going_on else 0
    for name in store.folders(folder):
        match = _ROUND.fullmatch(name)
        if match and int(match[1]) <= finished - KEPT_STATES:
            store.remove_all(f"{folder}/{name}")
        elif match and int(match[1]) <= finished - kept:
            _remove_parts(store, f"{folder}/{name}")


def _remove_parts(store: ObjectStore, inside: str) -> None:
    keys = store.keys(inside)
    going = {key for key in keys if key.startswith(f"{inside}/part-") and key[-4:] != ".log"}
    remove_parts(store, inside, going, (key for key in keys if key not in going))
