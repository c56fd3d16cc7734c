"""Real Kafka starts on directories written here, and this broker on those of real Kafka, old formats among them."""

import shutil
from collections.abc import Mapping
from pathlib import Path

import pytest

from kafkatool.broker.runtime.scheduler import Scheduler
from kafkatool.broker.storage.batches.older_entries import OlderEntries
from kafkatool.broker.storage.batches.produced_sets import as_stored
from kafkatool.broker.storage.checkpoint import read_offsets
from kafkatool.broker.storage.directories.log_manager import LogManager
from kafkatool.broker.storage.directories.topic_identity import TopicIdentity, read_identity
from kafkatool.core.client.connection import Connection
from kafkatool.core.errors import BrokerUnreachableError
from kafkatool.core.model.values import LeaderAndIsr, TopicPartition
from kafkatool.core.operations.topics.creation import create_topic
from kafkatool.core.protocol.messages import fetch, list_offsets, produce
from kafkatool.core.protocol.messages.error_codes import ErrorCode
from kafkatool.core.protocol.records.batches import Record, decode_records, encode_batch, iter_batches
from kafkatool.core.protocol.records.compression import Codec
from kafkatool.core.protocol.records.legacy import LegacyEntry, encode_entry, encode_wrapper
from kafkatool.core.zookeeper.session import ZooKeeper
from kafkatool.core.zookeeper.znodes import PartitionStateZnode
from tests.broker.storage.compaction.compacting import COMPACTED, Kept, append, clean, compacted_log, consumed, latest
from tests.broker.storage.crashing import Killed, Steps, kill_while_compacting
from tests.broker.storage.logs import broker_config
from tests.compat.real_kafka import RealKafka, require, versions
from tests.waiting import eventually

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]

_BROKER = 1
_KEEP_ALL = {"log.cleaner.enable": "false", "log.retention.ms": "-1"}  # the topic and its configs are made later
_EVERY = 3  # steps from one kill to the next: that of all of them is tried on this broker, in less time


def _knows_batches(version: str) -> bool:
    return not version.startswith("0.10.")


def _fetched(connection: Connection, topic: str, partition: int, fetch_version: int) -> list[Kept] | None:
    """Return all records of the partition; None while it has no leader."""
    found: list[Kept] = []
    offset = 0
    while True:
        wanted = fetch.FetchRequestPartition(partition=partition, fetch_offset=offset, partition_max_bytes=1 << 20)
        request = fetch.FetchRequest(
            replica_id=-1,
            max_wait_ms=50,
            min_bytes=1,
            max_bytes=1 << 20,
            isolation_level=0,
            topics=[fetch.FetchRequestTopic(topic=topic, partitions=[wanted])],
        )
        (answer,) = connection.send(fetch.API, fetch_version, request).topics[0].partitions
        if answer.error_code:
            return None
        data = bytes(answer.records or b"")  # type: ignore[arg-type]
        if not data or answer.high_watermark <= offset:
            return found
        for position, header in iter_batches(data):
            found += [Kept(r.offset, r.timestamp, r.key, r.value) for r in decode_records(data[position:])]
            offset = header.next_offset


def _read_all(real: RealKafka, topic: str, partitions: int) -> list[list[Kept]]:
    found: dict[int, list[Kept]] = {}

    def served() -> bool:
        try:
            connection = Connection(
                "127.0.0.1", real.ports[_BROKER], client_id="test", timeout_ms=90_000, security=None
            )
        except BrokerUnreachableError:  # on a machine that is busy it takes its time
            return False
        try:
            for partition in set(range(partitions)) - set(found):
                fetch_version = 4 if _knows_batches(real.version) else 3
                if (records := _fetched(connection, topic, partition, fetch_version)) is not None:
                    found[partition] = records
        finally:
            connection.close()
        return len(found) == partitions

    eventually(served, "all partitions to be served", 120)
    return [found[partition] for partition in range(partitions)]


@pytest.mark.spec("BRK-129", "BRK-136", "BRK-167")
@pytest.mark.parametrize("version", versions("2.8.2", "1.1.1", "0.11.0.3"))
def test_kafka_finishes_what_a_kill_left_of_our_compaction(
    tmp_path: Path, version: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A partition for each third step at which the process may die, and one really killed; Kafka starts on all of them."""
    require(version)
    original = tmp_path / "original"
    log = compacted_log(original, segment_bytes="400")
    for number in range(18):
        append(log, [(f"k{number % 5}", f"value {number}"), (f"d{number % 3}", None if number > 14 else "x")])
    expected, end = latest(consumed(log)), log.log_end_offset
    log.flush()
    real = RealKafka(version, tmp_path / "real", brokers=1, options=_KEEP_ALL)
    data = real.data_directory(_BROKER)
    data.mkdir(parents=True)
    partitions, killed = 0, True
    with monkeypatch.context() as patched:
        steps = Steps(patched)
        while killed:
            steps.last = None
            directory = data / f"t-{partitions}"
            shutil.copytree(original, directory)
            ours = compacted_log(directory, segment_bytes="400")
            steps.taken, steps.last = 0, partitions * _EVERY
            try:
                clean(ours)
                killed = False
            except Killed:
                pass
            partitions += 1
    assert partitions * _EVERY > 30
    seen = kill_while_compacting(data / f"t-{partitions}")
    with real, ZooKeeper(real.connect) as zk:
        create_topic(zk, "t", dict.fromkeys(range(partitions + 1), (_BROKER,)), {"cleanup.policy": "compact"})
        *stepped, killed_for_good = _read_all(real, "t", partitions + 1)
        for number, records in enumerate(stepped):
            assert latest(records) == expected, number
            assert records[-1].offset == end - 1, number
        last = killed_for_good[-1].offset
        assert last + 1 >= seen > 0
        assert latest(killed_for_good) == {b"k%d" % (n % 11): b"%d" % n for n in range(last - 10, last + 1)}


def _records(base: int) -> list[Record]:
    times = range(1_600_000_000_000 + base, 1_600_000_000_005 + base)
    return [Record(i, at, b"k%d" % ((base + i) % 7), b"value %d" % (base + i)) for i, at in enumerate(times)]


def _message_set(records: list[Record], codec: Codec) -> bytes:
    entries = [LegacyEntry(r.offset, 1, 0, r.timestamp, r.key, r.value) for r in records]
    return encode_wrapper(entries, codec) if codec else b"".join(encode_entry(entry) for entry in entries)


def _produce(real: RealKafka, connection: Connection, topic: str, codec: Codec, base: int) -> int:
    records = _records(base)
    batches = _knows_batches(real.version)
    data = bytes(encode_batch(records, codec=codec)) if batches else _message_set(records, codec)
    batch = produce.ProduceRequestPartition(partition=0, records=data)
    request = produce.ProduceRequest(
        acks=-1, timeout_ms=60_000, topics=[produce.ProduceRequestTopic(topic=topic, partitions=[batch])]
    )
    return connection.send(produce.API, 3 if batches else 2, request).topics[0].partitions[0].error_code


def _first_record(real: RealKafka, connection: Connection, topic: str) -> None:
    def taken() -> bool:
        return _produce(real, connection, topic, Codec.NONE, 0) == ErrorCode.NONE

    eventually(taken, f"{topic} to take records", 90)


@pytest.mark.spec("BRK-129", "BRK-154", "BRK-167", "ADM-98")
@pytest.mark.parametrize("kafka", versions("2.8.2", "1.1.1", "0.11.0.3", "0.10.2.2"))
def test_directories_of_kafka_with_its_own_and_older_formats_open_here(tmp_path: Path, kafka: str) -> None:
    """Kafka, two topics of it told to keep the formats of 0.10 and 0.9, is killed or stopped; then the directory is ours."""
    require(kafka)
    formats: dict[str, tuple[str, int]] = {"one": ("0.10.2", 1), "zero": ("0.9.0", 0)}
    if _knows_batches(kafka):
        formats["two"] = ("0.11.0", 2)
    codecs = (Codec.NONE, Codec.GZIP, Codec.SNAPPY, Codec.LZ4)
    before: dict[str, list[Kept]] = {}
    with RealKafka(kafka, tmp_path / "real", brokers=1) as real, ZooKeeper(real.connect) as zk:
        connection = Connection("127.0.0.1", real.ports[_BROKER], client_id="test", timeout_ms=90_000, security=None)
        try:
            for topic, (version, _) in formats.items():
                configs = {"message.format.version": version, "segment.bytes": "1000", "retention.ms": "-1"}
                create_topic(zk, topic, {0: (_BROKER,)}, configs)
                _first_record(real, connection, topic)
                for number in range(1, 40):
                    assert _produce(real, connection, topic, codecs[number % 4], number * 5) == ErrorCode.NONE
        finally:
            connection.close()
        for topic in formats:
            (before[topic],) = _read_all(real, topic, 1)
        # What is there now a kill -9 would leave, but for a checkpoint that is being written and gone before it is copied.
        shutil.copytree(real.data_directory(_BROKER), tmp_path / "killed", ignore=shutil.ignore_patterns("*.tmp"))
        real.stop_broker(_BROKER)
    shutil.copytree(real.data_directory(_BROKER), tmp_path / "stopped")
    for name in ("killed", "stopped"):
        stopped = name == "stopped"
        assert (tmp_path / name / ".kafka_cleanshutdown").exists() is stopped
        _opens_here(tmp_path / name, {topic: magic for topic, (_, magic) in formats.items()}, before, stopped=stopped)


def _opens_here(data: Path, magics: Mapping[str, int], expected: Mapping[str, list[Kept]], *, stopped: bool) -> None:
    scheduler = Scheduler(1)
    overrides = {name.replace("_", "."): text for name, text in COMPACTED.items()}
    manager = LogManager(broker_config(log_dirs=str(data)), lambda topic: overrides, scheduler)
    try:
        marks = read_offsets(data / "replication-offset-checkpoint")
        manager.load()
        assert marks and manager.read_high_watermarks() == marks
        if stopped:
            assert marks == {one.partition: one.log_end_offset for one in manager.logs()}
        for topic, magic in magics.items():
            log = manager.get(TopicPartition(topic, 0))
            assert log is not None
            assert consumed(log) == expected[topic]
            assert log.log_end_offset == expected[topic][-1].offset + 1
            assert log.leader_epochs.entries == ([(0, 0)] if magic == 2 else [])
            assert {h.magic for segment in log.segments for _, h in segment.headers()} == {magic}
            log.high_watermark = log.log_end_offset
            assert clean(log) >= 1
            left = consumed(log)
            assert latest(left) == latest(expected[topic])
            assert len(left) < len(expected[topic]) / 2
            assert {h.magic for segment in log.segments for _, h in segment.headers()} == {magic}
            append(log, [("new", "in format 2")])
            assert consumed(log)[-1].value == b"in format 2"
    finally:
        manager.shutdown()
        scheduler.shutdown()


@pytest.mark.spec("BRK-129")
@pytest.mark.parametrize("stopped", [True, False], ids=["stopped", "killed"])
@pytest.mark.parametrize("version", versions("2.8.2", "1.1.1", "0.11.0.3"))
def test_our_directories_open_in_kafka_as_they_were(tmp_path: Path, version: str, stopped: bool) -> None:
    """Five epochs in several segments; a kill leaves no mark, no sealed indexes and the checkpoints of a while ago."""
    require(version)
    real = RealKafka(version, tmp_path / "real", brokers=1, options=_KEEP_ALL)
    data = real.data_directory(_BROKER)
    partition = TopicPartition("t", 0)
    scheduler = Scheduler(1)
    ours = tmp_path / "ours"
    manager = LogManager(
        broker_config(log_dirs=str(ours), log_segment_bytes="1000"),
        lambda _: {},
        scheduler,
        identities_of=lambda topics: dict.fromkeys(topics, TopicIdentity(7, 8)),
    )
    manager.load()
    manager.expect(["t"])
    log = manager.get_or_create(partition)
    for number in range(40):
        records = [Record(i, 1_600_000_000_000 + 10 * number + i, b"k%d" % i, b"value %d" % number) for i in range(3)]
        log.append_as_leader(encode_batch(records, codec=(Codec.NONE, Codec.GZIP, Codec.LZ4)[number % 3]), number // 8)
    log.high_watermark = log.log_end_offset
    manager.write_high_watermarks({partition: 120})
    log.flush()
    expected, epochs = consumed(log), log.leader_epochs.entries
    assert (len(expected), len(epochs), len(log.segments) > 3) == (120, 5, True)
    if stopped:
        manager.shutdown()
    with real, ZooKeeper(real.connect) as zk:
        real.stop_broker(_BROKER)
        shutil.rmtree(data)
        shutil.copytree(ours, data, ignore=shutil.ignore_patterns(".lock"))
        manager.abandon()
        scheduler.shutdown()
        (data / "t-0" / "notes.txt").write_text("mine")
        assert (data / ".kafka_cleanshutdown").exists() is stopped
        inode = (data / "t-0" / f"{0:020d}.log").stat().st_ino
        create_topic(zk, "t", {0: (_BROKER,)}, {"retention.ms": "-1"})
        state = PartitionStateZnode.encode(LeaderAndIsr(None, epochs[-1][0], (_BROKER,), 1))
        zk.create(PartitionStateZnode.path(partition), state, make_parents=True)
        real.start_broker(_BROKER)
        assert _read_all(real, "t", 1) == [expected]
        real.stop_broker(_BROKER)
    assert (data / "t-0" / f"{0:020d}.log").stat().st_ino == inode
    assert read_offsets(data / "replication-offset-checkpoint") == {partition: 120}
    kept = (data / "t-0" / "leader-epoch-checkpoint").read_text().splitlines()[2:]
    assert kept[:5] == [f"{epoch} {start}" for epoch, start in epochs]
    assert (data / "t-0" / "notes.txt").read_text() == "mine"
    assert read_identity(data / "t-0") == TopicIdentity(7, 8)


@pytest.mark.spec("BRK-129", "ADM-89", "ADM-98")
@pytest.mark.parametrize("stopped", [True, False], ids=["stopped", "killed"])
@pytest.mark.parametrize("version", versions("2.8.2", "1.1.1", "0.10.2.2"))
def test_our_directories_of_older_formats_open_in_kafka_and_are_written_on(
    tmp_path: Path, version: str, stopped: bool
) -> None:
    """Every codec, several segments; Kafka reads all, finds records by their time, appends, and we read that."""
    require(version)
    real = RealKafka(version, tmp_path / "real", brokers=1, options=_KEEP_ALL)
    data = real.data_directory(_BROKER)
    topics = {"one": "0.10.2", "zero": "0.9.0"}
    scheduler = Scheduler(1)
    ours = tmp_path / "ours"

    def overrides(topic: str) -> Mapping[str, str]:
        return {"message.format.version": topics[topic], "segment.bytes": "1000", "retention.ms": "-1"}

    manager = LogManager(broker_config(log_dirs=str(ours)), overrides, scheduler)
    manager.load()
    manager.expect(topics)
    expected: dict[str, list[Kept]] = {}
    for topic in topics:
        log = manager.get_or_create(TopicPartition(topic, 0))
        for number in range(40):
            batch = encode_batch(
                _records(5 * number), codec=(Codec.NONE, Codec.GZIP, Codec.SNAPPY, Codec.LZ4)[number % 4]
            )
            entries = as_stored(batch, log.config, message_set=False, origin_client=True)
            assert isinstance(entries, OlderEntries)
            log.append_entries(entries)
        log.high_watermark = log.log_end_offset
        assert len(log.segments) > 3
        log.flush()
        expected[topic] = consumed(log)
    manager.write_high_watermarks({TopicPartition(topic, 0): 200 for topic in topics})
    if stopped:
        manager.shutdown()
    with real, ZooKeeper(real.connect) as zk:
        real.stop_broker(_BROKER)
        shutil.rmtree(data)
        shutil.copytree(ours, data, ignore=shutil.ignore_patterns(".lock"))
        manager.abandon()
        scheduler.shutdown()
        for topic in topics:
            create_topic(zk, topic, {0: (_BROKER,)}, dict(overrides(topic)))
            state = PartitionStateZnode.encode(LeaderAndIsr(None, 3, (_BROKER,), 1))
            zk.create(PartitionStateZnode.path(TopicPartition(topic, 0)), state, make_parents=True)
        real.start_broker(_BROKER)
        for topic in topics:
            assert _read_all(real, topic, 1) == [expected[topic]]
        connection = Connection("127.0.0.1", real.ports[_BROKER], client_id="test", timeout_ms=90_000, security=None)
        try:
            asked = list_offsets.ListOffsetsRequestPartition(partition=0, timestamp=1_600_000_000_123)
            about = [list_offsets.ListOffsetsRequestTopic(topic="one", partitions=[asked])]
            answer = connection.send(list_offsets.API, 1, list_offsets.ListOffsetsRequest(topics=about))
            found = answer.topics[0].partitions[0]
            assert (found.error_code, found.offset, found.timestamp) == (0, 123, asked.timestamp)
            for topic in topics:
                assert _produce(real, connection, topic, Codec.GZIP, 200) == ErrorCode.NONE
        finally:
            connection.close()
        real.stop_broker(_BROKER)
    scheduler = Scheduler(1)
    manager = LogManager(broker_config(log_dirs=str(data)), overrides, scheduler)
    try:
        manager.load()
        for number, topic in enumerate(topics):
            again = manager.get(TopicPartition(topic, 0))
            assert again is not None
            written = [
                Kept(200 + r.offset, -1 if number else r.timestamp, r.key, r.value or b"") for r in _records(200)
            ]
            assert consumed(again) == expected[topic] + written
    finally:
        manager.shutdown()
        scheduler.shutdown()
