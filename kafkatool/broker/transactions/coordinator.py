"""The transaction coordinator of one broker: finds the id, locks it, lets it be decided, carries out what was decided.

A move takes effect when its record is replicated, not before; answers and appends happen without a lock (TXN-18).
"""

import logging
from collections.abc import Callable, Collection, Mapping, Sequence, Set
from dataclasses import dataclass
from functools import partial

from kafkatool.broker.coordination.clock import CoordinatorClock
from kafkatool.broker.coordination.ids import is_id
from kafkatool.broker.coordination.ownership import Term
from kafkatool.broker.coordination.tombstones import in_batches
from kafkatool.broker.limits import Limits
from kafkatool.broker.metadata_cache import MetadataCache
from kafkatool.broker.replication.leading.delayed_produce import AppendResult
from kafkatool.broker.replication.leading.verified_appends import Answer, Question
from kafkatool.broker.replication.replica_manager import ReplicaManager
from kafkatool.broker.runtime.scheduler import Scheduler
from kafkatool.broker.runtime.timer import Timer
from kafkatool.broker.runtime.yielding import yielding_gil
from kafkatool.broker.settings.config import BrokerConfig
from kafkatool.broker.transactions import decisions
from kafkatool.broker.transactions.channels import MakeChannels
from kafkatool.broker.transactions.decisions import Move, Outcome, Say, Wait, WantId
from kafkatool.broker.transactions.endings import Ending, Endings
from kafkatool.broker.transactions.marker_writes import MarkerWrites
from kafkatool.broker.transactions.owned import Entry, OwnedTransactions, Request
from kafkatool.broker.transactions.records import encode_key, encode_value
from kafkatool.broker.transactions.states import PREPARED, TransactionState
from kafkatool.broker.transactions.transaction import Identity, IllegalMoveError, Transaction
from kafkatool.broker.transactions.verifier import Verifier
from kafkatool.broker.transactions.watch import Watch
from kafkatool.broker.transactions.writer import TransactionsWriter, answer_for
from kafkatool.core.errors import ZooKeeperError
from kafkatool.core.model.values import TopicPartition
from kafkatool.core.protocol.messages.error_codes import ErrorCode

log = logging.getLogger(__name__)

PATIENCE_MS = 1000
"""So long a request waits for another one, or for markers, before it is told to come again (TXN-22)."""
_SHORTEST_WAIT_MS, _LONGEST_WAIT_MS = 100, 5000  # between attempts to store that a transaction is complete (TXN-56)

_LED_NO_MORE = frozenset({ErrorCode.NOT_LEADER_FOR_PARTITION, ErrorCode.KAFKA_STORAGE_ERROR})

_Answered = Callable[[ErrorCode], None]


@dataclass(frozen=True, slots=True)
class DescribedTransaction:
    """A transactional id as administrators see it."""

    state: TransactionState
    value: Transaction
    partitions: Set[TopicPartition]
    """Those that still want a marker."""


class TransactionCoordinator:
    """The coordinator, made by the composition root. Thread-safe."""

    def __init__(
        self,
        config: BrokerConfig,
        broker_id: int,
        replica_manager: ReplicaManager,
        metadata_cache: MetadataCache,
        scheduler: Scheduler,
        timer: Timer,
        marker_writes: MarkerWrites,
        *,
        next_producer_id: Callable[[], int],
        count_partitions: Callable[[], int | None] = lambda: None,
        find_deleted: Callable[[Collection[TopicPartition]], Set[TopicPartition]] = lambda _: frozenset(),
        clock: CoordinatorClock | None = None,
        limits: Limits | None = None,
        channels: MakeChannels | None = None,
    ) -> None:
        """Take what asks ZooKeeper: for a new producer id, how many partitions the topic has (None: there is none), and
        which of some partitions were deleted. Each raises ZooKeeperError."""
        self._config = config
        self._limits = limits or Limits()
        self._scheduler = scheduler
        self._timer = timer
        self._next_producer_id = next_producer_id
        self._clock = CoordinatorClock() if clock is None else clock
        self.now_ms = self._clock.steady_ms
        self.watch = Watch()
        self.owned = OwnedTransactions(
            config,
            replica_manager,
            metadata_cache,
            scheduler,
            count_partitions=count_partitions,
            now_ms=self.now_ms,
            on_loaded=self._on_loaded,
            on_lost=self._on_lost,
        )
        self.partition_of = self.owned.count.partition_of
        self.on_leadership_change = self.owned.topic.on_leadership_change
        self.on_partitions_stopped = self.owned.topic.on_partitions_stopped
        self._writer = TransactionsWriter(config, replica_manager)
        self._endings = Endings(
            config, broker_id, metadata_cache, scheduler, marker_writes, find_deleted=find_deleted, channels=channels
        )
        self._verifier = Verifier(
            config,
            broker_id,
            metadata_cache,
            timer,
            partition_of=self.partition_of,
            ask_here=self._verify_here,
            channels=channels,
        )
        replica_manager.verified_appends.ask_by(self._verifier.ask)
        self._stopping = False

    # --- life ---------------------------------------------------------------------------------------------------

    def startup(self) -> None:
        """Count the partitions of the topic, begin to look for what takes too long. Raises ZooKeeperError."""
        self.owned.count.startup()
        config = self._config
        for name, task, period_ms in (
            ("transaction-timeouts", self.time_out, config.transaction_abort_timed_out_transaction_cleanup_interval_ms),
            ("transaction-expiry", self.expire, config.transaction_remove_expired_transaction_cleanup_interval_ms),
        ):
            self._scheduler.schedule(name, task, delay_ms=period_ms, period_ms=period_ms)

    def shutdown(self) -> None:
        """Answer every request with 15 from here on; send nothing more."""
        self._stopping = True
        self._endings.shutdown()
        self._verifier.shutdown()

    # --- requests -----------------------------------------------------------------------------------------------

    def give_identity(
        self,
        transactional_id: str,
        timeout_ms: int,
        expected: Identity | None,
        done: Callable[[ErrorCode, Identity], None],
    ) -> None:
        """Answer InitProducerId of a transactional producer (TXN-24 to 30)."""
        if not is_id(transactional_id, self._limits):
            done(ErrorCode.INVALID_REQUEST, Identity(-1, -1))
            return
        if not 0 < timeout_ms <= self._config.transaction_max_timeout_ms:
            done(ErrorCode.INVALID_TRANSACTION_TIMEOUT, Identity(-1, -1))
            return

        def decide(known: Transaction | None, busy: bool, now_ms: int, fresh_id: int | None) -> Outcome:
            return decisions.give_identity(
                known, busy, now_ms, timeout_ms=timeout_ms, expected=expected, fresh_id=fresh_id
            )

        def answer(code: ErrorCode, of: Transaction | None) -> None:
            done(code, of.identity if code is ErrorCode.NONE and of is not None else Identity(-1, -1))

        self._attempt(Request(transactional_id, decide, answer, creates=True))

    def add_partitions(
        self, transactional_id: str, identity: Identity, partitions: Set[TopicPartition], done: _Answered
    ) -> None:
        """Answer AddPartitionsToTxn and AddOffsetsToTxn, but for what they ask about the partitions (TXN-31 to 38)."""
        self._ask(
            transactional_id,
            lambda known, busy, now_ms, _: decisions.add(known, busy, now_ms, identity=identity, partitions=partitions),
            done,
        )

    def end(self, transactional_id: str, identity: Identity, *, committed: bool, done: _Answered) -> None:
        """Answer EndTxn when the decision is replicated (TXN-39 to 42)."""
        self._ask(
            transactional_id,
            lambda known, busy, now_ms, _: decisions.end(known, busy, now_ms, identity=identity, committed=committed),
            done,
        )

    def _ask(
        self,
        transactional_id: str,
        decide: Callable[[Transaction | None, bool, int, int | None], Outcome],
        done: _Answered,
    ) -> None:
        if is_id(transactional_id, self._limits):
            self._attempt(Request(transactional_id, decide, lambda code, _: done(code)))
        else:
            done(ErrorCode.INVALID_REQUEST)

    def verify(
        self, transactional_id: str, identity: Identity, partitions: Set[TopicPartition]
    ) -> Mapping[TopicPartition, ErrorCode]:
        """Tell for each partition whether it is in the transaction that the producer has under way (TXN-34)."""
        error, entry = ErrorCode.INVALID_REQUEST, None
        if is_id(transactional_id, self._limits):
            error, entry = self._find(transactional_id)
        if error is not ErrorCode.NONE:
            return dict.fromkeys(partitions, error)
        if entry is None:
            return decisions.verify(None, False, identity=identity, partitions=partitions)
        with entry.lock:
            if self.owned.is_lost(entry):
                return dict.fromkeys(partitions, ErrorCode.NOT_COORDINATOR)
            ending = entry.in_flight is not None and entry.in_flight.state in PREPARED
            return decisions.verify(entry.value, ending, identity=identity, partitions=partitions)

    def _verify_here(self, question: Question) -> Answer:
        identity = Identity(question.producer_id, question.producer_epoch)
        return self.verify(question.transactional_id, identity, frozenset(question.partitions))

    def describe(self, transactional_id: str) -> ErrorCode | DescribedTransaction:
        """Return what is known of the id (TXN-93)."""
        error, entry = (
            self._find(transactional_id) if is_id(transactional_id, self._limits) else (ErrorCode.INVALID_REQUEST, None)
        )
        if error is not ErrorCode.NONE:
            return error
        if entry is None:
            return ErrorCode.TRANSACTIONAL_ID_NOT_FOUND
        with entry.lock:
            if self.owned.is_lost(entry):
                return ErrorCode.NOT_COORDINATOR
            value = entry.value
            if value is None or entry.gone or _is_dying(entry):
                return ErrorCode.TRANSACTIONAL_ID_NOT_FOUND
            return DescribedTransaction(value.state, value, _unmarked(entry, value))

    def list(self) -> tuple[ErrorCode, Sequence[tuple[str, Transaction]]]:
        """Return what this broker coordinates, in the order of the ids; an error, too, if that is not all (TXN-94)."""
        if self._stopping:
            return ErrorCode.COORDINATOR_NOT_AVAILABLE, ()
        if self.owned.partitions.loading():
            return ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, ()
        found = ((e.id, e.value) for e in yielding_gil(self.owned.all()) if not _is_dying(e))
        return ErrorCode.NONE, sorted(((id_, value) for id_, value in found if value is not None), key=lambda f: f[0])

    # --- decide, store, carry out (TXN-14, 18 to 22) ------------------------------------------------------------

    def _find(self, transactional_id: str, *, make: bool = False) -> tuple[ErrorCode, Entry | None]:
        if self._stopping:
            return ErrorCode.COORDINATOR_NOT_AVAILABLE, None
        return self.owned.find(transactional_id, make=make)

    def _attempt(self, request: Request) -> None:
        """Have the request decided, from its first check on, and do what comes of it."""
        while True:
            error, entry = self._find(request.transactional_id, make=request.creates)
            if error is not ErrorCode.NONE:
                self._answer(request, error)
                return
            outcome = self._decide(request, entry)
            if outcome is None:
                continue  # it has expired meanwhile
            if not isinstance(outcome, WantId):
                break
            try:
                request.fresh_id = self._next_producer_id()
            except ZooKeeperError as e:
                log.warning("transactional id %s gets no producer id now: %s", request.transactional_id, e)
                self._answer(request, ErrorCode.COORDINATOR_NOT_AVAILABLE)
                return
        match outcome:
            case Say(code, of):
                self._answer(request, code, of)
            case Wait():
                if request.patience is None:
                    request.patience = self._timer.add(PATIENCE_MS, partial(self._give_up, request))
            case Move():
                assert entry is not None  # none moves
                self._store(entry, outcome, lambda code: self._answer(request, code, outcome.to))

    def _decide(self, request: Request, entry: Entry | None) -> Outcome | None:
        """Return what is to be done, noted already in the entry; None: look it up again."""
        now_ms = self.now_ms()
        if entry is None:
            return request.decide(None, False, now_ms, None)
        with entry.lock:
            if entry.gone:
                return None
            if self.owned.is_lost(entry):
                return Say(ErrorCode.NOT_COORDINATOR)
            outcome: Outcome
            try:
                if entry.value is None and entry.in_flight is not None:
                    outcome = Wait()  # another request is making it
                else:
                    outcome = request.decide(entry.value, entry.in_flight is not None, now_ms, request.fresh_id)
            except IllegalMoveError:
                log.exception("transactional id %s", entry.id)
                return Say(ErrorCode.UNKNOWN_SERVER_ERROR)
            if isinstance(outcome, Wait):
                if request.has_waited:
                    return Say(ErrorCode.CONCURRENT_TRANSACTIONS)
                request.waits_at = entry
                entry.parked.append(request)
            elif isinstance(outcome, Move):
                _begin(entry, outcome)
            return outcome

    def _give_up(self, request: Request) -> None:
        entry = request.waits_at
        assert entry is not None  # it was parked before its patience began
        with entry.lock:
            request.has_waited = True
            if request not in entry.parked:
                return  # it is being decided, or was answered
            entry.parked.remove(request)
        self._answer(request, ErrorCode.CONCURRENT_TRANSACTIONS)

    def _answer(self, request: Request, code: ErrorCode, of: Transaction | None = None) -> None:
        if request.patience is not None:
            request.patience.cancel()
        try:
            request.done(code, of)
        except Exception:  # one client's answer must not keep a transaction from going on
            log.exception("transactional id %s: an answer could not be given", request.transactional_id)

    def _store(self, entry: Entry, move: Move, answer: _Answered) -> None:
        """Append the record of a move that is noted in the entry; ``answer`` is told once."""

        def appended(result: AppendResult) -> None:
            error = result.error
            if self._takes_effect(entry, move.to, error):
                # The client is told of what happened to its request; that the record is in force is another thing.
                answer(move.code if error is ErrorCode.NONE else answer_for(error))
            elif error is ErrorCode.REQUEST_TIMED_OUT and not self.owned.is_lost(entry):
                answer(answer_for(error))
                self._await_outcome(entry, move.to, result.next_offset)
                return
            elif error in _LED_NO_MORE:
                answer(ErrorCode.NOT_COORDINATOR)
                self._await_news(entry)
                return
            else:
                answer(ErrorCode.NOT_COORDINATOR if self.owned.is_lost(entry) else answer_for(error))
            self._go_on(entry)

        try:
            record = (encode_key(entry.id), encode_value(move.to))
        except IllegalMoveError:
            log.exception("transactional id %s", entry.id)
            appended(AppendResult(ErrorCode.UNKNOWN_SERVER_ERROR))
            return
        self._writer.append(entry.partition, [record], still=lambda: not self.owned.is_lost(entry), done=appended)

    def _takes_effect(self, entry: Entry, to: Transaction, error: ErrorCode) -> bool:
        """Note the outcome of an append; True: what it stored is in force. Unknown is not noted (TXN-21)."""
        with entry.lock:
            if self.owned.is_lost(entry):
                return False  # whatever the log has: its successor decides
            stored = error in (ErrorCode.NONE, ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND)
            if stored:
                self.watch.moved(None if entry.value is None else entry.value.state, to.state)
                entry.value = to
                if to.state in PREPARED:
                    entry.unmarked = frozenset(to.partitions)
            if error is not ErrorCode.REQUEST_TIMED_OUT and error not in _LED_NO_MORE:
                entry.in_flight = None
            return stored

    def _await_news(self, entry: Entry) -> None:
        """Keep an id in flight whose record found no leader here, until the coordinator hears that the partition is lost.

        The record may be in force, so nothing that is known of the id may be told (TXN-13). If it says that a transaction is
        complete, its successor may have begun the producer's next one, which a marker sent once more would end. Should this
        broker lead after all, the id goes on: what is complete is stored again, and no marker is.
        """

        def look() -> None:
            lost = entry.gone or self.owned.is_lost(entry)
            if not (lost or self.owned.leads(entry.partition)):
                self._await_news(entry)  # it is on its way
                return
            with entry.lock:
                to, value = entry.in_flight, entry.value
                completing = not lost and value is not None and value.state in PREPARED
                if not completing:
                    entry.in_flight = None
            if completing and to is not None:
                self._complete(entry, to, _SHORTEST_WAIT_MS)
            else:
                self._go_on(entry)

        self._scheduler.once("transaction-outcome", look, delay_ms=_SHORTEST_WAIT_MS)

    def _await_outcome(self, entry: Entry, to: Transaction, next_offset: int) -> None:
        """Keep the id in flight until it is known whether its record is replicated (TXN-21)."""

        def known(error: ErrorCode) -> None:
            if error is ErrorCode.REQUEST_TIMED_OUT and not self._stopping and not self.owned.is_lost(entry):
                self._await_outcome(entry, to, next_offset)
            elif error in _LED_NO_MORE:
                self._await_news(entry)
            else:
                self._takes_effect(entry, to, error)
                self._go_on(entry)

        self._writer.await_replicated(entry.partition, next_offset, known)

    def _go_on(self, entry: Entry) -> None:
        """Do what a change of the entry allows: send markers, decide what was parked."""
        with entry.lock:
            lost = entry.gone or self.owned.is_lost(entry)
            value = entry.value
            parked = entry.take_parked()
            prepared = not lost and entry.in_flight is None and value is not None and value.state in PREPARED
            prepared = prepared and bool(entry.unmarked)  # else only the record of that is missing: ``_complete`` waits
            if value is None and entry.in_flight is None and not lost:
                entry.gone = True  # its first record could not be stored
        if entry.gone:
            self.owned.forget(entry)
        if prepared and value is not None:
            self._send_markers(entry, value)
        for request in parked:
            self._attempt(request)

    # --- markers (TXN-50 to 57) ---------------------------------------------------------------------------------

    def _send_markers(self, entry: Entry, value: Transaction) -> None:
        def marked(partitions: Set[TopicPartition]) -> None:
            with entry.lock:
                entry.unmarked = entry.unmarked - partitions
                if entry.unmarked or entry.value is not value or entry.in_flight is not None:
                    return
                if self.owned.is_lost(entry):
                    return
                entry.in_flight = to = decisions.complete(value, self.now_ms())
            self._complete(entry, to, _SHORTEST_WAIT_MS)

        self._endings.send(
            Ending(
                transactional_id=entry.id,
                partition=entry.partition,
                coordinator_epoch=entry.since.epoch,
                identity=value.identity,
                committed=value.state is TransactionState.PREPARE_COMMIT,
                partitions=frozenset(value.partitions),
                is_wanted=lambda: not self.owned.is_lost(entry),
                on_marked=marked,
            )
        )

    def _complete(self, entry: Entry, to: Transaction, wait_ms: int) -> None:
        """Store that all markers are written; what cannot be stored now is tried again (TXN-56)."""

        def answer(code: ErrorCode) -> None:
            if code not in (ErrorCode.NONE, ErrorCode.NOT_COORDINATOR):
                log.warning("transactional id %s: %s could not be stored: %s", entry.id, to.state.label, code.name)
                self._scheduler.once("transaction-complete", again, delay_ms=wait_ms)

        def again() -> None:
            with entry.lock:
                if self.owned.is_lost(entry) or entry.in_flight is not None or entry.value is None:
                    return
                if entry.value.state not in PREPARED:
                    return  # it was stored after all
                entry.in_flight = to
            self._complete(entry, to, min(wait_ms * 2, _LONGEST_WAIT_MS))

        self._store(entry, Move(to), answer)

    def _on_loaded(self, entries: Sequence[Entry]) -> None:
        """Finish what the former coordinator had decided (TXN-12, 95)."""
        for entry in entries:
            value = entry.value
            if value is not None and value.state in PREPARED:
                with entry.lock:
                    entry.unmarked = frozenset(value.partitions)
                self._send_markers(entry, value)

    def _on_lost(self, number: int, entries: Collection[Entry]) -> None:
        self._endings.drop(number)
        for entry in yielding_gil(entries):
            with entry.lock:
                entry.gone = True
                parked = entry.take_parked()
            for request in parked:
                self._answer(request, ErrorCode.NOT_COORDINATOR)

    # --- timeouts and expiry (TXN-44 to 48) ---------------------------------------------------------------------

    def time_out(self) -> None:
        """Abort what its producer has left open for too long; tell of ends that take too long."""

        def aborted(code: ErrorCode) -> None:  # what fails is found again by the next round
            if code is ErrorCode.CONCURRENT_TRANSACTIONS:
                self.watch.timed_one_out()

        now_ms = self.now_ms()
        self.watch.look(yielding_gil(self.owned.all()), now_ms)
        for entry in yielding_gil(self.owned.all()):
            with entry.lock:
                if entry.gone or self.owned.is_lost(entry):
                    continue
                move = decisions.time_out(entry.value, entry.in_flight is not None, now_ms)
                if move is None:
                    continue
                _begin(entry, move)
            log.info("transactional id %s: its transaction took too long and is aborted", entry.id)
            self._store(entry, move, aborted)

    def expire(self) -> None:
        """Forget ids that nobody has used for ``transactional.id.expiration.ms``."""
        retention_ms = self._config.transactional_id_expiration_ms
        before_ms = self._clock.expiry_ms(retention_ms) - retention_ms
        doomed: dict[Term, list[Entry]] = {}
        for entry in yielding_gil(self.owned.all()):
            with entry.lock:
                if entry.gone or self.owned.is_lost(entry):
                    continue
                if decisions.has_expired(entry.value, entry.in_flight is not None, before_ms):
                    assert entry.value is not None  # else nothing expires
                    entry.in_flight = entry.value.moved(TransactionState.DEAD)
                    doomed.setdefault(entry.since, []).append(entry)
        for since, entries in doomed.items():
            largest_bytes = self._writer.largest_batch(since.partition)
            for batch in in_batches(entries, lambda entry: len(entry.id.encode()), largest_bytes):
                self._bury(since, batch)
        for number, ids in self.owned.damaged().items():
            for transactional_id, time_ms in ids.items():
                if time_ms <= before_ms:
                    self._bury_damaged(number, transactional_id)

    def _bury(self, since: Term, entries: Sequence[Entry]) -> None:
        def appended(result: AppendResult) -> None:
            # Not answered for in time: the next round writes them again, which does no harm.
            stored = result.error in (ErrorCode.NONE, ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND)
            if not stored:
                log.warning("%d expired transactional ids could not be removed: %s", len(entries), result.error.name)
            for entry in entries:
                with entry.lock:
                    entry.in_flight = None
                    entry.gone = entry.gone or stored
                if entry.gone:
                    self.owned.forget(entry)
                self._go_on(entry)

        self._writer.append(
            since.partition,
            [(encode_key(entry.id), None) for entry in entries],
            still=lambda: self.owned.partitions.owned_since(since.partition) == since,
            done=appended,
        )

    def _bury_damaged(self, number: int, transactional_id: str) -> None:
        since = self.owned.partitions.owned_since(number)

        def appended(result: AppendResult) -> None:
            if result.error is ErrorCode.NONE:
                self.owned.forget_damaged(number, transactional_id)

        self._writer.append(
            number,
            [(encode_key(transactional_id), None)],
            still=lambda: since is not None and self.owned.partitions.owned_since(number) == since,
            done=appended,
        )


def _begin(entry: Entry, move: Move) -> None:
    """Note what was decided. Under the entry's lock."""
    entry.in_flight = move.to
    if move.at_once is not None:
        entry.value = move.at_once


def _is_dying(entry: Entry) -> bool:
    return entry.in_flight is not None and entry.in_flight.state is TransactionState.DEAD


def _unmarked(entry: Entry, value: Transaction) -> Set[TopicPartition]:
    return entry.unmarked if value.state in PREPARED else value.partitions
