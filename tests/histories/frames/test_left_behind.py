"""Play what librdkafka makes of a batch that is refused for a while when the one sent behind it is taken: it is lost.

The client takes the answer to the later batch for a word on both (``rd_kafka_dr_implicit_ack``), and commits. Kafka takes
the later one in the first one's place where it knows nothing of the producer; our brokers have both come again.
"""

import itertools
from collections.abc import Callable, Iterator
from typing import Final

import confluent_kafka
import pytest
from confluent_kafka import KafkaError, KafkaException, Message, Producer
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource, ResourceType

from tests.histories.frames.rules import Call, Rule
from tests.histories.frames.stage import Ours, Stage, stage_with_a_key
from tests.integration.isolation import values_of
from tests.waiting import eventually

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1500)]
_TOPIC: Final = "behind"
_PATIENCE_S: Final = 120
_COMMITTED_S: Final = 30  # a client that is told meanwhile to take it back waits in vain for what was not written
_ATTEMPTS: Final = 20  # the first one may come before its broker has heard that it is to be refused
_TRIED: Final = 0x021000FF  # librdkafka 2.16.0
_numbers = itertools.count()


@pytest.fixture(scope="module", params=["ours", pytest.param("2.8.2", marks=pytest.mark.slowest)])
def stage(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stage]:
    with stage_with_a_key(request.param, tmp_path_factory.mktemp("behind"), _TOPIC, []) as stage:
        yield stage


class _Two:
    """Two values of one transaction, sent one behind the other; between them the broker changes its mind."""

    def __init__(self, stage: Stage, refuse: Callable[[], object], allow: Callable[[], object]) -> None:
        self.name = f"two-{next(_numbers)}"
        self.values = [f"{self.name} {which}" for which in ("first", "second")]
        self.offsets: dict[str, int] = {}
        """Of those that are told to be written."""
        rules = stage.doors.rules
        rules.add(Rule("Produce", Call("before", lambda _: refuse()), client=self.name))
        rules.add(Rule("Produce", Call("before", lambda _: allow()), nth=2, client=self.name))
        try:
            self.is_committed = self._is_committed(stage.bootstrap)
        finally:
            rules.clear()
            allow()
        assert stage.doors.record is not None
        asked = stage.doors.record.count(self.name)["Produce", self.name]
        self.was_refused = not self.is_committed or asked > 2 or self.offsets[self.values[0]] < 0
        """Whether the first was: it came again, or was taken back, or is told to be written nobody knows where."""
        self.read = [value for value in values_of(stage, _TOPIC, "read_committed") if value in self.values]

    def _is_committed(self, bootstrap: str) -> bool:
        producer = Producer(
            {
                "bootstrap.servers": bootstrap,
                "transactional.id": self.name,
                "client.id": self.name,
                "linger.ms": 0,
                "batch.num.messages": 1,
                "transaction.timeout.ms": 300_000,
                "log_level": 0,
            }
        )
        producer.init_transactions(_PATIENCE_S)
        producer.begin_transaction()
        try:
            for value in self.values:
                producer.produce(_TOPIC, value, partition=0, on_delivery=self._delivered)
            producer.commit_transaction(_COMMITTED_S)
        except KafkaException as e:
            assert e.args[0].txn_requires_abort() or e.args[0].code() == KafkaError._TIMED_OUT, e
            producer.abort_transaction(_PATIENCE_S)
            return False
        return True

    def _delivered(self, error: KafkaError | None, message: Message) -> None:
        if error is None:
            offset = message.offset()
            self.offsets[(message.value() or b"").decode()] = -1 if offset is None else offset


def _first_refused(stage: Stage, refuse: Callable[[], object], allow: Callable[[], object]) -> _Two:
    for _ in range(_ATTEMPTS):
        two = _Two(stage, refuse, allow)
        if two.was_refused:
            return two
        assert two.read == two.values
    raise AssertionError("the first batch was never refused")


def _set_min_in_sync(stage: Stage, count: int) -> None:
    """Have the leader want so many in sync, and return when it does."""
    wanted = ConfigEntry("min.insync.replicas", str(count), incremental_operation=AlterConfigOpType.SET)
    resource = ConfigResource(ResourceType.TOPIC, _TOPIC, incremental_configs=[wanted])
    admin = AdminClient({"bootstrap.servers": stage.bootstrap})
    admin.incremental_alter_configs([resource])[resource].result()
    probe = Producer({"bootstrap.servers": stage.bootstrap, "acks": "all", "retries": 0, "log_level": 0})
    told: list[bool] = []

    def is_in_force() -> bool:
        probe.produce(_TOPIC, b"probe", partition=0, on_delivery=lambda error, _: told.append(error is None))
        probe.flush(_PATIENCE_S)
        return told[-1] is (count <= 3)

    eventually(is_in_force, f"{count} to be wanted in sync")


def _check(stage: Stage, two: _Two) -> None:
    if stage.source == "ours":
        assert two.read == (two.values if two.is_committed else [])
    elif confluent_kafka.libversion()[1] <= _TRIED:
        assert two.read == two.values[1:]


@pytest.mark.spec("TXN-76", "HIS-46")
def test_what_is_behind_a_batch_for_which_too_few_were_in_sync(stage: Stage) -> None:
    _check(stage, _first_refused(stage, lambda: _set_min_in_sync(stage, 4), lambda: _set_min_in_sync(stage, 2)))


@pytest.mark.spec("TXN-76", "HIS-46")
@pytest.mark.parametrize("stage", ["ours"], indirect=True)
def test_what_is_behind_a_batch_that_came_before_its_leader_had_its_role(stage: Stage) -> None:
    assert isinstance(stage, Ours)
    faults = stage.cluster.faults
    led_by = faults.move_leader(_TOPIC)
    _check(
        stage, _first_refused(stage, lambda: faults.move_leader(_TOPIC), lambda: faults.move_leader(_TOPIC, to=led_by))
    )
