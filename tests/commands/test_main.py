"""The outermost command: what it loads, how it ends, how errors look."""

import json
import os
import resource
import subprocess
import sys
from collections.abc import Callable

import click
import pytest
from click.testing import CliRunner

from kafkatool import __version__
from kafkatool.commands.lazy import LazyGroup
from kafkatool.commands.main import COMMANDS, RootGroup, kt
from kafkatool.commands.shared.options import output_option
from kafkatool.commands.shared.output import FORMATS, Output, error_item
from kafkatool.commands.topics.group import ACTIONS
from kafkatool.core.errors import KafkatoolError, RefusedError, UsageError, ZooKeeperUnavailableError

HEAVY = ("rich", "kazoo", "pyspark", "kafkatool.broker")


def process(*args: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, *args], capture_output=True, text=True, timeout=100, check=False)


@pytest.mark.parametrize(
    "args", [["--help"], ["topics", "--help"], ["topics", "create", "--help"], ["completion", "--help"]]
)
def test_help_imports_nothing_heavy(args: list[str]) -> None:
    code = (
        "import sys; from kafkatool.commands.main import kt\n"
        f"try: kt.main({args!r})\n"
        f"finally: sys.stderr.write(','.join(m for m in {HEAVY!r} if m in sys.modules))"
    )
    result = process("-c", code)
    assert (result.returncode, result.stderr) == (0, "")
    assert "Usage: kt" in result.stdout


@pytest.mark.slow
def test_help_is_there_in_a_blink() -> None:
    """Measured as processor time, beside that of what every help page needs: a busy machine lengthens both."""

    def once(*args: str) -> float:
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        assert process(*args).returncode == 0
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime

    pairs = [(once("-m", "kafkatool", "--help"), once("-c", "import click")) for _ in range(5)]
    assert min(help_s for help_s, _ in pairs) < 3 * min(click_s for _, click_s in pairs)


@pytest.mark.parametrize("name", [*COMMANDS, *(f"topics {a}" for a in ACTIONS)])
def test_every_command_loads_and_explains_itself(name: str) -> None:
    result = CliRunner().invoke(kt, [*name.split(), "--help"])
    assert result.exit_code == 0, result.output
    assert f"Usage: kt {name}" in result.stdout


@pytest.mark.spec("COM-4X")
@pytest.mark.parametrize("action", ACTIONS)
def test_help_ends_with_an_example_and_the_promised_keys(action: str) -> None:
    text = CliRunner().invoke(kt, ["topics", action, "--help"]).stdout
    assert f"  kt topics {action} --zookeeper" in text
    assert "--output json, yaml: one document tool, cluster_id, items, errors" in text
    assert "--output tsv:" in text and "MESSAGE" in text


def test_version() -> None:
    assert CliRunner().invoke(kt, ["--version"]).stdout == f"kt, version {__version__}\n"


@pytest.mark.spec("COM-3X")
@pytest.mark.parametrize("args", [["nope"], ["topics", "nope"], ["topics", "list", "--nope"], ["topics", "list", "x"]])
def test_bad_usage_ends_with_2_on_stderr(args: list[str]) -> None:
    result = CliRunner().invoke(kt, args)
    assert (result.exit_code, result.stdout) == (2, "")
    assert result.stderr


@pytest.mark.spec("COM-3X")
def test_kafkas_spelling_gets_the_kt_form() -> None:
    result = CliRunner().invoke(kt, ["topics", "--create", "--topic", "a b", "--zookeeper", "z:1"])
    assert (result.exit_code, result.stdout) == (2, "")
    assert result.stderr == (
        "kt: kt takes the action as a word; write: kt topics create --topic 'a b' --zookeeper z:1\n"
    )
    result = CliRunner().invoke(kt, ["topics", "--zookeeper", "z:1", "--list", "--describe"])
    assert result.exit_code == 2 and "exactly one action" in result.stderr


def failing(error: BaseException) -> click.Group:
    """Make a root group whose one command ends in ``error``; it has ``--output``."""

    @click.command()
    @output_option
    def fail(out: Output) -> None:
        raise error

    class Failing(RootGroup):
        def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command:
            return fail

    return Failing("kt", lazy={})


@pytest.mark.spec("COM-3X")
@pytest.mark.parametrize(
    ("error", "code", "stderr"),
    [
        (RefusedError("no\nway"), 1, "kt: no way\n"),
        (UsageError("what?"), 2, "kt: what?\n"),
        (KeyboardInterrupt(), 130, "\ninterrupted\n"),
        (BrokenPipeError(), 1, ""),
    ],
)
def test_an_error_is_one_line_and_an_exit_code(error: BaseException, code: int, stderr: str) -> None:
    result = CliRunner().invoke(failing(error), ["fail"])
    assert (result.exit_code, result.stdout, result.stderr) == (code, "", stderr)


@pytest.mark.spec("COM-4X")
def test_who_asked_for_json_gets_the_error_as_json_too() -> None:
    result = CliRunner().invoke(failing(ZooKeeperUnavailableError("gone")), ["fail", "--output", "json"])
    assert result.exit_code == 1
    assert json.loads(result.stdout) == {
        "tool": "kt fail",
        "cluster_id": None,
        "items": [],
        "errors": [{"error": "zoo_keeper_unavailable", "message": "gone"}],
    }


@pytest.mark.parametrize(
    ("error", "kind"), [(RefusedError("x"), "refused"), (KafkatoolError("x"), "kafkatool"), (UsageError("x"), "usage")]
)
def test_the_kind_of_an_error_is_its_class(error: KafkatoolError, kind: str) -> None:
    assert error_item(error, topic="t") == {"topic": "t", "error": kind, "message": "x"}


@pytest.mark.spec("SCL-22X")
def test_a_closed_pipe_ends_quietly() -> None:
    read, write = os.pipe()
    os.close(read)
    try:
        result = subprocess.run(
            [sys.executable, "-m", "kafkatool", "topics", "create", "--help"],
            stdout=write,
            stderr=subprocess.PIPE,
            text=True,
            timeout=100,
            check=False,
        )
    finally:
        os.close(write)
    assert (result.returncode, result.stderr) == (1, "")


def test_debug_shows_where() -> None:
    def stderr_of(*args: str) -> str:
        return process("-m", "kafkatool", *args, "topics", "list", "--zookeeper", "a b").stderr

    assert stderr_of().count("\n") == 1
    assert "Traceback" in stderr_of("--debug")


def test_a_lazy_group_imports_a_command_only_when_it_is_named() -> None:
    group = LazyGroup("g", lazy={"x": ("kafkatool.no_such_module:x", "An x.")})
    context = click.Context(group)
    assert group.list_commands(context) == ["x"]
    assert group.get_command(context, "y") is None
    with pytest.raises(ModuleNotFoundError):
        group.get_command(context, "x")


@pytest.mark.parametrize("form", FORMATS)
def test_without_a_terminal_progress_draws_nothing(form: str, capsys: pytest.CaptureFixture[str]) -> None:
    update: Callable[[int, int], None]
    with Output(form).progress("work") as update:
        update(1, 2)
    assert capsys.readouterr() == ("", "")
