"""Groups in every state change hands between a real coordinator and ours, both ways: what does the next one know?"""

import contextlib
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

from kafkatool.core.errors import BrokerUnreachableError
from tests.compat import real_kafka
from tests.compat.group_member import RawMember
from tests.compat.mixed import OFFSETS, OURS, WAIT_S, Mixed, mixed_cluster
from tests.integration.load import await_in_sync
from tests.waiting import eventually

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]

ILLEGAL_GENERATION, UNKNOWN_MEMBER, REBALANCING = 22, 25, 27
GROUP_ID_NOT_FOUND = 69
MOVING = (14, 15, 16)
TOPIC = "handed-over"


@pytest.fixture(scope="module", params=real_kafka.versions(("2.8.2", "2.3"), ("1.1.1", "1.1")))
def mixed(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Mixed]:
    version, protocol = request.param
    real_kafka.require(version)
    with mixed_cluster(version, protocol, tmp_path_factory.mktemp("handover")) as cluster:
        cluster.create(TOPIC, {0: (1, 2, OURS)})
        await_in_sync(cluster.zk, [OFFSETS], WAIT_S)
        yield cluster


def port_of(mixed: Mixed, broker: int) -> int:
    return mixed.ours.port if broker == OURS else mixed.real.ports[broker]


def lead(mixed: Mixed, broker: int) -> None:
    """Have that broker coordinate all groups."""
    if broker == OURS:
        if mixed.leaders(OFFSETS) != [OURS]:
            mixed.kt("elect", "--topic", OFFSETS)  # it is the preferred one
    else:
        mixed.stop(OURS)
        mixed.start(OURS, [OFFSETS, TOPIC])
    eventually(lambda: mixed.leaders(OFFSETS) == [broker], f"broker {broker} to lead the offsets topic", WAIT_S)


def ready(member: RawMember) -> bool:
    return member.committed()[1] not in MOVING


@pytest.mark.spec("GRP-63", "GRP-10", "GRP-11", "GRP-50")
@pytest.mark.parametrize(("before", "after"), [(OURS, 1), (1, OURS)], ids=["ours-theirs", "theirs-ours"])
def test_the_next_coordinator_knows_what_was_stored(mixed: Mixed, before: int, after: int) -> None:
    lead(mixed, before)

    def member(state: str) -> RawMember:
        made = RawMember(port_of(mixed, before), f"{state}-{before}", TOPIC)
        eventually(lambda: ready(made), "the coordinator to be ready", WAIT_S)
        return made

    stable, preparing, completing, first, outside = map(
        member, ("stable", "preparing", "completing", "first", "outside")
    )
    for one in (stable, preparing, completing):  # again if storing takes too long: a broker has just come back
        eventually(lambda m=one: (m.join(), m.sync()) == (0, 0), "a stable group", WAIT_S)  # type: ignore[misc]
        eventually(lambda m=one: m.commit(11) == 0, "a commit", WAIT_S)  # type: ignore[misc]
    eventually(lambda: outside.commit(7) == 0, "a commit from outside", WAIT_S)
    assert first.join() == 0
    stored = completing.generation
    assert completing.join(metadata=b"changed") == 0
    assert completing.generation == stored + 1
    with preparing.another_joining():
        eventually(lambda: preparing.heartbeat() == REBALANCING, "the rebalance to begin", WAIT_S)
        assert [m.heartbeat() for m in (stable, completing, first)] in ([0, 0, 0], [0, REBALANCING, REBALANCING])
        lead(mixed, after)
    for one in (stable, preparing, completing, first, outside):
        one.port = port_of(mixed, after)
        eventually(lambda m=one: ready(m), "the next coordinator to be ready", WAIT_S)  # type: ignore[misc]
    assert stable.heartbeat() == 0
    eventually(lambda: stable.commit(12) == 0, "a commit at the next coordinator", WAIT_S)
    assert stable.committed() == (12, 0)
    assert (preparing.heartbeat(), preparing.committed()) == (0, (11, 0)), "as stored: stable"
    assert (completing.heartbeat(), completing.commit(12)) == (ILLEGAL_GENERATION, ILLEGAL_GENERATION)
    assert (completing.heartbeat(generation=stored), completing.committed()) == (0, (11, 0))
    assert first.heartbeat() == UNKNOWN_MEMBER
    assert first.commit(1) in (ILLEGAL_GENERATION, UNKNOWN_MEMBER)
    assert outside.committed() == (7, 0)
    first.id = ""
    for one in (stable, preparing, completing, first):  # they go on from there
        eventually(lambda m=one: (m.join(metadata=b"again"), m.sync()) == (0, 0), "a stable group", WAIT_S)  # type: ignore[misc]
        assert one.heartbeat() == 0


@contextmanager
def until_it_dies(*steps: Callable[[], object]) -> Iterator[None]:
    """Repeat each step, on a thread of its own, until the coordinator has died under it."""
    over = threading.Event()

    def run(step: Callable[[], object]) -> None:
        with contextlib.suppress(BrokerUnreachableError):
            while step() != "done" and not over.is_set():
                pass

    threads = [threading.Thread(target=run, args=(step,)) for step in steps]
    for thread in threads:
        thread.start()
    try:
        yield
    finally:
        over.set()
        for thread in threads:
            thread.join()


@pytest.mark.spec("GRP-63", "GRP-52", "GRP-60")
@pytest.mark.parametrize(("before", "after"), [(OURS, 1), (1, OURS)], ids=["ours-theirs", "theirs-ours"])
def test_what_was_under_way_when_the_coordinator_was_killed_is_there_or_not(
    mixed: Mixed, before: int, after: int
) -> None:
    lead(mixed, before)

    def member(name: str) -> RawMember:
        return RawMember(port_of(mixed, before), f"killed-{name}-{before}", TOPIC)

    committing, moving = member("committing"), member("moving")
    doomed = [member(f"doomed-{number}") for number in range(200)]
    for one in (committing, moving, *doomed):
        eventually(lambda m=one: ready(m), "the coordinator to be ready", WAIT_S)  # type: ignore[misc]
    for one in (committing, moving):
        eventually(lambda m=one: (m.join(), m.sync()) == (0, 0), "a stable group", WAIT_S)  # type: ignore[misc]
    for one in doomed:
        eventually(lambda m=one: m.commit(7) == 0, "a commit from outside", WAIT_S)  # type: ignore[misc]
    sent, acknowledged, stored = [0], [0], [moving.generation]
    deleted: list[RawMember] = []
    left = iter(doomed)

    def commit() -> None:
        sent[0] += 1
        if committing.commit(sent[0]) == 0:
            acknowledged[0] = sent[0]

    def rebalance() -> None:
        if moving.join(metadata=b"%d" % moving.generation) == 0 and moving.sync() == 0:
            stored[0] = moving.generation

    def delete() -> str:
        one = next(left, None)
        if one is not None and one.delete() == 0:
            deleted.append(one)
        return "" if one is not None else "done"

    with until_it_dies(commit, rebalance, delete):
        eventually(lambda: acknowledged[0] > 20 and stored[0] > 5 and len(deleted) > 5, "all to be at work", WAIT_S)
        mixed.kill(before)
    try:
        eventually(lambda: mixed.leaders(OFFSETS) == [after], f"broker {after} to lead the offsets topic", WAIT_S)
        for one in (committing, moving, *doomed):
            one.port = port_of(mixed, after)
            eventually(lambda m=one: ready(m), "the next coordinator to be ready", WAIT_S)  # type: ignore[misc]
        offset, _ = committing.committed()
        assert acknowledged[0] <= offset <= sent[0], "it, or the one before"
        assert committing.heartbeat() == 0
        eventually(lambda: committing.commit(sent[0] + 1) == 0, "the client to commit again", WAIT_S)
        # The last that was answered, or one after it whose answer was an error or never came.
        codes = {number: moving.heartbeat(number) for number in range(stored[0], moving.generation + 1)}
        known = [number for number, code in codes.items() if code == 0]
        assert len(known) == 1 and set(codes.values()) <= {0, ILLEGAL_GENERATION}, codes
        eventually(lambda: (moving.join(metadata=b"on"), moving.sync()) == (0, 0), "the group to go on", WAIT_S)
        assert moving.generation > known[0]
        found = {one.group: one.committed() for one in doomed}
        assert set(found.values()) <= {(7, 0), (-1, 0)}
        if before == OURS:  # its answers wait for the tombstones, those of real brokers do not
            assert {found[one.group] for one in deleted} == {(-1, 0)}
        for one in doomed:
            eventually(lambda m=one: m.delete() in (0, GROUP_ID_NOT_FOUND), "the rest to be deleted", WAIT_S)  # type: ignore[misc]
        assert {one.committed() for one in doomed} == {(-1, 0)}
    finally:
        mixed.start(before, [OFFSETS, TOPIC])
