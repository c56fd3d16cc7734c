"""OAR {1,2,3} -> RAR {4,5,6}: the controller dies behind every single write and every single request it sends.

Whatever arrives of its last requests, ZooKeeper shows no row but the document's (CTL-92), the next controller goes on
from there (CTL-99), and in the end nothing is left of the old replicas.
"""

import itertools

import pytest

from kafkatool.core.model.values import TopicPartition
from kafkatool.core.zookeeper.session import Op
from kafkatool.core.zookeeper.znodes import ReassignmentZnode
from tests.simulation.cluster import Cluster
from tests.simulation.life import Life
from tests.simulation.rest import problems
from tests.simulation.server import Writer
from tests.simulation.world import Chances, World

T0 = TopicPartition("t", 0)
OLD, WANTED = (1, 2, 3), (4, 5, 6)
BOTH = (*OLD, *WANTED)
CONTROLLER = 8
_AT_MOST = 200  # writes or sends of one reassignment
_PATIENCE_MS = 120_000


class Run:
    """One reassignment; the controller of its beginning dies at the ``number``-th write or send, if it comes so far."""

    def __init__(self, what: str, number: int, *, requests_lost: bool, seed: int = 1) -> None:
        self.world = World(seed)
        self.cluster = Cluster(self.world, [*BOTH, 7, CONTROLLER])
        self.rows: list[tuple[tuple[int, ...], int | None, tuple[int, ...]]] = []
        self.died = False
        self._left = number
        self._requests_lost = requests_lost
        self.cluster.start(CONTROLLER)
        self.world.run_for(500)
        for broker in (*BOTH, 7):
            self.cluster.start(broker)
        self.world.run_for(500)
        self.cluster.create_topic("t", {0: OLD})
        self.world.run_for(3000)
        assert not problems(self.cluster)
        assert self.cluster.controller_id() == CONTROLLER
        self._watch(what)
        self.cluster.reassign({T0: WANTED})
        deadline = self.world.now + _PATIENCE_MS
        while self.world.now < deadline:
            self.world.run_for(1000)
            if self.died:
                self.world.chances = Chances()
                self.world.after(20_000, lambda: self.cluster.start(CONTROLLER))
                self.died, deadline = False, self.world.now + _PATIENCE_MS
            if ReassignmentZnode.PATH not in self.cluster.server.nodes and not problems(self.cluster):
                return
        pytest.fail(f"{what} {number}: {problems(self.cluster)}")

    @property
    def was_cut_short(self) -> bool:
        return self._left <= 0

    def _watch(self, what: str) -> None:
        cluster, check = self.cluster, self.cluster.server.on_write

        def on_write(writer: Writer, op: Op, before: bytes | None, after: bytes | None) -> None:
            check(writer, op, before, after)
            if (state := cluster.invariants.state(T0)) is not None:
                row = (cluster.invariants.assignment("t")[0], state.leader, tuple(sorted(state.isr)))
                if row not in self.rows[-1:]:
                    self.rows.append(row)

        cluster.server.on_write = on_write
        if what == "write":
            cluster.server.after_transaction = lambda writer: (
                self._count(writer.client.process) if writer.client and writer.part == "controller" else None
            )
        else:
            cluster.after_send = self._count

    def _count(self, process: Life) -> None:
        if process is not self.cluster.processes[CONTROLLER] or not process.alive:
            return
        self._left -= 1
        if self._left == 0:
            self.died = True
            process.kill()
            if self._requests_lost:
                self.world.chances = Chances(request_lost=1.0)  # until it has been noticed


def _is_a_row(assigned: tuple[int, ...], leader: int | None, isr: tuple[int, ...]) -> bool:
    """Tell whether it is a row of the document; the ISR may grow and shrink in between, all the more while nobody rules."""
    if assigned == BOTH:
        return leader in (1, 4) and leader in isr and set(isr) <= set(BOTH)
    return (assigned, leader) in ((OLD, 1), (WANTED, 4)) and leader in isr and set(isr) <= set(assigned)


def _in_their_order(rows: list[tuple[tuple[int, ...], int | None, tuple[int, ...]]]) -> bool:
    """Tell whether assignment and leader went the document's way, and never back."""
    seen = [row for row, _ in itertools.groupby((assigned, leader) for assigned, leader, _ in rows)]
    return seen == [row for row in ((OLD, 1), (BOTH, 1), (BOTH, 4), (WANTED, 4)) if row in seen]


@pytest.mark.spec("CTL-91", "CTL-92", "CTL-93", "CTL-98", "CTL-99")
@pytest.mark.parametrize("what", ["write", "send"])
@pytest.mark.parametrize("requests_lost", [False, True], ids=["last requests arrive", "last requests are lost"])
def test_the_next_controller_finishes_wherever_the_first_dies(what: str, requests_lost: bool) -> None:
    for number in range(1, _AT_MOST):
        run = Run(what, number, requests_lost=requests_lost)
        assert run.cluster.invariants.assignment("t")[0] == WANTED, number
        assert [row for row in run.rows if not _is_a_row(*row)] == [], number
        assert _in_their_order(run.rows), (number, run.rows)
        for old in OLD:
            assert T0 not in run.cluster.disks[old].directories, number
        if not run.was_cut_short:
            assert number > (6 if what == "write" else 30)
            return
    raise AssertionError("it never came to an end")
