"""In which versions clients speak of transactions to a broker of ours, and in which order they ask (section 15)."""

from collections.abc import Iterator
from itertools import groupby
from pathlib import Path
from typing import Any, Final, NamedTuple

import pytest

from kafkatool.broker.handlers.dispatch import Dispatcher
from kafkatool.broker.network.request_channel import Request
from kafkatool.broker.server import Broker
from kafkatool.core.client.connection import Connection
from kafkatool.core.protocol.messages import describe_transactions, find_coordinator, metadata
from kafkatool.core.protocol.messages.describe_transactions import DescribeTransactionsRequest
from kafkatool.core.protocol.messages.error_codes import ErrorCode
from kafkatool.core.protocol.messages.find_coordinator import FindCoordinatorRequest
from kafkatool.core.protocol.messages.metadata import MetadataRequest
from tests.broker.network.raw_client import wait_until
from tests.broker.test_server import client_of, config, create
from tests.compat.client_process import ClientProcess
from tests.compat.client_programs import PREPARE, MissingError, Program
from tests.compat.clients.common import ONLY_NAMES_A_GROUP
from tests.waiting import eventually

pytestmark = [pytest.mark.slow, pytest.mark.slowest, pytest.mark.timeout(900)]

LETTERS: Final = {"FC": 10, "I": 22, "P": 24, "O": 25, "E": 26, "T": 28, "F": 9, "Produce": 0}
"""As the requirements shorten them -> key."""
_JAVA: Final = {"FC": 3, "I": 4, "P": 3, "O": 3, "E": 3, "T": 3, "F": 7, "Produce": 9}
SENT: Final = {
    "java-2.8": _JAVA,
    "java-3.9": {**_JAVA, "FC": 4},
    "java-4.1": {**_JAVA, "FC": 4},
    "confluent-kafka": {"FC": 2, "I": 4, "P": 0, "O": 0, "E": 1, "T": 3, "F": 7, "Produce": 9},
    "aiokafka": {"FC": 1, "I": 0, "P": 0, "O": 0, "E": 0, "T": 0, "F": 3, "Produce": 7},
    "kafka-python": {"FC": 4, "I": 4, "P": 3, "O": 3, "E": 3, "T": 3, "F": 7, "Produce": 9},
    "franz-go": {"FC": 4, "I": 4, "P": 3, "O": 3, "E": 3, "T": 3, "F": 7, "Produce": 9},
    "kafkajs": {"FC": 2, "I": 1, "P": 1, "O": 1, "E": 1, "T": 1, "F": 4, "Produce": 7},
}
"""Client -> request -> the one version it sends of what is announced."""
GROUP: Final = "a-group"
ID: Final = "id"
ENDS: Final = ("commit", "abort")
NOT_YET: Final = (
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_COORDINATOR,
)
TRANSACTIONS: Final = 5
ABORTED, WITH_OFFSETS = 1, 2
"""Which of them, counted from 0."""


def wanted(client: str) -> list[str]:
    """Return the requests of the transactions as they were recorded of Kafka: each adds two partitions, one by one."""
    if client == "kafkajs":  # it looks its coordinator up each time
        start, adds, offsets, end = "FC I", 2 * "FC P Produce ", "FC O FC T", "FC E"
    else:
        looked_up = "" if client == "confluent-kafka" else "FC"
        start, adds, offsets, end = f"{looked_up} I", 2 * "P Produce ", f"O {looked_up} T", "E"
    found = start.split()
    for number in range(TRANSACTIONS):
        found += f"{adds} {offsets if has_offsets(client, number) else ''} {end}".split()
    return found


def has_offsets(client: str, number: int) -> bool:
    return number == WITH_OFFSETS and client != "franz-go"  # which has no such call but in a session of a group


def program_of(client: str) -> Program:
    try:
        return PREPARE[client]()
    except MissingError as e:
        pytest.skip(str(e))


class Asked(NamedTuple):
    """A request that came."""

    letter: str
    version: int
    client_id: str


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[Asked]:
    """Return what comes to the brokers of this process, of what belongs to transactions, in its order."""
    found: list[Asked] = []
    letters = {key: letter for letter, key in LETTERS.items()}
    dispatch = Dispatcher.__call__

    def noting(self: Dispatcher, request: Request) -> None:
        frame = bytes(request[1])
        if letter := letters.get(int.from_bytes(frame[:2])):
            id_ = frame[10 : 10 + max(0, int.from_bytes(frame[8:10], signed=True))].decode()
            found.append(Asked(letter, int.from_bytes(frame[2:4]), id_))
        dispatch(self, request)

    monkeypatch.setattr(Dispatcher, "__call__", noting)
    return found


def script(client: str, topic: str) -> Iterator[tuple[object, ...]]:
    """Yield the steps of five transactions over two partitions: the second aborted, offsets in the third."""
    yield ("init", ID, 60_000)
    for number in range(TRANSACTIONS):
        yield ("begin",)
        yield from (("send", topic, partition, number, client) for partition in (0, 1))
        if has_offsets(client, number):
            yield ("offsets", GROUP, topic, 0, 1)
        yield ("abort" if number == ABORTED else "commit",)


def state_of(asking: Connection) -> str | None:
    """Return the state of the transactional id, "" where there is none; None: its coordinator does not know yet."""
    request = DescribeTransactionsRequest(transactional_ids=[ID])
    (told,) = asking.send(describe_transactions.API, 0, request).transactions
    return None if told.error_code in NOT_YET else told.state


def in_turn(asked: list[Asked]) -> list[str]:
    """Return what was asked, without what was asked again at once because the answer was that it is too early.

    librdkafka looks its coordinators up at any time, too: of that the versions alone are compared.
    """
    letters = [a.letter for a in asked if a.client_id != ONLY_NAMES_A_GROUP]
    is_librdkafka = any(a.client_id == "rdkafka" for a in asked)
    return [letter for letter, _ in groupby(x for x in letters if not (is_librdkafka and x == "FC"))]


@pytest.mark.spec("TXN-29", "TXN-35", "TXN-101", "TXN-102")
@pytest.mark.parametrize("client", SENT)
def test_each_client_sends_what_it_knows_of_what_is_announced_in_the_order_recorded_of_kafka(
    zk_connect: str, tmp_path: Path, asked: list[Asked], client: str
) -> None:
    program, source, sink = program_of(client), "in", "out"
    alone = {"transaction_state_log_replication_factor": "1", "transaction_state_log_min_isr": "1"}
    settings: Any = {**alone, "offsets_topic_replication_factor": "1", "group_initial_rebalance_delay_ms": "0"}
    with Broker(config(zk_connect, tmp_path / "data", **settings)) as broker, client_of(broker) as asking:
        wait_until(lambda: asking.send(metadata.API, 1, MetadataRequest(topics=[])).controller_id == 1)
        for topic in (source, sink):
            assert create(asking, topic, 3, 1) == 0
        # Makes the topics of both, and waits for what kafkajs asks again.
        for wanted_one in (FindCoordinatorRequest(key=GROUP), FindCoordinatorRequest(key=ID, key_type=1)):
            wait_until(lambda one=wanted_one: asking.send(find_coordinator.API, 2, one).error_code == 0)  # type: ignore[misc]
        wait_until(lambda: state_of(asking) is not None)
        asked.clear()
        address = f"127.0.0.1:{broker.port}"
        with ClientProcess(program, tmp_path / "transactions.log", "transactions", address) as producing:
            for words in script(client, source):
                assert not (why := producing.step("p", *words)), (words, why)
                if words[0] in ENDS:
                    eventually(lambda: (state_of(asking) or "").startswith("Complete"), "all its markers")
            producing.end()
        assert in_turn(asked) == wanted(client)
        with ClientProcess(program, tmp_path / "copy.log", "copy", address, source, sink, client) as copying:

            def are_there() -> bool:
                copying.check_alive()
                return SENT[client].keys() <= {a.letter for a in asked}

            eventually(are_there, "it to copy")
            copying.end()
    sent = {letter: {a.version for a in asked if a.letter == letter} for letter in LETTERS}
    assert sent == {letter: {version} for letter, version in SENT[client].items()}
