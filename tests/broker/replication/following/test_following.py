"""Followers fetching from a leader over real sockets: truncation, catching up, and what goes wrong on the way."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from kafkatool.broker.handlers.call import load_handlers
from kafkatool.broker.replication.following.fetcher_manager import fetcher_number
from kafkatool.broker.replication.following.truncation import Truncation, decide_truncation
from kafkatool.broker.settings.config import RACK_AWARE
from kafkatool.broker.storage.log.leader_epochs import LeaderEpochCache
from kafkatool.broker.storage.log.log_offset import LogOffset
from kafkatool.core.model.values import LeaderAndIsr, TopicPartition
from kafkatool.core.protocol.messages import fetch
from kafkatool.core.protocol.messages.leader_and_isr import LeaderAndIsrLiveLeader
from kafkatool.core.protocol.records.batches import decode_records, iter_batches
from tests.broker.handlers.served import Client, broker_of, handler_context, live, update
from tests.broker.network.raw_client import network_config
from tests.broker.replication.leading.test_session_fetches import closing
from tests.broker.replication.world import TP, World, role, world
from tests.broker.storage.batch_builders import batch
from tests.broker.storage.logs import everything
from tests.waiting import eventually

FAST: dict[str, Any] = {"replica_fetch_wait_max_ms": "50", "replica_fetch_backoff_ms": "20"}


@contextmanager
def served(node: World) -> Iterator[int]:
    """Give the port where others fetch from that broker."""
    handlers = {key: s for key, s in load_handlers().items() if key in (1, 2, 23)}
    context = handler_context(replica_manager=node.manager, metadata_cache=node.cache)
    with broker_of(handlers, context) as client:
        yield client.socket.getpeername()[1]


@contextmanager
def pair(tmp_path: Path, **properties: Any) -> Iterator[tuple[World, World, int]]:
    """Brokers 1 and 2, and the port of broker 1."""
    with (
        world(tmp_path / "1", **FAST, **properties) as one,
        world(tmp_path / "2", broker_id=2, **FAST, **properties) as two,
        served(one) as port,
    ):
        yield one, two, port


def follow(node: World, leader_port: int, *, epoch: int = 0, partition: TopicPartition = TP) -> None:
    live = LeaderAndIsrLiveLeader(broker_id=1, host="127.0.0.1", port=leader_port)
    response = node.leader_and_isr(role(partition, 1, epoch, [1, 2], [1, 2]), live=[live])
    assert [p.error_code for p in response.partitions] == [0]


def lead_alone(node: World, epoch: int) -> None:
    """Broker 2 leads for a while."""
    node.zookeeper.put_state(TP, LeaderAndIsr(2, epoch, (2,), 1), 0)
    node.leader_and_isr(role(TP, 2, epoch, [2], [1, 2]))


def same(one: World, two: World) -> bool:
    logs = [node.partition().log for node in (one, two)]
    return logs[0].log_end_offset == logs[1].log_end_offset and everything(logs[0]) == everything(logs[1])


@pytest.mark.spec("BRK-70", "BRK-88", "BRK-64", "BRK-68", "BRK-160")
def test_a_follower_gets_the_leaders_bytes_and_acknowledges_them(tmp_path: Path) -> None:
    with pair(tmp_path) as (one, two, port):
        one.lead(isr=(1, 2))
        follow(two, port)
        results = [one.produce(acks=-1, count=3) for _ in range(20)]
        eventually(lambda: all(results), "acks=-1 was not answered")
        assert {r[0].error for r in results} == {0}
        assert same(one, two)
        eventually(lambda: two.partition().high_watermark.offset == 60, "the high watermark reaches the follower")
        assert two.partition().log.leader_epochs.entries == [(0, 0)]
        eventually(lambda: two.manager.fetchers.lags() == {TP: 0}, "lag (BRK-157)")
        requests, received = two.manager.fetchers.traffic()[(1, 0)]
        assert requests > 0 < received


@pytest.mark.spec("BRK-160", "BRK-105")
def test_a_follower_whose_session_the_leader_lost_goes_on_in_a_new_one(tmp_path: Path) -> None:
    with pair(tmp_path) as (one, two, port):
        one.lead(isr=(1, 2))
        follow(two, port)
        sessions = one.manager.fetch_sessions
        for count in (1, 2):
            assert all(r.error == 0 for r in one.produce(acks=-1, count=3))
            eventually(lambda: same(one, two), "caught up")
            eventually(lambda: len(sessions) == 1, "a session")
            for session in sessions.watching(TP):
                sessions.plan(closing(session))
            asked = two.manager.fetchers.traffic()[(1, 0)][0]
            eventually(lambda a=asked: two.manager.fetchers.traffic()[(1, 0)][0] > a + 2, f"goes on {count}")  # type: ignore[misc]
        one.produce(count=3)
        eventually(lambda: same(one, two), "caught up in the new session")


@pytest.mark.spec("BRK-126")
def test_a_broker_that_leaves_follows_on_and_follows_nothing_new(tmp_path: Path) -> None:
    """The next leader would take it back into the in-sync set that the controller has just taken it out of."""
    with pair(tmp_path) as (one, two, port):
        one.lead(isr=(1, 2))
        follow(two, port)
        two.manager.fetchers.leave()
        one.produce(count=2)
        eventually(lambda: same(one, two), "caught up")
        one.lead(epoch=1, isr=(1, 2))
        follow(two, port, epoch=1)
        assert two.manager.fetchers.lags() == {}


@pytest.mark.spec("BRK-66", "BRK-59", "BRK-67")
@pytest.mark.parametrize("protocol", ["0.11.0", "1.1", "2.0", "2.3"])
def test_what_only_the_follower_has_is_cut_where_the_epochs_part(tmp_path: Path, protocol: str) -> None:
    with pair(tmp_path, inter_broker_protocol_version=protocol) as (one, two, port):
        one.lead(isr=(1, 2))
        follow(two, port)
        one.produce(count=2)
        eventually(lambda: same(one, two), "caught up")
        two.manager.fetchers.remove([TP])
        lead_alone(two, 1)
        two.manager.appends.append({TP: batch(5)}, acks=1, timeout_ms=100, on_done=lambda _: None)
        one.lead(epoch=2, isr=(1, 2))
        one.produce(count=1)
        follow(two, port, epoch=2)
        eventually(lambda: same(one, two), "the logs agree again")
        assert two.partition().log.leader_epochs.entries == [(0, 0), (2, 2)]


@pytest.mark.spec("BRK-66")
def test_divergence_after_several_quick_changes_of_leader_is_found(tmp_path: Path) -> None:
    """KIP-279: leader 1 has epochs 0, 2; follower 2 has 0, 1, 3, all with records."""
    with pair(tmp_path) as (one, two, port):
        one.lead(isr=(1, 2))
        follow(two, port)
        one.produce(count=2)
        eventually(lambda: same(one, two), "caught up")
        two.manager.fetchers.remove([TP])
        lead_alone(two, 1)
        two.manager.appends.append({TP: batch(3)}, acks=1, timeout_ms=100, on_done=lambda _: None)
        one.lead(epoch=2)
        one.produce(count=4)
        lead_alone(two, 3)
        two.manager.appends.append({TP: batch(5)}, acks=1, timeout_ms=100, on_done=lambda _: None)
        one.lead(epoch=4, isr=(1, 2))
        follow(two, port, epoch=4)
        eventually(lambda: same(one, two), "the logs agree again")


@pytest.mark.spec("BRK-66", "BRK-137")
@pytest.mark.parametrize("halts", ["true", "false"])
def test_what_a_power_cut_took_out_of_the_midst_is_copied_from_the_leader(
    tmp_path: Path, halts: str, caplog: pytest.LogCaptureFixture
) -> None:
    with pair(tmp_path, kt_halt_on_truncation_below_hw=halts) as (one, two, port):
        one.lead(isr=(1, 2))
        for _ in range(3):
            one.produce(count=2)
        lead_alone(two, 0)
        log = two.partition().log
        for base in (0, 4):
            log.append_as_follower(memoryview(batch(2, base_offset=base, epoch=0)))
        log.state.gap_at = 2  # as it is found at a start
        two.partition().high_watermark = LogOffset(6)  # all of it counted as committed: the leader has it
        one.lead(epoch=1, isr=(1, 2))
        follow(two, port, epoch=1)
        eventually(lambda: two.partition().log.gap_at is None and same(one, two), "the same records")
    assert "missing from 2 on since a power cut" in caplog.text


@pytest.mark.spec("BRK-66", "BRK-137")
def test_below_what_a_power_cut_took_the_logs_may_have_parted_before(tmp_path: Path) -> None:
    """As where the cut undid a truncation, too: what follows the gap is of the leader's epoch, what lies before is not."""
    with pair(tmp_path) as (one, two, port):
        one.lead(isr=(1, 2))
        one.produce(count=2)
        one.lead(epoch=1, isr=(1, 2))
        for _ in range(3):
            one.produce(count=2)
        lead_alone(two, 0)
        log = two.partition().log
        for base, epoch in ((0, 0), (2, 0), (6, 1)):
            log.append_as_follower(memoryview(batch(2, base_offset=base, epoch=epoch)))
        log.state.gap_at = 4
        one.lead(epoch=2, isr=(1, 2))
        follow(two, port, epoch=2)
        eventually(lambda: two.partition().log.log_end_offset == 8 and log.gap_at is None, "all is copied")
        assert same(one, two)


@pytest.mark.spec("BRK-45", "BRK-137")
def test_a_leader_keeps_what_it_has_though_a_power_cut_took_of_it(tmp_path: Path) -> None:
    with world(tmp_path) as one:
        one.lead()
        log = one.partition().log
        for base in (0, 4):
            log.append_as_follower(memoryview(batch(2, base_offset=base, epoch=0)))
        log.state.gap_at = 2
        one.lead(epoch=1)
        assert (log.gap_at, log.log_end_offset) == (None, 6)


@pytest.mark.spec("BRK-73")
def test_a_follower_with_more_than_its_leader_is_cut_not_stopped(tmp_path: Path) -> None:
    with pair(tmp_path) as (one, two, port):
        one.lead(isr=(1, 2))
        lead_alone(two, 0)
        two.manager.appends.append({TP: batch(9)}, acks=1, timeout_ms=100, on_done=lambda _: None)
        one.produce(count=2)
        one.lead(epoch=1, isr=(1, 2))
        two.partition().log.leader_epochs.clear()  # as a log without epochs: only the high watermark to go by
        assert two.partition().high_watermark.offset == 9
        follow(two, port, epoch=1)
        eventually(lambda: two.partition().log.log_end_offset <= 2, "cut to the leader's end")
        one.produce(count=2)
        eventually(lambda: two.partition().log.log_end_offset == one.partition().log.log_end_offset, "goes on")


@pytest.mark.spec("BRK-73")
def test_committed_records_are_not_cut_if_so_configured(tmp_path: Path) -> None:
    with pair(tmp_path, kt_halt_on_truncation_below_hw="true") as (one, two, port):
        one.lead(isr=(1, 2))
        lead_alone(two, 0)
        two.manager.appends.append({TP: batch(9)}, acks=1, timeout_ms=100, on_done=lambda _: None)
        one.lead(epoch=1, isr=(1, 2))
        follow(two, port, epoch=1)
        eventually(lambda: two.manager.fetchers.failed == {TP}, "that partition stops")
        assert two.partition().log.log_end_offset == 9


@pytest.mark.spec("BRK-74")
def test_a_follower_below_the_leaders_log_start_begins_anew_there(tmp_path: Path) -> None:
    with pair(tmp_path) as (one, two, port):
        partition = one.lead(isr=(1,), replicas=(1, 2))
        for _ in range(4):
            one.produce(count=5)
        partition.log.advance_log_start(10)
        follow(two, port)
        eventually(lambda: two.partition().log.log_end_offset == 20, "caught up")
        assert two.partition().log.log_start_offset == 10


@pytest.mark.spec("BRK-75")
def test_a_log_start_inside_a_batch_is_no_obstacle(tmp_path: Path) -> None:
    with pair(tmp_path) as (one, two, port):
        partition = one.lead(isr=(1,), replicas=(1, 2))
        one.produce(count=10)
        partition.log.advance_log_start(4)
        follow(two, port)
        eventually(lambda: two.partition().log.log_end_offset == 10, "caught up")
        eventually(lambda: two.partition().log.log_start_offset == 4, "the leader's log start")
        segment = "00000000000000000000.log"  # begun anew where the batch begins
        batches = [(n.partition().log.directory / segment).read_bytes() for n in (one, two)]
        assert batches[0] == batches[1]


@pytest.mark.spec("BRK-70")
def test_the_log_start_follows_the_leaders(tmp_path: Path) -> None:
    with pair(tmp_path) as (one, two, port):
        partition = one.lead(isr=(1, 2))
        follow(two, port)
        one.produce(count=5)
        eventually(lambda: same(one, two), "caught up")
        partition.log.advance_log_start(3)
        eventually(lambda: two.partition().log.log_start_offset == 3, "the log start came over")


@pytest.mark.spec("BRK-72")
def test_a_bad_partition_stops_alone(tmp_path: Path) -> None:
    good = TopicPartition("good", 0)
    with pair(tmp_path) as (one, two, port):
        for partition in (TP, good):
            one.lead(partition, isr=(1, 2))
            follow(two, port, partition=partition)

        def broken(*_: object, **__: object) -> int:
            raise RuntimeError("a bug")

        two.partition(TP).append_as_follower = broken  # type: ignore[method-assign]
        one.produce(TP)
        one.produce(good, count=2)
        eventually(lambda: two.manager.fetchers.failed == {TP}, "marked failed")
        eventually(lambda: two.partition(good).log.log_end_offset == 2, "the other goes on")


@pytest.mark.spec("BRK-72", "BRK-75")
def test_records_that_do_not_continue_the_log_stop_the_partition(tmp_path: Path) -> None:
    with pair(tmp_path) as (one, two, port):
        lead_alone(two, 0)
        two.manager.appends.append({TP: batch(4)}, acks=1, timeout_ms=100, on_done=lambda _: None)
        one.lead(isr=(1, 2))
        one.produce(count=10)  # one batch over the place where the follower's log ends
        one.lead(epoch=1, isr=(1, 2))
        follow(two, port, epoch=1)
        eventually(lambda: two.manager.fetchers.failed == {TP}, "marked failed")
        assert two.partition().log.log_end_offset == 4


@pytest.mark.spec("BRK-71", "BRK-72")
def test_records_damaged_on_the_way_are_fetched_again(tmp_path: Path) -> None:
    with pair(tmp_path) as (one, two, port):
        partition = one.lead(isr=(1, 2))
        for _ in range(3):
            one.produce(count=2)
        (path,) = partition.log.directory.glob("*.log")
        whole = path.read_bytes()
        last = 2 * len(whole) // 3 - 1  # of the second batch: the newest may be served from memory
        path.write_bytes(whole[:last] + bytes([whole[last] ^ 1]) + whole[last + 1 :])
        follow(two, port)
        eventually(lambda: two.partition().log.log_end_offset == 2, "what is good is taken")
        asked = two.manager.fetchers.traffic()[(1, 0)][0]
        eventually(lambda: two.manager.fetchers.traffic()[(1, 0)][0] > asked + 1, "tries again")
        assert two.manager.fetchers.failed == frozenset()
        path.write_bytes(whole)
        eventually(lambda: same(one, two), "fetched again")


@pytest.mark.spec("BRK-71", "BRK-63")
def test_a_follower_ahead_of_its_leaders_epoch_tries_again_one_behind_waits(tmp_path: Path) -> None:
    with pair(tmp_path) as (one, two, port):
        one.lead(epoch=3, isr=(1, 2))
        one.produce(count=2)
        follow(two, port, epoch=4)  # the leader has not heard of epoch 4 yet: 75
        eventually(lambda: two.manager.fetchers.traffic()[(1, 0)][0] >= 2, "tries again")
        assert two.partition().log.log_end_offset == 0
        one.lead(epoch=4, isr=(1, 2))
        eventually(lambda: same(one, two), "fetches once the leader is there too")
        one.lead(epoch=5, isr=(1, 2))
        eventually(lambda: two.manager.fetchers.lags() == {}, "fenced: dropped until LeaderAndIsr")
        follow(two, port, epoch=5)
        one.produce(count=1)
        eventually(lambda: same(one, two), "and on")


@pytest.mark.spec("BRK-71", "BRK-65")
def test_a_leader_that_cannot_be_reached_is_asked_again(tmp_path: Path) -> None:
    with pair(tmp_path) as (one, two, port):
        one.lead(isr=(1, 2))
        one.produce(count=2)
        follow(two, 1)  # nobody listens there
        live = LeaderAndIsrLiveLeader(broker_id=1, host="127.0.0.1", port=port)
        two.leader_and_isr(role(TP, 1, 1, [1, 2], [1, 2]), live=[live])
        one.lead(epoch=1, isr=(1, 2))
        eventually(lambda: same(one, two), "the fetcher was replaced")


@pytest.mark.spec("BRK-92", "BRK-98")
def test_a_consumer_reads_from_the_follower_below_its_high_watermark(tmp_path: Path) -> None:
    """Of version 11 on (KIP-392); one that waits there is answered when the leader has told of more."""
    with pair(tmp_path, replica_selector_class=RACK_AWARE) as (one, two, port), served_by(two) as consumer:
        one.lead(isr=(1, 2))
        assert one.produce(count=3) is not None
        follow(two, port)
        eventually(lambda: two.partition().high_watermark.offset == 3, "the follower to hear how far it may give", 60)
        read = consumer.call(fetch.API, 11, fetch_from(0))
        assert [r.offset for r in decode_records(bytes(read.topics[0].partitions[0].records))] == [0, 1, 2]
        for version in range(4, 11):
            assert consumer.call(fetch.API, version, fetch_from(0)).topics[0].partitions[0].error_code == 6
        consumer.send_request(fetch.API, 11, fetch_from(3, max_wait_ms=600_000))
        one.produce(count=1)
        waited = consumer.receive_response(fetch.API, 11).topics[0].partitions[0]
        assert [r.offset for r in decode_records(bytes(waited.records))] == [3]
        assert waited.preferred_read_replica == -1
        beyond = consumer.call(fetch.API, 11, fetch_from(9)).topics[0].partitions[0]
        assert beyond.error_code == 1


@pytest.mark.spec("BRK-92", "BRK-104")
def test_a_leader_sends_consumers_to_the_follower_of_their_rack(tmp_path: Path) -> None:
    with pair(tmp_path, replica_selector_class=RACK_AWARE) as (one, two, port):
        one.cache.update(update(brokers=[live(1, "a"), live(2, "b")]))
        one.lead(isr=(1, 2))
        one.produce(count=3)
        follow(two, port)
        eventually(lambda: one.partition().remote[2].end.offset == 3, "the follower to be there", 60)
        with served_by(one, replica_selector_class=RACK_AWARE) as consumer:

            def sent_to(rack: str, version: int = 11, session: tuple[int, int] = (0, -1)) -> tuple[int, bool]:
                request = fetch_from(0, max_wait_ms=600_000, rack_id=rack, session=session)
                (partition,) = consumer.call(fetch.API, version, request).topics[0].partitions
                assert (partition.error_code, partition.high_watermark) == (0, 3)
                return partition.preferred_read_replica, bool(partition.records)

            assert sent_to("b") == (2, False)
            assert sent_to("b", session=(0, 0)) == (2, False)
            assert sent_to("a") == sent_to("c") == sent_to("") == (-1, True)
            assert sent_to("b", version=10) == (-1, True)
        with served_by(one) as consumer:
            assert sent_to("b") == (-1, True), "no selector"


def fetch_from(
    offset: int, *, max_wait_ms: int = 0, rack_id: str = "", session: tuple[int, int] = (0, -1)
) -> fetch.FetchRequest:
    partition = fetch.FetchRequestPartition(partition=0, fetch_offset=offset, partition_max_bytes=1 << 20)
    return fetch.FetchRequest(
        max_wait_ms=max_wait_ms,
        min_bytes=1,
        max_bytes=1 << 20,
        session_id=session[0],
        session_epoch=session[1],
        topics=[fetch.FetchRequestTopic(topic="t", partitions=[partition])],
        rack_id=rack_id,
    )


@contextmanager
def served_by(node: World, **properties: str) -> Iterator[Client]:
    """Give a consumer's connection to that broker."""
    handlers = {key: s for key, s in load_handlers().items() if key == 1}
    config = network_config(**properties)
    context = handler_context(config=config, replica_manager=node.manager, metadata_cache=node.cache)
    with broker_of(handlers, context) as client:
        yield client


@pytest.mark.spec("BRK-64", "BRK-125")
def test_another_number_of_fetchers_goes_on_with_what_was_followed(tmp_path: Path) -> None:
    others = [TopicPartition("t", number) for number in range(1, 4)]
    with pair(tmp_path) as (one, two, port):
        one.lead(isr=(1, 2))
        follow(two, port)
        for partition in others:
            one.leader_and_isr(role(partition, 1, 0, [1, 2], [1, 2]))
            follow(two, port, partition=partition)
        for number, count in ((3, 1), (1, 2), (2, 3)):
            two.manager.fetchers.set_number(number)
            followed = set(two.manager.fetchers.lags())
            assert followed == {TP, *others}
            assert len(two.manager.fetchers.traffic()) == len({fetcher_number(p, number) for p in followed})
            result = one.produce(acks=-1, count=2)
            eventually(lambda r=result: bool(r), "acks=-1 to be answered")  # type: ignore[misc]
            assert result[0].error == 0
            assert one.partition().log.log_end_offset == 2 * count
        eventually(lambda: same(one, two), "the same logs")


@pytest.mark.spec("BRK-64")
def test_the_number_of_a_fetcher_is_javas_hash() -> None:
    assert fetcher_number(TopicPartition("hello", 3), 7) == abs((31 * 99162322 + 3 + 2**31) % 2**32 - 2**31) % 7
    assert fetcher_number(TopicPartition("polygenelubricants", 0), 7) == 0, "the one number without an absolute value"
    assert fetcher_number(TopicPartition("polygenelubricants", 1), 7) == (2**31 - 1) % 7
    numbers = {fetcher_number(TopicPartition("topic", p), 4) for p in range(50)}
    assert numbers == {0, 1, 2, 3}


@pytest.mark.spec("BRK-66")
@pytest.mark.parametrize(
    ("epochs", "reply", "expected"),
    [
        ([(0, 0), (3, 10)], (-1, -1), Truncation(5, True)),  # the leader knows nothing: high watermark
        ([(0, 0), (3, 10)], (-1, 12), Truncation(12, True)),  # version 0 names no epoch
        ([(0, 0), (3, 10)], (-1, 40), Truncation(20, True)),
        ([(0, 0), (3, 10)], (3, 15), Truncation(15, True)),
        ([(0, 0), (3, 10)], (3, 25), Truncation(20, True)),
        ([(0, 0), (3, 10)], (0, 30), Truncation(10, True)),  # known here: at most where it ends here
        ([(1, 0), (3, 10)], (2, 14), Truncation(10, False)),  # not known here: cut and ask again
        ([(2, 4), (3, 10)], (1, 7), Truncation(4, True)),  # below all known here
        ([(2, 4), (3, 10)], (1, 2), Truncation(2, True)),
        ([(2, 40), (3, 50)], (1, 60), Truncation(20, True)),  # and never beyond the end
        ([(1, 40), (3, 50)], (2, 60), Truncation(20, False)),
    ],
)
def test_where_to_cut(
    tmp_path: Path, epochs: list[tuple[int, int]], reply: tuple[int, int], expected: Truncation
) -> None:
    cache = LeaderEpochCache(tmp_path / "leader-epoch-checkpoint")
    for epoch, start in epochs:
        cache.assign(epoch, start)
    assert decide_truncation(cache, 20, 5, *reply) == expected


@pytest.mark.spec("ADM-98", "BRK-3")
@pytest.mark.parametrize("protocol", ["0.10.0", "0.10.1", "0.10.2"])
def test_at_a_protocol_of_before_epochs_it_is_cut_at_the_high_watermark(tmp_path: Path, protocol: str) -> None:
    """The leader is asked for no epoch, whatever the logs tell of them; the bytes are equal in the end."""
    with pair(tmp_path, inter_broker_protocol_version=protocol) as (one, two, port):
        one.lead(isr=(1, 2))
        follow(two, port)
        one.produce(count=2)
        eventually(lambda: same(one, two) and two.partition().high_watermark.offset == 2, "caught up")
        two.manager.fetchers.remove([TP])
        two.zookeeper.put_state(TP, LeaderAndIsr(2, 1, (1, 2), 1), 0)
        two.leader_and_isr(role(TP, 2, 1, [1, 2], [1, 2]))
        two.manager.appends.append({TP: batch(5)}, acks=1, timeout_ms=100, on_done=lambda _: None)
        assert two.partition().log.log_end_offset == 7
        two.partition().log.leader_epochs.assign(1, 2)
        one.lead(epoch=2, isr=(1, 2))
        one.produce(count=1)
        follow(two, port, epoch=2)
        eventually(lambda: same(one, two), "the logs agree again")
        assert one.partition().log.log_end_offset == 3
        assert {h.magic for _, h in iter_batches(everything(two.partition().log))} == {1}


@pytest.mark.spec("ADM-98", "BRK-74")
@pytest.mark.parametrize("protocol", ["0.10.0", "0.10.2"])
def test_at_such_a_protocol_a_follower_too_far_behind_starts_where_the_leaders_log_does(
    tmp_path: Path, protocol: str
) -> None:
    with pair(tmp_path, inter_broker_protocol_version=protocol, log_retention_ms="-1") as (one, two, port):
        one.lead(isr=(1,), replicas=(1, 2))
        one.produce(count=6)
        log = one.partition().log
        log.roll(6)
        one.produce(count=2)
        log.advance_log_start(6)
        assert log.apply_retention() == 1
        follow(two, port)
        eventually(lambda: same(one, two), "caught up")
        assert two.partition().log.log_start_offset == 6
