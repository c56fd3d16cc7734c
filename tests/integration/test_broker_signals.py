"""kt broker start and signals: one, or many at once, end it."""

import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.waiting import eventually


@pytest.mark.spec("BRK-126", "BRK-128")
def test_a_burst_of_signals_ends_a_broker_like_one(tmp_path: Path, zk_connect: str) -> None:
    properties = tmp_path / "server.properties"
    properties.write_text(
        f"broker.id=1\nlisteners=PLAINTEXT://127.0.0.1:0\nlog.dirs={tmp_path / 'data'}\nzookeeper.connect={zk_connect}\n"
    )
    output = tmp_path / "server.log"
    with output.open("wb") as sink:
        command = [sys.executable, "-m", "kafkatool", "broker", "start", "--config", str(properties)]
        broker = subprocess.Popen(command, stdout=sink, stderr=sink)
    try:
        eventually(lambda: b" serves " in output.read_bytes(), "the broker to serve")
        for _ in range(50):
            broker.send_signal(signal.SIGTERM)
        assert broker.wait(30) in (0, 130)
    finally:
        broker.kill()
        broker.wait()
    assert b"Traceback" not in output.read_bytes()
