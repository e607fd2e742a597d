"""Functions that a configuration names by their import path: ``module:function``.

A configuration may come from anyone, so such a function is imported only if the person who starts
the job allows it (``--allow-code``). :func:`refuse_code` is called before every plan.
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
        If there is no such module or function.
    """
    module, _, name = path.partition(":")
    try:
        found = getattr(importlib.import_module(module), name)
    except ImportError as error:
        raise BadInput(f"{path}: {error}; {_WHERE}") from None
    except AttributeError:
        raise BadInput(f"{path}: the module {module} has no {name}; check the name") from None
    if not callable(found):
        raise BadInput(f"{path} is a {type(found).__name__}; name a function")
    return found  # type: ignore[no-any-return]


def source_checksum(path: str) -> str:
    """Return the checksum of a function's source file, so that a changed version is noticed.

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
