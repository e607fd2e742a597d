"""URLs: their file system, storage options, and how to show them without secrets.

Options of a kind of storage (an endpoint, a region, credentials) come from the environment, as its
own library reads it, from fsspec's (``FSSPEC_S3_ENDPOINT_URL=…``), or from the configuration of a
job. They are never stored, and no message or record holds more of a URL than what names a place.
"""

from __future__ import annotations

import copy
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any
from urllib.parse import urlsplit, urlunsplit

import fsspec

from latentscale_pipeline.errors import BadInput, first_line

Options = Mapping[str, Mapping[str, Any]]
"""Options of the kinds of storage, by protocol (``s3``, ``gs``, ``az``, …)."""

EXTRAS = {
    **dict.fromkeys(("s3", "s3a"), "s3"),
    **dict.fromkeys(("gs", "gcs"), "gs"),
    **dict.fromkeys(("az", "abfs", "abfss"), "az"),
}
"""The extra that installs what a protocol needs."""

_CREDENTIALS = re.compile(
    r"(\w[\w+.-]*://)(?:[^/\s@:]+:\S*@|[^/\s]*@)?([^\s?#'\"]*)([?#][^\s'\"]*)?"
)
_OVERRIDE = re.compile(r"^((?:-o)?\s*storage_options[^=]*=).*", re.DOTALL)


def open_url(url: str) -> tuple[Any, str]:
    """Return the fsspec file system of a path or URL, and the path within it.

    Raises
    ------
    BadInput
        If its protocol is unknown, or what it needs isn't installed or can't be set up.
    """
    shown = strip_credentials(url)
    try:
        fs, path = fsspec.core.url_to_fs(url, **_settled(url))
    except ImportError as error:
        protocol = urlsplit(url).scheme
        extra = EXTRAS.get(protocol)
        hint = f"pip install 'latentscale[{extra}]'" if extra else without_credentials(str(error))
        raise BadInput(f"{shown}: what {protocol}:// needs isn't installed; {hint}") from None
    except (ValueError, TypeError) as error:
        reason = without_credentials(first_line(error))
        raise BadInput(f"{shown}: can't open this kind of URL ({reason})") from None
    return fs, str(path)


@contextmanager
def storage_options(options: Options) -> Iterator[None]:
    """Reach storage with these options for the time of a ``with`` block.

    They are fsspec's defaults meanwhile, above those of the environment: whatever opens a URL, be
    it a library, uses them.

    Raises
    ------
    BadInput
        If there is no such protocol.
    """
    for protocol in options:
        if protocol not in fsspec.available_protocols():
            raise BadInput(
                f"storage_options.{protocol}: no such kind of storage; name one such as s3 or gs"
            )
    before = options_in_force()
    use_options(options)
    try:
        yield
    finally:
        fsspec.config.conf.clear()
        fsspec.config.conf.update(before)


def use_options(options: Options) -> None:
    """Reach storage with these options from now on, in this process."""
    for protocol, values in options.items():
        fsspec.config.conf.setdefault(protocol, {}).update(copy.deepcopy(dict(values)))


def options_in_force() -> dict[str, dict[str, Any]]:
    """Return the options that storage is reached with, for another process."""
    return copy.deepcopy(dict(fsspec.config.conf))


def strip_credentials(url: str) -> str:
    """Remove user info, query string and fragment from a URL; paths are left as they are."""
    parts = urlsplit(url)
    if not parts.scheme or "://" not in url:
        return url
    host = parts.netloc.rpartition("@")[2]
    return urlunsplit((parts.scheme, host, parts.path, "", ""))


def without_credentials(value: Any) -> Any:
    """Return a JSON value whose texts hold no user info and no query string of any URL.

    Rather too much is removed than too little: a password may hold slashes. Of an assignment to
    ``storage_options`` only the name is left.
    """
    if isinstance(value, str):
        return _OVERRIDE.sub(r"\1…", _CREDENTIALS.sub(r"\1\2", value))
    if isinstance(value, Mapping):
        return {key: without_credentials(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [without_credentials(item) for item in value]
    return value


def _settled(url: str) -> dict[str, Any]:
    # A listing remembered from before another process wrote is a wrong listing.
    remote = "://" in url and not url.startswith(("file://", "memory://"))
    return {"use_listings_cache": False} if remote else {}
