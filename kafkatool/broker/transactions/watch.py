"""What administrators ask of a coordinator: how many transactions ended how, and which end takes too long (TXN-23)."""

import logging
import threading
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from kafkatool.broker.transactions.owned import Entry
from kafkatool.broker.transactions.states import PREPARED, TransactionState

log = logging.getLogger(__name__)

LONG_MS = 300_000
"""An end that takes longer is told of."""
_TOLD_AGAIN_MS = 60_000
_S = TransactionState


@dataclass(slots=True)
class Watch:
    """Counters since the broker's start, and the ends that take long. Thread-safe.

    A transaction counts when its record is in force: begun with the first partition, committed or aborted with the
    decision, whoever took it; one that timed out is also one of those aborted.
    """

    begun: int = 0
    committed: int = 0
    aborted: int = 0
    timed_out: int = 0
    oldest_prepare_ms: Mapping[int, int] = field(default_factory=dict)
    """For each partition of ``__transaction_state`` with a decided end under way: how old the oldest was."""
    _told_ms: dict[str, int] = field(default_factory=dict)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def moved(self, before: TransactionState | None, to: TransactionState) -> None:
        """Note a move that is in force."""
        with self._lock:
            self.begun += to is _S.ONGOING and before is not _S.ONGOING
            self.committed += to is _S.PREPARE_COMMIT
            self.aborted += to is _S.PREPARE_ABORT

    def timed_one_out(self) -> None:
        """Note that a transaction was aborted because it took too long."""
        with self._lock:
            self.timed_out += 1

    def look(self, entries: Iterable[Entry], now_ms: int) -> None:
        """Look at all ids; log a decided end that is older than five minutes, once a minute. One thread calls it."""
        oldest: dict[int, int] = {}
        told: dict[str, int] = {}
        for entry in entries:
            with entry.lock:
                value, unmarked, gone = entry.value, entry.unmarked, entry.gone
            if gone or value is None or value.state not in PREPARED:
                continue
            age_ms = max(now_ms - value.update_ms, 0)
            oldest[entry.partition] = max(age_ms, oldest.get(entry.partition, 0))
            if age_ms <= LONG_MS:
                continue
            last_ms = self._told_ms.get(entry.id)
            if last_ms is not None and now_ms - last_ms < _TOLD_AGAIN_MS:
                told[entry.id] = last_ms
                continue
            told[entry.id] = now_ms
            log.warning(
                "transactional id %s: producer %d epoch %d is in %s for %d s, without a marker in %s",
                entry.id,
                value.producer_id,
                value.epoch,
                value.state.label,
                age_ms // 1000,
                ", ".join(map(str, sorted(unmarked))) or "no partition",
            )
        self.oldest_prepare_ms, self._told_ms = oldest, told
