"""One partition with any number of facts: a task holds few of them, and tells the same as if it held all."""

import gc
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from kafkatool.core.statelog.history import leadership
from kafkatool.core.statelog.history.facts import History, history_of
from kafkatool.core.statelog.jobs import shuffle
from kafkatool.core.statelog.jobs.carrier import Logs
from kafkatool.core.statelog.jobs.gathering import Gathered, gather
from kafkatool.core.statelog.jobs.here import Here
from kafkatool.core.statelog.jobs.report import make_report
from kafkatool.core.statelog.jobs.timeline import make_timeline
from kafkatool.core.statelog.lines.selection import Selection
from kafkatool.core.statelog.sources import spilling
from kafkatool.core.statelog.sources.files import open_logs
from kafkatool.core.statelog.sources.source import Source
from kafkatool.core.statelog.sources.spilling import Pile
from kafkatool.core.statelog.sources.spool import spool
from tests.core.statelog.logs import NEWER, VERSIONS, InProcess, observations_of, record, source, story

MANY = 3000
MOST_ALIVE = 12_000
"""Objects, of all kinds, that may be there while MANY changes are made facts. It takes ten to make one of them a fact."""


def at(milliseconds: int) -> str:
    seconds = milliseconds // 1000
    return f"2016-01-01 {10 + seconds // 3600}:{seconds // 60 % 60:02}:{seconds % 60:02},{milliseconds % 1000:03}"


def cached(time: int, broker: int, epoch: int, isr: str, version: int) -> bytes:
    return record(
        at(time),
        f"[Broker id={broker}] Cached leader info PartitionState(controllerEpoch=1, leader=1, leaderEpoch={epoch}, "
        f"isr=[{isr}], zkVersion={version}, replicas=[1, 2, 3], offlineReplicas=[]) for partition t-0 in response to "
        "UpdateMetadata request sent by controller 1 epoch 1 with correlation id 1",
    )


def isr(n: int) -> str:
    return ("1, 2, 3", "1, 2", "1", "1, 3")[n % 4]


def many_elections(number: int) -> Iterator[bytes]:
    return (cached(n * 50, 1 + k, n, isr(n), n) for n in range(number) for k in range(3))


def one_leader(number: int) -> Iterator[bytes]:
    return (cached(n * 50, 1 + k, 4, isr(n), n) for n in range(number) for k in range(3))


def without_versions(number: int) -> Iterator[bytes]:
    for n in range(number):
        state = f"(Leader:1,ISR:{isr(n).replace(' ', '')},LeaderEpoch:4,ControllerEpoch:1)"
        yield record(
            at(n * 50),
            f"Controller 1 epoch 1 sending become-leader LeaderAndIsr request {state} to broker 2 for partition [t,0]",
        )


def outages(number: int) -> Iterator[bytes]:
    for n in range(number):
        change = "from OnlinePartition to OfflinePartition", "from OfflinePartition to OfflinePartition"
        yield record(at(n * 50), f"[Controller id=1 epoch=1] Changed partition t-0 state {change[n % 2]}")
        yield cached(n * 50 + 20, 1, n, "1, 2", n)


def failures(number: int) -> Iterator[bytes]:
    states = "from OfflinePartition to OnlinePartition"
    failed = f"Controller 1 epoch 1 initiated state change for partition [t,0] {states} failed"
    for n in range(number):
        yield record(at(n * 6000), failed, "ERROR") + f"kafka.X: none alive but {n % 7}\n".encode()


def moves(number: int) -> Iterator[bytes]:
    for n in range(number):
        state = f"(Leader:1,ISR:1,2,3,LeaderEpoch:{n},ZkVersion:{n},ControllerEpoch:1)"
        yield record(
            at(n * 50),
            f"[Controller id=1 epoch=1] Sent LeaderAndIsr request {state} with new replica assignment ReplicaAssignment("
            f"replicas=1,2,{3 + n % 2}, addingReplicas=4, removingReplicas=3) to leader 1 for partition being reassigned "
            "t-0",
        )


def lives(number: int) -> Iterator[bytes]:
    """Make the topic anew half-way."""
    yield from many_elections(number // 2)
    later = number // 2 * 50 + 60_000
    for n in range(number // 2):
        yield cached(later + n * 50, 1, n, isr(n), n)


STORIES = [many_elections, one_leader, without_versions, outages, failures, moves, lives]


def gathered(directory: Path, lines: Iterator[bytes]) -> Gathered:
    logs = Logs((source(directory / "log", b"".join(lines)),), (None,))
    return gather(logs, Selection(), Here(InProcess(), directory), 1, chunk_bytes=10_000)


@pytest.fixture
def little_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(spilling, "MOST_HELD", 200)
    monkeypatch.setattr(spilling, "BATCH", 10)
    monkeypatch.setattr(shuffle, "BATCH", 50)
    monkeypatch.setattr(leadership, "MOST_TOLD", 100)


@pytest.fixture
def most_alive(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[], int]]:
    """Tell how many objects there were at most, more than now, whenever something was written away."""
    spill = Pile[object]._spill  # noqa: SLF001 -- nothing public is called just then
    most = 0

    def counted(pile: Pile[object]) -> None:
        nonlocal most
        most = max(most, len(gc.get_objects()))
        spill(pile)

    monkeypatch.setattr(Pile, "_spill", counted)
    gc.collect()
    gc.freeze()  # what is there now is not listed
    gc.disable()  # what it has looked at it may no longer list
    yield lambda: most
    gc.enable()
    gc.unfreeze()


@pytest.mark.slow
@pytest.mark.spec("SCL-22X")
@pytest.mark.parametrize("lines", STORIES)
@pytest.mark.usefixtures("little_memory")
def test_no_task_holds_the_facts_of_a_partition(
    lines: Callable[[int], Iterator[bytes]], tmp_path: Path, most_alive: Callable[[], int]
) -> None:
    found = gathered(tmp_path, lines(MANY))
    timeline = make_timeline(found, by_time=True, with_ignored=True)
    assert timeline.partitions == 1
    assert make_report(found, top=5).sums.partitions == 1
    assert 0 < most_alive() < MOST_ALIVE
    assert sum(1 for _ in timeline.items()) > MANY / 2


def histories(sources: tuple[Source, ...], directory: Path) -> dict[str, History]:
    found = gather(Logs(sources, (None,) * len(sources)), Selection(), Here(InProcess(), directory), len(sources))
    told = {f"{topic}-{partition}": history_of(observed) for topic, partition, observed in observations_of(found)}
    return {name: replace(history, facts=list(history.facts)) for name, history in told.items()}


@pytest.mark.spec("SCL-17X", "SCL-8")
@pytest.mark.parametrize("version", [*VERSIONS, *NEWER])
def test_facts_are_the_same_however_few_are_held(version: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with spool() as own:
        sources = open_logs(story(version), own).sources
        all_held = histories(sources, own)
        monkeypatch.setattr(spilling, "MOST_HELD", 3)
        monkeypatch.setattr(spilling, "BATCH", 2)
        assert histories(sources, own) == all_held


@pytest.mark.spec("SCL-17X", "SCL-19X")
@pytest.mark.parametrize("lines", [one_leader, without_versions])
def test_one_leader_epoch_with_many_states_is_told_as_if_all_were_looked_at(
    lines: Callable[[int], Iterator[bytes]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    logs = (source(tmp_path / "log", b"".join(lines(500))),)
    whole = histories(logs, tmp_path)
    monkeypatch.setattr(leadership, "MOST_TOLD", 40)
    assert histories(logs, tmp_path) == whole
    (history,) = whole.values()
    assert len(history.facts) > 400


@pytest.mark.spec("SCL-19X")
def test_what_is_told_of_a_state_much_later_changes_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(leadership, "MOST_TOLD", 40)
    told = [cached(n * 50, 1, 4, isr(n), n) for n in range(200)]
    late = cached(10_000, 3, 4, isr(17), 17)
    (expected,) = histories((source(tmp_path / "log", b"".join(told)),), tmp_path).values()
    (found,) = histories((source(tmp_path / "log", b"".join([*told, late])),), tmp_path).values()
    assert found == expected
