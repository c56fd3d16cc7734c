"""What a snapshot says of one partition: where it was, whether it moves, at the cost of one partition."""

from collections.abc import Iterator
from dataclasses import replace

from kafkatool.core.model.values import TopicPartition
from kafkatool.core.zookeeper.view import ClusterView
from kafkatool.core.zookeeper.znodes import TopicZnode


class _LookedUp(dict[int, tuple[int, ...]]):
    """An assignment of which one partition at a time may be asked for."""

    def __iter__(self) -> Iterator[int]:
        raise AssertionError("a question about one partition looks at all")


def test_where_a_partition_was_is_told_by_what_is_noted_of_it_and_without_a_look_at_the_others() -> None:
    """Else a plan of 10,000 partitions costs a hundred million steps: it asks this of each."""
    assignment = _LookedUp({0: (1, 2), 1: (3, 1, 2), 2: (2, 3), 3: (1, 3)})
    noted = {"adding_replicas": {"1": [3], "2": []}, "removing_replicas": {"1": [2]}}
    asked = {TopicPartition("t", 2): (1, 3), TopicPartition("t", 3): (1, 3)}
    view = ClusterView({}, None, None, {"t": TopicZnode(assignment, noted)}, {}, {}, frozenset(), asked, None)
    origins = [view.origin(TopicPartition("t", p)) for p in range(4)]
    assert origins == [(1, 2), (1, 2), (2, 3), None], "at rest, by a request, by the znode: begun, may have been"
    assert [view.adding(TopicPartition("t", p)) for p in range(2)] == [frozenset(), {3}]


def test_what_stays_is_put_together_once_and_anew_for_another_snapshot() -> None:
    """Else each check of kt health sorts 10,000 partitions."""
    topics = {"t": TopicZnode({1: (2, 3), 0: (1, 2)}), "u": TopicZnode({0: (1, 4)})}
    view = ClusterView({}, None, None, topics, {}, {}, frozenset({"u"}), None, None)
    staying = view.staying()
    assert list(staying.items()) == [(TopicPartition("t", 0), (1, 2)), (TopicPartition("t", 1), (2, 3))]
    assert view.staying() is staying and view.dead_holders() == {1, 2, 3}
    other = replace(view, marked_for_deletion=frozenset({"t"}))
    assert other.staying() == {TopicPartition("u", 0): (1, 4)}
    assert view == replace(view) and "staying" not in repr(view), "what was put together is no part of the snapshot"
