"""What is written to __consumer_offsets: batches, acks and versions, and the codes an append's outcome becomes."""

import logging
import time
from collections.abc import Callable, Mapping
from types import SimpleNamespace
from typing import Any

import pytest

from kafkatool.broker.groups.records import (
    GroupKey,
    GroupValue,
    MemberValue,
    OffsetKey,
    OffsetValue,
    decode_group,
    decode_key,
    decode_offset,
)
from kafkatool.broker.groups.writer import GroupsWriter
from kafkatool.broker.settings.config import BrokerConfig
from kafkatool.core.errors import ConfigError
from kafkatool.core.model.topic_names import OFFSETS_TOPIC
from kafkatool.core.model.values import TopicPartition
from kafkatool.core.protocol.messages.error_codes import ErrorCode
from kafkatool.core.protocol.records.batches import Record, decode_records, read_header

A, B = TopicPartition("t", 0), TopicPartition("t", 1)
MEMBER = MemberValue("m", "one", "c", "/h", 60_000, 20_000, b"sub", b"mine")
GROUP = GroupValue("consumer", 3, "range", "m", 77, (MEMBER,))


class Appends:
    """Stands for the replica manager: notes each append and answers it with ``outcome``."""

    def __init__(self, outcome: ErrorCode = ErrorCode.NONE) -> None:
        self.appends = self
        self.partitions: Mapping[TopicPartition, Any] = {}  # it is asked for none whose topic has a limit
        self.outcome = outcome
        self.written: list[tuple[bytes, dict[str, Any]]] = []

    def append(
        self,
        entries: Mapping[TopicPartition, bytearray],
        *,
        on_done: Callable[[Mapping[TopicPartition, Any]], None],
        **options: Any,
    ) -> None:
        ((tp, batch),) = entries.items()
        assert tp == TopicPartition(OFFSETS_TOPIC, 4)
        self.written.append((bytes(batch), options))
        on_done({tp: SimpleNamespace(error=self.outcome, base_offset=10)})

    @property
    def records(self) -> list[Record]:
        (batch, _), *more = self.written
        assert not more, "one batch"
        return decode_records(memoryview(batch))


def writer(appends: Appends, **properties: str) -> GroupsWriter:
    names = {name.replace("_", "."): value for name, value in properties.items()}
    config = BrokerConfig.from_properties({"zookeeper.connect": "x:1", **names})
    replica_manager: Any = appends
    return GroupsWriter(config, replica_manager)


def commit(made: GroupsWriter, *partitions: TopicPartition, epoch: int | None = 2) -> list[ErrorCode]:
    told: list[ErrorCode] = []
    values = {tp: OffsetValue(tp.partition, epoch, "", 5, None) for tp in partitions}
    made.store_offsets(4, "g", values, lambda code, _base: told.append(code))
    return told


@pytest.mark.spec("GRP-50")
def test_a_requests_commits_form_one_batch_of_now_without_a_producer() -> None:
    appends = Appends()
    before = int(time.time() * 1000)
    assert commit(writer(appends), A, B) == [ErrorCode.NONE]
    after = int(time.time() * 1000)
    assert [decode_key(r.key or b"") for r in appends.records] == [OffsetKey("g", *A), OffsetKey("g", *B)]
    assert [decode_offset(r.value or b"").offset for r in appends.records] == [0, 1]
    ((batch, _),) = appends.written
    header = read_header(batch)
    assert header is not None and before <= header.max_timestamp <= after
    assert (header.producer_id, header.attributes) == (-1, 0), "CreateTime, no transaction, not compressed"


@pytest.mark.spec("GRP-50")
@pytest.mark.parametrize("codec", [0, 1, 2, 3, 4])
def test_records_are_compressed_as_configured(codec: int) -> None:
    appends = Appends()
    commit(writer(appends, offsets_topic_compression_codec=str(codec)), A)
    header = read_header(appends.written[0][0])
    assert header is not None and header.attributes & 7 == codec
    assert decode_offset(appends.records[0].value or b"").offset == 0


@pytest.mark.spec("GRP-50", "GRP-60")
@pytest.mark.parametrize("acks", [-1, 0, 1])
def test_commits_groups_and_deletions_are_appended_with_the_configured_acks_and_timeout(acks: int) -> None:
    appends = Appends()
    made = writer(appends, offsets_commit_required_acks=str(acks), offsets_commit_timeout_ms="1234")
    commit(made, A)
    made.store_group(4, "g", GROUP, lambda _: None)
    made.delete_keys(4, [GroupKey("g")], lambda _, __: None)
    assert [options for _, options in appends.written] == [{"acks": acks, "timeout_ms": 1234, "internal": True}] * 3


@pytest.mark.spec("GRP-50")
def test_without_a_setting_all_replicas_are_waited_for_at_most_five_seconds() -> None:
    appends = Appends()
    commit(writer(appends), A)
    ((_, options),) = appends.written
    assert options == {"acks": -1, "timeout_ms": 5000, "internal": True}


@pytest.mark.spec("GRP-50")
def test_other_acks_refuse_the_start() -> None:
    with pytest.raises(ConfigError):
        writer(Appends(), offsets_commit_required_acks="2")


@pytest.mark.spec("GRP-50")
@pytest.mark.parametrize(
    ("protocol", "offset_version", "group_version"),
    [
        *((older, 1, 1) for older in ("0.10.0", "0.10.1", "0.10.2", "0.11.0", "1.0", "1.1", "2.0")),
        ("2.1", 3, 2),
        ("2.2", 3, 2),
        ("2.3", 3, 3),
    ],
)
def test_the_protocol_version_decides_what_is_written(protocol: str, offset_version: int, group_version: int) -> None:
    appends = Appends()
    made = writer(appends, inter_broker_protocol_version=protocol)
    commit(made, A)
    offset = appends.records[0].value or b""
    assert int.from_bytes(offset[:2]) == offset_version
    assert decode_offset(offset).leader_epoch == (2 if offset_version == 3 else None)
    appends.written.clear()
    made.store_group(4, "g", GROUP, lambda _: None)
    (record,) = appends.records
    assert decode_key(record.key or b"") == GroupKey("g")
    assert int.from_bytes((record.value or b"")[:2]) == group_version
    decoded = decode_group(record.value or b"")
    assert decoded.members[0].instance_id == ("one" if group_version == 3 else None)
    assert decoded.state_timestamp_ms == (77 if group_version >= 2 else None)


NOT_AVAILABLE, NOT_COORDINATOR, TOO_LARGE = (
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_COORDINATOR,
    ErrorCode.INVALID_COMMIT_OFFSET_SIZE,
)


@pytest.mark.spec("GRP-51")
@pytest.mark.parametrize(
    ("appended", "of_commit", "of_sync"),
    [
        (ErrorCode.NONE, ErrorCode.NONE, ErrorCode.NONE),
        (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, NOT_AVAILABLE, NOT_AVAILABLE),
        (ErrorCode.NOT_ENOUGH_REPLICAS, NOT_AVAILABLE, NOT_AVAILABLE),
        (ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND, NOT_AVAILABLE, NOT_AVAILABLE),
        (ErrorCode.NOT_LEADER_FOR_PARTITION, NOT_COORDINATOR, NOT_COORDINATOR),
        (ErrorCode.KAFKA_STORAGE_ERROR, NOT_COORDINATOR, NOT_COORDINATOR),
        (ErrorCode.REQUEST_TIMED_OUT, ErrorCode.REQUEST_TIMED_OUT, ErrorCode.REBALANCE_IN_PROGRESS),
        (ErrorCode.MESSAGE_TOO_LARGE, TOO_LARGE, ErrorCode.UNKNOWN_SERVER_ERROR),
        (ErrorCode.RECORD_LIST_TOO_LARGE, TOO_LARGE, ErrorCode.UNKNOWN_SERVER_ERROR),
        (ErrorCode.CORRUPT_MESSAGE, ErrorCode.CORRUPT_MESSAGE, ErrorCode.CORRUPT_MESSAGE),
    ],
)
def test_the_code_each_outcome_of_an_append_becomes(
    appended: ErrorCode, of_commit: ErrorCode, of_sync: ErrorCode
) -> None:
    made = writer(Appends(appended))
    told: list[ErrorCode] = []
    made.store_group(4, "g", GROUP, told.append)
    made.delete_keys(4, [GroupKey("g")], lambda code, _: told.append(code))
    assert (commit(made, A), told) == ([of_commit], [of_sync, of_commit])


@pytest.mark.spec("GRP-55")
def test_tombstones_of_expiry_wait_for_nobody_and_tell_of_failures(caplog: pytest.LogCaptureFixture) -> None:
    appends = Appends(ErrorCode.NOT_LEADER_FOR_PARTITION)
    with caplog.at_level(logging.WARNING):
        writer(appends).store_tombstones(4, [OffsetKey("g", *A), GroupKey("g")])
    assert [(decode_key(r.key or b""), r.value) for r in appends.records] == [
        (OffsetKey("g", *A), None),
        (GroupKey("g"), None),
    ]
    assert appends.written[0][1]["acks"] == 0
    (line,) = [r.getMessage() for r in caplog.records]
    assert "__consumer_offsets-4" in line and "NOT_LEADER_FOR_PARTITION" in line
