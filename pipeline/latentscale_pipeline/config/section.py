"""The base class of configuration sections, and validation with one-line messages."""

from __future__ import annotations

import difflib
import math
import re
from collections.abc import Iterable, Mapping, Sequence
from datetime import date
from itertools import pairwise
from typing import Annotated, Any, ClassVar, Literal, TypeVar, get_args

import yaml
from pydantic import BaseModel, Field, ValidationError, ValidationInfo
from pydantic_core import ErrorDetails

from latentscale_pipeline.config.cluster import CLUSTERS, Closed
from latentscale_pipeline.errors import BadInput

Model = TypeVar("Model", bound=BaseModel)
Value = TypeVar("Value")


Auto = Literal["auto"]
Metric = Literal["euclidean", "cosine", "manhattan"]
Fraction = Annotated[float, Field(ge=0.0, le=1.0)]
Tolerance = Annotated[float, Field(gt=0.0, lt=1.0)]
Length = Annotated[float, Field(ge=1e-100, le=1e100)]
"""A positive distance whose square neither overflows nor underflows."""


WANTED = "Input should be "
"""How pydantic begins what a value must be."""

PLAIN = {
    "a valid integer": "a whole number",
    "a valid number": "a number",
    "a valid boolean": "true or false",
    "a valid string": "text",
    "a valid dictionary": "a mapping of keys",
    "a valid dictionary or object to extract fields from": "a mapping of keys",
    "a valid list": "a list",
    "a valid tuple": "a list",
}
"""Words of pydantic, and those of this program."""

READ = {
    *("int_type", "int_parsing", "int_from_float", "int_parsing_size"),
    *("float_type", "float_parsing", "bool_type", "bool_parsing"),
}
"""Mistakes in what is one number or one truth value, which is no secret."""

LISTS = {"list_type", "tuple_type"}

TINY = 1e-50
"""A limit below it only keeps squares from underflowing."""


class Section(Closed):
    """A section of the configuration. The class variables matter only for measures."""

    compares: ClassVar[bool] = False
    """Whether a measure with this section needs a reference."""

    by_default: ClassVar[bool] = True
    """Whether a measure with this section runs if a job names no measures."""

    equal_dimensions: ClassVar[bool] = False
    """Whether a measure with this section compares two corpora coordinate by coordinate."""

    of_many: ClassVar[bool] = False
    """Whether a measure with this section runs for every two of many corpora if none is named."""

    row_by_row: ClassVar[bool] = False
    """Whether a measure with this section compares row by row, and needs to know the pairs."""

    elsewhere: ClassVar[Mapping[str, str]] = {}
    """Keys that a user may look for here, and what to write instead."""

    @property
    def fewest_rows(self) -> int:
        """Fewest rows of a corpus that a measure with this section can be planned for."""
        return 1

    @property
    def code(self) -> tuple[str, ...]:
        """User functions that the section names, as ``module:function``; a run calls them."""
        return ()


def require_distinct(values: list[Value]) -> list[Value]:
    """Return the values of a list, none of which may be there twice."""
    for place, value in enumerate(values):
        if value in values[:place]:
            raise ValueError(f"{value} is listed twice")
    return values


def require_rbf(bandwidth: Value, info: ValidationInfo) -> Value:
    """Return the bandwidth of the RBF kernel, which has to be among the kernels."""
    if bandwidth != "median" and "rbf" not in info.data.get("kernels", ["rbf"]):
        raise ValueError("it is that of the rbf kernel, which isn't chosen; leave it out")
    return bandwidth


class _UniqueKeys(yaml.SafeLoader):
    """Refuses a key that a mapping has twice, of which YAML would keep the last."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        """Return the mapping of a node."""
        seen = set()
        for key, _ in node.value:
            if isinstance(key, yaml.ScalarNode) and key.value != "<<":
                if key.value in seen:
                    raise yaml.constructor.ConstructorError(
                        problem=f"{key.value} is given twice", problem_mark=key.start_mark
                    )
                seen.add(key.value)
        return super().construct_mapping(node, deep)

    def compose_node(self, parent: yaml.Node | None, index: int) -> yaml.Node | None:
        """Return the next node; an alias inside of what it names is refused."""
        is_alias = self.check_event(yaml.AliasEvent)
        node = super().compose_node(parent, index)
        if is_alias and node is not None and node.end_mark is None:
            raise yaml.composer.ComposerError(
                problem="an alias stands inside of what it names", problem_mark=node.start_mark
            )
        return node

    def construct_yaml_int(self, node: yaml.ScalarNode) -> int:
        """Return a whole number; one that YAML reads otherwise than people do is refused."""
        number: int = super().construct_yaml_int(node)
        if re.fullmatch(r"[-+]?0[0-9_]+|.*:.*", node.value):
            raise yaml.constructor.ConstructorError(
                problem=f"{node.value} would be {number}; write the number that is meant, or put "
                "text in quotes",
                problem_mark=node.start_mark,
            )
        return number


_UniqueKeys.add_constructor("tag:yaml.org,2002:int", _UniqueKeys.construct_yaml_int)


def parse_yaml(text: str, where: str) -> Any:
    """Parse YAML; an error names the file ``where`` and the line."""
    try:
        return _UniqueKeys(text).get_single_data()
    except (yaml.YAMLError, ValueError) as error:  # an impossible date is a ValueError
        raise BadInput(f"{where}: not valid YAML: {_yaml_problem(error)}") from None
    except RecursionError:
        raise BadInput(f"{where}: not valid YAML: it is nested too deeply") from None


class InvalidDocument(BadInput):
    """A document with mistakes, each of which is one line of the message."""

    def __init__(self, where: str, mistakes: Sequence[str]) -> None:
        lines = "".join(f"\n  {mistake}" for mistake in mistakes)
        several = f"{where}: {len(mistakes)} mistakes:{lines}"
        super().__init__(f"{where}: {mistakes[0]}" if len(mistakes) == 1 else several)
        self.mistakes = tuple(mistakes)


def validate(
    model: type[Model], document: Any, where: str, prefix: str, overrides: Sequence[str] = ()
) -> Model:
    """Validate a document against a model, with a line for every mistake.

    Parameters
    ----------
    model : type
        A pydantic model.
    document : object
        The parsed YAML or JSON.
    where : str
        Name of the file, for messages.
    prefix : str
        Path of the document within the file.
    overrides : sequence of str
        Assignments ``section.key=value`` that are part of the document. A mistake in one is named
        by the option ``-o`` instead of the file.

    Raises
    ------
    InvalidDocument
        On mistakes, unknown keys first; for an unknown key the message suggests the nearest known
        one.
    """
    try:
        return model.model_validate(document)
    except ValidationError as error:
        mistakes = _explain(error, model, prefix)
        keys = [override.partition("=")[0].strip() for override in overrides]
        places = {where if not _is_set_by(keys, path) else "-o" for path, _ in mistakes}
        place = places.pop() if len(places) == 1 else where
        raise InvalidDocument(place, [mistake for _, mistake in mistakes]) from None


def _is_set_by(keys: Sequence[str], path: str) -> bool:
    """Return whether one of some keys is at a path, above it or below it."""
    return any(f"{path}.".startswith(f"{key}.") or key.startswith(f"{path}.") for key in keys)


def nearest(name: str, known: Iterable[str]) -> str:
    """Return the end of a message about an unknown name: the nearest known name, or all names."""
    names = list(known)
    begun = [known for known in names if name and known.startswith(name)]
    close = begun or difflib.get_close_matches(name, names, n=1, cutoff=0.6)
    if not names:
        return "; there is nothing to set"
    return f"; did you mean {close[0]}?" if close else f"; it can be {', '.join(names)}"


def _explain(error: ValidationError, model: type[BaseModel], prefix: str) -> list[tuple[str, str]]:
    """Return the path of every mistake, and path and problem as one text; unknown keys first.

    Of the errors of a union's branches, that of the branch that matched furthest helps most, and a
    wrong literal, which only says that another branch was meant, helps least.
    """
    by_place: dict[tuple[str, ...], list[ErrorDetails]] = {}
    for found in error.errors():
        tags = [_is_union_tag(*pair) for pair in pairwise(("", *found["loc"]))]
        count = tags.index(True) if True in tags else len(tags)
        by_place.setdefault(tuple(map(str, found["loc"][:count])), []).append(found)
    chosen = [
        max(group, key=lambda found: (found["type"] != "literal_error", len(found["loc"])))
        for group in by_place.values()
    ]
    chosen.sort(key=lambda found: found["type"] != "extra_forbidden")
    return [_explain_one(found, model, prefix) for found in chosen]


def _explain_one(first: ErrorDetails, model: type[BaseModel], prefix: str) -> tuple[str, str]:
    keys = first["loc"]
    parts = [
        str(key) for pair in pairwise(("", *keys)) if not _is_union_tag(*pair) for key in pair[1:]
    ]
    if first["type"] == "extra_forbidden" and _is_union_tag("", keys[-1]):
        parts.append(str(keys[-1]))  # a key that is unknown may be any text
    path = ".".join([*([prefix] if prefix else []), *parts])
    return path, _describe(first, model, parts, path)


def _describe(first: ErrorDetails, model: type[BaseModel], parts: list[str], path: str) -> str:
    """Return path and problem of a mistake."""
    if first["type"] == "extra_forbidden":
        elsewhere: Mapping[str, str] = getattr(model, "elsewhere", {})
        if path in elsewhere:
            return f"{path} is unknown; {elsewhere[path]}"
        if ":" in parts[-1]:
            return f"{path} is unknown; YAML wants a space after the colon of a key"
        names = _names_beside(model, [str(part) for part in first["loc"]])
        return f"{path} is unknown{nearest(parts[-1], names)}"
    if first["type"] == "missing":
        return f"{path} is missing; add this key"
    if first["type"] == "union_tag_invalid":
        tag = str(first["ctx"]["tag"])
        allowed = str(first["ctx"]["expected_tags"]).replace("'", "").split(", ")
        return f"{path}.kind is {tag!r}{nearest(tag, allowed)}"
    if first["type"] == "string_too_short":
        return f"{path} is empty; give a value"
    if first["type"] == "too_short":
        least = first["ctx"]["min_length"]
        return f"{path} needs at least {least} {'entry' if least == 1 else 'entries'}"
    message = first["msg"].removeprefix("Value error, ").partition(" or instance of ")[0]
    if message.startswith(WANTED):
        wanted = _wanted(first, message)
        if wanted == "a mapping of keys" and path:
            names = _names_beside(model, [*map(str, first["loc"]), ""])
            wanted += f", such as {{{'kind' if path == 'cluster' else names[0]}: …}}"
        return f"{path} must be {wanted}".lstrip()
    return f"{path}: {message}" if path else message


def _wanted(found: ErrorDetails, message: str) -> str:
    """Return what a value must be, and what it is if that can't be a secret."""
    given, limits = found["input"], found.get("ctx", {})
    limited = not limits.keys().isdisjoint(("ge", "gt", "le", "lt"))
    if limited and isinstance(given, float) and math.isnan(given):
        return "a number, not NaN"
    if found["type"] == "greater_than_equal":
        least = limits["ge"]
        return "greater than 0" if 0 < least < TINY else f"at least {least:.10g}"
    if found["type"] == "less_than_equal":
        return f"at most {limits['le']:.10g}"
    # After the comma pydantic says how it tried to read the value.
    wanted = message.removeprefix(WANTED).partition(", " if found["type"] in READ else "\n")[0]
    wanted = PLAIN.get(wanted, wanted)
    if found["type"] in LISTS and _is_plain(given):
        return f"{wanted}, such as [{given}]"
    if found["type"] in READ and _is_plain(given):
        said = "null" if given is None else given if isinstance(given, date) else repr(given)
        return f"{wanted}, not {said}"
    return wanted


def _is_plain(given: Any) -> bool:
    """Return whether a value is a number or a word that may be repeated in a message."""
    return re.fullmatch(r"[\w.+%-]{1,30}", str(given)) is not None


def _is_union_tag(before: int | str, part: int | str) -> bool:
    """Return whether part of a location is pydantic's name for a branch of a union, not a key."""
    kind = before == "cluster" and part in CLUSTERS
    return isinstance(part, str) and (kind or not part.isidentifier())


def _names_beside(model: type[BaseModel], location: list[str]) -> list[str]:
    """Return the known keys at the location of an unknown key."""
    here: type[BaseModel] = model
    for part in location[:-1]:
        field = here.model_fields.get(part)
        annotation = field.annotation if field else None
        inside = next(iter(get_args(annotation)), annotation)  # the item type of a list
        if part in CLUSTERS:
            here = CLUSTERS[part]
        elif isinstance(inside, type) and issubclass(inside, BaseModel):
            here = inside
    return list(here.model_fields)


def _yaml_problem(error: Exception) -> str:
    """Return line and problem of a YAML error."""
    mark = getattr(error, "problem_mark", None)
    place = f"line {mark.line + 1}: " if mark is not None else ""
    problem = getattr(error, "problem", None) or str(error).splitlines()[0]
    return f"{place}{problem}"
