"""kt users: credentials that brokers take, and no secret anywhere."""

import hashlib
import hmac
import json
from base64 import b64decode
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from kafkatool.commands.main import kt
from kafkatool.core.zookeeper.session import ZooKeeper
from tests.another_user import give_away, refusal
from tests.core.zookeeper.cluster_nodes import tree as nodes_below

SECRET = "a-secret-word"


@pytest.fixture(autouse=True)
def nodes(zk: ZooKeeper) -> None:
    for path in ("/brokers/ids", "/config/users", "/config/changes"):
        zk.create(path, make_parents=True)


def users(zk_connect: str, action: str, *args: str, stdin: str | None = None) -> Result:
    return CliRunner().invoke(kt, ["users", action, "--zookeeper", zk_connect, *args], input=stdin)


def config(zk: ZooKeeper, name: str) -> dict[str, str]:
    node = zk.get(f"/config/users/{name}")
    assert node is not None
    found: dict[str, str] = json.loads(node.data)["config"]
    return found


@pytest.mark.spec("SEC-6", "SEC-93")
def test_a_password_file_that_others_may_read_is_warned_of_and_another_users_is_refused(
    zk: ZooKeeper, zk_connect: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "password"
    file.write_text(SECRET)
    asked = ("--entity-name", "u", "--add-config", "SCRAM-SHA-256=[]", "--password-file", str(file))
    for mode, warning in (
        (0o640, f"kt: warning: {file} can be read by other users of this machine: chmod 600 {file}\n"),
        (0o600, ""),
    ):
        file.chmod(mode)
        result = users(zk_connect, "alter", *asked)
        assert result.exit_code == 0
        assert ("chmod 600" in result.stderr, warning in result.stderr) == (bool(warning), True)
    before = config(zk, "u")
    give_away(file, monkeypatch)
    refused = users(zk_connect, "alter", *asked)
    assert (refused.exit_code, refused.stdout) == (2, "")
    assert refused.stderr == f"kt: --password-file: {refusal(file)}\n"
    assert config(zk, "u") == before


@pytest.mark.spec("SEC-93", "SEC-94", "SEC-66")
def test_a_user_is_made_that_the_password_opens_and_the_rest_of_his_node_stays(
    zk: ZooKeeper, zk_connect: str, tmp_path: Path
) -> None:
    zk.create("/config/users/a%20b", b'{"version":1,"config":{"producer_byte_rate":"1000"}}')
    file = tmp_path / "password"
    file.write_text(f"{SECRET}\n")
    wanted = "SCRAM-SHA-256=[iterations=8192],SCRAM-SHA-512=[]"
    result = users(zk_connect, "alter", "--entity-name", "a b", "--add-config", wanted, "--password-file", str(file))
    assert (result.exit_code, result.stdout) == (0, "Completed updating config for entity: user-principal 'a b'.\n")
    found = config(zk, "a%20b")
    assert found["producer_byte_rate"] == "1000"
    parts = dict(part.partition("=")[::2] for part in found["SCRAM-SHA-256"].split(","))
    salted = hashlib.pbkdf2_hmac("sha256", SECRET.encode(), b64decode(parts["salt"]), 8192)
    assert list(parts) == ["salt", "stored_key", "server_key", "iterations"] and b64decode(parts["salt"]).isalnum()
    client_key = hmac.digest(salted, b"Client Key", "sha256")
    assert b64decode(parts["stored_key"]) == hashlib.sha256(client_key).digest()
    assert b64decode(parts["server_key"]) == hmac.digest(salted, b"Server Key", "sha256")
    (change,) = zk.children("/config/changes") or [""]
    told = zk.get(f"/config/changes/{change}")
    assert told is not None and told.data == b'{"version":2,"entity_path":"users/a%20b"}'

    shown = users(zk_connect, "list").stdout
    credentials = "SCRAM-SHA-256=iterations=8192, SCRAM-SHA-512=iterations=4096"
    line = f"SCRAM credential configs for user-principal 'a b' are {credentials}\n"
    assert shown == line == users(zk_connect, "describe", "--entity-name", "a b").stdout
    assert users(zk_connect, "alter", "--entity-name", "a b", "--delete-config", "SCRAM-SHA-256").exit_code == 0
    assert config(zk, "a%20b").keys() == {"producer_byte_rate", "SCRAM-SHA-512"}


@pytest.mark.spec("COM-5X", "COM-6X", "SEC-42")
def test_a_dry_run_shows_the_writes_with_a_word_for_credentials_and_another_cluster_gets_none(
    zk: ZooKeeper, zk_connect: str
) -> None:
    zk.create("/config/users/alice", b'{"version":1,"config":{"producer_byte_rate":"1000","SCRAM-SHA-512":"x"}}')
    before = nodes_below(zk)
    wanted = ("--entity-name", "alice", "--add-config", "SCRAM-SHA-256=[]", "--password-file", "-")
    result = users(zk_connect, "alter", *wanted, "--dry-run", stdin=SECRET)
    assert (result.exit_code, result.stdout) == (
        0,
        'set /config/users/alice {"version":1,"config":{"producer_byte_rate":"1000","SCRAM-SHA-512":"[hidden]",'
        '"SCRAM-SHA-256":"[hidden]"}}\n'
        'create sequential /config/changes/config_change_ {"version":2,"entity_path":"users/alice"}\n',
    )
    result = users(zk_connect, "alter", *wanted, "--cluster-id", "other", stdin=SECRET)
    assert result.exit_code == 1 and "--cluster-id is other, but" in result.output
    assert nodes_below(zk) == before


@pytest.mark.spec("SEC-93")
@pytest.mark.parametrize("by", ["file", "stdin"])
def test_one_newline_behind_a_password_is_none_of_it_and_a_second_is(
    zk: ZooKeeper, zk_connect: str, tmp_path: Path, by: str
) -> None:
    file = tmp_path / "password"
    file.write_text(f"{SECRET}\n\n")
    given = "-" if by == "stdin" else str(file)
    added = ("--entity-name", "u", "--add-config", "SCRAM-SHA-256=[]", "--password-file", given)
    assert users(zk_connect, "alter", *added, stdin=file.read_text()).exit_code == 0
    parts = dict(part.partition("=")[::2] for part in config(zk, "u")["SCRAM-SHA-256"].split(","))
    salted = hashlib.pbkdf2_hmac("sha256", f"{SECRET}\n".encode(), b64decode(parts["salt"]), 4096)
    assert b64decode(parts["server_key"]) == hmac.digest(salted, b"Server Key", "sha256")


@pytest.mark.spec("SEC-93")
def test_who_or_what_is_not_there_is_said(zk: ZooKeeper, zk_connect: str) -> None:
    assert users(zk_connect, "describe", "--entity-name", "nobody").exit_code == 1
    result = users(zk_connect, "alter", "--entity-name", "nobody", "--delete-config", "SCRAM-SHA-256")
    assert (result.exit_code, result.stdout) == (1, "Invalid config(s): SCRAM-SHA-256\n")
    zk.create("/config/users/bad", b'{"version":1,"config":{"SCRAM-SHA-256":"salt=x"}}')
    listed = users(zk_connect, "list")
    assert listed.stdout == "" and "user bad cannot be read" in listed.stderr


@pytest.mark.spec("SEC-2", "SEC-42")
@pytest.mark.parametrize("where", ["argument", "stdin", "dry run"])
def test_the_password_is_shown_nowhere(zk: ZooKeeper, zk_connect: str, where: str) -> None:
    asked = ["--entity-name", "alice", "--add-config"]
    if where == "argument":
        result = users(zk_connect, "alter", *asked, f"SCRAM-SHA-256=[password={SECRET}]")
        assert result.exit_code == 2 and "a password on the command line is seen" in result.stderr
        assert zk.children("/config/users") == []
    else:
        dry = ["--dry-run"] if where == "dry run" else []
        result = users(zk_connect, "alter", *asked, "SCRAM-SHA-256=[]", "--password-file", "-", *dry, stdin=SECRET)
        assert result.exit_code == 0 and "stored_key" not in result.output
        assert (zk.children("/config/users") == []) == bool(dry)
    assert SECRET not in result.output


@pytest.mark.spec("SEC-93", "SEC-94")
@pytest.mark.parametrize(
    ("added", "password", "code", "why"),
    [
        ("SCRAM-SHA-256=[iterations=100]", "x", 1,
         "Iterations 100 is less than the minimum 4096 required for SCRAM-SHA-256"),
        ("SCRAM-SHA-256=[iterations=4095]", "x", 1, "less than the minimum 4096"),
        ("SCRAM-SHA-256=[iterations=16385]", "x", 1, "more than the maximum 16384"),
        ("SCRAM-SHA-1=[]", "x", 2, "no SCRAM mechanism"),
        ("SCRAM-SHA-256", "x", 2, "expected SCRAM-SHA-256="),
        ("SCRAM-SHA-256=[]", "", 2, "empty"),
        ("SCRAM-SHA-256=[]", "a\0b", 2, "NUL"),
    ],
    ids=range(7),
)  # fmt: skip
def test_what_no_broker_would_take_is_refused(
    zk: ZooKeeper, zk_connect: str, added: str, password: str, code: int, why: str
) -> None:
    result = users(
        zk_connect, "alter", "--entity-name", "u", "--add-config", added, "--password-file", "-", stdin=password
    )
    assert result.exit_code == code and why in result.output and zk.children("/config/users") == []
