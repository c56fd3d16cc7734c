"""A controller that believes it still rules writes nothing: ZooKeeper's own transaction log is the witness.

Two ``kt controller start`` on one ZooKeeper, brokers that only answer, and topics that come without a pause, so that
whoever rules has always something to write. ``KAFKATOOL_ZOOKEEPER_DOWN_S`` and ``KAFKATOOL_DEPOSED_ROUNDS`` for longer
runs by hand.
"""

import os
import signal
import struct
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import Self

import pytest

from kafkatool.broker.embedded.zookeeper_process import ZooKeeperProcess
from kafkatool.broker.registration.registration import make_base_paths
from kafkatool.core.zookeeper.cluster_view import read_cluster
from kafkatool.core.zookeeper.session import ZooKeeper
from kafkatool.core.zookeeper.znodes import ControllerZnode, DeleteTopicsZnode, TopicZnode
from tests.integration.holding_proxy import MULTI, HoldingProxy
from tests.integration.transaction_log import Transaction, read_transactions, written_by_deposed
from tests.ports import free_port
from tests.stub_broker import StubBroker, register
from tests.waiting import awaited, eventually

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]

ROUNDS = int(os.environ.get("KAFKATOOL_DEPOSED_ROUNDS", "3"))
DOWN_S = float(os.environ.get("KAFKATOOL_ZOOKEEPER_DOWN_S", "3"))
WAIT_S = 90
SHORT_MS, LONG_MS = 1500, 60_000  # sessions that expire while a process stands still, and sessions that do not
IDS = (901, 902)
BROKERS = (1, 2, 3)
_DELETE = struct.pack(">i?i", 2, False, -1)  # begins a deletion in a transaction
PARTITIONS, BACKLOG = 20, 10  # of a topic; and how many topics may wait for their leaders


class Rivals:
    """Two controllers, one of which rules, and always has something to do."""

    def __init__(
        self,
        directory: Path,
        session_ms: int,
        *,
        busy: bool = True,
        hold: Callable[[int, bytes], bool] | None = None,
    ) -> None:
        """``busy``: topics come. ``hold``: the first controller reaches ZooKeeper through a proxy that holds that."""
        self.zookeeper = ZooKeeperProcess(directory / "zookeeper", free_port())
        self._directory = directory
        self.session_ms = session_ms
        self._busy, self._hold = busy, hold
        self.proxy: HoldingProxy | None = None
        self._stack = ExitStack()
        self._processes: dict[int, subprocess.Popen[bytes]] = {}
        self._made = 0  # topics t0, t1 ...
        self._ending = threading.Event()
        self.pausing = threading.Event()

    def __enter__(self) -> Self:
        with ExitStack() as stack:
            stack.callback(self.zookeeper.stop, gentle=False)
            self.zookeeper.start().wait_ready()
            patient = ZooKeeper(self.zookeeper.connect, session_timeout_ms=LONG_MS, connection_timeout_ms=4 * LONG_MS)
            self.zk = stack.enter_context(patient)
            make_base_paths(self.zk)
            for broker in BROKERS:
                stub = StubBroker(reads=False)
                stack.callback(stub.close)
                register(self.zk, broker, stub.port)
            if self._hold is not None:
                self.proxy = stack.enter_context(HoldingProxy(self.zookeeper.port, self._hold))
            for controller in IDS:
                stack.callback(self._end, controller)
                self._start(controller)
            if self._busy:
                making = threading.Thread(target=self._make_topics)
                stack.callback(making.join)
                stack.callback(self._ending.set)
                making.start()
            self._stack = stack.pop_all()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        self._stack.close()

    def _start(self, controller: int) -> None:
        proxied = self.proxy is not None and controller == IDS[0]
        connect = f"127.0.0.1:{self.proxy.port}" if self.proxy and proxied else self.zookeeper.connect
        command = [sys.executable, "-m", "kafkatool", "controller", "start", "--zookeeper", connect]
        command += ["--broker-id", str(controller), "--log-dir", str(self._directory / str(controller))]
        command += [f"-ozookeeper.session.timeout.ms={self.session_ms}", "-odelete.topic.enable=true"]
        command += ["-ounclean.leader.election.enable=true"]  # its brokers cannot be asked
        with self._output(controller).open("wb") as sink:
            self._processes[controller] = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=sink, stderr=sink)
        eventually(lambda: f"controller {controller} runs" in self._output(controller).read_text(), "it to run", WAIT_S)

    def _output(self, controller: int) -> Path:
        return self._directory / f"{controller}.out"

    def _end(self, controller: int) -> None:
        if (process := self._processes.pop(controller, None)) is not None:
            process.kill()
            process.wait()

    def _make_topics(self) -> None:
        assignment = dict.fromkeys(range(PARTITIONS), BROKERS)
        while not self._ending.wait(0.02):
            if not self.pausing.is_set() and (self._made < BACKLOG or self._led(self._made - BACKLOG)):
                self.zk.create(TopicZnode.path(f"t{self._made}"), TopicZnode(assignment).encode())
                self._made += 1

    # --- what happens to them -----------------------------------------------------------------------------------

    def ruler(self) -> int | None:
        node = self.zk.get(ControllerZnode.PATH)
        return ControllerZnode.decode(node.data) if node else None

    def signal(self, controller: int, number: signal.Signals) -> None:
        self._processes[controller].send_signal(number)

    def await_work(self, topics: int = 5) -> None:
        """Wait until that many further topics are led."""
        wanted = self._made + topics
        eventually(lambda: self._led(wanted), "topics to be led", WAIT_S)

    def _led(self, number: int) -> bool:
        return self.leads(f"t{number}")

    def leads(self, topic: str) -> bool:
        return len(read_cluster(self.zk, [topic]).states) == PARTITIONS

    def make(self, topic: str) -> None:
        """Returns when it is led."""
        self.zk.create(TopicZnode.path(topic), TopicZnode(dict.fromkeys(range(PARTITIONS), BROKERS)).encode())
        eventually(lambda: self.leads(topic), "the topic to be led", WAIT_S)

    def resignations(self, controller: int) -> int:
        """Return the number of its terms that have ended."""
        return self._log(controller).count("resigns as controller")

    def resigned(self, controller: int, before: int) -> bool:
        """Tell whether it has noticed what happened since ``before`` of its terms had ended."""
        state = self._log(controller)
        return self.resignations(controller) > before or state.rfind("resign") > state.rfind("successfully elected")

    def follows(self, controller: int, ruler: int) -> bool:
        """Tell whether it has noticed that the other rules, who does so still."""
        state = self._log(controller)
        return state.rfind("resign") > state.rfind("successfully elected") and self.ruler() == ruler

    def _log(self, controller: int) -> str:
        return (self._directory / str(controller) / "controller.log").read_text()

    def transactions(self) -> list[Transaction]:
        return read_transactions(self.zookeeper.directory / "data")


@pytest.fixture
def rivals(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Rivals]:
    with Rivals(tmp_path, request.param) as found:
        yield found


def check(rivals: Rivals, terms: int) -> list[Transaction]:
    """Check that no deposed controller's write took effect, in a log that shows so many terms and their work."""
    transactions = rivals.transactions()
    assert written_by_deposed(transactions) == []
    assert sum(("create", "/controller") in t.changes for t in transactions) >= terms
    assert sum(change[1].endswith("/state") for t in transactions for change in t.changes) > 100 * terms
    return transactions


def depose(rivals: Rivals, while_it_stands_still: Callable[[], None] = lambda: None) -> None:
    """Let the ruling one stand still until the other rules and has worked; then it goes on, and notices.

    Which of the two rules from then on is open where sessions are short: a busy machine ends one by itself.
    """
    rivals.await_work()
    old = awaited(rivals.ruler, "a ruler", WAIT_S)
    new = sum(IDS) - old
    before = rivals.resignations(old)
    rivals.signal(old, signal.SIGSTOP)
    try:
        while_it_stands_still()
        eventually(lambda: rivals.ruler() == new, "the other to rule", WAIT_S)
        rivals.await_work()
    finally:
        rivals.signal(old, signal.SIGCONT)
    eventually(lambda: rivals.resigned(old, before), "the old one to notice", WAIT_S)
    if rivals.session_ms == LONG_MS:
        assert rivals.ruler() == new
    rivals.await_work()


@pytest.mark.spec("CTL-15", "CTL-17", "CTL-19", "CTL-20", "Z-38")
@pytest.mark.parametrize("rivals", [SHORT_MS], indirect=True, ids=["expired"])
def test_one_that_stood_still_past_its_session_writes_nothing(rivals: Rivals) -> None:
    for _ in range(ROUNDS):
        depose(rivals)
    check(rivals, ROUNDS + 1)


@pytest.mark.spec("CTL-11", "CTL-15", "CTL-17", "Z-38")
@pytest.mark.parametrize("rivals", [LONG_MS], indirect=True, ids=["alive"])
def test_one_that_believes_it_still_rules_writes_nothing(rivals: Rivals) -> None:
    """Its session lives, so ZooKeeper carries out what it asks for, but for the epoch that it is bound to."""
    for _ in range(ROUNDS):
        depose(rivals, lambda: rivals.zk.delete(ControllerZnode.PATH))
    check(rivals, ROUNDS + 1)


def deletes_topic(kind: int, request: bytes) -> bool:
    """Return a transaction that deletes something of the topic ``gone``."""
    return kind == MULTI and _DELETE in request and TopicZnode.path("gone").encode() in request


@pytest.mark.spec("CTL-11", "CTL-15", "CTL-16", "Z-38", "Z-42")
def test_a_deletion_that_arrives_after_its_controller_was_deposed_deletes_nothing(tmp_path: Path) -> None:
    """It was on its way while the next controller did it, and the topic was made anew."""
    with Rivals(tmp_path, LONG_MS, busy=False, hold=deletes_topic) as rivals:
        assert rivals.proxy is not None
        old, new = IDS
        assert rivals.ruler() == old
        rivals.make("gone")
        rivals.zk.create(DeleteTopicsZnode.topic_path("gone"))
        assert rivals.proxy.held.wait(WAIT_S)
        rivals.zk.delete(ControllerZnode.PATH)
        eventually(lambda: rivals.ruler() == new, "the other to rule", WAIT_S)
        eventually(lambda: rivals.zk.get(DeleteTopicsZnode.topic_path("gone")) is None, "the deletion", WAIT_S)
        rivals.make("gone")
        rivals.proxy.release()
        eventually(lambda: rivals.follows(old, new), "the old one to notice", WAIT_S)
        assert rivals.leads("gone")
        transactions = rivals.transactions()
    assert written_by_deposed(transactions) == []
    made = [t for t in transactions if ("create", ControllerZnode.PATH) in t.changes]
    assert len(made) == 2
    late = [t for t in transactions if t.session == made[0].session and t.refused and t.zxid > made[1].zxid]
    assert late  # it did arrive


@pytest.mark.spec("CTL-15", "CTL-18", "CTL-19", "Z-40")
@pytest.mark.parametrize("rivals", [SHORT_MS], indirect=True, ids=["short sessions"])
def test_zookeeper_goes_away_and_comes_back_and_one_rules(rivals: Rivals) -> None:
    """Killed and started at once, and killed and away for longer than the sessions last."""
    for seconds in (0.0, DOWN_S):
        rivals.await_work()
        rivals.pausing.set()
        rivals.zookeeper.stop(gentle=False)
        threading.Event().wait(seconds)
        rivals.zookeeper.start().wait_ready()
        eventually(lambda: rivals.ruler() is not None, "a controller", WAIT_S)
        rivals.pausing.clear()
        rivals.await_work()
    check(rivals, 1)
