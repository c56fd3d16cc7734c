"""Contexts of clients and listeners, made of stores, over a real handshake in memory."""

import logging
import ssl
from pathlib import Path

import pytest

from kafkatool.core.errors import ConfigError
from kafkatool.core.security.tls import client_context, read_tls_settings, server_context
from tests.another_user import give_away, refusal
from tests.core.security.test_stores import DATA

SERVER = {
    "ssl.keystore.location": str(DATA / "key.jks"),
    "ssl.keystore.password": "store-word",
    "ssl.key.password": "key-word",
}
CLIENT = {"ssl.truststore.location": str(DATA / "trust.p12"), "ssl.truststore.password": "store-word"}
NO_NAME = {"ssl.endpoint.identification.algorithm": ""}


def handshake(client: dict[str, str], server: dict[str, str], *, name: str = "kt") -> ssl.SSLObject:
    """Have both talk; returns the client's side."""
    ends = []
    wires = [ssl.MemoryBIO() for _ in range(2)]
    theirs = server_context(read_tls_settings(server, "server"))
    ours = client_context(read_tls_settings(client, "client"))
    ends.append(ours.wrap_bio(wires[0], wires[1], server_hostname=name))
    ends.append(theirs.wrap_bio(wires[1], wires[0], server_side=True))
    done = 0
    for _ in range(10):
        done = 0
        for end in ends:
            try:
                end.do_handshake()
                done += 1
            except ssl.SSLWantReadError:
                pass
    assert done == 2
    return ends[0]


@pytest.mark.spec("SEC-14")
def test_a_certificate_of_the_truststore_is_trusted_and_no_other() -> None:
    assert handshake(CLIENT | NO_NAME, SERVER).version() == "TLSv1.3"
    other = {"ssl.keystore.location": str(DATA / "key.p12"), "ssl.keystore.password": "store-word"}
    with pytest.raises(ssl.SSLCertVerificationError):
        handshake(CLIENT | NO_NAME, other)


@pytest.mark.spec("SEC-14")
def test_the_systems_authorities_count_only_without_a_truststore(monkeypatch: pytest.MonkeyPatch) -> None:
    other = {"ssl.keystore.location": str(DATA / "legacy.p12"), "ssl.keystore.password": "store-word"}
    monkeypatch.setenv("SSL_CERT_FILE", str(DATA / "cert.pem"))
    assert handshake(NO_NAME, SERVER).version() == "TLSv1.3"
    pair = read_tls_settings(other, "x").key_pair
    assert pair is not None
    only_other = NO_NAME | {"ssl.truststore.certificates": pair.chain.decode()}
    with pytest.raises(ssl.SSLCertVerificationError):
        handshake(only_other, SERVER)


@pytest.mark.spec("SEC-13")
def test_the_host_name_is_checked_unless_told_otherwise_which_is_noted() -> None:
    with pytest.raises(ssl.SSLCertVerificationError, match=r"[Hh]ostname|name"):
        handshake(CLIENT, SERVER, name="broker.example")
    assert handshake(CLIENT | NO_NAME, SERVER, name="broker.example").version() == "TLSv1.3"
    settings = read_tls_settings(NO_NAME, "client.properties")
    assert settings.notes == (
        "client.properties: ssl.endpoint.identification.algorithm is empty: "
        "host names are not checked against certificates",
    )


@pytest.mark.spec("SEC-12")
@pytest.mark.parametrize(
    ("properties", "version"),
    [
        ({}, "TLSv1.3"),
        ({"ssl.enabled.protocols": "TLSv1.2,TLSv1.1"}, "TLSv1.2"),
        ({"ssl.protocol": "TLSv1.2"}, "TLSv1.2"),
    ],
    ids=str,
)
def test_versions_are_those_enabled(properties: dict[str, str], version: str) -> None:
    assert handshake(CLIENT | NO_NAME | properties, SERVER).version() == version


@pytest.mark.spec("SEC-11", "SEC-12", "SEC-55")
@pytest.mark.parametrize("protocol", ["TLS", "SSL", "TLSv1.3", "", "TLSv1.4", "tls", "wrong"])
def test_a_protocol_that_nobody_knows_is_refused(protocol: str) -> None:
    if protocol in ("TLS", "SSL", "TLSv1.3", ""):
        assert read_tls_settings({"ssl.protocol": protocol}, "f").versions == ("TLSv1.2", "TLSv1.3")
        return
    with pytest.raises(ConfigError) as refused:
        read_tls_settings({"ssl.protocol": protocol}, "f")
    assert str(refused.value) == f"f: ssl.protocol={protocol}: unknown protocol; there are TLS, TLSv1.2, TLSv1.3"


@pytest.mark.spec("SEC-6")
def test_a_keystore_that_others_may_read_is_used_with_a_warning_and_another_users_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store, trust = tmp_path / "key.p12", tmp_path / "trust.p12"
    for copy in (store, trust):
        copy.write_bytes((DATA / copy.name).read_bytes())
        copy.chmod(0o644)
    given = {"ssl.keystore.location": str(store), "ssl.keystore.password": "store-word"}
    given |= {"ssl.truststore.location": str(trust), "ssl.truststore.password": "store-word"}
    settings = read_tls_settings(given, "f")
    assert settings.key_pair is not None
    assert settings.notes == (f"{store} can be read by other users of this machine: chmod 600 {store}",)
    store.chmod(0o600)
    assert read_tls_settings(given, "f").notes == (), "certificates are for everybody to read"
    give_away(trust, monkeypatch)
    assert read_tls_settings(CLIENT | {"ssl.truststore.location": str(trust)}, "f").authorities is not None
    give_away(store, monkeypatch)
    with pytest.raises(ConfigError) as refused:
        read_tls_settings(given, "f")
    assert str(refused.value) == f"f: ssl.keystore.location={store}: {refusal(store)}"


@pytest.mark.spec("SEC-12", "SEC-55")
@pytest.mark.parametrize("properties", [{}, {"ssl.enabled.protocols": "TLSv1.1,SSLv3,TLSv1.2"}], ids=str)
def test_versions_below_1_2_are_never_offered_and_1_2_is_unless_told_otherwise(properties: dict[str, str]) -> None:
    for context in (
        client_context(read_tls_settings(CLIENT | properties, "f")),
        server_context(read_tls_settings(SERVER | properties, "f")),
    ):
        newest = ssl.TLSVersion.TLSv1_2 if properties else ssl.TLSVersion.TLSv1_3
        assert (context.minimum_version, context.maximum_version) == (ssl.TLSVersion.TLSv1_2, newest)
    assert handshake(CLIENT | NO_NAME | properties, SERVER | {"ssl.protocol": "TLSv1.2"}).version() == "TLSv1.2"


@pytest.mark.spec("SEC-12")
def test_cipher_suites_are_named_as_iana_names_them() -> None:
    chosen = {
        "ssl.cipher.suites": "TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256,TLS_AES_128_GCM_SHA256",
        "ssl.enabled.protocols": "TLSv1.2",
    }
    cipher = handshake(CLIENT | NO_NAME | chosen, SERVER).cipher()
    assert cipher is not None
    assert cipher[0] == "ECDHE-ECDSA-AES128-GCM-SHA256"
    assert (
        "suites of TLSv1.3 cannot be chosen, TLS_AES_128_GCM_SHA256 is ignored"
        in read_tls_settings(chosen, "f").notes[0]
    )


@pytest.mark.parametrize(
    ("iana", "openssl"),
    [
        ("TLS_RSA_WITH_AES_128_CBC_SHA", "AES128-SHA"),
        ("TLS_DHE_RSA_WITH_AES_256_GCM_SHA384", "DHE-RSA-AES256-GCM-SHA384"),
        ("TLS_ECDHE_RSA_WITH_AES_256_CBC_SHA384", "ECDHE-RSA-AES256-SHA384"),
        ("TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256", "ECDHE-ECDSA-CHACHA20-POLY1305"),
        ("TLS_ECDHE_ECDSA_WITH_AES_128_CCM_8", "ECDHE-ECDSA-AES128-CCM8"),
    ],
)
@pytest.mark.spec("SEC-12")
def test_names_of_suites_become_openssls(iana: str, openssl: str) -> None:
    assert read_tls_settings({"ssl.cipher.suites": iana}, "f").ciphers == openssl


@pytest.mark.spec("SEC-9", "SEC-12", "SEC-55")
@pytest.mark.parametrize(
    ("properties", "told"),
    [
        ({"ssl.enabled.protocols": "TLSv1,SSLv3"}, "all of them are broken"),
        ({"ssl.enabled.protocols": "TLSv9"}, "unknown protocol TLSv9"),
        ({"ssl.cipher.suites": "TLS_WITH_WISHES"}, "unknown cipher suite TLS_WITH_WISHES"),
        ({"ssl.crl.enable": "true"}, r"ssl\.crl\.enable=true is not supported"),
        ({"ssl.ocsp.enable": "true"}, r"ssl\.ocsp\.enable=true is not supported"),
        ({"ssl.keystore.location": "/none.p12"}, r"f: ssl\.keystore\.location=/none\.p12: No such file"),
        ({"ssl.keystore.key": "x"}, "belong together"),
        ({"ssl.truststore.location": "x", "ssl.truststore.type": "BKS"}, "BKS is not read"),
        ({"ssl.endpoint.identification.algorithm": "ldaps"}, "algorithm=ldaps"),
    ],
    ids=lambda value: str(value)[:40],
)
def test_what_cannot_be_done_is_refused(properties: dict[str, str], told: str) -> None:
    with pytest.raises(ConfigError, match=told):
        read_tls_settings(properties, "f")


@pytest.mark.spec("SEC-9")
@pytest.mark.parametrize("store", ["keystore", "truststore"])
def test_what_is_wrong_with_a_store_names_the_file_and_the_property(store: str) -> None:
    location = str(DATA / "key.jks")
    given = {f"ssl.{store}.location": location, f"ssl.{store}.password": "guess"}
    with pytest.raises(ConfigError) as refused:
        read_tls_settings(given, "client.properties")
    told = f"client.properties: ssl.{store}.location={location}: wrong password, or damaged"
    assert str(refused.value) == told


@pytest.mark.spec("SEC-8")
@pytest.mark.parametrize(
    ("name", "said", "told"),
    [("key.p12", "JKS", "PKCS12"), ("key.jks", "PKCS12", "JKS"), ("key.jks", "JKS", None), ("key.jks", "", None)],
)
def test_a_type_that_contradicts_the_content_is_noted_at_debug_level(
    caplog: pytest.LogCaptureFixture, name: str, said: str, told: str | None
) -> None:
    given = {"ssl.keystore.location": str(DATA / name), "ssl.keystore.password": "store-word"}
    given |= {"ssl.key.password": "key-word"} if name == "key.jks" else {}
    with caplog.at_level(logging.DEBUG):
        assert read_tls_settings(given | ({"ssl.keystore.type": said} if said else {}), "f").key_pair is not None
    noted = [(r.levelname, r.getMessage()) for r in caplog.records]
    expected = f"f: ssl.keystore.location={DATA / name} is {told}, though f: ssl.keystore.type={said}"
    assert noted == ([("DEBUG", expected)] if told else [])


def test_pem_as_text_in_the_properties_serves_as_files_do() -> None:
    pair = read_tls_settings(SERVER, "f").key_pair
    assert pair is not None
    server = {"ssl.keystore.key": pair.key.decode(), "ssl.keystore.certificate.chain": pair.chain.decode()}
    client = NO_NAME | {"ssl.truststore.certificates": (DATA / "cert.pem").read_text()}
    assert handshake(client, server).version() == "TLSv1.3"


@pytest.mark.spec("SEC-10")
def test_no_file_holds_a_key_nor_a_descriptor_afterwards(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    server_context(read_tls_settings(SERVER, "f"))
    assert list(tmp_path.iterdir()) == []
    open_files = [str(file.readlink()) for file in Path("/proc/self/fd").iterdir() if file.exists()]
    assert not [name for name in open_files if "memfd:key" in name]


@pytest.mark.parametrize(("settings", "told"), [({}, "needs ssl.keystore"), (SERVER, "needs ssl.truststore")], ids=str)
def test_a_listener_that_cannot_serve_is_refused(settings: dict[str, str], told: str) -> None:
    with pytest.raises(ConfigError, match=told):
        server_context(read_tls_settings(settings, "f"), client_auth="required")
