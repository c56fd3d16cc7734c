"""Transactions by clients on whole brokers: committed, aborted, fenced, with offsets, over a coordinator that is killed."""

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition

from kafkatool.broker.embedded.cluster import EmbeddedCluster
from kafkatool.core.model import values as model
from kafkatool.core.protocol.messages import end_txn, offset_fetch
from kafkatool.core.protocol.messages.error_codes import ErrorCode
from kafkatool.core.zookeeper.session import ZooKeeper
from tests.integration.isolation import ISOLATIONS, values_of
from tests.raw_transactions import Brokers, RawProducer
from tests.steady import STEADY, crash
from tests.waiting import eventually

LIMIT_S = 120.0


@pytest.fixture(params=[1, pytest.param(3, marks=pytest.mark.slow)], ids=["one broker", "three brokers"])
def cluster(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[EmbeddedCluster]:
    with EmbeddedCluster(brokers=request.param, directory=tmp_path / "cluster", options=STEADY) as made:
        yield made


def producer(cluster: EmbeddedCluster, transactional_id: str = "tx", timeout_ms: int = 60_000) -> Producer:
    settings: dict[str, Any] = {"transactional.id": transactional_id, "transaction.timeout.ms": timeout_ms}
    made = Producer({"bootstrap.servers": cluster.bootstrap, **settings})
    made.init_transactions(LIMIT_S)
    return made


def send(by: Producer, topic: str, *values: str, partition: int = 0) -> None:
    for value in values:
        by.produce(topic, value, partition=partition)
    by.flush(LIMIT_S)


@pytest.mark.spec("TXN-101", "TXN-40", "TXN-41", "TXN-72", "TXN-63", "TXN-65")
def test_committed_records_are_seen_and_aborted_ones_are_not(cluster: EmbeddedCluster) -> None:
    cluster.create_topic("t", partitions=2)
    by = producer(cluster)
    for number in range(6):
        by.begin_transaction()
        send(by, "t", f"{number}-a", partition=0)
        send(by, "t", f"{number}-b", partition=1)
        if number % 2:
            by.abort_transaction(LIMIT_S)
        else:
            by.commit_transaction(LIMIT_S)
    committed = [f"{n}-{p}" for n in (0, 2, 4) for p in "ab"]
    eventually(
        lambda: sorted(values_of(cluster, "t", "read_committed", 2)) == committed, "the markers", seconds=LIMIT_S
    )
    everything = values_of(cluster, "t", "read_uncommitted", 2)
    assert sorted(everything) == [f"{n}-{p}" for n in range(6) for p in "ab"]


@pytest.mark.spec("TXN-26", "TXN-27", "TXN-107")
def test_a_second_producer_of_the_id_fences_the_first_and_its_records_are_aborted(cluster: EmbeddedCluster) -> None:
    cluster.create_topic("t", partitions=1)
    first = producer(cluster)
    first.begin_transaction()
    send(first, "t", "lost")
    second = producer(cluster)
    second.begin_transaction()
    send(second, "t", "kept")
    second.commit_transaction(LIMIT_S)
    with pytest.raises(KafkaException) as refused:
        first.commit_transaction(LIMIT_S)
    assert refused.value.args[0].fatal()
    eventually(lambda: values_of(cluster, "t", "read_committed") == ["kept"], "the second's record", seconds=LIMIT_S)


@pytest.mark.spec("TXN-44", "TXN-107")
def test_a_transaction_past_its_time_is_aborted_and_its_producer_told(tmp_path: Path) -> None:
    options = {"transaction.abort.timed.out.transaction.cleanup.interval.ms": "100", **STEADY}
    with EmbeddedCluster(brokers=1, directory=tmp_path / "cluster", options=options) as cluster:
        cluster.create_topic("t", partitions=1)
        slow = producer(cluster, timeout_ms=1000)
        slow.begin_transaction()
        send(slow, "t", "late")
        eventually(
            lambda: values_of(cluster, "t", "read_committed") == [] and "took too long" in log_of(cluster, 1),
            "the abort",
            seconds=LIMIT_S,
        )
        with pytest.raises(KafkaException):
            slow.commit_transaction(LIMIT_S)
        after = producer(cluster)
        after.begin_transaction()
        send(after, "t", "next")
        after.commit_transaction(LIMIT_S)
        eventually(lambda: values_of(cluster, "t", "read_committed") == ["next"], "the next one", seconds=LIMIT_S)


def log_of(cluster: EmbeddedCluster, broker_id: int) -> str:
    return cluster.files.output(broker_id).read_text()


@pytest.mark.spec("GRP-48")
def test_an_offset_with_too_long_metadata_is_refused_alone_also_in_a_transaction(tmp_path: Path) -> None:
    with EmbeddedCluster(brokers=1, directory=tmp_path / "cluster", options=STEADY) as cluster:
        cluster.create_topic("in", partitions=4)
        with RawProducer(cluster.bootstrap, "tx") as by:
            assert by.init() == 0 and by.add_offsets("g") == 0
            asked = {0: "x" * 4097, 1: "x" * 4096, 2: "\U0001f600" * 2048 + "x", 3: None}
            assert by.commit_offsets("g", "in", asked) == {0: 12, 1: 0, 2: 12, 3: 0}
            stable = {0: (0, None), 1: (88, None), 2: (0, None), 3: (88, None)}
            assert offsets_of(by, "in", range(4)) == stable, "what was refused is not pending"
            assert by.end(committed=True) == 0
            come = {**stable, 1: (0, "x" * 4096), 3: (0, "")}
            eventually(lambda: offsets_of(by, "in", range(4)) == come, "the marker", seconds=LIMIT_S)


def offsets_of(by: RawProducer, topic: str, partitions: range) -> dict[int, tuple[int, str | None]]:
    """Return the code and, of what is committed, the metadata, asking for what is stable alone."""
    asked = [offset_fetch.OffsetFetchRequestTopic(topic=topic, partitions=list(partitions))]
    request = offset_fetch.OffsetFetchRequest(group_id="g", topics=asked, require_stable=True)
    by.client.begin_anew()
    answer = by.client.any(offset_fetch.API, request, least=7)
    return {
        p.partition: (p.error_code, p.metadata if p.committed_offset >= 0 else None)
        for p in answer.topics[0].partitions
    }


@pytest.mark.spec("TXN-82", "TXN-83", "TXN-86", "TXN-36", "TXN-101")
def test_offsets_of_a_transaction_count_when_it_commits_and_only_then(cluster: EmbeddedCluster) -> None:
    cluster.create_topic("in", partitions=1)
    cluster.create_topic("out", partitions=1)
    consumer = Consumer(
        {
            "bootstrap.servers": cluster.bootstrap,
            "group.id": "g",
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            "isolation.level": "read_committed",
        }
    )
    consumer.subscribe(["in"])
    eventually(lambda: consumer.poll(0.1) is None and consumer.assignment(), "the assignment", seconds=LIMIT_S)
    by = producer(cluster)

    def committed() -> int:
        (found,) = consumer.committed([TopicPartition("in", 0)], LIMIT_S)
        assert found.error is None
        offset: int = found.offset
        return offset

    for number, ends in enumerate([by.abort_transaction, by.commit_transaction]):
        by.begin_transaction()
        send(by, "out", str(number))
        at = [TopicPartition("in", 0, 7 + number)]
        by.send_offsets_to_transaction(at, consumer.consumer_group_metadata(), LIMIT_S)
        ends(LIMIT_S)
    eventually(lambda: committed() == 8, "the second's offset", seconds=LIMIT_S)
    assert values_of(cluster, "out", "read_committed") == ["1"]
    consumer.close()


@pytest.mark.slow
@pytest.mark.spec("TXN-95", "TXN-104", "TXN-42")
def test_transactions_go_on_over_coordinators_that_are_killed(tmp_path: Path) -> None:
    with (
        EmbeddedCluster(brokers=3, directory=tmp_path / "cluster", options=STEADY) as cluster,
        ZooKeeper(cluster.zookeeper, session_timeout_ms=60_000) as zk,
    ):
        cluster.create_topic("t", partitions=3)
        by = producer(cluster)
        kept: list[str] = []
        for round_ in range(4):
            coordinator = leader_of(cluster, "tx")
            by.begin_transaction()
            for partition in range(3):
                send(by, "t", f"{round_}-{partition}", partition=partition)
            crash(cluster, zk, coordinator)
            if round_ % 2:
                by.abort_transaction(LIMIT_S)
            else:
                by.commit_transaction(LIMIT_S)
                kept += [f"{round_}-{partition}" for partition in range(3)]
            cluster.start_broker(coordinator)
        eventually(
            lambda: sorted(values_of(cluster, "t", "read_committed", 3)) == kept, "whole transactions", seconds=LIMIT_S
        )


@pytest.mark.slow
@pytest.mark.spec("TXN-97", "TXN-54")
@pytest.mark.parametrize("committed", [True, False])
def test_the_marker_goes_to_the_successor_of_a_leader_that_is_killed_before_it_has_it(
    tmp_path: Path, committed: bool
) -> None:
    alone = {"transaction.state.log.replication.factor": "1", "transaction.state.log.min.isr": "1"}
    with (
        EmbeddedCluster(brokers=3, directory=tmp_path / "cluster", options={**STEADY, **alone}) as cluster,
        ZooKeeper(cluster.zookeeper, session_timeout_ms=60_000) as zk,
        ExitStack() as producers,
    ):
        cluster.create_topic("t", partitions=1)
        place, victim = model.TopicPartition("t", 0), cluster.leader("t")
        assert victim is not None
        ids = (producers.enter_context(RawProducer(cluster.bootstrap, f"id-{number}")) for number in range(100))
        by, coordinator = next((one, c) for one in ids if one.init() == 0 and (c := one.coordinator) != victim)
        assert (by.add(place), by.send(place, "acknowledged")) == (0, 0)
        cluster.faults.freeze(victim)
        by.client.begin_anew()
        who = {"transactional_id": by.transactional_id, "producer_id": by.producer_id, "producer_epoch": by.epoch}
        asked = end_txn.EndTxnRequest(**who, committed=committed)  # type: ignore[arg-type]
        assert by.client.broker(coordinator, end_txn.API, asked).error_code == 0
        crash(cluster, zk, victim)
        assert by.end(committed=not committed) == ErrorCode.INVALID_TXN_STATE, "it is complete"
        assert cluster.leader("t") not in (victim, None)
        assert values_of(cluster, "t", "read_committed") == ["acknowledged"] * committed
        assert values_of(cluster, "t", "read_uncommitted") == ["acknowledged"]


@pytest.mark.slow
@pytest.mark.spec("TXN-106", "TXN-72", "TXN-73", "TXN-63")
def test_what_belongs_to_no_transaction_holds_up_no_reader_of_the_leader_or_its_successor(tmp_path: Path) -> None:
    with (
        EmbeddedCluster(brokers=3, directory=tmp_path / "cluster", options=STEADY) as cluster,
        ZooKeeper(cluster.zookeeper, session_timeout_ms=60_000) as zk,
    ):
        for topic in ("t", "other"):
            cluster.create_topic(topic, partitions=1)
        place, other = (model.TopicPartition(topic, 0) for topic in ("t", "other"))

        def send_as(transactional_id: str, producer_id: int, epoch: int) -> int:
            with RawProducer(cluster.bootstrap, transactional_id) as stranger:
                stranger.producer_id, stranger.epoch = producer_id, epoch
                return stranger.send(place, "nobody's")

        none, no, unknown = ErrorCode.NONE, ErrorCode.INVALID_TXN_STATE, ErrorCode.INVALID_PRODUCER_ID_MAPPING
        assert send_as("id", 4711, 0) == no, "there is no topic of transactions"
        with RawProducer(cluster.bootstrap, "id") as by:
            assert (by.init(), by.send(place, "not added")) == (none, no)
            assert (by.add(other), by.send(place, "not added either")) == (none, no)
            assert (by.add(place), by.send(place, "kept"), by.end(committed=True)) == (none, none, none)
            assert by.end(committed=False) == no, "it is complete"
            assert by.send(place, "late") == no
            assert send_as("id", 4711, 0) == send_as("another", by.producer_id, by.epoch) == unknown
            assert send_as("id", by.producer_id, by.epoch + 1) == ErrorCode.INVALID_PRODUCER_EPOCH
        led_by = cluster.leader("t")
        assert led_by is not None
        for leads in ("the leader", "its successor"):
            all_is_read = lambda: {ends_of(cluster, isolation) for isolation in ISOLATIONS} == {2}  # noqa: E731
            eventually(all_is_read, f"the record and its marker to be read from {leads}", seconds=LIMIT_S)
            if cluster.leader("t") == led_by:
                crash(cluster, zk, led_by)
                eventually(lambda: cluster.leader("t") not in (led_by, None), "a successor", seconds=LIMIT_S)
        assert values_of(cluster, "t", "read_committed") == values_of(cluster, "t", "read_uncommitted") == ["kept"]


def ends_of(cluster: Brokers, isolation: str) -> int:
    """Return where a reader of that isolation comes to an end; -1 where nobody leads just now."""
    asking = Consumer({"bootstrap.servers": cluster.bootstrap, "group.id": "a", "isolation.level": isolation})
    try:
        return int(asking.get_watermark_offsets(TopicPartition("t", 0), LIMIT_S)[1])
    except KafkaException:
        return -1
    finally:
        asking.close()


def leader_of(cluster: EmbeddedCluster, transactional_id: str) -> int:
    from kafkatool.broker.coordination.ownership import partition_for

    found: list[int] = []

    def known() -> bool:
        found[:] = [cluster.leader("__transaction_state", partition_for(transactional_id, 10)) or -1]
        return found[0] > 0

    eventually(known, "the coordinator", seconds=LIMIT_S)
    return found[0]
