"""What listeners are made of: what refuses the start, what is warned of, and who is told of as open to everybody."""

import re
import ssl
from collections.abc import Mapping
from pathlib import Path

import pytest

from kafkatool.broker.embedded.secured.certificates import Authority, Certificate, broker_names
from kafkatool.broker.handlers import api_versions
from kafkatool.broker.security.listeners import (
    ListenerSecurity,
    VersionAnswers,
    scram_mechanisms,
    secure_listeners,
    tell_of_expiries,
    warn_of_open_doors,
    warn_of_shared_places,
)
from kafkatool.broker.security.mechanisms import ScramUsers
from kafkatool.broker.settings.config import BrokerConfig
from kafkatool.core.errors import ConfigError
from tests.another_user import give_away, refusal
from tests.broker.network.raw_client import network_config

STORE = "store-secret"


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority.open(tmp_path_factory.mktemp("authority"))


@pytest.fixture(scope="module")
def broker(authority: Authority) -> Certificate:
    return authority.certificate("broker", "CN=broker", STORE, names=broker_names())


def keystore(certificate: Certificate) -> dict[str, str]:
    return {"ssl.keystore.location": str(certificate.keystore), "ssl.keystore.password": STORE}


def config_of(protocol: str, given: Mapping[str, str]) -> BrokerConfig:
    return network_config(
        **{
            "listeners": "MINE://127.0.0.1:0,PLAINTEXT://127.0.0.1:0",
            "listener.security.protocol.map": f"MINE:{protocol},PLAINTEXT:PLAINTEXT",
            "sasl.enabled.mechanisms": "SCRAM-SHA-256",
        }
        | dict(given)
    )


def made(config: BrokerConfig) -> ListenerSecurity:
    versions = VersionAnswers(api_versions.answer, api_versions.answer_newer)
    return secure_listeners(config, ScramUsers(scram_mechanisms(config)), versions)["MINE"]


@pytest.mark.spec("SEC-55")
@pytest.mark.parametrize("name", ["ssl.enabled.protocols", "listener.name.mine.ssl.enabled.protocols"])
def test_versions_of_tls_that_are_broken_refuse_the_start_beside_good_ones_too(name: str, broker: Certificate) -> None:
    with pytest.raises(ConfigError) as refused:
        made(config_of("SSL", keystore(broker) | {name: "TLSv1.3,TLSv1.1,TLSv1.2,SSLv3"}))
    assert str(refused.value) == "listener MINE: ssl.enabled.protocols: TLSv1.1, SSLv3 is broken: leave it out"


@pytest.mark.spec("SEC-6", "SEC-27")
def test_a_login_file_and_a_keystore_that_others_may_read_are_warned_of_and_another_users_refuses_the_start(
    broker: Certificate, tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    login, store = tmp_path / "jaas", tmp_path / "store.p12"
    login.write_text('KafkaServer { x.PlainLoginModule required username="a" password="geheim" user_a="geheim"; };')
    store.write_bytes(broker.keystore.read_bytes())
    files = {"kt.jaas.config": str(login), "ssl.keystore.location": str(store), "ssl.keystore.password": STORE}
    config = config_of("SASL_SSL", {"sasl.enabled.mechanisms": "PLAIN", **files})
    for file in (login, store):
        login.chmod(0o600)
        store.chmod(0o600)
        caplog.clear()
        made(config)
        assert not caplog.records
        file.chmod(0o640)
        made(config)
        (told,) = caplog.records
        assert told.levelname == "WARNING"
        assert told.getMessage() == f"{file} can be read by other users of this machine: chmod 600 {file}"
    for protocol, file in (("SASL_PLAINTEXT", login), ("SSL", store)):
        alone = config_of(protocol, {"sasl.enabled.mechanisms": "PLAIN", **files})
        give_away(file, monkeypatch)
        with pytest.raises(ConfigError, match=re.escape(refusal(file))):
            made(alone)


@pytest.mark.spec("SEC-54")
def test_what_cannot_be_used_refuses_the_start_by_property_and_listener(
    authority: Authority, broker: Certificate, tmp_path: Path
) -> None:
    damaged = tmp_path / "damaged.p12"
    damaged.write_bytes(broker.keystore.read_bytes()[:-40])
    other = authority.certificate("other", "CN=other", STORE)
    key, chain = other.key.read_text(), broker.certificate.read_text()
    refused: dict[str, tuple[dict[str, str], str]] = {
        "no keystore": ({}, "needs ssl.keystore.location"),
        "not there": ({"ssl.keystore.location": "/nowhere.p12"}, "ssl.keystore.location=/nowhere.p12: No such file"),
        "wrong password": ({**keystore(broker), "ssl.keystore.password": "x"}, f"location={broker.keystore}"),
        "damaged": ({**keystore(broker), "ssl.keystore.location": str(damaged)}, f"location={damaged}"),
        "key of another": (
            {"ssl.keystore.key": key, "ssl.keystore.certificate.chain": chain},
            "the key of the keystore is not its certificate's",
        ),
        "no chain": ({"ssl.keystore.key": key}, "ssl.keystore.certificate.chain belong together"),
        "truststore": (
            {**keystore(broker), "ssl.truststore.location": str(damaged), "ssl.truststore.password": STORE},
            f"ssl.truststore.location={damaged}",
        ),
        "client auth": ({**keystore(broker), "ssl.client.auth": "always"}, "ssl.client.auth=always"),
    }
    for case, (given, told) in refused.items():
        with pytest.raises(ConfigError) as error:
            made(config_of("SSL", given))
        assert str(error.value).startswith("listener MINE: "), case
        assert told in str(error.value), case
        assert STORE not in str(error.value), case


@pytest.mark.spec("SEC-54")
def test_keys_and_certificates_may_be_given_as_text(authority: Authority, broker: Certificate) -> None:
    given = {
        "listener.name.mine.ssl.keystore.key": broker.key.read_text(),
        "listener.name.mine.ssl.keystore.certificate.chain": broker.certificate.read_text(),
        "listener.name.mine.ssl.truststore.certificates": (authority.directory / "ca.pem").read_text(),
        "ssl.client.auth": "required",
    }
    context = made(config_of("SSL", given)).context
    assert context is not None
    assert len(context.get_ca_certs()) == 1


@pytest.mark.spec("SEC-54")
def test_a_certificate_that_has_expired_or_is_about_to_is_told_of_each_time(
    authority: Authority, broker: Certificate, caplog: pytest.LogCaptureFixture
) -> None:
    late = authority.certificate("late", "CN=late", STORE, validity="expired")
    soon = authority.certificate("soon", "CN=soon", STORE, days=30)
    not_yet = authority.certificate("not-yet", "CN=not-yet", STORE, days=32)
    for certificate, told in (
        (broker, []),
        (not_yet, []),
        (late, [("ERROR", "listener MINE: its certificate has expired: clients refuse it")]),
        (soon, [("WARNING", "listener MINE: its certificate expires in 2# days")]),
    ):
        caplog.clear()
        config = config_of("SSL", keystore(certificate))
        assert made(config).context is not None  # the start goes on
        tell_of_expiries(config)
        said = [(r.levelname, re.sub(r"2\d", "2#", r.getMessage())) for r in caplog.records]
        assert said == told * 2


@pytest.mark.spec("SEC-56", "SEC-72")
def test_certificates_are_asked_for_on_sasl_ssl_by_the_listeners_own_property_alone(
    authority: Authority, broker: Certificate, caplog: pytest.LogCaptureFixture
) -> None:
    given = keystore(broker) | {"ssl.truststore.location": str(authority.directory / "ca.pem")}
    ignored = made(config_of("SASL_SSL", {**given, "ssl.client.auth": "required"})).context
    assert ignored is not None and ignored.verify_mode is ssl.CERT_NONE
    assert "to ask for certificates, set listener.name.mine.ssl.client.auth" in caplog.text
    caplog.clear()
    own = made(config_of("SASL_SSL", {**given, "listener.name.mine.ssl.client.auth": "required"}))
    assert own.context is not None and own.context.verify_mode is ssl.CERT_REQUIRED
    assert own.identify is None  # who one is says the login
    assert not caplog.text


@pytest.mark.spec("SEC-56")
def test_asking_for_certificates_without_anything_to_hold_them_against_refuses_the_start(broker: Certificate) -> None:
    with pytest.raises(ConfigError, match=r"listener MINE: .*needs ssl.truststore"):
        made(config_of("SSL", {**keystore(broker), "ssl.client.auth": "required"}))


@pytest.mark.spec("SEC-52")
@pytest.mark.parametrize(
    ("listener", "client_auth", "is_open"),
    [
        ("SSL://192.0.2.1:9092", "required", False),
        ("SSL://192.0.2.1:9092", "none", True),
        ("SSL://192.0.2.1:9092", "NONE", True),
        ("SSL://192.0.2.1:9092", "requested", True),  # who has no certificate gets in as well
        ("PLAINTEXT://127.0.0.1:9092", "none", False),
        ("PLAINTEXT://localhost:9092", "none", False),
        ("PLAINTEXT://localhost.example.org:9092", "none", True),
        ("PLAINTEXT://127.example.org:9092", "none", True),
    ],
)
def test_a_listener_where_nobody_needs_to_prove_anything_is_warned_of(
    listener: str, client_auth: str, is_open: bool
) -> None:
    protocol = listener.partition(":")[0]
    given = {"listeners": listener, "security.inter.broker.protocol": protocol, "ssl.client.auth": client_auth}
    assert bool(warn_of_open_doors(network_config(**given))) == is_open


@pytest.mark.spec("SEC-52")
def test_each_open_listener_is_one_warning(caplog: pytest.LogCaptureFixture) -> None:
    given = {
        "listeners": "PLAINTEXT://:9092,OUTER://192.0.2.1:9093,INNER://127.0.0.1:9094",
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,OUTER:PLAINTEXT,INNER:PLAINTEXT",
    }
    may = "anybody who can reach it may read, write and delete everything"
    told = [f"listener {where}: {may}" for where in ("PLAINTEXT on *:9092", "OUTER on 192.0.2.1:9093")]
    assert warn_of_open_doors(network_config(**given)) == told
    assert [(r.levelname, r.getMessage()) for r in caplog.records] == [("WARNING", text) for text in told]


@pytest.mark.spec("SEC-95")
@pytest.mark.parametrize(
    ("listeners", "limits", "most"),
    [
        ("MINE://127.0.0.1:1", {"max.connections": "500"}, 500),
        ("MINE://127.0.0.1:1", {"max.connections": "500", "listener.name.mine.max.connections": "400"}, 400),
        ("MINE://127.0.0.1:1", {}, None),
        ("MINE://127.0.0.1:1,B://127.0.0.1:2", {"max.connections": "500"}, None),
    ],
)
def test_an_only_listener_with_a_limit_of_connections_is_warned_of(
    listeners: str, limits: dict[str, str], most: int | None, caplog: pytest.LogCaptureFixture
) -> None:
    security = {"listener.security.protocol.map": "MINE:PLAINTEXT,B:PLAINTEXT", "inter.broker.listener.name": "MINE"}
    config = network_config(**{"listeners": listeners, **security, **limits})
    warn_of_shared_places(config, {"MINE": made(config)})
    start = f"max.connections={most} counts clients and brokers, as there is one listener: "
    assert [r.getMessage().startswith(start) for r in caplog.records] == [True] * (most is not None)


@pytest.mark.spec("SEC-46")
def test_each_kind_of_property_may_be_a_listeners_own(broker: Certificate) -> None:
    module = 'org.apache.kafka.common.security.plain.PlainLoginModule required user_alice="x";'
    of_all = {
        "ssl.keystore.location": "/nowhere.p12",
        "sasl.enabled.mechanisms": "SCRAM-SHA-256",
        "max.connections": "7",
    }
    own = {
        **keystore(broker),
        "sasl.enabled.mechanisms": "PLAIN",
        "plain.sasl.jaas.config": module,
        "max.connections": "5",
    }
    found = made(config_of("SASL_SSL", of_all | {f"listener.name.mine.{name}": text for name, text in own.items()}))
    assert found.context is not None and found.sasl is not None
    assert (list(found.sasl.exchanges), found.max_connections) == (["PLAIN"], 5)


@pytest.mark.spec("SEC-71")
@pytest.mark.parametrize("enabled", [None, "", "GSSAPI", "OAUTHBEARER", "PLAIN,GSSAPI"])
def test_a_mechanism_that_is_not_served_refuses_the_start_as_kafkas_default_does(enabled: str | None) -> None:
    listeners = {"listeners": "MINE://127.0.0.1:0,PLAINTEXT://127.0.0.1:0"}
    protocols = {"listener.security.protocol.map": "MINE:SASL_PLAINTEXT,PLAINTEXT:PLAINTEXT"}
    given = {} if enabled is None else {"sasl.enabled.mechanisms": enabled}
    config = network_config(**listeners, **protocols, **given)
    other = (enabled or "").removeprefix("PLAIN,") or "GSSAPI"
    with pytest.raises(ConfigError, match=f"^listener MINE: .*: {other} is not served by this broker; there are PLAIN"):
        made(config)


@pytest.mark.spec("SEC-70", "SEC-46")
def test_how_long_a_login_holds_is_said_for_all_a_listener_or_one_of_its_mechanisms() -> None:
    both = {"sasl.enabled.mechanisms": "SCRAM-SHA-256,SCRAM-SHA-512", "connections.max.reauth.ms": "1000"}
    own = {"listener.name.mine.connections.max.reauth.ms": "2000"}
    one = {"listener.name.mine.scram-sha-512.connections.max.reauth.ms": "3000"}
    for given, told in ((both, (1000, 1000)), (both | own, (2000, 2000)), (both | own | one, (2000, 3000))):
        sasl = made(config_of("SASL_PLAINTEXT", given)).sasl
        assert sasl is not None
        assert sasl.lifetimes_ms == dict(zip(("SCRAM-SHA-256", "SCRAM-SHA-512"), told, strict=True))


@pytest.mark.spec("SEC-69")
def test_a_delay_as_long_as_idle_connections_live_refuses_the_start(broker: Certificate) -> None:
    delay = {"connection.failed.authentication.delay.ms": "5000", "connections.max.idle.ms": "5000"}
    with pytest.raises(ConfigError, match=r"delay.ms=5000: must be below connections.max.idle.ms=5000"):
        made(config_of("SSL", keystore(broker) | delay))
    assert made(config_of("SSL", keystore(broker) | delay | {"connections.max.idle.ms": "5001"})).context is not None
