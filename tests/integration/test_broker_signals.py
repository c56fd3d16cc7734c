"""kt broker start and signals: one, or many at once, at any moment, end it cleanly."""

import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.waiting import eventually


@contextmanager
def broker(directory: Path, connect: str, said: bytes) -> Iterator[subprocess.Popen[bytes]]:
    """Give a broker process whose log has come to contain ``said``; it has to end with 0 in the block."""
    properties = directory / "server.properties"
    properties.write_text(
        f"broker.id=1\nlisteners=PLAINTEXT://127.0.0.1:0\nlog.dirs={directory / 'data'}\nzookeeper.connect={connect}\n"
    )
    output = directory / "server.log"
    with output.open("wb") as sink:
        command = [sys.executable, "-m", "kafkatool", "broker", "start", "--config", str(properties)]
        process = subprocess.Popen(command, stdout=sink, stderr=sink)
    try:
        eventually(lambda: said in output.read_bytes(), "the broker to log it")
        yield process
        assert process.wait(120) == 0, output.read_text()
    finally:
        process.kill()
        process.wait()
    assert b"Traceback" not in output.read_bytes()


@pytest.mark.spec("BRK-126", "BRK-128")
def test_a_burst_of_signals_ends_a_broker_like_one(tmp_path: Path, zk_connect: str) -> None:
    with broker(tmp_path, zk_connect, b" serves ") as process:
        for _ in range(50):
            process.send_signal(signal.SIGTERM)


@pytest.mark.spec("BRK-126", "BRK-128")
@pytest.mark.parametrize("said", [b" logs after ", b" is registered"])
def test_a_signal_while_it_starts_is_a_clean_stop(tmp_path: Path, zk_connect: str, said: bytes) -> None:
    with broker(tmp_path, zk_connect, said) as process:
        process.send_signal(signal.SIGTERM)
