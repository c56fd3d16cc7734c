"""What goes wrong in real life, done to a real cluster under load: afterwards nothing is lost, stuck or unequal.

Every test that chooses at random prints its seed.
"""

import contextlib
import os
import random
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

import pytest

from kafkatool.broker.embedded.cluster import EmbeddedCluster
from kafkatool.broker.embedded.zookeeper_process import ZooKeeperProcess
from kafkatool.core.errors import NoNodeError
from kafkatool.core.model.values import TopicPartition
from kafkatool.core.operations.topics.deletion import mark_for_deletion
from kafkatool.core.zookeeper.cluster_view import read_cluster
from kafkatool.core.zookeeper.session import ANY_VERSION, ZooKeeper
from kafkatool.core.zookeeper.znodes import BrokerZnode, ControllerZnode, ReassignmentZnode
from tests.faults.torn import tear
from tests.integration.load import (
    Load,
    await_in_sync,
    check_records,
    check_replicas_equal,
    make_topic,
    out_of_sync,
)
from tests.waiting import awaited, eventually

TOPIC = "faults"
PARTITIONS = 3
SAFE = {"min.insync.replicas": "2", "unclean.leader.election.enable": "false"}


@contextmanager
def cluster_of(brokers: int = 3, *, session_ms: int = 3000) -> Iterator[tuple[EmbeddedCluster, ZooKeeper]]:
    """Give a cluster with an in-sync topic, and a session that outlives a long absence of ZooKeeper."""
    with (
        EmbeddedCluster(brokers=brokers, options={**SAFE, "zookeeper.session.timeout.ms": str(session_ms)}) as cluster,
        ZooKeeper(cluster.zookeeper, session_timeout_ms=60_000) as zk,
    ):
        make_topic(zk, TOPIC, PARTITIONS)
        await_in_sync(zk, [TOPIC])
        yield cluster, zk


@contextmanager
def loaded(cluster: EmbeddedCluster, zk: ZooKeeper) -> Iterator[Load]:
    """Give an idempotent producer at work; at the end everything has to be there, once, on every replica."""
    load = Load(cluster.bootstrap, TOPIC, idempotent=True)
    try:
        load.goes_on(200)
        yield load
        load.goes_on(200)
    finally:
        load.stop()
    await_in_sync(zk)
    check_records(cluster, TOPIC, PARTITIONS, load, once=True)
    check_replicas_equal(cluster)


def leader_of(zk: ZooKeeper, partition: int = 0) -> int:
    """Wait for a leader: there is none for a moment while the sessions of several brokers have ended."""
    tp = TopicPartition(TOPIC, partition)
    return awaited(
        lambda: read_cluster(zk, [TOPIC]).states[tp].leader_and_isr.leader, f"a leader of {TOPIC}-{partition}", 60
    )


def controller_of(zk: ZooKeeper) -> int:
    return awaited(lambda: read_cluster(zk, [], states=False).controller_id, "a controller", 60)


@contextmanager
def frozen(cluster: EmbeddedCluster, broker_id: int) -> Iterator[None]:
    """Let the process stand still, as after a long collection or on a machine that swaps."""
    pid = next(b.pid for b in cluster.status().brokers if b.id == broker_id)
    assert pid is not None
    os.kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        os.kill(pid, signal.SIGCONT)


def gone(zk: ZooKeeper, broker_id: int) -> None:
    eventually(lambda: broker_id not in read_cluster(zk, [], states=False).brokers, "the session to expire", 60)


@pytest.mark.slow
@pytest.mark.spec("BRK-137", "BRK-66", "BRK-73", "BRK-121")
@pytest.mark.parametrize(
    "damage", ["garbled", pytest.param("cut", marks=pytest.mark.slow), pytest.param("grown", marks=pytest.mark.slow)]
)
def test_a_torn_log_tail_is_cut_and_fetched_again(damage: str) -> None:
    chance = random.Random(damage)
    with cluster_of() as (cluster, zk), loaded(cluster, zk) as load:
        for victim in (leader_of(zk), leader_of(zk) % 3 + 1):
            cluster.kill_broker(victim)
            tear(cluster.files.data(victim), damage, chance)
            cluster.start_broker(victim)
            await_in_sync(zk, [TOPIC])
            load.goes_on(100)


@pytest.mark.slow
@pytest.mark.spec("BRK-137", "CTL-24", "CTL-35")
def test_a_controller_with_a_torn_log_that_is_back_before_the_next_one_rules_leads_nothing() -> None:
    """Everybody would cut off what it has lost. The next one wins, and then stands still until it is back."""
    chance = random.Random(1)
    with cluster_of(session_ms=60_000) as (cluster, zk), loaded(cluster, zk) as load:
        victim = controller_of(zk)
        led = next(p for p in range(PARTITIONS) if leader_of(zk, p) == victim)
        with ExitStack() as standing:
            others = {1, 2, 3} - {victim}
            for other in others:
                standing.enter_context(frozen(cluster, other))
            cluster.kill_broker(victim)
            tear(cluster.files.data(victim), "cut", chance)
            zk.delete(BrokerZnode.path(victim))  # as when its session ends
            zk.set(ControllerZnode.PATH, ControllerZnode.encode(min(others), 0), ANY_VERSION)
            started = threading.Thread(target=cluster.start_broker, args=(victim,))
            started.start()
            eventually(lambda: zk.get(BrokerZnode.path(victim)) is not None, "it to be back", 60)
            zk.delete(ControllerZnode.PATH)
        started.join()
        eventually(lambda: leader_of(zk, led) != victim, "another leader", 60)
        await_in_sync(zk, [TOPIC])
        load.goes_on(100)


@pytest.mark.spec("BRK-121", "BRK-126", "BRK-91", "CTL-35", "CTL-111", "CTL-114")
@pytest.mark.slow
def test_a_producer_sees_no_error_while_brokers_bounce_and_stop() -> None:
    with cluster_of() as (cluster, zk), loaded(cluster, zk) as load:
        victim = leader_of(zk)
        cluster.kill_broker(victim)
        cluster.start_broker(victim)  # before the session of its former life has expired
        await_in_sync(zk, [TOPIC])
        load.goes_on(100)
        cluster.stop_broker(leader_of(zk))
        load.goes_on(100)
        cluster.start_broker(next(b.id for b in cluster.status().brokers if b.pid is None))


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.spec("BRK-126", "CTL-111", "CTL-114", "CTL-36")
def test_a_rolling_restart_under_load_costs_no_error() -> None:
    with cluster_of() as (cluster, zk), loaded(cluster, zk) as load:
        for broker_id in (1, 2, 3) * 2:
            cluster.stop_broker(broker_id)
            load.goes_on(100)
            cluster.start_broker(broker_id)
            await_in_sync(zk, [TOPIC])


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.spec("BRK-55", "BRK-58", "BRK-63", "BRK-122", "CTL-13", "CTL-15", "CTL-19")
@pytest.mark.parametrize("who", ["leader", "controller", "follower"])
def test_a_broker_that_stood_still_longer_than_its_session_does_no_harm(who: str) -> None:
    with cluster_of() as (cluster, zk), loaded(cluster, zk) as load:
        for _ in range(3):
            leader = leader_of(zk)
            victim = {"leader": leader, "controller": controller_of(zk), "follower": leader % 3 + 1}[who]
            with frozen(cluster, victim):
                gone(zk, victim)
                eventually(lambda v=victim: controller_of(zk) != v, "another controller", 60)  # type: ignore[misc]
                load.goes_on(200)
            eventually(lambda v=victim: v in read_cluster(zk, [], states=False).brokers, "it to be back", 60)  # type: ignore[misc]
            await_in_sync(zk, [TOPIC])


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.spec("BRK-122", "CTL-18", "CTL-19", "CTL-20")
@pytest.mark.parametrize("seconds_down", [0, 30])
def test_zookeeper_is_killed_and_comes_back_under_load(seconds_down: int) -> None:
    with cluster_of() as (cluster, zk), loaded(cluster, zk) as load:
        port = int(cluster.zookeeper.rpartition(":")[2])
        server = ZooKeeperProcess(cluster.files.zookeeper, port)
        for _ in range(1 if seconds_down else 3):
            server.stop(gentle=False)
            try:
                if seconds_down:
                    until = time.monotonic() + seconds_down
                    eventually(lambda t=until: time.monotonic() > t, "time to pass", seconds_down + 5)  # type: ignore[misc]
                    load.goes_on(500)  # whose leaders live goes on without ZooKeeper
            finally:
                server.start().wait_ready()
            eventually(lambda: len(read_cluster(zk, [], states=False).brokers) == 3, "all brokers", 90)
            controller_of(zk)
            await_in_sync(zk, [TOPIC])
            cluster.kill_broker(leader_of(zk))  # so that the controller shows it works
            load.goes_on(200)
            cluster.start_broker(next(b.id for b in cluster.status().brokers if b.pid is None))
            await_in_sync(zk, [TOPIC])


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.spec("CTL-26", "CTL-28", "CTL-84", "CTL-98", "CTL-99", "CTL-24")
def test_everything_begun_is_finished_though_the_controller_dies_again_and_again() -> None:
    seed = random.randrange(1 << 32)
    print(f"seed {seed}")
    chance = random.Random(seed)
    with cluster_of(4) as (cluster, zk), loaded(cluster, zk):
        living: list[str] = []
        doomed: list[str] = []
        for step in range(6):
            for number in range(3):
                living.append(f"t{step}-{number}")
                make_topic(zk, living[-1], chance.choice([1, 5, 20]), chance.choice([1, 2, 3]))
            view = read_cluster(zk)
            moves = {
                partition: tuple(
                    chance.sample([1, 2, 3, 4], len(view.topics[partition.topic].assignment[partition[1]]))
                )
                for partition in chance.sample(sorted(view.states), min(8, len(view.states)))
            }
            if view.reassignment is None:
                zk.create(ReassignmentZnode.PATH, ReassignmentZnode.encode(moves))
            for topic in chance.sample(living, 2):
                living.remove(topic)
                doomed.append(topic)
                mark_for_deletion(zk, topic)
            for _ in range(2):
                _end_controller(cluster, zk, chance)
            eventually(lambda: _all_is_done(zk), "everything to be finished", 180)
            assert set(read_cluster(zk).topics) >= set(living)
            assert not set(read_cluster(zk).topics) & set(doomed)


def _end_controller(cluster: EmbeddedCluster, zk: ZooKeeper, chance: random.Random) -> None:
    victim = controller_of(zk)
    match chance.choice(["kill", "kill", "freeze", "depose"]):
        case "kill":
            cluster.kill_broker(victim)
            if chance.random() < 0.5:
                gone(zk, victim)
            cluster.start_broker(victim)
        case "freeze":
            with frozen(cluster, victim):
                gone(zk, victim)
        case "depose":
            with contextlib.suppress(NoNodeError):  # its session may have ended just now
                zk.delete(ControllerZnode.PATH)


def _all_is_done(zk: ZooKeeper) -> bool:
    view = read_cluster(zk)
    return not (view.marked_for_deletion or view.reassignment or view.election or out_of_sync(zk))
