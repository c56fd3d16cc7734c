"""In which versions clients speak of transactions to a broker of ours (section 15)."""

from collections import defaultdict
from pathlib import Path
from typing import Any, Final

import pytest

from kafkatool.broker.handlers.dispatch import Dispatcher
from kafkatool.broker.network.request_channel import Request
from kafkatool.broker.server import Broker
from kafkatool.core.protocol.messages import metadata
from kafkatool.core.protocol.messages.metadata import MetadataRequest
from tests.broker.network.raw_client import wait_until
from tests.broker.test_server import client_of, config, create
from tests.compat.client_process import ClientProcess
from tests.compat.client_programs import PREPARE, MissingError, Program
from tests.waiting import eventually

pytestmark = [pytest.mark.slow, pytest.mark.slowest, pytest.mark.timeout(900)]

PRODUCE, OFFSET_FETCH, INIT, ADD, ADD_OFFSETS, END, COMMIT_OFFSETS = 0, 9, 22, 24, 25, 26, 28
_JAVA: Final = {INIT: 4, ADD: 3, ADD_OFFSETS: 3, END: 3, COMMIT_OFFSETS: 3, OFFSET_FETCH: 7, PRODUCE: 9}
SENT: Final = {
    "confluent-kafka": {INIT: 4, ADD: 0, ADD_OFFSETS: 0, END: 1, COMMIT_OFFSETS: 3, OFFSET_FETCH: 7, PRODUCE: 9},
    "aiokafka": {INIT: 0, ADD: 0, ADD_OFFSETS: 0, END: 0, COMMIT_OFFSETS: 0, OFFSET_FETCH: 3, PRODUCE: 7},
    "java-2.8": _JAVA,
    "java-3.9": _JAVA,
    "java-4.1": _JAVA,
    "franz-go": {INIT: 4, ADD: 3, ADD_OFFSETS: 3, END: 3, COMMIT_OFFSETS: 3, OFFSET_FETCH: 7, PRODUCE: 9},
    "kafkajs": {INIT: 1, ADD: 1, ADD_OFFSETS: 1, END: 1, COMMIT_OFFSETS: 1, OFFSET_FETCH: 4, PRODUCE: 7},
    "kafka-python": {INIT: 4, ADD: 3, ADD_OFFSETS: 3, END: 3, COMMIT_OFFSETS: 3, OFFSET_FETCH: 7, PRODUCE: 9},
}
"""Client -> request -> the one version it sends of what is announced."""


def program_of(client: str) -> Program:
    try:
        return PREPARE[client]()
    except MissingError as e:
        pytest.skip(str(e))


@pytest.fixture
def came(monkeypatch: pytest.MonkeyPatch) -> dict[int, set[int]]:
    """Return what comes to the brokers of this process: each request's versions."""
    versions: defaultdict[int, set[int]] = defaultdict(set)
    dispatch = Dispatcher.__call__

    def noting(self: Dispatcher, request: Request) -> None:
        frame = request[1]
        versions[int.from_bytes(frame[:2])].add(int.from_bytes(frame[2:4]))
        dispatch(self, request)

    monkeypatch.setattr(Dispatcher, "__call__", noting)
    return versions


@pytest.mark.spec("TXN-29", "TXN-35", "TXN-101", "TXN-102")
@pytest.mark.parametrize("client", SENT)
def test_each_client_sends_what_it_knows_of_what_is_announced(
    zk_connect: str, tmp_path: Path, came: dict[int, set[int]], client: str
) -> None:
    program, source, sink = program_of(client), "in", "out"
    alone = {"transaction_state_log_replication_factor": "1", "transaction_state_log_min_isr": "1"}
    settings: Any = {**alone, "offsets_topic_replication_factor": "1", "group_initial_rebalance_delay_ms": "0"}
    with Broker(config(zk_connect, tmp_path / "data", **settings)) as broker, client_of(broker) as asking:
        wait_until(lambda: asking.send(metadata.API, 1, MetadataRequest(topics=[])).controller_id == 1)
        for topic in (source, sink):
            assert create(asking, topic, 3, 1) == 0
        address = f"127.0.0.1:{broker.port}"
        with ClientProcess(program, tmp_path / "transactions.log", "transactions", address) as producing:
            words = [
                ("init", "id", 60_000),
                ("begin",),
                *[("send", source, n % 3, n, client) for n in range(9)],
                ("commit",),
            ]
            assert [producing.step("p", *step) for step in words] == [""] * len(words)
            producing.end()
        with ClientProcess(program, tmp_path / "copy.log", "copy", address, source, sink, client) as copying:

            def are_there() -> bool:
                copying.check_alive()
                return SENT[client].keys() <= came.keys()

            eventually(are_there, "it to copy")
            copying.end()
        assert {key: came[key] for key in SENT[client]} == {key: {version} for key, version in SENT[client].items()}
