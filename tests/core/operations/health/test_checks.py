"""Every check of kt health: what is critical, what degrades, and what is let pass, at its bounds."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import pytest

from kafkatool.core.errors import BrokerUnreachableError
from kafkatool.core.model.values import PartitionState, TopicPartition
from kafkatool.core.operations.brokers.answers import BrokerAnswer
from kafkatool.core.operations.health.checks import (
    CHECKS,
    NEW_S,
    Finding,
    Level,
    doubt,
    forgotten,
    judge,
    verdict,
)
from kafkatool.core.operations.health.memory import UNCLEAN_TOLD_S, Memory, remember
from kafkatool.core.operations.health.reading import Reading
from kafkatool.core.zookeeper.cluster_view import ClusterView
from kafkatool.core.zookeeper.znodes import PreferredElectionZnode, ReassignmentZnode
from tests.core.operations.health.readings import LONG_AGO, NOW, T0, T1, log_dir, reading, state, told
from tests.core.operations.migration.evidence import KAFKA_3_6, KAFKA_3_9

pytestmark = pytest.mark.spec("ADM-107")
RATE = {"leader.replication.throttled.rate": "5"}
LISTS = {"leader.replication.throttled.replicas": "0:1"}
MOVE = {T0: (1, 2, 4)}
ALSO = {"partitions": {"leaders", "brokers"}, "moves": {"partitions"}}  # a fault that others follow from


def found(*looks: Reading) -> dict[str, list[Finding]]:
    """Return what the checks find at the last look, by check; those that find nothing are left out."""
    memory = Memory()
    for look in looks:
        memory = remember(memory, look)
    checks = judge(looks[-1], memory)
    assert [check.name for check in checks] == list(CHECKS)
    return {check.name: list(check.findings) for check in checks if check.findings}


def levels(*looks: Reading) -> dict[str, Level]:
    return {name: max(level for level, *_ in findings) for name, findings in found(*looks).items()}


def test_a_cluster_that_is_well_has_no_finding() -> None:
    assert found(reading()) == {} == found(reading(at_s=NOW - 3600), reading())


def test_what_a_move_adds_is_asked_of_those_alone_that_are_not_all_in_sync(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of 10,000 partitions they are few, and it is asked at every look."""
    asked: list[TopicPartition] = []
    adding = ClusterView.adding

    def noted(view: ClusterView, partition: TopicPartition) -> frozenset[int]:
        asked.append(partition)
        return adding(view, partition)

    monkeypatch.setattr(ClusterView, "adding", noted)
    assert "partitions" not in found(reading()) and asked == []
    assert "partitions" in found(reading(states={T1: state(2, 2, 3)})) and asked == [T1]


@pytest.mark.parametrize(
    ("look", "name", "level", "names"),
    [
        (reading(controller_since_s=NOW - 299), "controller", Level.DEGRADED, ("broker 1",)),
        (reading(states={T0: state(None, 1)}), "partitions", Level.CRITICAL, ("t-0",)),
        (reading(live=(2, 3), controller=2, states={T0: state(1, 1, 2)}), "partitions", Level.CRITICAL, ("t-0",)),
        (
            reading(states={T1: state(2, 2)}, config={"min.insync.replicas": "2"}),
            *("partitions", Level.CRITICAL, ("t-1",)),
        ),
        (
            reading(states={T1: state(2, 2)}, answers={2: told(log_dir(), min_insync_replicas="2")}),
            *("partitions", Level.CRITICAL, ("t-1",)),
        ),
        (
            reading(states={T1: state(2, 2, 3)}, config={"min.insync.replicas": "2"}),
            *("partitions", Level.DEGRADED, ("t-1",)),
        ),
        (reading(states={T0: state(1, 1, 2)}), "partitions", Level.DEGRADED, ("t-0",)),
        (reading(states={T0: state(2, 1, 2, 3)}), "leaders", Level.DEGRADED, ("broker 1 (100 %)",)),
        (
            reading(marked={"t": NOW - 901}),
            *("deletions", Level.DEGRADED, ("t",)),
        ),
        (reading(recovering=frozenset({T0})), "unclean elections", Level.DEGRADED, ("t-0",)),
        (
            reading(config={"unclean.leader.election.enable": "true"}),
            *("unclean elections", Level.DEGRADED, ("t",)),
        ),
        (
            reading(answers={3: told(log_dir(), unclean_leader_election_enable="true")}),
            *("unclean elections", Level.DEGRADED, ("broker 3",)),
        ),
        (reading(answers={3: told(log_dir(offline=True))}), "disks", Level.CRITICAL, ("broker 3 /data",)),
        (reading(answers={3: told(log_dir(9))}), "disks", Level.DEGRADED, ("broker 3 /data (9 %)",)),
        (reading(answers={3: told(None)}), "disks", Level.UNKNOWN, ("broker 3",)),
        (reading(default_rates=RATE), "throttles", Level.NOTE, tuple(RATE)),
        (
            reading(requests={PreferredElectionZnode.PATH: NOW - 60}),
            *("moves", Level.DEGRADED, ()),
        ),
        (
            reading(live=(1, 2, 3, 4), requests={ReassignmentZnode.PATH: NOW - 60}, moves=MOVE),
            *("moves", Level.DEGRADED, ("t-0",)),
        ),
        (
            reading(noted={"removing_replicas": {"0": [3]}}, marked={"t": NOW}),
            *("moves", Level.DEGRADED, ("t-0",)),
        ),
    ],
    ids=[
        *("controller-new", "leaderless", "leader-dead", "below-min", "below-brokers-min", "at-min", "behind"),
        *("leaders", "deletion", "recovering", "unclean-topic", "unclean-broker", "dir-offline", "dir-low"),
        *("dirs-untold", "default-rate", "election-not-taken", "move-not-taken", "move-of-deleted"),
    ],
)
def test_each_check_finds_its_fault_alone(look: Reading, name: str, level: Level, names: Sequence[str]) -> None:
    findings = found(look)
    assert (level, names) in [(lv, n) for lv, _, n in findings[name]], findings
    others = {other for other in findings if other != name}
    assert others <= ALSO.get(name, set())
    assert verdict(judge(look, remember(Memory(), look))) == (level if level >= Level.DEGRADED else Level.OK)


@pytest.mark.parametrize(
    "look",
    [
        reading(controller_since_s=NOW - 300),
        reading(controller_since_s=NOW - 1, controller_epoch=1, controller_epoch_writes=0),  # the first there ever was
        reading(marked={"t": NOW - 900}, states={T0: state(None, 1)}),  # nobody leads what is to go
        reading(assigned={0: (1, 2, 4)}, live=(1, 2, 4), moves=MOVE, states={T0: state(1, 1, 2)}),
        reading(live=(1, 2, 3, 4), requests={ReassignmentZnode.PATH: NOW - 59}, moves=MOVE),
        reading(requests={ReassignmentZnode.PATH: NOW - 99}, moves={T0: (1, 2)}),  # taken up: its replicas are assigned
        reading(requests={PreferredElectionZnode.PATH: NOW - 59}),
        reading(answers={3: told(log_dir(10))}),
        reading(rates={1: RATE}),  # at one look alone
        reading(rates={1: RATE}, moves={T0: (1, 2)}),
    ],
    ids=[
        *("controller-old", "first-controller", "deleted", "adding-by-znode", "move-young", "move-taken"),
        *("election-young", "dir-just-enough", "throttle-once", "throttle-of-a-move"),
    ],
)
def test_what_is_within_the_bounds_passes(look: Reading) -> None:
    assert found(look) == {}


@pytest.mark.spec("ADM-107")
def test_a_broker_that_refuses_connections_degrades_before_its_session_ends_and_a_silent_one_is_unknown() -> None:
    gone = BrokerUnreachableError("cannot connect to h:1: refused")
    gone.__cause__ = ConnectionRefusedError()
    look = reading(silent={2: gone, 3: BrokerUnreachableError("h:1 did not answer: timed out")})
    assert found(look)["brokers"] == [
        (Level.DEGRADED, "registered, and nothing listens at its address: has it just died?", ("broker 2",)),
        (Level.UNKNOWN, "registered, without an answer: h:1 did not answer: timed out", ("broker 3",)),
    ]
    assert verdict(judge(look, remember(Memory(), look))) is Level.DEGRADED
    look = reading(silent={3: BrokerUnreachableError("h:1 did not answer: timed out")})
    assert verdict(judge(look, remember(Memory(), look))) is Level.OK, "what is unknown is told, and changes nothing"


def test_dead_brokers_degrade_and_are_critical_where_they_alone_are_in_sync() -> None:
    dead = {"live": (2, 3), "controller": 2, "states": {T0: state(2, 2, 3), T1: state(2, 2, 3)}}
    findings = found(reading(**dead))  # type: ignore[arg-type]
    assert findings["brokers"] == [(Level.DEGRADED, "dead and named in assignments", ("broker 1",))]
    alone = reading(live=(2, 3), controller=2, states={T0: state(None, 1), T1: state(2, 2, 3)})
    assert (Level.CRITICAL, "1 partition in sync on dead brokers alone", ("t-0",)) in found(alone)["brokers"]


@pytest.mark.parametrize(("elsewhere", "level"), [(1, None), (2, Level.DEGRADED)])
def test_more_than_a_tenth_of_a_brokers_leaders_elsewhere_degrades(elsewhere: int, level: Level | None) -> None:
    moved = {TopicPartition("t", p): state(2, 1, 2, 3) for p in range(elsewhere)}
    assert levels(reading(assigned=dict.fromkeys(range(10), (1, 2, 3)), states=moved)).get("leaders") is level


def test_what_moves_is_not_yet_led_by_whom_it_prefers() -> None:
    assigned = dict.fromkeys(range(10), (1, 2, 3))
    states = {TopicPartition("t", p): state(2, 2, 3) for p in range(3)}
    assert levels(reading(assigned=assigned, states=states)).get("leaders") is Level.DEGRADED
    moves = dict.fromkeys(states, (1, 2, 3))
    assert "leaders" not in levels(reading(assigned=assigned, states=states, moves=moves))


def test_no_controller_is_critical_only_after_ten_seconds() -> None:
    def without(at_s: float) -> Reading:
        return reading(at_s=at_s, controller=None, controller_since_s=None)

    assert levels(without(NOW))["controller"] is Level.DEGRADED
    assert levels(without(NOW - 9.9), without(NOW))["controller"] is Level.DEGRADED
    assert levels(without(NOW - 10), without(NOW))["controller"] is Level.CRITICAL
    assert doubt(remember(Memory(), without(NOW))) is not None and doubt(remember(Memory(), reading())) is None
    assert levels(without(NOW - 10), reading(at_s=NOW - 5), without(NOW))["controller"] is Level.DEGRADED


@pytest.mark.parametrize(("epochs", "flaps"), [((7, 9), False), ((7, 10), True), ((7, 8, 10), True)], ids=str)
def test_three_controllers_in_ten_minutes_flap(epochs: Sequence[int], flaps: bool) -> None:
    looks = [reading(at_s=NOW - 600 + 300 * n, controller_epoch=epoch) for n, epoch in enumerate(epochs)]
    assert ("controller" in found(*looks)) is flaps
    late = [reading(at_s=NOW - 601, controller_epoch=7), reading(controller_epoch=10)]
    assert "controller" not in found(*late)
    born = reading(controller_epoch_since_s=NOW - 600, controller_epoch_writes=3)
    assert "controller" in found(born)


def test_a_move_is_stuck_when_neither_its_isr_nor_its_bytes_go_on_for_ten_minutes() -> None:
    def moving(at_s: float, copied: int, *isr: int) -> Reading:
        answers = {3: told(log_dir(sizes={T0: copied}))}
        return reading(at_s=at_s, moves={T0: (1, 2, 3)}, states={T0: state(1, *isr)}, answers=answers)

    first = moving(NOW - 600, 5, 1, 2)
    assert levels(first, moving(NOW, 5, 1, 2)) == {"moves": Level.DEGRADED}
    assert levels(moving(NOW - 599, 5, 1, 2), moving(NOW, 5, 1, 2)) == {}
    assert levels(first, moving(NOW - 300, 6, 1, 2), moving(NOW, 6, 1, 2)) == {}
    assert levels(first, moving(NOW - 300, 5, 1, 2, 3), moving(NOW, 5, 1, 2, 3)) == {}
    old = reading(moves={T0: (1, 2, 3)}, requests={ReassignmentZnode.PATH: LONG_AGO})
    assert levels(old) == {"moves": Level.UNKNOWN}  # one look tells no progress


def test_a_move_is_stuck_where_its_new_replica_stands_still_while_others_are_produced_to() -> None:
    def moving(at_s: float, leaders: int, copied: int | None, *isr: int) -> Reading:
        holds: dict[int, BrokerAnswer] = {b: told(log_dir(sizes={T0: leaders})) for b in (1, 2)}
        holds[3] = told(None if copied is None else log_dir(sizes={T0: copied}))
        noted = {"adding_replicas": {"0": [3]}}
        return reading(at_s=at_s, noted=noted, states={T0: state(1, *(isr or (1, 2)))}, answers=holds)

    first, last = moving(NOW - 600, 100, 5), moving(NOW, 900, 5)
    stuck = [(Level.DEGRADED, "1 partition moving without progress for 10 min", ("t-0",))]
    assert found(first, last)["moves"] == stuck, "the leader's bytes are no progress"
    assert found(first, moving(NOW - 300, 500, 5, 1), last)["moves"] == stuck, "nor is the ISR without the new one"
    assert "moves" not in found(first, moving(NOW - 300, 100, 6), moving(NOW, 100, 6))
    assert "moves" not in found(first, moving(NOW - 1, 100, 5), moving(NOW, 100, 5, 1, 2, 3)), "it has come into sync"

    unsure = [
        (
            Level.UNKNOWN,
            "1 partition moving for 10 min without progress that is seen: what its new replicas hold is not told",
            ("t-0",),
        )
    ]
    assert found(moving(NOW - 600, 1, None), moving(NOW, 2, None))["moves"] == unsure
    assert found(first, moving(NOW, 100, None))["moves"] == unsure
    assert found(first, moving(NOW - 300, 200, None), last)["moves"] == stuck, "the same before and after"
    assert "moves" not in found(moving(NOW - 600, 1, None), moving(NOW - 300, 1, 5), last), "known since then"


def test_where_nobody_tells_since_when_there_is_a_controller_looks_do() -> None:
    def look(before_s: float, controller: int = 1, epoch: int = 0) -> Reading:
        seen: dict[str, Any] = {"controller_since_s": None, "controller_epoch": None, "controller_epoch_writes": 0}
        return reading(at_s=NOW - before_s, controller=controller, term=(controller, epoch), **seen)

    changed = [(Level.DEGRADED, "changed within 5 min", ("broker 1",))]
    assert levels(look(0)) == {"controller": Level.UNKNOWN} == levels(look(299), look(0))
    assert levels(look(300), look(0)) == {}
    assert found(look(900, controller=2), look(299), look(0)) == {"controller": changed}
    assert found(look(900), look(299, epoch=1), look(0, epoch=1)) == {"controller": changed}, "elected once more"
    assert levels(look(900, controller=2), look(300), look(0)) == {}
    terms = [look(600 - 150 * n, epoch=n) for n in range(4)]
    assert found(*terms, look(0, epoch=3))["controller"][-1].what == "changed 3 times within 10 min: it flaps"


def test_what_a_look_cannot_tell_is_unknown_beside_what_it_finds() -> None:
    look = reading(states={T0: state(None, 1)}, untold={"partitions": ("a", "b"), "disks": ("c",)})
    told = found(look)
    assert [(f.level, f.what) for f in told["partitions"]] == [
        (Level.CRITICAL, "1 partition without leader"),
        (Level.UNKNOWN, "not told: a"),
        (Level.UNKNOWN, "not told: b"),
    ]
    assert told["disks"] == [(Level.UNKNOWN, "not told: c", ())]
    quiet = reading(untold={"disks": ("c",)})
    assert verdict(judge(quiet, remember(Memory(), quiet))) is Level.OK


def test_of_a_move_by_request_one_look_tells_neither_since_when_nor_whether_it_goes_on() -> None:
    def look(at_s: float) -> Reading:
        return reading(at_s=at_s, noted={"adding_replicas": {"0": [3]}}, states={T0: state(1, 1, 2)})

    assert found(look(NOW)) == {
        "moves": [(Level.UNKNOWN, "whether what moves goes on: --watch or --state tells", ("t-0",))]
    }
    assert found(look(NOW - 60), look(NOW)) == {}
    assert levels(look(NOW - 600), look(NOW)) == {"moves": Level.DEGRADED}


@pytest.mark.parametrize("by", ["znode", "request"])
def test_a_move_whose_target_is_gone_is_no_move_that_is_well(by: str) -> None:
    gone = BrokerUnreachableError("cannot connect to h:1: refused")
    gone.__cause__ = ConnectionRefusedError()

    def look(**more: Any) -> list[Finding]:
        ways: dict[str, Any] = {
            "znode": {"moves": {T0: (1, 3)}},
            "request": {"noted": {"adding_replicas": {"0": [3]}, "removing_replicas": {"0": [2]}}},
        }
        assigned = {0: (1, 3, 2), 1: (1, 2)}
        looks = [
            reading(at_s=at_s, assigned=assigned, states={T0: state(1, 1, 2)}, **ways[by], **more)
            for at_s in (NOW - 1, NOW)
        ]
        return found(*looks).get("moves", [])

    assert look() == []
    what = "1 partition moving to broker 3, which is"
    assert look(live=(1, 2)) == [(Level.DEGRADED, f"{what} dead", ("t-0",))]
    told_so = f"{what} registered, but nothing listens at its address"
    assert look(silent={3: gone}) == [(Level.DEGRADED, told_so, ("t-0",))]
    unsure = BrokerUnreachableError("h:1 did not answer: timed out")
    assert look(silent={3: unsure}) == [(Level.UNKNOWN, f"{what} registered, but does not answer", ("t-0",))]
    assert look(silent={2: gone}) == [], "it is what the partition leaves"


@pytest.mark.spec("ADM-108")
@pytest.mark.parametrize("throttle", [{"rates": {1: RATE}}, {"config": LISTS}], ids=["rate", "list"])
def test_a_throttle_is_forgotten_when_nothing_moves_at_two_looks_ten_seconds_apart(
    throttle: Mapping[str, Mapping[str, str]],
) -> None:
    def look(at_s: float, **more: object) -> Reading:
        return reading(at_s=at_s, **throttle, **more)  # type: ignore[arg-type]

    (entity,) = look(NOW).throttles
    assert levels(look(NOW - 10), look(NOW)) == {"throttles": Level.DEGRADED}
    assert forgotten(look(NOW), remember(remember(Memory(), look(NOW - 10)), look(NOW))) == [entity]
    assert levels(look(NOW - 9.9), look(NOW)) == {}
    for moving in (
        {"moves": {T0: (1, 2, 3)}},
        {"noted": {"removing_replicas": {"0": [9]}}},
        {"answers": {1: told(log_dir(arriving=frozenset({T0})))}},
        {"carried_out": True},
    ):
        assert levels(look(NOW - 10), look(NOW, **moving)) == {}, moving
        assert levels(look(NOW - 20), look(NOW - 10, **moving), look(NOW)) == {}, moving
    assert found(reading(config={"leader.replication.throttled.replicas": ""}), reading(at_s=NOW + 99)) == {}


@pytest.mark.spec("ADM-108")
def test_the_rate_of_moves_between_log_directories_is_forgotten_only_where_none_is_seen_on_a_broker_that_tells() -> (
    None
):
    rate = {"replica.alter.log.dirs.io.max.bytes.per.second": "5"}

    def looks(answer: BrokerAnswer, rates: Mapping[str, str] = rate) -> list[Reading]:
        return [reading(at_s=at_s, rates={1: rates}, answers={1: answer}) for at_s in (NOW - 10, NOW)]

    assert levels(*looks(told(log_dir()))) == {"throttles": Level.DEGRADED}
    assert levels(*looks(told(log_dir(arriving=frozenset({T0}))))) == {}
    unseen = (Level.UNKNOWN, "a rate for moves between log directories, which are not told", ("broker 1",))
    for blind in (told(None), told(log_dir(offline=True))):
        assert found(*looks(blind))["throttles"] == [unseen]
        last = looks(blind, {**RATE, **rate})[-1]
        assert last.throttles == {("brokers", "1"): RATE}, "what is taken off"
    dead = [reading(at_s=at_s, live=(2, 3), controller=2, rates={1: rate}) for at_s in (NOW - 10, NOW)]
    assert found(*dead)["throttles"] == [unseen], "its moves go on when it is back"


def test_a_leader_that_was_not_in_sync_is_seen() -> None:
    before = reading(at_s=NOW - 60, states={T0: state(1, 1, 2)})
    elected = {T0: state(3, 3, epoch=1, version=1)}
    unclean = reading(states=elected, assigned={0: (3, 1, 2), 1: (2, 3, 1)})
    assert (Level.DEGRADED, ("t-0",)) in [(lv, n) for lv, _, n in found(before, unclean)["unclean elections"]]
    shrunk = reading(states={T0: state(2, 2)})
    assert "unclean elections" not in found(before, shrunk)
    healed = reading(at_s=NOW + 60)
    assert "unclean elections" in found(before, unclean, healed)  # records are lost all the same
    assert "unclean elections" in found(before, unclean, reading(at_s=NOW + UNCLEAN_TOLD_S))
    assert "unclean elections" not in found(before, unclean, reading(at_s=NOW + UNCLEAN_TOLD_S + 1)), "not for ever"


SEEN = [(Level.DEGRADED, "1 partition seen to be elected uncleanly", ("t-0",))]
OPEN = "1 partition with none in sync that was at the look before: whether by an unclean election is not told"
PERHAPS = [(Level.UNKNOWN, OPEN, ("t-0",))]
UNTOLD = {"epoch": 3, "version": -1}
"""What brokers tell of a leadership: its epoch, and no version of a node."""


def elected(
    before: PartitionState, after: PartitionState, *replicas: Sequence[int], **more: Any
) -> list[Finding] | None:
    """Return what two looks at t-0 find of elections; ``replicas`` before and after, where there are others."""
    first, then = replicas or ((1, 2, 3), (1, 2, 3))
    live = (1, 2, 3, 4)
    looks = [reading(at_s=NOW - 60, live=live, assigned={0: tuple(first)}, states={T0: before}, **more)]
    looks.append(reading(live=live, assigned={0: tuple(then)}, states={T0: after}, **more))
    return found(*looks).get("unclean elections")


@pytest.mark.parametrize("replicas", [((1,), (2,)), ((1, 2), (3, 4))], ids=["one replica", "two replicas"])
@pytest.mark.parametrize("version", [3, -1], ids=["by znode", "by request"])
def test_a_move_that_has_ended_between_two_looks_is_no_unclean_election(
    replicas: tuple[tuple[int, ...], tuple[int, ...]], version: int
) -> None:
    origin, target = replicas
    before = state(origin[0], *origin, epoch=3, version=version)
    after = state(target[0], *target, epoch=6, version=-1 if version < 0 else version + 5)
    assert elected(before, after, origin, target) is None


@pytest.mark.parametrize("topic_id", ["another", None], ids=["told", "not told"])
def test_a_topic_made_anew_had_no_unclean_election_and_has_none_of_its_forerunner(topic_id: str | None) -> None:
    before = reading(at_s=NOW - 60, states={T0: state(1, 1, epoch=5, version=9)})
    unclean = reading(at_s=NOW - 30, states={T0: state(3, 3, epoch=6, version=10)})
    anew = reading(states={T0: state(2, 2, epoch=0, version=0)}, topic_id=topic_id)
    assert "unclean elections" not in found(before, anew)
    assert found(before, unclean)["unclean elections"] == SEEN
    if topic_id is not None:
        assert "unclean elections" not in found(before, unclean, anew)
        late = reading(states={T0: state(2, 2, epoch=6, version=10)}, topic_id=topic_id)
        assert "unclean elections" not in found(before, late), "its epochs tell nothing"


def test_an_unclean_election_is_seen_where_nobody_can_have_come_into_sync_before_it() -> None:
    before = state(1, 1, epoch=3, version=7)
    assert elected(before, state(3, 3, epoch=4, version=8)) == SEEN, "one write"
    assert elected(before, state(3, 3, epoch=5, version=9)) == SEEN, "none led in between"
    gone = state(None, 1, **UNTOLD)
    assert elected(gone, state(3, 3, epoch=4, version=-1)) == SEEN, "led by none before, and elected at once"
    assert elected(gone, state(3, 3, 1, epoch=4, version=-1)) == SEEN, "and the last leader is back"
    assert elected(gone, state(1, 1, epoch=4, version=-1)) is None


def test_whether_a_replica_had_come_into_sync_before_it_was_elected_may_not_be_told() -> None:
    """As when brokers are started anew one by one: 2 was just away at the first look, 1 is at the second."""
    assert elected(state(1, 1, **UNTOLD), state(2, 2, epoch=4, version=-1)) == PERHAPS
    assert elected(state(1, 1, epoch=3, version=7), state(2, 2, epoch=4, version=9)) == PERHAPS, (
        "of ZooKeeper's writes one is of ISRs"
    )
    one_stays = ((1, 2), (2, 3))
    assert elected(state(1, 1, 2, **UNTOLD), state(3, 3, epoch=5, version=-1), *one_stays) == PERHAPS
    assert elected(state(1, 1, **UNTOLD), state(2, 2, 1, epoch=4, version=-1)) is None
    assert elected(state(None, **UNTOLD), state(2, 2, epoch=4, version=-1)) == PERHAPS, "KIP-966 has others to elect"
    assert elected(state(None, 1, **UNTOLD), state(3, 3, epoch=4, version=-1), topic_id=None) == PERHAPS
    unversed = {"epoch": -1, "version": -1}
    assert elected(state(1, 1, **unversed), state(2, 2, **unversed)) == PERHAPS, "brokers before 2.1 tell no epoch"
    written_behind = elected(state(1, 1, epoch=3, version=7), state(2, 2, epoch=4, version=8), controller=3000)
    assert written_behind == PERHAPS, "a KRaft controller writes several steps at once"


def test_a_disk_that_is_full_within_a_day_is_told() -> None:
    def free(at_s: float, count: int) -> Reading:
        return reading(at_s=at_s, answers={1: told(log_dir(count))})

    assert levels(free(NOW - 8640, 90), free(NOW, 81)) == {"disks": Level.DEGRADED}  # 9 in 8640 s: 81 in 77,760 s
    assert levels(free(NOW - 8640, 90), free(NOW, 82)) == {}  # 8 in 8640 s: 82 in 88,560 s
    assert levels(free(NOW - 59, 90), free(NOW, 50)) == {}
    assert levels(free(NOW - 8640, 50), free(NOW, 90)) == {}
    quiet = [free(NOW - 86400 + 600 * n, 90) for n in range(140)]
    now = [free(NOW - 2400 + 600 * n, 90 - 2 * n) for n in range(5)]
    assert levels(*quiet, *now) == {"disks": Level.DEGRADED}, "at the rate of late, not of a day"


def test_two_releases_are_noted_after_an_hour() -> None:
    def mixed(at_s: float) -> Reading:
        return reading(at_s=at_s, answers={1: told(log_dir(), fetch=2)})

    def one(at_s: float) -> Reading:
        return reading(at_s=at_s)

    old = {b: told(log_dir(), fetch=2) for b in (1, 2, 3)}
    assert levels(mixed(NOW - 3601), mixed(NOW)) == {"brokers": Level.NOTE}
    assert levels(mixed(NOW - 3600), mixed(NOW)) == {}
    assert levels(mixed(NOW - 3601), one(NOW - 60), mixed(NOW)) == {}
    assert levels(reading(at_s=NOW - 3601, answers=old), reading(answers=old)) == {}


def test_the_verdict_is_that_of_the_worst_check() -> None:
    look = reading(live=(2, 3), controller=2, states={T0: state(None, 1)})
    assert verdict(judge(look, remember(Memory(), look))) is Level.CRITICAL
    assert TopicPartition("t", 1) in look.view.states


def test_what_was_made_between_two_looks_may_not_have_its_first_leader_yet() -> None:
    before, unled = reading(assigned={0: (1, 2, 3)}), {T1: state(None)}
    made, still = (reading(at_s=NOW + 2 * n, states=unled) for n in (1, 2))
    assert found(before, made) == {
        "partitions": [Finding(Level.NOTE, "1 partition just made, and not led yet", ("t-1",))]
    }
    assert levels(before, made, still)["partitions"] is Level.CRITICAL
    assert levels(reading(), made)["partitions"] is Level.CRITICAL  # it was there, and led


def test_a_first_look_that_finds_no_leader_is_followed_by_another() -> None:
    first = remember(Memory(), reading(states={T1: state(None)}))
    why = doubt(first)
    assert why is not None and why.after_s == NEW_S
    assert doubt(remember(first, reading(at_s=NOW + 2, states={T1: state(None)}))) is None
    before = remember(Memory(), reading(at_s=NOW - 60, assigned={0: (1, 2, 3)}))
    assert doubt(remember(before, reading(states={T1: state(None)}))) == why, "made since the look before"


@pytest.mark.parametrize(
    ("served", "isr", "level"),
    [(KAFKA_3_6, (1,), Level.CRITICAL), (KAFKA_3_9, (1,), None), (KAFKA_3_9, (), Level.CRITICAL)],
    ids=["3.6", "3.9", "3.9, nobody in sync"],
)
def test_from_3_7_on_no_more_have_to_be_in_sync_than_there_are_replicas(
    served: Mapping[int, int], isr: tuple[int, ...], level: Level | None
) -> None:
    look = reading(
        assigned={0: (1,)},
        states={T0: state(1, *isr)},
        config={"min.insync.replicas": "2"},
        answers={1: replace(told(log_dir()), served={api: (0, version) for api, version in served.items()})},
    )
    assert levels(look).get("partitions") == level
