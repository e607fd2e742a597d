"""Objects of Kubernetes, created and removed: for the workers of a run, and for a driver.

They are plain data (:mod:`latentscale_pipeline.executors.dask.manifests`); kr8s, which is optional,
speaks with Kubernetes.
"""

from __future__ import annotations

import importlib
import time
from collections.abc import Mapping
from typing import Any

from latentscale_pipeline.errors import BadInput, Incomplete

DELETION_SECONDS = 60.0
"""How long an object of an earlier run may take to be deleted."""

LOOKING_SECONDS = 1.0
"""Between two looks at whether it is."""


def import_kr8s(setting: str) -> Any:
    """Return the library that speaks with Kubernetes.

    Parameters
    ----------
    setting : str
        What in the configuration asks for it, for the message.

    Raises
    ------
    BadInput
        If it isn't installed.
    """
    try:
        return importlib.import_module("kr8s.objects")
    except ImportError:
        raise BadInput(
            f"{setting} needs kr8s, which isn't installed; pip install 'latentscale[kubernetes]'"
        ) from None


def create_object(
    library: Any,
    manifest: Mapping[str, Any],
    *,
    deletion_seconds: float = DELETION_SECONDS,
    looking_seconds: float = LOOKING_SECONDS,
) -> None:
    """Create an object, in place of one of the same name that an earlier run has left.

    Kubernetes deletes in the background, and refuses a name that isn't free yet.

    Parameters
    ----------
    library : module
        From :func:`import_kr8s`.
    manifest : mapping
        The object.
    deletion_seconds : float
        How long an object of an earlier run may take to be deleted.
    looking_seconds : float
        Between two looks at whether it is.

    Raises
    ------
    Incomplete
        If the earlier one is still there after ``deletion_seconds``.
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
            time.sleep(looking_seconds)
    made.create()


def remove_object(library: Any, manifest: Mapping[str, Any]) -> None:
    """Ask Kubernetes to delete an object and what belongs to it, if it is there."""
    found = library.object_from_spec(dict(manifest), allow_unknown_type=True)
    if found.exists():
        found.delete(propagation_policy="Foreground")
