"""Flags that every command which touches a cluster has, and the session that they open."""

from pathlib import Path

import pytest
from click.testing import CliRunner

from kafkatool import __version__
from kafkatool.commands.main import kt
from kafkatool.core.security.zookeeper_security import ZooKeeperSecurity
from kafkatool.core.zookeeper import session
from kafkatool.core.zookeeper.session import ZooKeeper
from tests.commands.shared.test_output_contract import commands
from tests.commands.topics.runner import make_orders
from tests.core.client.fake_broker import FakeBroker
from tests.ports import free_port

PLAN = "--reassignment-json-file plan.json"


BOTH_WAYS = (
    *("both typed", "both in the environment", "brokers' setting alone"),
    "typed broker goes before ZooKeeper's setting",
    "typed ZooKeeper goes before the brokers' setting",
)


TOUCHING_A_CLUSTER = (
    "topics create --topic t --partitions 1 --replication-factor 1",
    "topics list",
    "topics describe",
    "topics alter --topic t --partitions 2",
    "topics delete --topic t",
    "reassign --generate --topics-to-move-json-file topics.json --broker-list 1",
    f"reassign --execute {PLAN}",
    f"reassign --verify {PLAN}",
    f"reassign --cancel {PLAN}",
    "reassign --list",
    "elect",
    "elect --report",
    "replica-verify --once",
    "acls list",
    "acls add --allow-principal User:a --operation Read --topic t",
    "acls remove --topic t --force",
    "users list",
    "users describe --entity-name a",
    "users alter --entity-name a --delete-config SCRAM-SHA-256",
    "zk-acl --check",
    "zk-acl --zookeeper.acl secure",
    "brokers",
    "health",
    "drain 1 --no-throttle",
    "migrate check",
)
SERVER = "controller start"  # it touches one, too, and goes on


@pytest.mark.spec("COM-1")
def test_no_tool_that_takes_a_zookeeper_is_left_out() -> None:
    taking = {
        " ".join(words)
        for words, command in commands(kt)
        if "--zookeeper" in {o for p in command.params for o in p.opts}
    }
    tried = {
        words for words in taking if any(f"{line} ".startswith(f"{words} ") for line in (*TOUCHING_A_CLUSTER, SERVER))
    }
    assert tried == taking


@pytest.mark.spec("COM-1", "COM-3X", "ADM-1")
@pytest.mark.parametrize("command", [*TOUCHING_A_CLUSTER, SERVER])
def test_no_tool_touches_a_cluster_whose_zookeeper_is_not_named(
    command: str, monkeypatch: pytest.MonkeyPatch, tmp_path: object
) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    monkeypatch.delenv("KAFKATOOL_ZOOKEEPER", raising=False)
    result = CliRunner().invoke(kt, command.split(" "))
    assert (result.exit_code, result.stdout) == (3 if command == "health" else 2, "")  # a monitor's word for unknown
    needs_zookeeper = ("migrate check", "replica-verify --once")  # or takes its brokers from no setting
    asks_brokers_too = command not in needs_zookeeper and any(
        f"{command} ".startswith(f"{' '.join(words)} ")
        for words, found in commands(kt)
        if "--bootstrap-server" in {o for p in found.params for o in p.opts}
    )
    assert ("no cluster is named" if asks_brokers_too else "no ZooKeeper is named") in result.stderr
    assert "KAFKATOOL_ZOOKEEPER" in result.stderr
    assert ("--bootstrap-server" in result.stderr) == asks_brokers_too


@pytest.mark.spec("ADM-1", "ADM-2", "ADM-3")
@pytest.mark.parametrize("flags", BOTH_WAYS)
def test_exactly_one_way_to_the_cluster_is_taken(flags: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The address that nobody listens at tells which way was taken."""
    monkeypatch.delenv("KAFKATOOL_ZOOKEEPER", raising=False)
    zookeeper, broker = f"127.0.0.1:{free_port()}", f"127.0.0.1:{free_port()}"

    def run(*args: str) -> str:
        result = CliRunner().invoke(kt, ["topics", "list", *args])
        assert result.stdout == ""
        return f"{result.exit_code} {result.stderr}"

    only_one = "2 kt: Only one of --bootstrap-server or --zookeeper must be specified\n"
    by_zookeeper, by_broker = ("--zookeeper", zookeeper), ("--bootstrap-server", broker)
    match flags:
        case "both typed":
            assert run(*by_zookeeper, *by_broker) == only_one
        case "both in the environment":
            monkeypatch.setenv("KAFKATOOL_ZOOKEEPER", zookeeper)
            monkeypatch.setenv("KAFKATOOL_BOOTSTRAP_SERVER", broker)
            assert run() == only_one
        case "typed broker goes before ZooKeeper's setting":
            monkeypatch.setenv("KAFKATOOL_ZOOKEEPER", zookeeper)
            assert run(*by_broker) == f"1 kt: no broker answers: {broker}: refused\n"
        case "typed ZooKeeper goes before the brokers' setting":
            monkeypatch.setenv("KAFKATOOL_BOOTSTRAP_SERVER", broker)
            assert "1 kt: no ZooKeeper: nothing listens at" in run(*by_zookeeper)
        case "brokers' setting alone":
            monkeypatch.setenv("KAFKATOOL_BOOTSTRAP_SERVER", broker)
            assert f"{broker}: refused" in run()


@pytest.mark.spec("ADM-1")
@pytest.mark.parametrize(
    ("command", "by_broker"),
    [
        *(
            (command, "--bootstrap-server")
            for command in ("reassign --list", "elect", "replica-verify --once", "brokers", "drain 3 --no-throttle")
        ),
        ("replica-verify --once", "--broker-list"),
    ],
)
def test_each_command_that_has_both_ways_takes_one(command: str, by_broker: str) -> None:
    both = ("--zookeeper", "127.0.0.1:1", by_broker, "127.0.0.1:1")
    result = CliRunner().invoke(kt, [*command.split(), *both])
    assert (result.exit_code, result.stdout) == (2, "")
    assert result.stderr == "kt: Only one of --bootstrap-server or --zookeeper must be specified\n"


@pytest.mark.spec("ADM-3", "SEC-33")
def test_the_clients_properties_are_read_and_security_that_is_not_known_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "client.properties"
    address = f"127.0.0.1:{free_port()}"

    def run(text: str) -> str:
        file.write_text(text)
        flags = ["--bootstrap-server", address, "--command-config", str(file)]
        result = CliRunner().invoke(kt, ["topics", "list", *flags])
        return f"{result.exit_code} {result.stderr}"

    assert run("request.timeout.ms=1000\nacks=all\n") == f"1 kt: no broker answers: {address}: refused\n"
    assert run("request.timeout=1000\n") == (
        f"1 kt: warning: {file}: unknown key request.timeout: is it request.timeout.ms?\n"
        f"kt: no broker answers: {address}: refused\n"
    )
    assert run("send.buffer.bytes=1\nclient.dns.lookup=x\n") == (
        f"1 kt: warning: {file}: without effect here: client.dns.lookup, send.buffer.bytes\n"
        f"kt: no broker answers: {address}: refused\n"
    )
    refused = run("security.protocol=NOT_KNOWN")
    assert refused.startswith("2 ") and "security.protocol" in refused
    file.unlink()
    missing = CliRunner().invoke(kt, ["topics", "list", "--bootstrap-server", address, "--command-config", str(file)])
    assert missing.exit_code == 2 and str(file) in missing.stderr


@pytest.mark.spec("COM-1", "COM-10X", "Z-1")
def test_a_session_of_several_hosts_and_a_chroot_has_kafkas_time_outs_and_zookeepers_limit(
    zk: ZooKeeper, zk_connect: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_orders(zk)
    asked: list[dict[str, object]] = []

    class Noting(ZooKeeper):
        def __init__(self, connect: str, *, security: ZooKeeperSecurity, **more: int) -> None:
            asked.append({"connect": connect, **more})
            super().__init__(connect, security=security, **more)  # type: ignore[arg-type]

    monkeypatch.setattr(session, "ZooKeeper", Noting)
    server, _, chroot = zk_connect.partition("/")
    silent = f"127.0.0.1:{free_port()}"
    for connect in (f"{silent},{server}/{chroot}", f"{server},{silent}/{chroot}"):
        asked.clear()
        result = CliRunner().invoke(kt, ["topics", "list", "--zookeeper", connect])
        assert (result.exit_code, result.stdout) == (0, "orders\n"), "below the chroot, whichever host it is"
        assert asked == [
            {
                "connect": connect,
                "session_timeout_ms": 30_000,
                "connection_timeout_ms": 30_000,
                "max_packet_bytes": 1_048_575,
            }
        ]


@pytest.mark.spec("ADM-2")
@pytest.mark.parametrize("address", ["kafka1", "kafka1:0", "kafka1:65536", "::1:9092"])
def test_what_is_no_address_of_a_broker_is_wrong_usage(address: str) -> None:
    result = CliRunner().invoke(kt, ["topics", "list", "--bootstrap-server", address])
    assert (result.exit_code, result.stdout) == (2, "") and "--bootstrap-server" in result.stderr


@pytest.mark.spec("ADM-11")
@pytest.mark.parametrize(
    "command",
    [
        "topics describe",
        "reassign --list",
        "elect",
        "replica-verify --once",
        "brokers",
        "drain 3 --no-throttle",
        "health",
        "acls list",
        "users list",
        "transactions list",
    ],
)
def test_each_command_names_itself_to_a_broker_over_one_connection_unless_told_another_name(
    command: str, tmp_path: Path
) -> None:
    (config := tmp_path / "client.properties").write_text("client.id=me\nretries=0\n")
    for flags, name in (((), f"kt-{command.split()[0]}"), (("--command-config", str(config)), "me")):
        with FakeBroker(1) as broker:
            CliRunner().invoke(kt, [*command.split(), "--bootstrap-server", str(broker.address), *flags])
            assert broker.client_ids == {name}
            asked = [(version, request) for api, version, request in broker.asked if api == "ApiVersions"]
            said = [(request.client_software_name, request.client_software_version) for _, request in asked]
            assert [version for version, _ in asked] == [3] and said == [("kt", __version__)]
            assert broker.connections == 1


@pytest.mark.parametrize(
    "line",
    [
        "topics describe --zookeeper z --topic a --topic=b",
        "elect --zookeeper z --topic a --topic b",
        "reassign --verify --zookeeper z --reassignment-json-file a --reassignment-json-file b",
    ],
)
def test_what_takes_one_value_is_not_given_twice(line: str) -> None:
    """Else all but the last would be lost without a word."""
    result = CliRunner().invoke(kt, line.split())
    assert result.exit_code == 2 and "is given twice" in result.stderr and result.stdout == ""


def test_what_takes_several_values_is_given_as_often_as_one_likes() -> None:
    line = "topics create --zookeeper 127.0.0.1:1 --topic a --partitions 1 --replication-factor 1 --config x=1 --config y=1"
    assert "is given twice" not in CliRunner().invoke(kt, line.split()).output
