"""Facts about partitions: against ZooKeeper's znodes at the end of real stories, and case by case."""

import csv
import json
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

import pytest

from kafkatool.core.statelog.history.fact import Fact
from kafkatool.core.statelog.history.facts import History, history_of, leaderless_ms
from kafkatool.core.statelog.jobs.carrier import Logs
from kafkatool.core.statelog.jobs.gathering import gather
from kafkatool.core.statelog.jobs.here import Here
from kafkatool.core.statelog.lines.selection import Selection
from kafkatool.core.statelog.sources.files import open_logs
from kafkatool.core.statelog.sources.source import Source
from kafkatool.core.statelog.sources.spool import spool
from tests.core.statelog.logs import (
    CAPTURES,
    NEWER,
    VERSIONS,
    InProcess,
    at_info,
    observations_of,
    record,
    source,
    story,
)


def histories(sources: Sequence[Source], directory: Path, chunk_bytes: int = 1 << 20) -> dict[str, History]:
    """Return the history of every partition, by name."""
    logs = Logs(tuple(sources), (None,) * len(sources))
    gathered = gather(logs, Selection(), Here(InProcess(), directory), len(sources), chunk_bytes=chunk_bytes)
    return {
        f"{topic}-{partition}": history_of(observations) for topic, partition, observations in observations_of(gathered)
    }


def history(tmp_path: Path, *lines: bytes, name: str = "t-0") -> History:
    return histories([source(tmp_path / "log", b"".join(lines))], tmp_path)[name]


def short(facts: Iterable[Fact]) -> list[tuple[object, ...]]:
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
        found = histories(open_logs(story(version), own).sources, own)
    assert {name for name, history in found.items() if not history.deleted} == set(states)
    exact = 0
    for name, state in states.items():
        history = found[name]
        assert (history.leader, history.leader_epoch) == (state["leader"], state["leader_epoch"])
        assert history.isr is not None and history.partition_epoch is not None
        if history.partition_epoch == state["zk_version"]:
            exact += 1
            assert list(history.isr) == state["isr"]
        else:
            assert history.partition_epoch + 1 == state["zk_version"]
            assert set(history.isr) < set(state["isr"])
    assert exact >= {"0.10.2.2": 7, "1.1.1": 1, "2.8.2": 8}[version]


DELETED = {"gone-1", "while-away-0"}
UNSEEN_OF_4_1 = {"orders-0": 1, "solo-1": 2, "solo-2": 2}


def held_by_the_metadata_log() -> Iterator[tuple[str, int, str, str]]:
    """Yield each state of 4.1.0's metadata log: partition, partition epoch, leader, recovery state."""
    with (CAPTURES / "4.1.0" / "metadata-changes.tsv").open() as file:
        for row in csv.DictReader(file, delimiter="\t"):
            if row["record"] != "REMOVE_TOPIC":
                name = f"{row['topic']}-{row['partition']}"
                yield name, int(row["partition epoch"]), row["leader"], row["recovery"]


def ends(found: dict[str, History]) -> dict[str, dict[str, object]]:
    """Return how each partition stands, in the words of states-at-the-end.json."""
    return {
        name: {
            "topic_id": h.topic_id,
            "leader": h.leader,
            "leader_epoch": h.leader_epoch,
            "isr": sorted(h.isr or ()),
            "partition_epoch": h.partition_epoch,
            "leader_recovery_state": h.leader_recovery_state,
        }
        for name, h in found.items()
    }


def held(version: str) -> dict[str, dict[str, object]]:
    states = json.loads((CAPTURES / version / "states-at-the-end.json").read_text())
    (known,) = {tuple(end) for end in ends({"t-0": History([])}).values()}
    return {name: {key: state[key] for key in known} for name, state in states.items()}


def unseen(found: dict[str, History]) -> dict[str, int]:
    sums = {name: sum(f.count for f in h.facts if f.kind == "gap") for name, h in found.items()}
    return {name: number for name, number in sums.items() if number}


@pytest.mark.spec("SCL-17X", "SCL-19X", "SCL-24X", "SCL-26X", "SCL-27X", "SCL-28X")
@pytest.mark.parametrize("version", NEWER)
def test_leaders_isrs_epochs_and_ids_end_as_the_cluster_held_them(version: str) -> None:
    with spool() as own:
        found = histories(open_logs(story(version), own).sources, own)
    assert {name: end for name, end in ends(found).items() if name not in DELETED} == held(version)
    # Only with ZooKeeper does a log name what was deleted; all else that these logs do not tell is these five changes.
    assert {name for name, h in found.items() if h.deleted} == (DELETED if version == "3.9.1" else set())
    assert unseen(found) == ({} if version == "3.9.1" else UNSEEN_OF_4_1)
    kinds = [fact.kind for fact in found["gone-0"].facts]
    assert kinds.count("created") == 2  # the second time with another id
    assert len({fact.topic_id for fact in found["gone-0"].facts}) == 2


@pytest.mark.spec("SCL-24X", "SCL-26X", "SCL-28X")
def test_at_info_with_zookeeper_leaders_are_right_and_isrs_that_grew_are_told_as_gaps() -> None:
    with spool() as own:
        found = histories(open_logs(at_info("3.9.1", own), own).sources, own)
    behind = set()
    for name, state in held("3.9.1").items():
        end = ends(found)[name]
        for key in ("topic_id", "leader", "leader_epoch", "leader_recovery_state"):
            assert end[key] == state[key], (name, key)
        if end != state:
            behind.add(name)
            assert (found[name].partition_epoch or 0) + 1 == state["partition_epoch"]
    assert len(behind) == 7  # the leader's last growth of the ISR: six of the nine that lived throughout, and gone-0
    assert unseen(found)["orders-0"] == 4


def counts_of(paths: Sequence[Path], own: Path) -> Counter[str]:
    """Return how many facts there are of each kind, and how many of them tell more than their kind."""
    counts: Counter[str] = Counter()
    for history in histories(open_logs(paths, own).sources, own).values():
        for fact in history.facts:
            counts[fact.kind] += 1
            counts.update(name for name in ("unclean", "handed_over", "decided_by_leader") if getattr(fact, name))
            counts["with_decider"] += fact.controller is not None
    return +counts


@pytest.mark.spec("SCL-19X", "SCL-26X")
@pytest.mark.parametrize(
    ("version", "whole", "less", "none"),
    [
        (
            "2.8.2",
            "created elected ignored handed_over reassigned",
            "isr_grown with_decider",
            "deleted decided_by_leader",
        ),
        (
            *("3.9.1", "created elected ignored handed_over failed unclean"),
            *("isr_grown isr_shrunk with_decider offline reassigned", "deleted decided_by_leader"),
        ),
        (
            *("4.1.0", "created elected isr_grown isr_shrunk offline reassigned unclean gap"),
            *("", "failed with_decider decided_by_leader handed_over deleted"),
        ),
    ],
)
def test_each_fact_is_told_at_info_as_the_tables_have_it(version: str, whole: str, less: str, none: str) -> None:
    """Of real logs, beside the same at TRACE. ``none`` is not told at INFO, without ZooKeeper some of it at no level."""
    with spool() as own:
        trace, info = counts_of(story(version), own), counts_of(at_info(version, own), own)
    for kind in whole.split():
        assert info[kind] == trace[kind] > 0, kind
    for kind in less.split():
        assert 0 < info[kind] < trace[kind], kind
    for kind in none.split():
        assert info[kind] == 0, kind
        assert trace[kind] > 0 or version == "4.1.0", kind
    told = {*whole.split(), *less.split(), *none.split()}
    assert {*trace, *info} <= told | {"gap", "isr_shrunk", "offline"}, "no kind is left out"
    assert info["gap"] >= trace["gap"], "what is hidden is told as gaps, where the epochs show it"


@pytest.mark.spec("SCL-19X", "SCL-24X", "SCL-26X", "SCL-28X")
def test_at_info_without_zookeeper_all_is_told_that_ever_is() -> None:
    with spool() as own:
        found = histories(open_logs(at_info("4.1.0", own), own).sources, own)
    assert {name: end for name, end in ends(found).items() if name not in DELETED} == held("4.1.0")
    assert unseen(found) == UNSEEN_OF_4_1
    facts = [(fact, name) for name, history in found.items() for fact in history.facts]
    assert {fact.controller for fact, _ in facts} == {None}
    assert not [fact for fact, _ in facts if fact.decided_by_leader]
    assert {fact.mode for fact, _ in facts} == {"kraft"}


@pytest.mark.spec("SCL-28X")
def test_the_changes_that_are_not_told_are_those_of_the_metadata_log_that_no_line_names() -> None:
    with spool() as own:
        logs = Logs(tuple(open_logs(story("4.1.0"), own).sources), (None,) * 3)
        gathered = gather(logs, Selection(), Here(InProcess(), own), 3)
        told = {
            (f"{topic}-{partition}", o.partition_epoch)
            for topic, partition, observations in observations_of(gathered)
            for o in observations
        }
    untold = [(name, epoch) for name, epoch, _, _ in held_by_the_metadata_log() if (name, epoch) not in told]
    lived = [name for name, _ in untold if name not in DELETED]
    assert Counter(lived) == UNSEEN_OF_4_1


@pytest.mark.spec("SCL-28X")
def test_an_unclean_election_is_told_once_for_each_recovery_state() -> None:
    with spool() as own:
        found = histories(open_logs(story("4.1.0"), own).sources, own)
        with_zookeeper = histories(open_logs(story("3.9.1"), own).sources, own)
    unclean = {name: sum(f.unclean for f in h.facts) for name, h in found.items()}
    assert {name: n for name, n in unclean.items() if n} == {
        "a-1-0": 1,
        "a-1-1": 1,
        "solo-1": 1,
        "solo-2": 1,
        "x.y_z-0": 1,
    }
    begun, state_of = Counter[str](), dict[str, str]()
    for name, _, leader, recovery in held_by_the_metadata_log():
        begun[name] += leader != "-1" and (recovery, state_of.get(name)) == ("RECOVERING", "RECOVERED")
        state_of[name] = recovery
    assert +begun == {name: n for name, n in unclean.items() if n}, "by the metadata log, too"
    assert [(n, f.leader, f.leader_epoch) for n, h in with_zookeeper.items() for f in h.facts if f.unclean] == [
        ("x.y_z-0", 3, 6)
    ]


def applied(time: str, broker: int, leader: int, epoch: int, version: int, isr: str, topic_id: str) -> bytes:
    """Return what a replica logs, without ZooKeeper, of a change that leaves the leader epoch alone."""
    words = "already the leader" if broker == leader else "already a follower"
    role = "leader" if broker == leader else "follower"
    more = f" Current high watermark 0, ISR [{isr}], adding replicas [] and removing replicas []." * (role == "leader")
    return record(
        time,
        f"[Broker id={broker}] Skipped the become-{role} state change for t-0 with topic id Some({topic_id}) and partition "
        f"state LeaderAndIsrPartitionState(topicName='t', partitionIndex=0, controllerEpoch=-1, leader={leader}, "
        f"leaderEpoch={epoch}, isr=[{isr}], partitionEpoch={version}, replicas=[1, 2, 3], addingReplicas=[], "
        f"removingReplicas=[], isNew=false, leaderRecoveryState=0) since it is {words} with leader epoch {epoch}.{more}",
        "INFO",
    )


def follows(time: str, broker: int, leader: int, epoch: int, version: int) -> bytes:
    return record(
        time,
        f"[Broker id={broker}] Follower t-0 starts at leader epoch {epoch} from offset 0 with partition epoch {version} and "
        f"high watermark 0. Current leader is {leader}. Previous leader Some({leader}) and previous leader epoch "
        f"was {epoch}.",
        "INFO",
    )


ONE, TWO = "6tDgA3IUSPeaya0xD2xe1Q", "-tDgA3IUSPeaya0xD2xe1_"


@pytest.mark.spec("SCL-27X", "SCL-28X")
def test_states_of_one_leader_epoch_are_told_apart_by_their_partition_epochs(tmp_path: Path) -> None:
    told = history(
        tmp_path,
        applied("00,000", 1, 1, 2, 5, "1, 2, 3", ONE),
        applied("00,010", 2, 1, 2, 5, "1, 2, 3", ONE),
        applied("03,000", 1, 1, 2, 6, "1, 2", ONE),
        applied("09,000", 1, 1, 2, 9, "1, 2, 3", ONE),
    )
    assert [(f.time[17:], f.kind, f.partition_epoch, f.changed, f.count) for f in told.facts] == [
        ("00,000", "first_seen", 5, (), 1),
        ("03,000", "isr_shrunk", 6, (3,), 1),
        ("09,000", "gap", None, (), 2),
        ("09,000", "isr_grown", 9, (3,), 1),
    ]
    assert len(next(iter(told.facts)).witnesses) == 2


@pytest.mark.spec("SCL-19X")
def test_where_no_partition_epoch_is_said_isrs_of_one_leader_epoch_are_in_the_order_of_time(tmp_path: Path) -> None:
    """As in lines before 1.0, of which only some have it."""

    def cached(time: str, isr: str) -> bytes:
        state = f"(LeaderAndIsrInfo:(Leader:1,ISR:{isr},LeaderEpoch:4,ControllerEpoch:2),ReplicationFactor:3)"
        return record(
            time,
            f"Broker 1 cached leader info ({state[1:]},AllReplicas:1,2,3) for partition [t,0] in response to UpdateMetadata "
            "request sent by controller 1 epoch 2 with correlation id 3",
            "TRACE",
        )

    told = history(tmp_path, cached("00,000", "1,2,3"), cached("05,000", "1,2"), cached("09,000", "1,2,3"))
    assert [(f.time[17:], f.kind, f.partition_epoch, f.changed) for f in told.facts] == [
        ("00,000", "first_seen", None, ()),
        ("05,000", "isr_shrunk", None, (3,)),
        ("09,000", "isr_grown", None, (3,)),
    ]


@pytest.mark.spec("SCL-27X")
def test_nobody_leads_where_a_follower_says_minus_one_and_what_it_says_of_the_previous_leader_is_not_used(
    tmp_path: Path,
) -> None:
    told = history(
        tmp_path,
        applied("00,000", 1, 1, 2, 5, "1, 3", ONE),
        follows("05,000", 3, -1, 3, 6),
        follows("09,000", 3, 2, 4, 7),
    )
    assert [(f.kind, f.old_leader, f.leader, f.leader_epoch, f.isr) for f in told.facts] == [
        ("first_seen", None, 1, 2, (1, 3)),
        ("offline", 1, None, 3, None),
        ("elected", None, 2, 4, None),
    ]
    assert (told.leader, told.isr, told.topic_id) == (2, None, ONE)


@pytest.mark.spec("SCL-27X")
def test_another_topic_id_is_another_life(tmp_path: Path) -> None:
    told = history(
        tmp_path,
        applied("00,000", 1, 1, 7, 9, "1, 2, 3", ONE),
        applied("20,000", 1, 1, 0, 2, "1, 2", TWO),
        follows("20,010", 2, 1, 0, 3),
    )
    assert [(f.kind, f.leader_epoch, f.topic_id) for f in told.facts] == [
        ("first_seen", 7, ONE),
        ("first_seen", 0, TWO),
    ]
    assert (told.leader_epoch, told.partition_epoch, told.topic_id) == (0, 3, TWO)


@pytest.mark.spec("SCL-27X")
def test_epoch_0_after_a_higher_one_of_the_same_broker_is_another_life_where_no_line_tells_of_its_making(
    tmp_path: Path,
) -> None:
    told = history(
        tmp_path,
        follows("00,000", 3, 1, 7, 9),
        follows("20,000", 3, 2, 0, 0),
        follows("30,000", 3, 1, 1, 1),
    )
    assert [(f.kind, f.old_leader, f.leader, f.leader_epoch) for f in told.facts] == [
        ("first_seen", None, 1, 7),
        ("elected", None, 2, 0),
        ("elected", 2, 1, 1),
    ], "neither compared nor ordered across lives"
    assert (told.leader, told.leader_epoch, told.partition_epoch) == (1, 1, 1)


@pytest.mark.spec("SCL-17X", "SCL-8")
@pytest.mark.parametrize("version", [*VERSIONS, *NEWER])
def test_facts_are_the_same_wherever_the_logs_are_cut(version: str, tmp_path: Path) -> None:
    with spool() as own:
        sources = open_logs(story(version), own).sources
        whole, pieces, crumbs = (histories(sources, own, size) for size in (1 << 20, 40_000, 2500))
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
    elected = list(told.facts)[1]
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
    assert list(told.facts)[6].reason == (
        "partition change failed: kafka.common.StateChangeFailedException: no replica is alive"
    )
    assert list(told.facts)[-1].decided_by_leader
    day = "2016-01-01 10:00:"
    assert list(leaderless_ms(told.facts, f"{day}59,000")) == [
        (f"{day}10,000", f"{day}10,250", False),
        (f"{day}20,000", f"{day}50,000", False),
    ]
    assert list(leaderless_ms(list(told.facts)[:6], f"{day}59,000"))[1] == (f"{day}20,000", f"{day}59,000", True)


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
    told = history(
        tmp_path,
        cached("05,000", 2, 2, 5, "1, 2, 3", 9, by="controller 1 epoch 2"),
        cached("06,000", 3, 1, 4, "1, 2, 3", 7),  # of the leader epoch before, by a clock that is ahead
        cached("09,000", 3, 1, 4, "1, 2", 8),
    )
    assert short(told.facts) == [
        ("06,000", "first_seen", None, 1, 4, ()),
        ("09,000", "isr_shrunk", None, 1, 4, (3,)),
        ("05,000", "elected", 1, 2, 5, ()),
        ("05,000", "isr_grown", None, 2, 5, (3,)),
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


@pytest.mark.spec("SCL-17X", "SCL-27X")
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
    assert [w.broker for w in list(told.facts)[1].witnesses] == [1, 1, 2]
    assert told.leader == -1


@pytest.mark.spec("SCL-17X")
def test_a_reassignment_tells_the_assignment_before_and_after(tmp_path: Path) -> None:
    sent = (
        "[Controller id=1 epoch=1] Sent LeaderAndIsr request (Leader:1,ISR:1,2,3,LeaderEpoch:1,ZkVersion:1,"
        "ControllerEpoch:1) with new replica assignment ReplicaAssignment(replicas={}, addingReplicas=4, "
        "removingReplicas=3) to leader 1 for partition being reassigned t-0"
    )
    told = history(
        tmp_path, born("00,000"), online("00,010", 1, 0, "1, 2, 3", 0), record("05,000", sent.format("1,2,4"))
    )
    (moved_away,) = [fact for fact in told.facts if fact.kind == "reassigned"]
    assert (moved_away.old_replicas, moved_away.replicas, moved_away.time[17:]) == ((1, 2, 3), (1, 2, 4), "05,000")
    assert (moved_away.adding_replicas, moved_away.removing_replicas) == ((4,), (3,))


@pytest.mark.spec("SCL-17X")
def test_the_same_failure_again_is_one_fact_with_a_count(tmp_path: Path) -> None:
    states = "from OfflinePartition to OnlinePartition"
    failed = f"Controller 1 epoch 1 initiated state change for partition [t,0] {states} failed"
    lines = [record(f"0{i},000", failed, "ERROR") + b"kafka.X: none alive\n" for i in range(5)]
    (fact, later) = history(tmp_path, *lines, record("30,000", failed, "ERROR")).facts
    assert (fact.kind, fact.count, fact.until and fact.until[17:]) == ("failed", 5, "04,000")
    assert later.count == 1
