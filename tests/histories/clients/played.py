"""confluent-kafka as a test says: producers and consumers whose calls end as told, by a clock that only they move;
and what other libraries' classes are replaced by.
"""

import struct
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from types import ModuleType, SimpleNamespace
from typing import Any, Final, TypeVar

import pytest
from confluent_kafka import KafkaError, KafkaException, TopicPartition

from tests.histories.clients import librdkafka
from tests.histories.clients.values import partition_of, topic_of

CODES: Final = sorted({code for code in vars(KafkaError).values() if isinstance(code, int)} | {9999})
"""Every error there is: Kafka's, below 0 librdkafka's own, and one that nobody knows."""
_CALL_S: Final = 1.0
_ENDLESS_S: Final = 100_000

T = TypeVar("T")
Delivered = Callable[[KafkaError | None, Any], None]


def raised(code: int, **flags: bool) -> KafkaException:
    """Return what a call raises; flags are fatal, retriable and txn_requires_abort."""
    return KafkaException(KafkaError(code, "as the test says", **flags))


def stand_in(
    monkeypatch: pytest.MonkeyPatch, recorder: ModuleType, names: Iterable[str], kind: Callable[..., T]
) -> list[T]:
    """Have these classes of a recorder's library be that one; return the list to which each that is made is added."""
    made: list[T] = []

    def make(**settings: Any) -> T:
        made.append(kind(**settings))
        return made[-1]

    for name in names:
        monkeypatch.setattr(recorder, name, make)
    return made


class Library:
    """What is made by it is kept; ``ends`` has, by a call's name, how its next calls end: None, or what they raise."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = 0.0
        self.calls: list[str] = []
        self.ends: dict[str, Iterator[Exception | None]] = defaultdict(lambda: iter(()))
        self.producers: list[Producer] = []
        self.consumers: list[Consumer] = []
        clock = SimpleNamespace(
            monotonic=lambda: self.now, monotonic_ns=lambda: int(self.now * 10**9), sleep=self.pass_time
        )
        monkeypatch.setattr(librdkafka, "time", clock)
        monkeypatch.setattr(librdkafka, "Producer", self._producer)
        monkeypatch.setattr(librdkafka, "Consumer", self._consumer)

    def _producer(self, settings: Mapping[str, Any]) -> "Producer":
        self.producers.append(Producer(self, settings))
        return self.producers[-1]

    def _consumer(self, settings: Mapping[str, Any], logger: object = None) -> "Consumer":
        self.consumers.append(Consumer(self, settings))
        return self.consumers[-1]

    def pass_time(self, seconds: float) -> None:
        self.now += seconds
        assert self.now < _ENDLESS_S, "it is waited for ever"

    def end(self, call: str, *how: Exception | None) -> None:
        """Have the next calls of that name end so, one after the other."""
        self.ends[call] = iter(how)

    def always(self, call: str, how: Exception) -> None:
        self.ends[call] = iter(lambda: how, None)

    def called(self, name: str) -> None:
        """Take a second, and raise what this call ends with."""
        self.calls.append(name)
        self.pass_time(_CALL_S)
        if (how := next(self.ends[name], None)) is not None:
            raise how


class Producer:
    """``deliveries``: what becomes of its next records, an error or an offset; of others nothing is heard."""

    def __init__(self, library: Library, settings: Mapping[str, Any]) -> None:
        self.settings = settings
        self.deliveries: Iterator[KafkaError | int | None] = iter(())
        self.sent: list[tuple[str, int, bytes, object, object]] = []
        self.unheard: list[Delivered] = []
        self._library = library
        self._waiting: list[Callable[[], None]] = []

    def produce(
        self,
        topic: str,
        value: Any = None,
        key: Any = None,
        *,
        partition: int,
        on_delivery: Delivered,
        headers: Any = None,
    ) -> None:
        self._library.called("produce")
        self.sent.append((topic, partition, value, key, headers))
        try:
            told = next(self.deliveries)
        except StopIteration:
            self.unheard.append(on_delivery)
            return
        error, offset = (told, None) if isinstance(told, KafkaError) else (None, told)
        self._waiting.append(lambda: on_delivery(error, SimpleNamespace(offset=lambda: offset)))

    def poll(self, seconds: float) -> int:
        self._library.called("producer poll")
        self._library.pass_time(seconds)
        while self._waiting:
            self._waiting.pop(0)()
        return 0

    def __getattr__(self, name: str) -> Callable[..., None]:
        """Return a call of a transaction, or ``purge``, of which only the end matters."""
        if name.endswith("transaction") or name in ("init_transactions", "purge"):
            return lambda *_: self._library.called(name)
        raise AttributeError(name)


class Consumer:
    """``batches``: what its next calls of ``consume`` deliver, or do."""

    def __init__(self, library: Library, settings: Mapping[str, Any]) -> None:
        self.settings = settings
        self.batches: list[list[Any] | Callable[[], list[Any]]] = []
        self.assigned: list[list[tuple[str, int, int]]] = []
        self.subscribed: list[list[str]] = []
        self.seeks: list[tuple[str, int, int]] = []
        self.commits: list[list[tuple[str, int, int]]] = []
        self.callbacks: dict[str, Callable[[Any, list[TopicPartition]], None]] = {}
        self.generation, self.member = -1, ""
        self.told: Mapping[int, int] = {}  # committed
        self.refused: frozenset[int] = frozenset()  # partitions of which a commit tells an error
        self._library = library

    def consume(self, _: int, __: float) -> list[Any]:
        self._library.called("consume")
        batch = self.batches.pop(0) if self.batches else []
        return batch() if callable(batch) else batch

    def assign(self, partitions: Sequence[TopicPartition]) -> None:
        self.assigned.append(_plain(partitions))

    def subscribe(self, topics: list[str], **callbacks: Callable[[Any, list[TopicPartition]], None]) -> None:
        self.subscribed.append(topics)
        self.callbacks = callbacks

    def tell(self, what: str, *keys: int) -> None:
        """Call back, as librdkafka does out of ``consume``."""
        self.callbacks[f"on_{what}"](self, [TopicPartition(topic_of(key), partition_of(key)) for key in keys])

    def committed(self, partitions: Sequence[TopicPartition], _: float) -> list[Any]:
        self._library.called("committed")
        return [
            SimpleNamespace(topic=p.topic, partition=p.partition, offset=self.told.get(p.partition, -1001), error=None)
            for p in partitions
        ]

    def commit(self, *, offsets: Sequence[TopicPartition], asynchronous: bool) -> list[Any]:
        assert not asynchronous
        self._library.called("commit")
        self.commits.append(_plain(offsets))
        return [SimpleNamespace(error=KafkaError(25) if p.partition in self.refused else None) for p in offsets]

    def seek(self, partition: TopicPartition) -> None:
        self._library.called("seek")
        self.seeks += _plain([partition])

    def consumer_group_metadata(self) -> bytes:
        return b"CGMDv2:" + struct.pack("<i", self.generation)

    def memberid(self) -> str:
        return self.member

    def close(self) -> None:
        self._library.called("close")


def record(key: int, offset: int, data: bytes | None, **more: Any) -> Any:
    """Return a message as ``consume`` delivers it; ``error`` makes it one that tells of an error."""
    return SimpleNamespace(
        error=lambda: more.get("error"),
        topic=lambda: topic_of(key),
        partition=lambda: partition_of(key),
        offset=lambda: offset,
        value=lambda: data,
        headers=lambda: more.get("headers"),
    )


def _plain(partitions: Iterable[TopicPartition]) -> list[tuple[str, int, int]]:
    return [(p.topic, p.partition, p.offset) for p in partitions]
