"""Conditions on columns, such as ``lang == 'en' and (year >= 2020 or not draft)``.

A condition is parsed with Python's grammar, but never run as Python code. It may contain
comparisons of columns with literals and with each other, ``in`` and ``not in`` a list of literals,
``and``, ``or``, ``not`` and parentheses. Names refer only to the given columns; those with dots may
be written as they are, and those with spaces or other signs stand in backticks. A column of
booleans is a condition by itself, and so is one of text that holds nothing but true and false.
Where columns have values that are missing, ``x is null`` and ``x is not null`` tell which. Any
other condition on a missing value is neither true nor false, as in SQL, and so is its negation.
A text that is missing is stored as an empty one: it is null, and also equal to ''. Beside a literal
that is a date or a time as ISO 8601 writes them, or beside each other, texts that are such ones are
compared as times; those without an offset are in UTC.
"""

from __future__ import annotations

import ast
import contextlib
import keyword
import operator
import re
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any, cast

import numpy as np
import numpy.typing as npt

from latentscale.array_types import BoolArray
from latentscale_pipeline.errors import BadInput

MAX_CHARACTERS = 10_000

COMPARISONS: dict[type[ast.cmpop], Callable[[Any, Any], Any]] = {
    ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
}
"""Comparison operators between two columns, or a column and a literal."""

ORDERINGS = {ast.Lt, ast.LtE, ast.Gt, ast.GtE}
"""Those of what comes before."""

_TIME = re.compile(
    r"(\d{4}-\d\d-\d\d)(?:[T ](\d\d:\d\d(?::\d\d)?)(?:\.(\d{1,9}))?"
    r" ?(Z|UTC|[+-]\d\d(?::?\d\d)?)?)?"
)
"""A date or a time as ISO 8601 writes them, and as databases do."""

_BEGINNING = re.compile(r"\d{4}(-\d\d)?")
"""What a time begins with, which has the order of times as a text."""

TRUTH = {"true": True, "false": False}
"""Names of the two booleans; Python's own names are literals already."""

NULL = "null"
"""Name of a missing value; None means the same."""

TRUE_WORDS, FALSE_WORDS = ("true", "True", "TRUE"), ("false", "False", "FALSE")
"""How text writes the two booleans."""

FOREIGN = {r"(?<![=!<>])=(?!=)": "==", "&&": "and", r"\|\|": "or", "<>": "!=", r"!(?!=)": "not"}
"""Signs of other languages, as patterns, and what a condition has for them."""

BACKTICKS = r"'(?:\\.|[^'\\])*'|\"(?:\\.|[^\"\\])*\"|`([^`]+)`"
"""Texts in quotes, and names of columns in backticks."""

_UNICODE_NAME = r"\b(?=\w*[^\x00-\x7f])[^\W\d]\w*"
"""A name with letters beyond ASCII."""

_WORD = r"\b(?!(?:and|or|not|in|is)\b)[^\W\d]\w*"
"""A part of a name, which no operator is."""

KEYWORDS = frozenset(keyword.kwlist) - {"True", "False", "None"}
"""Words that Python reserves, and that columns may be called."""

EXAMPLE = "write one such as column == 'en'"

GRAMMAR = (
    *(ast.BoolOp, ast.And, ast.Or, ast.UnaryOp, ast.Not, ast.USub, ast.Compare, ast.In, ast.NotIn),
    *(ast.Is, ast.IsNot),
    *(ast.Name, ast.Load, ast.Constant, ast.List, ast.Tuple),
    *COMPARISONS,
)
"""Syntax nodes that a condition may contain."""


def names_in(expression: str) -> list[str]:
    """Return the names of the columns in a condition, sorted.

    Raises
    ------
    BadInput
        If the text isn't a valid condition.
    """
    nodes = ast.walk(_parsed(expression))
    return sorted({node.id for node in nodes if isinstance(node, ast.Name)} - {*TRUTH, NULL})


def suggest_quotes(expression: str, name: str) -> str:
    """Return advice to write a name in quotes if it stands where a literal usually does."""
    compared = [
        item
        for node in ast.walk(_parsed(expression))
        if isinstance(node, ast.Compare)
        for side in node.comparators
        for item in (side.elts if isinstance(side, ast.List | ast.Tuple) else [side])
    ]
    found = any(isinstance(item, ast.Name) and item.id == name for item in compared)
    return f"; text stands in quotes: '{name}'" if found else ""


def texts_equalled(expression: str, name: str) -> list[str]:
    """Return the texts that a column is compared with by ``==`` or ``in``, in order."""
    texts: list[str] = []
    for node in ast.walk(_parsed(expression)):
        match node:
            case ast.Compare(ast.Name(id=named), [ast.Eq() | ast.In()], [other]) if named == name:
                items = other.elts if isinstance(other, ast.List | ast.Tuple) else [other]
                values = [item.value for item in items if isinstance(item, ast.Constant)]
                texts += [value for value in values if isinstance(value, str)]
    return texts


def names_compared(expression: str) -> set[str]:
    """Return the names of the columns that are used for more than comparisons with null."""
    nodes = list(ast.walk(_parsed(expression)))
    tested = {
        id(node.left)
        for node in nodes
        if isinstance(node, ast.Compare) and isinstance(node.ops[0], ast.Is | ast.IsNot)
    }
    used = {node.id for node in nodes if isinstance(node, ast.Name) and id(node) not in tested}
    return used - {*TRUTH, NULL}


def matching_rows(
    expression: str,
    columns: Mapping[str, npt.NDArray[Any]],
    rows: int,
    nulls: Mapping[str, BoolArray] | None = None,
) -> BoolArray:
    """Return a mask of the rows that satisfy a condition.

    Parameters
    ----------
    expression : str
        The condition.
    columns : mapping
        The columns by name, one value per row: text (any array of str) or numbers.
    rows : int
        Number of rows.
    nulls : mapping, optional
        Which values of a column are missing.

    Raises
    ------
    BadInput
        If the text isn't a valid condition, or names an unknown column.
    """
    true, _ = _Evaluation(expression, columns, nulls or {}).truth(_parsed(expression))
    return np.broadcast_to(true, (rows,))


def _parsed(expression: str) -> ast.expr:
    if len(expression) > MAX_CHARACTERS:
        raise BadInput(
            f"the condition has {len(expression)} characters; shorten it to {MAX_CHARACTERS}"
        )
    try:
        body = _with_columns(expression)
        nodes = list(ast.walk(body))
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        raise BadInput(f"{expression!r}: not a condition{_advice(expression, error)}") from None
    for node in nodes:
        if not isinstance(node, GRAMMAR):
            text = ast.unparse(node) if isinstance(node, ast.expr) else type(node).__name__
            raise BadInput(f"{expression!r}: {text!r} can't be part of a condition; {EXAMPLE}")
    return body


def _with_columns(expression: str) -> ast.expr:
    """Parse a condition, with columns whose names Python doesn't allow as its names."""
    names: dict[str, str] = {}

    def placed(found: re.Match[str]) -> str:
        column = found[1] or found[2]
        if column is None:
            return found[0]
        if column in {*TRUTH, NULL, "True", "False", "None"}:
            raise BadInput(f"{expression!r}: a column can't be called {column}; rename it")
        name = f"_in_backticks_{len(names)}"
        names[name] = column
        return f" {name} " if found[1] else name

    class Columns(ast.NodeTransformer):
        def visit_Name(self, node: ast.Name) -> ast.expr:
            return ast.Name(names.get(node.id, node.id), node.ctx)

        def visit_Attribute(self, node: ast.Attribute) -> ast.expr:
            before = self.visit(node.value)
            dotted = isinstance(before, ast.Name)
            attribute = names.get(node.attr, node.attr)
            return ast.Name(f"{before.id}.{attribute}", node.ctx) if dotted else node

    # Python would read µ (U+00B5) and the like as other letters.
    plain = re.sub(rf"{BACKTICKS}|({_UNICODE_NAME})", placed, expression)
    tree = ast.parse(plain.strip(), mode="eval")
    return cast(ast.Expression, Columns().visit(tree)).body


def _advice(expression: str, error: Exception) -> str:
    """Return what to write instead, above all of what other languages write."""
    code = re.sub(BACKTICKS, "''", expression)
    for sign, word in FOREIGN.items():
        if found := re.search(sign, code):
            return f"; write {word} instead of {found[0]}"
    words = [word for word in re.findall(_WORD, code) if word in KEYWORDS]
    if words:
        return f"; a column called {words[0]} stands in backticks: `{words[0]}`"
    if found := re.search(rf"{_WORD}(?: +{_WORD})+(?=\s*(?:[=<>!]|in\b|is\b|not\b))", code):
        return f"; a name with spaces stands in backticks: `{found[0]}`"
    reason = (getattr(error, "msg", None) or str(error) or "too deep").splitlines()[0]
    return f" ({reason}); {EXAMPLE}"


Truth = tuple[BoolArray, BoolArray]
"""Where a condition is true, and where it is false; neither where a value is missing."""


Side = tuple[ast.expr, Any]
"""A side of a comparison, and its value."""


class _Evaluation:
    def __init__(
        self,
        expression: str,
        columns: Mapping[str, npt.NDArray[Any]],
        nulls: Mapping[str, BoolArray],
    ) -> None:
        self._expression = expression
        self._columns = columns
        self._nulls = nulls
        self._converted: dict[str, tuple[npt.NDArray[Any], BoolArray]] = {}

    def truth(self, node: ast.expr) -> Truth:
        """Evaluate a condition; unknown nodes are refused."""
        match node:
            case ast.UnaryOp(op=ast.Not(), operand=operand):
                true, false = self.truth(operand)
                return false, true
            case ast.BoolOp(op=ast.And(), values=values):
                return _all_of([self.truth(value) for value in values])
            case ast.BoolOp(op=ast.Or(), values=values):
                false, true = _all_of([self.truth(value)[::-1] for value in values])
                return true, false
            case ast.Compare(left=left, ops=ops, comparators=others):
                sides = [left, *others]
                pairs = zip(sides, ops, others, strict=False)
                return _all_of([self._compared(a, op, b) for a, op, b in pairs])
        flags = _flags(self.value(node))
        if not isinstance(flags, np.ndarray) or flags.dtype != bool:
            if ast.unparse(node) == ast.unparse(_parsed(self._expression)):
                raise self._refused(f"not a condition; {EXAMPLE}")
            raise self._refused(f"{ast.unparse(node)!r} isn't a condition; compare it with a value")
        return self._where_known(flags, (node, flags))

    def value(self, node: ast.expr) -> Any:
        """Return a column or a literal; any other node is refused."""
        match node:
            case ast.Name(id=name) if name in TRUTH:
                return TRUTH[name]
            case ast.Name(id=name):
                return self._column(name)
            case ast.Constant(value=str() as text) if not text.isascii() and _has_half(text):
                raise self._refused(f"{text!r} has half of a character, which no text has")
            case ast.Constant(value=str() | bool() | int() | float() as value):
                return value
            case ast.UnaryOp(op=ast.USub(), operand=ast.Constant(value=int() | float() as value)):
                return -value
        raise self._refused(f"{ast.unparse(node)!r} can't be part of a condition; {EXAMPLE}")

    def _where_known(
        self, found: BoolArray, *sides: tuple[ast.expr, Any], empty: bool = False
    ) -> Truth:
        """Return where a finding is true and where false, of sides and what they were taken for.

        With ``empty``, a text that is missing was compared with the empty one, which it equals.
        """
        true, false = found, ~found
        for node, taken in sides:
            if not isinstance(taken, np.ndarray) or not isinstance(node, ast.Name):
                continue
            column = self._columns[node.id]
            if _is_text(column):
                known = np.asarray(column != "", bool) | (empty and _is_text(taken))
                true, false = true & known, false & known
            elif node.id in self._nulls:
                known = ~self._nulls[node.id]
                true, false = true & known, false & known
        return true, false

    def _compared(self, left: ast.expr, op: ast.cmpop, right: ast.expr) -> Truth:
        if isinstance(op, ast.Is | ast.IsNot):
            return self._missing(left, right, negated=isinstance(op, ast.IsNot))
        first = self.value(left)
        if isinstance(op, ast.In | ast.NotIn) and isinstance(right, ast.List | ast.Tuple):
            items = [self.value(item) for item in right.elts]
            if any(isinstance(item, np.ndarray) for item in items):
                raise self._refused("a list may contain only literals")
            pairs = [self._alike(first, item) for item in items]
            equal = [
                self._apply(ast.Eq, (left, one), (item_node, item))
                for item_node, (one, item) in zip(right.elts, pairs, strict=True)
            ]
            among = np.logical_or.reduce([np.zeros(np.shape(first), bool), *equal])
            taken = pairs[0][0] if pairs else first
            found = ~among if isinstance(op, ast.NotIn) else among
            return self._where_known(found, (left, taken), empty="" in items)
        if type(op) not in COMPARISONS:
            raise self._refused("compare with ==, !=, <, <=, >, >=, or in [a, list]")
        second = self.value(right)
        if not (isinstance(first, np.ndarray) or isinstance(second, np.ndarray)):
            raise self._refused("a comparison needs a column on one side")
        first, second = self._alike(first, second)
        found = self._apply(type(op), (left, first), (right, second))
        if type(op) in ORDERINGS and _is_text(first):
            self._refuse_other_times(left, right)
        empty = type(op) not in ORDERINGS and any(
            isinstance(side, str) and not side for side in (first, second)
        )
        return self._where_known(found, (left, first), (right, second), empty=empty)

    def _missing(self, left: ast.expr, right: ast.expr, *, negated: bool) -> Truth:
        match left, right:
            case ast.Name(id=name), ast.Name(id="null") | ast.Constant(value=None):
                column = self._column(name)
                null = self._nulls.get(name, np.zeros(len(column), dtype=bool))
                if _is_text(column):
                    null = null | np.asarray(column == "", dtype=bool)
                return (~null, null) if negated else (null, ~null)
        raise self._refused(
            "is compares only with null (x is null, x is not null); write == for other values"
        )

    def _alike(self, first: Any, second: Any) -> tuple[Any, Any]:
        """Return two values that can be compared: texts that are booleans as such beside some."""
        columns = isinstance(first, np.ndarray) and isinstance(second, np.ndarray)
        if columns and _are_flags(first) and _are_flags(second):
            return _flags(first), _flags(second)
        if _is_flag(second):
            first = _flags(first)
        if _is_flag(first):
            second = _flags(second)
        if _is_text(first) != _is_text(second):
            if any(_is_flag(side) and isinstance(side, np.ndarray) for side in (first, second)):
                raise self._refused(
                    "true and false can't be compared with text; a column of them is a condition "
                    "by itself, as in outlier, or not outlier"
                )
            raise self._refused("text and numbers can't be compared; put text in quotes")
        return first, second

    def _apply(self, op: type[ast.cmpop], left: Side, right: Side) -> BoolArray:
        """Compare two values that are alike: texts that are times as such, beside others."""
        (node, first), (other, second) = left, right
        compare = COMPARISONS[op]
        found = np.asarray(compare(first, second), bool)
        for column, literal in ((node, second), (other, first)):
            time = _time(literal) if isinstance(literal, str) else None
            if time is not None and isinstance(column, ast.Name):
                times, are = self._times(column.id)
                as_times = compare(times, time) if column is node else compare(time, times)
                found = np.where(are, as_times, found)
        if not (isinstance(node, ast.Name) and isinstance(other, ast.Name)):
            return found
        if not (_begins_with_time(first) and _begins_with_time(second)):
            return found
        (times, are), (others, too) = self._times(node.id), self._times(other.id)
        return np.where(are & too, compare(times, others), found)

    def _times(self, name: str) -> tuple[npt.NDArray[Any], BoolArray]:
        if name not in self._converted:
            self._converted[name] = _as_times(self._columns[name])
        return self._converted[name]

    def _refuse_other_times(self, left: ast.expr, right: ast.expr) -> None:
        """Refuse to put times before or after a text that is none."""
        for node, other in ((left, right), (right, left)):
            match node, other:
                case ast.Name(id=name), ast.Constant(value=str() as literal):
                    plain = not literal or _time(literal) or _BEGINNING.fullmatch(literal)
                    first = next((text for text in self._columns[name].tolist() if text), "")
                    if plain or _time(first) is None:
                        continue
                    _, are = self._times(name)
                    if (are | np.asarray(self._columns[name] == "", bool)).all():
                        raise self._refused(
                            f"{name} holds times such as {first!r}; write one as '2026-01-31' or "
                            "'2026-01-31T09:30:00'"
                        )

    def _column(self, name: str) -> npt.NDArray[Any]:
        if name == NULL:
            raise self._refused("compare with null by is: x is null, or x is not null")
        if name not in self._columns:
            known = ", ".join(sorted(self._columns)) or "none"
            raise self._refused(f"there is no column {name!r}; the columns are {known}")
        return self._columns[name]

    def _refused(self, reason: str) -> BadInput:
        return BadInput(f"{self._expression!r}: {reason}")


def _time(text: str) -> str | None:
    """Return a time in UTC, written so that texts have the order of times; None for other texts."""
    found = _TIME.fullmatch(text)
    if found is None:
        return None
    day, clock, fraction, offset = found.groups()
    try:
        time = datetime.fromisoformat(f"{day}T{clock}" if clock else day)
    except ValueError:
        return None
    if offset and offset not in {"Z", "UTC"}:
        ahead = timedelta(hours=int(offset[1:3]), minutes=int(offset[-2:] if offset[3:] else 0))
        with contextlib.suppress(OverflowError):  # the last day, written for never
            time = time + ahead if offset[0] == "-" else time - ahead
    return f"{time.isoformat(timespec='seconds')}.{fraction or '':0<9}"


def _as_times(texts: npt.NDArray[Any]) -> tuple[npt.NDArray[Any], BoolArray]:
    """Return times of texts, written alike, and which texts are times."""
    found = [_time(text) for text in texts.tolist()]
    return np.array([each or "" for each in found]), np.array([each is not None for each in found])


def _all_of(parts: Sequence[Truth]) -> Truth:
    """Return where all conditions are true, and where any is false."""
    true = np.logical_and.reduce([part[0] for part in parts])
    false = np.logical_or.reduce([part[1] for part in parts])
    return true, false


def _flags(value: Any) -> Any:
    """Return a column of text that holds nothing but true and false, or nothing, as booleans."""
    if not isinstance(value, np.ndarray) or value.dtype.kind not in "TU":
        return value
    empty = np.asarray(value == "", bool)
    true, false = (
        np.logical_or.reduce([value == word for word in words])
        for words in (TRUE_WORDS, FALSE_WORDS)
    )
    return true if np.all(true | false | empty) else value


def _are_flags(value: Any) -> bool:
    """Return whether a column of text holds booleans."""
    return _is_text(value) and bool(np.any(value != "")) and _is_flag(_flags(value))


def _begins_with_time(value: Any) -> bool:
    """Return whether a column holds texts, and the first of them is a time."""
    return (
        _is_text(value) and _time(next((text for text in value.tolist() if text), "")) is not None
    )


def _is_flag(value: Any) -> bool:
    return isinstance(value, bool) or (isinstance(value, np.ndarray) and value.dtype == bool)


def _has_half(text: str) -> bool:
    """Return whether a text has half of a pair of surrogates, which isn't a character."""
    return any("\ud800" <= character <= "\udfff" for character in text)


def _is_text(value: Any) -> bool:
    return value.dtype.kind in "TUS" if isinstance(value, np.ndarray) else isinstance(value, str)
