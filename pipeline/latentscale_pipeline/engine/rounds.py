"""Where an iterated stage stands, read from its folder alone.

An iterated stage publishes, in round ``r``, parts at ``round-r/part-i`` and then, made from them
and from the state before, the state ``round-r/state``; the last one is the stage's ``result``.
Round 0 has no parts. Once a state is there, its round's parts are of no more use and are removed,
and so are all states but the newest two: a result that turns out damaged later costs one round.
Where parts read those of the round before, the parts of the newest two finished rounds outlive them
as well, so that a damaged one can be computed again by itself.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from latentscale_pipeline.engine.look import Look
from latentscale_pipeline.engine.stage import Stage
from latentscale_pipeline.objects import ObjectStore

KEPT_STATES = 2
"""States that outlive their round: the newest, and the one it was made from."""

_ROUND = re.compile(r"round-(\d{4,})")
_STATE = re.compile(r"round-(\d{4,})/state\.json")


@dataclass(frozen=True)
class Round:
    """The round an iterated stage is in.

    Attributes
    ----------
    number : int
        The round to be worked on.
    missing : tuple of int
        Its parts that aren't there; empty when only its state is.
    """

    number: int
    missing: tuple[int, ...]


def round_folder(folder: str, number: int) -> str:
    """Name the folder of a round."""
    return f"{folder}/round-{number:04d}"


def find_round(look: Look, stage: Stage, folder: str) -> Round:
    """Find the round that comes after the newest whole state.

    What turns out to be damaged or missing is withdrawn, so that it is computed again.
    """
    keys = (key[len(folder) + 1 :] for key in look.sizes)
    states = {int(match[1]) for key in keys if (match := _STATE.fullmatch(key))}
    for number in sorted(states, reverse=True):
        if look.has(f"{round_folder(folder, number)}/state"):
            return _round_after(look, stage, folder, number)
    return Round(0, ())


def _round_after(look: Look, stage: Stage, folder: str, number: int) -> Round:
    """Find what comes after a state: the next round, or what that one would miss of the last."""
    if stage.reads_last_round and number > 0:
        lost = _missing(look, stage, folder, number)
        if lost.missing:
            needed = number < 2 or not _missing(look, stage, folder, number - 1).missing
            return lost if needed else Round(0, ())
    return _missing(look, stage, folder, number + 1)


def _missing(look: Look, stage: Stage, folder: str, number: int) -> Round:
    inside = round_folder(folder, number)
    missing = tuple(
        index for index in range(stage.partitions) if not look.has(f"{inside}/part-{index:05d}")
    )
    return Round(number, missing)


def sweep_rounds(store: ObjectStore, stage: Stage, folder: str, finished: int) -> None:
    """Remove what is of no more use once the state of a round, or the result, is there.

    Parameters
    ----------
    store : ObjectStore
        The job folder.
    stage : Stage
        The stage whose round it is.
    folder : str
        The stage's folder.
    finished : int
        The round that was finished.
    """
    inside = round_folder(folder, finished)
    going_on = f"{inside}/state.json" in store.keys(inside)
    if not going_on:
        store.remove_all(inside)
    kept = KEPT_STATES if stage.reads_last_round and going_on else 0
    for name in store.folders(folder):
        match = _ROUND.fullmatch(name)
        if match and int(match[1]) <= finished - KEPT_STATES:
            store.remove_all(f"{folder}/{name}")
        elif match and int(match[1]) <= finished - kept:
            _sweep_parts(store, f"{folder}/{name}")


def _sweep_parts(store: ObjectStore, inside: str) -> None:
    # Markers first: a part without its objects would look damaged, one without a marker absent.
    for key in store.keys(inside):
        if key.startswith(f"{inside}/part-") and key.endswith(".json"):
            store.remove(key)
    for name in store.folders(inside):
        if name.startswith("part-"):
            store.remove_all(f"{inside}/{name}")
