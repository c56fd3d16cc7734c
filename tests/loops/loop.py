"""One client's loop: processes that copy a topic in transactions with the offsets of their group, and who sees to them."""

import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Final

from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, KafkaException, TopicPartition

from kafkatool.core.zookeeper.session import ZooKeeper
from tests.compat.client_programs import PREPARE, MissingError, Program, streams_copy
from tests.compat.told import await_told
from tests.compat.trickle import Trickle
from tests.loops.copier import Copier
from tests.waiting import eventually

BY_GROUP: Final = ("confluent-kafka", "java-3.9", "franz-go", "streams")
"""Clients that tell the coordinator their generation and wait for pending offsets (KIP-447): members share a group."""
BY_PARTITION: Final = ("aiokafka", "kafka-python", "kafkajs")
"""The others: a process for each partition, with a transactional id of its own. Who is started anew ends by that what its
forerunner left open, before it asks where to go on."""
PROGRAMS: Final = {**PREPARE, "streams": streams_copy}
PARTITIONS: Final = 3
HANGERS: Final = ("kafka-python", "confluent-kafka")
"""Clients that stand still for good by faults of their own, also on real Kafka (docs/known-faults.md): no other may."""
WAIT_S: Final = 300
_STUCK_S: Final = 75  # until a hanger is started anew
_ANSWER_S: Final = 2
_READ: Final = {"enable.auto.commit": False, "isolation.level": "read_committed", "log_level": 0}

Keys = dict[int, list[bytes]]
"""Partition -> the keys of its records, in their order."""


class Loop:
    """Copies ``source`` to ``sink``. A thread has new processes for those that end, and reads what is copied.

    ``members``: so many share the group of a client with KIP-447. ``copied``: what a reader saw that was there all the time.
    """

    def __init__(self, client: str, program: Program, bootstrap: str, directory: Path, members: int = 1) -> None:
        self.client = client
        self.source, self.sink = f"in-{client}", f"out-{client}"
        self.copied: Keys = {number: [] for number in range(PARTITIONS)}
        self.hung = 0
        self._bootstrap = bootstrap
        self._over = threading.Event()
        self._errors: list[Exception] = []
        self._thread = threading.Thread(target=self._look_after)
        self._reader = Consumer({**_READ, "bootstrap.servers": bootstrap, "group.id": "reader"})
        if client in BY_GROUP:
            names = [f"{client}-{number}" for number in range(members)]
            self._groups = dict.fromkeys(range(PARTITIONS), client)
            calls = [("copy", bootstrap, self.source, self.sink, client, name) for name in names]
        else:
            names = [f"{client}-{number}" for number in range(PARTITIONS)]
            self._groups = dict(enumerate(names))
            calls = [("copy-one", bootstrap, self.source, self.sink, name, str(n)) for n, name in enumerate(names)]
        self.copiers = [Copier(name, program, call, directory) for name, call in zip(names, calls, strict=True)]

    def start(self) -> None:
        """Start the processes, and read what they copy from the first record on."""
        self._reader.assign([TopicPartition(self.sink, number, OFFSET_BEGINNING) for number in range(PARTITIONS)])
        for copier in self.copiers:
            copier.start()
        self._thread.start()

    def _look_after(self) -> None:
        try:
            while not self._over.is_set():
                for copier in self.copiers:
                    copier.look()
                self._read()
        except Exception as e:  # noqa: BLE001 - told by ``counts``
            self._errors.append(e)

    def _read(self) -> None:
        for message in self._reader.consume(500, 0.05):
            if message.error() is None:
                self.copied[message.partition() or 0].append(_key(message.key()))

    @property
    def counts(self) -> list[int]:
        """Return how many records of each partition are copied."""
        if self._errors:
            raise self._errors[0]
        return [len(keys) for keys in self.copied.values()]

    def kill(self) -> None:
        """kill -9 of each process."""
        for copier in self.copiers:
            copier.kill()

    def goes_on(self, records: int = 40) -> None:
        """Wait until that many more are copied, of each partition its share."""
        self._await_counts([count + records // PARTITIONS for count in self.counts])

    def _await_counts(self, wanted: Sequence[int]) -> None:
        """Wait for so many of each partition; hangers are ended for others to start, as by their operator."""
        limit_s = _STUCK_S if self.client in HANGERS else WAIT_S
        lacking, since = self._lacking(wanted), time.monotonic()

        def are_there() -> bool:
            nonlocal lacking, since
            if any(now < then for now, then in zip(self._lacking(wanted), lacking, strict=True)):
                lacking, since = self._lacking(wanted), time.monotonic()
            elif time.monotonic() > since + limit_s and any(lacking):
                self._say_where()
                assert self.client in HANGERS, f"{self.client} copies nothing any more"
                self.hung += 1
                self.kill()
                since = time.monotonic()
            return not any(self._lacking(wanted))

        try:
            eventually(are_there, f"{self.client} to have copied {wanted}", 2 * WAIT_S)
        except AssertionError as e:
            raise AssertionError(f"{e}, it has {self.counts}") from e

    def _lacking(self, wanted: Sequence[int]) -> list[int]:
        return [max(0, w - count) for w, count in zip(wanted, self.counts, strict=True)]

    def _say_where(self) -> None:
        """Have the log of each say where it stands."""
        print(f"{self.client} copies nothing any more", flush=True)
        for copier in self.copiers:
            copier.ask()
        over = time.monotonic() + _ANSWER_S
        eventually(lambda: time.monotonic() > over, "them to say where they stand")

    def finish(self) -> Keys:
        """Let it copy what has come, and end it; assert that each record is there once, in its order. Return what came.

        ``source`` may grow no more.
        """
        came = read_committed(self._bootstrap, self.source)
        ends = [len(keys) for keys in came.values()]  # of records sent without transactions
        self._await_counts(ends)
        self._await_committed(ends)
        self._over.set()
        self._thread.join()
        for copier in self.copiers:
            copier.end()
        self._read()
        assert not (found := differences(came, self.copied)), f"{self.client}, to a reader: {found}"
        found = differences(came, read_committed(self._bootstrap, self.sink))
        assert not found, f"{self.client}, from the start: {found}"
        self._await_committed(ends)
        return came

    def _await_committed(self, ends: list[int]) -> None:
        def are_there() -> bool:
            try:
                return self.committed() == ends
            except KafkaException:  # an offset is pending still
                return False

        eventually(are_there, f"offsets of {self.client} at {ends}", WAIT_S)

    def committed(self) -> list[int]:
        """Return the offset of each partition that its group has committed."""
        return [self._committed(group, number) for number, group in self._groups.items()]

    def _committed(self, group: str, number: int) -> int:
        asking = Consumer({"bootstrap.servers": self._bootstrap, "group.id": group, "log_level": 0})
        try:
            offset: int = asking.committed([TopicPartition(self.source, number)], timeout=60)[0].offset
            return offset
        finally:
            asking.close()

    def close(self) -> None:
        """End everything, whatever state it is in."""
        self._over.set()
        if self._thread.ident is not None:
            self._thread.join()
        for copier in self.copiers:
            copier.close()
        self._reader.close()


@contextmanager
def loops_of(
    clients: Sequence[str],
    bootstrap: str,
    zk: ZooKeeper,
    directory: Path,
    create: Callable[[Sequence[str]], None],
    members: int = 1,
) -> Iterator[list[Loop]]:
    """Give the loops of those clients that can run here; ``create`` makes their topics."""
    with ExitStack() as closing:
        found = []
        for client in clients:
            try:
                found.append(Loop(client, PROGRAMS[client](), bootstrap, directory, members))
            except MissingError as e:
                print(f"without {client}: {e}")
            else:
                closing.callback(found[-1].close)
        topics = topics_of(found)
        create(topics)
        await_told(zk, bootstrap, topics)
        yield found


@contextmanager
def fed(bootstrap: str, loops: Sequence[Loop]) -> Iterator[None]:
    """Start them, and have records come while the block runs; then each is to be copied once and in its order."""
    trickle = Trickle(bootstrap, [loop.source for loop in loops])
    try:
        for loop in loops:
            loop.start()
        yield
    finally:
        trickle.stop()
    assert trickle.errors == []
    for loop in loops:
        came = loop.finish()
        assert {key.decode() for keys in came.values() for key in keys} == trickle.acknowledged[loop.source]


def topics_of(loops: Iterable[Loop]) -> list[str]:
    """Return what they read and what they write."""
    return [topic for loop in loops for topic in (loop.source, loop.sink)]


def read_committed(bootstrap: str, topic: str) -> Keys:
    """Read a topic from its start to its end, or to where a transaction is open."""
    found: Keys = {number: [] for number in range(PARTITIONS)}
    reader = Consumer({**_READ, "bootstrap.servers": bootstrap, "group.id": "check", "enable.partition.eof": True})
    ended: set[int] = set()
    try:
        reader.assign([TopicPartition(topic, number, OFFSET_BEGINNING) for number in found])

        def is_read() -> bool:
            for message in reader.consume(500, 0.2):
                error, partition = message.error(), message.partition() or 0
                if error is None:
                    found[partition].append(_key(message.key()))
                elif error.code() == KafkaError._PARTITION_EOF:
                    ended.add(partition)
            return ended == set(found)

        eventually(is_read, f"{topic} to be read", WAIT_S)
    finally:
        reader.close()
    return found


def differences(came: Mapping[int, Sequence[bytes]], copied: Mapping[int, Sequence[bytes]]) -> list[str]:
    """Tell what is not copied once, and in its order."""
    found = []
    for number, wanted in came.items():
        counts, times = Counter(wanted), Counter(copied[number])
        for what, keys in (("again", times - counts), ("never", counts - times)):
            if keys:
                places = [
                    (key.decode(), copied[number].index(key) if what == "again" else None) for key in list(keys)[:5]
                ]
                found.append(f"partition {number}: {keys.total()} copied {what}, the first {places}")
        if times == counts and list(copied[number]) != list(wanted):
            first = next(n for n, (a, b) in enumerate(zip(wanted, copied[number], strict=True)) if a != b)
            found.append(f"partition {number} is out of order from its record {first} on")
    return found


def _key(key: str | bytes | None) -> bytes:
    assert isinstance(key, bytes)
    return key
