"""Names and messages that others choose reach terminals, pipes and files without what drives a terminal (SEC-44)."""

import ast
import json
import re
import sys
import unicodedata
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml
from click.testing import CliRunner, Result

from kafkatool.commands.main import kt
from kafkatool.commands.shared.output import FORMATS, Answer, Output, paint
from kafkatool.commands.shared.printable import as_json, harmless, one_line
from kafkatool.core.model.acls import Entry, Operation, PatternType, Permission, ResourcePattern, ResourceType
from kafkatool.core.protocol.messages import create_topics, list_transactions
from kafkatool.core.protocol.messages.error_codes import ErrorCode
from kafkatool.core.zookeeper.acl_znodes import ACL_PATHS, AclZnode
from kafkatool.core.zookeeper.session import ZooKeeper
from tests.commands.logs.tools import without_spark
from tests.core.client.fake_broker import FakeBroker
from tests.paths import ROOT

CONTROLS = [chr(n) for n in (*range(0x20), *range(0x7F, 0xA0), *range(0x202A, 0x202F), *range(0x2066, 0x206A))]
HALF = "\udcff"
LAYOUT = "\t\n"
HOSTILE = "evil\x1b]0;title\x07\x9b31m\u202egnp\x7f\ttab\nforged line"
HARMFUL = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069\ud800-\udfff]")
TELLS = ("\\x1b]0;title\\x07", "\\x9b31m", "\\u202egnp\\x7f")


def shown(control: str, form: str, capsys: pytest.CaptureFixture[str]) -> str:
    Output(form).show(Answer([f"a{control}b"], [{"name": f"a{control}b", "names": [control]}], ("name", "names")))
    return capsys.readouterr().out


@pytest.mark.spec("SEC-44")
@pytest.mark.parametrize("form", FORMATS)
def test_each_control_is_written_out_in_every_form(form: str, capsys: pytest.CaptureFixture[str]) -> None:
    for control in (*CONTROLS, HALF):
        text = shown(control, form, capsys)
        assert not HARMFUL.search(text), (control, text)
        match form:
            case "json" | "yaml":
                found = json.loads(text) if form == "json" else yaml.safe_load(text)
                assert found["items"] == [{"name": f"a{control}b", "names": [control]}]
            case "tsv":
                assert [len(row.split("\t")) for row in text.splitlines()] == [4, 4], control
            case "text" if control not in LAYOUT:
                escaped = control.encode("unicode_escape").decode()
                assert text == f"a{escaped}b\n" and re.fullmatch(r"\\[rxu][0-9a-f]*", escaped)


@pytest.mark.spec("SEC-44")
def test_nothing_of_what_is_written_out_is_printable_to_python() -> None:
    """A text that is printable as a whole is not looked through."""
    harmful = [chr(n) for n in range(sys.maxunicode + 1) if HARMFUL.match(chr(n)) or chr(n) in CONTROLS]
    assert len(harmful) > len(CONTROLS) and not [c for c in harmful if c.isprintable()]


@pytest.mark.spec("SEC-44")
def test_letters_of_all_scripts_stay_as_they_are(capsys: pytest.CaptureFixture[str]) -> None:
    text = "Aß€字🙂 שלום"
    for form in FORMATS:
        assert text in shown(text, form, capsys)
    assert as_json(text) == f'"{text}"'


@pytest.mark.spec("SEC-44")
def test_a_cell_and_a_name_stay_on_their_line() -> None:
    assert one_line("a\tb\nc") == "a\\tb\\nc" and harmless("a\tb\nc") == "a\tb\nc"
    assert not any(unicodedata.category(c) == "Cc" for c in one_line("".join(CONTROLS)))


@pytest.mark.spec("SEC-44")
def test_colours_are_kts_own(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr("sys.stdout.isatty", lambda: True, raising=False)
    monkeypatch.setattr("click._compat.should_strip_ansi", lambda *_: False)
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setenv("TERM", "xterm")
    Output().line(f"{paint('ok', 'green')} \x1b[31mforged")
    assert capsys.readouterr().out == "\x1b[32mok\x1b[0m \\x1b[31mforged\n"


def is_harmless(result: Result) -> None:
    assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
    assert not HARMFUL.search(result.stdout), result.stdout
    assert not HARMFUL.search(result.stderr), result.stderr


@pytest.fixture
def broker() -> Iterator[FakeBroker]:
    """A broker whose transactional ids and messages are hostile."""
    with FakeBroker(1, {list_transactions.API: (0, 1), create_topics.API: (0, 7)}) as found:
        listed = list_transactions.ListedTransaction(transactional_id=HOSTILE, producer_id=7, state="Ongoing")
        found.answers[list_transactions.API.key] = lambda _: list_transactions.ListTransactionsResponse(
            transactions=[listed]
        )
        result = create_topics.CreateTopicsResponseTopic(
            name="t", error_code=ErrorCode.POLICY_VIOLATION, error_message=HOSTILE
        )
        found.answers[create_topics.API.key] = lambda _: create_topics.CreateTopicsResponse(topics=[result])
        yield found


@pytest.mark.spec("SEC-44")
@pytest.mark.parametrize("form", FORMATS)
def test_transactional_ids_and_brokers_messages_are_harmless(broker: FakeBroker, form: str) -> None:
    def run(*args: str) -> Result:
        return CliRunner().invoke(kt, [*args, "--bootstrap-server", str(broker.address), "--output", form])

    listed = run("transactions", "list")
    is_harmless(listed)
    create = ("topics", "create", "--topic", "t", "--partitions", "1", "--replication-factor", "1")
    refused = run(*create)
    is_harmless(refused)
    if form in ("text", "tsv"):
        assert all(text in listed.stdout for text in TELLS) and all(text in refused.stdout for text in TELLS)
        assert len(listed.stdout.splitlines()) == 2  # no line of it is forged
    elif form == "json":
        assert json.loads(listed.stdout)["items"][0]["transactional_id"] == HOSTILE
        assert json.loads(refused.stdout)["errors"][0]["message"] == HOSTILE


@pytest.mark.spec("SEC-44")
@pytest.mark.parametrize("form", FORMATS)
def test_what_znodes_hold_is_harmless(zk: ZooKeeper, zk_connect: str, form: str) -> None:
    pattern = ResourcePattern(ResourceType.GROUP, "g", PatternType.LITERAL)
    entry = Entry(f"User:{HOSTILE}", "*", Operation.READ, Permission.ALLOW)
    for path in ("/brokers/ids", *ACL_PATHS):
        zk.create(path, make_parents=True)
    zk.create(AclZnode.path(pattern), AclZnode.encode([entry]))
    found = CliRunner().invoke(kt, ["acls", "list", "--zookeeper", zk_connect, "--output", form])
    assert found.exit_code == 0 and "evil" in found.stdout
    is_harmless(found)


@pytest.mark.spec("SEC-44")
@pytest.mark.parametrize("form", FORMATS)
def test_lines_of_logs_are_harmless(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, form: str) -> None:
    without_spark(monkeypatch)
    log = tmp_path / "state-change.log"
    why = "no \x1b[2Jleader \u202eever \udcff".encode("utf-8", "surrogateescape")
    log.write_bytes(
        b"[2024-01-01 10:00:00,000] ERROR Controller 1 epoch 2 encountered error while electing leader for partition "
        b"[t,0] due to: " + why + b". (state.change.logger)\n"
    )
    for command in (["timeline"], ["report"]):
        found = CliRunner().invoke(kt, ["logs", *command, "--logs", str(log), "--output", form])
        is_harmless(found)
        if command == ["timeline"] and form in ("text", "tsv"):
            assert "\\x1b[2Jleader \\u202eever" in found.stdout


@pytest.mark.spec("SEC-44")
def test_what_is_typed_is_harmless_in_what_is_said_of_it() -> None:
    for args in (["topics", HOSTILE], [f"--{HOSTILE}"], ["topics", "list", "--zookeeper", HOSTILE]):
        result = CliRunner().invoke(kt, args)
        assert result.exit_code in (1, 2) and "evil" in result.stderr
        is_harmless(result)


BESIDE = {
    ("commands/shared/printable.py", "echo"),  # the way itself
    ("commands/logs/session.py", "echo"),  # the terminal's line of Spark's progress: two numbers
    ("commands/completion.py", "echo"),  # a shell's script, of kt's own words
}


@pytest.mark.spec("SEC-44")
def test_there_is_one_way_to_the_terminal() -> None:
    """A command that printed by itself would print what it was given."""
    found = set()
    for path in (ROOT / "kafkatool" / "commands").rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Call):
                name = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
                if name in ("echo", "secho", "print"):
                    found.add((path.relative_to(ROOT / "kafkatool").as_posix(), name))
    assert found <= BESIDE, found - BESIDE
