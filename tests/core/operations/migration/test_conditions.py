"""Each condition of a migration, broken by itself, and found alone (ADM-101, ADM-104)."""

import pytest

from kafkatool.core.operations.brokers.answers import LogDir
from kafkatool.core.operations.migration.conditions import BLOCKERS, CONDITIONS, Severity, blocked, check
from kafkatool.core.operations.migration.reading import Difference, Evidence, Leadership, compare
from tests.core.operations.migration.evidence import (
    BY_KRAFT,
    KAFKA_3_3,
    KAFKA_3_4,
    KAFKA_3_6,
    KRAFT_3_9,
    LOADED,
    T0,
    evidence,
    infos,
    says,
)

pytestmark = pytest.mark.spec("ADM-101")
BLOCKER, WARNING, NOTE, UNKNOWN = Severity.BLOCKER, Severity.WARNING, Severity.NOTE, Severity.UNKNOWN
SEVEN = {b: says(inter_broker_protocol_version="3.7-IV1") for b in (1, 2)}
OLD_3_6 = {b: says(KAFKA_3_6) for b in (1, 2)}
OLD_3_4 = {b: says(KAFKA_3_4) for b in (1, 2)}
ALSO_OLD = {"software", "producer_ids", "ibp"}  # which a release that is too old breaks as well
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
        (evidence(raw={"adding_replicas": {"0": [2]}}), "reassignment", BLOCKER),
        (evidence(raw={"removing_replicas": {"0": [2]}}), "reassignment", BLOCKER),
        (evidence(admin=frozenset({"reassign_partitions"})), "reassignment", BLOCKER),
        (evidence(leader=-1), "offline", BLOCKER),
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
    also = (
        {"ibp", "software"}
        if UNKNOWN is severity
        else ALSO_OLD
        if found.answers.told != evidence().answers.told
        else set()
    )
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
    ):
        assert [row for row in check(found) if row.severity is not Severity.OK] == []
        assert not blocked(check(found), strict=True)
    assert infos((1,))


@pytest.mark.spec("ADM-102")
def test_what_differs_is_told_with_both_values() -> None:
    one, other = Leadership((1, 2), 1, 5, frozenset({1, 2})), Leadership((1, 2), 2, 6, frozenset({2}))
    assert compare({"t-0": one, "t": "id a"}, {"t-0": one, "t": "id a"}) == []
    assert compare({"t-0": one}, {"t-0": other}) == [Difference("t-0", str(one), str(other))]
    assert [d.name for d in compare({"t-0": one, "t": "id a"}, {"t": "id b"})] == ["t", "t-0"]
