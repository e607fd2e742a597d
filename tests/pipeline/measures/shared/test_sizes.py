import pytest

from latentscale_pipeline.measures.shared.neighbours.sizes import missed_inside


@pytest.mark.parametrize(
    ("apart", "inside"),
    [
        (0.0, 0.008),
        (0.005, 0.003),
        (0.006, 0.002),
        (0.15, 0.0375),  # the searches would be long, and the groups miss most
    ],
)
def test_searches_inside_groups_share_what_may_be_missed(apart: float, inside: float) -> None:
    assert missed_inside(0.02, apart) == pytest.approx(inside)
