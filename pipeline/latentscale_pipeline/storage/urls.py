"""URLs: their file systems, storage options, and display without secrets.

Options of a storage protocol (endpoint, region, credentials) come from the environment variables of
its library, those of fsspec (``FSSPEC_S3_ENDPOINT_URL=…``), or the configuration of a job. They are
never stored. Messages and records contain URLs without user info, query string and fragment. Keys
of object stores may have a ``?`` or ``#`` in them: there these are what has a ``=``.
"""

from __future__ import annotations

import copy
import os
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any
from urllib.parse import SplitResult, urlsplit, urlunsplit

import fsspec
from fsspec.archive import AbstractArchiveFileSystem
from fsspec.implementations.local import LocalFileSystem

from latentscale_pipeline.errors import BadInput, first_line, how_to_install

Options = Mapping[str, Mapping[str, Any]]
"""Storage options by protocol (``s3``, ``gs``, ``az``, …)."""

EXTRAS = {
    **dict.fromkeys(("s3", "s3a"), "s3"),
    **dict.fromkeys(("gs", "gcs"), "gs"),
    **dict.fromkeys(("az", "abfs", "abfss"), "az"),
    "hf": "hf",
}
"""The package extra that installs the library of each protocol."""

STORES = frozenset({"s3", "s3a", "gs", "gcs", "az", "abfs", "abfss", "memory"})
"""Protocols of object stores, in whose keys a ``?`` and a ``#`` are signs like any others."""

_CREDENTIALS = re.compile(
    r"(\w[\w+.-]*://)(?:[^/\s@:]+:\S*@|[^/\s]*@)?([^\s?#'\"]*)([?#][^\s'\"]*)?"
)
_OVERRIDE = re.compile(
    r"^((?:-o)?\s*(?:[\w.]*storage_options\b[\w.]*=|[\w.]+=(?=\s*\{.*\bstorage_options\b))).*",
    re.DOTALL,
)
_SIGNED_WITH = ("x-amz-", "x-goog-", "x-oss-")
_SIGNATURE = frozenset(
    (
        *("awsaccesskeyid", "googleaccessid", "ossaccesskeyid", "key-pair-id"),
        *("signature", "expires", "policy", "sig"),
    )
)
_SHARED_ACCESS = frozenset(  # short names, which others may use without "sig"
    (
        *("sv", "ss", "st", "se", "sr", "sp", "srt", "sip", "spr", "sdd"),
        *("skoid", "sktid", "skt", "ske", "sks", "skv", "saoid", "suoid", "scid"),
    )
)
_CHAINED = re.compile(r"::(?=[\w+.-]+://)")


def open_url(url: str) -> tuple[Any, str]:
    """Return the fsspec file system of a path or URL, and the path within it.

    Raises
    ------
    BadInput
        If its protocol is unknown, or the protocol's library isn't installed, can't start, or
        refuses the URL.
    """
    shown = strip_credentials(url)
    if "://" not in url and "::" in url:  # in a path, these are signs like any others
        return LocalFileSystem(), os.path.abspath(url)
    try:
        fs, path = fsspec.core.url_to_fs(url, **_settled(url))
    except ImportError as error:
        protocol = urlsplit(url).scheme
        extra = EXTRAS.get(protocol)
        hint = how_to_install(extra) if extra else without_credentials(str(error))
        raise BadInput(f"{shown}: the library for {protocol}:// isn't installed; {hint}") from None
    except (ValueError, TypeError, OSError) as error:
        if isinstance(error, OSError) and "://" not in url:
            raise  # the folder that relative paths begin at is gone
        reason = first_line(error, without_credentials)
        raise BadInput(f"{shown}: can't open this kind of URL ({reason}); check it") from None
    return fs, str(path)


@contextmanager
def storage_options(options: Options) -> Iterator[None]:
    """Use storage options during a ``with`` block.

    They become fsspec's defaults and override those of the environment, so that every library that
    opens a URL uses them. They hold for the whole process: blocks with different options of one
    protocol must not overlap.

    Raises
    ------
    BadInput
        If a protocol is unknown.
    """
    for protocol in options:
        if protocol not in fsspec.available_protocols():
            raise BadInput(
                f"storage_options.{protocol}: unknown protocol; use one such as s3 or gs"
            )
    # Only these protocols are put back: another thread may use options of others.
    before = {name: values for name, values in options_in_force().items() if name in options}
    use_options(options)
    try:
        yield
    finally:
        for protocol in options:
            fsspec.config.conf.pop(protocol, None)
        fsspec.config.conf.update(before)


def use_options(options: Options) -> None:
    """Use storage options in this process from now on."""
    for protocol, values in options.items():
        fsspec.config.conf.setdefault(protocol, {}).update(copy.deepcopy(dict(values)))


def options_in_force() -> dict[str, dict[str, Any]]:
    """Return the current storage options, to pass them to another process."""
    return copy.deepcopy(dict(fsspec.config.conf))


def is_archive(fs: Any) -> bool:
    """Return whether a file system is that of the files within an archive."""
    return isinstance(fs, AbstractArchiveFileSystem)


def has_query(url: str) -> bool:
    """Return whether a web address has a query string, so that nothing can lie below it."""
    return url.lower().startswith(("http://", "https://")) and "?" in url


def unsigned_query(url: str) -> str:
    """Return the query string of a web address without the parameters that sign it.

    It may hold other secrets, so it must not be shown or stored.
    """
    if not has_query(url):
        return ""
    named = [(part.partition("=")[0].lower(), part) for part in urlsplit(url).query.split("&")]
    signs = _SIGNATURE | (_SHARED_ACCESS if "sig" in dict(named) else frozenset())
    return "&".join(
        part for name, part in named if name not in signs and not name.startswith(_SIGNED_WITH)
    )


def strip_credentials(url: str) -> str:
    """Remove user info and query string from a URL; paths are returned unchanged."""
    return "::".join(map(_strip_one, _CHAINED.split(url)))


def _strip_one(url: str) -> str:
    try:
        parts = urlsplit(url)
    except ValueError:  # brackets that hold no address
        return str(without_credentials(url))
    if not parts.scheme or "://" not in url:
        return url
    after = "".join(parts[2:])
    hidden = "@" in parts.query + parts.fragment or not _has_valid_port(parts)
    if "@" in after and "@" not in parts.netloc and hidden:
        return str(without_credentials(url))  # a password with a slash, or another sign
    host = parts.netloc.rpartition("@")[2]
    rest = _without_query(parts.scheme, url[_end_of_path(url) :])
    return urlunsplit((parts.scheme, host, parts.path, "", "")) + rest


def _without_query(protocol: str, rest: str) -> str:
    """Return what a key goes on with after a ``?`` or ``#``; empty if that may be a secret."""
    return rest if protocol.lower() in STORES and "=" not in rest else ""


def _end_of_path(url: str) -> int:
    """Return where a query string or a fragment begins."""
    return min(found if (found := url.find(sign)) >= 0 else len(url) for sign in "?#")


def _has_valid_port(parts: SplitResult) -> bool:
    try:
        return parts.port is not None or ":" not in parts.netloc
    except ValueError:
        return False


def _without_secrets(found: re.Match[str]) -> str:
    protocol, path, rest = found.group(1, 2, 3)
    return str(protocol + path + _without_query(protocol[:-3], rest or ""))


def without_credentials(value: Any) -> Any:
    """Return a JSON value with user info and query strings removed from all URLs in its texts.

    It removes too much rather than too little, because a password may contain slashes. Of an
    assignment to ``storage_options`` only the name is left.
    """
    if isinstance(value, str):
        return _OVERRIDE.sub(r"\1…", _CREDENTIALS.sub(_without_secrets, value))
    if isinstance(value, Mapping):
        return {key: without_credentials(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [without_credentials(item) for item in value]
    return value


def _settled(url: str) -> dict[str, Any]:
    # A cached listing is wrong once another process has written.
    remote = "://" in url and not url.startswith(("file://", "memory://"))
    return {"use_listings_cache": False} if remote else {}
