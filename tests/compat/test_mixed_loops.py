"""Consume-transform-produce over brokers of ours and real ones, which hand all they have to each other (TXN-109).

Loops of six client libraries copy what comes into their topics, in transactions that have the offsets of their group;
meanwhile leaders and the coordinators of groups and of transactions go from our broker to Kafka 2.8.2 and back, and a broker
of each kind goes on with the other kind's directory. Each record that came must have gone out once, in its order.
"""

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Final

import pytest

from kafkatool.core.model.topic_names import TRANSACTION_TOPIC
from tests.compat import real_kafka
from tests.compat.mixed import OFFSETS, OURS, Mixed, mixed_cluster
from tests.integration.load import await_in_sync
from tests.loops.loop import BY_GROUP, BY_PARTITION, Loop, fed, loops_of, topics_of
from tests.waiting import eventually

pytestmark = [pytest.mark.slow, pytest.mark.slowest, pytest.mark.timeout(3600)]

VERSION, PROTOCOL = "2.8.2", "2.3"
CLIENTS: Final = (*(client for client in BY_GROUP if client != "streams"), *BY_PARTITION)
"""Kafka Streams goes through such hand-overs at random (tests/loops)."""
EACH_WAY: Final = {0: (1, 2, OURS), 1: (2, OURS, 1), 2: (OURS, 1, 2)}
INTERNAL: Final = (OFFSETS, TRANSACTION_TOPIC)
THEIRS: Final = 2
WAIT_S: Final = 300
SWEEP_MS: Final = "1000"


def loops(mixed: Mixed) -> AbstractContextManager[list[Loop]]:
    """Give the loops of the clients that can run here; those of Python always can."""

    def create(topics: Sequence[str]) -> None:
        for topic in topics:
            mixed.create(topic, EACH_WAY)

    return loops_of(CLIENTS, mixed.bootstrap, mixed.zk, mixed.directory, create)


def lead_all(mixed: Mixed, topics: list[str]) -> None:
    """Give every partition back to its preferred replica: the coordinators to broker 3, a third of the others to each."""
    await_in_sync(mixed.zk, [*INTERNAL, *topics], WAIT_S)
    mixed.kt("elect")

    def leads() -> bool:
        return all(mixed.leaders(t) == [OURS] for t in INTERNAL) and all(
            mixed.leaders(t) == [1, 2, OURS] for t in topics
        )

    eventually(leads, "every preferred replica to lead", WAIT_S)


@pytest.mark.spec("TXN-109", "TXN-98", "TXN-99", "TXN-88", "TXN-79", "TXN-64", "TXN-66", "GRP-63")
def test_each_record_is_copied_once_whoever_leads_and_whoever_has_whose_directory(tmp_path: Path) -> None:
    real_kafka.require(VERSION)
    options = {"transaction.abort.timed.out.transaction.cleanup.interval.ms": SWEEP_MS}
    with mixed_cluster(VERSION, PROTOCOL, tmp_path, options) as mixed:
        mixed.create_transaction_topic(THEIRS, 1)
        with loops(mixed) as copying:
            assert len(copying) >= 3
            topics = topics_of(copying)

            def go_on(kill: int | None = None) -> None:
                """All copy on; the one of that number has died meanwhile, and one that is half of them further."""
                for number in () if kill is None else (kill, kill + len(copying) // 2):
                    copying[number % len(copying)].kill()
                for loop in copying:
                    loop.goes_on()

            with fed(mixed.bootstrap, copying):
                go_on()
                _by_controlled_stops(mixed, topics, go_on)
                _ours_on_theirs(mixed, topics, go_on)
                _theirs_on_ours(mixed, topics, go_on)


def _by_controlled_stops(mixed: Mixed, topics: list[str], go_on: Callable[..., None]) -> None:
    """Leaders and coordinators go to the others and come back, once from ours and once from theirs."""
    for number, broker in enumerate((OURS, 1)):
        lead_all(mixed, topics)
        go_on()
        mixed.stop(broker)
        go_on(kill=number)
        mixed.start(broker, [*INTERNAL, *topics])
        go_on()


def _ours_on_theirs(mixed: Mixed, topics: list[str], go_on: Callable[..., None]) -> None:
    """Broker 2, which is Kafka's, is ours for a while, on the directory that Kafka's has left; each dies by kill -9."""
    mixed.kill(THEIRS)
    go_on()
    with mixed.ours_on_theirs(THEIRS) as second:
        lead_all(mixed, topics)
        go_on()
        mixed.stop(OURS)  # so that it coordinates the transactions, by what Kafka had written there and what came since
        eventually(lambda: mixed.leaders(TRANSACTION_TOPIC) == [THEIRS], "it to coordinate", WAIT_S)
        go_on()
        mixed.start(OURS, [*INTERNAL, *topics])
        second.kill()
        mixed.await_gone(THEIRS)
        go_on(kill=2)
    mixed.start(THEIRS, [*INTERNAL, *topics])
    go_on()


def _theirs_on_ours(mixed: Mixed, topics: list[str], go_on: Callable[..., None]) -> None:
    """Broker 3, which is ours and coordinates all, is Kafka's for a while, on our directory; each dies by kill -9."""
    lead_all(mixed, topics)
    mixed.kill(OURS)
    go_on()
    with mixed.theirs_on_ours():
        mixed.real.start_broker(OURS)
        lead_all(mixed, topics)  # Kafka's coordinates, by what ours had written there and what came since
        go_on()
        mixed.real.kill_broker(OURS)
    mixed.await_gone(OURS)
    go_on(kill=0)
    mixed.start(OURS, [*INTERNAL, *topics])
    lead_all(mixed, topics)
    go_on()
