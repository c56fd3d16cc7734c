"""Runs the commands of ``kt logs`` in the process, with a stand-in for Spark."""

import json
from pathlib import Path
from typing import Any

import psutil
import pytest
from click.testing import CliRunner, Result

from kafkatool.commands.logs import session as logs_session
from kafkatool.commands.main import kt
from tests.core.statelog.logs import InProcess
from tests.paths import ROOT

EXAMPLE = ROOT / "docs" / "logs-example"


class NoSpark(InProcess):
    """Stands for Spark where what matters is around it."""

    started = 0
    local = True

    def __init__(self, *_: object, **__: object) -> None:
        super().__init__()
        type(self).started += 1

    def __enter__(self) -> "NoSpark":
        return self

    def __exit__(self, *_: object) -> None:
        return


def without_spark(monkeypatch: pytest.MonkeyPatch) -> type[NoSpark]:
    """Make the process itself stand for Spark from now on."""
    monkeypatch.setattr(logs_session, "Spark", NoSpark)
    monkeypatch.setattr(NoSpark, "started", 0)
    return NoSpark


def run(*arguments: object, stdin: bytes = b"") -> Result:
    """Run ``kt logs`` with these arguments."""
    return CliRunner().invoke(kt, ["logs", *map(str, arguments)], input=stdin)


def document(*arguments: object) -> dict[str, Any]:
    """Return the JSON that the command prints."""
    result = run(*arguments, "--output", "json")
    assert result.exit_code == 0, result.output
    found: dict[str, Any] = json.loads(result.stdout)
    return found


def nothing_is_left(temporary: Path) -> bool:
    """Tell if there are neither files nor a process that uses them."""
    commands = [" ".join(process.info["cmdline"] or ()) for process in psutil.process_iter(["cmdline"])]
    return not list(temporary.iterdir()) and not any(str(temporary) in command for command in commands)
