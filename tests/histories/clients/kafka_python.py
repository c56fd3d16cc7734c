"""A process of the workload by kafka-python, whose consumers keep fetch sessions (KIP-227): librdkafka's keep none.

It is assigned its keys and sends without transactions: what waits for the end of a transaction there cannot be given up.
"""

import contextlib
import time
from collections.abc import Sequence
from typing import Any, Final

from kafka import KafkaConsumer, KafkaProducer, TopicPartition
from kafka.errors import KafkaError as Refused

from tests.histories.clients.client import PATIENT_S, Cell, Client, Runs, told_by_librdkafka
from tests.histories.clients.values import decode, key_of, partition_of, topic_of
from tests.histories.history import FAIL, INFO, OK

_METADATA_MS: Final = 3000  # as long may a send wait to know where to
_CLOSE_S: Final = 1.0


class KafkaPython(Client):
    """What one process has; used by one thread. It is in no group, and in no transaction."""

    def __init__(
        self,
        bootstrap: str,
        cell: Cell,
        process: int,
        *,
        records_a_poll: int = 100,
        poll_s: float = 0.01,
        bytes_a_fetch: int = 1,
        patient: bool = False,
        **_: object,
    ) -> None:
        """Make its clients. Raises KafkaException if no broker can be reached."""
        super().__init__(process, cell, patient=patient)
        self._records_a_poll, self._poll_ms = records_a_poll, int(poll_s * 1000)
        common: dict[str, Any] = {
            "bootstrap_servers": bootstrap.split(","),
            "request_timeout_ms": int(self._delivery_s * 1000) - 2000,
            "metadata_max_age_ms": 2000,
            "retry_backoff_ms": 50,
            "metrics_enabled": False,
        }
        with told_by_librdkafka(Refused):
            self._producer = KafkaProducer(
                **common,
                acks=cell.acks if cell.acks == "all" else int(cell.acks),
                enable_idempotence=cell.guarantee == "idempotent",
                max_in_flight_requests_per_connection=cell.options["in_flight"],
                linger_ms=1,
                delivery_timeout_ms=int(self._delivery_s * 1000) - 1000,
                max_block_ms=int(PATIENT_S * 1000) if patient else _METADATA_MS,
            )
            try:
                self._consumer = KafkaConsumer(
                    **common,
                    enable_auto_commit=False,
                    auto_offset_reset="earliest",
                    isolation_level=cell.isolation,
                    fetch_max_wait_ms=100,
                    fetch_min_bytes=bytes_a_fetch,
                )
            except BaseException:
                self._producer.close(0)
                raise

    def send(self, sends: Sequence[tuple[int, int]]) -> list[tuple[int | None, str]]:
        outcomes: list[tuple[int | None, str]] = [(None, INFO)] * len(sends)
        waiting: dict[int, Any] = {}
        for number, (key, value) in enumerate(sends):
            try:
                waiting[number] = self._producer.send(
                    topic_of(key), partition=partition_of(key), **self._record(key, value)
                )
            except Refused as e:
                outcomes[number] = (None, FAIL)  # nothing was sent
                self.broken |= not e.retriable
        deadline = time.monotonic() + self._delivery_s
        for number, future in waiting.items():
            with contextlib.suppress(Refused):  # an attempt before the last may have been appended
                offset = future.get(max(deadline - time.monotonic(), 0.0)).offset
                outcomes[number] = (offset if offset >= 0 else None, OK)
        return outcomes

    def poll(self) -> Runs:
        with told_by_librdkafka(Refused):
            polled = self._consumer.poll(self._poll_ms, self._records_a_poll)
        runs: Runs = {}
        for partition, records in polled.items():
            key = key_of(partition.topic, partition.partition)
            for record in records:
                runs.setdefault(key, []).append((record.offset, decode(record.value)))
                self.positions[key] = record.offset + 1
        return runs

    def assign(self, keys: Sequence[int], *, from_start: bool = False) -> None:
        starts = self._starts_of(keys, from_start=from_start)
        self._consumer.assign([_partition(key) for key in keys])
        for key, at in starts.items():
            self._consumer.seek(_partition(key), at)

    def close(self) -> None:
        with contextlib.suppress(Refused):
            self._producer.close(_CLOSE_S)
        with contextlib.suppress(Refused):
            self._consumer.close(autocommit=False)


def _partition(key: int) -> TopicPartition:
    return TopicPartition(topic_of(key), partition_of(key))
