"""Who kt is to ZooKeeper and brokers, as an operator sees it: files, warnings, refusals."""

import logging
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import click
import pytest
from click.testing import CliRunner, Result

from kafkatool.commands.main import kt
from kafkatool.commands.shared import settings
from kafkatool.commands.shared.credentials import client_properties
from kafkatool.core.zookeeper.session import ZooKeeper
from tests.another_user import give_away, refusal
from tests.commands.shared.test_output_contract import commands
from tests.core.security.test_stores import DATA
from tests.core.zookeeper import cluster_nodes


@pytest.fixture
def nodes(zk: ZooKeeper) -> None:
    cluster_nodes.make_cluster(zk, topics={"t": {0: [1, 2]}})


def written(file: Path, text: str) -> str:
    file.touch(0o600)
    file.write_text(text)
    return str(file)


def topics(connect: str, *flags: str, action: Sequence[str] = ("list",), **environment: str) -> Result:
    """Run kt topics with no credentials but those given."""
    names = ("KAFKA_OPTS", "KAFKATOOL_ZK_AUTH_FILE", "KAFKATOOL_ZK_TLS_CONFIG_FILE", "KAFKATOOL_COMMAND_CONFIG")
    own = {name: environment.get(name) for name in names}
    return CliRunner(env=own).invoke(kt, ["topics", *action, "--zookeeper", connect, *flags])


@pytest.mark.spec("SEC-21", "SEC-23")
@pytest.mark.usefixtures("nodes")
def test_a_zookeeper_without_sasl_is_said_at_once_and_never_used_without_the_login(
    zk_connect: str, tmp_path: Path
) -> None:
    login = written(tmp_path / "login", "username=kafka\npassword=a-word\n")
    result = topics(zk_connect, "--zk-auth-file", login, "--topic", "t", "--force", action=["delete"])
    assert (result.exit_code, result.stdout) == (1, "")
    server = zk_connect.partition("/")[0]
    assert result.stderr == f"kt: ZooKeeper at {server} does not answer a login: has it SASL?\n"
    assert topics(zk_connect).stdout == "t\n"


@pytest.mark.spec("SEC-6", "SEC-1")
@pytest.mark.usefixtures("nodes")
def test_a_file_of_another_user_is_refused_and_a_pipe_is_not(
    zk_connect: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = "scheme=digest\nusername=kafka\npassword=a-word\n"
    login = written(tmp_path / "login", text)
    give_away(login, monkeypatch)
    refused = topics(zk_connect, "--zk-auth-file", login)
    assert (refused.exit_code, refused.stdout) == (2, "")
    assert refused.stderr == f"kt: {refusal(login)}\n"
    reader, writer = os.pipe()
    try:
        os.write(writer, text.encode())
        os.close(writer)
        piped = topics(zk_connect, "--zk-auth-file", f"/dev/fd/{reader}")
    finally:
        os.close(reader)
    assert (piped.exit_code, piped.stdout, piped.stderr) == (0, "t\n", "")


@pytest.mark.spec("SEC-4")
@pytest.mark.usefixtures("nodes")
def test_a_login_file_that_is_not_there_ends_it_if_kt_was_told_of_it_and_else_is_a_warning(
    zk_connect: str, tmp_path: Path
) -> None:
    none, without = tmp_path / "none", written(tmp_path / "jaas", "Server { a.Module required; };\n")
    for file, why, note in (
        (str(none), f"cannot read {none}", f"no login file {none}"),
        (without, f"{without}: no section Client", f"{without} has no section Client"),
    ):
        refused = topics(zk_connect, "--zk-auth-file", file)
        assert (refused.exit_code, refused.stdout) == (2, "")
        assert why in refused.stderr
        warned = topics(zk_connect, KAFKA_OPTS=f"-Djava.security.auth.login.config={file}")
        assert (warned.exit_code, warned.stdout) == (0, "t\n")
        assert warned.stderr == f"kt: warning: KAFKA_OPTS: {note}: no login to ZooKeeper\n"


@pytest.mark.spec("SEC-12")
@pytest.mark.parametrize(
    ("setting", "why"),
    [
        ("enabled.protocols=TLSv1,TLSv1.1", "all of them are broken"),
        ("cipher.suites=TLS_WITH_WISHES", "unknown cipher suite TLS_WITH_WISHES"),
        ("crl.enable=true", "not supported"),
        ("ocsp.enable=true", "not supported"),
    ],
)
def test_tls_that_would_be_less_than_was_asked_for_is_wrong_usage(tmp_path: Path, setting: str, why: str) -> None:
    file = written(tmp_path / "tls", f"zookeeper.ssl.client.enable=true\nzookeeper.ssl.{setting}\n")
    refused = topics("127.0.0.1:1", "--zk-tls-config-file", file)  # nobody is asked there
    assert (refused.exit_code, refused.stdout) == (2, "")
    assert why in refused.stderr and setting.partition("=")[0] in refused.stderr


@pytest.mark.spec("SEC-2")
@pytest.mark.parametrize("words", [words for words, _ in commands(kt)], ids=" ".join)
def test_no_command_takes_a_secret_as_an_argument(words: tuple[str, ...]) -> None:
    secrets = (
        "password=geheim",
        "--config=ssl.key.password = geheim",
        "SCRAM-SHA-256=[iterations=8192,password=geheim]",
    )
    for secret in (*secrets, "scram-sha-512=[geheim]"):
        refused = CliRunner().invoke(kt, [*words, secret])
        assert (refused.exit_code, refused.stdout) == (2, "")
        assert refused.stderr == (
            "kt: a password on the command line is seen by every user of this machine: use --password-file FILE, or - "
            "for standard input\n"
        )


DIGEST = "org.apache.zookeeper.server.auth.DigestLoginModule"
NOBODY = "127.0.0.1:1"


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Make an empty directory to run in, for a user without a file."""
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "user"))
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.spec("SEC-1")
@pytest.mark.parametrize("row", ["zk-auth-file", "zk-tls-config-file", "command-config"])
def test_a_flag_goes_before_the_environment_before_the_settings_before_kafka_opts(
    place: Path, caplog: pytest.LogCaptureFixture, row: str
) -> None:
    text, told = {
        "zk-auth-file": ("username=ops\npassword=geheim\n", "SASL DIGEST-MD5 as ops, from {}"),
        "zk-tls-config-file": ("zookeeper.ssl.client.enable=true\n", "TLS, from {}"),
        "command-config": (
            "security.protocol=SASL_PLAINTEXT\nsasl.mechanism=PLAIN\n"
            'sasl.jaas.config=x.PlainLoginModule required username="ops" password="geheim";\n',
            "brokers: User:ops (SASL_PLAINTEXT, PLAIN), from {}",
        ),
    }[row]
    flag, variable, setting = (written(place / name, text) for name in ("flag", "variable", "setting"))
    section = f'Client {{ {DIGEST} required username="java" password="geheim"; }};\n'
    java = f"-Djava.security.auth.login.config={written(place / 'jaas', section)} -Dzookeeper.client.secure=true"
    name = f"KAFKATOOL_{row.upper().replace('-', '_')}"
    way = "--bootstrap-server" if row == "command-config" else "--zookeeper"

    def source(*flags: str, before: Sequence[str] = (), **environment: str) -> str:
        caplog.clear()
        with caplog.at_level(logging.DEBUG, "kafkatool.commands.shared.credentials"):
            CliRunner(env={"KAFKA_OPTS": java, **environment}).invoke(
                kt, [*before, "topics", "list", way, NOBODY, *flags]
            )
        assert "geheim" not in caplog.text
        (line,) = (one for one in caplog.messages if ("TLS" in one) == (row == "zk-tls-config-file"))
        return line

    if row == "zk-auth-file":
        assert source() == f"zookeeper: SASL DIGEST-MD5 as java, from KAFKA_OPTS ({place / 'jaas'}, section Client)"
        assert caplog.messages[0] == "zookeeper: TLS, from KAFKA_OPTS"
    context = written(place / "context", text)
    (place / settings.LOCAL_FILE).write_text(f'{row} = "{setting}"\n[contexts.prod]\n{row} = "{context}"\n')
    for found, winner in (
        (source(), setting),
        (source(KAFKATOOL_CONTEXT="prod"), context),
        (source(KAFKATOOL_CONTEXT="prod", **{name: variable}), variable),
        (source(before=("--context", "prod"), **{name: variable}), context),  # as it was typed
        (source(f"--{row}", flag, before=("--context", "prod"), **{name: variable}), flag),
        (source(**{name: variable}), variable),
        (source(f"--{row}", flag, **{name: variable}), flag),
    ):
        assert told.format(winner) in found


@pytest.mark.spec("SEC-1")
def test_debug_names_the_source_that_won(place: Path) -> None:
    login = written(place / "login", "scheme=digest\nusername=ops\npassword=geheim\n")
    command = ["-m", "kafkatool", "--debug", "topics", "list", "--zookeeper", NOBODY, "--zk-auth-file", login]
    done = subprocess.run([sys.executable, *command], capture_output=True, text=True, timeout=300, check=False)
    assert [line for line in done.stderr.splitlines() if line.endswith(f" zookeeper: digest as ops, from {login}")]
    assert "geheim" not in done.stderr + done.stdout
    text = 'sasl.jaas.config=x.PlainLoginModule required username="ops" password="geheim";\n'
    config = written(place / "config", f"security.protocol=SASL_PLAINTEXT\nsasl.mechanism=PLAIN\n{text}")
    command[command.index("--zookeeper") :] = ["--bootstrap-server", NOBODY, "--command-config", config]
    done = subprocess.run([sys.executable, *command], capture_output=True, text=True, timeout=300, check=False)
    told = f" brokers: User:ops (SASL_PLAINTEXT, PLAIN), from {config}"
    assert [line for line in done.stderr.splitlines() if line.endswith(told)]
    assert "geheim" not in done.stderr + done.stdout


@pytest.mark.spec("SEC-1", "SEC-6")
def test_settings_of_another_user_are_refused(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = place / settings.LOCAL_FILE
    file.write_text(f'bootstrap-server = "{NOBODY}"\n')
    give_away(file, monkeypatch)
    config = written(place / "config", "security.protocol=PLAINTEXT\n")
    refused = CliRunner(env={"KAFKATOOL_COMMAND_CONFIG": config}).invoke(kt, ["topics", "list"])
    assert (refused.exit_code, refused.stdout) == (2, "")
    assert refused.stderr == (
        f"kt: settings {file} belong to another user, who could send you to his own cluster: copy them\n"
    )


@pytest.mark.spec("SEC-11")
@pytest.mark.parametrize(("command", "refuses"), [("acls", True), ("topics", False)])
def test_what_is_meant_for_acls_is_read_by_kt_acls_alone(place: Path, command: str, refuses: bool) -> None:
    text = "zookeeper.ssl.client.enable=true\nauthorizer.zookeeper.ssl.protocol=wrong\n"
    flags = ("--zookeeper", NOBODY, "--zk-tls-config-file", written(place / "tls", text))
    done = CliRunner().invoke(kt, [command, "list", *flags])  # nobody is asked there
    assert done.exit_code == (2 if refuses else 1)
    assert ("zookeeper.ssl.protocol=wrong: unknown protocol" in done.stderr) == refuses


@pytest.mark.spec("SEC-1", "SEC-2")
def test_no_setting_variable_or_flag_is_a_password(place: Path) -> None:
    names = {option for _, command in commands(kt) for parameter in command.params for option in parameter.opts}
    assert {name for name in names if "password" in name or "secret" in name} == {"--password-file"}
    for name in ("password", "zk-password", "sasl_password"):
        (place / settings.LOCAL_FILE).write_text(f'{name} = "geheim"\n')
        refused = topics(NOBODY)
        assert (refused.exit_code, refused.stdout) == (2, "")
        assert f"unknown setting '{name}'" in refused.stderr and "geheim" not in refused.stderr


@pytest.mark.spec("SEC-3", "SEC-5", "SEC-7")
@pytest.mark.parametrize(
    ("text", "told"),
    [
        (
            "Client { com.sun.security.auth.module.Krb5LoginModule required; };",
            ", section Client: GSSAPI needs the extra: pip install 'kafka-kt[kerberos]'",
        ),
        ("mechanism=GSSAPI\nprincipal=ops\n", ": GSSAPI needs the extra: pip install 'kafka-kt[kerberos]'"),
        ("Client {\n a.B required x; };", ", line 2: expected '='"),
        ("Server { a.B required; };", ": no section Client"),
        (
            "Client { a.B required; };",
            f", section Client: login module a.B is not served; there are {DIGEST}, "
            "com.sun.security.auth.module.Krb5LoginModule",
        ),
        (
            "username=ops\npasswort=x\n",
            ": unknown passwort; there are keytab, mechanism, password, password.file, principal, scheme, service, username",
        ),
        ("username=ops\n", ": password or password.file is missing"),
        ("scheme=x\nusername=ops\npassword=x\n", ": scheme=x: there are sasl, digest"),
    ],
    ids=lambda text: text.split("\n")[0],
)
def test_a_login_file_that_cannot_serve_is_wrong_usage(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str, told: str
) -> None:
    monkeypatch.setitem(sys.modules, "gssapi", None)
    file = written(tmp_path / "login", text)
    refused = topics(NOBODY, "--zk-auth-file", file)  # nobody is asked there
    assert (refused.exit_code, refused.stdout, refused.stderr) == (2, "", f"kt: {file}{told}\n")


@pytest.mark.spec("SEC-7", "SEC-9")
@pytest.mark.parametrize(
    ("store", "told"),
    [
        ("key.jceks", "a JCEKS store needs the extra: pip install 'kafka-kt[jks]', or keytool -importkeystore"),
        ("trust.jks", "no private key in it"),
        ("two.p12", "more than one key in it"),
        ("key.p12", "wrong password, or damaged"),
    ],
)
def test_a_store_that_cannot_serve_is_wrong_usage(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, store: str, told: str
) -> None:
    monkeypatch.setitem(sys.modules, "jks", None)
    location = DATA / store
    word = "guess" if store == "key.p12" else "store-word"
    of_store = f"zookeeper.ssl.keystore.location={location}\nzookeeper.ssl.keystore.password={word}\n"
    file = written(tmp_path / "tls", f"zookeeper.ssl.client.enable=true\n{of_store}")
    refused = topics(NOBODY, "--zk-tls-config-file", file)  # nobody is asked there
    assert (refused.exit_code, refused.stdout) == (2, "")
    assert refused.stderr.startswith(f"kt: {file}: zookeeper.ssl.keystore.location={location}: {told}")


@pytest.mark.spec("SEC-7")
def test_what_logins_and_stores_need_is_imported_where_they_are_used_alone() -> None:
    program = (
        "import sys\nfrom kafkatool.commands.main import kt\n"
        f"kt.main(['topics', 'list', '--zookeeper', '{NOBODY}'], standalone_mode=False)\n"
    )
    watch = "import atexit, sys\natexit.register(lambda: print(sorted({m.partition('.')[0] for m in sys.modules})))\n"
    own = {name: value for name, value in os.environ.items() if not name.startswith(("KAFKA", "COVERAGE"))}
    done = subprocess.run(
        [sys.executable, "-c", watch + program], capture_output=True, text=True, timeout=300, check=False, env=own
    )
    assert "'kazoo'" in done.stdout, done.stderr
    for library in ("cryptography", "jks", "gssapi"):  # puresasl comes with kazoo, which looks whether it is there
        assert f"'{library}'" not in done.stdout


@pytest.mark.spec("SEC-33", "SEC-34")
@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("security.protocol=SASL_SSL\nsasl.mechanism=OAUTHBEARER\n", "sasl.mechanism=OAUTHBEARER: not yet"),
        ("security.protocol=SASL_SSL\nsasl.mechanism=GSSAPI\n", "sasl.mechanism=GSSAPI: not yet"),
        ("security.protocol=TLS\n", "security.protocol=TLS: there are PLAINTEXT, SSL, SASL_PLAINTEXT, SASL_SSL"),
        ("sasl.login.callback.handler.class=x\n", "sasl.login.callback.handler.class is not served"),
        ("ssl.engine.factory.class=x\n", "ssl.engine.factory.class is not served"),
    ],
    ids=lambda text: text.split("\n")[0],
)
def test_a_clients_properties_that_cannot_serve_are_wrong_usage(tmp_path: Path, text: str, told: str) -> None:
    file = written(tmp_path / "client", text)
    refused = CliRunner().invoke(kt, ["topics", "list", "--bootstrap-server", NOBODY, "--command-config", file])
    assert (refused.exit_code, refused.stdout) == (2, "")
    assert refused.stderr.startswith(f"kt: --command-config: {file}: ") and told in refused.stderr


@pytest.mark.spec("SEC-6")
def test_a_clients_properties_with_a_password_that_others_may_read_are_told_of_once(tmp_path: Path) -> None:
    text = "security.protocol=SASL_PLAINTEXT\nsasl.mechanism=PLAIN\n"
    login = 'sasl.jaas.config=x.PlainLoginModule required username="ops" password="geheim";\n'
    file = written(tmp_path / "client", text + login)
    Path(file).chmod(0o604)
    asked = ["topics", "list", "--bootstrap-server", NOBODY, "--command-config", file]
    warned = CliRunner().invoke(kt, asked).stderr
    assert warned.count(f"kt: warning: {file} can be read by other users of this machine: chmod 600 {file}\n") == 1
    Path(file).write_text("client.id=me\n")
    assert "warning" not in CliRunner().invoke(kt, asked).stderr, "nothing in it is secret"


@pytest.mark.spec("SEC-34")
def test_what_shows_with_a_connection_is_warned_of_once_in_a_run(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with click.Context(kt):
        for host in ("h1", "h2"):
            _, security = client_properties(Path(written(tmp_path / "client", "client.id=me\n")))
            assert security.warn is not None
            security.warn(f"a password goes to {host}")
    assert capsys.readouterr().err == "kt: warning: a password goes to h1\n"


@pytest.mark.spec("SEC-29")
@pytest.mark.usefixtures("nodes")
@pytest.mark.parametrize(
    ("flags", "closed"),
    [((), False), (("--zk-set-acl", "true"), True), (("--zk-set-acl", "false"), False)],
    ids=["auto", "true", "false"],
)
def test_nodes_are_made_open_or_closed_as_the_flag_says_and_by_itself_as_the_cluster_has_them(
    zk: ZooKeeper, zk_connect: str, tmp_path: Path, flags: Sequence[str], closed: bool
) -> None:
    login = ("--zk-auth-file", written(tmp_path / "login", "scheme=digest\nusername=kafka\npassword=a-word\n"))
    new = ("create", "--replica-assignment", "1:2", "--topic")
    made = topics(zk_connect, *login, *flags, action=[*new, "new"])
    assert made.exit_code == 0, made.output
    found = {str(acl) for acl in zk.acls("/config/topics/new")}
    assert found == ({"digest:kafka:cdrwa", "world:anyone:r"} if closed else {"world:anyone:cdrwa"})
    if closed:
        nobody = topics(zk_connect, *flags, action=[*new, "other"])
        assert nobody.exit_code == 1 and "--zk-set-acl true needs a login to ZooKeeper" in nobody.output
        assert zk.get("/brokers/topics/other") is None and zk.get("/config/topics/other") is None
