"""The controller without its thread: election, one term at a time, one event at a time (CTL-1 to 9, 16 to 21, 119).

``process`` handles one event. The broker calls it from a thread of its own (``controller.py``), a simulation from its
scheduler. Only ``on_session`` and the queue may be used by other threads.
"""

import contextlib
import logging
from collections.abc import Iterator

from kafkatool.broker.controller.election import give_up_place, win
from kafkatool.broker.controller.events import Event
from kafkatool.broker.controller.failover import take_over
from kafkatool.broker.controller.gauges import Gauges
from kafkatool.broker.controller.telling.request_batch import IllegalBatchError
from kafkatool.broker.controller.term import Surroundings, Term
from kafkatool.broker.runtime.gc_pause import gc_paused
from kafkatool.core.errors import (
    ConnectionLostError,
    ControllerFencedError,
    KafkatoolError,
    NodeExistsError,
    SessionExpiredError,
    TermOverError,
    ZnodeFormatError,
)
from kafkatool.core.zookeeper.session import Node, SessionState, WatchEvent
from kafkatool.core.zookeeper.znodes import ControllerZnode

log = logging.getLogger(__name__)

_RETRY_MS, _LONGEST_RETRY_MS = 100, 10_000  # before another attempt, twice as long after each that failed
_FORGOTTEN_S = 60.0  # failures older than that tell nothing of the next attempt


class ControllerWorker:
    """The elector, and the holder of the current term."""

    def __init__(self, surroundings: Surroundings) -> None:
        self.queue = surroundings.queue
        self.gauges = Gauges(queue_waits=self.queue.waits)
        self.term: Term | None = None
        self.known_id: int | None = None  # of the controller, as last read
        self.stopping = False
        self._surroundings = surroundings
        self._zookeeper = surroundings.zookeeper
        self._broker_id = surroundings.broker_id
        self._clock = surroundings.clock
        self._expiries = 0  # counts sessions lost; written by the session listener alone
        self._handled_expiries = 0
        self._deposing = False  # told to take the place of whoever rules, and not in it yet
        self._failures = 0  # failovers in a row that ended in an error
        self._failed_at = 0.0  # the last of them

    @property
    def has_resigned(self) -> bool:
        """Tell whether no session loss is waiting to be handled (CTL-19)."""
        return self._handled_expiries == self._expiries

    # --- session (CTL-18 to 20) ---------------------------------------------------------------------------------

    def on_session(self, state: SessionState) -> None:
        """Queue what follows from a change of the session. On its thread. A mere disconnection changes nothing."""
        if state is SessionState.EXPIRED:
            self._expiries += 1
            self.queue.replace_all(Event("session expired", self._on_expired))
        elif state is SessionState.CONNECTED and self._expiries:
            self.queue.put(Event("session established", self._on_new_session))

    def _on_expired(self) -> None:
        self.resign()
        self.known_id = None
        self._handled_expiries = self._expiries

    def _on_new_session(self) -> None:
        if self.term is None:  # else: reconnected with the session we rule by
            self.elect()

    # --- events -------------------------------------------------------------------------------------------------

    def process(self, event: Event) -> None:
        """Handle one event to its end. An error ends the event, a lost epoch or an illegal batch the term.

        A bug (any exception but ours) ends its event alone, and is the caller's to log: the term goes on, as an election
        for each bug would stop the whole cluster again and again.
        An event cut short because ZooKeeper stayed away ends the term too, and a new one begins as soon as it is back
        (the session, and ``/controller``, may well have lived on): handled by half, the event cannot be run again,
        for what it has noted in the context no longer looks new.
        """
        with self.gauges.events.timed():
            self._process(event)

    def _process(self, event: Event) -> None:
        while not self.stopping:
            expiries = self._expiries
            try:
                event.run()
                return
            except ControllerFencedError as e:
                log.warning("controller event %r: %s; resigning", event.name, e)
                self.step_down()
                return
            except IllegalBatchError:
                log.exception("Forcing the controller to resign")
                self.step_down()
                return
            except SessionExpiredError as e:
                log.warning("controller event %r: %s; resigning", event.name, e)
                self.resign()
                return
            except ConnectionLostError as e:
                if expiries != self._expiries:
                    return
                if self.term is None:
                    log.warning("controller event %r is tried again: %s", event.name, e)
                    continue
                log.warning("controller event %r was cut short, a new term begins: %s", event.name, e)
                self.resign()
                event = Event("new term", self.elect)
            except KafkatoolError:
                log.exception("controller event %r failed", event.name)
                return

    # --- election -----------------------------------------------------------------------------------------------

    def elect(self, *, depose: bool = False) -> None:
        """Make one attempt (CTL-3 to CTL-5); afterwards this broker rules or follows, and watches.

        ``depose``: in place of whoever rules.
        """
        self._deposing = self._deposing or depose
        with self._failing():
            self._elect(self._read(), depose=self._deposing)

    @contextlib.contextmanager
    def _failing(self) -> Iterator[None]:
        """Give the place up to others if the attempt goes wrong; a lost session or term is the caller's to see."""
        try:
            yield
        except TermOverError:
            raise
        except KafkatoolError:
            self._fail()

    def _read(self) -> Node | None:
        """Read ``/controller`` and watch it (CTL-2). A watch of an earlier session is void (Z-46)."""
        expiries = self._expiries

        def changed(_: WatchEvent) -> None:
            if expiries == self._expiries:
                self.queue.put(Event("controller change", self._on_controller_change))

        node = self._zookeeper.get(ControllerZnode.PATH, changed)
        self.known_id = None if node is None else ControllerZnode.decode(node.data)
        return node

    def _is_ours(self, node: Node | None) -> bool:
        return node is not None and node.ephemeral_owner == self._zookeeper.session_id

    def _on_controller_change(self) -> None:
        """Follow a change of ``/controller``: created, changed or deleted (CTL-7, CTL-8)."""
        try:
            node = self._read()
        except ZnodeFormatError:
            self.step_down()  # it names us no more; the own node makes room for one that names somebody
            raise
        if self.term is not None and not (self._is_ours(node) and self.known_id == self._broker_id):
            log.info("broker %d is not controller any more", self._broker_id)
            self.resign()
        if self._clock() - self._failed_at > _FORGOTTEN_S:
            self._failures = 0
        if node is None and self._failures:
            # The others go first, and whatever is wrong here is not tried at full speed.
            delay_ms = min(_RETRY_MS * 2 ** (self._failures - 1), _LONGEST_RETRY_MS)
            self._surroundings.timer.add(
                delay_ms, lambda: self.queue.put(Event("another attempt", self._attempt_again))
            )
        else:
            self._try_to_elect(node)

    def _attempt_again(self) -> None:
        if self.term is None:
            self._try_to_elect(self._zookeeper.get(ControllerZnode.PATH))

    def _try_to_elect(self, node: Node | None) -> None:
        """Try if the place is free. ``node`` may also be ours, where it could not be deleted (step_down)."""
        if node is None or (self.term is None and self._is_ours(node)):
            with self._failing():
                self._elect(node)

    def _elect(self, node: Node | None, *, depose: bool = False) -> None:
        expiries = self._expiries
        if node is not None:
            if self.term is None and self._is_ours(node) and not depose:
                # Made by an attempt that ended unseen, or left by one that failed: nobody else will fill the place.
                self.step_down()
                return
            if not depose:
                log.debug("Broker %d has been elected as leader, so stopping the election process.", self.known_id)
                return
        if self._is_shut_down():
            return
        data = ControllerZnode.encode(self._broker_id, int(self._clock() * 1000))
        try:
            epoch, version = win(self._zookeeper, data, lambda: expiries != self._expiries, depose=depose)
        except SessionExpiredError as e:
            log.warning("%s; the new one makes another attempt", e)
            return
        except NodeExistsError:
            winner = self._zookeeper.get(ControllerZnode.PATH)
            if winner is None:
                log.warning(
                    "A leader has been elected but just resigned, this will result in another round of election"
                )
                return
            if self._is_ours(winner):
                self.step_down()  # as above
                return
            self.known_id = ControllerZnode.decode(winner.data)
            log.debug("Broker %d was elected as leader instead of broker %d", self.known_id, self._broker_id)
            return
        log.info("%d successfully elected as leader", self._broker_id)
        self.known_id = self._broker_id
        self._deposing = False
        self._fail_over(expiries, epoch, version)

    def _is_shut_down(self) -> bool:
        if self.stopping:
            log.info("Controller has been shut down, aborting startup/failover")
        return self.stopping

    def _fail_over(self, expiries: int, epoch: int, version: int) -> None:
        """Begin a term. A session lost since before the election, as ``expiries`` tell, ends the attempt (CTL-19)."""
        if expiries != self._expiries:
            log.warning("the session was lost during the election; the new one makes another attempt")
            return
        if self._is_shut_down():
            return
        log.info("Broker %d starting become controller state transition", self._broker_id)
        try:
            self.term = Term(self._surroundings, self.gauges, lambda: expiries != self._expiries, epoch, version)
            with self.gauges.failovers.timed(), gc_paused():
                take_over(self.term)
            self._failures = 0
        except TermOverError as e:  # these happen
            log.warning("Error while electing or becoming leader on broker %d: %s", self._broker_id, e)
            self.step_down()
        except Exception:  # noqa: BLE001  whatever went wrong, a half-made controller must make room (CTL-6, CTL-26)
            self._failures += 1
            self._failed_at = self._clock()
            self._fail()

    def _fail(self) -> None:
        log.exception("Error while electing or becoming leader on broker %d", self._broker_id)
        self.step_down()

    # --- resigning ----------------------------------------------------------------------------------------------

    def resign(self) -> None:
        """End the term, if there is one. The node is left alone (CTL-16)."""
        if self.term is not None:
            log.info("broker %d resigns as controller of epoch %d", self._broker_id, self.term.context.epoch)
            self.term.end()
            self.term = None

    def step_down(self) -> None:
        """Resign and delete the own ``/controller``: that starts the next round on all brokers (CTL-6, CTL-50)."""
        self.resign()
        self.known_id = None
        give_up_place(self._zookeeper)
