"""Fetches in a session on a real broker: woken by every kind of change, silent otherwise, and counted as in sync."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from kafkatool.broker.replication.leading.fetch_session import FetchResults, FetchSession
from kafkatool.broker.replication.partition.partition_reads import Reader
from kafkatool.broker.replication.partition.session_epochs import FINAL_EPOCH
from kafkatool.broker.settings.config import RACK_AWARE
from kafkatool.core.model.values import TopicPartition
from kafkatool.core.protocol.messages.fetch import FetchRequest, FetchRequestPartition, FetchRequestTopic
from kafkatool.core.protocol.messages.stop_replica import StopReplicaRequest
from tests.broker.replication.world import TP, Clock, World, wanted, world
from tests.waiting import eventually

TP1 = TopicPartition("t", 1)
WAIT_MS = 60_000


class Client:
    """A client with one session; it remembers what it was told of each partition."""

    def __init__(self, broker: World, replica_id: int = 2) -> None:
        self.told: list[FetchResults] = []
        self._broker = broker
        self._reader = Reader(replica_id)
        self._session = self._epoch = 0

    def fetch(self, *partitions: FetchRequestPartition, min_bytes: int = 1) -> None:
        """List these; the answer comes into ``told``."""
        sessions = self._broker.manager.fetch_sessions
        request = FetchRequest(
            replica_id=self._reader.replica_id,
            max_wait_ms=WAIT_MS,
            min_bytes=min_bytes,
            max_bytes=1 << 20,
            session_id=self._session,
            session_epoch=self._epoch,
            topics=[FetchRequestTopic(topic="t", partitions=list(partitions))] if partitions else [],
        )
        plan = sessions.plan(request)
        assert plan.error == 0 and plan.session is not None
        self._session, self._epoch = plan.session_id, self._epoch + 1
        self._broker.manager.fetches.fetch(
            plan.entries,
            self._reader,
            max_wait_ms=WAIT_MS,
            min_bytes=min_bytes,
            max_bytes=1 << 20,
            on_done=lambda results: self.told.append(plan.to_tell(results, self._reader)),
            session=plan.session,
        )

    def last(self) -> list[tuple[int, int, int]]:
        """(partition, error, has data) of the last answer."""
        return sorted((tp.partition, int(read.error), bool(read.size_bytes)) for tp, read in self.told[-1])


def closing(session: FetchSession) -> FetchRequest:
    """Return the request that closes a session."""
    return FetchRequest(
        replica_id=-1,
        max_wait_ms=0,
        min_bytes=0,
        max_bytes=0,
        session_id=session.id,
        session_epoch=FINAL_EPOCH,
        topics=[],
    )


def lead(broker: World, partitions: Sequence[TopicPartition] = (TP, TP1), **options: Sequence[int]) -> None:
    for tp in partitions:
        broker.lead(tp, isr=options.get("isr", (1, 2)), replicas=options.get("replicas", (1, 2)))


@pytest.mark.spec("BRK-98", "BRK-100", "BRK-105")
def test_an_append_wakes_the_follower_and_only_what_changed_is_told(broker: World) -> None:
    lead(broker)
    client = Client(broker)
    client.fetch(wanted(0, 0), wanted(1, 0))
    assert client.told == [], "it waits"
    broker.produce(TP1)
    assert client.last() == [(0, 0, False), (1, 0, True)], "a full fetch tells all"
    client.fetch(wanted(1, 1))
    broker.produce(TP)
    assert client.last() == [(0, 0, True), (1, 0, False)], "partition 1 has a new high watermark"
    client.fetch()
    assert client.last() == [(0, 0, True)], "it did not say that it has it: again"
    client.fetch(wanted(0, 1))
    assert len(client.told) == 3
    broker.produce(TP)
    assert client.last() == [(0, 0, True)]


@pytest.mark.spec("BRK-98")
def test_a_follower_that_has_not_asked_for_a_new_partition_is_answered_so_that_it_can(broker: World) -> None:
    """Else the first record of a new topic waits for as long as the follower's fetch of the others may."""
    lead(broker)
    replica, consumer = Client(broker), Client(broker, -1)
    for client in (replica, consumer):
        client.fetch(wanted(0, 0))
    broker.produce(TP1, acks=1)
    assert replica.told == [], "nobody waits for it"
    acknowledged = broker.produce(TP1, acks=-1)
    assert replica.last() == [(0, 0, False)] and consumer.told == [] == acknowledged
    replica.fetch(wanted(1, 0))
    assert replica.last() == [(1, 0, True)]
    replica.fetch(wanted(1, 2))
    assert acknowledged[0].error == 0
    broker.produce(TP, acks=-1)
    assert len(replica.told) == 3, "it has asked for both"
    replica.fetch(wanted(0, 1))
    broker.lead(TP1, epoch=1, isr=(1, 2), replicas=(1, 2))
    broker.produce(TP1, acks=-1)
    assert len(replica.told) == 4, "its session has the partition, in the next epoch, too"


@pytest.mark.spec("BRK-98", "BRK-99", "BRK-100", "BRK-101")
def test_a_raised_high_watermark_wakes_the_consumer(broker: World) -> None:
    lead(broker)
    consumer, replica = Client(broker, -1), Client(broker)
    consumer.fetch(wanted(0, 0), wanted(1, 0))
    acknowledged = broker.produce(TP, acks=-1)
    assert consumer.told == [] == acknowledged
    replica.fetch(wanted(0, 1), wanted(1, 0))
    assert consumer.last() == [(0, 0, True), (1, 0, False)]
    assert acknowledged[0].error == 0


@pytest.mark.spec("BRK-105")
def test_a_log_start_raised_by_a_client_is_told_with_the_next_answer(broker: World) -> None:
    lead(broker)
    broker.produce(TP)
    client = Client(broker)
    client.fetch(wanted(0, 1), wanted(1, 0))
    broker.manager.delayed.fetches.expire_all()
    client.fetch()
    broker.partition(TP).log.advance_log_start(1)
    broker.manager.delayed.fetches.check(TP)
    broker.manager.delayed.fetches.expire_all()
    assert [(tp.partition, read.log_start_offset) for tp, read in client.told[-1]] == [(0, 1)]


@pytest.mark.spec("BRK-106")
@pytest.mark.parametrize("slots", [0, 1, 2])
def test_a_broker_keeps_as_many_sessions_as_it_is_configured_to(tmp_path: Path, slots: int) -> None:
    with world(tmp_path / "other", clock=Clock(), max_incremental_fetch_session_cache_slots=str(slots)) as broker:
        lead(broker)
        topics = [FetchRequestTopic(topic="t", partitions=[wanted(0, 0)])]
        asked = FetchRequest(replica_id=-1, max_wait_ms=0, min_bytes=0, max_bytes=1, session_epoch=0, topics=topics)
        opened = [broker.manager.fetch_sessions.plan(asked).session_id > 0 for _ in range(3)]
        assert opened == [number < slots for number in range(3)]


@pytest.mark.spec("BRK-106")
def test_a_fetch_does_not_outlive_its_session_unheard(broker: World) -> None:
    lead(broker)
    patient = Client(broker, -1)
    patient.fetch(wanted(0, 0), wanted(1, 0))
    broker.clock.pass_ms(120_001)
    Client(broker, -1).fetch(wanted(0, 0))
    eventually(lambda: bool(patient.told), "the answer, since no append would wake it any more")
    assert patient.last() == [(0, 0, False), (1, 0, False)]


@pytest.mark.spec("BRK-97")
def test_a_fetch_that_names_none_of_its_sessions_partitions_waits_for_them_all_the_same(broker: World) -> None:
    lead(broker)
    client = Client(broker)
    client.fetch(wanted(0, 0), wanted(1, 0))
    broker.manager.delayed.fetches.expire_all()
    assert client.last() == [(0, 0, False), (1, 0, False)]
    client.fetch()
    assert len(client.told) == 1
    broker.produce(TP1)
    assert client.last() == [(1, 0, True)]


@pytest.mark.spec("BRK-98")
@pytest.mark.parametrize("selector", [RACK_AWARE, None])
def test_where_consumers_read_from_followers_a_raised_high_watermark_ends_a_followers_wait(
    tmp_path: Path, selector: str | None
) -> None:
    given: dict[str, Any] = {} if selector is None else {"replica_selector_class": selector}
    with world(tmp_path / "other", clock=Clock(), **given) as broker:
        broker.lead(TP, isr=(1, 2, 3), replicas=(1, 2, 3))
        broker.produce(TP)
        two, three = Client(broker, 2), Client(broker, 3)
        two.fetch(wanted(0, 1))
        three.fetch(wanted(0, 1))
        assert broker.partition(TP).high_watermark.offset == 1
        told = [[(read.size_bytes, read.high_watermark) for _, read in answer] for answer in two.told]
        assert told == ([[(0, 1)]] if selector else [])


@pytest.mark.spec("BRK-97", "BRK-98")
def test_bytes_of_several_partitions_add_up(broker: World) -> None:
    lead(broker)
    client = Client(broker)
    client.fetch(wanted(0, 0), wanted(1, 0), min_bytes=100)
    broker.produce(TP)
    assert client.told == []
    broker.produce(TP1)
    assert client.last() == [(0, 0, True), (1, 0, True)]


@pytest.mark.spec("BRK-98", "BRK-100")
def test_changes_of_role_end_the_wait(broker: World) -> None:
    lead(broker)
    client = Client(broker)
    client.fetch(wanted(0, 0, epoch=0), wanted(1, 0, epoch=0))
    broker.lead(TP, epoch=1, isr=(1, 2))
    assert client.last() == [(0, 74, False), (1, 0, False)]
    client.fetch(wanted(0, 0, epoch=1))
    broker.follow(TP1, epoch=1)
    assert (1, 74, False) in client.last()
    client.fetch(wanted(1, 0, epoch=1))
    assert client.last() == [(1, 6, False)]


@pytest.mark.spec("BRK-98", "BRK-100", "BRK-109", "BRK-111")
@pytest.mark.parametrize("delete", [False, True])
def test_a_stopped_replica_ends_the_wait(broker: World, delete: bool) -> None:
    lead(broker)
    client = Client(broker)
    client.fetch(wanted(0, 0), wanted(1, 0))
    broker.manager.control.stop_replicas(
        StopReplicaRequest(
            controller_id=9, controller_epoch=1, broker_epoch=-1, delete_partitions=delete, partitions=[TP1]
        )
    )
    assert client.last() == [(0, 0, False), (1, 3 if delete else 0, False)]


@pytest.mark.spec("BRK-39", "BRK-51", "BRK-52", "BRK-105")
def test_a_quiet_partition_counts_as_fetched_with_every_request_of_its_session(broker: World) -> None:
    assert isinstance(broker.clock, Clock)
    lead(broker)
    client = Client(broker)
    client.fetch(wanted(0, 0), wanted(1, 0))
    broker.produce(TP1)
    for offset in range(1, 20):
        broker.clock.pass_ms(5000)
        client.fetch(wanted(1, offset))
        broker.produce(TP1)
    broker.produce(TP)
    broker.manager.shrink_isrs()
    assert broker.partition(TP).isr == (1, 2), "a moment ago it had everything"
    broker.clock.pass_ms(10_001)
    broker.manager.shrink_isrs()
    assert broker.partition(TP).isr == (1,), "but then it did not come for it"


@pytest.mark.spec("BRK-50", "BRK-53")
def test_a_quiet_follower_joins_when_the_change_before_is_written(broker: World) -> None:
    for tp in (TP, TP1):
        broker.lead(tp, isr=(1,), replicas=(1, 2, 3))
    two, three = Client(broker, 2), Client(broker, 3)
    two.fetch(wanted(0, 0), wanted(1, 0))
    three.fetch(wanted(0, 0), wanted(1, 0))
    broker.scheduler.run()
    assert broker.partition(TP).isr == (1, 2), "one change at a time"
    broker.produce(TP1)  # answers both
    three.fetch(wanted(1, 1))
    broker.scheduler.run()
    assert broker.partition(TP).isr == (1, 2, 3)


@pytest.fixture(autouse=True)
def _nothing_is_left_waiting(broker: World) -> object:
    yield
    broker.manager.delayed.fetches.expire_all()
    assert len(broker.manager.delayed.fetches) == 0
