"""Transactions of all clients that have them, on one broker and on three: the second table of docs/clients.md.

Each client has three topics of its own: ``in`` and ``also`` get its transactions, ``out`` a copy of ``in``. What its
transactions did is judged at the end, by the same client, reading by value what is committed and what is there.
"""

from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from confluent_kafka import Consumer, TopicPartition

from kafkatool.broker.embedded.cluster import EmbeddedCluster
from tests.compat.client_matrix import Row
from tests.compat.client_process import ClientProcess
from tests.compat.client_programs import PREPARE, MissingError, Program
from tests.waiting import eventually

CLIENTS: Final = tuple(client for client in PREPARE if client != "kcat")  # which has no transactions
CELLS: Final = ("commit, abort", "fenced", "timed out", "1,000", "copy")
PARTITIONS: Final = 3
IN_A_ROW: Final = 1000
WAIT_S: Final = 240
AT_ONCE: Final = 3
DEFAULT_TIMEOUT_MS: Final = 60_000


def run(
    clients: Sequence[str], brokers: int, directory: Path, tell: Callable[[str], None] = lambda _: None
) -> dict[str, Row]:
    """Client -> its row on so many brokers. ``directory`` gets the brokers' data and the clients' words."""
    directory.mkdir(parents=True, exist_ok=True)
    rows = {client: Row() for client in clients}
    options = {"transaction.abort.timed.out.transaction.cleanup.interval.ms": "500"}
    with EmbeddedCluster(brokers, directory=directory / "cluster", options=options) as cluster:

        def one(client: str) -> None:
            tell(f"{client}: transactions, {brokers} brokers")
            try:
                program = PREPARE[client]()
            except MissingError as e:
                rows[client].missing = str(e)
                return
            _Story(cluster, brokers, client, program, directory, rows[client]).play()

        with ThreadPoolExecutor(AT_ONCE) as pool:
            list(pool.map(one, clients))
    return rows


def run_both(clients: Sequence[str], directory: Path, tell: Callable[[str], None] = lambda _: None) -> dict[str, Row]:
    """Client -> its row: what went well on one broker and on three."""
    merged: dict[str, Row] = {}
    for brokers in (1, 3):
        for client, row in run(clients, brokers, directory / f"transactions-{brokers}", tell).items():
            whole = merged.setdefault(client, Row(row.version, row.missing))
            for cell, outcome in row.cells.items():
                whole.note(cell, outcome if outcome == "ok" else f"on {brokers}: {outcome}")
    return merged


@dataclass(slots=True)
class _Written:
    """What one client wrote into one topic: (key, value) in the order of each partition."""

    committed: defaultdict[int, list[tuple[str, str]]] = field(default_factory=lambda: defaultdict(list))
    everything: defaultdict[int, list[tuple[str, str]]] = field(default_factory=lambda: defaultdict(list))


class _Story:
    """One client's transactions on one cluster."""

    def __init__(
        self, cluster: EmbeddedCluster, brokers: int, client: str, program: Program, directory: Path, row: Row
    ) -> None:
        self._cluster = cluster
        self._brokers = brokers
        self._client = client
        self._program = program
        self._directory = directory
        self._row = row
        self._topics = {name: f"{client}-{name}" for name in ("in", "also", "out")}
        self._written = {name: _Written() for name in self._topics}
        self._number = 0

    def play(self) -> None:
        for topic in self._topics.values():
            self._cluster.create_topic(topic, partitions=PARTITIONS)
        with self._start("transactions", "transactions") as client:
            self._in_turn(client)
            self._row.version = client.client
            self._fenced(client)
            self._timed_out(client)
            self._in_a_row(client)
            with self._noting("1,000"):
                client.end()
        with self._noting("copy"):
            self._copy()
        self._judge()

    def _in_turn(self, client: ClientProcess) -> None:
        """Commit and abort in turn, over two topics and all partitions."""
        with self._noting("commit, abort"):
            self._done(client, "a init", f"{self._client}-a", DEFAULT_TIMEOUT_MS)
            for number in range(10):
                self._transaction(client, "a", committed=number % 2 == 0, topics=("in", "also"), partitions=PARTITIONS)

    def _fenced(self, client: ClientProcess) -> None:
        """Replace a producer in the middle of a transaction."""
        with self._noting("fenced"):
            self._done(client, "old init", f"{self._client}-b", DEFAULT_TIMEOUT_MS)
            self._done(client, "old begin")
            self._send(client, "old", "in", 0, committed=False)
            self._done(client, "new init", f"{self._client}-b", DEFAULT_TIMEOUT_MS)
            self._transaction(client, "new", committed=True)
            assert client.step("old commit"), "the old one's transaction could be committed"
            self._transaction(client, "new", committed=True)

    def _timed_out(self, client: ClientProcess) -> None:
        """Leave a transaction open past its time; a new producer of the id goes on."""
        with self._noting("timed out"):
            self._done(client, "slow init", f"{self._client}-c", 1000)
            self._done(client, "slow begin")
            self._send(client, "slow", "in", 1, committed=False)
            given_up = f"transactional id {self._client}-c: its transaction took too long"
            eventually(lambda: self._is_logged(given_up), "a coordinator to give the transaction up", WAIT_S)
            assert client.step("slow commit"), "it could be committed though its time was over"
            self._done(client, "next init", f"{self._client}-c", DEFAULT_TIMEOUT_MS)
            self._transaction(client, "next", committed=True)

    def _in_a_row(self, client: ClientProcess) -> None:
        with self._noting("1,000"):
            for number in range(IN_A_ROW):
                self._transaction(client, "a", committed=True, first=number % PARTITIONS)

    def _copy(self) -> None:
        """Copy ``in`` into ``out`` as a member of a group; its first transaction is aborted by itself."""
        name = f"{self._client}-copy"
        source, sink = self._topics["in"], self._topics["out"]
        with self._start("copy", "copy", source, sink, name) as copying:

            def is_through() -> bool:
                copying.check_alive()
                return self._committed(name, source) == self._behind_the_last_records(source)

            try:
                eventually(is_through, "its group's offsets to reach the ends", WAIT_S)
            except AssertionError as e:
                raise AssertionError(f"{e}; at {self._committed(name, source)}; it says: {copying.words()}") from e
            copying.end()
        for partition, records in self._written["in"].committed.items():
            self._written["out"].committed[partition] += records

    def _judge(self) -> None:
        """Read by the same client: what is committed, no more, and in its order; and all that is there."""
        wanted = {self._topics[name]: written.committed for name, written in self._written.items()}
        read = self._read("read_committed", wanted)
        for cell, names in (("commit, abort", ("in", "also")), ("copy", ("out",))):
            with self._noting(cell):
                for topic in (self._topics[name] for name in names):
                    for partition, records in wanted[topic].items():
                        found = list(read[topic, partition])
                        assert found == records, (
                            f"read {len(found)} of {len(records)} committed records of {topic}-{partition}"
                        )
        everything = {self._topics[n]: self._written[n].everything for n in ("in", "also")}
        read = self._read("read_uncommitted", everything)
        with self._noting("commit, abort"):
            for topic, partitions in everything.items():
                for partition, records in partitions.items():
                    assert read[topic, partition] == records, f"{topic}-{partition}: not all that was sent is there"

    def _read(
        self, isolation: str, wanted: dict[str, defaultdict[int, list[tuple[str, str]]]]
    ) -> dict[tuple[str, int], list[tuple[str, str]]]:
        count = sum(len(records) for partitions in wanted.values() for records in partitions.values())
        with self._start(isolation, "consume", ",".join(wanted), str(count), isolation) as reading:
            with self._noting("commit, abort"):
                reading.finish()
                assert reading.count == count, f"{reading.count} records read, {count} expected"
            return {
                (topic, partition): list(reading.records[topic, partition].values())
                for topic in wanted
                for partition in range(PARTITIONS)
            }

    # --- steps --------------------------------------------------------------------------------------------------

    def _transaction(
        self,
        client: ClientProcess,
        producer: str,
        *,
        committed: bool,
        topics: Sequence[str] = ("in",),
        first: int = 0,
        partitions: int = 1,
    ) -> None:
        self._done(client, f"{producer} begin")
        for topic in topics:
            for partition in range(first, first + partitions):
                self._send(client, producer, topic, partition, committed=committed)
        self._done(client, f"{producer} {'commit' if committed else 'abort'}")

    def _send(self, client: ClientProcess, producer: str, topic: str, partition: int, *, committed: bool) -> None:
        number, self._number = self._number, self._number + 1
        self._done(client, f"{producer} send", self._topics[topic], partition, number, self._client)
        record = (str(number), f"{self._client}-{number}-{'x' * 100}")
        written = self._written[topic]
        written.everything[partition].append(record)
        if committed:
            written.committed[partition].append(record)

    @staticmethod
    def _done(client: ClientProcess, *words: object) -> None:
        assert not (why := client.step(*words)), f"{words}: {why}"

    def _is_logged(self, line: str) -> bool:
        files = self._cluster.files
        return any(line in files.output(broker).read_text() for broker in range(1, self._brokers + 1))

    def _behind_the_last_records(self, topic: str) -> list[int]:
        """Where a reader of each partition is: all that comes yet is the marker of its last transaction."""
        asking = self._asking("ends")
        try:
            return [asking.get_watermark_offsets(TopicPartition(topic, p), 30)[1] - 1 for p in range(PARTITIONS)]
        finally:
            asking.close()

    def _committed(self, group: str, topic: str) -> list[int]:
        asking = self._asking(group)
        try:
            return [p.offset for p in asking.committed([TopicPartition(topic, p) for p in range(PARTITIONS)], 30)]
        finally:
            asking.close()

    def _asking(self, group: str) -> Consumer:
        return Consumer({"bootstrap.servers": self._cluster.bootstrap, "group.id": group, "log_level": 0})

    def _start(self, name: str, command: str, *arguments: str) -> ClientProcess:
        log = self._directory / f"{self._client}-{name}.log"
        return ClientProcess(self._program, log, command, self._cluster.bootstrap, *arguments)

    @contextmanager
    def _noting(self, cell: str) -> Iterator[None]:
        """Note what fails here as a failure of that cell."""
        try:
            yield
        except AssertionError as e:
            self._row.note(cell, str(e))
        else:
            self._row.cells.setdefault(cell, "ok")
