"""A broker of ours among real ones: follower, leader and controller of theirs, coordinator of the same groups.

All under load by an idempotent producer with acks=all; afterwards nothing is lost or doubled, and the replicas' logs
are equal to the byte.
"""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from kafkatool.broker.storage.checkpoint import read_offsets
from kafkatool.core.model.values import TopicPartition
from kafkatool.core.protocol.records.batches import iter_batches
from tests.compat import real_kafka
from tests.compat.mixed import OFFSETS, OURS, WAIT_S, Mixed, loaded, mixed_cluster
from tests.integration.load import await_in_sync
from tests.integration.test_going_on import Member
from tests.waiting import eventually

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]

VERSIONS = (
    *[("2.8.2", "2.3"), ("1.1.1", "1.1"), ("0.11.0.3", "0.11.0"), ("0.10.2.2", "0.10.2")],
    *[("1.0.2", "1.0"), ("2.0.1", "2.0"), ("2.1.1", "2.1"), ("2.2.2", "2.2"), ("2.4.1", "2.3")],
)
"""And the protocol, which is the message format too: from 0.10.2.2 all logs are of format 1."""

EACH_WAY = {0: (1, 2, OURS), 1: (2, OURS, 1), 2: (OURS, 1, 2)}
ROUNDS = int(os.environ.get("KAFKATOOL_MIXED_ROUNDS", "1"))
"""How often each partition's leader goes round all brokers; more by hand: 1 is six moves from theirs to ours and back."""


@pytest.fixture(scope="module", params=real_kafka.versions(*VERSIONS))
def mixed(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Mixed]:
    version, protocol = request.param
    real_kafka.require(version)
    with mixed_cluster(version, protocol, tmp_path_factory.mktemp("mixed")) as cluster:
        yield cluster


@pytest.mark.spec("BRK-2", "BRK-3", "BRK-50", "BRK-66", "BRK-129", "CTL-53", "CTL-54")
@pytest.mark.parametrize("controller", [1, OURS])
def test_each_leads_and_follows_the_others_whoever_is_controller(mixed: Mixed, controller: int) -> None:
    topic = f"data-{controller}"
    mixed.reign(controller)
    mixed.create(topic, EACH_WAY)
    assert mixed.leaders(topic) == [1, 2, OURS]
    with loaded(mixed, topic) as load:
        for victim in (OURS, 2):  # its leaders move to the others, ours to theirs and theirs to ours
            mixed.stop(victim)
            load.goes_on(200, WAIT_S)
            eventually(lambda v=victim: v not in mixed.leaders(topic), "its partitions to be led by others", WAIT_S)  # type: ignore[misc]
            mixed.start(victim, [topic])


@pytest.mark.slowest
@pytest.mark.spec("BRK-2", "BRK-3", "CTL-53")
@pytest.mark.parametrize(
    ("version", "protocol"),
    [
        *[("0.10.2.2", "0.10.0"), ("0.10.2.2", "0.10.1"), ("1.1.1", "1.0")],
        *[("2.8.2", "2.0"), ("2.8.2", "2.1"), ("2.8.2", "2.2")],
        *[("2.3.1", "2.3"), ("2.5.1", "2.3"), ("2.6.3", "2.3"), ("2.7.2", "2.3")],
    ],
)
def test_protocols_and_releases_in_between_are_spoken_both_ways(version: str, protocol: str, tmp_path: Path) -> None:
    real_kafka.require(version)
    with mixed_cluster(version, protocol, tmp_path) as cluster:
        cluster.create("data", EACH_WAY)
        with loaded(cluster, "data") as load:
            for controller in (1, OURS):
                cluster.reign(controller)
                cluster.stop(2)
                load.goes_on(100, WAIT_S)
                eventually(lambda: 2 not in cluster.leaders("data"), "its partition to be led by another", WAIT_S)
                cluster.start(2, ["data"])
            cluster.kt("elect", "--topic", "data")
            assert cluster.leaders("data") == [1, 2, OURS]


@pytest.mark.spec("ADM-89", "ADM-98", "BRK-2", "BRK-161")
@pytest.mark.parametrize(("name", "magic"), [("0.10.2", 1), ("0.9.0", 0)])
def test_topics_of_older_formats_are_replicated_both_ways(mixed: Mixed, name: str, magic: int) -> None:
    """Leaders of theirs and ours in turn, whose followers cut at the high watermark as there are no epochs."""
    topic = f"format-{magic}"
    mixed.create(topic, EACH_WAY, configs={"message.format.version": name})
    with loaded(mixed, topic, idempotent=False) as load:
        for victim in (OURS, 2):
            mixed.stop(victim)
            load.goes_on(200, WAIT_S)
            mixed.start(victim, [topic])
        mixed.kt("elect", "--topic", topic)
        assert mixed.leaders(topic) == [1, 2, OURS]
    for partition in EACH_WAY:
        files = sorted((mixed.ours.data / f"{topic}-{partition}").glob("*.log"))
        assert {header.magic for file in files for _, header in iter_batches(file.read_bytes())} == {magic}


@pytest.mark.spec("BRK-2", "BRK-50", "BRK-53", "BRK-66", "CTL-53", "CTL-91", "CTL-102", "ELE-7")
@pytest.mark.parametrize("controller", [2, OURS])
def test_leaders_and_data_move_back_and_forth(mixed: Mixed, controller: int) -> None:
    """``kt reassign`` and ``kt elect`` send each partition's leader round all brokers, and one topic's data with it."""
    moved, elected = f"moved-{controller}", f"elected-{controller}"
    brokers = (1, 2, OURS)
    mixed.create(moved, {p: (brokers[p], brokers[(p + 1) % 3]) for p in range(3)}, min_in_sync=1)
    mixed.create(elected, EACH_WAY)
    with loaded(mixed, moved) as load, loaded(mixed, elected) as other:
        for step in range(1, 3 * ROUNDS + 1):
            mixed.reign(controller)
            turned = {p: brokers[(p + step) % 3 :] + brokers[: (p + step) % 3] for p in range(3)}
            plan = {TopicPartition(moved, p): replicas[:2] for p, replicas in turned.items()}
            mixed.reassign(plan | {TopicPartition(elected, p): replicas for p, replicas in turned.items()})
            await_in_sync(mixed.zk, [moved, elected], WAIT_S)
            for topic in (moved, elected):
                mixed.kt("elect", "--topic", topic)
            wanted = [turned[p][0] for p in range(3)]
            assert mixed.leaders(moved) == mixed.leaders(elected) == wanted
            load.goes_on(50, WAIT_S)
            other.goes_on(50, WAIT_S)
    mixed.check_replicas()


@pytest.mark.spec("BRK-2", "BRK-59", "BRK-66", "BRK-121", "BRK-137", "CTL-24", "CTL-37", "CTL-43")
def test_leaders_that_are_controllers_are_killed_in_turn(mixed: Mixed) -> None:
    """With only one of theirs beside ours, each kill -9 leaves both jobs to the other kind."""
    mixed.create("killed", {0: (1, OURS), 1: (OURS, 1)}, min_in_sync=1)
    with loaded(mixed, "killed") as load:
        mixed.stop(2)
        mixed.reign(1)
        for victim, heir in [(1, OURS), (OURS, 1)] * ROUNDS:
            mixed.kill(victim)
            load.goes_on(200, WAIT_S)
            eventually(lambda h=heir: mixed.leaders("killed") == [h, h], f"{heir} to lead both", WAIT_S)  # type: ignore[misc]
            assert mixed.controller() == heir
            mixed.start(victim, ["killed"])
        mixed.real.start_broker(2)
    await_in_sync(mixed.zk, seconds=WAIT_S)
    mixed.check_replicas()


@pytest.mark.spec("GRP-63", "GRP-50", "GRP-10", "BRK-2")
def test_a_group_moves_from_our_coordinator_to_theirs_and_back(mixed: Mixed) -> None:
    mixed.create("grouped", EACH_WAY)
    await_in_sync(mixed.zk, [OFFSETS], WAIT_S)
    mixed.kt("elect", "--topic", OFFSETS)
    member = Member(mixed.bootstrap, "grouped", "grouped")

    def goes_on_at(coordinator: int) -> None:
        eventually(lambda: mixed.leaders(OFFSETS) == [coordinator], f"{coordinator} to coordinate", WAIT_S)
        before = dict(member.committed)
        load.goes_on(100, WAIT_S)
        eventually(lambda: all(member.committed[p] > before[p] for p in before), "commits to go on", WAIT_S)

    try:
        with loaded(mixed, "grouped") as load:
            eventually(lambda: len(member.committed) == 3, "the first commits", WAIT_S)
            assignments = member.assignments
            goes_on_at(OURS)
            mixed.stop(OURS)
            goes_on_at(1)
            mixed.start(OURS, ["grouped", OFFSETS])
            mixed.stop(1)
            goes_on_at(OURS)
            mixed.start(1, ["grouped", OFFSETS])
        member.has_all_of(load)
        assert member.assignments == assignments, "no rebalance"
        assert member.errors == []
    finally:
        member.stop()


@pytest.mark.spec("BRK-129", "BRK-135", "BRK-137", "BRK-139", "BRK-149")
def test_our_directory_serves_a_real_broker_and_theirs_ours(mixed: Mixed) -> None:
    """The replicas of broker 3 change hands, after a clean stop and after a kill -9; nothing is fetched anew."""
    mixed.create("handed", EACH_WAY)
    data = mixed.ours.data
    mixed.real.ports[OURS] = mixed.ours.port
    mixed.real.data_directory(OURS).symlink_to(data)

    def files() -> dict[int, tuple[int, bytes]]:
        """Return each partition's log file: inode, and content as far as every replica in sync has it."""
        marks = read_offsets(data / "replication-offset-checkpoint")
        kept = {}
        for partition in EACH_WAY:
            log = data / f"handed-{partition}" / "00000000000000000000.log"
            mark, content = marks[TopicPartition("handed", partition)], log.read_bytes()
            ends = [at + b.size_bytes for at, b in iter_batches(content) if b.next_offset <= mark]
            kept[partition] = (log.stat().st_ino, content[: max(ends, default=0)])
        return kept

    def taken_over(before: dict[int, tuple[int, bytes]]) -> None:
        load.goes_on(100, WAIT_S)
        await_in_sync(mixed.zk, ["handed"], WAIT_S)
        for partition, (inode, content) in before.items():
            log = data / f"handed-{partition}" / "00000000000000000000.log"
            assert inode == log.stat().st_ino and log.read_bytes().startswith(content)

    try:
        with loaded(mixed, "handed") as load:
            for gently in (True, False):
                mixed.stop(OURS) if gently else mixed.kill(OURS)
                before = files()
                mixed.real.start_broker(OURS)
                taken_over(before)
                mixed.real.stop_broker(OURS) if gently else mixed.real.kill_broker(OURS)
                mixed.await_gone(OURS)
                before = files()
                mixed.ours.start()
                taken_over(before)
    finally:
        del mixed.real.ports[OURS]
