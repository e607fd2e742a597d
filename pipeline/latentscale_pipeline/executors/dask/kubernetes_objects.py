"""Create and delete Kubernetes objects, for the workers of a run and for a driver.

The objects are plain data (:mod:`latentscale_pipeline.executors.dask.manifests`). The client
library is kr8s, which is optional.
"""

from __future__ import annotations

import contextlib
import importlib
import time
from collections.abc import Mapping
from typing import Any

from latentscale_pipeline.errors import BadInput, Incomplete, how_to_install

DELETION_SECONDS = 60.0
"""How long an object of an earlier run may take to be deleted."""

FORBIDDEN = 403
"""Status of the answer to a request that one has no right to."""

POLL_SECONDS = 1.0
"""Pause between checks whether it is deleted."""


def import_kr8s(setting: str) -> Any:
    """Return kr8s, the client library for Kubernetes.

    Parameters
    ----------
    setting : str
        The setting that needs it, for the message.

    Raises
    ------
    BadInput
        If it isn't installed.
    """
    try:
        return importlib.import_module("kr8s.objects")
    except ImportError:
        raise BadInput(
            f"{setting} needs kr8s, which isn't installed; {how_to_install('kubernetes')}"
        ) from None


def create_object(
    library: Any,
    manifest: Mapping[str, Any],
    *,
    deletion_seconds: float = DELETION_SECONDS,
    poll_seconds: float = POLL_SECONDS,
) -> None:
    """Create an object, and replace one with the same name that an earlier run left.

    Kubernetes deletes in the background, and refuses a name that isn't free yet.

    Parameters
    ----------
    library : module
        The result of :func:`import_kr8s`.
    manifest : mapping
        The object.
    deletion_seconds : float
        How long the deletion of an earlier run's object may take.
    poll_seconds : float
        Pause between checks whether it is deleted.

    Raises
    ------
    Incomplete
        If the earlier object still exists after ``deletion_seconds``.
    """
    made = library.object_from_spec(dict(manifest), allow_unknown_type=True)
    if made.exists():
        remove_object(library, manifest)
        until = time.monotonic() + deletion_seconds
        while made.exists():
            if time.monotonic() > until:
                name = f"{manifest['kind']} {manifest['metadata']['name']}"
                raise Incomplete(
                    f"Kubernetes is still deleting the {name} of an earlier run; run the same "
                    "command again once it is gone"
                )
            time.sleep(poll_seconds)
    made.create()


def names_alike(library: Any, manifest: Mapping[str, Any], label: str) -> list[str]:
    """Return the names of the objects of a kind that have the same value of a label.

    There are none where one may not list them: the role of an earlier version doesn't allow it.
    """
    meta = manifest["metadata"]
    kind = type(library.object_from_spec(dict(manifest), allow_unknown_type=True))
    found = kind.list(namespace=meta["namespace"], label_selector={label: meta["labels"][label]})
    try:
        return [each.name for each in found]
    except importlib.import_module("kr8s").ServerError as error:
        if error.response is None or error.response.status_code != FORBIDDEN:
            raise
        return []


def remove_object(library: Any, manifest: Mapping[str, Any]) -> None:
    """Ask Kubernetes to delete an object and those that it owns, if it exists."""
    found = library.object_from_spec(dict(manifest), allow_unknown_type=True)
    with contextlib.suppress(importlib.import_module("kr8s").NotFoundError):
        found.delete(propagation_policy="Foreground")
