"""Transactions on three brokers, of which one is killed with -9 at one of their steps.

Each transaction has its own partition, group and id, so that all can be read once, in the end.
"""

import contextlib
from collections.abc import Callable, Collection, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from enum import StrEnum
from itertools import count
from pathlib import Path
from typing import Final

from kafkatool.broker.coordination.ownership import partition_for
from kafkatool.broker.embedded.cluster import EmbeddedCluster
from kafkatool.broker.embedded.faults import Fault
from kafkatool.core.errors import BrokerUnreachableError
from kafkatool.core.model.topic_names import OFFSETS_TOPIC, TRANSACTION_TOPIC
from kafkatool.core.model.values import TopicPartition
from kafkatool.core.operations.topics.creation import create_topic
from kafkatool.core.protocol.messages.error_codes import ErrorCode
from kafkatool.core.zookeeper.cluster_view import read_cluster
from kafkatool.core.zookeeper.session import ZooKeeper
from tests.integration.isolation import ISOLATIONS, end_of, values_of
from tests.integration.load import await_in_sync
from tests.raw_transactions import COMES_LATER, RawProducer
from tests.steady import LASTING, crash
from tests.waiting import awaited, eventually

NONE: Final = ErrorCode.NONE
COORDINATOR, DATA, OFFSETS = ("coordinator", "leader of data", "leader of offsets")
STEPS: Final[Mapping[str, tuple[str, ...]]] = {
    COORDINATOR: ("InitProducerId", "AddPartitionsToTxn", "AddOffsetsToTxn", "EndTxn"),
    DATA: ("Produce", "WriteTxnMarkers"),
    OFFSETS: ("TxnOffsetCommit", "WriteTxnMarkers"),
}
ENDS: Final = ("EndTxn", "WriteTxnMarkers")  # differ by how the transaction ends
PARTITIONS: Final = 3
LIMIT_S: Final = 120.0
PATIENCE_MS: Final = 40_000
"""So long the transaction of a producer that is no more may be open."""
_INTERNAL_PARTITIONS: Final = 10
_NOT_YET: Final = COMES_LATER | {ErrorCode.UNSTABLE_OFFSET_COMMIT, ErrorCode.NETWORK_EXCEPTION}
_OPTIONS: Final = {**LASTING, "auto.leader.rebalance.enable": "false"}  # who is to die at a request is still asked it
_SLOW_MS: Final = 600_000
_Step = tuple[str, Callable[[], object]]


class Moment(StrEnum):
    """When a broker dies, seen from a request to it, or from a record that the request has it write."""

    BEFORE = "before"
    AFTER = "after"
    ALONE = "with what follows in its log alone from"
    WITH_NEXT = "with what follows in its log and its successor's from"
    WITH_OTHER = "with what follows in its log and that of one who does not succeed it from"


UNACKNOWLEDGED: Final = (Moment.ALONE, Moment.WITH_NEXT, Moment.WITH_OTHER)


class Last(StrEnum):
    """What was the last thing of an end before the coordinator died."""

    WRITTEN = "the marker is written"
    ACKNOWLEDGED = "the marker is acknowledged"
    APPENDED = "Complete is appended, on no follower"


class Transactions:
    """The transactions of one cluster."""

    def __init__(self, cluster: EmbeddedCluster, zk: ZooKeeper) -> None:
        self.cluster = cluster
        self.kept: list[str] = []
        self.abandoned: list[tuple[str, str, int]] = []  # each one's record, its group and offset
        self._zk = zk
        self._numbers = count()
        cluster.create_topic("t", partitions=PARTITIONS)
        cluster.create_topic("in", partitions=1)
        cluster.create_offsets_topic()

    def run(self, role: str, api: str, moment: Moment, *, committed: bool, abandoned: bool = False) -> None:
        """Have one transaction, whose broker of that role dies at that request.

        ``abandoned``: so does its producer, and nothing is looked at before the end.
        """
        number = next(self._numbers)
        place, group = TopicPartition("t", number % PARTITIONS), f"g-{number}"
        name = f"{number}: {role}, {moment} {api}, {committed=}"
        with ExitStack() as stack:
            by, victim = self._cast(stack, role, place, group, PATIENCE_MS if abandoned else 60_000)
            for step, do in _steps(by, place, group, number, name, committed=committed):
                if step == api or (step == "EndTxn" and api == "WriteTxnMarkers"):
                    give_up = by.lose_patience if abandoned else None
                    written = {COORDINATOR: _own(by.transactional_id), DATA: place, OFFSETS: _of_group(group)}[role]
                    told = self._over_a_crash(do, victim, api, moment, written, give_up)
                    if abandoned:
                        break
                else:
                    told = do()
                assert told == NONE, (name, step, told)
            self.cluster.start_broker(victim)
            if abandoned:
                self.abandoned.append((name, group, number))
            else:
                self._check_end(by, name, committed=committed)
                assert self._offset(by, group) == (NONE, number if committed else -1), name
                self.kept += [name] * committed
        self._await_in_sync()

    def end(self, last: Last, *, committed: bool) -> None:
        """Have one transaction, whose coordinator dies on its way from Prepare to Complete."""
        number, faults = next(self._numbers), self.cluster.faults
        name, id_ = f"{number}: {last}, {committed=}", f"ends-{number}"
        with RawProducer(self.cluster.bootstrap, id_) as by, ExitStack() as faulty:
            victim, own = by.coordinator, _own(id_)
            place = TopicPartition(self._topic_without(victim), 0)
            assert (by.init(), by.add(place), by.send(place, name)) == (NONE, NONE, NONE)
            unheard = faulty.enter_context(
                faults.silence("WriteTxnMarkers", broker=by.leader_of(place), times=1, carried_out=True)
            )
            assert by.end(committed=committed) == NONE
            eventually(lambda: unheard.hits == 1, "the marker to be written", LIMIT_S)
            before = self._size(victim, own)
            match last:
                case Last.ACKNOWLEDGED:
                    slow = faulty.enter_context(faults.slow_disk(victim, _SLOW_MS))
                    unheard.end()  # it is sent again
                    eventually(lambda: slow.hits > 0, "Complete to be on its way to the disk", LIMIT_S)
                case Last.APPENDED:
                    self._keep_from(faulty, victim)
                    unheard.end()
                    self._await_growth(victim, own, before)
            crash(self.cluster, self._zk, victim)
            assert last is Last.APPENDED or self._size(victim, own) == before, "Complete is not in its log"
            faulty.close()
            self.cluster.start_broker(victim)
            self._check_end(by, name, committed=committed)
            self.check_nothing_open(place.topic, 1)
            assert values_of(self.cluster, place.topic, "read_committed") == [name] * committed, name
        self._await_in_sync()

    def check_nothing_open(self, topic: str = "t", partitions: int = PARTITIONS) -> None:
        """Wait until readers of either isolation come to the same end of each partition."""

        def are_equal(partition: int) -> bool:
            return len({end_of(self.cluster, topic, partition, isolation) for isolation in ISOLATIONS}) == 1

        for partition in range(partitions):
            eventually(lambda p=partition: are_equal(p), f"the end of what is open in {topic}-{partition}", LIMIT_S)  # type: ignore[misc]

    def check_abandoned(self) -> None:
        """Hold what is read of transactions that nobody ended against their groups' offsets: all of it, or nothing."""
        read = values_of(self.cluster, "t", "read_committed", PARTITIONS)
        with RawProducer(self.cluster.bootstrap, "asks") as asks:
            for name, group, number in self.abandoned:
                assert self._offset(asks, group) == (NONE, number if name in read else -1), name

    def _cast(
        self, stack: ExitStack, role: str, place: TopicPartition, group: str, timeout_ms: int
    ) -> tuple[RawProducer, int]:
        """Return a producer and the broker of that role; unless it is that, its coordinator is another one."""
        for number in range(100):
            by = stack.enter_context(RawProducer(self.cluster.bootstrap, f"{group}-{number}", timeout_ms=timeout_ms))
            coordinator = by.coordinator
            if role == COORDINATOR:
                return by, coordinator
            victim = by.leader_of(place) if role == DATA else by.coordinator_of_group(group)
            if coordinator != victim:
                return by, victim
        raise AssertionError("one broker leads all")

    def _over_a_crash(
        self,
        do: Callable[[], object],
        victim: int,
        api: str,
        moment: Moment,
        written: TopicPartition,
        give_up: Callable[[], None] | None,
    ) -> object:
        """Have it done while its broker is killed; return what it was told, None if it was given up by then."""
        with ThreadPoolExecutor(1) as client, ExitStack() as faulty:
            if moment in UNACKNOWLEDGED:
                keepers = [victim] if moment is Moment.ALONE else [victim, self._follower(written, victim, moment)]
                self._keep_from(faulty, victim, keepers)
                before = {broker: self._size(broker, written) for broker in keepers}
                told = client.submit(do)
                for broker in keepers:
                    self._await_growth(broker, written, before[broker])
            else:
                carried_out = moment is Moment.AFTER
                silence = faulty.enter_context(
                    self.cluster.faults.silence(api, broker=victim, times=1, carried_out=carried_out)
                )
                told = client.submit(do)
                eventually(lambda: silence.hits == 1, f"{api} at broker {victim}", LIMIT_S)
            if give_up is not None:
                give_up()
            crash(self.cluster, self._zk, victim)
            faulty.close()
            with contextlib.suppress(*([BrokerUnreachableError] if give_up is not None else [])):
                return told.result()
        return None

    def _follower(self, partition: TopicPartition, leader: int, moment: Moment) -> int:
        """Return the one that will succeed the leader, or the other one."""
        assigned = read_cluster(self._zk, [partition.topic]).topics[partition.topic].assignment[partition.partition]
        next_, other = (broker for broker in assigned if broker != leader)
        return next_ if moment is Moment.WITH_NEXT else other

    def _keep_from(self, faulty: ExitStack, leader: int, having: Collection[int] = ()) -> None:
        """Have followers, but for those, get nothing more from the leader; returns when they have asked in vain."""
        silences: list[Fault] = []
        for follower in self.cluster.files.require().ports:
            if follower != leader and follower not in having:
                client_id = f"broker-{follower}-fetcher-0"
                silence = self.cluster.faults.silence("Fetch", broker=leader, client_id=client_id, followers=True)
                silences.append(faulty.enter_context(silence))
        for silence in silences:
            silence.await_hits(timeout_s=LIMIT_S)

    def _await_growth(self, broker: int, partition: TopicPartition, before: int) -> None:
        eventually(
            lambda: self._size(broker, partition) > before, f"another record of {partition} at broker {broker}", LIMIT_S
        )

    def _size(self, broker: int, partition: TopicPartition) -> int:
        """Return how many bytes a replica has."""
        return sum(log.stat().st_size for log in (self.cluster.files.data(broker) / str(partition)).glob("*.log"))

    def _topic_without(self, broker: int) -> str:
        """Make a topic whose records that broker does not have."""
        name = f"without-{broker}-{next(self._numbers)}"
        others = [other for other in self.cluster.files.require().ports if other != broker]
        create_topic(self._zk, name, {0: tuple(others)}, {})
        await_in_sync(self._zk, [name], LIMIT_S)
        return name

    def _check_end(self, by: RawProducer, name: str, *, committed: bool) -> None:
        """Hold the end against what the client was told: it is complete, and stays so."""
        assert by.end(committed=committed) == NONE, name
        assert by.end(committed=not committed) == ErrorCode.INVALID_TXN_STATE, name

    def _offset(self, by: RawProducer, group: str) -> tuple[int, int]:
        def offset() -> tuple[int, int] | None:
            answer = by.fetch_offset(group, TopicPartition("in", 0))
            return None if answer[0] in _NOT_YET else answer

        return awaited(offset, "a stable offset", LIMIT_S)

    def _await_in_sync(self) -> None:
        await_in_sync(self._zk, ["t", OFFSETS_TOPIC, TRANSACTION_TOPIC], LIMIT_S)


@contextlib.contextmanager
def transactions(directory: Path) -> Iterator[Transactions]:
    """Give a cluster for them."""
    with (
        EmbeddedCluster(3, directory=directory, options=_OPTIONS) as cluster,
        ZooKeeper(cluster.zookeeper, session_timeout_ms=60_000) as zk,
    ):
        yield Transactions(cluster, zk)


def _steps(
    by: RawProducer, place: TopicPartition, group: str, number: int, name: str, *, committed: bool
) -> list[_Step]:
    return [
        ("InitProducerId", by.init),
        ("AddPartitionsToTxn", lambda: by.add(place)),
        ("Produce", lambda: by.send(place, name)),
        ("AddOffsetsToTxn", lambda: by.add_offsets(group)),
        ("TxnOffsetCommit", lambda: by.commit_offsets(group, "in", {0: ""}, number)[0]),
        ("EndTxn", lambda: by.end(committed=committed)),
    ]


def _own(transactional_id: str) -> TopicPartition:
    return TopicPartition(TRANSACTION_TOPIC, partition_for(transactional_id, _INTERNAL_PARTITIONS))


def _of_group(group: str) -> TopicPartition:
    return TopicPartition(OFFSETS_TOPIC, partition_for(group, _INTERNAL_PARTITIONS))
