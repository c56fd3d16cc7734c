"""The properties of ``--command-config``."""

import pytest

from kafkatool.core.client.java_keys import KNOWN, UNHEEDED, mistakes, unheeded
from kafkatool.core.client.settings import ClientSettings, settings_of
from kafkatool.core.errors import UsageError

DEFAULTS = ClientSettings(client_id="kt-topics")


@pytest.mark.spec("ADM-3")
def test_the_keys_of_time_and_name_are_heeded_and_no_others() -> None:
    properties = {
        "client.id": "me",
        "request.timeout.ms": "1",
        "default.api.timeout.ms": "2",
        "retries": "3",
        "retry.backoff.ms": "4",
        "reconnect.backoff.ms": "5",
        "connections.max.idle.ms": "6",
        "metadata.max.age.ms": "7",
        "retry.backoff.max.ms": "8",
        "socket.connection.setup.timeout.ms": "9",
        "security.protocol": "PLAINTEXT",
        "acks": "all",
    }
    assert settings_of(properties, DEFAULTS) == ClientSettings(
        "me",
        connect_timeout_ms=9,
        request_timeout_ms=1,
        whole_timeout_ms=2,
        retries=3,
        retry_backoff_ms=4,
        max_backoff_ms=8,
        reconnect_backoff_ms=5,
        max_idle_ms=6,
        metadata_max_age_ms=7,
    )
    assert settings_of({"connections.max.idle.ms": "-1"}, DEFAULTS).max_idle_ms == -1
    assert settings_of({}, DEFAULTS) == DEFAULTS


@pytest.mark.spec("ADM-3")
def test_what_cannot_be_done_as_asked_is_refused_with_its_key_and_security_is_read_elsewhere() -> None:
    for key in ("retries", "metadata.max.age.ms"):
        for value in ("x", "-1", ""):
            with pytest.raises(UsageError, match=key):
                settings_of({key: value}, DEFAULTS)
    assert settings_of({"security.protocol": "SASL_SSL", "ssl.truststore.location": "/t"}, DEFAULTS) == DEFAULTS


@pytest.mark.spec("ADM-3", "SEC-33")
def test_a_key_that_no_client_knows_is_named_with_the_nearest_known_one() -> None:
    assert mistakes(["acks", "group.id", "ssl.keystore.location", "config.providers.x.param.y", "retries"]) == []
    assert mistakes(["sasl.mechansim", "security.protcol", "colour"]) == [
        "unknown key sasl.mechansim: is it sasl.mechanism?",
        "unknown key security.protcol: is it security.protocol?",
        "unknown key colour",
    ]
    assert all(len(key.split()) == 1 and "." in key for key in KNOWN - {"acks", "retries"})


@pytest.mark.spec("ADM-3")
def test_a_key_of_admin_clients_that_changes_nothing_here_is_told_and_those_of_others_are_not() -> None:
    assert UNHEEDED < KNOWN
    assert unheeded(["acks", "group.id", "retries", "ssl.keystore.location", "config.providers.x.param.y"]) is None
    told = unheeded(["send.buffer.bytes", "acks", "client.dns.lookup"])
    assert told == "without effect here: client.dns.lookup, send.buffer.bytes"


@pytest.mark.spec("ADM-9")
def test_the_limits_are_kafkas() -> None:
    assert (DEFAULTS.connect_timeout_ms, DEFAULTS.request_timeout_ms) == (10_000, 30_000)
    assert (DEFAULTS.whole_timeout_ms, DEFAULTS.retry_backoff_ms) == (60_000, 100)
