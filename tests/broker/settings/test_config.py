"""server.properties."""

import logging
from pathlib import Path

import pytest

from kafkatool.broker.settings.config import BrokerConfig, parse_super_users
from kafkatool.core.errors import ConfigError
from kafkatool.core.java_properties import parse_properties
from kafkatool.core.model.values import Endpoint


def config(**properties: str) -> BrokerConfig:
    given = {"zookeeper.connect": "zk:2181"} | {k.replace("_", "."): v for k, v in properties.items()}
    return BrokerConfig.from_properties(given)


@pytest.mark.spec("BRK-124", "Z-5")
def test_defaults_are_those_of_the_requirements() -> None:
    made = config()
    assert made.broker_id == -1
    assert made.listeners == (Endpoint("PLAINTEXT", "", 9092),)
    assert made.advertised_listeners == made.listeners
    assert made.inter_broker_listener_name == "PLAINTEXT"
    assert made.zookeeper_session_timeout_ms == made.zookeeper_connection_timeout_ms == 6000
    assert config(zookeeper_session_timeout_ms="9000").zookeeper_connection_timeout_ms == 9000
    assert made.unclean_leader_election_enable and not made.delete_topic_enable
    assert (made.num_network_threads, made.num_io_threads, made.queued_max_requests) == (3, 8, 500)
    assert made.log_retention_ms == made.log_roll_ms == 7 * 24 * 3_600_000
    assert made.log_dirs == (Path("/tmp/kafka-logs"),)
    assert made.replica_lag_time_max_ms == 10_000
    assert made.message_max_bytes == 1_000_012


@pytest.mark.spec("SEC-63", "SEC-95", "SEC-96", "SEC-97")
def test_the_limits_of_who_comes_are_those_of_the_requirements() -> None:
    made = config()
    assert (made.max_connections, made.max_connections_per_ip) == (2_147_483_647, 2_147_483_647)
    assert (made.sasl_server_max_receive_size, made.kt_max_unauthenticated_connections) == (524_288, 1000)
    assert made.kt_authentication_timeout_ms == 10_000
    with pytest.raises(ConfigError, match=r"kt\.authentication\.timeout\.ms"):
        config(kt_authentication_timeout_ms="99")


def test_the_finest_unit_given_wins_and_a_negative_one_means_no_limit() -> None:
    assert config(log_retention_hours="2").log_retention_ms == 7_200_000
    assert config(log_retention_hours="2", log_retention_minutes="3").log_retention_ms == 180_000
    assert config(log_retention_hours="2", log_retention_ms="5").log_retention_ms == 5
    assert config(log_retention_hours="-1").log_retention_ms == -1
    assert config(log_roll_hours="1").log_roll_ms == 3_600_000
    assert config(log_flush_scheduler_interval_ms="9").log_flush_interval_ms == 9


@pytest.mark.spec("BRK-120")
def test_listeners_in_every_spelling() -> None:
    protocols = {"listener_security_protocol_map": "client:PLAINTEXT,inner:PLAINTEXT"}
    two = config(
        listeners="client://:9092, INNER://[::1]:0",
        advertised_listeners="CLIENT://public:80,INNER://private:81",
        inter_broker_listener_name="inner",
        **protocols,
    )
    assert two.listeners == (Endpoint("CLIENT", "", 9092), Endpoint("INNER", "::1", 0))
    assert two.advertised_listeners == (Endpoint("CLIENT", "public", 80), Endpoint("INNER", "private", 81))
    assert two.inter_broker_listener_name == "INNER"
    old = config(host_name="h", port="1", advertised_host_name="a")
    assert old.listeners == (Endpoint("PLAINTEXT", "h", 1),)
    assert old.advertised_listeners == (Endpoint("PLAINTEXT", "a", 1),)


INTERNAL_VERSIONS = {
    "0.10.0": 2,
    "0.10.1": 3,
    "0.10.2": 1,
    "0.11.0": 3,
    "1.0": 1,
    "1.1": 1,
    "2.0": 2,
    "2.1": 3,
    "2.2": 2,
    "2.3": 2,
}
"""How many each release has, from IV0 on."""


@pytest.mark.spec("BRK-4")
@pytest.mark.parametrize(
    ("given", "meant"),
    [
        *[(release, release) for release in INTERNAL_VERSIONS],
        *[(f"{release}.{patch}", release) for release in INTERNAL_VERSIONS for patch in (0, 1, 3)],
        *[(f"{release}-IV{n}", release) for release, count in INTERNAL_VERSIONS.items() for n in range(count)],
    ],
)
def test_protocol_versions_are_normalised(given: str, meant: str) -> None:
    assert config(inter_broker_protocol_version=given).inter_broker_protocol_version == meant


@pytest.mark.spec("BRK-4")
@pytest.mark.parametrize("version", ["0.9.0", "0.8.2.2", "2.4", "2.8", "2.8-IV1", "3.0", "nonsense"])
def test_a_protocol_version_not_spoken_is_refused_with_the_reason(version: str) -> None:
    with pytest.raises(ConfigError, match=f"inter.broker.protocol.version={version} is not spoken"):
        config(inter_broker_protocol_version=version)


@pytest.mark.spec("BRK-3")
@pytest.mark.parametrize(
    ("protocol", "versions"),
    [
        ("0.10.0", (2, None, 0, 1, 0, 2, 0)),
        ("0.10.1", (3, None, 1, 1, 0, 2, 0)),
        ("0.10.2", (3, None, 1, 1, 0, 3, 0)),
        ("0.11.0", (5, 0, 2, 1, 0, 3, 0)),
        ("1.0", (5, 0, 2, 1, 1, 4, 0)),
        ("1.1", (7, 0, 2, 1, 1, 4, 0)),
        ("2.0", (8, 1, 3, 1, 1, 4, 0)),
        ("2.1", (10, 2, 4, 1, 1, 4, 0)),
        ("2.2", (10, 2, 5, 2, 2, 5, 1)),
        ("2.3", (11, 3, 5, 2, 2, 5, 1)),
    ],
)
def test_versions_sent_are_those_of_table_b(protocol: str, versions: tuple[int | None, ...]) -> None:
    assert config(inter_broker_protocol_version=protocol).protocol_versions == versions


@pytest.mark.spec("BRK-3")
def test_without_a_setting_the_newest_protocol_is_spoken() -> None:
    assert config().protocol_versions == config(inter_broker_protocol_version="2.3").protocol_versions
    assert config(inter_broker_protocol_version="2.1").speaks("2.0")
    assert not config(inter_broker_protocol_version="2.1").speaks("2.2")


@pytest.mark.parametrize(
    ("properties", "message"),
    [
        ({"num.io.threads": "many"}, "num.io.threads=many: expected a number"),
        ({"num.io.threads": "0"}, "num.io.threads=0: must be between 1"),
        ({"delete.topic.enable": "yes"}, "delete.topic.enable=yes: expected true or false"),
        ({"compression.type": "rar"}, "compression.type=rar: must be one of producer"),
        ({"log.cleanup.policy": "burn"}, "log.cleanup.policy=burn"),
        ({"listeners": "nowhere"}, "listeners: 'nowhere' is not of the form"),
        ({"listeners": "SSL://:1"}, "security.inter.broker.protocol=PLAINTEXT: no advertised listener"),
        ({"listeners": "A://:1"}, "no entry in listener.security.protocol.map"),
        ({"max.connections.per.ip.overrides": "h"}, "'h' is not host:number"),
        ({"zookeeper.connect": ""}, "zookeeper.connect is required"),
        ({"inter.broker.listener.name": "INNER"}, "no advertised listener of that name for the brokers"),
    ],
)
def test_a_setting_that_cannot_be_used_is_named_with_the_reason(properties: dict[str, str], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        BrokerConfig.from_properties({"zookeeper.connect": "zk:2181"} | properties)


@pytest.mark.spec("SEC-76", "SEC-80")
def test_both_of_kafkas_names_mean_the_one_authorizer_and_none_is_the_default() -> None:
    assert (config().authorizer_class_name, config().super_users) == ("", "")
    assert config().allow_everyone_if_no_acl_found is False
    for name in ("kafka.security.auth.SimpleAclAuthorizer", "kafka.security.authorizer.AclAuthorizer", ""):
        assert config(authorizer_class_name=name).authorizer_class_name == name
    assert config(authorizer_zookeeper_url="zk:2181")


@pytest.mark.spec("SEC-76")
@pytest.mark.parametrize(
    ("properties", "message"),
    [
        ({"authorizer.class.name": "com.example.Mine"}, "authorizer.class.name=com.example.Mine: must be one of"),
        ({"authorizer.class.name": "AclAuthorizer"}, "authorizer.class.name=AclAuthorizer: must be one of"),
        ({"authorizer.zookeeper.url": "other:2181"}, "ACLs are read from zookeeper.connect alone"),
        ({"super.users": "User:a;admin"}, "'admin' is not of the form Type:name"),
        ({"super.users": "User:"}, "'User:' is not of the form Type:name"),
        ({"super.users": ":admin"}, "':admin' is not of the form Type:name"),
    ],
    ids=str,
)
def test_rights_that_cannot_be_kept_refuse_the_start(properties: dict[str, str], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        BrokerConfig.from_properties({"zookeeper.connect": "zk:2181"} | properties)


@pytest.mark.spec("SEC-76")
def test_super_users_are_told_apart_by_semicolons_and_the_first_colon_ends_a_type() -> None:
    told = " User:admin ;User:CN=admin,O=x:y; ;Group:ops"
    assert parse_super_users(told) == {"User:admin", "User:CN=admin,O=x:y", "Group:ops"}
    assert parse_super_users("") == frozenset()


def test_unknown_names_are_accepted_with_a_warning(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        config(metric_reporters="x")
    assert "unknown property metric.reporters is ignored" in caplog.text


def test_a_file_is_read_and_overrides_win(tmp_path: Path) -> None:
    path = tmp_path / "server.properties"
    path.write_text("# mine\nbroker.id=1\nzookeeper.connect = zk:2181/a\nlog.dirs=/a,\\\n   /b\n")
    made = BrokerConfig.load(path, {"broker.id": "7"})
    assert (made.broker_id, made.zookeeper_connect, made.log_dirs) == (7, "zk:2181/a", (Path("/a"), Path("/b")))
    with pytest.raises(ConfigError, match="cannot read"):
        BrokerConfig.load(tmp_path / "none")


@pytest.mark.spec("SEC-33")
def test_properties_are_read_as_java_reads_them() -> None:
    text = "! note\n#m=1\n  a : 1\nm n o\nb=x\\\n   y\nc\nd\\ e=f\\u0041\\n\nk=v=w\na=2\nlast=\\"
    expected = {"a": "2", "b": "xy", "c": "", "d e": "fA", "k": "v=w", "m": "n o", "last": ""}
    assert parse_properties(text) == expected
