"""DescribeConfigs, AlterConfigs and IncrementalAlterConfigs against a real ZooKeeper, in each version."""

from collections.abc import Iterator
from typing import Any

import pytest

from kafkatool.broker.administration.configs import ConfigAdmin
from kafkatool.broker.handlers.call import load_handlers
from kafkatool.broker.registration.registration import make_base_paths
from kafkatool.broker.settings.config import BrokerConfig
from kafkatool.broker.settings.description import DYNAMIC_SETTINGS
from kafkatool.core.model.topic_configs import CONFIGS
from kafkatool.core.operations.topics.creation import create_topic
from kafkatool.core.protocol.messages import alter_configs, describe_configs, incremental_alter_configs
from kafkatool.core.zookeeper.session import SetData, ZooKeeper
from kafkatool.core.zookeeper.znodes import ConfigChangeZnode, ConfigZnode
from tests.broker.handlers.served import Client, broker_of, handler_context

SERVED = {key: s for key, s in load_handlers().items() if key in (32, 33, 44)}
TOPIC, BROKER = 2, 4
SET, DELETE, APPEND, SUBTRACT = range(4)
WORD = "word-41"
SECRETS = {"ssl.keystore.password": WORD, "listener.name.x.plain.sasl.jaas.config": WORD, "some.plugin.token": WORD}


@pytest.fixture
def client(zk: ZooKeeper) -> Iterator[Client]:
    make_base_paths(zk)
    create_topic(zk, "t", {0: (1,)}, {"retention.ms": "5000"})
    properties = {
        "zookeeper.connect": "zk:2181/kafka",
        "broker.id": "1",
        "log.retention.hours": "2",
        "log.segment.bytes": "1000000",
        "listeners": "PLAINTEXT://127.0.0.1:9092",
        **SECRETS,
    }
    config = BrokerConfig.from_properties(properties)
    with broker_of(SERVED, handler_context(config_admin=ConfigAdmin(zk, config, 1))) as made:
        yield made


def describe(
    client: Client,
    kind: int,
    name: str,
    keys: list[str] | None = None,
    version: int = 2,
    *,
    synonyms: bool = False,
    documentation: bool = False,
) -> Any:
    resource = describe_configs.DescribeConfigsResource(resource_type=kind, resource_name=name, configuration_keys=keys)
    request = describe_configs.DescribeConfigsRequest(
        resources=[resource], include_synonyms=synonyms, include_documentation=documentation
    )
    (result,) = client.call(describe_configs.API, version, request).results
    assert (result.resource_type, result.resource_name) == (kind, name)
    return result


def change(client: Client, kind: int, name: str, *ops: tuple[str, int, str | None], validate: bool = False) -> int:
    resource = incremental_alter_configs.IncrementalAlterConfigsResource(
        resource_type=kind,
        resource_name=name,
        configs=[incremental_alter_configs.ConfigOperation(name=n, config_operation=op, value=v) for n, op, v in ops],
    )
    request = incremental_alter_configs.IncrementalAlterConfigsRequest(resources=[resource], validate_only=validate)
    (result,) = client.call(incremental_alter_configs.API, 0, request).responses
    assert (result.resource_type, result.resource_name) == (kind, name)
    assert (result.error_message is None) == (result.error_code == 0)
    return int(result.error_code)


def replace(
    client: Client, kind: int, name: str, values: dict[str, str | None], version: int = 1, *, validate: bool = False
) -> int:
    resource = alter_configs.AlterConfigsResource(
        resource_type=kind,
        resource_name=name,
        configs=[alter_configs.AlterableConfig(name=n, value=v) for n, v in values.items()],
    )
    request = alter_configs.AlterConfigsRequest(resources=[resource], validate_only=validate)
    (result,) = client.call(alter_configs.API, version, request).resources
    return int(result.error_code)


def stored(zk: ZooKeeper, kind: str = "topics", name: str = "t") -> dict[str, str]:
    path = ConfigZnode.path(kind, name)
    node = zk.get(path)
    return ConfigZnode.decode(path, node.data) if node else {}


def notifications(zk: ZooKeeper) -> list[str]:
    children = sorted(zk.children(ConfigChangeZnode.PATH) or [])
    nodes = zk.get_many([f"{ConfigChangeZnode.PATH}/{child}" for child in children])
    return [entity for node in nodes if node is not None and (entity := ConfigChangeZnode.decode(node.data))]


# --- describe --------------------------------------------------------------------------------------------------


@pytest.mark.spec("BRK-162", "BRK-125", "ADM-82")
@pytest.mark.parametrize("version", range(5))
def test_a_topics_settings_are_its_own_or_the_brokers(client: Client, version: int) -> None:
    result = describe(client, TOPIC, "t", version=version)
    assert (result.error_code, result.error_message) == (0, None)
    entries = {e.name: e for e in result.configs}
    assert sorted(entries) == sorted(CONFIGS)
    assert not any(e.read_only or e.is_sensitive for e in result.configs)
    values = {name: entries[name].value for name in ("retention.ms", "segment.bytes", "cleanup.policy", "preallocate")}
    assert values == {
        "retention.ms": "5000",
        "segment.bytes": "1000000",
        "cleanup.policy": "delete",
        "preallocate": "false",
    }
    if version == 0:
        assert [n for n, e in sorted(entries.items()) if not e.is_default] == ["retention.ms", "segment.bytes"]
    else:
        sources = {n: e.config_source for n, e in entries.items() if e.config_source != 5}
        assert sources == {"retention.ms": 1, "segment.bytes": 4}
        assert not any(e.synonyms for e in result.configs), "not asked for"


@pytest.mark.spec("BRK-162")
@pytest.mark.parametrize("version", [1, 2, 3, 4])
def test_synonyms_tell_where_a_value_would_come_from_next(client: Client, version: int) -> None:
    keys = ["retention.ms", "leader.replication.throttled.replicas"]
    result = describe(client, TOPIC, "t", keys, version, synonyms=True)
    by_name = {e.name: [(s.name, s.value, s.source) for s in e.synonyms] for e in result.configs}
    assert by_name == {
        "leader.replication.throttled.replicas": [],
        "retention.ms": [
            ("retention.ms", "5000", 1),
            ("log.retention.hours", "2", 4),
            ("log.retention.ms", "604800000", 5),
        ],
    }


@pytest.mark.spec("BRK-162")
def test_a_brokers_settings_are_those_in_force(client: Client, zk: ZooKeeper) -> None:
    entries = {e.name: e for e in describe(client, BROKER, "1").configs}
    assert "properties" not in entries
    assert (entries["log.retention.ms"].value, entries["log.retention.ms"].config_source) == ("7200000", 4)
    assert (entries["num.io.threads"].value, entries["num.io.threads"].config_source) == ("8", 5)
    assert entries["listeners"].value == "PLAINTEXT://127.0.0.1:9092"
    assert entries["broker.rack"].value is None
    rates = (
        "leader.replication.throttled.rate",
        "follower.replication.throttled.rate",
        "replica.alter.log.dirs.io.max.bytes.per.second",
    )
    assert {name for name, e in entries.items() if not e.read_only} == {*rates, *DYNAMIC_SETTINGS}
    assert {entries[name].value for name in rates} == {str(2**63 - 1)}
    assert change(client, BROKER, "1", ("leader.replication.throttled.rate", SET, "1000")) == 0
    assert stored(zk, "brokers", "1") == {"leader.replication.throttled.rate": "1000"}
    assert notifications(zk) == ["brokers/1"]
    (rate,) = describe(client, BROKER, "1", ["leader.replication.throttled.rate"], synonyms=True).configs
    assert (rate.value, rate.config_source) == ("1000", 2)
    assert [(s.value, s.source) for s in rate.synonyms] == [("1000", 2), (str(2**63 - 1), 5)]


@pytest.mark.spec("BRK-162")
@pytest.mark.parametrize("version", [3, 4])
def test_types_are_told_always_and_what_a_setting_is_for_when_asked(client: Client, version: int) -> None:
    boolean, string, whole, short, long, double, several = range(1, 8)
    of_topic = {e.name: e for e in describe(client, TOPIC, "t", version=version, documentation=True).configs}
    wanted = {
        "cleanup.policy": several,
        "compression.type": string,
        "min.cleanable.dirty.ratio": double,
        "preallocate": boolean,
        "retention.ms": long,
        "segment.bytes": whole,
    }
    assert {name: of_topic[name].config_type for name in wanted} == wanted
    of_broker = {e.name: e for e in describe(client, BROKER, "1", version=version, documentation=True).configs}
    wanted = {
        "broker.id": whole,
        "leader.replication.throttled.rate": long,
        "listeners": string,
        "log.cleaner.enable": boolean,
        "log.cleaner.io.max.bytes.per.second": double,
        "log.cleanup.policy": several,
        "log.retention.ms": long,
        "offsets.topic.replication.factor": short,
        "zookeeper.connect": string,
    }
    assert {name: of_broker[name].config_type for name in wanted} == wanted
    assert all(len(e.documentation) > 10 for e in (*of_topic.values(), *of_broker.values()))
    assert of_broker["log.segment.bytes"].documentation.startswith(of_topic["segment.bytes"].documentation)
    for kind, name in [(TOPIC, "t"), (BROKER, "1")]:
        assert {e.documentation for e in describe(client, kind, name, version=version).configs} == {None}


@pytest.mark.spec("BRK-162")
def test_what_cannot_be_described_says_why(client: Client) -> None:
    for kind, name, code in [
        (TOPIC, "gone", 3),
        (TOPIC, "bad name", 17),
        (BROKER, "2", 42),
        (BROKER, "x", 42),
        (3, "g", 42),
    ]:
        result = describe(client, kind, name)
        assert (result.error_code, result.configs) == (code, [])
        assert result.error_message
    assert describe(client, BROKER, "").configs == [], "nothing is set for all brokers"


@pytest.mark.spec("BRK-125", "BRK-162")
def test_of_a_brokers_own_setting_one_for_all_brokers_and_its_file_the_first_counts(
    client: Client, zk: ZooKeeper
) -> None:
    name = "log.segment.bytes"

    def sources(kind: int, resource: str, setting: str) -> list[tuple[str, str, int]]:
        (entry,) = describe(client, kind, resource, [setting], synonyms=True).configs
        found = [(s.name, s.value, s.source) for s in entry.synonyms]
        assert (entry.value, entry.config_source) == found[0][1:]
        return found

    in_file = [(name, "1000000", 4), (name, "1073741824", 5)]
    assert sources(BROKER, "1", name) == in_file
    assert change(client, BROKER, "", (name, SET, "2000000")) == 0
    assert sources(BROKER, "1", name) == [(name, "2000000", 3), *in_file]
    assert change(client, BROKER, "1", (name, SET, "3000000")) == 0
    for kind, resource, setting in [(BROKER, "1", name), (TOPIC, "t", "segment.bytes")]:
        assert sources(kind, resource, setting) == [(name, "3000000", 2), (name, "2000000", 3), *in_file]
    assert stored(zk, "brokers", "<default>") == {name: "2000000"}
    assert stored(zk, "brokers", "1") == {name: "3000000"}
    assert notifications(zk) == ["brokers/<default>", "brokers/1"]
    assert [(e.name, e.value, e.config_source) for e in describe(client, BROKER, "").configs] == [(name, "2000000", 3)]
    assert change(client, BROKER, "1", (name, DELETE, None)) == 0
    assert replace(client, BROKER, "", {}) == 0
    assert sources(BROKER, "1", name) == in_file
    assert describe(client, BROKER, "").configs == []
    assert change(client, BROKER, "1", ("log.cleanup.policy", APPEND, "compact")) == 0
    assert stored(zk, "brokers", "1") == {"log.cleanup.policy": "delete,compact"}


# --- change ----------------------------------------------------------------------------------------------------


@pytest.mark.spec("BRK-125", "Z-26")
@pytest.mark.parametrize("version", [0, 1])
def test_a_topic_gets_exactly_the_settings_named(client: Client, zk: ZooKeeper, version: int) -> None:
    wanted: dict[str, str | None] = {"segment.ms": "7000", "cleanup.policy": "compact"}
    assert replace(client, TOPIC, "t", wanted, version, validate=True) == 0
    assert (stored(zk), notifications(zk)) == ({"retention.ms": "5000"}, [])
    assert replace(client, TOPIC, "t", wanted, version) == 0
    assert (stored(zk), notifications(zk)) == (wanted, ["topics/t"])
    (told,) = zk.children(ConfigChangeZnode.PATH) or []
    entity, notification = zk.get_many([ConfigZnode.path("topics", "t"), f"{ConfigChangeZnode.PATH}/{told}"])
    assert entity and notification and entity.mzxid < notification.czxid, "the entity first"
    for values, code in [({"no.such": "1"}, 40), ({"segment.ms": "x"}, 42), ({"segment.ms": None}, 42)]:
        assert replace(client, TOPIC, "t", values, version) == code  # type: ignore[arg-type]
    assert replace(client, TOPIC, "gone", wanted, version) == 3
    assert (stored(zk), notifications(zk)) == (wanted, ["topics/t"])


@pytest.mark.spec("BRK-125", "Z-26")
def test_single_settings_are_set_and_deleted_and_the_others_stay(client: Client, zk: ZooKeeper) -> None:
    ops = (("segment.ms", SET, "7000"), ("retention.ms", DELETE, None))
    assert change(client, TOPIC, "t", *ops, validate=True) == 0
    assert stored(zk) == {"retention.ms": "5000"}
    assert change(client, TOPIC, "t", *ops) == 0
    assert (stored(zk), notifications(zk)) == ({"segment.ms": "7000"}, ["topics/t"])
    assert change(client, TOPIC, "t", ("retention.ms", DELETE, None)) == 0, "nothing to delete is no error"


@pytest.mark.spec("BRK-125")
def test_items_are_added_to_lists_and_taken_from_them(client: Client, zk: ZooKeeper) -> None:
    policy = "cleanup.policy"
    assert change(client, TOPIC, "t", (policy, APPEND, "compact")) == 0
    assert stored(zk)[policy] == "delete,compact", "beside the broker's default"
    assert change(client, TOPIC, "t", (policy, APPEND, "compact")) == 0
    assert change(client, TOPIC, "t", (policy, SUBTRACT, "delete")) == 0
    assert stored(zk)[policy] == "compact"
    throttled = "leader.replication.throttled.replicas"
    assert change(client, TOPIC, "t", (throttled, APPEND, "0:1,0:2"), (policy, APPEND, "delete")) == 0
    assert stored(zk) == {"retention.ms": "5000", policy: "compact,delete", throttled: "0:1,0:2"}
    assert change(client, TOPIC, "t", ("retention.ms", APPEND, "1")) == 42
    assert change(client, TOPIC, "t", ("retention.ms", SUBTRACT, "5000")) == 42


@pytest.mark.spec("BRK-125")
def test_a_change_that_is_refused_changes_nothing(client: Client, zk: ZooKeeper) -> None:
    refused: list[tuple[int, str, tuple[tuple[str, int, str | None], ...], int]] = [
        (TOPIC, "t", (("retention.ms", SET, "1"), ("retention.ms", DELETE, None)), 42),
        (TOPIC, "t", (("retention.ms", SET, None),), 42),
        (TOPIC, "t", (("retention.ms", SET, "1"), ("no.such", SET, "1")), 40),
        (TOPIC, "t", (("retention.ms", 9, "1"),), 42),
        (TOPIC, "t", (("min.insync.replicas", SET, "0"),), 42),
        (TOPIC, "gone", (("retention.ms", SET, "1"),), 3),
        (TOPIC, "", (("retention.ms", SET, "1"),), 17),
        (BROKER, "1", (("num.io.threads", SET, "1"),), 42),
        (BROKER, "1", (("leader.replication.throttled.rate", SET, "-1"),), 42),
        (BROKER, "2", (("leader.replication.throttled.rate", SET, "1"),), 42),
        (BROKER, "", (("leader.replication.throttled.rate", SET, "1"),), 42),
        (BROKER, "", (("log.retention.ms", SET, "long"),), 42),
        (BROKER, "1", (("log.retention.ms", SET, "-2"),), 42),
        (BROKER, "1", (("log.cleanup.policy", SET, "keep"),), 42),
        (BROKER, "1", (("log.retention.hours", SET, "1"),), 42),
        (8, "x", (("retention.ms", SET, "1"),), 42),
    ]
    for kind, name, ops, code in refused:
        assert change(client, kind, name, *ops) == code, (kind, name, ops)
    assert stored(zk) == {"retention.ms": "5000"}
    assert notifications(zk) == []


@pytest.mark.spec("BRK-125")
def test_a_bound_of_compaction_is_held_against_the_one_that_is_set_already(client: Client, zk: ZooKeeper) -> None:
    least, most = "min.compaction.lag.ms", "max.compaction.lag.ms"
    assert change(client, TOPIC, "t", (least, SET, "100")) == 0
    assert change(client, TOPIC, "t", (most, SET, "99")) == 42
    assert change(client, TOPIC, "t", (most, SET, "99"), (least, DELETE, None)) == 0
    assert stored(zk) == {"retention.ms": "5000", most: "99"}
    zk.commit([SetData(ConfigZnode.path("topics", "t"), b'{"version":1,"config":{"min.compaction.lag.ms":"x"}}', -1)])
    assert change(client, TOPIC, "t", (most, SET, "99")) == 0, "what was stored unchecked is not judged"


@pytest.mark.spec("BRK-125", "Z-26")
def test_what_a_newer_kafka_stored_is_kept_and_not_judged(client: Client, zk: ZooKeeper) -> None:
    path = ConfigZnode.path("topics", "t")
    zk.commit([SetData(path, b'{"version":1,"config":{"new.one":"x"},"beside":7}', -1)])
    assert change(client, TOPIC, "t", ("segment.ms", SET, "7000")) == 0
    node = zk.get(path)
    assert node is not None and b'"beside":7' in node.data
    assert stored(zk) == {"new.one": "x", "segment.ms": "7000"}
    zk.commit([SetData(path, b"rubbish", -1)])
    assert change(client, TOPIC, "t", ("segment.ms", SET, "8000")) == 0
    assert stored(zk) == {"segment.ms": "8000"}


@pytest.mark.spec("BRK-125", "Z-26")
def test_a_change_between_read_and_write_is_not_lost(
    client: Client, zk: ZooKeeper, monkeypatch: pytest.MonkeyPatch
) -> None:
    write, other = zk.set, iter([b'{"version":1,"config":{"segment.ms":"9000"}}'])

    def late(path: str, data: bytes, version: int) -> int:
        if theirs := next(other, None):
            write(path, theirs, -1)
        return write(path, data, version)

    monkeypatch.setattr(zk, "set", late)
    assert change(client, TOPIC, "t", ("flush.ms", SET, "1")) == 0
    assert stored(zk) == {"segment.ms": "9000", "flush.ms": "1"}


def test_zookeeper_is_asked_in_a_few_passes_however_many_topics_a_request_names(
    client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    passes = [0]
    one, many = ZooKeeper.get, ZooKeeper.get_many

    def counted(read: Any) -> Any:
        def reading(*args: Any, **options: Any) -> Any:
            passes[0] += 1
            return read(*args, **options)

        return reading

    monkeypatch.setattr(ZooKeeper, "get", counted(one))
    monkeypatch.setattr(ZooKeeper, "get_many", counted(many))
    names = ["t", *(f"gone-{n}" for n in range(2500)), "not a name"]
    described = describe_configs.DescribeConfigsRequest(
        resources=[describe_configs.DescribeConfigsResource(resource_type=TOPIC, resource_name=n) for n in names]
    )
    codes = [r.error_code for r in client.call(describe_configs.API, 2, described).results]
    assert codes == [0, *[3] * 2500, 17] and passes[0] < 10
    resources = [
        incremental_alter_configs.IncrementalAlterConfigsResource(resource_type=TOPIC, resource_name=n, configs=[])
        for n in names
    ]
    altered = incremental_alter_configs.IncrementalAlterConfigsRequest(resources=resources, validate_only=True)
    codes = [r.error_code for r in client.call(incremental_alter_configs.API, 0, altered).responses]
    assert codes == [0, *[3] * 2500, 17] and passes[0] < 20


@pytest.mark.spec("SEC-43")
@pytest.mark.parametrize("version", range(5))
def test_secrets_are_named_and_marked_and_their_values_told_to_nobody(client: Client, version: int) -> None:
    result = describe(client, BROKER, "1", version=version, synonyms=version >= 1)
    assert WORD not in str(result)
    found = {c.name: c for c in result.configs if c.is_sensitive}
    assert found.keys() == SECRETS.keys() and {c.value for c in found.values()} == {None}
    assert {s.value for c in found.values() for s in c.synonyms} <= {None}
    (asked,) = describe(client, BROKER, "1", ["some.plugin.token"], version).configs
    assert (asked.value, asked.is_sensitive, asked.read_only, asked.is_default) == (None, True, True, False)
