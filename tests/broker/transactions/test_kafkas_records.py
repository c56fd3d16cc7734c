"""Kafka's own classes read the records of ``__transaction_state`` as written here, write them alike, and the reverse."""

import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from kafkatool.broker.transactions.records import decode_key, decode_value, encode_key, encode_value
from kafkatool.broker.transactions.states import STORABLE, TransactionState
from kafkatool.broker.transactions.transaction import Transaction
from kafkatool.core.java import find_java
from kafkatool.core.model.values import TopicPartition
from tests.compat import real_kafka

pytestmark = pytest.mark.slow

NEWEST = {"2.8.2": 0, "3.9.1": 1, "4.1.0": 1}
"""Version of Kafka -> the newest version of a value that it knows."""


class Told(NamedTuple):
    """What Kafka's classes make of a record; ``newest``: the value as they write it in the newest version they know."""

    transactional_id: str
    bytes_left: int
    key: bytes
    value: bytes
    newest: bytes
    state: str
    transaction: Transaction
    has_array: bool


class Kafka:
    """Kafka's classes of one version, in a Java process: one line in, one line out."""

    def __init__(self, version: str, process: "subprocess.Popen[str]") -> None:
        self.newest = NEWEST[version]
        self._process = process

    def read(self, key: bytes, value: bytes) -> Told:
        assert self._process.stdin is not None and self._process.stdout is not None
        self._process.stdin.write(f"{key.hex()} {value.hex()}\n")
        self._process.stdin.flush()
        answer = self._process.stdout.readline().rstrip("\n")
        assert answer and not answer.startswith("error"), answer
        id_, left, key_again, value_again, newest, state, fields = answer.split(" ")
        *numbers, array = fields.split(",")[:7]
        producer_id, epoch, timeout_ms, status, update_ms, start_ms = map(int, numbers)
        places = [place.split(":") for place in fields.split(",")[7:]]
        transaction = Transaction(
            producer_id=producer_id,
            epoch=epoch,
            timeout_ms=timeout_ms,
            update_ms=update_ms,
            start_ms=start_ms,
            state=TransactionState(status),
            partitions=frozenset(TopicPartition(bytes.fromhex(t).decode(), int(p)) for t, p in places),
        )
        return Told(
            bytes.fromhex(id_).decode(),
            int(left),
            bytes.fromhex(key_again),
            bytes.fromhex(value_again),
            bytes.fromhex(newest),
            state,
            transaction,
            array == "array",
        )


@pytest.fixture(scope="module", params=real_kafka.versions(*NEWEST))
def kafka(request: pytest.FixtureRequest) -> Iterator[Kafka]:
    real_kafka.require(request.param)
    libraries = real_kafka.libraries(request.param)
    source = Path(__file__).with_name("KafkasRecords.java")
    command = [str(find_java().executable), "-XX:TieredStopAtLevel=1", "-cp", f"{libraries}/*", str(source)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        try:
            yield Kafka(request.param, process)
        finally:
            process.kill()


def _integers(bits: int, least: int = 0) -> st.SearchStrategy[int]:
    return st.integers(least, (1 << bits - 1) - 1)


_NAMES = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=5)
_PLACES = st.frozensets(st.builds(TopicPartition, _NAMES, _integers(32)), max_size=5)


@st.composite
def _transactions(draw: st.DrawFn, state: TransactionState) -> Transaction:
    return Transaction(
        producer_id=draw(_integers(64)),
        epoch=draw(_integers(16, -1)),
        timeout_ms=draw(_integers(32)),
        update_ms=draw(_integers(64)),
        start_ms=draw(_integers(64, -1)),
        state=state,
        partitions=frozenset() if state is TransactionState.EMPTY else draw(_PLACES),
    )


@pytest.mark.spec("TXN-103", "TXN-98", "TXN-19", "TXN-43", "TXN-9")
@pytest.mark.parametrize("state", sorted(STORABLE), ids=lambda state: state.label)
@settings(max_examples=20, deadline=None, suppress_health_check=list(HealthCheck), phases=[Phase.generate])
@given(data=st.data())
def test_kafka_reads_the_same_transaction_and_writes_the_same_bytes(
    kafka: Kafka, state: TransactionState, data: st.DataObject
) -> None:
    transactional_id, transaction = data.draw(_NAMES), data.draw(_transactions(state))
    key, value = encode_key(transactional_id), encode_value(transaction)
    told = kafka.read(key, value)
    assert told[:4] == (transactional_id, 0, key, value)
    assert told.transaction == transaction
    assert told.state == state.label.lower(), "of its coordinator"
    assert told.has_array == (state is not TransactionState.EMPTY)
    assert told.newest[:2] == kafka.newest.to_bytes(2, "big")
    assert decode_key(told.key) == transactional_id
    assert decode_value(told.newest) == transaction
