"""Plans checked and submitted against a real ZooKeeper: what is refused, what is written, who wins."""

import json
import threading
from collections.abc import Iterator

import pytest

from kafkatool.core.errors import RefusedError
from kafkatool.core.model.values import TopicPartition
from kafkatool.core.operations.reassignment.status import running
from kafkatool.core.operations.reassignment.submission import plan_throttle, prepare, start
from kafkatool.core.planner.plan_files import Moves, dashed
from kafkatool.core.zookeeper.cluster_view import read_cluster
from kafkatool.core.zookeeper.session import ZooKeeper
from kafkatool.core.zookeeper.znodes import PreferredElectionZnode, ReassignmentZnode, TopicZnode
from tests.core.operations.reassignment.plans import NINE, plan, tp
from tests.core.zookeeper import cluster_nodes as nodes


@pytest.mark.spec("CTL-87", "RSN-16", "RSN-9", "RSN-18X")
def test_the_znode_holds_all_nine_entries_also_those_that_change_nothing(zk: ZooKeeper) -> None:
    nodes.make_cluster(zk, topics={"t": NINE})
    before = nodes.tree(zk)
    prepared = prepare(zk, plan({p: (3 - p % 2,) for p in range(9)}))
    assert prepared.unchanged == [tp(1), tp(2), tp(7), tp(8)]
    assert zk.get(ReassignmentZnode.PATH) is None
    start(zk, prepared)
    node = zk.get(ReassignmentZnode.PATH)
    assert node is not None and node.ephemeral_owner == 0
    entries = [{"topic": "t", "partition": p, "replicas": [3 - p % 2]} for p in range(9)]
    assert json.loads(node.data) == {"version": 1, "partitions": entries}
    after = nodes.tree(zk)
    del after[ReassignmentZnode.PATH]
    assert after == before, "the node alone"


@pytest.mark.spec("RSN-18X")
def test_unchanged_entries_can_be_left_out(zk: ZooKeeper) -> None:
    nodes.make_cluster(zk, topics={"t": {**NINE, 7: (2, 1)}})
    prepared = prepare(zk, plan({0: (2,), 1: (2,), 7: (1, 2)}), skip_unchanged=True)
    assert list(prepared.moves) == [tp(0), tp(7)] and not prepared.unchanged, "another order is a change"
    nothing = prepare(zk, plan({1: (2,)}), throttle=5000, skip_unchanged=True)
    assert not nothing.ops
    start(zk, nothing)
    assert zk.get(ReassignmentZnode.PATH) is None


@pytest.mark.spec("RSN-6")
def test_a_plan_may_change_the_number_of_replicas(zk: ZooKeeper) -> None:
    nodes.make_cluster(zk, topics={"t": {**NINE, 7: (2, 1, 3)}})
    wanted = plan({4: (2, 3), 7: (3,)})
    start(zk, prepare(zk, wanted))
    assert running(zk) == wanted


@pytest.mark.spec("RSN-7", "RSN-30X", "RSN-24X")
@pytest.mark.parametrize(
    ("moves", "throttle", "message"),
    [
        ({0: (2,), 9: (1,), 10: (1,)}, None, "The proposed assignment contains non-existent partitions: t-9, t-10"),
        ({0: (2, 77), 1: (9,)}, None, "The proposed assignment contains non-existent brokerIDs: 9,77"),
        ({0: (2,)}, 1023, "a throttle of 1023 B/s may never let the move end: give at least 1024, or add --force"),
    ],
)
def test_a_plan_that_does_not_fit_the_cluster_is_refused(
    zk: ZooKeeper, moves: dict[int, tuple[int, ...]], throttle: int | None, message: str
) -> None:
    nodes.make_cluster(zk, topics={"t": NINE})
    with pytest.raises(RefusedError) as refused:
        prepare(zk, plan(moves), throttle=throttle, name_of=dashed)
    assert str(refused.value) == message


@pytest.mark.spec("RSN-24X")
def test_a_throttle_of_1024_bytes_per_second_needs_no_force(zk: ZooKeeper) -> None:
    nodes.make_cluster(zk, topics={"t": NINE})
    assert prepare(zk, plan({0: (2,)}), throttle=1024).throttle == 1024


@pytest.mark.spec("RSN-30X")
def test_a_running_election_of_a_plan_partition_stops_it_unless_forced(zk: ZooKeeper) -> None:
    nodes.make_cluster(zk, topics={"t": NINE})
    zk.create(PreferredElectionZnode.PATH, PreferredElectionZnode.encode([tp(0), tp(3)]), make_parents=True)
    prepare(zk, plan({1: (3,)}))
    with pytest.raises(RefusedError, match=r"election is under way for \[t,0\];"):
        prepare(zk, plan({0: (3,)}))
    assert prepare(zk, plan({0: (77,)}), force=True).moves == plan({0: (77,)})


@pytest.mark.spec("RSN-31X", "RSN-7", "Z-21")
def test_of_two_that_start_together_one_wins_and_the_other_is_told(zk_connect: str, zk: ZooKeeper) -> None:
    nodes.make_cluster(zk, topics={"t": NINE})
    plans = [plan({0: (2,)}), plan({0: (3,), 3: (3,)})]
    prepared = [prepare(zk, p) for p in plans]
    refused: list[str] = []
    gate = threading.Barrier(2)

    def go(index: int) -> None:
        with ZooKeeper(zk_connect) as own:
            gate.wait(60)
            try:
                start(own, prepared[index])
            except RefusedError as e:
                refused.append(str(e))

    threads = [threading.Thread(target=go, args=(i,)) for i in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    winner = running(zk)
    assert winner in plans
    names = ",".join(p.bracketed for p in winner or {})
    assert refused == [f"Partition reassignment currently in progress for {names}. Aborting operation"]


@pytest.mark.spec("RSN-19X")
def test_a_batch_has_half_a_million_bytes_and_any_number_of_entries_unless_it_is_said(zk: ZooKeeper) -> None:
    count = 10_675
    nodes.make_cluster(zk, topics={})
    node = {"version": 1, "partitions": {str(p): [1] for p in range(count)}}
    zk.create("/brokers/topics/abc", json.dumps(node).encode())
    moves = plan(dict.fromkeys(range(count), (2,)), "abc")
    last = tp(count - 1, "abc")
    fits = {**moves, last: (20_000_000,)}  # with as many digits as there is room for
    assert len(ReassignmentZnode.encode(fits)) == 512_000
    assert prepare(zk, fits, force=True).batches == (fits,)
    one_more = {**moves, last: (200_000_000,)}
    *_, cut_off = prepare(zk, one_more, force=True).batches
    assert cut_off == {last: one_more[last]}


@pytest.mark.spec("RSN-20X")
def test_batches_depend_on_the_plan_and_the_bounds_alone(zk: ZooKeeper) -> None:
    nodes.make_cluster(zk, topics={"t": NINE})
    moves = plan({p: (3 - p % 2,) for p in range(9)})
    every = prepare(zk, moves, max_count=4).batches
    changing = prepare(zk, moves, max_count=4, skip_unchanged=True).batches
    assert [list(batch) for batch in every] == [[tp(p) for p in range(n, min(n + 4, 9))] for n in (0, 4, 8)]
    assert [list(batch) for batch in changing] == [[tp(0), tp(3)], [tp(4), tp(5), tp(6)]]
    zk.set("/brokers/topics/t", TopicZnode(dict.fromkeys(range(9), (1,))).encode(), 0)
    assert prepare(zk, moves, max_count=4).batches == every, "wherever the replicas are"


@pytest.mark.spec("RSN-20X")
@pytest.mark.parametrize("wrong", [{9: (1,)}, {8: (77,)}])
def test_what_is_wrong_in_the_last_batch_refuses_the_whole_plan(zk: ZooKeeper, wrong: dict[int, tuple[int]]) -> None:
    nodes.make_cluster(zk, topics={"t": NINE})
    before = nodes.tree(zk)
    with pytest.raises(RefusedError, match="The proposed assignment contains non-existent"):
        prepare(zk, plan({0: (2,), 1: (3,), **wrong}), max_count=1)
    assert nodes.tree(zk) == before


@pytest.mark.spec("RSN-17X", "RSN-22X")
def test_what_does_not_exist_any_more_is_left_out_where_that_is_wanted_but_not_what_cannot_be_read(
    zk: ZooKeeper,
) -> None:
    nodes.make_cluster(zk, topics={"t": {0: (1,), 1: (2,)}, "odd": {0: (1,)}})
    moves = {**plan({0: (2,), 1: (3,), 7: (9,)}), **plan({0: (9,)}, "deleted")}
    with pytest.raises(RefusedError, match="non-existent partitions: t-7, deleted-0"):
        prepare(zk, moves, name_of=dashed)
    prepared = prepare(zk, moves, skip_gone=True, max_count=1)
    assert prepared.batches == (plan({0: (2,)}), plan({1: (3,)})) and prepared.gone == (tp(7), tp(0, "deleted"))
    zk.set(TopicZnode.path("odd"), b"{", 0)
    with pytest.raises(RefusedError, match=r"non-existent partitions: odd-0$"):
        prepare(zk, {**moves, **plan({0: (2,)}, "odd")}, skip_gone=True, name_of=dashed)


@pytest.mark.spec("RSN-14")
def test_a_throttle_is_planned_without_a_look_through_all_moves_for_each_topic(zk: ZooKeeper) -> None:
    looks = 0

    class Looked(dict[TopicPartition, tuple[int, ...]]):
        def __iter__(self) -> Iterator[TopicPartition]:
            nonlocal looks
            looks += 1
            return super().__iter__()

    topics = [f"t{number}" for number in range(40)]
    nodes.make_cluster(zk, topics={topic: {0: (1,)} for topic in topics})
    moves: Moves = Looked({tp(0, topic): (2,) for topic in topics})
    writes = plan_throttle(zk, read_cluster(zk, states=False), moves, 5000)
    assert len(writes) == len(topics) + 2 and looks < 10
