"""Each effect of a group is carried out by itself: any of them may raise, and only the one it concerns notices."""

import itertools
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from kafkatool.broker.coordination.ids import LONGEST_ID_BYTES
from kafkatool.broker.groups.member import JoinRequest, JoinResult, Parked, SyncResult
from kafkatool.core.protocol.messages.error_codes import ErrorCode
from tests.broker.groups.test_coordinator import A, Stage

LONGEST = 2**15 - 1  # bytes of a string in Kafka's protocol


class Faults:
    """Counts what groups cause outside, and makes one of these calls raise: the ``at``-th, none if it is never met."""

    def __init__(self, at: int) -> None:
        self.at = at
        self.calls = 0

    def __call__(self) -> None:
        self.calls += 1
        if self.calls == self.at:
            raise RuntimeError(f"call {self.at} fails by order of the test")


class Client:
    """A member of a group: what it asked is ``open`` until it is answered or its connection is closed."""

    def __init__(self, stage: Stage, faults: Faults, group: str, instance_id: str | None = None) -> None:
        self._stage, self._faults, self.group, self._instance_id = stage, faults, group, instance_id
        self.id = ""
        self.generation = -1
        self.error = ErrorCode.NONE
        self.open = 0
        self.dropped = 0

    def _parked(self) -> Parked[Any]:
        self.open += 1

        def answer(result: JoinResult | SyncResult) -> None:
            self._faults()
            self.open -= 1
            self.error = result.error
            if isinstance(result, JoinResult):
                self.id, self.generation = result.member_id, result.generation

        def drop() -> None:
            self.open -= 1
            self.dropped += 1
            self._faults()

        return Parked(answer, drop)

    def join(self, metadata: bytes = b"r") -> None:
        request = JoinRequest(
            self.id, self._instance_id, "c", "/h", 60_000, 60_000, "consumer", (("range", metadata),), False
        )
        self._stage.coordinator.join(self.group, request, self._parked())

    def sync(self, assignments: dict[str, bytes] | None = None) -> None:
        self._stage.coordinator.sync(
            self.group, self.id, self._instance_id, self.generation, assignments or {}, self._parked()
        )


def rebalances_and_hand_over(stage: Stage, faults: Faults) -> list[Client]:
    """Play two members, a static one that restarts, a repeated request, a leave, commits; lose both partitions."""
    clients: list[Client] = []

    def client(group: str, instance_id: str | None = None) -> Client:
        clients.append(Client(stage, faults, group, instance_id))
        return clients[-1]

    for group in ("group-0", "group-1"):
        first, second, static = client(group), client(group), client(group, "i")
        first.join()
        first.sync({first.id: b"all"})
        second.join()
        first.join()
        static.join()
        first.join(b"new")
        second.join(b"new")
        for member in (second, static, first, first):
            member.sync({m.id: b"some" for m in (first, second, static)})
        restarted = client(group, "i")
        restarted.join()
        stage.leave(second.id, group)
        stage.commit({A: 7}, group="simple-" + group)
    waiting = [client(group) for group in ("group-0", "group-1")]
    for member in waiting:
        member.join()
    stage.follow()
    return clients


@pytest.fixture
def make_stage(tmp_path: Path) -> Iterator[Callable[[], Stage]]:
    numbers = itertools.count()
    made: list[Stage] = []

    def make() -> Stage:
        made.append(Stage(tmp_path / f"data-{next(numbers)}", partitions=2))
        return made[-1]

    yield make
    for stage in made:
        stage.close()


def play(stage: Stage, monkeypatch: pytest.MonkeyPatch, at: int) -> tuple[list[Client], Faults]:
    faults = Faults(at)
    append = stage.replica.append

    def failing(*args: Any, **options: Any) -> None:
        faults()
        append(*args, **options)

    stage.lead()
    with monkeypatch.context() as patch:
        patch.setattr(stage.replica, "append", failing)
        clients = rebalances_and_hand_over(stage, faults)
    return clients, faults


@pytest.mark.spec("GRP-15", "GRP-20")
def test_whichever_effect_raises_nobody_else_waits_for_ever(
    make_stage: Callable[[], Stage], monkeypatch: pytest.MonkeyPatch
) -> None:
    stage = make_stage()
    assert {stage.coordinator.partition_of(g) for g in ("group-0", "group-1")} == {0, 1}
    clients, faults = play(stage, monkeypatch, at=0)
    assert [c.open for c in clients] == [0] * len(clients), "without a fault everything is answered at the end"
    assert faults.calls > 30
    for at in range(1, faults.calls + 1):
        stage = make_stage()
        clients, _ = play(stage, monkeypatch, at)
        assert [c.open for c in clients] == [0] * len(clients), f"call {at} raised"
        assert not stage.coordinator.groups.all(), f"call {at} raised: both partitions are handed over"
        stage.lead()
        for group in ("group-0", "group-1"):
            for owned in stage.coordinator.groups.all():
                for member_id in list(owned.group.members):
                    stage.leave(member_id, owned.group.id)
            late = Client(stage, Faults(0), group)
            late.join()
            late.sync({late.id: b"all"})
            assert (late.error, late.open) == (ErrorCode.NONE, 0), f"call {at} raised: the group goes on"


@pytest.mark.spec("GRP-21", "GRP-23", "GRP-41")
@pytest.mark.parametrize("field", ["client_id", "instance_id", "member_id", "kind", "protocol", "metadata"])
def test_who_could_not_be_stored_is_not_let_in(make_stage: Callable[[], Stage], field: str) -> None:
    stage = make_stage()
    stage.lead()
    good = Client(stage, Faults(0), "g")
    good.join()
    text = {field: "\ufffd" * LONGEST}
    metadata = b"m" * (stage.config.message_max_bytes + 1) if field == "metadata" else b"r"
    told: list[JoinResult] = []
    request = JoinRequest(
        text.get("member_id", ""),
        text.get("instance_id"),
        text.get("client_id", "c"),
        "/h",
        60_000,
        60_000,
        "\ufffd" * LONGEST if field == "kind" else "consumer",
        (("\ufffd" * LONGEST if field == "protocol" else "range", metadata),),
        needs_known_id=False,
    )
    stage.coordinator.join("g", request, Parked(told.append, lambda: None))
    expected = ErrorCode.UNKNOWN_MEMBER_ID if field == "member_id" else ErrorCode.INVALID_REQUEST
    assert [result.error for result in told] == [expected]
    good.sync({good.id: b"mine"})
    assert (good.error, good.open) == (ErrorCode.NONE, 0), "the others have not noticed"


@pytest.mark.spec("GRP-8", "GRP-48", "SEC-101")
def test_a_group_id_or_metadata_that_cannot_be_stored_is_refused(make_stage: Callable[[], Stage]) -> None:
    stage = make_stage()
    stage.lead()
    read_from_no_utf8 = "\ufffd" * LONGEST
    assert stage.commit({A: 1}, group=read_from_no_utf8) == {A: ErrorCode.INVALID_GROUP_ID}
    assert stage.commit({A: 1}, metadata=read_from_no_utf8) == {A: ErrorCode.OFFSET_METADATA_TOO_LARGE}
    longest = "x" * (LONGEST_ID_BYTES - 1) + "y"
    assert stage.commit({A: 1}, group=longest + "z") == {A: ErrorCode.INVALID_GROUP_ID}
    assert stage.commit({A: 2}, group=longest) == {A: ErrorCode.NONE}
    stage.restart()
    assert stage.fetch(longest) == (ErrorCode.NONE, {A: 2})


@pytest.mark.spec("GRP-51")
def test_a_commit_whose_record_cannot_be_written_is_answered_and_is_not_under_way(
    make_stage: Callable[[], Stage], monkeypatch: pytest.MonkeyPatch
) -> None:
    stage = make_stage()
    stage.lead()
    stage.commit({A: 1})
    with monkeypatch.context() as patch:
        patch.setattr(stage.replica, "append", lambda *_args, **_options: Faults(1)())
        assert stage.commit({A: 2}) == {A: ErrorCode.UNKNOWN_SERVER_ERROR}
    (owned,) = stage.coordinator.groups.all()
    assert not +owned.group.offsets.under_way
    assert stage.fetch() == (ErrorCode.NONE, {A: 1})
