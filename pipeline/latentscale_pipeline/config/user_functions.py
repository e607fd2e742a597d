"""Functions that a configuration names by their import path: ``module:function``.

A configuration may come from anyone, so such a function is imported only if the person who starts
the job allows it (``--allow-code``). :func:`refuse_code` is called before every plan.

A module whose file has changed since it was imported is imported again, as in a notebook where
somebody works on the function.
"""

from __future__ import annotations

import importlib
import importlib.util
import re
import sys
import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from types import ModuleType
from typing import Any

import xxhash
from psutil import Process

from latentscale_pipeline.config.section import Section
from latentscale_pipeline.errors import BadInput, first_line

_WHERE = "install it, or name its folder in PYTHONPATH, for the workers too"

_CHECKSUM = "__latentscale_checksum__"
"""Attribute of a module: the checksum of its file when it was imported."""

_IMPORTING = threading.Lock()


def refuse_code(measures: Mapping[str, Section], *, allowed: bool) -> None:
    """Refuse a job that names user functions, unless they are allowed.

    Raises
    ------
    BadInput
        If there are any; the message names them.
    """
    named = {code: measure for measure, section in measures.items() for code in section.code}
    if named and not allowed:
        code, measure = next(iter(named.items()))
        raise BadInput(
            f"measures.{measure}: the job would run {', '.join(named)}; check that code and add "
            f"--allow-code, or remove {code} from the configuration"
        )


def load_function(path: str) -> Callable[..., Any]:
    """Import a function by its path ``module:function``.

    Raises
    ------
    BadInput
        If there is no such module or function, or the module can't be imported.
    """
    module, _, name = path.partition(":")
    try:
        found = getattr(_import_module(module, _find_file(path)), name, None)
    except BadInput:
        raise
    except ImportError as error:
        raise BadInput(f"{path}: {error}; {_WHERE}") from None
    except (Exception, SystemExit) as error:
        raised = f"{type(error).__name__}: {first_line(error)}"
        raise BadInput(f"{path}: its module can't be imported ({raised}); correct it") from error
    if found is None:
        raise BadInput(f"{path}: the module {module} has no {name}; check the name")
    if not callable(found):
        raise BadInput(f"{path} is a {type(found).__name__}; name a function")
    return found  # type: ignore[no-any-return]


def _import_module(name: str, file: Path) -> ModuleType:
    """Import a module, or run its file again if that has changed."""
    with _IMPORTING:
        source, known = file.read_bytes(), sys.modules.get(name)
        checksum, seen = xxhash.xxh3_128_hexdigest(source), getattr(known, _CHECKSUM, None)
        if known is not None and seen == checksum:
            return known
        if file.suffix != ".py":
            module = importlib.import_module(name)
        elif known is None:
            module = _run_first(name, file, source)
        else:
            module = known
            # Others imported it, so only a file that is newer than the process can differ.
            if seen or file.stat().st_mtime > Process().create_time():
                _run(module, file, source)
        setattr(module, _CHECKSUM, checksum)
        return module


def _run_first(name: str, file: Path, source: bytes) -> ModuleType:
    spec = importlib.util.spec_from_file_location(name, file)
    if spec is None:
        raise ImportError(f"{file} can't be imported")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    try:
        _run(module, file, source)
    except BaseException:
        sys.modules.pop(name, None)
        raise
    module = sys.modules.get(name, module)  # it may put another in its place
    package, _, own = name.rpartition(".")
    if package:
        setattr(sys.modules[package], own, module)
    return module


def _run(module: ModuleType, file: Path, source: bytes) -> None:
    # Not by importing: of a file of the same size and second, Python takes what it compiled before.
    exec(compile(source, file, "exec"), vars(module))  # noqa: S102 -- allowed by the user


def source_checksum(path: str) -> str:
    """Return the checksum of the source file that a function was imported from.

    Raises
    ------
    BadInput
        If there is no such module or function, or the module isn't in a file.
    """
    load_function(path)
    return str(getattr(sys.modules[path.partition(":")[0]], _CHECKSUM))


def _find_file(path: str) -> Path:
    """Return the file of a function's module."""
    module = path.partition(":")[0]
    importlib.invalidate_caches()  # the file may be new
    try:
        spec = importlib.util.find_spec(module)
    except ImportError as error:  # of the packages around it
        raise BadInput(f"{path}: {error}; {_WHERE}") from None
    except ValueError:  # that of a notebook, or of a script that is run
        spec = None
    else:
        if spec is None:
            raise BadInput(f"{path}: No module named {module!r}; {_WHERE}")
    if spec is None or spec.origin is None or not Path(spec.origin).is_file():
        raise BadInput(f"{path}: its module isn't in a file; move the function to one")
    return Path(spec.origin)


CODE = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)*:[A-Za-z_]\w*")
"""A function by its import path."""
