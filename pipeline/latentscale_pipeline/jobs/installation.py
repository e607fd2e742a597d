"""Examine this installation: libraries, extras, batch systems, memory and disks of this machine.

What an extra consists of is read from the package's metadata. Libraries are imported by name and
only those that every job needs, so a broken one is told and not met.
"""

from __future__ import annotations

import importlib
import importlib.metadata
import os
import platform
import re
import shutil
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import psutil

from latentscale_pipeline.errors import first_line, how_to_install
from latentscale_pipeline.jobs.machine import memory_bytes, usable_cores
from latentscale_pipeline.views.formatting import format_bytes

PACKAGE = "latentscale"

IMPORTED = ("numpy", "scipy", "numba", "dask", "zarr")
"""Libraries of compiled code, or of code that depends on versions of others: imported to see."""

FOR_DEVELOPERS = {"docs", "test"}
"""Extras that no user needs."""

KUBERNETES_PLACES = ("~/.kube/config", "/var/run/secrets/kubernetes.io/serviceaccount/token")
"""Where clients of Kubernetes look for a cluster, unless ``KUBECONFIG`` is set."""

SPLITMIX_WORD, SPLITMIX_HASH = 0x9E3779B97F4A7C15, 0xE220A8397B1DCDAF
"""The first output of SplitMix64 with seed 0, as published, and what it is the hash of."""

State = Literal["yes", "no", "broken"]


@dataclass(frozen=True)
class Finding:
    """What is known of one part of the installation.

    Attributes
    ----------
    part : str
        A library, an extra, or something of this machine.
    state : str
        ``yes``: it is here; ``no``: it is missing and some jobs need it; ``broken``: every job
        needs it.
    found : str
        Its version or size, or what is wrong.
    remedy : str
        What to do about it; empty if nothing has to be done.
    """

    part: str
    state: State
    found: str
    remedy: str = ""


def examine_installation() -> list[Finding]:
    """Return what is here and what is missing, in the order of the table."""
    needed = list(_needed())
    return [
        Finding("python", "yes", f"{platform.python_version()}, {platform.platform(terse=True)}"),
        *needed,
        *_machine(),
        *_extras(),
        *(() if any(finding.state == "broken" for finding in needed) else _batch_systems()),
        _kubernetes(),
    ]


def _needed() -> Iterator[Finding]:
    for name in sorted(_requirements(None)):
        if name not in IMPORTED and _version(name) is None:
            yield Finding(name, "broken", "not installed", f"pip install {name}")
    for name in IMPORTED:
        yield _imported(name)
    yield from _compiled()


def _imported(name: str) -> Finding:
    try:
        library = importlib.import_module(name)
        details = [str(library.__version__), *(_blas() if name == "numpy" else ())]
    except Exception as error:  # noqa: BLE001 -- a broken library may raise anything
        repair = f"pip install --force-reinstall {name}"
        return Finding(name, "broken", f"can't be imported ({first_line(error)})", repair)
    return Finding(name, "yes", ", ".join(details))


def _blas() -> Iterator[str]:
    from threadpoolctl import threadpool_info

    for library in threadpool_info():
        if library["user_api"] == "blas":
            yield f"{library['internal_api']} {library['version'] or 'of unknown version'}"


def _compiled() -> Iterator[Finding]:
    """Run a compiled function of the mathematics, and look at where it is kept."""
    advice = "set NUMBA_CACHE_DIR to a folder that can be written"
    try:
        import numpy as np

        from latentscale.tiles.top_lists import mixed

        with np.errstate(over="ignore"):  # without compilation numpy multiplies, and warns
            right = int(mixed(np.uint64(SPLITMIX_WORD))) == SPLITMIX_HASH
    except Exception as error:  # noqa: BLE001 -- compilation may raise anything
        repair = advice if "cache" in str(error) else "pip install --force-reinstall numba llvmlite"
        yield Finding("compiled code", "broken", f"fails ({first_line(error)})", repair)
        return
    if not right:
        repair = "pip install --force-reinstall numba llvmlite"
        yield Finding("compiled code", "broken", "computes wrong numbers", repair)
    elif not hasattr(mixed, "stats"):
        yield Finding("compiled code", "no", "switched off", "unset NUMBA_DISABLE_JIT")
    else:
        yield Finding("compiled code", "yes", "a compiled function runs")
        cache = mixed.stats.cache_path
        kept = cache is not None and _writable(Path(cache))
        found = "can be written" if kept else "can't be written, so every start compiles again"
        yield Finding("compiled cache", "yes" if kept else "no", found, "" if kept else advice)


def _machine() -> Iterator[Finding]:
    # All operations of latentscale.tiles.device run on cores; there is no other device to choose.
    yield Finding("gpu", "no", "never used: all tiles are computed on cores")
    free = psutil.virtual_memory().available
    memory = f"{format_bytes(memory_bytes())}, {format_bytes(free)} available"
    yield Finding("memory", "yes", f"{memory}, {usable_cores()} cores")
    try:
        yield _disk("temporary files", tempfile.gettempdir())
    except OSError:
        advice = "set TMPDIR to a folder that can be written"
        yield Finding("temporary files", "no", "no folder for them can be written", advice)
    yield _disk("this folder", ".")


def _disk(part: str, folder: str) -> Finding:
    try:
        free, writable = shutil.disk_usage(folder).free, _writable(Path(folder))
    except OSError as error:
        return Finding(part, "no", error.strerror or "can't be read", "use another folder")
    if not free:
        return Finding(part, "no", "the disk is full", "free some space")
    if not writable:
        found = f"{format_bytes(free)} free, but can't be written"
        return Finding(part, "no", found, "write elsewhere")
    return Finding(part, "yes", f"{format_bytes(free)} free")


def _extras() -> Iterator[Finding]:
    """Return what the optional parts of the package need, as its metadata says."""
    for extra in importlib.metadata.metadata(PACKAGE).get_all("Provides-Extra") or ():
        if extra in FOR_DEVELOPERS:
            continue
        versions = {name: _version(name) for name in _requirements(extra)}
        missing = [name for name, version in versions.items() if version is None]
        if missing:
            yield Finding(extra, "no", f"{', '.join(missing)} missing", how_to_install(extra))
        else:
            said = (f"{name} {version}" for name, version in versions.items())
            yield Finding(extra, "yes", ", ".join(said))


def _requirements(extra: str | None) -> list[str]:
    """Return the distributions that an extra, or the package itself, requires."""
    marker = None if extra is None else re.compile(rf"extra\s*==\s*['\"]{re.escape(extra)}['\"]")
    names = []
    for requirement in importlib.metadata.requires(PACKAGE) or ():
        wanted, _, condition = requirement.partition(";")
        if marker.search(condition) if marker else "extra" not in condition:
            names.append(re.split(r"[^\w.-]", wanted.strip(), maxsplit=1)[0])
    return names


def _version(distribution: str) -> str | None:
    try:
        return importlib.metadata.version(distribution)
    except importlib.metadata.PackageNotFoundError:
        return None


def _batch_systems() -> Iterator[Finding]:
    from latentscale_pipeline.executors.dask.batch import SYSTEMS

    for system, (_, command) in SYSTEMS.items():
        here = shutil.which(command) is not None
        yield Finding(
            system,
            "yes" if here else "no",
            f"{command} is here" if here else f"no {command}",
            "" if here else "submit from a machine that has it",
        )


def _kubernetes() -> Finding:
    places = os.environ.get("KUBECONFIG", "").split(os.pathsep)
    if any(Path(place).expanduser().is_file() for place in (*places, *KUBERNETES_PLACES) if place):
        return Finding("kubeconfig", "yes", "a cluster is configured")
    return Finding("kubeconfig", "no", "none", "kubectl config, or run inside a cluster")


def _writable(folder: Path) -> bool:
    """Return whether files can be made in a folder, or in one that would be created for them."""
    there = next(place for place in (folder, *folder.absolute().parents) if place.exists())
    return there.is_dir() and os.access(there, os.W_OK | os.X_OK)
