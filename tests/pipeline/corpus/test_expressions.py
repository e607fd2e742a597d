"""Conditions on columns: what they mean, and which texts are no conditions."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from latentscale_pipeline.corpus.expressions import matching_rows, names_in
from latentscale_pipeline.errors import BadInput

LITERALS = st.integers(-3, 3).map(str)
COLUMNS = st.sampled_from(["a", "b"])
COMPARED = st.builds(
    "{} {} {}".format,
    COLUMNS,
    st.sampled_from(["==", "!=", "<", "<=", ">", ">="]),
    LITERALS | COLUMNS,
) | st.builds("{} in [{}, {}]".format, COLUMNS, LITERALS, LITERALS)
CONDITIONS = st.recursive(
    COMPARED,
    lambda inner: (
        st.builds("({} and {})".format, inner, inner)
        | st.builds("({} or {})".format, inner, inner)
        | st.builds("(not {})".format, inner)
    ),
    max_leaves=6,
)


@pytest.mark.parametrize(
    ("condition", "expected"),
    [
        ("meta.year > 1 and `my col` != 'c'", [1]),
        ("`my col` in ['a', '`my col`'] or `meta.year` == 3", [0, 2]),
        ("not (`my col` is null) and a.b.c", [0, 1]),
        ("meta.`year` < 3 and `meta`.year > 1", [1]),
    ],
)
def test_names_with_dots_and_in_backticks(condition: str, expected: list[int]) -> None:
    columns: dict[str, np.ndarray] = {
        "meta.year": np.array([1, 2, 3]),
        "my col": np.array(["a", "b", "c"], np.dtypes.StringDType()),
        "a.b.c": np.array([True, True, False]),
    }
    assert set(names_in(condition)) <= set(columns)
    assert np.flatnonzero(matching_rows(condition, columns, 3)).tolist() == expected


@pytest.mark.parametrize(
    "condition", ["f(x).y == 1", "'a'.b == 1", "`a == 1", "x.y.z() > 2", "a`b` < 1", "a < 1 `b`"]
)
def test_no_more_than_names_has_dots(condition: str) -> None:
    with pytest.raises(BadInput, match=r"can't be part of a condition|not a condition"):
        names_in(condition)


def test_a_column_called_true_is_no_column_of_a_condition() -> None:
    with pytest.raises(BadInput, match="a column can't be called true; rename it"):
        names_in("`true` < 2")


@given(CONDITIONS, st.lists(st.tuples(st.integers(-3, 3), st.integers(-3, 3)), min_size=1))
def test_conditions_mean_what_python_means(condition: str, rows: list[tuple[int, int]]) -> None:
    columns = {"a": np.array([a for a, _ in rows]), "b": np.array([b for _, b in rows])}
    expected = [bool(eval(condition, {}, {"a": a, "b": b})) for a, b in rows]
    assert matching_rows(condition, columns, len(rows)).tolist() == expected


@pytest.mark.parametrize(
    ("condition", "expected"),
    [
        ("label is null", [False, True, False]),
        ("label is not null", [True, False, True]),
        ("label == ''", [False, True, False]),
        ("label != ''", [True, False, True]),
        ("label in ['', 'art']", [False, True, True]),
        ("label not in ['', 'art']", [True, False, False]),
        ("label != 'law'", [False, False, True]),
        ("not label == 'law'", [False, False, True]),
        ("label not in ['law']", [False, False, True]),
        ("label != other", [False, False, True]),
    ],
)
@pytest.mark.parametrize("lacking", [False, True])
def test_an_empty_text_is_null_and_equal_to_an_empty_one(
    condition: str, expected: list[bool], lacking: bool
) -> None:
    """Whether the cell is empty or a table has no row for it."""
    columns = {
        "label": np.array(["law", "", "art"], np.dtypes.StringDType()),
        "other": np.array(["law", "law", "law"], np.dtypes.StringDType()),
    }
    nulls = {"label": np.array([False, True, False])} if lacking else {}
    assert matching_rows(condition, columns, 3, nulls).tolist() == expected


@pytest.mark.parametrize(
    ("condition", "expected"),
    [
        ("a == b", [True, True, False, False]),
        ("a != b", [False, False, True, False]),
        ("not a == b", [False, False, True, False]),
        ("a == words", None),
    ],
)
def test_texts_of_booleans_are_compared_as_such(
    condition: str, expected: list[bool] | None
) -> None:
    columns = {
        "a": np.array(["True", "false", "TRUE", ""], np.dtypes.StringDType()),
        "b": np.array(["true", "False", "false", "true"], np.dtypes.StringDType()),
        "words": np.array(["True", "no", "TRUE", ""], np.dtypes.StringDType()),
    }
    expected = expected or [True, False, True, False]
    assert matching_rows(condition, columns, 4).tolist() == expected


def test_names_of_columns_may_have_any_letters() -> None:
    columns = {"µm": np.arange(3), "größe.µm": np.arange(3), "class": np.arange(3)}
    for condition in ("µm > 1", "größe.µm > 1", "`µm` > 1 and µm < 3", "`class` > 1"):
        assert matching_rows(condition, columns, 3).tolist() == [False, False, True]
    assert names_in("µm > 1 and größe.µm == 'µ'") == ["größe.µm", "µm"]
    with pytest.raises(BadInput, match="; a column called class stands in backticks: `class`"):
        matching_rows("class > 1", columns, 3)


@pytest.mark.parametrize(
    ("condition", "expected"),
    [
        ("created == other", [True, True, False, False]),
        ("created > other", [False, False, True, False]),
        ("created <= other", [True, True, False, False]),
    ],
)
def test_columns_of_times_are_compared_as_such(condition: str, expected: list[bool]) -> None:
    columns = {
        "created": np.array(
            ["2026-01-01 01:00:00.000000", "2026-01-02 00:00:00", "2026-01-01 01:00:00", ""]
        ),
        "other": np.array(
            ["2026-01-01T02:00:00+01:00", "2026-01-02", "2026-01-01T00:59:59", "2026-01-01"]
        ),
    }
    assert matching_rows(condition, columns, 4).tolist() == expected


@given(st.text(max_size=30))
def test_any_text_is_a_condition_or_one_line(text: str) -> None:
    columns = {"a": np.arange(3), "b": np.array(["x", "y", "z"])}
    problem = None
    try:
        names_in(text)
        found = matching_rows(text, columns, 3)
    except BadInput as error:
        problem = str(error)
    assert problem is not None or found.shape == (3,)
    assert problem is None or "\n" not in problem


@pytest.mark.parametrize("condition", [r"b == '\ud800'", r"b in ['x', 'a\udfff']"])
def test_half_of_a_character_is_no_text(condition: str) -> None:
    columns = {"b": np.array(["x", "y"], np.dtypes.StringDType())}
    with pytest.raises(BadInput, match="has half of a character, which no text has"):
        matching_rows(condition, columns, 2)


FLAGS = [True, False, True, False]
FORMS = {
    "bool": np.array(FLAGS),
    "text": np.array(["true", "false", "true", "false"]),
    "variable text": np.array(["True", "False", "TRUE", "FALSE"], np.dtypes.StringDType()),
}


@pytest.mark.parametrize("flag", FORMS.values(), ids=FORMS.keys())
@pytest.mark.parametrize(
    ("condition", "expected"),
    [
        ("flag", [1, 0, 1, 0]),
        ("not flag", [0, 1, 0, 1]),
        ("flag and x > 3", [0, 0, 1, 0]),
        ("x > 3 or not flag", [0, 1, 1, 1]),
        ("flag == true", [1, 0, 1, 0]),
        ("flag == True", [1, 0, 1, 0]),
        ("false == flag", [0, 1, 0, 1]),
        ("flag != False", [1, 0, 1, 0]),
        ("flag in [true]", [1, 0, 1, 0]),
        ("flag not in [True, false]", [0, 0, 0, 0]),
        ("flag == plain", [1, 1, 0, 1]),
    ],
)
def test_booleans_are_conditions(flag: np.ndarray, condition: str, expected: list[int]) -> None:
    columns = {
        "flag": flag,
        "x": np.array([1, 2, 4, 5]),
        "plain": np.array([True, False, False, False]),
    }
    assert not {"true", "false"} & set(names_in(condition))
    assert matching_rows(condition, columns, 4).astype(int).tolist() == expected


@pytest.mark.parametrize(
    ("condition", "name"),
    [
        ("not lang == 'a' or year of birth >= 3", "year of birth"),
        ("lang == 'b' and place name in ['x']", "place name"),
        ("a b is null", "a b"),
    ],
)
def test_names_with_spaces_are_told_to_stand_in_backticks(condition: str, name: str) -> None:
    with pytest.raises(BadInput) as refused:
        matching_rows(condition, {"lang": np.array(["true", "en"])}, 2)
    assert str(refused.value).endswith(f"; a name with spaces stands in backticks: `{name}`")


@pytest.mark.parametrize(
    ("condition", "message"),
    [
        ("lang", "'lang': not a condition; write one such as column == 'en'"),
        ("not lang", "'not lang': 'lang' isn't a condition; compare it with a value"),
        ("lang == true", "'lang == true': text and numbers can't be compared; put text in quotes"),
        ("true", "'true': not a condition; write one such as column == 'en'"),
    ],
)
def test_text_that_is_not_boolean_is_no_condition(condition: str, message: str) -> None:
    with pytest.raises(BadInput) as refused:
        matching_rows(condition, {"lang": np.array(["true", "en"])}, 2)
    assert str(refused.value) == message


TIMES = [
    "2026-11-20T04:59:59",
    "2026-11-20 05:00:00.000000",
    "2026-11-20T06:00:00+01:00",
    "2026-11-20T05:00:01Z",
    "2026-11-21",
    "",
]


@pytest.mark.parametrize(
    ("condition", "expected"),
    [
        ("at >= '2026-11-20T05:00'", [1, 2, 3, 4]),
        ("at <= '2026-11-20 05:00:00'", [0, 1, 2]),
        ("at == '2026-11-20T05:00Z'", [1, 2]),
        ("at != '2026-11-20T05:00Z'", [0, 3, 4]),
        ("at in ['2026-11-21 00:00', '2026-11-20T04:59:59']", [0, 4]),
        ("at < '2026-11-21'", [0, 1, 2, 3]),
        ("at >= '2026-11'", [0, 1, 2, 3, 4]),
        ("not at < '2026-11-21'", [4]),
        ("at > ''", [0, 1, 2, 3, 4]),
        ("at >= '2026-11-20T05:00:00.000000001'", [3, 4]),
        ("at < '9999-12-31T23:59:59-05:00'", [0, 1, 2, 3, 4]),
    ],
)
def test_times_are_compared_as_times(condition: str, expected: list[int]) -> None:
    found = matching_rows(condition, {"at": np.array(TIMES)}, len(TIMES))
    assert np.flatnonzero(found).tolist() == expected


def test_texts_that_only_begin_with_a_day_are_texts() -> None:
    names = [
        "2026-01-31-cam1.jpg",
        "2026-01-31 09:30:00 UTC",
        "2026-01-31 00:30:00+01",
        "2026-02-x",
    ]
    found = matching_rows("at >= '2026-01-31'", {"at": np.array(names)}, 4)
    assert found.tolist() == [True, True, False, True]
    found = matching_rows("at < '2026-02-01'", {"at": np.array(names)}, 4)
    assert found.tolist() == [True, True, True, False]


@pytest.mark.parametrize("dtype", [np.dtypes.StringDType(), "U60"])
def test_times_with_nine_digits_and_without_an_end(dtype: Any) -> None:
    cells = ["2026-01-01 00:00:00.123456100", "2026-01-01 00:00:00.123456900"]
    cells.append("9999-12-31T23:59:59-05:00")
    columns = {"at": np.array(cells, dtype)}
    for condition, expected in (
        ("at == '2026-01-01 00:00:00.123456100'", [True, False, False]),
        ("'2026-01-01 00:00:00.123456789' < at", [False, True, True]),
        ("at in ['2026-01-01T00:00:00.1234569', '2026-01-02']", [False, True, False]),
    ):
        assert matching_rows(condition, columns, 3).tolist() == expected


def test_a_text_that_is_no_time_is_not_before_or_after_times() -> None:
    columns = {"at": np.array(TIMES), "name": np.array([*TIMES[:5], "b"])}
    with pytest.raises(BadInput, match="at holds times such as '2026-11-20T04:59:59'; write one"):
        matching_rows("at >= '20.11.2026'", columns, len(TIMES))
    found = matching_rows("name >= 'a'", columns, len(TIMES))
    assert np.flatnonzero(found).tolist() == [5]
