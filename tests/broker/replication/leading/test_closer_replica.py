"""Which replica a leader names to a consumer of a rack (KIP-392)."""

import pytest

from kafkatool.broker.replication.leading.closer_replica import Candidate, choose

FAR, NEAR = Candidate(100, 5, 2, 0, "b"), Candidate(100, 9, 3, 0, "b")
BEHIND, ELSEWHERE = Candidate(90, 99, 4, 0, "b"), Candidate(200, 99, 5, 0, "c")


@pytest.mark.parametrize(
    ("rack", "leader_rack", "offset", "followers", "chosen"),
    [
        pytest.param("b", "a", 50, [FAR, ELSEWHERE], 2, id="of-its-rack"),
        pytest.param("a", "a", 50, [FAR._replace(rack="a")], None, id="the-leader-is-as-close"),
        pytest.param("x", "a", 50, [FAR, ELSEWHERE], None, id="nobody-there"),
        pytest.param("b", None, 50, [FAR], 2, id="leader-without-rack"),
        pytest.param("b", "a", 50, [FAR._replace(rack=None)], None, id="follower-without-rack"),
        pytest.param("b", "a", 95, [BEHIND], None, id="not-so-far-yet"),
        pytest.param("b", "a", 90, [BEHIND], 4, id="just-so-far"),
        pytest.param("b", "a", 9, [FAR._replace(log_start=10)], None, id="began-later"),
        pytest.param("b", "a", 10, [FAR._replace(log_start=10)], 2, id="begins-there"),
        pytest.param("b", "a", 50, [BEHIND, FAR], 2, id="the-farthest"),
        pytest.param("b", "a", 50, [NEAR, FAR], 3, id="caught-up-last"),
    ],
)
def test_a_follower_in_sync_of_the_consumers_rack_is_chosen(
    rack: str, leader_rack: str | None, offset: int, followers: list[Candidate], chosen: int | None
) -> None:
    assert choose(rack, leader_rack, offset, followers) == chosen
