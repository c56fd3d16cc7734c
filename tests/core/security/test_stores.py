"""Stores that keytool of Java 17 wrote (tests/data/stores), and made ones; the password is store-word, of keys key-word."""

import pytest
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    PrivateFormat,
    load_pem_private_key,
)
from cryptography.x509 import load_pem_x509_certificate

from kafkatool.core.errors import ConfigError
from kafkatool.core.security.secret import Secret
from kafkatool.core.security.stores import read_certificates, read_key_pair
from tests.paths import ROOT

DATA = ROOT / "tests" / "data" / "stores"
STORE, KEY, WRONG = Secret("store-word"), Secret("key-word"), Secret("guess")


def content(name: str) -> bytes:
    return (DATA / name).read_bytes()


@pytest.mark.spec("SEC-8", "SEC-9")
@pytest.mark.parametrize(("name", "key"), [("key.jks", KEY), ("key.p12", None), ("legacy.p12", STORE)])
def test_a_key_and_its_certificate_are_read_whatever_the_file_is_called(name: str, key: Secret | None) -> None:
    pair = read_key_pair(content(name), STORE, key, "here")
    public = load_pem_private_key(pair.key, None).public_key()
    assert public == load_pem_x509_certificate(pair.chain).public_key()


@pytest.mark.spec("SEC-9")
@pytest.mark.parametrize(
    ("name", "password"),
    [
        ("trust.jks", STORE),
        ("trust.jks", None),
        ("trust.p12", STORE),
        ("open-trust.p12", None),
        ("open-trust.p12", WRONG),
    ],
)
def test_certificates_of_truststores_are_read_without_password_where_they_need_none(
    name: str, password: Secret | None
) -> None:
    read = load_pem_x509_certificate(read_certificates(content(name), password, "here"))
    assert read == load_pem_x509_certificate(content("cert.pem"))


@pytest.mark.spec("SEC-9")
@pytest.mark.parametrize(
    ("name", "store", "key", "told"),
    [
        ("key.jks", WRONG, KEY, "here: wrong password, or damaged"),
        ("key.jks", STORE, WRONG, "here: wrong password of the key, or damaged"),
        ("key.p12", WRONG, None, "here: wrong password, or damaged"),
        ("key.p12", None, None, "here: wrong password, or damaged (no password was given)"),
        ("key.p12", STORE, KEY, "here: in PKCS12 the key has the store's password, ssl.key.password is another"),
        ("two.jks", STORE, None, "here: more than one key in it"),
        ("two.p12", STORE, None, "here: more than one key in it"),
        ("trust.jks", STORE, None, "here: no private key in it"),
        ("trust.p12", STORE, None, "here: no private key in it"),
        ("secret-key.p12", STORE, None, "here: no private key in it"),
        ("cert.pem", None, None, "here: no private key in it"),
        ("key.p12", STORE, WRONG, "here: in PKCS12 the key has the store's password, ssl.key.password is another"),
    ],
)
def test_what_cannot_be_used_is_told_by_its_reason(
    name: str, store: Secret | None, key: Secret | None, told: str
) -> None:
    with pytest.raises(ConfigError) as refused:
        read_key_pair(content(name), store, key, "here")
    assert str(refused.value) == told


@pytest.mark.spec("SEC-9")
@pytest.mark.parametrize("name", ["key.jks", "key.p12"])
@pytest.mark.parametrize("how", ["cut", "flipped"])
def test_a_damaged_store_is_refused(name: str, how: str) -> None:
    sound = content(name)
    damaged = sound[:40] if how == "cut" else sound[:30] + bytes([sound[30] ^ 1]) + sound[31:]
    with pytest.raises(ConfigError, match="damaged"):
        read_key_pair(damaged, STORE, KEY if name == "key.jks" else None, "here")


@pytest.mark.spec("SEC-9")
@pytest.mark.parametrize("name", ["trust.p12", "trust.jks"])
def test_a_truststore_with_a_wrong_password_is_refused(name: str) -> None:
    with pytest.raises(ConfigError, match="wrong password, or damaged"):
        read_certificates(content(name), WRONG, "here")


@pytest.mark.spec("SEC-9")
def test_a_store_without_certificate_is_refused_as_truststore() -> None:
    with pytest.raises(ConfigError, match="no certificate in it"):
        read_certificates(content("secret-key.p12"), STORE, "here")


@pytest.mark.spec("SEC-9")
def test_a_key_without_certificate_is_refused_as_keystore() -> None:
    key = read_key_pair(content("key.jks"), STORE, KEY, "here").key
    with pytest.raises(ConfigError, match=r"^here: no certificate in it$"):
        read_key_pair(key, None, None, "here")


@pytest.mark.spec("SEC-9")
def test_keytools_own_pkcs12_truststore_needs_its_password() -> None:
    with pytest.raises(ConfigError, match=r"^here: wrong password, or damaged \(no password was given\)$"):
        read_certificates(content("trust.p12"), None, "here")
    with pytest.raises(ConfigError, match=r"^here: neither PEM nor PKCS12 nor JKS, or damaged$"):
        read_certificates(content("trust.p12")[:40], STORE, "here")


@pytest.mark.spec("SEC-8", "SEC-9")
def test_pem_keys_are_read_encrypted_or_not_and_a_needless_password_is_no_error() -> None:
    pair = read_key_pair(content("key.jks"), STORE, KEY, "here")
    key = load_pem_private_key(pair.key, None)
    sealed = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, BestAvailableEncryption(b"key-word")) + pair.chain
    opened = read_key_pair(sealed, None, KEY, "here")
    assert load_pem_private_key(opened.key, None).public_key() == key.public_key()
    assert read_key_pair(pair.key + pair.chain, None, KEY, "here").chain.strip() == pair.chain.strip()
    for password, told in ((WRONG, "wrong password, or damaged"), (None, "the key is encrypted: give its password")):
        with pytest.raises(ConfigError, match=told):
            read_key_pair(sealed, None, password, "here")


@pytest.mark.spec("SEC-7")
def test_a_jceks_store_without_the_extra_names_both_ways_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "jks", None)
    with pytest.raises(ConfigError, match=r"pip install 'kafka-kt\[jks\]', or keytool -importkeystore"):
        read_key_pair(content("key.jceks"), STORE, KEY, "here")


@pytest.mark.spec("SEC-42")
def test_a_key_is_in_no_repr() -> None:
    pair = read_key_pair(content("key.jks"), STORE, KEY, "here")
    assert "PRIVATE" not in repr(pair)
    assert "word" not in f"{STORE}{STORE!r}"
