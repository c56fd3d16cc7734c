"""A process of the workload by confluent-kafka: one producer, one consumer, and what each call's end means."""

import contextlib
import struct
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, Producer, TopicPartition

from tests.histories.clients.client import START, Cell, Client, Ended, Runs
from tests.histories.clients.values import decode_record, key_of, keys_of, partition_of, topic_of
from tests.histories.clients.warnings import LOG
from tests.histories.history import FAIL, INFO, OK

_RETRIES_S: Final = 30.0
_LOST_S: Final = 60.0  # of a call that is asked again for half of that
_BEGINNING_S: Final = 3.0  # a transaction may be open meanwhile, and others wait for the rebalance
_BEGINNING_LATER_S: Final = 1.0  # of each poll, until it is told
_PAUSE_S: Final = 0.1
_QUIET: Final = {"log_level": 0, "socket.timeout.ms": 8000, "topic.metadata.refresh.interval.ms": 2000}

_WARNINGS: Final = 4  # of a log's levels: among them each offset that the client reset by itself, told nowhere else


class Librdkafka(Client):
    """What one process has; used by one thread."""

    def __init__(
        self,
        bootstrap: str,
        cell: Cell,
        process: int,
        *,
        group: str | None = None,
        transactional_id: str | None = None,
        transaction_timeout_ms: int | None = None,
        records_a_poll: int = 100,
        poll_s: float = 0.01,
        bytes_a_fetch: int = 1,
        clock: Callable[[], int] = time.monotonic_ns,
        client_id: str = "rdkafka",
        heartbeat_ms: int = 1000,
        generation_of: Callable[[str | None], int | None] | None = None,
        patient: bool = False,
    ) -> None:
        """``generation_of`` tells a member's generation, where somebody reads the frames; else the client is asked.

        Who is ``patient`` gives up nothing while machines stand still: no send, no session and no transaction.
        """
        super().__init__(process, cell, group, patient=patient)
        self._lost = False  # whether its producer does not even return from a call
        self._unbegun: list[TopicPartition] = []  # those of which it has yet to be told where to begin
        self._clock = clock
        self._generation_of = generation_of
        self._records_a_poll, self._poll_s = records_a_poll, poll_s
        delivery_ms = int(self._delivery_s * 1000) - 1000
        quiet = {**_QUIET, **({"socket.timeout.ms": delivery_ms} if patient else {})}
        producing: dict[str, Any] = {
            "bootstrap.servers": bootstrap,
            "acks": cell.acks,
            "linger.ms": 1,
            "message.timeout.ms": delivery_ms,
            "retry.backoff.ms": 50,
            "client.id": client_id,
            **quiet,
        }
        if transactional_id is not None:
            timeout_ms = transaction_timeout_ms or delivery_ms + 1000
            producing |= {"transactional.id": transactional_id, "transaction.timeout.ms": timeout_ms}
        else:
            producing["enable.idempotence"] = cell.guarantee == "idempotent"
        self._producer = Producer(producing)
        if transactional_id is not None:
            _again(lambda: self._producer.init_transactions(10.0), _RETRIES_S * 2)
        self._consumer = Consumer(
            {
                "bootstrap.servers": bootstrap,
                "group.id": group or f"none-{process}",
                "session.timeout.ms": self._session_ms,
                "heartbeat.interval.ms": heartbeat_ms,
                "enable.auto.commit": False,
                "auto.offset.reset": "earliest",
                "isolation.level": cell.isolation,
                "fetch.wait.max.ms": 100,  # a fetch that finds nothing costs the brokers as much as one that finds something
                "fetch.min.bytes": bytes_a_fetch,
                "fetch.error.backoff.ms": 50,
                "partition.assignment.strategy": "range",
                "client.id": client_id,
                **quiet,
                "log_level": _WARNINGS,
            },
            logger=LOG.getChild(f"process-{process}"),
        )

    # --- sends and polls

    def send(self, sends: Sequence[tuple[int, int]]) -> list[tuple[int | None, str]]:
        outcomes: list[tuple[int | None, str]] = [(None, INFO)] * len(sends)
        waiting = set()

        def noter(number: int) -> Callable[[KafkaError | None, Message], None]:
            def delivered(error: KafkaError | None, message: Message) -> None:
                waiting.discard(number)
                if error is None:
                    offset = message.offset()
                    outcomes[number] = (offset if offset is not None and offset >= 0 else None, OK)

            return delivered

        for number, (key, value) in enumerate(sends):
            record = self._record(key, value)
            try:
                self._producer.produce(topic_of(key), partition=partition_of(key), on_delivery=noter(number), **record)
                waiting.add(number)
            except (BufferError, KafkaException) as e:
                outcomes[number] = (None, FAIL)  # nothing was sent
                self.broken |= isinstance(e, KafkaException)
        deadline = time.monotonic() + self._delivery_s
        while waiting and time.monotonic() < deadline and not self.broken:
            try:
                self._producer.poll(0.02)
            except KafkaException:  # the producer will send nothing more; what is under way may arrive
                self.broken = True
        return list(outcomes)

    def poll(self) -> Runs:
        self._begin_by_number(_BEGINNING_LATER_S)
        return self._sorted_out(self._consumer.consume(self._records_a_poll, self._poll_s))

    def _sorted_out(self, messages: Sequence[Message]) -> Runs:
        runs: Runs = {}
        for message in messages:
            if message.error() is None:
                key = key_of(message.topic(), message.partition())
                runs.setdefault(key, []).append((message.offset(), decode_record(message)))
                self.positions[key] = message.offset() + 1
        return runs

    # --- keys

    def assign(self, keys: Sequence[int], *, from_start: bool = False) -> None:
        starts = self._starts_of(keys, from_start=from_start)
        self._consumer.assign([_partition(key, at) for key, at in starts.items()])

    def subscribe(self, keys: Sequence[int]) -> None:
        self._consumer.subscribe(
            sorted({topic_of(key) for key in keys}),
            on_assign=self._begin,
            on_revoke=lambda _, partitions: self._note("revoked", partitions),
            on_lost=lambda _, partitions: self._note("lost", partitions),
        )

    def _begin(self, _: Consumer, partitions: list[TopicPartition]) -> None:
        """Begin keys of a group by number, as those of ``assign`` begin, for the same reason; as soon as it is told it."""
        self._note("assigned", partitions)
        self._unbegun = partitions
        self._begin_by_number(_BEGINNING_S)
        if self._unbegun:
            self._consumer.assign([])  # by itself it may take no answer for a start (docs/known-faults.md)

    def _begin_by_number(self, seconds: float) -> None:
        deadline = time.monotonic() + seconds
        while self._unbegun and (left_s := deadline - time.monotonic()) > 0:
            with contextlib.suppress(KafkaException):
                told = self._consumer.committed(self._unbegun, left_s)
                if all(p.error is None for p in told):
                    began = [TopicPartition(p.topic, p.partition, max(p.offset, START)) for p in told]
                    self._consumer.assign(began)
                    self.began = {key: p.offset for p in began for key in keys_of([p])}
                    self._unbegun = []
                    return
            time.sleep(_PAUSE_S)

    def _note(self, what: str, partitions: Sequence[TopicPartition]) -> None:
        keys = keys_of(partitions)
        for key in keys:
            self.positions.pop(key, None)
            self.began.pop(key, None)
        self._unbegun = []
        event = {"what": what, "keys": keys, "generation": self.generation, "time": self._clock()}
        self.events.append(event)

    @property
    def generation(self) -> int | None:
        """The member's generation, as frames tell it, or out of what librdkafka hands to producers: "CGMDv2:", 32 bits."""
        if self._generation_of is not None:
            return self._generation_of(self.member)
        metadata = self._consumer.consumer_group_metadata()
        (generation,) = struct.unpack_from("<i", metadata, len(b"CGMDv2:"))
        return int(generation) if generation >= 0 else None

    @property
    def member(self) -> str | None:
        return self._consumer.memberid() or None

    def seek_back(self, positions: Mapping[int, int]) -> None:
        for key, position in positions.items():
            try:
                self._consumer.seek(_partition(key, position))
            except KafkaException:
                continue  # no longer its own
            self.positions[key] = position

    def commit(self, offsets: Mapping[int, int]) -> str:
        try:
            told = self._consumer.commit(offsets=[_partition(k, o) for k, o in offsets.items()], asynchronous=False)
        except KafkaException:
            return INFO
        return OK if told is not None and all(p.error is None for p in told) else INFO

    # --- transactions

    def begin(self) -> None:
        self._producer.begin_transaction()

    def send_offsets(self, offsets: Mapping[int, int]) -> None:
        """Raises KafkaException, also where it never returns (docs/known-faults.md): its producer is left alone then."""
        partitions = [_partition(key, offset) for key, offset in offsets.items()]
        metadata = self._consumer.consumer_group_metadata()
        producer, ended = self._producer, list[BaseException | None]()

        def send() -> None:
            try:
                _again(lambda: producer.send_offsets_to_transaction(partitions, metadata, 8.0), _RETRIES_S)
                ended.append(None)
            except BaseException as e:  # noqa: BLE001  # it is raised where it is waited for
                ended.append(e)

        thread = threading.Thread(target=send, daemon=True, name="offsets")
        thread.start()
        thread.join(_LOST_S)
        if not ended:
            self._lost = True
            LOG.getChild(f"process-{self.process}").warning("leaves its producer, which does not return from offsets")
            raise KafkaException(KafkaError(KafkaError._TIMED_OUT, "it does not return"))
        if ended[0] is not None:
            raise ended[0]

    def commit_transaction(self) -> Ended:
        asked_at = self._clock()
        try:
            _again(lambda: self._producer.commit_transaction(10.0), _RETRIES_S)
        except KafkaException as e:
            if not e.args[0].txn_requires_abort():
                return Ended(INFO, False, asked_at)
            aborted = self._abort()
            return Ended(FAIL, True, asked_at) if aborted else Ended(INFO, False, asked_at)
        return Ended(OK, True, asked_at)

    def abort_transaction(self) -> Ended:
        return Ended(FAIL, self._abort(), None)

    def _abort(self) -> bool:
        if self._lost:
            return False
        try:
            _again(lambda: self._producer.abort_transaction(10.0), _RETRIES_S)
        except KafkaException:
            return False
        return True

    def close(self) -> None:
        of_producer = () if self._lost else (self._producer.purge, lambda: self._producer.poll(0))
        for leave in (*of_producer, self._consumer.close):
            # Of a producer that was fenced every call says so; now and then confluent-kafka 2.16 stumbles over saying it.
            with contextlib.suppress(KafkaException, SystemError):
                leave()
        del self._producer, self._consumer  # whose callbacks hold this: threads would go on until the collector comes


def _again(call: Callable[[], object], seconds: float) -> None:
    """Call, and call again while the error says that it may be. Raises KafkaException."""
    deadline = time.monotonic() + seconds
    while True:
        try:
            call()
            return
        except KafkaException as e:
            if not e.args[0].retriable() or time.monotonic() > deadline:
                raise


def _partition(key: int, offset: int) -> TopicPartition:
    return TopicPartition(topic_of(key), partition_of(key), offset)
