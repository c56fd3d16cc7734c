"""A broker of ours among real ones: follower, leader and controller of theirs, coordinator of the same groups."""

from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from kafkatool.broker.config import BrokerConfig
from kafkatool.broker.server import Broker
from kafkatool.broker.storage.checkpoint import read_offsets
from kafkatool.core.cluster_view import read_cluster
from kafkatool.core.model import TopicPartition
from kafkatool.core.operations.topics import create_topic
from kafkatool.core.protocol.records import iter_batches
from kafkatool.core.znodes import PreferredElectionZnode
from kafkatool.core.zookeeper import ZooKeeper
from tests.compat import real_kafka
from tests.compat.real_kafka import RealKafka
from tests.integration.load import Load, await_in_sync, check_records
from tests.integration.test_going_on import Member
from tests.ports import free_port
from tests.waiting import eventually

pytestmark = [pytest.mark.slow, pytest.mark.timeout(400)]

OURS = 3
EACH_WAY = {0: (1, 2, OURS), 1: (2, OURS, 1), 2: (OURS, 1, 2)}
OFFSETS = "__consumer_offsets"


class RealBrokers(RealKafka):
    """They are not the whole cluster, so whom they know is not to be waited for: the tests wait for replicas in sync."""

    def _wait_known(self, brokers: set[int]) -> None:
        return


class Mixed(NamedTuple):
    """Real brokers 1 and 2, ours is 3. ``ours`` may be stopped and started."""

    real: RealKafka
    ours: Broker
    zk: ZooKeeper

    @property
    def bootstrap(self) -> str:
        return f"{self.real.bootstrap},127.0.0.1:{self.ours.config.listeners[0].port}"

    def create(self, topic: str) -> None:
        create_topic(self.zk, topic, EACH_WAY, {"min.insync.replicas": "2"})
        await_in_sync(self.zk, [topic])

    def leaders(self, topic: str) -> list[int | None]:
        states = read_cluster(self.zk, [topic]).states
        return [states[p].leader_and_isr.leader for p in sorted(states)]

    def controller(self) -> int | None:
        return read_cluster(self.zk, [], states=False).controller_id

    def reign(self, broker_id: int) -> None:
        """Have that broker become controller: the node is deleted until it wins the race."""

        def won() -> bool:
            if self.controller() == broker_id:
                return True
            if self.zk.get("/controller") is not None:
                self.zk.delete("/controller")
            return False

        eventually(won, f"broker {broker_id} to be controller", 60)


@pytest.fixture(scope="module", params=[("2.8.2", "2.3"), ("1.1.1", "1.1")], ids=["2.8.2", "1.1.1"])
def mixed(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Mixed]:
    version, protocol = request.param
    real_kafka.require(version)
    directory: Path = tmp_path_factory.mktemp("mixed")
    both = {
        "inter.broker.protocol.version": protocol,
        "unclean.leader.election.enable": "false",
        "offsets.topic.num.partitions": "1",
        "replica.lag.time.max.ms": "10000",
        "zookeeper.session.timeout.ms": "6000",
        "auto.leader.rebalance.enable": "false",
        "group.initial.rebalance.delay.ms": "0",
    }
    with RealBrokers(
        version, directory / "real", brokers=2, options={**both, "log.message.format.version": protocol}
    ) as real:
        config = BrokerConfig.from_properties(
            {
                **both,
                "broker.id": str(OURS),
                "zookeeper.connect": real.connect,
                "log.dirs": str(directory / "ours" / "data"),
                "listeners": f"PLAINTEXT://127.0.0.1:{free_port()}",
            }
        )
        with Broker(config) as ours, ZooKeeper(real.connect) as zk:
            eventually(lambda: len(read_cluster(zk, [], states=False).brokers) == 3, "all to be registered", 60)
            create_topic(zk, OFFSETS, {0: (OURS, 1, 2)}, {"cleanup.policy": "compact", "compression.type": "producer"})
            yield Mixed(real, ours, zk)


@pytest.mark.spec("BRK-2", "BRK-3", "BRK-50", "BRK-66", "BRK-129", "CTL-53", "CTL-54")
@pytest.mark.parametrize("controller", [1, OURS])
def test_each_leads_and_follows_the_others_whoever_is_controller(mixed: Mixed, controller: int) -> None:
    topic = f"data-{controller}"
    mixed.reign(controller)
    mixed.create(topic)
    assert mixed.leaders(topic) == [1, 2, OURS]
    load = Load(mixed.bootstrap, topic, idempotent=True, records_per_step=5)
    try:
        load.goes_on(500)
        mixed.ours.stop()  # its leaders move to real brokers
        load.goes_on(200)
        assert OURS not in mixed.leaders(topic)
        mixed.ours.start()
        await_in_sync(mixed.zk, [topic])
        mixed.real.stop_broker(2)  # and theirs to ours and to the other
        load.goes_on(200)
        assert 2 not in mixed.leaders(topic)
        mixed.real.start_broker(2)
        await_in_sync(mixed.zk, [topic])
        load.goes_on(100)
    finally:
        load.stop()
    await_in_sync(mixed.zk, [topic])
    check_records(mixed, topic, 3, load, once=True)  # type: ignore[arg-type]


@pytest.mark.spec("GRP-63", "GRP-50", "GRP-10", "BRK-2")
def test_a_group_moves_from_our_coordinator_to_theirs_and_back(mixed: Mixed) -> None:
    mixed.create("grouped")
    await_in_sync(mixed.zk, [OFFSETS])
    preferred = PreferredElectionZnode.encode([TopicPartition(OFFSETS, 0)])
    mixed.zk.create(PreferredElectionZnode.PATH, preferred, make_parents=True)
    eventually(lambda: mixed.leaders(OFFSETS) == [OURS], "our broker to lead the offsets topic", 30)
    load = Load(mixed.bootstrap, "grouped", idempotent=True, records_per_step=5)
    member = Member(mixed.bootstrap, "grouped", "grouped")

    def goes_on_at(coordinator: int) -> None:
        assert mixed.leaders(OFFSETS) == [coordinator]
        before = dict(member.committed)
        load.goes_on(100)
        eventually(lambda: all(member.committed[p] > before[p] for p in before), "commits to go on", 60)

    try:
        load.goes_on(100)
        eventually(lambda: len(member.committed) == 3, "the first commits", 60)
        goes_on_at(OURS)
        mixed.ours.stop()
        goes_on_at(1)
        mixed.ours.start()
        await_in_sync(mixed.zk)
        with mixed.real.without_broker(1):
            goes_on_at(OURS)
        await_in_sync(mixed.zk)
        load.stop()
        member.has_all_of(load)
        assert member.assignments == 1, "no rebalance"
        assert member.errors == []
    finally:
        load.stop()
        member.stop()


@pytest.mark.spec("BRK-129", "BRK-135", "BRK-137", "BRK-139", "BRK-149")
def test_our_directory_serves_a_real_broker_and_theirs_ours(mixed: Mixed) -> None:
    """The replicas of broker 3 change hands, after a clean stop and after a kill; nothing is fetched anew."""
    mixed.create("handed")
    data, port = mixed.ours.config.log_dirs[0], mixed.ours.config.listeners[0].port
    mixed.real.ports[OURS] = port
    mixed.real.data_directory(OURS).symlink_to(data)
    load = Load(mixed.bootstrap, "handed", idempotent=True, records_per_step=5)

    def files() -> dict[int, tuple[int, bytes]]:
        """Of each partition the log file's inode and content, as far as every replica in sync has it."""
        marks = read_offsets(data / "replication-offset-checkpoint")
        kept = {}
        for partition in EACH_WAY:
            log = data / f"handed-{partition}" / "00000000000000000000.log"
            mark, content = marks[TopicPartition("handed", partition)], log.read_bytes()
            ends = [at + b.size_bytes for at, b in iter_batches(content) if b.next_offset <= mark]
            kept[partition] = (log.stat().st_ino, content[: max(ends, default=0)])
        return kept

    def taken_over(before: dict[int, tuple[int, bytes]]) -> None:
        load.goes_on(100)
        await_in_sync(mixed.zk, ["handed"])
        for partition, (inode, content) in before.items():
            log = data / f"handed-{partition}" / "00000000000000000000.log"
            assert inode == log.stat().st_ino and log.read_bytes().startswith(content)

    try:
        load.goes_on(300)
        for gently in (True, False):
            mixed.ours.stop()
            before = files()
            mixed.real.start_broker(OURS)
            taken_over(before)
            if gently:
                mixed.real.stop_broker(OURS)
            else:
                process = mixed.real._processes.pop(f"broker-{OURS}")
                process.kill()
                process.wait()
                eventually(
                    lambda: OURS not in read_cluster(mixed.zk, [], states=False).brokers, "its session to end", 60
                )
            before = files()
            mixed.ours.start()
            taken_over(before)
    finally:
        load.stop()
        del mixed.real.ports[OURS]
    await_in_sync(mixed.zk, ["handed"])
    check_records(mixed, "handed", 3, load, once=True)  # type: ignore[arg-type]
