"""List what the result of a stage depends on, and hash it to the stage's key.

A result depends on the stage's parameters and inputs, on the code that computes it, and on the
versions of libraries whose numbers may differ between releases. A change to a docstring, a comment
or the code of another measure changes no key.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from functools import cache
from importlib import metadata
from pathlib import Path
from types import FunctionType
from typing import Any

from latentscale_pipeline.engine.code_closure import PACKAGES, code_closure, package_folders
from latentscale_pipeline.engine.stage import Stage, Work
from latentscale_pipeline.storage.canonical import digest

LIBRARIES = ("numpy", "scipy", "numba", "pynndescent")
"""Libraries whose version is part of every key."""


@cache
def code_version() -> str:
    """Hash every source file of the project, for provenance and for comparing workers.

    Stage keys don't depend on it; see :func:`stage_dependencies`.
    """
    hasher = hashlib.sha256()
    for folder in (Path(place) for package in PACKAGES for place in package_folders(package)):
        for file in sorted(folder.rglob("*.py")):
            path = file.relative_to(folder.parent).as_posix()
            hasher.update(path.encode() + b"\0" + file.read_bytes())
    return hasher.hexdigest()[:16]


@cache
def library_versions() -> dict[str, str]:
    """Return the installed version of each of :data:`LIBRARIES`."""
    return {name: metadata.version(name) for name in LIBRARIES}


def stage_code(stage: Stage) -> dict[str, str]:
    """Return the digests of the code that computes a stage, by module; see :func:`code_closure`."""
    return code_closure([module for work in _works(stage) for module in _modules_of(work)])


def work_modules(stages: Sequence[Stage]) -> set[str]:
    """Return the modules of this project that define the work of stages."""
    works = [work for stage in stages for work in _works(stage)]
    modules = {module for work in works for module in _modules_of(work)}
    return {module for module in modules if module.partition(".")[0] in PACKAGES}


def _works(stage: Stage) -> list[Work]:
    return [work for work in (stage.work, stage.finalise, stage.advance) if work is not None]


def _modules_of(work: Work) -> list[str]:
    """Return the modules of a function; for a callable object those of its class and ``modules``.

    A callable object lists in ``modules`` what it calls besides the imports of its class.
    """
    modules = [work.__module__]
    if not isinstance(work, FunctionType):
        modules += [type(work).__module__, *getattr(work, "modules", ())]
    return modules


def code_by_digest(stages: Sequence[Stage]) -> dict[str, dict[str, str]]:
    """Return the code of stages, by the digest that a stage's ``code`` field refers to."""
    return {code_digest(code): code for code in map(stage_code, stages)}


def code_digest(code: Mapping[str, str]) -> str:
    """Hash the digests of modules to sixteen hexadecimal digits."""
    return digest(code)[:16]


def work_name(work: Work) -> str:
    """Return the qualified name of a stage's function."""
    return f"{work.__module__}.{work.__qualname__}"


def stage_dependencies(
    stages: Sequence[Stage],
    fingerprints: Mapping[str, str],
    layouts: Mapping[str, str] | None = None,
) -> dict[str, dict[str, Any]]:
    """List everything that the result of every stage depends on, as JSON.

    Parameters
    ----------
    stages : sequence of Stage
        The stages, each after those that it needs.
    fingerprints : mapping
        Fingerprint of each corpus by its role.
    layouts : mapping, optional
        Digest of the shards of each corpus by its role. Equal rows may lie in other shards, and
        then the parts of a stage with several of them are about other rows.

    Returns
    -------
    dict
        By stage name, the input of :func:`stage_key`. ``needs`` holds the keys of the stages that
        a stage needs.

    Raises
    ------
    ValueError
        If a name occurs twice, or a stage precedes one that it needs.
    """
    found: dict[str, dict[str, Any]] = {}
    for stage in stages:
        missing = [name for name in stage.needs if name not in found]
        if missing or stage.name in found:
            raise ValueError(f"stage {stage.name}: out of order or duplicate (needs {missing})")
        found[stage.name] = {
            "stage": stage.name,
            "work": work_name(stage.work),
            "iterated": stage.advance is not None,
            "partitions": stage.partitions,
            "parameters": dict(stage.parameters),
            "seed": stage.seed,
            "needs": {name: stage_key(found[name]) for name in stage.needs},
            "corpora": {role: fingerprints[role] for role in stage.corpora},
            "code": code_digest(stage_code(stage)),
            "versions": library_versions(),
        }
        if layouts and stage.corpora and stage.partitions > 1:
            found[stage.name]["layouts"] = {role: layouts[role] for role in stage.corpora}
    return found


def stage_key(dependencies: Mapping[str, Any]) -> str:
    """Hash everything that a stage's result depends on to sixteen hexadecimal digits."""
    return digest(dependencies)[:16]


def stage_keys(stages: Sequence[Stage], fingerprints: Mapping[str, str]) -> dict[str, str]:
    """Return the key of every stage by name; see :func:`stage_dependencies`."""
    found = stage_dependencies(stages, fingerprints)
    return {name: stage_key(dependencies) for name, dependencies in found.items()}


def part_keys(stage: Stage) -> tuple[str, ...]:
    """Return the keys of a stage's parts that have ``part_inputs``; empty if the stage has none."""
    if not stage.part_inputs:
        return ()
    common = {
        "work": work_name(stage.work),
        "code": code_digest(stage_code(stage)),
        "versions": library_versions(),
    }
    return tuple(digest({**common, "inputs": inputs})[:16] for inputs in stage.part_inputs)
