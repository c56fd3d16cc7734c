"""Who kt is to ZooKeeper and brokers, as an operator sees it: files, warnings, refusals."""

import os
from collections.abc import Sequence
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from kafkatool.commands.main import kt
from kafkatool.core.zookeeper.session import ZooKeeper
from tests.commands.shared.test_output_contract import commands
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
    if os.geteuid():
        monkeypatch.setattr(os, "geteuid", lambda: os.getuid() + 1)
    else:
        os.chown(login, 12_345, -1)
    refused = topics(zk_connect, "--zk-auth-file", login)
    assert (refused.exit_code, refused.stdout) == (2, "")
    assert refused.stderr == f"kt: {login} belongs to another user, who could change it: copy it\n"
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
    for file, why in ((str(none), f"cannot read {none}"), (without, f"{without}: no section Client")):
        refused = topics(zk_connect, "--zk-auth-file", file)
        assert (refused.exit_code, refused.stdout) == (2, "")
        assert why in refused.stderr
        warned = topics(zk_connect, KAFKA_OPTS=f"-Djava.security.auth.login.config={file}")
        assert (warned.exit_code, warned.stdout) == (0, "t\n")
        assert warned.stderr.startswith("kt: warning: KAFKA_OPTS: ") and warned.stderr.count("\n") == 1


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
