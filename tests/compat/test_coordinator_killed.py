"""kill -9 of the broker that coordinates the groups of all client libraries while they read, commit and rebalance."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Final

import pytest
from confluent_kafka import Consumer, TopicPartition

from kafkatool.broker.embedded.cluster import EmbeddedCluster
from kafkatool.core.operations.topics.creation import create_topic
from kafkatool.core.zookeeper.session import ZooKeeper
from tests.compat.client_process import ClientProcess
from tests.compat.client_programs import PREPARE, MissingError, Program
from tests.compat.told import await_told
from tests.compat.trickle import PARTITIONS, Trickle
from tests.integration.load import await_in_sync
from tests.integration.test_going_on import coordinator_of
from tests.steady import LASTING, crash
from tests.waiting import eventually

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]

CLIENTS: Final = ("confluent-kafka", "aiokafka", "kafka-python", "java-2.8", "franz-go", "kafkajs")
WAIT_S: Final = 150
OPTIONS: Final = {
    **LASTING,
    "min.insync.replicas": "2",
    "unclean.leader.election.enable": "false",
    "auto.leader.rebalance.enable": "false",
    "offsets.topic.num.partitions": "1",  # so that all groups have the same coordinator
}


class Pair:
    """Two members of one client's group."""

    def __init__(self, client: str, program: Program, cluster: EmbeddedCluster, directory: Path) -> None:
        self.client = client
        self.topic = self.group = f"of-{client}"
        self.members: list[ClientProcess] = []
        self._program = program
        self._cluster = cluster
        self._directory = directory

    def start_member(self, processes: ExitStack, without: int = 0) -> None:
        """``without``: a broker whose address it is not given; kafka-python does not start if it is the first it tries."""
        addresses = self._cluster.bootstrap.split(",")
        bootstrap = ",".join(address for broker, address in enumerate(addresses, 1) if broker != without)
        log = self._directory / f"{self.client}-{len(self.members)}.log"
        started = ClientProcess(self._program, log, "group", bootstrap, self.topic, self.group)
        self.members.append(processes.enter_context(started))

    def read(self) -> list[int]:
        """Return the number of records of each partition."""
        return [sum(len(m.records[self.topic, p]) for m in self.members) for p in range(PARTITIONS)]

    def wait_read(self, records: int) -> None:
        """Until that many more of each partition are read."""
        wanted = [count + records for count in self.read()]
        title = f"{records} more records of each partition to be read"
        self.wait(title, lambda: all(now >= then for now, then in zip(self.read(), wanted, strict=True)))

    def keys(self) -> set[str]:
        return {key for member in self.members for key, _ in member.read_of(self.topic)}

    def shared(self) -> bool:
        """Tell whether every partition belongs to one member."""
        assigned = sorted(partition for member in self.members for partition in member.assigned)
        return assigned == list(range(PARTITIONS)) and all(member.assigned for member in self.members)

    def committed(self) -> list[int]:
        """Asked as a stranger."""
        asking = Consumer({"bootstrap.servers": self._cluster.bootstrap, "group.id": self.group, "log_level": 0})
        try:
            found = asking.committed([TopicPartition(self.topic, p) for p in range(PARTITIONS)], timeout=60)
        finally:
            asking.close()
        return [partition.offset for partition in found]

    def wait(self, what: str, condition: Callable[[], bool]) -> None:
        def came_true() -> bool:
            for member in self.members:
                member.check_alive()
            return condition()

        eventually(came_true, f"{self.client}: {what}", WAIT_S)


@contextmanager
def pairs(cluster: EmbeddedCluster, zk: ZooKeeper, directory: Path) -> Iterator[tuple[list[Pair], ExitStack]]:
    """Give a member of each client that can run here, with its topic; the Python ones always can."""
    found = []
    for client in CLIENTS:
        try:
            found.append(Pair(client, PREPARE[client](), cluster, directory))
        except MissingError as e:
            print(f"without {client}: {e}")
    assert len(found) >= 3
    for pair in found:
        create_topic(zk, pair.topic, {0: (1, 2, 3), 1: (2, 3, 1), 2: (3, 1, 2)}, {})
    await_in_sync(zk, seconds=WAIT_S)
    await_told(zk, cluster.bootstrap, [pair.topic for pair in found])
    with ExitStack() as processes:
        yield found, processes


@pytest.mark.spec("GRP-61", "GRP-24", "GRP-26", "GRP-47", "GRP-52")
def test_all_clients_go_on_at_the_next_coordinator(tmp_path: Path) -> None:
    with (
        EmbeddedCluster(3, directory=tmp_path / "cluster", options=OPTIONS) as cluster,
        ZooKeeper(cluster.zookeeper) as zk,
        pairs(cluster, zk, tmp_path) as (groups, processes),
    ):
        trickle = Trickle(cluster.bootstrap, [pair.topic for pair in groups])
        try:
            for pair in groups:
                pair.start_member(processes)
            for pair in groups:
                pair.wait_read(5)
                pair.wait("its first commit", lambda p=pair: max(p.committed()) > 0)  # type: ignore[misc]
            await_in_sync(zk, seconds=WAIT_S)
            victim = coordinator_of(zk, groups[0].group)
            for pair in groups:
                pair.start_member(processes, without=victim)  # from here they rebalance, one after the other
            eventually(lambda: any(pair.shared() for pair in groups), "one group to have rebalanced", WAIT_S)
            before = {pair.client: pair.committed() for pair in groups}
            assert coordinator_of(zk, groups[0].group) == victim
            crash(cluster, zk, victim)
            for pair in groups:
                pair.wait("two members to share the partitions", pair.shared)
            assert coordinator_of(zk, groups[0].group) != victim
            for pair in groups:
                pair.wait_read(5)
                after = pair.committed()
                assert all(a >= b for a, b in zip(after, before[pair.client], strict=True)), (
                    pair.client,
                    before,
                    after,
                )
            cluster.start_broker(victim)
            await_in_sync(zk, seconds=WAIT_S)
        finally:
            trickle.stop()
        assert trickle.errors == []
        for pair in groups:
            wanted = trickle.acknowledged[pair.topic]
            pair.wait("every acknowledged record to be read", lambda p=pair, w=wanted: w <= p.keys())  # type: ignore[misc]
            # The returned broker knows no topic until the controller has told it (BRK-123): who asked it rebalances.
            pair.wait("two members to share the partitions again", pair.shared)
        for pair in groups:
            for member in pair.members:
                member.end()
