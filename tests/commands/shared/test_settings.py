"""The value of a flag that is not given: environment, settings files, contexts."""

import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from kafkatool.commands.main import kt
from kafkatool.commands.shared import settings
from kafkatool.core.zookeeper.session import ZooKeeper
from tests.commands.topics.runner import make_orders


@pytest.fixture(autouse=True)
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Make an empty directory to run in, for a user without a file."""
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "user"))
    monkeypatch.chdir(tmp_path)
    return tmp_path


def run(*args: str) -> Result:
    return CliRunner().invoke(kt, ["topics", "list", *args])


def user_file(place: Path, text: str) -> None:
    (place / "user" / "kafkatool").mkdir(parents=True)
    (place / "user" / "kafkatool" / "config.toml").write_text(text)


@pytest.mark.spec("COM-7X")
def test_flag_then_environment_then_directory_then_user(
    zk: ZooKeeper, zk_connect: str, place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_orders(zk)
    user_file(place, 'zookeeper = "127.0.0.1:1"\noutput = "tsv"\n')
    (place / settings.LOCAL_FILE).write_text(f'zookeeper = "{zk_connect}"\n')
    assert run().stdout.startswith("TOPIC\tMARKED_FOR_DELETION")
    (place / settings.LOCAL_FILE).write_text(f'zookeeper = "{zk_connect}"\noutput = "text"\n')
    assert run().stdout == "orders\n"
    monkeypatch.setenv("KAFKATOOL_OUTPUT", "json")
    assert json.loads(run().stdout)["items"][0]["topic"] == "orders"
    assert run("--output", "text").stdout == "orders\n"


@pytest.mark.spec("COM-7X")
def test_names_of_the_other_kt_are_not_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KT_BROKERS", "127.0.0.1:1")
    monkeypatch.setenv("KT_TOPIC", "x")
    monkeypatch.setenv("KT_AUTH", "x")
    monkeypatch.setenv("KT_KAFKA_VERSION", "x")
    monkeypatch.setenv("KT_ZOOKEEPER", "127.0.0.1:1")
    monkeypatch.setenv("KT_OUTPUT", "x")
    result = run()
    assert result.exit_code == 2 and "--zookeeper" in result.stderr


@pytest.mark.spec("COM-7X", "COM-3X")
@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("zokeeper = 1", "unknown setting 'zokeeper'"),
        ("zookeeper = [1]", "zookeeper is not a single value"),
        ("zookeeper", "cannot read settings"),
    ],
)
def test_a_bad_file_is_named(place: Path, text: str, why: str) -> None:
    (place / settings.LOCAL_FILE).write_text(text)
    result = run()
    assert result.exit_code == 2
    assert why in result.stderr and settings.LOCAL_FILE in result.stderr


TWO_CONTEXTS = """
output = "tsv"
context = "here"

[contexts.here]
zookeeper = "{}"

[contexts.nowhere]
zookeeper = "no-such-host.invalid:2181"
output = "text"
"""


@pytest.mark.usefixtures("no_such_host")
@pytest.mark.spec("COM-7X")
def test_a_context_is_one_of_several_clusters(
    zk: ZooKeeper, zk_connect: str, place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_orders(zk)
    user_file(place, TWO_CONTEXTS.format(zk_connect))
    assert run().stdout.splitlines() == [
        "TOPIC\tMARKED_FOR_DELETION\tINTERNAL\tERROR\tMESSAGE",
        "orders\tfalse\tfalse\t\t",
    ]
    elsewhere = CliRunner().invoke(kt, ["--context", "nowhere", "topics", "list"])
    assert elsewhere.exit_code == 1 and not elsewhere.stdout
    assert elsewhere.stderr == "kt: no such host: no-such-host.invalid; check the address of --zookeeper\n"
    monkeypatch.setenv("KAFKATOOL_CONTEXT", "nowhere")
    assert "no-such-host" in run().stderr
    assert CliRunner().invoke(kt, ["--context", "here", "topics", "list", "--output", "text"]).stdout == "orders\n"
    (place / settings.LOCAL_FILE).write_text('context = "here"\n')  # the directory's file chooses, the user's defines
    monkeypatch.delenv("KAFKATOOL_CONTEXT")
    assert run().exit_code == 0


USERS_CONTEXT = """
context = "users"

[contexts.users]
zookeeper = "no-such-host.invalid:2181"
output = "tsv"
"""


@pytest.mark.usefixtures("no_such_host")
@pytest.mark.spec("COM-7X")
def test_a_context_chosen_by_a_file_does_not_beat_the_directorys_file(
    zk: ZooKeeper, zk_connect: str, place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_orders(zk)
    user_file(place, USERS_CONTEXT)
    (place / settings.LOCAL_FILE).write_text(f'zookeeper = "{zk_connect}"\n')
    assert run().stdout.splitlines()[1:] == ["orders\tfalse\tfalse\t\t"]  # what the near file lacks: from the far one
    assert "no-such-host" in CliRunner().invoke(kt, ["--context", "users", "topics", "list"]).stderr
    monkeypatch.setenv("KAFKATOOL_CONTEXT", "users")  # the environment goes before both files
    assert "no-such-host" in run().stderr


@pytest.mark.usefixtures("no_such_host")
@pytest.mark.spec("COM-7X")
def test_a_context_given_as_a_flag_goes_before_the_environment(
    zk: ZooKeeper, zk_connect: str, place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_orders(zk)
    user_file(place, USERS_CONTEXT + f'[contexts.ours]\nzookeeper = "{zk_connect}"\n')
    monkeypatch.setenv("KAFKATOOL_ZOOKEEPER", "no-such-host.invalid:2181")
    monkeypatch.setenv("KAFKATOOL_OUTPUT", "text")  # not said in that context: the environment, then the files
    ours = ["--context", "ours", "topics", "list"]
    assert CliRunner().invoke(kt, ours).stdout == "orders\n"
    elsewhere = CliRunner().invoke(kt, [*ours, "--zookeeper", f"{zk_connect}/elsewhere"])
    assert "/elsewhere" in elsewhere.stderr  # the flag itself goes before its context's value
    monkeypatch.setenv("KAFKATOOL_CONTEXT", "ours")
    assert "no-such-host" in run().stderr  # two of the environment: the one that names the setting


@pytest.mark.spec("COM-7X", "COM-3X")
@pytest.mark.parametrize(
    ("text", "args", "why"),
    [
        ("", ["--context", "prod"], "no context 'prod': neither .kafkatool.toml nor"),
        ("[contexts.a]\n[contexts.b]", ["--context", "prod"], "no context 'prod': there are a, b"),
        ('context = "c"\n[contexts.a]', [], "context 'c' is chosen, but there are a"),
        ("[contexts.a]\nzoo = 1", ["--context", "a"], "[contexts.a]: unknown setting 'zoo'"),
        ("contexts = 1", [], "contexts is not a table such as [contexts.prod]"),
        ("[context.a]", [], "context is not a name; the tables are [contexts.NAME]"),
    ],
)
def test_a_context_that_is_not_there_is_named(place: Path, text: str, args: list[str], why: str) -> None:
    (place / settings.LOCAL_FILE).write_text(text)
    result = CliRunner().invoke(kt, [*args, "topics", "list"])
    assert result.exit_code == 2
    assert why in result.stderr and len(result.stderr.splitlines()) == 1


@pytest.mark.spec("COM-7X")
def test_a_slip_in_another_contexts_table_is_no_matter(zk: ZooKeeper, zk_connect: str, place: Path) -> None:
    make_orders(zk)
    (place / settings.LOCAL_FILE).write_text(
        f'[contexts.good]\nzookeeper = "{zk_connect}"\n[contexts.bad]\nzokeeper = "x"\n'
    )
    good = CliRunner().invoke(kt, ["--context", "good", "topics", "list"])
    assert (good.exit_code, good.stdout) == (0, "orders\n"), good.output
    bad = CliRunner().invoke(kt, ["--context", "bad", "topics", "list"])
    assert bad.exit_code == 2 and "[contexts.bad]: unknown setting 'zokeeper'" in bad.stderr


def test_context_behind_the_command_is_told_where_it_belongs() -> None:
    result = CliRunner().invoke(kt, ["topics", "list", "--context", "x"])
    assert result.exit_code == 2
    assert "it goes before the command: kt --context … topics list" in result.stderr


@pytest.mark.parametrize(
    ("line", "hint"),
    [
        ("--bootstrap-server x:1 topics list", "flags of a command go behind it: kt topics list --bootstrap-server …"),
        ("topics describe orders", "(orders) (say --topic before it)"),
        ("reassign --execute plan.json", "(plan.json) (say --reassignment-json-file before it)"),
        ("cluster status now", "(now) (kt cluster status --help shows examples)"),
    ],
)
def test_what_stands_in_the_wrong_place_is_told_the_right_one(line: str, hint: str) -> None:
    result = CliRunner().invoke(kt, line.split())
    assert result.exit_code == 2 and hint in result.stderr, result.stderr
