"""What a topic that comes or goes while it is looked at leaves of evidence is not taken for damage (ADM-101)."""

from dataclasses import replace
from typing import Any

import pytest

from kafkatool.core.model.values import TopicPartition
from kafkatool.core.operations.brokers.answers import LogDir
from kafkatool.core.operations.migration import reading
from kafkatool.core.operations.migration.conditions import Severity, check
from kafkatool.core.operations.migration.reading import Evidence, without_passing
from kafkatool.core.zookeeper.znodes import ConfigChangeZnode, TopicZnode
from tests.core.operations.migration.evidence import T0, evidence, says
from tests.core.zookeeper.memory import MemoryEnsemble, MemoryZooKeeper

pytestmark = pytest.mark.spec("ADM-101")
NEW = TopicPartition("new", 0)


def found(e: Evidence) -> dict[str, Severity]:
    return {row.id: row.severity for row in check(e) if row.severity not in (Severity.OK, Severity.NOTE)}


def holding(*partitions: TopicPartition) -> Any:
    return {1: says(dirs=[LogDir("/d", False, dict.fromkeys(partitions, 1), None, None)])}


def with_new_topic(e: Evidence) -> Evidence:
    """Add a topic whose partition has no state yet."""
    topics = {**e.view.topics, "new": TopicZnode({0: (1, 2)}, {"topic_id": "y"})}
    return replace(e, view=replace(e.view, topics=topics), topics=("new", *e.topics))


def without_state(e: Evidence) -> Evidence:
    return replace(e, view=replace(e.view, states={p: s for p, s in e.view.states.items() if p != T0}))


@pytest.mark.parametrize(
    ("before", "later"),
    [
        (evidence(orphans=("come",)), evidence(orphans=("gone",))),
        (evidence(unreadable=("/brokers/topics/new",)), evidence()),
        (with_new_topic(evidence()), evidence()),
        (evidence(orphans=("new",)), with_new_topic(evidence(answers=holding(NEW)))),
        (evidence(orphans=("x",)), evidence(answers=holding(NEW))),
        (evidence(answers=holding(NEW)), evidence()),
        (evidence(orphans=("x",)), without_state(evidence())),
    ],
    ids=["configs", "unreadable", "gone", "made", "made after the topics were read", "deleted", "being deleted"],
)
def test_what_is_found_by_halves_at_one_look_alone_is_no_finding(before: Evidence, later: Evidence) -> None:
    assert before.has_halves and found(before)
    assert found(without_passing(later, before)) == {}


@pytest.mark.parametrize(
    ("look", "wanted"),
    [
        (evidence(orphans=("old",)), {"assignments": Severity.WARNING}),
        (evidence(unreadable=("t-0",)), {"assignments": Severity.BLOCKER}),
        (without_state(evidence()), {"assignments": Severity.BLOCKER, "offline": Severity.BLOCKER}),
        (evidence(answers=holding(NEW)), {"strays": Severity.WARNING}),
    ],
)
def test_what_is_found_at_both_looks_is_told(look: Evidence, wanted: dict[str, Severity]) -> None:
    assert look.has_halves
    assert found(without_passing(look, look)) == wanted


def test_a_leader_that_is_lost_between_the_looks_is_told() -> None:
    later = evidence(leader=-1)
    assert found(without_passing(later, evidence(orphans=("x",)))) == {"offline": Severity.BLOCKER}


def test_it_is_looked_at_again_only_where_something_is_found_by_halves(monkeypatch: pytest.MonkeyPatch) -> None:
    def looked(*looks: Evidence) -> tuple[Evidence, list[float]]:
        left, slept = list(looks), list[float]()
        monkeypatch.setattr(reading, "_read", lambda *_: left.pop(0))
        return reading.read(None, None, sleep=slept.append), slept  # type: ignore[arg-type]

    ready = evidence()
    assert looked(ready) == (ready, [])
    told, slept = looked(evidence(orphans=("come",)), evidence())
    assert found(told) == {} and slept == [2.0]


def test_a_config_change_is_stale_after_a_quarter_of_an_hour() -> None:
    with MemoryZooKeeper(MemoryEnsemble()) as zk:
        path = f"{ConfigChangeZnode.PATH}/config_change_0000000000"
        zk.create(path, make_parents=True)
        node = zk.get(path)
        assert node is not None
        made_s = node.ctime_ms / 1000
        assert [reading.count_stale_changes(zk, lambda age=age: made_s + age) for age in (900, 901)] == [0, 1]  # type: ignore[misc]
        zk.delete(path)
        assert reading.count_stale_changes(zk, lambda: made_s + 901) == 0
