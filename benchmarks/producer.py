"""A producer of single records on a thread of its own, beside what is measured: how long each request waited."""

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from types import TracebackType
from typing import Final, NamedTuple, Self

from benchmarks.clusters import Cluster, wait_for
from benchmarks.latency import Wire
from kafkatool.core.protocol.frames import decode_response, encode_request
from kafkatool.core.protocol.messages import produce
from kafkatool.core.protocol.records.batches import Record, encode_batch

_VERSION: Final = 7
_PAUSE_S: Final = 0.002
"""Between requests: it shall notice a busy broker, not keep it busy."""


class Sample(NamedTuple):
    """One request: when it was sent, by ``time.perf_counter``, and how long it waited for its answer."""

    sent_at: float
    waited_ms: float


class Producer:
    """acks=all, one record of 100 bytes a request, one request under way, to partition 0 of a topic."""

    def __init__(self, cluster: Cluster, topic: str, leader: int) -> None:
        batch = encode_batch([Record(0, int(time.time() * 1000), None, b"x" * 100)])
        records = produce.ProduceRequestPartition(partition=0, records=batch)
        message = produce.ProduceRequest(
            acks=-1, timeout_ms=30_000, topics=[produce.ProduceRequestTopic(topic=topic, partitions=[records])]
        )
        self._frame = encode_request(produce.API, _VERSION, 0, "benchmark", message)
        self._wire = Wire(cluster.ports[leader])
        wait_for(lambda: not self._send()[1], f"{cluster.name}: {topic} takes records")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        self._wire.close()

    def _send(self) -> tuple[Sample, int]:
        """Send a request, and return the error code of the answer."""
        started = time.perf_counter()
        answer = self._wire.ask(self._frame)
        elapsed = time.perf_counter() - started
        response = decode_response(produce.API, _VERSION, answer)[1]
        return Sample(started, elapsed * 1000), response.topics[0].partitions[0].error_code

    def send_many(self, count: int) -> list[Sample]:
        """Send them one after the other. Raises RuntimeError when a record was refused."""
        sent = [self._send() for _ in range(count)]
        if codes := {code for _, code in sent if code}:
            raise RuntimeError(f"records were refused with errors {codes}")
        return [sample for sample, _ in sent]

    @contextmanager
    def sending(self) -> Iterator[list[Sample]]:
        """Send beside the body until it ends; the list fills with the requests."""
        samples: list[Sample] = []
        over = threading.Event()

        def send() -> None:
            while not over.wait(_PAUSE_S):
                samples.extend(self.send_many(1))

        thread = threading.Thread(target=send, name="producer")
        thread.start()
        try:
            yield samples
        finally:
            over.set()
            thread.join()
