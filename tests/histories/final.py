"""The last phase of a run: faults are over, and every key is read from its start to its end."""

import time
from collections.abc import Sequence
from typing import Any, Final

from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, KafkaException, TopicPartition

from kafkatool.core.errors import KafkatoolError
from tests.histories.clients import facts
from tests.histories.clients.client import Cell
from tests.histories.clients.values import decode_record, key_of, partition_of, topic_of
from tests.histories.history import FAIL, OK
from tests.histories.writer import HistoryWriter

_PATIENCE_S: Final = 180
_ANEW_S: Final = 10.0
_ASKED: Final = 3  # as often, until batches are told: without them each copy is laid at the brokers' door
_FIRST_PROCESS: Final = 1_000_000


def read_everything(
    bootstrap: str, cell: Cell, writer: HistoryWriter, keys: Sequence[int], groups: Sequence[str]
) -> None:
    """Read each key to its end, beginning anew with fresh clients; then tell positions, commits, ends and batches.

    Ends that have grown meanwhile are read to as well: the marker of a transaction whose time is up comes when it likes,
    also to a partition that holds nothing else of it and kept no reader waiting.
    """
    process, ends, positions = _FIRST_PROCESS, dict[int, tuple[int, int]](), dict[int, int]()
    readers: dict[int, int] = {}  # of each key: who read it last, who alone can say what is final of it
    told: dict[int, int] | None = None
    deadline = time.monotonic() + _PATIENCE_S
    while True:
        process += 1
        ends |= _tell(writer, process, "ends", lambda: facts.ask_ends(bootstrap, keys), isolation="read_uncommitted")
        left = [key for key in keys if key not in ends or positions.get(key, -1) < ends[key][1]]
        is_over = time.monotonic() >= deadline
        if told == positions and (is_over or not left):
            break
        process += 1
        if is_over or not left:
            told, before = dict(positions), told or {}
            for reader in sorted(set(readers.values())) or [process]:
                own = {key: at for key, at in told.items() if readers[key] == reader and before.get(key) != at}
                if own or not told:
                    _tell(writer, reader, "final", own.copy)
            for group in groups:
                _tell(
                    writer, process, "committed", lambda g=group: facts.ask_committed(bootstrap, g, keys), group=group
                )
        elif ends:
            to = {key: ends[key][1] for key in left if key in ends}
            found = _read(bootstrap, cell, writer, process, left, to, deadline)
            positions |= found
            readers |= dict.fromkeys(found, process)
    for _ in range(_ASKED if ends else 0):
        if _tell(writer, process, "batches", lambda: facts.read_batches(bootstrap, keys, ends)):
            break


def _tell(writer: HistoryWriter, process: int, f: str, ask: Any, **more: Any) -> dict[int, Any]:
    writer.write(process, "invoke", f, **more)
    try:
        told: dict[int, Any] = dict(ask())
    except (KafkaException, KafkatoolError, OSError, RuntimeError) as e:
        writer.write(process, FAIL, f, error=str(e), **more)
        return {}
    writer.write(process, OK, f, told, **more)
    return told


def _read(
    bootstrap: str,
    cell: Cell,
    writer: HistoryWriter,
    process: int,
    keys: Sequence[int],
    ends: dict[int, int],
    deadline: float,
) -> dict[int, int]:
    """Read as a process of its own until all ends are reached, or nothing comes any more; return the positions."""
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": f"none-{process}",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "isolation.level": cell.isolation,
            "auto.offset.reset": "earliest",
            "log_level": 0,
        }
    )
    positions: dict[int, int] = {}
    try:
        writer.write(process, "invoke", "assign", list(keys))
        consumer.assign([TopicPartition(topic_of(k), partition_of(k), OFFSET_BEGINNING) for k in keys])
        writer.write(process, OK, "assign", list(keys), **{"from": "start"})
        moved = time.monotonic()
        while time.monotonic() < min(deadline, moved + _ANEW_S):
            if all(positions.get(key, -1) >= ends.get(key, 1 << 62) for key in keys):
                break
            writer.write(process, "invoke", "poll", [["poll"]])
            runs: dict[int, list[tuple[int, int | None]]] = {}
            for message in consumer.consume(500, 0.2):
                if message.error() is None:
                    key = key_of(message.topic(), message.partition())
                    runs.setdefault(key, []).append((message.offset(), decode_record(message)))
                    positions[key] = max(positions.get(key, 0), message.offset() + 1)
                    moved = time.monotonic()
                elif message.error().code() == KafkaError._PARTITION_EOF:
                    key = key_of(message.topic(), message.partition())
                    if message.offset() > positions.get(key, -1):
                        positions[key], moved = message.offset(), time.monotonic()
            writer.write(process, OK, "poll", [["poll", runs]])
    finally:
        consumer.close()
    return positions
