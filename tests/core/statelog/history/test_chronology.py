"""Who was gone, when: against the metadata log of a real cluster, and case by case."""

import csv
from collections.abc import Sequence
from pathlib import Path

import pytest

from kafkatool.core.statelog.history.chronology import Moment, Standing, chronology, standings
from kafkatool.core.statelog.history.fact import Fact
from kafkatool.core.statelog.history.observations import join_into, milliseconds
from kafkatool.core.statelog.jobs.carrier import Logs
from kafkatool.core.statelog.jobs.gathering import gather
from kafkatool.core.statelog.jobs.here import Here
from kafkatool.core.statelog.jobs.report import make_report
from kafkatool.core.statelog.lines.selection import Selection
from kafkatool.core.statelog.sources.files import open_logs
from kafkatool.core.statelog.sources.source import Source
from tests.core.statelog.logs import CAPTURES, InProcess, record, source, story


def at(seconds: float) -> str:
    whole, thousandths = divmod(round(seconds * 1000), 1000)
    return f"2016-01-01 10:{whole // 60:02}:{whole % 60:02},{thousandths:03}"


def told_in_full(*partitions: Sequence[Fact]) -> list[Moment]:
    return chronology(stretches(partitions), [], deletions_hidden=False)


def told(*partitions: Sequence[Fact], deletions_hidden: bool = False) -> list[tuple[str, str, int]]:
    """Return time, kind and broker of the chronology of partitions, in stretches of a second."""
    return [m[:3] for m in chronology(stretches(partitions), [], deletions_hidden=deletions_hidden)]


def stretches(partitions: Sequence[Sequence[Fact]]) -> dict[tuple[int, int], Standing]:
    summed: dict[tuple[int, int], Standing] = {}
    for facts in partitions:
        for time, broker, standing in standings(facts):
            join_into(summed, {(broker, milliseconds(time) // 1000): standing})
    return summed


def elected(seconds: float, leader: int, isr: tuple[int, ...], **more: object) -> Fact:
    return Fact(at(seconds), "elected", leader=leader, isr=isr, **more)  # type: ignore[arg-type]


def changed(seconds: float, isr: tuple[int, ...], *, grown: bool = False, by_leader: bool = False) -> Fact:
    return Fact(at(seconds), "isr_grown" if grown else "isr_shrunk", isr=isr, decided_by_leader=by_leader)


@pytest.mark.spec("SCL-18X")
def test_a_broker_that_a_controller_took_out_of_every_isr_was_gone_until_it_is_in_one_again() -> None:
    led = [
        elected(0, 2, (2, 1)),
        Fact(at(60), "offline", old_leader=2),
        elected(60.5, 1, (1,)),
        changed(90, (1, 2), grown=True),
    ]
    followed = [elected(0, 1, (1, 2)), changed(61.9, (1,)), changed(95, (1, 2), grown=True)]
    assert told(led, followed) == [(at(60), "broker_gone", 2), (at(90), "broker_back", 2)]
    (moment,) = chronology(
        {(2, i): s for i, (_, broker, s) in enumerate(standings(led[:3])) if broker == 2}, [], deletions_hidden=False
    )
    assert moment == Moment(at(60), "broker_gone", 2, partitions=1, led=1)


@pytest.mark.spec("SCL-18X")
def test_a_broker_that_is_in_one_isr_yet_is_not_gone() -> None:
    assert told([elected(0, 1, (1, 2)), changed(60, (1,))], [elected(0, 1, (1, 2))]) == []


@pytest.mark.spec("SCL-18X")
def test_a_broker_that_leaders_alone_took_out_may_live_on() -> None:
    """As is, without ZooKeeper, one that no leadership was taken from: its controller writes both kinds of change."""
    assert told([elected(0, 1, (1, 2)), changed(60, (1,), by_leader=True)]) == [(at(60), "broker_out_of_sync", 2)]
    without = [elected(0, 1, (1, 2), mode="kraft"), changed(60, (1,))]
    without[1].mode = "kraft"
    assert told(without) == [(at(60), "broker_out_of_sync", 2)]


@pytest.mark.spec("SCL-18X")
@pytest.mark.parametrize("kind", ["reassigned", "deletion_started", "deleted"])
def test_a_broker_that_was_emptied_is_not_gone(kind: str) -> None:
    end = Fact(at(60.1), kind, replicas=(1, 3) if kind == "reassigned" else None)
    assert told([elected(0, 2, (2, 1)), end]) == []
    if kind == "reassigned":  # its ISR is cut first, when the move ends
        assert told([elected(0, 1, (1, 2, 3)), changed(60, (1, 3)), end]) == []
        more = Fact(at(60.05), kind, replicas=(1, 2, 3, 4))  # it grows before it shrinks, and all is told late
        assert told([elected(0, 1, (1, 2, 3)), changed(60, (1, 3)), more, end]) == []
        early = Fact(at(59.9), kind, replicas=(1, 3))  # told before the last changes that the move made
        assert told([elected(0, 2, (2, 1)), early, elected(60, 1, (2, 1, 3)), changed(60.1, (1, 3))]) == []
        late = Fact(at(600), kind, replicas=(1, 3))
        assert told([elected(0, 1, (1, 2, 3)), changed(60, (1, 3)), late]) == [(at(60), "broker_gone", 2)]


@pytest.mark.spec("SCL-18X")
def test_the_end_of_a_move_is_known_by_its_beginning() -> None:
    """As of Kafka 2.4 and later at INFO, where the end is not told if it changes the leader, too."""
    begun = Fact(at(50), "reassigned", replicas=(1, 2, 3), adding_replicas=(2,), removing_replicas=(3,))
    ended = [elected(60, 1, (3, 1, 2)), changed(60.1, (1, 2))]
    assert told([elected(0, 3, (3, 1)), begun, *ended]) == []
    died = [elected(60, 1, (1,)), changed(70, (1, 2), grown=True)]  # what it adds was not in sync yet
    assert told([elected(0, 3, (3, 1)), begun, *died]) == [(at(60), "broker_gone", 3)]
    other = [elected(60, 1, (3, 1, 2)), changed(60.1, (1, 3))]  # it is not the one that was to go
    assert told([elected(0, 3, (3, 1)), begun, *other]) == [(at(60.1), "broker_gone", 2)]
    over = Fact(at(65), "reassigned", replicas=(1, 2, 3))  # taken back: all stay
    assert told([elected(0, 1, (1, 2, 3)), begun, over, changed(90, (1, 2))]) == [(at(90), "broker_gone", 3)]


@pytest.mark.spec("SCL-18X")
def test_losses_that_lie_apart_are_not_of_one_death() -> None:
    slow = [elected(0, 1, (1, 2)), changed(60, (1,), by_leader=True)]
    dead = [elected(0, 2, (2, 1)), Fact(at(300), "offline", old_leader=2)]
    (moment,) = told(slow, dead)
    assert moment == (at(300), "broker_gone", 2)


@pytest.mark.spec("SCL-18X")
def test_a_partition_that_it_left_twice_counts_once() -> None:
    """As a broker that stops in good order is taken out, fetches once more, and is taken out again."""
    stopped = [
        elected(0, 2, (2, 1)),
        elected(60, 1, (1,)),
        changed(61.1, (1, 2), grown=True, by_leader=True),
        changed(62.2, (1,)),
    ]
    found = told_in_full([elected(0, 2, (2, 1)), elected(61.5, 1, (1,))], stopped)
    assert found == [Moment(at(60), "broker_gone", 2, partitions=2, led=2)]


@pytest.mark.spec("SCL-18X")
def test_leaderships_that_were_given_away_while_it_was_alive_are_counted() -> None:
    """The ISR must lose it in the same step: a preferred election takes the leadership of a live broker, too."""
    given = [elected(0, 2, (2, 1)), elected(60, 1, (1,), handed_over=True)]
    alone = [elected(0, 2, (2,)), Fact(at(61), "offline", old_leader=2)]
    (moment,) = told_in_full(given)
    assert (moment.led, moment.handed_over) == (1, 1)
    (moment,) = told_in_full(given, alone)
    assert (moment.led, moment.handed_over) == (2, 1)
    elsewhere = [elected(0, 2, (2, 1)), elected(60, 1, (2, 1), handed_over=True), changed(60.1, (1,))]
    (moment,) = told_in_full(elsewhere)
    assert (moment.led, moment.handed_over) == (0, 0)


@pytest.mark.spec("SCL-18X")
@pytest.mark.parametrize("version", ["1.1.1", "2.8.2"])
def test_kafkas_controlled_shutdown_is_told_from_a_kill(version: str, tmp_path: Path) -> None:
    """In that story broker 3 was stopped by SIGTERM, broker 1 killed."""
    gone = {m.broker: (m.led, m.handed_over) for m in moments(version, tmp_path) if m.kind == "broker_gone"}
    assert gone == {3: (4, 4), 1: (1 if version == "1.1.1" else 2, 0)}


@pytest.mark.spec("SCL-18X")
def test_controllers_are_told_between_brokers() -> None:
    summed = {(2, 60): Standing(1, first_gained=at(0)), (2, 61): Standing(-1, 1, 1, 0, first_lost=at(61))}
    ruled = [(at(0), 1), (at(70), 3)]
    assert chronology(summed, ruled, deletions_hidden=False) == [
        Moment(at(61), "broker_gone", 2, partitions=1),
        Moment(at(70), "controller_changed", 3, 1),
    ]


@pytest.mark.spec("SCL-18X")
def test_of_a_cluster_without_zookeeper_those_are_gone_who_are_in_no_isr_by_its_metadata_log(tmp_path: Path) -> None:
    """Though its brokers do not log which topics were deleted."""
    gone = [(m.broker, milliseconds(m.time)) for m in moments("4.1.0", tmp_path) if m.kind == "broker_gone"]
    expected = gone_by_metadata_log()
    assert [broker for broker, _ in gone] == [broker for broker, _ in expected] == [2, 1, 2, 3, 2, 3]
    # told is when it began to fall out; a broker that shuts down in good order is out of the last ISR seconds later
    assert all(-1000 < held - began < 10_000 for (_, began), (_, held) in zip(gone, expected, strict=True))


@pytest.mark.spec("SCL-18X")
def test_a_broker_that_is_back_within_the_second_was_gone(tmp_path: Path) -> None:
    """Short logs are looked at millisecond by millisecond."""

    def changed(ms: int, isr: str, version: int) -> bytes:
        state = f"LeaderAndIsr(leader=2, leaderEpoch={version}, isr=List({isr}), zkVersion={version})"
        before = "OnlinePartition" if version else "NewPartition"
        return record(
            f"05,{ms:03}",
            f"[Controller id=2 epoch=1] Changed partition t-0 from {before} to OnlinePartition with state {state}",
        )

    log = changed(0, "2, 1", 0) + changed(200, "2", 1) + changed(700, "2, 1", 2)
    found = chronology_of([source(tmp_path / "log", log)], tmp_path)
    assert [(m.time[17:], m.kind, m.broker) for m in found] == [
        ("05,200", "broker_gone", 1),
        ("05,700", "broker_back", 1),
    ]


def chronology_of(sources: Sequence[Source], directory: Path) -> list[Moment]:
    logs = Logs(tuple(sources), (None,) * len(sources))
    gathered = gather(logs, Selection(), Here(InProcess(), directory), len(sources), chunk_bytes=1 << 20)
    return make_report(gathered, top=10).chronology


def moments(version: str, directory: Path) -> list[Moment]:
    """Return the chronology of a captured story."""
    return chronology_of(open_logs(story(version), directory).sources, directory)


def gone_by_metadata_log() -> list[tuple[int, int]]:
    """Return which broker fell out of all ISRs of partitions with several replicas, and when."""
    members: dict[tuple[str, str], set[int]] = {}
    away = {1, 2, 3}
    found = []
    with (CAPTURES / "4.1.0" / "metadata-changes.tsv").open() as file:
        for row in csv.DictReader(file, delimiter="\t"):
            if row["record"] == "REMOVE_TOPIC":
                members = {name: isr for name, isr in members.items() if name[0] != row["topic"]}
            elif "," in row["replicas"]:
                members[row["topic"], row["partition"]] = {int(broker) for broker in row["ISR"].split(",") if broker}
            here = set[int]().union(*members.values())
            found += [(broker, milliseconds(row["time (UTC)"])) for broker in sorted({1, 2, 3} - here - away)]
            away = {1, 2, 3} - here
    return found
