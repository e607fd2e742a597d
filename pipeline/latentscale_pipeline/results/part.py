"""The base class of all parts of the results: reading, writing and schema.

A field is always written, unless it is marked as :data:`Absent` or :data:`AbsentOrNull`. Reading is
lenient: a field that another version didn't write gets its default (None for :data:`Expected`), and
an unknown field of a later version is kept. The schema is strict: it allows no other names.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from functools import cache
from typing import Annotated, Any, ClassVar, Literal, Self, TypeVar

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    GetJsonSchemaHandler,
    SerializerFunctionWrapHandler,
    StringConstraints,
    WithJsonSchema,
    model_serializer,
)
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema
from typing_extensions import TypeAliasType

from latentscale.estimate import Estimate
from latentscale_pipeline.config.attribute_docstrings import describe_properties

Value = TypeVar("Value")


@dataclass(frozen=True)
class _LeftOut:
    """Marks a field that isn't written if it is None or has its default.

    With ``null`` it is written if null was given explicitly. With ``required`` the current version
    always writes it.
    """

    null: bool = False
    required: bool = False
    default: Any = None

    def __get_pydantic_json_schema__(
        self, core_schema: CoreSchema, handler: GetJsonSchemaHandler
    ) -> JsonSchemaValue:
        schema = handler(core_schema)
        branches = schema.get("anyOf", [])
        known = [branch for branch in branches if branch != {"type": "null"}]
        if self.null or len(known) != 1:
            return schema
        return {**{key: held for key, held in schema.items() if key != "anyOf"}, **known[0]}


Absent = Annotated[Value | None, _LeftOut()]
"""A field that is left out if it doesn't apply, and never null."""

AbsentOrNull = Annotated[Value | None, _LeftOut(null=True)]
"""A field that is left out, or null, if it doesn't apply."""

Expected = Annotated[Value | None, _LeftOut(required=True)]
"""A field that the current version always writes; files of other versions may lack it."""

KINDS = ("exact", "certified", "interval95", "estimate")

# Not a Literal, because a later version may have further kinds.
Bounds = TypeAliasType(
    "Bounds",
    Annotated[
        str,
        WithJsonSchema(
            {
                "enum": list(KINDS),
                "description": "exact: computed directly, the bracket is rounding. certified: an "
                "inequality holds on both sides. interval95: a 95 % confidence interval over the "
                "computation's own randomness. estimate: a heuristic on at least one side.",
            }
        ),
    ],
)
"""What a bracket guarantees."""

BoundsOrNull = Annotated[str | None, WithJsonSchema({"enum": [*KINDS, None]})]

Reason = TypeAliasType(
    "Reason",
    Annotated[
        str,
        WithJsonSchema(
            {
                "type": "string",
                "minLength": 1,
                "description": "Why the number beside it is null.",
            }
        ),
    ],
)
"""Why a number is null."""

Text = Annotated[str, StringConstraints(min_length=1)]
Count = Annotated[int, Field(ge=0)]
Positive = Annotated[int, Field(ge=1)]
Share = Annotated[float, Field(ge=0, le=1)]
Role = Literal["corpus", "reference"]


class Part(BaseModel):
    """A part of the results; the class' title is its name in the schema."""

    model_config = ConfigDict(
        extra="allow",
        frozen=True,
        allow_inf_nan=False,
        defer_build=True,
    )

    explained: ClassVar[tuple[str, ...]] = ()
    """Fields that need a ``<name>_reason`` if they are null."""

    @classmethod
    def from_estimate(cls, estimate: Estimate | None, **others: Any) -> Self:
        """Return a part with the fields of an estimate that it has; all are None without one."""
        names = (field.name for field in fields(Estimate) if field.name in cls.model_fields)
        return cls(**{name: getattr(estimate, name, None) for name in names}, **others)

    @property
    def numbers(self) -> tuple[float, float, float] | None:
        """Value, lower and upper end of the bracket, or None if there is no value."""
        value, lower, upper = (getattr(self, name, None) for name in ("value", "lower", "upper"))
        return None if value is None or lower is None or upper is None else (value, lower, upper)

    def document(self) -> dict[str, Any]:
        """Return the JSON form, in the order of the model."""
        return self.model_dump(by_alias=True)

    @model_serializer(mode="wrap")
    def _without_absent(self, dump: SerializerFunctionWrapHandler) -> dict[str, Any]:
        given, left_out = self.model_fields_set, _left_out(type(self))
        return {
            name: value
            for name, value in dump(self).items()
            if name not in left_out
            or (name in given and (left_out[name].null or value != left_out[name].default))
        }

    @classmethod
    def __get_pydantic_json_schema__(
        cls, core_schema: CoreSchema, handler: GetJsonSchemaHandler
    ) -> JsonSchemaValue:
        reference = handler(core_schema)
        schema = handler.resolve_ref_schema(reference)
        describe_properties(cls, schema)
        schema["additionalProperties"] = False
        schema["required"] = [
            field.alias or name
            for name, field in cls.model_fields.items()
            if name not in (left_out := _left_out(cls)) or left_out[name].required
        ]
        if cls.explained:
            schema["allOf"] = [when_null(name, f"{name}_reason") for name in cls.explained]
        return reference


def when_null(name: str, needed: str) -> dict[str, Any]:
    """Return the schema condition that one field must be present if another is null."""
    return {
        "if": {"properties": {name: {"type": "null"}}, "required": [name]},
        "then": {"required": [needed]},
    }


@cache
def _left_out(part: type[Part]) -> Mapping[str, _LeftOut]:
    """Return the fields of a part that aren't always written."""
    return {
        name: replace(mark, default=field.default)
        for name, field in part.model_fields.items()
        for mark in field.metadata
        if isinstance(mark, _LeftOut)
    }


class Bracket(Part):
    """The ends of a bracket."""

    lower: float
    """Lower end of the bracket."""
    upper: float
    """Upper end of the bracket."""
    bounds: Bounds
