"""What administrators are told of a broker's file: no secret, and no value whose name nobody here knows (SEC-43)."""

import pytest

from kafkatool.broker.settings.config import BrokerConfig
from kafkatool.broker.settings.description import BrokerOverrides, ConfigSource, broker_settings
from kafkatool.broker.settings.documentation import ConfigType

WORD = "word-41"
SECRETS = (
    "ssl.key.password",
    "ssl.keystore.password",
    "ssl.truststore.password",
    "ssl.keystore.key",
    "password.encoder.secret",
    "listener.name.sasl_ssl.plain.sasl.jaas.config",
    "sasl.jaas.config",
    "listener.name.sasl_ssl.ssl.keystore.password",
    "zookeeper.ssl.keystore.password",
)
UNKNOWN = ("some.plugin.token", "listener.name.sasl_ssl.some.plugin.token")


@pytest.mark.spec("SEC-43")
def test_secrets_and_unknown_names_are_told_without_their_values() -> None:
    given = {
        "zookeeper.connect": "h:1",
        "broker.id": "1",
        "log.dirs": "/d",
        "ssl.keystore.location": "/keys",
        "listener.name.sasl_ssl.ssl.client.auth": "required",
        "zookeeper.set.acl": "true",
        **dict.fromkeys((*SECRETS, *UNKNOWN), WORD),
    }
    found = {s.name: s for s in broker_settings(BrokerConfig.from_properties(given), BrokerOverrides({}, {}))}
    assert {name for name, s in found.items() if s.is_sensitive} == {*SECRETS, *UNKNOWN}
    assert WORD not in str(list(found.values()))
    for name in (*SECRETS, *UNKNOWN):
        one = found[name]
        assert (one.value, one.read_only, one.source) == (None, True, ConfigSource.STATIC_BROKER)
        assert one.type is (ConfigType.PASSWORD if name in SECRETS else ConfigType.STRING)
    assert (found["ssl.keystore.location"].value, found["log.dirs"].value) == ("/keys", "/d")


@pytest.mark.spec("SEC-43")
def test_each_spelling_of_a_known_property_is_no_secret() -> None:
    given = {
        "zookeeper.connect": "h:1",
        "broker.id": "1",
        "log.dir": "/d",
        "log.retention.hours": "2",
        "log.roll.hours": "3",
    }
    settings = broker_settings(BrokerConfig.from_properties(given), BrokerOverrides({}, {}))
    assert not [s.name for s in settings if s.is_sensitive]
