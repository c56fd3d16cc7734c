"""Facts about partitions: against ZooKeeper's znodes at the end of real stories, and case by case."""

import json
from collections.abc import Sequence
from pathlib import Path

import pytest

from kafkatool.core.statelog.history.facts import Fact, History, history_of, leaderless_ms
from kafkatool.core.statelog.jobs.gathering import Logs, gather, partitions_of
from kafkatool.core.statelog.lines.selection import Selection
from kafkatool.core.statelog.sources.files import open_logs
from kafkatool.core.statelog.sources.source import Source
from kafkatool.core.statelog.sources.spool import spool
from tests.core.statelog.logs import CAPTURES, VERSIONS, InProcess, record, source, story


def histories(sources: Sequence[Source], directory: Path, chunk_bytes: int = 1 << 20) -> dict[str, History]:
    """Return the history of every partition, by name."""
    logs = Logs(tuple(sources), (None,) * len(sources), directory)
    gathered = gather(logs, Selection(), InProcess(), len(sources), chunk_bytes=chunk_bytes)
    return {
        f"{topic}-{partition}": history_of(observations)
        for _, batches in gathered.buckets()
        for topic, partition, observations in partitions_of(batches, gathered.first_lines)
    }


def history(tmp_path: Path, *lines: bytes, name: str = "t-0") -> History:
    return histories([source(tmp_path / "log", b"".join(lines))], tmp_path)[name]


def short(facts: Sequence[Fact]) -> list[tuple[object, ...]]:
    return [(f.time[17:], f.kind, f.old_leader, f.leader, f.leader_epoch, f.changed) for f in facts]


def cached(
    time: str, broker: int, leader: int, epoch: int, isr: str, version: int, by: str = "controller 1 epoch 1"
) -> bytes:
    state = (
        f"controllerEpoch=1, leader={leader}, leaderEpoch={epoch}, isr=[{isr}], zkVersion={version}, replicas=[1, 2, 3]"
    )
    return record(
        time,
        f"[Broker id={broker}] Cached leader info PartitionState({state}, offlineReplicas=[]) for partition t-0 in "
        f"response to UpdateMetadata request sent by {by} with correlation id 1",
    )


def online(time: str, leader: int, epoch: int, isr: str, version: int, before: str = "NewPartition") -> bytes:
    return record(
        time,
        f"[Controller id=1 epoch=1] Changed partition t-0 from {before} to OnlinePartition with state "
        f"LeaderAndIsr(leader={leader}, leaderEpoch={epoch}, isr=List({isr}), zkVersion={version})",
    )


def moved(time: str, before: str, after: str) -> bytes:
    return record(time, f"[Controller id=1 epoch=1] Changed partition t-0 state from {before} to {after}")


def born(time: str) -> bytes:
    return record(
        time,
        "[Controller id=1 epoch=1] Changed partition t-0 state from NonExistentPartition to NewPartition with assigned "
        "replicas 1,2,3",
    )


@pytest.mark.spec("SCL-17X", "SCL-19X")
@pytest.mark.parametrize("version", VERSIONS)
def test_leaders_and_isrs_end_as_zookeeper_has_them(version: str, tmp_path: Path) -> None:
    """Allow a znode newer than anything logged, if it is by the leader's last ISR change, not yet passed on."""
    states = json.loads((CAPTURES / version / "states-at-the-end.json").read_text())
    with spool() as own:
        found = histories(open_logs(story(version), own).sources, own.directory)
    assert {name for name, history in found.items() if not history.deleted} == set(states)
    exact = 0
    for name, state in states.items():
        history = found[name]
        assert (history.leader, history.leader_epoch) == (state["leader"], state["leader_epoch"])
        assert history.isr is not None and history.zk_version is not None
        if history.zk_version == state["zk_version"]:
            exact += 1
            assert list(history.isr) == state["isr"]
        else:
            assert history.zk_version + 1 == state["zk_version"]
            assert set(history.isr) < set(state["isr"])
    assert exact >= {"0.10.2.2": 7, "1.1.1": 1, "2.8.2": 8}[version]


@pytest.mark.spec("SCL-17X", "SCL-8")
@pytest.mark.parametrize("version", VERSIONS)
def test_facts_are_the_same_wherever_the_logs_are_cut(version: str, tmp_path: Path) -> None:
    with spool() as own:
        sources = open_logs(story(version), own).sources
        whole, pieces, crumbs = (histories(sources, own.directory, size) for size in (1 << 20, 40_000, 2500))
    assert whole == pieces == crumbs


@pytest.mark.spec("SCL-17X")
def test_a_fact_told_by_many_is_one_with_its_witnesses(tmp_path: Path) -> None:
    told = history(
        tmp_path,
        born("00,000"),
        online("00,010", 1, 0, "1, 2, 3", 0),
        cached("00,030", 3, 1, 0, "1, 2, 3", 0),
        cached("00,020", 2, 1, 0, "1, 2, 3", 0),
        cached("09,000", 2, 1, 0, "1, 2, 3", 0),
    )
    assert short(told.facts) == [("00,000", "created", None, None, None, ()), ("00,010", "elected", None, 1, 0, ())]
    elected = told.facts[1]
    assert [(w.broker, w.role, w.time[17:], w.line) for w in elected.witnesses] == [
        (1, "controller", "00,010", 2),
        (2, "broker", "00,020", 4),
        (3, "broker", "00,030", 3),
    ]
    assert (elected.controller, elected.controller_epoch, elected.isr) == (1, 1, (1, 2, 3))
    assert told.elections == 1


@pytest.mark.spec("SCL-17X", "SCL-18X")
def test_an_outage_from_death_to_return(tmp_path: Path) -> None:
    told = history(
        tmp_path,
        born("00,000"),
        online("00,010", 1, 0, "1, 2, 3", 0),
        moved("10,000", "OnlinePartition", "OfflinePartition"),
        online("10,250", 2, 1, "2, 3", 1, "OfflinePartition"),
        moved("20,000", "OnlinePartition", "OfflinePartition"),
        record(
            "20,100",
            "[Controller id=1 epoch=1] Controller 1 epoch 1 failed to change state for partition t-0 from OfflinePartition "
            "to OnlinePartition",
            "ERROR",
        ),
        b"kafka.common.StateChangeFailedException: no replica is alive\n\tat a.B\n",
        online("50,000", 2, 2, "2", 2, "OfflinePartition"),
        cached("55,000", 3, 2, 2, "2, 3", 3),
    )
    assert short(told.facts) == [
        ("00,000", "created", None, None, None, ()),
        ("00,010", "elected", None, 1, 0, ()),
        ("10,000", "offline", None, None, None, ()),
        ("10,250", "elected", 1, 2, 1, ()),
        ("10,250", "isr_shrunk", None, 2, 1, (1,)),
        ("20,000", "offline", None, None, None, ()),
        ("20,100", "failed", None, None, None, ()),
        ("50,000", "elected", 2, 2, 2, ()),
        ("50,000", "isr_shrunk", None, 2, 2, (3,)),
        ("55,000", "isr_grown", None, 2, 2, (3,)),
    ]
    assert told.facts[6].reason == (
        "partition change failed: kafka.common.StateChangeFailedException: no replica is alive"
    )
    assert told.facts[-1].decided_by_leader
    day = "2016-01-01 10:00:"
    assert leaderless_ms(told.facts, f"{day}59,000") == [
        (f"{day}10,000", f"{day}10,250", False),
        (f"{day}20,000", f"{day}50,000", False),
    ]
    assert leaderless_ms(told.facts[:6], f"{day}59,000")[1] == (f"{day}20,000", f"{day}59,000", True)


@pytest.mark.spec("SCL-19X")
def test_order_goes_by_epochs_and_versions_and_not_by_clocks(tmp_path: Path) -> None:
    told = history(
        tmp_path,
        cached("09,000", 3, 1, 4, "1, 2, 3", 8),  # broker 3's clock is ten seconds ahead
        cached("00,000", 2, 1, 4, "1, 2, 3", 8),
        cached("01,000", 2, 1, 4, "1, 2", 9),
        cached("02,000", 2, 1, 4, "1, 2, 3", 10),
        cached("11,000", 3, 1, 4, "1, 2", 9),
        cached("12,000", 3, 1, 4, "1, 2, 3", 10),
    )
    assert short(told.facts) == [
        ("00,000", "first_seen", None, 1, 4, ()),
        ("01,000", "isr_shrunk", None, 1, 4, (3,)),
        ("02,000", "isr_grown", None, 1, 4, (3,)),
    ]


@pytest.mark.spec("SCL-17X")
def test_a_controller_that_repeats_a_state_under_its_own_epoch_did_not_decide_it(tmp_path: Path) -> None:
    told = history(
        tmp_path,
        online("00,010", 1, 0, "1, 2, 3", 0),
        record(
            "30,000",
            "[Controller id=2 epoch=2] Partition t-0 state changed to (Leader:1,ISR:1,2,3,LeaderEpoch:0,ZkVersion:0,"
            "ControllerEpoch:2) after removing replica 9 from the ISR as part of transition to OfflineReplica",
        ),
    )
    (elected,) = told.facts
    assert (elected.time[17:], elected.controller, elected.controller_epoch) == ("00,010", 1, 1)


@pytest.mark.spec("SCL-17X")
def test_a_topic_made_again_starts_anew(tmp_path: Path) -> None:
    told = history(
        tmp_path,
        born("00,000"),
        online("00,010", 1, 0, "1, 2, 3", 0),
        online("05,000", 2, 1, "1, 2, 3", 1, "OnlinePartition"),
        moved("10,000", "OnlinePartition", "OfflinePartition"),
        moved("10,001", "OfflinePartition", "NonExistentPartition"),
        born("20,000"),
        cached("19,990", 2, 3, 0, "3, 1, 2", 0),  # a clock a little behind
        online("20,010", 3, 0, "3, 1, 2", 0),
    )
    assert [fact.kind for fact in told.facts] == ["created", "elected", "elected", "deleted", "created", "elected"]
    assert (told.leader, told.leader_epoch, told.deleted) == (3, 0, False)


@pytest.mark.spec("SCL-17X", "SCL-19X")
def test_info_lines_of_two_eight_tell_leaders_and_shrinks(tmp_path: Path) -> None:
    told = history(
        tmp_path,
        born("00,000"),
        online("00,010", 1, 0, "1, 2, 3", 0),
        record(
            "00,100",
            "[Broker id=1] Leader t-0 starts at leader epoch 0 from offset 0 with high watermark 0 ISR [1,2,3] "
            "addingReplicas [] removingReplicas []. Previous leader epoch was -1.",
            "INFO",
        ),
        record(
            "00,110",
            "[Broker id=2] Follower t-0 starts at leader epoch 0 from offset 0 with high watermark 0. Previous leader "
            "epoch was -1.",
            "INFO",
        ),
        record(
            "09,000",
            "[Controller id=1 epoch=1] Partition t-0 state changed to (Leader:-1,ISR:1,LeaderEpoch:1,ZkVersion:1,"
            "ControllerEpoch:1) after removing replica 1 from the ISR as part of transition to OfflineReplica",
            "INFO",
        ),
    )
    assert [fact.kind for fact in told.facts] == ["created", "elected", "offline", "isr_shrunk"]
    assert [w.broker for w in told.facts[1].witnesses] == [1, 1, 2]
    assert told.leader == -1


@pytest.mark.spec("SCL-17X")
def test_the_same_failure_again_is_one_fact_with_a_count(tmp_path: Path) -> None:
    states = "from OfflinePartition to OnlinePartition"
    failed = f"Controller 1 epoch 1 initiated state change for partition [t,0] {states} failed"
    lines = [record(f"0{i},000", failed, "ERROR") + b"kafka.X: none alive\n" for i in range(5)]
    (fact, later) = history(tmp_path, *lines, record("30,000", failed, "ERROR")).facts
    assert (fact.kind, fact.count, fact.until and fact.until[17:]) == ("failed", 5, "04,000")
    assert later.count == 1
