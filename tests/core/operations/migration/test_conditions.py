"""Each condition of a migration, broken by itself, and found alone (ADM-101, ADM-104)."""

from dataclasses import replace
from functools import partial
from typing import Any

import pytest

from kafkatool.core.model.values import TopicPartition
from kafkatool.core.operations.brokers.answers import LogDir
from kafkatool.core.operations.migration.conditions import BLOCKERS, CONDITIONS, Row, Severity, blocked, check
from kafkatool.core.operations.migration.differences import Difference
from kafkatool.core.operations.migration.metadata_versions import level_of, named
from kafkatool.core.operations.migration.reading import Evidence
from tests.core.operations.migration.evidence import (
    BEGUN,
    BY_KRAFT,
    KAFKA_3_3,
    KAFKA_3_4,
    KAFKA_3_5,
    KAFKA_3_6,
    KAFKA_3_7,
    KAFKA_3_8,
    KAFKA_3_9,
    KRAFT_3_9,
    LOADED,
    NOBODY,
    T0,
    UNHEARD,
    controllers_say,
    infos,
    says,
)
from tests.core.operations.migration.evidence import evidence as evidence_of

pytestmark = pytest.mark.spec("ADM-101")
BLOCKER, WARNING, NOTE, UNKNOWN = Severity.BLOCKER, Severity.WARNING, Severity.NOTE, Severity.UNKNOWN
evidence = partial(evidence_of, controllers=controllers_say())
"""The same, the controllers having been asked, and being well."""
SEVEN = {b: says(inter_broker_protocol_version="3.7-IV1") for b in (1, 2)}
OLD_3_6 = {b: says(KAFKA_3_6) for b in (1, 2)}
OLD_3_4 = {b: says(KAFKA_3_4) for b in (1, 2)}
ALSO_OLD = {"software", "producer_ids", "ibp"}  # which a release that is too old breaks as well
TOLD_BY_BROKERS = {"ibp", "software", "jbod", "acl", "unsupported_config", "strays"}
TWO_DIRS = (LogDir("/a", False, {}, None, None), LogDir("/b", False, {}, None, None))
QUOTA = {"producer_byte_rate": "1000"}


@pytest.mark.parametrize(
    ("found", "condition", "severity"),
    [
        (evidence(answers=SEVEN), "ibp", WARNING),
        (evidence(answers={b: says(inter_broker_protocol_version="3.3-IV3") for b in (1, 2)}), "ibp", BLOCKER),
        (evidence(answers={1: says(inter_broker_protocol_version="3.9-IV0-other")}), "ibp", BLOCKER),
        (evidence(answers={b: says(KAFKA_3_3) for b in (1, 2)}), "software", BLOCKER),
        (evidence(answers={1: says(KAFKA_3_6)}), "software", WARNING),
        (evidence(answers={1: says(KAFKA_3_6, TWO_DIRS)}), "jbod", BLOCKER),
        (
            evidence(answers={b: says(dirs=TWO_DIRS, inter_broker_protocol_version="3.6") for b in (1, 2)}),
            "jbod",
            BLOCKER,
        ),
        (
            evidence(answers={b: says(dirs=TWO_DIRS, inter_broker_protocol_version="3.7-IV1") for b in (1, 2)}),
            "jbod",
            BLOCKER,
        ),
        (evidence(answers={1: says(dirs=(LogDir("/a", True, {}, None, None),))}), "jbod", WARNING),
        (
            evidence(registered=(1001, 2), told=(1001, 2), assigned={0: (1001, 2)}, generated_ids=1),
            *("broker_id", BLOCKER),
        ),
        (
            evidence(controller=BY_KRAFT, migration=LOADED, registered=(1, 3000), told=(1, 3000), assigned={0: (1,)}),
            "broker_id",
            BLOCKER,
        ),
        (evidence(registered=(1, 3001), told=(1, 3001), assigned={0: (1,)}), "broker_id", BLOCKER),
        (evidence(raw={"adding_replicas": {"0": [2]}}), "reassignment", BLOCKER),
        (evidence(raw={"removing_replicas": {"0": [2]}}), "reassignment", BLOCKER),
        (evidence(admin=frozenset({"reassign_partitions"})), "reassignment", BLOCKER),
        (evidence(leader=-1), "offline", BLOCKER),
        (evidence(leader=7), "offline", BLOCKER),
        (evidence(isr=(1,)), "under_replicated", WARNING),
        (evidence(assigned={0: (1, 2, 7)}), "under_replicated", BLOCKER),
        (evidence(marked=("t",)), "deletion", BLOCKER),
        (evidence(marked=("t",), answers={b: says(delete_topic_enable="false") for b in (1, 2)}), "deletion", WARNING),
        (evidence(admin=frozenset({"preferred_replica_election"})), "stray_admin", WARNING),
        (evidence(admin=frozenset({"something"})), "stray_admin", WARNING),
        (evidence(stale_changes=2), "stray_admin", WARNING),
        (evidence(topics=("t", "a b")), "names", BLOCKER),
        (evidence(topics=("t", "a.b", "a_b")), "names", WARNING),
        (evidence(assigned={0: (1, 2), 2: (2, 1)}), "assignments", BLOCKER),
        (evidence(assigned={0: (1, 2, 1)}), "assignments", BLOCKER),
        (evidence(unreadable=("/config/topics/t",)), "assignments", BLOCKER),
        (evidence(orphans=("gone",)), "assignments", WARNING),
        (evidence(raw={"topic_id": None}), "topic_id", NOTE),
        (evidence(answers={b: says(authorizer_class_name="com.example.A") for b in (1, 2)}), "acl", BLOCKER),
        (
            evidence(answers={1: says(authorizer_class_name="kafka.security.authorizer.AclAuthorizer")}),
            *("acl", BLOCKER),
        ),
        (evidence(acls=3), "acl", NOTE),
        (evidence(configs={"users": {"u": {"SCRAM-SHA-256": "x"}}}), "scram", NOTE),
        (evidence(configs={"users": {"u": {"SCRAM-SHA-256": "x"}}}, answers=OLD_3_4), "scram", WARNING),
        (evidence(tokens=1, answers=OLD_3_4), "delegation_tokens", WARNING),
        (evidence(configs={"clients": {"c": {"producer_byte_rate": "many"}}}), "quotas", BLOCKER),
        (evidence(configs={"users": {"a%40b": QUOTA}}, answers=OLD_3_6), "quotas", WARNING),
        (evidence(configs={"clients": {"<default>": QUOTA}}, answers=OLD_3_6), "quotas", WARNING),
        (evidence(configs={"brokers": {"1": {"log.cleaner.threads": "2"}}}), "dynamic_configs", WARNING),
        (
            evidence(answers={b: says(control_plane_listener_name="CP") for b in (1, 2)}),
            *("unsupported_config", NOTE),
        ),
        (
            evidence(
                controller=BY_KRAFT,
                migration=LOADED,
                answers={b: says(control_plane_listener_name="CP") for b in (1, 2)},
            ),
            *("unsupported_config", BLOCKER),
        ),
        (evidence(overrides={"message.format.version": "2.0"}), "unsupported_config", NOTE),
        (evidence(answers=OLD_3_4), "producer_ids", WARNING),
        (evidence(controller=BY_KRAFT, migration=LOADED, told=(1,)), "registered", BLOCKER),
        (
            evidence(controller=BY_KRAFT, migration=LOADED, registered=(), answers={1: says()}),
            *("not_reregistered", BLOCKER),
        ),
        (
            evidence(controller=BY_KRAFT, migration=LOADED, registered=(), answers={1: says()}, controllers=None),
            *("not_reregistered", BLOCKER),
        ),
        (evidence(controllers=controllers_say(leader=None)), "controllers", BLOCKER),
        (evidence(controllers=controllers_say(behind_s={3000: 0, 3001: 10.1})), "controllers", BLOCKER),
        (evidence(controllers=controllers_say(behind_s={3000: 0, 3001: None})), "controllers", BLOCKER),
        (evidence(controllers=controllers_say(migrates=(True, False))), "controllers", BLOCKER),
        (
            evidence(controller=BY_KRAFT, migration=LOADED, controllers=controllers_say(migrates=(False, False))),
            *("controllers", BLOCKER),
        ),
        (
            evidence(
                controller=BY_KRAFT,
                migration=LOADED,
                registered=(),
                answers={b: says(KRAFT_3_9) for b in (1, 2)},
                controllers=controllers_say(migrates=(True, False)),
            ),
            *("controllers", BLOCKER),
        ),
        (evidence(controllers=controllers_say(level=20)), "controllers", BLOCKER),
        (evidence(controllers=controllers_say(level=None)), "controllers", UNKNOWN),
        (evidence(controllers=controllers_say(silent=(3002,))), "controllers", UNKNOWN),
        (evidence(controllers=NOBODY), "controllers", UNKNOWN),
        (evidence(controllers=UNHEARD), "controllers", UNKNOWN),
        (evidence(controllers=NOBODY, controller=BY_KRAFT, migration=LOADED), "controllers", UNKNOWN),
        (evidence(controllers=UNHEARD, controller=BY_KRAFT, migration=LOADED), "controllers", UNKNOWN),
        (evidence(controllers=controllers_say(leader=None, untold="not permitted")), "controllers", UNKNOWN),
        (evidence(controllers=None), "controllers", NOTE),
        (
            evidence(answers={1: says(dirs=(LogDir("/a", False, {T0: 1, T0._replace(partition=9): 1}, None, None),))}),
            "strays",
            WARNING,
        ),
        (
            evidence(controller=BY_KRAFT, migration=LOADED, differences=(Difference("t-0", "a", "b"),)),
            *("diverged", BLOCKER),
        ),
        (evidence(controller=BY_KRAFT, migration=LOADED, controller_epoch=0), "epoch", BLOCKER),
        (evidence(migration=LOADED), "residue", BLOCKER),
        (evidence(controller=BY_KRAFT, migration=None), "phase", BLOCKER),
        (evidence(silent=(1,)), "ibp", UNKNOWN),
        (evidence(silent=(1,)), "software", UNKNOWN),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_a_condition_broken_by_itself_is_found_alone(found: Evidence, condition: str, severity: Severity) -> None:
    rows = {row.id: row for row in check(found)}
    assert list(rows) == list(CONDITIONS)
    assert rows[condition].severity is severity and rows[condition].evidence, rows[condition]
    broken = {name for name, row in rows.items() if row.severity is not Severity.OK} - {condition}
    also = ALSO_OLD if found.answers.told != evidence().answers.told else set()
    if found.answers.silent:
        also = TOLD_BY_BROKERS
    if found.controllers is None:
        broken.discard("controllers")  # a note that they were not asked
    assert broken <= also, {name: rows[name] for name in broken}
    unknown = severity is UNKNOWN and condition in BLOCKERS
    assert blocked(rows.values(), strict=False) is (
        severity is BLOCKER or unknown or rows["software"].severity is BLOCKER
    )
    if severity is WARNING:
        assert blocked(rows.values(), strict=True)


@pytest.mark.spec("ADM-104")
def test_a_cluster_that_is_ready_has_no_finding_in_any_phase() -> None:
    for found in (
        evidence(),
        evidence(controller=BY_KRAFT, migration=LOADED),
        evidence(controller=BY_KRAFT, migration=LOADED, registered=(2,)),
        evidence(controller=BY_KRAFT, migration=LOADED, registered=(), answers={b: says(KRAFT_3_9) for b in (1, 2)}),
        evidence(topics=("t", "u.v"), admin=frozenset()),
        evidence(migration=BEGUN),
        evidence(migration=BEGUN, controller=BY_KRAFT),
        evidence(controllers=controllers_say(behind_s={3000: 0, 3001: 10.0})),
        evidence(answers={b: says(dirs=TWO_DIRS) for b in (1, 2)}),
    ):
        assert [row for row in check(found) if row.severity is not Severity.OK] == []
        assert not blocked(check(found), strict=True)
    assert infos((1,))


def test_of_a_migration_that_is_finalized_only_brokers_and_controllers_are_judged() -> None:
    found = evidence(
        migration=LOADED,
        registered=(),
        controllers=controllers_say(migrates=(False, False)),
        answers={b: says(KRAFT_3_9) for b in (1, 2)},
        marked=("t",),  # in ZooKeeper all is as it was left
        leader=-1,
        isr=(9,),
    )
    rows = {row.id: row for row in check(found)}
    assert {row.severity for row in rows.values()} == {Severity.OK, NOTE} and not blocked(rows.values(), strict=True)
    assert rows["offline"].evidence == "not looked at: ZooKeeper counts no more"
    late = controllers_say(migrates=(False, False), behind_s={3000: 0, 3001: 60})
    rows = {row.id: row for row in check(replace(found, controllers=late))}
    assert rows["controllers"].evidence == "voter 3001 has not caught up for 60 s"


def test_controllers_need_not_run_after_the_way_back_but_what_did_not_refuse_may_run() -> None:
    def controllers(found: Evidence) -> Severity:
        return next(row.severity for row in check(found) if row.id == "controllers")

    assert controllers(evidence(migration=LOADED, controllers=NOBODY)) is Severity.OK
    assert controllers(evidence(migration=LOADED, controllers=UNHEARD)) is UNKNOWN


@pytest.mark.parametrize(
    ("found", "remedy"),
    [
        (evidence(migration=LOADED, controller=BY_KRAFT, controllers=NOBODY), "see on each controller's host"),
        (evidence(migration=BEGUN, controllers=NOBODY), "start the controllers"),
        (evidence(migration=LOADED, controller=BY_KRAFT, controllers=UNHEARD), "name the controllers' own addresses"),
    ],
    ids=["rolling-back", "waiting", "not-refused"],
)
def test_whether_controllers_are_to_be_started_is_told_by_what_is_known_of_them(found: Evidence, remedy: str) -> None:
    (row,) = (row for row in check(found) if row.id == "controllers")
    assert (row.severity, row.blocks) == (UNKNOWN, True) and row.remedy.startswith(remedy)


SCRAM = {"users": {"u": {"SCRAM-SHA-256": "x"}}}
ENCODED = {"users": {"a%40b": QUOTA}}


@pytest.mark.parametrize(
    ("condition", "found", "older", "before", "newer", "from_then_on"),
    [
        ("software", {}, KAFKA_3_3, BLOCKER, KAFKA_3_4, WARNING),
        ("software", {}, KAFKA_3_8, WARNING, KAFKA_3_9, Severity.OK),
        ("jbod", {}, KAFKA_3_6, BLOCKER, KAFKA_3_7, Severity.OK),
        ("scram", {"configs": SCRAM}, KAFKA_3_4, WARNING, KAFKA_3_5, NOTE),
        ("delegation_tokens", {"tokens": 1}, KAFKA_3_5, WARNING, KAFKA_3_6, Severity.OK),
        ("producer_ids", {}, KAFKA_3_5, WARNING, KAFKA_3_6, Severity.OK),
        ("quotas", {"configs": ENCODED}, KAFKA_3_7, WARNING, KAFKA_3_8, Severity.OK),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_what_a_release_mends_is_told_of_the_release_before_it(
    condition: str,
    found: dict[str, Any],
    older: dict[int, int],
    before: Severity,
    newer: dict[int, int],
    from_then_on: Severity,
) -> None:
    def told(*releases: dict[int, int]) -> Severity:
        answers = {broker: says(release, TWO_DIRS) for broker, release in zip((1, 2), releases, strict=True)}
        return next(row.severity for row in check(evidence(answers=answers, **found)) if row.id == condition)

    assert told(older, older) is before and told(newer, newer) is from_then_on
    assert told(newer, older) is before, "one broker of the older is enough"


def test_the_protocol_that_knows_several_log_directories_is_new_enough() -> None:
    def told(protocol: str) -> Severity:
        answers = {b: says(dirs=TWO_DIRS, inter_broker_protocol_version=protocol) for b in (1, 2)}
        return next(row.severity for row in check(evidence(answers=answers)) if row.id == "jbod")

    assert (told("3.7-IV1"), told("3.7-IV2"), told("3.7")) == (BLOCKER, Severity.OK, Severity.OK)


def test_an_epoch_that_is_equal_will_do() -> None:
    """A broker that becomes controller writes the next one, which brokers take."""

    def told(controller_epoch: int) -> Severity:
        found = evidence(controller=BY_KRAFT, migration=LOADED, controller_epoch=controller_epoch)
        return next(row.severity for row in check(found) if row.id == "epoch")

    assert LOADED.controller_epoch == 1
    assert (told(0), told(1), told(2)) == (BLOCKER, Severity.OK, Severity.OK)


def test_protocols_are_compared_by_their_levels() -> None:
    told = {text: level_of(text) for text in ("3.9", "3.9-IV0", "3.7", "3.7-IV2", "3.4-IV0", "3.0.2", "2.8", "4.x", "")}
    assert told == {
        "3.9": 21,
        "3.9-IV0": 21,
        "3.7": 19,
        "3.7-IV2": 17,
        "3.4-IV0": 8,
        "3.0.2": 1,
        "2.8": None,
        "4.x": None,
        "": None,
    }
    assert [named(level) for level in (21, 17, 8, 99)] == ["3.9-IV0", "3.7-IV2", "3.4-IV0", "level 99"]


def test_what_a_silent_broker_would_have_told_is_unknown_and_never_ok() -> None:
    rows = {row.id: row for row in check(evidence(silent=(1,)))}
    unknown = {name: row.evidence for name, row in rows.items() if row.severity is UNKNOWN}
    assert set(unknown) == TOLD_BY_BROKERS and all("of broker 1: no answer" in told for told in unknown.values())
    dual_write = evidence(
        controller=BY_KRAFT, migration=LOADED, registered=(), answers={b: says(KRAFT_3_9) for b in (1, 2)}, silent=(2,)
    )
    (row,) = (row for row in check(dual_write) if row.id == "not_reregistered")
    assert (row.severity, row.evidence, row.blocks) == (UNKNOWN, "kind of broker 2: no answer", True)


@pytest.mark.parametrize(
    ("assigned", "lost", "told"),
    [({0: (1, 2), 1: ()}, None, "no replicas: t-1"), (None, T0, "no state: t-0")],
    ids=["empty", "stateless"],
)
def test_a_partition_without_replicas_or_state_has_no_leader_either(
    assigned: dict[int, tuple[int, ...]] | None, lost: TopicPartition | None, told: str
) -> None:
    found = evidence() if assigned is None else evidence(assigned=assigned)
    states = {p: state for p, state in found.view.states.items() if p != lost}
    rows = {row.id: row for row in check(replace(found, view=replace(found.view, states=states)))}
    broken = {name for name, row in rows.items() if row.severity is not Severity.OK}
    assert broken == {"assignments", "offline"} and told in rows["assignments"].evidence
    assert {rows[name].severity for name in broken} == {BLOCKER}


@pytest.mark.spec("ADM-102")
def test_what_differs_is_told_with_both_values_and_how_much_more_there_is() -> None:
    def diverged(*differences: Difference, uncompared: str = "") -> Row:
        found = evidence(controller=BY_KRAFT, migration=LOADED, differences=differences, uncompared=uncompared)
        return next(row for row in check(found) if row.id == "diverged")

    many = [Difference(f"t-{number}", "a", "b") for number in range(7)]
    assert diverged(*many[:1]).evidence == "t-0: in ZooKeeper (a), by the brokers (b)"
    assert "t-4" in diverged(*many[:5]).evidence and "more" not in diverged(*many[:5]).evidence
    assert diverged(*many).evidence.endswith("t-4: in ZooKeeper (a), by the brokers (b); and 2 more")
    unread = diverged(uncompared="overrides of topics: no answer")
    assert (unread.severity, unread.evidence, unread.blocks) == (UNKNOWN, "overrides of topics: no answer", True)


@pytest.mark.spec("ADM-75")
def test_what_a_move_adds_is_not_missing_from_what_is_in_sync() -> None:
    def behind(raw: dict[str, object], reassignment: dict[TopicPartition, tuple[int, ...]] | None = None) -> set[str]:
        found = evidence(registered=(1, 2, 3), assigned={0: (3, 1, 2)}, isr=(1, 2), leader=1, raw=raw)
        rows = check(replace(found, view=replace(found.view, reassignment=reassignment)))
        return {row.id for row in rows if row.severity is not Severity.OK}

    assert behind({"adding_replicas": {"0": [3]}}) == {"reassignment"}
    assert behind({}, {T0: (3, 1)}) == {"reassignment"}, "any of those wanted may be new"
    assert behind({"adding_replicas": {"0": [1]}}) == {"reassignment", "under_replicated"}
    assert behind({}, {T0: (1, 2)}) == {"reassignment", "under_replicated"}
    assert behind({}) == {"under_replicated"}
