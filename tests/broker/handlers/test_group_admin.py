"""DescribeGroups, ListGroups and DeleteGroups over raw sockets, in each version; the coordinator is the real one."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from kafkatool.broker.groups.member import JoinRequest, Parked
from kafkatool.broker.handlers.call import load_handlers
from kafkatool.core.protocol.messages import delete_groups, describe_groups, list_groups
from tests.broker.groups.test_administration import make_stable
from tests.broker.groups.test_coordinator import A, Stage
from tests.broker.handlers.served import Client, broker_of, handler_context

SERVED = {key: s for key, s in load_handlers().items() if key in (15, 16, 42)}


@pytest.fixture
def stage(tmp_path: Path) -> Iterator[Stage]:
    made = Stage(tmp_path / "data")
    yield made
    made.close()


@pytest.fixture
def client(stage: Stage) -> Iterator[Client]:
    with broker_of(SERVED, handler_context(groups=stage.coordinator)) as made:
        yield made


@pytest.mark.spec("GRP-58")
@pytest.mark.parametrize("version", range(6))
def test_described_groups_keep_their_order_and_errors_their_place(stage: Stage, client: Client, version: int) -> None:
    request = describe_groups.DescribeGroupsRequest(groups=["g", "gone", ""])
    refused = client.call(describe_groups.API, version, replace(request, include_authorized_operations=version >= 3))
    assert [
        (g.group_id, g.error_code, g.group_state, g.protocol_type, g.protocol_data, g.members, g.authorized_operations)
        for g in refused.groups
    ] == [(name, 16, "", "", "", [], -(2**31)) for name in ("g", "gone", "")]
    stage.lead()
    member = make_stable(stage)
    request = replace(request, include_authorized_operations=version >= 3)
    stable, gone, nameless = client.call(describe_groups.API, version, request).groups
    assert (stable.group_state, stable.protocol_type, stable.protocol_data) == ("Stable", "consumer", "range")
    (only,) = stable.members
    assert (only.member_id, only.client_id, only.client_host) == (member, "client", "/h")
    assert (only.member_metadata, only.member_assignment) == (b"r", b"mine")
    assert [(g.error_code, g.group_state, g.members) for g in (gone, nameless)] == [(0, "Dead", [])] * 2
    assert stable.authorized_operations == (328 if version >= 3 else -(2**31))
    assert only.group_instance_id is None
    if version >= 3:
        request = replace(request, include_authorized_operations=False)
        assert client.call(describe_groups.API, 3, request).groups[0].authorized_operations == -(2**31)


@pytest.mark.spec("BRK-162")
@pytest.mark.parametrize("version", [3, 4, 5])
def test_static_members_are_described_with_their_instance_ids_from_version_4_on(
    stage: Stage, client: Client, version: int
) -> None:
    stage.lead()
    wish = JoinRequest("", "i-1", "client", "/h", 300_000, 60_000, "consumer", (("range", b"r"),), needs_known_id=False)
    stage.coordinator.join("g", wish, Parked(lambda _: None, lambda: None))
    request = describe_groups.DescribeGroupsRequest(groups=["g"])
    (group,) = client.call(describe_groups.API, version, request).groups
    assert [m.group_instance_id for m in group.members] == ["i-1" if version >= 4 else None]


@pytest.mark.spec("GRP-59")
@pytest.mark.parametrize("version", range(5))
def test_groups_are_listed_with_their_kind(stage: Stage, client: Client, version: int) -> None:
    stage.lead()
    stage.commit({A: 1}, group="simple")
    make_stable(stage)
    answer = client.call(list_groups.API, version, list_groups.ListGroupsRequest())
    assert answer.error_code == 0
    assert [(g.group_id, g.protocol_type) for g in answer.groups] == [("g", "consumer"), ("simple", "")]
    assert [g.group_state for g in answer.groups] == (["Stable", "Empty"] if version >= 4 else ["", ""])


@pytest.mark.spec("GRP-59")
@pytest.mark.parametrize(
    ("states", "found"),
    [
        ([], ["g", "simple"]),
        (["Stable"], ["g"]),
        (["Empty", "Dead"], ["simple"]),
        (["Empty", "Stable"], ["g", "simple"]),
        (["stable", "NoSuchState"], []),
    ],
)
def test_only_groups_in_the_states_asked_for_are_listed(
    stage: Stage, client: Client, states: list[str], found: list[str]
) -> None:
    stage.lead()
    stage.commit({A: 1}, group="simple")
    make_stable(stage)
    answer = client.call(list_groups.API, 4, list_groups.ListGroupsRequest(states_filter=states))
    assert [g.group_id for g in answer.groups] == found


@pytest.mark.spec("GRP-60")
@pytest.mark.parametrize("version", range(2))
def test_each_group_of_a_deletion_has_its_own_outcome(stage: Stage, client: Client, version: int) -> None:
    stage.lead()
    make_stable(stage)
    stage.commit({A: 1}, group="simple")

    def ask(*groups: str) -> list[tuple[str, int]]:
        answer = client.call(delete_groups.API, version, delete_groups.DeleteGroupsRequest(group_names=list(groups)))
        return [(r.group_id, r.error_code) for r in answer.results]

    assert ask() == []
    assert ask("simple", "g", "gone", "simple") == [("simple", 0), ("g", 68), ("gone", 69)]
    assert ask("simple") == [("simple", 69)]
    stage.follow()
    assert ask("g", "") == [("g", 16), ("", 16)]
