"""Reading one partition of ``__transaction_state`` (TXN-9, 11)."""

import logging
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from kafkatool.broker.coordination.log_walk import walk
from kafkatool.broker.storage.log.log import Log
from kafkatool.broker.transactions.records import decode_key, decode_value
from kafkatool.broker.transactions.transaction import Transaction
from kafkatool.core.errors import CorruptRecordsError
from kafkatool.core.protocol.records.batches import CONTROL, BatchHeader, Record

log = logging.getLogger(__name__)


@dataclass(slots=True)
class Loaded:
    """What the records of a partition say. ``damaged``: ids whose value in force cannot be decoded, with its time in ms."""

    partition: str
    transactions: dict[str, Transaction] = field(default_factory=dict)
    damaged: dict[str, int] = field(default_factory=dict)

    def apply(self, header: BatchHeader, records: Iterable[Record]) -> None:
        """Apply the next batch of the log. What no key can be read from is skipped, with a log line."""
        if header.attributes & CONTROL:
            return
        for record in records:
            try:
                key = decode_key(record.key) if record.key is not None else None
            except CorruptRecordsError as e:
                log.error("%s: the record at %d is skipped, its key is damaged: %s", self.partition, record.offset, e)
                continue
            if key is None:
                continue
            self.damaged.pop(key, None)
            self.transactions.pop(key, None)
            if record.value is None:
                continue
            try:
                self.transactions[key] = decode_value(record.value)
            except CorruptRecordsError as e:
                self.damaged[key] = record.timestamp
                log.error(
                    "%s: transactional id %s is not served until it expires: the record at offset %d is damaged: %s",
                    self.partition,
                    key,
                    record.offset,
                    e,
                )


def load(source: Log, buffer_size: int, wanted: Callable[[], bool]) -> Loaded | None:
    """Read from log start to log end. None: no longer ``wanted``. Raises StorageError, CorruptRecordsError: see ``walk``."""
    loaded = Loaded(str(source.partition))
    return None if walk(source, buffer_size, wanted, loaded.apply) is None else loaded
