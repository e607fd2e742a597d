"""A complete job file, with what each key means above it."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterator, Mapping
from typing import Any

import yaml
from pydantic import BaseModel

from latentscale_pipeline.config.attribute_docstrings import attribute_docstrings
from latentscale_pipeline.config.job import JobConfig
from latentscale_pipeline.config.sizes import format_size

LINE_WIDTH = 100
"""Characters of a line, unless one word is longer."""

_FIRST = ("name", "corpus", "reference", "output", "measures", "cluster")
"""Keys that people change most; the others follow."""


def format_job_file(config: JobConfig, keys: Mapping[str, Any]) -> str:
    """Return a job file in YAML that stands for a configuration.

    Parameters
    ----------
    config : JobConfig
        The configuration, with its measures resolved.
    keys : mapping
        Its keys as plain values.
    """
    sections: dict[str, Any] = {"cluster": config.cluster, "driver": config.driver}
    lines: list[str] = []
    for key in sorted(keys, key=lambda key: _FIRST.index(key) if key in _FIRST else len(_FIRST)):
        value = keys[key]
        lines += ["", *_comment(config, key, "")]
        if key == "measures":
            lines.append("measures:")
            for name, section in value.items():
                lines.append(f"  {name}:")
                lines += _section(config.measures[name], section, "    ")
        elif key in sections:
            lines += [f"{key}:", *_section(sections[key], value, "  ")]
        else:
            lines += _entry(key, value, "")
    return "\n".join(lines[1:]) + "\n"


def _section(model: BaseModel, values: Mapping[str, Any], indent: str) -> Iterator[str]:
    """Yield the lines of a section, each key below its meaning."""
    for key in sorted(values, key=lambda key: key != "kind"):
        yield from _comment(model, key, indent)
        yield from _entry(key, values[key], indent)


def _comment(model: BaseModel, key: str, indent: str) -> list[str]:
    """Return the first sentence of a key's description."""
    described = " ".join(attribute_docstrings(type(model)).get(key, "").split())
    sentence = re.split(r"(?<=[.;]) ", described.replace("`", ""))[0].rstrip(".;")
    start = f"{indent}# "
    return textwrap.wrap(
        sentence, LINE_WIDTH, initial_indent=start, subsequent_indent=start, break_on_hyphens=False
    )


def _entry(key: str, value: Any, indent: str) -> list[str]:
    if key == "memory_limit":
        value = format_size(value)
    text = yaml.safe_dump(
        {key: value},
        sort_keys=False,
        allow_unicode=True,
        default_flow_style=None if isinstance(value, dict | list) else False,
        width=LINE_WIDTH - len(indent),
    )
    return [indent + line for line in text.splitlines()]
