"""Every node's content: real Kafka's bytes are read, ours read back, bad content is named."""

import csv
import gzip

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
    IsrChangeZnode,
    LogDirEventZnode,
    PartitionStateZnode,
    PreferredElectionZnode,
    ProducerIdBlockZnode,
    ReassignmentZnode,
    TopicZnode,
)
from tests.paths import DATA

DATA = DATA / "znodes"
TP = TopicPartition("t", 0)


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
                assert ConfigChangeZnode.decode(data).split("/")[0] in ("topics", "brokers")
                kinds.add("change")
            case ["cluster", "id"]:
                assert orjson.loads(ClusterIdZnode.encode(ClusterIdZnode.decode(data))) == orjson.loads(data)
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
            b'{"version":9,"endpoints":["in://h:1"],"listener_security_protocol_map":{"in":"SSL"},"new":1}',
            (Endpoint("IN", "h", 1, "SSL"),),
        ),
    ],
)
def test_broker_versions(text: bytes, expected: tuple[Endpoint, ...]) -> None:
    assert BrokerZnode.decode(3, text).endpoints == expected


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
    with pytest.raises(ZnodeFormatError, match="/admin/reassign_partitions"):
        ReassignmentZnode.decode(bad)
    with pytest.raises(ZnodeFormatError):
        ConfigChangeZnode.decode(bad)


@pytest.mark.spec("Z-12", "Z-13")
def test_rewriting_a_topic_keeps_what_it_does_not_mean_to_change() -> None:
    data = b'{"version":3,"partitions":{"1":[2,1],"0":[1,2]},"topic_id":"x","adding_replicas":{"0":[4]},"new":[1]}'
    znode = TopicZnode.decode("t", data)
    assert list(znode.assignment.items()) == [(0, (1, 2)), (1, (2, 1))]
    changed = orjson.loads(znode.with_assignment({0: (3,)}).encode())
    assert changed == {**orjson.loads(data), "partitions": {"0": [3]}}
    assert TopicZnode.decode("t", b'{"version":1}').assignment == {}


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
    with pytest.raises(ZnodeFormatError):
        ControllerZnode.decode(b"seven")


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


@pytest.mark.spec("Z-24", "Z-25", "Z-26")
def test_configs() -> None:
    assert ConfigZnode.path("users", "a b*c/ü") == "/config/users/a%20b%2Ac%2F%C3%BC"
    assert ConfigZnode.path("users", "<default>") == "/config/users/<default>"
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
    assert len(cluster_id) == 22 and ClusterIdZnode.decode(ClusterIdZnode.encode(cluster_id)) == cluster_id
    assert ProducerIdBlockZnode.decode(ProducerIdBlockZnode.encode(1, 0, 999)) == (1, 0, 999)
    with pytest.raises(ZnodeFormatError):
        ProducerIdBlockZnode.decode(b"{}")
