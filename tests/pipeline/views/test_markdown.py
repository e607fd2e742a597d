"""Text of others in Markdown: it shows as it is, and becomes no markup."""

import pytest

from latentscale_pipeline.views.markdown import escape_markdown


@pytest.mark.parametrize(
    ("text", "escaped"),
    [
        ("a|b `c` [l](x) <b>", r"a\|b \`c\` \[l\](x) \<b\>"),
        ("see https://x.y and www.x.y", r"see https\://x.y and www\.x.y"),
        ("FTP://x", r"FTP\://x"),
        ("s3://bucket/key", "s3://bucket/key"),
    ],
)
def test_text_is_escaped(text: str, escaped: str) -> None:
    assert escape_markdown(text) == escaped
