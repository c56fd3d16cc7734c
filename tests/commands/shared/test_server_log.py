"""The log of a server: a line for each message, whatever clients call things."""

import logging
from pathlib import Path

import pytest

from kafkatool.commands.shared.server_log import log_refusals_to


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
