"""A process of the workload by aiokafka, in which nothing but requests is shared with librdkafka.

Its group's offsets are in no transaction: it says of such offsets neither whose they are nor of which generation (KIP-447),
so that a member which has been replaced could put them back.
"""

import asyncio
import concurrent.futures
import contextlib
import threading
import time
from collections.abc import Callable, Coroutine, Mapping, Sequence
from typing import Any, Final, TypeVar

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, ConsumerRebalanceListener, TopicPartition
from aiokafka.coordinator.assignors.range import RangePartitionAssignor
from aiokafka.errors import KafkaError as Refused

from tests.histories.clients.client import Cell, Client, Ended, Runs, told_by_librdkafka
from tests.histories.clients.values import decode_parts, key_of, keys_of, partition_of, topic_of
from tests.histories.clients.warnings import LOG
from tests.histories.history import FAIL, INFO, OK

_START_S: Final = 60.0
_END_S: Final = 30.0  # of a transaction
_COMMIT_S: Final = 10.0
_LATER_S: Final = 0.2  # longer than that a poll waits for no group
_LEAVE_S: Final = 10.0
_REFUSED: Final = (Refused, AssertionError, TimeoutError)
"""AssertionError: of a producer that has given up, and is asked for something all the same."""

Result = TypeVar("Result")


class AioKafka(Client):
    """What one process has; used by one thread. Its clients live in one loop with those of all others of this process."""

    def __init__(
        self,
        bootstrap: str,
        cell: Cell,
        process: int,
        *,
        group: str | None = None,
        transactional_id: str | None = None,
        records_a_poll: int = 100,
        poll_s: float = 0.01,
        bytes_a_fetch: int = 1,
        clock: Callable[[], int] = time.monotonic_ns,
        patient: bool = False,
    ) -> None:
        """Make its clients. Raises KafkaException if its brokers, or its transactions' coordinator, cannot be reached."""
        super().__init__(process, cell, group, patient=patient)
        self._clock = clock
        self._records_a_poll, self._poll_s = records_a_poll, poll_s
        self._heard: list[dict[str, Any]] = []  # of its group, between two polls
        self._committing: asyncio.Task[None] | None = None
        delivery_ms = int(self._delivery_s * 1000) - 1000
        common: dict[str, Any] = {
            "bootstrap_servers": bootstrap,
            "request_timeout_ms": delivery_ms,
            "metadata_max_age_ms": 2000,
            "retry_backoff_ms": 50,
        }
        producing: dict[str, Any] = {
            **common,
            "acks": cell.acks if cell.acks == "all" else int(cell.acks),
            "linger_ms": 1,
            "enable_idempotence": cell.guarantee != "plain",
        }
        if transactional_id is not None:
            producing |= {"transactional_id": transactional_id, "transaction_timeout_ms": delivery_ms + 1000}
        consuming: dict[str, Any] = {
            **common,
            "group_id": group,
            "enable_auto_commit": False,
            "auto_offset_reset": "earliest",
            "isolation_level": cell.isolation,
            "session_timeout_ms": self._session_ms,
            "heartbeat_interval_ms": 1000,
            "fetch_max_wait_ms": 100,
            "fetch_min_bytes": bytes_a_fetch,
            "partition_assignment_strategy": (RangePartitionAssignor,),
        }

        async def start() -> None:
            self._producer, self._consumer = AIOKafkaProducer(**producing), AIOKafkaConsumer(**consuming)
            try:
                await asyncio.wait_for(asyncio.gather(self._producer.start(), self._consumer.start()), _START_S)
            except BaseException:
                await self._leave()
                raise

        with told_by_librdkafka(*_REFUSED):
            _in_loop(start())

    # --- sends and polls

    def send(self, sends: Sequence[tuple[int, int]]) -> list[tuple[int | None, str]]:
        return _in_loop(self._send(sends))

    async def _send(self, sends: Sequence[tuple[int, int]]) -> list[tuple[int | None, str]]:
        outcomes: list[tuple[int | None, str]] = [(None, INFO)] * len(sends)
        deadline = time.monotonic() + self._delivery_s
        waiting: dict[int, asyncio.Future[Any]] = {}
        for number, (key, value) in enumerate(sends):
            sending = self._producer.send(topic_of(key), partition=partition_of(key), **self._record(key, value))
            try:
                waiting[number] = await asyncio.wait_for(sending, max(deadline - time.monotonic(), 0.0))
            except (*_REFUSED, TypeError) as e:  # nothing was sent; TypeError: of a topic that it does not know yet
                outcomes[number] = (None, FAIL)
                self.broken |= isinstance(e, Refused) and not e.retriable
        if waiting:
            await asyncio.wait(waiting.values(), timeout=max(deadline - time.monotonic(), 0.0))
        for number, future in waiting.items():
            if future.done() and not future.cancelled() and future.exception() is None:
                offset = future.result().offset
                outcomes[number] = (offset if offset >= 0 else None, OK)
        return outcomes

    def poll(self) -> Runs:
        with told_by_librdkafka(*_REFUSED):
            return _in_loop(self._poll())

    async def _poll(self) -> Runs:
        polling = self._consumer.getmany(timeout_ms=int(self._poll_s * 1000), max_records=self._records_a_poll)
        try:
            polled = await asyncio.wait_for(polling, _LATER_S)
        except TimeoutError:  # its group is sharing anew
            polled = {}
        # What it heard of its group came before these records: what was fetched for another assignment is never given.
        for event in self._heard:
            for key in event["keys"]:
                self.positions.pop(key, None)
        self.events += self._heard
        self._heard = []
        runs: Runs = {}
        for partition, records in polled.items():
            key = key_of(partition.topic, partition.partition)
            for record in records:
                runs.setdefault(key, []).append((record.offset, decode_parts(record.value, record.headers)))
                self.positions[key] = record.offset + 1
        return runs

    # --- keys

    def assign(self, keys: Sequence[int], *, from_start: bool = False) -> None:
        starts = self._starts_of(keys, from_start=from_start)

        async def assign() -> None:
            self._consumer.assign([_partition(key) for key in keys])
            for key, at in starts.items():
                self._consumer.seek(_partition(key), at)

        _in_loop(assign())

    def subscribe(self, keys: Sequence[int]) -> None:
        async def subscribe() -> None:
            self._consumer.subscribe(sorted({topic_of(key) for key in keys}), listener=_Listener(self._note))

        _in_loop(subscribe())

    def _note(self, what: str, partitions: set[TopicPartition]) -> None:
        if self._committing is not None:  # by itself it would ask again in its next generation
            self._committing.cancel()
        if what == "revoked" and self.generation is None:
            what = "lost"
        keys = sorted(keys_of(partitions))
        self._heard.append({"what": what, "keys": keys, "generation": self.generation, "time": self._clock()})

    @property
    def generation(self) -> int | None:
        if self.group is None:
            return None
        told = self._consumer._coordinator.generation  # noqa: SLF001  # told nowhere else
        return int(told) if told >= 0 else None

    @property
    def member(self) -> str | None:
        return None if self.group is None else self._consumer._coordinator.member_id or None  # noqa: SLF001

    def seek_back(self, positions: Mapping[int, int]) -> None:
        async def seek() -> None:
            for key, position in positions.items():
                with contextlib.suppress(Refused):  # no longer its own
                    self._consumer.seek(_partition(key), position)
                    self.positions[key] = position

        _in_loop(seek())

    def commit(self, offsets: Mapping[int, int]) -> str:
        return _in_loop(self._commit(offsets))

    async def _commit(self, offsets: Mapping[int, int]) -> str:
        """Commit in the generation that its polls were told of; one without would be anybody's."""
        if self._heard or self.generation is None:
            return FAIL
        self._committing = asyncio.create_task(
            self._consumer.commit({_partition(key): offset for key, offset in offsets.items()})
        )
        try:
            await asyncio.wait_for(self._committing, _COMMIT_S)
        except (*_REFUSED, asyncio.CancelledError):
            return INFO
        finally:
            self._committing = None
        return OK

    # --- transactions

    def begin(self) -> None:
        with told_by_librdkafka(*_REFUSED):
            _in_loop(asyncio.wait_for(self._producer.begin_transaction(), _END_S))

    def commit_transaction(self) -> Ended:
        asked_at = self._clock()
        try:
            _in_loop(asyncio.wait_for(self._producer.commit_transaction(), _END_S))
        except AssertionError:  # it had given up before it was asked
            return Ended(FAIL, False, None)
        except (Refused, TimeoutError) as e:
            LOG.getChild(f"process-{self.process}").warning("does not know how a transaction ended: %r", e)
            return Ended(INFO, False, asked_at)
        return Ended(OK, True, asked_at)

    def abort_transaction(self) -> Ended:
        try:
            _in_loop(asyncio.wait_for(self._producer.abort_transaction(), _END_S))
        except _REFUSED:
            return Ended(FAIL, False, None)
        return Ended(FAIL, True, None)

    def close(self) -> None:
        _in_loop(self._leave())

    async def _leave(self) -> None:
        stop_sending = self._producer._sender.close  # noqa: SLF001  # a producer that stops sends all that waits first
        for leave in (stop_sending, self._producer.stop, self._consumer.stop):
            with contextlib.suppress(*_REFUSED, asyncio.CancelledError):  # of a task of its own that it waits for
                await asyncio.wait_for(leave(), _LEAVE_S)


class _Listener(ConsumerRebalanceListener):  # type: ignore[misc]  # aiokafka's has no types
    """Hands on what a group's member is told."""

    def __init__(self, note: Callable[[str, set[TopicPartition]], None]) -> None:
        self._note = note

    def on_partitions_revoked(self, revoked: set[TopicPartition]) -> None:
        if revoked:
            self._note("revoked", revoked)

    def on_partitions_assigned(self, assigned: set[TopicPartition]) -> None:
        self._note("assigned", assigned)


_loop: asyncio.AbstractEventLoop | None = None
_making: Final = threading.Lock()


def _in_loop(work: Coroutine[Any, Any, Result]) -> Result:
    """Return what comes of it in the loop of this process, which a thread of its own runs.

    Raises aiokafka's own error for a task that it ended itself while others waited for it.
    """
    global _loop
    with _making:
        if _loop is None:
            _loop = asyncio.new_event_loop()
            _loop.set_exception_handler(lambda _, context: LOG.warning("%s", context))
            threading.Thread(target=_loop.run_forever, daemon=True, name="aiokafka").start()
    try:
        return asyncio.run_coroutine_threadsafe(work, _loop).result()
    except concurrent.futures.CancelledError as e:
        raise Refused("its task was ended") from e


def _partition(key: int) -> TopicPartition:
    return TopicPartition(topic_of(key), partition_of(key))
