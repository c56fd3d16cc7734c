"""Produce over a socket: layouts, codes by version, acks 0."""

import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

import pytest

from kafkatool.broker.handlers.call import load_handlers
from kafkatool.broker.replication.leading.verified_appends import Answer, Question
from kafkatool.broker.storage.producers.producer_state import UNVERIFIED
from kafkatool.core.model.values import TopicPartition
from kafkatool.core.protocol.frames import decode_response, encode_request
from kafkatool.core.protocol.messages.error_codes import ErrorCode, error_name
from kafkatool.core.protocol.messages.produce import API, ProduceRequest, ProduceRequestPartition, ProduceRequestTopic
from kafkatool.core.protocol.records.batches import (
    CONTROL,
    TRANSACTIONAL,
    Record,
    decode_records,
    encode_batch,
    iter_batches,
)
from kafkatool.core.protocol.records.compression import Codec, compress
from kafkatool.core.protocol.records.message_sets import MOST_RECORDS
from tests.broker.handlers.served import Client, broker_of, handler_context
from tests.broker.replication.world import Clock, World, world
from tests.broker.storage.batch_builders import batch, entry
from tests.broker.storage.logs import everything
from tests.waiting import eventually

ZSTD = 4


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[World]:
    with world(tmp_path, clock=Clock()) as made:
        made.lead()
        yield made


@pytest.fixture
def client(broker: World) -> Iterator[Client]:
    handlers = {key: s for key, s in load_handlers().items() if key == 0}
    context = handler_context(replica_manager=broker.manager, metadata_cache=broker.cache)
    with broker_of(handlers, context) as made:
        yield made


def request(records: bytearray | None, *, acks: int = 1, topic: str = "t") -> ProduceRequest:
    partition = ProduceRequestPartition(partition=0, records=records)
    return ProduceRequest(acks=acks, timeout_ms=1000, topics=[ProduceRequestTopic(topic=topic, partitions=[partition])])


def codes(client: Client, version: int, message: ProduceRequest) -> list[int]:
    response = client.call(API, version, message)
    return [p.error_code for t in response.topics for p in t.partitions]


@pytest.mark.spec("BRK-86", "BRK-87", "BRK-162")
@pytest.mark.parametrize("version", range(3, 10))
def test_offsets_come_back_in_every_version(client: Client, version: int) -> None:
    client.call(API, version, request(batch(2)))
    answer = client.call(API, version, request(batch(2))).topics[0].partitions[0]
    assert (answer.error_code, answer.base_offset, answer.log_append_time_ms) == (0, 2, -1)
    assert answer.log_start_offset == (0 if version >= 5 else -1)


def batches(broker: World) -> list[bytes]:
    """The batches that lie in the log."""
    data = everything(broker.partition().log)
    return [data[at : at + header.size_bytes] for at, header in iter_batches(data)]


def stored(broker: World) -> list[Record]:
    return [record for one in batches(broker) for record in decode_records(one)]


@pytest.mark.spec("ADM-90", "ADM-91")
@pytest.mark.parametrize("version", range(3))
@pytest.mark.parametrize("magic", [0, 1])
@pytest.mark.parametrize("codec", [Codec.NONE, Codec.GZIP, Codec.SNAPPY, Codec.LZ4])
def test_a_message_set_becomes_one_batch(broker: World, client: Client, version: int, magic: int, codec: Codec) -> None:
    client.call(API, 8, request(batch(3)))
    made = [(b"a", b"1", 2000), (None, b"", 3000), (b"", None, 1500)]
    message_set = b"".join(entry(i, v, key=k, magic=magic, timestamp=t) for i, (k, v, t) in enumerate(made))
    if codec:
        packed = compress(codec, message_set, magic=magic)
        message_set = entry(2, packed, key=None, magic=magic, attributes=codec)
    answer = client.call(API, version, request(bytearray(message_set))).topics[0].partitions[0]
    assert (answer.error_code, answer.base_offset, answer.log_append_time_ms) == (0, 3, -1)
    assert stored(broker)[3:] == [Record(3 + i, t if magic else -1, k, v) for i, (k, v, t) in enumerate(made)]
    assert [one[22] & 7 for one in batches(broker)] == [0, codec]


@pytest.mark.spec("ADM-90")
def test_what_is_wrong_in_a_message_set_is_refused_whole(broker: World, client: Client) -> None:
    good = entry(0)
    gzipped = compress(Codec.GZIP, good)
    wrapper = entry(0, gzipped, key=None, attributes=1)
    flipped = bytearray(good)
    flipped[-1] ^= 1
    wrong = {
        "nothing": b"",
        "no entry": b"abc",
        "cut": good[:-1],
        "checksum": bytes(flipped),
        "checksum inside": entry(0, compress(Codec.GZIP, flipped), key=None, attributes=1),
        "two formats": good + entry(1, magic=0),
        "another format inside": entry(0, compress(Codec.GZIP, entry(0, magic=0)), key=None, attributes=1),
        "two wrappers": wrapper + entry(1, gzipped, key=None, attributes=1),
        "one beside a wrapper": good + wrapper,
        "one behind a wrapper": wrapper + good,
        "a wrapper in a wrapper": entry(0, compress(Codec.GZIP, wrapper), key=None, attributes=1),
        "an empty wrapper": entry(0, compress(Codec.GZIP, b""), key=None, attributes=1),
        "a wrapper without value": entry(0, None, key=None, attributes=1),
        "no gzip": entry(0, b"abc", key=None, attributes=1),
        "unknown codec": entry(0, gzipped, key=None, attributes=5),
        "format 2": bytes(batch()),
    }
    for version in range(3):
        for what, message_set in wrong.items():
            assert codes(client, version, request(bytearray(message_set))) == [2], (version, what)
        assert codes(client, version, request(bytearray(entry(0, b"", key=None, attributes=ZSTD)))) == [76]
        stamped = entry(0, attributes=0x08)
        assert codes(client, version, request(bytearray(stamped))) == [ErrorCode.INVALID_TIMESTAMP]
    assert broker.partition().log.log_end_offset == 0


@pytest.mark.slow
@pytest.mark.spec("ADM-90", "ADM-97", "SEC-102")
def test_a_small_wrapper_full_of_records_is_refused_before_they_are_made(client: Client) -> None:
    tiny = entry(0, None, key=None, magic=0)
    bomb = entry(0, compress(Codec.GZIP, tiny * (MOST_RECORDS + 1), magic=0), key=None, magic=0, attributes=1)
    assert MOST_RECORDS == 1_000_000 and len(bomb) < 200_000
    assert codes(client, 2, request(bytearray(bomb))) == [ErrorCode.MESSAGE_TOO_LARGE]


@pytest.mark.spec("ADM-97", "SEC-102")
def test_a_wrapper_that_inflates_to_more_than_100_mib_is_called_too_large(broker: World, client: Client) -> None:
    inflated = entry(0, bytes(104_857_600), key=None)
    bomb = entry(0, compress(Codec.GZIP, inflated, magic=1), key=None, attributes=1)
    assert [codes(client, version, request(bytearray(bomb))) for version in range(3)] == [[10]] * 3
    assert broker.partition().log.log_end_offset == 0


@pytest.mark.spec("ADM-90")
def test_a_producer_that_knows_no_invalid_record_is_told_corrupt(broker: World, client: Client) -> None:
    broker.logs.update_topic_config("t", {"cleanup.policy": "compact"})
    assert codes(client, 2, request(bytearray(entry(0, key=None)))) == [ErrorCode.CORRUPT_MESSAGE]


@pytest.mark.spec("ADM-90", "ADM-91")
def test_the_brokers_time_and_codec_hold_for_message_sets_too(broker: World, client: Client) -> None:
    broker.logs.update_topic_config("t", {"message.timestamp.type": "LogAppendTime", "compression.type": "zstd"})
    answer = client.call(API, 2, request(bytearray(entry(0) + entry(1)))).topics[0].partitions[0]
    assert answer.log_append_time_ms > 0
    assert {r.timestamp for r in stored(broker)} == {answer.log_append_time_ms}
    assert batches(broker)[0][22] & 7 == ZSTD


@pytest.mark.spec("ADM-90")
def test_only_a_version_that_knows_batches_may_send_them_and_no_message_sets(client: Client) -> None:
    for version in range(3, 10):
        assert codes(client, version, request(bytearray(entry(0)))) == [2]
        assert codes(client, version, request(batch())) == [0]


@pytest.mark.spec("BRK-84", "ADM-92")
def test_no_batch_and_unknown_codecs_are_refused(client: Client) -> None:
    assert codes(client, 7, request(None)) == [2]
    packed = encode_batch([Record(0, 1000, b"k", b"v")], codec=ZSTD)
    for version in range(3, 7):
        assert codes(client, version, request(packed)) == [76]
    for version in (7, 8, 9):
        assert codes(client, version, request(packed)) == [0]


@pytest.mark.spec("BRK-85")
@pytest.mark.parametrize(
    ("version", "codec"),
    [(version, codec) for version in range(3, 10) for codec in Codec if version >= 7 or codec != ZSTD],
)
def test_records_without_a_key_on_a_compacted_topic_are_refused_for_good_and_named(
    broker: World, client: Client, version: int, codec: int
) -> None:
    """As Kafka 2.8.2 answers in these versions: clients repeat a batch that is called corrupt until their time is up."""
    broker.logs.update_topic_config("t", {"cleanup.policy": "compact"})
    records = encode_batch([Record(i, 1000, key, b"v") for i, key in enumerate([b"a", None, b"b", None])], codec=codec)
    answer = client.call(API, version, request(records)).topics[0].partitions[0]
    assert (answer.error_code, answer.base_offset) == (ErrorCode.INVALID_RECORD, -1)
    assert [e.batch_index for e in answer.record_errors] == ([1, 3] if version >= 8 else [])
    assert ("without a key" in answer.error_message) if version >= 8 else answer.error_message is None


@pytest.mark.spec("BRK-85")
def test_records_of_a_wrong_time_are_named_and_decide_the_code(broker: World, client: Client) -> None:
    limit = {"message.timestamp.difference.max.ms": "60000", "cleanup.policy": "compact"}
    broker.logs.update_topic_config("t", limit)
    now_ms = int(time.time() * 1000)
    records = encode_batch([Record(0, now_ms, b"k", b""), Record(1, now_ms, None, b""), Record(2, 5, b"k", b"")])
    answer = client.call(API, 8, request(records)).topics[0].partitions[0]
    assert (answer.error_code, [e.batch_index for e in answer.record_errors]) == (ErrorCode.INVALID_TIMESTAMP, [1, 2])


@pytest.mark.spec("BRK-85")
def test_an_answer_names_no_more_records_than_a_client_needs(broker: World, client: Client) -> None:
    broker.logs.update_topic_config("t", {"cleanup.policy": "compact"})
    records = encode_batch([Record(i, 1000, None, b"") for i in range(20_000)], codec=1)
    answer = client.call(API, 8, request(records)).topics[0].partitions[0]
    assert (answer.error_code, len(answer.record_errors)) == (ErrorCode.INVALID_RECORD, 1000)


@pytest.mark.spec("TXN-71", "TXN-73")
@pytest.mark.parametrize("version", range(3, 10))
def test_without_the_topic_of_transactions_no_transactional_batch_is_written(
    broker: World, client: Client, version: int
) -> None:
    def coded(transactional_id: str | None, producer: tuple[int, int, int]) -> list[int]:
        message = request(batch(attributes=TRANSACTIONAL, producer=producer))
        return codes(client, version, replace(message, transactional_id=transactional_id))

    assert coded("mine", (7, 0, 0)) == [ErrorCode.INVALID_TXN_STATE]
    assert coded(None, (7, 0, 0)) == [ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED]
    for transactional_id in ("mine", None):
        assert coded(transactional_id, (-1, -1, -1)) == [ErrorCode.INVALID_RECORD]
    log = broker.partition().log
    assert (log.log_end_offset, log.last_stable_offset, log.open_transactions()) == (0, 0, [])
    assert codes(client, version, replace(request(batch()), transactional_id="mine")) == [0]


@pytest.mark.spec("TXN-71", "TXN-80")
@pytest.mark.parametrize("verified", [True, False])
@pytest.mark.parametrize("transactional_id", [None, "mine"])
def test_transactional_batches_of_several_producers_are_refused_and_the_others_are_written(
    broker: World, client: Client, transactional_id: str | None, verified: bool
) -> None:
    broker.manager.reconfigure(replace(broker.config, transaction_partition_verification_enable=verified))
    logs = [broker.partition().log, *(broker.lead(TopicPartition("t", number)).log for number in (1, 2, 3))]
    batches = [
        batch(attributes=TRANSACTIONAL, producer=(7, 0, 0)),
        batch(attributes=TRANSACTIONAL, producer=(8, 0, 0)),
        batch(),
        batch(attributes=TRANSACTIONAL, producer=(7, 1, 0)),
    ]
    partitions = [ProduceRequestPartition(partition=n, records=records) for n, records in enumerate(batches)]
    topics = [ProduceRequestTopic(topic="t", partitions=partitions)]
    message = ProduceRequest(transactional_id=transactional_id, acks=1, timeout_ms=1000, topics=topics)
    if transactional_id is None:
        assert codes(client, 7, message) == [ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED] * 4
        assert [log.log_end_offset for log in logs] == [0, 0, 0, 0]
    else:
        refused = ErrorCode.INVALID_PRODUCER_ID_MAPPING
        assert codes(client, 7, message) == [refused, refused, 0, refused]
        assert [log.log_end_offset for log in logs] == [0, 0, 1, 0]


@pytest.mark.spec("TXN-71", "TXN-80")
@pytest.mark.parametrize("verified", [True, False])
@pytest.mark.parametrize("wrong", ["no producer", "control", "control of a transaction"])
@pytest.mark.parametrize("transactional_id", [None, "mine"])
def test_a_transactional_batch_without_a_producer_and_a_control_batch_are_refused_for_their_partition_alone(
    broker: World, client: Client, transactional_id: str | None, wrong: str, verified: bool
) -> None:
    broker.manager.reconfigure(replace(broker.config, transaction_partition_verification_enable=verified))
    bad = {
        "no producer": batch(attributes=TRANSACTIONAL),
        "control": batch(attributes=CONTROL),
        "control of a transaction": batch(attributes=CONTROL | TRANSACTIONAL),
    }[wrong]
    logs = [broker.partition().log, broker.lead(TopicPartition("t", 1)).log]
    sent = enumerate([bad, batch()])
    topics = [
        ProduceRequestTopic(topic="t", partitions=[ProduceRequestPartition(partition=n, records=r) for n, r in sent])
    ]
    message = ProduceRequest(transactional_id=transactional_id, acks=1, timeout_ms=1000, topics=topics)
    assert codes(client, 7, message) == [ErrorCode.INVALID_RECORD, 0]
    assert [log.log_end_offset for log in logs] == [0, 1]


@pytest.mark.spec("TXN-71")
def test_in_an_open_transaction_neither_another_id_nor_acks_1_is_noticed(broker: World, client: Client) -> None:
    broker.know(TopicPartition("t", 0), TopicPartition("__transaction_state", 0))
    broker.manager.verified_appends.ask_by(lambda *_: pytest.fail("the log knows that it is open"))
    log = broker.partition().log
    log.append_as_leader(
        batch(attributes=TRANSACTIONAL, producer=(7, 0, 0)), 0, origin_client=False, verification=UNVERIFIED
    )
    message = request(batch(attributes=TRANSACTIONAL, producer=(7, 0, 1)), acks=1)
    assert codes(client, 7, replace(message, transactional_id="another's")) == [0]
    assert (log.log_end_offset, [one.producer_id for one in log.open_transactions()]) == (2, [7])


@pytest.mark.spec("TXN-97", "TXN-72")
@pytest.mark.parametrize("acks", [0, 1])
def test_a_batch_of_a_transaction_is_taken_whatever_acks_it_has(broker: World, client: Client, acks: int) -> None:
    tp, log = TopicPartition("t", 0), broker.partition().log
    broker.know(tp, TopicPartition("__transaction_state", 0))
    asked: list[Question] = []

    def in_it(question: Question, _timeout_ms: float, done: Callable[[Answer], None]) -> None:
        asked.append(question)
        done({tp: 0})

    broker.manager.verified_appends.ask_by(in_it)
    for sequence in (0, 1):
        sent = request(batch(attributes=TRANSACTIONAL, producer=(7, 0, sequence)), acks=acks)
        client.send_request(API, 8, replace(sent, transactional_id="tx"))
        if acks:
            assert client.receive_response(API, 8).topics[0].partitions[0].error_code == 0
    assert codes(client, 8, request(batch(), acks=1)) == [0], "the connection of who waits for no answer is there still"
    assert (log.log_end_offset, [one.first_offset for one in log.open_transactions()], len(asked)) == (3, [0], 1)


@pytest.mark.spec("TXN-74")
@pytest.mark.parametrize("version", [3, 7, 8, 9])
@pytest.mark.parametrize("verified", [0, 48, 120, 49, 90, 7, 13, 14, 15, 16, 51, -1])
def test_what_the_coordinator_said_is_told_with_its_words(
    broker: World, client: Client, version: int, verified: int
) -> None:
    tp, log = TopicPartition("t", 0), broker.partition().log
    broker.know(tp, TopicPartition("__transaction_state", 0))
    broker.manager.verified_appends.ask_by(lambda _question, _timeout_ms, done: done({tp: verified}))
    sent = replace(request(batch(attributes=TRANSACTIONAL, producer=(7, 0, 0))), transactional_id="tx")
    (answer,) = client.call(API, version, sent).topics[0].partitions
    again = 19
    told = {0: 0, 48: 48, 120: 48, 49: 49, 90: 47}.get(verified, again)
    assert (answer.error_code, log.log_end_offset) == (told, int(not told))
    if version >= 8 and told in (48, again):
        why = f"Unable to verify the partition has been added to the transaction. Underlying error: {error_name(verified)}"
        assert answer.error_message == ("Partition was not added to the transaction" if told == 48 else why)


@pytest.mark.spec("TXN-77")
def test_requests_that_wait_for_a_coordinator_hold_no_handler(broker: World) -> None:
    tp = TopicPartition("t", 0)
    broker.know(tp, TopicPartition("__transaction_state", 0))
    told: list[Callable[[], None]] = []
    broker.manager.verified_appends.ask_by(lambda _question, _timeout_ms, done: told.append(lambda: done({tp: 0})))
    context = handler_context(replica_manager=broker.manager, metadata_cache=broker.cache)
    with broker_of({0: load_handlers()[0]}, context, num_io_threads="1") as client, ExitStack() as stack:
        port = client.socket.getpeername()[1]
        waiting = [Client(port) for _ in range(3)]
        for producer_id, one in enumerate(waiting):
            stack.callback(one.close)
            sent = request(batch(attributes=TRANSACTIONAL, producer=(producer_id, 0, 0)))
            one.send_request(API, 8, replace(sent, transactional_id=f"tx-{producer_id}"))
        eventually(lambda: len(told) == 3, "all three to be asked for")
        assert codes(client, 8, request(batch())) == [0], "the one handler is free"
        for go_on in told:
            go_on()
        for one in waiting:
            (answer,) = one.receive_response(API, 8).topics[0].partitions
            assert answer.error_code == 0


@pytest.mark.spec("BRK-158")
def test_a_failed_disk_is_told_in_words_the_client_knows(broker: World, client: Client) -> None:
    tp = TopicPartition("t", 0)
    broker.logs.take_offline(broker.partition(tp).log.directory.parent, OSError("gone"))
    broker.scheduler.run()
    sent = [bytearray(entry(magic=0)), *[bytearray(entry(magic=1))] * 2, *[batch()] * 7]
    told = [codes(client, version, request(records)) for version, records in enumerate(sent)]
    assert told == [*[[6]] * 4, *[[56]] * 6]


@pytest.mark.spec("BRK-87", "BRK-82")
def test_acks_0_is_not_answered_and_a_failure_ends_the_connection(broker: World, client: Client) -> None:
    client.send_request(API, 5, request(batch(3), acks=0))
    assert client.call(API, 5, request(batch())).topics[0].partitions[0].base_offset == 3
    client.send_request(API, 5, request(batch(), acks=0, topic="unknown"))
    assert client.socket.recv(1) == b""


@pytest.mark.spec("BRK-83", "TXN-5")
@pytest.mark.parametrize("topic", ["__consumer_offsets", "__transaction_state"])
def test_only_the_admin_client_writes_internal_topics(broker: World, client: Client, topic: str) -> None:
    broker.lead(TopicPartition(topic, 0))
    for client_id, code in [("test", 17), (None, 17), ("__admin_client_", 17), ("__admin_client", 0)]:
        client.socket.sendall(encode_request(API, 5, 1, client_id, request(batch(), topic=topic)))
        _, response = decode_response(API, 5, client.receive())
        assert response.topics[0].partitions[0].error_code == code


@pytest.mark.spec("BRK-83")
@pytest.mark.parametrize("version", range(10))
def test_a_partition_that_is_not_here_is_unknown_or_led_elsewhere(broker: World, client: Client, version: int) -> None:
    assert codes(client, version, request(batch(), topic="u")) == [3]
    broker.know(TopicPartition("u", 0))
    assert codes(client, version, request(batch(), topic="u")) == [6]


@pytest.mark.spec("BRK-82")
@pytest.mark.parametrize("version", range(10))
def test_other_acks_are_told_for_every_partition_whatever_else_is_wrong_with_it(
    broker: World, client: Client, version: int
) -> None:
    packed = encode_batch([Record(0, 1000, b"k", b"v")], codec=ZSTD)
    transactional = batch(attributes=TRANSACTIONAL, producer=(7, 0, 0))
    wrong = [request(records) for records in (batch(), packed, transactional, bytearray(b"?"), None)]
    parts = [replace(one.topics[0].partitions[0], partition=n) for n, one in enumerate(wrong)]
    twice = [ProduceRequestTopic(topic="t", partitions=[*parts, parts[1]]), *request(batch(), topic="u").topics]
    answer = client.call(API, version, replace(wrong[0], acks=3, topics=twice))
    assert [(p.error_code, p.base_offset) for t in answer.topics for p in t.partitions] == [(21, -1)] * 7
    assert broker.partition().log.log_end_offset == 0


@pytest.mark.spec("BRK-84", "BRK-86")
def test_of_two_batches_for_one_partition_none_is_taken(broker: World, client: Client) -> None:
    """Kafka appends the last one and acknowledges both."""
    once = request(batch())
    for topics in (once.topics * 2, once.topics * 3, [*once.topics, *request(None).topics]):
        answers = client.call(API, 8, replace(once, topics=topics)).topics
        assert {p.error_code for t in answers for p in t.partitions} == {ErrorCode.INVALID_REQUEST}
    assert broker.partition().log.log_end_offset == 0


@pytest.mark.spec("BRK-86")
@pytest.mark.parametrize("version", range(3, 10))
def test_the_brokers_time_and_the_logs_start_are_told(broker: World, client: Client, version: int) -> None:
    broker.logs.update_topic_config("t", {"message.timestamp.type": "LogAppendTime"})
    before_ms = int(time.time() * 1000)
    client.call(API, version, request(batch(4)))
    broker.partition().log.advance_log_start(2)
    answer = client.call(API, version, request(batch(2))).topics[0].partitions[0]
    assert (answer.error_code, answer.base_offset) == (0, 4)
    assert answer.log_append_time_ms >= before_ms
    assert answer.log_start_offset == (2 if version >= 5 else -1)


@pytest.mark.spec("BRK-87")
def test_with_acks_0_one_failed_partition_ends_the_connection_though_another_was_written(
    broker: World, client: Client
) -> None:
    topics = [*request(batch(3)).topics, *request(batch(), topic="unknown").topics]
    client.send_request(API, 5, replace(request(None, acks=0), topics=topics))
    assert client.socket.recv(1) == b""
    assert broker.partition().log.log_end_offset == 3


@pytest.mark.spec("BRK-88")
def test_with_acks_all_and_no_data_the_answer_comes_at_once(client: Client) -> None:
    empty = ProduceRequest(acks=-1, timeout_ms=3_600_000, topics=[])
    assert client.call(API, 8, empty).topics == []
    assert codes(client, 8, replace(request(None, acks=-1), timeout_ms=3_600_000)) == [2]


@pytest.mark.spec("BRK-123")
@pytest.mark.parametrize("acks", [1, -1])
def test_before_the_controller_spoke_a_produce_does_not_wait(broker: World, client: Client, acks: int) -> None:
    message = replace(request(batch(), acks=acks, topic="untold"), timeout_ms=3_600_000)
    assert codes(client, 8, message) == [3]
    broker.know(TopicPartition("untold", 0))
    assert codes(client, 8, message) == [6], "told of, not led yet"
