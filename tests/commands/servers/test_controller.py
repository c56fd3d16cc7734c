"""``kt controller start`` as a process: what a signal does before it runs. What it rules is in tests/integration."""

import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_it_while_zookeeper_does_not_answer(tmp_path: Path, number: signal.Signals) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        silent.settimeout(60)
        address = f"127.0.0.1:{silent.getsockname()[1]}"
        command = [sys.executable, "-m", "kafkatool", "controller", "start", "--zookeeper", address, "--take-over"]
        command += ["--log-dir", str(tmp_path), "-o", "zookeeper.connection.timeout.ms=100000"]
        with subprocess.Popen(command, stdin=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True) as process:
            try:
                connection, _ = silent.accept()
                with connection:
                    process.send_signal(number)
                    _, said = process.communicate(timeout=60)
            finally:
                process.kill()
    assert process.returncode == 0 and "told to stop before it ruled" in said, said
