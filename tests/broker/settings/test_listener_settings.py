"""Properties of listeners, and which of them brokers use among themselves."""

import re
from pathlib import Path

import pytest

from kafkatool.broker.settings.config import BrokerConfig
from kafkatool.broker.settings.inter_broker import inter_broker_security, login_module
from kafkatool.broker.settings.listeners import listener_properties
from kafkatool.core.errors import ConfigError
from kafkatool.core.model.values import Endpoint

LISTENERS = {
    "zookeeper.connect": "none:1",
    "listeners": "INNER://127.0.0.1:0,OUTER://127.0.0.1:0",
    "listener.security.protocol.map": "INNER:SASL_PLAINTEXT,OUTER:PLAINTEXT,UNUSED:PLAINTEXT",
}
SCRAM = {
    "sasl.enabled.mechanisms": "SCRAM-SHA-256",
    "sasl.mechanism.inter.broker.protocol": "SCRAM-SHA-256",
    "listener.name.inner.scram-sha-256.sasl.jaas.config": (
        'org.apache.kafka.common.security.scram.ScramLoginModule required username="b" password="secret";'
    ),
}


@pytest.mark.spec("SEC-46")
def test_a_listener_sees_its_own_properties_before_those_of_all() -> None:
    given = {"ssl.client.auth": "none", "listener.name.inner.ssl.client.auth": "required", "a": "b"}
    assert listener_properties(given, "INNER") == {"ssl.client.auth": "required", "a": "b"}
    assert listener_properties(given, "OUTER") == {"ssl.client.auth": "none", "a": "b"}


@pytest.mark.spec("SEC-46")
def test_a_property_of_a_listener_that_is_not_there_is_warned_of(caplog: pytest.LogCaptureFixture) -> None:
    given = {
        "listener.name.gone.ssl.client.auth": "required",
        "listener.name.outer.max.connections": "5",
        "inter.broker.listener.name": "OUTER",
    }
    BrokerConfig.from_properties(LISTENERS | given)
    (line,) = [m for m in caplog.messages if "listener.name." in m]
    assert line == "listener.name.gone.ssl.client.auth is ignored: there is no listener GONE"


@pytest.mark.spec("SEC-47")
@pytest.mark.parametrize(
    ("given", "listener"),
    [
        ({"inter.broker.listener.name": "OUTER"}, "OUTER"),
        ({"inter.broker.listener.name": "outer"}, "OUTER"),
        ({"inter.broker.listener.name": "INNER", **SCRAM}, "INNER"),
        (
            {
                "security.inter.broker.protocol": "PLAINTEXT",
                "listeners": "PLAINTEXT://127.0.0.1:0",
                "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT",
            },
            "PLAINTEXT",
        ),
    ],
)
def test_brokers_use_the_listener_that_is_named_or_has_the_protocols_name(given: dict[str, str], listener: str) -> None:
    assert BrokerConfig.from_properties(LISTENERS | given).inter_broker_listener_name == listener


@pytest.mark.spec("SEC-47")
@pytest.mark.parametrize(
    ("given", "named"),
    [
        ({"inter.broker.listener.name": "OUTER", "security.inter.broker.protocol": "PLAINTEXT"}, "only one of them"),
        ({"inter.broker.listener.name": "UNUSED"}, "inter.broker.listener.name=UNUSED"),
        ({"inter.broker.listener.name": "NOWHERE"}, "inter.broker.listener.name=NOWHERE"),
        (
            {"inter.broker.listener.name": "OUTER", "advertised.listeners": "INNER://h:1"},
            "inter.broker.listener.name=OUTER",
        ),
        ({"security.inter.broker.protocol": "SSL"}, "security.inter.broker.protocol=SSL"),
        ({}, "security.inter.broker.protocol=PLAINTEXT"),
        (
            {"inter.broker.listener.name": "INNER", **SCRAM, "sasl.mechanism.inter.broker.protocol": ""},
            "sasl.mechanism.inter.broker.protocol=GSSAPI",
        ),
        (
            {"inter.broker.listener.name": "INNER", **SCRAM, "sasl.mechanism.inter.broker.protocol": "PLAIN"},
            "sasl.mechanism.inter.broker.protocol=PLAIN: must be one of sasl.enabled.mechanisms of INNER",
        ),
    ],
    ids=["both", "not bound", "not mapped", "not advertised", "no such", "default", "GSSAPI", "not enabled"],
)
def test_what_leaves_brokers_without_a_way_among_themselves_refuses_the_start(
    given: dict[str, str], named: str
) -> None:
    with pytest.raises(ConfigError) as refused:
        BrokerConfig.from_properties(LISTENERS | given)
    assert named in str(refused.value)


@pytest.mark.spec("SEC-51")
@pytest.mark.parametrize(
    "text", ["1", "1=", "x=User:a", "1=alice", "1=User:", "1=:a", "1=User:a;1=User:b", "-1=User:a"]
)
def test_principals_of_brokers_that_cannot_be_read_refuse_the_start(text: str) -> None:
    given = {"inter.broker.listener.name": "OUTER", "kt.inter.broker.principals": text}
    with pytest.raises(ConfigError, match=r"kt\.inter.broker.principals"):
        BrokerConfig.from_properties(LISTENERS | given)


@pytest.mark.spec("SEC-51")
def test_principals_of_brokers_are_read_by_id() -> None:
    given = {
        "inter.broker.listener.name": "OUTER",
        "kt.inter.broker.principals": " 1=User:CN=b1,O=x ; 22=User:b:2;",
    }
    config = BrokerConfig.from_properties(LISTENERS | given)
    assert config.kt_inter_broker_principals == {1: "User:CN=b1,O=x", 22: "User:b:2"}


@pytest.mark.spec("SEC-53")
def test_other_listeners_of_brokers_are_read_by_name() -> None:
    given = LISTENERS | {"inter.broker.listener.name": "OUTER"}
    assert BrokerConfig.from_properties(given).kt_inter_broker_also_on == frozenset()
    there = [one.listener for one in BrokerConfig.from_properties(given).listeners]
    also_on = {"kt.inter.broker.also.on": f" {there[0].lower()}, {there[-1]} "}
    assert BrokerConfig.from_properties(given | also_on).kt_inter_broker_also_on == {there[0], there[-1]}
    with pytest.raises(ConfigError, match=r"kt\.inter\.broker\.also\.on=NOWHERE: no listener NOWHERE; there are"):
        BrokerConfig.from_properties(given | {"kt.inter.broker.also.on": "NOWHERE"})


@pytest.mark.spec("SEC-71")
@pytest.mark.parametrize("prefix", ["", "listener.name.outer."])
@pytest.mark.parametrize(
    ("name", "default"),
    [
        ("principal.builder.class", "org.apache.kafka.common.security.authenticator.DefaultKafkaPrincipalBuilder"),
        ("sasl.kerberos.principal.to.local.rules", "DEFAULT"),
        ("ssl.engine.factory.class", ""),
        ("sasl.server.callback.handler.class", ""),
        ("sasl.login.callback.handler.class", ""),
        ("sasl.client.callback.handler.class", ""),
        ("plain.sasl.server.callback.handler.class", ""),
    ],
)
def test_what_would_decide_who_gets_in_and_is_not_run_here_refuses_the_start(
    prefix: str, name: str, default: str
) -> None:
    given = LISTENERS | {"inter.broker.listener.name": "OUTER"}
    with pytest.raises(ConfigError, match=f"^{re.escape(f'{prefix}{name}=com.example.Mine')} is not served"):
        BrokerConfig.from_properties(given | {f"{prefix}{name}": "com.example.Mine"})
    BrokerConfig.from_properties(given | {f"{prefix}{name}": default})


@pytest.mark.spec("SEC-64")
def test_users_and_own_login_are_the_listeners_own_else_its_sections_else_those_of_all(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def module(user: str) -> str:
        return f"x.PlainLoginModule required username=broker password=own user_{user}=geheim;"

    scram = "x.ScramLoginModule required username=scram password=own;"
    (file := tmp_path / "jaas").write_text(
        f"mine.KafkaServer {{ {module('one')} }};\nKafkaServer {{ {module('two')} {scram} }};\n"
    )
    named = {"kt.jaas.config": str(file)}
    own = {"listener.name.mine.plain.sasl.jaas.config": module("three")}
    for given, listener, user in (
        (named | own, "MINE", "user_three"),
        (named, "MINE", "user_one"),
        (named | own, "OTHER", "user_two"),
    ):
        assert user in login_module(given, listener, "PLAIN").options
    assert login_module(named, "MINE", "SCRAM-SHA-512").option("username") == "scram"
    monkeypatch.setenv("KAFKA_OPTS", f"-Xmx1g -Djava.security.auth.login.config={file}")
    assert "user_one" in login_module({}, "MINE", "PLAIN").options
    by_plain = {"sasl.mechanism.inter.broker.protocol": "PLAIN"}
    security = inter_broker_security(by_plain, Endpoint("MINE", "h", 1, "SASL_PLAINTEXT"))
    assert security is not None and security.login is not None
    assert (security.login.user, security.login.password.reveal()) == ("broker", "own")
    monkeypatch.delenv("KAFKA_OPTS")
    with pytest.raises(ConfigError, match=r"a section KafkaServer in the file of kt\.jaas\.config"):
        login_module({}, "MINE", "PLAIN")
