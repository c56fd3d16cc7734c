"""The transactional ids whose partition of ``__transaction_state`` this broker leads: found, made, loaded, let go."""

import logging
import threading
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field

from kafkatool.broker.coordination.led_topic import LedTopic
from kafkatool.broker.coordination.ownership import Ownership, Term
from kafkatool.broker.coordination.partition_count import PartitionCount
from kafkatool.broker.metadata_cache import MetadataCache
from kafkatool.broker.replication.replica_manager import ReplicaManager
from kafkatool.broker.runtime.scheduler import Scheduler
from kafkatool.broker.runtime.timer import TimerTask
from kafkatool.broker.settings.config import BrokerConfig
from kafkatool.broker.storage.log.log import Log
from kafkatool.broker.transactions.decisions import Outcome, loaded
from kafkatool.broker.transactions.loader import Loaded, load
from kafkatool.broker.transactions.transaction import Transaction
from kafkatool.core.model.topic_names import TRANSACTION_TOPIC
from kafkatool.core.model.values import TopicPartition
from kafkatool.core.protocol.messages.error_codes import ErrorCode

log = logging.getLogger(__name__)

_AGAIN_MS = 1000  # a wait for replicas that came to nothing, though the partition is led here


@dataclass(slots=True, eq=False)
class Request:
    """A request about one transactional id: ``decide`` says what becomes of it, ``done`` hears code and identity, once.

    ``decide(known, busy, now_ms, fresh_id)``: see ``decisions``.
    """

    transactional_id: str
    decide: Callable[[Transaction | None, bool, int, int | None], Outcome]
    done: Callable[[ErrorCode, Transaction | None], None]
    creates: bool = False
    fresh_id: int | None = None
    patience: TimerTask | None = None
    """Ends its wait; set when it is parked for the first time."""
    waits_at: "Entry | None" = None
    has_waited: bool = False
    """It is not parked any more. Under the lock of ``waits_at``."""


@dataclass(slots=True, eq=False)
class Entry:
    """A transactional id. Decided upon under its lock; ``value`` is what the log is known to hold, None: nothing yet.

    ``in_flight``: what a record on its way to the log says; ``unmarked``: in Prepare, the partitions without marker.
    """

    id: str
    partition: int
    since: Term
    """Its partition came here with that; the leader epoch in which it began is the coordinator epoch."""
    value: Transaction | None = None
    in_flight: Transaction | None = None
    unmarked: frozenset[TopicPartition] = frozenset()
    parked: list[Request] = field(default_factory=list)
    gone: bool = False
    """Expired or unloaded: nothing is decided about it any more."""
    lock: threading.Lock = field(default_factory=threading.Lock)

    def take_parked(self) -> list[Request]:
        """Return the requests that wait, which wait no longer. Under the lock."""
        parked, self.parked = self.parked, []
        return parked


class OwnedTransactions:
    """All transactional ids owned here; they come with the leadership of their partition or by ``get_or_new``."""

    def __init__(
        self,
        config: BrokerConfig,
        replica_manager: ReplicaManager,
        metadata_cache: MetadataCache,
        scheduler: Scheduler,
        *,
        count_partitions: Callable[[], int | None],
        now_ms: Callable[[], int],
        on_loaded: Callable[[Sequence[Entry]], None],
        on_lost: Callable[[int, Collection[Entry]], None],
    ) -> None:
        """Take what hears of a partition's ids once they are served, and once it is lost, before the controller does."""
        self._config = config
        self._replica_manager = replica_manager
        self._scheduler = scheduler
        self._now_ms = now_ms
        self._on_loaded = on_loaded
        self._on_lost = on_lost
        self.count = PartitionCount(
            TRANSACTION_TOPIC,
            metadata_cache,
            default=config.transaction_state_log_num_partitions,
            ask=count_partitions,
            ids="transactional ids",
        )
        self.topic = LedTopic(
            TRANSACTION_TOPIC, replica_manager, scheduler, what="transaction", load=self._read, unload=self._unload
        )
        self.partitions = self.topic.partitions
        self._lock = threading.Lock()
        self._entries: dict[int, dict[str, Entry]] = {}  # by partition
        self._damaged: dict[int, dict[str, int]] = {}  # by partition: ids that get 14 until they expire, and their time

    def find(self, transactional_id: str, *, make: bool = False) -> tuple[ErrorCode, Entry | None]:
        """Return the refusal (TXN-8), or the entry; neither: there is none of that id. ``make``: there is one then."""
        number = self.count.partition_of(transactional_id)
        match self.partitions.get(number):
            case Ownership.LOADING:
                return ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, None
            case None:
                return ErrorCode.NOT_COORDINATOR, None
        with self._lock:
            since = self.partitions.owned_since(number)
            if since is None:  # lost since then
                return ErrorCode.NOT_COORDINATOR, None
            if transactional_id in self._damaged.get(number, ()):
                return ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, None
            entries = self._entries.setdefault(number, {})
            entry = entries.get(transactional_id)
            if entry is None and make:
                entry = entries[transactional_id] = Entry(transactional_id, number, since)
            return ErrorCode.NONE, entry

    def is_lost(self, entry: Entry) -> bool:
        """Tell whether its partition was lost since it came; it may be here again (TXN-14)."""
        return self.partitions.owned_since(entry.partition) != entry.since

    def leads(self, number: int) -> bool:
        """Tell whether this broker leads the partition now; the coordinator hears of a change a little later."""
        partition = self._replica_manager.partitions.get(self.topic.partition(number))
        return partition is not None and partition.is_leader

    def forget(self, entry: Entry) -> None:
        with self._lock:
            entries = self._entries.get(entry.partition, {})
            if entries.get(entry.id) is entry:
                del entries[entry.id]

    def all(self) -> list[Entry]:
        with self._lock:
            partitions = list(self._entries.values())
        return [entry for entries in partitions for entry in list(entries.values())]

    def damaged(self) -> dict[int, dict[str, int]]:
        """Return the ids with a damaged record by partition, each with the record's time in ms."""
        with self._lock:
            return {number: dict(ids) for number, ids in self._damaged.items() if ids}

    def forget_damaged(self, number: int, transactional_id: str) -> None:
        with self._lock:
            self._damaged.get(number, {}).pop(transactional_id, None)

    # --- leadership of the partitions (TXN-7 to 16) -------------------------------------------------------------

    def _read(self, source: Log, term: Term) -> None:
        found = load(
            source,
            self._config.transaction_state_log_load_buffer_size,
            lambda: self.partitions.still_loading(term),
        )
        if found is not None:
            self._take_over_when_replicated(term, source.log_end_offset, found)

    def _take_over_when_replicated(self, term: Term, end: int, found: Loaded) -> None:
        """Serve nothing, and end no transaction, by a record that the next leader may not have (TXN-10)."""

        def replicated(error: ErrorCode) -> None:
            if error in (ErrorCode.NONE, ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND):
                self._take_over(term, found)
            elif self.partitions.still_loading(term):
                self._scheduler.schedule("transaction-load", again, delay_ms=_AGAIN_MS)

        def again() -> None:
            self._take_over_when_replicated(term, end, found)

        if self.partitions.still_loading(term):
            timeout_ms = self._config.request_timeout_ms
            self._replica_manager.appends.await_replicated(
                self.topic.partition(term.partition), end, timeout_ms, replicated
            )

    def _take_over(self, term: Term, found: Loaded) -> None:
        number = term.partition
        now_ms = self._now_ms()
        entries = {id_: Entry(id_, number, term, loaded(stored, now_ms)) for id_, stored in found.transactions.items()}
        with self._lock:
            if not self.partitions.finish_load(term):
                return
            self._entries[number] = entries
            self._damaged[number] = found.damaged
        log.info(
            "transaction coordinator owns partition %d of %s: %d transactional ids",
            number,
            TRANSACTION_TOPIC,
            len(entries),
        )
        self._on_loaded(list(entries.values()))

    def _unload(self, number: int) -> None:
        with self._lock:
            gone = self._entries.pop(number, {})
            self._damaged.pop(number, None)
        self._on_lost(number, gone.values())
        self._scheduler.submit(lambda: _let_go(gone), "transaction-unload")


def _let_go(entries: dict[str, Entry]) -> None:
    """Free them one by one: all at once, a million of them hold the interpreter for 0.16 s (TXN-15)."""
    while entries:
        entries.popitem()
