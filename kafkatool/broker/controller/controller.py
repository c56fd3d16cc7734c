"""The controller as a broker, or a process without one, runs it: the worker on a thread of its own, with the methods
that other threads may call.
"""

import logging
import threading
import time
from collections.abc import Callable, Collection, Mapping
from concurrent.futures import CancelledError, Future
from functools import partial
from typing import TypeVar

from kafkatool.broker.controller.elected import Elected
from kafkatool.broker.controller.events import Event, EventQueue
from kafkatool.broker.controller.gauges import FILE_NAME
from kafkatool.broker.controller.moves import MoveOutcome, OngoingMoves, WantedMoves
from kafkatool.broker.controller.telling.channels import BrokerSender, ChannelFactory
from kafkatool.broker.controller.telling.request_batch import IllegalBatchError
from kafkatool.broker.controller.term import Surroundings, Term
from kafkatool.broker.controller.worker import ControllerWorker
from kafkatool.broker.runtime.gauges_file import GaugesFile
from kafkatool.broker.runtime.timer import Timer
from kafkatool.broker.settings.config import BrokerConfig
from kafkatool.broker.state_change_log import StateChangeLog
from kafkatool.core.errors import KafkatoolError, TermOverError
from kafkatool.core.model.values import TopicPartition
from kafkatool.core.protocol.messages.error_codes import ErrorCode
from kafkatool.core.zookeeper.session import ZooKeeper

log = logging.getLogger(__name__)

RUNNING_AS_BROKER, RUNNING_AS_CONTROLLER = 3, 4

Told = TypeVar("Told")
ShutdownAnswer = tuple[ErrorCode, list[TopicPartition]]


class Controller:
    """The controller of one broker, thread-safe. Every broker has one; at most one of a cluster is active.

    One may also stand ``alone``, beside brokers of any Kafka from 0.10.2 on: see `standalone`, which adds the checks
    that keep such a cluster well.
    """

    def __init__(
        self,
        zookeeper: ZooKeeper,
        *,
        broker_id: int,
        config: BrokerConfig | None = None,
        state_change_log: StateChangeLog | None = None,
        alone: bool | None = None,
        open_channel: Callable[[str], ChannelFactory] | None = None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        """Make it; ``startup`` starts it. ``config`` None: the documents' defaults, but no unclean leaders (CTL-44).

        ``alone``: it is no broker's; each broker is asked which versions of the requests it knows, where a broker's
        controller goes by inter.broker.protocol.version. By default it is alone if it has no config.
        """
        self._zookeeper = zookeeper
        self._alone = config is None if alone is None else alone
        config = config or BrokerConfig.from_properties(
            {"zookeeper.connect": zookeeper.connect, "unclean.leader.election.enable": "false"}  # nobody allowed them
        )
        state_change_log = state_change_log or StateChangeLog(None)
        self._config = config
        self._broker_id = broker_id
        self._state_change_log = state_change_log
        self._timer = Timer(f"controller-{broker_id}-timer")
        self._worker = ControllerWorker(
            Surroundings(
                zookeeper,
                config,
                broker_id,
                EventQueue(),
                self._timer,
                state_change_log,
                open_channel or self._open_sender,
                clock,
            )
        )
        directory = state_change_log.directory
        self._gauges_file = GaugesFile(directory / FILE_NAME if directory else None, self._timer, self.gauges)
        self._thread = threading.Thread(target=self._run, name=f"controller-{broker_id}", daemon=True)

    # --- life ---------------------------------------------------------------------------------------------------

    def startup(self, *, take_over: bool = False) -> None:
        """Listen to the session, watch ``/controller``, make one election attempt; returns when it is decided (CTL-1).

        To be called before the broker registers. ``take_over``: in place of whoever rules now.
        """
        log.info("Controller starting up")
        self._zookeeper.add_session_listener(self._worker.on_session)
        done = threading.Event()

        def elect() -> None:
            try:
                self._worker.elect(depose=take_over)
            finally:
                done.set()

        self._worker.queue.put(Event("startup", elect, done.set))
        self._thread.start()
        done.wait()
        log.info("Controller startup complete")

    def shutdown(self) -> None:
        """Resign and stop (CTL-22). ``/controller`` goes with the session, which the broker closes next."""
        self._worker.stopping = True
        self._worker.queue.close()
        if self._thread.ident is not None and threading.current_thread() is not self._thread:
            self._thread.join()
        self._timer.close()

    def _run(self) -> None:
        while (event := self._worker.queue.take()) is not None:
            try:
                self._worker.process(event)
            except Exception:  # a bug: the next event must be served whatever is wrong with this one
                log.exception("controller event %r failed unexpectedly", event.name)
            self._gauges_file.changed()
        self._worker.resign()
        self._gauges_file.write()

    def _open_sender(self, actor: str) -> ChannelFactory:
        return partial(
            BrokerSender,
            listener=self._config.inter_broker_listener_name,
            security=self._config.inter_broker_security,
            actor=actor,
            timeout_ms=self._config.controller_socket_timeout_ms,
            client_id=str(self._broker_id),
            state_change_log=self._state_change_log,
            negotiate=self._alone,
        )

    # --- for other threads --------------------------------------------------------------------------------------

    @property
    def is_active(self) -> bool:
        """Tell whether this broker is the controller, as far as it knows."""
        return self._worker.term is not None

    @property
    def active_controller_id(self) -> int | None:
        """Return the controller's broker id as last read; None: no controller."""
        return self._worker.known_id

    @property
    def epoch(self) -> int:
        """Return the controller epoch of the current term, 0 when not controller (CTL-16)."""
        term = self._worker.term
        return term.context.epoch if term else 0

    def has_resigned(self) -> bool:
        """Tell whether the loss of a session, if any, has been dealt with: the new one may be used (CTL-19)."""
        return self._worker.has_resigned

    def controlled_shutdown(self, broker_id: int, broker_epoch: int | None) -> ShutdownAnswer:
        """Move leaders away from a broker; blocks until it is done. Codes 11, 8 and 77 as BRK-34, CTL-112.

        What goes wrong is told, and logged, on the event thread; the broker that asked gets a code.
        """
        if not self.is_active:
            return ErrorCode.STALE_CONTROLLER_EPOCH, []
        answer: Future[ShutdownAnswer] = Future()

        def serve() -> None:
            term = self._worker.term
            if term is None:
                answer.set_result((ErrorCode.STALE_CONTROLLER_EPOCH, []))
                return
            try:
                answer.set_result(term.controlled_shutdown.serve(broker_id, broker_epoch))
            except KafkatoolError as e:
                log.warning("controlled shutdown of broker %d failed: %s", broker_id, e)
                answer.set_result((ErrorCode.STALE_CONTROLLER_EPOCH, []))
                raise
            except BaseException:  # a bug
                answer.set_result((ErrorCode.UNKNOWN_SERVER_ERROR, []))
                raise

        def discarded() -> None:
            answer.cancel()

        self._worker.queue.put(Event("controlled shutdown", serve, discarded))
        try:
            return answer.result()
        except CancelledError:  # resigned before its turn
            return ErrorCode.STALE_CONTROLLER_EPOCH, []

    def elect_leaders(
        self,
        partitions: Collection[TopicPartition] | None,
        *,
        unclean: bool,
        done: Callable[[Mapping[TopicPartition, Elected] | ErrorCode], None],
    ) -> None:
        """Have leaders elected, of all partitions when None (ADM-62). ``done`` is called once, on the event thread.

        It hears of each partition, or NOT_CONTROLLER: this broker is not the controller, or was not to the end of it.
        UNKNOWN_SERVER_ERROR: it went wrong, and would again.
        """

        self._serve("requested election", lambda term: term.requested_election.elect(partitions, unclean=unclean), done)

    def alter_moves(
        self,
        wanted: WantedMoves,
        *,
        may_change_factor: bool,
        done: Callable[[Mapping[TopicPartition, MoveOutcome] | ErrorCode], None],
    ) -> None:
        """Begin, replace or cancel moves (ADM-64). ``done`` as for `elect_leaders`; it hears when they are stored."""

        def alter(term: Term) -> Mapping[TopicPartition, MoveOutcome]:
            return term.requested_moves.alter(wanted, may_change_factor=may_change_factor)

        self._serve("requested moves", alter, done)

    def list_moves(
        self, partitions: Collection[TopicPartition] | None, done: Callable[[OngoingMoves | ErrorCode], None]
    ) -> None:
        """Tell which of those partitions, of all when None, are moving (ADM-66). ``done`` as for `elect_leaders`."""
        self._serve("list of moves", lambda term: term.requested_moves.ongoing(partitions), done)

    def _serve(self, name: str, serve: Callable[[Term], Told], done: Callable[[Told | ErrorCode], None]) -> None:
        """Have a request served on the event thread; what goes wrong is told there, too, and raised for the log."""

        def served() -> None:
            if (term := self._worker.term) is None:
                done(ErrorCode.NOT_CONTROLLER)
                return
            try:
                told = serve(term)
            except (TermOverError, IllegalBatchError):  # whoever rules next knows what was stored
                done(ErrorCode.NOT_CONTROLLER)
                raise
            except BaseException:  # this controller rules on: asked again and again it would fail each time
                done(ErrorCode.UNKNOWN_SERVER_ERROR)
                raise
            done(told)

        if self.is_active:
            self._worker.queue.put(Event(name, served, lambda: done(ErrorCode.NOT_CONTROLLER)))
        else:
            done(ErrorCode.NOT_CONTROLLER)

    def gauges(self) -> dict[str, float]:
        """Return the values of CTL-29 and the broker's state (CTL-24 step 9), counts 0 if not active; and `Gauges`."""
        term = self._worker.term
        return {
            "ActiveControllerCount": int(term is not None),
            "OfflinePartitionsCount": term.context.offline_partition_count() if term else 0,
            "PreferredReplicaImbalanceCount": term.context.imbalance_count() if term else 0,
            "BrokerState": RUNNING_AS_CONTROLLER if term else RUNNING_AS_BROKER,
            "EventQueueSize": len(self._worker.queue),
            **self._worker.gauges.values(),
        }
