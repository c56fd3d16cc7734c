"""``kt elect --bootstrap-server`` against a broker made of functions: what is asked, and what is said of the answer."""

import signal
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import orjson
import pytest
from click.testing import CliRunner, Result
from jsonschema import Draft202012Validator

from kafkatool.commands.elect import by_request
from kafkatool.commands.main import kt
from kafkatool.core.client import cluster as client_cluster
from kafkatool.core.operations.requests import elections
from kafkatool.core.protocol.messages import elect_leaders, metadata
from kafkatool.core.protocol.messages.elect_leaders import (
    ElectLeadersRequest,
    ElectLeadersResponse,
    ElectLeadersResponsePartition,
    ElectLeadersResponseTopic,
)
from kafkatool.core.protocol.messages.error_codes import ErrorCode
from kafkatool.core.protocol.messages.metadata import MetadataResponsePartition, MetadataResponseTopic
from tests.core.client.fake_broker import FakeBroker
from tests.paths import ROOT

SCHEMA = ROOT / "docs" / "schemas" / "kt-elect.schema.json"
LEADERS = {0: (1, [1, 2], [1, 2]), 1: (1, [2, 1], [1, 2]), 2: (2, [1, 2], [2]), 3: (-1, [9], [9]), 4: (1, [9, 1], [1])}
UNKNOWN = "org.apache.kafka.common.errors.UnknownTopicOrPartitionException"


@pytest.fixture
def broker() -> Iterator[FakeBroker]:
    """Brokers 1 and 2, 1 the controller; ``t`` has partitions that an election changes, and others."""
    with FakeBroker(1, {elect_leaders.API: (0, 2)}) as found, FakeBroker(2) as other:
        found.knows = [found, other]
        found.answers[metadata.API.key] = lambda request: found.metadata([_topic("t")])
        yield found


def _topic(name: str) -> MetadataResponseTopic:
    partitions = [
        MetadataResponsePartition(partition=p, leader_id=leader, replica_nodes=replicas, isr_nodes=isr)
        for p, (leader, replicas, isr) in LEADERS.items()
    ]
    return MetadataResponseTopic(topic=name, partitions=partitions)


def _known_by_name(broker: FakeBroker, *names: str, hidden: MetadataResponseTopic | None = None) -> None:
    """Have it tell of those topics, and of no other that it is asked for; ``hidden`` only to who asks by name."""

    def told(request: metadata.MetadataRequest) -> object:
        if request.topics is None:
            return broker.metadata([_topic(name) for name in names])
        asked = [t.topic for t in request.topics]
        unseen = [hidden] if hidden is not None and hidden.topic in asked else []
        return broker.metadata([_topic(name) for name in names if name in asked] + unseen)

    broker.answers[metadata.API.key] = told


def _answers(broker: FakeBroker, codes: dict[int, tuple[int, str | None]], *, top: int = 0) -> None:
    partitions = [
        ElectLeadersResponsePartition(partition=p, error_code=code, error_message=message)
        for p, (code, message) in codes.items()
    ]
    answer = ElectLeadersResponse(error_code=top, topics=[ElectLeadersResponseTopic(topic="t", partitions=partitions)])
    broker.answers[elect_leaders.API.key] = lambda _: answer


def _run(broker: FakeBroker, *args: object) -> Result:
    return CliRunner().invoke(kt, ["elect", "--bootstrap-server", str(broker.address), *map(str, args)])


class Clock:
    """Stands for ``time`` of a client, whose time is over when the test says so."""

    def __init__(self) -> None:
        self._skipped_s = 0.0
        self.sleep = time.sleep

    def monotonic(self) -> float:
        return time.monotonic() + self._skipped_s

    def skip(self) -> None:
        self._skipped_s += 1000


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    monkeypatch.setattr(elections, "LOOK_MS", 60_000)  # the machine may stand still for a while
    made = Clock()
    monkeypatch.setattr(client_cluster, "time", made)
    return made


def _asked(broker: FakeBroker) -> list[ElectLeadersRequest]:
    return [request for name, _, request in broker.asked if name == "ElectLeaders"]


@pytest.mark.spec("ADM-46", "ADM-48", "ADM-56")
def test_each_partition_is_told_by_its_own_code_in_kafkas_words(broker: FakeBroker, tmp_path: Path) -> None:
    _answers(
        broker,
        {
            5: (0, None),
            1: (0, None),
            3: (ErrorCode.ELECTION_NOT_NEEDED, "x"),
            0: (ErrorCode.ELECTION_NOT_NEEDED, "x"),
            2: (ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE, "behind"),
            7: (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "No such partition"),
            4: (ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE, "down"),
        },
    )
    file = tmp_path / "e.json"
    file.write_bytes(orjson.dumps({"partitions": [{"topic": "t", "partition": p} for p in (7, 5, 4, 3, 2, 1, 0)]}))
    found = _run(broker, "--path-to-json-file", file)
    preferred = "org.apache.kafka.common.errors.PreferredLeaderNotAvailableException"
    assert (found.exit_code, found.stdout) == (
        1,
        "Successfully completed leader election (PREFERRED) for partitions t-1, t-5\n"
        "Valid replica already elected for partitions t-0, t-3\n"
        f"Error completing leader election (PREFERRED) for partition: t-2: {preferred}: behind\n"
        f"Error completing leader election (PREFERRED) for partition: t-4: {preferred}: down\n"
        f"Error completing leader election (PREFERRED) for partition: t-7: {UNKNOWN}: No such partition\n",
    )
    assert found.stderr == "3 replica(s) could not be elected\n"
    document = orjson.loads(_run(broker, "--path-to-json-file", file, "--output", "json").stdout)
    statuses = {item["partition"]: item["status"] for item in document["items"]}
    assert statuses == {
        0: "already_preferred",
        1: "elected",
        2: "not_in_isr",
        3: "already_preferred",
        4: "preferred_down",
        5: "elected",
        7: "unknown",
    }
    assert [(e["partition"], e["code"]) for e in document["errors"]] == [(2, 80), (4, 80), (7, 3)]
    (first, _) = _asked(broker)
    assert (first.election_type, [(t.topic, t.partitions) for t in first.topics or []]) == (
        0,
        [("t", [0, 1, 2, 3, 4, 5, 7])],
    )


@pytest.mark.spec("ADM-45", "ADM-48", "ADM-11")
def test_all_partitions_are_asked_for_by_null_and_those_already_right_come_from_the_metadata(
    broker: FakeBroker,
) -> None:
    _answers(broker, {1: (0, None)})
    found = _run(broker, "--all-topic-partitions")
    assert found.stdout == "Successfully completed leader election (PREFERRED) for partitions t-1\n"
    document = orjson.loads(_run(broker, "--all-topic-partitions", "--output", "json").stdout)
    assert {i["partition"]: i["status"] for i in document["items"]} == {
        1: "elected",
        **dict.fromkeys(LEADERS.keys() - {1}, "already_preferred"),  # what the answer leaves out needs no election
    }
    assert _run(broker).stdout == found.stdout  # as with ZooKeeper
    assert all(request.topics is None for request in _asked(broker))
    assert broker.client_ids == {"kt-elect"}


@pytest.mark.spec("ADM-45")
@pytest.mark.parametrize(
    ("flags", "why"),
    [
        (
            "--election-type unclean",
            "One and only one of the following options is required: topic, all-topic-partitions, path-to-json-file",
        ),
        ("--partition 0", "One and only one of the following options is required"),
        ("--topic t --partition 0 --all-topic-partitions", "One and only one of the following options is required"),
        ("--partition 0 --all-topic-partitions", "Option partition is only allowed if topic is used"),
        ("--partition 0 --path-to-json-file f", "Option partition is only allowed if topic is used"),
        ("--all-topic-partitions --election-type x", "Cannot parse argument 'x' of option election-type"),
    ],
)
def test_one_way_to_name_partitions_is_taken(broker: FakeBroker, flags: str, why: str) -> None:
    found = _run(broker, *flags.split())
    assert found.exit_code == 2 and why in found.stderr and found.stdout == ""
    assert not broker.asked


@pytest.mark.spec("ADM-45")
def test_a_regex_a_broker_and_what_would_change_select(broker: FakeBroker) -> None:
    _answers(broker, {1: (0, None)})
    for flags in (["--only-imbalanced"], ["--broker", 9], ["--topic", "t|u"], ["--topic", "t", "--partition", 3]):
        _run(broker, *flags, "--election-type", "PREFERRED")
    asked = [(request.topics or [])[0].partitions for request in _asked(broker)]
    assert asked == [[1], [3, 4], [0, 1, 2, 3, 4], [3]]


@pytest.mark.spec("ADM-47")
@pytest.mark.parametrize(
    ("content", "why"),
    [
        ("", "Replica election data is empty"),
        ("nonsense", "Replica election data is empty"),
        ('{"a": 1}', 'Replica election data is missing "partitions" field'),
        (
            '{"partitions": [{"topic": "t", "partition": 0}, {"topic": "t", "partition": 0}]}',
            "Replica election data contains duplicate partitions: [t-0]",
        ),
    ],
)
def test_a_file_that_cannot_be_used_is_told_in_kafkas_words(
    broker: FakeBroker, tmp_path: Path, content: str, why: str
) -> None:
    file = tmp_path / "e.json"
    file.write_text(content)
    found = _run(broker, "--path-to-json-file", file)
    assert (found.exit_code, found.stdout) == (1, f"{why}\n") and not broker.asked
    missing = _run(broker, "--path-to-json-file", tmp_path / "none")
    assert (missing.exit_code, missing.stdout) == (1, f"Unable to read file {tmp_path / 'none'}\n")
    assert not broker.asked
    file.write_text('{"partitions": []}')
    empty = _run(broker, "--path-to-json-file", file)
    assert (empty.exit_code, empty.output) == (0, "")


@pytest.mark.spec("ADM-47")
def test_a_request_that_is_not_allowed_or_never_answered_is_told(broker: FakeBroker, clock: Clock) -> None:
    _answers(broker, {}, top=ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
    found = _run(broker, "--all-topic-partitions")
    assert (found.exit_code, found.stdout) == (1, "Not authorized to perform leader election\n")
    assert found.stderr == "not permitted: Alter on cluster (broker 1 as User:ANONYMOUS)\n"
    broker.answers[elect_leaders.API.key] = lambda _: clock.skip()
    late = _run(broker, "--all-topic-partitions", "--timeout", 600)
    assert (late.exit_code, late.stdout) == (1, "Timeout waiting for election results\n")


class Waits:
    """Stands for ``time``: notes what is waited for, and waits a moment."""

    def __init__(self) -> None:
        self.noted: list[float] = []

    def sleep(self, seconds: float) -> None:
        self.noted.append(seconds)
        time.sleep(0.05)


@pytest.fixture
def waits(monkeypatch: pytest.MonkeyPatch) -> Waits:
    made = Waits()
    monkeypatch.setattr(elections, "time", made)
    return made


@pytest.mark.spec("ADM-49", "ADM-48")
def test_one_still_pending_is_looked_up_until_its_leader_is_right_or_the_time_is_over(
    broker: FakeBroker, waits: Waits, clock: Clock
) -> None:
    reads: list[int] = []

    def look(_: metadata.MetadataRequest) -> object:
        reads.append(len(_asked(broker)))
        topic = _topic("t")
        first, pending, *others = topic.partitions
        if reads.count(1) > 3:  # the third look after the election
            pending = replace(pending, leader_id=2)
        return broker.metadata([replace(topic, partitions=[first, pending, *others])])

    broker.answers[metadata.API.key] = look
    _answers(broker, {1: (ErrorCode.REQUEST_TIMED_OUT, "late")})
    found = _run(broker, "--topic", "t", "--partition", 1)
    assert (found.exit_code, waits.noted) == (0, [0.5] * 3)
    assert found.stdout == "Successfully completed leader election (PREFERRED) for partitions t-1\n"

    def pending(_: metadata.MetadataRequest) -> object:
        if waits.noted:
            clock.skip()
        return broker.metadata([_topic("t")])

    waits.noted.clear()
    broker.answers[metadata.API.key] = pending
    late = _run(broker, "--topic", "t", "--partition", 1, "--timeout", 600)
    exception = "org.apache.kafka.common.errors.TimeoutException"
    assert (late.exit_code, late.stdout) == (
        1,
        f"Error completing leader election (PREFERRED) for partition: t-1: {exception}: late\n",
    )
    document = _run(broker, "--topic", "t", "--partition", 1, "--timeout", 600, "--output", "json").stdout
    assert [item["status"] for item in orjson.loads(document)["items"]] == ["pending"]


@pytest.mark.spec("ADM-49", "ADM-46")
def test_one_still_pending_counts_by_its_leader_in_the_end(broker: FakeBroker) -> None:
    def elect(_: ElectLeadersRequest) -> object:
        moved = {**LEADERS, 1: (2, [2, 1], [1, 2])}
        partitions = [
            MetadataResponsePartition(partition=p, leader_id=leader, replica_nodes=r, isr_nodes=i)
            for p, (leader, r, i) in moved.items()
        ]
        topic = MetadataResponseTopic(topic="t", partitions=partitions)
        broker.answers[metadata.API.key] = lambda request: broker.metadata([topic])
        timed_out = ElectLeadersResponsePartition(partition=1, error_code=ErrorCode.REQUEST_TIMED_OUT)
        return ElectLeadersResponse(topics=[ElectLeadersResponseTopic(topic="t", partitions=[timed_out])])

    broker.answers[elect_leaders.API.key] = elect
    found = _run(broker, "--topic", "t", "--partition", 1)
    assert (found.exit_code, found.stdout) == (
        0,
        "Successfully completed leader election (PREFERRED) for partitions t-1\n",
    )
    assert len(_asked(broker)) == 1


@pytest.mark.spec("ADM-49")
def test_batches_are_a_request_each_an_interval_apart_and_printed_as_one_list(broker: FakeBroker, waits: Waits) -> None:
    def elect(request: ElectLeadersRequest) -> object:
        done = [ElectLeadersResponsePartition(partition=p) for t in request.topics or [] for p in t.partitions]
        return ElectLeadersResponse(topics=[ElectLeadersResponseTopic(topic="t", partitions=done)])

    broker.answers[elect_leaders.API.key] = elect
    found = _run(broker, "--topic", "t", "--batch-partitions", 2, "--interval", 7)
    assert waits.noted == [7, 7], "none before the first, none after the last"
    assert [[p for t in r.topics or [] for p in t.partitions] for r in _asked(broker)] == [[0, 1], [2, 3], [4]]
    names = "t-0, t-1, t-2, t-3, t-4"
    assert found.stdout == f"Successfully completed leader election (PREFERRED) for partitions {names}\n"


@pytest.mark.spec("ADM-48", "ADM-50")
def test_unclean_asks_first_and_only_for_what_has_no_leader(broker: FakeBroker) -> None:
    _answers(broker, {3: (ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE, "none")})
    unasked = _run(broker, "--election-type", "unclean", "--all-topic-partitions")
    assert unasked.exit_code == 2 and "--force" in unasked.stderr and not _asked(broker)
    found = _run(broker, "--election-type", "Unclean", "--topic", "t", "--force")
    assert found.exit_code == 1
    assert found.stdout == (
        "Valid replica already elected for partitions t-0, t-1, t-2, t-4\n"
        "Error completing leader election (UNCLEAN) for partition: t-3: "
        "org.apache.kafka.common.errors.EligibleLeadersNotAvailableException: none\n"
    )
    (request,) = _asked(broker)
    assert (request.election_type, [t.partitions for t in request.topics or []]) == (1, [[3]])
    flags = ("--election-type", "unclean", "--topic", "t", "--force", "--output", "json")
    items = orjson.loads(_run(broker, *flags).stdout)["items"]
    assert {item["partition"]: item["status"] for item in items} == {
        **dict.fromkeys((0, 1, 2, 4), "has_leader"),
        3: "no_live_replica",
    }
    _answers(broker, {3: (ErrorCode.ELECTION_NOT_NEEDED, "by now it has one")})
    found = _run(broker, *flags)
    statuses = {item["status"] for item in orjson.loads(found.stdout)["items"]}
    assert (found.exit_code, statuses) == (0, {"has_leader"})


@pytest.mark.spec("ADM-50")
@pytest.mark.parametrize(
    ("chosen", "why"),
    [
        (("--topic", "tt"), "no topic matches 'tt'; near: t"),
        (("--topic", "x.*"), "no topic of 1 matches 'x.*'; kt topics list shows them"),
        (("--broker", "7"), "none prefers broker 7; brokers that are up: 1,2"),
        (("--topic", "t", "--broker", "7"), "none prefers broker 7; brokers that are up: 1,2"),
    ],
)
def test_an_unclean_election_of_what_nothing_is_chosen_by_elects_nothing(
    broker: FakeBroker, chosen: tuple[str, ...], why: str
) -> None:
    """Partition 3 has no leader: whoever mistypes the topic must not lose its records."""
    _answers(broker, {3: (0, None)})
    _known_by_name(broker, "t")
    for flags in ((), ("--dry-run",), ("--output", "json")):
        found = _run(broker, "--election-type", "unclean", *chosen, "--force", *flags)
        assert found.exit_code == 1 and f"no partition to elect: {why}\n" in found.stderr, found.output
        assert "ElectLeaders" not in found.stdout
    assert not _asked(broker)
    usage = _run(broker, "--election-type", "unclean", "--only-imbalanced", "--force")
    assert usage.exit_code == 2 and "--only-imbalanced is of preferred elections" in usage.stderr
    preferred = _run(broker, *chosen)
    assert preferred.exit_code == 1 and f"no partition to elect: {why}\n" in preferred.stderr
    assert not _asked(broker)


@pytest.mark.spec("ADM-45")
def test_where_an_election_would_change_nothing_all_is_well(broker: FakeBroker) -> None:
    found = _run(broker, "--only-imbalanced", "--broker", 9)
    assert (found.exit_code, found.stdout) == (0, "") and "an election would change none" in found.stderr
    assert not _asked(broker)


@pytest.mark.spec("ADM-50")
def test_a_topic_of_exactly_that_name_is_meant_alone(broker: FakeBroker) -> None:
    _known_by_name(broker, "pay.v1", "pay-v1", "payXv1")
    _answers(broker, {})
    for name, topics in (("pay.v1", ["pay.v1"]), ("pay.?v1", ["pay-v1", "pay.v1", "payXv1"])):
        _run(broker, "--election-type", "unclean", "--topic", name, "--force")
        assert [t.topic for t in _asked(broker)[-1].topics or []] == topics
    denied = MetadataResponseTopic(topic="pay.v1", error_code=ErrorCode.TOPIC_AUTHORIZATION_FAILED, partitions=[])
    _known_by_name(broker, "pay-v1", hidden=denied)
    found = _run(broker, "--election-type", "unclean", "--topic", "pay.v1", "--force")
    assert found.exit_code == 1 and "not permitted: Describe on topic pay.v1" in found.output
    assert len(_asked(broker)) == 2


@pytest.mark.spec("ADM-50")
def test_on_a_terminal_an_unclean_election_is_asked_about_once_and_its_leaders_are_told(
    broker: FakeBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Partition 1 has a leader that is dead, partition 3 none, the others one that is live."""
    monkeypatch.setattr(by_request, "sys", SimpleNamespace(stdin=SimpleNamespace(isatty=lambda: True)))
    leaders: dict[int, tuple[int, list[int], list[int]]] = {**LEADERS, 1: (9, [9, 1], [9]), 3: (-1, [9, 2], [9])}

    def told(_: metadata.MetadataRequest) -> object:
        partitions = [
            MetadataResponsePartition(partition=p, leader_id=leader, replica_nodes=replicas, isr_nodes=isr)
            for p, (leader, replicas, isr) in leaders.items()
        ]
        return broker.metadata([MetadataResponseTopic(topic="t", partitions=partitions)])

    def elect(request: ElectLeadersRequest) -> object:
        leaders.update({1: (1, [9, 1], [1]), 3: (2, [9, 2], [2])})
        done = [ElectLeadersResponsePartition(partition=p) for t in request.topics or [] for p in t.partitions]
        return ElectLeadersResponse(topics=[ElectLeadersResponseTopic(topic="t", partitions=done)])

    broker.answers |= {metadata.API.key: told, elect_leaders.API.key: elect}

    def run(answer: str) -> Result:
        flags = ["--bootstrap-server", str(broker.address), "--topic", "t", "--output", "json"]
        return CliRunner().invoke(kt, ["elect", "--election-type", "unclean", *flags], input=answer)

    question = "Acknowledged records of t-1, t-3 may be lost. Elect all the same?"
    refused = run("n\n")
    assert refused.exit_code == 1 and refused.stderr.count(question) == 1 and "nothing was elected" in refused.output
    assert not _asked(broker)
    elected = run("y\n")
    assert elected.exit_code == 0 and elected.stderr.count("Elect all the same?") == 1, elected.output
    ((topic,),) = [request.topics or [] for request in _asked(broker)]
    assert topic.partitions == [1, 3]
    items = {item["partition"]: item for item in orjson.loads(elected.stdout)["items"]}
    assert {p: (i["leader_before"], i["leader"], i["status"]) for p, i in items.items()} == {
        0: (1, 1, "has_leader"),
        1: (9, 1, "elected"),
        2: (2, 2, "has_leader"),
        3: (None, 2, "elected"),
        4: (1, 1, "has_leader"),
    }


@pytest.mark.spec("ADM-48")
@pytest.mark.parametrize(
    ("code", "status"), [(ErrorCode.INVALID_TOPIC_EXCEPTION, "being_deleted"), (ErrorCode.POLICY_VIOLATION, "failed")]
)
def test_other_codes_have_their_status(broker: FakeBroker, code: ErrorCode, status: str) -> None:
    _answers(broker, {1: (code, "why")})
    document = orjson.loads(_run(broker, "--topic", "t", "--partition", 1, "--output", "json").stdout)
    assert [item["status"] for item in document["items"]] == [status]


class Leaderless:
    """Has ``broker`` tell of five partitions without a live leader, and elect broker 1 in them, one after the other.

    ``becomes`` is asked before for the code to answer; None: there is no answer. Where it is not 0 nothing is elected.
    """

    def __init__(self, broker: FakeBroker) -> None:
        self._broker = broker
        self.leaders = dict.fromkeys(range(5), -1)
        self.becomes: Callable[[int], int | None] = lambda partition: 0
        broker.answers |= {metadata.API.key: self._tell, elect_leaders.API.key: self._elect}

    def _tell(self, _: metadata.MetadataRequest) -> object:
        partitions = [
            MetadataResponsePartition(partition=p, leader_id=leader, replica_nodes=[9, 1], isr_nodes=[9])
            for p, leader in self.leaders.items()
        ]
        return self._broker.metadata([MetadataResponseTopic(topic="t", partitions=partitions)])

    def _elect(self, request: ElectLeadersRequest) -> object:
        done = []
        for partition in [p for t in request.topics or [] for p in t.partitions]:
            code = self.becomes(partition)
            if code is None:
                return None
            if code == 0:
                self.leaders[partition] = 1
            done.append(ElectLeadersResponsePartition(partition=partition, error_code=code))
        return ElectLeadersResponse(topics=[ElectLeadersResponseTopic(topic="t", partitions=done)])


UNCLEAN = ("--election-type", "unclean", "--all-topic-partitions", "--force", "--batch-partitions", "1")
ELECTED = "Successfully completed leader election (UNCLEAN) for partitions"
NOT_KNOWN = "whether it was elected is not known: "


def _json(found: Result) -> dict[str, Any]:
    document: dict[str, Any] = orjson.loads(found.stdout)
    Draft202012Validator(orjson.loads(SCHEMA.read_bytes())).validate(document)
    return document


@pytest.mark.spec("ADM-56", "ADM-57", "ADM-47")
def test_batches_that_were_elected_are_told_when_a_later_one_is_not_answered(broker: FakeBroker, clock: Clock) -> None:
    cluster = Leaderless(broker)

    def lose(partition: int) -> int | None:
        if partition == 2:
            clock.skip()
            return None
        return ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE if partition == 1 else 0

    cluster.becomes = lose
    found = _run(broker, *UNCLEAN)
    assert found.exit_code == 1
    first, failed, timeout = found.stdout.splitlines()
    assert first == f"{ELECTED} t-0" and "t-1: org.apache.kafka.common.errors.EligibleLeaders" in failed
    assert timeout == "Timeout waiting for election results"
    assert "not known whether elected: t-2\n" in found.stderr and "not asked for: t-3, t-4\n" in found.stderr
    assert "1 replica(s) could not be elected" in found.stderr
    cluster.leaders = dict.fromkeys(range(5), -1)
    found = _run(broker, *UNCLEAN, "--output", "json")
    document = _json(found)
    statuses = {item["partition"]: (item["status"], item["leader"]) for item in document["items"]}
    assert found.exit_code == 1 and statuses == {
        0: ("elected", 1),
        1: ("no_live_replica", None),
        2: ("pending", None),
        3: ("failed", None),
        4: ("failed", None),
    }
    errors = {error.get("partition"): (error["error"], error["message"]) for error in document["errors"]}
    assert errors[None] == ("refused", "Timeout waiting for election results")
    assert errors[2][0] == "lost_answer" and errors[2][1].startswith(NOT_KNOWN)
    assert errors[3][0] == errors[4][0] == "not_asked" and errors[4][1].startswith("not asked for: ")
    assert [(t.topic, t.partitions) for r in _asked(broker)[-3:] for t in r.topics or []] == [
        ("t", [p]) for p in range(3)
    ]


@pytest.mark.spec("ADM-56", "ADM-48")
def test_a_preferred_election_of_all_that_is_not_answered_tells_what_may_have_changed(
    broker: FakeBroker, clock: Clock
) -> None:
    broker.answers[elect_leaders.API.key] = lambda _: clock.skip()
    document = _json(_run(broker, "--all-topic-partitions", "--timeout", 600, "--output", "json"))
    pending = dict.fromkeys(LEADERS.keys() - {0}, "pending")
    assert {i["partition"]: i["status"] for i in document["items"]} == {0: "already_preferred", **pending}


@pytest.mark.spec("ADM-57")
@pytest.mark.parametrize("form", ["text", "json"])
def test_what_was_elected_is_told_after_ctrl_c(broker: FakeBroker, monkeypatch: pytest.MonkeyPatch, form: str) -> None:
    Leaderless(broker)

    def interrupt(_: float) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(elections, "time", SimpleNamespace(sleep=interrupt))
    found = _run(broker, *UNCLEAN, "--interval", 60, "--output", form)
    assert (
        found.exit_code == 130 and "interrupted" in found.stderr and "not asked for: t-1, t-2, t-3, t-4" in found.stderr
    )
    if form == "text":
        assert found.stdout == f"{ELECTED} t-0\n"
    else:
        assert [item["status"] for item in _json(found)["items"]] == ["elected", *["failed"] * 4]


@pytest.mark.spec("ADM-57", "ADM-56")
def test_ctrl_c_while_a_batch_is_under_way_leaves_it_in_doubt_and_looks_what_became_of_it(
    broker: FakeBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(elections, "LOOK_MS", 60_000)
    cluster = Leaderless(broker)
    looked = threading.Event()
    tell = broker.answers[metadata.API.key]

    def look(request: metadata.MetadataRequest) -> object:
        looked.set()
        return tell(request)

    def interrupt(partition: int) -> int:
        if partition == 1:
            broker.answers[metadata.API.key] = look
            signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)
            assert looked.wait(60), "nobody looks, or waits for this answer before"
        return 0

    cluster.becomes = interrupt
    found = _run(broker, *UNCLEAN, "--output", "json")
    assert found.exit_code == 130 and "not known whether elected: t-1\n" in found.stderr
    statuses = [(item["status"], item["leader"]) for item in _json(found)["items"]]
    assert statuses == [("elected", 1), ("pending", None), *[("failed", None)] * 3]


@pytest.mark.spec("ADM-56", "ADM-47")
def test_batches_that_were_elected_are_told_when_a_later_one_is_refused(broker: FakeBroker) -> None:
    cluster = Leaderless(broker)
    cluster.becomes = lambda partition: _refuse(broker) if partition == 0 else 0
    found = _run(broker, *UNCLEAN)
    assert found.exit_code == 1
    first, refused, why = found.stdout.splitlines()
    assert first == f"{ELECTED} t-0" and "partition: t-1: " in refused and "not permitted: Alter on cluster" in refused
    assert why == "Not authorized to perform leader election" and "not asked for: t-2, t-3, t-4\n" in found.stderr


def _refuse(broker: FakeBroker) -> int:
    """Elect this one, and refuse what is asked for next."""
    answer = ElectLeadersResponse(error_code=ErrorCode.CLUSTER_AUTHORIZATION_FAILED, topics=[])
    broker.answers[elect_leaders.API.key] = lambda _: answer
    return 0


@pytest.mark.spec("ADM-48", "ADM-54", "ADM-56")
@pytest.mark.parametrize("answered", [True, False], ids=["then not needed", "never answered"])
def test_an_unclean_election_whose_answer_was_lost_is_told_as_perhaps_its_own(
    broker: FakeBroker, clock: Clock, answered: bool
) -> None:
    cluster = Leaderless(broker)
    sent: list[int] = []

    def lose(partition: int) -> int | None:
        sent.append(partition)
        cluster.leaders[partition] = 1
        if answered:
            return ErrorCode.ELECTION_NOT_NEEDED if len(sent) > 1 else None
        clock.skip()
        return None

    cluster.becomes = lose
    one = ("--election-type", "unclean", "--topic", "t", "--partition", "3", "--force")
    found = _run(broker, *one)
    words = "Valid replica already elected for partitions" if answered else ELECTED
    assert (found.exit_code, found.stdout) == (0, f"{words} t-3\n")
    assert (
        "t-3: elected, perhaps by this request, whose first answer was lost: acknowledged records may be lost\n"
        in found.stderr
    )
    sent.clear()
    cluster.leaders[3] = -1
    (item,) = _json(_run(broker, *one, "--output", "json"))["items"]
    assert (item["status"], item["leader"]) == ("has_leader" if answered else "elected", 1)


@pytest.mark.spec("ADM-56")
def test_what_was_elected_is_told_though_the_leaders_cannot_be_read(broker: FakeBroker, clock: Clock) -> None:
    cluster = Leaderless(broker)

    def hide(partition: int) -> int:
        def late(_: object) -> None:
            clock.skip()

        broker.answers[metadata.API.key] = late
        return 0

    cluster.becomes = hide
    found = _run(broker, "--election-type", "unclean", "--topic", "t", "--force", "--output", "json")
    assert found.exit_code == 1 and [i["status"] for i in _json(found)["items"]] == ["elected"] * 5
    assert "the leaders could not be read: " in found.stderr


@pytest.mark.spec("ADM-49", "ADM-50")
def test_a_leader_that_is_dead_is_not_one_that_was_elected(broker: FakeBroker, waits: Waits, clock: Clock) -> None:
    cluster = Leaderless(broker)
    cluster.leaders = dict.fromkeys(range(5), 9)
    tell = broker.answers[metadata.API.key]

    def late(request: metadata.MetadataRequest) -> object:
        if waits.noted:
            clock.skip()
        return tell(request)

    def pending(_: int) -> int:
        broker.answers[metadata.API.key] = late
        return int(ErrorCode.REQUEST_TIMED_OUT)

    cluster.becomes = pending
    flags = ("--election-type", "unclean", "--topic", "t", "--partition", 3, "--force", "--timeout", 600)
    found = _run(broker, *flags, "--output", "json")
    assert found.exit_code == 1 and [i["status"] for i in _json(found)["items"]] == ["pending"]
