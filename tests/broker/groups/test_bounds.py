"""What many small requests may leave behind in the coordinator's memory (SEC-101)."""

import pytest

from kafkatool.broker.groups.group import MOST_METADATA_BYTES, MOST_PENDING, Group
from kafkatool.broker.groups.member import JoinRequest, JoinResult, Parked
from kafkatool.broker.groups.owned import MOST_NEW_GROUPS
from kafkatool.core.model.values import TopicPartition
from kafkatool.core.protocol.messages.error_codes import ErrorCode
from tests.broker.groups.test_coordinator import Stage

A = TopicPartition("t", 0)


@pytest.fixture
def stage(stage: Stage) -> Stage:
    stage.lead()
    return stage


def request(member_id: str = "", *, metadata: bytes = b"m", client_id: str = "c", asks: bool = False) -> JoinRequest:
    """Return a JoinGroup; ``asks``: of a version in which a first one gets its id and comes again."""
    return JoinRequest(member_id, None, client_id, "/h", 60_000, 60_000, "consumer", (("range", metadata),), asks)


def joined(group: Group, wanted: JoinRequest) -> list[JoinResult]:
    told: list[JoinResult] = []
    for effect in group.join(wanted, Parked(told.append, lambda: None), 0):
        effect()
    return told


@pytest.mark.spec("SEC-101", "GRP-24")
def test_so_many_ids_are_handed_out_and_who_comes_with_one_makes_room() -> None:
    group = Group("g", lambda _: None)
    ids = [joined(group, request(asks=True))[0].member_id for _ in range(MOST_PENDING)]
    assert (MOST_PENDING, len(group.pending)) == (10_000, 10_000)
    (told,) = joined(group, request(asks=True))
    assert (told.error, told.member_id) == (ErrorCode.GROUP_MAX_SIZE_REACHED, "")
    joined(group, request(ids[0]))
    assert joined(group, request(asks=True))[0].error is ErrorCode.MEMBER_ID_REQUIRED


@pytest.mark.spec("SEC-101", "GRP-34")
def test_the_metadata_of_all_members_together_is_bounded() -> None:
    group = Group("g", lambda _: None)
    half = MOST_METADATA_BYTES // 2
    assert MOST_METADATA_BYTES == 16 * 2**20
    first = request(metadata=bytes(half))
    assert joined(group, first) == []  # parked: it is let in
    (told,) = joined(group, request(metadata=bytes(half)))  # with both names it is a few bytes too much
    assert told.error is ErrorCode.GROUP_MAX_SIZE_REACHED
    (member_id,) = group.members
    assert joined(group, request(member_id, metadata=bytes(2 * half - 5))) == []  # its own of before does not count
    assert [result.error for result in joined(group, request())] == [ErrorCode.GROUP_MAX_SIZE_REACHED]


@pytest.mark.spec("SEC-101")
def test_of_a_clients_name_so_much_is_in_its_members_id(stage: Stage) -> None:
    told: list[JoinResult] = []
    stage.coordinator.join("g", request(client_id="x" * 4000, asks=True), Parked(told.append, lambda: None))
    name, _, number = told[0].member_id.partition("-")
    assert (name, len(number)) == ("x" * 255, 36)
    stage.coordinator.join("g", request("y" * 4097), Parked(told.append, lambda: None))
    assert told[1].error is ErrorCode.UNKNOWN_MEMBER_ID


@pytest.mark.spec("SEC-101", "GRP-24")
def test_of_groups_that_nothing_came_of_the_oldest_go(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    assert MOST_NEW_GROUPS == 100_000
    monkeypatch.setattr("kafkatool.broker.groups.owned.MOST_NEW_GROUPS", 3)
    told: list[JoinResult] = []
    parked = Parked(told.append, lambda: None)
    stage.commit({A: 7}, group="with an offset")
    stage.coordinator.join("with a member", request(), parked)
    for number in range(9):
        stage.coordinator.join(f"new-{number}", request(asks=True), parked)
    kept = {"with an offset", "with a member", "new-6", "new-7", "new-8"}
    assert {owned.group.id for owned in stage.coordinator.groups.all()} == kept
    ids = [result.member_id for result in told if result.error is ErrorCode.MEMBER_ID_REQUIRED]
    assert len(ids) == 9
    stage.coordinator.join("new-0", request(ids[0]), parked)
    assert told[-1].error is ErrorCode.UNKNOWN_MEMBER_ID  # with which clients begin anew
    assert stage.fetch("with an offset") == (ErrorCode.NONE, {A: 7})
    stage.coordinator.join("new-0", request(asks=True), parked)
    assert told[-1].error is ErrorCode.MEMBER_ID_REQUIRED
