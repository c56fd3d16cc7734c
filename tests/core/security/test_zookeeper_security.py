"""Where the login to ZooKeeper is told: files, KAFKA_OPTS, and what is wrong with them."""

import os
import re
import ssl
from dataclasses import replace
from pathlib import Path

import pytest

from kafkatool.core.errors import ConfigError
from kafkatool.core.security import tls
from kafkatool.core.security.credential_files import check_owner
from kafkatool.core.security.zookeeper_security import OPEN, read_zookeeper_security
from tests.another_user import give_away, refusal
from tests.core.security.test_stores import DATA

DIGEST = "org.apache.zookeeper.server.auth.DigestLoginModule"
JAAS = (
    f'Client {{ {DIGEST} required username="kafka" password="geheim"; }};\n'
    f'Mine {{ {DIGEST} required username="me" password="geheim"; }};'
)


@pytest.fixture
def jaas(tmp_path: Path) -> Path:
    return written(tmp_path / "jaas.conf", JAAS)


def written(path: Path, text: str, mode: int = 0o600) -> Path:
    path.write_text(text)
    path.chmod(mode)
    return path


@pytest.mark.spec("SEC-1", "SEC-3", "SEC-4", "SEC-42")
def test_kafka_opts_is_read_as_a_shell_does_and_a_file_goes_before_it(jaas: Path, tmp_path: Path) -> None:
    assert read_zookeeper_security() is OPEN
    options = f"-Xmx1g '-Djava.security.auth.login.config={jaas}' -Dx=y"
    security = read_zookeeper_security(java_options=options)
    assert security.described == (f"SASL DIGEST-MD5 as kafka, from KAFKA_OPTS ({jaas}, section Client)",)
    assert "geheim" not in repr(security)
    assert security.notes == (), "of flags that are not read nothing is said"
    named = read_zookeeper_security(java_options=f"{options} -Dzookeeper.sasl.clientconfig=Mine")
    assert named.login is not None and named.login.user == "me"
    other = written(tmp_path / "login.properties", "username=ops\npassword=geheim\n")
    first = read_zookeeper_security(auth_file=str(other), java_options=options)
    assert first.described == (f"SASL DIGEST-MD5 as ops, from {other}",)
    broken = read_zookeeper_security(java_options=f"{options} 'x")
    assert broken.login is None
    assert broken.notes == ("KAFKA_OPTS: no closing quotation: nothing of it is used",)


@pytest.mark.spec("SEC-4", "SEC-3")
def test_what_kafka_opts_names_and_is_not_there_is_a_note_and_no_login(jaas: Path, tmp_path: Path) -> None:
    missing = read_zookeeper_security(java_options=f"-Djava.security.auth.login.config={tmp_path}/none")
    assert missing.login is None
    assert missing.notes == (f"KAFKA_OPTS: no login file {tmp_path}/none: no login to ZooKeeper",)
    options = f"-Djava.security.auth.login.config={jaas} -Dzookeeper.sasl.clientconfig=No"
    assert read_zookeeper_security(java_options=options).notes == (
        f"KAFKA_OPTS: {jaas} has no section No: no login to ZooKeeper",
    )
    with pytest.raises(ConfigError, match="no section No"):
        read_zookeeper_security(auth_file=str(jaas), java_options="-Dzookeeper.sasl.clientconfig=No")
    with pytest.raises(ConfigError, match="cannot read"):
        read_zookeeper_security(auth_file=str(tmp_path / "none"))
    with pytest.raises(ConfigError, match=r"zookeeper\.sasl\.client=false, but .* has a section Client"):
        read_zookeeper_security(java_options=f"-Djava.security.auth.login.config={jaas} -Dzookeeper.sasl.client=false")


@pytest.mark.spec("SEC-5", "SEC-3")
@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("username=a\npasswort=b\n", "unknown passwort"),
        ("username=a\n", "password or password.file is missing"),
        ("password=a\n", "username is missing"),
        ("scheme=x\nusername=a\npassword=b\n", "scheme=x: there are sasl, digest"),
        ("mechanism=PLAIN\nusername=a\npassword=b\n", "mechanism=PLAIN: there are DIGEST-MD5, GSSAPI"),
        ("Client { a.Module required; };", "login module a.Module is not served"),
    ],
    ids=lambda text: text.split("\n")[0],
)
def test_a_login_file_that_cannot_serve_is_refused(tmp_path: Path, text: str, told: str) -> None:
    with pytest.raises(ConfigError) as refused:
        read_zookeeper_security(auth_file=str(written(tmp_path / "login", text)))
    assert told in str(refused.value)


@pytest.mark.spec("SEC-5")
def test_a_password_may_be_in_a_file_of_its_own(tmp_path: Path) -> None:
    password = written(tmp_path / "geheim", "secret word\n")
    login = written(tmp_path / "login", f"scheme=digest\nusername=a\npassword.file={password}\n")
    read = read_zookeeper_security(auth_file=str(login)).login
    assert read is not None
    assert (read.scheme, read.password.reveal(), read.described) == ("digest", "secret word", "digest as a")


@pytest.mark.spec("SEC-6")
def test_a_file_that_others_may_read_is_used_with_one_warning(jaas: Path) -> None:
    jaas.chmod(0o640)
    security = read_zookeeper_security(auth_file=str(jaas))
    assert security.login is not None
    assert security.notes == (f"{jaas} can be read by other users of this machine: chmod 600 {jaas}",)


@pytest.mark.spec("SEC-6")
def test_a_file_with_a_password_alone_is_looked_at_alike(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    password = written(tmp_path / "geheim", "secret word\n", 0o604)
    login = written(tmp_path / "login", f"scheme=digest\nusername=a\npassword.file={password}\n")
    security = read_zookeeper_security(auth_file=str(login))
    assert security.notes == (f"{password} can be read by other users of this machine: chmod 600 {password}",)
    give_away(password, monkeypatch)
    with pytest.raises(ConfigError, match=re.escape(refusal(password))):
        read_zookeeper_security(auth_file=str(login))


@pytest.mark.spec("SEC-6")
def test_the_tls_file_is_looked_at_alike(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = written(tmp_path / "tls", "zookeeper.ssl.client.enable=true\n", 0o640)
    security = read_zookeeper_security(tls_file=str(file))
    assert security.tls is not None
    assert security.notes == (f"{file} can be read by other users of this machine: chmod 600 {file}",)
    give_away(file, monkeypatch)
    with pytest.raises(ConfigError, match=re.escape(refusal(file))):
        read_zookeeper_security(tls_file=str(file))


@pytest.mark.spec("SEC-6")
def test_a_file_of_roots_is_taken_by_everybody(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a container's secrets, for instance, which are root's whoever runs there."""
    file = written(tmp_path / "login", "scheme=digest\nusername=a\npassword=b\n", 0o600)
    roots, anothers = (os.stat_result([*file.stat()[:4], owner, *file.stat()[5:]]) for owner in (0, 1000))
    for own in (0, 1001):
        monkeypatch.setattr(os, "geteuid", lambda own=own: own)
        check_owner(file, roots)
        with pytest.raises(ConfigError, match="belongs to user 1000"):
            check_owner(file, anothers)


@pytest.mark.spec("SEC-11")
def test_what_is_meant_for_acls_goes_before_the_others_there_alone(tmp_path: Path) -> None:
    text = (
        "zookeeper.ssl.client.enable=true\nzookeeper.ssl.enabled.protocols=TLSv1.2\n"
        "authorizer.zookeeper.ssl.enabled.protocols=TLSv1.3\nauthorizer.zookeeper.ssl.nothing=x\n"
    )
    file = str(written(tmp_path / "tls", text))
    for for_acls, version in ((False, ssl.TLSVersion.TLSv1_2), (True, ssl.TLSVersion.TLSv1_3)):
        security = read_zookeeper_security(tls_file=file, for_acls=for_acls)
        assert security.tls is not None
        assert (security.tls.minimum_version, security.tls.maximum_version) == (version, version)
        assert security.notes == (f"{file}: authorizer.zookeeper.ssl.nothing: not known here, ignored",)
    off = written(tmp_path / "off", text + "authorizer.zookeeper.ssl.client.enable=false\n")
    assert read_zookeeper_security(tls_file=str(off), for_acls=True).tls is None
    assert read_zookeeper_security(tls_file=str(off)).tls is not None


@pytest.mark.spec("SEC-11", "SEC-23")
@pytest.mark.parametrize("word", ["yes", "1", "treu"])
def test_a_word_that_is_neither_true_nor_false_does_not_mean_that_there_is_no_tls(tmp_path: Path, word: str) -> None:
    file = written(tmp_path / "tls", f"zookeeper.ssl.client.enable={word}\n")
    with pytest.raises(ConfigError, match=f"{file}: zookeeper.ssl.client.enable={word}: must be true or false"):
        read_zookeeper_security(tls_file=str(file))
    with pytest.raises(ConfigError, match=f"KAFKA_OPTS: zookeeper.ssl.client.enable={word}: must be"):
        read_zookeeper_security(java_options=f"-Dzookeeper.client.secure={word}")


@pytest.mark.spec("SEC-11")
def test_blanks_around_true_are_none_of_it(tmp_path: Path) -> None:
    file = written(tmp_path / "tls", "zookeeper.ssl.client.enable=true \n")
    assert read_zookeeper_security(tls_file=str(file)).tls is not None


@pytest.mark.spec("SEC-11")
def test_tls_is_told_in_kafkas_words_and_in_zookeepers(tmp_path: Path) -> None:
    text = "zookeeper.ssl.client.enable=true\nzookeeper.clientCnxnSocket=x\nzookeeper.connect=a\n"
    security = read_zookeeper_security(tls_file=str(written(tmp_path / "tls", text)))
    assert security.tls is not None
    assert security.notes == (f"{tmp_path}/tls: zookeeper.connect: not known here, ignored",)
    assert read_zookeeper_security(java_options="-Dzookeeper.client.secure=true").tls is not None
    assert read_zookeeper_security(java_options="-Dzookeeper.client.secure=false").tls is None
    with pytest.raises(ConfigError, match=r"zookeeper\.ssl\.truststore\.location=/none"):
        read_zookeeper_security(java_options="-Dzookeeper.client.secure=true -Dzookeeper.ssl.trustStore.location=/none")


TLS = {  # Kafka's words, ZooKeeper's own, a value
    "client.enable": ("client.secure", "true"),
    "keystore.location": ("ssl.keyStore.location", str(DATA / "key.p12")),
    "keystore.password": ("ssl.keyStore.password", "store-word"),
    "keystore.type": ("ssl.keyStore.type", "PKCS12"),
    "truststore.location": ("ssl.trustStore.location", str(DATA / "trust.p12")),
    "truststore.password": ("ssl.trustStore.password", "store-word"),
    "truststore.type": ("ssl.trustStore.type", "PKCS12"),
    "protocol": ("ssl.protocol", "TLSv1.2"),
    "enabled.protocols": ("ssl.enabledProtocols", "TLSv1.2,TLSv1.3"),
    "cipher.suites": ("ssl.ciphersuites", "TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384"),
    "endpoint.identification.algorithm": ("ssl.hostnameVerification", ""),
    "crl.enable": ("ssl.crl", "false"),
    "ocsp.enable": ("ssl.ocsp", "false"),
}


@pytest.mark.spec("SEC-11")
def test_each_property_of_tls_means_the_same_in_a_file_and_in_kafka_opts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    read, seen = tls.read_tls_settings, list[tls.TlsSettings]()

    def noting(*given: object, **more: object) -> tls.TlsSettings:
        seen.append(read(*given, **more))  # type: ignore[arg-type]
        return seen[-1]

    monkeypatch.setattr(tls, "read_tls_settings", noting)
    text = "".join(f"zookeeper.ssl.{name}={value}\n" for name, (_, value) in TLS.items())
    by_file = read_zookeeper_security(tls_file=str(written(tmp_path / "tls", text)))
    flags = dict(TLS.values()) | {"ssl.hostnameVerification": "false"}
    by_java = read_zookeeper_security(java_options=" ".join(f"-Dzookeeper.{own}={v}" for own, v in flags.items()))
    assert by_file.subject == by_java.subject != ""
    settings, same = (replace(one, notes=()) for one in seen)
    assert settings == same
    assert settings.key_pair is not None and settings.authorities is not None
    assert (settings.versions, settings.ciphers) == (("TLSv1.2",), "ECDHE-RSA-AES256-GCM-SHA384")
    assert not settings.checks_host_name


@pytest.mark.spec("SEC-11")
@pytest.mark.parametrize(
    "name", [name for name in TLS if name not in ("client.enable", "endpoint.identification.algorithm")]
)
def test_no_property_of_tls_is_passed_over(tmp_path: Path, name: str) -> None:
    """One that cannot be had is refused, in either spelling; without client.enable nobody asks."""
    own, _ = TLS[name]
    wrong = "BKS" if name.endswith(".type") else "true" if name.endswith(".enable") else "wrong"
    given = {key: value for key, (_, value) in TLS.items()} | {name: wrong}
    text = "".join(f"zookeeper.ssl.{key}={value}\n" for key, value in given.items())
    with pytest.raises(ConfigError):
        read_zookeeper_security(tls_file=str(written(tmp_path / "tls", text)))
    flags = dict(TLS.values()) | {own: wrong, "ssl.hostnameVerification": "false"}
    with pytest.raises(ConfigError):
        read_zookeeper_security(java_options=" ".join(f"-Dzookeeper.{java}={v}" for java, v in flags.items()))
    off = written(tmp_path / "off", text.replace("client.enable=true", "client.enable=false"))
    assert read_zookeeper_security(tls_file=str(off)).tls is None
