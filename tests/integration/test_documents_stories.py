"""The documents' listings, played: brokers that are processes stop and return, kt elects, moves and shows (ELE-9, 10).

Leaders, replicas and the lines around them are as in the documents, to the tab. In-sync replicas are compared as sets:
the order in which replicas come back into sync is a race in the documents' listings too.

No rule gives two of the leaders of the eight brokers' moment B (partition 2 led by 6 though 3 is up, partition 3 by 7
and not by 6; tools.md, section 7, row 11), so what leads to them is played first: brokers stop in such an order.
"""

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Final

import pytest
from click.testing import CliRunner

from kafkatool.broker.embedded.zookeeper_process import ZooKeeperProcess
from kafkatool.commands.main import kt
from kafkatool.core.zookeeper.cluster_view import ClusterView, read_cluster
from kafkatool.core.zookeeper.session import ZooKeeper
from tests.compat.mixed import OurBroker
from tests.waiting import eventually

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]

WAIT_S: Final = 120
OPTIONS: Final = {
    "auto.leader.rebalance.enable": "false",
    "controlled.shutdown.retry.backoff.ms": "300",
    "offsets.topic.num.partitions": "1",
    # Brokers end when the story says so, not when the machine is busy:
    "zookeeper.session.timeout.ms": "40000",
    "replica.lag.time.max.ms": "120000",
}
Rows = Mapping[int, tuple[int, str]]
"""Partition -> its leader and its in-sync replicas, in the documents' order."""

EIGHT: Final = ("1,3,4", "2,4,5", "3,5,6", "4,6,7", "5,7,0", "6,0,1", "7,1,2", "0,2,3")
CREATED: Final = dict(
    enumerate(
        ((1, "4,1,3"), (2, "5,2,4"), (3, "5,3,6"), (4, "4,7,6"), (5, "5,7,0"), (6, "0,6,1"), (7, "7,1,2"), (0, "0,2,3"))
    )
)
STOPPED: Final = dict(
    enumerate(((3, "3"), (5, "5"), (6, "5,3,6"), (7, "7,6"), (5, "5,7,0"), (6, "0,6"), (7, "7"), (0, "0,3")))
)
ONE_BACK: Final = {**STOPPED, 0: (3, "3,1"), 5: (6, "0,6,1"), 6: (7, "7,1")}
ELECTED: Final = {**ONE_BACK, 0: (1, "3,1"), 2: (3, "5,3,6")}
ALL_BACK: Final = {
    **ELECTED,
    0: (1, "3,1,4"),
    1: (5, "5,2,4"),
    3: (7, "7,6,4"),
    6: (7, "7,1,2"),
    7: (0, "0,3,2"),
}
ELECTED_AGAIN: Final = {**ALL_BACK, 1: (2, "5,2,4"), 3: (4, "7,6,4")}


class Played:
    """Brokers of ours that are processes, in one chroot, and kt."""

    def __init__(self, connect: str, brokers: Mapping[int, OurBroker], zk: ZooKeeper) -> None:
        self._connect = connect
        self._brokers = brokers
        self._zk = zk

    def kt(self, command: str, *arguments: object, code: int = 0) -> str:
        result = CliRunner().invoke(kt, [*command.split(), "--zookeeper", self._connect, *map(str, arguments)])
        assert result.exit_code == code, result.output
        return result.stdout

    def stop(self, *brokers: int) -> None:
        """Stop them one after the other, controlled, until they are in no ISR that can do without."""
        for broker in brokers:
            self._brokers[broker].stop()
        self._until(lambda v: not set(brokers) & set(v.brokers), f"{brokers} gone")

    def start(self, *brokers: int) -> None:
        """Returns when all replicas on live brokers are in sync."""
        for broker in brokers:
            self._brokers[broker].spawn()
        for broker in brokers:
            eventually(lambda b=broker: self._brokers[b].is_up(self._zk), f"broker {broker}", WAIT_S)  # type: ignore[misc]
        self.in_sync()

    def in_sync(self) -> None:
        def settled(view: ClusterView) -> bool:
            return view.reassignment is None and all(
                p in view.states
                and set(view.states[p].leader_and_isr.isr)
                == set(view.topics[p.topic].assignment[p.partition]) & set(view.brokers)
                for p in view.partitions()
            )

        self._until(settled, "all in sync")

    def shows(self, topic: str, assigned: Sequence[str], rows: Rows) -> None:
        """``kt topics describe`` comes to print exactly the listing, but for the order of the in-sync replicas."""
        factor = assigned[0].count(",") + 1
        head = f"Topic:{topic}\tPartitionCount:{len(assigned)}\tReplicationFactor:{factor}\tConfigs:"
        wanted = [head] + [
            f"\tTopic: {topic}\tPartition: {p}\tLeader: {leader}\tReplicas: {assigned[p]}\tIsr: {_sorted(isr)}"
            for p, (leader, isr) in rows.items()
        ]
        seen: list[str] = []

        def same() -> bool:
            lines = self.kt("topics describe", "--topic", topic).splitlines()
            seen[:] = [re.sub(r"(?<=Isr: ).*", lambda m: _sorted(m[0]), line) for line in lines]
            return seen == wanted

        try:
            eventually(same, topic, WAIT_S / 2)
        except AssertionError:
            assert seen == wanted
            raise

    def _until(self, done, title: str) -> None:  # type: ignore[no-untyped-def]
        eventually(lambda: done(read_cluster(self._zk)), title, WAIT_S)


def _sorted(isr: str) -> str:
    return ",".join(sorted(isr.split(",")))


@contextmanager
def played(server: ZooKeeperProcess, directory: Path, ids: Sequence[int]) -> Iterator[Played]:
    connect = f"{server.connect}/{directory.name}"
    with ExitStack() as stack:
        zk = stack.enter_context(ZooKeeper(connect, create_chroot=True))
        brokers = {i: OurBroker(directory / f"broker-{i}", connect, OPTIONS, i) for i in ids}
        for broker in brokers.values():
            stack.push(broker)
            broker.spawn()
        for number, broker in brokers.items():
            eventually(lambda b=broker: b.is_up(zk), f"broker {number}", WAIT_S)  # type: ignore[misc]
        yield Played(connect, brokers, zk)


@pytest.mark.spec("ELE-9", "ELE-7", "ELE-16X", "ASG-8", "TOP-9", "TOP-10")
def test_eight_brokers_of_which_three_stop_and_return(zookeeper_server: ZooKeeperProcess, tmp_path: Path) -> None:
    topic = "iteblog"

    def election(*partitions: int) -> Path:
        file = tmp_path / "election.json"
        file.write_text(json.dumps({"partitions": [{"topic": topic, "partition": p} for p in partitions]}))
        return file

    with played(zookeeper_server, tmp_path, range(8)) as cluster:
        fixed = ("--partitions", 8, "--replication-factor", 3, "--start-index", 1, "--replica-shift", 1)
        assert cluster.kt("topics create", "--topic", topic, *fixed) == f'Created topic "{topic}".\n'
        cluster.shows(topic, EIGHT, CREATED)

        # To the documents' leaders of partitions 2 and 3: while 6 is away 4 hands over to 7, then 3 and 5 to 6.
        cluster.stop(6, 4)
        cluster.start(6)
        cluster.stop(3, 5)
        cluster.start(3, 5)
        cluster.kt("elect", "--path-to-json-file", election(4, 5))
        cluster.stop(1, 2)
        cluster.shows(topic, EIGHT, STOPPED)

        cluster.start(1)
        cluster.shows(topic, EIGHT, ONE_BACK)
        elected = cluster.kt("elect", "--topic", topic, "--output", "json", code=1)
        assert [item["status"] for item in json.loads(elected)["items"]] == [
            "elected",
            "preferred_down",
            "elected",
            "preferred_down",
            *["already_preferred"] * 4,
        ]
        cluster.shows(topic, EIGHT, ELECTED)
        cluster.start(2, 4)
        cluster.shows(topic, EIGHT, ALL_BACK)  # who returns stays a follower
        names = [f"{topic}-{p}" for p in range(8)]
        assert cluster.kt("elect") == (
            f"Created preferred replica election path with {','.join(names)}\n"
            f"Successfully started preferred replica election for partitions Set({', '.join(names)})\n"
        )
        cluster.shows(topic, EIGHT, ELECTED_AGAIN)


@pytest.mark.spec("ELE-10", "ELE-4", "ELE-7", "TOP-9")
def test_three_brokers_of_which_one_stops_and_returns(zookeeper_server: ZooKeeperProcess, tmp_path: Path) -> None:
    assigned = ("1,2,0", "2,0,1", "0,1,2")
    with played(zookeeper_server, tmp_path, range(3)) as cluster:
        cluster.kt("topics create", "--topic", "t", "--replica-assignment", "1:2:0,2:0:1,0:1:2")
        cluster.shows("t", assigned, {0: (1, "1,2,0"), 1: (2, "2,0,1"), 2: (0, "0,1,2")})
        cluster.stop(2)
        cluster.shows("t", assigned, {0: (1, "1,0"), 1: (0, "0,1"), 2: (0, "0,1")})
        cluster.start(2)
        cluster.shows("t", assigned, {0: (1, "1,0,2"), 1: (0, "0,1,2"), 2: (0, "0,1,2")})
        assert cluster.kt("elect") == (
            "Created preferred replica election path with t-0,t-1,t-2\n"
            "Successfully started preferred replica election for partitions Set(t-0, t-1, t-2)\n"
        )
        cluster.shows("t", assigned, {0: (1, "1,0,2"), 1: (2, "0,1,2"), 2: (0, "0,1,2")})


@pytest.mark.spec("RSN-16", "RSN-8", "RSN-12", "ASG-10", "TOP-9")
def test_nine_partitions_are_moved_from_three_brokers_to_two(
    zookeeper_server: ZooKeeperProcess, tmp_path: Path
) -> None:
    """Half of the documents' plans are met by chance (start is random), so theirs is written out and executed."""
    with played(zookeeper_server, tmp_path, (1, 2, 3)) as cluster:
        current = {p: 1 + p % 3 for p in range(9)}
        groups = ",".join(str(b) for b in current.values())
        cluster.kt("topics create", "--topic", "topic1", "--replica-assignment", groups)
        cluster.in_sync()
        plan = tmp_path / "plan.json"
        moves = [{"topic": "topic1", "partition": p, "replicas": [2 if p % 2 else 3]} for p in range(9)]
        plan.write_text(json.dumps({"version": 1, "partitions": moves}))
        before = [{"topic": "topic1", "partition": p, "replicas": [b]} for p, b in current.items()]
        flags = ("--reassignment-json-file", plan)
        assert cluster.kt("reassign", "--execute", *flags) == (
            f"Current partition replica assignment\n\n{_compact(before)}\n\n"
            "Save this to use as the --reassignment-json-file option during rollback\n"
            f"Successfully started reassignment of partitions {_compact(moves)}\n"
        )
        cluster.in_sync()
        done = [f"Reassignment of partition [topic1,{p}] completed successfully\n" for p in range(9)]
        assert cluster.kt("reassign", "--verify", *flags) == "Status of partition reassignment:\n" + "".join(done)
        targets = ["2" if p % 2 else "3" for p in range(9)]
        cluster.shows("topic1", targets, {p: (int(b), b) for p, b in enumerate(targets)})


def _compact(partitions: object) -> str:
    return json.dumps({"version": 1, "partitions": partitions}, separators=(",", ":"))
