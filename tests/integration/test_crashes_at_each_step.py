"""kill -9 of the coordinator, of a leader of data and of one of offsets, at each request of a transaction (TXN-104).

A request gets no answer, before or after it has taken effect; then the broker that has it is killed, and the client does as
clients do: it asks whoever comes next. Each transaction has its own partition, group and id, so that all can be read once.
"""

from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from itertools import count
from pathlib import Path
from typing import Final

import pytest

from kafkatool.broker.embedded.cluster import EmbeddedCluster
from kafkatool.core.model import values as model
from kafkatool.core.model.topic_names import OFFSETS_TOPIC, TRANSACTION_TOPIC
from kafkatool.core.protocol.messages.error_codes import ErrorCode
from kafkatool.core.zookeeper.session import ZooKeeper
from tests.integration.isolation import ISOLATIONS, end_of, values_of
from tests.integration.load import await_in_sync
from tests.raw_transactions import COMES_LATER, RawProducer
from tests.steady import LASTING, crash
from tests.waiting import awaited, eventually

pytestmark = [pytest.mark.slow, pytest.mark.slowest, pytest.mark.timeout(1800)]

NONE: Final = ErrorCode.NONE
COORDINATOR, DATA, OFFSETS = ("coordinator", "leader of data", "leader of offsets")
STEPS: Final[Mapping[str, tuple[str, ...]]] = {
    COORDINATOR: ("InitProducerId", "AddPartitionsToTxn", "AddOffsetsToTxn", "EndTxn"),
    DATA: ("Produce", "WriteTxnMarkers"),
    OFFSETS: ("TxnOffsetCommit", "WriteTxnMarkers"),
}
ENDS: Final = ("EndTxn", "WriteTxnMarkers")  # differ by how the transaction ends
PARTITIONS: Final = 3
LIMIT_S: Final = 120.0
NOT_YET: Final = COMES_LATER | {ErrorCode.UNSTABLE_OFFSET_COMMIT, ErrorCode.NETWORK_EXCEPTION}
OPTIONS: Final = {**LASTING, "auto.leader.rebalance.enable": "false"}  # who is to die at a request is still asked it


class Transactions:
    """The transactions of one cluster, each with a broker that is killed at one of its steps."""

    def __init__(self, cluster: EmbeddedCluster, zk: ZooKeeper) -> None:
        self.cluster = cluster
        self.kept: list[str] = []
        self._zk = zk
        self._numbers = count()
        cluster.create_topic("t", partitions=PARTITIONS)
        cluster.create_topic("in", partitions=1)
        cluster.create_offsets_topic()

    def run(self, role: str, api: str, *, carried_out: bool, committed: bool) -> None:
        """Have one transaction, whose broker of that role dies at that request."""
        number = next(self._numbers)
        place, group = model.TopicPartition("t", number % PARTITIONS), f"g-{number}"
        name = f"{number}: {role}, {'after' if carried_out else 'before'} {api}, {committed=}"
        with ExitStack() as stack:
            by, victim = self._cast(stack, role, place, group)
            steps: list[tuple[str, Callable[[], object]]] = [
                ("InitProducerId", by.init),
                ("AddPartitionsToTxn", lambda: by.add(place)),
                ("Produce", lambda: by.send(place, name)),
                ("AddOffsetsToTxn", lambda: by.add_offsets(group)),
                ("TxnOffsetCommit", lambda: by.commit_offsets(group, "in", {0: ""}, number)[0]),
                ("EndTxn", lambda: by.end(committed=committed)),
            ]
            for step, do in steps:
                if step == api or (step == "EndTxn" and api == "WriteTxnMarkers"):
                    told = self._over_a_crash(do, victim, api, carried_out)
                else:
                    told = do()
                assert told == NONE, (name, step, told)
            self.cluster.start_broker(victim)
            self._check(by, place, group, number, committed, name)
        self.kept += [name] * committed
        await_in_sync(self._zk, ["t", OFFSETS_TOPIC, TRANSACTION_TOPIC], LIMIT_S)

    def _cast(self, stack: ExitStack, role: str, place: model.TopicPartition, group: str) -> tuple[RawProducer, int]:
        """Return a producer and the broker of that role; unless it is that, its coordinator is another one."""
        for number in range(100):
            by = stack.enter_context(RawProducer(self.cluster.bootstrap, f"{group}-{number}"))
            coordinator = by.coordinator
            if role == COORDINATOR:
                return by, coordinator
            victim = by.leader_of(place) if role == DATA else by.coordinator_of_group(group)
            if coordinator != victim:
                return by, victim
        raise AssertionError("one broker leads all")

    def _over_a_crash(self, do: Callable[[], object], victim: int, api: str, carried_out: bool) -> object:
        """Have it done while its broker is killed, before or after it has."""
        silence = self.cluster.faults.silence(api, broker=victim, times=1, carried_out=carried_out)
        with ThreadPoolExecutor(1) as client:
            told = client.submit(do)
            eventually(lambda: silence.hits == 1, f"{api} at broker {victim}", LIMIT_S)
            crash(self.cluster, self._zk, victim)
            silence.end()
            return told.result()

    def _check(
        self, by: RawProducer, place: model.TopicPartition, group: str, number: int, committed: bool, name: str
    ) -> None:
        """Hold the outcome against what the client was told: it is complete, also for the group, and stays so."""

        def offset() -> tuple[int, int] | None:
            answer = by.fetch_offset(group, model.TopicPartition("in", 0))
            return None if answer[0] in NOT_YET else answer

        assert by.end(committed=committed) == NONE, name
        assert by.end(committed=not committed) == ErrorCode.INVALID_TXN_STATE, name
        assert awaited(offset, "a stable offset", LIMIT_S) == (NONE, number if committed else -1), name


@pytest.fixture
def transactions(tmp_path: Path) -> Iterator[Transactions]:
    with (
        EmbeddedCluster(3, directory=tmp_path / "cluster", options=OPTIONS) as cluster,
        ZooKeeper(cluster.zookeeper, session_timeout_ms=60_000) as zk,
    ):
        yield Transactions(cluster, zk)


@pytest.mark.spec("TXN-104", "TXN-95", "TXN-97", "TXN-42", "TXN-54", "TXN-83", "TXN-86")
@pytest.mark.parametrize("role", STEPS)
def test_whichever_broker_dies_at_whatever_step_the_transaction_ends_as_was_told(
    transactions: Transactions, role: str
) -> None:
    for api in STEPS[role]:
        for carried_out in (False, True):
            for committed in (True, False) if api in ENDS else (True,):
                transactions.run(role, api, carried_out=carried_out, committed=committed)
    cluster = transactions.cluster
    assert sorted(values_of(cluster, "t", "read_committed", PARTITIONS)) == sorted(transactions.kept)
    for partition in range(PARTITIONS):
        ends = {isolation: end_of(cluster, "t", partition, isolation) for isolation in ISOLATIONS}
        assert len(set(ends.values())) == 1, "something is open"
