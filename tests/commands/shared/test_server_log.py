"""The log of a server: a line for each message, whatever clients call things."""

import logging
from pathlib import Path

import pytest

from kafkatool.commands.shared import server_log
from kafkatool.commands.shared.server_log import log_controller_to, log_refusals_to


@pytest.mark.spec("SEC-68", "SEC-75", "SEC-44")
def test_a_name_that_a_client_chose_forges_no_line_and_drives_no_terminal(tmp_path: Path) -> None:
    logger = logging.getLogger("kafka.authorizer.logger")
    before = logger.handlers[:], logger.level, logger.propagate
    log_refusals_to(tmp_path / "authorizer.log")
    try:
        logger.info("Topic:LITERAL:%s", "x\n[2026-11-23 04:00:00,000] INFO forged\r\x1b[31m\x85\u2028ü")
    finally:
        added = logger.handlers[-1]
        added.close()
        logger.handlers, logger.level, logger.propagate = before
    (line,) = (tmp_path / "authorizer.log").read_text("utf-8").splitlines()
    assert r"LITERAL:x\n[2026-11-23 04:00:00,000] INFO forged\r\x1b[31m\x85\u2028ü (kafka.auth" in line


@pytest.mark.spec("SEC-68", "SEC-44")
def test_a_name_in_the_text_of_an_error_forges_no_line_of_its_traceback(tmp_path: Path) -> None:
    logger = logging.getLogger("kafka.authorizer.logger")
    before = logger.handlers[:], logger.level, logger.propagate
    log_refusals_to(tmp_path / "authorizer.log")
    name = "bob\n[2026-11-23 04:00:00,000] INFO forged\x1b[31m\u202e\ud800"
    try:
        try:
            try:
                raise KeyError(name)
            except KeyError as cause:
                raise ValueError(f"user {name}") from cause
        except ValueError:
            logger.exception("%s failed", name)
    finally:
        added = logger.handlers[-1]
        added.close()
        logger.handlers, logger.level, logger.propagate = before
    lines = (tmp_path / "authorizer.log").read_text("utf-8").splitlines()
    assert r"bob\n[2026-11-23 04:00:00,000] INFO forged\x1b[31m\u202e\ud800 failed" in lines[0]
    assert lines[1] == "Traceback (most recent call last):"
    assert lines[-1] == r"ValueError: user bob\n[2026-11-23 04:00:00,000] INFO forged\x1b[31m\u202e\ud800"
    assert any(line.startswith("  File ") for line in lines)
    assert any(line.startswith("    raise ValueError") for line in lines)
    assert "The above exception was the direct cause of the following exception:" in lines
    assert not any(line.startswith("[") for line in lines[1:])


@pytest.mark.spec("SEC-75")
@pytest.mark.parametrize("name", ["authorizer", "controller"])
def test_a_log_that_others_can_fill_is_bounded_and_has_the_newest_lines_whole(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With files of 1,000 bytes instead of 100 MB, which the constants say."""
    assert (server_log.FILE_BYTES, 1 + server_log.ROLLED) == (100 << 20, 10)
    monkeypatch.setattr(server_log, "FILE_BYTES", 1000)
    logger = logging.getLogger(f"kafka.{name}.logger" if name == "authorizer" else "kafkatool.broker.controller")
    before = logger.handlers[:], logger.level, logger.propagate
    path = tmp_path / f"{name}.log"
    (log_refusals_to if name == "authorizer" else log_controller_to)(path)
    added = logger.handlers[-1]
    logger.setLevel(logging.INFO)
    logger.propagate = False
    try:
        for number in range(500):
            logger.info("line %d of a client's \ud800", number)
    finally:
        added.close()
        logger.handlers, logger.level, logger.propagate = before
    files = [tmp_path / f"{name}.log.{number}" for number in range(9, 0, -1)] + [path]
    assert sorted(tmp_path.iterdir()) == sorted(files)
    assert all(file.stat().st_size <= 1000 for file in files)
    lines = [line for file in files for line in file.read_text("utf-8").splitlines()]
    numbers = [int(line.split(" line ")[1].split(" ")[0]) for line in lines]
    assert len(numbers) > 60 and numbers == list(range(500 - len(numbers), 500))
    assert all(line.startswith("[") and line.endswith(f"({logger.name})") for line in lines)
