"""A follower's fetch parked in its session: answered from what was just appended, with all that a look would find."""

from collections.abc import Callable
from pathlib import Path

import pytest

from kafkatool.broker.replication.leading.delayed_fetch import FollowerFetch
from kafkatool.broker.replication.leading.fetch_session import FetchResults
from kafkatool.broker.replication.partition.partition_reads import PartitionRead, Reader
from kafkatool.broker.replication.partition.replication_quota import RateWindow
from kafkatool.core.protocol.codec.file_region import FileRegion
from kafkatool.core.protocol.messages.error_codes import ErrorCode
from kafkatool.core.protocol.records.batches import iter_batches
from tests.broker.replication.leading.test_session_fetches import TP1, Client, closing, lead
from tests.broker.replication.world import TP, Clock, World, follower, wanted, world
from tests.broker.storage.batch_builders import batch


def _content(read: PartitionRead) -> bytes:
    return read.records.read() if isinstance(read.records, FileRegion) else bytes(read.records)


def _data(client: Client) -> bytes:
    ((_, read),) = client.told[-1]
    return _content(read)


def _offsets(data: bytes) -> list[int]:
    return [header.base_offset for _, header in iter_batches(data)]


def _parked(broker: World, *, isr: tuple[int, ...] = (1, 2), replica_id: int = 2, max_bytes: int = 1 << 20) -> Client:
    """Return a follower that has one record and waits for the next."""
    broker.lead(isr=isr, replicas=(1, 2, 3))
    broker.produce()
    client = Client(broker, replica_id)
    client.fetch(wanted(0, 1, epoch=0, max_bytes=max_bytes))
    assert client.told == []
    return client


@pytest.mark.spec("BRK-92", "BRK-95", "BRK-98")
def test_the_answer_from_memory_is_the_answer_from_the_file(broker: World) -> None:
    client = _parked(broker)
    broker.produce()
    ((_, told),) = client.told[-1]
    assert isinstance(told.records, bytes), "nothing was read"
    (read,) = broker.fetch(1, Reader(2, committed=True), epoch=0)
    assert isinstance(read.records, FileRegion), "who asks for aborted transactions is answered from the file"
    assert _content(told) == _content(read)
    assert told._replace(records=b"") == read._replace(records=b"", aborted=None)


@pytest.mark.spec("BRK-96")
def test_a_batch_larger_than_the_follower_asks_for_comes_whole_if_it_is_the_first_one(broker: World) -> None:
    client = _parked(broker, max_bytes=10)
    broker.produce(count=5)
    assert _offsets(_data(client)) == [1]


@pytest.mark.spec("BRK-96")
def test_behind_another_partitions_data_it_comes_only_if_it_fits(broker: World) -> None:
    lead(broker)
    client = Client(broker)
    client.fetch(wanted(0, 0), wanted(1, 0, max_bytes=10))
    (session,) = broker.manager.fetch_sessions.watching(TP)
    for tp in (TP, TP1):
        broker.partition(tp).append_as_leader(batch())
        session.mark_changed(tp)
    broker.manager.delayed.fetches.check(TP1)
    assert client.last() == [(0, 0, True), (1, 0, False)]
    client.fetch(wanted(0, 1))
    assert client.last() == [(1, 0, True)]


@pytest.mark.spec("BRK-98")
def test_of_two_batches_appended_before_anybody_looked_both_come(broker: World) -> None:
    client = _parked(broker)
    for _ in range(2):
        broker.partition().append_as_leader(batch())
    broker.manager.delayed.fetches.check(TP)
    assert _offsets(_data(client)) == [1, 2]


@pytest.mark.spec("BRK-98")
def test_the_look_of_the_append_before_finds_nothing_left_to_answer(broker: World) -> None:
    client = _parked(broker)
    broker.produce()
    broker.manager.delayed.fetches.check(TP)
    assert len(client.told) == 1
    client.fetch(wanted(0, 2, epoch=0))
    assert len(client.told) == 1, "it waits again"


@pytest.mark.spec("BRK-92", "BRK-97")
def test_a_consumer_beside_it_waits_for_the_high_watermark(broker: World) -> None:
    client = _parked(broker)
    consumer = broker.fetch(1, max_wait_ms=60_000)
    in_session = Client(broker, -1)
    in_session.fetch(wanted(0, 1))
    acknowledged = broker.produce(acks=-1)
    assert _offsets(_data(client)) == [1]
    assert (consumer, in_session.told, acknowledged) == ([], [], [])
    client.fetch(wanted(0, 2, epoch=0))
    assert _offsets(_content(consumer[0])) == _offsets(_data(in_session)) == [1]
    assert acknowledged[0].error == 0


@pytest.mark.spec("BRK-45", "BRK-98")
def test_a_leader_deposed_between_append_and_answer_gives_nothing(broker: World) -> None:
    client = _parked(broker)
    broker.partition().append_as_leader(batch())
    broker.partition().stop_leading()
    broker.manager.delayed.fetches.check(TP)
    assert client.last() == [(0, ErrorCode.NOT_LEADER_FOR_PARTITION, False)]


@pytest.mark.spec("BRK-63", "BRK-98")
def test_a_new_epoch_between_append_and_answer_fences(broker: World) -> None:
    client = _parked(broker)
    broker.partition().append_as_leader(batch())
    broker.lead(epoch=1, isr=(1, 2), replicas=(1, 2, 3))
    assert client.last() == [(0, ErrorCode.FENCED_LEADER_EPOCH, False)]


@pytest.mark.spec("BRK-142")
def test_a_batch_that_was_cut_off_before_the_answer_is_not_in_it(broker: World) -> None:
    client = _parked(broker)
    log = broker.partition().log
    broker.partition().append_as_leader(batch())
    log.truncate_to(1)
    broker.manager.delayed.fetches.check(TP)
    assert client.told == []


@pytest.mark.spec("BRK-106")
def test_a_session_that_was_closed_meanwhile_still_gets_its_answer(broker: World) -> None:
    client = _parked(broker)
    sessions = broker.manager.fetch_sessions
    (session,) = sessions.watching(TP)
    sessions.plan(closing(session))
    broker.manager.delayed.fetches.expire_all()
    assert len(client.told) == 1
    broker.produce()
    assert len(client.told) == 1


@pytest.mark.spec("BRK-76", "BRK-102")
def test_while_the_quota_holds_it_back_no_append_ends_the_wait(tmp_path: Path) -> None:
    with world(tmp_path, clock=Clock()) as broker:
        broker.lead(isr=(1, 2), replicas=(1, 2, 3))
        broker.logs.update_topic_config("t", {"leader.replication.throttled.replicas": "0:1"})
        broker.manager.on_broker_config({"leader.replication.throttled.rate": "1"})
        broker.produce(count=100)
        broker.fetch(100, follower(2))
        assert broker.fetch(0, follower(3))[0].size_bytes > 1, "now the rate is exceeded"
        behind, in_sync = Client(broker, 3), Client(broker, 2)
        behind.fetch(wanted(0, 0))
        in_sync.fetch(wanted(0, 100))
        broker.produce()
        assert behind.told == [], "bytes that are held back do not count"
        assert _offsets(_data(in_sync)) == [100], "one in sync is never held back"
        broker.manager.delayed.fetches.expire_all()
        assert behind.last() == [(0, 0, False)]


@pytest.mark.spec("ADM-75", "BRK-76")
def test_a_replica_that_a_move_adds_is_held_to_the_rate_until_it_is_in_sync(tmp_path: Path) -> None:
    with world(tmp_path, clock=Clock()) as broker:
        broker.lead(isr=(1, 2), replicas=(1, 2))
        broker.produce(count=100)
        broker.fetch(100, follower(2))
        # the move begins; its throttle names those from before
        broker.lead(epoch=1, isr=(1, 2), replicas=(3, 1, 2), version=1)
        broker.logs.update_topic_config("t", {"leader.replication.throttled.replicas": "0:1,0:2"})
        assert broker.fetch(0, follower(3))[0].size_bytes > 1, "without a rate"
        broker.manager.on_broker_config({"leader.replication.throttled.rate": "1"})
        broker.fetch(0, follower(3))
        assert broker.fetch(0, follower(3))[0].size_bytes == 0
        broker.lead(epoch=2, isr=(1, 2, 3), replicas=(3, 1, 2), version=2)
        broker.produce(count=100)
        for _ in range(2):
            assert broker.fetch(100, follower(3))[0].size_bytes > 1, "from then on it is never held back"


@pytest.mark.spec("BRK-76")
def test_bytes_from_memory_count_for_the_quota(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    counted: list[int] = []
    monkeypatch.setattr(RateWindow, "add", lambda _, size_bytes: counted.append(size_bytes))
    with world(tmp_path, clock=Clock()) as broker:
        client = _parked(broker)
        broker.logs.update_topic_config("t", {"leader.replication.throttled.replicas": "*"})
        broker.produce()
        assert sum(counted) == len(_data(client))


@pytest.mark.spec("BRK-98")
def test_of_two_threads_that_find_something_one_answers() -> None:
    told: list[FetchResults] = []
    found: FetchResults = [(TP, PartitionRead(size_bytes=1))]

    def meanwhile() -> FetchResults:
        assert fetch.try_complete(TP), "the other thread, between look and answer of this one"
        return [(TP, PartitionRead(size_bytes=2))]

    looks: list[Callable[[], FetchResults]] = [list, meanwhile, lambda: found]

    def look() -> FetchResults:
        return looks.pop(0)()

    fetch = FollowerFetch(60_000, look, told.append)
    assert not fetch.try_complete()
    assert fetch.try_complete(TP) and fetch.try_complete(TP)
    fetch.expire()
    assert told == [found]
