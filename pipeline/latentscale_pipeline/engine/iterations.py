"""The iteration that an iterated stage is in, read from its folder alone.

In iteration ``i`` an iterated stage publishes parts at ``round-i/part-j`` and then, made from them
and from the state before, the state ``round-i/state``. The last state is the stage's ``result``.
Iteration 0 has no parts. Once a state is there, the parts of its iteration are removed, and so are
all states but the newest two: a result that turns out damaged later costs one iteration. Where
parts read those of the iteration before, the parts of the newest two finished iterations are kept
as well, so that a damaged one can be computed again by itself.
"""

from __future__ import annotations

import re

from latentscale_pipeline.engine.inspection import Inspection
from latentscale_pipeline.engine.stage import Stage
from latentscale_pipeline.storage.objects import ObjectStore

KEPT_STATES = 2
"""States that outlive their iteration: the newest, and the one it was made from."""

_ROUND = re.compile(r"round-(\d{4,})")
_STATE = re.compile(r"round-(\d{4,})/state\.json")


def iteration_folder(folder: str, number: int) -> str:
    """Name the folder of an iteration."""
    return f"{folder}/round-{number:04d}"


def find_iteration(inspection: Inspection, stage: Stage) -> tuple[int, list[int]]:
    """Find the iteration that comes after the newest whole state.

    What turns out to be damaged or missing is withdrawn, so that it is computed again.

    Returns
    -------
    int
        Which one, counted from 0.
    list of int
        Its parts that aren't there; empty when only its state is.
    """
    keys = (key[len(inspection.folder) + 1 :] for key in inspection.sizes)
    states = {int(match[1]) for key in keys if (match := _STATE.fullmatch(key))}
    for number in sorted(states, reverse=True):
        if inspection.has(f"{iteration_folder(inspection.folder, number)}/state"):
            return _iteration_after(inspection, stage, number)
    return 0, []


def _iteration_after(inspection: Inspection, stage: Stage, number: int) -> tuple[int, list[int]]:
    """Find what comes after a state: the next iteration, or what it would miss of the last."""
    if stage.reads_last_iteration and number > 0:
        lost = _missing(inspection, stage, number)
        if lost:
            needed = number < 2 or not _missing(inspection, stage, number - 1)
            return (number, lost) if needed else (0, [])
    return number + 1, _missing(inspection, stage, number + 1)


def _missing(inspection: Inspection, stage: Stage, number: int) -> list[int]:
    inside = iteration_folder(inspection.folder, number)
    return [i for i in range(stage.partitions) if not inspection.has(f"{inside}/part-{i:05d}")]


def remove_finished_iterations(
    store: ObjectStore, stage: Stage, folder: str, finished: int
) -> None:
    """Remove what is of no more use once the state of an iteration, or the result, is there.

    Parameters
    ----------
    store : ObjectStore
        The job folder.
    stage : Stage
        The stage whose iteration it is.
    folder : str
        The stage's folder.
    finished : int
        The iteration that was finished.
    """
    inside = iteration_folder(folder, finished)
    going_on = f"{inside}/state.json" in store.keys(inside)
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
    # Markers first: a part without its objects would look damaged, one without a marker absent.
    for key in store.keys(inside):
        if key.startswith(f"{inside}/part-") and key.endswith(".json"):
            store.remove(key)
    for name in store.folders(inside):
        if name.startswith("part-"):
            store.remove_all(f"{inside}/{name}")
