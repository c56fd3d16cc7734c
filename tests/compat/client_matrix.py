"""All clients against three broker processes, every record checked by value: the cells of docs/clients.md.

Three stages, each with all clients in it:

- codecs: every client writes into one topic for each codec; the batches in the log must have that codec and hold the
  records once; then every client reads all that all have written.
- group: while a producer of its kind goes on, a member joins a group, a second joins and shares, and leaves again.
- kill -9 of the broker that leads one partition of each topic and coordinates some of the groups, and its return: with
  acks=all nothing acknowledged is lost to the member, and what it has committed at its end is all there is.
"""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final

from confluent_kafka import Consumer, TopicPartition

from kafkatool.broker.embedded.cluster import EmbeddedCluster
from kafkatool.core.client.access import PLAINTEXT_ACCESS, BrokerAccess
from kafkatool.core.operations.topics.creation import create_topic
from kafkatool.core.protocol.records.batches import decode_records, iter_batches
from kafkatool.core.zookeeper.session import ZooKeeper
from tests.compat.client_process import ClientProcess
from tests.compat.client_programs import PREPARE, MissingError, Program
from tests.compat.told import await_told
from tests.integration.load import await_in_sync, end_of
from tests.steady import LASTING, crash
from tests.waiting import eventually

CODECS: Final = ("none", "gzip", "snappy", "lz4", "zstd")  # by their numbers in a batch
CELLS: Final = (*CODECS, "group", "kill -9")
OPTIONS: Final = {**LASTING, "min.insync.replicas": "2", "auto.leader.rebalance.enable": "false"}
PARTITIONS: Final = 3
RECORDS: Final = 100
VICTIM: Final = 1
WAIT_S: Final = 240
DROPS_ITS_LAST: Final = frozenset({"kcat"})
"""Clients that, told to end, drop the record they poll meanwhile and commit it as read.

kcat 1.7.1, kcat.c: ``consume_cb`` prints nothing once ``term`` was there, and librdkafka has stored the offset.
"""
AT_ONCE: Final = 3
"""Short-lived programs at once: most of their time is start-up."""


@dataclass(slots=True)
class Row:
    """What came of one client. ``cells``: "ok", or why not; all are absent while ``missing`` says why it cannot run."""

    version: str = ""
    missing: str = ""
    cells: dict[str, str] = field(default_factory=dict)

    def note(self, cell: str, why: str) -> None:
        """Note a failure; the first of a cell stays."""
        if self.cells.get(cell, "ok") == "ok":
            self.cells[cell] = why


def run(clients: Sequence[str], directory: Path, tell: Callable[[str], None] = lambda _: None) -> dict[str, Row]:
    """Client -> its row. ``directory`` gets the brokers' data and the clients' words."""
    rows = {client: Row() for client in clients}
    if programs := prepare(rows, tell):
        with _cluster(directory / "cluster") as (cluster, zk):
            matrix = Matrix(cluster, zk, directory, programs, rows)
            tell("codecs: every client writes")
            matrix.write()
            tell("codecs: every client reads what all have written")
            matrix.read()
            with ExitStack() as processes:
                tell("group: members join and leave under load")
                matrix.join(processes, "group")
                matrix.rebalance()
                tell(f"kill -9 of broker {VICTIM}")
                matrix.kill("kill -9")
    return rows


def prepare(rows: Mapping[str, Row], tell: Callable[[str], None]) -> dict[str, Program]:
    """Fetch and build the clients' programs; a row says why there is none."""
    programs: dict[str, Program] = {}
    for client, row in rows.items():
        tell(f"{client}: fetch and build")
        try:
            programs[client] = PREPARE[client]()
        except MissingError as e:
            row.missing = str(e)
    return programs


@dataclass(frozen=True, slots=True)
class Way:
    """How clients get in. ``name`` begins the names of their topics and groups; ``config`` is a client's CLIENT_CONFIG.

    ``asking`` is how the test itself asks, in librdkafka's words, and ``access`` in ours.
    """

    name: str
    bootstrap: str
    asking: Mapping[str, str]
    access: BrokerAccess = PLAINTEXT_ACCESS
    config: Callable[[str], Path | None] = lambda client: None

    def program(self, client: str, program: Program) -> Program:
        """Return the program with what makes it log in."""
        if (file := self.config(client)) is None:
            return program
        return replace(program, environment={**program.environment, "CLIENT_CONFIG": str(file)})


@contextmanager
def _cluster(directory: Path) -> Iterator[tuple[EmbeddedCluster, ZooKeeper]]:
    with EmbeddedCluster(3, directory=directory, options=OPTIONS) as cluster, ZooKeeper(cluster.zookeeper) as zk:
        for codec in CODECS:
            create_topic(
                zk, _codec_topic(codec), {p: (p + 1,) for p in range(PARTITIONS)}, {"min.insync.replicas": "1"}
            )
        await_in_sync(zk)
        await_told(zk, cluster.bootstrap, [_codec_topic(codec) for codec in CODECS])
        yield cluster, zk


def _codec_topic(codec: str) -> str:
    return f"codec-{codec}"


def _value(prefix: str, number: int) -> str:
    return f"{prefix}-{number}-{'x' * 100}"


@dataclass(slots=True)
class _Pair:
    """A client's producer and the member that reads after it."""

    load: ClientProcess
    member: ClientProcess


class Matrix:
    def __init__(
        self,
        cluster: EmbeddedCluster,
        zk: ZooKeeper,
        directory: Path,
        programs: dict[str, Program],
        rows: Mapping[str, Row],
        way: Way | None = None,
    ) -> None:
        self._way = way or Way("group", cluster.bootstrap, {"bootstrap.servers": cluster.bootstrap})
        self._cluster = cluster
        self._zk = zk
        self._directory = directory
        self._programs = programs
        self._rows = rows
        self._pairs: dict[str, _Pair] = {}

    def write(self) -> None:
        def one(client: str) -> None:
            for codec in CODECS:
                arguments = ("produce", _codec_topic(codec), client, str(RECORDS), codec)
                with self._noting(client, codec), self._start(client, f"produce-{codec}", *arguments) as process:
                    process.finish()
                    self._rows[client].version = process.client
                    assert process.acknowledged == set(range(RECORDS)), f"only {len(process.acknowledged)} acknowledged"
                if self._rows[client].cells["none"] != "ok":
                    return  # it does not work at all: time for the others

        with ThreadPoolExecutor(AT_ONCE) as pool:
            list(pool.map(one, self._programs))
        for number, codec in enumerate(CODECS):
            self._check_written(number, codec)

    def _check_written(self, number: int, codec: str) -> None:
        """Check the log: of each client every record once, in batches of that codec."""
        found: Counter[tuple[str, str]] = Counter()
        codecs: dict[str, set[int]] = {client: set() for client in self._programs}
        for _, _, (key, value), attributes in self._stored(codec):
            found[key, value] += 1
            codecs[next(c for c in codecs if value.startswith(f"{c}-{key}-"))].add(attributes)
        for client in self._programs:
            with self._noting(client, codec):
                counts = {found[str(n), _value(client, n)] for n in range(RECORDS)}
                assert counts == {1}, f"a record is there {sorted(counts)} times"
                assert codecs[client] == {number}, f"batches have codecs {codecs[client]}, not {number}"

    def _stored(self, codec: str) -> Iterator[tuple[int, int, tuple[str, str], int]]:
        """Partition, offset, (key, value) and the batch's codec of each record in the log of a codec's topic."""
        for partition in range(PARTITIONS):
            directory = self._cluster.files.data(partition + 1) / f"{_codec_topic(codec)}-{partition}"
            for segment in sorted(directory.glob("*.log")):
                data = segment.read_bytes()
                for position, header in iter_batches(data):
                    for r in decode_records(memoryview(data)[position : position + header.size_bytes]):
                        assert r.key is not None and r.value is not None
                        yield partition, r.offset, (bytes(r.key).decode(), bytes(r.value).decode()), header.codec

    def read(self) -> None:
        stored = {codec: {(p, o): record for p, o, record, _ in self._stored(codec)} for codec in CODECS}
        total = sum(len(records) for records in stored.values())
        topics = ",".join(_codec_topic(codec) for codec in CODECS)

        def one(client: str) -> None:
            with self._start(client, "consume", "consume", topics, str(total)) as process:
                why = ""
                try:
                    process.finish()
                except AssertionError as e:
                    why = f" ({e})"
                for codec in CODECS:
                    with self._noting(client, codec):
                        read = {
                            (partition, offset): record
                            for (topic, partition), records in process.records.items()
                            if topic == _codec_topic(codec)
                            for offset, record in records.items()
                        }
                        assert read == stored[codec], f"read {len(read)} of {len(stored[codec])} records{why}"
                assert process.count == total or why, f"{process.count} records read, {total} are there"

        with ThreadPoolExecutor(AT_ONCE) as pool:
            list(pool.map(one, self._programs))

    def join(self, processes: ExitStack, cell: str) -> None:
        """Start a producer and a group member of each client; each reads."""
        for client in self._programs:
            create_topic(self._zk, self._topic(client), {0: (1, 2, 3), 1: (2, 3, 1), 2: (3, 1, 2)}, {})
        await_in_sync(self._zk)
        await_told(self._zk, self._cluster.bootstrap, list(map(self._topic, self._programs)), self._way.access)
        for client in self._programs:
            topic = self._topic(client)
            load = processes.enter_context(self._start(client, "load", "load", topic, client))
            member = processes.enter_context(self._start(client, "member", "group", topic, topic))
            self._pairs[client] = _Pair(load, member)

        def one(client: str) -> None:
            pair, topic = self._pairs[client], self._topic(client)
            with self._noting(client, cell):
                every = set(range(PARTITIONS))
                self._wait(pair, lambda: set(pair.member.assigned) == every, "a member to have all partitions")
                self._wait(pair, lambda: len(pair.member.read_of(topic)) > 20, "it to read")
            self._rows[client].version = pair.member.client

        with ThreadPoolExecutor(len(self._programs)) as pool:
            list(pool.map(one, self._programs))

    def rebalance(self) -> None:
        def one(client: str) -> None:
            pair, topic = self._pairs[client], self._topic(client)
            with self._noting(client, "group"):
                every = set(range(PARTITIONS))
                with self._start(client, "second", "group", topic, topic) as second:
                    self._wait(pair, lambda: _shared(pair.member, second), "two members to share the partitions")
                    self._wait(pair, lambda: len(second.read_of(topic)) > 5, "the second to read")
                    with self._nothing_to_drop(client, second):
                        second.end()
                    self._wait(pair, lambda: set(pair.member.assigned) == every, "the first to have all again")
                    wanted = self._acknowledged(client) or {(str(0), _value(client, 0))}
                    self._wait(
                        pair,
                        lambda: wanted <= pair.member.read_of(topic) | second.read_of(topic),
                        "the two to have read every acknowledged record",
                    )
                    # What the second has read is behind the commit it made when it left.
                    for place, records in second.records.items():
                        pair.member.records[place].update(records)

        with ThreadPoolExecutor(len(self._programs)) as pool:
            list(pool.map(one, self._programs))

    @contextmanager
    def _nothing_to_drop(self, client: str, second: ClientProcess) -> Iterator[None]:
        """Hold up the producer of a client that drops its last record, and let the two read what is there."""
        if client not in DROPS_ITS_LAST:
            yield
            return
        pair, topic = self._pairs[client], self._topic(client)
        with pair.load.stopped():
            eventually(
                lambda: _has_read(topic, self._ends(client), pair.member, second), "the two to read to the end", WAIT_S
            )
            yield

    def kill(self, cell: str) -> None:
        """Kill a broker, have it back, and end all; what was acknowledged was read, and is committed."""
        crash(self._cluster, self._zk, VICTIM)

        def goes_on(client: str) -> None:
            pair, topic = self._pairs[client], self._topic(client)
            with self._noting(client, cell):
                before = {p: len(pair.member.records[topic, p]) for p in range(PARTITIONS)}
                self._wait(
                    pair,
                    lambda: all(len(pair.member.records[topic, p]) > before[p] + 20 for p in before),
                    "twenty more records of each partition",
                )

        def ends(client: str) -> None:
            pair, topic = self._pairs[client], self._topic(client)
            with self._noting(client, cell):
                pair.load.end()
                wanted = self._acknowledged(client)
                assert wanted, "nothing was acknowledged"
                try:
                    eventually(
                        lambda: wanted <= pair.member.read_of(topic), "the member to read what is missing", WAIT_S
                    )
                except AssertionError as e:
                    raise AssertionError(f"{e}: {self._where(client, wanted - pair.member.read_of(topic))}") from e
                garbled = [r for r in pair.member.read_of(topic) if r[1] != _value(client, int(r[0]))]
                assert not garbled, f"{len(garbled)} records have a wrong value: {garbled[:2]}"
                ends = self._ends(client)
                eventually(lambda: _has_read(topic, ends, pair.member), "the member to read to the end", WAIT_S)
                pair.member.end()
                self._check_committed(client, ends)

        with ThreadPoolExecutor(len(self._programs)) as pool:
            list(pool.map(goes_on, self._programs))
            self._cluster.start_broker(VICTIM)
            await_in_sync(self._zk, seconds=WAIT_S)
            list(pool.map(ends, self._programs))

    @contextmanager
    def _stranger(self, client: str) -> Iterator[tuple[Consumer, list[TopicPartition]]]:
        """Give who asks for the client's group and its partitions without being a member."""
        asking = Consumer({**self._way.asking, "group.id": self._topic(client), "log_level": 0})
        try:
            yield asking, [TopicPartition(self._topic(client), p) for p in range(PARTITIONS)]
        finally:
            asking.close()

    def _where(self, client: str, records: set[tuple[str, str]]) -> str:
        """Say of each of the first few where it is for who reads all from the start."""
        found: dict[str, str] = {}
        with self._stranger(client) as (asking, partitions):
            ends = {p.partition: end_of(asking, p) for p in partitions}
            asking.assign([TopicPartition(p.topic, p.partition, 0) for p in partitions])
            left = {partition for partition, end in ends.items() if end > 0}
            while left and (message := asking.poll(60)) is not None:
                if message.error() is None:
                    found.setdefault(message.key().decode(), f"{message.partition()} at {message.offset()}")
                    if message.offset() + 1 >= ends[message.partition()]:
                        left.discard(message.partition())
        first = sorted(int(key) for key, _ in records)[:5]
        places = ", ".join(f"{number}: {found.get(str(number), 'in no log')}" for number in first)
        return f"{len(records)} of its records, {places}; ends {ends}"

    def _ends(self, client: str) -> list[int]:
        """Return the ends of the partitions: of what a client sent twice, which not all can help, too."""
        with self._stranger(client) as (asking, partitions):
            return [end_of(asking, p) for p in partitions]

    def _check_committed(self, client: str, ends: list[int]) -> None:
        """Check that the group's offsets are the ends of the partitions."""
        with self._stranger(client) as (asking, partitions):
            committed = [p.offset for p in asking.committed(partitions, timeout=WAIT_S)]
        assert committed == ends, f"the member left with {committed} committed, the partitions end at {ends}"

    def _acknowledged(self, client: str) -> set[tuple[str, str]]:
        return {(str(n), _value(client, n)) for n in list(self._pairs[client].load.acknowledged)}

    def _start(self, client: str, name: str, command: str, *arguments: str) -> ClientProcess:
        log = self._directory / f"{self._way.name}-{client}-{name}.log"
        program = self._way.program(client, self._programs[client])
        return ClientProcess(program, log, command, self._way.bootstrap, *arguments)

    def _topic(self, client: str) -> str:
        """Name its topic, and its group."""
        return f"{self._way.name}-{client}"

    @staticmethod
    def _wait(pair: _Pair, what: Callable[[], bool], title: str) -> None:
        def came_true() -> bool:
            pair.load.check_alive()
            pair.member.check_alive()
            return what()

        try:
            eventually(came_true, title, WAIT_S)
        except AssertionError as e:
            raise AssertionError(f"{e}; producer: {pair.load.words()}; member: {pair.member.words()}") from e

    @contextmanager
    def _noting(self, client: str, cell: str) -> Iterator[None]:
        """Note what fails here as that client's failure in that cell; the others go on."""
        try:
            yield
        except AssertionError as e:
            self._rows[client].note(cell, str(e))
        else:
            self._rows[client].cells.setdefault(cell, "ok")


def _has_read(topic: str, ends: Sequence[int], *members: ClientProcess) -> bool:
    """Tell whether one of them has read the last record of each partition."""
    return all(any(end - 1 in member.records[topic, p] for member in members) for p, end in enumerate(ends) if end)


def _shared(one: ClientProcess, other: ClientProcess) -> bool:
    mine, yours = set(one.assigned), set(other.assigned)
    return bool(mine) and bool(yours) and not mine & yours and mine | yours == set(range(PARTITIONS))
