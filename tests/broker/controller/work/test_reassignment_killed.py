"""OAR {1,2,3} -> RAR {4,5,6} over a real ZooKeeper: the controller dies behind each of its writes and each of its sends.

Dead is: nothing of it reaches ZooKeeper or a broker any more, and its session ends. The next one must go on from what is
left (CTL-99), ZooKeeper never showing any row but the document's (CTL-92). The same with requests that are lost,
and thousands of orders of events, is played in tests/simulation.
"""

import itertools
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from typing import Any

import pytest

from kafkatool.broker.controller.controller import Controller
from kafkatool.broker.controller.telling.channels import Answer, Channel, ChannelFactory, ControlRequest
from kafkatool.broker.embedded.zookeeper_process import ZooKeeperProcess
from kafkatool.broker.registration.registration import make_base_paths
from kafkatool.core.errors import KafkatoolError, VersionConflictError
from kafkatool.core.model.values import BrokerInfo, Endpoint, LeaderAndIsr, TopicPartition
from kafkatool.core.protocol.messages.error_codes import ErrorCode
from kafkatool.core.protocol.messages.leader_and_isr import (
    LeaderAndIsrPartition,
    LeaderAndIsrRequest,
    LeaderAndIsrResponse,
    LeaderAndIsrResponsePartition,
)
from kafkatool.core.protocol.messages.stop_replica import (
    StopReplicaRequest,
    StopReplicaResponse,
    StopReplicaResponsePartition,
)
from kafkatool.core.protocol.messages.update_metadata import UpdateMetadataResponse
from kafkatool.core.zookeeper.session import ZooKeeper
from kafkatool.core.zookeeper.znodes import (
    BrokerZnode,
    PartitionStateZnode,
    PartitionsZnode,
    PartitionZnode,
    ReassignmentZnode,
    TopicZnode,
)
from tests.waiting import eventually

T0 = TopicPartition("t", 0)
OLD, WANTED = (1, 2, 3), (4, 5, 6)
BOTH = (*OLD, *WANTED)
WAIT_S = 60
_runs = itertools.count()


class DeadError(KafkatoolError):
    """What the dead controller gets of the world."""


class Axe:
    """Lets a number of steps happen; the controller is dead right behind the last one."""

    def __init__(self) -> None:
        self.left: int | None = None  # None: it does not fall
        self.dead = False

    def check(self) -> None:
        if self.dead:
            raise DeadError("dead")

    def count(self) -> None:
        if self.left is not None:
            self.left -= 1
            self.dead = self.dead or self.left == 0


class MortalZooKeeper(ZooKeeper):
    """Tells of each write, and does nothing any more for a dead controller."""

    def __init__(self, connect: str, axe: Axe, counts: bool, wrote: Callable[[], None]) -> None:
        super().__init__(connect, session_timeout_ms=60_000)
        self._axe, self._counts, self._wrote = axe, counts, wrote

    def _write(self, write: Callable[..., Any], *args: Any, **options: Any) -> Any:
        self._axe.check()
        answer = write(*args, **options)
        self._wrote()
        if self._counts:
            self._axe.count()
            self._axe.check()
        return answer

    def create(self, *args: Any, **options: Any) -> str:
        return str(self._write(super().create, *args, **options))

    def set(self, *args: Any) -> int:
        return int(self._write(super().set, *args))

    def delete(self, *args: Any) -> None:
        self._write(super().delete, *args)

    def commit(self, ops: Sequence[Any]) -> Any:
        return self._write(super().commit, ops)

    def commit_many(self, transactions: Sequence[Any]) -> Any:
        return self._write(super().commit_many, transactions)


class Run:
    """One reassignment, of brokers that only know roles; its first controller dies behind a write, or a send."""

    def __init__(self, connect: str) -> None:
        self.rows: list[tuple[tuple[int, ...], int | None, tuple[int, ...]]] = []
        self.disks = dict.fromkeys(BOTH, False) | dict.fromkeys(OLD, True)
        self._roles: dict[int, LeaderAndIsrPartition] = {}
        self._epochs = dict.fromkeys(BOTH, 0)
        self._connect = connect
        self._stack = ExitStack()
        self.zk = self._stack.enter_context(ZooKeeper(connect, session_timeout_ms=60_000, create_chroot=True))
        make_base_paths(self.zk)
        for broker in BOTH:
            info = BrokerInfo(broker, (Endpoint("PLAINTEXT", "127.0.0.1", 1),))
            self.zk.create(BrokerZnode.path(broker), BrokerZnode.encode(info, 0), ephemeral=True)
        self.zk.create(TopicZnode.path("t"), TopicZnode({0: OLD}).encode())
        self.zk.create(PartitionsZnode.path("t"))
        self.zk.create(PartitionZnode.path(T0))
        self.zk.create(PartitionStateZnode.path(T0), PartitionStateZnode.encode(LeaderAndIsr(1, 0, OLD, 0)))

    def close(self) -> None:
        self._stack.close()

    # --- ZooKeeper ----------------------------------------------------------------------------------------------

    def assignment(self) -> tuple[int, ...]:
        node = self.zk.get(TopicZnode.path("t"))
        assert node is not None
        return TopicZnode.decode("t", node.data).assignment[0]

    def state(self) -> tuple[LeaderAndIsr, int]:
        node = self.zk.get(PartitionStateZnode.path(T0))
        assert node is not None
        return PartitionStateZnode.decode(T0, node.data), node.version

    def observe(self) -> None:
        state, _ = self.state()
        row = (self.assignment(), state.leader, tuple(sorted(state.isr)))
        if row not in self.rows[-1:]:
            self.rows.append(row)

    def is_done(self) -> bool:
        state, _ = self.state()
        return (
            self.zk.get(ReassignmentZnode.PATH) is None
            and self.assignment() == WANTED
            and set(state.isr) == set(WANTED)
            and not any(self.disks[b] for b in OLD)
        )

    # --- controllers --------------------------------------------------------------------------------------------

    def controller(self, broker_id: int, axe: Axe, what: str) -> Callable[[], None]:
        """Start one; return what ends it, and its session."""
        zookeeper = MortalZooKeeper(self._connect, axe, what == "write", self.observe).start()
        found = Controller(
            zookeeper, broker_id=broker_id, open_channel=lambda _: self._channels(axe, counts=what == "send")
        )
        found.startup()

        def end() -> None:
            axe.dead = True
            found.shutdown()
            zookeeper.close()

        self._stack.callback(end)
        assert found.is_active
        return end

    def _channels(self, axe: Axe, *, counts: bool) -> ChannelFactory:
        run = self

        class Direct:
            """A request is there when it is sent."""

            def __init__(self, broker: BrokerInfo) -> None:
                self._broker = broker.id

            def send(self, request: ControlRequest) -> None:
                axe.check()
                answer = run.deliver(self._broker, request)
                if request.on_answer is not None:
                    request.on_answer(answer)
                if counts:
                    axe.count()

            def close(self) -> None:
                """Do nothing: there is nothing to close."""

        def make(broker: BrokerInfo) -> Channel:
            return Direct(broker)

        return make

    # --- brokers ------------------------------------------------------------------------------------------------

    def deliver(self, broker: int, request: ControlRequest) -> Answer:
        message = request.message
        stale = message.controller_epoch < self._epochs[broker]
        code = int(ErrorCode.STALE_CONTROLLER_EPOCH) if stale else 0
        self._epochs[broker] = max(message.controller_epoch, self._epochs[broker])
        match message:
            case LeaderAndIsrRequest():
                for state in () if stale else message.partition_states:
                    self._become(broker, state)
                parts = [LeaderAndIsrResponsePartition(topic="t", partition=0)]
                return LeaderAndIsrResponse(error_code=code, partitions=parts)
            case StopReplicaRequest():
                if not stale:
                    self._roles.pop(broker, None)
                    self.disks[broker] = self.disks[broker] and not message.delete_partitions
                stopped = [StopReplicaResponsePartition(topic="t", partition=0)]
                return StopReplicaResponse(error_code=code, partitions=stopped)
        return UpdateMetadataResponse(error_code=code)

    def _become(self, broker: int, role: LeaderAndIsrPartition) -> None:
        known = self._roles.get(broker)
        if known is not None and known.leader_epoch > role.leader_epoch:
            return
        self._roles[broker] = role
        self.disks[broker] = True
        leader = self._roles.get(role.leader)
        if leader is None or leader.leader != role.leader:
            return
        for follower in leader.replicas:  # the leader takes in who follows it in this epoch
            theirs = self._roles.get(follower)
            if theirs is not None and theirs.leader_epoch == leader.leader_epoch:
                self._take_in(role.leader, leader.leader_epoch, follower)

    def _take_in(self, leader: int, epoch: int, follower: int) -> None:
        state, version = self.state()
        if (state.leader, state.leader_epoch) != (leader, epoch) or follower in state.isr:
            return
        grown = LeaderAndIsr(leader, epoch, (*state.isr, follower), state.controller_epoch)
        try:
            self.zk.set(PartitionStateZnode.path(T0), PartitionStateZnode.encode(grown), version)
        except VersionConflictError:
            return  # the controller was faster, and will tell
        self.observe()


@pytest.fixture
def runs(zookeeper_server: ZooKeeperProcess) -> Iterator[Callable[[], Run]]:
    with ExitStack() as stack:

        def make() -> Run:
            run = Run(f"{zookeeper_server.connect}/killed-{next(_runs)}")
            stack.callback(run.close)
            return run

        yield make


def _is_a_row(assigned: tuple[int, ...], leader: int | None, isr: tuple[int, ...]) -> bool:
    """Tell whether it is a row of the document; the ISR may grow in between, and be what step 8 leaves of it."""
    if assigned == BOTH:
        return leader in (1, 4) and leader in isr and set(isr) <= set(BOTH)
    return (assigned, leader, isr) in ((OLD, 1, OLD), (WANTED, 4, WANTED))


def _in_their_order(rows: list[tuple[tuple[int, ...], int | None, tuple[int, ...]]]) -> bool:
    """Tell whether assignment and leader went the document's way, and never back."""
    seen = [row for row, _ in itertools.groupby((assigned, leader) for assigned, leader, _ in rows)]
    return seen == [row for row in ((OLD, 1), (BOTH, 1), (BOTH, 4), (WANTED, 4)) if row in seen]


def _reassign_and_kill(run: Run, what: str, number: int) -> bool:
    """Reassign; tell whether the first controller came to die."""
    axe = Axe()
    end = run.controller(101, axe, what)
    run.observe()
    axe.left = number
    run.zk.create(ReassignmentZnode.PATH, ReassignmentZnode.encode({T0: WANTED}))
    eventually(lambda: axe.dead or run.is_done(), "the reassignment, or the controller's death", WAIT_S)
    end()  # the last step makes it done before it is counted: by now it is
    if died := axe.left <= 0:
        run.controller(102, Axe(), what)
        eventually(run.is_done, f"the next controller to finish; {what} {number}: {run.rows}", WAIT_S)
    return died


@pytest.mark.slow
@pytest.mark.spec("CTL-91", "CTL-92", "CTL-93", "CTL-98", "CTL-99")
@pytest.mark.parametrize(("what", "at_least"), [("write", 6), ("send", 30)])
def test_the_next_controller_finishes_wherever_the_first_is_killed(
    runs: Callable[[], Run], what: str, at_least: int
) -> None:
    for number in itertools.count(1):
        run = runs()
        died = _reassign_and_kill(run, what, number)
        assert [row for row in run.rows if not _is_a_row(*row)] == [], number
        assert _in_their_order(run.rows), (number, run.rows)
        assert run.rows[-1] == (WANTED, 4, WANTED)
        run.close()
        if not died:
            assert number > at_least
            return


@pytest.mark.spec("CTL-91", "CTL-92", "CTL-93", "CTL-98", "CTL-99")
@pytest.mark.parametrize(("what", "number"), [("write", 1), ("write", 3), ("send", 12)])
def test_some_of_these_deaths(runs: Callable[[], Run], what: str, number: int) -> None:
    run = runs()
    assert _reassign_and_kill(run, what, number)
    assert [row for row in run.rows if not _is_a_row(*row)] == []
    assert _in_their_order(run.rows), run.rows
