"""Producers held by SIGSTOP until another has their id, or their time is over, and let go (TXN-107)."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from kafkatool.broker.embedded.cluster import EmbeddedCluster
from tests.compat.client_process import ClientProcess
from tests.compat.client_programs import PREPARE, MissingError
from tests.integration.isolation import values_of
from tests.steady import LASTING
from tests.waiting import eventually

CLIENTS = ("confluent-kafka", "java-2.8", "java-3.9", "aiokafka", "kafka-python", "kafkajs", "franz-go")
pytestmark = [pytest.mark.slow, pytest.mark.slowest, pytest.mark.timeout(900)]


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EmbeddedCluster]:
    options = {**LASTING, "transaction.abort.timed.out.transaction.cleanup.interval.ms": "200"}
    with EmbeddedCluster(1, directory=tmp_path_factory.mktemp("stopped") / "cluster", options=options) as running:
        yield running


@pytest.mark.spec("TXN-107", "TXN-26", "TXN-44", "TXN-101")
@pytest.mark.parametrize("how", ["replaced", "past its time"])
@pytest.mark.parametrize("client", CLIENTS)
def test_a_stopped_producer_that_goes_on_is_told_and_changes_nothing(
    cluster: EmbeddedCluster, tmp_path: Path, client: str, how: str
) -> None:
    try:
        program = PREPARE[client]()
    except MissingError as e:
        pytest.skip(str(e))
    topic = id_ = f"{client}-{how.replace(' ', '-')}"
    cluster.create_topic(topic, partitions=1)

    def producer(name: str) -> ClientProcess:
        return ClientProcess(program, tmp_path / f"{name}.log", "transactions", cluster.bootstrap)

    def done(by: ClientProcess, *words: object) -> None:
        assert by.step("p", *words) == "", words

    def is_given_up() -> bool:
        line = f"transactional id {id_}: its transaction took too long"
        return line in cluster.files.output(1).read_text()

    with producer("zombie") as zombie, producer("next") as successor:
        done(zombie, "init", id_, 900_000 if how == "replaced" else 15_000)  # it has to send in time
        done(zombie, "begin")
        done(zombie, "send", topic, 0, 0, "zombie")
        with zombie.stopped():
            if how == "past its time":
                eventually(is_given_up, "its time to be over")
            done(successor, "init", id_, 60_000)
            done(successor, "begin")
            done(successor, "send", topic, 0, 1, "next")
        zombie.step("p", "send", topic, 0, 2, "zombie")
        assert zombie.step("p", "commit"), "it could commit"
        done(successor, "send", topic, 0, 3, "next")
        done(successor, "commit")
        successor.end()

    def read() -> list[str]:
        return [value.partition("-x")[0] for value in values_of(cluster, topic, "read_committed")]

    eventually(lambda: read() == ["next-1", "next-3"], "the next one's records, and no other")
