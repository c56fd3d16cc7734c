"""Keys and values of ``__transaction_state``, byte by byte."""

import struct
from dataclasses import replace

import pytest

from kafkatool.broker.transactions.records import decode_key, decode_value, encode_key, encode_value
from kafkatool.broker.transactions.states import TransactionState
from kafkatool.broker.transactions.transaction import IllegalMoveError, Transaction
from kafkatool.core.errors import CorruptRecordsError
from kafkatool.core.model.values import TopicPartition

ONGOING = Transaction(
    producer_id=1000,
    epoch=2,
    timeout_ms=60_000,
    state=TransactionState.ONGOING,
    partitions=frozenset({TopicPartition("in", 0), TopicPartition("in", 3)}),
    update_ms=1_700_000_000_001,
    start_ms=1_700_000_000_000,
)
ONGOING_BYTES = bytes.fromhex(
    "0000 00000000000003e8 0002 0000ea60 01 00000001 0002 696e 00000002 00000000 00000003"
    "0000018bcfe56801 0000018bcfe56800"
)
EMPTY = Transaction(producer_id=1000, epoch=3, timeout_ms=60_000, update_ms=1_700_000_000_001)
EMPTY_BYTES = bytes.fromhex("0000 00000000000003e8 0003 0000ea60 00 ffffffff 0000018bcfe56801 ffffffffffffffff")


@pytest.mark.spec("TXN-19", "TXN-98", "TXN-43")
def test_the_examples_of_the_requirements() -> None:
    assert encode_key("t1") == bytes.fromhex("0000 0002 7431")
    assert decode_key(encode_key("gültig")) == "gültig"
    for value, data in ((ONGOING, ONGOING_BYTES), (EMPTY, EMPTY_BYTES)):
        assert encode_value(value) == data
        assert decode_value(data) == value


@pytest.mark.spec("TXN-43")
def test_a_complete_transaction_has_an_array_without_elements() -> None:
    complete = Transaction(
        producer_id=1, epoch=0, timeout_ms=1, update_ms=2, start_ms=1, state=TransactionState.COMPLETE_COMMIT
    )
    data = encode_value(complete)
    assert data[17:21] == bytes(4)
    assert decode_value(data) == complete


@pytest.mark.spec("TXN-19", "TXN-37")
def test_partitions_are_written_by_topic_and_number_in_order_however_many_there_are() -> None:
    many = frozenset(TopicPartition(topic, number) for topic in ("b", "a", "c") for number in range(1000, 0, -1))
    value = replace(ONGOING, partitions=many)
    data = encode_value(value)
    assert decode_value(data) == value
    numbers = struct.pack(">i1000i", 1000, *range(1, 1001))
    assert data[17:-16] == struct.pack(">i", 3) + b"".join(b"\0\1" + topic + numbers for topic in (b"a", b"b", b"c"))


@pytest.mark.spec("TXN-9")
@pytest.mark.parametrize(
    "tags",
    [
        "02 00 08 00000000000003e7 02 02 0002",
        "03 00 08 00000000000003e7 01 08 00000000000003e9 02 02 0002",
        "02 03 01 ff 9901 00",
        "00",
    ],
    ids=["0 and 2", "all three", "unknown ones", "none"],
)
def test_version_1_is_read_and_its_tagged_fields_skipped(tags: str) -> None:
    data = bytes.fromhex(
        "0001 00000000000003e8 0002 0000ea60 01 02 03 696e 03 00000000 00000003 00"
        f"0000018bcfe56801 0000018bcfe56800 {tags}"
    )
    assert decode_value(data) == ONGOING
    empty = bytes.fromhex("0001 00000000000003e8 0003 0000ea60 00 00 0000018bcfe56801 ffffffffffffffff 00")
    assert decode_value(empty) == EMPTY


@pytest.mark.spec("TXN-9", "TXN-11")
@pytest.mark.parametrize(
    "data",
    [ONGOING_BYTES[:-1], b"\x00\x02" + ONGOING_BYTES[2:], ONGOING_BYTES[:16] + b"\x06" + ONGOING_BYTES[17:], b""],
    ids=["cut", "newer", "state", "empty"],
)
def test_what_cannot_be_read_is_said_to_be_damaged(data: bytes) -> None:
    with pytest.raises(CorruptRecordsError):
        decode_value(data)


@pytest.mark.spec("TXN-9")
def test_keys_of_newer_versions_are_passed_over() -> None:
    assert decode_key(b"\x00\x01anything") is None


@pytest.mark.spec("TXN-17")
@pytest.mark.parametrize("state", [TransactionState.DEAD, TransactionState.PREPARE_EPOCH_FENCE])
def test_states_that_are_never_stored_are_not_encoded(state: TransactionState) -> None:
    with pytest.raises(IllegalMoveError):
        encode_value(Transaction(producer_id=1, epoch=0, timeout_ms=1, update_ms=2, state=state))
