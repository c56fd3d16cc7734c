"""A Kafka client's properties, in Java's words."""

import pytest

from kafkatool.core.errors import ConfigError
from kafkatool.core.security.client_security import read_client_security
from kafkatool.core.security.jaas import parse_jaas

PLAIN = 'org.apache.kafka.common.security.plain.PlainLoginModule required username="a" password="geheim";'
SASL = {"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "PLAIN"}


@pytest.mark.spec("SEC-33", "SEC-42")
def test_protocol_mechanism_and_login_are_read_and_others_ignored() -> None:
    assert read_client_security({"acks": "all"}, "f").protocol == "PLAINTEXT"
    security = read_client_security({**SASL, "sasl.jaas.config": PLAIN, "linger.ms": "5"}, "f")
    assert security.login is not None and security.tls is None
    assert (security.login.user, security.login.password.reveal()) == ("a", "geheim")
    assert "geheim" not in repr(security)
    section = parse_jaas("KafkaClient { x.PlainLoginModule required username=b password=geheim; };", "j")["KafkaClient"]
    other = read_client_security(SASL, "f", section=("j, section KafkaClient", section))
    assert other.login is not None and other.login.user == "b"
    assert read_client_security({"security.protocol": "SSL"}, "f").tls is not None


@pytest.mark.spec("SEC-33", "SEC-34")
@pytest.mark.parametrize(
    ("properties", "told"),
    [
        ({"security.protocol": "TLS"}, "security.protocol=TLS: there are PLAINTEXT, SSL, SASL_PLAINTEXT, SASL_SSL"),
        ({"security.protocol": "SASL_SSL"}, "sasl.mechanism=GSSAPI (the default): not yet"),
        ({**SASL, "sasl.mechanism": "OAUTHBEARER"}, "sasl.mechanism=OAUTHBEARER: not yet"),
        ({**SASL, "sasl.mechanism": "CRAM"}, "sasl.mechanism=CRAM: there are PLAIN, SCRAM-SHA-256, SCRAM-SHA-512"),
        (SASL, "sasl.jaas.config is missing"),
        ({**SASL, "sasl.jaas.config": PLAIN.replace("Plain", "Scram")}, "PLAIN needs PlainLoginModule"),
        ({**SASL, "sasl.jaas.config": "x.PlainLoginModule required username=a;"}, "password is missing"),
        ({"sasl.login.callback.handler.class": "x"}, "sasl.login.callback.handler.class is not served"),
        ({"ssl.engine.factory.class": "x"}, "ssl.engine.factory.class is not served"),
    ],
    ids=lambda value: "-".join(value) if isinstance(value, dict) else None,
)
def test_what_would_change_who_logs_in_is_refused(properties: dict[str, str], told: str) -> None:
    with pytest.raises(ConfigError) as refused:
        read_client_security(properties, "f")
    assert told in str(refused.value)
    assert "geheim" not in str(refused.value)
