"""``cluster.faults``: what a test has go wrong in its cluster, from one answer to a whole broker.

The brokers do it, each told by its own socket (`broker/faults/control`); what can be done from outside, is done here.
"""

import contextlib
import fcntl
import itertools
import os
import select
import signal
import socket
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import IO, Any, Self, TypedDict, Unpack

import orjson
import psutil

from kafkatool.broker.embedded.cluster_files import ClusterFiles, ClusterSpec
from kafkatool.broker.embedded.ports import is_free
from kafkatool.broker.embedded.slips import meant, require_number
from kafkatool.broker.faults.address import address_of
from kafkatool.core.errors import KafkatoolError, NodeExistsError, RefusedError
from kafkatool.core.model.values import LeaderAndIsr, TopicPartition, join_ids
from kafkatool.core.protocol.messages import create_topics
from kafkatool.core.protocol.messages.error_codes import ErrorCode
from kafkatool.core.zookeeper.session import ZooKeeper
from kafkatool.core.zookeeper.znodes import (
    BrokerZnode,
    PartitionStateZnode,
    PreferredElectionZnode,
    ReassignmentZnode,
    TopicsZnode,
    TopicZnode,
)

_ANSWER_S = 30.0
_AWAIT_S = 60.0
_NEWER_NAMES = {"NOT_LEADER_OR_FOLLOWER": ErrorCode.NOT_LEADER_FOR_PARTITION}
_ONCE = ("expire session",)  # orders that are over when they are carried out
_LEAST = {"partition": 0, "skip": 0, "times": 1}  # of conditions
_MAKE_TOPICS = (create_topics.API.name.lower(), str(create_topics.API.key))
_COUNTED = ("answer", "slow disk", "fill disk")
Order = Mapping[str, Any]


class Conditions(TypedDict, total=False):
    """Which requests a fault of answers meets: all of the API's, unless it is said.

    ``broker`` is who gets the request. ``skip`` are served first, then ``times`` meet the fault: ``skip=2, times=1`` is
    the third. ``carried_out``: the request takes effect, only its answer is wrong. ``followers``: other brokers' fetches
    are met too. A topic is named with or without a partition; it is there, unless it is ``to_come``.
    """

    topic: str
    partition: int
    to_come: bool
    client_id: str
    broker: int
    skip: int
    times: int
    carried_out: bool
    followers: bool


class Fault:
    """One fault, from when it was asked for until ``end``, the end of its ``with`` block, or ``faults.clear``."""

    def __init__(
        self,
        name: str,
        orders: Mapping[int, Sequence[Order]],
        end: Callable[["Fault"], None],
        counter: Path | None = None,
    ) -> None:
        self.name = name
        self.orders = orders
        self._end = end
        self._counter = counter
        self._met = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.end()

    def end(self) -> None:
        """Have things go as ever again; once is enough."""
        self._end(self)

    def stop_counting(self) -> None:
        """Keep the count, and remove its file: brokers have ended it."""
        self._met = self._count()
        if self._counter:
            self._counter.unlink(missing_ok=True)

    @property
    def hits(self) -> int:
        """Return how many requests, or writes to a disk, have met it, on all brokers."""
        order = next((o for orders in self.orders.values() for o in orders), {})
        met: int = max(0, self._count() - order.get("skip", 0))
        times: int | None = order.get("times")
        return met if times is None else min(met, times)

    def await_hits(self, count: int = 1, timeout_s: float = _AWAIT_S) -> None:
        """Wait until so many requests have met it. Raises KafkatoolError when the time is up."""
        _await(lambda: self.hits >= count, f"{count} requests to meet the fault", timeout_s)

    def _count(self) -> int:
        try:
            return self._counter.stat().st_size if self._counter else 0
        except FileNotFoundError:
            return self._met


class Faults:
    """The faults of one cluster. Each method returns when the fault is there; of a broker that starts later it is, too.

    ``api`` is a name such as ``Produce``, a key, or ``*`` for all; ``error`` a name such as ``NOT_COORDINATOR``, or a code.
    """

    def __init__(
        self,
        files: ClusterFiles,
        process: Callable[[int], psutil.Process | None],
        session: Callable[[], ZooKeeper],
        have_turn: Callable[[], None],
    ) -> None:
        self._files = files
        self._process = process
        self._session = session
        self._have_turn = have_turn  # before what meets more than one topic or client
        self._numbers = itertools.count(1)
        self._active: dict[str, Fault] = {}
        self._frozen: dict[int, Fault] = {}
        self._marks: dict[int, IO[bytes]] = {}  # of those
        self._filled: list[tuple[psutil.Process | None, int, Fault]] = []
        self._absent = False  # a broker may have left the cluster since that was last asked
        self._channels: dict[int, socket.socket] = {}
        self._lock = threading.RLock()

    # --- answers ------------------------------------------------------------------------------------------------

    def answer(self, api: str | int, error: str | int, **conditions: Unpack[Conditions]) -> Fault:
        """Have requests refused with an error; those that name other topics besides are answered for these as ever.

        One whose answer has no place for an error (Metadata of all topics) has its connection closed.
        """
        return self._answer("error", api, conditions, error=_code(error))

    def delay(self, api: str | int, delay_ms: int, **conditions: Unpack[Conditions]) -> Fault:
        """Have requests carried out at once, and answered so much later."""
        require_number("delay_ms", delay_ms, least=0)
        return self._answer("late", api, conditions, delay_ms=delay_ms)

    def silence(self, api: str | int, **conditions: Unpack[Conditions]) -> Fault:
        """Have requests never answered; their connections are closed when the fault ends."""
        return self._answer("never", api, conditions)

    def disconnect(self, api: str | int, **conditions: Unpack[Conditions]) -> Fault:
        """Have connections closed instead of an answer."""
        return self._answer("close", api, conditions)

    def _answer(self, action: str, api: str | int, conditions: Conditions, **what: Any) -> Fault:
        for name in conditions:
            if name not in Conditions.__annotations__:
                raise RefusedError(f"no condition {name}{meant(name, Conditions.__annotations__)}")
        for name, least in _LEAST.items():
            if name in conditions:
                require_number(name, dict(conditions)[name], least=least)
        if "partition" in conditions and "topic" not in conditions:
            raise RefusedError("a fault of a partition needs its topic, too")
        asked = dict(conditions)
        broker = asked.pop("broker", None)
        to_come = asked.pop("to_come", False) or str(api).lower() in _MAKE_TOPICS
        if "topic" in conditions and not to_come:
            self._require_topic(conditions["topic"], conditions.get("partition"))
        if not {"topic", "client_id"} & conditions.keys():
            self._have_turn()
        return self._begin(
            None if broker is None else [conditions["broker"]],
            {"do": "answer", "action": action, "apis": None if api == "*" else [api], **asked, **what},
        )

    # --- a broker -----------------------------------------------------------------------------------------------

    def cut_off(self, broker: int, *, zookeeper: bool = True, clients: bool = True) -> Fault:
        """Cut a broker off from the other brokers, from ZooKeeper and from clients: it runs, and nobody hears of it.

        What it gets is not carried out; with ``clients=False`` others get as far as a login, and no further. Its ZooKeeper
        session is over some seconds later.
        """
        others = [b for b in self._files.require().ports if b != broker]
        deaf: dict[str, Any] = {"do": "answer", "action": "never", "followers": True}
        own: list[Order] = [deaf if clients else {**deaf, "senders": others}]
        own += [{"do": "fall silent"}] if clients else []
        own += [{"do": "cut off from zookeeper"}] if zookeeper else []
        self._have_turn()
        self._require(broker)
        self._absent = True
        return self._start({broker: own} | {other: [{**deaf, "senders": [broker]}] for other in others})

    def slow_disk(self, broker: int, delay_ms: int) -> Fault:
        """Have each of the broker's writes of records take so much longer."""
        require_number("delay_ms", delay_ms, least=0)
        self._have_turn()
        return self._begin([broker], {"do": "slow disk", "delay_ms": delay_ms})

    def fill_disk(self, broker: int) -> Fault:
        """Have the broker's disk full: at its next record its log dir fails, and with the last of them the broker."""
        self._have_turn()
        process = self._process(broker)
        fault = self._begin([broker], {"do": "fill disk"})
        self._filled.append((process, broker, fault))
        return fault

    def expire_session(self, broker: int) -> None:
        """Have ZooKeeper end the broker's session; returns when it is registered with a new one."""
        self._have_turn()
        self._require(broker)
        path = BrokerZnode.path(broker)
        with self._zookeeper() as zk:
            before = node.czxid if (node := zk.get(path)) else -1
            self._absent = True  # others hear of that later than this returns
            self._begin([broker], {"do": "expire session"}).end()
            _await(lambda: (node := zk.get(path)) is not None and node.czxid != before, f"broker {broker} to come back")

    def freeze(self, broker: int) -> Fault:
        """Stop the broker's process where it stands (SIGSTOP): its connections stay open, and silent."""
        self._have_turn()
        self._require(broker)
        with self._lock:
            with contextlib.suppress(BlockingIOError):  # another process has frozen it already
                self._marks[broker] = self._frozen_mark(broker)
            if (process := self._process(broker)) is not None:
                process.suspend()
            self._absent = True
            fault = self._frozen[broker] = Fault(self._name(), {}, lambda _: self._thaw(broker))
        return fault

    def _frozen_mark(self, broker: int) -> IO[bytes]:
        """Return a lock that shows who froze the broker, until it is closed. Raises BlockingIOError: another has it."""
        self._files.faults.mkdir(exist_ok=True)
        mark = (self._files.faults / f"frozen-{broker}").open("wb")
        try:
            fcntl.flock(mark, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            mark.close()
            raise
        return mark

    def _thaw(self, broker: int) -> None:
        with self._lock:
            if self._frozen.pop(broker, None):
                if process := self._process(broker):
                    process.send_signal(signal.SIGCONT)
                self.renew(broker)

    # --- a partition --------------------------------------------------------------------------------------------

    def move_leader(self, topic: str, partition: int = 0, *, to: int | None = None) -> int:
        """Have another replica lead (None: the next that is in sync), by the controller's own means; return who does.

        It becomes the preferred replica. Raises RefusedError when that broker has no replica in sync.
        """
        of = TopicPartition(topic, partition)
        with self._zookeeper() as zk:
            replicas = _assignment(zk, topic, partition)[partition]
            state = _leadership(zk, of)
            if state is None:
                raise RefusedError(f"partition {of} has not been led yet")
            able = [b for b in replicas if b in state.isr and (to == b or (to is None and b != state.leader))]
            if not able:
                wanted = "another" if to is None else f"broker {to}"
                raise RefusedError(f"{of} cannot be led by {wanted}: in sync are {join_ids(state.isr, ', ')}")
            order = (able[0], *(b for b in replicas if b != able[0]))
            _ask(zk, ReassignmentZnode.PATH, ReassignmentZnode.encode({of: order}))
            if state.leader != able[0]:
                _ask(zk, PreferredElectionZnode.PATH, PreferredElectionZnode.encode([of]))
            _await(
                lambda: (now := _leadership(zk, of)) is not None and now.leader == able[0], f"{able[0]} to lead {of}"
            )
        return able[0]

    # --- all of them --------------------------------------------------------------------------------------------

    def clear(self) -> None:
        """End every fault that was asked for here, the last one first."""
        with self._lock:
            for fault in [*self._frozen.values(), *reversed(self._active.values())]:
                fault.end()

    def settle(self, brokers: Iterable[int]) -> bool:
        """End every fault, and wait for the end of brokers whose disk was full; tell whether others may be away still.

        A broker goes on, too, that a process froze which was killed since then.
        """
        self.clear()
        for broker in brokers:
            with contextlib.suppress(psutil.NoSuchProcess, BlockingIOError):
                if (process := self._process(broker)) and process.status() == psutil.STATUS_STOPPED:
                    with self._frozen_mark(broker):  # nobody who lives has it
                        process.resume()
                        self._absent = True
        absent, self._absent = self._absent, False
        filled, self._filled = self._filled, []
        for process, broker, fault in filled:
            if fault.hits:  # the one that was there then: the test may have started another
                _await(lambda p=process, b=broker: p is None or self._process(b) != p, f"broker {broker} to end")  # type: ignore[misc]
        return absent

    def close(self) -> None:
        """Let go of the brokers; they end what was asked of them."""
        with self._lock:
            for broker in list(self._channels):
                self._hang_up(broker)
            self._active.clear()

    def renew(self, broker: int) -> None:
        """Ask a broker that was started anew for what it was asked for before."""
        with self._lock:
            self._frozen.pop(broker, None)  # it was killed as it stood still
            if mark := self._marks.pop(broker, None):
                fcntl.flock(mark, fcntl.LOCK_UN)  # a child that was forked meanwhile has the descriptor still
                mark.close()
            self._hang_up(broker)
            if any(broker in fault.orders for fault in self._active.values()):
                self._channel(broker)

    # --- inside -------------------------------------------------------------------------------------------------

    def _begin(self, brokers: Sequence[int] | None, order: Order) -> Fault:
        for broker in brokers or ():
            self._require(broker)
        return self._start({broker: [order] for broker in brokers or self._files.require().ports})

    def _start(self, orders: Mapping[int, Sequence[Order]]) -> Fault:
        self._require_zookeeper(
            self._files.require()
        )  # a broker that is down may be told when it starts, a cluster not
        name = self._name()
        counter = self._files.faults / name
        counter.parent.mkdir(exist_ok=True)
        asked = {
            broker: [{**o, "name": name} | ({"counter": str(counter)} if o["do"] in _COUNTED else {}) for o in wanted]
            for broker, wanted in orders.items()
        }
        fault = Fault(name, asked, self._finish, counter)
        with self._lock:
            try:
                for broker, wanted in asked.items():
                    if (channel := self._channel(broker)) is not None:
                        for order in wanted:
                            _tell(channel, order)
            except BaseException:
                self._finish(fault)
                raise
            self._active[name] = fault
        return fault

    def _finish(self, fault: Fault) -> None:
        with self._lock:
            self._active.pop(fault.name, None)
            for broker in fault.orders:
                if broker in self._frozen or broker not in self._channels:
                    self._hang_up(broker)  # once it runs again it ends all; what is to stay is asked for anew
                    continue
                try:
                    _tell(self._channels[broker], {"do": "end", "name": fault.name})
                except (OSError, KafkatoolError):
                    self._hang_up(broker)  # it does not run any more
        fault.stop_counting()

    def _channel(self, broker: int) -> socket.socket | None:
        """Return the connection to the broker; a new one is told of what stands. None: it does not run now, or is frozen."""
        channel = self._channels.get(broker)
        if broker in self._frozen:
            return None
        if channel is not None and not _is_broken(channel):
            return channel
        self._hang_up(broker)
        channel = socket.socket(socket.AF_UNIX)
        channel.settimeout(_ANSWER_S)
        try:
            with address_of(self._files.fault_socket(broker)) as address:
                channel.connect(address)
        except OSError:
            channel.close()
            return None
        self._channels[broker] = channel
        for fault in self._active.values():
            for order in fault.orders.get(broker, ()):
                if order["do"] not in _ONCE:
                    _tell(channel, order)
        return channel

    def _hang_up(self, broker: int) -> None:
        if channel := self._channels.pop(broker, None):
            with contextlib.suppress(OSError):
                channel.shutdown(socket.SHUT_RDWR)  # a child that was forked has the descriptor still
            channel.close()

    def _require(self, broker: int) -> None:
        if broker not in self._files.require().ports:
            raise RefusedError(
                f"no broker {broker!r} in this cluster; it has {join_ids(self._files.require().ports, ', ')}"
            )
        if self._process(broker) is None:
            raise RefusedError(f"broker {broker} does not run")
        if broker in self._frozen:
            raise RefusedError(f"broker {broker} is frozen: it can be told of nothing")

    def _require_topic(self, topic: str, partition: int | None) -> None:
        with self._zookeeper() as zk:
            _assignment(zk, topic, partition, hint="; of one that comes later: to_come=True")

    def _require_zookeeper(self, spec: ClusterSpec) -> None:
        if is_free(spec.zookeeper_port):
            raise RefusedError("the cluster is down: its ZooKeeper does not run")

    def _zookeeper(self) -> ZooKeeper:
        self._require_zookeeper(self._files.require())
        return self._session()

    def _name(self) -> str:
        return f"{os.getpid()}-{next(self._numbers)}"


def _tell(channel: socket.socket, order: Order) -> None:
    """Give an order, and wait until it is carried out. Raises RefusedError with the broker's words, OSError."""
    channel.sendall(orjson.dumps(order) + b"\n")
    answer = b""
    while not answer.endswith(b"\n"):
        if not (more := channel.recv(4096)):
            raise ConnectionResetError("the broker is gone")
        answer += more
    if error := orjson.loads(answer).get("error"):
        raise RefusedError(error)


def _is_broken(channel: socket.socket) -> bool:
    """Tell whether the other end has hung up: it says nothing unasked."""
    look = select.poll()
    look.register(channel, select.POLLIN)
    return bool(look.poll(0))


def _code(error: str | int) -> int:
    if isinstance(error, int):
        if error not in [*ErrorCode]:
            raise RefusedError(f"no error {error}")
        return error
    codes = {code.name: code for code in ErrorCode} | _NEWER_NAMES
    if error in codes:
        return codes[error]
    raise RefusedError(f"no error {error}{meant(error, codes)}")


def _assignment(zk: ZooKeeper, topic: str, partition: int | None, hint: str = "") -> Mapping[int, tuple[int, ...]]:
    """Return the replicas of the topic's partitions. Raises RefusedError where it or that partition is not there."""
    if (node := zk.get(TopicZnode.path(topic))) is None:
        raise RefusedError(f"no topic {topic} in this cluster{meant(topic, zk.children(TopicsZnode.PATH) or ())}{hint}")
    found = TopicZnode.decode(topic, node.data).assignment
    if partition is not None and partition not in found:
        raise RefusedError(f"no partition {partition} of topic {topic}: it has {len(found)}, from 0 on")
    return found


def _leadership(zk: ZooKeeper, partition: TopicPartition) -> LeaderAndIsr | None:
    node = zk.get(PartitionStateZnode.path(partition))
    return PartitionStateZnode.decode(partition, node.data) if node else None


def _ask(zk: ZooKeeper, path: str, request: bytes) -> None:
    """Give the controller a request by a node, once it has none, and wait until it has taken it away."""

    def asked() -> bool:
        try:
            zk.create(path, request)
        except NodeExistsError:
            return False
        return True

    _await(asked, f"{path} to be free")
    _await(lambda: zk.get(path) is None, f"the controller to do what {path} asks")


def _await(what: Callable[[], bool], title: str, timeout_s: float = _AWAIT_S) -> None:
    deadline = time.monotonic() + timeout_s
    while not what():
        if time.monotonic() > deadline:
            raise KafkatoolError(f"waited {timeout_s:g} s in vain for {title}")
        time.sleep(0.01)
