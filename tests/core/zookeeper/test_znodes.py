"""Every node's content: real Kafka's bytes are read, ours read back, bad content is named."""

import base64
import copy
import csv
import gzip
import re
from collections.abc import Callable, Iterator
from typing import Any
from urllib.parse import unquote

import orjson
import pytest

from kafkatool.core.errors import ZnodeFormatError
from kafkatool.core.model.values import BrokerInfo, Endpoint, LeaderAndIsr, TopicPartition
from kafkatool.core.zookeeper.znodes import (
    BrokerZnode,
    ClusterIdZnode,
    ConfigChangeZnode,
    ConfigZnode,
    ControllerEpochZnode,
    ControllerZnode,
    DeleteTopicsZnode,
    IsrChangeZnode,
    LogDirEventZnode,
    PartitionStateZnode,
    PartitionsZnode,
    PartitionZnode,
    PreferredElectionZnode,
    ProducerIdBlockZnode,
    ReassignmentZnode,
    SequenceIdZnode,
    TopicZnode,
)
from tests.paths import DATA

DATA = DATA / "znodes"
TP = TopicPartition("t", 0)


ODD_NAME = "CN=a b+c,O=ü-_.~!'()*:@&=%2F/日"
ODD_NAME_AS_JAVA_ENCODES_IT = (  # java.net.URLEncoder, UTF-8; then + is %20 and * is %2A
    "CN%3Da%20b%2Bc%2CO%3D%C3%BC-_.%7E%21%27%28%29%2A%3A%40%26%3D%252F%2F%E6%97%A5"
)


def captured(version: str) -> dict[str, bytes]:
    with gzip.open(DATA / f"{version}.tsv.gz", "rt") as f:
        return {row[0]: row[2].encode() if len(row) > 2 else b"" for row in csv.reader(f, delimiter="\t", quoting=3)}


@pytest.mark.parametrize("version", ["0.10.2.2", "1.1.1", "2.8.2"])
@pytest.mark.spec("Z-7", "Z-12", "Z-17", "Z-18", "Z-19", "Z-25", "Z-31", "Z-33")
def test_what_real_kafka_wrote_is_read_and_written_back_alike(version: str) -> None:
    nodes = captured(version)
    kinds = set()
    for path, data in nodes.items():
        match path.strip("/").split("/"):
            case ["brokers", "ids", broker_id]:
                info = BrokerZnode.decode(int(broker_id), data, 5)
                ours = orjson.loads(BrokerZnode.encode(info, 0))
                theirs = orjson.loads(data)
                assert info.endpoints[0].host == "127.0.0.1" and info.epoch == 5
                assert {k: ours[k] for k in ("host", "port", "endpoints")} == {
                    k: theirs[k] for k in ("host", "port", "endpoints")
                }
                kinds.add("broker")
            case ["brokers", "topics", topic]:
                znode = TopicZnode.decode(topic, data)
                assert orjson.loads(znode.encode()) == orjson.loads(data)
                kinds.add("topic")
            case ["brokers", "topics", topic, "partitions", p, "state"]:
                state = PartitionStateZnode.decode(TopicPartition(topic, int(p)), data)
                assert orjson.loads(PartitionStateZnode.encode(state)) == orjson.loads(data)
                kinds.add("state")
            case ["controller"]:
                assert ControllerZnode.decode(data) == orjson.loads(data)["brokerid"]
                kinds.add("controller")
            case ["controller_epoch"]:
                assert ControllerEpochZnode.encode(ControllerEpochZnode.decode(data)) == data
                kinds.add("epoch")
            case ["config", "topics", topic]:
                assert orjson.loads(ConfigZnode.encode(ConfigZnode.decode(path, data), data)) == orjson.loads(data)
                kinds.add("config")
            case ["config", "changes", _]:
                assert (ConfigChangeZnode.decode(data) or "").split("/")[0] in ("topics", "brokers")
                kinds.add("change")
            case ["cluster", "id"]:
                assert orjson.loads(ClusterIdZnode.encode(ClusterIdZnode.decode(data) or "")) == orjson.loads(data)
                kinds.add("cluster")
    assert kinds >= {"broker", "topic", "state", "controller", "epoch", "config", "cluster"}


@pytest.mark.spec("Z-7", "BRK-120")
@pytest.mark.parametrize(
    "text, expected",
    [
        (b'{"version":1,"host":"h","port":9}', (Endpoint("PLAINTEXT", "h", 9),)),
        (b'{"version":2,"endpoints":["PLAINTEXT://[::1]:9"]}', (Endpoint("PLAINTEXT", "::1", 9),)),
        (b'{"version":3,"endpoints":["SSL://:9"]}', (Endpoint("SSL", "", 9, "SSL"),)),
        (
            b'{"version":4,"host":null,"port":-1,"jmx_port":-1,"timestamp":"1","endpoints":["IN://h:9"],'
            b'"listener_security_protocol_map":{"IN":"SASL_SSL"},"rack":"r"}',
            (Endpoint("IN", "h", 9, "SASL_SSL"),),
        ),
        (
            b'{"version":5,"endpoints":["IN://h:9"],"listener_security_protocol_map":{"IN":"PLAINTEXT"},'
            b'"features":{"f":{"min_version":1,"max_version":2}}}',
            (Endpoint("IN", "h", 9),),
        ),
        (
            b'{"version":9,"endpoints":["in://h:1"],"listener_security_protocol_map":{"in":"SSL"},"new":1}',
            (Endpoint("IN", "h", 1, "SSL"),),
        ),
        (
            b'{"version":4,"endpoints":["in://h:1","Out://g:2"],'
            b'"listener_security_protocol_map":{"IN":"SSL","out":"SASL_SSL"}}',
            (Endpoint("IN", "h", 1, "SSL"), Endpoint("OUT", "g", 2, "SASL_SSL")),
        ),
    ],
)
def test_broker_versions(text: bytes, expected: tuple[Endpoint, ...]) -> None:
    found = BrokerZnode.decode(3, text)
    assert (found.id, found.endpoints, found.rack) == (3, expected, "r" if b'"rack"' in text else None)


@pytest.mark.spec("BRK-120")
def test_our_registration() -> None:
    endpoints = (Endpoint("IN", "h", 1, "SSL"), Endpoint("OUT", "::1", 2))
    assert orjson.loads(BrokerZnode.encode(BrokerInfo(1, endpoints, "r"), 5)) == {
        "version": 4,
        "host": "::1",
        "port": 2,
        "jmx_port": -1,
        "timestamp": "5",
        "endpoints": ["IN://h:1", "OUT://[::1]:2"],
        "listener_security_protocol_map": {"IN": "SSL", "OUT": "PLAINTEXT"},
        "rack": "r",
    }
    without_plain = orjson.loads(BrokerZnode.encode(BrokerInfo(1, (Endpoint("S", "h", 1, "SSL"),)), 5))
    assert (without_plain["host"], without_plain["port"], "rack" in without_plain) == (None, -1, False)


@pytest.mark.spec("Z-34", "Z-35")
@pytest.mark.parametrize("bad", [b"", b"x", b"[]", b"{}", b"5", b'{"version":"1"}', b'{"leader":true}'])
def test_bad_content_is_an_error_that_names_the_path(bad: bytes) -> None:
    with pytest.raises(ZnodeFormatError, match="/brokers/ids/1"):
        BrokerZnode.decode(1, bad)
    with pytest.raises(ZnodeFormatError, match="/brokers/topics/t/partitions/0/state"):
        PartitionStateZnode.decode(TP, bad)
    if bad:
        with pytest.raises(ZnodeFormatError, match="/admin/reassign_partitions"):
            ReassignmentZnode.decode(bad)
        with pytest.raises(ZnodeFormatError):
            ConfigChangeZnode.decode(bad)


PARTITION = {"topic": "t", "partition": 0}
REQUIRED: list[tuple[Callable[[bytes], object], dict[str, Any], object]] = [
    (  # a broker needs endpoints, or host and port
        lambda data: BrokerZnode.decode(1, data).endpoints,
        {"version": 2, "endpoints": ["PLAINTEXT://h:9"]},
        (Endpoint("PLAINTEXT", "h", 9),),
    ),
    (
        lambda data: BrokerZnode.decode(1, data).endpoints,
        {"version": 1, "host": "h", "port": 9},
        (Endpoint("PLAINTEXT", "h", 9),),
    ),
    (
        lambda data: PartitionStateZnode.decode(TP, data),
        {"leader": 1, "leader_epoch": 2, "isr": [1], "controller_epoch": 3},
        LeaderAndIsr(1, 2, (1,), 3),
    ),
    (ControllerZnode.decode, {"brokerid": 7}, 7),
    (IsrChangeZnode.decode, {"partitions": [PARTITION]}, [TP]),
    (PreferredElectionZnode.decode, {"partitions": [PARTITION]}, [TP]),
    (ReassignmentZnode.decode, {"partitions": [{**PARTITION, "replicas": [1]}]}, {TP: (1,)}),
    (LogDirEventZnode.decode, {"broker": 4}, 4),
    (ClusterIdZnode.decode, {"id": "x"}, "x"),
    (ProducerIdBlockZnode.decode, {"broker": 1, "block_start": "0", "block_end": "999"}, (1, 0, 999)),
]


@pytest.mark.spec("Z-34")
@pytest.mark.parametrize("key", ["version", "entity_path", "entity_type", "entity_name"])
def test_a_notification_of_changed_configs_needs_the_keys_of_its_version(key: str) -> None:
    for value in (
        {"version": 2, "entity_path": "topics/t"},
        {"version": 1, "entity_type": "topics", "entity_name": "t"},
    ):
        assert ConfigChangeZnode.decode(orjson.dumps(value)) == "topics/t"
        if value.pop(key, None) is not None:
            with pytest.raises(ZnodeFormatError):
                ConfigChangeZnode.decode(orjson.dumps(value))


@pytest.mark.spec("Z-33")
def test_a_notification_of_changed_configs_is_read_past_unknown_keys() -> None:
    """Only its version has a meaning (Z-28)."""
    data = b'{"version":2,"entity_path":"topics/t","unknown":{"deep":[{}]}}'
    assert ConfigChangeZnode.decode(data) == "topics/t"


def objects_in(value: Any) -> Iterator[dict[str, Any]]:
    """Return the object and all those below it."""
    if isinstance(value, dict):
        yield value
    for below in value.values() if isinstance(value, dict) else value if isinstance(value, list) else ():
        yield from objects_in(below)


@pytest.mark.spec("Z-33")
@pytest.mark.parametrize(("decode", "value", "expected"), REQUIRED)
def test_unknown_keys_at_any_depth_and_higher_versions_are_ignored(
    decode: Callable[[bytes], object], value: dict[str, Any], expected: object
) -> None:
    assert decode(orjson.dumps(value)) == expected
    newer = copy.deepcopy(value)
    for found in list(objects_in(newer)):
        found["unknown"] = {"deep": [1, {"x": None}]}
    if "host" not in value:
        newer["version"] = 99
    assert decode(orjson.dumps(newer)) == expected


@pytest.mark.spec("Z-34")
@pytest.mark.parametrize(("decode", "value", "expected"), REQUIRED)
def test_a_missing_required_key_is_bad_content(
    decode: Callable[[bytes], object], value: dict[str, Any], expected: object
) -> None:
    count = 0
    for index, found in enumerate(objects_in(value)):
        for key in found:
            less = copy.deepcopy(value)
            del list(objects_in(less))[index][key]
            count += 1
            with pytest.raises(ZnodeFormatError):
                decode(orjson.dumps(less))
    assert count


@pytest.mark.spec("Z-25", "Z-33")
def test_topics_and_configs_of_higher_versions_are_read_as_well() -> None:
    topic = b'{"version":99,"partitions":{"0":[1,2]},"unknown":{"deep":[{}]}}'
    assert TopicZnode.decode("t", topic).assignment == {0: (1, 2)}
    assert ConfigZnode.decode("/p", b'{"version":99,"config":{"a":"1"},"unknown":{"deep":[{}]}}') == {"a": "1"}
    with pytest.raises(ZnodeFormatError):  # the one exception, Z-28
        ConfigChangeZnode.decode(b'{"version":99,"entity_path":"topics/t"}')


@pytest.mark.spec("Z-36")
def test_a_node_without_content_asks_for_nothing() -> None:
    assert ReassignmentZnode.decode(b"") == {}
    assert PreferredElectionZnode.decode(b"") == IsrChangeZnode.decode(b"") == []
    assert ConfigZnode.decode("/p", b"") == {}
    assert ClusterIdZnode.decode(b"") is ConfigChangeZnode.decode(b"") is LogDirEventZnode.decode(b"") is None


@pytest.mark.spec("Z-12", "Z-13", "TOP-27X")
def test_rewriting_a_topic_keeps_what_it_does_not_mean_to_change() -> None:
    data = (
        b'{"version":3,"partitions":{"1":[2,1],"0":[1,2]},"topic_id":"x","adding_replicas":{"0":[4]},'
        b'"removing_replicas":{"0":[2]},"new":[1]}'
    )
    znode = TopicZnode.decode("t", data)
    assert list(znode.assignment.items()) == [(0, (1, 2)), (1, (2, 1))]
    changed = orjson.loads(znode.with_assignment({0: (3,)}).encode())
    assert changed == {**orjson.loads(data), "partitions": {"0": [3]}}
    assert TopicZnode.decode("t", b'{"version":1}').assignment == {}
    for version in (b"1", b"2", b"3", b"9", b'"x"', b"null"):
        odd = b'{"version":' + version + b',"partitions":{"0":[1,2]}}'
        assert TopicZnode.decode("t", odd).assignment == {0: (1, 2)}


@pytest.mark.spec("Z-17")
def test_no_leader_is_none_inside_and_minus_one_in_the_node() -> None:
    state = LeaderAndIsr(None, 4, (2,), 3)
    data = PartitionStateZnode.encode(state)
    assert orjson.loads(data)["leader"] == -1
    assert PartitionStateZnode.decode(TP, data) == state


@pytest.mark.spec("Z-16", "Z-33")
def test_state_is_rewritten_whole_with_five_keys() -> None:
    newer = b'{"controller_epoch":9,"leader":1,"version":2,"leader_epoch":4,"isr":[2,1],"leader_recovery_state":0}'
    assert orjson.loads(PartitionStateZnode.encode(PartitionStateZnode.decode(TP, newer))) == {
        "controller_epoch": 9,
        "leader": 1,
        "version": 1,
        "leader_epoch": 4,
        "isr": [2, 1],
    }


@pytest.mark.spec("Z-18")
def test_the_bare_integer_of_old_controllers() -> None:
    assert ControllerZnode.decode(b" 7 ") == 7
    assert ControllerZnode.decode(b'{"brokerid":3,"version":9,"timestamp":null,"new":[]}') == 3
    for bad in (b"seven", b"", b"{}", b"[]", b"null", b'{"brokerid":"3"}', b'{"version":1}'):
        with pytest.raises(ZnodeFormatError):
            ControllerZnode.decode(bad)


@pytest.mark.spec("Z-8", "Z-11", "Z-14", "Z-15", "Z-16", "Z-18", "Z-19", "Z-20", "Z-21", "Z-22")
def test_each_node_is_where_kafka_has_it() -> None:
    assert (BrokerZnode.path(7), SequenceIdZnode.PATH) == ("/brokers/ids/7", "/brokers/seqid")
    assert (ConfigZnode.path("topics", "t"), TopicZnode.path("t")) == ("/config/topics/t", "/brokers/topics/t")
    assert PartitionsZnode.path("t") == "/brokers/topics/t/partitions"
    assert PartitionZnode.path(TP) == "/brokers/topics/t/partitions/0"
    assert PartitionStateZnode.path(TP) == "/brokers/topics/t/partitions/0/state"
    assert (ControllerZnode.PATH, ControllerEpochZnode.PATH) == ("/controller", "/controller_epoch")
    assert DeleteTopicsZnode.topic_path("t") == "/admin/delete_topics/t"
    assert ReassignmentZnode.PATH == "/admin/reassign_partitions"
    assert PreferredElectionZnode.PATH == "/admin/preferred_replica_election"


@pytest.mark.spec("Z-8")
def test_a_brokers_id_is_the_name_of_its_node_and_its_incarnation_the_czxid() -> None:
    data = b'{"version":4,"id":9,"brokerid":9,"endpoints":["PLAINTEXT://h:1"],"jmx_port":-1,"timestamp":"1"}'
    info = BrokerZnode.decode(7, data, 41)
    assert (info.id, info.epoch) == (7, 41)
    assert BrokerZnode.path(7) == "/brokers/ids/7"
    assert not {"id", "brokerid"} & orjson.loads(BrokerZnode.encode(info, 0)).keys()


@pytest.mark.spec("Z-21", "Z-34")
@pytest.mark.parametrize("missing", ["topic", "partition", "replicas"])
def test_an_entry_of_a_reassignment_needs_its_three_keys(missing: str) -> None:
    entry = {"topic": "t", "partition": 0, "replicas": [1], "log_dirs": ["any"], "other": 1}
    assert ReassignmentZnode.decode(orjson.dumps({"partitions": [entry]})) == {TP: (1,)}
    del entry[missing]
    with pytest.raises(ZnodeFormatError, match="/admin/reassign_partitions"):
        ReassignmentZnode.decode(orjson.dumps({"partitions": [entry]}))


@pytest.mark.spec("Z-21", "Z-22", "Z-30", "Z-47")
def test_lists_of_partitions() -> None:
    plan = {TopicPartition("t", 1): (3, 4), TopicPartition("a", 0): (1,)}
    assert ReassignmentZnode.decode(ReassignmentZnode.encode(plan)) == plan
    twice = (
        b'{"partitions":[{"topic":"t","partition":0,"replicas":[1],"log_dirs":["any"]},'
        b'{"topic":"t","partition":0,"replicas":[2]}]}'
    )
    assert ReassignmentZnode.decode(twice) == {TP: (2,)}
    for znode in (PreferredElectionZnode, IsrChangeZnode):
        assert znode.decode(znode.encode(plan)) == list(plan)
    assert PreferredElectionZnode.decode(b'{"partitions":[{"topic":"t","partition":0}]}') == [TP]
    assert LogDirEventZnode.decode(LogDirEventZnode.encode(4)) == 4
    assert LogDirEventZnode.decode(b'{"version":9,"broker":5,"event":7,"new":1}') == 5, "only the broker is read"
    assert orjson.loads(LogDirEventZnode.encode(4)) == {"version": 1, "broker": 4, "event": 1}
    assert orjson.loads(IsrChangeZnode.encode([TP])) == {
        "version": 1,
        "partitions": [{"topic": "t", "partition": 0}],
    }


@pytest.mark.spec("Z-24", "Z-25", "Z-26", "SEC-66")
def test_configs() -> None:
    assert ConfigZnode.path("users", "a b*c/ü") == "/config/users/a%20b%2Ac%2F%C3%BC"
    assert ConfigZnode.path("clients", "a+b") == "/config/clients/a%2Bb"
    for kind in ("users", "clients"):
        assert ConfigZnode.path(kind, "<default>") == f"/config/{kind}/<default>"
        encoded = ConfigZnode.path(kind, ODD_NAME)
        assert encoded == f"/config/{kind}/{ODD_NAME_AS_JAVA_ENCODES_IT}"
        assert unquote(encoded.rpartition("/")[2]) == ODD_NAME
    assert ConfigZnode.path("topics", "t") == "/config/topics/t"
    assert ConfigZnode.decode("/p", b'{"version":7,"config":{"a":"1","b":2,"c":true}}') == {
        "a": "1",
        "b": "2",
        "c": "true",
    }
    assert ConfigZnode.decode("/p", b"") == ConfigZnode.decode("/p", b"{}") == {}
    assert orjson.loads(ConfigZnode.encode({"a": "2"}, b'{"version":1,"config":{"x":"1"},"new":1}')) == {
        "version": 1,
        "config": {"a": "2"},
        "new": 1,
    }


@pytest.mark.spec("Z-27", "Z-28")
def test_config_changes_of_every_version() -> None:
    assert ConfigChangeZnode.decode(ConfigChangeZnode.encode("topics/t")) == "topics/t"
    assert ConfigChangeZnode.decode(b'{"version":1,"entity_type":"clients","entity_name":"c"}') == "clients/c"
    assert ConfigChangeZnode.decode(b'"t"') == "topics/t"
    for bad in (b'{"version":1,"entity_type":"users","entity_name":"c"}', b'{"version":3}', b"not json"):
        with pytest.raises(ZnodeFormatError):
            ConfigChangeZnode.decode(bad)


@pytest.mark.spec("Z-31", "BRK-163")
def test_cluster_id_and_producer_id_block() -> None:
    cluster_id = ClusterIdZnode.generate()
    assert re.fullmatch(r"[A-Za-z0-9_-]{22}", cluster_id), "base64 of 16 bytes, safe in URLs, without padding"
    assert len(base64.urlsafe_b64decode(cluster_id + "==")) == 16 and cluster_id != ClusterIdZnode.generate()
    assert orjson.loads(ClusterIdZnode.encode(cluster_id)) == {"version": "1", "id": cluster_id}
    assert ClusterIdZnode.decode(ClusterIdZnode.encode(cluster_id)) == cluster_id
    assert ProducerIdBlockZnode.decode(ProducerIdBlockZnode.encode(1, 0, 999)) == (1, 0, 999)
    with pytest.raises(ZnodeFormatError):
        ProducerIdBlockZnode.decode(b"{}")
