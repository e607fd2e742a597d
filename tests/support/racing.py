"""Racers for one key of an object store."""

import threading

from latentscale_pipeline.storage.objects import ObjectStore


def race_to_create(store: ObjectStore, key: str, racers: int) -> list[int]:
    """Let threads create the same object at once; return who was told that they did."""
    start = threading.Barrier(racers)
    won: list[int] = []

    def race(racer: int) -> None:
        start.wait()
        if store.create(key, f"racer {racer}".encode()):
            won.append(racer)

    threads = [threading.Thread(target=race, args=(i,)) for i in range(racers)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return won
