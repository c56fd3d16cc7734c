"""Logins to a real ZooKeeper by Kerberos, the tickets from a KDC of our own; skipped where there is no library or KDC."""

import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import NamedTuple

import pytest

from kafkatool.broker.embedded.zookeeper_process import ZooKeeperProcess
from kafkatool.core.security.zookeeper_security import read_zookeeper_security
from kafkatool.core.zookeeper.acls import OWN_NODES
from kafkatool.core.zookeeper.session import ZooKeeper
from tests.core.security.kdc import REALM, Kdc, write_config
from tests.core.zookeeper import cluster_nodes
from tests.ports import free_port
from tests.waiting import eventually

gssapi = pytest.importorskip("gssapi", reason="the extra kerberos is not installed: pip install 'kafka-kt[kerberos]'")
pytestmark = [pytest.mark.slow, pytest.mark.spec("SEC-17")]

MODULE = "com.sun.security.auth.module.Krb5LoginModule"
PROVIDER = {"authProvider.1": "org.apache.zookeeper.server.auth.SASLAuthenticationProvider"}
KAFKA = f"kafka@{REALM}"


class Realm(NamedTuple):
    """A KDC, and a ZooKeeper that is zookeeper/localhost there."""

    kdc: Kdc
    server: ZooKeeperProcess

    @property
    def connect(self) -> str:
        return f"localhost:{self.server.port}"


@pytest.fixture(scope="module")
def realm(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Realm]:
    place = tmp_path_factory.mktemp("realm")
    with Kdc(place / "kdc", "zookeeper/localhost", "kafka", "alice") as kdc, pytest.MonkeyPatch.context() as patch:
        login = written(
            place / "server.conf",
            f'Server {{ {MODULE} required useKeyTab=true keyTab="{kdc.keytab}" storeKey=true useTicketCache=false '
            f'principal="zookeeper/localhost@{REALM}"; }};\n',
        )
        config = write_config(place / "krb5.conf", kdc.port)
        patch.setenv("JAVA_TOOL_OPTIONS", f"-Djava.security.krb5.conf={config}")
        server = ZooKeeperProcess(place / "zookeeper", free_port(), settings=PROVIDER, login_file=login).start()
        try:
            server.wait_ready(100_000)
            with ZooKeeper(server.connect) as zk:
                cluster_nodes.make_cluster(zk, topics={"t": {0: [1]}})
            yield Realm(kdc, server)
        finally:
            server.stop(gentle=False)


@pytest.fixture(autouse=True)
def kerberos(realm: Realm, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Have this process, and those it starts, know the realm; their ticket cache is empty."""
    monkeypatch.setenv("KRB5_CONFIG", str(write_config(tmp_path / "krb5.conf", realm.kdc.port)))
    monkeypatch.setenv("KRB5CCNAME", f"FILE:{tmp_path / 'cache'}")
    monkeypatch.delenv("KRB5_CLIENT_KTNAME", raising=False)
    monkeypatch.delenv("KAFKA_OPTS", raising=False)


def written(file: Path, text: str) -> Path:
    file.touch(0o600)
    file.write_text(text)
    return file


def section(place: Path, options: str) -> Path:
    return written(place / "jaas.conf", f"Client {{ {MODULE} required {options}; }};\n")


def by_keytab(realm: Realm, place: Path, principal: str = "kafka") -> Path:
    return section(place, f'useKeyTab=true storeKey=true keyTab="{realm.kdc.keytab}" principal="{principal}"')


def get_ticket(realm: Realm, principal: str, cache: str | None = None) -> None:
    """Have a ticket of a principal in the cache, as kinit has."""
    store = {"client_keytab": str(realm.kdc.keytab), "ccache": cache or os.environ["KRB5CCNAME"]}
    name = gssapi.Name(principal, gssapi.NameType.kerberos_principal)
    gssapi.Credentials(name=name, usage="initiate", mechs=[gssapi.MechType.kerberos], store=store)


class Done(NamedTuple):
    code: int
    stdout: str
    stderr: str


def kt(connect: str, *flags: str, **environment: str) -> Done:
    """List the topics, by kt as a process."""
    command = [sys.executable, "-m", "kafkatool", "topics", "list", "--zookeeper", connect, *flags]
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=300, check=False, env={**os.environ, **environment}
    )
    return Done(done.returncode, done.stdout, done.stderr)


def test_by_keytab_and_principal_of_a_login_file(realm: Realm, tmp_path: Path) -> None:
    file = by_keytab(realm, tmp_path)
    assert kt(realm.connect, "--zk-auth-file", str(file)) == (0, "t\n", "")
    assert kt(realm.connect, KAFKA_OPTS=f"-Djava.security.auth.login.config={file}") == (0, "t\n", "")
    assert not (tmp_path / "cache").exists(), "nobody's cache is written to"


def test_zookeeper_knows_the_session_by_its_principal(realm: Realm, tmp_path: Path) -> None:
    security = read_zookeeper_security(auth_file=str(by_keytab(realm, tmp_path)))
    assert security.described == (f"SASL GSSAPI as {KAFKA}, from {tmp_path}/jaas.conf, section Client",)
    assert security.ids == {("sasl", KAFKA)}
    with ZooKeeper(realm.connect, security=security) as zk:
        zk.make_nodes_as(OWN_NODES)
        zk.create("/of-kafka")
        assert f"sasl:{KAFKA}" in {acl.owner for acl in zk.acls("/of-kafka")}


def test_by_a_ticket_of_the_cache(realm: Realm, tmp_path: Path) -> None:
    get_ticket(realm, "alice")
    for name, text in {
        "jaas": f"Client {{ {MODULE} required useTicketCache=true; }};\n",
        "named": f'Client {{ {MODULE} required useTicketCache=true principal="alice@{REALM}"; }};\n',
        "properties": "mechanism=GSSAPI\n",
    }.items():
        file = written(tmp_path / name, text)
        assert kt(realm.connect, "--zk-auth-file", str(file)) == (0, "t\n", "")
        login = read_zookeeper_security(auth_file=str(file)).login
        assert login is not None and login.user == f"alice@{REALM}"


def test_another_cache_and_one_before_a_keytab(realm: Realm, tmp_path: Path) -> None:
    other = tmp_path / "other"
    get_ticket(realm, "alice", f"FILE:{other}")
    file = section(tmp_path, f'useTicketCache=true ticketCache="{other}"')
    assert kt(realm.connect, "--zk-auth-file", str(file)) == (0, "t\n", "")
    both = f'useTicketCache=true useKeyTab=true keyTab="{realm.kdc.keytab}" principal="kafka"'
    file = section(tmp_path, both)  # there is no ticket in the cache
    assert kt(realm.connect, "--zk-auth-file", str(file)) == (0, "t\n", "")
    get_ticket(realm, "kafka")
    file = section(tmp_path, both.replace(str(realm.kdc.keytab), str(written(tmp_path / "empty.keytab", ""))))
    assert kt(realm.connect, "--zk-auth-file", str(file)) == (0, "t\n", "")


@pytest.mark.spec("SEC-5")
def test_by_keytab_principal_and_service_of_properties(realm: Realm, tmp_path: Path) -> None:
    text = f"mechanism=GSSAPI\nkeytab={realm.kdc.keytab}\nprincipal=kafka\n"
    assert kt(realm.connect, "--zk-auth-file", str(written(tmp_path / "login", text))) == (0, "t\n", "")
    file = written(tmp_path / "login", f"{text}service=other\n")
    assert kt(realm.connect, "--zk-auth-file", str(file)) == (1, "", refusal(realm, KAFKA, NOT_FOUND, file))


NOT_FOUND = f"Server other/localhost@{REALM} not found in Kerberos database"


def refusal(realm: Realm, principal: str, why: str, source: object) -> str:
    return f"kt: no login to ZooKeeper at {realm.connect} as {principal}: {why}: check {source}\n"


def test_the_service_is_the_one_of_kafka_opts(realm: Realm, tmp_path: Path) -> None:
    file = by_keytab(realm, tmp_path)
    options = f"-Djava.security.auth.login.config={file} -Dzookeeper.sasl.client.username"
    assert kt(realm.connect, KAFKA_OPTS=f"{options}=zookeeper") == (0, "t\n", "")
    source = f"KAFKA_OPTS ({file}, section Client)"
    assert kt(realm.connect, KAFKA_OPTS=f"{options}=other") == (1, "", refusal(realm, KAFKA, NOT_FOUND, source))


def test_no_ticket_is_said_before_anybody_is_asked(tmp_path: Path) -> None:
    file = section(tmp_path, "useTicketCache=true")
    done = kt("127.0.0.1:1", "--zk-auth-file", str(file))
    assert (done.code, done.stdout) == (1, "")
    assert done.stderr == (
        f"kt: no login to ZooKeeper by {file}, section Client: No Kerberos credentials available "
        f"(default cache: FILE:{tmp_path}/cache)\n"
    )


def test_a_ticket_that_has_expired_is_told(realm: Realm, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    short = write_config(tmp_path / "short.conf", realm.kdc.port, ticket_lifetime="6s")

    def was_got() -> bool:
        try:
            get_ticket(realm, "kafka")
        except gssapi.exceptions.MissingCredentialsError:
            return False  # whoever stood still, it was over before the KDC made it
        return True

    with monkeypatch.context() as patch:
        patch.setenv("KRB5_CONFIG", str(short))
        eventually(was_got, "a ticket for six seconds")

    def has_expired() -> bool:
        try:
            return not gssapi.Credentials(usage="initiate", mechs=[gssapi.MechType.kerberos]).lifetime
        except gssapi.exceptions.ExpiredCredentialsError:
            return True

    eventually(has_expired, "the ticket to expire")
    file = section(tmp_path, "useTicketCache=true principal=kafka")
    told = refusal(realm, KAFKA, "The referenced credential has expired", f"{file}, section Client")
    assert kt(realm.connect, "--zk-auth-file", str(file)) == (1, "", told)


def test_a_ticket_of_somebody_else_and_a_keytab_without_the_name(realm: Realm, tmp_path: Path) -> None:
    get_ticket(realm, "alice")
    file = section(tmp_path, "useTicketCache=true principal=kafka")
    why = f"Can't find client principal {KAFKA} in cache collection"
    source = f"{file}, section Client"
    assert kt(realm.connect, "--zk-auth-file", str(file)) == (1, "", refusal(realm, KAFKA, why, source))
    file = by_keytab(realm, tmp_path, "bob")
    bob = f"bob@{REALM}"
    why = f"No key table entry found for {bob}"
    assert kt(realm.connect, "--zk-auth-file", str(file)) == (1, "", refusal(realm, bob, why, source))


def test_a_kdc_that_is_not_there_is_told(realm: Realm, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with closing(socket.create_server(("127.0.0.1", 0))) as taken:
        nobody = taken.getsockname()[1]
    monkeypatch.setenv("KRB5_CONFIG", str(write_config(tmp_path / "krb5.conf", nobody)))
    file = by_keytab(realm, tmp_path)
    why = f"Cannot contact any KDC for realm '{REALM}'"
    told = refusal(realm, KAFKA, why, f"{file}, section Client")
    assert kt(realm.connect, "--zk-auth-file", str(file)) == (1, "", told)


@pytest.mark.spec("SEC-21")
def test_a_zookeeper_without_sasl_is_told(realm: Realm, tmp_path: Path, zk_connect: str) -> None:
    server = zk_connect.partition("/")[0].replace("127.0.0.1", "localhost")
    done = kt(server, "--zk-auth-file", str(by_keytab(realm, tmp_path)))
    assert done == (1, "", f"kt: ZooKeeper at {server} does not answer a login: has it SASL?\n")


def test_a_zookeeper_that_cannot_read_the_ticket_refuses(realm: Realm, tmp_path: Path) -> None:
    with Kdc(tmp_path / "kdc", "zookeeper/localhost", "kafka") as other:  # of the same names, and other keys
        write_config(tmp_path / "krb5.conf", other.port)
        file = section(tmp_path, f'useKeyTab=true keyTab="{other.keytab}" principal=kafka')
        told = f"kt: ZooKeeper at {realm.connect} refused the login of {KAFKA} (SASL GSSAPI): check {file}, section Client\n"
        assert kt(realm.connect, "--zk-auth-file", str(file)) == (1, "", told)


@pytest.mark.spec("SEC-6")
def test_a_keytab_that_others_may_read_is_warned_of(realm: Realm, tmp_path: Path) -> None:
    keytab = tmp_path / "open.keytab"
    keytab.write_bytes(realm.kdc.keytab.read_bytes())
    keytab.chmod(0o644)
    file = section(tmp_path, f'useKeyTab=true keyTab="{keytab}" principal=kafka')
    warning = f"kt: warning: {keytab} can be read by other users of this machine: chmod 600 {keytab}\n"
    assert kt(realm.connect, "--zk-auth-file", str(file)) == (0, "t\n", warning)


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ("", "it has neither useTicketCache=true nor useKeyTab=true with a keyTab"),
        ("useKeyTab=true principal=kafka", "it has neither useTicketCache=true nor useKeyTab=true with a keyTab"),
        ('useKeyTab=true keyTab="/k"', "principal is missing: /k may have keys of several"),
    ],
    ids=["nothing", "no keytab", "no principal"],
)
def test_a_section_that_says_too_little_is_wrong_usage(tmp_path: Path, options: str, told: str) -> None:
    file = section(tmp_path, options)
    done = kt("127.0.0.1:1", "--zk-auth-file", str(file))
    assert done == (2, "", f"kt: {file}, section Client: {told}\n")


def test_a_keytab_that_is_not_there_is_wrong_usage(tmp_path: Path) -> None:
    file = section(tmp_path, f'useKeyTab=true keyTab="{tmp_path}/none" principal=kafka')
    done = kt("127.0.0.1:1", "--zk-auth-file", str(file))
    assert done == (2, "", f"kt: cannot read {tmp_path}/none: No such file or directory\n")
