"""Functions that a configuration names by their import path: ``module:function``.

A configuration may come from anyone, so such a function is imported only where the person who
starts the job has allowed it (``--allow-code``): :func:`refuse_code` stands before every plan.
"""

from __future__ import annotations

import importlib
import importlib.util
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import xxhash

from latentscale_pipeline.config.section import Section
from latentscale_pipeline.errors import BadInput


def refuse_code(measures: Mapping[str, Section], *, allowed: bool) -> None:
    """Refuse a job that names code where that isn't allowed.

    Raises
    ------
    BadInput
        Naming the functions.
    """
    named = {code: measure for measure, section in measures.items() for code in section.code}
    if named and not allowed:
        code, measure = next(iter(named.items()))
        raise BadInput(
            f"measures.{measure} names code, {', '.join(named)}, which would be run; read it, then "
            f"say --allow-code, or leave {code} out"
        )


def load_function(path: str) -> Callable[..., Any]:
    """Import a function.

    Raises
    ------
    BadInput
        If there is no such module or function.
    """
    module, _, name = path.partition(":")
    try:
        found = getattr(importlib.import_module(module), name)
    except ImportError as error:
        raise BadInput(f"{path}: {error}; {_WHERE}") from None
    except AttributeError:
        raise BadInput(f"{path}: the module {module} has no {name}") from None
    if not callable(found):
        raise BadInput(f"{path} is a {type(found).__name__}, not a function")
    return found  # type: ignore[no-any-return]


def source_checksum(path: str) -> str:
    """Checksum of the file that a function's module is in, so that another version is noticed.

    Raises
    ------
    BadInput
        If there is no such module or function.
    """
    load_function(path)
    spec = importlib.util.find_spec(path.partition(":")[0])
    if spec is None or spec.origin is None or not Path(spec.origin).is_file():
        raise BadInput(f"{path}: its module isn't in a file; {_WHERE}")
    return xxhash.xxh3_128_hexdigest(Path(spec.origin).read_bytes())


_WHERE = "install it, or name its folder in PYTHONPATH, for the workers too"


CODE = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)*:[A-Za-z_]\w*")
"""A function by its import path."""
