"""``kt topics --bootstrap-server`` against a broker made of functions: what is asked, and what is said of the answer."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import orjson
import pytest
from click.testing import CliRunner, Result

from kafkatool.commands.main import kt
from kafkatool.core.model.uuids import parse_uuid, uuid_text
from kafkatool.core.protocol.codec.types import NO_UUID
from kafkatool.core.protocol.messages import (
    create_partitions,
    create_topics,
    delete_topics,
    describe_configs,
    incremental_alter_configs,
    metadata,
)
from kafkatool.core.protocol.messages import describe_topic_partitions as pages
from kafkatool.core.protocol.messages import list_partition_reassignments as listing
from kafkatool.core.protocol.messages.alter_configs import AlterConfigsResult
from kafkatool.core.protocol.messages.describe_configs import DescribeConfigsEntry, DescribeConfigsResult
from kafkatool.core.protocol.messages.error_codes import ErrorCode
from kafkatool.core.protocol.messages.metadata import MetadataResponsePartition, MetadataResponseTopic
from tests.commands.topics.runner import COLLISION, FAILED
from tests.core.client.fake_broker import FakeBroker

ID = bytes.fromhex("30d924949c71485485bebdf4c75a9ad0")
NEWEST = {
    create_topics.API: (0, 7),
    delete_topics.API: (0, 6),
    create_partitions.API: (0, 3),
    describe_configs.API: (0, 4),
    incremental_alter_configs.API: (0, 1),
    listing.API: (0, 0),
}


def _partition(number: int, leader: int, replicas: list[int], isr: list[int]) -> MetadataResponsePartition:
    return MetadataResponsePartition(
        partition=number, leader_id=leader, leader_epoch=7, replica_nodes=replicas, isr_nodes=isr
    )


def _topic(name: str, *partitions: MetadataResponsePartition, topic_id: bytes = ID) -> MetadataResponseTopic:
    return MetadataResponseTopic(topic=name, topic_id=topic_id, partitions=list(partitions))


@pytest.fixture
def broker() -> Iterator[FakeBroker]:
    """One broker, the controller, with a topic ``orders`` of which partition 1 moves from 2 to 3."""
    with FakeBroker(1, NEWEST) as found:
        orders = _topic("orders", _partition(1, 1, [1, 3, 2], [1, 2]), _partition(0, 1, [1, 2], [1]))
        _tell(found, orders)
        moving = listing.OngoingPartition(partition=1, replicas=[1, 3, 2], adding_replicas=[3], removing_replicas=[2])
        found.answers[listing.API.key] = lambda _: listing.ListPartitionReassignmentsResponse(
            topics=[listing.OngoingTopic(topic="orders", partitions=[moving])]
        )
        found.answers[describe_configs.API.key] = _configs
        yield found


def _tell(broker: FakeBroker, *topics: MetadataResponseTopic) -> None:
    def answer(request: metadata.MetadataRequest) -> object:
        wanted = None if request.topics is None else {t.topic for t in request.topics}
        return broker.metadata([t for t in topics if wanted is None or t.topic in wanted])

    broker.answers[metadata.API.key] = answer


def _configs(request: describe_configs.DescribeConfigsRequest) -> describe_configs.DescribeConfigsResponse:
    entries = [
        DescribeConfigsEntry(name="retention.ms", value="1", read_only=False, config_source=1),
        DescribeConfigsEntry(name="min.insync.replicas", value="2", read_only=False, config_source=4),
        DescribeConfigsEntry(name="segment.ms", value="9", read_only=False, config_source=5),
    ]
    return describe_configs.DescribeConfigsResponse(
        results=[
            DescribeConfigsResult(resource_type=2, resource_name=r.resource_name, configs=entries)
            for r in request.resources
        ]
    )


def _run(broker: FakeBroker, action: str, *args: object) -> Result:
    flags = ["--bootstrap-server", str(broker.address)]
    return CliRunner().invoke(kt, ["topics", action, *flags, *map(str, args)])


def _asked(broker: FakeBroker, api: str) -> list[tuple[int, object]]:
    return [(version, request) for name, version, request in broker.asked if name == api]


def _created(code: int = 0, message: str | None = None) -> object:
    result = create_topics.CreateTopicsResponseTopic(name="t", error_code=code, error_message=message)
    return create_topics.CreateTopicsResponse(topics=[result])


# --- list and describe -----------------------------------------------------------------------------------------


@pytest.mark.spec("ADM-31", "ADM-11", "ADM-18")
def test_names_are_listed_in_order_and_internal_ones_as_the_broker_says(broker: FakeBroker) -> None:
    internal = MetadataResponseTopic(topic="__own", topic_id=ID, is_internal=True, partitions=[])
    refused = MetadataResponseTopic(topic="hidden", error_code=ErrorCode.TOPIC_AUTHORIZATION_FAILED, partitions=[])
    _tell(broker, _topic("b"), internal, _topic("Z"), refused)
    assert _run(broker, "list").stdout == "Z\n__own\nb\n"
    assert _run(broker, "list", "--exclude-internal").stdout == "Z\nb\n"
    assert broker.client_ids == {"kt-topics"}
    items = orjson.loads(_run(broker, "list", "--output", "json").stdout)["items"]
    assert [(i["topic"], i["marked_for_deletion"]) for i in items] == [("Z", None), ("__own", None), ("b", None)]
    assert _run(broker, "list", "--output", "tsv").stdout.splitlines()[1].startswith("Z\t\t")
    lacking = _run(broker, "list", "--topic", "nowhere")
    assert (lacking.exit_code, lacking.stdout) == (1, "")
    assert lacking.stderr.startswith("kt: not permitted: Describe on topic hidden (broker 1 as User:ANONYMOUS): ")
    _tell(broker, _topic("b"))
    none = _run(broker, "list", "--topic", "nowhere")
    assert (none.exit_code, none.output) == (0, "")


@pytest.mark.spec("ADM-24", "ADM-18", "ADM-14")
def test_a_description_has_kafkas_words_and_what_moves(broker: FakeBroker) -> None:
    found = _run(broker, "describe")
    assert found.exit_code == 0
    assert found.stdout == (
        "Topic: orders\tTopicId: MNkklJxxSFSFvr30x1qa0A\tPartitionCount: 2\tReplicationFactor: 2"
        "\tConfigs: min.insync.replicas=2,retention.ms=1\n"
        "\tTopic: orders\tPartition: 0\tLeader: 1\tReplicas: 1,2\tIsr: 1\tElr: N/A\tLastKnownElr: N/A\n"
        "\tTopic: orders\tPartition: 1\tLeader: 1\tReplicas: 1,3,2\tIsr: 1,2"
        "\tAdding Replicas: 3\tRemoving Replicas: 2\tElr: N/A\tLastKnownElr: N/A\n"
    )
    (first, second) = orjson.loads(_run(broker, "describe", "--output", "json").stdout)["items"]
    assert first["controller_epoch"] is None and first["leader_epoch"] == 7 and first["topic_id"] == uuid_text(ID)
    assert first["adding_replicas"] is None and first["elr"] is None and first["under_replicated"]
    assert (second["adding_replicas"], second["removing_replicas"]) == ([3], [2]) and not second["under_replicated"]


@pytest.mark.spec("ADM-24", "ADM-14")
def test_the_factor_is_partition_0s_less_what_it_gains_and_what_brokers_do_not_tell_is_left_out(
    broker: FakeBroker,
) -> None:
    """Partition 0 gets a third replica, partition 1 has three and no leader; the topic has no id."""
    partitions = (_partition(0, 1, [1, 3, 2], [1, 2]), _partition(1, -1, [1, 2, 3], [1]))
    _tell(broker, _topic("orders", *partitions, topic_id=bytes(16)))
    moving = listing.OngoingPartition(partition=0, replicas=[1, 3, 2], adding_replicas=[3], removing_replicas=[])
    broker.answers[listing.API.key] = lambda _: listing.ListPartitionReassignmentsResponse(
        topics=[listing.OngoingTopic(topic="orders", partitions=[moving])]
    )
    header = "Topic: orders\tPartitionCount: 2\tReplicationFactor: 2\tConfigs: min.insync.replicas=2,retention.ms=1\n"
    assert _run(broker, "describe").stdout == (
        f"{header}\tTopic: orders\tPartition: 0\tLeader: 1\tReplicas: 1,3,2\tIsr: 1,2"
        "\tAdding Replicas: 3\tRemoving Replicas: \tElr: N/A\tLastKnownElr: N/A\n"
        "\tTopic: orders\tPartition: 1\tLeader: none\tReplicas: 1,2,3\tIsr: 1\tElr: N/A\tLastKnownElr: N/A\n"
    )
    assert _run(broker, "describe", "--topics-with-overrides").stdout == header
    broker.answers[describe_configs.API.key] = lambda request: describe_configs.DescribeConfigsResponse(
        results=[replace(found, configs=found.configs[1:]) for found in _configs(request).results]
    )
    of_brokers = _run(broker, "describe", "--topics-with-overrides").stdout
    assert of_brokers == header.replace(",retention.ms=1", ""), "what brokers set makes it one with overrides, too"


@pytest.mark.spec("ADM-24")
def test_one_that_only_loses_replicas_shows_both_lists(broker: FakeBroker) -> None:
    _tell(broker, _topic("orders", _partition(0, 1, [1, 2], [1, 2])))
    moving = listing.OngoingPartition(partition=0, replicas=[1, 2], adding_replicas=[], removing_replicas=[2])
    broker.answers[listing.API.key] = lambda _: listing.ListPartitionReassignmentsResponse(
        topics=[listing.OngoingTopic(topic="orders", partitions=[moving])]
    )
    assert _run(broker, "describe").stdout.splitlines()[1] == (
        "\tTopic: orders\tPartition: 0\tLeader: 1\tReplicas: 1,2\tIsr: 1,2"
        "\tAdding Replicas: \tRemoving Replicas: 2\tElr: N/A\tLastKnownElr: N/A"
    )


@pytest.mark.spec("ADM-28", "ADM-75")
@pytest.mark.parametrize(
    ("filters", "rows"),
    [
        (["--under-replicated-partitions"], [0]),
        (["--unavailable-partitions"], [2, 3]),
        (["--under-min-isr-partitions"], [0, 2, 3]),
        (["--at-min-isr-partitions"], [1, 3]),
        (["--under-replicated-partitions", "--unavailable-partitions"], [0, 2, 3]),
        (["--unavailable-partitions", "--at-min-isr-partitions"], [1, 2, 3]),
    ],
)
def test_a_row_that_any_filter_selects_is_shown_once(broker: FakeBroker, filters: list[str], rows: list[int]) -> None:
    partitions = (
        *(_partition(0, 1, [1, 2], [1]), _partition(1, 1, [1, 3, 2], [1, 2])),
        *(_partition(2, 9, [9, 1, 2], [9, 1, 2]), _partition(3, -1, [1, 2], [1, 2])),
    )
    _tell(broker, _topic("orders", *(p for p in partitions if p.partition != 2)), _topic("zero", partitions[2]))
    found = _run(broker, "describe", *filters).stdout
    shown = [int(line.split("Partition: ")[1].split("\t")[0]) for line in found.splitlines()]
    wanted = [r for r in rows if r != 2] + [r for r in rows if r == 2 and "min-isr" not in filters[0]]
    assert shown == wanted and "PartitionCount" not in found
    refused = _run(broker, "describe", *filters, "--topics-with-overrides")
    assert refused.exit_code == 2


@pytest.mark.spec("ADM-21", "ADM-24")
def test_eligible_leaders_come_page_by_page_and_a_circle_of_pages_is_an_error(broker: FakeBroker) -> None:
    broker.apis[pages.API] = (0, 0)

    def page(request: pages.DescribeTopicPartitionsRequest) -> object:
        number = request.cursor.partition_index if request.cursor else 0
        partition = pages.DescribedPartition(
            partition_index=number,
            leader_id=1,
            replica_nodes=[1],
            isr_nodes=[1],
            eligible_leader_replicas=[5, 6] if number == 0 else None,
            last_known_elr=[7] if number == 0 else [],
            offline_replicas=[],
        )
        topic = pages.DescribedTopic(name="orders", topic_id=ID, partitions=[partition])
        following = pages.Cursor(topic_name="orders", partition_index=1) if number == 0 else None
        return pages.DescribeTopicPartitionsResponse(topics=[topic], next_cursor=following)

    broker.answers[pages.API.key] = page
    found = _run(broker, "describe", "--partition-size-limit-per-response", "1").stdout
    assert "Elr: 5,6\tLastKnownElr: 7\n" in found and "Elr: N/A\tLastKnownElr: \n" in found
    by_id = _run(broker, "describe", "--topic-id", uuid_text(ID)).stdout
    assert by_id.count("Elr: N/A\tLastKnownElr: N/A\n") == 2, "for that they are not asked"
    requests = [r for _, r in _asked(broker, "DescribeTopicPartitions")]
    assert [r.response_partition_limit for r in requests] == [1, 1]  # type: ignore[attr-defined]
    broker.answers[pages.API.key] = lambda request: pages.DescribeTopicPartitionsResponse(
        topics=[], next_cursor=pages.Cursor(topic_name="orders", partition_index=0)
    )
    circle = _run(broker, "describe")
    assert circle.exit_code == 1 and "again: not all partitions can be described" in circle.stderr


@pytest.mark.spec("ADM-21")
def test_ten_thousand_partitions_are_one_metadata_and_five_pages(broker: FakeBroker) -> None:
    count, page_size = 10_000, 2000
    broker.apis[pages.API] = (0, 0)
    large = [
        metadata.MetadataResponsePartition(partition=p, leader_id=1, replica_nodes=[1], isr_nodes=[1])
        for p in range(count)
    ]
    _tell(broker, _topic("orders", *large))

    def page(request: pages.DescribeTopicPartitionsRequest) -> object:
        first = request.cursor.partition_index if request.cursor else 0
        end = first + request.response_partition_limit
        told = [
            pages.DescribedPartition(
                partition_index=p,
                leader_id=1,
                replica_nodes=[1],
                isr_nodes=[1],
                eligible_leader_replicas=[p],
                last_known_elr=[],
                offline_replicas=[],
            )
            for p in range(first, min(end, count))
        ]
        topic = pages.DescribedTopic(name="orders", topic_id=ID, partitions=told)
        more = pages.Cursor(topic_name="orders", partition_index=end) if end < count else None
        return pages.DescribeTopicPartitionsResponse(topics=[topic], next_cursor=more)

    broker.answers[pages.API.key] = page
    found = _run(broker, "describe")
    assert found.exit_code == 0, found.stderr
    rows = [line for line in found.stdout.splitlines() if line.startswith("\tTopic: orders\t")]
    assert [line.split("\t")[-2] for line in rows] == [f"Elr: {p}" for p in range(count)]
    requests = [r for _, r in _asked(broker, "DescribeTopicPartitions")]
    assert [r.response_partition_limit for r in requests] == [page_size] * 5  # type: ignore[attr-defined]
    in_full = [r for _, r in _asked(broker, "Metadata") if r.topics is None]  # type: ignore[attr-defined]
    assert len(in_full) == 1


@pytest.mark.spec("ADM-29", "ADM-14", "ADM-23")
def test_a_topic_is_described_by_its_id(broker: FakeBroker) -> None:
    other = parse_uuid("AMTj-ue2TESy1XyHQXqiJg")
    assert other is not None
    _tell(broker, _topic("orders"), _topic("other", topic_id=other))
    assert _run(broker, "describe", "--topic-id", uuid_text(other)).stdout.startswith("Topic: other\t")
    both = _run(broker, "describe", "--topic-id", uuid_text(other), "--topic", "orders")
    assert both.stdout.startswith("Topic: other\t") and "--topic-id goes before --topic" in both.stderr
    assert min(version for version, _ in _asked(broker, "Metadata")) >= 10, "older ones tell no ids"
    for zero in ("A" * 22, "A" * 21 + "B"):
        everything = _run(broker, "describe", "--topic-id", zero)
        assert (everything.exit_code, everything.stdout.count("PartitionCount")) == (0, 2)
    unknown = _run(broker, "describe", "--topic-id", "Zt-SZK4fR8m2lWm4r3dVkg")
    assert unknown.exit_code == 1
    assert unknown.stdout == f"{FAILED}TopicId 'Zt-SZK4fR8m2lWm4r3dVkg' does not exist as expected\n"
    gone = _run(broker, "describe", "--topic-id", "Zt-SZK4fR8m2lWm4r3dVkg", "--if-exists")
    assert (gone.exit_code, gone.output) == (0, "")
    assert _run(broker, "describe", "--topic-id", "short").exit_code == 2


# --- create ----------------------------------------------------------------------------------------------------


@pytest.mark.spec("ADM-25", "ADM-23")
def test_a_topic_is_created_with_what_was_said_and_the_clusters_defaults(broker: FakeBroker) -> None:
    broker.answers[create_topics.API.key] = lambda _: _created()
    for flags in (
        [],
        ["--partitions", 3],
        ["--replication-factor", 2, "--config", "a=b"],
        ["--replica-assignment", "1:2,2:1"],
        ["--partitions", 3, "--replication-factor", 2],
    ):
        found = _run(broker, "create", "--topic", "t", *flags)
        assert (found.exit_code, found.stdout) == (0, "Created topic t.\n")
    topics = [r.topics[0] for _, r in _asked(broker, "CreateTopics")]  # type: ignore[attr-defined]
    assert [(t.num_partitions, t.replication_factor) for t in topics] == [(-1, -1), (3, -1), (-1, 2), (-1, -1), (3, 2)]
    assert topics[4].assignments == []
    assert [(a.partition, a.broker_ids) for a in topics[3].assignments] == [(0, [1, 2]), (1, [2, 1])]
    assert [(c.name, c.value) for c in topics[2].configs] == [("a", "b")]


@pytest.mark.spec("ADM-25")
def test_kt_spreads_the_replicas_itself_where_it_is_told_how(broker: FakeBroker) -> None:
    broker.answers[create_topics.API.key] = lambda _: _created()
    with FakeBroker(2) as other:
        broker.knows = [broker, other]
        numbers = ["--partitions", 2, "--replication-factor", 2]
        for how in (["--disable-rack-aware"], ["--start-index", 1], ["--start-index", 0, "--replica-shift", 0]):
            assert _run(broker, "create", "--topic", "t", *numbers, *how).exit_code == 0
        topics = [r.topics[0] for _, r in _asked(broker, "CreateTopics")]  # type: ignore[attr-defined]
        assert [(t.num_partitions, t.replication_factor) for t in topics] == [(-1, -1)] * 3
        assert all({tuple(sorted(a.broker_ids)) for a in t.assignments} == {(1, 2)} for t in topics)
        spread = [[a.broker_ids for a in t.assignments] for t in topics[1:]]
        assert spread == [[[2, 1], [1, 2]], [[1, 2], [2, 1]]]
    both = _run(broker, "create", "--topic", "t", "--replica-assignment", "1:2", "--partitions", 1)
    assert (both.exit_code, both.stdout) == (2, "")
    assert """Option "[replica-assignment]" can't be used with option "[partitions]\"""" in both.stderr
    assert broker.count(create_topics.API) == 3


@pytest.mark.spec("ADM-25")
def test_racks_are_heeded_unless_they_are_not_to_be(broker: FakeBroker) -> None:
    broker.answers[create_topics.API.key] = lambda _: _created()
    racks = {1: "a", 2: "a", 3: "b", 4: "b"}

    def with_racks(_: object) -> object:
        told = broker.metadata([])
        brokers = [replace(told.brokers[0], node_id=b, rack=rack) for b, rack in racks.items()]
        return replace(told, brokers=brokers)

    broker.answers[metadata.API.key] = with_racks
    flags = ["--partitions", 8, "--replication-factor", 2, "--start-index", 0, "--replica-shift", 0]
    for more in ([], ["--disable-rack-aware"]):
        assert _run(broker, "create", "--topic", "t", *flags, *more).exit_code == 0
    aware, unaware = (
        [a.broker_ids for a in request.topics[0].assignments]  # type: ignore[attr-defined]
        for _, request in _asked(broker, "CreateTopics")
    )
    assert aware == [[1, 3], [3, 2], [2, 4], [4, 1], [1, 4], [3, 1], [2, 3], [4, 2]], "in each a broker of each rack"
    assert unaware[:4] == [[1, 2], [2, 3], [3, 4], [4, 1]]


@pytest.mark.spec("ADM-25")
def test_which_brokers_there_are_is_left_to_the_controller(broker: FakeBroker) -> None:
    broker.answers[create_topics.API.key] = lambda _: _created()
    for flags in (["--replica-assignment", "9:8"], ["--partitions", 1, "--replication-factor", 9]):
        assert _run(broker, "create", "--topic", "t", *flags).exit_code == 0
    assigned, numbers = (r.topics[0] for _, r in _asked(broker, "CreateTopics"))  # type: ignore[attr-defined]
    assert [a.broker_ids for a in assigned.assignments] == [[9, 8]]
    assert (numbers.num_partitions, numbers.replication_factor, numbers.assignments) == (1, 9, [])


@pytest.mark.spec("ADM-10", "ADM-25")
def test_a_broker_too_old_for_defaults_is_asked_for_nothing(broker: FakeBroker) -> None:
    broker.apis[create_topics.API] = (0, 3)
    found = _run(broker, "create", "--topic", "t", "--partitions", 1)
    assert found.exit_code == 1 and "kt topics needs CreateTopics 4; broker 1 has none" in found.stderr
    assert not _asked(broker, "CreateTopics")


@pytest.mark.spec("ADM-23")
@pytest.mark.parametrize(
    ("flags", "why"),
    [
        (["--partitions", 0], "The partitions must be greater than 0"),
        (["--replication-factor", 0], "The replication factor must be between 1 and 32767 inclusive"),
        (["--replication-factor", 32768], "The replication factor must be between 1 and 32767 inclusive"),
        (["--replica-assignment", "1:1"], "Partition replica lists may not contain duplicate entries: 1"),
        (["--replica-assignment", "1:2,3"], "Partition 1 has different replication factor: [3]"),
        (
            ["--config", "retention.ms"],
            'requirement failed: Invalid topic config: all configs to be added must be in the format "key=val".',
        ),
    ],
)
def test_what_needs_no_broker_is_refused_without_one(broker: FakeBroker, flags: list[object], why: str) -> None:
    found = _run(broker, "create", "--topic", "t", *flags)
    assert (found.exit_code, found.stdout) == (1, f"{FAILED}{why}\n")
    assert not broker.asked


@pytest.mark.spec("ADM-23", "ADM-56", "ADM-54")
def test_the_controllers_words_are_passed_on_after_the_warning_about_the_name(broker: FakeBroker) -> None:
    broker.answers[create_topics.API.key] = lambda _: _created(ErrorCode.INVALID_REPLICATION_FACTOR, "too large")
    found = _run(broker, "create", "--topic", "a.b", "--partitions", 1)
    assert (found.exit_code, found.stdout) == (1, f"{COLLISION}{FAILED}too large\n")
    broker.answers[create_topics.API.key] = lambda _: _created(ErrorCode.POLICY_VIOLATION)
    assert _run(broker, "create", "--topic", "t").stdout == f"{FAILED}POLICY_VIOLATION\n"
    broker.answers[create_topics.API.key] = lambda _: _created(ErrorCode.TOPIC_ALREADY_EXISTS, "there")
    assert _run(broker, "create", "--topic", "t").exit_code == 1
    exists = _run(broker, "create", "--topic", "t", "--if-not-exists")
    assert (exists.exit_code, exists.stdout) == (0, "")


@pytest.mark.spec("ADM-54")
@pytest.mark.parametrize(
    ("partitions", "factor", "config", "code"),
    [
        *((2, 1, "retention.ms=1", 0), (3, 1, "retention.ms=1", 1)),
        *((2, 2, "retention.ms=1", 1), (2, 1, "retention.ms=2", 1)),
    ],
)
def test_a_topic_there_after_a_lost_answer_is_the_one_asked_for_if_it_looks_like_it(
    broker: FakeBroker, partitions: int, factor: int, config: str, code: int
) -> None:
    _tell(broker, _topic("t", _partition(0, 1, [1], [1]), _partition(1, 1, [1], [1])))
    answers = iter([None, _created(ErrorCode.TOPIC_ALREADY_EXISTS)])
    broker.answers[create_topics.API.key] = lambda _: next(answers)
    flags = ["--partitions", partitions, "--replication-factor", factor, "--config", config]
    assert _run(broker, "create", "--topic", "t", *flags).exit_code == code
    assert broker.count(create_topics.API) == 2


@pytest.mark.spec("ADM-20")
def test_a_dry_run_tells_the_request_and_has_it_judged_alone(broker: FakeBroker) -> None:
    broker.answers[create_topics.API.key] = lambda _: _created()
    found = _run(broker, "create", "--topic", "t", "--replica-assignment", "2:1", "--config", "a=b", "--dry-run")
    target, number, api, version, fields = found.stdout.split(" ", 4)
    assert (target, number, api, version) == ("broker", "1", "CreateTopics", "7")
    assert list(orjson.loads(fields)) == ["topics", "timeout_ms", "validate_only"]
    (topic,) = orjson.loads(fields)["topics"]
    assert topic["assignments"] == [{"partition": 0, "broker_ids": [2, 1]}]
    ((_, asked),) = _asked(broker, "CreateTopics")
    assert asked.validate_only and asked.topics[0].name == "t"  # type: ignore[attr-defined]
    assert "nothing was changed; brokers were asked" in found.stderr
    broker.answers[create_topics.API.key] = lambda _: _created(ErrorCode.POLICY_VIOLATION, "too few replicas")
    refused = _run(broker, "create", "--topic", "t", "--partitions", 1, "--replication-factor", 1, "--dry-run")
    assert (refused.exit_code, refused.stdout) == (1, f"{FAILED}too few replicas\n")


@pytest.mark.spec("ADM-20")
def test_a_broker_that_cannot_judge_without_doing_it_is_not_asked(broker: FakeBroker) -> None:
    broker.apis[create_topics.API] = (0, 0)
    found = _run(broker, "create", "--topic", "t", "--partitions", 1, "--replication-factor", 1, "--dry-run")
    assert found.exit_code == 0 and "dry run: nothing was sent" in found.stderr, found.output
    assert not _asked(broker, "CreateTopics")


@pytest.mark.spec("ADM-20", "ADM-26", "ADM-27")
def test_a_dry_run_of_alter_tells_what_brokers_would_refuse(broker: FakeBroker) -> None:
    def judged(request: incremental_alter_configs.IncrementalAlterConfigsRequest) -> object:
        assert request.validate_only
        return incremental_alter_configs.IncrementalAlterConfigsResponse(
            responses=[AlterConfigsResult(resource_type=2, resource_name="orders", error_code=40, error_message="bad")]
        )

    broker.answers[incremental_alter_configs.API.key] = judged
    broker.answers[create_partitions.API.key] = lambda _: _grown()
    flags = ["--topic", "orders", "--partitions", 4, "--config", "a=b", "--dry-run"]
    found = _run(broker, "alter", *flags, "--output", "json")
    document = orjson.loads(found.stdout)
    assert found.exit_code == 1 and [e["message"] for e in document["errors"]] == ["bad"]
    assert [i["api"] for i in document["items"]] == ["IncrementalAlterConfigs", "CreatePartitions"]
    broker.answers[create_partitions.API.key] = lambda _: _grown(ErrorCode.INVALID_PARTITIONS)
    fewer = _run(broker, "alter", "--topic", "orders", "--partitions", 1, "--dry-run")
    assert (fewer.exit_code, fewer.stdout) == (1, f"{FAILED}no\n")
    assert all(request.validate_only for _, request in _asked(broker, "CreatePartitions"))  # type: ignore[attr-defined]


# --- alter and delete ------------------------------------------------------------------------------------------


def _grown(code: int = 0) -> object:
    result = create_partitions.CreatePartitionsResult(
        name="orders", error_code=code, error_message=(code and "no") or None
    )
    return create_partitions.CreatePartitionsResponse(results=[result])


@pytest.mark.spec("ADM-26", "ADM-54")
def test_partitions_are_added_by_their_new_number_and_the_existing_groups_are_skipped(broker: FakeBroker) -> None:
    broker.answers[create_partitions.API.key] = lambda _: _grown()
    flags = ["--topic", "orders", "--partitions", 4]
    assert _run(broker, "alter", *flags).stdout == ""
    _run(broker, "alter", *flags, "--replica-assignment", "1:2,1:2,3:1,2:3")
    plain, assigned = (r.topics[0] for _, r in _asked(broker, "CreatePartitions"))  # type: ignore[attr-defined]
    assert (plain.count, plain.assignments) == (4, None)
    assert [a.broker_ids for a in assigned.assignments] == [[3, 1], [2, 3]]
    few = _run(broker, "alter", *flags, "--replica-assignment", "1:2,1:2,3:1")
    assert few.exit_code == 1 and broker.count(create_partitions.API) == 2
    broker.answers[create_partitions.API.key] = lambda _: _grown(ErrorCode.INVALID_PARTITIONS)
    assert _run(broker, "alter", *flags).stdout == f"{FAILED}no\n"


@pytest.mark.spec("ADM-26")
def test_a_number_of_partitions_that_was_behind_is_read_again_once(broker: FakeBroker) -> None:
    def behind(request: create_partitions.CreatePartitionsRequest) -> object:
        _tell(broker, _topic("orders", *(_partition(i, 1, [1, 2], [1]) for i in range(3))))
        assignments = request.topics[0].assignments
        assert assignments is not None
        return _grown(0 if len(assignments) == 1 else ErrorCode.INVALID_REPLICA_ASSIGNMENT)

    broker.answers[create_partitions.API.key] = behind
    groups = "1:2,1:2,1:2,2:1"
    found = _run(broker, "alter", "--topic", "orders", "--partitions", 4, "--replica-assignment", groups)
    assert found.exit_code == 0 and broker.count(create_partitions.API) == 2
    refused = _run(broker, "alter", "--topic", "orders", "--partitions", 5, "--replica-assignment", f"{groups},1:2")
    assert refused.exit_code == 1 and broker.count(create_partitions.API) == 3


@pytest.mark.spec("ADM-54")
@pytest.mark.parametrize(
    ("wanted", "there", "code"), [(3, 3, 0), (3, 2, 1), (3, 4, 1)], ids=["as-asked", "refused", "another-was-faster"]
)
def test_a_growth_refused_after_a_lost_answer_was_carried_out_if_just_that_number_is_there(
    broker: FakeBroker, wanted: int, there: int, code: int
) -> None:
    def carried_out(_: object) -> object:
        if broker.count(create_partitions.API) > 1:
            return _grown(ErrorCode.INVALID_PARTITIONS)
        _tell(broker, _topic("orders", *(_partition(i, 1, [1, 2], [1]) for i in range(there))))
        return None

    broker.answers[create_partitions.API.key] = carried_out
    found = _run(broker, "alter", "--topic", "orders", "--partitions", wanted)
    assert (found.exit_code, found.stdout) == (code, f"{FAILED}no\n" if code else "")
    assert broker.count(create_partitions.API) == 2
    first_try = _run(broker, "alter", "--topic", "orders", "--partitions", wanted)
    assert (first_try.exit_code, first_try.stdout) == (1, f"{FAILED}no\n"), "there already: nothing was lost"


@pytest.mark.spec("ADM-27")
def test_configs_are_set_and_deleted_by_themselves(broker: FakeBroker) -> None:
    def done(request: incremental_alter_configs.IncrementalAlterConfigsRequest) -> object:
        results = [AlterConfigsResult(resource_type=2, resource_name=r.resource_name) for r in request.resources]
        return incremental_alter_configs.IncrementalAlterConfigsResponse(responses=results)

    broker.answers[incremental_alter_configs.API.key] = done
    found = _run(broker, "alter", "--topic", "orders", "--config", "a=1", "--config", "b=2", "--delete-config", "c")
    assert found.stdout == "Updated config for topic orders.\n"
    ((_, request),) = _asked(broker, "IncrementalAlterConfigs")
    (resource,) = request.resources  # type: ignore[attr-defined]
    assert (resource.resource_type, resource.resource_name) == (2, "orders")
    assert [(c.name, c.config_operation, c.value) for c in resource.configs] == [
        ("a", 0, "1"),
        ("b", 0, "2"),
        ("c", 1, None),
    ]


def _deleted(request: delete_topics.DeleteTopicsRequest) -> object:
    by_name = [delete_topics.DeleteTopicsResponseTopic(name=n) for n in request.topic_names]
    by_id = [delete_topics.DeleteTopicsResponseTopic(name=t.name, topic_id=t.topic_id) for t in request.topics]
    return delete_topics.DeleteTopicsResponse(topics=by_name + by_id)


@pytest.mark.spec("ADM-30", "ADM-23")
def test_topics_are_deleted_by_one_request_by_id_where_brokers_know_ids(broker: FakeBroker) -> None:
    other = bytes(range(16))
    _tell(broker, _topic("a.b"), _topic("a-b", topic_id=other))
    broker.answers[delete_topics.API.key] = _deleted
    assert _run(broker, "delete", "--topic", "a.b").stdout == ""
    both = _run(broker, "delete", "--topic", "a.b|a-b")
    assert both.exit_code == 1 and "need --force" in both.stderr
    assert _run(broker, "delete", "--topic", "a[.-]b", "--force").exit_code == 0
    broker.apis[delete_topics.API] = (0, 5)
    assert _run(broker, "delete", "--topic", "a.b").exit_code == 0
    asked = _asked(broker, "DeleteTopics")
    assert [v for v, _ in asked] == [6, 6, 5]
    ids = [[t.topic_id for t in r.topics] for _, r in asked]  # type: ignore[attr-defined]
    assert ids == [[ID], [other, ID], []]
    assert asked[2][1].topic_names == ["a.b"]  # type: ignore[attr-defined]
    missing = _run(broker, "delete", "--topic", "nowhere")
    assert (missing.exit_code, missing.stdout) == (1, f"{FAILED}Topic 'nowhere' does not exist as expected\n")
    assert _run(broker, "delete", "--topic", "nowhere", "--if-exists").exit_code == 0


@pytest.mark.spec("ADM-30")
@pytest.mark.parametrize("typed", ["a.b", "a.b,c.d"])
def test_what_can_be_a_name_is_no_regex_where_it_is_not_there_either(broker: FakeBroker, typed: str) -> None:
    _tell(broker, _topic("a-b"))
    assert _run(broker, "delete", "--topic", typed, "--if-exists", "--force").exit_code == 0
    found = _run(broker, "delete", "--topic", typed, "--force")
    assert found.exit_code == 1 and "does not exist as expected" in found.stdout
    assert not _asked(broker, "DeleteTopics")


@pytest.mark.spec("ADM-30", "TOP-19")
def test_no_pattern_deletes_what_coordinators_keep(broker: FakeBroker) -> None:
    kept = "__consumer_offsets"
    _tell(broker, _topic("a"), replace(_topic(kept, topic_id=bytes(range(16))), is_internal=True))
    broker.answers[delete_topics.API.key] = _deleted
    why = f"{FAILED}Topic {kept} is a kafka internal topic and is not allowed to be marked for deletion.\n"
    planned = _run(broker, "delete", "--topic", ".*", "--dry-run")
    assert planned.exit_code == 1 and planned.stdout.startswith(why) and kept not in planned.stdout.removeprefix(why)
    for typed in (("__consumer.*",), (kept,), ("_.*|x", "--force")):
        found = _run(broker, "delete", "--topic", *typed)
        assert (found.exit_code, found.stdout) == (1, why)
    assert not _asked(broker, "DeleteTopics")
    most = _run(broker, "delete", "--topic", ".*", "--force")
    assert (most.exit_code, most.stdout) == (1, why)
    assert "marked for deletion all the same: a\n" in most.stderr
    assert _run(broker, "delete", "--topic", kept, "--force").exit_code == 0
    ids = [[t.topic_id for t in r.topics] for _, r in _asked(broker, "DeleteTopics")]  # type: ignore[attr-defined]
    assert ids == [[ID], [bytes(range(16))]]


@pytest.mark.spec("ADM-30")
def test_topics_without_ids_are_named_in_the_list_of_the_version_that_takes_ids_too(broker: FakeBroker) -> None:
    _tell(broker, _topic("a", topic_id=NO_UUID), _topic("b"))
    broker.answers[delete_topics.API.key] = _deleted
    assert _run(broker, "delete", "--topic", "a|b", "--force").exit_code == 0
    ((version, asked),) = _asked(broker, "DeleteTopics")
    assert version == 6
    assert [(t.name, t.topic_id) for t in asked.topics] == [("a", NO_UUID), ("b", NO_UUID)]  # type: ignore[attr-defined]


@pytest.mark.spec("ADM-56")
def test_a_topic_that_the_answer_does_not_tell_of_is_not_known_to_be_deleted(broker: FakeBroker) -> None:
    _tell(broker, _topic("a"), _topic("b", topic_id=bytes(range(16))))
    told = delete_topics.DeleteTopicsResponseTopic(name=None, topic_id=ID)
    broker.answers[delete_topics.API.key] = lambda _: delete_topics.DeleteTopicsResponse(topics=[told])
    found = _run(broker, "delete", "--topic", "a|b", "--force")
    unknown = "the controller's answer does not tell of it; whether topic b was deleted is not known"
    assert (found.exit_code, found.stdout) == (1, f"{FAILED}{unknown}\n"), found.output
    assert "marked for deletion all the same: a\n" in found.stderr


@pytest.mark.spec("ADM-30", "ADM-56")
def test_each_topic_of_a_deletion_is_judged_by_itself(broker: FakeBroker) -> None:
    other = bytes(range(16))
    _tell(broker, _topic("a"), _topic("b", topic_id=other))

    def half(request: delete_topics.DeleteTopicsRequest) -> object:
        answer = _deleted(request)
        assert isinstance(answer, delete_topics.DeleteTopicsResponse)
        refused = delete_topics.DeleteTopicsResponseTopic(
            name="b",
            topic_id=other,
            error_code=ErrorCode.TOPIC_DELETION_DISABLED,
            error_message="It is disabled.",
        )
        return delete_topics.DeleteTopicsResponse(topics=[answer.topics[0], refused])

    broker.answers[delete_topics.API.key] = half
    found = _run(broker, "delete", "--topic", "a|b", "--force", "--output", "json")
    assert found.exit_code == 1
    document = orjson.loads(found.stdout)
    assert document["items"] == [{"topic": "a", "status": "marked"}]
    assert [(e["topic"], e["message"]) for e in document["errors"]] == [("b", "It is disabled.")]
    _tell(broker, _topic("a"))
    waited = _run(broker, "delete", "--topic", "a", "--wait", 0)
    assert waited.exit_code == 1 and "Topic a is still there" in waited.stderr


@pytest.mark.spec("ADM-30")
def test_a_deletion_is_waited_for_until_no_broker_knows_the_topic(broker: FakeBroker) -> None:
    gone = 0

    def deleted(request: delete_topics.DeleteTopicsRequest) -> object:
        _tell(broker)  # who is asked first has forgotten it at once
        return _deleted(request)

    with FakeBroker(2) as late:

        def told(request: metadata.MetadataRequest) -> object:
            nonlocal gone
            gone += 1
            return late.metadata([] if gone > 2 else [_topic("a")])

        broker.knows = late.knows = [broker, late]
        late.answers[metadata.API.key] = told
        _tell(broker, _topic("a"))
        broker.answers[delete_topics.API.key] = deleted
        found = _run(broker, "delete", "--topic", "a", "--wait", 600)
    assert (found.exit_code, found.stdout, gone) == (0, "", 3)


@pytest.mark.spec("ADM-54")
@pytest.mark.parametrize("by_id", [True, False], ids=["by-id", "by-name"])
def test_a_topic_that_is_gone_after_a_lost_answer_was_deleted_and_on_a_first_try_was_not_there(
    broker: FakeBroker, by_id: bool
) -> None:
    broker.apis[delete_topics.API] = (0, 6 if by_id else 5)
    _tell(broker, _topic("a"))
    code = ErrorCode.UNKNOWN_TOPIC_ID if by_id else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    gone = delete_topics.DeleteTopicsResponseTopic(name="a", topic_id=ID, error_code=code, error_message="gone")
    answers = iter([None, delete_topics.DeleteTopicsResponse(topics=[gone])])
    broker.answers[delete_topics.API.key] = lambda _: next(answers)
    found = _run(broker, "delete", "--topic", "a")
    assert (found.exit_code, found.stdout) == (0, "") and broker.count(delete_topics.API) == 2
    broker.answers[delete_topics.API.key] = lambda _: delete_topics.DeleteTopicsResponse(topics=[gone])
    first_try = _run(broker, "delete", "--topic", "a")
    assert (first_try.exit_code, first_try.stdout) == (1, f"{FAILED}gone\n")


@pytest.mark.spec("ADM-55")
def test_of_a_deletion_just_what_was_refused_for_its_quota_is_asked_for_again(broker: FakeBroker) -> None:
    other = bytes(range(16))
    _tell(broker, _topic("a"), _topic("b", topic_id=other))
    quota = ErrorCode.THROTTLING_QUOTA_EXCEEDED
    slow = delete_topics.DeleteTopicsResponseTopic(name=None, topic_id=other, error_code=quota)

    def limited(request: delete_topics.DeleteTopicsRequest) -> object:
        done = [delete_topics.DeleteTopicsResponseTopic(name="a", topic_id=ID)]
        return (
            delete_topics.DeleteTopicsResponse(topics=[*done, slow]) if len(request.topics) > 1 else _deleted(request)
        )

    broker.answers[delete_topics.API.key] = limited
    found = _run(broker, "delete", "--topic", "a|b", "--force")
    assert (found.exit_code, found.stdout) == (0, ""), found.output
    asked = [[t.topic_id for t in r.topics] for _, r in _asked(broker, "DeleteTopics")]  # type: ignore[attr-defined]
    assert asked == [[ID, other], [other]]


@pytest.fixture
def limited(broker: FakeBroker) -> FakeBroker:
    """It deletes ``a``, and refuses ``b`` for its quota as long as it is asked for both."""
    other = bytes(range(16))
    _tell(broker, _topic("a"), _topic("b", topic_id=other))
    done = delete_topics.DeleteTopicsResponseTopic(name="a", topic_id=ID)
    slow = delete_topics.DeleteTopicsResponseTopic(
        name=None, topic_id=other, error_code=ErrorCode.THROTTLING_QUOTA_EXCEEDED, error_message="too many"
    )
    answer = delete_topics.DeleteTopicsResponse(topics=[done, slow])
    broker.answers[delete_topics.API.key] = lambda r: answer if len(r.topics) > 1 else None
    return broker


@pytest.mark.spec("ADM-56", "ADM-57")
@pytest.mark.parametrize("form", ["text", "json"])
def test_a_deletion_asked_for_again_without_an_answer_is_unknown_and_what_was_done_is_told(
    limited: FakeBroker, tmp_path: Path, form: str
) -> None:
    (hurried := tmp_path / "client.properties").write_text("retries=0\n")
    found = _run(limited, "delete", "--topic", "a|b", "--force", "--command-config", hurried, "--output", form)
    assert found.exit_code == 1 and limited.count(delete_topics.API) == 2
    unknown = "closed the connection; whether topic b was deleted is not known"
    if form == "text":
        assert found.stdout.startswith(FAILED) and found.stdout.endswith(f"{unknown}\n")
        assert "marked for deletion all the same: a\n" in found.stderr
        return
    document = orjson.loads(found.stdout)
    assert document["items"] == [{"topic": "a", "status": "marked"}]
    assert [(e["topic"], e["error"]) for e in document["errors"]] == [("b", "unanswered")]
    assert document["errors"][0]["message"].endswith(unknown)


@pytest.mark.spec("ADM-56")
def test_a_deletion_that_is_never_answered_is_unknown_of_each_topic(limited: FakeBroker, tmp_path: Path) -> None:
    (hurried := tmp_path / "client.properties").write_text("retries=0\n")
    limited.answers[delete_topics.API.key] = lambda _: None
    found = _run(limited, "delete", "--topic", "a|b", "--force", "--command-config", hurried)
    ends = [line.rpartition("; ")[2] for line in found.stdout.splitlines()]
    assert ends == [f"whether topic {t} was deleted is not known" for t in "ab"] and found.exit_code == 1


@pytest.mark.spec("ADM-55", "ADM-57")
def test_a_quota_that_outlasts_the_time_is_told_as_what_refused_the_rest(limited: FakeBroker, tmp_path: Path) -> None:
    answer = limited.answers[delete_topics.API.key]

    def throttled(request: delete_topics.DeleteTopicsRequest) -> object:
        answered = answer(request)
        assert isinstance(answered, delete_topics.DeleteTopicsResponse)
        return replace(answered, throttle_time_ms=3_600_000)

    limited.answers[delete_topics.API.key] = throttled
    (patient := tmp_path / "client.properties").write_text("default.api.timeout.ms=1800000\n")
    found = _run(limited, "delete", "--topic", "a|b", "--force", "--command-config", patient)
    assert (found.exit_code, found.stdout) == (1, f"{FAILED}too many\n") and limited.count(delete_topics.API) == 1
    assert "marked for deletion all the same: a\n" in found.stderr
