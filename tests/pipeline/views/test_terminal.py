"""Tables on terminals of any width."""

import io

import pytest
from rich.console import Console

from latentscale_pipeline.views.terminal import format_table, print_table

COLUMNS = ("stage", "state", "work", "reason")
ROWS = [
    {"stage": f"sampled-{i}-magnitude", "state": "done", "work": f"{i} min 04 s", "reason": reason}
    for i, reason in enumerate(["computed", "reused from another job of these corpora", ""])
]


@pytest.mark.parametrize("width", [20, 40, 60, 80, 200])
def test_nothing_is_cut(width: int) -> None:
    console = Console(file=io.StringIO(), force_terminal=True, width=width, color_system=None)
    print_table(console, COLUMNS, ROWS, right=("work",), folded=("reason",))
    printed = " ".join(console.file.getvalue().split())
    for row in ROWS:
        assert f"{row['stage']} {row['state']} {row['work']}" in printed
        assert all(word in printed for word in row["reason"].split())


def test_wide_characters_take_two_columns() -> None:
    rows = [{"id": "日本語日本語", "say": "things that wrap"}, {"id": "a", "say": "x"}]
    assert format_table(("id", "say"), rows)[1:] == [
        "日本語日本語  things that wrap",
        "a             x",
    ]
    console = Console(file=io.StringIO(), force_terminal=True, width=24, color_system=None)
    print_table(console, ("id", "say"), rows, folded=("say",))
    assert "things that wrap" in " ".join(console.file.getvalue().split())
